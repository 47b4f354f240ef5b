"""Sources of rows: files, folders and prefixes of an allow-list, tables, and Arrow data."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

from txlog.base.errors import InvalidInputError, NotFoundError, os_errors
from txlog.base.texts import without_secrets
from txlog.base.thresholds import Threshold
from txlog.base.uris import file_path, is_file_uri, scheme_of
from txlog.extend import Store, name_in, open_store
from txlog.training.datasets.limits import Limits, fault_of_path, fault_of_step
from txlog.training.datasets.values import Input

if TYPE_CHECKING:
    import pyarrow as pa

_CHUNK_BYTES: Threshold = 4 << 20
# Up to this size, a file for random reading is copied to memory; a larger file to the disk.
_SPOOLED_BYTES: Threshold = 16 << 20
_WEB = ("http", "https", "ftp")  # Refused: a server can redirect to an internal address.
_FILE_FLAGS = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
_FOLDER_FLAGS = _FILE_FLAGS | getattr(os, "O_DIRECTORY", 0)
_LINK = "symbolic links are not followed"
_REMEDY = "Replace the link by its target"


class SourceFile:
    """One file of a source, read from its start to its end.

    `sha256` is the digest of its bytes, after all of them were read.
    """

    def __init__(self, name: str, size: int, uri: str, opened: Callable[[], Any]) -> None:
        self.name = name  # The path below the source, with `/` between its parts.
        self.size = size  # Bytes.
        self.uri = uri  # For messages.
        self.sha256: str | None = None
        self._opened = opened

    def chunks(self, most_bytes: int = _CHUNK_BYTES) -> Iterator[bytes]:
        """Yield the bytes in order, in chunks of a limited size.

        Raises
        ------
        InvalidInputError
            The number of bytes has changed since the source was opened.
        """
        digest, left = sha256(), self.size
        with ExitStack() as stack:
            with os_errors("open", self.uri):
                file = stack.enter_context(self._opened())
            while True:
                with os_errors("read", self.uri):
                    chunk = file.read(most_bytes)
                left -= len(chunk)
                if left < 0 or (left and not chunk):
                    raise refused(
                        f"{self.name} was changed while it was read",
                        "Read it again when no process writes to it",
                    )
                if not chunk:
                    break
                digest.update(chunk)
                yield chunk
        self.sha256 = digest.hexdigest()

    def opened(self) -> Any:
        """Return the file itself for random reading; another process may change it."""
        return self._opened()

    def content(self) -> bytes:
        """Return all bytes."""
        return b"".join(self.chunks())

    @contextmanager
    def seekable(self) -> Iterator[Any]:
        """Yield a copy of the file for random reading, which no other process changes."""
        with spooled(self.chunks()) as copy:
            yield copy


@contextmanager
def spooled(chunks: Iterator[bytes]) -> Iterator[Any]:
    """Yield a content as a seekable file: in memory if it is small, else on the disk."""
    from tempfile import SpooledTemporaryFile

    with SpooledTemporaryFile(_SPOOLED_BYTES) as copy:
        for chunk in chunks:
            with os_errors("write", "a temporary file"):
                copy.write(chunk)
        copy.seek(0)
        yield copy


@dataclass
class Source:
    """The data for a commit: files, or Arrow data."""

    uri: str  # For messages and lineage; empty for data without a URI.
    name: str  # The last step of the URI.
    files: list[SourceFile] = field(default_factory=list)  # Ascending by name.
    is_folder: bool = False
    data: pa.RecordBatchReader | None = None
    columns: pa.Schema | None = None  # Those of the data set; None before its first commit.
    given: Input | None = None  # The input for lineage if the source is a table at a version.

    def inputs(self) -> tuple[Input, ...]:
        """Return the source's input for lineage, after it was read.

        The digest of a file is the SHA-256 of its bytes. The digest of a folder is the SHA-256 of
        one line for each file, in the format of `sha256sum`: digest, two spaces, name.
        """
        if self.given is not None:
            return (self.given,)
        if not self.files:
            return ()
        if not self.is_folder:
            return (Input(self.uri, digest=self.files[0].sha256),)
        lines = sha256()
        for file in self.files:
            if file.sha256 is not None:  # None for files that are not read, such as Thumbs.db.
                lines.update(f"{file.sha256}  {file.name}\n".encode())
        return (Input(self.uri, digest=lines.hexdigest()),)


@dataclass(frozen=True)
class Sources:
    """The places from which sources may be read.

    Parameters
    ----------
    allowed
        Names of folders or prefixes: `{"incoming": "s3://raw/in"}`. Then a source is
        `incoming/001.csv`, or a path or URI below one of these places; other sources are refused.
        None: any path and URI that this process may read.
    storage_options
        As for `Table`, for all places.

    Symbolic links are followed only in the path of a place and, if `allowed` is None, in the path
    of a source. Web addresses are refused, because a server may redirect to any other address. The
    object stores in `allowed` are trusted; if one redirects, no credentials are sent to the new
    address.
    """

    allowed: Mapping[str, str | os.PathLike[str]] | None = None
    storage_options: Mapping[str, Any] | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        for name in self.allowed or {}:
            if wrong := fault_of_step(name, Limits().name_bytes):
                raise InvalidInputError(
                    argument="allowed", reason=f"the name {name[:100]!r} of a place {wrong}"
                )

    def open(self, source: str | os.PathLike[str], limits: Limits) -> Source:
        """Return the source at a path or URI: a file, or a folder or prefix with all below it.

        Raises
        ------
        InvalidInputError
            It is outside of the list, its path contains a symbolic link, or it has more or larger
            files than the limits allow.
        NotFoundError
            There is no file.
        """
        root, path, shown = self.locate(source)
        missing = NotFoundError(
            path=shown, reason=f"there is no file {shown!r}, and no file below it"
        )
        try:
            files, is_folder = (
                _local_files(root, path, limits)
                if scheme_of(root) in (None, "file")
                else _remote_files(open_store(root, self.storage_options), path, limits)
            )
        except NotFoundError as error:
            raise missing from error
        if not files:
            raise missing
        _require_sizes(files, shown, limits)
        for file in files:
            file.uri = f"{shown}/{file.name}" if is_folder else shown
        name = shown.rstrip("/").rpartition("/")[2]
        return Source(shown, name, files, is_folder)

    def locate(self, source: str | os.PathLike[str]) -> tuple[str, str, str]:
        """Return the place of a source, its path there, and its name in messages.

        Messages use the name of the place, so that they do not reveal its location.
        """
        text = os.fspath(source)
        if "\0" in text:
            raise refused("it has a NUL character")
        if not text.strip("/"):
            raise refused(f"{text!r} does not name a file or folder")
        if scheme_of(text) in _WEB:
            raise refused(
                f"{text!r} is a web address",
                "Download it, or use the address of an object store, such as s3://",
            )
        if self.allowed is None:
            return _anywhere(text)
        name, _, path = text.partition("/")
        if name in self.allowed:
            root, shown = os.fspath(self.allowed[name]), text.rstrip("/")
        else:
            found = next(
                (
                    (alias, place, below)
                    for alias, place in self._places()
                    if (below := _below(place, _plain(text))) is not None
                ),
                None,
            )
            if found is None:
                raise refused(
                    f"{text!r} is not in an allowed place",
                    f"Begin it with one of {', '.join(sorted(self.allowed)) or '(there is none)'}",
                )
            alias, root, path = found
            shown = f"{alias}/{path}".rstrip("/")
        path = path.rstrip("/")
        if not path:
            raise refused(f"{text!r} is a whole place, not a file or folder in it")
        if wrong := fault_of_path(path, Limits()):
            raise refused(f"the path {path[:200]!r} {wrong}")
        return (file_path(root, decode=True) if is_file_uri(root) else root), path, shown

    def _places(self) -> Iterator[tuple[str, str]]:
        for alias, place in (self.allowed or {}).items():
            yield alias, _plain(os.fspath(place))


def refused(reason: str, remedy: str = "") -> InvalidInputError:
    """Return the error for a refused source."""
    return InvalidInputError(argument="source", reason=reason, remedy=remedy)


def _plain(place: str) -> str:
    """Return a place without a slash at its end; a `file:` URI as a path."""
    path = file_path(place, decode=True) if is_file_uri(place) else place
    return path.rstrip("/") if path.strip("/") else path


def _below(place: str, text: str) -> str | None:
    """Return the path of a source below an allowed place; None if it is not below it.

    Local paths are compared as texts, because no link below a place is followed.
    """
    if text.startswith(f"{place}/"):
        return text[len(place) + 1 :]
    is_local = scheme_of(place) in (None, "file") or scheme_of(text) in (None, "file")
    return None if is_local else name_in(place, text)


def _anywhere(text: str) -> tuple[str, str, str]:
    """Return the place of a source if all places are allowed; links in its path are followed."""
    if scheme_of(text) not in (None, "file"):
        place, _, path = text.rstrip("/").rpartition("/")
        if not path or place.endswith(("/", ":")):  # A whole bucket.
            return text.rstrip("/"), "", without_secrets(text.rstrip("/"))
        return place, path, without_secrets(text.rstrip("/"))
    plain = Path(file_path(text, decode=True) if is_file_uri(text) else text)
    with suppress(RuntimeError):  # `~x.csv` may be a file, and no user has such a name.
        plain = plain.expanduser()
    try:
        real = plain.resolve()
    except (OSError, RuntimeError) as error:
        raise refused(f"{text!r} cannot be resolved: {error}") from error
    return str(real.parent), real.name, str(plain.absolute())


def _require_sizes(files: list[SourceFile], shown: str, limits: Limits) -> None:
    if len(files) > limits.files:
        raise refused(f"{shown} has {len(files)} files, {limits.files} are allowed")
    for file in files:
        if file.size > limits.file_bytes:
            raise refused(
                f"{file.name} has {file.size} bytes, {limits.file_bytes} are allowed",
                "Raise Limits(file_bytes=…), or cut it",
            )
    total = sum(file.size for file in files)
    if total > limits.total_bytes:
        raise refused(f"{shown} has {total} bytes, {limits.total_bytes} are allowed")


# Object stores ---------------------------------------------------------------------------------


def _remote_files(store: Store, path: str, limits: Limits) -> tuple[list[SourceFile], bool]:
    if path:
        try:
            info = store.info(path)
            return [_remote_file(store, path, info.name, info.size)], False
        except NotFoundError:
            pass
    files: list[SourceFile] = []
    for info in store.list_tree(path):
        if (
            info.name.endswith("/") or not info.name
        ):  # Web consoles create such a file for an empty folder.
            continue
        if wrong := fault_of_path(info.name, limits):
            raise refused(f"the name {info.name[:200]!r} below {path!r} {wrong}")
        if len(files) >= limits.files:
            raise refused(f"{path!r} has more than {limits.files} files")
        below = f"{path}/{info.name}" if path else info.name
        files.append(_remote_file(store, below, info.name, info.size))
    return files, True


def _remote_file(store: Store, path: str, name: str, size: int) -> SourceFile:
    return SourceFile(name, size, path, partial(store.open_input, path))


# The local disk --------------------------------------------------------------------------------


def _local_files(root: str, path: str, limits: Limits) -> tuple[list[SourceFile], bool]:
    """Return the files at a path below a folder; raise for links and special files."""
    root = os.path.abspath(os.path.expanduser(root))  # noqa: PTH100, PTH111  (It never raises.)
    with os_errors("open", path):
        descriptor = _open_below(root, path, _FILE_FLAGS)
        try:
            found = os.fstat(descriptor)
        finally:
            os.close(descriptor)
    if stat.S_ISREG(found.st_mode):
        name = path.rpartition("/")[2]
        return [SourceFile(name, found.st_size, path, partial(_opened, root, path))], False
    if not stat.S_ISDIR(found.st_mode):
        raise refused(f"{path!r} is neither a file nor a folder")
    files: list[SourceFile] = []
    with os_errors("list", path):
        for name, size in _walk(f"{root}/{path}", "", limits):
            if len(files) >= limits.files:
                raise refused(f"{path!r} has more than {limits.files} files")
            below = f"{path}/{name}"
            files.append(SourceFile(name, size, below, partial(_opened, root, below)))
    files.sort(key=lambda file: file.name)
    return files, True


def _walk(folder: str, above: str, limits: Limits) -> Iterator[tuple[str, int]]:
    with os.scandir(folder) as entries:
        for entry in entries:
            name = above + entry.name
            if entry.is_symlink():
                raise refused(f"{name!r} is a symbolic link", "Replace the link by its target")
            if wrong := fault_of_path(name, limits):
                raise refused(f"the name {name[:200]!r} {wrong}")
            if entry.is_dir(follow_symlinks=False):
                yield from _walk(entry.path, f"{name}/", limits)
            elif entry.is_file(follow_symlinks=False):
                yield name, entry.stat(follow_symlinks=False).st_size
            else:
                raise refused(f"{name!r} is neither a file nor a folder")


def _opened(root: str, path: str) -> Any:
    """Return a file below a folder, opened for reading."""
    descriptor = _open_below(root, path, _FILE_FLAGS)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise refused(f"{path!r} is not a file")
        return os.fdopen(descriptor, "rb", buffering=0)
    except BaseException:
        os.close(descriptor)
        raise


def _open_below(root: str, path: str, flags: int) -> int:
    """Return the descriptor of a path below a folder; raise if a step is a symbolic link.

    Each step is opened relative to the previous folder, so no link can be inserted meanwhile.
    """
    if os.open not in os.supports_dir_fd:
        return _open_plainly(root, path, flags)
    folder = os.open(root, _FOLDER_FLAGS & ~getattr(os, "O_NOFOLLOW", 0))
    try:
        *steps, last = path.split("/")
        for step in steps:
            below = _open_step(step, _FOLDER_FLAGS, folder, path)
            os.close(folder)
            folder = below
        return _open_step(last, flags, folder, path)
    finally:
        os.close(folder)


def _open_step(step: str, flags: int, folder: int, path: str) -> int:
    try:
        return os.open(step, flags, dir_fd=folder)
    except OSError:
        # If the step does not exist, this raises.
        found = os.stat(step, dir_fd=folder, follow_symlinks=False)
        if stat.S_ISLNK(found.st_mode):
            raise refused(f"{step!r} in {path!r}: {_LINK}", _REMEDY) from None
        raise


def _open_plainly(root: str, path: str, flags: int) -> int:
    """Do the same as `_open_below` on systems that cannot open folders."""
    place = Path(root)
    for step in path.split("/"):
        place /= step
        if place.is_symlink():
            raise refused(f"{step!r} in {path!r}: {_LINK}", _REMEDY)
    return os.open(place, flags | getattr(os, "O_BINARY", 0))
