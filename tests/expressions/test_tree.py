"""How expressions are shown, and predicates for other engines: `translated` asks a dialect."""

from __future__ import annotations

import pytest

from txlog.base.errors import InvalidInputError, InvalidTypeError
from txlog.expressions.bind import bind
from txlog.expressions.operators import Operator
from txlog.expressions.sql import parse_sql, to_sql
from txlog.expressions.tree import Column, Expression, Literal, col, lit
from txlog.expressions.type_rules import Dialect, OtherwiseError, translated
from txlog.schema.types import PrimitiveType, StructField, StructType

SCHEMA = StructType(
    (
        StructField("a", PrimitiveType("long")),
        StructField("b", PrimitiveType("boolean")),
        StructField("t", PrimitiveType("string")),
    )
)


class Ids(Dialect[frozenset[int]]):
    """An engine of four rows, where `a` is the row's number, and `b` is true of the odd ones."""

    every = frozenset(range(4))

    def truth(self, node: Column | Literal) -> frozenset[int]:
        if isinstance(node, Literal):
            raise OtherwiseError
        return frozenset({1, 3})

    def compare(self, op: Operator, left: Expression, right: Expression) -> frozenset[int]:
        match op.sign, left, right:
            case "<", Column(("a",)), Literal(int(bound)):
                return frozenset(row for row in self.every if row < bound)
        raise OtherwiseError

    def negated(self, part: frozenset[int]) -> frozenset[int]:
        return self.every - part


@pytest.mark.parametrize(
    ("where", "rows"),
    [
        ("a < 2", {0, 1}),
        ("b", {1, 3}),
        ("a < 2 AND b", {1}),
        ("a < 2 OR b", {0, 1, 3}),
        ("NOT (a < 2 OR b)", {2}),
        ("NOT (NOT b AND a < 3)", {1, 3}),
        ("a > 2", None),  # Another operator: the engine might see it otherwise.
        ("a < 2 AND a > 0", None),
        ("NOT (b OR a IS NULL)", None),  # What it does not define.
        ("a IN (1, 2)", None),
        ("t LIKE 'x%'", None),
        ("a + 1 < 2", None),
        ("b AND TRUE", None),
    ],
)
def test_a_predicate_is_an_engines_as_a_whole_or_not_at_all(
    where: str, rows: set[int] | None
) -> None:
    found = translated(bind(parse_sql(where), SCHEMA), Ids())
    assert found == rows


@pytest.mark.parametrize(
    "text",
    [
        "col('a') > 5",
        "(col('a.b') == 'x') & col('c').is_not_null()",
        "((col('a') + 1) * 2) != col('`a.b`.`c``d`')",
        "~((col('a') < 1.5) | (lit(True) & col('b').eq_null_safe(None)))",
        "col('t').isin(['x', None]) | (~col('t').like('a%')) | (~(col('a') > 1)).is_null()",
        "(col('a') - col('b')).cast('decimal(10,2)') >= datetime.date(2024, 1, 1)",
    ],
)
def test_an_expression_is_shown_as_python(text: str) -> None:
    import datetime

    known = {"col": col, "lit": lit, "datetime": datetime}
    made = eval(text, known)
    assert to_sql(eval(repr(made), known)) == to_sql(made)
    assert repr(made) == text


def test_what_has_no_operator_is_shown_by_name() -> None:
    shown = repr(parse_sql("coalesce(a, 1) > CASE WHEN b THEN size(transform(l, x -> x + 1)) END"))
    assert shown == (
        "coalesce(col('a'), lit(1)) > case(when col('b'): "
        "size(transform(col('l'), lambda x: x + 1)), else: lit(None))"
    )
    deep = col("a")
    for _ in range(20_000):
        deep = deep + 1
    assert repr(deep) == "<Arithmetic that is nested too deeply to be shown>"


@pytest.mark.parametrize("name", [["a"], None, 1])
def test_what_is_no_text_needs_no_backticks(name: object) -> None:
    with pytest.raises(InvalidTypeError, match="Pass each name as a string"):
        col(name)  # type: ignore[arg-type]  # It is no text, and that is the test.
    with pytest.raises(InvalidInputError, match="in backticks"):
        col("`a")
