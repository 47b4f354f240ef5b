"""How the faces of this room read a table with Spark, and open it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import orjson

from txlog.errors import InvalidInputError
from txlog.schema.moments import format_moment
from txlog.table import Table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def read_frame(
    spark: SparkSession,
    uri: str,
    version: int | None = None,
    timestamp: str | None = None,
    *,
    columns: Sequence[str] | None = None,
    where: str | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> DataFrame:
    """Return a table's rows as a frame: read by Spark's own Parquet reader, if that is there."""
    try:
        from txlog.spark_ext import read
    except ImportError:
        return _by_format(spark, uri, version, timestamp, columns, where, storage_options)
    frame: DataFrame = read(
        spark,
        uri,
        version,
        timestamp,
        columns=None if columns is None else list(columns),
        where=where,
        storage_options=storage_options,
    )
    return frame


def _by_format(
    spark: SparkSession,
    uri: str,
    version: int | None,
    timestamp: str | None,
    columns: Sequence[str] | None,
    where: str | None,
    storage_options: Mapping[str, Any] | None,
) -> DataFrame:
    options = {
        "versionAsOf": None if version is None else str(version),
        "timestampAsOf": timestamp,
        "columns": None if columns is None else orjson.dumps(list(columns)).decode(),
        "where": where,
        "storageOptions": orjson.dumps(storage_options).decode() if storage_options else None,
    }
    reader = spark.read.format("txlog")
    for name, value in options.items():
        if value is not None:
            reader = reader.option(name, value)
    return reader.load(uri)


def open_table(
    spark: SparkSession, uri: str, storage_options: Mapping[str, Any] | None = None
) -> Table:
    """Return the latest version of a table, whose verbs run on executors where they can."""
    try:
        from txlog.spark_ext import table
    except ImportError:
        return Table(uri, storage_options=storage_options)
    opened: Table = table(spark, uri, storage_options=storage_options)
    return opened


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
