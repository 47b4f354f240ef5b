"""`DeltaTable.optimize()`."""

# ruff: noqa: N802, N803 (the names are delta-spark's)

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

from txlog.expressions.sql import parse_sql
from txlog.expressions.tree import And, Expression
from txlog.spark_ext.delta.arguments import missing, of_type
from txlog.spark_ext.delta.frames import OPTIMIZE, as_frame, optimize_row
from txlog.table.table import Table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class DeltaOptimizeBuilder:
    """Says which files `optimize` is to put together, and does it."""

    def __init__(self, spark: SparkSession, table: Table) -> None:
        self._spark = spark
        self._table = table
        self._filters: tuple[Expression, ...] = ()

    def where(self, partitionFilter: str) -> DeltaOptimizeBuilder:
        """Choose files by a predicate over partition columns; several ones must all be true.

        Raises
        ------
        InvalidInputError
            The text is no predicate. That it is over partition columns is seen when it runs.
        """
        self._filters += (parse_sql(of_type(str, partitionFilter, "partitionFilter")),)
        return self

    def executeCompaction(self) -> DataFrame:
        """Rewrite small files, and files with many deleted rows, into fewer (`Table.optimize`).

        Returns
        -------
        A frame of one row, `path` and `metrics`: how many files came and went, and their sizes in
        bytes. Of Delta's metrics, those that are known.
        """
        where = And(self._filters) if len(self._filters) > 1 else next(iter(self._filters), None)
        outcome = self._table.optimize.compact(where)
        return as_frame(self._spark, [optimize_row(self._table, outcome)], OPTIMIZE)

    def executeZOrderBy(self, *cols: str | list[str] | tuple[str, ...]) -> NoReturn:
        """Raise: txlog does not order rows by several columns."""
        raise missing(
            "optimize().executeZOrderBy",
            "optimize().executeCompaction(); or overwrite the table with frame.sort(…), so that "
            "statistics of files exclude more",
        )
