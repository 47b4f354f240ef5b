"""The memory of dropped snapshots is released."""

import os
import sys
from collections.abc import Callable, Sized
from pathlib import Path

import pyarrow as pa
import pytest

import txlog

ROUNDS = 1000
WARM_UP = 200
GROWTH = 8 << 10  # Bytes for each round: an allocator does not give back all at once.


def resident() -> int:
    pages = Path("/proc/self/statm").read_text(encoding="ascii").split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


WORKS: dict[str, Callable[[txlog.Table], Sized]] = {
    "fragments": lambda table: table.scan(where="a = 5").fragments(),
    "paths": lambda table: table.scan(where="a = 5").file_uris(),
    "files": lambda table: table.files(),
    "rows": lambda table: table.to_arrow(where="a = 5"),
    "frames": lambda table: table.to_polars(where="a = 5"),
    "history": lambda table: table.history(),
}


@pytest.mark.exhaustive
@pytest.mark.skipif(sys.platform != "linux", reason="memory is told by /proc")
@pytest.mark.parametrize("large", [False, True], ids=["held", "streamed"])
@pytest.mark.parametrize("work", WORKS)
def test_snapshots_that_are_dropped_do_not_grow_the_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, work: str, large: bool
) -> None:
    if large:  # As if the checkpoint's rows were not to be held.
        monkeypatch.setattr("txlog.snapshot.live_files._LARGE_BYTES", 0)
    table = txlog.Table.create(tmp_path, pa.schema([("a", pa.int64())]))
    for n in range(13):  # A checkpoint after ten of them.
        table.append(pa.table({"a": pa.array([n], pa.int64())}))

    def open_one() -> None:
        assert len(WORKS[work](txlog.Table(tmp_path))) > 0

    grows(open_one, ROUNDS if work == "fragments" else ROUNDS // 4)


@pytest.mark.exhaustive
@pytest.mark.skipif(sys.platform != "linux", reason="memory is told by /proc")
def test_versions_that_a_table_has_left_do_not_grow_the_process(tmp_path: Path) -> None:
    table = txlog.Table.create(tmp_path, pa.schema([("a", pa.int64())]))
    reader = txlog.Table(tmp_path)

    def follow() -> None:
        table.append(pa.table({"a": pa.array([1], pa.int64())}))
        assert reader.refresh().version == table.version

    # The table itself grows by a file in each round, and two handles hold it.
    grows(follow, ROUNDS // 4, 3 * GROWTH)


def grows(work: Callable[[], object], rounds: int, growth: int = GROWTH) -> None:
    """Fail if the process grows by doing a work again and again."""
    for _ in range(WARM_UP):
        work()
    before = resident()
    for _ in range(rounds):
        work()
    assert resident() - before < rounds * growth
