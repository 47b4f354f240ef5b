"""`DeltaTable`, in the shape that delta-spark gives it: scripts change their import, no more.

What txlog lacks is there too, and says so by name. Arguments are named as delta-spark names them.
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
