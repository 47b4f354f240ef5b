"""The interface of stores, the forms of paths, and functions for many files of a store."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from functools import partial
from typing import Any, ClassVar, Literal, NamedTuple, Protocol, TypeAlias, TypeVar

from txlog.base.errors import (
    InvalidInputError,
    NotFoundError,
    StoreError,
    TxlogError,
    UnsupportedFeatureError,
    naming_table,
)
from txlog.base.threads import Call, Threads, Workers, map_ahead, tracked
from txlog.base.thresholds import Threshold

# The kinds of object stores by their schemes.
_KINDS = {
    "s3": "s3", "s3a": "s3", "s3n": "s3", "gs": "gs", "gcs": "gs",
    "az": "az", "azure": "az", "abfs": "az", "abfss": "az", "adl": "az", "wasb": "az",
    "wasbs": "az",
}  # fmt: skip


# Storage options with this prefix are txlog's own and are not passed to a backend.
OWN_OPTIONS = "txlog."
# With `inside`, the log of a table must not refer to files outside of its folder.
PATHS = f"{OWN_OPTIONS}paths"


def is_confined(options: Mapping[str, Any]) -> bool:
    """Return whether the files of a table must be inside its folder.

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
    """Return the error for a path that leads out of a confined table."""
    return UnsupportedFeatureError(
        path=path,
        table=root,
        features=("files outside of the table's folder",),
        reason="the path, or a symbolic link in it, leads out of the table's folder",
        remedy=f"If you trust the table, open it without {PATHS}='inside'",
    )


def kind_of(scheme: str) -> str | None:
    """Return the kind of object store of a scheme, `s3`, `gs` or `az`, or None."""
    return _KINDS.get(scheme)


def same_store(scheme: str, other: str) -> bool:
    """Return whether two schemes mean the same kind of store, as `s3` and `s3a` do."""
    return _KINDS.get(scheme, scheme) == _KINDS.get(other, other)


Put = Literal["created", "exists"]
RangesBy = Literal["names", "folders", "nothing"]
"""What divides a listing into ranges that cost no more requests together than one listing: any
names, or names that end with a slash, so that folders are in one range. `nothing`: each range needs
a listing of all files."""
PutIfAbsent: TypeAlias = Callable[[str, bytes], Put]
OpenOutput: TypeAlias = Callable[[str], AbstractContextManager[Any]]


_LAST_MS = 1 << 62  # Sums and differences of such times fit into 64 bits.


class ObjectInfo(NamedTuple):
    """A file in a store."""

    name: str  # Relative to the listed folder; for a single file, the last step of its path.
    size: int  # Bytes.
    # By the store's clock, milliseconds since the epoch. None: unknown. Who deletes files takes it
    # for young, and who looks for a time raises an error.
    modified_ms: int | None


def known_ms(time_ms: int) -> int | None:
    """Return a time of a file, or None if it is before 1970 or not a time of this world. Pure.

    Backends and tools that do not know a time write 0.
    """
    return time_ms if 0 < time_ms < _LAST_MS else None


def is_older(modified_ms: int | None, before_ms: int) -> bool:
    """Return whether a file is certainly older than a time. Pure.

    A store that does not know a file's time should say None, but 0 is taken for this too.
    """
    return modified_ms is not None and 0 < modified_ms < before_ms


class Store(Protocol):
    """The bytes below one table's root.

    A `path` is relative to the root, with `/` between its steps, and literal: percent signs are not
    decoded. An absolute path or URI of the same kind of store is accepted too (and is literal as
    well), for logs that refer to files of other tables. Stores are values: they pickle, they are
    equal if root and options are equal, and their `repr` does not show options.

    Besides the errors named below, each method that uses the store raises `StoreError` (it failed,
    and nothing was done) and `InvalidInputError` (the path is not valid).

    A custom store inherits from `BasicStore`, which implements some of these methods with others.
    """

    @property
    def reads_at_once(self) -> int:
        """The best number of concurrent reads.

        It is more than 1 if requests are slow. Then larger parts are read, several at the same
        time.
        """
        ...

    @property
    def root(self) -> str:
        """The location of the table: an absolute path or a URI, without a slash at its end."""
        ...

    @property
    def options(self) -> Mapping[str, Any]:
        """The options with which the table was opened; they may contain secrets."""
        ...

    @property
    def is_managed(self) -> bool:
        """Whether the table was opened through the catalog that manages it."""
        ...

    @property
    def ratifies(self) -> bool:
        """Whether a put of a commit is decided by a catalog, after the commits before it."""
        ...

    def latest_version(self) -> int | None:
        """Return the last version that the table's catalog ratified; None: there is no catalog."""
        ...

    def require_writable(self) -> None:
        """Raise `UnsupportedFeatureError` with the reason if txlog cannot write here."""
        ...

    def read(self, path: str) -> bytes:
        """Return a whole file. Raises `NotFoundError`."""
        ...

    def read_many(self, files: Sequence[tuple[str, int]]) -> Iterator[bytes]:
        """Yield whole files in order. A file is given by its path and its listed size.

        The size is 0 if it is unknown. Errors are those of `read`, raised in the file's place.
        """
        ...

    def open_input(self, path: str, *, size: int | None = None) -> Any:
        """Return a file for random reading, for use in a `with`. Raises `NotFoundError`.

        A caller that knows the file's size, or how far it will read, passes it: a store can then
        avoid a request for the size. In this case it raises the error at the first read.
        """
        ...

    def open_output(self, path: str) -> AbstractContextManager[Any]:
        """Return a new file for writing in a `with`; folders are created as needed.

        At the end of the block the file is complete and durable; after an error it is removed.
        Before that, a reader may see a part of it, so nothing may refer to it yet.
        """
        ...

    def new_files(self) -> AbstractContextManager[OpenOutput]:
        """Return a context manager whose value opens any number of new files, like `open_output`.

        At the end of the `with`, all of them are complete and durable. If an error ends it, or if
        one file cannot be made durable, all of them are removed.
        """
        ...

    def write_new(self, path: str, data: bytes) -> None:
        """Write a new file durably. After an error, nothing remains."""
        ...

    def put_if_absent(self, path: str, data: bytes) -> Put:
        """Create a file atomically and durably; return whether it was created or existed before.

        Exactly one of several callers gets `created`, and no reader ever sees a part of the file.

        Raises
        ------
        OutcomeUnknownError
            The file may or may not exist: read it back. With `visible` it exists, but it may not
            survive a crash; reading it back does not show this.
        StoreError
            It failed, and the file certainly does not exist.
        UnsupportedFeatureError
            The store has no atomic create. Nothing was done.
        """
        ...

    def attempts(self) -> AbstractContextManager[PutIfAbsent]:
        """Return a context manager whose value is `put_if_absent`, to call until a name is free.

        Between the calls, a store may keep the bytes that it wrote. It deletes them at the end.
        It may wait at the beginning, for a limited time, if another writer has precedence.
        """
        ...

    def precedence(self, *, briefly: bool = False) -> AbstractContextManager[bool]:
        """Return a context manager in which other writers delay their commits, if possible.

        It affects only time: an operation that lost to other commits several times can finish.
        Its value is false if the caller should ask for precedence again. `briefly` means that the
        caller has only a commit to make, and waits no longer for others than it gives way to them.
        """
        ...

    def replace(self, path: str, data: bytes) -> None:
        """Write a file over an existing one; readers see either the old or the new bytes.

        After a `StoreError`, the file may have either content.
        """
        ...

    def move(self, places: Sequence[tuple[str, str]]) -> None:
        """Move files to new paths, durably; missing files are skipped.

        A file keeps its old path until it is durable at the new one, so a crash may leave it at
        both. The new path must be free.
        """
        ...

    def list_after(self, folder: str, name: str) -> Iterator[ObjectInfo]:
        """Yield the files of a folder from `name` on, in ascending order of names.

        Names compare by code points. Folders, and files in them, are omitted. A folder that does
        not exist has no files. Nothing is read or raised before the first item is requested.
        """
        ...

    def list_briefly(self, folder: str, name: str) -> Iterable[tuple[str, int, int | None]]:
        """Return the files of `list_after`. If sizes and times need more system calls, they are 0
        and None.

        The call itself raises errors.
        """
        ...

    def list_tree(self, folder: str) -> Iterator[ObjectInfo]:
        """Yield all files below a folder in ascending order, with names relative to the folder.

        Symbolic links are neither followed nor yielded. A folder that does not exist has no files.
        """
        ...

    def list_pages(self, after: str, until: str | None) -> Iterator[Sequence[ObjectInfo]]:
        """Yield the files of `list_tree("")` in parts, in any order.

        Parameters
        ----------
        after
            Only files whose names are above this one.
        until
            Only files whose names are not above this one. None: all.
        """
        ...

    def ranges_by(self) -> RangesBy:
        """Return between which names `list_pages` sends requests for the files of a range alone."""
        ...

    def info(self, path: str) -> ObjectInfo:
        """Return the name, size and time of a file. Raises `NotFoundError`."""
        ...

    def delete(self, paths: Sequence[str]) -> None:
        """Delete files below the root; missing files are ignored.

        All deletions are tried; the first error is raised at the end. For a symbolic link, the link
        itself is removed. A link that leads out of the table is not followed.

        Raises
        ------
        InvalidInputError
            A path is not below the root. Then nothing was deleted.
        """
        ...

    def resolve(self, path: str) -> str:
        """Return the absolute path or URI of a file."""
        ...

    def local_path(self, path: str) -> str | None:
        """Return the path for other libraries to open a file on a local disk; else None."""
        ...


def naming(store: Store) -> naming_table:
    """Return a context manager that adds the table's name to errors."""
    return naming_table(store.root)


_COMPLETED_AT_ONCE = 8  # New files that wait in memory; each is smaller than a part.


class BasicStore:
    """A base class of stores, which implements some methods of `Store` with the other ones.

    A store with a better implementation overrides them. A store that wraps another one does not
    forward them, so that all requests use the methods that it wraps.
    """

    reads_at_once: ClassVar[int] = 1
    is_managed: ClassVar[bool] = False
    ratifies: ClassVar[bool] = False

    def latest_version(self) -> int | None:
        """Return None: the files of the log alone say which versions there are."""
        return None

    @contextmanager
    def new_files(self: Store) -> Iterator[OpenOutput]:
        """Open new files; a thread completes each one of a remote store beside the next ones."""
        paths: list[str] = []
        waiting: deque[Call[None]] = deque()

        def complete(path: str, opened: ExitStack) -> None:
            opened.close()
            paths.append(path)

        def await_first() -> None:
            try:
                waiting[0].result()
            finally:
                if waiting[0].is_done:  # Else an interrupt came: the call is waited for below.
                    waiting.popleft()

        try:
            with Workers(_COMPLETED_AT_ONCE) as workers:

                @contextmanager
                def open_output(path: str) -> Iterator[Any]:
                    with ExitStack() as stack:
                        yield stack.enter_context(self.open_output(path))
                        while len(waiting) >= _COMPLETED_AT_ONCE:
                            await_first()
                        written = stack.pop_all()
                    if is_far(self):
                        waiting.append(workers.start(partial(complete, path), written))
                    else:
                        complete(path, written)

                try:
                    yield open_output
                    while waiting:
                        await_first()
                except BaseException:
                    for call in waiting:
                        with suppress(Exception):
                            call.result()
                    raise
        except BaseException:  # Now no thread completes a file any more.
            with suppress(TxlogError):  # A second error would hide the first one.
                self.delete(paths)
            raise

    @contextmanager
    def attempts(self: Store) -> Iterator[PutIfAbsent]:
        """Yield `put_if_absent`, to call until a name is free."""
        yield self.put_if_absent

    def precedence(self, *, briefly: bool = False) -> AbstractContextManager[bool]:
        """Do nothing: other writers are not known."""
        return nullcontext(True)

    def list_briefly(self: Store, folder: str, name: str) -> Iterable[tuple[str, int, int | None]]:
        """Return the files of `list_after`."""
        return list(self.list_after(folder, name))

    def list_pages(self: Store, after: str, until: str | None) -> Iterator[Sequence[ObjectInfo]]:
        """Yield the files of `list_tree`, all at once."""
        yield within(self.list_tree(""), after, until)

    def ranges_by(self) -> RangesBy:
        """Return `nothing`: a range is chosen from a listing of all files."""
        return "nothing"

    def read_many(self: Store, files: Sequence[tuple[str, int]]) -> Iterator[bytes]:
        """Yield whole files in order. From a remote store, several are read concurrently.

        Each file is in memory until it is yielded.
        """
        paths = [path for path, _ in files]
        if self.reads_at_once < 2 or len(paths) < 2:
            return map(self.read, paths)
        workers = self.reads_at_once
        return map_ahead(self.read, paths, workers=workers, ahead=2 * workers)

    def move(self: Store, places: Sequence[tuple[str, str]]) -> None:
        """Move files by copying them; several at a time if the store is remote."""
        deque(map_many(self, partial(_move_by_copy, self), places), maxlen=0)

    def local_path(self, path: str) -> str | None:
        """Return None: the store is not a local disk, or it hides the path."""
        return None


class WrappingStore(BasicStore):
    """A base class of stores around another one, `inner`, at the same place.

    It forwards no request: a subclass defines `read`, `put_if_absent` and the others that all
    stores have.
    """

    inner: Store

    @property
    def reads_at_once(self) -> int:  # type: ignore[override]  # Other stores have a constant.
        """The best number of concurrent reads of the wrapped store."""
        return self.inner.reads_at_once

    @property
    def is_managed(self) -> bool:  # type: ignore[override]  # Other stores have a constant.
        """Whether the wrapped store asks a catalog."""
        return self.inner.is_managed

    @property
    def ratifies(self) -> bool:  # type: ignore[override]
        """Whether a catalog decides the commits of the wrapped store."""
        return self.inner.ratifies

    def latest_version(self) -> int | None:
        """Return the last version that the catalog of the wrapped store ratified."""
        return self.inner.latest_version()

    @property
    def root(self) -> str:
        """The location of the table."""
        return self.inner.root

    @property
    def options(self) -> Mapping[str, Any]:
        """The options with which the table was opened."""
        return self.inner.options

    def require_writable(self) -> None:
        """Ask the wrapped store."""
        self.inner.require_writable()

    def resolve(self, path: str) -> str:
        """Return the absolute path or URI of a file."""
        return self.inner.resolve(path)


class ForwardingStore(WrappingStore):
    """A base class of stores that treat some files of another store in their own way.

    Everything else is forwarded. Methods of `BasicStore` that use others are not, so that all
    requests use the methods of the subclass.
    """

    def read(self, path: str) -> bytes:
        """Return a whole file."""
        return self.inner.read(path)

    def info(self, path: str) -> ObjectInfo:
        """Return the name, size and time of a file."""
        return self.inner.info(path)

    def list_after(self, folder: str, name: str) -> Iterator[ObjectInfo]:
        """Yield the files of a folder whose names are not below `name`, by name, ascending."""
        return self.inner.list_after(folder, name)

    def list_briefly(self, folder: str, name: str) -> Iterable[tuple[str, int, int | None]]:
        """Return the files of `list_after`."""
        return self.inner.list_briefly(folder, name)

    def list_tree(self, folder: str) -> Iterator[ObjectInfo]:
        """Yield all files below a folder."""
        return self.inner.list_tree(folder)

    def list_pages(self, after: str, until: str | None) -> Iterator[Sequence[ObjectInfo]]:
        """Yield files in parts."""
        return self.inner.list_pages(after, until)

    def ranges_by(self) -> RangesBy:
        """Ask the wrapped store."""
        return self.inner.ranges_by()

    def put_if_absent(self, path: str, data: bytes) -> Put:
        """Create a file atomically; return whether it was created or existed before."""
        return self.inner.put_if_absent(path, data)

    @contextmanager
    def attempts(self) -> Iterator[PutIfAbsent]:
        """Yield `put_if_absent`, after the wait for a writer that has precedence."""
        with self.inner.attempts():
            yield self.put_if_absent

    def precedence(self, *, briefly: bool = False) -> AbstractContextManager[bool]:
        """Ask the wrapped store."""
        return self.inner.precedence(briefly=briefly)

    def open_input(self, path: str, *, size: int | None = None) -> Any:
        """Return a file for random reading."""
        return self.inner.open_input(path, size=size)

    def open_output(self, path: str) -> AbstractContextManager[Any]:
        """Return a new file to be written in a `with`."""
        return self.inner.open_output(path)

    def new_files(self) -> AbstractContextManager[OpenOutput]:  # type: ignore[override]
        """Return a `with` whose value opens new files."""
        return self.inner.new_files()

    def write_new(self, path: str, data: bytes) -> None:
        """Write a whole new file."""
        self.inner.write_new(path, data)

    def replace(self, path: str, data: bytes) -> None:
        """Write a file over an existing one."""
        self.inner.replace(path, data)

    def delete(self, paths: Sequence[str]) -> None:
        """Delete files below the root."""
        self.inner.delete(paths)

    def move(self, places: Sequence[tuple[str, str]]) -> None:
        """Move files to new places, durably."""
        self.inner.move(places)

    def local_path(self, path: str) -> str | None:
        """Return the path by which other libraries can open a file on a local disk; else None."""
        return self.inner.local_path(path)


_COPIED_BYTES: Threshold = 8 << 20  # The number of bytes that are copied at a time.


def require_below(path: str, key: str, root: str) -> None:
    """Raise if a store's key of a path is not that of a file below the key of its root.

    Raises
    ------
    InvalidInputError
        The path is empty, leads out, or belongs to another store (then its key is empty).
    """
    key, root = key.strip("/"), root.strip("/")
    below = f"{root}/" if root else ""
    if not path or not key or not key.startswith(below) or ".." in key.split("/"):
        raise InvalidInputError(
            argument="paths", reason=f"{path!r} is not a file below the table's root"
        )


def is_there(store: Store, path: str) -> bool:
    """Return whether a store has a file."""
    try:
        store.info(path)
    except NotFoundError:
        return False
    return True


def copy_file(store: Store, path: str, home: Store, target: str) -> None:
    """Copy a file to a new file of another store or of the same store."""
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


def are_equal(store: Store, path: str, other_store: Store, other_path: str) -> bool:
    """Return whether two files have the same bytes; False if one of them does not exist."""
    return _common(store, path, other_store, other_path) == "equal"


def is_part_of_file(store: Store, path: str, whole: str) -> bool:
    """Return whether a file has the first bytes of another one, or all of them."""
    return _common(store, path, store, whole) in ("equal", "prefix")


def _common(
    store: Store, path: str, other_store: Store, other_path: str
) -> Literal["equal", "prefix", "different"]:
    """Return whether the bytes of a file are those of another one, or the first of them."""
    try:
        with store.open_input(path) as one, other_store.open_input(other_path) as other:
            while True:
                data, more = _next_part(one), _next_part(other)
                if data != more:
                    is_end = len(data) < _COPIED_BYTES and more.startswith(data)
                    return "prefix" if is_end else "different"
                if not data:
                    return "equal"
    except NotFoundError:
        return "different"


def _next_part(file: Any) -> bytes:
    """Return the next part of a file; it is shorter than others only at the end."""
    parts, left = [], _COPIED_BYTES
    while left and (data := bytes(file.read(left))):
        parts.append(data)
        left -= len(data)
    return b"".join(parts)


def _move_by_copy(store: Store, place: tuple[str, str]) -> None:
    path, target = place
    if is_there(store, path):
        with suppress(NotFoundError):  # Another process may delete it meanwhile.
            copy_file(store, path, store, target)
            store.delete([path])


Item = TypeVar("Item")
Result = TypeVar("Result")

_AHEAD_BYTES: Threshold = 64 << 20  # The bytes that may be read ahead.
_SMALL_TIMES = 4  # So many times more small files than others are read at the same time.


def is_far(store: Store) -> bool:
    """Return whether a store is remote, so that even small requests are slow."""
    return store.reads_at_once > 1


def within(infos: Iterable[ObjectInfo], after: str, until: str | None) -> list[ObjectInfo]:
    """Return the files whose names are above one name, and not above another one."""
    return [info for info in infos if after < info.name and (until is None or info.name <= until)]


Level = Callable[[str], tuple[Sequence[ObjectInfo], Sequence[str]]]
Below = Callable[[str], Iterable[Sequence[ObjectInfo]]]


def pages_in_folders(
    level: Level, below: Below, after: str, until: str | None
) -> Iterator[list[ObjectInfo]]:
    """Yield the files of a range as `Store.list_pages` does, without a look into other folders.

    Folders that hold a bound are listed by their levels. What is between them is listed as a whole.

    Parameters
    ----------
    level
        Returns the files of a folder, and the folders in it. A folder is the empty text for the
        root, else a name with a slash at its end.
    below
        Yields all files below a folder in parts. All names are relative to the root.
    """
    waiting = [""]
    while waiting:
        folder = waiting.pop()
        if _holds_bound(folder, after, until):
            files, folders = level(folder)
            yield within(files, after, until)
            waiting += [one for one in folders if _overlaps(one, after, until)]
            continue
        for page in below(folder):
            yield list(page)


def _overlaps(folder: str, after: str, until: str | None) -> bool:
    """Return whether a range may have a name that begins with a folder's."""
    return (folder > after or after.startswith(folder)) and (until is None or folder < until)


def _holds_bound(folder: str, after: str, until: str | None) -> bool:
    """Return whether a folder that overlaps a range may also have a name outside of it."""
    return (after > folder and after.startswith(folder)) or (
        until is not None and until.startswith(folder)
    )


def map_many(
    store: Store,
    function: Callable[[Item], Result],
    items: Sequence[Item],
    *,
    size: Callable[[Item], int] = lambda _: 0,
) -> Iterator[Result]:
    """Yield `function(item)` for each item, in order; an error is raised in its item's place.

    Parameters
    ----------
    store
        The store that the function reads. If it is remote, several calls run concurrently.
    size
        The approximate size of a result in bytes. It limits the number of results that wait in
        memory.
    """
    workers = store.reads_at_once
    if workers < 2 or len(items) < 2:
        yield from tracked(map(function, items), items)
        return
    results = map_ahead(
        function, items, workers=workers, ahead=2 * workers, size=size, ahead_size=_AHEAD_BYTES
    )
    yield from tracked(results, items)


def threads_for(store: Store) -> Threads:
    """Return an engine for a store; a remote store gets more threads, as they mostly wait."""
    if not is_far(store):
        return Threads()
    workers = max(store.reads_at_once, os.cpu_count() or 1)
    return Threads(workers, most=_SMALL_TIMES * workers)
