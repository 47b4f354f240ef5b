"""Combine small batches, because each batch has a fixed cost. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa

_ROWS = 64 * 1024
_BYTES = 64 * 1024 * 1024


def gathered(batches: Iterable[pa.RecordBatch], *, rows: int = _ROWS) -> Iterator[pa.RecordBatch]:
    """Yield the same rows in batches of at least `rows` rows.

    A batch of many bytes is not copied: it is yielded as it is, after the rows before it.
    """
    waiting: list[pa.RecordBatch] = []
    count = size = 0
    for batch in batches:
        if waiting and batch.nbytes >= _BYTES:  # Too large to copy.
            yield from _together(waiting)
            waiting, count, size = [], 0, 0
        waiting.append(batch)
        count += batch.num_rows
        size += batch.nbytes
        if count >= rows or size >= _BYTES:
            yield from _together(waiting)
            waiting, count, size = [], 0, 0
    if waiting:
        yield from _together(waiting)


def _together(batches: list[pa.RecordBatch]) -> list[pa.RecordBatch]:
    """Combine batches into one, or into more if their texts exceed what an array can hold."""
    if len(batches) == 1:
        return batches
    combined: list[pa.RecordBatch] = pa.Table.from_batches(batches).combine_chunks().to_batches()
    return combined
