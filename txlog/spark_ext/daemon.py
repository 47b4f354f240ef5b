"""The process that Spark forks its Python workers from, with what the data source imports in it.

Spark starts a worker for each step of a job that uses `format("txlog")`, and each would import
txlog anew. Set `spark.python.daemon.module` to the name of this module before Spark starts; all
machines of a cluster need txlog then. `spark_ext.session` does this for a session on one machine.

Threads do not survive a fork. No import here starts one but those of numpy and of Arrow's
allocator, and both prepare for forks.
"""

from importlib import import_module

from pyspark.daemon import manager

__all__ = ["manager"]

IMPORTED = (
    "pyspark.sql.worker.create_data_source",
    "pyspark.sql.worker.plan_data_source_read",
    "pyspark.sql.worker.write_into_data_source",
    "pyspark.worker",
    "txlog.spark_ext.engine",
    "txlog.spark_ext.source.partitions",
    "txlog.spark_ext.source.reader",
    "txlog.spark_ext.source.source",
    "txlog.spark_ext.source.tasks",
    "txlog.spark_ext.source.writer",
    "txlog.spark_ext.writes.target",
    "txlog.table.table",
    "txlog.verbs.append",
    "txlog.verbs.create",
)

if __name__ == "__main__":
    for name in IMPORTED:
        import_module(name)
    manager()
