"""Loading versions, damaged logs, and advancing from a version."""

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import txlog
from txlog.base.errors import (
    LogCorruptError,
    NotFoundError,
    TxlogWarning,
    UnsupportedFeatureError,
)
from txlog.extend import context_of
from txlog.snapshot.commits import read_commits
from txlog.snapshot.live_files import load_files
from txlog.snapshot.load import list_log, load_snapshot, refresh
from txlog.snapshot.snapshot import Snapshot, advance
from txlog.store.open import open_store
from txlog.testing import unsealed

Make = Callable[..., txlog.Table]


def commit(version: int) -> str:
    return f"{version:020d}.json"


def checkpoint(version: int) -> str:
    return f"{version:020d}.checkpoint.parquet"


def values(table: txlog.Table) -> list[int]:
    return sorted(table.to_arrow()["a"].to_pylist())


def facts(snapshot: Snapshot) -> dict[str, Any]:
    found = {name: getattr(snapshot, name) for name in ("version", "timestamp_ms", "metadata")}
    return found | {"controls": snapshot.controls, "schema": snapshot.schema}


def paths(table: txlog.Table, snapshot: Snapshot) -> list[tuple[str, str | None]]:
    live = load_files(context_of(table).store, snapshot).live
    return sorted(zip(live["path"].to_pylist(), live["dv_id"].to_pylist(), strict=True))


def test_a_local_store_that_lists_briefly_tells_the_same_of_a_version(make: Make) -> None:
    table = make(12)
    root = context_of(table).store.root
    for version in [*range(table.version + 1), None]:
        brief = load_snapshot(open_store(root), version=version)
        told = load_snapshot(open_store(f"local://{root}"), version=version)
        for name in ("version", "timestamp_ms", "head_ms", "checkpoint", "controls"):
            assert getattr(brief, name) == getattr(told, name)
        assert brief.head_ms
        assert all(part.size and part.modified_ms for part in brief.checkpoint)
        assert brief.tail.rows.equals(told.tail.rows)


@pytest.mark.spec("REC-8")
def test_a_version_is_the_same_whatever_came_after(make: Make) -> None:
    table = make(1)
    then = {0: (facts(table.snapshot), values(table))}
    for version in range(1, 7):
        table.append(pa.table({"a": pa.array([version, -version], pa.int64())}))
        if version == 3:
            table.delete("a = 2")
        if version in (2, 5):
            table.maintenance.checkpoint()
        then[table.version] = (facts(table.snapshot), values(table))
    for version, expected in then.items():
        held = txlog.Table(table.uri, version=version)
        assert (facts(held.snapshot), values(held)) == expected


@pytest.mark.parametrize("data", [b"", b"PAR1 torn", None], ids=["empty", "torn", "gone"])
def test_a_damaged_checkpoint_is_passed_over_with_a_warning(
    make: Make, log: Path, data: bytes | None
) -> None:
    table = make(5)
    table.maintenance.checkpoint()
    table.append(pa.table({"a": [5]}))
    if data is None:  # Only the hint says that it was there.
        (log / checkpoint(4)).unlink()
        with pytest.warns(TxlogWarning, match="_last_checkpoint names a checkpoint of version 4"):
            assert values(txlog.Table(table.uri)) == [1, 2, 3, 4, 5]
        return
    (log / checkpoint(4)).write_bytes(data)
    with pytest.warns(TxlogWarning, match=checkpoint(4)):
        held = txlog.Table(table.uri)
    assert values(held) == [1, 2, 3, 4, 5]
    assert facts(held.snapshot) == facts(table.snapshot)


def test_an_older_checkpoint_is_the_next_choice(make: Make, log: Path) -> None:
    table = make(3)
    table.maintenance.checkpoint()
    table.append(pa.table({"a": [3]}))
    table.maintenance.checkpoint()
    for version in (0, 1):
        (log / commit(version)).unlink()
    (log / checkpoint(3)).write_bytes(b"torn")
    with pytest.warns(TxlogWarning, match=checkpoint(3)):
        held = txlog.Table(table.uri)
    assert values(held) == [1, 2, 3]
    assert held.snapshot.checkpoint[0].name == checkpoint(2)


def test_a_checkpoint_that_is_needed_is_an_error_that_names_it(make: Make, log: Path) -> None:
    table = make(3)
    table.maintenance.checkpoint()
    for version in range(3):
        (log / commit(version)).unlink()
    assert values(txlog.Table(table.uri)) == [1, 2]
    (log / checkpoint(2)).write_bytes(b"torn")
    with pytest.raises(LogCorruptError, match=checkpoint(2)) as caught:
        txlog.Table(table.uri)
    assert caught.value.path is not None
    assert caught.value.path.endswith(checkpoint(2))


def test_a_missing_commit_is_named(make: Make, log: Path) -> None:
    table = make(4)
    (log / commit(2)).unlink()
    with pytest.raises(LogCorruptError, match="gap") as caught:
        txlog.Table(table.uri)
    assert caught.value.path is not None
    assert caught.value.path.endswith(commit(2))
    assert values(txlog.Table(table.uri, version=1)) == [1]


@pytest.mark.parametrize("data", [b"", b"\n \n"], ids=["nothing", "blank"])
def test_an_empty_commit_is_named(make: Make, log: Path, data: bytes) -> None:
    table = make(3)
    (log / commit(2)).write_bytes(data)
    with pytest.raises(LogCorruptError, match="empty") as caught:
        txlog.Table(table.uri)
    assert caught.value.path is not None
    assert caught.value.path.endswith(commit(2))
    assert values(txlog.Table(table.uri, version=1)) == [1]


def test_a_torn_line_is_named_with_its_file(make: Make, log: Path) -> None:
    table = make(3)
    path = log / commit(2)
    data = path.read_bytes().rstrip()
    lines = data.count(b"\n") + 1
    path.write_bytes(data[:-9])
    with pytest.raises(LogCorruptError) as caught:
        txlog.Table(table.uri)
    assert caught.value.path is not None
    assert caught.value.path.endswith(commit(2))
    assert caught.value.line == lines


@pytest.mark.parametrize("version", [0, 3])
def test_a_wrong_action_is_named_with_file_line_and_field(
    make: Make, log: Path, version: int
) -> None:
    table = make(3)
    path = log / commit(version)
    held = path.read_bytes() if path.exists() else b'{"commitInfo":{}}\n'
    path.write_bytes(held + b'{"txn":{"appId":7,"version":1}}\n')
    with pytest.raises(LogCorruptError) as caught:
        txlog.Table(table.uri)
    assert caught.value.path is not None
    assert caught.value.path.endswith(commit(version))
    assert caught.value.line == held.count(b"\n") + 1
    assert caught.value.field == "txn.appId"


def test_no_table(tmp_path: Path) -> None:
    for root in (tmp_path / "none", tmp_path):
        with pytest.raises(NotFoundError, match="no Delta table here") as caught:
            txlog.Table(root)
        assert caught.value.path == str(root)
    (tmp_path / "_delta_log").mkdir()
    (tmp_path / "_delta_log" / "_last_checkpoint").write_text('{"version":3,"size":1}')
    with pytest.raises(NotFoundError, match="no Delta table here"):
        txlog.Table(tmp_path)


def test_a_version_out_of_range(make: Make, log: Path) -> None:
    table = make(3)
    with pytest.raises(NotFoundError, match="latest is 2"):
        txlog.Table(table.uri, version=3)
    table.maintenance.checkpoint()
    for version in range(2):
        (log / commit(version)).unlink()
    with pytest.raises(NotFoundError, match="can reconstruct is 2") as caught:
        txlog.Table(table.uri, version=1)
    assert caught.value.path == table.uri


@pytest.mark.parametrize("missing", ["protocol", "metaData"])
def test_a_log_without_protocol_or_metadata(make: Make, log: Path, missing: str) -> None:
    table = make(1)
    lines = unsealed((log / commit(0)).read_bytes()).splitlines()
    kept = [line for line in lines if missing not in orjson.loads(line)]
    (log / commit(0)).write_bytes(b"\n".join(kept))
    with pytest.raises(LogCorruptError) as caught:
        txlog.Table(table.uri)
    assert caught.value.field == missing


def rewritten(log: Path, action: str, change: Callable[[dict[str, Any]], None]) -> None:
    """Change an action of the first commit."""
    rows = [orjson.loads(line) for line in unsealed((log / commit(0)).read_bytes()).splitlines()]
    for row in rows:
        if action in row:
            change(row[action])
    (log / commit(0)).write_bytes(b"\n".join(map(orjson.dumps, rows)))


def schema_of(*names: str) -> str:
    fields = [{"name": n, "type": "long", "nullable": True, "metadata": {}} for n in names]
    return orjson.dumps({"type": "struct", "fields": fields}).decode()


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"schemaString": schema_of("a", "A")}, "a"),
        ({"schemaString": schema_of("a"), "partitionColumns": ["b"]}, "b"),
    ],
    ids=["case", "partition"],
)
def test_columns_that_contradict_themselves(
    make: Make, log: Path, change: dict[str, Any], field: str
) -> None:
    table = make(1)
    rewritten(log, "metaData", lambda body: body.update(change))
    with pytest.raises(LogCorruptError) as caught:
        txlog.Table(table.uri)
    assert caught.value.field == field


def test_a_table_that_needs_unknown_features_is_refused(make: Make, log: Path) -> None:
    table = make(1)
    rewritten(
        log,
        "protocol",
        lambda body: body.update(
            minReaderVersion=3,
            minWriterVersion=7,
            readerFeatures=["zebra"],
            writerFeatures=["zebra"],
        ),
    )
    with pytest.raises(UnsupportedFeatureError, match="zebra") as caught:
        txlog.Table(table.uri)
    assert caught.value.path == table.uri


@pytest.mark.parametrize(
    "hint",
    [b"", b"{", b'{"version":999,"size":1}', b'{"version":1,"size":1}'],
    ids=["empty", "torn", "ahead", "dangling"],
)
def test_a_wrong_hint_changes_nothing(make: Make, log: Path, hint: bytes) -> None:
    table = make(4)
    table.maintenance.checkpoint()
    (log / "_last_checkpoint").write_bytes(hint)
    with pytest.warns(TxlogWarning, match=r"_last_checkpoint .*Table\.maintenance\.checkpoint"):
        found = [values(txlog.Table(table.uri, version)) for version in (0, 1, 2, 3, None)]
    assert found == [[], [1], [1, 2], [1, 2, 3], [1, 2, 3]]


def test_a_checkpoint_that_lacks_a_part_is_passed_over_with_a_warning(
    make: Make, log: Path
) -> None:
    table = make(3)
    part = f"{2:020d}.checkpoint.{1:010d}.{2:010d}.parquet"
    (log / part).write_bytes(b"x")
    with pytest.warns(TxlogWarning, match=part):
        assert values(txlog.Table(table.uri)) == [1, 2]


def test_a_damaged_commit_that_only_gives_the_time_is_passed_over(make: Make, log: Path) -> None:
    table = make(3, delta__enableInCommitTimestamps="true")
    table.maintenance.checkpoint()
    (log / commit(2)).write_bytes(b"{")
    with pytest.warns(TxlogWarning, match=commit(2)):
        assert values(txlog.Table(table.uri)) == [1, 2]


def test_other_files_in_the_log_are_passed_over(make: Make, log: Path) -> None:
    table = make(2)
    (log / f".{commit(2)}.crc").write_bytes(b"x")
    (log / f"{commit(2)}.tmp").write_bytes(b"x")
    (log / "_commits").mkdir()
    (log / commit(2)).mkdir()
    assert txlog.Table(table.uri).version == 1


def compacted(log: Path, first: int, last: int) -> Path:
    """Write the compaction of commits that only add files."""
    rows = [
        line
        for version in range(first, last + 1)
        for line in unsealed((log / commit(version)).read_bytes()).splitlines()
        if b'"add"' in line[:6]
    ]
    path = log / f"{first:020d}.{last:020d}.compacted.json"
    path.write_bytes(b"\n".join(rows))
    return path


def test_a_compaction_stands_for_a_commit_that_is_missing_or_damaged(make: Make, log: Path) -> None:
    table = make(5)
    path = compacted(log, 1, 3)
    whole = path.read_bytes()
    path.write_bytes(b"{")
    assert values(txlog.Table(table.uri)) == [1, 2, 3, 4]  # The commits are there.
    (log / commit(2)).write_bytes(b"{")
    with pytest.raises(LogCorruptError, match=commit(2)):
        txlog.Table(table.uri)
    path.write_bytes(whole)
    with pytest.warns(TxlogWarning, match=commit(2)):
        assert values(txlog.Table(table.uri)) == [1, 2, 3, 4]
    (log / commit(2)).unlink()
    assert values(txlog.Table(table.uri)) == [1, 2, 3, 4]
    path.write_bytes(b"{")
    with pytest.raises(LogCorruptError, match=path.name):
        txlog.Table(table.uri)


def changed_table(make: Make) -> txlog.Table:
    """Return a table whose versions are of every kind of change."""
    table = make(3, delta__enableInCommitTimestamps="true")
    table.append(pa.table({"a": [3], "b": ["new"]}), schema_mode="merge")
    table.delete("a = 1")
    table.append(pa.table({"a": [4], "b": ["x"]}), txn=("app", 4))
    table.maintenance.checkpoint()
    table.overwrite(pa.table({"a": [7, 8], "b": ["x", None]}), where="a >= 7")
    table.delete("a = 8")
    return table


def test_advance_and_refresh_equal_a_fresh_load(make: Make) -> None:
    table = changed_table(make)
    fresh = {
        version: load_snapshot(context_of(table).store, version=version)
        for version in range(table.version + 1)
    }
    commits = {
        file.version: file for file in list_log(context_of(table).store) if file.kind == "commit"
    }
    latest = fresh[table.version]
    for version, old in fresh.items():
        for target in range(version, table.version + 1):
            files = [commits[at] for at in range(version + 1, target + 1)]
            moved = advance(old, read_commits(context_of(table).store, files))
            assert facts(moved) == facts(fresh[target])
            assert paths(table, moved) == paths(table, fresh[target])
        moved = refresh(context_of(table).store, old)
        assert facts(moved) == facts(latest)
        assert paths(table, moved) == paths(table, latest)
    assert facts(table.snapshot) == facts(latest)


def test_refresh_goes_over_a_checkpoint_where_commits_are_gone(make: Make, log: Path) -> None:
    table = make(2)
    old = table.snapshot
    for value in (2, 3):
        table.append(pa.table({"a": [value]}))
    table.maintenance.checkpoint()
    for version in range(3):
        (log / commit(version)).unlink()
    assert facts(refresh(context_of(table).store, old)) == facts(
        load_snapshot(context_of(table).store)
    )


def test_nothing_new_is_the_same_value(make: Make) -> None:
    snapshot = make(2).snapshot
    assert refresh(open_store(snapshot.root), snapshot) is snapshot
    assert advance(snapshot, []) is snapshot


def test_a_snapshot_is_a_value(make: Make) -> None:
    snapshot = changed_table(make).snapshot
    again = pickle.loads(pickle.dumps(snapshot))
    assert again == snapshot
    assert again.tail.rows.equals(snapshot.tail.rows)
    assert again.transaction_version("app") == 4
    assert again.transaction_version("other") is None
    assert (again.partition_columns, again.mapping_mode) == ([], "none")


def test_history(make: Make, log: Path) -> None:
    table = changed_table(make)
    entries = table.history()
    assert [entry["version"] for entry in entries] == list(range(table.version, -1, -1))
    operations = [entry["operation"] for entry in reversed(entries)]
    assert operations[0] == "CREATE TABLE"
    assert set(operations[1:]) == {"WRITE", "DELETE"}
    stamps = [entry["timestamp"] for entry in entries]
    assert stamps == sorted(stamps, reverse=True)
    assert [entry["version"] for entry in table.history(2)] == [table.version, table.version - 1]
    assert table.history(0) == []
    at = txlog.Table(table.uri, version=1)
    assert [entry["version"] for entry in at.history()] == [1, 0]
    (log / commit(0)).unlink()
    assert table.history()[-1]["version"] == 1


def test_history_of_a_commit_without_info(make: Make, log: Path) -> None:
    table = make(2)
    rows = unsealed((log / commit(1)).read_bytes()).splitlines()
    (log / commit(1)).write_bytes(b"\n".join(row for row in rows if b"commitInfo" not in row))
    (newest, _) = table.history()
    stat = (log / commit(1)).stat()
    assert newest == {"version": 1, "timestamp": stat.st_mtime_ns // 1_000_000}


def test_a_checkpoint_damaged_in_its_files_is_passed_over(tmp_path: Path) -> None:
    table = txlog.write(tmp_path, pa.table({"a": [0]}))
    for number in range(1, 4):
        table.append(pa.table({"a": [number]}))
    table.maintenance.checkpoint()
    table.append(pa.table({"a": [4]}))
    path = tmp_path / "_delta_log" / "00000000000000000003.checkpoint.parquet"
    data = bytearray(path.read_bytes())
    group = pq.read_metadata(path).row_group(1)
    chunks = [group.column(at) for at in range(group.num_columns)]
    chunk = next(chunk for chunk in chunks if chunk.path_in_schema == "add.path")
    start = chunk.data_page_offset
    data[start : start + chunk.total_compressed_size] = bytes(chunk.total_compressed_size)
    path.write_bytes(data)
    again = txlog.Table(tmp_path)
    with pytest.warns(txlog.TxlogWarning, match=r"3\.checkpoint\.parquet"):
        assert sorted(again.to_arrow()["a"].to_pylist()) == [0, 1, 2, 3, 4]
    (tmp_path / "_delta_log" / "00000000000000000001.json").unlink()
    again = txlog.Table(tmp_path)
    with pytest.raises(txlog.LogCorruptError, match=r"3\.checkpoint\.parquet"):
        again.to_arrow()
