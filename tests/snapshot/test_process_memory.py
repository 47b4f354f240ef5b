"""Freed memory is used again."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

FAULTS = """
import resource
import numpy as np
{before}
def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
def work():
    held = [np.ones(500_000, np.uint8) for _ in range(20)]
work()
first = faults()
for _ in range(20):
    work()
print(faults() - first)
"""


def faults_after(before: str) -> int:
    code = FAULTS.format(before=before)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return int(done.stdout)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another C library has its own ways")
def test_pages_are_asked_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_", "GLIBC_TUNABLES"):
        monkeypatch.delenv(name, raising=False)
    taught = "from txlog.snapshot.process import keep_freed_memory; keep_freed_memory()"
    assert faults_after(taught) * 10 < faults_after("import txlog.snapshot.process")
