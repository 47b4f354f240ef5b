"""A table's columns as Spark has them."""

from __future__ import annotations

import json

from pyspark.sql.types import StructType as SparkStruct

from txlog.schema.json import schema_json
from txlog.schema.types import StructType


def spark_schema(schema: StructType) -> SparkStruct:
    """Return columns as Spark's: both are the same JSON."""
    return SparkStruct.fromJson(json.loads(schema_json(schema)))
