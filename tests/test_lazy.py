"""Dataclasses and patterns that are made at their first use."""

import copy
import inspect
import pickle
import re
import threading
from collections.abc import Iterator
from dataclasses import FrozenInstanceError, field, fields, replace

import pytest

from txlog.errors import InvalidTypeError, NotFoundError
from txlog.lazy import compiled, dataclass


@dataclass(frozen=True)
class Base:
    """A class with a field."""

    a: int


@dataclass(frozen=True)
class Derived(Base):
    """A class whose base is not built before it is."""

    b: list[int] = field(default_factory=list)


@dataclass(frozen=True)
class Unpickled:
    """A class whose first value is not made by a call."""

    a: int


class Plain(Base):
    """A subclass that is no dataclass itself."""


def test_a_value_is_that_of_a_dataclass() -> None:
    value = Derived(1, b=[2])
    assert (value.a, value.b, repr(value)) == (1, [2], "Derived(a=1, b=[2])")
    assert value == replace(Derived(3), a=1, b=[2]) != Derived(1)
    assert [one.name for one in fields(value)] == ["a", "b"]
    assert copy.copy(value) == pickle.loads(pickle.dumps(value)) == value
    assert (Plain(4).a, hash(Base(1))) == (4, hash(Base(1)))
    with pytest.raises(FrozenInstanceError):
        value.a = 5  # type: ignore[misc]
    with pytest.raises(TypeError):
        Derived()  # type: ignore[call-arg]


def test_unpickling_builds_the_class() -> None:
    # As `copyreg.__newobj__` does it, without a call of `__init__`.
    one, other = (Unpickled.__new__(Unpickled) for _ in range(2))
    one.__dict__["a"] = other.__dict__["a"] = 1
    assert one == other
    assert repr(one).endswith("Unpickled(a=1)")


def test_help_says_the_fields() -> None:
    assert list(inspect.signature(NotFoundError).parameters)[-2:] == ["path", "version"]
    assert str(inspect.signature(Plain)) == "(a: int) -> None"


def test_slots_are_refused() -> None:
    with pytest.raises(TypeError, match="needs `dataclasses"):
        dataclass(frozen=True, slots=True)(type("Slots", (), {}))


def test_errors_are_errors_of_python_too() -> None:
    for error in (NotFoundError(path="a"), InvalidTypeError(reason="b")):
        assert isinstance(error, FileNotFoundError | TypeError)
        assert str(pickle.loads(pickle.dumps(error))) == str(error)


def test_threads_that_ask_first_wait_for_the_class() -> None:
    def made() -> Iterator[type[Base]]:
        for _ in range(30):
            cls = type("Made", (), {"__annotations__": {"a": int}, "__module__": __name__})
            yield dataclass(frozen=True)(cls)

    failed: list[BaseException] = []

    def ask(cls: type[Base], start: threading.Barrier) -> None:
        start.wait()
        try:
            assert cls(1) == cls(a=1)
        except BaseException as error:
            failed.append(error)

    for cls in made():
        start = threading.Barrier(4)
        threads = [threading.Thread(target=ask, args=(cls, start)) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert failed == []


def test_a_pattern_is_that_of_re() -> None:
    found = compiled(r"(\d)x", re.IGNORECASE)
    match = found.search("a1X")
    assert match is not None
    assert match[1] == "1"
    assert (found.pattern, found.sub("-", "2x3x")) == (r"(\d)x", "--")
    with pytest.raises(AttributeError):
        found.nothing  # type: ignore[attr-defined]  # noqa: B018
