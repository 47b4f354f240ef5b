"""Load a version; time travel; history; version checksums.

Rules: the Delta protocol, "Table Versioning", "In-Commit Timestamps" and "Version Checksum File".
"""
