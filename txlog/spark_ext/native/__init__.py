"""Reading with Spark's own Parquet reader, planned by txlog.

Rules: spec/spark.md, SPK-1 to SPK-7.
"""

from txlog.spark_ext.native.read_frame import read

__all__ = ["read"]
