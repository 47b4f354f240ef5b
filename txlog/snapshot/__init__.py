"""Load a version; time travel; history.

Rules: the Delta protocol, "Table Versioning" and "In-Commit Timestamps".
"""

from txlog.snapshot.commits import Commit, read_commit, read_commits
from txlog.snapshot.history import history
from txlog.snapshot.load import load_files, load_snapshot, newer_commits, refresh
from txlog.snapshot.snapshot import Snapshot, advance
from txlog.snapshot.travel import OutOfRange, parse_timestamp, pick_version, version_at

__all__ = [
    "Commit",
    "OutOfRange",
    "Snapshot",
    "advance",
    "history",
    "load_files",
    "load_snapshot",
    "newer_commits",
    "parse_timestamp",
    "pick_version",
    "read_commit",
    "read_commits",
    "refresh",
    "version_at",
]
