"""Wrong input: one `TxlogError` that names the cause, and nothing half-written."""

import ast
import inspect
import pickle
import re
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import txlog
from txlog import spark_ext
from txlog.table.alter import TableAlter
from txlog.table.indexes import TableIndexes
from txlog.table.maintenance import TableMaintenance, TablePins
from txlog.table.merge import TableMerger
from txlog.table.optimize import TableOptimize
from txlog.training import Dataset

ROWS = pa.table({"a": [1, 2], "s": ["x", "y"]})
Call = Callable[[Path], object]


def table(path: Path) -> txlog.Table:
    return txlog.Table(path / "t")


def wrong(value: object) -> Any:
    """Return a value that types would refuse where it is passed."""
    return value


class Odd:
    """No verb takes one of these for anything."""


# A value that fits, for parameters without a default.
FITS: dict[str, Any] = {
    "addresses": [0], "app_id": "a", "array": txlog.variant_from_python([1]), "column": "a",
    "columns": {"z": "1"}, "constraints": {"c": "a > 0"}, "data": ROWS, "default": "0",
    "description": "d", "feature": "appendOnly", "features": ["txlog.fragments"],
    "fragment_id": 0, "indices": [0], "keys": [1], "metadata": {"comment": "c"}, "name": "n",
    "names": "delta.appendOnly", "new_name": "z", "offsets": [0], "on": "a",
    "operation": txlog.FragmentOperation.Append([]), "predicate": "a = 9", "properties": {},
    "reader": 1, "schema": ROWS.schema, "source": ROWS, "start_version": 0, "texts": ["1"],
    "table": "memory://bad-input", "type": pa.int64(), "updates": {"a": "1"}, "values": [1],
    "version": 0, "where": "a = 9", "writer": 2, "computed_from": 0,
}  # fmt: skip
# All but the first two are for anything that Arrow or Python can hold.
UNCHECKED = {"transaction", "load_ipython_extension", "keys", "value", "low", "high", "other"}
LACKS = {("restore", "txn"), ("restore", "user_metadata")}  # It needs one of two.
# What refuses an argument that is neither a flag nor a number: a check below, or Python itself.
REFUSALS = (txlog.TxlogError, TypeError, AttributeError)
CDF = {"delta.enableChangeDataFeed": "true"}


def finish(result: object, called: str) -> None:
    """Do what a call left for later, and fail: an argument was of a wrong type."""
    if isinstance(result, Iterator):
        next(result, None)
    if isinstance(result, TableMerger):
        result.execute()
    pytest.fail(f"{called} took it: {result}")


FACES = ("table", "alter", "optimize", "maintenance", "pins", "indexes", "scan", "fragment",
         "merge", "changes", "diff", "transaction", "module", "catalog", "expression")  # fmt: skip


def calls_with_an_odd_value(face: object) -> Iterator[tuple[str, str, list[Any], dict[str, Any]]]:
    """Yield calls of each public function: its name, the parameter at fault, and all arguments."""
    for name in sorted(set(dir(face)) - UNCHECKED):
        function = getattr(face, name)
        if name.startswith("_") or isinstance(function, type) or not callable(function):
            continue
        of = inspect.signature(function).parameters
        fits = FITS | ({"columns": ["a"]} if name in ("z_order", "drop_columns", "create") else {})
        needed = {
            key: fits.get(key, 1 if str(one.annotation).startswith("int") else key)
            for key, one in of.items()
            if one.default is one.empty
        }
        for key in of.keys() - UNCHECKED:
            arguments = needed | {key: Odd()}
            args = []
            for one in of.values():
                if one.kind is one.VAR_POSITIONAL:
                    given = arguments.pop(one.name)
                    args += [given] if isinstance(given, Odd) else list(given)
            yield name, key, args, arguments | ({"version": 0} if (name, key) in LACKS else {})


@pytest.mark.slow
@pytest.mark.parametrize("which", FACES)
def test_an_argument_of_a_wrong_type_is_refused_before_anything_is_done(
    tmp_path: Path, which: str
) -> None:
    def face() -> Any:
        table = txlog.write(tmp_path / "t", ROWS, properties=CDF, mode="ignore")
        txlog.write(FITS["table"], ROWS, mode="ignore")
        faces: dict[str, Callable[[], Any]] = {
            "table": lambda: table,
            "scan": table.scan,
            "fragment": lambda: table.fragments()[0],
            "merge": lambda: table.merge(ROWS, "target.a = source.a"),
            "changes": table.changes,
            "diff": lambda: table.diff(0),
            "transaction": lambda: table.transaction().__enter__(),
            "module": lambda: txlog,
            "catalog": lambda: txlog.Catalog(tmp_path / "lake.db"),
            "expression": lambda: txlog.col("a"),
        }
        return faces.get(which, lambda: getattr(table, which))()

    names = set()
    for name, parameter, args, kwargs in calls_with_an_odd_value(face()):
        kind = str(inspect.signature(getattr(face(), name)).parameters[parameter].annotation)
        is_flag, is_number = kind == "bool", set(kind.split(" | ")) <= {"int", "None"}
        expected = (txlog.TxlogError,) if is_flag or is_number else REFUSALS
        with pytest.raises(expected) as caught:
            finish(getattr(face(), name)(*args, **kwargs), f"{name}({parameter})")
        if isinstance(caught.value, txlog.InvalidInputError) and caught.value.argument:
            known = inspect.signature(getattr(face(), name)).parameters
            assert caught.value.argument in known, f"{name}({parameter}): {caught.value}"
        if is_flag:  # A wrong one would delete, drop or hide.
            assert isinstance(caught.value, txlog.InvalidTypeError)
            assert caught.value.argument == parameter, f"{name}: {caught.value}"
        names.add(name)
    assert names
    assert not (tmp_path / "uri").exists()
    assert txlog.Table(tmp_path / "t").version == 0


CASES: dict[str, tuple[type[txlog.TxlogError], str, Call]] = {
    "no table": (txlog.NotFoundError, "no Delta table here", lambda p: txlog.Table(p / "no")),
    "a file": (txlog.NotFoundError, "file.txt", lambda p: txlog.Table(p / "file.txt")),
    "a folder that cannot be": (
        txlog.StoreError, "Check the path", lambda _: txlog.write("/proc/txlog", ROWS)
    ),
    "no path": (txlog.InvalidTypeError, "NoneType", lambda _: txlog.Table(None)),  # type: ignore[arg-type]
    "an empty path": (txlog.InvalidInputError, "uri", lambda _: txlog.Table(" ")),
    "options": (
        txlog.InvalidTypeError, "storage_options",
        lambda p: txlog.Table(p / "t", storage_options=5),  # type: ignore[arg-type]
    ),
    "an engine": (
        txlog.InvalidTypeError, "method map",
        lambda p: txlog.Table(p / "t", engine=3),  # type: ignore[arg-type]
    ),
    "a version of a wrong type": (
        txlog.InvalidTypeError, "history",
        lambda p: txlog.Table(p / "t", version=[1]),  # type: ignore[arg-type]
    ),
    "no pair": (
        txlog.InvalidTypeError, "my-job",
        lambda p: txlog.Table(p / "t").append(ROWS, txn=5),  # type: ignore[arg-type]
    ),
    "a version of an application as text": (
        txlog.InvalidTypeError, "my-job",
        lambda p: txlog.Table(p / "t").append(ROWS, txn=("job", "1")),  # type: ignore[arg-type]
    ),
    "a scheme": (
        txlog.UnsupportedFeatureError, "xyz", lambda _: txlog.Table("xyz://bucket/t")
    ),
    "another host": (txlog.InvalidInputError, "host", lambda _: txlog.Table("file://host/t")),
    "a version": (txlog.NotFoundError, "latest is 0", lambda p: txlog.Table(p / "t", version=7)),
    "a negative version": (
        txlog.InvalidInputError, "version", lambda p: txlog.Table(p / "t", version=-1)
    ),
    "version and time": (
        txlog.InvalidInputError, "only one", lambda p: txlog.Table(p / "t", 0, "2020-01-01")
    ),
    "too early": (
        txlog.NotFoundError, "before the first", lambda p: txlog.Table(p / "t", timestamp=-(10**18))
    ),
    "too late": (
        txlog.NotFoundError, "after the last",
        lambda p: txlog.Table(p / "t", timestamp=datetime.max),
    ),
    "far too late": (
        txlog.NotFoundError, "after the last", lambda p: txlog.Table(p / "t", timestamp=10**30)
    ),
    "no time": (
        txlog.InvalidInputError, "soon", lambda p: txlog.Table(p / "t", timestamp="soon")
    ),
    "a float for a time": (
        txlog.InvalidTypeError, "float",
        lambda p: txlog.Table(p / "t", timestamp=1.5),  # type: ignore[arg-type]
    ),
    "text for columns of files": (
        txlog.InvalidTypeError, r"Write columns=\['path'\]",
        lambda p: table(p).files(wrong("path")),
    ),
    "a column": (txlog.InvalidInputError, "Choose from a, s", lambda p: table(p).scan(["z"])),
    "no names": (
        txlog.InvalidInputError, "columns",
        lambda p: table(p).scan([1]),  # type: ignore[list-item]
    ),
    "text for a list": (
        txlog.InvalidTypeError, "list of names",
        lambda p: table(p).scan("a"),  # type: ignore[arg-type]
    ),
    "torn SQL": (txlog.InvalidInputError, "not a SQL", lambda p: table(p).delete("a = ")),
    "a predicate's column": (txlog.InvalidInputError, "z", lambda p: table(p).delete("z = 1")),
    "a predicate's type": (txlog.InvalidInputError, "long", lambda p: table(p).delete("a = 'x'")),
    "no predicate": (
        txlog.InvalidTypeError, "5",
        lambda p: table(p).count(5),  # type: ignore[arg-type]
    ),
    "no data": (txlog.InvalidTypeError, "Arrow", lambda p: table(p).append({"a": [1]})),
    "rows as a list of dicts": (
        txlog.InvalidTypeError, r"pa\.Table\.from_pylist\(data\)",
        lambda p: table(p).append([{"a": 1}]),
    ),
    "rows as a dict": (
        txlog.InvalidTypeError, r"pa\.table\(data\)", lambda p: table(p).append({"a": [1]})
    ),
    "names as a number": (
        txlog.InvalidTypeError, "column names",
        lambda p: txlog.write(p / "u", ROWS, partition_by=wrong(5)),
    ),
    "a size as text": (
        txlog.InvalidTypeError, "max_rows_per_file",
        lambda _: txlog.WriteOptions(max_rows_per_file=wrong("5")),
    ),
    "a transaction": (
        txlog.InvalidTypeError, "txn",
        lambda p: table(p).append(ROWS, txn="job"),  # type: ignore[arg-type]
    ),
    "our own application": (
        txlog.InvalidInputError, "reserved",
        lambda p: table(p).append(ROWS, txn=("txlog.fragments", 1)),
    ),
    "a table that is there": (
        txlog.AlreadyExistsError, "already", lambda p: txlog.Table.create(p / "t", ROWS.schema)
    ),
    "no schema": (
        txlog.InvalidTypeError, "Schema",
        lambda p: txlog.Table.create(p / "u", {"a": int}),  # type: ignore[arg-type]
    ),
    "no columns": (
        txlog.InvalidInputError, "column", lambda p: txlog.Table.create(p / "u", pa.schema([]))
    ),
    "a type": (
        txlog.InvalidInputError, "time64",
        lambda p: txlog.Table.create(p / "u", pa.schema([("t", pa.time64("us"))])),
    ),
    "a partition column": (
        txlog.InvalidInputError, "zz",
        lambda p: txlog.Table.create(p / "u", ROWS.schema, partition_by=["zz"]),
    ),
    "properties": (
        txlog.InvalidInputError, "maybe.*delta.enableZz",
        lambda p: txlog.Table.create(
            p / "u", ROWS.schema, properties={"delta.appendOnly": "maybe", "delta.enableZz": "1"}
        ),
    ),
    "column mapping by id, for files without ids": (
        txlog.UnsupportedFeatureError, "from none to id",
        lambda p: txlog.Table(p / "t").alter.set_properties({"delta.columnMapping.mode": "id"}),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_one_error_names_it_and_nothing_changes(tmp_path: Path, name: str) -> None:
    expected, says, call = CASES[name]
    txlog.write(tmp_path / "t", ROWS)
    (tmp_path / "file.txt").write_text("x")
    before = sorted(str(path) for path in tmp_path.rglob("*"))
    with pytest.raises(expected, match=f"(?s){says}") as caught:
        call(tmp_path)
    assert type(caught.value) is expected
    assert "\x1b" not in str(caught.value)
    assert sorted(str(path) for path in tmp_path.rglob("*")) == before


def test_a_wrong_type_is_a_type_error_and_a_value_error(tmp_path: Path) -> None:
    for kind in (TypeError, ValueError, txlog.InvalidInputError, txlog.InvalidTypeError):
        with pytest.raises(kind) as caught:
            txlog.write(tmp_path / "t", wrong(5))
        again = pickle.loads(pickle.dumps(caught.value))
        assert type(again) is txlog.InvalidTypeError
        assert str(again) == str(caught.value)
    assert not isinstance(txlog.InvalidInputError(), TypeError)


METHODS: dict[str, Any] = {
    "Table": txlog.Table, "table": txlog.Table, "txlog": txlog,
    "FragmentOperation": txlog.FragmentOperation,
    "alter": TableAlter, "optimize": TableOptimize, "maintenance": TableMaintenance,
    "pins": TablePins, "indexes": TableIndexes,
    "spark_ext": SimpleNamespace(**dict.fromkeys(spark_ext.__all__, True)),
}  # fmt: skip
# Functions of SQL, methods of expressions and of Spark, and an option of stores.
ELSEWHERE = {"between", "get", "try_element_at", "load", "save", "location", "txlog.coordinator",
             "transform", "sequence", "date_add", "table_changes"}  # fmt: skip


def remedies() -> Iterator[tuple[str, str]]:
    """Yield the text of each remedy in the code, with its module."""
    home = Path(txlog.__file__).parent
    for path in sorted(home.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.keyword) and node.arg == "remedy":
                parts = [n.value for n in ast.walk(node.value) if isinstance(n, ast.Constant)]
                yield path.relative_to(home).as_posix(), " ".join(map(str, parts))


def is_there(name: str) -> bool:
    """Return whether a dotted name, or that of a method, is one that a user can write."""
    first, *rest = name.split(".")
    if not rest:
        return any(hasattr(face, first) for face in (txlog, txlog.Table, Dataset, spark_ext))
    if first not in METHODS:
        return True  # Of Spark, pyarrow, or a word with dots.
    found = METHODS[first]
    for part in rest:
        found = METHODS.get(part) or getattr(found, part, None)
    return found is not None


@pytest.mark.slow
def test_remedies_name_what_there_is() -> None:
    wrong_ones, seen = [], 0
    for module, text in remedies():
        names = re.findall(r"\b[A-Za-z_]+(?:\.[A-Za-z_]+)+\b|(?<![.\w])[a-z_]+(?=\()", text)
        wrong_ones += [(module, name) for name in names if name not in ELSEWHERE | {""}
                       and not is_there(name)]  # fmt: skip
        seen += len(names)
    assert wrong_ones == []
    assert seen > 50


@pytest.mark.parametrize("value", [None, "no", 0, 1.0])
def test_a_flag_is_true_or_false(tmp_path: Path, value: object) -> None:
    table = txlog.write(tmp_path / "t", ROWS)
    table.overwrite(ROWS)
    before = sorted(tmp_path.rglob("*"))
    for name in ("dry_run", "lite", "trash", "enforce_retention_duration"):
        with pytest.raises(txlog.InvalidTypeError, match="True or False was expected"):
            table.vacuum(0, **{"enforce_retention_duration": False, name: wrong(value)})
    assert sorted(tmp_path.rglob("*")) == before


def test_whole_numbers_of_numpy_are_taken(tmp_path: Path) -> None:
    table = txlog.write(tmp_path / "t", ROWS)
    assert txlog.Table(tmp_path / "t", version=wrong(np.int64(0))).version == 0
    assert table.head(wrong(np.int32(1))).num_rows == 1
    assert table.sample(wrong(np.uint8(1)), seed=wrong(np.int64(3))).num_rows == 1
    assert [one["version"] for one in table.history(wrong(np.int64(1)))] == [0]
