"""`txlog catalog …`: tables by name, in the catalog of the option `--catalog`."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any

import typer

from txlog import Catalog
from txlog.base.moments import moment_text
from txlog.tools.cli.examine import Json
from txlog.tools.cli.output import print_json, print_rows, print_text
from txlog.tools.cli.tables import catalog as chosen

catalog = typer.Typer(
    help="Tables by name: txlog --catalog lake.db catalog tables.", no_args_is_help=True
)
Name = Annotated[str, typer.Argument(help="A name, such as sales.orders; case is ignored.")]


class Managed(StrEnum):
    """Who goes through the catalog."""

    no = "no"
    writes = "writes"
    all = "all"


@catalog.command()
def init(
    database: Annotated[str, typer.Argument(help="A file of SQLite, or a URL of SQLAlchemy.")],
    location: Annotated[
        str | None,
        typer.Option(help="The folder for new tables, or its URI. Default: that of the file."),
    ] = None,
    json: Json = False,
) -> None:
    """Make a catalog."""
    made = Catalog(database, location)
    _say({"id": made.id, "location": made.location}, f"tables are in {made.location}", json)


@catalog.command()
def tables(
    namespace: Annotated[str | None, typer.Argument(help="Only tables in this one.")] = None,
    dropped: Annotated[bool, typer.Option("--dropped", help="Dropped tables instead.")] = False,
    json: Json = False,
) -> None:
    """List the tables."""
    found = chosen().dropped() if dropped else chosen().tables(namespace)
    time = found.schema.names[-1]
    rows = [{**row, time: _text(row[time])} for row in found.to_pylist()]
    print_rows("Tables", rows, json, names=found.schema.names)


@catalog.command()
def register(
    name: Name,
    place: Annotated[str, typer.Argument(metavar="TABLE", help="The table's folder or URI.")],
    managed: Annotated[
        Managed, typer.Option(help="Whether its writers, or readers too, go through the catalog.")
    ] = Managed.no,
    json: Json = False,
) -> None:
    """Add a table that exists; its files stay where they are."""
    kind: Any = False if managed is Managed.no else managed.value
    made = chosen().register(name, place, managed=kind)
    _say({"name": name, "version": made.version}, f"{name} is version {made.version}", json)


@catalog.command()
def rename(
    name: Name, new_name: Annotated[str, typer.Argument(help="Its new name.")], json: Json = False
) -> None:
    """Give a table another name."""
    chosen().rename(name, new_name)
    _say({"name": new_name}, f"{name} is now {new_name}", json)


@catalog.command()
def drop(name: Name, json: Json = False) -> None:
    """Drop a table; undrop brings it back until it is purged."""
    chosen().drop(name)
    _say({"name": name}, f"{name} is dropped; undrop brings it back", json)


@catalog.command()
def undrop(
    name: Name,
    new_name: Annotated[str | None, typer.Option(help="Default: its old name.")] = None,
    json: Json = False,
) -> None:
    """Bring back a dropped table."""
    made = chosen().undrop(name, new_name)
    known = new_name or name
    _say({"name": known, "version": made.version}, f"{known} is version {made.version}", json)


@catalog.command()
def purge(
    retention_days: Annotated[float, typer.Option(min=0, help="Keep younger ones.")] = 7.0,
    history_days: Annotated[
        float, typer.Option(min=0, help="Remember this long when versions were committed.")
    ] = 30.0,
    delete_files: Annotated[
        bool, typer.Option("--delete-files", help="Do it. Default: only say which tables.")
    ] = False,
    json: Json = False,
) -> None:
    """Forget dropped tables with the files of those in the catalog's folder, and old history."""
    names = chosen().purge(retention_days, history_days=history_days, dry_run=not delete_files)
    said = f"{', '.join(names) or 'no table'} {'was' if delete_files else 'would be'} purged"
    _say({"tables": names, "dry_run": not delete_files}, said, json)


@catalog.command()
def manage(
    name: Name,
    kind: Annotated[Managed, typer.Option(help="Writers alone, or readers too.")] = Managed.writes,
    json: Json = False,
) -> None:
    """Let all writers of a table, or its readers too, go through the catalog."""
    asked: Any = False if kind is Managed.no else kind.value
    made = chosen().manage(name, asked) if asked else chosen().release(name)
    _say({"name": name, "version": made.version}, f"{name} is version {made.version}", json)


@catalog.command()
def release(name: Name, json: Json = False) -> None:
    """Let a table out: its commits no longer go through the catalog."""
    made = chosen().release(name)
    _say({"name": name, "version": made.version}, f"{name} is not managed any more", json)


@catalog.command()
def repair(name: Name, json: Json = False) -> None:
    """Accept commits that a table's log has and the catalog, an older copy, does not know."""
    made = chosen().repair(name)
    _say({"name": name, "version": made.version}, f"{name} is version {made.version}", json)


def _say(facts: dict[str, Any], text: str, json: bool) -> None:
    if json:
        print_json(facts)
    else:
        print_text(text)


def _text(time: Any) -> str | None:
    if time is None:
        return None
    return moment_text(round(time.timestamp() * 1000), separator="T", digits=3, zone="Z")
