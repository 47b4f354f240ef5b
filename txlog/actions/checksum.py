"""Version checksums (`.crc`): what a writer says its commit made of the table. Pure.

Rules: the Delta protocol, "Version Checksum File".
"""

from __future__ import annotations

from itertools import pairwise

import orjson
from pydantic import AliasChoices, Field, ValidationError, model_validator

from txlog.actions.file import Add
from txlog.actions.model import Long, Record
from txlog.actions.table import DomainMetadata, Metadata, Protocol, Txn
from txlog.errors import LogCorruptError

_REMEDY = "No version needs this file: restore it from a copy, or delete it"


class FileSizeHistogram(Record):
    """Files and their bytes by size: bin i begins at boundary i, and the last one has no end."""

    sorted_bin_boundaries: list[Long]  # Bytes, from 0 upwards.
    file_counts: list[Long]
    total_bytes: list[Long]

    @model_validator(mode="after")
    def _check_bins(self) -> FileSizeHistogram:
        starts = self.sorted_bin_boundaries
        if not len(starts) == len(self.file_counts) == len(self.total_bytes):
            raise ValueError("boundaries, counts and bytes differ in number")
        if starts[:1] != [0] or any(low >= high for low, high in pairwise(starts)):
            raise ValueError("the boundaries do not ascend from 0")
        return self


class DeletedRecordCountsHistogram(Record):
    """Files by the number of their rows that deletion vectors delete."""

    deleted_record_counts: list[Long]


class VersionChecksum(Record):
    """What a `.crc` file states of its version.

    The protocol requires `metadata` and `protocol` too, but old writers leave them out.
    """

    txn_id: str | None = None
    table_size_bytes: Long
    num_files: Long
    num_metadata: Long
    num_protocol: Long
    in_commit_timestamp_opt: Long | None = None  # Milliseconds since the epoch, UTC.
    set_transactions: list[Txn] | None = None
    domain_metadata: list[DomainMetadata] | None = None
    metadata: Metadata | None = None
    protocol: Protocol | None = None
    file_size_histogram: FileSizeHistogram | None = Field(
        default=None,
        # Spark writes the second name.
        validation_alias=AliasChoices("fileSizeHistogram", "histogramOpt"),
    )
    all_files: list[Add] | None = None  # Only of small tables.
    num_deleted_records_opt: Long | None = None
    num_deletion_vectors_opt: Long | None = None
    deleted_record_counts_histogram_opt: DeletedRecordCountsHistogram | None = None


def decode_checksum(data: bytes, *, path: str) -> VersionChecksum:
    """Return what the bytes of a `.crc` file state.

    Raises
    ------
    LogCorruptError
        It is not exactly one JSON object, or a field is missing or of a wrong type. `path` names
        the file in the error.
    """
    try:
        return VersionChecksum.model_validate(orjson.loads(data))
    except orjson.JSONDecodeError as error:
        raise LogCorruptError(
            path=path, reason=f"not one whole JSON object: {error}", remedy=_REMEDY
        ) from error
    except ValidationError as error:
        first = error.errors()[0]
        raise LogCorruptError(
            path=path,
            field=".".join(map(str, first["loc"])) or None,
            reason=first["msg"],
            remedy=_REMEDY,
        ) from error
