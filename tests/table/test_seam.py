"""The public seam: what contradicts itself is refused."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import txlog
from txlog.extend import context_of, open_store, open_table, write_files


@pytest.mark.parametrize("more", [{"partition_by": ["x"]}, {"properties": {"mine": "1"}}])
def test_files_like_a_version_have_its_partitioning(tmp_path: Path, more: dict[str, Any]) -> None:
    table = txlog.write(tmp_path, pa.table({"x": [1]}))
    with pytest.raises(txlog.InvalidInputError, match="in like"):
        write_files(context_of(table), pa.table({"x": [2]}), like=table.snapshot, **more)
    assert len([*tmp_path.glob("*.parquet")]) == 1


@pytest.mark.parametrize("more", [{"version": 0}, {"timestamp": "2026-01-01"}])
def test_a_version_is_given_once(tmp_path: Path, more: dict[str, Any]) -> None:
    table = txlog.write(tmp_path, pa.table({"x": [1]}))
    store = open_store(table.uri)
    assert open_table(store, snapshot=table.snapshot).version == 0
    with pytest.raises(txlog.InvalidInputError, match="Pass one of them"):
        open_table(store, snapshot=table.snapshot, **more)
