"""Names of log files, and which of them make a version. Pure.

Rules: the Delta protocol, "Delta Log Entries", "Checkpoints" and "Log Compaction Files".
"""
