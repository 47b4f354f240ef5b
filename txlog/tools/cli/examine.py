"""The commands that compare versions and examine a table, and the command `help`.

`help` explains an error and its remedy. `EXAMPLES` has an example of each command. `TableUri`,
`Json` and `Dry` are arguments of commands in all modules.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace
from importlib.resources import files
from itertools import chain
from pathlib import Path
from typing import Annotated, Any

import typer

from txlog.base.columns import first_rows
from txlog.base.errors import InvalidInputError
from txlog.base.remedies import Asked, on_command_line
from txlog.base.texts import version_of
from txlog.extend import rehearsing
from txlog.tools.cli.output import (
    as_rows,
    console,
    newest_of,
    print_json,
    print_rows,
    print_table,
    print_text,
)
from txlog.tools.cli.tables import opened, shown

examine = typer.Typer()

TableUri = Annotated[str, typer.Argument(metavar="TABLE", help="A folder or its URI.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Predicate = Annotated[str | None, typer.Option("--where", help="Only rows for which this is true.")]
Columns = Annotated[
    list[str] | None, typer.Option("--column", help="Only this column; may be repeated.")
]
Limit = Annotated[int, typer.Option(help="The largest number of rows; -1: all.")]
Keys = Annotated[
    list[str] | None, typer.Option(help="A column that identifies rows; may be repeated.")
]
Count = Annotated[bool, typer.Option("--count", help="Only the number of changed rows.")]


@examine.command()
def diff(
    table: TableUri,
    start: Annotated[str, typer.Argument(help="A version, or the name of a pin.")],
    end: Annotated[
        str | None, typer.Argument(help="A version or a pin. Default: the latest.")
    ] = None,
    on: Keys = None,
    column: Columns = None,
    where: Predicate = None,
    count: Count = False,
    limit: Limit = 100,
    json: Json = False,
) -> None:
    """Show the rows that were added, deleted or changed between two versions."""
    first, last = version_of(start), version_of(end)
    assert first is not None
    found = opened(table).diff(first, last, on=on, columns=column, where=where)
    print_changes(found, count, limit, json)


def print_changes(found: Any, count: bool, limit: int, json: bool) -> None:
    """Print the rows of a difference, or only how many there are of each kind."""
    if count:
        counts = found.count()
        print_json(counts) if json else print_rows("", [counts], json=False)
        return
    print_some(found.to_batches(), limit, json)


@examine.command()
def blame(
    table: TableUri, column: Columns = None, where: Predicate = None, limit: Limit = 100,
    json: Json = False,
) -> None:  # fmt: skip
    """Show rows with the version, time, operation and user that wrote each."""
    print_some(opened(table).blame(column, where).to_batches(), limit, json)


@examine.command()
def doctor(
    table: TableUri,
    sample: Annotated[
        int, typer.Option(help="The largest number of opened data files; -1: all.")
    ] = 32,
    json: Json = False,
) -> None:
    """Show what is wrong or slow in a table, and the remedy; exits with 1 if rows are at risk."""
    found = newest_of(table).doctor(sample=None if sample < 0 else sample)
    asked = Asked(table)
    told = [replace(one, remedy=on_command_line(one.remedy, asked)) for one in found]
    found = replace(found, findings=tuple(told))
    if json:
        facts = {"version": found.version, "ok": found.ok, "files": found.files}
        facts |= {"files_opened": found.files_opened, "findings": found.to_arrow().to_pylist()}
        print_json(facts)
    else:
        print_text(str(found))
    raise typer.Exit(0 if found.ok else 1)


@examine.command()
def report(
    table: TableUri,
    output: Annotated[
        str,
        typer.Option("--output", "-o", help="The file; an existing one is replaced."),
    ] = "report.html",
    sample: Annotated[
        int, typer.Option(help="The largest number of opened data files; -1: all.")
    ] = 8,
    json: Json = False,
) -> None:
    """Write a report of a table as one HTML page: history, files, data skipping, findings."""
    from txlog.tools.report.page import report_in_words

    made = report_in_words(
        opened(table),
        None if sample < 0 else sample,
        lambda remedy: on_command_line(remedy, Asked(table)),
    )
    made.save(output)
    if json:
        print_json({"output": output, "version": made.facts.version, "bytes": len(made.html)})
    else:
        print_text(f"{output}: version {made.facts.version} of {made.facts.uri}")


@examine.command()
def ui(
    tables: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="TABLE|FOLDER|CATALOG...",
            help="Tables, folders that contain tables or data sets, or the SQLite file of a "
            "catalog. Default: all tables of --catalog.",
        ),
    ] = None,
    port: Annotated[int, typer.Option(help="0: any free port.")] = 8765,
    write: Annotated[
        bool, typer.Option("--write", help="Offer forms that create and delete pins.")
    ] = False,
    no_open: Annotated[bool, typer.Option("--no-open", help="Do not open the browser.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print the address as JSON.")] = False,
) -> None:
    """Show tables in a browser on this machine, until Ctrl-C: rows, versions, files, a report."""
    from txlog.tools.ui.server import serve

    def tell(url: str, count: int, folders: int) -> None:
        if json:
            print_json({"url": url, "tables": count, "dataset_folders": folders})
        else:
            text = f"{count} table{'s' if count != 1 else ''}"
            if folders:
                text += f" and {folders} folder{'s' if folders > 1 else ''} of data sets"
            print_text(f"{text} at {url}\nCtrl-C ends it.")
        sys.stdout.flush()

    opens = not no_open and not json and sys.stdout.isatty()
    uris, catalog = shown(tables or [])
    serve(uris, catalog=catalog, port=port, writes=write, opens=opens, tell=tell)


@examine.command()
def repair(
    table: TableUri,
    write: Annotated[
        bool, typer.Option("--write", help="Do the repairs; otherwise only print them.")
    ] = False,
    missing_files: Annotated[
        bool,
        typer.Option(
            "--missing-files", help="Also remove the entries of missing files, with their rows."
        ),
    ] = False,
    json: Json = False,
) -> None:
    """Repair the log: checkpoint, checksum and, if requested, entries of missing files."""
    rows = newest_of(table).maintenance.repair(not write, missing_files).to_pylist()
    asked = Asked(table, {"missing_files": "--missing-files"})
    for row in rows:
        if row["decision"] == "skip":  # Then the reason says what to do instead.
            row["reason"] = on_command_line(row["reason"], asked)
    if json:
        print_json({"written": write, "repairs": rows})
        return
    print_rows("", rows, json=False)
    if rows and not write:
        print_text("nothing was written (pass --write)")


def print_some(batches: Any, limit: int, json: bool) -> None:
    """Print the first rows of batches; all, if the limit is below 0."""
    kept = batches if limit < 0 else first_rows(batches, limit)
    rows = list(chain.from_iterable(map(as_rows, kept)))
    print_rows("", rows, json)


def _rehearse(context: typer.Context, asked: bool) -> bool:
    """Let the command commit nothing if `--dry-run` is given."""
    context.with_resource(rehearsing(asked))
    return asked


Dry = Annotated[
    bool,
    typer.Option("--dry-run", callback=_rehearse, help="Only print the effect."),
]
"""The option of commands with one operation: the operation is planned, but not committed."""


def pairs(given: list[str] | None, option: str) -> dict[str, str]:
    """Return the names and values of an option that is given as NAME=VALUE, once or more."""
    found: dict[str, str] = {}
    for text in given or ():
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise typer.BadParameter(f"NAME=VALUE was expected, not {text!r}", param_hint=option)
        if name in found:
            raise typer.BadParameter(f"{name} is given twice", param_hint=option)
        found[name] = value
    return found


EXAMPLES = {
    "catalog init": "catalog init lake.db --location lake",
    "catalog tables": "--catalog lake.db catalog tables sales",
    "catalog register": "--catalog lake.db catalog register sales.flights flights --managed writes",
    "catalog rename": "--catalog lake.db catalog rename sales.orders sales.done",
    "catalog drop": "--catalog lake.db catalog drop sales.orders",
    "catalog undrop": "--catalog lake.db catalog undrop sales.old",
    "catalog purge": "--catalog lake.db catalog purge --retention-days 0",
    "catalog manage": "--catalog lake.db catalog manage sales.orders",
    "catalog release": "--catalog lake.db catalog release sales.orders",
    "catalog repair": "--catalog lake.db catalog repair sales.orders",
    "create": "create orders new.parquet --partition-by carrier",
    "convert": "convert lake/orders",
    "append": "append flights new.parquet",
    "merge": "merge flights new.parquet --on carrier --on day",
    "head": """head flights -n 3 --where "carrier = 'UA'\"""",
    "lookup": "lookup flights UA B6 --on carrier",
    "sql": 'sql "SELECT carrier, max(delay) FROM flights GROUP BY carrier"',
    "show": "show flights",
    "history": "history flights --limit 3",
    "follow": "follow flights --start 0 --timeout 0",
    "schema": "schema flights --version 0",
    "files": "files flights --json",
    "fragments": "fragments flights",
    "count": 'count flights --where "delay > 60"',
    "capabilities": "capabilities flights",
    "verify": "verify flights",
    "update": """update flights --set "delay=delay + 1" --where "carrier = 'UA'\"""",
    "delete": 'delete flights --where "delay < 0"',
    "set": "set flights delta.appendOnly=false",
    "constraint": 'constraint flights known "carrier IS NOT NULL"',
    "restore": "restore flights --version 0",
    "checkpoint": "checkpoint flights",
    "demo": "demo --excerpt",
    "compact": """compact flights --where "day = '2026-11-01'\"""",
    "optimize": "optimize flights --z-order carrier --z-order delay",
    "vacuum": "vacuum flights --retention-hours 336",
    "expire": "expire flights",
    "trash": "trash flights",
    "pin": 'pin flights best --version 0 --reason "what the model saw"',
    "versions": "versions flights",
    "clone": "clone flights copy --shallow",
    "generate": "generate events",
    "diff": "diff flights 0 1 --on carrier",
    "blame": """blame flights --where "carrier = 'UA'\"""",
    "doctor": "doctor flights",
    "report": "report flights -o report.html",
    "repair": "repair flights",
    "ui": "ui flights",
    "help": "help commit-conflict",
    "index create": "index create flights delay",
    "index build": "index build flights",
    "index merge": "index merge flights",
    "index drop": "index drop flights carrier",
    "index show": "index show flights",
    "branch create": "branch create flights nightly",
    "branch list": "branch list flights",
    "branch publish": "branch publish flights audit",
    "branch discard": "branch discard flights audit",
    "branch diff": "branch diff flights audit --count",
    "alter add": 'alter add flights price="DECIMAL(10,2)"',
    "alter rename": "alter rename flights delay minutes",
    "alter drop": "alter drop flights delay",
    "alter move": "alter move flights delay --first",
    "alter widen": "alter widen flights delay BIGINT",
    "alter nullable": "alter nullable flights delay --no",
    "alter default": "alter default flights delay 0",
    "alter sync-identity": "alter sync-identity flights id",
    "alter add-feature": "alter add-feature flights rowTracking --dry-run",
    "alter drop-feature": "alter drop-feature flights allowColumnDefaults --dry-run",
    "alter upgrade": "alter upgrade flights --reader 3 --writer 7 --dry-run",
    "alter cluster-by": "alter cluster-by events carrier",
    "datasets create": "datasets create sets reviews 1.csv --type TEXT_INTENT",
    "datasets update": "datasets update sets intents 2.csv --tag split=train",
    "datasets list": "datasets list sets",
    "datasets show": "datasets show sets intents",
    "datasets prepare": "datasets prepare sets intents --tag split=train",
    "datasets fetch": "datasets fetch sets intents HASH --to parts",
    "datasets export": "datasets export sets intents HASH --to shards",
    "datasets diff": "datasets diff sets intents 1 2",
    "datasets lineage": "datasets lineage sets intents 2",
    "datasets audit": "datasets audit sets --dataset intents",
    "datasets share": "datasets share sets intents --reader julia --no-writer",
    "datasets tag": "datasets tag sets intents november 2",
    "datasets hide": "datasets hide sets intents 2",
    "datasets unhide": "datasets unhide sets intents 2",
    "datasets branch": "datasets branch sets intents trial",
    "datasets branches": "datasets branches sets intents",
    "datasets publish": "datasets publish sets intents trial",
    "datasets discard": "datasets discard sets intents trial",
    "datasets delete": "datasets delete sets intents",
    "datasets undelete": "datasets undelete sets 2",
    "datasets purge": "datasets purge sets intents --commit 2 --confirm intents",
    "datasets verify": "datasets verify sets intents",
    "datasets on-commit": "datasets on-commit sets intents --run clean.py --into cleaned",
    "datasets steps": "datasets steps sets",
    "datasets run-steps": "datasets run-steps sets",
    "datasets remove-step": "datasets remove-step sets lengths",
    "datasets sweep": "datasets sweep sets",
    "datasets serve": "datasets serve sets --source mini-automl=/data/in --grpc 51001",
    "datasets token": "datasets token julia --right write --dataset intents",
}
"""An example of each command, without `txlog`."""


def with_examples(app: typer.Typer, prefix: str = "") -> None:
    """Add the examples to the help of an app's commands."""
    for command in app.registered_commands:
        name = command.name or getattr(command.callback, "__name__", "")
        example = EXAMPLES.get(f"{prefix}{name}")
        if example is not None:
            command.epilog = f"Example: txlog {example}"
    for group in app.registered_groups:
        if group.typer_instance is not None:
            below = f"{prefix}{group.name} " if isinstance(group.name, str) else prefix
            with_examples(group.typer_instance, below)


_CHAPTER = re.compile(r"^## ([a-z-]+)\n((?:(?!## ).*\n?)*)", re.MULTILINE)
_LINK = re.compile(r"\[([^\]]+)\]\([^)]+\)")


def chapters() -> dict[str, str]:
    """Return the chapter of docs/errors.md about each code; a wheel contains the page."""
    page: Any = files("txlog.tools.cli") / "data" / "errors.md"
    if not page.is_file():  # In a checkout.
        page = Path(__file__).parents[3] / "docs" / "errors.md"
    text = _LINK.sub(r"\1", page.read_text("utf-8"))
    return {code: body.strip() for code, body in _CHAPTER.findall(text)}


def explain(
    code: Annotated[
        str | None,
        typer.Argument(help="The code of an error, such as not-found. Default: list all codes."),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Explain an error and its remedy, by its code."""
    entries = {name: _facts(name, body) for name, body in chapters().items()}
    if code is None:
        if json:
            print_json(list(entries.values()))
        else:
            rows = [[one["code"], one["cause"]] for one in entries.values()]
            print_table("", ["code", "cause"], rows, whole=("code",))
        return
    wanted = code.strip("[]").lower()
    if wanted not in entries:
        raise InvalidInputError(
            argument="code",
            reason=f"{code!r} is not an error code; the codes are {', '.join(entries)}",
            remedy="For help on a command, run txlog COMMAND --help",
        )
    if json:
        print_json(entries[wanted])
    elif sys.stdout.isatty():
        from rich.markdown import Markdown

        console().print(Markdown(f"## {wanted}\n\n{chapters()[wanted]}"))
    else:
        print_text("\n\n".join(_plain(chapters()[wanted])))


def _plain(body: str) -> Iterator[str]:
    """Yield the paragraphs of a chapter without markup, remedies in the words of commands."""
    for paragraph in body.split("\n\n"):
        text = " ".join(paragraph.split()).replace("*Do*", "Do").replace("`", "")
        yield on_command_line(text, Asked()) if text.startswith("Do: ") else text


def _facts(code: str, body: str) -> Mapping[str, str]:
    """Return cause and remedy of a chapter, and the class of the error."""
    paragraphs = list(_plain(body))
    remedies = [text.removeprefix("Do: ") for text in paragraphs if text.startswith("Do: ")]
    kind, _, cause = paragraphs[0].partition(". ")
    return {
        "code": code,
        "class": kind.partition(",")[0],
        "cause": cause,
        "remedy": " ".join(remedies),
    }
