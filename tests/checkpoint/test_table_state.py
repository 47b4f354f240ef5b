"""The table state of odd checkpoints: texts that need much memory, and texts that are none."""

import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import txlog
from txlog.base.errors import LogCorruptError, TxlogWarning
from txlog.checkpoint import parquet
from txlog.log.names import commit_name

ROWS = pa.table({"x": [1]})


def edited(path: Path, change: Any) -> None:
    """Change the text of the first commit, which loses its seal."""
    file = path / "_delta_log" / commit_name(0)
    file.write_text(change(re.sub(r',?"txlogCrc32":"[0-9a-f]*"', "", file.read_text())))


@pytest.mark.parametrize("same", [True, False], ids=["once", "each"])
def test_texts_of_transactions_are_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, same: bool
) -> None:
    """A few kB of a checkpoint may describe texts of any size."""
    monkeypatch.setattr(parquet, "_LEAST_BOUND", 1 << 20)
    table = txlog.write(tmp_path, ROWS)
    for number in range(8):
        table.append(ROWS, txn=(f"app{number}", number))
    table.maintenance.checkpoint()
    path = tmp_path / "_delta_log" / f"{8:020d}.checkpoint.parquet"
    found = pq.read_table(path)
    rows = found.to_pylist()
    for number, row in enumerate(row for row in rows if row["txn"] is not None):
        row["txn"]["appId"] = "a" * (4 << 20) if same else f"{number}" * (4 << 20)
    pq.write_table(pa.Table.from_pylist(rows, found.schema), path, compression="zstd")
    assert path.stat().st_size < 40_000
    with pytest.warns(TxlogWarning, match="would need more than"):
        assert txlog.Table(tmp_path).count() == 9
    (tmp_path / "_delta_log" / commit_name(2)).unlink()
    with pytest.raises(LogCorruptError, match="would need more than"):
        txlog.Table(tmp_path)


def test_a_text_that_is_no_unicode_makes_no_checkpoint(tmp_path: Path) -> None:
    table = txlog.write(tmp_path, ROWS, description="a text")
    edited(tmp_path, lambda text: text.replace('"a text"', '"a \\ud800"'))
    table = txlog.Table(tmp_path)
    with pytest.raises(LogCorruptError, match="lone surrogate") as caught:
        table.maintenance.checkpoint()
    assert caught.value.field == "metaData.description"
    assert "alter.set_description" in caught.value.remedy
    table.alter.set_description("another")
    table.maintenance.checkpoint()
    assert txlog.Table(tmp_path).metadata.description == "another"


def test_a_fragment_id_that_leaves_no_other(tmp_path: Path) -> None:
    properties = {"delta.feature.txlog.fragments": "supported"}
    txlog.write(tmp_path / "t", ROWS, properties=properties)
    mark = '"appId":"txlog.fragments","version":'
    edited(tmp_path / "t", lambda text: text.replace(f"{mark}0", f"{mark}{2**63 - 1}"))
    table = txlog.Table(tmp_path / "t")
    with pytest.raises(LogCorruptError, match="no id below 2\\^30 remains") as caught:
        table.append(ROWS)
    assert "Table.clone" in caught.value.remedy
    clone = table.clone(tmp_path / "clone")
    clone.append(ROWS)
    assert clone.count() == 2
