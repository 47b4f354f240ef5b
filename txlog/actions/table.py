"""Actions on the table as a whole: `metaData`, `protocol`, `txn`, `domainMetadata`."""

from __future__ import annotations

from pydantic import Field

from txlog.actions.base import Action, Integer, Long


class Format(Action):
    """The encoding of data files. Only `parquet` is in use."""

    provider: str = "parquet"
    options: dict[str, str | None] = Field(default_factory=dict)


class Metadata(Action):
    """Schema, partitioning and properties; each one replaces the former wholly."""

    id: str
    name: str | None = None
    description: str | None = None
    format: Format = Field(default_factory=Format)
    schema_string: str | None = None  # Required, but the oldest tables have none at first.
    partition_columns: list[str] = Field(default_factory=list)  # Logical names.
    created_time: Long | None = None  # Milliseconds since the epoch, UTC.
    configuration: dict[str, str | None] = Field(default_factory=dict)


class Protocol(Action):
    """What a client must support to read and to write the table."""

    min_reader_version: Integer
    min_writer_version: Integer
    reader_features: list[str] | None = None  # Present if the reader version is 3.
    writer_features: list[str] | None = None  # Present if the writer version is 7.


class Txn(Action):
    """How far an application got. The latest one seen counts, even if its version is lower."""

    app_id: str
    version: Long
    last_updated: Long | None = None  # Milliseconds since the epoch, UTC.


class DomainMetadata(Action):
    """Configuration of a named domain; names that begin with `delta.` belong to the system."""

    domain: str
    configuration: str
    removed: bool
