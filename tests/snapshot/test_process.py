"""Pauses of the garbage collector in several threads: the last one restores the state."""

import gc
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from txlog.snapshot.process import collector_paused


@pytest.fixture(autouse=True)
def fixture_as_before() -> Iterator[None]:
    was_on = gc.isenabled()
    yield
    (gc.enable if was_on else gc.disable)()


@pytest.mark.parametrize("was_on", [True, False])
def test_the_last_one_puts_it_back(was_on: bool) -> None:
    (gc.enable if was_on else gc.disable)()
    first, second = ExitStack(), ExitStack()
    first.enter_context(collector_paused())
    second.enter_context(collector_paused())
    first.close()  # In another order than they began, as threads do.
    assert not gc.isenabled()
    second.close()
    assert gc.isenabled() is was_on


def test_an_error_puts_it_back_too() -> None:
    gc.enable()
    with pytest.raises(ValueError, match="x"), collector_paused():
        raise ValueError("x")
    assert gc.isenabled()
