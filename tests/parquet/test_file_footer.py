"""Footers that pyarrow refuses although the pages are sound, and those that end its process."""

from contextlib import ExitStack, suppress
from io import BytesIO
from itertools import product
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import txlog
from txlog.fragments.fragment import DataFile
from txlog.parquet.file_footer import FileFooter, footer_bytes, open_source
from txlog.parquet.footer import chunk_facts
from txlog.scan.data_file import open_parquet
from txlog.store.open import open_store

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


# pyarrow ends the process if it is asked for a chunk that contradicts the schema. -----------------


def nested(groups: int) -> bytes:
    """Return a file with nested columns. Some of them are nullable."""
    fields = [
        pa.field("i", pa.int64(), False),
        ("n", pa.int32()),
        ("s", pa.struct([pa.field("t", pa.string(), False)])),
        ("l", pa.list_(pa.list_(pa.int8()))),
    ]
    row = {"i": 1, "n": None, "s": {"t": "a"}, "l": [[1, None], []]}
    sink = BytesIO()
    table = pa.Table.from_pylist([row] * groups, pa.schema(fields))
    pq.write_table(table, sink, row_group_size=1, store_schema=False)
    return sink.getvalue()


def chunks(footer: FileFooter) -> list[object]:
    return [
        footer.statistics(group, leaf)
        for group, leaf in product(footer.groups, range(len(footer.paths)))
    ]


def test_a_changed_bit_of_a_footer_ends_no_process() -> None:
    data = nested(1)
    start = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    refused = 0
    for at, bit in product(range(start, len(data) - 8), range(8)):
        bent = bytearray(data[start:])
        bent[at - start] ^= 1 << bit
        try:
            chunks(FileFooter.parse(bytes(bent)))
        except (pa.ArrowException, OSError, ValueError) as error:
            refused += "contradicts itself" in str(error)
    assert refused > 10


@pytest.mark.parametrize("groups", [1, 3])
def test_the_facts_of_each_chunk_are_those_of_the_schema(groups: int) -> None:
    data = nested(groups)
    assert len(chunks(FileFooter.parse(footer_bytes(pa.BufferReader(data))))) == 4 * groups
    start = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    found = chunk_facts(data, start)
    assert found == [(2, False, 0, 0), (1, False, 0, 2), (6, True, 0, 2), (1, False, 3, 6)] * groups


def test_a_table_with_such_a_file_is_damaged(tmp_path: Path) -> None:
    rows = pa.table({"k": [1, 2], "v": [None, 5]})
    txlog.write(tmp_path, rows)
    (file,) = tmp_path.glob("*.parquet")
    data = file.read_bytes()
    optional = b"\x15\x04\x25\x02\x18\x01v"  # A type, a repetition and a name.
    assert data.count(optional) == 1
    file.write_bytes(data.replace(optional, b"\x15\x04\x25\x00\x18\x01v"))
    for where in (None, "v = 5", "v > 1", "k = 1"):
        with pytest.raises(txlog.DataFileError):
            txlog.Table(tmp_path).to_arrow(where=where)
    found = txlog.Table(tmp_path).doctor(sample=None)
    assert [one.code for one in found.findings if one.severity == "error"] == ["file-damaged"]
    for path in (tmp_path / "_delta_log").iterdir():
        path.unlink()
    with pytest.raises(txlog.DataFileError, match="contradicts itself"):
        txlog.convert_to_delta(tmp_path)


def as_encrypted(data: bytes) -> bytes:
    """Return a file whose footer says, in plain text, that columns may be encrypted."""
    start = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    footer = data[start:-9] + b"\x1c\x1c\x00\x00\x00"  # Field 8: an empty AES_GCM_V1.
    return data[:start] + footer + len(footer).to_bytes(4, "little") + b"PAR1"


def test_a_footer_that_tells_of_encryption_ends_no_process(tmp_path: Path) -> None:
    data = as_encrypted(nested(2))
    footers = [
        FileFooter.parse(footer_bytes(pa.BufferReader(data))),
        FileFooter.of(open_source(pa.BufferReader(data))),
    ]
    assert [len(chunks(footer)) for footer in footers] == [8, 8]
    rows = pa.table({"k": [1, 2], "v": [None, 5]})
    table = txlog.write(tmp_path, rows)
    (file,) = tmp_path.glob("*.parquet")
    file.write_bytes(as_encrypted(file.read_bytes()))
    for where in (None, "v = 5", "v > 1", "k = 1"):
        with suppress(txlog.DataFileError):  # The size is not that of the log.
            table.to_arrow(where=where)
        with suppress(txlog.DataFileError):
            table.to_pyarrow_dataset().to_table(filter=where and pc.field("v") > 1)
    table.doctor(sample=None)
    for path in (tmp_path / "_delta_log").iterdir():
        path.unlink()
    again = txlog.convert_to_delta(tmp_path)
    assert again.to_arrow().equals(rows)
    assert again.to_arrow(where="v > 1").to_pylist() == [{"k": 2, "v": 5}]
    dataset = again.to_pyarrow_dataset()
    assert dataset.to_table(filter=pc.field("v") > 1).num_rows == 1
    assert dataset.to_table(filter=pc.field("v") == 5).num_rows == 1
    for options in ({}, {"txlog.paths": "inside"}):
        store = open_store(str(tmp_path), options)
        with ExitStack() as stack:
            opened = open_parquet(stack, store, DataFile(file.name, file.stat().st_size), 0)
            assert len(chunks(FileFooter.of(opened))) == 2


def test_chunks_are_asked_for_in_one_place() -> None:
    home = Path(txlog.__file__).parent
    asking = [
        file.relative_to(home).as_posix()
        for file in home.rglob("*.py")
        if "metadata.row_group(" in file.read_text(encoding="utf-8")
    ]
    assert asking == ["parquet/file_footer.py"]
