"""Whether the rows that a write replaces are those of the version that its new rows are from."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import pyarrow as pa

from txlog.base.arrow import pc
from txlog.base.columns import flat
from txlog.base.errors import CommitConflictError, NotFoundError, TxlogError
from txlog.expressions.tree import Expression
from txlog.fragments.rows import FEATURE
from txlog.reconcile.files import file_keys
from txlog.scan.plan import plan_live
from txlog.scan.read_plan import read_plan
from txlog.snapshot.live_files import load_files
from txlog.snapshot.snapshot import Snapshot
from txlog.snapshot.time_travel import snapshot_at
from txlog.store.base import Store

Replaced: TypeAlias = Callable[[Snapshot, pa.Table], pa.Table]
"""Chooses, of a version's live `FILE_ROWS`, those that a write replaces."""


def require_same_rows(store: Store, base: Snapshot, computed_from: int, replaced: Replaced) -> None:
    """Raise if a version has other files to replace than the one that new rows are from.

    Files of the same rows count as others if another writer has arranged them anew.

    Raises
    ------
    CommitConflictError
        The rows of another writer would be lost.
    """
    if has_other_files(store, base, computed_from, replaced):
        raise CommitConflictError(
            version=base.version,
            rule="CON-30",
            path=base.root,
            reason="another writer changed the rows that are replaced, after this write had read "
            f"version {computed_from} of the table for its own rows",
            remedy="Nothing was committed. Read the table again, and write then: run the "
            "statement again",
        )


def has_other_files(store: Store, base: Snapshot, computed_from: int, replaced: Replaced) -> bool:
    """Return whether two versions differ in the files that a write replaces."""
    if computed_from == base.version:
        return False
    try:
        before = snapshot_at(store, computed_from)
    except NotFoundError:  # It is another table now, or the log of that version is gone.
        return True
    known = replaced(before, load_files(store, before).live)
    rows = replaced(base, load_files(store, base).live)
    if known.num_rows != rows.num_rows:
        return True
    found = pc.is_in(flat(file_keys(rows)), value_set=flat(file_keys(known)))
    return not pc.all(found).as_py()


def every_file(_: Snapshot, rows: pa.Table) -> pa.Table:
    """Return all live files."""
    return rows


def possible_files(where: Expression) -> Replaced:
    """Return the choice of the files that may have rows for which a predicate is true."""

    def chosen(snapshot: Snapshot, rows: pa.Table) -> pa.Table:
        if snapshot.supports(FEATURE):  # Files of columns change the rows of other files.
            return rows
        try:
            planned = plan_live(snapshot, read_plan(snapshot, where=where), rows)
        except TxlogError:  # This version has other columns.
            return rows
        return planned.rows.primaries

    return chosen
