"""Tasks that are retried, in a separate driver."""

from pathlib import Path

import pytest
from own_driver import run_driver

import txlog

# Spark waits between the attempts of a task.
pytestmark = [pytest.mark.spark, pytest.mark.exhaustive]


@pytest.fixture(scope="module")
def driven(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The driver's folder."""
    folder = tmp_path_factory.mktemp("driven")
    run_driver("write_driver.py", folder)
    return folder


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
    driven: Path, name: str, orphans: int | None
) -> None:
    folder = driven / name
    table = txlog.Table(folder)
    assert table.version == 0
    assert sorted(table.to_arrow()["id"].to_pylist()) == list(range(1000))
    assert sum(table.files()["num_records"].to_pylist()) == 1000
    left = {path.name for path in folder.glob("*.parquet")} - set(table.files()["path"].to_pylist())
    if orphans is not None:
        assert len(left) == orphans
