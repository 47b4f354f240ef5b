"""Names in the clauses of a merge: those of one side alone, at every door of Spark."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import txlog
from txlog.base.errors import InvalidInputError
from txlog.schema.arrow import from_arrow
from txlog.spark_ext import DeltaTable, sql
from txlog.spark_ext.writes.clause_names import OneSide, quoted

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OWN = from_arrow(pa.schema([("id", pa.int64()), ("a b", pa.int64()), ("own", pa.int64()),
                            ("l", pa.list_(pa.int64())),
                            ("st", pa.struct([("id", pa.int64())]))]))  # fmt: skip
OTHER = from_arrow(pa.schema([("ID", pa.int64()), ("a b", pa.int64()), ("q", pa.int64()),
                              ("st", pa.int64())]))  # fmt: skip


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("id > 1 AND own = 2", "`t`.`id` > 1 AND own = 2"),
        ("`a b` + ID /* id */ - 'id'", "`t`.`a b` + `t`.`id` /* id */ - 'id'"),
        ("st.id = 1 and t.id = 2", "`t`.`st`.id = 1 and t.id = 2"),
        ("transform(l, id2 -> id2 + id)", "transform(l, id2 -> id2 + `t`.`id`)"),
        ("exists(l, id -> id > own)", "exists(l, id -> id > own)"),
        ("CASE WHEN id = 1 THEN l[id] END", "CASE WHEN `t`.`id` = 1 THEN l[`t`.`id`] END"),
        ("id IN (SELECT id FROM id)", "`t`.`id` IN (SELECT id FROM id)"),
        ("current_date() > 1", "current_date() > 1"),
        ("this is no SQL (", "this is no SQL ("),
    ],
)
def test_names_of_both_sides_mean_one(text: str, expected: str) -> None:
    side = OneSide("target", OWN, OTHER, lambda first, _: first == "s", quoted("t"))
    assert side.text(text) == expected


@pytest.mark.parametrize(
    "text", ["q > 1", "s.id = 2", "coalesce(id, q)", "transform(l, x -> x + q)"]
)
def test_names_of_the_other_side_are_refused(text: str) -> None:
    for seen in ("target", "source"):
        side = OneSide(seen, OWN, OTHER, lambda first, _: first == "s", quoted("t"))  # type: ignore[arg-type]
        with pytest.raises(InvalidInputError, match="MATCHED"):
            side.text(text)


SMALL = "(SELECT 1L AS id, 'z' AS s, 5L AS q)"
LARGE = "(SELECT id, concat('z', substr(uuid(), 1, 0)) AS s, 5L AS q FROM range(1, 2))"
Run = Callable[[str], list[Any]]


@pytest.fixture
def run(spark: "SparkSession", tmp_path: Path) -> Run:
    """Runs a merge on a new table, and returns the rows of the table after it."""
    made: list[int] = []

    def merged(text: str) -> list[Any]:
        made.append(1)
        rows = pa.table({"id": [1, 2, 3], "s": ["a", "b", "c"]})
        table = txlog.write(tmp_path / f"t{len(made)}", rows)
        try:
            sql(spark, text.replace("@", f"delta.`{table.uri}`"))
        except InvalidInputError:
            assert table.refresh().version == 0
            raise
        return sorted(tuple(row.values()) for row in table.refresh().to_arrow().to_pylist())

    return merged


ROWS = [(1, "a"), (2, "b"), (3, "c")]


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.parametrize("source", [SMALL, LARGE], ids=["small", "large"])
@pytest.mark.parametrize("target", ["@ AS t", "@"])
def test_clauses_see_one_side(run: Run, source: str, target: str) -> None:
    on = "t.id = x.id"
    if "AS" not in target:  # A path has no name for its columns.
        source = source.replace("1L AS id", "1L AS xid").replace("SELECT id,", "SELECT id AS xid,")
        on = "id = xid"
    into = f"MERGE INTO {target} USING {source} AS x ON {on}"
    by_source = f"{into} WHEN NOT MATCHED BY SOURCE"
    changed = run(f"{by_source} AND s > 'b' THEN UPDATE SET s = concat(s, id)")
    assert changed == [*ROWS[:2], (3, "c3")]
    assert run(f"{by_source} AND s = 'b' THEN DELETE") == [ROWS[0], ROWS[2]]
    ids = "id" if "AS" in target else "xid"
    more = f"{into} + 7 WHEN MATCHED THEN DELETE WHEN NOT MATCHED"
    assert run(f"{more} AND s = 'z' THEN INSERT (id, s) VALUES ({ids} + 9, upper(s))") == [
        *ROWS, (10, "Z")
    ]  # fmt: skip
    assert run(f"{more} AND s > 'z' THEN INSERT (id, s) VALUES ({ids} + 9, upper(s))") == ROWS
    for clause in (
        "NOT MATCHED BY SOURCE AND q = 5 THEN DELETE",
        "NOT MATCHED BY SOURCE AND x.s = 'z' THEN DELETE",
        "NOT MATCHED BY SOURCE THEN UPDATE SET s = x.s",
        "NOT MATCHED BY SOURCE THEN UPDATE SET s = concat(X.s, 'q')",
        *(["NOT MATCHED THEN INSERT (id, s) VALUES (t.id, 'q')",
           "MATCHED THEN DELETE WHEN NOT MATCHED THEN INSERT (id, s) VALUES (5, upper(T.s))"]
          if "AS" in target else []),
    ):  # fmt: skip
        with pytest.raises(InvalidInputError, match="is a column of the"):
            run(f"{into} WHEN {clause}")


@pytest.mark.slow
@pytest.mark.spark
def test_names_in_another_case(run: Run) -> None:
    for source in (SMALL, LARGE):
        text = f"MERGE INTO @ AS t USING {source} AS x ON T.ID = X.Id WHEN MATCHED AND T.S < X.S"
        assert run(f"{text} THEN UPDATE SET T.S = X.S, ID = X.Q") == [(2, "b"), (3, "c"), (5, "z")]


@pytest.mark.slow
@pytest.mark.spark
def test_builders_see_one_side_too(spark: "SparkSession", tmp_path: Path) -> None:
    uri = str(tmp_path / "t")
    txlog.write(uri, pa.table({"id": [1, 2, 3], "s": ["a", "b", "c"]}))
    source = spark.sql(f"SELECT * FROM {LARGE} UNION ALL SELECT 9L, 'y', 1L").alias("x")
    merge = DeltaTable.forPath(spark, uri).alias("t").merge(source, "t.id = x.id")
    merge.whenNotMatchedBySourceUpdate("id = 2", {"s": "upper(s)"}).whenNotMatchedInsert(
        "s > 'a'", {"id": "id", "s": "concat(s, q)"}
    ).execute()
    rows = sorted(tuple(row.values()) for row in txlog.Table(uri).to_arrow().to_pylist())
    assert rows == [(1, "a"), (2, "B"), (3, "c"), (9, "y1")]
    with pytest.raises(InvalidInputError, match=r"x\.q is a column of the source"):
        merge.whenNotMatchedBySourceDelete("x.q > 0").execute()
