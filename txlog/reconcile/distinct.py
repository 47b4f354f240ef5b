"""Keys of logical files, and whether they are all different. Pure.

A logical file is a path together with a deletion vector's id. Hashes of the ends of texts show
quickly that all are different; only if two are equal are the texts compared.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from txlog.actions.text_bytes import WORD_BYTES, TextBytes, text_bytes, words_of
from txlog.arrow import pc
from txlog.log.paths import canonical_keys

_WORDS = 4
_PRIME = np.uint64(0x9E3779B97F4A7C15)
_SHIFT = np.uint64(29)

Hashes = NDArray[np.uint64]


def text_hashes(texts: pa.Array) -> Hashes:
    """Return a hash of each text, of its length and its last 32 bytes.

    Names of files differ at their ends. Of a shorter text, whole groups of eight bytes count. A
    null counts as the empty text.

    Parameters
    ----------
    texts
        A `string` array, of any offset.
    """
    places = text_bytes(texts)
    hashes = (places.ends - places.starts).astype(np.uint64) * _PRIME
    for word in _last_words(places):
        hashes = (hashes ^ word) * _PRIME
        hashes ^= hashes >> _SHIFT
    return hashes


def _last_words(texts: TextBytes) -> Iterator[NDArray[np.uint64]]:
    """Yield groups of eight bytes of each text, the last group first; 0 if a text is shorter."""
    starts, ends = texts.starts, texts.ends
    if (ends - starts >= WORD_BYTES * _WORDS).all():
        pairs = words_of(texts.held, "<c16")
        for back in range(2, _WORDS + 1, 2):
            pair = pairs[ends - WORD_BYTES * back].view("<u8").reshape(-1, 2)
            yield from (pair[:, 1], pair[:, 0])
        return
    words = words_of(texts.held)
    for back in range(1, _WORDS + 1):
        places = ends - WORD_BYTES * back
        yield np.where(places >= starts, words[np.maximum(places, 0)], 0)


def are_distinct(hashes: Hashes) -> bool:
    """Return whether all hashes are different."""
    ordered = np.sort(hashes)
    return not bool((ordered[1:] == ordered[:-1]).any())


_NOTHING = np.zeros(0, np.uint64)
_VECTOR_SHIFT = np.uint64(7)


def file_keys(rows: pa.Table) -> pa.ChunkedArray:
    """Return the key of each row's logical file: one text. `rows` are `FILE_ROWS`."""
    paths = canonical_keys(rows["path"])
    if rows["dv_id"].null_count == rows.num_rows:
        return paths
    # No path that a store can hold has a NUL, so none can look like a path with a vector.
    with_vector = pc.binary_join_element_wise(paths, rows["dv_id"], "\0")
    return pc.coalesce(with_vector, paths)


def key_hashes(rows: pa.Table) -> Hashes:
    """Return a hash of each row's logical file. `rows` are `FILE_ROWS`.

    Only the columns `path` and `dv_id` are needed.
    """
    hashes = _hashes(canonical_keys(rows["path"]))
    if rows["dv_id"].null_count < rows.num_rows:
        hashes ^= _hashes(rows["dv_id"]) << _VECTOR_SHIFT
    return hashes


def _hashes(texts: pa.ChunkedArray) -> Hashes:
    parts = [text_hashes(part) for part in texts.chunks]
    return parts[0] if len(parts) == 1 else np.concatenate([_NOTHING, *parts])


def are_different(keys: pa.ChunkedArray) -> bool:
    """Return whether all keys are different."""
    if are_distinct(_hashes(keys)):
        return True
    return bool(pc.count_distinct(keys, mode="all").as_py() == len(keys))
