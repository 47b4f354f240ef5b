"""A merge of a frame with a quarantine does what the core's merge of the same rows does."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import txlog
from tests.examples import examples
from tests.moved import moved
from tests.verbs.test_merge_refused import HELD, KINDS, ROWS, RULES, SCHEMA, SOURCE
from txlog import spark_ext
from txlog.base.errors import TxlogError
from txlog.spark_ext.writes.merge import SparkMerge
from txlog.spark_ext.writes.small_sources import LOCAL_ROWS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

NARROW = pa.schema({"id": pa.int64(), "n": pa.int16(), "m": pa.int64(), "at": pa.int64()})
FORMS: list[dict[str, str]] = [
    {},
    {"delta.enableDeletionVectors": "false"},
    {"delta.enableChangeDataFeed": "true"},
    {"delta.enableRowTracking": "true"},
]
Make = Callable[..., txlog.Table]


@pytest.fixture(scope="module")
def make(tmp_path_factory: pytest.TempPathFactory) -> Make:
    """Return a function that makes the same table again, at another place."""
    folder = tmp_path_factory.mktemp("merges")

    def made(**properties: str) -> txlog.Table:
        place = folder / str(len(list(folder.iterdir())))
        table = txlog.Table.create(place, SCHEMA, properties=properties)
        for half in (HELD[:2], HELD[2:]):
            table.append(pa.Table.from_pylist(half, SCHEMA))
        table.alter.add_constraint(RULES)
        return table

    return made


def narrow(merger: Any) -> Any:
    """Clauses that are text of the same meaning in txlog and Spark, of columns without casts."""
    merger = merger.when_matched_delete("source.n = 24")
    given = {"n": "source.n", "m": "source.m"}
    merger = merger.when_matched_update(given, "target.id < 3")
    return merger.when_not_matched_insert({"id": "source.id", **given})


EVERY = {**KINDS, "narrow": narrow}


def rows_of(table: txlog.Table) -> list[Any]:
    return sorted(txlog.Table(table.uri).to_arrow().to_pylist(), key=repr)


def kept_in(place: str) -> list[Any]:
    try:
        kept = txlog.Table(place).to_arrow(columns=["operation", "rule", "name", "reason", "row"])
    except txlog.NotFoundError:
        return []
    return sorted(kept.to_pylist(), key=repr)


def done(kind: str, table: Any, source: Any, **more: Any) -> Any:
    """Return the table and its quarantine after a merge, or the error with both unchanged."""
    place = f"{table.uri}-q"
    more = {"on_error": "quarantine", "quarantine": place, **more}
    try:
        merger = table.merge(source, "target.id = source.id", **more)
        outcome = EVERY[kind](merger).execute()
    except TxlogError as error:
        return type(error), rows_of(table), kept_in(place)
    return outcome.metrics["numQuarantinedRows"], rows_of(table), kept_in(place)


SPARSE = st.lists(
    st.fixed_dictionaries(
        {
            "id": st.integers(0, 7),
            "n": st.sampled_from([None, 0, 5, 14, 24, 25, -1]),
            "m": st.sampled_from([None, 0, 20]),
        }
    ),
    max_size=8,
).map(lambda rows: [{**row, "at": place} for place, row in enumerate(rows)])
QUICK: Any = {
    "deadline": None,
    "phases": (Phase.explicit, Phase.generate),
    "suppress_health_check": [HealthCheck.function_scoped_fixture],
}


@pytest.mark.slow(cases=1)
@pytest.mark.spec("CON-32", "SPK-28")
@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=examples(20), **QUICK)
@given(rows=ROWS, form=st.sampled_from(FORMS), scanned=st.sampled_from([1, 1 << 40]))
def test_tasks_refuse_what_the_core_refuses(
    spark: "SparkSession",
    make: Make,
    kind: str,
    rows: list[Any],
    form: dict[str, str],
    scanned: int,
) -> None:
    source = pa.Table.from_pylist(rows, SOURCE)
    expected = done(kind, make(**form), source)
    table = spark_ext.table(spark, make(**form).uri)
    # Tasks read by addresses what no clause names, or Spark reads it.
    with moved({"txlog.spark_ext.writes.taken_rows:_SCANNED_ROWS": scanned}):
        assert done(kind, table, spark.createDataFrame(source)) == expected


@pytest.mark.slow
@pytest.mark.spec("CON-32", "SPK-28", "SPK-25")
@settings(max_examples=examples(40), **QUICK)
@given(rows=SPARSE, form=st.sampled_from(FORMS))
def test_merges_with_and_without_the_join_agree(
    spark: "SparkSession", make: Make, rows: list[Any], form: dict[str, str]
) -> None:
    """Several source rows may have one key: then nothing is committed to either table."""
    source = pa.Table.from_pylist(rows, NARROW)
    expected = done("narrow", make(**form), source)
    for most in ("0", "10000"):
        spark.conf.set(LOCAL_ROWS, most)
        try:
            table = spark_ext.table(spark, make(**form).uri)
            found = done("narrow", table, spark.createDataFrame(source))
        finally:
            spark.conf.unset(LOCAL_ROWS)
        assert found == expected, most


def upserted(table: Any, source: "DataFrame", place: Path, **more: Any) -> Any:
    merger = table.merge(
        source.alias("source"), "target.id = source.id", on_error="quarantine", quarantine=place,
        **more,
    )  # fmt: skip
    return update_all(merger).execute()


def update_all(merger: Any) -> Any:
    given = {"n": "source.n", "m": "source.m"}
    return merger.when_matched_update(given).when_not_matched_insert({"id": "source.id", **given})


@pytest.fixture
def joined(spark: "SparkSession") -> Any:
    """Let Spark join frames of any size."""
    spark.conf.set(LOCAL_ROWS, "0")
    yield spark
    spark.conf.unset(LOCAL_ROWS)


@pytest.mark.slow
@pytest.mark.spec("SPK-28")
def test_rows_of_a_frame_that_differ_each_time_are_each_in_one_of_the_tables(
    joined: "SparkSession", make: Make, tmp_path: Path
) -> None:
    table = make()
    source = joined.range(0, 400, 1, 4).selectExpr(
        "id + 10 AS id", "IF(rand() < 0.5, 100000, 1) AS n", "IF(rand() < 0.3, 100, 0) AS m"
    )
    outcome = upserted(spark_ext.table(joined, table.uri), source, tmp_path / "q")
    good = txlog.Table(table.uri).to_arrow(where="id >= 10")["id"].to_pylist()
    bad = [
        json.loads(row)["id"] for row in txlog.Table(tmp_path / "q").to_arrow()["row"].to_pylist()
    ]
    assert sorted(good + bad) == list(range(10, 410))
    assert good
    assert outcome.metrics["numQuarantinedRows"] == len(bad) > 0


@pytest.mark.slow
@pytest.mark.spec("SPK-28")
def test_what_only_spark_can_cast_goes_to_the_quarantine_where_it_cannot(
    joined: "SparkSession", tmp_path: Path
) -> None:
    """Among them values in lists and structs, which are cast as a whole."""
    table = txlog.write(
        tmp_path / "t",
        pa.table(
            {
                "id": pa.array([1], pa.int64()),
                "n": pa.array([1], pa.int32()),
                "l": pa.array([[1]], pa.list_(pa.int32())),
                "s": pa.array([{"a": 1}], pa.struct([("a", pa.int32())])),
            }
        ),
    )
    rows = [
        (1, "12", ["3"], ("4",)), (2, "no", ["3"], ("4",)), (3, "5", ["6", "x"], ("4",)),
        (4, "5", ["6", None], ("y",)), (5, None, None, None), (6, "6", ["6"], (None,)),
    ]  # fmt: skip
    source = joined.createDataFrame(rows, "id long, n string, l array<string>, s struct<a:string>")
    merger = spark_ext.table(joined, table.uri).merge(
        source, on="id", on_error="quarantine", quarantine=tmp_path / "q"
    )
    merger.when_matched_update_all().when_not_matched_insert_all().execute()
    assert txlog.Table(table.uri).to_arrow().sort_by("id").to_pylist() == [
        {"id": 1, "n": 12, "l": [3], "s": {"a": 4}},
        {"id": 5, "n": None, "l": None, "s": None},
        {"id": 6, "n": 6, "l": [6], "s": {"a": None}},
    ]
    kept = txlog.Table(tmp_path / "q").to_arrow(columns=["rule", "name", "reason", "row"])
    found = kept.sort_by("row").to_pylist()
    assert [(one["rule"], one["name"]) for one in found] == [("TYPE", name) for name in "nls"]
    assert found[0]["reason"] == "column n is string, and the value does not fit integer"


@pytest.mark.slow
@pytest.mark.spec("SPK-28")
def test_a_row_of_which_spark_cannot_compute_a_value_goes_to_the_quarantine(
    joined: "SparkSession", tmp_path: Path
) -> None:
    """One row is matched; a clause that does not apply to a row does not compute its values."""
    schema = pa.schema([("id", pa.int64()), ("n", pa.int32()), ("m", pa.int64())])
    table = txlog.write(tmp_path / "t", pa.table({"id": [9], "n": [9], "m": [9]}, schema=schema))
    rows = [
        (9, "3", 0), (10, "1", 1), (11, "no", 1), (12, "6", 0), (13, None, 2), (14, "8", None),
    ]  # fmt: skip
    source = joined.createDataFrame(rows, "id long, n string, m long").alias("source")
    merger = spark_ext.table(joined, table.uri).merge(
        source, "target.id + 0 = source.id", on_error="quarantine", quarantine=tmp_path / "q"
    )
    merger = merger.when_matched_update({"n": "CAST(source.n AS INT)"})
    values = {"id": "source.id", "n": "CAST(source.n AS INT)", "m": "12 DIV source.m"}
    merger.when_not_matched_insert(values).execute()
    found = txlog.Table(table.uri).to_arrow().sort_by("id").to_pylist()
    assert [tuple(row.values()) for row in found] == [
        (9, 3, 9), (10, 1, 12), (13, None, 6), (14, 8, None),
    ]  # fmt: skip
    kept = txlog.Table(tmp_path / "q").to_arrow(["rule", "name", "reason"]).sort_by("name")
    assert [tuple(row.values()) for row in kept.to_pylist()] == [
        ("VALUE", name, f"Spark cannot compute the value for column {name}") for name in "mn"
    ]


@pytest.mark.slow(cases=2)
@pytest.mark.spec("SPK-28")
@pytest.mark.parametrize(
    "values",
    [
        {"id": "CAST(source.n AS INT)", "n": "1.0D"},
        {"id": "source.id + CAST(source.n AS INT)", "n": "CAST(source.n AS INT) * 2"},
        {"id": "source.id", "n": "rand() + CAST(source.n AS INT)"},
        {"id": "source.id", "n": "CAST(source.n AS DOUBLE) + (SELECT max(id) FROM range(3))"},
        {"id": "CAST(source.id AS STRING)", "n": "12 / (CAST(source.n AS INT) - 7)"},
    ],
)
def test_a_part_that_several_values_have_goes_to_the_quarantine_with_its_row(
    joined: "SparkSession", tmp_path: Path, values: dict[str, str]
) -> None:
    """Also a value of another type than its column, which is looked at twice."""
    schema = pa.schema([("id", pa.int64()), ("n", pa.float64())])
    table = txlog.write(tmp_path / "t", schema.empty_table())
    source = joined.createDataFrame([(10, "5"), (11, "no"), (12, "6")], "id long, n string")
    merger = spark_ext.table(joined, table.uri).merge(
        source.alias("source"), "target.id + 0 = source.id", on_error="quarantine",
        quarantine=tmp_path / "q",
    )  # fmt: skip
    merger.when_not_matched_insert(values).execute()
    assert txlog.Table(table.uri).count() == 2
    kept = txlog.Table(tmp_path / "q").to_arrow()
    assert kept["rule"].to_pylist() == ["VALUE"]
    assert [json.loads(row)["id"] for row in kept["row"].to_pylist()] == [11]
    assert joined.conf.get("spark.sql.subexpressionElimination.enabled") == "true"


@pytest.mark.slow
@pytest.mark.spec("SPK-28")
@pytest.mark.parametrize(
    "value",
    [
        "number_of(source.n)",
        "number_of(CAST(CAST(source.n AS INT) AS STRING))",
        "(SELECT max(id) FROM range(9) WHERE id = CAST(source.n AS INT))",
    ],
)
def test_what_spark_computes_apart_from_the_value_is_an_error_of_the_whole_merge(
    joined: "SparkSession", tmp_path: Path, value: str
) -> None:
    joined.udf.register("number_of", lambda text: float(text), "double")
    table = txlog.write(tmp_path / "t", pa.table({"id": [1], "n": [1.0]}))
    source = joined.createDataFrame([(10, "5"), (11, "no")], "id long, n string")
    merger = spark_ext.table(joined, table.uri).merge(
        source.alias("source"), "target.id + 0 = source.id", on_error="quarantine",
        quarantine=tmp_path / "q",
    )  # fmt: skip
    merger.when_not_matched_insert({"id": "source.id", "n": value})
    with pytest.raises(TxlogError, match="Nothing was committed"):
        merger.execute()
    assert txlog.Table(table.uri).count() == 1
    assert not txlog.Table.exists(tmp_path / "q")


@pytest.mark.slow
@pytest.mark.spec("SPK-28")
def test_a_number_that_its_column_would_round_goes_to_the_quarantine(
    joined: "SparkSession", make: Make, tmp_path: Path
) -> None:
    table = make()
    source = joined.createDataFrame([(10, 1.0, 0), (11, 1.5, 0)], "id long, n double, m long")
    upserted(spark_ext.table(joined, table.uri), source, tmp_path / "q")
    assert txlog.Table(table.uri).to_arrow(where="id >= 10")["n"].to_pylist() == [1]
    (kept,) = txlog.Table(tmp_path / "q").to_arrow().to_pylist()
    assert (kept["rule"], kept["name"]) == ("TYPE", "n")
    assert kept["reason"] == "column n is double, and the value does not fit short"


@pytest.mark.slow
@pytest.mark.spec("CON-33", "SPK-28")
def test_a_run_that_stopped_between_the_commits_is_repeated_exactly_once(
    joined: "SparkSession", make: Make, tmp_path: Path
) -> None:
    table = make()
    table.alter.set_properties({"delta.setTransactionRetentionDuration": "interval 7 days"})
    source = joined.range(0, 20).selectExpr("id", "IF(id % 3 = 0, NULL, id) AS n", "0L AS m")
    upserted(spark_ext.table(joined, table.uri), source, tmp_path / "q", txn=("job", 1))
    expected = rows_of(table)
    # As if the process had ended between the two commits.
    log = Path(table.uri) / "_delta_log"
    (log / f"{table.refresh().version:020}.json").unlink()
    for crc in log.glob("*.crc"):
        crc.unlink()
    assert rows_of(table) != expected
    for _ in range(2):
        upserted(spark_ext.table(joined, table.uri), source, tmp_path / "q", txn=("job", 1))
    assert rows_of(table) == expected
    assert txlog.Table(tmp_path / "q").count() == 7


@pytest.mark.slow
@pytest.mark.spec("CON-32", "SPK-28")
def test_a_winner_that_lets_another_row_be_refused(
    joined: "SparkSession", make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rows of both attempts are in the quarantine, in one batch."""
    table = make()
    rows = [(1, None, 0), (2, 4, None), (3, 1, 0), (9, 9, 0)]
    source = joined.createDataFrame(rows, "id long, n long, m long")
    real, won = SparkMerge.companions, []

    def companions(self: SparkMerge, txn: Any) -> Any:
        found = real(self, txn)
        if not won:
            won.append(txlog.Table(table.uri).update({"m": "22"}, "id = 2"))
        return found

    monkeypatch.setattr(SparkMerge, "companions", companions)
    merger = spark_ext.table(joined, table.uri).merge(
        source, on="id", on_error="quarantine", quarantine=tmp_path / "q", txn=("job", 1)
    )
    merger.when_matched_update({"n": "source.n"})
    given = {"id": "source.id", "n": "source.n", "m": "source.m"}
    outcome = merger.when_not_matched_insert(given).execute()
    assert won
    assert outcome.metrics["numQuarantinedRows"] == 2
    kept = txlog.Table(tmp_path / "q").to_arrow()
    assert len(set(kept["batch"].to_pylist())) == 1
    assert sorted(json.loads(row)["id"] for row in kept["row"].to_pylist()) == [1, 2]
    assert table.refresh().to_arrow(where="id IN (3, 9)").sort_by("id")["n"].to_pylist() == [1, 9]


@pytest.mark.slow
@pytest.mark.spec("SPK-28")
def test_a_row_with_faults_in_several_rows_of_the_table_is_there_once(
    joined: "SparkSession", make: Make, tmp_path: Path
) -> None:
    """Whatever task finds a fault: the reason is that of the core."""
    source = pa.Table.from_pylist([{"id": g, "n": 12 + 8 * g} for g in range(3)], NARROW)
    found = []
    for table, data in (
        (make(), source),
        (spark_ext.table(joined, make().uri), joined.createDataFrame(source).repartition(3)),
    ):
        place = Path(f"{table.uri}-q")
        merger = table.merge(
            data, "target.id >= source.id", on_error="quarantine", quarantine=place
        )
        merger.when_matched_update({"n": "source.n + target.m"}, "source.id + target.id = 3")
        merger.when_matched_update({"n": "NULL"}, "source.id = 1 AND target.id = 1")
        merger.execute()
        found.append((rows_of(table), kept_in(str(place))))
    assert found[0] == found[1]
    assert len(found[0][1]) > 0


@pytest.mark.slow
def test_the_rows_come_to_the_driver_in_parts(
    joined: "SparkSession", make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("txlog.spark_ext.writes.refused_rows._ROWS", 3)
    table = make()
    source = joined.range(10, 30, 1, 4).selectExpr("id", "IF(id % 2 = 0, NULL, 1) AS n", "0L AS m")
    upserted(spark_ext.table(joined, table.uri), source, tmp_path / "q")
    kept = txlog.Table(tmp_path / "q").to_arrow()["row"].to_pylist()
    assert sorted(json.loads(row)["id"] for row in kept) == list(range(10, 30, 2))


@pytest.mark.slow
def test_delta_table_and_columns_of_frames(
    joined: "SparkSession", make: Make, tmp_path: Path
) -> None:
    table = make()
    source = joined.createDataFrame([(0, None, 5), (10, 1, 0)], "id long, n long, m long")
    delta = spark_ext.DeltaTable.forPath(joined, table.uri).alias("t")
    builder = delta.merge(source.alias("s"), delta.toDF().id == source.id)
    builder = builder.whenMatchedUpdate(set={"n": source.n, "m": "s.m"})
    given: dict[str, Any] = {"id": source.id, "n": source.n, "m": "s.m"}
    builder = builder.whenNotMatchedInsert(values=given)
    before = rows_of(table)
    with pytest.raises(txlog.SchemaMismatchError):
        builder.execute()
    builder.execute(on_error="quarantine", quarantine=tmp_path / "q")
    assert txlog.Table(tmp_path / "q").to_arrow()["rule"].to_pylist() == ["NOT NULL"]
    assert len(rows_of(table)) == len(before) + 1
    assert table.refresh().to_arrow(where="id = 0").to_pylist() == before[:1]


@pytest.mark.slow
def test_over_spark_connect(remote: Callable[..., Any], make: Make, tmp_path: Path) -> None:
    def work(spark: "SparkSession", path: str, place: str) -> Any:
        spark.conf.set("spark.txlog.merge.localRows", "0")
        source = spark.createDataFrame([(0, None, 5), (10, 1, 0)], "id long, n long, m long")
        merger = spark_ext.table(spark, path).merge(
            source, "target.id = source.id", on_error="quarantine", quarantine=place
        )
        given = {"n": "source.n", "m": "source.m"}
        merger.when_matched_update(given).when_not_matched_insert({"id": "source.id", **given})
        return merger.execute().metrics["numQuarantinedRows"]

    table = make()
    assert remote(work, table.uri, str(tmp_path / "q")) == 1
    assert txlog.Table(tmp_path / "q").to_arrow()["rule"].to_pylist() == ["NOT NULL"]
    assert table.refresh().to_arrow(where="id = 10").num_rows == 1


@pytest.mark.slow
@pytest.mark.spec("SPK-28", "SPK-40")
@pytest.mark.parametrize("few", [False, True])
def test_merges_of_frames_in_a_transaction(
    joined: "SparkSession", tmp_path: Path, few: bool
) -> None:
    joined.conf.set(LOCAL_ROWS, "100" if few else "0")
    catalog = txlog.Catalog(tmp_path / "lake.db", location=tmp_path / "lake")
    schema = pa.schema([pa.field("id", pa.int64()), pa.field("n", pa.int64(), nullable=False)])
    tables = [catalog.create_table(f"s.{name}", schema, managed="writes") for name in "ab"]
    refused = tmp_path / "q"
    tables[0].append(pa.table({"id": [1], "n": [1]}))
    source = joined.createDataFrame([(1, None), (2, 2), (3, None)], "id long, n long")
    with catalog.transaction(txn=("job", 1)) as changes:
        for name in "ab":
            merger = changes[f"s.{name}"].merge(
                source, "target.id = source.id", on_error="quarantine", quarantine=refused
            )
            merger.when_matched_update({"n": "source.n"})
            merger.when_not_matched_insert({"id": "source.id", "n": "source.n"}).execute()
    assert [one.refresh().count() for one in tables] == [2, 1]
    kept = txlog.Table(refused).to_arrow()
    assert sorted(json.loads(row)["id"] for row in kept["row"].to_pylist()) == [1, 1, 3, 3]


@pytest.mark.parametrize("name", ["dup", "DUP"])
def test_a_source_with_two_columns_of_one_name_is_refused(
    spark: "SparkSession", tmp_path: Path, name: str
) -> None:
    """The quarantine keeps all values of a row, by name."""
    table = txlog.write(tmp_path / "t", pa.table({"id": [1], "n": [1]}))
    table.alter.add_constraint({"few": "n < 10"})
    frame = spark.sql(f"SELECT 1L AS id, 99L AS n, 1 AS dup, 2 AS {name}")
    place = str(tmp_path / "q")
    merger = spark_ext.table(spark, table.uri).merge(
        frame, "target.id + 0 = source.id", on_error="quarantine", quarantine=place
    )
    with pytest.raises(TxlogError, match=f"columns dup and {name}"):
        merger.when_matched_update({"n": "source.n"}).execute()
    assert not txlog.Table.exists(place)
