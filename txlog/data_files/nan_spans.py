"""In which rows of a file each column has NaN, of which the footer must know. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

import pyarrow as pa

from txlog.base.arrow import pc

if TYPE_CHECKING:
    from txlog.parquet.nan_bounds import Span


def nan_spans(rows: pa.Table, first: int, step: int) -> list[Span]:
    """Return where columns have NaN: in which of the spans of `step` rows.

    Parameters
    ----------
    rows
        Rows of a file, in its columns.
    first
        The position of the first of them in the file.
    """
    floats = _columns_with_floats(rows.schema)
    spans: list[Span] = []
    for begin in range(0, rows.num_rows, step) if floats else ():
        part = rows if rows.num_rows <= step else rows.slice(begin, step)
        found: list[int] = []
        for place, leaf in floats:
            column = part.column(place)
            _add_leaves(column.chunks, column.type, leaf, found)
        spans += [(one, first + begin, first + begin + part.num_rows) for one in found]
    return spans


@lru_cache(maxsize=64)
def _columns_with_floats(schema: pa.Schema) -> list[tuple[int, int]]:
    """Return the places of columns in which NaN can be, each with the number of its first leaf."""
    leaf, found = 0, []
    for place, kind in enumerate(schema.types):
        if _has_floats(kind):
            found.append((place, leaf))
        leaf = _add_leaves([], kind, leaf, [])
    return found


def _has_floats(kind: pa.DataType) -> bool:
    kind = kind.storage_type if isinstance(kind, pa.BaseExtensionType) else kind
    if pa.types.is_nested(kind):
        return any(_has_floats(kind.field(at).type) for at in range(kind.num_fields))
    return bool(pa.types.is_floating(kind))


def _add_leaves(arrays: Sequence[pa.Array], kind: pa.DataType, leaf: int, found: list[int]) -> int:
    """Add the leaves with NaN below a column, whose first one is `leaf`; return the next leaf."""
    if isinstance(kind, pa.BaseExtensionType):
        return _add_leaves([array.storage for array in arrays], kind.storage_type, leaf, found)
    if not pa.types.is_nested(kind):
        if pa.types.is_floating(kind) and any(_has_nan(array) for array in arrays):
            found.append(leaf)
        return leaf + 1
    if pa.types.is_struct(kind):
        parts = [array.flatten() for array in arrays]
        for at in range(kind.num_fields):
            leaf = _add_leaves([part[at] for part in parts], kind.field(at).type, leaf, found)
        return leaf
    if pa.types.is_map(kind):
        # Keys and items of other rows that share the buffers do no harm.
        leaf = _add_leaves([array.keys for array in arrays], kind.key_type, leaf, found)
        return _add_leaves([array.items for array in arrays], kind.item_type, leaf, found)
    return _add_leaves([array.flatten() for array in arrays], kind.value_type, leaf, found)


def _has_nan(array: pa.Array) -> bool:
    return bool(pc.any(pc.is_nan(array)).as_py())
