"""Footers that pyarrow refuses, although the pages are sound."""

from io import BytesIO
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import txlog
from txlog.parquet.file_footer import FileFooter, footer_bytes, open_source

_GROUP = b"key_value\x15\x04\x00"  # The name of a group, its number of fields, and the end.
_UNKNOWN = b"key_value\x15\x04\x15\x04\x4c\xbc\x00\x00\x00"


def as_parquet_mr_1_11_0(table: pa.Table) -> bytes:
    """Return a file whose maps have the logical type UNKNOWN, as parquet-mr 1.11.0 writes them."""
    sink = BytesIO()
    pq.write_table(table, sink, store_schema=False)
    data = sink.getvalue()
    start = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    footer = data[start:-8]
    assert _GROUP in footer
    footer = footer.replace(_GROUP, _UNKNOWN)
    return data[:start] + footer + len(footer).to_bytes(4, "little") + b"PAR1"


def test_maps_of_parquet_mr_1_11_0() -> None:
    maps = pa.array([[("a", "1")], None, []], pa.map_(pa.string(), pa.string()))
    table = pa.table({"m": maps, "x": [1, 2, 3]})
    data = as_parquet_mr_1_11_0(table)
    with pytest.raises(OSError, match="group node"):
        pq.read_table(BytesIO(data))
    assert open_source(pa.BufferReader(data)).read().to_pylist() == table.to_pylist()
    footer = FileFooter.parse(footer_bytes(pa.BufferReader(data)))
    assert footer.paths == ("m.key_value.key", "m.key_value.value", "x")


def test_checkpoints_of_parquet_mr_1_11_0(tmp_path: Path) -> None:
    table = txlog.write(tmp_path, pa.table({"p": ["a", "b"], "x": [1, 2]}), partition_by="p")
    table.append(pa.table({"p": ["c"], "x": [3]}))
    table.maintenance.checkpoint()
    log = tmp_path / "_delta_log"
    checkpoint = log / f"{1:020d}.checkpoint.parquet"
    checkpoint.write_bytes(as_parquet_mr_1_11_0(pq.read_table(checkpoint)))
    for file in log.glob("*.json"):
        file.unlink()
    again = txlog.Table(tmp_path)
    assert again.version == 1
    rows = again.to_arrow().sort_by("x").to_pylist()
    assert rows == [{"p": p, "x": x} for x, p in ((1, "a"), (2, "b"), (3, "c"))]
