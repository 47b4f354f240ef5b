"""Deletes whose rows another engine finds: positions of a version, by fragment."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyroaring import BitMap64

import txlog
from tests.verb_calls import delete_found
from txlog.base.errors import InternalError
from txlog.base.threads import Threads
from txlog.commit.context import Context
from txlog.extend import context_of
from txlog.snapshot.snapshot import Snapshot
from txlog.verbs.delete import FindRows


@pytest.fixture(params=["true", "false"], ids=["vectors", "rewritten"])
def table(tmp_path: Path, request: pytest.FixtureRequest) -> txlog.Table:
    made = txlog.write(
        tmp_path / "t",
        pa.table({"n": range(10)}),
        options=txlog.WriteOptions(max_rows_per_file=4),
        properties={"delta.enableDeletionVectors": request.param},
    )
    made.delete("n = 1")
    return made


def values(table: txlog.Table) -> list[int]:
    return sorted(txlog.Table(table.uri).to_arrow()["n"].to_pylist())


def by_value(table: txlog.Table, going: set[int]) -> FindRows:
    """The oracle's way: read all, and keep the addresses of the rows that go."""

    def find(base: Snapshot) -> dict[int, BitMap64]:
        rows = txlog.Table(table.uri, version=base.version).to_arrow(["n", "_rowaddr"]).to_pylist()
        found: dict[int, BitMap64] = {}
        for row in rows:
            if row["n"] in going:
                fragment, position = divmod(row["_rowaddr"], 2**32)
                found.setdefault(fragment, BitMap64()).add(position)
        return found

    return find


@pytest.mark.parametrize("going", [{0, 5}, {4, 5, 6, 7}, set(range(10)), set()])
def test_exactly_those_rows_go(table: txlog.Table, going: set[int]) -> None:
    before = values(table)
    done = delete_found(
        context_of(table), table.snapshot, by_value(table, going), description="odd ones"
    )
    assert values(table) == [n for n in before if n not in going]
    if not going:
        assert done.outcome.version is None
        return
    assert done.outcome.metrics["numDeletedRows"] == len(going & set(before))
    (entry,) = txlog.Table(table.uri).history(1)
    assert entry["operationParameters"]["predicate"] == '["odd ones"]'


class _Counting(Threads):
    """An engine that counts its items."""

    items = 0

    def map(self, function: Any, items: Any) -> Iterator[Any]:
        self.items += len(items)
        return super().map(function, items)


def test_vectors_in_the_log_are_no_work_for_an_engine(table: txlog.Table) -> None:
    """A cluster would start a job; a vector in a file of its own is read by a worker."""
    engine = _Counting()
    context = Context(context_of(table).store, engine=engine)
    delete_found(context, table.snapshot, by_value(table, {0, 5}), description="")
    rewrites = table.properties["delta.enableDeletionVectors"] == "false"
    assert engine.items == (1 if rewrites else 0)  # Their other rows fill one file.
    assert values(table) == [2, 3, 4, 6, 7, 8, 9]


@pytest.mark.spec("CON-18")
@pytest.mark.parametrize("winner", ["append", "delete", "compact"])
def test_rows_are_found_again_after_another_writer(table: txlog.Table, winner: str) -> None:
    inner = by_value(table, {0, 5, 20})
    asked: list[int] = []

    def find(base: Snapshot) -> dict[int, BitMap64]:
        asked.append(base.version)
        found = dict(inner(base))
        if len(asked) == 1:
            other = txlog.Table(table.uri)
            if winner == "append":
                other.append(pa.table({"n": [20, 21]}))
            elif winner == "delete":
                other.delete("n IN (2, 5)")
            else:
                other.optimize.compact()
        return found

    before = set(values(table))
    delete_found(context_of(table), table.snapshot, find, description="x")
    after = {"append": {21}, "delete": set(), "compact": set()}[winner]
    gone = {0, 5, 2} if winner == "delete" else {0, 5}
    assert set(values(table)) == (before | after) - gone
    assert len(asked) == 2


@pytest.mark.parametrize(
    "rows", [{99: BitMap64([0])}, {0: BitMap64([4])}, {0: BitMap64([0, 2**32])}]
)
def test_rows_that_are_not_there_are_refused(table: txlog.Table, rows: dict[int, BitMap64]) -> None:
    version = table.version
    with pytest.raises(InternalError, match="does not have some of the found rows"):
        delete_found(context_of(table), table.snapshot, lambda _: rows, description="x")
    assert table.refresh().version == version


def test_a_row_that_is_deleted_already(tmp_path: Path) -> None:
    table = txlog.write(tmp_path / "t", pa.table({"n": range(4)}))
    table.delete("n = 1")
    (fragment,) = table.fragments()
    with pytest.raises(InternalError, match=r"some of the found rows.*parquet"):
        delete_found(
            context_of(table),
            table.snapshot,
            lambda _: {fragment.fragment_id: BitMap64([1])},
            description="x",
        )
