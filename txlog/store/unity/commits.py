"""Commits of managed tables, which Unity Catalog ratifies (`/delta/preview/commits`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson
from pydantic import Field

from txlog.base.errors import (
    InvalidInputError,
    LogCorruptError,
    NotFoundError,
    StoreError,
    TxlogError,
    UnsupportedFeatureError,
)
from txlog.log.catalog import CatalogCommits
from txlog.log.names import commit_name, log_path
from txlog.store.base import Store
from txlog.store.catalog_database import (
    Proposed,
    Ratification,
    Ratified,
    UnknownAnswerError,
)
from txlog.store.unity.client import LATER, TRIES, Empty, LostError, Model, Response, pause
from txlog.store.unity.columns import TABLE_ID, columns_of, properties_of
from txlog.store.unity.tables import UnityTable

_PATH = "/delta/preview/commits"
_UNDECIDED = 500  # From here on, the server may have done what it was asked.


class _Commit(Model):
    version: int
    file_name: str


class _Commits(Model):
    commits: list[_Commit] = Field(default_factory=list)
    latest_table_version: int


@dataclass(frozen=True)
class UnityCommits:
    """Who decides the commits of a managed table; a `CommitCatalog`. It pickles."""

    table: UnityTable
    store: Store  # Of the table, to compare what is published.

    @property
    def place(self) -> str:
        """The address of the catalog."""
        return self.table.client.place

    @property
    def is_shared(self) -> bool:
        """True: Spark and other engines commit through the same catalog."""
        return True

    def ratified(self, table_id: str) -> Ratified:
        """Return the last ratified version of a table, and the commits that are not published.

        Raises
        ------
        NotFoundError
            The table was dropped.
        StoreError
            The answer is damaged.
        """
        found: dict[int, str] = {}
        start = 0
        while True:
            answer = self._ask(start)
            latest = answer.latest_table_version
            if latest == -1 and not answer.commits:  # As servers say that only version 0 is there.
                latest = 0
            names = {one.version: one.file_name for one in answer.commits}
            found |= names
            # A page ends before the latest version if there is another one.
            newest = max(names, default=latest)
            if newest >= latest or newest < start:
                break
            start = newest + 1
        try:
            staged = CatalogCommits(latest, tuple(found.values())).staged_versions()
        except InvalidInputError as error:
            raise self._damaged(error.reason) from error
        if staged.keys() != found.keys():
            raise self._damaged("a commit has a name of another version")
        return Ratified(latest, staged)

    def _ask(self, start: int, end: int | None = None) -> _Commits:
        body = {**self._named, "start_version": start}
        if end is not None:
            body["end_version"] = end
        return self.table.client.ask("GET", _PATH, _Commits, body=body)

    @property
    def _named(self) -> dict[str, Any]:
        return {"table_id": self.table.table_id, "table_uri": self.table.location}

    def _damaged(self, reason: str) -> StoreError:
        client = self.table.client
        reason = f"the answer is not one of Unity Catalog: {reason}"
        return client.failed("GET", client.url(_PATH), reason, LATER)

    def ratify(
        self,
        proposed: Sequence[Proposed],
        *,
        unchanged: Sequence[tuple[str, int]] = (),
        application: tuple[str, int] | None = None,
        transaction_id: str | None = None,
    ) -> Ratification:
        """Ratify a staged commit. It is sent again if no answer comes: it has one effect only.

        Raises
        ------
        UnsupportedFeatureError
            There are several, or the other arguments ask for more than the interface has.
        UnknownAnswerError
            No answer came: the commit may be ratified.
        StoreError
            The catalog refuses it, for example because too many commits are not published.
        """
        if len(proposed) != 1 or unchanged or application is not None:
            raise UnsupportedFeatureError(
                path=self.place,
                features=("transaction",),
                reason="Unity Catalog's interface ratifies one commit of one table at a time",
                remedy="Write one table after the other",
            )
        (one,) = proposed
        client, url = self.table.client, self.table.client.url(_PATH)
        body = self._body(one)
        may_be_done = False
        lost: StoreError | None = None
        for attempt in range(1, TRIES + 1):
            try:
                answer = client.send("POST", url, body=body)
            except LostError as error:
                lost, may_be_done = error.error, may_be_done or error.is_sent
            else:
                decided = self._decided(one, answer)
                if decided is not None:
                    return decided
                if answer.is_success or answer.status >= _UNDECIDED:
                    lost, may_be_done = self._undecided(url, answer), True
                elif not may_be_done:  # The first request was refused, so nothing was done.
                    raise self._refused(url, answer)
                else:
                    break
            if attempt < TRIES:
                pause(attempt)
        assert lost is not None
        if may_be_done:
            raise UnknownAnswerError(lost)
        raise lost

    def _decided(self, one: Proposed, answer: Response) -> Ratification | None:
        """Return the decision that an answer states; None if it states none."""
        if answer.is_success:
            try:
                self.table.client.parsed("POST", self.table.client.url(_PATH), answer, Empty)
            except StoreError:  # Somebody else answered, such as a proxy.
                return None
            return "ratified"
        if answer.status != 409:
            return None
        # A server may refuse a commit that it has accepted before, when that answer was lost.
        try:
            found = self.ratified_as(one)
        except StoreError as error:
            raise UnknownAnswerError(error) from error
        if found is None:
            raise UnknownAnswerError(self._damaged("it knows no commit of the version"))
        return "ratified" if found else "lost"

    def _refused(self, url: str, answer: Response) -> TxlogError:
        """Return the error for a commit that the catalog does not take."""
        error = self.table.client.refused("POST", url, answer)
        if answer.status == 429:
            error.remedy = (
                "Too many commits are not published. Check whether the folder of the table can be "
                "written, and try again"
            )
        return error

    def _undecided(self, url: str, answer: Response) -> StoreError:
        client = self.table.client
        if not answer.is_success:
            refused = client.refused("POST", url, answer)
            if isinstance(refused, StoreError):
                return refused
        try:
            client.parsed("POST", url, answer, Empty)
        except StoreError as error:
            return error
        return self._damaged("it decides nothing")

    def ratified_as(self, proposed: Proposed) -> bool | None:
        """Return whether a proposed commit is ratified; None if its version is still free."""
        answer = self._ask(proposed.version, proposed.version)
        for one in answer.commits:
            if one.version == proposed.version:
                return one.file_name == proposed.staged.rpartition("/")[2]
        if answer.latest_table_version < proposed.version:
            return None
        # It is published, and the catalog has forgotten the name. Each commit has an id of its own.
        try:
            return self.store.read(log_path(commit_name(proposed.version))) == proposed.data
        except NotFoundError:
            return None

    def published(self, table_id: str, versions: Sequence[int]) -> None:
        """Tell the catalog that all commits up to a version are published."""
        body = {**self._named, "latest_backfilled_version": max(versions)}
        self.table.client.ask("POST", _PATH, Empty, body=body)

    def _body(self, one: Proposed) -> dict[str, Any]:
        """Return the request for a staged commit."""
        first, changed = _actions(one)
        info = self.store.info(log_path(one.staged))
        body = {
            **self._named,
            "commit_info": {
                "version": one.version,
                "timestamp": first["inCommitTimestamp"],
                "file_name": one.staged.rpartition("/")[2],
                "file_size": len(one.data),
                "file_modification_timestamp": info.modified_ms or first["inCommitTimestamp"],
            },
        }
        if one.is_whole and one.version:
            body["latest_backfilled_version"] = one.version - 1
        if changed:
            body["metadata"] = self._metadata(changed)
        return body

    def _metadata(self, changed: Mapping[str, Any]) -> dict[str, Any]:
        """Return the facts for the catalog of a commit that changes the metadata.

        Raises
        ------
        NotFoundError
            The name is that of another table now, so nothing tells what the catalog knows.
        InvalidInputError
            It changes the table's id in the catalog.
        """
        info = self.table.client.table(self.table.name)
        if info.table_id != self.table.table_id:
            full = self.table.client.full_name(self.table.name)
            raise NotFoundError(
                path=self.table.address,
                reason=f"{full} is another table now, so the metadata of the one that was opened "
                "cannot be changed by this name",
                remedy="Open the table by the name that it has now",
            )
        known = info.properties
        metadata = changed.get("metaData")
        if metadata is None:
            # Only the protocol changes: the other properties stay as they are.
            return {"properties": {"properties": properties_of(known, changed["protocol"], known)}}
        configuration = metadata.get("configuration", {})
        if TABLE_ID in known and configuration.get(TABLE_ID) != known[TABLE_ID]:
            raise InvalidInputError(
                argument="properties",
                field=TABLE_ID,
                reason="the property is the id by which the catalog knows the table",
                remedy="Leave it as it is",
            )
        stated = properties_of(configuration, changed.get("protocol"), known)
        columns = columns_of(metadata["schemaString"], metadata.get("partitionColumns", ()))
        found: dict[str, Any] = {
            "schema": {"columns": columns},
            "properties": {"properties": stated},
        }
        description = metadata.get("description")
        if description is not None or info.comment:  # An empty one takes the known one away.
            found["description"] = description or ""
        return found


def _actions(one: Proposed) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the `commitInfo` of a commit, and its `metaData` and `protocol`.

    Raises
    ------
    LogCorruptError
        It does not begin with an in-commit timestamp.
    """
    lines = one.data.splitlines()
    first = orjson.loads(lines[0]).get("commitInfo", {}) if lines else {}
    if not isinstance(first.get("inCommitTimestamp"), int):
        raise LogCorruptError(
            path=log_path(one.staged),
            version=one.version,
            reason="a commit of a managed table must begin with an in-commit timestamp",
            remedy="Enable delta.enableInCommitTimestamps for the table",
        )
    changed: dict[str, Any] = {}
    for line in lines:
        if line.startswith((b'{"metaData"', b'{"protocol"')):
            changed |= orjson.loads(line)
    return first, changed
