"""The schema of a Parquet file: what its footer says beyond the Arrow schema."""

import io
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import txlog
from tests.examples import examples
from txlog import SchemaMismatchError
from txlog.parquet.file_footer import FileFooter
from txlog.parquet.stated import SPARK_SCHEMA, stated_schema
from txlog.schema.arrow import from_arrow
from txlog.schema.json import schema_json
from txlog.schema.types import (
    ArrayType,
    DataType,
    MapType,
    PrimitiveType,
    StructField,
    StructType,
)

WALL = datetime(2024, 3, 10, 2, 30, 0, 123456)
LONG, TEXT = PrimitiveType("long"), PrimitiveType("string")
INSTANT, LOCAL = PrimitiveType("timestamp"), PrimitiveType("timestamp_ntz")


def wrapped(inner: st.SearchStrategy[DataType]) -> st.SearchStrategy[DataType]:
    return st.one_of(
        st.builds(ArrayType, inner),
        st.builds(MapType, st.just(TEXT), inner),
        st.lists(inner, min_size=1, max_size=3).map(
            lambda kinds: StructType(tuple(StructField(f"f{n}", k) for n, k in enumerate(kinds)))
        ),
    )


kinds = st.recursive(st.sampled_from([LONG, TEXT, INSTANT, LOCAL]), wrapped, max_leaves=4)
schemas = st.lists(kinds, min_size=1, max_size=3).map(
    lambda found: StructType(tuple(StructField(f"c{n}", kind) for n, kind in enumerate(found)))
)


def stored(kind: DataType, *, zoned: bool) -> tuple[pa.DataType, Any]:
    """Return the Arrow type in which a file has a type, and a value of it."""
    match kind:
        case ArrayType(element):
            inner, value = stored(element, zoned=zoned)
            return pa.list_(inner), [value]
        case MapType(_, item):
            inner, value = stored(item, zoned=zoned)
            return pa.map_(pa.string(), inner), [("k", value)]
        case StructType(fields):
            parts = [(field.name, *stored(field.type, zoned=zoned)) for field in fields]
            return (
                pa.struct([(name, inner) for name, inner, _ in parts]),
                {name: value for name, _, value in parts},
            )
        case PrimitiveType("timestamp") if zoned:
            return pa.timestamp("us", "UTC"), WALL.replace(tzinfo=UTC)
        case PrimitiveType("timestamp" | "timestamp_ntz"):
            return pa.timestamp("us"), WALL
    return (pa.int64(), 7) if kind == LONG else (pa.string(), "t")


def write(rows: pa.Table, target: Any, spark: str | None, *, int96: bool = False) -> None:
    """Write a file as Spark does, without an Arrow schema."""
    with pq.ParquetWriter(
        target, rows.schema, store_schema=False, use_deprecated_int96_timestamps=int96
    ) as writer:
        writer.write_table(rows)
        if spark is not None:
            writer.add_key_value_metadata({SPARK_SCHEMA: spark})


def footer_of(schema: StructType, *, int96: bool, zoned: bool, spark: str | None) -> bytes:
    found = [stored(field.type, zoned=zoned) for field in schema.fields]
    rows = pa.table([pa.array([value, None], kind) for kind, value in found], names=schema.names())
    sink = io.BytesIO()
    write(rows, sink, spark, int96=int96)
    return sink.getvalue()


def with_all(kind: DataType, moment: PrimitiveType) -> DataType:
    """Return a type in which all timestamps are of one type."""
    match kind:
        case ArrayType(element):
            return ArrayType(with_all(element, moment))
        case MapType(key, value):
            return MapType(key, with_all(value, moment))
        case StructType(fields):
            return StructType(tuple(StructField(f.name, with_all(f.type, moment)) for f in fields))
    return moment if kind in (INSTANT, LOCAL) else kind


def moments(value: Any) -> Iterator[datetime]:
    """Yield all timestamps in a value, those of instants in UTC."""
    match value:
        case datetime():
            yield value.replace(tzinfo=None)
        case dict():
            yield from moments([*value.values()])
        case list() | tuple():
            for one in value:
                yield from moments(one)


@settings(max_examples=examples(150))
@given(
    schemas,
    st.sampled_from(["int96", "zoned", "naive"]),
    st.sampled_from(["spark", "instants", "local", "odd", None]),
)
def test_timestamps_are_what_the_columns_of_the_footer_state(
    tmp_path_factory: pytest.TempPathFactory, schema: StructType, how: str, stated: str | None
) -> None:
    """Spark's text may be that of other data, which a program copied: the columns' types win."""
    copied = [with_all(schema, moment) for moment in (INSTANT, LOCAL)]
    assert all(isinstance(kind, StructType) for kind in copied)
    texts = [schema_json(kind) for kind in (schema, *copied)]  # type: ignore[arg-type]
    spark = {
        **dict(zip(("spark", "instants", "local"), texts, strict=True)),
        "odd": '{"type": "struct", "fields": [1]}',
        None: None,
    }
    data = footer_of(schema, int96=how == "int96", zoned=how == "zoned", spark=spark[stated])
    footer = FileFooter.of(pq.ParquetFile(io.BytesIO(data), coerce_int96_timestamp_unit="us"))
    if how == "zoned":
        expected: DataType = schema
    else:
        expected = with_all(schema, INSTANT if how == "int96" else LOCAL)
    assert stated_schema(footer) == expected

    folder = tmp_path_factory.mktemp("t")
    (folder / "a.parquet").write_bytes(data)
    table = txlog.convert_to_delta(folder)
    rows = table.to_arrow()
    assert from_arrow(rows.schema) == expected
    assert set(moments(rows.to_pylist())) <= {WALL}
    table.append(rows)
    assert table.to_arrow().to_pylist() == rows.to_pylist() * 2


def test_a_columns_comment_is_kept_and_stale_types_are_not() -> None:
    told = StructType(
        (
            StructField("n", PrimitiveType("integer"), metadata={"comment": "a number"}),
            StructField("T", LONG),
            StructField("gone", LONG),
        )
    )
    rows = pa.table({"n": [2**40], "t": ["x"], "new": [1]})
    sink = io.BytesIO()
    write(rows, sink, schema_json(told))
    found = stated_schema(FileFooter.of(pq.ParquetFile(sink)))
    assert found == StructType(
        (
            StructField("n", LONG, metadata={"comment": "a number"}),
            StructField("t", TEXT),
            StructField("new", LONG),
        )
    )


def test_spark_says_which_structs_are_variants(tmp_path: Path) -> None:
    values = txlog.variant_from_python([{"a": 1}, None])
    rows = pa.table({"v": values.storage, "n": [1, 2]})
    told = StructType((StructField("v", PrimitiveType("variant")), StructField("n", LONG)))
    write(rows, tmp_path / "a.parquet", schema_json(told))
    table = txlog.convert_to_delta(tmp_path)
    assert table.snapshot.schema.fields == told.fields
    assert txlog.variant_to_python(table.to_arrow()["v"]) == [{"a": 1}, None]
    table.append(table.to_arrow())
    assert table.count() == 4


def test_a_struct_is_a_variant_only_if_its_columns_may_be_one(tmp_path: Path) -> None:
    pair = pa.array([{"metadata": "m", "value": "v"}])
    told = StructType((StructField("v", PrimitiveType("variant")),))
    write(pa.table({"v": pair}), tmp_path / "a.parquet", schema_json(told))
    table = txlog.convert_to_delta(tmp_path)
    assert table.to_arrow().to_pylist() == [{"v": {"metadata": "m", "value": "v"}}]


def test_instants_and_local_times_are_two_types(tmp_path: Path) -> None:
    rows = pa.table({"at": pa.array([WALL], pa.timestamp("us"))})
    pq.write_table(rows, tmp_path / "a.parquet", use_deprecated_int96_timestamps=True)
    pq.write_table(rows, tmp_path / "b.parquet")
    with pytest.raises(
        SchemaMismatchError, match=r"timestamp_ntz in b\.parquet, and timestamp in a"
    ):
        txlog.convert_to_delta(tmp_path)
