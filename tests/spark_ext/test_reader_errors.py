"""Reading missing or wrong things: one error, with txlog's code and a remedy."""

import datetime as dt
import json
import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

import txlog

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


@pytest.fixture
def table(tmp_path: Path) -> txlog.Table:
    made = txlog.write(tmp_path / "t", pa.table({"id": [1, 2, 3], "s": ["a", "b", "c"]}))
    made.append(pa.table({"id": [4], "s": ["d"]}))
    for second, commit in enumerate(sorted((tmp_path / "t" / "_delta_log").glob("*.json"))):
        os.utime(commit, (1_700_000_000 + second,) * 2)
    return made


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"versionAsOf": "9"}, r"\[not-found\].*no such version.*9"),
        ({"versionAsOf": "-1"}, r"\[invalid-input\].*from 0 was expected.*versionAsOf"),
        ({"versionAsOf": "x"}, r"\[invalid-input\].*'x': a whole number was expected"),
        ({"timestampAsOf": "2001-01-01"}, r"\[not-found\].*before the first version"),
        ({"timestampAsOf": "2999-01-01"}, r"\[not-found\].*after the last version"),
        ({"timestampAsOf": "soon"}, r"invalid-input.*'soon' is not an? .*timestamp.*Write it as"),
        ({"versionAsOf": "0", "timestampAsOf": "2020-01-01"}, "both choose a version"),
        ({"columns": "id,nope"}, r"\[invalid-input\].*no such column.*nope.*Choose from id, s"),
        ({"columns": "[1"}, r"\[invalid-input\].*a JSON list of names was expected"),
        ({"where": "nope = 1"}, r"\[invalid-input\].*nope"),
        ({"where": "id ="}, r"\[invalid-input\].*not a SQL expression"),
        ({"where": "id = 'x'"}, r"\[invalid-input\]"),
        ({"limit": "-1"}, r"\[invalid-input\].*a whole number from 0 was expected"),
        ({"startingVersion": "0"}, r"\[invalid-input\].*it is for streams.*startingVersion"),
        ({"endingTimestamp": "2020-01-01"}, r"\[invalid-input\].*for batches with readChangeFeed"),
        ({"readChangeData": "perhaps"}, r"\[invalid-input\].*true or false was expected"),
        (
            {"readChangeFeed": "true", "startingVersion": "0", "onlyWithDeletions": "true"},
            r"\[invalid-input\].*no meaning with readChangeFeed.*onlyWithDeletions",
        ),
        ({"maxPartitionBytes": "0"}, r"\[invalid-input\].*a number of bytes was expected"),
        ({"storageOptions": "{secret"}, r"\[invalid-input\].*a JSON object of options"),
    ],
    ids=str,
)
def test_wrong_options_are_named(
    spark: "SparkSession", table: txlog.Table, options: dict[str, str], told: str
) -> None:
    with pytest.raises(Exception, match=told) as caught:
        spark.read.format("txlog").options(**options).load(table.uri).collect()
    assert "{secret" not in str(caught.value)


@pytest.mark.slow
def test_a_table_that_vanished(spark: "SparkSession", table: txlog.Table) -> None:
    frame = spark.read.format("txlog").load(table.uri)
    assert frame.count() == 4
    shutil.rmtree(table.uri)
    with pytest.raises(Exception, match=r"\[(not-found|data-file)\]"):
        frame.collect()
    with pytest.raises(Exception, match=r"\[not-found\]"):
        spark.read.format("txlog").load(table.uri)


def test_a_data_file_that_vanished_is_named(spark: "SparkSession", table: txlog.Table) -> None:
    name = table.files()["path"][0].as_py()
    (Path(table.uri) / name).unlink()
    with pytest.raises(Exception, match=rf"\[data-file\].*{name}") as caught:
        spark.read.format("txlog").load(table.uri).collect()
    # Spark puts one line of its own before it, without causes and lines of code.
    before = str(caught.value).partition("[data-file]")[0]
    assert "direct cause" not in before
    assert 'File "' not in before, before
    assert len(before) < 900, before


def test_a_log_that_is_torn_is_named(spark: "SparkSession", table: txlog.Table) -> None:
    torn = Path(table.uri) / "_delta_log" / f"{1:020d}.json"
    torn.write_text('{"add": {"path"', encoding="utf-8")
    with pytest.raises(Exception, match=rf"\[log-corrupt\].*{torn.name}"):
        spark.read.format("txlog").load(table.uri)


def test_a_feature_that_txlog_lacks_is_named(spark: "SparkSession", table: txlog.Table) -> None:
    protocol = {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": ["teleport"],
                "writerFeatures": ["teleport"]}  # fmt: skip
    path = Path(table.uri) / "_delta_log" / f"{2:020d}.json"
    path.write_text(json.dumps({"protocol": protocol}), encoding="utf-8")
    with pytest.raises(Exception, match=r"\[unsupported-feature\].*teleport"):
        spark.read.format("txlog").load(table.uri)


@pytest.mark.slow
@pytest.mark.parametrize("zone", ["UTC", "America/New_York"])
@pytest.mark.parametrize(
    "form",
    [
        "{:%Y-%m-%d %H:%M:%S.%f}",
        "{:%Y-%m-%dT%H:%M:%S.%fZ}",
        "{:%Y-%m-%dT%H:%M:%S.%f}+00:00",
        "{:%Y-%m-%d %H:%M:%S.%f} UTC",
        "{0.year}-{0.month}-{0.day} {0:%H:%M:%S.%f}",
    ],
)
def test_spellings_of_a_timestamp(
    spark: "SparkSession", table: txlog.Table, form: str, zone: str
) -> None:
    """Those of Delta's reader; without a zone they are in UTC, whatever the session's zone."""
    second_ms = txlog.Table(table.uri).timestamp_ms
    reader = spark.read.format("txlog")
    spark.conf.set("spark.sql.session.timeZone", zone)
    try:
        for moment_ms, rows in ((second_ms, 4), (second_ms - 1, 3)):
            text = form.format(dt.datetime.fromtimestamp(moment_ms / 1000, dt.UTC))
            assert reader.option("timestampAsOf", text).load(table.uri).count() == rows
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")
