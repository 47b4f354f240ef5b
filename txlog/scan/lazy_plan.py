"""`ScanPlan`: what a scan reads, found in the log no further than an answer needs.

A plan has two halves. Its `ReadPlan` (columns, predicate) is decided at once. Its files are found
when somebody asks, and stay Arrow columns; a fragment becomes a value when it is taken out of
`fragments`. Where the files come from is the plan's `source`, one of these:

- `PlannedFiles`: they were chosen already.
- `LiveFiles`: the caller has all live `FILE_ROWS`, as of a small table.
- `LoggedFiles`: the checkpoint is large. Each question reads only the columns of the log that it is
  about, batch by batch (`fold_files`): `paths` reads the paths; a predicate reads the statistics of
  its columns, and everything else of the surviving files alone.
- `GivenFragments`: the caller has values, as of `TableFragment`.

For example, `table.scan(where="day = '2026-01-03'")` of a million files reads nothing yet.
`.file_uris()` reads `path`, `size` and `partitionValues` and returns the paths of the survivors.
`.to_arrow()` takes `to_read`: the same survivors, but ordered by fragment id, which takes a sort of
their paths. `.fragments()` also needs ids, which depend on the paths of all files: only it reads
these.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from txlog.actions.columns import empty_rows
from txlog.expressions.tree import Expression
from txlog.fragments.fragment import Fragment, Fragments
from txlog.fragments.rows import FragmentRows, deleted_counts
from txlog.scan.logged_files import LoggedFiles, is_large
from txlog.scan.plan import (
    Explanation,
    PlannedFiles,
    ReadPlan,
    plan_live,
    read_plan,
)
from txlog.snapshot.snapshot import Snapshot
from txlog.store.base import Store


class FileSource(Protocol):
    """Where a plan has its files from."""

    @property
    def explanation(self) -> Explanation:
        """What is read and what is left out."""
        ...

    @property
    def files(self) -> PlannedFiles:
        """The fragments that survive."""
        ...

    @property
    def read_files(self) -> PlannedFiles:
        """The fragments that survive, with what reading takes of them."""
        ...

    @property
    def paths(self) -> pa.ChunkedArray:
        """The paths of the files to read, as logged, in no order."""
        ...

    def count(self) -> int | None:
        """Return how many rows are wanted, or None if that is better told of each fragment."""
        ...


@dataclass(frozen=True, kw_only=True)
class ScanPlan(ReadPlan):
    """A scan, decided: what to read, and how. Its files are found when they are asked for."""

    source: FileSource | GivenFragments = field(repr=False, compare=False)

    @property
    def reading(self) -> ReadPlan:
        """How any of the fragments is read: what a worker gets, however many there are."""
        return ReadPlan(**_reading(self))

    @property
    def explanation(self) -> Explanation:
        """What is read and what is left out."""
        return self.source.explanation

    @cached_property
    def fragments(self) -> Fragments | tuple[Fragment, ...]:
        """The fragments that survive, ordered by id."""
        if isinstance(self.source, GivenFragments):
            return self.source.fragments
        return Fragments(self.source.files.rows, self.source.files.physical_rows)

    @cached_property
    def to_read(self) -> Fragments | tuple[Fragment, ...]:
        """The fragments that survive, in their order, with what reading takes of them.

        Unless the scan asks for ids, those that are not durable may be others than in `fragments`,
        which have the same order; and without deletions the number of rows may not be told.
        """
        if isinstance(self.source, GivenFragments) or "fragments" in vars(self):
            return self.fragments
        return Fragments(self.source.read_files.rows, self.source.read_files.physical_rows)

    @property
    def files_to_read(self) -> PlannedFiles:
        """The fragments `to_read` as columns, in no order."""
        assert not isinstance(self.source, GivenFragments)
        return self.source.read_files

    @property
    def rows(self) -> FragmentRows:
        """The fragments that survive as columns, in no order."""
        assert not isinstance(self.source, GivenFragments)
        return self.source.files.rows

    @cached_property
    def certain(self) -> tuple[bool, ...]:
        """For each fragment, whether the predicate is true of all its rows."""
        return tuple(self._certain.to_pylist())

    @property
    def _certain(self) -> pa.Array:
        if isinstance(self.source, GivenFragments):
            return pa.repeat(pa.scalar(self.where is None), len(self.fragments))
        files = self.source.files
        return files.certain.take(pc.sort_indices(files.rows.ids))

    @cached_property
    def counts(self) -> pa.Array:
        """For each fragment, how many of its rows are wanted; null where only reading tells."""
        found = self.fragments
        if isinstance(found, Fragments):
            rows = pc.subtract(found.physical_rows, found.num_deletions)
        else:
            rows = pa.array([fragment.num_rows for fragment in found], pa.int64())
        # A log may be wrong.
        known = pc.and_(self._certain, pc.fill_null(pc.greater_equal(rows, 0), False))
        return pc.if_else(known, rows, None)

    @property
    def paths(self) -> pa.ChunkedArray:
        """The paths of the files to read, as logged, in no order.

        Whether a checkpoint says other things of one of them elsewhere is not looked at.
        """
        return self.source.paths

    def count(self) -> tuple[int, Sequence[Fragment]]:
        """Return how many rows the log counts, and the fragments of which only reading tells."""
        counted = self.source.count()
        if counted is not None:
            return counted, ()
        unknown = self.counts.is_null()
        total: int = pc.sum(self.counts).as_py() or 0
        return total, _chosen(self.fragments, unknown)

    def only_with_deletions(self) -> ScanPlan:
        """Return the plan for the fragments of which rows are deleted."""
        assert not isinstance(self.source, GivenFragments)
        files = self.source.files
        chosen = pc.greater(deleted_counts(files.rows.primaries), 0)
        some = PlannedFiles(
            files.rows.filter(chosen),
            files.physical_rows.filter(chosen),
            files.certain.filter(chosen),
            files.explanation,
        )
        return ScanPlan(**_reading(self), source=some)


def _chosen(fragments: Fragments | tuple[Fragment, ...], chosen: pa.Array) -> Sequence[Fragment]:
    if isinstance(fragments, Fragments):
        return fragments.filter(chosen)
    pairs = zip(fragments, chosen.to_pylist(), strict=True)
    return [fragment for fragment, is_chosen in pairs if is_chosen]


def _reading(plan: ReadPlan) -> dict[str, Any]:
    return {part.name: getattr(plan, part.name) for part in fields(ReadPlan)}


def plan_snapshot(
    store: Store,
    snapshot: Snapshot,
    files: Callable[[], pa.Table],
    *,
    columns: list[str] | None = None,
    where: Expression | None = None,
) -> ScanPlan:
    """Return the plan of a scan; `files` gives the snapshot's live `FILE_ROWS`, if it is to.

    The other arguments, and errors, are those of `plan_scan`.
    """
    reading = read_plan(snapshot, columns=columns, where=where)
    source: FileSource
    if is_large(snapshot, reading):
        source = LoggedFiles(store, snapshot, reading)
    else:
        source = LiveFiles(snapshot, reading, files())
    return ScanPlan(**_reading(reading), source=source)


def plan_scan(
    snapshot: Snapshot,
    files: pa.Table,
    *,
    columns: list[str] | None = None,
    where: Expression | None = None,
) -> ScanPlan:
    """Decide which of a snapshot's files can hold rows that a scan wants. Pure.

    Parameters
    ----------
    files
        The snapshot's live files, as `FILE_ROWS`.
    columns
        The columns to return, in this order: the table's, or metadata columns. None for all of
        the table's.
    where
        Keep the rows of which this is true.

    Raises
    ------
    InvalidInputError
        A column is not in the table, or the predicate does not fit its schema.
    """
    reading = read_plan(snapshot, columns=columns, where=where)
    return ScanPlan(**_reading(reading), source=plan_live(snapshot, reading, files))


def plan_fragments(
    snapshot: Snapshot,
    fragments: Sequence[Fragment],
    *,
    columns: list[str] | None = None,
    where: Expression | None = None,
) -> ScanPlan:
    """Decide how to read some fragments of a snapshot, in their order; errors as `plan_scan`."""
    reading = read_plan(snapshot, columns=columns, where=where)
    source = GivenFragments(snapshot, reading, tuple(fragments))
    return ScanPlan(**_reading(reading), source=source)


@dataclass(frozen=True)
class GivenFragments:
    """Some fragments of a snapshot, as values. All of them are read."""

    snapshot: Snapshot
    reading: ReadPlan
    fragments: tuple[Fragment, ...]

    @property
    def explanation(self) -> Explanation:
        """What is read: all of it."""
        nothing = plan_live(self.snapshot, self.reading, empty_rows()).explanation
        return replace(
            nothing,
            files=len(self.fragments),
            files_to_read=len(self.fragments),
            files_with_deletions=sum(one.deletion is not None for one in self.fragments),
            bytes_to_read=sum(file.size for one in self.fragments for file in one.files),
        )

    @property
    def paths(self) -> pa.ChunkedArray:
        """The paths of the files, as logged."""
        paths = [file.path for fragment in self.fragments for file in fragment.files]
        return pa.chunked_array([paths], pa.string())

    def count(self) -> int | None:
        """Return None: each fragment tells."""
        return None


@dataclass(frozen=True)
class LiveFiles:
    """All live files of a snapshot, held against the predicate when somebody asks."""

    snapshot: Snapshot
    reading: ReadPlan
    live: pa.Table = field(repr=False)  # `FILE_ROWS`.

    @cached_property
    def files(self) -> PlannedFiles:
        """The fragments that survive."""
        return plan_live(self.snapshot, self.reading, self.live)

    @property
    def read_files(self) -> PlannedFiles:
        """The fragments that survive."""
        return self.files

    @property
    def explanation(self) -> Explanation:
        """What is read and what is left out."""
        return self.files.explanation

    @property
    def paths(self) -> pa.ChunkedArray:
        """The paths of the files to read, as logged."""
        return self.files.paths

    def count(self) -> int | None:
        """Return None: each fragment tells."""
        return None
