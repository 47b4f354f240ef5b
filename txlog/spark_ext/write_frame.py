"""`write`: a frame of Spark to a table, in all modes, on Spark Connect too."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import orjson
import pyarrow as pa

from txlog.actions.file import Add
from txlog.commit.app_versions import AnyAppVersion, AppVersion, require_app_version
from txlog.commit.operation import Outcome, skip_recorded
from txlog.data_files.incoming import SchemaMode
from txlog.data_files.options import as_names, write_options
from txlog.errors import InvalidInputError
from txlog.expressions.sql import as_expression
from txlog.expressions.tree import Expression
from txlog.spark_ext.batches import batches_by_rows
from txlog.spark_ext.engine import before_commit
from txlog.spark_ext.target import commit_files, plan_target, transaction_in
from txlog.spark_ext.write_tasks import (
    QUERY_ID,
    SESSION_PARTITION_MODE,
    Target,
    WriteRequest,
    write_task,
)
from txlog.store.open import open_store
from txlog.table.write import WriteMode, require_mode
from txlog.verbs.create import already_exists, existing
from txlog.verbs.overwrite import PartitionMode

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_ADDS = "add string"


def write(
    df: DataFrame,
    uri: str | os.PathLike[str],
    *,
    mode: WriteMode = "append",
    partition_by: Sequence[str] | str | None = None,
    where: str | Expression | None = None,
    partition_mode: PartitionMode | None = None,
    schema_mode: SchemaMode = None,
    txn: AppVersion | None = None,
    properties: Mapping[str, str] | None = None,
    max_rows_per_file: int | None = None,
    user_metadata: str | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> Outcome:
    """Write a frame to a table, making it if there is none, in one commit.

    Tasks write the files and this process commits them, so both need txlog and must reach the
    store. The frame is computed once. In `foreachBatch`, `txn=(name, batch_id)` makes every batch
    count exactly once; classic Spark tells the query, and a batch is refused where another query
    (a new checkpoint) wrote under that name. Spark Connect does not tell it.

    Parameters
    ----------
    mode
        What to do if the table is there: `append` to it, `overwrite` its rows, raise an `error`,
        or `ignore` the call. A `txn` that is recorded already changes nothing in any mode, and
        nothing is computed then.
    where
        In mode `overwrite`: replace the rows of which this is true; every new row must satisfy it.
    partition_mode
        In mode `overwrite`: `dynamic` replaces only the partitions that the frame has rows of,
        `static` all rows. Default: of a table with partitions, and without `where` and
        `schema_mode="overwrite"`, what `spark.sql.sources.partitionOverwriteMode` says.
    schema_mode
        `merge` adds the columns that only the frame has; `overwrite` takes the frame's schema.
    partition_by, properties
        For a table that is made; an existing one must already be so.

    Returns
    -------
    The version that was made, or None with `skipped` set if `txn` was recorded already, and without
    if the mode was `ignore` and the table is there.

    Raises
    ------
    InvalidInputError, SchemaMismatchError
        An argument is wrong, or the frame's columns do not fit the table; nothing was computed.
        Or `txn` names an application whose versions are not of this streaming query (STR-42).
    AlreadyExistsError
        The table is there, and the mode is `error`.
    CommitConflictError
        The table vanished, was made, or was changed while the frame was computed.
    EngineError
        The frame cannot be computed, or a value in it does not fit the table; its cause is what
        Spark says. Nothing was committed, as with all of the above.
    """
    chosen: PartitionMode = partition_mode or "static"
    require_mode(mode, where, chosen, schema_mode)
    require_app_version(txn)
    _require_batch(df)
    transaction = _transaction(df, txn)
    store = open_store(uri, storage_options)
    table = existing(store)
    if table is not None:
        if recorded := skip_recorded(table, transaction):
            return recorded.outcome
        if mode == "ignore":
            return Outcome("WRITE", None)
        if mode == "error":
            raise already_exists(store)
    request = WriteRequest(
        mode=mode,
        partition_by=None if partition_by is None else as_names(partition_by),
        where=as_expression(where),
        partition_mode=chosen,
        follows_session=partition_mode is None,
        schema_mode=schema_mode,
        properties=properties or {},
        options=write_options(None, max_rows_per_file),
        user_metadata=user_metadata,
    )
    target = plan_target(store, request, df.schema, table)
    target = target.in_session(df.sparkSession.conf.get(SESSION_PARTITION_MODE, None))
    with before_commit(), batches_by_rows(df):
        # A second action on this frame would write all files again.
        rows = df.mapInArrow(_writing(target), _ADDS).collect()
    return commit_files(target, [Add.model_validate_json(row[0]) for row in rows], transaction)


def _require_batch(df: DataFrame) -> None:
    if getattr(df, "isStreaming", None) is None or not hasattr(df, "mapInArrow"):
        raise InvalidInputError(
            argument="df",
            reason=f"a DataFrame of Spark was expected, not {type(df).__name__}",
            remedy="Other data goes to txlog.write",
        )
    if df.isStreaming:
        raise InvalidInputError(
            argument="df",
            reason="it is a stream",
            remedy='Use df.writeStream.format("txlog"), or this function in foreachBatch',
        )


def _transaction(df: DataFrame, txn: AppVersion | None) -> AnyAppVersion | None:
    """Return the transaction, in a micro-batch with its query, where Spark tells it."""
    context = getattr(df.sparkSession, "sparkContext", None)  # Spark Connect has none.
    query_id = None if context is None else context.getLocalProperty(QUERY_ID)
    return transaction_in(query_id, txn)


def _writing(
    target: Target,
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return the function that tasks run: rows in, one row for each file out."""

    def write_files(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        adds = [orjson.dumps(add).decode() for add in write_task(target, iter(batches))]
        yield pa.RecordBatch.from_arrays([pa.array(adds, pa.string())], names=["add"])

    return write_files
