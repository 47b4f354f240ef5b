"""Objects (contents in `files/`): what refers to them, and their removal while writers work.

A store cannot check that nothing refers to a file and delete it in one step, and a process may
pause for any time between the check and the deletion. So an object is first set aside: it is moved
to a name that no writer uses. Then the event `cleared` is appended, and each table gets its number.
A commit that began before the event must check its objects again. After that it is certain whether
something refers to an object. Its copy is deleted, or put back before. Rules: spec/datasets.md,
DST-29.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from functools import partial

from txlog import Expression, Table, col
from txlog.base.arrow import pc
from txlog.base.errors import (
    CommitConflictError,
    DataFileError,
    LogCorruptError,
    RetriesExhaustedError,
    warn_caller,
)
from txlog.extend import Intent, Operation, Snapshot, execute
from txlog.training.datasets.aside import copies_of, forget, is_back, missing_of, set_aside
from txlog.training.datasets.commands import CLEARED_RULE, Clear
from txlog.training.datasets.commits import COMMIT_ID
from txlog.training.datasets.events import DatasetState
from txlog.training.datasets.home import DAMAGED, Home
from txlog.training.datasets.ingest import OBJECT_PATH, StoredObjects
from txlog.training.datasets.types import OBJECTS, stores_objects

CLEARED = "txlog.dataset.cleared"
"""A table property: the number of the last event `cleared` that checked the table's commits."""


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


def used_by_any(home: Home, asked: Callable[[DatasetState], set[str]] | None = None) -> set[str]:
    """Return the objects that the data sets refer to.

    Parameters
    ----------
    asked
        Returns the objects of one data set. Default: `used_by`.

    Raises
    ------
    DataFileError
        A data set is damaged, so it is not known what it refers to.
    """
    used: set[str] = set()
    for dataset in home.ledger.state().datasets.values():
        used |= _used(home, dataset, asked or partial(used_by, home))
    return used


def _used(home: Home, dataset: DatasetState, asked: Callable[[DatasetState], set[str]]) -> set[str]:
    for is_last in (False, False, True):
        if dataset.purged:
            break
        try:
            return asked(dataset)
        except DAMAGED as error:  # Its files may be missing because of a purge meanwhile.
            dataset = home.ledger.state().datasets[dataset.dataset_id]
            if is_last and not dataset.purged:
                raise DataFileError(
                    path=home.uri(f"data/{dataset.uuid}"),
                    reason=f"the data set {dataset.name!r} ({dataset.dataset_id}) is damaged, and "
                    "a removal of contents needs to know which of them it refers to: "
                    f"{error.reason}",
                    remedy="Restore its files from a backup, or purge it. Then sweep the folder: "
                    "this finishes purges",
                ) from error
    return set()


def remove_unused(home: Home, objects: Collection[str]) -> None:
    """Remove objects to which no row and no training set refers; errors of `used_by_any`."""
    if objects and (left := set(objects) - used_by_any(home)):
        remove(home, left)


def remove(home: Home, unused: Collection[str], removals: Sequence[str] = ()) -> int:
    """Remove objects to which nothing referred just now, and return how many were deleted.

    Parameters
    ----------
    removals
        Removals whose processes are dead. Their copies are deleted too, or put back.
    """
    mine = home.effects.uuid()
    if unused:
        set_aside(home.store, mine, unused)
        removals = [mine, *removals]
    return _clear(home, removals)


def _clear(home: Home, removals: Sequence[str]) -> int:
    """Delete the copies of removals, and return their number; used ones are put back first.

    If a data set is damaged, a warning names it, and all copies are put back.
    """
    copies = copies_of(home.store, removals)
    if not copies:
        forget(home.store, removals, ())
        return 0
    state = home.ledger.record(Clear())
    used: set[str] | None = None
    with damage_warned():
        used = used_by_any(home, partial(_used_after, home, state.cleared))
    kept = [copy for copy in copies if used is None or copy.place in used]
    stuck = [copy for copy in kept if not is_back(home.store, copy.place, [copy])]
    needed = {copy.removal for copy in stuck}
    forget(
        home.store,
        [removal for removal in removals if removal not in needed],
        [copy for copy in copies if copy not in stuck],
    )
    return len(copies) - len(kept)


@contextmanager
def damage_warned() -> Iterator[None]:
    """Warn of a damaged data set instead of raising the error."""
    try:
        yield
    except DataFileError as error:
        warn_caller(f"No contents are removed: {error}")


def _used_after(home: Home, cleared: int, dataset: DatasetState) -> set[str]:
    """Return the objects that a data set refers to, so that no commit can add an unseen one."""
    table = home.table(dataset.uuid)
    if stores_objects(dataset.type, table.schema.names):
        while cleared_at(table.snapshot) < cleared:
            with _others_may_win(table):
                execute(table, _Cleared(cleared))
        home.keep(dataset.uuid, table.snapshot)
    return used_by(home, dataset)


class _Cleared(Operation):
    """Record the number of an event `cleared` in a table, unless it records a later one."""

    name = "SET TBLPROPERTIES"

    def __init__(self, cleared: int) -> None:
        self._cleared = cleared

    def intent(self, base: Snapshot) -> Intent | None:
        """Return the metadata with the number, or None if it has a later one."""
        if cleared_at(base) >= self._cleared:
            return None
        properties = {CLEARED: str(self._cleared)}
        configuration = {**base.metadata.configuration, **properties}
        return Intent(
            operation=self.name,
            kind="metadata",
            read_version=base.version,
            metadata=base.metadata.model_copy(update={"configuration": configuration}),
            parameters={"properties": properties},
        )


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


# Concurrent writers --------------------------------------------------------------------------


def cleared_at(snapshot: Snapshot) -> int:
    """Return the number of the last event `cleared` that a version of a table records."""
    found = snapshot.metadata.configuration.get(CLEARED) or "0"
    if not re.fullmatch(r"[0-9]{1,18}", found):
        raise LogCorruptError(
            path=snapshot.root,
            field=CLEARED,
            reason=f"the property is {found!r}, and the number of an event was expected",
            remedy="Only txlog.training may set it; restore a version before",
        )
    return int(found)


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
        if self._objects.paths and self._cleared < cleared:
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
            # A ledger that was restored from a backup may know fewer events than a table.
            self._cleared = max(known, cleared)

    def require_at(self, base: Snapshot) -> None:
        """Do the same before a commit to a version of a table."""
        self.require(cleared_at(base))
