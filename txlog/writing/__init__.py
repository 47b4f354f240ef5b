"""Data files and the verbs that change a table."""

from txlog.writing.append import append, commit_append, require_additive
from txlog.writing.arguments import as_names, as_schema, write_options
from txlog.writing.capabilities import Capability, capabilities
from txlog.writing.checkpoint import checkpoint, maintain
from txlog.writing.columns import add_columns, drop_columns, replace_columns
from txlog.writing.create import (
    already_exists,
    commit_new_table,
    create,
    create_intent,
    existing,
    new_metadata,
    write_new_table,
)
from txlog.writing.data import SchemaMode, as_reader, target_schema
from txlog.writing.delete import FindRows, delete, delete_found
from txlog.writing.features import add_features, with_counts
from txlog.writing.files import FileLayout, discard_files, discarding, write_data_files
from txlog.writing.operation import (
    AppTransaction,
    Done,
    Outcome,
    Place,
    QueryTransaction,
    Transaction,
    done,
    require_shared,
    require_table_writable,
    require_transaction,
    skip_recorded,
)
from txlog.writing.options import StreamBatch, WriteOptions
from txlog.writing.overwrite import PartitionMode, commit_overwrite, overwrite, require_modes
from txlog.writing.plan import WritePlan, plan_write, require_still_fits
from txlog.writing.rewrite import RewritePlan, plan_rewrite, require_movable, rewrite
from txlog.writing.vectors import adds_of, removes_of
from txlog.writing.workers import (
    Operation,
    commit_fragments,
    delete_from_fragment,
    fragment_metadata,
    merge_into_fragment,
    write_new_fragments,
)

__all__ = [
    "AppTransaction",
    "Capability",
    "Done",
    "FileLayout",
    "FindRows",
    "Operation",
    "Outcome",
    "PartitionMode",
    "Place",
    "QueryTransaction",
    "RewritePlan",
    "SchemaMode",
    "StreamBatch",
    "Transaction",
    "WriteOptions",
    "WritePlan",
    "add_columns",
    "add_features",
    "adds_of",
    "already_exists",
    "append",
    "as_names",
    "as_reader",
    "as_schema",
    "capabilities",
    "checkpoint",
    "commit_append",
    "commit_fragments",
    "commit_new_table",
    "commit_overwrite",
    "create",
    "create_intent",
    "delete",
    "delete_found",
    "delete_from_fragment",
    "discard_files",
    "discarding",
    "done",
    "drop_columns",
    "existing",
    "fragment_metadata",
    "maintain",
    "merge_into_fragment",
    "new_metadata",
    "overwrite",
    "plan_rewrite",
    "plan_write",
    "removes_of",
    "replace_columns",
    "require_additive",
    "require_modes",
    "require_movable",
    "require_shared",
    "require_still_fits",
    "require_table_writable",
    "require_transaction",
    "rewrite",
    "skip_recorded",
    "target_schema",
    "with_counts",
    "write_data_files",
    "write_new_fragments",
    "write_new_table",
    "write_options",
]
