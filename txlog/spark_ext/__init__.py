"""Spark: native reads, the data source, streams from tables and into them, a JDK from pip.

`spark.read.format("txlog")` needs no registration: Spark finds the module `pyspark_txlog`. Names
are imported when they are asked for, as pyspark is heavy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from txlog.spark_ext.catalog import create_view, table_location
    from txlog.spark_ext.delta import (
        DeltaOptimizeBuilder,
        DeltaTable,
        DeltaTableBuilder,
        IdentityGenerator,
    )
    from txlog.spark_ext.engine import SparkEngine, table
    from txlog.spark_ext.frame import write
    from txlog.spark_ext.java import ensure_java
    from txlog.spark_ext.native import read
    from txlog.spark_ext.source import TxlogDataSource
    from txlog.spark_ext.start import register, session

__all__ = [
    "DeltaOptimizeBuilder",
    "DeltaTable",
    "DeltaTableBuilder",
    "IdentityGenerator",
    "SparkEngine",
    "TxlogDataSource",
    "create_view",
    "ensure_java",
    "read",
    "register",
    "session",
    "table",
    "table_location",
    "write",
]

_HOMES = {
    "DeltaOptimizeBuilder": "delta",
    "DeltaTable": "delta",
    "DeltaTableBuilder": "delta",
    "IdentityGenerator": "delta",
    "SparkEngine": "engine",
    "TxlogDataSource": "source",
    "create_view": "catalog",
    "ensure_java": "java",
    "read": "native",
    "register": "start",
    "session": "start",
    "table": "engine",
    "table_location": "catalog",
    "write": "frame",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(name)
    from importlib import import_module

    return getattr(import_module(f"txlog.spark_ext.{_HOMES[name]}"), name)
