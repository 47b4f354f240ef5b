"""Rows of an epoch that a function of Python chooses, and the weights of rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from hashlib import sha256
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyroaring import BitMap64

from txlog import Fragment, Scan, Table
from txlog.base.arrow import pc
from txlog.base.errors import InvalidInputError, InvalidTypeError
from txlog.extend import ReadPlan, Store, Where
from txlog.training.loader.blocks import epoch_rows
from txlog.training.loader.epoch_plan import BlockPlan, Kept
from txlog.training.loader.weights import weights_of

Values = NDArray[np.float64]
_NAN = float("nan")  # One object, so that it is one key.


@dataclass(frozen=True)
class RowFunction:
    """A function of rows, and the columns that it reads.

    Parameters
    ----------
    columns
        The names of the columns, as for `Table.scan`.
    function
        It is called with a `pyarrow.RecordBatch` of these columns. It returns one value for each
        row: an array of NumPy or Arrow, or a list. The same rows must give the same values.

    Examples
    --------
    >>> RowFunction(["text"], lambda rows: [len(text.as_py()) > 3 for text in rows["text"]])
    ... # doctest: +SKIP
    """

    columns: Sequence[str]
    function: Callable[[pa.RecordBatch], Any]

    def __call__(self, rows: pa.RecordBatch) -> NDArray[Any]:
        """Return the value of each row.

        Raises
        ------
        InvalidInputError
            There is not one value for each row.
        """
        found = self.function(rows)
        if isinstance(found, pa.Array | pa.ChunkedArray):
            found = found.to_numpy(zero_copy_only=False)
        values = np.asarray(found)
        if values.shape != (rows.num_rows,):
            raise InvalidInputError(
                reason=f"the function returned values of the shape {values.shape} for "
                f"{rows.num_rows} rows: one value for each row was expected"
            )
        return values


@dataclass(frozen=True)
class ClassWeights:
    """A weight for each value of a column. `class_weights` counts a table for it.

    Parameters
    ----------
    weights
        The weight of each value; each value of the column must be there.
    """

    column: str
    weights: Mapping[Any, float]

    @property
    def columns(self) -> list[str]:
        """The column."""
        return [self.column]

    def __call__(self, rows: pa.RecordBatch) -> NDArray[Any]:
        """Return the weight of each row, NaN for values without one."""
        column = as_classes(rows.column(0))
        known = as_classes(pa.array(list(self.weights), column.type))
        of = np.array([*self.weights.values()], np.float64)
        places = pc.index_in(column, known)
        if places.null_count:
            value = column[pc.index(pc.is_null(places), True).as_py()]
            raise InvalidInputError(
                field=self.column,
                reason=f"its value {value.as_py()!r} has no weight",
                remedy="Count the same rows for the weights as the loader has, or add the value",
            )
        found: NDArray[np.float64] = of[places.to_numpy(zero_copy_only=False)]
        return found


def as_classes(values: pa.Array) -> pa.Array:
    """Return values with one zero and one NaN: those that compare as equal are one class."""
    if not pa.types.is_floating(values.type):
        return values
    zeroed = pc.add(values, pa.scalar(0.0, values.type))
    nan = pa.scalar(float("nan"), values.type)
    return pc.if_else(pc.fill_null(pc.is_nan(zeroed), False), nan, zeroed)


def class_weights(table: Table, column: str, where: Where = None) -> ClassWeights:
    """Return weights with which each value of a column is equally often in an epoch.

    The weight of a value is the number of rows, divided by the number of values and by the number
    of rows with this value. So the mean weight of rows is 1, as scikit-learn's `balanced` has it.

    Parameters
    ----------
    column
        A column with few different values, such as labels. It may have nulls.
    where
        Only rows for which this is true, as for `Table.scan`.

    Raises
    ------
    InvalidInputError
        There is no such column, or no row.

    Examples
    --------
    >>> weights = class_weights(table, "label")  # doctest: +SKIP
    >>> Loader(table, batch_size=64, weights=weights)  # doctest: +SKIP
    """
    counts: dict[Any, int] = {}
    scan = table.scan([column], where)
    if pa.types.is_nested(scan.schema.field(0).type):
        raise InvalidInputError(
            argument="column",
            field=column,
            reason=f"{scan.schema.field(0).type} has no classes",
            remedy="Choose a column of texts, numbers or truth values",
        )
    for batch in scan.to_batches():
        for pair in pc.value_counts(as_classes(batch.column(0))).to_pylist():
            value = _NAN if pair["values"] != pair["values"] else pair["values"]
            counts[value] = counts.get(value, 0) + pair["counts"]
    if not counts:
        raise InvalidInputError(argument="where", reason="no row has it, so there are no classes")
    mean = sum(counts.values()) / len(counts)
    return ClassWeights(column, {value: mean / count for value, count in counts.items()})


def with_choices(
    plan: BlockPlan,
    table: Table,
    *,
    keep: RowFunction | None,
    weights: str | RowFunction | ClassWeights | None,
    seed: int | None,
) -> BlockPlan:
    """Return a plan of the rows that a function keeps, as often as their weights say.

    Raises
    ------
    InvalidInputError, InvalidTypeError
        An argument is wrong, or a function returned unfit values.
    """
    if keep is not None:
        if not isinstance(keep, RowFunction):
            raise _not_a_function("keep", keep, "RowFunction([columns], function)")
        plan = _kept(plan, table, keep)
    if weights is None:
        return plan
    if not isinstance(weights, str | RowFunction | ClassWeights):
        raise _not_a_function("weights", weights, "a column's name, or class_weights(…)")
    values = _weights(plan, table, weights)
    if not len(values):
        return plan
    if not values.any():
        raise InvalidInputError(argument="weights", reason="the weights of all rows are 0")
    made = weights_of(values, plan.counts, seed)
    chosen = (*plan.identity.chosen, f"weights {made.digest}")
    return replace(plan, weights=made, identity=replace(plan.identity, chosen=chosen))


def _kept(plan: BlockPlan, table: Table, keep: RowFunction) -> BlockPlan:
    """Return the plan of the rows for which a function is true."""
    kept, digest = dict(plan.kept), sha256()
    found = _evaluated(_true_positions, plan, table, keep, "keep")
    for at, positions in found.items():
        kept[at] = Kept(positions, inverted=False)
        digest.update(f"{plan.fragments[at].id} ".encode() + positions.serialize())
    counts = np.array(
        [
            kept[owner].count(start, stop)
            for owner, start, stop in zip(
                plan.owners.tolist(), plan.starts.tolist(), plan.stops.tolist(), strict=True
            )
        ],
        np.int64,
    )
    some = counts > 0
    chosen = (*plan.identity.chosen, f"keep {digest.hexdigest()[:16]}")
    return replace(
        plan,
        kept=kept,
        owners=plan.owners[some],
        starts=plan.starts[some],
        stops=plan.stops[some],
        counts=counts[some],
        identity=replace(plan.identity, chosen=chosen),
    )


def _weights(plan: BlockPlan, table: Table, weights: str | RowFunction | ClassWeights) -> Values:
    """Return the weights of the rows of all blocks."""
    if isinstance(weights, str):
        weights = RowFunction([weights], _only_column)
    found = _evaluated(_numbers, plan, table, weights, "weights")
    return np.concatenate([np.empty(0), *found.values()])


def _only_column(rows: pa.RecordBatch) -> pa.Array:
    return rows.column(0)


def _evaluated(
    evaluate: Callable[..., Any],
    plan: BlockPlan,
    table: Table,
    function: RowFunction | ClassWeights,
    argument: str,
) -> dict[int, Any]:
    """Return what a function gives for each fragment with rows of the epoch, by its place."""
    places = np.unique(plan.owners).tolist()
    try:
        scan: Scan = table.scan(list(function.columns))
        reading = replace(scan.plan.reading, where=None, fixes=False)
        of = partial(evaluate, plan.store, reading, function)
        found = scan.engine.map(
            partial(_apply, of), [(plan.fragments[at], plan.kept.get(at)) for at in places]
        )
        return dict(zip(places, found, strict=True))
    except InvalidInputError as error:
        error.argument = argument
        raise


def _apply(of: Callable[..., Any], item: tuple[Fragment, Kept | None]) -> Any:
    return of(*item)


def _true_positions(
    store: Store, reading: ReadPlan, keep: RowFunction, fragment: Fragment, kept: Kept | None
) -> BitMap64:
    """Return the positions of a fragment's rows for which a function is true."""
    found = BitMap64()
    for positions, rows in epoch_rows(store, reading, fragment, kept):
        values = keep(rows)
        if values.dtype != np.bool_:
            raise InvalidInputError(
                reason=f"the function returned values of the type {values.dtype}, truth values "
                "were expected"
            )
        found |= BitMap64(positions[values])
    return found


def _numbers(
    store: Store,
    reading: ReadPlan,
    weights: RowFunction | ClassWeights,
    fragment: Fragment,
    kept: Kept | None,
) -> Values:
    """Return the weights of a fragment's rows of the epoch."""
    found = []
    for positions, rows in epoch_rows(store, reading, fragment, kept):
        values = weights(rows)
        try:
            values = values.astype(np.float64)
        except (TypeError, ValueError) as error:
            raise InvalidInputError(
                reason=f"the weights are no numbers, in fragment {fragment.id}: {error}"
            ) from error
        unfit = ~(np.isfinite(values) & (values >= 0))
        if unfit.any():
            at = int(np.flatnonzero(unfit)[0])
            raise InvalidInputError(
                reason=f"the weight {values[at]} was found, at position {positions[at]} of "
                f"fragment {fragment.id}: a finite number from 0 was expected, and no null",
                remedy="Leave such rows out by where, or compute weights with a RowFunction",
            )
        found.append(values)
    return np.concatenate([np.empty(0), *found])


def _not_a_function(argument: str, value: Any, expected: str) -> InvalidTypeError:
    return InvalidTypeError(
        argument=argument,
        reason=f"{type(value).__name__} was not expected",
        remedy=f"Pass {expected}",
    )
