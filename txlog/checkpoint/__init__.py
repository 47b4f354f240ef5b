"""Checkpoints and `_last_checkpoint`: reading and writing.

Rules: the Delta protocol, "Checkpoints" and "Last Checkpoint File".
"""

from txlog.checkpoint.hint import HINT_PATH, Hint, encode_hint, read_hint
from txlog.checkpoint.read import Source, list_sources, read_controls, read_files, read_sources
from txlog.checkpoint.sidecars import (
    PART_ROWS,
    Part,
    choose_parts,
    sidecar_path,
    write_manifest,
    write_part,
)
from txlog.checkpoint.write import (
    Structs,
    action_rows,
    checkpoint_rows,
    control_rows,
    write_checkpoint,
)

__all__ = [
    "HINT_PATH",
    "PART_ROWS",
    "Hint",
    "Part",
    "Source",
    "Structs",
    "action_rows",
    "checkpoint_rows",
    "choose_parts",
    "control_rows",
    "encode_hint",
    "list_sources",
    "read_controls",
    "read_files",
    "read_hint",
    "read_sources",
    "sidecar_path",
    "write_checkpoint",
    "write_manifest",
    "write_part",
]
