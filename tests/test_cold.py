"""The imports of a process for each verb: only the needed rooms, and no pandas."""

from __future__ import annotations

import subprocess
import sys
from datetime import date, datetime
from decimal import Decimal
from importlib.util import find_spec
from pathlib import Path

import pyarrow as pa
import pytest

import txlog

OPEN = "import txlog; table = txlog.Table(uri)"
ROWS = "import pyarrow; rows = pyarrow.ipc.open_file(rows).read_all(); "
WHERE = "id < 5 AND name LIKE 'n%' AND day >= DATE '2020-01-01' AND price <> 1.5 AND flag"
WORKS = {
    "version": OPEN + ".version",
    "metadata": OPEN + "; table.schema, table.metadata, table.protocol, table.properties",
    "to_arrow": OPEN + ".to_arrow()",
    "to_arrow where": OPEN + f".to_arrow(where={WHERE!r})",
    "to_arrow where time": OPEN + ".to_arrow(where=\"at > TIMESTAMP '2020-01-01 00:00:00'\")",
    "to_batches": OPEN + "; list(table.to_batches())",
    "head": OPEN + ".head(1)",
    "count": OPEN + ".count()",
    "history": OPEN + ".history()",
    "files": OPEN + ".files()",
    "fragments": OPEN + ".fragments()",
    "take": OPEN + "; table.take([0])",
    "append": ROWS + OPEN + ".append(rows)",
    "overwrite": ROWS + OPEN + ".overwrite(rows, partition_mode='dynamic')",
    "write": ROWS + "import txlog; txlog.write(uri + '-2', rows, partition_by=['day', 'price'])",
    "delete": OPEN + ".delete('id = 2')",
    "update": OPEN + ".update({'id': 'id + 1'}, 'id = 2')",
    "upsert": ROWS + OPEN + ".upsert(rows, on='id')",
    "delete all": OPEN + ".delete(None)",
    "transaction": ROWS + OPEN + "; change = table.transaction(); tx = change.__enter__(); "
    "tx.delete('id = 2'); tx.append(rows); change.__exit__(None, None, None)",
    "past a winner": OPEN + "; change = table.transaction(); tx = change.__enter__(); "
    "tx.delete('id = 2'); txlog.Table(uri).delete('id = 1'); change.__exit__(None, None, None)",
    "compact": OPEN + ".optimize.compact()",
    "compute_statistics": OPEN + ".optimize.compute_statistics(recompute=True)",
    "checkpoint": OPEN + ".maintenance.checkpoint(); txlog.Table(uri).to_arrow(where='id < 5')",
    "restore": OPEN + ".restore(0)",
    "add_columns": OPEN + "; table.alter.add_features('txlog.fragments'); "
    "table.alter.add_columns({'more': 'id + 1'}); table.to_arrow()",
    "data sets": ROWS + "from txlog.training import Datasets, InlineRunner; "
    "catalog = Datasets(uri + '-sets', runner=InlineRunner()); "
    "ds = catalog.create('t', 'TABLE', rows); ds.update(rows); ds.prepare(); ds.verify(); "
    "ds.diff(1, 2).added().read_all(); ds.lineage(); ds.purge(1, confirm='t'); catalog.list()",
}


@pytest.fixture
def table(tmp_path: Path) -> txlog.Table:
    rows = pa.table(
        {
            "id": [1, 2, 3],
            "name": ["n1", "n2", None],
            "day": [date(2020, 1, 1), date(2021, 1, 1), None],
            "at": pa.array([datetime(2020, 1, 1), None, None], pa.timestamp("us", "UTC")),
            "price": [Decimal("1.50"), None, Decimal("-2.25")],
            "flag": [True, None, False],
            "list": [["a"], [], None],
        }
    )
    with pa.ipc.new_file(tmp_path / "rows.arrow", rows.schema) as writer:
        writer.write_table(rows)
    table = txlog.write(tmp_path / "t", rows, partition_by="name")
    table.append(rows)
    table.delete("id = 3")
    return table


# Says who imports pandas.
WATCH = """
import sys, traceback
class Watch:
    def find_spec(name, *more):
        if name == "pandas":
            traceback.print_stack()
sys.meta_path.insert(0, Watch)
"""


def loaded_by(table: txlog.Table, code: str) -> set[str]:
    """Return the modules that a process has loaded after its work."""
    rows = str(Path(table.uri).with_name("rows.arrow"))
    script = WATCH + f"uri, rows = {table.uri!r}, {rows!r}; {code}; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    print(done.stderr)
    return set(done.stdout.split())


# Each needs a table of its own, in the state of the fixture's.
ALL = "".join(
    f"uri = shutil.copytree(first, {name!r}); {code}\n"
    f"assert 'pandas' not in sys.modules, {name!r}\n"
    for name, code in WORKS.items()
)


_LOADED: dict[str, set[str]] = {}


def loaded_for(table: txlog.Table, work: str) -> set[str]:
    """Return what a process has loaded for a verb; a later test of the verb starts none."""
    if work not in _LOADED:
        _LOADED[work] = loaded_by(table, WORKS[work])
    return _LOADED[work]


@pytest.mark.slow
@pytest.mark.skipif(find_spec("pandas") is None, reason="nothing to import")
def test_pandas_is_not_imported_by_any_verb(table: txlog.Table) -> None:
    folder = str(Path(table.uri).parent)
    given = f"import os, shutil, sys; rows_file, first = rows, uri; os.chdir({folder!r})\n"
    each = ALL.replace("import pyarrow;", "rows = rows_file; import pyarrow;")
    loaded_by(table, given + each.strip())


@pytest.mark.exhaustive
@pytest.mark.skipif(find_spec("pandas") is None, reason="nothing to import")
@pytest.mark.parametrize("work", WORKS)
def test_pandas_is_not_imported(table: txlog.Table, work: str) -> None:
    assert "pandas" not in loaded_for(table, work)


def test_pandas_data_is_taken(table: txlog.Table) -> None:
    pd = pytest.importorskip("pandas")
    table.append(pd.DataFrame({"id": [9], "name": ["n9"]}))
    assert table.count("id = 9") == 1


def test_opening_needs_no_functions_of_arrow(table: txlog.Table) -> None:
    """`pyarrow.compute` makes its functions and their documentation as it is imported."""
    assert not {"pyarrow.compute", "pydoc"} & loaded_for(table, "version")


OPENED = {"actions", "base", "checkpoint", "commit.context", "fragments", "log",
          "parquet.file_footer", "protocol", "reconcile", "schema", "snapshot", "store",
          "table"}  # fmt: skip
READS = OPENED | {"expressions", "scan", "stats", "variant"}
WRITES = READS | {"commit", "data_files", "verbs"}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("work", "rooms"),
    [
        ("version", OPENED),
        ("metadata", OPENED),
        ("to_arrow", READS),
        ("count", READS),
        ("append", WRITES),
        ("delete", WRITES),
    ],
)
def test_a_verb_loads_the_rooms_that_it_needs(
    table: txlog.Table, work: str, rooms: set[str]
) -> None:
    loaded = loaded_for(table, work)
    names = {name.removeprefix("txlog.") for name in loaded if name.startswith("txlog.")}
    packages = {name for name in names if f"txlog.{name}" in PACKAGES}
    allowed = {name for name in names if {name, name.partition(".")[0]} & rooms}
    assert names - packages <= allowed


HOME = Path(txlog.__file__).parent
PACKAGES = {f"txlog.{folder.parent.name}" for folder in HOME.glob("*/__init__.py")}


@pytest.fixture(scope="module")
def of_pydantic() -> set[str]:
    """The modules that a process has loaded after it has made a Pydantic model."""
    code = "import pydantic, sys\nclass A(pydantic.BaseModel): a: int\nprint(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


@pytest.mark.slow
@pytest.mark.parametrize("work", ["version", "metadata"])
def test_opening_a_table_loads_little_else(
    table: txlog.Table, work: str, of_pydantic: set[str]
) -> None:
    heavy = {"pyarrow.compute", "pyarrow.parquet", "pyarrow.dataset", "fsspec", "sqlglot",
             "pyroaring", "polars", "asyncio", "concurrent.futures", "random",
             "urllib.parse", "difflib", "hashlib", "logging", "opentelemetry", "numpy.typing",
             "txlog.store.memory", "txlog.store.remote"}  # fmt: skip
    assert sorted(heavy & loaded_for(table, work) - of_pydantic) == []


@pytest.mark.slow
@pytest.mark.parametrize("work", ["to_arrow", "append", "delete"])
def test_reading_and_writing_load_little_else(table: txlog.Table, work: str) -> None:
    heavy = {"pyarrow.dataset", "fsspec", "polars", "asyncio", "opentelemetry"}
    assert sorted(heavy & loaded_for(table, work)) == []


def test_appending_to_a_local_table_loads_no_reader(
    table: txlog.Table, of_pydantic: set[str]
) -> None:
    needless = {"hashlib", "txlog.scan.read", "txlog.scan.plan",
                "txlog.data_files.column_files", "pyroaring"}  # fmt: skip
    assert sorted(needless & loaded_for(table, "append") - of_pydantic) == []
