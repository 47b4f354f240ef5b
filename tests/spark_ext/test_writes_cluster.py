"""Writes on a cluster of two hosts: several attempts at once, and killed executors."""

import sys
from pathlib import Path

import pytest
from cluster_driver import FATED, FATES, ROWS, WAYS
from own_driver import run_driver

import txlog

pytestmark = [pytest.mark.spark, pytest.mark.exhaustive]


@pytest.fixture(scope="module")
def driven(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if not sys.platform.startswith("linux"):
        pytest.skip("only Linux has several loopback addresses without setting them up")
    folder = tmp_path_factory.mktemp("cluster")
    run_driver("cluster_driver.py", folder)
    return folder


@pytest.mark.spec("STR-46")
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("fate", FATES)
def test_rows_are_there_once_whatever_ran_twice(driven: Path, fate: str, way: str) -> None:
    name = f"{fate}, {way}"
    began = {path.name for path in (driven / "notes").glob(f"{name}-{FATED}-*")}
    assert fate == "executor dies" or f"{name}-{FATED}-0" in began
    assert len(began) > 1
    table = txlog.Table(driven / name)
    assert table.version == 0
    assert sorted(table.to_arrow()["id"].to_pylist()) == list(range(ROWS))
    assert sum(table.files()["num_records"].to_pylist()) == ROWS
    listed, there = files_of(driven / name)
    assert listed <= there


def files_of(path: Path) -> tuple[set[str], set[str]]:
    """Return the files that the log has, and those that are there."""
    there = {found.name for found in path.glob("*.parquet")}
    return set(txlog.Table(path).files()["path"].to_pylist()), there


def test_attempts_that_do_not_count_had_written_files(driven: Path) -> None:
    found = [files_of(driven / f"{fate}, {way}") for fate in FATES for way in WAYS]
    assert sum(len(there - listed) for listed, there in found) > 0
