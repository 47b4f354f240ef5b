"""How Unity Catalog states the columns and properties of a Delta table. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from txlog.schema.json import parse_schema
from txlog.schema.types import (
    ArrayType,
    DataType,
    DecimalType,
    MapType,
    StructType,
    sql_name,
    type_name,
)

_NAMES = {
    "integer": "INT", "void": "NULL", "variant": "VARIANT",
    **{name: name.upper() for name in (
        "boolean", "byte", "short", "long", "float", "double", "date", "timestamp",
        "timestamp_ntz", "string", "binary", "decimal", "array", "struct", "map",
    )},
}  # fmt: skip
TABLE_ID = "io.unitycatalog.tableId"
"""The property of a managed table with its id in the catalog."""
_OF_PROTOCOL = ("delta.feature.", "delta.minReaderVersion", "delta.minWriterVersion")
_OF_CATALOG = ("delta.lastUpdateVersion", "delta.lastCommitTimestamp")


def columns_of(schema: str, partition_by: Sequence[str]) -> list[dict[str, Any]]:
    """Return the columns of a table's `schemaString`, as the catalog states them."""
    fields = {one["name"]: one for one in orjson.loads(schema)["fields"]}
    return [
        {
            "name": field.name,
            "type_text": _text(field.type),
            "type_json": orjson.dumps(fields[field.name]).decode(),
            "type_name": _NAMES.get(_kind(field.type), "USER_DEFINED_TYPE"),
            "position": position,
            "nullable": field.nullable,
            **_digits(field.type),
            **_comment(fields[field.name]),
            **(
                {"partition_index": list(partition_by).index(field.name)}
                if field.name in partition_by
                else {}
            ),
        }
        for position, field in enumerate(parse_schema(schema).fields)
    ]


def properties_of(
    configuration: Mapping[str, str | None],
    protocol: Mapping[str, Any] | None,
    known: Mapping[str, str],
) -> dict[str, str]:
    """Return the properties of a table in the catalog.

    They are those of its metadata, the protocol in the form of properties, and those that only the
    catalog has.

    Parameters
    ----------
    protocol
        The action of the log; None if it stays as it is in the catalog.
    known
        The properties that the catalog has.
    """
    if protocol is None:
        stated = {name: value for name, value in known.items() if name.startswith(_OF_PROTOCOL)}
    else:
        names = {*protocol.get("readerFeatures", ()), *protocol.get("writerFeatures", ())}
        stated = {f"delta.feature.{name}": "supported" for name in sorted(names)}
        stated["delta.minReaderVersion"] = str(protocol["minReaderVersion"])
        stated["delta.minWriterVersion"] = str(protocol["minWriterVersion"])
    kept = {name: known[name] for name in _OF_CATALOG if name in known}
    given = {
        name: value
        for name, value in configuration.items()
        if value is not None and not name.startswith(_OF_PROTOCOL)
    }
    return {**kept, **given, **stated}


def _kind(kind: DataType) -> str:
    return type_name(kind).partition("<")[0].partition("(")[0]


def _text(kind: DataType) -> str:
    match kind:
        case ArrayType(element):
            return f"array<{_text(element)}>"
        case MapType(key, value):
            return f"map<{_text(key)},{_text(value)}>"
        case StructType(fields):
            return f"struct<{','.join(f'{one.name}:{_text(one.type)}' for one in fields)}>"
        case _:
            return sql_name(kind).lower()


def _digits(kind: DataType) -> dict[str, int]:
    if not isinstance(kind, DecimalType):
        return {}
    return {"type_precision": kind.precision, "type_scale": kind.scale}


def _comment(field: Mapping[str, Any]) -> dict[str, str]:
    comment = field.get("metadata", {}).get("comment")
    return {"comment": comment} if isinstance(comment, str) else {}
