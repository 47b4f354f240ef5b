"""Timestamps as text, read as Spark reads them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from txlog.errors import InvalidInputError
from txlog.schema.timestamps import format_moment

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def moment_text(spark: SparkSession, moment: str) -> str:
    """Return a timestamp's text in UTC, read as Spark reads it: in the session's time zone.

    Raises
    ------
    InvalidInputError
        Spark makes no timestamp of it.
    """
    if not isinstance(moment, str):
        raise InvalidInputError(
            argument="timestamp", reason=f"text was expected, not {type(moment).__name__}"
        )
    query = "SELECT unix_millis(try_cast(:moment AS TIMESTAMP)) AS ms"
    (row,) = spark.sql(query, args={"moment": moment}).collect()
    if row["ms"] is None:
        raise InvalidInputError(
            argument="timestamp",
            reason=f"{moment!r} is no timestamp",
            remedy="Write it as 2026-08-22, 2026-08-22 10:00:00 or 2026-08-22T10:00:00.000Z",
        )
    return format_moment(row["ms"] * 1000, digits=3, zone="Z")
