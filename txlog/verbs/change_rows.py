"""The base of all operations that remove or replace rows which they find."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, final

from txlog.commit.intent import Intent, Kind, Reads
from txlog.commit.operation import Operation
from txlog.data_files.row_changes import RowChanges
from txlog.snapshot.snapshot import Snapshot
from txlog.verbs.append import evolved


class ChangeRows(Operation):
    """Remove rows and add new ones; a subclass finds and writes them."""

    removes_rows = True
    kind: ClassVar[Kind] = "replace"
    _changes: RowChanges | None = None  # Those of the last attempt.

    @abstractmethod
    def changed(self, base: Snapshot) -> RowChanges:
        """Find the rows of a version, and write new files."""

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
        changes = self._changes = self.changed(base)
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
            metadata=None if changes.schema is None else evolved(base, changes.schema),
            reads=self.reads(changes),
            row_deletes=changes.row_deletes,
            parameters=self.parameters(changes),
            metrics=self.metrics(changes),
        )

    @final
    def read(self) -> Reads:
        """Return the rows that the last attempt read."""
        return super().read() if self._changes is None else self.reads(self._changes)

    @final
    def discard(self) -> None:
        """Delete the vectors, change files and data files of the last attempt."""
        changes, self._changes = self._changes, None
        if changes is not None:
            changes.discard(self.context.store)
