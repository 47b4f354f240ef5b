"""Statistics that are structs, as the JSON text that the log has. Pure."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import orjson
import pyarrow as pa

from txlog.arrow import arrow_array
from txlog.schema.moments import format_date, format_moment


def with_json_stats(rows: pa.Table) -> pa.Table:
    """Return `FILE_ROWS`, of which those with statistics only as a struct have their JSON text.

    The struct, the column `stats_parsed`, is left out.
    """
    if "stats_parsed" not in rows.column_names:
        return rows
    parsed = rows["stats_parsed"]
    kind = parsed.type
    # Times as numbers, as Python's types end with the year 9999.
    nodes = parsed.cast(_numbered(kind)).to_pylist()
    texts = [
        text if text is not None or node is None else _stats_text(node, kind)
        for text, node in zip(rows["stats"].to_pylist(), nodes, strict=True)
    ]
    at = rows.column_names.index("stats")
    rows = rows.set_column(at, "stats", arrow_array(texts, pa.string()))
    return rows.drop_columns(["stats_parsed"])


def _numbered(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_numbered(field.type)) for field in kind])
    if pa.types.is_timestamp(kind):
        return pa.int64()
    return pa.int32() if pa.types.is_date32(kind) else kind


def _stats_text(node: dict[str, Any], kind: pa.DataType) -> str:
    return orjson.dumps(_stats_value(node, kind), default=str).decode()


def _stats_value(value: Any, kind: pa.DataType) -> Any:
    """Return a statistic as JSON; what is null is left out."""
    if isinstance(value, dict):
        children = {field.name: field.type for field in kind}
        return {
            name: _stats_value(child, children[name])
            for name, child in value.items()
            if child is not None
        }
    if pa.types.is_timestamp(kind):
        micros = value * 1_000_000 // _UNITS[kind.unit]
        return format_moment(micros, digits=6, zone="Z" if kind.tz else "")
    if pa.types.is_date32(kind):
        return format_date(value)
    if isinstance(value, Decimal):
        return orjson.Fragment(format(value, "f"))
    return value.decode("latin-1") if isinstance(value, bytes) else value


_UNITS = {"s": 1, "ms": 1000, "us": 1_000_000, "ns": 1_000_000_000}  # In a second.
