"""Versions whose files have plain names, and other tables with the same names in their place."""

import os
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import txlog
from txlog.base.errors import CommitConflictError, DataFileError
from txlog.store.local.local import LocalStore
from txlog.testing import CountingStore, LatencyStore, open_table


def rows(first: int, count: int, name: str = "x", kind: pa.DataType | None = None) -> pa.Table:
    values = pa.array(range(first, first + count), pa.int64())
    return pa.table({name: values.cast(kind or pa.int64()), "y": [str(first)] * count})


def made(root: Path, *files: pa.Table) -> None:
    """Make a table of the files of a folder, which have names without anything random."""
    shutil.rmtree(root, ignore_errors=True)
    root.mkdir()
    for number, file in enumerate(files):
        pq.write_table(file, root / f"part-{number}.parquet")
    txlog.convert_to_delta(root)


OLD = rows(0, 100), rows(100, 100)
NEW = {
    "same sizes": (rows(5000, 100), rows(5100, 100)),
    "shorter": (rows(5000, 10), rows(5100, 10)),
    "longer": (rows(5000, 1000), rows(5100, 1000)),
    "other type": (rows(5000, 100, "x", pa.string()), rows(5100, 100, "x", pa.string())),
    "other name": (rows(5000, 100, "z"), rows(5100, 100, "z")),
    "fewer": (rows(5000, 100),),
    "more": (rows(5000, 100), rows(5100, 100), rows(5200, 100)),
}
READS: dict[str, Callable[[txlog.Table], object]] = {
    "to_arrow": lambda t: t.to_arrow()["x"].to_pylist(),
    "columns": lambda t: t.to_arrow(["y"])["y"].to_pylist(),
    "where": lambda t: t.to_arrow(where="x >= 150")["x"].to_pylist(),
    "batches": lambda t: [x for batch in t.to_batches() for x in batch["x"].to_pylist()],
    "count": lambda t: t.count("x % 2 = 0"),
    "head": lambda t: t.head(3)["x"].to_pylist(),
    "take": lambda t: t.take([1, 150])["x"].to_pylist(),
    "lookup": lambda t: t.lookup([1, 150], on="x")["y"].to_pylist(),
    "fragments": lambda t: [x for f in t.fragments() for x in f.to_table()["x"].to_pylist()],
    "polars": lambda t: t.to_polars()["x"].to_list(),
    "dataset": lambda t: t.to_pyarrow_dataset().to_table()["x"].to_pylist(),
    "dataset where": lambda t: (
        t.to_pyarrow_dataset().to_table(filter=pc.field("x") > 150)["x"].to_pylist()
    ),
    "dataset count": lambda t: t.to_pyarrow_dataset().count_rows(),
    "pickled": lambda t: pickle.loads(pickle.dumps(t.scan())).to_arrow()["x"].to_pylist(),
}


@pytest.mark.slow(cases=24)
@pytest.mark.spec("CON-35")
@pytest.mark.parametrize("far", [False, True])
@pytest.mark.parametrize("warm", [False, True])
@pytest.mark.parametrize("new", NEW)
@pytest.mark.parametrize("read", READS)
def test_no_row_of_another_table_is_read(
    tmp_path: Path, read: str, new: str, warm: bool, far: bool
) -> None:
    root = tmp_path / "t"
    made(root, *OLD)
    store = LocalStore(str(root))
    table = open_table(LatencyStore(store, delay_s=0) if far else store)
    if warm:  # Footers, pages and look-ups are kept.
        assert READS[read](table) == READS[read](txlog.Table(root))
    made(root, *NEW[new])
    with pytest.raises((CommitConflictError, DataFileError)):
        READS[read](table)


@pytest.mark.spec("CON-35")
@pytest.mark.parametrize("far", [False, True])
@pytest.mark.parametrize("now", ["touched", "cleaned", "newer"])
@pytest.mark.parametrize("read", ["to_arrow", "take", "polars", "dataset"])
def test_a_table_that_goes_on_is_read(tmp_path: Path, read: str, now: str, far: bool) -> None:
    """Whether its files were copied, its log was cleaned up, or it has newer versions."""
    root = tmp_path / "t"
    made(root, *OLD)
    store = LocalStore(str(root))
    table = open_table(LatencyStore(store, delay_s=0) if far else store)
    expected = READS[read](table)
    latest = txlog.Table(root)
    if now != "touched":
        latest.delete("x < 0 OR x = 3")
    if now == "cleaned":
        latest.maintenance.checkpoint()
        (root / "_delta_log" / f"{0:020d}.json").unlink()
    for path in root.rglob("*"):
        os.utime(path, (1_600_000_000, 1_600_000_000))
    assert READS[read](table) == expected


@pytest.mark.spec("CON-35")
def test_only_names_without_a_uuid_are_asked_for(tmp_path: Path) -> None:
    root = tmp_path / "t"
    txlog.write(root, rows(0, 10))
    store = CountingStore(LocalStore(str(root)))
    table = open_table(store)
    store.reset()
    table.to_arrow()
    assert not [call for call in store.calls if "_delta_log" in call.path]
