"""The list of files says of each what it is, and which columns it gives, as the log does."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import txlog
from tests.data_files.test_column_updates import FEATURE, by

SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.int64()), ("t", pa.string())])


def logged(table: txlog.Table) -> dict[str, dict[str, Any]]:
    """Return the live files of a log without checkpoints: the oracle."""
    found: dict[str, dict[str, Any]] = {}
    for commit in sorted(Path(table.uri, "_delta_log").glob("*.json")):
        for line in map(json.loads, commit.read_text().splitlines()):
            if "remove" in line:
                found.pop(line["remove"]["path"], None)
            if "add" in line:
                found[line["add"]["path"]] = line["add"]
    return found


def logical(table: txlog.Table) -> dict[str, str]:
    """Return the names of columns by their physical ones, from the log's schema."""
    fields = json.loads(table.metadata.schema_string or "")["fields"]
    physical = "delta.columnMapping.physicalName"
    return {one["metadata"].get(physical, one["name"]): one["name"] for one in fields}


def expected(table: txlog.Table) -> dict[str, tuple[Any, ...]]:
    names = logical(table)
    found = {}
    for path, add in logged(table).items():
        tags = add.get("tags") or {}
        fields, layer = tags.get("txlog.fields"), tags.get("txlog.layer")
        kind = "data" if fields is None else "columns" if layer is None else "layer"
        given = None if fields is None else [names[name] for name in json.loads(fields)]
        found[path] = (kind, layer and int(layer), given, int(tags["txlog.fragmentId"]))
    return found


def listed(files: pa.Table) -> dict[str, tuple[Any, ...]]:
    columns = ("kind", "layer", "fields", "fragment_id")
    return {row["path"]: tuple(row[name] for name in columns) for row in files.to_pylist()}


@pytest.mark.parametrize("mode", ["none", "name"])
def test_each_file_says_what_it_is(tmp_path: Path, mode: str) -> None:
    mapping = {"delta.columnMapping.mode": mode} if mode != "none" else {}
    table = txlog.Table.create(tmp_path / "t", SCHEMA, properties={**FEATURE, **mapping})
    for first in (0, 10):
        keys = list(range(first, first + 10))
        table.append(pa.table({"k": keys, "v": keys, "t": list(map(str, keys))}, schema=SCHEMA))
    table.alter.add_columns({"w": "v + 1"})
    with by("layer"):
        table.update({"v": "-v"}, "k % 2 = 1")
        table.update({"v": "0", "w": "0"}, "k % 3 = 1")
    with by("whole"):
        table.update({"t": "'x'"}, "k = 4")
    wanted = expected(table)
    # Of each fragment a data file, and of the first one a file of all values of `t`.
    assert sorted(one[:3] for one in wanted.values()) == sorted(
        [("data", None, None)] * 2
        + [("columns", None, ["w"])] * 2
        + [("layer", 1, ["v"]), ("layer", 2, ["v", "w"])] * 2
        + [("columns", None, ["t"])],
        key=str,
    )
    for statistics in ("json", "struct", "flat"):
        files = table.files(statistics=statistics)
        assert listed(files) == wanted
        # A layer follows what it is over.
        order = [
            (row["fragment_id"], row["kind"] != "data", row["layer"] or 0)
            for row in files.to_pylist()
        ]
        assert order == sorted(order)
    some = table.files(["layer", "kind"], where="k < 5").to_pydict()
    assert [one for one in some["layer"] if one] == [1, 2]
    assert some["kind"] == ["data", "columns", "columns", "layer", "layer"]
    table.alter.drop_columns("w")  # Nobody reads it, but the layer has it.
    assert [one for one in table.files()["fields"].to_pylist() if one and len(one) == 2]


def test_files_of_other_tables_are_data(tmp_path: Path) -> None:
    table = txlog.write(tmp_path / "t", pa.table({"x": [1, 2]}))
    assert table.files(["kind", "layer", "fields"]).to_pylist() == [
        {"kind": "data", "layer": None, "fields": None}
    ]
    empty = txlog.Table.create(tmp_path / "e", SCHEMA).files()
    assert (empty.num_rows, empty.schema.field("kind").type) == (0, pa.string())
