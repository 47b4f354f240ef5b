"""Runs: the keys of data files as truncated Elias-Fano sequences. Pure. Rules: spec/lookup.md."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from txlog.base.arrow import numpy_array, pc
from txlog.base.thresholds import Threshold
from txlog.lookup import blocks
from txlog.lookup.bits import (
    BIT_PLACES,
    BLOCK_WORDS,
    expanded,
    holding,
    low_mask,
    ones,
    pack,
    packed_at,
    packed_words,
    unpack,
    zeros_before,
)
from txlog.lookup.blocks import Array, RunError, whole
from txlog.lookup.composite import Window, combined, windows_of
from txlog.lookup.keys import (
    Encodings,
    Numbers,
    hashed,
    hashed_numbers,
    is_number,
    ordered,
    orders,
)
from txlog.schema.types import StructField

Form = Literal["ordered", "composite", "hashed"]
"""The encoding of the keys in a run."""

FILE_BITS, MERGED_BITS = 16, 8
"""The probability that a run finds a key that it does not have is 2 to the power of -bits."""

_LEAST_HASH_BITS = 40  # Bits that the hashed run of a file keeps, so that merged runs have enough.
_FEW_PLACES: Threshold = 32
_CHECKED_ROWS: Threshold = 1 << 18  # Row numbers that are looked at together, to check them.
MOST_KEYS = (
    1 << 30
)  # Of a merged run: it has at most three bits a key, and numbers of bits have 32.
MARKED = 1_024  # Of so many numbers in `zeros`, `marks` has the first one.


@dataclass(frozen=True, slots=True)
class Run:
    """The keys of one or more files, ascending by their encodings, and the row of each.

    Parameters
    ----------
    first, last
        The smallest and the largest encoding.
    shift, base
        `base + y` is the number in the upper `64 - shift` bits of the encoding of the i-th key.
    low
        The number of the lowest bits of each y that are packed in `lower`.
    upper
        The bit `(y >> low) + i` is set for the i-th y; ones fill up the last eight words.
    zeros
        The number of zeros in `upper` before each eight words, and the total number; uint32.
    marks
        Each 1,024th number of `zeros`, from the first one on.
    rows
        The row of each key, packed with `row_bits` each; None: the i-th key is that of row
        `start + i`.
    windows
        Of a composite run: which bits of each column's encoding the keys have.
    """

    form: Form
    keys: int
    first: int
    last: int
    shift: int
    base: int
    low: int
    row_bits: int
    upper: Array
    zeros: Array
    marks: Array
    lower: Array
    rows: Array | None
    start: int = 0
    windows: tuple[Window, ...] = ()

    @property
    def is_in_order(self) -> bool:
        """Whether the order of the encodings is that of the keys, so that it finds ranges."""
        return self.form != "hashed"

    @property
    def nbytes(self) -> int:
        """The number of bytes of the arrays."""
        arrays = (self.upper, self.zeros, self.marks, self.lower, self.rows)
        return sum(array.nbytes for array in arrays if array is not None)

    def find(self, wanted: Encodings) -> Numbers:
        """Return the rows that may have one of some encodings of the run's form.

        Parameters
        ----------
        wanted
            Ascending, without duplicates.

        Raises
        ------
        RunError
            The arrays are damaged. An array in a file also raises the errors of reading it.
        """
        nothing = np.empty(0, np.int64)
        begin = int(np.searchsorted(wanted, np.uint64(self.first), "left"))
        end = int(np.searchsorted(wanted, np.uint64(self.last), "right"))
        if begin >= end or not self.keys:
            return nothing
        if end - begin == 1:
            return self._rows(self._places_of((int(wanted[begin]) >> self.shift) - self.base))
        numbers = (wanted[begin:end] >> np.uint64(self.shift)) - np.uint64(self.base)
        if len(numbers) > 1:
            distinct = np.ones(len(numbers), bool)
            np.not_equal(numbers[1:], numbers[:-1], out=distinct[1:])
            numbers = numbers[distinct]
        starts, stops = self._ends_of(numbers)
        counts = np.maximum(stops - starts, 0)
        if int(counts.sum()) > self.keys:
            raise RunError("keys have more places than there are")
        return self._rows(expanded(starts, counts))

    def within(self, least: int, most: int) -> Numbers:
        """Return the rows that may have an encoding of the run's form between two, both included.

        Their order is that of the encodings. Errors are those of `find`.
        """
        least, most = max(least, self.first), min(most, self.last)
        if least > most or not self.keys:
            return np.empty(0, np.int64)
        numbers = np.array([least >> self.shift, most >> self.shift], np.uint64)
        starts, stops = self._ends_of(numbers - np.uint64(self.base))
        return self._rows(np.arange(starts[0], stops[1]))

    def _ends_of(self, numbers: Encodings) -> tuple[Numbers, Numbers]:
        """Return for each y the first place with it or a larger one, and that behind its last."""
        heads = (numbers >> np.uint64(self.low)).astype(np.int64)
        both = self._zeros_at(np.concatenate([np.maximum(heads - 1, 0), heads]))
        starts = np.where(heads > 0, both[: len(heads)] + 1 - heads, 0)
        stops = np.minimum(both[len(heads) :] - heads, self.keys)
        if min(starts.min(), stops.min()) < 0 or starts.max() > self.keys:
            raise RunError("the zeros of upper do not match")
        if self.low:
            lows = numbers & low_mask(self.low)
            starts = self._bound(starts, stops, lows, right=False)
            stops = self._bound(starts, stops, lows, right=True)
        return starts, stops

    def _rows(self, places: Numbers) -> Numbers:
        if self.rows is None or not len(places):
            return places + self.start if self.start else places
        return _packed_at(self.rows, self.row_bits, places).astype(np.int64)

    def require_rows(self, rows: int) -> None:
        """Raise `RunError` if a key has a row behind the first `rows` ones; all keys are looked at.

        `check` has shown that the numbers fit otherwise.
        """
        for start in range(0, self.keys if self.rows is not None else 0, _CHECKED_ROWS):
            places = np.arange(start, min(start + _CHECKED_ROWS, self.keys))
            if self._rows(places).max() >= rows:
                raise RunError("a run names a row behind the end of its files")

    def _places_of(self, number: int) -> Numbers:
        """Return the places of one y with Python numbers: for a few, faster than arrays."""
        head = number >> self.low
        start = self._zero_at(head - 1) + 1 - head if head else 0
        stop = min(self._zero_at(head) - head, self.keys)
        if start < 0:
            raise RunError("the zeros of upper do not match")
        if self.low and stop - start > _FEW_PLACES:
            lows = np.array([number], np.uint64) & low_mask(self.low)
            ends = np.array([stop])
            begins = self._bound(np.array([start]), ends, lows, right=False)
            return expanded(begins, self._bound(begins, ends, lows, right=True) - begins)
        if self.low and start < stop:
            low, mask = number & (1 << self.low) - 1, (1 << self.low) - 1
            first = start * self.low >> 6
            last = (stop * self.low >> 6) + 1
            words = blocks.between(self.lower, first, last + 1)[first : last + 1]
            bits = int.from_bytes(words.tobytes(), "little")
            bits >>= start * self.low - 64 * first
            found = [
                place
                for place in range(start, stop)
                if bits >> (place - start) * self.low & mask == low
            ]
            return np.array(found, np.int64)
        return np.arange(start, stop)

    def _zero_at(self, number: int) -> int:
        """Return the position in `upper` of the zero with a given number."""
        block, left = self._block_with(number)
        bit, first = 64 * BLOCK_WORDS * block, BLOCK_WORDS * block
        words = blocks.between(self.upper, first, first + BLOCK_WORDS)
        for word in words[first : first + BLOCK_WORDS].tolist():
            zeros = 64 - word.bit_count()
            if left < zeros:
                word ^= (1 << 64) - 1
                for _ in range(left):
                    word &= word - 1
                return bit + int(word & -word).bit_length() - 1
            left -= zeros
            bit += 64
        raise RunError("the zeros of upper do not match")

    def _block_with(self, number: int) -> tuple[int, int]:
        """Return which eight words have a zero, and how many zeros are before it in them."""
        group = int(whole(self.marks).searchsorted(np.uint32(number), "right")) - 1
        first, stop = MARKED * group, min(MARKED * (group + 1) + 1, len(self.zeros))
        if group < 0:
            raise RunError("the zeros of upper do not match")
        zeros = blocks.between(self.zeros, first, stop)[first:stop]
        place = int(zeros.searchsorted(np.uint32(number), "right")) - 1
        if not 0 <= place < len(zeros) - 1:
            raise RunError("the zeros of upper do not match")
        return first + place, number - int(zeros[place])

    def _blocks_with(self, numbers: Numbers) -> tuple[Numbers, Numbers]:
        """Return for many zeros what `_block_with` returns."""
        wanted, last = numbers.astype(np.uint32), len(self.zeros) - 1
        # Of many zeros, most of the numbers are needed.
        if len(numbers) < len(self.marks) and not blocks.is_here(self.zeros):
            groups = np.searchsorted(whole(self.marks), wanted, "right") - 1
            if groups.min() < 0:
                raise RunError("the zeros of upper do not match")
            ends = np.minimum(MARKED * (groups + 1), last + 1)
            found = _first_false(
                lambda at, of: blocks.at(self.zeros, at)[at] <= wanted[of], MARKED * groups, ends
            )
        else:
            found = np.searchsorted(whole(self.zeros), wanted, "right")
        found -= 1
        if found.min() < 0 or found.max() >= last:
            raise RunError("the zeros of upper do not match")
        return found, numbers - blocks.at(self.zeros, found)[found]

    def _zeros_at(self, numbers: Numbers) -> Numbers:
        """Return the positions in `upper` of the zeros with given numbers, counted from 0."""
        places, left = self._blocks_with(numbers)
        every = np.arange(len(numbers))
        upper = blocks.at(self.upper, BLOCK_WORDS * places, BLOCK_WORDS)
        words = ~upper.reshape(-1, BLOCK_WORDS)[places]
        word, left = holding(ones(words), left, every)
        octets = words[every, word].astype("<u8").view(np.uint8).reshape(-1, 8)
        octet, left = holding(ones(octets), left, every)
        bit = BIT_PLACES[octets[every, octet], np.clip(left, 0, 7)].astype(np.int64)
        return places * (64 * BLOCK_WORDS) + word * 64 + octet * 8 + bit

    def _bound(self, starts: Numbers, stops: Numbers, lows: Encodings, *, right: bool) -> Numbers:
        """Return the first place in each range with lower bits not below (right: above)."""

        def is_below(places: Numbers, of: Numbers) -> NDArray[np.bool_]:
            values = _packed_at(self.lower, self.low, places)
            found: NDArray[np.bool_] = values <= lows[of] if right else values < lows[of]
            return found

        return _first_false(is_below, starts, stops)

    def decoded(self) -> tuple[Encodings, Numbers]:
        """Return the encodings, without the bits that were cut off, and their rows.

        Errors are those of `find`.
        """
        if not self.keys:
            return np.empty(0, np.uint64), np.empty(0, np.int64)
        upper, zeros = whole(self.upper), whole(self.zeros)
        buckets = ((self.last >> self.shift) - self.base >> self.low) + 1
        if (zeros_before(upper) != zeros).any() or zeros[-1] != buckets:
            raise RunError("the zeros of upper do not match")
        bits = np.unpackbits(upper.view(np.uint8), bitorder="little")
        ones = np.flatnonzero(bits)[: self.keys]
        heads = (ones - np.arange(self.keys)).astype(np.uint64)
        numbers = heads << np.uint64(self.low) | unpack(whole(self.lower), self.low, self.keys)
        encodings = (numbers + np.uint64(self.base)) << np.uint64(self.shift)
        if self.rows is None:
            return encodings, np.arange(self.start, self.start + self.keys)
        return encodings, unpack(whole(self.rows), self.row_bits, self.keys).astype(np.int64)

    def check(self, rows: int) -> None:
        """Raise `RunError` unless the numbers and the lengths of the arrays fit `rows` rows.

        It does not look into the arrays. `find` raises the error if they do not fit, too, and never
        returns rows outside of the bits of a row number.
        """
        if self.rows is None and not self.is_in_order and self.keys != rows:
            raise RunError(f"a hashed run of {self.keys} keys of {rows} rows has no row numbers")
        if self.rows is not None and self.start:
            raise RunError("its keys have row numbers and a first row")
        if self.rows is None and self.start + self.keys > rows:
            raise RunError(f"{self.keys} keys from row {self.start} are those of {rows} rows")
        if self.keys < 0 or self.keys > rows or rows >= 1 << 40:
            raise RunError(f"{self.keys} keys of {rows} rows")
        if not self.keys:
            return
        if not 0 <= self.first <= self.last < 1 << 64 or not 0 <= self.shift < 64:
            raise RunError("first, last or shift is out of bounds")
        if self.base != self.first >> self.shift or not 0 <= self.low < 64:
            raise RunError("base or low is out of bounds")
        buckets = ((self.last >> self.shift) - self.base >> self.low) + 1
        words = BLOCK_WORDS * -(-(self.keys + buckets) // (64 * BLOCK_WORDS))
        if words >= 1 << 26:  # Numbers of bits have 32 bits.
            raise RunError(f"upper has {words} words")
        if len(self.upper) != words or len(self.zeros) != words // BLOCK_WORDS + 1:
            raise RunError(f"upper has {len(self.upper)} words, {words} were expected")
        if len(self.marks) != -(-len(self.zeros) // MARKED):
            raise RunError(f"marks has {len(self.marks)} numbers")
        if len(self.lower) != packed_words(self.keys, self.low):
            raise RunError(f"lower has {len(self.lower)} words")
        if self.rows is None:
            return
        if self.row_bits != (rows - 1).bit_length() or len(self.rows) != packed_words(
            self.keys, self.row_bits
        ):
            raise RunError(f"rows has {len(self.rows)} words of {self.row_bits} bits")


def _packed_at(words: Array, bits: int, places: Numbers) -> Encodings:
    """Return the packed values at the given places."""
    if not bits:
        return np.zeros(len(places), np.uint64)
    return packed_at(blocks.at(words, places * bits >> 6, 2), bits, places)


def _first_false(
    is_true: Callable[[Numbers, Numbers], NDArray[np.bool_]], starts: Numbers, stops: Numbers
) -> Numbers:
    """Return the first number in each range for which a condition is false; else its end.

    The condition gets numbers, and the place of the range of each. It is true for the numbers
    before the one that is returned.
    """
    starts, stops = starts.copy(), stops.copy()
    active = np.flatnonzero(starts < stops)
    while len(active):
        middle = (starts[active] + stops[active]) >> 1
        true = is_true(middle, active)
        starts[active[true]] = middle[true] + 1
        stops[active[~true]] = middle[~true]
        active = active[starts[active] < stops[active]]
    return starts


_EMPTY = Run(
    "hashed", 0, 0, 0, 0, 0, 0, 0,
    np.empty(0, np.uint64), np.zeros(1, np.uint32), np.zeros(1, np.uint32), np.zeros(1, np.uint64),
    None,
)  # fmt: skip


def build_run(
    form: Form,
    encodings: Encodings,
    rows: Numbers | None,
    num_rows: int,
    *,
    bits: int,
    shift: int = 0,
    start: int = 0,
    windows: tuple[Window, ...] = (),
) -> Run:
    """Return the run of ascending encodings.

    Parameters
    ----------
    rows, start
        The row of each; None: its place behind the row `start`.
    num_rows
        The number of rows; some may have no key.
    bits, shift
        Bits of each encoding are cut off, at least `shift`, so that `bits` remain in addition to
        the number that could distinguish the keys.
    """
    count = len(encodings)
    if not count:
        return _EMPTY if not num_rows else _with_rows(_EMPTY, num_rows)
    first, last = int(encodings[0]), int(encodings[-1])
    shift = _shift(first, last, count, bits, shift)
    numbers = encodings >> np.uint64(shift)
    numbers -= np.uint64(first >> shift)
    largest = int(numbers[-1])
    low = max(((largest + 1) // count).bit_length() - 1, 0)
    heads = (numbers >> np.uint64(low)).view(np.int64)
    heads += np.arange(count)
    size = -(-(count + (largest >> low) + 1) // (64 * BLOCK_WORDS)) * 64 * BLOCK_WORDS
    ones = np.zeros(size, np.uint8)
    ones[heads] = 1
    ones[count + (largest >> low) + 1 :] = 1
    upper = np.packbits(ones, bitorder="little").view("<u8").astype(np.uint64)
    row_bits = 0 if rows is None else (num_rows - 1).bit_length()
    zeros = zeros_before(upper)
    return Run(
        form, count, first, last, shift, first >> shift, low, row_bits,
        upper, zeros, zeros[::MARKED],
        pack(np.bitwise_and(numbers, low_mask(low), out=numbers), low),
        None if rows is None else pack(rows.astype(np.int64, copy=False).view(np.uint64), row_bits),
        start, windows,
    )  # fmt: skip


def _shift(first: int, last: int, count: int, bits: int, least: int) -> int:
    return max(least, ((last - first) // count).bit_length() - 1 - bits, 0)


def _in_order(
    encodings: Encodings,
    rows: Numbers,
    num_rows: int,
    *,
    bits: int,
    shift: int = 0,
    in_parts: bool = False,
) -> tuple[Encodings, Numbers]:
    """Return encodings in ascending order and their rows; equal encodings are ordered by row.

    Bits that `build_run` cuts off may be lost, except in the first and the last encoding. Sorting
    numbers that contain their row is much faster than computing a permutation.

    Parameters
    ----------
    num_rows, bits, shift
        As in `build_run`.
    in_parts
        Whether long parts of them are sorted already.
    """
    if not len(encodings) or bool((encodings[1:] >= encodings[:-1]).all()):
        return encodings, rows
    first, last = encodings.min(), encodings.max()
    width = np.uint64((num_rows - 1).bit_length())
    if _shift(int(first), int(last), len(encodings), bits, shift) < width:
        order = np.lexsort((rows, encodings))
        return encodings[order], rows[order]
    both = encodings >> width
    both <<= width
    both |= rows.astype(np.int64, copy=False).view(np.uint64)
    if not in_parts:
        # First by their upper bits, which most numbers pass: then few are left.
        both = both[np.argsort((both >> np.uint64(48)).astype(np.uint16), kind="stable")]
    both.sort(kind="stable")  # Fast if parts are sorted already.
    rows = (both & low_mask(int(width))).view(np.int64)
    both >>= width
    both <<= width
    both[0], both[-1] = first, last
    return both, rows


def _with_rows(run: Run, num_rows: int) -> Run:
    """Return a run without keys for files that have rows."""
    bits = (num_rows - 1).bit_length()
    return replace(run, row_bits=bits, rows=np.zeros(1, np.uint64))


def _crowd(values: Encodings) -> float:
    """Return the sum over all values of their numbers of equal neighbours, itself included."""
    ends = np.flatnonzero(np.append(values[1:] != values[:-1], True)) if len(values) else [-1]
    counts = np.diff(ends, prepend=-1).astype(np.float64)
    return float((counts * counts).sum())


class RunBuilder:
    """Builds the run of a file from its rows, batch by batch."""

    def __init__(self, columns: Sequence[StructField]) -> None:
        self._columns = tuple(columns)
        self._is_number = len(columns) == 1 and is_number(columns[0])
        self._is_sorted = all(map(orders, columns))
        self._last: list[int] = []  # The encodings of the last key.
        self._hashes: list[Encodings] = []
        self._ordered: list[list[Encodings]] = [[] for _ in columns]  # For each column.
        self._valid: list[NDArray[np.bool_]] = []
        self.num_rows = 0
        self.nulls = 0

    def add(self, arrays: Sequence[pa.Array]) -> None:
        """Add the next rows: one array for each key column."""
        self.num_rows += len(arrays[0])
        if not len(arrays[0]):
            return
        complete = complete_rows(arrays)
        self._valid.append(complete)
        nulls = len(complete) - int(complete.sum())
        self.nulls += nulls
        if nulls and len(arrays) > 1:
            # A search for the first columns alone must find rows with a null in the others, too.
            self._is_sorted = False
        if self._is_number or self._is_sorted:
            encodings = [ordered(*one) for one in zip(self._columns, arrays, strict=True)]
            keyed = [one[complete] for one in encodings] if nulls else encodings
            self._is_sorted = self._is_sorted and self._follow(keyed)
            for kept, one in zip(self._ordered, encodings, strict=True):
                kept.append(one)
        if not self._is_number and not self._is_sorted:
            self._ordered = []
        if not self._is_number:
            self._hashes.append(hashed(self._columns, arrays))

    def _follow(self, keyed: Sequence[Encodings]) -> bool:
        """Return whether keys are in ascending order, and none is below those before."""
        if not len(keyed[0]):
            return True
        before, self._last = self._last, [int(one[-1]) for one in keyed]
        if before > [int(one[0]) for one in keyed]:
            return False
        found = keyed[-1][1:] >= keyed[-1][:-1]
        for one in reversed(keyed[:-1]):
            found = (one[1:] > one[:-1]) | ((one[1:] == one[:-1]) & found)
        return bool(found.all())

    def finish(self, bits: int = FILE_BITS) -> Run:
        """Return the run of all rows."""
        if not self.num_rows:
            return _EMPTY
        rows = np.arange(self.num_rows)
        if self.nulls:
            rows = np.flatnonzero(np.concatenate(self._valid))
        run = self._in_order(rows, bits) if self._is_sorted and len(rows) else None
        if run is not None:
            return run
        encodings = self._joined(self._ordered[0] if self._is_number else self._hashes, rows)
        if self._is_number:
            encodings = hashed_numbers(encodings)
        bits = max(bits, _LEAST_HASH_BITS - max(len(rows), 1).bit_length())
        encodings, rows = _in_order(encodings, rows, self.num_rows, bits=bits)
        return build_run("hashed", encodings, rows, self.num_rows, bits=bits)

    def _joined(self, parts: Sequence[Encodings], rows: Numbers) -> Encodings:
        joined = np.concatenate(parts) if len(parts) > 1 else parts[0]
        return joined[rows] if self.nulls else joined

    def _in_order(self, rows: Numbers, bits: int) -> Run | None:
        """Return the run of sorted keys; None if its search would find too many rows."""
        columns = [self._joined(one, rows) for one in self._ordered]
        form: Form = "ordered"
        windows: tuple[Window, ...] = ()
        encodings = columns[0]
        if len(columns) > 1:
            form, windows = "composite", windows_of(self._columns, columns)
            encodings = combined(windows, columns)
        start = int(rows[0])
        # Nulls are mostly before all keys or behind them.
        places = None if int(rows[-1]) - start + 1 == len(rows) else rows
        run = build_run(
            form,
            encodings,
            places,
            self.num_rows,
            bits=bits,
            start=start if places is None else 0,
            windows=windows,
        )
        cut = encodings >> np.uint64(run.shift)
        if (self._is_number and not run.shift) or (cut[1:] != cut[:-1]).all():
            return run
        # For texts, rows of one key that are not adjacent count as rows of several keys.
        keys = encodings if self._is_number else self._joined(self._hashes, rows)
        return run if _crowd(cut) <= 2 * _crowd(keys) else None


def complete_rows(arrays: Sequence[pa.Array]) -> NDArray[np.bool_]:
    """Return for each row whether all of its values are not null."""
    complete = arrays[0].is_valid()
    for array in arrays[1:]:
        complete = pc.and_(complete, array.is_valid())
    found: NDArray[np.bool_] = numpy_array(complete)
    return found


@dataclass(frozen=True)
class RunPart:
    """A run to merge, and the rows of its files.

    Parameters
    ----------
    starts
        For each file its first row in the run; and the row after the last.
    keep
        Whether the merged run keeps each file.
    """

    run: Run
    starts: Numbers
    keep: NDArray[np.bool_]


def merge_runs(parts: Sequence[RunPart]) -> Run | None:
    """Return the merged run of the kept files of parts, in their order.

    All parts have the same form and windows. Keys are merged by their encodings; no data is read.
    None: too many keys would become equal, or there are too many for one run.
    """
    if sum(part.run.keys for part in parts) > MOST_KEYS:
        return None
    form = parts[0].run.form
    shift = max(part.run.shift for part in parts)
    encodings, rows, before = [], [], 0
    for part in parts:
        theirs, of = part.run.decoded()
        file = np.searchsorted(part.starts, of, "right") - 1
        counts = np.where(part.keep, np.diff(part.starts), 0)
        begins = np.cumsum(counts) - counts
        file = np.minimum(file, len(counts) - 1)
        kept = part.keep[file]
        theirs, of, file = theirs[kept], of[kept], file[kept]
        encodings.append(theirs)
        rows.append(of - part.starts[file] + begins[file] + before)
        before += int(counts.sum())
    together, places = np.concatenate(encodings), np.concatenate(rows)
    together, places = _in_order(
        together, places, before, bits=MERGED_BITS, shift=shift, in_parts=True
    )
    in_order = parts[0].run.is_in_order
    implied = in_order and len(places) > 0 and bool((np.diff(places) == 1).all())
    run = build_run(
        form,
        together,
        None if implied else places,
        before,
        bits=MERGED_BITS,
        shift=shift,
        start=int(places[0]) if implied else 0,
        windows=parts[0].run.windows,
    )
    cut = np.uint64(run.shift)
    if in_order and any(_crowd(one >> cut) > 2 * _crowd(one) for one in encodings):
        return None
    lost = (1 << run.shift) - 1  # Bits that are no longer known.
    return replace(run, first=run.first & ~lost, last=run.last | lost)
