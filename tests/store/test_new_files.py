"""Many new files: all are durable and each folder is synced once, or no file remains."""

import errno
import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import txlog
from tests.moved import moved
from txlog.base.errors import StoreError, TxlogError
from txlog.base.threads import Call, Threads
from txlog.commit.context import Context
from txlog.data_files.definition import Definition
from txlog.data_files.options import WriteOptions
from txlog.store.base import Store
from txlog.store.local.disk import Disk, RelaxedDisk
from txlog.store.local.local import LocalStore
from txlog.store.open import open_store
from txlog.testing import CountingStore, Fault, FaultyStore, LatencyStore
from txlog.testing.stores import Request, WatchedStore
from txlog.verbs.create import write_new_table

NEW_FILES = "txlog.store.local.new_files"
PATHS = ["a", "p=1/a", "p=1/b", "p=2/q=1/a", "p=2/q=2/a", "p=2/a"]


def write_files(store: Store, paths: Sequence[str], error: BaseException | None = None) -> None:
    with store.new_files() as open_output:
        for path in paths:
            with open_output(path) as sink:
                sink.write(b"x")
        if error is not None:
            raise error


def open_descriptors() -> int:
    folder = Path("/proc/self/fd")
    return len(list(folder.iterdir())) if folder.is_dir() else 0


class Volatile(Disk):
    """A disk that knows what a crash would take: bytes and names that were not synced."""

    def __init__(self, root: Path) -> None:
        self.root = str(root)
        self.lock = threading.Lock()
        self.files: dict[int, str] = {}
        self.unsynced: set[str] = set()  # Files whose bytes are not on the disk.
        self.unnamed: dict[str, set[str]] = {}  # Of a folder, the names that are not.
        self.synced: list[str] = []

    def create(self, path: str) -> int:
        descriptor = super().create(path)
        with self.lock:
            self.files[descriptor] = path
            self.unsynced.add(path)
            self.unnamed.setdefault(str(Path(path).parent), set()).add(path)
        return descriptor

    def sync(self, descriptor: int) -> None:
        super().sync(descriptor)
        with self.lock:
            self.unsynced.discard(self.files[descriptor])

    def make_folder(self, path: str) -> None:
        super().make_folder(path)
        with self.lock:
            self.unnamed.setdefault(str(Path(path).parent), set()).add(path)

    def sync_folder(self, path: str) -> None:
        with self.lock:
            names = self.unnamed.pop(path, set())
            self.synced.append(path)
        try:
            super().sync_folder(path)
        except OSError:
            with self.lock:
                self.unnamed[path] = names
            raise

    def link(self, source: str, target: str) -> None:
        assert not self.volatile(), "a commit refers to files that may be lost"
        super().link(source, target)

    def volatile(self) -> set[str]:
        """Return the files that a crash would lose, without temporary ones."""
        names = {name for names in self.unnamed.values() for name in names} | self.unsynced
        return {name for name in names if not name.endswith(".tmp")}


FEW_AND_MANY = [
    {f"{NEW_FILES}:_WAITING": waiting, f"{NEW_FILES}:_SYNCED_TOGETHER": together}
    for waiting, together in ((64, 4), (1, 1), (1, 2), (2, 3))
]


@given(
    st.lists(st.sampled_from(PATHS), unique=True),
    st.integers(1, 3),
    st.sampled_from(FEW_AND_MANY),
)
def test_all_is_durable_at_the_end(
    tmp_path_factory: pytest.TempPathFactory, paths: list[str], times: int, many: dict[str, int]
) -> None:
    root = tmp_path_factory.mktemp("new")
    disk = Volatile(root)
    store = LocalStore(str(root / "t"), disk=disk)
    for number in range(times):
        del disk.synced[:]
        with moved(many), store.new_files() as open_output:
            for path in paths:
                with open_output(f"{path}{number}") as sink:
                    sink.write(path.encode())
        assert not disk.volatile()
        assert len(set(disk.synced)) == len(disk.synced)
        for path in paths:
            assert store.read(f"{path}{number}") == path.encode()


def files_below(root: Path) -> list[Path]:
    return [path for path in root.rglob("*") if path.is_file()]


def far(store: Store) -> LatencyStore:
    return LatencyStore(store, delay_s=0)


@pytest.mark.parametrize("make", [lambda s: s, FaultyStore, CountingStore, far])
@pytest.mark.parametrize("root", ["memory://new_files", "local"])
@pytest.mark.parametrize("error", [RuntimeError("mine"), KeyboardInterrupt()])
def test_an_error_removes_all(
    tmp_path: Path, make: Callable[..., LocalStore], root: str, error: BaseException
) -> None:
    store = make(open_store(tmp_path / "t" if root == "local" else root))
    with pytest.raises(type(error)) as caught:
        write_files(store, PATHS, error)
    assert caught.value is error
    assert list(store.list_tree("")) == []
    write_files(store, ["a"])
    assert store.read("a") == b"x"


class _FarFaultyStore(FaultyStore):
    reads_at_once = 16


@pytest.mark.parametrize("call", [1, 3, len(PATHS)])
def test_of_a_remote_store_no_file_stays(call: int) -> None:
    inner = open_store("memory://remote_files")
    store = _FarFaultyStore(inner, [Fault("open_output", call, "not_done")])
    with pytest.raises(StoreError):
        write_files(store, PATHS)
    assert list(inner.list_tree("")) == []


def test_an_interrupt_waits_for_the_files_that_are_being_completed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    inner = open_store("memory://interrupted_files")
    happened = threading.Event()
    wait = Call.result

    def interrupted_once(call: Call[None]) -> None:
        if happened.is_set():
            return wait(call)
        happened.set()
        raise KeyboardInterrupt

    monkeypatch.setattr(Call, "result", interrupted_once)
    late = {("open_output", call): lambda: happened.wait(20) for call in range(1, len(PATHS) + 1)}
    store = _FarFaultyStore(inner, before=late)
    with pytest.raises(KeyboardInterrupt):
        write_files(store, PATHS)
    assert happened.is_set()
    assert sorted(path for name, path in store.calls if name == "open_output") == sorted(PATHS)
    assert list(inner.list_tree("")) == []


class _SlowDisk(Disk):
    """A disk on which a sync ends only when somebody no longer waits for it."""

    def __init__(self) -> None:
        self.goes_on = threading.Event()

    def sync(self, descriptor: int) -> None:
        self.goes_on.wait(20)
        super().sync(descriptor)


@pytest.mark.parametrize("times", [1, 2, 3])
@pytest.mark.parametrize("ends", [True, False])
@pytest.mark.parametrize("kind", ["local", "few", "remote"])
def test_no_file_stays_however_often_it_is_interrupted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, ends: bool, times: int
) -> None:
    """An interrupt comes while a call is waited for, and a last one while the threads end."""
    disk = _SlowDisk()
    inner = open_store(f"memory://{tmp_path}") if kind == "remote" else None
    store: Any = LocalStore(str(tmp_path / "t"), disk=disk)
    if inner is not None:
        calls = range(1, len(PATHS) + 1)
        late = {("open_output", call): lambda: disk.goes_on.wait(20) for call in calls}
        store = _FarFaultyStore(inner, before=late)
    left = [times]
    wait, shutdown = Call.result, ThreadPoolExecutor.shutdown

    def interrupted(call: Call[None]) -> None:
        if left[0]:
            left[0] -= 1
            raise KeyboardInterrupt
        disk.goes_on.set()
        wait(call)

    def ended(pool: ThreadPoolExecutor, **named: Any) -> None:
        if ends and left[0] >= 0:
            left[0] = -1
            raise KeyboardInterrupt
        disk.goes_on.set()
        shutdown(pool, **named)

    monkeypatch.setattr(Call, "result", interrupted)
    monkeypatch.setattr(ThreadPoolExecutor, "shutdown", ended)
    before, running = open_descriptors(), {*threading.enumerate()}
    with moved(FEW_AND_MANY[1] if kind == "few" else {}), pytest.raises(KeyboardInterrupt):
        write_files(store, PATHS)
    disk.goes_on.set()  # Calls that still run write their files now.
    for thread in {*threading.enumerate()} - running:
        thread.join(20)
    assert files_below(tmp_path) == []
    assert inner is None or list(inner.list_tree("")) == []
    assert open_descriptors() <= before


class _InPairs(WatchedStore):
    """A remote store whose requests end when two are under way."""

    reads_at_once = 16  # type: ignore[assignment]  # Here it is a constant.

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self._both = threading.Barrier(2)

    def _requested(self, request: Request) -> None:
        self._both.wait(20)  # If one waits for the other, it breaks, and the test fails.


def test_files_of_a_remote_store_are_completed_beside_one_another() -> None:
    inner = open_store("memory://two_at_once")
    write_files(_InPairs(inner), ["a", "b"])
    assert [info.name for info in inner.list_tree("")] == ["a", "b"]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["sync", "close", "sync_folder", "make_folder", "create", "write"])
@pytest.mark.parametrize("call", [1, 2, 5])
@pytest.mark.parametrize("many", FEW_AND_MANY)
@pytest.mark.parametrize("disk", [Disk, RelaxedDisk])
def test_whatever_fails_no_file_stays(
    tmp_path: Path, name: str, call: int, many: dict[str, int], disk: type[Disk]
) -> None:
    calls: list[object] = []
    real = getattr(disk, name)
    lock = threading.Lock()

    class Failing(disk):  # type: ignore[misc, valid-type]
        pass

    def fail(self: Disk, *args: object) -> object:
        with lock:
            calls.append(args)
            hit = len(calls) == call
        result = real(self, *args) if not hit or name == "close" else None
        if hit:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return result

    setattr(Failing, name, fail)
    store = LocalStore(str(tmp_path / "t"), disk=Failing())
    before = open_descriptors()
    with moved(many), pytest.raises(StoreError, match="disk itself failed"):
        write_files(store, PATHS)
    assert files_below(tmp_path) == []
    assert open_descriptors() <= before


def test_a_partitioned_table_syncs_each_file_and_each_folder_once(tmp_path: Path) -> None:
    rows = pa.table({"p": [number % 100 for number in range(300)], "x": list(range(300))})
    disk = Volatile(tmp_path)
    made: list[int] = []
    sync = disk.sync

    def counted(descriptor: int) -> None:
        made.append(descriptor)
        sync(descriptor)

    disk.sync = counted  # type: ignore[method-assign]
    place = Context(LocalStore(str(tmp_path / "t"), disk=disk), engine=Threads(1))
    write_partitioned(place, rows)
    data_folders = [path for path in disk.synced if "/p=" in path]
    assert len(data_folders) == len(set(data_folders)) == 100
    assert len(made) == 101  # The data files and the commit.
    assert len(disk.synced) <= 100 + 5
    assert txlog.Table(tmp_path / "t").count() == 300


def write_partitioned(place: Context, rows: pa.Table) -> None:
    write_new_table(
        place, rows, Definition(partition_by="p"),
        txn=None, options=WriteOptions(), allow_existing=False,
    )  # fmt: skip


def test_many_files_are_open_only_for_a_while(tmp_path: Path) -> None:
    store = LocalStore(str(tmp_path))
    write_files(store, [f"f{number % 7}/{number}" for number in range(1500)])
    assert len(files_below(tmp_path)) == 1500


def test_a_disk_without_syncs_needs_no_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(f"{NEW_FILES}.Workers", lambda _: pytest.fail("a thread was started"))
    store = LocalStore(str(tmp_path), disk=RelaxedDisk())
    write_files(store, [f"f{number % 7}/{number}" for number in range(150)])
    assert len(files_below(tmp_path)) == 150


def test_a_name_that_is_taken_fails_and_stays(tmp_path: Path) -> None:
    store = LocalStore(str(tmp_path))
    store.write_new("a", b"old")
    with pytest.raises(TxlogError):
        write_files(store, ["b", "a"])
    assert [info.name for info in store.list_tree("")] == ["a"]
    assert store.read("a") == b"old"
