"""The time zone of predicates at Spark's doors: the session's.

A Python data source does not get the session's zone when it plans, but its tasks do. So it takes
the zone of the option `timeZone`, or UTC, and the tasks of a predicate that depends on it check
that the session has no other.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from txlog.base.errors import InvalidInputError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from txlog.expressions.tree import Expression
    from txlog.schema.types import StructType

SESSION_ZONE = "spark.sql.session.timeZone"


def zone_of(spark: SparkSession) -> str:
    """Return the time zone of a session."""
    zone: str | None = spark.conf.get(SESSION_ZONE)
    return zone or "UTC"


@dataclass(frozen=True)
class AssumedZone:
    """The zone that a data source took for a predicate that depends on it. Tasks check it."""

    option: str  # The option of the predicate.
    zone: str = "UTC"

    def require(self) -> None:
        """Raise `InvalidInputError` unless the session of this task has the zone.

        A task does not know the zone if no setting names it (it is that of the driver's JVM then),
        or if Spark runs it for an RDD.
        """
        from pyspark import TaskContext

        from txlog.expressions.zones import known_zone

        context = TaskContext.get()
        session = None if context is None else context.getLocalProperty(SESSION_ZONE)
        if session is not None and known_zone(session) == known_zone(self.zone):
            return
        theirs = "no task knows that of the session" if session is None else f"it is {session}"
        raise InvalidInputError(
            argument=self.option,
            reason="the predicate depends on the time zone, which a data source learns too late: "
            f"{theirs}",
            remedy=f"Pass the option timeZone={session or 'UTC'}, or use txlog.spark_ext, whose "
            "functions know the session",
        )


def assumed_zone(
    option: str, where: Expression | None, schema: StructType, zone: str | None
) -> AssumedZone | None:
    """Return what tasks have to check. None: a zone is given, or no zone changes the meaning."""
    from txlog.expressions.bind import depends_on_zone

    if where is None or zone is not None or not depends_on_zone(where, schema):
        return None
    return AssumedZone(option)
