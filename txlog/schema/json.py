"""`schemaString`: JSON text ↔ `StructType`."""

from __future__ import annotations

import re
from typing import Any

import orjson

from txlog.base.errors import LogCorruptError, UnsupportedFeatureError
from txlog.schema.types import (
    MONTH_INTERVALS,
    PRIMITIVES,
    TIME_INTERVALS,
    TYPE_CHANGES,
    ArrayType,
    DataType,
    DecimalType,
    MapType,
    PrimitiveType,
    StructField,
    StructType,
)

_DECIMAL = re.compile(r"decimal\(\s*(\d+)\s*,\s*(-?\d+)\s*\)")
_TEXT = re.compile(r"(?:var)?char\(\s*\d+\s*\)|string collate \w+")
_OTHER_NAMES = {"null": "void", "timestamp_ltz": "timestamp"}  # Spark reads these as well.
_ID = "delta.columnMapping.id"
_MAX_DEPTH = 200  # Deeper nesting is refused before it can exhaust the stack.


def parse_schema(text: str) -> StructType:
    """Return the schema that a `metaData.schemaString` describes.

    Raises
    ------
    LogCorruptError
        The text is not JSON, or a field has no name or no valid type. The error's `field` is the
        dotted path of the field.
    UnsupportedFeatureError
        A column has a type that txlog does not know, such as `geometry`. The error names both.
    """
    try:
        node = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise LogCorruptError(reason=f"schemaString is not JSON: {error}") from error
    kind = _type(node, "", 0)
    if not isinstance(kind, StructType):
        raise LogCorruptError(reason=f"schemaString describes a {kind}, not a struct")
    return kind


def schema_json(schema: StructType) -> str:
    """Return the `schemaString` of a schema: the inverse of `parse_schema`.

    Raises
    ------
    LogCorruptError
        The metadata of a field is nested more deeply than JSON can be written.
    """
    try:
        return orjson.dumps(_node(schema)).decode()
    except TypeError as error:
        raise _bad("", f"the metadata of a field cannot be written: {error}") from error


def _bad(path: str, reason: str) -> LogCorruptError:
    return LogCorruptError(reason=f"in schemaString, {reason}", field=path or None)


def _type(node: Any, path: str, depth: int) -> DataType:
    if depth > _MAX_DEPTH:
        raise _bad(path, f"types are nested more than {_MAX_DEPTH} levels deep")
    if isinstance(node, str):
        return _primitive(node, path)
    if not isinstance(node, dict):
        raise _bad(path, f"a type must be a name or an object, not {node!r}")
    match node.get("type"):
        case "struct" if isinstance(node.get("fields"), list):
            return StructType(tuple(_field(f, path, depth) for f in node["fields"]))
        case "array" if "elementType" in node:
            element = _type(node["elementType"], f"{path}.element", depth + 1)
            return ArrayType(element, bool(node.get("containsNull", True)))
        case "map" if "keyType" in node and "valueType" in node:
            return MapType(
                _type(node["keyType"], f"{path}.key", depth + 1),
                _type(node["valueType"], f"{path}.value", depth + 1),
                bool(node.get("valueContainsNull", True)),
            )
        case "udt" if "sqlType" in node:  # The type in which a user-defined type is stored.
            return _type(node["sqlType"], path, depth + 1)
        case str(name) if name not in ("struct", "array", "map"):
            return _primitive(name, path)  # Some writers wrap the name of a primitive.
    raise _bad(path, f"a type is incomplete: {node!r}")


def _primitive(name: str, path: str) -> DataType:
    if name in PRIMITIVES or name in MONTH_INTERVALS or name in TIME_INTERVALS:
        return PrimitiveType(name)
    if (known := _OTHER_NAMES.get(name)) is not None:
        return PrimitiveType(known)
    if _TEXT.fullmatch(name):
        return PrimitiveType("string")
    if name == "decimal":
        return DecimalType(10, 0)
    if match := _DECIMAL.fullmatch(name):
        precision, scale = int(match[1]), int(match[2])
        if 1 <= precision <= 38 and 0 <= scale <= precision:
            return DecimalType(precision, scale)
        raise _bad(path, f"{name} is not a decimal of at most 38 digits")
    raise UnsupportedFeatureError(
        features=(f"type {name}",),
        field=path or None,
        reason=f"column {path} has the type {name}, which txlog does not know",
        remedy="Upgrade txlog, or read the table with the engine that wrote it",
    )


def _field(node: Any, path: str, depth: int) -> StructField:
    if not isinstance(node, dict) or not isinstance(node.get("name"), str):
        raise _bad(path, f"a field has no name: {node!r}")
    here = f"{path}.{node['name']}" if path else node["name"]
    if "type" not in node:
        raise _bad(here, "a field has no type")
    metadata = node.get("metadata") or {}
    if not isinstance(metadata, dict):
        raise _bad(here, "a field's metadata is not an object")
    if type(metadata.get(_ID, 0)) is not int:
        raise _bad(here, f"{_ID} is {metadata[_ID]!r}, not an integer")
    if not isinstance(metadata.get(TYPE_CHANGES) or [], list):
        raise _bad(here, f"{TYPE_CHANGES} is {metadata[TYPE_CHANGES]!r}, not a list")
    return StructField(
        node["name"],
        _type(node["type"], here, depth + 1),
        node.get("nullable") is not False,
        metadata,
    )


def _node(kind: DataType) -> Any:
    match kind:
        case PrimitiveType(name):
            return name
        case DecimalType(precision, scale):
            return f"decimal({precision},{scale})"
        case ArrayType(element, contains_null):
            return {
                "type": "array",
                "elementType": _node(element),
                "containsNull": contains_null,
            }
        case MapType(key, value, value_contains_null):
            return {
                "type": "map",
                "keyType": _node(key),
                "valueType": _node(value),
                "valueContainsNull": value_contains_null,
            }
        case StructType(fields):
            return {
                "type": "struct",
                "fields": [
                    {
                        "name": f.name,
                        "type": _node(f.type),
                        "nullable": f.nullable,
                        "metadata": dict(f.metadata),
                    }
                    for f in fields
                ],
            }
