"""Read the changes of one file."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pyarrow as pa
from pyroaring import BitMap64

from txlog.base.arrow import arrow_scalar, pc
from txlog.base.errors import DataFileError
from txlog.changes.change_plan import CHANGE_COLUMNS, ChangeFile
from txlog.fragments.deletion_vector import alive_mask
from txlog.scan.data_file import BATCH_ROWS, RowRange
from txlog.scan.deletions import load_deletions
from txlog.scan.read import FragmentReader, matching_rows
from txlog.scan.read_plan import ReadPlan, chosen_columns
from txlog.schema.arrow import arrow_type
from txlog.schema.timestamps import micros_of
from txlog.schema.types import CHANGE_TYPE
from txlog.store.base import Store


def read_changes(
    store: Store,
    plan: ReadPlan,
    file: ChangeFile,
    *,
    batch_rows: int = BATCH_ROWS,
    rows: RowRange | None = None,
) -> Iterator[pa.RecordBatch]:
    """Yield the changed rows of one file, in the plan's columns.

    With `rows` only the row groups that begin at these positions are read.

    Raises
    ------
    DataFileError, BadDeletionVectorError
        A file is missing, unreadable, or contradicts the log. Vacuum removes files of old
        versions, and with them their changes.
    """
    left_out = load_deletions(store, file.fragment)
    among = None
    if file.among is not None:
        among = load_deletions(store, replace(file.fragment, deletion=file.among)) or BitMap64()
    needed = plan.needed
    if file.change_type is None:
        needed = (*needed, CHANGE_COLUMNS.fields[0])
    reader = FragmentReader(store, plan, file.fragment)
    for start, batch in reader.batches(
        needed, prune=False, batch_rows=batch_rows, threads=True, rows=rows
    ):
        kept = alive_mask(left_out, start, batch.num_rows)
        if among is not None:
            others = alive_mask(among, start, batch.num_rows)
            if others is None:
                continue
            chosen = pc.invert(others)
            kept = chosen if kept is None else pc.and_(kept, chosen)
        batch = _with_change_columns(batch, file)
        batch = matching_rows(batch, kept, plan.where)
        if batch.num_rows:
            yield chosen_columns(plan, batch)


def _with_change_columns(batch: pa.RecordBatch, file: ChangeFile) -> pa.RecordBatch:
    if file.change_type is None:
        kinds = batch.column(CHANGE_TYPE)
        if kinds.null_count:
            raise DataFileError(
                path=file.fragment.path,
                version=file.version,
                reason=f"the change data file has rows without a {CHANGE_TYPE}",
                remedy="Its writer made an error. Read the changes of other versions",
            )
        batch = batch.drop_columns([CHANGE_TYPE])
    else:
        kinds = pa.repeat(arrow_scalar(file.change_type), batch.num_rows)
    constants = [
        kinds,
        pa.repeat(arrow_scalar(file.version, pa.int64()), batch.num_rows),
        pa.repeat(arrow_scalar(micros_of(file.timestamp_ms), pa.int64()), batch.num_rows),
    ]
    for column, values in zip(CHANGE_COLUMNS.fields, constants, strict=True):
        target = arrow_type(column.type)
        batch = batch.append_column(pa.field(column.name, target), values.cast(target))
    return batch
