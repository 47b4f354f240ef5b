"""Large checkpoints: the next batch is read ahead, and no thread or file remains."""

from __future__ import annotations

import threading
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import txlog
from tests.examples import examples
from tests.moved import moved
from txlog.base.errors import LogCorruptError
from txlog.base.threads import prefetch
from txlog.snapshot import live_files
from txlog.table.seam import context_of


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> txlog.Table:
    """A table with a checkpoint that counts as large."""
    monkeypatch.setattr(live_files, "_LARGE_BYTES", 0)
    made = txlog.write(tmp_path / "t", pa.table({"id": [1]}))
    made.append(pa.table({"id": [5]}))
    made.maintenance.checkpoint()
    return txlog.Table(tmp_path / "t")


@pytest.mark.parametrize(("where", "left"), [("id > 3", 1), (None, 2)])
def test_large_checkpoints_are_prefetched(
    table: txlog.Table, monkeypatch: pytest.MonkeyPatch, where: str | None, left: int
) -> None:
    calls: list[str] = []

    def seen(batches: Generator[Any, Any, Any]) -> Generator[Any, None, None]:
        calls.append("ahead")
        return prefetch(batches)

    monkeypatch.setattr(live_files, "prefetch", seen)
    monkeypatch.setattr(live_files, "keep_freed_memory", lambda: calls.append("kept"))
    assert table.scan(where=where).explain().files_to_read == left
    assert calls == ["kept", "ahead"]


def test_whoever_fails_leaves_no_thread(
    table: txlog.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    alive: list[list[str]] = []

    def refuse(*_: Any, **__: Any) -> None:
        raise live_files.TwiceError

    def load(*_: Any, **__: Any) -> Any:
        alive.append([thread.name for thread in threading.enumerate()])
        raise LogCorruptError(path="x", reason="enough")

    monkeypatch.setattr(live_files, "left_of", refuse)
    monkeypatch.setattr(live_files, "load_files", load)
    before = {thread.name for thread in threading.enumerate()}
    with pytest.raises(LogCorruptError, match="enough"):
        table.scan(where="id > 3").explain()
    (names,) = alive
    assert not [name for name in {*names} - before if name.startswith("txlog")]


CHANGES = st.lists(st.sampled_from(["append", "delete", "rows", "checkpoint"]), max_size=8)


@given(changes=CHANGES, v2=st.booleans(), large=st.booleans())
@settings(max_examples=examples(60))
def test_some_columns_are_those_of_all(
    tmp_path_factory: pytest.TempPathFactory, changes: list[str], v2: bool, large: bool
) -> None:
    """Also tombstones, and files that commits after the checkpoint remove or add again."""
    policy = {"delta.checkpointPolicy": "v2", "delta.feature.v2Checkpoint": "supported"}
    made = txlog.write(
        tmp_path_factory.mktemp("t"),
        pa.table({"id": [0, 1, 2, 3], "p": [0, 0, 1, 1]}),
        partition_by="p",
        properties=policy if v2 else {},
    )
    with moved({"txlog.snapshot.live_files:_LARGE_BYTES": 0 if large else 1 << 40}):
        for at, change in enumerate(changes):
            if change == "append":
                made.append(pa.table({"id": [at, at + 50], "p": [at % 3, at % 3]}))
            elif change == "delete":
                made.delete(f"p = {at % 2}")
            elif change == "rows":
                made.delete("id > 40")
            else:
                made.maintenance.checkpoint()
        table = txlog.Table(made.uri)
        store = context_of(table).store
        whole = live_files.load_files(store, table.snapshot)
        columns = ["size", "deletion_vector", "deletion_timestamp"]
        some = live_files.load_columns(store, table.snapshot, columns)
    for ours, all_of_them in ((some.live, whole.live), (some.tombstones, whole.tombstones)):
        assert set(ours.column_names) == {*columns, "path", "dv_id", "is_add"}
        expected = all_of_them.select(ours.column_names).to_pylist()
        assert sorted(map(str, ours.to_pylist())) == sorted(map(str, expected))
