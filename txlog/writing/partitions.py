"""Folder names of partitions, by Hive's convention.

By the protocol partition values come from the log, but some readers take them from the folder, so
its name says them exactly.
"""

from __future__ import annotations

from collections.abc import Mapping

_NULL = "__HIVE_DEFAULT_PARTITION__"
_ESCAPED = frozenset("\"#%'*/:=?\\{[]^\x7f") | {chr(code) for code in range(32)}
_NAME_BYTES = 255  # Longest name of a folder on common file systems.


def partition_folder(values: Mapping[str, str | None]) -> str:
    """Return the folder of a partition, or an empty text for the table's root.

    Files of a partition whose folder could not be named, or would be taken for a hidden one, go
    to the root.
    """
    steps = [
        f"{_escaped(name)}={_NULL if value is None else _escaped(value)}"
        for name, value in values.items()
    ]
    if any(step.startswith(("_", ".")) or len(step.encode()) > _NAME_BYTES for step in steps):
        return ""
    return "/".join(steps)


def _escaped(text: str) -> str:
    return "".join(f"%{ord(c):02X}" if c in _ESCAPED else c for c in text)
