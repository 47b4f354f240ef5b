"""Branches of all tables of a catalog."""

from typing import Any

import pytest

from tests.catalog.conftest import SCHEMA, Make, content, rows
from txlog import Catalog
from txlog.base.errors import (
    AlreadyExistsError,
    AuditFailedError,
    CommitConflictError,
    InvalidInputError,
    NotFoundError,
    UnsupportedFeatureError,
)

NAMES = ("a", "b", "c")


@pytest.fixture(params=["writes", "all"])
def tables(request: pytest.FixtureRequest, make: Make) -> None:
    for name in NAMES:
        make(name, (1, 10), (2, 20), managed=request.param)


def state(catalog: Catalog) -> dict[str, Any]:
    moment = catalog.snapshot()
    return {name: content(moment[name]) for name in NAMES}


@pytest.mark.slow
@pytest.mark.spec("CAT-15")
def test_all_tables_are_branched_and_published_at_one_moment(
    catalog: Catalog, tables: None
) -> None:
    before = state(catalog)
    assert set(catalog.branches.create("dev")) == set(NAMES)
    assert catalog.branches.list()["table"].to_pylist() == list(NAMES)
    catalog.table("a", branch="dev").append(rows((3, 30)))
    catalog.table("b", branch="dev").delete("id = 1")
    catalog.table("b").update({"v": "11"}, "id = 1")
    before["b"][0] = (1, 11)
    assert state(catalog) == before
    assert content(catalog.table("b", branch="dev")) == [(2, 20)]
    with pytest.raises(CommitConflictError):  # Both changed one row.
        catalog.branches.publish("dev")
    assert state(catalog) == before
    catalog.table("a", branch="dev").append(rows((4, 40)))  # It is open again.
    assert set(catalog.branches.discard("dev")) == set(NAMES)
    assert catalog.branches.list().num_rows == 0
    assert state(catalog) == before


@pytest.mark.slow
@pytest.mark.spec("CAT-15")
def test_a_publish_changes_all_tables(catalog: Catalog, tables: None) -> None:
    catalog.branches.create("dev")
    catalog.table("a", branch="dev").append(rows((3, 30)))
    catalog.table("b", branch="dev").delete("id = 1")
    catalog.table("a").append(rows((9, 90)))
    outcomes = catalog.branches.publish("dev")
    assert state(catalog) == {
        "a": [(1, 10), (2, 20), (3, 30), (9, 90)], "b": [(2, 20)], "c": [(1, 10), (2, 20)],
    }  # fmt: skip
    assert {outcome.version is not None for outcome in outcomes.values()} == {True}
    sequences = {
        one.sequence
        for one in catalog._database.commits_after(0, 1000)
        for table in [catalog.table(name) for name in NAMES]
        if (one.table_id, one.version) == (table.metadata.id, table.version)
    }
    assert len(sequences) == 1
    with pytest.raises(NotFoundError):
        catalog.branches.publish("dev")
    catalog.branches.create("dev")  # The name is free.


@pytest.mark.slow
def test_tables_can_be_chosen(catalog: Catalog, tables: None) -> None:
    assert set(catalog.branches.create("one", ["A"])) == {"a"}
    with pytest.raises(AlreadyExistsError):
        catalog.branches.create("one")
    assert catalog.branches.list().to_pylist() == [
        {"branch": "one", "table": "a", "base_version": 2}
    ]
    catalog.table("a", branch="one").append(rows((3, 30)))
    assert set(catalog.branches.publish("one")) == {"a"}


def test_what_cannot_be_branched_is_named(catalog: Catalog) -> None:
    with pytest.raises(InvalidInputError, match="no tables"):
        catalog.branches.create("dev")
    catalog.create_table("plain", SCHEMA)
    with pytest.raises(UnsupportedFeatureError, match="plain"):
        catalog.branches.create("dev")
    for act in (catalog.branches.publish, catalog.branches.discard):
        with pytest.raises(NotFoundError, match="dev"):
            act("dev")


@pytest.mark.slow
@pytest.mark.spec("CAT-15")
def test_the_differences_of_all_tables(catalog: Catalog, tables: None) -> None:
    catalog.branches.create("dev")
    catalog.table("a", branch="dev").append(rows((3, 30)))
    catalog.table("b", branch="dev").delete("id = 1")
    found = {name: one.count() for name, one in catalog.branches.diff("dev").items()}
    assert {name: dict(counts) for name, counts in found.items()} == {
        name: dict(catalog.table(name).branches.diff("dev").count()) for name in NAMES
    }
    with pytest.raises(NotFoundError):
        catalog.branches.diff("none")


CHECKS: dict[str, Any] = {
    "A": {"small": "max(v) < 100", "some": lambda table: table.count() > 2},
    "b": {"whole": "count(*) = 2"},
}


@pytest.mark.slow
@pytest.mark.spec("CAT-26")
def test_all_tables_are_published_if_all_checks_hold(catalog: Catalog, tables: None) -> None:
    before = state(catalog)
    with catalog.branches.audit("nightly", CHECKS) as to:
        to["a"].append(rows((3, 30)))
        to["b"].update({"v": "v + 1"}, "id = 1")
        catalog.table("a").append(rows((9, 90)))
        assert state(catalog) == {**before, "a": [*before["a"], (9, 90)]}
    after = state(catalog)
    assert after["a"] == [*before["a"], (3, 30), (9, 90)]
    assert after["b"] == [(1, 11), (2, 20)]
    assert catalog.branches.list().num_rows == 0
    assert len({one.sequence for one in catalog._database.commits_after(0, 100)[-3:]}) == 1


@pytest.mark.slow
@pytest.mark.spec("CAT-26")
def test_nothing_is_published_if_a_check_fails(catalog: Catalog, tables: None) -> None:
    before = state(catalog)
    block = catalog.branches.audit("nightly", CHECKS)
    to = block.__enter__()
    to["a"].append(rows((3, 300)))
    to["b"].append(rows((3, 30)))
    with pytest.raises(AuditFailedError, match="a: small, b: whole") as caught:
        block.__exit__(None, None, None)
    assert caught.value.failed == ("a: small", "b: whole")
    assert caught.value.figures is not None
    assert caught.value.figures["a: small"] == {"max(v)": 300}
    assert state(catalog) == before
    assert content(catalog.table("a", branch="nightly"))[-1] == (3, 300)
    with pytest.raises(AlreadyExistsError), catalog.branches.audit("nightly", CHECKS):
        pass
    catalog.branches.discard("nightly")


@pytest.mark.spec("CAT-26")
def test_a_block_that_raises_discards_its_branches(catalog: Catalog, tables: None) -> None:
    before = state(catalog)
    with pytest.raises(ZeroDivisionError), catalog.branches.audit("nightly", CHECKS):
        raise ZeroDivisionError
    assert state(catalog) == before
    assert catalog.branches.list().num_rows == 0


@pytest.mark.slow
@pytest.mark.parametrize("who", ["branch", "discard", "main"])
@pytest.mark.spec("CAT-26")
def test_what_was_not_checked_is_not_published(catalog: Catalog, tables: None, who: str) -> None:
    def meddle(_: Any) -> bool:
        if who == "branch":
            catalog.table("c", branch="nightly").append(rows((7, 70)))
        elif who == "discard":
            catalog.branches.discard("nightly")
            catalog.branches.create("nightly")
        else:
            catalog.table("a").update({"v": "0"}, "id = 1")
        return True

    block = catalog.branches.audit("nightly", {"a": {"x": meddle}})
    to = block.__enter__()
    to["a"].update({"v": "1"}, "id = 1")
    with pytest.raises(CommitConflictError):
        block.__exit__(None, None, None)
    assert (1, 1) not in content(catalog.table("a"))
    assert set(catalog.branches.list()["branch"].to_pylist()) == {"nightly"}


@pytest.mark.slow
@pytest.mark.parametrize(
    "checks", [{}, {"a": {}}, {"none": {"x": "count(*) > 0"}}, {"a": {"x": 7}}, 7]
)
def test_wrong_checks_make_no_branch(catalog: Catalog, tables: None, checks: Any) -> None:
    with pytest.raises((InvalidInputError, NotFoundError)), catalog.branches.audit("n", checks):
        pass
    assert catalog.branches.list().num_rows == 0
