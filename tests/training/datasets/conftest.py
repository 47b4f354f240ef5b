"""The store of tests that play catalogs step by step."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

from tests.training.datasets.homes import Ids, clear
from txlog.base.effects import Effects
from txlog.store.memory import MemoryStore


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Iterator[MemoryStore]:
    monkeypatch.setattr(Effects, "uuid", Ids.next)
    made = MemoryStore(f"memory://{uuid.uuid4()}")
    yield made
    clear(made)
