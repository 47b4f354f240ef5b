"""The exit code of an interrupt, and the one call that needs no parser: `txlog count TABLE`.

typer takes as long to import as it takes to open a table. What `count` prints and how it ends is
the same by both ways.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from txlog.errors import TxlogError

INTERRUPTED = 130  # What shells report of a program that Ctrl-C ended.


def is_plain(words: Sequence[str]) -> bool:
    """Return whether the words of a call are `count` and a table, without any option."""
    return len(words) == 2 and words[0] == "count" and not words[1].startswith("-")


def count(table: str) -> int:
    """Print the number of rows of a table, and return the exit code."""
    from txlog.cli.output import error_text, print_text
    from txlog.table.table import Table

    try:
        print_text(str(Table(table).count()))
    except TxlogError as error:
        print(error_text(error), file=sys.stderr)
        return 1
    return 0
