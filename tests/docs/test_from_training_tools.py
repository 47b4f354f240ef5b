"""The right-hand lines of docs/guides/from-training-tools.md run, from top to bottom."""

import re
from typing import Any

import pyarrow as pa
import pytest

from tests.docs.test_pages import DOCS, blocks

PAGE = DOCS / "guides" / "from-training-tools.md"
ROW = re.compile(r"^\|.*\| `([^`]+)` \|$", re.MULTILINE)


def test_the_lines_of_the_page_run(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"df": pa.table({"x": [1, 2, 3]})}  # As a frame: tests/datasets.
    for _, code in blocks(PAGE):
        exec(compile(code, PAGE.name, "exec"), names)
    lines = ROW.findall(PAGE.read_text("utf-8"))
    titles = sum(line.startswith("|---") for line in PAGE.read_text("utf-8").splitlines())
    rows = sum(line.startswith("| ") for line in PAGE.read_text("utf-8").splitlines())
    assert len(lines) == rows - titles  # Each row has one.
    for line in lines:
        exec(compile(line, line, "exec"), names)
    assert names["made"].statistics == {"numExamples": 1, "numLabels": 1}
    assert (tmp_path / "copy" / "001.csv").read_text() == "hello,greeting\n"
    assert len(names["raw"].commits()) == 3
    assert [(run.commit_id, run.state) for run in names["runs"]] == [(1, "DONE"), (2, "DONE")]
    assert names["datasets"].dataset("clean").table().to_arrow()["x"].to_pylist() == [1, 2]
