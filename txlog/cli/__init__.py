"""The command line.

Exit codes: 0 done, 1 an error of the table or the store, 2 a wrong call, 130 interrupted.
"""

from __future__ import annotations

import sys

from txlog.cli.output import INTERRUPTED


def main() -> None:
    """Run the command line and exit with its code."""
    try:
        raise SystemExit(_run())
    except KeyboardInterrupt:  # Before the commands, or after them.
        raise SystemExit(INTERRUPTED) from None


def _run() -> int:
    from txlog.cli.output import count, is_plain

    words = sys.argv[1:]
    if is_plain(words):
        return count(words[1])
    try:
        from txlog.cli.app import run
    except ImportError as error:
        if error.name not in ("typer", "rich", "click"):
            raise
        print(
            f"txlog: the command line needs the package {error.name}: "
            "pip install 'pyspark-txlog[cli]'",
            file=sys.stderr,
        )
        return 2
    return run()
