"""The state of an opened table."""

from __future__ import annotations

from txlog.commit.app_versions import AppVersion
from txlog.commit.context import Context
from txlog.commit.operation import Done, Operation, Outcome, execute
from txlog.reconcile.files import FileState
from txlog.snapshot.files import load_files
from txlog.snapshot.newer import refresh
from txlog.snapshot.snapshot import Snapshot
from txlog.writing.checkpoint import checkpoint_if_due


class Handle:
    """What all verbs of a table stand on: where it is, and the version that it is at."""

    _context: Context
    _outcome: Outcome | None
    _snapshot: Snapshot
    _file_state: FileState | None
    _made_ms: int | None

    def _move(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._file_state = None
        self._made_ms = None

    def _files(self) -> FileState:
        if self._file_state is None:
            self._file_state = load_files(self._context.store, self._snapshot)
        return self._file_state

    def _latest(self) -> Snapshot:
        return refresh(self._context.store, self._snapshot)

    def _run(
        self, operation: Operation, txn: AppVersion | None, user_metadata: str | None
    ) -> Outcome:
        """Execute an operation on the latest version, and move to the version that it made."""
        return self._finish(
            execute(operation, self._latest(), txn=txn, user_metadata=user_metadata)
        )

    def _finish(self, done: Done) -> Outcome:
        """Move to the version after an operation, and write a checkpoint when one is due."""
        self._move(done.snapshot)
        self._outcome = done.outcome
        checkpoint_if_due(self._context, done)
        return done.outcome
