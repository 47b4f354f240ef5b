"""Print the size of each room, the largest modules, and the modules that common verbs enter.

For readers of the code: nothing depends on these figures.
"""

import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType

import pyarrow as pa

import txlog

HOME = Path(txlog.__file__).parent

VERBS: dict[str, Callable[[txlog.Table], object]] = {
    "append": lambda table: table.append(pa.table({"x": [7, 8], "y": ["a", "b"]})),
    "scan": lambda table: table.scan().to_arrow(),
    "delete": lambda table: table.delete("x = 3"),
}


def small_table(root: Path) -> txlog.Table:
    """Return a table with two files."""
    table = txlog.Table.create(
        root,
        pa.schema([("x", pa.int64()), ("y", pa.string())]),
        properties={"delta.enableDeletionVectors": "true"},
    )
    table.append(pa.table({"x": [1, 2, 3], "y": ["a", "b", "c"]}))
    table.append(pa.table({"x": [3, 4, 5], "y": ["d", "e", "f"]}))
    return table


def modules_entered(work: Callable[[], object]) -> set[str]:
    """Return the modules of txlog of which a function is called, in any thread."""
    entered: set[str] = set()

    def seen(frame: FrameType, event: str, _arg: object) -> None:
        # What `lazy` does is what `dataclasses` does elsewhere.
        if event == "call" and not frame.f_code.co_filename.endswith("txlog/base/lazy.py"):
            entered.add(frame.f_code.co_filename)

    threading.setprofile(seen)
    sys.setprofile(seen)
    try:
        work()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)  # type: ignore[arg-type]
    names = {Path(name) for name in entered}
    return {str(name.relative_to(HOME)) for name in names if name.is_relative_to(HOME)}


def print_sizes() -> None:
    """Print modules and lines by room, and the ten largest modules."""
    lines = {path: len(path.read_text("utf-8").splitlines()) for path in HOME.rglob("*.py")}
    rooms: dict[str, list[int]] = {}
    for path, count in lines.items():
        room = path.relative_to(HOME).with_suffix("").parts[0]
        rooms.setdefault(room, []).append(count)
    for room, counts in sorted(rooms.items(), key=lambda item: -sum(item[1])):
        print(f"{room:14} {len(counts):4} modules {sum(counts):7,} lines")
    print(f"{'all':14} {len(lines):4} modules {sum(lines.values()):7,} lines\n")
    for path in sorted(lines, key=lambda one: -lines[one])[:10]:
        print(f"{lines[path]:5} lines  {path.relative_to(HOME)}")


def print_doors() -> None:
    """Print how many modules a warm verb enters, after all imports."""
    with tempfile.TemporaryDirectory() as folder:
        for verb, work in VERBS.items():
            work(small_table(Path(folder, verb, "warm")))
            table = small_table(Path(folder, verb, "t"))
            entered = modules_entered(lambda work=work, table=table: work(table))
            print(f"{verb:7} enters {len(entered)} modules")


if __name__ == "__main__":
    print_sizes()
    print()
    print_doors()
