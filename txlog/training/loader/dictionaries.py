"""Columns as numbers: those of their values in a dictionary. Rule: LDR-20."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from numpy.typing import NDArray

from txlog import Table
from txlog.base.arrow import arrow_array, numpy_array, pc
from txlog.base.errors import InvalidInputError
from txlog.extend import ReadPlan
from txlog.training.loader.choices import as_classes
from txlog.training.loader.views import Number, Rows, UnfitError, fill_scalar

Dictionaries = bool | Sequence[str] | Mapping[str, Any]
"""The columns that become numbers, perhaps with their values."""


@dataclass(frozen=True)
class Codes:
    """The places of a column's values among those of its dictionary: an array (n,) of int32.

    Parameters
    ----------
    values
        Different values, none of them null.
    """

    values: pa.Array = field(repr=False)

    @property
    def categories(self) -> NDArray[Any]:
        """The values, by their numbers."""
        found: NDArray[Any] = self.values.to_numpy(zero_copy_only=False)
        return found

    def require(self, kind: pa.DataType) -> None:
        """Raise unless the values are of the column's type."""
        if kind != self.values.type:
            raise TypeError(f"a column of {self.values.type} was expected")

    def prepare(self, values: pa.Array, fill: Any) -> Rows:
        """Return the numbers of the values."""
        places = pc.index_in(as_classes(values), value_set=self.values)
        if places.null_count:
            at = pc.index(places.is_null(), True).as_py()
            raise UnfitError(at, f"{values[at].as_py()!r} is not in the dictionary")
        return numpy_array(places)

    def finish(self, rows: Rows) -> Any:
        """Return the numbers."""
        return rows


def codes_of(
    table: Table, reading: ReadPlan, wanted: Dictionaries, fill: Mapping[str, Any]
) -> dict[str, Codes]:
    """Return the views of columns that become numbers.

    This reads the columns whose values are not given, of all rows of the version.

    Parameters
    ----------
    wanted
        Names. True: the columns that were dictionaries when the table got them. A mapping gives the
        values, too.
    fill
        The replacements of nulls, which become values if the column has nulls.

    Raises
    ------
    InvalidTypeError, InvalidInputError
        As for `ReadPlan.with_dictionaries`, or given values are null, twice, or of another type.
    """
    given = wanted if isinstance(wanted, Mapping) else {}
    names = list(wanted) if isinstance(wanted, Mapping) else wanted
    chosen = reading.with_dictionaries(names).dictionaries
    kinds = {one.name: one.type for one in reading.schema if one.name in chosen}
    found = {name: Codes(_given(name, values, kinds[name])) for name, values in given.items()}
    if unknown := [name for name in kinds if name not in found]:
        for name, values in _distinct(table, unknown, kinds).items():
            if values.null_count and fill.get(name) is not None:
                values = _filled(name, values, fill[name])
            values = values.drop_null()
            found[name] = Codes(values.take(pc.sort_indices(values)))
    return found


def _distinct(
    table: Table, names: Sequence[str], kinds: Mapping[str, pa.DataType]
) -> dict[str, pa.Array]:
    """Return the different values of columns, with null if it occurs."""
    found = {name: pa.nulls(0, kinds[name]) for name in names}
    for batch in table.scan(list(names)).to_batches():
        for at, name in enumerate(names):
            own = as_classes(batch.column(at).cast(kinds[name])).unique()
            found[name] = pa.concat_arrays([found[name], own]).unique()
    return found


def _filled(name: str, values: pa.Array, fill: Any) -> pa.Array:
    try:
        return as_classes(pc.fill_null(values, fill_scalar(values.type, fill, Number()))).unique()
    except InvalidInputError as error:
        error.field = name
        raise


def _given(name: str, values: Any, kind: pa.DataType) -> pa.Array:
    """Return the values of a dictionary that the caller gave."""
    try:
        if isinstance(values, str | bytes):
            raise TypeError("it is one value")
        made = as_classes(arrow_array(values, kind))
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise _wrong(name, f"no list of values of the column's type {kind}: {error}") from error
    if made.null_count:
        raise _wrong(name, "a list with a null")
    if len(made.unique()) < len(made):
        raise _wrong(name, "a list with a value twice")
    return made


def _wrong(name: str, reason: str) -> InvalidInputError:
    return InvalidInputError(
        argument="dictionaries",
        field=name,
        reason=f"what was given is {reason}",
        remedy="Give a list of different values, such as the categories of another loader",
    )
