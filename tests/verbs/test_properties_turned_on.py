"""Enabled later, in an existing table: times in commits, row ids, properties."""

import time
from datetime import UTC, datetime
from itertools import count
from pathlib import Path

import deltalake
import orjson
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import txlog
from tests.examples import examples

NUMBERS = count()  # Of tables: each example has one of its own.

STAMPS = "delta.enableInCommitTimestamps"
ROWS = "delta.enableRowTracking"
DATA = pa.table({"x": pa.array(range(5), pa.int64())})


def commits(root: Path) -> list[list[dict[str, dict[str, object]]]]:
    files = sorted((root / "_delta_log").glob("*.json"))
    return [[orjson.loads(line) for line in path.read_bytes().splitlines()] for path in files]


def test_commits_are_stamped_from_now_on(tmp_path: Path) -> None:
    table = txlog.write(tmp_path, DATA)
    table.append(DATA)
    time.sleep(0.02)  # The clock of a file system may be some milliseconds ahead or behind.
    outcome = table.alter.set_properties({STAMPS: "true"})
    assert outcome.features_added == ("inCommitTimestamp",)
    assert table.properties["delta.inCommitTimestampEnablementVersion"] == "2"
    since = int(table.properties["delta.inCommitTimestampEnablementTimestamp"])
    info = commits(tmp_path)[2][0]["commitInfo"]
    assert info["inCommitTimestamp"] == since == table.timestamp_ms
    table.append(DATA)
    assert table.timestamp_ms > since
    for moment, version in ((since, 2), (since - 1, 1), (table.timestamp_ms, 3)):
        at = datetime.fromtimestamp(moment / 1000, UTC)
        assert txlog.Table(tmp_path, timestamp=at).version == version
    assert deltalake.DeltaTable(tmp_path).to_pandas().shape == (15, 1)
    table.alter.set_properties({STAMPS: "false"})
    assert "delta.inCommitTimestampEnablementVersion" not in table.properties
    table.alter.set_properties({STAMPS: "true"})
    assert table.properties["delta.inCommitTimestampEnablementVersion"] == "5"


def ids(table: txlog.Table) -> dict[int, tuple[int, int]]:
    columns = ["x", "_rowid", "_row_last_updated_at_version"]
    rows = txlog.Table(table.uri).to_arrow(columns).to_pylist()
    return {row["x"]: (row["_rowid"], row["_row_last_updated_at_version"]) for row in rows}


@settings(max_examples=examples(20))
@given(
    st.lists(st.tuples(st.integers(1, 4), st.booleans()), min_size=1, max_size=4),
    st.booleans(),
)
def test_rows_that_are_there_get_ids_that_they_keep(
    appends: list[tuple[int, bool]], silent: bool
) -> None:
    table = txlog.Table.create(f"memory://ids/{next(NUMBERS)}", DATA.schema)
    start = 0
    for rows, deletes in appends:
        table.append(pa.table({"x": pa.array(range(start, start + rows), pa.int64())}))
        if deletes:
            table.delete(f"x = {start}")
        start += rows
    expected = sorted(table.to_arrow()["x"].to_pylist())
    outcome = table.alter.set_properties({ROWS: "true"})
    assert set(outcome.features_added) == {"rowTracking", "domainMetadata"}
    before = ids(table)
    assert sorted(before) == expected
    assert len({one for one, _ in before.values()}) == len(before)
    assert {version for _, version in before.values()} <= {table.version}
    table.append(pa.table({"x": pa.array([1000], pa.int64())}))
    table.optimize.compact()
    after = ids(table)
    new, _ = after.pop(1000)
    assert after == before
    assert new > max((one for one, _ in before.values()), default=-1)


def test_ids_of_a_table_of_another_writer(tmp_path: Path) -> None:
    deltalake.write_deltalake(tmp_path, DATA)
    table, other = txlog.Table(tmp_path), txlog.Table(tmp_path)
    seen = table.snapshot
    other.append(DATA)  # Wins, and its rows need ids too.
    table._latest = lambda: seen  # type: ignore[method-assign]
    table.alter.set_properties({ROWS: "true"})
    rows = txlog.Table(tmp_path).to_arrow(["_rowid"])["_rowid"].to_pylist()
    assert sorted(rows) == list(range(10))
    adds = [action["add"] for action in commits(tmp_path)[-1] if "add" in action]
    assert all(add["dataChange"] is False and "baseRowId" in add for add in adds)
    assert deltalake.DeltaTable(tmp_path).to_pandas().shape == (10, 1)


def test_properties_of_others_are_kept_with_a_warning(tmp_path: Path) -> None:
    given_ones = {"delta.autoOptimize.optimizeWrite": "true", "delta.zebra": "striped"}
    with pytest.warns(txlog.TxlogWarning, match=r"does not use delta\.auto.*, delta\.zebra"):
        table = txlog.write(tmp_path, DATA, properties=given_ones)
    assert given_ones.items() <= table.properties.items()
    with pytest.warns(txlog.TxlogWarning, match=r"did you mean delta\.checkpointInterval"):
        table.alter.set_properties({"delta.checkpointIntervall": "3"})
    for name in ("delta.enableZebras", "txlog.zebra", "delta.APPENDONLY"):
        with pytest.raises(txlog.InvalidInputError, match=name):
            table.alter.set_properties({name: "true"})


def test_versions_are_asked_for_as_properties(tmp_path: Path) -> None:
    asked = {"delta.minReaderVersion": "1", "delta.minWriterVersion": "4"}
    table = txlog.write(tmp_path, DATA, properties=asked)
    assert (table.protocol.min_reader_version, table.protocol.min_writer_version) == (1, 4)
    assert not asked.keys() & table.properties.keys()
    outcome = table.alter.set_properties(
        {"delta.minReaderVersion": "3", "delta.minWriterVersion": "7"}
    )
    assert outcome
    assert table.protocol.min_reader_version == 3
    assert deltalake.DeltaTable(tmp_path).to_pandas().shape == (5, 1)
    low = txlog.write(tmp_path / "low", DATA)
    with pytest.raises(txlog.InvalidInputError, match=r"other values of delta\.minWriterVersion"):
        txlog.write(low.uri, DATA, mode="append", properties=asked)
    copy = low.clone(tmp_path / "copy", properties=asked)
    assert copy.protocol.min_writer_version == 4
    assert not asked.keys() & copy.properties.keys()
    txlog.write(copy.uri, DATA, mode="append", properties=asked)
    with pytest.raises(txlog.InvalidInputError, match="expected one of 1, 2, 3"):
        txlog.write(tmp_path / "b", DATA, properties={"delta.minReaderVersion": "9"})


def test_a_table_is_clustered_from_its_first_version(tmp_path: Path) -> None:
    rows = pa.table({"x y": [3, 1, 2], "s": pa.array([{"y": 1}] * 3)})
    on = {"delta.columnMapping.mode": "name"}
    made = txlog.write(tmp_path / "t", rows, cluster_by=["`x y`", "s.y"], properties=on)
    empty = txlog.Table.create(tmp_path / "e", rows.schema, cluster_by="s.y", properties=on)
    assert (made.version, empty.version) == (0, 0)
    assert {"clustering", "domainMetadata"} <= set(made.protocol.writer_features or ())
    domain = made.snapshot.controls.domains["delta.clustering"]
    names = [f.metadata["delta.columnMapping.physicalName"] for f in made.snapshot.schema.fields]
    paths = orjson.loads(domain.configuration)["clusteringColumns"]
    assert (paths[0], paths[1][0]) == ([names[0]], names[1])
    assert made.history()[0]["operationParameters"]["clusterBy"] == '["`x y`","s.y"]'
    assert made.optimize.cluster()
    txlog.write(tmp_path / "t", rows, "append", cluster_by=["`x y`", "s.y"])
    with pytest.raises(txlog.InvalidInputError, match="not clustered by"):
        txlog.write(tmp_path / "t", rows, "append", cluster_by="s.y")
    with pytest.raises(txlog.InvalidInputError, match="partitioned"):
        txlog.write(tmp_path / "p", rows, partition_by="x y", cluster_by="s.y", properties=on)
    assert not (tmp_path / "p").exists()
    replaced = txlog.Table.create(
        tmp_path / "t", rows.schema, mode="overwrite", cluster_by="s.y", properties=on
    )
    ends = [path[-1] for path in orjson.loads(domain_of(replaced))["clusteringColumns"]]
    assert ends == [paths[1][1]]
    bare = txlog.Table.create(tmp_path / "t", rows.schema, mode="overwrite", properties=on)
    assert bare.snapshot.controls.domains["delta.clustering"].removed
    assert deltalake.DeltaTable(empty.uri).schema().fields


def domain_of(table: txlog.Table) -> str:
    return table.snapshot.controls.domains["delta.clustering"].configuration


def test_a_table_is_clustered(tmp_path: Path) -> None:
    rows = pa.table({"x": [3, 1, 2], "s": pa.array([{"y": 1}] * 3), "b": [b"", b"", b""]})
    table = txlog.write(tmp_path, rows)
    outcome = table.alter.cluster_by("x", "s.y")
    assert outcome.features_added == ("clustering", "domainMetadata")
    domain = table.snapshot.controls.domains["delta.clustering"]
    assert orjson.loads(domain.configuration)["clusteringColumns"] == [["x"], ["s", "y"]]
    assert not table.alter.cluster_by("X", "s.y")
    table.append(rows)
    table.optimize.cluster()
    table.delete("x = 1")
    table.maintenance.checkpoint()
    again = txlog.Table(tmp_path)
    assert again.snapshot.controls.domains["delta.clustering"].configuration == domain.configuration
    assert again.restore(1)  # The domain goes with the version.
    assert table.refresh().alter.cluster_by()
    emptied = table.snapshot.controls.domains["delta.clustering"]
    assert orjson.loads(emptied.configuration)["clusteringColumns"] == []
    for wrong in (["zz"], ["b"], ["x", "x"]):
        with pytest.raises(txlog.InvalidInputError):
            table.alter.cluster_by(*wrong)
    parted = txlog.write(tmp_path / "p", rows, partition_by="x")
    with pytest.raises(txlog.InvalidInputError, match="partitioned"):
        parted.alter.cluster_by("s.y")
