"""The state of an opened table."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from txlog.base.errors import named_for_callers

if TYPE_CHECKING:
    from txlog.base.errors import LogCorruptError
    from txlog.commit.app_versions import AnyAppVersion
    from txlog.commit.context import Context
    from txlog.commit.intent import UserMetadata
    from txlog.commit.operation import Done, Operation, Outcome
    from txlog.expressions.tree import Expression
    from txlog.fragments.fragment import FragmentSequence
    from txlog.lookup.indexes import Coverage
    from txlog.lookup.lookup import Lookup, LookupCache
    from txlog.protocol.properties import IndexDefinition
    from txlog.reconcile.files import FileState
    from txlog.scan.plan import ScanPlan
    from txlog.snapshot.snapshot import Snapshot
    from txlog.store.base import Store


class OpenVersion:
    """A snapshot, and values that are read at their first use.

    One object holds both, so threads that share a table never see files and a snapshot of different
    versions. Two concurrent threads may both read; the results are equal.
    """

    def __init__(self, store: Store, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        self._store = store
        self._files: FileState | None = None
        self._fragments: FragmentSequence | None = None
        self._whole: FragmentSequence | None = None
        self._made_ms: tuple[int | None] | None = None
        self._plans: dict[tuple[str, ...], ScanPlan] = {}
        self._indexes: tuple[IndexDefinition, ...] | None = None
        self.lookups: dict[tuple[str, ...] | None, Lookup] = {}  # None means the only index.
        self.coverages: dict[tuple[str, ...], Coverage] = {}

    def files(self) -> FileState:
        """Return the live files and tombstones; errors as `load_files`."""
        if self._files is None:
            from txlog.snapshot.live_files import load_files

            self._files = load_files(self._store, self.snapshot)
        return self._files

    def fragments(self) -> FragmentSequence:
        """Return the fragments; for a large log, only with the columns that a `Fragment` needs."""
        if self._fragments is None:
            from txlog.scan.lazy_plan import is_large, plan_snapshot

            if self._files is None and is_large(self.snapshot):
                plan = plan_snapshot(self._store, self.snapshot, lambda: self.files().live)
                self._fragments = plan.files.fragments()
            else:
                self._fragments = self.whole_fragments()
        return self._fragments

    def whole_fragments(self) -> FragmentSequence:
        """Return the fragments with all columns of their files."""
        if self._whole is None:
            from txlog.scan.files import live_sequence

            self._whole = live_sequence(self.snapshot, self.files().live)
        return self._whole

    def plan(self, columns: list[str], where: Expression | None = None) -> ScanPlan:
        """Plan a scan; a plan without a predicate is cached."""
        from txlog.scan.plan import plan_scan

        plan = self._plans.get(tuple(columns)) if where is None else None
        if plan is None:
            files = self.files().live
            plan = plan_scan(self.snapshot, files, columns=columns, where=where).for_arrow()
            if where is None:
                self._plans[tuple(columns)] = plan
        return plan

    def indexes(self) -> tuple[IndexDefinition, ...]:
        """Return the indexes that the version's properties define."""
        if self._indexes is None:
            from txlog.protocol.properties import index_definitions

            found = index_definitions(self.snapshot.metadata.configuration)
            self._indexes = tuple(found.values())
        return self._indexes

    def made_ms(self) -> int | None:
        """Return the time of the version as time travel uses it; None if it is not known."""
        if self._made_ms is None:
            from txlog.snapshot.time_travel import made_ms

            self._made_ms = (made_ms(self._store, self.snapshot),)
        return self._made_ms[0]


class Handle:
    """The base of all verbs of a table: its location and its current version.

    A method that needs several values of the version reads `_open` once.
    """

    _context: Context
    _outcome: Outcome | None
    _open: OpenVersion

    @property
    def _snapshot(self) -> Snapshot:
        return self._open.snapshot

    @property
    def _zone(self) -> str | None:
        """The time zone of predicates and of values in SQL; None: UTC."""
        return self._context.zone

    def _stand_at(self, snapshot: Snapshot) -> None:
        self._open = OpenVersion(self._context.store, snapshot)

    def _move(self, snapshot: Snapshot) -> None:
        """Move to a version, unless another thread has moved to a newer one."""
        if snapshot is not self._snapshot and snapshot.version >= self._snapshot.version:
            self._stand_at(snapshot)

    def _latest(self) -> Snapshot:
        from txlog.snapshot.load import refresh

        return refresh(self._context.store, self._snapshot)

    def _require_in_place(self) -> None:
        """Raise if another table took the place of this one: call it after a look at the log.

        Raises
        ------
        CommitConflictError, NotFoundError
            As for `require_in_place`.
        """
        from txlog.snapshot.successor import require_in_place

        require_in_place(self._context.store, self._snapshot)

    def _latest_left(self) -> tuple[Snapshot, LogCorruptError | None]:
        """Return the latest version, or what is left of it and why it cannot be loaded."""
        from txlog.base.errors import LogCorruptError
        from txlog.snapshot.salvage import salvaged

        try:
            return self._latest(), None
        except LogCorruptError:
            left = salvaged(self._context.store)
            if left is None:
                raise
            return left.snapshot, left.cause

    def _cached(self) -> LookupCache:
        return self._context.lookups.cache()

    def _run(
        self,
        operation: Operation,
        txn: AnyAppVersion | None,
        user_metadata: UserMetadata | None,
        latest: Snapshot | None = None,
    ) -> Outcome:
        """Execute an operation on the latest version, and move to the new version."""
        from txlog.commit.operation import execute

        base = latest or self._latest()
        return self._finish(
            execute(operation, self._context, base, txn=txn, user_metadata=user_metadata)
        )

    def _finish(self, done: Done) -> Outcome:
        """Move to the version after an operation, and do what follows a commit."""
        from txlog.verbs.settle import settle

        self._move(done.snapshot)
        self._outcome = done.outcome
        lookups = self._context.lookups
        segments = None if lookups.made is None else lookups.made.segments
        settle(self._context, done, segments, segment_folder=lookups.folder)
        return done.outcome


class Namespace:
    """Methods with one subject, as an attribute of a table."""

    _name: ClassVar[str]

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        named_for_callers(cls, f"Table.{cls._name}")

    def __init__(self, table: Handle) -> None:
        self._table = table

    def __repr__(self) -> str:
        return f"{self._table!r}.{self._name}"
