"""The command line. `output.EXIT_CODES` has the exit codes of errors."""

from __future__ import annotations

import sys

from txlog.tools.cli.output import FAILED, INTERRUPTED, WRONG_CALL, close_output


def main() -> None:
    """Run the command line and exit with its code."""
    try:
        code = _run(sys.argv[1:])
        sys.stdout.flush()  # An error of this flush would otherwise be a traceback at exit.
    except KeyboardInterrupt:  # Before or after the commands.
        code = INTERRUPTED
    except BrokenPipeError:
        code = close_output()
    except OSError as error:  # Errors of tables are `TxlogError`s, which the commands handle.
        print(f"txlog: the output cannot be written: {error.strerror}", file=sys.stderr)
        close_output()
        code = FAILED
    raise SystemExit(code)


def _run(words: list[str]) -> int:
    # typer takes as long to import as it takes to open a table, and this call needs no parser.
    if len(words) == 2 and words[0] == "count" and not words[1].startswith("-"):
        return _count(words[1])
    try:
        from txlog.tools.cli.app import run
    except ImportError as error:
        if error.name not in ("typer", "rich", "click"):
            raise
        print(
            f"txlog: the command line needs the package {error.name}: "
            "pip install 'pyspark-txlog[cli]'",
            file=sys.stderr,
        )
        return WRONG_CALL
    return run()


def _count(table: str) -> int:
    """Print the number of rows of a table, and return the exit code."""
    from txlog import Table
    from txlog.base.errors import TxlogError
    from txlog.base.remedies import Asked
    from txlog.tools.cli.output import error_text, exit_code, plain_warnings, print_text

    try:
        with plain_warnings():
            print_text(str(Table(table).count()))
    except TxlogError as error:
        print(error_text(error, Asked(table, {"table": "TABLE"})), file=sys.stderr)
        return exit_code(error)
    return 0
