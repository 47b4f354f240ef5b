"""Columnar replay: rows of many log files → one state. Pure.

Rules: the Delta protocol, "Action Reconciliation"; spec/reconcile.md, REC-1 to REC-8.
"""

from txlog.reconcile.distinct import Hashes, are_distinct
from txlog.reconcile.files import (
    FileState,
    left_of,
    newest,
    once,
    overlay,
    reconcile_files,
    state_of,
)
from txlog.reconcile.keys import are_different, file_keys, key_hashes
from txlog.reconcile.newer import Newer, newer_of
from txlog.reconcile.state import ActionBatch, TableState, replay
from txlog.reconcile.table import Controls, controls_of

__all__ = [
    "ActionBatch",
    "Controls",
    "FileState",
    "Hashes",
    "Newer",
    "TableState",
    "are_different",
    "are_distinct",
    "controls_of",
    "file_keys",
    "key_hashes",
    "left_of",
    "newer_of",
    "newest",
    "once",
    "overlay",
    "reconcile_files",
    "replay",
    "state_of",
]
