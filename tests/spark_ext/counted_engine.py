"""An engine of Spark that counts its jobs."""

import pyarrow as pa

from txlog.spark_ext import SparkEngine


class Counted(SparkEngine):
    """Counts the jobs that it runs."""

    jobs = 0

    def _collected(self, items: pa.Table, tasks: int, work: bytes) -> pa.Table:
        self.jobs += 1
        return super()._collected(items, tasks, work)
