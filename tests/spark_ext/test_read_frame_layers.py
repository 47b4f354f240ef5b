"""Spark reads the values that updates gave to some rows of fragments."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

import txlog
from tests.moved import moved
from txlog.spark_ext import read

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

LAYERS = {"_FILE_BYTES": -(1 << 40), "_BITS": 0, "_LAYER_TIMES": 1}


@pytest.mark.slow
@pytest.mark.spec("FRG-48", "FRG-49")
def test_layers_over_the_files_of_all_rows(spark: SparkSession, tmp_path: Path) -> None:
    properties = {"delta.feature.txlog.fragments": "supported", "delta.enableRowTracking": "true"}
    schema = pa.schema([("k", pa.int64()), ("v", pa.int64()), ("t", pa.string())])
    table = txlog.Table.create(tmp_path / "t", schema, properties=properties)
    rows = pa.table({"k": range(20), "v": range(20), "t": [f"t{k}" for k in range(20)]})
    table.append(rows, options=txlog.WriteOptions(max_rows_per_file=10))
    table.delete("k = 4")
    with moved({f"txlog.data_files.column_updates:{name}": n for name, n in LAYERS.items()}):
        table.update({"v": "v + 100"}, "k % 3 = 0")
        table.update({"v": "NULL", "t": "'new'"}, "k = 9 OR k = 10")
    assert [len(fragment.files) for fragment in table.fragments()] == [3, 3]
    for where in ("k >= 0", "v > 50", "v IS NULL", "t = 'new'", "k < 5"):
        found = read(spark, table.uri).where(where).toArrow()
        assert found.sort_by("k") == table.to_arrow(where=where).sort_by("k"), where
    names = ["k", "_rowid", "_row_last_updated_at_version"]
    versions = read(spark, table.uri, columns=names).toArrow().sort_by("k")
    assert versions.to_pylist() == table.to_arrow(names).sort_by("k").to_pylist()
    loaded = spark.read.format("txlog").load(table.uri).select("k", "v").toArrow()
    assert loaded.sort_by("k") == table.to_arrow(["k", "v"]).sort_by("k")
