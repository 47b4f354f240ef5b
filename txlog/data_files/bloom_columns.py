"""The columns whose data files get Bloom filters: the property `txlog.bloomFilterColumns`. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from txlog.actions.stats_text import Path
from txlog.base.errors import InvalidInputError
from txlog.protocol.properties import Properties
from txlog.schema.types import DecimalType, PrimitiveType, StructField, StructType, type_name

BLOOM_COLUMNS = "txlog.bloomFilterColumns"
FALSE_MATCHES = 0.01
"""How often a filter does not exclude a value that is not there."""

_KINDS = (
    "byte", "short", "integer", "long", "string", "binary", "date", "timestamp", "timestamp_ntz",
)  # fmt: skip


def has_filter(column: StructField) -> bool:
    """Return whether a Bloom filter of a column can be read: of values that are equal as bytes."""
    kind = column.type
    if isinstance(kind, DecimalType):
        return False  # pyarrow has no filters of the bytes in which it writes them.
    # Values of nanoseconds are not searched in filters.
    return isinstance(kind, PrimitiveType) and kind.name in _KINDS


def bloom_columns(
    properties: Properties, schema: StructType, partition_by: Iterable[str]
) -> list[StructField]:
    """Return the columns of a table that get filters; names that have no sense are ignored."""
    listed: Sequence[Path] = properties.get(BLOOM_COLUMNS) or ()
    partitions = {name.lower() for name in partition_by}
    found = [schema.along(path)[0] for path in listed if len(schema.along(path)) == len(path) == 1]
    return [one for one in found if has_filter(one) and one.name.lower() not in partitions]


def require_bloom_columns(
    schema: StructType, partition_by: Sequence[str], properties: Properties
) -> None:
    """Raise if the property names a column that cannot have filters.

    Raises
    ------
    InvalidInputError
        A column is unknown, is a field of a struct or a partition column, or has another type.
    """
    listed: Sequence[Path] = properties.get(BLOOM_COLUMNS) or ()
    partitions = {name.lower() for name in partition_by}
    for path in listed:
        found = schema.along(path)
        if len(found) != len(path):
            reason = "the schema has no such column"
        elif len(path) > 1:
            reason = "it is a field of a struct"
        elif found[0].name.lower() in partitions:
            reason = "it is a partition column, which files do not need to have"
        elif not has_filter(found[0]):
            reason = f"values of type {type_name(found[0].type)} have no filters"
        else:
            continue
        others = [
            one.name
            for one in schema.fields
            if has_filter(one) and one.name.lower() not in partitions
        ]
        raise InvalidInputError(
            argument="properties",
            field=".".join(path),
            reason=f"{BLOOM_COLUMNS} names {'.'.join(path)}, but {reason}",
            remedy=f"Choose from {', '.join(others)}" if others else "Omit it",
        )
