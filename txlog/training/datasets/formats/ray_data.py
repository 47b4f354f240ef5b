"""Ray Data: its data sets as sources, in the order of their rows; and tables as its data sets.

Rules: spec/datasets.md, DST-57 and DST-58.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from txlog.base.errors import (
    SchemaMismatchError,
    TxlogError,
    UnsupportedFeatureError,
    reason_of,
)
from txlog.training.datasets.formats.samples import without_extensions
from txlog.training.datasets.sources import refused

if TYPE_CHECKING:
    from txlog import Table

_ROWS = 1024  # Of one batch.


def rows_of_ray(source: Any) -> pa.RecordBatchReader:
    """Return the rows of a `ray.data.Dataset`. Its tasks run while the rows are read.

    Raises
    ------
    InvalidInputError
        It has no rows, or a task fails.
    SchemaMismatchError
        A column has tensors of several dimensions, or later rows have other columns.
    """
    if not hasattr(source, "iter_batches"):
        raise refused(
            f"a {type(source).__qualname__} is no data set of rows", "Pass a ray.data.Dataset"
        )
    tables = _tables(source)
    first = next(tables, None)
    if first is None:
        raise refused("the data set has no rows")
    for field in first.schema:
        shape = getattr(field.type, "shape", None)
        if hasattr(field.type, "storage_type") and (shape is None or len(shape) > 1):
            raise SchemaMismatchError(
                field=field.name,
                reason=f"the column {field.name} has tensors of several dimensions: {field.type}",
                remedy="Make lists of them, with one dimension",
            )
    return without_extensions(
        first.schema, chain([first], tables), "Give all rows the same columns and types with map"
    )


def as_ray(table: Table, columns: Sequence[str] | None) -> Any:
    """Return a `ray.data.Dataset` of a table's rows; its tasks read a fragment each.

    Raises
    ------
    UnsupportedFeatureError
        Ray Data is not installed.
    """
    try:
        import ray.data
    except ImportError as error:
        raise UnsupportedFeatureError(
            features=("Ray Data",),
            reason=f"Ray Data cannot be imported: {reason_of(error)}",
            remedy="Install it: pip install 'ray[data]'",
        ) from error

    fragments = list(table.fragments())
    chosen = None if columns is None else list(columns)
    scan = table.scan(chosen)  # It checks the columns.
    if not fragments:
        return ray.data.from_arrow(scan.schema.empty_table())

    def read(batch: pa.Table) -> Iterator[pa.Table]:
        for number in batch["fragment"].to_pylist():
            for rows in fragments[number].scanner(columns=chosen).to_batches():
                yield pa.Table.from_batches([rows])

    numbers = [{"fragment": number} for number in range(len(fragments))]
    tasks = ray.data.from_items(numbers, override_num_blocks=len(numbers))
    return tasks.map_batches(read, batch_size=1, batch_format="pyarrow")


def _tables(source: Any) -> Iterator[pa.Table]:
    """Yield the rows in order; without the option, they come in the order in which tasks end."""
    options = source.context.execution_options
    before = options.preserve_order
    options.preserve_order = True
    try:
        for table in source.iter_batches(batch_size=_ROWS, batch_format="pyarrow"):
            if table.num_rows:
                yield table
    except TxlogError:
        raise
    except Exception as error:  # Functions of the user run in the tasks.
        raise refused(f"the data set cannot be read: {reason_of(error)}") from error
    finally:
        options.preserve_order = before
