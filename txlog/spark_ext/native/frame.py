"""DataFrames over Parquet files that txlog has chosen."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import reduce

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as all of Spark's users name it

from txlog.expressions import quote_name
from txlog.fragments import FragmentRows
from txlog.scan import ROW_ADDRESS, ROW_ID, FilePlan
from txlog.spark_ext.native.columns import (
    Projection,
    ReadColumn,
    has_inner_floats,
    partition_name,
    project,
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
from txlog.store import Store

# Spark asks these of files that do not say which calendar they have: those of others.
_READING = {"datetimeRebaseMode": "CORRECTED", "int96RebaseMode": "CORRECTED"}
# Bounds in footers may leave NaN out; see `columns`.
_NO_BOUNDS = {
    "parquet.filter.stats.enabled": "false",
    "parquet.filter.columnindex.enabled": "false",
}
# Spark has these as settings only. They touch no schema but those that have field ids.
_BY_FIELD_ID = (
    "spark.sql.parquet.fieldId.read.enabled",
    "spark.sql.parquet.fieldId.read.ignoreMissing",
)


def frame(
    spark: SparkSession,
    store: Store,
    plan: FilePlan,
    rows: FragmentRows,
    *,
    vectors: Vectors | None,
    where: Column | None,
    manifests: str | None,
) -> DataFrame:
    """Return the rows of fragments that a plan wants, in the plan's columns.

    Parameters
    ----------
    vectors
        The deleted rows of all of the fragments, by their ids. None: none is deleted.
    where
        The plan's predicate, if rows must be held against it.
    manifests
        As for `read`.
    """
    asked = plan.metadata_columns
    positions = vectors is not None or bool(asked & {ROW_ADDRESS, ROW_ID})
    told = _partitions(plan, rows.primaries)
    if vectors is not None:
        told += constants(vectors, rows.ids)
    virtual = positions or bool(told) or bool(asked)
    if plan.mapping_mode == "id":
        for setting in _BY_FIELD_ID:
            spark.conf.set(setting, "true")
    projection = project(plan, told, positions=positions, virtual=virtual)
    options = dict(_READING)
    if has_inner_floats(plan.needed):
        options |= _NO_BOUNDS
    found = _scan(spark, store, rows, told, projection, options, virtual, manifests)
    if vectors is not None:
        found = alive(spark, found, vectors, rows.ids)
    names = [column.name for column in projection.columns]
    if any(column.cast is not None for column in projection.columns):
        found = found.select(*map(_cast, projection.columns))
    else:  # As text it is one call to Spark, instead of several for each column.
        found = found.selectExpr(*(f"{c.sql} AS {quote_name(c.name)}" for c in projection.columns))
    if where is not None:
        found = found.where(where)
    chosen = [column.name for column in plan.columns]
    return found if chosen == names else found.selectExpr(*map(quote_name, chosen))


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
    store: Store,
    rows: FragmentRows,
    told: list[Constant],
    projection: Projection,
    options: Mapping[str, str],
    virtual: bool,
    manifests: str | None,
) -> DataFrame:
    """Return all rows of files, as Spark reads them."""
    where = locations(rows.primaries["path"].combine_chunks(), store)
    volumes = where["volume"].combine_chunks()
    frames = []
    home = volume_of(store.root)[0].uri
    for at, uri in enumerate(volumes.dictionary.to_pylist() or [home]):
        mine = pc.equal(volumes.indices, at)
        volume, files = parse_volume(uri), where.filter(mine)
        reader = spark.read.schema(projection.read).options(**options)
        if virtual:
            for name, value in volume.settings.items():
                spark.conf.set(name, value)
            mine_told = [replace(one, texts=one.texts.filter(mine)) for one in told]
            uris = virtual_uris(files, volume, rows.ids.filter(mine), mine_told)
            reader = reader.option("basePath", volume.root)
        else:
            uris = real_uris(files, volume)
            reader = reader.option("recursiveFileLookup", "true")
        text = manifest_text(uris, rows.primaries["size"].filter(mine))
        place = write_manifest(text, manifests)
        # A plain path would be one of `fs.defaultFS`, which may be another file system.
        frames.append(reader.parquet(volume.local(place) if virtual else f"file://{place}"))
    return reduce(DataFrame.unionAll, frames)
