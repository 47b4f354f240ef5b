"""Many small files: what one of them teaches is not found out again for the next one."""

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import txlog
from txlog.base.threads import Threads
from txlog.scan import resolve
from txlog.scan.columns import find_columns
from txlog.scan.read_plan import ReadMemo
from txlog.stats.partition import parse_partition_values

SCHEMA = pa.schema([("x", pa.int64()), ("y", pa.string()), ("p", pa.int32())])

# Files of one table, as writers of several ages leave them.
LAYOUTS: dict[str, Callable[[int], pa.Table]] = {
    "same": lambda n: pa.table({"x": pa.array([n, n + 1]), "y": ["a", "b"]}),
    "other order": lambda n: pa.table({"y": ["c"], "x": pa.array([n])}),
    "narrow": lambda n: pa.table({"x": pa.array([n], pa.int32()), "y": ["d"]}),
    "no y": lambda n: pa.table({"x": pa.array([n])}),
    "other case": lambda n: pa.table({"X": pa.array([n]), "Y": ["e"]}),
    "further": lambda n: pa.table({"z": [1.5], "x": pa.array([n]), "y": ["f"]}),
    "dictionary": lambda n: pa.table(
        {"x": pa.array([n]), "y": pa.array(["g"]).dictionary_encode()}
    ),
}


def table_of(root: Path, layouts: list[str]) -> tuple[txlog.Table, list[dict[str, Any]]]:
    """Write a file of each layout; return the table, and its rows."""
    table = txlog.Table.create(root, SCHEMA, partition_by=["p"])
    lines, rows = [], []
    for number, layout in enumerate(layouts):
        data = LAYOUTS[layout](number)
        name = f"part-{number:05}.parquet"
        pq.write_table(data, root / name)
        value = None if number % 4 == 3 else number % 4
        add = {
            "path": name,
            "partitionValues": {"p": None if value is None else str(value)},
            "size": (root / name).stat().st_size,
            "modificationTime": 0,
            "dataChange": True,
        }
        lines.append(orjson.dumps({"add": add}))
        for row in data.to_pylist():
            lower = {key.lower(): held for key, held in row.items()}
            rows.append({"x": lower["x"], "y": lower.get("y"), "p": value})
    (root / "_delta_log" / f"{1:020}.json").write_bytes(b"\n".join(lines) + b"\n")
    return table.refresh(), rows


@settings(max_examples=30, deadline=None)
@given(layouts=st.lists(st.sampled_from(sorted(LAYOUTS)), min_size=1, max_size=12))
def test_files_of_many_layouts_side_by_side(
    tmp_path_factory: pytest.TempPathFactory, layouts: list[str]
) -> None:
    table, rows = table_of(tmp_path_factory.mktemp("t"), layouts)
    assert table.to_arrow().to_pylist() == rows
    assert table.to_arrow().schema == table.schema
    for columns in (["y"], ["p", "x"], ["p"]):
        expected = [{name: row[name] for name in columns} for row in rows]
        assert table.to_arrow(columns).to_pylist() == expected
    assert table.to_arrow(where="p = 1").to_pylist() == [row for row in rows if row["p"] == 1]


def test_a_layout_and_a_partition_value_are_looked_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, rows = table_of(tmp_path, ["same"] * 100)
    looked, parsed, calls = [], [], []

    def find(schema: pa.Schema, wanted: Any, mode: str) -> list[int | None]:
        looked.extend(column.name for column in wanted)
        return find_columns(schema, wanted, mode)

    def parse(texts: pa.Array, kind: Any) -> pa.Array:
        parsed.append(texts[0].as_py())
        return parse_partition_values(texts, kind)

    class Counting(Threads):
        def map(self, function: Any, items: Any) -> Any:
            held = list(items)
            calls.append(len(held))
            return map(function, held)

    monkeypatch.setattr(resolve, "find_columns", find)
    monkeypatch.setattr(resolve, "parse_partition_values", parse)
    scan = table.scan()
    found = type(scan)(scan.store, scan.plan, Counting(1)).to_arrow()
    assert found.to_pylist() == rows
    assert sorted(looked) == ["x", "y"]
    assert len(parsed) == 4
    assert calls == [2]  # 64 files at most in one call.


def test_what_was_found_out_is_no_part_of_a_pickle(tmp_path: Path) -> None:
    table, _ = table_of(tmp_path, ["same"] * 3)
    scan = table.scan()
    before = pickle.dumps(scan.plan.reading)
    scan.to_arrow()
    memo = scan.plan.reading.memo
    assert memo.resolved
    assert memo.partition_values
    assert pickle.dumps(scan.plan.reading) == before
    assert isinstance(pickle.loads(before).memo, ReadMemo)
