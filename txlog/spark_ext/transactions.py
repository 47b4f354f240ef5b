"""The transaction of a write: the version of an application that its commit records.

Every way to write makes its transaction here, from what the caller passed, the settings of the
session, and the streaming query of the batch. Rules: spec/streaming.md, STR-40 to STR-49.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

from txlog.base.errors import InvalidInputError
from txlog.commit.app_versions import AnyAppVersion, AppVersion, QueryBatch, require_app_version
from txlog.spark_ext.writes.write_tasks import (
    QUERY_ID,
    SESSION_APP_ID,
    SESSION_AUTO_RESET,
    SESSION_TXN,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@contextmanager
def transaction(
    txn: AppVersion | None, spark: SparkSession, *others: SparkSession
) -> Iterator[AnyAppVersion | None]:
    """Yield the transaction of a verb that this process commits in the block.

    If the block succeeds and the transaction is that of a session with
    `…txnVersion.autoReset.enabled`, the setting of the version is removed. If the verb fails, the
    setting stays, so that it can be tried again.

    Parameters
    ----------
    txn
        What the caller passed. None: the session's settings, if there are any.
    spark, others
        The sessions of the verb; the first one that has the settings counts.

    Raises
    ------
    InvalidInputError, InvalidTypeError
        The pair is malformed, or a session has only one of the settings.
    """
    used: SparkSession | None = None
    for session in (spark, *others):
        if txn is None and (txn := in_settings(partial(_setting, session))) is not None:
            used = session
    try:
        require_app_version(txn)
        yield of_batch(txn, _query_of(spark))
    except InvalidInputError as error:
        if used is not None and error.argument == "txn":  # The caller has passed none.
            error.argument = SESSION_APP_ID
        raise
    if used is None or txn is None or not resets(partial(_setting, used)):
        return
    # Another thread may have set the version of the next write already.
    if in_settings(partial(_setting, used)) == txn:
        used.conf.unset(SESSION_TXN)


def _setting(spark: SparkSession, name: str) -> str | None:
    return spark.conf.get(name, None)


def in_settings(setting: Callable[[str], str | None]) -> AppVersion | None:
    """Return the application id and version in the settings of a session, as delta-spark does.

    Parameters
    ----------
    setting
        Returns the text of a setting, or None.

    Raises
    ------
    InvalidInputError
        One of `spark.databricks.delta.write.txnAppId` and `…txnVersion` is missing, or the version
        is not a number.
    """
    app_id, version = setting(SESSION_APP_ID), setting(SESSION_TXN)
    if app_id is None and version is None:
        return None
    if app_id is None or version is None or not version.isdecimal():
        raise InvalidInputError(
            argument=SESSION_APP_ID if app_id is None else SESSION_TXN,
            reason="the session's settings txnAppId and txnVersion must both be set, the version "
            "as a whole number",
            remedy="Set or unset both",
        )
    return app_id, int(version)


def resets(setting: Callable[[str], str | None]) -> bool:
    """Return whether a session forgets the version of a transaction after its verb."""
    return (setting(SESSION_AUTO_RESET) or "").strip().lower() == "true"


def of_batch(txn: AppVersion | None, query_id: str | None) -> AnyAppVersion | None:
    """Return a batch write's transaction, in a micro-batch with its query (STR-49). Pure."""
    if txn is None or query_id in (None, txn[0]):
        return txn
    return QueryBatch(*txn, query_id, whole_batch=False)


def of_stream(app_id: str | None, query_id: str | None, batch_id: int) -> AnyAppVersion:
    """Return the transaction of a micro-batch that is one commit (STR-40, STR-41). Pure.

    Raises
    ------
    InvalidInputError
        The query is not known.
    """
    if query_id is None:
        raise InvalidInputError(
            argument="checkpointLocation",
            reason="Spark did not report the id of the streaming query, so a batch could be "
            "written twice",
            remedy="Write with foreachBatch and txlog.spark_ext.write(df, uri, txn=…)",
        )
    if app_id is None or app_id == query_id:
        return (query_id, batch_id)
    return QueryBatch(app_id, batch_id, query_id)


def _query_of(spark: SparkSession) -> str | None:
    """Return the streaming query whose batch this thread writes, if Spark reports it."""
    context = getattr(spark, "sparkContext", None)  # Spark Connect has none.
    return None if context is None else context.getLocalProperty(QUERY_ID)
