"""The base of all operations that remove or replace rows which they find."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, final

import numpy as np
import pyarrow as pa

from txlog.base.arrow import arrow_array, pc
from txlog.base.columns import flat
from txlog.base.errors import LogCorruptError, tidied
from txlog.commit.intent import Intent, Kind, Reads
from txlog.commit.operation import Operation
from txlog.data_files.deletions import plan_changes
from txlog.data_files.row_changes import RowChanges
from txlog.expressions.tree import Expression
from txlog.fragments.rows import FEATURE
from txlog.log.paths import canonical_keys
from txlog.reconcile.files import Hashes, newly_named, text_hashes
from txlog.scan.plan import ScanPlan
from txlog.snapshot.live_files import has_any_path, path_hashes, require_sound
from txlog.snapshot.snapshot import Snapshot
from txlog.store.base import Store
from txlog.verbs.append import evolved


@dataclass(frozen=True)
class _Looked:
    """The version whose files the last attempt looked at."""

    store: Store
    snapshot: Snapshot
    # Of the paths of its live files; of a large table only of those that commits after the
    # checkpoint name. Then `hashes` has a hash of each live path, from the first lost race on.
    keys: tuple[pa.ChunkedArray, ...]
    whole: bool
    hashes: list[Hashes] = field(default_factory=list)

    @classmethod
    def of(cls, store: Store, snapshot: Snapshot, plan: ScanPlan) -> _Looked:
        rows = snapshot.tail.rows if plan.live is None else plan.live
        keys = (canonical_keys(rows["path"]),)
        return cls(store, snapshot, keys, plan.live is not None)

    def _knows(self, keys: pa.ChunkedArray) -> bool:
        """Return whether one of some paths was live, or was named after the checkpoint."""
        if any(map(_is_any_in(keys), self.keys)):
            return True
        if self.whole or not len(keys):
            return False
        if not self.hashes:
            self.hashes.append(path_hashes(self.store, self.snapshot))
        (known,) = self.hashes
        asked = flat(keys)
        hashed = text_hashes(asked)
        at = np.minimum(np.searchsorted(known, hashed), max(0, len(known) - 1))
        alike = known[at] == hashed if len(known) else np.zeros(len(hashed), np.bool_)
        if not alike.any():
            return False
        # Hashes are of the ends of paths: files of different folders may have the same one.
        return has_any_path(self.store, self.snapshot, asked.filter(arrow_array(alike)))

    def added(self, now: Snapshot) -> pa.Table | None:
        """Return the live files that a version has beyond those; None if anything else changed."""
        before = self.snapshot
        if (before.metadata, before.protocol) != (now.metadata, now.protocol):
            return None
        if before.checkpoint != now.checkpoint or now.supports(FEATURE):
            return None  # With fragments, new files may belong to old ones.
        with suppress(LogCorruptError):  # Else deciding again meets the damage, and names it.
            named = newly_named(before.tail.rows, now.tail.rows)
            if named is None or self._knows(canonical_keys(named["path"])):
                return None
            # The others were added and removed since: no attempt has seen them.
            added = named.filter(named["is_add"])
            if len(pc.unique(canonical_keys(added["path"]))) == added.num_rows:
                require_sound(now, added)
                return added
        return None

    def with_added(self, now: Snapshot, added: pa.Table) -> _Looked:
        keys = (*self.keys, canonical_keys(added["path"]))
        return replace(self, snapshot=now, keys=keys)


def _is_any_in(keys: pa.ChunkedArray) -> Callable[[pa.ChunkedArray], bool]:
    return lambda known: bool(pc.any(pc.is_in(keys, value_set=known)).as_py())


class ChangeRows(Operation):
    """Remove rows and add new ones; a subclass finds and writes them.

    If winners only added files, an attempt keeps what the last one computed for the other files,
    and looks only at theirs. So an operation on a large table finishes beside fast writers: each
    attempt has only the files to look at that were added during the last one.
    """

    removes_rows = True
    keeps_files = True  # `intent` discards those of which the next attempt has no use.
    kind: ClassVar[Kind] = "replace"
    _changes: RowChanges | None = None  # Those of the last attempt.
    _looked: _Looked | None = None

    @abstractmethod
    def changed(self, base: Snapshot) -> RowChanges:
        """Find the rows of a version, and write new files."""

    def extended(self, base: Snapshot, changes: RowChanges, added: pa.Table) -> RowChanges | None:
        """Return the changes of the last attempt with those of files that were added since.

        None: the rows of a version do not depend on each file alone, so all must be found again.
        New files that do not become part of the result are discarded. Default: None.
        """
        return None

    def look(self, base: Snapshot, where: Expression | None) -> ScanPlan:
        """Plan which files of a version to look at, and remember that they were looked at."""
        plan = plan_changes(self.context, base, where)
        self._looked = _Looked.of(self.context.store, base, plan)
        return plan

    @abstractmethod
    def metrics(self, changes: RowChanges) -> dict[str, int]:
        """Return Delta's metrics of the operation."""

    @abstractmethod
    def parameters(self, changes: RowChanges) -> Mapping[str, Any]:
        """Return Delta's parameters of the operation."""

    def reads(self, changes: RowChanges) -> Reads:
        """Return the rows that determined the changes. Default: those of the predicate."""
        return Reads(everything=changes.where is None, where=changes.where)

    @final
    def intent(self, base: Snapshot) -> Intent | None:
        """Return the removed files, those with new deletion vectors, and the new ones."""
        changes = self._changes = self._extended(base) or self._decided(base)
        if not changes.removes and not changes.adds:
            return None
        return Intent(
            operation=self.name,
            kind=self.kind,
            read_version=base.version,
            removes=changes.removes,
            adds=changes.adds,
            own_files=changes.own_files,
            cdc=changes.cdc,
            columns=changes.columns,
            metadata=None if changes.schema is None else evolved(base, changes.schema),
            reads=self.reads(changes),
            row_deletes=changes.row_deletes,
            parameters=self.parameters(changes),
            metrics=self.metrics(changes),
        )

    def _extended(self, base: Snapshot) -> RowChanges | None:
        """Return the changes of the last attempt, extended to a newer version, if they can be."""
        if self._changes is None or self._looked is None:
            return None
        added = self._looked.added(base)
        if added is None:
            return None
        changes = self.extended(base, self._changes, added) if added.num_rows else self._changes
        if changes is not None:
            self._looked = self._looked.with_added(base, added)
        return changes

    def _decided(self, base: Snapshot) -> RowChanges:
        tidied(self.discard)
        return self.changed(base)

    @final
    def read(self) -> Reads:
        """Return the rows that the last attempt read."""
        return super().read() if self._changes is None else self.reads(self._changes)

    @final
    def discard(self) -> None:
        """Delete the vectors, change files and data files of the last attempt."""
        changes, self._changes, self._looked = self._changes, None, None
        if changes is not None:
            changes.discard(self.context.store)
