"""Table features are added at their first use, and removed by `drop_feature`."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import deltalake
import polars as pl
import pyarrow as pa
import pytest
from typer.testing import CliRunner

import txlog
from txlog.tools.cli.app import app

ON_USE = "txlog.deletionVectors"
ENABLED = "delta.enableDeletionVectors"
DATA = pa.table({"x": pa.array(range(10), pa.int64())})


def made(root: Path, **properties: str) -> txlog.Table:
    return txlog.write(root, DATA, properties=properties)


def xs(table: txlog.Table) -> list[int]:
    return sorted(txlog.Table(table.uri).to_arrow()["x"].to_pylist())


def versions(table: txlog.Table) -> tuple[int, int]:
    return table.protocol.min_reader_version, table.protocol.min_writer_version


FIRST_USES: dict[str, Callable[[txlog.Table], Any]] = {
    "delete": lambda table: table.delete("x < 3"),
    "update": lambda table: table.update({"x": "x + 100"}, "x < 3"),
    "merge": lambda table: table.upsert(pa.table({"x": [1]}), on="x"),
}


@pytest.mark.spec("CON-22")
@pytest.mark.parametrize("verb", FIRST_USES)
def test_the_first_vector_brings_the_feature(tmp_path: Path, verb: str) -> None:
    table = made(tmp_path)
    assert versions(table) == (1, 2)
    assert deltalake.DeltaTable(tmp_path).to_pandas().shape == (10, 1)
    assert pl.read_delta(str(tmp_path)).height == 10
    assert table.capabilities()[verb].may_add == ("deletionVectors",)
    outcome = FIRST_USES[verb](table)
    assert outcome.features_added == ("deletionVectors",)
    assert versions(table) == (3, 7)
    assert table.properties[ENABLED] == "true"
    assert table.capabilities()[verb].may_add == ()
    assert table.optimize.compact().features_added == ()
    assert table.delete("x = 9").features_added == ()
    assert pl.read_delta(str(tmp_path))["x"].sort().to_list() == xs(table)


def test_deletes_of_whole_files_bring_nothing(tmp_path: Path) -> None:
    table = made(tmp_path)
    assert table.delete(None).features_added == ()
    assert versions(table) == (1, 2)


@pytest.mark.parametrize("enabled", ["true", "false"])
def test_properties_decide_otherwise(tmp_path: Path, enabled: str) -> None:
    table = made(tmp_path, **{ENABLED: enabled})
    assert versions(table) == ((3, 7) if enabled == "true" else (1, 2))
    assert ON_USE not in table.properties
    outcome = table.delete("x = 1")
    assert outcome.features_added == ()
    assert outcome.metrics["numDeletionVectorsAdded"] == (enabled == "true")
    assert xs(table) == [0, *range(2, 10)]


def test_a_table_of_another_writer_is_rewritten_until_its_properties_let_vectors(
    tmp_path: Path,
) -> None:
    deltalake.write_deltalake(tmp_path, DATA)
    table = txlog.Table(tmp_path)
    assert not table.delete("x = 1").features_added
    assert versions(table) == (1, 2)
    table.alter.set_properties({ON_USE: "auto"})
    assert table.delete("x = 2").features_added == ("deletionVectors",)


def test_the_command_line_says_it(tmp_path: Path) -> None:
    made(tmp_path)
    run = CliRunner().invoke(app, ["delete", str(tmp_path), "--where", "x = 1", "--json"])
    assert json.loads(run.stdout)["features_added"] == ["deletionVectors"]
    made(tmp_path / "b")
    run = CliRunner().invoke(app, ["delete", str(tmp_path / "b"), "--where", "x = 1"])
    assert "the table needs readers or writers with deletionVectors" in run.stdout


def appended(table: txlog.Table) -> Any:
    return table.append(pa.table({"x": pa.array([50], pa.int64())}))


RACES: dict[str, tuple[Callable[[txlog.Table], Any], list[int]]] = {
    "append": (appended, [0, *range(2, 10), 50]),
    "delete": (lambda table: table.delete("x = 2"), [0, *range(3, 10)]),
    "update": (lambda table: table.update({"x": "99"}, "x = 2"), [0, *range(3, 10), 99]),
    "properties": (lambda table: table.alter.set_properties({"mine": "1"}), [0, *range(2, 10)]),
    "columns": (lambda table: table.alter.add_columns({"y": pa.int64()}), [0, *range(2, 10)]),
    "compact": (lambda table: table.optimize.compact(), [0, *range(2, 10)]),
    "schema": (
        lambda table: table.append(pa.table({"x": [50], "z": [1]}), schema_mode="merge"),
        [0, *range(2, 10), 50],
    ),
}


@pytest.mark.spec("CON-22")
@pytest.mark.parametrize("loser", RACES)
def test_writers_that_lose_to_the_first_vector(tmp_path: Path, loser: str) -> None:
    verb, rows = RACES[loser]
    late, table = made(tmp_path), txlog.Table(tmp_path)
    seen = late.snapshot
    table.delete("x = 1")
    late._latest = lambda: seen  # type: ignore[method-assign]
    verb(late)
    assert xs(table) == rows
    now = table.refresh()
    assert now.properties[ENABLED] == "true"
    assert versions(now) == (3, 7)


@pytest.mark.spec("CON-22")
@pytest.mark.parametrize("winner", RACES)
def test_the_first_vector_after_other_winners(tmp_path: Path, winner: str) -> None:
    verb, rows = RACES[winner]
    late, table = made(tmp_path), txlog.Table(tmp_path)
    seen = late.snapshot
    verb(table)
    late._latest = lambda: seen  # type: ignore[method-assign]
    late.delete("x = 1")
    assert xs(table) == rows
    now = table.refresh()
    assert now.properties[ENABLED] == "true"
    assert versions(now) == (3, 7)


@pytest.mark.spec("CON-22")
def test_workers_each_bring_what_they_need(tmp_path: Path) -> None:
    table = made(tmp_path)
    table.append(DATA)
    first, second = (f.delete("x = 1") for f in table.fragments())
    assert first is not None
    assert second is not None
    table.commit(txlog.FragmentOperation.Delete([first]))
    assert versions(table.refresh()) == (3, 7)
    table.commit(txlog.FragmentOperation.Delete([second]))
    assert xs(table) == sorted([0, *range(2, 10)] * 2)


@pytest.mark.spec("CON-22")
def test_in_a_transaction(tmp_path: Path) -> None:
    table = made(tmp_path)
    with table.transaction() as tx:
        tx.delete("x = 1")
        tx.append(pa.table({"x": [1], "y": [2]}), schema_mode="merge")
    assert tx.outcome is not None
    assert tx.outcome.features_added == ("deletionVectors",)
    assert table.properties[ENABLED] == "true"
    assert xs(table) == list(range(10))


def test_a_restored_version_does_not_take_them_back(tmp_path: Path) -> None:
    table = made(tmp_path)
    table.delete("x = 1")
    table.restore(0)
    assert xs(table) == list(range(10))
    assert table.properties[ENABLED] == "true"
    assert table.delete("x = 1").features_added == ()


def deleted(root: Path, **properties: str) -> txlog.Table:
    table = made(root, **properties)
    table.append(pa.table({"x": pa.array([20, 21], pa.int64())}))
    table.delete("x = 1")
    return table


def everyone_reads(root: Path) -> None:
    expected = xs(txlog.Table(root))
    assert sorted(deltalake.DeltaTable(root).to_pandas()["x"]) == expected
    assert pl.read_delta(str(root))["x"].sort().to_list() == expected


@pytest.mark.spec("CON-23", "CON-24")
@pytest.mark.parametrize("truncates", [False, True])
def test_deletion_vectors_are_dropped(tmp_path: Path, truncates: bool) -> None:
    table = deleted(tmp_path)
    change = table.alter.protocol_change(drop="deletionVectors", truncate_history=truncates)
    assert (change.files_rewritten, change.features_dropped) == (1, ("deletionVectors",))
    assert table.refresh().version == 2
    outcome = table.alter.drop_feature("deletionVectors", truncates, user_metadata="why")
    assert outcome.features_dropped == ("deletionVectors",)
    dropped = [one for one in table.history() if one["operation"] == "DROP FEATURE"]
    assert [one["userMetadata"] for one in dropped] == ["why"] * (2 if truncates else 1)
    assert outcome.features_added == (() if truncates else ("checkpointProtection",))
    assert table.protocol == change.after
    assert versions(table) == ((1, 2) if truncates else (1, 7))
    assert table.count() == 11
    everyone_reads(tmp_path)
    older = list((tmp_path / "_delta_log").glob("0000000000000000000[0-2].*"))
    assert bool(older) != truncates
    assert not table.delete("x = 2").features_added  # What was dropped does not come back.
    everyone_reads(tmp_path)
    if truncates:
        deltalake.write_deltalake(tmp_path, pa.table({"x": [1]}), mode="append")
        assert 1 in xs(table)
        return
    assert txlog.Table(tmp_path, version=2).count() == 11
    outcome = table.alter.drop_feature("checkpointProtection", truncate_history=True)
    assert versions(table) == (1, 2)
    deltalake.write_deltalake(tmp_path, pa.table({"x": [1]}), mode="append")
    assert 1 in xs(table)


@pytest.mark.spec("CON-24")
def test_protection_goes_with_its_history_alone(tmp_path: Path) -> None:
    table = deleted(tmp_path)
    table.alter.drop_feature("deletionVectors")
    with pytest.raises(txlog.UnsupportedFeatureError, match="truncate_history"):
        table.alter.drop_feature("checkpointProtection")
    table.pins.create("kept", version=1)
    with pytest.raises(txlog.UnsupportedFeatureError, match="kept"):
        table.alter.drop_feature("checkpointProtection", truncate_history=True)


def test_the_way_out_of_fragments(tmp_path: Path) -> None:
    properties = {"txlog.deletionFormat": "lance"}
    table = deleted(tmp_path, **properties)
    table.alter.add_columns({"y": "2 * x"})
    table.alter.add_columns({"z": "x"})
    table.alter.drop_columns("z")
    with pytest.raises(txlog.UnsupportedFeatureError, match=r"txlog\.fragments"):
        table.alter.drop_feature("deletionVectors")
    before = table.to_arrow().sort_by("x")
    table.alter.drop_feature("txlog.fragments", truncate_history=True)
    assert table.to_arrow().sort_by("x") == before
    assert "txlog.fragments" not in (table.protocol.reader_features or [])
    assert (
        pl.read_delta(str(tmp_path)).sort("x").to_arrow()["y"].to_pylist()
        == before["y"].to_pylist()
    )
    table.delete("x = 3")
    table.alter.drop_feature("deletionVectors", truncate_history=True)
    assert versions(table) == (1, 1)
    everyone_reads(tmp_path)


FORGOTTEN: dict[str, tuple[dict[str, str], tuple[int, int]]] = {
    "rowTracking": ({"delta.enableRowTracking": "true"}, (1, 7)),
    "changeDataFeed": ({"delta.enableChangeDataFeed": "true"}, (1, 7)),
    "inCommitTimestamp": ({"delta.enableInCommitTimestamps": "true"}, (1, 1)),
    "appendOnly": ({"delta.appendOnly": "true"}, (1, 7)),
    "v2Checkpoint": ({"delta.checkpointPolicy": "v2"}, (1, 1)),
    "vacuumProtocolCheck": ({"delta.feature.vacuumProtocolCheck": "supported"}, (1, 2)),
    "domainMetadata": ({"delta.feature.domainMetadata": "supported"}, (1, 2)),
    "clustering": ({"delta.feature.clustering": "supported"}, (1, 7)),
    "typeWidening": ({"delta.enableTypeWidening": "true"}, (1, 1)),
}


@pytest.mark.slow
@pytest.mark.spec("CON-23")
@pytest.mark.parametrize("feature", FORGOTTEN)
def test_nothing_is_left_of_a_feature(tmp_path: Path, feature: str) -> None:
    properties, expected = FORGOTTEN[feature]
    table = txlog.write(
        tmp_path, pa.table({"x": pa.array([1, 2], pa.int32())}), properties=properties
    )
    if feature == "typeWidening":
        table.alter.widen_type("x", pa.int64())
    if feature == "v2Checkpoint":
        table.maintenance.checkpoint()
    table.append(pa.table({"x": pa.array([3], table.schema.field("x").type)}))
    outcome = table.alter.drop_feature(feature, truncate_history=True)
    assert outcome.features_dropped[-1] == feature
    assert txlog.Table(tmp_path).protocol == table.protocol
    assert versions(table) == expected
    assert not set(properties) & set(table.properties)
    assert xs(table) == [1, 2, 3]
    table.append(pa.table({"x": pa.array([4], table.schema.field("x").type)}))
    everyone_reads(tmp_path)
    if feature == "rowTracking":
        log = b"".join(p.read_bytes() for p in (tmp_path / "_delta_log").glob("*.json"))
        assert b'"baseRowId":0' not in log


@pytest.mark.spec("CON-23")
def test_what_is_in_use_is_not_dropped(tmp_path: Path) -> None:
    stamps = pa.table({"x": [1], "at": pa.array([0], pa.timestamp("us"))})
    table = txlog.write(tmp_path, stamps)
    table.alter.add_constraint({"positive": "x > 0"})
    for feature, why in (("timestampNtz", "at"), ("checkConstraints", "positive")):
        with pytest.raises(txlog.UnsupportedFeatureError, match=why):
            table.alter.drop_feature(feature)
    with pytest.raises(txlog.InvalidInputError, match="does not have"):
        table.alter.drop_feature("zebra")


def test_versions_are_raised(tmp_path: Path) -> None:
    table = made(tmp_path)
    assert str(table.alter.protocol_change(upgrade=(1, 4))).startswith("reader 1, writer 2 becomes")
    outcome = table.alter.upgrade_protocol(1, 4)
    assert "changeDataFeed" in outcome.features_added
    assert not table.alter.upgrade_protocol(1, 4)
    assert deltalake.DeltaTable(tmp_path).protocol().min_writer_version == 4
    table.alter.upgrade_protocol(3, 7)
    assert deltalake.DeltaTable(tmp_path).protocol().writer_features is not None
    everyone_reads(tmp_path)
    with pytest.raises(txlog.InvalidInputError, match="cannot be lowered"):
        table.alter.upgrade_protocol(1, 2)
    with pytest.raises(txlog.InvalidInputError, match="not compatible with"):
        made(tmp_path / "b").alter.upgrade_protocol(3, 6)


def test_the_command_line_changes_the_protocol(tmp_path: Path) -> None:
    deleted(tmp_path)
    run = CliRunner().invoke
    told = run(app, ["alter", "drop-feature", str(tmp_path), "deletionVectors", "--dry-run"])
    assert "no longer need deletionVectors" in told.stdout
    done = run(
        app,
        ["alter", "drop-feature", str(tmp_path), "deletionVectors", "--truncate-history", "--json"],
    )
    assert json.loads(done.stdout)["features_dropped"] == ["deletionVectors"]
    told = run(app, ["alter", "upgrade", str(tmp_path), "--reader", "1", "--writer", "3"])
    assert told.exit_code == 0
    told = run(app, ["alter", "add-feature", str(tmp_path), "v2Checkpoint", "--dry-run"])
    assert "to read it, engines need v2Checkpoint" in told.stdout
