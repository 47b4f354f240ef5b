"""Rows of blocks: read, and made what the views of their columns want."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from pyroaring import BitMap64

from txlog.arrow import arrow_array, empty_table
from txlog.errors import DataFileError, InvalidInputError
from txlog.fragments.fragment import Fragment
from txlog.loader.order import Numbers, Piece, Selected
from txlog.loader.plan import BlockPlan
from txlog.loader.views import Rows, UnfitError, View, filled
from txlog.scan.read import FragmentReader, chosen_columns

Columns = dict[str, Rows]
"""Rows as columns, by name."""

ADDRESS = "\0address"  # Where each row is: fragment id × 2³² + position. No column has this name.


@dataclass(frozen=True)
class BlockReader:
    """Reads pieces of blocks. A value: it pickles.

    Parameters
    ----------
    views, fill
        By the name of the column.
    """

    plan: BlockPlan
    views: Mapping[str, View]
    fill: Mapping[str, Any]

    def load(self, piece: Piece) -> Columns:
        """Return the rows of a piece.

        Raises
        ------
        DataFileError
            A file cannot be read, or has other rows than the log says.
        InvalidInputError
            A row does not fit the view of its column; column, fragment and position are named.
        """
        plan = self.plan
        fragment = plan.fragments[int(plan.owners[piece.block])]
        positions = plan.positions(piece)
        rows = self._read(fragment, positions)
        found: Columns = {ADDRESS: (fragment.id << 32) + positions}
        for name, view in self.views.items():
            fill = self.fill.get(name)
            try:
                found[name] = view.prepare(filled(rows.column(name), fill, view), fill)
            except UnfitError as error:
                raise unfit(name, error, int(found[ADDRESS][error.offset])) from error
        return found

    def empty(self) -> Columns:
        """Return no rows."""
        none = empty_table(self.plan.reading.schema).combine_chunks()
        found: Columns = {ADDRESS: np.zeros(0, np.int64)}
        for name, view in self.views.items():
            found[name] = view.prepare(none[name].combine_chunks(), None)
        return found

    def _read(self, fragment: Fragment, positions: Numbers) -> pa.RecordBatch:
        plan = self.plan
        reader = FragmentReader(plan.store, plan.reading, fragment)
        rows = reader.rows_at(plan.reading.needed, BitMap64(positions))
        if rows.num_rows < len(positions):
            raise DataFileError(
                path=fragment.path,
                version=plan.reading.version,
                reason=f"it has only {rows.num_rows} of the {len(positions)} rows from position "
                f"{positions[0]} on that the log says it has",
                remedy="The log's numRecords is wrong; its writer is at fault",
            )
        return chosen_columns(plan.reading, rows)


def unfit(column: str, error: UnfitError, address: int) -> InvalidInputError:
    """Return the error of a row that does not fit the view of its column."""
    null = "null" in error.reason
    return InvalidInputError(
        argument="fill" if null else "views",
        field=column,
        reason=f"{error.reason}, at position {address & 0xFFFF_FFFF} of fragment {address >> 32}",
        remedy=f"Pass fill={{{column!r}: value}}, or leave such rows out by where"
        if null
        else "Give the column another view, or leave such rows out by where",
    )


def joined(parts: Sequence[Columns]) -> Columns:
    """Return rows one after another."""
    if len(parts) == 1:
        return parts[0]
    made: Columns = {}
    for name, first in parts[0].items():
        several = [part[name] for part in parts]
        made[name] = (
            np.concatenate(several) if isinstance(first, np.ndarray) else pa.concat_arrays(several)
        )
    return made


def chosen(rows: Columns, places: Selected) -> Columns:
    """Return some of the rows, in the order of their places."""
    made: Columns = {}
    taken = None
    for name, column in rows.items():
        if isinstance(column, np.ndarray):
            made[name] = (
                column[places] if isinstance(places, slice) else column.take(places, axis=0)
            )
        elif isinstance(places, slice) and places.step in (None, 1):
            made[name] = column.slice(places.start, places.stop - places.start)
        else:
            if taken is None:
                at = (
                    np.arange(places.start, places.stop, places.step)
                    if isinstance(places, slice)
                    else places
                )
                taken = arrow_array(at)
            made[name] = column.take(taken)
    return made


def length_of(rows: Columns) -> int:
    """Return the number of rows."""
    return len(rows[ADDRESS])


def finished(views: Mapping[str, View], rows: Columns) -> dict[str, Any]:
    """Return rows as the columns of a batch.

    Raises
    ------
    InvalidInputError
        An image cannot be decoded; column, fragment and position are named.
    """
    made = {}
    for name, view in views.items():
        try:
            made[name] = view.finish(rows[name])
        except UnfitError as error:
            raise unfit(name, error, int(rows[ADDRESS][error.offset])) from error
    return made
