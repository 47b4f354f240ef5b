"""After a failed step of a local write there is no file or the whole one, never a temporary one."""

import errno
import itertools
import os
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pytest
from broken_disk import BrokenDisk, Crash

import txlog
from txlog.base.errors import (
    NotFoundError,
    OutcomeUnknownError,
    StoreError,
    TxlogError,
    UnsupportedFeatureError,
)
from txlog.store.local.disk import Disk, RelaxedDisk
from txlog.store.local.local import LocalStore
from txlog.testing import Fault, FaultyStore

DATA = b"whole" * 100


def put(store: LocalStore) -> object:
    return store.put_if_absent("_delta_log/0.json", DATA)


def replace(store: LocalStore) -> object:
    return store.replace("_delta_log/0.json", DATA)


def write_new(store: LocalStore) -> object:
    return store.write_new("_delta_log/0.json", DATA)


def output(store: LocalStore) -> None:
    with store.open_output("_delta_log/0.json") as sink:
        sink.write(DATA)


def new_files(store: LocalStore) -> None:
    with store.new_files() as open_output, open_output("_delta_log/0.json") as sink:
        sink.write(DATA)


def steps_of(function: Callable[[LocalStore], object], root: Path) -> list[str]:
    disk = BrokenDisk(0, Crash())
    function(LocalStore(str(root), disk=disk))
    return disk.steps


@pytest.mark.parametrize("function", [put, replace, write_new, output, new_files])
@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO, errno.EACCES])
def test_an_error_at_any_step_leaves_all_or_nothing(
    function: Callable[[LocalStore], object], after: bool, code: int, tmp_path: Path
) -> None:
    for n in range(1, len(steps_of(function, tmp_path / "count")) + 1):
        root = tmp_path / f"t{n}"
        disk = BrokenDisk(n, OSError(code, os.strerror(code)), after=after)
        outcome: object = None
        try:
            outcome = function(LocalStore(str(root), disk=disk))
        except TxlogError as error:
            outcome = error
        step = disk.steps[n - 1]
        if step == "create" and after:
            continue  # No file system makes a file and says that it did not, so nothing is known.
        files = [path for path in root.rglob("*") if path.is_file()]
        final = root / "_delta_log" / "0.json"
        # Only a temporary file that cannot be removed stays.
        temporary_stays = step == "unlink" and not after
        assert len([path for path in files if path != final]) == int(temporary_stays), step
        if final.exists():
            assert final.read_bytes() == DATA
        if isinstance(outcome, StoreError):
            assert outcome.remedy
            assert function is replace or not final.exists(), step
        elif isinstance(outcome, OutcomeUnknownError):
            assert function is put
            assert final.exists()
        else:
            assert final.exists(), (step, outcome)


@pytest.mark.spec("GUA-5")
@pytest.mark.parametrize("function", [put, replace])
@pytest.mark.parametrize("after", [False, True])
def test_a_crash_at_any_step_leaves_all_or_nothing_under_the_name(
    function: Callable[[LocalStore], object], after: bool, tmp_path: Path
) -> None:
    for n in range(1, len(steps_of(function, tmp_path / "count")) + 1):
        root = tmp_path / f"t{n}"
        with pytest.raises(Crash):
            function(LocalStore(str(root), disk=BrokenDisk(n, Crash(), after=after)))
        final = root / "_delta_log" / "0.json"
        assert not final.exists() or final.read_bytes() == DATA
        log = [info.name for info in LocalStore(str(root)).list_after("_delta_log", "0")]
        assert log in ([], ["0.json"])  # A reader of the log never meets a temporary file.
        # The next writer is not hindered by what is left.
        expected = "exists" if final.exists() else "created"
        assert put(LocalStore(str(root))) == expected


@pytest.mark.spec("GUA-2")
def test_bytes_and_names_are_synced_before_a_put_returns(tmp_path: Path) -> None:
    steps = steps_of(put, tmp_path / "t")
    assert steps.index("write") < steps.index("sync") < steps.index("link")
    assert steps[-1] == "sync_folder"
    assert steps.count("make_folder") == 2
    assert steps[: steps.index("create")].count("sync_folder") >= 2


@pytest.mark.spec("GUA-2", "GUA-5")
@pytest.mark.parametrize("after", [False, True])
def test_a_move_that_a_crash_breaks_off_loses_no_file(after: bool, tmp_path: Path) -> None:
    places = [("a", "new/a"), ("f/b", "new/b")]
    for n in itertools.count(1):
        root = tmp_path / f"t{n}"
        for path, _ in places:
            LocalStore(str(root)).write_new(path, path.encode())
        disk = BrokenDisk(n, Crash(), after=after)
        with suppress(Crash):
            LocalStore(str(root), disk=disk).move(places)
        for path, target in places:
            held = [root / name for name in (path, target) if (root / name).exists()]
            assert {name.read_bytes() for name in held} == {path.encode()}
            assert disk.crashed or held == [root / target]
        LocalStore(str(root)).move(places)
        assert [info.name for info in LocalStore(str(root)).list_tree("")] == ["new/a", "new/b"]
        if not disk.crashed:
            break
    assert disk.steps.index("sync_folder", disk.steps.index("link")) < disk.steps.index("unlink")


@pytest.mark.parametrize("code", [errno.EPERM, errno.EOPNOTSUPP])
def test_files_that_cannot_be_linked_are_renamed(code: int, tmp_path: Path) -> None:
    steps = []

    class NoLinks(Disk):
        def link(self, source: str, target: str) -> None:
            raise OSError(code, os.strerror(code))

        def rename(self, source: str, target: str) -> None:
            super().rename(source, target)
            steps.append("rename")

        def sync_folder(self, path: str) -> None:
            steps.append(Path(path).name)

    store = LocalStore(str(tmp_path / "t"), disk=NoLinks())
    store.write_new("f/a", DATA)
    steps.clear()
    store.move([("f/a", "new/a"), ("f/missing", "new/missing")])
    assert [info.name for info in store.list_tree("")] == ["new/a"]
    assert steps[-3:] == ["rename", "new", "f"]


def test_folders_found_are_synced_once(tmp_path: Path) -> None:
    (tmp_path / "t" / "_delta_log").mkdir(parents=True)
    disk = BrokenDisk(0, Crash())
    store = LocalStore(str(tmp_path / "t"), disk=disk)
    put(store)
    assert disk.steps[:3] == ["sync_folder", "sync_folder", "create"]
    del disk.steps[:]
    store.put_if_absent("_delta_log/1.json", DATA)
    assert disk.steps[0] == "create"


@pytest.mark.spec("GUA-6")
def test_a_file_system_whose_links_overwrite_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a mounted file system it is found out, once, that a name that is taken stays."""
    monkeypatch.setattr("txlog.store.local.put._EXCLUSIVE", set())
    with monkeypatch.context() as mounted:
        mounted.setattr(os, "link", lambda source, target: shutil.copyfile(source, target))
        with pytest.raises(UnsupportedFeatureError, match="replaced an existing file") as caught:
            txlog.write(tmp_path / "t", pa.table({"x": [1]}))
        assert "coordinator" in caught.value.remedy
        assert not [path for path in (tmp_path / "t").rglob("*") if path.is_file()]
    table = txlog.write(tmp_path / "t", pa.table({"x": [1]}))
    links: list[str] = []
    link = os.link
    monkeypatch.setattr(os, "link", lambda *names: (links.append(names[1]), link(*names)))
    table.append(pa.table({"x": [2]}))
    assert [Path(name).name for name in links] == [f"{1:020d}.json"]


def test_a_file_system_without_links_is_refused(tmp_path: Path) -> None:
    class NoLinks(Disk):
        def link(self, source: str, target: str) -> None:
            raise PermissionError(errno.EPERM, "Operation not permitted")

    with pytest.raises(UnsupportedFeatureError, match="hard links"):
        put(LocalStore(str(tmp_path), disk=NoLinks()))
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


@pytest.mark.parametrize("error", [FileExistsError(errno.EEXIST, "x"), OSError(errno.EIO, "x")])
def test_a_link_that_landed_though_it_failed_is_created(tmp_path: Path, error: OSError) -> None:
    class Network(Disk):
        def link(self, source: str, target: str) -> None:
            super().link(source, target)
            raise error

    assert put(LocalStore(str(tmp_path), disk=Network())) == "created"


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (errno.EACCES, "Permission"),
        (errno.EROFS, "read-only"),
        (errno.ENOSPC, "full"),
        (errno.EDQUOT, "quota"),
    ],
)
def test_an_error_says_what_to_do(tmp_path: Path, code: int, words: str) -> None:
    store = LocalStore(str(tmp_path), disk=BrokenDisk(1, OSError(code, os.strerror(code))))
    with pytest.raises(StoreError, match=words) as caught:
        put(store)
    assert caught.value.path == "_delta_log/0.json"
    assert caught.value.operation == "create"


def test_planned_faults_come_as_planned(tmp_path: Path) -> None:
    inner = LocalStore(str(tmp_path))
    ran: list[int] = []
    store = FaultyStore(
        inner,
        [
            Fault("put_if_absent", 1, "lost_answer"),
            Fault("put_if_absent", 2, "lost_request"),
            Fault("put_if_absent", 3, "not_done"),
            Fault("put_if_absent", 4, "exists_though_created"),
            Fault("read", 2, "not_done"),
            Fault("open_output", 1, "lost_answer"),
        ],
        before={("put_if_absent", 4): lambda: ran.append(4)},
    )
    for name, kind, there in (
        ("a", OutcomeUnknownError, True),
        ("b", OutcomeUnknownError, False),
        ("c", StoreError, False),
    ):
        with pytest.raises(kind):
            store.put_if_absent(name, b"x")
        assert bool(list(inner.list_after("", name))) == there
    assert store.put_if_absent("d", b"x") == "exists"
    assert ran == [4]
    assert store.read("d") == b"x"
    with pytest.raises(StoreError):
        store.read("d")
    with pytest.raises(OutcomeUnknownError), store.open_output("e") as sink:
        sink.write(b"y")
    assert inner.read("e") == b"y"
    assert store.put_if_absent("f", b"x") == "created"
    assert store.calls[0] == ("put_if_absent", "a")
    with pytest.raises(NotFoundError):
        store.info("missing")
    with pytest.raises(ValueError, match="only a put"):
        Fault("read", 1, "exists_though_created")


def test_a_failed_move_of_many_files_names_a_file_and_loses_none(tmp_path: Path) -> None:
    class Worn(Disk):
        def link(self, source: str, target: str) -> None:
            if source.endswith("77"):
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            super().link(source, target)

    root = tmp_path / "t"
    for n in range(200):
        LocalStore(str(root), disk=RelaxedDisk()).write_new(str(n), b"%d" % n)
    places = [(str(n), f"new/{n}") for n in range(200)]
    with pytest.raises(StoreError, match="77"):
        LocalStore(str(root), disk=Worn()).move(places)
    assert {int((root / str(n)).read_bytes()) for n in range(200)} == set(range(200))
    LocalStore(str(root)).move(places)
    assert {int((root / "new" / str(n)).read_bytes()) for n in range(200)} == set(range(200))
    assert len(list(root.iterdir())) == 1
