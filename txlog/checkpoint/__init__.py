"""Checkpoints and `_last_checkpoint`: reading and writing.

Rules: the Delta protocol, "Checkpoints" and "Last Checkpoint File".
"""

from txlog.checkpoint.controls import read_controls
from txlog.checkpoint.file_rows import STRUCTS, Wanted
from txlog.checkpoint.footer import Footers
from txlog.checkpoint.hint import HINT_PATH, Hint, encode_hint, read_hint
from txlog.checkpoint.read import (
    Source,
    file_batches,
    list_sources,
    read_files,
    read_sources,
    sources_of,
)
from txlog.checkpoint.sidecars import (
    PART_ROWS,
    Part,
    choose_parts,
    sidecar_path,
    write_manifest,
    write_part,
)
from txlog.checkpoint.write import action_rows, checkpoint_rows, control_rows, write_checkpoint

__all__ = [
    "HINT_PATH",
    "PART_ROWS",
    "STRUCTS",
    "Footers",
    "Hint",
    "Part",
    "Source",
    "Wanted",
    "action_rows",
    "checkpoint_rows",
    "choose_parts",
    "control_rows",
    "encode_hint",
    "file_batches",
    "list_sources",
    "read_controls",
    "read_files",
    "read_hint",
    "read_sources",
    "sidecar_path",
    "sources_of",
    "write_checkpoint",
    "write_manifest",
    "write_part",
]
