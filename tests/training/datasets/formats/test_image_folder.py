"""Folders of images: labels by folders or by a table beside them, and written again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.training.datasets.formats.test_webdataset import image, rows
from txlog.base.errors import AlreadyExistsError, InvalidInputError, SchemaMismatchError
from txlog.training import Datasets, InlineRunner, Limits
from txlog.training.datasets.formats import export


def folder(root: Path, files: dict[str, bytes | str]) -> Path:
    for name, content in files.items():
        path = root / "in" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
    return root / "in"


def labels(source: Path, root: Path) -> list[tuple[str, str]]:
    return [(one["filename"], one["label"]) for one in rows(source, root, "IMAGE_CLASS")]


@pytest.mark.spec("DST-56")
@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("metadata.csv", '\ufefffile_name,label,note\r\na/1.png,"x, y",n\r\n0.png,z,\r\n'),
        (
            "metadata.jsonl",
            '{"file_name": "a/1.png", "label": "x, y"}\n\n{"file_name": "0.png", "label": "z"}\n',
        ),
    ],
)
def test_a_table_beside_the_images_names_their_labels(name: str, text: str, tmp_path: Path) -> None:
    source = folder(tmp_path, {"a/1.png": image(1), "0.png": image(0), name: text})
    assert labels(source, tmp_path) == [("1.png", "x, y"), ("0.png", "z")]


def test_without_a_column_of_labels_the_folder_is_the_label(tmp_path: Path) -> None:
    source = folder(tmp_path, {"a/1.png": image(1), "metadata.csv": "file_name,n\na/1.png,1\n"})
    assert labels(source, tmp_path) == [("1.png", "a")]


@pytest.mark.spec("DST-56")
@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("file_name,label\nb.png,x\n", "row 1 of metadata.csv names the file 'b.png'"),
        ("file_name,label\na.png,x\na.png,x\n", "row 2 of metadata.csv names 'a.png' again"),
        ("file_name,label\na.png,\n", "row 1 of metadata.csv has no label"),
        ("file_name\na.png\n", "row 1 of metadata.csv has no label"),
        ("file_name,label\n", "does not name the file 'a.png'"),
        ("name,label\na.png,x\n", "names the file None"),
        ("file_name,label\na.png,x,y\n", "another number of fields"),
        ("file_name,label\na.png\n", "another number of fields"),
        ('file_name,label\na.png,"x\n', "metadata.csv cannot be read"),
        (b"file_name,label\na.png,\xff\n", "metadata.csv cannot be read"),
    ],
)
def test_a_table_that_does_not_fit_is_refused_with_its_row(
    text: str | bytes, words: str, tmp_path: Path
) -> None:
    source = folder(tmp_path, {"a.png": image(0), "metadata.csv": text})
    with pytest.raises(SchemaMismatchError) as caught:
        labels(source, tmp_path)
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("text", "words"),
    [('{"file_name": ', "metadata.jsonl cannot be read"), ("[1]\n", "a line is no JSON object")],
)
def test_damaged_lines_of_json_are_refused(text: str, words: str, tmp_path: Path) -> None:
    source = folder(tmp_path, {"a.png": image(0), "metadata.jsonl": text})
    with pytest.raises(SchemaMismatchError, match=words):
        labels(source, tmp_path)


def test_two_tables_of_labels_are_refused(tmp_path: Path) -> None:
    both = {"metadata.csv": "file_name,label\n", "metadata.jsonl": ""}
    with pytest.raises(SchemaMismatchError, match="one of them was expected"):
        labels(folder(tmp_path, {"a.png": image(0), **both}), tmp_path)


# Out -------------------------------------------------------------------------------------------


@pytest.mark.spec("DST-58")
def test_a_training_set_is_written_as_a_folder_for_each_label(tmp_path: Path) -> None:
    """With contents that lie beside the rows, and with two images of one name."""
    source = folder(tmp_path, {"daisy/0.png": image(0), "rose/1.png": image(1)})
    datasets = Datasets(tmp_path / "root", runner=InlineRunner(), limits=Limits(row_bytes=1))
    flowers = datasets.create("flowers", "IMAGE_CLASS", source)
    (tmp_path / "in/daisy/0.png").write_bytes(image(7))
    (tmp_path / "in/rose/1.png").unlink()
    flowers.update(source)
    paths = flowers.prepare().export(tmp_path / "out", "imagefolder")
    names = [Path(path).relative_to(tmp_path / "out").as_posix() for path in paths]
    assert names == ["daisy/0.png", "rose/1.png", "daisy/0-2.png"]
    assert [Path(path).read_bytes() for path in paths] == [image(0), image(1), image(7)]
    again = datasets.create("again", "IMAGE_CLASS", tmp_path / "out")
    assert again.commit(1).statistics == {"numExamples": 3, "numLabels": 2}


def test_labels_that_lead_out_of_the_folder_are_refused(tmp_path: Path) -> None:
    table = pa.table({"content": [b"a", b"b"], "filename": ["0", "1"], "label": ["x", "../y"]})
    with pytest.raises(SchemaMismatchError, match=r"row 2: the name '\.\./y'"):
        export(table.to_reader(), tmp_path / "out", "imagefolder")
    assert not [*tmp_path.glob("out/**/*.*")]


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ({"content": ["x"], "filename": ["0"], "label": ["a"]}, "images need bytes in content"),
        ({"content": [b"x", None], "filename": ["0", "1"], "label": ["a", "a"]}, "row 2 has no co"),
        (
            {"content": [b"x"], "filename": ["0"], "label": pa.array([None], pa.string())},
            "no label",
        ),
    ],
)
def test_rows_that_are_no_images_with_labels_are_refused(
    columns: dict[str, Any], words: str, tmp_path: Path
) -> None:
    with pytest.raises(SchemaMismatchError, match=words):
        export(pa.table(columns).to_reader(), tmp_path / "out", "imagefolder")


@pytest.mark.spec("DST-58")
@pytest.mark.parametrize("name", ["._a.png", "Thumbs.db", ".DS_Store", "~$a.png"])
def test_names_that_readers_of_a_folder_skip_are_refused(name: str, tmp_path: Path) -> None:
    table = pa.table({"content": [b"a", b"b"], "filename": ["0.png", name], "label": ["x", "x"]})
    with pytest.raises(SchemaMismatchError, match=r"row 2: x/.* systems leave behind"):
        export(table.to_reader(), tmp_path / "out", "imagefolder")
    assert not [*tmp_path.glob("out/**/*.*")]


@pytest.mark.spec("DST-58")
@pytest.mark.parametrize("form", ["webdataset", "tfrecord", "huggingface", "imagefolder"])
def test_images_come_back_with_their_digest(form: str, tmp_path: Path) -> None:
    """But for folders of images: in any order, with names twice, and with names of litter."""
    if form == "tfrecord":
        pytest.importorskip("crc32c", reason="the extra tfrecord is not installed")
    names = [("b.png", "z"), ("a.png", "a"), ("a.png", "a"), ("._é.PNG", "a b")]
    if form == "imagefolder":
        names = [("é.PNG", "a b"), ("a.png", "a"), ("b.png", "z")]
    given = pa.table(
        {
            "filename": [name for name, _ in names],
            "label": [label for _, label in names],
            "content": [image(number) for number in range(len(names))],
        }
    )
    datasets = Datasets(tmp_path / "root", runner=InlineRunner())
    made = datasets.create("made", "IMAGE_CLASS", given)
    made.prepare().export(tmp_path / "out", form)
    source: Any = tmp_path / "out"
    if form == "huggingface":
        source = pq.read_table(source / "data")
    again = datasets.create("again", "IMAGE_CLASS", source)
    assert again.commit(1).digest == made.commit(1).digest


@pytest.mark.spec("DST-58")
def test_rows_of_a_table_come_back_from_parquet_files(tmp_path: Path) -> None:
    given = pa.table(
        {
            "n": [1, None], "f": [1.5, 2.5], "t": ["é", ""], "b": [b"", None],
            "d": pa.array([None, 1], pa.decimal128(9, 2)), "l": [[1, None], []],
            "s": [{"x": 1}, None], "at": pa.array([0, None], pa.timestamp("us", "UTC")),
        }
    )  # fmt: skip
    datasets = Datasets(tmp_path / "root", runner=InlineRunner())
    made = datasets.create("made", "TABLE", given)
    made.prepare().export(tmp_path / "out", "huggingface")
    again = datasets.create("again", "TABLE", tmp_path / "out" / "data")
    assert again.commit(1).digest == made.commit(1).digest


@pytest.mark.spec("DST-58")
def test_an_export_needs_a_known_format_and_an_empty_folder(tmp_path: Path) -> None:
    table = pa.table({"x": [1]})
    with pytest.raises(InvalidInputError, match="huggingface, imagefolder, "):
        export(table.to_reader(), tmp_path / "out", "lmdb")
    with pytest.raises(SchemaMismatchError, match="images need the column content"):
        export(table.to_reader(), tmp_path / "out", "imagefolder")
    folder(tmp_path, {"old.tar": b"old"})
    with pytest.raises(AlreadyExistsError, match=r"it has old\.tar"):
        export(table.to_reader(), tmp_path / "in", "webdataset")
    assert (tmp_path / "in" / "old.tar").read_bytes() == b"old"


def test_only_examples_of_the_form_parquet_are_exported(tmp_path: Path) -> None:
    source = folder(tmp_path, {"daisy/0.png": image(0)})
    datasets = Datasets(tmp_path / "root", runner=InlineRunner())
    made = datasets.create("flowers", "IMAGE_CLASS", source).prepare(form="csv")
    with pytest.raises(InvalidInputError, match="has the form 'csv'"):
        made.export(tmp_path / "out", "webdataset")


def test_the_json_of_a_sample_names_label_and_file(tmp_path: Path) -> None:
    import tarfile

    source = folder(tmp_path, {"daisy/0.png": image(0)})
    datasets = Datasets(tmp_path / "root", runner=InlineRunner())
    made = datasets.create("flowers", "IMAGE_CLASS", source).prepare()
    (path,) = made.export(tmp_path / "out", "webdataset")
    with tarfile.open(path) as archive:
        members = {one.name: archive.extractfile(one) for one in archive}
        about = members["00000000.json"]
        assert about is not None
        assert json.load(about) == {"filename": "0.png", "label": "daisy"}
