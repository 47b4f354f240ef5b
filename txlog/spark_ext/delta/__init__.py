"""`DeltaTable` with the interface of delta-spark: scripts change only their import.

Methods and arguments have the names of delta-spark.
"""

from txlog.spark_ext.delta.builder import DeltaTableBuilder, IdentityGenerator
from txlog.spark_ext.delta.delta_table import DeltaTable
from txlog.spark_ext.delta.merge_builder import DeltaMergeBuilder
from txlog.spark_ext.delta.optimize import DeltaOptimizeBuilder

__all__ = [
    "DeltaMergeBuilder",
    "DeltaOptimizeBuilder",
    "DeltaTable",
    "DeltaTableBuilder",
    "IdentityGenerator",
]
