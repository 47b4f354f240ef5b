"""`Dataset`: the commits of one data set, and the training sets that are made from them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace as _with
from typing import TYPE_CHECKING, Any

from txlog.base.errors import (
    DataFileError,
    InvalidInputError,
    InvalidTypeError,
    NotFoundError,
    named_for_callers,
    require_mappings,
    require_texts,
    require_whole,
)
from txlog.base.moments import require_duration
from txlog.extend import SchemaMode, require_app_version
from txlog.training.datasets.access import UNCHANGED, Unchanged
from txlog.training.datasets.branch_state import (
    EndBranch,
    MakeBranch,
    closed,
    ended,
    on_branches,
    open_branch,
    spared,
)
from txlog.training.datasets.commands import Ask, Mark, Share, Tag
from txlog.training.datasets.commits import digest_of
from txlog.training.datasets.diff import Diff
from txlog.training.datasets.events import DatasetState
from txlog.training.datasets.home import Home, number_of
from txlog.training.datasets.lifecycle import (
    commit_request,
    made_with,
    purge_commit,
    purge_dataset,
    update,
)
from txlog.training.datasets.limits import (
    Limits,
    require_no_number,
    require_user,
    require_users,
)
from txlog.training.datasets.lineage import Direction, Graph, node_of, trace
from txlog.training.datasets.prepare import submit
from txlog.training.datasets.training_set import TrainingSet, ask, pick, with_where
from txlog.training.datasets.types import stores_objects, type_of
from txlog.training.datasets.types.base import type_key
from txlog.training.datasets.values import FORMS, WHERE, Access, Code, Commit, Summary

if TYPE_CHECKING:
    from txlog import Table

_VERSION_HASH = re.compile("v1[0-9a-f]{40}")
_FIRST_LOOK_S, _LONGEST_LOOK_S = 0.01, 1.0
_LONGEST_PUBLISH_S = 5.0  # Of the wait for a publisher that reads the commits.


class Dataset:
    """A data set: a table whose rows belong to numbered commits.

    `Datasets.create` and `Datasets.dataset` return it. Every call reads the folder again, so it
    sees the changes of other processes.
    """

    def __init__(self, home: Home, dataset_id: int, uuid: str, type: str) -> None:
        self.dataset_id = dataset_id
        self.uuid = uuid
        self.type = type
        self._home = home

    @classmethod
    def _of(cls, home: Home, state: DatasetState) -> Dataset:
        return cls(home, state.dataset_id, state.uuid, state.type)

    def __repr__(self) -> str:
        return f"txlog.training.Dataset({self.dataset_id}, {self.name!r}, {self.type!r})"

    @property
    def name(self) -> str:
        """The name."""
        return self._state().name

    # Access ---------------------------------------------------------------------------------

    @property
    def access(self) -> Access:
        """Who may use it at a service with tokens."""
        return self._home.ledger.state().datasets[self.dataset_id].access

    def share(
        self,
        *,
        readers: Sequence[str] | Unchanged | None = UNCHANGED,
        writers: Sequence[str] | Unchanged | None = UNCHANGED,
        owner: str | None = None,
    ) -> Access:
        """Set which tokens may use it at a service, and return its access.

        What is not given stays as it is.

        It limits the service alone: who can read the folder can read all that is in it.

        Parameters
        ----------
        readers
            The names of tokens that may read it. None: all may. The owner and the writers may
            always read; a token with the right `admin` may do everything.
        writers
            The names of tokens that may change it, if their right is `write`. None: all that may
            read it. An empty list leaves the owner alone.
        owner
            The new owner, who may do both, and call this at the service. None: it stays as it is,
            at first the user who made the data set.

        Raises
        ------
        AccessError
            At a service: the sender does not own it any more.
        InvalidInputError, InvalidTypeError
            A name is none, or an argument is no list.
        NotFoundError
            The data set is deleted.
        """
        self._require_live()
        who = self._home.who
        command = Share(
            self.dataset_id,
            None if owner is None else require_user(owner, "owner"),
            readers if isinstance(readers, Unchanged) else require_users("readers", readers),
            writers if isinstance(writers, Unchanged) else require_users("writers", writers),
            only=who.user if who.is_limited else None,
        )
        return self._home.record(command).datasets[self.dataset_id].access

    # Commits --------------------------------------------------------------------------------

    def update(
        self,
        source: Any,
        message: str = "",
        tags: Mapping[str, str] | None = None,
        *,
        inputs: Sequence[Any] = (),
        code: Code | str | None = None,
        schema_mode: SchemaMode = None,
        txn: tuple[str, int] | None = None,
        replace: bool | int = False,
        branch: str | None = None,
    ) -> Commit:
        """Add a commit, completely or not at all, and return it.

        Parameters
        ----------
        source
            The input of the type: a path or URI, a table, or Arrow data.
        message, tags
            The message and the tags of the commit. Training sets pick commits by tags.
        inputs
            The data from which the rows were made, besides the source: URIs, tables at versions,
            commits and training sets of any data set, or `Input`.
        code
            The program that made them, as a name or a `Code(name, version)`.
        schema_mode
            `merge` adds columns that only the source has; only for the type TABLE.
        txn
            `(application, version)`: a commit that was made with it is returned as it is, also if
            its branch is published by now.
        replace
            Training sets with this commit pick none of those that exist now; or, if a number is
            given, none up to this one: the last one that was read to make the new rows, so that a
            commit that came later is not replaced unseen. Earlier training sets stay, and if the
            commit is hidden, the replaced ones are picked again. Commits of other branches stay.
        branch
            Add it to an open branch (`branch`). Then no training set picks it but those that are
            prepared on the branch, until this is published.

        Raises
        ------
        SchemaMismatchError
            A row does not fit; the error names it. Nothing was committed.
        InvalidInputError
            The source is not allowed, has no rows, or an argument is wrong.
        NotFoundError
            The data set is deleted, or there is no such source.
        CommitConflictError
            Contents that it shares were removed meanwhile, and the source cannot be read again. Or
            the branch was published or discarded meanwhile, without this commit. Or that is so of
            the commit that was made with this `txn`.
        OutcomeUnknownError
            The branch is being published, and it is not known yet whether with this commit.
        """
        home = self._home
        state = self._require_live()
        require_app_version(txn)
        known = made_with(home, state, txn)  # First: its branch may have ended meanwhile.
        if known is not None:
            return self._settled(known)
        into = None if branch is None else open_branch(state.branches, branch)
        if into is not None and schema_mode is not None:
            raise InvalidInputError(
                argument="schema_mode",
                reason="all commits of a data set have the same columns, those of branches, too",
                remedy="Add the columns by a commit without a branch",
            )
        commits = home.commits(state)
        number = 0 if into is None else into.branch_id
        replaced = self._replaced(commits, replace)
        request = _with(
            commit_request(home, message, tags, inputs, code, txn, replaces=replaced),
            spares=spared(commits, replaced, number),
            branch=(number, branch),
        )
        made = update(home, state, type_of(self.type), request, source, schema_mode)
        return self._settled(made)

    def _settled(self, made: Commit) -> Commit:
        """Return a commit that its branch has, or had when it was published. Rule: DST-82."""
        if not made.branch_id:
            return made
        effects = self._home.effects
        until = effects.monotonic_s() + _LONGEST_PUBLISH_S
        pause = _FIRST_LOOK_S
        while True:
            branches = self._state().branches
            branch = branches[made.branch_id]
            if branch.state == "OPEN" or made.commit_id in branch.commits:
                return on_branches(branches, [made])[0]
            if branch.state != "CLOSED":
                raise ended(branch, made)
            if effects.monotonic_s() >= until:
                raise closed(self.table().uri, branch, made)
            effects.sleep_s(pause)
            pause = min(2 * pause, _LONGEST_LOOK_S)

    def _replaced(self, commits: Sequence[Commit], replace: bool | int) -> int:
        """Return the last commit that is replaced; 0 for none."""
        last = len(commits)
        if isinstance(replace, bool):
            return last if replace else 0
        number = require_whole("replace", replace, 0)
        if number > last:
            raise NotFoundError(
                version=number,
                reason=f"there is no commit {number} to replace",
                remedy=f"Choose one up to {last}" if last else "Omit it: there is none yet",
            )
        return number

    def commits(self) -> list[Commit]:
        """Return the commits in order, including hidden and purged ones."""
        return self._home.commits(self._state())

    def commit(self, wanted: int | str | None = None) -> Commit:
        """Return a commit by its number or a name that `tag` gave it. Default: the last one.

        Raises
        ------
        NotFoundError
            There is no such commit.
        """
        state = self._state()
        commits = self._home.commits(state)
        number = number_of(state, wanted)
        plain = [one for one in commits if one.branch is None]
        if number is None and plain:
            return plain[-1]
        if number is None or not 1 <= number <= len(commits):
            raise NotFoundError(
                version=number,
                reason=f"the data set {state.name!r} has no commit {wanted}"
                if wanted is not None
                else f"the data set {state.name!r} has no commit yet",
                remedy=f"Choose one from 1 to {len(commits)}" if commits else "Add one: update",
            )
        return commits[number - 1]

    def summary(self) -> Summary:
        """Return the description of the data set, and its commits."""
        return self._home.summary(self._state())

    def table(self) -> Table:
        """Return the table of all rows; its column `commit_id` has the commit of each row."""
        self._state()
        return self._home.table(self.uuid)

    def verify(self, commit: int | str | None = None) -> list[Commit]:
        """Compute digests again from the current rows, and return the matching commits.

        Parameters
        ----------
        commit
            Default: all commits that are not purged. Then rows of other commits are an error, too.

        Raises
        ------
        DataFileError
            The rows of a commit, or contents in `files/`, differ from what was committed.
        NotFoundError
            There is no such commit, or it is purged.
        """
        commits = self.commits() if commit is None else [self.commit(commit)]
        found = [one for one in commits if not one.purged]
        if commit is not None and not found:
            raise NotFoundError(
                version=commits[0].commit_id,
                reason=f"commit {commits[0].commit_id} is purged: it has no rows",
            )
        table = self.table()
        if commit is None:
            _require_known(table, commits)
        for one in found:
            rows, digest = digest_of(table, one.commit_id)
            if (rows, digest) != (one.rows, one.digest):
                raise _damaged(
                    table,
                    f"commit {one.commit_id} was made of {one.rows} rows with the digest "
                    f"{one.digest}, and has {rows} rows with the digest {digest}",
                )
            if stores_objects(self.type, table.schema.names):
                self._home.require_contents(table, one.commit_id)
        return found

    # Training sets --------------------------------------------------------------------------

    def prepare(
        self,
        commit: int | str | None = None,
        tags: Mapping[str, str] | None = None,
        form: str = "parquet",
        options: Mapping[str, str] | None = None,
        *,
        where: str | None = None,
        split: Mapping[str, float] | None = None,
        part: str | None = None,
        key: str | Sequence[str] | None = None,
        branch: str | None = None,
    ) -> TrainingSet:
        """Pick commits, start to make a training set from them, and return at once.

        The same pick with the same recipe is made only once. Pass its `version_hash` to `fetch`.

        Parameters
        ----------
        commit
            The last commit to use, by its number or name. Default: the last one.
        tags
            Only commits that have all these tags are picked. Hidden commits are never picked.
        form
            `parquet` or `csv` (rule DST-44).
        options
            Options of the type. All types have the option `where`.
        where
            Only examples for which this is true: SQL over the columns of the data set's rows.
            Labels are numbered as without it.
        split, part, key
            Only examples of one part of a split by the hash of a key, as for `Loader`. No later
            commit moves an example to another part.
        branch
            Also commits of this open branch are picked.

        Raises
        ------
        InvalidInputError
            No commit has the tags, or an argument is wrong.
        NotFoundError
            The data set is deleted, or a picked commit was purged meanwhile.
        CommitConflictError
            The branch ended meanwhile without a picked commit.
        """
        home = self._home
        state = self._require_live()
        if form not in FORMS:
            raise InvalidInputError(
                argument="form", reason=f"one of {', '.join(FORMS)} was expected, not {form!r}"
            )
        wanted = home.limits.require_tags({} if tags is None else tags)
        on = 0 if branch is None else open_branch(state.branches, branch, closed=True).branch_id
        commits, last = home.commits(state), number_of(state, commit)
        _require_on_branch(commits, last, on)
        picked = pick(commits, last, wanted, on)
        given = _options(home.limits, with_where(options, where, split, part, key))
        if WHERE in given:
            self._require_predicate(given[WHERE])
        asked = ask(self.uuid, type_key(type_of(self.type)), picked, form, given)
        command = Ask(self.dataset_id, asked, _on_branch(picked, on))
        after, is_new = home.ledger.try_record(command, home.who)
        known = after.dataset(self.dataset_id)
        if is_new or known.sets[asked.version_hash].is_free(home.effects.now_ms()):
            submit(home.job(known, asked), home.ledger, home.runner, home.engine)
            return self.fetch(asked.version_hash)  # One of its commits may be purged by now.
        return home.training_set(known, known.sets[asked.version_hash])

    def _require_predicate(self, where: str) -> None:
        """Raise if a predicate does not fit the columns of the rows."""
        self._home.table(self.uuid).scan(where=where)

    def fetch(self, version_hash: str, wait_s: float = 0) -> TrainingSet:
        """Return the state of a training set: RUNNING, READY with parts, or FAILED with the reason.

        Parameters
        ----------
        version_hash
            The hash that `prepare` returned, or a name from `tag`.
        wait_s
            The longest wait while it is RUNNING, in seconds.

        Raises
        ------
        NotFoundError
            It was never requested, or one of its commits is purged.
        """
        require_texts(version_hash=version_hash)
        require_duration("wait_s", wait_s)
        effects = self._home.effects
        until = effects.monotonic_s() + wait_s
        pause = _FIRST_LOOK_S
        while True:
            state = self._state()
            wanted = state.names.get(version_hash, version_hash)
            one = state.sets.get(wanted) if isinstance(wanted, str) else None
            if one is None:
                raise NotFoundError(
                    reason=f"{state.name!r} has no training set {version_hash!r}",
                    remedy="Call prepare, and take the hash that it returns",
                )
            left = until - effects.monotonic_s()
            if one.state != "RUNNING" or left <= 0:
                return self._home.training_set(state, one)
            effects.sleep_s(min(pause, left))
            pause = min(2 * pause, _LONGEST_LOOK_S)

    def training_sets(self) -> list[TrainingSet]:
        """Return all requested training sets, in the order of the requests."""
        state = self._state()
        return self._home.training_sets(state, state.sets.values())

    # Branches -------------------------------------------------------------------------------

    def branch(self, name: str) -> None:
        """Make a branch for commits that are to be tried or checked first, unless it is open.

        Commits of a branch have numbers of the data set and lie in its table. No training set picks
        them but those that are prepared on the branch, which pick other commits, too.

        Raises
        ------
        InvalidInputError
            The name looks like a number, or is too long.
        CommitConflictError
            A branch of this name is being published.
        NotFoundError
            The data set is deleted.
        """
        self._home.limits.require_name("name", name)
        require_no_number("name", name)
        self._require_live()
        self._home.record(MakeBranch(self.dataset_id, name))

    def branches(self) -> list[str]:
        """Return the names of the branches that are neither published nor discarded."""
        known = self._state().branches.values()
        return [one.name for one in known if one.state in ("OPEN", "CLOSED")]

    def publish(self, name: str) -> list[Commit]:
        """Let all training sets pick the commits of a branch from now on, and return them.

        They appear at one moment. The branch ends. If it is interrupted, call it again.

        Raises
        ------
        NotFoundError
            There is no such branch, or the data set is deleted.
        CommitConflictError
            The branch was discarded meanwhile.
        """
        number = self._branch_of(name)
        # The branch is closed first, so that no commit comes after the list is made.
        self._home.record(EndBranch(self.dataset_id, number, "branch_closed"))
        found = [
            one.commit_id for one in self.commits() if one.branch_id == number and not one.purged
        ]
        self._home.record(EndBranch(self.dataset_id, number, "published", tuple(found)))
        return [one for one in self.commits() if one.commit_id in found]

    def discard(self, name: str) -> None:
        """End a branch without its commits, which stay as hidden ones; `purge` removes them.

        Raises
        ------
        NotFoundError
            There is no such branch, or the data set is deleted.
        CommitConflictError
            The branch was published meanwhile.
        """
        self._home.record(EndBranch(self.dataset_id, self._branch_of(name), "discarded"))

    def _branch_of(self, name: str) -> int:
        require_texts(name=name)
        return open_branch(self._require_live().branches, name, closed=True).branch_id

    # Names, and what is hidden or gone -----------------------------------------------------------

    def tag(self, name: str, target: int | str | None) -> None:
        """Give a name to a commit, by its number, or to a training set, by its hash.

        An existing name is moved; a target of None removes it. A name can be used for a commit or a
        hash, so it must not consist of digits, nor have the form of a version hash.

        Raises
        ------
        InvalidInputError
            The name looks like a number or a hash.
        NotFoundError
            There is no such commit or training set, or the commit is purged.
        """
        self._home.limits.require_name("name", name)
        if target is not None:  # Names that an earlier version allowed can be removed.
            require_no_number("name", name)
            if _VERSION_HASH.fullmatch(name):
                raise InvalidInputError(
                    argument="name",
                    reason=f"the name {name!r} would be taken for the hash of a training set",
                    remedy="Choose another name",
                )
        if isinstance(target, bool) or not isinstance(target, int | str | None):
            raise InvalidTypeError(
                argument="target", reason=f"a number or a hash was expected, not {target!r}"
            )
        self._require_live()
        if isinstance(target, int):
            self.commit(target)
        self._home.record(Tag(self.dataset_id, name, target))

    def hide(self, commit: int | str) -> None:
        """Exclude a commit from later training sets; existing ones keep it."""
        self._mark("hidden", self.commit(_named(commit, "commit")).commit_id)

    def show(self, commit: int | str) -> None:
        """Undo `hide`.

        Raises
        ------
        CommitConflictError
            Its branch ended without it: it stays hidden.
        """
        found = self.commit(_named(commit, "commit"))
        branch = self._state().branches.get(found.branch_id)
        if branch is not None and branch.state in ("PUBLISHED", "DISCARDED"):
            raise ended(branch, found)
        self._mark("shown", found.commit_id)

    def delete(self) -> None:
        """Omit the data set from lists, and refuse changes; `undelete` brings it back."""
        self._mark("deleted")

    def undelete(self) -> None:
        """Undo `delete`.

        Raises
        ------
        AlreadyExistsError
            Now another data set has the name.
        """
        self._mark("undeleted")

    def purge(self, commit: int | str | None = None, *, confirm: str) -> None:
        """Remove the bytes of a commit, or of the whole data set, permanently.

        Training sets with the commit are removed, too, and contents in `files/` to which nothing
        else refers. The number, message, digest and inputs of the commit stay. If a purge is
        interrupted, call it again.

        Parameters
        ----------
        confirm
            The name of the data set again.

        Raises
        ------
        InvalidInputError
            `confirm` is another name. Nothing was done.
        """
        known = self._home.ledger.state().datasets[self.dataset_id]
        if confirm != known.name:
            raise InvalidInputError(
                argument="confirm",
                reason=f"{confirm!r} is not the name of the data set, {known.name!r}",
                remedy="Nothing was removed; to purge it, pass its name",
            )
        if commit is None:
            purge_dataset(self._home, known)
        else:
            purge_commit(self._home, known, self.commit(commit).commit_id)

    # Differences and lineage -------------------------------------------------------------------

    def diff(self, a: int | str, b: int | str, key: str | Sequence[str] | None = None) -> Diff:
        """Return the differences of `b` from `a`.

        Parameters
        ----------
        a, b
            Commits, version hashes, or names. A commit means all commits up to it that are not
            hidden.
        key
            Columns that identify rows, so that rows can be `changed`.
        """
        keys = (key,) if isinstance(key, str) else tuple(key or ())
        state = self._state()
        commits = self._home.commits(state)
        sides = (_named(a, "a"), _named(b, "b"))
        before, after = (self._side(state, commits, one) for one in sides)
        return Diff(before, after, keys, self.table)

    def lineage(
        self, commit: int | str | None = None, direction: Direction = "up", depth: int | None = None
    ) -> Graph:
        """Return the sources of a commit or training set (`up`), or its results (`down`).

        `down` reads all data sets of the folder. Purged commits are included.

        Parameters
        ----------
        commit
            A number, a hash, or a name. Default: the last commit.
        depth
            The largest number of steps. Default: all.
        """
        if depth is not None:
            require_whole("depth", depth)
        state = self._state()
        target = state.names.get(commit, commit) if isinstance(commit, str) else commit
        if not isinstance(target, str):
            target = self.commit(target).commit_id
        elif target not in state.sets:
            self.fetch(target)  # Raises.
        return trace(self._home.lineage_sources(), node_of(self.uuid, target), direction, depth)

    # Within -------------------------------------------------------------------------------------

    def _state(self) -> DatasetState:
        return self._home.ledger.state().dataset(self.dataset_id)

    def _require_live(self) -> DatasetState:
        state = self._state()
        if state.deleted:
            raise NotFoundError(
                reason=f"the data set {state.name!r} ({state.dataset_id}) is deleted",
                remedy=f"Bring it back with datasets.dataset({state.dataset_id}).undelete()",
            )
        return state

    def _mark(self, kind: str, commit_id: int | None = None) -> None:
        self._home.record(Mark(kind, self.dataset_id, commit_id))

    def _side(
        self, state: DatasetState, commits: list[Commit], wanted: int | str
    ) -> tuple[Commit, ...]:
        """Return the commits of one side of a difference."""
        target = state.names.get(wanted, wanted) if isinstance(wanted, str) else wanted
        if isinstance(target, str):
            return self.fetch(target).commits
        number = number_of(state, target)
        on = next((one.branch_id for one in commits if one.commit_id == number), 0)
        return tuple(pick(commits, number, None, on))


def _require_on_branch(commits: Sequence[Commit], number: int | None, branch_id: int) -> None:
    """Raise if a commit is on another branch than that of a training set."""
    for one in commits:
        if one.commit_id == number and one.branch_id not in (0, branch_id):
            raise InvalidInputError(
                argument="commit",
                reason=f"commit {number} is on the branch {one.branch!r}",
                remedy="Prepare on that branch, or publish it first",
            )


def _on_branch(picked: Sequence[Commit], branch_id: int) -> tuple[int, tuple[int, ...]] | None:
    """Return a branch and its picked commits; None for none."""
    found = tuple(one.commit_id for one in picked if one.branch_id == branch_id)
    return (branch_id, found) if branch_id else None


def _named(wanted: int | str, argument: str) -> int | str:
    """Return a number or name; None would mean the last commit, which nobody named."""
    if wanted is None:
        raise InvalidTypeError(argument=argument, reason="a number or a name was expected")
    return wanted


def _options(limits: Limits, options: Mapping[str, str] | None) -> dict[str, str]:
    require_mappings(options=options)
    given = dict(options or {})
    for text in (*given.keys(), *given.values()):
        limits.require_text("options", text)
    return given


def _require_known(table: Table, commits: Sequence[Commit]) -> None:
    """Raise if a table has rows of a commit that is purged or that does not exist."""
    partitions = table.files(["partition_values"])["partition_values"]
    present = {value for part in partitions.chunks for value in part.items.unique().to_pylist()}
    purged = sorted(c.commit_id for c in commits if c.purged and str(c.commit_id) in present)
    if purged:
        raise DataFileError(
            path=table.uri,
            version=table.version,
            reason=f"it has rows of the commits {purged}, which are purged",
            remedy="The purge was interrupted: call purge again, or Datasets.sweep",
        )
    unknown = sorted(present - {str(commit.commit_id) for commit in commits})
    if unknown:
        raise _damaged(table, f"it has rows of the commits {unknown}, which do not exist")


def _damaged(table: Table, reason: str) -> DataFileError:
    return DataFileError(
        path=table.uri,
        version=table.version,
        reason=reason,
        remedy="If its rows were changed by hand, restore the table to an earlier version",
    )


named_for_callers(Dataset)
