"""A table that changes between the tasks of a Spark write and its commit. No JVM is started."""

from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql.types import LongType, StringType
from pyspark.sql.types import StructField as Field
from pyspark.sql.types import StructType as Struct

import txlog
from txlog.spark_ext.options import Options
from txlog.spark_ext.writer import commit_task_files, plan_spark_write, write_task

SCHEMA = Struct([Field("a", LongType()), Field("s", StringType())])
ROWS = pa.table({"a": [1, 2], "s": ["x", "y"]})


def plan(path: Path, overwrite: bool = False, **options: str):
    return plan_spark_write(Options({"path": str(path), **options}), SCHEMA, overwrite)


def test_what_was_planned_is_committed(tmp_path: Path) -> None:
    path = tmp_path / "t"
    for expected in (2, 4):
        target = plan(path)
        message = write_task(target, iter(ROWS.to_batches()))
        assert commit_task_files(target, [message, None], None)
        assert txlog.Table(path).count() == expected


@pytest.mark.parametrize("replanned", [False, True])
def test_a_table_made_meanwhile_is_not_mixed_up(tmp_path: Path, replanned: bool) -> None:
    path = tmp_path / "t"
    target = plan(path)
    message = write_task(target, iter(ROWS.to_batches()))
    txlog.write(path, ROWS, partition_by="s")
    if replanned:  # As the commit of a micro-batch is.
        target = plan(path)
    with pytest.raises((txlog.CommitConflictError, txlog.AlreadyExistsError)):
        commit_task_files(target, [message], None)
    table = txlog.Table(path)
    assert (table.version, table.count("s IS NULL")) == (0, 0)


def test_columns_are_added_only_when_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "t"
    target = plan(path)
    message = write_task(target, iter(ROWS.to_batches()))
    txlog.write(path, pa.table({"a": [1]}))
    with pytest.raises((txlog.CommitConflictError, txlog.AlreadyExistsError)):
        commit_task_files(target, [message], None)
    assert txlog.Table(path).schema.names == ["a"]


def test_a_batch_that_is_run_again_leaves_no_files(tmp_path: Path) -> None:
    path = tmp_path / "t"
    for _ in range(2):
        target = plan(path)
        message = write_task(target, iter(ROWS.to_batches()))
        outcome = commit_task_files(target, [message], ("query", 0))
    assert outcome.skipped
    assert txlog.Table(path).count() == 2
    assert len(list(path.glob("*.parquet"))) == 1


def test_a_batch_that_made_the_table_may_be_run_again(tmp_path: Path) -> None:
    """The first batch was committed, the driver died, and the tasks now plan on the table."""
    path = tmp_path / "t"
    target = plan(path)
    commit_task_files(target, [write_task(target, iter(ROWS.to_batches()))], ("query", 0))
    again = plan(path)
    message = write_task(again, iter(ROWS.to_batches()))
    assert commit_task_files(plan(path), [message], ("query", 0)).skipped
    assert txlog.Table(path).count() == 2
