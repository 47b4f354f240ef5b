"""The code of docs/loader.md runs, in its order."""

import importlib.util
import re
from pathlib import Path
from typing import Any

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "loader.md"


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore:'set_vital':UserWarning")
def test_the_code_of_the_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blocks = re.findall(
        r"^```python\n(.*?)^```$", PAGE.read_text("utf-8"), re.DOTALL | re.MULTILINE
    )
    assert len(blocks) == 8
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    for block in blocks:
        if "import torch" in block and importlib.util.find_spec("torch") is None:
            continue  # The environment of the loader in .ci/environments has it.
        exec(block, names)
    assert names["state"] == {
        "format": 1, "epoch": 1, "position": 320, "seed": 7,
        "fingerprint": names["loader"].fingerprint,
    }  # fmt: skip
    first, second = (next(iter(rank))["label"] for rank in names["again"])
    third = next(names["batches"])["label"] if "torch" not in names else None
    assert len(first) == len(second) == 32
    if third is not None:  # Position p belongs to rank p mod 2.
        assert third[::2].tolist() == first.tolist()
        assert third[1::2].tolist() == second.tolist()
