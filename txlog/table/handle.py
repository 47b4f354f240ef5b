"""The state of an opened table."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from txlog.reconcile.files import FileState
    from txlog.snapshot.snapshot import Snapshot
    from txlog.writing.operation import Done, Outcome, Place


class Handle:
    """What all verbs of a table stand on: where it is, and the version that it is at."""

    _place: Place
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
            from txlog.snapshot.files import load_files

            self._file_state = load_files(self._place.store, self._snapshot)
        return self._file_state

    def _latest(self) -> Snapshot:
        from txlog.snapshot.newer import refresh

        return refresh(self._place.store, self._snapshot)

    def _finish(self, done: Done) -> Outcome:
        """Take over what an operation made, and write a checkpoint when one is due."""
        from txlog.writing.checkpoint import maintain

        self._move(done.snapshot)
        self._outcome = done.outcome
        maintain(self._place, done)
        return done.outcome
