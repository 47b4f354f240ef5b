"""Drop table features: remove all uses of a feature, then remove it from the protocol.

The versions before a feature was dropped are protected first. If the caller wants to lose them,
their log is deleted, and only then the protection is dropped: after each step, the table is sound.

Rules: spec/commit.md, CON-23 and CON-24; the Delta protocol, "Checkpoint Protection".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from txlog.actions.columns import empty_rows, files_at
from txlog.actions.file import Add
from txlog.actions.table import DomainMetadata, Metadata, Protocol
from txlog.base.arrow import pc
from txlog.base.effects import is_rehearsing
from txlog.base.errors import (
    CommitConflictError,
    InvalidInputError,
    LogCorruptError,
    NotFoundError,
    TxlogError,
    UnsupportedFeatureError,
    warn_committed,
)
from txlog.checkpoint.hint import hinted_version
from txlog.commit.app_versions import AnyAppVersion, is_recorded, require_app_version
from txlog.commit.context import Context
from txlog.commit.intent import Intent, Reads, UserMetadata
from txlog.commit.operation import (
    Done,
    Outcome,
    execute,
    require_user_metadata,
)
from txlog.data_files.deletions import adds_of
from txlog.data_files.options import WriteOptions
from txlog.data_files.rewrite import RewritePlan, plan_rewrite, rewrite_all
from txlog.fragments.fragment import Fragment
from txlog.fragments.ids import ROW_TRACKING_DOMAIN
from txlog.log.segment import complete_checkpoints
from txlog.protocol.access import (
    DELETION_VECTORS,
    PROTECTED,
    VECTORS_ON_USE,
    features_of,
    lowest_protocol,
)
from txlog.protocol.features import (
    ACTIVATION,
    CATALOG_MANAGED,
    CLUSTERING,
    FEATURES,
    REQUIRES,
    THROUGH_CATALOG,
)
from txlog.protocol.form import ROW_ID_COLUMN, ROW_VERSION_COLUMN
from txlog.protocol.properties import DROPPED, dropped_columns, unique_keys
from txlog.scan.plan import plan_scan
from txlog.schema.blobs import ABOVE
from txlog.schema.json import schema_json
from txlog.schema.types import (
    CURRENT_DEFAULT,
    GENERATION,
    TYPE_CHANGES,
    ArrayType,
    DataType,
    MapType,
    PrimitiveType,
    StructField,
    StructType,
    types_in,
)
from txlog.snapshot.branches import BRANCHING, PAGES, REGISTRY, registry_of
from txlog.snapshot.live_files import load_files
from txlog.snapshot.load import list_log, refresh
from txlog.snapshot.references import held_versions
from txlog.snapshot.snapshot import Snapshot
from txlog.store.base import Store
from txlog.store.branches import require_main
from txlog.verbs.checkpoint import checkpoint
from txlog.verbs.expire import oldest_version, protected_before
from txlog.verbs.features import ProtocolChange
from txlog.verbs.mapped_columns import without_mapping
from txlog.verbs.rewrite import Rewrite
from txlog.verbs.settle import settle
from txlog.verbs.truncate import truncate

PROTECTION = "checkpointProtection"

# Further properties of a feature, besides the one that enables it.
_PROPERTIES = {
    "deletionVectors": (VECTORS_ON_USE,),
    "rowTracking": (ROW_ID_COLUMN, ROW_VERSION_COLUMN, "delta.rowTrackingSuspended"),
    "inCommitTimestamp": (
        "delta.inCommitTimestampEnablementTimestamp",
        "delta.inCommitTimestampEnablementVersion",
    ),
    "columnMapping": ("delta.columnMapping.maxColumnId",),
    "v2Checkpoint": ("delta.checkpointPolicy",),
    "txlog.fragments": ("txlog.deletionFormat", DROPPED),
    PROTECTION: (PROTECTED,),
}
# The column types, and the column metadata, that need a feature.
_TYPES = {
    "timestampNtz": ("timestamp_ntz",),
    "timestampNanos": ("timestamp_nanos", "timestamp_nanos_ntz"),
    "variantType": ("variant",),
}
_OF_FIELDS = {
    "invariants": "delta.invariants",
    "generatedColumns": GENERATION,
    "identityColumns": "delta.identity.step",
    "allowColumnDefaults": CURRENT_DEFAULT,
    "txlog.blobs-dev": ABOVE,
}
_TRIES = 3  # So often the log is listed again while another writer cleans it up.
# Reader features that leave traces in older parts of the log which no reader misreads.
_TRACELESS = frozenset({"vacuumProtocolCheck"})


@dataclass(frozen=True)
class _Cleaned:
    """A table after the removal of a feature's uses."""

    metadata: Metadata
    domains: tuple[DomainMetadata, ...] = ()
    rewritten: Callable[[Fragment], bool] | None = None  # The fragments whose files are rewritten.
    # The table for which they are written. Default: the same table.
    plan: RewritePlan | None = None
    without_ids: bool = False  # Whether all files are logged again without row ids.


def drop_feature(
    context: Context,
    latest: Snapshot,
    feature: str,
    *,
    truncate_history: bool = False,
    txn: AnyAppVersion | None = None,
    user_metadata: UserMetadata | None = None,
) -> Done:
    """Drop a feature and write the checkpoint that readers without it need, or truncate the log.

    A second call with the same `txn` does what the first one did not finish. A failure after the
    commit is a warning.

    Raises
    ------
    InvalidInputError
        The table does not have the feature.
    UnsupportedFeatureError
        Something in the table still needs it, or older versions are pinned.
    CommitConflictError
        `checkpointProtection` is to be dropped, and its versions are still there.
    """
    require_main(context.store, "dropping a feature")
    operation = DropFeature(feature, truncate_history=truncate_history)
    operation.context = context  # For `change_of`, which runs before `execute`.
    require_app_version(txn)
    require_user_metadata(user_metadata)
    is_tried = is_rehearsing() or is_recorded(latest, txn)
    if feature == PROTECTION and truncate_history and not is_tried:
        operation.change_of(latest)  # Raises if it must not be dropped.
        latest = _truncate(context, latest, latest.version)
    done = execute(operation, context, latest, txn=txn, user_metadata=user_metadata)
    if not done.outcome and not done.outcome.skipped:
        has = PROTECTION in (*done.outcome.features_added, *features_of(latest.protocol))
        if truncate_history and has and feature != PROTECTION:  # A rehearsal.
            second = Outcome(operation.name, None, features_dropped=(PROTECTION,))
            return replace(done, outcome=_merged(done.outcome, second))
        return done
    try:
        return _finished(context, done, feature, user_metadata, truncates=truncate_history)
    except TxlogError as error:
        warn_committed(_unfinished(done.snapshot, feature, error))
    return done


def _finished(
    context: Context,
    done: Done,
    feature: str,
    user_metadata: UserMetadata | None,
    *,
    truncates: bool,
) -> Done:
    """Do what has to follow the commit that dropped a feature, unless it is done already."""
    after = done.snapshot
    is_protected = PROTECTION in features_of(after.protocol)
    if is_rehearsing() or (done.outcome.skipped and not is_protected):
        return done
    since = protected_before(after) if done.outcome.skipped else after.version
    if not truncates:
        if is_protected:
            _checkpoint_since(context, after, since)
        return done
    if feature != PROTECTION:
        settle(context, done)
        after = _truncate(context, after, since)
    if not is_protected:
        outcome = replace(done.outcome, version=after.version)
        return Done(outcome, after, is_settled=feature != PROTECTION)
    second = execute(
        DropFeature(PROTECTION, truncate_history=True),
        context,
        after,
        user_metadata=user_metadata,
    )
    return Done(_merged(done.outcome, second.outcome), second.snapshot)


def _merged(first: Outcome, second: Outcome) -> Outcome:
    """Return the outcome of two commits, the second of which may drop what the first added."""
    added, dropped = set(first.features_added), set(second.features_dropped)
    return replace(
        first,
        version=second.version,
        skipped=False,
        features_added=tuple(sorted(added - dropped)),
        features_dropped=tuple(sorted({*first.features_dropped, *(dropped - added)})),
    )


def _checkpoint_since(context: Context, latest: Snapshot, version: int) -> int:
    """Return the first version with a checkpoint from a version on; write one if there is none."""
    store = context.store
    found = (at for at in complete_checkpoints(list_log(store)) if version <= at)
    first = min(found, default=None)
    if first is not None and first <= hinted_version(store):
        return first
    checkpoint(context, latest)
    return latest.version


def _truncate(context: Context, latest: Snapshot, version: int) -> Snapshot:
    """Delete the log of all versions that are older than the first checkpoint since a version."""
    for _ in range(_TRIES - 1):
        # Another writer may clean up the log now, and replace the checkpoint by a newer one.
        with suppress(NotFoundError, LogCorruptError):
            return truncate(context, latest, _checkpoint_since(context, latest, version))
        latest = refresh(context.store, latest)
    return truncate(context, latest, _checkpoint_since(context, latest, version))


def _unfinished(after: Snapshot, feature: str, error: TxlogError) -> str:
    if PROTECTION in features_of(after.protocol):
        rest = (
            "Its versions before that stay protected: readers without it need a checkpoint, which "
            "maintenance.checkpoint() writes. To delete the log of these versions, call "
            f"alter.drop_feature({PROTECTION!r}, truncate_history=True)"
        )
    else:
        rest = "The log of older versions is still there; maintenance.expire() deletes it later"
    return (
        f"{feature} is dropped in version {after.version}, but what follows failed: {error}. {rest}"
    )


class DropFeature(Rewrite):
    """Drop one feature and all of its uses in one commit.

    If readers without the feature must not start at older versions, the commit protects these. To
    drop the protection itself, their log must be deleted before.
    """

    name = "DROP FEATURE"
    deadline_s = 3600.0

    def __init__(self, feature: str, *, truncate_history: bool = False) -> None:
        self._feature = feature
        self._truncates = truncate_history

    def intent(self, base: Snapshot) -> Intent:
        """Return the changes that remove the feature; errors as for `drop_feature`."""
        cleaned, _ = self._decided(base)
        protocol, metadata = self._protected(base, cleaned.metadata)
        if self._feature == PROTECTION and not is_rehearsing():
            _require_truncated(self.context.store, base)
        rows, bare = empty_rows(), list[Add]()
        if cleaned.rewritten is not None or cleaned.without_ids:
            live = load_files(self.context.store, base).live
            rows = live.slice(0, 0)
            if cleaned.rewritten is not None:
                plan = cleaned.plan or plan_rewrite(base, WriteOptions())
                rows = self._rewrite(base, live, cleaned.rewritten, plan)
            if cleaned.without_ids:
                has = live.filter(pc.is_valid(live["base_row_id"]))
                without = {"base_row_id": None, "default_row_commit_version": None}
                bare = [
                    a.model_copy(update={**without, "data_change": False}) for a in adds_of(has)
                ]
        # The commits of others may have used the feature meanwhile.
        intent = self._moved(base, rows, "overwrite")
        same = metadata == base.metadata
        return replace(
            intent,
            adds=tuple(bare) if cleaned.without_ids else intent.adds,
            protocol=protocol,
            metadata=None if same else metadata,
            domains=cleaned.domains,
            reads=Reads(everything=True),
            parameters={"featureName": self._feature, "truncateHistory": self._truncates},
            metrics={"numRemovedFiles": rows.num_rows, "numAddedFiles": len(self._written)},
        )

    def change_of(self, base: Snapshot) -> ProtocolChange:
        """Return the effect of dropping the feature, without a commit.

        Raises
        ------
        InvalidInputError
            The table does not have the feature.
        UnsupportedFeatureError
            Something in the table still needs it, or another feature does.
        """
        cleaned, change = self._decided(base)
        if cleaned.rewritten is None:
            return change
        live = load_files(self.context.store, base).live
        chosen = [f for f in plan_scan(base, live, columns=[]).fragments if cleaned.rewritten(f)]
        size = sum(file.size for fragment in chosen for file in fragment.files)
        return replace(change, files_rewritten=len(chosen), bytes_rewritten=size)

    def _decided(self, base: Snapshot) -> tuple[_Cleaned, ProtocolChange]:
        feature = self._feature
        features = features_of(base.protocol)
        _require_droppable(base, feature, features)
        cleaned = _cleaned(base, feature)
        if feature == PROTECTION and not self._truncates:
            raise UnsupportedFeatureError(
                path=base.root,
                features=(feature,),
                reason="older versions have features that were dropped later, and readers without "
                "these must not start there",
                remedy="Pass truncate_history=True, which deletes the log of all older versions",
            )
        left = features - {feature}
        if self._truncates:
            left -= {PROTECTION}
            before = base.version + 1 if feature != PROTECTION else protected_before(base)
            _require_none_held(base, before, self.context.effects.now_ms())
        elif _leaves_traces(feature):
            left |= {PROTECTION}
        change = ProtocolChange.between(
            base.protocol,
            lowest_protocol(left),
            versions_lost=base.version + 1 if self._truncates else 0,
        )
        return cleaned, change

    def _protected(self, base: Snapshot, metadata: Metadata) -> tuple[Protocol, Metadata]:
        """Return the protocol and the metadata after the commit, with the protection it needs."""
        left = features_of(base.protocol) - {self._feature}
        if _leaves_traces(self._feature) and self._feature != PROTECTION:
            left |= {PROTECTION}
            configuration = {**metadata.configuration, PROTECTED: str(base.version + 1)}
            metadata = metadata.model_copy(update={"configuration": configuration})
        return lowest_protocol(left), metadata

    def _rewrite(
        self,
        base: Snapshot,
        live: pa.Table,
        wanted: Callable[[Fragment], bool],
        plan: RewritePlan,
    ) -> pa.Table:
        """Write the rows of fragments again, and return the rows of their files."""
        chosen = [one for one in plan_scan(base, live, columns=[]).fragments if wanted(one)]
        for _, adds in rewrite_all(self.context, plan, [(one,) for one in chosen]):
            self._written.extend(adds)
        return files_at(live, (file.path for one in chosen for file in one.files))


def _leaves_traces(feature: str) -> bool:
    """Return whether readers without a feature may misread older parts of the log."""
    return FEATURES[feature].kind == "reader-writer" and feature not in _TRACELESS


def _require_droppable(base: Snapshot, feature: str, features: Iterable[str]) -> None:
    if feature not in features:
        raise InvalidInputError(
            argument="feature",
            field=feature,
            reason=f"the table does not have the feature {feature}",
            remedy=f"Choose from {', '.join(sorted(features))}"
            if features
            else "Leave the table as it is: it has none",
        )
    users = sorted(name for name in features if feature in REQUIRES.get(name, ()))
    through = THROUGH_CATALOG & {*features}
    if users or feature in CATALOG_MANAGED | through:
        who = ", ".join(users) or "its catalog"
        raise UnsupportedFeatureError(
            path=base.root,
            features=(feature,),
            reason=f"{who} needs the feature {feature}",
            remedy=f"Drop {who} first" if users else "Ask the catalog to release the table",
        )


def _require_none_held(base: Snapshot, before: int, now_ms: int) -> None:
    """Raise if a pin, or a clone that is being made, needs a version before another one."""
    older = [one for one in held_versions(base, now_ms) if one.version < before]
    if older:
        raise UnsupportedFeatureError(
            path=base.root,
            features=(PROTECTION,),
            reason=f"{', '.join(one.holder for one in older)} needs an older version, which would "
            "be lost",
            remedy=f"Omit truncate_history, or first {older[0].remedy}",
        )


def _require_truncated(store: Store, base: Snapshot) -> None:
    """Raise if the log still has versions that are protected."""
    before, oldest = min(protected_before(base), base.version), oldest_version(store)
    if oldest < before:
        raise CommitConflictError(
            version=base.version,
            rule="CON-24",
            reason=f"the log still has version {oldest}, and all versions below {before} must be "
            f"deleted before {PROTECTION} is dropped",
            remedy="Nothing was committed. Another writer may have dropped a feature or pinned a "
            "version meanwhile; try again",
        )


def _without(metadata: Metadata, names: Iterable[str]) -> Metadata:
    gone = set(names)
    configuration = {k: text for k, text in metadata.configuration.items() if k not in gone}
    return metadata.model_copy(update={"configuration": configuration})


def _cleaned(base: Snapshot, feature: str) -> _Cleaned:
    """Return a table without the uses of a feature. Pure, except that footers are read for types.

    Raises
    ------
    UnsupportedFeatureError
        Columns, constraints or domains still need the feature.
    """
    plain = feature.removesuffix("-preview")
    _require_unused(base, plain)
    enabling = [ACTIVATION[plain]] if plain in ACTIVATION else []
    metadata = _without(base.metadata, [*enabling, *_PROPERTIES.get(plain, ())])
    has_variants = PrimitiveType("variant") in types_in(base.schema)
    match plain:
        case "deletionVectors":
            return _Cleaned(metadata, rewritten=lambda one: one.deletion is not None)
        case "rowTracking":
            return _Cleaned(metadata, _ended(base, ROW_TRACKING_DOMAIN), without_ids=True)
        case "columnMapping" if base.mapping_mode != "none":
            ended = without_mapping(base, metadata)
            return _Cleaned(ended.metadata, ended.domains, _every, ended.rewrite)
        case "tableBranching-dev":
            return _Cleaned(metadata, _without_branches(base))
        case "txlog.branchPages":
            _require_one_page(base)
            return _Cleaned(metadata)
        case "clustering":
            return _Cleaned(metadata, _ended(base, CLUSTERING))
        case "typeWidening" if TYPE_CHANGES in str(base.metadata.schema_string):
            schema = StructType(tuple(map(_settled, base.schema.fields)))
            update = {"schema_string": schema_json(schema)}
            return _Cleaned(metadata.model_copy(update=update), rewritten=_every)
        case "variantShredding" if has_variants:
            return _Cleaned(metadata, rewritten=_every)
        case "txlog.fragments":
            every = bool(dropped_columns(base.metadata))
            if base.deletion_format == "lance":  # Its deletions become vectors in Delta's form.
                configuration = {**metadata.configuration, DELETION_VECTORS: "true"}
                metadata = metadata.model_copy(update={"configuration": configuration})
            return _Cleaned(metadata, rewritten=lambda one: every or _is_of_fragments(one))
    return _Cleaned(metadata)


def _every(_: Fragment) -> bool:
    return True


def _is_of_fragments(fragment: Fragment) -> bool:
    found = fragment.deletion
    lance = found is not None and found.descriptor.storage_type == "lance"
    return len(fragment.files) > 1 or lance


def _require_unused(base: Snapshot, feature: str) -> None:
    schema, reason = base.schema, ""
    kinds = {PrimitiveType(name) for name in _TYPES.get(feature, ())}
    typed = [f.name for f in schema.fields if kinds & set(types_in(StructType((f,))))]
    marked = [f.name for f in schema.fields if _OF_FIELDS.get(feature, " ") in _metadata_of(f)]
    domains = sorted(
        name
        for name, domain in base.controls.domains.items()
        if not domain.removed and name != ROW_TRACKING_DOMAIN
    )
    constraints = [n for n in base.metadata.configuration if n.startswith("delta.constraints.")]
    if typed or marked:
        reason = f"columns need it: {', '.join([*typed, *marked])}"
    elif feature == "checkConstraints" and constraints:
        names = ", ".join(name.removeprefix("delta.constraints.") for name in constraints)
        reason = f"the table has constraints: {names}"
    elif feature == "txlog.uniqueKeys" and (keys := unique_keys(base.metadata.configuration)):
        reason = f"the table has unique keys: {', '.join(keys)}"
    elif feature == "txlog.blobs-dev":
        reason = "checkpoints would forget which packs the files of older versions need"
    elif feature == "domainMetadata" and domains:
        reason = f"the table has domains: {', '.join(domains)}"
    if reason:
        raise UnsupportedFeatureError(
            path=base.root,
            features=(feature,),
            reason=f"{feature} cannot be dropped: {reason}",
            remedy="Drop or change these first",
        )


def _metadata_of(field: StructField) -> set[str]:
    """Return the names in the metadata of a column and its nested fields."""
    found = set(field.metadata)
    waiting: list[Any] = [field.type]
    while waiting:
        match waiting.pop():
            case StructType(inner):
                found.update(*(one.metadata for one in inner))
                waiting.extend(one.type for one in inner)
            case ArrayType(element):
                waiting.append(element)
            case MapType(key, value):
                waiting.extend((key, value))
    return found


def _settled(field: StructField) -> StructField:
    """Return a column without the record of how its type was widened."""
    metadata = {name: value for name, value in field.metadata.items() if name != TYPE_CHANGES}
    return replace(field, type=_settled_type(field.type), metadata=metadata)


def _settled_type(kind: DataType) -> DataType:
    match kind:
        case StructType(fields):
            return StructType(tuple(map(_settled, fields)))
        case ArrayType(element):
            return replace(kind, element=_settled_type(element))
        case MapType(key, value):
            return replace(kind, key=_settled_type(key), value=_settled_type(value))
    return kind


def _without_branches(base: Snapshot) -> tuple[DomainMetadata, ...]:
    """Return the registry, removed; raise if a branch is open."""
    opened = [branch.name for branch in registry_of(base).open]
    if opened:
        raise UnsupportedFeatureError(
            path=base.root,
            features=(BRANCHING,),
            reason=f"{len(opened)} branches are open, such as {opened[0]!r}",
            remedy="Publish or discard them first",
        )
    return _ended(base, REGISTRY)


_MOST_NAMED = 5  # The number of branches that an error names.


def _require_one_page(base: Snapshot) -> None:
    """Raise if the registry of branches has more than its own domain."""
    held = [branch.name for branch in registry_of(base).open if branch.page]
    if held:
        named = ", ".join(map(repr, held[:_MOST_NAMED]))
        more = len(held) - _MOST_NAMED
        raise UnsupportedFeatureError(
            path=base.root,
            features=(PAGES,),
            reason=f"{len(held)} branches are in other domains than the registry's own",
            remedy="Publish or discard these branches first: "
            f"{named}{f', and {more} more' if more > 0 else ''}",
        )


def _ended(base: Snapshot, name: str) -> tuple[DomainMetadata, ...]:
    domain = base.controls.domains.get(name)
    if domain is None or domain.removed:
        return ()
    return (domain.model_copy(update={"removed": True}),)
