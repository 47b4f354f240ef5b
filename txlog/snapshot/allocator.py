"""The memory of the process, told to stay."""

from __future__ import annotations

from functools import cache

import numpy as np

_BYTES = 16 << 20


@cache
def keep_freed_memory() -> None:
    """Have the C library keep some freed memory for what is asked for next, up to 32 MB.

    Columns of millions of files are looked at batch by batch, and each step takes and frees arrays
    of some hundred kilobytes. glibc gives those back to the system at once and asks for them again,
    page by page, until an array as large as this one was freed: from that it learns what is usual.
    Nothing is written to the array, so no memory becomes real. Elsewhere this has no effect.
    """
    np.empty(_BYTES, np.uint8)
