"""The change data feed, and streams: what became of a table's rows between two versions.

Rules: the Delta protocol, "Change Data Files" and "Add CDC File"; spec/feed.md, FED-1 to FED-7;
spec/streaming.md, STR-1 to STR-14.
"""
