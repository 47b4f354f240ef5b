"""The first rows of a large table: no statistics stay in memory, and the batches are the same."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import txlog
from tests.examples import examples
from tests.moved import moved
from tests.predicates import predicates_over
from txlog.extend import context_of
from txlog.snapshot import live_files
from txlog.stream.offsets import UNDECIDED, Limits
from txlog.stream.stream import StreamOptions, TableStream

LARGE = "txlog.snapshot.live_files:_LARGE_BYTES"
IN_PLACES = "txlog.base.columns:_AT_ONCE"
PROPERTIES: dict[str, dict[str, str]] = {
    "vectors": {"delta.enableDeletionVectors": "true"},
    "structs": {
        "delta.checkpoint.writeStatsAsStruct": "true",
        "delta.checkpoint.writeStatsAsJson": "false",
    },
    "recorded": {"delta.enableChangeDataFeed": "true"},
    "mapped": {"delta.columnMapping.mode": "name"},
}


def rows(*xs: int) -> pa.Table:
    parts = [None if x == 7 else x % 3 for x in xs]
    return pa.table({"p": pa.array(parts, pa.int64()), "x": pa.array(xs, pa.int64())})


def batches(path: Path, options: StreamOptions, *, large: bool) -> list[Any]:
    """Return the rows of each batch. A new stream object reads every second batch."""
    found: list[Any] = []
    with moved({LARGE: 1, IN_PLACES: 2} if large else {LARGE: 1 << 40}):
        store = context_of(txlog.Table(path)).store
        stream, at = TableStream(store, options), dict(UNDECIDED)
        while (end := stream.latest(at)) != at:
            found.append((end, stream.work(at, end)))
            at = end
            if len(found) % 2:
                stream = TableStream(store, options)
    return found


@pytest.mark.slow
@settings(max_examples=examples(100), deadline=None)
@given(
    appended=st.lists(st.lists(st.integers(0, 21), min_size=1, max_size=4), max_size=4),
    later=st.lists(st.lists(st.integers(0, 21), min_size=1, max_size=4), max_size=2),
    properties=st.sampled_from(sorted(PROPERTIES)),
    partitioned=st.booleans(),
    changes=st.booleans(),
    where=st.none() | predicates_over({"x": st.integers(0, 21), "p": st.integers(0, 2)}),
    limits=st.builds(
        Limits, files=st.none() | st.integers(1, 3), bytes=st.none() | st.sampled_from([1, 900])
    ),
)
@example([[1, 2], [3]], [[4]], "structs", True, False, txlog.col("x") > 1, Limits(files=1))
@example([[1, 2], [3]], [[4]], "recorded", True, True, txlog.col("x") > 1, Limits(files=1))
def test_batches_of_a_large_table_are_those_of_a_plan_that_reads_the_whole_log(
    appended: list[list[int]],
    later: list[list[int]],
    properties: str,
    partitioned: bool,
    changes: bool,
    where: txlog.Expression | None,
    limits: Limits,
) -> None:
    with TemporaryDirectory() as folder:
        path = Path(folder, "t")
        table = txlog.write(
            path,
            rows(1, 2, 7),
            partition_by="p" if partitioned else None,
            properties=PROPERTIES[properties],
        )
        for xs in appended:
            table.append(rows(*xs))
        table.delete("x = 2")
        table.maintenance.checkpoint()
        for xs in later:
            table.append(rows(*xs))
        options = StreamOptions(
            limits=limits, where=where, changes=changes and properties == "recorded"
        )
        found, expected = (batches(path, options, large=large) for large in (True, False))
        assert found == expected


def test_the_first_rows_do_not_load_all_columns_of_all_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = txlog.write(tmp_path, rows(1, 2), partition_by="p")
    table.maintenance.checkpoint()

    def refused(*_: Any) -> Any:
        raise AssertionError("the whole log is read")

    monkeypatch.setattr(live_files, "read_files", refused)
    options = StreamOptions(limits=Limits(files=1), where=txlog.col("x") >= 1)
    found = batches(tmp_path, options, large=True)
    assert sum(len(work) for _, work in found) == 2
