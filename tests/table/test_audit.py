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
    for check in ("count(nope) = 0", "count(*) > id", "sum(x) / 0 > 1"):
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
