"""Exhausted or refused resources: a clear error, and nothing half-written."""

from __future__ import annotations

import errno
import gc
import itertools
import os
import pickle
import subprocess
import sys
import tracemalloc
import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pytest

import txlog
from tests.reliability.cases import CASES, Case, context_of, opened, rows, state_of
from tests.reliability.test_power_cuts import copy, handle_of
from tests.store.broken_disk import BrokenDisk
from txlog.base.errors import OutcomeUnknownError, resource_errors
from txlog.checkpoint.parquet import named
from txlog.scan.data_file import blamed
from txlog.store.local.local import LocalStore
from txlog.testing import Fault, FaultyStore, open_table

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


@pytest.mark.slow
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


def visible(root: Path) -> set[str]:
    """Return the files below a table, but for those of its log."""
    found = LocalStore(str(root)).list_tree("")
    return {info.name for info in found if not info.name.startswith("_delta_log/")}


@pytest.mark.slow
@pytest.mark.spec("GUA-10")
@pytest.mark.parametrize(
    ("after", "stride"),
    [(False, 4), *(pytest.param(late, 1, marks=pytest.mark.exhaustive) for late in (False, True))],
)
def test_an_interrupt_in_a_lost_race_leaves_nothing_that_stays(
    tmp_path: Path, after: bool, stride: int
) -> None:
    """At any step on the disk: no open file, and no file that a vacuum does not find."""
    base, root = tmp_path / "base", tmp_path / "cut"
    txlog.write(base, rows(0, 3))
    for step in itertools.count(1, stride):
        copy(base, root)
        disk = BrokenDisk(step, KeyboardInterrupt(), after=after)
        slow = opened(LocalStore(str(root), disk=disk), 2)
        slow.refresh()
        txlog.Table(root).append(rows(3, 4))
        gc.collect()  # Garbage of other tests may hold descriptors.
        held = descriptors()
        with suppress(KeyboardInterrupt):
            slow.append(rows(4, 5))
        gc.collect()
        # Python has no name yet for a file that is open when the interrupt comes.
        assert descriptors() - held in (0, after and disk.steps[step - 1 :][:1] == ["create"])
        found = opened(LocalStore(str(root)), 2)
        assert found.count() in (4, 5)
        found.vacuum(0, False, False)
        assert visible(root) == set(found.files()["path"].to_pylist())
        assert not [info for info in (root / "_delta_log").iterdir() if info.suffix == ".tmp"]
        if len(disk.steps) < step:
            break
        version = found.refresh().version
        assert slow.append(rows(5, 6)).version == version + 1
    assert step > 5


@pytest.mark.parametrize("operation", ["put_if_absent", "open_output"])
def test_a_clean_up_that_fails_too_does_not_hide_what_failed(
    tmp_path: Path, operation: str
) -> None:
    properties = {"txlog.deletionFormat": "lance", "delta.feature.txlog.fragments": "supported"}
    table = txlog.write(
        tmp_path / "t",
        rows(0, 9),
        options=txlog.WriteOptions(max_rows_per_file=3),
        properties=properties,
    )
    for call in itertools.count(1):
        for clean in (False, True):
            faults = [Fault(operation, call, "not_done")]
            faults += [Fault("delete", 1, "not_done")] if clean else []
            store, before = FaultyStore(LocalStore(table.uri), faults), visible(tmp_path / "t")
            try:
                open_table(store).delete("id % 3 = 0")
            except txlog.StoreError as error:
                assert error.operation == operation  # noqa: PT017
                if not clean:  # Of three deletion files, those before the one that failed are gone.
                    assert visible(tmp_path / "t") == before
            else:
                assert call == {"put_if_absent": 2, "open_output": 4}[operation]
                return


LAST_THREAD = """
import sys, threading, txlog
table = txlog.Table(sys.argv[1])
if sys.argv[2] == "warm":
    from txlog.base.threads import Workers  # Threads were used before the end.

    with Workers(2) as workers:
        workers.start(lambda where: table.to_arrow(where=where), "a > 2").result()
assert (sys.argv[2] == "warm") is ("concurrent.futures.thread" in sys.modules)
def work():
    threading.main_thread().join()
    table.delete("a % 3 = 0")
    table.update({"a": "a + 100"}, where="a % 3 = 1")
    table.optimize.compact()
    table.vacuum(retention_hours=200)
    table.maintenance.checkpoint()
    print(sorted(table.to_arrow()["a"].to_pylist()))
threading.Thread(target=work).start()
"""


@pytest.mark.slow
@pytest.mark.spec("GUA-10")
@pytest.mark.parametrize("before", ["cold", pytest.param("warm", marks=pytest.mark.exhaustive)])
def test_a_thread_goes_on_when_the_main_thread_has_ended(tmp_path: Path, before: str) -> None:
    """No pool of threads can be started then; it was a `RuntimeError`."""
    table = txlog.write(
        tmp_path / "t", pa.table({"a": range(12)}), options=txlog.WriteOptions(max_rows_per_file=2)
    )
    command = [sys.executable, "-c", LAST_THREAD, table.uri, before]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == str([2, 5, 8, 11, 101, 104, 107, 110]), done.stderr
    assert not done.stderr


@pytest.mark.spec("GUA-10")
def test_no_more_memory_is_an_error_of_ours(tmp_path: Path) -> None:
    """It was an `ArrowMemoryError`. The file that is read is named, and not called damaged."""
    table = txlog.write(tmp_path / "t", rows(0, 3))

    def batches() -> Iterator[pa.RecordBatch]:
        yield from rows(3, 6).to_batches()
        pa.allocate_buffer(1 << 60)

    with pytest.raises(txlog.OutOfMemoryError, match="malloc") as caught:
        table.append(pa.RecordBatchReader.from_batches(rows(0, 1).schema, batches()))
    assert isinstance(caught.value, MemoryError)
    assert isinstance(caught.value.__cause__, pa.ArrowMemoryError)
    assert table.append(rows(3, 4)).version == 1
    assert visible(tmp_path / "t") == set(table.files()["path"].to_pylist())
    for names in (lambda: blamed("f", 0), lambda: named("f")):
        with pytest.raises(txlog.OutOfMemoryError, match=r"malloc.*path='f'.*fewer"), names():
            pa.allocate_buffer(1 << 60)
        with pytest.raises(txlog.OutOfMemoryError, match=r"thread.*path='f'.*ulimit"), names():
            raise pa.ArrowException(NO_THREAD)
    assert pickle.loads(pickle.dumps(caught.value)).reason == caught.value.reason


@pytest.mark.spec("GUA-10")
def test_causes_of_errors_may_form_a_circle() -> None:
    """It searched them for ever, and it made such circles itself."""
    first, second = (txlog.DataFileError(path=path, reason="torn") for path in "ab")
    first.__cause__, second.__cause__ = second, first
    with pytest.raises(txlog.DataFileError) as blamed_file, resource_errors():
        raise first
    assert blamed_file.value is first
    reason = MemoryError("malloc")
    lacking = txlog.OutOfMemoryError(path="c", reason="malloc")

    def fail() -> None:
        try:
            raise lacking from reason
        except txlog.OutOfMemoryError as error:
            raise first from error

    with pytest.raises(txlog.OutOfMemoryError) as caught, resource_errors():
        fail()
    assert caught.value is lacking
    assert lacking.__cause__ is reason
    assert lacking.__suppress_context__


NO_THREAD = "Unknown error: Failed to launch worker thread: Resource temporarily unavailable"


@pytest.mark.spec("GUA-10")
@pytest.mark.parametrize("error", [pa.ArrowMemoryError("malloc"), pa.ArrowException(NO_THREAD)])
@pytest.mark.parametrize("step", ["txlog.expressions.evaluate._value", "txlog.scan.scan._read_all"])
def test_what_lacks_memory_or_threads_is_not_blamed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception, step: str
) -> None:
    """Neither the file nor the predicate, in whatever part of a read it comes."""
    table = txlog.write(tmp_path / "t", rows(0, 9))

    def fail(*_: object, **__: object) -> None:
        raise error

    reads: list[Callable[[], object]] = [
        lambda: table.to_arrow(where="n % 2 = 1"),
        lambda: table.scan(where="n % 2 = 1").to_arrow(),
    ]
    if "evaluate" in step:
        reads += [lambda: table.count("n % 2 = 1"), lambda: table.delete("n % 2 = 1")]
    monkeypatch.setattr(step, fail)
    for read in reads:
        with pytest.raises(txlog.OutOfMemoryError) as caught:
            read()
        assert isinstance(caught.value, MemoryError)
    monkeypatch.undo()
    assert table.delete("n % 2 = 1").version == 1
    assert visible(tmp_path / "t") >= set(table.files()["path"].to_pylist())


@pytest.mark.parametrize(
    ("step", "verb"),
    [
        ("txlog.snapshot.live_files.read_files", lambda t: t.files()),
        ("txlog.verbs.checkpoint.encode_checkpoint", lambda t: t.maintenance.checkpoint()),
        (
            "txlog.table.write_table.write_new_fragments",
            lambda t: txlog.write_fragments(rows(9, 12), t),
        ),
    ],
)
def test_lacking_memory_is_an_error_of_verbs_without_a_scan_or_an_operation(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    step: str,
    verb: Callable[[txlog.Table], object],
) -> None:
    txlog.write(tmp_path / "t", rows(0, 9))
    table = txlog.Table(tmp_path / "t")

    def fail(*_: object, **__: object) -> None:
        raise MemoryError

    monkeypatch.setattr(step, fail)
    with pytest.raises(txlog.OutOfMemoryError):
        verb(table)
