"""The commands `txlog branch …`."""

from __future__ import annotations

from typing import Annotated

import typer

from txlog.tools.cli.examine import (
    Columns,
    Count,
    Json,
    Keys,
    Limit,
    Predicate,
    TableUri,
    print_changes,
)
from txlog.tools.cli.output import print_outcome, print_rows, working
from txlog.tools.cli.tables import on_main

branch = typer.Typer(
    help="Create, list, publish and discard branches; `txlog --branch NAME …` works on one."
)
Name = Annotated[str, typer.Argument(help="The name of the branch.")]


@branch.command("create")
def create_branch(
    table: TableUri,
    name: Name,
    version: Annotated[int | None, typer.Option(help="Its base. Default: the latest.")] = None,
    json: Json = False,
) -> None:
    """Create a branch, which begins at a version of the table and copies no data."""
    print_outcome(on_main(table).branches.create(name, version), json)


@branch.command("list")
def list_branches(table: TableUri, json: Json = False) -> None:
    """List the open branches, and those that were closed last."""
    print_rows(f"Branches of {table}", on_main(table).branches.list().to_pylist(), json)


@branch.command("publish")
def publish_branch(table: TableUri, name: Name, json: Json = False) -> None:
    """Make the changes of a branch in one commit of the table, and close the branch."""
    with working("Publishing"):
        outcome = on_main(table).branches.publish(name)
    print_outcome(outcome, json)


@branch.command("discard")
def discard_branch(table: TableUri, name: Name, json: Json = False) -> None:
    """Close a branch without its changes."""
    print_outcome(on_main(table).branches.discard(name), json)


@branch.command("diff")
def diff_branch(
    table: TableUri,
    name: Name,
    on: Keys = None,
    column: Columns = None,
    where: Predicate = None,
    count: Count = False,
    limit: Limit = 100,
    json: Json = False,
) -> None:
    """Show the rows that a publish of a branch would add, delete or change."""
    found = on_main(table).branches.diff(name, on=on, columns=column, where=where)
    print_changes(found, count, limit, json)
