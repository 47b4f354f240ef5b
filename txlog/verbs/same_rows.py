"""Whether the rows that a write replaces are those of the version that its new rows are from."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from typing import Any

import pyarrow as pa

from txlog.base.arrow import pc
from txlog.base.errors import CommitConflictError, NotFoundError, TxlogError
from txlog.checkpoint.file_rows import Wanted
from txlog.expressions.tree import Expression
from txlog.fragments.rows import FEATURE
from txlog.reconcile.files import file_keys
from txlog.scan.lazy_plan import possible_columns, possible_rows
from txlog.snapshot.commits import DamagedError, read_deltas
from txlog.snapshot.live_files import fold_files
from txlog.snapshot.load import list_commits
from txlog.snapshot.snapshot import Snapshot
from txlog.snapshot.time_travel import snapshot_at
from txlog.store.base import Store


@dataclass(frozen=True)
class Replaced:
    """The choice of the files, of a version's live ones, in which a write replaces rows.

    Parameters
    ----------
    columns
        Returns the columns of `FILE_ROWS` that `choose` needs.
    choose
        Chooses among some of the live files.
    """

    columns: Callable[[Snapshot], Wanted]
    choose: Callable[[Snapshot, pa.Table], pa.Table]

    def keys(self, store: Store, snapshot: Snapshot) -> pa.ChunkedArray:
        """Return the keys of these files; of a large table, only keys are kept."""

        def keys(batches: Iterator[tuple[Any, pa.Table]]) -> pa.ChunkedArray:
            return _joined(file_keys(self.choose(snapshot, rows)) for _, rows in batches)

        return fold_files(store, snapshot, self.columns(snapshot), keys, distinct=False)


def require_same_rows(store: Store, base: Snapshot, computed_from: int, replaced: Replaced) -> None:
    """Raise if a version has other rows to replace than the one that new rows are from.

    Raises
    ------
    CommitConflictError
        The rows of another writer would be lost.
    """
    if has_other_rows(store, base, computed_from, replaced):
        raise CommitConflictError(
            version=base.version,
            rule="CON-30",
            path=base.root,
            reason="the rows that are replaced have changed after this write had read version "
            f"{computed_from} of the table for its own rows: another writer changed the rows, or "
            "an earlier write of the same rows wrote their files again",
            remedy="Nothing was committed. Read the table again before each write: run the "
            "statement again. If the new rows do not depend on that change, pass another "
            "`computed_from`",
        )


def has_other_rows(store: Store, base: Snapshot, computed_from: int, replaced: Replaced) -> bool:
    """Return whether the rows that a write replaces may have changed since an earlier version.

    Files may be others nevertheless: commits that only move rows (`dataChange=false`) change none.
    What new rows were computed from is a whole version, so the places of rows in it do not matter.
    """
    if computed_from == base.version:
        return False
    try:
        before = snapshot_at(store, computed_from)
    except NotFoundError:  # It is another table now, or the log of that version is gone.
        return True
    known, now = replaced.keys(store, before), replaced.keys(store, base)
    if _are_in(now, known) and _are_in(known, now):  # A checkpoint may have one twice.
        return False
    return not _are_moved(store, base, computed_from, replaced, known)


def _are_moved(
    store: Store, base: Snapshot, since: int, replaced: Replaced, known: pa.ChunkedArray
) -> bool:
    """Return whether all commits after a version certainly left the replaced rows as they were.

    `known` are the keys of the files of that version in which rows are replaced.
    """
    if base.supports(FEATURE):  # Files of new columns give rows values, and announce no change.
        return False
    files = list_commits(store, base, since=since + 1)
    if len(files) != base.version - since:  # Some are gone, or the version is a later one.
        return False
    try:
        rows = read_deltas(store, files).files
    except DamagedError:
        return False
    added = file_keys(replaced.choose(base, rows.filter(rows["is_add"])))
    changed = file_keys(rows.filter(rows["data_change"]))
    return not pc.any(pc.is_in(changed, value_set=_joined([known, added])), min_count=0).as_py()


def _joined(parts: Iterable[pa.ChunkedArray]) -> pa.ChunkedArray:
    return pa.chunked_array(list(chain.from_iterable(one.chunks for one in parts)), pa.string())


def _are_in(keys: pa.ChunkedArray, others: pa.ChunkedArray) -> bool:
    return bool(pc.all(pc.is_in(keys, value_set=others), min_count=0).as_py())


def _paths(_: Snapshot) -> Wanted:
    return Wanted(("path",))


EVERY_FILE = Replaced(_paths, lambda _, rows: rows)
"""All live files."""


def possible_files(where: Expression) -> Replaced:
    """Return the choice of the files that may have rows for which a predicate is true."""

    def columns(snapshot: Snapshot) -> Wanted:
        with suppress(TxlogError):  # As below.
            return possible_columns(snapshot, where)
        return _paths(snapshot)

    def chosen(snapshot: Snapshot, rows: pa.Table) -> pa.Table:
        if snapshot.supports(FEATURE):  # Files of columns change the rows of other files.
            return rows
        try:
            return possible_rows(snapshot, where, rows)
        except TxlogError:  # This version has other columns.
            return rows

    return Replaced(columns, chosen)
