"""Other engines read a table with branches as before, and none writes it without their feature."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import txlog
from tests.interop.test_without_the_feature import by_duckdb

deltalake: Any = pytest.importorskip("deltalake")
pl = pytest.importorskip("polars")


def by_kernel(root: Path) -> pa.Table:
    kernel = pytest.importorskip("polars_deltalake")
    return kernel.scan_delta(str(root)).collect().to_arrow()


READERS: dict[str, Callable[[Path], pa.Table]] = {
    "deltalake": lambda root: deltalake.DeltaTable(str(root)).to_pyarrow_table(),
    "polars": lambda root: pl.scan_delta(str(root)).collect().to_arrow(),
    "duckdb": by_duckdb,
    "kernel": by_kernel,
}


@pytest.mark.spec("BRA-4", "BRA-10")
@pytest.mark.parametrize("engine", READERS)
@pytest.mark.parametrize("checkpoint", [False, True])
def test_a_table_with_branches_is_read(tmp_path: Path, engine: str, checkpoint: bool) -> None:
    def found() -> list[int]:
        return sorted(READERS[engine](root)["x"].to_pylist())

    root = tmp_path / "t"
    table = txlog.write(root, pa.table({"x": [1, 2]}))
    for name in ("b", "c"):
        table.branches.create(name)
        branch = txlog.Table(root, branch=name)
        branch.append(pa.table({"x": [3]}))
        branch.append(pa.table({"x": [4]}))
        branch.maintenance.checkpoint()
    if checkpoint:
        table.maintenance.checkpoint()
    assert found() == [1, 2]
    table.branches.publish("b")
    assert found() == [1, 2, 3, 4]


def test_an_engine_without_the_feature_does_not_write(tmp_path: Path) -> None:
    table = txlog.write(tmp_path / "t", pa.table({"x": [1, 2]}))
    table.branches.create("b")
    with pytest.raises(deltalake.exceptions.DeltaError, match="tableBranching-dev"):
        deltalake.write_deltalake(table.uri, pa.table({"x": [3]}), mode="append")
    assert table.refresh().count() == 2


@pytest.mark.spec("BRA-4")
def test_a_clean_up_of_others_leaves_the_logs_of_branches(tmp_path: Path) -> None:
    table = txlog.write(
        tmp_path / "t",
        pa.table({"x": [1, 2]}),
        properties={"delta.logRetentionDuration": "interval 0 seconds"},
    )
    table.branches.create("b")
    txlog.Table(table.uri, branch="b").append(pa.table({"x": [3]}))
    before = sorted((tmp_path / "t" / "_delta_log" / "_branches").rglob("*"))
    deltalake.DeltaTable(table.uri).cleanup_metadata()
    assert sorted((tmp_path / "t" / "_delta_log" / "_branches").rglob("*")) == before
    assert txlog.Table(table.uri, branch="b").count() == 3
