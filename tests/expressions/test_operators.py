"""The table of operators, compared with Python's own comparisons of all values in question."""

from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import examples
from txlog.expressions.bind import bind, bind_value
from txlog.expressions.evaluate import evaluate, mask
from txlog.expressions.operators import ARITHMETIC, OPERATORS, PARSED, Operator
from txlog.expressions.sql import parse_sql, to_sql
from txlog.expressions.tree import Arithmetic, Column, Comparator, Comparison, col, lit
from txlog.schema.arrow import arrow_type, from_arrow

PLAIN: dict[Comparator, Callable[[Any, Any], bool]] = {
    "=": lambda a, b: bool(a == b),
    "<>": lambda a, b: bool(a != b),
    "<": lambda a, b: bool(a < b),
    "<=": lambda a, b: bool(a <= b),
    ">": lambda a, b: bool(a > b),
    ">=": lambda a, b: bool(a >= b),
    "<=>": lambda a, b: bool(a == b),
}
KINDS: dict[str, tuple[pa.DataType, Callable[[int], Any]]] = {
    "long": (pa.int64(), lambda number: number),
    "decimal": (pa.decimal128(5, 1), lambda number: Decimal(number).scaleb(-1)),
    "text": (pa.string(), lambda number: chr(ord("k") + number)),
}
signs = st.sampled_from(list(PLAIN))
numbers = st.integers(-4, 4)


def test_the_table_has_all_signs() -> None:
    assert OPERATORS.keys() == PLAIN.keys()


@given(signs, st.sampled_from(list(KINDS)), numbers, numbers)
def test_an_operator_compares_like_python(sign: Comparator, kind: str, a: int, b: int) -> None:
    op = OPERATORS[sign]
    arrow, value = KINDS[kind]
    left, right = value(a), value(b)
    holds = PLAIN[sign](left, right)
    assert (op.less if left < right else op.equal if left == right else op.greater) == holds
    assert op.python(left, right) == holds
    assert op.compute(pa.scalar(left, arrow), pa.scalar(right, arrow)).as_py() == holds
    assert PLAIN[op.flipped.sign](right, left) == holds
    assert PLAIN[op.negated.sign](left, right) != holds
    assert op.is_equality == (sign in ("=", "<=>"))


@pytest.mark.parametrize("op", OPERATORS.values(), ids=str)
def test_to_flip_or_negate_twice_changes_nothing(op: Operator) -> None:
    assert op.flipped.flipped is op
    assert op.negated.negated is (OPERATORS["="] if op.null_safe else op)
    assert op.flipped.negated is op.negated.flipped


ends = st.none() | numbers


@settings(max_examples=examples(500))
@given(signs, st.sampled_from([("long", "long"), ("decimal", "decimal"), ("text", "text"),
                               ("decimal", "long"), ("long", "decimal")]),
       st.tuples(ends, ends), numbers)  # fmt: skip
def test_what_bounds_say_holds_for_all_values_between_them(
    sign: Comparator, kinds: tuple[str, str], given_ends: tuple[int | None, int | None], at: int
) -> None:
    """A result is null only if a bound is, and else the same wherever unknown bounds lie."""
    (arrow, value), (other, constant) = KINDS[kinds[0]], KINDS[kinds[1]]
    low, high = given_ends
    if low is not None and high is not None and low > high:
        low, high = high, low
    low_array, high_array = (
        pa.array([None if end is None else value(end)], arrow) for end in (low, high)
    )
    op = OPERATORS[sign]
    against = constant(at)
    scalar = pa.scalar(against, other)
    possible = op.possible(low_array, high_array, scalar)[0].as_py()
    certain = op.certain(low_array, high_array, scalar)[0].as_py()
    known = low is not None and high is not None
    assert not known or None not in (possible, certain)
    far = 60 if "text" not in kinds else 9  # Beyond all constants, in steps of the bounds' type.
    for first in [low] if low is not None else [-far, *range(-4, 5), far]:
        for last in [high] if high is not None else [-far, *range(-4, 5), far]:
            between = [PLAIN[sign](end, against) for end in map(value, range(first, last + 1))]
            if not between:
                continue
            # A constant that no value can equal may lie between two bounds that differ.
            exact = "long" not in kinds or kinds[0] == kinds[1] or sign not in ("=", "<=>", "<>")
            if possible is False or (possible is True and exact):
                assert possible == any(between)
            if certain is True or (certain is False and exact):
                assert certain == all(between)


ROWS = pa.record_batch(
    {
        "n": pa.array([None, -(2**63), -2, -1, 0, 1, 2, 2**63 - 1], pa.int64()),
        "m": pa.array([None, *map(Decimal, ("-9.9", "-0.2", "-0.1", "0", "0.1", "0.2", "9.9"))],
                      pa.decimal128(2, 1)),
    }
)  # fmt: skip
SCHEMA = from_arrow(ROWS.schema)
constants = st.one_of(
    st.integers(-3, 3),
    st.integers(-30, 30).map(lambda number: Decimal(number).scaleb(-1)),
    st.sampled_from([2**63, -(2**63) - 1, 10**30, -(10**30), Decimal("1e30"), Decimal("-0.05")]),
    st.sampled_from([float("inf"), float("-inf")]),
)


@settings(max_examples=examples(500))
@given(signs, st.sampled_from(["n", "m"]), constants, st.booleans(), st.booleans())
def test_a_constant_out_of_range_compares_as_its_value(
    sign: Comparator, name: str, constant: Any, flipped: bool, negated: bool
) -> None:
    left, right = (lit(constant), col(name)) if flipped else (col(name), lit(constant))
    where = ~Comparison(sign, left, right) if negated else Comparison(sign, left, right)
    found = mask(bind(where, SCHEMA), ROWS).to_pylist()
    for value, result in zip(ROWS.column(name).to_pylist(), found, strict=True):
        if value is None:
            assert result == (negated if sign == "<=>" else None)
        else:
            pair = (constant, value) if flipped else (value, constant)
            assert result == (PLAIN[sign](*pair) != negated)


@pytest.mark.parametrize("op", PARSED.values(), ids=str)
def test_sql_text_has_the_sign(op: Any) -> None:
    found = parse_sql(f"a {op.sign} b")
    assert isinstance(found, Comparison if isinstance(op, Operator) else Arithmetic)
    assert found.op == op.sign
    assert to_sql(found) == f"(`a` {op.sign} `b`)"
    assert isinstance(found.left, Column)
    assert isinstance(found.right, Column)


NUMBERS = pa.schema(
    [
        ("byte", pa.int8()),
        ("long", pa.int64()),
        ("float", pa.float32()),
        ("double", pa.float64()),
        ("money", pa.decimal128(9, 2)),
        ("fine", pa.decimal128(30, 10)),
    ]
)


@pytest.mark.slow
@pytest.mark.parametrize("right", [*NUMBERS.names, "NULL", "3", "2.5", "0.5e0"])
@pytest.mark.parametrize("sign", list(ARITHMETIC))
@pytest.mark.parametrize("left", NUMBERS.names)
def test_arithmetic_gives_the_type_that_it_is_bound_to(left: str, sign: str, right: str) -> None:
    rows = pa.RecordBatch.from_pylist([dict.fromkeys(NUMBERS.names, 2), {}], NUMBERS)
    bound, kind = bind_value(parse_sql(f"{left} {sign} {right}"), from_arrow(NUMBERS))
    found = evaluate(bound, rows)
    assert found.type == arrow_type(kind)
    assert found[1].as_py() is None
