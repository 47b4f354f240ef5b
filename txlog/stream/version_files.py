"""The files of a version that a stream reads, and their order. Pure.

Rules: spec/streaming.md, STR-6 to STR-9.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from txlog.base.arrow import arrow_array, numpy_array, pc
from txlog.base.columns import flat, in_places
from txlog.base.errors import InvalidInputError, UnsupportedFeatureError
from txlog.fragments.fragment import Fragment, fragments_of
from txlog.fragments.ids import tag_texts, tagged_ids
from txlog.fragments.rows import FIELDS_TAG, FragmentRows, fragment_rows, single_files
from txlog.log.paths import canonical_keys
from txlog.reconcile.files import FileState, file_keys, reconcile_files
from txlog.stats.files import physical_rows


@dataclass(frozen=True)
class ChangePolicy:
    """How a stream of appended rows handles commits that delete or change rows."""

    ignore_deletes: bool = False  # Commits that only remove whole files have no units.
    ignore_changes: bool = False  # The files that commits add are read, for all commits.
    skip_change_commits: bool = False  # Commits that remove anything have no units.


@dataclass(frozen=True)
class FileUnits:
    """The fragments of a version that a stream reads, in the stream's order."""

    rows: FragmentRows

    @property
    def sizes(self) -> pa.Array:
        """int64: the bytes of the files of each fragment."""
        own = flat(self.rows.primaries["size"])
        columns = self.rows.columns
        if not columns.rows.num_rows:
            return own
        sums = np.zeros(len(own), np.int64)  # `group_by` would load pandas.
        np.add.at(sums, numpy_array(columns.owners), numpy_array(flat(columns.rows["size"])))
        return pc.add(own, arrow_array(sums))

    def between(self, first: int, stop: int | None) -> FragmentRows:
        """Return the units from one index up to another."""
        if not self.rows.columns.rows.num_rows:  # No copy: there may be a million of them.
            length = None if stop is None else max(0, stop - first)
            primaries = self.rows.primaries.slice(first, length)
            return single_files(primaries, self.rows.ids.slice(first, length))
        places = pa.arange(0, self.rows.primaries.num_rows)
        chosen = pc.greater_equal(places, first)
        if stop is not None:
            chosen = pc.and_(chosen, pc.less(places, stop))
        return self.rows.filter(chosen)


def as_fragments(rows: FragmentRows) -> list[Fragment]:
    """Return units as values. Only this creates an object for each."""
    return fragments_of(rows, physical_rows(rows))


def snapshot_units(parts: list[pa.Table], *, listed: bool) -> FileUnits:
    """Return the units of a version's live files: by time of writing, then by path (STR-6).

    Errors as for `fragment_rows`.

    Parameters
    ----------
    parts
        `FILE_ROWS` in tables of one schema. The list is emptied, so that few files are held twice.
    """
    named = pa.concat_tables(
        [part.select(["path", "dv_id", "modification_time"]) for part in parts]
    )
    order = pa.table(
        {
            "at": pc.fill_null(flat(named["modification_time"]), 0),
            "key": flat(file_keys(named)),
        }
    )
    by = pc.sort_indices(order, sort_keys=[("at", "ascending"), ("key", "ascending")])
    places = np.empty(len(by), np.int64)
    places[numpy_array(by)] = np.arange(len(by))
    del named, order, by
    return FileUnits(fragment_rows(in_places(parts, places), listed=listed))


def commit_units(
    actions: pa.Table,
    policy: ChangePolicy,
    *,
    listed: bool,
    version: int,
    root: str,
    live: Callable[[], pa.Table],
) -> FileUnits:
    """Return the units of a commit: its adds with `dataChange`, in its order.

    If it adds files of fragments that it does not add as a whole, the fragments come with all
    their files, in the order of their ids (STR-7).

    Parameters
    ----------
    actions
        The commit's `FILE_ROWS`.
    listed
        Whether the protocol lists the feature `txlog.fragments`.
    live
        Returns all files of the version.

    Raises
    ------
    UnsupportedFeatureError
        The commit deletes or changes rows, and the policy does not allow this (STR-7).
    LogCorruptError
        The commit contradicts itself.
    """
    state = reconcile_files(actions)
    adds = _changing(state.live)
    changes = _change_of(state, adds)
    if listed and policy.ignore_changes and not _are_whole(state, adds):
        return FileUnits(fragment_rows(_all_files(adds, live()), listed=listed))
    if changes is None or policy.ignore_changes:
        return FileUnits(fragment_rows(adds, listed=listed))
    if policy.skip_change_commits or (policy.ignore_deletes and changes == "deletes"):
        return FileUnits(fragment_rows(adds.slice(0, 0), listed=listed))
    remedies = ["skipChangeCommits=true to skip such versions"]
    if changes == "deletes":
        remedies.append("ignoreDeletes=true to ignore removed files")
    remedies.append("ignoreChanges=true to read the rewritten files again")
    raise UnsupportedFeatureError(
        path=root,
        features=("streaming",),
        reason=f"version {version} {changes} rows, and a stream of appended rows cannot represent "
        "this",
        remedy=f"Set {', or '.join(remedies)}; or read the changes: readChangeFeed=true "
        "with a new checkpoint",
    )


def _changing(rows: pa.Table) -> pa.Table:
    """Return the actions that change the table's rows; the other actions only move rows."""
    return rows.filter(rows["data_change"])


def _change_of(state: FileState, adds: pa.Table) -> str | None:
    """Return the effect of a commit besides appending: none, `deletes` or `changes`."""
    if not _changing(state.tombstones).num_rows:
        return None if _have_primaries(adds) else "changes"
    return "changes" if adds.num_rows else "deletes"


def _have_primaries(adds: pa.Table) -> bool:
    """Return whether the commit adds the rows of all its column files."""
    is_column = tag_texts(adds, FIELDS_TAG).is_valid()
    if not pc.any(is_column).as_py():
        return True
    ids = tagged_ids(adds)
    own = pc.is_in(ids, value_set=ids.filter(pc.invert(is_column)).drop_null())
    return bool(pc.all(pc.or_(pc.invert(is_column), own)).as_py())


def _are_whole(state: FileState, adds: pa.Table) -> bool:
    """Return whether the fragments that a commit adds have no files that it does not add.

    A file with another deletion vector is the primary of an older fragment.
    """
    keys = canonical_keys(adds["path"])
    again = pc.is_in(keys, value_set=flat(canonical_keys(state.tombstones["path"])))
    return _have_primaries(adds) and not pc.any(again).as_py()


def _all_files(adds: pa.Table, live: pa.Table) -> pa.Table:
    """Return all files of the fragments of which a commit adds files, by their ids."""
    ids = tagged_ids(live)
    wanted = tagged_ids(adds).drop_null()
    rows = live.append_column("fragment", ids).filter(pc.is_in(ids, value_set=wanted))
    return rows.sort_by("fragment").drop_columns("fragment")


def require_one_policy(policy: ChangePolicy) -> None:
    """Refuse options that contradict each other.

    Raises
    ------
    InvalidInputError
        A commit cannot be both skipped and read.
    """
    if policy.skip_change_commits and policy.ignore_changes:
        raise InvalidInputError(
            argument="skipChangeCommits",
            reason="skipChangeCommits skips the commits that ignoreChanges reads",
            remedy="Set one of them",
        )
