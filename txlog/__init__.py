"""ACID tables for PySpark and Arrow: the Delta transaction log in pure Python."""

from txlog.errors import (
    AlreadyExistsError,
    BadDeletionVectorError,
    CommitConflictError,
    DataFileError,
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
from txlog.fragments import Fragment
from txlog.scan import Explanation, Scan
from txlog.table import Table
from txlog.version import __version__
from txlog.write_table import write
from txlog.writing import Outcome

__all__ = [
    "AlreadyExistsError",
    "BadDeletionVectorError",
    "CommitConflictError",
    "DataFileError",
    "Explanation",
    "Expression",
    "Fragment",
    "InternalError",
    "InvalidInputError",
    "LogCorruptError",
    "NotFoundError",
    "Outcome",
    "OutcomeUnknownError",
    "RetriesExhaustedError",
    "Scan",
    "SchemaMismatchError",
    "StoreError",
    "Table",
    "TxlogError",
    "TxlogWarning",
    "UnsupportedFeatureError",
    "__version__",
    "col",
    "lit",
    "write",
]
