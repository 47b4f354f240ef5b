"""The commands, each a few lines over `Table`."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from txlog.cli.output import error_text, print_json, print_table, print_text
from txlog.errors import TxlogError
from txlog.table.table import Table

if TYPE_CHECKING:
    from txlog.commit.operation import Outcome

app = typer.Typer(
    name="txlog",
    help="ACID tables for PySpark and Arrow: look at a Delta table, or see a demonstration.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

Where = Annotated[str, typer.Argument(metavar="TABLE", help="A folder, or a URI of one.")]
Version = Annotated[int | None, typer.Option("--version", help="This version, not the latest.")]
Moment = Annotated[
    str | None, typer.Option("--timestamp", help="The latest version at this time (ISO 8601).")
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def run(arguments: list[str] | None = None) -> int:
    """Run a command and return its exit code."""
    try:
        app(arguments, standalone_mode=True)
    except TxlogError as error:
        print(error_text(error), file=sys.stderr)
        return 1
    except SystemExit as leaving:
        return leaving.code if isinstance(leaving.code, int) else 1
    return 0


def _time(moment_ms: int) -> str:
    moment = datetime.fromtimestamp(moment_ms / 1000, UTC)
    return moment.isoformat(sep=" ", timespec="milliseconds").removesuffix("+00:00")


@app.command()
def show(
    table: Where, version: Version = None, timestamp: Moment = None, json: Json = False
) -> None:
    """Say what a table is: version, protocol, size, properties."""
    found = Table(table, version=version, timestamp=timestamp)
    files = found.files()
    fact: dict[str, Any] = {
        "uri": found.uri,
        "id": found.metadata.id,
        "name": found.metadata.name,
        "version": found.version,
        "timestamp": _time(found.timestamp_ms),
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
def history(
    table: Where,
    limit: Annotated[int | None, typer.Option(min=0, help="At most so many commits.")] = None,
    json: Json = False,
) -> None:
    """List the commits, newest first."""
    entries = Table(table).history(limit)
    if json:
        print_json(entries)
        return
    print_table(
        f"History of {table}",
        ["version", "time (UTC)", "operation", "what it did", "engine"],
        [
            [
                entry["version"],
                _time(entry["timestamp"]),
                entry.get("operation"),
                ", ".join(f"{k} {v}" for k, v in (entry.get("operationMetrics") or {}).items()),
                entry.get("engineInfo"),
            ]
            for entry in entries
        ],
    )


@app.command()
def schema(
    table: Where, version: Version = None, timestamp: Moment = None, json: Json = False
) -> None:
    """List the columns."""
    found = Table(table, version=version, timestamp=timestamp)
    rows = [
        {
            "name": field.name,
            "type": str(field.type),
            "nullable": field.nullable,
            "partition": field.name in found.partition_columns,
        }
        for field in found.schema
    ]
    _print_rows(f"Columns of {table}", rows, json)


@app.command()
def files(
    table: Where, version: Version = None, timestamp: Moment = None, json: Json = False
) -> None:
    """List the data files."""
    found = Table(table, version=version, timestamp=timestamp).files()
    rows = found.drop_columns(["stats"]).to_pylist(maps_as_pydicts="strict")
    _print_rows(f"Files of {table}", rows, json)


@app.command()
def fragments(
    table: Where, version: Version = None, timestamp: Moment = None, json: Json = False
) -> None:
    """List the fragments: what tasks read, and what deletions refer to."""
    found = Table(table, version=version, timestamp=timestamp).fragments()
    rows = [
        {
            "id": fragment.id,
            "durable": fragment.is_durable,
            "physical_rows": fragment.physical_rows,
            "deleted_rows": fragment.num_deletions,
            "partition_values": dict(fragment.partition_values),
            "files": [file.path for file in fragment.files],
        }
        for fragment in found
    ]
    _print_rows(f"Fragments of {table}", rows, json)


@app.command()
def count(
    table: Where,
    where: Annotated[str | None, typer.Option(help="Only rows of which this SQL is true.")] = None,
    version: Version = None,
    timestamp: Moment = None,
    json: Json = False,
) -> None:
    """Count the rows."""
    rows = Table(table, version=version, timestamp=timestamp).count(where)
    if json:
        print_json({"rows": rows})
    else:
        print_text(str(rows))


@app.command()
def capabilities(
    table: Where, version: Version = None, timestamp: Moment = None, json: Json = False
) -> None:
    """Tell for each verb whether the table lets it be done, and if not, why."""
    found = Table(table, version=version, timestamp=timestamp).capabilities()
    rows = [
        {
            "verb": verb,
            "can": capability.can,
            "features": list(capability.features),
            "reason": capability.reason,
            "remedy": capability.remedy,
        }
        for verb, capability in found.items()
    ]
    _print_rows(f"Capabilities of {table}", rows, json)


@app.command()
def verify(
    table: Where, version: Version = None, timestamp: Moment = None, json: Json = False
) -> None:
    """Hold a version against its checksum (.crc); exits with 1 if they differ."""
    report = Table(table, version=version, timestamp=timestamp).maintenance.verify_checksum()
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
def compact(
    table: Where,
    where: Annotated[str | None, typer.Option(help="Only partitions of which it is true.")] = None,
    json: Json = False,
) -> None:
    """Rewrite small files, and files with many deleted rows, into fewer."""
    _print_outcome(Table(table).optimize.compact(where), json)


@app.command()
def restore(
    table: Where, version: Version = None, timestamp: Moment = None, json: Json = False
) -> None:
    """Make a new version that is what an older one was."""
    _print_outcome(Table(table).restore(version, timestamp), json)


@app.command()
def checkpoint(table: Where, json: Json = False) -> None:
    """Write a checkpoint of the latest version, so that opening is faster."""
    version = Table(table).maintenance.checkpoint()
    if json:
        print_json({"version": version})
    else:
        print_text(f"wrote a checkpoint of version {version}")


@app.command()
def demo(
    path: Annotated[
        Path | None, typer.Option(help="Keep the table in this new folder. Default: a temporary.")
    ] = None,
    excerpt: Annotated[
        bool, typer.Option(help="Use the excerpt that comes with txlog, not the whole year.")
    ] = False,
) -> None:
    """Stream a year of real flights into a table with Spark, and see what happens inside."""
    from txlog.cli.demo import run_demo

    raise typer.Exit(0 if run_demo(path, excerpt=excerpt) else 1)


def _print_outcome(outcome: Outcome, json: bool) -> None:
    if json:
        print_json({"version": outcome.version, "metrics": dict(outcome.metrics)})
    elif outcome.version is None:
        print_text("there was nothing to do")
    else:
        metrics = ", ".join(f"{name} {value}" for name, value in outcome.metrics.items())
        print_text(f"made version {outcome.version}: {metrics}")


def _print_rows(title: str, rows: list[dict[str, Any]], json: bool) -> None:
    if json:
        print_json(rows)
    else:
        names = list(rows[0]) if rows else ["nothing"]
        print_table(title, names, [list(row.values()) for row in rows])
