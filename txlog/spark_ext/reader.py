"""Reading with Spark: input partitions are fragments, several small ones or a part of a large one.

Rules: spec/fragments.md, FRG-40 to FRG-44.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType as SparkStruct

from txlog.expressions.tree import Expression
from txlog.fragments.fragment import Fragment
from txlog.scan.data_file import RowRange
from txlog.scan.lazy_plan import ScanPlan, plan_snapshot
from txlog.scan.plan import ReadPlan, scan_schema
from txlog.scan.reader import BATCH_ROWS, read_fragment
from txlog.scan.scan import first_rows
from txlog.scan.shares import fragment_bytes, limited
from txlog.schema.arrow import arrow_schema
from txlog.schema.json import parse_schema
from txlog.snapshot.files import load_files
from txlog.snapshot.snapshot import Snapshot
from txlog.spark_ext.loaded import require_loaded
from txlog.spark_ext.shares import task_shares
from txlog.store.base import Store

_COUNTED_ROWS = 1 << 22  # Of one partition: Spark itself counts as many in about a second.


@dataclass
class FragmentPartition(InputPartition):
    """A task's work: fragments, or a part of one, and the plan that all of them share.

    Without a fragment there is nothing to read: Spark wants one partition even then.
    """

    plan: ReadPlan
    fragments: Sequence[Fragment] = ()  # Read in turn.
    rows: RowRange | None = None  # Read only the row groups whose first row is in this range.
    limit: int | None = None  # Stop after so many rows.
    counted: int = 0  # Rows of no columns that the log has counted; they need no file.


class FragmentsReader(DataSourceReader):
    """Reads one version of a table. Planning is on the driver; tasks never see the log.

    It takes no filters from Spark, though Spark 4.1 to 4.3 can hand them on: Spark keeps the reader
    that a query's filters were pushed to, and asks it again for queries that have none, so that
    whatever was left out is missing there. Filters go into the option `where`.

    Raises
    ------
    SchemaMismatchError
        The version does not have the columns that Spark took from the table before.
    """

    def __init__(
        self,
        store: Store,
        snapshot: Snapshot,
        schema: SparkStruct,
        where: Expression | None,
        *,
        limit: int | None = None,
        max_partition_bytes: int,
        only_with_deletions: bool = False,
    ) -> None:
        self._store = store
        self._snapshot: Snapshot | None = snapshot
        self._columns = schema.names
        loaded = parse_schema(schema.json())
        require_loaded(
            loaded,
            scan_schema(snapshot),
            path=snapshot.root,
            version=snapshot.version,
            of_all=False,
        )
        self._arrow_schema = arrow_schema(loaded)
        self._where = where
        self._limit = limit
        self._max_partition_bytes = max_partition_bytes
        self._only_with_deletions = only_with_deletions

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_snapshot": None}

    def partitions(self) -> Sequence[InputPartition]:
        """Return partitions of about one size, of the fragments that the predicate leaves.

        A large fragment has several, small ones share one, and all of the rows that need no file
        have few.
        """
        assert self._snapshot is not None
        store, snapshot = self._store, self._snapshot
        plan = plan_snapshot(
            store, snapshot, lambda: load_files(store, snapshot).live,
            columns=self._columns, where=self._where,
        )  # fmt: skip
        if self._only_with_deletions:
            plan = plan.only_with_deletions()
        read = min(1.0, len(plan.needed) / max(1, len(snapshot.schema.fields)))
        return _partitions(plan, self._limit, self._max_partition_bytes, read)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield a partition's rows, in exactly the types that Spark expects."""
        assert isinstance(partition, FragmentPartition)
        return read_partition(self._store, partition, self._arrow_schema)


def read_partition(
    store: Store, partition: FragmentPartition, schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    """Yield a partition's rows in the types of a schema; runs on an executor."""
    for start in range(0, partition.counted, BATCH_ROWS):
        yield _rows_of_no_columns(min(BATCH_ROWS, partition.counted - start))
    batches: Iterator[pa.RecordBatch] = chain.from_iterable(
        read_fragment(store, partition.plan, fragment, rows=partition.rows)
        for fragment in partition.fragments
    )
    if partition.limit is not None:
        batches = first_rows(batches, partition.limit)
    yield from as_spark_expects(batches, schema)


def as_spark_expects(
    batches: Iterable[pa.RecordBatch], schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    """Yield batches in exactly the types of a schema."""
    for batch in batches:
        if not batch.num_columns:
            yield batch  # Another one of no arrays would have no rows.
            continue
        columns = [
            column if column.type == field.type else column.cast(field.type)
            for column, field in zip(batch.columns, schema, strict=True)
        ]
        yield pa.RecordBatch.from_arrays(columns, schema=schema)


def _partitions(
    plan: ScanPlan, limit: int | None, max_bytes: int, read: float
) -> list[FragmentPartition]:
    shared = plan.reading
    partitions = []
    counted = 0
    if limit is not None:
        for share in limited(plan, limit):
            if share.counted and not plan.columns:
                counted += share.rows
            else:
                partitions.append(FragmentPartition(shared, share.fragments, limit=share.rows))
    else:
        if plan.columns:
            fragments: Sequence[Fragment] = plan.to_read
            if fragment_bytes(fragments).max(initial=0) > max_bytes:
                fragments = plan.fragments  # To cut a large one takes its number of rows.
        else:
            counted, fragments = plan.count()
        partitions = [
            FragmentPartition(shared, share.items, share.rows)
            for share in task_shares(fragments, fragments, max_bytes, read=read)
        ]
    for start in range(0, counted, _COUNTED_ROWS):
        partitions.append(FragmentPartition(shared, counted=min(_COUNTED_ROWS, counted - start)))
    return partitions or [FragmentPartition(shared)]


def _rows_of_no_columns(count: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.nulls(count)], names=["rows"]).select([])
