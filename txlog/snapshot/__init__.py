"""Load a version; time travel; history; version checksums.

Rules: the Delta protocol, "Table Versioning", "In-Commit Timestamps" and "Version Checksum File".
"""

from txlog.snapshot.at import snapshot_at
from txlog.snapshot.checksum import ChecksumReport, read_checksum, verify_checksum
from txlog.snapshot.commits import Commit, file_rows, read_commit, read_commits
from txlog.snapshot.files import (
    ANYWHERE,
    TwiceError,
    fold_files,
    fold_states,
    has_large_checkpoint,
    load_files,
    require_sound,
)
from txlog.snapshot.history import history
from txlog.snapshot.load import (
    list_commits,
    list_log,
    load_snapshot,
)
from txlog.snapshot.newer import newer_commits, refresh, require_refreshable
from txlog.snapshot.snapshot import Snapshot, advance, advance_lazily
from txlog.snapshot.tail import Tail
from txlog.snapshot.times import made_ms
from txlog.snapshot.travel import (
    OutOfRange,
    parse_timestamp,
    pick_version,
    version_at,
    version_from,
    version_until,
)

__all__ = [
    "ANYWHERE",
    "ChecksumReport",
    "Commit",
    "OutOfRange",
    "Snapshot",
    "Tail",
    "TwiceError",
    "advance",
    "advance_lazily",
    "file_rows",
    "fold_files",
    "fold_states",
    "has_large_checkpoint",
    "history",
    "list_commits",
    "list_log",
    "load_files",
    "load_snapshot",
    "made_ms",
    "newer_commits",
    "parse_timestamp",
    "pick_version",
    "read_checksum",
    "read_commit",
    "read_commits",
    "refresh",
    "require_refreshable",
    "require_sound",
    "snapshot_at",
    "verify_checksum",
    "version_at",
    "version_from",
    "version_until",
]
