"""Batches made larger: the same rows, and no large batch copied for the sake of a few."""

import pyarrow as pa
import pytest

from txlog.schema.arrow import gathered


@pytest.mark.parametrize(
    ("sizes", "wanted"),
    [
        ([], []),
        ([0], [0]),
        ([3, 0, 4], [7]),
        ([40_000, 30_000, 1], [70_000, 1]),
        ([65_536, 65_535, 1], [65_536, 65_536]),
    ],
)
def test_batches_are_gathered(sizes: list[int], wanted: list[int]) -> None:
    ends = [sum(sizes[: at + 1]) for at in range(len(sizes))]
    batches = [
        pa.RecordBatch.from_pydict({"n": pa.arange(end - size, end)})
        for size, end in zip(sizes, ends, strict=True)
    ]
    found = list(gathered(iter(batches)))
    assert [batch.num_rows for batch in found] == wanted
    assert [n for batch in found for n in batch["n"].to_pylist()] == list(range(sum(sizes)))


def test_wide_rows_are_not_held_for_long() -> None:
    wide = pa.RecordBatch.from_pydict({"t": ["x" * (1 << 20)] * 40})
    assert [batch.num_rows for batch in gathered(iter([wide] * 5))] == [80, 80, 40]


def test_a_large_batch_is_not_copied_for_a_small_one() -> None:
    wide = pa.RecordBatch.from_pydict({"t": ["x" * (1 << 20)] * 64})
    small = wide[:1]
    assert [batch.num_rows for batch in gathered(iter([small, wide, small]))] == [1, 64, 1]
