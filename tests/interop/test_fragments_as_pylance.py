"""One sequence of operations on txlog and on pylance: after each step both have the same fragments.

Compared are ids, physical rows, deletions, columns, rows and their order, and row addresses. Lance
gives ids as FRG-3 and FRG-9 do: in the order of the commit, on from the highest one ever given,
also after an overwrite, a compaction or a restore that brings old ids back. So ids need no mapping.
What differs by design is how rows are asked for, and how versions are counted:

- `LanceFragment.take` wants offsets in order; ours takes them in any order.
- `_take_rows` passes over rows that are deleted; ours names them in an error.
- pylance commits what changes nothing, and a compaction as two versions.
"""

import re
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

import txlog
from tests.data_files.test_column_updates import by
from tests.examples import examples

lance: Any = pytest.importorskip("lance")

BASE = pa.schema([("x", pa.int64()), ("n", pa.int64()), ("t", pa.string())])
FEATURE = {"delta.feature.txlog.fragments": "supported"}
COLUMNS = ["a", "b", "c"]

# A key never comes twice, so that what an address means can be followed through all versions.
# None of these is of a kind that is never null: Lance would note it, and refuse narrower data.
NUMBERS = ["x * 2", "n", "x - n"]
TEXTS = ["t", "CAST(x AS STRING)", "CAST(n AS STRING)"]
FLAGS = ["x % 2 = 0", "t = 'p'", "n > 4"]
EXPRESSIONS = {pa.int64(): NUMBERS, pa.string(): TEXTS, pa.bool_(): FLAGS}
PREDICATES = [
    "x % 2 = 0",
    "x % 5 = 3",
    "x % 7 < 5",
    "x % 3 <> 1",
    "x IN (0, 1, 2, 3)",
    "x BETWEEN 4 AND 9",
    "x > 12",
    "t IS NULL",
    "t = 'p' OR x % 4 = 1",
    "n < 4",
    "NOT n = 5",
    "x < 0",
]


class Both(RuleBasedStateMachine):
    """A table and its twin."""

    @initialize(form=st.sampled_from(["delta", "lance"]), rows=st.integers(0, 9))
    def create(self, form: str, rows: int) -> None:
        self.home = Path(tempfile.mkdtemp(prefix="both"))
        self.next_key = 0
        self.meaning: dict[int, int] = {}  # Of addresses, since the table is there.
        self.versions: list[tuple[int, int, list[dict[str, Any]]]] = []
        properties = {**FEATURE, "txlog.deletionFormat": form}
        data = self.data(rows)
        ours = txlog.write(
            self.home / "ours",
            data,
            properties=properties,
            options=txlog.WriteOptions(max_rows_per_file=4),
        )
        self.ours = ours
        self.twin = lance.write_dataset(data, str(self.home / "twin"), max_rows_per_file=4)

    def teardown(self) -> None:
        for ours, twin, rows in getattr(self, "versions", ()):
            assert txlog.Table(self.ours.uri, ours).to_arrow(self.names(rows)).to_pylist() == rows
            old = lance.dataset(self.twin.uri, version=twin)
            assert old.to_table(with_row_address=True).to_pylist() == rows
        if hasattr(self, "home"):
            shutil.rmtree(self.home)

    # What both are told -------------------------------------------------------------------

    def data(self, count: int, schema: pa.Schema = BASE) -> pa.Table:
        keys = range(self.next_key, self.next_key + count)
        self.next_key += count
        values: dict[pa.DataType, Any] = {
            pa.int64(): lambda x: None if x % 4 == 1 else x % 9,
            pa.string(): lambda x: [None, "p", "q"][x % 3],
            pa.bool_(): lambda x: x % 4 == 0,
        }
        columns = [
            list(keys) if field.name == "x" else [values[field.type](x) for x in keys]
            for field in schema
        ]
        return pa.table(columns, schema=schema)

    def commit(self, ours: txlog.FragmentOperation.Base, twin: Any) -> None:
        self.ours.commit(ours)
        self.twin = lance.LanceDataset.commit(self.twin.uri, twin, read_version=self.twin.version)

    @rule(rows=st.integers(0, 7), each=st.integers(1, 4), whole=st.booleans())
    def append(self, rows: int, each: int, whole: bool) -> None:
        there = self.ours.schema
        data = self.data(rows, there if whole else pa.schema([f for f in BASE if f in there]))
        self.ours.append(data, options=txlog.WriteOptions(max_rows_per_file=each))
        self.twin = lance.write_dataset(data, self.twin.uri, mode="append", max_rows_per_file=each)

    @rule(rows=st.integers(1, 7), each=st.integers(1, 4))
    def append_fragments(self, rows: int, each: int) -> None:
        data = self.data(rows, self.ours.schema)
        ours = txlog.write_fragments(
            data, self.ours, options=txlog.WriteOptions(max_rows_per_file=each)
        )
        twin = lance.fragment.write_fragments(data, self.twin.uri, max_rows_per_file=each)
        self.commit(txlog.FragmentOperation.Append(ours), lance.LanceOperation.Append(twin))

    def over(self, texts: Sequence[str]) -> st.SearchStrategy[str]:
        """Choose from the texts whose columns are there."""
        there = set(self.ours.schema.names)
        return st.sampled_from([s for s in texts if set(re.findall(r"\b[nt]\b", s)) <= there])

    @rule(data=st.data())
    def delete(self, data: st.DataObject) -> None:
        predicate = data.draw(self.over(PREDICATES))
        outcome = self.ours.delete(predicate)
        deleted = self.twin.delete(predicate)["num_deleted_rows"]
        assert outcome.metrics.get("numDeletedRows", 0) == deleted

    @rule(data=st.data())
    def delete_by_fragments(self, data: st.DataObject) -> None:
        predicate = data.draw(self.over(PREDICATES))
        ours, twin = (
            [(fragment.fragment_id, fragment.delete(predicate)) for fragment in found]
            for found in (self.ours.fragments(), self.twin.get_fragments())
        )
        assert [left is None for _, left in ours] == [left is None for _, left in twin]
        arguments = [
            ([left for _, left in found if left is not None],
             [number for number, left in found if left is None], predicate)
            for found in (ours, twin)
        ]  # fmt: skip
        self.commit(
            txlog.FragmentOperation.Delete(*arguments[0]),
            lance.LanceOperation.Delete(*arguments[1]),
        )

    def new_names(self) -> list[str]:
        return [name for name in COLUMNS if name not in self.ours.schema.names]

    def other_names(self) -> list[str]:
        return [name for name in self.ours.schema.names if name != "x"]

    @precondition(lambda self: self.new_names())
    @rule(data=st.data(), by=st.sampled_from(["table", "fragments"]))
    def add_columns(self, data: st.DataObject, by: str) -> None:
        names = data.draw(st.lists(st.sampled_from(self.new_names()), min_size=1, unique=True))
        columns = {name: data.draw(self.over(NUMBERS + TEXTS + FLAGS)) for name in names}
        if by == "table":
            self.ours.alter.add_columns(columns)
            self.twin.add_columns(columns)
            return
        ours = [fragment.merge_columns(columns) for fragment in self.ours.fragments()]
        twin = [fragment.merge_columns(columns) for fragment in self.twin.get_fragments()]
        if ours:
            self.commit(
                txlog.FragmentOperation.Merge([held for held, _ in ours], ours[0][1]),
                lance.LanceOperation.Merge([held for held, _ in twin], twin[0][1]),
            )

    @precondition(lambda self: self.new_names())
    @rule(kind=st.sampled_from(list(EXPRESSIONS)))
    def add_nulls(self, kind: pa.DataType) -> None:
        schema = pa.schema([(self.new_names()[0], kind)])
        self.ours.alter.add_columns(schema)
        self.twin.add_columns(schema)

    @precondition(lambda self: self.other_names() and self.ours.fragments())
    @rule(data=st.data())
    def replace_column(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(self.other_names()))
        given = EXPRESSIONS[self.ours.schema.field(name).type]
        text = data.draw(self.over([*given, name]))
        self.ours.alter.replace_columns({name: text})
        changed = []
        for fragment in self.twin.get_fragments():
            found = fragment.scanner(columns={name: text}, with_row_id=True).to_table()
            changed.append(fragment.update_columns(found, left_on="_rowid"))
        update = lance.LanceOperation.Update(
            updated_fragments=[held for held, _ in changed], fields_modified=changed[0][1]
        )
        self.twin = lance.LanceDataset.commit(self.twin.uri, update, read_version=self.twin.version)

    @precondition(lambda self: self.other_names() and self.ours.fragments())
    @rule(data=st.data(), way=st.sampled_from(["layer", "whole"]))
    def update_rows(self, data: st.DataObject, way: str) -> None:
        """Some rows of a column get values, and all rows keep their places."""
        name = data.draw(st.sampled_from(self.other_names()))
        text = data.draw(self.over([*EXPRESSIONS[self.ours.schema.field(name).type], name]))
        predicate = data.draw(self.over(PREDICATES))
        with by(way):
            outcome = self.ours.update({name: text}, predicate)
        changed, count = [], 0
        for fragment in self.twin.get_fragments():
            scanner = fragment.scanner(columns={name: text}, filter=predicate, with_row_id=True)
            found = scanner.to_table()
            count += found.num_rows
            if found.num_rows:
                changed.append(fragment.update_columns(found, left_on="_rowid"))
        assert outcome.metrics.get("numUpdatedRows", 0) == count
        if changed:
            update = lance.LanceOperation.Update(
                updated_fragments=[held for held, _ in changed], fields_modified=changed[0][1]
            )
            self.twin = lance.LanceDataset.commit(
                self.twin.uri, update, read_version=self.twin.version
            )

    @precondition(lambda self: self.other_names())
    @rule(data=st.data())
    def drop_columns(self, data: st.DataObject) -> None:
        chosen = st.lists(st.sampled_from(self.other_names()), min_size=1, max_size=2, unique=True)
        names = data.draw(chosen)
        self.ours.alter.drop_columns(names)
        self.twin.drop_columns(names)

    @rule()
    def compact(self) -> None:
        """All small fragments into one; a single one only if rows of it are deleted."""
        self.ours.optimize.compact(max_deleted_fraction=0.0)
        self.twin.optimize.compact_files(materialize_deletions_threshold=0.0)

    @rule(rows=st.integers(0, 7), each=st.integers(1, 4), whole=st.booleans())
    def overwrite(self, rows: int, each: int, whole: bool) -> None:
        data = self.data(rows, self.ours.schema if whole else BASE)
        self.ours.overwrite(
            data, schema_mode="overwrite", options=txlog.WriteOptions(max_rows_per_file=each)
        )
        self.twin = lance.write_dataset(
            data, self.twin.uri, mode="overwrite", max_rows_per_file=each
        )

    @rule(data=st.data())
    def restore(self, data: st.DataObject) -> None:
        ours, twin, _ = data.draw(st.sampled_from(self.versions))
        self.ours.restore(ours)
        self.twin = lance.dataset(self.twin.uri, version=twin)
        self.twin.restore()

    @rule(reopen=st.booleans())
    def checkpoint(self, reopen: bool) -> None:
        """Our affair alone: nothing may come of it."""
        self.ours.maintenance.checkpoint()
        if reopen:
            self.ours = txlog.Table(self.ours.uri)

    # What both must have --------------------------------------------------------------------

    @staticmethod
    def names(rows: list[dict[str, Any]]) -> list[str] | None:
        return list(rows[0]) if rows else None

    @invariant()
    def same(self) -> None:
        self.twin = lance.dataset(self.twin.uri)
        assert self.ours.schema == self.twin.schema
        ours, twin = self.ours.fragments(), self.twin.get_fragments()
        for said in (
            lambda f: f.fragment_id,
            lambda f: f.physical_rows,
            lambda f: f.num_deletions,
            lambda f: f.count_rows(),
            lambda f: f.count_rows("x % 3 = 1"),
            lambda f: f.head(2).to_pylist(),
            lambda f: f.deletion_file() is None,
        ):
            assert [said(f) for f in ours] == [said(f) for f in twin]
        assert all(fragment.is_durable for fragment in ours)
        assert self.ours.count() == self.twin.count_rows()
        rows = self.ours.to_arrow([*self.ours.schema.names, "_rowaddr"]).to_pylist()
        assert rows == self.twin.to_table(with_row_address=True).to_pylist()
        self.same_taken(rows)
        for number, fragment in enumerate(ours):
            left = [row for row in rows if row["_rowaddr"] >> 32 == fragment.id]
            every = range(0, len(left), 2)
            offsets = [left[at]["_rowaddr"] & 0xFFFFFFFF for at in every]
            assert fragment.take(every).to_pylist() == twin[number].take(every).to_pylist()
            assert fragment.take_offsets(offsets).to_pylist() == fragment.take(every).to_pylist()
        self.versions.append((self.ours.version, self.twin.version, rows))

    def same_taken(self, rows: Sequence[dict[str, Any]]) -> None:
        """An address has one meaning for ever, so no id is given twice."""
        for row in rows:
            assert self.meaning.setdefault(row["_rowaddr"], row["x"]) == row["x"]
        asked = [row["_rowaddr"] for row in rows][::-1]
        asked += asked[:1]
        if not asked:
            return
        taken = self.ours.take(addresses=asked)
        assert taken.to_pylist() == self.twin._take_rows(asked).to_pylist()
        gone = next((a for a in self.meaning if a not in asked), None)
        if gone is not None:
            with pytest.raises(txlog.NotFoundError):
                self.ours.take(addresses=[gone])


def run(examples: int, steps: int) -> None:
    run_state_machine_as_test(  # type: ignore[no-untyped-call]
        Both,
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            derandomize=True,  # Pylance is no part of what may fail at random.
            database=None,
            phases=[Phase.explicit, Phase.generate, Phase.shrink],  # Explaining is slow.
            suppress_health_check=list(HealthCheck),
        ),
    )


@pytest.mark.slow
@pytest.mark.spec("FRG-3", "FRG-5", "FRG-8", "FRG-9", "FRG-10")
def test_operations_leave_the_same() -> None:
    run(8, 8)


@pytest.mark.slow
@pytest.mark.spec("FRG-49", "FRG-50")
@settings(max_examples=examples(60), deadline=None, derandomize=True, database=None)
@given(data=st.data(), form=st.sampled_from(["delta", "lance"]), rows=st.integers(5, 12))
def test_updates_of_some_rows_leave_the_same(data: st.DataObject, form: str, rows: int) -> None:
    """New files with some values of a column are what Lance calls overlays."""
    both = Both()
    both.create(form, rows)
    try:
        for _ in range(data.draw(st.integers(1, 5))):
            if data.draw(st.integers(0, 5)) == 0:
                both.delete(data)
            if both.ours.fragments():
                both.update_rows(data, data.draw(st.sampled_from(["layer", "layer", "whole"])))
            both.same()
    finally:
        both.teardown()


@pytest.mark.exhaustive
def test_many_operations_leave_the_same() -> None:
    run(40, 20)
