"""Plan (pure) and read: a snapshot to Arrow batches."""

from txlog.scan.calendar import is_legacy
from txlog.scan.deferred import DeferredPlan, plan_snapshot
from txlog.scan.deletions import deletion_place, load_deletions
from txlog.scan.engine import Engine, Threads, is_in_process, map_all, threads_for
from txlog.scan.explanation import Explanation
from txlog.scan.files import as_fragments, files_at, live_fragments
from txlog.scan.listing import list_files
from txlog.scan.metadata_columns import FRAGMENT_ID, ROW_ADDRESS, ROW_ID, require_row_tracking
from txlog.scan.plan import (
    FilePlan,
    ReadPlan,
    ScanPlan,
    choose_columns,
    column_names,
    plan_files,
    plan_fragments,
    plan_scan,
    require_table_columns,
    scan_schema,
)
from txlog.scan.ranges import RowRange
from txlog.scan.read import (
    BATCH_ROWS,
    FragmentReader,
    matching_positions,
    read_fragment,
    rows_of,
)
from txlog.scan.scan import Scan, first_rows
from txlog.scan.shares import Share, limited, packed, row_ranges
from txlog.scan.stream import ArrowStream
from txlog.scan.take import by_fragment, positions_of, take_offsets, take_rows

__all__ = [
    "BATCH_ROWS",
    "FRAGMENT_ID",
    "ROW_ADDRESS",
    "ROW_ID",
    "ArrowStream",
    "DeferredPlan",
    "Engine",
    "Explanation",
    "FilePlan",
    "FragmentReader",
    "ReadPlan",
    "RowRange",
    "Scan",
    "ScanPlan",
    "Share",
    "Threads",
    "as_fragments",
    "by_fragment",
    "choose_columns",
    "column_names",
    "deletion_place",
    "files_at",
    "first_rows",
    "is_in_process",
    "is_legacy",
    "limited",
    "list_files",
    "live_fragments",
    "load_deletions",
    "map_all",
    "matching_positions",
    "packed",
    "plan_files",
    "plan_fragments",
    "plan_scan",
    "plan_snapshot",
    "positions_of",
    "read_fragment",
    "require_row_tracking",
    "require_table_columns",
    "row_ranges",
    "rows_of",
    "scan_schema",
    "take_offsets",
    "take_rows",
    "threads_for",
]
