"""The chapter's flowers: folders of images become a data set, batches, and a model of PyTorch.

`.ci/environments` runs this; elsewhere it skips where torch is not.
"""

from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is in no extra that the tests install")

# Imports follow the skip: they need torch.
from PIL import Image as Pillow  # noqa: E402
from torch.utils.data import DataLoader  # noqa: E402

from txlog.training import Datasets, Image, InlineRunner, Shuffle, TrainingSet  # noqa: E402

COLOURS = {"daisy": (235, 235, 225), "roses": (190, 30, 50), "tulips": (230, 160, 30)}


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """A folder of images for each kind of flower."""
    dice = np.random.default_rng(3)
    for label, colour in COLOURS.items():
        folder = tmp_path / "flower_photos" / label
        folder.mkdir(parents=True)
        for number in range(20):
            noise = dice.integers(-20, 20, (16, 18, 3))
            pixels = np.clip(np.array(colour) + noise, 0, 255).astype(np.uint8)
            Pillow.fromarray(pixels).save(folder / f"{number}.jpg")
    return tmp_path / "flower_photos"


def learn(made: TrainingSet) -> None:
    """Train a small model with a training set, and require that it knows all flowers."""
    assert made.statistics == {"numExamples": 60, "numLabels": 3}
    loader = made.loader(
        batch_size=12,
        columns=["content", "label_id"],
        shuffle=Shuffle(seed=1),
        views={"content": Image((8, 8))},
    )
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(8 * 8 * 3, 3))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    batches = DataLoader(loader.torch(), batch_size=None)
    for _ in range(8):
        right = seen = 0
        for batch in batches:
            answers = model(batch["content"].float() / 255 - 0.5)
            labels = batch["label_id"].long()
            loss = torch.nn.functional.cross_entropy(answers, labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            right += int((answers.argmax(1) == labels).sum())
            seen += len(labels)
        assert seen == 60  # Every image once an epoch.
    assert right == 60


def test_a_small_model_learns_the_flowers(photos: Path, tmp_path: Path) -> None:
    catalog = Datasets(tmp_path / "catalog", runner=InlineRunner())
    learn(catalog.create("flowers", "IMAGE_CLASS", photos).prepare())


@pytest.mark.spark
def test_a_small_model_learns_the_flowers_that_spark_read(
    photos: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """The whole pipeline of the chapter: folders, Spark, a data set, the loader, PyTorch."""
    pytest.importorskip("pyspark")
    spark = request.getfixturevalue("spark")
    images = (
        spark.read.format("binaryFile")
        .option("recursiveFileLookup", "true")
        .option("pathGlobFilter", "*.jpg")
        .load(str(photos))
        .selectExpr("path", "regexp_extract(path, 'flower_photos/([^/]+)', 1) AS label", "content")
        .orderBy("path")
    )
    catalog = Datasets(tmp_path / "catalog", runner=InlineRunner())
    learn(catalog.create("flowers", "IMAGE_CLASS", images).prepare())
