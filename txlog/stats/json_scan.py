"""Read a few values from many JSON texts of statistics without parsing the texts. Pure.

The texts of a table are similar, so a key is searched in the bytes of all texts at once. For
example, the minimum of `n` in

    {"numRecords":3,"minValues":{"n":17,"t":"a"},"maxValues":{"n":99,"t":"b"}}

is found in four steps, each over all texts:

1. Find all braces. Here there are six, so this text is an object with two inner objects.
2. Compare the bytes before each inner opening brace: they name `minValues` and `maxValues`.
3. Find the bytes `"n":` between the braces of `minValues`. Their distance from the start is usually
   the same as in the previous text.
4. Take the bytes from there to the next comma or brace: `17`. Arithmetic on columns of bytes turns
   digits into numbers; other forms stay texts, which Arrow casts.

One space after each colon, as many writers put it, is part of the keys: `"n": `. The first text
shows whether the space is there. Texts that this method cannot read, such as those with nested
columns, escapes or other spaces, are reported as unclear and need a parser. If a text is invalid or
has a key twice in an object, the result may be either value.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import orjson
import pyarrow as pa

from txlog.actions.stats_text import SECTIONS
from txlog.base.arrow import arrow_array, numpy_array
from txlog.base.text_bytes import WORD_BYTES, places_of, text_bytes, words_of
from txlog.base.threads import cached_property
from txlog.base.thresholds import Threshold

if TYPE_CHECKING:
    from numpy.typing import NDArray

Places: TypeAlias = "NDArray[np.int64]"
Mask: TypeAlias = "NDArray[np.bool_]"
Bytes: TypeAlias = "NDArray[np.uint8]"

_BLOCK: Threshold = 1 << 19  # This many bytes stay in the processor's cache.
_PAIR_BYTES = 2 * WORD_BYTES
_MISSED = _PAIR_BYTES - 1  # No pair of words begins in the last bytes.
_FEW: Threshold = 32  # Up to this number, texts are searched one by one.
_GUESSES = 24


class JoinedTexts:
    """Many texts, joined in memory. A place is the index of a byte; -1 means not found."""

    def __init__(self, texts: pa.Array) -> None:
        """Take a `string` array of any offset."""
        text_places = text_bytes(texts)
        first = int(text_places.starts[0]) if len(texts) else 0
        self.bytes: Bytes = text_places.used
        self.starts: Places = text_places.starts.astype(np.int64) - first
        self.ends: Places = text_places.ends.astype(np.int64) - first
        if texts.null_count:  # A null may have bytes.
            self.ends = np.where(numpy_array(texts.is_valid()), self.ends, self.starts)

    def where(self, begin: Places, end: Places, needle: bytes) -> Places:
        """Return a place of `needle` between two places of each text; not always the first place.

        The texts of a table are similar: usually the distance from `begin` is the same.
        """
        places = np.full(len(begin), -1, np.int64)
        unfound = np.flatnonzero(end - begin >= len(needle))
        for _ in range(_GUESSES):
            if len(unfound) <= _FEW:
                break
            first = unfound[0]
            place = self._find(needle, int(begin[first]), int(end[first]))
            if place < 0:
                if self._find(needle, 0, len(self.bytes)) < 0:
                    return places
                break
            guess = begin[unfound] + (place - begin[first])
            fits = (guess + len(needle) <= end[unfound]) & self.is_at(guess, needle)
            fits[0] = True  # `_find` found it there; `is_at` may miss it in the last bytes.
            places[unfound[fits]] = guess[fits]
            unfound = unfound[~fits]
        if len(unfound) > _FEW:
            places[unfound] = self._search(begin[unfound], end[unfound], needle)
            unfound = unfound[end[unfound] > len(self.bytes) - _MISSED]
        spans = zip(unfound.tolist(), begin[unfound].tolist(), end[unfound].tolist(), strict=True)
        for row, start, stop in spans:
            places[row] = self._find(needle, start, stop)
        return places

    def is_at(self, places: Places, needle: bytes) -> Mask:
        """Return whether some bytes are at each place; it may miss the last `_MISSED` bytes."""
        last = max(len(needle) - _PAIR_BYTES, 0)
        most = len(self._pairs) - last
        is_there: Mask = places < most
        if most <= 0:
            return is_there
        if not is_there.all():
            places = np.where(is_there, places, 0)
        for step in (*range(0, last, _PAIR_BYTES), last):
            part = needle[step : step + _PAIR_BYTES]
            words = self._pairs[places + step].view("<u8").reshape(-1, 2)
            for half in range(0, len(part), WORD_BYTES):
                word = part[half : half + WORD_BYTES]
                is_there &= words[:, half // WORD_BYTES] & _mask(word) == _word(word)
        return is_there

    def has(self, byte: int) -> bool:
        """Return whether any text has a byte."""
        blocks = range(0, len(self.bytes), _BLOCK)
        return any((self.bytes[start : start + _BLOCK] == byte).any() for start in blocks)

    def _search(self, begin: Places, end: Places, needle: bytes) -> Places:
        """Return the first place of `needle` in each text, by a search in all texts at once.

        Like `is_at`, it may miss the last bytes.
        """
        words, first = words_of(self.bytes), needle[:WORD_BYTES]
        wanted, mask = _word(first), _mask(first)
        blocks = [
            np.flatnonzero(words[start : start + _BLOCK] & mask == wanted) + start
            for start in range(0, len(words), _BLOCK)
        ]
        places = np.concatenate(blocks)
        places = np.append(places[self.is_at(places, needle)], np.iinfo(np.int64).max)
        firsts: Places = places[np.searchsorted(places, begin)]
        return np.where(firsts <= end - len(needle), firsts, -1)

    def _find(self, needle: bytes, start: int, end: int) -> int:
        """Return the first place of some bytes between two places."""
        place = self.bytes[start:end].tobytes().find(needle)
        return place if place < 0 else start + place

    @cached_property
    def _pairs(self) -> NDArray[np.complex128]:
        """A view with one item for each byte: the two words that begin there."""
        return words_of(self.bytes, "<c16")


def _word(needle: bytes) -> np.uint64:
    return np.uint64(int.from_bytes(needle, "little"))


def _mask(needle: bytes) -> np.uint64:
    """Return the mask of the bits that some bytes occupy in a word."""
    return np.uint64((1 << 8 * len(needle)) - 1)


NAMES = frozenset({*SECTIONS, "numRecords", "tightBounds"})
"""The names in statistics. If a column has such a name, texts are not plain."""

_FIRST_BYTES = 256  # The bytes of the first text that show its spelling.
_WIDTH = 40  # The largest size of a value in bytes.
_NUMBER_WIDTH = 24
_SAMPLE = 48  # The size of the sample that shows the width of numbers.
_OPEN, _CLOSE, _COMMA, _QUOTE, _BACKSLASH, _MINUS = b'{},"\\-'
_NUMBER = np.zeros(256, np.bool_)
_NUMBER[list(b"+-.0123456789eE")] = True
_ENDING = np.zeros(256, np.bool_)
_ENDING[[_COMMA, _CLOSE]] = True
_ZERO, _MOST_DIGIT = ord("0"), 9
_DIGITS = 18
_ENDS = re.compile(rb"[,}]")
_SPARE = 2  # Extra bytes for the sign and for the end of a number.
_TIGHT_NAME = b'"tightBounds"'
_COLON = re.compile(rb'\{\s*"[^"\\]*"(: ?)')  # The bytes after the first name of a text.


@dataclass(frozen=True)
class Found:
    """The values of a key in all texts."""

    # int64 if all are integers of few digits, else the JSON text of each number or string.
    values: pa.Array
    unclear: Mask  # The texts that only a parser can read; null there and for missing values.

    @property
    def whole(self) -> bool:
        """Whether the values are numbers, not JSON texts."""
        return bool(pa.types.is_int64(self.values.type))


class JsonScan:
    """Scans JSON texts of statistics for the values of keys."""

    def __init__(self, texts: pa.Array) -> None:
        """Take a `string` array of any offset. A null has unknown values, so it is unclear."""
        self._texts = JoinedTexts(texts)
        self._bytes, self._starts = self._texts.bytes, self._texts.starts
        self._ends = self._texts.ends
        first = _COLON.match(self._bytes[:_FIRST_BYTES].tobytes())
        self._colon = first.group(1) if first else b":"

    def values(self, section: str, name: str) -> Found:
        """Return the values of a column in one of the sections, such as `minValues`."""
        begin, end = self._objects[section]
        return self._under(name, begin, end, self._texts.where(begin, end, self._key(name)))

    def first(self, name: str) -> Found:
        """Return the values of the name with which texts begin. Other texts are unclear."""
        key = b'{"%b"' % name.encode() + self._colon
        begins = self._ends - self._starts > len(key)
        places = self._starts[begins]
        for back, byte in enumerate(key):
            begins[begins] = fits = self._bytes[places + back] == byte
            places = places[fits]
        scalars = self._scalars(np.where(begins, self._starts + len(key), -1))
        return replace(scalars, unclear=scalars.unclear | ~begins)

    def outside(self, name: str) -> Found:
        """Return the values of a name outside of the sections, such as `numRecords`."""
        places = self._texts.where(self._starts, self._ends, self._key(name))
        inside = np.zeros(len(self._starts), np.bool_)
        for begin, end in self._objects.values():
            inside |= (places >= begin) & (places < end)
        return self._under(name, self._starts, self._ends, np.where(inside, -1, places))

    def _key(self, name: str) -> bytes:
        return orjson.dumps(name) + self._colon

    def _under(self, name: str, begin: Places, end: Places, places: Places) -> Found:
        """Return the values of a name between two places in each text.

        `places` are the places of the name as a key, or -1.
        """
        unclear = self.unclear
        missed = places < 0
        if missed.any():  # A text may have a space after the name where the first text has none.
            unclear = unclear | (missed & (self._texts.where(begin, end, orjson.dumps(name)) >= 0))
        scalars = self._scalars(np.where(unclear | missed, -1, places + len(self._key(name))))
        return replace(scalars, unclear=unclear | scalars.unclear)

    @cached_property
    def loose(self) -> Mask:
        """Which texts contain `tightBounds` with another value than a plain true."""
        named = self._texts.where(self._starts, self._ends, _TIGHT_NAME) >= 0
        if not named.any():
            return named
        tight = _TIGHT_NAME + self._colon + b"true"
        return named & (self._texts.where(self._starts, self._ends, tight) < 0)

    @cached_property
    def unclear(self) -> Mask:
        """Which texts are not plain: a plain text is an object with only flat sections in it."""
        whole: Mask = self._ends - self._starts > 1
        if self._texts.has(_BACKSLASH):  # An escaped text may look like a key.
            whole &= self._texts.where(self._starts, self._ends, b"\\") < 0
        if self._in_line is not None:
            return ~whole
        whole[whole] = (self._bytes[self._starts[whole]] == _OPEN) & (
            self._bytes[self._ends[whole] - 1] == _CLOSE
        )
        known = np.ones(len(self._starts), np.int64)
        for begin, end in self._objects.values():
            known += begin > 0
            whole &= (begin == 0) | (end < self._ends - 1)
            for other, _ in self._objects.values():  # No section is inside of another one.
                whole &= (other <= begin) | (other >= end)
        for places in self._opens, self._closes:
            count = np.searchsorted(places, self._ends) - np.searchsorted(places, self._starts)
            whole &= count == known
        return ~whole

    @cached_property
    def _braces(self) -> Places:
        """The places of all braces."""
        return places_of(self._bytes, _OPEN, _CLOSE)

    @cached_property
    def _opens(self) -> Places:
        """The places of all opening braces."""
        places: Places = self._braces[self._bytes[self._braces] == _OPEN]
        return places

    @cached_property
    def _closes(self) -> Places:
        """The places of all closing braces."""
        places: Places = self._braces[self._bytes[self._braces] == _CLOSE]
        return places

    def _needle(self, section: str) -> bytes:
        return orjson.dumps(section) + self._colon + b"{"

    @cached_property
    def _objects(self) -> dict[str, tuple[Places, Places]]:
        """The places where each section begins and ends in each text; 0 if it is missing."""
        if self._in_line is not None:
            return self._in_line
        objects = {}
        last = np.append(self._closes, len(self._bytes))
        for name in SECTIONS:
            needle = self._needle(name)
            places = self._texts.where(self._starts, self._ends, needle)
            begin = np.where(places < 0, 0, places + len(needle))
            end = np.minimum(last[np.searchsorted(self._closes, begin)], self._ends)
            objects[name] = (begin, np.where(places < 0, 0, end))
        return objects

    @cached_property
    def _in_line(self) -> dict[str, tuple[Places, Places]] | None:
        """The places of the sections if all texts have the same sections in the same order.

        None otherwise: then each section's name is searched, which takes longer.
        """
        count = len(self._starts)
        each, others = divmod(len(self._braces), count) if count else (0, 0)
        inner = each // 2 - 1
        if others or each % 2 or not 0 <= inner <= len(SECTIONS):
            return None
        columns = self._braces.reshape(count, each).T
        shape = [_OPEN, *[_OPEN, _CLOSE] * inner, _CLOSE]
        if any((self._bytes[c] != byte).any() for c, byte in zip(columns, shape, strict=True)):
            return None
        if (columns[0] != self._starts).any() or (columns[-1] != self._ends - 1).any():
            return None
        sections: dict[str, tuple[Places, Places]] = {}
        for opens, closes in zip(columns[1:-1:2], columns[2:-1:2], strict=True):
            name = next((n for n in SECTIONS if self._ends_at(opens[:1], self._needle(n))), None)
            if name is None or name in sections or not self._ends_at(opens, self._needle(name)):
                return None
            sections[name] = (opens + 1, closes)
        nothing = np.zeros(count, np.int64)
        return {name: sections.get(name, (nothing, nothing)) for name in SECTIONS}

    def _ends_at(self, places: Places, needle: bytes) -> bool:
        """Return whether some bytes end at each of the places."""
        begins = places - len(needle) + 1
        return bool((begins >= 0).all() and self._texts.is_at(begins, needle).all())

    def _scalars(self, places: Places) -> Found:
        """Return the numbers and strings that begin at places (-1: none); others are unclear."""
        asked = np.flatnonzero(places >= 0)
        begins = places[asked]
        is_text = self._bytes[np.minimum(begins, len(self._bytes) - 1)] == _QUOTE
        width = _WIDTH if is_text.any() else self._number_width(begins)
        window = _windows(self._bytes, begins, width)
        numbers = None if is_text.any() else _whole_numbers(window)
        if numbers is not None:
            values, missing = np.zeros(len(places), np.int64), places < 0
            values[asked] = numbers
            return Found(arrow_array(values, mask=missing), np.zeros(len(places), np.bool_))
        ends = _ENDING[window]
        length = ends.argmax(1)
        ended = ends[np.arange(len(begins)), length]
        if is_text.any():
            closing = window == _QUOTE
            closing[:, 0] = False
            length = np.where(is_text, closing.argmax(1) + 1, length)
            ended = np.where(is_text, closing.any(1) & (length < width), ended)
            after = np.minimum(length, width - 1)
            ended &= ends[np.arange(len(begins)), after]
        inside = np.arange(width)[None, :] < length[:, None]
        plain = ~((window == _BACKSLASH) & inside).any(1)
        numeric = (_NUMBER[window] | ~inside).all(1)
        whole = ended & np.where(is_text, plain, numeric) & (length > 0)
        odd = np.zeros(len(places), np.bool_)
        odd[asked[~whole]] = True
        inside &= whole[:, None]
        lengths = np.zeros(len(places), np.int32)
        lengths[asked] = np.where(whole, length, 0)
        offsets = np.zeros(len(places) + 1, np.int32)
        np.cumsum(lengths, out=offsets[1:])
        valid = np.packbits(lengths > 0, bitorder="little")
        buffers = [pa.py_buffer(valid), pa.py_buffer(offsets), pa.py_buffer(window[inside])]
        return Found(pa.Array.from_buffers(pa.string(), len(places), buffers), odd)

    def _number_width(self, places: Places) -> int:
        """Return the width of a window for numbers: the longest one of a sample."""
        sample = places[:: len(places) // _SAMPLE + 1].tolist()
        texts = [self._bytes[place : place + _NUMBER_WIDTH].tobytes() for place in sample]
        longest = max((len(_ENDS.split(text, 1)[0]) for text in texts), default=0)
        return min(max(longest, 1) + _SPARE, _NUMBER_WIDTH)


def _whole_numbers(window: Bytes) -> NDArray[np.int64] | None:
    """Return the integers with which rows of bytes begin; None if a row begins otherwise."""
    values = np.zeros(len(window), np.int64)
    if not len(window):
        return values
    columns = window.T.copy()
    negative = columns[0] == _MINUS
    lead, second = (np.where(negative, columns[place + 1], columns[place]) for place in (0, 1))
    # JSON does not allow leading zeros, and -0 is not an integer.
    zero = (lead == _ZERO) & (negative | (second - _ZERO <= _MOST_DIGIT))
    if zero.any() or (lead - _ZERO > _MOST_DIGIT).any():  # A byte below "0" wraps around.
        return None
    columns[0][negative] = _ZERO
    live = np.ones(len(window), np.bool_)  # The rows whose digits continue.
    for column in columns[: _DIGITS + 1]:
        digits = column - _ZERO
        is_digit = digits <= _MOST_DIGIT
        ends = live & ~is_digit
        if ends.any():
            if not _ENDING[column[ends]].all():
                return None
            live &= is_digit
            if not live.any():
                return np.where(negative, -values, values)
        values = np.where(live, values * 10 + digits, values)
    return None


def _windows(data: Bytes, places: Places, width: int) -> Bytes:
    """Return a row of `width` bytes from each place, with zeros after the last byte."""
    last = max(len(data) - width, 0)
    items = words_of(data, f"V{width}")[np.minimum(places, last)]
    late = np.flatnonzero(places > last)
    if len(late):
        near_end = np.concatenate([data[last:], np.zeros(width, np.uint8)])
        items[late] = words_of(near_end, f"V{width}")[places[late] - last]
    rows: Bytes = items.view(np.uint8).reshape(-1, width)
    return rows
