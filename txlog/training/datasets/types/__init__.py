"""The types of data sets, and their registry.

A package provides its types by the entry point `txlog.dataset_types`; a program calls `register`.
The built-in types are registered in the same way.
"""

from __future__ import annotations

from collections.abc import Collection
from threading import Lock, RLock
from typing import TYPE_CHECKING

from txlog.base.errors import (
    AlreadyExistsError,
    InvalidInputError,
    InvalidTypeError,
    NotFoundError,
    warn_caller,
)
from txlog.training.datasets.types.base import DatasetType, type_key

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

ENTRY_POINTS = "txlog.dataset_types"
OBJECTS = "uri"  # The column of rows that names objects beside them.

_BUILT_IN = (
    "txlog.training.datasets.types.text_intent:TextIntent",
    "txlog.training.datasets.types.image_class:ImageClass",
    "txlog.training.datasets.types.media:Audio",
    "txlog.training.datasets.types.media:Video",
    "txlog.training.datasets.types.generic:Generic",
    "txlog.training.datasets.types.table:TableType",
)
_LOCK, _LOADING = Lock(), RLock()
_known: dict[str, DatasetType] = {}  # By names and aliases, in capitals.
_is_loaded: list[bool] = []


def register(kind: DatasetType, *, replace: bool = False) -> None:
    """Make a type known in this process, by its name and aliases.

    Parameters
    ----------
    replace
        Whether to replace a type of the same name.

    Raises
    ------
    InvalidInputError
        The name is not in capitals, or a required attribute of a type is missing.
    AlreadyExistsError
        Another type has one of its names.
    """
    _load()
    _register(kind, replace=replace)


def types() -> dict[str, DatasetType]:
    """Return the known types by their names, in alphabetic order; aliases are left out."""
    _load()
    return {name: kind for name, kind in sorted(_known.items()) if kind.name == name}


def type_of(name: str) -> DatasetType:
    """Return the type of a name, an alias, or a key such as `text-intent/1`.

    Raises
    ------
    NotFoundError
        There is no such type, or the key has another version; the error lists the known types.
    """
    _load()
    if not isinstance(name, str):
        raise InvalidTypeError(
            argument="type", reason=f"the name of a type was expected, not {type(name).__name__}"
        )
    kind = _known.get(name.partition("/")[0].replace("-", "_").upper())
    if kind is None or ("/" in name and type_key(kind) != name):
        known = ", ".join(type_key(kind) if "/" in name else at for at, kind in types().items())
        raise NotFoundError(
            reason=f"there is no type {name[:100]!r}",
            remedy=f"Add it by txlog.training.register, or choose from {known}",
        )
    return kind


def type_of_rows(key: str) -> DatasetType | None:
    """Return the type that reads and writes rows of a key such as `text-intent/1`, or None.

    Only the recipe of training sets has a version. What a commit or a made training set has
    depends on the type alone, so the versions of the recipe that follow do not lock it.
    """
    try:
        return type_of(key.partition("/")[0])
    except NotFoundError:
        return None


def stores_objects(name: str, columns: Collection[str]) -> bool:
    """Return whether the column `uri` of rows of a type, with these columns, names objects.

    It does if `uri` is a column that the type itself defines. In a TABLE, `uri` is a column of the
    user. A type that this process does not know may store objects.
    """
    if OBJECTS not in columns:
        return False
    kind = type_of_rows(name)
    if kind is None:
        return True
    return kind.ingestion is not None and OBJECTS in kind.ingestion.names


def _register(kind: DatasetType, *, replace: bool) -> None:
    missing = [
        member
        for member in ("name", "version", "aliases", "ingestion", "training")
        if not hasattr(kind, member)
    ]
    missing += [
        member
        for member in ("read", "statistics", "build")
        if not callable(getattr(kind, member, 0))
    ]
    if isinstance(kind, type) or missing:
        raise InvalidTypeError(
            argument="kind",
            reason=f"{kind!r} is not a type of data sets: "
            + (f"it has no {', '.join(missing)}" if missing else "it is a class"),
            remedy="Pass an object with the members of txlog.training.DatasetType",
        )
    names = (kind.name, *kind.aliases)
    for name in names:
        if not name.replace("_", "").isalnum() or name != name.upper() or not name.isascii():
            raise InvalidInputError(
                argument="kind",
                reason=f"a name of capitals, digits and _ was expected, not {name!r}",
            )
    if type(kind.version) is not int or kind.version < 1:
        raise InvalidInputError(
            argument="kind", reason=f"a version from 1 was expected, not {kind.version!r}"
        )
    with _LOCK:
        taken = [name for name in names if name in _known and _known[name].name != kind.name]
        if kind.name in _known and not replace:
            taken.append(kind.name)
        if taken:
            raise AlreadyExistsError(
                reason=f"there is a type {taken[0]} already",
                remedy="" if taken[0] != kind.name else "Pass replace=True to replace it",
            )
        _known.update(dict.fromkeys(names, kind))


def _load() -> None:
    """Register the built-in types, and those of other packages, once."""
    with _LOADING:
        if _is_loaded:
            return
        _is_loaded.append(True)  # A module that is loaded here may call `register`.
        from importlib.metadata import EntryPoint, entry_points

        for value in _BUILT_IN:
            _load_entry(EntryPoint(value.partition(":")[2], value, ENTRY_POINTS))
        for entry in entry_points(group=ENTRY_POINTS):
            try:
                _load_entry(entry)
            except Exception as error:
                package = entry.dist.name if entry.dist else "a package"
                warn_caller(f"the type {entry.name} of {package} cannot be loaded: {error}")


def _load_entry(entry: EntryPoint) -> None:
    loaded = entry.load()
    _register(loaded() if isinstance(loaded, type) else loaded, replace=False)
