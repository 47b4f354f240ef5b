"""The schema evolves wherever a schema goes: in lists and maps, and in the types of columns."""

from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import deltalake
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import txlog
from tests.examples import examples
from txlog.base.errors import SchemaMismatchError
from txlog.data_files.incoming import merged_schema
from txlog.schema.arrow import from_arrow

DOORS: dict[str, Callable[[txlog.Table, pa.Table], Any]] = {
    "append": lambda table, data: table.append(data, schema_mode="merge"),
    "overwrite": lambda table, data: table.overwrite(data, "id = 2", schema_mode="merge"),
    "upsert": lambda table, data: table.upsert(data, on="id", schema_mode="merge"),
    "merge": lambda table, data: (
        table.merge(data, on="id", schema_mode="merge").when_not_matched_insert_all().execute()
    ),
}
OLD = pa.struct([("a", pa.int64())])
NEW = pa.struct([("b", pa.string()), ("a", pa.int64())])
SHAPES: dict[str, tuple[Callable[[pa.DataType], pa.DataType], Callable[[Any], Any]]] = {
    "list": (lambda kind: pa.list_(kind), lambda value: [value, None]),
    "value": (lambda kind: pa.map_(pa.string(), kind), lambda value: [("k", value)]),
    "key": (lambda kind: pa.map_(kind, pa.int64()), lambda value: [(value, 1)]),
    "deep": (
        lambda kind: pa.list_(pa.struct([("m", pa.map_(pa.string(), pa.list_(kind)))])),
        lambda value: [{"m": [("k", [value])]}],
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("mapping", ["none", "name"])
@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("shape", SHAPES)
def test_new_fields_in_lists_and_maps(tmp_path: Path, shape: str, door: str, mapping: str) -> None:
    kind, value = SHAPES[shape]

    def rows(number: int, inner: pa.DataType, content: Any) -> pa.Table:
        column = pa.array([value(content)], kind(inner))
        return pa.table({"id": [number], "c": column})

    properties = {"delta.columnMapping.mode": mapping}
    table = txlog.write(tmp_path, rows(1, OLD, {"a": 1}), properties=properties)
    data = rows(2, NEW, {"b": "x", "a": 2})
    with pytest.raises(SchemaMismatchError) as caught:
        table.append(data)
    remedy = 'Pass schema_mode="merge" to add the new fields or types of c'
    assert caught.value.remedy.startswith(remedy)
    DOORS[door](table, data)
    found = txlog.Table(tmp_path).to_arrow().sort_by("id").to_pylist()
    assert found == [
        {"id": 1, "c": value({"a": 1, "b": None})},
        {"id": 2, "c": value({"a": 2, "b": "x"})},
    ]
    void = rows(3, pa.struct([("n", pa.null())]), {"n": None})
    with pytest.raises(SchemaMismatchError, match=r"new column c\..*n holds only nulls"):
        table.append(void, schema_mode="merge")


WIDENING = {"delta.enableTypeWidening": "true"}
WIDER = [
    (pa.int8(), pa.int64(), 2**40),
    (pa.float32(), pa.float64(), 0.1),
    (pa.list_(pa.int16()), pa.list_(pa.int32()), [2**20]),
    (pa.map_(pa.int16(), pa.float32()), pa.map_(pa.int32(), pa.float64()), [(2**20, 0.1)]),
    (pa.struct([("a", pa.int32())]), pa.struct([("a", pa.int64())]), {"a": 2**40}),
]


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize(("old", "new", "value"), WIDER, ids=[str(kind) for kind, _, _ in WIDER])
def test_types_become_wider_where_the_table_allows_it(
    tmp_path: Path, old: pa.DataType, new: pa.DataType, value: Any, door: str
) -> None:
    first = pa.table({"id": [1], "c": pa.array([None], old)})
    data = pa.table({"id": [2], "c": pa.array([value], new)})
    plain = txlog.write(tmp_path / "plain", first)
    with pytest.raises(SchemaMismatchError):
        DOORS[door](plain, data)
    table = txlog.write(tmp_path / "t", first, properties=WIDENING)
    with pytest.raises(SchemaMismatchError):
        table.append(data)
    DOORS[door](table, data)
    assert table.schema.field("c").type == new
    again = txlog.Table(table.uri)
    assert again.to_arrow().sort_by("id").to_pylist() == [
        {"id": 1, "c": None},
        {"id": 2, "c": value},
    ]
    assert "typeWidening" in (again.protocol.reader_features or [])
    table.append(first)  # Narrower data still fits.
    assert table.schema.field("c").type == new


def test_a_type_that_a_constraint_needs_stays(tmp_path: Path) -> None:
    rows = pa.table({"id": [1], "c": pa.array([1], pa.int32())})
    table = txlog.write(tmp_path, rows, properties=WIDENING)
    table.alter.add_constraint({"positive": "c > 0"})
    data = pa.table({"id": [2], "c": pa.array([5], pa.int64())})
    table.append(data, schema_mode="merge")
    assert table.schema.field("c").type == pa.int32()
    with pytest.raises(SchemaMismatchError, match="does not fit integer"):
        table.append(data.set_column(1, "c", pa.array([2**40])), schema_mode="merge")


def test_decimals_and_whole_numbers_stay_what_they_are(tmp_path: Path) -> None:
    rows = pa.table({"n": pa.array([1], pa.int32()), "m": pa.array([1], pa.decimal128(4, 2))})
    table = txlog.write(tmp_path, rows, properties=WIDENING)
    wide = pa.table({"n": [2.0], "m": pa.array([2], pa.decimal128(10, 4))})
    table.append(wide, schema_mode="merge")
    assert table.schema.types == [pa.int32(), pa.decimal128(10, 4)]


kinds = st.recursive(
    st.sampled_from([pa.int16(), pa.int32(), pa.int64(), pa.string()]),
    lambda inner: st.one_of(
        inner.map(pa.list_),
        inner.map(lambda kind: pa.map_(pa.string(), kind)),
        st.dictionaries(st.sampled_from("abc"), inner, min_size=1, max_size=3).map(
            lambda fields: pa.struct(list(fields.items()))
        ),
    ),
    max_leaves=5,
)


def values_of(kind: pa.DataType) -> st.SearchStrategy[Any]:
    if pa.types.is_struct(kind):
        return st.fixed_dictionaries({field.name: values_of(field.type) for field in kind})
    if pa.types.is_map(kind):
        return st.lists(st.tuples(st.just("k"), values_of(kind.item_type)), max_size=1)
    if pa.types.is_list(kind):
        return st.lists(values_of(kind.value_type), max_size=2)
    if pa.types.is_string(kind):
        return st.none() | st.just("x")
    return st.none() | st.sampled_from([1, 2 ** (kind.bit_width - 2)])


def within(value: Any, kind: pa.DataType, have: pa.DataType) -> Any:
    """Return a value with null in each field that it lacks: the oracle."""
    if value is None:
        return None
    if pa.types.is_struct(kind):
        own = {field.name: field.type for field in have}
        return {
            field.name: within(value[field.name], field.type, own[field.name])
            if field.name in own
            else None
            for field in kind
        }
    if pa.types.is_map(kind):
        return [(key, within(one, kind.item_type, have.item_type)) for key, one in value]
    if pa.types.is_list(kind):
        return [within(one, kind.value_type, have.value_type) for one in value]
    return value


@pytest.mark.slow
@given(data=st.data(), old=kinds, new=kinds, door=st.sampled_from(["append", "overwrite"]))
@settings(max_examples=examples(150), deadline=None)
def test_two_schemas_are_merged_at_every_depth(
    data: st.DataObject, old: pa.DataType, new: pa.DataType, door: str
) -> None:
    before = pa.table({"id": [1], "c": pa.array([data.draw(values_of(old))], old)})
    after = pa.table({"id": [2], "c": pa.array([data.draw(values_of(new))], new)})
    with TemporaryDirectory() as folder:
        table = txlog.write(folder, before, properties=WIDENING)
        try:
            merged_schema(from_arrow(before.schema), from_arrow(after.schema), fixed=())
        except SchemaMismatchError:
            with pytest.raises(SchemaMismatchError):
                DOORS[door](table, after)
            return
        DOORS[door](table, after)
        kind = table.schema.field("c").type
        found = txlog.Table(folder).to_arrow().sort_by("id")["c"].to_pylist()
    parts = ((before, old), (after, new))
    assert found == [within(rows["c"][0].as_py(), kind, have) for rows, have in parts]


def test_fields_of_deltalake_are_columns(tmp_path: Path) -> None:
    fields = [
        deltalake.Field("a", deltalake.schema.PrimitiveType("long")),
        deltalake.Field("t", deltalake.schema.PrimitiveType("timestamp")),
    ]
    table = txlog.write(tmp_path / "t", pa.table({"x": [1]}))
    table.alter.add_columns(fields[0])
    table.alter.add_columns(fields[1:])
    table.alter.add_columns(deltalake.Schema([deltalake.Field("s", fields[0].type)]))
    expected = {"x": 1, "a": None, "t": None, "s": None}
    assert table.to_arrow().to_pylist() == [expected]
    assert table.schema.field("t").type == pa.timestamp("us", "UTC")
    properties = {"delta.feature.txlog.fragments": "supported"}
    other = txlog.write(tmp_path / "f", pa.table({"x": [1]}), properties=properties)
    other.alter.add_columns(fields)
    assert other.to_arrow().to_pylist() == [{"x": 1, "a": None, "t": None}]
