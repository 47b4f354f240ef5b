"""The commands that change or show rows, `sql`, and the commands of `txlog index`."""

from __future__ import annotations

from collections import ChainMap
from dataclasses import asdict
from enum import StrEnum
from typing import Annotated, Any, Literal

import pyarrow as pa
import typer

from txlog import Table, WriteOptions
from txlog import sql as run_query
from txlog.base.errors import InvalidInputError
from txlog.base.texts import version_of
from txlog.tools.cli.examine import Dry, Json, TableUri
from txlog.tools.cli.output import (
    as_rows,
    print_data,
    print_outcome,
    print_rows,
    working,
)
from txlog.tools.cli.sources import rows_of
from txlog.tools.cli.tables import named, opened


class Matched(StrEnum):
    """The change of table rows that the source matches."""

    UPDATE = "update"
    DELETE = "delete"
    IGNORE = "ignore"


class NotMatched(StrEnum):
    """The change for source rows that match no row."""

    INSERT = "insert"
    IGNORE = "ignore"


class NotInSource(StrEnum):
    """The change of table rows that no source row matches."""

    IGNORE = "ignore"
    DELETE = "delete"


Source = Annotated[
    str,
    typer.Argument(
        help="A file (Parquet, CSV, JSON lines, Arrow, ORC), a folder of them, or another table."
    ),
]
Merges = Annotated[bool, typer.Option("--merge-schema", help="Add new columns.")]
MismatchFails = Annotated[
    bool,
    typer.Option(
        "--error-on-type-mismatch/--no-error-on-type-mismatch",
        help="A value that its column cannot store is an error; otherwise it is cast, or null.",
    ),
]
Quarantined = Annotated[
    str | None,
    typer.Option(
        "--quarantine",
        help="Put rows that do not fit into this table, with their reasons, and commit the others.",
    ),
]


def append(
    table: TableUri,
    source: Source,
    merge_schema: Merges = False,
    quarantine: Quarantined = None,
    _dry_run: Dry = False,
    json: Json = False,
) -> None:
    """Add the rows of a file, a folder of files, or another table, in one commit."""
    target = opened(table)
    mode: Literal["merge"] | None = "merge" if merge_schema else None
    outcome = target.append(
        rows_of(source, target.schema),
        schema_mode=mode,
        on_error="error" if quarantine is None else "quarantine",
        quarantine=quarantine,
    )
    print_outcome(outcome, json)


def merge(
    table: TableUri,
    source: Source,
    on: Annotated[
        list[str],
        typer.Option(help="A column that is equal, or a condition: target.a = source.b."),
    ],
    when_matched: Annotated[
        Matched, typer.Option(help="For rows that the source matches.")
    ] = Matched.UPDATE,
    when_not_matched: Annotated[
        NotMatched, typer.Option(help="For rows of the source that match no row.")
    ] = NotMatched.INSERT,
    when_not_matched_by_source: Annotated[
        NotInSource, typer.Option(help="For rows that no source row matches.")
    ] = NotInSource.IGNORE,
    merge_schema: Merges = False,
    error_on_type_mismatch: MismatchFails = True,
    quarantine: Quarantined = None,
    _dry_run: Dry = False,
    json: Json = False,
) -> None:
    """Update, delete and insert rows, with those of a file, a folder or a table, in one commit.

    Columns that the source lacks do not change. In new rows they get their default, else null.
    """
    target = opened(table)
    rows = rows_of(source, target.schema)
    given = {name.lower() for name in rows.schema.names}
    absent = [name for name in target.schema.names if name.lower() not in given]
    merger = target.merge(
        rows,
        " AND ".join(f"({_condition(one)})" for one in on),
        schema_mode="merge" if merge_schema else None,
        on_error="error" if quarantine is None else "quarantine",
        quarantine=quarantine,
        options=WriteOptions(error_on_type_mismatch=error_on_type_mismatch),
    )
    if when_matched is Matched.UPDATE:
        merger.when_matched_update_all(except_cols=absent)
    elif when_matched is Matched.DELETE:
        merger.when_matched_delete()
    if when_not_matched is NotMatched.INSERT:
        merger.when_not_matched_insert_all(except_cols=absent)
    if when_not_matched_by_source is NotInSource.DELETE:
        merger.when_not_matched_by_source_delete()
    print_outcome(merger.execute(), json)


def update(
    table: TableUri,
    set_: Annotated[
        list[str], typer.Option("--set", help="COLUMN=SQL; may be given several times.")
    ],
    where: Annotated[str | None, typer.Option(help="Only rows for which this SQL is true.")] = None,
    error_on_type_mismatch: MismatchFails = True,
    _dry_run: Dry = False,
    json: Json = False,
) -> None:
    """Change values of rows, for example --set "delay=delay + 1"."""
    updates: dict[str, Any] = {}
    for text in set_:
        name, equals, value = text.partition("=")
        if not equals or not name.strip():
            raise typer.BadParameter(f"COLUMN=SQL was expected, not {text!r}", param_hint="--set")
        updates[name.strip()] = value
    options = WriteOptions(error_on_type_mismatch=error_on_type_mismatch)
    print_outcome(opened(table).update(updates, where, options=options), json)


def _condition(text: str) -> str:
    if any(sign in text for sign in "=<>"):
        return text
    name = text if text.startswith("`") else f"`{text}`"
    return f"target.{name} = source.{name}"


def lookup(
    table: Annotated[str, typer.Argument(metavar="TABLE", help="A folder or its URI.")],
    keys: Annotated[list[str], typer.Argument(help="The keys; the rows are in their order.")],
    on: Annotated[
        str | None, typer.Option(help="The key column. Default: the column of the only index.")
    ] = None,
    columns: Annotated[
        str | None, typer.Option(help="Columns to show, separated by commas.")
    ] = None,
    version: Annotated[
        str | None, typer.Option("--version", help="A version or a pin. Default: the latest.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show the rows with these keys, such as: txlog lookup flights UA B6 --on carrier."""
    found = opened(table, version=version_of(version))
    if on is None:
        on = _indexed_column(found)
    kind = found.schema.field(on).type if on in found.schema.names else pa.string()
    try:
        asked = pa.array(keys, pa.string()).cast(kind)
    except pa.ArrowException as error:
        raise InvalidInputError(
            argument="keys", reason=f"they are not values of {on!r} ({kind}): {error}"
        ) from error
    _print_found(table, found.lookup(asked, on=on, columns=_names(columns)), json)


def head(
    table: TableUri,
    rows: Annotated[int, typer.Option("--rows", "-n", min=0, help="The number of rows.")] = 5,
    columns: Annotated[
        str | None, typer.Option(help="Columns to show, separated by commas.")
    ] = None,
    where: Annotated[
        str | None, typer.Option(help="A predicate: only rows for which it is true.")
    ] = None,
    version: Annotated[
        str | None, typer.Option("--version", help="A version or a pin. Default: the latest.")
    ] = None,
    json: Json = False,
) -> None:
    """Show the first rows, such as: txlog head flights -n 3 --where "carrier = 'UA'"."""
    found = opened(table, version=version_of(version))
    _print_found(table, found.head(rows, _names(columns), where), json)


class Engine(StrEnum):
    """The engine that runs a query."""

    DUCKDB = "duckdb"
    POLARS = "polars"


def sql(
    query: Annotated[
        str, typer.Argument(help="A SELECT. FROM names a folder or URI in single or double quotes.")
    ],
    table: Annotated[
        list[str] | None, typer.Option(help="NAME=TABLE: a name for a table; may be repeated.")
    ] = None,
    root: Annotated[str, typer.Option(help="The folder or URI to which paths are relative.")] = "",
    engine: Annotated[Engine | None, typer.Option(help="Default: the installed one.")] = None,
    json: Json = False,
    csv: Annotated[bool, typer.Option("--csv", help="Print CSV with a header.")] = False,
) -> None:
    """Run a query over tables, with duckdb or polars."""
    if json and csv:
        raise typer.BadParameter("give one of the two, not both", param_hint="'--json' / '--csv'")
    tables: dict[str, Any] = {}
    for text in table or ():
        name, equals, place = text.partition("=")
        if not equals or not name:
            raise typer.BadParameter(f"NAME=TABLE was expected, not {text!r}", param_hint="--table")
        tables[name] = opened(place)
    known: Any = tables
    if (names := named()) is not None:
        moment: Any = names.snapshot()
        known = ChainMap(tables, moment)
    with working("Running the query"):
        found = run_query(query, known, engine=None if engine is None else engine.value, root=root)
    if csv:
        _print_csv(found)
    else:
        print_rows("", as_rows(found), json, names=found.schema.names)


def _print_csv(rows: pa.Table) -> None:
    import pyarrow.csv

    text = pa.BufferOutputStream()
    try:
        pyarrow.csv.write_csv(rows, text)
    except pa.ArrowException as error:
        raise InvalidInputError(
            argument="query",
            reason=f"CSV cannot hold the result: {error}",
            remedy="Select plain columns, or print --json",
        ) from error
    print_data(text.getvalue().to_pybytes().decode().removesuffix("\n"))


def _names(columns: str | None) -> list[str] | None:
    """Return the names of columns in a text that separates them by commas."""
    return None if columns is None else [name.strip() for name in columns.split(",")]


def _print_found(table: str, found: pa.Table, json: bool) -> None:
    """Print rows of a table as JSON or as a table."""
    print_rows(f"Rows of {table}", as_rows(found), json, names=found.schema.names)


def _indexed_column(table: Table) -> str:
    """Return the column of a table's only index."""
    columns = {info.columns for info in table.indexes.list().values()}
    if len(columns) != 1 or len(next(iter(columns))) != 1:
        raise InvalidInputError(
            argument="on",
            reason=f"the table has {len(columns)} indexes"
            if len(columns) != 1
            else "the index has several columns",
            remedy="Name the key column: --on NAME",
        )
    return next(iter(columns))[0]


index = typer.Typer(help="Create and maintain indexes over key columns, for look-ups.")
Name = Annotated[str | None, typer.Option(help="The index. Default: the only one.")]


@index.command("create")
def create_index(
    table: TableUri,
    columns: Annotated[list[str], typer.Argument(help="The key column, or several.")],
    name: Annotated[str | None, typer.Option(help="Default: made from the columns' names.")] = None,
    no_build: Annotated[
        bool, typer.Option("--no-build", help="Do not index the existing files.")
    ] = False,
    json: Json = False,
) -> None:
    """Define an index, and read the keys of the existing files."""
    with working("Reading keys"):
        done = opened(table).indexes.create(columns, name=name, build=not no_build)
    print_outcome(done, json)


@index.command("build")
def build_index(
    table: TableUri,
    name: Name = None,
    rebuild: Annotated[bool, typer.Option("--rebuild", help="Read all files again.")] = False,
    json: Json = False,
) -> None:
    """Read the keys of files that the index does not cover."""
    with working("Reading keys"):
        report = opened(table).indexes.build(name, rebuild=rebuild)
    print_rows(f"Index of {table}", [asdict(report)], json)


@index.command("merge")
def merge_index(table: TableUri, name: Name = None, json: Json = False) -> None:
    """Merge all segments of the index into one."""
    with working("Merging segments"):
        report = opened(table).indexes.merge(name)
    print_rows(f"Index of {table}", [asdict(report)], json)


@index.command("drop")
def drop_index(
    table: TableUri, name: Annotated[str, typer.Argument(help="The index.")], json: Json = False
) -> None:
    """Remove the index from the table, and delete its files."""
    print_outcome(opened(table).indexes.drop(name), json)


@index.command("show")
def show_indexes(table: TableUri, json: Json = False) -> None:
    """Show the indexes, and the number of files that they cover."""
    rows = [
        {**asdict(info), "bits_per_key": round(info.bits_per_key, 1)}
        for info in opened(table).indexes.list().values()
    ]
    if not json:
        rows = [{**row, **{n: ", ".join(row[n]) for n in ("columns", "forms")}} for row in rows]
    print_rows(f"Indexes of {table}", rows, json)
