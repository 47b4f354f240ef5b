"""`read`: a table as a DataFrame over Spark's own Parquet reader."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
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
from txlog.spark_ext.native.parquet_columns import never_null, own_names
from txlog.spark_ext.native.places import passed_over, volume_of
from txlog.spark_ext.native.predicates import as_spark
from txlog.spark_ext.native.vectors import Vectors, load_vectors, word_bytes
from txlog.spark_ext.spark_types import moment_text, read_schema
from txlog.store.base import Store, threads_for
from txlog.store.open import open_store

MANIFESTS = "spark.txlog.manifests"
MAX_VECTOR_BYTES = 256 * 1024 * 1024  # Of vectors that are sent to each executor.


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

    txlog plans the read: it excludes files by `where`, takes partition values from the log, and
    applies column mapping. Spark removes deleted rows. The frame shows the version at the time of
    this call, not later commits.

    Spark's reader cannot read some tables. For these, the frame uses `spark.read.format("txlog")`,
    with the same rows: column files, row ids of tables that track rows, whole numbers that became
    decimals, files that Spark treats as hidden, predicates whose meaning in Spark may differ
    (arithmetic, casts, comparisons of different types), deletion vectors of more than 256 MB in
    all, and stores for which this Spark has no jar, such as S3.

    Parameters
    ----------
    spark
        A classic session or a session of Spark Connect.
    version, timestamp
        A version other than the latest, as for `Table`, except that text without a zone is in the
        session's time zone.
    columns, where
        As for `Table.scan`.
    storage_options
        Options for reading the log. Spark reads data files with its own settings
        (`spark.hadoop.…`).
    manifests
        A folder for the lists of files, which Spark's driver must be able to read. Default: the
        session's setting `spark.txlog.manifests`, or else a temporary folder of this process. For
        Spark Connect to another machine, name a shared folder.

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
    sure = frozenset[str]() if vectors is None else never_null(plan, files.rows.primaries)
    frames = []
    if parts:
        if manifests is None:
            manifests = spark.conf.get(MANIFESTS, None)
        found = frame(spark, store, plan, parts, where=condition, manifests=manifests, sure=sure)
        frames.append(found)
    if vectors is None:
        frames.append(_by_python(spark, store, plan, with_deletions=True))
        # All sides of a union must have the same collation.
        frames = [_typed(rows, plan, sure) for rows in frames]
    return _typed(reduce(DataFrame.unionAll, frames), plan, sure)


def _typed(rows: DataFrame, plan: ReadPlan, sure: Collection[str]) -> DataFrame:
    """Return rows with the comments and collations of a plan's columns.

    `sure` are the columns without nulls. The plan's predicate must already be applied, because it
    compares texts byte by byte.
    """
    wanted = read_schema(StructType(plan.columns))
    for field in wanted.fields:
        field.nullable = field.name not in sure
    text = wanted.json()  # Spark has collations in the metadata, too.
    # Field ids of nested fields are metadata of the read columns. (Asking a frame for its schema
    # may be a request to a server.)
    inner = plan.mapping_mode == "id" and text.count('"type":"struct"') > 1
    return rows.to(wanted) if inner or '"metadata":{"' in text else rows


def _vectors(store: Store, plan: ScanPlan, rows: FragmentRows, counts: pa.Array) -> Vectors | None:
    """Return the deleted rows of fragments; None if they are too large to send to executors."""
    if word_bytes(pc.sum(counts).as_py() or 0) > MAX_VECTOR_BYTES:
        return None
    found = load_vectors(store, plan.reading, fragments_of(rows, counts), threads_for(store))
    # The first check is not exact, because the log may lack row counts.
    return None if found.nbytes > MAX_VECTOR_BYTES else found


def can_open(spark: SparkSession, root: str) -> bool:
    """Return whether Spark has a file system for a table's root. S3, for example, needs a jar.

    For a server of Spark Connect, which does not report this, the result is true.
    """
    volume, _ = volume_of(root)
    jvm = getattr(spark, "_jvm", None)  # There is no public way to ask.
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
    """Return whether only txlog's own reader can read a plan. Pure."""
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
    """Whether files may have integers for decimals, which Spark reads only if these are wide."""
    return any(
        change.get("fromType") in WHOLE_NUMBERS and "decimal" in str(change.get("toType"))
        for field in _fields(column)
        for change in field.metadata.get(TYPE_CHANGES) or ()
    )


def _fields(column: StructField) -> Iterator[StructField]:
    """Yield a column and all of its nested fields."""
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
    """Read through the data source, which uses txlog's own reader."""
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
            reason="this read needs the data source, whose options must be JSON, but this value is "
            "not",
            remedy="Pass only text, numbers, booleans, and lists and mappings of these",
        ) from error


def _is_json(value: Any) -> bool:
    try:
        json.dumps(value)
    except TypeError:
        return False
    return True
