"""`Table.transaction`: several changes in one version."""

from __future__ import annotations

from txlog.base.errors import InvalidInputError
from txlog.commit.app_versions import AnyAppVersion
from txlog.commit.context import Context
from txlog.commit.intent import UserMetadata
from txlog.commit.operation import Operation, Outcome
from txlog.snapshot.snapshot import Snapshot
from txlog.table.row_verbs import RowVerbs
from txlog.verbs.transaction import Transaction


class TableTransaction(RowVerbs):
    """Changes of a table that become one version when their `with` block ends.

    The verbs are those of `Table`. Each sees the result of the ones before it, and returns an
    outcome without a version. `txn` and `user_metadata` belong to the transaction: pass them to
    `Table.transaction`.

    `outcome` is None until the block ends. If the table already records the transaction's `txn`,
    the changes do nothing, and the outcome is `skipped`.
    """

    def __init__(self, context: Context, base: Snapshot, is_recorded: bool) -> None:
        self.outcome: Outcome | None = None
        self._context = context
        self.operation = Transaction(context, base)
        self._is_recorded = is_recorded

    def __repr__(self) -> str:
        return f"<txlog.TableTransaction: {self.operation!r}>"

    @property
    def _zone(self) -> str | None:
        return self._context.zone

    def _latest(self) -> Snapshot:
        return self.operation.state

    def _run(
        self, operation: Operation, txn: AnyAppVersion | None, user_metadata: UserMetadata | None
    ) -> Outcome:
        """Add an operation to the transaction."""
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
