"""Python's own errors about wrong arguments call a method as its callers do."""

import inspect
from collections.abc import Iterator
from unittest.mock import MagicMock

import pytest

import txlog
import txlog.training
from txlog.changes.blame import Blame
from txlog.changes.diff import Diff
from txlog.table.alter import TableAlter
from txlog.table.indexes import TableIndexes
from txlog.table.maintenance import TableMaintenance, TablePins
from txlog.table.optimize import TableOptimize
from txlog.table.transaction import TableTransaction

_NAMESPACES = {
    "Table.alter": TableAlter,
    "Table.indexes": TableIndexes,
    "Table.maintenance": TableMaintenance,
    "Table.optimize": TableOptimize,
    "Table.pins": TablePins,
}


def _classes() -> Iterator[tuple[str, type]]:
    yield from _NAMESPACES.items()
    yield from ((one.__name__, one) for one in (TableTransaction, Diff, Blame))
    for module in (txlog, txlog.training):
        for name in module.__all__:
            found = getattr(module, name)
            if inspect.isclass(found) and found.__module__.startswith("txlog."):
                yield name, found


def _methods() -> Iterator[tuple[str, type, str]]:
    for shown, kind in _classes():
        for name in dir(kind):
            method = inspect.getattr_static(kind, name)
            if isinstance(method, classmethod | staticmethod):
                method = method.__func__
            if name.startswith("_") or not inspect.isfunction(method):
                continue
            parameters = inspect.signature(method).parameters.values()
            takes_any = any(one.kind is one.VAR_KEYWORD for one in parameters)
            if method.__module__.startswith("txlog.") and not takes_any:
                yield shown, kind, name


_METHODS = list(_methods())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("shown", "kind", "name"), _METHODS, ids=[f"{one[0]}.{one[2]}" for one in _METHODS]
)
def test_a_type_error_names_the_public_class(shown: str, kind: type, name: str) -> None:
    is_bound = not inspect.isfunction(inspect.getattr_static(kind, name))
    first = () if is_bound else (MagicMock(),)
    with pytest.raises(TypeError) as caught:
        getattr(kind, name)(*first, no_such_argument=1)
    assert str(caught.value).startswith(f"{shown}.{name}() "), caught.value


def test_the_methods_of_a_table_are_among_them() -> None:
    assert {("Table", txlog.Table, "append"), ("Table", txlog.Table, "to_arrow")} <= {*_METHODS}
    assert len(_METHODS) > 150
