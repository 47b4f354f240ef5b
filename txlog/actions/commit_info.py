"""The action `commitInfo`: who made a commit and how. Its fields are not fixed."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

from txlog.actions.base import Action, Long
from txlog.actions.fields import OR_NONE


class CommitInfo(Action):
    """Who committed what, and how. Unlike in other actions, unknown fields are kept.

    The action is free in form, and decides nothing.
    """

    keeps_unknown: ClassVar[bool] = True
    model_extra: ClassVar[dict[str, Any]]  # The unknown fields.

    timestamp: Any = None  # Milliseconds since the epoch, UTC.
    operation: Any = None
    operation_parameters: Any = None
    operation_metrics: Any = None
    read_version: Any = None
    isolation_level: Any = None
    is_blind_append: Any = None
    engine_info: Any = None
    user_metadata: Any = None
    tags: Any = None
    txn_id: Annotated[str | None, OR_NONE] = None
    in_commit_timestamp: Annotated[Long | None, OR_NONE] = None
    # Of the commit's bytes; `txlog.log.seal` says how.
    txlog_crc32: Annotated[str | None, OR_NONE] = None

    def to_json(self) -> dict[str, Any]:
        """Return the action's JSON object, unknown fields included."""
        return {**self.model_extra, **super().to_json()}
