"""Data sets of Hugging Face, in both directions, with the package itself."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import examples
from tests.training.datasets.formats.test_webdataset import image, ingested, rows
from txlog.base.errors import InvalidInputError, SchemaMismatchError
from txlog.training import Datasets, InlineRunner, Limits
from txlog.training.datasets.formats import export
from txlog.training.datasets.formats.samples import as_samples

hf = pytest.importorskip("datasets", reason="the package datasets is not installed")


@pytest.fixture(autouse=True)
def offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(hf.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    monkeypatch.setattr(hf.config, "HF_HUB_OFFLINE", True)
    hf.disable_progress_bars()
    yield
    hf.enable_progress_bars()


def flowers(images: list[dict[str, Any]], labels: list[int]) -> Any:
    features = hf.Features({"image": hf.Image(), "label": hf.ClassLabel(names=["daisy", "rose"])})
    return hf.Dataset.from_dict({"image": images, "label": labels}, features=features)


@pytest.mark.spec("DST-57")
def test_images_and_classes_are_read_in_the_order_of_the_object(tmp_path: Path) -> None:
    given = flowers([{"bytes": image(n), "path": None} for n in range(3)], [0, 1, 0])
    (tmp_path / "x.png").write_bytes(image(9))
    by_path = flowers([{"bytes": None, "path": str(tmp_path / "x.png")}], [1])
    chosen = given.select([2, 1])  # An object with its own order of rows.
    for source in (chosen, chosen.to_iterable_dataset()):
        found = rows(source, tmp_path, "IMAGE_CLASS")
        assert [(one["label"], one["content"]) for one in found] == [
            ("daisy", image(2)), ("rose", image(1))
        ]  # fmt: skip
        assert [one["filename"] for one in found] == ["00000000.png", "00000001.png"]
    (found,) = rows(by_path, tmp_path, "IMAGE_CLASS")
    assert (found["filename"], found["label"], found["content"]) == ("x.png", "rose", image(9))


def test_texts_with_classes_are_read(tmp_path: Path) -> None:
    names = hf.ClassLabel(names=["l0", "l1", "l2"])
    one = hf.Dataset.from_dict(
        {"text": ["a", "b"], "label": [2, 0]},
        features=hf.Features({"text": hf.Value("string"), "label": names}),
    )
    assert [row["labels"] for row in rows(one, tmp_path, "TEXT_INTENT")] == [["l2"], ["l0"]]
    many = hf.Dataset.from_dict(
        {"text": ["a", "b"], "labels": [[2, 0], [1]]},
        features=hf.Features({"text": hf.Value("string"), "labels": hf.List(names)}),
    )
    assert [row["labels"] for row in rows(many.select([1, 0]), tmp_path, "TEXT_INTENT")] == [
        ["l1"], ["l2", "l0"]
    ]  # fmt: skip
    unknown = hf.Dataset.from_dict(
        {"text": ["a", "b"], "label": [1, -1]},
        features=hf.Features({"text": hf.Value("string"), "label": names}),
    )
    with pytest.raises(SchemaMismatchError, match="row 2 has the class -1"):
        rows(unknown, tmp_path, "TEXT_INTENT")


def test_any_columns_are_a_table(tmp_path: Path) -> None:
    features = hf.Features(
        {
            "matrix": hf.Array2D((2, 2), "int32"),
            "names": hf.List(hf.Value("string")),
            "label": hf.ClassLabel(names=["x", "y"]),
        }
    )
    given = hf.Dataset.from_dict(
        {"matrix": [[[1, 2], [3, 4]]], "names": [["a"]], "label": [1]}, features=features
    )
    assert rows(given, tmp_path) == [{"matrix": [[1, 2], [3, 4]], "names": ["a"], "label": 1}]
    without = hf.IterableDataset.from_generator(lambda: iter([{"a": 1}, {"a": 2}]))
    assert rows(without, tmp_path) == [{"a": 1}, {"a": 2}]


def test_the_features_of_a_table_survive_to_its_export(tmp_path: Path) -> None:
    features = hf.Features({"x": hf.Value("int64"), "label": hf.ClassLabel(names=["a", "b"])})
    given = hf.Dataset.from_dict({"x": [1, 2], "label": [1, 0]}, features=features)
    datasets = Datasets(tmp_path / "root", runner=InlineRunner())
    made = datasets.create("t", "TABLE", given).prepare()
    assert b"huggingface" in (made.table().schema.metadata or {})
    made.export(tmp_path / "out", "huggingface")
    theirs = hf.load_dataset(str(tmp_path / "out"), split="train")
    assert theirs.features == features
    assert theirs["label"][:] == [1, 0]


@pytest.mark.spec("DST-57")
def test_splits_must_be_named_and_errors_of_the_object_are_refusals(tmp_path: Path) -> None:
    one = hf.Dataset.from_dict({"a": [1]})
    with pytest.raises(InvalidInputError, match=r"source\['train'\]"):
        ingested(hf.DatasetDict({"train": one, "test": one}), tmp_path)
    gone = flowers([{"bytes": None, "path": str(tmp_path / "gone.png")}], [0])
    with pytest.raises(InvalidInputError, match="the data set cannot be read"):
        rows(gone, tmp_path, "IMAGE_CLASS")
    empty = flowers([{"bytes": image(0), "path": None}, None], [0, 0])  # type: ignore[list-item]  # A null.
    with pytest.raises(SchemaMismatchError, match="row 2 of the data has no image"):
        rows(empty, tmp_path, "IMAGE_CLASS")


# Out -------------------------------------------------------------------------------------------


@pytest.mark.spec("DST-58")
def test_a_training_set_of_images_goes_out_and_comes_back(tmp_path: Path) -> None:
    for number, label in enumerate(["daisy", "rose", "daisy"]):
        (tmp_path / "in" / label).mkdir(parents=True, exist_ok=True)
        (tmp_path / "in" / label / f"{number}.png").write_bytes(image(number))
    datasets = Datasets(tmp_path / "root", runner=InlineRunner(), limits=Limits(row_bytes=1))
    first = datasets.create("first", "IMAGE_CLASS", tmp_path / "in")
    paths = first.prepare().export(tmp_path / "out", "huggingface", shard_rows=2)
    assert [Path(path).name for path in paths] == ["train-00000.parquet", "train-00001.parquet"]
    theirs = hf.load_dataset(str(tmp_path / "out"), split="train")
    assert theirs.features["label"].names == ["daisy", "rose"]
    assert [one["image"].size for one in theirs] == [(3, 2)] * 3
    assert theirs["label"][:] == [0, 0, 1]
    second = datasets.create("second", "IMAGE_CLASS", theirs)
    assert second.commit(1).digest == first.commit(1).digest
    streamed = hf.load_dataset(str(tmp_path / "out"), split="train", streaming=True)
    third = datasets.create("third", "IMAGE_CLASS", streamed)
    assert third.commit(1).digest == first.commit(1).digest


def test_a_training_set_of_texts_goes_out_and_comes_back(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text('"a, b",l1;l2\nc,l2\n')
    datasets = Datasets(tmp_path / "root", runner=InlineRunner())
    first = datasets.create("first", "TEXT_INTENT", tmp_path / "x.csv")
    first.prepare().export(tmp_path / "out", "huggingface")
    theirs = hf.load_dataset(str(tmp_path / "out"), split="train")
    assert theirs["labels"][:] == [[0, 1], [1]]
    second = datasets.create("second", "TEXT_INTENT", theirs)
    assert second.commit(1).digest == first.commit(1).digest


@given(
    rows_=st.lists(
        st.fixed_dictionaries(
            {
                "n": st.none() | st.integers(-(1 << 63), (1 << 63) - 1),
                "x": st.none() | st.floats(allow_nan=False),
                "s": st.none() | st.text(max_size=5),
                "l": st.none() | st.lists(st.integers(0, 9), max_size=3),
            }
        ),
        max_size=9,
    ),
    shard_rows=st.integers(1, 4),
    batch_rows=st.integers(1, 4),
)
@settings(max_examples=examples(40))
def test_shards_have_the_rows_in_their_order(
    rows_: list[dict[str, Any]],
    shard_rows: int,
    batch_rows: int,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    schema = pa.schema(
        [("n", pa.int64()), ("x", pa.float64()), ("s", pa.string()), ("l", pa.list_(pa.int64()))]
    )
    table = pa.Table.from_pylist(rows_, schema=schema)
    reader = pa.RecordBatchReader.from_batches(schema, table.to_batches(batch_rows))
    folder = tmp_path_factory.mktemp("out")
    paths = export(reader, folder, "huggingface", shard_rows=shard_rows)
    assert len(paths) == max(1, -(-len(rows_) // shard_rows))
    assert pa.concat_tables(map(pq.read_table, paths)).to_pylist() == rows_


def test_a_column_in_the_way_of_the_images_is_refused(tmp_path: Path) -> None:
    table = pa.table({"content": [b"a"], "filename": ["0"], "image": [1]})
    with pytest.raises(SchemaMismatchError, match="would have this name"):
        export(as_samples(table.to_reader(), None, "Image", None), tmp_path, "huggingface")


# What must not get another meaning in silence --------------------------------------------------


def feelings(names: list[str], labels: list[Any], **more: Any) -> Any:
    kind = hf.ClassLabel(names=names)
    features = hf.Features({"text": hf.Value("string"), "label": kind, **more})
    texts = [f"t{number}" for number in range(len(labels))]
    return hf.Dataset.from_dict({"text": texts, "label": labels}, features=features)


@pytest.mark.spec("DST-57")
@pytest.mark.parametrize("names", [["pos", "neg"], ["neg", "pos", "none"], ["neg", "POS"]])
def test_a_commit_with_other_classes_is_refused(names: list[str], tmp_path: Path) -> None:
    dataset = Datasets(tmp_path / "ds").create("s", "TABLE", feelings(["neg", "pos"], [1, 0]))
    with pytest.raises(SchemaMismatchError, match=r"column label, and the data set has \['neg'"):
        dataset.update(feelings(names, [1]))
    assert dataset.table().count() == 2


@pytest.mark.spec("DST-57")
def test_aligned_classes_and_the_first_of_them_are_added(
    tmp_path: Path, recwarn: pytest.WarningsRecorder
) -> None:
    home = Datasets(tmp_path / "ds", runner=InlineRunner())
    dataset = home.create("s", "TABLE", feelings(["neg", "pos"], [1, 0]))
    other = feelings(["pos", "neg"], [0])
    dataset.update(other.align_labels_with_mapping({"neg": 0, "pos": 1}, "label"))
    dataset.update(feelings(["neg"], [0]))
    dataset.prepare().export(tmp_path / "out", "huggingface")
    found = hf.load_dataset(str(tmp_path / "out"), split="train")
    names = [found.features["label"].int2str(row["label"]) for row in found]
    assert names == ["pos", "neg", "pos", "neg"]
    assert not [one for one in recwarn if "metadata" in str(one.message)]


@pytest.mark.spec("DST-57")
def test_a_warning_names_classes_that_come_too_late(tmp_path: Path) -> None:
    home = Datasets(tmp_path / "ds")
    plain = home.create("plain", "TABLE", pa.table({"text": ["a"], "label": [1]}))
    with pytest.warns(UserWarning, match="does not keep the names of the classes of label:"):
        plain.update(feelings(["neg", "pos"], [1]))
    named = home.create("named", "TABLE", feelings(["neg", "pos"], [1]))
    more = feelings(["neg", "pos"], [1]).add_column("tone", [0])
    more = more.cast_column("tone", hf.ClassLabel(names=["high"]))
    with pytest.warns(UserWarning, match="does not keep the names of the classes of tone:"):
        named.update(more, schema_mode="merge")


@pytest.mark.spec("DST-57")
def test_files_with_other_classes_are_refused(tmp_path: Path) -> None:
    for number, names in enumerate((["neg", "pos"], ["pos", "neg"])):
        (tmp_path / "in").mkdir(exist_ok=True)
        pq.write_table(
            feelings(names, [1]).with_format("arrow")[:], tmp_path / "in" / f"{number}.parquet"
        )
    with pytest.raises(SchemaMismatchError, match=r"1\.parquet has the classes .* 0\.parquet"):
        rows(tmp_path / "in", tmp_path)


def in_lists(of_labels: Any) -> Any:
    features = hf.Features({"text": hf.Value("string"), "labels": of_labels})
    values = {"text": ["a", "b"], "labels": [[0, 1], [1, 1]]}
    return hf.Dataset.from_dict(values, features=features)


@pytest.mark.spec("DST-57")
def test_lists_of_any_kind_get_the_names_of_their_classes(tmp_path: Path) -> None:
    kind = hf.ClassLabel(names=["neg", "pos"])
    for of_labels in (hf.Sequence(kind, length=2), hf.Sequence(kind)):
        found = rows(in_lists(of_labels), tmp_path, "TEXT_INTENT")
        assert [one["labels"] for one in found] == [["neg", "pos"], ["pos", "pos"]]
    for labels, words in (
        ([[0], None], "row 2 of the data has no labels"),
        ([[0, 0], [0, -1]], "row 2 has the class -1"),
    ):
        source = hf.Dataset.from_dict(
            {"text": ["a", "b"], "labels": labels},
            features=hf.Features({"text": hf.Value("string"), "labels": hf.Sequence(kind)}),
        )
        with pytest.raises(SchemaMismatchError, match=words):
            rows(source, tmp_path, "TEXT_INTENT")


@pytest.mark.spec("DST-57")
@pytest.mark.parametrize(
    ("first", "later", "words"),
    [
        ({"a": 1}, {"a": 1, "b": 2}, "a row from 257 to 300 has the column b"),
        ({"a": 1, "b": 2}, {"a": 1}, "a row from 257 to 300 lacks the column b"),
        ({"a": 1}, {"a": "x"}, "a row from 257 to 300 has string in the column a"),
        ({"a": 1, "b": None}, {"a": 1, "b": "x"}, "a row from 257 to 300 has string in"),
    ],
)
def test_later_rows_with_other_columns_are_refused(
    first: dict[str, Any], later: dict[str, Any], words: str, tmp_path: Path
) -> None:
    def made() -> Iterator[dict[str, Any]]:
        for number in range(300):
            yield first if number < 256 else later

    with pytest.raises(SchemaMismatchError, match=words) as caught:
        rows(hf.IterableDataset.from_generator(made), tmp_path)
    assert "features=" in str(caught.value)


@pytest.mark.spec("DST-57")
def test_a_transform_is_refused_and_formats_are_not(tmp_path: Path) -> None:
    source = feelings(["neg", "pos"], [1, 0])
    changed = source.with_transform(lambda batch: {"text": [one.upper() for one in batch["text"]]})
    with pytest.raises(InvalidInputError, match="has a transform"):
        rows(changed, tmp_path)
    for same in (changed.with_format(None), source.with_format("numpy")):
        assert [one["text"] for one in rows(same, tmp_path)] == ["t0", "t1"]
