"""Tasks that are tried again, and what Spark's logs tell of a write: a driver of its own."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from write_driver import SECRET

import txlog

# Spark waits between the attempts of a task.
pytestmark = [pytest.mark.spark, pytest.mark.exhaustive]


@pytest.fixture(scope="module")
def driven(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The driver's folder, and all that Spark logged meanwhile."""
    folder = tmp_path_factory.mktemp("driven")
    done = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("write_driver.py")), str(folder)],
        env={
            **os.environ,
            "PYSPARK_PYTHON": sys.executable,
            "PYTHONPATH": os.pathsep.join([str(Path(txlog.__file__).parents[1]), *sys.path]),
        },
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    logged = done.stdout + done.stderr
    assert done.returncode == 0, logged[-5000:]
    return folder, logged


@pytest.mark.spec("STR-46")
@pytest.mark.parametrize(
    ("name", "orphans"),
    [
        ("format-fails", 0),  # An attempt that raises deletes its files.
        ("function-fails", 0),
        ("format-dies", None),  # One that dies cannot.
        ("function-dies", None),
        ("late", 2),  # Nor one that raises when its files are out of its hands.
    ],
)
def test_tasks_that_are_tried_again_double_nothing(
    driven: tuple[Path, str], name: str, orphans: int | None
) -> None:
    folder = driven[0] / name
    table = txlog.Table(folder)
    assert table.version == 0
    assert sorted(table.to_arrow()["id"].to_pylist()) == list(range(1000))
    assert sum(table.files()["num_records"].to_pylist()) == 1000
    left = {path.name for path in folder.glob("*.parquet")} - set(table.files()["path"].to_pylist())
    if orphans is not None:
        assert len(left) == orphans


@pytest.mark.spec("STR-48")
def test_secrets_are_shown_nowhere(driven: tuple[Path, str]) -> None:
    folder, logged = driven
    (said,) = json.loads((folder / "seen.json").read_text())
    # What is searched is there, and would have shown them.
    for expected in ("BatchScan txlog", "schema-mismatch", "a JSON object of options", "numInput"):
        assert expected in said
    assert "INFO" in logged
    events = [path for path in (folder / "events").rglob("*") if path.is_file()]
    text = "".join(path.read_text(errors="replace") for path in events)
    assert "AppendData RelationV2" in text
    assert "secretStorageOptions=" in text
    kept = [path for path in folder.rglob("*") if path.is_file() and path not in events]
    assert any("checkpoint" in path.parts for path in kept)
    found = {
        "said": SECRET in said,
        "logged": SECRET in logged,
        "events": SECRET in text,
        "kept": [path.name for path in kept if SECRET.encode() in path.read_bytes()],
    }
    assert found == {"said": False, "logged": False, "events": False, "kept": []}
