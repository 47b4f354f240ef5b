"""`DeltaTable` with delta-spark's interface: scripts need to change only their import.

Methods that txlog lacks exist too, and raise an error that names them. Arguments have delta-spark's
names.
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
