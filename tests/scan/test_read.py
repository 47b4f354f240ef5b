"""Reading: what is damaged is named, what is elsewhere is followed or refused."""

import json
import pickle
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import txlog
from txlog.base.threads import Threads
from txlog.scan.read import read_fragment
from txlog.schema.types import MapType, PrimitiveType, StructField, StructType

DATA = pa.table({"x": list(range(10)), "t": [str(x) for x in range(10)], "p": ["a", "b"] * 5})


@pytest.fixture
def table(tmp_path: Path) -> txlog.Table:
    return txlog.write(tmp_path / "t", DATA, options=txlog.WriteOptions(max_rows_per_file=5))


def first_file(table: txlog.Table) -> Path:
    return Path(table.uri, table.files()["path"][0].as_py())


def rewrite_log(table: txlog.Table, version: int, change: Callable[[Any], None]) -> txlog.Table:
    """Change the actions of a commit, as another writer might have written it."""
    path = Path(table.uri, "_delta_log", f"{version:020d}.json")
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    for line in lines:
        change(line)
    path.write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    return txlog.Table(table.uri)


def test_a_missing_file_is_named(table: txlog.Table) -> None:
    path = first_file(table)
    path.unlink()
    with pytest.raises(txlog.DataFileError, match="is missing") as caught:
        table.to_arrow()
    assert (caught.value.path, caught.value.version) == (path.name, 0)
    with pytest.raises(txlog.DataFileError):
        list(table.to_batches())
    with pytest.raises(txlog.DataFileError):
        table.delete("x = 2")
    assert table.refresh().version == 0


def test_what_the_log_knows_needs_no_file(table: txlog.Table) -> None:
    table.delete("x = 1")
    for path in Path(table.uri).glob("*.parquet"):
        path.unlink()
    assert table.count() == 9
    assert table.count("x >= 5") == 5
    assert table.count("x > 100") == 0
    assert table.to_arrow(where="x > 100").num_rows == 0
    with pytest.raises(txlog.DataFileError):
        table.count("x = 7")


@pytest.mark.parametrize("content", [b"", b"PAR1", b"not parquet" * 100, None])
def test_a_corrupt_file_is_named(table: txlog.Table, content: bytes | None) -> None:
    path = first_file(table)
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2] if content is None else content)
    for act in (table.to_arrow, lambda: table.count("x = 2"), lambda: table.delete("x = 2")):
        with pytest.raises(txlog.DataFileError, match="Parquet") as caught:
            act()
        assert caught.value.path == path.name


def test_a_column_of_another_kind_is_named(table: txlog.Table) -> None:
    pq.write_table(pa.table({"x": ["a"] * 5, "t": ["a"] * 5, "p": ["a"] * 5}), first_file(table))
    with pytest.raises(txlog.DataFileError, match="column x"):
        table.to_arrow()


@pytest.fixture
def stored(tmp_path: Path) -> txlog.Table:
    """A table whose deletion vector is in a file of its own."""
    table = txlog.write(tmp_path / "v", pa.table({"x": list(range(9000))}))
    table.delete("x % 3 = 0 or x % 7 = 0")
    assert table.files()["deletion_vector"][0].as_py().startswith("u")
    return table


def test_a_missing_vector_is_named(stored: txlog.Table) -> None:
    path = next(Path(stored.uri).glob("*.bin"))
    path.unlink()
    with pytest.raises(txlog.BadDeletionVectorError, match="cannot be read") as caught:
        stored.to_arrow()
    assert caught.value.path == path.name
    assert stored.count() < 9000  # The log knows how many.
    assert txlog.Table(stored.uri, 0).to_arrow().num_rows == 9000


@pytest.mark.parametrize("at", [0, 1, 4, 5, 9, 30, -5, -1])
def test_a_flipped_bit_of_a_vector_is_found(stored: txlog.Table, at: int) -> None:
    path = next(Path(stored.uri).glob("*.bin"))
    content = bytearray(path.read_bytes())
    content[at] ^= 4
    path.write_bytes(content)
    with pytest.raises(txlog.BadDeletionVectorError):
        stored.to_arrow()


@pytest.mark.parametrize("length", [0, 1, 3, 5, 40, -1])
def test_a_torn_vector_is_found(stored: txlog.Table, length: int) -> None:
    path = next(Path(stored.uri).glob("*.bin"))
    path.write_bytes(path.read_bytes()[:length])
    with pytest.raises(txlog.BadDeletionVectorError):
        stored.to_arrow()


def test_a_vector_beyond_the_file_is_found(table: txlog.Table) -> None:
    table.delete("x = 4")

    def fewer(line: Any) -> None:
        if "add" in line:
            line["add"]["stats"] = '{"numRecords":3}'

    with pytest.raises(txlog.BadDeletionVectorError, match="row 4"):
        rewrite_log(table, 1, fewer).to_arrow()


def test_a_wrong_number_of_rows_is_found(table: txlog.Table) -> None:
    table.delete("x = 0")

    def more(line: Any) -> None:
        if "add" in line:
            line["add"]["stats"] = '{"numRecords":30}'

    with pytest.raises(txlog.DataFileError, match="30 rows"):
        rewrite_log(table, 1, more).to_arrow()


@pytest.mark.parametrize(
    ("rows", "said"), [(-2, "states -2 rows for a row group"), (3, "states 8 rows, but 9 in its")]
)
def test_a_wrong_number_of_rows_of_a_row_group_is_found(
    tmp_path: Path, rows: int, said: str
) -> None:
    groups = {"txlog.rowGroupRows": "3"}
    table = txlog.write(tmp_path / "t", pa.table({"n": range(8)}), properties=groups)
    path = Path(table.uri, table.files()["path"][0].as_py())
    data = path.read_bytes()
    at = data.rindex(b"\x16\x04")  # In the footer: the last group has two rows.
    path.write_bytes(
        data[:at] + bytes([0x16, 2 * rows if rows > 0 else -2 * rows - 1]) + data[at + 2 :]
    )
    with pytest.raises(txlog.DataFileError, match=said):
        table.to_arrow()


def test_columns_come_as_asked(table: txlog.Table) -> None:
    assert table.to_arrow(["t", "x"]) == DATA.select(["t", "x"])
    assert table.to_arrow(["t"], "x = 3").to_pylist() == [{"t": "3"}]
    assert table.scan(["p"]).schema == pa.schema([("p", pa.string())])
    assert table.to_arrow([]).num_rows == 10
    assert table.to_arrow([]).column_names == []
    with pytest.raises(txlog.InvalidInputError, match="nope"):
        table.scan(["x", "nope"])
    with pytest.raises(txlog.InvalidInputError, match="nope"):
        table.scan(where="nope = 1")
    text: Any = "x"
    with pytest.raises(txlog.InvalidInputError, match="list"):
        table.scan(text)
    with pytest.raises(txlog.InvalidInputError, match="where"):
        table.scan(where="  ")


def test_a_predicate_may_read_no_column(table: txlog.Table) -> None:
    for where in ("1 = 1", "true", "1 < 2 and not false", "null is null"):
        assert table.count(where) == 10
        assert table.to_arrow(where=where) == DATA
        assert table.to_arrow([], where).num_rows == 10
    for where in ("1 = 2", "false", "null", "1 = null"):
        assert table.count(where) == 0
        assert table.to_arrow(["x"], where).num_rows == 0
        assert not table.delete(where)
    table.delete("x = 3")
    assert table.delete("1 = 1").metrics["numDeletedRows"] == 9
    assert table.count() == 0


def test_an_empty_result_has_the_schema(table: txlog.Table) -> None:
    found = table.to_arrow(["t"], "x > 100")
    assert (found.num_rows, found.schema) == (0, pa.schema([("t", pa.string())]))
    assert list(table.to_batches(where="x > 100")) == []
    assert table.scan(where="x > 100").to_reader().read_all().num_rows == 0


def test_batches_are_bounded_and_in_order(table: txlog.Table) -> None:
    batches = list(table.scan().to_batches(batch_size=3))
    assert [batch.num_rows for batch in batches] == [3, 2, 3, 2]
    assert pa.Table.from_batches(batches) == DATA
    assert [batch.num_rows for batch in table.to_batches(batch_size=3)] == [3, 2, 3, 2]
    (first, *_) = table.fragments()
    assert [batch.num_rows for batch in first.to_batches(batch_size=4)] == [4, 1]
    assert table.scan().to_reader().read_all() == DATA


@pytest.mark.parametrize("workers", [1, 3])
def test_engines_keep_the_order_and_raise(workers: int) -> None:
    engine = Threads(workers)
    assert list(engine.map(lambda x: x * x, range(20))) == [x * x for x in range(20)]
    with pytest.raises(ZeroDivisionError):
        list(engine.map(lambda x: 1 // (x - 5), range(20)))


def test_a_plan_is_read_elsewhere(table: txlog.Table) -> None:
    table.delete("x = 7")
    scan = pickle.loads(pickle.dumps(table.scan(["t"], "x > 2")))
    found = [
        batch
        for fragment in scan.fragments()
        for batch in read_fragment(scan.store, scan.plan.reading, fragment)
    ]
    assert pa.Table.from_batches(found) == table.to_arrow(["t"], "x > 2")


def test_arrow_streams_go_anywhere(table: txlog.Table) -> None:
    import duckdb
    import polars as pl

    table.delete("x = 2")
    expected = table.to_arrow()
    scan = table.scan()
    assert pa.table(scan) == expected
    assert pa.table(table) == expected
    assert pa.RecordBatchReader.from_stream(scan).read_all() == expected
    assert pa.schema(scan) == expected.schema
    assert pl.DataFrame(scan).to_dicts() == expected.to_pylist()
    connection = duckdb.connect()
    connection.register("scan", scan)
    assert connection.sql("select sum(x) from scan").fetchall() == [(43,)]
    connection.close()


def test_a_later_column_is_null_in_older_files(table: txlog.Table) -> None:
    kind = pa.struct([("a", pa.int64())])
    new = pa.table({"x": [99], "n": pa.array([{"a": 1}], kind), "k": [True]})
    table.append(new, schema_mode="merge")
    found = table.to_arrow(["x", "n", "k"])
    assert found["n"].to_pylist() == [None] * 10 + [{"a": 1}]
    assert found["k"].to_pylist() == [None] * 10 + [True]
    assert table.count("k is null") == 10
    assert table.count("n.a = 1") == 1
    assert table.count("k") == 1
    table.delete("k is null and x < 9")
    assert table.to_arrow(["x"])["x"].to_pylist() == [9, 99]


def test_an_absolute_path_is_followed(table: txlog.Table, tmp_path: Path) -> None:
    outside = tmp_path / "else where#1" / "f.parquet"
    outside.parent.mkdir()
    shutil.move(first_file(table), outside)
    name = table.files()["path"][0].as_py()

    def move(spelling: str) -> Callable[[Any], None]:
        def change(line: Any) -> None:
            if "add" in line and (line["add"]["path"] == name or "f.parquet" in str(line)):
                line["add"]["path"] = spelling

        return change

    for spelling in (outside.as_uri(), outside.as_uri().removeprefix("file://")):
        moved = rewrite_log(table, 0, move(spelling))
        if moved.files()["path"].to_pylist().count(spelling):
            assert moved.to_arrow().sort_by("x") == DATA
        else:
            pytest.fail("the log was not changed")
        name = spelling


def test_a_path_that_climbs_out_is_refused(table: txlog.Table) -> None:
    def climb(line: Any) -> None:
        if "add" in line:
            line["add"]["path"] = "../" + line["add"]["path"]

    with pytest.raises(txlog.LogCorruptError, match="out of the table"):
        rewrite_log(table, 0, climb).to_arrow()


def test_another_scheme_is_refused_unless_allowed(table: txlog.Table) -> None:
    other = txlog.write("memory://elsewhere/t", DATA.slice(0, 5), "overwrite")
    (held,) = other.files()["path"].to_pylist()
    name = table.files()["path"][0].as_py()

    def move(line: Any) -> None:
        if "add" in line and line["add"]["path"] == name:
            line["add"]["path"] = f"memory://elsewhere/t/{held}"

    moved = rewrite_log(table, 0, move)
    with pytest.raises(txlog.UnsupportedFeatureError, match="allowed_schemes"):
        moved.to_arrow()
    options = {"txlog.allowed_schemes": "memory"}
    allowed = txlog.Table(table.uri, storage_options=options)
    assert allowed.to_arrow().sort_by("x") == DATA


def mapped(mode: str) -> StructType:
    """A schema whose columns have other names in the files."""

    def meta(name: str, number: int) -> dict[str, Any]:
        return {"delta.columnMapping.physicalName": name, "delta.columnMapping.id": number}

    inner = StructType((StructField("b", PrimitiveType("string"), True, meta("c-b", 3)),))
    return StructType(
        (
            StructField("x", PrimitiveType("long"), True, meta("c-x", 1)),
            StructField("s", inner, True, meta("c-s", 2)),
            StructField(
                "m", MapType(PrimitiveType("string"), PrimitiveType("long")), True, meta("c-m", 4)
            ),
            StructField("p", PrimitiveType("string"), True, meta("c-p", 5)),
        )
    )


@pytest.mark.parametrize("mode", ["name", "id"])
def test_mapped_columns_are_read_by_name_or_id(tmp_path: Path, mode: str) -> None:
    def field(name: str, kind: pa.DataType, number: int) -> pa.Field:
        return pa.field(name, kind, metadata={"PARQUET:field_id": str(number)})

    prefix = "c-" if mode == "name" else "any-"
    physical = pa.schema(
        [
            field(f"{prefix}x", pa.int64(), 1),
            field(f"{prefix}s", pa.struct([field(f"{prefix}b", pa.string(), 3)]), 2),
            field(f"{prefix}m", pa.map_(pa.string(), pa.int64()), 4),
        ]
    )
    rows = [
        {f"{prefix}x": 1, f"{prefix}s": {f"{prefix}b": "u"}, f"{prefix}m": [("k", 1)]},
        {f"{prefix}x": 2, f"{prefix}s": None, f"{prefix}m": None},
    ]
    pq.write_table(pa.Table.from_pylist(rows, schema=physical), tmp_path / "f.parquet")
    log = [
        {"protocol": {"minReaderVersion": 2, "minWriterVersion": 5}},
        {
            "metaData": {
                "id": "1",
                "format": {"provider": "parquet", "options": {}},
                "schemaString": _schema_text(mapped(mode)),
                "partitionColumns": ["p"],
                "configuration": {"delta.columnMapping.mode": mode},
            }
        },
        {
            "add": {
                "path": "f.parquet",
                "partitionValues": {"c-p": "v"},
                "size": 1,
                "modificationTime": 0,
                "dataChange": True,
                "stats": '{"numRecords":2,"minValues":{"c-x":1},"maxValues":{"c-x":2}}',
            }
        },
    ]
    (tmp_path / "_delta_log").mkdir()
    path = tmp_path / "_delta_log" / f"{0:020d}.json"
    path.write_text("\n".join(map(json.dumps, log)), encoding="utf-8")
    table = txlog.Table(tmp_path)
    assert table.to_arrow().to_pylist() == [
        {"x": 1, "s": {"b": "u"}, "m": [("k", 1)], "p": "v"},
        {"x": 2, "s": None, "m": None, "p": "v"},
    ]
    assert table.to_arrow(["x"], "s.b = 'u' and p = 'v'").to_pylist() == [{"x": 1}]
    assert table.scan(where="x > 2").explain().pruned_by_statistics == 1
    assert table.scan(where="p = 'w'").explain().pruned_by_partition == 1


def _schema_text(schema: StructType) -> str:
    from txlog.schema.json import schema_json

    return schema_json(schema)


def test_rows_as_a_pandas_frame(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = txlog.write(tmp_path, pa.table({"x": [1, 2, 3], "y": ["a", None, "c"]}))
    expected = table.to_arrow(["y"], "x > 1").to_pandas()
    assert table.to_pandas(["y"], "x > 1").equals(expected)
    assert table.scan(["y"], "x > 1").to_pandas().equals(expected)
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(txlog.UnsupportedFeatureError, match="pip install pandas"):
        table.to_pandas()


def test_what_is_planned_and_a_snapshot_are_shown_in_one_line(tmp_path: Path) -> None:
    table = txlog.write(tmp_path, pa.table({"x": [1], "y": ["a"]}))
    root = str(tmp_path)
    assert repr(table.scan()) == f"txlog.Scan({root!r}, version=0, columns=[x, y])"
    where = repr(table.scan(["y"], where="x > 1"))
    assert where == f"txlog.Scan({root!r}, version=0, columns=[y], where='(`x` > 1)')"
    assert repr(table.snapshot) == f"txlog.Snapshot({root!r}, version=0)"
    table.alter.set_properties({"delta.enableChangeDataFeed": "true"})
    marked = "_commit_version, _commit_timestamp"
    assert repr(table.diff(0, on="y")) == (
        f"txlog.Diff({root!r}, start_version=0, end_version=1, on=[y], columns=[x, y])"
    )
    assert repr(table.blame(["x"], "x > 1")) == (
        f"txlog.Blame({root!r}, version=1, columns=[x, {marked}, _operation, _user],"
        " where='(`x` > 1)')"
    )
    assert repr(table.changes(1)) == (
        f"txlog.Changes({root!r}, start_version=1, end_version=1,"
        f" columns=[x, y, _change_type, {marked}])"
    )
