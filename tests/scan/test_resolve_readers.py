"""One table, all readers: files whose columns differ from the schema, at any depth.

Each file stores the columns in another order, in other names, in narrower or other types, without
some of them, or with more. Whichever way a table is read, its rows are the same.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import txlog
from tests.examples import examples
from txlog.schema.json import schema_json
from txlog.schema.types import (
    ArrayType,
    DataType,
    DecimalType,
    MapType,
    PrimitiveType,
    StructField,
    StructType,
)
from txlog.training import Loader

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROWS = 5  # Of each file.
LONG, TEXT, INTEGER = PrimitiveType("long"), PrimitiveType("string"), PrimitiveType("integer")


def struct(**fields: DataType) -> StructType:
    return StructType(tuple(StructField(name, kind) for name, kind in fields.items()))


PAIR = struct(x=LONG, y=TEXT)
COLUMNS: dict[str, DataType] = {
    "a": LONG,
    "t": TEXT,
    "f": PrimitiveType("double"),
    "d": DecimalType(12, 2),
    "day": PrimitiveType("date"),
    "at": PrimitiveType("timestamp"),
    "wall": PrimitiveType("timestamp_ntz"),
    "s": struct(i=PAIR, z=PrimitiveType("date")),
    "l": ArrayType(LONG),
    "ls": ArrayType(PAIR),
    "m": MapType(TEXT, PAIR),
    "p": INTEGER,
}


def value_of(kind: DataType, row: int) -> Any:
    """Return the value of a column of a type in a row, which each stored type can hold."""
    if row == ROWS - 1:
        return None
    match kind:
        case StructType(fields):
            return {field.name: value_of(field.type, (row + 1) % ROWS) for field in fields}
        case ArrayType(element):
            return [value_of(element, at) for at in (row, ROWS - 1)][: row % 3]
        case MapType(_, value):
            return [(f"k{at}", value_of(value, at)) for at in range(row % 3)]
        case DecimalType():
            return Decimal(row)
        case PrimitiveType("date"):
            return date(2020, 1, 1 + row)
        case PrimitiveType("timestamp"):
            return datetime(2020, 1, 1, 0, 0, row, 5000, UTC)
        case PrimitiveType("timestamp_ntz"):
            return datetime(2020, 1, 1 + row)
        case PrimitiveType("string"):
            return "abc"[:row]
        case PrimitiveType("double"):
            return float(row)
    return row


TYPES: dict[DataType, list[pa.DataType]] = {
    LONG: [pa.int64(), pa.int64(), pa.int32(), pa.int8()],
    TEXT: [pa.string(), pa.string(), pa.large_string()],
    COLUMNS["f"]: [pa.float64(), pa.float64(), pa.float32(), pa.int32()],
    COLUMNS["d"]: [pa.decimal128(12, 2), pa.decimal128(12, 2), pa.decimal128(5, 2), pa.int32()],
    COLUMNS["day"]: [pa.date32()],
    COLUMNS["at"]: [
        pa.timestamp("us", "UTC"),
        pa.timestamp("us", "UTC"),
        pa.timestamp("ms", "UTC"),
        pa.timestamp("ns", "UTC"),
        pa.timestamp("us"),
    ],
    COLUMNS["wall"]: [pa.timestamp("us"), pa.timestamp("us"), pa.timestamp("ns"), pa.date32()],
}


@dataclass(frozen=True)
class Stored:
    """How a file stores a type: the Arrow type, and the values in it and as they are then read."""

    kind: pa.DataType
    give: Callable[[Any], Any]
    read: Callable[[Any], Any]


def unchanged(value: Any) -> Any:
    return value


def _as_stored(kind: pa.DataType) -> Callable[[Any], Any]:
    if pa.types.is_integer(kind):
        return lambda value: None if value is None else int(value)
    if pa.types.is_date(kind):
        return lambda value: value.date() if isinstance(value, datetime) else value
    if pa.types.is_timestamp(kind) and kind.tz is None:
        return lambda value: None if value is None else value.replace(tzinfo=None)
    return unchanged


@st.composite
def stored(draw: st.DrawFn, kind: DataType, mode: str, differs: bool) -> Stored:
    """Draw how a file stores a type; `differs`: otherwise than the table would."""
    match kind:
        case StructType():
            return draw(stored_struct(kind, mode, differs))
        case ArrayType(element):
            inner = draw(stored(element, mode, differs))
            name = draw(st.sampled_from(["element", "item"])) if differs else "element"
            make = draw(st.sampled_from([pa.list_, pa.large_list])) if differs else pa.list_
            each = _each(inner)
            return Stored(make(pa.field(name, inner.kind)), *each)
        case MapType(_, value):
            inner = draw(stored(value, mode, differs))
            give, read = (
                lambda pairs, one=one: None if pairs is None else [(k, one(v)) for k, v in pairs]
                for one in (inner.give, inner.read)
            )
            return Stored(pa.map_(pa.string(), inner.kind), give, read)
    chosen = draw(st.sampled_from(TYPES[kind])) if differs else TYPES[kind][0]
    return Stored(chosen, _as_stored(chosen), unchanged)


def _each(inner: Stored) -> tuple[Callable[[Any], Any], Callable[[Any], Any]]:
    def give(values: Any) -> Any:
        return None if values is None else [inner.give(value) for value in values]

    def read(values: Any) -> Any:
        return None if values is None else [inner.read(value) for value in values]

    return give, read


@st.composite
def stored_struct(draw: st.DrawFn, kind: StructType, mode: str, differs: bool) -> Stored:
    fields = list(kind.fields)
    if differs:
        fields = draw(st.permutations(fields))[: draw(st.integers(1, len(fields)))]
    inner = {field.name: draw(stored(field.type, mode, differs)) for field in fields}
    names = {field.name: draw(a_name(field.name, mode, differs)) for field in fields}
    kinds = [
        pa.field(names[name], one.kind, metadata=ids_of(name, mode)) for name, one in inner.items()
    ]
    if differs and draw(st.booleans()):
        kinds.insert(draw(st.integers(0, len(kinds))), pa.field("more", pa.int64()))

    def give(value: Any) -> Any:
        if value is None:
            return None
        return {names[name]: one.give(value[name]) for name, one in inner.items()}

    def read(value: Any) -> Any:
        if value is None:
            return None
        return {
            field.name: inner[field.name].read(value[field.name]) if field.name in inner else None
            for field in kind.fields
        }

    return Stored(pa.struct(kinds), give, read)


IDS = {name: at for at, name in enumerate([*COLUMNS, "x", "y", "i", "z"], 1)}


def ids_of(name: str, mode: str) -> dict[str, str]:
    return {} if mode == "none" else {"PARQUET:field_id": str(IDS[name])}


@st.composite
def a_name(draw: st.DrawFn, name: str, mode: str, differs: bool) -> str:
    """Draw a column's name in a file: in another case, or any name if ids decide."""
    usual = name if mode == "none" else f"col-{name}"
    if not differs or draw(st.booleans()):
        return usual
    return f"any-{name}" if mode == "id" else usual.upper()


@dataclass(frozen=True)
class OneFile:
    """A data file: its columns as a struct, how it is written, and its partition value."""

    columns: Stored
    has_int96: bool
    has_page_index: bool
    partition: int | None


STORED_COLUMNS = StructType(tuple(f for f in struct(**COLUMNS).fields if f.name != "p"))


@st.composite
def tables(draw: st.DrawFn) -> tuple[str, list[OneFile]]:
    mode = draw(st.sampled_from(["none", "none", "name", "id"]))
    files = [
        OneFile(
            draw(stored(STORED_COLUMNS, mode, draw(st.integers(0, 3)) > 0)),
            draw(st.booleans()),
            draw(st.booleans()),
            draw(st.sampled_from([None, 1, 2])),
        )
        for _ in range(draw(st.integers(1, 3)))
    ]
    return mode, files


def mapped(kind: DataType, mode: str) -> DataType:
    """Return a type whose fields have their ids and names in files."""
    match kind:
        case StructType(fields):
            found = []
            for field in fields:
                metadata: dict[str, Any] = {
                    "delta.columnMapping.id": IDS[field.name],
                    "delta.columnMapping.physicalName": f"col-{field.name}",
                }
                found.append(StructField(field.name, mapped(field.type, mode), metadata=metadata))
            return kind if mode == "none" else StructType(tuple(found))
        case ArrayType(element):
            return ArrayType(mapped(element, mode))
        case MapType(key, value):
            return MapType(key, mapped(value, mode))
    return kind


def make_table(folder: Path, mode: str, files: list[OneFile]) -> list[dict[str, Any]]:
    """Write a table as other writers may write it, and return its rows."""
    features = ["timestampNtz", "columnMapping"]
    schema = mapped(struct(**COLUMNS), mode)
    assert isinstance(schema, StructType)
    mapping = {"delta.columnMapping.mode": mode, "delta.columnMapping.maxColumnId": "99"}
    actions: list[dict[str, Any]] = [
        {"commitInfo": {"operation": "WRITE", "timestamp": 1}},
        {"protocol": {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": features,
                      "writerFeatures": [*features, "changeDataFeed"]}},
        {"metaData": {"id": "t", "format": {"provider": "parquet", "options": {}},
                      "schemaString": schema_json(schema), "partitionColumns": ["p"],
                      "configuration": {"delta.enableChangeDataFeed": "true"}
                      | ({} if mode == "none" else mapping)}},
    ]  # fmt: skip
    expected = []
    for number, one in enumerate(files):
        values = [
            {name: value_of(kind, row) for name, kind in COLUMNS.items()} for row in range(ROWS)
        ]
        given = pa.array([one.columns.give(row) for row in values], one.columns.kind)
        rows = pa.Table.from_struct_array(pa.chunked_array([given]))
        path = folder / f"{number}.parquet"
        pq.write_table(
            rows.cast(pa.schema(list(one.columns.kind))),
            path,
            row_group_size=3,
            write_page_index=one.has_page_index,
            use_deprecated_int96_timestamps=one.has_int96,
        )
        name = "p" if mode == "none" else "col-p"
        text = None if one.partition is None else str(one.partition)
        actions.append(
            {"add": {"path": path.name, "size": path.stat().st_size, "dataChange": True,
                     "modificationTime": 0, "partitionValues": {name: text},
                     "stats": orjson.dumps({"numRecords": ROWS}).decode()}}
        )  # fmt: skip
        expected += [one.columns.read(row) | {"p": one.partition} for row in values]
    log = folder / "_delta_log"
    log.mkdir()
    (log / f"{0:020}.json").write_bytes(b"\n".join(map(orjson.dumps, actions)))
    return expected


def plain(value: Any, kind: DataType) -> Any:
    """Return a value in one form, whichever form a reader gives it."""
    if value is None:
        return None
    match kind:
        case StructType(fields):
            held = value if isinstance(value, dict) else value.asDict()
            return {field.name: plain(held[field.name], field.type) for field in fields}
        case ArrayType(element):
            return [plain(one, element) for one in value]
        case MapType(_, item):
            pairs = value.items() if isinstance(value, dict) else map(_pair, value)
            return [(key, plain(one, item)) for key, one in pairs]
        case DecimalType():
            return Decimal(value).quantize(Decimal("0.01"))
        case PrimitiveType("timestamp"):
            return value.timestamp() if value.tzinfo else value.replace(tzinfo=UTC).timestamp()
    return value


def _pair(entry: Any) -> tuple[Any, Any]:
    return tuple(entry.values()) if isinstance(entry, dict) else entry


def texts(rows: list[dict[str, Any]], names: list[str] | None = None) -> list[str]:
    """Return rows as texts, of which each column has a fixed place."""
    chosen = [*COLUMNS] if names is None else names
    return [repr([plain(row[name], COLUMNS[name]) for name in chosen]) for row in rows]


def readings(table: txlog.Table) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Yield the rows in the order of `to_arrow`, by each reader that keeps it."""
    rows = table.count()
    yield "batches", [row for batch in table.to_batches(batch_size=2) for row in batch.to_pylist()]
    yield "take", table.take(list(range(rows))).to_pylist()
    yield "head", table.head(rows).to_pylist()
    yield "polars", table.to_polars().to_dicts()
    yield "columns of polars", _joined({n: table.to_polars([n])[n].to_list() for n in COLUMNS})
    yield "columns", _joined({n: table.to_arrow([n])[n].to_pylist() for n in COLUMNS})
    parts = [one.to_table() for one in table.fragments()]
    yield "fragments", pa.concat_tables(parts).to_pylist()
    dataset = table.to_pyarrow_dataset()
    yield "dataset", dataset.to_table().to_pylist()
    yield (
        "columns of a dataset",
        _joined({name: dataset.to_table(columns=[name])[name].to_pylist() for name in COLUMNS}),
    )
    found = [part.to_table(schema=dataset.schema) for part in dataset.get_fragments()]
    yield "fragments of a dataset", pa.concat_tables(found).to_pylist()
    yield "lazy polars", pl.scan_pyarrow_dataset(dataset).collect().to_dicts()


def unordered(table: txlog.Table) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Yield the rows in any order, by the other readers."""
    yield "changes", table.changes(0).to_arrow().to_pylist()
    for engine in ("duckdb", "polars"):
        found = txlog.sql("SELECT * FROM t", {"t": table}, engine=engine)  # type: ignore[arg-type]
        yield f"sql of {engine}", found.to_pylist()
    yield "sample", table.sample(table.count(), seed=1).to_pylist()


def _joined(columns: dict[str, list[Any]]) -> list[dict[str, Any]]:
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


FIELDS = ["s.i.x", "s.z", "a"]


@pytest.mark.slow
@settings(max_examples=examples(40))
@given(tables())
def test_all_readers_return_the_same_rows(
    tmp_path_factory: pytest.TempPathFactory, drawn: tuple[str, list[OneFile]]
) -> None:
    mode, files = drawn
    folder = tmp_path_factory.mktemp("t")
    expected = texts(make_table(folder, mode, files))
    table = txlog.Table(folder)
    whole = table.to_arrow()
    assert whole.schema == table.schema
    in_turn = texts(whole.to_pylist())
    assert sorted(in_turn) == sorted(expected)
    for reader, rows in readings(table):
        assert texts(rows) == in_turn, reader
    for reader, rows in unordered(table):
        assert sorted(texts(rows)) == sorted(expected), reader
    options = {"shuffle": None, "even": "short", "threads": 0, "rank": 0, "world_size": 1}
    loader = Loader(table, batch_size=3, columns=["a"], fill={"a": -1}, **options)  # type: ignore[arg-type]
    loaded = [value for batch in loader for value in batch["a"].tolist()]
    assert loaded == pc.fill_null(whole["a"], -1).to_pylist()
    parts = table.to_arrow(FIELDS).to_pylist()
    nested = [((row["s"] or {}).get("i") or {}).get("x") for row in whole.to_pylist()]
    assert [row["s.i.x"] for row in parts] == nested
    for where, mask in (
        ("a >= 1", pc.field("a") >= 1),
        ("t = 'ab'", pc.field("t") == "ab"),
        ("f < 2", pc.field("f") < 2.0),
        ("s IS NULL", pc.field("s").is_null()),
    ):
        some = texts(whole.filter(mask).to_pylist())
        assert texts(table.to_arrow(where=where).to_pylist()) == some
        assert texts(table.to_polars(where=where).to_dicts()) == some
        assert texts(table.to_pyarrow_dataset().to_table(filter=mask).to_pylist()) == some
        assert table.count(where) == len(some)
    for on, keys in (("a", [1, 3]), ("t", ["ab"]), ("day", [date(2020, 1, 2)])):
        meant = whole.filter(pc.is_in(whole[on], value_set=pa.array(keys, whole[on].type)))
        assert sorted(texts(table.lookup(keys, on=on).to_pylist())) == sorted(
            texts(meant.to_pylist())
        )
    # Neither an index, nor deleted rows, nor what rewrites the files changes what is read.
    table.indexes.create("a")
    meant = whole.filter(pc.is_in(whole["a"], value_set=pa.array([1, 3])))
    found = texts(table.lookup([1, 3], on="a").to_pylist())
    assert sorted(found) == sorted(texts(meant.to_pylist()))
    table.alter.add_features("deletionVectors")
    table.delete("a = 1")
    left = texts(whole.filter(pc.fill_null(pc.not_equal(whole["a"], 1), True)).to_pylist())
    in_turn = texts(table.to_arrow().to_pylist())
    assert sorted(in_turn) == sorted(left)
    for reader, rows in readings(table):
        assert texts(rows) == in_turn, reader
    table.restore(0)
    table.optimize.compact()
    assert sorted(texts(table.to_arrow().to_pylist())) == sorted(expected)


def has_nanoseconds(kind: pa.DataType) -> bool:
    if pa.types.is_nested(kind):
        return any(has_nanoseconds(kind.field(at).type) for at in range(kind.num_fields))
    return bool(pa.types.is_timestamp(kind) and kind.unit == "ns")


@pytest.mark.slow
@pytest.mark.spark
@settings(max_examples=examples(30), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(drawn=tables())
def test_spark_returns_the_same_rows(
    spark: "SparkSession",
    tmp_path_factory: pytest.TempPathFactory,
    drawn: tuple[str, list[OneFile]],
) -> None:
    from txlog import spark_ext

    mode, files = drawn
    folder = tmp_path_factory.mktemp("t")
    expected = sorted(texts(make_table(folder, mode, files)))
    source = spark.read.format("txlog").load(str(folder))
    assert sorted(texts([row.asDict() for row in source.collect()])) == expected
    if any(has_nanoseconds(one.columns.kind) and not one.has_int96 for one in files):
        return  # Spark's own reader refuses nanoseconds (docs/spark.md).
    own = spark_ext.read(spark, str(folder))
    assert sorted(texts([row.asDict() for row in own.collect()])) == expected


def test_a_column_in_another_case_is_found_by_all_readers(tmp_path: Path) -> None:
    table = txlog.write(tmp_path / "t", pa.table({"a": [1], "s": [{"x": 1}]}))
    (path,) = (tmp_path / "t").glob("*.parquet")
    pq.write_table(pa.table({"A": [1], "S": [{"X": 1}]}), path)
    meant = [{"a": 1, "s": {"x": 1}}]
    assert table.to_arrow().to_pylist() == meant
    dataset = table.to_pyarrow_dataset()
    assert dataset.to_table().to_pylist() == meant
    assert pl.scan_pyarrow_dataset(dataset).collect().to_dicts() == meant
    for engine in ("duckdb", "polars"):
        found = txlog.sql("SELECT a, s FROM t WHERE a = 1", {"t": table}, engine=engine)  # type: ignore[arg-type]
        assert found.to_pylist() == meant


def test_converted_nanoseconds_are_read_alike(tmp_path: Path) -> None:
    moments = pa.array([1_000_000_000_000_001_999, None], pa.int64()).cast(
        pa.timestamp("ns", "UTC")
    )
    pq.write_table(pa.table({"at": moments, "l": [[1], [2]]}), tmp_path / "a.parquet")
    table = txlog.convert_to_delta(tmp_path, allow_truncated_timestamps=True)
    micros = [1_000_000_000_000_001, None]
    for found in (
        table.to_arrow(),
        table.to_pyarrow_dataset().to_table(),
        table.take([0, 1]),
        table.to_polars().to_arrow(),
        txlog.sql("SELECT * FROM t", {"t": table}),
    ):
        assert found["at"].cast(pa.timestamp("us", "UTC")).cast(pa.int64()).to_pylist() == micros
