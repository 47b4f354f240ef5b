"""Files that Spark wrote become the table that Spark would make of them."""

from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import txlog
from txlog import spark_ext

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ZONE = "spark.sql.session.timeZone"


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.parametrize("kind", ["INT96", "TIMESTAMP_MICROS", "TIMESTAMP_MILLIS"])
def test_a_frame_in_another_zone(spark: "SparkSession", tmp_path: Path, kind: str) -> None:
    folder = str(tmp_path / "t")
    before = {
        name: spark.conf.get(name) for name in (ZONE, "spark.sql.parquet.outputTimestampType")
    }
    try:
        spark.conf.set(ZONE, "America/New_York")
        spark.conf.set("spark.sql.parquet.outputTimestampType", kind)
        frame = spark.sql(
            "SELECT 1 AS n, TIMESTAMP '2024-03-10 12:00:00' AS at, "
            "TIMESTAMP_NTZ '2024-03-10 02:30:00' AS wall, "
            "array(named_struct('at', TIMESTAMP '1999-12-31 23:59:59')) AS deep, "
            "map('k', TIMESTAMP '2001-02-03 04:05:06') AS m, CAST('ab' AS VARCHAR(4)) AS c, "
            "CAST(2 AS SHORT) AS s, parse_json('{\"a\": 1}') AS v"
        )
        frame.write.parquet(folder)
        table = txlog.convert_to_delta(folder)
        assert table.to_arrow()["at"].cast("int64").to_pylist() == [1_710_086_400_000_000]
        assert table.to_arrow()["wall"].to_pylist() == [datetime(2024, 3, 10, 2, 30)]
        read = spark_ext.read(spark, folder)
        assert read.schema.simpleString() == frame.schema.simpleString()
        told = [
            f.selectExpr("to_json(struct(*))").collect() for f in (read, spark.read.parquet(folder))
        ]
        assert told[0] == told[1]
        spark_ext.write(frame, folder, mode="append")
        both = txlog.Table(folder).to_arrow()
        assert both["at"].cast("int64").to_pylist() == [1_710_086_400_000_000] * 2
    finally:
        for name, value in before.items():
            spark.conf.set(name, value)
