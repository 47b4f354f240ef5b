"""Deletions are deletions only outside of a rehearsal, whichever verb deletes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import txlog
from txlog.extend import rehearsing

ROWS = pa.table({"x": [1, 2, 3]})


def used(path: Path) -> txlog.Table:
    """Return a table with files that a vacuum deletes, old log files, and a dropped feature."""
    table = txlog.write(path, ROWS, properties={"delta.logRetentionDuration": "interval 0 hours"})
    for _ in range(3):
        table.append(ROWS)
    table.delete("x = 1")
    table.alter.drop_feature("deletionVectors", txn=("job", 1))
    table.optimize.compact()
    table.maintenance.checkpoint()
    return table


def vacuumed(table: txlog.Table, **more: Any) -> object:
    return table.vacuum(0, dry_run=False, enforce_retention_duration=False, **more)


DELETIONS: dict[str, Callable[[txlog.Table], object]] = {
    "vacuum": vacuumed,
    "vacuum to the trash": lambda table: vacuumed(table, trash=True),
    "expire": lambda table: table.maintenance.expire(0, dry_run=False),
    "drop a feature again": lambda table: table.alter.drop_feature(
        "deletionVectors", truncate_history=True, txn=("job", 1)
    ),
    "drop the protection": lambda table: table.alter.drop_feature(
        "checkpointProtection", truncate_history=True
    ),
}


def content(path: Path) -> dict[str, bytes]:
    return {str(one): one.read_bytes() for one in sorted(path.rglob("*")) if one.is_file()}


@pytest.mark.parametrize("name", DELETIONS)
def test_a_rehearsal_deletes_and_writes_nothing(name: str, tmp_path: Path) -> None:
    table = used(tmp_path / "t")
    before = content(tmp_path)
    with rehearsing():
        DELETIONS[name](table)
    assert content(tmp_path) == before
    DELETIONS[name](table)
    assert before.keys() - content(tmp_path).keys()
