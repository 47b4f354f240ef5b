"""Read the live files of a snapshot: all columns at once, or some columns batch by batch."""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Generic, TypeVar

import numpy as np
import pyarrow as pa

from txlog.actions.columns import FILE_ROWS, empty_rows
from txlog.base.arrow import arrow_array, pc
from txlog.base.columns import flat
from txlog.base.errors import LogCorruptError, NotFoundError, resource_errors
from txlog.base.threads import Engine, prefetch
from txlog.base.thresholds import Threshold
from txlog.checkpoint.file_rows import Wanted, united
from txlog.checkpoint.parquet import Footers
from txlog.checkpoint.read import (
    Source,
    about_rows,
    file_batches,
    read_files,
    shares_of,
    sources_of,
)
from txlog.fragments.rows import FEATURE, require_fragments_feature
from txlog.log.names import LogFile, parse_name
from txlog.log.paths import canonical_keys
from txlog.reconcile.files import (
    FileState,
    Hashes,
    Newer,
    are_all_distinct,
    are_different,
    file_keys,
    key_hashes,
    left_of,
    newer_of,
    newest,
    overlay,
    state_of,
    text_hashes,
)
from txlog.snapshot.commits import DamagedError
from txlog.snapshot.load import explain, load_snapshot, warn_of_damage
from txlog.snapshot.process import keep_freed_memory
from txlog.snapshot.snapshot import Snapshot
from txlog.store.base import Store, naming

Part = TypeVar("Part")
Result = TypeVar("Result")
Select = Callable[[pa.Table], pa.Table]

ANYWHERE = Source("", 0)
"""The place of files whose row group is unknown, because the checkpoint was not read directly."""

_LARGE_BYTES: Threshold = 4 << 20
_SHARES_IN_TURN: Threshold = 32  # Of so many shares the results are in memory at a time.
_NO_HASHES = np.zeros(0, np.uint64)
# The columns that identify files and that the protocol checks need.
_ALWAYS = ("is_add", "path", "deletion_vector", "dv_id", "tags")


def load_files(
    store: Store, snapshot: Snapshot, *, explains: bool = True, checks: bool = True
) -> FileState:
    """Return the live files and tombstones of a snapshot.

    An unreadable checkpoint is skipped with a `TxlogWarning` if other files replace it. With
    `explains`, an error names the newest version that can be read.

    Parameters
    ----------
    checks
        The protocol must allow the live files. Without this check the files may be removed, but
        not read.

    Raises
    ------
    LogCorruptError
        A checkpoint or sidecar is unreadable, or commits contradict themselves.
    """

    def read(current: Snapshot) -> FileState:
        base = read_files(store, current.checkpoint, current.sidecars, current.footers)
        found = overlay(base, current.tail.rows)
        if checks:
            require_sound(current, found.live)
        return found

    with resource_errors():
        return _from_sound_files(store, snapshot, read, explains=explains)


def load_columns(store: Store, snapshot: Snapshot, columns: Collection[str]) -> FileState:
    """Return the live files and tombstones of a snapshot with some columns of `FILE_ROWS` alone.

    They need a small part of the memory of all columns, above all without the statistics. Errors
    are those of `load_files`.
    """
    names = [name for name in FILE_ROWS.names if name in {*columns, "path", "dv_id", "is_add"}]

    def joined(states: Iterator[_Found], _: Snapshot) -> FileState:
        found = [state for _, state in states]
        return FileState(
            pa.concat_tables([one.live.select(names) for one in found]),
            pa.concat_tables([one.tombstones.select(names) for one in found]),
        )

    wanted = replace(_live_columns(Wanted(tuple(names))), removes=True)
    with resource_errors():
        return _fold(store, snapshot, wanted, joined)


def has_large_checkpoint(snapshot: Snapshot) -> bool:
    """Return whether a snapshot's checkpoint is so large that it is read by columns."""
    return checkpoint_bytes(snapshot) >= _LARGE_BYTES


def checkpoint_bytes(snapshot: Snapshot) -> int:
    """Return the size of a snapshot's checkpoint with its sidecars, in bytes."""
    parts = sum(part.size for part in snapshot.checkpoint)
    return parts + sum(sidecar.size_in_bytes for sidecar in snapshot.sidecars)


def about_files(store: Store, snapshot: Snapshot) -> int:
    """Return about how many file actions a snapshot has, from the sizes of its files and a footer.

    A damaged checkpoint counts by its size.
    """
    sources = sources_of(snapshot.checkpoint, snapshot.sidecars)
    return about_rows(store, sources, snapshot.footers) + snapshot.tail.num_actions


def fold_files(
    store: Store,
    snapshot: Snapshot,
    wanted: Wanted,
    fold: Callable[[Iterator[tuple[Source | None, pa.Table]]], Result],
    sources: Sequence[Source] | None = None,
    *,
    distinct: bool = True,
    select: Select | None = None,
    checks: bool = True,
) -> Result:
    """Fold the live files batch by batch, so that only one batch is in memory.

    Parameters
    ----------
    wanted
        The columns that the fold needs; batches may have more.
    fold
        Gets each live file once, in unordered batches of `FILE_ROWS` columns. Each batch comes with
        its row group of the checkpoint, `ANYWHERE`, or None for the commits after the checkpoint.
        If a checkpoint proves to be damaged, the fold starts again.
    sources
        Only these row groups of the checkpoint; if they include `ANYWHERE`, all row groups.
    distinct
        Whether to remove duplicate files of a checkpoint, which some writers write. This compares
        all paths, which takes time: a fold that keeps few files can check only those, and raise
        `TwiceError`.
    select
        Chooses the files for `fold` by their own columns. For files that it excludes, later commits
        are not checked, which saves time.
    checks
        As for `load_files`.

    Raises
    ------
    LogCorruptError
        As `load_files`.
    """

    def folded(states: Iterator[_Found], current: Snapshot) -> Result:
        if current.checkpoint == snapshot.checkpoint:
            return fold((source, state.live) for source, state in states)
        # Row groups of another checkpoint have no meaning for the next call.
        return fold((source and ANYWHERE, state.live) for source, state in states)

    chosen = None if ANYWHERE in (sources or ()) else sources
    return _fold(store, snapshot, _live_columns(wanted), folded, chosen, distinct, select, checks)


def fold_parts(
    store: Store,
    snapshot: Snapshot,
    wanted: Wanted,
    fold: Callable[[Iterator[tuple[Source | None, pa.Table]]], Part],
    join: Callable[[list[Part]], Result],
    sources: Sequence[Source] | None = None,
    *,
    engine: Engine | None,
    distinct: bool = True,
    select: Select | None = None,
) -> Result:
    """Fold the live files part by part, in workers of an engine, and join the results.

    Each worker reads its share of the checkpoint, which is a file or some row groups of one, and
    applies the newer commits to it. Only the results of `fold` come back. Every share is in the
    result: if a worker fails, the call fails, or begins again with other files of the log.

    Parameters
    ----------
    fold
        As for `fold_files`, for a part of the files. Workers get it, so it pickles.
    join
        Gets the results of all parts. That of the commits after the checkpoint is the first.
    engine
        None: all files are one part, and are folded in this process.

    Raises
    ------
    LogCorruptError
        As `load_files`.
    EngineError
        The engine lost its workers.
    """
    if engine is None:
        whole = partial(_joined, fold, join)
        return fold_files(store, snapshot, wanted, whole, sources, distinct=distinct, select=select)
    chosen = None if ANYWHERE in (sources or ()) else sources
    of_live = partial(_of_live, fold)
    apart = _Apart(store, snapshot, _live_columns(wanted), of_live, engine, distinct, select)
    return apart.folded(lambda parts: join(list(parts)), chosen)


def fold_in_turn(
    store: Store,
    snapshot: Snapshot,
    wanted: Wanted,
    part: Callable[[Iterator[tuple[Source | None, pa.Table]]], Part],
    fold: Callable[[Iterator[Part]], Result],
    *,
    engine: Engine,
    distinct: bool = True,
) -> Result:
    """Fold the results of all parts of the live files here, of which few are in memory at a time.

    Parameters
    ----------
    part
        What a worker does with its share of the files, as `fold` of `fold_parts`.
    fold
        Gets the results in an order that is the same each time: that of the checkpoint, then that
        of the commits after it. It may be called again, for other files of the log.

    Errors are those of `fold_parts`.
    """

    def in_order(parts: Iterator[Part]) -> Iterator[Part]:
        of_commits = next(parts)
        yield from parts
        yield of_commits

    of_live = partial(_of_live, part)
    apart = _Apart(store, snapshot, _live_columns(wanted), of_live, engine, distinct, None)
    return apart.folded(lambda parts: fold(in_order(parts)), None, at_once=_SHARES_IN_TURN)


def _of_live(
    fold: Callable[[Iterator[tuple[Source | None, pa.Table]]], Part], states: Iterator[_Found]
) -> Part:
    return fold((source, state.live) for source, state in states)


@dataclass(frozen=True)
class _Apart(Generic[Part]):
    """The parts of the files of a version, each folded by a worker of an engine."""

    store: Store
    snapshot: Snapshot
    wanted: Wanted
    fold: Callable[[Iterator[_Found]], Part]
    engine: Engine
    distinct: bool
    select: Select | None

    def folded(
        self,
        join: Callable[[Iterator[Part]], Result],
        chosen: Sequence[Source] | None,
        at_once: int | None = None,
    ) -> Result:
        """Return what `join` makes of the results; that of the commits is the first.

        Workers have at most so many shares `at_once`.
        """

        def read(current: Snapshot) -> Result:
            return join(self._parts(current, chosen, at_once))

        with suppress(TwiceError):
            # To find the newest version that can be read would need all files in this process.
            return _from_sound_files(self.store, self.snapshot, read, explains=False, again=True)
        found = _selected(load_files(self.store, self.snapshot), self.select)
        return join(iter([self.fold(iter([(ANYWHERE, found)]))]))

    def _parts(
        self, current: Snapshot, chosen: Sequence[Source] | None, at_once: int | None
    ) -> Iterator[Part]:
        """Yield the results of all parts; the end raises `TwiceError` if files may be twice."""
        same = current.checkpoint == self.snapshot.checkpoint
        tail = newest(current.tail.rows)
        found = state_of(tail)
        require_sound(current, found.live)
        yield self.fold(iter([(None, _selected(found, self.select))]))
        if not current.checkpoint:
            return
        task = _FoldShare(
            store=self.store,
            snapshot=current.without_files(),
            newer=newer_of(tail),
            wanted=self.wanted,
            fold=self.fold,
            anywhere=not same,
            distinct=self.distinct,
            select=self.select,
        )
        shares = _shares(self.store, current, chosen if same else None)
        step = at_once or max(1, len(shares))
        hashes: list[Hashes] = []
        for start in range(0, len(shares), step):
            for part, seen in self.engine.map(task, shares[start : start + step]):
                if seen is not None:
                    hashes.append(seen)
                yield part
        if not are_all_distinct(hashes):
            raise TwiceError


def _joined(
    fold: Callable[[Iterator[tuple[Source | None, pa.Table]]], Part],
    join: Callable[[list[Part]], Result],
    batches: Iterator[tuple[Source | None, pa.Table]],
) -> Result:
    return join([fold(batches)])


def _shares(store: Store, snapshot: Snapshot, chosen: Sequence[Source] | None) -> list[Source]:
    """Return the shares of a checkpoint for workers; of `chosen` row groups, if they are given."""
    if chosen is None:
        chosen = sources_of(snapshot.checkpoint, snapshot.sidecars)
    else:
        groups: dict[str, list[Source]] = {}
        for one in chosen:
            groups.setdefault(one.path, []).append(one)
        chosen = [_united(of_file) for of_file in groups.values()]
    return shares_of(store, chosen, snapshot.footers)


def _united(sources: Sequence[Source]) -> Source:
    """Return row groups of one file as one source."""
    numbers = [group for one in sources for group in one.row_groups or ()]
    rows = sum(one.rows for one in sources)
    return replace(sources[0], rows=rows, row_groups=tuple(sorted(numbers)) or None)


@dataclass(frozen=True, kw_only=True)
class _FoldShare(Generic[Part]):
    """Fold the files of a share of a checkpoint: the work of one worker."""

    store: Store
    snapshot: Snapshot
    newer: Newer
    wanted: Wanted
    fold: Callable[[Iterator[_Found]], Part]
    anywhere: bool  # Whether row groups have no meaning for the caller.
    distinct: bool
    select: Select | None

    def __call__(self, share: Source) -> tuple[Part, Hashes | None]:
        """Return the result of the fold, and the hashes of all files if they must be distinct."""
        seen: list[Hashes] = []

        def states() -> Iterator[_Found]:
            version = self.snapshot.checkpoint[0].version
            for source, batch in file_batches(self.store, [share], version, self.wanted):
                if self.distinct:
                    seen.append(key_hashes(batch))
                left = _left(self.snapshot, batch, self.newer, self.select)
                yield (ANYWHERE if self.anywhere else source), left

        part = self.fold(states())
        return part, np.concatenate([_NO_HASHES, *seen]) if self.distinct else None


def live_among(
    store: Store, snapshot: Snapshot, actions: pa.Table, columns: Sequence[str]
) -> pa.Table:
    """Return the live files that some actions name, as `FILE_ROWS` with at least these columns.

    Of a checkpoint only these columns and the files' keys are read.

    Parameters
    ----------
    actions
        `FILE_ROWS` of commits. Only the columns `path` and `dv_id` are used.
    """
    keys = pc.unique(flat(file_keys(actions)))

    def named(files: pa.Table) -> pa.Table:
        return files.filter(pc.is_in(flat(file_keys(files)), value_set=keys))

    def joined(batches: Iterator[tuple[Source | None, pa.Table]]) -> pa.Table:
        names = ["path", "dv_id", *columns]
        empty = empty_rows().select(names)
        chosen = [batch.select(names) for _, batch in batches if batch.num_rows]
        return pa.concat_tables([empty, *chosen], promote_options="permissive")

    return fold_files(store, snapshot, Wanted(tuple(columns)), joined, select=named)


def rows_at(
    store: Store,
    snapshot: Snapshot,
    paths: Iterable[str],
    sources: Sequence[Source] | None = None,
    engine: Engine | None = None,
) -> pa.Table:
    """Return the live `FILE_ROWS` of some logged paths; a path that is not live has none.

    All columns of them are read, but of other files only a batch at a time is in memory. `sources`
    are those of `fold_files`, and `engine` and errors those of `fold_parts`.
    """
    wanted = pc.unique(arrow_array(list(paths), pa.string()))
    if not len(wanted):
        return empty_rows()
    return fold_parts(
        store,
        snapshot,
        Wanted(),
        rows_of,
        joined_once,
        sources,
        engine=engine,
        distinct=False,
        select=partial(_at_paths, wanted),
    )


def chosen_rows(
    store: Store, snapshot: Snapshot, wanted: Wanted, select: Select, engine: Engine | None = None
) -> pa.Table:
    """Return the live `FILE_ROWS` that `select` chooses by the wanted columns.

    Only the row groups that have one of them are read completely. With an engine, its workers
    choose, so `select` pickles. Errors are those of `fold_parts`.
    """
    found = fold_parts(
        store, snapshot, wanted, _paths_of, _chained, engine=engine, distinct=False, select=select
    )
    paths = [path for _, some in found for path in some.to_pylist()]
    sources = [source for source, _ in found if source is not None]
    rows = rows_at(store, snapshot, paths, sources, engine)
    if rows.num_rows < len(paths):  # The checkpoint was replaced, and has other row groups now.
        return rows_at(store, snapshot, paths, engine=engine)
    return rows


def _paths_of(
    batches: Iterator[tuple[Source | None, pa.Table]],
) -> list[tuple[Source | None, pa.ChunkedArray]]:
    """Return the paths of the files in each batch that has some. Pure."""
    return [(source, rows["path"]) for source, rows in batches if rows.num_rows]


def _chained(parts: list[list[Part]]) -> list[Part]:
    return [one for part in parts for one in part]


def _at_paths(paths: pa.Array, files: pa.Table) -> pa.Table:
    return files.filter(pc.is_in(files["path"], value_set=paths))


def rows_of(batches: Iterator[tuple[Source | None, pa.Table]]) -> pa.Table | None:
    """Return the rows of batches as one table, or None without batches: a fold. Pure."""
    tables = [batch for _, batch in batches]
    return united(tables) if tables else None


def joined(parts: list[pa.Table | None]) -> pa.Table:
    """Return the files of all parts as one table. Pure."""
    return united([part for part in parts if part is not None])


def joined_once(parts: list[pa.Table | None]) -> pa.Table:
    """Return the files of all parts as one table.

    Raises
    ------
    TwiceError
        A file may occur twice.
    """
    found = joined(parts)
    if not are_different(file_keys(found)):
        raise TwiceError
    return found


def path_hashes(store: Store, snapshot: Snapshot) -> Hashes:
    """Return a hash of the path of each live file of a version, ascending; errors as above.

    Also of files that commits after the checkpoint name: if an older checkpoint stands in for a
    damaged one, these commits are others than those of `snapshot`.
    """

    def hashed(batches: Iterator[tuple[Source | None, pa.Table]]) -> Hashes:
        found = [text_hashes(flat(canonical_keys(rows["path"]))) for _, rows in batches]
        return np.sort(np.concatenate([_NO_HASHES, *found]))

    return fold_files(store, snapshot, Wanted(("path",)), hashed, distinct=False)


def has_any_path(store: Store, snapshot: Snapshot, keys: pa.Array) -> bool:
    """Return whether a live file of a version has one of some canonical paths; errors as above."""

    def named(files: pa.Table) -> pa.Table:
        return files.filter(pc.is_in(flat(canonical_keys(files["path"])), value_set=keys))

    def any_of(batches: Iterator[tuple[Source | None, pa.Table]]) -> bool:
        return any(rows.num_rows for _, rows in batches)

    wanted = Wanted(("path",))
    return fold_files(store, snapshot, wanted, any_of, distinct=False, select=named)


def _live_columns(wanted: Wanted) -> Wanted:
    """Return the wanted columns of live files, and those that identify files."""
    return Wanted(
        (*_ALWAYS, *(name for name in wanted.columns if name not in _ALWAYS)),
        removes=False,
        bounds_of=wanted.bounds_of,
        encoded=wanted.encoded,
    )


def fold_states(
    store: Store,
    snapshot: Snapshot,
    fold: Callable[[Iterator[FileState]], Result],
    columns: Collection[str] | None = None,
) -> Result:
    """Fold live files and tombstones batch by batch, as `fold_files` does.

    Without `columns` it gets all columns, which may be more than those of `FILE_ROWS`; with them,
    at least these and those that identify files.
    """

    def folded(states: Iterator[_Found], _: Snapshot) -> Result:
        return fold(state for _, state in states)

    wanted = Wanted() if columns is None else _of_states(columns)
    return _fold(store, snapshot, wanted, folded)


def fold_states_in_turn(
    store: Store,
    snapshot: Snapshot,
    columns: Collection[str],
    part: Callable[[Iterator[FileState]], Part],
    fold: Callable[[Iterator[Part]], Result],
    *,
    engine: Engine | None,
) -> Result:
    """Fold what `part` makes of live files and tombstones, part by part.

    Parameters
    ----------
    part
        Gets the states of a batch with some columns; of a share of the checkpoint, if a worker of
        the engine reads it. Then it pickles.
    fold
        Gets the results in any order, few of which are in memory at a time. It may be called again,
        for other files of the log.
    engine
        None: this process reads the log batch by batch.

    Errors are those of `fold_parts`.
    """
    if engine is None:

        def folded(states: Iterator[FileState]) -> Result:
            return fold(part(iter([state])) for state in states)

        return fold_states(store, snapshot, folded, columns)
    of_states = partial(_without_sources, part)
    apart = _Apart(store, snapshot, _of_states(columns), of_states, engine, True, None)
    return apart.folded(fold, None, at_once=_SHARES_IN_TURN)


def _without_sources(part: Callable[[Iterator[FileState]], Part], states: Iterator[_Found]) -> Part:
    return part(state for _, state in states)


def _of_states(columns: Collection[str]) -> Wanted:
    names = [name for name in FILE_ROWS.names if name in {*columns, "path", "dv_id", "is_add"}]
    return replace(_live_columns(Wanted(tuple(names))), removes=True)


_Found = tuple[Source | None, FileState]


def _fold(
    store: Store,
    snapshot: Snapshot,
    wanted: Wanted,
    fold: Callable[[Iterator[_Found], Snapshot], Result],
    sources: Sequence[Source] | None = None,
    distinct: bool = True,
    select: Select | None = None,
    checks: bool = True,
) -> Result:
    if has_large_checkpoint(snapshot):
        keep_freed_memory()

    def read(current: Snapshot) -> Result:
        of_this = sources if current.checkpoint == snapshot.checkpoint else None
        with closing(_states(store, current, wanted, of_this, distinct, select, checks)) as states:
            return fold(states, current)

    with suppress(TwiceError):  # Equal hashes: only a comparison of all paths shows duplicates.
        return _from_sound_files(store, snapshot, read)
    found = _selected(load_files(store, snapshot, checks=checks), select)
    return fold(iter([(ANYWHERE, found)]), snapshot)


class TwiceError(Exception):
    """Two files of a checkpoint may be the same."""


def _states(
    store: Store,
    snapshot: Snapshot,
    wanted: Wanted,
    sources: Sequence[Source] | None,
    distinct: bool,
    select: Select | None,
    checks: bool,
) -> Generator[_Found, None, None]:
    """Yield files in parts. The first part has those of the commits after the checkpoint."""
    tail = newest(snapshot.tail.rows)
    found = state_of(tail)
    if checks:
        require_sound(snapshot, found.live)
    yield None, _selected(found, select)
    if not snapshot.checkpoint:
        return
    newer = newer_of(tail)
    seen: list[Hashes] = []
    whole = sources_of(snapshot.checkpoint, snapshot.sidecars)
    version = snapshot.checkpoint[0].version
    chosen = whole if sources is None else sources

    batches = file_batches(store, chosen, version, wanted, footers=snapshot.footers)
    # If all columns are wanted, Arrow itself decodes in several threads.
    if wanted != Wanted() and has_large_checkpoint(snapshot):
        batches = prefetch(batches)
    with closing(batches):
        for source, batch in batches:
            if distinct:
                seen.append(key_hashes(batch))
            yield source, _left(snapshot, batch, newer, select, checks)
    if not are_all_distinct(seen):
        raise TwiceError


def _left(
    snapshot: Snapshot, batch: pa.Table, newer: Newer, select: Select | None, checks: bool = True
) -> FileState:
    if select is not None:
        with suppress(LogCorruptError):  # The damaged row may be of a file that a commit replaced.
            if checks:
                require_sound(snapshot, batch)
            return left_of(select(batch), newer)
    found = left_of(batch, newer)
    if checks:
        require_sound(snapshot, found.live)
    return _selected(found, select)


def _selected(found: FileState, select: Select | None) -> FileState:
    return found if select is None else replace(found, live=select(found.live))


def _from_sound_files(
    store: Store,
    snapshot: Snapshot,
    read: Callable[[Snapshot], Result],
    *,
    explains: bool = True,
    again: bool = False,
) -> Result:
    """Call `read` with a snapshot; if a checkpoint is damaged, use other files of the log.

    With `again`, it is first read once more: another writer may have replaced it meanwhile.
    """
    with naming(store):
        try:
            return _read_sound(store, snapshot, read, again=again)
        except LogCorruptError as error:
            if explains and snapshot.catalog is None:
                explain(store, error, partial(load_files, store, explains=False))
            raise


def _read_sound(
    store: Store, snapshot: Snapshot, read: Callable[[Snapshot], Result], *, again: bool
) -> Result:
    names: list[str] = []
    skipped: list[DamagedError] = []
    current, again = snapshot, again or bool(snapshot.footers)
    while True:
        try:
            found = read(current)
        except LogCorruptError as error:
            if not current.checkpoint or _is_of_commit(error):  # No other checkpoint would help.
                raise
            if again:  # A classic checkpoint may have been rewritten since it was opened.
                current, again = replace(current, footers=Footers()), False
                continue
            damage = DamagedError(current.checkpoint, error)
            names.extend(damage.names)
            older = current.checkpoint
            try:
                current = load_snapshot(
                    store, version=snapshot.version, unusable=names, catalog=snapshot.catalog
                )
            except (LogCorruptError, NotFoundError):
                raise error from None
            if not _was_expired(older, current.checkpoint, error):
                skipped.append(damage)
        else:
            for damage in skipped:
                warn_of_damage(damage)
            return found


def _is_of_commit(error: LogCorruptError) -> bool:
    file = parse_name((error.path or "").rpartition("/")[2])
    return file is not None and file.kind == "commit"


def _was_expired(
    older: Sequence[LogFile], newer: Sequence[LogFile], error: LogCorruptError
) -> bool:
    """Return whether a checkpoint was deleted because a newer one replaces it."""
    gone = isinstance(error.__cause__, NotFoundError)
    return gone and bool(newer) and newer[0].version > older[0].version


def require_sound(snapshot: Snapshot, live: pa.Table) -> None:
    """Raise if live `FILE_ROWS` violate the snapshot's protocol; errors as for `load_files`.

    Partition values are checked only if their column exists.
    """
    require_fragments_feature(live, snapshot.supports(FEATURE), path=snapshot.root)
    if "partition_values" in live.column_names:
        _require_partition_values(snapshot, live)


def _require_partition_values(snapshot: Snapshot, live: pa.Table) -> None:
    if snapshot.partition_columns and live["partition_values"].null_count:
        at = live.filter(live["partition_values"].is_null())
        raise LogCorruptError(
            path=at["path"][0].as_py(),
            version=snapshot.version,
            field="partitionValues",
            reason="a file of a partitioned table has no partition values",
            remedy="The writer of this log made an error: restore a version without the file",
        )
