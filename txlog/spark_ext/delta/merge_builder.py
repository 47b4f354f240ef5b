"""`DeltaTable.merge(…)`: the clauses of a merge, by the method names of delta-spark."""

# ruff: noqa: N802 (the names are delta-spark's)

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from txlog.base.errors import InvalidInputError, named_for_callers
from txlog.spark_ext.delta.arguments import expression_in, updates_in
from txlog.spark_ext.delta.frames import as_frame
from txlog.verbs.merge.clauses import Action, Clause, Kind

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from txlog.commit.app_versions import AppVersion
    from txlog.commit.operation import Outcome
    from txlog.table.row_verbs import OnError
    from txlog.table.table import Table

_METRICS = {
    "num_updated_rows": "numTargetRowsUpdated",
    "num_deleted_rows": "numTargetRowsDeleted",
    "num_inserted_rows": "numTargetRowsInserted",
}
_MERGED = pa.schema([(name, pa.int64()) for name in ("num_affected_rows", *_METRICS)])

Values = Mapping[str, "str | Column"]
Refusal = tuple["OnError", "Table | str | os.PathLike[str] | None"]
"""What becomes of rows that do not fit, and their quarantine."""


class DeltaMergeBuilder:
    """Collects the clauses of a merge, and executes the merge.

    The first clause of a kind whose condition is true applies to a row. Conditions and values are
    SQL text or Columns over the source and the table. Each method returns a new builder and does
    not change this one.
    """

    def __init__(
        self,
        spark: SparkSession,
        run: Callable[[Sequence[Clause], bool, AppVersion | None, Refusal], Outcome],
    ) -> None:
        """Take the function that carries out a merge.

        Its arguments: clauses, schema evolution, transaction, and what becomes of rows that do not
        fit.
        """
        self._spark = spark
        self._run = run
        self._clauses: tuple[Clause, ...] = ()
        self._merges_schema = False

    def whenMatchedUpdate(
        self, condition: str | Column | None = None, set: Values | None = None
    ) -> DeltaMergeBuilder:
        """Update a row of the table that a row of the source matches."""
        return self._with("matched", "update", condition, updates_in(set, "set"))

    def whenMatchedUpdateAll(self, condition: str | Column | None = None) -> DeltaMergeBuilder:
        """Update all columns of a matched row, with the source's columns of the same names."""
        return self._with("matched", "update", condition)

    def whenMatchedDelete(self, condition: str | Column | None = None) -> DeltaMergeBuilder:
        """Delete a row of the table that a row of the source matches."""
        return self._with("matched", "delete", condition)

    def whenNotMatchedInsert(
        self, condition: str | Column | None = None, values: Values | None = None
    ) -> DeltaMergeBuilder:
        """Insert a row of the source that matches no row; other columns get their defaults."""
        return self._with("not_matched", "insert", condition, updates_in(values, "values"))

    def whenNotMatchedInsertAll(self, condition: str | Column | None = None) -> DeltaMergeBuilder:
        """Insert a row with all columns of the source, by their names."""
        return self._with("not_matched", "insert", condition)

    def whenNotMatchedBySourceUpdate(
        self, condition: str | Column | None = None, set: Values | None = None
    ) -> DeltaMergeBuilder:
        """Update a row of the table that no row of the source matches."""
        return self._with("not_matched_by_source", "update", condition, updates_in(set, "set"))

    def whenNotMatchedBySourceDelete(
        self, condition: str | Column | None = None
    ) -> DeltaMergeBuilder:
        """Delete a row of the table that no row of the source matches."""
        return self._with("not_matched_by_source", "delete", condition)

    def withSchemaEvolution(self) -> DeltaMergeBuilder:
        """Add the columns and nested fields that only the source has.

        The session's setting `spark.databricks.delta.schema.autoMerge.enabled` does this, too.
        """
        changed = copy(self)
        changed._merges_schema = True
        return changed

    def _with(
        self, kind: Kind, action: Action, condition: Any, updates: Values | None = None
    ) -> DeltaMergeBuilder:
        predicate = expression_in(condition, "condition")
        return self._with_clause(Clause(kind, action, predicate, updates))

    def _with_clause(self, clause: Clause) -> DeltaMergeBuilder:
        changed = copy(self)
        changed._clauses = (*self._clauses, clause)
        return changed

    def execute(
        self,
        *,
        txn: AppVersion | None = None,
        on_error: OnError = "error",
        quarantine: Table | str | os.PathLike[str] | None = None,
    ) -> DataFrame:
        """Commit the merge as one version; executors do all of its work.

        Parameters
        ----------
        txn
            In `foreachBatch`, `(name, batch_id)` commits every batch exactly once. Default: the
            session's settings `spark.databricks.delta.write.txnAppId` and `…txnVersion`.
        on_error, quarantine
            As for `Table.merge`: with `quarantine`, source rows that make rows which do not fit go
            into another table, each with its reason.

        Returns
        -------
        A frame with one row: the numbers of affected, updated, deleted, and inserted rows.

        Raises
        ------
        InvalidInputError
            A clause does not fit the columns, or several rows of the source would change one row of
            the table, or a value cannot be computed. Nothing was committed.
        SchemaMismatchError
            A value breaks a constraint, or does not fit its column. Nothing was committed.
        EngineError
            Spark failed. Nothing was committed.
        AnalysisException
            Spark cannot resolve an expression.
        """
        try:
            outcome = self._run(self._clauses, self._merges_schema, txn, (on_error, quarantine))
        except InvalidInputError as error:
            assigning = self._assigning(error.field)
            has_values = any(clause.updates for clause in self._clauses)
            words = {
                "data": assigning if has_values else "source",
                "predicate": "condition",
                "updates": assigning,
                "where": "condition",
            }
            error.argument = words.get(error.argument or "", error.argument)
            raise
        counts = {name: outcome.metrics.get(metric, 0) for name, metric in _METRICS.items()}
        row = {"num_affected_rows": sum(counts.values()), **counts}
        return as_frame(self._spark, [row], _MERGED)

    def _assigning(self, field: str | None) -> str:
        """Return the name of the argument that gives a column its value: `set` or `values`."""
        name = (field or "").lower()
        for clause in self._clauses:
            if any(name == column.lower() for column in clause.updates or ()):
                return "values" if clause.action == "insert" else "set"
        # It is that of a constraint, for example.
        actions = {clause.action for clause in self._clauses if clause.updates}
        return "values" if actions == {"insert"} else "set"


named_for_callers(DeltaMergeBuilder)
