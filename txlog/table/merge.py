"""`Table.merge` and `Table.merge_insert`: the clauses of a merge, one call each."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from txlog.table.handle import Handle, checked
from txlog.verbs.merge.clauses import Clause

if TYPE_CHECKING:
    from txlog.commit.operation import Outcome
    from txlog.expressions.tree import Expression


@checked
class TableMerger:
    """A merge whose clauses are added one by one; `execute` commits it.

    Of the clauses of one kind, the first whose predicate is true of a row applies to it.
    """

    def __init__(self, table: Handle, merge: dict[str, Any], noted: dict[str, Any]) -> None:
        self._table = table
        self._merge = merge
        self._noted = noted
        self._clauses: list[Clause] = []

    def when_matched_update(
        self, updates: Mapping[str, Any], predicate: str | Expression | None = None
    ) -> TableMerger:
        """Give a row of the target that a row of the source matches other values.

        Parameters
        ----------
        updates
            Columns of the target, or nested fields, with SQL text or expressions over both sides.
        predicate
            Only where this is true of both rows. Default: always.
        """
        return self._with(Clause("matched", "update", predicate, updates))

    def when_matched_update_all(
        self,
        predicate: str | Expression | None = None,
        except_cols: Sequence[str] | None = None,
    ) -> TableMerger:
        """Give a row that is matched all values of the source, by name of column."""
        return self._with(Clause("matched", "update", predicate, None, except_cols or ()))

    def when_matched_delete(self, predicate: str | Expression | None = None) -> TableMerger:
        """Delete a row of the target that a row of the source matches."""
        return self._with(Clause("matched", "delete", predicate))

    def when_not_matched_insert(
        self, updates: Mapping[str, Any], predicate: str | Expression | None = None
    ) -> TableMerger:
        """Insert a row for one of the source that matches none; other columns get their default.

        Parameters
        ----------
        updates
            Columns of the target with SQL text or expressions over the source.
        predicate
            Only where this is true of the row of the source.
        """
        return self._with(Clause("not_matched", "insert", predicate, updates))

    def when_not_matched_insert_all(
        self,
        predicate: str | Expression | None = None,
        except_cols: Sequence[str] | None = None,
    ) -> TableMerger:
        """Insert a row with all values of the source, by name of column."""
        return self._with(Clause("not_matched", "insert", predicate, None, except_cols or ()))

    def when_not_matched_by_source_update(
        self, updates: Mapping[str, Any], predicate: str | Expression | None = None
    ) -> TableMerger:
        """Give a row of the target that no row of the source matches other values.

        All files of the table are read then. Values and predicate are over the target alone.
        """
        return self._with(Clause("not_matched_by_source", "update", predicate, updates))

    def when_not_matched_by_source_delete(
        self, predicate: str | Expression | None = None
    ) -> TableMerger:
        """Delete a row of the target that no row of the source matches."""
        return self._with(Clause("not_matched_by_source", "delete", predicate))

    def _with(self, clause: Clause) -> TableMerger:
        self._clauses.append(clause)
        return self

    def execute(self) -> Outcome:
        """Commit the merge as one version.

        Raises
        ------
        InvalidInputError
            The condition or a clause does not fit the columns, or several rows of the source
            would change one row of the target. Nothing was committed.
        SchemaMismatchError
            A value does not fit its column, or breaks a constraint. Nothing was committed.
        CommitConflictError
            Another writer's commit forbids it.
        """
        from txlog.verbs.merge.merge import Merge

        operation = Merge(self._table._context, clauses=self._clauses, **self._merge)
        return self._table._run(operation, **self._noted)


class MergeInsert:
    """A merge by key whose clauses are given first and its rows last, as pylance has it.

    Conditions may name the sides, `source` and `target`.
    """

    def __init__(self, merge: Callable[..., TableMerger], on: Sequence[str]) -> None:
        self._merge = merge
        self._on = on
        self._clauses: list[Clause] = []

    def when_matched_update_all(self, condition: str | Expression | None = None) -> MergeInsert:
        """Give a row whose key the rows have all their values, where a condition is true."""
        return self._with(Clause("matched", "update", condition, None))

    def when_matched_delete(self, condition: str | Expression | None = None) -> MergeInsert:
        """Delete a row whose key the rows have."""
        return self._with(Clause("matched", "delete", condition))

    def when_not_matched_insert_all(self) -> MergeInsert:
        """Insert the rows whose key the table does not have."""
        return self._with(Clause("not_matched", "insert", None, None))

    def when_not_matched_by_source_delete(
        self, expr: str | Expression | None = None
    ) -> MergeInsert:
        """Delete a row of the table whose key the rows do not have, where a condition is true."""
        return self._with(Clause("not_matched_by_source", "delete", expr))

    def _with(self, clause: Clause) -> MergeInsert:
        self._clauses.append(clause)
        return self

    def execute(self, data: Any, **options: Any) -> Outcome:
        """Merge rows, as one version; options and errors are those of `Table.merge`."""
        from txlog.verbs.merge.condition import equal_columns

        merger = self._merge(data, equal_columns(self._on), **options)
        merger._clauses += self._clauses
        return merger.execute()
