"""Checkpoints that reuse parts of the previous one have the same content as the log.

Those of the V2 kind name its sidecars again; large classic ones are written while it is read.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from threading import Lock
from time import sleep
from typing import Any
from unittest.mock import patch

import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from hypothesis import given, settings
from hypothesis import strategies as st

import txlog
from tests.examples import examples
from txlog.actions.file import Sidecar
from txlog.actions.ndjson import encode
from txlog.actions.table import Metadata, Protocol
from txlog.base.effects import Effects
from txlog.checkpoint.sidecars import (
    STAMP_TAG,
    Stamp,
    choose_merged,
    is_reusable,
    layout_of,
    read_stamp,
)
from txlog.commit.context import Context
from txlog.log.names import commit_name, log_path
from txlog.reconcile.files import file_keys, reconcile_files
from txlog.snapshot.commits import file_rows, read_commits
from txlog.snapshot.live_files import load_files
from txlog.snapshot.load import list_commits, load_snapshot
from txlog.store.memory import MemoryStore
from txlog.store.open import open_store
from txlog.verbs.checkpoint import checkpoint

VERB = import_module("txlog.verbs.checkpoint")
DAY_MS = 86_400_000
NOW_MS = 1_800_000_000_000
V2 = {"delta.checkpointPolicy": "v2", "delta.checkpointInterval": "1000"}
STRUCTS = {"delta.checkpoint.writeStatsAsStruct": "true"}
CLASSIC = {"delta.checkpointInterval": "1000"}

PATHS = [*"abcdefgh", "x%20y", "x y", "./a", "file:/abs", "/abs", "é"]
OPERATIONS = st.tuples(
    st.sampled_from(PATHS),
    st.sampled_from(["add", "remove", "old remove", "vector"]),
    st.integers(0, 9),
)
STEPS = st.lists(
    st.one_of(
        st.lists(OPERATIONS, max_size=4, unique_by=lambda one: key(one[0])),
        st.sampled_from(["checkpoint", "later", "metadata"]),
    ),
    max_size=14,
)


class At(Effects):
    """A world that stands at one moment."""

    moment_ms = NOW_MS

    def now_ms(self) -> int:
        return self.moment_ms


def key(path: str) -> str:
    return {"x%20y": "x y", "./a": "a", "file:/abs": "/abs"}.get(path, path)


def body(path: str, kind: str, number: int) -> dict[str, Any]:
    if "remove" in kind:
        age = 30 * DAY_MS if kind == "old remove" else number
        told = {"path": path, "deletionTimestamp": NOW_MS - age, "dataChange": True}
        return {"remove": told}
    add = {
        "path": path, "partitionValues": {}, "size": number, "modificationTime": 0,
        "dataChange": True, "stats": orjson.dumps({"numRecords": number}).decode(),
    }  # fmt: skip
    if kind == "vector":
        add["deletionVector"] = {
            "storageType": "i", "pathOrInlineDv": f"v{number}", "sizeInBytes": 1, "cardinality": 1
        }  # fmt: skip
    return {"add": add}


def first_commit(properties: dict[str, str]) -> bytes:
    schema = '{"type":"struct","fields":[{"name":"x","type":"long","nullable":true,"metadata":{}}]}'
    features = ["v2Checkpoint", "deletionVectors"]
    protocol = Protocol(
        min_reader_version=3, min_writer_version=7, reader_features=features,
        writer_features=features,
    )  # fmt: skip
    return encode([protocol, Metadata(id="t", schema_string=schema, configuration=properties)])


def contents(rows: pa.Table) -> dict[str, dict[str, Any]]:
    leave = {"version", "data_change", "path", "stats_parsed"}
    names = [name for name in rows.column_names if name not in leave]
    held = zip(file_keys(rows).to_pylist(), rows.select(names).to_pylist(), strict=True)
    return {name: {**row, "stats": orjson.loads(row["stats"] or "null")} for name, row in held}


@pytest.mark.slow
@settings(max_examples=examples(50), deadline=None)
@given(STEPS, st.integers(1, 5), st.sampled_from([V2, V2 | STRUCTS, CLASSIC, CLASSIC | STRUCTS]))
def test_what_is_written_again_says_what_the_log_says(
    steps: list[Any], part_rows: int, properties: dict[str, str]
) -> None:
    store = MemoryStore("memory://sidecars-again", {})
    for info in list(store.list_tree("")):
        store.delete([info.name])
    effects = At()
    place = Context(store, effects)
    version = 0
    store.put_if_absent(log_path(commit_name(0)), first_commit(properties))
    with (
        patch.object(VERB, "PART_ROWS", part_rows),
        patch("txlog.snapshot.live_files._LARGE_BYTES", 0),
        patch("txlog.checkpoint.write._ROW_GROUP", part_rows),
        patch("txlog.checkpoint.file_rows._BATCH_ROWS", 2),
    ):
        for step in [*steps, "checkpoint"]:
            if step == "checkpoint":
                checkpoint(place, load_snapshot(store))
                agrees(store, effects.moment_ms - 7 * DAY_MS)
                continue
            if step == "later":
                effects.moment_ms += 5 * DAY_MS
                continue
            version += 1
            if step == "metadata":
                properties = properties | {"mine": str(version)}
                data = first_commit(properties)
            else:
                data = b"".join(orjson.dumps(body(*one)) + b"\n" for one in step) or b"{}\n"
            store.put_if_absent(log_path(commit_name(version)), data)


def agrees(store: MemoryStore, expired_before_ms: int) -> None:
    snapshot = load_snapshot(store)
    assert snapshot.checkpoint
    assert snapshot.tail.rows.num_rows == 0
    found = load_files(store, snapshot)
    state = reconcile_files(file_rows(read_commits(store, list_commits(store, snapshot))))
    assert contents(found.live) == contents(state.live)
    theirs, ours = contents(state.tombstones), contents(found.tombstones)
    assert all(theirs[name] == row for name, row in ours.items())
    lost = theirs.keys() - ours.keys()
    assert all(theirs[name]["deletion_timestamp"] < expired_before_ms for name in lost)
    hint = orjson.loads(store.read(log_path("_last_checkpoint")))
    assert hint["numOfAddFiles"] == found.live.num_rows


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> txlog.Table:
    monkeypatch.setattr(VERB, "PART_ROWS", 8)
    properties = V2 | {
        "delta.feature.v2Checkpoint": "supported", "delta.enableDeletionVectors": "false"
    }  # fmt: skip
    data = pa.table({"x": list(range(64))})
    made = txlog.write(
        tmp_path, data, options=txlog.WriteOptions(max_rows_per_file=1), properties=properties
    )
    made.maintenance.checkpoint()
    return made


def named(table: txlog.Table) -> list[Sidecar]:
    return list(load_snapshot(open_store(table.uri)).sidecars)


def test_only_what_changed_is_written_anew(table: txlog.Table) -> None:
    first = {sidecar.path for sidecar in named(table)}
    assert len(first) == 8
    table.append(pa.table({"x": [64]}))
    txlog.Table(table.uri).maintenance.checkpoint()
    second = {sidecar.path for sidecar in named(table)}
    assert len(second) == 9
    assert first < second
    table.delete("x = 5")
    txlog.Table(table.uri).maintenance.checkpoint()
    third = {sidecar.path for sidecar in named(table)}
    assert len(second - third) == 2  # That of the file, and the small one of the append.
    expected = sorted(set(range(65)) - {5})
    assert sorted(txlog.Table(table.uri).to_arrow()["x"].to_pylist()) == expected
    uris = DeltaTable(table.uri).file_uris()
    assert sorted(Path(uri).name for uri in uris) == sorted(table.files()["path"].to_pylist())


def test_a_table_that_stays_open_writes_only_what_changed(
    table: txlog.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object) -> None:
        raise AssertionError("all files of the table are in memory")

    monkeypatch.setattr(VERB, "load_files", refused)
    for number in (64, 65, 66):  # Its snapshot has the checkpoint with which it was opened.
        before = {sidecar.path for sidecar in named(table)}
        table.append(pa.table({"x": [number]}))
        table.maintenance.checkpoint()
        after = {sidecar.path for sidecar in named(table)}
        assert len(before - after) <= 1  # A small one is merged.
        assert len(after - before) == 1
    assert txlog.Table(table.uri).count() == 67


def test_the_threads_that_write_do_not_follow_the_cores(
    table: txlog.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    held: list[int] = []
    lock, running = Lock(), 0
    write = VERB._PartWriter.write

    def counting(writer: Any, sources: Any) -> Any:
        nonlocal running
        with lock:
            running += 1
            held.append(running)
        sleep(0.02)
        with lock:
            running -= 1
        return write(writer, sources)

    monkeypatch.setattr(VERB._PartWriter, "write", counting)
    monkeypatch.setattr("os.cpu_count", lambda: 16)
    monkeypatch.setattr(VERB, "cpu_count", lambda: 16)
    with patch.object(VERB, "is_reusable", return_value=False):  # All sidecars are written anew.
        txlog.Table(table.uri).maintenance.checkpoint()
    assert len(held) > 2
    assert max(held) <= 2


@pytest.mark.slow
def test_small_ones_do_not_add_up(table: txlog.Table) -> None:
    for number in range(40):
        table.append(pa.table({"x": [100 + number]}))
        txlog.Table(table.uri).maintenance.checkpoint()
    assert len(named(table)) <= 8 + 40 // 4 + 3
    assert txlog.Table(table.uri).count() == 104


def test_one_that_is_not_as_it_was_is_not_named_again(table: txlog.Table) -> None:
    lost = named(table)[0]
    table.append(pa.table({"x": [64]}))
    (Path(table.uri) / "_delta_log" / "_sidecars" / lost.path).unlink()
    with pytest.warns(txlog.TxlogWarning, match="damaged and skipped"):
        txlog.Table(table.uri).maintenance.checkpoint()
    assert lost.path not in {sidecar.path for sidecar in named(table)}
    assert txlog.Table(table.uri).count() == 65


def test_other_wishes_of_the_table_write_all_anew(table: txlog.Table) -> None:
    first = {sidecar.path for sidecar in named(table)}
    table.append(pa.table({"x": [64], "y": [1]}), schema_mode="merge")
    log = Path(table.uri) / "_delta_log"
    (line,) = [
        row for row in (log / f"{table.version:020d}.json").read_bytes().split(b"\n")
        if b"metaData" in row
    ]  # fmt: skip
    body = orjson.loads(line)
    body["metaData"]["configuration"].update(STRUCTS)
    (log / f"{table.version + 1:020d}.json").write_bytes(orjson.dumps(body))
    txlog.Table(table.uri).maintenance.checkpoint()
    assert not first & {sidecar.path for sidecar in named(table)}
    held = pq.read_table(log / "_sidecars" / named(table)[0].path)
    assert all(add is None or add["stats_parsed"] for add in held["add"].to_pylist())


def test_a_stamp_that_cannot_be_read_is_none() -> None:
    stamp = Stamp("l", 1, 0, "a", "b", 0)
    sidecar = Sidecar(path="s", size_in_bytes=1, modification_time=0, tags=stamp.to_tags())
    assert read_stamp(sidecar) == stamp
    for text in ("", "{", "[]", "{}", '{"layout":"l"}', "null", None):
        odd = sidecar.model_copy(update={"tags": {STAMP_TAG: text}})
        assert read_stamp(odd) is None
    wrong = stamp.to_tags()[STAMP_TAG] or ""
    for old, new in (('"adds":1', '"adds":-1'), ('"low":"a"', '"low":1')):
        odd = sidecar.model_copy(update={"tags": {STAMP_TAG: wrong.replace(old, new)}})
        assert read_stamp(odd) is None


def test_sidecars_elsewhere_are_not_named_again() -> None:
    store = MemoryStore("memory://elsewhere", {})
    stamp = Stamp(layout_of([]), 1, 0, "a", "b", 0)
    sidecar = Sidecar(
        path="/other/s.parquet", size_in_bytes=1, modification_time=0, tags=stamp.to_tags()
    )
    assert not is_reusable(store, sidecar, [], layout=layout_of([]), expired_before_ms=0)


def test_which_are_put_together() -> None:
    def held(*rows: int) -> list[tuple[Sidecar, Stamp]]:
        return [
            (
                Sidecar(path=f"{at}", size_in_bytes=1, modification_time=0),
                Stamp("l", count, 0, "a", "b", 0),
            )
            for at, count in enumerate(rows)
        ]

    def chosen(*rows: int, new: int) -> list[str]:
        return [sidecar.path for sidecar in choose_merged(held(*rows), new, 100)]

    assert chosen(100, 4, 2, new=2) == ["2", "1"]
    assert chosen(100, 5, 2, new=2) == ["2"]
    assert chosen(60, 50, new=1000) == ["1"]
    assert chosen(3, new=2) == []
