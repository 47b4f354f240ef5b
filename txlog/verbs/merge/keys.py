"""Find the source rows that have the key of a target row. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from txlog.base.arrow import arrow_array, numpy_array, pc
from txlog.base.columns import flat
from txlog.base.thresholds import Threshold
from txlog.expressions.comparisons import alike, as_double
from txlog.expressions.evaluate import evaluate
from txlog.expressions.tree import And, Column, Expression
from txlog.expressions.type_rules import is_number
from txlog.lookup.indexed import RowKeys
from txlog.lookup.keys import within
from txlog.schema.arrow import arrow_type
from txlog.verbs.merge.condition import Condition, Key, Sides, by_own_names
from txlog.verbs.merge.source import MergeSource

Indices = NDArray[np.int64]

# The range of the values may be up to this many times larger than their number.
_SPAN: Threshold = 8


@dataclass(frozen=True)
class _KeyColumn:
    """The distinct values of one key in the source, ascending. A code is an index in this list."""

    key: Key
    kind: pa.DataType
    distinct: pa.Array

    def codes(self, values: pa.Array) -> tuple[Indices, NDArray[np.bool_]]:
        """Return the code of each value, and whether the source has the value."""
        values = _plain(_cast(values, self.kind))
        if not pa.types.is_integer(self.kind) or self.key.nulls_match:
            return _found(
                pc.index_in(values, value_set=self.distinct, skip_nulls=not self.key.nulls_match)
            )
        return self._codes_of_integers(values)

    def _codes_of_integers(self, values: pa.Array) -> tuple[Indices, NDArray[np.bool_]]:
        """Return codes of integers: only keys in the range of the values can be found."""
        ends = pc.min_max(values)
        if not ends["min"].is_valid:
            return np.zeros(len(values), np.int64), np.zeros(len(values), np.bool_)
        low, high = ends["min"].as_py(), ends["max"].as_py()
        known = numpy_array(self.distinct)
        first = int(np.searchsorted(known, low, "left"))
        last = int(np.searchsorted(known, high, "right"))
        if high - low > _SPAN * len(values) or values.null_count:
            codes, there = _found(
                pc.index_in(values, value_set=self.distinct.slice(first, last - first))
            )
            return codes + first, there
        # The values are close together, like ids: a table of the range is fastest.
        places = np.full(high - low + 1, -1, np.int64)
        places[known[first:last].astype(np.int64) - low] = np.arange(first, last)
        codes = places[numpy_array(values).astype(np.int64, copy=False) - low]
        return codes, codes >= 0


def _found(indices: pa.Array) -> tuple[Indices, NDArray[np.bool_]]:
    """Return indices, and which of them are not null."""
    return (
        numpy_array(pc.fill_null(indices, 0)).astype(np.int64),
        numpy_array(pc.is_valid(indices)),
    )


def _plain(values: pa.Array) -> pa.Array:
    """Return values of which equal ones are the same: -0.0 becomes 0.0."""
    return pc.add(values, 0.0) if pa.types.is_floating(values.type) else values


@dataclass(frozen=True)
class SourceKeys:
    """The rows of a source, ordered by key. It pickles."""

    columns: tuple[_KeyColumn, ...]
    known: tuple[Indices | None, ...]  # For each column, the codes that were renumbered before it.
    codes: Indices  # Ascending; a code for each combination of keys.
    rows: Indices  # The row of the source for each of `codes`.

    @classmethod
    def of(cls, source: MergeSource, condition: Condition, sides: Sides) -> SourceKeys:
        """Return the rows of a source by their keys; rows with a null key match nothing."""
        _, reads = condition.reads(sides)
        names = [sides.name(flat_name) for flat_name in sorted(reads)]
        parts: list[list[pa.Array]] = [[] for _ in condition.keys]
        for _, batch in source.batches():
            rows = named(batch.select(names), sides.source_alias)
            for part, key in zip(parts, condition.keys, strict=True):
                part.append(flat(evaluate(key.source, rows)))
        columns: list[_KeyColumn] = []
        known: list[Indices | None] = []
        codes: Indices | None = None
        valid, limit = None, 1
        for key, part in zip(condition.keys, parts, strict=True):
            column, values = _column(key, part, sides)
            count = max(1, len(column.distinct))
            known.append(None)
            if limit > _CODES // count:  # Numbers of all combinations would be too large.
                assert codes is not None
                numbered = np.unique(codes)
                codes = np.searchsorted(numbered, codes)
                known[-1], limit = numbered, len(numbered)
            codes, valid = _with_column(codes, valid, column, values)
            limit *= count
            columns.append(column)
        if codes is None:  # The condition compares no keys.
            codes = np.zeros(source.num_rows, np.int64)
        kept = np.arange(source.num_rows) if valid is None else np.flatnonzero(valid)
        order = kept[np.argsort(codes[kept], kind="stable")]
        return cls(tuple(columns), tuple(known), codes[order], order)

    def given(self, sides: Sides) -> RowKeys:
        """Return the distinct keys by the target's columns, as far as these are compared alone."""
        if any(known is not None for known in self.known):
            return RowKeys({})
        left = np.unique(self.codes)
        arrays: dict[str, pa.Array] = {}
        for column in reversed(self.columns):
            count = max(1, len(column.distinct))
            places, left = left % count, left // count
            target = column.key.target
            if isinstance(target, Column) and len(target.path) == 1 and not column.key.nulls_match:
                arrays[sides.name(target.path[0])] = column.distinct.take(arrow_array(places))
        return RowKeys(arrays)

    def repeated(self, but: NDArray[np.bool_] | None = None) -> Indices:
        """Return the rows of the source whose key an earlier row has; some rows do not count."""
        rows, codes = self.rows, self.codes
        if but is not None:
            rows, codes = rows[~but[rows]], codes[~but[rows]]
        later: Indices = rows[1:][codes[1:] == codes[:-1]]
        return later

    def pairs(self, rows: pa.RecordBatch) -> Iterator[tuple[Indices, Indices]]:
        """Yield rows of the target, and the rows of the source with the same key, pair by pair."""
        if not self.columns:
            yield from _every_pair(rows.num_rows, self.rows)
            return
        codes: Indices | None = None
        valid = None
        for column, known in zip(self.columns, self.known, strict=True):
            if known is not None:
                assert codes is not None
                places = np.minimum(np.searchsorted(known, codes), len(known) - 1)
                there = known[places] == codes
                valid = there if valid is None else valid & there
                codes = places
            values = flat(evaluate(column.key.target, rows))
            codes, valid = _with_column(codes, valid, column, values)
        assert codes is not None
        assert valid is not None
        chosen = np.flatnonzero(valid)
        if not len(chosen):
            return
        first = np.searchsorted(self.codes, codes[chosen], "left")
        last = np.searchsorted(self.codes, codes[chosen], "right")
        counts = last - first
        ours = np.repeat(chosen, counts)
        offsets = np.arange(len(ours)) - np.repeat(np.cumsum(counts) - counts, counts)
        yield ours, self.rows[np.repeat(first, counts) + offsets]


def _with_column(
    codes: Indices | None, valid: Any, column: _KeyColumn, values: pa.Array
) -> tuple[Indices, Any]:
    """Return codes combined with those of one more column, and the rows that have all keys."""
    places, there = column.codes(values)
    if codes is not None:
        places = codes * max(1, len(column.distinct)) + places
    return places, there if valid is None else valid & there


_CODES = 1 << 62
_PAIRS: Threshold = 1 << 20


def _every_pair(count: int, others: Indices) -> Iterator[tuple[Indices, Indices]]:
    """Yield all pairs, a limited number at a time."""
    if not len(others) or not count:
        return
    step = max(1, _PAIRS // len(others))
    for start in range(0, count, step):
        ours = np.arange(start, min(count, start + step), dtype=np.int64)
        yield np.repeat(ours, len(others)), np.tile(others, len(ours))


def _column(key: Key, parts: Sequence[pa.Array], sides: Sides) -> tuple[_KeyColumn, pa.Array]:
    """Return a key's distinct values in the source, and all its values."""
    empty = pa.RecordBatch.from_arrays(
        [pa.nulls(0, arrow_type(field.type)) for field in sides.schema.fields],
        names=sides.schema.names(),
    )
    ours, theirs = (flat(evaluate(side, empty)) for side in (key.target, key.source))
    kind = _common(*(side.type for side in alike(ours, theirs)))
    chunks = [_plain(_cast(part, kind)) for part in parts]
    values = pa.concat_arrays(chunks) if chunks else pa.nulls(0, kind)
    distinct = values.unique()
    if not key.nulls_match:
        distinct = distinct.drop_null()
    return _KeyColumn(key, kind, distinct.take(pc.sort_indices(distinct))), values


def _common(ours: pa.DataType, theirs: pa.DataType) -> pa.DataType:
    """Return the type in which keys are compared: the source may have numbers that ours lacks."""
    if pa.types.is_integer(ours) and pa.types.is_integer(theirs):
        return max(ours, theirs, key=lambda kind: kind.bit_width)
    return ours


def _cast(values: Any, kind: pa.DataType) -> Any:
    """Return keys in the common type: longs beside doubles as the nearest doubles."""
    return as_double(values) if kind == pa.float64() else values.cast(kind)


def named(rows: pa.RecordBatch, alias: str) -> pa.RecordBatch:
    """Return rows with the flat names of the columns of their side."""
    return rows.rename_columns([f"{alias}.{name}" for name in rows.schema.names])


def where_matched(keys: SourceKeys, condition: Condition, sides: Sides) -> Expression | None:
    """Return a predicate that is true for all target rows that can match; None: any row.

    It lists the keys if there are few, and ranges of them if there are many.
    """
    parts = [*condition.of_target]
    for column in keys.columns:
        target = column.key.target
        if not isinstance(target, Column) or not len(column.distinct):
            continue
        if column.distinct.null_count or pa.types.is_floating(column.kind):
            continue  # A null or NaN is in no range.
        own_kind = target.type
        if own_kind is None or not (is_number(own_kind) or arrow_type(own_kind) == column.kind):
            continue  # A timestamp is not a constant of the type date.
        own = by_own_names(target, sides)
        parts.append(within(own, column.distinct, here=True))
    if not parts:
        return None
    return parts[0] if len(parts) == 1 else And(tuple(parts))
