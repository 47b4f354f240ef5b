"""Rows by their addresses and ids: in order, from as few row groups as hold them."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import txlog
from txlog.errors import InvalidInputError, NotFoundError


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
    found = table.take([address(table, a) for a in wanted])
    assert found["a"].to_pylist() == wanted
    assert found.schema == table.schema
    some = table.take([address(table, 8)], ["s", "_fragid", "a"])
    assert some.to_pylist() == [{"s": "8", "_fragid": 0, "a": 8}]
    assert table.take([]).num_rows == 0
    assert table.take(pa.array([address(table, 9)]))["a"].to_pylist() == [9]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_taking_is_picking_from_a_scan(table: txlog.Table, data: st.DataObject) -> None:
    everything = table.to_arrow(["_rowaddr", "a", "s"])
    picks = data.draw(st.lists(st.integers(0, everything.num_rows - 1), max_size=20))
    expected = everything.take(pa.array(picks, pa.int64()))
    found = table.take(expected["_rowaddr"].to_pylist(), ["_rowaddr", "a", "s"])
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
        table.take(addresses)


@pytest.mark.parametrize(
    "arguments",
    [
        {}, {"row_addresses": [1], "row_ids": [1]}, {"row_addresses": [-1]},
        {"row_addresses": [None]}, {"row_addresses": ["x"]}, {"row_addresses": [2**64]},
        {"row_ids": [1.5]}, {"row_addresses": [1], "columns": ["nope"]},
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
    assert table.take([950, 5, 99])["a"].to_pylist() == [950, 5, 99]
    assert sorted(row_groups_read) == [0, 9]
