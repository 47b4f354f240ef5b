"""Commit fragments that workers wrote: one operation makes one version.

Rules: spec/fragments.md, FRG-24 to FRG-27.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa

from txlog.actions.file import Add
from txlog.base.arrow import arrow_array, pc
from txlog.base.columns import flat
from txlog.base.errors import InvalidInputError, UnsupportedFeatureError
from txlog.commit import operation as commits
from txlog.commit.context import Context
from txlog.commit.intent import Intent
from txlog.data_files.deletions import removes_of
from txlog.data_files.options import WriteOptions
from txlog.data_files.write_plan import AddedFiles, plan_append, require_still_fits
from txlog.fragments.metadata import FragmentMetadata
from txlog.log.paths import canonical_keys
from txlog.protocol.form import logged_partition_value
from txlog.snapshot.live_files import load_files
from txlog.snapshot.load import load_snapshot
from txlog.snapshot.snapshot import Snapshot
from txlog.verbs.append import Append
from txlog.verbs.create import NO_TABLE, NewTable
from txlog.verbs.fragments.base_version import Base, FragmentsOperation
from txlog.verbs.fragments.column_commits import CommitColumns
from txlog.verbs.fragments.deletes import CommitDeletes
from txlog.verbs.fragments.operations import FragmentOperation, require_operation
from txlog.verbs.fragments.workers import require_distinct
from txlog.verbs.overwrite import Overwrite


def new_files(fragments: Sequence[FragmentMetadata]) -> list[Add]:
    """Return the files of new fragments.

    Raises
    ------
    InvalidInputError
        A fragment appears twice, or does not come from `write_fragments`.
    """
    require_distinct(fragments)
    for one in fragments:
        if one.id is not None or one.written_for is None or len(one.adds) != 1:
            raise InvalidInputError(
                argument="fragments",
                field=one.adds[0].path,
                reason="it is a fragment of the table, not a new one",
                remedy="Pass the fragments that write_fragments returned",
            )
    return [one.adds[0] for one in fragments]


class Fit:
    """Refuses versions for which fragments were not written, and versions that have them."""

    def __init__(self, context: Context, fragments: Sequence[FragmentMetadata]) -> None:
        self._context = context
        self._fragments = fragments
        self._seen: dict[int, Snapshot] = {}

    def __call__(self, base: Snapshot) -> None:
        """Refuse a version.

        Raises
        ------
        InvalidInputError
            It has or had one of the files, or belongs to another table.
        CommitConflictError
            Its columns, partitions or constraints have changed.
        """
        for one in self._fragments:
            wanted = base.memo(_first_digest if one.read_version < 0 else _digest)
            if one.written_for != wanted:
                self._require_harmless(one, base)
        for path in self._committed(base):
            raise InvalidInputError(
                argument="fragments",
                field=path,
                reason="the table has or had this file, so the fragment was committed before",
                remedy="Omit it; with txn, a repeated commit does nothing",
            )

    def _committed(self, base: Snapshot) -> Iterator[str]:
        """Yield the files that a version has, or had."""
        paths = [one.adds[0].path for one in self._fragments]
        for path in paths:
            if base.tail.first_version(path) is not None:
                yield path
        # The checkpoint cannot have a newer file, which got its name after that version.
        at = base.checkpoint[0].version if base.checkpoint else -1
        older = [one.adds[0].path for one in self._fragments if one.read_version < at]
        if not older:
            return
        state = load_files(self._context.store, base)
        ours = canonical_keys(arrow_array(older, pa.string()))
        live, gone = (
            pc.is_in(ours, value_set=flat(canonical_keys(rows["path"])))
            for rows in (state.live, state.tombstones)
        )
        for number in pc.indices_nonzero(pc.or_(live, gone)).to_pylist():
            yield older[number]

    def _require_harmless(self, metadata: FragmentMetadata, base: Snapshot) -> None:
        """Raise unless changed columns or constraints allow fragments that were written before."""
        version = metadata.read_version
        if version not in self._seen:
            found = None
            if 0 <= version <= base.version:
                found = load_snapshot(self._context.store, version=version)
            if found is None or _digest(found) != metadata.written_for:
                raise InvalidInputError(
                    argument="fragments",
                    field=metadata.adds[0].path,
                    reason="the fragment was written for another table",
                    remedy="Commit it to the table that write_fragments was called with",
                )
            self._seen[version] = found
        require_still_fits(base, self._seen[version])


def _digest(snapshot: Snapshot) -> str:
    plan = plan_append(snapshot, snapshot.schema, WriteOptions())
    return plan.written_for(snapshot.metadata.id)


def _first_digest(snapshot: Snapshot) -> str:
    """Return the digest of fragments that were written before the table existed."""
    return plan_append(snapshot, snapshot.schema, WriteOptions()).written_for(NO_TABLE)


def first_files(fragments: Sequence[FragmentMetadata], new: NewTable) -> list[Add]:
    """Return the files of fragments for a new table.

    Raises
    ------
    InvalidInputError
        A fragment appears twice, or was written for another table.
    """
    wanted = new.plan().written_for(NO_TABLE)
    adds = new_files(fragments)
    for one in fragments:
        if one.written_for != wanted:
            raise InvalidInputError(
                argument="fragments",
                field=one.adds[0].path,
                reason="it was written for a table with other columns, partitioning or constraints",
                remedy="Create the table with the columns of the data, and pass its partition_by "
                "and properties to write_fragments",
            )
    return adds


class CommitRewrites(FragmentsOperation):
    """Replace fragments by others with the same rows."""

    name = "OPTIMIZE"

    def __init__(self, opened: Snapshot, request: FragmentOperation.Rewrite) -> None:
        self._old = [old for group in request.groups for old in group.old_fragments]
        self._new = [new for group in request.groups for new in group.new_fragments]
        super().__init__(opened, self._old)
        self._request = request

    def base(self, latest: Snapshot) -> Snapshot:
        """Raise if the table tracks rows; otherwise as for other fragments."""
        if latest.has_stable_row_ids:
            raise UnsupportedFeatureError(
                path=latest.root,
                features=("rowTracking",),
                reason="the table tracks rows, and fragments of workers have no row ids",
                remedy="Use Table.optimize.compact, which keeps them",
            )
        return super().base(latest)

    def changes(self, base: Base) -> Intent:
        """Return the old files as removed, and the new ones as added."""
        adds = new_files(self._new)
        Fit(self.context, self._new)(base.snapshot)
        for group in self._request.groups:
            _require_same_place(group, base.snapshot)
            _require_same_rows(group, base)
        leaving = base.rows([base.changed(old) for old in self._old])
        now_ms = self.context.effects.now_ms()
        removes = removes_of(leaving, now_ms, data_change=False)
        return Intent(
            operation=self.name,
            kind="compact",
            read_version=base.snapshot.version,
            removes=tuple(removes),
            adds=tuple(add.model_copy(update={"data_change": False}) for add in adds),
            has_given_rows=True,
            isolation="SnapshotIsolation",
            metrics={"numRemovedFiles": len(removes), "numAddedFiles": len(adds)},
        )


def _require_same_rows(group: FragmentOperation.RewriteGroup, base: Base) -> None:
    """Raise if new fragments have more or fewer rows than the old ones."""
    before = [base.changed(old).num_rows for old in group.old_fragments]
    after = [new.num_rows for new in group.new_fragments]
    if None in before or None in after or sum(before) != sum(after):  # type: ignore[arg-type]
        raise InvalidInputError(
            argument="groups",
            reason=f"the old fragments have {before} rows, the new ones {after}, but a rewrite "
            "must keep all rows",
            remedy="Write all rows of the old fragments, and no others",
        )


def _require_same_place(group: FragmentOperation.RewriteGroup, base: Snapshot) -> None:
    """Raise if new fragments come from another version or partition than the old ones."""
    columns, mode = base.partition_fields, base.mapping_mode

    def place(one: FragmentMetadata) -> list[str | None]:
        values = one.adds[0].partition_values
        return [logged_partition_value(values, column, mode) for column in columns]

    partitions = list(map(place, group.old_fragments))
    for one in group.new_fragments:
        if one.read_version != base.version:
            reason = f"it was written on version {one.read_version}, not {base.version}"
        elif place(one) not in partitions:
            reason = "none of the old fragments is in its partition"
        else:
            continue
        raise InvalidInputError(
            argument="groups",
            field=one.adds[0].path,
            reason=reason,
            remedy="Read and write the rows of the old fragments at one version",
        )


def commit_fragments(
    context: Context, snapshot: Snapshot, request: FragmentOperation.Base
) -> commits.Operation:
    """Return the operation that commits fragments. It never deletes their files.

    Raises
    ------
    InvalidInputError
        A fragment appears twice, is missing in the table, is already in it, or is not valid.
    """
    require_operation(request)
    match request:
        case FragmentOperation.Append(fragments):
            return Append.of_files(_files(context, snapshot, fragments))
        case FragmentOperation.Overwrite(fragments):
            return Overwrite(_files(context, snapshot, fragments))
        case FragmentOperation.Delete():
            return CommitDeletes(snapshot, request)
        case FragmentOperation.Merge():
            return CommitColumns(snapshot, request)
        case FragmentOperation.Rewrite():
            return CommitRewrites(snapshot, request)
    raise AssertionError(f"there is no such operation: {request!r}")


def _files(
    context: Context, snapshot: Snapshot, fragments: Sequence[FragmentMetadata]
) -> AddedFiles:
    adds, fit = new_files(fragments), Fit(context, fragments)
    return AddedFiles.written(adds, snapshot.schema, fit, owned=False)
