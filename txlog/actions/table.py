"""Actions on the table: `metaData`, `protocol`, `txn`, `domainMetadata`, `commitInfo`."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

from txlog.actions.base import Action, Integer, Long, Texts
from txlog.actions.fields import OR_DEFAULT, OR_NONE, made


class Format(Action):
    """The encoding of data files. Only `parquet` is in use."""

    provider: Annotated[str, OR_DEFAULT] = "parquet"
    options: Annotated[Texts, OR_DEFAULT] = made(default_factory=dict)


class Metadata(Action):
    """Schema, partitioning and properties. Each `metaData` replaces the one before completely."""

    id: str
    name: str | None = None
    description: str | None = None
    format: Annotated[Format, OR_DEFAULT] = made(default_factory=Format)
    # Logical names. Required, but the first versions of very old tables lack it.
    schema_string: str | None = None
    partition_columns: Annotated[list[str], OR_DEFAULT] = made(default_factory=list)
    created_time: Long | None = None  # Milliseconds since the epoch, UTC.
    configuration: Annotated[Texts, OR_DEFAULT] = made(default_factory=dict)


class Protocol(Action):
    """What a client must support to read and to write the table."""

    min_reader_version: Integer
    min_writer_version: Integer
    reader_features: list[str] | None = None  # Present if the reader version is 3.
    writer_features: list[str] | None = None  # Present if the writer version is 7.


class Txn(Action):
    """The progress of an application. The latest `txn` counts, even if its version is lower."""

    app_id: str
    version: Long
    last_updated: Long | None = None  # Milliseconds since the epoch, UTC.


class DomainMetadata(Action):
    """Configuration of a named domain; names that begin with `delta.` are reserved for Delta."""

    domain: str
    configuration: str
    removed: Annotated[bool, OR_DEFAULT] = False


class CommitInfo(Action):
    """Provenance of a commit: who committed what, and how. Unknown fields are kept.

    Its content is free, and no decision depends on it.
    """

    keeps_unknown: ClassVar[bool] = True
    model_extra: ClassVar[dict[str, Any]]  # The unknown fields.

    timestamp: Any = None  # Milliseconds since the epoch, UTC.
    operation: Any = None
    operation_parameters: Any = None
    operation_metrics: Any = None
    read_version: Any = None
    isolation_level: Any = None
    is_blind_append: Any = None
    engine_info: Any = None
    user_metadata: Any = None
    tags: Any = None
    txn_id: Annotated[str | None, OR_NONE] = None
    in_commit_timestamp: Annotated[Long | None, OR_NONE] = None
    # The seal of the commit's bytes, see `txlog.actions.ndjson`.
    txlog_crc32: Annotated[str | None, OR_NONE] = None

    def to_json(self) -> dict[str, Any]:
        """Return the action's JSON object, unknown fields included."""
        return {**self.model_extra, **super().to_json()}
