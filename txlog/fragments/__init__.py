"""Adds → Lance-style fragments; deletion vectors. Pure."""

from txlog.fragments.deletion_vector import (
    INLINE_LIMIT,
    block_range,
    decode_vector,
    encode_file,
    encode_vector,
    file_name,
    inline_descriptor,
    inline_vector,
    logged_path,
    stored_descriptor,
    vector_in_block,
)
from txlog.fragments.fragment import (
    ID_APP,
    ID_TAG,
    PROVISIONAL,
    DataFile,
    DeletionFile,
    Fragment,
    fragment_ids,
    fragments_of,
    highest_id,
    valid_id,
)
from txlog.fragments.positions import alive_mask, as_bitmap

__all__ = [
    "ID_APP",
    "ID_TAG",
    "INLINE_LIMIT",
    "PROVISIONAL",
    "DataFile",
    "DeletionFile",
    "Fragment",
    "alive_mask",
    "as_bitmap",
    "block_range",
    "decode_vector",
    "encode_file",
    "encode_vector",
    "file_name",
    "fragment_ids",
    "fragments_of",
    "highest_id",
    "inline_descriptor",
    "inline_vector",
    "logged_path",
    "stored_descriptor",
    "valid_id",
    "vector_in_block",
]
