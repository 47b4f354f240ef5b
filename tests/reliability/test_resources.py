"""What runs out, or is refused by the machine: a clear error, nothing half-written."""

from __future__ import annotations

import errno
import gc
import os
import subprocess
import sys
import tracemalloc
import warnings
from pathlib import Path

import pyarrow as pa
import pytest

import txlog
from tests.reliability.cases import CASES, Case, context_of, opened, rows, state_of
from tests.reliability.test_power_cuts import copy, handle_of
from tests.store.broken_disk import BrokenDisk
from txlog.errors import OutcomeUnknownError
from txlog.store.local.local import LocalStore

FAULTS = {"full disk": errno.ENOSPC, "no permission": errno.EACCES, "read-only": errno.EROFS,
          "too many files": errno.EMFILE, "broken": errno.EIO}  # fmt: skip


def check_all(case: Case, folder: Path, code: int) -> int:
    base, root = folder / "base", folder / "broken"
    base.mkdir()
    case.make(context_of(LocalStore(str(base))))
    before = None if case.new else state_of(opened(LocalStore(str(base))))
    step = 0
    while True:
        step += 1
        copy(base, root)
        disk = BrokenDisk(step, OSError(code, os.strerror(code)))
        store = LocalStore(str(root), disk=disk)
        handle = handle_of(case, store)
        failure: txlog.TxlogError | None = None
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", txlog.TxlogWarning)
            try:
                case.run(context_of(store, case.hours), handle)
            except txlog.TxlogError as error:
                failure = error
            state = state_of(opened(store)) if txlog.Table.exists(str(root)) else None
            if failure is not None and not isinstance(failure, OutcomeUnknownError):
                assert failure.remedy, failure
                assert state == before or case.commits != 1, (disk.steps[step - 1], failure)
            if len(disk.steps) < step:  # It has no such step.
                return step
            case.run(context_of(store, case.hours), handle)
        if failure is None:
            assert state == state_of(opened(store))


@pytest.mark.spec("GUA-11")
def test_an_append_to_a_full_disk(tmp_path: Path) -> None:
    assert check_all(CASES["append"], tmp_path, errno.ENOSPC) > 5


@pytest.mark.exhaustive
@pytest.mark.spec("GUA-11")
@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize(
    "name",
    ["append, checkpoint and clean up", "append, V2 checkpoint", "delete by rewriting",
     "delete with change data", "delete in Lance's form", "merge", "transaction", "compact",
     "add computed columns", "restore", "create", "write", "clone", "vacuum"],
)  # fmt: skip
def test_what_a_disk_refuses(name: str, fault: str, tmp_path: Path) -> None:
    assert check_all(CASES[name], tmp_path, FAULTS[fault]) > 3


LIMITED = """
import resource, sys, pyarrow as pa, txlog
kind, most = sys.argv[2:]
table = txlog.Table(sys.argv[1])
table.append(pa.table({"x": [0]}))  # What is loaded by now needs no file.
held = []
if kind == "NOFILE":
    import os
    resource.setrlimit(resource.RLIMIT_NOFILE, (int(most), int(most)))
    while True:
        try: held.append(os.open(os.devnull, os.O_RDONLY))
        except OSError: break
else:
    import signal
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (int(most), resource.RLIM_INFINITY))
try:
    table.append(pa.table({"x": list(range(100_000))}))
except txlog.TxlogError as error:
    print(type(error).__name__, error)
else:
    raise SystemExit("it was written")
if held:
    for one in held: os.close(one)
else:
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)
table.append(pa.table({"x": [1]}))
assert sorted(table.to_arrow()["x"].to_pylist()) == [0, 1]
"""


@pytest.mark.spec("GUA-11")
@pytest.mark.parametrize(
    ("kind", "most", "says"), [("NOFILE", 64, "Too many open files"), ("FSIZE", 20_000, "large")]
)
def test_limits_of_the_process(tmp_path: Path, kind: str, most: int, says: str) -> None:
    """Of the real machine: no descriptor is left, or files may not grow."""
    pytest.importorskip("resource")
    table = txlog.Table.create(tmp_path / "t", pa.schema([("x", pa.int64())]))
    done = subprocess.run(
        [sys.executable, "-c", LIMITED, table.uri, kind, str(most)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("StoreError")
    assert says in done.stdout
    data = {path.name for path in (tmp_path / "t").glob("*.parquet")}
    assert len(data) == 2  # Those of the appends that were done.


@pytest.mark.spec("GUA-11")
@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may do all")
def test_a_read_only_folder(tmp_path: Path) -> None:
    table = txlog.write(tmp_path / "t", rows(0, 3))
    (tmp_path / "t").chmod(0o500)
    try:
        with pytest.raises(txlog.StoreError, match="Permission"):
            table.append(rows(3, 4))
        assert txlog.Table(tmp_path / "t").count() == 3
    finally:
        (tmp_path / "t").chmod(0o700)
    assert table.append(rows(3, 4)).version == 1


def descriptors() -> int:
    """Return how many files the process has open; 0 where that is not told."""
    folder = Path("/proc/self/fd")
    return len(list(folder.iterdir())) if folder.exists() else 0


@pytest.mark.exhaustive
def test_a_long_open_table_does_not_grow_with_its_commits(tmp_path: Path) -> None:
    """By its own objects: what a thousand commits leave in memory, for each."""
    table = txlog.write(tmp_path / "t", rows(0, 1))
    for n in range(130):
        table.append(rows(n, n + 1))
    gc.collect()
    tracemalloc.start()
    try:
        first = tracemalloc.get_traced_memory()[0]
        before = descriptors()
        for n in range(100):
            table.append(rows(n, n + 1))
        gc.collect()
        grown = (tracemalloc.get_traced_memory()[0] - first) / 100
    finally:
        tracemalloc.stop()
    print(f"{grown:.0f} bytes a commit")
    assert descriptors() <= before
    assert grown < 3000
