"""Separate drivers: one with little memory, one whose cluster retries tasks."""

import json
import subprocess
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from own_driver import run_driver

import txlog
from tests.moved import moved

pytestmark = [pytest.mark.spark, pytest.mark.exhaustive]

HERE = Path(__file__).parent
FILES, ROWS, WIDTH = 4, 40_000, 1_000
WHERE = "noise LIKE '7%'"
MORE = 32 * 1024 * 1024  # What the driver may use besides what it has; a file has about as much.


def run_small(program: str, *arguments: object, timeout_s: float = 600) -> str:
    # Other allocators of Arrow set a gigabyte aside before they need it.
    env = {"ARROW_DEFAULT_MEMORY_POOL": "system", "MALLOC_ARENA_MAX": "2"}
    return run_driver(program, *arguments, env=env, timeout_s=timeout_s).stdout.strip()


def run_without_memory(*arguments: object) -> str:
    """Run the small driver where it must run out of memory.

    A thread that finds none while it begins makes the interpreter wait for it for ever.
    """
    for _ in range(2):
        try:
            return run_small("small_driver.py", *arguments, timeout_s=150)
        except subprocess.TimeoutExpired:
            continue
    return run_small("small_driver.py", *arguments)


def noise(file: int) -> pa.Table:
    """Return texts that no codec makes smaller than half, in one row group."""
    digits = np.random.default_rng(file).integers(33, 127, ROWS * WIDTH, dtype=np.uint8)
    offsets = pa.array(range(0, ROWS * WIDTH + 1, WIDTH), pa.int32())
    texts = pa.StringArray.from_buffers(ROWS, offsets.buffers()[1], pa.py_buffer(digits))
    return pa.table({"x": pa.array(range(file * ROWS, (file + 1) * ROWS)), "noise": texts})


def test_a_delete_over_more_than_the_driver_can_hold(tmp_path: Path) -> None:
    expected: set[int] = set()
    for file in range(FILES):
        data = noise(file)
        # Without deletion vectors any reader of Parquet can tell which rows are left.
        properties = {"delta.enableDeletionVectors": "false"}
        txlog.write(tmp_path, data, mode="append", properties=properties)
        starts = data["noise"].to_pylist()
        expected |= {x for x, text in zip(data["x"].to_pylist(), starts, strict=True)
                     if text[0] != "7"}  # fmt: skip
    size = sum(file.stat().st_size for file in tmp_path.glob("*.parquet"))
    assert size > 3 * MORE
    assert run_without_memory(tmp_path, WHERE, "threads", MORE) == "no memory"
    assert txlog.Table(tmp_path).version == FILES - 1
    deleted = run_small("small_driver.py", tmp_path, WHERE, "spark", MORE)
    assert deleted == f"deleted {FILES * ROWS - len(expected)}"
    left = pa.concat_tables(
        pq.read_table(path, columns=["x"], partitioning=None) for path in live_files(tmp_path)
    )
    assert left.num_rows == len(expected)
    assert set(left["x"].to_pylist()) == expected


def live_files(path: Path) -> list[Path]:
    """Return the files that the log names, by its JSON alone."""
    live: set[str] = set()
    for commit in sorted((path / "_delta_log").glob("*.json")):
        actions = [json.loads(line) for line in commit.read_text().splitlines()]
        live -= {action["remove"]["path"] for action in actions if "remove" in action}
        live |= {action["add"]["path"] for action in actions if "add" in action}
    return [path / name for name in live]


@pytest.mark.spec("ENG-1", "ENG-3")
def test_a_task_that_is_tried_again_leaves_orphans_at_most(tmp_path: Path) -> None:
    path, died = tmp_path / "t", tmp_path / "died"
    rows = pa.table({"x": list(range(60))})
    table = txlog.write(path, rows, options=txlog.WriteOptions(max_rows_per_file=10))
    table.alter.add_features("txlog.fragments")
    run_small("retry_driver.py", "columns", path, died)
    assert died.exists()
    made = txlog.Table(path)
    assert made.version == table.version + 1
    found = made.to_arrow().sort_by("x")
    assert found["x"] == found["y"] == rows["x"]
    named = {file.path for held in made.fragments() for file in held.files}
    stored = {file.name for file in path.glob("*.parquet")}
    assert named < stored  # What the first attempt wrote is there still, and nothing names it.


@pytest.mark.spec("SPK-31")
def test_the_share_of_a_lost_worker_is_planned_again(tmp_path: Path) -> None:
    path, died = tmp_path / "t", tmp_path / "died"
    properties = {"delta.checkpointPolicy": "v2"}
    with moved({"txlog.checkpoint.sidecars:PART_ROWS": 1}):
        table = txlog.write(path, pa.table({"x": [0, 1, 2]}), properties=properties)
        table.append(pa.table({"x": [3, 4, 5]}))
        table.append(pa.table({"x": [6]}))
        table.maintenance.checkpoint()
    assert run_small("retry_driver.py", "plan", path, died) == "[4, 5, 6]"
    assert died.exists()
