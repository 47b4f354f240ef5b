"""The command line.

Exit codes: 0 done, 1 an error of the table or the store, 2 a wrong call.
"""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line."""
    from txlog.cli.plain import count, is_plain

    words = sys.argv[1:]
    if is_plain(words):
        raise SystemExit(count(words[1]))
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
        raise SystemExit(2) from None
    raise SystemExit(run())
