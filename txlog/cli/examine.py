"""The commands that compare versions and examine a table, `diff` and `doctor` among them."""

from __future__ import annotations

import sys
from itertools import chain
from typing import Annotated, Any

import typer

from txlog.cli.output import as_rows, print_json, print_rows, print_text
from txlog.scan.scan import first_rows
from txlog.snapshot.time_travel import version_of
from txlog.table.table import Table

examine = typer.Typer()

Where = Annotated[str, typer.Argument(metavar="TABLE", help="A folder, or a URI of one.")]
Predicate = Annotated[str | None, typer.Option("--where", help="Only rows of which this is true.")]
Columns = Annotated[
    list[str] | None, typer.Option("--column", help="Only this column; may be repeated.")
]
Limit = Annotated[int, typer.Option(help="How many rows at most; -1: all.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@examine.command()
def diff(
    table: Where,
    start: Annotated[str, typer.Argument(help="A version, or the name of a pin.")],
    end: Annotated[str | None, typer.Argument(help="The same. Default: the latest.")] = None,
    on: Annotated[
        list[str] | None, typer.Option(help="A column that tells rows apart; may be repeated.")
    ] = None,
    column: Columns = None,
    where: Predicate = None,
    count: Annotated[bool, typer.Option("--count", help="Only how many rows changed.")] = False,
    limit: Limit = 100,
    json: Json = False,
) -> None:
    """Show the rows that came, went or changed between two versions."""
    first, last = version_of(start), version_of(end)
    assert first is not None
    found = Table(table).diff(first, last, on=on, columns=column, where=where)
    if count:
        counts = found.count()
        print_json(counts) if json else print_rows("", [counts], json=False)
        return
    _print_some(found.to_batches(), limit, json)


@examine.command()
def blame(
    table: Where, column: Columns = None, where: Predicate = None, limit: Limit = 100,
    json: Json = False,
) -> None:  # fmt: skip
    """Show rows with the version, time, operation and user that wrote each."""
    _print_some(Table(table).blame(column, where).to_batches(), limit, json)


@examine.command()
def doctor(
    table: Where,
    sample: Annotated[
        int, typer.Option(help="How many data files are opened at most; -1: all.")
    ] = 32,
    json: Json = False,
) -> None:
    """Say what is wrong or slow in a table, and what mends it; exits with 1 if rows are at risk."""
    found = Table(table).doctor(sample=None if sample < 0 else sample)
    if json:
        facts = {"version": found.version, "ok": found.ok, "files": found.files}
        facts |= {"files_opened": found.files_opened, "findings": found.to_arrow().to_pylist()}
        print_json(facts)
    else:
        print_text(str(found))
    raise typer.Exit(0 if found.ok else 1)


@examine.command()
def report(
    table: Where,
    output: Annotated[
        str,
        typer.Option("--output", "-o", help="The file; one that is there is replaced."),
    ] = "report.html",
    sample: Annotated[
        int, typer.Option(help="How many data files are opened at most; -1: all.")
    ] = 8,
    json: Json = False,
) -> None:
    """Write a picture of a table, one page of HTML: its history, files, skipping, findings."""
    made = Table(table).report(None if sample < 0 else sample)
    made.save(output)
    if json:
        print_json({"output": output, "version": made.facts.version, "bytes": len(made.html)})
    else:
        print_text(f"{output}: version {made.facts.version} of {made.facts.uri}")


@examine.command()
def ui(
    tables: Annotated[
        list[str],
        typer.Argument(metavar="TABLE|FOLDER...", help="Tables, or folders with tables below."),
    ],
    port: Annotated[int, typer.Option(help="0: one that is free.")] = 8765,
    write: Annotated[
        bool, typer.Option("--write", help="Offer forms that make and drop pins.")
    ] = False,
    no_open: Annotated[bool, typer.Option("--no-open", help="Do not open the browser.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print the address as JSON.")] = False,
) -> None:
    """Show tables in a browser on this machine, until Ctrl-C: rows, versions, files, a report."""
    from txlog.ui.server import serve

    def tell(url: str, count: int) -> None:
        if json:
            print_json({"url": url, "tables": count})
        else:
            print_text(f"{count} table{'s' if count > 1 else ''} at {url}\nCtrl-C ends it.")
        sys.stdout.flush()

    opens = not no_open and not json and sys.stdout.isatty()
    serve(tables, port=port, writes=write, opens=opens, tell=tell)


@examine.command()
def repair(
    table: Where,
    write: Annotated[
        bool, typer.Option("--write", help="Do it; otherwise it is only said what would be done.")
    ] = False,
    missing_files: Annotated[
        bool, typer.Option("--missing-files", help="Also give up the rows of files that are gone.")
    ] = False,
    json: Json = False,
) -> None:
    """Mend the log of a table: checkpoint, checksum, and on demand the entries of lost files."""
    rows = Table(table).repair(not write, missing_files).to_pylist()
    if json:
        print_json({"written": write, "repairs": rows})
        return
    print_rows("", rows, json=False)
    if rows and not write:
        print_text("nothing was written (pass --write)")


def _print_some(batches: Any, limit: int, json: bool) -> None:
    kept = batches if limit < 0 else first_rows(batches, limit)
    rows = list(chain.from_iterable(map(as_rows, kept)))
    print_rows("", rows, json)
