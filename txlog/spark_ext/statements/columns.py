"""Definitions of columns in SQL: `st.b INT NOT NULL COMMENT '…' AFTER a`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql.types import StructType as SparkStruct

from txlog.base.errors import InvalidInputError, UnsupportedFeatureError
from txlog.schema.edit import Place
from txlog.schema.json import parse_schema
from txlog.schema.types import StructField
from txlog.spark_ext.catalog import split_name
from txlog.spark_ext.delta.builder import IdentityGenerator, one_field
from txlog.spark_ext.statements.statement_text import Reader

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# What may follow the type of a column.
_CLAUSES = (
    ("NOT", "NULL"), ("DEFAULT",), ("GENERATED",), ("COMMENT",), ("FIRST",), ("AFTER",), (",",),
)  # fmt: skip


@dataclass(frozen=True)
class ColumnText:
    """A column as SQL defines it: its type is text, and what is not stated is None."""

    name: str  # As written, with dots and backticks.
    kind: str
    nullable: bool | None = None
    comment: str | None = None
    default: str | None = None
    always: str | IdentityGenerator | None = None
    by_default: IdentityGenerator | None = None
    place: Place | None = None

    @property
    def path(self) -> tuple[str, ...]:
        """The names of the structs around it, and its own."""
        return tuple(split_name(self.name))

    def added(self, spark: SparkSession) -> StructField:
        """Return the column for `Table.alter.add_columns`, with its path as name.

        Raises
        ------
        InvalidInputError
            The text is not one type, or an existing table cannot get such a column.
        """
        if self.default is not None or self.always is not None or self.by_default is not None:
            raise UnsupportedFeatureError(
                field=self.name,
                reason=f"column {self.name} has a default or generated values, which existing rows "
                "lack",
                remedy=f"Add it without them. For new rows, ALTER COLUMN {self.name} SET DEFAULT "
                "(Table.alter.set_default) then gives it a default",
            )
        metadata = {} if self.comment is None else {"comment": self.comment}
        kind = type_of(spark, self.kind)
        return StructField(self.name, kind.type, self.nullable is not False, metadata)


def type_of(spark: SparkSession, text: str) -> StructField:
    """Return a column of a type in SQL.

    Raises
    ------
    InvalidInputError
        The text is not one type.
    """
    try:
        parsed = one_field(spark, f"x {text}")
    except ValueError as error:
        raise InvalidInputError(
            argument="text",
            reason=f"{text!r} is not a type: {error}",
            remedy="Write a name and one type, and several columns in parentheses",
        ) from error
    return parse_schema(SparkStruct([parsed]).json()).fields[0]


def read_column(reader: Reader, *, placed: bool = False) -> ColumnText:
    """Return the next column: a name, a type, and clauses in any order, each once.

    Parameters
    ----------
    placed
        Whether `FIRST` and `AFTER c` may follow.
    """
    name = reader.name()
    kind = reader.until(*_CLAUSES, types=True)
    found: dict[str, Any] = {}
    while reader.token is not None and not reader.sees(","):
        given = _clause(reader, placed=placed)
        if not given or given.keys() & found.keys():
            raise reader.unexpected("one NOT NULL, DEFAULT, GENERATED or COMMENT")
        found |= given
    return ColumnText(name, kind, **found)


def _clause(reader: Reader, *, placed: bool) -> dict[str, Any]:
    if reader.accepts("NOT", "NULL"):
        return {"nullable": False}
    if reader.accepts("COMMENT"):
        return {"comment": reader.quoted("a text")}
    if reader.accepts("DEFAULT"):
        return {"default": reader.until(*_CLAUSES)}
    if reader.accepts("GENERATED", "BY", "DEFAULT", "AS", "IDENTITY"):
        return {"by_default": _identity(reader)}
    if reader.accepts("GENERATED", "ALWAYS", "AS", "IDENTITY"):
        return {"always": _identity(reader)}
    if reader.accepts("GENERATED", "ALWAYS", "AS"):
        return {"always": ", ".join(reader.items())}
    if placed and (place := read_place(reader)) is not None:
        return {"place": place}
    return {}


def read_place(reader: Reader) -> Place | None:
    """Return the place that follows, `FIRST` or `AFTER c`, or None."""
    if reader.accepts("FIRST"):
        return "first"
    if reader.accepts("AFTER"):
        return "after", split_name(reader.name())[-1]
    return None


def _identity(reader: Reader) -> IdentityGenerator:
    """Return the values of an identity column: `(START WITH 5 INCREMENT BY 2)`, by default 1, 2."""
    start = step = 1
    if reader.accepts("("):
        while not reader.accepts(")"):
            if reader.accepts("START", "WITH"):
                start = _signed(reader)
            elif reader.accepts("INCREMENT", "BY"):
                step = _signed(reader)
            else:
                raise reader.unexpected("START WITH n or INCREMENT BY n")
    return IdentityGenerator(start, step)


def _signed(reader: Reader) -> int:
    sign = -1 if reader.accepts("-") else 1
    return sign * reader.number()
