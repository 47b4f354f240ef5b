"""Changed logs, files and texts: the outcome is a right answer or one of our errors."""

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from families import FAMILIES, run_case

import txlog

HERE = Path(__file__).parent
QUICK = {name: 3 if name.startswith("table_") else 15 for name in FAMILIES}
TOTAL = 100_000
AT_ONCE = 1_000  # Cases of one process.
ROWS = pa.table({"id": range(2000), "name": [f"n{number % 50}" for number in range(2000)]})


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


def changed_answers(path: Path, flips: int, seed: int) -> int:
    """Return how many of so many single bits of a data file change an answer silently."""
    txlog.write(path, ROWS)
    (file,) = path.glob("*.parquet")
    data = file.read_bytes()
    pages = len(data) - 8 - int.from_bytes(data[-8:-4], "little")  # What is before the footer.
    chance = Random(seed)
    changed = 0
    for _ in range(flips):
        bent = bytearray(data)
        bent[chance.randrange(pages)] ^= 1 << chance.randrange(8)
        file.write_bytes(bent)
        try:
            changed += not txlog.Table(path).to_arrow().equals(ROWS)
        except txlog.DataFileError:
            continue
    return changed


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
    with pytest.raises(txlog.DataFileError, match="has 2000 rows by the footer, and 0 in its"):
        txlog.Table(tmp_path).to_arrow()


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
