"""Settings that all tests share, and a Spark session for those that need one."""

import os
import re
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest
from fsspec.implementations.memory import MemoryFileSystem
from hypothesis import HealthCheck, settings

from tests.callers import foreign_argument, foreign_to
from txlog.base import errors
from txlog.base.errors import InvalidInputError, TxlogError
from txlog.store.local.disk import Disk

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HERE = Path(__file__).parent

# A JVM is started by a fork, whose child gRPC would break where a server of it has run before.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")

# Machines are shared, so a time limit for one example would fail at random.
settings.register_profile(
    "thorough",
    deadline=None,
    max_examples=100,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
# The same code gets the same examples, so that a failure is one of the change that shows it.
# `--hypothesis-profile=thorough` takes all examples, and searches anew each time.
settings.register_profile(
    "quick", settings.get_profile("thorough"), max_examples=20, derandomize=True
)
# For slow tests, whose examples may take seconds.
settings.register_profile("few", settings.get_profile("quick"), max_examples=10)
settings.load_profile("quick")

_CODE = re.compile(r"\[[a-z]+(-[a-z]+)+\] ")  # Of an error, with which its text begins.

SPARK_SETTINGS = {
    "spark__master": "local[2]",
    "spark__ui__enabled": "false",
    "spark__ui__showConsoleProgress": "false",
    "spark__sql__ui__explainMode": "simple",
    "spark__log__level": "OFF",
    "spark__sql__shuffle__partitions": "2",
    "spark__driver__bindAddress": "127.0.0.1",
    "spark__driver__host": "127.0.0.1",
    "spark__sql__session__timeZone": "UTC",
    "spark__driver__extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Give tests that share a fixture to one process, so that it is made once.

    Two processes share out the slow tests of `spark`, a file to either, and have a session each.
    """
    for item in left_out(items):
        item.add_marker(pytest.mark.exhaustive)
    tests: dict[Path, int] = {}  # How many there are that the run has, and one for the file.
    are_slow = config.getoption("markexpr").startswith("slow")
    for item in items:
        if "spark" in fixtures_of(item):
            names = {mark.name for mark in item.iter_markers()}
            is_run = "exhaustive" not in names and ("slow" in names) == are_slow
            tests[item.path] = tests.get(item.path, 1) + is_run
    # A session costs what some quick tests cost, so these have one.
    sessions = dict.fromkeys(["spark-1", "spark-2"] if are_slow else ["spark-1"], 0)
    session_of = {}
    for path in sorted(tests, key=lambda path: (-tests[path], path)):
        session_of[path] = min(sessions, key=sessions.__getitem__)
        sessions[session_of[path]] += tests[path]
    for item in items:
        found = fixtures_of(item)
        if "remote" in found:
            group = "remote"
        elif "spark" in found:
            group = session_of[item.path]
        elif "module" in found.values():
            group = item.path.relative_to(HERE).as_posix()
        else:
            continue
        item.add_marker(pytest.mark.xdist_group(group))


def left_out(items: Iterable[pytest.Item]) -> list[pytest.Item]:
    """Return the cases of slow tests that only the exhaustive tests have.

    Of a test with several `parametrize`, they are the combinations of values that all occur in
    other cases, too. `slow(cases=n)` leaves n cases, which are spread evenly.
    """
    cases: dict[str, dict[pytest.Item, set[tuple[object, ...]]]] = {}
    for item in items:
        names = {mark.name for mark in item.iter_markers()}
        if hasattr(item, "callspec") and "slow" in names and "exhaustive" not in names:
            test = item.nodeid.split("[")[0]
            cases.setdefault(test, {})[item] = values_of(item, item.callspec.params)
    found: list[pytest.Item] = []
    for values in cases.values():
        kept = covering(values)
        mark = next(iter(values)).get_closest_marker("slow")
        wanted = min(mark.kwargs.get("cases", len(kept)) if mark else len(kept), len(kept))
        kept = [kept[(2 * number + 1) * len(kept) // (2 * wanted)] for number in range(wanted)]
        found += values.keys() - {*kept}
    return found


def covering(values: Mapping[pytest.Item, set[tuple[object, ...]]]) -> list[pytest.Item]:
    """Return cases that have each value that any case has, each value about equally often."""
    if all(len(some) <= 1 for some in values.values()):
        return list(values)
    missing = set[tuple[object, ...]]().union(*values.values())
    used = Counter[tuple[object, ...]]()
    left = dict(values)
    while missing:
        gains = {
            case: (len(some & missing), -sum(used[value] for value in some))
            for case, some in left.items()
        }
        best = max(gains, key=gains.__getitem__)
        used.update(left[best])
        missing -= left.pop(best)
    return [case for case in values if case not in left]


def values_of(item: pytest.Item, values: Mapping[str, object]) -> set[tuple[object, ...]]:
    """Return a key for the values of each `parametrize` and each fixture with parameters."""
    found: list[tuple[object, ...]] = []
    left = dict(values)
    for place, mark in enumerate(item.iter_markers("parametrize")):
        named = mark.args[0]
        names = [name.strip() for name in named.split(",")] if isinstance(named, str) else named
        found.append((place, *(id(left.pop(name)) for name in names)))
    return {*found, *((name, id(value)) for name, value in left.items())}


def fixtures_of(item: pytest.Item) -> dict[str, str]:
    """Return the scopes of the fixtures that a test needs."""
    if not isinstance(item, pytest.Function):
        return {}
    known = item._fixtureinfo.name2fixturedefs
    return {name: known[name][-1].scope for name in item.fixturenames if name in known}


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator["SparkSession"]:
    from txlog.spark_ext import session

    # Python rows are in the process's zone, and expected values are in UTC.
    os.environ["TZ"] = "UTC"
    os.environ["PYSPARK_PYTHON"] = sys.executable
    warehouse = tmp_path_factory.mktemp("warehouse")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.filterwarnings("error", "PySpark does not yet fully support pandas")
        made = session("txlog tests", spark__sql__warehouse__dir=str(warehouse), **SPARK_SETTINGS)
    yield made
    made.stop()


@pytest.fixture(autouse=True)
def _quiet(request: pytest.FixtureRequest) -> Iterator[None]:
    """Spark's own warnings (pandas, sockets left to the collector) are not ours."""
    if request.node.get_closest_marker("spark") is None:
        yield
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@pytest.fixture(autouse=True)
def _no_error_within_an_error(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Whatever error a test raises, it does not quote another one with code, facts and remedy.

    The remedy of the inner one would stand beside that of the outer one, and its facts are those of
    another call. `reason_of` gives what may be quoted.
    """
    quoting: list[str] = []
    set_fact = TxlogError.__setattr__

    def watched(error: TxlogError, name: str, value: Any) -> None:
        set_fact(error, name, value)
        if name in ("reason", "remedy") and _CODE.search(value or ""):
            quoting.append(f"{type(error).__name__}.{name}: {value}")

    monkeypatch.setattr(TxlogError, "__setattr__", watched)
    yield
    assert quoting == []


@pytest.fixture(autouse=True)
def _errors_name_arguments_of_the_call(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Whatever error a test catches, it names an argument of the public function that was called.

    It may also name one of the calls that made the object, and of a value that was passed. Errors
    that tests catch without `pytest.raises` are seen where they leave a function that renames
    arguments.
    """
    foreign: dict[int, tuple[str, BaseException]] = {}
    rename = errors.rename_argument
    leave = pytest.RaisesExc.__exit__

    def renamed(
        error: InvalidInputError, function: Callable[..., Any], args: Any, named: Any
    ) -> None:
        rename(error, function, args, named)
        # The last call of those within each other is that of the test.
        foreign.pop(id(error), None)
        if (text := foreign_to([function], error)) is not None:
            foreign[id(error)] = text, error

    def caught(self: Any, kind: Any, error: Any, trace: Any) -> bool:
        if (text := foreign_argument(error)) is not None:
            foreign[id(error)] = text, error
        return leave(self, kind, error, trace)

    monkeypatch.setattr(errors, "rename_argument", renamed)
    monkeypatch.setattr(pytest.RaisesExc, "__exit__", caught)
    yield
    assert [text for text, _ in foreign.values()] == []


@pytest.fixture(autouse=True)
def _no_waiting_for_the_disk(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files of tests need not survive a power cut; `tests/store` shows that they would."""
    if "store" not in request.path.relative_to(HERE).parts:
        for name in ("sync", "sync_data", "sync_folder"):
            monkeypatch.setattr(Disk, name, lambda *_: None)


@pytest.fixture(autouse=True)
def _no_files_left_in_memory() -> Iterator[None]:
    """Whatever a test writes to `memory:` is gone after it, so that later ones are not slower."""
    before = set(MemoryFileSystem.store)
    yield
    for path in MemoryFileSystem.store.keys() - before:
        del MemoryFileSystem.store[path]


@pytest.fixture
def row_groups_read(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The places of the row groups that Parquet files are read by, as they come."""
    read: list[int] = []
    whole = pq.ParquetFile.iter_batches

    def counted(self: pq.ParquetFile, *arguments: Any, **more: Any) -> Any:
        read.extend(more["row_groups"])
        return whole(self, *arguments, **more)

    monkeypatch.setattr(pq.ParquetFile, "iter_batches", counted)
    return read
