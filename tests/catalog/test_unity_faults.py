"""Commits to managed tables of Unity Catalog while its server or the storage fails at any step."""

import dataclasses
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import txlog
from tests.catalog.conftest import SCHEMA, content, rows
from tests.catalog.unity_server import TOKEN, Fault, Stub, serving
from tests.examples import examples
from txlog import Catalog, Table
from txlog.base.errors import OutcomeUnknownError, TxlogError
from txlog.store.managed import ManagedStore
from txlog.testing import Fault as StoreFault
from txlog.testing import FaultyStore

NAME = "sales.orders"
Result = Literal["done", "unknown", "refused"]


@contextmanager
def lake(patch: pytest.MonkeyPatch, **facts: Any) -> Iterator[tuple[Stub, Catalog]]:
    patch.setattr("txlog.store.unity.client.pause", str)
    patch.setattr("txlog.store.unity.commits.pause", str)
    with (
        tempfile.TemporaryDirectory() as folder,
        serving(Stub(Path(folder), schemas=["sales"], **facts)) as stub,
    ):
        catalog = Catalog(stub.address, storage_options={"token": TOKEN})
        catalog.create_table(NAME, SCHEMA, managed="all")
        yield stub, catalog


def result_of(act: Callable[[], object]) -> Result:
    try:
        act()
    except OutcomeUnknownError:
        return "unknown"
    except TxlogError:
        return "refused"
    return "done"


def require_told(found: list[tuple[int, int]], results: dict[int, Result]) -> None:
    """What was acknowledged is there once, and what was refused is not there."""
    ids = [one for one, _ in found]
    assert len(set(ids)) == len(ids)
    assert {one for one, result in results.items() if result == "done"} <= set(ids)
    assert not {one for one, result in results.items() if result == "refused"} & set(ids)


@pytest.mark.slow
@pytest.mark.parametrize("kinds", [("dropped", "dropped"), ("lost", "dropped"), ("lost", "lost")])
@pytest.mark.parametrize("replays", [True, False], ids=["replays", "conflicts"])
@pytest.mark.spec("CAT-23")
def test_the_server_is_away_from_each_request_on(
    monkeypatch: pytest.MonkeyPatch, kinds: tuple[str, str], replays: bool
) -> None:
    with lake(monkeypatch, replays=replays) as (stub, catalog):
        results: dict[int, Result] = {}
        for first in range(99):
            table = catalog.table(NAME)
            seen: list[str] = []

            def plan(operation: str, first: int = first, seen: list[str] = seen) -> Fault | None:
                seen.append(operation)
                since = len(seen) - 1 - first
                return None if since < 0 else Fault(kinds[min(since, 1)])

            stub.plan = plan
            results[first] = result_of(lambda table=table, row=first: table.append(rows((row, 0))))
            stub.plan = None
            require_told(content(catalog.table(NAME)), results)
            if len(seen) <= first:  # The server was there all the time.
                break
        assert results[first] == "done"
        assert {"refused", "unknown"} <= {*results.values()}


class StoreStep(NamedTuple):
    """A fault of the storage."""

    operation: str
    call: int
    kind: Literal["not_done", "lost_answer", "lost_request"]


class ServerStep(NamedTuple):
    """A fault of the server."""

    operation: str
    skipped: int
    fault: Fault


STORE = st.builds(
    StoreStep,
    st.sampled_from(["write_new", "replace", "read", "info", "delete", "list_briefly"]),
    st.integers(1, 5),
    st.sampled_from(["not_done", "lost_answer", "lost_request"]),
)
SERVER = st.builds(
    ServerStep,
    st.sampled_from(["commit", "getCommits"]),
    st.integers(0, 3),
    st.sampled_from(
        [
            Fault("lost"),
            Fault("dropped"),
            Fault("answer", 503),
            Fault("answer", 429),
            Fault("answer", 403, b"{}"),
            Fault("after", 500),
            Fault("after", 200, b"<html>", "text/html"),
        ]
    ),
)


def with_faults(table: Table, faults: list[StoreStep]) -> Table:
    """Return the same table in a store that fails."""
    store = table._context.store
    assert isinstance(store, ManagedStore)
    inner = FaultyStore(store.inner, {one[:2]: StoreFault(*one) for one in faults}.values())
    database = dataclasses.replace(store.database, store=inner)  # type: ignore[type-var]
    return txlog.extend.open_table(dataclasses.replace(store, inner=inner, database=database))


@pytest.mark.slow
@settings(max_examples=examples(60), deadline=None)
@given(
    st.lists(st.lists(STORE | SERVER, max_size=3), min_size=1, max_size=4),
    st.booleans(),
)
@pytest.mark.spec("CAT-23")
def test_what_is_acknowledged_exists_and_what_is_refused_does_not(
    steps: list[list[StoreStep | ServerStep]], replays: bool
) -> None:
    with pytest.MonkeyPatch.context() as patch, lake(patch, replays=replays) as (stub, catalog):
        results: dict[int, Result] = {}
        for row, faults in enumerate(steps):
            table = catalog.table(NAME)
            for one in faults:
                if isinstance(one, ServerStep):
                    before = stub.faults.setdefault(one.operation, [])
                    before += [None] * one.skipped + [one.fault]

            def act(table: Table = table, row: int = row, faults: Any = faults) -> object:
                failing = with_faults(table, [o for o in faults if isinstance(o, StoreStep)])
                return failing.append(rows((row, 0)))

            results[row] = result_of(act)
            stub.faults.clear()
            require_told(content(catalog.table(NAME)), results)
        catalog.table(NAME).append(rows((99, 0)))
        require_told(content(catalog.table(NAME)), {**results, 99: "done"})
