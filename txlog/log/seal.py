"""Seals: a checksum of a file inside the file, which shows whether the file is damaged.

Rules: spec/reconcile.md, REC-9. Pure.
"""

from __future__ import annotations

import zlib

BLANK = "00000000"  # What a file must hold behind its mark where the seal is to be.

COMMIT_MARK = b'"txlogCrc32":"'  # In the `commitInfo` of a commit, which is its first line.
FOOTER_MARK = b"txlog.crc32="  # In the footer of a checkpoint.

_BLANK = BLANK.encode()


def sealed(data: bytes, mark: bytes) -> bytes:
    """Return bytes with the blank behind a mark filled in: the CRC-32 of all, the blank included.

    Bytes that do not have the blank are returned as they are.
    """
    at = data.find(mark + _BLANK)
    if at < 0:
        return data
    at += len(mark)
    return data[:at] + b"%08x" % zlib.crc32(data) + data[at + len(_BLANK) :]


def seal_of(data: bytes, mark: bytes) -> str:
    """Return the seal behind a mark that bytes certainly have."""
    start = data.index(mark) + len(mark)
    return data[start : start + len(_BLANK)].decode()


def is_broken(data: bytes, mark: bytes, *, within: int | None = None) -> bool:
    """Return whether bytes have a seal that does not fit them. False without a seal.

    `within` is how far from the start to look for it, in bytes.
    """
    end = len(data) if within is None else within
    at = data.find(mark, 0, end)
    start = at + len(mark)
    if at < 0 or start + len(_BLANK) > end:
        return False
    seal = data[start : start + len(_BLANK)]
    rest = zlib.crc32(_BLANK, zlib.crc32(data[:start]))
    return seal != b"%08x" % zlib.crc32(data[start + len(_BLANK) :], rest)
