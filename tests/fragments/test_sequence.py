from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from txlog.actions.columns import FILE_ROWS
from txlog.fragments import sequence
from txlog.fragments.fragment import fragments_of
from txlog.fragments.rows import ColumnFiles, FragmentRows
from txlog.fragments.sequence import FragmentSequence


def file_rows(paths: list[str], chunks: int) -> pa.Table:
    kept = {"path": paths, "size": [len(path) for path in paths], "is_add": [True] * len(paths)}
    columns = [
        pa.array(kept[field.name], field.type)
        if field.name in kept
        else pa.nulls(len(paths), field.type)
        for field in FILE_ROWS
    ]
    whole = pa.table(columns, schema=FILE_ROWS)
    step = -(-len(paths) // chunks) or 1
    parts = [whole.slice(start, step) for start in range(0, len(paths), step)]
    return pa.concat_tables([FILE_ROWS.empty_table(), *parts])


@st.composite
def fragments(draw: st.DrawFn) -> tuple[FragmentRows, pa.Array]:
    ids = draw(st.lists(st.integers(0, 30), unique=True, max_size=12))
    owned = st.integers(0, max(len(ids) - 1, 0))
    owners = draw(st.lists(owned, max_size=8)) if ids else []
    chunks = draw(st.integers(1, 3))
    names = draw(st.permutations([f"é{at}" for at in range(len(owners))]))
    columns = ColumnFiles(
        file_rows(list(names), chunks),
        pa.array(owners, pa.int64()),
        (("a",), ("b", "c")),
        pa.array([at % 2 for at in range(len(owners))], pa.int64()),
    )
    counts = draw(st.lists(st.none() | st.integers(0, 9), min_size=len(ids), max_size=len(ids)))
    primaries = file_rows([f"p{number}" for number in ids], chunks)
    rows = FragmentRows(primaries, pa.array(ids, pa.int64()), columns)
    return rows, pa.array(counts, pa.int64())


places = st.none() | st.integers(-14, 14)


@given(fragments(), places, places, st.none() | st.integers(-3, 3).filter(bool), st.integers(1, 4))
def test_a_sequence_is_the_list_of_its_fragments(
    given_: tuple[FragmentRows, pa.Array],
    start: int | None,
    stop: int | None,
    step: int | None,
    at_once: int,
) -> None:
    rows, counts = given_
    expected = fragments_of(rows, counts)
    found = FragmentSequence(rows, counts)
    before, sequence._AT_ONCE = sequence._AT_ONCE, at_once
    try:
        assert list(found) == expected
    finally:
        sequence._AT_ONCE = before
    assert len(found) == len(expected)
    assert [found[at] for at in range(-len(found), len(found))] == 2 * expected
    assert found[start:stop:step] == expected[start:stop:step]
    assert [found.place_of(fragment.id) for fragment in expected] == list(range(len(expected)))
    assert found.place_of(31) is None
    for at, fragment in enumerate(expected):
        paths = [file.path for file in fragment.files]
        assert found.file_rows(at)["path"].to_pylist() == paths
    for beyond in (len(expected), -len(expected) - 1):
        with pytest.raises(IndexError):
            found[beyond]
