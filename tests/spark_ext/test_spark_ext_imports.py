"""The imports of a Spark worker: only what its task runs; and no import cycles.

No JVM is started: a worker is a process that gets a pickle of what the driver sends it, as Spark's
workers do.
"""

import ast
import subprocess
import sys
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark import cloudpickle
from pyspark.sql.streaming.datasource import ReadAllAvailable
from pyspark.sql.types import LongType, StructField, StructType

import txlog
import txlog.spark_ext
from txlog.spark_ext.source.source import TxlogDataSource
from txlog.spark_ext.writes.write_frame import _writing

HOME = Path(txlog.spark_ext.__file__).parent
ROWS = pa.table({"id": [1, 2, 3]})
SCHEMA = StructType([StructField("id", LongType())])

# Rooms that commit, plan changes or look after tables, and the faces for people.
_NOT_TO_READ = {
    "commit", "data_files", "verbs", "changes", "stream", "table", "cli", "testing",
}  # fmt: skip
_NOT_TO_WRITE = {"verbs", "changes", "stream", "table", "cli", "testing"}

_WORKER = """
import pickle, sys
import pyspark.worker, pyspark.sql.datasource, pyarrow  # As Spark's own worker begins.
before = set(sys.modules)
function, arguments = pickle.loads(sys.stdin.buffer.read())
for argument in arguments:
    answer = function(argument)
    if hasattr(answer, "__next__"):
        list(answer)
print(*sorted(set(sys.modules) - before))
"""


def _loaded_for(function: Any, arguments: list[Any]) -> set[str]:
    """Return the modules that a worker loads to run a function."""
    work = cloudpickle.dumps((function, arguments))
    code = [sys.executable, "-W", "ignore", "-c", _WORKER]
    return set(subprocess.run(code, input=work, stdout=-1, check=True).stdout.decode().split())


def _rooms(modules: set[str]) -> set[str]:
    return {name.split(".")[1] for name in modules if name.startswith("txlog.")}


@pytest.fixture
def table(tmp_path: Path) -> txlog.Table:
    table = txlog.write(tmp_path / "t", ROWS)
    table.append(ROWS)
    table.delete("id = 2")
    return table


@pytest.mark.slow
@pytest.mark.parametrize("options", [{}, {"where": "id > 1"}, {"limit": "1"}], ids=str)
def test_a_reading_worker_loads_no_more(table: txlog.Table, options: dict[str, str]) -> None:
    source = TxlogDataSource({"path": table.uri, **options})
    reader = source.reader(source.schema())
    loaded = _loaded_for(reader.read, list(reader.partitions()))
    assert "txlog.scan.read" in loaded
    assert _rooms(loaded).isdisjoint(_NOT_TO_READ)
    assert {"txlog.spark_ext.engine", "txlog.spark_ext.source.partitions"}.isdisjoint(loaded)
    assert {"polars", "sqlglot", "fsspec", "typer", "deltalake"}.isdisjoint(loaded)
    if not options:
        assert "pandas" not in loaded


def test_a_worker_that_reads_a_stream_loads_no_more(table: txlog.Table) -> None:
    source = TxlogDataSource({"path": table.uri})
    reader = source.streamReader(source.schema())
    end = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    loaded = _loaded_for(reader.read, list(reader.partitions(reader.initialOffset(), end)))
    assert "txlog.scan.read" in loaded
    assert _rooms(loaded).isdisjoint(_NOT_TO_READ)


@pytest.mark.slow
def test_a_writing_worker_loads_no_more(table: txlog.Table) -> None:
    writer = TxlogDataSource({"path": table.uri}).writer(SCHEMA, False)
    for write in (lambda batches: writer.write(iter(batches)), _writing(writer.target)):
        loaded = _loaded_for(write, [ROWS.to_batches()])
        assert _rooms(loaded).isdisjoint(_NOT_TO_WRITE)
        assert {"txlog.spark_ext.writes.target", "txlog.spark_ext.engine"}.isdisjoint(loaded)
        assert {"polars", "fsspec", "typer", "deltalake"}.isdisjoint(loaded)


def _imported(path: Path) -> Iterator[str]:
    """Yield the imports of a module at run time, those inside functions too."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    named = [node for node in ast.walk(tree) if isinstance(node, ast.If)]
    typing = [node for node in named if ast.unparse(node.test) == "TYPE_CHECKING"]
    left_out = {id(inner) for node in typing for inner in ast.walk(node)}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and id(node) not in left_out:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def test_no_modules_import_each_other() -> None:
    names = {
        ".".join(("txlog.spark_ext", *path.relative_to(HOME).with_suffix("").parts)).removesuffix(
            ".__init__"
        ): path
        for path in HOME.rglob("*.py")
    }
    graph = {name: set(_imported(path)) & (names.keys() - {name}) for name, path in names.items()}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(f"these import each other: {error.args[1]}")
