"""Properties of new tables: each one has its effect, or is refused."""

from pathlib import Path
from typing import Any

import deltalake
import orjson
import pyarrow as pa
import pytest

import txlog
from txlog.testing import unsealed

ROWS = pa.table(
    {
        "a": [1, None],
        "b.c": ["x", "y"],
        "s": [{"t": 1.5, "u": [1]}, {"t": None, "u": None}],
        "`": [True, False],
        "p": [1, 1],
    }
)
LISTED = "delta.dataSkippingStatsColumns"


def stats_of(table: txlog.Table) -> dict[str, Any]:
    log = Path(table.uri) / "_delta_log" / f"{table.version:020d}.json"
    (line,) = [line for line in log.read_text("utf-8").splitlines() if line.startswith('{"add"')]
    stats: dict[str, Any] = orjson.loads(orjson.loads(line)["add"]["stats"])
    return stats


def replace_in_log(root: Path, old: str, new: str) -> None:
    log = root / "_delta_log" / f"{0:020d}.json"
    log.write_bytes(unsealed(log.read_bytes()).replace(old.encode(), new.encode()))


@pytest.mark.parametrize(
    ("listed", "counts", "least"),
    [
        ("a", {"a": 1}, {"a": 1}),
        ("`b.c`", {"b.c": 0}, {"b.c": "x"}),
        ("A, `B.C`", {"a": 1, "b.c": 0}, {"a": 1, "b.c": "x"}),
        ("s.t", {"s": {"t": 1}}, {"s": {"t": 1.5}}),
        ("s", {"s": {"t": 1, "u": 1}}, {"s": {"t": 1.5}}),
        ("", {}, {}),
    ],
)
def test_statistics_are_of_the_listed_columns(
    tmp_path: Path, listed: str, counts: dict[str, Any], least: dict[str, Any]
) -> None:
    properties = {LISTED: listed, "delta.dataSkippingNumIndexedCols": "0"}
    table = txlog.write(tmp_path, ROWS, properties=properties, partition_by="p")
    for _ in range(2):
        assert stats_of(table)["nullCount"] == counts
        assert stats_of(table)["minValues"] == least
        table.append(ROWS)
    assert table.count("a = 1") == 3


def test_deltalake_chooses_the_same_columns(tmp_path: Path) -> None:
    data = pa.table({"a": [1], "b.c": ["x"], "d": [2]})
    properties = {LISTED: "a,`b.c`"}
    ours = txlog.write(tmp_path / "ours", data, properties=properties)
    deltalake.write_deltalake(tmp_path / "theirs", data, configuration=dict(properties))
    theirs = txlog.Table(tmp_path / "theirs")
    assert stats_of(ours)["minValues"] == stats_of(theirs)["minValues"]


def test_computed_statistics_are_of_the_listed_columns(tmp_path: Path) -> None:
    bare = {LISTED: ""}
    table = txlog.write(tmp_path, ROWS, properties=bare)
    replace_in_log(tmp_path, f'"{LISTED}":""', f'"{LISTED}":"a"')
    table = txlog.Table(tmp_path)
    table.optimize.compute_statistics()
    assert stats_of(table)["minValues"] == {"a": 1}


def test_a_listed_column_that_was_dropped_does_no_harm(tmp_path: Path) -> None:
    table = txlog.write(tmp_path, ROWS, properties={LISTED: "a,s.t"})
    table.overwrite(pa.table({"a": [7]}), schema_mode="overwrite")
    table.append(pa.table({"a": [8]}))
    assert stats_of(table)["minValues"] == {"a": 8}


@pytest.mark.parametrize(
    ("listed", "says"),
    [
        ("z", "no such column"),
        ("a.b", "no such column"),
        ("b.c", "no such column"),
        ("p", "partition column"),
        ("`", "expected column names"),
        ("s.u", "no bounds"),
        ("a,A", "named twice"),
    ],
)
def test_columns_without_statistics_cannot_be_listed(
    tmp_path: Path, listed: str, says: str
) -> None:
    with pytest.raises(txlog.InvalidInputError, match=says):
        txlog.write(tmp_path / "t", ROWS, properties={LISTED: listed}, partition_by="p")
    assert not (tmp_path / "t").exists()


@pytest.mark.parametrize(
    ("name", "value", "feature"),
    [
        ("delta.checkpointPolicy", "v2", "v2Checkpoint"),
        ("delta.enableTypeWidening", "true", "typeWidening"),
        ("delta.enableDeletionVectors", "true", "deletionVectors"),
    ],
)
def test_a_property_brings_its_feature(tmp_path: Path, name: str, value: str, feature: str) -> None:
    table = txlog.write(tmp_path, ROWS, properties={name: value})
    assert feature in (table.protocol.reader_features or [])
    assert feature in (table.protocol.writer_features or [])
    table.append(ROWS.append_column("new", pa.array([1, 2])), schema_mode="merge")
    assert table.count() == 4


def test_v2_checkpoints_follow_from_the_policy(tmp_path: Path) -> None:
    table = txlog.write(tmp_path, ROWS, properties={"delta.checkpointPolicy": "v2"})
    table.maintenance.checkpoint()
    names = [path.name for path in (tmp_path / "_delta_log").glob("*.checkpoint.*")]
    assert names
    assert all(len(name.split(".")) == 4 for name in names)  # A UUID is in the name.
    assert txlog.Table(tmp_path).count() == 2


@pytest.mark.parametrize(
    "name",
    [
        "delta.inCommitTimestampEnablementVersion",
        "delta.inCommitTimestampEnablementTimestamp",
        "txlog.droppedColumns",
    ],
)
def test_what_writers_record_cannot_be_chosen(tmp_path: Path, name: str) -> None:
    with pytest.raises(txlog.InvalidInputError, match=name):
        txlog.write(tmp_path / "t", ROWS, properties={name: "7"})
    assert not (tmp_path / "t").exists()


def test_a_property_without_its_feature_asks_nothing_of_new_columns(tmp_path: Path) -> None:
    table = txlog.write(tmp_path, ROWS)
    replace_in_log(tmp_path, '"configuration":{', '"configuration":{"delta.checkpointPolicy":"v2",')
    table = txlog.Table(tmp_path)
    table.append(ROWS.append_column("new", pa.array([1, 2])), schema_mode="merge")
    assert table.count() == 4
    assert "v2Checkpoint" not in (table.protocol.reader_features or [])


@pytest.mark.spec("CON-26")
def test_new_columns_bring_the_features_of_their_types(tmp_path: Path) -> None:
    table = txlog.write(tmp_path / "t", pa.table({"x": [1]}))
    assert table.protocol.min_reader_version == 1
    data = pa.table({"x": [2], "t": pa.array([0], pa.timestamp("us"))})
    outcome = table.append(data, schema_mode="merge")
    assert outcome.features_added == ("timestampNtz",)
    assert table.protocol.reader_features == ["timestampNtz"]
    theirs = deltalake.DeltaTable(tmp_path / "t").to_pyarrow_table()
    assert theirs.sort_by("x") == table.to_arrow().sort_by("x")
    assert table.append(data).features_added == ()

    other = txlog.write(tmp_path / "o", pa.table({"x": [1]}))
    assert other.overwrite(data, schema_mode="overwrite").features_added == ("timestampNtz",)
    third = txlog.write(tmp_path / "m", pa.table({"x": [1]}))
    merged = third.merge(data, "target.x = source.x", schema_mode="merge")
    done = merged.when_not_matched_insert_all().execute()
    assert done.features_added == ("timestampNtz",)
    assert deltalake.DeltaTable(tmp_path / "m").version() == 1
