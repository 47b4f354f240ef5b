"""Sidecars of V2 checkpoints: distribute files over them, and reuse unchanged ones.

The tags of txlog's sidecars contain a stamp: how the sidecar was written, and the range of its
paths. A new checkpoint reuses a sidecar only if its stamp fits the current table; it writes all
others again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from hashlib import sha256
from typing import Any

import orjson
import pyarrow as pa

from txlog.actions.columns import struct_of
from txlog.actions.file import CheckpointMetadata, Sidecar
from txlog.actions.ndjson import NAMES
from txlog.base.arrow import arrow_array, pc, table_of_rows
from txlog.base.columns import flat
from txlog.base.errors import TxlogError
from txlog.base.thresholds import Threshold
from txlog.checkpoint.hint import Hint
from txlog.checkpoint.parquet import opened
from txlog.checkpoint.read import Source
from txlog.checkpoint.write import SCHEMA, encode_groups, leave_hint
from txlog.log.names import log_path
from txlog.log.paths import canonical_keys, decode_path
from txlog.store.base import Store

# The number of file actions in a sidecar, which is small so that rewriting one is quick.
PART_ROWS: Threshold = 50_000

_MARKS = pa.schema([(NAMES[model], struct_of(model)) for model in (CheckpointMetadata, Sidecar)])
_FILES = ["add", "remove"]


@dataclass(frozen=True)
class Part:
    """A sidecar of a new checkpoint."""

    sidecar: Sidecar
    num_adds: int
    num_actions: int


def choose_parts(sources: Iterable[Source], part_rows: int) -> list[tuple[Source, ...]]:
    """Group the sources of the old checkpoint, in order, into the parts of a new one. Pure.

    A part has at most `part_rows` rows, or one source. A source with an unknown number of rows is a
    separate part.
    """
    parts: list[list[Source]] = []
    count = part_rows
    for source in sources:
        rows = source.rows if source.row_groups is not None else part_rows
        if count + rows > part_rows:
            parts.append([])
            count = 0
        parts[-1].append(source)
        count += rows
    return [tuple(part) for part in parts]


def sidecar_path(part: Part) -> str:
    """Return the path of a new sidecar, relative to the table's root."""
    return log_path(f"_sidecars/{part.sidecar.path}")


def reused(sidecar: Sidecar, stamp: Stamp) -> Part:
    """Return the part for a sidecar that a new checkpoint reuses."""
    return Part(sidecar, stamp.adds, stamp.rows)


def write_part(
    store: Store, groups: Sequence[pa.Table], *, uuid: str, now_ms: int, layout: str
) -> Part | None:
    """Write a sidecar of rows from `action_rows`; return None if there are no rows."""
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


def manifest_name(version: int, uuid: str) -> str:
    """Return the name of a V2 checkpoint's main file."""
    return f"{version:020d}.checkpoint.{uuid}.parquet"


def write_manifest(
    store: Store, version: int, controls: pa.Table, parts: Sequence[Part], *, uuid: str
) -> Hint:
    """Write the main file of a V2 checkpoint, which names its sidecars, and the hint.

    `controls` are rows from `control_rows`. The file's name is unique, so it never replaces another
    writer's checkpoint of the same version, and readers see it completely or not at all.
    """
    marks = [
        {"checkpointMetadata": {"version": version}},
        *({"sidecar": part.sidecar.to_json()} for part in parts),
    ]
    schema = pa.schema([*SCHEMA, *_MARKS])
    rows = pa.concat_tables([controls, table_of_rows(marks, _MARKS)], promote_options="default")
    data = encode_groups([rows.select(schema.names).cast(schema)])
    store.replace(log_path(manifest_name(version, uuid)), data)
    hint = Hint(
        version,
        rows.num_rows + sum(part.num_actions for part in parts),
        size_in_bytes=len(data) + sum(part.sidecar.size_in_bytes for part in parts),
        num_of_add_files=sum(part.num_adds for part in parts),
    )
    leave_hint(store, hint)
    return hint


STAMP_TAG = "txlog.part"
# The format number of sidecars. Increase it with each change, so that older ones are not reused.
_FORMAT = 1


@dataclass(frozen=True, slots=True)
class Stamp:
    """The content of a sidecar. Its paths are spelled like their canonical keys."""

    layout: str
    adds: int
    removes: int
    low: str  # The first and the last path.
    high: str
    deleted_ms: int  # The time of its newest tombstone; 0 without one.

    @property
    def rows(self) -> int:
        """The number of its file actions."""
        return self.adds + self.removes

    def to_tags(self) -> dict[str, str | None]:
        """Return the stamp as tags of a sidecar."""
        return {STAMP_TAG: orjson.dumps(asdict(self)).decode()}


def layout_of(parts: Iterable[Any]) -> str:
    """Return a digest of the settings that determine how sidecars are written."""
    return sha256(repr((_FORMAT, *parts)).encode()).hexdigest()[:16]


def stamp_for(adds: pa.Table, removes: pa.Table, layout: str) -> Stamp | None:
    """Return the stamp of rows from `action_rows`; None if a path is not in canonical form."""
    lists = [
        pc.struct_field(flat(rows[name]), "path")
        for rows, name in ((adds, "add"), (removes, "remove"))
    ]
    paths = pa.concat_arrays(lists)
    if not len(paths) or not canonical_keys(paths).equals(paths):
        return None
    # Python compares by code points, which is the same order as that of UTF-8 bytes.
    found = pc.min_max(paths)
    deleted = pc.max(pc.struct_field(flat(removes["remove"]), "deletionTimestamp")).as_py()
    return Stamp(
        layout,
        adds.num_rows,
        removes.num_rows,
        found["min"].as_py(),
        found["max"].as_py(),
        deleted or 0,
    )


def read_stamp(sidecar: Sidecar) -> Stamp | None:
    """Return a sidecar's stamp, or None if it has no valid stamp."""
    try:
        body = orjson.loads((sidecar.tags or {}).get(STAMP_TAG) or "")
        found = Stamp(**body)
    except (orjson.JSONDecodeError, TypeError):
        return None
    texts = (found.layout, found.low, found.high)
    numbers = (found.adds, found.removes, found.deleted_ms)
    ok = all(type(t) is str for t in texts) and all(type(n) is int and n >= 0 for n in numbers)
    return found if ok else None


def is_reusable(
    store: Store,
    sidecar: Sidecar,
    keys: Sequence[str],
    *,
    layout: str,
    expired_before_ms: int,
) -> bool:
    """Return whether a sidecar is intact and equals a newly written one with the same rows.

    Expired tombstones may stay, unless they are most of the rows.

    Parameters
    ----------
    keys
        The canonical keys of all paths in newer commits, ascending.
    layout
        The current `layout_of` the table.
    expired_before_ms
        Tombstones of files that were deleted before this time have expired.
    """
    stamp = read_stamp(sidecar)
    if stamp is None or stamp.layout != layout:
        return False
    if stamp.removes > stamp.adds and stamp.deleted_ms < expired_before_ms:
        return False
    path = log_path(f"_sidecars/{decode_path(sidecar.path)}")
    if "/" in sidecar.path:
        return False
    try:
        if store.info(path).size != sidecar.size_in_bytes:
            return False
        near = [key for key in keys if stamp.low <= key <= stamp.high]
        return not near or not _holds_any(store, path, sidecar.size_in_bytes, near)
    except (TxlogError, pa.ArrowException, OSError, ValueError):
        return False  # Reading the file will raise the error.


def _holds_any(store: Store, path: str, size: int, keys: Sequence[str]) -> bool:
    """Return whether a sidecar contains one of some paths. This reads only the path column."""
    wanted = arrow_array(keys, pa.string())
    with opened(store, path, size) as sidecar:
        for group in sidecar.groups:
            table = sidecar.file.read_row_group(group, columns=["add.path", "remove.path"])
            for column in table.columns:
                known = pc.is_in(pc.struct_field(flat(column), "path"), value_set=wanted)
                if pc.any(known).as_py():
                    return True
    return False


def choose_merged(
    sidecars: Sequence[tuple[Sidecar, Stamp]], new_rows: int, part_rows: int
) -> list[Sidecar]:
    """Choose the sidecars to merge with new rows, smallest first. Pure.

    Each one is at most as large as the new rows and all chosen sidecars before it. So a row is
    rewritten only a few times before it is in a full sidecar, and the number of small sidecars
    stays low.
    """
    chosen = []
    count = new_rows
    for sidecar, stamp in sorted(sidecars, key=lambda pair: (pair[1].rows, pair[0].path)):
        if stamp.rows > count or stamp.rows * 2 > part_rows:
            break
        chosen.append(sidecar)
        count += stamp.rows
    return chosen
