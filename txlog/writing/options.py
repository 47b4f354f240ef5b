"""Options that all writing verbs take."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from txlog.commit.intent import Intent
from txlog.errors import InvalidInputError
from txlog.writing.files import TARGET_FILE_BYTES


@dataclass(frozen=True)
class StreamBatch:
    """A micro-batch of a streaming query, as a commit names it."""

    query_id: str
    epoch_id: int
    output_mode: Literal["Append", "Complete"]

    def stated(self, intent: Intent) -> Intent:
        """Return an intent under Delta's name for what a stream commits, with its parameters."""
        metrics = {
            "numAddedFiles": intent.metrics.get("numFiles", 0),
            "numRemovedFiles": intent.metrics.get("numRemovedFiles", 0),
            **{name: value for name, value in intent.metrics.items() if name != "numFiles"},
        }
        parameters = {
            "outputMode": self.output_mode,
            "queryId": self.query_id,
            "epochId": str(self.epoch_id),
        }
        return replace(intent, operation="STREAMING UPDATE", parameters=parameters, metrics=metrics)


@dataclass(frozen=True)
class WriteOptions:
    """How files are cut, and what to note in the commit."""

    target_file_bytes: int = TARGET_FILE_BYTES
    max_rows_per_file: int | None = None
    user_metadata: str | None = None
    stream_batch: StreamBatch | None = None  # What the commit is, if a stream makes it.

    def __post_init__(self) -> None:
        for name in ("target_file_bytes", "max_rows_per_file"):
            value = getattr(self, name)
            if value is not None and (type(value) is not int or value < 1):
                raise InvalidInputError(
                    argument=name, reason=f"{value!r} is no whole number above 0"
                )
        if self.user_metadata is not None and not isinstance(self.user_metadata, str):
            raise InvalidInputError(argument="user_metadata", reason="text was expected")

    def stated(self, intent: Intent) -> Intent:
        """Return an intent with what these options say of its commit."""
        return intent if self.stream_batch is None else self.stream_batch.stated(intent)
