"""Samples whose contents lie beside the rows."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import examples
from tests.moved import moved
from txlog.training.datasets.formats.samples import as_samples

CUT = "txlog.training.datasets.formats.samples:_CUT_BYTES"


@pytest.mark.spec("DST-58")
@settings(max_examples=examples(50), deadline=None)
@given(
    sizes=st.lists(st.tuples(st.integers(0, 9), st.booleans()), max_size=30),
    cut=st.integers(1, 20),
    has_size=st.booleans(),
)
def test_contents_beside_the_rows_are_read_a_few_bytes_at_a_time(
    sizes: Any, cut: int, has_size: bool
) -> None:
    names = [str(number) for number in range(len(sizes))]
    contents = {name: b"x" * size for name, (size, _) in zip(names, sizes, strict=True)}
    beside = [is_beside for _, is_beside in sizes]
    pairs = list(zip(names, beside, strict=True))
    columns = {
        "name": pa.array(names, pa.string()),
        "content": pa.array([None if away else contents[n] for n, away in pairs], pa.binary()),
        "uri": pa.array([n if away else None for n, away in pairs], pa.string()),
    }
    if has_size:
        columns["size"] = pa.array([len(contents[name]) for name in names], pa.int64())
    rows = pa.table(columns).to_reader()
    with moved({CUT: cut}):
        found = list(as_samples(rows, None, None, lambda uri: contents[uri]))
    given = [row for batch in found for row in batch.to_pylist()]
    assert [(row["name"], row["content"]) for row in given] == list(contents.items())
    for batch in found:
        read = [len(row["content"]) for row in batch.to_pylist() if beside[int(row["name"])]]
        assert sum(read[:-1]) < cut
        assert has_size or len(read) <= 1
