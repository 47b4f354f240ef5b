"""A dbt project whose tables are of txlog, built with dbt-spark and a session of Spark."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

DRIVER = Path(__file__).parent / "dbt_spark_driver.py"


def test_a_project_is_built_and_built_again(tmp_path: Path) -> None:
    pytest.importorskip(
        "dbt.adapters.spark.session", reason="pip install 'dbt-core==1.10.*' 'dbt-spark==1.10.*'"
    )
    done = subprocess.run(
        [sys.executable, DRIVER, tmp_path], capture_output=True, text=True, check=False, timeout=900
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    assert json.loads(done.stdout.splitlines()[-1]) == {
        "whole": [[2, "Bea"], [3, "Cid"]],
        "seen": [[2, "BEA"], [3, "CID"]],
        "added": [[1, "Ann", None], [2, "Bob", None], [3, "Cid", 1]],
        "merged": [[1, "Ann"], [2, "Bea"], [3, "Cid"]],
        "days": [[1, "Ann"], [2, "Bea"], [3, "Cid"]],
        "people": [[1, "Ann", False], [2, "Bea", True], [2, "Bob", False], [3, "Cid", True]],
        "versions": 4,  # Each build makes the table, and comments on a column.
    }
