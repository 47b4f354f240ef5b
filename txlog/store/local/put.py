"""Put-if-absent on a local disk: write and sync a temporary file, then link it to its name.

Writers that lost a race for a name take turns, so that they do not lose again. An operation that
had to start again several times because of other commits gets precedence.
"""

from __future__ import annotations

import contextlib
import errno
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import TracebackType

from txlog.base.effects import REAL
from txlog.base.errors import OutcomeUnknownError, UnsupportedFeatureError, os_errors
from txlog.store.base import Put
from txlog.store.local.disk import Disk, Folders

_NO_LINKS = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK)


class Staging:
    """Attempts of one put-if-absent. Each attempt may have another name and other bytes.

    A put writes and syncs a hidden temporary file next to the target, links it to the target's
    name, and syncs the folder. The link fails if the name is taken. Then the next attempt reuses
    the file: it links the same bytes again, or overwrites them with other bytes. A writer that lost
    waits for its turn to try again. For use in a `with`; its end removes the temporary file.
    """

    def __init__(self, disk: Disk, folders: Folders, resolve: Callable[[str], str]) -> None:
        self._disk = disk
        self._folders = folders
        self._resolve = resolve
        self._temporary: str | None = None  # The path of the temporary file, if there is one.
        self._data = b""
        self._turn = Turn()

    def __enter__(self) -> Staging:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: object, trace: TracebackType | None
    ) -> None:
        self._turn.leave()
        self._drop()

    def put(self, path: str, data: bytes, *, last: bool = False) -> Put:
        """Create a complete, durable file atomically; errors as for `Store.put_if_absent`.

        `last` means that no other attempt will follow if the name is taken.
        """
        target = self._resolve(path)
        folder = os.path.dirname(target)
        with os_errors("create", path, self._folders.root):
            self._folders.ensure(folder)
            require_exclusive(folder, path)
            try:
                created = self._linked(target, data, path)
            except BaseException:  # Now the content of the temporary file is unknown.
                self._drop()
                raise
            if not created:
                if not last:
                    self._turn.wait_for(folder)
                return "exists"
            self._turn.leave()
            # A remaining temporary file does no harm, and the outcome is known.
            self._drop()
        _sync_created(self._disk, folder, path)
        return "created"

    def _linked(self, target: str, data: bytes, path: str) -> bool:
        """Link the temporary file; return false if the name was taken."""
        own = self._temporary
        prepared = self._prepared(target, data)
        try:
            return _link(self._disk, prepared, target, path)
        except FileNotFoundError:
            if prepared != own:
                raise
            self._temporary = None  # Another process deleted it.
        return _link(self._disk, self._prepared(target, data), target, path)

    def _prepared(self, target: str, data: bytes) -> str:
        """Return the path of a synced temporary file with these bytes in the target's folder."""
        old = self._temporary
        if old is not None and os.path.dirname(old) != os.path.dirname(target):
            old = None
        if old is not None and (self._data == data or self._overwrite(old, data)):
            return old
        self._drop()
        fresh = temporary(target)
        write_whole(self._disk, fresh, data)
        self._temporary, self._data = fresh, data
        return fresh

    def _overwrite(self, path: str, data: bytes) -> bool:
        """Overwrite the temporary file with other bytes; return false if it has other links."""
        try:
            descriptor = self._disk.reopen(path)
        except OSError:  # Another process deleted it.
            return False
        try:
            if os.fstat(descriptor).st_nlink != 1:
                return False  # A reader that uses another name of the file must not see it change.
            write_all(self._disk, descriptor, data)
            if len(data) < len(self._data):
                self._disk.truncate(descriptor, len(data))
            self._disk.sync_data(descriptor)
        finally:
            self._disk.close(descriptor)
        self._data = data
        return True

    def _drop(self) -> None:
        if self._temporary is not None:
            forget(self._disk, self._temporary)
            self._temporary = None


def temporary(target: str) -> str:
    """Return a new hidden name next to a file, which readers of the log ignore."""
    folder, name = os.path.split(target)
    return f"{folder}/.{name}.{REAL.uuid()}.tmp"


def write_whole(disk: Disk, target: str, data: bytes) -> None:
    """Write and sync a file with this content; after an error, it is removed."""
    descriptor = disk.create(target)
    try:
        try:
            write_all(disk, descriptor, data)
            disk.sync(descriptor)
        finally:
            disk.close(descriptor)
    except BaseException:
        forget(disk, target)
        raise


def write_all(disk: Disk, descriptor: int, data: bytes) -> None:
    """Write all bytes, even if each call writes only a part."""
    view = memoryview(data)
    while view:
        view = view[disk.write(descriptor, view) :]


def forget(disk: Disk, target: str) -> None:
    """Remove a file that is not needed; errors are ignored."""
    with contextlib.suppress(OSError):
        disk.unlink(target)


def _link(disk: Disk, temporary: str, target: str, path: str) -> bool:
    try:
        disk.link(temporary, target)
    except OSError as error:
        # A network file system may have made the link although it reports an error: the answer was
        # lost, or the request was sent twice.
        if _is_same_file(temporary, target, path):
            return True
        if isinstance(error, FileExistsError):
            return False
        if error.errno in _NO_LINKS:
            raise UnsupportedFeatureError(
                path=path,
                features=("hard links",),
                reason="the file system does not support hard links, so a commit could overwrite "
                f"another one: {error.strerror}",
                remedy="Keep the table on a file system with hard links, such as ext4, XFS, "
                "APFS or NFS",
            ) from error
        raise
    return True


_EXCLUSIVE: set[int] = set()  # Devices on which a link to a taken name failed in a probe.


def require_exclusive(folder: str, path: str) -> None:
    """Probe, once for each device, that a link to a taken name fails.

    Raises
    ------
    UnsupportedFeatureError
        A link replaced an existing file, as on some mounted file systems.
    """
    device = os.stat(folder).st_dev
    if device in _EXCLUSIVE:
        return
    made: list[str] = []
    try:
        for _ in range(2):
            made.append(temporary(f"{folder}/probe"))
            os.close(os.open(made[-1], os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))
        os.link(made[0], made[1])
    except FileExistsError:
        _EXCLUSIVE.add(device)
    except OSError:
        return  # The put will fail with the same error, and report it.
    finally:
        for name in made:
            forget(Disk(), name)
    if device not in _EXCLUSIVE:
        raise UnsupportedFeatureError(
            path=path,
            features=("atomic create",),
            reason="on this file system a hard link replaced an existing file, so a commit could "
            "overwrite another one",
            remedy="Keep the table on a file system where a link to a taken name fails, such as "
            "ext4, XFS, APFS or NFS, or commit through a coordinator (docs/stores.md)",
        )


def link_or_rename(disk: Disk, source: str, target: str) -> bool:
    """Give a file a second name; return whether it has both names.

    On a file system without hard links, the file is renamed. Raises `OSError`.
    """
    try:
        disk.link(source, target)
    except FileExistsError:
        if not os.path.samestat(os.lstat(source), os.lstat(target)):
            raise  # If it is the same file, an earlier move was interrupted.
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        disk.rename(source, target)
        return False
    return True


def _sync_created(disk: Disk, folder: str, path: str) -> None:
    try:
        disk.sync_folder(folder)
    except OSError as error:
        reason = f"the file was created, but may not survive a crash: {error.strerror}"
        raise _unknown(path, reason, visible=True) from error


def _is_same_file(temporary: str, target: str, path: str) -> bool:
    try:
        return os.path.samestat(os.lstat(temporary), os.lstat(target))
    except FileNotFoundError:
        return False
    except OSError as error:
        reason = f"the link failed, and it is unknown whether it exists: {error.strerror}"
        raise _unknown(path, reason) from error


def _unknown(path: str, reason: str, *, visible: bool | None = None) -> OutcomeUnknownError:
    remedy = "Check the disk, and read the file back"
    return OutcomeUnknownError(path=path, reason=reason, remedy=remedy, visible=visible)


try:
    import fcntl
except ImportError:  # On other systems, writers do not wait for a turn.
    fcntl = None  # type: ignore[assignment]

_LONGEST_S = 0.1
_POLL_S = 0.0002
_LONGEST_POLL_S = 0.02


class Turn:
    """A lock on a folder that decides which writer tries next. Writers wait for it a short time.

    It only affects speed: a writer that does not get the lock in time continues without it, and the
    link to the name still decides which writer wins. A process that dies releases the lock.
    """

    def __init__(self) -> None:
        self._descriptor: int | None = None

    def wait_for(self, folder: str, longest_s: float = _LONGEST_S) -> bool:
        """Wait for the lock, at most `longest_s`; return false if the time was not enough."""
        if self._descriptor is not None or fcntl is None:
            return True
        try:
            descriptor = os.open(folder, os.O_RDONLY)
        except OSError:
            return True
        began = REAL.monotonic_s()
        try:
            if _locked(descriptor, fcntl.LOCK_EX, longest_s):
                self._descriptor = descriptor
        finally:
            if self._descriptor is None:
                os.close(descriptor)
        return self._descriptor is not None or REAL.monotonic_s() - began <= longest_s

    def leave(self) -> None:
        """Release the lock."""
        if self._descriptor is not None:
            descriptor, self._descriptor = self._descriptor, None
            try:
                # Closing is not enough: a child that was forked meanwhile holds the lock too.
                with suppress(OSError):
                    fcntl.flock(descriptor, fcntl.LOCK_UN)
            finally:
                os.close(descriptor)


def _locked(descriptor: int, how: int, longest_s: float) -> bool:
    until = REAL.monotonic_s() + longest_s
    while True:
        try:
            fcntl.flock(descriptor, how | fcntl.LOCK_NB)
        except BlockingIOError:
            left_s = until - REAL.monotonic_s()
            if left_s <= 0:
                return False
            # The writer that has waited longest asks most often, so it usually gets the lock first.
            seldom_s = min(_LONGEST_POLL_S * left_s / longest_s, _POLL_S * left_s / _LONGEST_S)
            REAL.sleep_s(max(_POLL_S, seldom_s))
        except OSError:  # The file system has no locks.
            return False
        else:
            return True


_OWN = threading.local()  # `roots`: tables in which the thread has precedence.
# By table: when this process last waited without success, and how long it will not wait again.
_IN_VAIN: dict[str, tuple[float, float]] = {}
_LONGEST_WAY_S = 15.0  # On an overloaded machine an operation takes seconds.
_LONGEST_QUEUE_S = 90.0
_PAUSE_S, _LONGEST_PAUSE_S = 5.0, 80.0


@contextmanager
def precedence(root: str, *, briefly: bool = False) -> Iterator[bool]:
    """Let other writers of a table delay their commits during one commit.

    Like a turn, it is advisory. Several writers get it one after another. The value is false for a
    writer that waited too long for the others. With `briefly` it waits as long as it gives way.
    """
    before: tuple[str, ...] = getattr(_OWN, "roots", ())
    if root in before:
        yield True
        return
    turn = Turn()
    longest_s = _LONGEST_QUEUE_S
    if briefly:
        longest_s = 0.0 if _waited_in_vain(root) else _LONGEST_WAY_S
    handle = turn.wait_for(root, longest_s)
    _OWN.roots = (*before, root) if handle else before
    try:
        yield handle
    finally:
        _OWN.roots = before
        turn.leave()


def _waited_in_vain(root: str) -> bool:
    """Return whether this process waited without success, and does not wait again yet."""
    since, pause = _IN_VAIN.get(root, (0.0, 0.0))
    return REAL.monotonic_s() < since + pause


def give_way(root: str) -> None:
    """Wait, for a limited time, while another writer has precedence in a table.

    If the time was not enough, the process does not wait again during a pause. The pause doubles
    each time: if the process with precedence is stopped, others lose at most a sixth of their time
    in the end. If it is only slow, it keeps its precedence.
    """
    if fcntl is None or root in getattr(_OWN, "roots", ()):
        return
    if _waited_in_vain(root):
        return
    try:
        descriptor = os.open(root, os.O_RDONLY)
    except OSError:
        return
    try:
        began = REAL.monotonic_s()
        if _locked(descriptor, fcntl.LOCK_SH, _LONGEST_WAY_S):
            _IN_VAIN.pop(root, None)
            with suppress(OSError):  # The reason is in `Turn.leave`.
                fcntl.flock(descriptor, fcntl.LOCK_UN)
        elif REAL.monotonic_s() - began > _LONGEST_WAY_S:
            pause = _IN_VAIN.get(root, (0.0, 0.0))[1]
            longer = min(max(2 * pause, _PAUSE_S), _LONGEST_PAUSE_S)
            _IN_VAIN[root] = REAL.monotonic_s(), longer
    finally:
        os.close(descriptor)
