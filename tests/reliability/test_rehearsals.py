"""A rehearsal of each verb changes nothing, and says what the verb then does."""

from __future__ import annotations

import uuid
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest

import txlog
from tests.reliability.cases import CASES, Case, clear, context_of, files_below, opened
from txlog.base.effects import rehearsing
from txlog.commit.operation import Done, Outcome
from txlog.store.memory import MemoryStore

# They commit nothing, and what they write tells only what is there anyway.
_WRITE = {"checkpoint", "write a checksum", "compact the log"}
# Their workers write fragments before the operation begins.
_BY_WORKERS = {"columns by workers", "rewrite by workers", "delete by workers"}
# Another commit is in the way of these.
_WITHOUT_INDEX = {"drop a feature and its history", "let out"}
_QUICK = {"append", "restore", "drop an index", "transaction", "set a default", "put back"}


@pytest.fixture
def store() -> Iterator[MemoryStore]:
    made = MemoryStore(f"memory://{uuid.uuid4()}")
    yield made
    clear(made)


@contextmanager
def watched(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Fail if a file is written whose name has a meaning, or if one is touched that was there."""
    own: set[str] = set()

    def written(store: MemoryStore, path: str, data: bytes) -> None:
        assert not path.startswith(("_delta_log/", "_txlog_index/", "_txlog_trash/")), path
        own.add(store.resolve(path))
        put(store, path, data)

    def deleted(store: MemoryStore, paths: Sequence[str]) -> None:
        assert own.issuperset(map(store.resolve, paths)), paths
        delete(store, paths)

    put, delete = MemoryStore._put, MemoryStore.delete
    with monkeypatch.context() as patch:
        patch.setattr(MemoryStore, "_put", written)
        patch.setattr(MemoryStore, "delete", deleted)
        yield


def times_of(store: MemoryStore) -> dict[str, object]:
    """Return when each file of a table was written."""
    return {info.name: info.modified_ms for info in store.list_tree("")}


def said(case: Case, store: MemoryStore) -> Any:
    """Return the outcome of a verb. It has no sizes and no times."""
    table = None if case.new else opened(store, case.hours)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", txlog.TxlogWarning)
        found = case.run(context_of(store, case.hours), table)
    outcome = found.outcome if isinstance(found, Done) else found
    if not isinstance(outcome, Outcome):
        return type(found)
    return (
        outcome.operation,
        outcome.rehearsed or outcome.version is not None,
        {name for name, count in outcome.metrics.items() if count},
        (outcome.metrics.get("numOutputRows"), outcome.metrics.get("numAddedFiles")),
        (outcome.features_added, outcome.features_dropped),
    )


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=() if name in _QUICK else pytest.mark.slow)
        for name in CASES
        if name not in _WRITE
    ],
)
def test_a_rehearsal_says_what_the_verb_does_and_leaves_nothing(
    store: MemoryStore, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = CASES[name]
    case.make(context_of(store))
    if not case.new and name not in _WITHOUT_INDEX:
        opened(store).indexes.create("id", name="extra", build=False)
    before, times = files_below(store), times_of(store)
    with rehearsing(), watched(monkeypatch):
        would = said(case, store)
    if name not in _BY_WORKERS:
        assert (files_below(store), times_of(store)) == (before, times)
    assert said(case, store) == would


def test_a_rehearsed_build_of_an_index_reads_no_keys(
    store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = CASES["build an index"]
    case.make(context_of(store))
    table = opened(store)
    before = files_below(store)

    def refused(*_: object) -> None:
        raise AssertionError("keys are read")

    with monkeypatch.context() as patch, rehearsing():
        patch.setattr("txlog.verbs.indexes.read_run", refused)
        would = table.indexes.build()
    assert files_below(store) == before
    assert table.indexes.build().files_built == would.files_built > 0
