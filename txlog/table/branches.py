"""`Table.branches`: create, list, publish and discard branches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from txlog.base.errors import DuplicateKeyError
from txlog.table.handle import Namespace

if TYPE_CHECKING:
    import pyarrow as pa

    from txlog.changes.diff import Diff
    from txlog.commit.app_versions import AppVersion
    from txlog.commit.intent import UserMetadata
    from txlog.commit.operation import Outcome
    from txlog.expressions.sql import Where
    from txlog.snapshot.branches import Branch
    from txlog.store.branches import BranchStore


class TableBranches(Namespace):
    """Branches: logs of their own, which begin at a version of the table and copy no data.

    `txlog.Table(uri, branch="audit")` opens a branch, with every verb, read and stream. Other
    engines see the table without its branches. The first branch adds the writer features
    `tableBranching-dev` and `domainMetadata`: readers need no new feature.
    """

    _name = "branches"

    def create(
        self,
        name: str,
        version: int | None = None,
        *,
        txn: AppVersion | None = None,
        user_metadata: UserMetadata | None = None,
    ) -> Outcome:
        """Create a branch, which first is equal to a version of the table.

        Parameters
        ----------
        name
            Text of at most 200 characters without `@`. Open branches of a table have names that
            differ in more than case.
        version
            The base. Default: the latest version. Its files, and the log from it on, are kept until
            the branch is published or discarded.

        Raises
        ------
        AlreadyExistsError
            There is an open branch of this name.
        NotFoundError, DataFileError
            The version can no longer be reconstructed, or its files are missing.
        UnsupportedFeatureError
            This table is itself a branch.
        """
        from txlog.verbs.branches import CreateBranch

        return self._table._run(CreateBranch(name, version), txn, user_metadata)

    def list(self) -> pa.Table:
        """Return the branches, in the order of their names; the latest version has them.

        Columns: `name`, `id`, `base_version`, `created_version`, `status` (`open`, `published` or
        `discarded`), `published_version` (null unless published), and `version`: that of the last
        commit of an open branch. Closed branches are listed until 20 others are closed.
        """
        from txlog.verbs.branch_list import listed_branches

        store = self._table._context.store
        return listed_branches(store, self._table._latest())

    def publish(
        self,
        name: str,
        *,
        txn: AppVersion | None = None,
        user_metadata: UserMetadata | None = None,
    ) -> Outcome:
        """Make the changes of a branch in one commit of the table, and close the branch.

        Each commit of the table after the base of the branch is checked, as a writer checks those
        that were faster. If the branch only added rows, those of others do not matter. If both only
        deleted rows, and different ones, all are deleted.

        Raises
        ------
        NotFoundError
            There is no open branch of this name.
        CommitConflictError
            A commit of the table conflicts with the branch, which stays open. Nothing was changed.
        DuplicateKeyError
            Rows of the branch and of the table have the same unique key. Nothing was changed.
        UnsupportedFeatureError
            The changes of the branch cannot be published; the error says why.
        """
        from txlog.verbs.branches import PublishBranch

        try:
            return self._table._run(PublishBranch(name), txn, user_metadata)
        except DuplicateKeyError as error:
            error.argument = "name"  # The rows are those of the branch.
            raise

    def discard(
        self,
        name: str,
        *,
        txn: AppVersion | None = None,
        user_metadata: UserMetadata | None = None,
    ) -> Outcome:
        """Close a branch without its changes; a later vacuum deletes its files.

        Raises
        ------
        NotFoundError
            There is no open branch of this name.
        """
        from txlog.verbs.branches import DiscardBranch

        return self._table._run(DiscardBranch(name), txn, user_metadata)

    def diff(
        self,
        name: str,
        *,
        on: str | Sequence[str] | None = None,
        columns: Sequence[str] | None = None,
        where: Where = None,
    ) -> Diff:
        """Plan the difference of a branch and its base: what a publish would change.

        Commits of the table after the base do not count. The arguments and the result are those of
        `Table.diff`.

        Raises
        ------
        NotFoundError
            There is no open branch of this name.
        UnsupportedFeatureError
            The branch and its base have different columns.
        """
        from txlog.changes.diff import plan_diff
        from txlog.expressions.sql import as_expression
        from txlog.snapshot.load import load_snapshot

        context = self._table._context
        view, branch = self._view(name)
        return plan_diff(
            view,
            load_snapshot(context.store, version=branch.base_version),
            load_snapshot(view),
            on=on,
            columns=None if columns is None else [*columns],
            where=as_expression(where, self._table._zone),
            engine=context.engine,
        )

    def _view(self, name: str) -> tuple[BranchStore, Branch]:
        from txlog.snapshot.branches import require_branch
        from txlog.store.branches import BranchStore, require_branch_name, require_main

        store = self._table._context.store
        require_main(store, "a branch of a branch")
        branch = require_branch(self._table._latest(), require_branch_name(name))
        return BranchStore.of(store, branch.chain), branch
