"""Writes through Spark Connect; its argument is a folder. Prints the results as JSON."""

import json
import sys
import warnings
from pathlib import Path

from pyspark.sql import SparkSession

import txlog
import txlog.spark_ext
from txlog.spark_ext import write


def main(folder: Path) -> dict[str, object]:
    spark = (
        SparkSession.builder.remote("local[2]")
        .config("spark.driver.memory", "1g")
        .config("spark.ui.enabled", "false")
        .getOrCreate()
    )
    txlog.spark_ext.register(spark)
    seen: dict[str, object] = {"connect": "connect" in type(spark).__module__}
    path = folder / "function"
    rows = spark.range(0, 100, 1, 3).selectExpr("id", "cast(id % 3 AS string) AS part")
    seen["made"] = write(rows, path, mode="error", partition_by="part").version
    seen["added"] = write(rows.where("id < 10"), path, txn=("job", 1)).version
    seen["again"] = write(rows, path, txn=("job", 1)).skipped
    broken = rows.selectExpr("id", "raise_error('boom') AS part")
    try:
        write(broken, path)
    except Exception as error:
        seen["error"] = "boom" in str(error)
    arrow = "spark.sql.execution.arrow."
    seen["limits"] = [
        spark.conf.get(arrow + limit, None) for limit in ("maxBytesPerBatch", "maxRecordsPerBatch")
    ]
    rows.write.format("txlog").mode("append").save(str(folder / "format"))

    def to_table(df, batch_id):
        write(df, str(folder / "foreach"), txn=("ingest", batch_id))

    for name in ("function", "format"):  # Two files to be read by streams.
        txlog.Table(folder / name).to_arrow(["id"])
        spark.range(5).write.mode("append").parquet(str(folder / "in"))
    stream = spark.readStream.schema("id LONG").parquet(str(folder / "in"))
    by_format = stream.writeStream.format("txlog").option("path", str(folder / "sink"))
    for number, writer in enumerate((stream.writeStream.foreachBatch(to_table), by_format)):
        writer = writer.option("checkpointLocation", str(folder / f"c{number}"))
        writer.trigger(availableNow=True).start().awaitTermination()
    spark.stop()
    return seen


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    print(json.dumps(main(Path(sys.argv[1]))))
