"""Write, audit, publish: others see rows only if all checks hold."""

import pickle
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import txlog

FRESH = count()
NO_NULLS = {"no nulls": "count_if(id IS NULL) = 0"}


def rows(*ids: int | None, x: float = 1.5) -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64()), "x": [x] * len(ids)})


def fresh() -> txlog.Table:
    return txlog.write(f"memory://audit-{next(FRESH)}", rows(1, 2))


def open_branches(table: txlog.Table) -> list[str]:
    known = table.branches.list().to_pylist()
    return [one["name"] for one in known if one["status"] == "open"]


@pytest.mark.spec("BRA-60")
def test_what_holds_is_published_in_one_commit() -> None:
    table = fresh()
    checks = {**NO_NULLS, "volume": lambda new: new.count() > 3}
    audit = table.audit("nightly", checks, user_metadata="by night")
    with audit as branch:
        branch.append(rows(3))
        branch.append(rows(4, 5))
        branch.delete("id = 1")
        assert table.at().count() == 2  # Others see nothing of it.
        before = table.at().version
    assert sorted(table.to_arrow()["id"].to_pylist()) == [2, 3, 4, 5]
    assert audit.outcome is not None
    assert (audit.outcome.version, table.version) == (before + 1, before + 1)
    assert table.history(1)[0]["userMetadata"] == "by night"
    assert {name: one.figures for name, one in audit.results.items()} == {
        "no nulls": {"count_if(id IS NULL)": 0}, "volume": {"result": True},
    }  # fmt: skip
    assert all(audit.results.values())
    assert open_branches(table) == []
    assert "nightly" in repr(audit)


@pytest.mark.spec("BRA-60")
def test_what_does_not_hold_stays_for_a_look() -> None:
    table = fresh()
    checks = {
        **NO_NULLS, "few": "count(*) < 100", "mean": "avg(x) BETWEEN 1 AND 2",
        "volume": lambda new: new.count() > 1000, "broken": lambda new: 1 / (new.count() - 4),
    }  # fmt: skip
    with pytest.raises(txlog.AuditFailedError) as caught, table.audit("nightly", checks) as branch:
        branch.append(rows(3, None))
    error = caught.value
    assert error.failed == ("no nulls", "volume", "broken")
    assert error.figures == {
        "no nulls": {"count_if(id IS NULL)": 1}, "few": {"count(*)": 4}, "mean": {"avg(x)": 1.5},
        "volume": {"result": False}, "broken": {"error": "ZeroDivisionError: division by zero"},
    }  # fmt: skip
    assert (error.branch, error.version) == ("nightly", branch.version)
    assert pickle.loads(pickle.dumps(error)).figures == error.figures
    assert table.refresh().count() == 2
    assert open_branches(table) == ["nightly"]
    looked = txlog.Table(table.uri, branch="nightly")
    looked.delete("id IS NULL")
    table.branches.publish("nightly")
    assert sorted(table.to_arrow()["id"].to_pylist()) == [1, 2, 3]


def test_a_name_that_is_in_use() -> None:
    table = fresh()
    with pytest.raises(txlog.AuditFailedError), table.audit("a", {"no": "count(*) = 0"}) as branch:
        branch.append(rows(3))
    with pytest.raises(txlog.AlreadyExistsError), table.audit("a", NO_NULLS):
        pytest.fail("the block must not run")
    assert open_branches(table) == ["a"]
    with table.audit("a", NO_NULLS, replace=True) as branch:
        branch.append(rows(4))
    assert sorted(table.to_arrow()["id"].to_pylist()) == [1, 2, 4]


@pytest.mark.spec("BRA-60")
@pytest.mark.parametrize("kind", [ValueError, KeyboardInterrupt])
def test_a_block_that_raises_leaves_nothing(kind: type[BaseException]) -> None:
    table = fresh()

    def work() -> None:
        with table.audit("a", NO_NULLS) as branch:
            branch.append(rows(3))
            raise kind

    with pytest.raises(kind):
        work()
    assert table.refresh().count() == 2
    assert open_branches(table) == []


@pytest.mark.spec("BRA-61")
def test_what_was_not_checked_is_not_published() -> None:
    """Also if another writer commits to the branch while its checks run."""
    table = fresh()
    other: list[txlog.Table] = []

    def check(new: txlog.Table) -> bool:
        other.append(txlog.Table(table.uri, branch="a"))
        other[0].append(rows(None))
        return True

    with pytest.raises(txlog.CommitConflictError, match="another writer has made"):  # noqa: SIM117
        with table.audit("a", {**NO_NULLS, "late": check}) as branch:
            branch.append(rows(3))
    assert table.refresh().count() == 2
    assert open_branches(table) == ["a"]


def test_a_conflict_leaves_the_branch() -> None:
    table = fresh()

    def work() -> None:
        with table.audit("a", NO_NULLS) as branch:
            branch.update({"x": "2"}, "id = 1")
            table.at().update({"x": "3"}, "id = 1")

    with pytest.raises(txlog.CommitConflictError):
        work()
    assert open_branches(table) == ["a"]
    assert table.refresh().to_arrow(where="id = 1")["x"].to_pylist() == [3.0]


@pytest.mark.spec("BRA-62")
def test_appends_of_others_do_not_matter() -> None:
    table = fresh()
    with table.audit("a", {"two more": "count(*) = 4"}) as branch:
        branch.append(rows(3, 4))
        table.at().append(rows(9))
    assert sorted(table.to_arrow()["id"].to_pylist()) == [1, 2, 3, 4, 9]


def test_exactly_once() -> None:
    table = fresh()
    for _ in range(2):
        audit = table.audit("a", NO_NULLS, txn=("job", 1))
        with audit as branch:
            branch.append(rows(3))
    assert audit.outcome is not None
    assert audit.outcome.skipped
    assert table.count() == 3
    assert open_branches(table) == []


@pytest.mark.spec("BRA-62")
def test_checks_over_new_rows_alone() -> None:
    table = txlog.write(f"memory://audit-{next(FRESH)}", rows(1, None))
    seen: list[list[Any]] = []
    new_rows = {
        "no nulls": "count_if(id IS NULL) = 0",
        "ids": "min(id) >= 3 AND count(DISTINCT id) = count(*)",
        "some": lambda new: seen.append(new["id"].to_pylist()) or new.num_rows == 2,
    }
    with table.audit("a", new_rows=new_rows) as branch:
        branch.append(rows(3, 4))
    assert [sorted(one) for one in seen] == [[3, 4]]
    with pytest.raises(txlog.AuditFailedError) as caught, table.audit("b", new_rows=new_rows) as b:
        b.append(rows(5, 5, None))
    assert caught.value.failed == ("no nulls", "ids", "some")
    assert caught.value.figures is not None
    assert caught.value.figures["ids"] == {"min(id)": 5, "count(DISTINCT id)": 1, "count(*)": 3}


def test_a_block_that_writes_nothing() -> None:
    table = fresh()
    with table.audit("a", {"two": "count(*) = 2"}, new_rows={"none": "sum(x) IS NULL"}):
        pass
    assert table.count() == 2
    assert open_branches(table) == []


@pytest.mark.parametrize(
    "checks",
    [
        {}, {"c": "id > 0"}, {"c": "count("}, {"c": ""}, {"c": 7}, {1: "count(*) > 0"}, ["c"],
        {"c": "max(id, x) > 1"}, {"c": "median(x) > 1"}, {"c": "sum(*) > 1"},
        {"c": "count(id > (SELECT 1)) > 0"}, {"c": "sum(DISTINCT x) > 1"},
    ],
    ids=str,
)  # fmt: skip
def test_checks_that_are_none_are_refused_before_anything_is_done(checks: Any) -> None:
    table = fresh()
    with pytest.raises(txlog.InvalidInputError):
        table.audit("a", checks)
    with pytest.raises(txlog.InvalidInputError):
        table.audit("a", new_rows=checks)
    assert table.refresh().version == 0
    with pytest.raises(txlog.InvalidInputError, match="its own name"):
        table.audit("a", NO_NULLS, new_rows=NO_NULLS)


def test_a_check_that_does_not_fit_the_columns_publishes_nothing() -> None:
    table = fresh()
    for check in ("count(nope) = 0", "count(*) > id"):
        with pytest.raises(txlog.InvalidInputError), table.audit("a", {"c": check}, replace=True):
            pass
        assert table.refresh().count() == 2
    with table.audit("a", {"c": "count(y) = 1"}, replace=True) as branch:
        branch.append(pa.table({"id": [3], "x": [1.0], "y": ["new"]}), schema_mode="merge")
    assert table.schema.names == ["id", "x", "y"]


def test_the_quarantine_of_a_branch_is_another_table(tmp_path: Path) -> None:
    table = txlog.write(tmp_path / "t", rows(1))
    table.alter.set_nullable("id", False)
    with table.audit("a", {"c": "count(*) = 2"}) as branch:
        branch.append(rows(2, None), on_error="quarantine", quarantine=tmp_path / "q")
    assert txlog.Table(tmp_path / "q").count() == 1


@pytest.mark.spec("BRA-60")
def test_a_check_in_sql_that_raises_does_not_hold() -> None:
    table = fresh()
    checks = {**NO_NULLS, "ratio": "sum(x) / count_if(id > 99) > 1"}
    with pytest.raises(txlog.AuditFailedError) as caught, table.audit("a", checks):
        pass
    assert caught.value.failed == ("ratio",)
    figures = caught.value.figures
    assert figures is not None
    assert figures["no nulls"] == {"count_if(id IS NULL)": 0}
    assert figures["ratio"].keys() == {"sum(x)", "count_if(id > 99)", "error"}
    assert open_branches(table) == ["a"]


@pytest.mark.spec("BRA-61")
@pytest.mark.parametrize("raises", [False, True])
@pytest.mark.parametrize("ended", [False, True])
def test_an_audit_ends_only_its_own_branch(raises: bool, ended: bool) -> None:
    """Another run has replaced its branch by one of the same name and the same version."""
    table = fresh()
    other = table.at().audit("a", NO_NULLS, replace=True)

    def work() -> None:
        with table.audit("a", NO_NULLS) as branch:
            branch.append(rows(3))
            branch.append(rows(4))
            branch.append(rows(5))  # The base of the other one is two versions later.
            other.__enter__().append(rows(None))
            if ended:
                table.at().branches.publish("a")
            if raises:
                raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError if raises else txlog.CommitConflictError):
        work()
    assert sorted(table.at().to_arrow()["id"].drop_null().to_pylist()) == [1, 2]
    assert table.at().count() == (3 if ended else 2)
    assert open_branches(table) == ([] if ended else ["a"])


@pytest.mark.spec("BRA-61")
def test_what_comes_while_the_checks_run_is_neither_checked_nor_published() -> None:
    table = fresh()
    counts: list[int] = []

    def writes(new: txlog.Table) -> bool:
        counts.append(new.count())
        txlog.Table(table.uri, branch="a").append(rows(None))
        return new.refresh().count() == 4

    def later(new: txlog.Table) -> bool:
        counts.append(new.count())
        return True

    def of_new(new: pa.Table) -> bool:
        counts.append(new.num_rows)
        return True

    audit = table.audit("a", {"writes": writes, "later": later}, new_rows={**NO_NULLS, "n": of_new})
    with pytest.raises(txlog.CommitConflictError, match="another writer has made"):  # noqa: SIM117
        with audit as branch:
            branch.append(rows(3))
    assert counts == [3, 3, 1]
    assert table.refresh().count() == 2


@pytest.mark.spec("BRA-60")
def test_a_run_that_is_repeated_is_not_checked_again() -> None:
    """The rows of the first run are in the table, so the checks would count them twice."""
    table = fresh()
    for skipped in (False, True):
        audit = table.audit("a", {"unique": "count(*) = count(DISTINCT id)"}, txn=("job", 1))
        with audit as branch:
            branch.append(rows(3))
        assert audit.outcome is not None
        assert audit.outcome.skipped is skipped
        assert bool(audit.results) is not skipped
    assert table.count() == 3
    assert open_branches(table) == []


def test_a_branch_of_a_name_in_another_case_is_replaced() -> None:
    table = fresh()
    table.branches.create("STRASSE")
    with table.audit("stra\u00dfe", NO_NULLS, replace=True) as branch:
        branch.append(rows(3))
    assert table.count() == 3
    assert open_branches(table) == []
