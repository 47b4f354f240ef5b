"""Mappings that do not change."""

import copy
import operator
import pickle
from collections.abc import Callable, Mapping, MutableMapping
from dataclasses import dataclass
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from txlog.base.errors import InvalidTypeError
from txlog.base.frozen import FrozenDict, freeze


@given(st.dictionaries(st.text(max_size=3), st.booleans()))
def test_it_equals_a_dict_and_survives_copies(items: dict[str, bool]) -> None:
    frozen = FrozenDict(items)
    for one in (frozen, pickle.loads(pickle.dumps(frozen)), FrozenDict.fromkeys(items, True)):
        assert isinstance(one, FrozenDict)
        assert one == items or one == dict.fromkeys(items, True)
    for plain in (frozen.copy(), copy.copy(frozen), copy.deepcopy(frozen)):
        assert plain == items
        assert type(plain) is dict
        plain["more"] = True  # A copy is what the error tells to change.
    assert frozen == items
    assert orjson.loads(orjson.dumps(frozen)) == items
    assert frozen | {"more": True} == {**items, "more": True}


CHANGES: dict[str, Callable[[Any], Any]] = {
    "__setitem__": lambda one: operator.setitem(one, "a", 2),
    "__delitem__": lambda one: operator.delitem(one, "a"),
    "__ior__": lambda one: operator.ior(one, {"b": 2}),
    "clear": lambda one: one.clear(),
    "pop": lambda one: one.pop("a"),
    "popitem": lambda one: one.popitem(),
    "setdefault": lambda one: one.setdefault("b", 2),
    "update": lambda one: one.update(b=2),
}


@pytest.mark.parametrize("name", CHANGES)
def test_each_change_is_refused(name: str) -> None:
    frozen = FrozenDict({"a": 1})
    with pytest.raises(InvalidTypeError, match=r"does not change.*Make a dict"):
        CHANGES[name](frozen)
    assert frozen == {"a": 1}


def test_no_method_that_changes_a_dict_is_missing() -> None:
    more = set(dir(MutableMapping)) - set(dir(Mapping))
    methods = {name for name in more if callable(getattr(MutableMapping, name))}
    assert methods <= CHANGES.keys()
    assert {"__setitem__", "pop", "update"} <= methods


def test_the_mappings_of_a_value_are_copies() -> None:
    @dataclass(frozen=True)
    class Value:
        tags: dict[str, str]
        options: dict[str, str]

        def __post_init__(self) -> None:
            freeze(self, "options")

    tags = {"a": "1"}
    value = Value(tags, tags)
    tags["a"] = "2"
    assert (value.tags, value.options) == ({"a": "1"}, {"a": "2"})
