"""`read`: a table as a DataFrame over Spark's own Parquet reader."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from functools import reduce
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession

from txlog.errors import InvalidInputError
from txlog.expressions.sql import as_expression, to_sql
from txlog.expressions.tree import Expression
from txlog.fragments.fragment import fragments_of
from txlog.fragments.rows import FragmentRows, deleted_counts
from txlog.scan.columns import FRAGMENT_ID, ROW_ADDRESS
from txlog.scan.lazy_plan import plan_snapshot
from txlog.scan.plan import ScanPlan
from txlog.scan.read_plan import ReadPlan, column_names
from txlog.schema.types import (
    TYPE_CHANGES,
    WHOLE_NUMBERS,
    ArrayType,
    MapType,
    StructField,
    StructType,
)
from txlog.snapshot.live_files import load_files
from txlog.snapshot.time_travel import snapshot_at
from txlog.spark_ext.engine import format_known
from txlog.spark_ext.native.frame import Part, frame
from txlog.spark_ext.native.parquet_columns import own_names
from txlog.spark_ext.native.places import passed_over, volume_of
from txlog.spark_ext.native.predicates import as_spark
from txlog.spark_ext.native.vectors import Vectors, load_vectors, word_bytes
from txlog.spark_ext.spark_types import moment_text, read_schema
from txlog.store.base import Store, threads_for
from txlog.store.open import open_store

MANIFESTS = "spark.txlog.manifests"
MAX_VECTOR_BYTES = 256 * 1024 * 1024  # Of deleted positions, that every executor gets.


def read(
    spark: SparkSession,
    uri: str,
    version: int | None = None,
    timestamp: str | datetime | int | None = None,
    *,
    columns: Sequence[str] | None = None,
    where: str | Expression | None = None,
    storage_options: Mapping[str, Any] | None = None,
    manifests: str | None = None,
) -> DataFrame:
    """Return a version of a table as a DataFrame that Spark reads with its own Parquet reader.

    Planning is txlog's: only the files that `where` cannot rule out, partition values from the
    log, column mapping, and deleted rows left out inside of Spark. It is the version of this
    moment; later commits do not show.

    What Spark's reader cannot do is read as by `spark.read.format("txlog")`, with the same rows:
    columns in files of their own, row ids of tables that track rows, whole numbers that became
    decimals, files that Spark takes for hidden ones, predicates that Spark might see otherwise
    (arithmetic, casts, comparisons of different types), files with deletions where their bits
    are more than 256 MB in all, and stores that this Spark has no jar for, such as S3.

    Parameters
    ----------
    spark
        A classic session, or one of Spark Connect.
    version, timestamp
        Another version than the latest, as for `Table`; but text without a zone is in the
        session's time zone.
    columns, where
        As for `Table.scan`.
    storage_options
        For reading the log. Spark reaches the data files by its own settings (`spark.hadoop.…`).
    manifests
        A folder for the lists of files that Spark reads, which Spark's driver must see. Default:
        the session's setting `spark.txlog.manifests`, else a temporary one of this process. Over
        Spark Connect to another machine, name a shared one.

    Raises
    ------
    NotFoundError, InvalidInputError, UnsupportedFeatureError, LogCorruptError
        As for `Table` and `Table.scan`.
    BadDeletionVectorError
        Deleted positions cannot be read.
    """
    store = open_store(uri, storage_options)
    moment = moment_text(spark, timestamp) if isinstance(timestamp, str) else timestamp
    snapshot = snapshot_at(store, version, moment)
    plan = plan_snapshot(
        store,
        snapshot,
        lambda: load_files(store, snapshot).live,
        columns=None if columns is None else column_names(columns),
        where=as_expression(where),
    )
    files = plan.read_files
    condition = None if plan.where is None else as_spark(plan.where)
    beyond = needs_python(plan, files.rows) or (plan.where is not None and condition is None)
    if beyond or not can_open(spark, store.root):
        return _by_python(spark, store, plan)
    if pc.all(files.certain).as_py():
        condition = None
    deleted = pc.greater(deleted_counts(files.rows.primaries), 0)
    whole, apart = files.rows.filter(pc.invert(deleted)), files.rows.filter(deleted)
    vectors = _vectors(store, plan, apart, files.physical_rows.filter(deleted))
    parts = []
    if len(whole.ids) or not len(apart.ids):
        parts.append(Part(whole))
    if len(apart.ids) and vectors is not None:
        parts.append(Part(apart, vectors))
    frames = []
    if parts:
        if manifests is None:
            manifests = spark.conf.get(MANIFESTS, None)
        frames.append(frame(spark, store, plan, parts, where=condition, manifests=manifests))
    if vectors is None:
        frames.append(_by_python(spark, store, plan, with_deletions=True))
        frames = [_typed(rows, plan) for rows in frames]  # A union has one collation.
    return _typed(reduce(DataFrame.unionAll, frames), plan)


def _typed(rows: DataFrame, plan: ReadPlan) -> DataFrame:
    """Return rows with the comments and collations that the columns of a plan have.

    The predicate of the plan must have been applied before: it compares texts byte by byte.
    """
    wanted = read_schema(StructType(plan.columns))
    text = wanted.json()  # Spark has collations in the metadata too.
    # Field ids of inner fields are metadata of what was read. (To ask a frame for its own schema
    # may be a request to a server.)
    inner = plan.mapping_mode == "id" and text.count('"type":"struct"') > 1
    return rows.to(wanted) if inner or '"metadata":{"' in text else rows


def _vectors(store: Store, plan: ScanPlan, rows: FragmentRows, counts: pa.Array) -> Vectors | None:
    """Return the deleted rows of fragments; None: they are too many for every executor."""
    if word_bytes(pc.sum(counts).as_py() or 0) > MAX_VECTOR_BYTES:
        return None
    found = load_vectors(store, plan.reading, fragments_of(rows, counts), threads_for(store))
    # The log need not say how many rows there are.
    return None if found.nbytes > MAX_VECTOR_BYTES else found


def can_open(spark: SparkSession, root: str) -> bool:
    """Return whether Spark has a file system for a table's root: that for S3 is a jar of its own.

    A server of Spark Connect does not tell; it is taken to have one.
    """
    volume, _ = volume_of(root)
    jvm = getattr(spark, "_jvm", None)  # Nothing public tells.
    if volume.scheme == "file" or jvm is None:
        return True
    from py4j.protocol import Py4JJavaError

    settings = spark._jsc.hadoopConfiguration()
    try:
        jvm.org.apache.hadoop.fs.FileSystem.getFileSystemClass(volume.scheme, settings)
    except Py4JJavaError:
        return False
    return True


def needs_python(plan: ReadPlan, rows: FragmentRows) -> bool:
    """Return whether a plan needs what only txlog's own reader does. Pure."""
    if plan.nested:
        return True
    apart = rows.columns
    given = {name for fields in apart.field_sets for name in fields if apart.rows.num_rows}
    if any(column.name_in_files(plan.mapping_mode) in given for column in plan.needed):
        return True
    if plan.row_tracking is not None and plan.metadata_columns - {FRAGMENT_ID, ROW_ADDRESS}:
        return True
    if any(_becomes_decimal(column) for column in plan.needed):
        return True
    return bool(own_names(plan)) or passed_over(rows.primaries)


def _becomes_decimal(column: StructField) -> bool:
    """Whether files may hold whole numbers for decimals: Spark wants room for all of the type."""
    return any(
        change.get("fromType") in WHOLE_NUMBERS and "decimal" in str(change.get("toType"))
        for field in _fields(column)
        for change in field.metadata.get(TYPE_CHANGES) or ()
    )


def _fields(column: StructField) -> Iterator[StructField]:
    """Yield a column and all fields inside of it."""
    yield column
    kinds = [column.type]
    while kinds:
        match kinds.pop():
            case ArrayType(element):
                kinds.append(element)
            case MapType(key, value):
                kinds += [key, value]
            case StructType(fields):
                for field in fields:
                    yield from _fields(field)


def _by_python(
    spark: SparkSession, store: Store, plan: ReadPlan, *, with_deletions: bool = False
) -> DataFrame:
    """Read through the data source, which txlog's own reader is behind."""
    reader = spark.read.format("txlog").option("versionAsOf", plan.version)
    reader = reader.option("columns", json.dumps([column.name for column in plan.columns]))
    if plan.where is not None:
        reader = reader.option("where", to_sql(plan.where))
    if with_deletions:
        reader = reader.option("onlyWithDeletions", "true")
    if store.options:
        reader = reader.option("secretStorageOptions", _as_option(store.options))
    with format_known():
        return reader.load(store.root)


def _as_option(options: Mapping[str, Any]) -> str:
    try:
        return json.dumps(dict(options))
    except TypeError as error:
        names = [name for name, value in options.items() if not _is_json(value)]
        raise InvalidInputError(
            argument="storage_options",
            field=names[0] if names else None,
            reason="this plan needs the data source, whose options are JSON, which this is not",
            remedy="Pass text, numbers, true or false, lists and mappings of them",
        ) from error


def _is_json(value: Any) -> bool:
    try:
        json.dumps(value)
    except TypeError:
        return False
    return True
