"""Marks in the plans of frames, by which a write finds out whether its frame reads its table."""

from __future__ import annotations

from collections.abc import Mapping

from txlog.base.texts import without_secrets

READ_TABLE = "txlog.readTable"
READ_VERSION = "txlog.readVersion"


def marks_of(root: str, version: int) -> Mapping[str, str]:
    """Return options that have no effect on a read of the latest version of a table.

    Spark keeps the options of a read in all plans that contain it, and shows them.
    """
    return {READ_TABLE: without_secrets(root), READ_VERSION: str(version)}
