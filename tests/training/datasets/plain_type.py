"""A data set's table below `Datasets`, and a trivial type, for tests of commits alone."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import pyarrow as pa

from txlog.commit.context import Context
from txlog.data_files.definition import Definition
from txlog.data_files.options import as_schema
from txlog.extend import execute, open_table
from txlog.snapshot.load import load_snapshot
from txlog.snapshot.snapshot import Snapshot
from txlog.table.table import Table
from txlog.training.datasets.commits import (
    COMMIT_ID,
    PROPERTIES,
    AddCommit,
    Note,
    commits_of,
)
from txlog.training.datasets.values import Commit
from txlog.verbs.create import create

UUID = "5f0c9d0e-0000-4000-8000-000000000000"
ROWS = pa.schema([("text", pa.string()), ("n", pa.int64())])


class Counted:
    """Statistics of any rows: how many."""

    def __init__(self) -> None:
        self.rows = 0

    def add(self, batch: pa.RecordBatch) -> None:
        self.rows += batch.num_rows

    def result(self) -> dict[str, int]:
        return {"numRows": self.rows}


def make_table(context: Context, rows: pa.Schema = ROWS) -> Snapshot:
    schema = pa.schema([pa.field(COMMIT_ID, pa.int32()), *rows])
    return create(
        context,
        as_schema(schema),
        Definition(partition_by=[COMMIT_ID], properties=PROPERTIES),
    ).snapshot


def rows_of(texts: Iterable[str]) -> pa.Table:
    listed = list(texts)
    return pa.table({"text": listed, "n": range(len(listed))}, schema=ROWS)


def add(
    context: Context,
    data: pa.Table,
    message: str = "",
    tags: Mapping[str, str] | None = None,
    *,
    snapshot: Snapshot | None = None,
    txn: tuple[str, int] | None = None,
    schema_mode: Any = None,
    inputs: Callable[[], Any] = list,
) -> Commit | None:
    """Add a commit; None if `txn` is recorded already."""
    note = Note(UUID, "table/1", message, tags or {}, inputs, None, txn)
    operation = AddCommit(data.to_reader(), note, Counted(), schema_mode)
    opened = open_table(
        context.store, snapshot=snapshot, effects=context.effects, engine=context.engine
    )
    outcome = execute(opened, operation, txn=txn, user_metadata=message or None, refresh=False)
    return None if outcome.skipped else operation.commit


def commits(context: Context) -> list[Commit]:
    return commits_of(load_snapshot(context.store), UUID)


def table(context: Context) -> Table:
    return Table._of(context, load_snapshot(context.store))
