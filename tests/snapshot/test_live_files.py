"""Large checkpoints: the next batch is read ahead, and no thread or file remains."""

from __future__ import annotations

import threading
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import txlog
from txlog.base.errors import LogCorruptError
from txlog.base.threads import prefetch
from txlog.snapshot import live_files


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

    def load(*given: Any) -> Any:
        alive.append([thread.name for thread in threading.enumerate()])
        raise LogCorruptError(path="x", reason="enough")

    monkeypatch.setattr(live_files, "left_of", refuse)
    monkeypatch.setattr(live_files, "load_files", load)
    before = {thread.name for thread in threading.enumerate()}
    with pytest.raises(LogCorruptError, match="enough"):
        table.scan(where="id > 3").explain()
    (names,) = alive
    assert not [name for name in {*names} - before if name.startswith("txlog")]
