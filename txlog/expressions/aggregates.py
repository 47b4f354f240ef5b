"""Predicates over all rows of a table, such as `count_if(id IS NULL) = 0`. Pure.

The aggregates are computed batch by batch. The rest of the predicate is computed over their results
as an expression over columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pyarrow as pa

from txlog.base.arrow import arrow_array, pc
from txlog.base.columns import flat
from txlog.base.errors import InvalidInputError
from txlog.expressions.bind import bind, bind_value, columns_of
from txlog.expressions.calls import fixed_in_time
from txlog.expressions.evaluate import evaluate, is_true
from txlog.expressions.sql import parse_aggregates
from txlog.expressions.tree import Expression, in_zone
from txlog.schema.arrow import from_arrow
from txlog.schema.types import StructType

_LONGEST = 2**63


@dataclass(frozen=True)
class Aggregate:
    """One aggregate: its kind, its argument (None: `count(*)`), and its text."""

    kind: str  # count, count_if, sum, min, max, avg
    argument: Expression | None
    text: str
    distinct: bool = False  # Only of count.


@dataclass(frozen=True)
class Check:
    """A predicate over aggregates, in which `aggregate 0` and so on stand for their results."""

    text: str
    outer: Expression
    aggregates: tuple[Aggregate, ...]


@dataclass(frozen=True)
class Checked:
    """The result of a check: whether it holds, and the aggregates by their texts.

    If a value could not be computed, the check does not hold, and `error` among the figures says
    why.
    """

    holds: bool
    figures: dict[str, Any]


def parse_check(text: str, zone: str | None = None) -> Check:
    """Parse a predicate over aggregates.

    Raises
    ------
    InvalidInputError
        The text is not such a predicate, or it has no aggregate.
    """
    outer, found = parse_aggregates(text)
    if not found:
        raise InvalidInputError(
            argument="checks",
            reason=f"{text!r} has no aggregate, so it says nothing of all rows",
            remedy="Compare an aggregate with a value: count, count_if, sum, min, max or avg",
        )

    def settled(one: Expression | None) -> Expression | None:
        return None if one is None else fixed_in_time(in_zone(one, zone))

    aggregates = tuple(
        Aggregate(kind, settled(argument), shown, distinct)
        for kind, argument, shown, distinct in found
    )
    return Check(text, fixed_in_time(in_zone(outer, zone)), aggregates)


class Checks:
    """Computes checks over the rows of a schema, which come in batches.

    Raises
    ------
    InvalidInputError
        A check does not fit the columns; the error names it.
    """

    def __init__(self, checks: Sequence[Check], schema: StructType) -> None:
        self._checks = checks
        self._sums = [
            [_Sum(one, schema, check.text) for one in check.aggregates] for check in checks
        ]

    @property
    def columns(self) -> list[str]:
        """The columns that are read."""
        sums = [one for each in self._sums for one in each]
        return list(dict.fromkeys(name for one in sums for name in one.columns))

    def add(self, rows: pa.RecordBatch) -> None:
        """Take rows."""
        for each in self._sums:
            for one in each:
                one.add(rows)

    def results(self) -> list[Checked]:
        """Return whether each check holds for the rows that came."""
        return [_checked(check, sums) for check, sums in zip(self._checks, self._sums, strict=True)]


def _checked(check: Check, sums: Sequence[_Sum]) -> Checked:
    failed = next((one.error for one in sums if one.error is not None), None)
    if failed is not None:
        figures = {one.aggregate.text: one.result()[0].as_py() for one in sums if not one.error}
        return Checked(False, {**figures, "error": failed})
    results = [one.result() for one in sums]
    figures = {
        one.aggregate.text: value[0].as_py() for one, value in zip(sums, results, strict=True)
    }
    names = [f"aggregate {place}" for place in range(len(results))]
    rows = pa.RecordBatch.from_arrays(results, names=names)
    try:
        predicate = bind(check.outer, from_arrow(rows.schema, nulls_as_void=True))
    except InvalidInputError as error:
        raise _misfit(check.text, error) from error
    try:
        return Checked(bool(is_true(predicate, rows)[0].as_py()), figures)
    except _UNCOMPUTED as error:
        return Checked(False, {**figures, "error": _told(error)})


# Values that have no result, such as a division by zero.
_UNCOMPUTED = (InvalidInputError, pa.ArrowInvalid, ArithmeticError)


def _told(error: Exception) -> str:
    return error.reason if isinstance(error, InvalidInputError) else str(error)


def _misfit(text: str, error: InvalidInputError) -> InvalidInputError:
    return InvalidInputError(
        argument="checks",
        field=error.field,
        reason=f"the check {text!r} does not fit: {error.reason}",
        remedy="Each column must be in an aggregate: count, count_if, sum, min, max or avg",
    )


class _Sum:
    """One aggregate over the rows so far."""

    def __init__(self, aggregate: Aggregate, schema: StructType, text: str) -> None:
        self.aggregate = aggregate
        self.error: str | None = None  # Why it cannot be computed.
        self._argument: Expression | None = None
        self._count = 0
        self._total: Any = None
        self._extreme: pa.Scalar | None = None
        self._distinct: pa.Array | None = None
        self._type: pa.DataType = pa.null()
        argument = aggregate.argument
        if argument is not None:
            try:
                if aggregate.kind == "count_if":
                    self._argument = bind(argument, schema)
                else:
                    self._argument, _ = bind_value(argument, schema)
            except InvalidInputError as error:
                raise _misfit(text, error) from error

    @property
    def columns(self) -> list[str]:
        return [] if self._argument is None else [p[0] for p in columns_of(self._argument)]

    def add(self, rows: pa.RecordBatch) -> None:
        if self._argument is None:
            self._count += rows.num_rows
            return
        if self.error is not None:
            return
        try:
            if self.aggregate.kind == "count_if":
                self._count += pc.sum(is_true(self._argument, rows)).as_py() or 0
                return
            values = flat(evaluate(self._argument, rows))
        except _UNCOMPUTED as error:
            self.error = _told(error)
            return
        self._type = values.type
        values = values.drop_null()
        self._count += len(values)
        if self.aggregate.distinct:
            known = [] if self._distinct is None else [self._distinct]
            self._distinct = pc.unique(pa.concat_arrays([*known, values]))
        elif self.aggregate.kind in ("sum", "avg") and len(values):
            self._add_total(values)
        elif self.aggregate.kind in ("min", "max") and len(values):
            self._add_extreme(values)

    def _add_total(self, values: pa.Array) -> None:
        if pa.types.is_integer(values.type):
            values = values.cast(pa.int64()).cast(pa.decimal128(19, 0))
        try:
            total = pc.sum(values).as_py()
        except pa.ArrowNotImplementedError as error:
            raise self._unfit() from error
        self._total = total if self._total is None else self._total + total

    def _add_extreme(self, values: pa.Array) -> None:
        kind = self.aggregate.kind
        try:
            if self._extreme is not None:
                values = pa.concat_arrays(
                    [values, arrow_array([self._extreme.as_py()], values.type)]
                )
            self._extreme = pc.min_max(values)[kind]
        except pa.ArrowNotImplementedError as error:
            raise self._unfit() from error

    def _unfit(self) -> InvalidInputError:
        return InvalidInputError(
            argument="checks",
            reason=f"{self.aggregate.text} cannot be computed of values of type {self._type}",
            remedy="Name a column of numbers, or of values that have an order",
        )

    def result(self) -> pa.Array:
        """Return the result as an array of one value; null if there was no value."""
        kind = self.aggregate.kind
        if self.aggregate.distinct:
            return pa.array([0 if self._distinct is None else len(self._distinct)], pa.int64())
        if kind in ("count", "count_if"):
            return pa.array([self._count], pa.int64())
        if kind in ("min", "max"):
            value = None if self._extreme is None else self._extreme.as_py()
            return arrow_array([value], self._type)
        if kind == "avg":
            return pa.array([None if self._total is None else float(self._total) / self._count])
        return self._summed()

    def _summed(self) -> pa.Array:
        total = self._total
        if pa.types.is_integer(self._type) or total is None:
            fits = total is None or -_LONGEST <= total < _LONGEST
            if fits:
                return pa.array([None if total is None else int(total)], pa.int64())
            return pa.array([total], pa.decimal128(38, 0))
        if isinstance(total, Decimal):
            return pa.array([total], pa.decimal128(38, self._type.scale))
        return pa.array([total], pa.float64())
