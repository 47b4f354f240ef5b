"""ACID tables for PySpark and Arrow: the Delta transaction log in pure Python.

A name is imported when it is asked for: whoever only reads does not wait for what writes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from txlog.version import __version__

if TYPE_CHECKING:
    from txlog.errors import (
        AlreadyExistsError,
        BadDeletionVectorError,
        CommitConflictError,
        DataFileError,
        EngineError,
        InternalError,
        InvalidInputError,
        LogCorruptError,
        NotFoundError,
        OutcomeUnknownError,
        RetriesExhaustedError,
        SchemaMismatchError,
        StoreError,
        TxlogError,
        TxlogWarning,
        UnsupportedFeatureError,
    )
    from txlog.expressions import Expression, col, lit
    from txlog.feed import Changes
    from txlog.fragments import DataFile, DeletionFile, Fragment, FragmentMetadata
    from txlog.log import CatalogCommits
    from txlog.scan import Explanation, Scan
    from txlog.snapshot import ChecksumReport
    from txlog.table import Table
    from txlog.table_fragment import TableFragment
    from txlog.variant import variant_to_json, variant_to_python
    from txlog.write_table import write, write_fragments
    from txlog.writing import Capability, Operation, Outcome

__all__ = [
    "AlreadyExistsError",
    "BadDeletionVectorError",
    "Capability",
    "CatalogCommits",
    "Changes",
    "ChecksumReport",
    "CommitConflictError",
    "DataFile",
    "DataFileError",
    "DeletionFile",
    "EngineError",
    "Explanation",
    "Expression",
    "Fragment",
    "FragmentMetadata",
    "InternalError",
    "InvalidInputError",
    "LogCorruptError",
    "NotFoundError",
    "Operation",
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
    "__version__",
    "col",
    "lit",
    "variant_to_json",
    "variant_to_python",
    "write",
    "write_fragments",
]

_HOMES = {
    "AlreadyExistsError": "errors",
    "BadDeletionVectorError": "errors",
    "Capability": "writing",
    "CatalogCommits": "log",
    "Changes": "feed",
    "ChecksumReport": "snapshot",
    "CommitConflictError": "errors",
    "DataFile": "fragments",
    "DataFileError": "errors",
    "DeletionFile": "fragments",
    "EngineError": "errors",
    "Explanation": "scan",
    "Expression": "expressions",
    "Fragment": "fragments",
    "FragmentMetadata": "fragments",
    "InternalError": "errors",
    "InvalidInputError": "errors",
    "LogCorruptError": "errors",
    "NotFoundError": "errors",
    "Operation": "writing",
    "Outcome": "writing",
    "OutcomeUnknownError": "errors",
    "RetriesExhaustedError": "errors",
    "Scan": "scan",
    "SchemaMismatchError": "errors",
    "StoreError": "errors",
    "Table": "table",
    "TableFragment": "table_fragment",
    "TxlogError": "errors",
    "TxlogWarning": "errors",
    "UnsupportedFeatureError": "errors",
    "col": "expressions",
    "lit": "expressions",
    "variant_to_json": "variant",
    "variant_to_python": "variant",
    "write": "write_table",
    "write_fragments": "write_table",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value  # Asked once.
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
