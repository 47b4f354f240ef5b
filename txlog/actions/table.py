"""Actions on the table as a whole: `metaData`, `protocol`, `txn`, `domainMetadata`.

Opening any table needs them, so Pydantic builds these models at import.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from txlog.actions.base import Action, Integer, Long, Texts, or_default


class Format(Action, defer_build=False):
    """The encoding of data files. Only `parquet` is in use."""

    provider: Annotated[str, or_default(lambda: "parquet")] = "parquet"
    options: Annotated[Texts, or_default(dict)] = Field(default_factory=dict)


class Metadata(Action, defer_build=False):
    """Schema, partitioning and properties; each one replaces the former wholly."""

    id: str
    name: str | None = None
    description: str | None = None
    format: Annotated[Format, or_default(Format)] = Field(default_factory=Format)
    schema_string: str | None = None  # Required, but the oldest tables have none at first.
    partition_columns: Annotated[list[str], or_default(list)] = Field(
        default_factory=list
    )  # Logical names.
    created_time: Long | None = None  # Milliseconds since the epoch, UTC.
    configuration: Annotated[Texts, or_default(dict)] = Field(default_factory=dict)


class Protocol(Action, defer_build=False):
    """What a client must support to read and to write the table."""

    min_reader_version: Integer
    min_writer_version: Integer
    reader_features: list[str] | None = None  # Present if the reader version is 3.
    writer_features: list[str] | None = None  # Present if the writer version is 7.


class Txn(Action, defer_build=False):
    """How far an application got. The latest one seen counts, even if its version is lower."""

    app_id: str
    version: Long
    last_updated: Long | None = None  # Milliseconds since the epoch, UTC.


class DomainMetadata(Action, defer_build=False):
    """Configuration of a named domain; names that begin with `delta.` belong to the system."""

    domain: str
    configuration: str
    removed: Annotated[bool, or_default(bool)] = False
