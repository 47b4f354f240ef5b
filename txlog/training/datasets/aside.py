"""Objects that are set aside: copies that last until nothing refers to them for certain.

Each removal has a number (a uuid), a file of this name that tells when it began, and the copies.
Rules: spec/datasets.md, DST-29.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from functools import partial
from hashlib import sha256
from typing import Any, NamedTuple

from txlog.base.errors import DataFileError, NotFoundError
from txlog.base.thresholds import Threshold
from txlog.extend import Store, is_older, is_there, map_many
from txlog.training.datasets.ingest import FILES, OBJECT_PATH, StoredObjects, object_path

ASIDE = f"{FILES}/.aside"
"""The folder of `<uuid>`, which tells the time, and `<uuid>.<sha256>`, the copies."""

_CHUNK_BYTES: Threshold = 8 << 20
_LISTINGS = 5  # Of the copies, while they change, before an object counts as missing.
_NAME = re.compile(r"([0-9a-f-]{36})(?:\.([0-9a-f]{64}))?")
_OF_OBJECT = re.compile(rf"(.+)/({FILES}/[0-9a-f]{{2}}/[0-9a-f]{{64}})")


class Copy(NamedTuple):
    """An object that a removal has set aside."""

    path: str
    removal: str
    place: str  # The path of the object.


def set_aside(store: Store, removal: str, objects: Collection[str]) -> None:
    """Move objects to names that no writer uses. Other processes do not delete these for a day."""
    begun = f"{ASIDE}/{removal}"
    store.write_new(begun, b"")
    store.move([(path, f"{begun}.{path.rpartition('/')[2]}") for path in sorted(objects)])


def copies_of(store: Store, removals: Collection[str] | None = None) -> list[Copy]:
    """Return the copies of some removals, or of all."""
    found = []
    for file in store.list_tree(ASIDE):
        name = _NAME.fullmatch(file.name)
        if name is not None and name[2] and (removals is None or name[1] in removals):
            found.append(Copy(f"{ASIDE}/{file.name}", name[1], object_path(name[2])))
    return found


def removals_before(store: Store, before_ms: int) -> list[str]:
    """Return the removals all of whose files are older than a time by the store's clock.

    A removal whose own file is not listed began meanwhile: its copies may have the objects' times.
    """
    found: set[str] = set()
    begun: set[str] = set()
    young: set[str] = set()
    for file in store.list_tree(ASIDE):
        if name := _NAME.fullmatch(file.name):
            found.add(name[1])
            if name[2] is None:
                begun.add(name[1])
            if not is_older(file.modified_ms, before_ms):
                young.add(name[1])
    return sorted((found & begun) - young)


def forget(store: Store, removals: Iterable[str], copies: Iterable[Copy]) -> None:
    """Delete copies of removals, and then the removals' own files."""
    store.delete([copy.path for copy in copies])
    store.delete([f"{ASIDE}/{removal}" for removal in removals])


def is_back(store: Store, place: str, copies: Iterable[Copy]) -> bool:
    """Return whether an object is in its place, after copying it there if needed.

    The copies stay: each process that removes objects may still delete the object, and then needs
    its own copy.
    """
    for copy in copies:
        if is_there(store, place):
            return True
        with suppress(NotFoundError, DataFileError):  # Another one was faster; half of a copy.
            _put_back(store, copy)
    return is_there(store, place)


def _put_back(store: Store, copy: Copy) -> None:
    digest = sha256()

    def chunks() -> Iterator[bytes]:
        with store.open_input(copy.path) as content:
            while data := content.read(_CHUNK_BYTES):
                digest.update(data)
                yield data

    def name() -> str:
        if object_path(digest.hexdigest()) != copy.place:
            raise DataFileError(
                path=copy.path, reason="a process stopped while it set the file aside"
            )
        return digest.hexdigest()

    StoredObjects(store).put_chunks(chunks(), name)


def missing_of(store: Store, objects: Collection[str]) -> list[str]:
    """Return the objects that are not in place; those that were set aside are put back."""
    paths = sorted(objects)
    found = map_many(store, partial(is_there, store), paths)
    missing = [path for path, is_found in zip(paths, found, strict=True) if not is_found]
    seen: list[Copy] = []
    for _ in range(_LISTINGS):
        if not missing:
            break
        listed = sorted(copies_of(store))
        if listed == seen:
            break
        seen = listed  # Another removal may set aside again what one has put back.
        copies: dict[str, list[Copy]] = {}
        for copy in listed:
            copies.setdefault(copy.place, []).append(copy)
        missing = [path for path in missing if not is_back(store, path, copies.get(path, ()))]
    return missing


def open_object(store: Store, path: str) -> Any:
    """Return an object, opened for reading; if it was set aside, it is put back.

    Other files are opened as they are.

    Raises
    ------
    NotFoundError
        It is missing: something removed a file to which a commit refers.
    """
    try:
        return store.open_input(path)
    except NotFoundError as error:
        if not is_object(path):
            raise
        if missing_of(store, [path]):
            error.reason = "a content that a row refers to is gone"
            raise
    return store.open_input(path)


def is_object(path: str) -> bool:
    """Return whether a path below the root is that of an object. Pure."""
    return re.match(OBJECT_PATH, path) is not None


def place_of(uri: str) -> tuple[str, str]:
    """Return where to open a file: of an object the folder's root, else its folder; and its path.

    Pure.
    """
    found = _OF_OBJECT.fullmatch(uri)
    if found is not None:
        return found[1], found[2]
    folder, _, name = uri.rpartition("/")
    return folder, name
