"""Values that Arrow stores below nulls, where no row has them, are neither checked nor written."""

import random
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import txlog
from tests.examples import examples
from txlog.schema.hidden import without_hidden
from txlog.schema.types import (
    ArrayType,
    DataType,
    DecimalType,
    MapType,
    PrimitiveType,
    StructField,
    StructType,
    type_name,
)

SIZED = "__CHAR_VARCHAR_TYPE_STRING"
# The types of columns with Arrow types of data, values that fit, and one that does not.
LEAVES: list[tuple[DataType, pa.DataType, list[Any], Any]] = [
    (PrimitiveType("byte"), pa.int64(), [1, -7], 2**40),
    (PrimitiveType("integer"), pa.float64(), [4.0, 5.0], 0.5),
    (DecimalType(4, 2), pa.decimal128(20, 6), [Decimal("1.500000")], Decimal("123456789")),
    (PrimitiveType("timestamp"), pa.timestamp("ns", "UTC"), [1_000], 1),
    (PrimitiveType("string"), pa.string(), ["a", "bc"], "a text that is too long"),
]


@st.composite
def kinds(draw: st.DrawFn, depth: int = 3) -> tuple[DataType, pa.DataType, Any, Any]:
    """Return a type, the Arrow type of data for it, and makers of values and of wrong values."""
    shape = draw(st.sampled_from(["leaf", "struct", "list", "map"] if depth else ["leaf"]))
    if shape == "leaf":
        kind, arrow, right, wrong = draw(st.sampled_from(LEAVES))
        return kind, arrow, lambda rng: rng.choice(right), lambda _: wrong
    if shape == "struct":
        inner = draw(st.lists(kinds(depth - 1), min_size=1, max_size=3))
        required = draw(st.lists(st.booleans(), min_size=len(inner), max_size=len(inner)))
        names = [f"f{at}" for at in range(len(inner))]
        fields = tuple(
            StructField(name, one[0], not need)
            for name, one, need in zip(names, inner, required, strict=True)
        )
        right = [
            one[2] if need else maybe(one[2]) for one, need in zip(inner, required, strict=True)
        ]
        wrong = [maybe(one[3]) for one in inner]
        return (
            StructType(fields),
            pa.struct([(name, one[1]) for name, one in zip(names, inner, strict=True)]),
            lambda rng: {name: make(rng) for name, make in zip(names, right, strict=True)},
            lambda rng: {name: make(rng) for name, make in zip(names, wrong, strict=True)},
        )
    kind, arrow, make, spoil = draw(kinds(depth - 1))
    if shape == "list":
        contains_null = draw(st.booleans())
        make = maybe(make) if contains_null else make
        maker = draw(st.sampled_from([pa.list_, pa.large_list, pa.list_view]))
        return (
            ArrayType(kind, contains_null),
            maker(arrow),
            lambda rng: [make(rng) for _ in range(rng.randrange(3))],
            lambda rng: [spoil(rng) for _ in range(rng.randrange(3))],
        )
    contains_null = draw(st.booleans())
    make = maybe(make) if contains_null else make
    return (
        MapType(PrimitiveType("byte"), kind, contains_null),
        pa.map_(pa.int64(), arrow),
        lambda rng: [(key, make(rng)) for key in range(rng.randrange(3))],
        lambda rng: [(2**40 + key, spoil(rng)) for key in range(rng.randrange(3))],
    )


def maybe(make: Any) -> Any:
    return lambda rng: None if rng.random() < 0.4 else make(rng)


def certain(make: Any, rng: random.Random) -> Any:
    """Return a value of a maker that is neither null nor empty."""
    while True:
        value = make(rng)
        if value is not None and value != []:
            return value


def soiled(values: list[Any], kind: Any, spoil: Any, rng: random.Random) -> pa.Array:
    """Return an array of values that has wrong ones below its nulls; `spoil` makes them."""
    mask = pa.array([one is None for one in values], pa.bool_())
    if pa.types.is_struct(kind):
        stored = [certain(spoil, rng) if one is None else one for one in values]
        children = [
            soiled([one[field.name] for one in stored], field.type, part(spoil, field.name), rng)
            for field in kind
        ]
        return pa.StructArray.from_arrays(children, fields=list(kind), mask=mask)
    is_map, is_large = pa.types.is_map(kind), pa.types.is_large_list(kind)
    if not is_map and not is_large and not pa.types.is_list(kind):
        return pa.array(values, kind)
    stored = [certain(spoil, rng) if one is None else one for one in values]
    offsets = pa.array(np.cumsum([0, *map(len, stored)]), pa.int64() if is_large else pa.int32())
    entries = [entry for one in stored for entry in one]
    if is_map:
        keys = pa.array([key for key, _ in entries], kind.key_type)
        items = [item for _, item in entries]
        inner = soiled(items, kind.item_type, part(part(spoil, 0), 1), rng)
        return pa.MapArray.from_arrays(offsets, keys, inner, type=kind, mask=mask)
    inner = soiled(entries, kind.value_type, part(spoil, 0), rng)
    maker: Any = pa.LargeListArray if is_large else pa.ListArray
    return maker.from_arrays(offsets, inner, type=kind, mask=mask)


def part(make: Any, place: Any) -> Any:
    """Return the maker of a part of another maker's values."""
    return lambda rng: certain(make, rng)[place]


def declared(kind: DataType) -> str:
    """Return a type in SQL in which texts have at most three characters."""
    match kind:
        case StructType(fields):
            return f"struct<{','.join(f'{field.name}:{declared(field.type)}' for field in fields)}>"
        case ArrayType(element):
            return f"array<{declared(element)}>"
        case MapType(key, value):
            return f"map<{declared(key)},{declared(value)}>"
    return "varchar(3)" if kind == PrimitiveType("string") else type_name(kind)


@pytest.mark.slow
@settings(max_examples=examples(150))
@given(kinds(), st.integers(0, 2**32), st.sampled_from(["plain", "sliced", "dictionary"]))
def test_values_below_nulls_are_neither_checked_nor_written(
    tmp_path_factory: pytest.TempPathFactory, column: Any, seed: int, how: str
) -> None:
    kind, arrow, make, spoil = column
    rng = random.Random(seed)
    values = [None if rng.random() < 0.4 else make(rng) for _ in range(6)]
    array = soiled([certain(spoil, rng), *values], arrow, spoil, rng).slice(1)
    if how == "plain":
        array = soiled(values, arrow, spoil, rng)
    elif how == "dictionary" and not pa.types.is_nested(arrow):
        entries = pa.array([certain(spoil, rng), *values], arrow)
        array = pa.DictionaryArray.from_arrays(pa.array(range(1, 7), pa.int32()), entries)
    array.validate(full=True)
    clean = pa.array(values, arrow)
    assert array.to_pylist() == clean.to_pylist()
    assert without_hidden(array).to_pylist() == clean.to_pylist()

    schema = StructType((StructField("c", kind, metadata={SIZED: declared(kind)}),))
    states = []
    for name, rows in (("clean", clean), ("soiled", array)):
        table = txlog.Table.create(tmp_path_factory.mktemp(name), schema)
        table.append(pa.table({"c": rows}))
        (stats,) = table.files()["stats"].to_pylist()
        states.append((table.to_arrow().to_pylist(), stats))
    assert states[0] == states[1]


def test_values_of_rows_are_checked_as_before(tmp_path: Path) -> None:
    schema = pa.schema(
        [("s", pa.struct([("n", pa.int8())])), ("m", pa.map_(pa.string(), pa.int8()))]
    )
    table = txlog.Table.create(tmp_path, schema)
    for wrong in (
        {"s": [{"n": 2**40}]},
        {"m": pa.array([[("k", 2**40)]], pa.map_(pa.string(), pa.int64()))},
    ):
        with pytest.raises(txlog.SchemaMismatchError, match="does not fit"):
            table.append(pa.table(wrong))
