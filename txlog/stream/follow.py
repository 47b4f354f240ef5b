"""Following a table: its versions one after the other, waiting for those that do not exist yet.

Rules: spec/streaming.md, STR-60 to STR-63.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from txlog.actions.table import Metadata
from txlog.base.effects import REAL, Effects
from txlog.base.errors import CommitConflictError, InvalidInputError, LogCorruptError, NotFoundError
from txlog.log.names import LogFile, commit_name
from txlog.snapshot.commits import Commit, is_gone, read_commit
from txlog.snapshot.snapshot import Snapshot
from txlog.store.base import Store, is_far
from txlog.store.branches import branch_id, other_branch
from txlog.stream.stream import CommitsAhead, Words, commit_facts, is_replaced

_FORMAT = 1
_FIRST_WAIT_S = 0.05
_LOOKS = 5  # The listings for one commit before a missing file raises.
_ANEW = "Follow the table anew, without the token: for its rows as they are, scan a version first"
WORDS = Words(
    anew=_ANEW,
    skip="Keep commits for longer with delta.logRetentionDuration, or follow more often",
)


@dataclass(frozen=True)
class Token:
    """The place of a follower between two versions. It can be stored as text."""

    table: str  # The table's id.
    next: int  # The version that comes next.
    changes: bool  # Whether the rows of the change feed are followed.
    branch: str | None = None  # The id of the branch that is followed; None: the table itself.

    def __str__(self) -> str:
        """Return the token as text."""
        found = {
            "format": _FORMAT, "table": self.table, "next": self.next, "changes": self.changes
        }  # fmt: skip
        if self.branch is not None:
            found["branch"] = self.branch
        return json.dumps(found, separators=(",", ":"))

    @classmethod
    def parse(cls, text: object) -> Token:
        """Parse a token.

        Raises
        ------
        InvalidInputError
            The text is no token.
        """
        found: Any = None
        if isinstance(text, str):
            try:
                found = json.loads(text)
            except (ValueError, RecursionError):
                found = None
        kinds = {"format": int, "table": str, "next": int, "changes": bool}
        if isinstance(found, dict) and "branch" in found:
            kinds["branch"] = str
        if not isinstance(found, dict) or {n: type(v) for n, v in found.items()} != kinds:
            raise _bad_token(f"{text!r} is not a token", "Pass the token of a change, as it is")
        if found["format"] != _FORMAT or found["next"] < 0:
            raise _bad_token(f"{text} is a token of another form", "Follow with the same version")
        return cls(found["table"], found["next"], found["changes"], found.get("branch"))

    @classmethod
    def at(cls, store: Store, table: str, version: int, *, changes: bool) -> Token:
        """Return the place before a version of the table or branch that a store shows."""
        return cls(table, version, changes, branch_id(store))


class Follower:
    """The versions of one table in their order, from one on.

    `peek` looks whether the next version exists, and `take` moves on. Whoever follows several
    tables asks each of its followers, and takes from the one whose version comes first.
    """

    def __init__(
        self, store: Store, latest: Snapshot, at: Token, *, effects: Effects = REAL
    ) -> None:
        """Take the latest version of the table, and the place to begin.

        Raises
        ------
        InvalidInputError
            The token is of another table, or of another branch.
        NotFoundError
            The version before the place does not exist.
        """
        self._store = store
        self._table = latest.metadata.id
        if at.table != self._table:
            raise _bad_token(
                f"the token is of another table (id {at.table}) than the one at {store.root} "
                f"(id {self._table})",
                "Pass the token of this table, or follow it anew",
            )
        if other := other_branch(at.branch, store):
            raise _bad_token(
                f"the token is of {other}",
                "Follow what the token is of, or follow anew without it",
            )
        if at.next > latest.version + 1:
            raise NotFoundError(
                path=store.root,
                version=at.next - 1,
                reason=f"version {at.next - 1} comes before what is followed, but the latest one "
                f"is {latest.version}",
                remedy="Begin with an existing version, or with the next one. If the table was "
                "restored from a copy, versions may be missing",
            )
        self.at = at
        self._head = latest.version
        self._began = latest.version, commit_facts(store, latest.version)
        self._ahead = CommitsAhead(store, pass_over=False, effects=effects, words=WORDS)
        self._found: Commit | None = None
        self._taken: Commit | None = None
        self._size = 0  # Of the file of the commit that was taken last.
        self._found_size = 0

    def peek(self) -> Commit | None:
        """Return the commit of the next version, or None if it does not exist yet.

        Raises
        ------
        NotFoundError
            The commit was cleaned up, or the table is gone.
        CommitConflictError
            Another table has replaced this one.
        """
        if self._found is None:
            self._found = self._read()
        return self._found

    def take(self) -> Token:
        """Move past the next version, and return the place after it."""
        assert self._found is not None
        self._head = max(self._head, self._found.version)
        self._taken, self._size = self._found, self._found_size
        self.at = replace(self.at, next=self._found.version + 1)
        self._ahead.forget_before(self.at.next)
        self._found = None
        return self.at

    def look_again(self) -> Commit | None:
        """Return what `peek` does, after a listing, which shows whether the table is gone."""
        self._ahead.list_again()
        return self.peek()

    def _read(self) -> Commit | None:
        looks, version = _LOOKS, self.at.next
        was_listed = self._ahead.has(version)  # Then one listing had the last one, too.
        exists = version <= self._head
        while True:
            file = self._ahead.find(version, exists=exists)
            if file is None:
                return None
            try:
                commit = read_commit(self._store, file)
            except LogCorruptError as error:
                # A clean-up after the listing may have deleted it: the next listing shows this.
                looks -= 1
                if not is_gone(error) or not looks:
                    raise
                self._ahead.list_again()
                exists = True
                continue
            self._require_same_table(commit)
            # Of a near store, asking costs little, and a listing may be older than another table.
            if not was_listed or not is_far(self._store):
                self._require_same_log(commit.version)
            self._found_size = file.size
            return commit

    def _require_same_log(self, version: int) -> None:
        """Raise if the commit that was taken last is another one by now.

        If none was taken, the table must be that which had the latest version at the beginning.
        """
        taken = self._taken
        if taken is None:
            if is_replaced(self._store, self._table, *self._began):
                raise other_table(self._store, version)
            return
        try:
            info = self._store.info(taken.path)
            if (info.size, info.modified_ms) == (self._size, taken.modified_ms):
                return
            file = LogFile(
                commit_name(taken.version), "commit", taken.version, info.size, info.modified_ms
            )
            now = read_commit(self._store, file)
        except NotFoundError:  # It was cleaned up.
            return
        except LogCorruptError as error:
            if is_gone(error):
                return
            raise
        same = (taken.info_line, taken.controls, taken.rows)
        if (now.info_line, now.controls, now.rows) != same:
            raise other_table(self._store, version)

    def _require_same_table(self, commit: Commit) -> None:
        for _, action in commit.controls:
            if isinstance(action, Metadata) and action.id != self._table:
                raise other_table(self._store, commit.version)


def other_table(store: Store, version: int) -> CommitConflictError:
    """Return the error for a version that is of another table than those before it."""
    return CommitConflictError(
        version=version,
        rule="STR-63",
        path=store.root,
        reason="another table replaced this one, and its versions do not continue those that "
        "were followed",
        remedy=_ANEW,
    )


def waited(
    follower: Follower,
    *,
    last: int | None,
    timeout_s: float | None,
    poll_s: float,
    effects: Effects = REAL,
) -> Iterator[tuple[Commit, Token]]:
    """Yield the commits of a follower with the place after each.

    Parameters
    ----------
    last
        The last version. Default: none is the last.
    timeout_s
        End if no version came for so long. Default: wait for ever.
    poll_s
        The longest wait between two looks at the log.
    """
    waiting_since, wait_s = effects.monotonic_s(), _FIRST_WAIT_S
    while last is None or follower.at.next <= last:
        commit = follower.peek()
        if commit is not None:
            yield commit, follower.take()
            waiting_since, wait_s = effects.monotonic_s(), _FIRST_WAIT_S
            continue
        pause_s = min(wait_s, poll_s)
        if timeout_s is not None:
            left_s = timeout_s - (effects.monotonic_s() - waiting_since)
            if left_s <= 0:
                if follower.look_again() is None:
                    return
                continue
            pause_s = min(pause_s, left_s)
        effects.sleep_s(pause_s)
        wait_s = min(2 * wait_s, poll_s)


def _bad_token(reason: str, remedy: str) -> InvalidInputError:
    return InvalidInputError(argument="token", reason=reason, remedy=remedy)
