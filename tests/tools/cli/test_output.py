"""What commands print is what the data is: no value, name or row is lost, changed or obeyed."""

import json
import math
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import txlog
from tests.examples import examples
from txlog.base.texts import visible
from txlog.tools.cli.app import run
from txlog.tools.cli.output import as_rows, print_json, print_rows, print_text
from txlog.training import Datasets

STEERING = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
ODD = [
    "urn:key:5",
    r"a\b",
    r"\[x]",
    "[bold]x[/bold]",
    "\x1b[31mred\x1b[0m",
    "a\rb",
    "a\x07",
    "\u202eabc",
]
TEXTS = st.one_of(st.sampled_from(ODD), st.text(max_size=8).filter(lambda t: "\n" not in t))


@contextmanager
def wide(columns: int) -> Iterator[StringIO]:
    """Catch what is printed to a console of a width."""
    out = StringIO()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(out):
        patch.setenv("COLUMNS", str(columns))
        yield out


@settings(max_examples=examples(200), deadline=None)
@given(st.lists(TEXTS.filter(str.strip), min_size=1, max_size=3), TEXTS.filter(str.strip))
@example(ODD, "urn:key:6")
def test_texts_are_shown_as_they_are_and_obeyed_by_no_terminal(
    values: list[str], name: str
) -> None:
    for columns in (5_000, 1):  # As a table, and as records.
        with wide(columns) as out:
            print_rows(name, [{name: value} for value in values], json=False)
            print_text(values[0])
        shown = out.getvalue()
        assert not STEERING.search(shown)
        if columns > 1:
            for text in (*values, name):
                assert visible(text).strip() in shown


NUMBERS = st.one_of(st.none(), st.booleans(), st.floats(), st.integers(-(2**70), 2**70))
VALUES = st.recursive(
    NUMBERS | st.text(st.characters(), max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner),
    max_leaves=6,
)


def as_json(value: Any) -> Any:
    """Return the form of a value in JSON."""
    if isinstance(value, dict):
        return {name: as_json(one) for name, one in value.items()}
    if isinstance(value, list):
        return [as_json(one) for one in value]
    if isinstance(value, float) and not math.isfinite(value):
        return {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}[str(value)]
    if type(value) is int and not -(2**63) <= value < 2**64:
        return str(value)
    return value.encode("utf-8", "backslashreplace").decode() if type(value) is str else value


@settings(max_examples=examples(200), deadline=None)
@given(VALUES)
@example([math.nan, math.inf, -math.inf, 2**64, "\udcff"])
def test_json_has_each_value(value: Any) -> None:
    with wide(80) as out:
        print_json(value)
    assert json.loads(out.getvalue()) == as_json(value)


@settings(max_examples=examples(100), deadline=None)
@given(st.lists(st.sampled_from(["a", "b", "a_1", "a_1_1"]), max_size=6))
def test_no_column_is_lost_for_its_name(names: list[str]) -> None:
    columns = [pa.array([place]) for place in range(len(names))]
    rows = as_rows(pa.Table.from_arrays(columns, names))
    assert [list(row.values()) for row in rows] == ([list(range(len(names)))] if names else [])
    kept = [first for place, first in enumerate(names) if first not in names[:place]]
    assert all(rows[0][name] == names.index(name) for name in kept)


@pytest.mark.parametrize("engine", ["duckdb"])
def test_a_query_may_give_two_columns_one_name(engine: str, capsys: Any) -> None:
    query = "SELECT 1 AS a, 2 AS a, 'NaN'::DOUBLE AS x"
    assert run(["sql", query, "--engine", engine, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == [{"a": 1, "a_1": 2, "x": "NaN"}]
    assert run(["sql", query, "--engine", engine]) == 0
    assert capsys.readouterr().out.split()[:3] == ["a", "a", "x"]


def test_a_column_of_a_data_set_may_be_called_change(tmp_path: Path, capsys: Any) -> None:
    made = Datasets(tmp_path).create("d", "TABLE", pa.table({"change": ["mine"], "n": [1]}))
    made.update(pa.table({"change": ["other"], "n": [2]}))
    assert run(["datasets", "diff", str(tmp_path), "d", "1", "2", "--rows", "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert row == {"change_1": "added", "change": "other", "n": 2, "commit_id": 2}


def called(*words: str, **options: Any) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [sys.executable, "-m", "txlog", *words], capture_output=True, check=False, **options
    )


def called_without(number: int, *words: str) -> subprocess.CompletedProcess[bytes]:
    """Run a command with a standard file closed. (A `preexec_fn` would run the hooks of a fork.)"""
    command = shlex.join([sys.executable, "-m", "txlog", *words])
    return subprocess.run(
        ["sh", "-c", f"exec {command} {number}>&-"], capture_output=True, check=False
    )


@pytest.mark.slow
def test_an_error_shows_no_escape_sequences(tmp_path: Path) -> None:
    done = called("show", f"{tmp_path}/\x1b]0;title\x07")
    assert done.returncode == 4
    assert b"\x1b" not in done.stderr
    assert rb"\x1b]0;title\x07" in done.stderr


@pytest.mark.slow
def test_folders_whose_names_are_not_utf_8(tmp_path: Path) -> None:
    folder = os.fsencode(tmp_path) + b"/caf\xe9"
    txlog.write(tmp_path / "t", pa.table({"n": [1]}))
    os.rename(os.fsencode(tmp_path / "t"), folder)  # noqa: PTH104
    for command in ("show", "head", "history"):
        for more in ((), ("--json",)):
            done = called(command, os.fsdecode(folder), *more)
            assert done.returncode == (2 if command == "head" else 0)  # Arrow opens no such file.
            assert done.stderr.count(b"\n") == (command == "head")
            done.stdout.decode()


@pytest.mark.slow
def test_a_closed_standard_output_is_an_error_of_one_line(tmp_path: Path) -> None:
    txlog.write(tmp_path / "t", pa.table({"n": [1]}))
    for words in (["show"], ["count"], ["history", "--json"]):
        done = called_without(1, words[0], str(tmp_path / "t"), *words[1:])
        assert done.returncode == 1
        assert b"txlog: the output cannot be written: Bad file descriptor" in done.stderr
    done = called_without(2, "show", str(tmp_path / "none"))
    assert (done.returncode, done.stdout) == (4, b"")


def test_an_error_of_another_file_does_not_blame_the_output(tmp_path: Path) -> None:
    code = (
        "import sys, txlog.tools.cli as cli\n"
        "def fail(words): raise PermissionError(13, 'Permission denied', 'rows.csv')\n"
        "cli._run = fail\n"
        "cli.main()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
    assert (done.returncode, done.stdout) == (1, b"")
    assert done.stderr == b"txlog: [Errno 13] Permission denied: 'rows.csv'\n"
