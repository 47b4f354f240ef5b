"""The batch readers of the data source. A partition has small fragments, or a part of a large one.

Rules: spec/fragments.md, FRG-40 to FRG-44.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType as SparkStruct

from txlog.base.errors import InvalidInputError
from txlog.schema.arrow import arrow_schema
from txlog.schema.json import parse_schema
from txlog.spark_ext.source.options import Options, option_names
from txlog.spark_ext.source.plain import plainly, plainly_each
from txlog.spark_ext.source.tasks import (
    ChangesPartition,
    FragmentPartition,
    checking,
    read_changes_of,
    read_partition,
)
from txlog.spark_ext.zones import assumed_zone

if TYPE_CHECKING:
    from txlog.expressions.tree import Expression
    from txlog.schema.types import StructType
    from txlog.snapshot.snapshot import Snapshot
    from txlog.store.base import Store

# Tasks import this module too, so modules that only the driver needs are imported in methods.


class FragmentsReader(DataSourceReader):
    """Reads one version of a table. The driver plans; tasks do not read the log.

    It accepts no filters from Spark, although Spark 4.1 to 4.3 can push them. Spark reuses the
    reader that got the filters of a query for queries without filters, and these would lack rows.
    Use the option `where` for filters.

    Raises
    ------
    SchemaMismatchError
        The version does not have the columns of the schema that Spark loaded before.
    """

    def __init__(
        self,
        store: Store,
        snapshot: Snapshot,
        schema: SparkStruct,
        where: Expression | None,
        *,
        zone: str | None = None,
        columns: Sequence[str] | None = None,
        limit: int | None = None,
        max_partition_bytes: int,
        only_with_deletions: bool = False,
        use_index: bool = True,
        only_files: Sequence[str] | None = None,
    ) -> None:
        from txlog.changes.forms import require_loaded
        from txlog.scan.read_plan import scan_schema
        from txlog.schema.arrow import arrow_schema
        from txlog.schema.json import parse_schema

        self._store = store
        self._snapshot: Snapshot | None = snapshot
        self._columns, now = _named(schema.names, scan_schema(snapshot), columns)
        loaded = parse_schema(schema.json())
        require_loaded(
            loaded,
            now,
            path=snapshot.root,
            version=snapshot.version,
            of_all=False,
        )
        self._arrow_schema = arrow_schema(loaded)
        self._where = where
        self._zone = zone
        self._limit = limit
        self._max_partition_bytes = max_partition_bytes
        self._only_with_deletions = only_with_deletions
        self._use_index = use_index
        self._only_files = only_files

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_snapshot": None}

    @plainly
    def partitions(self) -> Sequence[InputPartition]:
        """Return partitions of about equal size, without fragments that the predicate excludes.

        A large fragment has several partitions, and small ones share one. Rows that the log alone
        can count have partitions without fragments.
        """
        from txlog.base.arrow import pc
        from txlog.commit.context import Context
        from txlog.fragments.rows import deleted_counts
        from txlog.scan.lazy_plan import plan_snapshot
        from txlog.scan.plan import FoundPlan
        from txlog.snapshot.live_files import load_files
        from txlog.spark_ext.source.partitions import fragment_partitions

        assert self._snapshot is not None
        store, snapshot = self._store, self._snapshot
        only = None
        if self._only_files is not None:
            only = pa.chunked_array([self._only_files], pa.string())
        plan = plan_snapshot(
            store, snapshot, lambda: load_files(store, snapshot).live,
            columns=self._columns, where=self._where,
            only=only,
        )  # fmt: skip
        if self._use_index and only is None:
            plan = Context(store).indexed(snapshot, plan)
        if self._only_with_deletions:
            deleted = pc.greater(deleted_counts(plan.files.rows.primaries), 0)
            plan = FoundPlan(reading=plan.reading, find=partial(plan.files.filter, deleted))
        read = min(1.0, len(plan.reading.needed) / max(1, len(snapshot.schema.fields)))
        found = fragment_partitions(plan, self._limit, self._max_partition_bytes, read)
        return checking(found, assumed_zone("where", self._where, snapshot.schema, self._zone))

    @plainly_each
    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a partition, in exactly the types that Spark expects."""
        assert isinstance(partition, FragmentPartition)
        return read_partition(self._store, partition, self._arrow_schema)


def _named(
    loaded: Sequence[str], schema: StructType, columns: Sequence[str] | None
) -> tuple[list[str], StructType]:
    """Return the names by which to ask for columns, and the schema with all fields asked for.

    Spark knows a field of structs by the text `st.a`; `columns`, from the options, may have quotes.
    """
    from txlog.scan.read_plan import choose_fields
    from txlog.schema.types import StructType

    if columns is None:
        return list(loaded), schema
    try:
        chosen, nested = choose_fields(schema, columns)
    except InvalidInputError:  # A column is gone: whoever compares the schemas names it.
        return list(loaded), schema
    asked = {one.name: name for one, name in zip(chosen, columns, strict=True)}
    more = tuple(one for one in chosen if one.name in nested)
    return [asked.get(name, name) for name in loaded], StructType((*schema.fields, *more))


_OF_OTHER_READS = (
    "versionAsOf", "timestampAsOf", "limit", "maxFilesPerTrigger", "maxBytesPerTrigger",
    "ignoreDeletes", "ignoreChanges", "skipChangeCommits", "onlyWithDeletions", "onlyFiles",
    "useIndex",
)  # fmt: skip


@option_names()
def feed_of(options: Options) -> tuple[Store, int, Snapshot]:
    """Return the store, and the first version and the last snapshot of the options' range.

    Raises
    ------
    InvalidInputError, NotFoundError
        As for `Table.changes`.
    """
    from txlog.changes.changes import feed_range
    from txlog.snapshot.load import load_snapshot

    options.refuse(_OF_OTHER_READS, "it has no meaning with readChangeFeed")
    store = options.store()
    first, last = feed_range(
        store,
        load_snapshot(store),
        start=(options.number("startingVersion", least=0), options.moment("startingTimestamp")),
        end=(options.number("endingVersion", least=0), options.moment("endingTimestamp")),
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

    @plainly
    def partitions(self) -> Sequence[InputPartition]:
        """Return one partition for each task."""
        from txlog.changes.changes import feed_read_plan, plan_feed
        from txlog.changes.forms import require_loaded
        from txlog.schema.types import StructType
        from txlog.spark_ext.source.partitions import change_partitions

        store, first, last = feed_of(self._options)
        every = StructType(feed_read_plan(last, None, None).columns)
        columns, now = _named(self._columns, every, self._options.columns())
        require_loaded(
            self._loaded,
            now,
            path=last.root,
            version=last.version,
            of_all=False,
        )
        zone = self._options.text("timeZone")
        assumed = assumed_zone("where", self._where, last.schema, zone)
        changes = plan_feed(store, last, first, columns=columns, where=self._where)
        partitions = change_partitions(changes.plan, changes.files, self._max_bytes)
        return checking(partitions or [ChangesPartition(changes.plan)], assumed)

    @plainly_each
    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a partition."""
        assert isinstance(partition, ChangesPartition)
        return read_changes_of(self._store, partition, self._arrow_schema)
