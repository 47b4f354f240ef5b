"""Columns are renamed, dropped, added again and moved: a state machine, compared with dicts."""

import json
import shutil
import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

import txlog
from tests.examples import examples

kernel = pytest.importorskip("polars_deltalake")

MODE = "delta.columnMapping.mode"
NAMES = ("a", "b", "c d", "e,f", "G")


class Columns(RuleBasedStateMachine):
    """One table, its rows as dicts by name, and what each of its versions was."""

    @initialize(mode=st.sampled_from(["name", "id", "legacy"]), vectors=st.booleans())
    def create(self, mode: str, vectors: bool) -> None:
        self.home = Path(tempfile.mkdtemp())
        first = pa.schema(
            [("key", pa.int64()), ("a", pa.int64()), ("st", pa.struct([("x", pa.int64())]))]
        )
        properties = {
            "delta.enableDeletionVectors": str(vectors).lower(),
            "delta.checkpointInterval": "3",
        }
        named = properties if mode == "legacy" else {**properties, MODE: mode}
        self.table = txlog.Table.create(self.home / "t", first, properties=named)
        if mode == "legacy":
            self.table.alter.set_properties({MODE: "name"})
        self.names = ["a"]  # Beside key and st.
        self.inner = ["x"]
        self.rows: list[dict[str, Any]] = []
        self.keys = 0
        self.versions: dict[int, list[dict[str, Any]]] = {}
        self.note()

    def note(self) -> None:
        assert self.table.version is not None
        self.versions[self.table.version] = [json.loads(json.dumps(row)) for row in self.rows]

    def teardown(self) -> None:
        if not hasattr(self, "home"):
            return
        for version, rows in self.versions.items():
            old = txlog.Table(self.home / "t", version=version)
            assert old.to_arrow().sort_by("key").to_pylist() == rows
        # deltalake 1.6 fails at a struct none of whose fields is in an older file.
        others = kernel.scan_delta(str(self.home / "t")).collect().sort("key")
        assert others.to_dicts() == self.rows
        ids = [f.field_id for f in self.table.snapshot.schema.fields]
        assert len(set(ids)) == len(ids)
        shutil.rmtree(self.home)

    @rule(number=st.integers(1, 3), checkpoint=st.booleans())
    def append(self, number: int, checkpoint: bool) -> None:
        new = []
        for _ in range(number):
            self.keys += 1
            row: dict[str, Any] = {"key": self.keys}
            row |= dict.fromkeys(self.names, self.keys * 10)
            row["st"] = dict.fromkeys(self.inner, self.keys)
            new.append(row)
        order = ["key", *(n for n in self.table.schema.names if n != "key")]
        data = pa.Table.from_pylist(
            new, schema=pa.schema([self.table.schema.field(n) for n in order])
        )
        self.table.append(data)
        self.rows += [{name: row[name] for name in self.table.schema.names} for row in new]
        if checkpoint:
            self.table.maintenance.checkpoint()
        self.note()

    def spread(self, change: Any) -> None:
        self.rows = [change(dict(row)) for row in self.rows]
        order = self.table.schema.names
        self.rows = [{name: row[name] for name in order} for row in self.rows]
        self.note()

    @precondition(lambda self: len(self.names) < len(NAMES))
    @rule(data=st.data(), merge=st.booleans())
    def add(self, data: st.DataObject, merge: bool) -> None:
        name = data.draw(st.sampled_from([n for n in NAMES if n not in self.names]))
        if merge:
            self.keys += 1
            self.table.append(pa.table({"key": [self.keys], name: [5]}), schema_mode="merge")
        else:
            self.table.alter.add_columns({f"`{name}`": pa.int64()})
        self.spread(lambda row: {**row, name: None})
        self.names.append(name)
        if merge:
            row = {**dict.fromkeys(self.table.schema.names), "key": self.keys, name: 5}
            self.rows.append(row)
        self.note()

    @precondition(lambda self: 0 < len(self.names) < len(NAMES))
    @rule(data=st.data())
    def rename(self, data: st.DataObject) -> None:
        old = data.draw(st.sampled_from(self.names))
        new = data.draw(st.sampled_from([n for n in NAMES if n not in self.names]))
        self.table.alter.rename_column(old, new)
        self.names[self.names.index(old)] = new
        self.spread(lambda row: {new if k == old else k: v for k, v in row.items()})

    @precondition(lambda self: bool(self.names))
    @rule(data=st.data())
    def drop(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(self.names))
        self.table.alter.drop_columns(name)
        self.names.remove(name)
        self.spread(lambda row: {k: v for k, v in row.items() if k != name})

    @rule(add=st.booleans())
    def inner_fields(self, add: bool) -> None:
        if add and len(self.inner) < 3:
            name = f"n{len(self.inner)}{self.keys}"
            if name in self.inner:
                return
            self.table.alter.add_columns({f"st.{name}": pa.int64()})
            self.inner.append(name)
            self.spread(lambda row: {**row, "st": row["st"] and {**row["st"], name: None}})
        elif len(self.inner) > 1:
            name = self.inner.pop(0)
            self.table.alter.drop_columns([f"st.{name}"])
            self.spread(
                lambda row: {**row, "st": row["st"] and {k: row["st"][k] for k in self.inner}}
            )
        else:
            old, new = self.inner[0], "y" if self.inner[0] == "x" else "x"
            self.table.alter.rename_column(f"st.{old}", new)
            self.inner = [new]
            self.spread(lambda row: {**row, "st": row["st"] and {new: row["st"][old]}})

    @precondition(lambda self: bool(self.names))
    @rule(data=st.data(), first=st.booleans())
    def move(self, data: st.DataObject, first: bool) -> None:
        self.table.alter.move_column(f"`{data.draw(st.sampled_from(self.names))}`", first=first)
        self.spread(lambda row: row)

    @precondition(lambda self: bool(self.rows))
    @rule(data=st.data())
    def delete(self, data: st.DataObject) -> None:
        key = data.draw(st.sampled_from([row["key"] for row in self.rows]))
        self.table.delete(f"key = {key}")
        self.rows = [row for row in self.rows if row["key"] != key]
        self.note()

    @precondition(lambda self: bool(self.rows) and bool(self.names))
    @rule(data=st.data(), by_merge=st.booleans())
    def change(self, data: st.DataObject, by_merge: bool) -> None:
        name = data.draw(st.sampled_from(self.names))
        row = data.draw(st.sampled_from(self.rows))
        if by_merge:
            source = pa.table({"key": [row["key"]], "v": [77]})
            merge = self.table.merge(source, "target.key = source.key")
            merge.when_matched_update({f"`{name}`": "source.v"}).execute()
        else:
            self.table.update({f"`{name}`": "77"}, f"key = {row['key']}")
        row[name] = 77
        self.note()

    @rule()
    def compact(self) -> None:
        self.table.optimize.compact()
        self.note()

    @precondition(lambda self: len(self.versions) > 2)
    @rule(data=st.data())
    def read_back(self, data: st.DataObject) -> None:
        version = data.draw(st.sampled_from(sorted(self.versions)))
        old = txlog.Table(self.home / "t", version=version)
        assert old.to_arrow().sort_by("key").to_pylist() == self.versions[version]

    @invariant()
    def holds(self) -> None:
        if hasattr(self, "table"):
            assert self.table.to_arrow().sort_by("key").to_pylist() == self.rows
            if self.rows and self.names:
                name, row = self.names[0], self.rows[0]
                where = f"`{name}` = {row[name]}" if row[name] else f"`{name}` IS NULL"
                found = [r["key"] for r in self.rows if r[name] == row[name]]
                assert sorted(self.table.to_arrow(["key"], where)["key"].to_pylist()) == found


TestColumns = pytest.mark.slow(Columns.TestCase)
TestColumns.settings = settings(max_examples=examples(40), stateful_step_count=15, deadline=None)


ROWS = pa.table({"p": ["u", "v"], "x": [1, 2], "st": [{"b": 1, "c": "s"}, {"b": 2, "c": "t"}]})


def mapped_table(path: Path, **more: Any) -> txlog.Table:
    properties = {MODE: "name", **more.pop("properties", {})}
    return txlog.write(path, ROWS, properties=properties, **more)


def test_partitions_statistics_and_the_feed_follow_a_name(tmp_path: Path) -> None:
    listed = {"delta.dataSkippingStatsColumns": "x,st.b", "delta.enableChangeDataFeed": "true"}
    table = mapped_table(tmp_path / "t", partition_by=["p"], properties=listed)
    for old, new in (("p", "part, of it"), ("st.b", "B.b"), ("x", "y")):
        table.alter.rename_column(old, new)
    assert table.partition_columns == ["part, of it"]
    assert table.properties["delta.dataSkippingStatsColumns"] == "`y`,`st`.`B.b`"
    table.append(pa.table({"part, of it": ["u"], "y": [5], "st": [{"B.b": 9, "c": None}]}))
    table.update({"y": "y + 1"}, "`part, of it` = 'v'")
    assert sorted(table.to_arrow()["y"].to_pylist()) == [1, 3, 5]
    assert table.scan(where="st.`B.b` > 5").explain().files_to_read == 1
    assert table.count("`part, of it` = 'u'") == 2
    changes = table.changes(0).to_arrow()
    assert changes.column_names[:3] == ["part, of it", "y", "st"]
    assert [(r["y"], r["_change_type"]) for r in changes.to_pylist()] == [
        (1, "insert"), (2, "insert"), (5, "insert"),
        (2, "update_preimage"), (3, "update_postimage"),
    ]  # fmt: skip
    table.alter.drop_columns(["st.`B.b`"])
    assert table.properties["delta.dataSkippingStatsColumns"] == "`y`"
    assert txlog.Table(tmp_path / "t", version=0).to_arrow().column_names == ["p", "x", "st"]
    assert [entry["operation"] for entry in table.history(2)] == ["DROP COLUMNS", "UPDATE"]


def test_what_needs_a_column_keeps_it(tmp_path: Path) -> None:
    table = mapped_table(tmp_path / "t", partition_by=["p"])
    table.alter.add_constraint({"small": "x < 9 AND st.b > 0"})
    for change, says in (
        (lambda: table.alter.drop_columns("p"), "partition column"),
        (lambda: table.alter.drop_columns(["x"]), "constraint small"),
        (lambda: table.alter.drop_columns("st.b"), "constraint small"),
        (lambda: table.alter.drop_columns("st"), "constraint small"),
        (lambda: table.alter.rename_column("x", "y"), "constraint small"),
        (lambda: table.alter.rename_column("st", "y"), "constraint small"),
        (lambda: table.alter.rename_column("p", "X"), "already has a field x"),
        (lambda: table.alter.rename_column("st.c", "B"), "st already has a field b"),
        (lambda: table.alter.rename_column("z", "y"), "no column z"),
        (lambda: table.alter.drop_columns("st.z"), "st has no field z"),
        (lambda: table.alter.rename_column("p", ""), "must not be empty"),
    ):
        with pytest.raises(txlog.InvalidInputError, match=says):
            change()
    table.alter.rename_column("st.c", "C")  # Another case, and not in the constraint.
    table.alter.drop_constraint("small")
    table.alter.drop_columns(["x"])
    with pytest.raises(txlog.InvalidInputError, match="st would have no field left"):
        table.alter.drop_columns(["st.b", "st.C"])
    with pytest.raises(txlog.InvalidInputError, match="only partition columns would remain"):
        table.alter.drop_columns(["st"])
    assert table.to_arrow().sort_by("p").to_pylist() == [
        {"p": "u", "st": {"b": 1, "C": "s"}},
        {"p": "v", "st": {"b": 2, "C": "t"}},
    ]


def test_generated_columns_and_clustering(tmp_path: Path) -> None:
    table = txlog.Table.create(
        tmp_path / "t",
        pa.schema([("x", pa.int64()), ("g", pa.int64()), ("k", pa.int64())]),
        properties={MODE: "name"},
        generated={"g": "x + 1"},
    )
    for verb in (table.alter.drop_columns, lambda name: table.alter.rename_column(name, "n")):
        with pytest.raises(txlog.InvalidInputError, match="generated column g"):
            verb("x")
    table.alter.rename_column("g", "h")
    table.append(pa.table({"x": [1], "k": [3]}))
    assert table.to_arrow().to_pylist() == [{"x": 1, "h": 2, "k": 3}]
    table.alter.drop_columns("h")
    table.alter.rename_column("x", "n")
    physical = table.snapshot.schema.fields[1].physical_name
    domain = {"domain": "delta.clustering", "removed": False,
              "configuration": json.dumps({"clusteringColumns": [[physical]]})}  # fmt: skip
    log = tmp_path / "t" / "_delta_log" / f"{table.version + 1:020}.json"
    log.write_text(json.dumps({"domainMetadata": domain}) + "\n")
    table.refresh()
    with pytest.raises(txlog.InvalidInputError, match="clustered by it"):
        table.alter.drop_columns("k")
    table.alter.rename_column("k", "l")


def test_plain_tables_say_what_to_do(tmp_path: Path) -> None:
    table = txlog.write(tmp_path / "t", ROWS)
    for change in (
        lambda: table.alter.drop_columns(["x"]),
        lambda: table.alter.rename_column("x", "y"),
    ):
        with pytest.raises(txlog.UnsupportedFeatureError, match="no column mapping") as caught:
            change()
        assert MODE in caught.value.remedy


def test_a_rename_stands_beside_other_writers(tmp_path: Path) -> None:
    table = mapped_table(tmp_path / "t")
    other, third = txlog.Table(tmp_path / "t"), txlog.Table(tmp_path / "t")
    table.append(ROWS)
    other.alter.rename_column("x", "y")  # After an append that it did not see.
    assert other.to_arrow()["y"].to_pylist() == [1, 2, 1, 2]
    with pytest.raises(txlog.SchemaMismatchError, match="column x is not in the table"):
        third.append(ROWS)

    def renamed_meanwhile() -> None:
        with table.transaction() as transaction:
            transaction.append(pa.table({"p": ["w"]}))
            other.alter.rename_column("y", "z")

    with pytest.raises(txlog.CommitConflictError):
        renamed_meanwhile()


def test_names_of_a_wrong_type_are_told_by_their_argument(tmp_path: Path) -> None:
    table = txlog.Table.create(tmp_path / "t", pa.schema([("a", pa.int64()), ("b", pa.int64())]))
    with pytest.raises(txlog.InvalidTypeError, match=r"not 5 \(argument='columns'\)"):
        table.alter.drop_columns(5)  # type: ignore[arg-type]
    with pytest.raises(txlog.InvalidTypeError, match=r"not 5 \(argument='columns'\)"):
        table.optimize.z_order(5)  # type: ignore[arg-type]


@pytest.mark.parametrize("way", ["set", "unset", "drop"])
def test_column_mapping_ends(tmp_path: Path, way: str) -> None:
    """All rows are written again by the columns' own names, with their ids and without deleted."""
    data = pa.table(
        {"a": [1, 2, 3, 4], "p": ["x", "y", "x", None], "s": [{"u": n, "v": [n]} for n in range(4)]}
    )
    properties = {
        "delta.columnMapping.mode": "name",
        "delta.enableRowTracking": "true",
        "delta.dataSkippingStatsColumns": "a,s.u",
    }
    table = txlog.write(tmp_path / "t", data, partition_by="p", properties=properties)
    table.indexes.create("a")
    table.alter.rename_column("a", "b")
    table.alter.rename_column("s.u", "w")
    table.delete("b = 2")
    columns = [*table.schema.names, "_rowid", "_row_last_updated_at_version"]
    before = table.to_arrow(columns).sort_by("b")
    old = table.version
    mode = "delta.columnMapping.mode"
    if way == "set":
        table.alter.set_properties({mode: "none"})
    elif way == "unset":
        table.alter.unset_properties(mode)
    else:
        table.alter.drop_feature("columnMapping")
    assert table.snapshot.mapping_mode == "none"
    assert "columnMapping" not in (table.metadata.schema_string or "")
    assert table.to_arrow(columns).sort_by("b").equals(before)
    assert ("columnMapping" in (table.protocol.reader_features or ())) == (way != "drop")
    assert table.scan(where="s.w > 100").file_uris() == []
    assert table.lookup([3], columns=["s"], on="b").to_pylist() == [{"s": {"w": 2, "v": [2]}}]
    assert txlog.Table(table.uri, version=old).to_arrow(columns).sort_by("b").equals(before)
    assert pq.read_schema(Path(table.uri, table.files()["path"][0].as_py())).names[:2] == ["b", "s"]
    table.append(pa.table({"b": [9], "p": ["z"], "s": [{"w": 9, "v": []}]}))
    table.restore(old)
    assert (
        table.to_arrow(columns)
        .drop_columns(columns[-1])
        .sort_by("b")
        .equals(before.drop_columns(columns[-1]))
    )
    assert table.lookup([3], columns=["b"], on="b").num_rows == 1


def test_column_mapping_does_not_end(tmp_path: Path) -> None:
    mode = {"delta.columnMapping.mode": "none"}
    by_name = {"delta.columnMapping.mode": "name"}
    odd = txlog.write(tmp_path / "a", pa.table({"a b": [1]}), properties=by_name)
    with pytest.raises(txlog.UnsupportedFeatureError, match="the name a b needs"):
        odd.alter.set_properties(mode)
    iceberg = txlog.write(
        tmp_path / "b", pa.table({"a": [1]}), properties={"delta.enableIcebergCompatV2": "true"}
    )
    for end in (
        lambda: iceberg.alter.set_properties(mode),
        lambda: iceberg.alter.drop_feature("columnMapping"),
    ):
        with pytest.raises(txlog.UnsupportedFeatureError, match="icebergCompatV2"):
            end()
    assert iceberg.refresh().version == 0
    assert len(list(Path(iceberg.uri).glob("*.parquet"))) == 1


def test_columns_with_bloom_filters_follow_their_names(tmp_path: Path) -> None:
    schema = pa.schema([("a", pa.int64()), ("b", pa.string()), ("c", pa.int64())])
    properties = {"delta.columnMapping.mode": "name", "txlog.bloomFilterColumns": "a, b"}
    table = txlog.Table.create(tmp_path / "t", schema, properties=properties)
    table.alter.rename_column("a", "new.name")
    assert table.properties["txlog.bloomFilterColumns"] == "`new.name`,`b`"
    table.alter.drop_columns("b")
    assert table.properties["txlog.bloomFilterColumns"] == "`new.name`"
    for name, reason in (("zebra", "no such column"), ("d", "have no filters")):
        table.alter.add_columns({"d": pa.bool_()}) if name == "d" else None
        with pytest.raises(txlog.InvalidInputError, match=reason):
            table.alter.set_properties({"txlog.bloomFilterColumns": name})
