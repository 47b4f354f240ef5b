"""Ordered keys of several columns, compared with tuples of values."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import examples
from txlog.fragments.fragment import DataFile, Fragment
from txlog.lookup.composite import are_within, combined, span, windows_of
from txlog.lookup.indexes import Finder, cover
from txlog.lookup.keys import AskedKeys, KeyRanges, key_type, ordered
from txlog.lookup.runs import RunBuilder
from txlog.lookup.segments import (
    CoveredRun,
    covered_file,
    encode_segment,
    merged,
    parse_segment,
)
from txlog.schema.types import PrimitiveType, StructField

NUMBERS = st.sampled_from([-(2**63), -300, -1, 0, 1, 2, 3, 40, 41, 2**33, 2**63 - 1])
TEXTS = st.sampled_from(["", "a", "ab", "a\0", "b", "\xff", "abcdefgh", "abcdefghi", "abcdefghj"])
NAMES = [f"part-{number}-c000.snappy.parquet" for number in range(4)]


def columns_of(kinds: tuple[str, ...]) -> tuple[StructField, ...]:
    return tuple(StructField(f"c{place}", PrimitiveType(kind)) for place, kind in enumerate(kinds))


def arrays_of(kinds: tuple[str, ...], rows: list[tuple[Any, ...]]) -> list[pa.Array]:
    types = {"long": pa.int64(), "string": pa.string()}
    return [pa.array([row[at] for row in rows], types[kind]) for at, kind in enumerate(kinds)]


KINDS = [("long", "long"), ("string", "long"), ("long", "string"), ("long", "long", "string")]


@pytest.mark.spec("LKP-2", "LKP-7")
@pytest.mark.parametrize("kinds", KINDS)
@settings(max_examples=examples(150), deadline=None)
@given(data=st.data())
def test_windows_keep_the_order_of_keys(kinds: tuple[str, ...], data: Any) -> None:
    values = [NUMBERS if kind == "long" else TEXTS for kind in kinds]
    rows = sorted(data.draw(st.lists(st.tuples(*values), min_size=1, max_size=30)))
    columns = columns_of(kinds)
    encodings = [ordered(*one) for one in zip(columns, arrays_of(kinds, rows), strict=True)]
    windows = windows_of(columns, encodings)
    assert sum(window.width for window in windows) <= 64
    assert len(are_within(windows, encodings)) == len(rows)
    found = combined(windows, encodings)
    as_keys = [*zip(*(one.tolist() for one in encodings), strict=True)]
    for place in range(1, len(rows)):
        assert (as_keys[place] >= as_keys[place - 1]) <= (found[place] >= found[place - 1])
    box = tuple(
        tuple(
            sorted(data.draw(st.tuples(st.integers(0, 2**64 - 1), st.sampled_from(one.tolist()))))
        )
        for one in encodings[: data.draw(st.integers(1, len(kinds)))]
    )
    pairs = [zip(keys, box, strict=False) for keys in as_keys]
    inside = [all(a <= key <= b for key, (a, b) in pair) for pair in pairs]
    ends = span(windows, box)
    for number, wanted in zip(found.tolist(), inside, strict=True):
        assert not wanted or (ends is not None and ends[0] <= number <= ends[1])


@pytest.mark.slow
@pytest.mark.spec("LKP-3", "LKP-9", "LKP-14")
@pytest.mark.parametrize("kinds", KINDS)
@settings(max_examples=examples(100), deadline=None)
@given(data=st.data())
def test_runs_find_all_rows_of_boxes_and_keys(kinds: tuple[str, ...], data: Any) -> None:
    """Some files are sorted, some are merged, and some are not kept."""
    values = [NUMBERS if kind == "long" else TEXTS for kind in kinds]
    columns = columns_of(kinds)
    files = [data.draw(st.lists(st.tuples(*values), min_size=1, max_size=20)) for _ in range(4)]
    files = [sorted(rows) if data.draw(st.booleans()) else rows for rows in files]
    runs = []
    for name, rows in zip(NAMES, files, strict=True):
        builder = RunBuilder(columns)
        place = data.draw(st.integers(0, len(rows)))
        for part in (rows[:place], rows[place:]):
            builder.add(arrays_of(kinds, part))
        covered = covered_file([(name, 9)] * len(columns), builder, None)
        runs.append(CoveredRun(builder.finish(), (covered,)))
    dropped = data.draw(st.sampled_from([None, *NAMES]))
    if data.draw(st.booleans()):
        runs = merged(merged(runs), lambda file: file.paths[0] != dropped)
    names = [column.name for column in columns]
    types = [key_type(column) for column in columns]
    written = parse_segment(encode_segment(names, types, runs, table="t"), "s")
    fragments = [
        Fragment(place, (DataFile(name, 9),), physical_rows=len(rows))
        for place, (name, rows) in enumerate(zip(NAMES, files, strict=True))
    ]
    coverage = cover(fragments, [written], names, types, "t")
    asked = data.draw(st.lists(st.tuples(*values), min_size=1, max_size=3))
    keys = AskedKeys.of(columns, arrays_of(kinds, asked))
    found = {(of.path, at) for of, places in Finder(coverage, keys).parts() for at in places}
    unread = {coverage.fragments[place].path for place in coverage.uncovered}
    assert unread <= {dropped}
    for name, rows in zip(NAMES, files, strict=True):
        assert (
            name in unread or {(name, at) for at, row in enumerate(rows) if row in asked} <= found
        )
    used = data.draw(st.integers(1, len(kinds)))
    least, most = (data.draw(st.tuples(*values)) for _ in range(2))
    codes = [
        sorted(ordered(column, array).tolist())
        for column, array in zip(columns, arrays_of(kinds, [least, most]), strict=True)
    ]
    boxes = (tuple((a, b) for a, b in codes[:used]),)
    found = {
        (of.path, at)
        for of, places in Finder(coverage, KeyRanges(columns[:used], boxes)).parts()
        for at in places
    }
    unread = {coverage.fragments[place].path for place in coverage.ordered.uncovered}
    for name, rows in zip(NAMES, files, strict=True):
        encodings = [ordered(*one) for one in zip(columns, arrays_of(kinds, rows), strict=True)]
        wanted = np.ones(len(rows), bool)
        for of, (a, b) in zip(encodings, boxes[0], strict=False):
            wanted &= (of >= np.uint64(a)) & (of <= np.uint64(b))
        assert name in unread or {(name, at) for at in np.flatnonzero(wanted)} <= found
