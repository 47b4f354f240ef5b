"""Indexes are made by every writer, merged and dropped; results stay right in all cases."""

from __future__ import annotations

import json
import random
import re
import shutil
import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import deltalake
import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

import txlog
from tests.examples import examples
from tests.moved import moved
from txlog.fragments.fragment import DataFile, Fragment
from txlog.lookup.blocks import Blocks
from txlog.lookup.indexes import SegmentCache, cover, covered_files
from txlog.lookup.keys import hashed
from txlog.lookup.runs import build_run
from txlog.lookup.segments import (
    CoveredFile,
    CoveredRun,
    Segment,
    encode_segment,
    parse_segment,
)
from txlog.protocol.properties import IndexDefinition
from txlog.schema.types import PrimitiveType, StructField
from txlog.store.base import ObjectInfo
from txlog.store.memory import MemoryStore
from txlog.testing import FaultyStore, open_table

PAGE = Path(__file__).parents[2] / "docs" / "lookup.md"
SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.string())])


def rows(*keys: int | None) -> pa.Table:
    return pa.table({"k": pa.array(keys, pa.int64()), "v": [f"v{key}" for key in keys]})


def segments_of(table: txlog.Table, index: str = "k") -> list[Path]:
    return sorted(Path(table.uri).glob(f"_txlog_index/{index}/*.idx"))


@pytest.fixture
def no_key_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fail where a look-up reads a key column as a whole."""
    monkeypatch.setattr(
        "txlog.lookup.lookup._build_run", lambda *_: pytest.fail("a key column is read")
    )


WRITES: dict[str, Callable[[txlog.Table], Any]] = {
    "append": lambda t: t.append(rows(7, 3, 20)),
    "overwrite": lambda t: t.overwrite(rows(5, 20, 6)),
    "merge": lambda t: t.upsert(rows(1, 20), on="k"),
    "update": lambda t: t.update({"k": "k + 19"}, "k = 1"),
    "compact": lambda t: [t.append(rows(20)), t.optimize.compact()],
    "z_order": lambda t: [t.append(rows(20)), t.optimize.z_order(["v"])],
    "replace_columns": lambda t: t.alter.replace_columns({"k": "k + 19"}),
    "transaction": lambda t: _in_transaction(t),
    "fragments": lambda t: _by_worker(t),
    "delete by rewriting": lambda t: [
        t.append(rows(20, 21)),
        t.alter.set_properties({"delta.enableDeletionVectors": "false"}),
        t.delete("k = 21"),
    ],
}


def _in_transaction(table: txlog.Table) -> None:
    with table.transaction() as transaction:
        transaction.append(rows(20))
        transaction.delete("k = 2")


def _by_worker(table: txlog.Table) -> None:
    table.commit(txlog.FragmentOperation.Append(txlog.write_fragments(rows(20), table)))


@pytest.mark.spec("LKP-12", "LKP-8")
@pytest.mark.parametrize("verb", list(WRITES))
@pytest.mark.usefixtures("no_key_is_read")
def test_every_write_brings_its_part(tmp_path: Path, verb: str) -> None:
    table = txlog.Table.create(
        tmp_path,
        SCHEMA,
        properties={"delta.enableDeletionVectors": "true"}
        | ({"delta.feature.txlog.fragments": "supported"} if verb == "replace_columns" else {}),
    )
    table.indexes.create("k")
    table.append(rows(1, 2, None))
    WRITES[verb](table)
    (info,) = table.indexes.list().values()
    assert info.files_covered == info.files > 0
    for opened in (table, txlog.Table(tmp_path)):
        assert opened.lookup([20])["k"].to_pylist() == [20]
        assert opened.lookup([2**40]).num_rows == 0


def test_key_columns_in_another_order_than_the_index(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The index answers: no key column is read for a run in memory."""
    table = txlog.write(tmp_path, rows(3, 1))
    table.append(rows(3, 2))
    table.indexes.create(["k", "v"])
    monkeypatch.setattr("txlog.lookup.lookup._build_run", None)
    for on, keys in ((["k", "v"], [(3, "v3"), (2, "v3")]), (["v", "k"], [("v3", 3), ("v3", 2)])):
        opened = txlog.Table(tmp_path)
        assert opened.lookup(keys, on=on)["k"].to_pylist() == [3, 3]
        assert opened.lookup_counts(keys, on=on).to_pylist() == [2, 0]
        found = opened.lookup(keys, on=on, columns=["v", "_key"], missing="null")
        assert found.to_pylist()[-1] == {"v": "v3", "_key": 1}
        with pytest.raises(txlog.NotFoundError, match=re.escape(repr(keys[1]))):
            opened.lookup(keys, on=on, missing="error")


def test_rows_of_flat_columns_are_read_without_a_library(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = pa.table({"k": list(range(2_000)), "v": [f"v{row}" for row in range(2_000)]})
    table = txlog.write(tmp_path, data, properties={"txlog.pageRows": "50"})
    table.indexes.create("k")
    monkeypatch.setattr("txlog.scan.pages.miniature", None)
    monkeypatch.setattr("txlog.scan.data_file.OpenFile.read", None)
    assert table.lookup([1_777, 3]).equals(data.take([1_777, 3]))


def test_many_rows_of_small_pages_are_left_to_pyarrow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It decodes them in several threads; few rows, or rows of large pages, are read here."""
    data = pa.table({"k": list(range(9_000)), "v": [f"v{row}" for row in range(9_000)]})
    asked = list(range(0, 9_000, 15))
    for page_rows, decoder in (("10", "values_of_page"), ("5000", "miniature")):
        table = txlog.write(tmp_path / page_rows, data, properties={"txlog.pageRows": page_rows})
        table.indexes.create("k")
        with monkeypatch.context() as patch:
            patch.setattr(f"txlog.scan.pages.{decoder}", None)
            if page_rows == "10":
                assert table.lookup(asked).equals(data.take(asked))
            else:
                assert table.lookup([7, 8_000]).equals(data.take([7, 8_000]))
        assert table.lookup(asked[:300]).equals(data.take(asked[:300]))


def test_odd_keys(tmp_path: Path) -> None:
    """Null ones have no row; empty ones, and those longer than a page, are keys like others."""
    large = "x" * 1_000_000
    keys = [None, "", large, large + "y", "b", "", None]
    data = pa.table({"k": pa.array(keys, pa.string()), "n": list(range(7))})
    table = txlog.write(tmp_path, data, properties={"txlog.pageRows": "2"})
    table.indexes.create("k")
    for opened in (table, txlog.Table(tmp_path)):
        found = opened.lookup([large, None, "", large[1:]], columns=["n", "_key"])
        assert found.to_pydict() == {"n": [2, 1, 5], "_key": [0, 2, 2]}
        assert opened.lookup_counts(["", None, "b"]).to_pylist() == [2, 0, 1]


def test_a_data_file_that_is_gone_is_an_error(tmp_path: Path) -> None:
    table = txlog.write(tmp_path, rows(3, 1))
    table.indexes.create("k")
    for file in table.scan().file_uris():
        Path(file).unlink()
    for _ in range(2):
        with pytest.raises(txlog.DataFileError, match="is missing"):
            table.lookup([3])
    assert table.lookup([2**40]).num_rows == 0  # The index tells.


def test_versions_from_before_an_index_are_looked_up(tmp_path: Path) -> None:
    """Runs are bound to files, and an old version has no definition: its keys are read."""
    table = txlog.write(tmp_path, rows(3, 1))
    table.append(rows(7))
    table.indexes.create("k")
    for version, found in ((0, []), (1, [7])):
        assert txlog.Table(tmp_path, version=version).lookup([7], on="k")["k"].to_pylist() == found


@pytest.mark.spec("LKP-6")
def test_an_index_is_a_property(tmp_path: Path) -> None:
    table = txlog.write(tmp_path, rows(3, 1))
    with pytest.raises(txlog.InvalidInputError, match="the table has no index"):
        table.lookup([1])
    outcome = table.indexes.create("k")
    assert outcome.version == 1
    text = '{"format":1,"columns":["k"],"bits":16}'
    assert table.metadata.configuration["txlog.index.k"] == text
    assert table.indexes.create("k").version is None
    assert table.protocol == txlog.Table(tmp_path, version=0).protocol
    with pytest.raises(txlog.AlreadyExistsError, match="an index k over k"):
        table.indexes.create("v", name="k")
    table.indexes.create(["v", "k"], build=False)
    assert list(table.indexes.list()) == ["k", "v_k"]
    assert [info.files_covered for info in table.indexes.list().values()] == [1, 0]
    with pytest.raises(txlog.InvalidInputError, match=r"several indexes: k \(k\), v_k \(v, k\)"):
        table.lookup([1])
    with pytest.raises(txlog.InvalidInputError, match="the table has 2 indexes"):
        table.indexes.build()
    with pytest.raises(txlog.NotFoundError, match="no index 'other'"):
        table.indexes.build("other")
    assert table.indexes.build("v_k").files_built == 1
    assert table.lookup([("v3", 3)], on=["v", "k"]).num_rows == 1
    table.restore(version=0)  # Its metadata is that of then, but for the indexes.
    assert list(table.indexes.list()) == ["k", "v_k"]
    assert table.indexes.drop("v_k").version is not None
    assert segments_of(table, "v_k") == []
    assert table.lookup([1])["v"].to_pylist() == ["v1"]
    with pytest.raises(txlog.NotFoundError):
        table.indexes.drop("v_k")
    for value in ("", "7", "{}", '{"format":2,"columns":["k"]}', '{"format":1,"columns":[]}',
                  '{"format":1,"columns":["k"],"bits":33}'):  # fmt: skip
        with pytest.raises(txlog.InvalidInputError, match=r"txlog\.index\.x"):
            table.alter.set_properties({"txlog.index.x": value})
    with pytest.raises(txlog.InvalidInputError, match="the name of an index has"):
        table.indexes.create("k", name="Über")


@pytest.mark.parametrize(
    ("columns", "reason"),
    [("x", "cannot be keys"), ("p", "is a partition column"), (["k", "k"], "is named twice"),
     ("other", "other"), ([], "no column is named")],
)  # fmt: skip
def test_columns_that_cannot_be_indexed(tmp_path: Path, columns: Any, reason: str) -> None:
    data = pa.table({"k": [1], "x": [0.5], "p": ["a"]})
    table = txlog.write(tmp_path, data, partition_by=["p"])
    with pytest.raises(txlog.InvalidInputError, match=reason):
        table.indexes.create(columns)


@pytest.mark.spec("LKP-6")
def test_renamed_dropped_and_widened_columns(tmp_path: Path) -> None:
    schema = pa.schema([("k", pa.int32()), ("v", pa.string())])
    table = txlog.Table.create(
        tmp_path,
        schema,
        properties={"delta.columnMapping.mode": "name", "delta.enableTypeWidening": "true"},
    )
    table.append(rows(5, 6).cast(schema))
    table.indexes.create("k", name="by_key")
    table.alter.rename_column("k", "key")
    assert table.lookup([6])["v"].to_pylist() == ["v6"]
    assert table.indexes.list()["by_key"].columns == ("key",)
    with pytest.raises(txlog.InvalidInputError, match="the index by_key is over it"):
        table.alter.drop_columns("key")
    table.alter.widen_type("key", pa.int64())
    table.append(pa.table({"key": [2**40, 6], "v": ["large", "v6"]}))
    for opened in (table, txlog.Table(tmp_path)):  # The segment of ints covers longs.
        assert opened.indexes.list()["by_key"].files_covered == 2
        assert opened.lookup([6, 2**40])["v"].to_pylist() == ["v6", "v6", "large"]
    table.indexes.drop("by_key")
    table.alter.drop_columns("key")


@pytest.mark.spec("LKP-8", "LKP-10")
def test_types_are_written_as_the_rule_says(tmp_path: Path) -> None:
    kinds = {
        "b": pa.int8(), "s": pa.int16(), "i": pa.int32(), "l": pa.int64(), "t": pa.string(),
        "y": pa.binary(), "o": pa.bool_(), "d": pa.date32(), "n": pa.timestamp("us"),
        "m": pa.timestamp("us", "UTC"), "p": pa.decimal128(10, 2), "q": pa.decimal128(30, 2),
    }  # fmt: skip
    schema = pa.schema(list(kinds.items()))
    table = txlog.Table.create(tmp_path, schema)
    table.indexes.create(list(kinds), name="k")
    table.append(schema.empty_table().take(pa.array([], pa.int64())))
    table.append(pa.table([pa.nulls(1, kind) for kind in kinds.values()], schema=schema))
    (path,) = segments_of(table)
    assert parse_segment(path.read_bytes(), "k").types == (
        "long", "long", "long", "long", "string", "binary", "boolean", "date", "timestamp_ntz",
        "timestamp", "decimal(18,2)", "decimal(38,2)",
    )  # fmt: skip


NO_KEYS: dict[str, Callable[[txlog.Table], Any]] = {
    "double": lambda t: t.overwrite(pa.table({"k": [1.5]}), schema_mode="overwrite"),
    "struct": lambda t: t.overwrite(pa.table({"k": [{"x": 1}]}), schema_mode="overwrite"),
    "widened": lambda t: [
        t.alter.widen_type("k", pa.float64()), t.append(pa.table({"k": [1.5], "v": ["x"]})),
    ],
    "property": lambda t: [
        t.alter.add_columns(pa.schema([("x", pa.float64())])),
        t.alter.set_properties({"txlog.index.k": '{"format":1,"columns":["x"],"bits":16}'}),
        t.append(pa.table({"k": [1], "v": ["x"], "x": [1.5]}).cast(t.to_arrow().schema)),
    ],
}  # fmt: skip


@pytest.mark.spec("LKP-6", "LKP-12")
@pytest.mark.parametrize("change", list(NO_KEYS))
def test_columns_that_become_no_keys(tmp_path: Path, change: str) -> None:
    """Rows are written, with a warning that names the column; look-ups by it are refused."""
    schema = pa.schema([("k", pa.int32()), ("v", pa.string())])
    properties = {"delta.enableTypeWidening": "true"}
    table = txlog.Table.create(tmp_path, schema, properties=properties)
    table.append(rows(1, 2).cast(schema))
    table.indexes.create("k")
    with pytest.warns(
        txlog.TxlogWarning, match=r"index k is over the column '[kx]'.*cannot be key"
    ):
        NO_KEYS[change](table)
    assert table.to_arrow().num_rows == (3 if change in ("widened", "property") else 1)
    assert table.indexes.list()["k"].files_covered == 0
    for verb in (table.indexes.build, table.indexes.merge, lambda: table.lookup([1])):
        with pytest.raises(txlog.InvalidInputError, match="cannot be keys"):
            verb()
    table.indexes.drop("k")
    table.append(table.to_arrow())


@pytest.mark.spec("LKP-8")
def test_other_writers_and_their_vacuums(tmp_path: Path) -> None:
    """deltalake appends, compacts and vacuums; it, polars and DuckDB read the table as before."""
    table = txlog.write(tmp_path, rows(*range(100)))
    table.indexes.create("k")
    before = segments_of(table)
    pl.DataFrame(rows(200)).write_delta(tmp_path, mode="append")
    deltalake.write_deltalake(str(tmp_path), rows(201), mode="append")
    table.refresh()
    assert [(info.files, info.files_covered) for info in table.indexes.list().values()] == [(3, 1)]
    assert table.lookup([201, 200, 5])["v"].to_pylist() == ["v201", "v200", "v5"]
    assert table.indexes.build().files_built == 2
    assert [info.files_covered for info in table.indexes.list().values()] == [3]
    other = deltalake.DeltaTable(str(tmp_path))
    other.optimize.compact()
    for full in (False, True):
        other.vacuum(0, dry_run=False, enforce_retention_duration=False, full=full)
    assert set(before) <= set(segments_of(table))
    table.refresh()
    assert table.lookup([201, 5])["v"].to_pylist() == ["v201", "v5"]
    assert table.indexes.build().files_built == 1
    files = deltalake.DeltaTable(str(tmp_path)).file_uris()
    for read in (
        pl.read_delta(str(tmp_path))["k"].to_list(),
        pa.table(deltalake.DeltaTable(str(tmp_path)).to_pyarrow_table())["k"].to_pylist(),
        [key for (key,) in duckdb.sql(f"SELECT k FROM read_parquet({files!r})").fetchall()],
    ):
        assert sorted(read) == [*range(100), 200, 201]


@pytest.mark.spec("LKP-8")
def test_columns_mapped_by_id(tmp_path: Path) -> None:
    """A file of another writer names columns in its own way, and has the ids alone."""
    properties = {"delta.columnMapping.mode": "id", "txlog.pageRows": "2"}
    table = txlog.Table.create(tmp_path, SCHEMA, properties=properties)
    table.indexes.create("k")
    table.append(rows(*range(10)))
    table.alter.rename_column("k", "key")
    fields = json.loads(table.metadata.schema_string or "")["fields"]
    ids = [str(field["metadata"]["delta.columnMapping.id"]) for field in fields]
    named = pa.schema(
        [
            pa.field(name, field.type, metadata={"PARQUET:field_id": number})
            for name, field, number in zip("xy", SCHEMA, ids, strict=True)
        ]
    )
    foreign = tmp_path / "foreign.parquet"
    pq.write_table(rows(20, 7).rename_columns(["x", "y"]).cast(named), foreign)
    add = {
        "path": foreign.name, "partitionValues": {}, "size": foreign.stat().st_size,
        "modificationTime": 0, "dataChange": True,
    }  # fmt: skip
    log = tmp_path / "_delta_log" / f"{table.version + 1:020d}.json"
    log.write_text(json.dumps({"add": add}))
    for built in (False, True):
        if built:
            assert table.indexes.build().files_built == 1
        for opened in (table.refresh(), txlog.Table(tmp_path)):
            assert [info.files_covered for info in opened.indexes.list().values()] == [1 + built]
            found = opened.lookup([7, 20, 99, 3], on="KEY", columns=["v"])["v"].to_pylist()
            assert found == ["v7", "v7", "v20", "v3"]


@pytest.mark.spec("LKP-4")
@pytest.mark.parametrize(("deleted", "storage"), [(3, "i"), (3_000, "u")])
def test_deletion_vectors_inline_and_in_files(tmp_path: Path, deleted: int, storage: str) -> None:
    path = tmp_path / "t"
    table = txlog.write(path, rows(*range(4_000)), properties={"txlog.pageRows": "64"})
    table.indexes.create("k")
    gone = np.random.default_rng(1).choice(4_000, deleted, replace=False).tolist()
    before = table.version
    table.alter.set_properties({"delta.enableDeletionVectors": "true"})
    table.delete(txlog.col("k").isin(gone))
    (fragment,) = table.fragments()
    assert fragment.deletion is not None
    assert fragment.deletion.descriptor.storage_type == storage
    asked = [*gone[:40], *range(0, 4_000, 41)]
    left = set(range(4_000)) - set(gone)
    clone = table.clone(tmp_path / "clone", shallow=True)
    if storage == "u":  # The clone names the file of the vector by an absolute path.
        (fragment,) = clone.fragments()
        assert fragment.deletion is not None
        assert fragment.deletion.descriptor.storage_type == "p"
    clone.indexes.build()
    for opened in (table, txlog.Table(path), clone, txlog.Table(clone.uri)):
        assert opened.lookup(asked)["k"].to_pylist() == [key for key in asked if key in left]
    assert txlog.Table(path, version=before).lookup(asked)["k"].to_pylist() == asked


@pytest.mark.parametrize("shallow", [True, False])
def test_clones_have_an_index_of_their_own(tmp_path: Path, shallow: bool) -> None:
    """That of the source is not used, and neither is harmed by what happens to the other."""
    source = txlog.write(tmp_path / "s", rows(*range(100)), properties={"txlog.pageRows": "8"})
    source.indexes.create("k")
    source.delete("k = 5")
    clone = source.clone(tmp_path / "c", shallow)
    assert [(one.name, one.files, one.files_covered) for one in clone.indexes.list().values()] == [
        ("k", 1, 0)
    ]
    assert clone.lookup([5, 7])["v"].to_pylist() == ["v7"]
    assert clone.indexes.build().files_built == 1
    clone.append(rows(5))
    clone.delete("k = 7")
    for opened in (clone, txlog.Table(clone.uri)):
        assert [(one.files, one.files_covered) for one in opened.indexes.list().values()] == [
            (2, 2)
        ]
        assert opened.lookup([5, 7, 8])["v"].to_pylist() == ["v5", "v8"]
    assert clone.indexes.merge().segments_after == 1
    clone.optimize.compact()
    clone.indexes.drop("k")
    assert [one.files_covered for one in source.indexes.list().values()] == [1]
    assert source.lookup([5, 7, 8])["v"].to_pylist() == ["v7", "v8"]
    source.indexes.drop("k")
    assert txlog.Table(clone.uri).lookup([5, 7, 8], on="k")["v"].to_pylist() == ["v5", "v8"]


@pytest.mark.spec("VAC-3", "LKP-12")
def test_vacuum_deletes_segments_with_their_files(tmp_path: Path) -> None:
    table = txlog.write(tmp_path, rows(1, 2))
    table.indexes.create("k")
    (first,) = segments_of(table)
    table.append(rows(3))
    (second,) = set(segments_of(table)) - {first}
    table.overwrite(rows(4))
    (third,) = set(segments_of(table)) - {first, second}
    damaged = third.with_name("0.idx")
    damaged.write_bytes(b"no segment")
    strange = third.with_name("notes.txt")
    strange.write_text("of somebody else")
    old = third.parent.parent / "dropped" / "x.idx"
    old.parent.mkdir()
    shutil.copy(third, old)
    kept = table.vacuum(dry_run=False)  # All is young.
    assert set(kept["decision"].to_pylist()) == {"keep"}
    assert first.exists()
    table.vacuum(0, dry_run=False, enforce_retention_duration=False)
    assert segments_of(table) == [third]
    assert strange.exists()
    assert not old.exists()
    assert table.lookup([4])["v"].to_pylist() == ["v4"]


@pytest.mark.spec("LKP-9")
def test_many_segments_become_few_and_gone_files_leave(tmp_path: Path) -> None:
    table = txlog.write(tmp_path, rows(0))
    table.indexes.create("k")
    for key in range(1, 40):
        table.append(rows(key))
    assert len(segments_of(table)) < 32
    report = table.indexes.merge()
    assert (report.segments_after, report.keys, report.files_left) == (1, 40, 0)
    (info,) = table.indexes.list().values()
    assert (info.runs, info.forms) == (1, ("ordered",))
    assert table.lookup(range(39, -1, -1))["k"].to_pylist() == list(range(39, -1, -1))
    table.overwrite(rows(7, 5))
    # Tombstones are still there: older versions are looked up by the same runs.
    assert table.indexes.merge().keys == 42
    assert txlog.Table(tmp_path, version=table.version - 1).lookup([3], on="k").num_rows == 1
    assert table.indexes.build(rebuild=True).keys == 2
    assert len(segments_of(table)) == 1


@pytest.mark.spec("LKP-9")
def test_a_segment_of_a_commit_under_way_is_left_alone(tmp_path: Path) -> None:
    table = txlog.write(tmp_path, rows(1))
    table.indexes.create("k")
    written = txlog.write_fragments(rows(2), table)
    assert len(segments_of(table)) == 2
    table.append(rows(3))
    table.indexes.merge()
    assert len(segments_of(table)) == 2
    table.commit(txlog.FragmentOperation.Append(written))
    assert [info.files_covered for info in table.indexes.list().values()] == [3]


@pytest.mark.spec("LKP-11", "LKP-1")
@pytest.mark.parametrize(
    "damage",
    [
        lambda path: path.write_bytes(b""),
        lambda path: path.write_bytes(path.read_bytes()[:-40]),
        lambda path: path.write_bytes(path.read_bytes()[:100]),
        lambda path: path.write_bytes(bytes([path.read_bytes()[0] ^ 1]) + path.read_bytes()[1:]),
        lambda path: path.write_bytes(path.read_bytes()[:-700] + bytes(700)),
        lambda path: path.unlink(),
    ],
    ids=["empty", "torn", "cut", "magic", "zeros", "gone"],
)
def test_damaged_segments_are_passed_over(tmp_path: Path, damage: Callable[[Path], Any]) -> None:
    table = txlog.write(tmp_path, rows(*range(0, 2_000, 7), 3))
    table.indexes.create("k")
    (path,) = segments_of(table)
    damage(path)
    opened = txlog.Table(tmp_path)
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        for _ in range(2):
            assert opened.lookup([3, 7, 8])["v"].to_pylist() == ["v3", "v7"]
    told = [str(one.message) for one in found if path.name in str(one.message)]
    assert len(told) == (1 if path.exists() else 0)  # Once, not at each look-up.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert opened.indexes.build().files_built == 1
    assert path not in segments_of(table)
    assert txlog.Table(tmp_path).indexes.list()["k"].files_covered == 1


# Tables of a few rows use their index.
ALWAYS_USED = {
    "txlog.lookup.indexed:_LEAST_BYTES": 0,
    "txlog.lookup.indexed:_LEAST_SHARE": 1,
    "txlog.lookup.indexed:_MOST_TIMES": 1 << 20,
}


class _FailsOnce(FaultyStore):
    """A store that lists, or reads, segments at the second attempt."""

    failing = "read"

    def read(self, path: str) -> bytes:
        with self._call("read", path):
            if path.endswith(".idx"):
                self._fail_once("read", path)
            return self.inner.read(path)

    def list_after(self, folder: str, name: str) -> Iterator[ObjectInfo]:
        with self._call("list_after", folder):
            if folder.startswith("_txlog_index"):
                self._fail_once("list_after", folder)
            return self.inner.list_after(folder, name)

    def _fail_once(self, operation: str, path: str) -> None:
        if operation == self.failing and self.calls.count((operation, path)) == 1:
            raise txlog.StoreError(operation=operation, path=path, reason="reset")


@pytest.mark.spec("LKP-11")
@pytest.mark.parametrize("failing", ["read", "list_after"])
@pytest.mark.parametrize("first", ["a look-up", "a scan"])
def test_what_could_not_be_read_is_tried_again(failing: str, first: str) -> None:
    """An error of the store is no damage, and no reason to read without the index from now on."""
    store = MemoryStore(f"memory://passing-{failing}-{first}")
    txlog.Table.create(store.root, SCHEMA)
    table = open_table(store)
    table.append(rows(5, 1, 3))
    table.indexes.create("k")
    fails = _FailsOnce(store)
    fails.failing = failing
    opened = open_table(fails)

    def found() -> list[Any]:
        if first == "a look-up":
            return opened.lookup([3])["v"].to_pylist()
        return opened.to_arrow(where="k = 3")["v"].to_pylist()

    with moved(ALWAYS_USED):
        with pytest.warns(txlog.TxlogWarning, match=r"could not be read|cannot be listed"):
            assert found() == ["v3"]
        assert found() == ["v3"]
        told = opened.scan(where="k = 3").explain().index
    assert told is not None
    assert "1 rows may match in 1 files" in told


def test_segments_are_kept_while_others_are_asked() -> None:
    """As by another thread, between two segments."""
    cache = SegmentCache()

    class Indexes(list[str]):
        def __contains__(self, index: object) -> bool:
            cache._keep(f"_txlog_index/k/{len(cache._read)}.idx", None)
            return super().__contains__(index)

    cache._keep("_txlog_index/k/0.idx", None)
    cache._keep("_txlog_index/k/1.idx", None)
    column = StructField("k", PrimitiveType("long"))
    found = cache.coverage(MemoryStore("memory://kept"), Indexes(), [], ["k"], [column], ["k"])
    assert found.runs == ()
    assert len(cache._read) == 4


@pytest.mark.spec("LKP-8")
def test_segments_of_others_cover_nothing(tmp_path: Path) -> None:
    """A segment of another table, one of another index, and one that names other sizes."""
    table = txlog.write(tmp_path / "t", rows(5, 1, 3))
    table.indexes.create("k")
    (own,) = segments_of(table)
    other = txlog.write(tmp_path / "o", rows(9, 8))
    other.indexes.create("k")
    other.indexes.create("v", name="other")
    for number, foreign in enumerate([*segments_of(other), *segments_of(other, "other")]):
        shutil.copy(foreign, own.with_name(f"{number}.idx"))
    own.unlink()
    opened = txlog.Table(table.uri)
    assert opened.indexes.list()["k"].files_covered == 0
    assert opened.lookup([1, 9])["v"].to_pylist() == ["v1"]


UUID = "0e8d1a52-9f8c-4c5a-8d5c-0d6e8a3b7f10"
ONES = st.tuples(
    st.sampled_from(["a", "b", f"{UUID}.parquet"]), st.integers(1, 2), st.integers(1, 2)
)


@pytest.mark.spec("LKP-8")
@settings(max_examples=examples(200))
@given(
    live=st.lists(st.tuples(ONES, st.booleans()), max_size=3, unique_by=lambda one: one[0][0]),
    runs=st.lists(st.tuples(st.lists(ONES, min_size=1, max_size=3), st.booleans()), max_size=4),
    width=st.integers(1, 2),
)
def test_which_files_are_covered(live: Any, runs: Any, width: int) -> None:
    """The oracle goes through the files one by one; so do readers, and doctor by columns."""
    columns = tuple("kl"[:width])
    segments = []
    for number, (files, is_own) in enumerate(runs):
        each = [
            CoveredFile((path,) * width, (size,) * width, count, 0) for path, size, count in files
        ]
        nothing = build_run("hashed", np.empty(0, np.uint64), np.empty(0, np.int64), 8, bits=8)
        absent = Blocks(0, 0, 1, np.empty(0, np.uint32), lambda _: [])
        one = CoveredRun(nothing, tuple(each))
        table = "mine" if is_own else None
        segments.append(Segment(str(number), columns, columns, (one,), absent, 1, table))
    expected = {
        path
        for (path, size, count), is_stated in live
        for files, is_own in runs
        for path2, size2, count2 in files
        if (path, size) == (path2, size2) and (not is_stated or count == count2)
        if is_own or path.startswith(UUID)
    }
    fragments = [
        Fragment(number, (DataFile(path, size),), physical_rows=count if is_stated else None)
        for number, ((path, size, count), is_stated) in enumerate(live)
    ]
    found = cover(fragments, segments, columns, columns, "mine")
    assert {fragments[place].path for place in found.uncovered} == {
        path for (path, _, _), _ in live if path not in expected
    }
    owners = np.concatenate([np.empty(0, np.int64), *(one.owners for one in found.runs)])
    assert sorted(owners[owners >= 0]) == [n for n, f in enumerate(fragments) if f.path in expected]
    for one in found.runs:
        (covered,) = one.segment.runs
        for place, file in zip(one.owners.tolist(), covered.files, strict=True):
            assert place < 0 or fragments[place].path == file.paths[0]
    stats = [
        f'{{"numRecords":{count}}}' if is_stated else None for (_, _, count), is_stated in live
    ]
    named = {
        "path": pa.array([one[0] for one, _ in live], pa.string()),
        "size": pa.array([one[1] for one, _ in live], pa.int64()),
        "stats": pa.array(stats, pa.string()),
    }
    of = covered_files(segments, columns, columns, "mine")
    left = of.uncovered(pa.table(named)).to_pylist()
    assert [n for n, is_left in enumerate(left) if is_left] == list(found.uncovered)


def other_size(file: CoveredFile) -> CoveredFile:
    return replace(file, sizes=(file.sizes[0] + 1,))


def other_rows(file: CoveredFile) -> CoveredFile:
    return replace(file, rows=file.rows + 1)


@pytest.mark.spec("LKP-8")
@pytest.mark.parametrize("change", [other_size, other_rows])
def test_a_head_that_names_other_sizes_or_rows_covers_nothing(
    tmp_path: Path, change: Callable[[CoveredFile], CoveredFile]
) -> None:
    table = txlog.write(tmp_path, rows(5, 1, 3, 2, 9))
    table.indexes.create("k")
    (path,) = segments_of(table)
    segment = parse_segment(path.read_bytes(), path.name)
    (covered,) = segment.runs
    changed = [CoveredRun(covered.run, tuple(map(change, covered.files)))]
    path.write_bytes(encode_segment(segment.columns, segment.types, changed))
    parse_segment(path.read_bytes(), path.name)  # It is whole.
    opened = txlog.Table(tmp_path)
    assert opened.indexes.list()["k"].files_covered == 0
    assert opened.lookup([1, 8, 9])["v"].to_pylist() == ["v1", "v9"]
    (behind,) = [one for one in opened.doctor() if one.code == "index-behind"]
    assert behind.count == 1
    assert opened.indexes.build().files_built == 1
    assert [one for one in opened.doctor() if one.code == "index-behind"] == []


@pytest.mark.spec("LKP-9")
def test_of_two_files_with_one_path_the_merged_segment_has_both(tmp_path: Path) -> None:
    """A segment with more keys comes first, and one of its files has another size now."""
    table = txlog.write(tmp_path, rows(5, 1, 3, 2, 9))
    table.append(rows(6, 4))
    table.indexes.create("k")
    (path,) = segments_of(table)
    segment = parse_segment(path.read_bytes(), path.name)
    (covered,) = segment.runs
    odd = CoveredRun(covered.run, tuple(map(other_size, covered.files)))
    names = segment.columns, segment.types
    path.with_name("odd.idx").write_bytes(encode_segment(*names, [odd], table=segment.table))
    path.write_bytes(encode_segment(*names, [covered], table=segment.table))
    opened = txlog.Table(tmp_path)
    opened.indexes.merge()
    for again in (opened, txlog.Table(tmp_path)):
        assert again.indexes.list()["k"].files_covered == 2
        with moved(ALWAYS_USED):
            found = again.to_arrow(where="k IN (1, 4, 8, 9)")["v"].to_pylist()
        assert sorted(found) == ["v1", "v4", "v9"]


@pytest.mark.spec("LKP-4", "LKP-11")
@pytest.mark.parametrize("beyond", [5, 7])
def test_a_run_that_names_rows_beyond_the_end_of_its_file(tmp_path: Path, beyond: int) -> None:
    """It is whole by its checksums, as if another program had written it."""
    data = rows(5, 1, 3, 2, 9)
    table = txlog.write(tmp_path, data)
    table.indexes.create("k")
    (path,) = segments_of(table)
    segment = parse_segment(path.read_bytes(), path.name)
    (covered,) = segment.runs
    encodings = hashed([StructField("k", PrimitiveType("long"))], data["k"].chunks)
    order = np.argsort(encodings)
    run = build_run("hashed", encodings[order], np.array([0, 1, 2, 3, beyond])[order], 5, bits=16)
    changed = [CoveredRun(run, covered.files)]
    path.write_bytes(encode_segment(segment.columns, segment.types, changed))
    verbs: list[Callable[[txlog.Table], Any]] = [
        lambda opened: opened.lookup([3, 9])["v"].to_pylist(),
        lambda opened: sorted(opened.to_arrow(where="k IN (3, 9)")["v"].to_pylist()),
    ]
    for verb in verbs:
        with moved(ALWAYS_USED), warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            assert verb(txlog.Table(tmp_path)) == ["v3", "v9"]
        assert any(path.name in str(one.message) for one in said)
    with pytest.warns(txlog.TxlogWarning, match=path.name):
        assert txlog.Table(tmp_path).indexes.build().files_built == 1
    assert path not in segments_of(table)
    for verb in verbs:
        with moved(ALWAYS_USED), warnings.catch_warnings():
            warnings.simplefilter("error")
            assert verb(txlog.Table(tmp_path)) == ["v3", "v9"]


@pytest.mark.spec("LKP-6")
def test_an_index_whose_first_build_fails_is_defined(tmp_path: Path) -> None:
    table = txlog.write(tmp_path, rows(3, 1))
    table.append(rows(5))
    (path, _) = map(Path, table.scan().file_uris())
    away = path.rename(tmp_path / "away")
    with pytest.raises(txlog.DataFileError, match=r"is defined all the same.*build.'k'.*drop.'k'"):
        table.indexes.create("k")
    assert txlog.Table(tmp_path).indexes.list()["k"].files_covered == 0
    away.rename(path)
    assert table.indexes.build("k").files_built == 2
    assert table.lookup([5])["v"].to_pylist() == ["v5"]


@pytest.mark.spec("LKP-11")
def test_swapped_ends_of_files(tmp_path: Path) -> None:
    """An end is that of another file: its length tells, and the file itself is asked."""

    def texts(start: int, wide: range) -> pa.Table:
        keys = range(start, start + 300)
        width = [9 if place in wide else 3 for place in range(300)]
        return pa.table({"k": keys, "v": [f"{k:0{w}}" for k, w in zip(keys, width, strict=True)]})

    properties = {"txlog.pageRows": "8", "delta.parquet.compression.codec": "uncompressed"}
    table = txlog.write(tmp_path, texts(100, range(150)), properties=properties)
    table.append(texts(500, range(150, 300)))
    table.indexes.create("k")
    (path,) = segments_of(table)
    segment = parse_segment(path.read_bytes(), path.name)
    files = [file for covered in segment.runs for file in covered.files]
    tails = {file.paths: other.tail for file, other in zip(files, reversed(files), strict=True)}
    assert len(tails) == 2
    swapped = [
        CoveredRun(one.run, tuple(replace(file, tail=tails[file.paths]) for file in one.files))
        for one in segment.runs
    ]
    path.write_bytes(encode_segment(segment.columns, segment.types, swapped))
    opened = txlog.Table(tmp_path)
    assert opened.indexes.list()["k"].files_covered == 2
    found = opened.lookup([260, 105, 650, 500])["v"].to_pylist()
    assert found == ["260", "000000105", "000000650", "500"]


def test_a_column_that_another_engine_dropped(tmp_path: Path) -> None:
    """txlog refuses to drop it; without it, the index can be seen and dropped."""
    table = txlog.write(tmp_path, rows(5, 1))
    table.indexes.create("k")
    definition = table.metadata.configuration["txlog.index.k"]
    deltalake.write_deltalake(
        tmp_path, pa.table({"v": ["x"], "w": ["y"]}), mode="overwrite", schema_mode="overwrite"
    )
    table.refresh()
    if "txlog.index.k" not in table.metadata.configuration:
        table.alter.set_properties({"txlog.index.k": definition})
    (info,) = table.indexes.list().values()
    assert (info.columns, info.files_covered) == (("k",), 0)
    table.append(pa.table({"v": ["z"], "w": ["y"]}))
    for verb in (table.indexes.build, table.indexes.merge):
        with pytest.raises(txlog.InvalidInputError, match="no longer has the columns k"):
            verb()
    with pytest.raises(txlog.InvalidInputError, match="the table has no index"):
        table.lookup([1])
    assert table.lookup(["z"], on="v").num_rows == 1
    table.indexes.drop("k")
    assert table.indexes.list() == {}


@pytest.mark.spec("LKP-6")
def test_any_text_is_a_definition_or_refused() -> None:
    draw = random.Random(3)
    text = IndexDefinition("k", ("k", "v")).text
    kept = 0
    for _ in range(2_000):
        changed = list(text)
        for _ in range(draw.choice([1, 1, 3])):
            changed[draw.randrange(len(changed))] = chr(draw.randrange(32, 127))
        with suppress(ValueError):
            definition = IndexDefinition.parse("k", "".join(changed))
            assert all(definition.columns)
            assert 0 <= definition.bits <= 32
            kept += 1
    assert 0 < kept < 1_500


class AgainstAFilter(RuleBasedStateMachine):
    """Look-ups, scans and changes by key, against the rows that plain Python keeps."""

    @initialize(target_rows=st.integers(0, 12), is_shared=st.booleans(), uses=st.booleans())
    def begin(self, target_rows: int, is_shared: bool, uses: bool) -> None:
        self.undo = ExitStack()
        self.undo.enter_context(moved(ALWAYS_USED if uses else {}))
        self.root = Path(tempfile.mkdtemp(prefix="txlog-index-"))
        self.draw = random.Random(target_rows)
        properties = {"delta.enableDeletionVectors": "true", "txlog.pageRows": "2"}
        # deltalake refuses tables with column files, so it writes to others.
        self.is_shared = is_shared
        if not is_shared:
            properties["delta.feature.txlog.fragments"] = "supported"
        self.table = txlog.Table.create(self.root, SCHEMA, properties=properties)
        self.versions: dict[int, list[int | None]] = {0: []}
        self.table.indexes.create("k")
        self.took([])
        self.append([self.draw.randrange(15) for _ in range(target_rows)])

    @property
    def now(self) -> list[int | None]:
        return self.versions[self.table.version]

    def took(self, keys: list[int | None]) -> None:
        self.versions[self.table.version] = keys

    @rule(keys=st.lists(st.one_of(st.none(), st.integers(0, 15)), min_size=1, max_size=8))
    def append(self, keys: list[int | None]) -> None:
        before = self.now
        self.table.append(rows(*keys))
        self.took(before + keys)

    @rule(keys=st.lists(st.integers(0, 15), min_size=1, max_size=6), sort=st.booleans())
    def append_elsewhere(self, keys: list[int], sort: bool) -> None:
        before = self.now
        keys = sorted(keys) if sort else keys
        table = txlog.Table(self.root)
        table.append(rows(*keys))
        self.table.refresh()
        self.took(before + keys)

    @rule(key=st.integers(0, 15))
    def delete(self, key: int) -> None:
        before = self.now
        self.table.delete(txlog.col("k") == key)
        self.took([one for one in before if one != key])

    @rule(keys=st.lists(st.integers(0, 15), max_size=4), other=st.booleans())
    def delete_some(self, keys: list[int], other: bool) -> None:
        before = self.now
        where = txlog.col("k").isin(keys)
        self.table.delete(where & (txlog.col("k") < 4) if other else where)
        self.took([one for one in before if one not in keys or (other and (one or 0) >= 4)])

    @rule(key=st.integers(0, 15))
    def update(self, key: int) -> None:
        before = self.now
        outcome = self.table.update({"k": "15 - k"}, f"k = {key}")
        assert outcome.metrics.get("numUpdatedRows", 0) == before.count(key)
        self.took([15 - key if one == key else one for one in before])

    @rule(keys=st.lists(st.integers(0, 15), min_size=1, max_size=6, unique=True))
    def upsert(self, keys: list[int]) -> None:
        before = self.now
        self.table.upsert(rows(*keys), on="k")
        self.took(before + [key for key in keys if key not in before])

    @rule(keys=st.lists(st.integers(0, 15), min_size=1, max_size=6, unique=True))
    def merge(self, keys: list[int]) -> None:
        before = self.now
        merged = self.table.merge(rows(*keys), "t.k = s.k AND s.k < 8", "s", "t")
        merged.when_matched_delete("t.k <> 2").execute()
        gone = [key for key in keys if key < 8 and key != 2]
        self.took([one for one in before if one not in gone])

    @rule(keys=st.lists(st.integers(0, 15), max_size=6))
    def overwrite(self, keys: list[int]) -> None:
        self.table.overwrite(rows(*keys))
        self.took(list(keys))

    @rule(key=st.integers(0, 15), keys=st.lists(st.integers(0, 15), min_size=1, max_size=6))
    def overwrite_some(self, key: int, keys: list[int]) -> None:
        before, new = self.now, [max(one, key) for one in keys]
        self.table.overwrite(rows(*new), where=f"k >= {key}")
        self.took([one for one in before if one is None or one < key] + new)

    @rule(key=st.integers(0, 15), keys=st.lists(st.integers(0, 15), min_size=1, max_size=6))
    def transaction(self, key: int, keys: list[int]) -> None:
        before = self.now
        with self.table.transaction() as together:
            together.append(rows(*keys))
            together.delete(txlog.col("k") == key)
        self.took([one for one in before + keys if one != key])

    @rule()
    def z_order(self) -> None:
        before = self.now
        self.table.optimize.z_order("k")
        self.took(before)

    @rule()
    def compact(self) -> None:
        before = self.now
        self.table.optimize.compact()
        self.took(before)

    @rule()
    def compact_sorted(self) -> None:
        before = self.now
        self.table.optimize.compact(sort_by="k")
        self.took(before)

    @rule(place=st.integers(0, 50))
    def restore(self, place: int) -> None:
        before = sorted(self.versions)[place % len(self.versions)]
        keys = self.versions[before]
        self.table.restore(version=before)
        self.took(keys)

    @precondition(lambda self: self.is_shared)
    @rule(keys=st.lists(st.one_of(st.none(), st.integers(0, 15)), min_size=1, max_size=8))
    def append_by_deltalake(self, keys: list[int | None]) -> None:
        before = self.now
        deltalake.write_deltalake(self.root, rows(*keys), mode="append")
        self.table.refresh()
        self.took(before + keys)

    @precondition(lambda self: self.is_shared)
    @rule(
        key=st.integers(0, 15), verb=st.sampled_from(["delete", "update", "compact", "overwrite"])
    )
    def rewrite_by_deltalake(self, key: int, verb: str) -> None:
        after, other = self.now, deltalake.DeltaTable(self.root)
        if verb == "delete":
            other.delete(f"k = {key}")
            after = [one for one in after if one != key]
        elif verb == "update":
            other.update(updates={"k": "15 - k"}, predicate=f"k = {key}")
            after = [15 - key if one == key else one for one in after]
        elif verb == "compact":
            other.optimize.compact()
        else:
            deltalake.write_deltalake(other, rows(key, key), mode="overwrite")
            after = [key, key]
        self.table.refresh()
        self.took(after)

    @precondition(lambda self: not self.is_shared)
    @rule()
    def replace_keys(self) -> None:
        before = self.now
        self.table.alter.replace_columns({"k": "15 - k"})
        self.took([None if key is None else 15 - key for key in before])

    @rule()
    def build(self) -> None:
        self.table.indexes.build()
        (info,) = self.table.indexes.list().values()
        assert info.files_covered == info.files

    @rule()
    def optimize(self) -> None:
        self.table.indexes.merge()

    @rule()
    def define_again(self) -> None:
        before = self.now
        self.table.indexes.drop("k")
        self.took(before)
        self.table.indexes.create("k", build=self.draw.random() < 0.5)
        self.took(before)

    @rule(kind=st.sampled_from(["delete", "cut", "flip"]))
    def damage(self, kind: str) -> None:
        for path in segments_of(self.table):
            if self.draw.random() < 0.5:
                continue
            data = bytearray(path.read_bytes())
            if kind == "delete" or not data:
                path.unlink()
            elif kind == "cut":
                path.write_bytes(data[: self.draw.randrange(len(data))])
            else:
                data[self.draw.randrange(len(data))] ^= 1 << self.draw.randrange(8)
                path.write_bytes(data)

    @rule()
    def examine(self) -> None:
        """A doctor counts the files that the index does not cover."""
        (info,) = self.table.indexes.list().values()
        behind = [one for one in self.table.doctor(0) if one.code == "index-behind"]
        assert [one.count for one in behind] == (
            [info.files - info.files_covered] if info.files > info.files_covered else []
        )

    def require_filter(self, version: int) -> None:
        keys, held = [0, 7, 3, 7, None, 15, 99], self.versions[version]
        opened = txlog.Table(self.root, version=version)
        handles = [opened, self.table] if version == self.table.version else [opened]
        for table in handles:
            found = table.lookup(keys, on="k", columns=["_key", "k"]).to_pydict()
            wanted = [
                (place, key)
                for place, key in enumerate(keys)
                if key is not None
                for _ in range(held.count(key))
            ]
            assert list(zip(found["_key"], found["k"], strict=True)) == wanted
            asked = [key for key in keys if key is not None]
            where = txlog.col("k").isin(asked) & (txlog.col("k") != 15)
            expected = sorted(one for one in held if one in asked and one != 15)
            scan = table.scan(["k"], where)
            assert sorted(scan.to_arrow()["k"].to_pylist()) == expected, scan.explain()
            assert scan.to_arrow().equals(table.scan(["k"], where, use_index=False).to_arrow())
            assert table.count(where) == len(expected)
        query = "SELECT k FROM t WHERE k IN (0, 3, 7, 99) ORDER BY k"
        found = txlog.sql(query, {"t": opened})["k"].to_pylist()
        assert found == sorted(key for key in held if key in (0, 3, 7, 99))

    @invariant()
    def versions_answer_like_a_filter(self) -> None:
        """All versions while they are few; then the latest and some, and all at the end."""
        if not hasattr(self, "table"):
            return
        chosen = sorted(self.versions)
        if len(chosen) > 8:
            chosen = [*self.draw.sample(chosen[:-1], 3), chosen[-1]]
        for version in chosen:
            self.require_filter(version)

    def teardown(self) -> None:
        if hasattr(self, "root"):
            try:
                self.undo.close()
                for version in getattr(self, "versions", ()):
                    self.require_filter(version)
            finally:
                shutil.rmtree(self.root)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::txlog.TxlogWarning")
class TestAgainstAFilter(AgainstAFilter.TestCase):
    settings = settings(
        max_examples=examples(12), stateful_step_count=8, deadline=None, report_multiple_bugs=False
    )


@pytest.mark.exhaustive
@pytest.mark.filterwarnings("ignore::txlog.TxlogWarning")
class TestAgainstAFilterAtLength(AgainstAFilter.TestCase):
    settings = settings(max_examples=60, stateful_step_count=25, deadline=None)


def blocks_of(page: Path) -> list[str]:
    return re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)


def provenance_tables(root: Path) -> None:
    for name, rows_held in {
        "contents_in_directories": {"cnt": [17, 4, 9], "dir": [1, 2, 1]},
        "directories_in_revisions": {"dir": [2, 1, 1], "rev": [20, 11, 10]},
        "contents_in_revisions": {"cnt": [17, 5], "rev": [30, 31]},
    }.items():
        txlog.write(root / name, pa.table(rows_held)).indexes.create(next(iter(rows_held)))


def test_the_lines_of_the_page_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    for block in blocks_of(PAGE):
        if not block.startswith("# spark"):
            exec(block.replace("/tmp/txlog-index", str(tmp_path / "kept")), names)
    assert names["opened"].lookup([30])["carrier"].to_pylist() == ["B6"]
    for sorted_table in ("by_polars", "by_duckdb"):
        txlog.Table(sorted_table).indexes.create("id")
        assert txlog.Table(sorted_table).indexes.list()["id"].forms == ("ordered",)
    provenance_tables(tmp_path)
    found = names["revisions_here"]([17, 4]).to_pylist()
    assert sorted((row["cnt"], row["rev"]) for row in found) == [
        (4, 20), (17, 10), (17, 11), (17, 30),
    ]  # fmt: skip


@pytest.mark.slow
@pytest.mark.spec("LKP-9")
@pytest.mark.parametrize("is_sorted", [False, True])
@pytest.mark.parametrize("made", ["files of one append", "appends", "an index of files"])
@given(keys=st.lists(st.integers(0, 2**60), min_size=8, max_size=60, unique=True))
@settings(max_examples=examples(4))
def test_every_key_is_found_after_a_merge(made: str, is_sorted: bool, keys: list[int]) -> None:
    """The largest key of a merged run too, although its lowest bits were cut off."""
    keys = sorted(keys) if is_sorted else keys
    with tempfile.TemporaryDirectory() as folder:
        table = txlog.Table.create(folder, pa.schema([("k", pa.int64())]))
        if made != "an index of files":
            table.indexes.create("k")
        if made == "appends":
            for key in keys[1:9]:
                table.append(pa.table({"k": [key]}))
        table.append(
            pa.table({"k": keys}),
            options=txlog.WriteOptions(max_rows_per_file=max(2, len(keys) // 4)),
        )
        if made == "an index of files":
            table.indexes.create("k")
        table.indexes.merge()
        table = txlog.Table(folder)
        assert not is_sorted or "ordered" in table.indexes.list()["k"].forms
        counts = table.lookup_counts(keys).to_pylist()
        held = table.to_arrow()["k"].to_pylist()
        assert counts == [held.count(key) for key in keys]


@pytest.mark.spec("LKP-8")
@pytest.mark.parametrize("form", ["path", "long path"])
def test_a_segment_of_another_table_in_the_folder_is_not_used(tmp_path: Path, form: str) -> None:
    """Its files had the same names and sizes."""
    root, name = tmp_path / "t", "part-0.parquet" if form == "path" else "a/b=c/part-0.parquet"

    def made(*keys: int) -> txlog.Table:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.table({"k": keys}), root / name, compression="none", use_dictionary=False)
        table = txlog.convert_to_delta(root, partition_by={"b": "string"} if "=" in name else None)
        table.indexes.create("k")
        return table

    first = made(1, 2, 3)
    assert first.contains([1, 7]).to_pylist() == [True, False]
    assert first.indexes.list()["k"].files_covered == 1
    size = (root / name).stat().st_size
    shutil.rmtree(root / "_delta_log")
    second = made(7, 8, 9)
    assert (root / name).stat().st_size == size
    assert second.contains([1, 7]).to_pylist() == [False, True]
    assert second.lookup([9])["k"].to_pylist() == [9]
    assert second.indexes.list()["k"].files_covered == 1
    second.append(pa.table({"k": [10], **({"b": ["c"]} if "=" in name else {})}))
    second.indexes.merge()
    assert second.contains([1, 8, 10]).to_pylist() == [False, True, True]
    assert second.indexes.list()["k"].files_covered == 2
