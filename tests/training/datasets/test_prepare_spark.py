"""Spark: a frame becomes a commit, executors make training sets, images become batches."""

import io
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from PIL import Image as Pillow

from txlog.base.errors import SchemaMismatchError
from txlog.spark_ext import SparkEngine
from txlog.training import Image
from txlog.training.datasets.folder import Datasets
from txlog.training.datasets.prepare import InlineRunner

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


@pytest.mark.slow
def test_a_frame_becomes_a_commit(spark: "SparkSession", tmp_path: Path) -> None:
    catalog = Datasets(tmp_path / "c", runner=InlineRunner())
    frame = spark.range(0, 1000, 1, 3).selectExpr("id", "cast(id % 7 AS int) AS label")
    numbers = catalog.create("numbers", "TABLE", frame)
    commit = numbers.update(frame.where("id < 10"), "Some again", inputs=["s3://lake/numbers"])
    assert (commit.commit_id, commit.rows) == (2, 10)
    assert [one.rows for one in numbers.commits()] == [1000, 10]
    made = numbers.prepare()
    assert made.table().to_arrow()["id"].to_pylist() == [*range(1000), *range(10)]
    assert sum(len(batch["id"]) for batch in made.loader(batch_size=101)) == 1010
    staged = tmp_path / "c" / "files" / ".staged"
    assert not [path for path in staged.rglob("*") if path.is_file()]


@pytest.mark.slow
def test_a_frame_that_does_not_fit_is_refused(spark: "SparkSession", tmp_path: Path) -> None:
    catalog = Datasets(tmp_path / "c", runner=InlineRunner())
    frame = spark.range(3).selectExpr("cast(id AS string) AS utterance", "'' AS labels")
    with pytest.raises(SchemaMismatchError, match="row 1 of the frame has no label"):
        catalog.create("intents", "TEXT_INTENT", frame)
    assert catalog.list() == []
    assert not [path for path in (tmp_path / "c" / "files").rglob("*") if path.is_file()]


@pytest.mark.slow
@pytest.mark.parametrize("form", ["parquet", pytest.param("csv", marks=pytest.mark.exhaustive)])
@pytest.mark.spec("DST-42")
def test_executors_make_the_same_training_set(
    form: str, spark: "SparkSession", tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from txlog.training.datasets import training_files

    monkeypatch.setattr(training_files, "RUN_BYTES", 1)  # A run for each commit.
    found: list[Any] = []
    for name, engine in (("here", None), ("there", SparkEngine(spark, local_items=0))):
        catalog = Datasets(tmp_path / name, runner=InlineRunner(), engine=engine)
        first = spark.range(50).selectExpr(
            "concat('text ', id) AS utterance", "concat('l', id % 5, ';m') AS labels"
        )
        intents = catalog.create("intents", "TEXT_INTENT", first.toArrow())
        for number in range(3):
            intents.update(first.selectExpr("utterance", f"'n{number}' AS labels").toArrow())
        made = intents.prepare(form=form)
        assert made.error is None
        found.append(
            made.table().to_arrow()
            if form == "parquet"
            else [Path(part.uri).read_bytes() for part in made.parts]
        )
        assert made.statistics == {"numExamples": 200, "numLabels": 9}
    assert found[0] == found[1]


def test_folders_of_flowers_become_batches(spark: "SparkSession", tmp_path: Path) -> None:
    """The chapter's pipeline: images in folders, through Spark, into a set, into a loader."""
    colours = {"daisy": (250, 250, 240), "roses": (200, 20, 40), "tulips": (240, 160, 20)}
    for label, colour in colours.items():
        folder = tmp_path / "flower_photos" / label
        folder.mkdir(parents=True)
        for number in range(4):
            picture = Pillow.new("RGB", (12 + number, 10), colour)
            picture.save(folder / f"{label}-{number}.jpg")
    images = (
        spark.read.format("binaryFile")
        .option("recursiveFileLookup", "true")
        .option("pathGlobFilter", "*.jpg")
        .load(str(tmp_path / "flower_photos"))
        .selectExpr("path", "regexp_extract(path, 'flower_photos/([^/]+)', 1) AS label", "content")
        .orderBy("path")
    )
    catalog = Datasets(tmp_path / "c", runner=InlineRunner())
    flowers = catalog.create("flowers", "IMAGE_CLASS", images)
    assert flowers.commits()[0].statistics == {"numExamples": 12, "numLabels": 3}
    made = flowers.prepare()
    labels = {}
    for batch in made.loader(
        batch_size=4, columns=["content", "label_id"], views={"content": Image((8, 8))}
    ):
        assert batch["content"].shape == (4, 8, 8, 3)
        for pixels, label in zip(batch["content"], batch["label_id"], strict=True):
            labels.setdefault(int(label), []).append(pixels.mean(axis=(0, 1)))
    assert sorted(map(len, labels.values())) == [4, 4, 4]
    for label, colour in enumerate(colours.values()):
        assert all(abs(mean - colour).max() < 10 for mean in labels[label])
    held = made.table().head(1)["content"][0].as_py()
    assert Pillow.open(io.BytesIO(held)).size == (12, 10)
