"""The log files after a checkpoint, read together in any portions, equal reading one by one."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from txlog.log.names import LogFile, commit_name
from txlog.snapshot import commits
from txlog.snapshot.commits import DamagedError, read_deltas
from txlog.store.base import Store
from txlog.store.open import open_store

TORN = b'{"add":{"path":'


def add(path: str) -> dict[str, Any]:
    body = {"partitionValues": {}, "size": 1, "modificationTime": 1, "dataChange": True}
    return {"add": {"path": path, **body}}


lines = st.lists(
    st.sampled_from(["a", "b", "c"]).map(add)
    | st.just({"remove": {"path": "a"}})
    | st.just({"commitInfo": {"operation": "WRITE"}})
    | st.just({"txn": {"appId": "me", "version": 1}}),
    min_size=1,
    max_size=3,
)


def stored(root: Path, contents: list[bytes | None]) -> tuple[Store, list[LogFile]]:
    """Return commits of these contents; of None, one that is gone."""
    store = open_store(root)
    files = [LogFile(commit_name(at), "commit", at) for at in range(len(contents))]
    (root / "_delta_log").mkdir()
    for file, content in zip(files, contents, strict=True):
        if content is not None:
            (root / file.path).write_bytes(content)
    return store, files


@given(st.lists(lines, max_size=6), st.integers(1, 300))
def test_portions_have_no_meaning(found: list[list[dict[str, Any]]], bytes_at_once: int) -> None:
    with tempfile.TemporaryDirectory() as root, pytest.MonkeyPatch.context() as patch:
        store, files = stored(Path(root), [b"\n".join(map(orjson.dumps, rows)) for rows in found])
        patch.setattr(commits, "_BYTES_AT_ONCE", bytes_at_once)
        read = read_deltas(store, files)
        one_by_one = [commits.read_commit(store, file) for file in files]
    tables = [commits.file_rows([commit]) for commit in one_by_one]
    assert list(read.controls) == [pair for commit in one_by_one for pair in commit.controls]
    assert read.files.to_pylist() == [row for table in tables for row in table.to_pylist()]
    assert read.last == (one_by_one[-1] if one_by_one else None)
    assert isinstance(read.files, pa.Table)


@pytest.mark.parametrize("bytes_at_once", [1, 300, 1 << 20])
@pytest.mark.parametrize(
    ("contents", "at_fault"),
    [
        ([b"{}", TORN, b"{}", None], 1),
        ([b"{}", None, TORN, b"{}"], 1),
        ([b"{}", b'{"txn":{}}', TORN], 1),
        ([b"{}", b"", b'{"txn":{}}'], 1),
        ([b"{}", b"{}", b'{"txn":{}}'], 2),
        ([b"{}", b'{"add":{"path":"a"}}', b"{}"], 1),
    ],
)
def test_of_several_that_are_damaged_the_first_is_named(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    contents: list[bytes | None],
    at_fault: int,
    bytes_at_once: int,
) -> None:
    monkeypatch.setattr(commits, "_BYTES_AT_ONCE", bytes_at_once)
    store, files = stored(tmp_path, contents)
    with pytest.raises(DamagedError) as raised:
        read_deltas(store, files)
    assert raised.value.names == [files[at_fault].name]
    assert raised.value.cause.path == files[at_fault].path
