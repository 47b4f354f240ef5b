"""What tells logical files apart: a path together with a deletion vector's id. Pure."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from txlog.arrow import pc
from txlog.log.paths import canonical_keys
from txlog.reconcile.distinct import Hashes, are_distinct, text_hashes

_NOTHING = np.zeros(0, np.uint64)
_SHIFT = np.uint64(7)


def file_keys(rows: pa.Table) -> pa.ChunkedArray:
    """Return for each of `FILE_ROWS` one text that stands for its logical file."""
    paths = canonical_keys(rows["path"])
    if rows["dv_id"].null_count == rows.num_rows:
        return paths
    # No path that a store can hold has a NUL, so none can look like a path with a vector.
    with_vector = pc.binary_join_element_wise(paths, rows["dv_id"], "\0")
    return pc.coalesce(with_vector, paths)


def key_hashes(rows: pa.Table) -> Hashes:
    """Return for each of `FILE_ROWS` a number: those of one logical file have the same.

    Only the columns `path` and `dv_id` are looked at.
    """
    found = _hashes(canonical_keys(rows["path"]))
    if rows["dv_id"].null_count < rows.num_rows:
        found ^= _hashes(rows["dv_id"]) << _SHIFT
    return found


def _hashes(texts: pa.ChunkedArray) -> Hashes:
    parts = [text_hashes(part) for part in texts.chunks]
    return parts[0] if len(parts) == 1 else np.concatenate([_NOTHING, *parts])


def are_different(keys: pa.ChunkedArray) -> bool:
    """Return whether no key is there twice."""
    if are_distinct(_hashes(keys)):
        return True
    return bool(pc.count_distinct(keys, mode="all").as_py() == len(keys))
