"""Identity columns: columns that number new rows.

The schema records the last value. A write commits metadata with the last value that it used; values
that another writer used meanwhile are never used again. Marks are these last values by the physical
names of their columns, which a rename does not change; without column mapping these are the names.
Rules: the Delta protocol, "Identity Columns".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Any

import numpy as np
import orjson
import pyarrow as pa

from txlog.actions.file import Add
from txlog.base.arrow import arrow_array
from txlog.base.errors import InvalidInputError, LogCorruptError, SchemaMismatchError
from txlog.schema.types import (
    GENERATION,
    IDENTITY,
    LONG,
    StructField,
    StructType,
    columns_named,
    type_name,
)

_START, _STEP = f"{IDENTITY}start", f"{IDENTITY}step"
_MARK, _EXPLICIT = f"{IDENTITY}highWaterMark", f"{IDENTITY}allowExplicitInsert"
_LEAST, _GREATEST = -(2**63), 2**63 - 1


@dataclass(frozen=True)
class Identity:
    """The sequence with which an identity column numbers rows.

    Parameters
    ----------
    start, step
        The first value, and the difference to the next one, which may be negative.
    explicit
        Whether data may contain its own values: `BY DEFAULT AS IDENTITY`, else `ALWAYS`.
    mark
        The last used value; None if there is none.
    """

    start: int = 1
    step: int = 1
    explicit: bool = False
    mark: int | None = None

    @property
    def next(self) -> int:
        """The next value to use."""
        if self.mark is None:
            return self.start
        return self.start + max((self.mark - self.start) // self.step + 1, 0) * self.step

    def reaching(self, value: int) -> int:
        """Return the first value of the sequence that is not before a given value.

        If it does not fit 64 bits, the last number of 64 bits: then no further value remains.
        """
        reached = self.start + max(-((self.start - value) // self.step), 0) * self.step
        return min(max(reached, _LEAST), _GREATEST)

    def metadata(self) -> dict[str, Any]:
        """Return the metadata of its field."""
        found = {_START: self.start, _STEP: self.step, _EXPLICIT: self.explicit}
        return found if self.mark is None else {**found, _MARK: self.mark}


def identity_of(field: StructField) -> Identity:
    """Return the `Identity` of a column.

    Raises
    ------
    LogCorruptError
        The column's metadata are not valid numbers.
    """
    start, step = field.metadata.get(_START), field.metadata.get(_STEP)
    mark, explicit = field.metadata.get(_MARK), field.metadata.get(_EXPLICIT)
    if type(start) is int and type(step) is int and step and type(mark) in (int, type(None)):
        return Identity(start, step, explicit is True, mark)
    raise LogCorruptError(
        path="schema",
        field=field.name,
        reason=f"the identity column has start {start!r}, step {step!r} and mark {mark!r}, but "
        "numbers and a step other than 0 are required",
        remedy="The writer of this log made an error: restore an earlier version",
    )


def identities(schema: StructType) -> dict[str, Identity]:
    """Return the identity columns of a schema, by name."""
    return {field.name: identity_of(field) for field in schema.fields if field.is_identity}


def require_not_given(schema: StructType, given: Iterable[str]) -> None:
    """Raise if data has values for a column that is GENERATED ALWAYS AS IDENTITY.

    Raises
    ------
    SchemaMismatchError
        The error names the column.
    """
    always = {
        name.lower(): name for name, found in identities(schema).items() if not found.explicit
    }
    for name in given:
        if name.lower() in always:
            raise SchemaMismatchError(
                argument="data",
                field=always[name.lower()],
                reason=f"column {always[name.lower()]} is GENERATED ALWAYS AS IDENTITY: the table "
                "gives its values",
                remedy=f"Omit {always[name.lower()]}",
            )


def with_identities(
    schema: StructType, given: Mapping[str, Identity] | Sequence[str] | str | None
) -> StructType:
    """Return a schema with identity columns. A name alone means `Identity()`.

    Raises
    ------
    InvalidInputError
        There is no such column.
    """
    if given is None:
        return schema
    names = [given] if isinstance(given, str) else given
    asked = given if isinstance(given, Mapping) else {name: Identity() for name in names}
    columns = columns_named(schema, asked, argument="identity")
    fields = {field.name: field for field in schema.fields}
    for column, identity in zip(columns, asked.values(), strict=True):
        if not isinstance(identity, Identity):
            raise InvalidInputError(
                argument="identity",
                field=column.name,
                reason=f"txlog.Identity was expected, not {type(identity).__name__}",
            )
        metadata = {**column.metadata, **identity.metadata()}
        fields[column.name] = replace(column, metadata=metadata)
    return StructType(tuple(fields.values()))


def require_identities(schema: StructType, partition_by: Sequence[str]) -> None:
    """Raise if a schema has an invalid identity column.

    Raises
    ------
    InvalidInputError
        The column is not of type long, is generated or a partition column, or has the step 0 or
        numbers beyond 64 bits.
    """
    for field in schema.fields:
        if not field.is_identity:
            continue
        numbers = [field.metadata.get(name) for name in (_START, _STEP)]
        if field.type != LONG:
            reason = f"it is {type_name(field.type)}, and identity columns are of type long"
        elif GENERATION in field.metadata:
            reason = "it is generated from other columns"
        elif field.name in partition_by:
            reason = "an identity column cannot partition a table"
        elif not all(type(one) is int and _LEAST <= one <= _GREATEST for one in numbers):
            reason = "start and step must be whole numbers of 64 bits"
        elif numbers[1] == 0:
            reason = "the step must not be 0"
        else:
            continue
        raise InvalidInputError(
            argument="identity",
            field=field.name,
            reason=f"column {field.name} cannot be an identity column: {reason}",
            remedy="Correct it, or omit it",
        )


def with_marks(schema: StructType, marks: Mapping[str, int | None]) -> StructType:
    """Return a schema whose identity columns have reached at least the given marks."""

    def counted(field: StructField) -> StructField:
        mark = marks.get(field.physical_name) if field.is_identity else None
        if mark is None:
            return field
        now = identity_of(field)
        if now.mark is not None and (mark - now.mark) * now.step <= 0:
            return field
        return replace(field, metadata={**field.metadata, _MARK: mark})

    fields = tuple(counted(field) for field in schema.fields)
    return StructType(fields) if fields != schema.fields else schema


def marks_of(schema: StructType) -> dict[str, int | None]:
    """Return the marks of the identity columns of a schema."""
    return {f.physical_name: identity_of(f).mark for f in schema.fields if f.is_identity}


def continued(schema: StructType, current: StructType) -> StructType:
    """Return an older schema whose identity columns go on after those of the current schema.

    A column is the current one with its physical name, or else with its name: the end of column
    mapping changes physical names. If there is neither, it may be any of the remaining columns with
    the same start and step, because leaving out values of a sequence is allowed. A current column
    with invalid metadata does not keep an older version from being restored.
    """
    left = {field.physical_name: field for field in current.fields if field.is_identity}
    older = [field for field in schema.fields if field.is_identity]
    marks: dict[str, int | None] = {}
    for key in (attrgetter("physical_name"), attrgetter("name")):
        for field in older:
            same = next((one for one in left.values() if key(one) == key(field)), None)
            if same is not None and field.physical_name not in marks:
                marks[field.physical_name] = _mark_of(left.pop(same.physical_name))
    for field in older:
        then = identity_of(field)
        ends = [
            mark
            for one in left.values()
            if (one.metadata.get(_START), one.metadata.get(_STEP)) == (then.start, then.step)
            and (mark := _mark_of(one)) is not None
        ]
        if field.physical_name not in marks and ends:
            marks[field.physical_name] = (max if then.step > 0 else min)(ends)
    return with_marks(schema, marks)


def _mark_of(field: StructField) -> int | None:
    """Return the mark of an identity column, whose other metadata may be invalid."""
    mark = field.metadata.get(_MARK)
    return mark if type(mark) is int else None


def without_mark(field: StructField) -> StructField:
    """Return a field without the record of its last value."""
    if _MARK not in field.metadata:
        return field
    kept = {name: value for name, value in field.metadata.items() if name != _MARK}
    return replace(field, metadata=kept)


LANES = 1 << 16  # The number of concurrent tasks of a write, each with its own lane.


class Numbering:
    """Numbers the rows of one write in all identity columns that the data omits.

    Parameters
    ----------
    lane
        The index and number of concurrent tasks: each task uses different values.
    """

    def __init__(self, schema: StructType, lane: tuple[int, int] = (0, 1)) -> None:
        self._identities = identities(schema)
        self._keys = {field.name: field.physical_name for field in schema.fields}
        self._lane = lane
        self._taken = 0  # The number of rows that have values.
        self.columns: frozenset[str] = frozenset()  # Those that are numbered.

    def start(self, names: Iterable[str]) -> None:
        """Begin to number rows that omit these columns."""
        self.columns |= self._identities.keys() & set(names)

    def values(self, column: str, count: int) -> pa.Array:
        """Return the values of the next rows in a column (int64).

        Raises
        ------
        SchemaMismatchError
            They would not fit 64 bits.
        """
        first, step = self._at(column, self._taken), self._step(column)
        last = first + (count - 1) * step
        if not _LEAST <= min(first, last) <= max(first, last) <= _GREATEST:
            raise SchemaMismatchError(
                argument="data",
                field=column,
                reason=f"identity column {column} has no further values: {last} does not fit 64 "
                "bits",
                remedy="Nothing was written. Use a table whose identity column has another start "
                "or step",
            )
        return arrow_array(first + np.arange(count, dtype=np.int64) * step)

    def take(self, count: int) -> None:
        """Advance past these rows."""
        self._taken += count

    @property
    def taken(self) -> int:
        """The number of rows that have values."""
        return self._taken

    def back_to(self, taken: int) -> None:
        """Take values of the last rows back: the rows are not written."""
        self._taken = taken

    def marks(self) -> dict[str, int]:
        """Return the marks of the numbered columns."""
        if not self._taken:
            return {}
        return {self._keys[name]: self._at(name, self._taken - 1) for name in self.columns}

    def _step(self, column: str) -> int:
        return self._identities[column].step * self._lane[1]

    def _at(self, column: str, row: int) -> int:
        found, (place, _) = self._identities[column], self._lane
        return found.next + place * found.step + row * self._step(column)


def counted(
    schema: StructType, names: Iterable[str], adds: Sequence[Add], mode: str
) -> dict[str, int]:
    """Return the marks of columns in files that tasks wrote in lanes.

    They come from statistics, or else are the furthest possible ones for the number of rows.

    Parameters
    ----------
    mode
        The table's column mapping.
    """
    found: dict[str, int] = {}
    rows = sum(add.num_records or 0 for add in adds)
    for name in names if rows else ():
        field = schema.get(name)
        assert field is not None
        identity = identity_of(field)
        key, furthest = ("maxValues", max) if identity.step > 0 else ("minValues", min)
        stats = [orjson.loads(add.stats or "{}") for add in adds]
        ends = [one.get(key, {}).get(field.name_in_files(mode)) for one in stats]
        known = all(type(end) is int for end in ends)
        bound = identity.next + (rows * LANES - 1) * identity.step
        mark = furthest(ends) if known else min(max(bound, _LEAST), _GREATEST)
        found[field.physical_name] = mark
    return found
