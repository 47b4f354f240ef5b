"""`Catalog.branches`: branches of all tables of a catalog, which are published at one moment."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial

import pyarrow as pa

from txlog.base.errors import (
    AuditFailedError,
    InvalidInputError,
    InvalidTypeError,
    NotFoundError,
    UnsupportedFeatureError,
    clean_after,
)
from txlog.catalog.moment import CatalogSnapshot, require_name
from txlog.changes.diff import Diff
from txlog.commit.context import Context
from txlog.commit.group import Member, Terms, commit_group
from txlog.commit.operation import Operation, Outcome
from txlog.snapshot.branches import registry_of
from txlog.snapshot.load import load_snapshot
from txlog.store.branches import BranchStore, require_branch_name
from txlog.table.audit import CheckResult, parsed_checks, results_of
from txlog.table.seam import context_of, settle, table_at
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
        mains = self._chosen(tables)
        return self._committed(mains, {name: CreateBranch(branch) for name in mains})

    def _chosen(self, tables: Sequence[str] | None) -> dict[str, Table]:
        """Return the tables that get a branch, by their names; errors as for `create`."""
        if isinstance(tables, str) or not isinstance(tables, Iterable | None):
            raise InvalidTypeError(
                argument="tables",
                reason=f"a list of names was expected, not {tables!r}",
                remedy='Pass a list, such as ["sales.orders"]',
            )
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
        return {row.name: cut[row.name] for row in rows}

    def publish(self, branch: str) -> dict[str, Outcome]:
        """Publish the branch of each table that has one, all at one moment, or none of them.

        Raises
        ------
        NotFoundError
            No table has an open branch of this name.
        CommitConflictError
            A commit of a table conflicts with its branch. Nothing was published.
        """
        tables = self._having(branch)
        return self._committed(tables, {name: PublishBranch(branch) for name in tables})

    def discard(self, branch: str) -> dict[str, Outcome]:
        """Discard the branch of each table that has one, all at one moment.

        Raises
        ------
        NotFoundError
            No table has an open branch of this name.
        """
        tables = self._having(branch)
        return self._committed(tables, {name: DiscardBranch(branch) for name in tables})

    def diff(self, branch: str) -> dict[str, Diff]:
        """Plan, for each table that has the branch, what a publish would change.

        Returns
        -------
        The differences by the names of the tables, as `Table.branches.diff` plans them.

        Raises
        ------
        NotFoundError
            No table has an open branch of this name.
        """
        return {name: one.branches.diff(branch) for name, one in self._having(branch).items()}

    @contextmanager
    def audit(
        self,
        branch: str,
        checks: Mapping[str, Mapping[str, str | Callable[[Table], object]]],
        tables: Sequence[str] | None = None,
    ) -> Iterator[dict[str, Table]]:
        """Write to a branch of several tables, and publish all of it if all checks hold::

            checks = {"sales.orders": {"no nulls": "count_if(id IS NULL) = 0"}}
            with catalog.branches.audit("nightly", checks) as to:
                to["sales.orders"].append(orders)
                to["sales.totals"].append(totals)

        All tables are published at one moment, in the versions that the checks saw. If the block
        raises, the branch is discarded.

        Parameters
        ----------
        checks
            For each table, by its name, checks as those of `Table.audit`. Functions get the branch
            of the table.
        tables
            As for `create`.

        Raises
        ------
        AuditFailedError
            At the end of the block: a check does not hold. Nothing was published, and the branch
            stays. The error has the figures of all checks, which are named `TABLE: CHECK`.
        CommitConflictError
            A commit of a table conflicts with its branch, or another writer changed or closed a
            branch. Nothing was published, and the branch stays.
        AlreadyExistsError
            A table has an open branch of this name.
        NotFoundError
            A check is for a table that gets no branch.
        """
        if not isinstance(checks, Mapping) or not any(checks.values()):
            raise InvalidInputError(
                argument="checks",
                reason="there is no check, so all would be published",
                remedy="Map names of tables to their checks",
            )
        parsed = {name: parsed_checks("checks", given) for name, given in checks.items()}
        mains = self._chosen(tables)
        folded = {name.casefold(): name for name in mains}
        for name in parsed:
            if require_name(name).casefold() not in folded:
                raise NotFoundError(
                    path=name,
                    reason=f"a check is for the table {name!r}, which gets no branch",
                    remedy=f"Choose from {', '.join(mains)}",
                )
        creates = {name: CreateBranch(branch) for name in mains}
        self._committed(mains, creates)
        made = {name: one.made for name, one in creates.items() if one.made is not None}

        def opened(name: str) -> Table:
            here = context_of(mains[name])
            view = BranchStore.of(here.store, made[name].chain)
            context = Context(view, here.effects, here.engine, here.time_zone)
            return table_at(context, load_snapshot(view))

        def discard() -> None:
            discards = {name: DiscardBranch(branch, branch_id=one.id) for name, one in made.items()}
            self._committed(_latest(mains), discards)

        try:
            yield {name: opened(name) for name in mains}
        except BaseException as error:
            clean_after(error, discard)
            raise
        tips = {name: opened(name) for name in mains}
        results: dict[str, CheckResult] = {}
        for given, of_table in parsed.items():
            name = folded[given.casefold()]
            tip = tips[name]
            found = results_of(of_table, tip, partial(tip.at, tip.version))
            results |= {f"{name}: {check}": one for check, one in found.items()}
        failed = tuple(name for name, one in results.items() if not one)
        if failed:
            raise AuditFailedError(
                branch=branch,
                failed=failed,
                figures={name: dict(one.figures) for name, one in results.items()},
                reason=f"{len(failed)} of {len(results)} checks of the branch {branch!r} do not "
                f"hold: {', '.join(failed)}",
                remedy="Nothing was published. Look at the branch, and publish or discard it",
            )
        publishes = {
            name: PublishBranch(branch, tip=tips[name].version, branch_id=one.id)
            for name, one in made.items()
        }
        self._committed(_latest(mains), publishes)

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
        require_branch_name(branch, argument="branch")
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
        self, tables: dict[str, Table], operations: Mapping[str, Operation]
    ) -> dict[str, Outcome]:
        members = [
            Member(name, context_of(table), operations[name], table.snapshot)
            for name, table in tables.items()
        ]
        done = commit_group(members, self._terms)
        assert done is not None  # No version of an application was passed.
        return {
            name: settle(table, one)
            for (name, table), one in zip(tables.items(), done, strict=True)
        }


def _latest(tables: dict[str, Table]) -> dict[str, Table]:
    return {name: table.at() for name, table in tables.items()}
