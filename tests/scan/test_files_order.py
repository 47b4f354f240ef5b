"""The files of a large table come in the order of their ids, as those of a small one."""

import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import txlog
from tests.examples import examples
from tests.moved import moved
from txlog.snapshot import live_files

SMALL = {"txlog.checkpoint.write:_ROW_GROUP": 2, "txlog.checkpoint.sidecars:PART_ROWS": 2}
LARGE = "txlog.snapshot.live_files:_LARGE_BYTES"
TYPED = [
    "path",
    "num_records",
    "size_bytes",
    "min.x",
    "partition.p",
    "fragment_id",
    "fields",
    "kind",
]
SCHEMA = pa.schema([("p", pa.int64()), ("x", pa.int64())])

# Two files may claim an id, and a text may be none.
ids = st.none() | st.integers(0, 5).map(str) | st.sampled_from(["01", "1073741824", "b"])
added = st.dictionaries(
    st.text("abé", min_size=1, max_size=3),
    st.tuples(ids, st.none() | st.integers(0, 9), st.none() | st.integers(0, 2)),
    max_size=8,
)


def commit(root: Path, version: int, files: dict[str, Any], removed: list[str]) -> None:
    lines = [{"remove": {"path": path, "deletionTimestamp": 1, "dataChange": True}}
             for path in removed]  # fmt: skip
    lines.append({"commitInfo": {"operation": "WRITE"}})
    for path, (claimed, count, part) in files.items():
        stats = {"numRecords": count, "minValues": {"x": count}, "nullCount": {"x": 0}}
        add = {
            "path": path,
            "partitionValues": {"p": None if part is None else str(part)},
            "size": len(path),
            "modificationTime": 5,
            "dataChange": True,
            "stats": None if count is None else json.dumps(stats),
            "tags": None if claimed is None else {"txlog.fragmentId": claimed},
        }
        lines.append({"add": add})
    text = "".join(f"{json.dumps(line)}\n" for line in lines)
    (root / "_delta_log" / f"{version:020}.json").write_text(text)


@pytest.mark.slow
@settings(max_examples=examples(60), deadline=None)
@given(
    before=added,
    after=added,
    v2=st.booleans(),
    statistics=st.sampled_from(["json", "struct", "flat"]),
    chosen=st.none() | st.lists(st.sampled_from(TYPED), min_size=1, unique=True),
    at_once=st.integers(1, 4),
)
def test_files_of_a_large_table_are_those_of_a_small_one_in_the_same_order(
    before: dict[str, Any], after: dict[str, Any], v2: bool, statistics: Any,
    chosen: list[str] | None, at_once: int,
) -> None:  # fmt: skip
    with TemporaryDirectory() as folder, moved(SMALL):
        policy = {"delta.checkpointPolicy": "v2"} if v2 else {}
        txlog.Table.create(folder, SCHEMA, partition_by="p", properties=policy)
        commit(Path(folder), 1, before, [])
        txlog.Table(folder).maintenance.checkpoint()
        commit(Path(folder), 2, after, sorted(set(list(before)[::2]) - {*after}))
        known = txlog.Table(folder).files(statistics=statistics).column_names
        names = None if chosen is None else [name for name in chosen if name in known]
        expected = txlog.Table(folder).files(names, statistics=statistics)
        with moved({LARGE: 1, "txlog.base.columns:_AT_ONCE": at_once}):
            found = txlog.Table(folder).files(names, statistics=statistics)
        assert found.schema == expected.schema
        if (
            names is not None
            and statistics == "json"
            and not {"fragment_id", "fields", "kind"} & {*names}
        ):
            kept = sorted(map(str, expected.to_pylist()))  # Fast, and in no order.
            assert sorted(map(str, found.to_pylist())) == kept
        else:
            assert found == expected


def test_the_files_of_a_large_table_are_not_loaded_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = pa.table({"p": [1, 2, 3], "x": [1, 2, 3]})
    txlog.write(tmp_path, rows, partition_by="p").maintenance.checkpoint()

    def refused(*_: Any) -> Any:
        raise AssertionError("the whole log is held beside its files")

    monkeypatch.setattr(live_files, "read_files", refused)
    with moved({LARGE: 1}):
        assert txlog.Table(tmp_path).files().num_rows == 3
        assert txlog.Table(tmp_path).files(statistics="flat").num_rows == 3


@pytest.mark.parametrize("statistics", ["json", "struct", "flat"])
@pytest.mark.parametrize("thresholds", [{}, {LARGE: 1}])
def test_an_error_about_a_column_lists_all_columns(
    tmp_path: Path, statistics: Any, thresholds: dict[str, int]
) -> None:
    rows = pa.table({"p": [1, 2], "x": [1, 2]})
    table = txlog.write(tmp_path, rows, partition_by="p")
    table.maintenance.checkpoint()
    with moved(thresholds):
        for names in (["nope"], ["path", "nope"]):
            with pytest.raises(txlog.InvalidInputError, match="no such column") as caught:
                table.files(names, statistics=statistics)
            listed = caught.value.remedy.removeprefix("Choose from ").split(", ")
            assert sorted(listed) == sorted(table.files(statistics=statistics).column_names)
