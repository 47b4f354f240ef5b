"""Fragments that a predicate on addresses rules out."""

from pathlib import Path
from tempfile import TemporaryDirectory

import orjson
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import txlog
from tests.examples import examples
from tests.predicates import predicates_over
from txlog import Expression
from txlog.expressions.bind import bind
from txlog.expressions.evaluate import mask
from txlog.expressions.sql import as_expression
from txlog.scan.read_plan import scan_schema

COLUMNS = ["_fragid", "_rowaddr", "_rowid"]
IDS = st.integers(-1, 6)
numbers = {
    "_fragid": st.one_of(IDS, st.just(1.5), st.just(2**40)),
    "_rowaddr": st.builds(lambda at, position: (at << 32) + position, IDS, st.integers(-1, 4)),
    "x": st.integers(-1, 12),
}
numbers["_rowid"] = numbers["_rowaddr"]


predicates = predicates_over({name: numbers[name] for name in [*COLUMNS, "x"]})


def filtered(table: txlog.Table, where: Expression) -> pa.Table:
    """The oracle: all rows, of which the predicate itself keeps some."""
    everything = table.to_arrow(["x", *COLUMNS]).combine_chunks()
    bound = bind(where, scan_schema(table.snapshot))
    kept = [pc.fill_null(mask(bound, batch), False) for batch in everything.to_batches()]
    return everything.filter(pa.chunked_array(kept, pa.bool_()))


@pytest.mark.spec("FRG-42")
@settings(max_examples=examples(40))
@given(
    st.integers(1, 10),
    st.integers(1, 4),
    st.integers(1, 4),
    st.none() | st.integers(0, 9),
    st.lists(predicates, min_size=1, max_size=4),
)
def test_rows_are_those_of_filtering_after_the_scan(
    count: int, size: int, group: int, gone: int | None, wheres: list[Expression]
) -> None:
    with TemporaryDirectory() as root:
        data = pa.table({"x": list(range(count))})
        table = txlog.write(root, data, options=txlog.WriteOptions(max_rows_per_file=size))
        for path in Path(root).glob("*.parquet"):
            pq.write_table(pq.read_table(path), path, row_group_size=group)
        if gone is not None:
            table.delete(f"x = {gone} OR x = 0")
        for where in wheres:
            expected = filtered(table, where)
            assert table.to_arrow(["x", *COLUMNS], where).equals(expected)
            assert table.count(where) == expected.num_rows


@pytest.mark.spec("FRG-42")
@pytest.mark.parametrize(
    "where",
    [
        "_fragid = {id}",
        "_fragid > {before} AND _fragid < {after}",
        "_fragid IN ({id}, -4, 70000)",
        "_rowaddr = {first}",
        "_rowaddr BETWEEN {first} AND {last}",
        "_rowaddr IN ({first}, {last})",
        "_rowaddr >= {first} AND _rowaddr < {next}",
        "_rowid = {last}",
        "NOT (_fragid <> {id})",
        "_rowaddr > {first} AND _rowaddr <= {last} AND x >= 0",
    ],
)
def test_no_other_file_is_opened(tmp_path: Path, where: str) -> None:
    table = txlog.write(
        tmp_path, pa.table({"x": list(range(30))}), options=txlog.WriteOptions(max_rows_per_file=10)
    )
    (_, chosen, _) = fragments = table.fragments()
    number = chosen.id
    text = where.format(
        id=number, before=number - 1, after=number + 1,
        first=number << 32, last=(number << 32) + 9, next=(number + 1) << 32,
    )  # fmt: skip
    predicate = as_expression(text)
    assert predicate is not None
    expected = filtered(table, predicate)
    for fragment in fragments:
        if fragment != chosen:
            (tmp_path / fragment.files[0].path).unlink()
    scan = table.scan(["x", *COLUMNS], text)
    assert scan.to_arrow().equals(expected)
    assert expected.num_rows
    assert scan.explain().files_to_read == 1


@pytest.mark.spec("FRG-42")
def test_a_fragment_is_counted_by_its_id_alone(tmp_path: Path) -> None:
    table = txlog.write(
        tmp_path, pa.table({"x": list(range(30))}), options=txlog.WriteOptions(max_rows_per_file=10)
    )
    table.delete("x = 12")
    first = table.fragments()[1].id << 32
    for path in tmp_path.glob("*.parquet"):
        path.unlink()
    assert table.count(f"_fragid = {first >> 32}") == 9
    assert table.count(f"_rowaddr >= {first} AND _rowaddr <= {first + 9}") == 9
    with pytest.raises(txlog.DataFileError, match="is missing"):
        table.count(f"_rowaddr >= {first} AND _rowaddr <= {first + 8}")
    # Beyond its rows there are none.
    assert table.count(f"_rowaddr = {first + 10}") == 0


@pytest.mark.spec("FRG-42")
def test_a_log_that_says_no_numbers(tmp_path: Path) -> None:
    table = txlog.Table.create(tmp_path, pa.schema([("x", pa.int64())]))
    lines = []
    for name in "ab":
        path = tmp_path / f"{name}.parquet"
        pq.write_table(pa.table({"x": [1, 2, 3]}), path)
        body = {"path": path.name, "partitionValues": {}, "size": path.stat().st_size,
                "modificationTime": 0, "dataChange": True}  # fmt: skip
        lines.append(orjson.dumps({"add": body}))
    (tmp_path / "_delta_log" / f"{1:020d}.json").write_bytes(b"\n".join(lines))
    table.refresh()
    first, second = (fragment.id << 32 for fragment in table.fragments())
    (tmp_path / "b.parquet").unlink()
    assert table.to_arrow(["x"], f"_rowaddr = {first + 2}")["x"].to_pylist() == [3]
    assert table.count(f"_rowaddr < {second}") == 3


def test_a_column_of_the_table_keeps_its_own_statistics(tmp_path: Path) -> None:
    data = pa.table({"_fragid": [70, 71], "_rowaddr": [1, 2]})
    table = txlog.write(tmp_path, data, options=txlog.WriteOptions(max_rows_per_file=1))
    assert table.to_arrow(where="_fragid = 71").to_pylist() == [{"_fragid": 71, "_rowaddr": 2}]
    assert table.count("_rowaddr = 1") == 1
    assert table.scan(where="_fragid = 1").fragments() == []


@pytest.mark.spec("FRG-42")
def test_row_groups_are_ruled_out_too(tmp_path: Path, row_groups_read: list[int]) -> None:
    table = txlog.write(tmp_path / "t", pa.table({"x": range(100), "p": ["a"] * 100}),
                        partition_by=["p"])  # fmt: skip
    (path,) = (tmp_path / "t").rglob("*.parquet")
    pq.write_table(pa.table({"x": range(100)}), path, row_group_size=10)
    assert table.to_arrow(["x"], "_rowaddr IN (17, 95)")["x"].to_pylist() == [17, 95]
    assert row_groups_read == [1, 9]
    row_groups_read.clear()
    assert table.to_arrow(["x"], "p = 'a' AND x > 85")["x"].to_pylist() == [*range(86, 100)]
    assert row_groups_read == [8, 9]
    row_groups_read.clear()
    assert table.to_arrow(["x"], "_rowaddr BETWEEN 25 AND 34")["x"].to_pylist() == [*range(25, 35)]
    assert row_groups_read == [2, 3]
