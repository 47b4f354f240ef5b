"""DataFrames over Parquet files that txlog has chosen."""

from __future__ import annotations

from dataclasses import replace
from functools import reduce

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as all of Spark's users name it

from txlog.expressions import to_sql
from txlog.fragments import FragmentRows
from txlog.scan import ROW_ADDRESS, ROW_ID, FilePlan
from txlog.spark_ext.native.columns import (
    Projection,
    ReadColumn,
    partition_name,
    project,
    quoted,
)
from txlog.spark_ext.native.kinds import Constant, partition_text
from txlog.spark_ext.native.lookup import alive, constants
from txlog.spark_ext.native.manifest import manifest_text, write_manifest
from txlog.spark_ext.native.places import (
    locations,
    parse_volume,
    real_uris,
    virtual_uris,
    volume_of,
)
from txlog.spark_ext.native.vectors import Vectors
from txlog.stats import partition_values

# Spark has these as settings only. They touch no schema but those that have field ids.
_BY_FIELD_ID = (
    "spark.sql.parquet.fieldId.read.enabled",
    "spark.sql.parquet.fieldId.read.ignoreMissing",
)


def frame(
    spark: SparkSession,
    plan: FilePlan,
    rows: FragmentRows,
    *,
    vectors: Vectors | None,
    filtered: bool,
    manifests: str | None,
) -> DataFrame:
    """Return the rows of fragments that a plan wants, in the plan's columns.

    Parameters
    ----------
    vectors
        The deleted rows of all of the fragments, by their ids. None: none is deleted.
    filtered
        Whether the plan's predicate must be looked at.
    manifests
        As for `read`.
    """
    asked = plan.metadata_columns
    positions = vectors is not None or bool(asked & {ROW_ADDRESS, ROW_ID})
    told = _partitions(plan, rows.primaries)
    if vectors is not None:
        told += constants(vectors, rows.ids)
    virtual = positions or bool(told) or bool(asked)
    projection = project(plan, told, positions=positions, virtual=virtual)
    found = _scan(spark, plan, rows, told, projection, virtual=virtual, manifests=manifests)
    if vectors is not None:
        found = alive(spark, found, vectors, rows.ids)
    names = [column.name for column in projection.columns]
    if any(column.cast is not None for column in projection.columns):
        found = found.select(*map(_cast, projection.columns))
    else:  # As text it is one call to Spark, instead of several for each column.
        found = found.selectExpr(*(f"{c.sql} AS {quoted(c.name)}" for c in projection.columns))
    if filtered and plan.where is not None:
        found = found.where(to_sql(plan.where))
    chosen = [column.name for column in plan.columns]
    return found if chosen == names else found.selectExpr(*map(quoted, chosen))


def _cast(column: ReadColumn) -> Column:
    value = F.expr(column.sql)
    return (value if column.cast is None else value.cast(column.cast)).alias(column.name)


def _partitions(plan: FilePlan, files: pa.Table) -> list[Constant]:
    return [
        partition_text(
            partition_name(at), partition_values(files, column, plan.mapping_mode), column
        )
        for at, column in enumerate(plan.needed)
        if column.name in plan.partition_columns
    ]


def _scan(
    spark: SparkSession,
    plan: FilePlan,
    rows: FragmentRows,
    told: list[Constant],
    projection: Projection,
    *,
    virtual: bool,
    manifests: str | None,
) -> DataFrame:
    """Return all rows of files, as Spark reads them."""
    where = locations(rows.primaries["path"].combine_chunks(), plan.root)
    volumes = where["volume"].combine_chunks()
    frames = []
    if plan.mapping_mode == "id":
        for setting in _BY_FIELD_ID:
            spark.conf.set(setting, "true")
    home = volume_of(plan.root)[0].uri
    for at, uri in enumerate(volumes.dictionary.to_pylist() or [home]):
        mine = pc.equal(volumes.indices, at)
        volume, files = parse_volume(uri), where.filter(mine)
        reader = spark.read.schema(projection.read)
        # Spark asks these of files that do not say which calendar they have: those of others.
        reader = reader.option("datetimeRebaseMode", "CORRECTED")
        reader = reader.option("int96RebaseMode", "CORRECTED")
        if virtual:
            spark.conf.set(*volume.setting)
            mine_told = [replace(one, texts=one.texts.filter(mine)) for one in told]
            uris = virtual_uris(files, volume, rows.ids.filter(mine), mine_told)
            reader = reader.option("basePath", volume.root)
        else:
            uris = real_uris(files, volume)
            reader = reader.option("recursiveFileLookup", "true")
        text = manifest_text(uris, rows.primaries["size"].filter(mine))
        frames.append(reader.parquet(str(write_manifest(text, manifests))))
    return reduce(DataFrame.unionAll, frames)
