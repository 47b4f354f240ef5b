"""Actions on the table: `metaData`, `protocol`, `txn`, `domainMetadata`, `commitInfo`."""

from __future__ import annotations

from typing import Annotated, Any, TypeVar

from pydantic import (
    ConfigDict,
    Field,
    ValidationError,
    ValidatorFunctionWrapHandler,
    WrapValidator,
    model_validator,
)

from txlog.actions.action import Action, Integer, Long, Texts
from txlog.base.texts import is_unicode


class Format(Action):
    """The encoding of data files. Only `parquet` is in use."""

    provider: str = "parquet"
    options: Texts = Field(default_factory=dict)


class Metadata(Action):
    """Schema, partitioning and properties. Each `metaData` replaces the one before completely."""

    id: str
    name: str | None = None
    description: str | None = None
    format: Format = Field(default_factory=Format)
    # Logical names. Required, but the first versions of very old tables lack it.
    schema_string: str | None = None
    partition_columns: list[str] = Field(default_factory=list)
    created_time: Long | None = None  # Milliseconds since the epoch, UTC.
    configuration: Texts = Field(default_factory=dict)


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
    removed: bool = False


class Participant(Action):
    """A table of a transaction over several tables, with the version that it gets."""

    table_id: str  # The id in the table's `metaData`.
    proposed_version: Long


class TransactionGroup(Action):
    """The tables that changed at one moment. Each of their commits names all of them.

    Readers ignore it, so txlog writes it and does not read it.
    """

    transaction_id: str
    participants: list[Participant]
    coordinating_catalog: str  # The id of the catalog.


def _or_none(value: Any, read: ValidatorFunctionWrapHandler) -> Any:
    try:
        return read(value)
    except ValidationError:
        return None


_Value = TypeVar("_Value")
OrNone = Annotated[_Value | None, WrapValidator(_or_none)]
"""A value of another type means that the field is absent."""


class CommitInfo(Action):
    """Provenance of a commit: who committed what, and how. Unknown fields are kept.

    Its content is free, and no decision depends on it.
    """

    # `model_extra` has the unknown fields. A text that UTF-8 cannot encode is of another type.
    model_config = ConfigDict(extra="allow", str_min_length=0)

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
    txn_id: OrNone[str] = None
    in_commit_timestamp: OrNone[Long] = None
    # The seal of the commit's bytes, see `txlog.actions.ndjson`.
    txlog_crc32: OrNone[str] = None

    @model_validator(mode="before")
    @classmethod
    def _without_nulls(cls, body: Any) -> Any:
        """Keep the nulls of unknown fields, but not names that Pydantic cannot read."""
        if isinstance(body, dict) and not all(map(is_unicode, body)):
            return {name: value for name, value in body.items() if is_unicode(name)}
        return body

    def to_json(self) -> dict[str, Any]:
        """Return the action's JSON object, unknown fields included.

        The values are those of this action, which may be nested more deeply than Pydantic writes.
        """
        fields = {
            str(info.alias): value
            for name, info in type(self).model_fields.items()
            if (value := getattr(self, name)) is not None
        }
        return {**(self.model_extra or {}), **fields}
