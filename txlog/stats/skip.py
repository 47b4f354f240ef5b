"""Data skipping: which files a predicate must read, and which match it completely. Pure.

Both are conservative: a file that is kept may have no matching row, and a file that is not certain
to match completely may still do so. Bounds are Arrow columns with one row per file. A null means
unknown, and a bound need not be a value that occurs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from functools import reduce
from typing import Any

import numpy as np
import pyarrow as pa

from txlog.actions.stats_text import Path
from txlog.base.arrow import arrow_array, arrow_scalar, numpy_array, pc
from txlog.base.thresholds import Threshold
from txlog.expressions.operators import OPERATORS, Operator
from txlog.expressions.tree import (
    And,
    Column,
    Comparison,
    Expression,
    In,
    IsNull,
    Like,
    Literal,
    Not,
    Or,
)
from txlog.expressions.type_rules import FLOATS
from txlog.schema.arrow import arrow_type
from txlog.schema.types import PrimitiveType

ALL = -1
"""A null count that means: all rows are null, and their number does not matter."""


class Known(Enum):
    """The kinds of statistics in the log, in ascending order of the cost to read them."""

    PARTITIONS = auto()
    RANGES = auto()  # The minimum and the maximum of columns.
    COUNTS = auto()  # The numbers of rows and of nulls.


EVERYTHING = frozenset(Known)


@dataclass(frozen=True)
class ColumnBounds:
    """The bounds and the null count of one column in each file.

    No value is below `low` or above `high`.
    """

    low: pa.Array
    high: pa.Array
    nulls: pa.Array  # int64.
    _all_null: list[tuple[pa.Array, pa.Array]] = field(
        default_factory=list, init=False, repr=False, compare=False
    )

    def all_null(self, rows: pa.Array) -> pa.Array:
        """Return true for files of these numbers of rows whose values are known to be all null."""
        if not self._all_null or self._all_null[0][0] is not rows:
            counted = pc.equal(self.nulls, rows)
            found = pc.fill_null(pc.or_kleene(counted, pc.equal(self.nulls, ALL)), False)
            self._all_null[:] = [(rows, found)]  # Each part of a predicate needs it.
        return self._all_null[0][1]


@dataclass(frozen=True)
class Bounds:
    """The row count of each file, and the bounds of columns by their logical paths."""

    rows: pa.Array  # int64; null where unknown.
    columns: Mapping[Path, ColumnBounds] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.rows)

    def filter(self, chosen: pa.Array) -> Bounds:
        """Return the bounds of the files that a mask chooses."""
        columns = {
            path: ColumnBounds(
                *(pc.filter(part, chosen) for part in (known.low, known.high, known.nulls))
            )
            for path, known in self.columns.items()
        }
        return Bounds(pc.filter(self.rows, chosen), columns)


def merged(first: Bounds, second: Bounds) -> Bounds:
    """Return the bounds of `first`, or those of `second` where `first` has none."""
    columns = dict(second.columns)
    for path, ours in first.columns.items():
        theirs = columns.get(path)
        columns[path] = (
            ours
            if theirs is None
            else ColumnBounds(
                pc.coalesce(ours.low, theirs.low),
                pc.coalesce(ours.high, theirs.high),
                pc.coalesce(ours.nulls, theirs.nulls),
            )
        )
    return Bounds(pc.coalesce(first.rows, second.rows), columns)


_TRUE = Literal(True)
_FEW: Threshold = 8  # Numbers of longer lists are compared with the bounds all at once.
_LONG_LIST: Threshold = 100  # Longer lists are compared with the bounds as a range.


def keep(where: Expression, bounds: Bounds) -> pa.Array:
    """Return for each file whether a bound predicate may be true for any of its rows."""
    return pc.fill_null(_holds(where, bounds, False, certain=False), True)


def always(where: Expression, bounds: Bounds) -> pa.Array:
    """Return for each file whether a bound predicate is certainly true for every row."""
    return pc.fill_null(_holds(where, bounds, False, certain=True), False)


def is_exact(where: Expression) -> bool:
    """Return whether `keep` omits all files without a match if all values of a column are equal.

    Otherwise a caller that knows these values, such as those of partitions, computes the predicate.
    """
    match where:
        case Not(operand):
            return is_exact(operand)
        case And(parts) | Or(parts):
            return all(map(is_exact, parts))
        case Comparison(op, Column() as column, Literal(value)):
            return not OPERATORS[op].null_safe and value is not None and not _is_float(column)
        case In(Column() as column, values):
            plain = all(value.value is not None for value in values)
            return plain and len(values) <= _LONG_LIST and not _is_float(column)
        case IsNull(Column()) | Column():
            return True
    return False


def _is_float(column: Column) -> bool:
    """Return whether a column may have NaN, which is in no bounds, and two zeros."""
    return isinstance(column.type, PrimitiveType) and column.type.name in FLOATS


def _all(bounds: Bounds, value: bool) -> pa.Array:
    return pa.repeat(arrow_scalar(value), len(bounds))


def _holds(node: Expression, bounds: Bounds, negated: bool, *, certain: bool) -> Any:
    """Return whether any row may, or all rows certainly do, make a node true (false if negated).

    A null in the result means unknown.
    """
    match node:
        case Not(operand):
            return _holds(operand, bounds, not negated, certain=certain)
        case And(parts) | Or(parts):
            both = isinstance(node, And) != negated
            whole = _all(bounds, both)
            for part in parts:
                found = _holds(part, bounds, negated, certain=certain)
                known_part = pc.fill_null(found, not certain) if found.null_count else found
                whole = pc.and_(whole, known_part) if both else pc.or_(whole, known_part)
                if whole.true_count == (0 if both else len(whole)):
                    break  # The remaining parts cannot change the result.
            return whole
        case Literal(value):
            return _all(bounds, value is not None and bool(value) != negated)
        case IsNull(Column() as column) if known := bounds.columns.get(column.path):
            if certain:
                return _no_nulls(known) if negated else _all_null(known, bounds)
            return _may_be_null(known, bounds, negated)
        case Comparison(op, Column() as column, Literal() as right) if known := bounds.columns.get(
            column.path
        ):
            compared = _must_compare if certain else _may_compare
            return compared(OPERATORS[op], known, right, bounds, negated)
        case In(Column() as column, values) if known := bounds.columns.get(column.path):
            among = _must_be_in if certain else _may_be_in
            return among(known, values, bounds, negated)
        case Like(Column() as column, pattern) if known := bounds.columns.get(column.path):
            if certain:
                like = _all_like(known, pattern)
                like = pc.invert(_may_be_like(known, pattern, bounds)) if negated else like
                return pc.and_(like, _no_nulls(known))
            if negated:
                return pc.invert(pc.or_(_all_like(known, pattern), _all_null(known, bounds)))
            return _may_be_like(known, pattern, bounds)
        case Column():
            return _holds(Comparison("=", node, _TRUE), bounds, negated, certain=certain)
    return _all(bounds, not certain)


def _all_null(known: ColumnBounds, bounds: Bounds) -> pa.Array:
    return known.all_null(bounds.rows)


def _no_nulls(known: ColumnBounds) -> pa.Array:
    return pc.fill_null(pc.equal(known.nulls, 0), False)


def _may_be_null(known: ColumnBounds, bounds: Bounds, negated: bool) -> pa.Array:
    return pc.invert(_all_null(known, bounds) if negated else _no_nulls(known))


def _constant(literal: Literal) -> pa.Scalar | None:
    """Return a constant as an Arrow scalar; None for null and for NaN."""
    if literal.value is None:
        return None
    scalar = arrow_scalar(literal.value, arrow_type(literal.type) if literal.type else None)
    is_nan = pa.types.is_floating(scalar.type) and scalar.as_py() != scalar.as_py()
    return None if is_nan else scalar


def _may_compare(
    op: Operator, known: ColumnBounds, right: Literal, bounds: Bounds, negated: bool
) -> pa.Array:
    if op.null_safe and negated:
        return _all(bounds, True)
    if right.value is None:  # Otherwise the comparison is neither true nor false for any row.
        return _may_be_null(known, bounds, False) if op.null_safe else _all(bounds, False)
    constant = _constant(right)
    if constant is None:  # NaN.
        return pc.invert(_all_null(known, bounds))
    possible = (op.negated if negated else op).possible(known.low, known.high, constant)
    possible = pc.fill_null(possible, True) if possible.null_count else possible
    return pc.and_not(possible, _all_null(known, bounds))


def _may_be_in(
    known: ColumnBounds, values: tuple[Literal, ...], bounds: Bounds, negated: bool
) -> pa.Array:
    if negated and any(value.value is None for value in values):
        return _all(bounds, False)  # NOT IN with a null is never true.
    if len(values) > _LONG_LIST:
        return (
            pc.invert(_all_null(known, bounds)) if negated else _may_be_among(known, values, bounds)
        )
    if negated:
        differs = [_may_compare(OPERATORS["<>"], known, value, bounds, False) for value in values]
        return reduce(pc.and_, differs)
    if len(values) > _FEW and (numbers := _numbers(known, values)) is not None:
        return pc.and_not(_is_within(numbers, known), _all_null(known, bounds))
    possible = [_may_compare(OPERATORS["="], known, value, bounds, False) for value in values]
    return reduce(pc.or_, possible)


def _may_be_among(known: ColumnBounds, values: tuple[Literal, ...], bounds: Bounds) -> pa.Array:
    """Return whether a value of a long list lies within the bounds.

    Each value is compared if the values are numbers or times. For other types, only the least and
    the greatest value are compared.
    """
    constants = [value.value for value in values if value.value is not None]
    if not constants:
        return _all(bounds, False)
    if any(value != value for value in constants):  # NaN, which Arrow does not order.
        return pc.invert(_all_null(known, bounds))
    if (numbers := _numbers(known, values)) is not None:
        return pc.and_not(_is_within(numbers, known), _all_null(known, bounds))
    kind = next(value.type for value in values if value.value is not None)
    least, greatest = Literal(min(constants), kind), Literal(max(constants), kind)
    return pc.and_(
        _may_compare(OPERATORS[">="], known, least, bounds, False),
        _may_compare(OPERATORS["<="], known, greatest, bounds, False),
    )


def _numbers(known: ColumnBounds, values: tuple[Literal, ...]) -> pa.Array | None:
    """Return constants that are numbers or times of a column; None if they are something else."""
    constants = [value.value for value in values if value.value is not None]
    kinds = {value.type for value in values if value.value is not None}
    kind = kinds.pop() if len(kinds) == 1 else None
    if kind is None or not _is_number(known.low.type, arrow_type(kind)):
        return None
    return arrow_array(constants, arrow_type(kind))


def _is_number(kind: pa.DataType, other: pa.DataType) -> bool:
    """Return whether values of two types are stored as integers of the same order."""
    if pa.types.is_signed_integer(kind):
        return bool(pa.types.is_signed_integer(other))
    return kind == other and bool(pa.types.is_date32(kind) or pa.types.is_timestamp(kind))


def _is_within(values: pa.Array, known: ColumnBounds) -> pa.Array:
    """Return whether one of the values is within the bounds; true where a bound is unknown."""
    asked = np.unique(_int64(values))
    low = _int64(pc.fill_null(known.low, arrow_scalar(0, known.low.type)))
    places = np.searchsorted(asked, low)
    next_one = asked[np.minimum(places, len(asked) - 1)]
    high = _int64(pc.fill_null(known.high, arrow_scalar(0, known.high.type)))
    within = arrow_array((places < len(asked)) & (next_one <= high))
    return pc.or_(within, pc.or_(pc.is_null(known.low), pc.is_null(known.high)))


def _int64(values: pa.Array) -> Any:
    days = pa.types.is_date32(values.type)
    return numpy_array((values.cast(pa.int32()) if days else values).cast(pa.int64()))


def _may_be_like(known: ColumnBounds, pattern: str, bounds: Bounds) -> pa.Array:
    prefix, rest = split_pattern(pattern)
    some = pc.invert(_all_null(known, bounds))
    if not pa.types.is_string(known.low.type):
        return some
    below = pc.less(known.high, prefix)
    above = pc.greater(known.low, prefix)
    if rest:
        above = pc.and_(above, pc.invert(pc.starts_with(known.low, prefix)))
    outside = pc.or_(pc.fill_null(below, False), pc.fill_null(above, False))
    return pc.and_(some, pc.invert(outside))


def _all_like(known: ColumnBounds, pattern: str) -> pa.Array:
    """Return true for files in which all values that are not null are known to match."""
    prefix, rest = split_pattern(pattern)
    nothing = pa.repeat(arrow_scalar(False), len(known.nulls))
    if not pa.types.is_string(known.low.type):
        return nothing
    if not rest:
        same = pc.and_(pc.equal(known.low, prefix), pc.equal(known.high, prefix))
        return pc.fill_null(same, False)
    if rest.strip("%"):
        return nothing
    if not prefix:
        return pc.invert(nothing)
    # Strings with the same prefix are adjacent in sort order.
    both = pc.and_(pc.starts_with(known.low, prefix), pc.starts_with(known.high, prefix))
    return pc.fill_null(both, False)


def split_pattern(pattern: str) -> tuple[str, str]:
    """Split a LIKE pattern into its fixed prefix and the rest."""
    prefix = []
    place = 0
    while place < len(pattern) and pattern[place] not in "%_":
        place += pattern[place] == "\\" and place + 1 < len(pattern)
        prefix.append(pattern[place])
        place += 1
    return "".join(prefix), pattern[place:]


def _must_be_in(
    known: ColumnBounds, values: tuple[Literal, ...], bounds: Bounds, negated: bool
) -> pa.Array:
    if len(values) > _LONG_LIST:
        return _all(bounds, False)
    if not negated and len(values) > _FEW and (numbers := _numbers(known, values)) is not None:
        one = pc.fill_null(pc.equal(known.low, known.high), False)
        return pc.and_(pc.and_(_is_within(numbers, known), one), _no_nulls(known))
    op = OPERATORS["<>" if negated else "="]
    certain = [_must_compare(op, known, value, bounds, False) for value in values]
    return reduce(pc.and_ if negated else pc.or_, certain)


def _must_compare(
    op: Operator, known: ColumnBounds, right: Literal, bounds: Bounds, negated: bool
) -> pa.Array:
    constant = _constant(right)
    if constant is None or (op.null_safe and negated):
        return _all(bounds, False)
    certain = (op.negated if negated else op).certain(known.low, known.high, constant)
    return pc.and_(pc.fill_null(certain, False), _no_nulls(known))
