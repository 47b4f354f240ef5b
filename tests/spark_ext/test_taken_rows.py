"""Tasks of a merge read by addresses what no clause names; the result is that of Spark's scan."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from pyspark.sql import functions as F  # noqa: N812 - as all of Spark's users name it

import txlog
from tests.examples import examples
from tests.losing import losing
from tests.moved import moved
from txlog import spark_ext
from txlog.spark_ext.plans import each
from txlog.spark_ext.writes import row_changes, taken_rows
from txlog.spark_ext.writes.small_sources import LOCAL_ROWS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from pyspark.sql import SparkSession

    from txlog.schema.types import StructType

pytestmark = pytest.mark.spark

SCANNED = "txlog.spark_ext.writes.taken_rows:_SCANNED_ROWS"
BYTES = "txlog.spark_ext.writes.taken_rows:_BYTES"
PHYSICAL = "delta.columnMapping.physicalName"
NEVER = {SCANNED: 1 << 40}
ALWAYS = {SCANNED: 1}
SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64()),
        pa.field("x", pa.int64()),
        pa.field("t", pa.string()),
        pa.field("p", pa.string()),
        pa.field(
            "s",
            pa.struct([pa.field("a", pa.int64()), pa.field("l", pa.list_(pa.int32()))]),
        ),
        pa.field("at", pa.timestamp("us", "UTC")),
        pa.field("twice", pa.int64()),
    ]
)
GENERATED = {"twice": "x * 2"}
FORMS: list[dict[str, str]] = [
    {},
    {"delta.enableDeletionVectors": "false"},
    {"delta.enableChangeDataFeed": "true"},
    {"delta.enableRowTracking": "true"},
    {"delta.enableChangeDataFeed": "true", "delta.enableRowTracking": "true"},
    {"delta.columnMapping.mode": "name"},
]
FEW = txlog.WriteOptions(max_rows_per_file=7)


@pytest.fixture(autouse=True)
def joined_by_spark(spark: SparkSession) -> Iterator[None]:
    spark.conf.set(LOCAL_ROWS, "0")
    yield
    spark.conf.unset(LOCAL_ROWS)


def rows(count: int) -> pa.Table:
    found = [
        {
            "id": n,
            "x": n % 5,
            "t": None if n % 7 == 0 else f"t{n}",
            "p": "ab"[n % 2],
            "s": None if n % 6 == 0 else {"a": n, "l": [n] * (n % 3)},
            "at": datetime(2024, 1, 1, n % 24, tzinfo=UTC),
            "twice": n % 5 * 2,
        }
        for n in range(count)
    ]
    return pa.Table.from_pylist(found, SCHEMA)


def made(path: Path, form: Mapping[str, str], by: list[str], count: int) -> txlog.Table:
    table = txlog.Table.create(path, SCHEMA, by, form, generated=GENERATED)
    table.append(rows(count), options=FEW)
    table.alter.add_constraint({"short": "t IS NULL OR length(t) < 9"})
    table.delete("id % 10 = 3")
    return table


MATCHED: dict[str, Any] = {
    "one": lambda m: m.when_matched_update({"x": "source.x"}),
    "some": lambda m: m.when_matched_update({"x": "source.x + 1"}, "target.id % 2 = 0"),
    "field": lambda m: m.when_matched_update({"s.a": "source.x"}, "source.x > 10"),
    "text": lambda m: m.when_matched_update({"t": "concat(source.t, '!')"}, "target.p = 'a'"),
    "place": lambda m: m.when_matched_update({"p": "source.t"}, "source.x = 3"),
    "delete": lambda m: m.when_matched_delete("source.x % 3 = 0"),
    "insert": lambda m: m.when_not_matched_insert({"id": "source.id", "x": "source.x", "t": "''"}),
}


def outcome(table: Any, source: Any, names: list[str]) -> dict[str, Any]:
    """Return what a merge does, or its error."""
    merger = table.merge(source, "target.id = source.id")
    for name in names:
        merger = MATCHED[name](merger)
    try:
        metrics = merger.execute().metrics
    except txlog.TxlogError as error:
        return {"error": (type(error), txlog.Table(table.uri).version)}
    now = txlog.Table(table.uri)
    more = ["_rowid"] if now.metadata.configuration.get("delta.enableRowTracking") else []
    found = {
        "rows": Counter(map(str, now.to_arrow([*SCHEMA.names, *more]).to_pylist())),
        "metrics": {
            name: value for name, value in metrics.items() if "Rows" in name or "Updated" in name
        },
    }
    if now.metadata.configuration.get("delta.enableChangeDataFeed"):
        changes = now.changes(now.version).to_arrow().drop_columns(["_commit_timestamp"])
        found["feed"] = Counter(map(str, changes.to_pylist()))
    return found


@pytest.fixture
def takes(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, ...] | None]:
    """The columns that the tasks of each merge read by addresses; None: they read nothing."""
    found: list[tuple[str, ...] | None] = []
    whole = row_changes._computed

    def noted(task: Any, frame: Any) -> Any:
        taken = task.taken
        found.append(None if taken is None else tuple(one.name for one in taken.reading.columns))
        return whole(task, frame)

    monkeypatch.setattr(row_changes, "_computed", noted)
    return found


SOURCES = st.lists(
    st.tuples(st.integers(0, 50), st.integers(0, 20), st.sampled_from(["a", "", "too long"])),
    min_size=1,
    max_size=9,
    unique_by=lambda row: row[0],
)


@pytest.mark.spec("SPK-29")
@pytest.mark.slow
@given(data=st.data())
@settings(max_examples=examples(40), deadline=None, phases=[Phase.explicit, Phase.generate])
def test_random_merges_do_the_same_both_ways(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    home = tmp_path_factory.mktemp("t")
    form, by = data.draw(st.sampled_from(FORMS)), data.draw(st.sampled_from([[], ["p"]]))
    given_rows = data.draw(SOURCES)
    names = data.draw(st.lists(st.sampled_from([*MATCHED]), min_size=1, max_size=4))
    # One of two source rows with a key: an error unless nothing or a delete applies to both.
    again = data.draw(st.sampled_from([[], given_rows[:1]]))
    columns = zip(*given_rows, *again, strict=True)
    source = pa.table(dict(zip(["id", "x", "t"], columns, strict=True)))
    found = {}
    for way, values in (
        ("scan", NEVER),
        ("take", {**ALWAYS, BYTES: data.draw(st.sampled_from([1, 16 << 20]))}),
    ):
        table = made(home / way, form, by, 40)
        with moved(values):
            on_spark = spark_ext.table(spark, table.uri)
            found[way] = outcome(on_spark, spark.createDataFrame(source), names)
    assert found["take"] == found["scan"]
    core = outcome(made(home / "core", form, by, 40), source, names)
    assert core.get("rows") == found["take"].get("rows")


@pytest.mark.slow(cases=1)
@pytest.mark.spec("SPK-29", "SPK-27")
@pytest.mark.parametrize("names", [["one"], ["one", "insert"]], ids=len)
@pytest.mark.parametrize("form", FORMS[2:4], ids=str)
def test_files_that_winners_add_do_the_same_both_ways(
    spark: SparkSession,
    tmp_path: Path,
    takes: list[tuple[str, ...] | None],
    form: dict[str, str],
    names: list[str],
) -> None:
    source = pa.table({"id": [4, 5, 60], "x": [40, 50, 60], "t": ["a", "b", "c"]})
    found = []
    for way, values in (("scan", NEVER), ("take", ALWAYS)):
        table = made(tmp_path / way, form, [], 40)

        def wins(other: txlog.Table) -> None:
            other.append(rows(6).slice(5))  # Another row with the key 5.

        with moved(values), losing(tmp_path / way, [wins] * 2):
            on_spark = spark_ext.table(spark, table.uri)
            found.append(outcome(on_spark, spark.createDataFrame(source), names))
    assert found[0] == found[1]
    assert found[0]["metrics"]["numTargetRowsUpdated"] == 4
    half = len(takes) // 2
    assert set(takes[:half]) == {None}
    assert None not in takes[half:]


def scanned_columns(frame: Any, schema: StructType) -> set[str]:
    """Return the columns of a table that Spark reads from files for a frame."""
    names = {one.metadata.get(PHYSICAL, one.name): one.name for one in schema.fields}
    plan = frame._jdf.queryExecution().sparkPlan()
    read = [name for leaf in each(plan.collectLeaves()) for name in leaf.schema().fieldNames()]
    return {names[name] for name in read if name in names}


@pytest.mark.slow(cases=2)
@pytest.mark.spec("SPK-29")
@pytest.mark.parametrize("form", FORMS, ids=str)
def test_spark_reads_only_the_columns_that_clauses_name(
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    form: dict[str, str],
) -> None:
    scans: list[set[str]] = []
    whole = row_changes._computed

    def noted(task: Any, frame: Any) -> Any:
        scans.append(scanned_columns(frame, txlog.Table(task.store.root).snapshot.schema))
        return whole(task, frame)

    monkeypatch.setattr(row_changes, "_computed", noted)
    found = {}
    for way, values in (("scan", NEVER), ("take", ALWAYS)):
        table = made(tmp_path / way, form, [], 40)
        source = spark.createDataFrame([(5, 50), (22, 1)], "k long, v long")
        with moved(values):
            merger = spark_ext.table(spark, table.uri).merge(source, "target.id = source.k")
            several = "source.v + length(target.p) > 2"
            merger.when_matched_update({"x": "source.v"}, several).execute()
        found[way] = sorted(txlog.Table(table.uri).to_arrow().to_pylist(), key=lambda r: r["id"])
    assert found["take"] == found["scan"]
    assert {row["id"]: (row["x"], row["twice"]) for row in found["take"]}[5] == (50, 100)
    every, few = scans
    assert few == {"id", "p"}
    assert every >= {"t", "s", "at"}


@pytest.mark.slow
@pytest.mark.spec("SPK-29")
def test_many_changed_rows_are_scanned(
    spark: SparkSession, tmp_path: Path, takes: list[tuple[str, ...] | None]
) -> None:
    table = made(tmp_path / "t", {}, [], 400)
    few = table.count() // taken_rows._SCANNED_ROWS
    for count in (few, few + 1):
        # The last two keys lie in the last file, so that the span of all others leaves out none.
        numbers = F.when(F.col("id") < 2, 399 - F.col("id")).otherwise(F.col("id") - 2)
        source = spark.range(count).select(numbers.alias("id"), F.lit(9).alias("x"))
        merger = spark_ext.table(spark, table.uri).merge(source, "target.id = source.id")
        with moved({"txlog.spark_ext.writes.source_keys:_SPANS": 1}):
            merger.when_matched_update({"x": "source.x"}).execute()
    assert takes == [("at", "id", "p", "s", "t"), None]


@pytest.mark.slow
@pytest.mark.spec("SPK-29")
def test_a_key_that_many_rows_share_counts_as_often(
    spark: SparkSession, tmp_path: Path, takes: list[tuple[str, ...] | None]
) -> None:
    table = made(tmp_path / "t", {}, [], 400)
    source = spark.createDataFrame([(4, "u")], "k long, v string")
    for least in (5, 6):  # A fifth of the numbers from 0 to 4, with one key.
        merger = spark_ext.table(spark, table.uri).merge(source, "target.x = source.k")
        with moved({SCANNED: least}):
            done = merger.when_matched_update({"t": "source.v"}).execute()
        assert done.metrics["numTargetRowsUpdated"] == 80
    assert takes == [("at", "id", "p", "s", "x"), None]


@pytest.mark.slow
@pytest.mark.spec("SPK-29")
def test_rows_of_an_open_transaction_keep_what_no_clause_names(
    spark: SparkSession, tmp_path: Path, takes: list[tuple[str, ...] | None]
) -> None:
    found = []
    for way, values in (("scan", NEVER), ("take", ALWAYS)):
        table = made(tmp_path / way, {}, [], 40)
        source = spark.createDataFrame([(5, 50), (41, 7)], "id long, x long")
        with moved(values), table.transaction() as tx:
            tx.append(pa.Table.from_pylist([{"id": 41, "t": "new"}], SCHEMA))
            merger = tx.merge(source, "target.id = source.id")
            merger.when_matched_update({"x": "source.x"}).execute()
        found.append(Counter(map(str, txlog.Table(table.uri).to_arrow().to_pylist())))
    assert found[0] == found[1]
    assert takes[0] is None
    assert takes[1] is not None
