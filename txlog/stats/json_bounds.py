"""Bounds of columns from the JSON statistics of the log. Pure.

`json_scan` reads values from the bytes without parsing; only the remaining texts are parsed. Arrow
casts values in the usual forms, with the same results as the parser. A value that is missing or
invalid is unknown, never an error.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import orjson
import pyarrow as pa

from txlog.actions.stats_text import (
    MOST_ROWS,
    Path,
    count_of,
    quick_document,
    stats_json,
    value_at,
)
from txlog.base.arrow import arrow_array, numpy_array, pc
from txlog.base.columns import gathered, within
from txlog.base.threads import cached_property
from txlog.base.thresholds import Threshold
from txlog.schema.types import DataType, PrimitiveType, StructType
from txlog.stats.file_bounds import (
    LAST_ODD_OFFSET_US,
    TRUNCATED_US,
    Reader,
    bound_type,
    kind_of,
    loose_floats,
    readers,
    typed,
    without_contradictions,
    without_cut,
)
from txlog.stats.json_scan import NAMES, Found, JsonScan, Mask
from txlog.stats.skip import EVERYTHING, Bounds, ColumnBounds, Known

_FEW: Threshold = 64
"""The number of texts that are parsed at a time."""
_SAMPLE = 8  # The size of the sample that shows whether the texts are in an unusual spelling.
_MANY: Threshold = 16 * 1024
"""Smaller pieces are joined until they have this number of texts."""


def json_counts(stats: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Return the number of rows that each text states; null if it states none."""
    nothing = pa.nulls(0, pa.int64())
    return pa.concat_arrays([nothing, *(_counts_of(texts) for texts in _parts(stats))])


def _counts_of(texts: pa.Array) -> pa.Array:
    if texts.null_count == len(texts):
        return pa.nulls(len(texts), pa.int64())
    return _Documents(texts, plain=True).rows


def _parts(stats: pa.Array | pa.ChunkedArray) -> Iterator[pa.Array]:
    """Yield texts in pieces, because those of a large table do not fit into one array.

    Small chunks, one for each group of commits, are joined.
    """
    for batch in gathered(pa.table([stats], ["stats"]).to_batches(), rows=_MANY):
        yield batch["stats"]


def json_bounds(
    stats: pa.ChunkedArray,
    schema: StructType,
    paths: Sequence[Path],
    physical: Mapping[Path, Path],
    *,
    rows: pa.Array | None = None,
    known: Collection[Known] = EVERYTHING,
) -> Bounds:
    """Return the bounds of columns from JSON texts of statistics.

    Parameters
    ----------
    stats
        JSON texts; null for a file without statistics.
    schema, paths
        The table's schema, and the logical paths of the wanted columns.
    physical
        The path of each wanted column in the texts.
    rows
        The numbers of rows of the files, if the caller knows them.
    known
        The kinds of statistics to read; all others are unknown.
    """
    if rows is None:
        asked = Known.COUNTS in known
        rows = json_counts(stats) if asked else pa.nulls(len(stats), pa.int64())
    if stats.null_count == len(stats):
        return Bounds(rows)
    plain = _names(schema).isdisjoint(NAMES)
    kinds = {path: kind for path in paths if (kind := kind_of(schema, path)) is not None}
    parts_of: dict[Path, list[ColumnBounds]] = {path: [] for path in kinds}
    for texts in _parts(stats):
        documents = _Documents(texts, plain)
        for path, kind in kinds.items():
            parts_of[path].append(documents.bounds(physical[path], kind, known))
    return Bounds(rows, {path: _joined(parts) for path, parts in parts_of.items()})


def _joined(parts: Sequence[ColumnBounds]) -> ColumnBounds:
    return ColumnBounds(
        pa.concat_arrays([part.low for part in parts]),
        pa.concat_arrays([part.high for part in parts]),
        pa.concat_arrays([part.nulls for part in parts]),
    )


def parsed_bounds(
    stats: pa.ChunkedArray, schema: StructType, paths: Sequence[Path], physical: Mapping[Path, Path]
) -> Bounds:
    """Return the result of `json_bounds` by parsing each text. Slow and simple."""
    documents = [quick_document(text) for text in stats.to_pylist()]
    rows = arrow_array([count_of(document.get("numRecords")) for document in documents], pa.int64())
    columns = {}
    for path in paths:
        kind = kind_of(schema, path)
        if kind is None:
            continue
        path_in_text = physical[path]
        low, high = readers(kind)
        columns[path] = without_contradictions(
            typed([value_at(d.get("minValues"), path_in_text) for d in documents], low, kind),
            typed([value_at(d.get("maxValues"), path_in_text) for d in documents], high, kind),
            arrow_array([_null_count(d, path_in_text) for d in documents], pa.int64()),
        )
    return Bounds(rows, columns)


@dataclass(frozen=True)
class _Documents:
    """JSON texts of statistics. A text that the scan cannot read is parsed, at most once."""

    texts: pa.Array
    plain: bool  # Whether no column has the name of a section of the statistics.

    @cached_property
    def rows(self) -> pa.Array:
        """The number of rows of each file."""
        counts_found = JsonScan(self.texts).first("numRecords")
        if np.count_nonzero(counts_found.unclear) > _FEW:
            counts_found = self._scan.outside("numRecords")
        counts = _counts(counts_found)
        return self._filled(counts, counts_found.unclear, lambda d: count_of(d.get("numRecords")))

    def bounds(self, path: Path, kind: DataType, known: Collection[Known]) -> ColumnBounds:
        """Return the bounds of a column; `path` is its path in the texts."""
        count = len(self.texts)
        nulls = self._nulls(path) if Known.COUNTS in known else pa.nulls(count, pa.int64())
        if Known.RANGES not in known:
            nothing = pa.nulls(count, bound_type(kind))
            return ColumnBounds(nothing, nothing, nulls)
        low, high = readers(kind)
        return without_contradictions(
            self._side("minValues", path, low, kind),
            self._side("maxValues", path, high, kind),
            nulls,
        )

    def _side(self, section: str, path: Path, read: Reader, kind: DataType) -> pa.Array:
        scanned = self._found(section, path)
        values = _read(scanned, read, kind, up=section == "maxValues")

        def parsed(document: dict[str, Any]) -> Any:
            return value_at(document.get(section), path)

        unclear_rows = np.flatnonzero(scanned.unclear)
        if not len(unclear_rows):
            return values
        more = typed([parsed(document) for document in self._parsed(unclear_rows)], read, kind)
        return pc.replace_with_mask(values, arrow_array(scanned.unclear), more)

    def _nulls(self, path: Path) -> pa.Array:
        scanned = self._found("nullCount", path)
        unclear = scanned.unclear | self._scan.loose
        counts = _counts(scanned)
        return self._filled(counts, unclear, lambda document: _null_count(document, path))

    def _found(self, section: str, path: Path) -> Found:
        # A comma or colon separates two strings. The scan could mistake it for a name of only
        # these characters.
        if (
            self.plain
            and len(path) == 1
            and not set(path[0]) & set(",:")
            and len(self.texts) > _FEW
        ):
            return self._scan.values(section, path[0])
        everything = np.ones(len(self.texts), np.bool_)
        return Found(pa.nulls(len(self.texts), pa.int64()), everything)

    def _filled(self, values: pa.Array, unclear: Mask, read: Any) -> pa.Array:
        unclear_rows = np.flatnonzero(unclear)
        if not len(unclear_rows):
            return values
        more = arrow_array([read(document) for document in self._parsed(unclear_rows)], pa.int64())
        return pc.replace_with_mask(values, arrow_array(unclear), more)

    def _parsed(self, rows: Any) -> list[dict[str, Any]]:
        missing = [row for row in rows.tolist() if row not in self._kept]
        texts = pc.take(self.texts, arrow_array(missing, pa.int64())).to_pylist()
        self._kept.update(zip(missing, map(quick_document, texts), strict=True))
        return [self._kept[row] for row in rows.tolist()]

    @cached_property
    def _kept(self) -> dict[int, dict[str, Any]]:
        return {}

    @cached_property
    def _scan(self) -> JsonScan:
        """The scan of the texts. Texts in unusual spellings are normalised first if that helps."""
        scan = JsonScan(self.texts)
        odd = np.flatnonzero(scan.unclear & numpy_array(pc.is_valid(self.texts)))
        sample = pc.take(self.texts, arrow_array(odd[:: len(odd) // _SAMPLE + 1]))
        if len(odd) <= _FEW or JsonScan(_respelled(sample)).unclear.any():
            return scan
        mask = np.zeros(len(self.texts), np.bool_)
        mask[odd] = True
        plain = _respelled(self.texts.filter(arrow_array(mask)))
        return JsonScan(pc.replace_with_mask(self.texts, arrow_array(mask), plain))


def _respelled(texts: pa.Array) -> pa.Array:
    """Return texts of statistics in the usual spelling. A text that is not an object is unchanged.

    This takes about as long as parsing them.
    """
    documents = map(quick_document, texts.to_pylist())
    plain = [stats_json(document) if document else None for document in documents]
    return pc.coalesce(arrow_array(plain, pa.string()), texts)


def _names(schema: StructType) -> set[str]:
    """Return the names of all columns, nested ones included."""
    names = set()
    for field in schema.fields:
        names |= {field.name, field.physical_name}
        if isinstance(field.type, StructType):
            names |= _names(field.type)
    return names


def _read(scanned: Found, read: Reader, kind: DataType, *, up: bool) -> pa.Array:
    """Return JSON values as bounds; null for a value that cannot be read."""
    tokens = scanned.values
    if tokens.null_count == len(tokens):
        return pa.nulls(len(tokens), bound_type(kind))
    plain = plain_values(tokens, kind, up=up)
    if plain is not None:
        return plain
    if scanned.whole:
        return typed(tokens.to_pylist(), read, kind)
    joined = ",".join(pc.fill_null(tokens, "null").to_pylist())
    try:
        values = orjson.loads(f"[{joined}]")
    except orjson.JSONDecodeError:  # A token is not valid JSON.
        values = [_value(token) for token in tokens.to_pylist()]
    return typed(values, read, kind)


def _value(token: str | None) -> Any:
    try:
        return None if token is None else orjson.loads(token)
    except orjson.JSONDecodeError:
        return None


def _counts(scanned: Found) -> pa.Array:
    """Return JSON values as counts; null for a value that is not a count."""
    if scanned.whole:
        return within(scanned.values, 0, MOST_ROWS)
    return arrow_array(
        [count_of(_value(token)) for token in scanned.values.to_pylist()], pa.int64()
    )


def _null_count(document: dict[str, Any], path: Path) -> int | None:
    """Return a null count. If bounds are not tight, only "none" and "all" are exact."""
    count = count_of(value_at(document.get("nullCount"), path))
    tight = document.get("tightBounds") in (None, True)
    return count if tight or count in (0, document.get("numRecords")) else None


_NUMBER = r"-?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?"
_TEXT = r'"[^"\\\x00-\x1f]*"'
_DATE = r"[1-9]\d{3}-\d{2}-\d{2}"
_TIME = r"[T ]\d{2}:\d{2}:\d{2}(\.\d{1,6})?"
_MOMENTS = {
    f'"{_DATE}{_TIME}(Z|[+-]\\d{{2}}:\\d{{2}})"': pa.timestamp("us", "UTC"),
    f'"{_DATE}{_TIME}"': pa.timestamp("us"),
}


def plain_values(tokens: pa.Array, kind: DataType, *, up: bool) -> pa.Array | None:
    """Return JSON values as bounds of a type, by Arrow's casts.

    None if a value has an unusual form or the type has no cast: then the parser reads them.

    Parameters
    ----------
    tokens
        The JSON text of each value, or integers; null for a missing value.
    up
        Whether the bounds are upper ones.
    """
    match kind:
        case PrimitiveType("float" | "double"):
            return _nothing(tokens) if up else _floats(tokens)
        case PrimitiveType("string"):
            return _texts(tokens, up)
        case PrimitiveType("date"):
            return _cast(tokens, f'"{_DATE}"', pa.date32())
        case PrimitiveType(name) if name.startswith("timestamp"):
            return _moments(tokens, bound_type(kind), up)
    whole = pa.types.is_int64(tokens.type) and pa.types.is_int64(bound_type(kind))
    return tokens if whole else None


def _nothing(tokens: pa.Array) -> pa.Array:
    return pa.nulls(len(tokens), pa.float64())


def _floats(tokens: pa.Array) -> pa.Array | None:
    if pa.types.is_int64(tokens.type):
        floats = tokens.cast(pa.float64(), safe=False)
    else:
        floats = _cast(tokens, _NUMBER, pa.float64(), quotes=0)
    if floats is None or pc.any(pc.is_inf(floats)).as_py():
        return None
    return loose_floats(floats)


def _texts(tokens: pa.Array, up: bool) -> pa.Array | None:
    texts = _cast(tokens, _TEXT, pa.string())
    return without_cut(texts) if texts is not None and up else texts


def _moments(tokens: pa.Array, target: pa.DataType, up: bool) -> pa.Array | None:
    forms = map(partial(_cast, tokens), _MOMENTS, _MOMENTS.values())
    moments = next((one for one in forms if one is not None), None)
    if moments is None:
        return None
    micros = moments.cast(pa.int64())
    if pc.min(micros).as_py() <= LAST_ODD_OFFSET_US:
        return None
    bounds = pc.add(micros, TRUNCATED_US if up else 0)
    if target.unit == "us":
        return bounds.cast(target)
    try:
        return pc.add(pc.multiply_checked(bounds, 1000), 999 if up else 0).cast(target)
    except pa.ArrowInvalid:  # The timestamp is out of the range of nanoseconds.
        return None


def _cast(
    tokens: pa.Array, pattern: str, target: pa.DataType, *, quotes: int = 1
) -> pa.Array | None:
    """Return the strings between the quotes, cast to a type; None if a value has another form."""
    if not pa.types.is_string(tokens.type):
        return None
    if not pc.all(pc.match_substring_regex(tokens, f"^{pattern}$")).as_py():
        return None
    try:
        bare = pc.utf8_slice_codeunits(tokens, quotes, -quotes) if quotes else tokens
        return bare.cast(target)
    except pa.ArrowInvalid:  # It is not a day of the calendar, or the number is too large.
        return None
