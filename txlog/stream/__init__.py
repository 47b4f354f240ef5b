"""Streams: the rows that versions add, in micro-batches counted by offsets.

Nothing here knows Spark. Rules: spec/streaming.md, STR-1 to STR-14.
"""
