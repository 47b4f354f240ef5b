"""How many rows of some files have a key of a merge's source, by the statistics alone."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import examples
from txlog.spark_ext.writes.source_keys import KeySpans, about_matches
from txlog.stats.skip import ColumnBounds

TYPES = st.sampled_from([pa.int64(), pa.int16(), pa.date32()])
FILES = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 8), st.integers(1, 5)), max_size=6)


def bounds_of(low: pa.Array, high: pa.Array) -> ColumnBounds:
    return ColumnBounds(low, high, pa.nulls(len(low), pa.int64()))


def spans_of(keys: "set[int]", kind: pa.DataType) -> KeySpans:
    ends = pa.array(sorted(keys), pa.int32()).cast(kind)
    return KeySpans(len(keys), ends, ends, pa.array([1] * len(keys), pa.int64()))


@pytest.mark.spec("SPK-29")
@settings(max_examples=examples(300))
@given(files=FILES, keys=st.sets(st.integers(-2, 42)), kind=TYPES)
def test_whole_numbers_that_are_spread_evenly_are_counted(
    files: list[tuple[int, int, int]], keys: set[int], kind: pa.DataType
) -> None:
    """Each number from the first to the last is in a file equally often."""
    rows = [list(range(low, low + more + 1)) * times for low, more, times in files]
    ends = [pa.array([end(one) for one in rows], pa.int32()).cast(kind) for end in (min, max)]
    found = about_matches(pa.array(map(len, rows), pa.int64()), bounds_of(*ends),
                          spans_of(keys, kind))  # fmt: skip
    assert found == pytest.approx(sum(n in keys for one in rows for n in one))


@pytest.mark.spec("SPK-29")
@settings(max_examples=examples(100))
@given(parts=st.lists(st.integers(1, 40), min_size=1, max_size=8), wide=st.integers(1, 50))
def test_spans_of_many_keys_count_as_much_as_their_files_cover(parts: list[int], wide: int) -> None:
    """One span has a key for each `wide` numbers; the files have each number once, in order."""
    total = sum(parts)
    starts = np.cumsum([0, *parts])
    low, high = pa.array(starts[:-1]), pa.array(starts[1:] - 1)
    keys = -(-total // wide)
    spans = KeySpans(keys, pa.array([0]), pa.array([total - 1]), pa.array([keys]))
    found = about_matches(pa.array(parts, pa.int64()), bounds_of(low, high), spans)
    assert found == pytest.approx(keys)


@pytest.mark.spec("SPK-29")
def test_other_values_count_where_a_file_has_only_one() -> None:
    low, high = pa.array(["a", "a", "b", None]), pa.array(["a", "c", "b", "z"])
    live = pa.array([5, 70, 6, 80], pa.int64())
    assert about_matches(live, bounds_of(low, high), KeySpans(2)) == 11
    assert about_matches(live, bounds_of(low, high), KeySpans(0)) == 0
