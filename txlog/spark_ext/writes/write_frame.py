"""`write`: write a Spark frame to a table, and fit values to columns; also on Spark Connect."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import reduce
from operator import and_
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import functions as F  # noqa: N812 - as all of Spark's users name it
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    CharType,
    DataType,
    DateType,
    DayTimeIntervalType,
    MapType,
    NullType,
    NumericType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
    VarcharType,
    YearMonthIntervalType,
)

from txlog.actions.file import Add
from txlog.base.errors import (
    InvalidInputError,
    InvalidTypeError,
    SchemaMismatchError,
    in_callers_words,
    require_mappings,
    require_texts,
)
from txlog.base.thresholds import Threshold
from txlog.commit.app_versions import AnyAppVersion, AppVersion, require_app_version
from txlog.commit.operation import Outcome, discarding, skip_recorded
from txlog.data_files.assignments import untyped
from txlog.data_files.definition import Definition
from txlog.data_files.identity import Identity
from txlog.data_files.modes import (
    ComputedFrom,
    PartitionMode,
    SchemaMode,
    WriteMode,
    computed_from_in,
)
from txlog.data_files.options import WriteOptions, as_options
from txlog.data_files.write import discard_files
from txlog.expressions.sql import as_expression
from txlog.expressions.tree import Expression
from txlog.schema.blobs import BLOB
from txlog.spark_ext.answers import answered, unpacked
from txlog.spark_ext.engine import SparkEngine, before_commit, map_in_arrow, not_fitting
from txlog.spark_ext.names import placed
from txlog.spark_ext.session_settings import with_settings
from txlog.spark_ext.spark_types import neutral, spark_schema
from txlog.spark_ext.transactions import transaction
from txlog.spark_ext.writes.own_reads import version_read
from txlog.spark_ext.writes.target import commit_files, kept_of, plan_target, with_refused
from txlog.spark_ext.writes.write_tasks import (
    SESSION_PARTITION_MODE,
    Target,
    WriteRequest,
    any_task,
)
from txlog.spark_ext.zones import zone_of
from txlog.store.open import open_store
from txlog.table.row_verbs import quarantine_place
from txlog.verbs.create import already_exists, existing

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from txlog.commit.context import Context
    from txlog.store.base import Store
    from txlog.table.row_verbs import OnError
    from txlog.table.table import Table
    from txlog.verbs.quarantine import WrittenQuarantine

_ANSWER = "answer binary"
Typed = tuple["Column", DataType]


@in_callers_words
def write(
    df: DataFrame,
    uri: str | os.PathLike[str],
    *,
    mode: WriteMode = "append",
    partition_by: Sequence[str] | str | None = None,
    cluster_by: Sequence[str] | str | None = None,
    generated: Mapping[str, str] | None = None,
    identity: Mapping[str, Identity] | Sequence[str] | str | None = None,
    properties: Mapping[str, str] | None = None,
    name: str | None = None,
    description: str | None = None,
    where: str | Expression | None = None,
    partition_mode: PartitionMode | None = None,
    schema_mode: SchemaMode = None,
    computed_from: ComputedFrom = None,
    on_error: OnError = "error",
    quarantine: Table | str | os.PathLike[str] | None = None,
    options: WriteOptions | None = None,
    txn: AppVersion | None = None,
    user_metadata: str | None = None,
    storage_options: Mapping[str, Any] | None = None,
    branch: str | None = None,
) -> Outcome:
    """Write a frame to a table in one commit; create the table if it does not exist.

    Tasks write the files and this process commits them, so both need txlog and access to the store.
    The frame is computed once. In `foreachBatch`, `txn=(name, batch_id)` commits every batch
    exactly once. In classic Spark, a batch is refused if another query (with another checkpoint)
    used this name. Spark Connect does not report the query.

    Parameters
    ----------
    mode
        What to do if the table exists: `append` to it, `overwrite` its rows, raise an `error`, or
        `ignore` the call. If `txn` is already recorded, nothing changes in any mode, and the frame
        is not computed.
    where
        In mode `overwrite`: replace the rows for which this is true; every new row must satisfy it.
    partition_mode
        In mode `overwrite`: `dynamic` replaces only the partitions for which the frame has rows,
        `static` all rows. Default: for a table with partitions, and without `where` and
        `schema_mode="overwrite"`, the setting `spark.sql.sources.partitionOverwriteMode`.
    schema_mode
        `merge` adds the columns that only the frame has; `overwrite` takes the frame's schema.
    computed_from
        In mode `overwrite`: the version of this table from whose rows the frame is computed, or
        `"nothing"`. If rows that are replaced have changed since that version, the call raises
        `CommitConflictError`, because it would undo the change. Default: what the frame reads, as
        far as Spark says it (`cache` and `checkpoint` hide it, and names of views and tables of a
        server of Spark Connect).
    on_error, quarantine
        As for `Table.append`: rows that do not fit go into another table, which is made if there is
        none. Tasks write them there, too.
    txn
        An application id and the application's version of this write. Default: the session's
        settings `spark.databricks.delta.write.txnAppId` and `…txnVersion`, if there are any.
    partition_by, cluster_by, generated, identity, properties, name, description
        The definition of a new table, as for `txlog.write`. An existing table must already have it,
        but for name and description; with `mode="overwrite"` and `schema_mode="overwrite"` it gets
        these partition columns.
    options
        The sizes and the encoding of new files.
    branch
        The name of an open branch of the table, to which the rows are written.

    Returns
    -------
    The outcome with the new version. Its version is None if `txn` was recorded already (then
    `skipped` is set), or if the mode is `ignore` and the table exists.

    Raises
    ------
    InvalidInputError, SchemaMismatchError
        An argument is wrong, or the frame's columns do not fit the table; nothing was computed. Or
        a value cannot be computed, does not fit its column, or breaks a constraint.
        Or another streaming query has used the application of `txn` (STR-42).
    AlreadyExistsError
        The table exists, and the mode is `error`.
    CommitConflictError
        The table was deleted, created, or changed while the frame was computed.
    NotFoundError
        There is no such branch.
    EngineError
        Spark cannot compute the frame; the cause is its error. Nothing was committed, as with all
        errors here. Files of tasks that had finished stay until a vacuum deletes them.
    UnsupportedFeatureError
        txlog cannot write such a table.
    """
    require_mappings(properties=properties, storage_options=storage_options)
    require_texts(name=name, description=description)
    require_app_version(txn)
    require_batch(df)
    store = open_store(*placed(df.sparkSession, uri, storage_options, branch))
    request = WriteRequest(
        mode=mode,
        definition=Definition(
            partition_by=partition_by,
            cluster_by=cluster_by,
            generated=generated,
            identity=identity,
            properties=properties,
            name=name,
            description=description,
        ),
        where=as_expression(where, zone_of(df.sparkSession)),
        partition_mode="static" if partition_mode is None else partition_mode,
        follows_session=partition_mode is None,
        schema_mode=schema_mode,
        computed_from=computed_from_in(mode, computed_from),
        options=as_options(options),
        user_metadata=user_metadata,
    )
    there = quarantine_place(on_error, quarantine, store.options)
    with transaction(txn, df.sparkSession) as recorded:
        return _committed(df, store, request, recorded, there=there)


def write_defined(
    df: DataFrame,
    uri: str,
    definition: Definition,
    *,
    replaced: int | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> Outcome:
    """Make a table of a frame's rows, or replace a table by one; errors as for `write`.

    Nothing of the old table stays but its history: neither properties nor constraints, comment,
    partitioning or clustering. Rows of versions after `replaced`, if it is given, are a conflict.
    """
    require_batch(df)
    request = WriteRequest(
        mode="overwrite", definition=definition, schema_mode="overwrite", replaces=True
    )
    with transaction(None, df.sparkSession) as recorded:
        return _committed(df, open_store(uri, storage_options), request, recorded, replaced)


def _committed(
    df: DataFrame,
    store: Store,
    request: WriteRequest,
    txn: AnyAppVersion | None,
    replaced: int | None = None,
    there: Context | None = None,
) -> Outcome:
    """Write a frame to a table in one commit, unless the table needs no change."""
    table = existing(store)
    if table is not None:
        if recorded := skip_recorded(table, txn):
            return recorded.outcome
        if request.mode == "ignore":
            return Outcome("WRITE", None)
        if request.mode == "error":
            raise already_exists(store)
    target = plan_target(store, request, df.schema, table)
    target = target.in_session(df.sparkSession.conf.get(SESSION_PARTITION_MODE, None))
    if table is not None and request.mode == "overwrite":
        stated = request.computed_from
        read = version_read(df, store, table.version) if stated is None else None
        known = [one for one in (read, replaced) if one is not None]
        target = target.from_version(min(known, default=None))
    if there is not None:
        target = with_refused(target, there)
    adds, kept = written_by_tasks(df, target, txn)
    engine = SparkEngine(df.sparkSession)
    return commit_files(target, adds, txn, quarantine=kept, engine=engine)


def written_by_tasks(
    df: DataFrame, target: Target, txn: AnyAppVersion | None
) -> tuple[list[Add], WrittenQuarantine | None]:
    """Let tasks write a frame; return the files, and those of the quarantine if there is one.

    If a task finds a wrong row, the files of all tasks are deleted. Errors are those of `write`.
    """
    with before_commit():
        # A second action on this frame would write all files again.
        given = neutral(df)
        names = None if given is df else df.columns
        found = map_in_arrow(by_rows(given), _writing(target, names, txn), _ANSWER).toArrow()
    answers = [unpacked(answer) for answer in found["answer"]]
    results = [one.result or ((), ()) for one in answers]
    adds = [Add.model_validate(add) for given, _ in results for add in given]
    refused = [Add.model_validate(add) for _, given in results for add in given]
    kept = kept_of(target, refused, txn)

    def discard() -> None:
        discard_files(target.store, adds)
        if kept is not None:
            kept.discard()

    with discarding(discard):
        for one in answers:
            one.value()
    return adds, kept


def require_batch(df: DataFrame) -> None:
    """Raise unless a value is a Spark frame and not a stream."""
    if getattr(df, "isStreaming", None) is None or not hasattr(df, "mapInArrow"):
        raise InvalidTypeError(
            argument="df",
            reason=f"it must be DataFrame of Spark, not {type(df).__name__}",
            remedy="Write other data with txlog.write",
        )
    if df.isStreaming:
        raise InvalidInputError(
            argument="df",
            reason="it is a stream",
            remedy='Use df.writeStream.format("txlog"), or this function in foreachBatch',
        )


def _writing(
    target: Target, names: list[str] | None = None, txn: AnyAppVersion | None = None
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return the function that tasks run: it takes rows and returns the task's answer."""

    def write_files(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        named = batches if names is None else (one.rename_columns(names) for one in batches)
        # If the rows are wrong, another attempt would only find the same.
        answer = answered(lambda rows: any_task(target, rows, txn), iter(named), retries=True)
        yield pa.RecordBatch.from_arrays([pa.array([answer], pa.binary())], names=["answer"])

    return write_files


_MAX_BYTES = "spark.sql.execution.arrow.maxBytesPerBatch"
_MAX_ROWS = "spark.sql.execution.arrow.maxRecordsPerBatch"
# With this limit, Spark does not sum up the bytes of all columns after each row.
_UNCOUNTED = str(2**31 - 1)

_BATCH_BYTES: Threshold = 64 * 1024 * 1024  # Spark's default limit.
_ROWS: Threshold = 10_000  # Spark's default limit.
_ROWS_WITH_TEXT: Threshold = 1_000
_VALUE_BYTES = 16  # The most for one value, including its bit for null.
_OF_ONE_WIDTH = (
    NumericType,
    BooleanType,
    DateType,
    TimestampType,
    TimestampNTZType,
    DayTimeIntervalType,
    YearMonthIntervalType,
    NullType,
)
_OF_TEXT = (StringType, CharType, VarcharType)


def by_rows(df: DataFrame) -> DataFrame:
    """Return a frame whose batches are limited by rows instead of bytes, if this limits the bytes.

    It is meant for one Python function over the frame. The session keeps its limits, which apply to
    all other jobs. If the session has its own limit of bytes, the frame has it too, and of two
    limits of rows the frame has the lower one.
    """
    spark = df.sparkSession
    rows = rows_in_batch(df.schema)
    if rows is None or spark.conf.get(_MAX_BYTES, None) is not None or not hasattr(df, "_jdf"):
        return df
    plan = df._jdf.queryExecution().executedPlan().toString()
    if _gives_python_rows(plan) or "CollectMetrics" in plan:  # The session awaits its metrics.
        return df
    most = _fewer(rows, spark.conf.get(_MAX_ROWS, None))
    moved = with_settings(df, {_MAX_BYTES: _UNCOUNTED, _MAX_ROWS: str(most)})
    return df if moved is None else moved


def _gives_python_rows(plan: str) -> bool:
    """Whether the frame may call other Python functions, whose rows have other lengths."""
    # There is no public way to get the plan, and Python functions have no common name in it. The
    # plan does not show what an RDD does.
    return re.search("(?i)python|pandas|arrow|rdd", plan) is not None


def rows_in_batch(schema: StructType) -> int | None:
    """Return the largest safe number of rows in a batch; None if it depends on their bytes. Pure.

    If texts have more than 64 KB on average, batches are larger than Spark's own limit.
    """
    leaves = list(_leaves(schema))
    if not all(isinstance(leaf, (*_OF_ONE_WIDTH, *_OF_TEXT)) for leaf in leaves):
        return None
    most = _ROWS_WITH_TEXT if any(isinstance(leaf, _OF_TEXT) for leaf in leaves) else _ROWS
    return max(1, min(most, _BATCH_BYTES // (_VALUE_BYTES * max(1, len(leaves)))))


def _leaves(kind: DataType) -> Iterator[DataType]:
    if not isinstance(kind, StructType):
        yield kind
        return
    for field in kind.fields:
        yield from _leaves(field.dataType)


def _fewer(rows: int, asked: str | None) -> int:
    """Return the lower of two limits. The session's limit means none if it is 0 or less."""
    limit = _ROWS if asked is None else int(asked)
    return min(rows, limit) if limit > 0 else rows


def stored(
    value: Column,
    have: DataType,
    want: DataType,
    name: str,
    *,
    own: Typed | None = None,
    fails: bool = True,
) -> Column:
    """Return a value in the type of a column.

    Struct fields are matched by name at any depth, and missing fields become null. Other values
    are cast. A value that does not fit is an error, also in sessions without ANSI mode, or null
    if `fails` is false; fractions are cut off or rounded, as Spark's casts do.

    Parameters
    ----------
    name
        The column, for errors.
    own
        The old value with its type: structs keep its fields that the new value lacks, but not
        structs in arrays and maps. A struct that becomes null keeps nothing.

    Raises
    ------
    SchemaMismatchError
        The value has fields that the column lacks, or one of the two is nested in another way.
    """
    if have == want:
        return value
    match have, want:
        case StructType(), StructType():
            return _struct(value, have, want, name, own, fails=fails)
        case ArrayType(elementType=element), ArrayType(elementType=wanted):
            if not _only_nulls_differ(element, wanted):
                value = F.transform(
                    value,
                    lambda one: stored(one, element, wanted, f"{name}.element", fails=fails),
                )
        case MapType(keyType=key, valueType=inner), MapType(keyType=wanted_key, valueType=target):
            if not _only_nulls_differ(key, wanted_key):
                value = F.transform_keys(
                    value,
                    lambda one, _: stored(one, key, wanted_key, f"{name}.key", fails=fails),
                )
            if not _only_nulls_differ(inner, target):
                value = F.transform_values(
                    value,
                    lambda _, one: stored(one, inner, target, f"{name}.value", fails=fails),
                )
        case NullType(), _:
            pass
        case _, NullType():
            raise untyped(name)
        case BinaryType(), StructType() if _is_blob(want):
            value = _as_blob(value)
        case _ if not _nested(have) and not _nested(want):
            return _checked(value, want, name) if fails else value.try_cast(want)
        case _:
            raise SchemaMismatchError(
                argument="updates",
                field=name,
                reason=f"{have.simpleString()} cannot be stored in column {name}, which is "
                f"{want.simpleString()}",
                remedy=f"Write CAST(… AS {want.simpleString()})",
            )
    return value.cast(want)


def is_stored(value: Column, have: DataType, want: DataType) -> Column:
    """Return whether `stored` has no error for a value: true or false, at any depth. Pure."""
    return F.coalesce(_is_stored(value, have, want), F.lit(True))


def _is_stored(value: Column, have: DataType, want: DataType) -> Column:
    match have, want:
        case _ if have == want or isinstance(have, NullType):
            return F.lit(True)
        case BinaryType(), StructType() if _is_blob(want):
            return F.lit(True)
        case StructType(), StructType():
            wanted = {part.name.lower(): part.dataType for part in want.fields}
            parts = [
                is_stored(value.getField(part.name), part.dataType, wanted[part.name.lower()])
                for part in have.fields
                if part.name.lower() in wanted
            ]
            return reduce(and_, parts, F.lit(True))
        case ArrayType(elementType=element), ArrayType(elementType=target):
            return F.forall(value, lambda one: is_stored(one, element, target))
        case MapType(keyType=key, valueType=inner), MapType(keyType=to_key, valueType=to_value):
            keys = F.forall(F.map_keys(value), lambda one: is_stored(one, key, to_key))
            return keys & F.forall(F.map_values(value), lambda one: is_stored(one, inner, to_value))
    return value.isNull() | value.try_cast(want).isNotNull()


def _is_blob(kind: StructType) -> bool:
    """Return whether a type is that of blob columns."""
    return kind.simpleString() == spark_schema(BLOB).simpleString()


def _as_blob(value: Column) -> Column:
    """Return bytes as the structs of a blob column (BLB-3); tasks move large ones into packs."""
    nothing = F.lit(None)
    fields = [
        nothing.cast("string").alias("path"),
        nothing.cast("bigint").alias("offset"),
        F.octet_length(value).cast("bigint").alias("size"),
        value.alias("data"),
    ]
    return F.when(value.isNotNull(), F.struct(*fields))


def named_by_place(have: DataType, want: DataType, name: str) -> DataType:
    """Return a type whose structs have the names of another one, field by field in their order.

    Raises
    ------
    InvalidInputError
        A struct has more fields than the one in its place, or fewer.
    """
    match have, want:
        case StructType(fields=fields), StructType(fields=wanted):
            if len(fields) != len(wanted):
                raise InvalidInputError(
                    argument="text",
                    field=name,
                    reason=f"struct {name} has {len(wanted)} fields, and the value has "
                    f"{len(fields)}",
                    remedy="Give each field a value in its place, or write BY NAME",
                )
            return StructType(
                [
                    StructField(
                        other.name,
                        named_by_place(one.dataType, other.dataType, f"{name}.{other.name}"),
                        one.nullable,
                    )
                    for one, other in zip(fields, wanted, strict=True)
                ]
            )
        case ArrayType(elementType=inner, containsNull=nulls), ArrayType(elementType=target):
            return ArrayType(named_by_place(inner, target, f"{name}.element"), nulls)
        case MapType(keyType=key, valueType=inner), MapType(keyType=wanted_key, valueType=target):
            return MapType(
                named_by_place(key, wanted_key, f"{name}.key"),
                named_by_place(inner, target, f"{name}.value"),
                have.valueContainsNull,
            )
    return have


def _checked(value: Column, want: DataType, name: str) -> Column:
    """Return a value without nested fields in a type; Spark raises an error if it does not fit."""
    return F.coalesce(
        value.try_cast(want),
        F.when(
            value.isNotNull(),
            F.raise_error(F.concat(F.lit(not_fitting(name)), value)).cast(want),
        ),
    )


def _only_nulls_differ(have: DataType, want: DataType) -> bool:
    """Return whether two types are equal but for the nulls that they allow, at any depth."""
    match have, want:
        case StructType(fields=fields), StructType(fields=wanted):
            return len(fields) == len(wanted) and all(
                one.name == other.name and _only_nulls_differ(one.dataType, other.dataType)
                for one, other in zip(fields, wanted, strict=True)
            )
        case ArrayType(elementType=inner), ArrayType(elementType=target):
            return _only_nulls_differ(inner, target)
        case MapType(keyType=key, valueType=inner), MapType(keyType=wanted_key, valueType=target):
            return _only_nulls_differ(key, wanted_key) and _only_nulls_differ(inner, target)
    return have == want


def _nested(kind: DataType) -> bool:
    return isinstance(kind, StructType | ArrayType | MapType)


def _fields_of(own: Typed | None) -> dict[str, Typed]:
    """Return the fields of a struct with their types, by their names in lower case."""
    if own is None or not isinstance(own[1], StructType):
        return {}
    return {part.name.lower(): (own[0].getField(part.name), part.dataType) for part in own[1]}


def _struct(
    value: Column,
    have: StructType,
    want: StructType,
    name: str,
    own: Typed | None,
    *,
    fails: bool,
) -> Column:
    known = {part.name.lower(): part for part in have.fields}
    extra = known.keys() - {part.name.lower() for part in want.fields}
    if extra:
        raise SchemaMismatchError(
            argument="updates",
            field=f"{name}.{known[min(extra)].name}",
            reason=f"column {name} has no such field",
            remedy="Omit the field, or use schema evolution",
        )
    kept = _fields_of(own)
    fields = []
    for part in want.fields:
        existing, old = known.get(part.name.lower()), kept.get(part.name.lower())
        path = f"{name}.{part.name}"
        if existing is not None:
            new = value.getField(existing.name)
            inner = stored(new, existing.dataType, part.dataType, path, own=old, fails=fails)
        elif old is not None:
            inner = stored(*old, part.dataType, path, fails=fails)
        else:
            inner = F.lit(None).cast(part.dataType)
        fields.append(inner.alias(part.name))
    return F.when(value.isNotNull(), F.struct(*fields))


def assigned(
    own: Typed | None,
    given: Mapping[tuple[str, ...], Typed],
    want: DataType,
    name: str,
    *,
    fails: bool = True,
) -> Column:
    """Return a column in which some nested fields have new values.

    A struct that is given keeps the fields of the current one that it lacks. If a field of a null
    struct gets a value, the struct is no longer null, and its other fields are null.

    Parameters
    ----------
    own
        The current column with its type. None for a new column.
    given
        Values by the path of the field below the column; the empty path is the column itself.
    fails
        As for `stored`.
    """
    if () in given:
        return stored(*given[()], want, name, own=own, fails=fails)
    if not given:
        if own is None:
            return F.lit(None).cast(want)
        return stored(*own, want, name, fails=fails)
    if not isinstance(want, StructType):
        raise InvalidInputError(
            argument="updates",
            field=".".join((name, *next(iter(given)))),
            reason=f"column {name} is no struct, so it has no such field",
        )
    inner_fields = _fields_of(own)
    fields = []
    for part in want.fields:
        inner = {path[1:]: value for path, value in given.items() if path[0] == part.name}
        path = f"{name}.{part.name}"
        old = inner_fields.get(part.name.lower())
        value = assigned(old, inner, part.dataType, path, fails=fails)
        fields.append(value.alias(part.name))
    return F.struct(*fields)
