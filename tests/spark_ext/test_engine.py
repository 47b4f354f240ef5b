"""Work on executors: the same verbs, the same results, and clear errors if a worker dies."""

import os
import pickle
import shutil
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from counted_engine import Counted
from deltalake import DeltaTable
from pyspark import cloudpickle

import txlog
from txlog.base.threads import Threads
from txlog.extend import context_of
from txlog.spark_ext import SparkEngine, table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

SECRET = "hunter2-of-the-store"
FILES = 6


class Weighed:
    """Threads, but what they get goes through pickles that are weighed, as for executors."""

    def __init__(self) -> None:
        self.functions: list[int] = []
        self.items: list[int] = []

    def map(self, function: Callable[[Any], Any], items: Iterable[Any]) -> Iterator[Any]:
        packed = cloudpickle.dumps(function)
        self.functions.append(len(packed))
        for item in items:
            one = cloudpickle.dumps(item)
            self.items.append(len(one))
            yield cloudpickle.loads(packed)(cloudpickle.loads(one))


def rows(files: int) -> pa.Table:
    numbers = list(range(files * 10))
    return pa.table({"x": numbers, "g": [n // 20 for n in numbers]})


def made(path: Path, files: int = FILES, **properties: str) -> txlog.Table:
    """Return a table of files of ten rows each."""
    return txlog.write(
        path, rows(files), options=txlog.WriteOptions(max_rows_per_file=10), properties=properties,
        storage_options={"token": SECRET},
    )  # fmt: skip


def opened(path: Path, engine: Any) -> txlog.Table:
    return txlog.Table(path, storage_options={"token": SECRET}, engine=engine)


@pytest.mark.spec("ENG-1")
def test_results_come_in_the_order_of_the_items(spark: "SparkSession") -> None:
    def squared(number: int) -> tuple[int, int]:
        return number * number, os.getpid()

    for tasks in (None, 3):
        found = list(SparkEngine(spark, tasks=tasks).map(squared, iter(range(20))))
        assert [square for square, _ in found] == [n * n for n in range(20)]
        assert os.getpid() not in {process for _, process in found}


def test_a_long_stream_of_items_is_several_jobs(
    spark: "SparkSession", monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("txlog.spark_ext.engine._JOB_ITEMS", 4)
    engine = Counted(spark)
    taken: list[int] = []

    def items() -> Iterator[int]:
        for number in range(10):
            taken.append(number)
            yield number

    results = engine.map(lambda number: -number, items())
    assert next(results) == 0
    assert taken == [0, 1, 2, 3]
    assert list(results) == [-n for n in range(1, 10)]
    assert engine.jobs == 2  # The last two items are too few for a job.


def test_little_work_stays_here(spark: "SparkSession") -> None:
    assert set(SparkEngine(spark).map(lambda _: os.getpid(), [1, 2])) == {os.getpid()}
    far = SparkEngine(spark, local_items=0).map(lambda _: os.getpid(), [1])
    assert os.getpid() not in set(far)
    assert list(SparkEngine(spark).map(lambda n: n, [])) == []


@pytest.mark.parametrize("arguments", [{"tasks": 0}, {"tasks": 1.5}, {"local_items": -1}])
def test_numbers_that_are_none_are_refused(
    spark: "SparkSession", arguments: dict[str, Any]
) -> None:
    with pytest.raises(txlog.InvalidInputError, match="not a whole number"):
        SparkEngine(spark, **arguments)


@pytest.mark.spec("ENG-1")
def test_an_error_of_txlog_arrives_as_it_was_raised(spark: "SparkSession") -> None:
    def work(number: int) -> int:
        if number in (3, 7):
            raise txlog.DataFileError(path=f"{number}.parquet", reason="gone", remedy="Restore it")
        return number

    results = SparkEngine(spark, tasks=2).map(work, range(10))
    assert [next(results) for _ in range(3)] == [0, 1, 2]
    with pytest.raises(txlog.DataFileError) as caught:
        next(results)
    assert (caught.value.path, caught.value.remedy) == ("3.parquet", "Restore it")
    assert str(caught.value) == ("[data-file] gone (path='3.parquet'). Restore it")
    assert caught.value.__cause__ is None


def test_other_errors_keep_their_type(spark: "SparkSession") -> None:
    def odd(number: int) -> float:
        return 1 / (number - 5)

    with pytest.raises(ZeroDivisionError) as caught:
        list(SparkEngine(spark).map(odd, range(10)))
    (note,) = caught.value.__notes__
    assert "return 1 / (number - 5)" in note
    assert len(note.splitlines()) < 12


def test_what_does_not_pickle_is_told(spark: "SparkSession") -> None:
    class TwoArguments(Exception):  # noqa: N818
        """It pickles, but does not come back."""

        def __init__(self, one: str, two: str) -> None:
            super().__init__(f"{one} and {two}")

    def raises(number: int) -> int:
        raise TwoArguments("this", "that")

    engine = SparkEngine(spark)
    with pytest.raises(txlog.EngineError, match="TwoArguments cannot be pickled: this and that"):
        list(engine.map(raises, range(5)))
    with pytest.raises(txlog.EngineError, match=r"a result \(lock\) cannot be pickled"):
        list(engine.map(lambda _: threading.Lock(), range(5)))
    lock = threading.Lock()
    with pytest.raises(txlog.InvalidInputError, match=r"cannot be pickled.*Use only functions"):
        list(engine.map(lambda _: lock.locked(), range(5)))


def test_warnings_of_executors_are_given_here(spark: "SparkSession") -> None:
    def warns(number: int) -> int:
        if number == 4:
            warnings.warn("file 4 is odd", txlog.TxlogWarning, stacklevel=1)
            warnings.warn("nobody's business", stacklevel=1)
        return number

    with pytest.warns(txlog.TxlogWarning, match="file 4 is odd") as caught:
        assert list(SparkEngine(spark).map(warns, range(6))) == list(range(6))
    assert [one for one in caught if "nobody" in str(one.message)] == []


@pytest.mark.spec("ENG-3")
def test_a_killed_worker_is_one_clear_error_and_no_commit(
    spark: "SparkSession", tmp_path: Path
) -> None:
    made(tmp_path).alter.add_features("txlog.fragments")
    held = opened(tmp_path, SparkEngine(spark))

    def dies(batch: pa.RecordBatch) -> pa.Array:
        if batch.num_rows and batch["x"][0].as_py() == 30:
            os._exit(9)
        return batch["x"]

    with pytest.raises(txlog.EngineError, match=r"Spark lost a worker.*Give executors") as caught:
        held.alter.add_columns({"y": dies})
    assert len(str(caught.value)) < 500
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__
    again = txlog.Table(tmp_path)
    assert again.version == held.version
    assert again.to_arrow().sort_by("x") == rows(FILES)


def change_delete(held: txlog.Table) -> None:
    held.delete("x % 3 = 0")


def change_columns(held: txlog.Table) -> None:
    held.alter.add_features("txlog.fragments")
    held.delete("x % 5 = 0")
    held.alter.add_columns({"y": lambda batch: pc.multiply(batch["x"], 2), "z": "x + 1"})
    held.alter.replace_columns({"y": "x * 3"})


def change_compact(held: txlog.Table) -> None:
    held.delete("x % 4 = 0")
    # Groups of two files, so that there is work for several.
    held.optimize.compact(options=txlog.WriteOptions(max_rows_per_file=16), max_deleted_fraction=0)


def change_statistics(held: txlog.Table) -> None:
    held.optimize.compute_statistics(["x", "g"])


def change_rows(held: txlog.Table) -> None:
    held.update({"x": "x + 1000"}, "x % 3 = 0")
    source = held.to_arrow(where="x < 20").append_column("new", pa.array([1.5] * 13))
    more = source.slice(0, 1).set_column(0, "x", pa.array([5000], source["x"].type))
    merger = held.merge(
        pa.concat_tables([source, more]), "target.x = source.x", schema_mode="merge"
    )
    merger.when_matched_delete("source.x < 5").when_matched_update_all()
    merger.when_not_matched_insert_all().execute()


CHANGES = {
    "update and merge": (change_rows, {"delta.enableChangeDataFeed": "true"}),
    "update and merge by rewriting": (change_rows, {"delta.enableDeletionVectors": "false"}),
    "delete": (change_delete, {}),
    "delete by rewriting": (change_delete, {"delta.enableDeletionVectors": "false"}),
    "columns": (change_columns, {}),
    "compact": (change_compact, {}),
    "statistics": (change_statistics, {"delta.dataSkippingNumIndexedCols": "0"}),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", CHANGES)
def test_verbs_do_the_same_on_executors(spark: "SparkSession", tmp_path: Path, name: str) -> None:
    change, properties = CHANGES[name]
    here, _ = (made(tmp_path / at, **properties) for at in ("here", "there"))
    engine = Counted(spark, local_items=0)
    far = opened(tmp_path / "there", engine)
    change(here)
    change(far)
    assert engine.jobs > 0
    found, expected = (txlog.Table(tmp_path / at) for at in ("there", "here"))
    assert found.to_arrow().sort_by("x") == expected.to_arrow().sort_by("x")
    assert found.count() == found.to_arrow().num_rows
    assert len(found.files()) == len(expected.files())
    for one, other in zip(found.history(), expected.history(), strict=True):
        assert one["operation"] == other["operation"]
    if name == "statistics":
        assert found.files()["stats"] == expected.files()["stats"]
        assert found.scan(where="x = 33").explain().files_to_read == 1
    if name == "delete by rewriting":  # As another library reads it.
        numbers = DeltaTable(str(tmp_path / "there")).to_pyarrow_table()["x"].to_pylist()
        assert sorted(numbers) == [n for n in range(FILES * 10) if n % 3]
    if name == "delete":
        assert sorted(found.to_arrow()["x"].to_pylist()) == [n for n in range(60) if n % 3]


@pytest.mark.slow
def test_reading_on_executors(spark: "SparkSession", tmp_path: Path) -> None:
    made(tmp_path)
    engine = Counted(spark)
    held = opened(tmp_path, engine)
    assert held.to_arrow(where="x % 7 = 1")["x"].to_pylist() == list(range(1, 60, 7))
    assert held.count("x % 7 = 1") == 9
    assert engine.jobs == 2


def test_rows_are_counted_on_executors(spark: "SparkSession", tmp_path: Path) -> None:
    """A log without statistics: adopting the table needs the footers."""
    made(tmp_path)
    log = tmp_path / "_delta_log" / "00000000000000000000.json"
    lines = log.read_text().splitlines()
    cut = [lines[0].replace('"txlogCrc32"', '"was"'), *lines[1:]]
    log.write_text("\n".join(line.partition(',"stats":"')[0] + ending(line) for line in cut))
    engine = Counted(spark)
    held = opened(tmp_path, engine)
    assert held.files()["num_records"].null_count == FILES
    held.alter.add_features("txlog.fragments")
    assert engine.jobs == 1
    assert held.files()["num_records"].to_pylist() == [10] * FILES


def ending(line: str) -> str:
    """Return what closes a line whose statistics were cut off."""
    return "}}" if ',"stats":"' in line else ""


@pytest.mark.spec("ENG-6")
def test_a_table_keeps_its_engine_but_for_pickling(spark: "SparkSession", tmp_path: Path) -> None:
    made(tmp_path)
    engine = SparkEngine(spark)
    for held in (
        opened(tmp_path, engine).refresh(),
        txlog.write(tmp_path / "w", rows(1), engine=engine),
        txlog.Table.create(tmp_path / "c", rows(1).schema, engine=engine),
    ):
        held.delete("x = 1")
        assert held.scan().engine is engine
        assert held.changes is not None
        again = pickle.loads(pickle.dumps(held))
        assert again.scan().engine == Threads()
        assert again.version == held.version
    found = table(spark, tmp_path, version=0)
    assert isinstance(found.scan().engine, SparkEngine)
    assert found.version == 0


@pytest.mark.spec("ENG-5")
def test_sidecars_of_checkpoints_are_written_by_executors(
    spark: "SparkSession", tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A verb has the module's name.
    monkeypatch.setattr(import_module("txlog.verbs.checkpoint"), "PART_ROWS", 8)
    monkeypatch.setattr("txlog.checkpoint.write._ROW_GROUP", 4)
    held = made(
        tmp_path, 30,
        **{"delta.checkpointPolicy": "v2", "delta.feature.v2Checkpoint": "supported"},
    )  # fmt: skip
    held.maintenance.checkpoint()
    held.delete("x < 105")  # 11 files: no one sidecar of 8 holds them, whatever their names are.
    engine = Counted(spark)
    opened(tmp_path, engine).maintenance.checkpoint()
    assert engine.jobs == 1
    log = tmp_path / "_delta_log"
    for file in (*log.glob("*.json"), *log.glob("00000000000000000000.checkpoint.*")):
        file.unlink()
    again = txlog.Table(tmp_path)
    assert sorted(again.to_arrow()["x"].to_pylist()) == list(range(105, 300))
    assert len(again.snapshot.sidecars) > 4


def test_memory_is_out_of_reach(spark: "SparkSession") -> None:
    txlog.write("memory://engine", rows(1))
    with pytest.raises(txlog.InvalidInputError, match="memory of this process"):
        table(spark, "memory://engine")


def test_a_session_is_no_engine(spark: "SparkSession", tmp_path: Path) -> None:
    made(tmp_path)
    with pytest.raises(txlog.InvalidInputError, match=r"is not an engine.*SparkEngine"):
        txlog.Table(tmp_path, engine=spark)


def test_what_the_log_counts_needs_no_worker(tmp_path: Path) -> None:
    made(tmp_path)
    engine = Weighed()
    held = opened(tmp_path, engine)
    held.alter.add_features("txlog.fragments")
    assert held.delete("x < 40").metrics["numDeletedRows"] == 40
    assert engine.items == []


def work_of(path: Path, files: int) -> Weighed:
    """Return what the verbs hand to workers, of a table of so many files."""
    held, engine = made(path, files), Weighed()
    held = opened(path, engine)
    held.optimize.compute_statistics(recompute=True)
    change_columns(held)
    change_compact(held)
    held.to_arrow(where="x > 3")
    held.count("x % 2 = 0")
    held.take(addresses=held.to_arrow(["_rowaddr"])["_rowaddr"].to_pylist()[:50])
    held.restore(0)
    return engine


@pytest.mark.spec("ENG-2")
def test_workers_get_fragments_and_a_plan_only(tmp_path: Path) -> None:
    small, large = work_of(tmp_path / "small", 4), work_of(tmp_path / "large", 40)
    # The same work, whatever the size of the table: no log and no file table goes along, which
    # have several hundred bytes for each file. (Pickles differ a little by what is shared in them.)
    assert len(small.functions) == len(large.functions)
    for one, other in zip(small.functions, large.functions, strict=True):
        assert abs(one - other) < 1000
    assert max(large.functions) < 8_000
    assert max(large.items) < 1_500


@pytest.mark.spec("ENG-4")
def test_storage_options_reach_executors_and_show_nowhere(
    spark: "SparkSession", tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made(tmp_path)
    plans: list[str] = []
    frame = type(spark.range(1))
    collected = frame.toArrow

    def watched(self: Any) -> pa.Table:
        found = collected(self)
        plans.append(self._jdf.queryExecution().toString())
        return found

    monkeypatch.setattr(frame, "toArrow", watched)
    held = opened(tmp_path, SparkEngine(spark, tasks=3))
    held.delete("x % 2 = 0")
    assert len(plans) == 1
    assert "MapInArrow" in plans[0]
    assert SECRET not in plans[0]
    told = SparkEngine(spark).map(lambda _: dict(context_of(held).store.options), range(3))
    assert list(told) == [{"token": SECRET}] * 3
    shutil.rmtree(tmp_path / "_delta_log")
    with pytest.raises(txlog.TxlogError) as caught:
        held.delete(None)
    assert SECRET not in str(caught.value)
    assert SECRET not in repr(held.scan())
