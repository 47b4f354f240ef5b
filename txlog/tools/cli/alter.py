"""`txlog alter`: the commands that change the columns of a table."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from txlog.base.errors import InvalidInputError
from txlog.extend import DataType, StructField, parse_type
from txlog.tools.cli.examine import Dry, Json, TableUri
from txlog.tools.cli.output import print_json, print_outcome, print_text
from txlog.tools.cli.tables import opened

alter = typer.Typer(help="Change the columns of a table, without rewriting its files.")

Column = Annotated[str, typer.Argument(help="Its name; a field of a struct is a.b.")]


@alter.command()
def add(
    table: TableUri,
    columns: Annotated[list[str], typer.Argument(help="NAME=TYPE, the type as in SQL.")],
    _dry_run: Dry = False,
    json: Json = False,
) -> None:
    """Add columns, null in all rows, for example price="DECIMAL(10,2)"."""
    fields = []
    for text in columns:
        name, _, kind = text.partition("=")
        fields.append(StructField(name, type_of(kind)))
    print_outcome(opened(table).alter.add_columns(fields), json)


@alter.command()
def rename(
    table: TableUri,
    column: Column,
    new_name: Annotated[
        str, typer.Argument(help="The new name; for a field of a struct, only the last part.")
    ],
    _dry_run: Dry = False,
    json: Json = False,
) -> None:
    """Rename a column; needs column mapping."""
    print_outcome(opened(table).alter.rename_column(column, new_name), json)


@alter.command()
def drop(
    table: TableUri,
    columns: Annotated[list[str], typer.Argument(help="Their names; a field of a struct is a.b.")],
    _dry_run: Dry = False,
    json: Json = False,
) -> None:
    """Drop columns; needs column mapping."""
    print_outcome(opened(table).alter.drop_columns(columns), json)


@alter.command()
def move(
    table: TableUri,
    column: Column,
    after: Annotated[str | None, typer.Option(help="The column after which it is placed.")] = None,
    first: Annotated[bool, typer.Option("--first", help="Move it to the beginning.")] = False,
    _dry_run: Dry = False,
    json: Json = False,
) -> None:
    """Move a column, by default to the end."""
    print_outcome(opened(table).alter.move_column(column, after, first=first), json)


@alter.command()
def widen(
    table: TableUri,
    column: Column,
    kind: Annotated[str, typer.Argument(metavar="TYPE", help="As in SQL, such as BIGINT.")],
    _dry_run: Dry = False,
    json: Json = False,
) -> None:
    """Give a column a wider type."""
    print_outcome(opened(table).alter.widen_type(column, type_of(kind)), json)


@alter.command()
def nullable(
    table: TableUri,
    column: Column,
    no: Annotated[
        bool, typer.Option("--no", help="Forbid nulls; the column must not have any.")
    ] = False,
    _dry_run: Dry = False,
    json: Json = False,
) -> None:
    """Allow or forbid nulls in a column."""
    print_outcome(opened(table).alter.set_nullable(column, not no), json)


@alter.command()
def default(
    table: TableUri,
    column: Column,
    value: Annotated[str | None, typer.Argument(metavar="SQL", help="A constant.")] = None,
    drop_it: Annotated[bool, typer.Option("--drop", help="Remove the default.")] = False,
    _dry_run: Dry = False,
    json: Json = False,
) -> None:
    """Set the default of a column, for rows that are written without it."""
    if drop_it == (value is not None):
        raise typer.BadParameter("give the SQL of the default, or --drop")
    verbs = opened(table).alter
    done = verbs.drop_default(column) if value is None else verbs.set_default(column, value)
    print_outcome(done, json)


@alter.command("sync-identity")
def sync_identity(
    table: TableUri, column: Column, _dry_run: Dry = False, json: Json = False
) -> None:
    """Continue the counter of an identity column after the existing values."""
    print_outcome(opened(table).alter.sync_identity(column), json)


def type_of(text: str) -> DataType:
    """Return the type with an SQL name."""
    try:
        return parse_type(text)
    except InvalidInputError:
        raise typer.BadParameter(
            f"{text!r} is not an SQL type, such as BIGINT or DECIMAL(10,2)"
        ) from None


Plan = Annotated[bool, typer.Option("--dry-run", help="Only print the effect.")]


def _print_change(change: Any, json: bool) -> None:
    """Print what a change of the protocol would do, after `--dry-run`."""
    if not json:
        print_text(str(change))
        return
    found = {name: value for name, value in vars(change).items() if name not in ("before", "after")}
    for name in ("before", "after"):
        found[name] = getattr(change, name).to_json()
    print_json({**found, "readers_need": change.readers_need, "dry_run": True})


@alter.command("add-feature")
def add_feature(
    table: TableUri,
    features: Annotated[list[str], typer.Argument(help="Their names in the protocol.")],
    dry_run: Plan = False,
    json: Json = False,
) -> None:
    """Add table features: engines without them can no longer read, or write, the table."""
    change = opened(table).alter
    if dry_run:
        _print_change(change.protocol_change(add=features), json)
    else:
        print_outcome(change.add_features(*features), json)


@alter.command("drop-feature")
def drop_feature(
    table: TableUri,
    feature: Annotated[str, typer.Argument(help="Its name in the protocol.")],
    truncate_history: Annotated[
        bool, typer.Option("--truncate-history", help="Delete the log of all older versions.")
    ] = False,
    dry_run: Plan = False,
    json: Json = False,
) -> None:
    """Drop a table feature and all of its uses in the table."""
    change = opened(table).alter
    if dry_run:
        found = change.protocol_change(drop=feature, truncate_history=truncate_history)
        _print_change(found, json)
    else:
        print_outcome(change.drop_feature(feature, truncate_history), json)


@alter.command("upgrade")
def upgrade_protocol(
    table: TableUri,
    reader: Annotated[int, typer.Option(help="The version that readers must support.")],
    writer: Annotated[int, typer.Option(help="The version that writers must support.")],
    dry_run: Plan = False,
    json: Json = False,
) -> None:
    """Raise the versions of the protocol."""
    change = opened(table).alter
    if dry_run:
        _print_change(change.protocol_change(upgrade=(reader, writer)), json)
    else:
        print_outcome(change.upgrade_protocol(reader, writer), json)


@alter.command("cluster-by")
def cluster_by(
    table: TableUri,
    columns: Annotated[
        list[str] | None,
        typer.Argument(help="Up to four columns; without columns the clustering is removed."),
    ] = None,
    _dry_run: Dry = False,
    json: Json = False,
) -> None:
    """Set the columns by which the table is clustered."""
    print_outcome(opened(table).alter.cluster_by(*(columns or [])), json)
