"""`txlog alter`: the commands that change the columns of a table."""

from __future__ import annotations

from typing import Annotated

import typer

from txlog.cli.output import print_outcome
from txlog.errors import InvalidInputError
from txlog.expressions.sql import parse_sql
from txlog.expressions.tree import Cast
from txlog.schema.types import DataType, StructField
from txlog.table.table import Table

alter = typer.Typer(help="Change the columns of a table, without rewriting its files.")

Where = Annotated[str, typer.Argument(metavar="TABLE", help="A folder, or a URI of one.")]
Column = Annotated[str, typer.Argument(help="Its name; fields of structs with dots.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@alter.command()
def add(
    table: Where,
    columns: Annotated[list[str], typer.Argument(help="NAME=TYPE, the type as in SQL.")],
    json: Json = False,
) -> None:
    """Add columns, null in all rows, for example price="DECIMAL(10,2)"."""
    fields = []
    for text in columns:
        name, _, kind = text.partition("=")
        fields.append(StructField(name, _type(kind)))
    print_outcome(Table(table).alter.add_columns(fields), json)


@alter.command()
def rename(
    table: Where,
    column: Column,
    new_name: Annotated[str, typer.Argument(help="The new name alone.")],
    json: Json = False,
) -> None:
    """Give a column another name; needs column mapping."""
    print_outcome(Table(table).alter.rename_column(column, new_name), json)


@alter.command()
def drop(
    table: Where,
    columns: Annotated[list[str], typer.Argument(help="Names; fields of structs with dots.")],
    json: Json = False,
) -> None:
    """Drop columns; needs column mapping."""
    print_outcome(Table(table).alter.drop_columns(columns), json)


@alter.command()
def move(
    table: Where,
    column: Column,
    after: Annotated[str | None, typer.Option(help="The column that it comes after.")] = None,
    first: Annotated[bool, typer.Option("--first", help="To the beginning.")] = False,
    json: Json = False,
) -> None:
    """Move a column, to the end if nothing else is said."""
    print_outcome(Table(table).alter.move_column(column, after, first=first), json)


@alter.command()
def widen(
    table: Where,
    column: Column,
    kind: Annotated[str, typer.Argument(metavar="TYPE", help="As in SQL, such as BIGINT.")],
    json: Json = False,
) -> None:
    """Give a column a wider type."""
    print_outcome(Table(table).alter.widen_type(column, _type(kind)), json)


@alter.command()
def nullable(
    table: Where,
    column: Column,
    no: Annotated[bool, typer.Option("--no", help="Forbid nulls; there must be none.")] = False,
    json: Json = False,
) -> None:
    """Let a column be null, or forbid it."""
    print_outcome(Table(table).alter.set_nullable(column, not no), json)


def _type(text: str) -> DataType:
    """Return the type that SQL calls so."""
    try:
        cast = parse_sql(f"CAST(NULL AS {text})")
    except InvalidInputError:
        cast = None
    if not isinstance(cast, Cast):
        raise typer.BadParameter(f"{text!r} is no type of SQL, such as BIGINT or DECIMAL(10,2)")
    return cast.type
