"""Opening, listing, planning and refreshing, by txlog and by its peers: a function for each.

Each takes the table's folder, and returns an answer, which must be the same for txlog and
deltalake. polars-deltalake has no call that lists files: its plan is timed until it opens the first
file, which is not there.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from log_tables import SPAN, TRAILING, append_commits

Work = Callable[[Path], Any]
LOW, HIGH = 500 * SPAN, 600 * SPAN - 1
"""A range of `n0` that 100 files hold."""
REGION, DAY = "r01", "2026-01-03"
IN_PARTITION = f"region = '{REGION}' AND day = '{DAY}'"
IN_RANGE = f"n0 BETWEEN {LOW} AND {HIGH}"


# -- txlog


def txlog_about(root: Path) -> Any:
    import txlog

    table = txlog.Table(root)
    return table.version, len(table.schema.names), table.protocol.min_reader_version


def txlog_list(root: Path) -> Any:
    import txlog

    return txlog.Table(root).files(["path", "size_bytes"]).num_rows


def txlog_plan(where: str) -> Work:
    def plan(root: Path) -> Any:
        import txlog

        return len(txlog.Table(root).scan(where=where).file_uris())

    return plan


def txlog_uris(root: Path) -> Any:
    import txlog

    return len(txlog.Table(root).scan().file_uris())


def txlog_fragments(root: Path) -> Any:
    import txlog

    fragments = txlog.Table(root).fragments()
    assert fragments[len(fragments) // 2].physical_rows
    return len(fragments)


def txlog_count(root: Path) -> Any:
    import txlog

    scan = txlog.Table(root).scan()
    assert scan.explain().files_to_read
    return scan.count()


def txlog_read(root: Path) -> Any:
    import txlog

    return txlog.Table(root).to_arrow().num_rows


def txlog_refresh(root: Path) -> Callable[[], Any]:
    import txlog

    table = txlog.Table(root)
    append_commits(root, table.version + 1, 1, 1)

    def work() -> Any:
        table.refresh()
        return table.version

    return work


# -- deltalake


def delta_about(root: Path) -> Any:
    from deltalake import DeltaTable

    table = DeltaTable(str(root))
    return table.version(), len(table.schema().fields), table.protocol().min_reader_version


def delta_list(root: Path) -> Any:
    from deltalake import DeltaTable

    return DeltaTable(str(root)).get_add_actions().num_rows


def delta_plan(where: str) -> Work:
    def plan(root: Path) -> Any:
        from deltalake import DeltaTable

        return len(DeltaTable(str(root)).file_uris(file_pruning_predicate=where))

    return plan


def delta_uris(root: Path) -> Any:
    from deltalake import DeltaTable

    return len(DeltaTable(str(root)).file_uris())


def delta_count(root: Path) -> Any:
    import pyarrow as pa
    import pyarrow.compute as pc
    from deltalake import DeltaTable

    added = pa.table(DeltaTable(str(root)).get_add_actions())
    return pc.sum(added["num_records"]).as_py()


def delta_read(root: Path) -> Any:
    from deltalake import DeltaTable

    return DeltaTable(str(root)).to_pyarrow_table().num_rows


def delta_refresh(root: Path) -> Callable[[], Any]:
    from deltalake import DeltaTable

    table = DeltaTable(str(root))
    append_commits(root, table.version() + 1, 1, 1)

    def work() -> Any:
        table.update_incremental()
        return table.version()

    return work


# -- polars-deltalake, the kernel


def kernel_about(root: Path) -> Any:
    import polars_deltalake

    state = polars_deltalake.TableState(str(root))
    return len(state.schema())


def kernel_plan(**conditions: Any) -> Work:
    def plan(root: Path) -> Any:
        import polars as pl
        import polars_deltalake

        scan = polars_deltalake.TableScan(polars_deltalake.TableState(str(root)))
        held = [
            pl.col(name).is_between(*found) if isinstance(found, tuple) else pl.col(name) == found
            for name, found in conditions.items()
        ]
        scan.configure(["id"], None if held else 1, pl.all_horizontal(held) if held else None)
        try:
            return scan.next()
        except RuntimeError as error:
            if "o such file" not in str(error):
                raise
            return None

    return plan


# -- floors: the same bytes, read and parsed, and nothing done with them


def floor_commits(root: Path) -> Any:
    import orjson

    log = str(root / "_delta_log")
    count = 0
    for name in sorted(entry.name for entry in os.scandir(log)):
        file = os.open(f"{log}/{name}", os.O_RDONLY)
        data = os.read(file, 1 << 16)
        os.close(file)
        count += sum(
            "add" in row for row in orjson.loads(b"[" + data.strip().replace(b"\n", b",") + b"]")
        )
    return count


def floor_lines(root: Path) -> Any:
    import orjson

    count = 0
    for path in sorted((root / "_delta_log").glob("*.json")):
        count += sum("add" in orjson.loads(line) for line in path.read_bytes().splitlines())
    return count


def floor_columns(*names: str, kept: bool = False) -> Work:
    """Read columns of files; `kept`: what was read is the answer, and not dropped at once."""

    def read(root: Path) -> Any:
        import pyarrow.parquet as pq

        (part,) = (root / "_delta_log").glob("*.checkpoint*.parquet")
        found = 0
        held = []
        for batch in pq.ParquetFile(part, pre_buffer=False, buffer_size=1 << 20).iter_batches(
            16_384, columns=[f"add.{name}" for name in names]
        ):
            found += batch.num_rows - batch.column(0).null_count
            if kept:
                held.append(batch)
        return found + TRAILING

    return read
