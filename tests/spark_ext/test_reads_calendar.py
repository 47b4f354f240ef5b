"""Files that Spark wrote in its old calendar: txlog reads the same values as Spark."""

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import txlog

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

_DAY = "1500-03-01"
_COLUMNS = ("d", "n", "t")
_ROWS = f"""SELECT DATE'{_DAY}' AS d, TIMESTAMP_NTZ'{_DAY} 12:30:00' AS n,
            TIMESTAMP'{_DAY} 12:30:00' AS t"""


@pytest.mark.slow
@pytest.mark.parametrize("stamps", ["INT96", "TIMESTAMP_MICROS"])
@pytest.mark.parametrize(("dates", "int96"), [("LEGACY", "LEGACY"), ("CORRECTED", "LEGACY")])
def test_a_file_in_the_old_calendar(
    spark: "SparkSession", tmp_path: Path, stamps: str, dates: str, int96: str
) -> None:
    settings = {
        "spark.sql.parquet.datetimeRebaseModeInWrite": dates,
        "spark.sql.parquet.int96RebaseModeInWrite": int96,
        "spark.sql.parquet.outputTimestampType": stamps,
    }
    for name, value in settings.items():
        spark.conf.set(name, value)
    try:
        spark.sql(_ROWS).coalesce(1).write.parquet(str(tmp_path / "files"))
    finally:
        for name in settings:
            spark.conf.unset(name)
    (written,) = (tmp_path / "files").glob("*.parquet")

    # A table of one row, whose data file is the one that Spark wrote.
    txlog.spark_ext.write(spark.sql(_ROWS), tmp_path / "t")
    table = txlog.Table(tmp_path / "t")
    shutil.copy(written, tmp_path / "t" / table.files()["path"][0].as_py())

    (row,) = table.to_arrow().to_pylist()
    found = {name: row[name].replace(tzinfo=None) if name == "t" else row[name] for name in row}
    (truth,) = spark.read.parquet(str(written)).collect()
    assert found == truth.asDict()
    assert {str(found[name])[:10] for name in _COLUMNS} == {_DAY}
