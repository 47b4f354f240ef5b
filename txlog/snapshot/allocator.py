"""The memory of the process, told to stay."""

from __future__ import annotations

from functools import cache

import numpy as np

_BYTES = 16 << 20


@cache
def keep_freed_memory() -> None:
    """Have the C library keep what is freed for what is asked for next, in the whole process.

    Columns of millions of files are looked at batch by batch, and each step takes and frees arrays
    of some hundred kilobytes. glibc gives them back to the system and asks for them again, page by
    page, for as long as it saw no larger array freed: by that it tells how much free memory to
    keep. From then on it takes arrays of up to so many bytes from its heap and leaves twice as many
    free at its end; what is free below something that lives on stays too. Nothing is written to
    the array, so no memory becomes real. Elsewhere this has no effect.
    """
    np.empty(_BYTES, np.uint8)
