"""Each remedy in the sources, in the words of the command line and of HTTP."""

import inspect
import re
import shlex
from typing import Any

import pytest
import typer.main

import txlog
from tests.remedies import HOME, SAMPLE, all_remedies
from txlog.base.remedies import CALLS, COMMANDS, NAMES, Asked, on_command_line, pieces
from txlog.expressions.functions import FUNCTIONS
from txlog.table.alter import TableAlter
from txlog.table.indexes import TableIndexes
from txlog.table.maintenance import TableMaintenance, TablePins
from txlog.table.optimize import TableOptimize
from txlog.tools.cli.app import app, asked, options_of
from txlog.tools.ui.pages import told
from txlog.training.datasets.dataset import Dataset
from txlog.training.service.problems import on_http, text_of

pytestmark = pytest.mark.xdist_group("remedies")  # All parse the whole package once.

# SQL, names of settings, and of columns, which a remedy may have without marks.
SQL = {"array", "cast", "count_if", "decimal", "interval", "ntile", "t", "try_cast"} | {
    name.lower() for name in FUNCTIONS
}
WORDS = {
    "azure_storage_account_name", "object_store", "symlink_format_manifest", "timestamp_nanos",
    "timestamp_nanos_ntz",
} | SQL  # fmt: skip
PLACEHOLDERS = {"VERSION": "1"}


def group() -> Any:
    return typer.main.get_command(app)


def every(command: Any, words: tuple[str, ...] = ()) -> dict[tuple[str, ...], Any]:
    if not hasattr(command, "commands"):
        return {words: command}
    return {
        key: found
        for name, one in command.commands.items()
        for key, found in every(one, (*words, name)).items()
    }


def parse(line: str) -> dict[str, Any]:
    """Return the parameters of a command line, parsed as by the program."""
    words = shlex.split(line)
    assert words.pop(0) == "txlog", line
    command = group()
    while hasattr(command, "commands"):
        command = command.commands[words.pop(0)]
    context = command.make_context("txlog", [PLACEHOLDERS.get(word, word) for word in words])
    context.close()
    return {name: list(v) if isinstance(v, tuple) else v for name, v in context.params.items()}


LINE = re.compile(r"`(txlog [^`]*)`")
NOTED = "(from Python)"
# What only Python has, found without the code that finds it for the command line.
PYTHON = re.compile(
    r"\b[A-Za-z_]\w*\.[a-z_]\w*\(|\b[A-Za-z_]\w*\(\)|"
    r"(?<![\w.-])[a-z]\w*=[\"'\[{(]|=(?:True|False|None)\b|"
    r"\b(?:Table|alter|optimize|maintenance|pins|indexes)\.[a-z_]+|\btxlog\.[A-Z]\w*|"
    r"\b(?:True|False)\b|[\[{]['\"]"
)


def plain(text: str) -> str:
    """Return a remedy without the commands in it, and without what is noted to be Python."""
    marked = LINE.sub("", text)
    kept = []
    parts = marked.split(NOTED)
    for part in parts[:-1]:
        code = [piece for is_code, piece in pieces(part.rstrip()) if is_code]
        assert code, text
        assert part.rstrip().endswith(code[-1]), text
        kept.append(part.rstrip().removesuffix(code[-1]))
    return "".join([*kept, parts[-1]])


@pytest.mark.slow
def test_the_walk_finds_the_remedies() -> None:
    found = all_remedies()
    assert len(found) > 550
    assert len({one.path for one in found}) > 120
    sources = "".join(path.read_text(encoding="utf-8") for path in HOME.rglob("*.py"))
    assert sources.count("remedy=") < len(found) * 1.3


# What a remedy may ask of a caller. A sentence without one of these words says only what is wrong.
ACTIONS = re.compile(
    "add|align|allow|alter|ask|assign|begin|bring|call|cast|change|check|choose|clone|combine|commit|"
    "compare|continue|convert|copy|correct|count|create|cut|declare|decode|define|delete|describe|"
    "discard|divide|do|download|drop|enable|export|fill|find|follow|forget|get|give|go|index|insert|"
    "install|join|keep|leave|let|list|load|look|make|map|merge|mount|move|name|omit|open|partition|"
    "pass|pick|pin|prepare|publish|purge|put|quote|raise|read|refresh|register|rename|repair|repeat|"
    "replace|report|restore|return|run|say|see|select|send|set|shorten|start|state|take|try|truncate|"
    "turn|update|upgrade|use|wait|widen|write|zip"
)
CLAUSE = re.compile(
    r"[.;:,]\s+|\b(?:and|or|else|then|please|otherwise|not|first|but)\b[:,]?\s*", re.IGNORECASE
)


@pytest.mark.slow
def test_each_remedy_says_what_to_do() -> None:
    idle = []
    for one in all_remedies():
        clauses = [clause.split()[0] for clause in CLAUSE.split(one.text) if clause.strip()]
        words = {word.strip("`'\"(").lower() for word in clauses}
        is_said = SAMPLE in words or any(map(ACTIONS.fullmatch, words))  # Or elsewhere.
        if not is_said and not any(is_code for is_code, _ in pieces(one.text)):
            idle.append(f"{one.path}:{one.line}: {one.text}")
    assert idle == []


@pytest.mark.slow
def test_remedies_are_in_the_words_of_each_command() -> None:
    lines, wrong = set(), set()
    commands = {words: options_of(one) for words, one in every(group()).items()} | {(): {}}
    words = NAMES.union(*(options for options in commands.values()))
    for one in all_remedies():
        if one.path.startswith("spark_ext/"):  # It has methods of Spark, and no command.
            continue
        if not any(is_code for is_code, _ in pieces(one.text, words)):
            commands_here: dict[tuple[str, ...], dict[str, str]] = {(): {}}
        else:
            commands_here = commands
        for command, options in commands_here.items():
            said = on_command_line(one.text, Asked("lake/my table", options))
            lines |= set(LINE.findall(said))
            if found := PYTHON.search(plain(said)):
                wrong.add(f"{command} {one.path}:{one.line}: {said}: {found.group()}")
    assert sorted(wrong) == []
    assert len(lines) >= 20
    for line in lines:
        parse(line)


@pytest.mark.slow
def test_words_with_brackets_or_underscores_are_sql_or_known_as_python() -> None:
    for one in all_remedies():
        if one.path.startswith("spark_ext/"):
            continue
        text = "".join(piece for is_code, piece in pieces(one.text) if not is_code)
        called = set(re.findall(r"(?<![\w.])([A-Za-z_]\w*)\(", text))
        words = set(re.findall(r"(?<![\w.`'\"/])([a-z]+(?:_[a-z]+)+)\b", text))
        unknown = {name.lower() for name in called} - SQL | (words - WORDS)
        assert not unknown, f"{one.path}:{one.line}: {one.text}"


FACES = {
    "": txlog.Table, "alter": TableAlter, "indexes": TableIndexes, "pins": TablePins,
    "maintenance": TableMaintenance, "optimize": TableOptimize, "datasets.dataset": Dataset,
}  # fmt: skip


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_is_for_a_call_that_there_is(name: str) -> None:
    face, _, method = name.rpartition(".")
    called = getattr(FACES[face], method, None) or getattr(txlog, method)
    if name not in ("Table", "write", "create"):  # These say what to make, not with what.
        known = set(inspect.signature(called).parameters)
        taken = inspect.signature(COMMANDS[name]).parameters
        assert {one for one in taken if one != "_"} <= known | {"names"}


@pytest.mark.parametrize(
    ("words", "remedy", "said"),
    [
        ("append t f.csv", 'Use schema_mode="merge" to add', "Use --merge-schema to add"),
        ("count t", 'Use schema_mode="merge"', 'Use schema_mode="merge" (from Python)'),
        ("show 'a b'", "call restore(5)", "call `txlog restore 'a b' --version 5`"),
        ("vacuum t", "Pass enforce_retention_duration=False", "Pass --no-enforce"),
        ("alter drop-feature t f", "Omit truncate_history", "Omit --truncate-history"),
        ("alter drop-feature t f", "Pass truncate_history=True", "Pass --truncate-history"),
        ("convert t", 'Pass properties={"a": "b c"}', "Pass --property 'a=b c'"),
        ("datasets prepare r n", 'with form="parquet"', "with --form parquet"),
        (
            "datasets show 'a b' n",
            "with datasets.dataset(3).undelete(), or",
            "with `txlog datasets undelete 'a b' 3`, or",
        ),
        ("count t", "Choose from a_b, table", "Choose from a_b, table"),
        (
            "compact t",
            "Choose from sort_by, table.id, restore(5), a='b'. Pass sort_by",
            "Choose from sort_by, table.id, restore(5), a='b'. Pass --sort-by",
        ),
        ("count t", "use get(array, index)", "use get(array, index)"),
        (
            "optimize t",
            "Correct it with optimize.compute_statistics(recompute=True); restore",
            "Correct it with optimize.compute_statistics(recompute=True) (from Python); restore",
        ),
        (
            "set t a=b",
            """Call alter.drop_constraint("it's") first""",
            """Call `txlog constraint t 'it'"'"'s' --drop` first""",
        ),
    ],
)
def test_a_remedy_for_a_command(words: str, remedy: str, said: str) -> None:
    assert on_command_line(remedy, asked(shlex.split(words))) == said


def test_a_call_whose_arguments_no_option_has_is_for_python() -> None:
    for call in ("optimize.compact(max_column_files=0)", "txlog.Table(…, catalog_commits=…)"):
        assert on_command_line(call, Asked("t")) == f"{call} (from Python)"


@pytest.mark.slow
@pytest.mark.parametrize("name", ["-c", "--drop", "TABLE", "a b", "it's", "-"])
@pytest.mark.parametrize("table", ["-t", "t", "--help"])
def test_any_name_can_stand_in_a_command(name: str, table: str) -> None:
    for call in (
        f"alter.drop_constraint({name!r})",
        f"alter.drop_feature({name!r}, truncate_history=True)",
        f"alter.set_nullable({name!r}, nullable=False)",
        f"pins.delete({name!r})",
        f"pins.update({name!r})",
        f"t.delete(where={name!r})",
        f"indexes.create([{name!r}])",
    ):
        (line,) = LINE.findall(on_command_line(f"Call {call} first", Asked(table)))
        values = parse(line)
        assert values.pop("table") == table, line
        assert name in values.values() or [name] in values.values(), line


@pytest.mark.parametrize("table", ["/tmp/R&D/t", "/tmp/a?b=c&d=e/t", "lake/x&y=z"])
def test_a_command_has_the_whole_path_of_a_local_table(table: str) -> None:
    said = told("Call restore(5); it keeps all rows", table)
    (line,) = LINE.findall(said)
    assert shlex.split(line)[2] == table
    assert said.endswith("; it keeps all rows")


def test_a_command_has_no_secrets() -> None:
    table = "memory://user:secretpw@h/t?token=hidden"
    for call in ("restore(5)", "t.doctor()", 'mode="append"', "txlog.Table.create"):
        said = on_command_line(f"Call {call}", Asked(table))
        assert "memory://" in said
        assert "secretpw" not in said
        assert "hidden" not in said


def test_names_and_calls_are_used() -> None:
    text = " ".join(one.text for one in all_remedies())
    for name in CALLS:
        assert f"{name}(" in text, name
    for name in NAMES:
        assert name in text, name


def test_over_http() -> None:
    for one in all_remedies():
        if one.path.startswith("training/") and "loader" not in one.path:
            error = txlog.NotFoundError(reason="r", remedy=one.text)
            for words in (on_http, lambda _: None):
                said = text_of(error, words).replace('"form": "parquet"', "")
                said = re.sub(r'"tags": \{[^}]*\}', "", said)
                assert not PYTHON.search(plain(said)), said
