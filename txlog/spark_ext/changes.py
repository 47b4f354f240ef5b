"""The change data feed with Spark: planned on the driver, read by tasks that never see the log."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType as SparkStruct

from txlog.schema.arrow import arrow_schema
from txlog.schema.json import parse_schema
from txlog.spark_ext.options import Options, option_names
from txlog.spark_ext.tasks import ChangesPartition, read_changes_of

if TYPE_CHECKING:
    from txlog.expressions.tree import Expression
    from txlog.snapshot.snapshot import Snapshot
    from txlog.store.base import Store

# Tasks get a reader too, so what only the driver needs is imported where the driver does it.

_OF_OTHER_READS = (
    "versionAsOf", "timestampAsOf", "limit", "maxFilesPerTrigger", "maxBytesPerTrigger",
    "ignoreDeletes", "ignoreChanges", "skipChangeCommits", "onlyWithDeletions",
)  # fmt: skip


@option_names()
def feed_of(options: Options) -> tuple[Store, int, Snapshot]:
    """Return the first version of the range that options name, and its last one, loaded.

    Raises
    ------
    InvalidInputError, NotFoundError
        As for `Table.changes`.
    """
    from txlog.changes.changes import feed_range
    from txlog.snapshot.load import load_snapshot

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
        from txlog.changes.changes import feed_read_plan, plan_feed
        from txlog.schema.types import StructType
        from txlog.spark_ext.loaded_table import require_loaded
        from txlog.spark_ext.partitions import change_partitions

        store, first, last = feed_of(self._options)
        require_loaded(
            self._loaded,
            StructType(feed_read_plan(last, None, None).columns),
            path=last.root,
            version=last.version,
            of_all=False,
        )
        changes = plan_feed(store, last, first, columns=self._columns, where=self._where)
        partitions = change_partitions(changes.plan, changes.files, self._max_bytes)
        return partitions or [ChangesPartition(changes.plan)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a partition."""
        assert isinstance(partition, ChangesPartition)
        return read_changes_of(self._store, partition, self._arrow_schema)
