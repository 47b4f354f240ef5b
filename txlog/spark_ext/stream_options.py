"""What the options of `spark.readStream.format("txlog")` ask of a stream."""

from __future__ import annotations

from typing import Literal

from txlog.errors import InvalidInputError
from txlog.expressions.sql import as_expression
from txlog.spark_ext.options import UNKNOWN_TO_STREAMS, Options
from txlog.stream.offsets import Limits
from txlog.stream.stream import MAX_FILES, StreamOptions
from txlog.stream.version_files import ChangePolicy

_OF_BATCHES = ("versionAsOf", "timestampAsOf", "endingVersion", "endingTimestamp", "limit")


def stream_options(options: Options) -> StreamOptions:
    """Return what options ask of a stream.

    Raises
    ------
    InvalidInputError
        One is wrong, unknown to streams of txlog, or contradicts another.
    """
    options.refuse(_OF_BATCHES, "a stream cannot be read at one version, or up to one")
    options.refuse(
        (*UNKNOWN_TO_STREAMS, "onlyWithDeletions"), "txlog has no such option for streams"
    )
    changes = options.reads_changes
    policy = ChangePolicy(
        ignore_deletes=options.flag("ignoreDeletes"),
        ignore_changes=options.flag("ignoreChanges"),
        skip_change_commits=options.flag("skipChangeCommits"),
    )
    if changes and policy != ChangePolicy():
        options.refuse(
            ("ignoreDeletes", "ignoreChanges", "skipChangeCommits"),
            "readChangeFeed tells of all changes",
        )
    start: int | Literal["latest"] | None
    if (options.text("startingVersion") or "").strip().lower() == "latest":
        start = "latest"
    else:
        start = options.number("startingVersion", least=0)
    moment = options.moment("startingTimestamp")
    if start is not None and moment is not None:
        raise InvalidInputError(
            argument="startingTimestamp",
            reason="startingVersion and startingTimestamp both say where the stream begins",
            remedy="Pass only one of them",
        )
    columns = options.columns()
    return StreamOptions(
        starting_version=start,
        starting_ms=moment,
        limits=_limits(options),
        policy=policy,
        changes=changes,
        fail_on_data_loss=options.flag("failOnDataLoss", default=True),
        columns=None if columns is None else tuple(columns),
        where=as_expression(options.text("where")),
    )


def _limits(options: Options) -> Limits:
    files = options.number("maxFilesPerTrigger", least=1)
    size = options.size("maxBytesPerTrigger")
    return Limits(MAX_FILES if files is None and size is None else files, size)
