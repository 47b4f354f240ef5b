"""Rows by offsets, addresses and ids: in order, from as few row groups as hold them."""

import json
from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import txlog
from txlog.base.errors import InvalidInputError, NotFoundError
from txlog.scan.take import positions_of_live


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> txlog.Table:
    root = tmp_path_factory.mktemp("take") / "t"
    table = txlog.write(root, pa.table({"a": list(range(100)), "s": [str(n) for n in range(100)]}))
    table.append(pa.table({"a": list(range(100, 150)), "s": ["x"] * 50}))
    table.delete("a % 10 = 3")
    return table


def address(table: txlog.Table, a: int) -> int:
    return int(table.to_arrow(["_rowaddr"], f"a = {a}")["_rowaddr"][0].as_py())


def test_rows_come_in_the_order_of_their_addresses(table: txlog.Table) -> None:
    wanted = [7, 149, 0, 7, 100]
    found = table.take(addresses=[address(table, a) for a in wanted])
    assert found["a"].to_pylist() == wanted
    assert found.schema == table.schema
    some = table.take(addresses=[address(table, 8)], columns=["s", "_fragid", "a"])
    assert some.to_pylist() == [{"s": "8", "_fragid": 0, "a": 8}]
    assert table.take(addresses=[]).num_rows == 0
    assert table.take(addresses=pa.array([address(table, 9)]))["a"].to_pylist() == [9]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_taking_is_picking_from_a_scan(table: txlog.Table, data: st.DataObject) -> None:
    everything = table.to_arrow(["_rowaddr", "a", "s"])
    picks = data.draw(st.lists(st.integers(0, everything.num_rows - 1), max_size=20))
    expected = everything.take(pa.array(picks, pa.int64()))
    found = table.take(addresses=expected["_rowaddr"].to_pylist(), columns=["_rowaddr", "a", "s"])
    assert found.to_pylist() == expected.to_pylist()


def test_without_row_tracking_ids_are_addresses(table: txlog.Table) -> None:
    assert table.take(row_ids=[address(table, 5)])["a"].to_pylist() == [5]


@pytest.mark.parametrize(
    ("addresses", "names"),
    [
        ([3], "deleted: row address 3"),
        ([5, 13, 3], "deleted: row address 3, 13"),
        ([100], "only 100 rows: row address 100"),
        ([2**31], "only 100 rows"),
        ([9 << 32 | 1], f"no fragment with these ids: row address {9 << 32 | 1}"),
        (list(range(100, 120)), "and 15 more"),
    ],
)
def test_addresses_of_no_row_are_named(
    table: txlog.Table, addresses: list[int], names: str
) -> None:
    with pytest.raises(NotFoundError, match=names):
        table.take(addresses=addresses)


@pytest.mark.parametrize(
    "arguments",
    [
        {}, {"addresses": [1], "row_ids": [1]}, {"addresses": [-1]},
        {"addresses": [None]}, {"addresses": ["x"]}, {"addresses": [2**64]},
        {"row_ids": [1.5]}, {"addresses": [1], "columns": ["nope"]},
    ],
)  # fmt: skip
def test_what_is_no_address(table: txlog.Table, arguments: dict[str, Any]) -> None:
    with pytest.raises(InvalidInputError):
        table.take(**arguments)


def test_only_the_row_groups_that_hold_them_are_read(
    tmp_path: Path, row_groups_read: list[int]
) -> None:
    table = txlog.write(tmp_path / "t", pa.table({"a": list(range(1000))}))
    path = tmp_path / "t" / table.files()["path"][0].as_py()
    pq.write_table(pa.table({"a": list(range(1000))}), path, row_group_size=100)
    assert table.take(addresses=[950, 5, 99])["a"].to_pylist() == [950, 5, 99]
    assert sorted(row_groups_read) == [0, 9]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_offsets_count_the_rows_that_are_left(table: txlog.Table, data: st.DataObject) -> None:
    everything = table.to_arrow()
    offsets = data.draw(st.lists(st.integers(0, everything.num_rows - 1), max_size=20))
    found = table.take(offsets, ["s", "a"])
    expected = everything.select(["s", "a"]).take(pa.array(offsets, pa.int64()))
    assert found.to_pylist() == expected.to_pylist()


@given(
    deleted=st.sets(st.integers(0, 40)),
    offsets=st.lists(st.integers(0, 20)),
)
def test_positions_of_live_rows(deleted: set[int], offsets: list[int]) -> None:
    live = [at for at in range(100) if at not in deleted]
    found = positions_of_live(np.array(offsets, np.int64), np.array(sorted(deleted), np.uint64))
    assert found.tolist() == [live[at] for at in offsets]


@pytest.mark.parametrize("counted", [True, False], ids=["counted", "not counted"])
def test_offsets_mean_what_they_mean_to_pylance(tmp_path: Path, counted: bool) -> None:
    rows = pa.table({"x": range(12), "y": list("abcdefghijkl")})
    twin = lance.write_dataset(rows, tmp_path / "lance", max_rows_per_file=5)
    twin.delete("x IN (1, 2, 6)")
    table = txlog.Table.create(
        tmp_path / "t", rows.schema, properties={"delta.enableDeletionVectors": "true"}
    )
    for start in (0, 5, 10):
        table.append(rows.slice(start, 5))
    table.delete("x IN (1, 2, 6)")
    if not counted:
        without_counts(tmp_path / "t")
        table = txlog.Table(tmp_path / "t")
        assert {f.physical_rows for f in table.fragments()} == {None}
    for offsets in ([0, 5], [5, 0, 0], [8], [], list(range(9))):
        assert table.take(offsets).to_pylist() == twin.take(offsets).to_pylist()
        asked = pa.array(offsets, pa.int64())
        assert table.take(asked, ["y"]).to_pylist() == twin.take(asked, ["y"]).to_pylist()
    with pytest.raises(NotFoundError, match="only 9 rows: offset 9, 100"):
        table.take([9, 0, 100])
    with pytest.raises(OSError, match="non-existent fragment"):
        twin.take([9])


def without_counts(root: Path) -> None:
    """Take the statistics out of all commits of a table."""
    for path in (root / "_delta_log").glob("*.json"):
        actions = [json.loads(line) for line in path.read_text().splitlines()]
        for action in actions:
            action.get("add", {}).pop("stats", None)
        path.write_text("".join(f"{json.dumps(action)}\n" for action in actions))
    for path in (root / "_delta_log").glob("*.crc"):
        path.unlink()


@pytest.mark.parametrize("indices", [[-1], [None], ["x"], [1.5], [2**64]])
def test_what_is_no_offset(table: txlog.Table, indices: list[Any]) -> None:
    with pytest.raises(InvalidInputError, match="indices"):
        table.take(indices)


def test_an_empty_table_has_no_offsets(tmp_path: Path) -> None:
    table = txlog.Table.create(tmp_path, pa.schema([("x", pa.int64())]))
    assert table.take([]).num_rows == 0
    with pytest.raises(NotFoundError, match="only 0 rows"):
        table.take([0])
