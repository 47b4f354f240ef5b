"""Structs of a merge or update with fewer, more, or reordered fields, beside a plain rule."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import txlog
from tests.examples import examples
from txlog.base.errors import SchemaMismatchError, TxlogError
from txlog.schema.types import VOID, PrimitiveType, StructField, StructType

Kind = Any
"""`"int"`, `("list", kind)`, `("map", kind)`, or `("struct", {name: kind})`."""

NAMES = ("a", "b", "c", "d")


def kinds() -> st.SearchStrategy[Kind]:
    def inside(inner: st.SearchStrategy[Kind]) -> st.SearchStrategy[Kind]:
        fields = st.dictionaries(st.sampled_from(NAMES[:3]), inner, min_size=1, max_size=3)
        return st.one_of(
            fields.map(lambda found: ("struct", found)),
            st.tuples(st.sampled_from(["list", "map"]), inner),
        )

    return st.recursive(st.just("int"), inside, max_leaves=6)


@st.composite
def changed(draw: st.DrawFn, kind: Kind, lacks: bool, adds: bool) -> Kind:
    """A kind whose structs have their fields in another order, and may lack some or have more."""
    if kind == "int":
        return kind
    shape, inner = kind
    if shape != "struct":
        return shape, draw(changed(inner, lacks, adds))
    names = draw(st.permutations(list(inner)))
    if lacks and draw(st.booleans()):
        names = names[: draw(st.integers(1, len(names)))]
    found = {name: draw(changed(inner[name], lacks, adds)) for name in names}
    if adds and draw(st.booleans()):
        found["new"] = "int"
    return shape, found


def as_arrow(kind: Kind) -> pa.DataType:
    if kind == "int":
        return pa.int64()
    shape, inner = kind
    if shape == "list":
        return pa.list_(as_arrow(inner))
    if shape == "map":
        return pa.map_(pa.int64(), as_arrow(inner))
    return pa.struct([(name, as_arrow(one)) for name, one in inner.items()])


def values(kind: Kind) -> st.SearchStrategy[Any]:
    if kind == "int":
        return st.none() | st.integers(0, 9)
    shape, inner = kind
    if shape == "list":
        return st.none() | st.lists(values(inner), max_size=2)
    if shape == "map":
        return st.none() | st.lists(st.tuples(st.integers(0, 0), values(inner)), max_size=1)
    return st.none() | st.fixed_dictionaries({name: values(one) for name, one in inner.items()})


def together(ours: Kind, theirs: Kind) -> Kind:
    """The kind of a column after the source's new fields were added to it."""
    if ours == "int":
        return ours
    shape, inner = ours
    if shape != "struct":
        return shape, together(inner, theirs[1])
    both = {
        name: together(one, theirs[1][name]) if name in theirs[1] else one
        for name, one in inner.items()
    }
    return shape, both | {name: one for name, one in theirs[1].items() if name not in inner}


def lacks_fields(have: Kind, want: Kind) -> bool:
    if have == "int":
        return False
    if have[0] != "struct":
        return lacks_fields(have[1], want[1])
    return any(
        name not in have[1] or lacks_fields(have[1][name], one) for name, one in want[1].items()
    )


def expected(new: Any, have: Kind, old: Any, want: Kind) -> Any:
    """The value of a column after an update from `old`, whose structs keep what `new` lacks."""
    if new is None or have == "int":
        return new
    if have[0] == "list":
        return [expected(one, have[1], None, want[1]) for one in new]
    if have[0] == "map":
        return [(key, expected(one, have[1], None, want[1])) for key, one in new]
    return {
        name: expected(new[name], have[1][name], None if old is None else old.get(name), one)
        if name in have[1]
        else (None if old is None else old.get(name))
        for name, one in want[1].items()
    }


def wider(value: Any, kind: Kind) -> Any:
    """A value that does not change, with null in the fields that are new."""
    if value is None or kind == "int":
        return value
    if kind[0] == "list":
        return [wider(one, kind[1]) for one in value]
    if kind[0] == "map":
        return [(key, wider(one, kind[1])) for key, one in value]
    return {name: wider(value.get(name), one) for name, one in kind[1].items()}


def table_of(rows: dict[int, Any], kind: Kind) -> pa.Table:
    schema = pa.schema([("id", pa.int64()), ("v", as_arrow(kind))])
    return pa.Table.from_pylist([{"id": key, "v": rows[key]} for key in sorted(rows)], schema)


Merge = Callable[[Any, pa.Table, Any], Any]


def of_all(table: Any, source: pa.Table, mode: Any) -> Any:
    merger = table.merge(source, "target.id = source.id", schema_mode=mode)
    return merger.when_matched_update_all().when_not_matched_insert_all().execute()


def of_one_column(table: Any, source: pa.Table, mode: Any) -> Any:
    merger = table.merge(source, "target.id = source.id", schema_mode=mode)
    merger = merger.when_matched_update({"v": "source.v"})
    return merger.when_not_matched_insert({"id": "source.id", "v": "source.v"}).execute()


def by_key(table: Any, source: pa.Table, mode: Any) -> Any:
    return table.upsert(source, "id", schema_mode=mode)


@pytest.mark.slow
@settings(max_examples=examples(300), deadline=None)
@given(
    data=st.data(),
    merge=st.sampled_from([of_all, of_one_column, by_key]),
    mode=st.sampled_from([None, "merge"]),
    in_transaction=st.booleans(),
)
def test_a_struct_keeps_what_the_source_lacks_or_is_refused(
    tmp_path_factory: pytest.TempPathFactory,
    data: st.DataObject,
    merge: Merge,
    mode: Any,
    in_transaction: bool,
) -> None:
    inner = data.draw(st.dictionaries(st.sampled_from(NAMES), kinds(), min_size=1, max_size=3))
    kind = "struct", inner
    theirs = data.draw(changed(kind, lacks=True, adds=mode == "merge"))
    old = data.draw(st.fixed_dictionaries({key: values(kind) for key in (1, 2, 3)}))
    new = data.draw(st.fixed_dictionaries({key: values(theirs) for key in (2, 3, 4)}))
    table = txlog.write(tmp_path_factory.mktemp("merge"), table_of(old, kind))
    final = together(kind, theirs)

    def run() -> None:
        if in_transaction:
            with table.transaction() as change:
                merge(change, table_of(new, theirs), mode)
        else:
            merge(table, table_of(new, theirs), mode)

    if merge is not by_key and mode is None and lacks_fields(theirs, final):
        with pytest.raises(SchemaMismatchError, match=r"so it does not say .* Give these fields"):
            run()
        assert txlog.Table(table.uri).version == 0
        return
    run()
    rows = {key: wider(one, final) for key, one in old.items()}
    rows |= {key: expected(one, theirs, old.get(key), final) for key, one in new.items()}
    found = txlog.Table(table.uri).to_arrow().sort_by("id")
    assert found.to_pylist() == table_of(rows, final).to_pylist()


KIND = pa.struct(
    [
        ("a", pa.int64()),
        ("b", pa.string()),
        ("in", pa.struct([("c", pa.int64()), ("d", pa.int64())])),
    ]
)
VALUE = {"a": 1, "b": "x", "in": {"c": 2, "d": 3}}


@pytest.mark.parametrize(
    ("updates", "named"),
    [
        ({"st": "named_struct('a', 5)"}, "st.b, st.in"),
        ({"st": "named_struct('b', 'y', 'a', 5, 'in', named_struct('d', 1))"}, "st.in.c"),
        ({"st.in": "named_struct('d', 1)"}, "st.in.c"),
        ({"items": "array(named_struct('b', 'y', 'in', named_struct('d', 1)))"}, "items.element.a"),
    ],
)
def test_an_update_with_fewer_fields_is_refused_by_name(
    tmp_path: Path, updates: dict[str, str], named: str
) -> None:
    schema = pa.schema([("st", KIND), ("items", pa.list_(KIND))])
    rows = pa.Table.from_pylist([{"st": VALUE, "items": [VALUE]}], schema)
    table = txlog.write(tmp_path / "t", rows)
    with pytest.raises(SchemaMismatchError, match=f"has no field {named}"):
        table.update(updates)
    with pytest.raises(TxlogError, match=f"has no field {named}"), table.transaction() as change:
        change.update(updates)
    assert txlog.Table(table.uri).version == 0
    table.update({"st": "named_struct('in', st.in, 'B', 'y', 'a', 5)"})
    assert table.to_arrow().column("st").to_pylist() == [{**VALUE, "a": 5, "b": "y"}]


def test_a_column_that_gets_new_fields_may_keep_its_value_or_change_in_one_field(
    tmp_path: Path,
) -> None:
    schema = pa.schema([("id", pa.int64()), ("st", KIND), ("items", pa.list_(KIND))])
    rows = pa.Table.from_pylist([{"id": 1, "st": VALUE, "items": [VALUE]}], schema)
    table = txlog.write(tmp_path / "t", rows)
    more = {"z": 8, "in": {"e": 9}}
    source = pa.Table.from_pylist([{"id": 1, "st": more, "items": [more]}])
    merger = table.merge(source, "target.id = source.id", schema_mode="merge")
    merger.when_matched_update({"st.a": "source.st.z"}).execute()
    wide = {**VALUE, "in": {"c": 2, "d": 3, "e": None}, "z": None}
    assert table.to_arrow().to_pylist() == [{"id": 1, "st": {**wide, "a": 8}, "items": [wide]}]


def test_a_field_without_a_type_has_no_value_that_could_be_lost(tmp_path: Path) -> None:
    kind = StructType((StructField("a", VOID), StructField("b", PrimitiveType("long"))))
    fields = (StructField("id", PrimitiveType("long")), StructField("s", kind))
    table = txlog.Table.create(tmp_path / "t", StructType(fields))
    table.append(pa.table({"id": [1, 2], "s": [{"b": 1}, {"b": 2}]}))
    table.update({"s": "named_struct('b', 3)"}, "id = 1")
    source = pa.table({"id": [2], "s": [{"b": 9}]})
    table.merge(source, "target.id = source.id").when_matched_update_all().execute()
    assert [row["s"]["b"] for row in table.to_arrow().sort_by("id").to_pylist()] == [3, 9]


@pytest.mark.parametrize("odd", [".a", "[0]", "a.b", "a b", "ü"])
def test_fields_are_found_by_any_name(tmp_path: Path, odd: str) -> None:
    kind = pa.struct([(odd, pa.int64()), ("b", pa.int64())])
    rows = pa.table({"id": [1], "s": pa.array([{odd: 1, "b": 2}], kind)})
    table = txlog.write(tmp_path / "t", rows, properties={"delta.columnMapping.mode": "name"})
    table.update({"s.b": "9"})
    assert table.to_arrow().to_pylist() == [{"id": 1, "s": {odd: 1, "b": 9}}]
    table.update({f"s.`{odd}`": "7"})
    assert table.to_arrow().to_pylist() == [{"id": 1, "s": {odd: 7, "b": 9}}]
