"""Where the packs are that the files of a commit take over from other files.

Rules: spec/blobs.md, BLB-8.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

import pyarrow as pa

from txlog.actions.file import Add
from txlog.base.arrow import arrow_array
from txlog.base.errors import CommitConflictError, InvalidInputError
from txlog.checkpoint.file_rows import Wanted
from txlog.commit.intent import Intent
from txlog.fragments.packs import (
    PACKS_TAG,
    carried_packs,
    name_of,
    named,
    own_packs,
    pack_of,
    packs_in,
    packs_of,
    packs_text,
)
from txlog.log.paths import is_elsewhere
from txlog.snapshot.live_files import fold_files
from txlog.snapshot.snapshot import Snapshot
from txlog.store.base import Store


def with_packs(
    store: Store, snapshot: Snapshot | None, intent: Intent, first: Snapshot | None = None
) -> Intent:
    """Return an intent whose new files say where the packs are that they take over.

    A pack that a file takes over must be one of a live file of the version, or be written for this
    commit. So no vacuum can delete it, and no value can name a file that is no pack of this table.
    For a part of a commit, `first` is the version that the whole commit changes.

    Raises
    ------
    InvalidInputError
        A value names another file.
    CommitConflictError
        Another writer removed the last file that names the pack.
    """
    if intent.keeps_packs or not any(PACKS_TAG in (add.tags or {}) for add in intent.adds):
        return intent
    old = {remove.path for remove in intent.removes}  # They are logged again.
    # A file of the source of a clone is old, too, and its pack is not in this table.
    new = [path for path in intent.own_files if path not in old and not is_elsewhere(path)]
    written = {*map(pack_of, new), *own_packs(add for add in intent.adds if add.path not in old)}
    places = {name_of(place): place for place in written}
    wanted = {
        name_of(place) for add in intent.adds if add.path not in old for place in carried_packs(add)
    }
    if asked := sorted(wanted - places.keys()):
        known: dict[str, str] = {}
        for version in (snapshot, first):
            left = [name for name in asked if name not in known]
            if version is not None and left:
                known |= _places(store, version, left)
        if unknown := [name for name in asked if name not in known]:
            raise _unknown(unknown[0], intent, snapshot)
        places |= known
    adds = tuple(
        add if add.path in old or not carried_packs(add) else _settled(add, places)
        for add in intent.adds
    )
    return replace(intent, adds=adds)


def _places(store: Store, snapshot: Snapshot, names: list[str]) -> dict[str, str]:
    """Return the places of packs of live files, by their names."""
    asked = arrow_array(names, pa.string())

    def fold(batches: Iterator[tuple[object, pa.Table]]) -> dict[str, str]:
        parts = (named(packs_of(rows), asked).to_pylist() for _, rows in batches)
        return {name_of(place): place for part in parts for place in part}

    return fold_files(store, snapshot, Wanted(("tags",)), fold, distinct=False)


def _settled(add: Add, places: dict[str, str]) -> Add:
    tags = {**(add.tags or {}), PACKS_TAG: packs_text(_unique(add, places))}
    return add.model_copy(update={"tags": tags})


def _unique(add: Add, places: dict[str, str]) -> Iterable[str]:
    own = pack_of(add.path)
    return dict.fromkeys(
        place if place == own else places[name_of(place)] for place in packs_in(add.tags)
    )


def _unknown(
    name: str, intent: Intent, snapshot: Snapshot | None
) -> InvalidInputError | CommitConflictError:
    if snapshot is not None and intent.read_version < snapshot.version:
        return CommitConflictError(
            version=snapshot.version,
            rule="BLB-8",
            reason=f"values are in the pack {name}, and the last file that named it was removed by "
            "another writer",
            remedy="Nothing was committed; write the bytes of the values",
        )
    return InvalidInputError(
        argument="data",
        reason=f"a value of a blob column names the pack {name}, which no file of this version of "
        "the table names",
        remedy="Write the bytes of the value, as the blob object reads them",
    )
