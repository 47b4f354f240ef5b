"""The command line. `output.EXIT_CODES` has the exit codes of errors."""

from __future__ import annotations

import errno
import io
import os
import sys
from pathlib import Path

from txlog.tools.cli.output import (
    FAILED,
    INTERRUPTED,
    WRONG_CALL,
    OutputError,
    close_output,
    print_error,
    writing,
)


class _Closed(io.TextIOBase):
    """The standard output of a process that was started without one."""

    def write(self, _: str) -> int:
        """Raise the error of a closed file."""
        raise OSError(errno.EBADF, os.strerror(errno.EBADF))

    def fileno(self) -> int:
        """Return the number of the standard output."""
        return 1


def main() -> None:
    """Run the command line and exit with its code."""
    _open_standard_files()
    try:
        code = _run(sys.argv[1:])
        with writing():
            sys.stdout.flush()  # An error of this flush would otherwise be a traceback at exit.
    except KeyboardInterrupt:  # Before or after the commands.
        code = INTERRUPTED
    except BrokenPipeError:
        code = close_output()
    except OutputError as error:
        print_error(f"txlog: the output cannot be written: {error}")
        close_output()
        code = FAILED
    except OSError as error:  # Errors of tables are `TxlogError`s, which the commands handle.
        print_error(f"txlog: {error}")
        code = FAILED
    raise SystemExit(code)


def _open_standard_files() -> None:
    """Take care of standard files that are closed, or that cannot encode each text.

    Otherwise the next file that is opened, such as one of a table, would become the standard
    output, and what Java or C libraries print would be written into it.
    """
    while (opened := os.open(os.devnull, os.O_RDWR)) < 3:
        pass
    os.close(opened)
    if sys.stdout is None:
        sys.stdout = _Closed()
    if sys.stderr is None:
        sys.stderr = Path(os.devnull).open("w")  # noqa: SIM115
    for file in (sys.stdout, sys.stderr):
        if isinstance(file, io.TextIOWrapper):
            file.reconfigure(errors="backslashreplace")


def _run(words: list[str]) -> int:
    # typer takes as long to import as it takes to open a table, and this call needs no parser.
    if len(words) == 2 and words[0] == "count" and not words[1].startswith("-"):
        return _count(words[1])
    try:
        from txlog.tools.cli.app import run
    except ImportError as error:
        if error.name not in ("typer", "rich", "click"):
            raise
        print_error(
            f"txlog: the command line needs the package {error.name}: "
            "pip install 'pyspark-txlog[cli]'"
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
        print_error(error_text(error, Asked(table, {"table": "TABLE"})))
        return exit_code(error)
    return 0
