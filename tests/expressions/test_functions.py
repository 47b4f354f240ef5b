"""SQL functions, compared with Spark's results and with their own rules."""

import math
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from functools import reduce
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import txlog
from tests.examples import examples
from txlog.base.errors import InvalidInputError
from txlog.expressions.bind import bind, bind_value, columns_of
from txlog.expressions.calls import NOW
from txlog.expressions.evaluate import evaluate
from txlog.expressions.functions import ALIASES, FUNCTIONS
from txlog.expressions.rewrites import Rewrite
from txlog.expressions.sql import parse_sql, to_sql
from txlog.expressions.tree import Expression
from txlog.schema.arrow import arrow_type, from_arrow

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMA = pa.schema(
    [
        ("i", pa.int32()),
        ("n", pa.int64()),
        ("x", pa.float64()),
        ("d", pa.decimal128(9, 2)),
        ("s", pa.string()),
        ("t", pa.string()),
        ("f", pa.bool_()),
        ("day", pa.date32()),
        ("day2", pa.date32()),
        ("at", pa.timestamp("us", "UTC")),
        ("l", pa.list_(pa.int64())),
        ("m", pa.map_(pa.string(), pa.int64())),
        ("r", pa.float32()),
        ("line", pa.string()),
        ("u", pa.string()),
        ("long_text", pa.string()),
        ("at2", pa.timestamp("us", "UTC")),
        ("u_day", pa.string()),
        ("u_at", pa.string()),
        ("u_slash", pa.string()),
        ("u_compact", pa.string()),
        ("u_t", pa.string()),
        ("sec", pa.int64()),
        ("l2", pa.list_(pa.int64())),
        ("lx", pa.list_(pa.float64())),
        ("ls", pa.list_(pa.string())),
        ("m2", pa.map_(pa.int64(), pa.string())),
        ("st", pa.struct([("b", pa.int64())])),
        ("ls2", pa.list_(pa.struct([("b", pa.int64())]))),
        ("num", pa.string()),
        ("js", pa.string()),
        ("lr", pa.list_(pa.float32())),
        ("dl", pa.list_(pa.decimal128(9, 2))),
        ("lb", pa.list_(pa.bool_())),
        ("tx", pa.string()),
    ]
)
VALUES: dict[str, list[Any]] = {
    "i": [0, 1, -1, 7, 2**31 - 1, -(2**31) + 1],
    "n": [0, 3, -3, 2**53 + 1, -(2**62), 10],
    "x": [0.0, -0.0, 1.5, -2.5, math.nan, math.inf, 1e300, -7.25],
    "d": [Decimal("0.00"), Decimal("1.50"), Decimal("-99.99")],
    "s": ["", "abc", " a b ", "Straße", "ÄÖ😀x", "aXbXc", "%_"],
    "t": ["", "abc", "zz", "Ünïcode", "0"],
    "f": [True, False],
    "day": [date(1970, 1, 1), date(2024, 2, 29), date(1999, 12, 31), date(2021, 1, 3)],
    "day2": [date(2000, 1, 1), date(1969, 7, 20)],
    "at": [
        datetime(1970, 1, 1, tzinfo=UTC),
        datetime(2024, 2, 29, 23, 59, 59, 999_999, UTC),
        datetime(1965, 6, 5, 4, 3, 2, 1, UTC),
    ],
    "l": [[], [1], [1, None, 3]],
    "m": [[], [("k", 1)], [("k", None), ("q", 2)]],
    "r": [0.1, -2.675, 1e10, -0.0],
    "line": ["ab", "ab\n", "a\r\n", "b\r", "a\n\n", "ab\u2028", "\r\n", "", "xb\n"],
    "u": ["hello wOrld", "a-b c", "  xX", "it's 1st", "a.b_c"],
    "long_text": ["x" * 31, "y" * 32, "z" * 75, "Ünï" * 20, "abcdefghi"],
    "at2": [
        datetime(2024, 1, 31, tzinfo=UTC),
        datetime(1999, 12, 30, 12, tzinfo=UTC),
        datetime(2024, 3, 31, 1, 1, 1, 5, tzinfo=UTC),
    ],
    "u_day": ["2024-02-29", "1999-12-31"],
    "u_at": ["2024-02-29 01:02:03", "1965-01-01 23:59:59"],
    "u_slash": ["1/2/2024", "12/31/1999", "02/03/2020"],
    "u_compact": ["20240229010203"],
    "u_t": ["2024-02-29T01:02:03.456"],
    "sec": [0, 1_700_000_000, -1, 86_399, -86_401],
    "l2": [[1, 2], [None, 5], [7, 8, 9]],
    "lx": [[math.nan, 1.5], [0.0], [-0.0, None], []],
    "ls": [["a", "abc"], ["", None], [], ["zz", "aXbXc"], [None]],
    "m2": [[(1, "a")], [(2, None), (1, "q")], []],
    "st": [{"b": 1}, {"b": None}],
    "ls2": [[{"b": 1}], [{"b": None}, {"b": 2}], [None]],
    "num": [
        "1", " 2 ", "+3", "-4", "1.5", "abc", "", "1e3", "NaN", "inf", "-Infinity", "1d", "1.f",
        ".5", "5.", "300", "99999999999", "true", "T", "no", "Y", "2020-01-01", "2020-1-1", "2020",
        "2020-02-30", "2020-01-01 10:00", "2020-01-01T", "1_000", "٣", "0", "+", "--1", "\t7\n",
        "infinityd",
    ],
    "js": [
        '{"a": 1, "b": {"c": [1, 2.50, {"d": "x"}]}}', ' [1e3, null, [true, {}], "a\\"b"] ',
        '{"a": "q\\u00e9\\n\\u001f/\\\\u001f\\ud83d\\ude00"}', '{"a": null, "a": 7}', "null", "",
        '{"a" : { "b" : -0, "c" : 12345678901234567890123, "e" : 0.5, "f": [ ] } } trailing',
        '{"a": "x\ny", "b": {"c": "Ü/\x7f", "😀": "\u2028😀"}}', "5", '{"a": [1,]}',
        '{"a": NaN}', "[]",
        '{"a": {"b": ["\\u0001", "\\b\\f\\t\\\\"]}, "x y": 1}', '{"a": 01}', '{"a": "1"',
        '{"a": {"a": {"c": null}}}', '{"a": [{"c": 1}, {"c": 2}], "b": {"c": []}}', '"text"',
    ],
    "lr": [[0.1, 0.7], [None, -2.675], [], [1e10]],
    "dl": [[Decimal("1.50"), None, Decimal("1.50")], [Decimal("-3.25")], []],
    "lb": [[True, None, True], [False], []],
    "tx": [
        "it's plain text", "2024-01-01", "12a", "null!", "true, 'x'", "-", "nullx", '{"a": it\'s}',
        '{"a": 1}\'', '"a"\'',
    ],
}  # fmt: skip
TEXTS = [
    "coalesce(i, 5)", "coalesce(x, n)", "coalesce(s, t, '?')", "nvl(day, day2)", "ifnull(d, n)",
    "nullif(i, 7)", "nullif(s, t)", "nvl2(i, s, t)", "if(f, s, t)", "if(i > 0, 1, -1)",
    "CASE WHEN i > 0 THEN 'p' WHEN i < 0 THEN 'm' ELSE s END", "CASE WHEN f THEN x END",
    "CASE i WHEN 1 THEN day WHEN 7 THEN day2 END", "CASE WHEN s = '' THEN 0 ELSE length(s) END",
    "greatest(i, n)", "greatest(x, 1.5e0)", "greatest(-0e0, x)",
    "greatest(s, t)", "greatest(day, day2)",
    "least(i, n, 3)", "least(x, 0e0)", "least(s, t)", "isnull(i)", "isnotnull(s)", "isnan(x)",
    "upper(s)", "lower(t)", "ucase(t)", "lcase(s)", "length(s)", "char_length(t)",
    "concat(s, t)", "s || '-' || t", "concat(s, i)", "concat(day, '!')", "substring(s, 2, 3)",
    "substring(s, 0, 2)", "substring(s, -3, 2)", "substring(s, -9, 8)", "substr(s, 2)",
    "substr(s, -2)", "substring(s, 2, -1)", "left(s, 2)", "left(s, -1)", "right(s, 2)",
    "right(s, 0)", "right(s, 99)", "trim(s)", "ltrim(s)", "rtrim(s)", "reverse(s)",
    "replace(s, 'X', '--')", "replace(s, '', 'q')", "repeat(s, 2)", "repeat(s, -1)",
    "lpad(s, 5, '*')", "rpad(s, 2)", "lpad(t, 0)", "startswith(s, 'a')", "endswith(s, 'c')",
    "contains(s, 'X')", "abs(x)", "abs(n)", "floor(i)", "ceil(n)", "floor(i / 2)", "sqrt(i)",
    "i div 2", "n div nullif(i, 0)", "try_mod(n, i)", "year(day)", "month(day)", "day(day)",
    "dayofmonth(at)", "quarter(day)",
    "dayofweek(day)", "weekday(day)", "dayofyear(day)", "weekofyear(day)", "year(at)", "hour(at)",
    "minute(at)", "second(at)", "last_day(day)", "date_add(day, 3)", "date_sub(day, i % 100)",
    "datediff(day, day2)", "trunc(day, 'MM')", "trunc(day, 'YEAR')", "trunc(day, 'QUARTER')",
    "trunc(day, 'WEEK')", "date_trunc('HOUR', at)", "date_trunc('WEEK', at)",
    "date_trunc('MONTH', at)", "size(l)", "m['k']", "m['none']",
    "nanvl(x, 1)", "round(x, 1)", "round(x)", "round(x, -2)", "round(d, 1)", "round(d)",
    "round(r, 2)", "bround(x, 0)", "bround(d, 1)", "ceiling(d)", "floor(d)", "abs(d)", "rint(x)",
    "sqrt(x)", "degrees(x)", "radians(x)", "sign(x)", "signum(i)", "pi()", "e()", "pmod(i, 3)",
    "pmod(x, 3)", "pmod(n, -7)", "x % 3", "x % 0.3e0", "d % 3", "d % 0.7", "n % 7", "mod(i, 4)",
    "i & 6", "i | 8", "i ^ 5", "~i", "n & 255", "i & n", "shiftleft(i, 3)", "shiftleft(n, 3)",
    "shiftright(i, 1)", "shiftright(n, 33)", "shiftrightunsigned(i, 2)",
    "shiftrightunsigned(n, 2)", "i << 2", "n >> 2", "bit_count(i)", "bin(i)", "bin(n)", "hex(i)",
    "hex(n)", "hex(s)", "nullifzero(i)", "zeroifnull(n)", "equal_null(i, n)", "try_divide(n, i)",
    "negative(x)", "positive(n)", "s ILIKE 'A%'", "t NOT ILIKE '%Z'", "s RLIKE '^[a-c]+$'",
    "regexp_like(s, 'X')", "s RLIKE '(?i)axb'", "s RLIKE '\\\\s'", "s rlike 'b$'",
    "line rlike 'b$'", "line rlike '^.*$'", "line rlike '\\\\r$'", "line rlike '^a\\\\s$'",
    "line rlike '^[^x]*$'", "regexp_extract(s, '([a-z])(.)')", "regexp_extract(s, 'a(X)?', 1)",
    "regexp_extract(s, '[^a]+', 0)", "regexp_extract(line, '(.*)$', 1)",
    "regexp_extract(line, '([^b]*)$', 1)", "regexp_replace(s, '[aX]', '-')",
    "regexp_replace(s, '(a)(.)', '$2$1\\\\\\\\x')", "regexp_count(s, '[a-c]')",
    "regexp_substr(s, 'X.')", "split(s, 'X')", "split(s, '[Xb]')", "split(s, 'X', 2)",
    "split(s, ' +', -1)", "split(s,'X',0)", "initcap(u)", "translate(s, 'abX', '12')",
    "instr(s, 'X')", "locate('X', s)", "locate('X', s, 3)", "locate('X', s, 0)",
    "locate('X', s, NULL)",
    "position('b' IN s)", "concat_ws('-', s, t, i)", "concat_ws(',')", "ascii(s)", "ascii(t)",
    "chr(i)", "octet_length(s)", "bit_length(s)", "overlay(s PLACING '--' FROM 2)",
    "overlay(s, 'Q', 2, 3)", "overlay(s, 'Q', 9)", "space(2)", "btrim(s)", "btrim(s, 'a ')",
    "trim(BOTH 'a' FROM s)", "trim(LEADING FROM s)", "trim(TRAILING 'c' FROM s)",
    "split_part(s, 'X', 2)", "split_part(s, 'X', -1)", "substring_index(s, 'X', 2)",
    "substring_index(s, 'X', -1)", "substring(s FROM 2 FOR 2)", "lpad(s, 6, 'ab')",
    "rpad(s, 6, 'xyz')", "lpad(s, 9, '')", "replace(s, 'X')", "md5(s)", "sha1(s)", "sha(t)",
    "sha2(s, 256)", "sha2(s, 512)", "sha2(s, 0)", "sha2(s, 1)", "crc32(s)", "hash(i)",
    "hash(n, s)", "hash(x)", "hash(d, i)", "xxhash64(s, d)",
    "hash(CAST(d AS DECIMAL(30, 4)))", "xxhash64(CAST(n AS DECIMAL(38, 18)), d)",
    "CAST(at AS DECIMAL(20, 6))", "hash(day, at, f)", "hash(s)", "hash(s, t, i)", "xxhash64(i, n)",
    "xxhash64(s)", "xxhash64(x, f, day)", "xxhash64(long_text)", "hash(long_text)", "hash(r)",
    "xxhash64(r)", "add_months(day, 1)", "add_months(day, i % 30)", "add_months(at, -13)",
    "months_between(at, day)", "months_between(day, day2)", "months_between(at, at2)",
    "months_between(at, at2, false)", "datediff(at, day2)", "date_diff(day, day2)",
    "last_day(at)", "next_day(day, 'MON')", "next_day(day, 'sunday')", "date_add(at, 3)",
    "dateadd(day, 2)", "date_trunc('DAY', day)", "date_trunc('MILLISECOND', at)",
    "date_trunc('QUARTER', at)", "date_trunc('SECOND', at)", "to_date(u_day)",
    "to_date(u_day, 'yyyy-MM-dd')", "to_timestamp(u_at, 'yyyy-MM-dd HH:mm:ss')",
    "to_date(u_slash, 'M/d/yyyy')", "to_timestamp(u_compact, 'yyyyMMddHHmmss')", "to_date(at)",
    "date(at)", "to_timestamp(day)", "to_timestamp(u_t, \"yyyy-MM-dd'T'HH:mm:ss.SSS\")",
    "date_format(at, 'yyyy-MM-dd HH:mm:ss.SSS')", "date_format(day, 'MMM d, yy')",
    "date_format(day, 'EEEE MMMM')", "date_format(at, \"E'x'H\")", "from_unixtime(sec)",
    "from_unixtime(sec, 'yyyy/MM')", "unix_timestamp(at)", "unix_seconds(at)", "unix_millis(at)",
    "unix_micros(at)", "unix_date(day)", "date_from_unix_date(i % 9999)",
    "timestamp_seconds(sec)", "timestamp_millis(sec)", "at + INTERVAL 1 DAY",
    "at - INTERVAL '3' MONTH", "day + INTERVAL 1 MONTH", "day - INTERVAL 7 DAYS",
    "day + INTERVAL 5 HOURS", "at + INTERVAL 1 DAY 2 HOURS", "INTERVAL 2 WEEKS + at",
    "at - INTERVAL '1.5' SECOND", "at - INTERVAL 1 YEAR", "at + INTERVAL -2 DAYS",
    "at - INTERVAL 90 MINUTES", "extract(YEAR FROM day)", "extract(DOW FROM day)",
    "date_part('month', at)", "extract(WEEK FROM day)", "extract(DOY FROM day)", "size(m)",
    "cardinality(l)", "size(array(NULL, NULL))",
    "size(array(array(NULL, NULL)))", "size(array(array(NULL, NULL))[0])",
    "size(flatten(array(array(NULL, NULL), array(NULL))))",
    "size(if(n > 1, array(NULL, NULL), array(NULL)))",
    "size(CASE WHEN n > 1 THEN array(NULL, NULL) ELSE array(NULL) END)",
    "size(coalesce(array(NULL, NULL), array(NULL)))",
    "size(concat(array(NULL, NULL), array(NULL)))",
    "size(map('a', array(NULL, NULL))['a'])", "size(named_struct('a', array(NULL, NULL)).a)",
    "size(get(transform(l, x -> array(NULL, NULL)), 0))", "size(reverse(array(NULL, NULL)))",
    "size(slice(array(NULL, NULL, NULL), 1, 2))", "size(filter(array(NULL, NULL), x -> x IS NULL))",
    "array_size(l)", "l2[0]", "l2[1]", "get(l, 0)", "get(l, i)", "get(l, -1)",
    "element_at(l2, 1)", "element_at(l2, -1)", "try_element_at(l, 2)", "try_element_at(l, -3)",
    "element_at(m, 'k')", "try_element_at(m, 'q')", "m2[1]", "m['q']", "array_contains(l, 1)",
    "array_contains(l, n)", "array_contains(l, 9)", "array_contains(lx, x)",
    "array_contains(ls, s)", "array_position(l, 3)", "array_position(ls, s)", "array_min(l)",
    "sort_array(l)", "sort_array(l, false)", "sort_array(ls)", "sort_array(ls, true)",
    "array_sort(l)", "array_sort(ls)", "array_distinct(l)", "array_distinct(ls)",
    "array_distinct(array(n, i, n, NULL, i, NULL))", "sort_array(array(s, NULL, t), false)",
    "array_sort(array(s, NULL, t))", "slice(l, 1, 2)", "slice(l, 2, 9)", "slice(ls, -1, 1)",
    "slice(l2, -2, i % 2 + 1)", "slice(l, 3, 0)", "slice(l, -9, 2)", "slice(array(i, n), 2, 1)",
    "array_max(l)", "array_max(ls)", "array_min(ls)", "map_contains_key(m, 'k')",
    "map_contains_key(m2, 2)", "map_keys(m)", "map_values(m)", "array(i, n)", "array(s, t, 'x')",
    "named_struct('a', i, 'b', s)", "struct(i, s AS z, i + n)", "named_struct('a', i).a", "st.b",
    "(st).b", "ls2[0].b", "split(s, 'X')[0]", "try_cast(num AS INT)", "try_cast(num AS BIGINT)",
    "try_cast(num AS DOUBLE)", "try_cast(num AS TINYINT)", "try_cast(num AS BOOLEAN)",
    "try_cast(num AS DATE)", "try_cast(i AS TINYINT)", "try_cast(n AS INT)", "try_cast(x AS INT)",
    "try_cast(x AS BIGINT)", "try_cast(i AS DOUBLE)", "try_cast(s AS STRING)", "int(f)",
    "double(i)", "bigint(d)", "string(i)", "i::bigint", "dayofweek(at)", "left(NULL, 2)",
    "array_contains(l, NULL + 1)", "concat_ws('-', NULL, s)", "i in (1, 7)", "floor(r)",
    "ceil(r)", "timestamp_micros(sec)", "element_at(array(s, t), 1)",
    "make_date(2024, 2, day(day) % 28 + 1)", "day + 3", "i | (n & 6)", "i % 9 + 1 & 6",
    "convert_timezone('Europe/Berlin', 'America/New_York', CAST(at AS TIMESTAMP_NTZ))",
    "i << 1 >> 2", "n - i % 7 * 2 & 3 & 1", "day - i % 9",
    "xxhash64(CAST(f AS SMALLINT))", "u_day = DATE '2024-02-29'", "u_day < DATE '2000-01-01'",
    "u_day IN (DATE '1999-12-31', NULL)", "if(f, 'true', 'false') = true",
    "if(f, 'true', 'false') IN (false)",
    "transform(l, e -> e + n)", "transform(ls, e -> upper(e))", "transform(l, (e, at) -> e * at)",
    "transform(ls, e -> e = s)", "filter(l, e -> e % 2 = 1)", "filter(ls, (e, p) -> p > 0)",
    "filter(l, e -> e > n AND e IS NOT NULL)", "exists(l, e -> e > 2)", "exists(ls, e -> e = t)",
    "forall(l, e -> e > 0)", "forall(ls, E -> e LIKE '%X%')", "exists(l, e -> NULL)",
    "aggregate(l, CAST(0 AS BIGINT), (a, e) -> a + e)", "aggregate(lx, 0D, (a, e) -> a + e * x)",
    "reduce(ls, '', (a, e) -> concat(a, coalesce(e, '?')), a -> length(a))",
    "aggregate(l, n, (a, e) -> if(e > a, e, a), a -> a * 2)", "size(filter(l, e -> e = i)) > 0",
    "transform(ls2, e -> e.b + n)", "exists(l, e -> exists(l2, o -> o = e AND n > 0))",
    "transform(l, e -> size(filter(l2, e -> e > 1)) + e)", "filter(l, e -> array_contains(l2, e))",
    "get(transform(l, e -> struct(e AS z, s)), 0).z", "transform(l, e -> array(e, e))",
    "exists(array(i, n), e -> e > 0)", "transform(l, `n` -> `n` + 1)", "forall(l, e -> true)",
    "aggregate(slice(l, 1, 0), n, (a, e) -> a)",
    "r + r", "r - r * r", "r * r", "r / -0.7F", "r % (abs(r) + 1F)", "r % -0.7F", "-r", "-r * 0.1F",
    "r + x", "r * i", "r * 2.5", "r + 1", "0 - r", "negative(d)", "-i", "abs(r) + r",
    "greatest(r, -r)", "if(f, r, r * r)", "coalesce(r * r, 0F)", "transform(lr, e -> e + e)",
    "transform(lr, e -> e * r - 0.1F)", "transform(lr, e -> e / e)",
    "transform_keys(m, (k, v) -> concat(k, '!'))", "map_filter(m, (k, v) -> v > 1)",
    "map_zip_with(m, m, (k, a, b) -> a + b)", "smallint(i % 9)", "tinyint(n % 9)", "float(i % 9)",
    "boolean(i)", "binary(s)",
    "zip_with(lr, lr, (a, b) -> a * b)", "transform_values(map('k', r), (k, v) -> v * v)",
    "filter(lr, e -> e * e = e * 0.1F)", "aggregate(lr, 0F, (a, e) -> a + e * e)",
    "aggregate(lr, CAST(1 AS FLOAT), (a, e) -> a * e)",
    "aggregate(lr, r, (a, e) -> a - e, a -> a * a)", "exists(lr, e -> e + e > r + r)",
    "r = 0.1F", "r IN (0.1F)", "r >= 0.1F", "-r = -0.1F", "r + r = 0.2F", "abs(r) = 0.1F",
    "coalesce(r, 0F) = 0.1F", "r = 0.1", "r IN (0.1, -2.675F)", "x < 0.1F",
    "r <=> CAST('0.1' AS FLOAT)", "CAST(CAST(0.1 AS FLOAT) AS DOUBLE) = r", "r = '0.1'",
    "array_union(l, l2)", "array_union(ls, array(s, NULL))", "array_union(dl, dl)",
    "array_union(lb, lb)", "arrays_overlap(dl, dl)", "arrays_overlap(array(d), dl)",
    "array_union(array(i), l2)",
    "array_intersect(l, l2)", "array_intersect(l2, l)", "array_intersect(ls, array(s, t, NULL))",
    "array_intersect(array(day, day2, day), array(day))", "array_except(l, l2)",
    "array_except(ls, array(s, t))", "array_except(array(n, NULL, 3, n), l)",
    "array_except(lb, array(f))", "arrays_overlap(l, l2)", "arrays_overlap(ls, array(s, t))",
    "arrays_overlap(array(i), l)", "arrays_overlap(lb, array(f))", "array_remove(l, 1)",
    "array_remove(l, n)", "array_remove(ls, s)", "array_remove(lx, x)", "array_remove(l2, i)",
    "array_join(ls, ',')", "array_join(ls, '')", "array_join(ls, '-', '?')",
    "array_join(ls, ',', CAST(NULL AS STRING))", "array_join(split(s, 'X'), '--')", "reverse(l)",
    "reverse(ls)", "reverse(ls2)", "reverse(lx)", "concat(l, l2)", "concat(l, array(i), l2)",
    "concat(ls, ls)", "concat(l)", "concat(ls2, array(st))",
    "flatten(array(l, l2))", "flatten(array(l2, array(n)))",
    "flatten(transform(l2, e -> array(e, n)))", "flatten(array(array(ls), array(ls, ls)))",
    "sequence(1, i % 5)", "sequence(n % 4, 9, 3)", "sequence(5, i % 3, -2)", "sequence(i, i)",
    "sequence(i, i, 0)", "sequence(day, date_add(day, i % 5))", "sequence(1, 3)[2]",
    "map('a', i, 'b', n)", "map(coalesce(s, '!'), t)", "map(1, s, 2, NULL)", "map('k', l)['k']",
    "map(DATE '2020-01-01', array(i))", "map('a', 1)['b']",
    "map_from_arrays(array('a', 'b'), array(i, n))", "map_from_arrays(sequence(1, size(l2)), l2)",
    "map_from_arrays(array_except(ls, array(NULL)), array_except(ls, array(NULL)))",
    "map_keys(map('x', n))", "get_json_object(js, '$')", "get_json_object(js, '$.a')",
    "get_json_object(js, '$.a.b')", "get_json_object(js, '$.b.c')", "get_json_object(js, '$[1]')",
    "get_json_object(js, '$.b.c[2].d')", "get_json_object(js, '$[2][1]')",
    "get_json_object(js, '$[3]')", "get_json_object(js, '$[\\'x y\\']')",
    "get_json_object(js, '$.a[\\'c\\']')", "get_json_object(js, '$.a.a.c')",
    "get_json_object(js, '$.a[0]')", "get_json_object(js, '$.A')", "get_json_object(js, '$.x y')",
    "get_json_object(js, NULL)", "get_json_object(tx, '$.a')",
    "get_json_object(tx, '$[0]')", "get_json_object(line, '$.a')",
    "transform(l, e -> if(e > 1, 'x', s))",
]  # fmt: skip
TYPES = from_arrow(SCHEMA)


def random_rows(count: int) -> pa.Table:
    """Return rows in which all values meet, nulls among them."""
    columns = {}
    for place, (name, values) in enumerate(VALUES.items()):
        cycle = [*values, None]
        columns[name] = [cycle[(row * (place + 1) + row // 7) % len(cycle)] for row in range(count)]
    return pa.table(columns, SCHEMA)


def ours(text: str, rows: pa.Table) -> list[Any]:
    (batch,) = rows.combine_chunks().to_batches()
    bound, _ = bind_value(parse_sql(text), TYPES)
    found = evaluate(bound, batch)
    return found.to_pylist()


def plain(values: Sequence[Any]) -> list[Any]:
    """Return values so that NaN equals NaN, zeros differ by sign, and two number types compare."""
    result: list[Any] = []
    for value in values:
        if isinstance(value, list | tuple):
            value = plain(value)
        if isinstance(value, dict):
            value = plain([*value.items()])
        if isinstance(value, float) and value == 0:
            value = ("0", math.copysign(1, value))
        if isinstance(value, float) and math.isnan(value):
            value = "NaN"
        if isinstance(value, datetime):
            value = value.replace(tzinfo=None)
        result.append(value)
    return result


@pytest.mark.slow
@pytest.mark.spark
def test_functions_mean_what_spark_means(spark: "SparkSession") -> None:
    rows = random_rows(120)
    frame = spark.createDataFrame(rows)
    zone = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    try:
        parts = [TEXTS[start : start + 100] for start in range(0, len(TEXTS), 100)]
        theirs = [  # Spark plans a hundred columns at a time faster than all together.
            frame.selectExpr(*(f"{text} AS c{n}" for n, text in enumerate(part))).toArrow()
            for part in parts
        ]
    finally:
        spark.conf.set("spark.sql.session.timeZone", zone or "UTC")
    found = [column for part in theirs for column in part.columns]
    for text, column in zip(TEXTS, found, strict=True):
        assert plain(ours(text, rows)) == plain(column.to_pylist()), text
        if "float" in str(column.type) or "double" in str(column.type):
            kind = arrow_type(bind_value(parse_sql(text), TYPES)[1])
            assert str(kind).replace(" not null", "") == str(column.type).replace(" not null", "")


REAL = [
    *(f"{name}({value})" for value in ("x", "x / 1e299", "r", "d", "i", "n % 5", "0.7", "-0e0")
      for name in ("exp", "expm1", "ln", "log", "log2", "log10", "log1p", "cbrt", "sin", "cos",
                   "tan", "cot", "sec", "csc", "asin", "acos", "atan", "sinh", "cosh", "tanh")),
    *(f"{name}({a}, {b})" for name in ("pow", "power", "log", "hypot", "atan2")
      for a in ("x", "d", "1", "-1e0", "2") for b in ("x", "i", "n % 5", "0.5")),
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.spark
def test_functions_of_real_numbers_are_near_those_of_spark(spark: "SparkSession") -> None:
    rows = random_rows(60)
    frame = spark.createDataFrame(rows)
    for start in range(0, len(REAL), 90):
        part = REAL[start : start + 90]
        theirs = frame.selectExpr(*(f"{text} AS c{n}" for n, text in enumerate(part))).toArrow()
        for text, column in zip(part, theirs.columns, strict=True):
            for found, expected in zip(ours(text, rows), column.to_pylist(), strict=True):
                if found is None or expected is None:
                    assert found == expected, text
                    continue
                assert found == pytest.approx(expected, rel=2e-15, abs=0, nan_ok=True), text
                if found == 0:
                    assert math.copysign(1, found) == math.copysign(1, expected), text


@pytest.mark.parametrize("text", ["n / i", "n % i", "n div i", "pmod(n, i)", "d / i", "x / 0e0"])
def test_divisors_of_zero_are_errors(text: str) -> None:
    with pytest.raises(InvalidInputError, match="by 0"):
        ours(text, random_rows(12))


def form(node: object) -> str:
    """Return all parts of a tree as text, in which NaN equals itself."""
    if isinstance(node, tuple):
        return f"({', '.join(map(form, node))})"
    if not isinstance(node, Expression):
        return repr(node)
    return f"{type(node).__name__}{form(tuple(vars(node).values()))}"


@pytest.mark.slow
@pytest.mark.parametrize("text", TEXTS)
def test_calls_are_written_and_read_back(text: str) -> None:
    parsed = parse_sql(text)
    again = parse_sql(to_sql(parsed))
    assert form(again) == form(parsed)
    bound, kind = bind_value(parsed, TYPES)
    assert bind_value(parse_sql(to_sql(bound)), TYPES)[1] == kind
    assert {path[0] for path in columns_of(bound)} <= set(SCHEMA.names)


def test_every_function_is_tried() -> None:
    texts = [*TEXTS, *REAL]
    written = " ".join(texts)
    tried = " ".join(map(to_sql, map(parse_sql, texts)))
    names = {
        **{operator: f" {operator} " for operator in ("div", "&", "|", "^", "~")},
        "~": "(~ ",
        "[]": "[",
        "field": ").`",
        "plus_months": "' MONTH)",
        "plus_days": "' DAY)",
        "plus_micros": "' MICROSECOND)",
    }
    assert [
        name
        for name, entry in FUNCTIONS.items()
        if name not in NOW  # Their values are constants.
        and name != "timestamp_in_zone"  # Spark has none; test_zones.py tries it.
        and names.get(name, f"{name}(") not in (written if isinstance(entry, Rewrite) else tried)
    ] == []


def test_every_name_means_one_function() -> None:
    aliases = [alias for entry in FUNCTIONS.values() for alias in entry.aliases]
    assert not set(aliases) & set(FUNCTIONS)
    assert len(ALIASES) == len(aliases)


@pytest.mark.parametrize(
    "text", ["`&`(1, 2)", "`[]`(l, 0)", "field(st, 'b')", "try_cast(s, 'int')", "plus_days(day, 1)"]
)
def test_syntax_has_no_name(text: str) -> None:
    with pytest.raises(InvalidInputError):
        parse_sql(text)


@settings(max_examples=examples(40), deadline=None)
@given(st.lists(st.sampled_from(range(120)), max_size=6), st.sampled_from(TEXTS))
def test_rows_do_not_depend_on_others(chosen: list[int], text: str) -> None:
    rows = random_rows(120)
    whole = plain(ours(text, rows))
    if chosen:
        assert plain(ours(text, rows.take(chosen))) == [whole[row] for row in chosen]
    (none,) = rows.slice(0, 0).combine_chunks().to_batches() or [
        pa.RecordBatch.from_pylist([], SCHEMA)
    ]
    bound, _ = bind_value(parse_sql(text), TYPES)
    assert len(evaluate(bound, none)) == 0


def test_case_computes_values_of_its_rows_alone() -> None:
    rows = pa.table({"s": ["1", "x", None]}, pa.schema([("s", pa.string())]))
    (batch,) = rows.to_batches()
    text = "CASE WHEN s = 'x' THEN -1 ELSE CAST(s AS BIGINT) END"
    bound, _ = bind_value(parse_sql(text), from_arrow(rows.schema))
    assert evaluate(bound, batch).to_pylist() == [1, -1, None]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("upper(i)", "upper needs string, not integer"),
        ("year(s)", "year needs date"),
        ("coalesce(s, i)", "coalesce needs values of one type, not string, integer"),
        ("CASE WHEN i THEN 1 END", "AND, OR and NOT need boolean values"),
        ("CASE WHEN f THEN 1 ELSE s END", "the values of CASE have no common type"),
        ("substring(s, i, 2)", "needs a constant of type"),
        ("left(s, n)", "needs a constant of type"),
        ("trunc(day, 'HOUR')", "does not know the unit"),
        ("size(s)", "size needs array or map, not string"),
        ("l['k']", "needs whole numbers as the index"),
        ("abs(s)", "abs needs"),
        ("my_udf(s)", "the SQL function MY_UDF is not supported"),
        ("acosh(x)", "the SQL function ACOSH is not supported"),
        ("m[s]", "needs a constant key"),
        ("l2[7]", "out of the bounds of an array"),
        ("element_at(l2, 0)", "0 is not an index"),
        ("initcap(concat(s, 'é'))", "only ASCII"),
        ("shiftleft(1, i)", "does not shift constants"),
        ("hash(1)", "needs columns or casts"),
        ("to_date(num, 'yyyy-MM-dd')", "does not match the pattern"),
        ("to_date(s, 'yyyy-DDD')", "does not support DDD"),
        ("at + INTERVAL '1-2' YEAR TO MONTH", "the interval .* is not supported"),
        ("regexp_replace(s, 'x*', '')", "may match an empty string"),
        ("regexp_extract(s, '(a|b)+', 1)", "does not support group 1"),
        ("split(s, '')", "may match an empty string"),
        ("try_cast(l AS STRING)", "a cast of array<long> to string is not supported"),
        ("array_max(lx)", "does not support array<double>"),
        ("sort_array(lx)", "does not support array<double>"),
        ("slice(l2, 0, 1)", "needs a start from 1"),
        ("slice(l2, 1, -1)", "a length of at least 0"),
        ("concat_ws(NULL, s)", "needs a separator"),
        ("named_struct('a', i).b", "not a field"),
        ("i | n & 6", "Put parentheses"),
        ("s || i + 1", "Put parentheses"),
        ("length(e -> e)", "length takes no function such as x -> x"),
        ("zip_with(l, m, (a, b) -> a)", "zip_with needs an array, not map"),
        ("zip_with(l, l2, a -> a)", r"zip_with needs a function such as \(a, x\) -> a"),
        ("zip_with(l, (a, b) -> a)", "zip_with needs 3 arguments"),
        ("map_zip_with(m, m2, (k, a, b) -> k)", "needs two maps with keys of one type"),
        ("map_zip_with(m, m, (a, b) -> a)", r"needs a function such as \(k, a, b\) -> a"),
        ("map_filter(m, (k, v) -> v)", "map_filter needs a function that is true or false"),
        ("map_filter(l, (k, v) -> true)", "map_filter needs a map, not array"),
        ("transform_values(m, (k, v) -> NULL)", "transform_values needs a typed NULL"),
        ("transform_keys(m2, (k, v) -> 'x')", "gave a key twice in one map"),
        ("transform_keys(m2, (k, v) -> v)", "gave a null"),
        ("transform_keys(m, (k, v) -> 0D)", "does not support keys of type double"),
        ("array_sort(l, (a, b) -> a - b)", "array_sort takes no function such as x -> x"),
        ("transform(m, e -> 1)", "transform needs an array, not map"),
        ("transform(l, 1)", "transform needs a function such as x -> x"),
        ("transform(l, (e, e) -> e)", "variables with different names"),
        ("transform(l, e -> NULL)", "transform needs a typed NULL"),
        ("filter(l, e -> e + 1)", "filter needs a function that is true or false, not long"),
        ("exists(l, (e, at) -> true)", "exists needs a function such as x -> x"),
        ("exists(l)", "exists needs 2 arguments"),
        (
            "aggregate(lx, 0, (a, e) -> a + e)",
            "has a start value of type integer, but its function gives double",
        ),
        ("aggregate(l, 0, e -> e)", "aggregate needs a function such as"),
        ("exists(l, e -> missing = e)", "no column missing"),
        ("array_union(lx, lx)", "array_union does not support array<double>"),
        ("array_except(ls2, ls2)", "array_except does not support array<struct"),
        ("array_union(l, ls)", "array_union needs values of one type"),
        ("array_union(NULL, NULL)", "array_union needs an array, not only NULL"),
        ("array_except(NULL, NULL)", "array_except needs an array, not only NULL"),
        ("array_remove(l, s)", "array_remove looks for long, not for string"),
        ("array_join(l, ',')", "array_join needs an array of strings, not array<long>"),
        ("array_join(ls, s)", "array_join needs a constant"),
        ("concat(l, s)", "concat puts texts together, or arrays, but not both"),
        ("flatten(l)", "flatten needs an array of arrays, not array<long>"),
        ("sequence(1, 5, -1)", "sequence does not reach 5 from 1 by -1"),
        ("sequence(1, 5, 0)", "sequence does not reach 5 from 1 by 0"),
        ("sequence(-9223372036854775807, n)", "sequence gives more than"),
        ("sequence(day, day2, 7)", "sequence needs whole numbers, or two dates without a step"),
        ("sequence(at, at2)", "sequence needs whole numbers or date, not timestamp"),
        ("sequence(day, day2, INTERVAL 1 DAY)", "sequence does not support intervals"),
        ("map('a', 1, 'b')", "map needs keys and values alternately"),
        ("map('a', 1, 'a', 2)", "map gave a key twice in one map"),
        ("map(s, 1)", "map gave a null, which is not a key"),
        ("map(x, 1)", "map does not support keys of type double"),
        ("map('a', NULL)", "map needs a typed NULL"),
        ("map_from_arrays(array(1, 2), array(3))", "needs as many values as keys"),
        ("map_from_arrays(l2, l2)", "map_from_arrays gave a null"),
        ("get_json_object(js, '$.a[*]')", "get_json_object needs a path of names and indexes"),
        ("get_json_object(js, '$. a')", "get_json_object needs a path of names and indexes"),
        ("get_json_object(js, s)", "get_json_object needs a constant"),
        ("get_json_object('{''a'': 1}', '$.a')", "does not read JSON with single quotes"),
        ("get_json_object('{\"a\": 1e9}', '$.a')", "does not write the number 1e9"),
        ("get_json_object('[1e99999999999999999999]', '$')", "does not write the number 1e9"),
        (f"get_json_object('{'1' * 1001}', '$')", "does not write the number 111"),
        ("get_json_object('1x', '$')", "does not read a value that other text follows"),
        ("get_json_object('\"\\\\ud800\"', '$')", "does not read the escapes"),
    ],
)
def test_what_spark_would_compute_otherwise_is_refused(text: str, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        ours(text, random_rows(9))


@pytest.mark.parametrize("depth", [400, 3000])
def test_deep_json_is_refused(depth: int) -> None:
    rows = pa.table({"js": ['{"a":' * depth + "1" + "}" * depth]})
    bound, _ = bind_value(parse_sql("get_json_object(js, '$.a')"), from_arrow(rows.schema))
    with pytest.raises(InvalidInputError, match="nested too deeply"):
        evaluate(bound, rows)


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        ("dl", "array(CAST(1.5 AS DECIMAL(12, 4)))", [True, False, False]),
        ("dl", "array(1.501)", [None, False, False]),
        ("dl", "array(-3, 1)", [None, False, False]),
        ("array(CAST(-3.25 AS DECIMAL(3, 2)), 7)", "dl", [None, True, False]),
    ],
)
def test_overlap_of_decimals_does_not_depend_on_the_order(
    one: str, other: str, expected: list[Any]
) -> None:
    rows = random_rows(3)
    assert ours(f"arrays_overlap({one}, {other})", rows) == expected
    assert ours(f"arrays_overlap({other}, {one})", rows) == expected


def test_zeros_have_the_sign_that_spark_gives_them() -> None:
    rows = pa.table({"x": [0.0, -0.0]})
    for text, expected in {
        "least(x, 0e0)": "0.0 -0.0", "greatest(x, 0e0)": "0.0 -0.0", "least(0e0, x)": "0.0 0.0",
        "round(x, 1)": "0.0 0.0", "bround(x)": "0.0 0.0",
    }.items():  # fmt: skip
        bound, _ = bind_value(parse_sql(text), from_arrow(rows.schema))
        assert " ".join(map(str, evaluate(bound, rows).to_pylist())) == expected, text


def test_an_array_of_nulls_has_no_value() -> None:
    rows = random_rows(1)
    assert ours("array_remove(array(NULL), 1)", rows) == [[None]]
    assert ours("array_remove(array(NULL), 'a')", rows) == [[None]]
    assert ours("array_contains(array(NULL), 1)", rows) == [None]
    assert ours("array_position(array(NULL), 'a')", rows) == [0]


@pytest.mark.parametrize(
    "text",
    [
        "it's plain text",
        "it, 'x'",
        "2024-01-01",
        "12a",
        "null!",
        "true'",
        "12, 'a'",
        '{"a": it\'s}',
    ],
)
def test_text_that_is_no_json_has_no_part(text: str) -> None:
    rows = pa.table({"js": [text, '{"a": 7}']})
    bound, _ = bind_value(parse_sql("get_json_object(js, '$.a')"), from_arrow(rows.schema))
    assert evaluate(bound, rows).to_pylist() == [None, "7"]


def test_functions_in_predicates() -> None:
    (batch,) = random_rows(60).combine_chunks().to_batches()
    bound = bind(parse_sql("upper(s) = 'ABC' AND year(day) BETWEEN 1990 AND 2030"), TYPES)
    true = evaluate(bound, batch).to_pylist()
    rows = batch.to_pylist()
    expected = [
        None not in (row["s"], row["day"])
        and row["s"].upper() == "ABC"
        and 1990 <= row["day"].year <= 2030
        for row in rows
    ]
    assert [bool(one) for one in true] == expected


FLOAT_TEXTS = {
    "r = 0.1F": 1, "r IN (0.1F, 0.7)": 1, "r >= 0.7F": 1, "r > 0.7F": 0, "-r = 0.1F": 1,
    "abs(r) = 0.1F": 2, "r = 0.1": 0, "r > 0.1": 3, "r < CAST(1e39 AS FLOAT)": 4, "x < 0.1F": 2,
    "p = 0.1F": 1, "p IN (0.1F, 0.7F)": 2,
}  # fmt: skip


def test_constants_of_type_float_compare_as_32_bits(tmp_path: Path) -> None:
    values = [0.1, -0.1, 0.2, 0.7]
    single = pa.array(values, pa.float32())
    rows = pa.table({"r": single, "p": single, "x": values})
    table = txlog.write(tmp_path / "t", rows, partition_by=["p"])
    for text, count in FLOAT_TEXTS.items():
        found = table.count(text), table.to_polars(where=text).height, table.count(f"NOT ({text})")
        assert found == (count, count, 4 - count), text
    assert table.delete("r IN (0.1F)").metrics["numDeletedRows"] == 1
    table.alter.add_constraint({"most": "r <= 0.7F"})
    table.append(rows)
    with pytest.raises(txlog.SchemaMismatchError, match="most"):
        table.append(pa.table({"r": pa.array([0.71], pa.float32()), "p": single[:1], "x": [0.0]}))


@pytest.mark.parametrize(
    "text",
    [
        "`s` = 's' OR \"s\" = 'x'",
        "n > 1 AND NOT \"s\" <> 'other'",
        "'i' IN (1, 2)",
        "\"s\" LIKE 'a%'",
        '"s" IS NULL',
    ],
)
def test_a_column_in_quotes_is_refused(text: str) -> None:
    with pytest.raises(
        InvalidInputError, match="in quotes is a text and not a column, as in Spark"
    ):
        bind(parse_sql(text), TYPES)


@pytest.mark.parametrize("text", ["s = 's'", "'q' = 'w'", "s IN ('s', 'i')", "lower('S') = 's'"])
def test_texts_that_are_like_columns_are_texts(text: str) -> None:
    bind(parse_sql(text), TYPES)


LISTS = st.lists(
    st.none() | st.lists(st.none() | st.integers(-3, 3), max_size=4), min_size=1, max_size=8
)


@settings(max_examples=examples(100))
@given(LISTS, st.integers(0, 3), st.integers(-3, 3))
def test_lambdas_do_as_the_same_in_python(lists: list[Any], cut: int, n: int) -> None:
    types = pa.schema([("l", pa.list_(pa.int64())), ("n", pa.int64())])
    rows = [{"l": values, "n": n + place} for place, values in enumerate(lists)]
    batch = pa.RecordBatch.from_pylist(rows, types).slice(min(cut, len(rows) - 1))
    texts = {
        "transform(l, (e, at) -> e * at + n)": lambda values, n: [
            None if e is None else e * at + n for at, e in enumerate(values)
        ],
        "filter(l, e -> e > n)": lambda values, n: [e for e in values if e is not None and e > n],
        "exists(l, e -> e > n)": lambda values, n: (
            any(e is not None and e > n for e in values) or (None if None in values else False)
        ),
        "forall(l, e -> e > n)": lambda values, n: (
            all(e is None or e > n for e in values) and (None if None in values else True)
        ),
        "aggregate(l, n, (a, e) -> a * 2 + coalesce(e, 0), a -> a - n)": lambda values, n: (
            reduce(lambda a, e: a * 2 + (e or 0), values, n) - n
        ),
    }
    for text, expected in texts.items():
        bound, _ = bind_value(parse_sql(text), from_arrow(types))
        assert evaluate(bound, batch).to_pylist() == [
            None if row["l"] is None else expected(row["l"], row["n"]) for row in batch.to_pylist()
        ], text


MAPS = st.lists(
    st.none() | st.dictionaries(st.sampled_from("abc"), st.none() | st.integers(-3, 3)),
    min_size=2,
    max_size=8,
)


@settings(max_examples=examples(100))
@given(MAPS, LISTS, st.integers(0, 3))
def test_lambdas_of_maps_do_as_the_same_in_python(
    maps: list[Any], lists: list[Any], cut: int
) -> None:
    pairs = pa.map_(pa.string(), pa.int64())
    types = pa.schema([("m", pairs), ("o", pairs), ("l", pa.list_(pa.int64()))])
    rows = [
        {
            "m": one and list(one.items()),
            "o": other and list(other.items()),
            "l": lists[place % len(lists)],
        }
        for place, (one, other) in enumerate(zip(maps, reversed(maps), strict=True))
    ]
    batch = pa.RecordBatch.from_pylist(rows, types).slice(min(cut, len(rows) - 1))

    def zipped(row: dict[str, Any]) -> Any:
        if row["m"] is None or row["o"] is None:
            return None
        one, other = dict(row["m"]), dict(row["o"])
        return [(k, (one.get(k) or 0) * 10 + (other.get(k) or 0)) for k in {**one, **other}]

    def beside(row: dict[str, Any]) -> Any:
        values = row["l"]
        if values is None:
            return None
        return [
            (a or 0) * 10 + (b or 0)
            for a, b in zip_longest(values, [e for e in values if e and e > 0])
        ]

    def each(change: Any) -> Any:
        return lambda row: None if row["m"] is None else change(row["m"])

    texts = {
        "transform_keys(m, (k, v) -> concat(k, '!'))": each(lambda m: [(f"{k}!", v) for k, v in m]),
        "transform_values(m, (k, v) -> v + 1)": each(
            lambda m: [(k, None if v is None else v + 1) for k, v in m]
        ),
        "map_filter(m, (k, v) -> v > 0 OR k = 'a')": each(
            lambda m: [(k, v) for k, v in m if k == "a" or (v or 0) > 0]
        ),
        "map_zip_with(m, o, (k, a, b) -> coalesce(a, 0) * 10 + coalesce(b, 0))": zipped,
        "zip_with(l, filter(l, e -> e > 0), (a, b) -> coalesce(a, 0) * 10 + coalesce(b, 0))": (
            beside
        ),
    }
    for text, expected in texts.items():
        bound, _ = bind_value(parse_sql(text), from_arrow(types))
        assert evaluate(bound, batch).to_pylist() == [expected(row) for row in batch.to_pylist()]


@settings(max_examples=examples(100))
@given(LISTS, LISTS, st.integers(0, 3))
def test_arrays_do_as_the_same_in_python(lists: list[Any], others: list[Any], cut: int) -> None:
    kind = pa.list_(pa.int64())
    types = pa.schema([("l", kind), ("o", kind), ("ll", pa.list_(kind))])
    rows = [
        {"l": one, "o": others[place % len(others)], "ll": others[: place % 3]}
        for place, one in enumerate(lists)
    ]
    batch = pa.RecordBatch.from_pylist(rows, types).slice(min(cut, len(rows) - 1))
    texts = {
        "array_union(l, o)": lambda a, b: list(dict.fromkeys(a + b)),
        "array_intersect(l, o)": lambda a, b: [e for e in dict.fromkeys(a) if e in b],
        "array_except(l, o)": lambda a, b: [e for e in dict.fromkeys(a) if e not in b],
        "array_remove(l, size(o))": lambda a, b: [e for e in a if e != len(b)],
        "concat(l, o, l)": lambda a, b: a + b + a,
        "reverse(concat(l, o))": lambda a, b: [*reversed(a + b)],
        "arrays_overlap(l, o)": lambda a, b: (
            True if {*a} & {*b} - {None} else None if a and b and None in a + b else False
        ),
    }
    for text, expected in texts.items():
        wanted = [
            None if row["l"] is None or row["o"] is None else expected(row["l"], row["o"])
            for row in batch.to_pylist()
        ]
        bound, _ = bind_value(parse_sql(text), from_arrow(types))
        assert evaluate(bound, batch).to_pylist() == wanted, text
    bound, _ = bind_value(parse_sql("flatten(ll)"), from_arrow(types))
    assert evaluate(bound, batch).to_pylist() == [
        None if None in row["ll"] else [e for one in row["ll"] for e in one]
        for row in batch.to_pylist()
    ]


def test_lambdas_in_verbs(tmp_path: Path) -> None:
    rows = pa.table({"id": [1, 2, 3], "l": [[1, 2], [5], None]})
    table = txlog.write(tmp_path / "t", rows, options=txlog.WriteOptions(max_rows_per_file=1))
    assert table.to_arrow(["id"], "exists(l, e -> e > 4)")["id"].to_pylist() == [2]
    assert table.count("NOT exists(l, e -> e = id)") == 1
    table.update({"l": "transform(l, e -> e + id)"}, "forall(l, e -> e < 5)")
    assert table.to_arrow().sort_by("id")["l"].to_pylist() == [[2, 3], [5], None]
    table.alter.add_constraint({"small": "l IS NULL OR forall(l, e -> e < 9)"})
    with pytest.raises(txlog.SchemaMismatchError, match="small"):
        table.append(pa.table({"id": [4], "l": [[1, 9]]}))
    source = pa.table({"id": [2], "more": [[7, 8]]})
    (
        table.merge(source, "target.id = source.id")
        .when_matched_update(
            {"l": "filter(source.more, e -> e > 7)"}, "exists(target.l, e -> e = source.id + 3)"
        )
        .execute()
    )
    assert table.to_arrow(where="id = 2")["l"].to_pylist() == [[8]]
    assert table.delete("size(filter(l, e -> e > 2)) = 1").metrics["numDeletedRows"] == 2


@pytest.fixture
def days(tmp_path: Path) -> txlog.Table:
    """Return a table of one file for each of the last 30 days."""
    now = datetime.now(UTC)
    table = None
    for age in range(30):
        at = pa.array([now - timedelta(days=age, minutes=1)], pa.timestamp("us", "UTC"))
        rows = pa.table({"at": at, "day": at.cast(pa.date32()), "age": [age]})
        table = txlog.write(tmp_path / "t", rows, mode="append")
    assert table is not None
    return table


@pytest.mark.parametrize(
    ("where", "count"),
    [
        ("at >= current_timestamp() - INTERVAL 7 DAYS", 7),
        ("at >= now() - INTERVAL '2' DAY - INTERVAL 12 HOURS", 3),
        ("day > date_sub(current_date, 90) AND at < now() - INTERVAL 3 WEEKS", 9),
        ("CAST(at AS DATE) IN (date_add(to_date('2020-01-01'), 1))", 0),
    ],
)
def test_times_of_now_rule_out_files(days: txlog.Table, where: str, count: int) -> None:
    assert days.count(where) == count
    assert days.scan(where=where).explain().files_to_read <= (count + 1 if count else 30)


def test_now_is_one_moment_and_never_stored(days: txlog.Table) -> None:
    days.update({"at": "current_timestamp()"}, "age < 5")
    moments = days.to_arrow(columns=["at"], where="age < 5")["at"].unique()
    assert len(moments) == 1
    with pytest.raises(InvalidInputError, match="must not depend on the time"):
        days.alter.add_constraint({"past": "at <= current_timestamp()"})
