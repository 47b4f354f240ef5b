"""Reads of tables with so many files that executors plan them."""

import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import txlog
from tests.moved import moved
from txlog import spark_ext
from txlog.spark_ext.engine import PLAN_FILES, SparkEngine
from txlog.spark_ext.reads import read_frame

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark
LARGE = {"txlog.snapshot.live_files:_LARGE_BYTES": 1}
SCHEMA = pa.schema([("n", pa.int64()), ("p", pa.string())])
PREDICATES = [None, "n > 25", "p = 'a'", "p = 'b' AND n < 12", "n < 0", "n % 4 = 0"]


class Watched(SparkEngine):
    """Counts the shares that executors get."""

    shares = 0

    def _run(self, work: bytes, items: Any) -> Any:
        Watched.shares += len(items)
        return super()._run(work, items)


@pytest.fixture(name="path", params=["classic", "v2"])
def fixture_path(tmp_path: Path, request: pytest.FixtureRequest) -> str:
    """A table with a checkpoint of several files, and newer commits."""
    properties = {
        "delta.checkpointPolicy": request.param,
        "delta.enableDeletionVectors": "true",
    }
    path = tmp_path / "t"
    table = txlog.Table.create(path, SCHEMA, ["p"], properties)
    small = {"txlog.checkpoint.write:_ROW_GROUP": 2, "txlog.checkpoint.sidecars:PART_ROWS": 2}
    with moved(LARGE | small):
        for at in range(4):
            rows = [{"n": 10 * at + k, "p": "ab"[k % 2]} for k in range(10)]
            table.append(pa.Table.from_pylist(rows, SCHEMA))
        table.delete("n % 5 = 2")
        table.maintenance.checkpoint()
    table.delete("n >= 20 AND n < 24")
    table.append(pa.table({"n": [100, 101], "p": ["a", "b"]}))
    table.overwrite(pa.table({"n": [7], "p": ["b"]}), "p = 'b' AND n < 10")
    return str(path)


def numbers(frame: Any) -> list[int]:
    return sorted(frame.toArrow()["n"].to_pylist())


@pytest.mark.slow
@pytest.mark.spec("SPK-30")
def test_the_rows_are_those_of_a_scan(
    spark: "SparkSession", path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(read_frame, "SparkEngine", Watched)
    for where in PREDICATES:
        expected = sorted(txlog.Table(path).to_arrow(["n"], where)["n"].to_pylist())
        for columns in (["n"], None, ["n", "_rowaddr"]):
            Watched.shares = 0
            with moved(LARGE | {"txlog.scan.lazy_plan:APART_FROM": 1}):
                frame = spark_ext.read(spark, path, where=where, columns=columns)
            assert Watched.shares > 0
            assert numbers(frame) == expected, (where, columns)


@pytest.mark.slow
def test_the_setting_of_the_session_says_from_how_many_files_on(
    spark: "SparkSession", path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(read_frame, "SparkEngine", Watched)
    try:
        for text, jobs in (("1", True), ("1000", False), ("0", False), ("", False)):
            spark.conf.set(PLAN_FILES, text)
            Watched.shares = 0
            with moved(LARGE):
                spark_ext.read(spark, path, where="n > 3")
            assert (Watched.shares > 0) is jobs, text
        spark.conf.set(PLAN_FILES, "many")
        with moved(LARGE), pytest.raises(txlog.InvalidInputError, match="planFiles"):
            spark_ext.read(spark, path, where="n > 3")
    finally:
        spark.conf.unset(PLAN_FILES)


@pytest.mark.slow
@pytest.mark.spec("SPK-31")
def test_an_executor_that_is_lost_for_good_is_a_clear_error(
    spark: "SparkSession", path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Dying(SparkEngine):
        def map(self, function: Callable[[Any], Any], items: Iterable[Any]) -> Iterator[Any]:
            *_, last = items = list(items)

            def dies(item: Any) -> Any:
                return os._exit(9) if item == last else function(item)

            return super().map(dies, items)

    monkeypatch.setattr(read_frame, "SparkEngine", Dying)
    with (
        moved(LARGE | {"txlog.scan.lazy_plan:APART_FROM": 1}),
        pytest.raises(txlog.EngineError, match="lost a worker"),
    ):
        spark_ext.read(spark, path, where="n > 3")


@pytest.mark.slow
@pytest.mark.spec("SPK-31")
def test_a_plan_for_which_the_driver_has_no_room_is_a_clear_error(
    spark: "SparkSession", path: str
) -> None:
    settings = spark.sparkContext._jsc.sc().conf()  # type: ignore[attr-defined]  # Of the JVM.
    expected = sorted(txlog.Table(path).to_arrow(["n"], "n > 3")["n"].to_pylist())
    with moved(LARGE | {"txlog.scan.lazy_plan:APART_FROM": 1}):
        settings.set("spark.driver.maxResultSize", "100b")
        try:
            with pytest.raises(txlog.EngineError, match="maxResultSize") as caught:
                spark_ext.read(spark, path, where="n > 3")
        finally:
            settings.remove("spark.driver.maxResultSize")
        assert "predicate" in caught.value.remedy
        assert numbers(spark_ext.read(spark, path, where="n > 3")) == expected


@pytest.mark.slow
@pytest.mark.spec("SPK-30")
def test_over_spark_connect(remote: Callable[..., Any], path: str) -> None:
    def work(spark: "SparkSession", path: str) -> tuple[list[int], int]:
        from txlog.snapshot import live_files

        live_files._LARGE_BYTES = 1  # type: ignore[assignment]
        jobs = []
        collected = SparkEngine._collected

        def watched(self: Any, *given: Any) -> pa.Table:
            jobs.append(given)
            return collected(self, *given)

        SparkEngine._collected = watched  # type: ignore[method-assign]
        spark.conf.set(PLAN_FILES, "1")
        try:
            found = spark_ext.read(spark, path, where="n > 12").toArrow()
            return sorted(found["n"].to_pylist()), len(jobs)
        finally:
            SparkEngine._collected = collected  # type: ignore[method-assign]
            live_files._LARGE_BYTES = 4 << 20
            spark.conf.unset(PLAN_FILES)

    found, jobs = remote(work, path)
    assert found == sorted(txlog.Table(path).to_arrow(["n"], "n > 12")["n"].to_pylist())
    assert jobs
