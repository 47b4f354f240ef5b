"""ACID tables for PySpark and Arrow: the Delta transaction log in pure Python."""

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
from txlog.version import __version__
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
