"""A few numbers out of many JSON texts of statistics, without parsing the texts. Pure.

A key is looked for in the bytes of all texts at once. Whatever is not plain to see there, such as
nested objects, escapes or spaces, is reported as unclear, and is for a parser. Of texts that no
JSON writer makes, with a key twice in an object or broken elsewhere, either value may be taken.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import orjson
import pyarrow as pa
from numpy.typing import NDArray

from txlog.actions.text_bytes import words_of
from txlog.arrow import arrow_array
from txlog.stats.haystack import Bytes, Haystack, Mask, Places

OBJECTS = ("minValues", "maxValues", "nullCount")
"""What statistics hold besides single values."""
_NEEDLES = {name: b'"%b":{' % name.encode() for name in OBJECTS}
NAMES = frozenset({*OBJECTS, "numRecords", "tightBounds"})
"""What statistics hold. Where a column has such a name, texts are not plain."""

_WIDTH = 40  # Bytes of a value, at most.
_NUMBER_WIDTH = 24
_SAMPLE = 48  # Numbers that tell how long the others are.
_OPEN, _CLOSE, _COMMA, _QUOTE, _BACKSLASH, _MINUS = b'{},"\\-'
_NUMBER = np.zeros(256, np.bool_)
_NUMBER[list(b"+-.0123456789eE")] = True
_ENDING = np.zeros(256, np.bool_)
_ENDING[[_COMMA, _CLOSE]] = True
_ZERO, _MOST_DIGIT = ord("0"), 9
_DIGITS = 18
_ENDS = re.compile(rb"[,}]")
_SPARE = 2  # Of bytes: for the sign, and what ends a number.
_TIGHT_NAME = b'"tightBounds"'
_TIGHT = _TIGHT_NAME + b":true"
_LASTS = tuple(b"}," + _TIGHT_NAME + b":%b}" % value for value in (b"true", b"false"))
"""What may be behind the last object of a text."""


@dataclass(frozen=True)
class Found:
    """What texts say under a key."""

    # int64 if all are whole numbers of few digits, else texts: the JSON of a number or string.
    values: pa.Array
    unclear: Mask  # Of which texts only a parser knows; there, and where nothing is, is null.

    @property
    def whole(self) -> bool:
        """Whether the values are numbers already."""
        return bool(pa.types.is_int64(self.values.type))


class Texts:
    """JSON texts of statistics."""

    def __init__(self, texts: pa.Array) -> None:
        """Take a `string` array, of any offset; of a null, all is unclear."""
        self._texts = Haystack(texts)
        self._bytes, self._starts = self._texts.bytes, self._texts.starts
        self._ends = self._texts.ends

    def values(self, section: str, name: str) -> Found:
        """Return what the texts say under a name in an object of theirs, such as `minValues`."""
        key = orjson.dumps(name) + b":"
        begin, end = self._objects[section]
        at = self._texts.where(begin, end, key)
        found = self._scalars(np.where(self._unclear | (at < 0), -1, at + len(key)))
        return replace(found, unclear=self._unclear | found.unclear)

    def first(self, name: str) -> Found:
        """Return what the texts say under the name that they begin with."""
        key = b'{"%b":' % name.encode()
        begins = self._ends - self._starts > len(key)
        places = self._starts[begins]
        for back, byte in enumerate(key):
            begins[begins] = fits = self._bytes[places + back] == byte
            places = places[fits]
        found = self._scalars(np.where(begins, self._starts + len(key), -1))
        return replace(found, unclear=found.unclear | ~begins)

    @cached_property
    def loose(self) -> Mask:
        """Which texts have bounds that are not tight, as far as they do not plainly say so."""
        named = self._texts.where(self._starts, self._ends, _TIGHT_NAME) >= 0
        if not named.any():
            return named
        return named & (self._texts.where(self._starts, self._ends, _TIGHT) < 0)

    @cached_property
    def _opens(self) -> Places:
        """Where all braces are that open."""
        return self._texts.places_of(_OPEN)

    @cached_property
    def _objects(self) -> dict[str, tuple[Places, Places]]:
        """Where in each text an object begins, and where at most it ends; 0 if there is none.

        If all braces that open are the text's own and those of objects that are found, then no
        object is in another, and what is behind one before the next is no column.
        """
        found = self._in_line()
        if found is not None:
            return found
        places = {
            name: self._texts.where(self._starts, self._ends, needle)
            for name, needle in _NEEDLES.items()
        }
        ordered = np.sort(np.stack([*places.values(), self._ends]), axis=0)
        objects = {}
        for name, at in places.items():
            following = (ordered <= at).sum(axis=0)
            end = np.take_along_axis(ordered, following[None, :], 0)[0]
            begin = at + len(_NEEDLES[name])
            objects[name] = (np.where(at < 0, 0, begin), np.where(at < 0, 0, end))
        return objects

    def _in_line(self) -> dict[str, tuple[Places, Places]] | None:
        """Return the objects if those of all texts are the same, in the same order.

        None: they are not. Then each is to be looked for by its name, which takes longer.
        """
        count = len(self._starts)
        each, others = divmod(len(self._opens), count) if count else (0, 0)
        if others or not 1 <= each <= 1 + len(_NEEDLES):
            return None
        own, *inner = self._opens.reshape(count, each).T
        if (own != self._starts).any():  # Then each text has as many braces as any other one.
            return None
        found: dict[str, tuple[Places, Places]] = {}
        end = self._ends
        for opens in reversed(inner):
            name = next((n for n in OBJECTS if self._ends_at(opens[:1], _NEEDLES[n])), None)
            if name is None or name in found or not self._ends_at(opens, _NEEDLES[name]):
                return None
            found[name] = (opens + 1, end)
            end = opens + 1 - len(_NEEDLES[name])
        nothing = np.zeros(count, np.int64)
        return {name: found.get(name, (nothing, nothing)) for name in OBJECTS}

    def _ends_at(self, places: Places, needle: bytes) -> bool:
        """Return whether at all places there is the last of some bytes."""
        begins = places - len(needle) + 1
        return bool((begins >= 0).all() and self._texts.is_at(begins, needle).all())

    @cached_property
    def _unclear(self) -> Mask:
        """Which texts are not one object that holds the known ones, side by side, and no others."""
        whole: Mask = self._ends - self._starts > 1
        whole[whole] = (self._bytes[self._starts[whole]] == _OPEN) & (
            self._bytes[self._ends[whole] - 1] == _CLOSE
        )
        if self._texts.has(_BACKSLASH):  # What is escaped may look like a key.
            whole &= self._texts.where(self._starts, self._ends, b"\\") < 0
        for begin, end in self._objects.values():
            whole &= (begin == 0) | self._is_closed(end)
        begins = np.stack([begin for begin, _ in self._objects.values()])
        known = (begins > 0).sum(axis=0) + 1
        if len(self._opens) == known[whole].sum() and whole.all():
            return ~whole  # None has less than what is known of it, so none has more.
        before = np.searchsorted(self._opens, self._starts)
        opened = np.searchsorted(self._opens, self._ends) - before
        unclear: Mask = ~whole | (opened != known)
        return unclear

    def _is_closed(self, ends: Places) -> Mask:
        """Return whether an object's own brace is right before the next one, or the text's end."""
        if not len(self._bytes):
            return np.zeros(len(ends), np.bool_)
        before = self._bytes[np.maximum(ends - 2, 0)] == _CLOSE
        closed: Mask = before & _ENDING[self._bytes[np.maximum(ends - 1, 0)]]
        for last in _LASTS if not closed.all() else ():
            begins = ends - len(last)
            closed |= (begins > 0) & self._texts.is_at(np.maximum(begins, 0), last)
        return closed

    def _scalars(self, places: Places) -> Found:
        """Return the numbers and strings that begin at places (-1: none), and what is neither."""
        asked = np.flatnonzero(places >= 0)
        at = places[asked]
        is_text = self._bytes[np.minimum(at, len(self._bytes) - 1)] == _QUOTE
        width = _WIDTH if is_text.any() else self._number_width(at)
        window = _windows(self._bytes, at, width)
        numbers = None if is_text.any() else _whole_numbers(window)
        if numbers is not None:
            values, missing = np.zeros(len(places), np.int64), places < 0
            values[asked] = numbers
            return Found(arrow_array(values, mask=missing), np.zeros(len(places), np.bool_))
        ends = _ENDING[window]
        length = ends.argmax(1)
        ended = ends[np.arange(len(at)), length]
        if is_text.any():
            closing = window == _QUOTE
            closing[:, 0] = False
            length = np.where(is_text, closing.argmax(1) + 1, length)
            ended = np.where(is_text, closing.any(1) & (length < width), ended)
            after = np.minimum(length, width - 1)
            ended &= ends[np.arange(len(at)), after]
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
        """Return how wide to look for numbers: as some of them are, with what is behind them."""
        sample = places[:: len(places) // _SAMPLE + 1].tolist()
        texts = [self._bytes[at : at + _NUMBER_WIDTH].tobytes() for at in sample]
        longest = max((len(_ENDS.split(text, 1)[0]) for text in texts), default=0)
        return min(max(longest, 1) + _SPARE, _NUMBER_WIDTH)


def _whole_numbers(window: Bytes) -> NDArray[np.int64] | None:
    """Return the whole numbers that rows of bytes begin with; None if one begins otherwise."""
    values = np.zeros(len(window), np.int64)
    if not len(window):
        return values
    columns = window.T.copy()
    negative = columns[0] == _MINUS
    lead, second = (np.where(negative, columns[at + 1], columns[at]) for at in (0, 1))
    # JSON has no zeros before other digits; and a zero below zero is no whole number.
    zero = (lead == _ZERO) & (negative | (second - _ZERO <= _MOST_DIGIT))
    if zero.any() or (lead - _ZERO > _MOST_DIGIT).any():  # A byte below wraps around.
        return None
    columns[0][negative] = _ZERO
    live = np.ones(len(window), np.bool_)  # Whose digits go on.
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
    """Return so many bytes from each place on; behind the last one there are zeros."""
    last = max(len(data) - width, 0)
    items = words_of(data, f"V{width}")[np.minimum(places, last)]
    late = np.flatnonzero(places > last)
    if len(late):
        near_end = np.concatenate([data[last:], np.zeros(width, np.uint8)])
        items[late] = words_of(near_end, f"V{width}")[places[late] - last]
    found: Bytes = items.view(np.uint8).reshape(-1, width)
    return found
