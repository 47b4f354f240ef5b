"""`Catalog.branches`: branches of all tables of a catalog, which are published at one moment."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pyarrow as pa

from txlog.base.errors import InvalidInputError, NotFoundError, UnsupportedFeatureError
from txlog.catalog.moment import CatalogSnapshot
from txlog.commit.group import Member, Terms, commit_group
from txlog.commit.operation import Operation, Outcome
from txlog.snapshot.branches import registry_of
from txlog.table.seam import context_of, settle
from txlog.table.table import Table
from txlog.verbs.branches import CreateBranch, DiscardBranch, PublishBranch


class CatalogBranches:
    """Branches that all managed tables of a catalog have by one name.

    `Catalog.table(name, branch="dev")` opens a table of a branch. Branches of one table are
    `Table.branches`.
    """

    def __init__(self, cut: Callable[[], CatalogSnapshot], terms: Terms) -> None:
        self._cut = cut
        self._terms = terms

    def create(self, branch: str, tables: Sequence[str] | None = None) -> dict[str, Outcome]:
        """Create a branch of each table, all at one moment.

        Parameters
        ----------
        tables
            Names of managed tables. Default: all tables of the catalog, which must be managed.

        Returns
        -------
        The outcome of each table by its name.

        Raises
        ------
        AlreadyExistsError
            A table has an open branch of this name. Nothing was created.
        UnsupportedFeatureError
            The catalog does not manage a table.
        """
        cut = self._cut()
        rows = [cut.row(name)[0] for name in (cut if tables is None else tables)]
        free = [row.name for row in rows if row.managed is None]
        if free:
            raise UnsupportedFeatureError(
                path=free[0],
                features=("branches of several tables",),
                reason=f"the catalog does not manage {', '.join(free)}",
                remedy="Take them in with the catalog's method manage, or pass the names of the "
                "other tables",
            )
        if not rows:
            raise InvalidInputError(argument="tables", reason="there are no tables to branch")
        opened = {row.name: cut[row.name] for row in rows}
        return self._committed(opened, lambda: CreateBranch(branch))

    def publish(self, branch: str) -> dict[str, Outcome]:
        """Publish the branch of each table that has one, all at one moment, or none of them.

        Raises
        ------
        NotFoundError
            No table has an open branch of this name.
        CommitConflictError
            A commit of a table conflicts with its branch. Nothing was published.
        """
        return self._committed(self._having(branch), lambda: PublishBranch(branch))

    def discard(self, branch: str) -> dict[str, Outcome]:
        """Discard the branch of each table that has one, all at one moment.

        Raises
        ------
        NotFoundError
            No table has an open branch of this name.
        """
        return self._committed(self._having(branch), lambda: DiscardBranch(branch))

    def list(self) -> pa.Table:
        """Return the open branches of all managed tables, by branch and table.

        The columns are `branch`, `table` and `base_version`.
        """
        found = sorted(
            (branch.name, name, branch.base_version)
            for name, table in self._managed().items()
            for branch in registry_of(table.snapshot).open
        )
        return pa.table(
            {
                "branch": pa.array([one[0] for one in found], pa.string()),
                "table": pa.array([one[1] for one in found], pa.string()),
                "base_version": pa.array([one[2] for one in found], pa.int64()),
            }
        )

    def _managed(self) -> dict[str, Table]:
        cut = self._cut()
        return {name: cut[name] for name in cut if cut.row(name)[0].managed is not None}

    def _having(self, branch: str) -> dict[str, Table]:
        found = {
            name: table
            for name, table in self._managed().items()
            if registry_of(table.snapshot).find(branch) is not None
        }
        if not found:
            raise NotFoundError(
                path=branch,
                reason=f"no table of the catalog has an open branch {branch!r}",
                remedy="Choose one of the catalog's branches",
            )
        return found

    def _committed(
        self, tables: dict[str, Table], make: Callable[[], Operation]
    ) -> dict[str, Outcome]:
        members = [
            Member(name, context_of(table), make(), table.snapshot)
            for name, table in tables.items()
        ]
        done = commit_group(members, self._terms)
        assert done is not None  # No version of an application was passed.
        return {
            name: settle(table, one)
            for (name, table), one in zip(tables.items(), done, strict=True)
        }
