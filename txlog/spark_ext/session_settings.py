"""Settings for the jobs of one frame or one read, which nothing else in the session sees.

Other threads may start jobs of a session at any time, and a streaming query copies all settings
when it starts. So the session itself never changes: its clone gets the settings. Spark Connect has
no plans in this process, so nothing here works with it. There is no public way to clone a session
or to move a plan; where a Spark lacks the functions that this module uses, the results are None.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.readwriter import DataFrameReader


def with_settings(df: DataFrame, settings: Mapping[str, str]) -> DataFrame | None:
    """Return the same frame with other settings of Spark for its jobs, or None.

    The frame's plan moves to a clone of its session. The Python session of the result is that of
    `df`. Do not move plans whose jobs the session itself watches, as for an `Observation`.
    """
    if not hasattr(df, "_jdf"):
        return None
    clone = _cloned(df._jdf.sparkSession(), settings)
    return None if clone is None else _moved(df._jdf, clone, df.sparkSession)


@dataclass(frozen=True)
class Reads:
    """Reads of a session, which Spark may execute with other settings."""

    spark: SparkSession
    clone: Any = None  # The JVM's session with these settings.

    @classmethod
    def with_settings(cls, spark: SparkSession, settings: Mapping[str, str]) -> Reads | None:
        """Return reads that Spark executes with other settings, or None."""
        session = getattr(spark, "_jsparkSession", None)
        clone = None if session is None else _cloned(session, settings)
        return None if clone is None else cls(spark, clone)

    def set(self, name: str, value: str) -> None:
        """Set a setting of the session, also for these reads."""
        self.spark.conf.set(name, value)
        if self.clone is not None:
            self.clone.conf().set(name, value)

    def reader(self) -> DataFrameReader:
        """Return a reader, whose frames belong into `of_session`."""
        reader = self.spark.read
        if self.clone is not None:
            reader._jreader = self.clone.read()
        return reader

    def of_session(self, df: DataFrame) -> DataFrame:
        """Return a frame of a reader as a frame of the session.

        Only the reading of its files depends on the settings: Spark keeps with each file relation
        the session that made it.
        """
        if self.clone is None:
            return df
        found = _moved(df._jdf, self.spark._jsparkSession, self.spark)
        return df if found is None else found


def _cloned(session: Any, settings: Mapping[str, str]) -> Any:
    from py4j.protocol import Py4JError

    try:
        clone = session.cloneSession()
        for name, value in settings.items():
            clone.conf().set(name, value)
    except Py4JError:
        return None
    return clone


def _moved(frame: Any, session: Any, spark: SparkSession) -> DataFrame | None:
    """Return a frame of the JVM as a frame of one of its sessions, or None."""
    from py4j.protocol import Py4JError
    from pyspark.sql import DataFrame

    jvm: Any = spark._jvm
    try:
        # The plan is resolved. If it is that of a command, it has the command's result.
        moved = jvm.org.apache.spark.sql.classic.Dataset.ofRows(session, frame.logicalPlan())
    except (Py4JError, TypeError):  # A class that does not exist is a package, which has no calls.
        return None
    return DataFrame(moved, spark)
