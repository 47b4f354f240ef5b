"""Plan (pure) and read: a snapshot to Arrow batches."""

from txlog.scan.deletions import deletion_place, load_deletions
from txlog.scan.engine import Engine, Threads
from txlog.scan.files import as_fragments
from txlog.scan.metadata_columns import require_row_tracking
from txlog.scan.plan import (
    Explanation,
    ReadPlan,
    ScanPlan,
    choose_columns,
    plan_scan,
    require_table_columns,
)
from txlog.scan.read import BATCH_ROWS, FragmentReader, matching_positions, read_fragment
from txlog.scan.scan import Scan
from txlog.scan.take import addresses_of, take

__all__ = [
    "BATCH_ROWS",
    "Engine",
    "Explanation",
    "FragmentReader",
    "ReadPlan",
    "Scan",
    "ScanPlan",
    "Threads",
    "addresses_of",
    "as_fragments",
    "choose_columns",
    "deletion_place",
    "load_deletions",
    "matching_positions",
    "plan_scan",
    "read_fragment",
    "require_row_tracking",
    "require_table_columns",
    "take",
]
