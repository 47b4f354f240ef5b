"""Columns without rewriting: added, replaced and dropped, with deletes and other writers."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import txlog
from tests.verb_calls import Built, replace_columns, run
from txlog import col
from txlog.base.errors import CommitConflictError, SchemaMismatchError
from txlog.commit.intent import Intent
from txlog.extend import context_of

FEATURE = {"delta.feature.txlog.fragments": "supported"}


@pytest.fixture
def table(tmp_path: Path) -> txlog.Table:
    """Three fragments of four rows, one of them with a deleted row."""
    rows = pa.table({"x": range(12), "p": ["a", "b", "c", "d"] * 3})
    schema = pa.schema([("x", pa.int64()), ("p", pa.string())])
    table = txlog.Table.create(tmp_path / "t", schema, properties=FEATURE)
    table.append(rows, options=txlog.WriteOptions(max_rows_per_file=4))
    table.delete("x = 5")
    return table


def data_files(table: txlog.Table) -> set[str]:
    return {path.name for path in Path(table.uri).rglob("*.parquet")}


def values(table: txlog.Table, name: str) -> dict[int, Any]:
    found = table.to_arrow(["x", name])
    return dict(zip(found["x"].to_pylist(), found[name].to_pylist(), strict=True))


LIVE = [x for x in range(12) if x != 5]


@pytest.mark.spec("FRG-20")
@pytest.mark.parametrize(
    "given",
    [
        "x * 2",
        col("x") + col("x"),
        lambda batch: pc.multiply(batch["x"], 2),
        pa.array([2 * x for x in LIVE]),
        pa.chunked_array([[0, 2, 4], [2 * x for x in LIVE[3:]]]),
        pa.table({"any": [2 * x for x in LIVE]}),
    ],
    ids=["sql", "expression", "function", "array", "chunks", "table"],
)
def test_values_in_any_form(table: txlog.Table, given: Any) -> None:
    before, ids = data_files(table), [f.id for f in table.fragments()]
    outcome = table.alter.add_columns({"y": given})
    assert outcome.version == 3
    assert outcome.metrics["numAddedFiles"] == 3
    assert len(data_files(table) - before) == 3  # One new file for each fragment, no other.
    assert values(table, "y") == {x: 2 * x for x in LIVE}
    assert table.schema.field("y").type == pa.int64()
    assert [f.id for f in table.fragments()] == ids
    assert [[d.fields for d in f.data_files()] for f in table.fragments()] == [[None, ("y",)]] * 3
    assert txlog.Table(table.uri, 2).schema.names == ["x", "p"]
    assert table.history(1)[0]["operation"] == "ADD COLUMNS"


def test_a_list_of_fields(table: txlog.Table) -> None:
    table.alter.add_columns([pa.field("y", pa.int8()), pa.field("z", pa.list_(pa.float32(), 2))])
    assert table.schema.names == ["x", "p", "y", "z"]
    assert table.to_arrow(["y", "z"]).to_pylist()[0] == {"y": None, "z": None}


@pytest.mark.spec("FRG-20")
def test_several_columns_at_once(table: txlog.Table) -> None:
    table.alter.add_columns(
        {"y": "x + 1", "z": lambda batch: [f"{x}!" for x in batch["x"].to_pylist()]}
    )
    assert values(table, "y") == {x: x + 1 for x in LIVE}
    assert values(table, "z") == {x: f"{x}!" for x in LIVE}
    table.alter.add_columns(
        lambda batch: {"a": batch["x"], "b": pc.utf8_upper(batch["p"])}, read_columns=["x", "p"]
    )
    assert values(table, "b") == {x: "ABCD"[x % 4] for x in LIVE}
    table.alter.add_columns(pa.table({"c": LIVE, "d": [str(x) for x in LIVE]}))
    assert values(table, "d") == {x: str(x) for x in LIVE}
    assert [len(f.files) for f in table.fragments()] == [4, 4, 4]
    assert table.schema.names == ["x", "p", "y", "z", "a", "b", "c", "d"]


@pytest.mark.spec("FRG-20")
def test_null_columns_write_no_file(table: txlog.Table) -> None:
    before = data_files(table)
    table.alter.add_columns(pa.field("y", pa.int32()))
    table.alter.add_columns(pa.schema([("z", pa.list_(pa.string()))]))
    assert data_files(table) == before
    assert table.to_arrow(["y", "z"]).to_pylist() == [{"y": None, "z": None}] * 11


@pytest.mark.spec("FRG-6", "FRG-19")
def test_a_table_of_others_gets_the_feature(tmp_path: Path) -> None:
    deltalake: Any = pytest.importorskip("deltalake")
    for x in range(3):
        deltalake.write_deltalake(tmp_path / "t", pa.table({"x": [x, x + 10]}), mode="append")
    table = txlog.Table(tmp_path / "t")
    rows = table.to_arrow(["x", "_fragid"])
    assert not any(f.is_durable for f in table.fragments())
    with pytest.raises(txlog.UnsupportedFeatureError, match="add_feature"):
        table.alter.add_columns({"y": "x + 1"})
    assert table.alter.add_features("txlog.fragments").version == 3
    assert [f.id for f in table.fragments()] == [0, 1, 2]
    assert table.to_arrow(["x"]).sort_by("x") == rows.select(["x"]).sort_by("x")
    assert not table.alter.add_features("txlog.fragments")  # It has it: nothing to do.
    table.alter.add_columns({"y": "x + 1"})
    assert values(table, "y") == {x: x + 1 for x in (0, 1, 2, 10, 11, 12)}
    with pytest.raises(Exception, match=r"txlog\.fragments"):
        deltalake.DeltaTable(str(tmp_path / "t")).to_pyarrow_table()
    old = deltalake.DeltaTable(str(tmp_path / "t"), version=2)
    assert old.to_pyarrow_table().num_rows == 6  # Versions before stay readable for all.


@pytest.mark.spec("FRG-19")
def test_files_without_a_count_are_counted(tmp_path: Path) -> None:
    table = txlog.write(tmp_path / "t", pa.table({"x": [1, 2, 3]}))
    path = tmp_path / "t/_delta_log" / f"{0:020d}.json"
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    for line in lines:
        line.get("commitInfo", {}).pop("txlogCrc32", None)
        if "add" in line:
            del line["add"]["stats"]
    path.write_text("\n".join(map(json.dumps, lines)))
    table = txlog.Table(tmp_path / "t")
    assert [f.physical_rows for f in table.fragments()] == [None]
    table.alter.add_features("txlog.fragments")
    assert [(f.id, f.physical_rows) for f in table.fragments()] == [(0, 3)]
    table.alter.add_columns({"y": "-x"})
    assert values(table, "y") == {1: -1, 2: -2, 3: -3}


@pytest.mark.spec("FRG-21")
def test_deletes_and_columns_go_together(table: txlog.Table) -> None:
    table.alter.add_columns({"y": "x * 2"})
    table.delete("y = 4")
    table.delete("x IN (8, 9, 10, 11)")  # The whole fragment goes, with its column file.
    left = [x for x in LIVE if x not in (2, 8, 9, 10, 11)]
    assert values(table, "y") == {x: 2 * x for x in left}
    assert table.count("y > 6") == len([x for x in left if 2 * x > 6])
    assert [f.num_deletions for f in table.fragments()] == [1, 1]
    assert len(table.files()) == 4
    log = (Path(table.uri) / "_delta_log" / f"{5:020d}.json").read_text().splitlines()
    removed = [json.loads(line)["remove"] for line in log if line.startswith('{"remove"')]
    assert len(removed) == 2  # Each file that leaves has a remove of its own.
    table.append(pa.table({"x": [100], "p": ["z"], "y": [7]}))
    assert values(table, "y")[100] == 7
    table.overwrite(pa.table({"x": [1], "p": ["q"], "y": [3]}))
    assert values(table, "y") == {1: 3}
    assert len(table.files()) == 1


@pytest.mark.spec("FRG-21")
def test_deletes_of_files_are_rewritten_without_vectors(tmp_path: Path) -> None:
    properties = {**FEATURE, "delta.enableDeletionVectors": "false"}
    table = txlog.Table.create(
        tmp_path / "t", pa.schema([("x", pa.int64())]), properties=properties
    )
    table.append(pa.table({"x": range(8)}), options=txlog.WriteOptions(max_rows_per_file=4))
    table.alter.add_columns({"y": "x * 2"})
    table.delete("y = 4")
    assert values(table, "y") == {x: 2 * x for x in range(8) if x != 2}
    assert sorted(len(f.files) for f in table.fragments()) == [1, 2]
    log = (tmp_path / "t/_delta_log" / f"{3:020d}.json").read_text()
    assert log.count('"remove"') == 2


@pytest.mark.spec("FRG-18")
def test_statistics_of_new_columns_prune(table: txlog.Table) -> None:
    table.alter.add_columns({"y": "x * 2"})
    assert [f.id for f in table.scan(where="y > 16").fragments()] == [2]
    assert table.scan(where="y > 16").to_arrow()["x"].to_pylist() == [9, 10, 11]
    assert table.count("y >= 0") == 11


@pytest.mark.spec("FRG-22")
def test_replaced_columns(table: txlog.Table) -> None:
    table.alter.add_columns({"y": "x * 2", "z": "x * 3"})
    table.alter.replace_columns({"y": "y + z", "p": lambda batch: pc.utf8_upper(batch["p"])})
    assert values(table, "y") == {x: 5 * x for x in LIVE}
    assert values(table, "z") == {x: 3 * x for x in LIVE}  # Its file goes on to give it.
    assert values(table, "p") == {x: "ABCD"[x % 4] for x in LIVE}
    assert [f.fields for f in table.fragments()[0].files if f.fields] in (
        [("z",), ("y", "p")], [("y", "p"), ("z",)]
    )  # fmt: skip
    table.alter.replace_columns({"y": "0", "z": "0", "p": "'q'"})
    assert [len(f.files) for f in table.fragments()] == [2, 2, 2]
    assert set(values(table, "y").values()) == {0}
    assert table.schema.field("y").type == pa.int64()  # A column keeps its type.
    assert [f.id for f in table.scan(where="y = 5").fragments()] == []
    assert set(values(txlog.Table(table.uri, 4), "y").items()) == {(x, 5 * x) for x in LIVE}


@pytest.mark.spec("FRG-22")
def test_tables_whose_columns_stay(tmp_path: Path) -> None:
    properties = {**FEATURE, "delta.appendOnly": "true"}
    table = txlog.Table.create(
        tmp_path / "t", pa.schema([("x", pa.int64())]), properties=properties
    )
    table.append(pa.table({"x": [1]}))
    with pytest.raises(txlog.UnsupportedFeatureError, match="Add a column") as raised:
        table.alter.replace_columns({"x": "2"})
    assert raised.value.features == ("appendOnly",)
    table.alter.add_columns({"y": "x + 1"})
    assert values(table, "y") == {1: 2}


@pytest.mark.spec("FRG-22")
def test_constraints_hold_for_replaced_columns(tmp_path: Path) -> None:
    properties = {**FEATURE, "delta.constraints.order": "x < z"}
    schema = pa.schema([("x", pa.int64()), ("z", pa.int64())])
    table = txlog.Table.create(tmp_path / "t", schema, properties=properties)
    table.append(pa.table({"x": [1, 2], "z": [10, 20]}))
    with pytest.raises(txlog.SchemaMismatchError, match="order"):
        table.alter.replace_columns({"z": "2"})
    assert len(data_files(table)) == 1
    table.alter.replace_columns({"z": "x + 1"})
    assert values(table, "z") == {1: 2, 2: 3}


@pytest.mark.spec("FRG-23")
def test_dropped_columns_do_not_come_back(table: txlog.Table) -> None:
    table.alter.add_columns({"y": "x * 2"})
    table.alter.drop_columns("y")
    table.alter.drop_columns(["p"])
    assert table.schema.names == ["x"]
    assert table.to_arrow().column_names == ["x"]
    with pytest.raises(txlog.SchemaMismatchError, match="was dropped"):
        table.append(pa.table({"x": [1], "P": ["new"]}), schema_mode="merge")
    table.alter.add_columns({"p": pa.string()})  # Nulls, not the old values.
    assert set(values(table, "p").values()) == {None}
    table.alter.add_columns({"y": "x + 1"})
    assert values(table, "y") == {x: x + 1 for x in LIVE}
    assert "txlog.droppedColumns" not in table.properties
    assert values(txlog.Table(table.uri, 3), "y") == {x: 2 * x for x in LIVE}
    table.alter.drop_columns("y")
    table.overwrite(pa.table({"x": [1], "y": ["text"]}), schema_mode="overwrite")
    assert table.to_arrow().to_pylist() == [{"x": 1, "y": "text"}]


BAD: list[tuple[Any, str]] = [
    ({"x": "1"}, "already has this column"),
    ({"X": "1"}, "already has this column"),
    ({"y": "1", "Y": "2"}, "given twice"),
    ({"y": "nothing + 1"}, "nothing"),
    ({"y": "x +"}, "."),
    ({"y": "NULL"}, "NULL has no type"),
    ({"y": lambda batch: pc.add(batch["x"], 1)[:1]}, "1 values were computed for"),
    ({"y": lambda batch: batch.num_rows // 0}, "ZeroDivisionError"),
    ({"y": lambda batch: batch}, "one column was expected"),
    ({"y": pa.array([1, 2, 3])}, "ends after 3 rows"),
    ({"y": pa.array(range(20))}, "more than the table's 11"),
    ({"y": pa.table({"a": LIVE, "b": LIVE})}, "one column was expected"),
    ({"y": 7}, "int is not SQL text, an expression, a function, or Arrow data"),
    ({"": "1"}, "a column's name"),
    ({"a b": "1"}, "needs column mapping"),
    ({}, "no column is given"),
    (7, "int is not SQL text, an expression, a function, or Arrow data"),
    ({"y": pa.time32("s")}, "time"),
]  # fmt: skip


@pytest.mark.parametrize(("columns", "reason"), BAD, ids=map(str, range(len(BAD))))
def test_bad_columns_leave_nothing(table: txlog.Table, columns: Any, reason: str) -> None:
    before = data_files(table)
    with pytest.raises(txlog.InvalidInputError, match=reason):
        table.alter.add_columns(columns)
    assert data_files(table) == before
    assert txlog.Table(table.uri).version == 2


def test_bad_names(table: txlog.Table) -> None:
    drop = table.alter.drop_columns
    for verb in (drop, table.alter.replace_columns):
        argument: Any = "nothing" if verb == drop else {"nothing": "1"}
        with pytest.raises(txlog.InvalidInputError, match=r"no (such )?column( nothing)?"):
            verb(argument)
    with pytest.raises(txlog.InvalidInputError, match="no such column"):
        table.alter.add_columns({"y": lambda batch: batch["x"]}, read_columns=["nothing"])
    with pytest.raises(txlog.InvalidInputError, match="only partition columns would remain"):
        table.alter.drop_columns(["x", "p"])
    with pytest.raises(txlog.InvalidInputError, match="txlog cannot write tables with nonsense"):
        table.alter.add_features("nonsense")
    with pytest.raises(txlog.InvalidInputError, match="expected supported"):
        txlog.Table.create("memory://f", table.schema, properties={"delta.feature.x": "enabled"})


def test_partitioned_tables(tmp_path: Path) -> None:
    table = txlog.Table.create(
        tmp_path / "t",
        pa.schema([("x", pa.int64()), ("p", pa.string())]),
        partition_by=["p"],
        properties=FEATURE,
    )
    table.append(pa.table({"x": range(6), "p": ["a", None] * 3}))
    table.alter.add_columns({"y": "x * 2", "q": "p"})
    assert values(table, "q") == {x: ["a", None][x % 2] for x in range(6)}
    assert [f.id for f in table.scan(where="p = 'a' AND y >= 0").fragments()] == [0]
    with pytest.raises(txlog.InvalidInputError, match="partition column"):
        table.alter.replace_columns({"p": "'z'"})
    with pytest.raises(txlog.InvalidInputError, match="partition column"):
        table.alter.drop_columns("p")
    table.overwrite(pa.table({"x": [9], "p": ["a"], "y": [0], "q": ["-"]}), where="p = 'a'")
    assert values(table, "y") == {1: 2, 3: 6, 5: 10, 9: 0}


def test_a_checkpoint_keeps_column_files(table: txlog.Table) -> None:
    table.alter.add_columns({"y": "x * 2"})
    table.maintenance.checkpoint()
    for file in (Path(table.uri) / "_delta_log").glob("*.json"):
        file.unlink()
    assert values(txlog.Table(table.uri), "y") == {x: 2 * x for x in LIVE}


@pytest.mark.spec("FRG-21", "FRG-33")
def test_compaction_folds_columns_in(table: txlog.Table) -> None:
    table.alter.add_columns({"y": "x * 2"})
    table.alter.add_columns({"z": "x * 3"})
    table.delete("y = 4")
    table.optimize.compact()
    (fragment,) = table.fragments()
    assert (fragment.id, len(fragment.files), fragment.num_rows) == (3, 1, 10)
    left = [x for x in LIVE if x != 2]
    assert values(table, "y") == {x: 2 * x for x in left}
    assert values(table, "z") == {x: 3 * x for x in left}
    table.alter.add_columns({"w": "0"})
    assert not table.optimize.compact(min_file_bytes=0)
    assert table.optimize.compact(
        min_file_bytes=0, max_column_files=0
    )  # Alone, for its files' sake.
    assert [len(f.files) for f in table.fragments()] == [1]
    assert set(values(table, "w").values()) == {0}
    table.restore(4)
    assert [len(f.files) for f in table.fragments()] == [3, 3, 3]
    assert values(table, "z") == {x: 3 * x for x in LIVE}


def test_rows_keep_their_ids_beside_new_columns(tmp_path: Path) -> None:
    properties = {**FEATURE, "delta.enableRowTracking": "true"}
    table = txlog.Table.create(
        tmp_path / "t", pa.schema([("x", pa.int64())]), properties=properties
    )
    table.append(pa.table({"x": range(8)}), options=txlog.WriteOptions(max_rows_per_file=4))
    table.delete("x = 1")
    ids = values(table, "_rowid")
    table.alter.add_columns({"y": "x * 2"})
    assert values(table, "_rowid") == ids
    files = table.to_arrow(["y", "_rowid", "_row_last_updated_at_version"])
    assert set(files["_row_last_updated_at_version"].to_pylist()) == {1}
    table.optimize.compact()
    table.append(pa.table({"x": [9], "y": [0]}))
    assert {x: i for x, i in values(table, "_rowid").items() if x != 9} == ids
    assert values(table, "_rowid")[9] not in ids.values()
    assert values(table, "y")[3] == 6


def test_the_feed_does_not_tell_of_columns(tmp_path: Path) -> None:
    table = txlog.Table.create(tmp_path / "t", pa.schema([("x", pa.int64())]), properties=FEATURE)
    table.append(pa.table({"x": [1]}))
    table.alter.add_columns({"y": "x"})
    log = tmp_path / "t/_delta_log" / f"{0:020d}.json"
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    for line in lines:  # As another writer might have it.
        line.get("commitInfo", {}).pop("txlogCrc32", None)
        if "protocol" in line:
            line["protocol"]["writerFeatures"].append("changeDataFeed")
        if "metaData" in line:
            line["metaData"]["configuration"]["delta.enableChangeDataFeed"] = "true"
    log.write_text("\n".join(map(json.dumps, lines)))
    second = tmp_path / "t/_delta_log" / f"{2:020d}.json"
    lines = [json.loads(line) for line in second.read_text().splitlines()]
    for line in lines:
        line.get("commitInfo", {}).pop("txlogCrc32", None)
        if "metaData" in line:
            line["metaData"]["configuration"]["delta.enableChangeDataFeed"] = "true"
    second.write_text("\n".join(map(json.dumps, lines)))
    with pytest.raises(txlog.UnsupportedFeatureError, match="a change data feed does not contain"):
        txlog.Table(table.uri).changes(0)


@pytest.mark.spec("FRG-2")
def test_a_shallow_clone_brings_ids_along(table: txlog.Table, tmp_path: Path) -> None:
    """Delta's clones refer to files by absolute paths; tags come along, `txn` does not."""
    table.alter.add_columns({"y": "x * 2"})
    table.delete("x >= 8")
    folder = tmp_path / "clone/_delta_log"
    folder.mkdir(parents=True)
    actions: list[dict[str, Any]] = []
    for version in range(table.version + 1):
        path = Path(table.uri) / "_delta_log" / f"{version:020d}.json"
        actions += map(json.loads, path.read_text().splitlines())
    live = set(table.files()["path"].to_pylist())
    kept: dict[str, dict[str, Any]] = {}
    for action in actions:
        for kind, body in action.items():
            if kind in ("protocol", "metaData"):
                kept[kind] = action
            elif kind == "add" and body["path"] in live:
                absolute = {**body, "path": f"file://{table.uri}/{body['path']}"}
                kept[body["path"]] = {"add": absolute}
    (folder / f"{0:020d}.json").write_text("\n".join(map(json.dumps, kept.values())))
    clone = txlog.Table(tmp_path / "clone")
    assert values(clone, "y") == values(table, "y")
    assert [f.id for f in clone.fragments()] == [f.id for f in table.fragments()] == [0, 1]
    clone.append(pa.table({"x": [100], "p": ["z"], "y": [1]}))
    assert [f.id for f in clone.fragments()] == [0, 1, 2]  # H restarts at their maximum.
    clone.delete("x = 0")
    clone.alter.replace_columns({"y": "x"})
    assert values(clone, "y")[100] == 100
    assert values(table, "y")[0] == 0


@pytest.mark.spec("CON-2")
def test_a_column_that_is_dropped_meanwhile_gets_no_values(table: txlog.Table) -> None:
    table.alter.add_columns({"y": "x * 2"})
    place, seen, before = context_of(table), table.snapshot, data_files(table)
    table.alter.drop_columns("p")
    replace_columns(place, seen, {"y": "x * 3"})  # Another column does not matter.
    assert values(txlog.Table(table.uri), "y") == {x: 3 * x for x in LIVE}
    before, seen = data_files(table), table.refresh().snapshot
    table.alter.drop_columns("y")
    with pytest.raises(CommitConflictError) as caught:
        replace_columns(place, seen, {"y": "x * 4"})
    assert (caught.value.rule, caught.value.field) == ("CON-2", "y")
    assert data_files(table) == before


@pytest.mark.spec("CON-2")
def test_a_column_that_is_read_and_dropped_meanwhile(table: txlog.Table) -> None:
    table.alter.add_columns({"y": "x * 2", "z": "x * 5"})
    place, seen = context_of(table), table.snapshot
    table.alter.drop_columns("z")
    with pytest.raises(CommitConflictError) as caught:
        replace_columns(place, seen, {"y": "z"})
    assert (caught.value.rule, caught.value.field) == ("CON-2", "z")


@pytest.mark.spec("CON-2")
def test_constraints_that_came_meanwhile_hold_for_replaced_columns(table: txlog.Table) -> None:
    table.alter.add_columns({"y": "x * 2"})
    place, seen, before = context_of(table), table.snapshot, data_files(table)
    metadata = table.metadata.model_copy(
        update={"configuration": {**table.properties, "delta.constraints.small": "y < 50"}}
    )
    intent = Intent(
        operation="ADD CONSTRAINT", kind="metadata", read_version=seen.version, metadata=metadata
    )
    run(Built(lambda _: intent), place, seen)
    with pytest.raises(SchemaMismatchError, match="y < 50"):
        replace_columns(place, seen, {"y": "x * 10"})
    assert data_files(table) == before
    replace_columns(place, seen, {"y": "x + 1"})
    assert values(txlog.Table(table.uri), "y") == {x: x + 1 for x in LIVE}


def test_values_of_other_libraries(tmp_path: Path) -> None:
    import numpy as np
    import pandas as pd
    import polars as pl

    table = txlog.write(
        tmp_path,
        pa.table({"x": range(7)}),
        properties=FEATURE,
        options=txlog.WriteOptions(max_rows_per_file=3),
    )
    given = {
        "n": np.arange(7) * 0.5,
        "s": pl.Series("other", ["a", None, *"bcdef"]),
        "p": pd.Series(range(7)),
    }
    table.alter.add_columns(given)
    assert table.to_arrow().to_pydict() == {
        "x": [*range(7)],
        "n": [0, 0.5, 1, 1.5, 2, 2.5, 3],
        "s": ["a", None, *"bcdef"],
        "p": [*range(7)],
    }
    table.alter.replace_columns({"n": np.zeros(7)})
    assert table.to_arrow(["n"])["n"].to_pylist() == [0.0] * 7
    for wrong in (np.zeros((7, 2)), np.zeros(6)):
        with pytest.raises(txlog.InvalidInputError):
            table.alter.add_columns({"w": wrong})
