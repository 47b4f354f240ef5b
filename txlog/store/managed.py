"""The store of a table whose commits go through a catalog.

A writer stages a commit under a unique name, the catalog ratifies it, and it is published: copied
to its final name. A ratified commit exists, whether it is published or not. Whoever finds one that
is not, publishes it; where this is not possible, its staged bytes are read. Rules: the Delta
protocol, "Catalog-managed tables"; spec/catalog.md.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, TypeVar

from txlog.base.effects import REAL
from txlog.base.errors import (
    InvalidInputError,
    LogCorruptError,
    NotFoundError,
    OutcomeUnknownError,
    StoreError,
    TxlogError,
    UnsupportedFeatureError,
    tidied,
)
from txlog.base.threads import map_ahead
from txlog.log.catalog import STAGED_FOLDER
from txlog.log.names import LOG_FOLDER, commit_name, log_path, parse_name
from txlog.store.base import ForwardingStore, ObjectInfo, Put, Store, is_far, is_there
from txlog.store.catalog_database import (
    CATALOG,
    CatalogDatabase,
    CommitCatalog,
    Proposed,
    Ratification,
    Ratified,
    UnknownAnswerError,
)

_LOG = f"{LOG_FOLDER}/"
_AT_ONCE = 16  # Commits of a transaction that are written at the same time: each one waits.
Answer = TypeVar("Answer")
Listed = TypeVar("Listed", bound=tuple[Any, ...])  # A name with its size and time.


@dataclass(frozen=True)
class ManagedStore(ForwardingStore):
    """Wraps the store of a table; a catalog decides which commits exist."""

    inner: Store
    database: CommitCatalog
    table_id: str
    is_last: bool = False  # Whether the catalog lets the table out with the next commit.
    is_dropped: bool = False  # Whether the catalog dropped the table, which then is only read.

    @property
    def is_managed(self) -> bool:  # type: ignore[override]
        """True."""
        return True

    @property
    def ratifies(self) -> bool:  # type: ignore[override]
        """True."""
        return True

    def require_writable(self) -> None:
        """Accept the store: the catalog's decision is atomic."""

    def latest_version(self) -> int | None:
        """Return the last version that the catalog ratified; its commits are published before."""
        return self._published().latest_version

    # Commits -----------------------------------------------------------------------------------

    def stage(self, version: int, data: bytes) -> Proposed:
        """Write a commit under a unique name, which has no meaning before it is ratified.

        Raises
        ------
        LogCorruptError
            The log has a commit of this version that the catalog does not know.
        """
        if is_there(self.inner, log_path(commit_name(version))):
            latest = self.database.ratified(self.table_id).latest_version
            if latest < version:
                raise self._behind(latest, version)
        name = f"{STAGED_FOLDER}/{version:020d}.{REAL.uuid()}.json"
        self.inner.write_new(log_path(name), data)
        is_near = self.database.is_shared or not is_far(self.inner)
        is_whole = is_near and is_there(self.inner, log_path(commit_name(version - 1)))
        return Proposed(self.table_id, version, name, is_whole, self.is_last, data)

    def unstage(self, proposed: Proposed) -> None:
        """Delete a staged commit that was not ratified."""
        tidied(lambda: self.inner.delete([log_path(proposed.staged)]))

    def publish(self, staged: Mapping[int, str]) -> None:
        """Copy ratified commits to their final names, in order.

        The staged files are deleted after that, which says that the copies are there. If other
        engines follow the catalog, it is told instead, and the staged files stay.

        Raises
        ------
        StoreError
            A commit cannot be copied, or the one before it is not published.
        """
        if staged:
            # Whoever should have published it may have failed. Readers would see a gap.
            self._require_before(min(staged))
        for version, name in sorted(staged.items()):
            path = log_path(commit_name(version))
            try:
                data = self.inner.read(log_path(name))
            except NotFoundError:  # Another process published it meanwhile.
                if not is_there(self.inner, path):
                    raise
            else:
                # Not a put-if-absent: whatever has the name, the catalog's commit counts.
                self.inner.replace(path, data)
        if staged and self.database.is_shared:
            with suppress(TxlogError):
                self.database.published(self.table_id, list(staged))
            return
        with suppress(TxlogError):
            self.inner.delete([log_path(name) for name in staged.values()])
        # On a near store, a look for the staged file is cheaper than a write to the database. The
        # next commit tells the catalog.
        if staged and is_far(self.inner):
            self.database.published(self.table_id, list(staged))

    def _require_before(self, version: int) -> None:
        """Raise unless the commit before a version is published, and so all before that."""
        before = log_path(commit_name(version - 1))
        if version and not is_there(self.inner, before):
            raise StoreError(
                operation="publish",
                path=before,
                table=self.root,
                reason=f"version {version} is to be published, but the version before it is not",
                remedy="Open the table again",
            )

    def put_if_absent(self, path: str, data: bytes) -> Put:
        """Create a file; of a commit, the catalog decides whether it exists."""
        version = _version_of(path)
        if version is None:
            self._require_published(path)
            return self.inner.put_if_absent(path, data)
        known = self._published()
        latest = known.latest_version
        if version <= latest:
            return "exists"
        if self.is_dropped:
            raise NotFoundError(
                path=self.root,
                reason="the table was dropped",
                remedy="Bring it back with the catalog's method undrop",
            )
        if known.is_leaving:
            raise NotFoundError(
                path=self.root,
                reason="the catalog lets the table out: its commits no longer go through it",
                remedy="Open the table again",
            )
        if version > latest + 1:  # The writer has read a version that the catalog does not know.
            raise self._behind(latest, version - 1)
        if commit_staged(self.database, [(self, self.stage(version, data))]) == "ratified":
            return "created"
        self._published()
        return "exists"

    def _published(self) -> Ratified:
        """Return the catalog's answer, without the commits that are or could be published now."""
        answer = self.database.ratified(self.table_id)
        staged = dict(answer.staged)
        if not self.database.is_shared:
            staged = {v: name for v, name in staged.items() if not self._is_public(v, name)}
        if is_far(self.inner) and len(staged) < len(answer.staged):
            # Who published them could not say so. Before a clean-up deletes the copies, it is said.
            with suppress(TxlogError):
                self.database.published(self.table_id, [*(answer.staged.keys() - staged.keys())])
        if not staged:
            return answer._replace(staged={})
        try:
            self.publish(staged)
        except TxlogError:  # Who cannot write, reads the staged bytes.
            return answer._replace(staged=staged)
        return answer._replace(staged={})

    def note_published(self) -> None:
        """Publish what is ratified, and record it, so that a clean-up of the catalog forgets it."""
        known = self.database.ratified(self.table_id)
        left = self._published().staged
        if done := [version for version in known.staged if version not in left]:
            self.database.published(self.table_id, done)

    def _is_public(self, version: int, staged: str) -> bool:
        return not is_there(self.inner, log_path(staged)) and is_there(
            self.inner, log_path(commit_name(version))
        )

    def require_published(self, version: int) -> None:
        """Raise unless all commits up to a version are under their final names."""
        self._require_published(log_path(f"{version:020d}.checkpoint.parquet"))

    def _require_published(self, path: str) -> None:
        """Raise before a checkpoint, or the like, of a version that is not published."""
        file = parse_name(path.removeprefix(_LOG)) if path.startswith(_LOG) else None
        if file is None or file.kind == "checksum":
            return
        answer = self._published()
        if any(version <= file.last_version for version in answer.staged):
            raise StoreError(
                operation="write",
                path=path,
                reason=f"version {min(answer.staged)} is ratified, but it could not be published",
                remedy="Check whether the folder of the table can be written",
            )

    def _behind(self, latest: int, found: int) -> LogCorruptError:
        return LogCorruptError(
            path=log_path(commit_name(found)),
            table=self.root,
            version=found,
            reason=f"the catalog {self.database.place} knows the versions up to {latest}, but the "
            f"log has version {found}: the catalog was restored from an older copy, or a writer "
            "bypassed it",
            remedy="If the commits of the log are right, accept them with the catalog's method "
            "repair. Else move the files of the later versions away",
        )

    # Reading -----------------------------------------------------------------------------------

    def _staged_as(self, path: str) -> str | None:
        """Return the path of a ratified commit's staged bytes if it is not published."""
        version = _version_of(path)
        if version is None:
            return None
        name = self._published().staged.get(version)
        return None if name is None else log_path(name)

    def _asked(self, path: str, ask: Callable[[str], Answer]) -> Answer:
        """Ask for a file; for a commit, also if only its staged bytes exist."""
        try:
            return ask(path)
        except NotFoundError:
            if _version_of(path) is None:
                raise
        staged = self._staged_as(path)
        if staged is not None:
            with suppress(NotFoundError):  # It was published meanwhile.
                return ask(staged)
        return ask(path)

    def read(self, path: str) -> bytes:
        """Return a whole file."""
        return self._asked(path, self.inner.read)

    def info(self, path: str) -> ObjectInfo:
        """Return the name, size and time of a file."""
        return self._asked(path, self.inner.info)._replace(name=path.rpartition("/")[2])

    def open_input(self, path: str, *, size: int | None = None) -> Any:
        """Return a file for random reading."""
        if _version_of(path) is not None and not is_there(self.inner, path):
            return self.inner.open_input(self._staged_as(path) or path, size=size)
        return self.inner.open_input(path, size=size)

    def list_after(self, folder: str, name: str) -> Iterator[ObjectInfo]:
        """Yield the files of a folder whose names are not below `name`, by name, ascending."""
        if not _is_log(folder):
            yield from self.inner.list_after(folder, name)
            return
        answer = self._published()
        yield from self._ratified(list(self.inner.list_after(folder, name)), name, answer)

    def list_briefly(self, folder: str, name: str) -> Iterable[tuple[str, int, int | None]]:
        """Return the files of `list_after`."""
        if not _is_log(folder):
            return self.inner.list_briefly(folder, name)
        answer = self._published()
        return self._ratified(list(self.inner.list_briefly(folder, name)), name, answer)

    def _ratified(self, listed: list[Listed], name: str, answer: Ratified) -> list[Listed]:
        """Return a listing of the log with exactly the commits that the catalog ratified.

        Raises
        ------
        LogCorruptError
            The log has a commit that the catalog does not know.
        """
        last = max(
            (v for one in listed if (v := _version_of(_LOG + one[0])) is not None), default=-1
        )
        if last > answer.latest_version:
            # Other writers may have committed between the two. What is published was ratified.
            answer = self._published()
            if last > answer.latest_version:
                raise self._behind(answer.latest_version, last)
        if not answer.staged:
            return listed
        found = {one[0]: one for one in listed}
        for version, staged in answer.staged.items():
            own = commit_name(version)
            if own >= name:
                info = self._info(staged, own)
                found[own] = info._replace(name=own)  # type: ignore[assignment]
        return sorted(found.values(), key=itemgetter(0))

    def _info(self, staged: str, own: str) -> ObjectInfo:
        """Return the size and time of a staged commit, which may be published meanwhile."""
        try:
            return self.inner.info(log_path(staged))
        except NotFoundError:
            return self.inner.info(log_path(own))

    # Files that follow commits -----------------------------------------------------------------

    def open_output(self, path: str) -> AbstractContextManager[Any]:
        """Return a new file to be written in a `with`."""
        self._require_published(path)
        return self.inner.open_output(path)

    def write_new(self, path: str, data: bytes) -> None:
        """Write a whole new file."""
        self._require_published(path)
        self.inner.write_new(path, data)

    def replace(self, path: str, data: bytes) -> None:
        """Write a file over an existing one."""
        self._require_published(path)
        self.inner.replace(path, data)


class PublishedStore(ForwardingStore):
    """Wraps the store of a table that a catalog manages, for the catalog itself.

    It asks no catalog, so it has the published commits only: to take a table in, and to compare a
    log with what the catalog knows.
    """

    def __init__(self, inner: Store) -> None:
        self.inner = inner

    @property
    def is_managed(self) -> bool:  # type: ignore[override]
        """True."""
        return True


class ReleasedStore(PublishedStore):
    """Wraps the store of a table that its catalog let out, to read a version from before that."""

    def require_writable(self) -> None:
        """Raise: nobody asks the catalog whether it manages the table again.

        Raises
        ------
        UnsupportedFeatureError
            Always.
        """
        raise UnsupportedFeatureError(
            path=self.root,
            features=("catalogManaged",),
            reason="the version is from before the catalog let the table out, and is only read",
            remedy="Open the latest version of the table to write",
        )


def stage_all(commits: Sequence[tuple[ManagedStore, int, bytes]]) -> list[Proposed]:
    """Stage commits of several tables, at the same time; after an error, none of them is left."""
    staged: list[tuple[ManagedStore, Proposed]] = []

    def stage(one: tuple[ManagedStore, int, bytes]) -> Proposed:
        store, version, data = one
        proposed = store.stage(version, data)
        staged.append((store, proposed))
        return proposed

    try:
        return list(map_ahead(stage, commits, workers=_AT_ONCE, ahead=_AT_ONCE))
    except BaseException:
        _unstage(staged)
        raise


def commit_staged(
    database: CommitCatalog,
    staged: Sequence[tuple[ManagedStore, Proposed]],
    *,
    unchanged: Sequence[tuple[str, int]] = (),
    application: tuple[str, int] | None = None,
    transaction_id: str | None = None,
) -> Ratification:
    """Ask a catalog to ratify staged commits, all or none, and publish them or delete them.

    The other arguments and the result are those of `CatalogDatabase.ratify`.

    Raises
    ------
    OutcomeUnknownError
        The answer of the database was lost, and it does not say which commit it ratified. The
        staged files stay.
    """
    proposed = [one for _, one in staged]
    try:
        answer = database.ratify(
            proposed, unchanged=unchanged, application=application, transaction_id=transaction_id
        )
    except UnknownAnswerError as lost:
        answer = "ratified" if _is_ratified(database, proposed, lost) else "lost"
    except MemoryError as error:  # Nobody knows how far the database came.
        raise _unknown(database, proposed, "memory ran out") from error
    except TxlogError:
        _unstage(staged)
        raise
    if answer == "ratified":
        publish_all(staged)
    else:
        _unstage(staged)
    return answer


def _unstage(staged: Sequence[tuple[ManagedStore, Proposed]]) -> None:
    for store, proposed in staged:
        store.unstage(proposed)


def _is_ratified(
    database: CommitCatalog, proposed: Sequence[Proposed], lost: UnknownAnswerError
) -> bool:
    """Return whether commits were ratified whose answer was lost; raise if this is unknown."""
    found: bool | None = None
    with suppress(StoreError):
        found = database.ratified_as(proposed[0]) if proposed else None
    if found is None:  # The database may still be at work on them.
        raise _unknown(database, proposed, lost.cause.reason or lost.cause.summary) from lost
    return found


def _unknown(
    database: CommitCatalog, proposed: Sequence[Proposed], reason: str
) -> OutcomeUnknownError:
    return OutcomeUnknownError(
        path=database.place,
        version=proposed[0].version if proposed else None,
        reason=reason,
        remedy="Open the tables and look for the transaction in their history before you "
        "write again. All of them have it, or none",
    )


def publish_all(commits: Sequence[tuple[ManagedStore, Proposed]]) -> None:
    """Publish ratified commits of several tables, at the same time.

    They exist: if a copy fails, however, the next process makes it.
    """

    def publish(one: tuple[ManagedStore, Proposed]) -> None:
        store, proposed = one
        with suppress(TxlogError):
            store.publish({proposed.version: proposed.staged})

    if len(commits) == 1:
        publish(commits[0])
        return
    deque(map_ahead(publish, commits, workers=_AT_ONCE, ahead=_AT_ONCE), maxlen=0)


def managed_store(store: Store, options: Mapping[str, Any]) -> Store:
    """Return the store of a table through its catalog, if the options name one for it.

    Tables that the catalog does not manage, such as the target of a clone, are opened as usual.
    This asks the database.

    Raises
    ------
    InvalidInputError
        The option is not a URL.
    """
    url = options.get(CATALOG)
    if url is None:
        return store
    if not isinstance(url, str):
        raise InvalidInputError(
            argument="storage_options",
            field=CATALOG,
            reason=f"{CATALOG} is a {type(url).__name__}, not the URL of a database",
            remedy="Take the options from the catalog",
        )
    database = CatalogDatabase(url)
    row = database.table_at(store.root)
    if row is None or row.managed is None:
        return store
    return ManagedStore(store, database, row.table_id)


def is_cleaned_elsewhere(store: Store) -> bool:
    """Return whether the server of a table's catalog alone deletes what is not needed any more."""
    return isinstance(store, ManagedStore) and store.database.is_shared


def require_cleaned_here(store: Store, what: str) -> None:
    """Raise for a clean-up of a table that the server of its catalog cleans up itself.

    The protocol allows one only if the catalog does, and its interface says nothing of the kind.

    Raises
    ------
    UnsupportedFeatureError
        It is such a table. `what` names the operation.
    """
    if is_cleaned_elsewhere(store):
        raise UnsupportedFeatureError(
            path=store.root,
            features=(what,),
            reason=f"{what} is not possible on a managed table of Unity Catalog",
            remedy="Leave it to the server, which cleans up the table itself",
        )


def _version_of(path: str) -> int | None:
    """Return the version of a commit's path, or None for other files."""
    file = parse_name(path[len(_LOG) :]) if path.startswith(_LOG) else None
    return file.version if file is not None and file.kind == "commit" else None


def _is_log(folder: str) -> bool:
    return folder.strip("/") == LOG_FOLDER
