"""Exit codes of the command line that are not typer's own."""

INTERRUPTED = 130  # What shells report of a program that Ctrl-C ended.
