"""Which columns of a table get statistics when files are written. Pure.

Rules: the properties `delta.dataSkippingStatsColumns`, and else `delta.dataSkippingNumIndexedCols`.
"""

from __future__ import annotations

from collections.abc import Sequence

from txlog.errors import InvalidInputError
from txlog.protocol.properties import Properties
from txlog.schema.types import DataType, StructType, type_name
from txlog.stats.collect import has_bounds, leaf_types

LISTED = "delta.dataSkippingStatsColumns"
_INDEXED = "delta.dataSkippingNumIndexedCols"

Path = tuple[str, ...]


def stats_leaves(stored: StructType, properties: Properties) -> dict[Path, DataType]:
    """Return the leaf columns of data files that get statistics, with their types.

    A listed column that the files do not have is passed over: another writer may have dropped it.

    Parameters
    ----------
    stored
        The columns of the files.
    """
    listed: Sequence[Path] | None = properties.get(LISTED)
    if listed is None:
        return leaf_types(stored, indexed=properties.get(_INDEXED))
    folded = {_folded(path) for path in listed}
    return {
        path: kind
        for path, kind in leaf_types(stored).items()
        if any(_folded(path[:end]) in folded for end in range(1, len(path) + 1))
    }


def require_stats_columns(
    schema: StructType, partition_by: Sequence[str], properties: Properties
) -> None:
    """Raise if `delta.dataSkippingStatsColumns` names a column that cannot have statistics.

    Raises
    ------
    InvalidInputError
        A column is unknown, a partition column, of a type without bounds, or named twice.
    """
    listed: Sequence[Path] = properties.get(LISTED) or ()
    partitions = {name.lower() for name in partition_by}
    seen = set[Path]()
    for path in listed:
        kind = _type_at(schema, path)
        if kind is None:
            reason = "the schema has no such column"
        elif path[0].lower() in partitions:
            reason = "it is a partition column, and these have no statistics"
        elif not isinstance(kind, StructType) and not has_bounds(kind):
            reason = f"values of type {type_name(kind)} have no bounds"
        elif _folded(path) in seen:
            reason = "it is named twice"
        else:
            seen.add(_folded(path))
            continue
        raise InvalidInputError(
            argument="properties",
            field=".".join(path),
            reason=f"{LISTED} names {'.'.join(path)}, but {reason}",
            remedy=f"Choose from {', '.join(schema.names())}; fields of structs are named with "
            "dots, and names with dots are put in backticks",
        )


def _folded(path: Path) -> Path:
    return tuple(name.lower() for name in path)


def _type_at(schema: StructType, path: Path) -> DataType | None:
    kind: DataType = schema
    for name in path:
        field = kind.get(name) if isinstance(kind, StructType) else None
        if field is None:
            return None
        kind = field.type
    return kind
