"""Changes of tables with so many files that executors plan them."""

import shutil
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark import cloudpickle

import txlog
from tests.examples import examples
from tests.moved import moved
from tests.predicates import predicates_over
from tests.verbs.test_change_rows_large_tables import PROPERTIES, STEPS, VERBS, result_of, rows
from txlog.snapshot import live_files
from txlog.spark_ext import SparkEngine
from txlog.spark_ext.engine import PLAN_FILES
from txlog.verbs.doctor import Diagnosis

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark
LARGE = {"txlog.snapshot.live_files:_LARGE_BYTES": 1}
APART = {
    **LARGE,
    "txlog.scan.lazy_plan:APART_FROM": 1,
    "txlog.checkpoint.read:_SHARE_BYTES": 1,
}
SMALL = {"txlog.checkpoint.write:_ROW_GROUP": 2, "txlog.checkpoint.sidecars:PART_ROWS": 2}


class Workers:
    """An engine of other processes, as far as pickles can tell."""

    in_process = False

    def __init__(self) -> None:
        self.functions: list[str] = []

    def map(self, function: Callable[[Any], Any], items: Iterable[Any]) -> Iterator[Any]:
        self.functions.append(type(function).__name__)
        packed = cloudpickle.dumps(function)
        for item in items:
            result = cloudpickle.loads(packed)(cloudpickle.loads(cloudpickle.dumps(item)))
            yield cloudpickle.loads(cloudpickle.dumps(result))


def done(path: Path, verb: str, where: txlog.Expression | None, engine: Any) -> Any:
    with moved(LARGE if engine is None else APART):
        return result_of(path, verb, where, engine)


@pytest.mark.slow
@pytest.mark.spec("SPK-32")
@settings(max_examples=examples(60), deadline=None)
@given(
    steps=st.lists(st.sampled_from(sorted(STEPS)), min_size=1, max_size=6),
    properties=st.sampled_from(sorted(PROPERTIES)),
    partitioned=st.booleans(),
    verb=st.sampled_from(sorted(VERBS)),
    where=st.none()
    | predicates_over({"x": st.integers(0, 21), "p": st.integers(0, 2), "t": st.just("t2")}),
)
def test_a_change_that_workers_plan_is_that_of_one_process(
    steps: list[str], properties: str, partitioned: bool, verb: str, where: txlog.Expression | None
) -> None:
    with TemporaryDirectory() as folder, moved(SMALL):
        path = Path(folder, "apart")
        table = txlog.write(
            path,
            rows(1, 2, 3),
            partition_by="p" if partitioned else None,
            properties=PROPERTIES[properties],
        )
        for step in [*steps[:-1], "checkpoint", steps[-1]]:
            STEPS[step](table)
        shutil.copytree(path, path.with_name("here"))
        expected = done(path.with_name("here"), verb, where, None)
        assert done(path, verb, where, Workers()) == expected


def unread(path: Path, monkeypatch: pytest.MonkeyPatch) -> txlog.Table:
    """Return a table with a checkpoint; from now on the test fails if the whole log is read."""
    table = txlog.write(path, rows(*range(9)), partition_by="p")
    table.append(rows(1, 2, 4))
    table.maintenance.checkpoint()

    def refused(*_: Any) -> Any:
        raise AssertionError("the whole log is read")

    monkeypatch.setattr(live_files, "read_files", refused)
    return table


@pytest.mark.slow
@pytest.mark.parametrize("verb", sorted({*VERBS} - {"compact deletions"}))
def test_no_change_loads_the_log_where_workers_do(
    verb: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = unread(tmp_path, monkeypatch)
    engine = Workers()
    with moved(APART):
        VERBS[verb](txlog.Table(tmp_path, engine=engine), txlog.col("x") == 1)
    assert "_FoldShare" in engine.functions
    assert txlog.Table(tmp_path).version == table.version + 1


def examined(path: Path, sample: int | None, engine: Any) -> Diagnosis:
    with moved(LARGE if engine is None else APART):
        found = txlog.Table(path) if engine is None else txlog.Table(path, engine=engine)
        return found.doctor(sample)


@pytest.mark.slow
@pytest.mark.spec("SPK-33")
@settings(max_examples=examples(40), deadline=None)
@given(
    steps=st.lists(st.sampled_from(sorted(STEPS)), min_size=2, max_size=6),
    properties=st.sampled_from(sorted(PROPERTIES)),
    partitioned=st.booleans(),
    faults=st.lists(st.tuples(st.integers(0, 20), st.sampled_from(["lost", "cut", "odd"]))),
    sample=st.none() | st.integers(0, 4),
    looks=st.sampled_from([1, 10_000]),
    in_turn=st.integers(1, 3),
)
def test_a_doctor_whose_workers_read_the_log_finds_what_one_process_finds(
    steps: list[str], properties: str, partitioned: bool, faults: list[tuple[int, str]],
    sample: int | None, looks: int, in_turn: int,
) -> None:  # fmt: skip
    with TemporaryDirectory() as folder, moved(SMALL):
        table = txlog.write(
            folder,
            rows(1, 2, 3),
            partition_by="p" if partitioned else None,
            properties=PROPERTIES[properties],
        )
        for step in [*steps[:-1], "checkpoint", steps[-1]]:
            STEPS[step](table)
        data = sorted(map(Path, txlog.Table(folder).scan().file_uris()))
        vectors = sorted(Path(folder).glob("**/deletion_vector*"))
        for at, fault in faults:
            path = (data + vectors)[at % len(data + vectors)]
            if fault == "lost":
                path.unlink(missing_ok=True)
            elif fault == "cut" and path.exists():
                path.write_bytes(path.read_bytes()[:-1])
            elif fault == "odd" and path.exists():
                path.with_name("of nobody.parquet").write_bytes(b"")
        engine = Workers()
        moves = {"txlog.verbs.doctor:_LOOKED_UP": looks}
        with moved(moves | {"txlog.snapshot.live_files:_SHARES_IN_TURN": in_turn}):
            expected = examined(Path(folder), sample, None)
            found = examined(Path(folder), sample, engine)
        assert "_FoldShare" in engine.functions
        assert found == expected


def test_a_doctor_on_workers_loads_no_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    unread(tmp_path, monkeypatch)
    engine = Workers()
    assert examined(tmp_path, 2, engine).files_opened == 2
    assert engine.functions.count("_FoldShare") > 3


@pytest.mark.slow
@pytest.mark.spec("SPK-32", "SPK-34")
def test_changes_on_spark(
    spark: "SparkSession", tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Verbs of `DeltaTable` and of an engine, overwrites by frames, and a vacuum."""
    from txlog.spark_ext import DeltaTable, write

    shares = []
    run = SparkEngine._run

    def watched(self: SparkEngine, work: bytes, items: Any) -> Any:
        shares.append(len(items))
        return run(self, work, items)

    monkeypatch.setattr(SparkEngine, "_run", watched)
    found = []
    for name in ("here", "apart"):
        path = tmp_path / name
        with moved(SMALL | LARGE):
            table = txlog.write(path, rows(*range(12)), partition_by="p")
            table.append(rows(20, 21, 22))
            table.maintenance.checkpoint()
        shares.clear()
        with moved(APART if name == "apart" else LARGE):
            delta = DeltaTable.forPath(spark, str(path))
            delta.delete("x % 5 = 1")
            assert bool(shares) is (name == "apart")
            delta.update("x + 0 > 9", {"t": "concat(t, '!')"})
            source = spark.range(8, 25).selectExpr("id AS x", "id % 3 AS p", "'s' AS t")
            merging = delta.alias("a").merge(source.alias("b"), "a.x = b.x AND a.p = b.p")
            merging.whenMatchedUpdateAll().whenNotMatchedInsertAll().execute()
            held = txlog.Table(path, engine=SparkEngine(spark, local_items=0))
            held.optimize.compact()
            held.delete("x = 24")
            for how in ({"partition_mode": "dynamic"}, {"where": "p = 0 AND x > 3"}):
                new = spark.range(30, 40, 3).selectExpr("id AS x", "id % 3 AS p", "'n' AS t")
                shares.clear()
                write(new, str(path), mode="overwrite", **how)
                assert bool(shares) is (name == "apart")
            shares.clear()
            listed = held.vacuum(0, True, False)
            assert bool(shares) is (name == "apart")
        assert listed == txlog.Table(path).vacuum(0, True, False)
        found.append(sorted(map(str, txlog.Table(path).to_arrow().to_pylist())))
    assert found[0] == found[1]


@pytest.mark.slow
def test_an_overwrite_that_cannot_be_planned_leaves_no_files(
    spark: "SparkSession", tmp_path: Path
) -> None:
    from txlog.spark_ext import write

    table = txlog.write(tmp_path, rows(1, 2, 3), partition_by="p")
    table.maintenance.checkpoint()
    before = sorted(tmp_path.rglob("*.parquet"))
    new = spark.sql("SELECT 30L AS x, 0L AS p, 'n' AS t")
    spark.conf.set(PLAN_FILES, "many")
    try:
        with moved(LARGE), pytest.raises(txlog.InvalidInputError, match="planFiles"):
            write(new, str(tmp_path), mode="overwrite", partition_mode="dynamic")
    finally:
        spark.conf.unset(PLAN_FILES)
    assert sorted(tmp_path.rglob("*.parquet")) == before
