"""Column mapping: the ids of columns, and their names in data files. Pure.

An id is never used twice, and a physical name is derived from the id and the column's path. So two
writers that add the same column to the same version choose the same id and name, and a dropped
column that is added again gets a new physical name. Rules: the Delta protocol, "Column Mapping".
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import pyarrow as pa

from txlog.actions.table import Metadata
from txlog.base.errors import InvalidInputError, LogCorruptError
from txlog.protocol.iceberg import gives_nested_ids
from txlog.protocol.properties import Properties
from txlog.schema.arrow import arrow_type
from txlog.schema.json import schema_json
from txlog.schema.types import ArrayType, DataType, MapType, StructField, StructType

MAPPING_MODE = "delta.columnMapping.mode"
HIGHEST_ID = "delta.columnMapping.maxColumnId"

ID = "delta.columnMapping.id"
_PHYSICAL = "delta.columnMapping.physicalName"
# The ids of elements, keys and values (IcebergCompatV2).
_NESTED_IDS = "delta.columnMapping.nested.ids"
_ODD = " ,;{}()\n\t="


def odd_names(schema: StructType) -> list[str]:
    """Return the dotted names of fields that need column mapping."""
    return [
        ".".join(path) for path, field in all_fields(schema) if any(c in _ODD for c in field.name)
    ]


def require_plain_names(schema: StructType, known: StructType) -> None:
    """Raise if a new field's name needs column mapping, unless an existing name does so too.

    Raises
    ------
    InvalidInputError
        The error names the field and how to turn on column mapping.
    """
    odd = [] if odd_names(known) else odd_names(schema)
    if odd:
        characters = sorted({repr(c) for c in odd[0] if c in _ODD})
        raise InvalidInputError(
            argument="schema",
            field=odd[0],
            reason=f"the name {odd[0]} contains {', '.join(characters)}, which needs column "
            "mapping, but the table has none",
            remedy=f'Set the table property {MAPPING_MODE} to "name", or rename the column',
        )


def mapped(
    schema: StructType,
    metadata: Metadata,
    *,
    before: StructType | None = None,
    legacy: bool = False,
) -> StructType:
    """Return a schema in which every field has an id and a physical name.

    Parameters
    ----------
    metadata
        The table's metadata, which records the ids that were used already.
    before
        The earlier schema of the table. A field with the same path and type keeps its id and name.
    legacy
        Use the logical names as physical names, because existing files have these names.
    """
    taken = max([_highest(metadata), *_ids(schema), *(_ids(before) if before else ())])
    nested = gives_nested_ids(metadata.configuration)
    return StructType(_Giver(taken, legacy, nested).fields(schema, before, ()))


class _Giver:
    """Assigns ids and physical names, from the first field to the last."""

    def __init__(self, taken: int, legacy: bool, nested: bool) -> None:
        self._taken = taken
        self._legacy = legacy
        self._nested = nested  # Elements, keys and values get ids too.

    def fields(
        self, kind: StructType, before: StructType | None, above: tuple[str, ...]
    ) -> tuple[StructField, ...]:
        return tuple(self._field(field, before, (*above, field.name)) for field in kind.fields)

    def _field(
        self, field: StructField, before: StructType | None, path: tuple[str, ...]
    ) -> StructField:
        earlier = None if before is None else before.get(field.name)
        if earlier is not None and not _alike(earlier.type, field.type):
            earlier = None
        metadata: dict[str, Any] = dict(field.metadata)
        if earlier is not None and ID not in metadata:
            metadata |= {key: earlier.metadata[key] for key in _KEYS if key in earlier.metadata}
        if ID not in metadata:
            self._taken += 1
            metadata[ID] = self._taken
        if _PHYSICAL not in metadata:
            metadata[_PHYSICAL] = field.name if self._legacy else _name(metadata[ID], path)
        if self._nested:
            ids = dict(metadata.get(_NESTED_IDS) or {})
            for name in _nested_paths(field.type, metadata[_PHYSICAL]):
                if name not in ids:
                    self._taken += 1
                    ids[name] = self._taken
            if ids:
                metadata[_NESTED_IDS] = ids
        inner = self._type(field.type, None if earlier is None else earlier.type, path)
        return replace(field, type=inner, metadata=metadata)

    def _type(self, kind: DataType, earlier: DataType | None, path: tuple[str, ...]) -> DataType:
        match kind:
            case StructType():
                return StructType(
                    self.fields(kind, earlier if isinstance(earlier, StructType) else None, path)
                )
            case ArrayType():
                inside = earlier.element if isinstance(earlier, ArrayType) else None
                return replace(kind, element=self._type(kind.element, inside, (*path, "element")))
            case MapType():
                of_map = earlier if isinstance(earlier, MapType) else None
                return replace(
                    kind,
                    key=self._type(kind.key, of_map and of_map.key, (*path, "key")),
                    value=self._type(kind.value, of_map and of_map.value, (*path, "value")),
                )
        return kind


_KEYS = (ID, _PHYSICAL, _NESTED_IDS)


def _nested_paths(kind: DataType, path: str) -> Iterator[str]:
    """Yield the paths of elements, keys and values below a field, but not within structs."""
    parts: list[tuple[str, DataType]] = []
    match kind:
        case ArrayType(element):
            parts = [("element", element)]
        case MapType(key, value):
            parts = [("key", key), ("value", value)]
    for name, inner in parts:
        yield f"{path}.{name}"
        yield from _nested_paths(inner, f"{path}.{name}")


def _name(number: int, path: tuple[str, ...]) -> str:
    from hashlib import sha256  # Only needed here, and its import loads OpenSSL.

    digest = sha256("\0".join((str(number), *path)).encode()).hexdigest()
    return "col-" + "-".join(
        (digest[:8], digest[8:12], digest[12:16], digest[16:20], digest[20:32])
    )


def _alike(earlier: DataType, kind: DataType) -> bool:
    """Return whether columns of both types may have the same physical name."""
    match earlier, kind:
        case (StructType(), StructType()) | (ArrayType(), ArrayType()) | (MapType(), MapType()):
            return True
    return earlier == kind


def _highest(metadata: Metadata) -> int:
    text = metadata.configuration.get(HIGHEST_ID) or "0"
    return int(text) if text.isdecimal() else 0


def highest_id(*metadata: Metadata | None) -> dict[str, str | None]:
    """Return the property with the highest id in several metadata actions; empty without one."""
    numbered = [one for one in metadata if one is not None and HIGHEST_ID in one.configuration]
    return {HIGHEST_ID: str(max(map(_highest, numbered)))} if numbered else {}


def _ids(kind: DataType) -> Iterator[int]:
    for _, field in all_fields(kind):
        if field.field_id is not None:
            yield field.field_id
        yield from _nested_ids(field).values()


def _nested_ids(field: StructField) -> dict[str, int]:
    ids = field.metadata.get(_NESTED_IDS)
    if not isinstance(ids, Mapping):
        return {}
    return {name: number for name, number in ids.items() if type(number) is int}


def all_fields(
    kind: DataType, above: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], StructField]]:
    """Yield all fields with their paths, at any depth."""
    match kind:
        case StructType(fields):
            for field in fields:
                path = (*above, field.name)
                yield path, field
                yield from all_fields(field.type, path)
        case ArrayType(element):
            yield from all_fields(element, (*above, "element"))
        case MapType(key, value):
            yield from all_fields(key, (*above, "key"))
            yield from all_fields(value, (*above, "value"))


def require_mapped(schema: StructType, mode: str, *, path: str) -> None:
    """Raise if the log does not say which column of the data files a field is.

    Raises
    ------
    LogCorruptError
        A field has no physical name, the physical name of another field, or no id in mode `id`.
    """
    taken: set[tuple[tuple[str, ...], str]] = set()
    for names, field in all_fields(schema):
        name, key = field.metadata.get(_PHYSICAL), _PHYSICAL
        if isinstance(name, str) and name and (names[:-1], name) not in taken:
            taken.add((names[:-1], name))
            if mode != "id" or field.field_id is not None:
                continue
            key = ID
        raise LogCorruptError(
            path=path,
            field=".".join(names),
            reason=f"{key} of this field is {field.metadata.get(key)!r}, so its column in data "
            "files is unknown",
            remedy="The writer of this log made an error. Open an earlier version",
        )


def same_in_files(schema: StructType, other: StructType) -> bool:
    """Return whether another schema has all fields of a schema with the same ids and names."""
    mappings = {path: _mapping(field) for path, field in all_fields(other)}
    return all(mappings.get(path) == _mapping(field) for path, field in all_fields(schema))


def _mapping(field: StructField) -> tuple[int | None, str, dict[str, int]]:
    return field.field_id, field.physical_name, _nested_ids(field)


def unmapped(schema: StructType) -> StructType:
    """Return a schema without ids and physical names."""
    inner = _renamed(schema, _without_mapping)
    assert isinstance(inner, StructType)
    return inner


def _without_mapping(field: StructField) -> StructField:
    kept = {name: value for name, value in field.metadata.items() if name not in _KEYS}
    return replace(field, metadata=kept)


def with_schema(metadata: Metadata, schema: StructType) -> Metadata:
    """Return metadata with a schema and with the highest id that was ever used."""
    changes: dict[str, Any] = {"schema_string": schema_json(schema)}
    given = max(_ids(schema), default=0)
    if Properties(metadata.configuration).get(MAPPING_MODE) != "none":
        highest = str(max(given, _highest(metadata)))
        changes["configuration"] = {**metadata.configuration, HIGHEST_ID: highest}
    return metadata.model_copy(update=changes)


def in_files(schema: StructType, mode: str) -> StructType:
    """Return a schema with the names that its columns have in data files."""
    if mode == "none":
        return schema
    inner = _renamed(schema, lambda field: replace(field, name=field.physical_name))
    assert isinstance(inner, StructType)
    return inner


def _renamed(kind: DataType, change: Callable[[StructField], StructField]) -> DataType:
    match kind:
        case StructType(fields):
            return StructType(
                tuple(replace(change(f), type=_renamed(f.type, change)) for f in fields)
            )
        case ArrayType(element):
            return replace(kind, element=_renamed(element, change))
        case MapType(key, value):
            return replace(kind, key=_renamed(key, change), value=_renamed(value, change))
    return kind


def parquet_schema(schema: StructType) -> pa.Schema:
    """Return the Arrow schema of data files with these columns and their field ids.

    The columns have their names in data files.
    """
    return pa.schema([_parquet_field(field) for field in schema.fields])


def _parquet_field(field: StructField) -> pa.Field:
    kind = _parquet_type(field.type, field.name, _nested_ids(field))
    return pa.field(field.name, kind, field.nullable, _with_id(field.field_id))


def _with_id(number: int | None) -> dict[str, str] | None:
    return None if number is None else {"PARQUET:field_id": str(number)}


def _parquet_type(kind: DataType, path: str, ids: dict[str, int]) -> pa.DataType:
    def part(name: str, inner: DataType, nullable: bool) -> pa.Field:
        below = f"{path}.{name}"
        return pa.field(name, _parquet_type(inner, below, ids), nullable, _with_id(ids.get(below)))

    match kind:
        case StructType(fields):
            return pa.struct([_parquet_field(field) for field in fields])
        case ArrayType(element, contains_null):
            return pa.list_(part("element", element, contains_null))
        case MapType(key, value, value_contains_null):
            return pa.map_(part("key", key, False), part("value", value, value_contains_null))
    return arrow_type(kind)


class _Named:
    """A batch with another schema of the same layout."""

    def __init__(self, batch: pa.RecordBatch, schema: pa.Schema) -> None:
        self._capsules = schema.__arrow_c_schema__(), batch.__arrow_c_array__()[1]

    def __arrow_c_array__(self, requested_schema: object = None) -> tuple[object, object]:
        return self._capsules


def with_names(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return rows with the names of a schema, at all depths, without a copy.

    The types do not change, except for the names of fields.
    """
    return pa.record_batch(_Named(batch, schema))
