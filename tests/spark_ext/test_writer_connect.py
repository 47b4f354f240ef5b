"""Writing through Spark Connect."""

import json
from pathlib import Path

import pytest
from own_driver import NEW_PORT, run_driver

import txlog

pytestmark = [pytest.mark.spark, pytest.mark.exhaustive]


def test_writing_through_connect(tmp_path: Path) -> None:
    pytest.importorskip("grpc")
    done = run_driver("connect_driver.py", tmp_path, env=NEW_PORT)
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
