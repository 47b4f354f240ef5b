"""Change a table: its rows, several things in one version, and the groups of other verbs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from txlog.table.handle import Handle
from txlog.table.row_verbs import RowVerbs

if TYPE_CHECKING:
    from txlog.commit.app_versions import AppVersion
    from txlog.commit.intent import UserMetadata
    from txlog.commit.operation import Outcome
    from txlog.table.alter import TableAlter
    from txlog.table.indexes import TableIndexes
    from txlog.table.maintenance import TableMaintenance, TablePins
    from txlog.table.optimize import TableOptimize
    from txlog.table.transaction import TableTransaction
    from txlog.verbs.fragments.operations import FragmentOperation


class Writing(Handle, RowVerbs):
    """The part of `Table` that changes rows and files."""

    @contextmanager
    def transaction(
        self, *, txn: AppVersion | None = None, user_metadata: UserMetadata | None = None
    ) -> Iterator[TableTransaction]:
        """Put several changes into one version::

            with table.transaction() as tx:
                tx.delete("day = '2026-11-24'")
                tx.append(corrected)

        Each change sees the result of the changes before it. At the end of the block, all changes
        are committed together, with one conflict check. If the block raises, nothing is committed.
        The outcome is `tx.outcome`.

        Raises
        ------
        CommitConflictError
            Another writer's commit conflicts with one of the changes. Nothing was committed.
        """
        from txlog.commit.app_versions import is_recorded, require_app_version
        from txlog.commit.operation import execute
        from txlog.table.transaction import TableTransaction

        require_app_version(txn)
        latest, looked_s = self._latest(), self._context.effects.monotonic_s()
        changes = TableTransaction(self._context, latest, is_recorded(latest, txn))
        try:
            yield changes
        except BaseException:
            changes.operation.discard()
            raise
        changes.outcome = self._finish(
            execute(
                changes.operation,
                self._context,
                latest,
                txn=txn,
                user_metadata=user_metadata,
                looked_s=looked_s,
            )
        )

    def commit(
        self,
        operation: FragmentOperation.Base,
        *,
        txn: AppVersion | None = None,
        user_metadata: UserMetadata | None = None,
    ) -> Outcome:
        """Commit fragments that workers wrote (`txlog.write_fragments`, `TableFragment`).

        Parameters
        ----------
        operation
            `FragmentOperation.Append`, `Overwrite`, `Delete`, `Merge` or `Rewrite`.

        Raises
        ------
        InvalidInputError
            A fragment occurs twice, is not valid, is missing in the table, or is already in it.
        CommitConflictError
            The rows or columns from which the fragments were made have changed since. Nothing was
            committed, and no file was deleted.
        """
        from txlog.verbs.fragments.commit import commit_fragments

        request = commit_fragments(self._context, self._snapshot, operation)
        return self._run(request, txn, user_metadata)

    @property
    def alter(self) -> TableAlter:
        """Add, replace and drop columns; add features."""
        from txlog.table.alter import TableAlter

        return TableAlter(self)

    @property
    def optimize(self) -> TableOptimize:
        """Compact files; compute statistics that files lack."""
        from txlog.table.optimize import TableOptimize

        return TableOptimize(self)

    @property
    def maintenance(self) -> TableMaintenance:
        """Write a checkpoint; clean up, verify and repair the log."""
        from txlog.table.maintenance import TableMaintenance

        return TableMaintenance(self)

    @property
    def indexes(self) -> TableIndexes:
        """Create and maintain indexes over key columns, for look-ups."""
        from txlog.table.indexes import TableIndexes

        return TableIndexes(self)

    @property
    def pins(self) -> TablePins:
        """Names of versions, which vacuum and expire keep."""
        from txlog.table.maintenance import TablePins

        return TablePins(self)
