"""Storage options reach executors: the stores of these drivers refuse calls without a token."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from locked_driver import READS, TOKENS, WRITES, ways_of
from locked_store import REFUSAL
from own_driver import NEW_PORT, run_driver

import txlog

pytestmark = [pytest.mark.spark, pytest.mark.exhaustive]

BASE = list(range(60))
LEFT = [x for x in BASE if x % 10 != 4]
NEW = list(range(100, 110))
ROWS = {"read_changes": BASE}
WRITTEN = {"make": NEW, "delete": [x for x in BASE if x % 10 != 3], "compact": BASE}
LOCK = "from locked_store import lock\nlock()\n"


def drive(kind: str, folder: Path) -> dict[str, Any]:
    """Return what came of each way with each token."""
    data = pa.table({"x": BASE})
    txlog.write(folder / "rows", data, options=txlog.WriteOptions(max_rows_per_file=10)).delete(
        "x % 10 = 4"
    )
    txlog.write(folder / "base", data, options=txlog.WriteOptions(max_rows_per_file=10))
    write_deltalake(folder / "feed", data, configuration={"delta.enableChangeDataFeed": "true"})
    site = folder / "site"
    site.mkdir()
    (site / "sitecustomize.py").write_text(LOCK)
    env = NEW_PORT if kind == "connect" else {}
    run_driver("locked_driver.py", folder, kind, env=env, path=site)
    seen: dict[str, Any] = json.loads((folder / "seen.json").read_text())
    return seen


@pytest.mark.parametrize("kind", ["classic", "connect"])
def test_storage_options_reach_executors(kind: str, tmp_path: Path) -> None:
    """One test for all ways, as each process that runs one starts a driver."""
    if kind == "connect":
        pytest.importorskip("grpc")
    seen = drive(kind, tmp_path)
    for way in ways_of(kind):
        found = seen[f"{way}, right"]
        if way in READS:
            assert found == ROWS.get(way, LEFT), way
        else:
            assert found is None, way
            require_written(tmp_path / f"{way}, right", way)
        for token in TOKENS:
            if token != "right":
                require_refused(seen[f"{way}, {token}"], way, token)
                if way in WRITES:
                    require_untouched(tmp_path, way, token)


def require_written(path: Path, way: str) -> None:
    table = txlog.Table(path)
    assert sorted(table.to_arrow()["x"].to_pylist()) == WRITTEN.get(way, BASE + NEW), way
    assert table.version == (0 if way == "make" else 1), way


def require_refused(error: Any, way: str, token: str) -> None:
    """Hold an error against what it must say, and what it must not."""
    assert isinstance(error, list), (way, token)
    name, text = error
    assert name in (
        "StoreError", "EngineError", "AnalysisException", "PythonException",
        "StreamingQueryException",
    ), (way, token)  # fmt: skip
    assert "[store] " in text, (way, token)
    assert REFUSAL in text, (way, token)
    secret = TOKENS[token].get("token")
    assert secret is None or secret not in text, (way, token)
    if name == "EngineError":
        assert "Nothing was committed" in text, (way, token)


def require_untouched(folder: Path, way: str, token: str) -> None:
    before = {} if way == "make" else files(folder / "base")
    assert files(folder / f"{way}, {token}") == before, (way, token)


def files(folder: Path) -> dict[str, bytes]:
    found = [path for path in folder.rglob("*") if path.is_file()]
    return {str(path.relative_to(folder)): path.read_bytes() for path in found}
