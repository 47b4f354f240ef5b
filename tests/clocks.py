"""Clocks of tests that let time pass."""

from collections.abc import Iterator

import pytest

from txlog.store import file_times


@pytest.fixture(scope="module", autouse=True)
def store_keeps_pace() -> Iterator[None]:
    """The store's clock moves with the process's clock, which a test sets ahead to make files old.

    Otherwise a clean-up finds that its own clock is ahead, and goes by the store's.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(file_times, "difference_ms", lambda *_: 0)
        yield
