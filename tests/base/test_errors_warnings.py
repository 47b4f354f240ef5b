"""Warnings name the line that called txlog, from any depth and any thread."""

import ast
import json
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import txlog
from tests.examples import examples
from txlog.base.errors import tidied, warn_caller, warn_committed

_CODE = Path(txlog.__file__).parent

# Ways in which a function of txlog calls another one.
_WAYS = """
from contextlib import contextmanager
from functools import reduce
from txlog.base.threads import Threads, Workers, map_ahead, prefetch

def plain(call):
    return lambda: call()

def reduced(call):
    return lambda: reduce(lambda *_: call(), [1, 2])

def block(call):
    @contextmanager
    def found():
        yield
        call()
    def run():
        with found():
            pass
    return run

def thread(call):
    def run():
        with Workers(1) as threads:
            threads.start(lambda _: call(), 0).result()
    return run

def ahead(call):
    return lambda: list(map_ahead(lambda _: call(), [0, 1], workers=2, ahead=2))

def fetched(call):
    def items():
        call()
        yield 1
    return lambda: list(prefetch(items()))

def engine(call):
    return lambda: list(Threads(2).map(lambda _: call(), [0]))
"""

_ways: dict[str, Any] = {"__name__": "txlog.verbs.some"}
exec(_WAYS, _ways)


def _warned(call: Callable[[], object]) -> set[tuple[str, int]]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        call()
    assert caught
    assert all(one.category is txlog.TxlogWarning for one in caught)
    return {(one.filename, one.lineno) for one in caught}


@settings(max_examples=examples(200), deadline=None)
@given(
    ways=st.lists(
        st.sampled_from(["plain", "reduced", "block", "thread", "ahead", "fetched", "engine"]),
        max_size=5,
    ),
    warn=st.sampled_from([warn_caller, warn_committed, None]),
)
def test_the_line_is_that_of_the_caller(
    ways: list[str], warn: Callable[[str], None] | None
) -> None:
    said = "lambda: warn('odd') if warn else tidied(lambda: 1 / 0)"
    call = eval(said, _ways | {"warn": warn, "tidied": tidied})
    for way in ways:
        call = _ways[way](call)
    asking = lambda: call()  # noqa: E731 # Its line is the one that is shown.
    assert _warned(asking) == {(__file__, asking.__code__.co_firstlineno)}


def _wrong_hint(root: str) -> None:
    (Path(root) / "_delta_log" / "_last_checkpoint").write_text("no JSON")


def _wrong_count(root: str) -> None:
    first = Path(root) / "_delta_log" / f"{0:020}.json"
    lines = [json.loads(line) for line in first.read_text().splitlines()]
    for line in lines:
        if "add" in line:
            stats = json.loads(line["add"]["stats"])
            line["add"]["stats"] = json.dumps({**stats, "numRecords": 7})
    first.write_text("".join(json.dumps(line) + "\n" for line in lines))


_ODD: dict[str, tuple[Callable[[str], None] | None, Callable[[str], object]]] = {
    "hint": (_wrong_hint, lambda root: txlog.Table(root)),
    "count, Arrow": (_wrong_count, lambda root: txlog.Table(root).to_arrow()),
    "count, batches": (_wrong_count, lambda root: list(txlog.Table(root).to_batches())),
    "count, polars": (_wrong_count, lambda root: txlog.Table(root).to_polars()),
    "uint64": (
        None,
        lambda root: txlog.Table.create(root + "-2", pa.schema([("n", pa.uint64())])),
    ),
    "property": (
        None,
        lambda root: txlog.Table(root).alter.set_properties({"delta.none": "1"}),
    ),
}


@pytest.mark.parametrize("odd", list(_ODD))
def test_verbs_show_the_line_that_called_them(odd: str, tmp_path: Path) -> None:
    root = str(tmp_path / "t")
    txlog.write(root, pa.table({"x": [1, 2]}))
    damage, call = _ODD[odd]
    if damage is not None:
        damage(root)
    first = call.__code__.co_firstlineno
    lines = {(__file__, first), (__file__, first + 1)}  # Python may name either of an entry's.
    assert _warned(lambda: call(root)) <= lines


@pytest.mark.slow
def test_every_warning_goes_through_one_function() -> None:
    found = {
        f"{path.relative_to(_CODE)}:{node.lineno}"
        for path in _CODE.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_bytes()))
        if isinstance(node, ast.Call)
        and ast.unparse(node.func).endswith(("warnings.warn", "warn_explicit"))
    }
    assert {one.partition(":")[0] for one in found} == {"base/errors.py"}
    assert len(found) == 1
