"""`resolve`: each reader finds the columns of a table in files that differ from its schema."""

import io
import pickle
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import duckdb
import orjson
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import txlog
from tests.examples import examples
from txlog.parquet.file_footer import FileFooter
from txlog.protocol.form import ReadForm
from txlog.scan.data_file import OpenFile
from txlog.scan.resolve import resolve
from txlog.schema.casts import Reading
from txlog.schema.types import PrimitiveType, StructField, StructType

LONG = PrimitiveType("long")
ROWS = 6  # Of each file.


def footer_of(rows: pa.Table) -> FileFooter:
    sink = io.BytesIO()
    pq.write_table(rows, sink)
    return FileFooter.of(pq.ParquetFile(sink))


def test_statistics_of_other_names_are_not_used() -> None:
    """After columns exchange names, a footer's `a` may be the table's `b`."""
    a = StructField("a", LONG, metadata={"delta.columnMapping.physicalName": "b"})
    b = StructField("b", LONG, metadata={"delta.columnMapping.physicalName": "a"})
    columns = (a, StructField("s", StructType((a, b))))
    footer = footer_of(pa.table({"a": [1], "s": [{"a": 1, "b": 2}]}))
    found = resolve(ReadForm(StructType(columns), (), "name"), columns, footer)
    assert [found.leaf(path) for path in (("a",), ("s", "a"), ("s", "b"))] == [None] * 3
    exchanged = footer_of(pa.table({"b": [1], "s": [{"b": 1, "a": 2}]}))
    found = resolve(ReadForm(StructType(columns), (), "name"), columns, exchanged)
    assert found.leaf(("a",)) == ("b",)
    assert found.leaf(("s", "a")) == ("s", "b")


@pytest.mark.parametrize(
    ("stored", "how"),
    [
        (pa.int64(), Reading.SAME),
        (pa.int32(), Reading.CHECKED),
        (pa.string(), Reading.NEVER),
    ],
)
def test_a_file_is_plain_if_its_types_are_the_tables(stored: pa.DataType, how: Reading) -> None:
    column = StructField("a", LONG)
    footer = footer_of(pa.table({"a": pa.array([], stored)}))
    found = resolve(ReadForm(StructType((column,)), ()), [column], footer)
    assert [one.reading for one in found.columns] == [how]
    assert found.is_plain == (how is Reading.SAME)


@pytest.mark.parametrize("where", ["n = 3", "s.`x y` = 3"])
def test_row_groups_of_mapped_columns_are_skipped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    rows = pa.table({"n": range(4), "s": [{"x y": n} for n in range(4)]})
    table = txlog.write(
        tmp_path,
        rows,
        properties={"delta.columnMapping.mode": "name"},
        options=txlog.WriteOptions(writer_properties=txlog.WriterProperties(max_row_group_size=1)),
    )
    read = []
    whole = OpenFile.read

    def watched(self: OpenFile, ranges: Any, **options: Any) -> Any:
        read.extend(ranges)
        return whole(self, ranges, **options)

    monkeypatch.setattr(OpenFile, "read", watched)
    assert table.to_arrow(where=where)["n"].to_pylist() == [3]
    assert read == [(3, 4)]


MICROS = [datetime(2020, 1, 1, 0, 0, second, 123, tzinfo=UTC) for second in range(ROWS)]
VALUES: dict[str, list[Any]] = {
    "a": [*range(ROWS - 1), None],
    "t": ["x", None, "", "y", "zz", "x"],
    "d": [0.5, None, 1.5, -2.0, 3.0, 4.0],
    "at": [*MICROS[:-1], None],
    "s": [{"x": n, "y": str(n)} for n in range(ROWS - 1)] + [None],
    "l": [[1], [], None, [2, None], [3], [4]],
}
KINDS: dict[str, str | dict[str, Any]] = {
    "a": "long", "t": "string", "d": "double", "at": "timestamp",
    "s": {"type": "struct", "fields": [
        {"name": "x", "type": "long", "nullable": True, "metadata": {}},
        {"name": "y", "type": "string", "nullable": True, "metadata": {}},
    ]},
    "l": {"type": "array", "elementType": "long", "containsNull": True},
    "p": "integer",
}  # fmt: skip
NANOS = pa.timestamp("ns", "UTC")
TYPES: dict[str, list[pa.DataType]] = {
    "a": [pa.int64(), pa.int32(), pa.int8()],
    "t": [pa.string(), pa.large_string(), pa.dictionary(pa.int32(), pa.string()), pa.binary()],
    "d": [pa.float64(), pa.float32()],
    "at": [pa.timestamp("us", "UTC"), NANOS, pa.timestamp("us")],
    "l": [pa.list_(pa.int64()), pa.large_list(pa.int32()), pa.list_(pa.field("item", pa.int16()))],
}


@dataclass(frozen=True)
class StoredField:
    """A column of a file, or a field of its struct: its name, and what differs in the file."""

    name: str
    is_upper: bool
    kind: pa.DataType | None = None
    inner: tuple["StoredField", ...] = ()


def a_field(name: str) -> st.SearchStrategy[StoredField]:
    if name == "s":
        inner = st.permutations([a_field("x"), a_field("y")]).flatmap(
            lambda two: st.integers(1, 2).flatmap(lambda count: st.tuples(*two[:count]))
        )
        return st.builds(StoredField, st.just(name), st.booleans(), st.none(), inner)
    kinds = {"x": [pa.int64(), pa.int16()], "y": [pa.string()], **TYPES}[name]
    return st.builds(StoredField, st.just(name), st.booleans(), st.sampled_from(kinds))


@dataclass(frozen=True)
class OneFile:
    """A data file: its columns in order, and how its partition value is logged."""

    fields: tuple[StoredField, ...]
    is_logged_by_logical_name: bool
    has_page_index: bool
    has_bounds: bool  # Without those of times, only the footer shows the calendar.
    partition: int | None


@st.composite
def files(draw: st.DrawFn) -> OneFile:
    names = draw(st.lists(st.sampled_from(list(VALUES)), unique=True, min_size=1))
    fields = tuple([draw(a_field(name)) for name in names])
    partition = draw(st.sampled_from([None, 1, 2]))
    return OneFile(fields, draw(st.booleans()), draw(st.booleans()), draw(st.booleans()), partition)


IDS = {name: number for number, name in enumerate([*KINDS, "x", "y"], 1)}


def name_of(field: StoredField, mode: str) -> str:
    """Return a column's name in a file: by id it may be anything."""
    name = field.name if mode == "none" else f"col-{field.name}"
    if mode == "id":
        return f"any-{field.name}" if field.is_upper else name
    return name.upper() if field.is_upper else name


def arrow_of(field: StoredField, values: list[Any], mode: str) -> tuple[pa.Field, pa.Array]:
    if field.name == "s":
        inner = [
            arrow_of(one, [None if value is None else value[one.name] for value in values], mode)
            for one in field.inner
        ]
        nulls = pa.array([value is None for value in values])
        array = pa.StructArray.from_arrays(
            [array for _, array in inner], fields=[kind for kind, _ in inner], mask=nulls
        )
    else:
        assert field.kind is not None
        if field.kind == NANOS:  # With parts that a table cannot hold.
            micros = pa.array(values, pa.timestamp("us", "UTC")).cast(NANOS).cast(pa.int64())
            array = pc.add(micros, 7).cast(NANOS)
        elif pa.types.is_dictionary(field.kind):
            array = pa.array(values, pa.string()).dictionary_encode()
        else:
            array = pa.array(values).cast(field.kind)
    metadata = {} if mode == "none" else {"PARQUET:field_id": str(IDS[field.name])}
    return pa.field(name_of(field, mode), array.type, metadata=metadata), array


def mapped_fields(fields: list[dict[str, Any]], mode: str) -> list[dict[str, Any]]:
    if mode == "none":
        return fields
    return [
        field
        | {
            "metadata": {
                "delta.columnMapping.id": IDS[field["name"]],
                "delta.columnMapping.physicalName": f"col-{field['name']}",
            }
        }
        | (
            {"type": field["type"] | {"fields": mapped_fields(field["type"]["fields"], mode)}}
            if field["name"] == "s"
            else {}
        )
        for field in fields
    ]


def bounds_of(file: OneFile, mode: str) -> dict[str, Any]:
    name = "at" if mode == "none" else "col-at"
    if all(field.name != "at" for field in file.fields):
        return {"nullCount": {name: ROWS}}
    return {
        "minValues": {name: "2020-01-01T00:00:00.000Z"},
        "maxValues": {name: "2020-01-01T00:00:05.001Z"},
        "nullCount": {name: 1},
    }


def table_of(folder: Path, mode: str, held: list[OneFile]) -> list[dict[str, Any]]:
    """Write a table with files as other writers may write them, and return its rows."""
    schema = [
        {"name": name, "type": kind, "nullable": True, "metadata": {}}
        for name, kind in KINDS.items()
    ]
    protocol: dict[str, Any] = {"minReaderVersion": 1, "minWriterVersion": 2}
    if mode != "none":
        protocol = {"minReaderVersion": 2, "minWriterVersion": 5}
    text = orjson.dumps({"type": "struct", "fields": mapped_fields(schema, mode)}).decode()
    properties = {} if mode == "none" else {"delta.columnMapping.mode": mode,
                                            "delta.columnMapping.maxColumnId": "20"}  # fmt: skip
    actions: list[dict[str, Any]] = [
        {"protocol": protocol},
        {"metaData": {"id": "t", "format": {"provider": "parquet", "options": {}},
                      "schemaString": text, "partitionColumns": ["p"],
                      "configuration": properties}},
    ]  # fmt: skip
    expected = []
    for number, one in enumerate(held):
        found = [arrow_of(field, VALUES[field.name], mode) for field in one.fields]
        kinds = pa.schema([kind for kind, _ in found])
        path = folder / f"{number}.parquet"
        pq.write_table(
            pa.Table.from_arrays([array for _, array in found], schema=kinds),
            path,
            row_group_size=4,
            write_page_index=one.has_page_index,
        )
        by_logical = mode == "none" or one.is_logged_by_logical_name
        value = None if one.partition is None else str(one.partition)
        stats = orjson.dumps(
            {"numRecords": ROWS} | (bounds_of(one, mode) if one.has_bounds else {})
        )
        actions.append(
            {"add": {"path": path.name, "size": path.stat().st_size, "dataChange": True,
                     "modificationTime": 0, "stats": stats.decode(),
                     "partitionValues": {"p" if by_logical else "col-p": value}}}
        )  # fmt: skip
        stored = {field.name: field for field in one.fields}
        for row in range(ROWS):
            values = {name: VALUES[name][row] if name in stored else None for name in VALUES}
            if values["s"] is not None:
                kept = {field.name for field in stored["s"].inner}
                values["s"] = {n: v if n in kept else None for n, v in values["s"].items()}
            expected.append(values | {"p": one.partition})
    log = folder / "_delta_log"
    log.mkdir()
    (log / f"{0:020}.json").write_bytes(b"\n".join(map(orjson.dumps, actions)))
    return expected


def as_texts(rows: list[dict[str, Any]]) -> list[str]:
    """Return rows as texts, whichever type their time zone has."""
    times = [None if row["at"] is None else row["at"].timestamp() for row in rows]
    return [repr(row | {"at": at}) for row, at in zip(rows, times, strict=True)]


def in_order(rows: list[dict[str, Any]]) -> list[str]:
    return sorted(as_texts(rows))


def readings(table: txlog.Table) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Yield the rows of a table in the table's columns, by each reader."""
    names = table.schema.names
    yield "batches", pa.Table.from_batches(table.to_batches(), table.schema).to_pylist()
    rows = table.to_arrow().num_rows
    yield "take", table.take(list(range(rows))).to_pylist()
    yield "polars", table.to_polars().to_arrow().cast(table.schema).to_pylist()
    of_fragments = [one.to_table() for one in table.fragments()]
    yield "fragments", pa.concat_tables(of_fragments).to_pylist()
    dataset = table.to_pyarrow_dataset()
    yield "dataset", dataset.to_table().to_pylist()
    columns = [dataset.to_table(columns=[name])[name] for name in names]
    yield "columns", pa.table(columns, names=names).to_pylist()
    yield "pickled", pickle.loads(pickle.dumps(dataset)).to_table().to_pylist()
    parts = [part.to_table(schema=dataset.schema) for part in dataset.get_fragments()]
    yield "parts", pa.concat_tables(parts).to_pylist()
    lazy = pl.scan_pyarrow_dataset(dataset).collect()
    yield "lazy", lazy.to_arrow().cast(table.schema).to_pylist()
    yield "head", dataset.head(rows).to_pylist()
    places = pa.array(range(rows))
    taken = [dataset.take(places, columns=[name])[name] for name in names]
    yield "taken columns", pa.table(taken, names=names).to_pylist()
    heads = [dataset.scanner(columns=[name]).head(rows)[name] for name in names]
    yield "heads of columns", pa.table(heads, names=names).to_pylist()
    others = table.schema.append(pa.field("none", pa.int8()))
    others = pa.schema([field.with_name(field.name.upper()) for field in others])
    for made in (table.to_pyarrow_dataset(schema=others), dataset.replace_schema(others)):
        asked = made.to_table()
        assert asked["NONE"].null_count == rows
        yield "other spellings", asked.select(range(len(names))).rename_columns(names).to_pylist()
        columns = [made.to_table(columns=[name.upper()])[name.upper()] for name in names]
        yield "columns in other spellings", pa.table(columns, names=names).to_pylist()


@pytest.mark.slow
@settings(max_examples=examples(60))
@given(mode=st.sampled_from(["none", "name", "id"]), held=st.lists(files(), min_size=1, max_size=4))
def test_all_readers_find_the_same_columns(
    tmp_path_factory: pytest.TempPathFactory, mode: str, held: list[OneFile]
) -> None:
    folder = tmp_path_factory.mktemp("t")
    expected = in_order(table_of(folder, mode, held))
    table = txlog.Table(folder)
    assert in_order(table.to_arrow().to_pylist()) == expected
    in_turn = as_texts(table.to_arrow().to_pylist())
    for reader, rows in readings(table):
        assert in_order(rows) == expected, reader
        assert as_texts(rows) == in_turn, reader  # Also if columns are read one by one.
    some = [row for row in table.to_arrow().to_pylist() if row["a"] is not None and row["a"] > 2]
    dataset = table.to_pyarrow_dataset()
    for found in (
        table.to_arrow(where="a > 2").to_pylist(),
        table.to_polars(where="a > 2").to_arrow().cast(table.schema).to_pylist(),
        dataset.to_table(filter=pc.field("a") > 2).to_pylist(),
        dataset.filter(pc.field("a") > 2).to_table().to_pylist(),
    ):
        assert in_order(found) == in_order(some)
    assert dataset.count_rows(filter=pc.field("a") > 2) == len(some)
    assert dataset.head(5, columns=[]).num_rows == min(5, len(expected))
    assert dataset.head(5, columns=[], filter=pc.field("a") > 2).num_rows == min(5, len(some))
    assert duckdb.sql("SELECT count(*) FROM dataset WHERE a > 2").fetchall() == [(len(some),)]
