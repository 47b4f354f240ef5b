"""Table features come with their first use, and go with `drop_feature`."""

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
from txlog.cli.app import app

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
    table.commit(txlog.Operation.Delete([first]))
    assert versions(table.refresh()) == (3, 7)
    table.commit(txlog.Operation.Delete([second]))
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
