"""Spark: data source, streams from tables and into them, a JDK from pip.

`spark.read.format("txlog")` needs no registration: Spark finds the module `pyspark_txlog`. Names
are imported when they are asked for, as pyspark is heavy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from txlog.spark_ext.java import ensure_java
    from txlog.spark_ext.native import read
    from txlog.spark_ext.source import TxlogDataSource
    from txlog.spark_ext.start import register, session

__all__ = ["TxlogDataSource", "ensure_java", "read", "register", "session"]

_HOMES = {
    "TxlogDataSource": "source",
    "ensure_java": "java",
    "read": "native",
    "register": "start",
    "session": "start",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(name)
    from importlib import import_module

    return getattr(import_module(f"txlog.spark_ext.{_HOMES[name]}"), name)
