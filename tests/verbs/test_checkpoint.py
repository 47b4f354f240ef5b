"""Checkpoints of a table: when they are due, and what its properties require."""

from contextlib import nullcontext
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import txlog
from tests.moved import moved
from txlog.checkpoint import write
from txlog.store.base import Store
from txlog.store.local.local import LocalStore
from txlog.verbs import checkpoint

LARGE = "txlog.snapshot.live_files:_LARGE_BYTES"
PARTS = "txlog.verbs.checkpoint:_PARTS_BYTES"
ROWS = pa.table({"a": [1]})


def checkpoints(path: Path) -> list[int]:
    return sorted(
        int(file.name[:20]) for file in (path / "_delta_log").glob("*.checkpoint.parquet")
    )


def test_one_is_written_when_it_is_due(tmp_path: Path) -> None:
    table = txlog.write(tmp_path, ROWS, properties={"delta.checkpointInterval": "3"})
    for _ in range(7):
        table.append(ROWS)
    assert checkpoints(tmp_path) == [3, 6]
    for file in (tmp_path / "_delta_log").glob("0000000000000000000[0-5].json"):
        file.unlink()
    assert txlog.Table(tmp_path).count() == 8


def test_statistics_are_left_out_where_the_table_says_so(tmp_path: Path) -> None:
    properties = {"delta.checkpoint.writeStatsAsJson": "false"}
    table = txlog.write(tmp_path, ROWS, properties=properties)
    table.maintenance.checkpoint()
    held = pq.read_table(tmp_path / "_delta_log" / "00000000000000000000.checkpoint.parquet")
    assert [add["stats"] for add in held["add"].to_pylist() if add] == [None]
    assert txlog.Table(tmp_path).count() == 1


def test_statistics_as_structs_are_written_when_a_checkpoint_is_due(tmp_path: Path) -> None:
    properties = {
        "delta.checkpoint.writeStatsAsStruct": "true", "delta.checkpointInterval": "1"
    }  # fmt: skip
    table = txlog.write(tmp_path, ROWS, properties=properties)
    assert table.append(ROWS).version == 1
    held = pq.read_table(tmp_path / "_delta_log" / "00000000000000000001.checkpoint.parquet")
    found = [add["stats_parsed"]["numRecords"] for add in held["add"].to_pylist() if add]
    assert found == [1, 1]
    assert txlog.Table(tmp_path).count() == 2


FEATURE = {"delta.feature.v2Checkpoint": "supported"}


@pytest.mark.parametrize(
    ("properties", "large", "sidecars"),
    [
        (FEATURE, True, True),
        (FEATURE, False, False),
        (FEATURE | {"delta.checkpointPolicy": "classic"}, True, False),
        ({"delta.checkpointPolicy": "v2"}, False, True),
        ({}, True, False),
    ],
)
def test_a_large_table_gets_sidecars_where_its_protocol_has_them(
    properties: dict[str, str], large: bool, sidecars: bool, tmp_path: Path
) -> None:
    table = txlog.write(tmp_path, ROWS, properties=properties)
    with moved({PARTS: 1 if large else 1 << 40}):
        table.maintenance.checkpoint()  # The first one is small: there is nothing before it.
        txlog.Table(tmp_path).append(ROWS)
        txlog.Table(tmp_path).maintenance.checkpoint()
    log = tmp_path / "_delta_log"
    classic = (log / "00000000000000000001.checkpoint.parquet").exists()
    assert classic is not sidecars
    assert any(log.glob("_sidecars/*.parquet")) is sidecars
    for commit in log.glob("*.json"):
        commit.unlink()
    assert txlog.Table(tmp_path).count() == 2


@pytest.mark.parametrize("again", [False, True])
def test_a_large_classic_checkpoint_is_never_in_memory_as_a_whole(
    again: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = txlog.write(tmp_path, ROWS)
    table.append(ROWS)
    table.maintenance.checkpoint()
    table.append(ROWS)

    def refused(*_: object) -> None:
        raise AssertionError("the bytes of the whole checkpoint")

    log = tmp_path / "_delta_log"
    name = "00000000000000000002.checkpoint.parquet"
    if again:  # A damaged one is replaced, at once.
        (log / name).write_bytes(b"damaged")
    monkeypatch.setattr(checkpoint, "encode_checkpoint", refused)
    warned = pytest.warns(txlog.TxlogWarning, match="damaged") if again else nullcontext()
    with moved({LARGE: 1}), warned:
        txlog.Table(tmp_path).maintenance.checkpoint()
    assert not list(log.glob(".*"))
    for commit in log.glob("*.json"):
        commit.unlink()
    (log / "00000000000000000001.checkpoint.parquet").unlink()
    assert txlog.Table(tmp_path).count() == 3


def test_a_checkpoint_that_fails_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = txlog.write(tmp_path, ROWS)
    table.maintenance.checkpoint()
    table.append(ROWS)
    before = sorted((tmp_path / "_delta_log").iterdir())

    def fail(*_: object) -> None:
        raise txlog.StoreError(operation="move", path="x", reason="the disk is full")

    with moved({LARGE: 1}):
        monkeypatch.setattr(LocalStore, "move", fail)
        with pytest.raises(txlog.StoreError, match="full"):
            txlog.Table(tmp_path).maintenance.checkpoint()
    assert sorted((tmp_path / "_delta_log").iterdir()) == before


@pytest.mark.parametrize("where", ["disk", "memory"])
def test_another_process_may_write_a_large_checkpoint_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    uri = str(tmp_path / "t") if where == "disk" else f"memory://{tmp_path.name}"
    table = txlog.write(uri, pa.table({"k": [1]}))
    table.maintenance.checkpoint()
    table.append(pa.table({"k": [2]}))
    table, other = txlog.Table(uri), txlog.Table(uri)
    looks: list[str] = []

    def is_there(store: Store, path: str) -> bool:
        found = real(store, path)
        looks.append(path)
        if len(looks) == 1:
            assert not found
            other.maintenance.checkpoint()
        return found

    real = write.is_there
    monkeypatch.setattr(write, "is_there", is_there)
    with moved({LARGE: 1}):
        assert table.maintenance.checkpoint() == 1
    assert len(looks) > 1
    assert sorted(txlog.Table(uri).to_arrow()["k"].to_pylist()) == [1, 2]
