"""The writer of Parquet files, compared with pyarrow's."""

from __future__ import annotations

import sys
from typing import Any

import pyarrow as pa
import pytest

from txlog.base.arrow import pc
from txlog.data_files.options import leaf_columns, parquet_writer


class Broken:
    """A `pyarrow._parquet` and `pyarrow._compute` of another version."""

    def ParquetWriter(*_: Any, **__: Any) -> None:  # noqa: N802 (As pyarrow calls it.)
        raise TypeError("__cinit__() got an unexpected keyword argument")


@pytest.mark.parametrize("broken", [False, True])
def test_parquet_files_are_those_of_pyarrow(broken: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    import pyarrow.compute
    import pyarrow.parquet

    rows = pa.table({"n": [1, None, 3], "l": [["a"], [], None]})
    checks = {"write_page_index": True, "write_page_checksum": True, "store_schema": False}
    wanted, made = pa.BufferOutputStream(), pa.BufferOutputStream()
    with pyarrow.parquet.ParquetWriter(wanted, rows.schema, compression="zstd", **checks) as peer:
        peer.write_table(rows, 2)
    if broken:
        monkeypatch.setitem(sys.modules, "pyarrow._parquet", Broken)
        monkeypatch.setitem(sys.modules, "pyarrow._compute", Broken)
    writer = parquet_writer(made, rows.schema, compression="zstd")
    writer.write_table(rows, row_group_size=2)
    writer.close()
    assert made.getvalue().equals(wanted.getvalue())
    leaf_columns.cache_clear()
    assert leaf_columns(rows.schema) == ("n", "l.list.element")
    with pytest.raises(TypeError):
        parquet_writer(pa.BufferOutputStream(), rows.schema, no_such_argument=1)
    with pytest.raises(pa.ArrowNotImplementedError):
        parquet_writer(pa.BufferOutputStream(), pa.schema([("x", pa.month_day_nano_interval())]))
    least = type(pc)("pyarrow.compute").min(rows["n"])
    assert least.as_py() == 1
