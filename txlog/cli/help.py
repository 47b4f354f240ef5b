"""An example of each command, and `txlog help`: what an error means, and what to do."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any

import typer

from txlog.cli.output import console, print_json, print_table, print_text
from txlog.commit.operation import rehearsing
from txlog.errors import InvalidInputError


def _rehearse(context: typer.Context, asked: bool) -> bool:
    """Have the command commit nothing, if that is asked for."""
    context.with_resource(rehearsing(asked))
    return asked


Dry = Annotated[
    bool,
    typer.Option("--dry-run", callback=_rehearse, help="Only say what it would do."),
]
"""The option of commands that change a table by one operation: it is tried, and not committed."""

EXAMPLES = {
    "append": "append flights new.parquet",
    "merge": "merge flights new.parquet --on carrier --on day",
    "head": """head flights -n 3 --where "carrier = 'UA'\"""",
    "lookup": "lookup flights UA B6 --on carrier",
    "sql": 'sql "SELECT carrier, max(delay) FROM flights GROUP BY carrier"',
    "show": "show flights",
    "history": "history flights --limit 3",
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
    "index optimize": "index optimize flights",
    "index drop": "index drop flights carrier",
    "index show": "index show flights",
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
}
"""A call of each command, without `txlog`."""


def with_examples(app: typer.Typer, prefix: str = "") -> None:
    """Put the examples below the help of the commands of an app."""
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
    """Return what docs/errors.md says of each code; a wheel has the page among its data."""
    page: Any = files("txlog.cli") / "data" / "errors.md"
    if not page.is_file():  # A checkout.
        page = Path(__file__).parents[2] / "docs" / "errors.md"
    text = _LINK.sub(r"\1", page.read_text("utf-8"))
    return {code: body.strip() for code, body in _CHAPTER.findall(text)}


def explain(
    code: Annotated[
        str | None, typer.Argument(help="The code of an error, as in [not-found]; none: list all.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Say what an error means and what to do, by its code."""
    told = {name: _facts(name, body) for name, body in chapters().items()}
    if code is None:
        if json:
            print_json(list(told.values()))
        else:
            rows = [[one["code"], one["cause"]] for one in told.values()]
            print_table("", ["code", "cause"], rows, whole=("code",))
        return
    wanted = code.strip("[]").lower()
    if wanted not in told:
        raise InvalidInputError(
            argument="code",
            reason=f"{code!r} is no code of an error; they are {', '.join(told)}",
            remedy="For a command: txlog COMMAND --help",
        )
    if json:
        print_json(told[wanted])
    elif sys.stdout.isatty():
        from rich.markdown import Markdown

        console().print(Markdown(f"## {wanted}\n\n{chapters()[wanted]}"))
    else:
        print_text("\n\n".join(_plain(chapters()[wanted])))


def _plain(body: str) -> Iterator[str]:
    """Yield the paragraphs of a chapter without marks."""
    for paragraph in body.split("\n\n"):
        yield " ".join(paragraph.split()).replace("*Do*", "Do").replace("`", "")


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
