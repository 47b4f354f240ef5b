"""Verbs that look after a table: fewer, larger files, and the way back to an older version."""

from txlog.maintain.compact import MAX_COLUMN_FILES, MAX_DELETED_FRACTION, compact
from txlog.maintain.replace import replace_table
from txlog.maintain.restore import restore

__all__ = ["MAX_COLUMN_FILES", "MAX_DELETED_FRACTION", "compact", "replace_table", "restore"]
