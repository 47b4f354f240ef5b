"""What was opened and dropped is given back."""

import os
import sys
from pathlib import Path

import pyarrow as pa
import pytest

import txlog

ROUNDS = 1000
WARM_UP = 200
GROWTH = 8 << 20  # Bytes: 10 KB for each snapshot would be more.


def resident() -> int:
    pages = Path("/proc/self/statm").read_text(encoding="ascii").split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.exhaustive
@pytest.mark.skipif(sys.platform != "linux", reason="memory is told by /proc")
def test_snapshots_that_are_dropped_do_not_grow_the_process(tmp_path: Path) -> None:
    table = txlog.Table.create(tmp_path, pa.schema([("a", pa.int64())]))
    for n in range(13):  # A checkpoint after ten of them.
        table.append(pa.table({"a": pa.array([n], pa.int64())}))

    def open_one() -> None:
        opened = txlog.Table(tmp_path)
        assert len(opened.scan(where="a = 5").fragments()) == 1

    for _ in range(WARM_UP):
        open_one()
    before = resident()
    for _ in range(ROUNDS):
        open_one()
    assert resident() - before < GROWTH
