"""Options that all writing verbs take."""

from __future__ import annotations

from dataclasses import dataclass

from txlog.errors import InvalidInputError, InvalidTypeError
from txlog.writing.files import TARGET_FILE_BYTES


@dataclass(frozen=True)
class WriteOptions:
    """The sizes of data files, and a text to record in the commit."""

    target_file_bytes: int = TARGET_FILE_BYTES
    max_rows_per_file: int | None = None
    user_metadata: str | None = None

    def __post_init__(self) -> None:
        for name in ("target_file_bytes", "max_rows_per_file"):
            value = getattr(self, name)
            if value is not None and (type(value) is not int or value < 1):
                kind = InvalidInputError if type(value) is int else InvalidTypeError
                raise kind(
                    argument=name,
                    reason=f"a whole number above 0 was expected, not {value!r}",
                    remedy="Leave it out for the default",
                )
        if self.user_metadata is not None and not isinstance(self.user_metadata, str):
            raise InvalidTypeError(
                argument="user_metadata",
                reason=f"text was expected, not {type(self.user_metadata).__name__}",
                remedy="Pass text, such as json.dumps(value)",
            )
