"""Checkpoints and `_last_checkpoint`: reading and writing.

Rules: the Delta protocol, "Checkpoints" and "Last Checkpoint File".
"""

from txlog.checkpoint.controls import read_controls
from txlog.checkpoint.file_rows import STRUCTS, Wanted, united
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
from txlog.checkpoint.reuse import choose_merged, is_reusable, layout_of, read_stamp
from txlog.checkpoint.sidecars import (
    PART_ROWS,
    Part,
    choose_parts,
    reused,
    sidecar_path,
    write_manifest,
    write_part,
)
from txlog.checkpoint.write import (
    Encoded,
    Structs,
    action_rows,
    checkpoint_rows,
    checkpoint_schema,
    control_rows,
    encode_checkpoint,
    row_group_states,
    write_checkpoint,
)

__all__ = [
    "HINT_PATH",
    "PART_ROWS",
    "STRUCTS",
    "Encoded",
    "Footers",
    "Hint",
    "Part",
    "Source",
    "Structs",
    "Wanted",
    "action_rows",
    "checkpoint_rows",
    "checkpoint_schema",
    "choose_merged",
    "choose_parts",
    "control_rows",
    "encode_checkpoint",
    "encode_hint",
    "file_batches",
    "is_reusable",
    "layout_of",
    "list_sources",
    "read_controls",
    "read_files",
    "read_hint",
    "read_sources",
    "read_stamp",
    "reused",
    "row_group_states",
    "sidecar_path",
    "sources_of",
    "united",
    "write_checkpoint",
    "write_manifest",
    "write_part",
]
