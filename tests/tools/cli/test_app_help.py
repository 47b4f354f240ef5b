"""Every command has help, a working example and JSON; pipes, widths, completion."""

import inspect
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from io import StringIO
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import typer.main

import txlog
from txlog.tools.cli import app as commands
from txlog.tools.cli.app import run
from txlog.tools.cli.examine import EXAMPLES, chapters

PROGRAM = [sys.executable, "-m", "txlog"]


def every(group: Any, names: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    """Yield the commands of a group and of the groups in it, with their names."""
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from every(command, (*names, name))
        else:
            yield " ".join((*names, name)), command


COMMANDS = dict(every(typer.main.get_command(commands.app)))
# Spark, servers, a page that takes seconds, a hash: others test them.
ELSEWHERE = {"demo", "ui", "report", "datasets fetch", "datasets export", "datasets serve"}
NO_DATA = {f"datasets {name}" for name in (
    "tag", "hide", "unhide", "delete", "undelete", "purge", "remove-step", "branch", "discard",
)}  # fmt: skip
NO_DATA |= {"demo", "datasets serve"}


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_has_help_an_example_and_json(name: str) -> None:
    command = COMMANDS[name]
    text = command.help or ""
    assert re.match(r"[A-Z].*\.", text), "a sentence"
    for parameter in command.params:
        is_plain = getattr(parameter, "param_type_name", "") == "argument" or parameter.help
        assert is_plain, parameter.name
        assert parameter.help, f"{parameter.name} has no help"
    assert command.epilog == f"Example: txlog {EXAMPLES[name]}"
    options = {option for parameter in command.params for option in parameter.opts}
    assert "--json" in options or name in NO_DATA


def test_the_help_ends_with_the_example(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["alter", "add", "--help"]) == 0
    assert f"Example: txlog {EXAMPLES['alter add']}" in capsys.readouterr().out


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tables and files that the examples name."""
    home = tmp_path_factory.mktemp("examples")
    schema = pa.schema(
        [("carrier", pa.string()), ("delay", pa.int32()), ("day", pa.string()), ("id", pa.int64())]
    )
    mapping = {"delta.columnMapping.mode": "name", "delta.feature.allowColumnDefaults": "supported"}
    table = txlog.Table.create(
        home / "flights", schema, partition_by="day", identity="id", properties=mapping
    )
    days = ["2026-11-01", "2026-11-02"]
    rows = pa.table({"carrier": ["UA", "B6"], "delay": pa.array([70, -3], pa.int32()), "day": days})
    table.append(rows)
    table.append(rows)
    table.indexes.create("carrier", name="carrier")
    table.branches.create("audit")
    pq.write_table(rows.slice(0, 1), home / "new.parquet")
    txlog.write(home / "events", rows)
    (home / "lake" / "orders").mkdir(parents=True)
    pq.write_table(rows, home / "lake" / "orders" / "1.parquet")
    return home


@pytest.fixture
def folder(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of them, as the working folder."""
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "120")
    return tmp_path


@pytest.fixture(scope="module")
def catalog(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The catalog of data sets that the examples name, and its sources."""
    folder = tmp_path_factory.mktemp("catalog")
    for file, text in {"1.csv": "hello,greeting\nhi,greeting\n", "2.csv": "bye,farewell\n"}.items():
        (folder / file).write_text(text)
    (folder / "clean.py").write_text("def run(rows):\n    return rows\n")
    for words in ("create sets intents 1.csv --type TEXT_INTENT",
                  "update sets intents 2.csv --tag split=train",
                  "branch sets intents trial",
                  "create sets old 2.csv --type TEXT_INTENT", "delete sets old",
                  "on-commit sets intents --run clean.py --into lengths"):  # fmt: skip
        command, root, *rest = words.split()
        rest = [str(folder / word) if word.endswith(".csv") else word for word in rest]
        assert run(["datasets", command, str(folder / root), *rest]) == 0
    return folder


def make_lake() -> None:
    """Make the catalog of tables that the examples name, in the working folder."""
    lake = txlog.Catalog("lake.db", "lake")
    for name in ("sales.orders", "sales.old"):
        lake.create_table(name, pa.schema([("id", pa.int64())]), managed="writes")
    lake.drop("sales.old")


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in EXAMPLES if name not in ELSEWHERE])
def test_the_examples_work(
    name: str, folder: Path, capsys: pytest.CaptureFixture[str], request: pytest.FixtureRequest
) -> None:
    if name.startswith("datasets "):
        shutil.copytree(request.getfixturevalue("catalog"), folder, dirs_exist_ok=True)
        capsys.readouterr()
    if name.startswith("catalog "):
        make_lake()
    words = shlex.split(EXAMPLES[name])
    assert run(words) == 0, capsys.readouterr().err
    told = capsys.readouterr().out
    assert told or name in NO_DATA
    assert "\x1b" not in told


def test_examples_are_of_commands() -> None:
    assert EXAMPLES.keys() == COMMANDS.keys()


ROOT = Path(__file__).parents[3]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def test_the_page_of_the_command_line_has_all_commands() -> None:
    text = (ROOT / "docs" / "guides" / "cli.md").read_text("utf-8")
    assert [name for name in COMMANDS if f"| `txlog {EXAMPLES[name]}` |" not in text] in (
        [],
        ["ui"],
    )


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_commands_in_the_documentation_exist(page: Path) -> None:
    text = page.read_text("utf-8")
    blocks = "".join(re.findall(r"^```sh\n((?:.*\n)*?)```$", text, re.MULTILINE))
    calls = re.findall(r"^txlog .*", blocks, re.MULTILINE)
    calls += re.findall(r"`(txlog [a-z][^`\n]+)`", text)
    for call in calls:
        words = shlex.split(call.partition("#")[0].partition(" | ")[0])[1:]
        if not words or not words[0].islower() or words[0].endswith("="):
            continue
        assert any(name.split()[0] == words[0].split("|")[0] for name in COMMANDS), call
        name = " ".join(words[:2]) if " ".join(words[:2]) in COMMANDS else words[0]
        if name in COMMANDS:
            options = {one for parameter in COMMANDS[name].params for one in parameter.opts}
            asked = {word.partition("=")[0] for word in words if word.startswith("--")}
            assert asked <= options | {"--help"}, call


DRY = [name for name, command in COMMANDS.items()
       if any("--dry-run" in parameter.opts for parameter in command.params)]  # fmt: skip


def test_what_changes_rows_or_columns_can_be_tried() -> None:
    changing = {"create", "convert", "append", "merge", "update", "delete", "set", "constraint",
                "restore", "compact", "optimize"}  # fmt: skip
    changing |= {name for name in COMMANDS if name.startswith("alter ")}
    assert sorted(DRY) == sorted(changing)


TRIED = [name for name in DRY if "--dry-run" not in EXAMPLES[name]]
TRIED.remove("alter sync-identity")  # The counter of the example needs no change.


@pytest.mark.parametrize("name", TRIED)
def test_a_dry_run_leaves_everything_as_it_is(
    name: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    assert run([*shlex.split(EXAMPLES[name]), "--dry-run", "--json"]) == 0
    found = orjson.loads(capsys.readouterr().out)
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before
    assert found["version"] is None
    assert found["dry_run"] is True
    if name in ("update", "delete", "merge", "compact"):
        assert run([*shlex.split(EXAMPLES[name]), "--json"]) == 0  # The next call is none.
        done = orjson.loads(capsys.readouterr().out)
        assert done["version"] is not None
        rows = {key: value for key, value in done["metrics"].items() if "Rows" in key}
        assert rows == {key: found["metrics"][key] for key in rows}


def test_a_counter_can_be_tried(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = txlog.Table.create(
        tmp_path / "t",
        pa.schema([("n", pa.int64())]),
        identity={"n": txlog.Identity(start=1, step=1, explicit=True)},
    )
    table.append(pa.table({"n": [100]}))
    assert run(["alter", "sync-identity", table.uri, "n", "--dry-run", "--json"]) == 0
    assert orjson.loads(capsys.readouterr().out)["dry_run"] is True
    assert table.refresh().version == 1
    assert run(["alter", "sync-identity", table.uri, "n"]) == 0
    assert table.refresh().version == 2


def test_a_dry_run_is_told_in_words(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["delete", "flights", "--where", "delay < 0", "--dry-run"]) == 0
    told = capsys.readouterr().out
    assert told.startswith("would commit DELETE: numDeletedRows 2")
    assert told.endswith("nothing was written\n")


class TestErrors:
    def test_each_code_is_explained(self, capsys: pytest.CaptureFixture[str]) -> None:
        codes = {
            kind.code
            for _, kind in inspect.getmembers(txlog.base.errors, inspect.isclass)
            if issubclass(kind, txlog.TxlogError)
        } - {"txlog"}
        assert set(chapters()) == codes
        assert run(["help", "--json"]) == 0
        told = orjson.loads(capsys.readouterr().out)
        assert {one["code"] for one in told} == codes
        for one in told:
            assert one["class"] == getattr(txlog, one["class"]).__name__
            assert one["cause"]
            assert one["remedy"]
            assert "](" not in one["cause"] + one["remedy"]
        assert run(["help", "[not-found]", "--json"]) == 0
        assert orjson.loads(capsys.readouterr().out) in told

    def test_an_error_says_where_its_help_is(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert run(["show", "/no/table"]) == 4
        error = capsys.readouterr().err
        found = re.search(r"\(txlog (help [a-z-]+)\)\n$", error)
        assert found is not None
        assert run(found[1].split()) == 0
        assert "There is no table" in capsys.readouterr().out

    def test_remedies_are_commands(self, capsys: pytest.CaptureFixture[str]) -> None:
        for code, command in (
            ("not-found", "`txlog versions TABLE`"),
            ("unsupported-feature", "`txlog alter drop-feature TABLE NAME`"),
            ("data-file", "`txlog doctor TABLE`"),
        ):
            assert run(["help", code]) == 0
            assert command in capsys.readouterr().out

    def test_an_unknown_code(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert run(["help", "nope"]) == 2
        assert "not-found" in capsys.readouterr().err

    def test_a_terminal_gets_marks(
        self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        terminal = Terminal()
        monkeypatch.setattr("sys.stdout", terminal)
        assert run(["help", "not-found"]) == 0
        assert "There is no table" in terminal.getvalue()


class Terminal(StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.slow
@pytest.mark.parametrize("command", ["files", pytest.param("count", marks=pytest.mark.exhaustive)])
@pytest.mark.skipif(os.name != "posix", reason="pipes of POSIX")
def test_a_pipe_that_nobody_reads_ends_a_command_quietly(folder: Path, command: str) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    try:
        done = subprocess.run(
            [*PROGRAM, command, "flights"], stdout=writing, stderr=subprocess.PIPE, check=False
        )
    finally:
        os.close(writing)
    assert (done.returncode, done.stderr) == (141, b"")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a device of Linux")
@pytest.mark.parametrize("command", ["count", pytest.param("show", marks=pytest.mark.exhaustive)])
def test_output_that_cannot_be_written_is_one_line(folder: Path, command: str) -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [*PROGRAM, command, "flights"], stdout=full, stderr=subprocess.PIPE, check=False
        )
    assert done.returncode == 1
    assert done.stderr == b"txlog: the output cannot be written: No space left on device\n"


@pytest.mark.parametrize("width", [10, 30])
def test_a_narrow_console_loses_nothing(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, width: int
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    for command in ("history", "files", "schema", "versions", "show"):
        assert run([command, "flights"]) == 0
        lines = capsys.readouterr().out.splitlines()
        assert max(map(len, lines)) <= width
        together = "".join("".join(lines).split())
        expected = {"history": "CREATETABLE", "files": "part-", "schema": "carrier",
                    "versions": "version", "show": "columnMapping"}[command]  # fmt: skip
        if command != "show":
            assert expected in together
            assert ":" in together  # Names and values, a line each.


def test_colours_are_for_terminals_that_want_them(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = {}
    for name, value in {"TERM": "xterm-256color", "COLORTERM": "truecolor"}.items():
        monkeypatch.setenv(name, value)
    for wanted in ("", "1"):
        monkeypatch.setenv("NO_COLOR", wanted) if wanted else monkeypatch.delenv("NO_COLOR", False)
        terminal = Terminal()
        monkeypatch.setattr("sys.stdout", terminal)
        assert run(["help", "not-found"]) == 0
        told[wanted] = terminal.getvalue()
    colour = re.compile(r"\x1b\[[0-9;]*3[0-9]")
    assert colour.search(told[""])
    assert not colour.search(told["1"])


class TestCompletion:
    @pytest.mark.slow
    @pytest.mark.parametrize(
        ("words", "expected"),
        [
            pytest.param("txlog vacu", ["vacuum"], marks=pytest.mark.exhaustive),
            ("txlog alter widen --j", ["--json"]),
        ],
    )
    def test_words_are_completed(self, words: str, expected: list[str]) -> None:
        asked = {"_TXLOG_COMPLETE": "complete_bash", "COMP_WORDS": words}
        asked["COMP_CWORD"] = str(words.count(" "))
        done = subprocess.run(
            [str(Path(sys.executable).with_name("txlog"))],
            env={**os.environ, **asked}, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.stdout.split() == expected, done.stderr

    def test_the_script_of_a_shell_is_shown(
        self, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        # Where no shell is above this process, none is found.
        monkeypatch.setattr("shellingham.detect_shell", lambda *_: ("bash", "/bin/bash"))
        assert run(["--show-completion", "bash"]) == 0
        assert "_TXLOG_COMPLETE=complete_bash" in capsys.readouterr().out
