"""The time zone of SQL on the command line."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import txlog
from txlog.tools.cli.app import run

OF_DAY = "at >= TIMESTAMP'2024-01-02 00:00:00' AND at < TIMESTAMP'2024-01-03 00:00:00'"


@pytest.fixture
def place(tmp_path: Path) -> str:
    times = [datetime(2024, 1, day, hour, tzinfo=UTC) for day, hour in ((2, 1), (2, 15), (3, 2))]
    rows = pa.table({"at": pa.array(times, pa.timestamp("us", "UTC")), "n": [1, 2, 3]})
    return txlog.write(tmp_path / "t", rows).uri


def left(place: str) -> list[int]:
    return sorted(txlog.Table(place).to_arrow()["n"].to_pylist())


@pytest.mark.parametrize("zone", [None, "UTC", "America/New_York"])
def test_predicates_are_in_the_zone_before_the_command(
    place: str, zone: str | None, capsys: Any
) -> None:
    asked = [] if zone is None else ["--time-zone", zone]
    there = [2, 3] if zone == "America/New_York" else [1, 2]

    assert run([*asked, "count", place, "--where", OF_DAY]) == 0
    assert capsys.readouterr().out.strip() == "2"
    assert run([*asked, "head", place, "--where", OF_DAY, "--json"]) == 0
    shown = capsys.readouterr().out
    assert [number for number in (1, 2, 3) if f'"n": {number}' in shown] == there
    assert run([*asked, "update", place, "--set", "n = n + 10", "--where", OF_DAY]) == 0
    assert left(place) == sorted(n + 10 if n in there else n for n in (1, 2, 3))
    assert run([*asked, "delete", place, "--where", OF_DAY]) == 0
    assert left(place) == [n for n in (1, 2, 3) if n not in there]


def test_an_unknown_zone_is_refused(place: str, capsys: Any) -> None:
    assert run(["--time-zone", "Nowhere/City", "delete", place, "--where", OF_DAY]) != 0
    assert "Nowhere/City" in capsys.readouterr().err
    assert left(place) == [1, 2, 3]
