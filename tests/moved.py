"""Other values for the numbers that only choose a way (`txlog.base.thresholds`)."""

import ast
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize

import txlog

ROOT = Path(txlog.__file__).parent


@cache
def thresholds() -> dict[str, int]:
    """Return the usual values of all thresholds by `module:NAME`."""
    found = {}
    for file in sorted(ROOT.rglob("*.py")):
        module = ".".join(("txlog", *file.relative_to(ROOT).with_suffix("").parts))
        text = file.read_text(encoding="utf-8")
        for node in ast.parse(text).body if ": Threshold" in text else ():
            if isinstance(node, ast.AnnAssign) and ast.unparse(node.annotation) == "Threshold":
                name = ast.unparse(node.target)
                found[f"{module}:{name}"] = getattr(import_module(module), name)
    return found


@contextmanager
def moved(values: Mapping[str, int]) -> Iterator[None]:
    """Give thresholds other values in the `with` block, also where they are imported by name."""
    with ExitStack() as undo:
        for place, value in values.items():
            module, _, name = place.partition(":")
            usual = thresholds()[place]
            for other, loaded in [*sys.modules.items()]:
                if not other.startswith("txlog."):
                    continue
                owns = name in getattr(loaded, "__annotations__", ())
                if (other == module or not owns) and getattr(loaded, name, None) == usual:
                    undo.callback(setattr, loaded, name, usual)
                    setattr(loaded, name, value)
        yield


def small_values() -> st.SearchStrategy[dict[str, int]]:
    """Return small values for some thresholds, or one for all of them."""
    values = st.sampled_from([1, 2, 3, 7, 64, 1000])
    names = sorted(thresholds())
    some = st.dictionaries(st.sampled_from(names), values, max_size=12)
    return some | values.map(lambda value: dict.fromkeys(names, value))


def with_moved(machine: type[RuleBasedStateMachine]) -> type[RuleBasedStateMachine]:
    """Return a state machine that is played with moved thresholds."""

    class Moved(machine):  # type: ignore[misc, valid-type]
        def __init__(self) -> None:
            super().__init__()
            self.undo = ExitStack()

        @initialize(values=small_values())
        def move(self, values: dict[str, int]) -> Any:
            self.undo.enter_context(moved(values))

        def teardown(self) -> None:
            with self.undo:
                super().teardown()

    Moved.__name__ = Moved.__qualname__ = f"Moved{machine.__name__}"
    return Moved
