"""One Parquet file of a fragment: some of its columns, at some of its rows."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import cached_property, reduce
from operator import itemgetter

import pyarrow as pa
import pyarrow.parquet as pq
from pyroaring import BitMap64

from txlog.errors import DataFileError, NotFoundError, TxlogError
from txlog.expressions.bind import columns_of
from txlog.fragments.fragment import DataFile
from txlog.log.paths import decode_path
from txlog.scan.columns import Layout, is_legacy, rebased
from txlog.scan.metadata_columns import metadata_bounds
from txlog.scan.plan import ReadPlan
from txlog.schema.arrow import arrow_type
from txlog.stats.bounds import Bounds, merged
from txlog.stats.read import row_group_bounds
from txlog.stats.skip import keep
from txlog.store.base import Store
from txlog.store.many import is_far
from txlog.store.open import locate
from txlog.store.ranged import open_ranged

RowRange = tuple[int, int]
"""Positions of a fragment: from the first number, up to the second without it."""


def overlaps(ranges: Sequence[RowRange], bounds: RowRange) -> list[RowRange]:
    """Return the parts of ranges that are within bounds."""
    first, last = bounds
    found = []
    for at in range(bisect_right(ranges, first, key=itemgetter(1)), len(ranges)):
        start, stop = ranges[at]
        if start >= last:
            break
        found.append((max(start, first), min(stop, last)))
    return [(start, stop) for start, stop in found if start < stop]


def common(several: Sequence[Sequence[RowRange]]) -> list[RowRange]:
    """Return the positions that all of several lists of ranges have; one list comes back as is."""
    return reduce(
        lambda held, others: [part for bounds in others for part in overlaps(held, bounds)],
        map(list, several[1:]),
        list(several[0]),
    )


def zipped(
    streams: Sequence[Iterator[tuple[int, pa.RecordBatch]]],
) -> Iterator[tuple[int, list[pa.RecordBatch]]]:
    """Yield batches of several files side by side, each with the position of its first row.

    All streams give the same positions in the same order, but cut them as they like.
    """
    if len(streams) == 1:
        yield from ((start, [batch]) for start, batch in streams[0])
        return
    heads = [next(stream, None) for stream in streams]
    while all(head is not None for head in heads):
        held = [head for head in heads if head is not None]
        start = held[0][0]
        count = min(batch.num_rows for _, batch in held)
        yield start, [batch.slice(0, count) for _, batch in held]
        heads = [
            (start + count, batch.slice(count)) if batch.num_rows > count else next(stream, None)
            for (_, batch), stream in zip(held, streams, strict=True)
        ]


_WHOLE_BYTES = 256 * 1024
"""A near file that is not larger is read at once: each part of it would be a call of its own."""


@contextmanager
def blamed(path: str, version: int) -> Iterator[None]:
    """Turn whatever a file makes pyarrow or the store raise into one error that names it."""
    try:
        yield
    except NotFoundError as error:
        raise DataFileError(
            path=path,
            version=version,
            reason="the file is gone, though this version of the table needs it",
            remedy="Open a newer version; vacuum may have removed what this one needs",
        ) from error
    except (pa.ArrowException, OSError) as error:
        if isinstance(error, TxlogError | MemoryError):  # The file is not to blame.
            raise
        raise DataFileError(
            path=path,
            version=version,
            reason=f"no readable Parquet: {error}",
            remedy="Restore the file from a copy, or open a version without it",
        ) from error


def open_parquet(stack: ExitStack, store: Store, file: DataFile, version: int) -> pq.ParquetFile:
    """Open a data file; `stack` closes it.

    A small file is read whole. Of a store far away, neighbouring columns of a row group are read
    at once.
    """
    home, name = locate(store, decode_path(file.path))

    def opened(size: int | None) -> pq.ParquetFile:
        if 0 < (size or 0) <= _WHOLE_BYTES and not is_far(home):
            whole = pa.BufferReader(home.read(name))
            return pq.ParquetFile(whole, coerce_int96_timestamp_unit="us")
        source = stack.enter_context(open_ranged(home, name, size))
        return pq.ParquetFile(source, pre_buffer=is_far(home), coerce_int96_timestamp_unit="us")

    with blamed(file.path, version):
        try:
            return opened(file.size or None)
        except (pa.ArrowException, OSError):
            if not is_far(home):
                raise
            return opened(None)  # Some logs are wrong about the sizes of files.


class OpenFile:
    """An open data file, and which of the plan's columns are read from where in it."""

    def __init__(
        self, path: str, fragment_id: int, plan: ReadPlan, parquet: pq.ParquetFile, layout: Layout
    ) -> None:
        metadata = parquet.metadata
        self.path = path
        self.layout = layout
        self._fragment_id = fragment_id
        self.num_rows = int(metadata.num_rows)
        self._plan = plan
        self._parquet = parquet
        self._metadata = metadata
        self._legacy = is_legacy(metadata.metadata)
        if layout.repeated is not None:
            raise DataFileError(
                path=path,
                version=plan.version,
                reason=f"the file has {layout.schema.names.count(layout.repeated)} columns of the "
                f"name {layout.repeated!r}",
                remedy="Its writer is at fault; other columns can be read",
            )

    @cached_property
    def row_groups(self) -> list[RowRange]:
        """The positions of each row group's first row, and of the one after its last."""
        metadata = self._metadata
        found, start = [], 0
        for group in range(metadata.num_row_groups):
            stop = start + metadata.row_group(group).num_rows
            found.append((start, stop))
            start = stop
        return found

    def ranges(
        self, *, prune: bool, only: BitMap64 | None = None, begin_in: RowRange | None = None
    ) -> list[RowRange]:
        """Return the row groups that are to be read.

        With `prune`, those of which the plan's predicate is certainly not true are left out; with
        `only`, those that hold none of its positions; with `begin_in`, those that do not begin
        there.
        """
        kept = self._kept_row_groups() if prune and not self._legacy else None
        return [
            (start, stop)
            for group, (start, stop) in enumerate(self.row_groups)
            if (kept is None or kept[group])
            and (only is None or only.range_cardinality(start, stop) > 0)
            and (begin_in is None or begin_in[0] <= start < begin_in[1])
        ]

    def read(
        self, ranges: Sequence[RowRange], *, batch_rows: int, threads: bool
    ) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Yield rows at ascending ranges, by batches, each with the position of its first row."""
        with blamed(self.path, self._plan.version):
            for group, bounds in enumerate(self.row_groups):
                wanted = overlaps(ranges, bounds)
                if not wanted:
                    continue
                at = bounds[0]
                for raw in self._raw(group, bounds[1] - at, batch_rows, threads):
                    for start, stop in overlaps(wanted, (at, at + raw.num_rows)):
                        yield start, raw.slice(start - at, stop - start)
                    at += raw.num_rows
                    if at >= wanted[-1][1]:
                        break

    def _raw(
        self, group: int, rows: int, batch_rows: int, threads: bool
    ) -> Iterator[pa.RecordBatch]:
        if not self.layout.reads:  # Only constants are wanted, but as many as there are rows.
            yield pa.RecordBatch.from_arrays([pa.nulls(rows)], names=["rows"])
            return
        for raw in self._parquet.iter_batches(
            batch_size=batch_rows,
            row_groups=[group],
            columns=self.layout.reads,
            use_threads=threads,
        ):
            yield _in_todays_calendar(raw) if self._legacy else raw

    def _kept_row_groups(self) -> list[bool] | None:
        plan = self._plan
        if plan.where is None or self._metadata.num_row_groups < 2:
            return None
        paths = columns_of(plan.where)
        if plan.mapping_mode != "none" and any(len(path) > 1 for path in paths):
            return None  # Nested columns may have other names in the file.
        schema, places = self.layout.schema, self.layout.places
        ours = [
            column
            for column in plan.needed
            if column.name in places and column.name not in plan.metadata_columns
        ]
        if any(
            schema.field(places[column.name]).type != arrow_type(column.type)
            or self.layout.names[column.name] != column.name
            for column in ours
        ):
            return None  # Statistics of another type: read all of it.
        known = merged(row_group_bounds(self._metadata, paths, ours), self._addresses())
        return [bool(value) for value in keep(plan.where, known).to_pylist()]

    def _addresses(self) -> Bounds:
        """Return what is known of the row groups' metadata columns."""
        groups = self.row_groups
        starts = pa.array([start for start, _ in groups], pa.int64())
        rows = pa.array([stop - start for start, stop in groups], pa.int64())
        ids = pa.repeat(pa.scalar(self._fragment_id, pa.int64()), len(groups))
        found = metadata_bounds(ids, rows, self._plan.row_tracking, starts=starts)
        ours = self._plan.metadata_columns  # A table's own column may hide one.
        return Bounds(rows, {(name,): held for name, held in found.items() if name in ours})


def _in_todays_calendar(raw: pa.RecordBatch) -> pa.RecordBatch:
    columns = [rebased(column) for column in raw.columns]
    return pa.RecordBatch.from_arrays(columns, schema=raw.schema)
