"""What a store must do for a table, the forms of paths, and work on many files of a store."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, ClassVar, Literal, NamedTuple, Protocol, TypeAlias, TypeVar

from txlog.errors import (
    InvalidInputError,
    NotFoundError,
    StoreError,
    TxlogError,
    UnsupportedFeatureError,
    naming_table,
)
from txlog.lazy import compiled
from txlog.threads import Threads, map_ahead

# One letter before a colon is a drive; `a::b://` is a chain of fsspec's.
_URI = compiled(r"([a-zA-Z][a-zA-Z0-9+.-]+)(?:::[^/]*)?://")
_FILE = compiled(r"file:", re.IGNORECASE)
_CREDENTIALS = compiled(r"(?<=://)[^/@]*@")
_QUERY = compiled(r"(?<=[?&])([^=&]+)=[^&]*")

# Names for one and the same store.
_ALIASES = {"s3a": "s3", "s3n": "s3", "gcs": "gs", "abfss": "abfs"}


OWN_OPTIONS = "txlog."  # Storage options with this prefix are ours and never reach a backend.
PATHS = f"{OWN_OPTIONS}paths"  # `inside`: the log of a table leads nowhere outside of its folder.


def is_confined(options: Mapping[str, Any]) -> bool:
    """Return whether the files of a table must be inside of its folder; else they may be anywhere.

    Raises
    ------
    InvalidInputError
        The option has another value than `inside` and `anywhere`.
    """
    value = options.get(PATHS, "anywhere")
    if value not in ("inside", "anywhere"):
        raise InvalidInputError(
            argument="storage_options",
            reason=f"{PATHS} is {value!r}",
            remedy="Write 'inside' or 'anywhere'",
        )
    return bool(value == "inside")


def leads_out(path: str, root: str) -> UnsupportedFeatureError:
    """Return the error of a path that leads out of a confined table."""
    return UnsupportedFeatureError(
        path=without_secrets(path),
        table=without_secrets(root),
        features=("files outside of the table",),
        reason="the path, or a symbolic link in it, leads out of the table's folder",
        remedy=f"If you trust the table, open it without {PATHS}='inside'",
    )


def scheme_of(path: str) -> str | None:
    """Return the scheme of a URI in lower case; `file` for an absolute path; else None."""
    if _FILE.match(path) or os.path.isabs(path):
        return "file"
    uri = _URI.match(path)
    return uri[1].lower() if uri else None


def same_store(scheme: str, other: str) -> bool:
    """Return whether two schemes mean the same store, as `s3` and `s3a` do."""
    return _ALIASES.get(scheme, scheme) == _ALIASES.get(other, other)


def is_file_uri(path: str) -> bool:
    """Return whether a text is a URI of a local file, as against a plain path."""
    return path[:5].lower() == "file:"


def file_path(uri: str, *, decode: bool) -> str:
    """Return the absolute path that a `file:` URI means: `file:/x`, `file:///x`, or of localhost.

    Parameters
    ----------
    decode
        Whether `%20` is a space: so in a URI as such, not in one taken out of a log, whose paths
        are decoded once already.

    Raises
    ------
    InvalidInputError
        It names another host, or is not absolute.
    """
    plain = uri[len("file:") :]
    if plain.startswith("//"):
        host, slash, rest = plain[2:].partition("/")
        if host.lower() not in ("", "localhost"):
            raise InvalidInputError(
                argument="uri",
                reason=f"{uri!r} names the host {host!r}",
                remedy="A local file has three slashes: file:///folder",
            )
        plain = slash + rest
    if not plain.startswith("/"):
        raise InvalidInputError(
            argument="uri",
            reason=f"{uri!r} is not absolute",
            remedy="Use a plain path for one that is relative to the working folder",
        )
    if not decode:
        return plain
    from urllib.parse import unquote

    # Bytes that are no UTF-8 come out as the operating system's own stand-ins for them.
    return unquote(plain, errors="surrogateescape")


def without_secrets(uri: str) -> str:
    """Return a URI for messages: no user, password, or values of its query."""
    return _QUERY.sub(r"\1=…", _CREDENTIALS.sub("…@", uri))


Put = Literal["created", "exists"]
PutIfAbsent: TypeAlias = Callable[[str, bytes], Put]
OpenOutput: TypeAlias = Callable[[str], AbstractContextManager[Any]]


class ObjectInfo(NamedTuple):
    """A file in a store."""

    name: str  # Relative to the folder that was listed; of a single file, its last step.
    size: int  # Bytes.
    modified_ms: int  # By the store's clock, milliseconds since the epoch; 0 if it does not say.


class Store(Protocol):
    """The bytes below one table's root.

    A `path` is relative to the root, with `/` between its steps, and literal: percent signs in it
    mean themselves. An absolute path or URI of the same kind of store is taken too (and is literal
    as well), for logs that refer to files of other tables. Stores are values: they pickle, are
    equal if root and options are, and their `repr` shows no options.

    Besides those named below, every method that touches the store raises `StoreError` (it failed,
    and nothing was done) and `InvalidInputError` (the path cannot be one).

    A store of one's own inherits from `BasicStore`, which makes some of these methods of others.
    """

    @property
    def reads_at_once(self) -> int:
        """How many reads it does at a time best.

        It is more than 1 where each request takes its time. Then larger parts are read, several at
        a time.
        """
        ...

    @property
    def root(self) -> str:
        """Where the table is: an absolute path, or a URI. It has no slash at its end."""
        ...

    @property
    def options(self) -> Mapping[str, Any]:
        """What the table was opened with; may hold secrets."""
        ...

    def require_writable(self) -> None:
        """Raise `UnsupportedFeatureError`, which says why, if txlog cannot write here."""
        ...

    def read(self, path: str) -> bytes:
        """Return a whole file. Raises `NotFoundError`."""
        ...

    def read_many(self, files: Sequence[tuple[str, int]]) -> Iterator[bytes]:
        """Yield whole files in the order given, each a path and the size that a listing told.

        The size is 0 if no listing did. Errors are those of `read`, raised when the file's turn
        comes.
        """
        ...

    def open_input(self, path: str, *, size: int | None = None) -> Any:
        """Return a file for random reading, to be used in a `with`. Raises `NotFoundError`.

        A caller that knows the file's size, or how far it will read, says it: a store that would
        have to ask for it can do without, and then raises the error at the first read.
        """
        ...

    def open_output(self, path: str) -> AbstractContextManager[Any]:
        """Return a new file to be written in a `with`; folders are made as needed.

        When the block ends it is whole and durable; when an error ends it, the file is removed.
        A reader may see a part of it before, so nothing may refer to it until then.
        """
        ...

    def new_files(self) -> AbstractContextManager[OpenOutput]:
        """Return a `with` whose value opens new files, any number of them, as `open_output` does.

        At the end of the `with` all of them are whole and durable. If an error ends it, or one file
        cannot be made durable, all of them are removed.
        """
        ...

    def write_new(self, path: str, data: bytes) -> None:
        """Write a whole new file, durably. On an error nothing is left."""
        ...

    def put_if_absent(self, path: str, data: bytes) -> Put:
        """Create a file, atomically, whole and durable; tell whether it was there before.

        Of any number of callers one is told `created`; nobody ever reads a part of the file.

        Raises
        ------
        OutcomeUnknownError
            The file may or may not be there: read it back. With `visible` it is there, but it may
            not survive a crash, which reading it back does not tell.
        StoreError
            It failed, and the file is certainly not there.
        UnsupportedFeatureError
            The store has no atomic create; nothing was done.
        """
        ...

    def attempts(self) -> AbstractContextManager[PutIfAbsent]:
        """Return a `with` whose value is `put_if_absent`, to be called until a name is free.

        A store may keep between the calls what it has written; nothing of it is left at the end.
        """
        ...

    def precedence(self) -> AbstractContextManager[bool]:
        """Return a `with` in which other writers wait with their commits, where that can be.

        Nothing depends on it but that an operation which others made start again gets done. The
        value is false if it may be worth to ask again.
        """
        ...

    def replace(self, path: str, data: bytes) -> None:
        """Write a file, replacing what was there; readers see the old bytes or the new ones.

        After a `StoreError` it may be either.
        """
        ...

    def move(self, places: Sequence[tuple[str, str]]) -> None:
        """Move files to new places, durably; those that are not there are passed over.

        A file is at its old place until it is durable at the new one, so a crash may leave it at
        both. A new place must be free.
        """
        ...

    def list_after(self, folder: str, name: str) -> Iterator[ObjectInfo]:
        """Yield the files of a folder whose names are not below `name`, by name, ascending.

        Names compare by code points. Folders, and files in them, are left out. A folder that does
        not exist has no files. Nothing is read or raised before the first item is asked for.
        """
        ...

    def list_briefly(self, folder: str, name: str) -> Iterable[tuple[str, int, int]]:
        """Return what `list_after` yields, but sizes and times may be 0 where they cost more.

        Errors are raised before the first item.
        """
        ...

    def list_tree(self, folder: str) -> Iterator[ObjectInfo]:
        """Yield all files below a folder, by name, ascending; the names are relative to it.

        Symbolic links are neither followed nor yielded. A folder that does not exist has none.
        """
        ...

    def info(self, path: str) -> ObjectInfo:
        """Return what the store knows of a file. Raises `NotFoundError`."""
        ...

    def delete(self, paths: Sequence[str]) -> None:
        """Delete files below the root; those that are not there are passed over.

        All are tried; the first error is raised at the end. A symbolic link is removed itself,
        and one that leads out of the table is not followed.

        Raises
        ------
        InvalidInputError
            A path is not below the root; nothing was deleted then.
        """
        ...

    def resolve(self, path: str) -> str:
        """Return the absolute path or URI of a file."""
        ...

    def local_path(self, path: str) -> str | None:
        """Return the path by which other libraries can open a file on a local disk; else None."""
        ...


def naming(store: Store) -> naming_table:
    """Return a `with` whose errors name the table in a store, without secrets."""
    return naming_table(without_secrets(store.root))


class BasicStore:
    """A base class of stores: the methods of `Store` that can be made of its other ones.

    A store that can do better overrides them. A store around another one does not pass them on,
    so that all that is asked for comes by the methods that it has.
    """

    reads_at_once: ClassVar[int] = 1

    @contextmanager
    def new_files(self: Store) -> Iterator[OpenOutput]:
        """Open new files; each is durable when its own block ends."""
        paths: list[str] = []

        @contextmanager
        def open_output(path: str) -> Iterator[Any]:
            with self.open_output(path) as sink:
                yield sink
            paths.append(path)

        try:
            yield open_output
        except BaseException:
            self.delete(paths)
            raise

    @contextmanager
    def attempts(self: Store) -> Iterator[PutIfAbsent]:
        """Yield `put_if_absent`, to be called until a name is free."""
        yield self.put_if_absent

    def precedence(self) -> AbstractContextManager[bool]:
        """Do nothing: other writers are not known."""
        return nullcontext(True)

    def list_briefly(self: Store, folder: str, name: str) -> Iterable[tuple[str, int, int]]:
        """Return what `list_after` yields."""
        return list(self.list_after(folder, name))

    def read_many(self: Store, files: Sequence[tuple[str, int]]) -> Iterator[bytes]:
        """Yield whole files, in the order given; from a store far away, several are on their way.

        Each is held whole until its turn comes.
        """
        paths = [path for path, _ in files]
        if self.reads_at_once < 2 or len(paths) < 2:
            return map(self.read, paths)
        workers = self.reads_at_once
        return map_ahead(self.read, paths, workers=workers, ahead=2 * workers)

    def move(self: Store, places: Sequence[tuple[str, str]]) -> None:
        """Move files by copying them."""
        for path, target in places:
            if is_there(self, path):
                copy_file(self, path, self, target)
                self.delete([path])

    def local_path(self, path: str) -> str | None:
        """Return None: the store is no local disk, or hides it."""
        return None


_COPIED_BYTES = 8 << 20  # At a time.


def is_there(store: Store, path: str) -> bool:
    """Return whether a store has a file."""
    try:
        store.info(path)
    except NotFoundError:
        return False
    return True


def copy_file(store: Store, path: str, home: Store, target: str) -> None:
    """Copy a file to a new one of another store, or the same."""
    try:
        with store.open_input(path) as source, home.open_output(target) as sink:
            while data := source.read(_COPIED_BYTES):
                sink.write(data)
    except TxlogError:
        raise
    except OSError as error:
        raise StoreError(
            operation="copy", path=path, reason=f"the file cannot be copied: {error}"
        ) from error


Item = TypeVar("Item")
Result = TypeVar("Result")

_AHEAD_BYTES = 64 << 20  # Of what is read before its turn.


def is_far(store: Store) -> bool:
    """Return whether a request to a store takes long, however little is asked for."""
    return store.reads_at_once > 1


def map_many(
    store: Store,
    function: Callable[[Item], Result],
    items: Sequence[Item],
    *,
    size: Callable[[Item], int] = lambda _: 0,
) -> Iterator[Result]:
    """Yield `function(item)` for each item, in order; an error is raised when its turn comes.

    Parameters
    ----------
    store
        What the function reads from. If it is far away, several calls run at a time.
    size
        About how many bytes a result holds: of results that wait for their turn, a bounded number
        is held, besides the next one.
    """
    workers = store.reads_at_once
    if workers < 2 or len(items) < 2:
        yield from map(function, items)
        return
    yield from map_ahead(
        function, items, workers=workers, ahead=2 * workers, size=size, ahead_size=_AHEAD_BYTES
    )


def threads_for(store: Store) -> Threads:
    """Return an engine for a store: of one far away, threads wait more than they work."""
    if not is_far(store):
        return Threads()
    return Threads(max(store.reads_at_once, os.cpu_count() or 1))
