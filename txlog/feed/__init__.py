"""The change data feed: which rows came, went or changed between two versions.

Rules: the Delta protocol, "Change Data Files" and "Add CDC File"; spec/feed.md, FED-1 to FED-7.
"""

from txlog.feed.changes import Changes, plan_feed, require_feed
from txlog.feed.plan import CHANGE_COLUMNS, ChangeFile, changed_files
from txlog.feed.range import feed_range

__all__ = [
    "CHANGE_COLUMNS",
    "ChangeFile",
    "Changes",
    "changed_files",
    "feed_range",
    "plan_feed",
    "require_feed",
]
