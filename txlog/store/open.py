"""Open the store of a URI."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from txlog.base.errors import InvalidInputError, InvalidTypeError, UnsupportedFeatureError
from txlog.base.uris import file_path, is_file_uri, scheme_of
from txlog.store.base import OWN_OPTIONS, Store, is_confined, leads_out, same_store
from txlog.store.branches import BranchStore, branch_option, without_branch
from txlog.store.cloud_options import UNITY
from txlog.store.local.disk import disk_of, links_below
from txlog.store.local.local import LocalStore

# The schemes to which a log may refer, separated by commas.
ALLOWED_SCHEMES = f"{OWN_OPTIONS}allowed_schemes"


def open_store(
    uri: str | os.PathLike[str], storage_options: Mapping[str, Any] | None = None
) -> Store:
    """Return the store of the table at `uri`, which need not exist. This sends no request.

    Parameters
    ----------
    uri
        A plain path is made absolute in the current working folder. `~` at its start is the user's
        home, and all other characters are literal, also `%`. A `file:` URI is percent-decoded.
        `memory://` is this process's memory. `s3://`, `gs://`, `az://` and similar schemes use
        obstore if it is installed, and all others use fsspec. `uc://host/catalog/schema.table` is
        a table of Unity Catalog, which is asked for its location.
    storage_options
        How to connect: object_store's keys, such as `AWS_REGION`, and those of fsspec. txlog's own
        options are `txlog.coordinator`, `txlog.backend`, `txlog.allowed_schemes`, `txlog.paths`
        (`inside` or `anywhere`), and `txlog.durability`: `relaxed` does not wait for a local disk
        (rule GUA-8). `txlog.branch` opens a branch of the table by its name (spec/branches.md), and
        `txlog.catalog` a table through its catalog (`Catalog.storage_options`), whose database is
        asked.

    Raises
    ------
    InvalidInputError
        The URI is empty, contains NUL, or is a `file:` URI that is relative or has another host.
    InvalidTypeError
        The URI is not a string or a path, or the options are not a mapping.
    """
    if not isinstance(uri, str | os.PathLike):
        raise InvalidTypeError(
            argument="uri",
            reason=f"a path or URI was expected, not {type(uri).__name__}",
            remedy="Pass a string or a pathlib.Path",
        )
    if storage_options is not None and not isinstance(storage_options, Mapping):
        raise InvalidTypeError(
            argument="storage_options",
            reason=f"a mapping was expected, not {type(storage_options).__name__}",
            remedy="Pass a dict of options",
        )
    text = os.fspath(uri)
    if not isinstance(text, str) or not text.strip():
        raise InvalidInputError(argument="uri", reason="a path or URI was expected as a string")
    branch = branch_option(storage_options or {})
    options = without_branch(storage_options or {})
    is_confined(options)  # A wrong value raises here.
    scheme = scheme_of(text)
    if scheme in ("uc", "uc+http"):
        from txlog.store.unity.tables import find

        text, options = find(text, options)
        scheme = scheme_of(text)
    elif UNITY in options:
        from txlog.store.unity.stores import options_at

        options = options_at(text, options)
    if scheme is None or scheme == "file":
        is_uri = is_file_uri(text)
        plain = file_path(text, decode=True) if is_uri else os.path.expanduser(text)
        local = LocalStore(_absolute(plain), options, disk_of(options))
        return _viewed(_coordinated(local), branch)
    if "\0" in text:
        raise InvalidInputError(argument="uri", reason="a URI must not contain a NUL character")
    if scheme == "memory":
        from txlog.store.memory import MemoryStore

        place = "memory://" + text[len("memory://") :].strip("/")
        return _viewed(MemoryStore(place, options), branch)
    root = text.rstrip("/") if not text.endswith("://") else text
    return _viewed(_coordinated(_remote(root, options)), branch)


def _viewed(store: Store, branch: str | None) -> Store:
    """Return a store through the catalog of the table, and its view of a branch."""
    store = _managed(store)
    return store if branch is None else BranchStore(store, branch)


def _managed(store: Store) -> Store:
    """Return a store through the catalog of the table if the options name one."""
    if UNITY in store.options:
        from txlog.store.unity.stores import through

        return through(store)
    if "txlog.catalog" not in store.options:
        return store
    from txlog.store.managed import managed_store

    return managed_store(store, store.options)


def _coordinated(store: Store) -> Store:
    """Return a store with a commit coordinator if the options name one."""
    is_s3 = store.root[:2].lower() == "s3"
    if "txlog.coordinator" not in store.options and not is_s3:
        return store
    from txlog.store.coordinators import coordinator_of

    coordinator = coordinator_of(store.options, is_s3=is_s3)
    if coordinator is None:
        return store
    from txlog.store.coordinated import CoordinatedStore
    from txlog.store.remote import FsspecStore

    if isinstance(store, FsspecStore):
        store = FsspecStore(store.root, store.options, is_coordinated=True)
    return CoordinatedStore(store, coordinator)


def _remote(root: str, options: Mapping[str, Any]) -> Store:
    from txlog.store.cloud_options import is_for_obstore

    if is_for_obstore(root, options):
        from txlog.store.cloud import CloudStore

        return CloudStore(root, options)
    from txlog.store.remote import FsspecStore

    return FsspecStore(root, options)


def _absolute(path: str) -> str:
    if "\0" in path:
        raise InvalidInputError(argument="uri", reason="a path must not contain a NUL character")
    # Symbolic links are kept. POSIX keeps two leading slashes, which have no meaning here.
    absolute = os.path.abspath(path)
    return absolute[1:] if absolute.startswith("//") else absolute


def locate(store: Store, path: str) -> tuple[Store, str]:
    """Return the store of a logged path, and the path in that store.

    A log may refer to files outside its table. Paths in the same kind of store are followed. Paths
    with another scheme are followed only if the storage option `txlog.allowed_schemes`, a
    comma-separated list, contains it: a log is data and should not make its reader open
    connections. With the option `txlog.paths=inside`, no path outside of the table is followed.

    Parameters
    ----------
    path
        A decoded, literal path: relative, absolute, or a URI.

    Raises
    ------
    UnsupportedFeatureError
        Another scheme is not allowed, or the table is confined to its folder.
    """
    scheme = require_allowed(store, path)
    return (store if scheme is None else _foreign(store, scheme, path)), path


def folders_in(store: Store, folder: str) -> list[str]:
    """Return the names of the folders in a folder of a store, ascending, without links.

    If the store has no method `list_folders`, all files below the folder are listed. A folder that
    does not exist has no folders.
    """
    tell = getattr(store, "list_folders", None)
    if tell is not None:
        return list(tell(folder))
    names = (info.name.partition("/") for info in store.list_tree(folder))
    return sorted({first for first, slash, _ in names if slash})


def links_in(store: Store) -> list[str]:
    """Return the symbolic links below the root of a store on a local disk, ascending.

    Listings omit them. Those that lead to folders end with a slash, and nothing is listed below.
    """
    place = store.local_path("")
    return [] if place is None else links_below(place)


def uri_of(store: Store, path: str) -> str:
    """Return the absolute path or URI of a decoded logged path, without opening it."""
    return store.resolve(path) if _scheme_elsewhere(store, path) is None else path


def _scheme_elsewhere(store: Store, path: str) -> str | None:
    """Return the scheme of a path in another kind of store, else None."""
    scheme, own = scheme_of(path), scheme_of(store.root)
    return None if scheme is None or own is None or same_store(scheme, own) else scheme


def require_allowed(store: Store, path: str) -> str | None:
    """Return the scheme of a decoded logged path in another kind of store, or None.

    Raises
    ------
    UnsupportedFeatureError
        The scheme is not allowed; see `locate`.
    """
    scheme = _scheme_elsewhere(store, path)
    if is_confined(store.options) and scheme_of(path) is not None:
        _require_below(store, path)
    if scheme is None:
        return None
    allowed = str(store.options.get(ALLOWED_SCHEMES) or "").lower().split(",")
    if not any(same_store(scheme, name.strip()) for name in allowed):
        raise UnsupportedFeatureError(
            path=path,
            features=(scheme,),
            reason=f"the log of {store.root} refers to a file in another kind of store, {scheme}",
            remedy="If you trust the table, open it with "
            f"storage_options={{{ALLOWED_SCHEMES!r}: {scheme!r}}}",
        )
    return scheme


def _require_below(store: Store, path: str) -> None:
    """Raise if an absolute path or URI is not below the root of a confined table."""
    if scheme_of(store.root) == scheme_of(path) == "file":
        store.resolve(path)  # This resolves links, and raises.
        return
    from txlog.store.places import name_in

    if ".." in path.split("/") or name_in(store.root, path) is None:
        raise leads_out(path, store.root)


def _foreign(store: Store, scheme: str, path: str) -> Store:
    """Return the store of a file with another scheme, without the table's options."""
    options = dict(store.options)
    options.pop(UNITY, None)  # Its credentials are for the table's own storage.
    # They may contain secrets of the table's backend.
    if scheme_of(store.root) not in (None, "file", "memory"):
        options = {name: value for name, value in options.items() if name.startswith(OWN_OPTIONS)}
    if scheme == "file":
        return LocalStore("/", options, disk_of(options))
    if scheme == "memory":
        from txlog.store.memory import MemoryStore

        return MemoryStore("memory://", options)
    return _remote(path.rpartition("/")[0], options)
