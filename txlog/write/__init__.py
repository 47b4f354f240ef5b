"""Data files and the verbs that change a table."""

from txlog.write.append import append
from txlog.write.create import already_exists, create, existing, write_new_table
from txlog.write.data import SchemaMode, as_reader
from txlog.write.delete import delete
from txlog.write.files import FileLayout, write_data_files
from txlog.write.operation import AppTransaction, Done, Outcome, Workplace
from txlog.write.options import WriteOptions
from txlog.write.overwrite import PartitionMode, overwrite

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
    "create",
    "delete",
    "existing",
    "overwrite",
    "write_data_files",
    "write_new_table",
]
