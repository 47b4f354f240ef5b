"""Load the deleted row positions of fragments."""

from __future__ import annotations

from contextlib import ExitStack

import numpy as np
from numpy.typing import NDArray
from pyroaring import BitMap64

from txlog.actions.file import DeletionVectorDescriptor
from txlog.base.arrow import arrow_array
from txlog.base.errors import BadDeletionVectorError, NotFoundError, reason_of
from txlog.base.thresholds import Threshold
from txlog.fragments.deletion_file import DELETIONS_FOLDER, checksum_of, decode_deletions
from txlog.fragments.deletion_vector import (
    as_bitmap,
    block_range,
    decode_vector,
    inline_vector,
    logged_path,
    vector_in_block,
)
from txlog.fragments.fragment import Fragment
from txlog.log.paths import decode_path, require_inside
from txlog.parquet.file_footer import TAIL_BYTES
from txlog.store.base import Store, is_far
from txlog.store.open import locate

Numbers = NDArray[np.int64]

_FEW: Threshold = 1 << 20  # This number of deleted rows takes 4 MB at most.
_FEW_POSITIONS: Threshold = 64  # Up to this number they are looked up in a bitmap one by one.


def load_deletions(store: Store, fragment: Fragment) -> BitMap64 | None:
    """Return the positions of a fragment's deleted rows, or None if none are deleted.

    Raises
    ------
    BadDeletionVectorError
        The vector is missing or damaged, or it has positions beyond the fragment.
    """
    if fragment.deletion is None:
        return None
    descriptor = fragment.deletion.descriptor
    path = fragment.path
    if not descriptor.cardinality and not descriptor.size_in_bytes:
        return None  # There is nothing to read, in any spelling.
    if descriptor.storage_type == "lance":
        return _lance(store, fragment) or None
    if descriptor.storage_type == "i":
        data = inline_vector(descriptor, path=path)
    else:
        path = logged_path(descriptor, path=path)
        data = _stored(store, fragment, path)
    positions = decode_vector(data, cardinality=descriptor.cardinality, path=path)
    rows = fragment.physical_rows
    if rows is not None and positions and positions.max() >= rows:
        raise BadDeletionVectorError(
            path=path,
            reason=f"it deletes row {positions.max()} of a file that has {rows} rows",
            remedy="Restore the file from a copy, or time travel to a version before the delete",
        )
    return positions or None


def deletion_place(
    store: Store, descriptor: DeletionVectorDescriptor, *, path: str
) -> tuple[Store, str] | None:
    """Return the store and the name of a vector's file; None if no file is needed.

    `path` names the data file in errors, which are those of `load_deletions`.
    """
    if not descriptor.cardinality and not descriptor.size_in_bytes:
        return None
    found = vector_path(descriptor, path=path)
    if found is None:
        return None
    return (store, found) if descriptor.storage_type == "u" else locate(store, found)


def vector_path(descriptor: DeletionVectorDescriptor, *, path: str = "") -> str | None:
    """Return the path of a vector's file, decoded; None if it is in the log itself.

    It is relative to the table, or absolute. `path` names the data file in errors.
    """
    if descriptor.storage_type == "i":
        return None
    if descriptor.storage_type == "lance":
        return decode_path(_lance_path(descriptor))
    found = logged_path(descriptor, path=path)
    # A prefix of random characters is part of the text and not percent-encoded; a `p` path is a
    # URI.
    if descriptor.storage_type == "u":
        return require_inside(found.lstrip("/"))
    return decode_path(found)


def _lance_path(descriptor: DeletionVectorDescriptor) -> str:
    text = descriptor.path_or_inline_dv
    return text if "/" in text else f"{DELETIONS_FOLDER}/{text}"


def _lance(store: Store, fragment: Fragment) -> BitMap64:
    assert fragment.deletion is not None
    descriptor = fragment.deletion.descriptor
    text = descriptor.path_or_inline_dv
    path = _lance_path(descriptor)
    kind = text.rpartition(".")[2]
    if kind not in ("arrow", "bin"):
        raise BadDeletionVectorError(
            path=path, reason=f"a deletion file ends in .arrow or .bin, not in .{kind}"
        )
    home, name = locate(store, decode_path(path))
    try:
        data = home.read(name)
    except (NotFoundError, OSError) as error:
        raise _unreadable(path, error) from error
    if descriptor.offset is not None and descriptor.offset != checksum_of(data):
        raise BadDeletionVectorError(
            path=path,
            reason="the file was changed after it was written: its bytes do not match the "
            "checksum in the log",
            remedy="Restore the file from a copy, or time travel to a version before the delete",
        )
    return decode_deletions(
        data,
        kind="arrow" if kind == "arrow" else "bin",
        cardinality=descriptor.cardinality,
        rows=_known_rows(store, fragment),
        path=path,
    )


def _known_rows(store: Store, fragment: Fragment) -> int | None:
    """Return a fragment's row count from the log, or from its footer if the file is large."""
    assert fragment.deletion is not None
    if fragment.physical_rows is not None:
        return fragment.physical_rows
    if fragment.deletion.descriptor.cardinality <= _FEW:
        return None
    from txlog.scan.data_file import open_parquet

    with ExitStack() as stack:
        return int(open_parquet(stack, store, fragment.files[0], None).metadata.num_rows)


def _unreadable(path: str, error: Exception) -> BadDeletionVectorError:
    return BadDeletionVectorError(
        path=path,
        reason=f"the file cannot be read: {reason_of(error)}",
        remedy="Restore the file from a copy, or time travel to a version before the delete",
    )


def _stored(store: Store, fragment: Fragment, path: str) -> bytes:
    assert fragment.deletion is not None
    descriptor = fragment.deletion.descriptor
    offset, length = block_range(descriptor)
    if offset < 0 or length < 0:
        raise BadDeletionVectorError(
            path=path, reason=f"the offset {offset} or the size {length - 8} is negative"
        )
    found = deletion_place(store, descriptor, path=fragment.files[0].path)
    assert found is not None
    home, name = found
    try:
        # Vectors that were written together are in one file; most such files are short.
        size = offset + length
        with home.open_input(name, size=size) as source:
            if is_far(home) and size <= TAIL_BYTES:
                data = source.read(size)
                version, block = data[:1], data[offset:size]
            else:
                version = source.read(1)
                source.seek(offset)
                block = source.read(length)
    except (NotFoundError, OSError) as error:
        raise _unreadable(path, error) from error
    return vector_in_block(version, block, descriptor, path=path)


def less(positions: Numbers, gone: BitMap64 | None) -> Numbers:
    """Return ascending positions without those of deleted rows."""
    if gone is None:
        return positions
    if len(positions) <= _FEW_POSITIONS:
        return positions[[at not in gone for at in positions.tolist()]]
    left = as_bitmap(arrow_array(positions.astype(np.uint64))) - gone
    return np.array(left.to_array(), np.int64)
