"""Data that does not fit is refused before a file is written; other data is stored exactly."""

from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import deltalake
import orjson
import pyarrow as pa
import pytest

import txlog
from txlog.base.errors import InvalidInputError
from txlog.data_files.options import as_schema
from txlog.schema.types import ArrayType, PrimitiveType, StructField, StructType

LONG = PrimitiveType("long")
SCHEMA = pa.schema(
    [
        pa.field("id", pa.int32(), False),
        ("name", pa.string()),
        ("price", pa.decimal128(6, 2)),
        ("s", pa.struct([pa.field("a", pa.int64(), False), pa.field("b", pa.string())])),
    ]
)


@pytest.fixture
def table(tmp_path: Path) -> txlog.Table:
    return txlog.Table.create(tmp_path / "t", SCHEMA)


def nothing_written(table: txlog.Table) -> bool:
    files = [path for path in Path(table.uri).rglob("*") if path.is_file()]
    return [path.name for path in files] == ["00000000000000000000.json"]


def struct(*fields: tuple[str, pa.DataType], values: list[Any]) -> pa.Array:
    return pa.array(values, pa.struct(fields))


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"id": pa.array([1]), "other": ["x"]}, "other is not in the table"),
        ({"name": ["x"]}, "id is missing"),
        ({"id": ["1"]}, "id is string"),
        ({"id": pa.array([1.5])}, "id is double"),
        ({"id": pa.array([2**31])}, "id"),
        ({"id": pa.array([1, None])}, "must not be null"),
        ({"id": [1], "name": [1]}, "name is long"),
        ({"id": [1], "price": pa.array([Decimal("12345.00")])}, "price"),
        ({"id": [1], "price": pa.array([Decimal("1.001")])}, "price"),
        ({"id": [1], "price": [1.505]}, "price is double"),
        ({"id": [1], "s": ["x"]}, "s is string"),
        ({"id": [1], "s": [{"a": 1, "c": 1}]}, "s is"),
        ({"id": [1], "s": [{"a": "x"}]}, "s is"),
        ({"id": [1, 2], "s": [{"a": 1}, {"a": None}]}, r"s\.a must not be null"),
        ({"id": [1], "s": [{"b": "x"}]}, r"s\.a"),
        ({"id": [1], "ID": [2]}, "twice"),
    ],
)
def test_what_does_not_fit_is_refused(
    table: txlog.Table, data: dict[str, Any], message: str
) -> None:
    for act in (table.append, table.overwrite):
        with pytest.raises(txlog.SchemaMismatchError, match=message):
            act(pa.table(data))
    assert nothing_written(table)


def test_all_faults_are_named_at_once(table: txlog.Table) -> None:
    with pytest.raises(txlog.SchemaMismatchError) as caught:
        table.append(pa.table({"other": [1], "name": [1], "price": ["x"]}))
    for name in ("other", "name", "price", "id"):
        assert f"column {name}" in str(caught.value)
    assert caught.value.retry == "never"


def test_what_fits_without_loss_is_taken(table: txlog.Table) -> None:
    data = pa.table(
        {
            "S": struct(("B", pa.large_string()), ("A", pa.int8()), values=[{"B": "x", "A": 1}]),
            "price": pa.array([Decimal("1.5")], pa.decimal128(3, 1)),
            "NAME": pa.array(["n"]).dictionary_encode(),
            "id": pa.array([7], pa.int64()),
        }
    )
    table.append(data)
    table.append(pa.table({"id": pa.array([8], pa.uint8()), "name": pa.nulls(1)}))
    assert table.to_arrow().schema == SCHEMA
    assert table.to_arrow().to_pylist() == [
        {"id": 7, "name": "n", "price": Decimal("1.50"), "s": {"a": 1, "b": "x"}},
        {"id": 8, "name": None, "price": None, "s": None},
    ]


def test_a_null_struct_has_no_fields_to_be_checked(table: txlog.Table) -> None:
    table.append(pa.table({"id": [1], "s": struct(("a", pa.int64()), values=[None])}))
    assert table.to_arrow()["s"].to_pylist() == [None]


def test_slices_are_written_as_they_are(table: txlog.Table) -> None:
    kind = pa.struct([("b", pa.string()), ("a", pa.int64())])
    values = [{"b": str(x), "a": x} if x % 3 else None for x in range(10)]
    data = pa.table({"id": pa.array(range(10), pa.int32()), "s": pa.array(values, kind)})
    table.append(data.slice(4, 3))
    assert table.to_arrow(["id", "s"]).to_pylist() == [
        {"id": x, "s": values[x] and {"a": x, "b": str(x)}} for x in (4, 5, 6)
    ]


def test_merge_adds_columns_and_nested_fields(table: txlog.Table) -> None:
    table.append(pa.table({"id": pa.array([1], pa.int32()), "s": [{"a": 1, "b": "x"}]}))
    data = pa.table({"id": [2], "s": [{"a": 2, "c": [1.5]}], "new": pa.array([b"z"]), "id2": [1]})
    table.append(data, schema_mode="merge")
    assert table.schema.names == ["id", "name", "price", "s", "new", "id2"]
    assert table.schema.field("s").type.field(2).name == "c"
    assert not table.schema.field("id").nullable
    found = table.to_arrow(["id", "s", "new", "id2"]).to_pylist()
    assert found == [
        {"id": 1, "s": {"a": 1, "b": "x", "c": None}, "new": None, "id2": None},
        {"id": 2, "s": {"a": 2, "b": None, "c": [1.5]}, "new": b"z", "id2": 1},
    ]
    assert txlog.Table(table.uri, 1).schema == SCHEMA


def test_merge_does_not_change_types(table: txlog.Table) -> None:
    with pytest.raises(txlog.SchemaMismatchError, match="name is long"):
        table.append(pa.table({"id": [1], "name": [1]}), schema_mode="merge")
    assert nothing_written(table)


def test_overwrite_replaces_the_schema(table: txlog.Table) -> None:
    table.append(pa.table({"id": pa.array([1], pa.int32())}))
    data = pa.table({"id": ["text"], "z": [1.5]})
    table.overwrite(data, schema_mode="overwrite")
    assert table.to_arrow() == data
    assert txlog.Table(table.uri, 1).to_arrow()["id"].to_pylist() == [1]


def test_the_schema_goes_only_with_all_rows(table: txlog.Table) -> None:
    with pytest.raises(txlog.InvalidInputError, match="schema"):
        table.overwrite(pa.table({"z": [1]}), "z = 1", schema_mode="overwrite")
    mode: Any = "replace"
    with pytest.raises(txlog.InvalidInputError, match="schema_mode"):
        table.append(pa.table({"id": [1]}), schema_mode=mode)


def test_a_partition_column_cannot_be_dropped(tmp_path: Path) -> None:
    table = txlog.write(tmp_path, pa.table({"x": [1], "p": ["a"]}), partition_by="p")
    with pytest.raises(txlog.InvalidInputError, match="p"):
        table.overwrite(pa.table({"x": [1], "y": [2]}), schema_mode="overwrite")
    assert table.refresh().version == 0


def test_constraints_hold_for_every_row(tmp_path: Path) -> None:
    properties = {"delta.constraints.small": "x < 10", "delta.constraints.named": "n <> ''"}
    data = pa.table({"x": [1], "n": ["a"]})
    table = txlog.write(tmp_path, data, properties=properties)
    for bad in ({"x": [1, 11], "n": ["a", "b"]}, {"x": [1], "n": [""]}, {"x": [1], "n": [None]}):
        for act in (table.append, table.overwrite):
            with pytest.raises(txlog.SchemaMismatchError, match="constraint"):
                act(pa.table(bad, schema=data.schema))
    assert txlog.Table(tmp_path).version == 0
    assert len(list(tmp_path.glob("*.parquet"))) == 1
    table.delete("x = 1")
    table.append(pa.table({"x": [9], "n": ["z"]}))
    assert table.count() == 1


def test_a_constraint_that_cannot_be_evaluated_forbids_writing(tmp_path: Path) -> None:
    with pytest.raises(txlog.InvalidInputError, match="my_function"):
        txlog.write(
            tmp_path / "t",
            pa.table({"x": [1]}),
            properties={"delta.constraints.odd": "my_function(x) > 1"},
        )
    assert not txlog.Table.exists(tmp_path / "t")
    assert not list((tmp_path).rglob("*.parquet"))


def test_invariants_of_a_column_hold(tmp_path: Path) -> None:
    rule = orjson.dumps({"expression": {"expression": "x > 0"}}).decode()
    schema = StructType(
        (StructField("x", PrimitiveType("long"), True, {"delta.invariants": rule}),)
    )
    table = txlog.Table.create(tmp_path, schema)
    with pytest.raises(txlog.SchemaMismatchError, match="x > 0"):
        table.append(pa.table({"x": [0]}))
    table.append(pa.table({"x": [1]}))
    assert table.count() == 1


def test_append_only_means_append_only(tmp_path: Path) -> None:
    table = txlog.write(tmp_path, pa.table({"x": [1]}), properties={"delta.appendOnly": "true"})
    for act in (
        lambda: table.delete("x = 1"),
        lambda: table.delete(None),
        lambda: table.overwrite(table),
    ):
        with pytest.raises(txlog.UnsupportedFeatureError, match="append-only"):
            act()
    table.append(pa.table({"x": [2]}))
    assert table.count() == 2


def test_a_null_in_a_list_that_has_none_is_refused(tmp_path: Path) -> None:
    kind = ArrayType(PrimitiveType("long"), False)
    table = txlog.Table.create(tmp_path, StructType((StructField("a", kind),)))
    with pytest.raises(txlog.SchemaMismatchError):
        table.append(pa.table({"a": [[1, None]]}))
    table.append(pa.table({"a": [[1, 2]]}))
    assert table.to_arrow()["a"].to_pylist() == [[1, 2]]


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        (pa.schema([]), "at least one"),
        (pa.schema([("a", pa.int64()), ("A", pa.int64())]), "name"),
        (pa.schema([("", pa.int64())]), "column name"),
        (pa.schema([("t", pa.time64("us"))]), "time64"),
    ],
)
def test_odd_schemas_make_no_table(tmp_path: Path, schema: pa.Schema, message: str) -> None:
    with pytest.raises(txlog.InvalidInputError, match=message):
        txlog.Table.create(tmp_path / "t", schema)
    assert not (tmp_path / "t").exists()


@pytest.mark.parametrize(
    ("partition_by", "message"),
    [(["z"], "no such column"), (["a", "a"], "twice"), (["s"], "cannot"), (["a", "b", "s"], "s")],
)
def test_odd_partitioning_makes_no_table(
    tmp_path: Path, partition_by: list[str], message: str
) -> None:
    schema = pa.schema([("a", pa.int64()), ("b", pa.int64()), ("s", pa.list_(pa.int64()))])
    with pytest.raises(txlog.InvalidInputError, match=message):
        txlog.Table.create(tmp_path / "t", schema, partition_by)
    with pytest.raises(txlog.InvalidInputError, match=message):
        txlog.write(tmp_path / "t", schema.empty_table(), partition_by=partition_by)
    assert not (tmp_path / "t").exists()


def test_schemas_come_in_many_forms() -> None:
    expected = StructType((StructField("x", PrimitiveType("long")),))
    assert as_schema(expected) is expected
    assert as_schema(pa.schema([("x", pa.int64())])) == expected
    wrong: Any = {"x": "long"}
    with pytest.raises(txlog.InvalidInputError, match="schema"):
        as_schema(wrong)


@pytest.mark.parametrize("vectors", ["true", "false"])
def test_required_fields_below_nulls(tmp_path: Path, vectors: str) -> None:
    leaf = pa.field("r", pa.decimal128(5, 2), False)
    inner = pa.struct([leaf, pa.field("q", pa.struct([("z", pa.string())]), False)])
    schema = pa.schema([("x", pa.int64()), ("s", inner), ("l", pa.list_(inner))])
    value = {"r": Decimal("1.50"), "q": {"z": None}}
    rows = [
        {"x": 1, "s": None, "l": None},
        {"x": 2, "s": value, "l": [value, None]},
        {"x": 3, "s": None, "l": []},
    ]
    properties = {"delta.enableDeletionVectors": vectors}
    table = txlog.Table.create(tmp_path, schema, properties=properties)
    table.append(pa.Table.from_pylist(rows, schema=schema))
    table.append(pa.table({"x": [4]}))
    table.append(pa.Table.from_pylist(rows, schema=schema).slice(1))
    table.delete("x = 2")
    gone = {"s": None, "l": None}
    expected = [rows[0], rows[2], {"x": 4, **gone}, rows[2]]
    assert sorted(table.to_arrow().to_pylist(), key=lambda row: row["x"]) == sorted(
        expected, key=lambda row: row["x"]
    )
    assert table.to_arrow().schema.field("s").type.field("r").nullable is False
    bad = [{"x": 5, "l": [{"r": None, "q": {"z": "a"}}]}]
    loose = pa.struct([("r", pa.decimal128(5, 2)), ("q", pa.struct([("z", pa.string())]))])
    data = pa.Table.from_pylist(bad, pa.schema([("x", pa.int64()), ("l", pa.list_(loose))]))
    with pytest.raises(txlog.SchemaMismatchError, match="null"):
        table.append(data)


@pytest.mark.parametrize("kind", ["interval year to month", "interval month"])
def test_intervals_of_months_are_refused_before_a_file_is_made(tmp_path: Path, kind: str) -> None:
    schema = StructType((StructField("i", PrimitiveType(kind)), StructField("x", LONG)))
    table = txlog.Table.create(tmp_path, schema)
    with pytest.raises(txlog.UnsupportedFeatureError, match="Parquet"):
        table.append(pa.table({"x": [1]}))
    assert [path.name for path in tmp_path.iterdir()] == ["_delta_log"]


NESTED = pa.schema(
    [
        ("l", pa.list_(pa.int64())),
        ("s", pa.struct([("a", pa.int64()), ("t", pa.struct([("b", pa.string())]))])),
        ("m", pa.map_(pa.string(), pa.list_(pa.int64()))),
    ]
)


@pytest.mark.parametrize(
    "row",
    [
        {"l": [], "s": None, "m": None},
        {"l": [None, None], "s": None, "m": None},
        {"l": None, "s": {"a": None, "t": {"b": None}}, "m": None},
        {"l": None, "s": {"a": 1, "t": None}, "m": None},
        {"l": None, "s": None, "m": []},
        {"l": None, "s": None, "m": [("k", []), ("j", None)]},
    ],
)
@pytest.mark.parametrize("mode", [None, "merge"])
def test_nested_columns_of_nulls_take_the_types_of_the_table(
    tmp_path: Path, row: dict[str, Any], mode: Any
) -> None:
    table = txlog.Table.create(tmp_path, NESTED)
    columns = {name: pa.array([value]) for name, value in row.items() if name != "m"}
    kind = pa.map_(pa.string(), pa.list_(pa.null()) if row["m"] else pa.null())
    columns["m"] = pa.array([row["m"]], kind)
    table.append(pa.table(columns), schema_mode=mode)
    assert table.schema == NESTED
    assert table.to_arrow().to_pylist() == [row]


def test_a_new_column_of_nulls_has_no_type(tmp_path: Path) -> None:
    table = txlog.Table.create(tmp_path, NESTED)
    for values in ([None], [[]], [{"a": None}]):
        with pytest.raises(txlog.SchemaMismatchError, match="type is unknown") as caught:
            table.append(pa.table({"new": pa.array(values)}), schema_mode="merge")
        assert caught.value.field == "new"
        with pytest.raises(txlog.InvalidInputError, match="type is unknown"):
            table.overwrite(pa.table({"new": pa.array(values)}), schema_mode="overwrite")
    assert table.refresh().version == 0


def test_comments_and_other_metadata_of_fields_are_kept(tmp_path: Path) -> None:
    inner = pa.field("b", pa.int64(), metadata={"comment": "within"})
    schema = pa.schema(
        [
            pa.field("a", pa.int64(), metadata={"comment": "of a", "unit": "km"}),
            pa.field("s", pa.struct([inner])),
            pa.field("l", pa.list_(pa.struct([inner]))),
        ]
    )
    data = pa.Table.from_pylist([{"a": 1, "s": {"b": 1}, "l": [{"b": 1}]}], schema=schema)
    plain = pa.table({name: data[name] for name in ("a", "s", "l")})
    txlog.write(tmp_path / "made", data)
    table = txlog.Table.create(tmp_path / "t", schema)
    table.append(plain)  # Of equal types, but without metadata.
    table.append(data.append_column(pa.field("z", pa.int8(), metadata={"comment": "of z"}),
                                    pa.array([1], pa.int8())), schema_mode="merge")  # fmt: skip
    deltalake.write_deltalake(tmp_path / "theirs", data)
    theirs = orjson.loads(deltalake.DeltaTable(tmp_path / "theirs").schema().to_json())
    assert orjson.loads(txlog.Table(tmp_path / "made").metadata.schema_string) == theirs
    ours = orjson.loads(table.metadata.schema_string)["fields"]
    assert ours[:3] == theirs["fields"]
    assert ours[3]["metadata"] == {"comment": "of z"}
    assert table.to_arrow(["a", "s", "l"]).to_pylist() == data.to_pylist() * 2


def test_metadata_that_would_mean_something_to_delta_is_left_out(tmp_path: Path) -> None:
    odd = {
        "delta.invariants": "{}", "delta.columnMapping.id": "1", "CURRENT_DEFAULT": "1",
        "PARQUET:field_id": "3", "ARROW:extension:name": "mine", "comment": "kept",
    }  # fmt: skip
    data = pa.table({"a": [1]}, schema=pa.schema([pa.field("a", pa.int64(), metadata=odd)]))
    table = txlog.write(tmp_path, data)
    (field,) = orjson.loads(table.metadata.schema_string)["fields"]
    assert field["metadata"] == {"comment": "kept"}


@pytest.mark.parametrize(
    ("data", "remedy"),
    [
        ({"id": [1], "name": [1]}, "Cast name to the types of the table"),
        ({"name": ["x"]}, "Add id with a value in each row"),
        ({"id": [1], "ID": [2]}, r"Rename or drop one column of each name \(ID\)"),
        (
            {"id": [1], "new": [2]},
            r'Drop the new columns \(new\), or pass schema_mode="merge" to',
        ),
        ({"other": [1], "name": [1]}, r'"merge" to add them\. Cast name to .*\. Add id with'),
    ],
)
def test_each_fault_has_its_own_remedy(
    table: txlog.Table, data: dict[str, Any], remedy: str
) -> None:
    with pytest.raises(txlog.SchemaMismatchError, match=f"{remedy}") as caught:
        table.append(pa.table(data))
    assert ("merge" in str(caught.value)) == ("merge" in remedy)


@pytest.mark.parametrize("kind", [pa.null(), pa.month_day_nano_interval()], ids=str)
def test_a_type_that_no_table_has_is_one_of_an_argument(kind: pa.DataType, tmp_path: Path) -> None:
    inner = pa.struct([("x", kind)])
    rows = pa.table({"id": [1], "s": pa.nulls(1, inner)})
    table = txlog.write(tmp_path / "t", pa.table({"id": [1]}))
    calls: dict[str, Callable[[], Any]] = {
        "data": lambda: txlog.write(tmp_path / "n", rows),
        "schema": lambda: txlog.Table.create(tmp_path / "n", rows.schema),
        "columns": lambda: table.alter.add_columns(rows.schema.remove(0)),
    }
    for argument, call in calls.items():
        with pytest.raises(InvalidInputError) as caught:
            call()
        assert (caught.value.argument, caught.value.field) == (argument, "s.x")
