"""V2 checkpoints: file actions in sidecars, which any worker writes, and one file that names them.

Source: the Delta protocol, "V2 Spec" of checkpoints and "Sidecar File".
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import pyarrow as pa

from txlog.actions.checkpoint import Sidecar
from txlog.actions.columns import STRING_MAP
from txlog.arrow import table_of_rows
from txlog.checkpoint.hint import Hint
from txlog.checkpoint.read import Source
from txlog.checkpoint.reuse import Stamp, stamp_for
from txlog.checkpoint.write import SCHEMA, encode_groups, leave_hint
from txlog.log.names import log_path
from txlog.store.base import Store

PART_ROWS = 50_000  # File actions of one sidecar: so few that one is written again quickly.

_MARKS = pa.schema(
    [
        ("checkpointMetadata", pa.struct([("version", pa.int64()), ("tags", STRING_MAP)])),
        (
            "sidecar",
            pa.struct(
                [
                    ("path", pa.string()),
                    ("sizeInBytes", pa.int64()),
                    ("modificationTime", pa.int64()),
                    ("tags", STRING_MAP),
                ]
            ),
        ),
    ]
)
_FILES = ["add", "remove"]


@dataclass(frozen=True)
class Part:
    """A sidecar of a new checkpoint."""

    sidecar: Sidecar
    num_adds: int
    num_actions: int


def choose_parts(sources: Iterable[Source], part_rows: int) -> list[tuple[Source, ...]]:
    """Return the sources of each part of a new checkpoint, neighbours in the old one. Pure.

    A part has at most `part_rows` rows, or one source. A source whose rows nobody knows is a part
    of its own.
    """
    parts: list[list[Source]] = []
    held = part_rows
    for source in sources:
        rows = source.rows if source.row_groups is not None else part_rows
        if held + rows > part_rows:
            parts.append([])
            held = 0
        parts[-1].append(source)
        held += rows
    return [tuple(part) for part in parts]


def sidecar_path(part: Part) -> str:
    """Return the path of a sidecar of ours below the table's root."""
    return log_path(f"_sidecars/{part.sidecar.path}")


def reused(sidecar: Sidecar, stamp: Stamp) -> Part:
    """Return a sidecar of an older checkpoint as a part of a new one."""
    return Part(sidecar, stamp.adds, stamp.rows)


def write_part(
    store: Store, groups: Sequence[pa.Table], *, uuid: str, now_ms: int, layout: str
) -> Part | None:
    """Write a sidecar of rows as `action_rows` gives them; None if there are none."""
    adds, removes = (group.select(_FILES) for group in groups)
    if not adds.num_rows + removes.num_rows:
        return None
    data = encode_groups([adds, removes])
    stamp = stamp_for(adds, removes, layout)
    sidecar = Sidecar(
        path=f"{uuid}.parquet",
        size_in_bytes=len(data),
        modification_time=now_ms,
        tags=None if stamp is None else stamp.to_tags(),
    )
    part = Part(sidecar, adds.num_rows, adds.num_rows + removes.num_rows)
    store.write_new(sidecar_path(part), data)
    return part


def write_manifest(
    store: Store, version: int, controls: pa.Table, parts: Sequence[Part], *, uuid: str
) -> Hint:
    """Write the file of a V2 checkpoint that names its sidecars, and the hint.

    `controls` are rows as `control_rows` gives them. Its name is unique, so that no other writer's
    checkpoint of the same version is touched, and readers see it whole or not at all.
    """
    marks = [
        {"checkpointMetadata": {"version": version}},
        *({"sidecar": part.sidecar.to_json()} for part in parts),
    ]
    schema = pa.schema([*SCHEMA, *_MARKS])
    rows = pa.concat_tables([controls, table_of_rows(marks, _MARKS)], promote_options="default")
    data = encode_groups([rows.select(schema.names).cast(schema)])
    store.replace(log_path(f"{version:020d}.checkpoint.{uuid}.parquet"), data)
    hint = Hint(
        version,
        rows.num_rows + sum(part.num_actions for part in parts),
        size_in_bytes=len(data) + sum(part.sidecar.size_in_bytes for part in parts),
        num_of_add_files=sum(part.num_adds for part in parts),
    )
    leave_hint(store, hint)
    return hint
