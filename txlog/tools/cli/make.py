"""The commands that make tables: `create` and `convert`."""

from __future__ import annotations

from typing import Annotated, Any

import pyarrow as pa
import typer

from txlog import Table, convert_to_delta, write
from txlog.extend import Outcome, StructField, StructType
from txlog.tools.cli.alter import type_of
from txlog.tools.cli.examine import Dry, Json, TableUri, pairs
from txlog.tools.cli.output import print_outcome, print_text
from txlog.tools.cli.sources import rows_of

Properties = Annotated[
    list[str] | None,
    typer.Option("--property", help="A property of the table: NAME=VALUE."),
]
Description = Annotated[str | None, typer.Option(help="What the table is for.")]


def create(
    table: TableUri,
    source: Annotated[
        str | None,
        typer.Argument(
            help="The first rows: a file (Parquet, CSV, JSON lines, Arrow, ORC), a folder of them, "
            "or a table."
        ),
    ] = None,
    column: Annotated[
        list[str] | None,
        typer.Option(help="Without a source: a column, as NAME=TYPE with the type as in SQL."),
    ] = None,
    partition_by: Annotated[
        list[str] | None, typer.Option(help="A column by whose values files are divided.")
    ] = None,
    cluster_by: Annotated[
        list[str] | None, typer.Option(help="A column by which optimize clusters rows.")
    ] = None,
    property_: Properties = None,
    description: Description = None,
    _dry_run: Dry = False,
    json: Json = False,
) -> None:
    """Create a table, with the rows of a file or of another table, or empty."""
    if (source is None) == (column is None):
        raise typer.BadParameter(
            "a table gets its columns from SOURCE or from --column: give one of the two",
            param_hint="SOURCE",
        )
    definition: dict[str, Any] = {
        "partition_by": partition_by,
        "cluster_by": cluster_by,
        "properties": pairs(property_, "--property"),
        "description": description,
    }
    if source is not None:
        made = write(table, rows_of(source, pa.schema([])), **definition)
    else:
        made = Table.create(table, _fields(column, "--column"), **definition)
    _print(made.outcome, json)


def convert(
    folder: Annotated[str, typer.Argument(help="A folder of Parquet files.")],
    partition_by: Annotated[
        list[str] | None,
        typer.Option(
            help="A partition column, as NAME=TYPE with the type as in SQL. Default: those of the "
            "names of folders, such as day=2026-11-01."
        ),
    ] = None,
    property_: Properties = None,
    description: Description = None,
    _dry_run: Dry = False,
    json: Json = False,
) -> None:
    """Make a table of the Parquet files in a folder, without a copy of them."""
    made = convert_to_delta(
        folder,
        _fields(partition_by, "--partition-by") if partition_by else None,
        properties=pairs(property_, "--property"),
        description=description,
    )
    _print(made.outcome, json)


def _fields(given: list[str] | None, option: str) -> StructType:
    """Return columns that are given as NAME=TYPE."""
    types = pairs(given, option)
    return StructType(tuple(StructField(name, type_of(kind)) for name, kind in types.items()))


def _print(outcome: Outcome | None, json: bool) -> None:
    if outcome is None:
        print_text("there was nothing to do")
    else:
        print_outcome(outcome, json)
