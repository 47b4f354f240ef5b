"""`commitInfo`: provenance, free in form."""

from __future__ import annotations

from typing import Any

from pydantic import ConfigDict
from pydantic.alias_generators import to_camel

from txlog.actions.base import Action, Long


class CommitInfo(Action):
    """Who committed what, and how. Unlike in other actions, unknown fields are kept."""

    model_config = ConfigDict(
        frozen=True,
        strict=False,
        extra="allow",
        alias_generator=to_camel,
        populate_by_name=True,
    )

    timestamp: Any = None  # Milliseconds since the epoch, UTC.
    operation: Any = None
    operation_parameters: Any = None
    operation_metrics: Any = None
    read_version: Any = None
    isolation_level: Any = None
    is_blind_append: Any = None
    engine_info: Any = None
    user_metadata: Any = None
    txn_id: str | None = None
    in_commit_timestamp: Long | None = None
    txlog_crc32: str | None = None  # Of the commit's bytes; `txlog.log.seal` says how.

    def to_json(self) -> dict[str, Any]:
        """Return the action's JSON object, unknown fields included."""
        return {**(self.model_extra or {}), **super().to_json()}
