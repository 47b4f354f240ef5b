"""Apply a merge to the rows of one fragment."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyroaring import BitMap64

from txlog.base.arrow import arrow_array, numpy_array, pc
from txlog.base.errors import InvalidInputError
from txlog.base.thresholds import Threshold
from txlog.data_files.replace_rows import Places
from txlog.data_files.row_changes import FileDeletes
from txlog.expressions.evaluate import evaluate, is_true
from txlog.expressions.sql import to_sql
from txlog.fragments.deletion_vector import alive_mask, as_bitmap
from txlog.fragments.fragment import Fragment
from txlog.scan.data_file import BATCH_ROWS
from txlog.scan.read import FragmentReader
from txlog.scan.read_plan import ReadPlan
from txlog.schema.types import StructField
from txlog.store.base import Store
from txlog.verbs.merge.clauses import BoundClause, decide
from txlog.verbs.merge.condition import Condition, Sides, by_own_names
from txlog.verbs.merge.keys import SourceKeys, named
from txlog.verbs.merge.source import MergeSource

Indices = NDArray[np.int64]

_KEYS_NAMED = 5  # The number of keys that an error names.


@dataclass(frozen=True)
class MatchPlan:
    """How rows of fragments are matched. It pickles."""

    read: ReadPlan
    columns: tuple[StructField, ...]  # The columns of the target that are read.
    prune: bool
    sides: Sides
    source: MergeSource
    keys: SourceKeys
    condition: Condition
    clauses: tuple[BoundClause, ...]
    refused: NDArray[np.bool_] | None = None  # The source rows that match, but change nothing.

    def has(self, kind: str) -> bool:
        """Return whether there is a clause of a kind."""
        return any(clause.kind == kind for clause in self.clauses)


# The greatest number of matches that are kept with repetitions, if the source is smaller.
_MOST_MATCHES: Threshold = 1 << 20


@dataclass(frozen=True)
class Updated:
    """The rows of a fragment that get new values, ascending by position."""

    positions: Indices
    clauses: NDArray[np.int8]  # The number of the clause for each row.
    source_rows: Indices  # -1: none.


@dataclass(frozen=True)
class FragmentMatch:
    """The changes of a merge to one fragment."""

    deletes: FileDeletes  # The rows that are deleted or changed.
    updated: Updated
    matched: Indices  # The source rows that match a row of the fragment.


@dataclass(frozen=True)
class _Hits:
    """Rows of a batch to which a clause applies."""

    rows: Indices
    clauses: NDArray[np.int8]
    source_rows: Indices


def match_fragment(store: Store, plan: MatchPlan, fragment: Fragment) -> FragmentMatch:
    """Return the changes of a merge to a fragment; only needed columns are read.

    Raises
    ------
    InvalidInputError
        Several rows of the source would change one row.
    """
    reader = FragmentReader(store, plan.read, fragment)
    deleted = reader.deletions()
    matched: list[Indices] = []
    waiting = 0  # The length of `matched` since it was last reduced to distinct rows.
    hits: list[_Hits] = []
    for positions, batch in _live_rows(reader, plan, deleted):
        reader.require_texts(batch)
        rows = named(batch, plan.sides.target_alias)
        ours, theirs = _pairs(plan, rows)
        matched.append(theirs)
        waiting += len(theirs)
        if waiting > max(plan.source.num_rows, _MOST_MATCHES):
            matched, waiting = [_distinct(matched)], 0
        found = (_matched(plan, rows, ours, theirs), _by_source(plan, rows, ours))
        hits.extend(
            _Hits(positions[one.rows], one.clauses, one.source_rows)
            for one in found
            if len(one.rows)
        )
    return _together(plan, fragment, reader, deleted, hits, matched)


def _live_rows(
    reader: FragmentReader, plan: MatchPlan, deleted: BitMap64 | None
) -> Iterator[tuple[Indices, pa.RecordBatch]]:
    """Yield the rows of a fragment that may match and are not deleted, with their positions."""
    possible = reader.possible(deleted) if plan.prune else None
    if possible is not None:
        yield from reader.at(plan.columns, possible, BATCH_ROWS)
        return
    for start, batch in reader.batches(
        plan.columns, prune=plan.prune, batch_rows=BATCH_ROWS, threads=False
    ):
        alive = alive_mask(deleted, start, batch.num_rows)
        positions = np.arange(start, start + batch.num_rows, dtype=np.int64)
        if alive is not None:
            batch, positions = batch.filter(alive), positions[numpy_array(alive)]
        yield positions, batch


def _together(
    plan: MatchPlan,
    fragment: Fragment,
    reader: FragmentReader,
    deleted: BitMap64 | None,
    hits: Sequence[_Hits],
    matched: Sequence[Indices],
) -> FragmentMatch:
    positions = np.concatenate([np.zeros(0, np.int64), *(one.rows for one in hits)])
    clauses = np.concatenate([np.zeros(0, np.int8), *(one.clauses for one in hits)])
    source_rows = np.concatenate([np.zeros(0, np.int64), *(one.source_rows for one in hits)])
    order = np.argsort(positions, kind="stable")
    updates = np.array([clause.action == "update" for clause in plan.clauses], np.bool_)
    kept = order[updates[clauses[order]]] if len(order) else order
    physical_rows = 0
    if len(positions):
        physical_rows = fragment.physical_rows or reader.count_rows()
    return FragmentMatch(
        FileDeletes(fragment, bitmap_of(positions), deleted or BitMap64(), physical_rows),
        Updated(positions[kept], clauses[kept], source_rows[kept]),
        _distinct(matched),
    )


def _distinct(rows: Sequence[Indices]) -> Indices:
    return np.unique(np.concatenate([np.zeros(0, np.int64), *rows]))


def bitmap_of(positions: Indices) -> BitMap64:
    """Return positions as a bitmap."""
    return as_bitmap(arrow_array(np.sort(positions).astype(np.uint64)))


def _pairs(plan: MatchPlan, rows: pa.RecordBatch) -> tuple[Indices, Indices]:
    """Return the pairs of target and source rows for which the condition is true."""
    parts = [(np.zeros(0, np.int64), np.zeros(0, np.int64))]
    for ours, theirs in plan.keys.pairs(rows):
        if plan.condition.rest is not None and len(ours):
            reads = {path for side in plan.condition.reads(plan.sides) for path in side}
            both = pair_rows(plan.sides, plan.source, rows, ours, theirs, reads)
            true = numpy_array(is_true(plan.condition.rest, both))
            ours, theirs = ours[true], theirs[true]
        parts.append((ours, theirs))
    return np.concatenate([part[0] for part in parts]), np.concatenate([part[1] for part in parts])


def pair_rows(
    sides: Sides,
    source: MergeSource,
    rows: pa.RecordBatch,
    ours: Indices,
    theirs: Indices,
    reads: Any,
) -> pa.RecordBatch:
    """Return pairs of rows, with the columns of the flat schema that are read.

    `rows` are target rows, by flat names. A source row below 0 means no row.
    """
    target = [name for name in rows.schema.names if name in reads]
    wanted = [sides.name(name) for name in sides.of_source.names() if name in reads]
    places = arrow_array(ours)
    arrays = [rows.column(name).take(places) for name in target]
    if wanted:
        taken = named(source.take(theirs, wanted), sides.source_alias)
        arrays += taken.columns
        target += taken.schema.names
    # Without a column, a batch would have no rows.
    return pa.RecordBatch.from_arrays([*arrays, places], names=[*target, ""])


def _matched(plan: MatchPlan, rows: pa.RecordBatch, ours: Indices, theirs: Indices) -> _Hits:
    if not len(ours) or not plan.has("matched"):
        return _Hits(ours[:0], np.zeros(0, np.int8), theirs[:0])
    both = pair_rows(plan.sides, plan.source, rows, ours, theirs, _conditions(plan, "matched"))
    actions = decide(plan.clauses, "matched", both)
    applies = actions >= 0
    if plan.refused is not None:
        applies &= ~plan.refused[theirs]
    ours, theirs, actions = ours[applies], theirs[applies], actions[applies]
    order = np.argsort(ours, kind="stable")
    ours, theirs, actions = ours[order], theirs[order], actions[order]
    fails = np.array([clause.action == "fail" for clause in plan.clauses])[actions]
    if fails.any():
        found = np.unique(ours[fails])
        which = [_key_of(plan, rows, place) for place in found[:_KEYS_NAMED].tolist()]
        raise must_not_match(which, more=len(found) > _KEYS_NAMED)
    first = np.ones(len(ours), np.bool_)
    first[1:] = ours[1:] != ours[:-1]
    if not first.all():
        _require_deletes(plan, rows, ours, actions, first)
    return _Hits(ours[first], actions[first], theirs[first])


def _conditions(plan: MatchPlan, kind: str) -> set[str]:
    """Return the columns that the conditions of clauses of a kind read."""
    return {
        name
        for clause in plan.clauses
        if clause.kind == kind and clause.condition is not None
        for name in clause.reads
    }


def _require_deletes(
    plan: MatchPlan, rows: pa.RecordBatch, ours: Indices, actions: Any, first: Any
) -> None:
    """Raise if several source rows would change one row; deleting it twice is allowed."""
    changes = np.array([clause.action != "delete" for clause in plan.clauses])[actions]
    again = np.unique(ours[~first])
    changed = np.intersect1d(again, ours[changes])
    if not len(changed):
        return
    raise several_match(_key_of(plan, rows, int(changed[0])))


def _key_of(plan: MatchPlan, rows: pa.RecordBatch, place: int) -> str:
    """Return the key of a target row as text, or the condition if it compares no keys."""
    row = rows.slice(place, 1)
    keys = [
        f"{to_sql(by_own_names(key.target, plan.sides))} = {evaluate(key.target, row)[0].as_py()!r}"
        for key in plan.condition.keys
    ]
    return ", ".join(keys) or to_sql(plan.condition.whole)


def must_not_match(which: Sequence[str], *, more: bool) -> InvalidInputError:
    """Return the error for rows of the target that no row of the source may match.

    `more` tells whether there are rows that `which` does not name.
    """
    return InvalidInputError(
        argument="source",
        reason="rows of the source match rows of the table: "
        f"{'; '.join(which)}{', …' if more else ''}",
        remedy="Nothing was committed; leave out the rows whose key is in the table",
    )


def several_match(which: str) -> InvalidInputError:
    """Return the error for a row of the target that several rows of the source would change."""
    return InvalidInputError(
        argument="source",
        reason="several rows of the source match one row of the target, and would change it: "
        + which,
        remedy="Nothing was committed; keep one row of the source for each key, or give the "
        "clauses predicates of which only one is true",
    )


def _by_source(plan: MatchPlan, rows: pa.RecordBatch, ours: Indices) -> _Hits:
    """Return the changes of rows that no source row matches."""
    unmatched = np.ones(rows.num_rows, np.bool_)
    unmatched[ours] = False
    places = np.flatnonzero(unmatched)
    if not len(places) or not plan.has("not_matched_by_source"):
        return _Hits(places[:0], np.zeros(0, np.int8), places[:0])
    reads = _conditions(plan, "not_matched_by_source")
    nothing = np.full(len(places), -1, np.int64)
    chosen = pair_rows(plan.sides, plan.source, rows, places, nothing, reads)
    actions = decide(plan.clauses, "not_matched_by_source", chosen)
    applies = actions >= 0
    return _Hits(places[applies], actions[applies], nothing[applies])


def merged_rows(
    plan: MatchPlan,
    updates: dict[int, Updated],
    places: Sequence[Places],
    rows: pa.RecordBatch,
) -> pa.RecordBatch:
    """Return the new rows of fragments: a `NewRows`."""
    found = []
    for fragment, positions in places:
        updated = updates[fragment.id]
        at = np.searchsorted(updated.positions, numpy_array(positions).astype(np.int64))
        found.append((updated.clauses[at], updated.source_rows[at]))
    actions, theirs = (np.concatenate(parts) for parts in zip(*found, strict=True))
    target = named(rows, plan.sides.target_alias)
    parts: list[pa.RecordBatch] = []
    order: list[Indices] = []
    for place in np.unique(actions).tolist():
        clause = plan.clauses[place]
        assert clause.values is not None
        chosen = np.flatnonzero(actions == place)
        both = pair_rows(
            plan.sides, plan.source, target, chosen, theirs[chosen], clause.values.reads
        )
        kept = rows if len(chosen) == rows.num_rows else rows.take(arrow_array(chosen))
        parts.append(clause.values.of(kept, both))
        order.append(chosen)
    if len(parts) == 1:
        return parts[0]
    back = pc.sort_indices(arrow_array(np.concatenate(order)))
    given = frozenset(parts[0].schema.names).intersection(*(part.schema.names for part in parts))
    shared = [name for name in parts[0].schema.names if name in given]
    alike = [part.select(shared) for part in parts]  # A generated column may be given by one.
    both_parts = pa.Table.from_batches(alike).take(back).combine_chunks()
    return both_parts.to_batches()[0]
