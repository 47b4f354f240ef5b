"""A fragment that several readers share, by ranges of its positions."""

from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import txlog
from tests.examples import examples
from txlog.fragments.fragment import DataFile, Fragment
from txlog.scan.data_file import RowRange
from txlog.scan.read import read_fragment
from txlog.scan.scan import Scan, row_ranges


def rows_of(scan: Scan, ranges: list[RowRange | None]) -> pa.Table:
    (fragment,) = scan.fragments()
    batches = [
        batch
        for one in ranges
        for batch in read_fragment(scan.store, scan.plan.reading, fragment, rows=one)
    ]
    return pa.Table.from_batches(batches, schema=scan.schema)


@pytest.mark.spec("FRG-41")
@settings(max_examples=examples(40))
@given(
    st.integers(1, 40),
    st.integers(1, 12),
    st.lists(st.integers(0, 45), max_size=6),
    st.none() | st.integers(1, 5),
    st.sampled_from([None, "x > 11", "x % 3 = 0", "_rowaddr % 2 = 1"]),
)
def test_ranges_yield_each_row_once_wherever_the_borders_are(
    count: int, group: int, borders: list[int], gone: int | None, where: str | None
) -> None:
    with TemporaryDirectory() as root, pytest.MonkeyPatch.context() as patch:
        patch.setattr("txlog.data_files.write.ROW_GROUP_ROWS", group)
        table = txlog.write(root, pa.table({"x": list(range(count))}))
        if gone is not None:
            table.delete(f"x % {gone + 1} = 1")
        scan = table.scan(["x", "_rowaddr"], where)
        if not scan.fragments():
            return
        ranges: list[RowRange | None] = list(pairwise([0, *sorted(borders), 2**63 - 1]))
        assert rows_of(scan, ranges).equals(scan.to_arrow())


@pytest.mark.spec("FRG-41")
def test_a_range_reads_the_row_groups_that_begin_in_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("txlog.data_files.write.ROW_GROUP_ROWS", 10)
    table = txlog.write(tmp_path, pa.table({"x": list(range(35))}))
    assert pq.ParquetFile(next(tmp_path.glob("*.parquet"))).num_row_groups == 4
    scan = table.scan()
    assert rows_of(scan, [(5, 21)])["x"].to_pylist() == list(range(10, 30))
    assert rows_of(scan, [(11, 20)]).num_rows == 0
    assert rows_of(scan, [(30, 31)])["x"].to_pylist() == list(range(30, 35))


fragments = st.builds(
    lambda size, rows: Fragment(id=1, files=(DataFile("f", size),), physical_rows=rows),
    st.integers(0, 10**4),
    st.none() | st.integers(0, 200),
)


@pytest.mark.spec("FRG-41")
@given(fragments, st.integers(1, 10**4))
def test_ranges_are_even_and_meet(fragment: Fragment, max_bytes: int) -> None:
    size, rows = fragment.files[0].size, fragment.physical_rows
    ranges = row_ranges(fragment, max_bytes)
    if size <= max_bytes or rows is None or rows < 2:
        assert ranges == [None]
        return
    found = [one for one in ranges if one is not None]
    assert len(found) == len(ranges) == min(-(-size // max_bytes), rows)
    assert all(one[1] == other[0] for one, other in pairwise(found))
    assert (found[0][0], found[-1][1]) == (0, 2**63 - 1)
    lengths = [min(stop, rows) - start for start, stop in found]
    assert max(lengths) - min(lengths) <= 1 <= min(lengths)
