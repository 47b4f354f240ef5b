"""Schemas for pages: a row for each column, and the changes between versions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from txlog import Table
from txlog.extend import (
    ArrayType,
    Commit,
    DataType,
    MapType,
    Metadata,
    StructType,
    parse_schema,
    read_commits,
    type_name,
)

MOST_COMMITS = 1_000  # The number of newest commits in which earlier schemas are searched.
_ID = "delta.columnMapping.id"


@dataclass(frozen=True)
class Column:
    """A column, or a field within one, by its dotted path."""

    path: str
    type: str
    nullable: bool
    metadata: Mapping[str, Any]


@dataclass(frozen=True)
class Change:
    """The changes of a version to the schema, the partitioning or the properties."""

    version: int
    what: list[str]


def columns_of(schema: StructType) -> list[Column]:
    """Return all columns and nested fields, in their order: `a`, `a.b`, `a.element.c`."""
    return list(_columns(schema, ""))


def _columns(kind: DataType, above: str) -> Iterator[Column]:
    match kind:
        case StructType(fields):
            for one in fields:
                path = f"{above}{one.name}"
                yield Column(path, _short(one.type), one.nullable, one.metadata)
                yield from _columns(one.type, f"{path}.")
        case ArrayType(element):
            yield from _columns(element, f"{above}element.")
        case MapType(key, value):
            yield from _columns(key, f"{above}key.")
            yield from _columns(value, f"{above}value.")


def _short(kind: DataType) -> str:
    """Return the name of a type without the fields of structs, which have their own rows."""
    match kind:
        case StructType():
            return "struct"
        case ArrayType(element):
            return f"array<{_short(element)}>"
        case MapType(key, value):
            return f"map<{_short(key)},{_short(value)}>"
    return type_name(kind)


def metadata_changes(table: Table) -> list[Change]:
    """Return the versions that changed the table's metadata, newest first.

    The newest `MOST_COMMITS` commits up to the table's version are read. The earliest metadata
    in them cannot be compared: for version 0 the number of columns is stated, otherwise it is
    skipped.
    """
    changes = []
    before: Metadata | None = None
    start = max(0, table.version + 1 - MOST_COMMITS)
    for commit in read_commits(table, start, files=False, skip_damaged=True):
        after = _metadata_in(commit)
        if after is None:
            continue
        if before is not None:
            changes.append(Change(commit.version, differences(before, after)))
        elif commit.version == 0:
            count = len(_schema(after).fields)
            changes.append(Change(0, [f"the table was created with {count} columns"]))
        before = after
    return [change for change in changes[::-1] if change.what]


def _metadata_in(commit: Commit) -> Metadata | None:
    controls = (action for _, action in commit.controls)
    return next((one for one in controls if isinstance(one, Metadata)), None)


def _schema(metadata: Metadata) -> StructType:
    return parse_schema(metadata.schema_string) if metadata.schema_string else StructType()


def differences(before: Metadata, after: Metadata) -> list[str]:
    """Return texts about the differences between the metadata of two versions."""
    found = schema_differences(_schema(before), _schema(after))
    if before.partition_columns != after.partition_columns:
        found.append(f"partitioned by {', '.join(after.partition_columns) or 'nothing'}")
    for what, old, new in (
        ("name", before.name, after.name),
        ("description", before.description, after.description),
    ):
        if old != new:
            found.append(f"{what}: {new or 'none'}")
    old_properties, new_properties = before.configuration, after.configuration
    for name in sorted(old_properties.keys() | new_properties.keys()):
        if name not in new_properties:
            found.append(f"property {name} was removed")
        elif old_properties.get(name) != new_properties[name]:
            found.append(f"property {name} = {new_properties[name]}")
    return found


def schema_differences(before: StructType, after: StructType) -> list[str]:
    """Return texts about added, dropped and changed columns; column ids reveal renamed ones."""
    old, new = _by_identity(before), _by_identity(after)
    found = []
    for key, column in new.items():
        earlier = old.get(key)
        if earlier is None:
            found.append(f"added {column.path} ({column.type})")
            continue
        if earlier.path != column.path:
            found.append(f"renamed {earlier.path} to {column.path}")
        if earlier.type != column.type:
            found.append(f"{column.path}: {earlier.type} became {column.type}")
        if earlier.nullable != column.nullable:
            found.append(f"{column.path} {'may' if column.nullable else 'must not'} be null")
        if _without_mapping(earlier) != _without_mapping(column):
            found.append(f"{column.path}: its metadata changed")
    found += [
        f"dropped {column.path} ({column.type})" for key, column in old.items() if key not in new
    ]
    kept = [key for key in old if key in new]
    if kept != [key for key in new if key in old]:
        found.append("the order of the columns changed")
    return found


def _without_mapping(column: Column) -> dict[str, Any]:
    return {name: value for name, value in column.metadata.items() if "columnMapping" not in name}


def _by_identity(schema: StructType) -> dict[object, Column]:
    return {column.metadata.get(_ID, column.path): column for column in columns_of(schema)}
