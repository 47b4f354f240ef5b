"""How many modules of txlog a warm call enters: as many as a reader of the call has to open."""

import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pyarrow as pa
import pytest

import txlog

HOME = str(Path(txlog.__file__).parent)


def modules_entered(call: Callable[[], object]) -> set[str]:
    """Return the modules of txlog of which a function runs during a call, in this thread or others.

    Importing a module and making its classes is not counted.
    """
    entered: set[str] = set()

    def note(frame: FrameType, event: str, _: Any) -> None:
        path = frame.f_code.co_filename
        if event == "call" and path.startswith(HOME) and frame.f_code.co_name != "<module>":
            entered.add(path[len(HOME) + 1 :])

    threading.setprofile(note)
    sys.setprofile(note)
    try:
        call()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)  # type: ignore[arg-type]
    return entered


@pytest.fixture(name="table")
def fixture_table(tmp_path: Path) -> txlog.Table:
    """A small table on a local disk, of which every verb was called once."""
    rows = pa.table({"x": list(range(10)), "s": ["a"] * 10})
    table = txlog.write(tmp_path, rows, properties={"delta.enableDeletionVectors": "true"})
    table.append(rows)
    table.delete("x = 3")
    table.to_arrow()
    return table


def test_a_scan_to_arrow_enters_few_modules(table: txlog.Table) -> None:
    entered = modules_entered(table.to_arrow)
    assert len(entered) <= 40, sorted(entered)


def test_an_append_enters_few_modules(table: txlog.Table) -> None:
    rows = pa.table({"x": [1], "s": ["b"]})
    entered = modules_entered(lambda: table.append(rows))
    assert len(entered) <= 47, sorted(entered)  # To become 38.


def test_a_delete_enters_few_modules(table: txlog.Table) -> None:
    entered = modules_entered(lambda: table.delete("x = 5"))
    assert len(entered) <= 77, sorted(entered)  # To become 65.
