"""Row positions: bitmaps ↔ Arrow, without an object for each."""

from __future__ import annotations

from array import array

import pyarrow as pa
from pyroaring import BitMap64

from txlog.arrow import pc

_FEW = 8
"""Of how many positions one may be deleted for the deleted ones to be few."""


def as_bitmap(positions: pa.Array) -> BitMap64:
    """Return the positions of an unsigned 64-bit array, which has no nulls, as a bitmap."""
    data = array("Q")
    if len(positions):
        start = positions.offset * 8
        data.frombytes(positions.buffers()[1].slice(start, len(positions) * 8))
    return BitMap64(data)


def as_array(bitmap: BitMap64) -> pa.Array:
    """Return a bitmap's positions, ascending, as an unsigned 64-bit array."""
    data = bitmap.to_array()
    return pa.Array.from_buffers(pa.uint64(), len(data), [None, pa.py_buffer(data)])


def alive_mask(deleted: BitMap64 | None, start: int, count: int) -> pa.Array | None:
    """Return which of a run of positions are not deleted, or None if none of them is."""
    if deleted is None:
        return None
    here = deleted & BitMap64(range(start, start + count))
    if not here:
        return None
    if len(here) * _FEW > count:
        run = pa.arange(start, start + count).cast(pa.uint64())
        return pc.invert(pc.is_in(run, value_set=as_array(here)))
    alive = bytearray(b"\1" * count)  # Few are marked faster than all are looked up.
    for position in here:
        alive[position - start] = 0
    return pa.Array.from_buffers(pa.uint8(), count, [None, pa.py_buffer(alive)]).cast(pa.bool_())
