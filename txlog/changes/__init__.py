"""The change data feed: the rows that changed between two versions.

Rules: the Delta protocol, "Change Data Files" and "Add CDC File"; spec/feed.md, FED-1 to FED-7.
"""
