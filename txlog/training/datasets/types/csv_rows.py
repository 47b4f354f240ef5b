"""CSV as in RFC 4180, many rows at a time: bytes become Arrow texts, without Python objects.

A byte is inside quotes if the number of quotes before it is odd. So array operations find the ends
of all fields of a chunk. A field breaks the rules if its quotes do not form pairs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from txlog.base.arrow import arrow_array, numpy_array, pc
from txlog.base.columns import nulled
from txlog.base.errors import SchemaMismatchError, UnsupportedFeatureError
from txlog.training.datasets.limits import Limits

_QUOTE, _COMMA, _LF, _CR, _SPACE, _TAB = b'",\n\r \t'
_ROW_FIELDS = 16  # A row may have the bytes of 16 fields of the largest size.
_MARK, _UTF16 = b"\xef\xbb\xbf", (b"\xff\xfe", b"\xfe\xff")

Places = NDArray[np.int64]


@dataclass(frozen=True)
class CsvRows:
    """Consecutive rows of a CSV."""

    fields: pa.StringArray  # The fields of all rows, one after another, without outer quotes.
    starts: Places  # The index of each row's first field, and at the end the number of fields.
    first_row: int  # The number of the first row, from 1; blank lines do not count.
    first_line: int  # The line in which the chunk begins, from 1.
    data: bytes  # The chunk.
    places: Places  # The offset of each field in the chunk.

    def where(self, row: int, column: int = 0) -> str:
        """Return a row's name in messages; rows of this chunk are counted from 0."""
        number = self.first_row + row
        start = int(self.places[self.starts[row] + column])
        line = self.first_line + self.data.count(b"\n", 0, start)
        return f"row {number} (line {line})"


def read_csv(chunks: Iterator[bytes], name: str, limits: Limits) -> Iterator[CsvRows]:
    """Yield the rows of a CSV in UTF-8. Rows end with LF, CR LF or CR. Blank rows are omitted.

    Blanks around a quoted field are dropped; other blanks are kept.

    Raises
    ------
    SchemaMismatchError
        A quote is not closed, or in the middle of a field; a field or row is too large; the text
        is not UTF-8, or has a NUL. The error names file, row, column and line.
    """
    row, line, rest = 1, 1, b""
    for chunk in _without_mark(chunks, name):
        block = _Block(rest + chunk, name, row, line, limits)
        rows = block.rows()
        rest = block.rest()
        if rows is not None:
            yield rows
            row += len(rows.starts) - 1
        line += block.lines()
    if rest:
        last = _Block(rest + b"\n", name, row, line, limits)
        if last.is_open:  # The quote is closed here, so that `rows` raises for an earlier error.
            closed = _Block(rest + b'"\n', name, row, line, limits)
            found = closed.rows()
            assert found is not None
            raise closed.error(len(found.fields) - 1, "a quote is not closed")
        if (rows := last.rows()) is not None:
            yield rows


def _without_mark(chunks: Iterator[bytes], name: str) -> Iterator[bytes]:
    """Yield chunks without the byte order mark of UTF-8; raise for a byte order mark of UTF-16."""
    start = b""
    for chunk in chunks:
        start += chunk
        if len(start) >= len(_MARK):
            break
    if start.startswith(_UTF16):
        raise _unfit(name, "it is UTF-16, UTF-8 was expected", "Convert the file to UTF-8")
    yield start.removeprefix(_MARK)
    yield from chunks


class _Block:
    """A part of a CSV that begins with a row."""

    def __init__(self, data: bytes, name: str, row: int, line: int, limits: Limits) -> None:
        self._data, self._name, self._limits = data, name, limits
        self._row, self._line = row, line
        self._bytes = characters = np.frombuffer(data, np.uint8)
        quotes = characters == _QUOTE
        is_end = (characters == _LF) | (characters == _CR)
        is_field_end = is_end | (characters == _COMMA)
        self.is_open = False
        if quotes.any():
            inside = (np.cumsum(quotes, dtype=np.uint8) & 1).astype(bool)
            is_field_end &= ~inside
            self.is_open = bool(inside[-1])
        self._quotes: Places = np.flatnonzero(quotes)
        self._ends: Places = np.flatnonzero(is_field_end)
        self._ends_row = is_end[self._ends]
        last = np.flatnonzero(self._ends_row)
        # The numbers of fields and of bytes of complete rows.
        self._count = int(last[-1]) + 1 if len(last) else 0
        self._size = int(self._ends[last[-1]]) + 1 if len(last) else 0
        self._starts: Places = np.concatenate([np.zeros(1, np.int64), self._ends + 1])

    def rest(self) -> bytes:
        """Return the incomplete row at the end, which continues in the next chunk."""
        rest = self._data[self._size :]
        opened = len(self._data) - int(self._starts[len(self._ends)])
        most = self._limits.field_bytes
        if opened > most or len(rest) > _ROW_FIELDS * most:
            what = f"a field has more than {most} bytes"
            if self.is_open:
                what += ", or its quote is not closed"
            raise self.error(len(self._ends), what)
        if len(self._ends) - self._count > self._limits.fields:
            raise self.error(
                len(self._ends), f"it has more than {self._limits.fields} fields", column=False
            )
        return rest

    def lines(self) -> int:
        """Return the number of lines of the complete rows."""
        return self._data.count(b"\n", 0, self._size)

    def rows(self) -> CsvRows | None:
        """Return the complete rows; None if there are none, or only blank ones."""
        count = self._count
        if not count:
            return None
        starts, ends = self._starts[:count], self._ends[:count]
        ends_row = self._ends_row[:count]
        self._require_text()
        starts_value, ends_value, has_doubled = self._unquoted(starts, ends)
        self._require_sizes(starts, ends, ends_row)
        alone = ends_row & np.concatenate([[True], ends_row[:-1]])
        kept = ~(alone & self._is_blank(starts, ends))
        if not kept.all():
            starts, ends_row, has_doubled = starts[kept], ends_row[kept], has_doubled[kept]
            starts_value, ends_value = starts_value[kept], ends_value[kept]
        if not len(starts):
            return None
        fields = _texts(self._data, starts_value, ends_value)
        if has_doubled.any():
            single = pc.replace_substring(fields, '""', '"')
            fields = pc.if_else(arrow_array(has_doubled), single, fields)
        first = np.concatenate([np.zeros(1, np.int64), np.flatnonzero(ends_row) + 1])
        return CsvRows(fields, first, self._row, self._line, self._data, starts)

    def _require_text(self) -> None:
        whole = self._data[: self._size]
        at = whole.find(b"\0")
        if at >= 0:
            raise self.error(
                self._field_at(at), "it has a NUL character", remedy="Convert it to UTF-8"
            )
        try:
            whole.decode()
        except UnicodeDecodeError as error:
            raise self.error(
                self._field_at(error.start),
                f"it is not UTF-8: byte {whole[error.start]:#04x}",
                remedy="Convert the file to UTF-8",
            ) from error

    def _require_sizes(self, starts: Places, ends: Places, ends_row: NDArray[np.bool_]) -> None:
        sizes = ends - starts
        most = self._limits.field_bytes
        if sizes.max() > most:
            raise self.error(int(np.argmax(sizes > most)), f"a field has more than {most} bytes")
        counts = np.diff(np.flatnonzero(ends_row), prepend=-1)
        if counts.max() > self._limits.fields:
            row = int(np.argmax(counts > self._limits.fields))
            field = int(np.flatnonzero(ends_row)[row])
            raise self.error(field, f"it has more than {self._limits.fields} fields", column=False)

    def _unquoted(self, starts: Places, ends: Places) -> tuple[Places, Places, NDArray[np.bool_]]:
        """Return where each value begins and ends, and whether it has doubled quotes."""
        quotes = self._quotes[: np.searchsorted(self._quotes, self._size)]
        if not len(quotes):
            return starts, ends, np.zeros(len(starts), bool)
        field = np.searchsorted(ends, quotes)
        first = np.flatnonzero(np.diff(field, prepend=-1))
        quoted, counts = field[first], np.diff(first, append=len(field))
        opening, closing = quotes[first], quotes[first + counts - 1]
        blank_before = self._blanks_between(starts[quoted], opening)
        blank_after = self._blanks_between(closing + 1, ends[quoted])
        # Inside a field, quotes form pairs: the second quote directly follows the first one.
        place = np.arange(len(quotes)) - np.repeat(first, counts)
        inner = (place % 2 == 1) & (place != np.repeat(counts, counts) - 1)
        following = np.append(quotes[1:], -1)
        is_single = inner & (following != quotes + 1)
        wrong = ~blank_before | ~blank_after
        wrong[np.searchsorted(quoted, field[is_single])] = True
        if wrong.any():
            raise self.error(
                int(quoted[np.argmax(wrong)]),
                "a quote is in the middle of the field",
                remedy='Quote the whole field, and write "" for each quote in it',
            )
        starts, ends = starts.copy(), ends.copy()
        starts[quoted], ends[quoted] = opening + 1, closing
        has_doubled = np.zeros(len(starts), bool)
        has_doubled[quoted] = counts > 2
        return starts, ends, has_doubled

    def _blanks_between(self, starts: Places, ends: Places) -> NDArray[np.bool_]:
        """Return whether there are only spaces and tabs between each start and its end."""
        if (starts == ends).all():
            return np.ones(len(starts), bool)
        other = np.zeros(len(self._bytes) + 1, np.int64)
        np.cumsum((self._bytes != _SPACE) & (self._bytes != _TAB), out=other[1:])
        found: NDArray[np.bool_] = other[starts] == other[ends]
        return found

    def _is_blank(self, starts: Places, ends: Places) -> NDArray[np.bool_]:
        """Return whether each field is empty, or has only blanks."""
        blank: NDArray[np.bool_] = starts == ends
        long = np.flatnonzero(~blank & (ends - starts < 64))
        first = self._bytes[starts[long]]
        long = long[(first == _SPACE) | (first == _TAB)]
        if len(long):
            blank[long] = self._blanks_between(starts[long], ends[long])
        return blank

    def _field_at(self, place: int) -> int:
        return int(np.searchsorted(self._ends, place))

    def error(
        self, field: int, reason: str, *, column: bool = True, remedy: str = ""
    ) -> SchemaMismatchError:
        """Return the error of one field; `field` counts from the first field of the block."""
        before = np.flatnonzero(self._ends_row[:field])
        row_start = int(before[-1]) + 1 if len(before) else 0
        # Blank lines do not count as rows.
        firsts = np.concatenate([np.zeros(1, np.int64), before + 1])[:-1]
        is_alone = np.diff(np.append(firsts, row_start)) == 1
        blanks = self._is_blank(self._starts[firsts], self._ends[firsts]) & is_alone
        row = self._row + len(firsts) - int(blanks.sum())
        line = self._line + self._data.count(b"\n", 0, int(self._starts[field]))
        place = f"row {row}, column {field - row_start + 1}" if column else f"row {row}"
        return _unfit(f"{place} (line {line}) of {self._name}", reason, remedy)


def _texts(data: bytes, starts: Places, ends: Places) -> pa.StringArray:
    """Return the texts between places of valid UTF-8. The texts do not overlap."""
    offsets = np.empty(2 * len(starts), np.int32)
    offsets[0::2], offsets[1::2] = starts, ends
    size = 2 * len(starts) - 1
    texts = pa.Array.from_buffers(
        pa.string(), size, [None, pa.py_buffer(offsets), pa.py_buffer(data)]
    )
    return texts.take(arrow_array(np.arange(0, size, 2)))


def _unfit(where: str, reason: str, remedy: str = "") -> SchemaMismatchError:
    return SchemaMismatchError(reason=f"{where}: {reason}", remedy=remedy)


# Rows to CSV -----------------------------------------------------------------------------------

_TO_QUOTE = r'[",\r\n]|^[ \t]|[ \t]$|^$'


def csv_bytes(batch: pa.RecordBatch) -> bytes:
    """Return rows as CSV without a header. Each row ends with LF.

    A null is an empty field, an empty text or list is `""`; lists are joined by `;`. A row of one
    null would be an empty line, which readers skip: it is `""`, too.

    Raises
    ------
    UnsupportedFeatureError
        CSV cannot hold the type of a column.
    """
    fields = [
        _as_fields(column, field.name)
        for column, field in zip(batch.columns, batch.schema, strict=True)
    ]
    if not batch.num_rows:
        return b""
    if len(fields) == 1:
        fields = [pc.if_else(pc.equal(fields[0], ""), '""', fields[0])]
    lines = pc.binary_join_element_wise(*fields, ",")
    lines = pc.binary_join_element_wise(lines, "", "\n")
    _, offsets, data = lines.buffers()
    ends = np.frombuffer(offsets, np.int32)[lines.offset : lines.offset + len(lines) + 1]
    return bytes(memoryview(data)[int(ends[0]) : int(ends[-1])])


def _as_fields(values: pa.Array, name: str) -> pa.Array:
    kind = values.type
    if pa.types.is_list(kind):
        texts = _as_texts(values.flatten(), name)
        offsets = numpy_array(values.offsets)
        lists = pa.ListArray.from_arrays(
            arrow_array((offsets - offsets[0]).astype(np.int32)), pc.fill_null(texts, "")
        )
        joined = pc.binary_join(lists, ";")
        values = nulled(joined, pc.is_null(values))
        kind = pa.string()
    is_text = pa.types.is_string(kind) or pa.types.is_large_string(kind)
    texts = _as_texts(values, name)
    if is_text:
        needed = pc.match_substring_regex(texts, pattern=_TO_QUOTE)
        doubled = pc.replace_substring(texts, '"', '""')
        quoted = pc.binary_join_element_wise('"', doubled, '"', "")
        texts = pc.if_else(needed, quoted, texts)
    return pc.fill_null(texts, "")


def _as_texts(values: pa.Array, name: str) -> pa.Array:
    kind = values.type
    if not (pa.types.is_nested(kind) or pa.types.is_binary(kind) or pa.types.is_large_binary(kind)):
        try:
            return values.cast(pa.string())
        except pa.ArrowException:
            pass
    raise UnsupportedFeatureError(
        features=(f"{kind} in CSV",),
        field=name,
        reason=f"the column {name} of type {kind} cannot be written as CSV",
        remedy='Prepare the set with form="parquet"',
    )
