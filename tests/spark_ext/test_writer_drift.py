"""A table that changes between the tasks of a Spark write and its commit. No JVM is started."""

import pickle
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql.types import LongType, StringType
from pyspark.sql.types import StructField as Field
from pyspark.sql.types import StructType as Struct

import txlog
from txlog.base.errors import AlreadyExistsError, CommitConflictError, InvalidInputError
from txlog.spark_ext.source import writer
from txlog.spark_ext.source.options import Options
from txlog.spark_ext.source.writer import BatchWriter, StreamWriter, Written
from txlog.testing import FaultyStore

SCHEMA = Struct([Field("a", LongType()), Field("s", StringType())])
ROWS = pa.table({"a": [1, 2], "s": ["x", "y"]})


def batch(path: Path | str, **options: str) -> BatchWriter:
    return writer.batch_writer(Options({"path": str(path), **options}), SCHEMA, False)


def micro_batch(path: Path | str, **options: str) -> StreamWriter:
    return writer.stream_writer(Options({"path": str(path), **options}), SCHEMA, False)


@pytest.fixture(autouse=True)
def query(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Choose the streaming query that tasks are part of."""

    def choose(query_id: str) -> None:
        properties = {writer.QUERY_ID: query_id}
        monkeypatch.setattr(writer, "task_property", properties.get)

    choose("query")
    return choose


def written(by: BatchWriter | StreamWriter) -> Written:
    # As Spark does it: the writer travels to the task, and what it wrote travels back.
    done = pickle.loads(pickle.dumps(by)).write(iter(ROWS.to_batches()))
    return pickle.loads(pickle.dumps(done))


def data_files(path: Path) -> int:
    return len([file for file in path.rglob("*.parquet") if "_delta_log" not in file.parts])


def test_what_was_planned_is_committed(tmp_path: Path) -> None:
    path = tmp_path / "t"
    for expected in (2, 4):
        planned = batch(path)
        pickle.loads(pickle.dumps(planned)).commit([written(planned), None])
        assert txlog.Table(path).count() == expected


@pytest.mark.parametrize("make", [batch, micro_batch])
def test_a_table_in_the_memory_of_this_process_is_refused(make: Callable[[str], object]) -> None:
    with pytest.raises(InvalidInputError, match="in the memory of this process"):
        make("memory://drift")


@pytest.mark.spec("STR-47")
@pytest.mark.parametrize("streamed", [False, True])
def test_a_table_made_meanwhile_is_not_mixed_up(tmp_path: Path, streamed: bool) -> None:
    path = tmp_path / "t"
    message = written(micro_batch(path) if streamed else (planned := batch(path)))
    txlog.write(path, ROWS, partition_by="s")
    with pytest.raises(CommitConflictError, match="made"):
        # A commit of a micro-batch is planned anew.
        micro_batch(path).commit([message], 0) if streamed else planned.commit([message])
    table = txlog.Table(path)
    assert (table.version, table.count("s IS NULL")) == (0, 0)
    assert data_files(path) == 2


@pytest.mark.spec("STR-47")
def test_a_table_made_at_the_last_moment_is_not_mixed_up(tmp_path: Path) -> None:
    path = tmp_path / "t"
    planned = batch(path)
    message = written(planned)
    store = FaultyStore(
        planned.target.store, before={("put_if_absent", 1): lambda: txlog.write(path, ROWS)}
    )
    late = BatchWriter(replace(planned.target, store=store), None)
    with pytest.raises(CommitConflictError, match="at the same time"):
        late.commit([message])
    only = replace(planned.target.request, mode="error")
    assert data_files(path) == 1
    message = written(planned)
    with pytest.raises(AlreadyExistsError):
        BatchWriter(replace(planned.target, request=only), None).commit([message])
    assert data_files(path) == 1


@pytest.mark.spec("STR-47")
def test_columns_may_be_added_meanwhile_but_not_changed(tmp_path: Path) -> None:
    path = tmp_path / "t"
    txlog.write(path, ROWS)
    planned = batch(path)
    first, second = written(planned), written(planned)
    more = pa.table({"a": [3], "s": ["z"], "x": [1.5]})
    txlog.Table(path).append(more, schema_mode="merge")
    planned.commit([first])
    assert (txlog.Table(path).count("x IS NULL"), txlog.Table(path).count()) == (4, 5)
    other = pa.table({"a": ["text"], "s": ["z"]})
    txlog.Table(path).overwrite(other, schema_mode="overwrite")
    with pytest.raises(CommitConflictError, match="changed the columns a"):
        planned.commit([second])
    assert txlog.Table(path).to_arrow().equals(other)


@pytest.mark.spec("STR-40")
def test_a_batch_that_is_run_again_leaves_no_files(tmp_path: Path) -> None:
    path = tmp_path / "t"
    for _ in range(2):
        # The first time it makes the table; then the driver dies, and tasks plan on the table.
        message = written(micro_batch(path))
        micro_batch(path).commit([message], 0)
    assert (txlog.Table(path).version, txlog.Table(path).count()) == (0, 2)
    assert data_files(path) == 1


@pytest.mark.spec("STR-40")
@pytest.mark.parametrize("named", [False, True])
def test_a_batch_that_a_rival_commits_first_counts_once(tmp_path: Path, named: bool) -> None:
    """Two drivers of one query, the old one not dead yet: the check is made on every version."""
    path, options = tmp_path / "t", {"txnAppId": "ingest"} if named else {}
    txlog.write(path, ROWS)
    rival, message = written(micro_batch(path)), written(micro_batch(path))
    planned = micro_batch(path, **options)
    store = FaultyStore(
        planned.target.store,
        before={("put_if_absent", 1): lambda: micro_batch(path, **options).commit([rival], 0)},
    )
    late = micro_batch(path, **options)
    late.target = replace(planned.target, store=store)
    late.commit([message], 0)
    assert ("put_if_absent", f"_delta_log/{1:020d}.json") in store.calls
    assert (txlog.Table(path).version, txlog.Table(path).count()) == (1, 4)
    assert data_files(path) == 2


@pytest.mark.spec("STR-42")
def test_a_query_of_another_checkpoint_is_refused_at_the_last_moment(
    tmp_path: Path, query: Callable[[str], None]
) -> None:
    path = tmp_path / "t"
    txlog.write(path, ROWS)
    rival = written(micro_batch(path))
    query("another")
    message = written(micro_batch(path))

    def win() -> None:
        micro_batch(path, txnAppId="ingest").commit([rival], 5)

    late = micro_batch(path, txnAppId="ingest")
    store = FaultyStore(late.target.store, before={("put_if_absent", 1): win})
    late.target = replace(late.target, store=store)
    with pytest.raises(InvalidInputError, match="version 5 of the application 'ingest'"):
        late.commit([message], 6)
    table = txlog.Table(path)
    assert (table.version, table.transaction_version("ingest@query")) == (1, 5)
    assert table.transaction_version("ingest@another") is None
    assert data_files(path) == 2


@pytest.mark.spec("STR-42")
def test_the_pair_outlives_the_commits_that_recorded_it(tmp_path: Path) -> None:
    path, options = tmp_path / "t", {"txnAppId": "ingest"}
    for number in range(3):
        micro_batch(path, **options).commit([written(micro_batch(path))], number)
    txlog.Table(path).maintenance.checkpoint()
    for commit in (path / "_delta_log").glob("*.json"):
        if int(commit.stem) < 2:
            commit.unlink()
    micro_batch(path, **options).commit([written(micro_batch(path))], 2)
    micro_batch(path, **options).commit([written(micro_batch(path))], 3)
    assert (txlog.Table(path).version, txlog.Table(path).count()) == (3, 8)


@pytest.mark.spec("STR-42")
def test_a_batch_job_under_the_name_of_a_stream_skips_none_of_its_batches(tmp_path: Path) -> None:
    path, options = tmp_path / "t", {"txnAppId": "ingest"}
    micro_batch(path, **options).commit([written(micro_batch(path))], 0)
    txlog.Table(path).append(ROWS, txn=("ingest", 100))
    with pytest.raises(InvalidInputError, match=r"records version 100 .* last wrote 0"):
        micro_batch(path, **options).commit([written(micro_batch(path))], 1)
    # What the query did commit is still skipped, and under another name it goes on.
    micro_batch(path, **options).commit([written(micro_batch(path))], 0)
    assert (txlog.Table(path).version, data_files(path)) == (1, 2)
    micro_batch(path, txnAppId="again").commit([written(micro_batch(path))], 1)
    assert (txlog.Table(path).version, txlog.Table(path).count()) == (2, 6)


@pytest.mark.spec("STR-41")
@pytest.mark.parametrize("names", ["-A", "A-", "AB", "A-A", "-A-"])
def test_a_name_may_come_go_and_change_between_runs(tmp_path: Path, names: str) -> None:
    path = tmp_path / "t"
    runs = [{} if name == "-" else {"txnAppId": name} for name in names]
    for number, options in enumerate(runs):
        # The driver dies before Spark's own commit, and the batch is run again by each name.
        for again in (options, *runs[number + 1 :]):
            micro_batch(path, **again).commit([written(micro_batch(path))], number)
    table = txlog.Table(path)
    assert (table.version, table.count()) == (len(names) - 1, 2 * len(names))
    assert table.transaction_version("query") == len(names) - 1


@pytest.mark.spec("STR-40", "STR-41")
@pytest.mark.parametrize(("ours", "theirs"), [({}, "A"), ({"txnAppId": "A"}, ""), ({}, "")])
def test_a_rival_of_another_name_that_commits_first_counts(
    tmp_path: Path, ours: dict[str, str], theirs: str
) -> None:
    path = tmp_path / "t"
    txlog.write(path, ROWS)
    rival, message = written(micro_batch(path)), written(micro_batch(path))
    late = micro_batch(path, **ours)
    other = micro_batch(path, **({"txnAppId": theirs} if theirs else {}))
    before = {("put_if_absent", 1): lambda: other.commit([rival], 0)}
    late.target = replace(late.target, store=FaultyStore(late.target.store, before=before))
    late.commit([message], 0)
    assert (txlog.Table(path).version, txlog.Table(path).count()) == (1, 4)


def test_a_query_without_an_id_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "task_property", lambda _: None)
    path = tmp_path / "t"
    message = written(micro_batch(path))
    with pytest.raises(InvalidInputError, match="did not report the id of the streaming query"):
        micro_batch(path).commit([message], 0)
    assert not (path / "_delta_log").exists()


@pytest.mark.spec("STR-44")
def test_abort_deletes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "t"
    message = written(micro_batch(path))
    micro_batch(path).commit([message], 0)
    micro_batch(path).abort([message, None], 0)
    planned = batch(path)
    message = written(planned)
    planned.commit([message])
    planned.abort([message, None])
    assert txlog.Table(path).to_arrow()["a"].to_pylist() == [1, 2, 1, 2]
