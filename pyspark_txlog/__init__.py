"""Makes Spark know the format `txlog`.

Spark imports every top-level module named `pyspark_*` and registers its `DefaultSource`. A module
that fails there disables all others, so nothing is imported before Spark asks for the name.
"""

from typing import Any

__all__ = ["DefaultSource"]


def __getattr__(name: str) -> Any:
    if name == "DefaultSource":
        try:
            from txlog.spark_ext.source.source import TxlogDataSource
        except ImportError as error:  # Not our interpreter: some dependency is missing.
            raise AttributeError(f"txlog cannot be imported here: {error}") from error
        return TxlogDataSource
    raise AttributeError(name)
