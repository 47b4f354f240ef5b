"""All verbs in any order, by several handles, against rows as dicts.

After each step the table has the rows of the model. At the end so has each of its versions, for
txlog and for the Delta kernel, and the change data feed of each version turns the rows before it
into those after it. Handles are not refreshed, so most verbs meet commits that they do not know.
"""

import datetime as dt
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

import txlog
from tests.examples import examples

kernel = pytest.importorskip("polars_deltalake")

MODE = "delta.columnMapping.mode"
FIRST = pa.schema(
    [
        ("k", pa.int64()),
        ("g", pa.string()),
        ("v", pa.int64()),
        ("s", pa.struct([("f", pa.float64()), ("t", pa.string())])),
        ("d", pa.timestamp("us", "UTC")),
    ]
)
GIVEN = len(FIRST)  # The columns that are never dropped.
Row = dict[str, Any]


def moment(day: int) -> dt.datetime:
    return dt.datetime(2024, 1, day, 1, 2, 3, 456789, dt.UTC)


WHERE: dict[str, Callable[[Row], bool]] = {
    "k % 3 = 0": lambda row: row["k"] % 3 == 0,
    "g = 'a'": lambda row: row["g"] == "a",
    "g IS NULL OR k % 2 = 1": lambda row: row["g"] is None or row["k"] % 2 == 1,
    "v > 3": lambda row: row["v"] is not None and row["v"] > 3,
    "v IS NULL": lambda row: row["v"] is None,
    "k >= 0": lambda row: row["k"] >= 0,
    "g = 'c d%' AND v < 5": lambda row: (
        row["g"] == "c d%" and row["v"] is not None and row["v"] < 5
    ),
    "g = 'b' OR v = 0": lambda row: row["g"] == "b" or row["v"] == 0,
    "NOT (v >= 2)": lambda row: row["v"] is not None and row["v"] < 2,
    "s.f > 1": lambda row: row["s"] is not None and (row["s"]["f"] or 0) > 1,
    f"d < '{moment(2).isoformat()}'": lambda row: row["d"] is not None and row["d"] < moment(2),
    f"d = '{moment(2).isoformat()}'": lambda row: row["d"] == moment(2),
}
wheres = st.sampled_from(list(WHERE))
groups = st.sampled_from(["a", "b", "c d%", "é %", None])
values = st.none() | st.integers(0, 9)
structs = st.none() | st.fixed_dictionaries(
    {"f": st.sampled_from([None, 0.5, 2.0]), "t": st.sampled_from([None, "u"])}
)
moments = st.none() | st.integers(1, 3).map(moment)
Given = tuple[str | None, int | None, dict[str, Any] | None, dt.datetime | None]
given_rows = st.tuples(groups, values, structs, moments)
handles = st.integers(0, 2)


class AllVerbs(RuleBasedStateMachine):
    """One table, three handles of it, and what each of its versions was."""

    @initialize(
        vectors=st.sampled_from(["true", "false", None]),
        tracked=st.booleans(),
        mode=st.sampled_from(["none", "name", "id"]),
        partition_by=st.sampled_from([(), ("g",)]),
        interval=st.sampled_from(["3", "100"]),
    )
    def create(
        self,
        vectors: str | None,
        tracked: bool,
        mode: str,
        partition_by: tuple[str, ...],
        interval: str,
    ) -> None:
        self.home = Path(tempfile.mkdtemp())
        self.root = self.home / "t"
        properties = {"delta.enableChangeDataFeed": "true", "delta.checkpointInterval": interval}
        if vectors is not None:
            properties["delta.enableDeletionVectors"] = vectors
        if tracked:
            properties["delta.enableRowTracking"] = "true"
        if mode != "none":
            properties[MODE] = mode
        made = txlog.Table.create(self.root, FIRST, partition_by, properties)
        self.handles = [made, txlog.Table(self.root), txlog.Table(self.root)]
        self.mode, self.partition_by = mode, partition_by
        self.plain = vectors == "false" and mode == "none"
        self.moves = not (tracked and vectors == "false")  # A transaction can move its own rows.
        self.columns = [*FIRST.names]
        self.rows: list[Row] = []
        self.keys = 0
        self.versions = {0: (self.columns, self.rows)}

    def teardown(self) -> None:
        if not hasattr(self, "home"):
            return
        latest = max(self.versions)
        for version in range(latest + 1):
            columns, rows = self.versions[version]
            old = txlog.Table(self.root, version=version)
            assert (old.schema.names, sorted_rows(old.to_arrow())) == (columns, rows)
            seen = kernel.scan_delta(str(self.root), version=version).collect().to_arrow()
            assert sorted_rows(seen) == rows
            if self.plain:
                theirs = deltalake.DeltaTable(self.root, version=version).to_pyarrow_table()
                assert sorted_rows(theirs) == rows
            if version:
                self.check_feed(version)
        shutil.rmtree(self.home)

    def check_feed(self, version: int) -> None:
        """Hold the changes of a version against the rows before and after it."""
        feed = txlog.Table(self.root, version=version).changes(version, version).to_arrow()
        found: dict[str, Counter[Any]] = {}
        for row in feed.to_pylist():
            kind = row["_change_type"]
            found.setdefault(kind, Counter())[row["k"], row["g"], row["v"]] += 1
        before, after = (
            Counter((row["k"], row["g"], row["v"]) for row in self.versions[at][1])
            for at in (version - 1, version)
        )
        for kind in ("insert", "update_postimage"):  # A transaction may delete a row that it adds.
            before.update(found.get(kind, {}))
        for kind in ("delete", "update_preimage"):
            before.subtract(found.get(kind, {}))
        assert min(before.values(), default=0) >= 0
        assert +before == after
        kinds = ("update_preimage", "update_postimage")
        one, other = (Counter(k for k, _, _ in found.get(kind, {})) for kind in kinds)
        assert one == other

    def do(
        self,
        handle: int,
        verb: Callable[[txlog.Table], Any],
        rows: list[Row],
        columns: list[str] | None = None,
    ) -> None:
        """Call a verb. A handle that is behind may be refused; then nothing has changed."""
        table = self.handles[handle]
        before = txlog.Table(self.root).version
        behind = table.version != before
        try:
            verb(table)
        except txlog.TxlogError:
            if not behind:
                raise
            assert txlog.Table(self.root).version == before
            verb(table.refresh())
        self.columns = self.columns if columns is None else columns
        self.rows = sorted(
            ({name: row.get(name) for name in self.columns} for row in rows),
            key=lambda row: row["k"],
        )
        version = txlog.Table(self.root).version
        assert before is not None
        assert version in (before, before + 1)
        if version == before:
            assert (self.columns, self.rows) == self.versions[before]
        self.versions[version] = (self.columns, self.rows)
        assert sorted_rows(table.to_arrow()) == self.rows

    def new_rows(self, given: list[Given]) -> list[Row]:
        """Return rows with keys that never were there, and the other columns filled."""
        rows = []
        for group, value, struct, day in given:
            self.keys += 1
            row: Row = dict.fromkeys(self.columns, self.keys)
            rows.append({**row, "g": group, "v": value, "s": struct, "d": day})
        return rows

    def table_of(self, rows: list[Row], **more: pa.DataType) -> pa.Table:
        fields = [*FIRST, *(pa.field(name, pa.int64()) for name in self.columns[GIVEN:])]
        added = [pa.field(name, kind) for name, kind in more.items()]
        return pa.Table.from_pylist(rows, pa.schema([*fields, *added]))

    @rule(
        handle=handles,
        given=st.lists(given_rows, min_size=1, max_size=4),
        size=st.none() | st.integers(1, 3),
    )
    def append(self, handle: int, given: list[Given], size: int | None) -> None:
        new = self.new_rows(given)
        data = self.table_of(new)
        options = txlog.WriteOptions(max_rows_per_file=size) if size is not None else None
        self.do(handle, lambda table: table.append(data, options=options), self.rows + new)

    @precondition(lambda self: len(self.columns) < GIVEN + 3)
    @rule(handle=handles, name=st.sampled_from(["x", "y z", "Q"]), with_rows=st.booleans())
    def add_column(self, handle: int, name: str, with_rows: bool) -> None:
        if name in self.columns or (self.mode == "none" and " " in name):
            return
        columns = [*self.columns, name]
        if with_rows:
            new = [{**row, name: 7} for row in self.new_rows([("a", 1, None, None)])]
            data = self.table_of(new, **{name: pa.int64()})
            merged = self.rows + new
            self.do(handle, lambda table: table.append(data, schema_mode="merge"), merged, columns)
        else:
            added = {f"`{name}`": pa.int64()}
            self.do(handle, lambda table: table.alter.add_columns(added), self.rows, columns)

    @precondition(lambda self: self.mode != "none" and len(self.columns) > GIVEN)
    @rule(handle=handles, drop=st.booleans(), data=st.data())
    def rename_or_drop(self, handle: int, drop: bool, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(self.columns[GIVEN:]))
        if drop:
            left = [one for one in self.columns if one != name]
            self.do(handle, lambda table: table.alter.drop_columns(f"`{name}`"), self.rows, left)
            return
        new = f"{name}2"
        renamed = [{new if k == name else k: v for k, v in row.items()} for row in self.rows]
        columns = [new if one == name else one for one in self.columns]
        change = f"`{name}`"
        self.do(handle, lambda table: table.alter.rename_column(change, new), renamed, columns)

    @rule(handle=handles, where=st.none() | wheres)
    def delete(self, handle: int, where: str | None) -> None:
        left = [row for row in self.rows if where is not None and not WHERE[where](row)]
        gone = len(self.rows) - len(left)

        def verb(table: txlog.Table) -> None:
            outcome = table.delete(where)
            assert outcome.metrics.get("numDeletedRows", 0) == gone
            assert bool(outcome) is (gone > 0)

        self.do(handle, verb, left)

    @rule(handle=handles, where=wheres, to=groups)
    def update(self, handle: int, where: str, to: str | None) -> None:
        changed = [
            {**row, "g": to, "v": None if row["v"] is None else row["v"] + 1}
            if WHERE[where](row)
            else row
            for row in self.rows
        ]
        given = {"g": "CAST(NULL AS STRING)" if to is None else f"'{to}'", "v": "v + 1"}
        self.do(handle, lambda table: table.update(given, where), changed)

    @rule(
        handle=handles,
        given=st.lists(given_rows, max_size=3),
        matched=st.sampled_from(["update", "delete", "upsert"]),
        where=st.none() | wheres,
        data=st.data(),
    )
    def merge(
        self,
        handle: int,
        given: list[Given],
        matched: str,
        where: str | None,
        data: st.DataObject,
    ) -> None:
        held = [row["k"] for row in self.rows]
        keys = data.draw(st.sets(st.sampled_from(held), max_size=4)) if held else set()
        new = self.new_rows(given)
        source = [{**row, "v": 50} for row in self.rows if row["k"] in keys] + new
        if not source:
            return
        rows = self.table_of(source)

        def verb(table: txlog.Table) -> None:
            if matched == "upsert" and where is None:
                table.upsert(rows, on="k")
                return
            merger = table.merge(rows, "target.k = source.k")
            if matched == "delete":
                merger.when_matched_delete()
            else:
                merger.when_matched_update({"v": "source.v + target.k"}, "source.k % 2 = 0")
                merger.when_matched_update_all()
            merger.when_not_matched_insert_all()
            if where is not None:
                merger.when_not_matched_by_source_delete(where.replace("k ", "target.k "))
            merger.execute()

        left = []
        for row in self.rows:
            if row["k"] not in keys:
                left += [] if where is not None and WHERE[where](row) else [row]
            elif matched == "upsert" and where is None:
                left.append({**row, "v": 50})
            elif matched != "delete":
                left.append({**row, "v": 50 + (row["k"] if row["k"] % 2 == 0 else 0)})
        self.do(handle, verb, left + new)

    @rule(handle=handles, given=st.lists(given_rows, max_size=3), part=st.booleans())
    def overwrite(self, handle: int, given: list[Given], part: bool) -> None:
        new = self.new_rows([("a", *others) for _, *others in given] if part else given)
        data = self.table_of(new)
        left = [row for row in self.rows if row["g"] != "a"] if part else []
        where = "g = 'a'" if part else None
        self.do(handle, lambda table: table.overwrite(data, where), left + new)

    @rule(handle=handles, given=st.lists(given_rows, max_size=3))
    def overwrite_partitions(self, handle: int, given: list[Given]) -> None:
        new = self.new_rows(given)
        data = self.table_of(new)
        if not self.partition_by:
            with pytest.raises(txlog.InvalidInputError, match="partition"):
                self.handles[handle].overwrite(data, partition_mode="dynamic")
            return
        written = {row["g"] for row in new}
        left = [row for row in self.rows if row["g"] not in written]
        self.do(handle, lambda table: table.overwrite(data, partition_mode="dynamic"), left + new)

    @rule(handle=handles, given=st.lists(given_rows, max_size=3), where=wheres)
    def transaction(self, handle: int, given: list[Given], where: str) -> None:
        if not self.moves:
            return
        new = self.new_rows(given)
        data = self.table_of(new)

        def verb(table: txlog.Table) -> None:
            with table.transaction() as tx:
                tx.append(data)
                tx.delete(where)
                tx.update({"v": "77"}, "k % 2 = 0")

        left = [row for row in self.rows + new if not WHERE[where](row)]
        self.do(handle, verb, [{**row, "v": 77} if row["k"] % 2 == 0 else row for row in left])

    @rule(handle=handles, verb=st.sampled_from(["compact", "z_order", "statistics", "property"]))
    def rearrange(self, handle: int, verb: str) -> None:
        def call(table: txlog.Table) -> None:
            if verb == "compact":
                table.optimize.compact(max_deleted_fraction=0)
            elif verb == "z_order":
                table.optimize.z_order(["k", "v"])
            elif verb == "statistics":
                table.optimize.compute_statistics(recompute=True)
            else:
                table.alter.set_properties({"owner": str(self.keys)})

        self.do(handle, call, self.rows)

    @rule(handle=handles, checkpoint=st.booleans())
    def look_again(self, handle: int, checkpoint: bool) -> None:
        self.handles[handle] = txlog.Table(self.root)
        if checkpoint:
            self.handles[handle].maintenance.checkpoint()

    @precondition(lambda self: len(self.versions) > 1)
    @rule(handle=handles, data=st.data())
    def restore(self, handle: int, data: st.DataObject) -> None:
        version = data.draw(st.sampled_from(sorted(self.versions)))
        columns, rows = self.versions[version]
        self.do(handle, lambda table: table.restore(version), rows, columns)

    @rule(data=st.data())
    def read_back(self, data: st.DataObject) -> None:
        columns, rows = self.versions[version := data.draw(st.sampled_from(sorted(self.versions)))]
        where = data.draw(wheres)
        old = txlog.Table(self.root, version=version)
        assert old.schema.names == columns
        expected = [row for row in rows if WHERE[where](row)]
        assert sorted_rows(old.to_arrow(where=where)) == expected
        assert old.count(where) == len(expected)

    @invariant()
    def holds(self) -> None:
        if hasattr(self, "handles"):
            table = txlog.Table(self.root)
            assert table.version == max(self.versions)
            assert sorted_rows(table.to_arrow()) == self.rows
            assert table.count() == len(self.rows)
            files = table.files()
            stated = sum(files["num_records"].to_pylist()) - sum(files["num_deleted"].to_pylist())
            assert stated == len(self.rows)


def sorted_rows(rows: pa.Table) -> list[Row]:
    return sorted(rows.to_pylist(), key=lambda row: row["k"])


TestAllVerbs = pytest.mark.slow(AllVerbs.TestCase)
TestAllVerbs.settings = settings(max_examples=examples(50), stateful_step_count=7, deadline=None)
