"""The arrays of a segment file. A search reads only the blocks that it needs.

Each block has a checksum. A block is checked before any of its bytes is used. Files are opened for
each read, so nothing is held of a file that is deleted or cut off meanwhile.
"""

from __future__ import annotations

import mmap
import zlib
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from txlog.base.thresholds import Threshold
from txlog.lookup.bits import expanded
from txlog.lookup.keys import Numbers

BLOCK_BYTES: Threshold = 4 << 10
"""The size of a block in new segments.

With 4 KiB, a search of one key among 20,000,000 reads 20 KB, and 105 KB of checksums; one of 1,000
keys reads 11 MB. With 16 KiB these are 64 KB, 64 KB and 32 MB.
"""

_AT_ONCE_BYTES: Threshold = 32 << 20  # The size of the blocks that are read together.

ReadParts = Callable[[Sequence[tuple[int, int]]], Sequence[bytes]]
"""Returns ranges of a file's bytes: each is the first byte and the end (exclusive)."""


class RunError(ValueError):
    """The numbers and arrays do not form a valid run, or are damaged."""


@dataclass(eq=False, slots=True)
class _Held:
    """What is in memory of a file."""

    memory: Any  # Zeros where blocks are missing.
    present: NDArray[np.bool_]  # For each block.
    is_whole: bool
    size: int  # Bytes of the blocks; approximate, because threads may miss each other's changes.


class Blocks:
    """The blocks of a file. Threads may share them.

    Parameters
    ----------
    begin, size
        The position of the first block in the file, and the size of all blocks in bytes.
    block
        The size of each block but the last one.
    checks
        The CRC-32 of each block.
    read
        Reads parts of the file.
    data
        The bytes of all blocks, if they were read. They are checked here.

    Raises
    ------
    RunError
        The blocks in `data` are damaged. All methods raise it for the blocks that they read.
    """

    def __init__(
        self,
        begin: int,
        size: int,
        block: int,
        checks: NDArray[np.uint32],
        read: ReadParts,
        data: Any = None,
    ) -> None:
        self._begin, self.size, self._block = begin, size, block
        self._checks, self._read = checks, read
        if data is None:
            self._held = self._nothing()
        else:
            self._check(0, data)
            self._held = _Held(data, np.ones(len(checks), bool), True, size)

    def _nothing(self) -> _Held:
        return _Held(_memory(self.size), np.zeros(len(self._checks), bool), not self.size, 0)

    @property
    def held_bytes(self) -> int:
        """The approximate size of the blocks in memory."""
        return self._held.size

    def release(self) -> None:
        """Forget all blocks; arrays that a search uses stay as long as it needs them."""
        self._held = self._nothing()

    def verify(self) -> None:
        """Read and check all blocks of the file, and do not keep them."""
        for _ in self._checked(np.arange(len(self._checks))):
            pass

    def between(self, begin: int, end: int) -> Any:
        """Return memory in which the bytes from `begin` to `end` are valid."""
        held = self._held
        if begin < end and not self._has(held, begin, end):
            first, stop = begin // self._block, -(-end // self._block)
            self._fill(held, np.flatnonzero(~held.present[first:stop]) + first)
        return held.memory

    def is_here(self, begin: int, end: int) -> bool:
        """Return whether the bytes from `begin` to `end` are in memory."""
        return self._has(self._held, begin, end)

    def _has(self, held: _Held, begin: int, end: int) -> bool:
        stop = -(-end // self._block)
        return held.is_whole or bool(held.present[begin // self._block : stop].all())

    def at(self, begins: Numbers, size: int, within: tuple[int, int]) -> Any:
        """Return memory in which `size` bytes from each of some positions on are valid.

        Parameters
        ----------
        within
            The first byte and the end of all that the positions may be.
        """
        held = self._held
        if not self._has(held, *within):
            first, last = begins // self._block, (begins + (size - 1)) // self._block
            if not (held.present[first].all() and held.present[last].all()) or self._block < size:
                touched = np.zeros(len(held.present), bool)
                touched[expanded(first, last - first + 1)] = True
                self._fill(held, np.flatnonzero(touched & ~held.present))
        return held.memory

    def _fill(self, held: _Held, missing: Numbers) -> None:
        for first, data in self._checked(missing):
            start = first * self._block
            held.memory[start : start + len(data)] = data
            stop = first + -(-len(data) // self._block)
            held.present[first:stop] = True  # Only now: a thread may look at any time.
            held.size += len(data)
        held.is_whole = bool(held.present.all())

    def _checked(self, missing: Numbers) -> Any:
        """Yield the first block of adjacent ones, and their bytes."""
        most = max(_AT_ONCE_BYTES // self._block, 1)
        for at in range(0, len(missing), most):
            some = missing[at : at + most]
            borders = np.flatnonzero(np.diff(some) > 1)
            firsts = some[np.append(0, borders + 1)].tolist()
            lasts = some[np.append(borders, len(some) - 1)].tolist()
            ranges = [
                (first * self._block, min((last + 1) * self._block, self.size))
                for first, last in zip(firsts, lasts, strict=True)
            ]
            places = [(self._begin + start, self._begin + stop) for start, stop in ranges]
            for first, (start, stop), data in zip(firsts, ranges, self._read(places), strict=True):
                if len(data) != stop - start:
                    raise RunError(f"the file ends before byte {self._begin + stop}")
                self._check(first, data)
                yield first, data

    def _check(self, first: int, data: Any) -> None:
        view = memoryview(data)
        wanted = self._checks[first : first + -(-len(view) // self._block)].tolist()
        for number, check in enumerate(wanted):
            start = number * self._block
            if zlib.crc32(view[start : start + self._block]) != check:
                at = self._begin + first * self._block + start
                raise RunError(f"the checksum of the block at byte {at} does not match")


def checks_of(data: Any, block: int) -> NDArray[np.uint32]:
    """Return the CRC-32 of each block of `data`."""
    view = memoryview(data)
    found = [zlib.crc32(view[start : start + block]) for start in range(0, len(view), block)]
    return np.array(found, "<u4")


def _memory(size: int) -> mmap.mmap:
    """Return zeros of which only the parts that are written take memory."""
    private = getattr(mmap, "MAP_PRIVATE", 0) | getattr(mmap, "MAP_ANONYMOUS", 0)
    found = mmap.mmap(-1, max(size, 1), **({"flags": private} if private else {}))
    if hasattr(mmap, "MADV_NOHUGEPAGE"):
        with suppress(OSError):  # A system may have no huge pages.
            found.madvise(mmap.MADV_NOHUGEPAGE)
    return found


@dataclass(frozen=True, eq=False, slots=True)
class BlockArray:
    """Numbers in blocks of a file.

    Parameters
    ----------
    begin
        The first byte in the blocks.
    """

    blocks: Blocks
    begin: int
    count: int
    kind: np.dtype[Any]

    def __len__(self) -> int:
        return self.count

    @property
    def nbytes(self) -> int:
        """The size in bytes."""
        return self.count * self.kind.itemsize

    def _of(self, memory: Any) -> NDArray[Any]:
        if not self.count:
            return np.empty(0, self.kind)
        return np.frombuffer(memory, self.kind, self.count, self.begin)

    def between(self, begin: int, end: int) -> NDArray[Any]:
        """Return the array. Its values from `begin` to `end` are valid, others may be zeros."""
        size = self.kind.itemsize
        return self._of(self.blocks.between(self.begin + size * begin, self.begin + size * end))

    def at(self, places: Numbers, count: int) -> NDArray[Any]:
        """Return the array. `count` values from each of some places on are valid."""
        size = self.kind.itemsize
        within = self.begin, self.begin + self.nbytes
        return self._of(self.blocks.at(self.begin + size * places, size * count, within))


Array = NDArray[Any] | BlockArray
"""Numbers in memory, or in a file."""


def whole(array: Array) -> NDArray[Any]:
    """Return all numbers of an array."""
    return array if isinstance(array, np.ndarray) else array.between(0, len(array))


def between(array: Array, begin: int, end: int) -> NDArray[Any]:
    """Return an array whose numbers from `begin` to `end` are valid."""
    return array if isinstance(array, np.ndarray) else array.between(begin, end)


def at(array: Array, places: Numbers, count: int = 1) -> NDArray[Any]:
    """Return an array in which `count` numbers from each of some places on are valid."""
    return array if isinstance(array, np.ndarray) else array.at(places, count)


def is_here(array: Array) -> bool:
    """Return whether all numbers of an array are in memory."""
    if isinstance(array, np.ndarray):
        return True
    return array.blocks.is_here(array.begin, array.begin + array.nbytes)
