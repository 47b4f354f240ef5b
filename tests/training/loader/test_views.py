"""Views of columns in batches, compared with the rows of a scan."""

from __future__ import annotations

import datetime as dt
import io
import math
from decimal import Decimal
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import txlog
from tests.examples import examples
from txlog.base.errors import InvalidInputError
from txlog.training import Image, Loader, Number, Ragged, RaggedArray, Shuffle, Text, Vector, View
from txlog.training.loader.views import UnfitError

NAMES = count()
SHUFFLE = Shuffle(seed=1, lanes=3, window_rows=2, block_rows=4)


def table_of(**columns: Any) -> txlog.Table:
    return txlog.write(f"memory://views-{next(NAMES)}", pa.table(columns))


def batch_of(table: txlog.Table, **more: Any) -> dict[str, Any]:
    """Return all rows as one batch, in the order of the table."""
    return next(
        iter(
            Loader(table, **{"batch_size": table.count(), "shuffle": None, "even": "short", **more})
        )
    )


halves = st.floats(width=16).map(np.float16)


@pytest.mark.spec("FRG-46")
@settings(max_examples=examples(60), deadline=None)
@given(
    st.lists(st.tuples(halves, st.lists(halves, max_size=3), st.tuples(halves, halves)), min_size=1)
)
def test_half_floats_stay_half_floats(rows: list[tuple[Any, list[Any], Any]]) -> None:
    plain, lists, pairs = (list(column) for column in zip(*rows, strict=True))
    table = table_of(
        h=pa.array(plain, pa.float16()),
        l=pa.array(lists, pa.list_(pa.float16())),
        v=pa.array([list(one) for one in pairs], pa.list_(pa.float16(), 2)),
        st=pa.array([{"h": one} for one in plain], pa.struct([("h", pa.float16())])),
    )
    found = batch_of(table, columns=["h", "l", "v", "st.h"])
    whole = table.to_arrow()
    for name, wanted in (
        ("h", whole["h"]),
        ("l", whole["l"].combine_chunks().flatten()),
        ("v", whole["v"].combine_chunks().flatten()),
        ("st.h", whole["h"]),
    ):
        values = found[name]
        values = values.values if isinstance(values, RaggedArray) else values
        assert values.dtype == np.float16
        expected = wanted.to_numpy()
        assert values.tobytes() == np.asarray(expected, np.float16).tobytes()
    assert batch_of(table, columns=["h"], views={"h": Number("float32")})["h"].dtype == np.float32


def test_a_fill_of_half_floats_is_the_nearest_one(tmp_path: Path) -> None:
    given = pa.table({"h": pa.array([np.float16(1), None], pa.float16())})
    table = txlog.write(tmp_path / "t", given)
    for fill in (0.1, np.float32(0.1), -2.0, 3, float("inf")):
        values = batch_of(table, columns=["h"], fill={"h": fill})["h"]
        assert values.tolist() == [1, np.float16(fill)]
    for wrong in (1e6, 10**400, True, "a"):
        with pytest.raises(InvalidInputError, match="is no value of a column of type"):
            batch_of(table, columns=["h"], fill={"h": wrong})


def test_a_half_float_that_another_engine_changed_is_refused(tmp_path: Path) -> None:
    given = {"h": pa.array([np.float16(1)] * 3), "l": pa.array([[np.float16(1)]] * 3)}
    table = txlog.write(tmp_path / "t", pa.table(given))
    wrong = pa.table({"h": pa.array([1.0, 0.1], pa.float32()), "l": [[1.0], [1.0, 1e9]]})
    wrong = wrong.set_column(1, "l", wrong["l"].cast(pa.list_(pa.float32())))
    deltalake = pytest.importorskip("deltalake")
    deltalake.write_deltalake(table.uri, wrong, mode="append")
    table.refresh()
    for name in ("h", "l"):
        with pytest.raises(InvalidInputError, match="no half float"):
            batch_of(table, columns=[name])
    views: dict[str, View] = {"h": Number("float32"), "l": Ragged(dtype="float32")}
    assert max(batch_of(table, views=views)["l"].values) == np.float32(1e9)


@st.composite
def columns(draw: st.DrawFn) -> tuple[pa.Array, View | None, Any]:
    """A column, its view, and how a batch's rows are compared with those of Arrow."""
    rows = draw(st.integers(1, 12))

    def lists(of: st.SearchStrategy[Any], least: int = 0, most: int = 4) -> list[Any]:
        return draw(
            st.lists(st.lists(of, min_size=least, max_size=most), min_size=rows, max_size=rows)
        )

    small = st.integers(-100, 100)
    kinds = "int float bool day moment text bytes decimal vector packed ragged padded cut matrix"
    kind = draw(st.sampled_from(kinds.split()))
    some: Any = {
        "int": small, "float": st.floats(-4, 4, width=32), "bool": st.booleans(),
        "day": st.dates(),
        "moment": st.datetimes(), "text": st.text(max_size=5), "bytes": st.binary(max_size=5),
        "decimal": st.decimals(-9, 9, places=2),
    }  # fmt: skip
    types = {"int": pa.int32(), "float": pa.float32(), "bool": pa.bool_(), "day": pa.date32(),
             "moment": pa.timestamp("us"), "text": pa.string(), "bytes": pa.binary(),
             "decimal": pa.decimal128(5, 2)}  # fmt: skip
    if kind in some:
        values = draw(st.lists(some[kind], min_size=rows, max_size=rows))
        view = Number("float64") if kind == "decimal" else None
        if kind == "int":
            view = draw(st.sampled_from([None, Number("int8"), Number("float64")]))
        convert = float if kind == "decimal" else (lambda value: value)
        return pa.array(values, types[kind]), view, convert
    if kind == "packed":
        values = [np.array(row, "<i2").tobytes() for row in lists(small, 3, 3)]
        return pa.array(values), Vector("int16", 3), lambda v: np.frombuffer(v, "<i2").tolist()
    if kind == "matrix":
        values = [
            [[x, x + 1], [x + 2, x]] for x in draw(st.lists(small, min_size=rows, max_size=rows))
        ]
        return pa.array(values, pa.list_(pa.list_(pa.int16()))), Vector("int16", (2, 2)), list
    values = lists(small, 3, 3) if kind == "vector" else lists(small)
    array = pa.array(values, pa.list_(pa.int32()))
    view, convert = {
        "vector": (Vector("float32", 3), list),
        "ragged": (draw(st.sampled_from([None, Ragged(dtype="int64")])), list),
        "padded": (Ragged(pad=-1, length=4), lambda v: v + [-1] * (4 - len(v))),
        "cut": (Ragged(length=2, truncate=True, pad=draw(st.sampled_from([None, 0]))), None),
    }[kind]
    if kind == "cut":
        convert = (lambda v: [*v, 0, 0][:2]) if view.pad == 0 else (lambda v: v[:2])
    return array, view, convert


@given(st.data())
@settings(max_examples=examples(60))
def test_rows_are_those_of_a_scan(data: st.DataObject) -> None:
    array, view, convert = data.draw(columns())
    table = table_of(id=range(len(array)), c=array)
    shuffle, size = data.draw(st.sampled_from([None, SHUFFLE])), data.draw(st.integers(1, 5))
    loader = Loader(
        table, batch_size=size, shuffle=shuffle, even="short", views={"c": view} if view else None
    )
    wanted = dict(enumerate(array.to_pylist()))
    seen = []
    for batch in loader:
        for place, row in enumerate(batch["id"].tolist()):
            seen.append(row)
            value = batch["c"]
            if isinstance(value, RaggedArray):
                got = value.values[value.offsets[place] : value.offsets[place + 1]].tolist()
            else:
                assert len(value) == len(batch["id"])
                got = value[place].tolist() if hasattr(value[place], "tolist") else value[place]
            assert got == convert(wanted[row])
    assert sorted(seen) == sorted(wanted)


def test_types_are_those_of_numpy() -> None:
    batch = batch_of(
        table_of(
            i=pa.array([1, 2], pa.int16()),
            f=pa.array([1, 2], pa.float32()),
            b=[True, False],
            d=[dt.date(2026, 1, 1)] * 2,
            t=pa.array([dt.datetime(2026, 1, 1, 2)] * 2, pa.timestamp("us", "UTC")),
            s=["a", "é"],
        ),
        views={"s": Text(encoded=True)},
    )
    kinds = {name: getattr(value, "dtype", None) for name, value in batch.items() if name != "s"}
    assert {name: str(kind) for name, kind in kinds.items()} == {
        "i": "int16", "f": "float32", "b": "bool", "d": "datetime64[D]", "t": "datetime64[us]",
    }  # fmt: skip
    assert batch["t"][0] == np.datetime64("2026-01-01T02:00")
    assert batch["s"].values.tobytes() == "aé".encode()
    assert batch["s"].offsets.tolist() == [0, 1, 3]


def test_a_field_of_a_struct_and_an_address_are_columns() -> None:
    table = table_of(st=[{"a": 1, "b": "x"}, {"a": 2, "b": "y"}])
    batch = batch_of(table, columns=["st.a", "_rowaddr"])
    assert batch["st.a"].tolist() == [1, 2]
    assert batch["_rowaddr"].tolist() == table.to_arrow(["_rowaddr"])["_rowaddr"].to_pylist()


def test_nulls_are_refused_unless_filled() -> None:
    lists = pa.array([[1, None], None, [3, 4]], pa.list_(pa.int32()))
    table = table_of(x=[1, None, 3], s=["a", "b", None], v=lists, id=[0, 1, 2])
    fragment = table.fragments()[0].id
    for column, position in (("x", 1), ("s", 2), ("v", 1)):
        with pytest.raises(InvalidInputError, match="the row is null") as raised:
            batch_of(table, columns=["id", column])
        assert (raised.value.argument, raised.value.field) == ("fill", column)
        assert f"at position {position} of fragment {fragment}" in str(raised.value)
    batch = batch_of(table, fill={"x": 7, "s": "?", "v": 0}, views={"v": Vector("int32", 2)})
    assert batch["x"].tolist() == [1, 7, 3]
    assert batch["s"].tolist() == ["a", "b", "?"]
    assert batch["v"].tolist() == [[1, 0], [0, 0], [3, 4]]
    batch = batch_of(table, columns=["v"], fill={"v": 0})
    assert (batch["v"].values.tolist(), batch["v"].offsets.tolist()) == ([1, 0, 3, 4], [0, 2, 2, 4])
    with pytest.raises(InvalidInputError, match="an element is null, at position 0"):
        batch_of(table, columns=["v"], where="id <> 1")


@pytest.mark.parametrize(
    ("values", "view", "reason"),
    [
        ([1, 300], Number("int8"), "300 does not fit int8, at position 1"),
        ([[1, 2], [3]], Vector("int32", 2), "a row has 1 elements, 2 were expected, at position 1"),
        ([b"12", b"3456"], Vector("int8", 2), "a row has 4 bytes, 2 were expected, at position 1"),
        (
            [[1], [2, 3]],
            Ragged(pad=0, length=1),
            "a row has 2 elements, at most 1 fit",
        ),
        ([[1], [2, 300]], Ragged(dtype="int8"), "300 does not fit int8, at position 1"),
        ([[[1], [2]], [[1, 2]]], Vector("int64", (2, 1)), "a row has 1 elements, 2 were"),
        ([b"", b"x"], Image(), "no readable image"),
    ],
)
def test_a_row_that_does_not_fit_is_named(values: list[Any], view: View, reason: str) -> None:
    if isinstance(view, Image):
        pytest.importorskip("PIL")
    with pytest.raises(InvalidInputError, match=reason) as raised:
        batch_of(table_of(c=values), views={"c": view})
    assert raised.value.field == "c"


@pytest.mark.parametrize(
    ("values", "view"),
    [
        (["a"], Number()), ([1], Number("uint8")), ([1], Text()),
        ([1], Vector("int8", 1)), ([["a"]], Vector("int8", 1)),
        ([["a"]], None), ([{"a": 1}], None), ([Decimal("1.5")], None), ([1.5], Number("int32")),
        ([[1.5]], Vector("int8", 1)), ([[1]], Vector("int8", 0)), ([1], Ragged()),
        ([[1]], Ragged(length=3)), ([[1]], Ragged(pad=0, length=0)),
        ([[1.5]], Ragged(dtype="int8")),
        (["a"], Image()), ([b"a"], Image(mode="CMYK")), ([dt.date(2026, 1, 1)], Number("int32")),
        ([[1]], Vector("object", 1)), ([Decimal("1.5")], Number("int64")), ([[[1]]], None),
    ],
)  # fmt: skip
def test_a_view_that_its_column_does_not_fit_is_refused(
    values: list[Any], view: View | None
) -> None:
    with pytest.raises(InvalidInputError, match="cannot be read as") as raised:
        Loader(table_of(c=values), batch_size=1, views={"c": view} if view else None)
    assert (raised.value.argument, raised.value.field) == ("views", "c")


def test_images_are_decoded_and_scaled(tmp_path: Path) -> None:
    pillow = pytest.importorskip("PIL.Image")
    random = np.random.default_rng(0)
    pictures = [random.integers(0, 256, (4 + i % 3, 5, 3), np.uint8) for i in range(20)]
    files = []
    for picture in pictures:
        file = io.BytesIO()
        pillow.fromarray(picture).save(file, "PNG")
        files.append(file.getvalue())
    table = table_of(id=range(20), image=files)

    def loader(view: Image, **more: Any) -> Loader:
        return Loader(table, batch_size=6, views={"image": view}, even="short", **more)

    for batch in loader(Image(), shuffle=SHUFFLE):
        for row, image in zip(batch["id"], batch["image"], strict=True):
            assert np.array_equal(image, pictures[row])
    for threads in (0, 3):
        seen: list[int] = []
        for batch in loader(Image((8, 9), mode="L"), shuffle=SHUFFLE, threads=threads):
            assert batch["image"].shape == (len(batch["id"]), 8, 9, 1)
            seen += batch["id"].tolist()
        assert sorted(seen) == list(range(20))
    assert loader(Image((8, 9))).empty_batch()["image"].shape == (0, 8, 9, 3)
    with pytest.raises(InvalidInputError, match="an image of 5 × 4 pixels, at most 19 are decoded"):
        list(loader(Image(max_pixels=19)))


def test_a_batch_may_be_changed_without_changing_the_next_ones() -> None:
    table = table_of(x=range(100))
    for batch in Loader(table, batch_size=7, shuffle=SHUFFLE, even="pad"):
        assert batch["x"].min() >= 0
        batch["x"][:] = -1


@settings(max_examples=examples(80), deadline=None)
@given(
    shape=st.lists(st.integers(1, 3), min_size=1, max_size=3).map(tuple),
    rows=st.integers(1, 5),
    data=st.data(),
)
def test_the_error_of_a_vector_names_its_row(
    shape: tuple[int, ...], rows: int, data: st.DataObject
) -> None:
    """One fault is put at a random place below a random row."""
    values: Any = np.arange(rows * math.prod(shape)).reshape(rows, *shape).tolist()
    row = data.draw(st.integers(0, rows - 1))
    place, depth = values[row], data.draw(st.integers(0, len(shape) - 1))
    for length in shape[:depth]:
        parent, at = place, data.draw(st.integers(0, length - 1))
        place = place[at]
    fault = data.draw(st.sampled_from(["long", "null"] if depth else ["long"]))
    if fault == "long":
        place.append(place[0])
    else:
        parent[at] = None
    kind = pa.int64()
    for _ in shape:
        kind = pa.list_(kind)
    with pytest.raises(UnfitError) as raised:
        Vector("int64", shape).prepare(pa.array(values, kind), None)
    assert raised.value.offset == row


FILLS: list[tuple[pa.Array, Any, Any, Any]] = [
    (pa.array([1, None]), 7, None, [1, 7]),
    (pa.array([1, None]), "x", None, None),
    (pa.array([1, None]), 2.5, None, None),
    (pa.array(["a", None]), 1, None, None),
    (pa.array([[1], None]), "x", None, None),
    (pa.array([[1], None]), 5, Vector("int64", 1), [[1], [5]]),
    (pa.array([[[1, 2]], None]), 5, Vector("int64", (1, 2)), [[[1, 2]], [[5, 5]]]),
    (pa.array([b"\1\0\2\0", None]), 5, Vector("int16", 2), [[1, 2], [5, 5]]),
    (pa.array([b"\1\0\2\0", None]), 70_000, Vector("int16", 2), None),
    (pa.array([dt.date(2026, 1, 1), None]), "2026-01-01", None, None),
]


@pytest.mark.parametrize(("values", "fill", "view", "expected"), FILLS, ids=range(len(FILLS)))
def test_a_fill_fits_its_column_or_is_refused_by_name(
    values: pa.Array, fill: Any, view: Any, expected: Any
) -> None:
    table, views = table_of(c=values), {} if view is None else {"c": view}
    if expected is not None:
        assert batch_of(table, views=views, fill={"c": fill})["c"].tolist() == expected
        return
    with pytest.raises(InvalidInputError, match="is no value of a column") as raised:
        batch_of(table, views=views, fill={"c": fill})
    assert (raised.value.argument, raised.value.field) == ("fill", "c")


def test_a_shape_has_a_length_for_each_list() -> None:
    with pytest.raises(InvalidInputError, match="a shape of 2 lengths was expected"):
        batch_of(table_of(c=[[[1, 2]]]), views={"c": Vector("int64", 2)})
