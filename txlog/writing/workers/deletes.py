"""Committing deletions that workers made of fragments (rule FRG-25)."""

from __future__ import annotations

from dataclasses import replace

from pyroaring import BitMap64

from txlog.commit.intent import Intent
from txlog.errors import CommitConflictError, InvalidInputError, UnsupportedFeatureError
from txlog.fragments.metadata import FragmentMetadata
from txlog.fragments.rows import FEATURE
from txlog.scan.deletions import load_deletions
from txlog.scan.listing import live_fragments
from txlog.snapshot.commits import Commit
from txlog.snapshot.files import load_files
from txlog.snapshot.snapshot import Snapshot
from txlog.writing.delete import RowsGone, united_with
from txlog.writing.operation import (
    AppTransaction,
    Done,
    Place,
    done,
    require_table_writable,
    txn_action,
)
from txlog.writing.options import WriteOptions
from txlog.writing.vectors import Hit, adds_of, removes_of, with_vector
from txlog.writing.workers.base import Base, base_of, put, read_by
from txlog.writing.workers.fragments import deletions_of
from txlog.writing.workers.operations import Operation


def commit_deletes(
    place: Place,
    snapshot: Snapshot,
    operation: Operation.Delete,
    txn: AppTransaction | None,
    options: WriteOptions,
) -> Done:
    """Commit deletions that workers made; errors as for `commit_fragments`."""
    require_table_writable(snapshot, removes_rows=True)
    base = base_of(place, snapshot, operation.updated_fragments, operation.read_version)
    gone = _rows_gone(place, base, operation)
    if not gone.removes and txn is None:
        return done("DELETE", base.snapshot, None, skipped=False)
    is_union = False

    def rebase(current: Snapshot, intent: Intent, winners: list[Commit]) -> Intent | None:
        nonlocal gone, is_union
        united = united_with(place, current, gone, winners)
        if united is None:
            _raise_shared_rows(place, current, gone)
            return None
        if is_union:  # Nobody else knows the vectors of an earlier union.
            place.store.delete(list(gone.vector_files))
        gone, is_union = united, True
        return replace(intent, removes=gone.removes, adds=gone.adds)

    intent = Intent(
        operation="DELETE",
        kind="delete",
        read_version=base.snapshot.version,
        removes=gone.removes,
        adds=gone.adds,
        txn=txn_action(txn, place.effects),
        row_deletes=frozenset(hit.fragment.path for hit in gone.hits),
        read_columns=read_by(operation.updated_fragments),
        parameters={"predicate": [operation.predicate] if operation.predicate else []},
        metrics={
            "numDeletedRows": gone.rows,
            "numRemovedFiles": gone.files_removed,
            "numDeletionVectorsAdded": len(gone.hits),
        },
        user_metadata=options.user_metadata,
    )
    return put(place, base, intent, txn, rebase)


def _rows_gone(place: Place, base: Base, operation: Operation.Delete) -> RowsGone:
    hits = []
    vectors = {}
    for held in operation.updated_fragments:
        fragment = base.changed(held)
        _require_form(held, base.snapshot)
        before = load_deletions(place.store, fragment) or BitMap64()
        after = deletions_of(place, held, fragment)
        if before - after:
            raise InvalidInputError(
                argument="fragments",
                field=fragment.path,
                reason="rows that were deleted are not deleted in it any more",
                remedy="A delete only takes rows; restore the table instead",
            )
        if not after - before:
            continue
        hit = Hit(fragment, after - before, before, held.physical_rows or 0)
        if hit.is_whole:
            raise InvalidInputError(
                argument="fragments",
                field=fragment.path,
                reason="none of its rows is left",
                remedy="Name its id in deleted_fragment_ids",
            )
        hits.append(hit)
        vectors[fragment.path] = held.adds[0].deletion_vector
    whole = []
    for number in operation.deleted_fragment_ids:
        if number not in base.fragments:
            raise InvalidInputError(
                argument="deleted_fragment_ids",
                reason=f"version {base.snapshot.version} has no fragment {number!r}",
            )
        if not base.fragments[number].is_durable:
            raise InvalidInputError(
                argument="deleted_fragment_ids",
                reason=f"the id {number} is provisional: it means other rows in another version",
                remedy="Delete by a predicate, or give all fragments ids by adding txlog.fragments",
            )
        whole.append(base.fragments[number])
    if {fragment.id for fragment in whole} & {hit.fragment.id for hit in hits}:
        raise InvalidInputError(
            argument="deleted_fragment_ids", reason="a fragment is both updated and deleted"
        )
    primaries = [replace(hit.fragment, files=hit.fragment.files[:1]) for hit in hits]
    removes = removes_of(base.rows([*whole, *primaries]), place.effects.now_ms())
    rows = {hit.fragment.path: hit.physical_rows for hit in hits}
    adds = [
        with_vector(add, vector, rows[add.path])
        for add in adds_of(base.rows(primaries))
        if (vector := vectors[add.path]) is not None
    ]
    return RowsGone(
        None,
        tuple(removes),
        tuple(adds),
        rows=sum(len(hit.going) for hit in hits) + sum(f.num_rows or 0 for f in whole),
        files_removed=len(whole),
        hits=tuple(hits),
    )


def _require_form(held: FragmentMetadata, base: Snapshot) -> None:
    """Refuse a deletion file of a form that the table does not have."""
    found = held.deletion_file
    lance = found is not None and found.descriptor.storage_type == "lance"
    feature = FEATURE if lance else "deletionVectors"
    if found is not None and not base.supports(feature):
        raise UnsupportedFeatureError(
            path=base.root,
            features=(feature,),
            reason="the table cannot have deletion files of this form",
            remedy="Delete with fragments of this table",
        )


def _raise_shared_rows(place: Place, current: Snapshot, gone: RowsGone) -> None:
    """Name the file of which a winner deleted a row that we delete too."""
    live = load_files(place.store, current).live
    now = {fragment.path: fragment for fragment in live_fragments(current, live)}
    for hit in gone.hits:
        held = now.get(hit.fragment.path)
        if held is None:
            continue
        shared = hit.going & (load_deletions(place.store, held) or BitMap64())
        if shared:
            raise CommitConflictError(
                version=current.version,
                rule="CON-10",
                path=held.path,
                reason=f"{len(shared)} of the rows that this deletes are deleted already, the "
                f"first one at position {shared.min()}",
                remedy="Nothing was committed; make the deletion again from the latest version",
            )
