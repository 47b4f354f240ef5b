"""Verbs that look after a table: larger files, their statistics, the way back to a version."""

from txlog.maintain.compact import MAX_COLUMN_FILES, MAX_DELETED_FRACTION, compact
from txlog.maintain.replace import replace_table
from txlog.maintain.restore import restore
from txlog.maintain.statistics import compute_statistics

__all__ = [
    "MAX_COLUMN_FILES",
    "MAX_DELETED_FRACTION",
    "compact",
    "compute_statistics",
    "replace_table",
    "restore",
]
