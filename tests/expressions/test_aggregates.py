"""Predicates over aggregates: in any batches, they are what duckdb says of all rows."""

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import examples
from txlog.base.errors import InvalidInputError
from txlog.expressions.aggregates import Checks, parse_check
from txlog.schema.arrow import from_arrow

SCHEMA = pa.schema({"n": pa.int64(), "x": pa.float64(), "s": pa.string(), "d": pa.decimal128(9, 2)})
ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "n": st.none() | st.integers(-5, 5) | st.just(2**62),
            "x": st.none() | st.sampled_from([0.5, -1.0, 2.0]),
            "s": st.none() | st.sampled_from(["a", "b", ""]),
            "d": st.none() | st.decimals(-9, 9, places=2),
        }
    ),
    max_size=12,
)
AGGREGATES = [
    "count(*)", "count(n)", "count(DISTINCT s)", "count_if(n > 0)", "sum(n)", "sum(n + 1)",
    "sum(x)", "sum(d)", "min(n)", "max(s)", "min(d)", "avg(x)", "avg(n)", "max(n)", "min(s)",
]  # fmt: skip


@settings(max_examples=examples(100))
@given(rows=ROWS, size=st.integers(1, 12))
def test_figures_are_those_of_duckdb(rows: list[dict[str, Any]], size: int) -> None:
    duckdb = pytest.importorskip("duckdb")
    table = pa.Table.from_pylist(rows, SCHEMA)
    checks = Checks([parse_check(f"{one} IS NULL") for one in AGGREGATES], from_arrow(SCHEMA))
    for batch in table.to_batches(max_chunksize=size):
        checks.add(batch)
    text = ", ".join(AGGREGATES).replace("n + 1", "n::HUGEINT + 1")
    text = text.replace("count_if(n > 0)", "count(*) FILTER (n > 0)")  # It is null for no rows.
    expected = _of_duckdb(duckdb, text, table)
    results = checks.results()
    assert [one.holds for one in results] == [value is None for value in expected]
    for aggregate, one, value in zip(AGGREGATES, results, expected, strict=True):
        assert one.figures == {aggregate: pytest.approx(value) if value is not None else None}


def _of_duckdb(duckdb: Any, text: str, table: pa.Table) -> Any:
    with duckdb.connect() as connection:
        connection.register("rows", table)
        return connection.execute(f"SELECT {text} FROM rows").fetchone()


@pytest.mark.parametrize(
    ("check", "holds"),
    [
        ("count(*) = 3 AND sum(n) / count(n) = 1.5", True),
        ("sum(n) > 100 OR max(s) = 'b'", True),
        ("sum(n) = NULL", False),
        ("min(n) BETWEEN 1 AND 1", True),
        ("CAST(avg(n) AS int) IN (1)", True),
        ("count_if(s = 'count(') = 0", True),
        ("COUNT_IF(n IS NULL) <> 1", False),
    ],
)
def test_predicates_over_aggregates(check: str, holds: bool) -> None:
    table = pa.table({"n": [1, 2, None], "s": ["a", "b", "a"]})
    checks = Checks([parse_check(check)], from_arrow(table.schema))
    for batch in table.to_batches():
        checks.add(batch)
    assert checks.results()[0].holds is holds
    assert set(checks.columns) <= {"n", "s"}


@pytest.mark.parametrize("check", ["sum(s) > 1", "count(*) > n", "max(z) = 1"])
def test_checks_that_do_not_fit(check: str) -> None:
    table = pa.table({"n": [1], "s": ["a"]})
    with pytest.raises(InvalidInputError):  # noqa: PT012 (either step may raise)
        checks = Checks([parse_check(check)], from_arrow(table.schema))
        checks.add(table.to_batches()[0])
        checks.results()


def test_what_cannot_be_computed_does_not_hold_and_is_told() -> None:
    table = pa.table({"n": [1, 0]})
    texts = ["sum(n) / count_if(n > 9) > 1", "count(*) > 0 AND sum(1 / n) > 0", "max(n) = 1"]
    checks = Checks([parse_check(text) for text in texts], from_arrow(table.schema))
    for batch in table.to_batches(max_chunksize=1):
        checks.add(batch)
    outer, inner, other = checks.results()
    assert not outer.holds
    assert outer.figures == {"sum(n)": 1, "count_if(n > 9)": 0, "error": outer.figures["error"]}
    assert "by 0" in outer.figures["error"]
    assert not inner.holds
    assert inner.figures == {"count(*)": 2, "error": outer.figures["error"]}
    assert (other.holds, other.figures) == (True, {"max(n)": 1})
