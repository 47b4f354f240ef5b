"""Columns that a property of a table lists: `txlog.sortBy`, `txlog.bloomFilterColumns`. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from txlog.actions.stats_text import Path
from txlog.base.errors import InvalidInputError
from txlog.protocol.properties import Properties
from txlog.schema.types import StructField, StructType, type_name


def require_listed(
    name: str,
    schema: StructType,
    partition_by: Sequence[str],
    properties: Properties,
    fits: Callable[[StructField], bool],
    *,
    lacking: str,
    of_partitions: str,
    once: bool,
) -> None:
    """Raise if a property lists a column that has no sense there.

    Parameters
    ----------
    fits
        Whether a column may be listed because of its type.
    lacking
        What values of other types do not have.
    of_partitions
        What is said of partition columns.
    once
        Whether a column may be listed only once.

    Raises
    ------
    InvalidInputError
        A column is unknown, is a field of a struct or a partition column, does not fit, or is
        listed twice.
    """
    listed: Sequence[Path] = properties.get(name) or ()
    partitions = {column.lower() for column in partition_by}
    seen: set[str] = set()
    for path in listed:
        found = schema.along(path)
        if len(found) != len(path):
            reason = "the schema has no such column"
        elif len(path) > 1:
            reason = "it is a field of a struct"
        elif found[0].name.lower() in partitions:
            reason = f"it is a partition column, {of_partitions}"
        elif not fits(found[0]):
            reason = f"values of type {type_name(found[0].type)} have no {lacking}"
        elif found[0].name in seen:
            reason = "it is named twice"
        else:
            if once:
                seen.add(found[0].name)
            continue
        others = [
            one.name
            for one in schema.fields
            if one.name.lower() not in partitions | seen and fits(one)
        ]
        raise InvalidInputError(
            argument="properties",
            field=".".join(path),
            reason=f"{name} names {'.'.join(path)}, but {reason}",
            remedy=f"Choose from {', '.join(others)}" if others else "Omit it",
        )
