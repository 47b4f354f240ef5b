"""A driver whose stores need a token. Its arguments: a folder, and `classic` or `connect`.

In the folder are the tables `rows` and `feed`, for reading, and `base`: each write goes to a copy
of it. What came of all is left in `seen.json`.
"""

import json
import shutil
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

from locked_store import NONE, OF_DRIVER, RIGHT, s3_uri
from pyspark.sql import DataFrame, SparkSession
from streaming_driver import SETTINGS

import txlog.spark_ext
from txlog.spark_ext import DeltaTable, SparkEngine

TOKENS: dict[str, dict[str, str]] = {"right": RIGHT, "of the driver": OF_DRIVER, "none": NONE}


def xs(frame: DataFrame) -> list[int]:
    return sorted(row.x for row in frame.select("x").collect())


class Ways:
    """Ways to a table: those of `READS` return its values of x, those of `WRITES` change it."""

    def __init__(
        self, spark: SparkSession, folder: Path, name: str, storage_options: dict[str, str]
    ) -> None:
        self.spark, self.folder, self.storage_options = spark, folder, storage_options
        # As it is without any: an option that is not there.
        self.given = {"storageOptions": json.dumps(storage_options)} if storage_options else {}
        self.rows, self.feed = s3_uri(folder / "rows"), s3_uri(folder / "feed")
        self.target, self.checkpoint = str(folder / name), str(folder / f"{name} c")
        self.new = spark.range(100, 110, 1, 2).selectExpr("id AS x")

    def read_by_format(self) -> list[int]:
        return xs(self.spark.read.format("txlog").options(**self.given).load(self.rows))

    def read_by_function(self) -> list[int]:
        # Only txlog's own reader decides this predicate.
        return xs(
            txlog.spark_ext.read(
                self.spark, self.rows, where="x + 0 >= 0", storage_options=self.storage_options
            )
        )

    def read_by_delta_table(self) -> list[int]:
        # This Spark has no jar for the store, so txlog's own reader reads.
        return xs(DeltaTable.forPath(self.spark, self.rows, self.storage_options).toDF())

    def read_by_sql(self) -> list[int]:
        options = "".join(f", {name} '{value}'" for name, value in self.given.items())
        self.spark.sql(
            f"CREATE OR REPLACE TEMPORARY VIEW v USING txlog OPTIONS (path '{self.rows}'{options})"
        )
        return xs(self.spark.table("v"))

    def read_by_verb(self) -> list[int]:
        table = self._table(self.rows)
        return table.scan(where="x % 2 = 0 OR x % 2 = 1").to_arrow()["x"].to_pylist()

    def read_changes(self) -> list[int]:
        reader = self.spark.read.format("txlog").options(**self.given, readChangeFeed="true")
        return xs(reader.load(self.feed).where("_change_type = 'insert'"))

    def read_stream(self) -> list[int]:
        reader = self.spark.readStream.format("txlog").options(**self.given)
        writer = reader.load(self.rows).writeStream.format("parquet")
        writer = writer.option("checkpointLocation", self.checkpoint).trigger(availableNow=True)
        writer.start(self.target).awaitTermination()
        return xs(self.spark.read.parquet(self.target))

    def append_by_format(self) -> None:
        self.new.write.format("txlog").mode("append").options(**self.given).save(self.target)

    def append_by_function(self) -> None:
        txlog.spark_ext.write(self.new, self.target, storage_options=self.storage_options)

    def make(self) -> None:
        shutil.rmtree(self.target)
        self.append_by_function()

    def append_by_stream(self) -> None:
        self.new.write.mode("overwrite").parquet(str(self.folder / "new"))
        stream = self.spark.readStream.schema("x LONG").parquet(str(self.folder / "new"))
        writer = stream.writeStream.format("txlog").options(**self.given)
        writer = writer.option("checkpointLocation", self.checkpoint).trigger(availableNow=True)
        writer.start(self.target).awaitTermination()

    def delete(self) -> None:
        self._table(self.target).delete("x % 10 = 3")

    def compact(self) -> None:
        self._table(self.target).optimize.compact()

    def _table(self, uri: str) -> txlog.Table:
        engine = SparkEngine(self.spark, local_items=0)
        return txlog.Table(uri, storage_options=self.storage_options, engine=engine)


_WAYS = [name for name in vars(Ways) if not name.startswith("_")]
READS = [name for name in _WAYS if name.startswith("read")]
WRITES = [name for name in _WAYS if not name.startswith("read")]
# A server of Spark Connect does not tell which jars it has; and streams take their time there.
_NOT_OVER_CONNECT = {"read_by_delta_table", "read_stream", "append_by_stream"}


def ways_of(kind: str) -> list[str]:
    """Return the ways that a kind of session goes."""
    return [name for name in _WAYS if kind == "classic" or name not in _NOT_OVER_CONNECT]


def outcome(work: Callable[[], Any]) -> Any:
    """Return a result, or the name and text of an error."""
    try:
        return work()
    except Exception as error:
        return [type(error).__name__, str(error)]


def session(kind: str) -> SparkSession:
    if kind == "classic":
        return txlog.spark_ext.session("txlog locked stores", **SETTINGS)
    builder = SparkSession.builder.remote("local[2]")
    for name, value in SETTINGS.items():
        if name != "spark__master":
            builder = builder.config(name.replace("__", "."), value)
    return builder.getOrCreate()


def main(folder: Path, kind: str) -> None:
    spark = session(kind)
    seen = {}
    for way in ways_of(kind):
        for token, options in TOKENS.items():
            name = f"{way}, {token}"
            if way in WRITES:
                shutil.copytree(folder / "base", folder / name)
            seen[name] = outcome(getattr(Ways(spark, folder, name, options), way))
    spark.stop()
    (folder / "seen.json").write_text(json.dumps(seen))


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main(Path(sys.argv[1]), sys.argv[2])
