"""Handles of tables whose place another table, or an older copy, has taken."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

import txlog
from txlog.base.errors import CommitConflictError, NotFoundError
from txlog.snapshot.snapshot import Place
from txlog.snapshot.successor import found_in_place, require_in_place
from txlog.store.base import ObjectInfo
from txlog.store.local.local import LocalStore
from txlog.testing import CountingStore, LatencyStore, open_table

FEED = {"delta.enableChangeDataFeed": "true"}


def made(root: Path, first: int, commits: int) -> txlog.Table:
    """Make a table with one row in each commit."""
    table = txlog.write(root, pa.table({"x": [first]}), properties=FEED)
    for number in range(1, commits + 1):
        table.append(pa.table({"x": [first + number]}))
    return table


def contents(root: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def xs(rows: pa.Table) -> list[int]:
    found: list[int] = rows["x"].to_pylist()
    return sorted(found)


# What looks at other versions of the log, or writes files beside the commits.
LOOKS: dict[str, Callable[[txlog.Table, Path], object]] = {
    "at": lambda table, _: xs(table.at(version=0).to_arrow()),
    "at time": lambda table, _: xs(
        table.at(timestamp="2999-01-01", out_of_range="nearest").to_arrow()
    ),
    "blame": lambda table, _: xs(table.blame().to_arrow()),
    "changes": lambda table, _: xs(table.changes(1, 2).to_arrow()),
    "checkpoint": lambda table, _: table.maintenance.checkpoint(),
    "clone": lambda table, there: xs(table.clone(there).to_arrow()),
    "shallow clone": lambda table, there: xs(table.clone(there, shallow=True).to_arrow()),
    "compact log": lambda table, _: table.maintenance.compact_log(0, 2),
    "diff": lambda table, _: xs(table.diff(1).to_arrow()),
    "generate": lambda table, _: table.maintenance.generate(),
    "history": lambda table, _: [commit["operation"] for commit in table.history()],
    "versions": lambda table, _: table.versions()["version"].to_pylist(),
    "verify checksum": lambda table, _: table.maintenance.verify_checksum().ok,
    "write checksum": lambda table, _: table.maintenance.write_checksum(),
}


@pytest.mark.slow(cases=18)
@pytest.mark.spec("CON-34")
@pytest.mark.parametrize("far", [False, True])
@pytest.mark.parametrize("now", ["0", "2", "4", "copy", "other copy", "removed", "touched"])
@pytest.mark.parametrize("look", LOOKS)
def test_no_handle_mixes_two_tables(tmp_path: Path, look: str, now: str, far: bool) -> None:
    """Each look at the log finds the table that was opened, or raises; nothing is written."""
    root, copy = tmp_path / "t", tmp_path / "copy"
    made(root, 0, 2)
    shutil.copytree(root, copy)
    store = LocalStore(str(root))
    table = open_table(LatencyStore(store, delay_s=0) if far else store)
    shutil.rmtree(root)
    if now.isdigit():
        made(root, 100, int(now))
    elif now != "removed":
        shutil.copytree(copy, root)
        for path in root.rglob("*"):
            os.utime(path, (1_600_000_000, 1_600_000_000))
        if now != "touched":
            (root / "_delta_log" / f"{2:020d}.json").unlink()
        if now == "other copy":
            txlog.Table(root).append(pa.table({"x": [7]}))
    before = contents(root)
    if now == "touched":
        expected = LOOKS[look](made(tmp_path / "same", 0, 2), tmp_path / "expected")
        assert LOOKS[look](table, tmp_path / "clone") == expected
        return
    with pytest.raises((CommitConflictError, NotFoundError)):
        LOOKS[look](table, tmp_path / "clone")
    assert contents(root) == before
    assert not (tmp_path / "clone" / "_delta_log").exists()


class BySeconds(LatencyStore):
    """As Google's store and MinIO: listings have milliseconds, and a file alone has seconds."""

    def info(self, path: str) -> ObjectInfo:
        info = super().info(path)
        assert info.modified_ms is not None
        return info._replace(modified_ms=info.modified_ms // 1000 * 1000)


@pytest.mark.spec("CON-34", "CON-35")
def test_a_time_in_whole_seconds_is_no_other_commit(tmp_path: Path) -> None:
    """The log is not read for it, but another table of the same second is found."""
    root = tmp_path / "t"

    def at_ms(first: int, ms: int) -> None:
        made(root, first, 2)
        for path in root.rglob("*"):
            os.utime(path, ns=(0, ms * 1_000_000))

    at_ms(0, 1_600_000_000_123)
    store = CountingStore(BySeconds(LocalStore(str(root)), delay_s=0))
    opened = open_table(store).snapshot
    place = Place.of(opened)
    assert place is not None
    store.reset()
    require_in_place(store, opened)
    assert found_in_place(store, place, ()) == place.made_ms == 1_600_000_000_123
    assert store.requests == {"info": 2, "list_after": 2}
    shutil.rmtree(root)
    at_ms(100, 1_600_000_000_124)
    with pytest.raises(CommitConflictError, match="another table"):
        require_in_place(store, opened)
    with pytest.raises(CommitConflictError, match="another table"):
        found_in_place(store, place, ())
