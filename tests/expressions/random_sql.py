"""Random expressions over rows of all types, and what txlog and Spark make of them."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from txlog.base.errors import TxlogError
from txlog.expressions.bind import bind_value
from txlog.expressions.evaluate import evaluate
from txlog.expressions.sql import parse_sql
from txlog.expressions.tree import Expression, Zoned
from txlog.schema.arrow import arrow_type, from_arrow

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def _day(days: int) -> pa.Scalar:
    return pa.scalar(days, pa.int32()).cast(pa.date32())


# Each column: its type, usual values, and values at the ends of its range.
COLUMNS: dict[str, tuple[pa.DataType, list[Any], list[Any]]] = {
    "b": (pa.int8(), [0, 1, -1, 7, 13], [127, -128]),
    "h": (pa.int16(), [0, 1, -2, 5, 300], [32767, -32768]),
    "i": (pa.int32(), [0, 1, -1, 4, 12, 365], [2**31 - 1, -(2**31)]),
    "n": (pa.int64(), [0, 2, -3, 10, 1000, 86_400], [2**63 - 1, -(2**63), 2**53 + 1]),
    "r": (pa.float32(), [0.0, 0.1, -2.5, 16.75, 1e10], [math.nan, math.inf, -0.0, 3e38]),
    "x": (
        pa.float64(),
        [0.0, 1.5, -7.25, 0.001, 123456.789, 1e7],
        [math.nan, -math.inf, -0.0, 1e300, 5e-324, 2.0**63],
    ),
    "d": (
        pa.decimal128(10, 2),
        [Decimal(v) for v in ("0.00", "0.05", "1.50", "-2.45", "100.00")],
        [Decimal("99999999.99"), Decimal("-99999999.99")],
    ),
    "e": (
        pa.decimal128(9, 4),
        [Decimal(v) for v in ("0.0000", "0.0001", "-3.1415", "12.5000")],
        [Decimal("99999.9999"), Decimal("-99999.9999")],
    ),
    "v": (
        pa.decimal128(20, 0),
        [Decimal(v) for v in ("0", "3", "-17", "1000000")],
        [Decimal(10**20 - 1)],
    ),
    "w": (
        pa.decimal128(38, 18),
        [Decimal(v) for v in ("0", "0.000000000000000001", "1", "-2.5", "12345.6789")],
        [Decimal("9" * 20 + "." + "9" * 18)],
    ),
    "s": (pa.string(), ["", "abc", " a b ", "aXbXc", "Straße", "zz", "0"], ["%_", "Ü😀x", "\x00"]),
    "t": (pa.string(), ["abc", "b", "X", "2"], ["", "a%", "\\"]),
    "num": (
        pa.string(),
        ["1", "-3", " 12 ", "0", "7", "1.5"],
        ["+4", "1e3", "abc", "", "NaN", "0x1F", "1d", "99999999999", ".5", "1_0", "٣", "-0"],
    ),
    "du": (
        pa.string(),
        ["2024-02-29", "1999-12-31", "2021-01-03", "2024-1-5"],
        ["2024", "2024-05", "2023-02-29", "x", " 2020-01-01 ", "2020-01-01T", "2020-01-01 10:00"],
    ),
    "tu": (
        pa.string(),
        ["2024-02-29 01:02:03", "1999-12-31T23:59:59.5", "2021-01-03",
         "2000-01-01 00:00:00.123456"],
        ["2024-02-29 01:02:03+02:00", "2020-01-01 1:2:3", "2020-01-01T10:00Z", "x", "2020-13-01",
         "2020-01-01 24:00:00", "2020-01-01 10:00:00.123456789", "2020-01-01 10"],
    ),
    "bu": (pa.string(), ["true", "false", "1", "no"], ["T", " Y ", "maybe", "", "f", "yes"]),
    "f": (pa.bool_(), [True, False], []),
    "g": (pa.bool_(), [True, False, False], []),
    "day": (
        pa.date32(),
        [date(1970, 1, 1), date(2024, 2, 29), date(1999, 12, 31), date(2021, 1, 31)],
        [date(1, 1, 1), date(9999, 12, 31), date(1582, 10, 4)],
    ),
    "day2": (pa.date32(), [date(2000, 1, 1), date(2024, 3, 31), date(1969, 7, 20)], []),
    "at": (
        pa.timestamp("us", "UTC"),
        [
            datetime(1970, 1, 1, tzinfo=UTC),
            datetime(2024, 2, 29, 23, 59, 59, 999_999, UTC),
            datetime(2021, 1, 3, 4, 5, 6, 500_000, UTC),
        ],
        [datetime(1965, 6, 5, 4, 3, 2, 1, UTC), datetime(9999, 12, 31, 1, 2, 3, 456_789, UTC),
         datetime(1, 1, 1, 5, tzinfo=UTC)],
    ),
    "at2": (
        pa.timestamp("us", "UTC"),
        [datetime(2024, 1, 31, tzinfo=UTC), datetime(1999, 12, 30, 12, tzinfo=UTC)],
        [],
    ),
    "nt": (
        pa.timestamp("us"),
        [datetime(2024, 2, 29, 23, 59, 59), datetime(1970, 1, 1), datetime(2001, 2, 3, 4, 5, 6, 7)],
        [datetime(9999, 12, 31, 23)],
    ),
    "y": (pa.binary(), [b"", b"abc", b"a\x00"], [b"zz"]),
    "l": (pa.list_(pa.int64()), [[], [1], [1, None, 3], [2, 2]], [None]),
    "li": (pa.list_(pa.int32()), [[], [4], [1, 0, 3], [None]], [None]),
    "ls": (pa.list_(pa.string()), [["a", "abc"], ["", None], [], ["zz", "aXbXc"]], [None]),
    "lx": (pa.list_(pa.float64()), [[1.5], [], [0.0, -0.0, None]], [[math.nan, 1.0]]),
    "ld": (pa.list_(pa.decimal128(9, 2)), [[Decimal("1.50"), None], [], [Decimal("-3.25")]], []),
    "m": (pa.map_(pa.string(), pa.int32()), [[], [("k", 1)], [("k", None), ("q", 2)]], []),
    "st": (
        pa.struct([("a", pa.int32()), ("b", pa.string())]),
        [{"a": 1, "b": "x"}, {"a": None, "b": "abc"}, {"a": 4, "b": None}],
        [],
    ),
    "st2": (
        pa.struct([("a", pa.int32()), ("b", pa.string())]),
        [{"a": 1, "b": "x"}, {"a": None, "b": "abc"}, {"a": 5, "b": "y"}],
        [],
    ),
}  # fmt: skip
SCHEMA = pa.schema([(name, kind) for name, (kind, _, _) in COLUMNS.items()])
TYPES = from_arrow(SCHEMA)


def random_rows(chance: random.Random, count: int, *, wild: float) -> pa.Table:
    """Return rows whose values are null in one of eight cases, and extreme ones at a rate."""
    columns = {}
    for name, (kind, usual, extreme) in COLUMNS.items():
        values = []
        for _ in range(count):
            pool = extreme if extreme and chance.random() < wild else usual
            values.append(None if chance.random() < 0.12 else chance.choice(pool))
        columns[name] = pa.array(values, kind)
    return pa.table(columns, SCHEMA)


# Expressions -----------------------------------------------------------------------------------

LEAVES: dict[str, list[str]] = {
    "whole": ["b", "h", "i", "n", "i", "n", "st.a", "0", "1", "2", "-3", "100", "3000000000", "7L"],
    "decimal": ["d", "e", "v", "w", "d", "1.5", "-0.05", "0.001", "100.00", "2.0BD"],
    "float": ["r", "x", "x", "1e0", "-2.5e0", "0.1F", "2D"],
    "text": ["s", "t", "s", "st.b", "'abc'", "'a'", "''", "'X'"],
    "bool": ["f", "g", "TRUE", "FALSE"],
    "date": ["day", "day2", "DATE '2024-02-29'"],
    "moment": ["at", "at2", "TIMESTAMP '2024-02-29 12:30:00'"],
    "local": ["nt", "TIMESTAMP_NTZ '2024-01-01 00:00:00'"],
    "bytes": ["y", "X'6162'"],
    "longs": ["l", "array(n, 1L)"],
    "ints": ["li", "array(i, 1)"],
    "texts": ["ls", "array(s, t)", "split(s, 'X')"],
    "doubles": ["lx"],
    "decimals": ["ld", "array(d, 1.5)"],
    "map": ["m", "map('k', i)"],
    "struct": ["st", "st2", "named_struct('a', i, 'b', s)"],
}
_NUMERIC = ("whole", "decimal", "float")
_ORDERED = (*_NUMERIC, "text", "bool", "date", "moment", "local")
_NESTED = ("longs", "ints", "texts", "doubles", "decimals", "struct")

# Each form is a pattern with the kinds of its operands; `#` is any number.
_FORMS: dict[str, list[str]] = {
    "whole": [
        "({whole} + {whole})", "({whole} - {whole})", "({whole} * {whole})", "({whole} % {whole})",
        "({whole} div {whole})", "({decimal} div {decimal})", "abs({whole})", "-({whole})",
        "pmod({whole}, {whole})",
        "length({text})", "year({date})", "month({date})", "day({moment})", "hour({moment})",
        "datediff({date}, {date})", "size({longs})", "size({map})", "floor({float})",
        "ceil({float})", "sign({whole})", "coalesce({whole}, {whole})",
        "greatest({whole}, {whole})",
        "least({whole}, {whole})", "if({bool}, {whole}, {whole})", "CAST({#} AS INT)",
        "CAST({#} AS BIGINT)", "CAST({#} AS TINYINT)", "try_cast({#} AS INT)", "CAST(num AS INT)",
        "try_cast(num AS INT)", "try_cast(num AS BIGINT)", "CAST(num AS SMALLINT)",
        "CAST({bool} AS INT)", "CAST({moment} AS BIGINT)", "nullif({whole}, {whole})",
        "CASE WHEN {bool} THEN {whole} ELSE {whole} END", "({whole} & {whole})", "~({whole})",
        "({whole} | {whole})", "bit_count({whole})", "instr({text}, 'a')", "locate('X', {text})",
        "locate('X', {text}, NULL)",
        "ascii({text})", "get({longs}, 0)", "get({ints}, {whole})", "element_at({map}, 'k')",
        "m['q']", "array_max({ints})", "array_min({longs})", "round({whole})", "nvl2({text}, 1, 2)",
        "try_divide({whole}, {whole})", "crc32({text})", "quarter({date})", "dayofweek({date})",
        "weekofyear({date})", "unix_date({date})", "unix_seconds({moment})",
        "unix_micros({moment})",
        "array_position({longs}, {whole})", "aggregate({ints}, 0, (a, e) -> a + e)",
        "second({moment})", "minute({moment})", "dayofyear({date})", "weekday({date})",
        "size({texts})", "octet_length({text})", "try_mod({whole}, {whole})", "round({whole}, -1)",
    ],
    "decimal": [
        "({decimal} + {decimal})", "({decimal} - {decimal})", "({decimal} * {decimal})",
        "({decimal} / {decimal})", "({decimal} % {decimal})", "({decimal} + {whole})",
        "({whole} - {decimal})", "({decimal} * {whole})", "({decimal} / {whole})",
        "({whole} / {decimal})", "({decimal} % {whole})", "({whole} % {decimal})",
        "abs({decimal})", "-({decimal})", "ceil({decimal})", "floor({decimal})",
        "round({decimal}, 1)", "round({decimal})", "bround({decimal}, 1)",
        "CAST({#} AS DECIMAL(10, 2))", "CAST({#} AS DECIMAL(38, 6))", "CAST(num AS DECIMAL(5, 1))",
        "try_cast({#} AS DECIMAL(6, 3))", "try_cast(num AS DECIMAL(8, 2))",
        "coalesce({decimal}, {decimal})", "greatest({decimal}, {decimal})",
        "least({decimal}, {whole})", "if({bool}, {decimal}, {whole})",
        "nullif({decimal}, {decimal})",
        "pmod({decimal}, {decimal})", "get({decimals}, 0)", "try_divide({decimal}, {decimal})",
        "CAST({bool} AS DECIMAL(3, 1))", "CAST({moment} AS DECIMAL(20, 6))",
    ],
    "float": [
        "({float} + {float})", "({float} - {#})", "({#} * {float})", "({float} / {#})",
        "({whole} / {whole})", "({float} % {float})", "abs({float})", "-({float})", "sqrt({#})",
        "CAST({#} AS DOUBLE)", "CAST({#} AS FLOAT)", "CAST(num AS DOUBLE)", "CAST(num AS FLOAT)",
        "try_cast(num AS DOUBLE)", "coalesce({float}, {#})", "greatest({float}, {#})",
        "least({float}, {#})", "if({bool}, {float}, {#})", "round({float}, 1)", "rint({#})",
        "nanvl({float}, {float})", "sign({#})", "degrees({float})", "pmod({float}, {float})",
        "months_between({date}, {moment})", "get({doubles}, 0)", "CAST({bool} AS DOUBLE)",
        "CAST({moment} AS DOUBLE)", "bround({float})", "try_divide({float}, {float})",
    ],
    "text": [
        "concat({text}, {text})", "({text} || '-' || {text})", "upper({text})", "lower({text})",
        "substring({text}, 2, 3)", "left({text}, 2)", "trim({text})", "replace({text}, 'X', '--')",
        "reverse({text})", "lpad({text}, 5, '*')", "coalesce({text}, {text})",
        "greatest({text}, {text})", "if({bool}, {text}, {text})", "CAST({#} AS STRING)",
        "CAST({bool} AS STRING)", "CAST({date} AS STRING)", "CAST({moment} AS STRING)",
        "CAST({local} AS STRING)", "CAST({bytes} AS STRING)", "try_cast({#} AS STRING)",
        "date_format({date}, 'yyyy-MM-dd')", "hex({whole})", "hex({text})", "get({texts}, 0)",
        "concat_ws('-', {text}, {text})", "concat({text}, {whole})", "translate({text}, 'aX', '1')",
        "split_part({text}, 'X', 2)", "md5({text})", "CAST({float} AS STRING)", "bin({whole})",
        "array_join({texts}, ',')", "element_at({texts}, 1)", "rtrim({text})", "right({text}, 2)",
        "nullif({text}, {text})", "repeat({text}, 2)", "regexp_replace({text}, '[aX]', '-')",
        "substring_index({text}, 'X', 1)", "from_unixtime({whole})", "concat({date}, {#})",
    ],
    "bool": [
        "({any} = {any})", "({any} <> {any})", "({any} < {any})", "({any} >= {any})",
        "({any} <=> {any})", "({nested} = {nested})", "({nested} <=> {nested})",
        "({nested} < {nested})", "({bool} AND {bool})", "({bool} OR {bool})", "(NOT {bool})",
        "({#} < {#})", "({#} = {#})", "({#} <=> {#})", "({whole} IN (1, 2, NULL))",
        "({decimal} IN (1.5, 100, -0.05))", "({float} IN (1.5, 0))", "({text} IN ('abc', 'X'))",
        "({date} IN (DATE '2024-02-29', NULL))", "({moment} IN (TIMESTAMP '2024-01-31', NULL))",
        "({text} LIKE 'a%')", "({any} IS NULL)", "({nested} IS NOT NULL)",
        "({#} BETWEEN {#} AND {#})", "isnan({float})", "(num = {whole})", "(num < {float})",
        "(num >= {decimal})", "(num = 1)", "(num > 1.5)", "(du = {date})",
        "(du < DATE '2021-01-01')",
        "(tu = {moment})", "(tu > TIMESTAMP '2020-01-01 00:00:00')", "(bu = {bool})", "(bu = true)",
        "({date} < {moment})", "({moment} >= {local})", "({local} = {date})",
        "CAST({#} AS BOOLEAN)", "CAST(bu AS BOOLEAN)", "try_cast(bu AS BOOLEAN)",
        "try_cast({#} AS BOOLEAN)", "array_contains({longs}, {whole})",
        "array_contains({texts}, {text})", "startswith({text}, 'a')", "contains({text}, 'X')",
        "exists({longs}, e -> e > {whole})", "forall({texts}, e -> e = {text})",
        "arrays_overlap({longs}, {longs})", "({text} RLIKE '^[a-c]+$')",
        "map_contains_key({map}, 'k')",
        "coalesce({bool}, {bool})", "if({bool}, {bool}, {bool})", "equal_null({any}, {any})",
        "({date} = '2024-02-29')", "({moment} > '2021-01-01')", "({whole} = '1')",
        "({decimal} < '1.5')", "({float} >= '0')", "({bool} = 'true')",
        "greatest({bool}, {bool})", "({nested} IN ({nested}, {nested}))",
        "array_contains({ints}, 1)",
        "({struct} IN ({struct}))", "({bytes} = {bytes})", "({bytes} < {bytes})",
    ],
    "date": [
        "date_add({date}, {whole})", "date_sub({date}, {whole})", "add_months({date}, {whole})",
        "last_day({date})", "next_day({date}, 'MON')", "trunc({date}, 'MM')",
        "trunc({date}, 'WEEK')",
        "CAST({moment} AS DATE)", "CAST({local} AS DATE)", "CAST(du AS DATE)", "CAST(tu AS DATE)",
        "try_cast(du AS DATE)", "to_date(tu)", "coalesce({date}, {date})",
        "greatest({date}, {date})", "least({date}, {date})", "if({bool}, {date}, {date})",
        "make_date({whole}, {whole}, {whole})", "({date} + INTERVAL 1 MONTH)",
        "({date} - INTERVAL 7 DAYS)", "({date} + {whole})", "date_from_unix_date({whole})",
        "nullif({date}, {date})", "try_cast({moment} AS DATE)", "trunc({date}, 'YEAR')",
    ],
    "moment": [
        "date_trunc('HOUR', {moment})", "date_trunc('WEEK', {date})",
        "date_trunc('MONTH', {moment})",
        "({moment} + INTERVAL 1 DAY)", "({moment} - INTERVAL '3' MONTH)",
        "({moment} + INTERVAL 90 MINUTES)", "CAST(tu AS TIMESTAMP)", "to_timestamp(tu)",
        "try_cast(tu AS TIMESTAMP)", "CAST({date} AS TIMESTAMP)", "CAST({local} AS TIMESTAMP)",
        "greatest({moment}, {moment})", "least({moment}, {moment})", "coalesce({moment}, {moment})",
        "if({bool}, {moment}, {moment})", "timestamp_seconds({whole})",
        "CAST({whole} AS TIMESTAMP)",
        "CAST({decimal} AS TIMESTAMP)", "CAST({float} AS TIMESTAMP)", "timestamp_millis({whole})",
        "({date} + INTERVAL 5 HOURS)", "nullif({moment}, {moment})", "CAST(du AS TIMESTAMP)",
        "({moment} + INTERVAL 1 YEAR)", "date_trunc('SECOND', {moment})",
    ],
    "local": [
        "CAST({moment} AS TIMESTAMP_NTZ)", "CAST(tu AS TIMESTAMP_NTZ)",
        "coalesce({local}, {local})",
        "({local} + INTERVAL 1 DAY)", "date_trunc('DAY', {local})", "try_cast(tu AS TIMESTAMP_NTZ)",
        "greatest({local}, {local})", "({local} + INTERVAL 2 MONTHS)",
        "CAST({date} AS TIMESTAMP_NTZ)",
    ],
    "bytes": ["CAST({text} AS BINARY)", "coalesce({bytes}, {bytes})"],
    "longs": [
        "array({whole}, {whole})", "array_distinct({longs})", "sort_array({longs})",
        "array_union({longs}, {longs})", "array_remove({longs}, {whole})", "reverse({longs})",
        "transform({longs}, e -> e + {whole})", "filter({longs}, e -> e > {whole})",
        "slice({longs}, 1, 2)", "concat({longs}, {longs})", "sequence(1L, b % 4)",
        "if({bool}, {longs}, {longs})", "array_except({longs}, {longs})",
        "coalesce({longs}, {longs})",
    ],
    "ints": [
        "array(i, 1)", "array_sort({ints})", "array_intersect({ints}, {ints})", "map_values({map})",
        "transform({ints}, (e, p) -> e * p)", "array_remove({ints}, 1)", "sequence(1, 3)",
        "array_union({ints}, {ints})", "concat({ints}, {ints})", "array_except({ints}, {ints})",
    ],
    "texts": [
        "array({text}, {text})", "map_keys({map})", "transform({texts}, e -> upper(e))",
        "array_distinct({texts})", "filter({texts}, e -> e = {text})",
        "array_remove({texts}, {text})",
    ],
    "doubles": ["array({float}, {#})", "transform({doubles}, e -> e * {#})", "reverse({doubles})"],
    "decimals": ["array({decimal}, {decimal})", "transform({decimals}, e -> e + {decimal})"],
    "map": ["map('a', {whole})", "map_filter({map}, (k, v) -> v > 0)"],
    "struct": ["named_struct('a', {whole}, 'b', {text})", "struct({any}, {any})",
               "coalesce({struct}, {struct})", "if({bool}, {struct}, {struct})"],
}  # fmt: skip
_TOPS = (*_NUMERIC, *_NUMERIC, "decimal", "text", "bool", "bool", "bool", "date", "moment", "local",
         "bytes", "longs", "ints", "texts", "doubles", "decimals", "map", "struct")  # fmt: skip


def random_expression(chance: random.Random) -> str:
    """Return an expression in SQL text."""
    return _made(chance, chance.choice(_TOPS), chance.choice((1, 1, 2, 2, 3)))


def _made(chance: random.Random, kind: str, depth: int) -> str:
    if depth == 0 or chance.random() < 0.1:
        return chance.choice(LEAVES[kind])
    form = chance.choice(_FORMS[kind])
    same = chance.choice(_ORDERED)  # The kind of all `{any}` of one form.
    nested = chance.choice(_NESTED)
    parts = form.split("{")
    text = parts[0]
    for part in parts[1:]:
        name, _, rest = part.partition("}")
        inner = {"#": chance.choice(_NUMERIC), "any": same, "nested": nested}.get(name, name)
        text += _made(chance, inner, depth - 1) + rest
    return text


# Results ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Result:
    """The type and the values of an expression; or why it has none."""

    kind: str = ""
    values: tuple[Any, ...] = ()
    refused: str = ""  # No expression of this engine.
    failed: str = ""  # A value cannot be computed.


def canonical(value: pa.Array | pa.ChunkedArray) -> tuple[Any, ...]:
    """Return values of which two are equal if they are the same: NaN, zeros and years as well."""
    if isinstance(value, pa.ChunkedArray):
        value = value.combine_chunks()
    kind = value.type
    if pa.types.is_date(kind):
        return tuple(value.cast(pa.int32()).to_pylist())
    if pa.types.is_timestamp(kind):
        return tuple(value.cast(pa.timestamp("us", kind.tz)).cast(pa.int64()).to_pylist())
    if pa.types.is_floating(kind):
        return tuple(None if one is None else repr(one) for one in value.to_pylist())
    if pa.types.is_decimal(kind):
        return tuple(None if one is None else f"{one:f}" for one in value.to_pylist())
    if pa.types.is_map(kind) or pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return tuple(None if not one.is_valid else canonical(_items(one)) for one in value)
    if pa.types.is_struct(kind):
        fields = [canonical(one) for one in value.flatten()]
        rows = list(zip(*fields, strict=True)) if fields else [()] * len(value)
        there = value.is_valid().to_pylist()
        return tuple(row if valid else None for row, valid in zip(rows, there, strict=True))
    return tuple(value.to_pylist())


def _items(one: Any) -> pa.Array:
    values = one.values
    if not isinstance(one, pa.MapScalar):
        return values
    return pa.StructArray.from_arrays([values.field(0), values.field(1)], ["key", "value"])


def type_text(kind: pa.DataType) -> str:
    """Return an Arrow type without the nullability of its parts, and with one name for texts."""
    if pa.types.is_map(kind):
        return f"map<{type_text(kind.key_type)}, {type_text(kind.item_type)}>"
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return f"list<{type_text(kind.value_type)}>"
    if pa.types.is_struct(kind):
        return f"struct<{', '.join(f'{f.name}: {type_text(f.type)}' for f in kind)}>"
    if pa.types.is_timestamp(kind):
        return "timestamp" if kind.tz else "timestamp_ntz"
    return str(kind).removeprefix("large_")


def by_txlog(text: str, rows: pa.Table, zone: str = "UTC") -> Result:
    """Return what txlog makes of an expression. Only a `TxlogError` is caught."""
    bound: Expression
    try:
        bound, kind = bind_value(Zoned(parse_sql(text), zone), TYPES)
        wanted = arrow_type(kind) if kind else None
    except TxlogError as error:
        return Result(refused=str(error))
    (batch,) = rows.combine_chunks().to_batches()
    try:
        value = evaluate(bound, batch)
    except TxlogError as error:
        return Result(failed=str(error))
    found = type_text(value.type)
    if wanted is not None and type_text(wanted) != found:
        found = f"{found}, bound as {type_text(wanted)}"
    return Result(found, canonical(value))


class Spark:
    """What Spark makes of expressions over some rows: many in one query, or one after another."""

    def __init__(self, spark: SparkSession, rows: pa.Table, zone: str = "UTC") -> None:
        self._spark, self._zone = spark, zone
        frame = spark.createDataFrame(rows)  # Its timestamps without a zone become others.
        self._frame: DataFrame = frame.withColumn("nt", frame["nt"].cast("timestamp_ntz"))

    def computed(self, texts: Sequence[str]) -> list[Result]:
        """Return the results of many expressions; those that fail are found by halving."""
        if not texts:
            return []
        self._spark.conf.set("spark.sql.session.timeZone", self._zone)
        try:
            named = (f"{text} AS c{place}" for place, text in enumerate(texts))
            found = self._frame.selectExpr(*named).toArrow()
        except Exception as error:
            if len(texts) > 1:
                half = len(texts) // 2
                return self.computed(texts[:half]) + self.computed(texts[half:])
            name = type(error).__name__
            words = next(filter(None, str(error).splitlines()), name)
            if name in ("AnalysisException", "ParseException"):
                return [Result(refused=words)]
            return [Result(failed=words)]
        finally:
            self._spark.conf.set("spark.sql.session.timeZone", "UTC")
        return [Result(type_text(column.type), canonical(column)) for column in found.columns]

    def accepts(self, text: str) -> bool:
        """Return whether Spark has such an expression."""
        try:
            return bool(self._frame.selectExpr(text).columns)
        except Exception as error:
            return type(error).__name__ not in ("AnalysisException", "ParseException")


@dataclass(frozen=True)
class Difference:
    """An expression that txlog and Spark compute differently."""

    text: str
    ours: Result
    theirs: Result

    def __str__(self) -> str:
        return f"{self.text}\n  txlog {_shown(self.ours)}\n  Spark {_shown(self.theirs)}"


def _shown(one: Result) -> str:
    return one.refused or one.failed or f"{one.kind}: {one.values}"


def differences(
    spark: SparkSession,
    chance: random.Random,
    count: int,
    documented: Callable[[str, Result, Result, pa.Table, str], bool],
    seen: Counter[str],
    *,
    wild: float = 0.03,
    zone: str = "UTC",
) -> list[Difference]:
    """Return the expressions of a number of random ones for which txlog and Spark differ.

    Parameters
    ----------
    documented
        Whether a difference is one of docs/predicates.md.
    seen
        Counts what became of the expressions.
    zone
        The time zone of the session, and of the predicates of txlog.
    """
    rows = random_rows(chance, 12, wild=wild)
    theirs = Spark(spark, rows, zone)
    texts = list(dict.fromkeys(random_expression(chance) for _ in range(count)))
    mine = {text: by_txlog(text, rows, zone) for text in texts}
    valued = [text for text in texts if not mine[text].refused and not mine[text].failed]
    others = dict(zip(valued, theirs.computed(valued), strict=True))
    found = []
    for text, ours in mine.items():
        if ours.refused:
            seen["refused"] += 1
            if not documented(text, ours, Result(), rows, zone) and theirs.accepts(text):
                found.append(Difference(text, ours, Result(refused="accepts it")))
            continue
        other = others[text] if text in others else theirs.computed([text])[0]
        if ours.failed and other.failed:
            seen["failed in both"] += 1
        elif (ours.kind, ours.values) == (other.kind, other.values):
            seen["equal"] += 1
        elif documented(text, ours, other, rows, zone):
            seen["documented"] += 1
        else:
            found.append(Difference(text, ours, other))
    return found
