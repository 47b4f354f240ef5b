"""`mask`, compared row by row with the rules of SQL."""

import datetime as dt
import math
import pickle
import re
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import examples
from txlog.base.errors import InvalidInputError
from txlog.expressions.bind import bind, bind_value, columns_of
from txlog.expressions.evaluate import evaluate, mask
from txlog.expressions.sql import parse_sql, to_sql
from txlog.expressions.tree import (
    And,
    Arithmetic,
    Column,
    Comparison,
    Expression,
    In,
    IsNull,
    Like,
    Literal,
    Not,
    Or,
    col,
    lit,
)
from txlog.schema.arrow import arrow_schema
from txlog.schema.types import DecimalType, PrimitiveType, StructField, StructType

UTC = dt.UTC
NAN = math.nan
SCHEMA = StructType(
    (
        StructField("byte", PrimitiveType("byte")),
        StructField("long", PrimitiveType("long")),
        StructField("short_float", PrimitiveType("float")),
        StructField("double", PrimitiveType("double")),
        StructField("cents", DecimalType(5, 2)),
        StructField("huge", DecimalType(38, 0)),
        StructField("text", PrimitiveType("string")),
        StructField("raw", PrimitiveType("binary")),
        StructField("flag", PrimitiveType("boolean")),
        StructField("day", PrimitiveType("date")),
        StructField("at", PrimitiveType("timestamp")),
        StructField("local", PrimitiveType("timestamp_ntz")),
        StructField("a struct", StructType((StructField("x.y", PrimitiveType("integer")),))),
    )
)
NESTED = ("a struct", "x.y")
MOMENTS = [dt.datetime(1969, 12, 31, 23, 59, 59, 999_999), dt.datetime(2020, 1, 1)]
VALUES: dict[tuple[str, ...], list[Any]] = {
    ("byte",): [-128, -1, 0, 1, 127],
    ("long",): [-(2**63), -1, 0, 1, 2**53 + 1, 2**63 - 1],
    ("short_float",): [-math.inf, -0.0, 0.0, 0.5, math.inf, NAN],
    ("double",): [-math.inf, -1.5, -0.0, 0.0, 1.5, 2.0**53, math.inf, NAN],
    ("cents",): [Decimal("-999.99"), Decimal("0.00"), Decimal("1.10"), Decimal("999.99")],
    ("huge",): [1 - 10**38, Decimal(0), Decimal(5 * 10**37), Decimal(10**38 - 1)],
    ("text",): ["", "a", "ab", "a%b", "a\nb", "é", "\uffff", "\U0001f600", "a\\", "it's"],
    ("raw",): [b"", b"\x00", b"a", b"\xff"],
    ("flag",): [True, False],
    ("day",): [dt.date(1, 1, 1), dt.date(1969, 12, 31), dt.date(2020, 1, 1)],
    ("at",): [moment.replace(tzinfo=UTC) for moment in MOMENTS],
    ("local",): MOMENTS,
    NESTED: [-1, 0, 1],
}
NUMBERS = [-1000, 0, 1, 128, 2**63, -(2**63) - 1, 10**39, 1.5, -0.0, 2.0**53, math.inf, -math.inf,
           NAN, Decimal("1.1"), Decimal("1.105"), Decimal("-0.5"), 5 * 10**37, 1.1]  # fmt: skip
NUMERIC = {("byte",), ("long",), ("short_float",), ("double",), ("cents",), ("huge",), NESTED}
PATTERNS = ["%", "a%", "_", "%b", "a\\%b", "a\\%%", "", "a_b", "\\\\%", "%\\\\"]

COMPARATORS: list[Any] = ["=", "<>", "<", "<=", ">", ">=", "<=>"]
PAIRS = [(a, b) for a in sorted(NUMERIC) for b in sorted(NUMERIC)] + [
    (("day",), ("day",)), (("day",), ("local",)), (("local",), ("day",)), (("text",), ("text",)),
    (("flag",), ("flag",)), (("raw",), ("raw",)), (("at",), ("at",)),
]  # fmt: skip

paths = st.sampled_from(sorted(VALUES))
rows = st.fixed_dictionaries(
    {path: st.none() | st.sampled_from(values) for path, values in VALUES.items()}
)


def constants(path: tuple[str, ...]) -> st.SearchStrategy[Any]:
    own = st.sampled_from(VALUES[path])
    return own | st.sampled_from(NUMBERS) if path in NUMERIC else own


@st.composite
def leaves(draw: st.DrawFn) -> Expression:
    path = draw(paths)
    column = Column(path)
    forms = ["compare", "compare", "flipped", "null", "in", "like", "flag", "pair", "constant"]
    match draw(st.sampled_from(forms)):
        case "null":
            return IsNull(column)
        case "in":
            values = draw(st.lists(st.none() | constants(path), min_size=1, max_size=3))
            return In(column, tuple(Literal(value) for value in values))
        case "like":
            return Like(col("text"), draw(st.sampled_from(PATTERNS)))
        case "flag":
            return col("flag")
        case "pair":
            pair = draw(st.sampled_from(PAIRS))
            return Comparison(draw(st.sampled_from(COMPARATORS)), *map(Column, pair))
        case "constant":
            return draw(st.sampled_from([Literal(None), Literal(True), Literal(False)]))
        case how:
            op = draw(st.sampled_from(COMPARATORS))
            value = Literal(draw(st.none() | constants(path)))
            sides = (column, value) if how == "compare" else (value, column)
            return Comparison(op, *sides)


predicates = st.recursive(
    leaves(),
    lambda inner: st.one_of(
        st.builds(Not, inner),
        st.builds(And, st.lists(inner, min_size=1, max_size=3).map(tuple)),
        st.builds(Or, st.lists(inner, min_size=1, max_size=3).map(tuple)),
    ),
    max_leaves=6,
)


def as_table(values: list[dict[tuple[str, ...], Any]]) -> pa.Table:
    nested = {path for path in VALUES if len(path) > 1}
    out = []
    for row in values:
        flat = {path[0]: value for path, value in row.items() if path not in nested}
        inner = row[NESTED]
        # A null may be of the field or of the whole struct.
        flat["a struct"] = {"x.y": inner} if inner is not None or row[("flag",)] else None
        out.append(flat)
    return pa.Table.from_pylist(out, arrow_schema(SCHEMA))


def key(value: Any) -> Any:
    """Return what sorts as Spark sorts: NaN last, text by its bytes."""
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, float) and math.isnan(value):
        return (1, 0)
    return (0, value) if isinstance(value, int | float | Decimal) else value


def fitted(value: Any, path: tuple[str, ...] | None) -> Any:
    """Return a constant as it is compared with a column: as a double, or in decimal digits."""
    if value is None or path not in NUMERIC:
        return value
    if path in {("double",), ("short_float",)}:
        return float(value)
    decimal = path in {("cents",), ("huge",)}
    return (
        Decimal(repr(value)) if decimal and type(value) is float and value - value == 0 else value
    )


def beside_a_float(value: Any, kinds: set[tuple[str, ...]]) -> Any:
    """Return a column's value as it is compared with another column's."""
    if value is None:
        return None
    if kinds & {("double",), ("short_float",)}:
        return float(value)
    if type(value) is dt.date and ("local",) in kinds:
        return dt.datetime.combine(value, dt.time())
    return value


def value_of(node: Expression, row: dict[tuple[str, ...], Any], beside: Expression) -> Any:
    if isinstance(node, Column):
        kinds = {node.path, beside.path} if isinstance(beside, Column) else set()
        return beside_a_float(row[node.path], kinds)
    assert isinstance(node, Literal)
    return fitted(node.value, beside.path if isinstance(beside, Column) else None)


def compare(op: str, left: Any, right: Any) -> bool | None:
    if op == "<=>":
        return left is right is None or compare("=", left, right) is True
    if left is None or right is None:
        return None
    a, b = key(left), key(right)
    answers = {"=": a == b, "<>": a != b, "<": a < b, "<=": a <= b, ">": a > b, ">=": a >= b}
    return bool(answers[op])


def all_of(parts: list[bool | None]) -> bool | None:
    return False if False in parts else None if None in parts else True


def matches(pattern: str, text: str) -> bool:
    regex = re.sub(
        r"\\(.)|(%)|(_)|(.)",
        lambda m: ".*" if m[2] else "." if m[3] else re.escape(m[1] or m[4]),
        pattern,
        flags=re.DOTALL,
    )
    return re.fullmatch(regex, text, re.DOTALL) is not None


def truth(node: Expression, row: dict[tuple[str, ...], Any]) -> bool | None:
    match node:
        case Column(path):
            return row[path]
        case Literal(value):
            return value
        case Comparison(op, left, right):
            return compare(op, value_of(left, row, right), value_of(right, row, left))
        case IsNull(operand):
            return value_of(operand, row, operand) is None
        case In(operand, values):
            held = value_of(operand, row, operand)
            found = [not_(compare("=", held, value_of(v, row, operand))) for v in values]
            return not_(all_of(found))
        case Like(operand, pattern):
            text = value_of(operand, row, operand)
            return None if text is None else matches(pattern, text)
        case Not(operand):
            return not_(truth(operand, row))
        case And(parts):
            return all_of([truth(part, row) for part in parts])
        case Or(parts):
            return not_(all_of([not_(truth(part, row)) for part in parts]))
    raise AssertionError(node)


def not_(value: bool | None) -> bool | None:
    return None if value is None else not value


@settings(max_examples=examples(400))
@given(st.lists(rows, max_size=6), predicates)
def test_masks_agree_with_row_by_row(
    values: list[dict[tuple[str, ...], Any]], predicate: Expression
) -> None:
    table = as_table(values)
    expected = [truth(predicate, row) for row in values]
    bound = bind(predicate, SCHEMA)
    assert mask(bound, table).to_pylist() == expected
    for batch in table.to_batches():
        assert mask(pickle.loads(pickle.dumps(bound)), batch).to_pylist() == expected


@settings(max_examples=examples(300))
@given(st.lists(rows, max_size=4), predicates)
def test_text_reads_back_to_the_same_meaning(
    values: list[dict[tuple[str, ...], Any]], predicate: Expression
) -> None:
    table = as_table(values)
    bound = bind(predicate, SCHEMA)
    expected = mask(bound, table).to_pylist()
    for tree in (predicate, bound):
        text = to_sql(tree)
        again = parse_sql(text)
        assert mask(bind(again, SCHEMA), table).to_pylist() == expected
        assert to_sql(parse_sql(to_sql(again))) == to_sql(again)
    assert set(columns_of(predicate)) >= set(columns_of(bound))


@given(st.text(max_size=8), st.text(min_size=1, max_size=8))
def test_any_text_and_any_name_survive(value: str, name: str) -> None:
    again = parse_sql(to_sql(Column((name,)) == value))
    assert isinstance(again, Comparison)
    assert columns_of(again) == ((name,),)
    assert isinstance(again.right, Literal)
    assert again.right.value == value


@pytest.mark.slow
@pytest.mark.parametrize("count", [3, 10_000])
def test_chains_may_be_long(count: int) -> None:
    table = as_table([dict.fromkeys(VALUES) | {("long",): 7}])
    text = " OR ".join(f"long = {at}" for at in range(count))
    built: Expression = col("long") == 0
    for at in range(1, count):
        built = built | (col("long") == at)
    for tree in (parse_sql(text), built):
        assert mask(bind(tree, SCHEMA), table).to_pylist() == [count > 7]
        assert to_sql(tree)


def test_depth_is_refused_with_an_error_of_ours() -> None:
    with pytest.raises(InvalidInputError, match="nested"):
        parse_sql("(" * 5000 + "a" + ")" * 5000)
    deep: Expression = col("flag")
    for _ in range(5000):
        deep = ~deep
    with pytest.raises(InvalidInputError, match="nested"):
        bind(deep, SCHEMA)
    with pytest.raises(InvalidInputError, match="nested"):
        to_sql(deep)


@pytest.mark.slow
def test_a_long_list_is_looked_up() -> None:
    table = pa.table({"k": pa.array([1, 2, None], pa.int32())})
    schema = StructType((StructField("k", PrimitiveType("integer")),))
    found = mask(bind(col("k").isin(range(2, 200_000)), schema), table)
    assert found.to_pylist() == [False, True, None]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("a + 1 = 3", True), ("a - 3 < 0", True), ("a * -2 = -4", True), ("a / 4 = 0.5", True),
        ("a % 2 = 0", True), ("-a % 3 = -2", True), ("try_divide(a, 0) = 1", None),
        ("try_mod(a, 0) = 1", None), ("a = 1 AND a / 0 = 1", False), ("a = 2 OR a / 0 = 1", True),
        ("coalesce(a, a / 0) = 2", True),
        ("-a = -2", True), ("d + d = 2.20", True), ("d - 0.1 = 1", True), ("d * d = 1.21", True),
        ("d + a = 3.1", True), ("CAST(d AS INT) = 1", True), ("CAST(f AS BIGINT) = -1", True),
        ("CAST(a AS STRING) = '2'", True), ("CAST(t AS DATE) = DATE '2020-01-31'", True),
        ("a BETWEEN 2 AND 3", True), ("a NOT BETWEEN 2 AND 3", False), ("NOT a = 2", False),
        ("a == 2", True), ("a != 2", False), ("a IS NOT NULL", True), ("b IS TRUE", True),
        ("b IS NOT TRUE", False), ("b IS FALSE", False), ("s = \"xy\"", True),
        ("s LIKE 'x%'", True),
        ("s NOT LIKE 'x%'", False), ("a IN (1, 2)", True), ("a NOT IN (1, NULL)", None),
        ("A = 2", True), ("r = X'00ff'", True), ("a = 2L", True), ("f = -1.5D", True),
        ("d = 1.1BD", True), ("t > '2020-01-31'", True),
        ("t = TIMESTAMP '2020-01-31 12:00:00'", True),
        ("t = TIMESTAMP '2020-01-31T14:00:00+02:00'", True), ("NULL IS NULL", True),
        ("a = NULL", None), ("TRUE", True), ("a IS DISTINCT FROM 2", False),
        ("a IS NOT DISTINCT FROM 2", True), ("d > 1e0", True), ("b", True), ("!b", False),
        ("s LIKE 'x/_' ESCAPE '/'", False), ("s LIKE 'x_' ESCAPE '/'", True),
        ("s NOT LIKE 'x/%' ESCAPE '/'", True), ("'x%' = s OR s LIKE 'x!!' ESCAPE '!'", False),
        ("s LIKE 'x\\\\%' ESCAPE '!'", False), ("s LIKE '%%y' ESCAPE '%'", False),
        ("startswith(s, 'x')", True), ("a = '2'", True), ("CAST(NULL AS BOOLEAN) = b", None),
    ],
)  # fmt: skip
def test_sql_means_what_spark_means(text: str, value: bool | None) -> None:
    table = pa.table(
        {
            "a": pa.array([2], pa.int32()),
            "d": pa.array([Decimal("1.10")], pa.decimal128(5, 2)),
            "f": [-1.5],
            "b": [True],
            "s": ["xy"],
            "r": [b"\x00\xff"],
            "t": pa.array([dt.datetime(2020, 1, 31, 12)], pa.timestamp("us", "UTC")),
        }
    )
    kinds = {"a": "integer", "f": "double", "b": "boolean", "s": "string", "r": "binary",
             "t": "timestamp"}  # fmt: skip
    schema = StructType(
        (
            *(StructField(name, PrimitiveType(kind)) for name, kind in kinds.items()),
            StructField("d", DecimalType(5, 2)),
        )
    )
    assert mask(bind(parse_sql(text), schema), table).to_pylist() == [value]
    assert mask(bind(parse_sql(to_sql(parse_sql(text))), schema), table).to_pylist() == [value]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("nope = 1", "nope"), ("byte", "byte"), ("at + 1 = 2", "timestamp"),
        ("`a struct` = 1", "struct"), ("`a struct`.z = 1", "z"), ("day = 'soon'", "soon"),
        ("sum(byte) = 1", "(?i)sum"), ("byte IN (SELECT 1)", "(?i)select"), ("byte = ", "SQL"),
        ("rand() > 1", "(?i)rand"), ("long LIKE 'a'", "long"), ("text LIKE 'a\\\\b'", "LIKE"),
        ("text LIKE 'a' ESCAPE '//'", "ESCAPE"), ("text LIKE 'a/b' ESCAPE '/'", "LIKE"),
        ("text LIKE 'a/' ESCAPE '/'", "LIKE"), ("text LIKE 'a' ESCAPE 3", "ESCAPE"),
        ("text LIKE 1", "LIKE"), ("EXISTS (SELECT 1)", "(?i)select"),
        ("byte = 1; byte = 2", "(?s)."), ("byte > true", "True"),
    ],
)  # fmt: skip
def test_errors_name_what_is_wrong(text: str, reason: str) -> None:
    with pytest.raises(InvalidInputError, match=reason) as caught:
        bind(parse_sql(text), SCHEMA)
    assert caught.value.argument == "where"


def test_an_unknown_column_comes_with_those_there_are() -> None:
    with pytest.raises(InvalidInputError, match="byte, long"):
        bind(col("nope") == 1, SCHEMA)


def test_operators_build_what_sql_builds() -> None:
    a, b = col("a"), col("b.`c.d`")
    pairs = [
        (a > 3, "a > 3"),
        ((a <= 3) & ~(b == "x"), "a <= 3 AND NOT b.`c.d` = 'x'"),
        (a.is_null() | b.is_not_null(), "a IS NULL OR b.`c.d` IS NOT NULL"),
        (a.isin([1, None]), "a IN (1, NULL)"),
        (a.between(1, 2), "a BETWEEN 1 AND 2"),
        (a.startswith("5%"), r"a LIKE '5\\%%'"),
        (a.eq_null_safe(1), "a <=> 1"),
        ((a + 1) * 2 != -a, "(a + 1) * 2 <> -a"),
        (a.cast(PrimitiveType("long")) % 2 == 0, "CAST(a AS BIGINT) % 2 = 0"),
        (a.cast("bigint") == a.cast("long"), "CAST(a AS BIGINT) = CAST(a AS BIGINT)"),
        (a.cast("string") < a.cast("Timestamp"), "CAST(a AS STRING) < CAST(a AS TIMESTAMP)"),
        (
            a.cast("decimal(10, 2)") < a.cast("DECIMAL"),
            "CAST(a AS DECIMAL(10, 2)) < CAST(a AS DECIMAL(10, 0))",
        ),
        (col("b").field("c.d") == lit(True), "b.`c.d` = TRUE"),
    ]
    for built, text in pairs:
        assert to_sql(built) == to_sql(parse_sql(text))


@pytest.mark.parametrize("name", ["", "intt", "decimal(1, 2, 3)", "decimal(x)", "int(4)"])
def test_a_cast_to_a_type_that_is_none_is_refused(name: str) -> None:
    with pytest.raises(InvalidInputError, match="is not a type"):
        col("a").cast(name)


def test_an_expression_has_no_truth_value() -> None:
    with pytest.raises(InvalidInputError, match=re.escape("& | ~")):
        bool(col("a") > 1)


@pytest.mark.parametrize("name", ["", ".", "a.", "`a", "a``b", "`a`b"])
def test_odd_names_are_refused(name: str) -> None:
    with pytest.raises(InvalidInputError, match="not a column name"):
        col(name)


_LONGS = st.integers(-(2**63), 2**63 - 1)


@given(
    st.lists(st.none() | _LONGS, min_size=1, max_size=6),
    _LONGS.filter(lambda value: value > -(2**63)) | st.integers(-3, 3),
)
def test_remainders_have_the_sign_of_the_dividend(values: list[int | None], divisor: int) -> None:
    schema = StructType((StructField("x", PrimitiveType("long")),))
    rows = pa.record_batch({"x": pa.array(values, pa.int64())})
    bound, _ = bind_value(Arithmetic("%", Column(("x",)), Literal(divisor), tried=True), schema)
    wanted = [
        None if value is None or not divisor else abs(value) % abs(divisor) * (1, -1)[value < 0]
        for value in values
    ]
    assert evaluate(bound, rows).to_pylist() == wanted
