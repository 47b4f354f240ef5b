"""Print the sizes of the code, its complexity, its public names, and what common verbs enter.

For readers of the code: nothing depends on these figures.
"""

import ast
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType

import pyarrow as pa

import txlog
import txlog.extend

HOME = Path(txlog.__file__).parent
SHELVES = {"base", "training", "tools"}  # Folders of rooms.
FUNCTION = ast.FunctionDef | ast.AsyncFunctionDef
BRANCHES = (
    ast.If | ast.IfExp | ast.For | ast.While | ast.ExceptHandler | ast.match_case | ast.Assert
)

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
        if event == "call":
            entered.add(frame.f_code.co_filename)

    threading.setprofile(seen)
    sys.setprofile(seen)
    try:
        work()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    names = {Path(name) for name in entered}
    return {str(name.relative_to(HOME)) for name in names if name.is_relative_to(HOME)}


def room_of(path: Path) -> str:
    """Return the room of a module: a package or module below `txlog`, or below a shelf."""
    parts = path.relative_to(HOME).with_suffix("").parts
    if len(parts) == 1 + (parts[0] in SHELVES) and parts[-1].startswith("__"):
        return "(faces)"
    return ".".join(parts[:2]) if parts[0] in SHELVES else parts[0]


def kinds_of_lines(path: Path) -> Counter[str]:
    """Return how many lines of a module are code, imports, docstrings, comments and empty."""
    text = path.read_text("utf-8")
    kinds = dict.fromkeys(range(1, len(text.splitlines()) + 1), "code")
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            kinds[number] = "empty"
        elif line.lstrip().startswith("#"):
            kinds[number] = "comment"
    for node in ast.walk(ast.parse(text)):
        match node:
            case ast.Import() | ast.ImportFrom():
                kind = "import"
            case ast.Expr(value=ast.Constant(value=str())):
                kind = "docstring"
            case _:
                continue
        kinds.update(dict.fromkeys(range(node.lineno, (node.end_lineno or node.lineno) + 1), kind))
    return Counter(kinds.values())


def print_sizes() -> None:
    """Print modules and lines by room, and the ten largest modules."""
    lines = {path: kinds_of_lines(path) for path in HOME.rglob("*.py")}
    rooms: dict[str, list[Counter[str]]] = {}
    for path, kinds in lines.items():
        rooms.setdefault(room_of(path), []).append(kinds)

    def line(name: str, counts: list[Counter[str]]) -> str:
        both = sum(counts, Counter[str]())
        return (
            f"{name:18} {len(counts):4} modules {both.total():7,} lines {both['code']:7,} of code"
        )

    for room, counts in sorted(rooms.items(), key=lambda item: -sum(item[1], Counter()).total()):
        print(line(room, counts))
    print(line(f"all {len(rooms) - 1} rooms", [*lines.values()]))
    print(", ".join(f"{n:,} {kind}" for kind, n in sum(lines.values(), Counter()).most_common()))
    print()
    for path in sorted(lines, key=lambda one: -lines[one].total())[:10]:
        print(f"{lines[path].total():5} lines  {path.relative_to(HOME)}")


def complexity(function: ast.AST) -> int:
    """Return the number of ways through a function: 1, and 1 for each branch.

    Branches are conditions, loops, cases, handlers and the operands of `and` and `or`. Functions
    inside are counted for themselves.
    """
    found, todo = 1, [*ast.iter_child_nodes(function)]
    while todo:
        node = todo.pop()
        if isinstance(node, FUNCTION):
            continue
        if isinstance(node, BRANCHES):
            found += 1
        elif isinstance(node, ast.BoolOp):
            found += len(node.values) - 1
        elif isinstance(node, ast.comprehension):
            found += 1 + len(node.ifs)
        todo += ast.iter_child_nodes(node)
    return found


def private_names(tree: ast.Module) -> set[str]:
    """Return the private names that a module defines: of itself, its classes, and objects."""
    found: set[str] = set()
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                found.add(name)
            case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
                found.add(name)
    return {name for name in found if is_private(name)}


def is_private(name: str) -> bool:
    """Whether a name begins with one underscore, and is not `_` alone."""
    return name.startswith("_") and not name.startswith("__") and name.strip("_") != ""


def foreign_names(tree: ast.Module, own: set[str]) -> Iterator[str]:
    """Yield the private names that a module uses but does not define itself."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            yield from (alias.name for alias in node.names if is_private(alias.name))
        elif isinstance(node, ast.Attribute) and is_private(node.attr):
            is_inherited = isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")
            if not is_inherited and node.attr not in own:
                yield node.attr


def print_shape() -> None:
    """Print complexity, uses of foreign private names, and the number of public names."""
    trees = {path: ast.parse(path.read_text("utf-8")) for path in HOME.rglob("*.py")}
    functions = {
        f"{path.relative_to(HOME)}: {node.name}": complexity(node)
        for path, tree in trees.items()
        for node in ast.walk(tree)
        if isinstance(node, FUNCTION)
    }
    print(f"{len(functions):,} functions, average complexity ", end="")
    print(f"{sum(functions.values()) / len(functions):.2f}; the most complex ones:")
    for name in sorted(functions, key=lambda one: -functions[one])[:5]:
        print(f"{functions[name]:5}  {name}")
    own = {path: private_names(tree) for path, tree in trees.items()}
    here, elsewhere = Counter[str](), 0
    for path, tree in trees.items():
        for name in foreign_names(tree, own[path]):
            places = {room_of(other) for other in trees if name in own[other]}
            here.update(
                ["its room" if room_of(path) in places else "other rooms"] if places else []
            )
            elsewhere += not places
    print(
        f"private names of other modules are used {here.total()} times: {here['its room']} of the "
        f"same room, {here['other rooms']} of other rooms; of other libraries {elsewhere} times"
    )
    public = {
        "Table": [name for name in dir(txlog.Table) if not name.startswith("_")],
        "txlog": txlog.__all__,
        "txlog.extend": txlog.extend.__all__,
    }
    print("public names:", ", ".join(f"{len(names)} of {of}" for of, names in public.items()))


def print_doors() -> None:
    """Print how many modules a warm verb enters, after all imports: its doors."""
    with tempfile.TemporaryDirectory() as folder:
        for verb, work in VERBS.items():
            work(small_table(Path(folder, verb, "warm")))
            table = small_table(Path(folder, verb, "t"))
            entered = modules_entered(lambda work=work, table=table: work(table))
            print(f"{verb:7} enters {len(entered)} modules")


if __name__ == "__main__":
    print_sizes()
    print()
    print_shape()
    print()
    print_doors()
