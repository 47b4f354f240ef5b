"""Options that all writing verbs take."""

from __future__ import annotations

from dataclasses import dataclass

from txlog.errors import InvalidInputError
from txlog.writing.files import TARGET_FILE_BYTES


@dataclass(frozen=True)
class WriteOptions:
    """How files are cut, and what to note in the commit."""

    target_file_bytes: int = TARGET_FILE_BYTES
    max_rows_per_file: int | None = None
    user_metadata: str | None = None

    def __post_init__(self) -> None:
        for name in ("target_file_bytes", "max_rows_per_file"):
            value = getattr(self, name)
            if value is not None and (type(value) is not int or value < 1):
                raise InvalidInputError(
                    argument=name, reason=f"{value!r} is no whole number above 0"
                )
        if self.user_metadata is not None and not isinstance(self.user_metadata, str):
            raise InvalidInputError(argument="user_metadata", reason="text was expected")
