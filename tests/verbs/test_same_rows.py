"""Which files two versions differ in, of those in which a write replaces rows."""

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
from txlog.expressions.bind import bind
from txlog.expressions.sql import parse_sql
from txlog.extend import context_of
from txlog.scan.plan import plan_live
from txlog.scan.read_plan import read_plan
from txlog.snapshot.live_files import load_files
from txlog.snapshot.snapshot import Snapshot
from txlog.store.base import Store
from txlog.verbs.same_rows import EVERY_FILE, has_other_files, possible_files

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


def plain_keys(store: Store, snapshot: Snapshot, where: str | None) -> set[tuple[str, str | None]]:
    live = load_files(store, snapshot).live
    if where is not None:
        predicate = bind(parse_sql(where), snapshot.schema)
        live = plan_live(snapshot, read_plan(snapshot, where=predicate), live).rows.primaries
    return set(zip(live["path"].to_pylist(), live["dv_id"].to_pylist(), strict=True))


@pytest.mark.spec("CON-30")
@settings(max_examples=examples(100), deadline=None)
@given(
    before=st.lists(st.sampled_from(sorted(STEPS)), max_size=3),
    after=st.lists(st.sampled_from(sorted(STEPS)), max_size=3),
    where=st.sampled_from(PREDICATES),
    large=st.booleans(),
    vectors=st.booleans(),
)
@example(["checkpoint"], ["there and back", "checkpoint"], None, True, True)
@example(["append to b", "checkpoint"], ["delete in b"], "p = 'b' AND n < 3", True, True)
def test_files_are_compared_as_a_plain_rule_does(
    before: list[str], after: list[str], where: str | None, large: bool, vectors: bool
) -> None:
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
        differ = plain_keys(store, old, where) != plain_keys(store, now, where)
        assert has_other_files(store, now, old.version, choice) == differ


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
        assert has_other_files(store, base, 1, EVERY_FILE)
        assert not has_other_files(store, base, 1, possible_files(parse_sql("p = 'b'")))
