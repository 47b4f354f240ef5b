"""A table that threads share: its version and its files belong together."""

import pickle
import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import txlog
from txlog.snapshot import live_files


def xs(*values: int) -> pa.Table:
    return pa.table({"x": pa.array(values, pa.int64())})


def test_files_that_are_read_while_the_table_moves_on_are_not_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = txlog.write(tmp_path / "t", xs(*range(10)))
    load_files = live_files.load_files
    calls = []

    def load_and_append(*args: Any) -> Any:
        state = load_files(*args)
        if not calls:
            calls.append(args)
            table.append(xs(*range(20)))  # As another thread would.
        return state

    monkeypatch.setattr(live_files, "load_files", load_and_append)
    assert table.files().num_rows == 1  # Of the version that it was at when this began.
    assert (table.version, table.count()) == (1, 30)
    assert table.files().num_rows == len(table.fragments()) == 2
    assert table.to_arrow().num_rows == 30


def test_a_scan_keeps_to_the_version_that_it_was_planned_for(tmp_path: Path) -> None:
    table = txlog.write(tmp_path / "t", xs(*range(10)))
    scan = table.scan()
    table.append(xs(*range(20)))
    assert scan.to_arrow().num_rows == scan.count() == 10


def test_a_table_never_moves_back(tmp_path: Path) -> None:
    table = txlog.write(tmp_path / "t", xs(1))
    older = table.snapshot
    table.append(xs(2))
    table._move(older)  # A thread that looked for the latest version before the append.
    assert (table.version, table.count()) == (1, 2)


def test_parts_and_builders_of_a_table_are_shown_in_one_line(tmp_path: Path) -> None:
    table = txlog.write(tmp_path / "t", xs(1))
    values = {name: getattr(table, name) for name in dir(table) if not name.startswith("_")}
    parts = {name: repr(value) for name, value in values.items() if hasattr(value, "_table")}
    assert parts.keys() == {"alter", "branches", "indexes", "maintenance", "optimize", "pins"}
    assert parts == {name: f"{table!r}.{name}" for name in parts}
    merge = table.merge(xs(1), "target.x = source.x")
    assert repr(merge) == "<txlog.TableMerger: no clause>"
    merge.when_matched_delete().when_not_matched_insert_all()
    assert repr(merge) == "<txlog.TableMerger: when matched delete, when not matched insert>"
    with table.transaction() as tx:
        assert repr(tx) == "<txlog.TableTransaction: no change>"
        tx.append(xs(2))
        tx.delete("x = 1")
        assert repr(tx) == "<txlog.TableTransaction: WRITE, DELETE>"


def test_a_write_on_an_object_of_an_older_version_follows_the_latest_one(tmp_path: Path) -> None:
    table = txlog.write(tmp_path / "t", xs(1))
    table.append(xs(2))
    older = table.at(0)
    assert older.count() == 1
    older.delete("x = 2")  # Version 0 had no such row.
    assert (older.version, older.to_arrow()["x"].to_pylist()) == (2, [1])
    older = table.at(0)
    older.append(xs(3))
    assert older.version == 3
    assert sorted(older.to_arrow()["x"].to_pylist()) == [1, 3]


def test_threads_share_a_table(tmp_path: Path) -> None:
    table = txlog.write(tmp_path / "t", xs(0))
    wrong: list[object] = []
    done = threading.Event()

    def write() -> None:
        for _ in range(40):
            table.append(xs(1))
        done.set()

    def read() -> None:
        while not done.is_set():
            before = table.version
            rows, after = table.to_arrow().num_rows, table.version
            if not before + 1 <= rows <= after + 1:
                wrong.append((before, rows, after))

    threads = [threading.Thread(target=work) for work in (write, read, read, read)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert table.count() == 41


def test_a_table_that_stays_open_pickles_as_small_as_a_fresh_one(tmp_path: Path) -> None:
    table = txlog.write(
        tmp_path, pa.table({"x": [0]}), properties={"delta.checkpointInterval": "50"}
    )
    for number in range(1, 155):
        table.append(pa.table({"x": [number]}))
    data = pickle.dumps(table)
    assert len(data) < 1.2 * len(pickle.dumps(txlog.Table(tmp_path)))
    again = pickle.loads(data)
    assert (again.version, again.count()) == (154, 155)
    for file in (tmp_path / "_delta_log").iterdir():
        file.unlink()
    assert pickle.loads(pickle.dumps(table)).count() == 155
