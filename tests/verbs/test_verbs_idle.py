"""Operations that find nothing to change, and commit a `txn` beside another writer's commit.

The `txn` says that the operation was done, so a repeat of it does nothing. Then the table must be
as if the operation had run after the winner, above which its `txn` was committed.
"""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import txlog
from tests.examples import examples
from txlog.extend import open_store, open_table

Do = Callable[[txlog.Table, Any], Any]


def rows(*values: int) -> pa.Table:
    return pa.table({"x": pa.array(values, pa.int64()), "y": pa.array(values, pa.int64())})


def merged(table: txlog.Table, txn: Any) -> txlog.Outcome | None:
    merger = table.merge(rows(50), "target.x = source.x", txn=txn)
    return merger.when_matched_delete().execute()


def several(table: txlog.Table, txn: Any) -> txlog.Outcome | None:
    with table.transaction(txn=txn) as tx:
        tx.delete("x = 50")
        tx.update({"y": "7"}, where="x = 60")
    return tx.outcome


VERBS: dict[str, Do] = {
    "delete": lambda table, txn: table.delete("x = 50", txn=txn),
    "delete by two columns": lambda table, txn: table.delete("x = 50 AND y > 40", txn=txn),
    "update": lambda table, txn: table.update({"y": "0"}, where="x >= 50", txn=txn),
    "merge": merged,
    "transaction": several,
    "set_properties": lambda table, txn: table.alter.set_properties({"mine": "1"}, txn=txn),
    "cluster_by": lambda table, txn: table.alter.cluster_by("x", txn=txn),
    "add_features": lambda table, txn: table.alter.add_features("deletionVectors", txn=txn),
    "set_description": lambda table, txn: table.alter.set_description("rows", txn=txn),
    "restore": lambda table, txn: table.restore(3, txn=txn),
}


def only_inserts(table: txlog.Table, txn: Any) -> txlog.Outcome | None:
    """A merge finds its row, so it has nothing to do; a delete has."""
    with table.transaction(txn=txn) as tx:
        tx.merge(rows(1), on="x").when_not_matched_insert_all().execute()
        tx.delete("x = 3")
    return tx.outcome


VERBS["transaction that also deletes"] = only_inserts
WINNERS: dict[str, Callable[[txlog.Table], Any]] = {
    "append 50": lambda table: table.append(rows(50)),
    "append 60": lambda table: table.append(rows(60, 61)),
    "append 3": lambda table: table.append(rows(3)),
    "update": lambda table: table.update({"x": "50"}, where="x = 2"),
    "delete": lambda table: table.delete("x = 1"),
    "overwrite": lambda table: table.overwrite(rows(50, 60)),
    "set_properties": lambda table: table.alter.set_properties({"mine": "2"}),
    "unset_properties": lambda table: table.alter.unset_properties(["mine"]),
    "cluster_by": lambda table: table.alter.cluster_by("y"),
    "set_description": lambda table: table.alter.set_description("others"),
    "rename": lambda table: table.alter.set_name("t"),
}


class Between:
    """A store in which other writers commit before the first put of a commit."""

    def __init__(self, inner: Any, others: Callable[[], None]) -> None:
        self._inner = inner
        self._others: Callable[[], None] | None = others

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def attempts(self) -> Any:
        others, self._others = self._others, None
        if others is not None:
            others()
        return self._inner.attempts()


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("idle") / "t"
    properties = {"mine": "1", "delta.feature.deletionVectors": "supported"}
    table = txlog.Table.create(path, rows().schema, properties=properties, description="rows")
    table.append(rows(1))
    table.append(rows(0, 2, 3))
    table.alter.cluster_by("x")
    return path


def facts(path: Path) -> dict[str, Any]:
    table = txlog.Table(path)
    return {
        "rows": sorted(map(str, table.to_arrow().to_pylist())),
        "properties": table.properties,
        "texts": (table.metadata.name, table.metadata.description),
        "clustering": table.snapshot.controls.domains["delta.clustering"].configuration,
    }


@pytest.mark.slow
@given(
    verb=st.sampled_from(sorted(VERBS)),
    winners=st.lists(st.sampled_from(sorted(WINNERS)), min_size=1, max_size=2, unique=True),
)
@example(verb="delete", winners=["append 50"])
@example(verb="cluster_by", winners=["cluster_by"])
@example(verb="restore", winners=["append 3"])
@example(verb="transaction that also deletes", winners=["delete"])
@settings(max_examples=examples(200), deadline=None)
@pytest.mark.spec("CON-20")
def test_a_recorded_operation_was_done(
    first: Path, tmp_path_factory: pytest.TempPathFactory, verb: str, winners: list[str]
) -> None:
    folder = tmp_path_factory.mktemp("one")
    raced, plain = folder / "raced", folder / "plain"
    shutil.copytree(first, raced)
    shutil.copytree(first, plain)

    def others(path: Path) -> None:
        for winner in winners:
            WINNERS[winner](txlog.Table(path))

    store: Any = Between(open_store(raced), lambda: others(raced))
    VERBS[verb](open_table(store), ("job", 1))
    assert txlog.Table(raced).transaction_version("job") == 1
    others(plain)
    VERBS[verb](txlog.Table(plain), None)
    assert facts(raced) == facts(plain)
