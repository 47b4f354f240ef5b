"""Objects (contents in `files/`): what refers to them, and their removal while writers work.

A store cannot check that nothing refers to a file and delete it in one step, and a process may
pause for any time between the check and the deletion. So an object is first set aside: it is moved
to a name that no writer uses. Then the event `cleared` is appended, and each table gets its number.
A commit that began before the event must check its objects again. After that it is certain whether
something refers to an object. It is deleted, or moved back. Rules: spec/datasets.md, DST-29.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from hashlib import sha256

from txlog.arrow import pc
from txlog.commit.context import Context
from txlog.datasets.commands import CLEARED_RULE, Clear
from txlog.datasets.commits import COMMIT_ID
from txlog.datasets.events import DatasetState
from txlog.datasets.home import Home
from txlog.datasets.ingest import FILES, OBJECT_PATH, StoredObjects, object_path
from txlog.datasets.types import OBJECTS, stores_objects
from txlog.errors import (
    CommitConflictError,
    DataFileError,
    NotFoundError,
    RetriesExhaustedError,
)
from txlog.expressions.tree import Expression, col
from txlog.snapshot.snapshot import Snapshot
from txlog.store.base import Store, is_there, map_many
from txlog.table.table import Table
from txlog.verbs.metadata import Changed, ChangeMetadata

ASIDE = f"{FILES}/.aside"
"""Objects that were set aside: `<uuid>/<sha256>`."""

CLEARED = "txlog.dataset.cleared"
"""A table property: the number of the last event `cleared` that checked the table's commits."""

_CHUNK_BYTES = 8 << 20


def objects_of(home: Home, dataset: DatasetState, where: Expression | None = None) -> set[str]:
    """Return the objects to which the rows of a data set refer, as paths below the root."""
    return _objects_in(home.table(dataset.uuid), dataset, where)


def _objects_in(table: Table, dataset: DatasetState, where: Expression | None) -> set[str]:
    if not stores_objects(dataset.type, table.schema.names):
        return set()
    found: set[str] = set()
    for batch in table.scan(columns=[OBJECTS], where=where).to_batches():
        uris = batch.column(0).unique()
        is_object = pc.match_substring_regex(uris, OBJECT_PATH)
        found.update(uris.filter(is_object).to_pylist())
    return found


def used_by(home: Home, dataset: DatasetState) -> set[str]:
    """Return the objects that the rows and the training sets of a data set refer to."""
    gone = sorted(dataset.purged_commits)
    objects = objects_of(home, dataset, ~col(COMMIT_ID).isin(gone) if gone else None)
    return objects | {part.uri for one in dataset.sets.values() for part in one.parts}


# Removing ------------------------------------------------------------------------------------


def remove_unused(home: Home, objects: Collection[str]) -> None:
    """Remove objects to which no row and no training set refers."""
    left = set(objects)
    for other in home.ledger.state().datasets.values():
        if left and not other.purged:
            left -= used_by(home, other)
    if left:
        set_aside(home, left)
        clear(home)


def set_aside(home: Home, objects: Collection[str]) -> None:
    """Move objects to names that no writer uses; `clear` deletes them."""
    place = f"{ASIDE}/{home.effects.uuid()}"
    home.store.move([(path, f"{place}/{path.rpartition('/')[2]}") for path in sorted(objects)])


def clear(home: Home) -> int:
    """Delete the objects that were set aside, and return their number; used ones are moved back.

    Any process may do this for a process that has stopped. If a data set is damaged, a warning
    names it, and no object is deleted.
    """
    aside = _aside(home.store)
    if not aside:
        return 0
    state = home.ledger.record(Clear())
    used: set[str] = set()
    is_known = True
    for dataset in state.datasets.values():
        if not dataset.purged:
            found = home.if_whole(dataset, partial(_used_after, home, state.cleared))
            used |= found or set()
            is_known = is_known and found is not None
    kept = [path for path in aside if _place_of(path) in used]
    done = [path for path in kept if _is_back(home.store, path)]
    gone = [path for path in aside if _place_of(path) not in used] if is_known else []
    home.store.delete([*done, *gone])
    return len(gone)


def _aside(store: Store) -> list[str]:
    return [f"{ASIDE}/{file.name}" for file in store.list_tree(ASIDE)]


def _place_of(aside: str) -> str:
    """Return the path of an object that was set aside."""
    return object_path(aside.rpartition("/")[2])


def _used_after(home: Home, cleared: int, dataset: DatasetState) -> set[str]:
    """Return the objects that a data set refers to, so that no commit can add an unseen one."""
    table = home.table(dataset.uuid)
    if stores_objects(dataset.type, table.schema.names):
        while cleared_at(table.snapshot) < cleared:
            with _others_may_win(table):
                table._run(_Cleared(home.context(dataset.uuid), cleared), None, None)
        home.keep(dataset.uuid, table.snapshot)
    return used_by(home, dataset)


class _Cleared(ChangeMetadata):
    """Record the number of an event `cleared` in a table, unless it records a later one."""

    name = "SET TBLPROPERTIES"

    def __init__(self, context: Context, cleared: int) -> None:
        super().__init__(context)
        self._cleared = cleared

    def change(self, base: Snapshot) -> Changed:
        """Return the metadata with the number."""
        told = {CLEARED: str(max(self._cleared, cleared_at(base)))}
        configuration = {**base.metadata.configuration, **told}
        metadata = base.metadata.model_copy(update={"configuration": configuration})
        return Changed(metadata, {"properties": told})


def set_property(table: Table, name: str, value: str) -> None:
    """Set a property; refresh the table instead if another process changes the metadata."""
    with _others_may_win(table):
        table.alter.set_properties({name: value})


@contextmanager
def _others_may_win(table: Table) -> Iterator[None]:
    try:
        yield
    except RetriesExhaustedError:
        raise
    except CommitConflictError:
        table.refresh()


def _is_back(store: Store, aside: str) -> bool:
    """Return whether an object is in its place again, after moving it there if needed."""
    path = _place_of(aside)
    if is_there(store, path):
        return True
    digest = sha256()

    def chunks() -> Iterator[bytes]:
        with store.open_input(aside) as content:
            while data := content.read(_CHUNK_BYTES):
                digest.update(data)
                yield data

    def name() -> str:
        if object_path(digest.hexdigest()) != path:
            raise DataFileError(path=aside, reason="a process stopped while it set the file aside")
        return digest.hexdigest()

    with suppress(NotFoundError, DataFileError):  # Another process may have moved the object back.
        StoredObjects(store).put_chunks(chunks(), name)
    return is_there(store, path)


def missing_of(store: Store, objects: Collection[str]) -> list[str]:
    """Return the objects that are not in place; those that were set aside are moved back."""
    paths = sorted(objects)
    found = map_many(store, partial(is_there, store), paths)
    missing = [path for path, is_found in zip(paths, found, strict=True) if not is_found]
    if not missing:
        return []
    aside: dict[str, list[str]] = {}
    for path in _aside(store):
        aside.setdefault(_place_of(path), []).append(path)
    return [
        path for path in missing if not any(_is_back(store, one) for one in aside.get(path, ()))
    ]


# Concurrent writers --------------------------------------------------------------------------


def cleared_at(snapshot: Snapshot) -> int:
    """Return the number of the last event `cleared` that a version of a table records."""
    return int(snapshot.metadata.configuration.get(CLEARED) or 0)


class Held:
    """The objects of a commit that is being made.

    Parameters
    ----------
    cleared
        The number of the last event `cleared` before the first object was checked.
    """

    def __init__(self, home: Home, objects: StoredObjects, cleared: int) -> None:
        self._home = home
        self._objects = objects
        self._cleared = cleared

    @property
    def paths(self) -> Sequence[str]:
        """The paths of the objects."""
        return sorted(self._objects.paths)

    @property
    def cleared(self) -> int | None:
        """The last event `cleared` before all objects were found; None without objects."""
        return self._cleared if self._objects.paths else None

    def require(self, cleared: int) -> None:
        """Check again that the objects exist, if an event `cleared` may concern them.

        Raises
        ------
        CommitConflictError
            An object was deleted. Nothing was committed.
        """
        while self._objects.paths and self._cleared < cleared:
            known = self._home.ledger.state().cleared
            if missing := missing_of(self._home.store, self._objects.paths):
                raise CommitConflictError(
                    version=known,
                    rule=CLEARED_RULE,
                    path=self._home.uri(missing[0]),
                    reason=f"{len(missing)} contents to which the commit refers were removed by a "
                    "purge or a sweep before the commit was made",
                    remedy="Call it again: then the contents are stored again",
                )
            self._cleared = known

    def require_at(self, base: Snapshot) -> None:
        """Do the same before a commit to a version of a table."""
        self.require(cleared_at(base))
