"""Scans and changes that an index narrows have the rows of those without it."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from operator import ge, gt, le, lt
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import txlog
from tests.examples import examples
from tests.moved import moved
from txlog import col
from txlog.data_files.options import WriteOptions
from txlog.lookup.indexed import PredicateKeys, RowKeys, asked_indexes
from txlog.scan.plan import Explanation
from txlog.store.open import open_store
from txlog.testing import CountingStore, open_table

ALWAYS_USED = {
    "txlog.lookup.indexed:_LEAST_BYTES": 0,
    "txlog.lookup.indexed:_LEAST_SHARE": 1,
    "txlog.lookup.indexed:_MOST_TIMES": 1 << 20,
    "txlog.lookup.indexed:_RANGE_SHARE": 1,
}
FIRST = datetime(2024, 1, 1, tzinfo=UTC)
VALUES: dict[str, list[Any]] = {
    "i": [None, 0, 1, 2, 3, -7, 2**31 - 1],
    "l": [None, 0, 1, 2**53, 2**53 + 1, -(2**63), 2**63 - 1],
    "m": [None, Decimal("0.00"), Decimal("1.50"), Decimal("-2.25"), Decimal("99999999.99")],
    "s": [None, "", "a", "a ", "\N{GREEK SMALL LETTER ALPHA}" * 9, "abcdefgh", "abcdefghi"],
    "d": [None, date(1, 1, 1), date(2024, 1, 1), date(2024, 1, 2)],
    "t": [None, FIRST, FIRST + timedelta(microseconds=1), FIRST + timedelta(days=1)],
    "o": [None, True, False],
    "x": [None, 0.0, 1.0, 2.5],  # Floating point numbers are in no index.
}
SCHEMA = pa.schema(
    [
        ("i", pa.int32()),
        ("l", pa.int64()),
        ("m", pa.decimal128(10, 2)),
        ("s", pa.string()),
        ("d", pa.date32()),
        ("t", pa.timestamp("us", "UTC")),
        ("o", pa.bool_()),
        ("x", pa.float64()),
        ("n", pa.int64()),
    ]
)
KEYS = [
    *[("i",), ("l",), ("m",), ("s",), ("d",), ("t",), ("o",)],
    *[("i", "s"), ("o", "l"), ("l", "m"), ("s", "i"), ("d", "t", "i"), ("i", "o")],
]


@pytest.fixture
def always_used() -> Iterator[None]:
    """Let tables of a few rows use their indexes."""
    with moved(ALWAYS_USED):
        yield


def row_of(draw: Any, number: int) -> dict[str, Any]:
    return {name: draw(st.sampled_from(some)) for name, some in VALUES.items()} | {"n": number}


def in_some_order(draw: Any, rows: list[dict[str, Any]], names: tuple[str, ...]) -> pa.Table:
    """Return rows as they are, or sorted by their keys, with or without nulls."""
    kind = draw(st.sampled_from(["any", "whole", "nulls first", "nulls last", "apart"]))
    keyed = [row for row in rows if all(row[name] is not None for name in names)]
    if kind in ("whole", "apart"):
        keyed.sort(key=lambda row: [row[name] for name in names])
    if kind == "apart":  # Rows without a key are somewhere between the others.
        place = draw(st.integers(0, len(keyed)))
        keyed[place:place] = [row for row in rows if row[names[0]] is None]
    if kind in ("nulls first", "nulls last"):
        is_last = kind == "nulls last"
        order = {name: sorted({one for one in VALUES[name] if one is not None}) for name in names}
        keyed = sorted(
            rows,
            key=lambda row: [
                len(order[name]) * is_last - (not is_last)
                if row[name] is None
                else order[name].index(row[name])
                for name in names
            ],
        )
    return pa.Table.from_pylist(rows if kind == "any" else keyed, SCHEMA)


def same_rows(table: txlog.Table, where: Any) -> Explanation:
    scan = table.scan(where=where)
    without = table.scan(where=where, use_index=False)
    expected = without.to_arrow()
    assert scan.to_arrow().equals(expected), scan.explain()
    assert pa.Table.from_batches(scan.to_batches(), scan.schema).equals(expected)
    assert scan.to_polars().equals(without.to_polars())
    numbers = table.to_pyarrow_dataset(where).to_table(["n"])["n"].to_pylist()
    assert {*expected["n"].to_pylist()} <= {*numbers}
    assert table.count(where) == expected.num_rows
    assert table.head(3, where=where).equals(expected.slice(0, 3))
    assert pickle.loads(pickle.dumps(scan)).to_arrow().equals(expected)
    return scan.explain()


@st.composite
def simple(draw: Any, names: tuple[str, ...]) -> Any:
    """Draw a comparison of a column with values of its own or of another type."""
    name = draw(st.sampled_from([*names, *names, *VALUES]))
    values = [one for one in VALUES[name] if one is not None]
    kinds = ["=", "=", "<=>", "in", "in", "<", "<", "between", "null", "text", "number", "like"]
    kind = draw(st.sampled_from(kinds))
    value = draw(st.sampled_from(values))
    if kind == "in":
        return col(name).isin(draw(st.lists(st.sampled_from(VALUES[name]), max_size=4)))
    if kind == "null":
        return col(name).is_null()
    if kind == "<" or (kind == "like" and name != "s"):
        other = draw(st.sampled_from([1.5, Decimal("1.500"), 2**70, 2.0**53, float("nan")]))
        odd = name in ("i", "l", "m", "x") and draw(st.booleans())
        sign = draw(st.sampled_from([lt, le, gt, ge]))
        return sign(col(name), other if odd else value)
    if kind == "between":
        return col(name).between(value, draw(st.sampled_from(values)))
    if kind == "like":
        ends = draw(st.sampled_from(["%", "_", "\\_%", "%a", ""]))
        return col(name).like(value[: draw(st.integers(0, 9))] + ends)
    if kind == "<=>":
        return col(name).eq_null_safe(draw(st.sampled_from(VALUES[name])))
    if kind == "number" and name in ("i", "l", "m", "x"):
        return col(name) == draw(st.sampled_from([1, 1.5, Decimal("1.500"), 2**70, 2.0**53, 1e300]))
    if kind == "text" and name in ("i", "l", "d", "t"):
        return col(name) == str(value)
    return col(name) == value


@st.composite
def predicates(draw: Any, names: tuple[str, ...]) -> Any:
    """Draw a conjunction of comparisons and of disjunctions, sometimes negated."""
    parts = []
    for _ in range(draw(st.integers(1, 3))):
        part = draw(simple(names))
        for _ in range(draw(st.sampled_from([0, 0, 1, 2]))):
            part = part | draw(simple(names))
        parts.append(~part if draw(st.sampled_from([False] * 5 + [True])) else part)
    found = parts[0]
    for part in parts[1:]:
        found = found & part
    return found


@pytest.mark.slow
@pytest.mark.usefixtures("always_used")
@pytest.mark.spec("LKP-13")
@settings(max_examples=examples(120), deadline=None)
@given(data=st.data(), names=st.sampled_from(KEYS), mapped=st.booleans())
def test_scans_and_changes_have_the_rows_of_those_without_it(
    tmp_path_factory: pytest.TempPathFactory, data: Any, names: tuple[str, ...], mapped: bool
) -> None:
    root = tmp_path_factory.mktemp("indexed")
    properties = {
        "delta.enableDeletionVectors": "true" if data.draw(st.booleans()) else "false",
        "delta.columnMapping.mode": "name" if mapped else "none",
        "txlog.pageRows": "2",
    }
    table = txlog.Table.create(root, SCHEMA, properties=properties)
    covered = data.draw(st.integers(0, 3))
    number = 0
    for place in range(3):
        if place == covered:
            table.indexes.create(list(names), name="k", build=False)
        rows = []
        for _ in range(data.draw(st.integers(1, 7))):
            rows.append(row_of(data.draw, number))
            number += 1
        table.append(in_some_order(data.draw, rows, names))
    if covered == 3:
        table.indexes.create(list(names), name="k")
    explained = [same_rows(table, data.draw(predicates(names))) for _ in range(4)]
    assert all((one.index or "k:").startswith("k:") for one in explained)
    where = data.draw(predicates(names))
    expected = table.to_arrow(["n"], where=where)["n"].to_pylist()
    left = sorted(set(table.to_arrow(["n"])["n"].to_pylist()) - set(expected))
    plain = WriteOptions(use_index=False)
    other = table.clone(str(root) + "-copy")
    for one, options in ((table, None), (other, plain)):
        if data.draw(st.booleans()):
            one.delete(where, options=options)
            assert sorted(one.to_arrow(["n"])["n"].to_pylist()) == left
        else:
            one.update({"n": "-1 - n"}, where, options=options)
            now = [*left, *(-1 - number for number in expected)]
            assert sorted(one.to_arrow(["n"])["n"].to_pylist()) == sorted(now)


@st.composite
def filters(draw: Any, names: tuple[str, ...], depth: int = 2) -> tuple[Any, str]:
    """Draw a filter of Arrow that compares columns with values, and its SQL (empty: no SQL)."""
    kind = draw(st.sampled_from(["=", "=", "in", "in", "<", "<", "and", "or", "not"]))
    if depth and kind in ("and", "or"):
        (a, left), (b, right) = (draw(filters(names, depth - 1)) for _ in range(2))
        text = f"({left} {kind} {right})" if left and right else ""
        return (a & b if kind == "and" else a | b), text
    if depth and kind == "not":
        inner, text = draw(filters(names, depth - 1))
        return ~inner, text and f"(NOT {text})"
    name = draw(st.sampled_from([*names, *names, *VALUES]))
    field, of = ds.field(name), SCHEMA.field(name).type
    values = [one for one in VALUES[name] if one is not None]
    value = draw(st.sampled_from(values))
    if kind == "in":
        some = draw(st.lists(st.sampled_from(VALUES[name]), min_size=1, max_size=4))
        text = "" if None in some else f"{name} IN ({', '.join(map(sql_of, some))})"
        return field.isin(pa.array(some, of)), text
    if kind == "<":
        sign, text = draw(st.sampled_from([(lt, "<"), (le, "<="), (gt, ">"), (ge, ">=")]))
        return sign(field, pa.scalar(value, of)), f"{name} {text} {sql_of(value)}"
    if name in ("i", "l") and draw(st.booleans()):
        return pa.scalar(value, pa.int64()) == field, ""
    return field == pa.scalar(value, of), f"{name} = {sql_of(value)}"


def sql_of(value: Any) -> str:
    """Return a value in the SQL of duckdb."""
    if isinstance(value, datetime):
        return f"TIMESTAMPTZ '{value}'"
    if isinstance(value, date):
        return f"DATE '{value}'"
    return f"'{value}'" if isinstance(value, str) else str(value)


@pytest.mark.slow
@pytest.mark.usefixtures("always_used")
@pytest.mark.spec("LKP-13")
@settings(max_examples=examples(100), deadline=None)
@given(data=st.data(), names=st.sampled_from(KEYS), mapped=st.booleans())
def test_datasets_and_sql_have_the_rows_of_those_without_it(
    tmp_path_factory: pytest.TempPathFactory, data: Any, names: tuple[str, ...], mapped: bool
) -> None:
    properties = {
        "delta.enableDeletionVectors": "true",
        "delta.columnMapping.mode": "name" if mapped else "none",
    }
    root = tmp_path_factory.mktemp("filtered")
    table = txlog.Table.create(root, SCHEMA, properties=properties)
    for place in range(3):
        if place == 1:
            table.indexes.create(list(names), name="k", build=data.draw(st.booleans()))
        rows = [row_of(data.draw, 10 * place + at) for at in range(data.draw(st.integers(1, 6)))]
        table.append(in_some_order(data.draw, rows, names))
    if data.draw(st.booleans()):
        table.delete(col("n").isin([0, 11, 20]))
    dataset = table.to_pyarrow_dataset()
    plain = table.to_pyarrow_dataset(use_index=False)
    for _ in range(4):
        filter, text = data.draw(filters(names))
        expected = plain.to_table(filter=filter)
        assert dataset.to_table(filter=filter).equals(expected)
        assert dataset.to_table(["n"], filter=filter).equals(expected.select(["n"]))
        assert dataset.count_rows(filter=filter) == expected.num_rows
        assert dataset.filter(filter).head(2).equals(expected.slice(0, 2))
        copied = pickle.loads(pickle.dumps(dataset))
        assert copied.to_table(filter=filter).equals(expected)
        assert (dataset.explain(filter).index or "k:").startswith("k:")
        assert plain.explain(filter).index is None
        for engine in ("duckdb", "polars") if text and "TIMESTAMPTZ" not in text else ():
            query = f"SELECT n FROM t WHERE {text} ORDER BY n"
            found = [
                txlog.sql(query, {"t": table}, engine=engine, use_index=used)
                for used in (True, False)
            ]
            assert found[0].equals(found[1])


def opened_with_index(path: Path, **properties: str) -> tuple[txlog.Table, CountingStore, int]:
    """Return a table of four files whose index is in memory, its store, and the files' bytes."""
    properties = {"txlog.pageRows": "100", **properties}
    table = txlog.Table.create(path, numbers(0).schema, properties=properties)
    for start in range(4):
        table.append(numbers(*range(start, 400_000, 4)))
    size = sum(file.stat().st_size for file in path.glob("*.parquet"))
    table.indexes.create("k")
    store = CountingStore(open_store(table.uri))
    opened = open_table(store)
    opened.to_arrow(where="k = 1")
    return opened, store, size


@pytest.mark.usefixtures("always_used")
def test_sql_reads_the_rows_that_the_index_names(tmp_path: Path) -> None:
    opened, store, size = opened_with_index(tmp_path / "t")
    for query, rows in [
        ("SELECT * FROM t WHERE k = 7", 1),
        ("SELECT v FROM t WHERE k IN (7, 11, 400001) AND v > ''", 2),
        ("WITH x AS (SELECT * FROM t) SELECT count(*) FROM x WHERE k = 3 OR k = 4 GROUP BY v", 2),
    ]:
        for engine in ("duckdb", "polars") if " IN " not in query else ("duckdb",):
            store.reset()
            assert txlog.sql(query, {"t": opened}, engine=engine).num_rows == rows
            assert sum(store.bytes.values()) < size / 4, (query, engine)
    dataset = opened.to_pyarrow_dataset()
    assert dataset.explain().index is None
    assert dataset.explain(ds.field("k") == 7).files_to_read == 1
    for other in (
        ds.field("k") == 7.0,
        ds.field("k") > 7.0,
        ~(ds.field("k") == 7),
        ds.field(0) == 7,
    ):
        assert dataset.explain(other).index is None
    with pytest.raises(txlog.InvalidTypeError, match="use_index"):
        txlog.sql("SELECT 1", use_index="no")  # type: ignore[arg-type]


ORDERED: dict[str, pa.Array] = {
    "long": pa.array(range(-3_000, 3_000, 2)),
    "date": pa.array(range(3_000), pa.date32()),
    "timestamp": pa.array(range(-1_500, 1_500), pa.timestamp("us", "UTC")),
    "decimal": pa.array([Decimal(number).scaleb(-2) for number in range(-1_500, 1_500)]),
    "string": pa.array([f"prefix-{number // 3:05}" for number in range(3_000)]),
    "short": pa.array([f"{number // 3:05}" for number in range(3_000)]),
    "binary": pa.array([number.to_bytes(4) for number in range(3_000)]),
}


@pytest.mark.slow(cases=2)
@pytest.mark.usefixtures("always_used")
@pytest.mark.spec("LKP-14")
@pytest.mark.parametrize("kind", ORDERED)
def test_ranges_of_sorted_files(tmp_path: Path, kind: str) -> None:
    keys = ORDERED[kind]
    rows = pa.table({"k": keys, "n": range(len(keys))})
    table = txlog.write(tmp_path / "t", rows.slice(0, 2_000))
    table.indexes.create("k")
    table.append(rows.slice(2_000))
    table.append(rows.slice(500, 10).take(pa.array([3, 1, 4, 5, 9, 2])))  # It is not sorted.
    merged = txlog.Table(table.uri)
    for opened in (table, merged):
        values = keys.take(pa.array([0, 1_000, 1_001, 1_010, 2_500, 2_999])).to_pylist()
        for low, high in [(1, 3), (2, 2), (0, 0), (3, 1), (4, 5), (1, 4)]:
            least, most = values[low], values[high]
            for where in (
                col("k").between(least, most),
                (col("k") > least) & (col("k") < most),
                (col("k") >= least) & (col("n") > 0),
                (col("k") < least) | (col("k") == most),
            ):
                explained = same_rows(opened, where)
                assert explained.index is not None
        narrow = explain(opened, col("k").between(values[1], values[3]))
        if kind != "string":  # The first eight bytes of these are equal.
            assert narrow.index is not None
            assert narrow.index.startswith("k: ")
            assert " files whose rows it has in the order of the keys" in narrow.index
            assert int(narrow.index.split()[1].replace(",", "")) <= 18
        merged.indexes.merge()
    starts = explain(table, "k LIKE '0001%'") if kind == "short" else None
    assert starts is None or starts.index.startswith("k: 30 rows may match in 1 files whose")


def test_ranges_that_an_index_does_not_answer(tmp_path: Path) -> None:
    table = txlog.write(tmp_path / "t", pa.table({"a": range(10), "b": ["x"] * 10, "n": range(10)}))
    table.indexes.create(["a", "b"], name="both")
    with moved(ALWAYS_USED):
        for where in ("b LIKE 'x%'", "b > 'a' OR a > 3"):
            assert same_rows(table, where).index is None
        table.indexes.drop("both")
        table.indexes.create("a", name="a_alone")
        for where in ("a <> 3", "NOT a > 3", "a > 3 OR b = 'x'", "a + 1 > 3"):
            assert same_rows(table, where).index is None
        told = same_rows(table, "a > 3").index
        assert told is not None
        assert told.startswith("a_alone: 7 rows may match in 1 files whose rows")
    with moved({**ALWAYS_USED, "txlog.lookup.indexed:_RANGE_SHARE": 1 << 40}):
        assert explain(txlog.Table(table.uri), "a > 3").index == (
            "a_alone: not used, because it is larger than the files to be read"
        )


@pytest.mark.slow
@pytest.mark.usefixtures("always_used")
@pytest.mark.spec("LKP-14")
def test_the_first_columns_of_sorted_keys(tmp_path: Path) -> None:
    rows = pa.table(
        {
            "a": [number // 100 for number in range(3_000)],
            "b": [FIRST + timedelta(hours=number % 100 // 2) for number in range(3_000)],
            "c": [Decimal(number % 100).scaleb(-2) for number in range(3_000)],
            "n": range(3_000),
        }
    )
    table = txlog.write(tmp_path / "t", rows.slice(0, 1_700), properties={"txlog.pageRows": "10"})
    table.indexes.create(["a", "b", "c"], name="abc")
    table.append(rows.slice(1_700))
    table.append(rows.take(pa.array([3, 2_500, 1, 1_900, 9, 2])))  # It is not sorted.
    for _ in range(2):
        hour = f"TIMESTAMP '{FIRST + timedelta(hours=7):%Y-%m-%d %H:%M:%S}'"
        for where, found in [
            ("a = 7", 100),
            ("a IN (7, 9) AND n > 0", 200),
            ("a BETWEEN 7 AND 9", 300),
            ("a > 28", 200),
            ("a = 40", 0),
            (f"a = 7 AND b = {hour}", 2),
            (f"a = 7 AND b < {hour}", 16),
            (f"a IN (3, 7) AND b <= {hour} AND c > 0", 32),
            (f"a > 7 AND b = {hour}", 2_300),
            (f"a = 7 AND b = {hour} AND c BETWEEN 0 AND 0.14", 2),
            (f"a = 7 AND b = {hour} AND c = 0.14", 2),
        ]:
            told = same_rows(table, where).index
            assert told is not None
            assert told.startswith(f"abc: {found:,} rows may match in "), (where, told)
        assert same_rows(table, f"b = {hour}").index is None
        table.indexes.merge()
    table.indexes.create("a", name="a_alone")
    # Of two indexes the one that leaves less to read is used.
    where = f"a = 7 AND b < {hour}"
    assert str(same_rows(table, where).index).startswith("a_alone: 100 rows may match in 2 files")
    table.delete(col("n").isin(range(41, 46)))
    table.optimize.compact(sort_by=["a", "b", "c"])
    assert str(same_rows(table, where).index).startswith("abc: 16 rows may match in 1 files")


def explain(table: txlog.Table, where: Any) -> Explanation:
    return table.scan(where=where).explain()


def numbers(*values: int) -> pa.Table:
    return pa.table({"k": values, "v": [str(value) for value in values]})


def test_a_plan_says_what_the_index_does(tmp_path: Path) -> None:
    table = txlog.write(tmp_path / "t", numbers(*range(0, 100, 2)))
    table.append(numbers(*range(1, 100, 2)))
    assert explain(table, "k = 7").index is None
    assert "index" not in str(explain(table, "k = 7"))
    table.indexes.create("k", name="by_k")
    small = explain(table, "k = 7")
    assert small.index == "by_k: not used, because few bytes are to be read"

    def with_values(least_bytes: int, least_share: int, most_times: int) -> Explanation:
        values = dict(zip(ALWAYS_USED, (least_bytes, least_share, most_times, 1), strict=True))
        with moved(values):
            return explain(txlog.Table(table.uri), "k = 7 AND v > ''")

    found = with_values(0, 1, 1 << 20)
    assert (found.files_to_read, found.pruned_by_index, found.files) == (1, 1, 2)
    assert found.index == "by_k: 1 rows may match in 2 files that it covers"
    assert "left out by the index: 1" in str(found)
    assert "left out by the index" in found._repr_html_()
    large = with_values(0, 1, 0)
    assert large.index == "by_k: not used, because it is larger than the files to be read"
    whole = with_values(0, 100, 1 << 20)
    assert whole.index == (
        "by_k: 0 rows may match in 2 files that it covers, 1 files are read whole"
    )
    assert whole.pruned_by_index == 1
    assert explain(table, "v = '7'").index is None
    assert table.scan(where="k = 7", use_index=False).explain().index is None
    with pytest.raises(txlog.InvalidTypeError, match="use_index"):
        table.scan(use_index="no")  # type: ignore[arg-type]
    with pytest.raises(txlog.InvalidTypeError, match="use_index"):
        WriteOptions(use_index=0)  # type: ignore[arg-type]


@pytest.mark.usefixtures("always_used")
def test_only_pages_of_the_rows_are_read(tmp_path: Path) -> None:
    opened, store, size = opened_with_index(
        tmp_path / "t", **{"delta.enableDeletionVectors": "true"}
    )
    verbs: list[Any] = [
        lambda: opened.to_arrow(where="k IN (7, 11)"),
        lambda: opened.count("k = 9"),
        lambda: opened.delete("k = 9"),
        lambda: opened.update({"v": "'new'"}, "k = 21"),
        lambda: opened.upsert(numbers(10, 12, 999_999), on="k"),
    ]
    for verb in verbs:
        store.reset()
        verb()
        assert sum(store.bytes.values()) < size / 4
    assert opened.count() == 400_000
    assert opened.lookup([9]).num_rows == 0
    assert opened.lookup([21])["v"].to_pylist() == ["new"]


@pytest.mark.usefixtures("always_used")
def test_an_upsert_of_few_keys_reads_few_bytes(tmp_path: Path) -> None:
    """One row of 20,000 has a key, and a page has 1,000 rows: as with 1,000 keys of 20,000,000."""
    properties = {"delta.enableDeletionVectors": "true", "txlog.pageRows": "1000"}
    opened, store, size = opened_with_index(tmp_path / "t", **properties)
    store.reset()
    outcome = opened.upsert(numbers(*range(7, 400_000, 20_011)), on="k")
    assert outcome.metrics["numTargetRowsUpdated"] == 20
    read = [one.size for one in store.calls if one.kind in ("read", "read_range")]
    files = [one.size for one in store.calls if "read" in one.kind and ".parquet" in one.path]
    assert 0 < sum(files) < size / 20, (sum(files), sum(read), size)


@pytest.mark.usefixtures("always_used")
def test_merges_by_other_types_and_nulls(tmp_path: Path) -> None:
    table = txlog.write(tmp_path / "t", pa.table({"k": [None, 2**53, 2**53 + 1, 3], "v": "abcd"}))
    table.indexes.create("k")
    for kind in (pa.int64(), pa.float64(), pa.decimal128(20, 0), pa.int32()):
        values = [None, 3] if kind == pa.int32() else [None, 2**53, 3]
        source = pa.table({"k": pa.array(values, kind), "w": [str(kind)] * len(values)})
        for sign in ("=", "<=>"):
            outcomes = []
            for options in (WriteOptions(), WriteOptions(use_index=False)):
                root = tmp_path / f"{kind}{sign == '='}{options.use_index}"
                copy = table.clone(root)
                copy.indexes.build()
                merge = copy.merge(source, f"target.k {sign} source.k", options=options)
                merge.when_matched_update({"v": "source.w"}).execute()
                outcomes.append(copy.to_arrow())
            assert outcomes[0].equals(outcomes[1])


@pytest.mark.usefixtures("always_used")
def test_the_index_with_the_most_columns_is_asked(tmp_path: Path) -> None:
    table = txlog.write(tmp_path / "t", pa.table({"a": [1, 2], "b": [1, 2], "c": [1, 2]}))
    for names in ("a", ["a", "b"]):
        table.indexes.create(names, name="_".join(names) + "x")
    snapshot = table._snapshot

    def asked(where: Any) -> Any:
        reading = table.scan(where=where).plan.reading
        assert reading.where is not None
        (found, *_) = asked_indexes(snapshot, PredicateKeys(reading.where)) or (None,)
        return found and (found.definition.name, [one.to_pylist() for one in found.keys.arrays])

    assert asked("a = 1 AND b IN (3, 4)") == ("a_bx", [[1, 1], [3, 4]])
    assert asked("a = 1 AND c = 1") == ("ax", [[1]])
    assert asked("a = 1 OR a = 2") == ("ax", [[1, 2]])
    assert asked("(a = 1 AND b = 2) OR a = 3") == ("ax", [[1, 3]])
    assert asked("a = 1 OR c = 2") is None
    assert asked("b = 1") is None
    assert asked("NOT a = 1") is None
    assert asked("a <=> NULL") is None
    with moved({"txlog.lookup.indexed:_MOST_KEYS": 3}):
        assert asked("a IN (1, 2, 3) AND b IN (1, 2)") == ("ax", [[1, 2, 3]])
    assert asked_indexes(snapshot, RowKeys({"a": pa.array([1.0])})) == []
    assert asked_indexes(snapshot, RowKeys({"a": pa.array(["x"])})) == []


@pytest.mark.usefixtures("always_used")
def test_a_damaged_index_makes_it_slower_and_warns(tmp_path: Path) -> None:
    table = txlog.write(tmp_path / "t", numbers(*range(1_000)))
    table.indexes.create("k")
    (segment,) = Path(table.uri).glob("_txlog_index/*/*.idx")
    data = bytearray(segment.read_bytes())
    data[len(data) // 2] ^= 1
    segment.write_bytes(data)
    opened = txlog.Table(table.uri)
    with pytest.warns(txlog.TxlogWarning, match="cannot be used"):
        assert opened.to_arrow(where="k = 7")["v"].to_pylist() == ["7"]
    with pytest.warns(txlog.TxlogWarning, match="cannot be used"):
        assert txlog.Table(table.uri).delete("k = 7").metrics["numDeletedRows"] == 1


@pytest.mark.usefixtures("always_used")
@pytest.mark.spec("LKP-16")
def test_an_index_that_is_far_behind_is_told_once(tmp_path: Path) -> None:
    table = txlog.write(tmp_path / "t", numbers(*range(0, 100, 2)))
    table.indexes.create("k", name="by_k")
    for start in (1, 201, 301):
        deltalake.write_deltalake(table.uri, numbers(*range(start, start + 100)), mode="append")
    sizes = txlog.Table(table.uri).files(["size_bytes"])["size_bytes"].to_pylist()
    verbs: list[Any] = [
        lambda opened: opened.to_arrow(where="k = 7"),
        lambda opened: opened.lookup([7]),
        lambda opened: opened.delete("k = 7 AND v = '50'"),
        lambda opened: opened.upsert(numbers(8), on="k"),
        lambda opened: txlog.sql("SELECT * FROM t WHERE k = 7", {"t": opened}),
    ]
    for verb in verbs:
        opened = txlog.Table(table.uri)
        with moved({"txlog.lookup.indexes:_FAR_BEHIND": sum(sizes) + 1}):
            verb(opened)  # So few bytes are worth no warning.
        opened = txlog.Table(table.uri)
        with moved({"txlog.lookup.indexes:_FAR_BEHIND": 1}):
            with pytest.warns(txlog.TxlogWarning, match="by_k does not cover") as told:
                verb(opened)
            assert len(told) == 1
            assert "indexes.build('by_k') covers them" in str(told[0].message)
            for again in verbs:
                again(opened)
    (finding,) = [one for one in txlog.Table(table.uri).doctor() if one.code == "index-behind"]
    assert (finding.count, finding.severity) == (3, "advice")
    assert f"{sum(sizes[1:4]):,} bytes" in finding.cost
    table.refresh().indexes.build()
    with moved({"txlog.lookup.indexes:_FAR_BEHIND": 1}):
        for verb in verbs:
            verb(txlog.Table(table.uri))
