"""Deleting rows: by deletion vectors, or by rewriting files where a table forbids them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from txlog.actions import Add, Remove
from txlog.commit import Intent, Reads, run
from txlog.expressions import Expression, as_expression, to_sql
from txlog.fragments import Fragment, alive_mask, logged_path
from txlog.scan import FragmentReader, ScanPlan, plan_scan
from txlog.scan.read import BATCH_ROWS
from txlog.snapshot import Snapshot, load_files
from txlog.writing.files import FileLayout, discard_files, discarding, write_data_files
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
from txlog.writing.vectors import (
    Hit,
    adds_of,
    find_hits,
    removes_of,
    with_vector,
    write_vectors,
)


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
    vectors_added: int = 0


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
        gone = take_rows(place, base, predicate, options)
        if not gone.removes and txn is None:
            return None
        return Intent(
            operation="DELETE",
            read_version=base.version,
            removes=gone.removes,
            adds=gone.adds,
            txn=txn_action(txn, place.effects),
            reads=Reads(everything=predicate is None, where=gone.where),
            parameters={"predicate": [] if gone.where is None else [to_sql(gone.where)]},
            metrics={
                "numDeletedRows": gone.rows,
                "numRemovedFiles": gone.files_removed,
                "numAddedFiles": len(gone.written),
                "numDeletionVectorsAdded": gone.vectors_added,
            },
            user_metadata=options.user_metadata,
        )

    with discarding(lambda: discard_gone(place, gone)):
        after, committed = run(place.store, snapshot, build, effects=place.effects)
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
    whole, hits = find_hits(place.store, plan, place.engine)
    now_ms = place.effects.now_ms()
    emptied = [hit for hit in hits if hit.is_whole]
    partial_hits = [hit for hit in hits if not hit.is_whole]
    gone_files = [*whole, *(hit.fragment for hit in emptied)]
    touched = [*gone_files, *(hit.fragment for hit in partial_hits)]
    removes = removes_of(_rows_of(files, touched), now_ms)
    rows = sum(_rows_left(place, plan, fragment) for fragment in whole)
    rows += sum(len(hit.going) for hit in hits)
    if not partial_hits:
        return RowsGone(plan.where, tuple(removes), rows=rows, files_removed=len(gone_files))
    if snapshot.is_active("deletionVectors"):
        vectors = write_vectors(place.store, partial_hits, place.effects)
        held = {add.path: add for add in adds_of(_rows_of(files, touched))}
        adds = tuple(
            with_vector(held[hit.fragment.files[0].path], vector, hit.physical_rows)
            for hit, vector in zip(partial_hits, vectors, strict=True)
        )
        stored = {logged_path(v, path="") for v in vectors if v.storage_type == "u"}
        return RowsGone(
            plan.where,
            tuple(removes),
            adds,
            vector_files=tuple(stored),
            rows=rows,
            files_removed=len(gone_files),
            vectors_added=len(vectors),
        )
    rewritten = tuple(_rewrite(place, snapshot, plan, partial_hits, options))
    return RowsGone(
        plan.where,
        tuple(removes),
        rewritten,
        written=rewritten,
        rows=rows,
        files_removed=len(gone_files) + len(partial_hits),
    )


def _rows_of(files: pa.Table, fragments: Sequence[Fragment]) -> pa.Table:
    """Return the `FILE_ROWS` of fragments; a path is live once, whatever its vector."""
    paths = pa.array([fragment.files[0].path for fragment in fragments], pa.string())
    return files.filter(pc.is_in(files["path"], value_set=paths))


def _rows_left(place: Place, plan: ScanPlan, fragment: Fragment) -> int:
    if fragment.num_rows is not None:
        return fragment.num_rows
    reader = FragmentReader(place.store, plan, fragment)
    return reader.count_rows() - fragment.num_deletions


def _rewrite(
    place: Place,
    snapshot: Snapshot,
    plan: ScanPlan,
    hits: Sequence[Hit],
    options: WriteOptions,
) -> list[Add]:
    """Write the rows that stay into new files, of the same partitions."""
    layout = FileLayout(
        snapshot.schema,
        tuple(snapshot.partition_columns),
        snapshot.properties,
        options.target_file_bytes,
        options.max_rows_per_file,
    )
    batches = (batch for hit in hits for batch in _rows_that_stay(place, snapshot, plan, hit))
    return write_data_files(place.store, batches, layout, effects=place.effects)


def _rows_that_stay(
    place: Place, snapshot: Snapshot, plan: ScanPlan, hit: Hit
) -> Iterator[pa.RecordBatch]:
    gone = hit.going | hit.gone
    reader = FragmentReader(place.store, plan, hit.fragment)
    for start, batch in reader.batches(
        snapshot.schema.fields, prune=False, batch_rows=BATCH_ROWS, threads=True
    ):
        alive = alive_mask(gone, start, batch.num_rows)
        yield batch if alive is None else batch.filter(alive)
