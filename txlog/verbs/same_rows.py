"""Whether the rows that a write replaces are those of the version that its new rows are from."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Any

import pyarrow as pa

from txlog.base.arrow import pc
from txlog.base.errors import CommitConflictError, NotFoundError, TxlogError
from txlog.base.threads import Engine
from txlog.checkpoint.file_rows import Wanted
from txlog.expressions.tree import Expression
from txlog.fragments.rows import FEATURE
from txlog.reconcile.files import file_keys
from txlog.scan.lazy_plan import possible_columns, possible_rows
from txlog.snapshot.commits import DamagedError, read_deltas
from txlog.snapshot.live_files import Select, fold_parts
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
        Returns the columns of `FILE_ROWS` by which the files are chosen.
    choice
        Returns the choice among some of the live files. It pickles.
    """

    columns: Callable[[Snapshot], Wanted]
    choice: Callable[[Snapshot], Select]

    def keys(
        self, store: Store, snapshot: Snapshot, engine: Engine | None = None
    ) -> pa.ChunkedArray:
        """Return the keys of these files; of a large table, only keys are kept."""
        return fold_parts(
            store,
            snapshot,
            self.columns(snapshot),
            _keys_of,
            _joined,
            engine=engine,
            distinct=False,
            select=self.choice(snapshot),
        )


def _keys_of(batches: Iterator[tuple[Any, pa.Table]]) -> pa.ChunkedArray:
    return _joined([file_keys(rows) for _, rows in batches])


def require_same_rows(
    store: Store, base: Snapshot, computed_from: int, replaced: Replaced, engine: Engine | None
) -> None:
    """Raise if a version has other rows to replace than the one that new rows are from.

    With an engine, its workers read the files of both versions.

    Raises
    ------
    CommitConflictError
        The rows of another writer would be lost.
    """
    if has_other_rows(store, base, computed_from, replaced, engine):
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


def has_other_rows(
    store: Store,
    base: Snapshot,
    computed_from: int,
    replaced: Replaced,
    engine: Engine | None = None,
) -> bool:
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
    known, now = (replaced.keys(store, one, engine) for one in (before, base))
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
    added = file_keys(replaced.choice(base)(rows.filter(rows["is_add"])))
    changed = file_keys(rows.filter(rows["data_change"]))
    return not pc.any(pc.is_in(changed, value_set=_joined([known, added])), min_count=0).as_py()


def _joined(parts: Sequence[pa.ChunkedArray]) -> pa.ChunkedArray:
    return pa.chunked_array(list(chain.from_iterable(one.chunks for one in parts)), pa.string())


def _are_in(keys: pa.ChunkedArray, others: pa.ChunkedArray) -> bool:
    return bool(pc.all(pc.is_in(keys, value_set=others), min_count=0).as_py())


def _paths(_: Snapshot) -> Wanted:
    return Wanted(("path",))


def _all(_: Snapshot) -> Select:
    return _itself


def _itself(rows: pa.Table) -> pa.Table:
    return rows


EVERY_FILE = Replaced(_paths, _all)
"""All live files."""


def possible_files(where: Expression) -> Replaced:
    """Return the choice of the files that may have rows for which a predicate is true."""
    return Replaced(partial(_columns_of, where), partial(_possible, where))


def _columns_of(where: Expression, snapshot: Snapshot) -> Wanted:
    with suppress(TxlogError):  # As below.
        return possible_columns(snapshot, where)
    return _paths(snapshot)


def _possible(where: Expression, snapshot: Snapshot) -> Select:
    if snapshot.supports(FEATURE):  # Files of columns change the rows of other files.
        return _itself
    return partial(_possible_among, snapshot.without_files(), where)


def _possible_among(snapshot: Snapshot, where: Expression, rows: pa.Table) -> pa.Table:
    try:
        return possible_rows(snapshot, where, rows)
    except TxlogError:  # This version has other columns.
        return rows
