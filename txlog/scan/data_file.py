"""Read some columns and rows of one Parquet file of a fragment."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import reduce
from itertools import accumulate, pairwise
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from pyroaring import BitMap64

from txlog.base.arrow import arrow_array, arrow_scalar, pq
from txlog.base.columns import rows_among, without_views
from txlog.base.errors import DataFileError, NotFoundError, TxlogError, resource_error
from txlog.base.threads import cached_property
from txlog.base.thresholds import Threshold
from txlog.expressions.bind import columns_of
from txlog.fragments.deletion_vector import as_bitmap
from txlog.fragments.fragment import DataFile
from txlog.fragments.rows import GIVEN
from txlog.log.paths import decode_path
from txlog.parquet.file_footer import FileFooter, open_source
from txlog.scan.columns import is_legacy, metadata_bounds, rebased
from txlog.scan.read_plan import ReadPlan
from txlog.scan.resolve import Resolved
from txlog.schema.casts import Reading
from txlog.stats.file_bounds import row_group_bounds
from txlog.stats.skip import Bounds, keep, merged
from txlog.store.base import Store, is_confined, is_far, naming
from txlog.store.open import locate
from txlog.store.ranged import open_ranged

if TYPE_CHECKING:
    from txlog.parquet.footer import Numbers
    from txlog.scan.bloom_filters import Read
    from txlog.scan.pages import PagedFile, Picked

BATCH_ROWS: Threshold = 131_072
_FAR_GAP: Threshold = 1 << 20  # Columns with at most this gap in bytes are read with one request.


@contextmanager
def blamed(path: str, version: int | None) -> Iterator[None]:
    """Turn all errors of pyarrow or the store about a file into one error that names it."""
    try:
        yield
    except NotFoundError as error:
        raise DataFileError(
            path=path,
            version=version,
            reason="the file is missing, but this version of the table needs it",
            remedy="If this is an older version, a vacuum may have removed the file: open the "
            "latest. Otherwise restore the file from a copy, or remove its rows from the table "
            "with maintenance.repair(False, missing_files=True)",
        ) from error
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        if (lacking := resource_error(error, path)) is not None:  # The cause may be elsewhere.
            raise lacking from error
        if isinstance(error, TxlogError):
            raise
        raise DataFileError(
            path=path,
            version=version,
            reason=f"the file cannot be read as Parquet: {error}",
            remedy="Restore the file from a copy, or open a version without it",
        ) from error


def open_parquet(
    stack: ExitStack,
    store: Store,
    file: DataFile,
    version: int | None,
    known: PagedFile | None = None,
) -> pq.ParquetFile:
    """Open a data file; `stack` closes it.

    From a remote store, neighbouring columns of a row group are read at once. If the footer is
    `known`, it is not read again.
    """
    home, name = locate(store, decode_path(file.path))

    def opened(size: int | None, known: PagedFile | None = None) -> Any:
        tail = None if known is None else known.tail.get(known.tail_start, known.size)
        source = stack.enter_context(open_ranged(home, name, size, tail=tail))
        if known is None:
            found = open_source(source, pre_buffer=is_far(home))
        else:
            found = open_source(source, footer=known.parsed)
        checks = is_confined(store.options)
        if not checks and known is None:
            return found
        return _RequestedFile(found, source, far=is_far(home), checks=checks)

    with naming(store), blamed(file.path, version):
        try:
            return opened(file.size or None, known)
        except (pa.ArrowException, OSError):
            if not is_far(home):
                raise
            return opened(None)  # Some logs are wrong about the sizes of files.


class _RequestedFile:
    """A Parquet file whose row groups are requested here, before pyarrow decodes them.

    pyarrow has 8 threads for all of its requests, so it would not send more at the same time.

    Parameters
    ----------
    far
        Whether the file is in a remote store.
    checks
        Whether page headers are checked before pages are decompressed: the writer is another one.
    """

    def __init__(self, file: pq.ParquetFile, source: Any, *, far: bool, checks: bool) -> None:
        self.metadata, self.schema_arrow = file.metadata, file.schema_arrow
        self.footer = FileFooter.of(file)
        self._file, self._source, self._far, self._checks = file, source, far, checks

    def iter_batches(
        self, *, row_groups: Sequence[int], columns: Sequence[str], **options: Any
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows of row groups; errors as for `require_pages`, and pyarrow's."""
        from txlog.parquet.miniature import merge_ranges
        from txlog.parquet.page import chunk_range, chunks_of, require_pages
        from txlog.parquet.thrift import ThriftError

        for number in row_groups:
            if self._far:  # Its bytes are requested once.
                chunks = chunks_of(self.footer, number, columns)
                ranges = [chunk_range(chunk) for _, chunk in chunks]
                self._source.keep(merge_ranges(ranges, gap=_FAR_GAP))
            if self._checks:
                try:
                    require_pages(self._source, self.footer, number, columns)
                except ThriftError as error:
                    raise pa.ArrowInvalid(str(error)) from error
            yield from self._file.iter_batches(row_groups=[number], columns=columns, **options)


class OpenFile:
    """An open data file, and the plan's columns in it.

    Parameters
    ----------
    footer
        The file's own.
    resolved
        The columns to read from it.
    opened
        Opens the file when row groups are read.
    paged
        The file as a `PagedFile`, if its pages can be read separately.
    """

    def __init__(
        self,
        file: DataFile,
        fragment_id: int,
        plan: ReadPlan,
        footer: FileFooter,
        resolved: Resolved,
        opened: Callable[[], pq.ParquetFile],
        paged: PagedFile | None = None,
    ) -> None:
        self.path = file.path
        self.layer = file.layer
        # The columns of which other files give some values: bounds in the footer are not theirs.
        self.changed: frozenset[str] = frozenset()
        self._fragment_id = fragment_id
        self.num_rows = footer.num_rows
        self._plan = plan
        self._footer = footer
        self._opened = opened
        self._paged = paged
        self.resolved = resolved
        self._legacy = resolved.is_legacy
        if resolved.ambiguous is not None:
            name, count = resolved.ambiguous
            raise DataFileError(
                path=file.path,
                version=plan.version,
                reason=f"the file has {count} columns with the name {name!r}",
                remedy="Its writer made an error. Read other columns",
            )
        if self.layer and GIVEN not in footer.schema.names:
            raise DataFileError(
                path=file.path,
                version=plan.version,
                reason=f"the file gives values to some rows, but has no column {GIVEN}, which says "
                "to which rows",
                remedy="Its writer made an error. Read other columns, or restore a version without "
                "the file",
            )

    @cached_property
    def _parquet(self) -> pq.ParquetFile:
        return self._opened()

    @cached_property
    def row_groups(self) -> list[RowRange]:
        """For each row group, the positions of its first row and of the row after its last."""
        rows = list(map(self._footer.rows, self._footer.groups))
        least = min(rows, default=0)
        if sum(rows) != self.num_rows or least < 0:
            raise DataFileError(
                path=self.path,
                version=self._plan.version,
                reason=f"its footer states {least} rows for a row group"
                if least < 0
                else f"its footer states {self.num_rows} rows, but {sum(rows)} in its row groups",
                remedy="Restore the file from a copy, or open a version without it",
            )
        return list(pairwise(accumulate(rows, initial=0)))

    def ranges(
        self, *, prune: bool, only: BitMap64 | None = None, begin_in: RowRange | None = None
    ) -> list[RowRange]:
        """Return the row groups to read.

        `prune` omits row groups in which the plan's predicate is true for no row; `only` omits
        those without any of its positions; `begin_in` omits those that do not begin in it.
        """
        with blamed(self.path, self._plan.version):
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
                # Read to its end: only there a skipped page is noticed.
                for raw in self._raw(group, bounds[1] - at, batch_rows, threads):
                    for start, stop in overlaps(wanted, (at, at + raw.num_rows)):
                        yield start, raw.slice(start - at, stop - start)
                    at += raw.num_rows

    @property
    def stored(self) -> list[str]:
        """The names of the columns that are read, in the file."""
        return [*self.resolved.stored, GIVEN] if self.layer else self.resolved.stored

    @property
    def _parts(self) -> list[str]:
        return [*self.resolved.parts, GIVEN] if self.layer else self.resolved.parts

    @property
    def is_paged(self) -> bool:
        """Whether its pages are read separately."""
        return self._paged is not None

    @property
    def paged(self) -> PagedFile:
        """The file as a `PagedFile`, if its pages can be read separately."""
        assert self._paged is not None
        return self._paged

    @cached_property
    def layout(self) -> object:
        """The properties that files share if their pages can be decoded together."""
        return self.paged.layout, tuple(self.resolved.names.items())

    def picked(self, positions: Numbers, many: bool = False) -> Picked | None:
        """Return the pages with ascending positions; None if `read_rows` must be called.

        `many` is that of `PagedFile.picked`.
        """
        paged = self._paged
        if paged is None or self._legacy or not self.stored or positions[-1] >= self.num_rows:
            return None
        from txlog.parquet.thrift import ThriftError

        with blamed(self.path, self._plan.version):
            try:
                return paged.picked(self.stored, positions, many)
            except ThriftError:
                return None

    def read_rows(self, positions: Numbers) -> pa.RecordBatch:
        """Return the rows at ascending positions, by their pages if this is faster."""
        names = self.stored
        if not names:
            return pa.RecordBatch.from_arrays([pa.nulls(len(positions))], names=["rows"])
        if self._paged is not None and not self._legacy:
            with blamed(self.path, self._plan.version):
                found = self._paged.read_rows(names, positions)
            if found is not None:
                # Combining the chunks of a column copies it, even if there is only one chunk.
                columns = [
                    column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
                    for column in found.columns
                ]
                return pa.RecordBatch.from_arrays(columns, names=names)
        parts: list[pa.RecordBatch] = []
        ranges = self.ranges(prune=False, only=as_bitmap(arrow_array(positions.astype(np.uint64))))
        batch_rows = max(BATCH_ROWS, len(positions))
        for start, raw in self.read(ranges, batch_rows=batch_rows, threads=False):
            first, last = np.searchsorted(positions, [start, start + raw.num_rows])
            rows = rows_among(
                without_views(pa.Table.from_batches([raw])), positions[first:last] - start
            )
            parts += rows.combine_chunks().to_batches()
        return parts[0] if len(parts) == 1 else pa.concat_batches(parts)

    def _raw(
        self, group: int, rows: int, batch_rows: int, threads: bool
    ) -> Iterator[pa.RecordBatch]:
        if not self.stored:  # Only constants are wanted, one for each row.
            yield pa.RecordBatch.from_arrays([pa.nulls(rows)], names=["rows"])
            return
        found = 0
        for raw in self._parquet.iter_batches(
            batch_size=batch_rows,
            row_groups=[group],
            columns=self._parts if self._plan.nested else self.stored,
            use_threads=threads,
        ):
            found += raw.num_rows
            yield self._in_todays_calendar(raw) if self._legacy else raw
        if found != rows:  # pyarrow skips a page whose header names another kind.
            raise DataFileError(
                path=self.path,
                version=self._plan.version,
                reason=f"row group {group} has {rows} rows according to the footer, but {found} "
                "in its pages",
                remedy="Restore the file from a copy, or open a version without it",
            )

    def _in_todays_calendar(self, raw: pa.RecordBatch) -> pa.RecordBatch:
        """Convert dates and timestamps in rows of a legacy file to the Gregorian calendar."""
        pairs, kinds = (
            self._footer.pairs,
            zip(self._footer.paths, self._footer.physical_types, strict=True),
        )
        int96 = {path for path, kind in kinds if kind == "INT96"}
        columns = [
            rebased(column, int96=name in int96)
            if is_legacy(pairs, int96=name in int96)
            else column
            for name, column in zip(raw.schema.names, raw.columns, strict=True)
        ]
        return pa.RecordBatch.from_arrays(columns, schema=raw.schema)

    def not_excluded(self, ranges: list[RowRange], read: Read) -> list[RowRange]:
        """Return the row groups that no Bloom filter of the file excludes.

        Parameters
        ----------
        ranges
            Those to look at, as `ranges` returns them.
        read
            Returns bytes of the file, from a position, at most so many.
        """
        if self._plan.where is None or self._legacy or not ranges:
            return ranges
        wanted: dict[int, tuple[str, Sequence[object]]] = {}
        for column, values in self._plan.listed.items():
            if column in self.changed:
                continue
            name = self.resolved.names.get(column)
            path = self.resolved.leaf((column,), _KEPT)
            leaf = None if path is None else self._footer.leaf(path)
            if name is not None and leaf is not None:
                wanted[leaf] = name, values
        groups = {bounds: group for group, bounds in enumerate(self.row_groups)}
        asked = [groups[bounds] for bounds in ranges if bounds in groups]
        # Older versions of pyarrow know no Bloom filters.
        with blamed(self.path, self._plan.version):
            chunks = [self._footer.chunk(asked[0], leaf) for leaf in wanted]
        if not any(getattr(chunk, "bloom_filter_offset", None) for chunk in chunks):
            return ranges
        from txlog.scan.bloom_filters import groups_left

        tops = {*self.stored}
        read_leaves = [
            leaf for leaf, path in enumerate(self._footer.paths) if path.partition(".")[0] in tops
        ]
        left = groups_left(self._footer, wanted, read_leaves, asked, read, self.path)
        return [self.row_groups[group] for group in left]

    def _kept_row_groups(self) -> list[bool] | None:
        plan = self._plan
        if plan.where is None or len(self._footer.groups) < 2:
            return None
        leaves = {
            path: leaf
            for path in columns_of(plan.where)
            if path[0] not in self.changed and (leaf := self.resolved.leaf(path)) is not None
        }
        bounds = row_group_bounds(self._footer, leaves, plan.form.schema)
        known = merged(bounds, self._addresses())
        return [bool(value) for value in keep(plan.where, known).to_pylist()]

    def _addresses(self) -> Bounds:
        """Return the bounds of the row groups' metadata columns."""
        groups = self.row_groups
        starts = arrow_array([start for start, _ in groups], pa.int64())
        rows = arrow_array([stop - start for start, stop in groups], pa.int64())
        ids = pa.repeat(arrow_scalar(self._fragment_id, pa.int64()), len(groups))
        found = metadata_bounds(ids, rows, self._plan.form.row_tracking, starts=starts)
        ours = self._plan.metadata_columns  # A table's own column may hide one.
        return Bounds(rows, {(name,): bound for name, bound in found.items() if name in ours})


# What keeps each value.
_KEPT = (Reading.SAME, Reading.LAYOUT, Reading.CHECKED)
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
    """Return the intersection of several lists of ranges; a single list is returned unchanged."""
    return reduce(
        lambda own, others: [part for bounds in others for part in overlaps(own, bounds)],
        map(list, several[1:]),
        list(several[0]),
    )


def zipped(
    streams: Sequence[Iterator[tuple[int, pa.RecordBatch]]],
) -> Iterator[tuple[int, list[pa.RecordBatch]]]:
    """Yield the batches of several files combined by columns, with the position of the first row.

    All streams have the same positions in the same order, but with different batch sizes.
    """
    if len(streams) == 1:
        yield from ((start, [batch]) for start, batch in streams[0])
        return
    heads = [next(stream, None) for stream in streams]
    while all(head is not None for head in heads):
        present = [head for head in heads if head is not None]
        start = present[0][0]
        count = min(batch.num_rows for _, batch in present)
        yield start, [batch.slice(0, count) for _, batch in present]
        heads = [
            (start + count, batch.slice(count)) if batch.num_rows > count else next(stream, None)
            for (_, batch), stream in zip(present, streams, strict=True)
        ]
