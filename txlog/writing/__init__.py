"""Data files and the verbs that change a table."""

from txlog.writing.append import append, commit_append
from txlog.writing.checkpoint import checkpoint, maintain
from txlog.writing.create import (
    already_exists,
    commit_new_table,
    create,
    existing,
    new_metadata,
    write_new_table,
)
from txlog.writing.data import SchemaMode, as_reader
from txlog.writing.delete import delete
from txlog.writing.files import FileLayout, write_data_files
from txlog.writing.operation import AppTransaction, Done, Outcome, Workplace
from txlog.writing.options import WriteOptions
from txlog.writing.overwrite import PartitionMode, commit_overwrite, overwrite

__all__ = [
    "AppTransaction",
    "Done",
    "FileLayout",
    "Outcome",
    "PartitionMode",
    "SchemaMode",
    "Workplace",
    "WriteOptions",
    "already_exists",
    "append",
    "as_reader",
    "checkpoint",
    "commit_append",
    "commit_new_table",
    "commit_overwrite",
    "create",
    "delete",
    "existing",
    "maintain",
    "new_metadata",
    "overwrite",
    "write_data_files",
    "write_new_table",
]
