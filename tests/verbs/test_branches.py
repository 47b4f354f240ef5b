"""Branches: create, write, publish and discard, and what conflicts."""

import json
import os
import pickle
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from threading import Thread
from typing import Any

import pyarrow as pa
import pytest

import txlog
from tests.commit.conftest import FakeEffects
from txlog.base.errors import (
    AlreadyExistsError,
    CommitConflictError,
    InvalidInputError,
    NotFoundError,
    RetriesExhaustedError,
    UnsupportedFeatureError,
)
from txlog.commit import loop
from txlog.commit.operation import Operation, execute
from txlog.extend import context_of
from txlog.snapshot.branches import REGISTRY, registry_of, require_branch
from txlog.snapshot.live_files import load_files
from txlog.snapshot.load import load_snapshot
from txlog.store.branches import BranchStore
from txlog.verbs.branches import CreateBranch, DiscardBranch, PublishBranch
from txlog.verbs.published import net_of


def xs(*values: int) -> pa.Table:
    return pa.table({"x": pa.array(values, pa.int64())})


def left(table: txlog.Table) -> list[int]:
    return sorted(table.to_arrow()["x"].to_pylist())


def made(root: Path, **properties: str) -> txlog.Table:
    table = txlog.write(
        root, xs(1, 2, 3), properties={k.replace("_", "."): v for k, v in properties.items()}
    )
    table.append(xs(4, 5, 6))
    return table


def opened(table: txlog.Table, name: str = "b", **arguments: Any) -> txlog.Table:
    return txlog.Table(table.uri, branch=name, **arguments)


def branched(root: Path, **properties: str) -> tuple[txlog.Table, txlog.Table]:
    """Return a table, and a branch of its latest version."""
    table = made(root, **properties)
    table.branches.create("b")
    return table, opened(table)


def commits(table: txlog.Table, version: int) -> list[dict[str, Any]]:
    text = context_of(table).store.read(f"_delta_log/{version:020d}.json")
    return [json.loads(line) for line in text.splitlines()]


@pytest.mark.spec("BRA-1")
def test_a_branch_has_its_own_versions_and_shares_the_files(tmp_path: Path) -> None:
    table = made(tmp_path / "t")
    before = {path.name for path in (tmp_path / "t").glob("*.parquet")}
    table.branches.create("b")
    assert {path.name for path in (tmp_path / "t").glob("*.parquet")} == before
    branch = opened(table)
    table.append(xs(7))
    branch.append(xs(10))
    branch.delete("x = 1")
    assert left(branch) == [2, 3, 4, 5, 6, 10]
    assert left(txlog.Table(table.uri)) == [1, 2, 3, 4, 5, 6, 7]
    assert (branch.version, branch.branch, table.branch) == (3, "b", None)
    assert left(opened(table, version=1)) == [1, 2, 3, 4, 5, 6]
    assert left(opened(table, version=0)) == [1, 2, 3]
    assert left(opened(table, version=2)) == [1, 2, 3, 4, 5, 6, 10]
    assert [one["version"] for one in branch.history()] == [3, 2, 1, 0]
    assert repr(branch).endswith("version=3, branch='b')")


@pytest.mark.spec("BRA-2")
def test_options_choose_a_branch_at_every_door(tmp_path: Path) -> None:
    table = made(tmp_path / "t")
    table.branches.create("b")
    by_name = {"txlog.branch": "b"}
    txlog.write(table.uri, xs(10), mode="append", storage_options=by_name)
    branch = txlog.Table(table.uri, storage_options=by_name)
    again = pickle.loads(pickle.dumps(branch))
    options = context_of(branch).store.options
    assert left(branch) == left(again) == left(txlog.Table(table.uri, storage_options=options))
    table.branches.discard("b")
    table.branches.create("b")  # The name means another branch now, but not for open tables.
    assert left(opened(table)) == [1, 2, 3, 4, 5, 6]
    assert left(txlog.Table(table.uri, storage_options=options)) == [1, 2, 3, 4, 5, 6, 10]
    with pytest.raises(InvalidInputError, match="another branch"):
        txlog.Table(table.uri, branch="c", storage_options=by_name)


@pytest.mark.spec("BRA-10")
def test_the_registry_is_as_the_proposal_says(tmp_path: Path) -> None:
    table = made(tmp_path / "t")
    table.branches.create("b", version=0)
    domain = table.snapshot.controls.domains[REGISTRY]
    (entry,) = json.loads(domain.configuration)["branches"]
    assert entry.pop("branchId").count("-") == 4
    assert entry == {"name": "b", "baseVersion": 0, "createdVersion": 2, "status": "open"}
    features = table.protocol.writer_features or []
    assert {"domainMetadata", "tableBranching-dev"} <= set(features)
    assert table.protocol.min_reader_version == 1
    table.branches.publish("b")
    (entry,) = json.loads(table.snapshot.controls.domains[REGISTRY].configuration)["branches"]
    assert (entry["status"], entry["publishedVersion"]) == ("published", 3)


@pytest.mark.spec("BRA-10")
def test_the_name_of_the_accepted_feature_is_refused(tmp_path: Path) -> None:
    table = made(tmp_path / "t")
    with pytest.raises(InvalidInputError, match="cannot write"):
        table.alter.add_features("tableBranching")


@pytest.mark.spec("BRA-11")
@pytest.mark.parametrize(
    "name", ["", " a", "12", "main", "Main", "a@b", "x" * 201, "a\nb", "\ud800"]
)
def test_names_that_no_branch_can_have(tmp_path: Path, name: str) -> None:
    table = made(tmp_path / "t")
    with pytest.raises(InvalidInputError):
        table.branches.create(name)
    with pytest.raises(InvalidInputError):
        txlog.Table(table.uri, branch=name)
    assert table.version == 1


@pytest.mark.spec("BRA-11")
def test_names_that_differ_in_case_are_refused_until_the_branch_is_closed(tmp_path: Path) -> None:
    table = made(tmp_path / "t")
    table.branches.create("Audit")
    with pytest.raises(AlreadyExistsError, match="'Audit'"):
        table.branches.create("audit")
    with pytest.raises(NotFoundError, match="'Audit'"):
        txlog.Table(table.uri, branch="audit")
    table.branches.discard("Audit")
    table.branches.create("audit")
    with pytest.raises(NotFoundError, match="discarded"):
        txlog.Table(table.uri, branch="Audit")


@pytest.mark.spec("BRA-12")
def test_closed_branches_are_forgotten_after_twenty_others(tmp_path: Path) -> None:
    table = made(tmp_path / "t")
    table.branches.create("stays")
    for number in range(23):
        table.branches.create(f"b{number}")
        table.branches.discard(f"b{number}")
    listed = table.branches.list().to_pylist()
    assert [one["name"] for one in listed if one["status"] == "open"] == ["stays"]
    closed = {one["name"] for one in listed if one["status"] == "discarded"}
    assert closed == {f"b{number}" for number in range(3, 23)}


@pytest.mark.spec("BRA-20")
def test_a_publish_is_one_commit(tmp_path: Path) -> None:
    table, branch = branched(tmp_path / "t")
    branch.append(xs(10))
    branch.append(xs(11))
    branch.delete("x IN (1, 11)")
    expected = left(branch)
    outcome = table.branches.publish("b")
    assert outcome.version == table.version == 3
    assert left(table) == left(txlog.Table(table.uri)) == expected == [2, 3, 4, 5, 6, 10]
    info = commits(table, 3)[0]["commitInfo"]
    assert info["operation"] == "PUBLISH BRANCH"
    assert json.loads(info["operationParameters"]["branchVersion"]) == 4
    with pytest.raises(NotFoundError, match="published as version 3"):
        table.branches.publish("b")


def test_a_branch_without_commits_is_published(tmp_path: Path) -> None:
    table = made(tmp_path / "t")
    table.branches.create("b")
    table.branches.publish("b")
    assert left(table) == [1, 2, 3, 4, 5, 6]
    assert table.branches.list()["status"].to_pylist() == ["published"]


Change = Callable[[txlog.Table], object]

BOTH: dict[str, tuple[Change, Change, list[int] | None]] = {
    "appends": (lambda b: b.append(xs(10)), lambda t: t.append(xs(20)), [*range(1, 7), 10, 20]),
    "append, delete": (
        lambda b: b.append(xs(10)), lambda t: t.delete("x = 1"), [*range(2, 7), 10]
    ),
    "append, compact": (
        lambda b: b.append(xs(10)), lambda t: t.optimize.compact(), [*range(1, 7), 10]
    ),
    "delete, append of other rows": (
        lambda b: b.delete("x = 1"), lambda t: t.append(xs(20)), [*range(2, 7), 20]
    ),
    "delete, append of the same rows": (
        lambda b: b.delete("x = 1"), lambda t: t.append(xs(1)), None
    ),
    "update, append of other rows": (
        lambda b: b.update({"x": "x + 100"}, "x = 1"), lambda t: t.append(xs(20)),
        [*range(2, 7), 20, 101],
    ),
    "deletes, append of the same rows": (
        lambda b: (b.delete("x = 1"), b.delete("x = 2")), lambda t: t.append(xs(2)), None
    ),
    "deletes, appends": (
        lambda b: (b.delete("x = 1"), b.append(xs(10))),
        lambda t: (t.delete("x = 2"), t.append(xs(20))),
        [*range(3, 7), 10, 20],
    ),
    "merge, append": (
        lambda b: b.upsert(xs(1), on="x"), lambda t: t.append(xs(20)), None
    ),
    "deletes of one file": (
        lambda b: b.delete("x = 1"), lambda t: t.delete("x = 2"), [3, 4, 5, 6]
    ),
    "deletes of the same row": (lambda b: b.delete("x <= 2"), lambda t: t.delete("x = 2"), None),
    "deletes of all rows of a file": (
        lambda b: b.delete("x <= 2"), lambda t: t.delete("x = 3"), None
    ),
    "updates": (
        lambda b: b.update({"x": "x + 100"}, "x = 1"),
        lambda t: t.update({"x": "x + 200"}, "x = 5"), [2, 3, 4, 6, 101, 205],
    ),
    "updates of one file": (
        lambda b: b.update({"x": "x + 100"}, "x = 1"),
        lambda t: t.update({"x": "x + 200"}, "x = 2"), [3, 4, 5, 6, 101, 202],
    ),
    "updates of the same row": (
        lambda b: b.update({"x": "x + 100"}, "x = 1"),
        lambda t: t.update({"x": "x + 200"}, "x = 1"), None,
    ),
    "updates of all rows": (
        lambda b: b.update({"x": "x + 100"}), lambda t: t.append(xs(20)), None
    ),
    "compacts": (lambda b: b.optimize.compact(), lambda t: t.optimize.compact(), None),
    "compact, append": (
        lambda b: b.optimize.compact(), lambda t: t.append(xs(20)), [*range(1, 7), 20]
    ),
    "overwrite": (lambda b: b.overwrite(xs(0)), lambda t: t.append(xs(20)), None),
    "constraint, append": (
        lambda b: b.alter.add_constraint({"c": "x < 20"}), lambda t: t.append(xs(20)), None
    ),
    "append, constraint": (
        lambda b: b.append(xs(20)), lambda t: t.alter.add_constraint({"c": "x < 20"}), None
    ),
    "properties": (
        lambda b: b.alter.set_properties({"b": "1"}),
        lambda t: t.alter.set_properties({"t": "1"}), [*range(1, 7)],
    ),
    "the same property": (
        lambda b: b.alter.set_properties({"b": "1"}),
        lambda t: t.alter.set_properties({"b": "2"}), None,
    ),
    "columns": (
        lambda b: b.alter.add_columns({"y": pa.int64()}),
        lambda t: t.alter.add_columns({"z": pa.int64()}), None,
    ),
    "append, column": (
        lambda b: b.append(xs(10)), lambda t: t.alter.add_columns({"z": pa.int64()}),
        [*range(1, 7), 10],
    ),
    "column, append": (
        lambda b: b.alter.add_columns({"y": pa.int64()}), lambda t: t.append(xs(20)),
        [*range(1, 7), 20],
    ),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.spec("BRA-25", "BRA-26", "BRA-27", "BRA-32")
@pytest.mark.parametrize("case", BOTH)
def test_changes_on_both_sides(tmp_path: Path, case: str) -> None:
    on_branch, on_main, expected = BOTH[case]
    table, branch = branched(tmp_path / "t")
    on_branch(branch)
    on_main(table)
    main, own = left(txlog.Table(table.uri)), left(branch)
    if expected is not None:
        table.branches.publish("b")
        assert left(table) == left(txlog.Table(table.uri)) == expected
        return
    version = table.version
    files = sorted(str(path) for path in tmp_path.rglob("*") if path.is_file())
    with pytest.raises(CommitConflictError, match="'b'"):
        table.branches.publish("b")
    assert txlog.Table(table.uri).version == version  # Nothing changed.
    assert sorted(str(path) for path in tmp_path.rglob("*") if path.is_file()) == files
    assert (left(txlog.Table(table.uri)), left(opened(table))) == (main, own)
    branch.append(xs(15))  # The branch is still open.
    assert left(opened(table)) == sorted([*own, 15])
    table.branches.discard("b")
    assert left(txlog.Table(table.uri)) == main


@pytest.mark.spec("BRA-15")
@pytest.mark.parametrize("how", ["publish", "discard"])
@pytest.mark.parametrize("written", [False, True])
def test_nothing_is_written_to_a_closed_branch(tmp_path: Path, how: str, written: bool) -> None:
    table = made(tmp_path / "t")
    table.branches.create("b")
    branch, late = opened(table), opened(table)
    if written:
        branch.append(xs(10))
    getattr(table.branches, how)("b")
    main = left(table)
    for one in (branch, late):
        with pytest.raises(CommitConflictError):
            one.append(xs(11))
        with pytest.raises(CommitConflictError):
            one.delete("x = 1")
    assert left(txlog.Table(table.uri)) == main


@pytest.mark.spec("BRA-15")
@pytest.mark.parametrize("how", ["publish", "discard"])
@pytest.mark.parametrize("rows", [1, 2, 100])
def test_a_commit_is_either_published_or_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rows: int, how: str
) -> None:
    """A writer commits each time between the look of the publisher at the branch and its commit."""
    table, branch = branched(tmp_path / "t")
    branch.append(xs(10))
    operation = PublishBranch if how == "publish" else DiscardBranch
    close = operation._close
    late = iter(range(11, 11 + rows))
    told = [10]

    def between(self: Any, *arguments: Any, exact: bool) -> int | None:
        value = next(late, None)
        if value is not None:
            with suppress(CommitConflictError):
                branch.append(xs(value))
                told.append(value)
        return close(self, *arguments, exact=exact)

    monkeypatch.setattr(operation, "_close", between)
    getattr(table.branches, how)("b")
    main = [1, 2, 3, 4, 5, 6]
    assert left(table) == ([*main, *told] if how == "publish" else main)
    assert len(told) < 5
    with pytest.raises(CommitConflictError):
        branch.append(xs(13))


@pytest.mark.spec("BRA-15", "GUA-13")
@pytest.mark.parametrize("operation", [PublishBranch, DiscardBranch])
@pytest.mark.parametrize("how", ["rows", "properties"])
def test_a_branch_whose_writers_always_win_stays_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, operation: Callable[[str], Operation], how: str
) -> None:
    table, branch = branched(tmp_path / "t")
    effects, put, tries = FakeEffects(), loop.put_commit, list[int]()

    def late(*args: Any, **kwargs: Any) -> Any:
        if args[5] is effects:
            assert len(tries) < 20
            tries.append(args[2])
            if how == "rows":
                branch.append(xs(args[2]))
            else:
                branch.alter.set_properties({"a.b": str(args[2])})
            effects.clock[0] += 50.0
        return put(*args, **kwargs)

    monkeypatch.setattr(loop, "put_commit", late)
    with pytest.raises(RetriesExhaustedError):
        execute(operation("b"), replace(context_of(table), effects=effects), table.snapshot)
    told = tries if how == "rows" else []
    assert left(branch) == sorted([1, 2, 3, 4, 5, 6, *told])
    assert left(table) == [1, 2, 3, 4, 5, 6]


@pytest.mark.spec("GUA-13")
@pytest.mark.skipif(os.name == "nt", reason="nobody waits for a turn there")
@pytest.mark.parametrize("on", ["table", "branch"])
def test_writers_of_a_branch_give_way_to_who_has_precedence(tmp_path: Path, on: str) -> None:
    table, branch = branched(tmp_path / "t")
    store = context_of(opened(table) if on == "table" else branch).store
    other = Thread(target=branch.append, args=(xs(10),))
    with store.precedence():
        other.start()
        other.join(0.2)
        assert other.is_alive()
        opened(table).append(xs(11))  # Its own is not waited for.
        assert left(opened(table)) == [1, 2, 3, 4, 5, 6, 11]
    other.join()
    assert left(opened(table)) == [1, 2, 3, 4, 5, 6, 10, 11]


@pytest.mark.spec("BRA-15")
def test_a_version_that_others_overtake_is_not_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, branch = branched(tmp_path / "t")
    branch.append(xs(10))
    tip = branch.version
    close = PublishBranch._close

    def between(self: PublishBranch, *arguments: Any, exact: bool) -> int | None:
        branch.append(xs(11))
        return close(self, *arguments, exact=exact)

    monkeypatch.setattr(PublishBranch, "_close", between)
    with pytest.raises(CommitConflictError, match=f"version {tip} of the branch 'b' was to be"):
        execute(PublishBranch("b", tip=tip), context_of(table), table.snapshot)
    branch.append(xs(12))
    history = [one["operation"] for one in branch.history()]
    assert "CLOSE BRANCH" not in history


@pytest.mark.spec("BRA-16")
def test_a_late_conflict_opens_the_branch_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, branch = branched(tmp_path / "t")
    branch.delete("x = 1")
    close = PublishBranch._close

    def after(self: PublishBranch, *arguments: Any, exact: bool) -> int | None:
        done = close(self, *arguments, exact=exact)
        if table.version == 2:
            table.delete("x = 1")
        return done

    monkeypatch.setattr(PublishBranch, "_close", after)
    with pytest.raises(CommitConflictError, match="same rows"):
        txlog.Table(table.uri).branches.publish("b")
    monkeypatch.undo()
    opened(table).append(xs(10))
    branch.append(xs(11))
    assert left(opened(table)) == [2, 3, 4, 5, 6, 10, 11]
    (entry,) = registry_of(load_snapshot(context_of(table).store)).open
    assert entry.generation == 1


@pytest.mark.spec("BRA-16")
@pytest.mark.parametrize("after", ["publish", "discard"])
def test_a_publish_that_died_is_finished(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after: str
) -> None:
    table, branch = branched(tmp_path / "t")
    branch.append(xs(10))
    (entry,) = registry_of(load_snapshot(context_of(table).store)).open
    dead = PublishBranch("b")
    dead.context = context_of(table)
    dead.intent(load_snapshot(dead.context.store))  # The process dies here.
    with pytest.raises(CommitConflictError, match="not finished"):
        branch.append(xs(11))
    getattr(table.branches, after)("b")
    assert left(txlog.Table(table.uri)) == [*range(1, 7), *([10] if after == "publish" else [])]
    assert entry.is_open


@pytest.mark.spec("BRA-16")
def test_who_gave_up_does_not_open_what_another_publishes(tmp_path: Path) -> None:
    table, branch = branched(tmp_path / "t")
    branch.append(xs(10))
    one, other = PublishBranch("b"), PublishBranch("b")
    for operation in (one, other):
        operation.context = context_of(table)
    one.intent(load_snapshot(one.context.store))
    base = load_snapshot(other.context.store)
    other.intent(base)
    one.discard()  # It opens the branch, so the other one must begin again.
    branch.append(xs(11))
    view = BranchStore.of(context_of(table).store, registry_of(base).open[0].chain)
    assert load_snapshot(view).version == branch.version
    table.branches.publish("b")
    assert left(table) == [*range(1, 7), 10, 11]


@pytest.mark.spec("BRA-15", "GUA-4")
@pytest.mark.parametrize("operation", [PublishBranch, DiscardBranch])
def test_a_log_that_was_closed_before_is_not_taken_for_that_of_a_new_branch(
    tmp_path: Path, operation: Any
) -> None:
    """A publisher that lost the name to a new branch found it empty, and rows were written then."""
    table = made(tmp_path / "t")
    closing = operation("b")
    closing.context = context_of(table)
    table.branches.create("b")
    old = require_branch(table.refresh().snapshot, "b")
    old_tip = load_snapshot(BranchStore.of(closing.context.store, old.chain))
    assert closing._close(old, old_tip, exact=True) == old_tip.version
    table.branches.publish("b")
    table.branches.create("b")
    new = require_branch(table.refresh().snapshot, "b")
    tip = load_snapshot(BranchStore.of(closing.context.store, new.chain))
    txlog.Table(table.uri, branch="b").append(xs(4))
    assert closing._close(new, tip, exact=True) is None


@pytest.mark.spec("BRA-17")
def test_changes_of_the_registry_follow_each_other(tmp_path: Path) -> None:
    table = made(tmp_path / "t")
    base = table.snapshot
    context = context_of(table)
    for number in range(3):  # Each writer saw the table without the others' branches.
        execute(CreateBranch(f"b{number}"), context, base)
    latest = load_snapshot(context.store)
    assert [one.name for one in registry_of(latest).open] == ["b0", "b1", "b2"]
    assert [one.created_version for one in registry_of(latest).open] == [2, 3, 4]
    with pytest.raises(AlreadyExistsError):
        execute(CreateBranch("B1"), context, base)
    for number in range(3):
        opened(table, f"b{number}").append(xs(10 + number))
    execute(PublishBranch("b0"), context, latest)
    execute(PublishBranch("b2"), context, latest)
    execute(DiscardBranch("b1"), context, latest)
    assert left(txlog.Table(table.uri)) == [*range(1, 7), 10, 12]


@pytest.mark.spec("BRA-3")
def test_what_only_the_table_itself_can_do(tmp_path: Path) -> None:
    _, branch = branched(tmp_path / "t")
    calls: list[Callable[[], object]] = [
        lambda: branch.vacuum(),
        lambda: branch.maintenance.expire(),
        lambda: branch.pins.create("p"),
        lambda: branch.branches.create("c"),
        lambda: branch.branches.list(),
        lambda: branch.branches.publish("b"),
        lambda: branch.branches.discard("b"),
        lambda: branch.branches.diff("b"),
        lambda: branch.clone(tmp_path / "c", shallow=True, register=True),
        lambda: branch.maintenance.repair(dry_run=False),
        lambda: branch.alter.drop_feature("tableBranching-dev"),
    ]
    for call in calls:
        with pytest.raises(UnsupportedFeatureError, match="without branch="):
            call()


IDS: dict[str, Change] = {
    "property": lambda b: b.alter.set_properties({"delta.enableRowTracking": "true"}),
    "feature": lambda b: b.alter.add_features("rowTracking"),
}


@pytest.mark.spec("BRA-22")
@pytest.mark.parametrize("by", IDS)
def test_only_the_table_itself_begins_to_give_row_ids(tmp_path: Path, by: str) -> None:
    """Files of the base get ids, and a difference by path and vector does not have these files."""
    table = made(tmp_path / "t")
    table.branches.create("b")
    IDS[by](opened(table))
    with pytest.raises(UnsupportedFeatureError, match="began to give ids"):
        table.branches.publish("b")
    opened(table).append(xs(10))  # It is open again.
    table.refresh().append(xs(20))
    assert left(table) == [*range(1, 7), 20]


@pytest.mark.spec("BRA-22")
def test_files_with_other_ids_are_seen() -> None:
    table = txlog.write(
        "memory://branches-net", xs(1, 2), properties={"delta.enableRowTracking": "true"}
    )
    context = context_of(table)
    files = load_files(context.store, load_snapshot(context.store)).live
    assert not net_of(files, files).renumbered
    for name in ("base_row_id", "default_row_commit_version"):
        place = files.schema.get_field_index(name)
        for value in (None, 77):
            others = pa.array([value] * files.num_rows, files.schema.field(place).type)
            assert net_of(files, files.set_column(place, name, others)).renumbered
            assert net_of(files.set_column(place, name, others), files).renumbered


@pytest.mark.spec("BRA-22")
def test_rows_that_a_vector_moved_keep_no_ids_of_the_branch(tmp_path: Path) -> None:
    table, branch = branched(
        tmp_path / "t", delta_enableRowTracking="true", delta_enableDeletionVectors="true"
    )
    branch.append(xs(10, 11))
    branch.update({"x": "x + 100"}, "x = 10")  # By a vector of the file that the branch added.
    table.append(xs(20, 21))
    with pytest.raises(UnsupportedFeatureError, match="moved"):
        table.branches.publish("b")
    table.branches.create("c")
    kept = opened(table, "c")
    kept.append(xs(30, 31))
    kept.delete("x = 30")
    kept.update({"x": "x + 100"}, "x = 1")
    table.branches.publish("c")
    ids = table.to_arrow(columns=["x", "_rowid"])["_rowid"].to_pylist()
    assert len(set(ids)) == len(ids) == table.count() == 9


@pytest.mark.spec("BRA-24")
@pytest.mark.parametrize(("by_branch", "by_publish"), [(3, 7), (7, 3)])
def test_a_publish_records_an_application_once(
    tmp_path: Path, by_branch: int, by_publish: int
) -> None:
    table = made(tmp_path / "t")
    table.branches.create("b")
    opened(table).append(xs(10), txn=("job", by_branch))
    table.branches.publish("b", txn=("job", by_publish))
    records = [one["txn"] for one in commits(table, table.version) if "txn" in one]
    assert [one["version"] for one in records if one["appId"] == "job"] == [7]
    assert left(txlog.Table(table.uri)) == [*range(1, 7), 10]


@pytest.mark.spec("BRA-16")
def test_a_publish_that_died_and_now_conflicts_is_given_up(tmp_path: Path) -> None:
    table, branch = branched(tmp_path / "t")
    branch.update({"x": "x + 100"}, "x = 1")
    dead = PublishBranch("b")
    dead.context = context_of(table)
    dead.intent(load_snapshot(dead.context.store))  # The process dies here.
    table.update({"x": "x + 200"}, "x = 1")
    with pytest.raises(CommitConflictError):
        table.branches.publish("b")
    branch.append(xs(11))
    assert 11 in left(opened(table))
