"""`spark.readStream.format("txlog")`: a table's rows, or its changes, as they come.

Rules: spec/streaming.md, STR-1 to STR-14.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, Literal

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

from txlog.changes.plan import ChangeFile
from txlog.errors import InvalidInputError
from txlog.expressions.sql import as_expression
from txlog.fragments.fragment import Fragment
from txlog.schema.arrow import arrow_schema
from txlog.schema.json import parse_schema
from txlog.schema.types import StructType
from txlog.spark_ext.changes import ChangesPartition, change_partitions, read_changes_of
from txlog.spark_ext.loaded import require_loaded
from txlog.spark_ext.options import UNKNOWN_TO_STREAMS, Options
from txlog.spark_ext.reader import FragmentPartition, read_partition
from txlog.spark_ext.shares import task_shares
from txlog.store.base import Store
from txlog.stream.files import ChangePolicy
from txlog.stream.offsets import UNDECIDED, Limits
from txlog.stream.stream import MAX_FILES, StreamOptions, TableStream

_OF_BATCHES = ("versionAsOf", "timestampAsOf", "endingVersion", "endingTimestamp", "limit")


def stream_options(options: Options) -> StreamOptions:
    """Return what options ask of a stream.

    Raises
    ------
    InvalidInputError
        One is wrong, unknown to streams of txlog, or contradicts another.
    """
    options.refuse(_OF_BATCHES, "a stream cannot be read at one version, or up to one")
    options.refuse(
        (*UNKNOWN_TO_STREAMS, "onlyWithDeletions"), "txlog has no such option for streams"
    )
    changes = options.reads_changes
    policy = ChangePolicy(
        ignore_deletes=options.flag("ignoreDeletes"),
        ignore_changes=options.flag("ignoreChanges"),
        skip_change_commits=options.flag("skipChangeCommits"),
    )
    if changes and policy != ChangePolicy():
        options.refuse(
            ("ignoreDeletes", "ignoreChanges", "skipChangeCommits"),
            "readChangeFeed tells of all changes",
        )
    start: int | Literal["latest"] | None
    if (options.text("startingVersion") or "").strip().lower() == "latest":
        start = "latest"
    else:
        start = options.number("startingVersion", least=0)
    moment = options.moment("startingTimestamp")
    if start is not None and moment is not None:
        raise InvalidInputError(
            argument="startingTimestamp",
            reason="startingVersion and startingTimestamp both say where the stream begins",
            remedy="Pass only one of them",
        )
    columns = options.columns()
    return StreamOptions(
        starting_version=start,
        starting_ms=moment,
        limits=_limits(options),
        policy=policy,
        changes=changes,
        fail_on_data_loss=options.flag("failOnDataLoss", default=True),
        columns=None if columns is None else tuple(columns),
        where=as_expression(options.text("where")),
    )


def _limits(options: Options) -> Limits:
    files = options.number("maxFilesPerTrigger", least=1)
    size = options.size("maxBytesPerTrigger")
    return Limits(MAX_FILES if files is None and size is None else files, size)


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads a table from one offset to the next.

    On the driver it follows the log; tasks get fragments, and never see the log.
    """

    def __init__(self, options: Options, schema: SparkStruct) -> None:
        self._asked = options
        self._loaded = parse_schema(schema.json())
        self._arrow_schema = arrow_schema(self._loaded)
        self._opened: TableStream | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_opened": None}

    # Of a reader that cannot be made, Spark fails to say why. So options wait to be asked for.

    @cached_property
    def _store(self) -> Store:
        return self._asked.store()

    @cached_property
    def _options(self) -> StreamOptions:
        return stream_options(self._asked)

    @property
    def _stream(self) -> TableStream:
        """The table, opened when it is first needed: tasks have no need of it."""
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
        return self._opened

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        """Return the offset of a stream that has not begun; Spark asks for it more than once."""
        return dict(UNDECIDED)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Return the limit by options; of two, Spark can be told only one."""
        limits = self._options.limits
        if limits.files is not None:
            return ReadMaxFiles(limits.files)
        assert limits.bytes is not None
        return ReadMaxBytes(limits.bytes)

    def latestOffset(self, start: Mapping[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """Return where the next micro-batch ends."""
        limits = Limits() if isinstance(limit, ReadAllAvailable) else self._options.limits
        return self._stream.latest(start, limits)

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        """Return how far the log is known to reach, for the query's progress."""
        return self._stream.reached()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Take the version of now as the last one."""
        self._stream.stop_at_latest()

    def partitions(
        self, start: Mapping[str, Any], end: Mapping[str, Any]
    ) -> Sequence[InputPartition]:
        """Return what tasks read: everything between two offsets."""
        plan = self._stream.plan
        work = self._stream.work(start, end)
        changes = [file for file in work if isinstance(file, ChangeFile)]
        if self._options.changes:
            return change_partitions(plan, changes, self._asked.max_partition_bytes)
        fragments = [fragment for fragment in work if isinstance(fragment, Fragment)]
        return [
            FragmentPartition(plan, share.items, share.rows)
            for share in task_shares(fragments, fragments, self._asked.max_partition_bytes)
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a partition; runs on an executor."""
        if isinstance(partition, ChangesPartition):
            return read_changes_of(self._store, partition, self._arrow_schema)
        assert isinstance(partition, FragmentPartition)
        return read_partition(self._store, partition, self._arrow_schema)
