"""Branches of tables that a catalog manages; several branches are published at one moment."""

from pathlib import Path
from typing import Literal

import pyarrow as pa
import pytest

import txlog
from txlog.base.errors import CommitConflictError, UnsupportedFeatureError
from txlog.commit.group import Member, Terms, commit_group
from txlog.extend import context_of
from txlog.store.catalog_database import Proposed
from txlog.store.managed import ManagedStore
from txlog.verbs.branches import CreateBranch, PublishBranch

SCHEMA = pa.schema([("x", pa.int64())])


def xs(*values: int) -> pa.Table:
    return pa.table({"x": list(values)}, schema=SCHEMA)


def left(table: txlog.Table) -> list[int]:
    return sorted(table.to_arrow()["x"].to_pylist())


def branch_of(table: txlog.Table) -> txlog.Table:
    return txlog.Table(table.uri, branch="b", storage_options=context_of(table).store.options)


@pytest.mark.spec("BRA-5")
@pytest.mark.parametrize("managed", ["writes", "all"])
def test_a_branch_of_a_managed_table(tmp_path: Path, managed: Literal["writes", "all"]) -> None:
    catalog = txlog.Catalog(tmp_path / "lake.db", location=tmp_path / "lake")
    table = catalog.create_table("t", SCHEMA, managed=managed)
    table.append(xs(1, 2))
    table.branches.create("b")
    branch = branch_of(table)
    branch.append(xs(3))
    branch.delete("x = 1")
    table.append(xs(1))
    assert (left(branch), left(catalog.table("t"))) == ([2, 3], [1, 1, 2])
    with pytest.raises(CommitConflictError):
        table.branches.publish("b")
    table.branches.discard("b")
    table.branches.create("b")
    branch_of(table).append(xs(4))
    table.branches.publish("b")
    assert left(catalog.table("t")) == [1, 1, 2, 4]


@pytest.mark.spec("BRA-5", "BRA-16")
@pytest.mark.parametrize("conflict", [False, True])
def test_branches_of_several_tables_are_published_at_once(tmp_path: Path, conflict: bool) -> None:
    catalog = txlog.Catalog(tmp_path / "lake.db", location=tmp_path / "lake")
    tables = [catalog.create_table(name, SCHEMA, managed="writes") for name in ("t", "u")]
    store = context_of(tables[0]).store
    assert isinstance(store, ManagedStore)
    terms = Terms(store.database, catalog_id="lake")
    for table in tables:
        table.append(xs(1, 2))
    members = [Member(t.uri, context_of(t), CreateBranch("b"), t.snapshot) for t in tables]
    assert commit_group(members, terms)
    for table in tables:
        branch_of(table).delete("x = 1")
        table.refresh()
    if conflict:
        tables[1].append(xs(1))
    members = [Member(t.uri, context_of(t), PublishBranch("b"), t.snapshot) for t in tables]
    if conflict:
        with pytest.raises(CommitConflictError):
            commit_group(members, terms)
        assert left(tables[0].refresh()) == [1, 2]
        branch_of(tables[0]).append(xs(5))  # It is open again.
        return
    tables[0].alter.set_properties({"mine": "1"})  # The publish is decided again.
    assert commit_group(members, terms)
    assert [left(table.refresh()) for table in tables] == [[2], [2]]
    assert [table.branches.list()["status"].to_pylist() for table in tables] == [["published"]] * 2


@pytest.mark.spec("BRA-5")
@pytest.mark.parametrize("managed", ["writes", "all"])
@pytest.mark.parametrize("meanwhile", [False, True])
def test_a_table_with_an_open_branch_is_not_let_out(
    tmp_path: Path,
    managed: Literal["writes", "all"],
    meanwhile: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    catalog = txlog.Catalog(tmp_path / "lake.db", location=tmp_path / "lake")
    table = catalog.create_table("t", SCHEMA, managed=managed)

    def branch() -> None:
        table.branches.create("b")
        branch_of(table).append(xs(1))

    if meanwhile:
        table.branches.create("first")  # It brings the features, which would be a conflict.
        table.branches.discard("first")
        right = ManagedStore.stage

        def stage(store: ManagedStore, version: int, data: bytes) -> Proposed:
            monkeypatch.setattr(ManagedStore, "stage", right)
            branch()
            return right(store, version, data)

        monkeypatch.setattr(ManagedStore, "stage", stage)
    else:
        branch()
    with pytest.raises(UnsupportedFeatureError, match="open branches"):
        catalog.release("t")
    table.branches.publish("b")
    assert left(catalog.release("t")) == left(txlog.Table(table.uri)) == [1]
