"""Lengths of texts in columns that Spark declared as CHAR(n) or VARCHAR(n), at any depth."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import txlog
from tests.examples import examples
from txlog.actions.table import Metadata
from txlog.data_files.constraints import constraints_of
from txlog.schema.arrow import arrow_type
from txlog.schema.types import (
    SIZED_TEXT,
    STRING,
    ArrayType,
    DataType,
    DecimalType,
    MapType,
    PrimitiveType,
    StructField,
    StructType,
)

LONG = PrimitiveType("long")
# Names that mean something in SQL, and that contain what separates names from types.
NAMES = [
    "a",
    "select",
    "not",
    "struct",
    "char",
    "from",
    "a b",
    "x:y",
    "q,r",
    "m<n>",
    "`",
    "A1",
    "é",
]


@st.composite
def declared(draw: st.DrawFn, depth: int = 3) -> tuple[DataType, str, Any, Any]:
    """Return a type, its declaration, a value that fits, and one with a text that is too long.

    The last one is None if the type has no limit.
    """
    shape = draw(st.sampled_from(["leaf", "struct", "array", "map"] if depth else ["leaf"]))
    if shape == "leaf":
        size = draw(st.integers(1, 4))
        return draw(
            st.sampled_from(
                [
                    (STRING, f"char({size})", "é" * size, "x" * (size + 1)),
                    (STRING, f"varchar({size})", None, "x" * (size + 1)),
                    (STRING, "string", "any length", None),
                    (LONG, "bigint", 7, None),
                    (DecimalType(10, 2), "decimal(10,2)", None, None),
                ]
            )
        )
    if shape == "array":
        kind, text, right, wrong = draw(declared(depth - 1))
        found = None if wrong is None else [right, wrong]
        return ArrayType(kind), f"array<{text}>", [right, right], found
    if shape == "map":
        kind, text, right, wrong = draw(declared(depth - 1))
        size = draw(st.integers(2, 4))
        key, long_key = draw(st.sampled_from([("varchar", "k" * (size + 1)), ("string", None)]))
        wrongs = [[("k", wrong)]] if wrong is not None else []
        wrongs += [[("k", right), (long_key, right)]] if long_key else []
        return (
            MapType(STRING, kind),
            f"map<{f'varchar({size})' if key == 'varchar' else key},{text}>",
            [("k", right)],
            draw(st.sampled_from(wrongs)) if wrongs else None,
        )
    names = draw(st.lists(st.sampled_from(NAMES), min_size=1, max_size=3, unique=True))
    inner = [draw(declared(depth - 1)) for _ in names]
    quoted = draw(st.booleans())
    fields = [
        (f"`{name.replace('`', '``')}`" if quoted else name) + f":{one[1]}"
        for name, one in zip(names, inner, strict=True)
    ]
    right = {name: one[2] for name, one in zip(names, inner, strict=True)}
    wrongs = [
        {**right, name: one[3]}
        for name, one in zip(names, inner, strict=True)
        if one[3] is not None
    ]
    return (
        StructType(
            tuple(StructField(name, one[0]) for name, one in zip(names, inner, strict=True))
        ),
        f"struct<{','.join(fields)}>",
        right,
        draw(st.sampled_from(wrongs)) if wrongs else None,
    )


def column(kind: DataType, text: str) -> StructType:
    return StructType((StructField("c", kind, True, {SIZED_TEXT: text}),))


@pytest.mark.slow
@settings(max_examples=examples(200))
@given(declared())
def test_a_text_that_is_too_long_is_refused_wherever_it_is(
    tmp_path_factory: pytest.TempPathFactory, made: tuple[DataType, str, Any, Any]
) -> None:
    kind, text, right, wrong = made
    properties = {"delta.columnMapping.mode": "name"}
    table = txlog.Table.create(
        tmp_path_factory.mktemp("t"), column(kind, text), properties=properties
    )
    rows = pa.table({"c": pa.array([right, None], arrow_type(kind))})
    table.append(rows)
    if wrong is not None:
        with pytest.raises(txlog.SchemaMismatchError, match="break the constraint c"):
            table.append(pa.table({"c": pa.array([right, wrong], arrow_type(kind))}))
    assert table.to_arrow().to_pylist() == rows.to_pylist()


ONE = StructType((StructField("a", STRING), StructField("n", LONG)))


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (ONE, "struct<b:char(2)>"),
        (ONE, "struct<a:struct<a:char(2)>>"),
        (ONE, "struct<a:char(2),n:varchar(2)>"),
        (ONE, "struct<a:char(2)"),
        (ONE, "array<char(2)>"),
        (STRING, "varchar(x) char(2)"),
        (STRING, "char(2)>"),
        (STRING, "char()"),
        (LONG, "char(2)"),
        (ArrayType(STRING), "char(2)"),
        (MapType(STRING, STRING), "map<char(2)>"),
    ],
    ids=str,
)
def test_a_declaration_of_another_type_is_refused(kind: DataType, text: str) -> None:
    with pytest.raises(txlog.UnsupportedFeatureError, match="lengths of its texts are unknown"):
        constraints_of(Metadata(id="m"), column(kind, text))


def test_fields_that_are_newer_than_the_declaration_have_no_limit(tmp_path: Path) -> None:
    table = txlog.Table.create(tmp_path, column(ONE, "struct<a:char(1)>"))
    value = {"a": "x", "n": 1000, "new": "any length"}
    table.append(pa.table({"c": [value]}), schema_mode="merge")
    assert table.to_arrow().to_pylist() == [{"c": value}]
    with pytest.raises(txlog.SchemaMismatchError, match="break the constraint c"):
        table.append(pa.table({"c": [{**value, "a": "xy"}]}))


def test_no_verb_makes_a_declaration_differ_from_its_column(tmp_path: Path) -> None:
    properties = {"delta.columnMapping.mode": "name"}
    schema = column(ONE, "struct<a:char(1),n:bigint>")
    table = txlog.Table.create(tmp_path, schema, properties=properties)
    with pytest.raises(txlog.InvalidInputError, match="limits the length"):
        table.alter.rename_column("c.n", "other")
    with pytest.raises(txlog.InvalidInputError, match="limits the length"):
        table.alter.drop_columns("c.n")
    table.alter.rename_column("c", "d")
    with pytest.raises(txlog.SchemaMismatchError, match="break the constraint d"):
        table.append(pa.table({"d": [{"a": "xy", "n": 1}]}))
