"""Columns that were dropped, though data files still have them (rule FRG-23). Pure."""

from __future__ import annotations

from collections.abc import Iterable

import orjson

from txlog.actions.table import Metadata
from txlog.errors import SchemaMismatchError

DROPPED = "txlog.droppedColumns"  # The property: a JSON array of physical names.


def dropped_columns(metadata: Metadata) -> frozenset[str]:
    """Return the physical names of dropped columns that data files may still have."""
    try:
        names = orjson.loads(metadata.configuration.get(DROPPED) or "[]")
    except orjson.JSONDecodeError:
        names = []
    return frozenset(name for name in names if isinstance(name, str))


def with_dropped(metadata: Metadata, names: Iterable[str]) -> Metadata:
    """Return metadata that lists these dropped columns, and no others."""
    kept = {key: text for key, text in metadata.configuration.items() if key != DROPPED}
    if dropped := sorted(names):
        kept[DROPPED] = orjson.dumps(dropped).decode()
    return metadata.model_copy(update={"configuration": kept})


def still_dropped(metadata: Metadata, names: Iterable[str]) -> frozenset[str]:
    """Return the dropped columns without those of these names, ignoring case."""
    given = {name.lower() for name in names}
    return frozenset(name for name in dropped_columns(metadata) if name.lower() not in given)


def require_not_dropped(metadata: Metadata, names: Iterable[str]) -> None:
    """Raise if a name is that of a dropped column whose values data files may still have.

    Raises
    ------
    SchemaMismatchError
        Names the column.
    """
    folded = {name.lower() for name in dropped_columns(metadata)}
    for name in names:
        if name.lower() in folded:
            raise SchemaMismatchError(
                argument="data",
                field=name,
                reason="a column of this name was dropped, and data files still have its values",
                remedy="Add it with add_columns, which gives all rows a value, or rename the "
                "column of the data",
            )
