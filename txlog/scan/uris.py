"""The paths and URIs that logged paths mean, as columns."""

from __future__ import annotations

import pyarrow as pa

from txlog.arrow import arrow_array, pc
from txlog.errors import LogCorruptError
from txlog.log.paths import by_folder, decode_path, encoded_paths
from txlog.store.base import Store
from txlog.store.open import uri_of

_ROWS = 1 << 17  # At a time: an Arrow array holds 2 GiB of text at most.


def uris_of(store: Store, paths: pa.Array | pa.ChunkedArray) -> list[str]:
    """Return the absolute path or URI of each logged path, decoded.

    Raises
    ------
    LogCorruptError
        A relative path leads out of the table.
    """
    chunks = paths.chunks if isinstance(paths, pa.ChunkedArray) else [paths]
    found: list[str] = []
    for chunk in chunks:
        for start in range(0, len(chunk), _ROWS):
            uris = _uris(store, chunk.slice(start, _ROWS).cast(pa.string()))
            found += uris.to_pylist()
    return found


def _uris(store: Store, paths: pa.Array) -> pa.Array:
    """Return the absolute path or URI of each path of an array of text."""
    encoded = encoded_paths(paths)
    if encoded is None:
        return _below_root(store, paths)
    odd = paths.filter(encoded)
    try:
        found = by_folder(odd, lambda path: uri_of(store, decode_path(path)))
    except LogCorruptError:  # Of a folder; the error is to name the path.
        found = _one_by_one(store, odd)
    if len(odd) == len(paths):
        return found
    plain = paths.filter(pc.invert(encoded))
    return pc.replace_with_mask(
        pc.replace_with_mask(paths, encoded, found),
        pc.invert(encoded),
        _below_root(store, plain),
    )


def _below_root(store: Store, paths: pa.Array) -> pa.Array:
    """Return the URIs of relative paths that decoding does not change."""
    sample = paths[0].as_py()
    whole = store.resolve(sample)
    if not whole.endswith(sample):  # A store with other rules.
        return _one_by_one(store, paths)
    return pc.binary_join_element_wise(whole.removesuffix(sample), paths, "")


def _one_by_one(store: Store, paths: pa.Array) -> pa.Array:
    """Return the URIs of paths that need a closer look."""
    return arrow_array(
        [uri_of(store, decode_path(path)) for path in paths.to_pylist()], pa.string()
    )
