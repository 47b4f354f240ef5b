"""DataFrames over Parquet files that txlog has chosen."""

from __future__ import annotations

from functools import reduce

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as all of Spark's users name it
from pyspark.sql.types import StructType as SparkStruct

from txlog.expressions import to_sql
from txlog.fragments import FragmentRows
from txlog.scan import ROW_ADDRESS, ROW_ID, FilePlan
from txlog.spark_ext.native.columns import POSITION, Projection, partition_name, project, quoted
from txlog.spark_ext.native.kinds import PartitionText, partition_text
from txlog.spark_ext.native.manifest import manifest_text, write_manifest
from txlog.spark_ext.native.places import (
    FRAGMENT_COLUMN,
    locations,
    parse_volume,
    real_uris,
    virtual_uris,
    volume_of,
)
from txlog.stats import partition_values

_VECTORS = SparkStruct.fromJson(
    {
        "type": "struct",
        "fields": [
            {"name": "_txlog_vector", "type": "long", "nullable": False, "metadata": {}},
            {
                "name": "_txlog_words",
                "type": {"type": "array", "elementType": "long", "containsNull": False},
                "nullable": False,
                "metadata": {},
            },
        ],
    }
)
# Spark has these as settings only. They touch no schema but those that have field ids.
_BY_FIELD_ID = (
    "spark.sql.parquet.fieldId.read.enabled",
    "spark.sql.parquet.fieldId.read.ignoreMissing",
)
# A word that is not there has no deleted row. A position that is not there would show deleted
# rows, so it is an error.
_ALIVE = (
    "coalesce(get(_txlog_words, CAST(shiftright({position}, 6) AS INT)) "
    "& shiftleft(1L, CAST({position} & 63 AS INT)), 0L) = 0L"
).format(position=f"{POSITION}")


def frame(
    spark: SparkSession,
    plan: FilePlan,
    rows: FragmentRows,
    *,
    vectors: pa.Table | None,
    filtered: bool,
    manifests: str | None,
) -> DataFrame:
    """Return the rows of fragments that a plan wants, in the plan's columns.

    Parameters
    ----------
    vectors
        The deleted rows of all of the fragments, as `VECTORS`. None: none is deleted.
    filtered
        Whether the plan's predicate must be looked at.
    manifests
        As for `read`.
    """
    asked = plan.metadata_columns
    positions = vectors is not None or bool(asked & {ROW_ADDRESS, ROW_ID})
    partitions = _partitions(plan, rows.primaries)
    virtual = positions or bool(partitions) or bool(asked)
    projection = project(plan, partitions, positions=positions, virtual=virtual)
    found = _scan(spark, plan, rows, partitions, projection, virtual=virtual, manifests=manifests)
    if vectors is not None:
        held = F.broadcast(spark.createDataFrame(vectors, _VECTORS))
        found = found.join(held, F.col(FRAGMENT_COLUMN) == F.col("_txlog_vector")).where(_ALIVE)
    chosen = []
    for column in projection.columns:
        value = F.expr(column.sql)
        chosen.append(
            (value if column.cast is None else value.cast(column.cast)).alias(column.name)
        )
    found = found.select(*chosen)
    if filtered and plan.where is not None:
        found = found.where(to_sql(plan.where))
    return found.select(*(F.col(quoted(column.name)) for column in plan.columns))


def _partitions(plan: FilePlan, files: pa.Table) -> list[PartitionText]:
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
    partitions: list[PartitionText],
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
            texts = [PartitionText(p.name, p.texts.filter(mine), p.sql) for p in partitions]
            uris = virtual_uris(files, volume, rows.ids.filter(mine), texts)
            reader = reader.option("basePath", volume.root)
        else:
            uris = real_uris(files, volume)
            reader = reader.option("recursiveFileLookup", "true")
        text = manifest_text(uris, rows.primaries["size"].filter(mine))
        frames.append(reader.parquet(str(write_manifest(text, manifests))))
    return reduce(DataFrame.unionAll, frames)
