"""Opening, listing and planning, by txlog and by its peers: a function for each.

Each takes the table's folder, and returns an answer that must be the same for all.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from log_tables import SPAN

Work = Callable[[Path], Any]
LOW, HIGH = 500 * SPAN, 600 * SPAN - 1
"""A range of `n0` that 100 files hold."""
REGION, DAY = "r01", "2026-01-03"


def known(root: Path) -> int:
    return int(root.name.rpartition("-")[2])


# -- txlog


def txlog_about(root: Path) -> Any:
    import txlog

    table = txlog.Table(root)
    return table.version, len(table.schema.names), table.protocol.min_reader_version


def txlog_list(root: Path) -> Any:
    import txlog

    files = txlog.Table(root).files(["path", "size_bytes"])
    return files.num_rows, files.column_names


def txlog_plan(where: str) -> Work:
    def plan(root: Path) -> Any:
        import txlog

        return txlog.Table(root).scan(where=where).explain().files_to_read

    return plan


# -- deltalake


def delta_about(root: Path) -> Any:
    from deltalake import DeltaTable

    table = DeltaTable(str(root))
    return table.version(), len(table.schema().fields), table.protocol().min_reader_version


def delta_list(root: Path) -> Any:
    from deltalake import DeltaTable

    return DeltaTable(str(root)).get_add_actions().num_rows


def delta_partition(root: Path) -> Any:
    from deltalake import DeltaTable

    return len(DeltaTable(str(root)).file_uris([("region", "=", REGION), ("day", "=", DAY)]))


def delta_range(root: Path) -> Any:
    import pyarrow.dataset as ds
    from deltalake import DeltaTable

    held = (ds.field("n0") >= LOW) & (ds.field("n0") <= HIGH)
    return len(list(DeltaTable(str(root)).to_pyarrow_dataset().get_fragments(held)))
