"""Other engines read each table that does not list `txlog.fragments`, and refuse each that does.

Without the feature fragments are tags that mean nothing to others: ids, takes, fragments of workers
and compactions must not hinder them. With it they must refuse, whatever the table really uses.
"""

from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import txlog

deltalake: Any = pytest.importorskip("deltalake")
pl: Any = pytest.importorskip("polars")

SCHEMA = pa.schema([("x", pa.int64()), ("t", pa.string()), ("p", pa.string())])
FEATURE = {"delta.feature.txlog.fragments": "supported"}
TRACKED = {"delta.enableRowTracking": "true"}


def part(start: int, stop: int) -> pa.Table:
    rows = [
        {"x": x, "t": f"t{x}" if x % 5 else None, "p": "abc"[x % 3]} for x in range(start, stop)
    ]
    return pa.Table.from_pylist(rows, schema=SCHEMA)


def by_deltalake(root: Path) -> pa.Table:
    builder = deltalake.QueryBuilder().register("t", deltalake.DeltaTable(str(root)))
    return pa.table(builder.execute("select * from t"))


def by_duckdb(root: Path) -> pa.Table:
    """Return the rows by duckdb, if its extension is there: it is not fetched for a test.

    The package duckdb-extension-delta has it for the same version of duckdb (.ci/environments).
    """
    duckdb: Any = pytest.importorskip("duckdb")
    given = {"autoinstall_known_extensions": "false", "allow_unsigned_extensions": "true"}
    connection = duckdb.connect(config=given)
    package = find_spec("duckdb_extension_delta")
    places = [] if package is None else package.submodule_search_locations or []
    files = [str(file) for place in places for file in Path(place).rglob("*.duckdb_extension")]
    try:
        connection.execute(f"LOAD '{files[0]}'" if files else "LOAD delta")
    except duckdb.Error as error:
        pytest.skip(f"duckdb has no delta extension here: {error}")
    return connection.execute(f"SELECT * FROM delta_scan('{root}')").to_arrow_table()


READERS: dict[str, Callable[[Path], pa.Table]] = {
    "deltalake": by_deltalake,
    "polars": lambda root: pl.scan_delta(str(root)).collect().to_arrow(),
    "polars, at once": lambda root: pl.read_delta(str(root)).to_arrow(),
}
# These know no deletion vectors, so they are asked only about tables that they must refuse.
REFUSERS: dict[str, Callable[[Path], Any]] = {
    **READERS,
    "deltalake, Arrow": lambda root: deltalake.DeltaTable(str(root)).to_pyarrow_table(),
    "deltalake, Arrow data set": lambda root: deltalake.DeltaTable(str(root)).to_pyarrow_dataset(),
    "deltalake, files": lambda root: deltalake.DeltaTable(str(root)).file_uris(),
    "deltalake, an older version": lambda root: deltalake.DeltaTable(str(root), version=0),
    "polars, count": lambda root: pl.scan_delta(str(root)).select(pl.len()).collect(),
}
WRITERS: dict[str, Callable[[Path], Any]] = {
    "append": lambda root: deltalake.write_deltalake(str(root), part(90, 91), mode="append"),
    "overwrite": lambda root: deltalake.write_deltalake(str(root), part(90, 91), mode="overwrite"),
    "delete": lambda root: deltalake.DeltaTable(str(root)).delete("x = 1"),
    "compact": lambda root: deltalake.DeltaTable(str(root)).optimize.compact(),
    "restore": lambda root: deltalake.DeltaTable(str(root)).restore(0),
    "checkpoint": lambda root: deltalake.DeltaTable(str(root)).create_checkpoint(),
    "vacuum": lambda root: deltalake.DeltaTable(str(root)).vacuum(
        0, dry_run=False, enforce_retention_duration=False
    ),
}

Step = Callable[[txlog.Table], Any]
THREE = txlog.WriteOptions(max_rows_per_file=3)
APPEND: Step = lambda table: table.append(part(20, 30), options=THREE)  # noqa: E731
DELETE: Step = lambda table: table.delete("x % 4 = 1 OR x > 17")  # noqa: E731
COMPACT: Step = lambda table: table.optimize.compact(max_deleted_fraction=0.0)  # noqa: E731
CHECKPOINT: Step = lambda table: table.maintenance.checkpoint()  # noqa: E731


def by_workers(table: txlog.Table) -> None:
    new = txlog.write_fragments(part(30, 37), table, options=THREE)
    table.commit(txlog.FragmentOperation.Append(new))
    left = [(held.id, held.delete("x % 7 = 2 OR x < 3")) for held in table.fragments()]
    table.commit(
        txlog.FragmentOperation.Delete(
            [held for _, held in left if held is not None],
            [number for number, held in left if held is None],
        )
    )
    old = table.fragments()[:2]
    rows = pa.concat_tables([held.to_table() for held in old])
    new = txlog.write_fragments(rows, table)
    group = txlog.FragmentOperation.RewriteGroup([held.metadata for held in old], new)
    table.commit(txlog.FragmentOperation.Rewrite([group]))


def take(table: txlog.Table) -> None:
    asked = table.to_arrow(["_rowaddr"])["_rowaddr"].to_pylist()[::3]
    table.overwrite(table.take(addresses=asked))


LIVES: dict[str, list[Step]] = {
    "created": [],
    "appended": [APPEND, APPEND],
    "deleted": [DELETE],
    "deleted twice": [DELETE, lambda table: table.delete("t IS NULL")],
    "emptied": [lambda table: table.delete(None)],
    "emptied, appended": [lambda table: table.delete("x >= 0"), APPEND],
    "compacted": [APPEND, COMPACT],
    "deleted, compacted": [APPEND, DELETE, COMPACT],
    "compacted, deleted": [APPEND, COMPACT, DELETE],
    "restored": [DELETE, APPEND, lambda table: table.restore(0)],
    "restored deletions": [DELETE, COMPACT, lambda table: table.restore(1)],
    "checkpointed": [DELETE, CHECKPOINT, APPEND],
    "checkpointed at last": [APPEND, DELETE, COMPACT, CHECKPOINT],
    "overwritten": [DELETE, lambda table: table.overwrite(part(5, 25))],
    "replaced rows": [lambda table: table.overwrite(part(4, 6), where="x IN (4, 5)")],
    "by workers": [by_workers, DELETE],
    "taken": [APPEND, take],
}
SHAPES: dict[str, dict[str, Any]] = {
    "plain": {},
    "partitioned": {"partition_by": ["p"]},
    "row tracking": {"properties": TRACKED},
    "no vectors": {"properties": {"delta.enableDeletionVectors": "false"}},
}


def lived(root: Path, life: list[Step], **shape: Any) -> txlog.Table:
    table = txlog.write(root, part(0, 20), options=txlog.WriteOptions(max_rows_per_file=4), **shape)
    for step in life:
        step(table)
    return table


@pytest.mark.slow
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("life", LIVES)
def test_others_read_what_does_not_list_it(tmp_path: Path, shape: str, life: str) -> None:
    if life == "by workers" and shape in ("row tracking", "no vectors"):
        pytest.skip("fragments of workers are not for such tables")
    table = lived(tmp_path, LIVES[life], **SHAPES[shape])
    assert not table.snapshot.supports("txlog.fragments")
    expected = table.to_arrow().to_pylist()
    assert [len(held.files) for held in table.fragments()] == [1] * len(table.fragments())
    for read in READERS.values():
        found = read(tmp_path).select(SCHEMA.names).to_pylist()
        assert sorted(found, key=lambda row: row["x"]) == sorted(expected, key=lambda row: row["x"])


def test_duckdb_reads_what_does_not_list_it(tmp_path: Path) -> None:
    table = lived(tmp_path, [APPEND, DELETE, CHECKPOINT, COMPACT, DELETE])
    found = by_duckdb(tmp_path).select(SCHEMA.names).sort_by("x")
    assert found.to_pylist() == table.to_arrow().sort_by("x").to_pylist()


USES: dict[str, tuple[dict[str, str], list[Step]]] = {
    "only listed": (FEATURE, []),
    "deletions in Lance's form": ({"txlog.deletionFormat": "lance"}, [DELETE]),
    "Lance's form, none used": ({"txlog.deletionFormat": "lance"}, []),
    "column files": (FEATURE, [lambda table: table.alter.add_columns({"y": "x + 1"})]),
    "columns of nulls": (FEATURE, [lambda table: table.alter.add_columns({"y": pa.int32()})]),
    "replaced columns": (FEATURE, [lambda table: table.alter.replace_columns({"t": "p"})]),
    "dropped columns": (FEATURE, [lambda table: table.alter.drop_columns("t")]),
    "compacted again": (FEATURE, [lambda table: table.alter.add_columns({"y": "x + 1"}), COMPACT]),
    "checkpointed": (FEATURE, [lambda table: table.alter.add_columns({"y": "x + 1"}), CHECKPOINT]),
    "emptied": (FEATURE, [lambda table: table.delete(None)]),
}


@pytest.mark.spec("FRG-13", "FRG-14", "FRG-19")
@pytest.mark.parametrize("use", USES)
def test_others_refuse_what_lists_it(tmp_path: Path, use: str) -> None:
    """deltalake raises a `DeltaError` that names the feature; so does polars, which asks it."""
    properties, steps = USES[use]
    table = lived(tmp_path, steps, properties=properties)
    files = sorted(path for path in tmp_path.rglob("*") if path.is_file())
    for does in [*REFUSERS.values(), *WRITERS.values()]:
        with pytest.raises(deltalake.exceptions.DeltaError, match=r"txlog\.fragments"):
            does(tmp_path)
    assert sorted(path for path in tmp_path.rglob("*") if path.is_file()) == files
    assert txlog.Table(tmp_path).version == table.version


def test_duckdb_refuses_what_lists_it(tmp_path: Path) -> None:
    table = lived(tmp_path, [APPEND, DELETE])
    by_duckdb(tmp_path)
    table.alter.add_features("txlog.fragments")
    with pytest.raises(Exception, match=r"txlog\.fragments"):
        by_duckdb(tmp_path)


@pytest.mark.spec("FRG-19")
def test_whoever_opened_it_before_neither_goes_on_nor_writes(tmp_path: Path) -> None:
    table = lived(tmp_path, [APPEND])
    reader, writer, deleter = (deltalake.DeltaTable(str(tmp_path)) for _ in range(3))
    table.alter.add_features("txlog.fragments")
    table.alter.add_columns({"y": "x + 1"})
    with pytest.raises(deltalake.exceptions.DeltaError, match=r"txlog\.fragments"):
        reader.update_incremental()
    with pytest.raises(deltalake.exceptions.DeltaError):
        deltalake.write_deltalake(writer, part(90, 91), mode="append")
    with pytest.raises(deltalake.exceptions.DeltaError):
        deleter.delete("x = 1")
    assert txlog.Table(tmp_path).version == table.version
    # The versions before are still for all.
    builder = deltalake.QueryBuilder().register("t", deltalake.DeltaTable(str(tmp_path), version=1))
    assert pa.table(builder.execute("select * from t")).num_rows == 30
