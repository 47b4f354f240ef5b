"""The records of the log: Pydantic models, columns, NDJSON. Pure.

Rules: the Delta protocol, "Actions" and "Action Reconciliation".
"""

from txlog.actions.base import Action
from txlog.actions.checkpoint import CheckpointMetadata, Sidecar
from txlog.actions.checksum import VersionChecksum, decode_checksum
from txlog.actions.columns import DELETION_VECTOR, FILE_ROWS, decode_rows, empty_rows, flat
from txlog.actions.commit_info import CommitInfo
from txlog.actions.file import Add, Cdc, DeletionVectorDescriptor, Remove
from txlog.actions.ndjson import (
    ACTIONS,
    NAMES,
    as_rows,
    decode,
    decode_action,
    encode,
    encode_rows,
    rows,
    rows_of_all,
)
from txlog.actions.table import DomainMetadata, Format, Metadata, Protocol, Txn
from txlog.actions.text_bytes import WORD_BYTES, TextBytes, text_bytes, words_of

__all__ = [
    "ACTIONS",
    "DELETION_VECTOR",
    "FILE_ROWS",
    "NAMES",
    "WORD_BYTES",
    "Action",
    "Add",
    "Cdc",
    "CheckpointMetadata",
    "CommitInfo",
    "DeletionVectorDescriptor",
    "DomainMetadata",
    "Format",
    "Metadata",
    "Protocol",
    "Remove",
    "Sidecar",
    "TextBytes",
    "Txn",
    "VersionChecksum",
    "as_rows",
    "decode",
    "decode_action",
    "decode_checksum",
    "decode_rows",
    "empty_rows",
    "encode",
    "encode_rows",
    "flat",
    "rows",
    "rows_of_all",
    "text_bytes",
    "words_of",
]
