"""Types and schemas: Delta's JSON on one side, Arrow on the other. Pure.

Rules: the Delta protocol, "Schema Serialization Format" and "Column Mapping".
"""

from txlog.schema.arrow import arrow_field, arrow_schema, arrow_type, from_arrow
from txlog.schema.json import parse_schema, schema_json
from txlog.schema.types import (
    ArrayType,
    DataType,
    DecimalType,
    MapType,
    PrimitiveType,
    StructField,
    StructType,
    type_name,
)

__all__ = [
    "ArrayType",
    "DataType",
    "DecimalType",
    "MapType",
    "PrimitiveType",
    "StructField",
    "StructType",
    "arrow_field",
    "arrow_schema",
    "arrow_type",
    "from_arrow",
    "parse_schema",
    "schema_json",
    "type_name",
]
