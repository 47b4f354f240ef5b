"""The house itself: who imports whom, what is public, what the wheel holds."""

import ast
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import txlog

HOME = Path(txlog.__file__).parent
ROOT = HOME.parent

# A room imports only rooms to its left (ARCHITECTURE in spec/architecture.md).
ORDER = (
    "errors", "effects", "version", "cached", "threads", "arrow", "schema", "variant",
    "actions", "log",
    "protocol", "expressions", "fragments", "stats", "reconcile",
    "store", "checkpoint", "snapshot",
    "scan", "changes", "stream", "commit", "data_files",
    "verbs", "table", "spark_ext", "cli", "testing",
)  # fmt: skip
PURE = ORDER[ORDER.index("schema") : ORDER.index("store")]
IMPURE = {"os", "io", "time", "random", "uuid", "threading", "socket", "subprocess", "pathlib",
          "tempfile", "shutil", "secrets"}  # fmt: skip
ONLY_IN = {
    "fsspec": {"store"},
    "pyspark": {"spark_ext", "cli"},  # The command line only names its types.
    "time": {"effects"},
    "random": {"effects"},
    "uuid": {"effects"},
    "rich": {"cli"},
    "typer": {"cli"},
    "polars": {"scan", "table"},  # Tables only name its types.
}
FACES = {"spark_ext", "cli"}

MODULES = sorted(HOME.rglob("*.py"))


def room_of(path: Path) -> str:
    parts = path.relative_to(HOME).with_suffix("").parts
    return parts[0]


def imports_of(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are absolute"
            assert node.module is not None
            found.add(node.module)
    return found


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(HOME)))
def test_rooms_import_only_to_their_left(path: Path) -> None:
    room = room_of(path)
    if room == "__init__":
        return
    for name in imports_of(path):
        top, _, rest = name.partition(".")
        if top == "txlog":
            other = rest.partition(".")[0]
            assert other, f"{path} imports the face of the house"
            assert other == room or ORDER.index(other) < ORDER.index(room), (path, name)
            if room in FACES and other in FACES - {room}:
                # The demonstration shows Spark; it is the one place where two faces meet.
                assert path.name == "demo.py", (path, name)
        else:
            assert room in ONLY_IN.get(top, {room}), f"{path} imports {top}"
            if room in PURE:
                assert top not in IMPURE, f"{path} imports {top}"


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(HOME)))
def test_no_property_holds_a_lock_that_a_fork_would_keep(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module == "functools":
            assert "cached_property" not in {alias.name for alias in node.names}, path


# They import pandas, or are heavy to import; `txlog.arrow` has what to call instead.
SLOW = re.compile(
    r"\bpa\.(array|scalar)\(|\.(empty_table|from_pylist|from_pydict|to_numpy|fill_null)\("
    r"|\bnp\.asarray\(|\bimport pyarrow\.(compute|parquet|dataset)|\bfrom pyarrow"
)
MAY_BE_SLOW = FACES | {"arrow", "testing"}


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(HOME)))
def test_rooms_use_pyarrow_without_pandas(path: Path) -> None:
    if room_of(path) in MAY_BE_SLOW:
        return
    lines = [re.sub('"[^"]*"', '""', line) for line in path.read_text("utf-8").splitlines()]
    assert [line for line in lines if SLOW.search(line) and "pc.fill_null(" not in line] == []


def run_python(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.strip()


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
    assert set(txlog.__all__) <= set(dir(txlog))
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
    assert "txlog/cli/data/flights.parquet" in names
    assert any(name.endswith("licenses/LICENSE") for name in names)


@pytest.mark.parametrize(
    "command",
    [("ruff", "check"), ("ruff", "format", "--check"), ("mypy",)],
    ids=" ".join,
)
def test_the_code_is_clean(command: tuple[str, ...]) -> None:
    done = subprocess.run(
        [sys.executable, "-m", *command], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_ci_runs_what_the_readme_says() -> None:
    script = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    lines = script.strip().splitlines()
    command, _ = (line.replace("--quiet ", "") for line in lines if "install --quiet" in line)
    assert command in (ROOT / "README.md").read_text(encoding="utf-8").splitlines()
