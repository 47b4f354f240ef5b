"""The tasks of a read, which yield the rows of a partition from its files.

A Python worker imports this module for its first task, so the module imports no planning.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from txlog.scan.data_file import BATCH_ROWS
from txlog.scan.read import read_fragment
from txlog.spark_ext.answers import loads

if TYPE_CHECKING:
    from txlog.changes.change_plan import ChangeFile
    from txlog.fragments.fragment import Fragment
    from txlog.scan.data_file import RowRange
    from txlog.scan.read_plan import ReadPlan
    from txlog.spark_ext.zones import AssumedZone
    from txlog.store.base import Store


@dataclass
class FragmentPartition(InputPartition):
    """A task's work: fragments, or a part of one, and the plan that all of them share.

    It may have neither fragments nor counted rows, because Spark requires at least one partition.
    """

    plan: ReadPlan
    fragments: Sequence[Fragment] = ()  # They are read one after another.
    rows: RowRange | None = None  # Read only the row groups whose first row is in this range.
    limit: int | None = None  # Stop after so many rows.
    counted: int = 0  # Rows without columns whose number the log states; they need no file.
    assumed: AssumedZone | None = None  # Checked before rows are read.


@dataclass
class ChangesPartition(InputPartition):
    """A task's work: files of changes, or a part of one. Without files there is nothing to read."""

    plan: ReadPlan
    files: Sequence[ChangeFile] = ()
    rows: RowRange | None = None
    assumed: AssumedZone | None = None


def unpacked(data: bytes) -> tuple[Any, ...]:
    """Return the items of a partition from their compressed pickle."""
    items: tuple[Any, ...] = loads(zlib.decompress(data))
    return items


AnyPartition = TypeVar("AnyPartition", FragmentPartition, ChangesPartition)


def checking(partitions: Iterable[AnyPartition], assumed: AssumedZone | None) -> list[AnyPartition]:
    """Return partitions whose tasks check the zone that their predicate was given.

    Spark sends the reader to the tasks before it asks for partitions, so they have to say this.
    """
    return [replace(one, assumed=assumed) for one in partitions]


def read_partition(
    store: Store, partition: FragmentPartition, schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    """Yield a partition's rows in the types of a schema; runs on an executor."""
    if partition.assumed is not None:
        partition.assumed.require()
    for start in range(0, partition.counted, BATCH_ROWS):
        yield _rows_of_no_columns(min(BATCH_ROWS, partition.counted - start))
    batches: Iterator[pa.RecordBatch] = chain.from_iterable(
        read_fragment(store, partition.plan, fragment, rows=partition.rows)
        for fragment in partition.fragments
    )
    if partition.limit is not None:
        from txlog.base.columns import first_rows

        batches = first_rows(batches, partition.limit)
    yield from as_spark_expects(batches, schema)


def as_spark_expects(
    batches: Iterable[pa.RecordBatch], schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    """Yield batches in exactly the types of a schema."""
    for batch in batches:
        if not batch.num_columns:
            yield batch  # A new batch without arrays would have no rows.
            continue
        columns = [
            column if column.type == field.type else column.cast(field.type)
            for column, field in zip(batch.columns, schema, strict=True)
        ]
        yield pa.RecordBatch.from_arrays(columns, schema=schema)


def read_changes_of(
    store: Store, partition: ChangesPartition, schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    """Yield a partition's rows, in exactly the types that Spark expects; runs on an executor."""
    from txlog.changes.file_changes import read_changes

    if partition.assumed is not None:
        partition.assumed.require()
    batches = chain.from_iterable(
        read_changes(store, partition.plan, file, rows=partition.rows) for file in partition.files
    )
    return as_spark_expects(batches, schema)


def _rows_of_no_columns(count: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.nulls(count)], names=["rows"]).select([])
