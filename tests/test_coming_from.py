"""The lines of docs/coming-from.md run, in this order, each on a table of its own."""

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import txlog

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PAGE = Path(__file__).parents[1] / "docs" / "coming-from.md"
SCHEMA = pa.schema([("n", pa.int64()), ("p", pa.string())])
ROWS = pa.table({"n": [1, 2, 3, 4], "p": ["x", "x", "y", "y"]}, SCHEMA)


def lines() -> list[tuple[str, str]]:
    """Return the right-hand code of each row, with the title of its section."""
    found, title = [], ""
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        title = line.removeprefix("## ") if line.startswith("## ") else title
        cells = re.match(r"\| `.*` \| `(.+)` \|$", line)
        if cells:
            found.append((title, cells[1]))
    return found


def names(folder: Path) -> dict[str, Any]:
    table = txlog.Table.create(folder / "t", SCHEMA, ["p"], {"delta.enableChangeDataFeed": "true"})
    table.append(ROWS)
    wide = txlog.write(
        folder / "wide", ROWS, properties={"delta.feature.txlog.fragments": "supported"}
    )
    mapped = txlog.write(folder / "m", ROWS, properties={"delta.columnMapping.mode": "name"})
    (folder / "plain").mkdir()
    pq.write_table(ROWS, folder / "plain" / "a.parquet")
    (folder / "by_value" / "x").mkdir(parents=True)
    pq.write_table(ROWS.select(["n"]), folder / "by_value" / "x" / "a.parquet")
    return {
        "txlog": txlog,
        "pa": pa,
        "by_value": folder / "by_value",
        "folder": folder / "plain",
        "t": table,
        "wide": wide,
        "mapped": mapped,
        "uri": table.uri,
        "new": folder / "new",
        "rows": pa.table({"n": [4, 9], "p": ["x", "y"]}, SCHEMA),
        "rows_of_x": ROWS.slice(0, 1),
        "nanos": pa.table({"t": pa.array([1], pa.timestamp("ns"))}),
        "schema": SCHEMA,
        "field": pa.field("extra", pa.float64()),
        "feed_from": 1,
    }


@pytest.mark.parametrize(("title", "code"), [line for line in lines() if "spark" not in line[1]])
def test_the_line_runs(tmp_path: Path, title: str, code: str) -> None:
    exec(code, names(tmp_path))


@pytest.mark.spark
def test_the_lines_of_spark_run(spark: "SparkSession", tmp_path: Path) -> None:

    chosen = [code for _, code in lines() if "spark" in code]
    assert len(chosen) > 4
    for place, code in enumerate(chosen):
        given = {**names(tmp_path / str(place)), "spark": spark}
        given["df"] = spark.createDataFrame(given["rows"])
        found = eval(code, given)
        if hasattr(found, "whenMatchedUpdateAll"):
            found = found.whenMatchedUpdateAll().execute()
            assert found.collect()[0].num_updated_rows == 1


def test_all_sections_have_lines() -> None:
    titles = {title for title, _ in lines()}
    assert titles == {
        f"From {name}" for name in ("deltalake", "delta-spark", "pylance", "pyiceberg")
    }
