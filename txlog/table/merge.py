"""`Table.merge` and `Table.merge_insert`: builders with a method for each clause of a merge."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from txlog.table.handle import Handle
from txlog.verbs.merge.clauses import Clause, MergeRequest

if TYPE_CHECKING:
    from txlog.commit.operation import Outcome
    from txlog.expressions.tree import Expression


class TableMerger:
    """Builds a merge clause by clause; `execute` commits it.

    For each row, the first clause of a kind whose predicate is true applies.
    """

    def __init__(self, table: Handle, request: MergeRequest, noted: dict[str, Any]) -> None:
        self._table = table
        self._request = request
        self._noted = noted
        self._clauses: list[Clause] = []

    def __repr__(self) -> str:
        return f"<txlog.TableMerger: {', '.join(map(str, self._clauses)) or 'no clause'}>"

    def when_matched_update(
        self, updates: Mapping[str, Any], predicate: str | Expression | None = None
    ) -> TableMerger:
        """Update a target row that a source row matches.

        Parameters
        ----------
        updates
            Target columns or nested fields, with SQL text or expressions over both sides.
        predicate
            Apply the clause only if this is true for the two rows. Default: always.
        """
        return self._with(Clause("matched", "update", predicate, updates))

    def when_matched_update_all(
        self,
        predicate: str | Expression | None = None,
        except_cols: Sequence[str] | None = None,
    ) -> TableMerger:
        """Update a matched row with all values of the source, by column name.

        Fields of structs that the source lacks become null; `Table.upsert` keeps their values.
        """
        return self._with(Clause("matched", "update", predicate, None, except_cols or ()))

    def when_matched_delete(self, predicate: str | Expression | None = None) -> TableMerger:
        """Delete a target row that a source row matches."""
        return self._with(Clause("matched", "delete", predicate))

    def when_not_matched_insert(
        self, updates: Mapping[str, Any], predicate: str | Expression | None = None
    ) -> TableMerger:
        """Insert a source row that matches no target row; other columns get their defaults.

        Parameters
        ----------
        updates
            Target columns with SQL text or expressions over the source.
        predicate
            Apply the clause only if this is true for the source row.
        """
        return self._with(Clause("not_matched", "insert", predicate, updates))

    def when_not_matched_insert_all(
        self,
        predicate: str | Expression | None = None,
        except_cols: Sequence[str] | None = None,
    ) -> TableMerger:
        """Insert an unmatched source row with all of its values, by column name."""
        return self._with(Clause("not_matched", "insert", predicate, None, except_cols or ()))

    def when_not_matched_by_source_update(
        self, updates: Mapping[str, Any], predicate: str | Expression | None = None
    ) -> TableMerger:
        """Update a target row that no source row matches.

        This reads all files of the table. Values and predicate use only target columns.
        """
        return self._with(Clause("not_matched_by_source", "update", predicate, updates))

    def when_not_matched_by_source_delete(
        self, predicate: str | Expression | None = None
    ) -> TableMerger:
        """Delete a target row that no source row matches."""
        return self._with(Clause("not_matched_by_source", "delete", predicate))

    def _with(self, clause: Clause) -> TableMerger:
        self._clauses.append(clause)
        return self

    def execute(self) -> Outcome:
        """Commit the merge as one version.

        Raises
        ------
        InvalidInputError
            The condition or a clause does not fit the columns, or several source rows would change
            the same target row. Nothing was committed.
        SchemaMismatchError
            A value does not fit its column, or breaks a constraint. Nothing was committed.
        CommitConflictError
            Another writer's commit conflicts with the merge.
        """
        from txlog.verbs.merge.merge import Merge

        operation = Merge(self._request, self._clauses)
        return self._table._run(operation, **self._noted)


class MergeInsert:
    """A merge by key, in the form of pylance: first the clauses, then the rows.

    Conditions can use the names `source` and `target` for the sides.
    """

    def __init__(self, merge: Callable[..., TableMerger], on: Sequence[str]) -> None:
        self._merge = merge
        self._on = on
        self._clauses: list[Clause] = []

    def __repr__(self) -> str:
        return f"<txlog.MergeInsert: {', '.join(map(str, self._clauses)) or 'no clause'}>"

    def when_matched_update_all(self, condition: str | Expression | None = None) -> MergeInsert:
        """Update rows whose key occurs in the new rows, if a condition is true."""
        return self._with(Clause("matched", "update", condition, None))

    def when_matched_delete(self, condition: str | Expression | None = None) -> MergeInsert:
        """Delete rows whose key occurs in the new rows."""
        return self._with(Clause("matched", "delete", condition))

    def when_matched_fail(self) -> MergeInsert:
        """Raise an `InvalidInputError`, and commit nothing, if a key is in the table already."""
        return self._with(Clause("matched", "fail"))

    def when_not_matched_insert_all(self) -> MergeInsert:
        """Insert the new rows whose key is not in the table."""
        return self._with(Clause("not_matched", "insert", None, None))

    def when_not_matched_by_source_delete(
        self, expr: str | Expression | None = None
    ) -> MergeInsert:
        """Delete table rows whose key does not occur in the new rows, if a condition is true."""
        return self._with(Clause("not_matched_by_source", "delete", expr))

    def _with(self, clause: Clause) -> MergeInsert:
        self._clauses.append(clause)
        return self

    def execute(self, data: Any, **options: Any) -> Outcome:
        """Merge the rows in one commit; options and errors are those of `Table.merge`.

        Columns that the rows lack keep their values, and get their defaults in new rows. Fields of
        structs that the rows lack keep their values, and are null in new rows and in elements of
        arrays and maps, which are replaced as a whole.
        """
        from txlog.verbs.merge.condition import equal_columns

        merger = self._merge(data, equal_columns(self._on), **options)
        merger._clauses += [
            replace(clause, partial=True, keeps_fields=True) for clause in self._clauses
        ]
        return merger.execute()
