"""Checkpoints and `_last_checkpoint`: reading and writing.

Rules: the Delta protocol, "Checkpoints" and "Last Checkpoint File".
"""

from txlog.checkpoint.hint import HINT_PATH, Hint, encode_hint, read_hint
from txlog.checkpoint.read import read_controls, read_files
from txlog.checkpoint.write import checkpoint_rows, write_checkpoint

__all__ = [
    "HINT_PATH",
    "Hint",
    "checkpoint_rows",
    "encode_hint",
    "read_controls",
    "read_files",
    "read_hint",
    "write_checkpoint",
]
