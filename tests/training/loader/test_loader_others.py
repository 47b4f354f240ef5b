"""The loader with JAX and TensorFlow; tests are skipped without the library."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import txlog
from tests.training.loader.test_loader import ids_of
from txlog.base.errors import InvalidInputError, UnsupportedFeatureError
from txlog.training import Image, Loader, Ragged, Shuffle, Vector

SHUFFLE = Shuffle(seed=3, lanes=4, window_rows=8, block_rows=16)
VIEWS = {"x": Vector("float32", 2), "t": Ragged(pad=0, length=3)}


@pytest.fixture
def table(tmp_path: Path) -> txlog.Table:
    rows = range(100)
    data = pa.table(
        {
            "id": rows,
            "x": pa.array([[i, i + 1.0] for i in rows], pa.list_(pa.float32())),
            "t": pa.array([[1] * (i % 4) for i in rows], pa.list_(pa.int32())),
            "big": [i << 40 for i in rows],
            "s": [f"text {i}" for i in rows],
        }
    )
    return txlog.write(str(tmp_path / "table"), data)


def made(table: txlog.Table, **more: Any) -> Loader:
    return Loader(table, **{"batch_size": 8, "shuffle": SHUFFLE, "columns": ["id"], **more})


def test_jax_arrays(table: txlog.Table) -> None:
    jax = pytest.importorskip("jax", reason="JAX is in no extra that the tests install")
    views = {"x": VIEWS["x"], "t": Ragged(pad=0, length=3, truncate=True)}
    loader = made(table, columns=["id", "x", "t"], views=views)
    wanted = ids_of(made(table))
    got = []
    for batch in loader.jax():
        assert isinstance(batch["x"], jax.Array)
        assert batch["x"].shape == (8, 2)
        assert batch["t"].shape == (8, 3)
        assert (batch["x"][:, 0] == batch["id"]).all()
        got.append(np.asarray(batch["id"]).tolist())
    assert got == wanted
    mesh = jax.sharding.Mesh(np.array(jax.devices()), ("rows",))
    sharding = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("rows"))
    spread = next(iter(made(table).jax(sharding)))["id"]
    assert spread.sharding == sharding
    assert np.asarray(spread).tolist() == wanted[0]
    with pytest.raises(UnsupportedFeatureError, match="JAX arrays cannot hold texts"):
        next(iter(made(table, columns=["s"]).jax()))
    with pytest.raises(UnsupportedFeatureError, match="no rows of different lengths"):
        next(iter(made(table, columns=["t"]).jax()))
    with pytest.raises(InvalidInputError, match="do not fit int32"):
        next(iter(made(table, columns=["big"]).jax()))


def test_tensorflow_tensors(table: txlog.Table) -> None:
    tf = pytest.importorskip(
        "tensorflow", reason="TensorFlow is in no extra that the tests install"
    )
    wanted = ids_of(made(table))
    loader = made(table, columns=None, views={"x": Vector("float32", 2)})
    dataset = loader.tf()
    got = []
    for batch in dataset:
        assert batch["x"].shape == (8, 2)
        assert isinstance(batch["t"], tf.RaggedTensor)
        ids = batch["id"].numpy().tolist()
        assert batch["t"].row_lengths().numpy().tolist() == [i % 4 for i in ids]
        assert batch["s"].numpy().tolist() == [f"text {i}".encode() for i in ids]
        got.append(ids)
    assert got == wanted
    padded = made(table, columns=["t"], views={"t": Ragged(pad=0, length=3)}).tf()
    assert padded.element_spec["t"].shape.as_list() == [None, 3]
    images = txlog.write("memory://others", pa.table({"image": [b"x"]}))
    with pytest.raises(
        UnsupportedFeatureError, match="images of different sizes cannot be one tensor"
    ):
        Loader(images, batch_size=1, views={"image": Image()}).tf()
    with pytest.raises(InvalidInputError, match="use the dataset's map"):
        made(table, transform=len).tf()
