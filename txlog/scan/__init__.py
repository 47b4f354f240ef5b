"""Plan (pure) and read: a snapshot to Arrow batches."""

from txlog.scan.deletions import load_deletions
from txlog.scan.engine import Engine, Threads
from txlog.scan.files import as_fragments
from txlog.scan.metadata_columns import require_row_tracking
from txlog.scan.plan import (
    Explanation,
    ReadPlan,
    RowRange,
    ScanPlan,
    Share,
    choose_columns,
    limited,
    plan_scan,
    require_table_columns,
    row_ranges,
    scan_schema,
)
from txlog.scan.read import BATCH_ROWS, FragmentReader, matching_positions, read_fragment
from txlog.scan.scan import Scan, first_rows
from txlog.scan.take import addresses_of, take

__all__ = [
    "BATCH_ROWS",
    "Engine",
    "Explanation",
    "FragmentReader",
    "ReadPlan",
    "RowRange",
    "Scan",
    "ScanPlan",
    "Share",
    "Threads",
    "addresses_of",
    "as_fragments",
    "choose_columns",
    "first_rows",
    "limited",
    "load_deletions",
    "matching_positions",
    "plan_scan",
    "read_fragment",
    "require_row_tracking",
    "require_table_columns",
    "row_ranges",
    "scan_schema",
    "take",
]
