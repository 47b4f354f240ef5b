"""Catalogs whose database was restored from an older copy."""

import os
import shutil
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.catalog.conftest import SCHEMA, Make, content, rows
from tests.examples import examples
from txlog import Catalog, Table
from txlog.base.errors import InvalidInputError, LogCorruptError, StoreError
from txlog.store.managed import ManagedStore

NAMES = ("a", "b", "c")


def restored(folder: Path) -> Catalog:
    shutil.copy(folder / "old.db", folder / "lake.db")
    return Catalog(folder / "lake.db")


def saved(folder: Path) -> None:
    shutil.copy(folder / "lake.db", folder / "old.db")


class Unpublished:
    """While it is entered, no commit of some tables is published."""

    def __init__(self, *tables: Table) -> None:
        self._ids = {table.snapshot.metadata.id for table in tables}
        self._patch = pytest.MonkeyPatch()

    def __enter__(self) -> None:
        right = ManagedStore.publish

        def publish(store: ManagedStore, staged: Any) -> None:
            if store.table_id in self._ids:
                raise StoreError(operation="write", path="x", reason="the process ended")
            right(store, staged)

        self._patch.setattr(ManagedStore, "publish", publish)

    def __exit__(self, *_: object) -> None:
        self._patch.undo()


def both(catalog: Catalog, number: int, names: tuple[str, ...] = ("a", "b")) -> None:
    with catalog.transaction() as changes:
        for name in names:
            changes[name].append(rows((number, number)))


@pytest.fixture
def tables(make: Make, tmp_path: Path) -> None:
    for name in NAMES:
        make(name, (1, 1))
    saved(tmp_path)


@pytest.mark.parametrize("asked", ["a", "b"])
@pytest.mark.parametrize("unpublished", ["a", "b"])
@pytest.mark.spec("CAT-5")
def test_the_staged_half_of_a_transaction_is_accepted_with_the_other(
    catalog: Catalog, tables: None, tmp_path: Path, unpublished: str, asked: str
) -> None:
    with Unpublished(catalog.table(unpublished)):
        both(catalog, 2)
    again = restored(tmp_path)
    again.repair(asked)
    moment = again.snapshot()
    assert [content(moment[name]) for name in ("a", "b")] == [[(1, 1), (2, 2)]] * 2
    both(again, 3, NAMES)
    assert content(again.table("b")) == [(1, 1), (2, 2), (3, 3)]


@pytest.mark.spec("CAT-5")
def test_transactions_are_followed_from_table_to_table(
    catalog: Catalog, tables: None, tmp_path: Path
) -> None:
    both(catalog, 2, ("b", "c"))
    with Unpublished(catalog.table("c")):
        both(catalog, 3, ("c", "b"))
        both(catalog, 4, ("a", "b"))
    again = restored(tmp_path)
    again.repair("a")
    moment = again.snapshot()
    assert content(moment["a"]) == [(1, 1), (4, 4)]
    assert content(moment["b"]) == [(1, 1), (2, 2), (3, 3), (4, 4)]
    assert content(moment["c"]) == [(1, 1), (2, 2), (3, 3)]


@pytest.mark.spec("CAT-5")
def test_a_missing_half_is_named_and_nothing_is_accepted(
    catalog: Catalog, tables: None, tmp_path: Path
) -> None:
    with Unpublished(catalog.table("b")):
        both(catalog, 2)
    log = Path(catalog.location_of("b")) / "_delta_log"
    shutil.rmtree(log / "_staged_commits")
    again = restored(tmp_path)
    before = again.tables()
    for _ in range(2):
        with pytest.raises(LogCorruptError, match="version 3 of b is part of the transaction"):
            again.repair("a")
    assert again.tables() == before
    assert content(again.table("b")) == [(1, 1)]


@pytest.mark.spec("CAT-5")
def test_a_version_that_another_commit_took_is_named(
    catalog: Catalog, tables: None, tmp_path: Path
) -> None:
    with Unpublished(catalog.table("b")):
        both(catalog, 2)
    again = restored(tmp_path)
    again.table("b").append(rows((9, 9)))
    with pytest.raises(LogCorruptError, match="another commit has its version"):
        again.repair("a")


@pytest.mark.spec("CAT-5")
def test_a_table_that_the_older_copy_lacks_is_registered_with_its_transactions(
    catalog: Catalog, tables: None, make: Make, tmp_path: Path
) -> None:
    late = make("late", (1, 1))
    with Unpublished(late):
        both(catalog, 2, ("a", "late"))
    again = restored(tmp_path)
    assert content(again.repair("a")) == [(1, 1), (2, 2)]
    assert content(again.register("late", late.uri)) == [(1, 1), (2, 2)]


@pytest.mark.spec("CAT-5")
def test_a_release_after_the_older_copy_is_found(
    catalog: Catalog, tables: None, tmp_path: Path
) -> None:
    catalog.table("a").append(rows((2, 2)))
    catalog.release("a")
    again = restored(tmp_path)
    assert content(again.repair("a")) == [(1, 1), (2, 2)]
    again.table("a").append(rows((3, 3)))
    assert again.tables()["managed"].to_pylist() == [None, "writes", "writes"]


@pytest.mark.parametrize("unpublished", ["a", "b"])
@pytest.mark.spec("CAT-5", "CAT-8")
def test_a_repair_remembers_the_versions_of_applications(
    catalog: Catalog, tables: None, tmp_path: Path, unpublished: str
) -> None:
    def job(catalog: Catalog, version: int) -> bool:
        with catalog.transaction(txn=("job", version)) as changes:
            for name in ("a", "b"):
                changes[name].append(rows((100 + version, 1)))
        return changes.skipped

    assert not job(catalog, 1)
    with Unpublished(catalog.table(unpublished)):
        assert not job(catalog, 2)
    again = restored(tmp_path)
    again.repair("a")
    assert [job(again, version) for version in (1, 2, 3)] == [True, True, False]
    assert content(again.table("b")) == [(1, 1), (101, 1), (102, 1), (103, 1)]


@pytest.mark.spec("CAT-5", "CAT-7", "CAT-8")
def test_a_repair_remembers_the_versions_of_transactions_over_one_table(
    catalog: Catalog, tables: None, tmp_path: Path
) -> None:
    """A write of the table alone, whose application the catalog never knew, stays one."""

    def job(catalog: Catalog, version: int) -> bool:
        with catalog.transaction(txn=("job", version)) as changes:
            changes["a"].append(rows((100 + version, 1)))
        return changes.skipped

    assert [job(catalog, version) for version in (1, 2)] == [False, False]
    catalog.table("a").append(rows((7, 7)), txn=("other", 1))
    again = restored(tmp_path)
    again.repair("a")
    assert [job(again, version) for version in (1, 2, 3)] == [True, True, False]
    assert content(again.table("a")) == [(1, 1), (7, 7), (101, 1), (102, 1), (103, 1)]
    with (
        pytest.raises(InvalidInputError, match="outside of transactions"),
        again.transaction(txn=("other", 1)) as changes,
    ):
        changes["a"].append(rows((8, 8)))


@pytest.mark.spec("CAT-5", "CAT-17")
def test_a_clean_up_before_the_repair_leaves_what_it_needs(
    catalog: Catalog, tables: None, tmp_path: Path
) -> None:
    with Unpublished(catalog.table("b")):
        both(catalog, 2)
    again = restored(tmp_path)
    table = again.table("b")
    folder = Path(table.uri) / "_delta_log" / "_staged_commits"
    (staged,) = folder.iterdir()
    week_ago = time.time() - 7 * 24 * 60 * 60
    os.utime(staged, (week_ago, week_ago))
    table.maintenance.expire(retention_hours=0, dry_run=False)
    again.repair("a")
    assert content(again.table("b")) == [(1, 1), (2, 2)]
    lost = folder / f"{9:020d}.of-a-writer-that-failed.json"
    lost.write_text("")
    os.utime(lost, (1, 1))
    table.maintenance.expire(retention_hours=0, dry_run=False)
    assert not lost.exists()


ACTS = st.lists(
    st.tuples(st.sets(st.sampled_from(NAMES), min_size=1), st.sets(st.sampled_from(NAMES))),
    min_size=1,
    max_size=6,
)


@pytest.mark.slow
@pytest.mark.spec("CAT-5", "CAT-6")
@given(acts=ACTS, cut=st.integers(0, 5), order=st.permutations(NAMES))
@settings(max_examples=examples(40))
def test_after_a_repair_every_transaction_is_whole_or_away(
    tmp_path_factory: pytest.TempPathFactory, acts: list[Any], cut: int, order: list[str]
) -> None:
    folder = tmp_path_factory.mktemp("repair")
    catalog = Catalog(folder / "lake.db", folder / "lake")
    for name in NAMES:
        catalog.create_table(name, SCHEMA, managed="writes").append(rows((0, 0)))
    saved(folder)
    done: dict[int, set[str]] = {}
    for number, (changed, unpublished) in enumerate(acts, start=1):
        if number - 1 == cut:
            saved(folder)
        with ExitStack() as stack:
            if number == len(acts):  # Whoever writes next publishes what was left.
                stack.enter_context(Unpublished(*(catalog.table(name) for name in unpublished)))
            both(catalog, number, tuple(sorted(changed)))
        done[number] = changed
    again = restored(folder)
    for name in order:
        again.repair(name)
    moment = again.snapshot()
    found = {name: {one for one, _ in content(moment[name])} for name in NAMES}
    for number, changed in done.items():
        having = {name for name in NAMES if number in found[name]}
        is_last = number == len(acts)
        assert having == changed or (is_last and not having and changed <= acts[-1][1])
    both(again, 100, NAMES)
    assert all(100 in {one for one, _ in content(again.table(name))} for name in NAMES)
