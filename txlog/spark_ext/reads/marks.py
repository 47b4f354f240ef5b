"""Marks in the plans of frames, by which a write finds out whether its frame reads its table."""

from __future__ import annotations

from collections.abc import Mapping

from txlog.base.texts import without_secrets
from txlog.store.base import Store
from txlog.store.branches import branch_id

READ_TABLE = "txlog.readTable"
READ_VERSION = "txlog.readVersion"
READ_BRANCH = "txlog.readBranch"


def marks_of(store: Store, version: int) -> Mapping[str, str]:
    """Return options that have no effect on a read of the latest version of a table or a branch.

    Spark keeps the options of a read in all plans that contain it, and shows them.
    """
    marks = {READ_TABLE: without_secrets(store.root), READ_VERSION: str(version)}
    branch = branch_id(store)
    return marks if branch is None else {**marks, READ_BRANCH: branch}
