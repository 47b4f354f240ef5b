"""The text of a failed job or query begins with txlog's own sentence."""

from __future__ import annotations

import pickle
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import txlog
from txlog.base.errors import EngineError, InvalidInputError, SchemaMismatchError
from txlog.spark_ext.source.plain import plainly, plainly_each

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def fails() -> Any:
    try:
        raise OSError("deep")
    except OSError as error:
        raise InvalidInputError(argument="x", reason="it is wrong", remedy="Omit it") from error


def fails_late() -> Iterator[int]:
    yield 1
    fails()


@pytest.mark.parametrize("call", [plainly(fails), lambda: list(plainly_each(fails_late)())])
def test_the_sentence_comes_before_the_lines_of_code(call: Callable[[], Any]) -> None:
    with pytest.raises(InvalidInputError) as caught:
        call()
    error = caught.value
    shown = "".join(traceback.format_exception(error))
    assert shown.startswith(f"txlog.base.errors.InvalidInputError: {error}\n")
    assert "deep" not in shown
    assert str(pickle.loads(pickle.dumps(error))) == str(error)


def test_other_errors_are_left_alone() -> None:
    def wrong() -> None:
        raise KeyError("k")

    with pytest.raises(KeyError) as caught:
        plainly(wrong)()
    assert caught.value.__cause__ is None


@pytest.mark.slow
@pytest.mark.spark
def test_spark_shows_it_first(spark: SparkSession, tmp_path: Path) -> None:
    uri = txlog.write(tmp_path / "t", pa.table({"id": [1, 2]})).uri
    txlog.Table(uri).alter.add_constraint({"small": "id < 100"})

    def query(source: Any, kind: str, place: str) -> None:
        writer = source.writeStream.format(kind).trigger(availableNow=True)
        writer = writer.option("checkpointLocation", str(tmp_path / f"{kind}-checkpoint"))
        writer.start(place).awaitTermination()

    def stream(text: str) -> None:
        folder = str(tmp_path / "rows")
        frame = spark.sql(text)
        frame.write.mode("overwrite").parquet(folder)
        query(spark.readStream.schema(frame.schema).parquet(folder), "txlog", uri)

    def batch(text: str) -> None:
        spark.sql(text).write.format("txlog").mode("append").save(uri)

    def read(**options: str) -> None:
        rows = spark.readStream.format("txlog").options(**options).load(uri)
        query(rows, "parquet", str(tmp_path / "out"))

    def broken() -> None:
        made = Path(txlog.write(tmp_path / "broken", pa.table({"id": [1]})).uri)
        (file,) = made.glob("*.parquet")
        file.write_bytes(file.read_bytes()[:-20])
        spark.read.format("txlog").load(str(made)).collect()

    txlog.Table(uri).delete("id = 1")
    for fail, begins in (
        (broken, "DataFileError: [data-file] the file cannot be read as Parquet"),
        (lambda: stream("SELECT 500L id"), "SchemaMismatchError: [schema-mismatch] 1 rows break"),
        (lambda: stream("SELECT 'a' id"), "SchemaMismatchError: [schema-mismatch] column id is st"),
        (lambda: batch("SELECT 500L id"), "SchemaMismatchError: [schema-mismatch] 1 rows break"),
        (lambda: batch("SELECT 'a' id"), "SchemaMismatchError: [schema-mismatch] column id is str"),
        (lambda: read(withEventTimeOrder="true"), "InvalidInputError: [invalid-input] the first "),
        (
            lambda: read(startingVersion="1"),
            "UnsupportedFeatureError: [unsupported-feature] version 2 ",
        ),
    ):
        with pytest.raises(Exception, match="txlog") as caught:
            fail()
        shown = str(caught.value)
        before, said, _ = shown.partition(f"txlog.base.errors.{begins}")
        assert said, shown
        # Spark says in one line what failed. No lines of code come before the sentence.
        assert before.count("\n") <= 1, shown
        assert 'File "' not in shown.partition(" at org.apache")[0], shown
    with pytest.raises((SchemaMismatchError, EngineError)):
        txlog.spark_ext.write(spark.sql("SELECT 500L id"), uri)


@pytest.mark.slow
@pytest.mark.spark
def test_errors_of_functions_of_users_keep_their_lines_of_code(
    spark: SparkSession, tmp_path: Path
) -> None:
    """A worker that has shown an error of txlog is none of theirs."""

    def fails_on_worker(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from batches
        raise KeyError("of the user")

    uri = txlog.write(tmp_path / "t", pa.table({"id": [1]})).uri
    (file,) = Path(uri).glob("*.parquet")
    file.write_bytes(file.read_bytes()[:-20])
    with pytest.raises(Exception, match="DataFileError"):
        spark.read.format("txlog").load(uri).collect()
    with pytest.raises(Exception, match="of the user") as caught:
        spark.range(1).mapInArrow(fails_on_worker, "id long").collect()
    assert "in fails_on_worker" in str(caught.value)
