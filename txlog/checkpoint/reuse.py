"""Which sidecars of a checkpoint the next one can name again, because nothing in them changed.

A sidecar of ours carries a stamp in its tags: how it was written, and which paths it holds. Only
one whose stamp fits the table as it is now is looked at; all others are written anew.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from hashlib import sha256
from typing import Any

import orjson
import pyarrow as pa

from txlog.actions.checkpoint import Sidecar
from txlog.actions.columns import flat
from txlog.arrow import arrow_array, pc, pq
from txlog.checkpoint.footer import read_footer
from txlog.errors import TxlogError
from txlog.log.names import log_path
from txlog.log.paths import canonical_keys, decode_path
from txlog.store.base import Store

STAMP_TAG = "txlog.part"
_FORMAT = 1  # Of sidecars: another one when ours change, so that older ones are written anew.


@dataclass(frozen=True, slots=True)
class Stamp:
    """What a sidecar holds. All its paths are spelled as the keys they are compared by."""

    layout: str
    adds: int
    removes: int
    low: str  # The least and the greatest path.
    high: str
    deleted_ms: int  # When its newest tombstone was made; 0 without one.

    @property
    def rows(self) -> int:
        """How many file actions it holds."""
        return self.adds + self.removes

    def to_tags(self) -> dict[str, str | None]:
        """Return the tags of a sidecar that has this stamp."""
        return {STAMP_TAG: orjson.dumps(asdict(self)).decode()}


def layout_of(parts: Iterable[Any]) -> str:
    """Return a digest of what decides how sidecars are written, besides their rows."""
    return sha256(repr((_FORMAT, *parts)).encode()).hexdigest()[:16]


def stamp_for(adds: pa.Table, removes: pa.Table, layout: str) -> Stamp | None:
    """Return the stamp of rows as `action_rows` gives them; None if a path is spelled oddly."""
    lists = [
        pc.struct_field(flat(rows[name]), "path")
        for rows, name in ((adds, "add"), (removes, "remove"))
    ]
    paths = pa.concat_arrays(lists)
    if not len(paths) or not canonical_keys(paths).equals(paths):
        return None
    # As Python compares them, by code points: the same order as that of UTF-8 bytes.
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
    """Return a sidecar's stamp, or None if it has none that can be read."""
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
    """Return whether a sidecar says what a new one of its rows would, and is whole.

    Tombstones that expired may stay, unless most of its rows are such.

    Parameters
    ----------
    keys
        The canonical keys of all paths that newer commits name, ascending.
    layout
        How sidecars of the table are written now.
    expired_before_ms
        Tombstones of files that were deleted before this have expired.
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
        return not near or not _holds_any(store, path, near)
    except (TxlogError, pa.ArrowException, OSError, ValueError):
        return False  # Whoever reads it then, says what is wrong.


def _holds_any(store: Store, path: str, keys: Sequence[str]) -> bool:
    """Return whether a sidecar has one of some paths; it reads no other column."""
    wanted = arrow_array(keys, pa.string())
    with store.open_input(path) as source:
        file = pq.ParquetFile(source, metadata=read_footer(source), page_checksum_verification=True)
        for group in range(file.num_row_groups):
            table = file.read_row_group(group, columns=["add.path", "remove.path"])
            for column in table.columns:
                found = pc.is_in(pc.struct_field(flat(column), "path"), value_set=wanted)
                if pc.any(found).as_py():
                    return True
    return False


def choose_merged(
    sidecars: Sequence[tuple[Sidecar, Stamp]], new_rows: int, part_rows: int
) -> list[Sidecar]:
    """Return the sidecars that are put together with new rows, smallest first. Pure.

    Each is no larger than all before it and the new rows, so that a row is written again only a
    few times before it is in a full sidecar, and small ones do not add up.
    """
    chosen = []
    held = new_rows
    for sidecar, stamp in sorted(sidecars, key=lambda pair: (pair[1].rows, pair[0].path)):
        if stamp.rows > held or stamp.rows * 2 > part_rows:
            break
        chosen.append(sidecar)
        held += stamp.rows
    return chosen
