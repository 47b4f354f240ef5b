"""Deleting rows: by deletion vectors, or by rewriting files where a table forbids them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import pyarrow as pa
from pyroaring import BitMap64

from txlog.actions.file import Add, Remove
from txlog.commit.intent import Intent, Reads
from txlog.commit.loop import run
from txlog.errors import InternalError
from txlog.expressions.sql import as_expression, to_sql
from txlog.expressions.tree import Expression
from txlog.fragments.fragment import Fragment
from txlog.scan.deletions import load_deletions
from txlog.scan.engine import map_all
from txlog.scan.lazy_plan import ScanPlan, plan_scan
from txlog.scan.listing import as_fragments, files_at
from txlog.scan.plan import ReadPlan, require_table_columns
from txlog.scan.reader import FragmentReader
from txlog.snapshot.commits import Commit, file_rows
from txlog.snapshot.files import load_files
from txlog.snapshot.snapshot import Snapshot
from txlog.store.base import Store
from txlog.writing.files import discard_files, discarding
from txlog.writing.operation import (
    AppTransaction,
    Done,
    Place,
    done,
    is_recorded,
    require_table_writable,
    require_transaction,
    txn_action,
)
from txlog.writing.options import WriteOptions
from txlog.writing.rewrite import RewritePlan, RewrittenPart, plan_rewrite, rewrite
from txlog.writing.vectors import (
    Hit,
    adds_of,
    deletion_path,
    find_hits,
    only_deleted,
    removes_of,
    with_vector,
    write_deletions,
)

FindRows = Callable[[Snapshot], Mapping[int, BitMap64]]
"""Returns rows of a version: positions by fragment id."""


@dataclass(frozen=True)
class RowsGone:
    """The actions that take the rows of a predicate out of a table, and what they cost."""

    where: Expression | None  # Bound.
    removes: tuple[Remove, ...] = ()
    adds: tuple[Add, ...] = ()
    written: tuple[Add, ...] = ()  # Those of `adds` that are new files.
    vector_files: tuple[str, ...] = ()  # Paths of new files of deletion vectors.
    rows: int = 0
    files_removed: int = 0
    hits: tuple[Hit, ...] = ()  # Those that vectors were added for.


def delete(
    place: Place,
    snapshot: Snapshot,
    where: str | Expression | None,
    *,
    txn: AppTransaction | None = None,
    options: WriteOptions | None = None,
) -> Done:
    """Delete the rows of which a predicate is true (None: all rows), in one commit.

    Raises
    ------
    InvalidInputError
        The predicate does not fit the table.
    UnsupportedFeatureError
        The table may not be written by txlog, or is append-only.
    """
    options = options or WriteOptions()
    predicate = as_expression(where)

    def take(base: Snapshot) -> RowsGone:
        return take_rows(place, base, predicate, options)

    job = _Job(take, by_predicate=predicate is not None)
    return _delete(place, snapshot, job, txn=txn, options=options)


def delete_found(
    place: Place,
    snapshot: Snapshot,
    find: FindRows,
    *,
    description: str,
    txn: AppTransaction | None = None,
    options: WriteOptions | None = None,
) -> Done:
    """Delete the rows that another engine finds, in one commit.

    Parameters
    ----------
    find
        Gets a version of the table, and returns the rows of it that go: positions by fragment id.
        It is asked again whenever another writer's commit may have changed the answer.
    description
        What the rows have in common, to note in the commit.

    Raises
    ------
    InternalError
        A row is not in the version.
    UnsupportedFeatureError
        The table may not be written by txlog, or is append-only.
    """
    options = options or WriteOptions()

    def take(base: Snapshot) -> RowsGone:
        return _take_positions(place, base, find(base), options)

    job = _Job(take, description, rebases=False)
    return _delete(place, snapshot, job, txn=txn, options=options)


@dataclass(frozen=True)
class _Job:
    """What one kind of delete does differently."""

    take: Callable[[Snapshot], RowsGone]
    description: str | None = None  # Where no predicate of ours says which rows.
    by_predicate: bool = False  # Rows go for their own values alone, whatever others there are.
    rebases: bool = True  # Rule CON-18: not where rows must be found again.


def _delete(
    place: Place,
    snapshot: Snapshot,
    job: _Job,
    *,
    txn: AppTransaction | None,
    options: WriteOptions,
) -> Done:
    require_transaction(txn)
    require_table_writable(snapshot, removes_rows=True)
    skipped = False
    gone: RowsGone | None = None

    def build(base: Snapshot) -> Intent | None:
        nonlocal skipped, gone
        require_table_writable(base, removes_rows=True)
        discard_gone(place, gone)
        gone = None
        skipped = is_recorded(base, txn)
        if skipped:
            return None
        gone = job.take(base)
        if not gone.removes and txn is None:
            return None
        text = job.description if gone.where is None else to_sql(gone.where)
        return Intent(
            operation="DELETE",
            kind="delete",
            read_version=base.version,
            removes=gone.removes,
            adds=gone.adds,
            txn=txn_action(txn, place.effects),
            reads=Reads(everything=not job.by_predicate, where=gone.where),
            row_deletes=frozenset(hit.fragment.path for hit in gone.hits),
            parameters={"predicate": [] if text is None else [text]},
            metrics={
                "numDeletedRows": gone.rows,
                "numRemovedFiles": gone.files_removed,
                "numAddedFiles": len(gone.written),
                "numDeletionVectorsAdded": len(gone.hits),
            },
            user_metadata=options.user_metadata,
        )

    def rebase(current: Snapshot, intent: Intent, winners: list[Commit]) -> Intent | None:
        nonlocal gone
        if gone is None or not job.rebases:
            return None
        united = united_with(place, current, gone, winners)
        if united is None:
            return None
        place.store.delete(list(gone.vector_files))
        gone = united
        return replace(intent, removes=gone.removes, adds=gone.adds)

    with discarding(lambda: discard_gone(place, gone)):
        after, committed = run(place.store, snapshot, build, effects=place.effects, rebase=rebase)
    return done("DELETE", after, committed, skipped=skipped)


def discard_gone(place: Place, gone: RowsGone | None) -> None:
    """Delete what was written for an attempt that was not committed."""
    if gone is not None:
        discard_files(place.store, gone.written)
        place.store.delete(list(gone.vector_files))


def take_rows(
    place: Place, snapshot: Snapshot, where: Expression | None, options: WriteOptions
) -> RowsGone:
    """Find a predicate's rows, and write the vectors or files that leave them out."""
    files = load_files(place.store, snapshot).live
    plan = plan_scan(snapshot, files, columns=[], where=where)
    require_table_columns(plan.where, snapshot)
    whole, hits = find_hits(place.store, plan, place.engine)
    return _gone(place, snapshot, plan, files, whole, hits, options)


def _take_positions(
    place: Place, snapshot: Snapshot, rows: Mapping[int, BitMap64], options: WriteOptions
) -> RowsGone:
    """Write the vectors or files that leave out rows, given by fragment id and position."""
    files = load_files(place.store, snapshot).live
    plan = plan_scan(snapshot, files, columns=[])
    fragments = {fragment.id: fragment for fragment in plan.fragments}
    parts = [(fragments.get(number), going) for number, going in rows.items() if going]
    hits = list(place.engine.map(partial(_hit_at, place.store, plan.reading), parts))
    return _gone(place, snapshot, plan, files, [], hits, options)


def _hit_at(store: Store, plan: ReadPlan, part: tuple[Fragment | None, BitMap64]) -> Hit:
    fragment, going = part
    gone = BitMap64()
    rows = 0
    if fragment is not None:
        gone = load_deletions(store, fragment) or gone
        rows = fragment.physical_rows or FragmentReader(store, plan, fragment).count_rows()
    if fragment is None or going.max() >= rows or going & gone:
        raise InternalError(
            reason="rows were found that the version does not have"
            + ("" if fragment is None else f", in {fragment.path}"),
            remedy="Nothing was committed; please report it with the table's log",
        )
    return Hit(fragment, going, gone, rows)


def _gone(
    place: Place,
    snapshot: Snapshot,
    plan: ScanPlan,
    files: pa.Table,
    whole: Sequence[Fragment],
    hits: Sequence[Hit],
    options: WriteOptions,
) -> RowsGone:
    """Write the vectors or files that leave out the rows of hits, and of whole fragments."""
    now_ms = place.effects.now_ms()
    emptied = [hit for hit in hits if hit.is_whole]
    partial_hits = [hit for hit in hits if not hit.is_whole]
    gone_files = [*whole, *(hit.fragment for hit in emptied)]
    marks = snapshot.is_active("deletionVectors")
    leaving = [file.path for fragment in gone_files for file in fragment.files]
    for hit in partial_hits:  # Their other files have nothing to do with deletion vectors.
        leaving.extend(file.path for file in hit.fragment.files[: 1 if marks else None])
    touched = files_at(files, leaving)
    removes = removes_of(touched, now_ms)
    rows = sum(fragment.num_rows or 0 for fragment in whole)
    unknown = [fragment for fragment in whole if fragment.num_rows is None]
    rows += sum(place.engine.map(partial(_rows_left, place.store, plan.reading), unknown))
    rows += sum(len(hit.going) for hit in hits)
    if not partial_hits:
        return RowsGone(plan.where, tuple(removes), rows=rows, files_removed=len(gone_files))
    if marks:
        adds, stored = _marked(place, snapshot, partial_hits, touched)
        return RowsGone(
            plan.where,
            tuple(removes),
            adds,
            vector_files=stored,
            rows=rows,
            files_removed=len(gone_files),
            hits=tuple(partial_hits),
        )
    rewritten = _rewritten(place, plan_rewrite(snapshot, options), partial_hits)
    return RowsGone(
        plan.where,
        tuple(removes),
        rewritten,
        written=rewritten,
        rows=rows,
        files_removed=len(gone_files) + len(partial_hits),
    )


def _marked(
    place: Place, snapshot: Snapshot, hits: Sequence[Hit], rows: pa.Table
) -> tuple[tuple[Add, ...], tuple[str, ...]]:
    """Write the vectors of hits; return the files' adds with them, and the new vector files.

    `rows` are the live `FILE_ROWS` of the hits, others among them perhaps.
    """
    vectors = write_deletions(place, snapshot, hits)
    paths = {path for vector in vectors if (path := deletion_path(vector)) is not None}
    held = {add.path: add for add in adds_of(rows)}
    adds = tuple(
        with_vector(held[hit.fragment.path], vector, hit.physical_rows)
        for hit, vector in zip(hits, vectors, strict=True)
    )
    return adds, tuple(paths)


def united_with(
    place: Place, current: Snapshot, gone: RowsGone, winners: Sequence[Commit]
) -> RowsGone | None:
    """Return a delete on top of winners that deleted other rows of its files too (rule CON-10).

    None if they deleted some of its rows, emptied a file together with it, or brought rows back:
    then only the operation, run again, can tell what is left to do.
    """
    if not all(only_deleted(place.store, file_rows([winner])) for winner in winners):
        return None
    live = load_files(place.store, current).live
    paths = [hit.fragment.path for hit in gone.hits]
    rows = files_at(live, paths)
    now = {fragment.path: fragment for fragment in as_fragments(rows)}
    hits = []
    for hit, path in zip(gone.hits, paths, strict=True):
        if path not in now:
            return None
        deleted = load_deletions(place.store, now[path]) or BitMap64()
        fragment = replace(now[path], id=hit.fragment.id)
        united = replace(hit, fragment=fragment, gone=deleted)
        if hit.going & deleted or united.is_whole:
            return None
        hits.append(united)
    ours = removes_of(rows, place.effects.now_ms())
    others = [remove for remove in gone.removes if remove.path not in now]
    adds, stored = _marked(place, current, hits, rows)
    return replace(gone, removes=(*others, *ours), adds=adds, vector_files=stored, hits=tuple(hits))


def _rewritten(place: Place, plan: RewritePlan, hits: Sequence[Hit]) -> tuple[Add, ...]:
    """Write the rows that are left of hits into new files; if one fails, none is left."""
    parts = [(hit.fragment, hit.going | hit.gone) for hit in hits]
    made = map_all(
        place.engine,
        partial(rewrite, place, plan),
        neighbours(parts, plan.layout.target_file_bytes),
        undo=lambda found: discard_files(place.store, [add for adds in found for add in adds]),
    )
    return tuple(add for adds in made for add in adds)


def neighbours(parts: Sequence[RewrittenPart], target_bytes: int) -> list[list[RewrittenPart]]:
    """Return parts of rewrites in groups, of one partition each, that fill about one file. Pure."""
    groups: dict[frozenset[tuple[str, str | None]], list[list[RewrittenPart]]] = {}
    sizes: dict[frozenset[tuple[str, str | None]], int] = {}
    for part in parts:
        key = frozenset(part[0].partition_values.items())
        size = sum(file.size for file in part[0].files)
        held = groups.setdefault(key, [[]])
        if held[-1] and sizes[key] + size > target_bytes:
            held.append([])
            sizes[key] = 0
        held[-1].append(part)
        sizes[key] = sizes.get(key, 0) + size
    return [group for found in groups.values() for group in found]


def _rows_left(store: Store, plan: ReadPlan, fragment: Fragment) -> int:
    """Return how many rows a fragment has of which the log does not say it."""
    return FragmentReader(store, plan, fragment).count_rows() - fragment.num_deletions
