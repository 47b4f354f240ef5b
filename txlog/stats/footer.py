"""What a Parquet footer tells of a file's columns, where reading them would tell no more. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Any

import pyarrow as pa

from txlog.arrow import pq
from txlog.schema.arrow import arrow_type
from txlog.schema.types import DataType, DecimalType, PrimitiveType
from txlog.stats.bounds import Path
from txlog.stats.collect import Extent, has_bounds

# A footer does not say whether there are NaNs.
_SILENT = (PrimitiveType("float"), PrimitiveType("double"))


def footer_extents(
    metadata: pq.FileMetaData, columns: Mapping[Path, DataType]
) -> dict[Path, Extent]:
    """Return what a footer says of columns; those that have to be read are left out.

    Parameters
    ----------
    columns
        Leaf columns and their types, by the names that the file has for them.
    """
    schema = metadata.schema.to_arrow_schema()
    folded = {name.lower() for name in schema.names}
    names = [metadata.schema.column(at).path for at in range(metadata.num_columns)]
    places = {name: at for at, name in enumerate(names) if names.count(name) == 1}
    found = {}
    for path, kind in columns.items():
        if path[0].lower() not in folded:
            found[path] = Extent(metadata.num_rows)
        elif (place := places.get(".".join(path))) is not None and _is_stored(schema, path, kind):
            extent = _extent(metadata, place, kind)
            if extent is not None:
                found[path] = extent
    return found


def _is_stored(schema: pa.Schema, path: Path, kind: DataType) -> bool:
    """Whether the file has a column as values of the type, each in a row of its own."""
    if schema.names.count(path[0]) != 1:
        return False
    field = schema.field(path[0])
    for name in path[1:]:
        if not pa.types.is_struct(field.type) or field.type.get_field_index(name) < 0:
            return False
        field = field.type.field(name)
    if kind == PrimitiveType("string"):
        return bool(pa.types.is_string(field.type) or pa.types.is_large_string(field.type))
    primitive = isinstance(kind, PrimitiveType | DecimalType)
    return primitive and kind not in _SILENT and field.type == arrow_type(kind)


def _extent(metadata: pq.FileMetaData, place: int, kind: DataType) -> Extent | None:
    """Return the extent of a column over all row groups, or None if one does not tell it."""
    nulls, low, high = 0, None, None
    for at in range(metadata.num_row_groups):
        chunk = metadata.row_group(at).column(place)
        statistics = chunk.statistics
        if statistics is None or not statistics.has_null_count:
            return None
        nulls += statistics.null_count
        if not has_bounds(kind) or statistics.null_count == chunk.num_values:
            continue
        if not statistics.has_min_max:
            return None
        least, greatest = _value(statistics.min_raw, kind), _value(statistics.max_raw, kind)
        if least is None or greatest is None or least > greatest:
            return None
        low = least if low is None else min(low, least)
        high = greatest if high is None else max(high, greatest)
    return Extent(nulls, low, high)


def _value(raw: Any, kind: DataType) -> Any:
    """Return a value of a footer in the form that an `Extent` has it, or None if it has none."""
    if isinstance(kind, DecimalType):
        number = int.from_bytes(raw, "big", signed=True) if isinstance(raw, bytes) else raw
        # Arithmetic would round it to the digits of the context.
        return Decimal((int(number < 0), tuple(map(int, str(abs(number)))), -kind.scale))
    if isinstance(raw, bytes):
        try:
            return raw.decode()
        except UnicodeDecodeError:  # Cut within a character.
            return None
    return raw
