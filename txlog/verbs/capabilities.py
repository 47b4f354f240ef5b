"""Which verbs a table allows, checked in advance."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from txlog.base.errors import TxlogError, UnsupportedFeatureError
from txlog.changes.changes import require_feed
from txlog.commit.operation import require_table_writable
from txlog.data_files.constraints import constraints_of
from txlog.data_files.rewrite import require_movable
from txlog.protocol.access import needed_features, require_writable
from txlog.scan.columns import require_row_tracking
from txlog.snapshot.load import require_refreshable
from txlog.snapshot.snapshot import Snapshot
from txlog.store.base import Store
from txlog.verbs.checkpoint import require_checkpointable
from txlog.verbs.columns import require_columns_apart, require_replaceable
from txlog.verbs.mapped_columns import require_columns_droppable


@dataclass(frozen=True)
class Capability:
    """Whether a table allows a verb; if not, the reason and the remedy."""

    verb: str
    can: bool = True
    features: tuple[str, ...] = ()  # The features that prevent the verb.
    reason: str = ""
    remedy: str = ""
    # Features that the verb may add: engines without them can no longer read, or write, the table.
    may_add: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return self.can

    def __str__(self) -> str:
        if self.can:
            adds = f", and may add the feature {', '.join(self.may_add)}" if self.may_add else ""
            return f"{self.verb}: yes{adds}"
        return ". ".join(filter(None, [f"{self.verb}: no, {self.reason}", self.remedy]))


def capabilities(store: Store, snapshot: Snapshot) -> dict[str, Capability]:
    """Return for each verb whether a version allows it, with the verb's own checks.

    This changes nothing. An allowed verb may still fail because of its arguments or the store.
    """
    found = {verb: _capability(verb, check) for verb, check in _checks(store, snapshot)}
    if snapshot.marks_deletions and not snapshot.supports("deletionVectors"):
        for verb in _LEAVE_VECTORS:
            if found[verb]:
                found[verb] = replace(found[verb], may_add=("deletionVectors",))
    return found


_LEAVE_VECTORS = ("delete", "update", "merge")


def _checks(store: Store, snapshot: Snapshot) -> Iterator[tuple[str, Callable[[], object]]]:
    def writable(*, removes_rows: bool, adds_rows: bool) -> None:
        require_refreshable(snapshot)
        store.require_writable()
        require_table_writable(snapshot, removes_rows=removes_rows)
        if adds_rows:
            constraints_of(snapshot.metadata, snapshot.schema)

    def deletable() -> None:
        writable(removes_rows=True, adds_rows=False)
        if not snapshot.marks_deletions:
            require_movable(snapshot)

    def updatable() -> None:
        writable(removes_rows=True, adds_rows=True)
        require_movable(snapshot)

    def compactable() -> None:
        writable(removes_rows=False, adds_rows=False)
        require_movable(snapshot)

    def columns(*, replaces: bool) -> None:
        require_refreshable(snapshot)
        store.require_writable()
        require_columns_apart(snapshot)
        if replaces:
            require_replaceable(snapshot)

    def droppable() -> None:
        writable(removes_rows=False, adds_rows=False)
        require_columns_droppable(snapshot)

    def clonable() -> None:
        needed_features(snapshot.schema, snapshot.properties)
        require_writable(snapshot.protocol, snapshot.metadata, path=snapshot.root)

    yield "scan", lambda: None
    yield "lookup", lambda: None
    yield "stable_row_ids", lambda: require_row_tracking(snapshot)
    yield "changes", lambda: require_feed(snapshot)
    yield "refresh", lambda: require_refreshable(snapshot)
    yield "append", lambda: writable(removes_rows=False, adds_rows=True)
    yield "overwrite", lambda: writable(removes_rows=True, adds_rows=True)
    yield "delete", deletable
    yield "update", updatable
    yield "merge", updatable
    yield "compact", compactable
    yield "z_order", compactable
    yield "compute_statistics", lambda: writable(removes_rows=False, adds_rows=False)
    yield "restore", lambda: writable(removes_rows=True, adds_rows=False)
    yield "create_index", lambda: writable(removes_rows=False, adds_rows=False)
    yield "add_columns", lambda: columns(replaces=False)
    yield "replace_columns", lambda: columns(replaces=True)
    yield "drop_columns", droppable
    yield "clone", clonable
    yield "vacuum", lambda: writable(removes_rows=False, adds_rows=False)
    yield "expire", lambda: writable(removes_rows=False, adds_rows=False)
    yield "checkpoint", lambda: require_checkpointable(store, snapshot)


def _capability(verb: str, check: Callable[[], object]) -> Capability:
    try:
        check()
    except TxlogError as error:
        features = error.features if isinstance(error, UnsupportedFeatureError) else ()
        return Capability(verb, False, features, error.reason, error.remedy)
    return Capability(verb)
