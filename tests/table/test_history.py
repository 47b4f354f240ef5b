"""Listings of commits and versions as Arrow tables."""

from pathlib import Path

import pyarrow as pa

import txlog
from txlog.table.history import History, fitting

ROWS = pa.table({"n": [1, 2]})
TEXTS = pa.map_(pa.string(), pa.string())


def test_history_as_a_table(tmp_path: Path) -> None:
    table = txlog.write(tmp_path, ROWS)
    table.append(ROWS, user_metadata={"job": "7", "tries": 2})
    history = table.history()
    assert isinstance(history, list)
    found = history.to_arrow()
    assert found["version"].to_pylist() == [1, 0]
    assert found["timestamp"].to_pylist() == [entry["timestamp"] for entry in history]
    assert found["operation"].to_pylist() == ["WRITE", "CREATE TABLE AS SELECT"]
    assert dict(found["operationMetrics"][0].as_py())["numOutputRows"] == "2"
    assert found.schema.field("operationParameters").type == TEXTS
    assert found["job"].to_pylist() == ["7", None]
    assert found["tries"].to_pylist() == ["2", None]
    assert table.history(0).to_arrow().schema.names == found.schema.names[:10]


def test_values_of_other_writers() -> None:
    found = History(
        [
            {"version": 1, "timestamp": None, "isBlindAppend": "yes", "readVersion": True},
            {"version": 0, "operationParameters": {"by": ["a"], "mode": "Append"}, "z": {"a": [1]}},
        ]
    ).to_arrow()
    assert found["isBlindAppend"].null_count == found["readVersion"].null_count == 2
    assert found["operationParameters"].to_pylist() == [None, [("by", '["a"]'), ("mode", "Append")]]
    assert found["z"].to_pylist() == [None, '{"a":[1]}']
    assert fitting({"a": 1, "b": 2}, pa.struct({"a": pa.string()})) == {"a": "1"}
    assert fitting([1], pa.struct({"a": pa.string()})) is None


def test_versions_as_a_table(tmp_path: Path) -> None:
    table = txlog.write(tmp_path, ROWS)
    table.pins.create("first", 0)
    found = table.versions()
    assert found.schema == pa.schema(
        [
            pa.field("version", pa.int64(), False),
            pa.field("timestamp", pa.int64()),
            pa.field("pins", pa.list_(pa.string()), False),
        ]
    )
    assert found["version"].to_pylist() == [0, 1]
    assert found["pins"].to_pylist() == [["first"], []]
    assert found["timestamp"].to_pylist() == [e["timestamp"] for e in table.history()][::-1]
