"""SQL statements that change a table of a catalog: `DELETE`, `UPDATE`, `INSERT`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa

from txlog.base.errors import InvalidInputError
from txlog.commit.operation import Outcome
from txlog.table.query import sql

Query = Callable[[str], pa.Table]


class Changed(Protocol):
    """What a statement needs of a table."""

    @property
    def schema(self) -> pa.Schema:
        """The schema, as Arrow."""
        ...

    def append(self, data: pa.Table) -> Outcome:
        """Add rows."""
        ...

    def delete(self, where: str | None) -> Outcome:
        """Delete rows."""
        ...

    def update(self, updates: dict[str, str], where: str | None) -> Outcome:
        """Update rows."""
        ...


@dataclass(frozen=True)
class Statement:
    """A change of one table.

    `rows` is the query whose result an `INSERT` adds, and `columns` are the columns that it fills;
    none: all, in order. `updates` are the assignments of an `UPDATE`.
    """

    table: str
    kind: str  # DELETE, UPDATE or INSERT
    where: str | None = None
    updates: tuple[tuple[str, str], ...] = ()
    rows: str | None = None
    columns: tuple[str, ...] = ()

    def run(self, table: Changed, query: Query) -> Outcome:
        """Change a table; `query` returns the rows of a SELECT."""
        if self.kind == "DELETE":
            return table.delete(self.where)
        if self.kind == "UPDATE":
            return table.update(dict(self.updates), self.where)
        assert self.rows is not None
        names = list(self.columns) or table.schema.names
        found = query(self.rows)
        if found.num_columns != len(names):
            raise InvalidInputError(
                argument="statement",
                reason=f"the rows have {found.num_columns} columns, but {len(names)} are to be "
                f"filled: {', '.join(names)}",
                remedy="Name the columns: INSERT INTO t (a, b) SELECT …",
            )
        return table.append(found.rename_columns(names))


def run_statement(
    statement: str, table: Callable[[str], Changed], names: Mapping[str, Any]
) -> pa.Table | Outcome:
    """Run a query or a change; errors as for `changed_by`.

    Parameters
    ----------
    table
        Returns the table that a change is made to, by its name.
    names
        The tables that a query may name.
    """
    change = changed_by(statement)
    try:
        if change is None:
            return sql(statement, names)
        return change.run(table(change.table), lambda query: sql(query, names))
    except InvalidInputError as error:
        error.argument = "statement"  # Which argument it became, callers do not see.
        raise


def changed_by(statement: str) -> Statement | None:
    """Return the change that a statement makes; None: it is a query.

    Raises
    ------
    InvalidInputError
        It is not one statement, or another one.
    """
    import sqlglot
    from sqlglot import exp

    if not isinstance(statement, str):
        raise InvalidInputError(argument="statement", reason="the text of a statement was expected")
    try:
        parsed = [one for one in sqlglot.parse(statement, dialect="duckdb") if one is not None]
    except sqlglot.errors.SqlglotError:
        return None  # The engine of queries knows more, such as VERSION AS OF, and explains.
    if len(parsed) != 1:
        raise _unfit("one statement was expected")
    node = parsed[0]
    if isinstance(node, exp.Query):
        return None
    if node.args.get("with_") or node.args.get("with"):
        raise _unfit("WITH is possible in queries only")
    _require_plain(node)
    if isinstance(node, exp.Delete):
        return Statement(_name(node.this), "DELETE", _where(node))
    if isinstance(node, exp.Update):
        updates = []
        for one in node.expressions:
            if not isinstance(one, exp.EQ) or not isinstance(one.this, exp.Column):
                raise _unfit(f"{one.sql()} is not an assignment")
            name = ".".join(part.name for part in one.this.parts)
            updates.append((name, one.expression.sql(dialect="spark")))
        return Statement(_name(node.this), "UPDATE", _where(node), tuple(updates))
    if isinstance(node, exp.Insert) and isinstance(node.expression, exp.Query | exp.Values):
        into = node.this
        columns: tuple[str, ...] = ()
        if isinstance(into, exp.Schema):
            columns = tuple(one.name for one in into.expressions)
            into = into.this
        rows = node.expression
        text = rows.sql(dialect="duckdb")
        if isinstance(rows, exp.Values):
            text = f"SELECT * FROM ({text})"
        return Statement(_name(into), "INSERT", rows=text, columns=columns)
    raise _unfit(f"{node.key.upper()} is not one of SELECT, DELETE, UPDATE and INSERT")


# What a statement may have. Everything else that is written in it would be ignored.
_KNOWN = {
    "delete": {"this", "where"},
    "update": {"this", "expressions", "where"},
    "insert": {"this", "expression"},
}


def _require_plain(node: Any) -> None:
    """Raise if a statement has a clause that has no effect here."""
    known = _KNOWN.get(node.key)
    if known is None:
        return
    for name, value in node.args.items():
        if value and name not in known:
            raise _unfit(f"{node.key.upper()} with {name.strip('_')} is not possible")
    if alias := getattr(node.this, "alias", ""):
        raise _unfit(f"{node.key.upper()} gives the table the other name {alias}")


def _where(node: Any) -> str | None:
    where = node.args.get("where")
    return None if where is None else str(where.this.sql(dialect="spark"))


def _name(node: Any) -> str:
    return ".".join(part.name for part in node.parts)


def _unfit(reason: str) -> InvalidInputError:
    return InvalidInputError(
        argument="statement",
        reason=reason,
        remedy="Call a method of the transaction's table, which has all changes",
    )
