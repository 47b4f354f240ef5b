"""Which values Spark compares and stores without a cast. Other tests compare its rows with ours."""

import datetime as dt
from decimal import Decimal
from itertools import permutations
from typing import Any

import pytest

from txlog.expressions.tree import Cast, Column, Expression, Literal
from txlog.schema.timestamps import Nanos
from txlog.schema.types import STRING, ArrayType, DataType, DecimalType, PrimitiveType
from txlog.spark_ext.same_meaning import is_compared_alike, is_stored_alike

LONG, DOUBLE, FLOAT = map(PrimitiveType, ("long", "double", "float"))
MONEY, FINE = DecimalType(9, 2), DecimalType(38, 20)
MOMENT = dt.datetime(2020, 1, 1)


def column(kind: DataType | str) -> Column:
    return Column(("c",), PrimitiveType(kind) if isinstance(kind, str) else kind)


@pytest.mark.parametrize(
    ("operands", "alike"),
    [
        ([column("byte"), column("long")], True),
        ([column("byte"), column(FINE)], True),
        ([column("long"), column(FINE)], False),  # Together they need more than 38 digits.
        ([column(FINE), column(FINE)], True),
        ([column("long"), column("double")], False),
        ([column("float"), column("float")], True),
        ([column("float"), column("double")], False),
        ([column(ArrayType(STRING)), column(ArrayType(STRING))], True),
        ([column("string"), column("binary")], False),
        ([column("long"), Literal(5)], True),
        ([column("long"), Literal(True)], False),
        ([column("long"), Literal("5")], False),
        ([column("long"), Literal(5.0)], False),
        ([column(MONEY), Literal(Decimal("1.5"))], True),
        ([column(MONEY), Literal(Decimal("1e-37"))], False),
        ([column(FINE), Literal(2**31)], False),  # Spark reads it as a long, of 20 digits.
        ([column(FINE), Literal(5)], True),
        ([column("double"), Literal(5)], True),
        ([column("double"), Literal(2**53)], False),
        ([column("double"), Literal(0.5, FLOAT)], False),
        ([column("double"), Literal(0.5), Literal(3), Literal(None)], True),
        ([column("float"), Literal(0.5)], False),
        ([column("date"), Literal(dt.date(2020, 1, 1))], True),
        ([column("date"), Literal(MOMENT)], False),
        ([column("date"), Literal("2020-01-01")], False),
        ([column("date"), Literal("2020-01-01", PrimitiveType("date"))], True),
        ([column("timestamp"), Literal(MOMENT)], False),
        ([column("timestamp"), Literal(MOMENT.replace(tzinfo=dt.UTC))], True),
        ([column("timestamp_ntz"), Literal(MOMENT)], True),
        ([column("timestamp_nanos"), Literal(Nanos(5))], False),
        ([column("long"), Literal(Nanos(5))], False),
        ([column("binary"), Literal(b"x"), Literal(None)], True),
        ([column("string"), Cast(Literal("a"), STRING)], False),
        ([Literal(1), Literal(1)], True),
    ],
)
def test_values_of_one_kind_are_compared_alike(operands: list[Expression], alike: bool) -> None:
    for turned in permutations(operands):
        assert is_compared_alike(turned) == alike


@pytest.mark.parametrize(
    ("value", "kind", "alike"),
    [
        (column("long"), LONG, True),
        (column("integer"), LONG, False),
        (Literal(5), LONG, True),
        (Literal(5), PrimitiveType("integer"), True),
        (Literal(5), PrimitiveType("short"), False),
        (Literal(5), MONEY, False),
        (Literal(True), PrimitiveType("boolean"), True),
        (Literal(True), LONG, False),
        (Literal("a"), STRING, True),
        (Literal("a"), PrimitiveType("date"), False),
        (Literal("a", STRING), STRING, False),  # SQL text has no constants with types.
        (Literal(None), LONG, False),
        (Literal(0.5), DOUBLE, False),
        (Cast(Literal("a"), STRING), STRING, False),
    ],
)
def test_only_values_of_a_columns_type_are_stored_as_they_are(
    value: Expression, kind: Any, alike: bool
) -> None:
    assert is_stored_alike(value, kind) == alike
