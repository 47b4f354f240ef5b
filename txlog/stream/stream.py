"""A stream over a table: the new offset, and the work between two offsets.

This module does not use Spark. Rules: spec/streaming.md.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from txlog.base.effects import REAL, Effects
from txlog.base.errors import (
    CommitConflictError,
    InvalidInputError,
    LogCorruptError,
    NotFoundError,
    TxlogError,
)
from txlog.changes.change_plan import ChangeFile
from txlog.changes.changes import feed_read_plan, possible_changes, require_feed
from txlog.expressions.bind import bind
from txlog.expressions.tree import Expression
from txlog.fragments.fragment import Fragment
from txlog.fragments.rows import FragmentRows
from txlog.log.names import LogFile
from txlog.scan.read_plan import ReadPlan, choose_fields, read_plan
from txlog.snapshot.commits import is_gone
from txlog.snapshot.load import commit_at, list_log, load_snapshot
from txlog.snapshot.snapshot import Snapshot
from txlog.snapshot.time_travel import version_from
from txlog.store.base import Store
from txlog.store.branches import branch_id, other_branch
from txlog.stream.offsets import (
    Limits,
    Step,
    StreamOffset,
    advance,
    is_undecided,
    parse_offset,
    unit_ranges,
)
from txlog.stream.version_files import ChangePolicy, as_fragments, require_one_policy
from txlog.stream.versions import StreamVersions, VersionUnits

_LOOK_AGAIN_S = 10.0
_LOOKS = 5  # The listings for one commit before a missing file raises.


@dataclass(frozen=True)
class Words:
    """What errors about lost commits advise."""

    anew: str = "Start the query with a new checkpoint"
    skip: str = (
        "Start the query with a new checkpoint, or set failOnDataLoss=false to continue without "
        "the lost rows; delta.logRetentionDuration keeps commits for longer"
    )


class CommitsAhead:
    """Finds the commit of a version, which may exist, not exist yet, or no longer exist.

    A stream asks for the next commit many times a second, so this checks only one file. From time
    to time it lists the log: a later version shows that the commit is lost.
    """

    def __init__(
        self,
        store: Store,
        *,
        pass_over: bool,
        effects: Effects = REAL,
        words: Words = Words(),
    ) -> None:
        self._words = words
        self._store = store
        self._pass_over = pass_over
        self._effects = effects
        self._listed: dict[int, LogFile] = {}
        self._listed_s: float | None = None

    def find(self, version: int, *, exists: bool = False) -> LogFile | None:
        """Return a version's commit, or None if the version does not exist yet.

        If the commit is lost and lost commits are skipped, it returns the next existing commit.

        Parameters
        ----------
        exists
            Whether the version is known to exist, or to have existed.

        Raises
        ------
        NotFoundError
            The commit is lost (rule STR-10), or the log no longer has the version before it
            (STR-12). The error names the version.
        """
        found = self._listed.get(version)
        if found is not None:
            return found
        if not self._is_due():
            found = commit_at(self._store, version)
            if found is not None or not exists:
                return found
        last = self._list(version)
        if version in self._listed:
            return self._listed[version]
        if last < version - 1:
            raise NotFoundError(
                path=self._store.root,
                version=version - 1,
                reason=f"the stream has read version {version - 1}, but the log does not have it: "
                "the table was removed, replaced or restored from a copy",
                remedy=self._words.anew,
            )
        if last < version:
            return None
        if not self._listed:  # Only a checkpoint was listed, and the commit may be newer.
            found = commit_at(self._store, version)
            if found is not None:
                return found
        kept = min(self._listed, default=None)
        if self._pass_over:
            return None if kept is None else self._listed[kept]
        raise NotFoundError(
            path=self._store.root,
            version=version,
            reason=f"the commit of version {version} was cleaned up before it was read; "
            + (f"the log goes on with version {kept}" if kept else "only a checkpoint is left"),
            remedy=self._words.skip,
        )

    @property
    def last_listed(self) -> int:
        """The latest version whose commit was listed; -1 for none."""
        return max(self._listed, default=-1)

    def has(self, version: int) -> bool:
        """Return whether a listing has shown the commit of a version."""
        return version in self._listed

    def list_again(self) -> None:
        """Forget all listed commits, and list the log at the next call."""
        self._listed, self._listed_s = {}, None

    def forget_before(self, version: int) -> None:
        """Forget the listed commits before a version."""
        self._listed = {at: file for at, file in self._listed.items() if at >= version}

    def _is_due(self) -> bool:
        """Return whether to list the log before a commit counts as not written yet."""
        if self._listed_s is None:
            return True
        return self._effects.monotonic_s() - self._listed_s >= _LOOK_AGAIN_S

    def _list(self, version: int) -> int:
        """List the commits since a version; return the last version in the log.

        It is -1 if the log does not have the version before.
        """
        since = max(version - 1, 0)
        files = [file for file in list_log(self._store, since=since) if file.kind != "checksum"]
        self._listed = {
            file.version: file
            for file in files
            if file.kind == "commit" and file.version >= version
        }
        self._listed_s = self._effects.monotonic_s()
        return max((file.last_version for file in files), default=-1)


MAX_FILES = 1000  # The default limit of a micro-batch.


@dataclass(frozen=True)
class StreamOptions:
    """The options of a stream. An immutable value that pickles."""

    start_version: int | Literal["latest"] | None = None
    start_ms: int | None = None  # Instead of a version: the first version at this time or later.
    limits: Limits = field(default_factory=lambda: Limits(files=MAX_FILES))
    policy: ChangePolicy = field(default_factory=ChangePolicy)
    changes: bool = False  # Read the change data feed.
    fail_on_data_loss: bool = True
    columns: tuple[str, ...] | None = None
    where: Expression | None = None


def commit_facts(store: Store, version: int) -> tuple[int, int | None] | None:
    """Return the size and time of a version's commit, or None if there is no such file."""
    file = commit_at(store, version)
    return None if file is None else (file.size, file.modified_ms)


def is_replaced(
    store: Store, table: str, version: int, facts: tuple[int, int | None] | None
) -> bool:
    """Return whether the place of a table has another one since a version had some facts.

    `table` is its id. The latest version is loaded only if the facts are others by now.
    """
    if commit_facts(store, version) in (facts, None):
        return False
    return load_snapshot(store).metadata.id != table


class TableStream:
    """The new rows of a table, or its changes, from one offset to the next.

    It is opened at the latest version, and its rows have the columns of this version. It reads only
    the log; `work` returns the files to read, which any process can do.

    Raises
    ------
    InvalidInputError
        Options contradict each other; a column is unknown, or the predicate does not fit.
    UnsupportedFeatureError
        Changes are requested, and the table does not record them.
    """

    def __init__(self, store: Store, options: StreamOptions, effects: Effects = REAL) -> None:
        require_one_policy(options.policy)
        self._store = store
        self._options = options
        self._table = load_snapshot(store)
        self.schema = self._table.schema
        self.plan = _read_plan(self._table, options)
        self._ahead = CommitsAhead(store, pass_over=not options.fail_on_data_loss, effects=effects)
        self._versions = StreamVersions(
            store,
            self._table,
            options.policy,
            changes=options.changes,
            reading=self.plan,
        )
        self._head = self._table.version  # The latest version that is known to exist.
        self._head_facts = commit_facts(self._store, self._head)
        self._last: int | None = None
        self._at: StreamOffset | None = None

    def stop_at_latest(self) -> None:
        """Use the table's current version as the last one."""
        self._last = self._table.version

    def latest(self, start: Mapping[str, Any], limits: Limits | None = None) -> dict[str, Any]:
        """Return the offset at the end of the next micro-batch; `start` if there is nothing new.

        It ends before a version that cannot be read; the error is raised if it must start there.

        Parameters
        ----------
        start
            An offset, as JSON.
        limits
            Default: the limits of the options.

        Raises
        ------
        NotFoundError
            The next version was cleaned up, or the first one does not exist.
        UnsupportedFeatureError
            The next version changes rows or columns.
        InvalidInputError
            The offset is of another table, or of another source.
        """
        at = self._begin() if is_undecided(start) else self._resumed(start)
        self._versions.forget_before(at)
        self._ahead.forget_before(at.version)
        wanted = self._options.limits if limits is None else limits
        self._at = advance(at, self._steps(at), wanted)
        return self._at.to_json()

    def reached(self) -> dict[str, Any] | None:
        """Return the offset after the latest known version, without looking for newer ones."""
        if self._at is None:
            return None
        known = max(self._head, self._ahead.last_listed)
        return replace(self._at, version=known + 1, index=0).to_json()

    def work(
        self, start: Mapping[str, Any], end: Mapping[str, Any]
    ) -> list[Fragment] | list[ChangeFile]:
        """Return the work between two offsets; it is the same each time, as long as the log has it.

        It has fragments or files of changes, without those that the predicate excludes. Errors as
        for `latest`.
        """
        last = self._resumed(end)
        first = last.start if is_undecided(start) else self._resumed(start)
        fragments: list[Fragment] = []
        changes: list[ChangeFile] = []
        kept = 0  # The commits before this version are lost.
        for part in unit_ranges(first, last):
            if part.version < kept:
                continue
            version = self._versions.snapshot(part.version) if part.in_snapshot else None
            if version is None:
                file, version = self._found(part.version, exists=True)
                if file is None or version is None or file.version != part.version:
                    if self._options.fail_on_data_loss:
                        raise self._behind(part.version)
                    if file is None:
                        break
                    kept = file.version
                    continue
            if isinstance(version.units, tuple):
                found = list(version.units[part.first : part.stop])
                changes.extend(possible_changes(found, self.plan, self._table))
                continue
            rows = self._possible(version.units.between(part.first, part.stop))
            for fragment in as_fragments(rows):
                if self._options.changes:
                    changes.append(ChangeFile(part.version, version.made_ms, "insert", fragment))
                else:
                    fragments.append(fragment)
        return changes if self._options.changes else fragments

    def _begin(self) -> StreamOffset:
        """Return the start of a new stream (rule STR-3)."""
        latest, chosen = self._table.version, self._options.start_version
        if self._options.start_ms is not None:
            chosen = version_from(self._store, self._table, self._options.start_ms)
        if chosen is None:
            return self._offset(latest, initial=True)
        first = latest + 1 if chosen == "latest" else chosen
        if chosen != "latest" and first > latest:
            raise NotFoundError(
                path=self._store.root,
                version=first,
                reason=f"startingVersion is later than the latest version, {latest}",
                remedy="Set startingVersion=latest to begin with the next version",
            )
        return self._offset(first, initial=False)

    def _offset(self, began: int, *, initial: bool) -> StreamOffset:
        table, changes = self._table.metadata.id, self._options.changes
        branch = branch_id(self._store)
        return StreamOffset(table, began, initial, began, changes=changes, branch=branch)

    def _resumed(self, offset: Mapping[str, Any]) -> StreamOffset:
        found = parse_offset(offset)
        if found.table != self._table.metadata.id:
            raise InvalidInputError(
                argument="checkpointLocation",
                reason=f"the checkpoint belongs to another table (id {found.table}) than the "
                f"current one at {self._store.root} (id {self._table.metadata.id})",
                remedy="Start the query with a new checkpoint",
            )
        if not found.is_branch_known:
            found = replace(found, branch=branch_id(self._store), is_branch_known=True)
        if other := other_branch(found.branch, self._store):
            raise InvalidInputError(
                argument="checkpointLocation",
                reason=f"the checkpoint is of {other}",
                remedy="Start the query with a new checkpoint",
            )
        if found.changes != self._options.changes:
            raise InvalidInputError(
                argument="readChangeFeed",
                reason=f"the checkpoint is of a stream of {'changes' if found.changes else 'rows'}",
                remedy=f"Set readChangeFeed={str(found.changes).lower()}, or start the query with "
                "a new checkpoint",
            )
        if found.version > self._head + 1:
            raise self._behind(found.version - 1)
        return found

    def _steps(self, at: StreamOffset) -> Iterator[Step]:
        version = at.version
        try:
            if at.in_snapshot:
                yield Step(version, self._versions.snapshot(version).sizes)
                version += 1
            while self._last is None or version <= self._last:
                known = version <= self._head and self._options.fail_on_data_loss
                was_listed = self._ahead.has(version)  # Then one listing had the last one, too.
                file, found = self._found(version, exists=known)
                if file is None or found is None:
                    return
                if file.version > self._head:
                    if not was_listed:
                        self._require_same_table(file.version)
                    self._head, self._head_facts = file.version, (file.size, file.modified_ms)
                yield Step(file.version, found.sizes, whole=self._options.changes)
                version = file.version + 1
        except TxlogError:
            if version == at.version:
                raise
            # Offsets before it are read first, so that a new start can begin there.

    def _found(self, version: int, *, exists: bool) -> tuple[LogFile | None, VersionUnits | None]:
        """Return a version's commit and its units, or the next ones; errors as for `find`.

        The units are None if the stream has no such commit, or ends before it.
        """
        looks = _LOOKS
        while True:
            file = self._ahead.find(version, exists=exists)
            if file is None or (self._last is not None and file.version > self._last):
                return None, None
            try:
                return file, self._versions.commit(file)
            except LogCorruptError as error:
                # A clean-up after the listing may have deleted it: the next listing shows this.
                looks -= 1
                if not is_gone(error) or not looks:
                    raise
                self._ahead.list_again()
                exists = True

    def _require_same_table(self, version: int) -> None:
        """Raise if the version before a new one is of another table by now (STR-12).

        Few commits name their table, and another one may have more versions by now.
        """
        table = self._table.metadata.id
        if is_replaced(self._store, table, self._head, self._head_facts):
            raise CommitConflictError(
                version=version,
                rule="STR-12",
                path=self._store.root,
                reason="another table replaced this one after the query was started",
                remedy="Start the query with a new checkpoint",
            )

    def _behind(self, version: int) -> NotFoundError:
        return NotFoundError(
            path=self._store.root,
            version=version,
            reason=f"the checkpoint refers to version {version}, but the log does not have it",
            remedy="Start the query with a new checkpoint. If the table was restored from a copy, "
            "rows may be missing",
        )

    def _possible(self, rows: FragmentRows) -> FragmentRows:
        """Omit fragments that the predicate excludes."""
        if self.plan.where is None:
            return rows
        return rows.filter(self._versions.possible(rows))


def _read_plan(table: Snapshot, options: StreamOptions) -> ReadPlan:
    columns = None if options.columns is None else list(options.columns)
    if options.changes:
        require_feed(table)
        return feed_read_plan(table, columns, options.where)
    # Metadata columns are of one version, and a stream reads many.
    if columns is not None:
        choose_fields(table.schema, columns)
    if options.where is not None:
        bind(options.where, table.schema)
    # Tasks need only this part of the plan of a scan.
    return read_plan(table, columns=columns, where=options.where)
