"""Updates by column files: the same rows as updates that move rows, for every reader."""

import json
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

import txlog
from tests.examples import examples
from tests.moved import moved
from txlog.fragments.rows import GIVEN
from txlog.training.loader.loader import Loader
from txlog.training.loader.order import Shuffle

FEATURE = {"delta.feature.txlog.fragments": "supported"}
TRACKED = {"delta.enableRowTracking": "true"}
FEED = {"delta.enableChangeDataFeed": "true"}
MODULE = "txlog.data_files.column_updates:"
ALWAYS = -(1 << 40)
WAYS: dict[str, dict[str, int]] = {
    "usual": {},
    "layer": {
        "_FILE_BYTES": ALWAYS,
        "_BITS": 0,
        "_LAYER_TIMES": 1,
        "_MOST_LAYERS": 99,
        "_MOST_LAYERS_OF_VERSIONS": 99,
    },
    "whole": {"_FILE_BYTES": ALWAYS, "_MOST_LAYERS": 0},
    "move": {"_FILE_BYTES": -ALWAYS},
}
"""Thresholds with which rows change in one way."""

Row = dict[str, Any]


def by(way: str) -> Any:
    return moved({MODULE + name: value for name, value in WAYS[way].items()})


SCHEMA = pa.schema(
    [
        ("k", pa.int64()),
        ("g", pa.string()),
        ("v", pa.int64()),
        ("t", pa.string()),
        ("s", pa.struct([("a", pa.int64()), ("b", pa.list_(pa.int64()))])),
    ]
)
WHERE: dict[str, Callable[[Row], bool]] = {
    "k % 3 = 0": lambda row: row["k"] % 3 == 0,
    "k % 7 = 1": lambda row: row["k"] % 7 == 1,
    "v > 20": lambda row: row["v"] is not None and row["v"] > 20,
    "v IS NULL": lambda row: row["v"] is None,
    "t = 'x'": lambda row: row["t"] == "x",
    "t >= 'x!' AND v < 9": lambda row: (
        row["t"] is not None and row["t"] >= "x!" and row["v"] is not None and row["v"] < 9
    ),
    "s.a = 5 OR g = 'b'": lambda row: (
        row["g"] == "b" or (row["s"] is not None and row["s"]["a"] == 5)
    ),
    "k >= 0": lambda row: row["k"] >= 0,
}
SETS: dict[str, tuple[dict[str, str], Callable[[Row], Row]]] = {
    "a number": (
        {"v": "coalesce(v, 0) + 13"},
        lambda row: {"v": (0 if row["v"] is None else row["v"]) + 13},
    ),
    "nulls": ({"v": "NULL"}, lambda _: {"v": None}),
    "texts": (
        {"t": "concat(t, '!')"},
        lambda row: {"t": None if row["t"] is None else row["t"] + "!"},
    ),
    "both": ({"t": "'x'", "v": "k"}, lambda row: {"t": "x", "v": row["k"]}),
    "a field": (
        {"s.a": "k + 1"},
        lambda row: {"s": {"a": row["k"] + 1, "b": row["s"] and row["s"]["b"]}},
    ),
}
wheres, ways, names = map(st.sampled_from, (list(WHERE), list(WAYS), list(SETS)))
given_rows = st.tuples(
    st.sampled_from(["a", "b", None]),
    st.none() | st.integers(0, 40),
    st.sampled_from([None, "x", "y", "x!"]),
    st.none() | (st.none() | st.integers(4, 6)).map(lambda a: {"a": a, "b": [1, 2]}),
)


class Updates(RuleBasedStateMachine):
    """A table whose rows change in all ways, beside rows as dicts with ids and versions."""

    @initialize(
        tracked=st.booleans(),
        feed=st.booleans(),
        mode=st.sampled_from(["none", "name", "id"]),
        partition_by=st.sampled_from([(), ("g",)]),
        lance=st.booleans(),
        given=st.lists(given_rows, min_size=5, max_size=12),
    )
    def create(
        self,
        tracked: bool,
        feed: bool,
        mode: str,
        partition_by: tuple[str, ...],
        lance: bool,
        given: list[tuple[Any, ...]],
    ) -> None:
        self.home = Path(tempfile.mkdtemp())
        properties = {**FEATURE, "delta.checkpointInterval": "4"}
        properties |= TRACKED if tracked else {}
        properties |= FEED if feed else {}
        properties |= {"delta.columnMapping.mode": mode} if mode != "none" else {}
        properties |= {"txlog.deletionFormat": "lance"} if lance else {}
        self.table = txlog.Table.create(self.home / "t", SCHEMA, partition_by, properties)
        self.table.indexes.create("k")
        self.table.indexes.create("t")
        self.tracked, self.feed = tracked, feed
        self.rows: list[Row] = []
        self.keys = 0
        self.versions = {self.table.version: self.rows}
        self.ids: dict[int, int] = {}
        self.add(given, 100)

    def teardown(self) -> None:
        if not hasattr(self, "home"):
            return
        first = min(self.versions)
        before: list[Row] = []
        for version in range(first, max(self.versions) + 1):
            rows = self.versions.get(version, before)
            old = txlog.Table(self.table.uri, version=version)
            assert _plain(old.to_arrow()) == _without_versions(rows), version
            if self.feed and version > first:
                self.check_feed(version, before, rows)
            before = rows
        shutil.rmtree(self.home)

    def check_feed(self, version: int, before: list[Row], after: list[Row]) -> None:
        changes = self.table.changes(version, version).to_arrow().to_pylist()
        found = Counter(_key(row) for row in before)
        for row in changes:
            found[_key(row)] += 1 if row["_change_type"] in ("insert", "update_postimage") else -1
        assert min(found.values(), default=0) >= 0
        assert +found == Counter(_key(row) for row in after)

    def after(self, rows: list[Row]) -> None:
        """Hold the table against the rows that it must have, by every reader."""
        self.rows = sorted(rows, key=lambda row: row["k"])
        table = self.table
        assert table.version is not None
        self.versions[table.version] = self.rows
        plain = _without_versions(self.rows)
        assert _plain(table.to_arrow()) == plain
        assert _plain(table.to_polars().to_arrow()) == plain
        assert _plain(table.to_pyarrow_dataset().to_table()) == plain
        assert _plain(txlog.sql("SELECT * FROM t", {"t": table})) == plain
        for where, is_true in WHERE.items():
            expected = [row for row in plain if is_true(row)]
            assert _plain(table.to_arrow(where=where)) == expected, where
            assert table.count(where) == len(expected), where
        keys = [row["k"] for row in plain]
        assert table.lookup(keys[::-1], on="k").select(SCHEMA.names).to_pylist() == plain[::-1]
        texts = table.lookup(["x", "x!"], on="t").select(SCHEMA.names)
        assert _plain(texts) == [row for row in plain if row["t"] in ("x", "x!")]
        whole = table.to_arrow()
        places = pa.array(range(len(plain) - 1, -1, -2), pa.int64())
        assert table.take(places) == whole.take(places)
        addressed = table.to_arrow(["k", "v", "_rowaddr"])
        some = addressed.slice(0, 3)
        assert table.take(addresses=some["_rowaddr"]) == whole.slice(0, 3)
        if plain:
            numbers = [(row["k"], row["v"]) for row in plain if row["v"] is not None]
            loaded = Loader(
                table,
                batch_size=3,
                columns=["k", "v"],
                where="v IS NOT NULL",
                shuffle=Shuffle(),
                even="short",
            )
            assert sorted(pair for batch in loaded for pair in _pairs(batch)) == numbers
        if self.tracked:
            names = ["k", "_rowid", "_row_last_updated_at_version"]
            found = table.to_arrow(names).sort_by("k").to_pylist()
            assert [row[names[2]] for row in found] == [row["version"] for row in self.rows]
            ids = {row["k"]: row["_rowid"] for row in found}
            assert all(self.ids.setdefault(k, one) == one for k, one in ids.items())
            assert len(set(ids.values())) == len(ids)

    def new(self, rows: list[Row], change: Callable[[Row], Row] | None, where: str) -> list[Row]:
        version = (self.table.version or 0) + 1
        return [
            {**row, **change(row), "version": version}
            if change is not None and WHERE[where](row)
            else row
            for row in rows
            if change is not None or not WHERE[where](row)
        ]

    @rule(given=st.lists(given_rows, min_size=1, max_size=9), size=st.sampled_from([3, 100]))
    def append(self, given: list[tuple[Any, ...]], size: int) -> None:
        self.add(given, size)

    def add(self, given: list[tuple[Any, ...]], size: int) -> None:
        version = (self.table.version or 0) + 1
        rows = []
        for one in given:
            self.keys += 1
            row = dict(zip(SCHEMA.names, (self.keys, *one), strict=True))
            rows.append({**row, "version": version})
        data = pa.Table.from_pylist(_without_versions(rows), SCHEMA)
        self.table.append(data, options=txlog.WriteOptions(max_rows_per_file=size))
        self.after(self.rows + rows)

    @rule(way=ways, where=wheres, name=names)
    def update(self, way: str, where: str, name: str) -> None:
        self.change(way, where, name)

    @rule(where=wheres, name=names)
    def update_by_layers(self, where: str, name: str) -> None:
        self.change("layer", where, name)

    @rule(where=wheres, other=wheres, name=names)
    def update_twice(self, where: str, other: str, name: str) -> None:
        self.change("layer", where, name)
        self.change("whole", other, name)

    def change(self, way: str, where: str, name: str) -> None:
        texts, change = SETS[name]
        rows = self.new(self.rows, change, where)
        addresses = self.table.to_arrow(["k", "_rowaddr"]).sort_by("k")
        count = sum(map(WHERE[where], self.rows))
        with by(way):
            outcome = self.table.update(texts, where)
        assert outcome.metrics.get("numUpdatedRows", 0) == count
        if way in ("layer", "whole"):
            assert self.table.to_arrow(["k", "_rowaddr"]).sort_by("k") == addresses
        self.after(rows if count else self.rows)

    @rule(where=wheres)
    def delete(self, where: str) -> None:
        rows = self.new(self.rows, None, where)
        self.table.delete(where)
        self.after(rows)

    @rule(where=wheres)
    def merge(self, where: str) -> None:
        source = [row for row in _without_versions(self.rows) if WHERE[where](row)]
        if not source:
            return
        data = pa.Table.from_pylist(source, SCHEMA)
        rows = self.new(self.rows, lambda _: {"v": 17}, where)
        merger = self.table.merge(data, "target.k = source.k")
        merger.when_matched_update({"v": "17"}).execute()
        self.after(rows)

    @rule(name=st.sampled_from(["v", "t"]))
    def replace_column(self, name: str) -> None:
        text, change = {
            "v": ("v + 1", lambda row: {"v": None if row["v"] is None else row["v"] + 1}),
            "t": (
                "concat(t, 'x')",
                lambda row: {"t": None if row["t"] is None else f"{row['t']}x"},
            ),
        }[name]
        rows = self.new(self.rows, change, "k >= 0")
        self.table.alter.replace_columns({name: text})
        self.after(rows)

    @rule(most=st.integers(0, 2))
    def compact(self, most: int) -> None:
        self.table.optimize.compact(max_column_files=most)
        self.after(self.rows)

    @rule()
    def vacuum(self) -> None:
        self.table.vacuum(retention_hours=24 * 365, dry_run=False)
        self.after(self.rows)

    @rule(data=st.data())
    def restore(self, data: st.DataObject) -> None:
        version = data.draw(st.sampled_from(sorted(self.versions)))
        self.table.restore(version)
        self.after(self.versions[version])

    @rule()
    def compute_statistics(self) -> None:
        self.table.optimize.compute_statistics(recompute=True)
        self.after(self.rows)

    @rule(way=st.sampled_from(["layer", "whole"]), where=wheres)
    def transaction(self, way: str, where: str) -> None:
        """Rows of a transaction have no final ids yet, so they move."""
        texts, change = SETS["a number"]
        rows = self.new(self.new(self.rows, change, "k >= 0"), change, where)
        if not self.rows:
            return
        with by(way), self.table.transaction() as together:
            together.update(texts)
            together.update(texts, where)
        self.after(rows)


def _pairs(batch: Any) -> list[tuple[int, Any]]:
    return list(zip(np.asarray(batch["k"]).tolist(), np.asarray(batch["v"]).tolist(), strict=True))


def _without_versions(rows: list[Row]) -> list[Row]:
    return [{name: row[name] for name in SCHEMA.names} for row in rows]


def _plain(rows: pa.Table) -> list[Row]:
    return rows.select(SCHEMA.names).sort_by("k").to_pylist()


def _key(row: Row) -> str:
    return repr([row[name] for name in SCHEMA.names])


TestUpdates = pytest.mark.spec("FRG-48", "FRG-49", "FRG-50")(pytest.mark.slow(Updates.TestCase))
TestUpdates.settings = settings(max_examples=examples(40), stateful_step_count=15, deadline=None)


def wide(root: Path, rows: int = 20_000, columns: int = 40, **properties: str) -> txlog.Table:
    """Make a table of two fragments with texts that do not compress."""
    random = np.random.default_rng(0)
    data = {"k": pa.array(range(rows), pa.int64())}
    data |= {f"c{at}": pa.array(random.random(rows)) for at in range(columns)}
    table = txlog.Table.create(
        root, pa.table(data).schema, properties={**FEATURE, **TRACKED, **FEED, **properties}
    )
    table.append(pa.table(data), options=txlog.WriteOptions(max_rows_per_file=rows // 2))
    return table


def files_of(table: txlog.Table) -> list[list[tuple[Any, int]]]:
    """Return the columns and the layer of each file of each fragment, the layers in their order."""
    return [
        [(one.fields, one.layer) for one in sorted(part.files, key=lambda file: file.layer)]
        for part in table.fragments()
    ]


@pytest.mark.spec("FRG-48", "FRG-50")
def test_a_wide_table_gets_layers_and_keeps_the_rest(tmp_path: Path) -> None:
    table = wide(tmp_path / "t")
    table.indexes.create("k")
    before = table.to_arrow(["k", "c1", "_rowid", "_rowaddr", "_row_last_updated_at_version"])
    known = set(tmp_path.rglob("*.parquet"))
    outcome = table.update({"c0": "c0 + 1"}, "k % 100 = 3")
    assert outcome.metrics["numUpdatedRows"] == 200
    names = {name for file in files_of(table) for fields, _ in file[1:] for name in fields}
    assert [[layer for _, layer in one] for one in files_of(table)] == [[0, 1], [0, 1]]
    assert "c0" in names
    assert len(names) == 2  # It, and the column of versions.
    written = sum(
        path.stat().st_size
        for path in set(tmp_path.rglob("*.parquet")) - known
        if "_change_data" not in path.parts
    )
    share = sum(one.size for part in table.fragments() for one in part.files[:1]) / 100
    assert written < share / 2
    after = table.to_arrow(before.column_names)
    assert after.drop_columns(before.column_names[4:]) == before.drop_columns(
        before.column_names[4:]
    )
    versions = after["_row_last_updated_at_version"].to_pylist()
    assert [v == table.version for v in versions] == [k % 100 == 3 for k in range(20_000)]
    # The rest of a column that is often changed is written with it.
    for _ in range(5):
        table.update({"c0": "c0 + 1"}, "k % 100 = 3")
    assert max(layer for one in files_of(table) for _, layer in one) <= 5
    found = table.to_arrow(["k", "c0"])
    values = zip(found["k"].to_pylist(), found["c0"].to_pylist(), strict=True)
    assert all((value >= 6) == (k % 100 == 3) for k, value in values)


@pytest.mark.spec("FRG-50")
def test_all_rows_get_files_of_all_rows(tmp_path: Path) -> None:
    table = wide(tmp_path / "t", 2_000, columns=30)
    table.update({"c3": "k"})
    assert [[layer for _, layer in one] for one in files_of(table)] == [[0, 0], [0, 0]]
    assert table.to_arrow(["c3"])["c3"].to_pylist() == list(range(2_000))


@pytest.mark.spec("FRG-18", "FRG-49")
def test_bounds_of_layers_widen_the_others(tmp_path: Path) -> None:
    schema = pa.schema([("k", pa.int64()), ("v", pa.int64()), ("t", pa.string())])
    properties = {**FEATURE, "txlog.rowGroupRows": "10", "txlog.bloomFilterColumns": "v,t"}
    table = txlog.Table.create(tmp_path / "t", schema, properties=properties)
    rows = pa.table({"k": range(60), "v": range(60), "t": [f"t{k:02}" for k in range(60)]})
    table.append(rows, options=txlog.WriteOptions(max_rows_per_file=30))
    with by("layer"):
        table.update({"v": "1000", "t": "'zz'"}, "k = 5")
        table.update({"v": "NULL"}, "k = 25")
    assert table.to_arrow(["k"], where="v = 1000")["k"].to_pylist() == [5]
    assert table.to_arrow(["k"], where="v > 40 AND v < 50").num_rows == 9
    assert table.to_arrow(["k"], where="t = 'zz'")["k"].to_pylist() == [5]
    assert table.to_arrow(["k"], where="v IS NULL")["k"].to_pylist() == [25]
    assert table.to_arrow(["k"], where="v = 5").num_rows == 0
    assert table.to_arrow(["k"], where="v IN (25, 26)")["k"].to_pylist() == [26]
    assert len(table.scan(["k"], where="v > 2000").fragments()) <= 1  # A null is no bound.
    assert len(table.scan(["k"], where="t > 'zzz'").fragments()) == 0
    assert [one.id for one in table.scan(["k"], where="t = 'zz'").fragments()] == [0]


@pytest.mark.spec("FRG-49", "LKP-8")
def test_an_index_of_the_changed_column_finds_the_new_values(tmp_path: Path) -> None:
    table = txlog.Table.create(tmp_path / "t", SCHEMA, properties=FEATURE)
    rows = [dict(zip(SCHEMA.names, (k, "a", k, f"t{k}", None), strict=True)) for k in range(40)]
    table.append(pa.Table.from_pylist(rows, SCHEMA))
    table.indexes.create("v")
    assert table.lookup([7], on="v")["k"].to_pylist() == [7]
    for way in ("layer", "layer", "whole", "layer"):
        with by(way):
            table.update({"v": "v + 100"}, "k = 7")
        value = table.to_arrow(["v"], where="k = 7")["v"][0].as_py()
        assert table.lookup([7], on="v").num_rows == 0
        assert table.lookup([value, 8], on="v")["k"].to_pylist() == [7, 8]
        table.indexes.build()
        assert table.lookup([value, 8, 7], on="v")["k"].to_pylist() == [7, 8]
        assert table.to_arrow(["k"], where=f"v = {value}")["k"].to_pylist() == [7]


@pytest.mark.spec("UNQ-3", "FRG-50")
@pytest.mark.parametrize("way", ["layer", "whole", "move"])
def test_unique_keys_are_enforced(tmp_path: Path, way: str) -> None:
    table = txlog.write(tmp_path / "t", pa.table({"k": [1, 2, 3], "v": [1, 2, 3]}))
    table.alter.add_features("txlog.fragments")
    table.alter.add_constraint({"one": txlog.unique("v")})
    with by(way), pytest.raises(txlog.DuplicateKeyError):
        table.update({"v": "3"}, "k = 1")
    with by(way):
        table.update({"v": "30"}, "k = 1")
    assert sorted(table.to_arrow(["v"])["v"].to_pylist()) == [2, 3, 30]


@pytest.mark.spec("FRG-50")
@pytest.mark.parametrize("way", ["layer", "whole", "move"])
def test_rules_hold_and_generated_columns_follow(tmp_path: Path, way: str) -> None:
    schema = pa.schema(
        [
            pa.field("k", pa.int64(), nullable=False),
            pa.field("v", pa.int64(), nullable=False),
            pa.field("w", pa.int64()),
            pa.field("twice", pa.int64(), metadata={"delta.generationExpression": "v * 2"}),
            pa.field("u", pa.int64(), metadata={"delta.generationExpression": "w + 1"}),
        ]
    )
    properties = {**FEATURE, "delta.constraints.order": "v < w"}
    table = txlog.Table.create(tmp_path / "t", schema, properties=properties)
    table.append(pa.table({"k": range(9), "v": range(9), "w": [100] * 9}))
    files = set(tmp_path.rglob("*.parquet"))
    with by(way):
        for text, reason in (("w + k", "order"), ("NULL", "null")):
            with pytest.raises(txlog.SchemaMismatchError, match=reason):
                table.update({"v": text}, "k = 4")
        assert set(tmp_path.rglob("*.parquet")) == files
        table.update({"v": "w - k - 1"}, "k % 2 = 0")
    for row in table.to_arrow().to_pylist():
        assert row["v"] == (99 - row["k"] if row["k"] % 2 == 0 else row["k"])
        assert (row["twice"], row["u"]) == (2 * row["v"], 101)


@pytest.mark.spec("FRG-50", "BLB-8")
@pytest.mark.parametrize("way", ["layer", "whole", "move"])
def test_large_values_change_and_stay(tmp_path: Path, way: str) -> None:
    schema = pa.schema([("k", pa.int64()), txlog.blob("b", above=10), ("n", pa.int64())])
    table = txlog.Table.create(tmp_path / "t", schema, properties={**FEATURE, **TRACKED})
    values = [bytes([k]) * 40 for k in range(8)]
    table.append(pa.table({"k": range(8), "b": pa.array(values, pa.large_binary()), "n": range(8)}))
    table.delete("k = 6")
    with by(way):
        table.update({"n": "n + 1"}, "k < 3")
        table.update({"b": txlog.lit(bytes(50))}, "k = 2")
        table.update({"b": txlog.lit(b"small")}, "k = 3")
    values[2], values[3] = bytes(50), b"small"
    for compacted in (False, True):
        if compacted:
            table.optimize.compact(max_column_files=0)
        table.vacuum(retention_hours=0, dry_run=False, enforce_retention_duration=False)
        found = table.to_arrow(["k", "b"])
        blobs, keys = table.blobs(found["b"]), found["k"].to_pylist()
        assert {k: one.read() for k, one in zip(keys, blobs, strict=True)} == {
            k: values[k] for k in range(8) if k != 6
        }


@pytest.mark.spec("FRG-50")
@pytest.mark.parametrize("tracked", [{}, TRACKED])
def test_workers_delete_rows_with_the_values_of_all_files(
    tmp_path: Path, tracked: dict[str, str]
) -> None:
    schema = pa.schema([("k", pa.int64()), ("v", pa.int64())])
    table = txlog.Table.create(tmp_path / "t", schema, properties={**FEATURE, **FEED, **tracked})
    table.append(pa.table({"k": range(10), "v": range(10)}))
    with by("layer"):
        table.update({"v": "v + 10"}, "k < 2")
    (part,) = table.fragments()
    held = part.delete("k % 3 = 1")
    assert held is not None
    operation = txlog.FragmentOperation.Delete([held], [])
    table.append(pa.table({"k": [10], "v": [10]}))
    table.commit(operation)
    changes = table.refresh().changes(table.version, table.version).to_arrow().sort_by("k")
    assert [(row["_change_type"], row["k"], row["v"]) for row in changes.to_pylist()] == [
        ("delete", 1, 11), ("delete", 4, 4), ("delete", 7, 7),
    ]  # fmt: skip
    files = set(tmp_path.rglob("*.parquet"))
    again = table.fragments()[0].delete("k < 4")
    assert again is not None
    table.delete("k = 3")
    with pytest.raises(txlog.CommitConflictError):
        table.commit(txlog.FragmentOperation.Delete([again], []))
    left = {path for path in set(tmp_path.rglob("*.parquet")) - files if "cdc" in path.name}
    feed = table.refresh().changes(table.version, table.version).to_arrow()
    assert (feed.num_rows, len(left)) == (1, 1)


@pytest.mark.spec("FRG-50")
def test_no_file_is_left_after_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    schema = pa.schema([("k", pa.int64()), ("v", pa.int64())])
    table = txlog.Table.create(tmp_path / "t", schema, properties=FEATURE)
    table.append(pa.table({"k": range(10), "v": range(10)}))
    files = set(tmp_path.rglob("*.parquet"))

    def fails(*_: object) -> None:
        raise OSError("the log cannot be read")

    monkeypatch.setattr("txlog.data_files.column_updates.outdated_files", fails)
    with by("layer"), pytest.raises(OSError, match="the log cannot be read"):
        table.update({"v": "0"}, "k = 1")
    assert set(tmp_path.rglob("*.parquet")) == files


@pytest.mark.spec("FRG-49")
@pytest.mark.parametrize("text", ["x", "0", "01", "1\n"])
def test_the_json_of_a_fragment_has_valid_layers(tmp_path: Path, text: str) -> None:
    schema = pa.schema([("k", pa.int64()), ("v", pa.int64())])
    table = txlog.Table.create(tmp_path / "t", schema, properties=FEATURE)
    table.append(pa.table({"k": range(10), "v": range(10)}))
    with by("layer"):
        table.update({"v": "0"}, "k = 1")
    (part,) = table.fragments()
    body = part.metadata.to_json()
    assert txlog.FragmentMetadata.from_json(body).files[1].layer == 1
    body["files"][1]["tags"]["txlog.layer"] = text
    with pytest.raises(txlog.InvalidInputError, match=r"txlog\.layer"):
        txlog.FragmentMetadata.from_json(body)


@pytest.mark.spec("FRG-50")
def test_layers_of_each_column_count(tmp_path: Path) -> None:
    """All of them give versions of rows; this alone makes no file of all rows."""
    schema = pa.schema([("k", pa.int64()), ("a", pa.int64()), ("b", pa.int64())])
    table = txlog.Table.create(tmp_path / "t", schema, properties={**FEATURE, **TRACKED})
    table.append(pa.table({name: range(10) for name in schema.names}))
    limits = {"_MOST_LAYERS": 4, "_MOST_LAYERS_OF_VERSIONS": 6}
    with moved({MODULE + name: value for name, value in {**WAYS["layer"], **limits}.items()}):
        for name in "aaaabbab":
            table.update({name: f"{name} + 1"}, "k = 1")
    ((_, *files),) = files_of(table)
    # The fifth layer of `a`, and the seventh of the versions, would have been too many.
    assert [(fields[0], layer) for fields, layer in files if layer] == [
        ("b", 5), ("b", 6), ("b", 7),
    ]  # fmt: skip
    assert table.to_arrow(where="k = 1").to_pylist() == [{"k": 1, "a": 6, "b": 4}]


@pytest.mark.spec("FRG-49")
def test_clones_and_branches_have_layers(tmp_path: Path) -> None:
    schema = pa.schema([("k", pa.int64()), ("v", pa.int64())])
    table = txlog.Table.create(tmp_path / "t", schema, properties={**FEATURE, **TRACKED})
    table.append(pa.table({"k": range(10), "v": range(10)}))
    columns = ["k", "v", "_rowid", "_row_last_updated_at_version"]
    with by("layer"):
        table.update({"v": "v + 10"}, "k = 1")
        expected = table.to_arrow(["k", "v"]).sort_by("k")
        for shallow in (True, False):
            copy = table.clone(tmp_path / f"copy {shallow}", shallow=shallow)
            assert copy.to_arrow(["k", "v"]).sort_by("k") == expected
            copy.update({"v": "v + 10"}, "k = 1 OR k = 2")
            values = copy.to_arrow(["k", "v"]).sort_by("k")["v"].to_pylist()
            assert values == [0, 21, 12, *range(3, 10)]
        table.branches.create("b")
        branch = txlog.Table(table.uri, branch="b")
        branch.update({"v": "v + 100"}, "k = 1 OR k = 3")
        on_branch = branch.to_arrow(columns).sort_by("k")
        assert on_branch["v"].to_pylist() == [0, 111, 2, 103, *range(4, 10)]
        table.branches.publish("b")
    found = table.refresh().to_arrow(columns).sort_by("k")
    assert found.select(columns[:3]) == on_branch.select(columns[:3])
    changed = [v == table.version for v in found[columns[3]].to_pylist()]
    assert changed == [k in (1, 3) for k in range(10)]


@pytest.mark.spec("FRG-15", "FRG-49")
@pytest.mark.parametrize("fault", ["twice", "0", "01", "x"])
def test_wrong_layers_are_refused(tmp_path: Path, fault: str) -> None:
    schema = pa.schema([("k", pa.int64()), ("v", pa.int64())])
    table = txlog.Table.create(tmp_path / "t", schema, properties=FEATURE)
    table.append(pa.table({"k": range(10), "v": range(10)}))
    with by("layer"):
        table.update({"v": "v + 1"}, "k = 1")
        table.update({"v": "v + 1"}, "k = 1")
    log = tmp_path / "t/_delta_log" / f"{table.version:020d}.json"
    text = log.read_text().replace('"txlog.layer":"2"', f'"txlog.layer":"{fault}"')
    text = text.replace('"txlog.layer":"twice"', '"txlog.layer":"1"')
    lines = [json.loads(line) for line in text.splitlines()]
    for line in lines:
        line.get("commitInfo", {}).pop("txlogCrc32", None)
    log.write_text("\n".join(map(json.dumps, lines)))
    with pytest.raises(txlog.LogCorruptError, match=r"txlog\.layer"):
        txlog.Table(table.uri).to_arrow()


@pytest.mark.spec("FRG-49")
def test_a_layer_without_marks_is_refused(tmp_path: Path) -> None:
    schema = pa.schema([("k", pa.int64()), ("v", pa.int64())])
    table = txlog.Table.create(tmp_path / "t", schema, properties=FEATURE)
    table.append(pa.table({"k": range(10), "v": range(10)}))
    with by("layer"):
        table.update({"v": "v + 1"}, "k = 1")
    (name,) = (file.path for part in table.fragments() for file in part.files if file.layer)
    path = tmp_path / "t" / name
    pq.write_table(pq.read_table(path).drop_columns(GIVEN), path)
    again = txlog.Table(table.uri)
    assert again.to_arrow(["k"]).num_rows == 10
    with pytest.raises(txlog.DataFileError, match=GIVEN):
        again.to_arrow(["v"])


def test_the_proposed_feature_is_refused_by_its_name(tmp_path: Path) -> None:
    table = txlog.write(tmp_path / "t", pa.table({"k": [1]}))
    log = tmp_path / "t/_delta_log" / f"{1:020d}.json"
    feature = {"readerFeatures": ["columnUpdates"], "writerFeatures": ["columnUpdates"]}
    protocol = {"minReaderVersion": 3, "minWriterVersion": 7, **feature}
    log.write_text(json.dumps({"protocol": protocol}))
    with pytest.raises(txlog.UnsupportedFeatureError, match="columnUpdates") as raised:
        txlog.Table(table.uri).to_arrow()
    assert raised.value.features == ("columnUpdates",)
