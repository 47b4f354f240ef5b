"""Changing logs on purpose."""

from __future__ import annotations

import re

_SEAL = re.compile(rb'"txlogCrc32":"[0-9a-f]*",|,"txlogCrc32":"[0-9a-f]*"')


def unsealed(commit: bytes) -> bytes:
    """Return the bytes of a commit without the checksum that txlog put into it.

    A commit that is changed by hand must lose it, or it is refused as damaged.
    """
    return _SEAL.sub(b"", commit, count=1)
