"""Metadata columns: what a scan can tell of a row besides its values.

Rules: the Delta protocol, "Row Tracking"; spec/fragments.md, FRG-10 and FRG-11.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa

from txlog.arrow import arrow_scalar, pc
from txlog.errors import LogCorruptError, UnsupportedFeatureError
from txlog.fragments.fragment import Fragment
from txlog.fragments.ids import ROW_ID_COLUMN, ROW_VERSION_COLUMN
from txlog.schema.types import PrimitiveType, StructField, StructType
from txlog.snapshot.snapshot import Snapshot
from txlog.stats.skip import ColumnBounds

ROW_ADDRESS = "_rowaddr"
ROW_ID = "_rowid"
FRAGMENT_ID = "_fragid"
ROW_VERSION = "_row_last_updated_at_version"

_POSITIONS = 1 << 32  # Of a fragment, at most: addresses have so many for each.

_LONG = PrimitiveType("long")
METADATA_COLUMNS = StructType(
    (
        StructField(ROW_ID, _LONG, nullable=False),
        StructField(ROW_ADDRESS, _LONG, nullable=False),
        StructField(FRAGMENT_ID, PrimitiveType("integer"), nullable=False),
        StructField(ROW_VERSION, _LONG, nullable=False),
    )
)


@dataclass(frozen=True)
class RowTracking:
    """Where a table with row tracking keeps the ids and versions of rows that moved."""

    row_id_column: str | None
    row_version_column: str | None

    def stored(self, name: str) -> str | None:
        """Return the data files' column for a metadata column; they need not have it."""
        return {ROW_ID: self.row_id_column, ROW_VERSION: self.row_version_column}.get(name)


def row_tracking(snapshot: Snapshot) -> RowTracking | None:
    """Return how a table tracks rows, or None if it does not."""
    if not snapshot.has_stable_row_ids:
        return None
    properties = snapshot.metadata.configuration
    return RowTracking(properties.get(ROW_ID_COLUMN), properties.get(ROW_VERSION_COLUMN))


def visible_metadata(snapshot: Snapshot) -> Mapping[str, StructField]:
    """Return the metadata columns by name; a column of the table hides the one of its name."""
    return {
        column.name: column
        for column in METADATA_COLUMNS.fields
        if snapshot.schema.get(column.name) is None
    }


def metadata_bounds(
    ids: pa.Array, rows: pa.Array, tracking: RowTracking | None, *, starts: pa.Array | int = 0
) -> dict[str, ColumnBounds]:
    """Return what is known of the metadata columns of fragments, or parts of them, unread.

    Rule: FRG-42.

    Parameters
    ----------
    ids, rows, starts
        For each its fragment's id, how many physical rows it has (null where unknown), and the
        position of the first one.
    tracking
        With row tracking there are no bounds of ids: rows that moved brought theirs along.
    """
    none = pa.repeat(arrow_scalar(0, pa.int64()), len(ids))
    first = pc.add(pc.multiply(ids, _POSITIONS), starts)
    count = pc.min_element_wise(pc.coalesce(rows, _POSITIONS), _POSITIONS)
    addresses = ColumnBounds(first, pc.subtract(pc.add(first, count), 1), none)
    found = {FRAGMENT_ID: ColumnBounds(ids, ids, none), ROW_ADDRESS: addresses}
    return found if tracking is not None else {**found, ROW_ID: addresses}


def require_row_tracking(snapshot: Snapshot) -> None:
    """Refuse the versions of rows where nobody keeps them.

    Raises
    ------
    UnsupportedFeatureError
        The table has no row tracking.
    """
    if not snapshot.has_stable_row_ids:
        raise UnsupportedFeatureError(
            path=snapshot.root,
            features=("rowTracking",),
            reason="the table does not track rows, so nobody keeps their ids and versions",
            remedy="Leave the column out; tables made with delta.enableRowTracking=true have it",
        )


def metadata_column(
    name: str,
    fragment: Fragment,
    tracking: RowTracking | None,
    *,
    start: int,
    count: int,
    stored: pa.Array | None,
) -> pa.Array:
    """Return a metadata column of consecutive physical rows of a fragment.

    Parameters
    ----------
    start, count
        The position of the first row in the fragment's file, and how many they are.
    stored
        What the file itself has of the column; null for rows that did not move.

    Raises
    ------
    LogCorruptError
        The table tracks rows, but the file has no ids or no version; it is named.
    """
    if name == FRAGMENT_ID:
        return pa.repeat(arrow_scalar(fragment.id, pa.int32()), count)
    if name == ROW_VERSION:
        fresh = pa.repeat(arrow_scalar(_tracked(fragment, ROW_VERSION), pa.int64()), count)
    elif name == ROW_ID and tracking is not None:
        fresh = _positions(_tracked(fragment, ROW_ID) + start, count)
    else:
        fresh = _positions((fragment.id << 32) + start, count)
    return fresh if stored is None else pc.coalesce(stored.cast(pa.int64()), fresh)


def _positions(first: int, count: int) -> pa.Array:
    return pa.arange(first, first + count)


def _tracked(fragment: Fragment, name: str) -> int:
    value = fragment.base_row_id if name == ROW_ID else fragment.default_row_commit_version
    if value is None:
        field = "baseRowId" if name == ROW_ID else "defaultRowCommitVersion"
        raise LogCorruptError(
            path=fragment.path,
            field=field,
            reason=f"the table tracks rows, but this file's add has no {field}",
            remedy=f"Leave out the column {name}; the writer of this log is at fault",
        )
    return value
