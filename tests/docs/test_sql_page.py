"""The statements of `docs/sql.md` run, and return what the page says."""

import datetime
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import txlog
from txlog.spark_ext import sql

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

PAGE = Path(__file__).parents[2] / "docs" / "sql.md"
BLOCK = re.compile(r"^```sql ?(.*)\n((?:.*\n)*?)```$", re.MULTILINE)
ERROR = re.compile(r"(\w+Error): (.*)")


def statements(code: str) -> Iterator[tuple[str, list[str]]]:
    """Yield the statements of a block, each with the lines of its result."""
    lines: list[str] = []
    result: list[str] = []
    for line in [*code.splitlines(), ""]:
        if line.startswith("-- "):
            result.append(line.removeprefix("-- "))
            continue
        if lines and lines[-1].endswith(";"):
            yield "\n".join(lines).removesuffix(";"), result
            lines, result = [], []
        lines += [line] if line.strip() else []
    assert lines == [], "a statement ends with a semicolon"


def check(run: Callable[[str], Any], text: str, result: list[str]) -> None:
    """Run a statement, and compare its rows or its error with the lines of the page."""
    error = ERROR.fullmatch(result[0]) if result else None
    if error is not None:
        with pytest.raises(getattr(txlog, error[1]), match=re.escape(error[2])):
            run(text)
        return
    rows = [tuple(row) for row in run(text).collect()]
    if result:
        expected = [eval(line, {"datetime": datetime}) for line in result]
        assert rows == expected, text


@pytest.fixture
def place(spark: "SparkSession", tmp_path: Path) -> Iterator[Path]:
    spark.sql(f"CREATE SCHEMA sql_page LOCATION '{tmp_path / 'schema'}'")
    spark.sql("USE sql_page")
    yield tmp_path
    spark.sql("USE default")
    spark.sql("DROP SCHEMA sql_page CASCADE")
    spark.catalog.dropTempView("grown")


@pytest.mark.slow
def test_the_statements_of_the_page_return_what_it_says(spark: "SparkSession", place: Path) -> None:
    blocks = BLOCK.findall(PAGE.read_text("utf-8"))
    assert len(blocks) > 10

    def run(text: str) -> Any:
        return sql(spark, text.replace("/tables/", f"{place}/"))

    for _, code in blocks:
        for text, result in statements(code):
            check(run, text, result)


@pytest.mark.slow
@pytest.mark.usefixtures("place")
def test_spark_returns_the_same_for_its_own_tables(spark: "SparkSession") -> None:
    blocks = [code for words, code in BLOCK.findall(PAGE.read_text("utf-8")) if "parquet" in words]
    assert len(blocks) == 2
    for code in blocks:
        for text, result in statements(code):
            check(spark.sql, text.replace("USING delta", "USING parquet"), result)
