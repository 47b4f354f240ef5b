"""Identity columns: values continue, for all writers."""

import json
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import txlog
from tests.acceptance.corpus import ROOT
from tests.examples import examples
from txlog.data_files.identity import Identity, Numbering, with_identities
from txlog.schema.arrow import from_arrow

SCHEMA = pa.schema([("id", pa.int64()), ("x", pa.int64())])


def made(path: Path, identity: Any = "id", **more: Any) -> txlog.Table:
    return txlog.Table.create(path, SCHEMA, identity=identity, **more)


def xs(*values: int) -> pa.Table:
    return pa.table({"x": values})


def rows(table: txlog.Table) -> list[tuple[int | None, int]]:
    return sorted((r["id"], r["x"]) for r in table.refresh().to_arrow().to_pylist())


def mark(table: txlog.Table) -> Any:
    return table.snapshot.schema.fields[0].metadata.get("delta.identity.highWaterMark")


def test_every_verb_counts(tmp_path: Path) -> None:
    table = made(tmp_path / "t", {"id": txlog.Identity(10, 5)})
    assert "identityColumns" in (table.protocol.writer_features or ())
    assert table.protocol.min_reader_version in (1, 3)
    assert mark(table) is None
    table.append(xs(1, 2))
    assert rows(table) == [(10, 1), (15, 2)]
    merge = table.merge(xs(2, 3, 4), "source.x = target.x")
    merge.when_matched_update({"x": "source.x * 10"}).when_not_matched_insert_all().execute()
    assert rows(table) == [(10, 1), (15, 20), (20, 3), (25, 4)]
    with table.transaction() as transaction:
        transaction.append(xs(5))
        transaction.append(xs(6))
    table.overwrite(xs(7), where="x = 7")
    table.append(pa.table({"x": [8], "y": [1]}), schema_mode="merge")
    table.update({"x": "x + 1"}, "x = 8")
    table.optimize.compact()
    assert rows(table)[4:] == [(30, 5), (35, 6), (40, 7), (45, 9)]
    assert mark(table) == 45
    table.restore(version=1)
    table.append(xs(0))
    assert rows(table) == [(10, 1), (15, 2), (50, 0)]
    table.overwrite(xs(1))
    assert rows(table) == [(55, 1)]


def test_who_may_give_values(tmp_path: Path) -> None:
    always = made(tmp_path / "a")
    always.append(xs(1))
    for call in (
        lambda: always.append(pa.table({"ID": [7], "x": [1]})),
        lambda: always.overwrite(pa.table({"id": [7], "x": [1]}), where="x = 1"),
        lambda: always.append(pa.table({"id": [7], "x": [1], "y": [2]}), schema_mode="merge"),
    ):
        with pytest.raises(txlog.SchemaMismatchError, match="GENERATED ALWAYS AS IDENTITY"):
            call()
    source = pa.table({"id": [1], "x": [1]})
    for change in (
        lambda: always.update({"id": "id + 1"}),
        lambda: always.merge(source, "source.x = target.x").when_matched_update_all().execute(),
        lambda: always.merge(source, "source.x = target.x").when_not_matched_insert_all().execute(),
    ):
        with pytest.raises(txlog.InvalidInputError, match="GENERATED ALWAYS AS IDENTITY"):
            change()
    merge = always.merge(source, "source.id = target.id")
    merge.when_matched_update_all(except_cols=["id"]).execute()
    assert rows(always) == [(1, 1)]

    by_default = made(tmp_path / "d", {"id": txlog.Identity(explicit=True)})
    by_default.append(xs(1, 2))
    by_default.append(pa.table({"id": [100, None], "x": [3, 4]}))
    assert mark(by_default) == 2  # Values of the caller's own do not count.
    by_default.append(xs(5))
    by_default.update({"id": "id + 200"}, "x = 1")
    found = sorted(by_default.to_arrow().to_pylist(), key=lambda row: row["x"])
    assert [row["id"] for row in found] == [201, 2, 100, None, 3]
    by_default.alter.sync_identity("id")
    by_default.append(xs(6))
    assert by_default.to_arrow(where="x = 6")["id"].to_pylist() == [202]
    assert not by_default.alter.sync_identity("id").version
    with pytest.raises(txlog.InvalidInputError, match="x is not an identity column"):
        by_default.alter.sync_identity("x")


def test_many_writers_never_give_a_value_twice(tmp_path: Path) -> None:
    made(tmp_path / "t")

    def write(number: int) -> None:
        table = txlog.Table(tmp_path / "t")
        for turn in range(4):
            table.append(xs(number * 10 + turn, -1))

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(write, range(4)))
    table = txlog.Table(tmp_path / "t")
    found = rows(table)
    assert sorted(number for number, _ in found) == list(range(1, 33))
    assert mark(table) == 32
    stored = {path.name for path in (tmp_path / "t").glob("*.parquet")}
    assert stored == {Path(path).name for path in table.files()["path"].to_pylist()}


def test_a_stream_is_written_again_after_a_winner(tmp_path: Path) -> None:
    table, other = made(tmp_path / "t"), txlog.Table(tmp_path / "t")
    with table.transaction() as transaction:
        batches = iter(xs(1, 2).to_batches())
        transaction.append(pa.RecordBatchReader.from_batches(xs(1).schema, batches))
        other.append(xs(9))
        other.alter.add_columns({"y": pa.int64()})
    assert rows(table) == [(1, 9), (2, 1), (3, 2)]


@pytest.mark.parametrize(
    ("kind", "identity", "options", "says"),
    [
        (pa.int32(), "id", {}, "of type long"),
        (pa.int64(), {"id": txlog.Identity(1, 0)}, {}, "step must not be 0"),
        (pa.int64(), {"id": txlog.Identity(2**63)}, {}, "64 bits"),
        (pa.int64(), "id", {"partition_by": ["id"]}, "cannot partition"),
        (pa.int64(), "id", {"generated": {"id": "x"}}, "generated from others|other columns"),
        (pa.int64(), "nothing", {}, "no such column"),
        (pa.int64(), {"id": 1}, {}, "txlog.Identity was expected"),
    ],
)
def test_what_cannot_count(
    tmp_path: Path, kind: pa.DataType, identity: Any, options: dict[str, Any], says: str
) -> None:
    schema = pa.schema([("id", kind), ("x", pa.int64())])
    with pytest.raises(txlog.InvalidInputError, match=says):
        txlog.Table.create(tmp_path / "t", schema, identity=identity, **options)
    assert not (tmp_path / "t").exists()


def test_it_ends_before_it_overflows(tmp_path: Path) -> None:
    table = made(tmp_path / "t", {"id": txlog.Identity(2**63 - 2)})
    table.append(xs(1))
    with pytest.raises(txlog.SchemaMismatchError, match="no further values"):
        table.append(xs(1, 2))
    table.append(xs(3))
    assert rows(table) == [(2**63 - 2, 1), (2**63 - 1, 3)]
    with pytest.raises(txlog.UnsupportedFeatureError, match="lacks the identity column"):
        txlog.write_fragments(xs(1), tmp_path / "t")


def test_not_null_renamed_and_mapped(tmp_path: Path) -> None:
    schema = pa.schema([pa.field("id", pa.int64(), False), ("x", pa.int64())])
    properties = {"delta.columnMapping.mode": "name"}
    table = txlog.Table.create(tmp_path / "t", schema, identity="id", properties=properties)
    table.append(xs(1))
    table.alter.rename_column("id", "key")
    table.append(xs(2))
    assert table.to_arrow()["key"].to_pylist() == [1, 2]
    table.alter.drop_columns("key")
    table.append(xs(3))
    assert sorted(table.to_arrow()["x"].to_pylist()) == [1, 2, 3]


def test_a_table_of_databricks(tmp_path: Path) -> None:
    home = next(iter(ROOT.glob("tables/**/databricks122/identity_columns")), None)
    if home is None:
        pytest.skip(f"the corpus is not at {ROOT}")
    shutil.copytree(home, tmp_path / "t")
    table = txlog.Table(tmp_path / "t")
    (field,) = [f for f in table.snapshot.schema.fields if "delta.identity.step" in f.metadata]
    last = field.metadata.get("delta.identity.highWaterMark", 0)
    others = [name for name in table.schema.names if name != field.name]
    before = table.count()
    data = pa.table({n: pa.nulls(2, table.schema.field(n).type) for n in others})
    table.append(data)
    found = table.to_arrow(where=f"`{field.name}` > {last}")[field.name].to_pylist()
    step = field.metadata["delta.identity.step"]
    assert sorted(found) == [last + step, last + 2 * step]
    assert table.count() == before + 2
    deltalake = pytest.importorskip("deltalake")
    held = json.loads(deltalake.DeltaTable(tmp_path / "t").schema().to_json())["fields"]
    (theirs,) = [f for f in held if f["name"] == field.name]
    assert theirs["metadata"]["delta.identity.highWaterMark"] == last + 2 * step


@settings(max_examples=examples(150))
@given(
    start=st.integers(-50, 50),
    step=st.integers(-7, 7).filter(bool),
    mark=st.none() | st.integers(-100, 100),
    counts=st.lists(st.integers(0, 5), max_size=4),
    lane=st.sampled_from([(0, 1), (0, 3), (2, 3)]),
)
def test_values_are_those_counted_one_by_one(
    start: int, step: int, mark: int | None, counts: list[int], lane: tuple[int, int]
) -> None:
    identity = Identity(start, step, mark=mark)
    numbering = Numbering(with_identities(from_arrow(SCHEMA), {"id": identity}), lane)
    numbering.start(["id"])
    found: list[int] = []
    for count in counts:
        found += numbering.values("id", count).to_pylist()
        numbering.take(count)
    value = start  # The first of start, start + step, … that is beyond the mark.
    while mark is not None and (value - mark) * step <= 0:
        value += step
    line = [value + place * step for place in range(100)]
    assert found == line[lane[0] :: lane[1]][: sum(counts)]
    assert numbering.marks() == ({"id": found[-1]} if found else {})
    ends = [start + place * step for place in range(60)]
    wanted = (
        next(one for one in ends if (one - (mark or 0)) * step >= 0)
        if abs((mark or 0) - start) < 50 * abs(step) and ((mark or 0) - start) * step > 0
        else None
    )
    if wanted is not None:
        assert identity.reaching(mark or 0) == wanted


@pytest.mark.slow
@pytest.mark.spec("FRG-35")
@settings(max_examples=examples(100))
@given(
    st.sampled_from(["name", "none"]),
    st.lists(
        st.tuples(st.sampled_from(["", "rename", "mapping", "add a column"]), st.integers(0, 5)),
        min_size=1,
        max_size=4,
    ),
)
def test_no_value_is_given_twice_whatever_the_column_is_called(
    mode: str, steps: list[tuple[str, int]]
) -> None:
    """Each step changes the columns, appends, and restores the version so many commits before."""
    with TemporaryDirectory() as folder:
        mapping = {"delta.columnMapping.mode": mode}
        table = made(Path(folder) / "t", {"id": Identity(5, 3)}, properties=mapping)
        given = append_one(table, set())
        for change, back in steps:
            (name,) = [f.name for f in table.snapshot.schema.fields if f.is_identity]
            free = next(n for n in ("id", "key", "n", "m") if n not in table.schema.names)
            mapped = table.snapshot.mapping_mode != "none"
            if change == "rename" and mapped:
                table.alter.rename_column(name, free)
            elif change == "mapping":
                properties = {"delta.columnMapping.mode": "none" if mapped else "name"}
                table.alter.set_properties(properties)
            elif change == "add a column" and free != "m":
                table.alter.add_columns({free: pa.int64()})
            given = append_one(table, given)
            if back:
                table.restore(max(table.version - back, 0))
                given = append_one(table, given)


def append_one(table: txlog.Table, given: set[int]) -> set[int]:
    """Append a row, whose identity must be new; return all identities, with this one."""
    (name,) = [f.name for f in table.snapshot.schema.fields if f.is_identity]
    x = len(given)
    table.append(xs(x))
    (found,) = table.to_arrow([name], where=f"x = {x}")[name].to_pylist()
    assert found not in given
    return given | {found}


def test_a_restored_column_goes_on_after_its_later_name(tmp_path: Path) -> None:
    table = made(tmp_path / "t", properties={"delta.columnMapping.mode": "name"})
    table.append(xs(1, 2))
    table.alter.rename_column("id", "key")
    table.append(xs(3))
    table.restore(version=1)
    table.append(xs(4))
    assert rows(table) == [(1, 1), (2, 2), (4, 4)]


@pytest.mark.parametrize(
    ("change", "continues_at"),
    [({"delta.identity.step": 0}, 3), ({"delta.identity.highWaterMark": "x"}, 2)],
)
def test_a_column_with_invalid_numbers_can_be_restored(
    tmp_path: Path, change: dict[str, Any], continues_at: int
) -> None:
    table = made(tmp_path / "t")
    table.append(xs(1))
    table.append(xs(2))
    file = tmp_path / "t" / "_delta_log" / f"{2:020}.json"
    actions = [json.loads(line) for line in file.read_text().splitlines()]
    for action in actions:
        action.get("commitInfo", {}).pop("txlogCrc32", None)
        if "metaData" in action:
            schema = json.loads(action["metaData"]["schemaString"])
            schema["fields"][0]["metadata"].update(change)
            action["metaData"]["schemaString"] = json.dumps(schema)
    file.write_text("".join(json.dumps(action) + "\n" for action in actions))
    for checksum in file.parent.glob("*.crc"):
        checksum.unlink()
    table = txlog.Table(tmp_path / "t")
    with pytest.raises(txlog.LogCorruptError, match="restore an earlier version"):
        table.append(xs(3))
    table.restore(version=1)
    table.append(xs(3))
    assert rows(table) == [(1, 1), (continues_at, 3)]


def test_values_that_reach_the_end_leave_no_mark_beyond_it(tmp_path: Path) -> None:
    table = made(tmp_path / "t", {"id": Identity(1, 10, explicit=True)})
    table.append(pa.table({"id": [2**63 - 2], "x": [1]}))
    table.alter.sync_identity("id")
    assert mark(table) == 2**63 - 1
    with pytest.raises(txlog.SchemaMismatchError, match="no further values"):
        table.append(xs(2))
    assert len(list((tmp_path / "t").glob("*.parquet"))) == 1


def test_clauses_that_give_values_and_those_that_do_not(tmp_path: Path) -> None:
    table = made(tmp_path / "t", {"id": txlog.Identity(explicit=True)})
    source = pa.table({"id": [70, 80, 90], "x": [1, 2, 3]})
    merge = table.merge(source, "source.x = target.x")
    merge.when_not_matched_insert({"x": "source.x"}, predicate="source.x < 3")
    merge.when_not_matched_insert({"id": "source.id", "x": "source.x"}).execute()
    assert rows(table) == [(1, 1), (2, 2), (90, 3)]
