"""Actions on the table as a whole: `metaData`, `protocol`, `txn`, `domainMetadata`."""

from __future__ import annotations

from typing import Annotated

from txlog.actions.base import Action, Integer, Long, Texts
from txlog.actions.fields import OR_DEFAULT, made


class Format(Action):
    """The encoding of data files. Only `parquet` is in use."""

    provider: Annotated[str, OR_DEFAULT] = "parquet"
    options: Annotated[Texts, OR_DEFAULT] = made(default_factory=dict)


class Metadata(Action):
    """Schema, partitioning and properties; each one replaces the former wholly."""

    id: str
    name: str | None = None
    description: str | None = None
    format: Annotated[Format, OR_DEFAULT] = made(default_factory=Format)
    schema_string: str | None = None  # Required, but the oldest tables have none at first.
    # Logical names.
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
    """How far an application got. The latest one seen counts, even if its version is lower."""

    app_id: str
    version: Long
    last_updated: Long | None = None  # Milliseconds since the epoch, UTC.


class DomainMetadata(Action):
    """Configuration of a named domain; names that begin with `delta.` belong to the system."""

    domain: str
    configuration: str
    removed: Annotated[bool, OR_DEFAULT] = False
