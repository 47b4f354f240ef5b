"""The writers of the data source: `df.write.format("txlog")`, and the streaming sink."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType as SparkStruct

from txlog.base.errors import InvalidInputError
from txlog.spark_ext.source.options import Options, option_names
from txlog.spark_ext.source.plain import plainly
from txlog.spark_ext.writes.write_tasks import (
    BATCH_ID,
    OF_SESSION,
    QUERY_ID,
    SESSION_AUTO_RESET,
    SESSION_PARTITION_MODE,
    Target,
    WriteRequest,
    any_task,
    task_property,
)
from txlog.spark_ext.zones import SESSION_ZONE, AssumedZone, assumed_zone

if TYPE_CHECKING:
    from txlog.actions.file import Add
    from txlog.commit.app_versions import AnyAppVersion, AppVersion
    from txlog.data_files.modes import PartitionMode, SchemaMode
    from txlog.spark_ext.writes.text_values import TextValues
    from txlog.verbs.quarantine import WrittenQuarantine

# Tasks import this module too, so modules that only the driver needs are imported in functions.


@dataclass
class Written(WriterCommitMessage):
    """The files that a task wrote, and settings of the session that only tasks can read."""

    adds: list[dict[str, Any]]
    written_for: str
    query_id: str | None  # Of a micro-batch.
    settings: dict[str, str | None]  # Those of `OF_SESSION`.
    refused: list[dict[str, Any]]  # The files of the quarantine.
    refused_by: AppVersion | None  # The version that names their rows.

    @classmethod
    def by(
        cls, target: Target, batches: Iterator[pa.RecordBatch], txn: AppVersion | None
    ) -> Written:
        """Write a task's rows; runs on an executor.

        `txn` names the rows that do not fit, if there is a quarantine.
        """
        adds, refused = any_task(target, batches, txn)
        settings = {name: task_property(name) for name in OF_SESSION}
        return cls(adds, target.written_for, task_property(QUERY_ID), settings, refused, txn)


def write_request(options: Options, overwrite: bool) -> WriteRequest:
    """Return the request that options describe.

    Raises
    ------
    InvalidInputError
        An option is wrong, or would have no effect.
    """
    from txlog.data_files.definition import Definition
    from txlog.expressions.sql import as_expression

    schema_mode: SchemaMode = "merge" if options.flag("mergeSchema") else None
    if options.flag("overwriteSchema"):
        schema_mode = "overwrite"
    mode = options.choice("partitionOverwriteMode", ("static", "dynamic"))
    return WriteRequest(
        mode="overwrite" if overwrite else "append",
        definition=Definition(
            partition_by=options.names("partitionBy"),
            cluster_by=options.names("clusterBy"),
            properties=options.properties(),
        ),
        where=as_expression(options.text("replaceWhere"), options.text("timeZone")),
        partition_mode=cast("PartitionMode", mode),
        follows_session=options.text("partitionOverwriteMode") is None,
        schema_mode=schema_mode,
        options=options.write_options(),
        user_metadata=options.text("userMetadata"),
        computed_from=options.computed_from,
        codec=options.codec,
    )


def written_of(messages: Sequence[Any]) -> list[Written]:
    """Return the reports of tasks about their files."""
    return [message for message in messages if message is not None]


def adds_of(written: Sequence[Written]) -> list[Add]:
    """Return the files that tasks wrote."""
    from txlog.actions.file import Add

    return [Add.model_validate(add) for message in written for add in message.adds]


def refused_of(
    target: Target, written: Sequence[Written], txn: AppVersion | None
) -> WrittenQuarantine | None:
    """Return the rows that tasks wrote to the quarantine; None: there is none.

    `txn` names the rows of this write.

    Raises
    ------
    EngineError
        Tasks have named their rows otherwise, so another run would not find them.
    """
    from txlog.actions.file import Add
    from txlog.base.errors import EngineError
    from txlog.spark_ext.writes.target import kept_of

    adds = [Add.model_validate(add) for message in written for add in message.refused]
    kept = kept_of(target, adds, txn)
    if kept is not None and any(message.refused_by != txn for message in written):
        kept.discard()
        raise EngineError(
            reason="Spark told the tasks another application or batch than the commit, so rows in "
            "the quarantine would be there twice after a failure",
            remedy="Write with txlog.spark_ext.write, in foreachBatch for a stream",
        )
    return kept


def discard_all(target: Target, adds: list[Add], kept: WrittenQuarantine | None) -> None:
    """Delete the files of tasks, in the table and in its quarantine."""
    from txlog.data_files.write import discard_files

    discard_files(target.store, adds)
    if kept is not None:
        kept.discard()


def settings_of(written: Sequence[Written]) -> dict[str, str | None]:
    """Return the settings of the session that ran the tasks."""
    return next((message.settings for message in written), {})


def query_of(written: Sequence[Written]) -> str | None:
    """Return the id of the streaming query of the tasks, or None."""
    return next((message.query_id for message in written if message.query_id), None)


@option_names(where="replaceWhere", schema_mode="overwriteSchema")
def batch_writer(options: Options, schema: SparkStruct, overwrite: bool) -> BatchWriter:
    """Plan a batch write; errors as for `plan_target`."""
    from txlog.commit.app_versions import require_app_version
    from txlog.spark_ext.writes.target import plan_target, with_refused
    from txlog.verbs.create import existing

    request = write_request(options, overwrite)
    txn = options.transaction()
    require_app_version(txn)
    store = options.store()
    table = existing(store)
    assumed = None
    if table is not None:
        assumed = assumed_zone(
            "replaceWhere", request.where, table.schema, options.text("timeZone")
        )
    there = options.quarantine(store)
    target = plan_target(store, request, schema, table)
    if there is not None:
        target = with_refused(target, there)
    if table is not None and overwrite:
        # Spark does not tell a data source what the frame reads. It may be this table.
        target = target.from_version(table.version)
    return BatchWriter(target, txn, assumed)


@option_names(where="replaceWhere", schema_mode="overwriteSchema")
def stream_writer(options: Options, schema: SparkStruct, overwrite: bool) -> StreamWriter:
    """Plan a micro-batch; errors as for `plan_target`.

    Raises
    ------
    InvalidInputError
        `txnVersion` is given, although a stream uses the ids of its batches; or in complete mode an
        option would let some rows stay.
    """
    from txlog.commit.app_versions import require_app_version
    from txlog.spark_ext.writes.target import plan_target, with_refused
    from txlog.spark_ext.writes.text_values import with_texts
    from txlog.verbs.create import existing

    options.refuse(("computedFrom",), "a stream in complete mode replaces all rows by its result")
    request = write_request(options, overwrite)
    if overwrite and request.modes.replaces_some:
        raise InvalidInputError(
            argument="partition_mode" if request.where is None else "where",
            reason="complete mode replaces all rows by those of the result, because rows may have "
            "left it (STR-43)",
            remedy="Omit the option. To replace some rows, use foreachBatch with "
            "txlog.spark_ext.write",
        )
    app_id = options.app_id
    if options.text("txnVersion") is not None:
        raise InvalidInputError(
            argument="txnVersion",
            reason="a stream uses the ids of its batches as versions",
            remedy="Omit it; txnAppId is allowed without it",
        )
    require_app_version(None if app_id is None else (app_id, 0))
    store = options.store()
    table = existing(store)
    if table is not None:  # A later batch ignores properties, because users may have changed them.
        request = replace(request, definition=replace(request.definition, properties=None))
    texts = None
    if table is not None and not request.modes.replaces_schema:
        schema, texts = with_texts(schema, table.schema, options.text("timeZone"))
    there = options.quarantine(store)
    target = plan_target(store, request, schema, table)
    if there is not None:
        target = with_refused(target, there)
    return StreamWriter(target, app_id, texts)


class BatchWriter(DataSourceArrowWriter):
    """`df.write.format("txlog")`."""

    def __init__(
        self, target: Target, txn: AppVersion | None, assumed: AssumedZone | None = None
    ) -> None:
        self.target = target
        self._txn = txn
        self._assumed = assumed

    @plainly
    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """Write a task's rows; runs on an executor."""
        if self._assumed is not None:
            self._assumed.require()
        return Written.by(self.target, iterator, self._named(task_property))

    @plainly
    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Commit all tasks' files.

        Raises
        ------
        InvalidInputError
            The transaction in the session's settings is malformed, or must be reset after the
            write, which a data source cannot do.
        """
        from txlog.commit.operation import discarding
        from txlog.data_files.write import discard_files
        from txlog.spark_ext.writes.target import commit_files

        written = written_of(messages)
        adds, settings = adds_of(written), settings_of(written)
        with discarding(lambda: discard_files(self.target.store, adds)):
            kept = refused_of(self.target, written, self._named(settings.get))
        with discarding(lambda: discard_all(self.target, adds, kept)):
            txn = self._transaction(written, settings)
        target = self.target.in_session(settings.get(SESSION_PARTITION_MODE))
        with option_names(where="replaceWhere"):
            commit_files(target, adds, txn, quarantine=kept)

    def _named(self, setting: Callable[[str], str | None]) -> AppVersion | None:
        """Return the application version that names the rows in the quarantine."""
        if self.target.refused is None:
            return None
        from txlog.spark_ext.transactions import in_settings

        return in_settings(setting) if self._txn is None else self._txn

    def _transaction(
        self, written: Sequence[Written], settings: Mapping[str, str | None]
    ) -> AnyAppVersion | None:
        from txlog.commit.app_versions import require_app_version
        from txlog.spark_ext.transactions import in_settings, of_batch, resets

        txn = self._txn
        if txn is None and (txn := in_settings(settings.get)) is not None:
            require_app_version(txn)
            if resets(settings.get):
                raise InvalidInputError(
                    argument=SESSION_AUTO_RESET,
                    reason="a data source cannot reset a setting of the session, so the next write "
                    "would be taken for this one",
                    remedy="Write with txlog.spark_ext.write, or pass the options txnAppId and "
                    "txnVersion",
                )
        return of_batch(txn, query_of(written))

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Keep the files: the commit may have landed. Otherwise a vacuum deletes them."""


class StreamWriter(DataSourceStreamArrowWriter):
    """`df.writeStream.format("txlog")`: each micro-batch is one version, exactly once.

    The version records `txn(query id, batch id)`, and a second `txn` for the option `txnAppId`. If
    Spark runs a batch again after a crash, its id is already recorded, and nothing changes.
    """

    def __init__(self, target: Target, app_id: str | None, texts: TextValues | None = None) -> None:
        self.target = target
        self._app_id = app_id
        self._texts = texts

    @plainly
    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """Write a task's rows; runs on an executor."""
        if self._texts is not None:
            iterator = self._texts.of(iterator, task_property(SESSION_ZONE))
        return Written.by(self.target, iterator, self._named())

    def _named(self) -> AppVersion | None:
        """Return the batch, which names its rows that do not fit; runs on an executor.

        It is the query's, with and without `txnAppId`, because the option may change (STR-41).
        """
        query, batch = task_property(QUERY_ID), task_property(BATCH_ID)
        if self.target.refused is None or query is None or batch is None:
            return None
        return query, int(batch)

    @plainly
    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Commit a micro-batch, unless its id is recorded already."""
        from txlog.commit.operation import discarding
        from txlog.data_files.write import discard_files
        from txlog.spark_ext.transactions import of_stream
        from txlog.spark_ext.writes.target import commit_files

        written = written_of(messages)
        adds = adds_of(written)
        query = query_of(written)
        with discarding(lambda: discard_files(self.target.store, adds)):
            txn = of_stream(self._app_id, query, batchId)
            kept = refused_of(self.target, written, (query or "", batchId))
        commit_files(
            self.target.in_stream(query or "", batchId),
            adds,
            txn,
            written_for={message.written_for for message in written},
            may_make=batchId == 0,
            quarantine=kept,
        )

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Keep the files: the commit may have landed. Otherwise a vacuum deletes them."""
