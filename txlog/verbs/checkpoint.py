"""Write a checkpoint of a table."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from os import cpu_count
from typing import Any

import pyarrow as pa

from txlog.actions.file import Sidecar
from txlog.base.arrow import pc
from txlog.base.errors import (
    LogCorruptError,
    NotFoundError,
    OutcomeUnknownError,
    StoreError,
    resource_errors,
    warn_committed,
)
from txlog.base.observe import observed
from txlog.base.threads import Threads, map_all
from txlog.base.thresholds import Threshold
from txlog.checkpoint.read import Source, list_sources, read_sources
from txlog.checkpoint.sidecars import (
    PART_ROWS,
    Part,
    choose_merged,
    choose_parts,
    is_reusable,
    layout_of,
    manifest_name,
    read_stamp,
    reused,
    sidecar_path,
    write_manifest,
    write_part,
)
from txlog.checkpoint.write import (
    Staged,
    Structs,
    action_rows,
    checkpoint_rows,
    checkpoint_schema,
    control_rows,
    encode_checkpoint,
    row_group_states,
    stage_checkpoint,
    write_checkpoint,
)
from txlog.commit.context import Context
from txlog.commit.operation import require_table_writable
from txlog.log.catalog import CatalogCommits
from txlog.log.names import LogFile, log_path
from txlog.log.paths import canonical_keys
from txlog.protocol.access import features_of
from txlog.reconcile.files import FileState, left_of, newer_of, overlay, reconcile_files
from txlog.schema.types import StructType
from txlog.snapshot.live_files import (
    checkpoint_bytes,
    fold_states,
    has_large_checkpoint,
    load_files,
    require_sound,
)
from txlog.snapshot.load import load_snapshot
from txlog.snapshot.snapshot import Snapshot
from txlog.snapshot.successor import require_in_place
from txlog.stats.structs import stats_type
from txlog.store.base import Store

# From this size of the previous checkpoint on, sidecars are written where the policy is not set.
_PARTS_BYTES: Threshold = 256 << 20
# Each thread that writes a sidecar holds its files several times, about 150 MB in all. More threads
# than these would need more memory on a machine with more cores.
_PARTS_AT_ONCE: Threshold = 2


def checkpoint(context: Context, snapshot: Snapshot) -> None:
    """Write a checkpoint of a version, and point `_last_checkpoint` to it.

    It is a V2 checkpoint if the table has the feature `v2Checkpoint`, and its property
    `delta.checkpointPolicy` is `v2`, or is not set and the table is large. Then the engine's
    workers read the previous checkpoint and write the sidecars, each with a part of the files, so
    that no process holds all files.

    Raises
    ------
    UnsupportedFeatureError
        The store or the table cannot be written by txlog.
    CommitConflictError
        Another table took the place of this one, and the checkpoint would hide its rows.
    """
    with resource_errors(), observed("CHECKPOINT", snapshot.root, "maintenance") as seen:
        _checkpoint(context, snapshot)
        seen.note("checkpointed", {"version": snapshot.version})


def _checkpoint(context: Context, snapshot: Snapshot) -> None:
    require_checkpointable(context.store, snapshot)
    require_in_place(context.store, snapshot)
    # The table's own time, so that a fast clock does not let records expire early.
    made_ms, now_ms = snapshot.timestamp_ms, context.effects.now_ms()
    kept = _kept_actions(snapshot, now_ms if made_ms is None else min(now_ms, made_ms))
    txn_retention_ms = snapshot.properties.get("delta.setTransactionRetentionDuration")
    if made_ms is None:
        txn_retention_ms = None  # It is unknown how old the records are.
    if wants_parts(snapshot):
        # One that commits have advanced still has the checkpoint with which it was opened: workers
        # would find another one, and its sidecars are not those to reuse.
        snapshot = load_snapshot(context.store, version=snapshot.version, catalog=snapshot.catalog)
        controls = control_rows(
            snapshot.controls, now_ms=kept["now_ms"], txn_retention_ms=txn_retention_ms
        )
        parts = _write_parts(context, snapshot, kept)
        uuid = context.effects.uuid()
        write_manifest(context.store, snapshot.version, controls, parts, uuid=uuid)
        _require_not_expired(context.store, snapshot, parts, uuid)
        return

    def rows(states: Iterable[FileState]) -> Iterator[pa.Table]:
        return checkpoint_rows(snapshot.controls, states, txn_retention_ms=txn_retention_ms, **kept)

    store = context.store
    if has_large_checkpoint(snapshot):

        def staged(states: Iterator[FileState]) -> Staged:
            uuid = context.effects.uuid()
            return stage_checkpoint(
                store, snapshot.version, rows(row_group_states(states)), uuid=uuid
            )

        write_checkpoint(store, fold_states(store, snapshot, staged))
        return
    files = load_files(store, snapshot)
    write_checkpoint(store, encode_checkpoint(snapshot.version, rows([files])))
    _write_checksum(context.store, snapshot, files)


def _write_checksum(store: Store, snapshot: Snapshot, files: FileState) -> None:
    """Write the version's checksum, whose values are known at this point."""
    from txlog.verbs.log_files import write_checksum

    try:
        write_checksum(store, snapshot, files.live)
    except (StoreError, OutcomeUnknownError) as error:
        warn_committed(f"no version checksum was written: {error}")


def _require_not_expired(
    store: Store, snapshot: Snapshot, parts: Sequence[Part], uuid: str
) -> None:
    """Delete the new checkpoint if a concurrent clean-up may have deleted its reused sidecars.

    A clean-up that lists the used sidecars after this check finds the new checkpoint.

    Raises
    ------
    StoreError
        The previous checkpoint, whose sidecars are reused, is missing.
    """
    again = {part.sidecar.path for part in parts} & {part.path for part in snapshot.sidecars}
    if again and not _is_there(store, snapshot):
        store.delete([log_path(manifest_name(snapshot.version, uuid))])
        raise StoreError(
            operation="write a checkpoint",
            path=snapshot.checkpoint[0].path,
            reason="the log was cleaned up while a checkpoint was written",
            remedy="Write the checkpoint again",
        )


def _is_there(store: Store, snapshot: Snapshot) -> bool:
    """Return whether the checkpoint from which a version is loaded exists."""
    try:
        return bool([store.info(part.path) for part in snapshot.checkpoint])
    except NotFoundError:
        return False


def wants_parts(snapshot: Snapshot) -> bool:
    """Return whether a table's checkpoints are V2 checkpoints."""
    if not snapshot.supports("v2Checkpoint"):
        return False
    if "delta.checkpointPolicy" not in snapshot.metadata.configuration:
        return checkpoint_bytes(snapshot) >= _PARTS_BYTES
    return bool(snapshot.properties.get("delta.checkpointPolicy") == "v2")


def _kept_actions(snapshot: Snapshot, now_ms: int) -> dict[str, Any]:
    """Return the arguments of `action_rows` according to the table's properties."""
    return {
        "now_ms": now_ms,
        "file_retention_ms": snapshot.properties.get("delta.deletedFileRetentionDuration"),
        "with_stats": snapshot.properties.get("delta.checkpoint.writeStatsAsJson"),
        "structs": structs_of(snapshot),
    }


def structs_of(snapshot: Snapshot) -> Structs | None:
    """Return what a table's checkpoints have beside the usual columns; None for nothing."""
    packs = snapshot.supports("txlog.blobs-dev")
    if not snapshot.properties.get("delta.checkpoint.writeStatsAsStruct"):
        return Structs(packs=True) if packs else None
    # A list of columns may name any of them.
    listed = snapshot.metadata.configuration.get("delta.dataSkippingStatsColumns") is not None
    indexed = -1 if listed else snapshot.properties.get("delta.dataSkippingNumIndexedCols")
    names = snapshot.partition_columns
    columns = {field.name: field for field in snapshot.schema.fields}
    stored = tuple(field for name, field in columns.items() if name not in names)
    mode = snapshot.mapping_mode
    return Structs(
        stats_type(StructType(stored), indexed=indexed, mapping_mode=mode),
        tuple(columns[name] for name in names),
        mode,
        packs,
    )


@dataclass(frozen=True)
class _PartWriter:
    """Writes parts of a checkpoint from the previous checkpoint; it pickles without file rows."""

    context: Context
    version: int
    base: tuple[LogFile, ...]
    catalog: CatalogCommits | None = field(repr=False)
    kept: dict[str, Any]
    layout: str

    def write(self, sources: tuple[Source, ...]) -> Part | None:
        """Write the files of some sources that later commits did not touch."""
        store = self.context.store
        snapshot = load_snapshot(store, version=self.version, catalog=self.catalog)
        if snapshot.checkpoint != self.base:
            raise LogCorruptError(
                path=self.base[0].path,
                version=self.version,
                reason="the previous checkpoint has changed since the work was planned",
                remedy="Write the checkpoint again",
            )
        found = left_of(
            read_sources(store, sources, self.base[0].version), newer_of(snapshot.tail.rows)
        )
        require_sound(snapshot, found.live)
        return self.write_rows(found)

    def write_rows(self, files: FileState) -> Part | None:
        """Write files as one part."""
        effects = self.context.effects
        return write_part(
            self.context.store,
            action_rows(files, **self.kept),
            uuid=effects.uuid(),
            now_ms=effects.now_ms(),
            layout=self.layout,
        )


def _write_parts(context: Context, snapshot: Snapshot, kept: dict[str, Any]) -> list[Part]:
    """Write the new sidecars of a checkpoint; return all of its sidecars.

    If one fails, all written sidecars are deleted.
    """
    written: list[Part] = []
    layout = _layout(snapshot, kept)
    writer = _PartWriter(
        context, snapshot.version, snapshot.checkpoint, snapshot.catalog, kept, layout
    )

    def undo(more: Sequence[Part | None] = ()) -> None:
        lost = [part for part in (*written, *more) if part is not None]
        context.store.delete([sidecar_path(part) for part in lost])

    try:
        # First, because no sidecar exists yet if it fails.
        newest = reconcile_files(snapshot.tail.rows)
        again, merged = _reused(context, snapshot, newest, layout, kept)
        if merged:
            sources = list_sources(context.store, (), merged)
            base = read_sources(context.store, sources, snapshot.checkpoint[0].version)
            newest = overlay(base, snapshot.tail.rows)
            require_sound(snapshot, newest.live)
        others = {sidecar.path for sidecar in (*merged, *(part.sidecar for part in again))}
        found = _parts_of_base(context, snapshot, writer, others, undo)
    except LogCorruptError:
        # Other files of the log may replace a damaged one; then all files are in memory at once.
        found, again, newest = [], [], load_files(context.store, snapshot)
    written.extend(found)
    try:
        for files in _ranged(newest):
            part = writer.write_rows(files)
            written.extend([] if part is None else [part])
    except BaseException:
        undo()
        raise
    return [*again, *written]


def _layout(snapshot: Snapshot, kept: dict[str, Any]) -> str:
    """Return the settings with which a version's sidecars are written."""
    schema = str(checkpoint_schema(kept["structs"]))
    features = sorted(features_of(snapshot.protocol))
    columns = snapshot.physical_partition_columns
    return layout_of([schema, kept["with_stats"], features, columns, snapshot.metadata.id])


def _reused(
    context: Context, snapshot: Snapshot, newest: FileState, layout: str, kept: dict[str, Any]
) -> tuple[list[Part], list[Sidecar]]:
    """Return the sidecars to reuse, and small ones to merge with new files."""
    if not snapshot.sidecars or not _is_there(context.store, snapshot):
        return [], []
    paths = [*newest.live["path"].chunks, *newest.tombstones["path"].chunks]
    touched = pa.chunked_array(paths, pa.string())
    keys = sorted(set(canonical_keys(touched).to_pylist()))
    oldest_ms = kept["now_ms"] - kept["file_retention_ms"]
    usable = [
        (sidecar, stamp)
        for sidecar in {named.path: named for named in snapshot.sidecars}.values()
        if (stamp := read_stamp(sidecar)) is not None
        and is_reusable(context.store, sidecar, keys, layout=layout, expired_before_ms=oldest_ms)
    ]
    new_rows = newest.live.num_rows + newest.tombstones.num_rows
    merged = choose_merged(usable, new_rows, PART_ROWS)
    return [reused(sidecar, stamp) for sidecar, stamp in usable if sidecar not in merged], merged


def _ranged(files: FileState) -> Iterator[FileState]:
    """Yield files in parts of adjacent paths, so that later changes affect few parts."""
    live, gone = (pc.sort_indices(side["path"]) for side in (files.live, files.tombstones))
    for start in range(0, max(len(live), len(gone)), PART_ROWS):
        yield FileState(
            files.live.take(live.slice(start, PART_ROWS)),
            files.tombstones.take(gone.slice(start, PART_ROWS)),
        )


def _parts_of_base(
    context: Context, snapshot: Snapshot, writer: _PartWriter, without: set[str], undo: Any
) -> list[Part]:
    """Let the engine write the untouched files of the previous checkpoint."""
    if not snapshot.checkpoint:
        return []
    sidecars = [sidecar for sidecar in snapshot.sidecars if sidecar.path not in without]
    sources = list_sources(context.store, snapshot.checkpoint, sidecars)
    shares = choose_parts(sources, PART_ROWS)
    engine = context.engine
    if type(engine) is Threads and not engine.workers:  # The caller has chosen no number.
        engine = Threads(min(_PARTS_AT_ONCE, cpu_count() or 1))
    found = map_all(engine, partial(_PartWriter.write, writer), shares, undo=undo)
    return [part for part in found if part is not None]


def require_checkpointable(store: Store, snapshot: Snapshot) -> None:
    """Raise if txlog cannot write the kind of checkpoint that the table requires."""
    store.require_writable()
    require_table_writable(snapshot, removes_rows=False)
