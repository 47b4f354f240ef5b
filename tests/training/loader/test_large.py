"""Blob columns in batches: as objects that read when they are asked, or as bytes."""

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import txlog
from txlog.training import Blobs, Loader, Shuffle, Text

VALUES = [None if i % 7 == 3 else bytes([i]) * (i * 5) for i in range(60)]
SHUFFLE = Shuffle(seed=3, lanes=4, window_rows=8, block_rows=8)


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> txlog.Table:
    schema = pa.schema([pa.field("id", pa.int64()), txlog.blob("b", above=40)])
    made = txlog.Table.create(tmp_path_factory.mktemp("large") / "t", schema)
    for start in (0, 25):
        stop = 25 if start == 0 else 60
        values = pa.array(VALUES[start:stop], pa.binary())
        made.append(pa.table({"id": pa.array(range(start, stop), pa.int64()), "b": values}))
    made.delete("id % 10 = 4")
    return made


def seen(loader: Loader) -> dict[int, bytes | None]:
    found: dict[int, bytes | None] = {}
    for batch in loader:
        assert isinstance(batch["b"], np.ndarray)
        for row, value in zip(batch["id"].tolist(), batch["b"], strict=True):
            is_blob = isinstance(value, txlog.Blob)
            found[row] = pickle.loads(pickle.dumps(value)).read() if is_blob else value
    return found


EXPECTED = {i: value for i, value in enumerate(VALUES) if i % 10 != 4}


@pytest.mark.parametrize("shuffle", [None, SHUFFLE])
@pytest.mark.parametrize("read", [False, True])
def test_each_row_comes_with_its_bytes(
    table: txlog.Table, shuffle: Shuffle | None, read: bool
) -> None:
    views = {"b": Blobs(read=True)} if read else {}
    loader = Loader(table, batch_size=7, shuffle=shuffle, even="pad", views=views)
    assert seen(loader) == EXPECTED


def read_here(batch: dict[str, Any]) -> dict[str, Any]:
    """Read the values, in a worker process."""
    values = np.empty(len(batch["b"]), object)
    values[:] = [blob and blob.read() for blob in batch["b"]]
    return {**batch, "b": values}


def test_workers_read_values(table: txlog.Table) -> None:
    loader = Loader(table, batch_size=7, even="pad", transform=read_here, processes=1)
    assert seen(loader) == EXPECTED


def test_a_loader_of_a_clone_reads_the_packs_of_its_source(
    table: txlog.Table, tmp_path: Path
) -> None:
    clone = table.clone(tmp_path / "c", shallow=True)
    assert seen(Loader(clone, batch_size=7, even="pad", views={"b": Blobs(read=True)})) == EXPECTED


def test_no_value_is_read_before_it_is_asked(table: txlog.Table, tmp_path: Path) -> None:
    deep = table.clone(tmp_path / "d", shallow=False)
    for pack in (tmp_path / "d" / "_blobs").rglob("*.blobs"):
        pack.unlink()
    sizes = {
        row: None if value is None else value.size
        for batch in Loader(deep, batch_size=7, even="pad")
        for row, value in zip(batch["id"].tolist(), batch["b"], strict=True)
    }
    assert sizes == {row: value if value is None else len(value) for row, value in EXPECTED.items()}
    with pytest.raises(txlog.DataFileError, match="_blobs"):
        seen(Loader(deep, batch_size=7, views={"b": Blobs(read=True)}))


@pytest.mark.parametrize(
    "more",
    [{"views": {"b": Text()}}, {"views": {"id": Blobs()}}, {"fill": {"b": {"data": b""}}}],
)
def test_other_views_and_fills_are_refused(table: txlog.Table, more: dict[str, Any]) -> None:
    with pytest.raises(txlog.InvalidInputError):
        Loader(table, batch_size=7, **more)


def test_rows_that_were_taken_or_looked_up_have_blobs(table: txlog.Table) -> None:
    for rows in (table.take([30, 2], columns=["id", "b"]), table.lookup([33, 2], on="id")):
        got = zip(rows["id"].to_pylist(), table.blobs(rows["b"]), strict=True)
        assert {row: value and value.read() for row, value in got} == {
            row: EXPECTED[row] for row in rows["id"].to_pylist()
        }
