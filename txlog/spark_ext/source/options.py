"""The options of the data source. They have Delta's names, and case does not matter."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal, cast

import orjson

from txlog.base.errors import InvalidInputError, TxlogError
from txlog.base.thresholds import Threshold

if TYPE_CHECKING:
    from txlog.commit.app_versions import AppVersion
    from txlog.commit.context import Context
    from txlog.data_files.modes import ComputedFrom
    from txlog.data_files.options import WriteOptions
    from txlog.store.base import Store
    from txlog.stream.stream import StreamOptions
    from txlog.table.row_verbs import OnError

MAX_PARTITION_BYTES: Threshold = 128 * 1024 * 1024  # Spark's default for files.
STORAGE = ("storageOptions", "secretStorageOptions")
BRANCH = "txlog.branch"
"""The storage option that names the branch of the table; an option of the source, too."""
BRANCHES = ("branch", BRANCH)
OF_CHANGES = ("startingVersion", "startingTimestamp", "endingVersion", "endingTimestamp")
"""Options for the range of changes, and for the start of a stream."""

_READS_CHANGES = ("readChangeFeed", "readChangeData")  # The second is Delta's older name.
_OF_READING = (
    "versionAsOf", "timestampAsOf", "columns", "where", "limit", "onlyWithDeletions",
    "onlyFiles", "useIndex", *_READS_CHANGES, *OF_CHANGES,
)  # fmt: skip

_OF_STREAMS = (
    "maxFilesPerTrigger", "maxBytesPerTrigger", "ignoreDeletes", "ignoreChanges",
    "skipChangeCommits", "failOnDataLoss",
)  # fmt: skip
_TRACKING = (
    "schemaTrackingLocation", "schemaLocation", "streamingSourceTrackingId",
    "allowSourceColumnRename", "allowSourceColumnDrop", "allowSourceColumnTypeChange",
)  # fmt: skip
_EVENT_ORDER = "withEventTimeOrder"
_UNKNOWN_TO_STREAMS = (*_TRACKING, _EVENT_ORDER, "excludeRegex", "ignoreFileDeletion")
"""Options of Delta streams that txlog refuses."""

_OF_WRITING = (
    "partitionBy", "clusterBy", "replaceWhere", "partitionOverwriteMode", "mergeSchema",
    "overwriteSchema", "maxRecordsPerFile", "txnAppId", "txnVersion", "userMetadata",
    "tableProperties", "compression", "dataChange", "computedFrom", "onError", "quarantine",
)  # fmt: skip
UNKNOWN_TO_WRITES = ("replaceUsing", "replaceOn", "targetAlias")
"""Options of delta-spark that txlog refuses, because ignoring them would replace other rows."""

_PROPERTY = "delta."  # The prefix of write options that delta-spark treats as properties.
_BY_SPARK = ("path", "paths", "location")

KNOWN = (
    *_BY_SPARK, *STORAGE, *BRANCHES, *_OF_READING, "maxPartitionBytes", "timeZone", *_OF_STREAMS,
    *_UNKNOWN_TO_STREAMS,
    *_OF_WRITING, *UNKNOWN_TO_WRITES,
)  # fmt: skip
"""All options with a meaning."""

_FOLDED = {name.lower(): name for name in KNOWN}
# Names of Python arguments.
_SHORT = {"version": "versionAsOf", "timestamp": "timestampAsOf"}
_ALIKE = 0.87  # The least similarity (`difflib`) of a misspelt name to an option.

_LOCAL = re.compile("file:/+")

_UNITS = "bkmgtp"  # As in Spark: each is 1024 times the one before it.
_SIZE = re.compile(rf"([0-9]+)(?:([{_UNITS[1:]}])b?|b)?")


# Spark options for Python arguments, and for their names in errors.
_OPTIONS = {
    "partition_by": "partitionBy",
    "cluster_by": "clusterBy",
    "partition_mode": "partitionOverwriteMode",
    "properties": "tableProperties",
    "computed_from": "computedFrom",
    "on_error": "onError",
    "txn": "txnAppId",
    **{
        f"{end}_{what}": f"{end}ing{what.capitalize()}"
        for end in ("start", "end")
        for what in ("version", "timestamp")
    },
}
_PHRASES = {
    'schema_mode="merge"': "mergeSchema=true",
    'partition_mode="static"': "partitionOverwriteMode=static",
    'on_error="quarantine"': "onError=quarantine",
    'mode="overwrite"': 'mode("overwrite")',
    **{name: option for name, option in _OPTIONS.items() if "_" in name},
}
_PHRASE = re.compile("|".join(rf"\b{re.escape(phrase)}" for phrase in _PHRASES))


@contextmanager
def option_names(**more: str) -> Iterator[None]:
    """Replace names of Python arguments in errors by those of Spark options.

    Parameters
    ----------
    more
        Additional arguments with their options, only for this block.
    """
    try:
        yield
    except TxlogError as error:
        if isinstance(error, InvalidInputError) and error.argument is not None:
            names = _OPTIONS | more
            error.argument = names.get(error.argument, error.argument)
        error.reason, error.remedy = map(_with_option_names, (error.reason, error.remedy))
        raise


def _with_option_names(text: str) -> str:
    return _PHRASE.sub(lambda found: _PHRASES[found.group()], text)


def plain_path(location: str) -> str:
    """Return a location in Spark's catalog as a path. It looks like a URI, but is decoded."""
    return _LOCAL.sub("/", location, count=1) if _LOCAL.match(location) else location


def _meant(name: str) -> str | None:
    """Return the option that a name (in lower case) probably misspells, or None."""
    from difflib import get_close_matches

    plain = re.sub(r"[\W_]", "", name)
    close = get_close_matches(plain, _FOLDED, n=1, cutoff=_ALIKE)
    return _SHORT.get(plain) or (_FOLDED[close[0]] if close else None)


def _property_name(folded: str) -> str:
    """Return a property's name in Delta's spelling: Spark passes option names in lower case."""
    from txlog.protocol.features import FEATURES
    from txlog.protocol.properties import FEATURE_PREFIX, property_name

    if not folded.startswith(FEATURE_PREFIX):
        return property_name(folded)
    feature = folded.removeprefix(FEATURE_PREFIX)
    return FEATURE_PREFIX + next((name for name in FEATURES if name.lower() == feature), feature)


class Options:
    """The options that Spark passed, with names in lower case."""

    def __init__(self, raw: Mapping[str, str]) -> None:
        self._raw = {name.lower(): value for name, value in raw.items()}

    def require_spelled(self) -> None:
        """Raise if an unknown name is similar to an option; other unknown names are ignored.

        Raises
        ------
        InvalidInputError
            The error names the option, and the one that was probably meant.
        """
        for name in self._raw:
            if name not in _FOLDED and (meant := _meant(name)) is not None:
                raise InvalidInputError(
                    argument=name,
                    reason="there is no such option",
                    remedy=f"Use {meant} if you mean it; otherwise omit the option",
                )

    def text(self, name: str) -> str | None:
        """Return an option's text, or None."""
        return self._raw.get(name.lower())

    def flag(self, name: str, *, default: bool = False) -> bool:
        """Return whether an option is true."""
        text = (self.text(name) or str(default)).strip().lower()
        if text not in ("true", "false"):
            raise self._bad(name, "true or false was expected")
        return text == "true"

    @property
    def reads_changes(self) -> bool:
        """Whether the options request the change data feed."""
        return any(map(self.flag, _READS_CHANGES))

    def number(self, name: str, *, least: int | None = None) -> int | None:
        """Return the value of an option as a whole number (at least `least`), or None."""
        text = self.text(name)
        if text is None:
            return None
        try:
            found = int(text)
        except ValueError:
            raise self._bad(name, "a whole number was expected") from None
        if least is not None and found < least:
            raise self._bad(name, f"a whole number from {least} was expected")
        return found

    @property
    def max_partition_bytes(self) -> int:
        """The size from which several tasks read a fragment, in bytes."""
        return self.size("maxPartitionBytes") or MAX_PARTITION_BYTES

    def size(self, name: str) -> int | None:
        """Return an option's number of bytes, at least 1, or None: `1048576`, `1024k` or `1m`."""
        text = self.text(name)
        if text is None:
            return None
        found = _SIZE.fullmatch(text.strip().lower())
        if found is None or not int(found[1]):
            raise self._bad(name, "a number of bytes was expected, such as 1048576 or 1m")
        return int(found[1]) << 10 * _UNITS.index(found[2] or "b")

    def refuse(self, names: Iterable[str], reason: str) -> None:
        """Raise if there are options that have no meaning here; the error names them."""
        given = [name for name in names if self.text(name) is not None]
        if given:
            raise InvalidInputError(
                argument=given[0], reason=reason, remedy=f"Omit {', '.join(given)}"
            )

    def moment(self, name: str) -> int | None:
        """Return an option's time in milliseconds since the epoch, or None."""
        from txlog.snapshot.time_travel import parse_timestamp

        text = self.text(name)
        with option_names(timestamp=name):
            return None if text is None else parse_timestamp(text)

    def columns(self) -> list[str] | None:
        """Return the names of the columns to read; no names if the option's text is empty."""
        text = self.text("columns")
        return [] if text is not None and not text.strip() else self.names("columns")

    def names(self, name: str) -> list[str] | None:
        """Return an option's column names: a JSON list, or text separated by commas."""
        text = self.text(name)
        if text is None or not text.strip():
            return None
        if text.lstrip().startswith("["):
            try:
                found = orjson.loads(text)
            except orjson.JSONDecodeError:
                raise self._bad(name, "a JSON list of names was expected") from None
            return [str(part) for part in found]
        return [part.strip() for part in text.split(",")]

    def _bad(self, name: str, reason: str) -> InvalidInputError:
        return InvalidInputError(argument=name, reason=f"{self.text(name)!r}: {reason}")

    def choice(self, name: str, known: Sequence[str]) -> str:
        """Return the value of an option in lower case, which must be one of the known values.

        The first known value is the default.
        """
        text = (self.text(name) or known[0]).strip().lower()
        if text not in known:
            raise self._bad(name, f"one of {', '.join(known)} was expected")
        return text

    @property
    def storage(self) -> dict[str, Any]:
        """The options of the store: a JSON object, and the branch.

        There are two names, because Spark hides only options with `secret` in their names when it
        prints the plan of a write.
        """
        names = [name for name in STORAGE if self.text(name) is not None]
        if len(names) > 1:
            raise InvalidInputError(
                argument=names[1], reason=f"{names[0]} is given too", remedy="Pass only one of them"
            )
        branches = [name for name in BRANCHES if self.text(name) is not None]
        if len(branches) > 1:
            raise InvalidInputError(
                argument=BRANCH, reason="branch is given too", remedy="Pass only one of them"
            )
        own = {BRANCH: self.text(branches[0])} if branches else {}
        if not names:
            return own
        try:
            found = orjson.loads(self.text(names[0]) or "")
        except orjson.JSONDecodeError:
            found = None
        if not isinstance(found, dict):
            # The text may contain secrets, so it is not shown.
            raise InvalidInputError(
                argument=names[0], reason="a JSON object of options was expected"
            ) from None
        if own and BRANCH in found:
            raise InvalidInputError(
                argument=branches[0],
                reason=f"{names[0]} has {BRANCH}",
                remedy="Pass only one of them",
            )
        return found | own

    def store(self) -> Store:
        """Return the store of the table that `path` names."""
        path = self.text("path")
        if not path and self.text("paths") is not None:
            raise InvalidInputError(
                argument="paths",
                reason="several paths are given",
                remedy="Load each table alone, and combine the frames with unionAll",
            )
        if not path:
            raise InvalidInputError(
                argument="path",
                reason="Spark passed no path; it drops the options of catalog tables",
                remedy="Call load(path) or save(path), or repeat the option: "
                "SELECT * FROM t WITH ('path'='…'). In place of writeTo, saveAsTable and "
                "insertInto, use txlog.spark_ext.write with the path, which "
                "txlog.spark_ext.table_location returns",
            )
        if path == self.text("location"):
            path = plain_path(path)
        from txlog.store.open import open_store

        return open_store(path, self.storage)

    def require_writing(self) -> None:
        """Raise if there are options for reading, or delta-spark options that txlog does not have.

        Otherwise, a write through a view of some rows would affect all rows.

        Raises
        ------
        InvalidInputError
            The error names the option.
        """
        for name in UNKNOWN_TO_WRITES:
            if self.text(name) is not None:
                raise InvalidInputError(
                    argument=name,
                    reason="txlog does not replace the rows that match rows of the frame",
                    remedy="Choose the rows with replaceWhere, or whole partitions with "
                    "partitionOverwriteMode=dynamic",
                )
        if not self.flag("dataChange", default=True):
            raise InvalidInputError(
                argument="dataChange",
                reason="a write of a frame changes rows, and readers of changes must see them",
                remedy="Omit it; to rewrite files without changes, call Table.optimize.compact",
            )
        for name in _OF_READING:
            if self.text(name) is not None:
                remedy = "Omit it: rows are written to the latest version"
                raise InvalidInputError(
                    argument=name,
                    reason="this option is for reading, but this call writes",
                    remedy=f"{remedy}; replaceWhere chooses rows" if name == "where" else remedy,
                )

    def quarantine(self, store: Store) -> Context | None:
        """Return where rows go that do not fit the table of a store; None: they are an error."""
        from txlog.table.row_verbs import quarantine_place

        on_error = self.choice("onError", ("error", "quarantine"))
        with option_names():
            there = self.text("quarantine")
            return quarantine_place(cast("OnError", on_error), there, store.options)

    @property
    def app_id(self) -> str | None:
        """The id of the application that writes, or None."""
        found = self.text("txnAppId")
        if found is not None and not found:
            raise self._bad("txnAppId", "the id of an application was expected")
        return found

    def transaction(self) -> AppVersion | None:
        """Return the application id and version of a batch write, or None."""
        app_id, version = self.app_id, self.number("txnVersion", least=0)
        if (app_id is None) != (version is None):
            missing = "txnVersion" if version is None else "txnAppId"
            raise InvalidInputError(
                argument=missing,
                reason="txnAppId and txnVersion must be given together, and this one is missing",
                remedy="Pass both or neither",
            )
        return None if app_id is None or version is None else (app_id, version)

    def properties(self) -> dict[str, str]:
        """Return the properties of a new table.

        They are a JSON object in `tableProperties`, and the options that begin with `delta.`, as in
        delta-spark.
        """
        single = {
            _property_name(name): text
            for name, text in self._raw.items()
            if name.startswith(_PROPERTY)
        }
        text = self.text("tableProperties")
        if text is None:
            return single
        try:
            properties = orjson.loads(text)
        except orjson.JSONDecodeError:
            properties = None
        if not isinstance(properties, dict):
            raise self._bad("tableProperties", "a JSON object of properties was expected")
        twice = sorted(properties.keys() & single.keys())
        if twice:
            raise InvalidInputError(
                argument=twice[0],
                reason="tableProperties contains it too",
                remedy="Pass it only once",
            )
        return properties | single

    @property
    def codec(self) -> str | None:
        """The codec of the data files of a write. None: as the table's property says."""
        from txlog.protocol.properties import validate_properties

        text = self.text("compression")
        if text is not None:
            with option_names(properties="compression"):
                validate_properties({"delta.parquet.compression.codec": text})
        return text

    @property
    def computed_from(self) -> ComputedFrom:
        """The version from whose rows the rows of a write are, or `"nothing"`; None: not stated."""
        text = self.text("computedFrom")
        if text is None or text.strip().lower() == "nothing":
            return None if text is None else "nothing"
        if not text.strip().isdecimal():
            raise self._bad("computedFrom", "a version, or the word nothing, was expected")
        return int(text)

    def write_options(self) -> WriteOptions:
        """Return the maximum size of files."""
        from txlog.data_files.options import WriteOptions

        return WriteOptions(max_rows_per_file=self.number("maxRecordsPerFile", least=1))


_OF_BATCHES = (
    "versionAsOf", "timestampAsOf", "endingVersion", "endingTimestamp", "limit", "useIndex",
)  # fmt: skip


def _refuse_of_delta(options: Options) -> None:
    """Raise if there are options of Delta's streams that txlog does not carry out."""
    for name in _TRACKING:
        if options.text(name) is not None:
            raise InvalidInputError(
                argument=name,
                reason="Spark fixes the columns of a Python source at load, so no other schema can "
                "be tracked within a query",
                remedy="Omit it. When the columns of the table change, the query ends; load the "
                "stream and start the query again, with the same checkpoint",
            )
    if options.flag(_EVENT_ORDER):
        raise InvalidInputError(
            argument=_EVENT_ORDER,
            reason="the first rows of a stream come in the order of files, because Spark tells a "
            "Python source no watermark; rows would be lost as late",
            remedy="Omit it, and choose a watermark that waits for the oldest row of the table, "
            "or take these rows by a batch and pass startingVersion",
        )
    others = (name for name in _UNKNOWN_TO_STREAMS if name not in (*_TRACKING, _EVENT_ORDER))
    options.refuse(
        (*others, "onlyWithDeletions", "onlyFiles"), "txlog has no such option for streams"
    )


def stream_options(options: Options) -> StreamOptions:
    """Return the stream that options describe.

    Raises
    ------
    InvalidInputError
        An option is wrong, is unknown to streams of txlog, or contradicts another.
    """
    from txlog.expressions.sql import as_expression
    from txlog.stream.offsets import Limits
    from txlog.stream.stream import MAX_FILES, StreamOptions
    from txlog.stream.version_files import ChangePolicy

    options.refuse(_OF_BATCHES, "a stream has no single version and no end")
    _refuse_of_delta(options)
    changes = options.reads_changes
    policy = ChangePolicy(
        ignore_deletes=options.flag("ignoreDeletes"),
        ignore_changes=options.flag("ignoreChanges"),
        skip_change_commits=options.flag("skipChangeCommits"),
    )
    if changes and policy != ChangePolicy():
        options.refuse(
            ("ignoreDeletes", "ignoreChanges", "skipChangeCommits"),
            "readChangeFeed returns all changes",
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
            reason="startingVersion and startingTimestamp both set the start of the stream",
            remedy="Pass only one of them",
        )
    columns = options.columns()
    files = options.number("maxFilesPerTrigger", least=1)
    size = options.size("maxBytesPerTrigger")
    return StreamOptions(
        start_version=start,
        start_ms=moment,
        limits=Limits(MAX_FILES if files is None and size is None else files, size),
        policy=policy,
        changes=changes,
        fail_on_data_loss=options.flag("failOnDataLoss", default=True),
        columns=None if columns is None else tuple(columns),
        where=as_expression(options.text("where"), options.text("timeZone")),
    )
