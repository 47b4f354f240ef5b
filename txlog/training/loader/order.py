"""The order of rows in an epoch, as numbers. Pure.

Rules: spec/loader.md. A saved state is only a position in this order, so the order must not change
within a format.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from math import gcd
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from txlog.base.errors import InvalidInputError

FORMAT = 1

Numbers = NDArray[np.int64]
Selected: TypeAlias = slice | NDArray[np.signedinteger[Any]]

_WORD = 0xFFFF_FFFF_FFFF_FFFF
_START = 0x5851_F42D_4C95_7F2D
_GOLDEN = 0x9E37_79B9_7F4A_7C15
# The finaliser of splitmix64: two steps, and a last shift.
_STEPS = (30, 0xBF58_476D_1CE4_E5B9), (27, 0x94D0_49BB_1331_11EB)
_LAST_SHIFT = 31
# The largest default: most writers end a page after this number of rows.
_BLOCK_ROWS = 20_000
_PLAIN_BLOCK_ROWS = 1 << 18  # Without shuffling, when the order does not depend on the block size.
_BLOCK_BYTES = 4 << 20  # The approximate bytes of a block in files.
_PLAIN_BLOCK_BYTES = 32 << 20
_WINDOW_ROWS = 4096


@dataclass(frozen=True, kw_only=True)
class Shuffle:
    """How rows are shuffled: blocks of rows, and rows within the windows of `lanes`.

    Memory holds about `lanes` × `block_rows` rows, divided by the number of ranks.

    Parameters
    ----------
    seed
        A whole number from 0, below 2^64. Each epoch has another order.
    lanes
        The number of places of the table that are read at the same time; the rows of a batch come
        from all of them. If the number of ranks divides it, each row is read once.
    window_rows
        The number of rows of a lane within which rows are shuffled. Default: 4,096, or half of
        `block_rows` if that is less.
    block_rows
        The number of adjacent rows of a file that are read together. Default: 20,000, or less if
        rows are large (LDR-3).
    """

    seed: int = 0
    lanes: int = 64
    window_rows: int | None = None
    block_rows: int | None = None

    def __post_init__(self) -> None:
        limits = {
            "seed": (0, _WORD),
            "lanes": (1, 1 << 20),
            "window_rows": (1, 1 << 31),
            "block_rows": (1, 1 << 31),
        }
        for name, (least, most) in limits.items():
            value = getattr(self, name)
            if value is None and name.endswith("_rows"):
                continue
            if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
                raise InvalidInputError(
                    argument=name,
                    reason=f"a whole number from {least} to {most} was expected, not {value!r}",
                )


def block_rows_for(size: int, rows: int, files: int, *, shuffled: bool) -> int:
    """Return the default of `block_rows` for a number of files, rows and bytes. Rule: LDR-3."""
    block_rows = _BLOCK_ROWS if shuffled else _PLAIN_BLOCK_ROWS
    most = _BLOCK_BYTES if shuffled else _PLAIN_BLOCK_BYTES
    while (
        block_rows > 1
        and rows
        and (block_rows * size > most * rows or block_rows // 2 * files >= rows)
    ):
        block_rows //= 2
    return block_rows


def window_rows_for(block_rows: int) -> int:
    """Return the default of `window_rows`. Rule: LDR-3."""
    return max(1, min(_WINDOW_ROWS, block_rows // 2))


def permutation(count: int, *seeds: int) -> Numbers:
    """Return the numbers below `count` in the order of the seeds. Rule: LDR-2."""
    key = _START
    for seed in seeds:
        key = mixed(key ^ seed)
    words = _words(count, np.array(key, np.uint64))
    # NumPy sorts 16-bit numbers by radix, in a third of the time. Two such sorts order 32 bits,
    # which are almost always enough.
    order = np.argsort((words >> np.uint64(32)).astype(np.uint16), kind="stable")
    order = order[np.argsort((words[order] >> np.uint64(48)).astype(np.uint16), kind="stable")]
    ordered = words[order]
    if (ordered[1:] < ordered[:-1]).any():
        return np.argsort(words)
    return order


def permutations(count: int, seed: int, numbers: range) -> Numbers:
    """Return `permutation(count, seed, number)` for each number, as the rows of an array."""
    start = mixed(_START ^ seed)
    keys = np.array([mixed(start ^ number) for number in numbers], np.uint64)
    return np.argsort(_words(count, keys[:, None]), axis=1)


def _words(count: int, keys: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return the words by which the numbers below `count` are sorted, for each key."""
    words = np.arange(count, dtype=np.uint64) * np.uint64(_GOLDEN) + keys
    for shift, factor in _STEPS:
        words ^= words >> np.uint64(shift)
        words *= np.uint64(factor)
    words ^= words >> np.uint64(_LAST_SHIFT)
    return words


def mixed(word: int) -> int:
    """Return the result of splitmix64's finaliser for a word."""
    for shift, factor in _STEPS:
        word = (word ^ word >> shift) * factor & _WORD
    return word ^ word >> _LAST_SHIFT


@dataclass(frozen=True)
class Piece:
    """Rows of a block: those of the epoch from the offset `first` to `stop` (exclusive)."""

    block: int  # The block's number in the order of the table.
    place: int  # The block's number in the order of the epoch.
    start: int
    stop: int


@dataclass(frozen=True, eq=False)
class Round:
    """A round: a window of rows of each lane, in the order in which the rows are returned.

    Parameters
    ----------
    first
        The position of its first row in the epoch.
    windows
        For each lane, the rows of the stream in its window.
    """

    number: int
    first: int
    windows: tuple[tuple[int, int], ...]

    @property
    def stop(self) -> int:
        """The position after its last row."""
        return self.first + sum(stop - start for start, stop in self.windows)


class Order:
    """The order of one epoch.

    Parameters
    ----------
    block_counts
        The number of rows of the epoch in each block, in the table's order.
    window_rows
        The number of rows of each lane in a round.
    seeds
        The shuffle's seed and the epoch; None without shuffling, which is one lane.
    """

    def __init__(
        self, block_counts: Numbers, *, lanes: int, window_rows: int, seeds: tuple[int, int] | None
    ) -> None:
        self._seeds = seeds
        self._lanes = lanes if seeds is not None else 1
        self._window = window_rows
        count = len(block_counts)
        self._blocks = np.arange(count) if seeds is None else permutation(count, *seeds)
        self._ends = np.cumsum(block_counts[self._blocks], dtype=np.int64)
        self.rows = int(self._ends[-1]) if count else 0
        self._bounds = [lane * self.rows // self._lanes for lane in range(self._lanes + 1)]

    @property
    def is_shuffled(self) -> bool:
        """Whether rows are shuffled."""
        return self._seeds is not None

    def rounds(self, position: int = 0) -> Iterator[Round]:
        """Yield the rounds, beginning with the round of a position."""
        shortest = self.rows // self._lanes
        number = min(position // (self._window * self._lanes), shortest // self._window)
        while (first := self._before(number)) < self.rows:
            yield Round(number, first, self._windows(number))
            number += 1

    def _before(self, number: int) -> int:
        """Return the number of rows in the rounds before a round."""
        rows = number * self._window
        return rows * self._lanes if rows <= self.rows // self._lanes else self.rows

    def _windows(self, number: int) -> tuple[tuple[int, int], ...]:
        skipped = number * self._window
        return tuple(
            (min(start + skipped, stop), min(start + skipped + self._window, stop))
            for start, stop in pairwise(self._bounds)
        )

    def selected(
        self, of: Round, first: int, stop: int, rank: int, ranks: int
    ) -> tuple[list[int], Selected]:
        """Return the lanes of a rank in a round, and the positions of their rows.

        A position between `first` and `stop` (exclusive) is selected if its remainder by `ranks`
        is `rank`. The second value selects these rows, in their order, from the concatenated
        windows of the lanes.
        """
        first, stop = max(first, of.first), min(stop, of.stop)
        first += (rank - first) % ranks
        if self._seeds is None:
            return [0], slice(first - of.first, max(stop, first) - of.first, ranks)
        counts = [end - start for start, end in of.windows]
        lines = min(counts)
        places = range(first - of.first, max(stop, first) - of.first, ranks)
        # In the last round some lanes have one row more: these rows are the last line.
        whole = places[: max(0, -(-(lines * self._lanes - places.start) // ranks))]
        longer = [lane for lane, count in enumerate(counts) if count > lines]
        rest = [
            lines * self._lanes + longer[at - lines * self._lanes] for at in places[len(whole) :]
        ]
        step = gcd(self._lanes, ranks)
        given = whole[: self._lanes // step]  # Later places use the same lanes again.
        lanes = sorted({place % self._lanes for place in (*given, *rest)})
        word = np.int32 if of.stop - of.first < 1 << 31 else np.int64  # More int32 fit a cache.
        table = np.zeros((max(counts), self._lanes), word)
        before = 0
        for lane in lanes:
            seeds = *self._seeds, lane, of.number
            table[: counts[lane], lane] = permutation(counts[lane], *seeds)
            table[: counts[lane], lane] += before
            before += counts[lane]
        flat = table.ravel()
        selected = flat[whole.start : whole.stop : ranks] if whole else flat[:0]
        return lanes, np.concatenate([selected, flat[rest]]) if rest else selected

    def pieces(self, window: tuple[int, int]) -> list[Piece]:
        """Return the rows of the stream in a range as pieces of blocks."""
        start, stop = window
        found = []
        at = int(np.searchsorted(self._ends, start, "right"))
        while start < stop:
            end = int(self._ends[at])
            before = int(self._ends[at - 1]) if at else 0
            last = min(stop, end)
            found.append(Piece(int(self._blocks[at]), at, start - before, last - before))
            start, at = last, at + 1
        return found

    def whole(self, lane: int, part: Piece) -> Piece:
        """Return all rows of a piece's block that belong to a lane."""
        end = int(self._ends[part.place])
        before = int(self._ends[part.place - 1]) if part.place else 0
        start, stop = self._bounds[lane : lane + 2]
        return Piece(part.block, part.place, max(start, before) - before, min(stop, end) - before)

    def pieces_per_round(self, ranks: int) -> int:
        """Return the approximate number of pieces of blocks that a rank begins in a round."""
        rows = self._window * self._lanes // gcd(self._lanes, ranks)
        return max(1, rows * len(self._ends) // max(1, self.rows))
