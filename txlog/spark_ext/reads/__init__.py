"""Plan a read with txlog, and let Spark's own Parquet reader read the files.

Rules: spec/spark.md, SPK-1 to SPK-7.
"""

from txlog.spark_ext.reads.read_frame import read

__all__ = ["read"]
