"""The output of the command line: tables for people, JSON for programs."""

from __future__ import annotations

import os
import re
import sys
import warnings
from base64 import b64encode
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import replace
from math import isfinite, isnan
from typing import TYPE_CHECKING, Any

import orjson

from txlog.base.errors import (
    AlreadyExistsError,
    CommitConflictError,
    DataFileError,
    EngineError,
    InvalidInputError,
    LogCorruptError,
    NotFoundError,
    OutcomeUnknownError,
    OutOfMemoryError,
    SchemaMismatchError,
    StoreError,
    TxlogError,
    TxlogWarning,
    UnsupportedFeatureError,
)
from txlog.base.moments import moment_text
from txlog.base.remedies import Asked, on_command_line
from txlog.base.texts import (
    is_unicode,
    unique_names,
    visible,
    without_secrets,
    without_secrets_within,
)
from txlog.base.threads import progress
from txlog.base.uris import file_path, is_file_uri, scheme_of

if TYPE_CHECKING:
    import pyarrow as pa
    from rich.console import Console

    from txlog import Outcome, Table

FAILED = 1  # The exit code of every other error, and of commands that examine and find a fault.
WRONG_CALL = 2  # As for options that typer refuses.
# The exit codes of errors: the first matching class counts. docs/guides/cli.md has the table.
EXIT_CODES: tuple[tuple[type[TxlogError], int], ...] = (
    (SchemaMismatchError, FAILED),  # The call is right; the data is not.
    (InvalidInputError, WRONG_CALL),
    (CommitConflictError, 3),
    (NotFoundError, 4),
    (LogCorruptError, 5),
    (DataFileError, 5),
    (UnsupportedFeatureError, 6),
    (StoreError, 7),
    (EngineError, 7),
    (OutOfMemoryError, 7),
    (OutcomeUnknownError, 8),
)
# The exit codes that shells use.
INTERRUPTED = 130  # Ctrl-C ended the program.
PIPE_CLOSED = 141  # The program wrote to a closed pipe.
_PATIENCE_S = 1.0
_FOLDED = 8  # The smallest width of a column with wrapped texts, in characters.
_CAPITAL = re.compile(r"(?<!^)([A-Z][a-z]+)")


class OutputError(Exception):
    """The standard output cannot be written: the disk is full, or nothing is open there."""


def close_output() -> int:
    """Discard the remaining output; return the exit code for a closed pipe."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return PIPE_CLOSED


@contextmanager
def writing() -> Iterator[None]:
    """Tell errors of the standard output from those of other files."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise OutputError(error.strerror) from error


def _write(text: str) -> None:
    """Write text to the standard output as it is, for programs."""
    _stop_working()
    with writing():
        sys.stdout.write(text)


def console() -> Console:
    """Return the console: as wide as the terminal; without one, `COLUMNS` or 200 characters."""
    from rich.console import Console as RichConsole

    class Console(RichConsole):
        def on_broken_pipe(self) -> None:
            raise SystemExit(close_output())

        def print(self, *values: Any, **options: Any) -> None:
            with writing():
                super().print(*values, **options)

    if sys.stdout.isatty():
        return Console(emoji=False)
    columns = os.environ.get("COLUMNS", "")
    width = int(columns) if columns.isdecimal() and int(columns) else 200
    return Console(width=width, force_terminal=False, color_system=None, emoji=False)


def print_json(value: Any) -> None:
    """Print a value as JSON, indented; bytes are texts in base 64.

    Values that JSON lacks are texts: NaN, Infinity, whole numbers of more than 64 bits.
    """
    data = orjson.dumps(_for_json(value), option=orjson.OPT_INDENT_2, default=_as_json)
    _write(data.decode() + "\n")


def print_line(value: Any) -> None:
    """Print a value as JSON on one line, at once; otherwise as `print_json`."""
    _write(orjson.dumps(_for_json(value), default=_as_json).decode() + "\n")
    with writing():
        sys.stdout.flush()


def _for_json(value: Any) -> Any:
    """Return a value that orjson writes without loss; it would write NaN as null."""
    if isinstance(value, dict):
        return {_for_json(name): _for_json(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_for_json(one) for one in value]
    if isinstance(value, float) and not isfinite(value):
        return "NaN" if isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, str) and not is_unicode(value):
        return value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, int) and not -(1 << 63) <= value < 1 << 64:
        return str(value)
    return value


def _as_json(value: object) -> str:
    return b64encode(value).decode() if isinstance(value, bytes) else str(value)


def print_text(text: str) -> None:
    """Print a line for people."""
    _write(visible(text) + "\n")


def print_data(text: str) -> None:
    """Print text for programs, such as CSV: as it is."""
    _write(text.encode("utf-8", "backslashreplace").decode() + "\n")


def print_error(text: str) -> None:
    """Print a line on the standard error."""
    _stop_working()
    print(visible(text), file=sys.stderr)


class _Working:
    """A line with a progress bar on the terminal; another thread draws it."""

    def __init__(self, text: str) -> None:
        from threading import Timer

        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn

        told = TextColumn("{task.description}", markup=False)
        columns = (SpinnerColumn(), told, BarColumn(30))
        self._shown = Progress(
            *columns, MofNCompleteColumn(), console=Console(stderr=True), transient=True
        )
        self.task = self._shown.add_task(visible(text), total=None)
        self._counting = 0
        self._timer = Timer(_PATIENCE_S, self._shown.start)
        self._timer.daemon = True
        self._timer.start()

    def bar(self, *, total: int | None = None, desc: str = "", unit: str = "") -> _Bar:
        """Start to count to `total`; see `txlog.progress`.

        The line has one count: work within other work that is counted is not.
        """
        self._counting += 1
        if self._counting > 1:
            return _Bar(self, is_shown=False)
        self._count_to(total)
        return _Bar(self, is_shown=True)

    def _count_to(self, total: int | None) -> None:
        """Begin at 0; a total of None is unknown."""
        self._shown.reset(self.task)
        (task,) = self._shown.tasks
        task.total = total  # `reset` takes None for the total that the task has.

    def update(self, count: int) -> None:
        """Add to the count."""
        self._shown.advance(self.task, count)

    def end(self, *, is_shown: bool) -> None:
        """Stop to show a count. The line still shows that the work continues."""
        self._counting -= 1
        if is_shown:
            self._count_to(None)

    def tell(self, text: str) -> None:
        """Show what is being done."""
        self._shown.update(self.task, description=visible(text))

    def stop(self) -> None:
        """Remove the line."""
        self._timer.cancel()
        self._timer.join()
        self._shown.stop()


class _Bar:
    """The count of one kind of work, as `txlog.progress` asks for it."""

    def __init__(self, line: _Working, *, is_shown: bool) -> None:
        self._line = line
        self._is_shown = is_shown

    def update(self, count: int) -> None:
        """Add to the count."""
        if self._is_shown:
            self._line.update(count)

    def close(self) -> None:
        """End the count."""
        self._line.end(is_shown=self._is_shown)


_shown: list[_Working] = []  # At most one line is shown.


@contextmanager
def working(text: str) -> Iterator[None]:
    """Show the progress of work on a terminal, if the work takes over two seconds."""
    if _shown or not sys.stderr.isatty():
        if _shown:
            _shown[0].tell(text)
        yield
        return
    line = _Working(text)
    _shown.append(line)
    try:
        with progress(line.bar, after_s=_PATIENCE_S):
            yield
    finally:
        _stop_working()


def _stop_working() -> None:
    """Remove the line before something is printed."""
    if _shown:
        _shown.pop().stop()


def print_table(
    title: str,
    names: Sequence[str],
    rows: Sequence[Sequence[Any]],
    *,
    whole: Sequence[str] = (),
) -> None:
    """Print rows as a table that fits the console: texts are wrapped, numbers are not.

    Parameters
    ----------
    whole
        Other columns whose values are not wrapped.
    """
    from rich.box import SIMPLE_HEAD
    from rich.table import Table as Grid
    from rich.text import Text

    # `Text`, because rich reads plain strings as markup and drops some control characters.
    cells = [[visible(_text(value)) for value in row] for row in rows]
    grid = Grid(
        title=Text(visible(without_secrets_within(title))) if title else None,
        show_header=any(names),
        title_justify="left",
        box=SIMPLE_HEAD,
        padding=(0, 1),
        pad_edge=False,
    )
    least = 0  # The smallest console width with readable columns.
    for place, name in enumerate(names):
        values = [row[place] for row in rows]
        number = any(type(value) in (int, float) for value in values) and all(
            value is None or type(value) in (int, float) for value in values
        )
        wide = max((len(line) for row in cells for line in row[place].split("\n")), default=0)
        whole_width = max(wide, len(name))
        fixed = number or name in whole
        least += 3 + (whole_width if fixed else min(whole_width, _FOLDED))
        grid.add_column(
            Text(visible(name)),
            justify="right" if number else "left",
            overflow="fold",
            no_wrap=fixed,
        )
    for row in cells:
        grid.add_row(*map(Text, row))
    _stop_working()
    shown = console()
    if any(names) and least > shown.width:
        _print_records(shown, title, names, cells)
    else:
        shown.print(grid)


def _print_records(
    shown: Console, title: str, names: Sequence[str], rows: Sequence[Sequence[str]]
) -> None:
    """Print each row as lines with a name and a value, for narrow consoles."""
    from rich.text import Text

    for text in [title] if title else []:
        shown.print(Text(visible(text)))
    for row in rows:
        for name, value in zip(names, row, strict=True):
            text = value.replace("\n", ", ")
            shown.print(Text(f"{visible(name)}: {text}" if name else text))
        shown.print()


def as_rows(data: pa.Table | pa.RecordBatch) -> list[dict[str, Any]]:
    """Return rows as dicts. Values that no Python type can hold are texts.

    A name that several columns have gets a number: `a`, `a_1`.
    """
    from txlog.base.columns import python_values

    columns = [python_values(column) for column in data.columns]
    names = unique_names(data.schema.names)
    return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]


def print_rows(
    title: str,
    rows: list[dict[str, Any]],
    json: bool,
    *,
    names: Sequence[str] | None = None,
    whole: Sequence[str] = (),
) -> None:
    """Print rows as JSON or as a table.

    Parameters
    ----------
    names
        The columns; needed if there may be no rows. Default: the columns of the first row.
    whole
        Columns whose values are not wrapped.
    """
    if json:
        print_json(rows)
    else:
        if names is None:
            names = list(rows[0]) if rows else ["nothing"]
        print_table(title, names, [list(row.values()) for row in rows], whole=whole)


def clock(time_ms: int | None) -> str:
    """Return a time in UTC, for a column with UTC in its header."""
    return moment_text(time_ms)


def metrics_text(metrics: Mapping[str, Any]) -> str:
    """Return the metrics of an operation as text: one for each line, without zeros."""
    return "\n".join(
        f"{_words(name)}: {value}" for name, value in metrics.items() if str(value) != "0"
    )


def _words(name: str) -> str:
    """Return a metric's name as words: `numOutputRows` is `output rows`."""
    return _CAPITAL.sub(r" \1", name.removeprefix("num")).strip().lower()


def _text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, dict):
        return ", ".join(f"{name}={_text(inner)}" for name, inner in value.items())
    if isinstance(value, list):
        return ", ".join(map(_text, value))
    return f"{value:,}" if isinstance(value, int) else str(value)


def newest_of(uri: str) -> Table:
    """Return the newest version of a table that can be opened; say so if it is not the latest."""
    from txlog.extend import open_sound
    from txlog.tools.cli.tables import place_of

    place, options = place_of(uri)
    table, damage = open_sound(place, options)
    if damage is not None:
        text = error_text(damage, Asked(uri))
        print_error(f"This is version {table.version}. {text}")
    return table


def error_text(error: TxlogError, asked: Asked) -> str:
    """Return an error in one line, for standard error, in the words of the command line."""
    told = copy(error)
    told.remedy = on_command_line(error.remedy, _about(error, asked))
    if isinstance(told, InvalidInputError) and told.argument is not None:
        told.argument = asked.option(told.argument)  # What the caller cannot write says nothing.
    return f"txlog: {told} (txlog help {error.code})"


def _about(error: TxlogError, asked: Asked) -> Asked:
    """Return a command with the table that an error is about, which need not be the first of it."""
    root = error.table
    path = error.path if isinstance(error, NotFoundError | AlreadyExistsError) else None
    if root is None and path is not None and scheme_of(path):  # Then the path is a table's root.
        root = path
    if root is None:
        return replace(asked, is_known=asked.table is not None and not asked.others)
    written = [one for one in (asked.table, *asked.others) if one and _root(one) == _root(root)]
    return replace(asked, table=written[0] if written else root)


def _root(table: str) -> str:
    """Return the root of a table for comparison with others, without secrets."""
    if is_file_uri(table):
        try:
            return os.path.realpath(file_path(table, decode=True))
        except InvalidInputError:
            return table
    if scheme_of(table) in (None, "file"):
        return os.path.realpath(table)
    return without_secrets(table).rstrip("/")


def exit_code(error: TxlogError) -> int:
    """Return the exit code of a command that ends with an error."""
    return next((code for kind, code in EXIT_CODES if isinstance(error, kind)), FAILED)


@contextmanager
def plain_warnings() -> Iterator[None]:
    """Print warnings of txlog in the `with` block as one line each on standard error.

    Python prints the line of code that is at fault, which here is none of the user's. Warnings of
    other packages are printed as Python does.
    """
    before = warnings.showwarning

    def show(message: Warning | str, category: type[Warning], *place: Any, **more: Any) -> None:
        if not issubclass(category, TxlogWarning):
            before(message, category, *place, **more)
            return
        print_error(f"txlog: warning: {message}")

    warnings.showwarning = show
    try:
        yield
    finally:
        warnings.showwarning = before


def print_outcome(outcome: Outcome, json: bool) -> None:
    """Print the outcome of a verb."""
    if json:
        found: dict[str, Any] = {"version": outcome.version, "metrics": dict(outcome.metrics)}
        changed = {"added": outcome.features_added, "dropped": outcome.features_dropped}
        found |= {f"features_{how}": list(names) for how, names in changed.items()}
        print_json(found | ({"dry_run": True} if outcome.rehearsed else {}))
    elif outcome.rehearsed:
        metrics = ", ".join(f"{name} {value}" for name, value in outcome.metrics.items())
        text = f": {metrics}" if metrics else ""
        print_text(f"would commit {outcome.operation}{text}; nothing was written")
    elif outcome.version is None:
        print_text("there was nothing to do")
    else:
        metrics = ", ".join(f"{name} {value}" for name, value in outcome.metrics.items())
        print_text(f"made version {outcome.version}: {metrics}")
        if outcome.features_added:
            names = ", ".join(outcome.features_added)
            print_text(f"the table needs readers or writers with {names} from now on")
        if outcome.features_dropped:
            print_text(f"the table no longer needs {', '.join(outcome.features_dropped)}")
