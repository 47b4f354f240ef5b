"""When compaction takes up a file or a fragment that has the right size."""

from __future__ import annotations

MAX_DELETED_FRACTION = 0.05
MAX_COLUMN_FILES = 8
