"""Ways of storage options into Spark, each with another secret: classic sessions and Connect.

As a program it is a driver that goes them. Its argument is a folder: tables go there, Spark's log
of events to `events`, what was said to `said.json`; whatever Spark logs, to the standard streams.

No secret has a word that Spark hides of its own accord, wherever it stands: `secret`, `token`.
"""

import contextlib
import io
import json
import re
import sys
import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import DataFrame, SparkSession
from streaming_driver import SETTINGS

import txlog
import txlog.spark_ext

HIDDEN = "wednesday-frogs"
PATTERNS = tuple(f"spark.sql.redaction.{name}.regex" for name in ("string", "options"))
# The ways, and what is said of each, so that it would have shown a secret.
WAYS = {
    "read": "BatchScan txlog",
    "read_of_nothing": "[not-found]",
    "read_that_fails": "[data-file]",
    "changes": "_change_type",
    "stream": "numInputRows",
    "stream_of_changes": "numInputRows",
    "stream_that_fails": "[data-file]",
    "write": "[schema-mismatch]",
    "write_of_nonsense": "a JSON object of options",
    "write_that_fails": "not these rows",
    "write_by_function": "[schema-mismatch]",
    "frame": "Scan parquet",
    "frame_that_fails": "[data-file]",
    "delta_table": "no_such_function",
    "view": "SubqueryAlias v",
    "sql_view": "Type: VIEW",
}


def storage_of(way: str) -> dict[str, Any]:
    return {"key": f"{HIDDEN}-{way}", "more": {"note": f'"\\{HIDDEN}-{way}'}}


def shown_in(text: str) -> set[str]:
    """Return the ways whose secrets are in a text."""
    return set(re.findall(rf"{HIDDEN}-([\w.]+)", text))


def make_tables(folder: Path) -> None:
    data = pa.table({"x": range(60)})
    txlog.write(folder / "whole", data, options=txlog.WriteOptions(max_rows_per_file=10))
    for name in ("marked", "changed"):
        txlog.write(folder / name, data, options=txlog.WriteOptions(max_rows_per_file=10)).delete(
            "x % 10 = 4"
        )
    txlog.write(folder / "gone", data, options=txlog.WriteOptions(max_rows_per_file=10))
    for path in (folder / "gone").glob("*.parquet"):
        path.unlink()
    write_deltalake(folder / "feed", data, configuration={"delta.enableChangeDataFeed": "true"})
    DeltaTable(folder / "feed").delete("x = 3")


class Ways:
    """Each way prints whatever can be asked of a frame, a query or a table."""

    def __init__(self, spark: SparkSession, folder: Path, option: str, run: str) -> None:
        self.spark, self.folder, self.option, self.run = spark, folder, option, run
        self.way = ""

    def go(self, ways: Iterable[str]) -> dict[str, str]:
        """Return what each way has said, errors among it."""
        said = {}
        self.spark.conf.set("spark.txlog.manifests", str(self.folder / "lists"))
        for way in ways:
            self.way = f"{self.run}.{way}"
            with contextlib.redirect_stdout(io.StringIO()) as out:
                try:
                    getattr(self, way)()
                except Exception as error:
                    print(repr(error), error, error.__cause__)
            said[self.way] = out.getvalue()
        self.spark.conf.unset("spark.txlog.manifests")
        return said

    def read(self) -> None:
        self._explain(self._load("marked").where("x > 3"))

    def read_of_nothing(self) -> None:
        self._load("nothing").collect()

    def read_that_fails(self) -> None:
        self._load("gone").collect()

    def changes(self) -> None:
        self._explain(self._load("feed", readChangeFeed="true"))

    def stream(self) -> None:
        self._stream("whole")

    def stream_of_changes(self) -> None:
        self._stream("feed", readChangeFeed="true")

    def stream_that_fails(self) -> None:
        self._stream("gone")

    def write(self) -> None:
        frame = self.spark.range(3)
        for columns in ("id", "id + 1 AS y"):
            writer = frame.selectExpr(columns).write.format("txlog").mode("append")
            writer.options(**self._given).save(f"{self.folder}/{self.way}")

    def write_of_nonsense(self) -> None:
        writer = self.spark.range(3).write.format("txlog").mode("append")
        writer.option(self.option, f"{{{HIDDEN}-{self.way}").save(f"{self.folder}/{self.way}")

    def write_that_fails(self) -> None:
        frame = self.spark.range(3).selectExpr("CAST(raise_error('not these rows') AS BIGINT) AS x")
        writer = frame.write.format("txlog").mode("append").options(**self._given)
        writer.save(f"{self.folder}/{self.way}")

    def write_by_function(self) -> None:
        frame = self.spark.range(3)
        for columns in ("id", "id + 1 AS y"):
            path = self.folder / self.way
            txlog.spark_ext.write(frame.selectExpr(columns), path, storage_options=self._storage)

    def frame(self) -> None:
        for name, where in (("whole", None), ("marked", None), ("marked", "x + 1 > 3")):
            path = str(self.folder / name)
            self._explain(
                txlog.spark_ext.read(self.spark, path, where=where, storage_options=self._storage)
            )

    def frame_that_fails(self) -> None:
        path = str(self.folder / "gone")
        txlog.spark_ext.read(
            self.spark, path, where="x + 1 > 3", storage_options=self._storage
        ).collect()

    def delta_table(self) -> None:
        path = str(self.folder / "changed")
        table = txlog.spark_ext.DeltaTable.forPath(self.spark, path, self._storage)
        self._explain(table.toDF())
        table.delete("pmod(x, 7) = 3")
        found = [table.optimize().executeCompaction(), table.history(), table.detail()]
        print(repr(table), [frame.collect() for frame in found])
        table.delete("no_such_function(x) = 3")

    def view(self) -> None:
        path = str(self.folder / "marked")
        for where in (None, "x + 1 > 3"):
            txlog.spark_ext.create_view(
                self.spark, "v", path, where=where, storage_options=self._storage
            )
            self._explain(self.spark.sql("SELECT * FROM v"))
            print(self.spark.sql("DESCRIBE EXTENDED v").collect())

    def sql_view(self) -> None:
        ((name, value),) = self._given.items()
        text = value.replace("\\", "\\\\").replace("'", "\\'")
        self.spark.sql(
            "CREATE OR REPLACE TEMPORARY VIEW w USING txlog "
            f"OPTIONS (path '{self.folder / 'changed'}', {name} '{text}')"
        )
        self.spark.sql("INSERT INTO w VALUES (1)")
        self._explain(self.spark.sql("SELECT * FROM w"))
        for query in ("DESCRIBE EXTENDED w", "SHOW TABLE EXTENDED LIKE 'w'"):
            print(self.spark.sql(query).collect())

    @property
    def _storage(self) -> dict[str, Any]:
        return storage_of(self.way)

    @property
    def _given(self) -> dict[str, str]:
        return {self.option: json.dumps(self._storage)}

    def _load(self, name: str, **options: str) -> DataFrame:
        reader = self.spark.read.format("txlog").options(**self._given, **options)
        return reader.load(str(self.folder / name))

    def _explain(self, frame: DataFrame) -> None:
        for mode in ("extended", "formatted", "cost", "codegen"):
            frame.explain(mode=mode)
        print(frame.count())

    def _stream(self, name: str, **options: str) -> None:
        reader = self.spark.readStream.format("txlog").options(**self._given, **options)
        query = (
            reader.load(str(self.folder / name))
            .writeStream.format("txlog")
            .options(**self._given)
            .option("checkpointLocation", f"{self.folder}/checkpoint-{self.way}")
            .trigger(availableNow=True)
            .start(f"{self.folder}/{self.way}")
        )
        with contextlib.suppress(Exception):
            query.awaitTermination()
        query.explain(True)
        progress = [getattr(one, "json", one) for one in query.recentProgress]
        print(query.status, query.exception(), progress)


def main(folder: Path) -> None:
    make_tables(folder)
    (folder / "events").mkdir()
    settings = {**SETTINGS, "spark__log__level": "INFO"}
    spark = txlog.spark_ext.session(
        "txlog secrets test",
        spark__eventLog__enabled="true",
        spark__eventLog__compress="false",
        spark__eventLog__dir=(folder / "events").as_uri(),
        spark__sql__ui__explainMode="extended",
        **settings,
    )
    said = Ways(spark, folder, "storageOptions", "registered").go(WAYS)
    for pattern in PATTERNS:
        spark.conf.unset(pattern)
    said |= Ways(spark, folder, "secretStorageOptions", "unregistered").go(
        ("read", "stream", "write", "frame", "delta_table", "sql_view")
    )
    said |= Ways(spark, folder, "storageOptions", "in_clear").go(("write", "sql_view"))
    spark.stop()
    (folder / "said.json").write_text(json.dumps(said))


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main(Path(sys.argv[1]))
