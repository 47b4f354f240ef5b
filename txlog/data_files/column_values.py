"""One interface for the values of new columns: SQL text, expressions, functions or Arrow data."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from txlog.base.arrow import arrow_array
from txlog.base.columns import flat
from txlog.base.errors import InvalidInputError, InvalidTypeError, of_argument, reason_of
from txlog.data_files.incoming import as_reader, fit_column
from txlog.expressions.bind import bind_value, columns_of
from txlog.expressions.calls import fixed_in_time
from txlog.expressions.evaluate import evaluate
from txlog.expressions.sql import parse_sql
from txlog.expressions.tree import Expression
from txlog.scan.read_plan import choose_columns
from txlog.schema.arrow import arrow_schema, from_arrow
from txlog.schema.types import PrimitiveType, StructField, StructType

Compute = Callable[[pa.RecordBatch], list[pa.Array]]


@dataclass(frozen=True)
class ColumnValues:
    """Columns, and the function that computes their values from rows.

    `compute` gets rows with the columns `reads`, and returns one array for each of `fields`.
    """

    fields: tuple[StructField, ...]
    reads: tuple[str, ...]  # The columns of the table that `compute` needs.
    compute: Compute
    in_order: bool = False  # Whether the rows must be passed once, in the table's order.
    check_end: Callable[[], None] = lambda: None  # Called after the last row if `in_order`.
    are_null: bool = False  # Whether all values are null.

    def names_in_files(self, mode: str) -> list[str]:
        """Return the physical names of the columns, in a table of this column mapping."""
        return [field.name_in_files(mode) for field in self.fields]

    def of(self, rows: pa.RecordBatch) -> list[pa.Array]:
        """Return the values of rows, in the columns' types.

        Raises
        ------
        SchemaMismatchError, InvalidInputError
            Values have a wrong type, or their number is wrong.
        """
        arrays = self.compute(rows.select(list(self.reads)))
        for field, array in zip(self.fields, arrays, strict=True):
            if len(array) != rows.num_rows:
                raise _bad(
                    field.name, f"{len(array)} values were computed for {rows.num_rows} rows"
                )
        return [fit_column(flat(a), f) for f, a in zip(self.fields, arrays, strict=True)]


def column_values(
    columns: Any,
    schema: StructType,
    *,
    read_columns: Sequence[str] | None,
    sample: Sample,
    nanos: bool = False,
    keeps_required: bool = False,
) -> ColumnValues:
    """Return the new columns that the argument `columns` describes.

    Parameters
    ----------
    columns
        A mapping of names to SQL text, expressions, functions of a batch, or Arrow data of one
        column; a function that returns a batch; or Arrow data. Data has a value for each row of
        the table, in its order.
    schema
        The table's.
    read_columns
        The columns that functions get; None for all.
    sample
        Returns a few rows, on which functions are called to find their result types.
    nanos
        That of `from_arrow`.
    keeps_required
        Whether columns of data that are not nullable stay so.

    Raises
    ------
    InvalidInputError
        The argument has another form, or an expression does not fit the table.
    """
    require_described(columns)
    chosen = choose_columns(schema, list(schema.names() if read_columns is None else read_columns))
    reads = tuple(column.name for column in chosen)
    typed = partial(from_arrow, nanos=nanos)
    described = _described(columns, schema, reads, sample, typed)
    if not described.fields:
        raise _bad(None, "no column is given")
    if keeps_required:
        return described
    nullable = tuple(replace(field, nullable=True) for field in described.fields)
    return replace(described, fields=nullable)


def _described(
    columns: Any, schema: StructType, reads: tuple[str, ...], sample: Sample, typed: Typed
) -> ColumnValues:
    if isinstance(columns, pa.Field | pa.Schema):
        fields = [columns] if isinstance(columns, pa.Field) else list(columns)
        return _nulls(typed(pa.schema(fields)))
    if isinstance(columns, Mapping):
        if not columns:
            raise _bad(None, "no column is given")
        return _together([_named(n, v, schema, reads, sample, typed) for n, v in columns.items()])
    if callable(columns) and not hasattr(columns, "__arrow_c_stream__"):
        return _function(None, columns, reads, sample, typed)
    return _data(None, columns, typed)


def require_described(columns: object) -> None:
    """Raise `InvalidTypeError` unless `column_values` accepts the form of the argument."""
    if isinstance(columns, Mapping | pa.Field | pa.Schema) or callable(columns):
        return
    if any(hasattr(columns, way) for way in _ARROW_DATA):
        return
    raise InvalidTypeError(
        argument="columns",
        reason=f"{type(columns).__name__} is not SQL text, an expression, a function, "
        "or Arrow data",
        remedy='Pass a mapping such as {"total": "price * amount"}',
    )


_ARROW_DATA = ("__arrow_c_stream__", "__arrow_c_array__", "scanner", "to_reader")
Sample = Callable[[tuple[str, ...]], pa.RecordBatch]
Typed = Callable[[pa.Schema], StructType]  # Converts columns of Arrow.


def _named(
    name: str, value: Any, schema: StructType, reads: tuple[str, ...], sample: Sample, typed: Typed
) -> ColumnValues:
    if not isinstance(name, str) or not name:
        raise _bad(str(name), "a column's name was expected")
    if isinstance(value, str | Expression):
        return _expression(name, value, schema)
    if isinstance(value, pa.DataType):
        return _nulls(typed(pa.schema([pa.field(name, value)])))
    if callable(value) and not hasattr(value, "__arrow_c_stream__"):
        return _function(name, value, reads, sample, typed)
    return _data(name, value, typed)


def _expression(name: str, value: str | Expression, schema: StructType) -> ColumnValues:
    try:
        parsed = fixed_in_time(parse_sql(value) if isinstance(value, str) else value)
        bound, kind = bind_value(parsed, schema)
    except InvalidInputError as error:
        error.argument, error.field = "columns", name
        raise
    if kind == PrimitiveType("void"):
        raise _bad(
            name, "the value NULL has no type", "Write CAST(NULL AS …), or pass a pyarrow.DataType"
        )
    return ColumnValues(
        (StructField(name, kind),),
        tuple(dict.fromkeys(path[0] for path in columns_of(bound))),
        partial(_evaluated, name, bound),
    )


def _evaluated(name: str, value: Expression, rows: pa.RecordBatch) -> list[pa.Array]:
    with of_argument("columns", name):
        return [evaluate(value, rows)]


def _function(
    name: str | None, function: Callable[[pa.RecordBatch], Any], reads: tuple[str, ...],
    sample: Sample, typed: Typed,
) -> ColumnValues:  # fmt: skip
    """Return the columns of a function; a call with a few rows shows their types."""

    def call(rows: pa.RecordBatch) -> pa.RecordBatch | pa.Table:
        try:
            result = function(rows)
            if name is None:
                return pa.table(result) if isinstance(result, Mapping) else _as_table(result)
            return pa.table({name: _as_array(result)})
        except InvalidInputError:
            raise
        except Exception as error:  # The caller's function may raise anything.
            raise _bad(
                name, f"the function failed: {type(error).__name__}: {reason_of(error)}"
            ) from error

    fields = typed(_nullable(call(sample(reads)).schema)).fields

    def compute(rows: pa.RecordBatch) -> list[pa.Array]:
        result = call(rows)
        if result.schema.names != [field.name for field in fields]:
            raise _bad(name, f"the function now returned the columns {result.schema.names}")
        return [result.column(index) for index in range(result.num_columns)]

    return ColumnValues(fields, reads, compute)


def _as_table(values: Any) -> pa.Table:
    return as_reader(values).read_all()


def _as_array(values: Any) -> pa.Array | pa.ChunkedArray:
    if isinstance(values, pa.Array | pa.ChunkedArray):
        return values
    if isinstance(values, pa.RecordBatch | pa.Table):
        if values.num_columns != 1:
            raise _bad(None, f"one column was expected, not {values.num_columns}")
        return values.column(0)
    return arrow_array(values)


def _data(name: str | None, value: Any, typed: Typed) -> ColumnValues:
    """Return the columns of Arrow data, whose rows have the table's order."""
    if name is not None:
        value = _as_column(value)
    if isinstance(value, pa.Array | pa.ChunkedArray):
        value = pa.table({name or "": value})
    try:
        reader = as_reader(value)
    except InvalidInputError as error:
        raise _bad(
            name,
            f"{type(value).__name__} is not SQL text, an expression, a function, or Arrow data",
        ) from error
    if name is not None:
        if len(reader.schema) != 1:
            raise _bad(name, f"data of one column was expected, not of {len(reader.schema)}")
        fields = typed(pa.schema([reader.schema.field(0).with_name(name)])).fields
    else:
        fields = typed(reader.schema).fields
    rows = _RowStream(reader)
    return ColumnValues(fields, (), lambda batch: rows.take(batch.num_rows), True, rows.require_end)


def _as_column(value: Any) -> Any:
    """Convert a NumPy array, or a series of polars or pandas, to an Arrow column."""
    if isinstance(value, np.ndarray):
        if value.ndim != 1:
            raise _bad(None, f"an array of one dimension was expected, not of {value.ndim}")
        return arrow_array(value)
    library = type(value).__module__.partition(".")[0]
    is_series = library in ("polars", "pandas") and not hasattr(value, "columns")
    return pa.chunked_array(value) if is_series and hasattr(value, "__arrow_c_stream__") else value


class _RowStream:
    """A stream of batches that returns the next rows in any number."""

    def __init__(self, reader: pa.RecordBatchReader) -> None:
        self._schema = reader.schema
        self._batches: Iterator[pa.RecordBatch] = iter(reader)
        self._batch: pa.RecordBatch | None = None
        self._taken = 0

    def take(self, count: int) -> list[pa.Array]:
        parts = []
        while count and (batch := self._next()) is not None:
            parts.append(batch.slice(0, count))
            self._batch = batch.slice(parts[-1].num_rows)
            count -= parts[-1].num_rows
            self._taken += parts[-1].num_rows
        if count:
            raise _bad(None, f"the data ends after {self._taken} rows, but the table has more")
        table = pa.Table.from_batches(parts, schema=self._schema).combine_chunks()
        return [flat(column) for column in table.columns]

    def require_end(self) -> None:
        if self._next() is not None:
            raise _bad(None, f"the data has more than the table's {self._taken} rows")

    def _next(self) -> pa.RecordBatch | None:
        while self._batch is None or not self._batch.num_rows:
            self._batch = next(self._batches, None)
            if self._batch is None:
                return None
        return self._batch


def _nulls(fields: StructType) -> ColumnValues:
    kinds = [field.type for field in arrow_schema(fields)]
    nullable = tuple(replace(field, nullable=True) for field in fields.fields)
    return ColumnValues(
        nullable,
        (),
        lambda rows: [pa.nulls(rows.num_rows, kind) for kind in kinds],
        are_null=True,
    )


def _together(parts: list[ColumnValues]) -> ColumnValues:
    """Return several `ColumnValues` as one."""

    def compute(rows: pa.RecordBatch) -> list[pa.Array]:
        return [array for part in parts for array in part.compute(rows.select(list(part.reads)))]

    def check_end() -> None:
        for part in parts:
            part.check_end()

    return ColumnValues(
        tuple(field for part in parts for field in part.fields),
        tuple(dict.fromkeys(name for part in parts for name in part.reads)),
        compute,
        any(part.in_order for part in parts),
        check_end,
        all(part.are_null for part in parts),
    )


def _nullable(schema: pa.Schema) -> pa.Schema:
    return pa.schema([field.with_nullable(True) for field in schema])


def _bad(
    name: str | None, reason: str, remedy: str = "Nothing was committed. Correct the columns"
) -> InvalidInputError:
    return InvalidInputError(argument="columns", field=name, reason=reason, remedy=remedy)
