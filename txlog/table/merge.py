"""`Table.merge`: a builder with a method for each clause of a merge."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from txlog.base.errors import InvalidInputError, named_for_callers
from txlog.verbs.merge.clauses import Action, Clause, Kind

if TYPE_CHECKING:
    from txlog.commit.operation import Outcome
    from txlog.expressions.tree import Expression


class TableMerger:
    """Builds a merge clause by clause; `execute` commits it, or adds it to a transaction.

    For each row, the first clause of a kind whose predicate is true applies.
    """

    def __init__(self, run: Callable[[Sequence[Clause]], Outcome], *, by_key: bool = False) -> None:
        """Take the function that carries out the merge with its clauses.

        `by_key` lets clauses of all columns keep the columns and fields that the source lacks.
        """
        self._run = run
        self._by_key = by_key
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

        In a merge `on` key columns or with `schema_mode`, columns and fields of structs that the
        source lacks keep their values. Else the source must have all of them.
        """
        return self._with(self._of_all("matched", "update", predicate, except_cols))

    def when_matched_delete(self, predicate: str | Expression | None = None) -> TableMerger:
        """Delete a target row that a source row matches."""
        return self._with(Clause("matched", "delete", predicate))

    def when_matched_fail(self, predicate: str | Expression | None = None) -> TableMerger:
        """Let `execute` raise an `InvalidInputError` if a source row matches a target row."""
        return self._with(Clause("matched", "fail", predicate))

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
        """Insert an unmatched source row with all of its values, by column name.

        In a merge `on` key columns, columns that the source lacks get their defaults.
        """
        return self._with(self._of_all("not_matched", "insert", predicate, except_cols))

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

    def _of_all(
        self,
        kind: Kind,
        action: Action,
        predicate: str | Expression | None,
        except_cols: Sequence[str] | None,
    ) -> Clause:
        return Clause(
            kind,
            action,
            predicate,
            except_cols=except_cols or (),
            partial=self._by_key,
            keeps_fields=self._by_key,
        )

    def _with(self, clause: Clause) -> TableMerger:
        self._clauses.append(clause)
        return self

    def execute(self) -> Outcome:
        """Commit the merge as one version, or as a part of its transaction.

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
        try:
            return self._run(self._clauses)
        except InvalidInputError as error:
            # What other verbs call these. The values come from the clauses, or else the source.
            values = "updates" if any(one.updates for one in self._clauses) else "source"
            words = {"data": values, "updates": values, "where": "predicate", "schema": "source"}
            error.argument = words.get(error.argument or "", error.argument)
            raise


named_for_callers(TableMerger)
