"""Changes of properties, constraints and columns, and how other engines read them."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import txlog
from tests.examples import examples
from tests.verb_calls import Built, run
from txlog import col
from txlog.base.errors import (
    CommitConflictError,
    InvalidInputError,
    SchemaMismatchError,
    UnsupportedFeatureError,
)
from txlog.commit.intent import Intent
from txlog.schema.edit import find_field, moved, with_field, with_new_field
from txlog.schema.types import ArrayType, MapType, PrimitiveType, StructField, StructType

SCHEMA = pa.schema(
    [
        ("x", pa.int32()),
        ("t", pa.string()),
        ("st", pa.struct([("a", pa.int32()), ("b", pa.string())])),
        ("l", pa.list_(pa.struct([("e", pa.int32())]))),
    ]
)
PLAIN = {"delta.enableDeletionVectors": "false"}


def rows(*xs: int | None) -> pa.Table:
    return pa.Table.from_pylist(
        [{"x": x, "t": str(x), "st": {"a": x, "b": "s"}, "l": [{"e": x}]} for x in xs], SCHEMA
    )


@pytest.fixture
def table(tmp_path: Path) -> txlog.Table:
    made = txlog.Table.create(tmp_path / "t", SCHEMA, properties=PLAIN)
    made.append(rows(1, 2, 3))
    made.append(rows(10, None))
    return made


def test_properties_are_set_and_unset(table: txlog.Table) -> None:
    table.alter.set_properties({"delta.appendOnly": "true", "owner": "me"})
    with pytest.raises(UnsupportedFeatureError, match="append-only"):
        table.delete("x = 1")
    assert deltalake.DeltaTable(table.uri).metadata().configuration["owner"] == "me"
    assert table.alter.set_properties({"owner": "me"}).version is None
    table.alter.unset_properties(["delta.appendOnly", "owner"])
    assert table.delete("x = 1").metrics["numDeletedRows"] == 1
    assert [entry["operation"] for entry in table.history(3)][1:] == [
        "UNSET TBLPROPERTIES",
        "SET TBLPROPERTIES",
    ]


def test_a_property_brings_its_feature(table: txlog.Table) -> None:
    assert table.protocol.min_writer_version == 2
    table.alter.set_properties({"delta.enableDeletionVectors": "true"})
    assert "deletionVectors" in (table.protocol.reader_features or ())
    assert {"appendOnly", "invariants"} <= set(table.protocol.writer_features or ())
    assert table.delete("x = 1").metrics["numDeletionVectorsAdded"] == 1
    assert txlog.Table(table.uri).count() == 4


@pytest.mark.parametrize(
    ("properties", "message"),
    [
        ({"delta.enableZebras": "1"}, "no such property"),
        ({"delta.appendOnly": "perhaps"}, "expected true or false"),
        ({"delta.constraints.x": "x > 0"}, "rows must be checked first"),
        ({"txlog.droppedColumns": "[]"}, "set this property themselves"),
    ],
)
def test_wrong_properties_are_refused(
    table: txlog.Table, properties: dict[str, str], message: str
) -> None:
    with pytest.raises((InvalidInputError, UnsupportedFeatureError), match=message):
        table.alter.set_properties(properties)
    assert txlog.Table(table.uri).version == 2


def test_a_missing_property_is_not_unset(table: txlog.Table) -> None:
    with pytest.raises(InvalidInputError, match="has no property owner"):
        table.alter.unset_properties("owner")
    assert table.alter.unset_properties("owner", if_exists=True).version is None


def test_constraints_hold_for_all_engines(table: txlog.Table) -> None:
    table.alter.add_constraint({"small": "x < 100 OR x IS NULL"})
    assert (table.protocol.min_reader_version, table.protocol.min_writer_version) == (1, 3)
    with pytest.raises(SchemaMismatchError, match="small"):
        table.append(rows(100))
    with pytest.raises(SchemaMismatchError, match="small"):
        table.update({"x": "x * 50"}, "x = 3")
    with pytest.raises(SchemaMismatchError, match="small"):
        table.upsert(rows(200), on="x")
    other = deltalake.DeltaTable(table.uri)
    with pytest.raises(Exception, match=r"failed validation check"):
        deltalake.write_deltalake(other, rows(500), mode="append")
    deltalake.write_deltalake(other, rows(50), mode="append")
    assert table.refresh().count() == 6
    table.alter.drop_constraint("small")
    table.append(rows(100))
    deltalake.write_deltalake(deltalake.DeltaTable(table.uri), rows(500), mode="append")
    assert table.refresh().count() == 8


def test_rows_that_are_there_are_checked(table: txlog.Table) -> None:
    with pytest.raises(SchemaMismatchError, match=r"2 rows .* for example"):
        table.alter.add_constraint({"small": "x < 10"})  # 10 is not, and null is unknown.
    assert txlog.Table(table.uri).version == 2
    table.delete("x IS NULL")
    table.alter.add_constraint({"small": col("x") <= 10, "text": "t <> ''"})
    assert table.properties["delta.constraints.small"] == "(`x` <= 10)"


def test_rows_that_come_meanwhile_are_checked_too(table: txlog.Table) -> None:
    table.delete("x IS NULL")
    seen = txlog.Table(table.uri)
    table.append(rows(1000))
    with pytest.raises(SchemaMismatchError, match="1 rows"):
        seen.alter.add_constraint({"small": "x < 100"})


def test_wrong_constraints_are_refused(table: txlog.Table) -> None:
    table.alter.add_constraint({"c": "x < 100 OR x IS NULL"})
    for constraints, message in [
        ({}, "no constraint is given"),
        ({"C": "t <> ''"}, "already has a constraint C"),
        ({"d": "y > 0"}, "no column"),
        ({"d": "x + 1"}, "a predicate was expected"),
        ({"d": None}, "expression was expected, not None.*'d'"),
        ({"d": []}, "expression was expected"),
        ({"d": "my_udf(x) > 0"}, "not supported|my_udf"),
    ]:
        with pytest.raises(InvalidInputError, match=message):
            table.alter.add_constraint(constraints)
    with pytest.raises(InvalidInputError, match="no constraint d"):
        table.alter.drop_constraint("d")
    assert table.alter.drop_constraint("d", if_exists=True).version is None


def test_name_and_description(table: txlog.Table) -> None:
    table.alter.set_description("flights of a year")
    table.alter.set_name("flights")
    found = deltalake.DeltaTable(table.uri).metadata()
    assert (found.name, found.description) == ("flights", "flights of a year")
    table.alter.set_description(None)
    assert table.metadata.description is None


def test_columns_without_values_need_no_feature(table: txlog.Table) -> None:
    table.alter.add_columns(pa.schema([("n", pa.float64()), ("m", pa.list_(pa.string()))]))
    table.alter.add_columns({"st.c": pa.int64(), "k": pa.date32()})
    table.alter.add_columns(pa.field("l.element.f", pa.bool_()))
    assert table.schema.names == ["x", "t", "st", "l", "n", "m", "k"]
    new = {"x": 7, "n": 1.5, "st": {"a": 1, "b": "z", "c": 9}, "l": [{"e": 1, "f": True}]}
    table.append(pa.Table.from_pylist([new], table.schema))
    (row,) = table.to_arrow(where="x = 7").to_pylist()
    assert (row["n"], row["st"]["c"], row["l"]) == (1.5, 9, [{"e": 1, "f": True}])
    (row,) = table.to_arrow(where="x = 1").to_pylist()
    assert (row["n"], row["st"], row["l"]) == (
        None,
        {"a": 1, "b": "s", "c": None},
        [{"e": 1, "f": None}],
    )
    theirs = deltalake.DeltaTable(table.uri).to_pyarrow_table().select(table.schema.names)
    assert sorted(map(repr, theirs.to_pylist())) == sorted(map(repr, table.to_arrow().to_pylist()))
    for columns, message in [
        ({"x": pa.int64()}, "already has a field x"),
        ({"t.z": pa.int64()}, "not a struct"),
        ({"q.z": pa.int64()}, "no column q"),
        ([pa.field("must", pa.int64(), False)], "must be nullable"),
    ]:
        with pytest.raises(InvalidInputError, match=message):
            table.alter.add_columns(columns)


def test_comments_and_metadata(table: txlog.Table) -> None:
    table.alter.set_column_metadata("st.a", {"comment": "inner", "unit": "m"})
    table.alter.set_column_metadata("X", {"comment": "outer"})
    fields = {field.name: field for field in deltalake.DeltaTable(table.uri).schema().fields}
    assert fields["x"].metadata["comment"] == "outer"
    inner = {field.name: field for field in fields["st"].type.fields}
    assert inner["a"].metadata == {"comment": "inner", "unit": "m"}
    table.alter.set_column_metadata("st.a", {"unit": None})
    with pytest.raises(InvalidInputError, match="Delta itself uses this name"):
        table.alter.set_column_metadata("x", {"delta.invariants": "x"})
    with pytest.raises(InvalidInputError, match="no column z"):
        table.alter.set_column_metadata("z", {"comment": "?"})


def test_not_null(table: txlog.Table) -> None:
    with pytest.raises(SchemaMismatchError, match="1 rows"):
        table.alter.set_nullable("x", False)
    table.delete("x IS NULL")
    table.alter.set_nullable("x", False)
    with pytest.raises(SchemaMismatchError, match="must not be null"):
        table.append(rows(None))
    table.alter.set_nullable("x")
    table.append(rows(None))


def test_nested_not_null(tmp_path: Path) -> None:
    inner = pa.struct([("v", pa.int64())])
    data = pa.table(
        {
            "st": [{"b": 1, "q": {"c": 1}}, None, {"b": 2, "q": None}],
            "l": [[{"x": 1}], [], None],
            "m": pa.array([[("k", {"v": 1})], [], None], pa.map_(pa.string(), inner)),
        }
    )
    table = txlog.write(tmp_path / "t", data)
    for column in ("st.b", "st.q.c", "l.element.x", "m.value.v"):
        table.alter.set_nullable(column, False)
    odd = {
        "st.b": {"st": {"b": None, "q": None}},
        "st.q.c": {"st": {"b": 1, "q": {"c": None}}},
        "l.element.x": {"l": [{"x": None}]},
        "m.value.v": {"m": [("k", {"v": None})]},
    }
    for column, row in odd.items():
        with pytest.raises(SchemaMismatchError, match=f"{column} must not be null"):
            table.append(pa.Table.from_pylist([row], data.schema))
    for column, row in odd.items():
        other = txlog.write(tmp_path / column, pa.Table.from_pylist([row], data.schema))
        with pytest.raises(SchemaMismatchError, match=r"rows|must not be null"):
            other.alter.set_nullable(column, False)
        assert other.refresh().version == 0
    assert table.to_arrow().to_pylist() == data.to_pylist()


def test_defaults(tmp_path: Path) -> None:
    table = txlog.write(tmp_path / "d", pa.table({"x": [1], "t": ["a"], "st": [{"b": 1}]}))
    table.alter.set_default("t", "'none'")
    assert "allowColumnDefaults" in (table.protocol.writer_features or ())
    table.alter.set_default("x", "1 + 4")
    table.append(pa.table({"x": [2]}))
    table.append(pa.table({"t": ["b"]}))
    table.append(pa.table({"x": pa.array([None], pa.int64()), "t": ["c"]}))
    merge = table.merge(pa.table({"t": ["d"]}), "source.t = target.t")
    merge.when_not_matched_insert({"t": "source.t"}).execute()
    found = [(row["x"], row["t"]) for row in table.to_arrow().to_pylist()]
    assert sorted(found, key=str) == [(1, "a"), (2, "none"), (5, "b"), (5, "d"), (None, "c")]
    table.alter.drop_default("t")
    table.append(pa.table({"x": [9]}))
    assert table.to_arrow(where="x = 9")["t"].to_pylist() == [None]
    for column, default, says in (
        ("x", "'text'", "cannot be evaluated as long"),
        ("x", "y", "cannot be evaluated"),
        ("st.b", "1", "nested"),
        ("z", "1", "no column z"),
    ):
        with pytest.raises(InvalidInputError, match=says):
            table.alter.set_default(column, default)
    schema = pa.schema([("x", pa.int64()), ("y", pa.int64())])
    identity = txlog.Table.create(tmp_path / "i", schema, identity="x")
    with pytest.raises(InvalidInputError, match="are generated"):
        identity.alter.set_default("x", "1")


def test_invariants_of_others(tmp_path: Path) -> None:
    text = '{"expression":{"expression":"st.b > 3"}}'
    long = PrimitiveType("long")
    inner = StructType((StructField("b", long, metadata={"delta.invariants": text}),))
    schema = StructType((StructField("st", inner), StructField("x", long)))
    table = txlog.Table.create(tmp_path / "t", schema)
    loose = pa.schema([("st", pa.struct([("b", pa.int64())]))])
    table.append(pa.table({"st": [{"b": 4}]}))
    for value in (3, None):
        with pytest.raises(
            SchemaMismatchError, match=r"1 rows break the constraint st\.b .*first has st"
        ):
            table.append(pa.table({"st": [{"b": value}]}, loose))
    assert table.count() == 1


def test_columns_move(table: txlog.Table) -> None:
    before = table.to_arrow().to_pylist()
    table.alter.move_column("t", first=True)
    table.alter.move_column("x", after="st")
    table.alter.move_column("st.a")
    assert table.schema.names == ["t", "st", "x", "l"]
    assert [field.name for field in table.schema.field("st").type] == ["b", "a"]
    assert (
        sorted(map(repr, (dict(sorted(row.items())) for row in table.to_arrow().to_pylist()))) != []
    )
    found = table.to_arrow(["x", "t", "l"]).to_pylist()
    assert found == [{name: row[name] for name in ("x", "t", "l")} for row in before]
    with pytest.raises(InvalidInputError, match="no column q"):
        table.alter.move_column("x", after="q")
    with pytest.raises(InvalidInputError, match="are both given"):
        table.alter.move_column("x", after="t", first=True)


def test_types_are_widened(table: txlog.Table) -> None:
    table.alter.widen_type("x", pa.int64())
    table.alter.widen_type("st.a", pa.int64())
    table.append(
        pa.Table.from_pylist([{"x": 2**40, "t": "big", "st": {"a": 2**41, "b": "s"}}], table.schema)
    )
    again = txlog.Table(table.uri)
    found = again.to_arrow(["x", "st"]).to_pylist()
    assert {row["x"] for row in found} == {1, 2, 3, 10, None, 2**40}
    assert max(row["st"]["a"] or 0 for row in found) == 2**41
    assert again.to_arrow(where="x > 9")["x"].to_pylist() == [10, 2**40]
    assert again.take([0], columns=["x"])["x"].to_pylist() == [1]
    table.update({"x": "x + 1"}, "x = 10")
    assert table.optimize.compact().version is not None
    assert sorted(table.to_arrow(where="x > 9")["x"].to_pylist()) == [11, 2**40]
    assert "typeWidening" in (table.protocol.reader_features or ())
    for column, kind, message in [
        ("x", pa.int32(), "values could be lost"),
        ("t", pa.int64(), "values could be lost"),
        ("q", pa.int64(), "no column q"),
    ]:
        with pytest.raises(InvalidInputError, match=message):
            table.alter.widen_type(column, kind)
    table.alter.add_constraint({"c": "st.a IS NULL OR st.a > 0"})
    with pytest.raises(InvalidInputError, match="constraint c needs it"):
        table.alter.widen_type("st.a", pa.decimal128(25, 0))


CHANGES: dict[str, Callable[[txlog.Table], Any]] = {
    "properties": lambda table: table.alter.set_properties({"a": "1"}),
    "constraint": lambda table: table.alter.add_constraint({"c": "t <> 'zz'"}),
    "columns": lambda table: table.alter.add_columns({"new": pa.int64()}),
    "comment": lambda table: table.alter.set_column_metadata("x", {"comment": "c"}),
    "type": lambda table: table.alter.widen_type("x", pa.int64()),
    "place": lambda table: table.alter.move_column("x"),
    "description": lambda table: table.alter.set_description("d"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_appends_that_come_meanwhile_do_not_matter(table: txlog.Table, change: str) -> None:
    seen = txlog.Table(table.uri)
    table.append(rows(5))
    assert CHANGES[change](seen).version == 4
    assert txlog.Table(table.uri).count() == 6


@pytest.mark.parametrize("change", CHANGES)
def test_another_change_of_metadata_is_a_conflict_or_is_kept(
    table: txlog.Table, change: str
) -> None:
    seen = txlog.Table(table.uri)
    table.alter.set_properties({"b": "2"})
    try:
        CHANGES[change](seen)
    except CommitConflictError:
        assert txlog.Table(table.uri).version == 3
    assert txlog.Table(table.uri).properties["b"] == "2"


def test_changes_are_done_once(table: txlog.Table) -> None:
    assert table.alter.set_properties({"a": "1"}, txn=("app", 1)).version == 3
    assert table.alter.set_properties({"a": "2"}, txn=("app", 1)).skipped


KIND = st.recursive(
    st.sampled_from([PrimitiveType("integer"), PrimitiveType("string")]),
    lambda inner: st.one_of(
        inner.map(ArrayType),
        st.tuples(inner, inner).map(lambda two: MapType(*two)),
        st.lists(inner, min_size=1, max_size=3).map(
            lambda kinds: StructType(
                tuple(StructField(f"f{n}", kind) for n, kind in enumerate(kinds))
            )
        ),
    ),
    max_leaves=8,
)


def paths_of(kind: Any, above: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    match kind:
        case StructType(fields):
            return [
                path
                for field in fields
                for path in [(*above, field.name), *paths_of(field.type, (*above, field.name))]
            ]
        case ArrayType(element):
            return paths_of(element, (*above, "element"))
        case MapType(key, value):
            return paths_of(key, (*above, "key")) + paths_of(value, (*above, "value"))
    return []


@settings(max_examples=examples(60), deadline=None)
@given(kinds=st.lists(KIND, min_size=1, max_size=3), data=st.data())
def test_one_field_changes_and_no_other(kinds: list[Any], data: st.DataObject) -> None:
    schema = StructType(tuple(StructField(f"c{n}", kind) for n, kind in enumerate(kinds)))
    path = data.draw(st.sampled_from(paths_of(schema)))
    exact, field = find_field(
        schema, tuple(part.upper() if part[0] in "cf" else part for part in path)
    )
    assert (exact, field.name) == (path, path[-1])
    marked = with_field(schema, path, lambda one: StructField(one.name, one.type, False))
    assert not find_field(marked, path)[1].nullable
    assert with_field(marked, path, lambda _: field) == schema
    ends = moved(schema, path, "last")
    assert sorted(paths_of(ends)) == sorted(paths_of(schema))
    if isinstance(field.type, StructType):
        wider = with_new_field(schema, path, StructField("new", PrimitiveType("long")))
        assert set(paths_of(wider)) == {*paths_of(schema), (*path, "new")}


def test_fields_that_a_struct_lacks_are_added_as_deltalake_adds_them(tmp_path: Path) -> None:
    inner = pa.struct([("b", pa.int64()), ("deep", pa.struct([("c", pa.string())]))])
    rows = pa.table({"st": pa.array([{"b": 1, "deep": {"c": "x"}}], inner)})
    table, theirs = (txlog.write(tmp_path / name, rows) for name in ("ours", "theirs"))
    more = pa.struct(
        [("deep", pa.struct([("c", pa.string()), ("d", pa.int32())])), ("e", pa.date32())]
    )
    table.alter.add_columns(pa.schema([("st", more)]))
    added = deltalake.Schema.from_arrow(pa.schema([("st", more)])).fields
    opened = deltalake.DeltaTable(theirs.uri)
    opened.alter.add_columns(added)
    assert table.schema == theirs.refresh().schema
    assert table.to_arrow()["st"].to_pylist() == [
        {"b": 1, "deep": {"c": "x", "d": None}, "e": None}
    ]
    for wrong in (more, pa.struct([("b", pa.string())]), pa.int64()):
        with pytest.raises(InvalidInputError, match="already"):
            table.alter.add_columns(pa.schema([("st", wrong)]))


def test_a_commit_notes_fields_of_ones_own(table: txlog.Table) -> None:
    table.append(rows(4), user_metadata={"job": "nightly", "run id": "7"})
    (entry,) = table.history(1)
    assert (entry["job"], entry["run id"], entry.get("userMetadata")) == ("nightly", "7", None)
    theirs = deltalake.DeltaTable(table.uri).history(1)[0]
    assert (theirs["job"], theirs["run id"]) == ("nightly", "7")
    with table.transaction(user_metadata={"job": "two"}) as tx:
        tx.delete("x = 4")
        tx.append(rows(5))
    assert table.history(1)[0]["job"] == "two"
    for name in ("operation", "readVersion", "read_version", "txlogCrc32"):
        with pytest.raises(InvalidInputError, match="txlog itself sets"):
            table.append(rows(4), user_metadata={name: "x"})


def test_a_commit_notes_values_of_json_and_who_made_it(table: txlog.Table) -> None:
    noted = {"attempt": 2, "ok": True, "none": None, "nested": {"items": [1, {"name": "x"}]}}
    who = {"userId": "7", "userName": "Ada", "userMetadata": "why"}
    parameters = {"mode": "not this one", "mine": {"a": 1}}
    table.append(rows(4), user_metadata={**noted, **who, "operationParameters": parameters})
    for entry in (table.history(1)[0], deltalake.DeltaTable(table.uri).history(1)[0]):
        assert {name: entry[name] for name in (*noted, *who)} == {**noted, **who}
        assert entry["operationParameters"]["mode"] == "Append"
        assert entry["operationParameters"]["mine"] == '{"a":1}'
    odd: Any
    for odd, reason in (
        ({"score": math.nan}, "JSON"),
        ({"when": object()}, "JSON"),
        ({"keys": {1: "x"}}, "JSON"),
        ({"userName": 7}, "userName must be text, not int"),
        ({"operationParameters": "text"}, "txlog itself sets the field operationParameters"),
        ({1: "x"}, "a key of type int"),
        ([("job", "x")], "not list"),
    ):
        with pytest.raises(InvalidInputError, match=reason):
            table.append(rows(4), user_metadata=odd)
    assert txlog.Table(table.uri).version == table.version


def test_the_schema_in_arrow_has_comments_and_makes_the_same_table(tmp_path: Path) -> None:
    inner = pa.field("a", pa.int32(), metadata={"comment": "inner", "unit": "m"})
    schema = pa.schema(
        [
            pa.field("x", pa.int64(), metadata={"comment": "an x"}),
            pa.field("s", pa.list_(pa.field("element", pa.struct([inner])))),
            pa.field("m", pa.map_(pa.string(), pa.struct([inner]))),
            pa.field("d", pa.int64()),
        ]
    )
    table = txlog.Table.create(tmp_path / "t", schema, generated={"d": "x + 1"})
    rule = {"delta.generationExpression": "x + 1"}  # Nothing else of Delta's own.
    schema = schema.set(3, schema.field("d").with_metadata(rule))
    assert table.schema.equals(schema, check_metadata=True)
    table.alter.set_column_metadata("m.value.a", {"comment": "other"})
    assert table.schema.field("m").type.item_type.field("a").metadata[b"comment"] == b"other"
    again = txlog.Table.create(tmp_path / "u", table.schema)
    assert again.metadata.schema_string == table.metadata.schema_string
    assert table.to_arrow().schema == table.schema


def test_names_of_constraints_differ_in_more_than_case(table: txlog.Table) -> None:
    table.delete("x IS NULL")
    with pytest.raises(InvalidInputError, match="given twice, in upper and lower case"):
        table.alter.add_constraint({"c": "x > 0", "C": "x > -5"})
    table.alter.add_constraint({"c": "x > 0"})
    with pytest.raises(InvalidInputError, match="already has a constraint C"):
        table.alter.add_constraint({"C": "x > -5"})
    table.alter.drop_constraint("C")
    assert not [name for name in table.properties if "constraints" in name]
    twice = {"delta.constraints.c": "x > 0", "delta.constraints.C": "x > -5"}
    with pytest.raises(InvalidInputError, match="has this name in other case"):
        txlog.Table.create(f"{table.uri}-2", pa.schema([("x", pa.int64())]), properties=twice)


def test_of_constraints_that_differ_in_case_one_is_dropped(tmp_path: Path) -> None:
    first = {"delta.constraints.ab": "x > 0"}
    table = txlog.write(tmp_path / "t", pa.table({"x": [1]}), properties=first)
    metadata = table.snapshot.metadata
    both = {**metadata.configuration, "delta.constraints.AB": "x > -5"}
    changed = metadata.model_copy(update={"configuration": both})
    intent = Intent("OTHER", 0, "metadata", metadata=changed)
    run(Built(lambda _: intent), table._context, table.snapshot)  # As others may do.
    table.refresh()
    with pytest.raises(InvalidInputError, match="ab, AB differ only in case"):
        table.alter.drop_constraint("Ab")
    table.alter.drop_constraint("ab")
    assert "delta.constraints.AB" in table.properties
    table.alter.drop_constraint("Ab")
    assert not [name for name in table.properties if "constraints" in name]


def test_an_unknown_column_to_move_after_is_the_argument_after(tmp_path: Path) -> None:
    table = txlog.write(tmp_path / "t", pa.table({"a": [1], "b": [2]}))
    for after in ("zz", "a"):
        with pytest.raises(InvalidInputError) as caught:
            table.alter.move_column("a", after=after)
        assert (caught.value.argument, caught.value.field) == ("after", after)
