"""`Table.transaction`: several changes in one version."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from txlog.base.errors import InvalidInputError
from txlog.base.frames import Frames, frames_of
from txlog.commit.app_versions import AnyAppVersion, AppVersion
from txlog.commit.context import Context
from txlog.commit.intent import UserMetadata
from txlog.commit.operation import Operation, Outcome
from txlog.snapshot.snapshot import Snapshot
from txlog.store.memory import MemoryStore
from txlog.table.row_verbs import RowVerbs
from txlog.verbs.transaction import Transaction

if TYPE_CHECKING:
    from txlog.verbs.merge.clauses import Clause, MergeRequest


def block_has_ended() -> InvalidInputError:
    """Return the error for a change behind the block of its transaction: nothing commits it."""
    return InvalidInputError(
        reason="the block of the transaction has ended", remedy="Begin another transaction"
    )


class TableTransaction(RowVerbs):
    """Changes of a table that become one version when their `with` block ends.

    The verbs are those of `Table`. Each sees the result of the ones before it, and returns an
    outcome without a version. `txn` and `user_metadata` belong to the transaction: pass them to
    `Table.transaction`.

    Frames of Spark are written, and merged, by its executors if `txlog.spark_ext` is imported. Only
    their `add` actions come to this process, except for merges of few rows, whose source does.

    `outcome` is None until the block ends. If the table already records the transaction's `txn`,
    the changes do nothing, and the outcome is `skipped`.
    """

    def __init__(
        self,
        context: Context,
        base: Snapshot,
        is_recorded: bool,
        txn: AnyAppVersion | None = None,
    ) -> None:
        self._txn = txn
        self.outcome: Outcome | None = None
        self._context = context
        self.operation = Transaction(context, base)
        self._is_recorded = is_recorded
        self.is_closed = False  # After its block.

    def __repr__(self) -> str:
        return f"<txlog.TableTransaction: {self.operation!r}>"

    @property
    def _zone(self) -> str | None:
        return self._context.zone

    def _latest(self) -> Snapshot:
        return self.operation.state

    def _frames_of(self, data: Any) -> Frames | None:
        self._require_open()
        # The memory of this process is no place for other workers.
        is_shared = not isinstance(self._context.store, MemoryStore)
        return frames_of(data) if is_shared else None

    def _version_read(self, data: Any) -> int | None:
        return None if self._is_recorded else super()._version_read(data)

    def _log_version(self) -> int:
        return self.operation.first.version  # Nobody reads what this transaction has changed.

    def _named(self) -> AnyAppVersion | None:
        return self.operation.next_part_of(self._txn)

    def _require_open(self) -> None:
        if self.is_closed:
            raise block_has_ended()

    def _merge(
        self,
        request: MergeRequest,
        clauses: Sequence[Clause],
        txn: AppVersion | None,
        user_metadata: UserMetadata | None,
    ) -> Outcome:
        frames = self._frames_of(request.data)
        if frames is None:
            return super()._merge(request, clauses, txn, user_metadata)
        if self._is_recorded:  # To plan the merge may cost a job.
            return Outcome("MERGE", None, skipped=True)
        is_first = not self.operation.has_changes
        state = self._latest()
        begun = None if is_first else lambda: self.operation.first
        operation = frames.merge(request, clauses, state.schema, self._context.store, begun=begun)
        return self._run(operation, txn, user_metadata)

    def _run(
        self, operation: Operation, txn: AnyAppVersion | None, user_metadata: UserMetadata | None
    ) -> Outcome:
        """Add an operation to the transaction."""
        self._require_open()
        for argument, value in (("txn", txn), ("user_metadata", user_metadata)):
            if value is not None:
                raise InvalidInputError(
                    argument=argument,
                    reason="the changes of a transaction are one commit, which has one value",
                    remedy=f"Pass {argument} to Table.transaction",
                )
        if not self._is_recorded:
            self.operation.add(operation)
        return Outcome(operation.name, None, skipped=self._is_recorded)
