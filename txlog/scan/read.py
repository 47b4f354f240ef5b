"""Read a fragment: its rows that are not deleted and for which the predicate is true."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import replace
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, cast

import numpy as np
import pyarrow as pa
from pyroaring import BitMap64

from txlog.base.arrow import arrow_array, arrow_scalar, numpy_array, pc, pq
from txlog.base.columns import is_readable
from txlog.base.errors import DataFileError, InvalidInputError, warn_caller
from txlog.expressions.bind import columns_of
from txlog.expressions.evaluate import is_true
from txlog.expressions.tree import Expression
from txlog.fragments.deletion_vector import alive_mask, as_bitmap
from txlog.fragments.fragment import DataFile, Fragment
from txlog.fragments.rows import GIVEN
from txlog.log.paths import decode_path
from txlog.parquet.file_footer import FileFooter
from txlog.scan.columns import stored_metadata
from txlog.scan.data_file import (
    BATCH_ROWS,
    OpenFile,
    RowRange,
    blamed,
    common,
    open_parquet,
    zipped,
)
from txlog.scan.deletions import less, load_deletions
from txlog.scan.read_plan import ReadPlan, chosen_columns
from txlog.scan.resolve import RawRows, Resolved, Rows, assemble, resolve
from txlog.schema.types import StructField
from txlog.store.base import Store, is_far, naming
from txlog.store.open import locate, uri_of

if TYPE_CHECKING:
    from txlog.parquet.footer import Numbers
    from txlog.scan.pages import PagedFile


# A UUID. Writers make such names once; others may be those of another table's files later.
_UNIQUE = re.compile(r"[0-9a-f]{8}-?([0-9a-f]{4}-?){3}[0-9a-f]{12}", re.IGNORECASE)


def require_in_place(store: Store, plan: ReadPlan, fragments: Iterable[Fragment]) -> None:
    """Raise if files of fragments may be of another table, which took the place: rule CON-35.

    Call it after the files were opened. Names with a UUID are of one table. For others, the commit
    of the version is asked for: each time if the store is near, and once for a plan if it is not.

    Raises
    ------
    CommitConflictError
        Another table took the place.
    """
    place, known = plan.place, plan.memo.in_place
    if place is None or (known and is_far(store)):
        return
    if all(_UNIQUE.search(file.path) for fragment in fragments for file in fragment.files):
        return
    from txlog.snapshot.successor import found_in_place  # Few tables have such files.

    known.add(found_in_place(store, place, known))


class FragmentReader:
    """Reads the files of one fragment: its physical rows in order, in batches."""

    def __init__(self, store: Store, plan: ReadPlan, fragment: Fragment) -> None:
        self._store = store
        self._plan = plan
        self._fragment = fragment

    def footer(self) -> FileFooter:
        """Return the primary file's footer, whose chunks may be asked for."""
        file = self._fragment.files[0]
        with ExitStack() as stack, blamed(file.path, self._plan.version):
            footer = FileFooter.of(self._open(stack, file))
            footer.require_sound()
        return footer

    def count_rows(self) -> int:
        """Return the number of physical rows, from the primary file's footer."""
        with ExitStack() as stack:
            rows = FileFooter.of(self._open(stack, self._fragment.files[0])).num_rows
        self._require_in_place()
        return rows

    def file_rows(self) -> list[int]:
        """Return the number of physical rows of each file, from its footer."""
        with ExitStack() as stack:
            return [
                FileFooter.of(self._open(stack, file)).num_rows for file in self._fragment.files
            ]

    def stored_bytes(self, names: Iterable[str]) -> int:
        """Return the compressed bytes of columns, by their physical names, in all files."""
        wanted: dict[DataFile, list[str]] = {}
        for name in names:
            for file in self._fragment.files_giving(name):
                wanted.setdefault(file, []).append(name)
        size = 0
        for file, columns in wanted.items():
            with ExitStack() as stack, blamed(file.path, self._plan.version):
                footer = FileFooter.of(self._open(stack, file))
                leaves = [
                    leaf
                    for leaf, path in enumerate(footer.paths)
                    if path.partition(".")[0] in columns
                ]
                size += sum(
                    footer.chunk(group, leaf).total_compressed_size
                    for group in footer.groups
                    for leaf in leaves
                )
        return size

    def deletions(self) -> BitMap64 | None:
        """Return the positions of deleted rows, or None; errors as in `load_deletions`."""
        fragment = self._fragment
        if fragment.deletion is not None and fragment.physical_rows is None:
            fragment = replace(fragment, physical_rows=self.count_rows())
        return load_deletions(self._store, fragment)

    def given_by(self, layer: DataFile) -> BitMap64:
        """Return the positions of the rows to which a layer gives values (FRG-49)."""
        found = BitMap64()
        with ExitStack() as stack:
            file = self._open_file(stack, layer, [], by_pages=False)
            for start, raw in file.read(file.row_groups, batch_rows=BATCH_ROWS, threads=False):
                rows = pc.indices_nonzero(pc.fill_null(raw.column(GIVEN), False))
                found |= as_bitmap(pc.add(pc.cast(rows, pa.uint64()), start))
        return found

    def batches(
        self,
        needed: tuple[StructField, ...],
        *,
        prune: bool,
        batch_rows: int,
        threads: bool,
        only: BitMap64 | None = None,
        rows: RowRange | None = None,
    ) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Yield physical rows with the position of each batch's first one.

        `prune` skips row groups that cannot match the plan's predicate; `only` skips those without
        any of its positions; `rows` skips those that do not begin in this range. Only files with a
        needed column are opened, or else the primary file.
        """
        with ExitStack() as stack:
            files = self._open_needed(stack, needed)
            found = [
                file.ranges(prune=prune, only=only, begin_in=rows if file is files[0] else None)
                for file in files
            ]
            if prune and self._plan.where is not None:
                found = [
                    file.not_excluded(of_file, partial(self._bytes, file.path))
                    for file, of_file in zip(files, found, strict=True)
                ]
            ranges = common(found)
            streams = [file.read(ranges, batch_rows=batch_rows, threads=threads) for file in files]
            for start, raws in zipped(streams):
                part = self._fragment, range(start, start + raws[0].num_rows)
                yield start, in_table(self._plan, needed, files, raws, [part])

    def rows_at(
        self, needed: tuple[StructField, ...], positions: Numbers, *, by_pages: bool = True
    ) -> pa.RecordBatch:
        """Return physical rows at ascending positions; missing positions are skipped.

        If a file has offset indexes, only the pages with these rows are read, unless `by_pages` is
        false.
        """
        with ExitStack() as stack:
            files = self._open_needed(stack, needed, by_pages=by_pages)
            last = min(file.num_rows for file in files)
            numbers = positions[: np.searchsorted(positions, last)]
            if not len(numbers):
                schema = self._plan.schema_of(needed)
                return pa.RecordBatch.from_arrays(
                    [pa.nulls(0, of) for of in schema.types], schema=schema
                )
            raws = [file.read_rows(numbers) for file in files]
            if by_pages:  # Only now the files were opened.
                self._require_in_place()
            part = self._fragment, arrow_array(numbers)
            return in_table(self._plan, needed, files, raws, [part])

    def possible(self, deleted: BitMap64 | None) -> Numbers | None:
        """Return the positions of rows that may match and are not deleted; None: any may match."""
        positions = self._plan.candidates_in(self._fragment)
        return None if positions is None else less(positions, deleted)

    def at(
        self, needed: tuple[StructField, ...], positions: Numbers, batch_rows: int
    ) -> Iterator[tuple[Numbers, pa.RecordBatch]]:
        """Yield physical rows at ascending positions, in batches; missing ones are skipped."""
        for start in range(0, len(positions), batch_rows):
            some = positions[start : start + batch_rows]
            batch = self.rows_at(needed, some)
            yield some[: batch.num_rows], batch

    def matching(self) -> tuple[BitMap64, int]:
        """Return the positions of the live rows for which the plan's predicate is true.

        The second value is the number of physical rows.
        """
        plan, total = self._plan, self.count_rows()
        found = BitMap64()
        deleted = self.deletions()
        if plan.where is None:
            found = BitMap64(range(total))
        else:
            possible = self.possible(deleted)
            read = {path[0] for path in columns_of(plan.where)}
            needed = tuple(column for column in plan.needed if column.name in read)
            if possible is not None:
                for positions, batch in self.at(needed, possible, BATCH_ROWS):
                    with self.blamed(batch):
                        true = numpy_array(is_true(plan.where, batch))
                    found |= as_bitmap(arrow_array(positions[true].astype(np.uint64)))
                return found, total
            for start, batch in self.batches(
                needed, prune=True, batch_rows=BATCH_ROWS, threads=False
            ):
                with self.blamed(batch):
                    rows = pc.indices_nonzero(is_true(plan.where, batch))
                found |= as_bitmap(pc.add(pc.cast(rows, pa.uint64()), start))
        return (found if deleted is None else found - deleted), total

    def require_texts(self, rows: pa.RecordBatch) -> None:
        """Raise if rows of this fragment have text that is not UTF-8.

        Rows are read whatever bytes their texts have, but no value can be computed from such a
        text, and no file is written with one.

        Raises
        ------
        DataFileError
            The error names the file and the column.
        """
        for name, column in zip(rows.schema.names, rows.columns, strict=True):
            if not is_readable(column):
                raise unreadable_text(self._fragment.path, self._plan.version, name)

    @contextmanager
    def blamed(self, rows: pa.RecordBatch) -> Iterator[None]:
        """Blame the file for a value that cannot be computed from rows, if it has such a text."""
        try:
            yield
        except InvalidInputError:
            self.require_texts(rows)
            raise

    def page_end(self, position: int) -> int | None:
        """Return the position behind the page of the largest column in which a row is.

        None if `rows_at` reads the row group of this position as a whole, or no stored column.
        """
        file = self.paged_file()
        if file is None or not file.stored or file.picked(np.array([position])) is None:
            return None
        return int(file.paged.footer.page_end(file.stored, position))

    def paged_file(self) -> OpenFile | None:
        """Return the only file with needed columns of the plan, to read its pages.

        None if there are several files, or its pages cannot be read. The last result is cached with
        the file.
        """
        plan, fragment = self._plan, self._fragment
        if len(fragment.files) == 1:
            paged = self._paged(fragment.files[0])
            if paged is None:
                return None
            kept = paged.opened
            if kept is not None and kept[0] is plan and kept[1] == fragment.id:
                return cast("OpenFile", kept[2])
        with ExitStack() as stack:
            files = self._open_needed(stack, plan.needed, by_pages=True)
        if len(files) != 1 or not files[0].is_paged:
            return None
        if len(fragment.files) == 1:
            files[0].paged.opened = plan, fragment.id, files[0]
        return files[0]

    def _bytes(self, path: str, start: int, size: int) -> bytes:
        """Return bytes of a file of the fragment: fewer if it ends before."""
        home, name = locate(self._store, decode_path(path))
        with (
            naming(self._store),
            blamed(path, self._plan.version),
            closing(home.open_input(name)) as source,
        ):
            source.seek(start)
            return bytes(source.read(size))

    def _open(self, stack: ExitStack, file: DataFile) -> pq.ParquetFile:
        home, name = locate(self._store, decode_path(file.path))
        known = None
        if is_far(home):
            with suppress(pa.ArrowException, OSError):  # Opening the file raises the right error.
                footers = self._plan.memo.footers
                known = footers.without_request(home, name, file.size, file.path)
        return open_parquet(stack, self._store, file, self._plan.version, known)

    def _open_needed(
        self, stack: ExitStack, needed: tuple[StructField, ...], *, by_pages: bool = False
    ) -> list[OpenFile]:
        """Open the files with needed columns; the primary file if there are none.

        With `by_pages`, a file whose footer is known is not opened before row groups are read.
        """
        wanted: dict[DataFile, list[StructField]] = {}
        for column in needed:
            if column.name not in self._plan.form.partition_columns:
                for file in self._giving(column):
                    wanted.setdefault(file, []).append(column)
        constant = self._plan.metadata_columns
        primary = self._fragment.files[0]
        opened = []
        for file in self._fragment.files:
            columns = wanted.get(file, [])
            # A metadata column that no file stores needs no file; others are enough for the count.
            stored = [c for c in columns if c.name not in constant or self._is_stored(c)]
            if stored or (file is primary and not set(wanted) - {primary}):
                opened.append(self._open_file(stack, file, stored, by_pages=by_pages))
        self._require_in_place()
        opened.sort(key=attrgetter("layer"))
        upper = [one for one in opened if one.layer]
        changed = frozenset(part.column.name for one in upper for part in one.resolved.columns)
        for one in opened if changed else ():
            one.changed = changed
        return opened

    def _require_in_place(self) -> None:
        require_in_place(self._store, self._plan, (self._fragment,))

    def _giving(self, column: StructField) -> tuple[DataFile, ...]:
        """Return the files that a column is read from; later ones replace values of the first."""
        form = self._plan.form
        name: str | None = column.name_in_files(form.mapping_mode)
        if column.name in self._plan.metadata_columns:
            name = stored_metadata(column.name, form.row_tracking)
        return self._fragment.files[:1] if name is None else self._fragment.files_giving(name)

    def _is_stored(self, column: StructField) -> bool:
        return stored_metadata(column.name, self._plan.form.row_tracking) is not None

    def _open_file(
        self, stack: ExitStack, file: DataFile, columns: list[StructField], *, by_pages: bool
    ) -> OpenFile:
        plan = self._plan
        paged = self._paged(file) if by_pages else None
        if paged is None:
            parquet = self._open(stack, file)
            footer = FileFooter.of(parquet)
            opened: Callable[[], pq.ParquetFile] = lambda: parquet  # noqa: E731 (It is open already.)
        else:
            footer = paged.parsed
            opened = partial(self._open, stack, file)
        resolved = self._resolved(footer, columns)
        open_file = OpenFile(file, self._fragment.id, plan, footer, resolved, opened, paged)
        self._check_rows(open_file)
        return open_file

    def _paged(self, file: DataFile) -> PagedFile | None:
        """Return a file whose pages can be read; None if it must be opened."""
        footers = self._plan.memo.footers
        known = footers.known(file.path, file.size)
        if known is not None:
            return known[0]
        home, name = locate(self._store, decode_path(file.path))
        with naming(self._store), blamed(file.path, self._plan.version):
            try:
                return footers.paged(home, name, file.size, file.path)
            except (pa.ArrowException, OSError):
                return None  # Opening the file raises the right error.

    def _resolved(self, footer: FileFooter, columns: Sequence[StructField]) -> Resolved:
        """Return the columns in a file with a footer; the last result is cached."""
        names = tuple(column.name for column in columns)
        kept = self._plan.memo.resolved.get(names)
        if kept is not None and kept[0].equals(footer.schema, check_metadata=True):
            return kept[1]
        found = resolve(self._plan.form, columns, footer)
        self._plan.memo.resolved[names] = (footer.schema, found)
        return found

    def _check_rows(self, file: OpenFile) -> None:
        stated = self._fragment.physical_rows
        if stated is None or stated == file.num_rows:
            return
        self._require_in_place()  # Of another table's file, nothing more can be said.
        if self._fragment.deletion is None and len(self._fragment.files) == 1:
            warn_caller(
                f"the log says that {file.path} has {stated} rows, but it has {file.num_rows}: "
                "counts from the log are wrong"
            )
            return
        is_alone = len(self._fragment.files) == 1
        distrusted = "its deletion vector" if is_alone else "its rows' order"
        raise DataFileError(
            path=file.path,
            version=self._plan.version,
            reason=f"the log says {stated} rows, but the file has {file.num_rows}, so "
            f"{distrusted} cannot be trusted",
            remedy="Restore the file from a copy, or open a version without it"
            if is_alone
            else "The log's numRecords is wrong. Correct it with "
            "optimize.compute_statistics(recompute=True)",
        )


def unreadable_text(path: str, version: int | None, column: str) -> DataFileError:
    """Return the error of a file with a text that is not UTF-8."""
    return DataFileError(
        path=path,
        version=version,
        reason=f"column {column} has text that is not UTF-8",
        remedy="Delete the rows with this text, or restore the file from a copy",
    )


def in_table(
    plan: ReadPlan,
    needed: Sequence[StructField],
    files: Sequence[OpenFile],
    raws: Sequence[pa.RecordBatch],
    parts: Sequence[tuple[Fragment, Rows]],
) -> pa.RecordBatch:
    """Return rows of files, which have them side by side, in columns of the table.

    Parameters
    ----------
    raws
        The rows as each of the files stores them.
    parts
        The fragments of the rows in their order, and positions there; errors as for `assemble`.
    """
    stored = [
        RawRows(file.resolved, file.path, raw, file.layer)
        for file, raw in zip(files, raws, strict=True)
    ]
    target = plan.schema_of(needed)
    return assemble(plan.form, needed, target, stored, parts, plan.memo.partition_values)


def matching_rows(
    batch: pa.RecordBatch, alive: pa.Array | None, where: Expression | None
) -> pa.RecordBatch:
    """Return the rows of a batch that are live (None: all) and for which a predicate is true."""
    if where is not None:
        true = is_true(where, batch)
        alive = true if alive is None else pc.and_(true, alive)
    return batch if alive is None else batch.filter(alive)


def read_fragment(
    store: Store,
    plan: ReadPlan,
    fragment: Fragment,
    *,
    batch_rows: int = BATCH_ROWS,
    threads: bool = False,
    rows: RowRange | None = None,
) -> Iterator[pa.RecordBatch]:
    """Yield the matching rows of a fragment in the plan's columns.

    Row groups that the predicate excludes are not read. Deletions use physical positions and are
    applied before the predicate.

    Parameters
    ----------
    threads
        Whether several threads may decode one file.
    rows
        Read only the row groups that begin at these positions. If ranges together cover all
        positions, each row is read once.

    Raises
    ------
    DataFileError, BadDeletionVectorError
        A file is missing or unreadable, or contradicts the log.
    """
    reader = FragmentReader(store, plan, fragment)
    deleted = reader.deletions()
    possible = None if rows is not None else reader.possible(deleted)
    if possible is not None:
        for _, batch in reader.at(plan.needed, possible, batch_rows):
            with reader.blamed(batch):
                found = matching_rows(batch, None, plan.where)
            if found.num_rows:
                yield chosen_columns(plan, found)
        return
    for start, batch in reader.batches(
        plan.needed, prune=True, batch_rows=batch_rows, threads=threads, rows=rows
    ):
        with reader.blamed(batch):
            found = matching_rows(batch, alive_mask(deleted, start, batch.num_rows), plan.where)
        if found.num_rows:
            yield chosen_columns(plan, found)


def selection_vectors(
    store: Store, plan: ReadPlan, fragments: Iterable[Fragment]
) -> pa.RecordBatchReader:
    """Yield the live rows of each fragment: batches of `filepath`, `selection_vector`.

    Deletions are read when their batch is requested; errors as in `load_deletions`.
    """
    schema = pa.schema([("filepath", pa.string()), ("selection_vector", pa.list_(pa.bool_()))])

    def selection_of(fragment: Fragment) -> pa.RecordBatch:
        reader = FragmentReader(store, plan, fragment)
        rows = reader.count_rows() if fragment.physical_rows is None else fragment.physical_rows
        left = alive_mask(reader.deletions(), 0, rows)
        left = pa.repeat(arrow_scalar(True), rows) if left is None else left
        offsets = arrow_array([0, rows], pa.int32())
        vector = pa.ListArray.from_arrays(offsets, left)
        uri = uri_of(store, fragment.path)
        uri = uri if "://" in uri else Path(uri).as_uri()
        path = arrow_array([uri], pa.string())
        return pa.RecordBatch.from_arrays([path, vector], schema=schema)

    return pa.RecordBatchReader.from_batches(schema, map(selection_of, fragments))
