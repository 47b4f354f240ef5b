"""How often rows with weights are in an epoch, as numbers. Pure. Rules: LDR-12, LDR-13."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256

import numpy as np
from numpy.typing import NDArray

from txlog.training.loader.order import Numbers, mixed, permutation

_GOLDEN = 0x9E37_79B9_7F4A_7C15
_MOST_BITS = 40


@dataclass(frozen=True, eq=False)
class Weights:
    """The weights of the rows of all blocks, in units: `2**bits` of them are one row in each epoch.

    Memory holds 8 bytes for each row.

    Parameters
    ----------
    units
        The weight of each row, one block after another.
    seed
        That of the shuffle; None without shuffling.
    ends, sums
        The numbers of rows and of units before each block, and those of all blocks.
    """

    units: Numbers
    ends: Numbers
    sums: Numbers
    bits: int
    seed: int | None

    @property
    def digest(self) -> str:
        """A text that other weights do not have."""
        return sha256(self.units.astype("<i8").tobytes()).hexdigest()[:16]

    def counts(self, epoch: int) -> Numbers:
        """Return the number of rows that an epoch has in each block."""
        counts: Numbers = np.diff((self.sums + self._offset(epoch)) >> self.bits)
        return counts

    def times(self, block: int, epoch: int) -> Numbers:
        """Return how often an epoch has each row of a block."""
        first, stop = self.ends[block : block + 2].tolist()
        count = stop - first
        order = np.arange(count) if self.seed is None else permutation(count, self.seed, block)
        sums = np.cumsum(self.units[first:stop][order])
        before = int(self.sums[block]) + self._offset(epoch)
        times = np.empty(count, np.int64)
        times[order] = np.diff((sums + before) >> self.bits, prepend=before >> self.bits)
        return times

    def _offset(self, epoch: int) -> int:
        """Return a number below `2**bits`; those of adjacent epochs are far from each other."""
        word = mixed(self.seed or 0) + epoch * _GOLDEN & 0xFFFF_FFFF_FFFF_FFFF
        return word >> 64 - self.bits


def weights_of(values: NDArray[np.float64], counts: Numbers, seed: int | None) -> Weights:
    """Return the weights of rows, so that an epoch has as many rows as there are.

    Parameters
    ----------
    values
        Finite numbers from 0, at least one of them above 0.
    counts
        The number of rows in each block.
    """
    rows = len(values)
    bits = min(_MOST_BITS, 62 - rows.bit_length())
    shares = np.rint(values / values.max() * float(1 << bits)).astype(np.int64)
    units = np.rint(shares * (float(rows << bits) / int(shares.sum()))).astype(np.int64)
    ends = np.cumsum([0, *counts], dtype=np.int64)
    sums = np.minimum(np.cumsum(units), rows << bits)
    sums[np.flatnonzero(shares)[-1] :] = rows << bits
    before = np.concatenate([[0], sums])[ends]
    return Weights(np.diff(sums, prepend=0), ends, before, bits, seed)
