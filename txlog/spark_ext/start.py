"""A Spark session that knows txlog."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from txlog.spark_ext.java import ensure_java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_HIDDEN = "spark.sql.redaction.options.regex"
_HIDDEN_BY_SPARK = "(?i)url"
_HIDDEN_TEXT = "spark.sql.redaction.string.regex"
_HIDDEN_TEXT_OF_ALL = "spark.redaction.string.regex"  # What holds where the former is not set.
# A server of Spark Connect puts each request into its event log, printed as protobuf prints a map:
# the name on a line, the value on the next, for all names that there are.
_OPTION_OF_REQUEST = r'storageOptions"\s+value:\s*"[^"\\]*(?:\\.[^"\\]*)*'


def session(app_name: str = "txlog", **conf: str) -> SparkSession:
    """Return a local Spark session with Java found and the format `txlog` registered.

    Parameters
    ----------
    conf
        Spark's settings, with `__` for the dots in their names: `spark__ui__enabled="false"`.

    Raises
    ------
    UnsupportedFeatureError
        There is no Java.
    """
    from pyspark.sql import SparkSession

    ensure_java()
    # Spark would start its Python workers by the name `python3`, which may be another one.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.appName(app_name)
    for name, value in conf.items():
        builder = builder.config(name.replace("__", "."), value)
    spark: SparkSession = builder.getOrCreate()
    register(spark)
    return spark


def register(spark: SparkSession) -> None:
    """Make a session know the format `txlog`, and hide its secrets.

    Only needed where Spark cannot find the module `pyspark_txlog` by itself; it also keeps the
    option `storageOptions` out of the plans that Spark's UI and event log show, and this option
    and `secretStorageOptions` out of what a server of Spark Connect logs of requests.
    """
    from txlog.spark_ext.options import STORAGE
    from txlog.spark_ext.source import TxlogDataSource

    spark.dataSource.register(TxlogDataSource)
    hidden = spark.conf.get(_HIDDEN, _HIDDEN_BY_SPARK) or _HIDDEN_BY_SPARK
    if STORAGE[0].lower() not in hidden.lower():
        spark.conf.set(_HIDDEN, f"{hidden}|(?i){STORAGE[0]}")
    text = spark.conf.get(_HIDDEN_TEXT, "") or spark.conf.get(_HIDDEN_TEXT_OF_ALL, "")
    if _OPTION_OF_REQUEST not in (text or ""):
        before = f"{text}|" if text else ""
        spark.conf.set(_HIDDEN_TEXT, f"{before}(?i){_OPTION_OF_REQUEST}")
