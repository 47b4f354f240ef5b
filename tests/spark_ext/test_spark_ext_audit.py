"""An audit whose block writes with Spark: the branch is named in the storage options."""

from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

import txlog
from txlog import spark_ext

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def test_spark_writes_to_the_branch(spark: "SparkSession", tmp_path: Path) -> None:
    table = txlog.write(tmp_path / "t", pa.table({"id": pa.array([1], pa.int64())}))
    options = {"txlog.branch": "nightly"}
    with table.audit("nightly", {"all": "count(*) = 11 AND count_if(id IS NULL) = 0"}):
        spark_ext.write(spark.range(10, 20), table.uri, storage_options=options)
        assert table.at().count() == 1
    assert table.count() == 11
    with (
        pytest.raises(txlog.AuditFailedError) as caught,
        table.audit("nightly", new_rows={"small": "max(id) < 15"}),
    ):
        spark_ext.write(spark.range(10, 20), table.uri, storage_options=options)
    assert caught.value.figures == {"small": {"max(id)": 19}}
    assert table.refresh().count() == 11
