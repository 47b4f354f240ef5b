"""Whether two versions differ in rows, of those that a write replaces."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import txlog
from tests.examples import examples
from tests.moved import moved
from txlog.expressions.sql import parse_sql
from txlog.extend import context_of
from txlog.store.base import Store
from txlog.verbs.same_rows import EVERY_FILE, has_other_rows, possible_files

LARGE = "txlog.snapshot.live_files:_LARGE_BYTES"
PREDICATES = (None, "p = 'a'", "n > 4", "p = 'b' AND n < 3", "n IS NULL")


def rows(*numbers: int | None, p: str = "a") -> pa.Table:
    return pa.table({"n": pa.array(numbers, pa.int64()), "p": [p] * len(numbers)})


STEPS: dict[str, Callable[[txlog.Table], Any]] = {
    "append to a": lambda table: table.append(rows(1, 9)),
    "append to b": lambda table: table.append(rows(2, None, p="b")),
    "delete": lambda table: table.delete("n = 9"),
    "delete in b": lambda table: table.delete("p = 'b' AND n = 1"),
    "compact": lambda table: table.optimize.compact(),
    "there and back": lambda table: table.append(rows(7)) and table.restore(table.version - 1),
    "property": lambda table: table.alter.set_properties({"some.name": "1"}),
    "checkpoint": lambda table: table.maintenance.checkpoint(),
}


MOVES = ("compact", "property", "checkpoint")


def plain_rows(store: Store, version: int, where: str | None) -> list[tuple[Any, ...]]:
    found = txlog.Table(store.root, version).to_arrow(["n", "p"], where=where).to_pylist()
    return sorted((tuple(row.values()) for row in found), key=repr)


@pytest.mark.slow
@pytest.mark.spec("CON-30")
@settings(max_examples=examples(100), deadline=None)
@given(
    before=st.lists(st.sampled_from(sorted(STEPS)), max_size=3),
    after=st.lists(st.sampled_from(sorted(STEPS)), max_size=4),
    where=st.sampled_from(PREDICATES),
    large=st.booleans(),
    vectors=st.booleans(),
)
@example(["checkpoint"], ["there and back", "checkpoint"], None, True, True)
@example(["append to b", "checkpoint"], ["delete in b"], "p = 'b' AND n < 3", True, True)
@example([], ["append to a", "compact"], None, False, False)
@example(["append to a"], ["compact", "delete", "compact"], "p = 'a'", False, True)
@example([], ["append to b", "compact", "append to a"], "p = 'b' AND n < 3", False, True)
def test_other_rows_are_found_and_moved_rows_are_the_same(
    before: list[str], after: list[str], where: str | None, large: bool, vectors: bool
) -> None:
    """Rows that differ are never overlooked; commits that only move rows are never in the way."""
    with TemporaryDirectory() as folder, moved({LARGE: 1}) if large else nullcontext():
        properties = {"delta.enableDeletionVectors": str(vectors).lower()}
        made = txlog.write(Path(folder, "t"), rows(1, 5), partition_by="p", properties=properties)
        made.append(rows(1, 2, p="b"))
        for step in before:
            STEPS[step](made.refresh())
        old = txlog.Table(made.uri).snapshot
        for step in after:
            STEPS[step](made.refresh())
        now = txlog.Table(made.uri).snapshot
        store = context_of(made).store
        choice = EVERY_FILE if where is None else possible_files(parse_sql(where))
        found = has_other_rows(store, now, old.version, choice)
        if plain_rows(store, old.version, where) != plain_rows(store, now.version, where):
            assert found
        elsewhere = {"p = 'a'": ("append to b", "delete in b")}.get(where or "", ())
        if set(after) <= {*MOVES, *elsewhere}:
            assert not found


def test_what_cannot_be_known_counts_as_a_change(tmp_path: Path) -> None:
    """The commits between are gone, or the version is a later one."""
    table = txlog.write(tmp_path / "t", rows(1, 5))
    table.append(rows(2))
    store = context_of(table).store
    table.optimize.compact()
    table.refresh()
    assert not has_other_rows(store, table.snapshot, 1, EVERY_FILE)
    old = txlog.Table(table.uri, 1).snapshot
    assert has_other_rows(store, old, 2, EVERY_FILE)
    table.append(rows(3))
    assert has_other_rows(store, table.refresh().snapshot, 1, EVERY_FILE)


def test_of_a_large_table_only_keys_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No call loads all columns of all files, whichever files are replaced."""
    import txlog.snapshot.live_files as live_files

    table = txlog.write(tmp_path / "t", rows(1, 5), partition_by="p")
    table.append(rows(1, 2, p="b"))
    table.maintenance.checkpoint()
    table.append(rows(3, p="c"))
    store, base = context_of(table).store, table.snapshot

    def refused(*_: Any, **__: Any) -> Any:
        raise AssertionError("all files are loaded")

    with moved({LARGE: 1}):
        monkeypatch.setattr(live_files, "load_files", refused)
        assert has_other_rows(store, base, 1, EVERY_FILE)
        assert not has_other_rows(store, base, 1, possible_files(parse_sql("p = 'b'")))
