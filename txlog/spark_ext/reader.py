"""Reading with Spark: one input partition for each fragment.

Rules: spec/fragments.md, FRG-40 to FRG-44.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import chain
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType as SparkStruct

from txlog.errors import InvalidInputError
from txlog.expressions import And, Expression, bind
from txlog.fragments import Fragment
from txlog.scan import (
    BATCH_ROWS,
    ReadPlan,
    RowRange,
    ScanPlan,
    first_rows,
    limited,
    plan_scan,
    read_fragment,
    row_ranges,
    scan_schema,
)
from txlog.schema import arrow_schema, parse_schema
from txlog.snapshot import Snapshot, load_files
from txlog.spark_ext.filters import as_predicate
from txlog.store import Store

MAX_PARTITION_BYTES = 128 * 1024 * 1024  # As Spark has it for files.

_COUNTED_ROWS = 1 << 22  # Of one partition: Spark itself counts as many in about a second.


@dataclass
class FragmentPartition(InputPartition):
    """A task's work: a fragment, or a part of it, and the plan that all of them share.

    Without a fragment there is nothing to read: Spark wants one partition even then.
    """

    plan: ReadPlan
    fragments: tuple[Fragment, ...] = ()  # More than one only to be read in turn, up to a limit.
    rows: RowRange | None = None  # Read only the row groups whose first row is in this range.
    limit: int | None = None  # Stop after so many rows.
    counted: int = 0  # Rows of no columns that the log has counted; they need no file.


class _OptionalPush:
    """`pushFilters`, in a form that Spark accepts while its filter push-down is off.

    Spark refuses a reader that overrides the method then, and asks the function which one it is.
    """

    def __init__(self, reader: FragmentsReader) -> None:
        self._reader = reader
        self.__func__ = DataSourceReader.pushFilters

    def __call__(self, filters: list[Any]) -> Iterable[Any]:
        return self._reader.push(filters)


class FragmentsReader(DataSourceReader):
    """Reads one version of a table. Planning is on the driver; tasks never see the log."""

    def __init__(
        self,
        store: Store,
        snapshot: Snapshot,
        schema: SparkStruct,
        where: Expression | None,
        *,
        limit: int | None = None,
        max_partition_bytes: int = MAX_PARTITION_BYTES,
    ) -> None:
        self._store = store
        self._snapshot: Snapshot | None = snapshot
        self._columns = schema.names
        self._arrow_schema = arrow_schema(parse_schema(schema.json()))
        self._where = [] if where is None else [where]
        self._limit = limit
        self._max_partition_bytes = max_partition_bytes
        self.pushFilters = _OptionalPush(self)  # type: ignore[method-assign]

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_snapshot": None, "pushFilters": None}

    def push(self, filters: list[Any]) -> Iterator[Any]:
        """Take the filters that txlog understands; Spark checks all of them again.

        With a limit it takes none: rows are counted before Spark filters them, whether or not it
        tells of its filters.
        """
        assert self._snapshot is not None
        schema = scan_schema(self._snapshot)
        for found in filters:
            predicate = as_predicate(found) if self._limit is None else None
            if predicate is not None:
                try:
                    bind(predicate, schema)
                    self._where.append(predicate)
                except InvalidInputError:
                    pass  # Of types that only Spark compares.
            yield found

    def partitions(self) -> Sequence[InputPartition]:
        """Return one partition for each fragment that the predicate does not rule out.

        A large fragment has several; all of the rows that need no file have few.
        """
        assert self._snapshot is not None
        where = None
        if self._where:
            where = reduce(lambda a, b: And((a, b)), self._where)
        files = load_files(self._store, self._snapshot).live
        plan = plan_scan(self._snapshot, files, columns=self._columns, where=where)
        return _partitions(plan, self._limit, self._max_partition_bytes)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield a fragment's rows, in exactly the types that Spark expects."""
        assert isinstance(partition, FragmentPartition)
        for start in range(0, partition.counted, BATCH_ROWS):
            yield _rows_of_no_columns(min(BATCH_ROWS, partition.counted - start))
        batches: Iterator[pa.RecordBatch] = chain.from_iterable(
            read_fragment(self._store, partition.plan, fragment, rows=partition.rows)
            for fragment in partition.fragments
        )
        if partition.limit is not None:
            batches = first_rows(batches, partition.limit)
        for batch in batches:
            if not batch.num_columns:
                yield batch  # Another one of no arrays would have no rows.
                continue
            columns = [
                column if column.type == field.type else column.cast(field.type)
                for column, field in zip(batch.columns, self._arrow_schema, strict=True)
            ]
            yield pa.RecordBatch.from_arrays(columns, schema=self._arrow_schema)


def _partitions(plan: ScanPlan, limit: int | None, max_bytes: int) -> list[FragmentPartition]:
    shared = plan.reading
    found = []
    counted = 0
    if limit is not None:
        for share in limited(plan, limit):
            if share.counted and not plan.columns:
                counted += share.rows
            else:
                found.append(FragmentPartition(shared, share.fragments, limit=share.rows))
    else:
        for fragment, count in zip(plan.fragments, plan.counts, strict=True):
            if count is not None and not plan.columns:
                counted += count
            else:
                found += [
                    FragmentPartition(shared, (fragment,), rows)
                    for rows in row_ranges(fragment, max_bytes)
                ]
    for start in range(0, counted, _COUNTED_ROWS):
        found.append(FragmentPartition(shared, counted=min(_COUNTED_ROWS, counted - start)))
    return found or [FragmentPartition(shared)]


def _rows_of_no_columns(count: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.nulls(count)], names=["rows"]).select([])
