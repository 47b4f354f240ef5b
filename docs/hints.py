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
ON_A_TABLE = re.compile(r"(?:with )?(?:dt|ds|table|df|t|DeltaTable)\.(\w+)")
ON_A_MODULE = re.compile(r"(?:dt = )?(?:lance\.|catalog\.)?(\w+)\(")
BUILTIN = {"len"}

Hints = dict[str, tuple[str, str, str]]


def hints_of(page: str) -> tuple[Hints, Hints]:
    """Return what replaces missing names of a table and of the package, from the page's tables.

    Each name has its library, the library's code, and the code of txlog, from the first row that
    begins with the name.
    """
    of_table: Hints = {}
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
                name = found[1].removeprefix("_")
                if not hasattr(txlog.Table, name):
                    of_table.setdefault(name, (library, code, own))
            elif (found := ON_A_MODULE.match(code)) and found[1] not in {*txlog.__all__, *BUILTIN}:
                of_module.setdefault(found[1], (library, code, own))
    return dict(sorted(of_table.items())), dict(sorted(of_module.items()))


def main() -> None:
    of_table, of_module = hints_of(PAGE.read_text(encoding="utf-8"))
    MADE.write_text(
        f'''"""What replaces the names that tables and modules of other libraries have.

Each name has its library, the library's code, and the code of txlog. docs/hints.py makes this file
from docs/coming-from.md.
"""
# ruff: noqa: E501

OF_TABLE = {of_table!r}

OF_MODULE = {of_module!r}


def instead(hint: tuple[str, str, str]) -> str:
    """Return what an error says about a name."""
    library, theirs, ours = hint
    return f"Instead of {{theirs}} of {{library}}, use {{ours}}"
''',
        encoding="utf-8",
    )
    subprocess.run([sys.executable, "-m", "ruff", "format", "-q", MADE], check=True)


if __name__ == "__main__":
    main()
