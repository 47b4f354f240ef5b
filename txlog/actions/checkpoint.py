"""Actions that only V2 checkpoints hold: `checkpointMetadata` and `sidecar`."""

from __future__ import annotations

from txlog.actions.base import Action, Long


class CheckpointMetadata(Action):
    """The mark of a V2 checkpoint, which has exactly one."""

    version: Long
    tags: dict[str, str | None] | None = None


class Sidecar(Action):
    """A Parquet file beside a V2 checkpoint that holds its `add` and `remove` rows."""

    path: str  # Percent-encoded; a bare name is below `_delta_log/_sidecars`.
    size_in_bytes: Long
    modification_time: Long  # Milliseconds since the epoch, UTC.
    tags: dict[str, str | None] | None = None
