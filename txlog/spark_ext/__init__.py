"""Spark: native reads, the data source, streams from and to tables, and a JDK from pip.

`spark.read.format("txlog")` needs no registration: Spark finds the module `pyspark_txlog`. Names
are imported on first use, because importing pyspark takes long.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from txlog.base.frames import Frames, registers_frames

if TYPE_CHECKING:
    from txlog.spark_ext.catalog import create_view, table_location
    from txlog.spark_ext.delta import (
        DeltaMergeBuilder,
        DeltaOptimizeBuilder,
        DeltaTable,
        DeltaTableBuilder,
        IdentityGenerator,
    )
    from txlog.spark_ext.engine import SparkEngine
    from txlog.spark_ext.names import use
    from txlog.spark_ext.reads import read
    from txlog.spark_ext.reads.blobs import read_blobs
    from txlog.spark_ext.reads.lookups import lookup, lookup_join
    from txlog.spark_ext.sessions import ensure_java, register, session
    from txlog.spark_ext.source.source import TxlogDataSource
    from txlog.spark_ext.statements.statements import sql
    from txlog.spark_ext.writes.merge import table
    from txlog.spark_ext.writes.write_frame import write

__all__ = [
    "DeltaMergeBuilder",
    "DeltaOptimizeBuilder",
    "DeltaTable",
    "DeltaTableBuilder",
    "IdentityGenerator",
    "SparkEngine",
    "TxlogDataSource",
    "create_view",
    "ensure_java",
    "lookup",
    "lookup_join",
    "read",
    "read_blobs",
    "register",
    "session",
    "sql",
    "table",
    "table_location",
    "use",
    "write",
]

_HOMES = {
    "DeltaMergeBuilder": "delta",
    "DeltaOptimizeBuilder": "delta",
    "DeltaTable": "delta",
    "DeltaTableBuilder": "delta",
    "IdentityGenerator": "delta",
    "SparkEngine": "engine",
    "TxlogDataSource": "source.source",
    "create_view": "catalog",
    "ensure_java": "sessions",
    "lookup": "reads.lookups",
    "lookup_join": "reads.lookups",
    "read": "reads",
    "read_blobs": "reads.blobs",
    "register": "sessions",
    "session": "sessions",
    "sql": "statements.statements",
    "table": "writes.merge",
    "table_location": "catalog",
    "use": "names",
    "write": "writes.write_frame",
}


@registers_frames
def _frames() -> Frames:
    """Return how tasks write frames that are given to a transaction."""
    from importlib import import_module

    found: Frames = import_module("txlog.spark_ext.writes.staged").frames()
    return found


def require_pyspark() -> None:
    """Raise unless PySpark is installed.

    Raises
    ------
    UnsupportedFeatureError
        PySpark is not installed; the error says how to install it.
    """
    try:
        import pyspark  # noqa: F401
    except ImportError as error:
        from txlog.base.errors import not_installed

        raise not_installed("spark", "Spark", f"PySpark is not installed: {error}") from error


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(name)
    from importlib import import_module

    if _HOMES[name] != "sessions":  # That module can be imported without PySpark.
        require_pyspark()
    return getattr(import_module(f"txlog.spark_ext.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return [*__all__]
