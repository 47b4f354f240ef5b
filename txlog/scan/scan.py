"""The public class of a scan of one version."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, pairwise
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa

from txlog.base.columns import first_rows
from txlog.base.errors import (
    InvalidInputError,
    InvalidTypeError,
    UnsupportedFeatureError,
    named_for_callers,
    not_installed,
    require_whole,
)
from txlog.base.observe import note, observed_batches, reading, short_name
from txlog.base.texts import without_secrets
from txlog.base.threads import Engine, Threads, tracked
from txlog.base.thresholds import Threshold
from txlog.expressions.sql import to_sql
from txlog.fragments.fragment import Fragment
from txlog.scan.data_file import BATCH_ROWS, RowRange
from txlog.scan.files import uris_of
from txlog.scan.plan import Explanation, ScanPlan
from txlog.scan.read import FragmentReader, read_fragment, selection_vectors
from txlog.scan.read_plan import ReadPlan
from txlog.store.base import Store, is_far, map_many

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl


class ArrowStream(Protocol):
    """Rows that Arrow-compatible libraries accept: pyarrow, polars, duckdb, pandas."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        named_for_callers(cls)

    @property
    def schema(self) -> pa.Schema:
        """The Arrow schema of the rows."""
        ...

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows."""
        ...

    def to_reader(self) -> pa.RecordBatchReader:
        """Return the rows as a stream of batches."""
        return pa.RecordBatchReader.from_batches(self.schema, self.to_batches())

    def __arrow_c_schema__(self) -> Any:
        return self.schema.__arrow_c_schema__()

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return self.to_reader().__arrow_c_stream__(requested_schema)


_TOGETHER_BYTES: Threshold = 1 << 20  # The bytes of files that one call reads: at most 64 files.


def _read_all(
    store: Store, plan: ReadPlan, threads: bool, fragments: Sequence[Fragment]
) -> list[pa.RecordBatch]:
    return [
        batch
        for fragment in fragments
        for batch in read_fragment(store, plan, fragment, threads=threads)
    ]


def _read_ahead(
    store: Store, plan: ReadPlan, batch_rows: int, fragment: Fragment
) -> list[pa.RecordBatch]:
    return list(read_fragment(store, plan, fragment, batch_rows=batch_rows))


def _bytes_of(fragment: Fragment) -> int:
    return sum(file.size for file in fragment.files)


def _facts(fragments: Sequence[Fragment]) -> dict[str, int]:
    """Return the description of the fragments that a scan reads."""
    return {"files": len(fragments), "bytes": sum(map(_bytes_of, fragments))}


def count_live(store: Store, plan: ReadPlan, fragment: Fragment) -> int:
    """Return the number of rows that a plan returns from a fragment, from its files."""
    if plan.where is None:
        reader = FragmentReader(store, plan, fragment)
        return reader.count_rows() - len(reader.deletions() or ())
    return sum(batch.num_rows for batch in read_fragment(store, plan, fragment))


Batches = Generator[pa.RecordBatch, None, None]


def split_by_rows(batches: Iterable[pa.RecordBatch], rows: int) -> Batches:
    """Yield batches of 1 to `rows` rows, none of which spans two of the given ones."""
    for batch in batches:
        for start in range(0, batch.num_rows, rows):
            yield batch.slice(start, rows) if batch.num_rows > rows else batch


def split_by_bytes(batches: Iterable[pa.RecordBatch], max_bytes: int) -> Batches:
    """Yield batches of at most `max_bytes` in Arrow's memory, or of one larger row."""
    for batch in batches:
        if batch.nbytes <= max_bytes or batch.num_rows <= 1:
            yield batch
            continue
        half = batch.num_rows // 2  # Parts of average rows would be tiny beside one large row.
        yield from split_by_bytes([batch.slice(0, half), batch.slice(half)], max_bytes)


def filled(batches: Iterable[pa.RecordBatch], rows: int) -> Batches:
    """Yield batches of exactly `rows` rows; the last one may have fewer."""
    kept: list[pa.RecordBatch] = []
    missing = rows
    for batch in batches:
        start = 0
        while batch.num_rows - start >= missing:
            kept.append(batch.slice(start, missing))
            start += missing
            yield pa.concat_batches(kept)
            kept, missing = [], rows
        if start < batch.num_rows:
            kept.append(batch.slice(start))
            missing -= batch.num_rows - start
    if kept:
        yield pa.concat_batches(kept)


def _read_share(store: Store, plan: ReadPlan, share: Share) -> list[pa.RecordBatch]:
    batches = chain.from_iterable(
        read_fragment(store, plan, fragment) for fragment in share.fragments
    )
    return list(first_rows(batches, share.rows))


def repr_of(name: str, reading: ReadPlan, versions: str, columns: Sequence[str]) -> str:
    """Return the `repr` of rows that are planned: the table, its versions, columns, predicate."""
    where = "" if reading.where is None else f", where={to_sql(reading.where)!r}"
    root = without_secrets(reading.root)
    return f"txlog.{name}({root!r}, {versions}, columns=[{', '.join(columns)}]{where})"


@dataclass(frozen=True, repr=False)
class Scan(ArrowStream):
    """Rows of one version, planned but not yet read; reading twice gives the same rows.

    All libraries that accept an Arrow C stream (pyarrow, polars, duckdb, pandas) accept a scan.
    """

    store: Store
    plan: ScanPlan
    engine: Engine = field(default_factory=Threads)

    def __repr__(self) -> str:
        reading = self.plan.reading
        names = [column.name for column in reading.columns]
        return repr_of("Scan", reading, f"version={reading.version}", names)

    def _repr_html_(self) -> str:
        from txlog.base.html import facts_html, rows_html, titled

        reading = self.plan.reading
        where = None if reading.where is None else to_sql(reading.where)
        return titled(
            f"txlog.Scan {without_secrets(reading.root)}",
            facts_html({"version": reading.version, "where": where}),
            rows_html(("column", "type"), [(field.name, field.type) for field in self.schema]),
        )

    @property
    def schema(self) -> pa.Schema:
        """The Arrow schema of the result."""
        return self.plan.reading.schema

    def fragments(self) -> list[Fragment]:
        """Return the fragments that will be read, ordered by id."""
        return list(self.plan.fragments)

    def file_uris(self) -> list[str]:
        """Return the data files of the fragments that will be read, unordered.

        The result has decoded absolute paths or URIs, including all column files. The files still
        contain rows that deletion vectors delete. Unlike `explain`, this does not count other
        files, which is faster for large tables.
        """
        return uris_of(self.store, self.plan.paths)

    def deletion_vectors(self) -> pa.RecordBatchReader:
        """Return which rows are not deleted, for each file with deleted rows that will be read.

        The result is a stream with a row for each such file: `filepath`, a URI, and
        `selection_vector`, a list with true for each remaining row and false for each deleted row,
        in the order of the file, whether the predicate is true for the row or not. The files'
        deletions are read one by one.
        """
        deleted = (one for one in self.plan.fragments if one.deletion is not None)
        return selection_vectors(self.store, self.plan.reading, deleted)

    def to_batches(
        self,
        *,
        batch_size: int = BATCH_ROWS,
        strict_batch_size: bool = False,
        batch_size_bytes: int | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows, fragment by fragment, in batches of 1 to `batch_size` rows.

        Only one batch is in memory; `to_arrow` reads fragments in parallel instead. From a remote
        store, the next fragments are read ahead up to a limited number of bytes.

        Parameters
        ----------
        strict_batch_size
            Give all batches except the last exactly `batch_size` rows, also across fragments.
        batch_size_bytes
            The largest size of a batch in memory. A single row may be larger.

        Raises
        ------
        InvalidInputError
            A size is not a whole number from 1, or `strict_batch_size` and `batch_size_bytes` are
            both set.
        """
        require_whole("batch_size", batch_size, 1)
        if not isinstance(strict_batch_size, bool):
            raise InvalidTypeError(
                argument="strict_batch_size",
                reason=f"True or False was expected, not {strict_batch_size!r}",
            )
        batches = self._batches(batch_size)
        if batch_size_bytes is not None:
            require_whole("batch_size_bytes", batch_size_bytes, 1)
            if strict_batch_size:
                raise InvalidInputError(
                    argument="strict_batch_size",
                    reason="with batch_size_bytes, the number of rows of a batch varies",
                    remedy="Set one of them",
                )
            batches = split_by_bytes(batches, batch_size_bytes)
        elif strict_batch_size:
            batches = filled(batches, batch_size)
        return observed_batches("SCAN", self.store.root, batches, lambda: _facts(self.plan.to_read))

    def _batches(self, batch_size: int) -> Generator[pa.RecordBatch, None, None]:
        label = f"SCAN {short_name(self.store.root)}"
        if is_far(self.store):
            read = partial(_read_ahead, self.store, self.plan.reading, batch_size)
            parts = map_many(self.store, read, self.plan.to_read, size=_bytes_of)
            for batches in tracked(parts, self.plan.to_read, label):
                yield from split_by_rows(batches, batch_size)
            return
        for fragment in tracked(iter(self.plan.to_read), self.plan.to_read, label):
            rows = read_fragment(
                self.store, self.plan.reading, fragment, batch_rows=batch_size, threads=True
            )
            yield from split_by_rows(rows, batch_size)  # Without columns, batches are larger.

    @reading("SCAN")
    def to_arrow(self) -> pa.Table:
        """Return the rows as one table, ordered by fragment and position."""
        fragments = list(self.plan.to_read)
        note("planned", partial(_facts, fragments))
        single = len(fragments) == 1
        # For small local files, one call of a thread takes longer than reading the file.
        near = isinstance(self.engine, Threads) and not is_far(self.store)
        room = _TOGETHER_BYTES if near else 0
        weights = [max(_bytes_of(fragment), _TOGETHER_BYTES // 64) for fragment in fragments]
        groups = [fragments[part.start : part.stop] for part in packed(weights, room)]
        parts = self.engine.map(partial(_read_all, self.store, self.plan.reading, single), groups)
        return pa.Table.from_batches(
            [batch for batches in parts for batch in batches], schema=self.schema
        )

    @reading("SCAN")
    def to_polars(self) -> pl.DataFrame:
        """Return the rows as a polars frame: those of `to_arrow`, in the same order.

        polars itself reads local files if the result is the same, because its filters are faster.
        Other files, and predicates that compute values, are read as in `to_arrow`.

        Raises
        ------
        UnsupportedFeatureError
            polars is not installed.
        """
        try:
            from txlog.scan.frames import as_frame, read_frame
        except ImportError as error:
            raise not_installed("polars", "polars", f"to_polars needs polars: {error}") from error
        if not self.plan.reading.columns:  # The frame has only a number of rows.
            return as_frame(self.to_arrow())
        return read_frame(self.store, self.plan.reading, list(self.plan.to_read), self.engine)

    def to_pandas(self) -> pd.DataFrame:
        """Return the rows as a pandas frame: those of `to_arrow`, in the same order.

        Raises
        ------
        UnsupportedFeatureError
            pandas is not installed.
        """
        try:
            import pandas  # noqa: F401  # pyarrow needs it for what follows.
        except ImportError as error:
            raise UnsupportedFeatureError(
                features=("pandas",),
                reason=f"to_pandas needs pandas: {error}",
                remedy="Install it: pip install pandas",
            ) from error
        rows = self.to_arrow()
        if b"pandas" not in (rows.schema.metadata or {}):
            return rows.to_pandas()
        try:
            return rows.to_pandas()
        except (pa.ArrowException, AttributeError, LookupError, TypeError, ValueError):
            # The metadata is damaged, or says something else of a column than the table.
            return rows.replace_schema_metadata(None).to_pandas()

    @reading("SCAN")
    def head(self, num_rows: int = 5) -> pa.Table:
        """Return the first rows, or all if there are fewer, ordered by fragment and position.

        Only the needed fragments are opened, if the log has their row counts.

        Raises
        ------
        InvalidInputError
            `num_rows` is not a whole number from 0.
        """
        require_whole("num_rows", num_rows)
        shares = limited(self.plan, num_rows)
        parts = list(self.engine.map(partial(_read_share, self.store, self.plan.reading), shares))
        found = [batch for batches in parts for batch in batches]
        if any(
            share.counted and sum(batch.num_rows for batch in part) < share.rows
            for share, part in zip(shares, parts, strict=True)
        ):
            found = list(first_rows(self.to_batches(), num_rows))  # The log stated too many rows.
        return pa.Table.from_batches(found, schema=self.schema)

    @reading("SCAN")
    def slice(self, offset: int = 0, length: int | None = None) -> pa.Table:
        """Return the rows from an offset, ordered by fragment and position.

        Without a predicate, fragments before the offset are not opened if the log has their row
        counts.

        Parameters
        ----------
        offset
            The number of rows to skip.
        length
            The largest number of rows to return. Default: all.

        Raises
        ------
        InvalidInputError
            A value is not a whole number from 0.
        """
        require_whole("offset", offset)
        if length is not None:
            require_whole("length", length)
        batches = self._after(offset)
        chosen = batches if length is None else first_rows(batches, length)
        return pa.Table.from_batches(chosen, schema=self.schema)

    def _after(self, rows: int) -> Iterator[pa.RecordBatch]:
        reading = self.plan.reading
        for fragment in self.plan.to_read:
            count = fragment.num_rows if reading.where is None else None
            if count is not None and count <= rows:
                rows -= count
                continue
            for batch in read_fragment(self.store, reading, fragment, threads=True):
                if batch.num_rows > rows:
                    yield batch.slice(rows)
                rows = max(0, rows - batch.num_rows)

    def to_table(self) -> pa.Table:
        """Return the rows as one table; the name is pylance's."""
        return self.to_arrow()

    def count_rows(self) -> int:
        """Return the number of rows; the name is pylance's."""
        return self.count()

    @reading("SCAN")
    def count(self) -> int:
        """Return the number of rows, from the log alone if possible."""
        total, unknown = self.plan.count()
        return total + sum(
            self.engine.map(partial(count_live, self.store, self.plan.reading), unknown)
        )

    def explain(self) -> Explanation:
        """Return which files are read, which are skipped, and why; `print` formats the result."""
        return self.plan.explanation


_NO_END = 2**63 - 1


@dataclass(frozen=True)
class Share:
    """Fragments that one reader reads one after another, until it has a number of rows."""

    fragments: tuple[Fragment, ...]
    rows: int
    counted: bool  # Whether the log states that there are enough rows.


def limited(plan: ScanPlan, rows: int) -> list[Share]:
    """Return the shares of readers for the first rows of a scan. Pure.

    Each fragment with a row count in the log is a share. From the first fragment without one, all
    remaining fragments are one share. Fragments after enough rows, and fragments without rows, are
    in no share. Rule: FRG-43.
    """
    found = []
    wanted = [pair for pair in zip(plan.fragments, plan.counts, strict=True) if pair[1] != 0]
    left = rows
    for at, (fragment, count) in enumerate(wanted):
        if left <= 0:
            break
        if count is None:
            found.append(Share(_sufficient(wanted[at:], left), left, counted=False))
            break
        found.append(Share((fragment,), min(count, left), counted=True))
        left -= count
    return found


def _sufficient(wanted: list[tuple[Fragment, int | None]], rows: int) -> tuple[Fragment, ...]:
    """Return the first fragments that together have enough rows according to the log."""
    found = []
    for fragment, count in wanted:
        if rows <= 0:
            break
        found.append(fragment)
        rows -= count or 0
    return tuple(found)


def row_ranges(fragment: Fragment, max_bytes: int) -> list[RowRange | None]:
    """Divide a fragment that is larger than `max_bytes` into even ranges of positions. Pure.

    The ranges are contiguous, and the last one has no end. The result is `[None]` if the fragment
    is small or the log has no row count. Rule: FRG-41.
    """
    rows = fragment.physical_rows or 0
    parts = min(-(-sum(file.size for file in fragment.files) // max_bytes), rows)
    if parts < 2:
        return [None]
    return list(pairwise([*(rows * part // parts for part in range(parts)), _NO_END]))


def packed(weights: Sequence[int], room: int) -> list[range]:
    """Group adjacent values so that each group fits one reader. Pure.

    A value whose weight is larger than the room is alone.
    """
    found = []
    start = size = 0
    for at, weight in enumerate(weights):
        if at > start and size + weight > room:
            found.append(range(start, at))
            start, size = at, 0
        size += weight
    if start < len(weights):
        found.append(range(start, len(weights)))
    return found
