"""The loader with PyTorch; skipped without it. `.ci/environments` runs this file."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import txlog
from tests.training.loader.plain_loader import batches_of, epoch_of
from tests.training.loader.test_loader import blocks, ids_of
from txlog.base.errors import InvalidInputError
from txlog.training import Image, Loader, Ragged, RaggedArray, Shuffle, Vector

torch = pytest.importorskip("torch", reason="PyTorch is in no extra that the tests install")

from torch.utils.data import DataLoader  # noqa: E402

SHUFFLE = Shuffle(seed=3, lanes=6, window_rows=8, block_rows=16)

pytestmark = pytest.mark.filterwarnings(
    "ignore::DeprecationWarning",
    "ignore:This DataLoader will create:UserWarning",
    "ignore:'set_vital' is deprecated:UserWarning",
)


@pytest.fixture
def table(tmp_path: Path) -> txlog.Table:
    data = pa.table(
        {
            "id": range(300),
            "x": pa.array([[i, i + 1.0] for i in range(300)], pa.list_(pa.float32())),
            "s": [f"text {i}" for i in range(300)],
        }
    )
    made = txlog.write(str(tmp_path / "table"), data)
    made.delete("id % 10 = 3")
    return made


def made(table: txlog.Table, **more: Any) -> Loader:
    return Loader(table, **{"batch_size": 8, "columns": ["id"], "shuffle": SHUFFLE, **more})


def test_batches_are_tensors(table: txlog.Table) -> None:
    loader = made(table, columns=None, views={"x": Vector("float32", 2)})
    for batch in DataLoader(loader.torch(), batch_size=None):
        assert batch["id"].dtype == torch.int64
        assert batch["x"].shape == (8, 2)
        assert torch.equal(batch["x"][:, 0], batch["id"].float())
        assert batch["s"] == [f"text {i}" for i in batch["id"]]
    ragged = next(iter(made(table, columns=["x"], shuffle=None).torch()))["x"]
    assert isinstance(ragged, RaggedArray)
    assert ragged.values.shape == (16,)
    padded = made(table, columns=["x"], views={"x": Ragged(pad=0, length=3)}, shuffle=None)
    assert next(iter(padded.torch()))["x"].shape == (8, 3)


def test_a_tensor_in_order_may_be_changed(table: txlog.Table) -> None:
    for batch in made(table, shuffle=None).torch():
        batch["id"] += 1000
    assert table.to_arrow(["id"])["id"][0].as_py() == 0


@pytest.mark.spec("LDR-11")
@pytest.mark.parametrize("workers", [0, 1, 2, 3])
def test_the_sequence_is_the_same_for_every_number_of_workers(
    table: txlog.Table, workers: int
) -> None:
    wanted = ids_of(made(table))
    dataset = made(table).torch()
    batches = DataLoader(dataset, batch_size=None, num_workers=workers)
    assert ids_of(batches) == wanted
    dataset.set_epoch(1)
    second = made(table)
    second.set_epoch(1)
    assert ids_of(batches) == ids_of(second)


def test_workers_that_stay_go_on_with_the_next_epoch(table: txlog.Table) -> None:
    dataset = made(table).torch()
    batches = DataLoader(dataset, batch_size=None, num_workers=2, persistent_workers=True)
    loader = made(table)
    for _ in range(3):
        assert ids_of(batches) == ids_of(loader)


def test_workers_that_are_spawned_read_the_same(table: txlog.Table) -> None:
    batches = DataLoader(
        made(table).torch(), batch_size=None, num_workers=2, multiprocessing_context="spawn"
    )
    assert ids_of(batches) == ids_of(made(table))


@pytest.mark.parametrize("workers", [0, 2, 3])
@pytest.mark.parametrize("stop", [0, 1, 4, 33])
def test_a_stateful_dataloader_goes_on(table: txlog.Table, workers: int, stop: int) -> None:
    stateful = pytest.importorskip("torchdata.stateful_dataloader")

    def batches() -> Any:
        return stateful.StatefulDataLoader(
            made(table).torch(), batch_size=None, num_workers=workers
        )

    wanted = ids_of(made(table))
    assert len(wanted) == 33
    first = batches()
    some = [batch["id"].tolist() for _, batch in zip(range(stop), first, strict=False)]
    assert some == wanted[:stop]
    state = pickled(first.state_dict())
    second = batches()
    second.load_state_dict(state)
    assert ids_of(second) == wanted[stop:]


def pickled(value: Any) -> Any:
    file = io.BytesIO()
    torch.save(value, file)
    file.seek(0)
    return torch.load(file, weights_only=False)


def test_another_number_of_workers_goes_on_from_a_state_of_the_loader(table: txlog.Table) -> None:
    loader = made(table)
    dataset = made(table).torch()
    dataset.load_state_dict(loader.state_at(5))
    assert ids_of(DataLoader(dataset, batch_size=None, num_workers=3)) == ids_of(loader)[5:]
    with pytest.raises(InvalidInputError, match="it is of worker 1 of 2, this is worker 0 of 1"):
        dataset.load_state_dict({**loader.state_at(5), "worker": 1, "workers": 2, "skip": 0})


def test_ranks_come_from_torch_distributed(table: txlog.Table, tmp_path: Path) -> None:
    code = f"""
import torch.distributed as dist
from txlog.training import Loader
dist.init_process_group("gloo", init_method="file://{tmp_path}/meet", rank=0, world_size=1)
loader = Loader({table.uri!r}, batch_size=1)
print(loader.rank, loader.world_size)
"""
    environment = {"RANK": "5", "WORLD_SIZE": "9"}  # What is initialised goes first.
    done = run(code, **environment)
    assert done.split() == ["0", "1"]


def run(code: str, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


TRAINER = """
import json, os, sys, signal
import torch, torch.distributed as dist
from txlog.training import Loader, Shuffle, Vector
rank, ranks, stop = int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
dist.init_process_group("gloo", init_method="file://" + sys.argv[4], rank=rank, world_size=ranks)
torch.manual_seed(0)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-7)
loader = Loader({uri!r}, batch_size=24 // ranks, columns=["id", "x"],
                shuffle=Shuffle(seed=3, lanes=6, window_rows=8, block_rows=16),
                views={{"x": Vector("float32", 2)}}, even="short")
saved = {saved!r}
if os.path.exists(saved):
    state = torch.load(saved)
    model.module.load_state_dict(state["model"])
    loader.load_state_dict(state["loader"])
for step, batch in enumerate(loader.torch()):
    loss = ((model(batch["x"])[:, 0] - batch["id"]) ** 2).mean()
    optimizer.zero_grad(); loss.backward(); optimizer.step()
    with open(f"{seen}.{{ranks}}.{{rank}}", "a") as file:
        print(json.dumps(batch["id"].tolist()), file=file)
    if step + 1 == stop:
        dist.barrier()
        if rank == 0:
            torch.save({{"model": model.module.state_dict(), "loader": loader.state_dict()}}, saved)
        dist.barrier()
        os.kill(os.getpid(), signal.SIGKILL)
    if len(batch["id"]) < 24 // ranks:
        break
dist.barrier()
# PyTorch may abort a process at its end, even after `destroy_process_group`: a thread of the group
# then frees a tensor while Python is shutting down.
os._exit(0)
"""


def test_two_processes_train_and_die_and_three_go_on(table: txlog.Table, tmp_path: Path) -> None:
    """DistributedDataParallel on two processes; after kill -9 three go on at the exact row."""
    seen = tmp_path / "seen"

    def train(ranks: int, stop: int) -> list[int]:
        code = TRAINER.format(uri=table.uri, saved=str(tmp_path / "saved"), seen=str(seen))
        processes = [
            subprocess.Popen(
                [sys.executable, "-c", code, str(rank), str(ranks), str(stop),
                 str(tmp_path / f"meet-{ranks}")],
            )
            for rank in range(ranks)
        ]  # fmt: skip
        return [process.wait(timeout=300) for process in processes]

    assert train(2, 4) == [-9, -9]
    assert train(3, 100) == [0, 0, 0]

    def batches(ranks: int, rank: int) -> list[list[int]]:
        lines = Path(f"{seen}.{ranks}.{rank}").read_text().splitlines()
        return [json.loads(line) for line in lines]

    rows = epoch_of(blocks(table, 16), (3, 6, 8), 0)
    for rank in range(2):
        assert batches(2, rank) == batches_of(rows, 12, rank, 2, "short")[:4]
    for rank in range(3):
        assert batches(3, rank) == batches_of(rows, 8, rank, 3, "short", position=96)
    together = [
        row for ranks in (2, 3) for rank in range(ranks) for b in batches(ranks, rank) for row in b
    ]
    assert sorted(together) == sorted(rows)
    assert len(rows) == 270


def flowers(folder: Path) -> None:
    """Write a folder of images for each colour."""
    pillow = pytest.importorskip("PIL.Image")
    random = np.random.default_rng(5)
    for channel, label in enumerate(("red", "green", "blue")):
        (folder / label).mkdir(parents=True)
        for i in range(40):
            size = (*random.integers(12, 24, 2), 3)
            picture = random.integers(0, 90, size, np.uint8)
            picture[..., channel] += 120
            pillow.fromarray(picture).save(folder / label / f"{i}.png")


def images_of(folder: Path) -> Iterator[dict[str, Any]]:
    for number, label in enumerate(sorted(path.name for path in folder.iterdir())):
        for path in sorted((folder / label).iterdir()):
            yield {"name": path.name, "label": number, "image": path.read_bytes()}


def test_a_folder_of_images_trains_a_small_model(tmp_path: Path) -> None:
    """From files of images through a table and the loader into a model that learns the colours."""
    flowers(tmp_path / "flowers")
    rows = pa.Table.from_pylist(list(images_of(tmp_path / "flowers")))
    table = txlog.write(str(tmp_path / "table"), rows)
    loader = Loader(
        table, batch_size=24, columns=["image", "label"], views={"image": Image((16, 16))},
        shuffle=Shuffle(seed=1, lanes=8, window_rows=8, block_rows=8),
        transform=lambda batch: {**batch, "image": batch["image"].astype(np.float32) / 255},
    )  # fmt: skip
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Conv2d(3, 4, 3), torch.nn.ReLU(), torch.nn.AdaptiveAvgPool2d(1),
        torch.nn.Flatten(), torch.nn.Linear(4, 3),
    )  # fmt: skip
    optimizer = torch.optim.Adam(model.parameters(), lr=0.03)
    losses = []
    for epoch in range(12):
        assert loader.epoch == epoch
        for batch in DataLoader(loader.torch(), batch_size=None):
            loss = torch.nn.functional.cross_entropy(
                model(batch["image"].permute(0, 3, 1, 2)), batch["label"]
            )
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    assert np.mean(losses[-5:]) < 0.3 < np.mean(losses[:5])
