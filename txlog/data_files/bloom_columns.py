"""The columns whose data files get Bloom filters: the property `txlog.bloomFilterColumns`. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from txlog.actions.stats_text import Path
from txlog.data_files.listed_columns import require_listed
from txlog.protocol.properties import Properties
from txlog.schema.types import DecimalType, PrimitiveType, StructField, StructType

BLOOM_COLUMNS = "txlog.bloomFilterColumns"
FALSE_MATCHES = 0.01
"""How often a filter does not exclude a value that is not there."""

_KINDS = (
    "byte", "short", "integer", "long", "float", "double", "string", "binary", "date", "timestamp",
    "timestamp_ntz",
)  # fmt: skip


def has_filter(column: StructField) -> bool:
    """Return whether a Bloom filter of a column can be read: of values with few encodings."""
    kind = column.type
    # Values of nanoseconds are not searched in filters.
    return isinstance(kind, DecimalType) or (
        isinstance(kind, PrimitiveType) and kind.name in _KINDS
    )


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
    require_listed(
        BLOOM_COLUMNS,
        schema,
        partition_by,
        properties,
        has_filter,
        lacking="filters",
        of_partitions="which files do not need to have",
        once=False,
    )
