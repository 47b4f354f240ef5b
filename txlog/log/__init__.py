"""Names of log files, and the files that make up a version. Pure.

Rules: the Delta protocol, "Delta Log Entries", "Checkpoints" and "Log Compaction Files".
"""
