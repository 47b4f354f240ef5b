"""The action `commitInfo`: who made a commit and how. Its fields are not fixed."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BeforeValidator, ConfigDict
from pydantic.alias_generators import to_camel

from txlog.actions.base import Action, Long


def _only(kind: type, bits: int = 0) -> BeforeValidator:
    """Return a validator that reads a value of another type as absent."""

    def checked(value: Any) -> Any:
        if type(value) is not kind or (bits and not -(2 ** (bits - 1)) <= value < 2 ** (bits - 1)):
            return None
        return value

    return BeforeValidator(checked)


class CommitInfo(Action):
    """Who made a commit, and how. Unknown fields are kept, unlike in other actions."""

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
    tags: Any = None
    txn_id: Annotated[str | None, _only(str)] = None
    in_commit_timestamp: Annotated[Long | None, _only(int, 64)] = None
    txlog_crc32: Annotated[str | None, _only(str)] = (
        None  # Of the commit's bytes; `txlog.log.seal` says how.
    )

    def to_json(self) -> dict[str, Any]:
        """Return the action's JSON object, unknown fields included."""
        return {**(self.model_extra or {}), **super().to_json()}
