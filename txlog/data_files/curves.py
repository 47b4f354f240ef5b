"""Space-filling curves: map several columns to one number that keeps similar rows close. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Literal, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from txlog.base.arrow import arrow_array, numpy_array, pc
from txlog.base.columns import flat

Curve = Literal["z-order", "hilbert"]
Numbers: TypeAlias = "NDArray[np.uint64]"

_KEY_BITS = 62
_MOST_BITS = 16  # The most bits of one column.


def bits_for(columns: int) -> int:
    """Return the number of bits of each column in a key."""
    return max(1, min(_MOST_BITS, _KEY_BITS // columns))


def cuts_of(sample: pa.Array, bits: int) -> pa.Array:
    """Return ascending values that divide a sample into parts of about the same size.

    There are at most as many parts as numbers of `bits` bits can distinguish.
    """
    values = sample.drop_null()
    ordered = values.take(pc.array_sort_indices(values))
    count = min((1 << bits) - 2, len(ordered))
    places = np.linspace(0, max(len(ordered) - 1, 0), num=count).astype(np.int64)
    return pc.unique(ordered.take(arrow_array(np.unique(places), pa.int64())))


def ranks(values: pa.Array, cuts: pa.Array | None, bits: int) -> Numbers:
    """Return numbers of `bits` bits in the order of values; 0 for null.

    Parameters
    ----------
    cuts
        The result of `cuts_of`: values between the same two cuts get the same number. None: the
        numbers depend only on these values, so they cannot be compared with those of other rows.
    """
    known = numpy_array(values.is_valid())
    if cuts is None:
        places = _dense(values)
        most = int(places.max(initial=1, where=known))
    else:
        dense = _dense(pa.concat_arrays([cuts, values]))
        found = np.searchsorted(dense[: len(cuts)], dense[len(cuts) :], side="right")
        places, most = found.astype(np.uint64), len(cuts)
    # Scale to all bits: otherwise columns with fewer values would not affect the high bits.
    scaled = places * np.uint64((1 << bits) - 2) // np.uint64(max(most, 1))
    return np.where(known, scaled + np.uint64(1), np.uint64(0))


def _dense(values: pa.Array) -> Numbers:
    """Return the rank of each value among the distinct values."""
    found: Numbers = numpy_array(pc.rank(values, "ascending", tiebreaker="dense"))
    return found


def keys(columns: Sequence[Numbers], bits: int, curve: Curve) -> Numbers:
    """Return positions on a curve, given a number of `bits` bits for each column."""
    if len(columns) == 1:
        return columns[0]
    points = [column.astype(np.uint64) for column in columns]
    if curve == "hilbert":
        _to_hilbert(points, bits)
    found = np.zeros(len(points[0]), np.uint64)
    one = np.uint64(1)
    for bit in reversed(range(bits)):
        for point in points:
            found = (found << one) | ((point >> np.uint64(bit)) & one)
    return found


def _to_hilbert(points: list[Numbers], bits: int) -> None:
    """Transform coordinates so that their interleaved bits are positions on Hilbert's curve.

    Source: J. Skilling, "Programming the Hilbert curve" (2004): the inverse of its transform.
    """
    for bit in reversed(range(1, bits)):
        high, low = np.uint64(1 << bit), np.uint64((1 << bit) - 1)
        for point in points:
            is_set = (point & high) != 0
            swapped = np.where(is_set, np.uint64(0), (points[0] ^ point) & low)
            points[0] ^= np.where(is_set, low, swapped)
            point ^= swapped
    for before, point in pairwise(points):
        point ^= before
    twist = np.zeros(len(points[0]), np.uint64)
    for bit in reversed(range(1, bits)):
        is_set = (points[-1] & np.uint64(1 << bit)) != 0
        twist ^= np.where(is_set, np.uint64((1 << bit) - 1), np.uint64(0))
    for point in points:
        point ^= twist


def column_at(rows: pa.RecordBatch | pa.Table, path: Sequence[str]) -> pa.Array:
    """Return a column of rows, or a field in its structs, as one array."""
    column: Any = rows.column(path[0])
    found = flat(column) if isinstance(column, pa.ChunkedArray) else column
    return pc.struct_field(found, list(path[1:])) if len(path) > 1 else found
