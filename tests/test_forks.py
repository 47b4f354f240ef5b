"""A process that is forked while a thread works does not wait for a lock, and works."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")

COMMON = """
import gc, os, signal, sys, threading, time
import pyarrow as pa
import txlog

root = sys.argv[1]

def xs(count):
    return pa.table({"x": pa.array(range(count), pa.int64())})

def fork(work):
    pid = os.fork()
    if pid == 0:
        signal.alarm(20)  # Ends a child that waits for ever.
        try:
            work()
        except BaseException as error:
            print(repr(error), flush=True)
            os._exit(1)
        os._exit(0)
    return os.waitpid(pid, 0)[1]
"""

FOUND_MEANWHILE = """
from txlog.snapshot import snapshot

shared = txlog.write(root, xs(10))
shared.append(xs(20))
began, forked = threading.Event(), threading.Event()
file_rows = snapshot.file_rows

def slow(commits):
    if threading.current_thread() is thread:
        began.set()
        forked.wait()
    return file_rows(commits)

snapshot.file_rows = slow
thread = threading.Thread(target=shared.files)
thread.start()
began.wait()

def work():
    table = txlog.Table(root)
    table.append(xs(3))
    assert (table.files().num_rows, table.count()) == (3, 33)

status = fork(work)
forked.set()
thread.join()
sys.exit(status)
"""

HELD_MEANWHILE = """
from txlog.snapshot import process
from txlog.store import memory

txlog.write("memory://forks", xs(10))
began, forked = threading.Event(), threading.Event()

def hold():
    with memory._lock, process.collector_paused(), process._lock:
        began.set()
        forked.wait()

thread = threading.Thread(target=hold)
thread.start()
began.wait()

def work():
    assert gc.isenabled()
    table = txlog.Table("memory://forks")
    table.append(xs(3))
    assert table.count() == 13
    assert gc.isenabled()

status = fork(work)
forked.set()
thread.join()
assert gc.isenabled()
sys.exit(status)
"""

ANY_MOMENT = """
shared = txlog.write(root, xs(10))
shared.delete("x = 1")  # What is imported at first use is there now.
shared.count("x > 1")
stop = threading.Event()

def commit():
    while not stop.is_set():
        shared.append(xs(3))
        shared.delete("x = 1")
        shared.count("x > 1")

thread = threading.Thread(target=commit)
thread.start()

def work():
    table = txlog.Table(root)
    table.append(xs(2))
    assert table.to_arrow().num_rows == table.count()
    shared.append(xs(1))

statuses = []
for number in range(15):
    time.sleep(0.005 + 0.003 * (number % 7))
    statuses.append(fork(work))
stop.set()
thread.join()
sys.exit(any(statuses))
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    "script",
    [FOUND_MEANWHILE, HELD_MEANWHILE, pytest.param(ANY_MOMENT, marks=pytest.mark.exhaustive)],
)
def test_a_forked_process_waits_for_no_thread(tmp_path: Path, script: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", COMMON + script, str(tmp_path / "t")],
        capture_output=True, text=True, check=False, timeout=400,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
