"""Windows of a loader, compared with series in plain Python."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from itertools import chain, count
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import txlog
from tests.examples import examples
from tests.training.loader.plain_loader import batches_of, epoch_of
from tests.training.loader.test_loader import plain_shuffle
from txlog.base.errors import InvalidInputError, InvalidTypeError
from txlog.testing import LatencyStore, open_store, open_table
from txlog.training import Loader, RowFunction, Shuffle, Vector, Windows

NAMES = count()


def plain_windows(rows: Sequence[dict[str, Any]], windows: Windows) -> list[tuple[int, ...]]:
    """Return the ids of each window, of rows in the order of the table."""
    by = [windows.by] if isinstance(windows.by, str) else list(windows.by or [])
    first: list[dict[Any, int]] = [{} for _ in by]
    for row in rows:
        for known, name in zip(first, by, strict=True):
            known.setdefault(row[name], len(known))
    ordered = sorted(
        rows,
        key=lambda row: (
            *(known[row[name]] for known, name in zip(first, by, strict=True)),
            row[windows.order],
        ),
    )
    series: list[list[dict[str, Any]]] = []
    for row in ordered:
        last = series[-1][-1] if series else None
        is_same = last is not None and all(last[name] == row[name] for name in by)
        if last is not None and is_same and windows.max_gap is not None:
            is_same = row[windows.order] - last[windows.order] <= windows.max_gap
        if is_same:
            series[-1].append(row)
        else:
            series.append([row])
    return [
        tuple(row["id"] for row in one[at : at + windows.length])
        for one in series
        for at in range(0, len(one) - windows.length + 1, windows.stride)
    ]


def is_zero(rows: pa.RecordBatch) -> pa.Array:
    return pc.equal(rows["k"], 0)


@st.composite
def series(draw: st.DrawFn) -> txlog.Table:
    """A table of short series, in files of few rows, with deletions."""
    uri = f"memory://windows-{next(NAMES)}"
    first = 0
    for size in draw(st.lists(st.integers(1, 25), min_size=1, max_size=4)):
        rows = {
            "id": pa.array(range(first, first + size)),
            "s": pa.array(
                draw(st.lists(st.sampled_from(["a", "b", None]), min_size=size, max_size=size)),
                pa.string(),
            ),
            "k": draw(st.lists(st.integers(0, 1), min_size=size, max_size=size)),
            "t": draw(st.lists(st.integers(0, 30), min_size=size, max_size=size)),
        }
        table = txlog.write(uri, pa.table(rows), mode="append", properties={"txlog.pageRows": "4"})
        first += size
    if draw(st.booleans()):
        table.delete(f"id % 5 = {draw(st.integers(0, 4))}")
    return table


@pytest.mark.spec("LDR-18")
@given(st.data())
@settings(max_examples=examples(60))
def test_windows_are_those_of_plain_series(data: st.DataObject) -> None:
    table = data.draw(series())
    windows = Windows(
        length=data.draw(st.integers(1, 5)),
        stride=data.draw(st.integers(1, 6)),
        by=data.draw(st.sampled_from([None, "s", ["s", "k"], ["k"]])),
        order=data.draw(st.sampled_from(["t", "id"])),
        max_gap=data.draw(st.none() | st.integers(0, 5)),
    )
    where = data.draw(st.sampled_from([None, "id % 7 <> 1", "k = 1"]))
    keep = data.draw(
        st.sampled_from(
            [None, RowFunction(["k"], lambda rows: [k.as_py() == 0 for k in rows["k"]])]
        )
    )
    shuffle = data.draw(
        st.none()
        | st.builds(
            Shuffle, seed=st.integers(0, 3), lanes=st.integers(1, 5),
            window_rows=st.integers(1, 8), block_rows=st.integers(1, 12),
        )
    )  # fmt: skip
    if data.draw(st.booleans()):
        table = open_table(LatencyStore(open_store(table.uri), 0))
    rows = table.to_arrow(["id", "s", "k", "t"], where).to_pylist()
    rows = [row for row in rows if keep is None or row["k"] == 0]
    plain = plain_windows(rows, windows)
    block = (
        1
        if shuffle is None
        else max(1, (shuffle.block_rows or 1) // max(windows.stride, windows.length))
    )
    blocks = [plain[at : at + block] for at in range(0, len(plain), block)]
    order = plain_shuffle(shuffle)
    if order is not None:
        order = (*order[:2], min(order[2], max(1, block // 2)))
    epoch = data.draw(st.integers(0, 2))
    wanted = epoch_of(blocks, order, epoch)
    ranks, batch_size = data.draw(st.integers(1, 3)), data.draw(st.integers(1, 6))
    for rank in range(ranks):
        loader = Loader(
            table, batch_size=batch_size, columns=["id", "t"], windows=windows, where=where,
            keep=keep, shuffle=shuffle, rank=rank, world_size=ranks, even="short",
            threads=data.draw(st.integers(0, 2)),
        )  # fmt: skip
        loader.set_epoch(epoch)
        assert loader.num_rows == len(plain)
        found = list(loader)
        assert [[tuple(one) for one in batch["id"].tolist()] for batch in found] == batches_of(
            wanted, batch_size, rank, ranks, "short"
        )
        times = {row["id"]: row["t"] for row in rows}
        for batch in found:
            assert batch["t"].tolist() == [
                [times[id] for id in one] for one in batch["id"].tolist()
            ]


def made(tmp_path: Path, **columns: Any) -> txlog.Table:
    return txlog.write(str(tmp_path / "table"), pa.table(columns))


def ids(table: txlog.Table, windows: Windows, **more: Any) -> list[list[int]]:
    loader = Loader(
        table, batch_size=100, columns=["id"], windows=windows, shuffle=None, even="short", **more
    )
    return list(chain.from_iterable(batch["id"].tolist() for batch in loader))


def test_times_have_gaps(tmp_path: Path) -> None:
    start = datetime(2026, 1, 1)
    times = [start + timedelta(minutes=at) for at in (0, 1, 2, 10, 11, 12, 13)]
    table = made(tmp_path, id=range(7), t=pa.array(times, pa.timestamp("us")))
    gap = timedelta(minutes=2)
    assert ids(table, Windows(length=3, order="t", max_gap=gap)) == [
        [0, 1, 2],
        [3, 4, 5],
        [4, 5, 6],
    ]
    assert len(ids(table, Windows(length=3, order="t"))) == 5
    with pytest.raises(InvalidInputError, match="max_gap is 2, which is no difference"):
        ids(table, Windows(length=3, order="t", max_gap=2))


@pytest.mark.parametrize(
    ("kind", "values", "gap"),
    [
        (pa.int8(), [-128, 127], 254),
        (pa.int16(), [-30000, 30000], 59_999),
        (pa.int32(), [-(2**31), 2**31 - 1], 10),
        (pa.int64(), [-(2**62) * 2, 2**63 - 1], 2**63),
        (pa.uint8(), [0, 255], 254),
        (pa.float64(), [float("-inf"), float("inf")], 1e308),
        (pa.date32(), [-(2**31), 2**31 - 1], timedelta(days=999_999_999)),
        (pa.timestamp("us"), [-(2**63), 2**63 - 1], timedelta.max),
    ],
)
@pytest.mark.filterwarnings("ignore:.*uint8 as int16")
def test_the_largest_differences_are_gaps(
    tmp_path: Path, kind: pa.DataType, values: list[Any], gap: Any
) -> None:
    number = {"timestamp[us]": pa.int64(), "date32[day]": pa.int32()}.get(str(kind), kind)
    order = pa.array(values, number).view(kind)
    table = made(tmp_path, id=range(2), o=order)
    found = ids(table, Windows(length=2, order="o", max_gap=gap))
    difference = float("inf") if kind == pa.float64() else values[1] - values[0]
    if isinstance(gap, timedelta):
        gap = gap // timedelta(days=1) if kind == pa.date32() else gap // timedelta(microseconds=1)
    assert found == ([] if difference > gap else [[0, 1]])
    if not isinstance(gap, float) and kind != pa.date32():
        assert ids(table, Windows(length=2, order="o")) == [[0, 1]]


def test_equal_infinities_are_no_gap(tmp_path: Path) -> None:
    table = made(tmp_path, id=range(2), o=[float("inf")] * 2)
    assert ids(table, Windows(length=2, order="o", max_gap=0)) == [[0, 1]]


def test_vectors_have_one_more_dimension(tmp_path: Path) -> None:
    vectors = pa.array([[at, at + 0.5] for at in range(6)], pa.list_(pa.float32()))
    table = made(tmp_path, id=range(6), v=vectors)
    loader = Loader(
        table, batch_size=2, columns=["id", "v"], views={"v": Vector("float32", 2)},
        windows=Windows(length=3, stride=3, order="id"), shuffle=Shuffle(seed=1),
    )  # fmt: skip
    (batch,) = loader
    assert batch["v"].shape == (2, 3, 2)
    assert np.array_equal(batch["v"][..., 0], batch["id"])
    empty = loader.empty_batch()
    assert empty["v"].shape == (0, 3, 2)
    assert empty["id"].shape == (0, 3)


@pytest.mark.spec("LDR-19")
def test_a_state_belongs_to_its_windows(tmp_path: Path) -> None:
    table = made(tmp_path, id=range(40), s=["a", "b"] * 20)

    def loader(**more: Any) -> Loader:
        windows = Windows(**{"length": 3, "order": "id", **more})
        return Loader(table, batch_size=2, columns=["id"], windows=windows)

    first = loader()
    batches = iter(first)
    for _ in range(3):
        next(batches)
    again = loader()
    again.load_state_dict(first.state_dict())
    assert [one["id"].tolist() for one in again] == [one["id"].tolist() for one in batches]
    for change in ({"length": 4}, {"stride": 2}, {"by": "s"}, {"max_gap": 1}, {"max_gap": 1.0}):
        with pytest.raises(InvalidInputError, match="it is of another order"):
            loader(**change).load_state_dict(first.state_at(1))


@pytest.mark.parametrize(
    ("change", "argument", "reason"),
    [
        ({"windows": 3}, "windows", "Windows were expected, not int"),
        ({"windows": {"by": "nope"}}, "windows", "nope"),
        ({"windows": {"order": "n"}}, "windows", "1 rows have no value by which"),
        ({"windows": {"order": "f"}}, "windows", "1 rows have no value by which"),
        ({"windows": {"order": "b"}}, "windows", "bool is no order"),
        ({"windows": {"max_gap": timedelta(1)}}, "windows", "which is no difference of int64"),
        ({"columns": ["s"]}, "views", "Text has no form for windows"),
        ({"weights": "id"}, "weights", "windows have no weights"),
        ({"windows": {"length": 0}}, "length", "a whole number from 1"),
        ({"windows": {"length": 1 << 63}}, "length", "a whole number from 1"),
        ({"windows": {"max_gap": float("nan")}}, "max_gap", "from 0 was expected, not nan"),
        ({"windows": {"max_gap": -1}}, "max_gap", "from 0 was expected, not -1"),
        ({"windows": {"max_gap": "x"}}, "max_gap", "from 0 was expected, not 'x'"),
        ({"windows": {"by": 5}}, "by", "names of columns were expected"),
        ({"windows": {"by": "l"}}, "windows", "names no series"),
        ({"windows": {"stride": True}}, "stride", "a whole number from 1"),
    ],
)  # fmt: skip
def test_wrong_arguments(
    tmp_path: Path, change: dict[str, Any], argument: str, reason: str
) -> None:
    table = made(
        tmp_path,
        id=range(2),
        s=["a", "b"],
        n=[1, None],
        f=[1.0, float("nan")],
        b=[True, False],
        l=[[1], [2]],
    )
    given = change.pop("windows", {})

    def loaded() -> None:
        is_dict = isinstance(given, dict)
        windows = Windows(**{"length": 1, "order": "id", **given}) if is_dict else given
        Loader(table, batch_size=1, windows=windows, **{"columns": ["id"], **change})

    with pytest.raises(InvalidInputError, match=reason) as raised:
        loaded()
    assert raised.value.argument == argument
    assert isinstance(raised.value, InvalidTypeError) == ("were expected" in reason)
