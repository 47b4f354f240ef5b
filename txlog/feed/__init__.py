"""The change data feed, and streams: what became of a table's rows between two versions.

Rules: the Delta protocol, "Change Data Files" and "Add CDC File"; spec/feed.md, FED-1 to FED-7;
spec/streaming.md, STR-1 to STR-14.
"""

from txlog.feed.changes import Changes, feed_read_plan, plan_feed, require_feed
from txlog.feed.forms import tightened
from txlog.feed.offsets import UNDECIDED, Limits
from txlog.feed.plan import CHANGE_COLUMNS, ChangeFile, changed_files
from txlog.feed.range import feed_range
from txlog.feed.read import read_changes
from txlog.feed.stream import MAX_FILES, StreamOptions, TableStream
from txlog.feed.stream_files import ChangePolicy

__all__ = [
    "CHANGE_COLUMNS",
    "MAX_FILES",
    "UNDECIDED",
    "ChangeFile",
    "ChangePolicy",
    "Changes",
    "Limits",
    "StreamOptions",
    "TableStream",
    "changed_files",
    "feed_range",
    "feed_read_plan",
    "plan_feed",
    "read_changes",
    "require_feed",
    "tightened",
]
