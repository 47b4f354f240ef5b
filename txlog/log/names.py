"""Names of files in `_delta_log`: parse them, and make them."""

from __future__ import annotations

import re
from typing import Literal, NamedTuple

LOG_FOLDER = "_delta_log"

Kind = Literal["commit", "checkpoint", "compaction", "checksum"]

_UUID = r"[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}"
COMPACTED = ".compacted.json"
_BELOW = f"{LOG_FOLDER}/"
_COMMIT_LENGTH = 25  # The length of `00000000000000000007.json`.
_LAST_VERSION = 2**63 - 1  # A greater number is not a version.
_NAME = re.compile(
    rf"""(?P<version>\d{{20}})\.(?:
        (?P<checksum>crc)
      | (?P<end>\d{{20}})\.compacted\.json
      | checkpoint\.(?:
            parquet
          | (?P<part>\d{{10}})\.(?P<parts>\d{{10}})\.parquet
          | (?P<uuid>{_UUID})\.(?P<format>json|parquet)
        )
    )""",
    re.VERBOSE | re.ASCII,
)


class LogFile(NamedTuple):
    """A file of the log, with the facts that its name contains."""

    name: str
    kind: Kind
    version: int  # For a compaction, the first version.
    size: int = 0  # Bytes.
    modified_ms: int | None = None  # As in `ObjectInfo`; None also if it was not asked for.
    end: int = 0  # For a compaction, the last version.
    part: int = 0  # For a multi-part checkpoint, from 1; 0 for all others.
    parts: int = 1
    uuid: str | None = None  # A checkpoint with a UUID in its name is a V2 checkpoint.
    content: bytes | None = None  # The bytes of a commit that a catalog stores instead of a file.

    @property
    def last_version(self) -> int:
        """The last version that the file covers."""
        return self.end if self.end > self.version else self.version

    @property
    def path(self) -> str:
        """The file's path, relative to the table's root."""
        return _BELOW + self.name


def parse_name(name: str, *, size: int = 0, modified_ms: int | None = None) -> LogFile | None:
    """Return the log file of a name, or None if the name is not that of a log file."""
    if len(name) == _COMMIT_LENGTH and name[-5:] == ".json":  # Most names are commits.
        digits = name[:-5]
        if digits.isdigit() and digits.isascii() and (version := int(digits)) <= _LAST_VERSION:
            return LogFile(name, "commit", version, size, modified_ms)
        return None
    found = _NAME.fullmatch(name)
    if found is None:
        return None
    version = int(found["version"])
    if version > _LAST_VERSION:
        return None
    if found["checksum"]:
        return LogFile(name, "checksum", version, size, modified_ms)
    if found["end"]:
        end = int(found["end"])
        if not version < end <= _LAST_VERSION:
            return None
        return LogFile(name, "compaction", version, size, modified_ms, end=end)
    if found["parts"]:
        part, parts = int(found["part"]), int(found["parts"])
        if not 1 <= part <= parts:
            return None
        return LogFile(name, "checkpoint", version, size, modified_ms, part=part, parts=parts)
    return LogFile(name, "checkpoint", version, size, modified_ms, uuid=found["uuid"])


def commit_name(version: int) -> str:
    """Return the name of a version's commit, such as `00000000000000000007.json`."""
    return f"{version:020d}.json"


def log_path(name: str) -> str:
    """Return the path of a log file, relative to the table's root."""
    return _BELOW + name
