"""Merges and updates on Spark, compared with the core's results and with plain Python."""

import itertools
import resource
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

import txlog
from tests.examples import examples
from txlog import spark_ext
from txlog.base.errors import InvalidInputError, SchemaMismatchError
from txlog.spark_ext import DeltaTable
from txlog.spark_ext.writes.small_sources import LOCAL_ROWS
from txlog.table.merge import TableMerger

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

COLUMNS = pa.schema([("id", pa.int64()), ("x", pa.int64()), ("p", pa.string())])
KEYS = st.one_of(st.none(), st.integers(0, 12))
ROW = st.tuples(KEYS, st.integers(0, 5), st.sampled_from("ab"))
PROPERTIES = {
    "vectors": {},
    "rewrites": {"delta.enableDeletionVectors": "false"},
    "records": {"delta.enableChangeDataFeed": "true", "delta.enableRowTracking": "true"},
    "maps": {"delta.columnMapping.mode": "name", "delta.enableChangeDataFeed": "true"},
}
CONDITIONS = [
    "target.id = source.id",
    "target.id <=> source.id AND target.p = source.p",
    "target.id = source.id AND target.p = 'a'",
    "target.id = source.id AND target.x < source.x",
]
MATCHED = ["source.x > 2", "target.x = source.x", None]
BY_SOURCE = ["target.x > 3", "target.p = 'b'", None]


@st.composite
def clauses(draw: st.DrawFn) -> list[tuple[str, tuple[Any, ...]]]:
    """Calls of methods of `TableMerger`; each clause can be reached."""
    found: list[tuple[str, tuple[Any, ...]]] = []
    for kind, predicates, values in (
        ("matched", MATCHED, {"x": "target.x + source.x * 10", "p": "source.p"}),
        ("not_matched", ["source.x > 1", None], {"id": "source.id", "x": "source.x - 1"}),
        ("not_matched_by_source", BY_SOURCE, {"x": "target.x + 100"}),
    ):
        for _ in range(draw(st.integers(0, 2))):
            predicate = draw(st.sampled_from(predicates))
            if kind == "not_matched":
                actions = ["insert", "insert_all"]
            else:
                actions = ["update", "delete", *(["update_all"] if kind == "matched" else [])]
            action = draw(st.sampled_from(actions))
            arguments = (values, predicate) if action in ("update", "insert") else (predicate,)
            found.append((f"when_{kind}_{action}", arguments))
            if predicate is None:
                break
    return found or [("when_not_matched_insert_all", (None,))]


@contextmanager
def few_rows(spark: "SparkSession", most: int) -> Iterator[None]:
    """Leave merges of more rows to Spark's join."""
    spark.conf.set(LOCAL_ROWS, str(most))
    yield
    spark.conf.unset(LOCAL_ROWS)


def rows_of(rows: list[tuple[Any, ...]]) -> pa.Table:
    return pa.Table.from_pylist([dict(zip(COLUMNS.names, r, strict=True)) for r in rows], COLUMNS)


def outcome_of(merger: TableMerger, calls: list[tuple[str, tuple[Any, ...]]]) -> Any:
    for name, arguments in calls:
        merger = getattr(merger, name)(*arguments)
    try:
        done = merger.execute()
    except InvalidInputError as error:
        return error.reason.partition(", and would change it")[0]
    shared = ("numTargetRowsInserted", "numTargetRowsUpdated", "numTargetRowsDeleted")
    return [done.metrics.get(name, 0) for name in (*shared, "numTargetRowsCopied")]


def contents(table: txlog.Table) -> Any:
    """Return the rows, with their ids if they are tracked, and the changes of the last version."""
    tracked = table.properties.get("delta.enableRowTracking") == "true"
    rows = table.to_arrow([*COLUMNS.names, *(["_rowid"] if tracked else [])]).to_pylist()
    first_new = 1 << 60
    if tracked:  # Ids of new rows are fresh, whichever they are.
        first_new = txlog.Table(table.uri, 0).count()
    kept = sorted(
        (str(tuple(r[name] for name in COLUMNS.names)), min(r.get("_rowid", 0), first_new))
        for r in rows
    )
    changes: list[str] = []
    if table.properties.get("delta.enableChangeDataFeed") == "true" and table.version:
        found = table.changes(1).to_arrow().drop_columns(["_commit_timestamp"])
        changes = sorted(str(sorted(row.items())) for row in found.to_pylist())
    return kept, changes


@pytest.mark.slow
@pytest.mark.spec("SPK-20", "SPK-22", "SPK-23")
@given(data=st.data())
# Each example is a job of Spark, so a failing one is shown as it is.
@settings(max_examples=examples(12), phases=[Phase.explicit, Phase.reuse, Phase.generate])
def test_random_merges_do_what_the_core_does(
    spark: "SparkSession", tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    home = tmp_path_factory.mktemp("m")
    held = rows_of(data.draw(st.lists(ROW, min_size=1, max_size=25), label="target"))
    source = rows_of(data.draw(st.lists(ROW, max_size=12), label="source"))
    properties = PROPERTIES[data.draw(st.sampled_from(sorted(PROPERTIES)), label="properties")]
    partition_by = data.draw(st.sampled_from([[], ["p"]]), label="partition_by")
    condition = data.draw(st.sampled_from(CONDITIONS), label="condition")
    calls = data.draw(clauses(), label="clauses")
    for name in ("core", "spark"):
        txlog.write(
            home / name, held, partition_by=partition_by, properties=properties,
            options=txlog.WriteOptions(max_rows_per_file=8),
        )  # fmt: skip
    expected = outcome_of(txlog.Table(home / "core").merge(source, condition), calls)
    table = spark_ext.table(spark, home / "spark")
    merger = table.merge(spark.createDataFrame(source), condition)
    with few_rows(spark, data.draw(st.sampled_from([0, 0, 10_000]), label="few rows")):
        found = outcome_of(merger, calls)
    assert found == expected
    core = txlog.Table(home / "core")
    assert (table.version, contents(table)) == (core.version, contents(core))
    files = {path.name for path in (home / "spark").rglob("*.parquet") if path.is_file()}
    named = "".join(p.read_text() for p in (home / "spark" / "_delta_log").glob("*.json"))
    assert all(name in named for name in files)  # Nothing was left behind.


@pytest.fixture
def table(spark: "SparkSession", tmp_path: Path) -> DeltaTable:
    rows = [{"id": n, "x": n * 0.5, "st": {"a": n, "b": "t"}} for n in range(100)]
    made = txlog.write(
        tmp_path / "t", pa.Table.from_pylist(rows), options=txlog.WriteOptions(max_rows_per_file=30)
    )
    return DeltaTable.forPath(spark, made.uri)


def by_id(table: DeltaTable) -> dict[int, dict[str, Any]]:
    rows = txlog.Table(table.table.uri).to_arrow().to_pylist()
    assert len({row["id"] for row in rows}) == len(rows)
    return {row["id"]: row for row in rows}


@pytest.mark.slow
def test_a_merge_by_delta_sparks_names(spark: "SparkSession", table: DeltaTable) -> None:
    from pyspark.sql import functions as fn

    source = spark.range(90, 110).selectExpr("id", "CAST(id AS INT) AS n", "id % 2 = 0 AS even")
    label = fn.udf(lambda n: f"#{n}", "string")
    made = (
        table.alias("t")
        .merge(source.alias("s"), fn.col("t.id") == fn.col("s.id"))
        .whenMatchedDelete("s.n = 91 AND array_contains(array(90, 91), s.n)")
        .whenMatchedUpdate(fn.col("s.even"), {"x": "s.n", "st.b": label("s.n")})
        .whenNotMatchedInsert("s.n < 105", {"id": "s.id", "st": "named_struct('b', 'new')"})
        .whenNotMatchedBySourceUpdate("t.id < 2", {"t.st.a": fn.lit(None), "x": "power(t.x, 2)"})
        .whenNotMatchedBySourceDelete("t.id BETWEEN 10 AND 11")
        .execute()
    )
    assert [row.asDict() for row in made.collect()] == [
        {
            "num_affected_rows": 15,
            "num_updated_rows": 7,
            "num_deleted_rows": 3,
            "num_inserted_rows": 5,
        }
    ]
    rows = by_id(table)
    assert sorted(rows) == [n for n in range(105) if n not in (10, 11, 91)]
    assert rows[92] == {"id": 92, "x": 92.0, "st": {"a": 92, "b": "#92"}}
    assert rows[93] == {"id": 93, "x": 46.5, "st": {"a": 93, "b": "t"}}
    assert rows[103] == {"id": 103, "x": None, "st": {"a": None, "b": "new"}}
    assert rows[1] == {"id": 1, "x": 0.25, "st": {"a": None, "b": "t"}}


@pytest.mark.slow
def test_an_update_by_delta_sparks_names(table: DeltaTable) -> None:
    from pyspark.sql import functions as fn

    table.update("id IN (SELECT id * 9 FROM range(3))", {"x": "x + 1000", "st.b": "upper(st.b)"})
    table.alias("t").update(fn.col("t.id") == 50, {"x": fn.col("t.id") * 2})
    table.update(set={"st.a": "0"})
    rows = by_id(table)
    assert [n for n, row in rows.items() if row["x"] >= 1000] == [0, 9, 18]
    assert (rows[9]["st"], rows[50]["x"]) == ({"a": 0, "b": "T"}, 100.0)
    assert {row["st"]["a"] for row in rows.values()} == {0}
    entry = table.table.refresh().history(3)[-1]
    assert entry["operationMetrics"]["numUpdatedRows"] == "3"


@pytest.mark.slow
@pytest.mark.spec("SPK-24")
def test_schema_evolution(spark: "SparkSession", table: DeltaTable) -> None:
    source = spark.sql(
        "SELECT id, 1.0D AS x, named_struct('a', id, 'c', true) AS st, 'new' AS y "
        "FROM range(99, 102)"
    )
    plain = table.alias("t").merge(source.alias("s"), "t.id = s.id")
    with pytest.raises(SchemaMismatchError, match="no such field"):
        plain.whenMatchedUpdateAll().execute()
    (
        plain.withSchemaEvolution()
        .whenMatchedUpdate(None, {"y": "s.y"})
        .whenNotMatchedInsertAll()
        .execute()
    )
    rows = by_id(table)
    assert rows[3] == {"id": 3, "x": 1.5, "st": {"a": 3, "b": "t", "c": None}, "y": None}
    assert rows[99] == {"id": 99, "x": 49.5, "st": {"a": 99, "b": "t", "c": None}, "y": "new"}
    assert rows[100] == {"id": 100, "x": 1.0, "st": {"a": 100, "b": None, "c": True}, "y": "new"}


@pytest.mark.slow
def test_a_setting_of_the_session_evolves_schemas(spark: "SparkSession", table: DeltaTable) -> None:
    source = spark.sql(
        "SELECT id, 0.5D AS x, named_struct('a', id, 'b', 'u') AS st, 'new' AS y "
        "FROM range(99, 101)"
    )
    merge = table.alias("t").merge(source.alias("s"), "t.id = s.id").whenNotMatchedInsertAll()
    row = {"id": 100, "x": 0.5, "st": {"a": 100, "b": "u"}}
    merge.execute()  # Columns that only the source has are left out.
    assert by_id(table)[100] == row
    table.delete("id = 100")
    setting = "spark.databricks.delta.schema.autoMerge.enabled"
    spark.conf.set(setting, " True ")  # Spark reads it like this, too.
    try:
        merge.execute()
    finally:
        spark.conf.unset(setting)
    assert by_id(table)[100] == {**row, "y": "new"}


@pytest.mark.slow
def test_constraints_defaults_and_generated_columns(spark: "SparkSession", tmp_path: Path) -> None:
    schema = pa.schema([("id", pa.int64()), ("double", pa.int64()), ("x", pa.int32())])
    made = txlog.Table.create(tmp_path / "t", schema, generated={"double": "id * 2"})
    made.append(pa.table({"id": [1, 2], "x": pa.array([1, 2], pa.int32())}))
    made.alter.add_constraint({"small": "x < 100"})
    table = DeltaTable.forPath(spark, made.uri)
    source = spark.sql("SELECT id, id * 7 AS x FROM range(2, 4)")
    merge = table.alias("t").merge(source.alias("s"), "t.id = s.id")
    merge.whenMatchedUpdate(set={"id": "s.id + 50", "x": "s.x"}).whenNotMatchedInsertAll().execute()
    expected = [(1, 2, 1), (3, 6, 21), (52, 104, 14)]
    found = [tuple(r.values()) for r in made.refresh().to_arrow().sort_by("id").to_pylist()]
    assert found == expected
    before = {path for path in (tmp_path / "t").rglob("*") if path.is_file()}
    with pytest.raises(SchemaMismatchError, match="small"):
        merge.whenMatchedUpdate(set={"x": "1"}).whenNotMatchedInsert(
            values={"id": "s.id", "x": "s.x * 50"}
        ).execute()
    with pytest.raises(SchemaMismatchError, match="column x does not fit"):
        table.update("id = 1", {"x": "5000000000"})
    assert {path for path in (tmp_path / "t").rglob("*") if path.is_file()} == before
    assert made.refresh().version == 3


@pytest.mark.slow
@pytest.mark.spec("SPK-20", "SPK-22")
@pytest.mark.parametrize("files", [300, pytest.param(10_000, marks=pytest.mark.exhaustive)])
def test_skewed_keys_and_many_files(spark: "SparkSession", tmp_path: Path, files: int) -> None:
    """Nine of ten rows have one key; Spark splits and broadcasts as it likes."""
    rows = files * 20
    keys = [0 if n % 10 else n for n in range(rows)]
    made = txlog.write(
        tmp_path / "t",
        pa.table({"k": keys, "n": range(rows)}),
        options=txlog.WriteOptions(max_rows_per_file=20),
    )
    most = rows * 4 // 3
    source = spark.sql(f"SELECT id AS k, id % 5 = 0 AS gone FROM range(0, {most}, 4)")
    spark.conf.set("spark.sql.autoBroadcastJoinThreshold", "-1")
    before = peak_bytes()
    try:
        merger = spark_ext.table(spark, made.uri).merge(source, "target.k = source.k")
        merger = merger.when_matched_delete("source.gone AND target.k > 0")
        outcome = (
            merger.when_matched_update({"n": "-target.n"})
            .when_not_matched_insert({"k": "source.k", "n": "0"})
            .execute()
        )
    finally:
        spark.conf.unset("spark.sql.autoBroadcastJoinThreshold")
    assert peak_bytes() - before < 40_000 * max(files, 2_000)  # Of the driver.
    found = txlog.Table(made.uri).to_arrow()
    there = {k for k in keys if k % 4 == 0}
    expected = [(k, -n if k % 4 == 0 else n) for n, k in enumerate(keys)
                if not (k > 0 and k % 4 == 0 and k % 5 == 0)]  # fmt: skip
    expected += [(k, 0) for k in range(0, most, 4) if k not in there]
    pairs = zip(found["k"].to_pylist(), found["n"].to_pylist(), strict=True)
    assert sorted(pairs) == sorted(expected)
    assert outcome.metrics["numTargetRowsInserted"] == len(range(0, most, 4)) - len(there)


def peak_bytes() -> int:
    """Return the most memory that this process has had."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


@pytest.mark.slow
@pytest.mark.spec("SPK-21")
def test_files_are_ruled_out_and_other_writers_pass(
    spark: "SparkSession", table: DeltaTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    from txlog.spark_ext.writes import row_changes

    asked: list[Any] = []
    whole = row_changes._computed

    def meanwhile(task: Any, frame: "DataFrame") -> Any:
        asked.append(len(frame.inputFiles()))
        done = whole(task, frame)
        if len(asked) == 1:  # Rows that the condition excludes.
            txlog.Table(table.table.uri).append(pa.table({"id": [500], "x": [1.0]}))
        return done

    monkeypatch.setattr(row_changes, "_computed", meanwhile)
    source = spark.range(5, 15)
    merge = table.alias("t").merge(source.alias("s"), "t.id = s.id AND t.id < 20")
    with few_rows(spark, 0):
        merge.whenMatchedDelete().execute()
    assert len(asked) == 1  # It was not computed again.
    assert asked[0] <= 2
    assert sorted(by_id(table)) == [*range(5), *range(15, 100), 500]


@pytest.mark.slow
@pytest.mark.spec("SPK-25")
def test_few_plain_rows_are_merged_by_the_core(
    spark: "SparkSession", table: DeltaTable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from txlog.spark_ext.writes import row_changes

    joined: list[bool] = []
    whole = row_changes._computed
    monkeypatch.setattr(row_changes, "_computed", lambda *got: joined.append(True) or whole(*got))
    source = spark.range(98, 104).selectExpr("id", "0.25D AS x").alias("s")
    merge = table.alias("t").merge(source, "t.id = s.id AND s.id >= 98")
    plain = merge.whenMatchedUpdate("s.id > 98", {"t.x": "s.x"}).whenNotMatchedInsert(
        values={"id": "s.id", "x": "s.x"}
    )
    assert plain.execute().collect()[0].num_affected_rows == 5
    assert joined == []
    assert [by_id(table)[n]["x"] for n in (98, 99, 103)] == [49.0, 0.25, 0.25]
    for other in (
        merge.whenMatchedUpdate(set={"x": "s.x + 1"}),  # Spark adds otherwise.
        merge.whenMatchedUpdate(set={"x": "s.id"}),  # Of another type.
        merge.whenMatchedUpdate("abs(s.id) > 0", {"x": "s.x"}),
        table.alias("t").merge(source, "t.id < s.id - 1000").whenMatchedDelete(),
    ):
        other.execute()
        assert joined.pop()
    with few_rows(spark, 5):
        plain.execute()
    assert joined == [True]
    keyed = txlog.write(tmp_path / "keyed", pa.table({"id": range(10), "s": ["a"] * 10}))
    frame = spark.range(8, 12).selectExpr("id", "'b' AS s")
    outcome = spark_ext.table(spark, keyed.uri).upsert(frame, on="id")
    assert (outcome.metrics["numTargetRowsInserted"], joined) == (2, [True])
    assert keyed.refresh().count("s = 'b'") == 4


@pytest.mark.slow
def test_in_foreach_batch_exactly_once(spark: "SparkSession", tmp_path: Path) -> None:
    made = txlog.write(tmp_path / "t", pa.table({"id": [0, 1], "n": [0, 0]}))
    ways = itertools.count()

    def upsert(frame: "DataFrame", batch_id: int) -> None:
        builder = (
            DeltaTable.forPath(frame.sparkSession, made.uri)
            .alias("t")
            .merge(frame.alias("s"), "t.id = s.id")
            .whenMatchedUpdate(set={"n": "t.n + s.n"})
            .whenNotMatchedInsertAll()
        )
        for _ in range(2):  # As if Spark ran the batch again.
            if next(ways) % 4 < 2:
                builder.execute(txn=("loader", batch_id))
                continue
            session = frame.sparkSession
            session.conf.set("spark.databricks.delta.write.txnAppId", "loader")
            session.conf.set("spark.databricks.delta.write.txnVersion", str(batch_id))
            builder.execute()

    (tmp_path / "in").mkdir()
    for name in ("a", "b"):
        rows = pa.table({"id": [1, 2], "n": [10, 20]})
        pa.parquet.write_table(rows, tmp_path / "in" / f"{name}.parquet")
    stream = spark.readStream.schema("id LONG, n LONG").option("maxFilesPerTrigger", 1)
    query = (
        stream.parquet(str(tmp_path / "in"))
        .writeStream.foreachBatch(upsert)
        .option("checkpointLocation", str(tmp_path / "c"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    table = made.refresh()
    assert next(ways) == 4
    assert (table.version, table.transaction_version("loader")) == (2, 1)
    found = {row["id"]: row["n"] for row in table.to_arrow().to_pylist()}
    assert found == {0: 0, 1: 20, 2: 40}


@pytest.mark.slow
def test_over_spark_connect(remote: Callable[..., Any], tmp_path: Path) -> None:
    def work(spark: "SparkSession", path: str) -> Any:
        from pyspark.sql import functions as fn

        from txlog.spark_ext import DeltaTable

        source = spark.range(8, 14).withColumn("n", fn.lit(7))
        table = DeltaTable.forPath(spark, path)
        builder = table.alias("t").merge(source.alias("s"), fn.col("t.id") == source.id)
        builder = builder.whenMatchedUpdateAll("s.id = 8").whenMatchedDelete()
        done = builder.whenNotMatchedInsertAll().execute().collect()
        table.update(fn.col("id") == 13, {"n": fn.col("n") + 1})
        return done[0].asDict()

    made = txlog.write(tmp_path / "t", pa.table({"id": range(10), "n": [0] * 10}))
    found = remote(work, made.uri)
    assert list(found.values()) == [6, 1, 1, 4]
    rows = {row["id"]: row["n"] for row in made.refresh().to_arrow().to_pylist()}
    assert rows == dict.fromkeys(range(8), 0) | {8: 7, 10: 7, 11: 7, 12: 7, 13: 8}


@pytest.mark.slow
@pytest.mark.parametrize("most", [None, 0, 100])
@pytest.mark.parametrize("schema_mode", ["merge", None])
def test_an_alias_named_like_a_struct_means_the_same_to_the_core(
    spark: "SparkSession", tmp_path: Path, most: int | None, schema_mode: Any
) -> None:
    """With no number, the core merges; with 0, Spark joins. The source adds a column `v`."""
    rows = [{"id": 1, "s": {"v": 1, "w": 2}}, {"id": 2, "s": {"v": 9, "w": 2}}]
    path = txlog.write(tmp_path / "t", pa.Table.from_pylist(rows)).uri
    source = pa.table({"id": [1, 2], "v": [50, 60]})

    def merged(updates: dict[str, str]) -> None:
        table: Any = txlog.Table(path) if most is None else spark_ext.table(spark, path)
        given: Any = source if most is None else spark.createDataFrame(source)
        merger = table.merge(given, "s.id = q.id AND s.v < 55", "q", "s", schema_mode=schema_mode)
        merger.when_matched_update(updates, predicate="s.w = 2").execute()

    with few_rows(spark, most or 0):
        merged({"s.v": "q.v + s.w"})
        found = {row["id"]: row for row in txlog.Table(path).to_arrow().to_pylist()}
        assert {key: row["s"]["v"] for key, row in found.items()} == {1: 52, 2: 62}
        assert {row.get("v") for row in found.values()} == {None}
