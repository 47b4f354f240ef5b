"""Make txlog/table/hints.py from the tables of docs/coming-from.md: python docs/hints.py"""

import re
import subprocess
import sys
from pathlib import Path

import txlog

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "coming-from.md"
MADE = ROOT / "txlog" / "table" / "hints.py"

# Sections without Python methods of a table.
OTHERS = {"delta-spark", "Iceberg on Spark"}
ON_A_TABLE = re.compile(r"(?:with )?(?:dt|ds|table|df|DeltaTable)\.(\w+)(?:\.(\w+)\()?")
ON_A_MODULE = re.compile(r"(?:dt = )?(?:(?:lance|catalog|pl|pq)\.)?(?:(\w+)\(|(LanceOperation)\.)")
BUILTIN = {"len"}

Hints = dict[str, tuple[str, str, str]]


def hints_of(page: str) -> tuple[Hints, Hints]:
    """Read the tables of the page: which names of other libraries mean what in txlog.

    Returns
    -------
    For names of a table, and for names of the package: the library, its code, and the code of
    txlog, from the first row that has the name. Names that txlog has too are left out; of
    `dt.optimize.compact()`, `compact` is taken.
    """
    of_table: Hints = {}
    of_parts: Hints = {}  # Names of `dt.alter` and the like.
    of_module: Hints = {}
    library = ""
    for line in page.splitlines():
        library = line.removeprefix("## From ") if line.startswith("## From ") else library
        row = re.match(r"\| (`.*`) \| (`+)(.+)\2 \|$", line)
        if row is None or library in OTHERS:
            continue
        theirs = re.findall(r"`([^`]+)`", row[1])
        ours = re.sub(r"\b(?:wide|mapped|indexed)\.", "t.", row[3])
        parts = ours.split(", t.")
        several = len(theirs) == len(parts) > 1
        for place, code in enumerate(theirs):
            own = ours
            if several:
                own = parts[place] if place == 0 else f"t.{parts[place]}"
            if code.startswith("df["):
                of_table.setdefault("__getitem__", (library, code, own))
            elif found := ON_A_TABLE.match(code):
                name, part = found[1].removeprefix("_"), found[2]
                if not hasattr(txlog.Table, name):
                    of_table.setdefault(name, (library, code, own))
                elif part and not hasattr(txlog.Table, part):
                    of_parts.setdefault(part, (library, code, own))
            elif found := ON_A_MODULE.match(code):
                name = found[1] or found[2]
                if name not in {*txlog.__all__, *BUILTIN}:
                    of_module.setdefault(name, (library, code, own))
    return dict(sorted((of_parts | of_table).items())), dict(sorted(of_module.items()))


def main() -> None:
    of_table, of_module = hints_of(PAGE.read_text(encoding="utf-8"))
    MADE.write_text(
        f'''"""Names that users of other libraries look for, and the code of txlog that they need.

Each name has its library, the library's code, and the code of txlog. docs/hints.py makes this file
from docs/coming-from.md.
"""
# ruff: noqa: E501

OF_TABLE = {of_table!r}

OF_MODULE = {of_module!r}


def instead(hint: tuple[str, str, str]) -> str:
    """Return the sentence of an error that tells which code of txlog to use."""
    library, theirs, ours = hint
    return f"Instead of {{theirs}} of {{library}}, use {{ours}}"
''',
        encoding="utf-8",
    )
    subprocess.run([sys.executable, "-m", "ruff", "format", "-q", MADE], check=True)


if __name__ == "__main__":
    main()
