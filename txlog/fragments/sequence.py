"""Fragments as a sequence over columns: a value is made of one when it is asked for. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, overload

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from txlog.actions.columns import flat
from txlog.arrow import arrow_array, arrow_scalar, numpy_array, pc
from txlog.fragments.fragment import Fragment, fragments_of
from txlog.fragments.rows import ColumnFiles, FragmentRows

Places = NDArray[Any]  # Of whole numbers.

_AT_ONCE = 1 << 16  # Values that an iteration makes together.


class FragmentSequence(Sequence[Fragment]):
    """The fragments of a version, ordered by id.

    Parameters
    ----------
    rows
        The fragments, in any order.
    physical_rows
        int64, of each; null where the log does not say.
    """

    def __init__(self, rows: FragmentRows, physical_rows: pa.Array) -> None:
        self.ids = rows.ids
        self._rows = rows
        self._physical_rows = physical_rows
        order = pc.sort_indices(rows.ids)
        self._order = numpy_array(order)  # The place of each fragment among the rows.
        if rows.columns.rows.num_rows:
            # Column files in the order of their fragments, each fragment's by path.
            owners = rows.columns.owners
            keys = {"owner": owners, "path": flat(rows.columns.rows["path"]).cast(pa.binary())}
            by_owner = pc.sort_indices(
                pa.table(keys), sort_keys=[("owner", "ascending"), ("path", "ascending")]
            )
            self._column_places = numpy_array(by_owner)
            self._owners = numpy_array(owners.take(by_owner))

    def __len__(self) -> int:
        return len(self._order)

    @overload
    def __getitem__(self, at: int) -> Fragment: ...
    @overload
    def __getitem__(self, at: slice) -> list[Fragment]: ...
    def __getitem__(self, at: int | slice) -> Fragment | list[Fragment]:
        """Return a fragment by its place, or a list of those of a slice."""
        if isinstance(at, slice):
            found = self._values(self._order[at])
            return found[::-1] if at.step is not None and at.step < 0 else found
        return self._values(self._order[[range(len(self))[at]]])[0]

    def __iter__(self) -> Iterator[Fragment]:
        for start in range(0, len(self), _AT_ONCE):
            yield from self._values(self._order[start : start + _AT_ONCE])

    def place_of(self, fragment_id: int) -> int | None:
        """Return the place of the fragment of an id, or None if there is none."""
        place = pc.index(self.ids, arrow_scalar(fragment_id, pa.int64())).as_py()
        if place < 0:
            return None
        return int(np.flatnonzero(self._order == place)[0])

    def file_rows(self, at: int) -> pa.Table:
        """Return the `FILE_ROWS` of one fragment's files, in their order; nothing else is held."""
        place = self._order[at]
        primary = self._rows.primaries.take([place])
        columns = self._rows.columns.rows
        if not columns.num_rows:
            return primary
        return pa.concat_tables([primary, columns.take(self._columns_of(place))])

    def _columns_of(self, place: int) -> Places:
        """Return the places of the column files of a fragment, ordered by path."""
        first, end = np.searchsorted(self._owners, [place, place + 1])
        found: Places = self._column_places[first:end]
        return found

    def _values(self, places: Places) -> list[Fragment]:
        """Return the fragments at some places among the rows, ordered by id."""
        rows = self._rows
        if len(places) == 1:  # Without a copy of all chunks.
            primaries = rows.primaries.slice(places[0], 1)
        else:
            primaries = rows.primaries.take(places)
        columns, nothing = rows.columns, pa.nulls(0, pa.int64())
        if columns.rows.num_rows:
            theirs = [self._columns_of(place) for place in places]
            chosen = arrow_array(np.concatenate([numpy_array(nothing), *theirs]), pa.int64())
            owners = np.repeat(np.arange(len(places)), [len(held) for held in theirs])
            columns = ColumnFiles(
                columns.rows.take(chosen), arrow_array(owners, pa.int64()), columns.field_sets,
                columns.field_set.take(chosen),
            )  # fmt: skip
        chosen = arrow_array(places)
        found = FragmentRows(primaries, rows.ids.take(chosen), columns)
        return fragments_of(found, self._physical_rows.take(chosen))
