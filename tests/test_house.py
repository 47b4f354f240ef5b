"""The structure of the code: imports between rooms, public names, the wheel's content."""

import ast
import inspect
import subprocess
import sys
import zipfile
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import txlog
import txlog.extend
import txlog.spark_ext
import txlog.testing
import txlog.training

HOME = Path(txlog.__file__).parent
ROOT = HOME.parent

# A room imports only rooms to its left (spec/architecture.md).
ORDER = (
    "base.lazy", "base.html", "base.texts", "base.errors", "base.frozen", "base.uris",
    "base.remedies", "base.moments", "base.effects", "base.version", "base.thresholds",
    "base.threads", "base.arrow", "base.frames", "base.columns", "base.text_bytes",
    "base.row_codes", "base.observe",
    "schema", "variant", "actions", "log", "protocol", "expressions", "fragments", "parquet",
    "stats", "reconcile",
    "store", "checkpoint", "snapshot",
    "scan", "lookup", "changes", "stream", "commit", "data_files", "verbs", "table", "catalog",
    "extend", "spark_ext",
    "training.loader", "training.datasets", "training.service", "training",
    "tools.report", "tools.ui", "tools.cli", "testing", "__main__",
)  # fmt: skip
SHELVES = {"base", "training", "tools"}  # Folders of rooms.
PRODUCTS = ORDER[ORDER.index("spark_ext") + 1 : ORDER.index("__main__")]  # The third storey.
PURE = ORDER[ORDER.index("schema") : ORDER.index("store")]
IMPURE = {"os", "io", "time", "random", "uuid", "threading", "socket", "subprocess", "pathlib",
          "tempfile", "shutil", "secrets"}  # fmt: skip
ONLY_IN = {
    "fsspec": {"store"},
    "pyspark": {"spark_ext", "tools.cli"},  # The command line only names its types.
    "time": {"base.effects"},
    "random": {"base.effects"},
    "uuid": {"base.effects"},
    "logging": {"base.observe", "tools.cli", "training.service"},
    "opentelemetry": {"base.observe"},
    "rich": {"tools.cli"},
    "typer": {"tools.cli"},
    "polars": {"scan", "table", "catalog"},  # Tables only name its types.
    "torch": {"training.loader"},
    "jax": {"training.loader"},
    "tensorflow": {"training.loader"},
    "duckdb": {"table"},
    "IPython": {"table"},
    "PIL": {"training.loader", "training.datasets"},
    "datasets": {"training.datasets"},
    "crc32c": {"training.datasets"},
    "grpc": {"training.service"},
    "google": {"training.service"},
    "httpx": {"training.service", "store"},
}
FACES = {"spark_ext", "tools.cli"}

MODULES = sorted(HOME.rglob("*.py"))


def room_of(path: Path) -> str:
    return room_named(path.relative_to(HOME).with_suffix("").parts)


def room_named(parts: Sequence[str]) -> str:
    """Return the room of a module; the face of a shelf is the last room of it."""
    return ".".join(parts[:2]) if parts[0] in SHELVES and len(parts) > 1 else parts[0]


def imports_of(path: Path) -> list[str]:
    """Return the modules that a module imports; relative imports begin with a dot."""
    found = []
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            found.append("." * node.level + (node.module or ""))
    return found


# In one process: each module is parsed once, and its tree is kept.
parses = pytest.mark.xdist_group("house")


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def faults_of(room: str, name: str, file: str) -> Iterator[str]:
    """Yield why a module of a room may not import another module."""
    top, _, rest = name.partition(".")
    if not top:
        yield "imports are absolute"
    elif name == "txlog":
        if room not in PRODUCTS:
            yield "imports the face of the house"
    elif top == "txlog":
        other = room_named(rest.split("."))
        if other != room and ORDER.index(other) >= ORDER.index(room):
            yield "is not to its left"
        # The demonstration shows Spark; it is the one place where two faces meet.
        if room in FACES and other in FACES - {room} and file != "demo.py":
            yield "is another face"
    else:
        if room not in ONLY_IN.get(top, {room}):
            yield "belongs to other rooms"
        if room in PURE and top in IMPURE:
            yield "is not pure"


def test_wrong_imports_are_seen() -> None:
    def faults(room: str, name: str, file: str = "a.py") -> list[str]:
        return list(faults_of(room, name, file))

    assert faults("scan", "txlog.scan.plan") == faults("scan", "txlog.store") == []
    assert faults("scan", ".plan") == ["imports are absolute"]
    assert faults("scan", "txlog") == ["imports the face of the house"]
    assert faults("training.loader", "txlog") == []
    assert faults("scan", "txlog.table.table") == ["is not to its left"]
    assert faults("scan", "pyspark.sql") == ["belongs to other rooms"]
    assert faults("schema", "os") == ["is not pure"]
    assert faults("schema", "time") == ["belongs to other rooms", "is not pure"]
    assert faults("tools.cli", "txlog.spark_ext") == ["is another face"]
    assert faults("tools.cli", "txlog.spark_ext", "demo.py") == []


@parses
def test_rooms_import_only_to_their_left() -> None:
    faces = {"__init__", *(f"{shelf}.__init__" for shelf in SHELVES)}
    wrong = [
        (path.relative_to(HOME).as_posix(), name, fault)
        for path in MODULES
        if (room := room_of(path)) not in faces
        for name in imports_of(path)
        for fault in faults_of(room, name, path.name)
    ]
    assert wrong == []


def names_of_face(module: str) -> set[str] | None:
    """Return `__all__` of a package that is a face; None for other modules."""
    file = file_of(module)
    for node in [] if file is None else tree_of(file).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return set(ast.literal_eval(node.value))
    return None


def is_public_for(room: str, module: str, name: str) -> bool:
    """Whether a room of the third storey may import a name of a module."""
    own = room.partition(".")[0]
    if f"{module}.".startswith(("txlog.base.", f"txlog.{own}.")):
        return True
    if own == "testing" and module.startswith("txlog.store."):
        return True  # It tests stores from within.
    return name in (names_of_face(module) or ())


def inner_imports(room: str, tree: ast.Module) -> list[str]:
    """Return the imports of a module of the third storey that break the rule."""
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and is_ours(module := node.module or ""):
            found += [
                f"{module}.{alias.name}"
                for alias in node.names
                if not is_public_for(room, module, alias.name)
            ]
        elif isinstance(node, ast.Import):  # All names of a module: it must be a face.
            found += [
                alias.name
                for alias in node.names
                if is_ours(alias.name)
                and not is_public_for(room, alias.name, "")
                and names_of_face(alias.name) is None
            ]
    return found


def is_ours(module: str) -> bool:
    return module.partition(".")[0] == "txlog"


def private_names(tree: ast.Module) -> set[str]:
    """Return the private attributes that the classes of a module define."""
    found: set[str] = set()
    for node in ast.walk(tree):
        for one in node.body if isinstance(node, ast.ClassDef) else ():
            match one:
                case ast.FunctionDef(name=name) | ast.AnnAssign(target=ast.Name(id=name)):
                    found.add(name)
                case ast.Assign(targets=[ast.Name(id=name)]):
                    found.add(name)
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            found.add(node.attr)
    return {name for name in found if name.startswith("_") and not name.startswith("__")}


def is_left_of(other: str, room: str) -> bool:
    """Whether a room may import another one."""
    return other in ORDER and room in ORDER and ORDER.index(other) < ORDER.index(room)


def foreign_privates(trees: dict[str, tuple[str, ast.Module]]) -> list[str]:
    """Return where a module reaches a private attribute of another room.

    An attribute that the module's own room has too is its own, except that a private attribute of
    tables must be of the module itself.
    """
    own = {module: private_names(tree) for module, (_, tree) in trees.items()}
    of_room: dict[str, set[str]] = {}
    for module, (room, _) in trees.items():
        of_room.setdefault(room, set()).update(own[module])
    tables = of_room.get("table", set())
    left = {
        room: set().union(*(of_room[other] for other in of_room if is_left_of(other, room)))
        for room in of_room
    }
    return [
        f"{module}: {ast.unparse(node)}"
        for module, (room, tree) in trees.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        and node.attr in left[room] | of_room[room]
        and not (isinstance(node.value, ast.Name) and node.value.id in ("self", "cls"))
        and node.attr not in own[module]
        and (node.attr not in of_room[room] or (room != "table" and node.attr in tables))
    ]


def test_foreign_reaches_are_seen() -> None:
    assert is_public_for("tools.ui", "txlog", "Table")
    assert is_public_for("tools.ui", "txlog.extend", "Operation")
    assert is_public_for("tools.ui", "txlog.tools.report.page", "content")
    assert is_public_for("tools.cli", "txlog.spark_ext", "session")
    assert not is_public_for("tools.cli", "txlog.spark_ext.sessions", "session")
    assert not is_public_for("tools.ui", "txlog.training.datasets.ledger", "MARK")
    assert not is_public_for("tools.ui", "txlog.extend", "OpenVersion")
    assert not is_public_for("training.loader", "txlog.store.base", "Store")
    assert is_public_for("testing", "txlog.store.memory", "Sink")
    right = "import txlog, txlog.extend, txlog.base.errors, txlog.tools.ui.app, os"
    assert inner_imports("tools.ui", ast.parse(right)) == []
    wrong = "import txlog.scan.plan, txlog.store as s; from txlog.scan.plan import plan_fragments"
    found = ["txlog.scan.plan", "txlog.store", "txlog.scan.plan.plan_fragments"]
    assert inner_imports("tools.ui", ast.parse(wrong)) == found
    trees = {
        "table.table": ("table", ast.parse("class Table:\n    def _run(self): self._open = 1")),
        "table.write": ("table", ast.parse("table._run()")),
        "spark.a": ("spark_ext", ast.parse("class A:\n    def _run(self): self._size = 1")),
        "spark.b": ("spark_ext", ast.parse("table._run(); a._size; frame._jdf; table._open")),
        "tools.a": ("tools.ui", ast.parse("a._size")),
    }
    found = ["spark.b: table._open", "spark.b: table._run", "tools.a: a._size"]
    assert sorted(foreign_privates(trees)) == found


@parses
def test_products_use_the_seam_and_no_room_reaches_into_another() -> None:
    """What the third storey lacks becomes a public name of `txlog.extend`, never an exception."""
    trees = {path.relative_to(HOME).as_posix(): (room_of(path), tree_of(path)) for path in MODULES}
    inner = [
        f"{module}: {name}"
        for module, (room, tree) in trees.items()
        if room in PRODUCTS
        for name in inner_imports(room, tree)
    ]
    assert inner == []
    assert foreign_privates(trees) == []


@pytest.mark.slow
@parses
def test_no_property_holds_a_lock_that_a_fork_would_keep() -> None:
    wrong = [
        path.relative_to(HOME).as_posix()
        for path in MODULES
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.ImportFrom) and node.module == "functools"
        if "cached_property" in {alias.name for alias in node.names}
    ]
    assert wrong == []


def modules_imported(path: Path) -> set[Path]:
    """Return the modules of txlog that a module imports, inside functions too."""
    tree = ast.Module(tree_of(path).body, [])
    # A lazy face names what is below it for type checkers alone.
    if path.name in ("__init__.py", "extend.py"):
        tree.body = [
            node
            for node in tree.body
            if not (isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING")
        ]
    imported = set()
    for node in ast.walk(tree):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            # A name of a package is a module of it, or of its `__init__`.
            below = [f"{node.module}.{alias.name}" for alias in node.names]
            modules = [name for name in below if file_of(name) is not None]
            names = modules if len(modules) == len(below) else [node.module, *modules]
        imported |= {file for name in names if (file := file_of(name)) is not None}
    return imported - {path}


def file_of(module: str) -> Path | None:
    if module.partition(".")[0] != "txlog":
        return None
    path = ROOT.joinpath(*module.split("."))
    for file in (path.with_suffix(".py"), path / "__init__.py"):
        if file.exists():
            return file
    return None


def knots(imports: dict[Path, set[Path]]) -> list[list[str]]:
    """Return the groups of modules that import each other, in a ring or directly."""
    left = dict(imports)
    while ends := [path for path, others in left.items() if not others & left.keys()]:
        for path in ends:  # It imports nothing that is left: it is in no ring.
            del left[path]
    while ends := left.keys() - set().union(*left.values()):
        for path in ends:  # Nothing that is left imports it.
            del left[path]
    reached = {path: {path} for path in left}
    for path, found in reached.items():
        todo = [path]
        while todo:
            new = (left[todo.pop()] & left.keys()) - found
            found |= new
            todo += new
    rings = {
        tuple(sorted(str(other) for other in reached[path] if path in reached[other]))
        for path in left
    }
    return sorted([*ring] for ring in rings if len(ring) > 1)


def test_knots_are_seen() -> None:
    a, b, c, d = map(Path, "abcd")
    assert knots({a: {b}, b: {c}, c: {d}, d: set()}) == []
    assert knots({a: {b}, b: {a}, c: {d}, d: {c}}) == [["a", "b"], ["c", "d"]]
    assert knots({a: {b}, b: {c}, c: {b, d}, d: set()}) == [["b", "c"]]


@parses
def test_modules_import_each_other_in_no_knot() -> None:
    assert knots({path: modules_imported(path) for path in MODULES}) == []


def parts_of(room: Path) -> set[str]:
    """Return the names of a room, of its folders and of its modules."""
    folders = {path.parent for path in room.rglob("*.py")}
    modules = {path.stem for path in room.rglob("*.py")} - {"__init__"}
    return modules | {folder.name for folder in folders} | {room.name}


def is_named_after(stem: str, parts: set[str]) -> bool:
    """Whether the name of a file of tests is that of a part, alone or before what it tests."""
    words = stem.removeprefix("test_").split("_")
    return any("_".join(words[:end]) in parts for end in range(1, len(words) + 1))


def test_names_of_tests_are_told_apart() -> None:
    parts = parts_of(HOME / "data_files")
    assert {"data_files", "write", "write_plan"} <= parts
    for right in ("test_write", "test_write_plan", "test_write_void", "test_data_files_odd"):
        assert is_named_after(right, parts)
    for wrong in ("test_writer", "test_void", "test_plan_write"):
        assert not is_named_after(wrong, parts)


def test_tests_are_named_after_what_they_test() -> None:
    """In a folder that mirrors a room, by a module, a folder, or the room (tests/README.md)."""
    tests = ROOT / "tests"
    wrong = [
        path.relative_to(tests).as_posix()
        for path in sorted(tests.rglob("test_*.py"))
        if (room := HOME / path.parent.relative_to(tests)) != HOME and room.is_dir()
        if not is_named_after(path.stem, parts_of(room))
    ]
    assert wrong == []


def test_the_example_of_the_package_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = txlog.__doc__ or ""
    example = "\n".join(line for line in text.splitlines() if line.startswith("    "))
    assert len(example.splitlines()) == 7
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    exec(inspect.cleandoc(example), names)
    assert names["rows"].to_pydict() == {"carrier": ["UA"]}
    assert names["before"].to_pydict() == {"carrier": ["UA", "B6"], "delay": [12, 47]}


def only_narrows(test: ast.expr) -> bool:
    """Whether a condition only tells the type checker what the code around it ensures."""
    match test:
        case ast.Call(func=ast.Name("isinstance")):
            return True
        case ast.Compare(ops=[ast.IsNot()], comparators=[ast.Constant(None)]):
            return True
    return False


@pytest.mark.slow
@parses
def test_no_assert_guards_data() -> None:
    """`python -O` removes asserts, so wrong data needs an error of its own."""
    asserts = [
        (path.relative_to(HOME).as_posix(), ast.unparse(node))
        for path in MODULES
        if room_of(path) != "testing"  # Its contracts are tests.
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.Assert) and not only_narrows(node.test)
    ]
    assert asserts == []


def run_python(code: str, *options: str) -> str:
    command = [sys.executable, *options, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return done.stdout.strip()


WRONG = """
import sys, pyarrow as pa, txlog
from txlog.expressions.tree import Call, IsNull, col
table = txlog.write(sys.argv[1] if sys.argv[1:] else "memory://wrong", pa.table({"id": [1, 2]}))
rows = pa.table({"id": [1]})
for wrong in (
    lambda: table.alter.add_constraint({"c": None}),
    lambda: table.alter.add_constraint({"c": []}),
    lambda: table.fragments()[0].delete([]),
    lambda: table.merge(rows, []).when_matched_delete().execute(),
    lambda: table.merge(rows, "target.id = source.id").when_matched_update({"id": []}).execute(),
    lambda: table.merge(rows, on="id").when_matched_fail().execute(),
    lambda: table.delete(IsNull(Call("plus_days", (col("id"), col("id"))))),
    lambda: table.optimize.z_order(["a-b."]),
):
    try:
        wrong()
    except Exception as error:
        print(type(error).__name__, end=" ")
print(table.refresh().version, __debug__)
"""


def test_python_without_asserts_refuses_the_same() -> None:
    usual, optimized = run_python(WRONG).split(), run_python(WRONG, "-O").split()
    assert usual[-1] == "True"
    assert optimized == [*usual[:-1], "False"]
    assert len(usual) == 10
    assert set(usual[:-2]) <= {"InvalidInputError", "InvalidTypeError"}
    assert usual[-2] == "0"


HEAVY = {"pyspark", "pandas", "sqlglot", "fsspec", "typer", "rich", "polars", "deltalake"}


@pytest.mark.parametrize(
    ("used", "heavy"),
    [("txlog", HEAVY | {"pyarrow", "pydantic"}), ("txlog.Table, txlog.write", HEAVY)],
)
def test_importing_is_light(used: str, heavy: set[str]) -> None:
    loaded = run_python(
        f"import sys, txlog; {used}; print(*{{name.partition('.')[0] for name in sys.modules}})"
    ).split()
    assert heavy.isdisjoint(loaded)


def test_every_public_name_is_there() -> None:
    for face in (txlog, txlog.extend, txlog.spark_ext, txlog.testing, txlog.training):
        assert dir(face) == sorted(face.__all__)
    for name in txlog.__all__:
        assert getattr(txlog, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'Tabel'"):
        _ = txlog.Tabel


def test_spark_finds_the_module_without_any_import() -> None:
    loaded = run_python("import sys, pyspark_txlog; print('txlog' in sys.modules)")
    assert loaded == "False"


def test_the_wheel_holds_the_two_packages_and_no_more(tmp_path: Path) -> None:
    subprocess.run(
        [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", tmp_path, ROOT],
        check=True,
        capture_output=True,
    )
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as held:
        names = held.namelist()
    tops = {name.partition("/")[0] for name in names}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"txlog", "pyspark_txlog"}
    assert "txlog/py.typed" in names
    assert {"txlog/tools/cli/data/flights.parquet", "txlog/tools/cli/data/errors.md"} <= set(names)
    assert any(name.endswith("licenses/LICENSE") for name in names)


@pytest.mark.parametrize(
    "command",
    [
        ("ruff", "check"),
        ("ruff", "format", "--check"),
        pytest.param(("mypy",), marks=pytest.mark.slow),
    ],
    ids=" ".join,
)
def test_the_code_is_clean(command: tuple[str, ...]) -> None:
    done = subprocess.run(
        [sys.executable, "-m", *command], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
