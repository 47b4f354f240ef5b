"""Rows that do not fit a table are taken out of a write, each with its reason. Pure.

A batch is first checked as in any write, so one without faults costs nothing more. Otherwise masks
over its columns tell which rows are at fault. Where no mask can tell, because a computation fails
as a whole, the rows are halved until the failing ones stand alone. What is kept is checked again as
in any write.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from txlog.base.arrow import arrow_array, numpy_array, pc
from txlog.base.columns import decoded, map_entries
from txlog.base.errors import InvalidInputError, SchemaMismatchError
from txlog.data_files.constraints import Constraint, given_list_error, sized
from txlog.data_files.identity import Numbering
from txlog.data_files.incoming import Fitting, fit_column
from txlog.expressions.evaluate import is_true
from txlog.expressions.sql import to_sql
from txlog.expressions.tree import Expression
from txlog.schema.arrow import arrow_field, is_list
from txlog.schema.numbers import is_number
from txlog.schema.types import (
    ArrayType,
    MapType,
    PrimitiveType,
    StructField,
    StructType,
    type_name,
)
from txlog.stats.partition import code_partition_values, is_emptied, without_empty

if TYPE_CHECKING:
    from txlog.commit.app_versions import AnyAppVersion
    from txlog.commit.operation import Companion
    from txlog.data_files.write_plan import Sieve, WritePlan
    from txlog.snapshot.snapshot import Snapshot

Rule = Literal["TYPE", "NOT NULL", "LENGTH", "CHECK", "INVARIANT", "GENERATED", "WHERE", "VALUE"]
"""What a row breaks. VALUE: something cannot be computed from the row."""
Indices = NDArray[np.int64]
Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class Fault:
    """Why rows do not fit a table."""

    rule: Rule
    name: str | None  # The column or field, or the name of the constraint.
    reason: str


@dataclass(frozen=True)
class Faults:
    """Rows at fault, by their indices in a batch, ascending; each has one fault, its first."""

    rows: Indices
    faults: tuple[Fault, ...]
    of_row: Indices  # The number of each row's fault in `faults`.


_WITHOUT_TEXT = tuple(
    PrimitiveType(name)
    for name in (
        "binary",
        "date",
        "timestamp",
        "timestamp_ntz",
        "timestamp_nanos",
        "timestamp_nanos_ntz",
    )
)
"""The types some of whose values a partition cannot have: far years, bytes that are no text."""

Take = Callable[[pa.RecordBatch, Faults], None]
"""Takes the rows of a batch that are at fault; the batch has all rows, as they were given."""


class Rejects(ABC):
    """Where the rows of a write that do not fit its table go."""

    @abstractmethod
    def take(
        self, operation: str, base: Snapshot | None, batch: pa.RecordBatch, faults: Faults
    ) -> None:
        """Take the rows of a batch that do not fit a version of the table; None: a new table.

        The batch has all of its rows, as they were given.
        """

    @abstractmethod
    def at(self, base: Snapshot | None) -> None:
        """Note the version of the table on which an attempt is made; None: it is a new table."""

    def sieve(self, operation: str, base: Snapshot | None) -> Sieve:
        """Return the sieve for a version: it takes the rows that do not fit the table."""
        self.at(base)
        return sieve_into(partial(self.take, operation, base))

    @abstractmethod
    def companions(self, txn: AnyAppVersion | None) -> Sequence[Companion]:
        """Return what must be committed before the write is; as `Operation.companions`."""

    @abstractmethod
    def withdraw(self, txn: AnyAppVersion | None) -> None:
        """Take back what was committed to other tables for a new table that was not made."""

    @property
    @abstractmethod
    def metrics(self) -> Mapping[str, int]:
        """The metrics of the write."""


def sieve_into(take: Take) -> Sieve:
    """Return a sieve that gives rows that do not fit to a function."""
    return partial(sifted, take)


def sifted(
    take: Take, plan: WritePlan, reader: pa.RecordBatchReader, numbering: Numbering | None
) -> Iterator[pa.RecordBatch]:
    """Yield rows in the table's columns and types, without those at fault: a `Sieve`.

    Raises
    ------
    SchemaMismatchError
        The fault is not that of rows: no further values for an identity column.
    """
    fitting = Fitting(
        reader.schema.names,
        plan.schema,
        numbering,
        partition_by=plan.layout.partition_by,
        truncates=plan.truncates,
    )
    for batch in reader:
        if not batch.num_rows:
            continue
        taken = 0 if numbering is None else numbering.taken
        try:
            rows = _passed(plan, fitting, batch)
        except InvalidInputError as error:
            if numbering is not None and error.field in numbering.columns:
                raise
            _restart(numbering, taken)
            batch = decoded(batch)
            found = faults_of(plan, fitting, batch)
            _restart(numbering, taken)
            if not len(found.rows):
                raise
            take(batch, found)
            kept = without(batch, found.rows)
            if not kept.num_rows:
                continue
            rows = _passed(plan, fitting, kept)
        yield rows


def faults_of(plan: WritePlan, fitting: Fitting, batch: pa.RecordBatch) -> Faults:
    """Return the rows of a batch that do not fit a table; `fitting` is for its columns."""
    return _Sifting(plan, fitting, batch).faults()


def without(batch: pa.RecordBatch, rows: Indices) -> pa.RecordBatch:
    """Return a batch without the rows at some indices."""
    stays = np.ones(batch.num_rows, np.bool_)
    stays[rows] = False
    return batch.filter(arrow_array(stays))


def _restart(numbering: Numbering | None, taken: int) -> None:
    if numbering is not None:
        numbering.back_to(taken)


def _passed(plan: WritePlan, fitting: Fitting, batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return rows as they are written; errors as for `WritePlan.checked`."""
    rows = fitting.rows(batch)
    (passed,) = plan.satisfied(iter([rows]))
    for field in _formatted(plan):
        code_partition_values(passed.column(field.name), field.type)
    return passed


def _formatted(plan: WritePlan) -> list[StructField]:
    """Return the partition columns that have values without a text in the log."""
    names = plan.layout.partition_by
    fields = [field for field in plan.schema.fields if field.name in names]
    return [field for field in fields if field.type in _WITHOUT_TEXT]


class Found:
    """Collects the first fault of each row of a batch."""

    def __init__(self, count: int) -> None:
        self._of_row = np.full(count, -1, np.int64)
        self._faults: list[Fault] = []

    @property
    def open(self) -> Indices:
        """The rows without a fault so far."""
        return np.flatnonzero(self._of_row < 0)

    def add(self, rows: Indices, fault: Fault) -> None:
        """Record a fault of rows; those that have one already keep it."""
        rows = rows[self._of_row[rows] < 0]
        if len(rows):
            self._of_row[rows] = len(self._faults)
            self._faults.append(fault)

    def add_all(self, faults: Faults, places: Indices) -> None:
        """Record the faults of a part of the rows, which are at `places`."""
        for number, fault in enumerate(faults.faults):
            self.add(places[faults.rows[faults.of_row == number]], fault)

    def faults(self) -> Faults:
        """Return what was found."""
        rows = np.flatnonzero(self._of_row >= 0)
        return Faults(rows, tuple(self._faults), self._of_row[rows])


class _Sifting:
    """The search for the faults of one batch."""

    def __init__(self, plan: WritePlan, fitting: Fitting, batch: pa.RecordBatch) -> None:
        self._plan = plan
        self._fitting = fitting
        self._batch = batch
        self._found = Found(batch.num_rows)

    def faults(self) -> Faults:
        """Return the faults of the batch: first those of columns, then those of rules."""
        fitting = self._fitting
        for field in self._plan.schema.fields:
            place = fitting.places.get(field.name.lower())
            if place is not None:
                array = self._batch.column(place)
                find_unfit(self._found, array, field, truncates=fitting.truncates)
                if field.name in fitting.partition_by:
                    self._find_empty(array, field)
        self._halve(self._fit)  # Generated columns, and what no mask has found.
        if not len(self._found.open):
            return self._found.faults()
        rows, places = self._fit(self._rest()), self._found.open
        assert rows is not None
        if self._plan.has_sizes:
            halve(self._found, places, rows, self._sized, "TYPE")
        for field in _formatted(self._plan):
            self._find_without_text(rows, places, field)
        for rule in self._plan.rules:
            find_broken(self._found, rows, places, rule.predicate, fault_of(rule))
        where = self._plan.replaced
        if where is not None:
            reason = f"the row does not satisfy {to_sql(where)}, so it would not replace a row"
            find_broken(self._found, rows, places, where, Fault("WHERE", None, reason))
        return self._found.faults()

    def _rest(self) -> pa.RecordBatch:
        return self._batch.take(arrow_array(self._found.open))

    def _fit(self, rows: pa.RecordBatch) -> pa.RecordBatch | None:
        numbering = self._fitting.numbering
        taken = 0 if numbering is None else numbering.taken
        try:
            return self._fitting.rows(rows)
        finally:
            _restart(numbering, taken)

    def _sized(self, rows: pa.RecordBatch) -> object:
        return list(sized(iter([rows]), self._plan.schema, given_list_error))

    def _halve(self, check: Callable[[pa.RecordBatch], object]) -> None:
        halve(self._found, self._found.open, self._rest(), check, "VALUE")

    def _find_without_text(self, rows: pa.RecordBatch, places: Indices, field: StructField) -> None:
        _halve_rows(
            self._found,
            places,
            rows,
            lambda part: code_partition_values(part.column(field.name), field.type),
            lambda error: _as_fault(error, "VALUE", field.name),
        )

    def _find_empty(self, array: pa.Array, field: StructField) -> None:
        """Find empty texts in a NOT NULL partition column, which a table records as nulls."""
        if field.nullable or not is_emptied(field.type) or not len(self._found.open):
            return
        places = self._found.open
        fit = fit_column(array.take(arrow_array(places)), field)
        empty = numpy_array(without_empty(fit).is_null())
        self._found.add(places[empty], _null(field.name, empty=True))


def find_unfit(
    found: Found,
    array: pa.Array,
    field: StructField,
    *,
    truncates: bool = False,
    places: Indices | None = None,
) -> None:
    """Find the values that do not fit a column, or are null where they must not be.

    Parameters
    ----------
    places
        The rows of the values. Default: all, in order.
    """
    places = np.arange(len(array), dtype=np.int64) if places is None else places

    def fits(part: pa.Array) -> object:
        return fit_column(part, field, truncates=truncates)

    if not _fails(fits, array):
        return
    for path, mask in null_rows(array, field):
        found.add(places[mask], _null(path))
    kind = arrow_field(field).type
    reason = f"column {field.name} is {array.type}, and the value does not fit "
    reason += type_name(field.type)
    if is_number(array.type) and is_number(kind):
        lossy = _lossy(array, kind)
        fine = np.isin(places, found.open)
        if lossy is not None and not _fails(fits, array.filter(arrow_array(fine & ~lossy))):
            found.add(places[lossy], Fault("TYPE", field.name, reason))
            return
    left = np.isin(places, found.open)
    rows = pa.RecordBatch.from_arrays([array.filter(arrow_array(left))], names=["value"])
    _halve_rows(
        found,
        places[left],
        rows,
        lambda part: fits(part.column(0)),
        lambda error: _as_fault(error, "TYPE", field.name),
    )


def _fails(check: Callable[[Any], object], values: Any) -> bool:
    try:
        check(values)
    except InvalidInputError:
        return True
    return False


def _lossy(array: pa.Array, kind: pa.DataType) -> Mask | None:
    """Return which numbers are not the same in another type; None if Arrow cannot tell.

    Between decimals and floats it cannot: its casts are not exact.
    """
    kinds = (array.type, kind)
    if any(map(pa.types.is_decimal, kinds)) and any(map(pa.types.is_floating, kinds)):
        return None
    if pa.types.is_integer(array.type) and pa.types.is_decimal(kind):
        return _too_long(array, 10 ** (kind.precision - kind.scale))
    try:
        back = array.cast(kind, safe=False).cast(array.type, safe=False)
    except pa.ArrowException:
        return None
    same = pc.equal(back, array)
    if pa.types.is_floating(array.type):
        same = pc.or_(same, pc.and_(pc.is_nan(back), pc.is_nan(array)))
    lossy: Mask = ~numpy_array(pc.fill_null(same, True))
    return lossy


def _too_long(array: pa.Array, limit: int) -> Mask:
    """Return which whole numbers are not below a limit in both directions."""
    is_signed = pa.types.is_signed_integer(array.type)
    found = np.zeros(len(array), np.bool_)
    if limit < 2 ** (array.type.bit_width - is_signed):
        numbers: Any = numpy_array(array.fill_null(0))
        found = numbers >= limit
        if is_signed:
            found |= numbers <= -limit
    return found


def null_rows(array: pa.Array, field: StructField, path: str = "") -> Iterator[tuple[str, Mask]]:
    """Yield each NOT NULL column or field, at any depth, with the rows that have a null in it.

    The fields of a null struct are not checked.
    """
    path = path or field.name
    kind = array.type
    if isinstance(array, pa.ExtensionArray | pa.DictionaryArray) or "run_end" in str(kind):
        if not field.nullable and array.null_count:
            yield path, numpy_array(array.is_null())
        return
    if not field.nullable and array.null_count:
        yield path, numpy_array(array.is_null())
    if isinstance(field.type, StructType) and pa.types.is_struct(kind):
        present = numpy_array(array.is_valid())
        names = {one.name.lower(): place for place, one in enumerate(kind)}
        for inner in field.type.fields:
            place = names.get(inner.name.lower())
            below = f"{path}.{inner.name}"
            if place is None:
                if not inner.nullable:
                    yield below, present
                continue
            for name, mask in null_rows(array.field(place), inner, below):
                yield name, mask & present
    elif isinstance(field.type, ArrayType) and is_list(kind):
        element = StructField("element", field.type.element, field.type.contains_null)
        lengths = numpy_array(pc.fill_null(pc.list_value_length(array), 0))
        items = null_rows(pc.list_flatten(array), element, f"{path}.element")
        yield from _above(items, lengths)
    elif isinstance(field.type, MapType) and pa.types.is_map(kind):
        value = StructField("value", field.type.value, field.type.value_contains_null)
        _, values, lengths = map_entries(array)
        yield from _above(null_rows(values, value, f"{path}.value"), lengths)


def _above(found: Iterator[tuple[str, Mask]], lengths: Any) -> Iterator[tuple[str, Mask]]:
    """Yield the rows whose lists have an element that was found; `lengths` are of the lists."""
    owners = np.repeat(np.arange(len(lengths)), lengths)
    for name, mask in found:
        rows = np.zeros(len(lengths), np.bool_)
        rows[owners[mask]] = True
        yield name, rows


def find_broken(
    found: Found, rows: pa.RecordBatch, places: Indices, predicate: Expression, fault: Fault
) -> None:
    """Find rows for which a predicate is not true, or cannot be computed.

    `places` are the indices of the rows in the batch that was given.
    """
    try:
        broken = ~numpy_array(is_true(predicate, rows))
    except InvalidInputError:
        wrong = Found(rows.num_rows)
        _halve_rows(
            wrong,
            wrong.open,
            rows,
            lambda part: is_true(predicate, part),
            lambda error: _as_fault(error, "VALUE", fault.name),
        )
        found.add_all(wrong.faults(), places)
        left = wrong.open
        if len(left):
            rest = rows.take(arrow_array(left))
            find_broken(found, rest, places[left], predicate, fault)
        return
    found.add(places[broken], fault)


def fault_of(rule: Constraint) -> Fault:
    """Return the fault of a row that breaks a constraint."""
    if rule.generated is not None:
        reason = f"the generated column {rule.name} has another value than {rule.generated} gives"
        return Fault("GENERATED", rule.name, reason)
    if rule.is_length:
        return Fault("LENGTH", rule.name, f"a text in column {rule.name} is too long ({rule.text})")
    kind: Rule = "CHECK" if rule.column is None else "INVARIANT"
    return Fault(kind, rule.name, f"the row breaks the constraint {rule.name} ({rule.text})")


def _null(path: str, *, empty: bool = False) -> Fault:
    why = ", and an empty partition value is recorded as null" if empty else ""
    return Fault("NOT NULL", path, f"column {path} must not be null{why}")


def _as_fault(error: InvalidInputError, rule: Rule, name: str | None) -> Fault:
    """Return the fault of a single row from the error that it causes."""
    is_value = not isinstance(error, SchemaMismatchError)
    return Fault("VALUE" if is_value else rule, error.field or name, error.reason)


def halve(
    found: Found,
    places: Indices,
    rows: pa.RecordBatch,
    check: Callable[[pa.RecordBatch], object],
    rule: Rule,
) -> None:
    """Find rows that fail a check; `places` are their indices in what `found` is about."""
    _halve_rows(found, places, rows, check, lambda error: _as_fault(error, rule, None))


def _halve_rows(
    found: Found,
    places: Indices,
    rows: pa.RecordBatch,
    check: Callable[[pa.RecordBatch], object],
    fault_of: Callable[[InvalidInputError], Fault],
) -> None:
    """Find rows that fail a check, by halving those that fail together."""
    waiting = [(0, rows.num_rows)]
    while waiting:
        start, count = waiting.pop()
        if not count:
            continue
        try:
            check(rows.slice(start, count))
        except InvalidInputError as error:
            if count == 1:
                found.add(places[start : start + 1], fault_of(error))
                continue
            half = count // 2
            waiting += [(start + half, count - half), (start, half)]
