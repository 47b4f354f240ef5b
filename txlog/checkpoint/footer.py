"""Footers of checkpoints, read once, and held against their seal."""

from __future__ import annotations

import struct
from typing import Any

import pyarrow as pa

from txlog.arrow import pq
from txlog.log.seal import FOOTER_MARK, is_broken
from txlog.store.ranged import TAIL_BYTES

FOOTER_END = 8  # The footer's length, and the magic.
_MAGIC = b"PAR1"
_GUESS = TAIL_BYTES  # Most footers are shorter, so that one read is enough.


class Footers(dict[str, "pq.FileMetaData"]):
    """Footers of a checkpoint's files that were read from far away, by path.

    They are kept with what was read by them; pickled, they are left behind.
    """

    def __reduce__(self) -> tuple[type[Footers], tuple[()]]:
        return Footers, ()


def footer_start(tail: bytes, size: int) -> int:
    """Return where in a Parquet file of `size` bytes the footer begins, from the file's end.

    Raises
    ------
    ValueError
        These are not the last bytes of a Parquet file.
    """
    if len(tail) < FOOTER_END or tail[-4:] != _MAGIC:
        raise ValueError("it does not end as Parquet does, so it was torn")
    start = size - FOOTER_END - int(struct.unpack("<I", tail[-FOOTER_END:-4])[0])
    if start < len(_MAGIC):
        raise ValueError("the footer is longer than the file")
    return start


def read_footer(source: Any) -> pq.FileMetaData:
    """Return the footer of an open Parquet file.

    Raises
    ------
    ValueError, pyarrow.ArrowException
        It is no footer, or it is not as it was written.
    """
    size = source.seek(0, 2)
    source.seek(max(0, size - _GUESS))
    tail = source.read()
    start = footer_start(tail, size)
    if size - start > len(tail):
        source.seek(start)
        tail = source.read()
    footer = tail[len(tail) - (size - start) :]
    if is_broken(footer, FOOTER_MARK):
        raise ValueError("its footer does not fit the checksum in it")
    return pq.read_metadata(pa.BufferReader(_MAGIC + footer))
