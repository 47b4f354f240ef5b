"""Spark: data source, streaming sink, a JDK from pip.

`spark.read.format("txlog")` needs no registration: Spark finds the module `pyspark_txlog`. Names
are imported when they are asked for, as pyspark is heavy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from txlog.spark_ext.engine import SparkEngine, table
    from txlog.spark_ext.java import ensure_java
    from txlog.spark_ext.source import TxlogDataSource
    from txlog.spark_ext.start import register, session

__all__ = ["SparkEngine", "TxlogDataSource", "ensure_java", "register", "session", "table"]

_HOMES = {
    "SparkEngine": "engine",
    "TxlogDataSource": "source",
    "ensure_java": "java",
    "register": "start",
    "session": "start",
    "table": "engine",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(name)
    from importlib import import_module

    return getattr(import_module(f"txlog.spark_ext.{_HOMES[name]}"), name)
