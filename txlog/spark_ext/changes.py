"""The change data feed with Spark: planned on the driver, read by tasks that never see the log."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType as SparkStruct

from txlog.changes.changes import feed_read_plan, plan_feed
from txlog.changes.plan import ChangeFile
from txlog.changes.read import read_changes
from txlog.changes.versions import feed_range
from txlog.expressions.tree import Expression
from txlog.scan.data_file import RowRange
from txlog.scan.plan import ReadPlan
from txlog.schema.arrow import arrow_schema
from txlog.schema.json import parse_schema
from txlog.schema.types import StructType
from txlog.snapshot.load import load_snapshot
from txlog.snapshot.snapshot import Snapshot
from txlog.spark_ext.loaded import require_loaded
from txlog.spark_ext.options import Options
from txlog.spark_ext.reader import as_spark_expects
from txlog.spark_ext.shares import task_shares
from txlog.spark_ext.spelled import spelled
from txlog.store.base import Store

_OF_OTHER_READS = (
    "versionAsOf", "timestampAsOf", "limit", "maxFilesPerTrigger", "maxBytesPerTrigger",
    "ignoreDeletes", "ignoreChanges", "skipChangeCommits", "onlyWithDeletions",
)  # fmt: skip


@dataclass
class ChangesPartition(InputPartition):
    """A task's work: files of changes, or a part of one. Without files there is nothing to read."""

    plan: ReadPlan
    files: Sequence[ChangeFile] = ()
    rows: RowRange | None = None


def change_partitions(
    plan: ReadPlan, files: Sequence[ChangeFile], max_bytes: int
) -> list[ChangesPartition]:
    """Return one partition for each task."""
    shares = task_shares(files, [file.fragment for file in files], max_bytes)
    return [ChangesPartition(plan, share.items, share.rows) for share in shares]


def read_changes_of(
    store: Store, partition: ChangesPartition, schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    """Yield a partition's rows, in exactly the types that Spark expects; runs on an executor."""
    batches = chain.from_iterable(
        read_changes(store, partition.plan, file, rows=partition.rows) for file in partition.files
    )
    return as_spark_expects(batches, schema)


@spelled()
def feed_of(options: Options) -> tuple[Store, int, Snapshot]:
    """Return the first version of the range that options name, and its last one, loaded.

    Raises
    ------
    InvalidInputError, NotFoundError
        As for `Table.changes`.
    """
    options.refuse(_OF_OTHER_READS, "it has no meaning for the change data feed of a range")
    store = options.store()
    first, last = feed_range(
        store,
        load_snapshot(store),
        starting=(options.number("startingVersion", least=0), options.moment("startingTimestamp")),
        ending=(options.number("endingVersion", least=0), options.moment("endingTimestamp")),
    )
    return store, first, last


class ChangesReader(DataSourceReader):
    """Reads the changes of a range of versions."""

    def __init__(
        self, options: Options, schema: SparkStruct, where: Expression | None, max_bytes: int
    ) -> None:
        self._options = options
        self._store = options.store()
        self._columns = schema.names
        self._loaded = parse_schema(schema.json())
        self._arrow_schema = arrow_schema(self._loaded)
        self._where = where
        self._max_bytes = max_bytes

    def partitions(self) -> Sequence[InputPartition]:
        """Return what tasks read."""
        store, first, last = feed_of(self._options)
        require_loaded(
            self._loaded,
            StructType(feed_read_plan(last, None, None).columns),
            path=last.root,
            version=last.version,
            of_all=False,
        )
        changes = plan_feed(store, last, first, columns=self._columns, where=self._where)
        found = change_partitions(changes.plan, changes.files, self._max_bytes)
        return found or [ChangesPartition(changes.plan)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a partition."""
        assert isinstance(partition, ChangesPartition)
        return read_changes_of(self._store, partition, self._arrow_schema)
