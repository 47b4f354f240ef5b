"""What a change of metadata means for others: does it only add, does it tighten. Pure.

Rules: spec/commit.md, CON-12 and CON-15.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from txlog.actions.table import Metadata
from txlog.errors import LogCorruptError
from txlog.schema.json import parse_schema
from txlog.schema.types import StructField, StructType

_SYSTEM = "delta."
# Counts the columns that a mapped table ever had: no column comes without it.
_COLUMN_COUNT = "delta.columnMapping.maxColumnId"
_HARMLESS = ("delta.columnMapping.", "comment")  # Metadata of a column that binds no writer.


def is_additive(old: Metadata, new: Metadata) -> bool:
    """Return whether new metadata has only more nullable columns or other properties of users.

    Properties that begin with `delta.` are the system's. What cannot be read is not additive.
    """
    columns, before = schema_of(new), schema_of(old)
    if columns is None or before is None or not _same_but_columns_and_properties(old, new):
        return False
    now = {field.name: field for field in columns.fields}
    return (
        not _set_or_changed(old.configuration, new.configuration)
        and not _set_or_changed(new.configuration, old.configuration)
        and all(now.get(field.name) == field for field in before.fields)
        and all(is_harmless(field) for field in new_columns(before, columns))
    )


def tightens(old: Metadata, new: Metadata) -> bool:
    """Return whether new metadata may forbid what others wrote while the old was in force.

    One-sided: what is not known to permit all that was permitted tightens.
    """
    columns, before = schema_of(new), schema_of(old)
    if columns is None or before is None or old.partition_columns != new.partition_columns:
        return True
    held = {field.physical_name.lower() for field in before.fields}
    return _set_or_changed(old.configuration, new.configuration) or any(
        field.physical_name.lower() in held or not is_harmless(field)
        for field in new_columns(before, columns)
    )


def schema_of(metadata: Metadata) -> StructType | None:
    """Return the schema of metadata, or None if it has none that can be read."""
    try:
        return parse_schema(metadata.schema_string or "")
    except LogCorruptError:
        return None


def new_columns(old: StructType, new: StructType) -> list[StructField]:
    """Return the columns of a schema that another one has not, or has otherwise."""
    known = {field.name: field for field in old.fields}
    return [field for field in new.fields if known.get(field.name) != field]


def is_harmless(field: StructField) -> bool:
    """Return whether a new column asks nothing of writers: those that leave it out mean null."""
    return field.nullable and all(name.startswith(_HARMLESS) for name in field.metadata)


def _same_but_columns_and_properties(old: Metadata, new: Metadata) -> bool:
    rest: dict[str, Any] = {"schema_string": None, "configuration": {}}
    return old.model_copy(update=rest) == new.model_copy(update=rest)


def _set_or_changed(old: Mapping[str, str | None], new: Mapping[str, str | None]) -> bool:
    """Return whether a property of the system has another value now than it had."""
    return any(
        name.startswith(_SYSTEM) and name != _COLUMN_COUNT and old.get(name) != value
        for name, value in new.items()
    )
