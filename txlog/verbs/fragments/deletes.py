"""Commit deletions that workers made in fragments (rule FRG-25)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pyroaring import BitMap64

from txlog.actions.file import Cdc
from txlog.base.errors import (
    CommitConflictError,
    InvalidInputError,
    UnsupportedFeatureError,
    tidied,
)
from txlog.commit.context import Context
from txlog.commit.intent import Intent
from txlog.data_files.change_files import (
    RowsOf,
    deleted_rows,
    discard_changes,
    records_changes,
    write_rows_of,
)
from txlog.data_files.deletions import (
    adds_of,
    removes_of,
    united_with,
    with_vector,
)
from txlog.data_files.row_changes import FileDeletes, RowChanges
from txlog.fragments.fragment import Fragment
from txlog.fragments.metadata import FragmentMetadata
from txlog.fragments.rows import FEATURE
from txlog.scan.deletions import load_deletions
from txlog.scan.files import live_sequence
from txlog.snapshot.commits import Commit
from txlog.snapshot.live_files import load_files
from txlog.snapshot.snapshot import Snapshot
from txlog.verbs.fragments.base_version import Base, FragmentsOperation, read_by
from txlog.verbs.fragments.operations import FragmentOperation
from txlog.verbs.fragments.workers import deletions_of


class CommitDeletes(FragmentsOperation):
    """Commit deletions that workers made."""

    name = "DELETE"
    removes_rows = True

    def __init__(self, opened: Snapshot, request: FragmentOperation.Delete) -> None:
        super().__init__(opened, request.updated_fragments, request.read_version)
        self._request = request
        self._deletes: RowChanges | None = None
        self._union: RowChanges | None = None  # Deletion vectors that this operation wrote itself.
        self._cdc: tuple[Cdc, ...] = ()  # Of the last attempt.

    def changes(self, base: Base) -> Intent | None:
        """Return the removed fragments, and those that get the vectors of workers."""
        request = self._request
        deletes, whole = _row_deletes(self.context, base, request)
        self._deletes = deletes
        if not deletes.removes:
            return None
        self._record(base.snapshot, deletes.files, whole)
        return Intent(
            operation=self.name,
            kind="delete",
            read_version=base.snapshot.version,
            removes=deletes.removes,
            adds=deletes.adds,
            cdc=self._cdc,
            row_deletes=deletes.row_deletes,
            read_columns=read_by(request.updated_fragments),
            parameters={"predicate": [request.predicate] if request.predicate else []},
            metrics={
                "numDeletedRows": deletes.rows,
                "numRemovedFiles": deletes.files_removed,
                "numDeletionVectorsAdded": len(deletes.files),
            },
        )

    def rebase(self, current: Snapshot, intent: Intent, winners: Sequence[Commit]) -> Intent | None:
        """Merge the deletion vectors with those of winners (rule CON-10)."""
        assert self._deletes is not None
        united = united_with(self.context, current, self._deletes, winners)
        if united is None:
            _raise_shared_rows(self.context, current, self._deletes)
            return None
        tidied(self._discard_union)  # Nothing else refers to vectors of an earlier merge.
        self._deletes = self._union = united
        return replace(intent, removes=united.removes, adds=united.adds)

    def _record(
        self, base: Snapshot, deletes: Sequence[FileDeletes], whole: Sequence[Fragment]
    ) -> None:
        """Write the deleted rows as changes if primary files alone do not show them (FRG-50)."""
        self._discard_changes()
        gone = [*whole, *(one.fragment for one in deletes)]
        if records_changes(base) and any(len(one.files) > 1 for one in gone):
            parts = [RowsOf("delete", one.fragment, one.rows) for one in deletes]
            written = write_rows_of(self.context, base, [*parts, *deleted_rows(whole)])
            self._cdc = tuple(written)

    def _discard_changes(self) -> None:
        cdc, self._cdc = self._cdc, ()
        if cdc:
            discard_changes(self.context.store, cdc)

    def discard(self) -> None:
        """Delete the merged vectors and the change files; the files of workers are kept."""
        self._discard_changes()
        self._discard_union()

    def landed(self, intent: Intent) -> None:
        """Keep the files: the commit refers to them."""
        self._cdc, self._union = (), None

    def _discard_union(self) -> None:
        union, self._union = self._union, None
        if union is not None:
            union.discard(self.context.store)


def _row_deletes(
    context: Context, base: Base, request: FragmentOperation.Delete
) -> tuple[RowChanges, list[Fragment]]:
    """Return the changes, and the fragments that are deleted as a whole."""
    deletes = []
    vectors = {}
    for metadata in request.updated_fragments:
        fragment = base.changed(metadata)
        _require_form(metadata, base.snapshot)
        before = load_deletions(context.store, fragment) or BitMap64()
        after = deletions_of(context, metadata, fragment)
        if before - after:
            raise InvalidInputError(
                argument="fragments",
                field=fragment.path,
                reason="deleted rows would not be deleted any more",
                remedy="A delete can only remove rows; restore the table instead",
            )
        if not after - before:
            continue
        one = FileDeletes(fragment, after - before, before, metadata.physical_rows or 0)
        if one.is_whole:
            raise InvalidInputError(
                argument="fragments",
                field=fragment.path,
                reason="no row of it remains",
                remedy="Name its id in deleted_fragment_ids",
            )
        deletes.append(one)
        vectors[fragment.path] = metadata.adds[0].deletion_vector
    whole = []
    for number in request.deleted_fragment_ids:
        if number not in base.fragments:
            raise InvalidInputError(
                argument="deleted_fragment_ids",
                reason=f"version {base.snapshot.version} has no fragment {number!r}",
            )
        if not base.fragments[number].is_durable:
            raise InvalidInputError(
                argument="deleted_fragment_ids",
                reason=f"the id {number} is provisional: it refers to other rows in another "
                "version",
                remedy="Delete by a predicate, or give all fragments ids by adding txlog.fragments",
            )
        whole.append(base.fragments[number])
    if {fragment.id for fragment in whole} & {one.fragment.id for one in deletes}:
        raise InvalidInputError(
            argument="deleted_fragment_ids", reason="a fragment is both updated and deleted"
        )
    primaries = [replace(one.fragment, files=one.fragment.files[:1]) for one in deletes]
    removes = removes_of(base.rows([*whole, *primaries]), context.effects.now_ms())
    rows = {one.fragment.path: one.physical_rows for one in deletes}
    adds = [
        with_vector(add, vector, rows[add.path])
        for add in adds_of(base.rows(primaries))
        if (vector := vectors[add.path]) is not None
    ]
    changes = RowChanges(
        None,
        tuple(removes),
        vectored=tuple(adds),
        rows=sum(len(one.rows) for one in deletes) + sum(f.num_rows or 0 for f in whole),
        files_removed=len(whole),
        files=tuple(deletes),
    )
    return changes, whole


def _require_form(metadata: FragmentMetadata, base: Snapshot) -> None:
    """Raise if a deletion file has a form that the table does not allow."""
    found = metadata.deletion_file
    lance = found is not None and found.descriptor.storage_type == "lance"
    feature = FEATURE if lance else "deletionVectors"
    brings = not lance and base.marks_deletions
    if found is not None and not brings and not base.supports(feature):
        raise UnsupportedFeatureError(
            path=base.root,
            features=(feature,),
            reason="the table cannot have deletion files of this form",
            remedy="Delete with fragments of this table",
        )


def _raise_shared_rows(context: Context, current: Snapshot, deletes: RowChanges) -> None:
    """Raise if a winner deleted a row that this operation deletes, too; name the file."""
    live = load_files(context.store, current).live
    now = {fragment.path: fragment for fragment in live_sequence(current, live)}
    for one in deletes.files:
        fragment_now = now.get(one.fragment.path)
        if fragment_now is None:
            continue
        shared = one.rows & (load_deletions(context.store, fragment_now) or BitMap64())
        if shared:
            raise CommitConflictError(
                version=current.version,
                rule="CON-10",
                path=fragment_now.path,
                reason=f"{len(shared)} of these rows are already deleted, the "
                f"first one at position {shared.min()}",
                remedy="Nothing was committed; delete the rows again, at the latest version",
            )
