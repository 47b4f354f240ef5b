"""Batches have the sizes that were asked for, and the same rows."""

from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import txlog
from tests.examples import examples
from txlog.base.errors import InvalidInputError
from txlog.scan.scan import filled, split_by_bytes, split_by_rows

SCHEMA = pa.schema([("n", pa.int64()), ("s", pa.string())])
SIZES = st.lists(st.integers(0, 9), max_size=8)


def batches_of(sizes: list[int]) -> list[pa.RecordBatch]:
    ends = [sum(sizes[: place + 1]) for place in range(len(sizes))]
    return [
        pa.record_batch([range(end - size, end), ["x" * n for n in range(size)]], SCHEMA)
        for size, end in zip(sizes, ends, strict=True)
    ]


@settings(max_examples=examples(30))
@given(SIZES, st.integers(1, 12), st.booleans())
def test_batches_by_rows(sizes: list[int], rows: int, empty: bool) -> None:
    batches = [one.select([]) if empty else one for one in batches_of(sizes)]
    counts = [one.num_rows for one in filled(batches, rows)]
    assert counts == [rows] * (sum(sizes) // rows) + [sum(sizes) % rows] * (sum(sizes) % rows > 0)
    split = [one.num_rows for one in split_by_rows(batches, rows)]
    assert split == [min(rows, size - start) for size in sizes for start in range(0, size, rows)]
    if sum(sizes) and not empty:
        whole = pa.Table.from_batches(batches)
        assert pa.Table.from_batches(filled(batches, rows)) == whole
        assert pa.Table.from_batches(split_by_rows(batches, rows)) == whole


@settings(max_examples=examples(30))
@given(SIZES, st.integers(1, 200))
def test_batches_by_bytes(sizes: list[int], most: int) -> None:
    batches = batches_of(sizes)
    found = list(split_by_bytes(batches, most))
    assert all(one.nbytes <= most or one.num_rows == 1 for one in found if one.num_rows)
    if batches:
        assert pa.Table.from_batches(found) == pa.Table.from_batches(batches)


def test_a_large_row_leaves_the_other_batches_large() -> None:
    texts = ["x"] * 1023 + ["x" * 100_000]
    found = list(split_by_bytes([pa.record_batch([range(1024), texts], SCHEMA)], 4096))
    assert [one.num_rows for one in found] == [256, 256, 256, 128, 64, 32, 16, 8, 4, 2, 1, 1]
    assert all(one.nbytes <= 4096 for one in found[:-1])
    assert found[0].nbytes + found[1].nbytes > 4096


def test_batches_of_a_table(tmp_path: Path) -> None:
    table = txlog.write(
        tmp_path, pa.table({"n": range(96)}), options=txlog.WriteOptions(max_rows_per_file=32)
    )

    def sizes(**asked: int) -> list[int]:
        by_scan = [one.num_rows for one in table.scan().to_batches(**asked)]
        assert [one.num_rows for one in table.to_batches(**asked)] == by_scan
        return by_scan

    assert sizes(batch_size=50, strict_batch_size=True) == [50, 46]
    assert sizes(batch_size=20) == [20, 12] * 3
    small = list(table.to_batches(batch_size_bytes=100))
    assert max(one.nbytes for one in small) <= 100 < 2 * min(one.nbytes for one in small[:2])
    assert pa.Table.from_batches(small) == table.to_arrow()
    filtered = table.to_batches(where="n % 3 = 0", batch_size=10, strict_batch_size=True)
    assert [one.num_rows for one in filtered] == [10, 10, 10, 2]
    fragment = table.fragments()[1]
    parts = fragment.to_batches(filter="n % 2 = 0", batch_size=10, strict_batch_size=True)
    assert [one.num_rows for one in parts] == [10, 6]
    assert [one.num_rows for one in fragment.to_batches(batch_size_bytes=8)] == [1] * 32
    assert [one.num_rows for one in table.to_batches([], batch_size=20)] == [20, 12] * 3
    for asked in ({"batch_size_bytes": 0}, {"batch_size_bytes": 9, "strict_batch_size": True}):
        with pytest.raises(InvalidInputError):
            table.to_batches(**asked)
