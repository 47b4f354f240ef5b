"""`Table.follow`: the versions of a table as they are committed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar

from txlog.base.errors import InvalidInputError, InvalidTypeError, require_whole
from txlog.snapshot.time_travel import snapshot_at
from txlog.stream.follow import Follower, Token, other_table, waited

if TYPE_CHECKING:
    from txlog.changes.changes import Changes
    from txlog.commit.context import Context
    from txlog.snapshot.commits import Commit
    from txlog.snapshot.snapshot import Snapshot

TableT = TypeVar("TableT")


class TableChange(Generic[TableT]):
    """A version that `Table.follow` has found.

    `version` is its number, and `token` a text with which `Table.follow` continues after it.
    """

    def __init__(
        self,
        opened: Callable[[int], TableT],
        commit: Commit,
        token: Token,
        feed: Callable[[TableT], Changes] | None,
    ) -> None:
        self._opened = opened
        self._commit = commit
        self._feed = feed
        self._table: TableT | None = None
        self._rows: Changes | None = None
        self.version: int = commit.version
        self.token: str = str(token)

    def __repr__(self) -> str:
        return f"<txlog.TableChange: version {self.version}, {self.operation or 'unknown'}>"

    @property
    def operation(self) -> str | None:
        """The operation of the commit, such as WRITE or MERGE; None if it does not say it."""
        operation = self.info.get("operation")
        return operation if isinstance(operation, str) else None

    @property
    def info(self) -> Mapping[str, Any]:
        """The `commitInfo` of the commit, as in `Table.history`, but without `timestamp`."""
        info = self._commit.info
        found = {} if info is None else info.to_json()
        return {**found, "version": self.version}

    @property
    def table(self) -> TableT:
        """The table at this version. It is loaded at its first use.

        Raises
        ------
        NotFoundError
            The version was cleaned up meanwhile.
        """
        if self._table is None:
            self._table = self._opened(self.version)
        return self._table

    @property
    def rows(self) -> Changes:
        """The rows that this version changed, of the change data feed; see `Table.changes`.

        Raises
        ------
        InvalidInputError
            The table is not followed with `changes=True`.
        UnsupportedFeatureError
            The version does not record its changes.
        """
        if self._feed is None:
            raise InvalidInputError(
                argument="changes",
                reason="versions are followed, not the rows that they change",
                remedy="Follow the changes, for which the table needs delta.enableChangeDataFeed",
            )
        if self._rows is None:
            self._rows = self._feed(self.table)
        return self._rows


def follow(
    context: Context,
    own: Snapshot,
    latest: Snapshot,
    opened: Callable[[int], TableT],
    *,
    start: int | str | None,
    token: str | None,
    until: int | Literal["latest"] | None,
    timeout_s: float | None,
    poll_s: float,
    feed: Callable[[TableT], Changes] | None,
    check: Callable[[Snapshot], object],
) -> Iterator[TableChange[TableT]]:
    """Return the versions of a table from one on; arguments and errors as for `Table.follow`.

    Parameters
    ----------
    own, latest
        The version of the caller's object, and the latest one.
    opened
        Opens a version of the table.
    feed
        Returns the rows that a version changed. None: versions are followed.
    check
        Raises if the rows of a version have not the columns that `feed` reads.
    """
    last = latest.version if until == "latest" else until
    if last is not None:
        last = require_whole("until", last)
    for name, value in (("timeout_s", timeout_s), ("poll_s", poll_s)):
        _require_seconds(name, value)
    at = _place(context, own, latest, start, token, changes=feed is not None)
    follower = Follower(context.store, latest, at, effects=context.effects)
    if feed is not None and at.next > latest.version:
        from txlog.changes.changes import require_feed

        require_feed(latest)
    if feed is not None:
        try:
            check(latest)
        except InvalidInputError:
            if at.next > latest.version:
                raise
            # Its columns may have been dropped after the version that comes first.
            check(snapshot_at(context.store, at.next, catalog=latest.catalog))
    found = waited(follower, last=last, timeout_s=timeout_s, poll_s=poll_s, effects=context.effects)
    return (TableChange(opened, commit, after, feed) for commit, after in found)


def _place(
    context: Context,
    own: Snapshot,
    latest: Snapshot,
    start: int | str | None,
    token: str | None,
    *,
    changes: bool,
) -> Token:
    """Return where to begin."""
    table = own.metadata.id
    if token is None:
        if table != latest.metadata.id:
            raise other_table(context.store, latest.version)
        if isinstance(start, str):
            start = snapshot_at(context.store, start, catalog=latest.catalog).version
        first = own.version + 1 if start is None else require_whole("start", start)
        return Token.at(context.store, table, first, changes=changes)
    if start is not None:
        raise InvalidInputError(
            argument="token",
            reason="start and token are both given",
            remedy="Pass only one of them",
        )
    found = Token.parse(token)
    if found.changes != changes:
        raise InvalidInputError(
            argument="changes",
            reason="the token is of following "
            + ("the rows of changes" if found.changes else "versions"),
            remedy=f"Pass changes={found.changes}",
        )
    return found


def _require_seconds(name: str, value: object) -> None:
    if value is None and name == "timeout_s":
        return
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidTypeError(
            argument=name, reason=f"seconds were expected, not {value!r}", remedy="Pass a number"
        )
    if not 0 <= value < 10**9 or (name == "poll_s" and not value):
        raise InvalidInputError(
            argument=name,
            reason=f"{value!r} is not a number of seconds"
            + (" above 0" if name == "poll_s" else ""),
            remedy="Pass a number such as 5",
        )
