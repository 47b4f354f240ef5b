"""Transactions over several tables: all of it at one moment, or nothing."""

import json
import os
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import txlog
from tests.catalog.conftest import SCHEMA, Make, content, rows
from tests.examples import examples
from txlog import Catalog
from txlog.base.errors import (
    CommitConflictError,
    DuplicateKeyError,
    InvalidInputError,
    NotFoundError,
    OutcomeUnknownError,
    SchemaMismatchError,
    StoreError,
    TxlogError,
    UnsupportedFeatureError,
)
from txlog.commit import group
from txlog.store import managed
from txlog.store.catalog_database import CatalogDatabase, UnknownAnswerError
from txlog.testing import Fault, FaultyStore

NAMES = ("a", "b", "c")


@pytest.fixture
def tables(make: Make) -> None:
    for name in NAMES:
        make(name, (1, 10), (2, 20))


def state(catalog: Catalog) -> dict[str, list[tuple[int, int]]]:
    moment = catalog.snapshot()
    return {name: content(moment[name]) for name in NAMES}


def files(catalog: Catalog) -> int:
    return len([path for path in Path(catalog.location).rglob("*.parquet") if path.is_file()])


@pytest.mark.spec("CAT-6")
def test_all_changes_become_visible_together(catalog: Catalog, tables: None) -> None:
    with catalog.transaction(user_metadata={"job": "nightly"}) as changes:
        changes["a"].append(rows((3, 30)))
        changes["A"].update({"v": "v + 1"}, "id = 3")
        changes["b"].delete("id = 1")
        assert changes["a"].count("v = 31") == 1
        assert changes["b"].to_arrow()["id"].to_pylist() == [2]
        assert content(catalog.table("a")) == [(1, 10), (2, 20)]
    assert state(catalog) == {
        "a": [(1, 10), (2, 20), (3, 31)], "b": [(2, 20)], "c": [(1, 10), (2, 20)],
    }  # fmt: skip
    assert set(changes.outcomes) == {"a", "b"}
    assert changes.outcomes["a"].version == catalog.table("a").version == 3
    assert catalog.table("c").version == 2


@pytest.mark.spec("CAT-7")
def test_each_commit_names_all_participants(catalog: Catalog, tables: None) -> None:
    with catalog.transaction() as changes:
        for name in NAMES:
            changes[name].append(rows((3, 30)))
    groups, tags = [], set()
    for name in NAMES:
        table = catalog.table(name)
        text = (Path(table.uri) / "_delta_log" / f"{table.version:020d}.json").read_text()
        lines = [json.loads(line) for line in text.splitlines()]
        assert "commitInfo" in lines[0]
        tags.add(lines[0]["commitInfo"]["tags"]["delta.multiTableTransaction.transactionId"])
        groups += [line["transactionGroup"] for line in lines if "transactionGroup" in line]
    assert groups[0] == groups[1] == groups[2]
    assert len(groups[0]["participants"]) == 3
    assert tags == {groups[0]["transactionId"]}
    assert {one["tableId"] for one in groups[0]["participants"]} == {
        catalog.table(name).metadata.id for name in NAMES
    }
    assert {one["proposedVersion"] for one in groups[0]["participants"]} == {3}
    assert groups[0]["coordinatingCatalog"] == catalog.id
    commits = catalog._database.commits_after(0, 100)
    assert len({one.sequence for one in commits if one.transaction_id in tags}) == 1


@pytest.mark.parametrize("managed", ["writes", "all"])
def test_both_kinds_of_managed_tables_take_part(catalog: Catalog, make: Make, managed: Any) -> None:
    make("a", (1, 1), managed=managed)
    make("b", (1, 1), managed="all")
    with catalog.transaction() as changes:
        changes["a"].append(rows((2, 2)))
        changes["b"].append(rows((2, 2)))
    assert content(catalog.table("a")) == content(catalog.table("b")) == [(1, 1), (2, 2)]


@pytest.mark.slow
@pytest.mark.spec("CAT-6")
@pytest.mark.parametrize(
    ("error", "act"),
    [
        (ZeroDivisionError, lambda _: 1 / 0),
        (NotFoundError, lambda changes: changes["none"]),
        (SchemaMismatchError, lambda changes: changes["b"].append(pa.table({"z": [1]}))),
        (InvalidInputError, lambda changes: changes["b"].delete("z = 1")),
        (UnsupportedFeatureError, lambda changes: changes["plain"].delete("id = 1")),
        (InvalidInputError, lambda changes: changes["b"].append(rows(), txn=("a", 1))),
        (InvalidInputError, lambda changes: changes.sql("DROP TABLE a")),
        (KeyboardInterrupt, lambda _: _interrupt()),
    ],
    ids=["body", "name", "columns", "predicate", "unmanaged", "txn", "statement", "interrupt"],
)
def test_after_an_error_nothing_is_committed(
    catalog: Catalog, tables: None, error: Any, act: Callable[[Any], object]
) -> None:
    catalog.create_table("plain", SCHEMA)
    before, count = state(catalog), files(catalog)
    with pytest.raises(error), catalog.transaction() as changes:  # noqa: PT012 (the block is a transaction)
        changes["a"].append(rows((3, 30)))
        act(changes)
    assert state(catalog) == before
    assert files(catalog) == count


def _interrupt() -> None:
    raise KeyboardInterrupt


def test_the_error_for_an_unmanaged_table_names_the_call(catalog: Catalog) -> None:
    catalog.create_table("plain", SCHEMA)
    with pytest.raises(UnsupportedFeatureError) as caught, catalog.transaction() as changes:
        changes["plain"].append(rows((1, 1)))
    assert "method manage" in str(caught.value)


@pytest.mark.spec("CAT-8")
def test_the_version_of_an_application_is_recorded_once(catalog: Catalog, tables: None) -> None:
    for _ in range(3):
        with catalog.transaction(txn=("job", 7)) as changes:
            changes["a"].append(rows((3, 30)))
            changes["b"].append(rows((3, 30)))
    assert changes.skipped
    assert changes.outcomes["a"].skipped
    assert state(catalog)["a"] == state(catalog)["b"] == [(1, 10), (2, 20), (3, 30)]
    assert catalog.table("a").transaction_version("job") == 7
    with catalog.transaction(txn=("job", 6)) as changes:
        changes["c"].append(rows((3, 30)))
    assert changes.skipped
    with catalog.transaction(txn=("job", 8)) as changes:
        assert changes["a"].count() == 3  # Nothing changes, and 8 is recorded.
    with catalog.transaction(txn=("job", 8)) as changes:
        changes["c"].append(rows((3, 30)))
    assert changes.skipped


@pytest.mark.spec("CAT-8")
def test_of_two_runs_of_an_application_one_counts(catalog: Catalog, tables: None) -> None:
    with catalog.transaction(txn=("job", 1)) as slow:
        slow["a"].append(rows((3, 30)))
        with catalog.transaction(txn=("job", 1)) as quick:
            quick["a"].append(rows((3, 30)))
            quick["b"].append(rows((3, 30)))
    assert slow.skipped
    assert not quick.skipped
    assert state(catalog)["a"] == state(catalog)["b"] == [(1, 10), (2, 20), (3, 30)]


@pytest.mark.spec("CAT-9")
def test_changes_of_other_rows_do_not_conflict(catalog: Catalog, tables: None) -> None:
    with catalog.transaction() as changes:
        changes["a"].update({"v": "v + 1"}, "id = 1")
        changes["b"].append(rows((3, 30)))
        catalog.table("a").delete("id = 2")
        catalog.table("b").append(rows((4, 40)))
    assert state(catalog)["a"] == [(1, 11)]
    assert state(catalog)["b"] == [(1, 10), (2, 20), (3, 30), (4, 40)]


@pytest.mark.spec("CAT-9")
def test_changes_alone_are_decided_again(catalog: Catalog, tables: None) -> None:
    with catalog.transaction() as changes:
        changes["a"].update({"v": "v * 2"}, "id = 1")
        changes["b"].append(rows((3, 30)))
        catalog.table("a").update({"v": "v + 1"}, "id = 1")
    assert state(catalog)["a"] == [(1, 22), (2, 20)]
    assert state(catalog)["b"] == [(1, 10), (2, 20), (3, 30)]


@pytest.mark.spec("CAT-10")
def test_a_change_that_may_rest_on_older_reads_conflicts(catalog: Catalog, tables: None) -> None:
    count = files(catalog)
    with pytest.raises(CommitConflictError, match="run does"), catalog.transaction() as changes:  # noqa: PT012 (the block is a transaction)
        value = changes["b"].to_arrow(where="id = 1")["v"][0].as_py()
        changes["a"].update({"v": str(value)}, "id = 1")
        changes["c"].append(rows((3, 30)))
        catalog.table("a").update({"v": "v + 1"}, "id = 1")
    assert state(catalog) == {
        "a": [(1, 11), (2, 20)], "b": [(1, 10), (2, 20)], "c": [(1, 10), (2, 20)],
    }  # fmt: skip
    assert files(catalog) == count + 1


def skewed(catalog: Catalog, isolation: Any) -> bool:
    """Let two transactions each read what the other one changes; return whether both passed."""
    try:
        with catalog.transaction(isolation=isolation) as one:
            if one["a"].count() == 2:
                one["b"].append(rows((3, 30)))
            with catalog.transaction(isolation=isolation) as other:
                if other["b"].count() == 2:
                    other["a"].append(rows((3, 30)))
    except CommitConflictError:
        return False
    return True


@pytest.mark.spec("CAT-11")
def test_write_skew_is_seen_if_asked_for(catalog: Catalog, tables: None) -> None:
    assert not skewed(catalog, "serializable")
    assert len(state(catalog)["a"]) + len(state(catalog)["b"]) == 5


@pytest.mark.spec("CAT-10")
def test_snapshots_allow_write_skew(catalog: Catalog, tables: None) -> None:
    assert skewed(catalog, "snapshot")


@pytest.mark.spec("CAT-11")
def test_only_the_rows_that_were_read_count(catalog: Catalog, tables: None) -> None:
    with catalog.transaction(isolation="serializable") as changes:
        changes["a"].count("id < 100")
        changes["b"].append(rows((3, 30)))
        catalog.table("a").append(rows((500, 1)))
        catalog.table("c").append(rows((3, 1)))
    assert len(state(catalog)["b"]) == 3
    with pytest.raises(CommitConflictError), catalog.transaction(isolation="serializable") as tx:  # noqa: PT012 (the block is a transaction)
        tx["a"].count("id < 100")
        tx["b"].append(rows((4, 40)))
        catalog.table("a").append(rows((50, 1)))


def test_a_wrong_isolation_is_refused(catalog: Catalog) -> None:
    with (
        pytest.raises(InvalidInputError, match="isolation"),
        catalog.transaction(
            isolation="none"  # type: ignore[arg-type]  # It is wrong.
        ),
    ):
        pass


@pytest.mark.spec("CAT-12")
def test_a_function_runs_until_it_does_not_conflict(catalog: Catalog, tables: None) -> None:
    calls = 0

    def move(changes: Any) -> int:
        nonlocal calls
        calls += 1
        have = int(changes["a"].to_arrow(where="id = 1")["v"][0].as_py())
        if calls < 3:
            catalog.table("a").update({"v": "v + 1"}, "id = 1")
        changes["a"].update({"v": str(have - 5)}, "id = 1")
        changes["b"].update({"v": "v + 5"}, "id = 1")
        return have

    assert catalog.run(move) == 12
    assert calls == 3
    assert state(catalog)["a"][0] == (1, 7)
    assert state(catalog)["b"][0] == (1, 15)
    calls = -100
    with pytest.raises(CommitConflictError):
        catalog.run(move, attempts=2)
    with pytest.raises(InvalidInputError, match="attempts"):
        catalog.run(move, attempts=0)


def test_a_table_dropped_meanwhile_ends_the_transaction(catalog: Catalog, tables: None) -> None:
    with pytest.raises(TxlogError, match="dropped"), catalog.transaction() as changes:  # noqa: PT012 (the block is a transaction)
        changes["a"].append(rows((3, 30)))
        changes["b"].append(rows((3, 30)))
        catalog.drop("b")
    assert content(catalog.table("a")) == [(1, 10), (2, 20)]
    assert content(catalog.undrop("b")) == [(1, 10), (2, 20)]


def test_unique_keys_hold_in_transactions(catalog: Catalog, tables: None) -> None:
    catalog.table("a").alter.add_constraint({"pk": txlog.unique("id")})
    with pytest.raises(DuplicateKeyError), catalog.transaction() as changes:  # noqa: PT012 (the block is a transaction)
        changes["b"].append(rows((3, 30)))
        changes["a"].append(rows((3, 30)))
        catalog.table("a").append(rows((3, 31)))
    assert state(catalog)["a"] == [(1, 10), (2, 20), (3, 31)]
    assert state(catalog)["b"] == [(1, 10), (2, 20)]


def test_a_transaction_of_nothing_commits_nothing(catalog: Catalog, tables: None) -> None:
    with catalog.transaction() as changes:
        changes["a"].delete("id = 77")
    assert changes.outcomes["a"].version is None
    assert not changes.skipped
    assert catalog.table("a").version == 2


@pytest.mark.slow
@pytest.mark.parametrize(
    ("statement", "table", "expected"),
    [
        ("DELETE FROM a WHERE id = 1", "a", [(2, 20)]),
        ("DELETE FROM a", "a", []),
        ("UPDATE a SET v = v + id WHERE id = 2", "a", [(1, 10), (2, 22)]),
        ("INSERT INTO a VALUES (7, 70), (8, 80)", "a", [(1, 10), (2, 20), (7, 70), (8, 80)]),
        ("INSERT INTO a (v, id) SELECT v, id + 5 FROM b WHERE id = 1", "a",
         [(1, 10), (2, 20), (6, 10)]),
        ("INSERT INTO a (id) VALUES (9)", "a", [(1, 10), (2, 20), (9, None)]),
    ],
)  # fmt: skip
def test_statements_change_tables(
    catalog: Catalog, tables: None, statement: str, table: str, expected: list[Any]
) -> None:
    with catalog.transaction() as changes:
        changes.sql(statement)
        found = changes.sql(f"SELECT id, v FROM {table} ORDER BY id")
        assert [tuple(row.values()) for row in found.to_pylist()] == expected
    after = catalog.table(table).to_arrow().sort_by("id").to_pylist()
    assert [tuple(row.values()) for row in after] == expected


@pytest.mark.slow
@pytest.mark.parametrize(
    "statement",
    ["", "DROP TABLE a", "SELECT 1; SELECT 2", "INSERT INTO a (id) VALUES (1, 2)", "not sql at all",
     "UPDATE a SET v = 1 FROM b", "DELETE FROM a USING b", "SELECT * FROM nothing",
     "DELETE FROM a ORDER BY id LIMIT 1", "UPDATE a SET v = 1 LIMIT 1", "DELETE FROM a AS x",
     "INSERT INTO a BY NAME SELECT 7 AS v, 8 AS id", "INSERT OR REPLACE INTO a VALUES (1, 2)",
     "INSERT INTO a VALUES (1, 2) ON CONFLICT DO NOTHING", "INSERT OVERWRITE a VALUES (1, 2)",
     "DELETE FROM a RETURNING id"],
)  # fmt: skip
def test_other_statements_are_refused(catalog: Catalog, tables: None, statement: str) -> None:
    before = state(catalog)
    with pytest.raises(TxlogError), catalog.transaction() as changes:  # noqa: PT012 (the block is a transaction)
        changes.sql("DELETE FROM c")
        changes.sql(statement)
    assert state(catalog) == before


# Lost answers and failures ---------------------------------------------------------------------


@pytest.mark.parametrize("is_done", [True, False, None], ids=["done", "not done", "unknown"])
@pytest.mark.spec("CAT-6")
def test_a_lost_answer_of_the_database_is_asked_for(
    catalog: Catalog, tables: None, is_done: bool | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = CatalogDatabase.ratify
    lost = StoreError(operation="ask the catalog", path="lake.db", reason="the line was cut")

    def cut(database: CatalogDatabase, *given: Any, **named: Any) -> str:
        monkeypatch.setattr(CatalogDatabase, "ratify", right)
        if is_done:
            assert right(database, *given, **named) == "ratified"
        elif is_done is False:
            named = {**named, "application": None}
            other = catalog.table("a")
            other.append(rows((77, 77)))
        raise UnknownAnswerError(lost)

    monkeypatch.setattr(CatalogDatabase, "ratify", cut)
    before = state(catalog)
    with ExitStack() as stack:
        if is_done is None:
            stack.enter_context(pytest.raises(OutcomeUnknownError, match="look for the trans"))
        with catalog.transaction() as changes:
            changes["a"].append(rows((3, 30)))
            changes["b"].append(rows((3, 30)))
    after = state(catalog)
    if is_done is None:
        assert after == before
        return
    extra = [] if is_done else [(77, 77)]
    assert after["a"] == sorted([*before["a"], (3, 30), *extra])
    assert after["b"] == [*before["b"], (3, 30)]


@pytest.mark.slow
@pytest.mark.parametrize("call", [1, 2, 3, 6])
@pytest.mark.parametrize("operation", ["write_new", "replace", "delete", "info", "read"])
def test_a_store_that_fails_at_any_call_leaves_all_or_nothing(
    catalog: Catalog, tables: None, operation: str, call: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = managed.managed_store
    before = state(catalog)

    def faulty(store: Any, options: Any) -> Any:
        return right(FaultyStore(store, [Fault(operation, call, "not_done")]), options)

    with monkeypatch.context() as patch:
        patch.setattr(managed, "managed_store", faulty)
        with suppress(TxlogError), warnings.catch_warnings(), catalog.transaction() as changes:
            warnings.simplefilter("ignore", txlog.TxlogWarning)
            for name in NAMES:
                changes[name].append(rows((3, 30)))
    after = state(catalog)
    done = {name: [*before[name], (3, 30)] for name in NAMES}
    assert after in (before, done)


# The model -------------------------------------------------------------------------------------


@dataclass
class Running:
    """A transaction of the model: what it changes, and what it saw."""

    changes: Any
    begun: dict[str, dict[int, int]]  # The tables at its beginning, with its own changes.
    steps: list[tuple[str, str, int]] = field(default_factory=list)
    reads: list[tuple[str, int, int]] = field(default_factory=list)  # Table, bound, sum.


def applied(tables: dict[str, dict[int, int]], step: tuple[str, str, int]) -> None:
    kind, name, number = step
    table = tables[name]
    if kind == "append":
        table[number] = number
    elif kind == "delete":
        table.pop(number % 3, None)
    elif number % 3 in table:
        table[number % 3] += number


def run(target: Any, step: tuple[str, str, int]) -> None:
    kind, _, number = step
    if kind == "append":
        target.append(rows((number, number)))
    elif kind == "delete":
        target.delete(f"id = {number % 3}")
    else:
        target.update({"v": f"v + {number}"}, f"id = {number % 3}")


def total(table: dict[int, int], bound: int) -> int:
    return sum(value for key, value in table.items() if key < bound)


KINDS = st.sampled_from(["append", "delete", "update"])
ACTS = st.lists(
    st.tuples(
        st.sampled_from(["begin", "step", "step", "step", "read", "commit", "alone", "abort"]),
        st.integers(0, 2),
        KINDS,
        st.sampled_from(NAMES),
    ),
    min_size=4,
    max_size=24,
)


@pytest.mark.slow
@pytest.mark.spec("CAT-6", "CAT-9", "CAT-10", "CAT-11")
@given(acts=ACTS, isolation=st.sampled_from(["snapshot", "serializable"]))
@settings(max_examples=examples(50))
def test_transactions_equal_a_model_in_which_each_is_atomic(
    tmp_path_factory: pytest.TempPathFactory, acts: list[Any], isolation: Any
) -> None:
    folder = tmp_path_factory.mktemp("model")
    catalog = Catalog(folder / "lake.db", folder / "lake")
    model = {name: {number: number for number in range(3)} for name in NAMES}
    for name in NAMES:
        catalog.create_table(name, SCHEMA, managed="writes").append(rows((0, 0), (1, 1), (2, 2)))
    running: dict[int, Running] = {}
    for number, (act, slot, kind, name) in enumerate(acts, start=100):
        one = running.get(slot)
        step = (kind, name, number)
        if act == "begin" and one is None:
            block = catalog.transaction(isolation=isolation)
            changes = block.__enter__()
            copied = {key: dict(table) for key, table in model.items()}
            running[slot] = Running((block, changes), copied)
        elif act == "alone":
            run(catalog.table(name), step)
            applied(model, step)
        elif one is None:
            continue
        elif act == "step":
            run(one.changes[1][name], step)
            one.steps.append(step)
            applied(one.begun, step)
        elif act == "read":
            bound = 2 if number % 2 else 1000
            found = one.changes[1][name].to_arrow(where=f"id < {bound}")["v"]
            seen = sum(found.to_pylist())
            assert seen == total(one.begun[name], bound)
            if not any(step[1] == name for step in one.steps):
                one.reads.append((name, bound, seen))
        elif act == "abort":
            del running[slot]
            with suppress(ZeroDivisionError):
                one.changes[0].__exit__(ZeroDivisionError, ZeroDivisionError(), None)
        elif act == "commit":
            del running[slot]
            try:
                one.changes[0].__exit__(None, None, None)
            except CommitConflictError:
                continue
            if isolation == "serializable" and one.steps:
                for table, bound, seen in one.reads:
                    assert total(model[table], bound) == seen
            for step in one.steps:
                applied(model, step)
        moment = catalog.snapshot()
        assert {key: dict(content(moment[key])) for key in NAMES} == model
    for one in running.values():
        with suppress(ZeroDivisionError):
            one.changes[0].__exit__(ZeroDivisionError, ZeroDivisionError(), None)


def test_iterating_names_is_not_reading(catalog: Catalog, tables: None) -> None:
    names: Iterator[str] = iter(catalog.snapshot())
    assert sorted(names) == list(NAMES)


@pytest.mark.spec("CON-32")
def test_rows_of_a_quarantine_are_kept_in_a_transaction(
    catalog: Catalog, make: Make, tmp_path: Path
) -> None:
    for name in ("a", "b"):
        make(name, (1, 10)).alter.add_constraint({"small": "v < 50"})
    given: Any = {"on_error": "quarantine", "quarantine": tmp_path / "refused"}
    for _ in range(2):
        with catalog.transaction(txn=("job", 1)) as changes:
            changes["a"].append(rows((2, 20), (3, 99)), **given)
            changes["b"].upsert(rows((1, 77)), on="id", **given)
    assert changes.skipped
    assert content(catalog.table("a")) == [(1, 10), (2, 20)]
    assert content(catalog.table("b")) == [(1, 10)]
    kept = txlog.Table(tmp_path / "refused").to_arrow()["row"].to_pylist()
    assert sorted(json.loads(row)["v"] for row in kept) == [77, 99]


@pytest.mark.spec("CAT-16")
def test_a_quarantine_of_the_catalog_is_part_of_the_transaction(
    catalog: Catalog, tables: None, tmp_path: Path
) -> None:
    catalog.table("a").alter.add_constraint({"positive": "v > 0"})
    bad = rows((3, 30), (4, -1))
    with catalog.transaction() as changes:  # The first one makes the quarantine.
        place = tmp_path / "refused"
        changes["a"].append(bad, on_error="quarantine", quarantine=str(place))
        changes["b"].append(rows((3, 30)))
    catalog.register("refused", place, managed="writes")
    before = catalog.table("refused").version
    with catalog.transaction() as changes:
        refused = catalog.table("refused")
        changes["a"].append(rows((5, 50), (6, -1)), on_error="quarantine", quarantine=refused)
        changes["b"].append(rows((5, 50)))
    assert content(catalog.table("a")) == [(1, 10), (2, 20), (3, 30), (5, 50)]
    assert catalog.table("refused").count() == 2
    assert catalog.table("refused").version == before + 1
    last = max(one.sequence for one in catalog._database.commits_after(0, 1000))
    commits = [one for one in catalog._database.commits_after(0, 1000) if one.sequence == last]
    assert len(commits) == 3
    catalog.table("c").alter.add_constraint({"large": "v > 9"})
    with catalog.transaction() as changes:  # Three writes with one quarantine.
        changes["a"].append(rows((8, 80), (9, -1)), on_error="quarantine", quarantine=refused)
        changes["c"].append(rows((8, 80), (9, 9)), on_error="quarantine", quarantine=refused)
        changes["a"].append(rows((10, -1)), on_error="quarantine", quarantine=refused)
    assert content(catalog.table("c")) == [(1, 10), (2, 20), (8, 80)]
    assert catalog.table("refused").count() == 5
    assert catalog.table("refused").version == before + 2
    with pytest.raises(ZeroDivisionError), catalog.transaction() as changes:  # noqa: PT012 (the block is a transaction)
        changes["a"].append(rows((7, -1)), on_error="quarantine", quarantine=refused)
        raise ZeroDivisionError
    with pytest.raises(CommitConflictError), catalog.transaction() as changes:  # noqa: PT012 (the block is a transaction)
        changes["b"].to_arrow()
        changes["b"].update({"v": "1"}, "id = 1")
        changes["a"].append(rows((7, -1)), on_error="quarantine", quarantine=refused)
        catalog.table("b").update({"v": "2"}, "id = 1")
    assert catalog.table("refused").count() == 5


@pytest.mark.slow
@pytest.mark.parametrize("txn", [None, ("job", 1)])
@pytest.mark.parametrize("moved", [["a"], ["refused"], ["a", "refused", "c"]], ids="-".join)
@pytest.mark.spec("CAT-16")
def test_one_commit_of_a_quarantine_follows_each_lost_race(
    catalog: Catalog, make: Make, tmp_path: Path, moved: list[str], txn: Any
) -> None:
    for name in ("a", "c"):
        make(name, (1, 10)).alter.add_constraint({"positive": "v > 0"})
    given: Any = {"on_error": "quarantine", "quarantine": str(tmp_path / "refused")}
    catalog.table("a").append(rows((2, -2)), **given)
    refused = catalog.register("refused", tmp_path / "refused", managed="writes")
    given["quarantine"] = refused
    with catalog.transaction(txn=txn) as changes:
        changes["a"].append(rows((3, 3), (4, -4)), **given)
        changes["a"].delete("id = 1")
        changes["c"].append(rows((5, -5), (8, 8)), **given)
        changes["c"].upsert(rows((6, -6)), on="id", **given)
        for name in moved:
            other = catalog.table(name)
            if name == "refused":
                catalog.table("c").append(rows((7, -7)), **given)
            else:  # Their changes are decided again.
                other.update({"v": "v + 1"}, "id = 1")
    kept = catalog.table("refused").to_arrow()["row"].to_pylist()
    found = sorted(json.loads(row)["id"] for row in kept)
    assert found == [2, 4, 5, 6, *([7] if "refused" in moved else [])]
    last = max(one.sequence for one in catalog._database.commits_after(0, 1000))
    commits = catalog._database.commits_after(last - 1, 1000)
    assert len(commits) == 3
    assert catalog.table("refused").version in {one.version for one in commits}


@pytest.mark.spec("CAT-11")
def test_changes_of_nothing_are_reads_too(catalog: Catalog, tables: None) -> None:
    def run(one: str, other: str) -> Any:
        block = catalog.transaction(isolation="serializable")
        changes = block.__enter__()
        changes.sql(f"UPDATE {one} SET v = 9 WHERE id = 7")
        changes.sql(f"INSERT INTO {other} VALUES (7, 0)")
        return block

    first, second = run("a", "b"), run("b", "a")
    first.__exit__(None, None, None)
    with pytest.raises(CommitConflictError):
        second.__exit__(None, None, None)


@pytest.mark.spec("CAT-8")
def test_a_transaction_does_not_lower_what_a_table_has_recorded(
    catalog: Catalog, tables: None
) -> None:
    catalog.table("a").append(rows((3, 30)), txn=("job", 20))
    with pytest.raises(InvalidInputError, match="20"), catalog.transaction(txn=("job", 17)) as tx:
        tx["a"].append(rows((4, 40)))
    assert catalog.table("a").append(rows((3, 30)), txn=("job", 20)).skipped


def test_after_the_block_nothing_is_changed(catalog: Catalog, tables: None) -> None:
    with catalog.transaction() as changes:
        table = changes["a"]
    count = files(catalog)
    for act in (
        lambda: table.append(rows((9, 9))),
        lambda: changes["b"],
        lambda: changes.sql("DELETE FROM a"),
    ):
        with pytest.raises(InvalidInputError, match="ended"):
            act()
    assert files(catalog) == count
    with pytest.raises(TxlogError), catalog.transaction(user_metadata=5) as changes:  # type: ignore[arg-type]  # It is wrong.
        changes["a"].append(rows((9, 9)))
    assert files(catalog) == count


@pytest.mark.spec("CAT-8")
def test_a_run_that_lost_to_another_run_of_its_application_is_skipped(
    catalog: Catalog, tables: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = CatalogDatabase.ratify

    def lost(*_: Any, **__: Any) -> str:
        monkeypatch.setattr(CatalogDatabase, "ratify", right)
        with catalog.transaction(txn=("job", 1)) as quick:  # After the question, before the look.
            quick["a"].update({"v": "v + 1"}, "id = 1")
        return "lost"

    monkeypatch.setattr(CatalogDatabase, "ratify", lost)
    with catalog.transaction(txn=("job", 1)) as slow:
        slow["a"].update({"v": "v + 1"}, "id = 1")
    assert slow.skipped
    assert state(catalog)["a"] == [(1, 11), (2, 20)]


@pytest.mark.spec("CAT-9", "GUA-13")
@pytest.mark.skipif(os.name == "nt", reason="nobody has precedence there")
def test_a_transaction_gets_precedence_in_the_tables_in_which_it_loses(
    catalog: Catalog, tables: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beside writers whose commits take less time than its own, it would never end."""
    stage_all, others = group.stage_all, list[threading.Thread]()

    def late(commits: Any) -> Any:
        name = ("a", "c")[len(others) % 2]  # Both lose, each several times.
        other = threading.Thread(target=catalog.table(name).append, args=(rows((9, 9)),))
        others.append(other)
        other.start()
        other.join(0.5 if len(others) > 6 else None)
        return stage_all(commits)

    monkeypatch.setattr(group, "stage_all", late)
    with catalog.transaction() as changes:
        changes["c"].update({"v": "v + 1"}, "id = 1")
        changes["a"].delete("id = 1")
    assert len(others) == 7
    others[-1].join()
    assert state(catalog) == {
        "a": [(2, 20), *[(9, 9)] * 4],
        "b": [(1, 10), (2, 20)],
        "c": [(1, 11), (2, 20), *[(9, 9)] * 3],
    }


@pytest.mark.spec("GUA-13")
@pytest.mark.parametrize("branch", [None, "dev"])
@pytest.mark.skipif(os.name == "nt", reason="nobody has precedence there")
def test_writers_of_managed_tables_and_of_branches_give_way_to_who_has_precedence(
    catalog: Catalog, tables: None, branch: str | None
) -> None:
    catalog.branches.create("dev")
    table = catalog.table("a", branch=branch)
    other = threading.Thread(target=catalog.table("a", branch=branch).append, args=(rows((9, 9)),))
    with table._context.store.precedence():
        other.start()
        other.join(0.5)
        assert other.is_alive()
        table.append(rows((3, 30)))
    other.join()
    assert content(table.refresh()) == [(1, 10), (2, 20), (3, 30), (9, 9)]
