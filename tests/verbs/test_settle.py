"""What follows a commit, for each that commits: tables, vacuum."""

import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import txlog
from txlog.commit.operation import execute
from txlog.extend import context_of
from txlog.store.memory import MemoryStore
from txlog.table.seam import open_table
from txlog.verbs.append import Append
from txlog.verbs.settle import settle

ROWS = pa.table({"k": pa.array(range(9), pa.int64())})


def appended(table: txlog.Table) -> None:
    table.append(ROWS)


def appended_without_table(table: txlog.Table) -> None:
    settle(table._context, execute(Append(ROWS), table._context, table.refresh().snapshot))


def vacuumed(table: txlog.Table) -> None:
    table.delete("k < 5")
    table.optimize.compact()
    assert table.vacuum(0, enforce_retention_duration=False).num_rows


COMMITS = {"a table": appended, "an operation alone": appended_without_table, "vacuum": vacuumed}


def made(name: str, **properties: str) -> txlog.Table:
    store = MemoryStore(f"memory://settle-{name}")
    txlog.Table.create(
        store.root,
        ROWS.schema,
        properties={key.replace("__", "."): properties[key] for key in properties},
    )
    table = open_table(store)
    table.indexes.create("k")
    for _ in range(3):
        table.append(ROWS)
    return table


def segments_of(table: txlog.Table) -> int:
    return table.refresh().indexes.list()["k"].segments


@pytest.mark.spec("LKP-9")
@pytest.mark.parametrize("commit", COMMITS)
def test_many_segments_are_merged_after_any_commit(
    commit: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = made(commit)
    before = segments_of(table)
    assert before >= 3
    monkeypatch.setattr("txlog.verbs.indexes.MOST_SEGMENTS", 2)
    COMMITS[commit](table)
    assert segments_of(table) < before
    assert table.contains([8], on="k").to_pylist() == [True]


@pytest.mark.parametrize("commit", COMMITS)
def test_a_checkpoint_is_written_when_it_is_due(commit: str) -> None:
    table = made(commit, delta__checkpointInterval="1")
    COMMITS[commit](table)
    opened = open_table(context_of(table).store)
    assert opened.snapshot.checkpoint[0].version == opened.version


def test_a_failure_is_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    table = made("failure", delta__checkpointInterval="1")

    def full(*_: object) -> None:
        raise OSError("no space is left")

    monkeypatch.setattr("txlog.verbs.checkpoint.checkpoint", full)
    monkeypatch.setattr("txlog.verbs.indexes.list_segments", full)
    monkeypatch.setattr("txlog.verbs.indexes.MOST_SEGMENTS", 1)
    with pytest.warns(txlog.TxlogWarning, match="no space is left") as told:
        appended(table)
    assert {str(one.message).split()[0] for one in told} == {"version", "segments"}
    assert table.refresh().count() == 4 * ROWS.num_rows


@pytest.mark.parametrize(
    "step",
    ["log_files.write_if_wanted", "checkpoint.checkpoint", "indexes.list_segments"],
)
def test_lack_of_memory_after_the_commit_is_a_warning(
    step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    properties = {"delta__checkpointInterval": "1", "txlog__writeChecksums": "true"}
    table = made(f"memory-{step}", **properties)

    def lacks(*_: object) -> None:
        raise MemoryError("no memory is left")

    monkeypatch.setattr(f"txlog.verbs.{step}", lacks)
    monkeypatch.setattr("txlog.verbs.indexes.MOST_SEGMENTS", 1)
    with pytest.warns(txlog.TxlogWarning, match="no memory is left"):
        appended(table)
    assert table.count() == table.refresh().count() == 4 * ROWS.num_rows


def test_verbs_that_commit_beside_their_task_settle_too(tmp_path: Path) -> None:
    properties = {"delta.checkpointInterval": "1"}
    table = txlog.write(tmp_path / "t", ROWS, properties=properties)
    table.append(ROWS)
    table.clone(tmp_path / "c", shallow=True, register=True)
    assert checkpoint_of(table) == table.refresh().version == 3
    (tmp_path / "t" / table.files()["path"][0].as_py()).unlink()
    table.maintenance.repair(False, missing_files=True)
    assert checkpoint_of(table) == table.refresh().version == 4


def checkpoint_of(table: txlog.Table) -> int:
    return txlog.Table(table.uri).snapshot.checkpoint[0].version


def test_each_commit_that_truncates_the_history_settles(tmp_path: Path) -> None:
    """The feature, the start and the end of the deletion, and the protection: four commits."""
    properties = {"delta.checkpointInterval": "1", "delta.appendOnly": "false"}
    properties |= {"delta.feature.deletionVectors": "supported"}
    table = txlog.write(tmp_path / "t", ROWS, properties=properties)
    before = table.version
    table.alter.drop_feature("deletionVectors", truncate_history=True)
    log = (tmp_path / "t" / "_delta_log").glob("*.checkpoint.parquet")
    assert sorted(int(path.name.split(".")[0]) for path in log) == [
        *range(before + 1, table.version + 1)
    ]
    assert table.version == before + 4


@pytest.mark.parametrize(
    "feature", ["appendOnly", "changeDataFeed", "columnMapping", "timestampNtz"]
)
def test_each_commit_of_a_dropped_feature_is_settled_once(
    feature: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The commits that record how the log was truncated are settled when they are made."""
    table = txlog.write(
        tmp_path / "t",
        pa.table({"x": [1]}),
        properties={f"delta.feature.{feature}": "supported", "delta.checkpointInterval": "1"},
    )
    table.append(pa.table({"x": [2]}))
    first, settled = table.version + 1, list[int]()
    settle_module = sys.modules[settle.__module__]
    write = settle_module._write_checkpoint

    def counting(context: Any, done: Any) -> None:
        settled.append(done.outcome.version)
        write(context, done)

    monkeypatch.setattr(settle_module, "_write_checkpoint", counting)
    table.alter.drop_feature(feature, truncate_history=True)
    assert sorted(settled) == list(range(first, table.version + 1))


@pytest.mark.parametrize("value", ["true", "auto", "false", None])
def test_small_files_are_compacted_where_a_property_requests_it(
    value: str | None, tmp_path: Path
) -> None:
    properties = {"delta.checkpointInterval": "60"}
    if value is not None:
        properties["delta.autoOptimize.autoCompact"] = value
    few = pa.table({"p": [1], "x": [-1]})
    table = txlog.write(tmp_path, few, partition_by="p", properties=properties)
    for x in range(60):
        outcome = table.append(pa.table({"p": [0], "x": [x]}))
    compacts = value in ("true", "auto")
    assert outcome.version == 60
    table = txlog.Table(tmp_path)
    assert table.version == 60 + compacts
    counts = Counter(path.partition("/")[0] for path in table.files()["path"].to_pylist())
    assert counts == {"p=0": 1 if compacts else 60, "p=1": 1}
    assert sorted(table.to_arrow()["x"].to_pylist()) == list(range(-1, 60))
    text = Path(tmp_path, "_delta_log", f"{table.version:020d}.json").read_text()
    assert ('"auto":"true"' in text) is compacts
    for x in range(3):  # The table goes on, and few small files stay as they are.
        table.append(pa.table({"p": [0], "x": [x]}))
    assert txlog.Table(tmp_path).count() == 64


def test_a_compaction_that_fails_is_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    properties = {"delta.checkpointInterval": "2", "delta.autoOptimize.autoCompact": "true"}
    table = txlog.write(tmp_path, pa.table({"x": [0]}), properties=properties)
    table.append(pa.table({"x": [1]}))

    def fail(*_: object, **__: object) -> None:
        raise MemoryError("no room")

    monkeypatch.setattr("txlog.verbs.compact.choose_groups", fail)
    with pytest.warns(txlog.TxlogWarning, match="version 2 is committed, but small files"):
        assert table.append(pa.table({"x": [2]})).version == 2
