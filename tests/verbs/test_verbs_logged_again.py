"""Verbs that log live files again: facts about files change, and no reader takes them for rows."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import txlog
from tests.examples import examples
from txlog.extend import context_of
from txlog.scan.read import read_fragment
from txlog.stream.offsets import UNDECIDED
from txlog.stream.stream import StreamOptions, TableStream

PROPERTIES = {
    "delta.enableChangeDataFeed": "true",
    "delta.dataSkippingNumIndexedCols": "0",  # So that statistics can be computed later.
    "txlog.writeChecksums": "true",
    "txlog.logCompactionInterval": "3",
}


def xs(*values: int) -> pa.Table:
    return pa.table({"x": pa.array(values, pa.int64())})


@dataclass
class History:
    """The rows of each version, and the ids of those versions that track rows."""

    table: txlog.Table
    rows: list[set[int]] = field(default_factory=list)
    ids: list[dict[int, int] | None] = field(default_factory=list)
    following: int = 0

    def append(self, count: int) -> None:
        new = range(self.following, self.following + count)
        self.following += count
        self.table.append(xs(*new), options=txlog.WriteOptions(max_rows_per_file=2))
        self.note({*self.rows[-1], *new})

    def delete(self, number: int) -> None:
        self.table.delete(f"x % 5 = {number}")
        self.note({x for x in self.rows[-1] if x % 5 != number})

    def again(self, verb: Callable[[txlog.Table], object]) -> None:
        """Run a verb that changes no row."""
        fragments = self.fragments()
        verb(self.table)
        self.note(self.rows[-1])
        assert self.fragments() == fragments

    def restore(self, back: int) -> None:
        target = max(len(self.rows) - 1 - back, 1)
        self.table.restore(target)
        self.note(self.rows[target])
        if self.ids[target] is not None and self.table.version == len(self.ids) - 1:
            assert self.ids[-1] == self.ids[target]

    def fragments(self) -> list[tuple[int, int | None]]:
        return [(one.id, one.num_rows) for one in self.table.fragments()]

    def note(self, rows: set[int]) -> None:
        """Note a version, if there is a new one, and compare every reader with its rows."""
        if self.table.version < len(self.rows):
            assert rows == self.rows[-1]
            return
        self.rows.append(rows)
        self.ids.append(self.read_ids())
        self.check()

    def read_ids(self) -> dict[int, int] | None:
        if not self.table.snapshot.has_stable_row_ids:
            return None
        found = self.table.to_arrow(["x", "_rowid"])
        ids = dict(zip(found["x"].to_pylist(), found["_rowid"].to_pylist(), strict=True))
        assert len(set(ids.values())) == len(found)
        return ids

    def check(self) -> None:
        table, version, rows = txlog.Table(self.table.uri), self.table.version, self.rows[-1]
        assert version == len(self.rows) - 1
        assert sorted(table.to_arrow()["x"].to_pylist()) == sorted(rows)
        report = table.maintenance.verify_checksum()
        assert report.found
        assert report.ok, str(report)
        if not version:
            return
        before = self.rows[-2]
        changed = Counter({"insert": len(rows - before), "delete": len(before - rows)})
        assert changes_of(table.changes(version).to_arrow()) == changed
        assert changes_of(table.diff(version - 1, version).to_arrow()) == changed
        assert changes_of(table.diff(version, 0).to_arrow()) == Counter({"delete": len(rows)})
        if before <= rows:
            assert streamed(table, version) == sorted(rows - before)
        if self.ids[-1] is None:
            self.check_blame(table)
        elif self.ids[-2] is not None and before <= rows:
            assert self.ids[-2].items() <= self.ids[-1].items()

    def check_blame(self, table: txlog.Table) -> None:
        """Without row tracking, rows come from the first version that had them."""
        found = table.blame(["x"]).to_arrow()
        versions = found["_commit_version"].to_pylist()
        for x, version in zip(found["x"].to_pylist(), versions, strict=True):
            assert x in self.rows[version]
            assert x not in self.rows[version - 1]
            assert not any(x in rows for rows in self.rows[:version])


def changes_of(rows: pa.Table) -> Counter[str]:
    return Counter(rows["_change_type"].to_pylist())


def streamed(table: txlog.Table, version: int) -> list[int]:
    """Return the rows of a stream that begins with a version."""
    stream = TableStream(context_of(table).store, StreamOptions(start_version=version))
    work: Any = stream.work(UNDECIDED, stream.latest(UNDECIDED))
    batches = [
        batch for one in work for batch in read_fragment(context_of(table).store, stream.plan, one)
    ]
    return sorted(x for batch in batches for x in batch.column("x").to_pylist())


AGAIN: dict[str, Callable[[txlog.Table], object]] = {
    "track rows": lambda t: t.alter.set_properties({"delta.enableRowTracking": "true"}),
    "track no rows": lambda t: (
        t.snapshot.supports("rowTracking") and t.alter.drop_feature("rowTracking")
    ),
    "statistics": lambda t: t.optimize.compute_statistics(["x"]),
    "fragments": lambda t: t.alter.add_features("txlog.fragments"),
}
STEPS = st.one_of(
    st.tuples(st.sampled_from(sorted(AGAIN)), st.just(0)),
    st.tuples(st.just("restore"), st.integers(1, 5)),
    st.tuples(st.just("append"), st.integers(1, 3)),
    st.tuples(st.just("delete"), st.integers(0, 4)),
    st.tuples(st.just("checkpoint"), st.just(0)),
)


@pytest.mark.slow
@pytest.mark.spec("FRG-35", "FRG-36", "FRG-38", "MNT-40", "STR-6")
@settings(max_examples=examples(60))
@given(st.lists(STEPS, min_size=2, max_size=7))
def test_facts_about_files_are_no_rows(steps: list[tuple[str, int]]) -> None:
    with TemporaryDirectory() as folder:
        table = txlog.Table.create(f"{folder}/t", xs().schema, properties=PROPERTIES)
        history = History(table)
        history.note(set())
        history.append(3)
        for name, number in steps:
            if name in AGAIN:
                history.again(AGAIN[name])
            elif name == "checkpoint":
                table.maintenance.checkpoint()
            else:
                getattr(history, name)(number)


@pytest.mark.spec("FRG-36")
def test_a_restore_of_row_ids_brings_no_rows(tmp_path: Path) -> None:
    table = txlog.Table.create(
        tmp_path / "t", xs().schema, properties=PROPERTIES | {"delta.enableRowTracking": "true"}
    )
    table.append(xs(1, 2))
    table.append(xs(3, 4))
    before = table.to_arrow(["x", "_rowid"])
    table.alter.drop_feature("rowTracking")
    outcome = table.restore(2)
    assert (outcome.version, outcome.metrics["numRestoredFiles"]) == (4, 0)
    assert table.to_arrow(["x", "_rowid"]) == before
    assert table.changes(4).to_arrow().num_rows == 0
    assert table.diff(3, 4).count() == {"insert": 0, "delete": 0, "update": 0}
    assert streamed(table, 4) == []
    assert table.maintenance.verify_checksum().ok


@pytest.mark.spec("FRG-36")
def test_ids_that_were_given_again_are_restored_as_they_were(tmp_path: Path) -> None:
    """A moved row keeps its id in a column, which other ids of its file must not repeat."""
    properties = {"delta.enableRowTracking": "true", "delta.enableDeletionVectors": "false"}
    table = txlog.Table.create(tmp_path / "t", xs().schema, properties=properties)
    table.append(xs(1, 2, 3))
    table.delete("x = 1")
    table.append(xs(4, 5))
    before, version = table.to_arrow(["x", "_rowid"]), table.version
    table.alter.drop_feature("rowTracking")
    table.alter.set_properties({"delta.enableRowTracking": "true"})
    table.restore(version)
    assert table.to_arrow(["x", "_rowid"]) == before
    table.append(xs(6))
    ids = table.to_arrow(["_rowid"])["_rowid"].to_pylist()
    assert len(set(ids)) == len(ids)
