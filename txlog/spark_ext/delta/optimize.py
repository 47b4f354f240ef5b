"""`DeltaTable.optimize()`."""

# ruff: noqa: N802, N803 (the names are delta-spark's)

from __future__ import annotations

from typing import TYPE_CHECKING

from txlog.base.errors import InvalidInputError, named_for_callers
from txlog.commit.operation import Outcome
from txlog.expressions.bind import columns_of
from txlog.expressions.sql import parse_sql
from txlog.expressions.tree import And, Expression, in_zone
from txlog.spark_ext.delta.arguments import names_in, of_type
from txlog.spark_ext.delta.frames import OPTIMIZE, as_frame, optimize_row
from txlog.spark_ext.zones import zone_of
from txlog.table.table import Table
from txlog.verbs.mapped_columns import clustering_columns

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from txlog.table.optimize import TableOptimize


class DeltaOptimizeBuilder:
    """Selects the files that `optimize` rewrites, and rewrites them."""

    def __init__(self, spark: SparkSession, table: Table) -> None:
        self._spark = spark
        self._table = table
        self._filters: tuple[Expression, ...] = ()

    def where(self, partitionFilter: str) -> DeltaOptimizeBuilder:
        """Choose files by a predicate over partition columns; several predicates must all be true.

        Raises
        ------
        InvalidInputError
            The text is not a predicate. Its columns are checked later, by the `execute` methods.
        """
        text = of_type(str, partitionFilter, "partitionFilter")
        self._filters += (in_zone(parse_sql(text), zone_of(self._spark)),)
        return self

    def executeCompaction(self) -> DataFrame:
        """Rewrite small files, and files with many deleted rows, into fewer files.

        A table with clustering columns is clustered by these columns. See `Table.optimize`.

        Returns
        -------
        A frame with one row, `path` and `metrics`: the numbers and bytes of added and removed
        files, and other known metrics of Delta.
        """
        optimize = self._optimize([])
        if clustering_columns(self._table.snapshot):
            return self._answer(optimize.cluster(self._where))
        return self._answer(optimize.compact(self._where))

    def _purged(self, predicate: str | None) -> DataFrame:
        """Rewrite only files with deleted rows, as `REORG TABLE … APPLY (PURGE)` does."""
        builder = self if predicate is None else self.where(predicate)
        optimize = builder._optimize([])
        files = optimize.compact(builder._where, min_file_bytes=1, max_deleted_fraction=0.0)
        return self._answer(files)

    def executeZOrderBy(self, *cols: str | list[str] | tuple[str, ...]) -> DataFrame:
        """Rewrite files so that rows with similar values in some columns are in few files.

        The order is Delta's Z-order curve. `Table.optimize.z_order` has a better one. The result is
        a frame as for `executeCompaction`.
        """
        names = names_in(cols, "cols")
        outcome = self._optimize(names).z_order(names, self._where, curve="z-order")
        return self._answer(outcome, all_files=True)

    def _optimize(self, order_by: list[str]) -> TableOptimize:
        """Check columns against the latest version, and return its `optimize`."""
        table = self._table.refresh()
        partitions = {name.lower() for name in table.partition_columns}
        for path in () if self._where is None else columns_of(self._where):
            if path[0].lower() not in partitions:  # The text is that of delta-spark.
                raise InvalidInputError(
                    argument="partitionFilter",
                    field=".".join(path),
                    reason=f"Predicate references non-partition column {path[0]!r}. Only the "
                    f"partition columns may be referenced: [{', '.join(table.partition_columns)}]",
                )
        for name in order_by:
            if name.lower() in partitions:
                raise InvalidInputError(
                    argument="cols",
                    field=name,
                    reason=f"{name} is a partition column. Z-Ordering can only be performed on "
                    "data columns",
                )
        return table.optimize

    @property
    def _where(self) -> Expression | None:
        return And(self._filters) if len(self._filters) > 1 else next(iter(self._filters), None)

    def _answer(self, outcome: Outcome, *, all_files: bool = False) -> DataFrame:
        row = optimize_row(self._table, outcome, all_files=all_files)
        return as_frame(self._spark, [row], OPTIMIZE)


named_for_callers(DeltaOptimizeBuilder)
