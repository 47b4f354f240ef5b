"""Parts of a table by hash: each row is in one of them, and stays there."""

from itertools import count
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import txlog
from tests.examples import examples
from txlog.base.errors import InvalidInputError
from txlog.training import Loader, split_where

SHARES = {"train": 0.8, "val": 0.1, "test": 0.1}
NAMES = count()


def parts_of(table: txlog.Table, shares: dict[str, float], key: Any = "id") -> dict[str, set[Any]]:
    return {
        part: set(table.to_arrow(["id"], split_where(part, shares, key))["id"].to_pylist())
        for part in shares
    }


@settings(max_examples=examples(40), deadline=None)
@given(
    shares=st.lists(st.integers(1, 50), min_size=1, max_size=5),
    keys=st.lists(st.none() | st.text(max_size=5), max_size=30),
)
def test_each_row_is_in_one_part(shares: list[int], keys: list[str | None]) -> None:
    table = txlog.write(
        f"memory://splits-{next(NAMES)}",
        pa.table({"id": pa.array(range(len(keys)), pa.int64()), "k": pa.array(keys, pa.string())}),
    )
    named = {str(place): share / sum(shares) for place, share in enumerate(shares)}
    found = parts_of(table, named, "k")
    assert sorted(one for part in found.values() for one in part) == list(range(len(keys)))
    if len(named) > 1:  # What is divided further leaves the parts before it as they are.
        (*_, last) = named
        finer = {name: share for name, share in named.items() if name != last}
        finer |= {"a": named[last] / 2, "b": named[last] / 2}
        again = parts_of(table, finer, "k")
        assert again["a"] | again["b"] == found[last]
        assert all(again[name] == found[name] for name in named if name != last)


def test_rows_stay_in_their_part_whatever_becomes_of_the_table() -> None:
    rows = pa.table({"id": pa.array(range(5_000), pa.int32())})
    table = txlog.write(
        f"memory://splits-{next(NAMES)}", rows, properties={"delta.enableTypeWidening": "true"}
    )
    before = parts_of(table, SHARES)
    for part, share in SHARES.items():
        assert abs(len(before[part]) / 5_000 - share) < 0.02
    table.append(pa.table({"id": pa.array(range(5_000, 6_000), pa.int32())}))
    table.delete("id % 7 = 0")
    table.alter.widen_type("id", pa.int64())
    table.optimize.compact()
    after = parts_of(table, SHARES)
    for part, ids in before.items():
        assert after[part] & set(range(5_000)) == {one for one in ids if one % 7}


def test_a_loader_and_its_state_take_a_part() -> None:
    table = txlog.write(f"memory://splits-{next(NAMES)}", pa.table({"id": range(1_000)}))
    loaders = {
        part: Loader(table, batch_size=10, where=split_where(part, SHARES, "id"), even="short")
        for part in SHARES
    }
    assert sum(one.num_rows for one in loaders.values()) == 1_000
    seen = [row for one in loaders.values() for batch in one for row in batch["id"].tolist()]
    assert sorted(seen) == list(range(1_000))
    with pytest.raises(InvalidInputError):
        loaders["val"].load_state_dict(loaders["test"].state_dict())


def test_several_columns_and_odd_names_are_keys() -> None:
    table = txlog.write(
        f"memory://splits-{next(NAMES)}", pa.table({"id": range(9), "a`b": ["x", "y", "z"] * 3})
    )
    found = parts_of(table, SHARES, ["a`b", "id"])
    assert sum(map(len, found.values())) == 9
    groups = parts_of(table, SHARES, "a`b").values()
    assert all({one % 3 for one in part} & {two % 3 for two in other} == set()
               for part in groups for other in groups if part is not other)  # fmt: skip


@pytest.mark.parametrize(
    ("part", "shares", "key", "words"),
    [
        ("x", SHARES, "id", "there is no part 'x'"),
        ("a", {"a": 0.5, "b": 0.4}, "id", "their sum is 0.9"),
        ("a", {"a": 1.5, "b": -0.5}, "id", "-0.5 is no share"),
        ("a", {"a": 1.0, "b": 0.0}, "id", "0.0 is no share"),
        ("a", {"a": "1"}, "id", "names with numbers"),
        ("a", ["a"], "id", "names with numbers"),
        ("a", {"a": 1}, [], "the name of a column"),
        ("a", {"a": 1}, 5, "the name of a column"),
    ],
)
def test_what_is_no_split_is_refused(part: str, shares: Any, key: Any, words: str) -> None:
    with pytest.raises(InvalidInputError, match=words):
        split_where(part, shares, key)
