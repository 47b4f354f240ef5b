"""Marks in the plans of frames, by which a write finds out whether its frame reads its table."""

from __future__ import annotations

from collections.abc import Mapping

READ_TABLE = "txlog.readTable"
READ_VERSION = "txlog.readVersion"


def marks_of(root: str, version: int) -> Mapping[str, str]:
    """Return options that have no effect on a read of the latest version of a table.

    Spark keeps the options of a read in all plans that contain it.
    """
    return {READ_TABLE: root, READ_VERSION: str(version)}
