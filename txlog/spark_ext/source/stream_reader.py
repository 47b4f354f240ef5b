"""`spark.readStream.format("txlog")`: the new rows or the changes of a table as a stream.

Rules: spec/streaming.md, STR-1 to STR-14.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxFiles,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType as SparkStruct

from txlog.base.threads import cached_property
from txlog.schema.arrow import arrow_schema
from txlog.schema.json import parse_schema
from txlog.spark_ext.source.options import Options, stream_options
from txlog.spark_ext.source.plain import plainly, plainly_each
from txlog.spark_ext.source.tasks import (
    ChangesPartition,
    FragmentPartition,
    checking,
    read_changes_of,
    read_partition,
)
from txlog.spark_ext.zones import AssumedZone, assumed_zone

if TYPE_CHECKING:
    from txlog.store.base import Store
    from txlog.stream.stream import StreamOptions, TableStream

# Tasks import this module too, so modules that only the driver needs are imported in methods.


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads a table from one offset to the next.

    The driver follows the log. Tasks get fragments and do not read the log.
    """

    def __init__(self, options: Options, schema: SparkStruct) -> None:
        self._asked = options
        self._loaded = parse_schema(schema.json())
        self._arrow_schema = arrow_schema(self._loaded)
        self._opened: TableStream | None = None
        self._assumed: AssumedZone | None = None

    def __getstate__(self) -> dict[str, Any]:
        # Tasks do not need the parsed options.
        state = {name: value for name, value in self.__dict__.items() if name != "_options"}
        return {**state, "_opened": None}

    # Options are checked later, because Spark hides the reason if a reader cannot be created.

    @cached_property
    def _store(self) -> Store:
        return self._asked.store()

    @cached_property
    def _options(self) -> StreamOptions:
        return stream_options(self._asked)

    @property
    def _stream(self) -> TableStream:
        """The table; it is opened on first use, because tasks do not need it."""
        from txlog.changes.forms import require_loaded
        from txlog.schema.types import StructType
        from txlog.stream.stream import TableStream

        if self._opened is None:
            opened = TableStream(self._store, self._options)
            plan = opened.plan
            require_loaded(
                self._loaded,
                StructType(plan.columns),
                path=plan.root,
                version=plan.version,
                of_all=True,
            )
            self._opened = opened
            zone = self._asked.text("timeZone")
            self._assumed = assumed_zone("where", self._options.where, opened.schema, zone)
        return self._opened

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        """Return the offset of a stream that has not begun; Spark calls this more than once."""
        from txlog.stream.offsets import UNDECIDED

        return dict(UNDECIDED)

    @plainly
    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Return the limit of files, or else that of bytes: Spark accepts only one.

        `latestOffset` applies both.
        """
        limits = self._options.limits
        if limits.files is not None:
            return ReadMaxFiles(limits.files)
        assert limits.bytes is not None
        return ReadMaxBytes(limits.bytes)

    @plainly
    def latestOffset(self, start: Mapping[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """Return the end of the next micro-batch."""
        from txlog.stream.offsets import Limits

        limits = Limits() if isinstance(limit, ReadAllAvailable) else self._options.limits
        return self._stream.latest(start, limits)

    @plainly
    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        """Return the end of the known log, for the query's progress."""
        return self._stream.reached()

    @plainly
    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Use the current version as the last one."""
        self._stream.stop_at_latest()

    @plainly
    def partitions(
        self, start: Mapping[str, Any], end: Mapping[str, Any]
    ) -> Sequence[InputPartition]:
        """Return the partitions for tasks: everything between two offsets."""
        from txlog.changes.change_plan import ChangeFile
        from txlog.fragments.fragment import Fragment
        from txlog.spark_ext.source.partitions import change_partitions, task_shares

        plan = self._stream.plan
        work = self._stream.work(start, end)
        changes = [file for file in work if isinstance(file, ChangeFile)]
        empty = checking([FragmentPartition(plan)] if self._assumed else [], self._assumed)
        if self._options.changes:
            found = change_partitions(plan, changes, self._asked.max_partition_bytes)
            return checking(found, self._assumed) or empty
        fragments = [fragment for fragment in work if isinstance(fragment, Fragment)]
        shares = task_shares(fragments, fragments, self._asked.max_partition_bytes)
        parts = (FragmentPartition(plan, share.items, share.rows) for share in shares)
        return checking(parts, self._assumed) or empty

    @plainly_each
    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a partition; runs on an executor."""
        if isinstance(partition, ChangesPartition):
            return read_changes_of(self._store, partition, self._arrow_schema)
        assert isinstance(partition, FragmentPartition)
        return read_partition(self._store, partition, self._arrow_schema)
