"""Data sets of Ray Data as sources. Ray is large, so most environments do not have it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from tests.training.datasets.formats.test_webdataset import image, rows
from txlog.base.errors import InvalidInputError, SchemaMismatchError
from txlog.training import Datasets, InlineRunner

ray = pytest.importorskip("ray", reason="ray is not installed: its data sets are not tested here")
pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(scope="module", autouse=True)
def cluster() -> Iterator[None]:
    ray.init(num_cpus=1, include_dashboard=False, logging_level="ERROR")
    yield
    ray.shutdown()


@pytest.mark.spec("DST-57")
def test_rows_come_in_the_order_of_the_data_set(tmp_path: Path) -> None:
    given = ray.data.from_arrow([pa.table({"n": [number, number]}) for number in range(5)])
    doubled = given.map_batches(
        lambda batch: {"n": batch["n"] * 2, "v": batch["n"][:, None] * [0.5, 2]}
    )
    found = rows(doubled, tmp_path)
    assert [row["n"] for row in found] == [number * 2 for number in range(5) for _ in "ab"]
    assert found[-1]["v"] == [2, 8]
    assert not doubled.context.execution_options.preserve_order


@pytest.mark.spec("DST-58")
def test_a_training_set_is_a_data_set_of_ray(tmp_path: Path) -> None:
    datasets = Datasets(tmp_path / "root", runner=InlineRunner())
    given = pa.table({"n": range(50), "h": pa.array([np.float16(n) for n in range(50)])})
    made = datasets.create("d", "TABLE", given.slice(0, 20))
    made.update(given.slice(20))
    ready = made.prepare()
    found = ready.ray()
    rows = pa.concat_tables(found.iter_batches(batch_format="pyarrow", batch_size=None))
    assert rows.sort_by("n").to_pylist() == ready.table().to_arrow().sort_by("n").to_pylist()
    assert ready.ray(["n"]).sum("n") == 49 * 25
    assert made.prepare(where="n < 0").ray().count() == 0
    again = datasets.create("again", "TABLE", ready.ray(["n"]))
    assert sorted(again.table().to_arrow()["n"].to_pylist()) == [*range(50)]
    with pytest.raises(InvalidInputError, match="no such column"):
        ready.ray(["x"])


def test_images_are_read_and_errors_of_tasks_are_refusals(tmp_path: Path) -> None:
    named = pa.table({"content": [image(0)], "filename": ["0.png"], "label": ["a"]})
    (found,) = rows(ray.data.from_arrow(named), tmp_path, "IMAGE_CLASS")
    assert (found["label"], found["content"]) == ("a", image(0))

    def fail(_: object) -> object:
        raise ValueError("no such row")

    with pytest.raises(InvalidInputError, match="no such row"):
        rows(ray.data.from_arrow(named).map_batches(fail), tmp_path)
    with pytest.raises(InvalidInputError, match="no rows"):
        rows(ray.data.from_arrow(named).filter(lambda _: False), tmp_path)
    matrix = ray.data.from_items([{"m": np.zeros((2, 2))}])
    with pytest.raises(SchemaMismatchError, match="several dimensions"):
        rows(matrix, tmp_path)
