"""The public seam: what you need to build a verb, a source, a store or a product upon tables.

A verb is a subclass of `Operation`; `execute` commits it::

    from txlog.extend import Intent, Operation, execute

    class SetDescription(Operation):
        name = "SET DESCRIPTION"
        ...

    execute(table, SetDescription("Flights of New York"), user_metadata="ticket 17")

`txlog.training` and `txlog.tools` are built with this module, `txlog`, `txlog.testing` and tools of
`txlog.base`, which may change without notice. docs/extend.md tells which name serves which purpose.
Each name is imported at its first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from txlog.base.lazy import lazy_names

if TYPE_CHECKING:
    from txlog.actions.file import Add, Cdc, Remove
    from txlog.actions.table import CommitInfo, DomainMetadata, Metadata, Protocol, Txn
    from txlog.actions.told import told_pairs, told_text
    from txlog.base.effects import is_rehearsing, rehearsing
    from txlog.commit.app_versions import require_app_version
    from txlog.commit.context import Context
    from txlog.commit.intent import Intent, Reads
    from txlog.commit.loop import wait_after
    from txlog.commit.operation import Operation, Outcome
    from txlog.data_files.incoming import as_reader
    from txlog.data_files.modes import SchemaMode
    from txlog.data_files.row_files import RowFile, UnitedRows, is_litter, row_files, united_rows
    from txlog.expressions.sql import Where, parse_type, required_expression, to_sql
    from txlog.log.paths import decode_path, encode_path
    from txlog.parquet.file_footer import FileFooter
    from txlog.parquet.page import require_pages
    from txlog.scan.blobs import Packs, blobs_of
    from txlog.scan.dataset import StoreFiles
    from txlog.scan.given import Piece, missing_files, shares
    from txlog.scan.plan import plan_fragments
    from txlog.scan.read import FragmentReader, read_fragment
    from txlog.scan.read_plan import ReadPlan, chosen_columns
    from txlog.schema.blobs import is_arrow_blob
    from txlog.schema.json import parse_schema
    from txlog.schema.types import (
        ArrayType,
        DataType,
        MapType,
        PrimitiveType,
        StructField,
        StructType,
        type_name,
    )
    from txlog.snapshot.commits import Commit
    from txlog.snapshot.snapshot import Snapshot
    from txlog.store.base import (
        BasicStore,
        ObjectInfo,
        Put,
        Store,
        is_far,
        is_older,
        is_there,
        map_many,
        threads_for,
    )
    from txlog.store.cached import Cache, CachedStore
    from txlog.store.coordinators import CommitCoordinator, CommitEntry
    from txlog.store.file_times import store_now_ms
    from txlog.store.open import folders_in, links_in, open_store
    from txlog.store.places import name_in
    from txlog.table.seam import (
        context_of,
        create_table,
        execute,
        far_table_above,
        open_snapshot,
        open_sound,
        open_table,
        read_commits,
        removed_files,
        table_above,
        table_facts,
        write_files,
    )
    from txlog.verbs.append import Append
    from txlog.verbs.facts import ColumnFacts, TableFacts

__all__ = [
    "Add",
    "Append",
    "ArrayType",
    "BasicStore",
    "Cache",
    "CachedStore",
    "Cdc",
    "ColumnFacts",
    "Commit",
    "CommitCoordinator",
    "CommitEntry",
    "CommitInfo",
    "Context",
    "DataType",
    "DomainMetadata",
    "FileFooter",
    "FragmentReader",
    "Intent",
    "MapType",
    "Metadata",
    "ObjectInfo",
    "Operation",
    "Outcome",
    "Packs",
    "Piece",
    "PrimitiveType",
    "Protocol",
    "Put",
    "ReadPlan",
    "Reads",
    "Remove",
    "RowFile",
    "SchemaMode",
    "Snapshot",
    "Store",
    "StoreFiles",
    "StructField",
    "StructType",
    "TableFacts",
    "Txn",
    "UnitedRows",
    "Where",
    "as_reader",
    "blobs_of",
    "chosen_columns",
    "context_of",
    "create_table",
    "decode_path",
    "encode_path",
    "execute",
    "far_table_above",
    "folders_in",
    "is_arrow_blob",
    "is_far",
    "is_litter",
    "is_older",
    "is_rehearsing",
    "is_there",
    "links_in",
    "map_many",
    "missing_files",
    "name_in",
    "open_snapshot",
    "open_sound",
    "open_store",
    "open_table",
    "parse_schema",
    "parse_type",
    "plan_fragments",
    "read_commits",
    "read_fragment",
    "rehearsing",
    "removed_files",
    "require_app_version",
    "require_pages",
    "required_expression",
    "row_files",
    "shares",
    "store_now_ms",
    "table_above",
    "table_facts",
    "threads_for",
    "to_sql",
    "told_pairs",
    "told_text",
    "type_name",
    "united_rows",
    "wait_after",
    "write_files",
]

_HOMES = {
    "Add": "actions.file",
    "Append": "verbs.append",
    "ArrayType": "schema.types",
    "BasicStore": "store.base",
    "Cache": "store.cached",
    "CachedStore": "store.cached",
    "Cdc": "actions.file",
    "ColumnFacts": "verbs.facts",
    "Commit": "snapshot.commits",
    "CommitCoordinator": "store.coordinators",
    "CommitEntry": "store.coordinators",
    "CommitInfo": "actions.table",
    "Context": "commit.context",
    "DataType": "schema.types",
    "DomainMetadata": "actions.table",
    "FileFooter": "parquet.file_footer",
    "FragmentReader": "scan.read",
    "Intent": "commit.intent",
    "MapType": "schema.types",
    "Metadata": "actions.table",
    "ObjectInfo": "store.base",
    "Operation": "commit.operation",
    "Outcome": "commit.operation",
    "Piece": "scan.given",
    "PrimitiveType": "schema.types",
    "Protocol": "actions.table",
    "Put": "store.base",
    "ReadPlan": "scan.read_plan",
    "Reads": "commit.intent",
    "Remove": "actions.file",
    "RowFile": "data_files.row_files",
    "SchemaMode": "data_files.modes",
    "Snapshot": "snapshot.snapshot",
    "Store": "store.base",
    "StoreFiles": "scan.dataset",
    "StructField": "schema.types",
    "StructType": "schema.types",
    "TableFacts": "verbs.facts",
    "Txn": "actions.table",
    "UnitedRows": "data_files.row_files",
    "Where": "expressions.sql",
    "as_reader": "data_files.incoming",
    "chosen_columns": "scan.read_plan",
    "context_of": "table.seam",
    "create_table": "table.seam",
    "decode_path": "log.paths",
    "encode_path": "log.paths",
    "execute": "table.seam",
    "folders_in": "store.open",
    "links_in": "store.open",
    "is_far": "store.base",
    "is_litter": "data_files.row_files",
    "is_older": "store.base",
    "is_rehearsing": "base.effects",
    "is_there": "store.base",
    "map_many": "store.base",
    "Packs": "scan.blobs",
    "blobs_of": "scan.blobs",
    "is_arrow_blob": "schema.blobs",
    "missing_files": "scan.given",
    "name_in": "store.places",
    "open_snapshot": "table.seam",
    "open_sound": "table.seam",
    "open_store": "store.open",
    "open_table": "table.seam",
    "parse_schema": "schema.json",
    "parse_type": "expressions.sql",
    "plan_fragments": "scan.plan",
    "read_commits": "table.seam",
    "read_fragment": "scan.read",
    "rehearsing": "base.effects",
    "removed_files": "table.seam",
    "require_app_version": "commit.app_versions",
    "require_pages": "parquet.page",
    "required_expression": "expressions.sql",
    "row_files": "data_files.row_files",
    "shares": "scan.given",
    "store_now_ms": "store.file_times",
    "table_above": "table.seam",
    "far_table_above": "table.seam",
    "table_facts": "table.seam",
    "threads_for": "store.base",
    "to_sql": "expressions.sql",
    "told_pairs": "actions.told",
    "told_text": "actions.told",
    "type_name": "schema.types",
    "united_rows": "data_files.row_files",
    "wait_after": "commit.loop",
    "write_files": "table.seam",
}

__getattr__, __dir__ = lazy_names(__name__, _HOMES, __all__, within="txlog")
