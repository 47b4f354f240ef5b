"""Writing through Spark Connect."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import txlog

pytestmark = [pytest.mark.spark, pytest.mark.exhaustive]


def test_writing_through_connect(tmp_path: Path) -> None:
    pytest.importorskip("grpc")
    done = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("connect_driver.py")), str(tmp_path)],
        env={
            **os.environ,
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_TESTING": "1",  # The server takes a port that is free.
            "PYTHONPATH": os.pathsep.join([str(Path(txlog.__file__).parents[1]), *sys.path]),
        },
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-5000:]
    assert json.loads(done.stdout.splitlines()[-1]) == {
        "connect": True,
        "made": 0,
        "added": 1,
        "again": True,
        "error": True,
        "limits": [None, None],  # As the session had them.
    }
    found = txlog.Table(tmp_path / "function")
    assert sorted(found.to_arrow()["id"].to_pylist()) == sorted([*range(100), *range(10)])
    assert found.partition_columns == ["part"]
    assert txlog.Table(tmp_path / "format").count() == 100
    for name in ("foreach", "sink"):
        table = txlog.Table(tmp_path / name)
        assert sorted(table.to_arrow()["id"].to_pylist()) == sorted([*range(5)] * 2)
    assert txlog.Table(tmp_path / "foreach").transaction_version("ingest") == 0
