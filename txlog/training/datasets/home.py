"""The stores, tables and ledger of one folder of data sets, and facts from all of them."""

from __future__ import annotations

import getpass
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from hashlib import sha256
from typing import Any, TypeVar

from txlog import Table, col, lit
from txlog.base.effects import REAL, Effects
from txlog.base.errors import (
    DataFileError,
    LogCorruptError,
    NotFoundError,
    UnsupportedFeatureError,
    require_whole,
    warn_caller,
)
from txlog.base.threads import Engine
from txlog.base.thresholds import Threshold
from txlog.base.version import __version__
from txlog.extend import Context, Snapshot, Store, open_store, open_table, threads_for
from txlog.training.datasets.aside import open_object
from txlog.training.datasets.branch_state import on_branches
from txlog.training.datasets.commands import Command
from txlog.training.datasets.commits import COMMIT_ID, FORMAT_PROPERTY, commits_of
from txlog.training.datasets.events import DatasetState, LedgerState, SetState, printable
from txlog.training.datasets.ingest import object_path
from txlog.training.datasets.ledger import Ledger
from txlog.training.datasets.limits import Limits
from txlog.training.datasets.lineage import Found
from txlog.training.datasets.prepare import Runner, ThreadRunner
from txlog.training.datasets.sources import Sources
from txlog.training.datasets.training_set import TrainingSet
from txlog.training.datasets.values import FORMAT, Asked, Commit, Job, Summary, Who

T = TypeVar("T")
DAMAGED = (DataFileError, LogCorruptError, NotFoundError, UnsupportedFeatureError)
_CHUNK_BYTES: Threshold = 8 << 20


class Home:
    """The stores of a folder of data sets, its ledger, and the known snapshots of its tables.

    Threads may share it.
    """

    def __init__(
        self,
        store: Store,
        *,
        sources: Sources,
        limits: Limits,
        runner: Runner,
        engine: Engine | None = None,
        effects: Effects = REAL,
        by: str | None = None,
        who: Who | None = None,
    ) -> None:
        self.store = store
        self.who = who or Who(os_user(), f"txlog/{__version__}")
        self.sources = sources
        self.limits = limits
        self.runner = runner
        self.effects = effects
        self.engine = engine or threads_for(store)
        self.ledger = Ledger(Context(self.store_of("ledger"), effects), by)
        self._snapshots: dict[str, Snapshot] = {}  # The newest known snapshots, by uuid.

    def __reduce__(self) -> tuple[Any, ...]:
        # The engine and the runner are not pickled, as for a table.
        return _reopened, (self.store, self.sources, self.limits, self.who)

    def acting(self, who: Who) -> Home:
        """Return the same folder for another user or client; both share what is known."""
        other = object.__new__(type(self))  # `copy` would open the folder anew, as pickling does.
        other.__dict__.update(self.__dict__)
        other.who = Who(
            self.who.user if who.user is None else who.user,
            self.who.client if who.client is None else who.client,
            who.is_limited,
        )
        return other

    def record(self, command: Command) -> LedgerState:
        """Append the event of a command of this user; errors as for `Ledger.record`."""
        return self.ledger.record(command, self.who)

    @property
    def root(self) -> str:
        """The folder, as an absolute path or a URI."""
        return self.store.root

    @property
    def options(self) -> Mapping[str, Any]:
        """The storage options."""
        return self.store.options

    def uri(self, path: str) -> str:
        """Return the absolute path or URI of a path below the root."""
        return f"{self.root.rstrip('/')}/{path}"

    def store_of(self, path: str) -> Store:
        """Return the store of a folder below the root."""
        return open_store(self.uri(path), self.options)

    def context(self, uuid: str) -> Context:
        """Return the context of a data set's table."""
        return Context(self.store_of(f"data/{uuid}"), self.effects, self.engine)

    def snapshot(self, uuid: str) -> Snapshot:
        """Return the latest version of a data set's table; errors as for `Table`."""
        return self.table(uuid).snapshot

    def keep(self, uuid: str, snapshot: Snapshot) -> None:
        """Store a version, from which later ones are loaded with only their new commits."""
        self._snapshots[uuid] = snapshot

    def table(self, uuid: str) -> Table:
        """Return a data set's table at its latest version; errors as for `Table`."""
        known, store = self._snapshots.get(uuid), self.store_of(f"data/{uuid}")
        found = open_table(store, snapshot=known, effects=self.effects, engine=self.engine)
        if known is not None:
            found.refresh()
        found.snapshot.memo(_require_known_format)
        self.keep(uuid, found.snapshot)
        return found

    # Facts about a data set -----------------------------------------------------------------

    def commits(self, state: DatasetState) -> list[Commit]:
        """Return the commits in order, including hidden and purged ones."""
        found = commits_of(self.snapshot(state.uuid), state.uuid)
        if state.branches:
            found = on_branches(state.branches, found)
        marked = state.hidden | state.purged_commits
        if not marked:
            return found
        return [
            replace(
                one,
                hidden=one.hidden or one.commit_id in state.hidden,
                purged=one.commit_id in state.purged_commits,
            )
            if one.commit_id in marked
            else one
            for one in found
        ]

    def summary(self, state: DatasetState) -> Summary:
        """Return the description of a data set, and its commits."""
        return self._summary(state, self.commits(state))

    def listed(self, state: DatasetState) -> Summary | None:
        """Return the summary: without commits of a damaged data set, None if it was just purged."""
        commits = self.if_whole(state, self.commits)
        if commits is None and self.ledger.state().datasets[state.dataset_id].purged:
            return None
        return self._summary(state, commits or [])

    def if_whole(self, state: DatasetState, asked: Callable[[DatasetState], T]) -> T | None:
        """Return a function's result for a data set. If this is damaged, warn and return None.

        There is no warning if the data set was purged meanwhile.
        """
        try:
            return asked(state)
        except DAMAGED as error:
            if state.purged or not self.ledger.state().datasets[state.dataset_id].purged:
                message = f"the data set {state.name!r} ({state.dataset_id}) is damaged: {error}"
                warn_caller(message)
            return None

    def require_contents(self, table: Table, commit_id: int) -> None:
        """Raise `DataFileError` unless the contents in `files/` of a commit are complete.

        Call it only if the data set's type stores objects.
        """
        if not {"uri", "sha256"} <= set(table.schema.names):
            return
        where = col(COMMIT_ID) == lit(commit_id)
        for batch in table.scan(columns=["uri", "sha256"], where=where).to_batches():
            for uri, wanted in zip(*(c.to_pylist() for c in batch.columns), strict=True):
                if uri is None or uri != object_path(str(wanted)):
                    continue  # The row itself has the content.
                digest = sha256()
                try:
                    with open_object(self.store, uri) as content:
                        while data := content.read(_CHUNK_BYTES):
                            digest.update(data)
                    found = digest.hexdigest()
                except NotFoundError:
                    found = None
                if found != wanted:
                    wrong = "the file is missing" if found is None else f"the file has {found}"
                    raise DataFileError(
                        path=self.uri(uri),
                        reason=f"commit {commit_id} refers to a content with the SHA-256 {wanted}, "
                        f"but {wrong}",
                        remedy="Restore the file from a backup, or hide the commit",
                    )

    def _summary(self, state: DatasetState, commits: Sequence[Commit]) -> Summary:
        return Summary(
            dataset_id=state.dataset_id,
            uuid=state.uuid,
            name=state.name,
            type=state.type,
            created_ms=state.created_ms,
            last_updated_ms=max([state.created_ms, *(one.created_ms for one in commits)]),
            description=state.description,
            commits=tuple(commits),
            names=dict(state.names),
            deleted=state.deleted,
            access=state.access,
        )

    def training_set(self, state: DatasetState, one: SetState) -> TrainingSet:
        """Return a requested training set."""
        return self.training_sets(state, [one])[0]

    def training_sets(self, state: DatasetState, sets: Iterable[SetState]) -> list[TrainingSet]:
        """Return requested training sets."""
        commits = self.commits(state)
        return [self._training_set(state, one, commits) for one in sets]

    def _training_set(
        self, state: DatasetState, one: SetState, commits: Sequence[Commit]
    ) -> TrainingSet:
        asked = one.asked
        wanted = set(asked.commit_ids)
        folder = self.uri(f"sets/{state.uuid}/{asked.version_hash}/{one.attempt}")
        return TrainingSet(
            dataset_id=state.dataset_id,
            dataset=state.uuid,
            version_hash=asked.version_hash,
            state=one.state,
            commits=tuple(c for c in commits if c.commit_id in wanted),
            form=asked.form,
            options=dict(asked.options),
            root=folder if one.state == "READY" else None,
            parts=tuple(replace(part, uri=self.uri(part.uri)) for part in one.parts),
            statistics=dict(one.statistics),
            error=one.error,
            storage_options=self.options,
        )

    def job(self, state: DatasetState, asked: Asked) -> Job:
        """Return the job of a worker that makes a training set."""
        return Job(
            dataset_id=state.dataset_id,
            dataset=state.uuid,
            asked=asked,
            table_uri=self.uri(f"data/{state.uuid}"),
            table_version=self.snapshot(state.uuid).version,
            folder=self.uri(f"sets/{state.uuid}/{asked.version_hash}"),
            files_uri=self.uri("files"),
            storage_options=self.options,
        )

    def lineage_sources(self) -> Found:
        """Return the commits and training sets of all data sets, for lineage."""
        commits, sets = [], []
        for state in self.ledger.state().datasets.values():
            known = None if state.purged else self.if_whole(state, self.commits)
            if known is not None:
                commits += [(state.name, one) for one in known]
                sets += [self._training_set(state, one, known) for one in state.sets.values()]
        return Found(commits, sets)


def _reopened(store: Store, sources: Sources, limits: Limits, who: Who) -> Home:
    return Home(store, sources=sources, limits=limits, runner=ThreadRunner(), who=who)


def os_user() -> str | None:
    """Return the name of the user of this process; None if the system does not know it."""
    try:
        return printable(getpass.getuser())
    except (OSError, KeyError, ImportError):  # A container may have no entry for the user's number.
        return None


def _require_known_format(snapshot: Snapshot) -> None:
    found = snapshot.metadata.configuration.get(FORMAT_PROPERTY)
    if found != FORMAT:
        raise UnsupportedFeatureError(
            path=snapshot.root,
            features=(f"{FORMAT_PROPERTY}={found}",),
            reason=f"the table of the data set has the format {found}, and this version of txlog "
            f"knows {FORMAT}",
            remedy="Upgrade txlog",
        )


def number_of(state: DatasetState, wanted: int | str | None) -> int | None:
    """Return the number of a commit by its number or name.

    Raises
    ------
    NotFoundError
        No commit has the name; the error lists the existing names.
    """
    if not isinstance(wanted, str):
        if wanted is not None:
            require_whole("commit", wanted, 1)
        return wanted
    found = state.names.get(wanted)
    if not isinstance(found, int):
        known = ", ".join(name for name, to in state.names.items() if isinstance(to, int))
        raise NotFoundError(
            reason=f"no commit of {state.name!r} has the name {wanted!r}",
            remedy=f"Choose from {known}" if known else "Give one a name: tag",
        )
    return found
