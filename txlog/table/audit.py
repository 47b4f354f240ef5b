"""`Table.audit`: write to a branch, check it, and publish it if all checks hold."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

import pyarrow as pa

from txlog.base.arrow import arrow_array, pc
from txlog.base.errors import (
    AuditFailedError,
    InvalidInputError,
    InvalidTypeError,
    TxlogError,
    clean_after,
    reason_of,
)
from txlog.expressions.aggregates import Check, Checks, parse_check
from txlog.schema.types import CHANGE_TYPE

if TYPE_CHECKING:
    from txlog.changes.diff import Diff
    from txlog.commit.app_versions import AppVersion
    from txlog.commit.intent import UserMetadata
    from txlog.commit.operation import Outcome
    from txlog.snapshot.branches import Branch
    from txlog.snapshot.snapshot import Snapshot
    from txlog.table.branches import TableBranches

_NEW = ("insert", "update_postimage")


class Audited(Protocol):
    """What an audit needs of a branch."""

    def refresh(self) -> object:
        """Move to the latest version."""

    def to_batches(self, columns: list[str] | None = None) -> Iterator[pa.RecordBatch]:
        """Yield the rows."""

    @property
    def snapshot(self) -> Snapshot:
        """The version."""


TableT = TypeVar("TableT", bound=Audited)


@dataclass(frozen=True)
class CheckResult:
    """The result of one check of an audit.

    `figures` has the value of each aggregate of a check in SQL. Of a function it has what the
    function returned, as `result`. If a check raised, `error` is the text of its error.
    """

    name: str
    holds: bool
    figures: Mapping[str, Any] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return self.holds


class TableAudit(Generic[TableT]):
    """A branch that is published at the end of a `with` block if its checks hold.

    `results` are the results of the checks by their names, and `outcome` that of the publish. Both
    are empty until the block ends.
    """

    def __init__(
        self,
        branches: TableBranches,
        name: str,
        opened: Callable[[Branch, Snapshot | None], TableT],
        checks: Mapping[str, str | Callable[[TableT], object]],
        new_rows: Mapping[str, str | Callable[[pa.Table], object]],
        *,
        replace: bool,
        zone: str | None,
        txn: AppVersion | None,
        user_metadata: UserMetadata | None,
    ) -> None:
        self.outcome: Outcome | None = None
        self.results: dict[str, CheckResult] = {}
        self._branches = branches
        self._name = name
        self._opened = opened
        self._replace = replace
        self._txn = txn
        self._user_metadata = user_metadata
        self._checks = parsed_checks("checks", checks, zone)
        self._new_rows = parsed_checks("new_rows", new_rows, zone)
        if twice := sorted(checks.keys() & new_rows.keys()):
            raise InvalidInputError(
                argument="new_rows",
                reason=f"{twice[0]!r} is also the name of one of the checks",
                remedy="Give each check its own name",
            )
        if not checks and not new_rows:
            raise InvalidInputError(
                argument="checks",
                reason="there is no check, so all would be published",
                remedy="Name each check, and write it in SQL over aggregates or as a function",
            )
        self._branch: TableT | None = None
        self._entry: Branch | None = None  # Another run may make a branch of the same name.
        self._is_recorded = False

    def __repr__(self) -> str:
        return f"<txlog.TableAudit: {self._name!r}>"

    def __enter__(self) -> TableT:
        from txlog.commit.app_versions import is_recorded
        from txlog.snapshot.branches import registry_of
        from txlog.verbs.branches import CreateBranch, DiscardBranch

        table = self._branches._table
        create = CreateBranch(self._name)
        alike = registry_of(table._latest()).like(self._name) if self._replace else None
        if alike is not None:
            table._run(DiscardBranch(alike.name, branch_id=alike.id), None, None)
        table._run(create, None, None)
        self._entry = create.made
        assert self._entry is not None
        self._branch = self._opened(self._entry, None)
        # The rows are there already, so checks over the table would count them twice.
        self._is_recorded = is_recorded(self._branch.snapshot, self._txn)
        return self._branch

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is not None:
            clean_after(error, self._discard)
            return
        branch, entry = self._branch, self._entry
        assert branch is not None
        assert entry is not None
        branch.refresh()
        tip = branch.snapshot  # This version is checked, and published.
        if not self._is_recorded:
            self.results = self._results(entry, tip)
        failed = [name for name, one in self.results.items() if not one]
        if failed:
            raise AuditFailedError(
                branch=self._name,
                version=tip.version,
                failed=tuple(failed),
                figures={name: dict(one.figures) for name, one in self.results.items()},
                reason=f"{len(failed)} of {len(self.results)} checks of the branch {self._name!r} "
                f"do not hold: {', '.join(failed)}",
                remedy="Nothing was published. Look at the branch, and publish or discard it",
            )
        from txlog.verbs.branches import PublishBranch

        publish = PublishBranch(self._name, tip=tip.version, branch_id=entry.id)
        self.outcome = self._branches._table._run(publish, self._txn, self._user_metadata)
        if self.outcome.skipped:  # An earlier run has published the same.
            self._discard()

    def _discard(self) -> None:
        from txlog.verbs.branches import DiscardBranch

        assert self._entry is not None
        discard = DiscardBranch(self._name, branch_id=self._entry.id)
        self._branches._table._run(discard, None, None)

    def _results(self, entry: Branch, tip: Snapshot) -> dict[str, CheckResult]:
        """Compute all checks of a version, each side with one scan for those in SQL."""
        first = tip.schema.names()[:1]

        def opened() -> TableT:  # Each function may move its own table.
            return self._opened(entry, tip)

        def whole(columns: list[str]) -> Iterator[pa.RecordBatch]:
            return opened().to_batches(columns or first)

        def new(_: list[str]) -> Iterator[pa.RecordBatch]:
            return _added(self._diff(entry, tip))

        found = _computed(self._checks, tip, whole, opened)
        if self._new_rows:
            found |= _computed(self._new_rows, tip, new, lambda: self._new_table(entry, tip))
        names = [*self._checks, *self._new_rows]
        return {name: found[name] for name in names}

    def _diff(self, entry: Branch, tip: Snapshot) -> Diff:
        from txlog.changes.diff import plan_diff
        from txlog.snapshot.load import load_snapshot
        from txlog.store.branches import BranchStore

        context = self._branches._table._context
        base = load_snapshot(context.store, version=entry.base_version)
        view = BranchStore.of(context.store, entry.chain)
        return plan_diff(view, base, tip, engine=context.engine)

    def _new_table(self, entry: Branch, tip: Snapshot) -> pa.Table:
        diff = self._diff(entry, tip)
        schema = diff.schema.remove(diff.schema.get_field_index(CHANGE_TYPE))
        return pa.Table.from_batches(
            [rows.select(schema.names) for rows in _added(diff)], schema=schema
        )


Parsed = Check | Callable[[Any], object]


def results_of(
    checks: Mapping[str, Parsed], table: TableT, again: Callable[[], TableT]
) -> dict[str, CheckResult]:
    """Compute checks (`parsed_checks`) over all rows of a version of a table.

    `again` opens the same version for a function, which may move its table.

    Raises
    ------
    InvalidInputError
        A check in SQL does not fit the columns of the table.
    """
    first = table.snapshot.schema.names()[:1]

    def whole(columns: list[str]) -> Iterator[pa.RecordBatch]:
        return table.to_batches(columns or first)

    return _computed(checks, table.snapshot, whole, again)


def parsed_checks(argument: str, given: object, zone: str | None = None) -> dict[str, Parsed]:
    """Return checks by their names.

    Raises
    ------
    InvalidTypeError, InvalidInputError
        A check is neither SQL over aggregates nor a function.
    """
    if not isinstance(given, Mapping) or not all(isinstance(name, str) for name in given):
        raise InvalidTypeError(
            argument=argument,
            reason=f"a mapping of names to checks was expected, not {type(given).__name__}",
            remedy="Name each check, and write it in SQL over aggregates or as a function",
        )
    found: dict[str, Parsed] = {}
    for name, check in given.items():
        if not isinstance(check, str) and not callable(check):
            raise InvalidTypeError(
                argument=argument,
                reason=f"the check {name!r} is SQL text or a function, not {type(check).__name__}",
                remedy="Write it in SQL over aggregates, or as a function that says if it holds",
            )
        try:
            found[name] = parse_check(check, zone) if isinstance(check, str) else check
        except InvalidInputError as error:
            error.argument, error.field = argument, name
            raise
    return found


def _computed(
    checks: Mapping[str, Parsed],
    snapshot: Snapshot,
    rows: Callable[[list[str]], Iterator[pa.RecordBatch]],
    given: Callable[[], Any],
) -> dict[str, CheckResult]:
    texts = {name: check for name, check in checks.items() if isinstance(check, Check)}
    found: dict[str, CheckResult] = {}
    if texts:
        sums = Checks(list(texts.values()), snapshot.schema)
        for batch in rows(sums.columns):
            sums.add(batch)
        for name, one in zip(texts, sums.results(), strict=True):
            found[name] = CheckResult(name, one.holds, one.figures)
    for name, check in checks.items():
        if not isinstance(check, Check):
            found[name] = _called(name, check, given)
    return found


def _called(name: str, check: Callable[[Any], object], given: Callable[[], Any]) -> CheckResult:
    try:
        result = check(given())
    except Exception as error:
        text = reason_of(error) if isinstance(error, TxlogError) else f"{type(error).__name__}: "
        text = text if isinstance(error, TxlogError) else f"{text}{error}"
        return CheckResult(name, False, {"error": text})
    plain = result.as_py() if isinstance(result, pa.Scalar) else result
    return CheckResult(name, bool(plain), {"result": plain})


def _added(diff: Diff) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a difference that its end has."""
    kinds = arrow_array(_NEW, pa.string())
    for batch in diff.to_batches():
        yield batch.filter(pc.is_in(batch.column(CHANGE_TYPE), value_set=kinds))
