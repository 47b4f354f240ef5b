"""Encode keys as numbers, and find the rows that may have a key. Pure. See spec/lookup.md."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from txlog.base.arrow import arrow_array, numpy_array, pc
from txlog.base.errors import InvalidInputError
from txlog.base.thresholds import Threshold
from txlog.expressions.tree import And, Column, Expression, In, Literal, Or
from txlog.schema.timestamps import Nanos
from txlog.schema.types import NANOS, DecimalType, PrimitiveType, StructField, type_name

Encodings = NDArray[np.uint64]
Numbers = NDArray[np.int64]

_SIGN = np.uint64(1 << 63)
_GOLDEN = 0x9E3779B97F4A7C15
_LARGEST = (1 << 64) - 1
_INTEGERS = ("byte", "short", "integer", "long", "date", "timestamp", "timestamp_ntz", *NANOS)
_OTHERS = ("string", "binary", "boolean")
KEY_TYPES = "Choose columns of whole numbers, decimals, dates, timestamps, text, bytes or booleans"
"""The remedy for columns that cannot be keys."""
_FEW: Threshold = 256  # The largest number of keys that a predicate lists.
_MANY: Threshold = 1 << 12  # As `_FEW`, of numbers and times, which bounds find by bisection.
_RANGES: Threshold = 64  # The number of ranges in a predicate for more keys.
_FEW_TEXTS: Threshold = 32  # So few texts are hashed one by one: a step over arrays costs as much.
_WORDS: Threshold = 1 << 13  # The words of a long text that are numbers of Python together.


def can_be_key(column: StructField) -> bool:
    """Return whether the values of a column can be keys: not nested, not floating point."""
    kind = column.type
    return isinstance(kind, DecimalType) or (
        isinstance(kind, PrimitiveType) and kind.name in (*_INTEGERS, *_OTHERS)
    )


def require_key_columns(columns: Sequence[StructField], argument: str | None = "on") -> None:
    """Raise if the values of a column cannot be keys; `argument` is the one that names them.

    Raises
    ------
    InvalidInputError
        There are none, or a column is nested, or of a floating point type (NaN, -0.0).
    """
    if not columns:
        raise InvalidInputError(argument=argument, reason="no column is named")
    for column in columns:
        if not can_be_key(column):
            raise InvalidInputError(
                argument=argument,
                field=column.name,
                reason=f"values of the column {column.name!r} ({type_name(column.type)}) cannot be "
                "keys",
                remedy=KEY_TYPES,
            )


def is_number(column: StructField) -> bool:
    """Return whether 64-bit whole numbers can represent the values of a column."""
    kind = column.type
    if isinstance(kind, DecimalType):
        return kind.precision <= 18
    return isinstance(kind, PrimitiveType) and kind.name in _INTEGERS


def orders(column: StructField) -> bool:
    """Return whether a column's values have an ordered encoding."""
    kind = column.type
    text = isinstance(kind, PrimitiveType) and kind.name in ("string", "binary")
    return text or is_number(column)


def key_type(column: StructField) -> str:
    """Return the type of a key as text; all whole numbers have the same text."""
    kind = column.type
    if isinstance(kind, DecimalType):
        return f"decimal({'18' if kind.precision <= 18 else '38'},{kind.scale})"
    name = type_name(kind)
    return "long" if name in ("byte", "short", "integer") else name


def ordered(column: StructField, array: pa.Array) -> Encodings:
    """Return a number for each row; a smaller key never has a larger number. Rule: LKP-2."""
    return _integers(array) ^ _SIGN if is_number(column) else _first_bytes(array)


def hashed_numbers(encodings: Encodings) -> Encodings:
    """Return the hashes of whole numbers, from their ordered encodings."""
    return _mix(encodings ^ (_seed(8) ^ _SIGN))


def encode(columns: Sequence[StructField], arrays: Sequence[pa.Array]) -> Encodings:
    """Return a number for each row, equal for equal keys. The number of a null has no meaning.

    This is the ordered encoding for one column of numbers, otherwise the hashed one.
    """
    if len(columns) == 1 and is_number(columns[0]):
        return ordered(columns[0], arrays[0])
    return hashed(columns, arrays)


def hashed(columns: Sequence[StructField], arrays: Sequence[pa.Array]) -> Encodings:
    """Return a hash of each row's key. Rule: LKP-2."""
    hashes = [_hashed(column, array) for column, array in zip(columns, arrays, strict=True)]
    combined = hashes[0]
    for hashed in hashes[1:]:
        combined = _mix(combined ^ hashed)
    return combined


def _seed(length: int) -> np.uint64:
    return np.uint64(length * _GOLDEN & 0xFFFFFFFFFFFFFFFF)


def _mix(values: Encodings) -> Encodings:
    """Return the finaliser of splitmix64."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))


def _integers(array: pa.Array) -> Encodings:
    """Return the 64 bits of each value; for a decimal, of its unscaled value."""
    if pa.types.is_decimal(array.type):
        words = _words(array, 16).reshape(-1, 2)
        return words[:, 0].copy()
    if pa.types.is_date32(array.type):
        array = array.cast(pa.int32())
    numbers = array if array.type == pa.int64() else array.cast(pa.int64())
    if numbers.null_count:
        numbers = pc.fill_null(numbers, 0)
    found: Encodings = numpy_array(numbers).view(np.uint64)
    return found


def _words(array: pa.Array, width: int) -> Encodings:
    """Return the bytes of values of a fixed width, eight at a time."""
    data = array.buffers()[1]
    start = array.offset * width
    return np.frombuffer(data, np.uint64, count=len(array) * width // 8, offset=start)


def _hashed(column: StructField, array: pa.Array) -> Encodings:
    if is_number(column):
        return _mix(_seed(8) ^ _integers(array))
    if pa.types.is_decimal(array.type):
        words = _words(array, 16).reshape(-1, 2)
        return _mix(_mix(_seed(16) ^ words[:, 0]) ^ words[:, 1])
    if pa.types.is_boolean(array.type):
        truths = numpy_array(pc.fill_null(array, False)).astype(np.uint64)
        return _mix(_seed(1) ^ truths)
    return _hashed_bytes(array)


def _values(array: pa.Array) -> tuple[Encodings, Numbers, Numbers]:
    """Return the eight bytes from each byte of text or binary values; starts, sizes of values."""
    array = array.cast(pa.large_binary())
    offsets = np.frombuffer(
        array.buffers()[1], np.int64, count=len(array) + 1, offset=8 * array.offset
    )
    data = array.buffers()[2]
    length = 0 if data is None else data.size
    padded = np.zeros(length + 16, np.uint8)
    if length:
        padded[:length] = np.frombuffer(data, np.uint8)
    # A view of the eight bytes that begin at each byte.
    view = np.ndarray((length + 8,), "<u8", buffer=padded, strides=(1,))
    return view, offsets[:-1], np.diff(offsets)


def _first_bytes(array: pa.Array) -> Encodings:
    """Return the first eight bytes of each value as a number, zeros behind shorter ones."""
    view, starts, sizes = _values(array)
    unused = np.uint64(8) * (8 - np.minimum(sizes, 8)).astype(np.uint64)
    words = view[starts].astype(np.uint64).byteswap()
    # A shift by 64 bits is undefined.
    return np.where(sizes > 0, words >> np.minimum(unused, 63) << np.minimum(unused, 63), 0)


def _hashed_bytes(array: pa.Array) -> Encodings:
    """Return a hash of each text or binary value, computed from eight bytes at a time."""
    view, starts, sizes = _values(array)
    hashes = sizes.astype(np.uint64) * np.uint64(_GOLDEN)
    active = np.flatnonzero(sizes > 0)
    done = 0
    while len(active) > _FEW_TEXTS:
        words = view[starts[active] + done]
        left = np.minimum(sizes[active] - done, 8).astype(np.uint64)
        words = words & (np.uint64(0xFFFFFFFFFFFFFFFF) >> (np.uint64(64) - np.uint64(8) * left))
        hashes[active] = _mix(hashes[active] ^ words)
        done += 8
        active = active[sizes[active] > done]
    for place in active.tolist():
        begin, end = int(starts[place]) + done, int(starts[place] + sizes[place])
        found, step = int(hashes[place]), 8 * _WORDS
        while end - begin > step:  # A list of all words would take five times the text's memory.
            found = _mixed(found, view[begin : begin + step : 8].tolist())
            begin += step
        ended = view[begin:end:8].tolist()
        ended[-1] &= (1 << 8 * ((end - begin - 1) % 8 + 1)) - 1
        hashes[place] = _mixed(found, ended)
    return hashes


def _mixed(found: int, words: list[int]) -> int:
    """Return a hash with further words, as `_mix` does for arrays."""
    for word in words:
        found ^= word
        found = (found ^ found >> 30) * 0xBF58476D1CE4E5B9 & _LARGEST
        found = (found ^ found >> 27) * 0x94D049BB133111EB & _LARGEST
        found ^= found >> 31
    return found


@dataclass(frozen=True)
class KeyRun:
    """The keys of a file's rows, in ascending order of their encodings.

    Parameters
    ----------
    encodings
        Ascending; rows with a null key are left out.
    rows
        The position of each; None if the i-th key is the key of row i.
    """

    encodings: Encodings
    rows: NDArray[np.uint32] | None

    @classmethod
    def of(cls, encodings: Encodings, valid: NDArray[np.bool_] | None) -> KeyRun:
        """Return the run of rows in their order; `valid` marks the rows that have a key."""
        if valid is None and bool((encodings[1:] >= encodings[:-1]).all()):
            return cls(encodings, None)
        rows = np.arange(len(encodings)) if valid is None else np.flatnonzero(valid)
        order = rows[np.argsort(encodings[rows], kind="stable")]
        return cls(encodings[order], order.astype(np.uint32))

    @property
    def nbytes(self) -> int:
        """The number of bytes of the run."""
        return self.encodings.nbytes + (0 if self.rows is None else self.rows.nbytes)

    def find(self, wanted: Encodings) -> Numbers:
        """Return the positions of rows that have one of some encodings, ascending."""
        if (
            not len(self.encodings)
            or wanted[0] > self.encodings[-1]
            or wanted[-1] < self.encodings[0]
        ):
            return np.empty(0, np.int64)
        first, last = np.searchsorted(wanted, self.encodings[[0, -1]], "left")
        inside = wanted[first : last + 1]
        starts = np.searchsorted(self.encodings, inside, "left")
        counts = np.searchsorted(self.encodings, inside, "right") - starts
        total = int(counts.sum())
        if not total:
            return np.empty(0, np.int64)
        places = np.arange(total) + np.repeat(starts - (np.cumsum(counts) - counts), counts)
        return places if self.rows is None else np.sort(self.rows[places].astype(np.int64))


@dataclass(frozen=True)
class AskedKeys:
    """The keys that a caller asks for.

    Parameters
    ----------
    columns
        The key columns.
    arrays
        For each column the value of each key.
    distinct
        For each column its distinct values, without null.
    known
        The distinct combinations as numbers, ascending; a key's code is its place among them. Empty
        for one column: there the code is the place of the value.
    codes
        The code of each key; -1 for a key with a null, which matches no row.
    """

    columns: tuple[StructField, ...]
    arrays: tuple[pa.Array, ...]
    distinct: tuple[pa.Array, ...]
    known: tuple[Numbers, ...]
    codes: Numbers

    @classmethod
    def of(cls, columns: Sequence[StructField], arrays: Sequence[pa.Array]) -> AskedKeys:
        """Return the keys with the given values of each column."""
        distinct = tuple(
            (array.unique() if len(array) > 1 else array).drop_null() for array in arrays
        )
        if len(arrays) == 1:
            if len(arrays[0]) == 1:
                places = np.zeros(1, np.int64) - arrays[0].null_count
            else:
                places = _places_in(arrays[0], distinct[0])
            return cls(tuple(columns), tuple(arrays), distinct, (), places)
        known: list[Numbers] = []
        codes = np.zeros(len(arrays[0]), np.int64)
        for array, values in zip(arrays, distinct, strict=True):
            codes = _combined(codes, array, values)
            known.append(np.unique(codes[codes >= 0]))
            codes = _places(codes, known[-1])
        return cls(tuple(columns), tuple(arrays), distinct, tuple(known), codes)

    def codes_of(self, arrays: Sequence[pa.Array]) -> Numbers:
        """Return for each row the code of its key; -1 if the key is not wanted."""
        if len(arrays) == 1:
            return _places_in(arrays[0], self.distinct[0])
        codes = np.zeros(len(arrays[0]), np.int64)
        for array, values, known in zip(arrays, self.distinct, self.known, strict=True):
            codes = _places(_combined(codes, array, values), known)
        return codes

    def encodings(self, form: str | None = None) -> Encodings:
        """Return the distinct encodings of the keys, ascending.

        The form is `ordered` (only for one column), `hashed`, or that of `encode`.
        """
        complete = self.complete
        if form is None:
            found = encode(self.columns, self.arrays)
        elif form == "ordered":
            found = ordered(self.columns[0], self.arrays[0])
        else:
            found = hashed(self.columns, self.arrays)
        if len(found) == 1:
            return found if complete[0] else found[:0]
        return np.unique(found if complete.all() else found[complete])

    @property
    def complete(self) -> NDArray[np.bool_]:
        """For each key whether it has no null."""
        return self.codes >= 0

    def ordered_columns(self) -> list[Encodings]:
        """Return the ordered encodings of each column's values, of keys without null."""
        pairs = zip(self.columns, self.arrays, strict=True)
        return [ordered(*one)[self.complete] for one in pairs]

    def predicate(self) -> Expression:
        """Return a predicate that is true for all rows with one of the keys, and maybe others."""
        parts = [
            within(Column((column.name,)), values.take(pc.sort_indices(values)))
            for column, values in zip(self.columns, self.distinct, strict=True)
        ]
        return parts[0] if len(parts) == 1 else And(tuple(parts))


@dataclass(frozen=True)
class KeyRanges:
    """Ranges of the first columns of keys, by their ordered encodings.

    Parameters
    ----------
    columns
        The first columns of the keys.
    boxes
        For each box the least and the largest encoding in each of these columns.
    """

    columns: tuple[StructField, ...]
    boxes: tuple[tuple[tuple[int, int], ...], ...]


def _places_in(array: pa.Array, values: pa.Array) -> Numbers:
    """Return where values are among distinct ones; -1: they are not."""
    if not len(values):
        return np.full(len(array), -1, np.int64)
    if len(array) == len(values) == 1:
        return np.array([0 if array.equals(values) else -1])
    found = pc.index_in(array, value_set=values)
    if found.null_count:
        found = pc.fill_null(found, -1)
    places: Numbers = numpy_array(found).astype(np.int64)
    return places


def _combined(codes: Numbers, array: pa.Array, values: pa.Array) -> Numbers:
    """Return codes together with the places of one more column's values; -1: not among them."""
    places = _places_in(array, values)
    return np.where((codes >= 0) & (places >= 0), codes * len(values) + places, -1)


def _places(numbers: Numbers, known: Numbers) -> Numbers:
    if not len(known):
        return np.full(len(numbers), -1, np.int64)
    places = np.minimum(np.searchsorted(known, numbers), len(known) - 1)
    return np.where(known[places] == numbers, places, -1)


def within(column: Expression, distinct: pa.Array, *, here: bool = False) -> Expression:
    """Return a predicate that is true of all rows in which a column has one of some values.

    It names the values if they are few, and ranges that hold them if they are many.

    Parameters
    ----------
    distinct
        Ascending, without null.
    here
        Whether the predicate stays in this process. Then it names more whole numbers, dates and
        times: ranges of keys that lie far apart would exclude no file.
    """
    kind = distinct.type
    if here and len(distinct) <= _MANY and (pa.types.is_signed_integer(kind) or _is_time(kind)):
        with suppress(ValueError, OverflowError):
            return In(column, _literals(distinct))
    return within_spans(column, distinct, distinct)


def _is_time(kind: pa.DataType) -> bool:
    return bool(pa.types.is_date32(kind) or pa.types.is_timestamp(kind))


def within_spans(column: Expression, firsts: pa.Array, lasts: pa.Array) -> Expression:
    """Return a predicate that is true of all rows in which a column is in one of some spans.

    Parameters
    ----------
    firsts, lasts
        The ends of the spans, without null. They are ascending, and no span overlaps another.
    """
    step = 1 if len(firsts) <= _FEW and firsts.equals(lasts) else -(-len(firsts) // _RANGES)
    starts = np.arange(0, len(firsts), step)
    ends = np.minimum(starts + step, len(firsts)) - 1
    try:
        least = _literals(firsts.take(arrow_array(starts)))
        greatest = _literals(lasts.take(arrow_array(ends)))
    except (ValueError, OverflowError):
        return Literal(True)  # Python has no times after the year 9999.
    if step == 1 and firsts.equals(lasts):
        return In(column, least)
    parts = tuple(column.between(*one) for one in zip(least, greatest, strict=True))
    return parts[0] if len(parts) == 1 else Or(parts)


def spanning(columns: Sequence[StructField], arrays: Sequence[pa.Array]) -> Expression:
    """Return a predicate that is true of all rows within the least and greatest given values.

    Each array has values of its column, without null.
    """
    parts = []
    for column, values in zip(columns, arrays, strict=True):
        order = pc.sort_indices(values)
        least, greatest = (values.take(order.slice(at, 1)) for at in (0, len(order) - 1))
        parts.append(within_spans(Column((column.name,)), least, greatest))
    return parts[0] if len(parts) == 1 else And(tuple(parts))


def _literals(values: pa.Array) -> tuple[Literal, ...]:
    kind = values.type
    if not pa.types.is_timestamp(kind) or kind.unit != "ns":
        return tuple(map(Literal, values.to_pylist()))
    nanos = PrimitiveType("timestamp_nanos" if kind.tz else "timestamp_nanos_ntz")
    return tuple(Literal(Nanos(value), nanos) for value in values.cast(pa.int64()).to_pylist())
