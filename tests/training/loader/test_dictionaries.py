"""Columns of a loader as numbers of their values, beside sorted sets of Python."""

from __future__ import annotations

import math
import pickle
from datetime import UTC, date, datetime
from decimal import Decimal
from itertools import count
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import txlog
from tests.examples import examples
from txlog.training import Loader, Mixture, Shuffle, Text, Windows

fresh = count()

KINDS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "texts": (pa.string(), ["b", "", "a", "ä", "aa", "Z"]),
    "bytes": (pa.binary(), [b"\xff", b"", b"a", b"a\0"]),
    "numbers": (pa.int64(), [3, -1, 0, 1 << 40]),
    "floats": (pa.float64(), [0.5, -0.0, 0.0, math.inf, -2.0, math.nan]),
    "truth": (pa.bool_(), [True, False]),
    "days": (pa.date32(), [date(2026, 1, 2), date(1969, 1, 1)]),
    "moments": (
        pa.timestamp("us", "UTC"),
        [datetime(2026, 1, 2, tzinfo=UTC), datetime(1969, 1, 1, tzinfo=UTC)],
    ),
    "decimals": (pa.decimal128(9, 2), [Decimal("1.50"), Decimal("-2.25")]),
}


def order(value: Any) -> Any:
    """Sort as LDR-20 says: texts by their bytes, NaN last, zeros alike."""
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, float):
        return (math.isnan(value), 0.0 if math.isnan(value) else value + 0.0)
    return value


def plain(kind: pa.DataType, value: Any) -> Any:
    """Return a value as one that compares."""
    if isinstance(value, np.datetime64):
        days = value.astype("datetime64[us]").astype(object)
        return days.date() if pa.types.is_date(kind) else days.replace(tzinfo=UTC)
    return value.item() if isinstance(value, np.generic) else value


@pytest.mark.spec("LDR-20")
@settings(max_examples=examples(60), deadline=None)
@given(draws=st.data())
def test_numbers_are_the_places_of_values_in_the_sorted_values(
    draws: Any, tmp_path_factory: pytest.TempPathFactory
) -> None:
    name = draws.draw(st.sampled_from(sorted(KINDS)))
    kind, known = KINDS[name]
    values = draws.draw(st.lists(st.sampled_from(known) | st.none(), min_size=1, max_size=30))
    fill = draws.draw(st.sampled_from(known))
    table = pa.table({"k": range(len(values)), "v": pa.array(values, kind)})
    path = tmp_path_factory.getbasetemp() / f"codes{next(fresh)}"
    txlog.write(path, table.slice(0, len(values) // 2), schema_mode="merge")
    written = txlog.write(path, table.slice(len(values) // 2), mode="append")
    whole = [fill if value is None else value for value in values]
    wanted = sorted({order(value) for value in whole})
    shuffle = draws.draw(st.sampled_from([None, Shuffle(seed=3, block_rows=4)]))
    where = draws.draw(st.sampled_from([None, "k % 3 = 1"]))
    loader = Loader(
        written, batch_size=4, shuffle=shuffle, even="short", where=where, threads=0,
        fill={"v": fill}, dictionaries=["v"],
    )  # fmt: skip
    assert [order(plain(kind, value)) for value in loader.categories["v"]] == wanted
    seen = {}
    for batch in loader:
        assert batch["v"].dtype == np.int32
        seen |= dict(zip(batch["k"].tolist(), batch["v"].tolist(), strict=True))
    chosen = range(len(values)) if where is None else range(1, len(values), 3)
    assert seen == {key: wanted.index(order(whole[key])) for key in chosen}
    # The values of another loader give the same numbers.
    again = Loader(
        written, batch_size=4, even="short", fill={"v": fill}, dictionaries=loader.categories
    )
    assert list(again.categories["v"]) == list(loader.categories["v"]) or name == "floats"
    assert {
        key: code
        for batch in again
        for key, code in zip(batch["k"].tolist(), batch["v"].tolist(), strict=True)
        if key in seen
    } == seen


def colours(path: Any, values: list[str]) -> txlog.Table:
    return txlog.write(path, pa.table({"n": range(len(values)), "c": values}))


def test_true_takes_the_columns_that_were_dictionaries(tmp_path: Any) -> None:
    made = pa.table(
        {"a": pa.array(["x", "y", "x"]).dictionary_encode(), "b": ["p", "q", "p"], "c": [1, 2, 3]}
    )
    table = txlog.write(tmp_path / "t", made)
    (batch,) = Loader(table, batch_size=3, shuffle=None, dictionaries=True)
    assert batch["a"].tolist() == [0, 1, 0]
    assert batch["b"].tolist() == ["p", "q", "p"]
    assert Loader(table, batch_size=3).categories == {}


def test_windows_and_mixtures_have_numbers(tmp_path: Any) -> None:
    first = colours(tmp_path / "a", ["red", "blue"] * 8)
    second = colours(tmp_path / "b", ["green", "red"] * 8)
    windows = Windows(length=4, stride=4, order="n")
    loader = Loader(first, batch_size=2, windows=windows, shuffle=None, dictionaries=["c"])
    assert next(iter(loader))["c"].tolist() == [[1, 0, 1, 0]] * 2
    known = {"c": ["red", "green", "blue"]}
    loaders = {
        name: Loader(table, batch_size=4, dictionaries=known)
        for name, table in {"a": first, "b": second}.items()
    }
    mixture = Mixture(loaders)
    assert mixture.categories["c"].tolist() == known["c"]
    seen = {code for batch in mixture for code in batch["c"].tolist()}
    assert seen == {0, 1, 2}
    apart = {
        name: Loader(table, batch_size=4, dictionaries=["c"])
        for name, table in {"a": first, "b": second}.items()
    }
    with pytest.raises(txlog.InvalidInputError, match="views"):
        Mixture(apart)
    view = loaders["a"].views["c"]
    assert pickle.loads(pickle.dumps(view)) == view


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"dictionaries": ["nope"]}, "'nope' is no column"),
        ({"dictionaries": ["list"]}, "cannot be in a dictionary"),
        ({"dictionaries": {"c": ["red", "red"]}}, "a value twice"),
        ({"dictionaries": {"c": ["red", None]}}, "a null"),
        ({"dictionaries": {"c": "red"}}, "it is one value"),
        ({"dictionaries": {"c": [1]}}, "no list of values of the column's type string"),
        ({"dictionaries": {"c": 7}}, "no list of values"),
        ({"dictionaries": ["c"], "views": {"c": Text()}}, "has a view, too"),
        ({"dictionaries": ["c"], "fill": {"c": 7}}, "7 is no value of a column of type string"),
    ],
)
def test_what_cannot_be_numbered_is_refused(
    arguments: dict[str, Any], words: str, tmp_path: Any
) -> None:
    table = txlog.write(tmp_path / "t", pa.table({"c": ["red", None], "list": [[1], [2]]}))
    with pytest.raises(txlog.InvalidInputError, match=words):
        Loader(table, batch_size=1, **arguments)


def test_a_wrong_kind_of_names_is_refused(tmp_path: Any) -> None:
    table = colours(tmp_path / "t", ["red"])
    with pytest.raises(txlog.InvalidTypeError, match="a list of names"):
        Loader(table, batch_size=1, dictionaries="c")


def test_values_beside_the_dictionary_are_named(tmp_path: Any) -> None:
    table = colours(tmp_path / "t", ["red", "blue"])
    loader = Loader(table, batch_size=2, shuffle=None, dictionaries={"c": ["red"]})
    with pytest.raises(txlog.InvalidInputError, match="'blue' is not in the dictionary, at posi"):
        next(iter(loader))
    nulls = txlog.write(tmp_path / "n", pa.table({"c": ["red", None]}))
    loader = Loader(nulls, batch_size=2, shuffle=None, dictionaries=["c"])
    with pytest.raises(txlog.InvalidInputError, match="the row is null"):
        next(iter(loader))
