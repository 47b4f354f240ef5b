"""A delete over a table that is larger than what its driver may use."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import txlog

pytestmark = [pytest.mark.spark, pytest.mark.exhaustive]

DRIVER = Path(__file__).with_name("small_driver.py")
FILES, ROWS, WIDTH = 5, 40_000, 1_000
MORE = 32 * 1024 * 1024  # What the driver may use besides what it has; a file has about as much.


def run_driver(path: Path, kind: str) -> str:
    done = subprocess.run(
        [sys.executable, str(DRIVER), str(path), "noise LIKE '7%'", kind, str(MORE)],
        env={
            **os.environ,
            "PYSPARK_PYTHON": sys.executable,
            "PYTHONPATH": os.pathsep.join(part for part in sys.path if part),
            # Other allocators of Arrow set a gigabyte aside before they need it.
            "ARROW_DEFAULT_MEMORY_POOL": "system",
            "MALLOC_ARENA_MAX": "2",
        },
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout.strip()


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
        txlog.write(tmp_path, data, mode="append")
        starts = data["noise"].to_pylist()
        expected |= {x for x, text in zip(data["x"].to_pylist(), starts, strict=True)
                     if text[0] != "7"}  # fmt: skip
    size = sum(file.stat().st_size for file in tmp_path.glob("*.parquet"))
    assert size > 4 * MORE
    assert run_driver(tmp_path, "threads") == "no memory"
    assert txlog.Table(tmp_path).version == FILES - 1
    assert run_driver(tmp_path, "spark") == f"deleted {FILES * ROWS - len(expected)}"
    made = txlog.Table(tmp_path)
    assert made.version == FILES
    # The files are as they were; the rows that are left are those that plain Python kept.
    assert made.count() == len(expected)
    assert set(made.to_arrow(["x"])["x"].to_pylist()) == expected
    stored = pq.read_table(tmp_path, columns=["x"], partitioning=None)
    assert stored.num_rows == FILES * ROWS
