"""Streams: the new rows of versions, in micro-batches between offsets.

This package does not use Spark. Rules: spec/streaming.md, STR-1 to STR-14.
"""
