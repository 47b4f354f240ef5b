"""What callers call: the public functions of txlog, with the arguments that they have."""

import inspect
import sys
import typing
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache
from pkgutil import resolve_name
from types import CodeType, FunctionType, TracebackType
from typing import Any

from txlog.base.errors import InvalidInputError, TxlogError, in_callers_words

FACES = ("txlog", "txlog.extend", "txlog.spark_ext", "txlog.testing", "txlog.training")
"""The modules whose names users import."""

# Classes that callers reach through attributes and calls of `Table`.
ATTRIBUTES = (
    "txlog.table.alter.TableAlter",
    "txlog.table.indexes.TableIndexes",
    "txlog.table.maintenance.TableMaintenance",
    "txlog.table.maintenance.TablePins",
    "txlog.table.merge.TableMerger",
    "txlog.table.optimize.TableOptimize",
)

# What the arguments of a call may have been passed to, besides the function and what makes the
# object: functions, and classes with all their methods. By the beginnings of functions' names.
MADE: dict[str, tuple[str, ...]] = {
    "": ("txlog.WriteOptions",),
    "Catalog.run": ("txlog.catalog.transaction.TransactionTable",),
    "Catalog.transaction": ("txlog.catalog.transaction.TransactionTable",),
    "DeltaMergeBuilder.": ("txlog.spark_ext.DeltaMergeBuilder", "txlog.spark_ext.DeltaTable.merge"),
    "DeltaOptimizeBuilder.": ("txlog.spark_ext.DeltaOptimizeBuilder",),
    "DeltaTable.": ("txlog.spark_ext.DeltaTable.forName", "txlog.spark_ext.DeltaTable.forPath"),
    "DeltaTableBuilder.": ("txlog.spark_ext.DeltaTableBuilder",),
    "Diff.": ("txlog.training.Dataset.diff",),
    "Mixture.": ("txlog.training.Loader",),
    "Scan.": ("txlog.Table.scan",),
    "SparkEngine.map": ("txlog.Table",),  # Tables call the engine that they were given.
    "Table.transaction": ("txlog.table.transaction.TableTransaction",),
    "Table.commit": ("txlog.FragmentOperation",),
    "TableMerger.": ("txlog.table.merge.TableMerger",),
    "TableMerger.execute": ("txlog.Table.merge",),
    "TrainingSet.": ("txlog.training.Dataset.prepare",),
    "TrainingSet.loader": ("txlog.training.Loader",),
}
# Spark calls sources, with options of its users. An operation has arguments of its own. The checks
# of limits get the name of an argument.
FOREIGN = ("TxlogDataSource.", "execute", "Limits.require_")

WRAPPERS = {in_callers_words(len).__code__}


@cache
def parameters_of(one: Any) -> frozenset[str]:
    """Return the parameters of a function, or of a class and its public methods."""
    found = {*inspect.signature(one).parameters}
    if inspect.isclass(one):
        for name in dir(one):
            if not name.startswith("_") and callable(method := getattr(one, name)):
                found |= {*inspect.signature(method).parameters}
    return frozenset(found)


def known_to(function: Callable[..., Any]) -> set[str]:
    """Return the arguments that an error of a function may name.

    They are its own, those of the calls that made the object, and those of a value that was passed.
    """
    name = function.__qualname__
    makers = [resolve_name(one) for begin in MADE if name.startswith(begin) for one in MADE[begin]]
    of_class = vars(sys.modules[function.__module__]).get(name.partition(".")[0])
    if inspect.isclass(of_class):
        makers.append(of_class.__init__)
    return {name for one in (function, *makers) for name in parameters_of(one)}


def functions(faces: tuple[str, ...]) -> Iterator[Callable[..., Any]]:
    """Yield the public functions and methods of modules, and of the classes that they return."""
    seen: set[int] = set()

    def walk(one: Any) -> Iterator[Callable[..., Any]]:
        if id(one) in seen:
            return
        seen.add(id(one))
        if inspect.isclass(one):
            if one.__module__.startswith("txlog"):
                for name in dir(one):
                    if not name.startswith("_") or name == "__init__":
                        yield from walk(inspect.getattr_static(one, name))
            return
        one = getattr(one, "__func__", None) or getattr(one, "fget", None) or one
        one = getattr(one, "func", None) or one
        if inspect.isfunction(one) and one.__module__.startswith("txlog"):
            yield one
            hints: dict[str, Any] = {}
            with suppress(NameError, TypeError):  # A type is imported for checks only.
                hints = typing.get_type_hints(one, vars(sys.modules[one.__module__]))
            yield from walk(hints.get("return"))

    for face in faces:
        module = sys.modules[face]
        for name in module.__all__:
            with suppress(ImportError, TxlogError):  # It needs a package that is not installed.
                yield from walk(getattr(module, name))
    for home in ATTRIBUTES:
        yield from walk(resolve_name(home))


@cache
def by_code(faces: tuple[str, ...]) -> dict[CodeType, list[Callable[..., Any]]]:
    """Return the public functions of modules by their code, without what wraps them.

    A method that classes inherit is one for each of them.
    """
    found: dict[CodeType, list[Callable[..., Any]]] = {}
    for function in functions(faces):
        plain = inspect.unwrap(function)
        if isinstance(plain, FunctionType):
            found.setdefault(plain.__code__, []).append(function)
    return found


def called(trace: TracebackType | None) -> list[Callable[..., Any]]:
    """Return the public function of txlog that a test called, by the way of an error to it.

    Several functions may have the same code: then it is one of these. The list is empty if the
    first function of txlog on that way is not public.
    """
    while trace is not None:
        frame = trace.tb_frame
        name = frame.f_globals.get("__name__", "")
        if name.partition(".")[0] == "txlog":
            if frame.f_code in WRAPPERS:  # It wraps public functions only.
                return [frame.f_locals["function"]]
            known = by_code(tuple(face for face in FACES if face in sys.modules))
            return known.get(frame.f_code, [])
        trace = trace.tb_next
    return []


def foreign_argument(error: BaseException) -> str | None:
    """Return a text about an error if the function that was called lacks its argument."""
    if not isinstance(error, InvalidInputError):
        return None
    return foreign_to(called(error.__traceback__), error)


def foreign_to(functions: list[Callable[..., Any]], error: InvalidInputError) -> str | None:
    """Return a text about an error if none of the functions has its argument."""
    names = [function.__qualname__ for function in functions]
    if any(name.startswith(FOREIGN) for name in names):
        return None
    # `spark.…` is a setting of the session.
    if not functions or error.argument is None or error.argument.startswith("spark."):
        return None
    if any(error.argument in known_to(function) for function in functions):
        return None
    return f"{' or '.join(names)}: {error}"
