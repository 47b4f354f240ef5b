"""The commands for a table: each calls a method of `Table` and prints the result."""

from __future__ import annotations

import sys
from contextlib import nullcontext
from functools import cache
from pathlib import PurePath
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from txlog import Table
from txlog.base.errors import TxlogError, UnsupportedFeatureError
from txlog.base.moments import moment_text
from txlog.base.remedies import Asked, on_command_line
from txlog.base.texts import version_of, without_secrets
from txlog.base.version import __version__
from txlog.extend import told_pairs, told_text
from txlog.tools.cli.alter import alter
from txlog.tools.cli.branches import branch
from txlog.tools.cli.catalogs import catalog
from txlog.tools.cli.datasets import datasets
from txlog.tools.cli.examine import Dry, Json, TableUri, examine, explain, with_examples
from txlog.tools.cli.maintain import maintenance
from txlog.tools.cli.make import convert, create
from txlog.tools.cli.output import (
    INTERRUPTED,
    clock,
    close_output,
    error_text,
    exit_code,
    metrics_text,
    newest_of,
    plain_warnings,
    print_error,
    print_json,
    print_line,
    print_outcome,
    print_rows,
    print_table,
    print_text,
    working,
)
from txlog.tools.cli.rows import append, head, index, lookup, merge, sql, update
from txlog.tools.cli.sources import FORMATS
from txlog.tools.cli.tables import opened, use_branch, use_catalog, use_zone

_WITHOUT_PROGRESS = {"demo", "ui"}  # Commands that print while they work.


class _Commands(TyperGroup):
    """The commands; Ctrl-C and a closed pipe end them quietly, with the exit codes of shells."""

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return a command: one of txlog, or else one that another package registers."""
        return super().get_command(ctx, cmd_name) or _registered(cmd_name)

    def invoke(self, ctx: Any) -> Any:
        """Run the command in the arguments."""
        try:
            with nullcontext() if _WITHOUT_PROGRESS & {*sys.argv[1:2]} else working("Working"):
                return super().invoke(ctx)
        except KeyboardInterrupt:
            raise SystemExit(INTERRUPTED) from None
        except BrokenPipeError:
            raise SystemExit(close_output()) from None


def _registered(name: str) -> Any:
    """Return the command of an entry point in the group `txlog.commands`; None if there is none.

    Raises
    ------
    UnsupportedFeatureError
        The entry point cannot be loaded, or is not a `typer.Typer`.
    """
    from importlib.metadata import entry_points

    for entry in entry_points(group="txlog.commands", name=name):
        try:
            found = entry.load()
            fault = "" if isinstance(found, typer.Typer) else "it is not a typer.Typer"
        except Exception as error:  # Another package's code may raise anything.
            fault = f"{type(error).__name__}: {error}"
        if fault:
            raise UnsupportedFeatureError(
                features=(name,),
                reason=f"the command {name} cannot be loaded from {entry.value}: {fault}",
                remedy="Repair the package that installs it, or remove it",
            )
        return typer.main.get_command(found)
    return None


app = typer.Typer(
    cls=_Commands,
    name="txlog",
    help="ACID tables for PySpark and Arrow: read, change and maintain Delta tables.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)

app.add_typer(alter, name="alter")
app.add_typer(catalog, name="catalog")
app.add_typer(branch, name="branch")
app.add_typer(datasets, name="datasets")
app.add_typer(index, name="index")
app.add_typer(maintenance)
app.add_typer(examine)
app.command()(create)
app.command()(convert)
app.command()(append)
app.command()(merge)
app.command()(update)
app.command()(head)
app.command()(lookup)
app.command()(sql)
app.command("help")(explain)

Version = Annotated[
    str | None, typer.Option("--version", help="A version or a pin. Default: the latest.")
]
Moment = Annotated[
    str | None, typer.Option("--timestamp", help="The version at this time (ISO 8601).")
]
_command = cache(lambda: typer.main.get_command(app))  # Loading a parser takes a tenth of a second.
_ONE_OF_TWO = "'--version' / '--timestamp'"


def run(arguments: list[str] | None = None) -> int:
    """Run a command and return its exit code."""
    try:
        with plain_warnings():
            _command()(arguments, prog_name="txlog", standalone_mode=True)
    except TxlogError as error:
        words = sys.argv[1:] if arguments is None else arguments
        print_error(error_text(error, asked(words)))
        return exit_code(error)
    except SystemExit as leaving:
        return leaving.code if isinstance(leaving.code, int) else 1
    return 0


def asked(words: list[str]) -> Asked:
    """Return the command that somebody called with these words, for texts about it."""
    command: Any = _command()
    rest = list(words)
    while hasattr(command, "commands"):  # A group.
        command = command.commands.get(rest[0]) if rest else None
        rest = rest[1:]
    if command is None:
        return Asked()
    # Only a parser: a context of the call itself would run the callbacks of options again.
    parser = command.make_parser(command.context_class(command, resilient_parsing=True))
    given, _, _ = parser.parse_args(rest)
    table: Any = given.get("table") or given.get("folder")
    if isinstance(table, str):
        others = [given.get("source"), given.get("target")]
    else:  # Each with the name that a query has for it.
        table, others = None, [one.partition("=")[2] for one in table or ()]
    named = tuple(
        one
        for one in others
        if isinstance(one, str) and PurePath(one).suffix.lower() not in FORMATS
    )
    return Asked(table, options_of(command), named, root=given.get("root"))


def options_of(command: Any) -> dict[str, str]:
    """Return what users write for each parameter of a command, by its name in Python."""
    options = {}
    for parameter in command.params:
        is_option = parameter.param_type_name == "option"
        written = (
            max(parameter.opts, key=len)
            if is_option
            else parameter.metavar or parameter.name.upper()
        )
        options[parameter.name] = written
    return options


def _print_version(asked: bool) -> None:
    if asked:
        print_text(f"txlog {__version__}")
        raise typer.Exit


@app.callback()
def common(
    version: Annotated[  # noqa: ARG001 (its callback prints it)
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print txlog's version."
        ),
    ] = False,
    time_zone: Annotated[
        str | None,
        typer.Option(
            help="Of SQL in all commands, such as America/New_York. Default: UTC. It is before the "
            "command."
        ),
    ] = None,
    on_branch: Annotated[
        str | None,
        typer.Option(
            "--branch", help="The branch of the table to work on. It is before the command."
        ),
    ] = None,
    database: Annotated[
        str | None,
        typer.Option(
            "--catalog",
            envvar="TXLOG_CATALOG",
            help="A file of SQLite, a URL of SQLAlchemy, or uc://host/catalog of Unity Catalog: "
            "tables are then also known by their names in this catalog. It is before the command.",
        ),
    ] = None,
) -> None:
    """ACID tables for PySpark and Arrow: read, change and maintain Delta tables."""
    use_zone(time_zone)
    use_branch(on_branch)
    use_catalog(database)


def _open(table: str, version: str | None, timestamp: str | None) -> Table:
    """Open a table at a version or a time, or at its latest version."""
    if version is not None and timestamp is not None:
        raise typer.BadParameter("give one of the two, not both", param_hint=_ONE_OF_TWO)
    return opened(table, version=version_of(version), timestamp=timestamp)


@app.command()
def show(
    table: TableUri, version: Version = None, timestamp: Moment = None, json: Json = False
) -> None:
    """Show a table: version, protocol, size, properties."""
    found = _open(table, version, timestamp)
    files = found.files()
    fact: dict[str, Any] = {
        "uri": without_secrets(found.uri),
        "id": found.metadata.id,
        "name": found.metadata.name,
        "version": found.version,
        "timestamp": moment_text(found.timestamp_ms, separator="T", digits=3, zone="Z"),
        "rows": found.count(),
        "files": files.num_rows,
        "bytes": sum(files["size_bytes"].to_pylist()),
        "deleted_rows": sum(files["num_deleted"].to_pylist()),
        "columns": len(found.schema),
        "partition_columns": found.partition_columns,
        "protocol": found.protocol.to_json(),
        "properties": found.properties,
    }
    if json:
        print_json(fact)
    else:
        print_table("", ["", ""], [[name, value] for name, value in fact.items()])


@app.command()
def follow(
    table: TableUri,
    start: Annotated[
        int | None, typer.Option(min=0, help="The first version. Default: the next one.")
    ] = None,
    token: Annotated[
        str | None, typer.Option(help="Instead of it: the token of a version, to go on after it.")
    ] = None,
    until: Annotated[int | None, typer.Option(min=0, help="The last version.")] = None,
    timeout: Annotated[
        float | None,
        typer.Option(min=0, help="End if no version came for so many seconds. Default: wait."),
    ] = None,
    json: Json = False,
) -> None:
    """Print each version as it is committed; --json prints a line of JSON for each."""
    for one in opened(table).follow(start, token=token, until=until, timeout_s=timeout):
        if json:
            found = {**one.info, "token": one.token}
            print_line(found)
        else:
            print_text(f"version {one.version}: {one.operation or 'unknown operation'}")


@app.command()
def history(
    table: TableUri,
    limit: Annotated[int | None, typer.Option(min=0, help="The largest number of commits.")] = None,
    json: Json = False,
) -> None:
    """List the commits, newest first."""
    entries = newest_of(table).history(limit)
    if json:
        print_json(entries)
        return
    print_table(
        f"History of {table}",
        ["version", "time (UTC)", "operation", "what it did", "engine"],
        [
            [
                entry["version"],
                clock(entry["timestamp"]),
                told_text(entry, "operation"),
                metrics_text(told_pairs(entry, "operationMetrics")),
                told_text(entry, "engineInfo"),
            ]
            for entry in entries
        ],
        whole=("time (UTC)",),
    )


@app.command()
def schema(
    table: TableUri, version: Version = None, timestamp: Moment = None, json: Json = False
) -> None:
    """List the columns."""
    found = _open(table, version, timestamp)
    places = {name: place for place, name in enumerate(found.sort_columns, 1)}
    rows = [
        {
            "name": field.name,
            "type": str(field.type),
            "nullable": field.nullable,
            "partition": field.name in found.partition_columns,
            **({"sorted": places.get(field.name)} if places else {}),
        }
        for field in found.schema
    ]
    print_rows(f"Columns of {table}", rows, json)


@app.command()
def files(
    table: TableUri, version: Version = None, timestamp: Moment = None, json: Json = False
) -> None:
    """List the data files."""
    listed = _open(table, version, timestamp)
    rows = listed.files().drop_columns(["stats"]).to_pylist(maps_as_pydicts="strict")
    if json:
        print_json(rows)
        return
    shown = [
        {
            "fragment": row["fragment_id"],
            "rows": row["num_records"],
            "deleted": row["num_deleted"],
            "bytes": row["size_bytes"],
            "partition": row["partition_values"],
            "path": row["path"],
        }
        for row in rows
    ]
    print_rows(f"Files of {table}", _without_partition(shown, listed), json=False)


@app.command()
def fragments(
    table: TableUri, version: Version = None, timestamp: Moment = None, json: Json = False
) -> None:
    """List the fragments: the units of reading and of deletions."""
    listed = _open(table, version, timestamp)
    rows: list[dict[str, Any]] = [
        {
            "id": fragment.id,
            "durable": fragment.is_durable,
            "physical_rows": fragment.physical_rows,
            "deleted_rows": fragment.num_deletions,
            "partition_values": dict(fragment.partition_values),
            "files": [file.path for file in fragment.files],
        }
        for fragment in listed.fragments()
    ]
    if json:
        print_json(rows)
        return
    shown = [
        {
            "id": row["id"],
            "durable": row["durable"],
            "rows": row["physical_rows"],
            "deleted": row["deleted_rows"],
            "partition": row["partition_values"],
            "files": "\n".join(row["files"]),
        }
        for row in rows
    ]
    print_rows(f"Fragments of {table}", _without_partition(shown, listed), json=False)


def _without_partition(rows: list[dict[str, Any]], table: Table) -> list[dict[str, Any]]:
    """Return rows without the column of partition values if the table has no partitions."""
    if table.partition_columns:
        return rows
    return [{name: row[name] for name in row if name != "partition"} for row in rows]


@app.command()
def count(
    table: TableUri,
    where: Annotated[str | None, typer.Option(help="Only rows for which this SQL is true.")] = None,
    version: Version = None,
    timestamp: Moment = None,
    json: Json = False,
) -> None:
    """Count the rows."""
    rows = _open(table, version, timestamp).count(where)
    if json:
        print_json({"rows": rows})
    else:
        print_text(str(rows))


@app.command()
def capabilities(
    table: TableUri, version: Version = None, timestamp: Moment = None, json: Json = False
) -> None:
    """Show for each verb whether the table allows it, and if not, why."""
    found = _open(table, version, timestamp).capabilities()
    rows = [
        {
            "verb": verb,
            "can": capability.can,
            "features": list(capability.features),
            "reason": capability.reason,
            "remedy": on_command_line(capability.remedy, Asked(table)),
            "may_add": list(capability.may_add),
        }
        for verb, capability in found.items()
    ]
    print_rows(f"Capabilities of {table}", rows, json, whole=("verb",))


@app.command()
def verify(
    table: TableUri, version: Version = None, timestamp: Moment = None, json: Json = False
) -> None:
    """Compare a version with its checksum (.crc); exits with 1 if they differ."""
    report = _open(table, version, timestamp).maintenance.verify_checksum()
    if json:
        print_json(
            {
                "version": report.version,
                "found": report.found,
                "ok": report.ok,
                "checked": list(report.checked),
                "problems": [str(problem) for problem in report.problems],
            }
        )
    else:
        print_text(str(report))
    raise typer.Exit(0 if report.ok else 1)


@app.command()
def delete(
    table: TableUri,
    where: Annotated[str, typer.Option(help="The rows for which this SQL is true.")],
    _dry_run: Dry = False,
    json: Json = False,
) -> None:
    """Delete rows."""
    print_outcome(opened(table).delete(where), json)


@app.command("set")
def set_properties(
    table: TableUri,
    properties: Annotated[list[str], typer.Argument(help="NAME=VALUE; NAME= removes it.")],
    _dry_run: Dry = False,
    json: Json = False,
) -> None:
    """Set table properties, for example delta.appendOnly=true."""
    given: dict[str, str] = {}
    unset: list[str] = []
    for text in properties:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise typer.BadParameter(f"NAME=VALUE was expected, not {text!r}")
        if value:
            given[name] = value
        else:
            unset.append(name)
    if given and unset:
        raise typer.BadParameter("set properties and remove others in two calls")
    alter = opened(table).alter
    print_outcome(alter.set_properties(given) if given else alter.unset_properties(unset), json)


@app.command()
def constraint(
    table: TableUri,
    name: Annotated[str, typer.Argument(help="The name of the constraint.")],
    check: Annotated[
        str | None,
        typer.Argument(help="SQL that all rows must satisfy, or a key: 'UNIQUE (id)'."),
    ] = None,
    drop: Annotated[bool, typer.Option("--drop", help="Drop the constraint.")] = False,
    _dry_run: Dry = False,
    json: Json = False,
) -> None:
    """Add a constraint (CHECK, UNIQUE, PRIMARY KEY), or drop one."""
    if drop == (check is not None):
        raise typer.BadParameter("give the SQL of a new constraint, or --drop")
    alter = opened(table).alter
    done = alter.drop_constraint(name) if check is None else alter.add_constraint({name: check})
    print_outcome(done, json)


@app.command()
def restore(
    table: TableUri,
    version: Version = None,
    timestamp: Moment = None,
    nearest: Annotated[
        bool, typer.Option("--nearest", help="For a time without a version, use the nearest one.")
    ] = False,
    ignore_missing_files: Annotated[
        bool, typer.Option("--ignore-missing-files", help="Restore without files that are gone.")
    ] = False,
    _dry_run: Dry = False,
    json: Json = False,
) -> None:
    """Restore an older version as a new version."""
    if (version is None) == (timestamp is None):
        raise typer.BadParameter(
            "give the version to restore, by one of these options", param_hint=_ONE_OF_TWO
        )
    done = newest_of(table).restore(
        version_of(version),
        timestamp,
        out_of_range="nearest" if nearest else "error",
        ignore_missing_files=ignore_missing_files,
    )
    print_outcome(done, json)


@app.command()
def checkpoint(table: TableUri, json: Json = False) -> None:
    """Write a checkpoint of the latest version, so that opening is faster."""
    version = opened(table).maintenance.checkpoint()
    if json:
        print_json({"version": version})
    else:
        print_text(f"wrote a checkpoint of version {version}")


@app.command()
def demo(
    place: Annotated[
        str | None,
        typer.Argument(
            metavar="[TABLE]",
            help="Keep the table in this new folder or URI, such as s3://bucket/flights. "
            "Default: a new one among the temporary files.",
        ),
    ] = None,
    path: Annotated[str | None, typer.Option(help="The same as TABLE.")] = None,
    excerpt: Annotated[
        bool, typer.Option(help="Use the excerpt in txlog instead of the whole year.")
    ] = False,
) -> None:
    """Stream a year of real flights into a table with Spark, and show what happens inside."""
    from txlog.tools.cli.demo import run_demo

    if place is not None and path is not None:
        raise typer.BadParameter("the place of the table is given twice", param_hint="'--path'")
    raise typer.Exit(0 if run_demo(place or path, excerpt=excerpt) else 1)


with_examples(app)
