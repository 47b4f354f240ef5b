"""Names of log files, and which of them make a version. Pure.

Rules: the Delta protocol, "Delta Log Entries", "Checkpoints" and "Log Compaction Files".
"""

from txlog.log.catalog import CatalogCommits, ratified
from txlog.log.names import LOG_FOLDER, LogFile, commit_name, log_path, parse_name
from txlog.log.paths import (
    canonical_key,
    canonical_keys,
    decode_path,
    encode_path,
    require_inside,
)
from txlog.log.seal import BLANK, COMMIT_MARK, FOOTER_MARK, is_broken, seal_of, sealed
from txlog.log.segment import Segment, choose_segment, incomplete_checkpoints

__all__ = [
    "BLANK",
    "COMMIT_MARK",
    "FOOTER_MARK",
    "LOG_FOLDER",
    "CatalogCommits",
    "LogFile",
    "Segment",
    "canonical_key",
    "canonical_keys",
    "choose_segment",
    "commit_name",
    "decode_path",
    "encode_path",
    "incomplete_checkpoints",
    "is_broken",
    "log_path",
    "parse_name",
    "ratified",
    "require_inside",
    "seal_of",
    "sealed",
]
