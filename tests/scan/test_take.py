"""Rows by their addresses and ids: in order, from as few row groups as hold them."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import txlog
from txlog.errors import InvalidInputError, NotFoundError
from txlog.testing import unsealed


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
    found = table.rows_at([address(table, a) for a in wanted])
    assert found["a"].to_pylist() == wanted
    assert found.schema == table.schema
    some = table.rows_at([address(table, 8)], ["s", "_fragid", "a"])
    assert some.to_pylist() == [{"s": "8", "_fragid": 0, "a": 8}]
    assert table.rows_at([]).num_rows == 0
    assert table.rows_at(pa.array([address(table, 9)]))["a"].to_pylist() == [9]


def test_offsets_are_of_live_rows_in_the_order_of_a_scan(table: txlog.Table) -> None:
    everything = table.to_arrow()
    for picks in ([0, 3, 5], [134, 0, 134], range(table.count()), []):
        expected = everything.take(pa.array(picks, pa.int64()))
        assert table.take(picks).to_pylist() == expected.to_pylist()
    assert table.take([3], ["s", "_rowaddr"]).to_pylist() == [{"s": "4", "_rowaddr": 4}]
    with pytest.raises(NotFoundError, match="only 135 rows: offset 135, 200"):
        table.take([200, 0, 135])
    for odd in ([-1], [1.5], [None]):
        with pytest.raises(InvalidInputError, match="indices"):
            table.take(odd)  # type: ignore[arg-type]


def test_offsets_mean_the_rows_that_pylance_takes(tmp_path: Path) -> None:
    lance = pytest.importorskip("lance")
    rows = pa.table({"x": list(range(10))})
    ours = txlog.write(tmp_path / "ours", rows, max_rows_per_file=5)
    ours.delete("x = 2 or x = 6")
    twin = lance.write_dataset(rows, tmp_path / "twin", max_rows_per_file=5)
    twin.delete("x = 2 or x = 6")
    for indices in ([0, 5], [2], [7, 1, 7], list(range(8)), []):
        assert ours.take(indices).to_pylist() == twin.take(indices).to_pylist()


def test_offsets_where_the_log_counts_no_rows(tmp_path: Path) -> None:
    table = txlog.write(tmp_path / "t", pa.table({"x": list(range(20))}), max_rows_per_file=5)
    without_stats(tmp_path / "t")
    table = txlog.Table(tmp_path / "t")
    assert table.files()["num_records"].null_count == 4
    assert table.take([19, 0, 7])["x"].to_pylist() == [19, 0, 7]


def without_stats(root: Path) -> None:
    """Take the statistics out of the first commit."""
    (commit,) = (root / "_delta_log").glob("*.json")
    actions = [json.loads(line) for line in unsealed(commit.read_bytes()).splitlines()]
    for action in actions:
        action.get("add", {}).pop("stats", None)
    commit.write_text("\n".join(map(json.dumps, actions)))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_taking_is_picking_from_a_scan(table: txlog.Table, data: st.DataObject) -> None:
    everything = table.to_arrow(["_rowaddr", "a", "s"])
    picks = data.draw(st.lists(st.integers(0, everything.num_rows - 1), max_size=20))
    expected = everything.take(pa.array(picks, pa.int64()))
    found = table.rows_at(expected["_rowaddr"].to_pylist(), ["_rowaddr", "a", "s"])
    assert found.to_pylist() == expected.to_pylist()


def test_without_row_tracking_ids_are_addresses(table: txlog.Table) -> None:
    assert table.rows_at(row_ids=[address(table, 5)])["a"].to_pylist() == [5]


@pytest.mark.parametrize(
    ("addresses", "names"),
    [
        ([3], "deleted: row address 3"),
        ([5, 13, 3], "deleted: row address 3, 13"),
        ([100], "only 100 rows: row address 100"),
        ([2**31], "only 100 rows"),
        ([9 << 32 | 1], f"no fragment of theirs: row address {9 << 32 | 1}"),
        (list(range(100, 120)), "and 15 more"),
    ],
)
def test_addresses_of_no_row_are_named(
    table: txlog.Table, addresses: list[int], names: str
) -> None:
    with pytest.raises(NotFoundError, match=names):
        table.rows_at(addresses)


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
        table.rows_at(**arguments)


def test_only_the_row_groups_that_hold_them_are_read(
    tmp_path: Path, row_groups_read: list[int]
) -> None:
    table = txlog.write(tmp_path / "t", pa.table({"a": list(range(1000))}))
    path = tmp_path / "t" / table.files()["path"][0].as_py()
    pq.write_table(pa.table({"a": list(range(1000))}), path, row_group_size=100)
    assert table.rows_at([950, 5, 99])["a"].to_pylist() == [950, 5, 99]
    assert sorted(row_groups_read) == [0, 9]
