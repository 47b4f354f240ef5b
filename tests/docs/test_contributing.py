"""The package of CONTRIBUTING.md, a verb and a command by the seam alone, works beside txlog."""

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pyarrow as pa
import pytest

import txlog
from txlog.base.errors import InvalidInputError
from txlog.extend import Add, Intent, Operation, Remove, Snapshot, execute, rehearsing

GUIDE = (Path(__file__).parents[2] / "CONTRIBUTING.md").read_text(encoding="utf-8")
FENCE = r"```{0}\n# (\S+)\n(.*?)```"


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A folder in which the package of the guide is installed."""
    home = tmp_path / "installed"
    ((module, code),) = re.findall(FENCE.format("python"), GUIDE, re.DOTALL)
    ((_, project),) = re.findall(FENCE.format("toml"), GUIDE, re.DOTALL)
    about = tomllib.loads(project)["project"]
    info = home / "describe_table-1.0.dist-info"
    info.mkdir(parents=True)
    (home / module).write_text(code)
    (info / "METADATA").write_text(f"Name: {about['name']}\nVersion: {about['version']}\n")
    entries = about["entry-points"]["txlog.commands"].items()
    (info / "entry_points.txt").write_text(
        "[txlog.commands]\n" + "".join(f"{name} = {place}\n" for name, place in entries)
    )
    return home


@pytest.fixture
def table(tmp_path: Path) -> txlog.Table:
    return txlog.write(tmp_path / "t", pa.table({"x": [1]}))


def test_the_verb_works(package: Path, table: txlog.Table, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("typer")
    monkeypatch.syspath_prepend(package)
    from describe_table import SetDescription  # type: ignore[import-not-found]

    def verb() -> Operation:
        return SetDescription("of planes")  # type: ignore[no-any-return]

    with rehearsing():
        assert execute(table, verb()).rehearsed
    assert table.refresh().version == 0
    outcome = execute(table, verb(), txn=("job", 1), user_metadata="asked for")
    assert (outcome.operation, outcome.version, table.version) == ("SET DESCRIPTION", 1, 1)
    assert table.metadata.description == "of planes"
    assert table.history(1)[0]["userMetadata"] == "asked for"
    assert execute(table, verb(), txn=("job", 1)).skipped
    assert not execute(table, verb())


def command(package: Path, *words: str) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([str(package), str(Path(txlog.__file__).parents[1])])
    return subprocess.run(
        [sys.executable, "-m", "txlog", *words],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.slow
def test_the_command_is_found(package: Path, table: txlog.Table) -> None:
    pytest.importorskip("typer")
    done = command(package, "describe", table.uri, "of planes")
    assert (done.returncode, done.stdout) == (0, "version 1\n"), done.stderr
    assert command(package, "describe", table.uri, "of planes").stdout.startswith("it has this")
    assert table.refresh().metadata.description == "of planes"


@pytest.mark.slow
def test_only_a_command_that_txlog_lacks_is_loaded(package: Path, table: txlog.Table) -> None:
    pytest.importorskip("typer")
    (package / "describe_table.py").write_text("raise RuntimeError('of another package')")
    (entries,) = package.glob("*/entry_points.txt")
    entries.write_text(f"{entries.read_text()}show = describe_table:app\nwrong = os:sep\n")
    shown = command(package, "show", table.uri)
    assert (shown.returncode, "version" in shown.stdout) == (0, True), shown.stderr
    broken = command(package, "describe", table.uri, "x")
    assert broken.returncode == 6
    assert "describe_table:app: RuntimeError: of another package" in broken.stderr
    assert "is not a typer.Typer" in command(package, "wrong").stderr
    assert command(package, "absent").returncode == 2


# Operations that forget something, or contradict themselves ----------------------------------


class Wrong(Operation):
    name = "WRONG"

    def __init__(self, **facts: object) -> None:
        self.facts = facts
        self.discarded = False

    def intent(self, base: Snapshot) -> Intent:
        return Intent(**{"operation": self.name, "read_version": base.version, **self.facts})  # type: ignore[arg-type]

    def discard(self) -> None:
        self.discarded = True


def test_an_operation_without_a_method_is_refused() -> None:
    class Forgetful(Operation):
        name = "FORGETFUL"

    with pytest.raises(TypeError, match="intent"):
        Forgetful()  # type: ignore[abstract]


def test_an_operation_without_a_name_is_refused(table: txlog.Table) -> None:
    class Nameless(Operation):
        def intent(self, base: Snapshot) -> Intent | None:
            raise AssertionError("it is not called")

    with pytest.raises(
        InvalidInputError, match="Nameless has no text in the attribute name"
    ) as one:
        execute(table, Nameless())
    assert one.value.field == "name"
    assert table.refresh().version == 0


ADD = Add(path="a.parquet", partition_values={}, size=1, modification_time=0, data_change=True)
REMOVE = Remove(path="a.parquet", deletion_timestamp=0, data_change=True)


@pytest.mark.parametrize(
    ("facts", "field"),
    [
        ({"kind": "describe"}, "kind"),
        ({"kind": "append", "read_version": 7}, "read_version"),
        ({"kind": "append", "adds": (ADD, ADD)}, "adds"),
        ({"kind": "metadata", "adds": (ADD,)}, "adds"),
        ({"kind": "append", "removes": (REMOVE,)}, "removes"),
        ({"kind": "delete", "removes": (REMOVE,)}, "removes"),
        ({"kind": "delete", "row_deletes": frozenset({"a.parquet"})}, "row_deletes"),
        ({"kind": "protocol"}, "protocol"),
    ],
)
def test_an_intent_that_contradicts_itself_is_refused(
    table: txlog.Table, facts: dict[str, object], field: str
) -> None:
    wrong = Wrong(**facts)
    with pytest.raises(InvalidInputError, match="contradicts itself") as caught:
        execute(table, wrong)
    assert caught.value.field == field
    assert wrong.discarded
    assert table.refresh().version == 0
