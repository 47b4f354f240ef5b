"""Committing fragments that workers wrote: one operation, one version.

Rules: spec/fragments.md, FRG-24 to FRG-27.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap64

from txlog.actions import Add, Metadata, decode_rows
from txlog.commit import Committed, Intent, commit
from txlog.errors import (
    CommitConflictError,
    InvalidInputError,
    LogCorruptError,
    UnsupportedFeatureError,
)
from txlog.fragments import (
    FEATURE,
    Fragment,
    FragmentMetadata,
    column_fields,
    fragment_rows,
)
from txlog.log import canonical_keys
from txlog.scan import files_at, live_fragments, load_deletions
from txlog.schema import from_arrow, schema_json
from txlog.snapshot import Commit, Snapshot, load_files, load_snapshot, refresh
from txlog.stats import physical_rows, require_same_partitions
from txlog.writing.append import commit_append, require_supported_types
from txlog.writing.columns import require_columns_apart
from txlog.writing.data import merged_schema
from txlog.writing.delete import RowsGone, united_with
from txlog.writing.dropped import require_not_dropped, still_dropped, with_dropped
from txlog.writing.fragments import (
    columns_digest,
    deletions_of,
    require_distinct,
    vector_path,
)
from txlog.writing.operation import (
    AppTransaction,
    Done,
    Place,
    done,
    is_recorded,
    require_table_writable,
    require_transaction,
    skip_recorded,
    txn_action,
)
from txlog.writing.operations import Operation
from txlog.writing.options import WriteOptions
from txlog.writing.overwrite import commit_overwrite
from txlog.writing.plan import plan_write, require_still_fits
from txlog.writing.vectors import Hit, adds_of, removes_of, with_vector


def commit_fragments(
    place: Place,
    snapshot: Snapshot,
    operation: Operation.Base,
    *,
    txn: AppTransaction | None = None,
    options: WriteOptions | None = None,
) -> Done:
    """Commit fragments in one version. Their files are never deleted, whatever comes of it.

    Raises
    ------
    InvalidInputError
        A fragment is there twice, is not in the table or in it already, or is none.
    CommitConflictError
        What the fragments were made from has changed since: nothing was committed.
    UnsupportedFeatureError
        The table may not be written by txlog.
    """
    options = options or WriteOptions()
    require_transaction(txn)
    require_table_writable(snapshot, removes_rows=False)
    latest = refresh(place.store, snapshot)
    if recorded := skip_recorded(latest, txn):
        return recorded
    match operation:
        case Operation.Append(fragments) | Operation.Overwrite(fragments):
            adds = _new_files(fragments)
            arguments: Any = {
                "schema_mode": None,
                "txn": txn,
                "options": options,
                "require_fit": _Fit(place, fragments),
                "owned": False,
            }
            if isinstance(operation, Operation.Append):
                return commit_append(place, latest, adds, latest.schema, **arguments)
            require_table_writable(snapshot, removes_rows=True)
            arguments |= {"predicate": None, "partition_mode": "static"}
            return commit_overwrite(place, latest, adds, latest.schema, **arguments)
        case Operation.Delete():
            return _delete(place, snapshot, operation, txn, options)
        case Operation.Merge():
            return _merge(place, snapshot, operation, txn, options)
        case Operation.Rewrite():
            return _rewrite(place, snapshot, operation, txn, options)
    raise InvalidInputError(
        argument="operation",
        reason=f"an Operation was expected, not {type(operation).__name__}",
        remedy="Pass txlog.Operation.Append(fragments), or one of its like",
    )


def _new_files(fragments: Sequence[FragmentMetadata]) -> list[Add]:
    require_distinct(fragments)
    for held in fragments:
        if held.id is not None or held.written_for is None or len(held.adds) != 1:
            raise InvalidInputError(
                argument="fragments",
                field=held.adds[0].path,
                reason="it is a fragment of the table, not a new one",
                remedy="Pass what write_fragments gave",
            )
    return [held.adds[0] for held in fragments]


class _Fit:
    """Refuses versions of a table that fragments were not written for, or that have them."""

    def __init__(self, place: Place, fragments: Sequence[FragmentMetadata]) -> None:
        self._place = place
        self._fragments = fragments
        self._seen: dict[int, Snapshot] = {}

    def __call__(self, base: Snapshot) -> None:
        wanted = _digest(base)
        for held in self._fragments:
            if held.written_for != wanted:
                self._require_harmless(held, base)
        state = load_files(self._place.store, base)
        ours = canonical_keys(pa.array([f.adds[0].path for f in self._fragments], pa.string()))
        known = [canonical_keys(rows["path"]) for rows in (state.live, state.tombstones)]
        for number, there in enumerate(pc.is_in(ours, value_set=_flat(*known)).to_pylist()):
            if not there:
                continue
            raise InvalidInputError(
                argument="fragments",
                field=self._fragments[number].adds[0].path,
                reason="the table has, or had, this file: the fragment was committed before",
                remedy="Leave it out; pass txn to make commits that are repeated do nothing",
            )

    def _require_harmless(self, held: FragmentMetadata, base: Snapshot) -> None:
        """The table has other columns or rules now: those of the time of writing decide."""
        version = held.read_version
        if version not in self._seen:
            found = None
            if 0 <= version <= base.version:
                found = load_snapshot(self._place.store, version=version)
            if found is None or _digest(found) != held.written_for:
                raise InvalidInputError(
                    argument="fragments",
                    field=held.adds[0].path,
                    reason="the fragment was written for another table",
                    remedy="Commit it to the table that write_fragments was called with",
                )
            self._seen[version] = found
        require_still_fits(base, self._seen[version])


def _flat(*parts: pa.Array | pa.ChunkedArray) -> pa.Array:
    chunks = [
        chunk
        for part in parts
        for chunk in (part.chunks if isinstance(part, pa.ChunkedArray) else [part])
    ]
    return pa.concat_arrays(chunks) if chunks else pa.nulls(0, pa.string())


def _digest(snapshot: Snapshot) -> str:
    plan = plan_write(snapshot.metadata, snapshot.schema, WriteOptions())
    return plan.written_for(snapshot.metadata.id)


@dataclass(frozen=True)
class _Base:
    """The version that changed fragments were made from, and its fragments."""

    snapshot: Snapshot
    live: pa.Table
    fragments: dict[int, Fragment]

    def changed(self, held: FragmentMetadata) -> Fragment:
        """Return the fragment that metadata is of."""
        found = None if held.id is None else self.fragments.get(held.id)
        if found is None or found.path != held.adds[0].path:
            raise InvalidInputError(
                argument="fragments",
                field=held.adds[0].path,
                reason=f"version {self.snapshot.version} has no fragment {held.id} of this file",
                remedy="Pass metadata of fragments of this table",
            )
        return found

    def rows(self, fragments: Sequence[Fragment]) -> pa.Table:
        """Return the `FILE_ROWS` of all files of fragments."""
        return files_at(self.live, (f.path for held in fragments for f in held.files))


def _base_of(
    place: Place,
    snapshot: Snapshot,
    fragments: Sequence[FragmentMetadata],
    read_version: int | None = None,
) -> _Base:
    """Return the one version that fragments were read from; the table's if nothing says."""
    require_distinct(fragments)
    versions = {held.read_version for held in fragments}
    versions |= set() if read_version is None else {read_version}
    versions = versions or {snapshot.version}
    if len(versions) > 1:
        raise InvalidInputError(
            argument="fragments",
            reason=f"they were read from the versions {', '.join(map(str, sorted(versions)))}",
            remedy="Make them all from one version of the table",
        )
    (version,) = versions
    at = snapshot
    if version != snapshot.version:
        at = load_snapshot(place.store, version=version)
    require_table_writable(at, removes_rows=False)
    live = load_files(place.store, at).live
    return _Base(at, live, {fragment.id: fragment for fragment in live_fragments(at, live)})


def _put(
    place: Place, base: _Base, intent: Intent, txn: AppTransaction | None, rebase: Any = None
) -> Done:
    """Commit, or say what stands in the way: what workers did cannot be done again here."""
    if is_recorded(base.snapshot, txn):
        return done(intent.operation, base.snapshot, None, skipped=True)
    try:
        outcome = commit(place.store, base.snapshot, intent, effects=place.effects, rebase=rebase)
    except CommitConflictError:
        latest = refresh(place.store, base.snapshot)
        if is_recorded(latest, txn):  # Another driver made this very commit meanwhile.
            return done(intent.operation, latest, None, skipped=True)
        raise
    if isinstance(outcome, Committed):
        return done(intent.operation, outcome.snapshot, outcome, skipped=False)
    if is_recorded(outcome.snapshot, txn):
        return done(intent.operation, outcome.snapshot, None, skipped=True)
    raise CommitConflictError(
        version=outcome.version,
        rule=outcome.verdict.rule,
        path=outcome.verdict.path,
        reason="another writer changed what the fragments were made from",
        remedy="Nothing was committed; make them again from the latest version",
    )


def _delete(
    place: Place,
    snapshot: Snapshot,
    operation: Operation.Delete,
    txn: AppTransaction | None,
    options: WriteOptions,
) -> Done:
    require_table_writable(snapshot, removes_rows=True)
    base = _base_of(place, snapshot, operation.updated_fragments, operation.read_version)
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
        read_columns=_read_by(operation.updated_fragments),
        parameters={"predicate": [operation.predicate] if operation.predicate else []},
        metrics={
            "numDeletedRows": gone.rows,
            "numRemovedFiles": gone.files_removed,
            "numDeletionVectorsAdded": len(gone.hits),
        },
        user_metadata=options.user_metadata,
    )
    return _put(place, base, intent, txn, rebase)


def _rows_gone(place: Place, base: _Base, operation: Operation.Delete) -> RowsGone:
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
        vector_files=tuple(
            path for held in operation.updated_fragments if (path := vector_path(held))
        ),
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


def _merge(
    place: Place,
    snapshot: Snapshot,
    operation: Operation.Merge,
    txn: AppTransaction | None,
    options: WriteOptions,
) -> Done:
    base = _base_of(place, snapshot, operation.fragments)
    require_columns_apart(base.snapshot)
    adds: list[Add] = []
    given: dict[int, list[str]] = {}  # The new columns, by fragment.
    for held in operation.fragments:
        fragment = base.changed(held)
        known = {file.path for file in fragment.files}
        new = [add for add in held.adds if add.path not in known]
        columns = [name for add in new for name in column_fields(add) or ()]
        _require_new(base.snapshot, columns)
        given[fragment.id] = columns
        adds.extend(new)
    _require_fitting(base, operation.fragments, adds)
    for held in operation.fragments:
        if columns := given[base.changed(held).id]:
            _require_typed(held, base.snapshot, operation.schema, columns)
    names = set().union(*given.values())
    everywhere = names.intersection(
        *(given.get(f.id, ()) for f in base.fragments.values() if f.physical_rows != 0)
    )
    metadata = _merged_metadata(base.snapshot, operation.schema, names, everywhere)
    intent = Intent(
        operation="ADD COLUMNS",
        kind="add columns",
        read_version=base.snapshot.version,
        metadata=metadata,
        adds=tuple(adds),
        columns=frozenset(names),
        read_columns=_read_by(operation.fragments),
        txn=txn_action(txn, place.effects),
        parameters={"columns": sorted(names)},
        metrics={
            "numAddedFiles": len(adds),
            "numOutputBytes": sum(add.size for add in adds),
        },
        user_metadata=options.user_metadata,
    )
    return _put(place, base, intent, txn)


def _read_by(fragments: Sequence[FragmentMetadata]) -> frozenset[str]:
    return frozenset(name for held in fragments for name in held.reads)


def _require_new(base: Snapshot, names: Sequence[str]) -> None:
    """Refuse columns that the table has."""
    for name in names:
        if base.schema.get(name) is not None:
            raise InvalidInputError(
                argument="fragments",
                field=name,
                reason="the table has this column already",
                remedy="Give it other values with Table.replace_columns",
            )


def _require_fitting(
    base: _Base, fragments: Sequence[FragmentMetadata], adds: Sequence[Add]
) -> None:
    """Refuse new files that do not make fragments together with those that are there."""
    there = base.rows([base.changed(held) for held in fragments])
    lines = [{"add": add.to_json()} for add in adds]
    new = decode_rows([(base.snapshot.version, lines, "fragments")])
    try:
        rows = fragment_rows(pa.concat_tables([there, new], promote_options="default"), listed=True)
        physical_rows(rows)
        require_same_partitions(rows, base.snapshot.physical_partition_columns)
    except LogCorruptError as error:
        raise InvalidInputError(
            argument="fragments",
            field=error.path,
            reason=error.reason,
            remedy="Pass what merge_columns returned, unchanged",
        ) from error


def _require_typed(
    held: FragmentMetadata, base: Snapshot, schema: pa.Schema, names: list[str]
) -> None:
    """Refuse columns that were written in other types than the schema has, or for another table."""
    fields = [field for name in names if (field := from_arrow(schema).get(name)) is not None]
    if len(fields) == len(names) and held.written_for != columns_digest(base, fields):
        raise InvalidInputError(
            argument="fragments",
            field=held.adds[0].path,
            reason=f"its {', '.join(names)} were written for another table, or in other types than "
            "the schema has",
            remedy="Give all fragments columns of the same types: cast what functions return",
        )


def _merged_metadata(
    base: Snapshot, schema: pa.Schema, names: set[str], everywhere: set[str]
) -> Metadata:
    """Return the metadata with new columns, some of which all fragments give values to."""
    merged = merged_schema(base.schema, from_arrow(schema))
    lacking = sorted(names - set(merged.names()))
    if lacking:
        raise InvalidInputError(
            argument="schema",
            field=lacking[0],
            reason="a fragment gives this column, but it is not in the schema",
            remedy="Pass the schema that merge_columns returned",
        )
    require_supported_types(base, merged)
    new = set(merged.names()) - set(base.schema.names())
    require_not_dropped(base.metadata, new - everywhere)
    metadata = base.metadata.model_copy(update={"schema_string": schema_json(merged)})
    return with_dropped(metadata, still_dropped(base.metadata, everywhere))


def _rewrite(
    place: Place,
    snapshot: Snapshot,
    operation: Operation.Rewrite,
    txn: AppTransaction | None,
    options: WriteOptions,
) -> Done:
    if snapshot.has_stable_row_ids:
        raise UnsupportedFeatureError(
            path=snapshot.root,
            features=("rowTracking",),
            reason="the table tracks rows, whose ids fragments of workers do not carry",
            remedy="Use Table.compact, which keeps them",
        )
    old = [held for group in operation.groups for held in group.old_fragments]
    new = [held for group in operation.groups for held in group.new_fragments]
    base = _base_of(place, snapshot, old)
    adds = _new_files(new)
    _Fit(place, new)(base.snapshot)
    for group in operation.groups:
        _require_same_place(group, base.snapshot)
        before = [base.changed(held).num_rows for held in group.old_fragments]
        after = [held.num_rows for held in group.new_fragments]
        if None in before or None in after or sum(before) != sum(after):  # type: ignore[arg-type]
            raise InvalidInputError(
                argument="groups",
                reason=f"the old fragments have {before} rows, the new ones {after}: "
                "a rewrite keeps all rows",
                remedy="Write all rows of the old fragments, and no others",
            )
    leaving = base.rows([base.changed(held) for held in old])
    removes = [
        remove.model_copy(update={"data_change": False})
        for remove in removes_of(leaving, place.effects.now_ms())
    ]
    intent = Intent(
        operation="OPTIMIZE",
        kind="compact",
        read_version=base.snapshot.version,
        removes=tuple(removes),
        adds=tuple(add.model_copy(update={"data_change": False}) for add in adds),
        isolation="SnapshotIsolation",
        txn=txn_action(txn, place.effects),
        metrics={"numRemovedFiles": len(removes), "numAddedFiles": len(adds)},
        user_metadata=options.user_metadata,
    )
    return _put(place, base, intent, txn)


def _require_same_place(group: Operation.RewriteGroup, base: Snapshot) -> None:
    """Refuse new fragments that were not made from the old ones' version, or partition."""
    partitions = [dict(held.adds[0].partition_values) for held in group.old_fragments]
    for held in group.new_fragments:
        if held.read_version != base.version:
            reason = f"it was written on version {held.read_version}, not {base.version}"
        elif dict(held.adds[0].partition_values) not in partitions:
            reason = "none of the old fragments is in its partition"
        else:
            continue
        raise InvalidInputError(
            argument="groups",
            field=held.adds[0].path,
            reason=reason,
            remedy="Read and write the rows of the old fragments at one version",
        )
