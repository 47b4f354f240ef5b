"""Remedies of errors of SQL are statements, where Delta's SQL has one, and they run."""

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

import txlog
from tests.remedies import all_remedies
from txlog.base.remedies import STATEMENTS, in_sql
from txlog.spark_ext import sql

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# In this order on one table; what a remedy leaves open is filled in.
CALLS = (
    'alter.set_properties({"delta.columnMapping.mode": "name"})',
    "alter.add_constraint",
    "alter.drop_constraint('c')",
    'alter.add_features("appendOnly")',
    "alter.drop_feature('appendOnly')",
    "alter.cluster_by",
    "Table.optimize.compact",
    "restore(0)",
    "history()",
)
OPEN = {"NAME": "c", "CONDITION": "a > 0", "COLUMN": "a"}


def test_all_statements_are_run_below() -> None:
    assert {re.sub(r"^Table\.|\(.*", "", call) for call in CALLS} == STATEMENTS.keys()


@pytest.mark.slow
def test_remedies_in_sql() -> None:
    made = {in_sql(one.text, "/p") for one in all_remedies()} - {one.text for one in all_remedies()}
    assert len(made) > 10
    for text in made:
        assert "{}" not in text
        assert "delta.`/p`" in text
    assert in_sql("call optimize.compact(max_column_files=0)", None).endswith("_files=0)")
    assert in_sql("see alter.drop_feature", None) == "see ALTER TABLE t DROP FEATURE FEATURE"


@pytest.mark.spark
def test_the_statements_run(spark: "SparkSession", tmp_path: Path) -> None:
    table = txlog.write(tmp_path / "t", pa.table({"a": [1], "s": ["x"]}))
    for call in CALLS:
        statement = in_sql(call, table.uri)
        for name, value in OPEN.items():
            statement = re.sub(rf"\b{name}\b(?! =)", value, statement)
        sql(spark, statement).collect()
    assert [one["operation"] for one in table.refresh().history(1)] == ["RESTORE"]


@pytest.mark.spark
def test_a_remedy_of_sql_is_followed(spark: "SparkSession", tmp_path: Path) -> None:
    table = txlog.write(tmp_path / "t", pa.table({"a": [1]}))
    statement = f"ALTER TABLE delta.`{table.uri}` RENAME COLUMN a TO b"
    with pytest.raises(txlog.UnsupportedFeatureError) as caught:
        sql(spark, statement)
    remedy = re.search(r"(ALTER TABLE .*\)) first", caught.value.remedy)
    assert remedy is not None, caught.value
    for text in (remedy[1], statement):
        sql(spark, re.sub(r"TABLE t ", f"TABLE delta.`{table.uri}` ", text))
    assert table.refresh().schema.names == ["b"]
