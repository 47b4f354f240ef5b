"""`read`: a table as a DataFrame over Spark's own Parquet reader."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import datetime
from functools import reduce
from types import MappingProxyType
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession

from txlog.base.errors import (
    InvalidInputError,
    UnsupportedFeatureError,
    in_callers_words,
    require_flags,
)
from txlog.base.thresholds import Threshold
from txlog.base.uris import scheme_of
from txlog.commit.context import Context, require_shared
from txlog.expressions.sql import as_expression, to_sql
from txlog.expressions.tree import Expression, quote_name
from txlog.fragments.fragment import fragments_of
from txlog.fragments.rows import FragmentRows, deleted_counts
from txlog.scan.columns import FRAGMENT_ID, ROW_ADDRESS
from txlog.scan.lazy_plan import plan_snapshot
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
from txlog.snapshot.snapshot import Snapshot
from txlog.snapshot.time_travel import snapshot_at
from txlog.spark_ext.engine import SparkEngine, format_known, is_on
from txlog.spark_ext.names import placed
from txlog.spark_ext.reads.frame import Part, frame, reads_of
from txlog.spark_ext.reads.marks import Recipe, marks_of, with_recipe
from txlog.spark_ext.reads.parquet_columns import never_null, own_names
from txlog.spark_ext.reads.places import passed_over, uris_in, volume_of
from txlog.spark_ext.reads.predicates import as_spark
from txlog.spark_ext.reads.vectors import Vectors, load_vectors, word_bytes
from txlog.spark_ext.spark_types import moment_text, read_schema
from txlog.spark_ext.zones import zone_of
from txlog.store.base import Store, threads_for
from txlog.store.cloud_options import UNITY
from txlog.store.open import open_store, require_allowed
from txlog.store.unity.tables import as_text

MANIFESTS = "spark.txlog.manifests"
IGNORES_MANIFESTS = "spark.sql.streaming.fileStreamSink.ignoreMetadata"  # Spark's own setting.
MAX_VECTOR_BYTES: Threshold = 256 * 1024 * 1024  # Of vectors that are sent to each executor.


@in_callers_words
def read(
    spark: SparkSession,
    uri: str,
    version: int | None = None,
    timestamp: str | datetime | int | None = None,
    *,
    columns: Sequence[str] | None = None,
    where: str | Expression | None = None,
    storage_options: Mapping[str, Any] | None = None,
    branch: str | None = None,
    manifests: str | None = None,
    use_index: bool = True,
) -> DataFrame:
    """Return a version of a table as a DataFrame that Spark reads with its own Parquet reader.

    txlog plans the read: it excludes files by `where`, takes partition values from the log, and
    applies column mapping. Spark removes deleted rows. The frame shows the version at the time of
    this call, not later commits. But in the source or a subquery of an update, delete or merge of
    the same table, it has the rows of the version that is changed, unless `version` or `timestamp`
    is given (classic Spark only).

    Of a table with very many files (2,000,000, or the session's setting `spark.txlog.planFiles`),
    Spark's executors read the log, and only the files that `where` does not exclude come to this
    process.

    Spark's reader cannot do all reads. The others use `spark.read.format("txlog")`, with the same
    rows:

    - tables with column files, with files in a store for which this Spark has no file system (S3,
      for example, needs a jar), or with files whose names Spark ignores or cannot express (they
      begin with `_` or `.`, or contain a colon) or whose size is 0;
    - deletion vectors of more than 256 MB in all (only the files that have them);
    - row ids of tables that track rows, whole numbers that became decimals, fields of structs as
      columns, and columns with names that txlog uses itself (`_txlog_…`,
      `_tmp_metadata_row_index`);
    - predicates whose meaning in Spark may differ (arithmetic, casts, comparisons of different
      types);
    - sessions with `spark.sql.streaming.fileStreamSink.ignoreMetadata=true`, in which Spark ignores
      lists of files;
    - on Spark Connect, tables that map columns by id, unless the session has
      `spark.sql.parquet.fieldId.read.enabled=true` and
      `spark.sql.parquet.fieldId.read.ignoreMissing=true`.

    The call sets settings of the session, for the mount points of the files
    (`fs.viewfs.mounttable.txlog-…`). They are the same for all tables of a store, and no other read
    uses these names.

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
    branch
        The name of an open branch to read, as for `Table`.
    manifests
        A folder for the lists of files, which Spark's driver must be able to read. Default: the
        session's setting `spark.txlog.manifests`, or else a temporary folder of this process. For
        Spark Connect to another machine, name a shared folder.
    use_index
        If `where` compares the key columns of an index with values, leave out the files without a
        row that the index names for them, as `Table.scan(where=…).explain()` says. This process
        reads the index. False: do not use it. The rows are the same.

    Raises
    ------
    NotFoundError, InvalidInputError, UnsupportedFeatureError, LogCorruptError
        As for `Table` and `Table.scan`.
    BadDeletionVectorError
        Deleted positions cannot be read.
    OutOfMemoryError
        The memory of Spark's driver is too small for the list of files.
    EngineError
        The executors cannot read the log: see `SparkEngine`.
    """
    require_flags(use_index=use_index)
    store = open_store(*placed(spark, uri, storage_options, branch))
    require_shared(
        store,
        argument="uri",
        remedy="Read it with txlog.Table, or put it where all workers can read it",
    )
    moment = moment_text(spark, timestamp) if isinstance(timestamp, str) else timestamp
    snapshot = snapshot_at(store, version, moment)
    # The rows of a version that the caller has chosen may replace those of later ones.
    is_latest = version is None and moment is None
    zone = zone_of(spark)
    condition = as_expression(where, zone)
    names = None if columns is None else column_names(columns)
    found = read_version(
        spark,
        store,
        snapshot,
        columns=names,
        where=condition,
        marks=marks_of(store, snapshot.version) if is_latest else {},
        manifests=manifests,
        use_index=use_index,
    )
    if not is_latest:
        return found
    text = None if condition is None else to_sql(condition)
    chosen = None if names is None else tuple(names)
    return with_recipe(found, Recipe(chosen, text, zone, manifests, use_index))


def read_version(
    spark: SparkSession,
    store: Store,
    snapshot: Snapshot,
    *,
    columns: Sequence[str] | None = None,
    where: Expression | None = None,
    only: pa.ChunkedArray | None = None,
    marks: Mapping[str, str] = MappingProxyType({}),
    manifests: str | None = None,
    use_index: bool = True,
    is_committed: bool = True,
) -> DataFrame:
    """Return a version of a table as a frame; see `read`.

    Parameters
    ----------
    only
        The logged paths of the files to read. None: all files.
    marks
        Options that the plan of the frame is to keep.
    is_committed
        Whether the version is in the log. The data source opens no other one.

    Raises
    ------
    UnsupportedFeatureError
        The version is not in the log, and Spark's own reader cannot read it.
    """
    scan = plan_snapshot(
        store,
        snapshot,
        lambda: load_files(store, snapshot).live,
        columns=None if columns is None else column_names(columns),
        where=where,
        engine=SparkEngine(spark, local_items=0),
        only=only,
    )
    if use_index and only is None:
        scan = Context(store).indexed(snapshot, scan)
    plan, files = scan.reading, scan.read_files
    condition = None if plan.where is None else as_spark(plan.where)
    beyond = needs_python(plan, files.rows) or (plan.where is not None and condition is None)
    reads = reads_of(spark, plan)
    if beyond or reads is None or not _can_list(spark, store, files.rows):
        _require_committed(store, is_committed)
        return _by_python(spark, store, plan, marks, only=only, use_index=use_index)
    if pc.all(files.certain).as_py():
        condition = None
    deleted = pc.greater(deleted_counts(files.rows.primaries), 0)
    whole, with_deletions = files.rows.filter(pc.invert(deleted)), files.rows.filter(deleted)
    vectors = _vectors(store, plan, with_deletions, files.physical_rows.filter(deleted))
    parts = []
    if len(whole.ids) or not len(with_deletions.ids):
        parts.append(Part(whole))
    if len(with_deletions.ids) and vectors is not None:
        parts.append(Part(with_deletions, vectors))
    not_null = frozenset[str]() if vectors is None else never_null(plan, files.rows.primaries)
    frames = []
    if parts:
        if manifests is None:
            manifests = spark.conf.get(MANIFESTS, None)
        found = frame(
            reads,
            store,
            plan,
            parts,
            where=condition,
            manifests=manifests,
            not_null=not_null,
            marks=marks,
        )
        frames.append(found)
    if vectors is None:
        _require_committed(store, is_committed)
        found = _by_python(
            spark, store, plan, marks, only=only, use_index=use_index, with_deletions=True
        )
        frames.append(found)
        # All sides of a union must have the same collation.
        frames = [_typed(rows, plan, not_null) for rows in frames]
    return _typed(reduce(DataFrame.unionAll, frames), plan, not_null)


def _require_committed(store: Store, is_committed: bool) -> None:
    """Raise for rows of a transaction that only the data source can read: it opens the log."""
    if not is_committed:
        raise UnsupportedFeatureError(
            path=store.root,
            reason="a merge of a frame reads changes that are not committed yet, and Spark's own "
            "reader cannot read this table",
            remedy="Make the merge the first change of the table in the transaction, or merge "
            "rows in Arrow's form",
        )


def _typed(rows: DataFrame, plan: ReadPlan, not_null: Collection[str]) -> DataFrame:
    """Return rows with the comments and collations of a plan's columns.

    `not_null` are the columns without nulls. The plan's predicate must already be applied, because
    it compares texts byte by byte.
    """
    wanted = read_schema(StructType(plan.columns))
    for field in wanted.fields:
        field.nullable = field.name not in not_null
    text = wanted.json()  # Spark has collations in the metadata, too.
    # Field ids of nested fields are metadata of the read columns. (Asking a frame for its schema
    # may be a request to a server.)
    inner = plan.form.mapping_mode == "id" and text.count('"type":"struct"') > 1
    return rows.to(wanted) if inner or '"metadata":{"' in text else rows


def _vectors(store: Store, plan: ReadPlan, rows: FragmentRows, counts: pa.Array) -> Vectors | None:
    """Return the deleted rows of fragments; None if they are too large to send to executors."""
    if word_bytes(pc.sum(counts).as_py() or 0) > MAX_VECTOR_BYTES:
        return None
    found = load_vectors(store, plan, fragments_of(rows, counts), threads_for(store))
    # The first check is not exact, because the log may lack row counts.
    return None if found.nbytes > MAX_VECTOR_BYTES else found


def _can_list(spark: SparkSession, store: Store, rows: FragmentRows) -> bool:
    """Return whether Spark reads lists of files, and has file systems for the files in `rows`.

    Raises
    ------
    UnsupportedFeatureError
        The table may not refer to the store of a file.
    """
    if is_on(spark, IGNORES_MANIFESTS):
        return False
    if UNITY in store.options and scheme_of(store.root) != "file":
        return False  # The catalog gave the credentials to txlog, not to Spark.
    others = uris_in(rows.primaries["path"])
    for uri in others:
        require_allowed(store, uri)
    return all(can_open(spark, uri) for uri in (store.root, *others))


def can_open(spark: SparkSession, uri: str) -> bool:
    """Return whether Spark has a file system for a URI or a path. S3, for example, needs a jar.

    A server of Spark Connect does not report this, so there the result is true if Hadoop knows the
    scheme.
    """
    try:
        volume, _ = volume_of(uri)
    except UnsupportedFeatureError:
        return False
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
    added = rows.columns
    in_column_files = {name for names in added.field_sets for name in names if added.rows.num_rows}
    if any(
        column.name_in_files(plan.form.mapping_mode) in in_column_files for column in plan.needed
    ):
        return True
    if plan.form.row_tracking is not None and plan.metadata_columns - {FRAGMENT_ID, ROW_ADDRESS}:
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
    spark: SparkSession,
    store: Store,
    plan: ReadPlan,
    marks: Mapping[str, str],
    *,
    use_index: bool,
    only: pa.ChunkedArray | None,
    with_deletions: bool = False,
) -> DataFrame:
    """Read through the data source, which uses txlog's own reader."""
    reader = spark.read.format("txlog").options(**marks).option("versionAsOf", plan.version)
    reader = reader.option("columns", json.dumps([_named(plan, one.name) for one in plan.columns]))
    if plan.where is not None:
        # Bound: what depends on the zone of the session names it.
        reader = reader.option("where", to_sql(plan.where)).option("timeZone", "UTC")
    if not use_index:
        reader = reader.option("useIndex", "false")
    if with_deletions:
        reader = reader.option("onlyWithDeletions", "true")
    if only is not None:
        reader = reader.option("onlyFiles", json.dumps(only.to_pylist()))
    place, options = as_text(store.root, store.options)
    if options:
        reader = reader.option("secretStorageOptions", as_option(options))
    with format_known():
        return reader.load(place)


def _named(plan: ReadPlan, column: str) -> str:
    """Return a column of a plan as a caller must name it: a field of structs by its path."""
    path = plan.nested.get(column)
    return column if path is None else ".".join(map(quote_name, path))


def as_option(options: Mapping[str, Any]) -> str:
    """Return the options of a store as an option of the data source; an error names others."""
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
