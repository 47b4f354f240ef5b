"""Plan (pure) and read: a snapshot to Arrow batches."""

from txlog.scan.deletions import load_deletions
from txlog.scan.engine import Engine, Threads
from txlog.scan.plan import Explanation, ScanPlan, plan_scan
from txlog.scan.read import FragmentReader, matching_positions, read_fragment
from txlog.scan.scan import Scan

__all__ = [
    "Engine",
    "Explanation",
    "FragmentReader",
    "Scan",
    "ScanPlan",
    "Threads",
    "load_deletions",
    "matching_positions",
    "plan_scan",
    "read_fragment",
]
