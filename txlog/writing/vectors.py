"""Row-level deletes: which positions of which fragments go, and the actions that say so."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import pyarrow as pa
from pyroaring import BitMap64

from txlog.actions.file import Add, DeletionVectorDescriptor, Remove
from txlog.effects import Effects
from txlog.fragments.deletion_file import (
    DELETIONS_FOLDER,
    deletion_kind,
    deletion_name,
    encode_deletions,
    lance_descriptor,
)
from txlog.fragments.deletion_vector import (
    INLINE_LIMIT,
    encode_file,
    encode_vector,
    file_name,
    inline_descriptor,
    logged_path,
    stored_descriptor,
)
from txlog.fragments.fragment import Fragment
from txlog.scan.deletions import load_deletions
from txlog.scan.engine import Engine
from txlog.scan.lazy_plan import ScanPlan
from txlog.scan.listing import as_fragments
from txlog.scan.plan import ReadPlan
from txlog.scan.reader import matching_positions
from txlog.snapshot.snapshot import Snapshot
from txlog.stats.struct_texts import with_json_stats
from txlog.store.base import Store
from txlog.writing.operation import Place


@dataclass(frozen=True)
class Hit:
    """A fragment of which some rows go."""

    fragment: Fragment
    going: BitMap64  # Positions that go now; none of them deleted before.
    gone: BitMap64  # Positions deleted before.
    physical_rows: int

    @property
    def is_whole(self) -> bool:
        """Whether no row is left."""
        return len(self.going) + len(self.gone) == self.physical_rows


def _hit(store: Store, plan: ReadPlan, fragment: Fragment) -> Hit:
    going, rows = matching_positions(store, plan, fragment)
    gone = load_deletions(store, fragment) if going else None
    return Hit(fragment, going, gone if gone is not None else BitMap64(), rows)


def find_hits(store: Store, plan: ScanPlan, engine: Engine) -> tuple[list[Fragment], list[Hit]]:
    """Return the fragments that go wholly by the log alone, and those that rows go from.

    Reads only the predicate's columns, and only of fragments that the log cannot decide.
    """
    whole = [f for f, sure in zip(plan.fragments, plan.certain, strict=True) if sure]
    open_ = [f for f, sure in zip(plan.fragments, plan.certain, strict=True) if not sure]
    hits = [hit for hit in engine.map(partial(_hit, store, plan.reading), open_) if hit.going]
    return whole, hits


def write_deletions(
    place: Place, snapshot: Snapshot, hits: Sequence[Hit]
) -> list[DeletionVectorDescriptor]:
    """Store the deletions of each hit, in the form that a table has them."""
    if snapshot.deletion_format == "lance":
        return _write_lance_files(place.store, hits, place.effects, snapshot.version)
    return write_vectors(place.store, hits, place.effects)


def deletion_path(descriptor: DeletionVectorDescriptor) -> str | None:
    """Return the path of a file of deletions below the table's root; None if there is none."""
    if descriptor.storage_type == "lance":
        return f"{DELETIONS_FOLDER}/{descriptor.path_or_inline_dv}"
    return logged_path(descriptor, path="") if descriptor.storage_type == "u" else None


def write_vectors(
    store: Store, hits: Sequence[Hit], effects: Effects
) -> list[DeletionVectorDescriptor]:
    """Store the deletion vector of each hit, all of a commit's larger ones in one file."""
    vectors = [encode_vector(hit.going | hit.gone) for hit in hits]
    counts = [len(hit.going) + len(hit.gone) for hit in hits]
    stored = [vector for vector in vectors if len(vector) > INLINE_LIMIT]
    uuid = effects.uuid()
    offsets: list[int] = []
    if stored:
        data, offsets = encode_file(stored)
        store.write_new(file_name(uuid), data)
    remaining = iter(offsets)
    return [
        inline_descriptor(vector, count)
        if len(vector) <= INLINE_LIMIT
        else stored_descriptor(uuid, offset=next(remaining), size=len(vector), cardinality=count)
        for vector, count in zip(vectors, counts, strict=True)
    ]


def _write_lance_files(
    store: Store, hits: Sequence[Hit], effects: Effects, read_version: int
) -> list[DeletionVectorDescriptor]:
    """Store the deletions of each hit in a file of Lance's form."""
    descriptors = []
    for hit in hits:
        gone = hit.going | hit.gone
        kind = deletion_kind(len(gone))
        number = int(effects.uuid().replace("-", ""), 16) % 2**64
        name = deletion_name(hit.fragment.id, read_version, number, kind)
        data = encode_deletions(gone, kind=kind)
        store.write_new(f"{DELETIONS_FOLDER}/{name}", data)
        descriptors.append(lance_descriptor(name, len(data), len(gone)))
    return descriptors


def only_deleted(store: Store, rows: pa.Table) -> bool:
    """Return whether a commit that gave files other vectors brought no row back.

    `rows` are its file actions as `FILE_ROWS`.
    """
    sides: dict[str, dict[bool, Fragment]] = {}
    for fragment, is_add in zip(as_fragments(rows), rows["is_add"].to_pylist(), strict=True):
        sides.setdefault(fragment.path, {})[is_add] = fragment
    for side in sides.values():
        if len(side) == 2:
            before, after = (load_deletions(store, side[key]) for key in (False, True))
            if before is not None and (after is None or before - after):
                return False
    return True


def removes_of(rows: pa.Table, now_ms: int, *, data_change: bool = True) -> list[Remove]:
    """Return the actions that take live `FILE_ROWS` out of the table.

    Without `data_change` their rows are added again by the same commit.
    """
    return [
        Remove(
            path=add.path,
            deletion_timestamp=now_ms,
            data_change=data_change,
            extended_file_metadata=True,
            partition_values=add.partition_values,
            size=add.size,
            stats=None,
            tags=add.tags,
            deletion_vector=add.deletion_vector,
            base_row_id=add.base_row_id,
            default_row_commit_version=add.default_row_commit_version,
        )
        for add in adds_of(rows)
    ]


def adds_of(rows: pa.Table) -> list[Add]:
    """Return live `FILE_ROWS` as `add` actions: for the few that a commit touches."""
    names = [
        "path", "partition_values", "size", "modification_time", "data_change", "stats", "tags",
        "deletion_vector", "base_row_id", "default_row_commit_version", "clustering_provider",
    ]  # fmt: skip
    return [
        Add.model_validate({**row, "partition_values": row["partition_values"] or {}})
        for row in with_json_stats(rows).select(names).to_pylist(maps_as_pydicts="lossy")
    ]


def with_vector(add: Add, vector: DeletionVectorDescriptor, physical_rows: int) -> Add:
    """Return a file's `add` with a new deletion vector; its bounds are then no longer tight."""
    return add.model_copy(
        update={
            "deletion_vector": vector,
            "data_change": True,
            "stats": _loosened(add.stats, physical_rows),
        }
    )


def _loosened(stats: str | None, physical_rows: int) -> str:
    """Set `tightBounds` to false in the text itself: parsing would round its decimals."""
    text = (stats or "").strip()
    if not text.startswith("{") or '"numRecords"' not in text:
        return f'{{"numRecords":{physical_rows},"tightBounds":false}}'
    for spelling in ('"tightBounds":true', '"tightBounds": true'):
        if spelling in text:
            return text.replace(spelling, '"tightBounds":false', 1)
    if '"tightBounds"' in text:
        return text
    return f'{{"tightBounds":false,{text[1:]}'
