"""ACID tables for PySpark and Arrow: the Delta transaction log in pure Python.

Write a table, change it, and read it back, at its latest version or an older one::

    import pyarrow as pa
    import txlog

    table = txlog.write("flights", pa.table({"carrier": ["UA", "B6"], "delay": [12, 47]}))
    table.append(pa.table({"carrier": ["DL"], "delay": [3]}))
    table.delete("delay > 40")
    rows = table.scan(columns=["carrier"], where=txlog.col("delay") > 5).to_arrow()
    before = txlog.Table("flights", version=0).to_arrow()

Each name is imported at its first use, so a process that only reads does not import writers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from txlog.base.version import __version__

if TYPE_CHECKING:
    from txlog.base.errors import (
        AlreadyExistsError,
        AuditFailedError,
        BadDeletionVectorError,
        CommitConflictError,
        DataFileError,
        DuplicateKeyError,
        EngineError,
        InternalError,
        InvalidInputError,
        InvalidTypeError,
        LogCorruptError,
        NotFoundError,
        OutcomeUnknownError,
        OutOfMemoryError,
        RetriesExhaustedError,
        SchemaMismatchError,
        StoreError,
        TxlogError,
        TxlogWarning,
        UnsupportedFeatureError,
    )
    from txlog.catalog.catalog import Catalog
    from txlog.changes.changes import Changes
    from txlog.commit.operation import Outcome
    from txlog.data_files.identity import Identity
    from txlog.data_files.options import ColumnProperties, WriteOptions, WriterProperties
    from txlog.expressions.tree import Expression, col, lit
    from txlog.fragments.fragment import DataFile, DeletionFile, Fragment
    from txlog.fragments.metadata import FragmentMetadata
    from txlog.log.catalog import CatalogCommits
    from txlog.scan.blobs import Blob
    from txlog.scan.plan import Explanation
    from txlog.scan.scan import Scan
    from txlog.schema.blobs import blob
    from txlog.snapshot.checksum import ChecksumReport
    from txlog.table.fragment import TableFragment
    from txlog.table.query import sql
    from txlog.table.table import Table
    from txlog.table.write_table import convert_to_delta, write, write_fragments
    from txlog.variant.arrays import (
        variant_from_json,
        variant_from_python,
        variant_to_json,
        variant_to_python,
        variant_type,
    )
    from txlog.verbs.capabilities import Capability
    from txlog.verbs.constraints import unique
    from txlog.verbs.fragments.operations import FragmentOperation

__all__ = [
    "AlreadyExistsError",
    "AuditFailedError",
    "BadDeletionVectorError",
    "Blob",
    "Capability",
    "Catalog",
    "CatalogCommits",
    "Changes",
    "ChecksumReport",
    "ColumnProperties",
    "CommitConflictError",
    "DataFile",
    "DataFileError",
    "DeletionFile",
    "DuplicateKeyError",
    "EngineError",
    "Explanation",
    "Expression",
    "Fragment",
    "FragmentMetadata",
    "FragmentOperation",
    "Identity",
    "InternalError",
    "InvalidInputError",
    "InvalidTypeError",
    "LogCorruptError",
    "NotFoundError",
    "OutOfMemoryError",
    "Outcome",
    "OutcomeUnknownError",
    "RetriesExhaustedError",
    "Scan",
    "SchemaMismatchError",
    "StoreError",
    "Table",
    "TableFragment",
    "TxlogError",
    "TxlogWarning",
    "UnsupportedFeatureError",
    "WriteOptions",
    "WriterProperties",
    "__version__",
    "blob",
    "col",
    "convert_to_delta",
    "lit",
    "progress",
    "sql",
    "unique",
    "variant_from_json",
    "variant_from_python",
    "variant_to_json",
    "variant_to_python",
    "variant_type",
    "write",
    "write_fragments",
]

_HOMES = {
    "AlreadyExistsError": "base.errors",
    "AuditFailedError": "base.errors",
    "BadDeletionVectorError": "base.errors",
    "Blob": "scan.blobs",
    "Capability": "verbs.capabilities",
    "Catalog": "catalog.kinds",
    "CatalogCommits": "log.catalog",
    "Changes": "changes.changes",
    "ChecksumReport": "snapshot.checksum",
    "ColumnProperties": "data_files.options",
    "CommitConflictError": "base.errors",
    "DataFile": "fragments.fragment",
    "DataFileError": "base.errors",
    "DeletionFile": "fragments.fragment",
    "DuplicateKeyError": "base.errors",
    "EngineError": "base.errors",
    "Explanation": "scan.plan",
    "Expression": "expressions.tree",
    "Fragment": "fragments.fragment",
    "FragmentMetadata": "fragments.metadata",
    "FragmentOperation": "verbs.fragments.operations",
    "Identity": "data_files.identity",
    "InternalError": "base.errors",
    "InvalidInputError": "base.errors",
    "InvalidTypeError": "base.errors",
    "LogCorruptError": "base.errors",
    "NotFoundError": "base.errors",
    "Outcome": "commit.operation",
    "OutOfMemoryError": "base.errors",
    "OutcomeUnknownError": "base.errors",
    "RetriesExhaustedError": "base.errors",
    "Scan": "scan.scan",
    "SchemaMismatchError": "base.errors",
    "StoreError": "base.errors",
    "Table": "table.table",
    "TableFragment": "table.fragment",
    "TxlogError": "base.errors",
    "TxlogWarning": "base.errors",
    "UnsupportedFeatureError": "base.errors",
    "WriteOptions": "data_files.options",
    "WriterProperties": "data_files.options",
    "blob": "schema.blobs",
    "col": "expressions.tree",
    "convert_to_delta": "table.write_table",
    "lit": "expressions.tree",
    "progress": "base.threads",
    "load_ipython_extension": "table.query",
    "sql": "table.query",
    "unique": "verbs.constraints",
    "variant_from_json": "variant.arrays",
    "variant_from_python": "variant.arrays",
    "variant_to_json": "variant.arrays",
    "variant_to_python": "variant.arrays",
    "variant_type": "variant.arrays",
    "write": "table.write_table",
    "write_fragments": "table.write_table",
}


# This does not use `lazy.lazy_names`: with its imports, `import txlog` takes 50% longer.
def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        from txlog.table.hints import OF_MODULE, instead

        hint = f". {instead(OF_MODULE[name])}." if name in OF_MODULE else ""
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}{hint}")
    from importlib import import_module

    value = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value  # Asked once.
    return value


def __dir__() -> list[str]:
    return [*__all__]
