"""Changed logs, files and texts give a right result or a `TxlogError`."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from families import FAMILIES, run_case

import txlog
from txlog.parquet import page
from txlog.parquet.page import _stated, chunk_range
from txlog.parquet.thrift import Cursor, zigzag

HERE = Path(__file__).parent
QUICK = {name: 3 if name.startswith("table_") else 15 for name in FAMILIES}
TOTAL = 100_000
AT_ONCE = 1_000  # Cases of one process.
INSIDE = {"txlog.paths": "inside"}
ROWS = pa.table({"id": range(2000), "name": [f"n{number % 50}" for number in range(2000)]})


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_some_cases_of_each_family(family: str) -> None:
    for number in range(QUICK[family]):
        assert (wrong := run_case(family, number)) is None, wrong


def test_the_families_make_a_hundred_thousand_cases() -> None:
    assert sum(cases for _, cases in FAMILIES.values()) >= TOTAL


@pytest.mark.exhaustive
@pytest.mark.parametrize("family", FAMILIES)
def test_all_cases_of_each_family(family: str) -> None:
    """Each process has a bound of memory; if it dies, the case that killed it is named."""
    _, cases = FAMILIES[family]
    with ThreadPoolExecutor(os.cpu_count()) as processes:
        found = processes.map(lambda first: wrong_in(family, first), range(0, cases, AT_ONCE))
        wrong = [line for lines in found for line in lines]
    assert not wrong, "\n\n".join(wrong)


def wrong_in(family: str, first: int) -> list[str]:
    """Run the cases from this one on in a process of their own; return what went wrong."""
    done = subprocess.run(
        [sys.executable, str(HERE / "families.py"), family, str(first), str(first + AT_ONCE)],
        capture_output=True,
        text=True,
        check=False,
    )
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    wrong = [line["wrong"] for line in lines if "wrong" in line]
    if not lines or "done" not in lines[-1]:
        at = lines[-1] if lines else first
        wrong.append(f"{family} {at}: the process died ({done.returncode}): {done.stderr}")
    return wrong


ASKS: list[Callable[[txlog.Table], pa.Table]] = [
    lambda table: table.to_arrow(),
    lambda table: table.take([3, 1999]),
    lambda table: table.take([700], columns=["id"]),
    lambda table: table.lookup([1500]),
]
"""Ways to read: all, by pages, by one page, and by an index."""


def changed_answers(path: Path, flips: int, seed: int) -> int:
    """Return how many of so many single bits of a data file change an answer silently."""
    written = txlog.write(path, ROWS, properties={"txlog.pageRows": "500"})
    written.indexes.create("id")
    right = [ask(written) for ask in ASKS]
    (file,) = path.glob("*.parquet")
    data = file.read_bytes()
    pages = len(data) - 8 - int.from_bytes(data[-8:-4], "little")  # What is before the footer.
    chance = Random(seed)
    changed = 0
    for _ in range(flips):
        bent = bytearray(data)
        bent[chance.randrange(pages)] ^= 1 << chance.randrange(8)
        file.write_bytes(bent)
        for options in ({}, INSIDE):
            for ask, rows in zip(ASKS, right, strict=True):
                with suppress(txlog.DataFileError):
                    changed += not ask(txlog.Table(path, storage_options=options)).equals(rows)
    return changed


@pytest.mark.slow
def test_no_changed_bit_of_a_page_changes_an_answer(tmp_path: Path) -> None:
    assert changed_answers(tmp_path, 20, seed=1) == 0


@pytest.mark.exhaustive
def test_no_bit_of_eight_hundred(tmp_path: Path) -> None:
    """Without checksums of pages, 708 of 800 changed the answer."""
    assert changed_answers(tmp_path, 800, seed=2) == 0


def test_a_page_of_another_kind_is_no_end_of_the_rows(tmp_path: Path) -> None:
    """pyarrow passes over a page that claims to be one of an index: the answer had no rows."""
    txlog.write(tmp_path, ROWS)
    (file,) = tmp_path.glob("*.parquet")
    data = bytearray(file.read_bytes())
    assert data[4:6] == b"\x15\x00"  # The first page's header: its kind is 0, of data.
    data[5] = 2
    file.write_bytes(data)
    with pytest.raises(
        txlog.DataFileError, match="has 2000 rows according to the footer, but 0 in its"
    ):
        txlog.Table(tmp_path).to_arrow()


def foreign(path: Path, rows: pa.Table, **options: Any) -> tuple[Path, bytes, list[int]]:
    """Return a file of pyarrow as a table, its bytes, and where pages of its first column begin."""
    path.mkdir()
    pq.write_table(rows, path / "f.parquet", **options)
    txlog.convert_to_delta(path)
    data = (path / "f.parquet").read_bytes()
    start, stop = chunk_range(pq.read_metadata(path / "f.parquet").row_group(0).column(0))
    begins = []
    while start < stop:
        begins.append(start)
        header, packed = _stated(Cursor(data, start))
        start = header.end + packed
    return path / "f.parquet", data, begins


@pytest.mark.parametrize("options", [{}, INSIDE])
def test_rows_behind_a_page_of_another_kind_do_not_move_up(
    tmp_path: Path, options: dict[str, str]
) -> None:
    """Without an offset index row groups are read, and the page after it came in its place."""
    file, data, begins = foreign(
        tmp_path / "t", ROWS.select(["id"]), use_dictionary=False, data_page_size=800,
        write_batch_size=100, compression="none",
    )  # fmt: skip
    assert len(begins) > 10
    assert data[begins[3] + 1] == 0
    bent = bytearray(data)
    bent[begins[3] + 1] = 2
    file.write_bytes(bent)
    for position in (50, 450, 1999):
        with pytest.raises(
            txlog.DataFileError, match=r"has 2000 rows according to the footer|of the kind 1"
        ):
            txlog.Table(tmp_path / "t", storage_options=options).take([position])


def test_a_page_of_a_stranger_is_not_unpacked_to_more_than_is_bounded(tmp_path: Path) -> None:
    """Its header states a size, for which pyarrow makes room."""
    file, data, (begin,) = foreign(
        tmp_path / "t", ROWS.select(["id"]), use_dictionary=False, compression="zstd"
    )
    header, _ = _stated(Cursor(data, begin))
    place = data.index(zigzag(header.unpacked), begin)
    assert place < header.end
    bent = bytearray(data)
    bent[place + 2] |= 2  # 16 kB more.
    file.write_bytes(bent)
    table = txlog.Table(tmp_path / "t", storage_options=INSIDE)
    for read in (lambda: table.to_arrow(), lambda: table.take([5])):
        with pytest.raises(txlog.DataFileError, match="larger than its column can be"):
            read()
    file.write_bytes(data)
    assert table.to_arrow().num_rows == 2000


def test_lists_of_a_stranger_have_a_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One row may have any number of nulls, which take a few bytes."""
    nulls = pa.table({"l": [[None] * 100_000]}, pa.schema([("l", pa.list_(pa.int64()))]))
    foreign(tmp_path / "t", nulls)
    table = txlog.Table(tmp_path / "t", storage_options=INSIDE)
    assert table.to_arrow() == nulls
    monkeypatch.setattr(page, "_UNPACKED_VALUES", 1000)
    monkeypatch.setattr(page, "_MOST_TIMES", 1)
    with pytest.raises(txlog.DataFileError, match="a column of 100000 values has"):
        table.to_arrow()
    assert txlog.Table(tmp_path / "t").to_arrow() == nulls


def test_pages_have_checksums_that_others_can_verify(tmp_path: Path) -> None:
    txlog.write(tmp_path, ROWS)
    (file,) = tmp_path.glob("*.parquet")
    data = bytearray(file.read_bytes())
    data[40] ^= 1
    file.write_bytes(data)
    with pytest.raises(OSError, match="CRC"):
        pq.ParquetFile(file, page_checksum_verification=True).read()
    for read in (
        lambda table: table.to_arrow(),
        lambda table: table.take([1500]),
        lambda table: table.to_pyarrow_dataset().to_table(),
    ):
        with pytest.raises((txlog.DataFileError, OSError), match="CRC"):
            read(txlog.Table(tmp_path))


def test_no_changed_bit_of_a_deletion_file_changes_an_answer(tmp_path: Path) -> None:
    """Without a checksum, up to 53% did."""
    form = {"txlog.deletionFormat": "lance", "delta.feature.txlog.fragments": "supported"}
    txlog.write(tmp_path, ROWS, properties=form)
    txlog.Table(tmp_path).delete("id % 7 = 3")
    (file,) = (tmp_path / "_deletions").iterdir()
    data = file.read_bytes()
    chance = Random(3)
    for _ in range(25):
        bent = bytearray(data)
        bent[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
        file.write_bytes(bent)
        with pytest.raises(txlog.BadDeletionVectorError, match="checksum"):
            txlog.Table(tmp_path).to_arrow()
    file.write_bytes(data)
    assert txlog.Table(tmp_path).count() == 2000 - 286
