"""Rows of a batch, spread over partitions."""

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from txlog.protocol import Properties
from txlog.schema import from_arrow
from txlog.stats import format_partition_values
from txlog.writing.files import FileLayout, _by_partition

SCHEMA = pa.schema([("n", pa.int64()), ("p", pa.string()), ("q", pa.int32()), ("r", pa.bool_())])
cells = st.tuples(
    st.sampled_from(["", "a", "b", "é", "aa", None]),
    st.integers(-3, 300) | st.none(),
    st.booleans() | st.none(),
)


@given(
    st.lists(cells, max_size=12),
    st.permutations(["p", "q", "r"]),
    st.integers(1, 3),
    st.integers(0, 2),
)
def test_each_row_goes_to_its_partition_in_its_order(
    rows: list[tuple[Any, ...]], names: list[str], count: int, cut: int
) -> None:
    held = [dict(zip(SCHEMA.names, (at, *row), strict=True)) for at, row in enumerate(rows)]
    batch = pa.RecordBatch.from_pylist(held, SCHEMA)[cut:]
    layout = FileLayout(from_arrow(SCHEMA), tuple(names[:count]), Properties({}))
    kinds = {field.name: field.type for field in layout.schema.fields}
    texts = {
        name: format_partition_values(batch.column(name), kinds[name]).to_pylist()
        for name in names[:count]
    }
    wanted: dict[tuple[Any, ...], list[Any]] = {}
    for at, row in enumerate(batch.to_pylist()):
        key = tuple(texts[name][at] for name in names[:count])
        wanted.setdefault(key, []).append(
            {name: value for name, value in row.items() if name not in names[:count]}
        )
    found = [(key, part.to_pylist()) for key, part in _by_partition(batch, layout)]
    assert dict(found) == wanted
    assert len(found) == len(wanted)


@pytest.mark.parametrize("count", [200, 300, 70_000])
def test_many_partitions(count: int) -> None:
    schema = pa.schema([("n", pa.int64()), ("p", pa.int64())])
    batch = pa.RecordBatch.from_pydict({"n": range(count), "p": range(count, 0, -1)}, schema)
    layout = FileLayout(from_arrow(schema), ("p",), Properties({}))
    found = {key: part["n"].to_pylist() for key, part in _by_partition(batch, layout)}
    assert found == {(str(count - at),): [at] for at in range(count)}
