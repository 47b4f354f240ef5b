"""The number of modules of txlog that a common verb enters, after all imports."""

import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType

import pyarrow as pa
import pytest

import txlog

HOME = Path(txlog.__file__).parent

MODULES_ENTERED = {"append": 38, "scan": 39, "delete": 62}
"""At most, by verb."""

VERBS: dict[str, Callable[[txlog.Table], object]] = {
    "append": lambda table: table.append(pa.table({"x": [7, 8], "y": ["a", "b"]})),
    "scan": lambda table: table.scan().to_arrow(),
    "delete": lambda table: table.delete("x = 3"),
}


def small_table(root: Path) -> txlog.Table:
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

    def seen(frame: FrameType, event: str, arg: object) -> None:
        # What `lazy` does is what `dataclasses` does elsewhere.
        if event == "call" and not frame.f_code.co_filename.endswith("txlog/lazy.py"):
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


@pytest.mark.parametrize("verb", list(VERBS))
def test_a_verb_enters_few_modules(tmp_path: Path, verb: str) -> None:
    VERBS[verb](small_table(tmp_path / "warm"))
    table = small_table(tmp_path / "t")
    entered = modules_entered(lambda: VERBS[verb](table))
    assert "table/writing.py" in entered or verb == "scan"
    assert len(entered) <= MODULES_ENTERED[verb], sorted(entered)
