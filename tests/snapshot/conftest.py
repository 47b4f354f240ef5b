"""Tables to load, made of a few commits."""

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

import txlog

Make = Callable[..., txlog.Table]


@pytest.fixture
def make(tmp_path: Path) -> Make:
    """Return a maker of a table of `commits` versions, of which each adds the row of its number."""

    def made(commits: int = 4, **properties: str) -> txlog.Table:
        table = txlog.Table.create(
            tmp_path / "t",
            pa.schema([("a", pa.int64())]),
            properties={name.replace("__", "."): text for name, text in properties.items()},
        )
        for version in range(1, commits):
            table.append(pa.table({"a": pa.array([version], pa.int64())}))
        return table

    return made


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "t" / "_delta_log"
