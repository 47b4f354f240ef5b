"""Batches of rows, made larger: what is done with each costs a fixed time. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa

_ROWS = 64 * 1024
_BYTES = 64 * 1024 * 1024


def gathered(batches: Iterable[pa.RecordBatch], *, rows: int = _ROWS) -> Iterator[pa.RecordBatch]:
    """Yield the rows of batches in larger ones, of that many rows or a little more.

    Batches of many bytes are left as they are, and those of fewer rows are then yielded too.
    """
    held: list[pa.RecordBatch] = []
    count = size = 0
    for batch in batches:
        if held and batch.nbytes >= _BYTES:  # Not to be copied for the sake of a few.
            yield from _together(held)
            held, count, size = [], 0, 0
        held.append(batch)
        count += batch.num_rows
        size += batch.nbytes
        if count >= rows or size >= _BYTES:
            yield from _together(held)
            held, count, size = [], 0, 0
    if held:
        yield from _together(held)


def _together(batches: list[pa.RecordBatch]) -> list[pa.RecordBatch]:
    """Return batches as one; as more where an array cannot hold all texts."""
    if len(batches) == 1:
        return batches
    found: list[pa.RecordBatch] = pa.Table.from_batches(batches).combine_chunks().to_batches()
    return found
