"""The word `DEFAULT` in place of a value, in rows that are inserted and in assignments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F  # noqa: N812 - as all of Spark's users name it

from txlog.base.errors import InvalidInputError
from txlog.data_files.constraints import default_value, is_generated
from txlog.expressions.tree import Literal, quote_name
from txlog.schema.types import (
    CURRENT_DEFAULT,
    ArrayType,
    MapType,
    StructField,
    StructType,
    fields_at,
)
from txlog.spark_ext.reads.predicates import constant_column
from txlog.spark_ext.spark_types import read_schema
from txlog.spark_ext.statements.statement_text import Reader, tokens_of
from txlog.verbs.merge.clauses import own_path

if TYPE_CHECKING:
    from pyspark.errors import AnalysisException
    from pyspark.sql import Column, DataFrame

_DEFAULT = "DEFAULT"
_AFTER_LIST = tuple(
    (word,)
    for word in ("FROM", "WHERE", "GROUP", "HAVING", "ORDER", "LIMIT", "UNION", "LATERAL", "WINDOW")
)
# `* EXCEPT (a)` combines nothing.
_COMBINING = (
    ("UNION",),
    *(
        (word, *follower)
        for word in ("EXCEPT", "MINUS", "INTERSECT")
        for follower in (
            ("ALL",), ("DISTINCT",), ("SELECT",), ("VALUES",), ("TABLE",), ("FROM",),
            ("(", "SELECT"), ("(", "VALUES"), ("(", "TABLE"), ("(", "FROM"), ("(", "WITH"),
            ("(", "("),
        )
    ),
)  # fmt: skip


@dataclass(frozen=True)
class Rows:
    """A query with the places at which it had the word DEFAULT, where it has NULL now.

    Parameters
    ----------
    text
        The query. Columns that say which rows had the word follow its own, one for each of `some`.
    every, some
        The columns that had the word in every row, and in some rows, by their places.
    """

    text: str
    every: frozenset[int] = frozenset()
    some: tuple[int, ...] = ()

    @property
    def is_list(self) -> bool:
        """Whether the word was in VALUES, where no column can have this name."""
        return bool(self.every or self.some) and self.text.startswith("VALUES")


def read_rows(text: str) -> Rows:
    """Return `VALUES (1, DEFAULT)` or `SELECT 1, DEFAULT` without the word DEFAULT. Pure.

    Other queries are returned as they are, such as a union: in it, the word would stand for the
    default in some rows, and in other rows, its column has values.

    Raises
    ------
    InvalidInputError
        VALUES with the word DEFAULT is a part of a query, or its rows have different lengths.
    """
    reader = Reader(text, tokens_of(text))
    if reader.accepts("SELECT"):
        return _selected(reader, text)
    if not reader.accepts("VALUES"):
        return Rows(text)
    rows: list[list[str]] = []
    while True:
        rows.append(reader.items() if reader.sees("(") else [reader.until((",",), ("AS",))])
        if not reader.accepts(","):
            break
    places = [{at for at, item in enumerate(row) if item.upper() == _DEFAULT} for row in rows]
    if not any(places):
        return Rows(text)
    widths = sorted({len(row) for row in rows})
    if widths[1:]:  # Spark would not know the word.
        raise InvalidInputError(
            argument="text",
            reason=f"the rows of VALUES have {' and '.join(map(str, widths))} values",
            remedy="Give each row the same number of values",
        )
    if reader.token is not None:
        raise misplaced_default()
    every = frozenset.intersection(*map(frozenset, places))
    some = tuple(sorted(set().union(*places) - every))
    lines = []
    for row, found in zip(rows, places, strict=True):
        items = ["NULL" if at in found else item for at, item in enumerate(row)]
        flags = ["true" if at in found else "false" for at in some]
        lines.append(f"({', '.join([*items, *flags])})")
    return Rows(f"VALUES {', '.join(lines)}", every, some)


def _selected(reader: Reader, text: str) -> Rows:
    if not reader.accepts("ALL") and reader.sees("DISTINCT"):
        return Rows(text)
    first = reader.token
    if first is None or _is_combined(Reader(text, tokens_of(text), reader.at)):
        return Rows(text)
    items = [reader.until((",",), *_AFTER_LIST)]
    while reader.accepts(","):
        items.append(reader.until((",",), *_AFTER_LIST))
    every = frozenset(at for at, item in enumerate(items) if item.upper() == _DEFAULT)
    if not every:
        return Rows(text)
    listed = ", ".join("NULL" if at in every else item for at, item in enumerate(items))
    return Rows(f"{text[: first.start]}{listed}{text[reader.passed :]}", every)


def _is_combined(reader: Reader) -> bool:
    """Return whether a query is combined with another one, after its SELECT."""
    reader.until(*_COMBINING)
    return reader.token is not None


def lacks_default(error: AnalysisException, text: str) -> bool:
    """Return whether Spark found no column for the word DEFAULT in a query."""
    name = (error.getMessageParameters() or {}).get("objectName", "")
    written = any(token.word == _DEFAULT for token in tokens_of(text))
    return written and name.strip("`").upper() == _DEFAULT


def misplaced_default() -> InvalidInputError:
    """Return the error for the word DEFAULT where it cannot stand for a column's default."""
    return InvalidInputError(
        argument="text",
        reason="DEFAULT stands for the default of a column only as a whole value in VALUES or in "
        "the list of one SELECT: without BY NAME, DISTINCT, UNION and the like, and with no "
        "parentheses around the query",
        remedy="Insert these rows by an INSERT INTO … VALUES or INSERT INTO … SELECT of their own, "
        "or do not name the column, which then gets its default",
    )


def without_defaults(frame: DataFrame, rows: Rows, schema: StructType) -> DataFrame:
    """Return the rows with the defaults of their columns, whose names are those of a table.

    A column that had DEFAULT in every row is left out, so that the write gives it its values.

    Raises
    ------
    InvalidInputError
        A column whose values are generated has DEFAULT in some rows only, or no other column has
        a value.
    """
    names = frame.columns
    flags = names[len(names) - len(rows.some) :]
    for at, flag in zip(rows.some, flags, strict=True):
        field = schema.get(names[at])
        assert field is not None
        value = frame[quote_name(names[at])]
        default = default_column(field)
        frame = frame.withColumn(names[at], F.when(frame[flag], default).otherwise(value))
    left_out = {names[at] for at in rows.every}
    kept = [name for name in names if name not in flags and name not in left_out]
    if not kept:  # A row needs one column to be there.
        fields = [schema.get(name) for name in names]
        plain = [one for one in fields if one and not (one.is_identity or is_generated(one))]
        if not plain:
            raise _generated(names[0])
        kept = [plain[0].name]
        frame = frame.withColumn(kept[0], default_column(plain[0]))
    return frame.select(*map(quote_name, kept))


def default_column(field: StructField) -> Column:
    """Return the default of a column as a constant in its type; null if it has none.

    Raises
    ------
    InvalidInputError
        Its values are generated, so there is no constant.
    """
    if field.is_identity or is_generated(field):
        raise _generated(field.name)
    want = read_schema(StructType((field,))).fields[0].dataType
    if isinstance(field.type, StructType | ArrayType | MapType):
        text = field.metadata.get(CURRENT_DEFAULT)
        return (F.lit(None) if text is None else F.expr(str(text))).cast(want)
    return constant_column(Literal(default_value(field).as_py())).cast(want)


def _generated(name: str) -> InvalidInputError:
    return InvalidInputError(
        argument="text",
        field=name,
        reason=f"the values of column {name} are generated, and DEFAULT stands for them only where "
        "all rows that are inserted have it, and a value in another column",
        remedy="Insert the other rows by another statement, or do not set the column",
    )


def assigned_defaults(
    updates: Mapping[str, str], schema: StructType, alias: str | None, *, inserts: bool
) -> dict[str, Any]:
    """Return assignments of SQL, with the defaults of columns in place of the word DEFAULT.

    Of a row that is inserted, and of generated columns, such assignments are left out: then the
    columns get these values.

    Raises
    ------
    InvalidInputError
        There is no such column, it is nested, or an update would number an identity column anew.
    """
    found: dict[str, Any] = {}
    for name, text in updates.items():
        if text.upper() != _DEFAULT:
            found[name] = text
            continue
        path = own_path(name, alias, schema)
        field = fields_at(schema, path, argument="text")[-1]
        if len(path) > 1:
            raise InvalidInputError(
                argument="text",
                field=name,
                reason=f"{name} is nested, and only columns of the table have defaults",
                remedy="Write NULL, or a value",
            )
        if not inserts and field.is_identity:
            raise InvalidInputError(
                argument="text",
                field=field.name,
                reason=f"{field.name} numbers rows when they are inserted, and an update gives no "
                "new numbers",
                remedy="Do not set the column, or set it to a value",
            )
        if not inserts and not is_generated(field):
            found[name] = default_column(field)
    return found


def given_names(names: Sequence[str], rows: Rows) -> list[str]:
    """Return the names of the columns of a query, with those that `read_rows` has added."""
    return [*names, *(f"_txlog_default_{at}" for at in rows.some)]
