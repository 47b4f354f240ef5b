"""AUDIO and VIDEO: accepted and refused input, training sets, exports and ways back."""

import io
import zipfile
from hashlib import sha256
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.training.datasets.containers.test_containers import SAMPLES
from tests.training.datasets.types.test_types import ingested, rows, zipped
from txlog.base.errors import InvalidInputError, NotFoundError, SchemaMismatchError
from txlog.training import Datasets, InlineRunner, Limits

SOUNDS = {"bell/a.wav": "tone.wav", "bell/b.mp3": "tone.mp3", "horn/a.opus": "tone.opus"}
VIDEOS = {"bell/a.mp4": "red.mp4", "bell/b.webm": "red.webm", "horn/a.mov": "red.mov"}
BOTH = [("AUDIO", SOUNDS), ("VIDEO", VIDEOS)]


def files(named: dict[str, str]) -> dict[str, bytes]:
    return {name: SAMPLES[sample] for name, sample in named.items()}


def folder(content: dict[str, bytes], root: Path) -> Path:
    for name, one in content.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(one)
    return root


@pytest.mark.parametrize(("kind", "named"), BOTH)
@pytest.mark.spec("DST-47", "DST-50")
def test_files_of_a_zip_and_of_a_folder_are_the_same(
    kind: str, named: dict[str, str], tmp_path: Path
) -> None:
    content = files(named)
    litter = {"bell/.DS_Store": b"x", "__MACOSX/bell/._a.wav": b"x"}
    archive = zipped({**content, **litter}, tmp_path / "media.zip")
    found = rows(kind, folder({**content, **litter}, tmp_path / "media"), tmp_path)
    assert rows(kind, archive, tmp_path) == found
    assert [f"{row['label']}/{row['filename']}" for row in found] == list(content)
    assert [row["content"] for row in found] == list(content.values())
    assert [row["size"] for row in found] == [len(one) for one in content.values()]
    assert [row["sha256"] for row in found] == [sha256(one).hexdigest() for one in content.values()]
    if kind == "AUDIO":
        facts = [(row["format"], row["duration_ms"], row["sample_rate"]) for row in found]
        assert facts == [("WAV", 100, 8000), ("MP3", 500, 44100), ("OGG", 500, 48000)]
        assert [row["channels"] for row in found] == [1, 1, 1]
    else:
        facts = [(row["format"], row["duration_ms"], row["width"]) for row in found]
        assert facts == [("MP4", 1000, 32), ("WEBM", 1000, 32), ("MOV", 1000, 32)]
        assert [row["height"] for row in found] == [24, 24, 24]


@pytest.mark.parametrize("how", ["zip", "folder", "data"])
@pytest.mark.spec("DST-53")
def test_large_files_lie_beside_the_rows(how: str, tmp_path: Path) -> None:
    content = files(SOUNDS)
    if how == "zip":
        source: Any = zipped(content, tmp_path / "media.zip")
    elif how == "folder":
        source = folder(content, tmp_path / "media")
    else:
        names = [name.partition("/") for name in content]
        source = pa.table(
            {
                "label": [name[0] for name in names],
                "filename": [name[2] for name in names],
                "content": list(content.values()),
            }
        )
    found = rows("AUDIO", source, tmp_path, Limits(row_bytes=2000))
    root = tmp_path / "root"
    stored = [row["content"] or (root / row["uri"]).read_bytes() for row in found]
    assert stored == list(content.values())
    assert [row["uri"] is None for row in found] == [True, False, True]
    assert [row["sha256"] for row in found] == [sha256(one).hexdigest() for one in stored]


@pytest.mark.spec("DST-47")
def test_files_without_folders_have_no_labels(tmp_path: Path) -> None:
    content = {"a.wav": SAMPLES["tone.wav"], "b.flac": SAMPLES["tone.flac"]}
    found = rows("AUDIO", folder(content, tmp_path / "media"), tmp_path)
    assert [(row["filename"], row["label"]) for row in found] == [
        ("a.wav", None),
        ("b.flac", None),
    ]
    (one,) = rows("AUDIO", tmp_path / "media" / "b.flac", tmp_path)
    assert one == found[1]
    data = pa.table({"path": ["s3://x/a.wav", "b.flac"], "content": list(content.values())})
    assert rows("AUDIO", data, tmp_path) == found
    nulls = data.append_column("label", pa.nulls(2))
    assert rows("AUDIO", nulls, tmp_path) == found


def test_labels_may_be_missing_in_a_table_of_files(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    table = b"file_name,label\nb.wav,bell\na.wav,\n"
    content = dict.fromkeys(("a.wav", "b.wav"), SAMPLES["tone.wav"])
    source = folder({**content, "metadata.csv": table}, tmp_path / "in")
    found = rows("AUDIO", source, tmp_path)
    assert [(row["filename"], row["label"]) for row in found] == [
        ("b.wav", "bell"),
        ("a.wav", None),
    ]
    catalog = Datasets(tmp_path / "datasets", runner=InlineRunner())
    first = catalog.create("first", "AUDIO", source)
    made = first.prepare()
    assert made.table().to_arrow()["label_id"].to_pylist() == [0, None]
    for form in ("webdataset", "huggingface"):
        made.export(tmp_path / form, form)
    again = catalog.create("again", "AUDIO", tmp_path / "webdataset")
    (part,) = (tmp_path / "huggingface" / "data").iterdir()
    third = catalog.create("third", "AUDIO", pq.read_table(part))
    assert again.commit(1).digest == third.commit(1).digest == first.commit(1).digest


@pytest.mark.parametrize(
    ("kind", "name", "content", "words"),
    [
        ("AUDIO", "bell/x.wav", b"", "bell/x.wav in m.zip is empty"),
        ("AUDIO", "bell/x.wav", SAMPLES["tone.wav"][:-1], "bell/x.wav in m.zip is cut off"),
        ("AUDIO", "bell/x.wav", SAMPLES["tone.flac"], "has the format FLAC, but its name has"),
        ("AUDIO", "bell/x.txt", b"hello", "bell/x.txt in m.zip is none of WAV"),
        ("AUDIO", "bell/x.mp4", SAMPLES["red.mp4"], "bell/x.mp4 in m.zip has no sound"),
        ("VIDEO", "bell/x.m4a", SAMPLES["tone.m4a"], "bell/x.m4a in m.zip has no pictures"),
        ("VIDEO", "bell/x.wav", SAMPLES["tone.wav"], "bell/x.wav in m.zip has no pictures"),
        ("VIDEO", "x.mp4", SAMPLES["red.mp4"], "'x.mp4' in m.zip is not in a folder, and others"),
        ("VIDEO", "a/b/x.mp4", SAMPLES["red.mp4"], "'a/b/x.mp4' in m.zip is nested too deeply"),
        ("VIDEO", " /x.mp4", SAMPLES["red.mp4"], "the label of ' /x.mp4' in m.zip is empty"),
    ],
)
@pytest.mark.spec("DST-47", "DST-50")
def test_files_that_do_not_fit_are_refused(
    kind: str, name: str, content: bytes, words: str, tmp_path: Path
) -> None:
    archive = zipped({**files(dict(BOTH)[kind]), name: content}, tmp_path / "m.zip")
    with pytest.raises(SchemaMismatchError) as caught:
        rows(kind, archive, tmp_path)
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ({"filename": ["x.wav"], "content": [b"no"]}, "row 1 of the data is none of WAV"),
        ({"filename": ["x.wav"], "content": [None]}, "row 1 of the data has no content"),
        (
            {"filename": ["a/b.wav"], "content": [SAMPLES["tone.wav"]]},
            "row 1 of the data: the name",
        ),
        ({"filename": ["x.wav"]}, "the data has no column content"),
        (
            {"filename": ["x.wav"], "content": [SAMPLES["tone.wav"]], "label": ["a/b"]},
            "row 1 of the data: the name 'a/b' has a slash",
        ),
    ],
)
def test_data_that_does_not_fit_is_refused_by_its_row(
    columns: dict[str, list[Any]], words: str, tmp_path: Path
) -> None:
    data = pa.table(columns).cast(
        pa.schema([(name, pa.binary() if name == "content" else pa.string()) for name in columns])
    )
    with pytest.raises(SchemaMismatchError) as caught:
        rows("AUDIO", data, tmp_path)
    assert words in str(caught.value)


def test_empty_sources_and_damaged_zips_are_refused(tmp_path: Path) -> None:
    with pytest.raises(SchemaMismatchError, match=r"m\.zip has no sound"):
        rows("AUDIO", zipped({}, tmp_path / "m.zip"), tmp_path)
    with pytest.raises(NotFoundError, match="there is no file with data below"):
        rows("VIDEO", folder({".DS_Store": b"x"}, tmp_path / "in"), tmp_path)
    sound = SAMPLES["tone.wav"]
    damaged = zipped({"a.wav": sound}, tmp_path / "d.zip", zipfile.ZIP_STORED)
    content = damaged.read_bytes()
    at = content.index(sound) + 1000
    damaged.write_bytes(content[:at] + b"\xff\xff" + content[at + 2 :])
    with pytest.raises(InvalidInputError, match=r"'a\.wav' in d\.zip is damaged"):
        rows("AUDIO", damaged, tmp_path)


def loaded(source: Path, root: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return the data set of Hugging Face in a folder."""
    hf = pytest.importorskip("datasets", reason="the package datasets is not installed")
    monkeypatch.setattr(hf.config, "HF_HUB_OFFLINE", True)
    return hf.load_dataset(str(source), split="train", cache_dir=str(root / "cache"))


@pytest.mark.parametrize(("kind", "named"), BOTH)
@pytest.mark.parametrize("form", ["webdataset", "tfrecord", "imagefolder", "huggingface"])
@pytest.mark.spec("DST-58", "DST-47")
def test_what_is_exported_comes_back(
    kind: str, named: dict[str, str], form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if form == "tfrecord":
        pytest.importorskip("crc32c")
    catalog = Datasets(tmp_path / "root", runner=InlineRunner(), limits=Limits(row_bytes=2000))
    first = catalog.create("first", kind, folder(files(named), tmp_path / "in"))
    made = first.prepare()
    assert made.statistics == {"numExamples": 3, "numLabels": 2}
    assert made.table().to_arrow()["label_id"].to_pylist() == [0, 0, 1]
    made.export(tmp_path / "out", form)
    source: Any = tmp_path / "out"
    if form == "huggingface":
        source = loaded(source, tmp_path, monkeypatch)
        assert type(source.features[kind.lower()]).__name__ == kind.capitalize()
    again = catalog.create("again", kind, source)
    assert again.commit(1).digest == first.commit(1).digest


@pytest.mark.parametrize("form", ["webdataset", "tfrecord", "huggingface"])
def test_files_without_labels_come_back(
    form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog = Datasets(tmp_path / "root", runner=InlineRunner())
    source: Any = folder({"a.wav": SAMPLES["tone.wav"]}, tmp_path / "in")
    first = catalog.create("first", "AUDIO", source)
    made = first.prepare()
    assert made.statistics == {"numExamples": 1, "numLabels": 0}
    assert made.table().to_arrow()["label_id"].to_pylist() == [None]
    made.export(tmp_path / "out", form)
    source = tmp_path / "out"
    if form == "huggingface":
        source = loaded(source, tmp_path, monkeypatch)
    assert catalog.create("again", "AUDIO", source).commit(1).digest == first.commit(1).digest
    with pytest.raises(SchemaMismatchError, match="label"):
        made.export(tmp_path / "folders", "imagefolder")


@pytest.mark.parametrize("row_bytes", [1, 1 << 20])
def test_the_form_csv_is_a_zip_of_the_files(row_bytes: int, tmp_path: Path) -> None:
    catalog = Datasets(tmp_path / "root", runner=InlineRunner(), limits=Limits(row_bytes=row_bytes))
    content = files(SOUNDS)
    found = catalog.create("sounds", "AUDIO", folder(content, tmp_path / "in"))
    (path,) = found.prepare(form="csv").download(tmp_path / "out")
    with zipfile.ZipFile(io.BytesIO(Path(path).read_bytes())) as archive:
        assert archive.testzip() is None
        assert archive.read("examples.csv") == b"a.wav,0\nb.mp3,0\na.opus,1\n"
        assert archive.read("labels.csv") == b"0,bell\n1,horn\n"
        members = ["a.wav", "b.mp3", "a.opus"]
        assert [archive.read(f"examples/{name}") for name in members] == list(content.values())


@pytest.mark.spec("DST-46")
def test_examples_are_chosen_by_their_duration(tmp_path: Path) -> None:
    catalog = Datasets(tmp_path / "root", runner=InlineRunner())
    sounds = catalog.create("sounds", "AUDIO", folder(files(SOUNDS), tmp_path / "in"))
    short = sounds.prepare(where="duration_ms < 200").table().to_arrow()
    assert short["filename"].to_pylist() == ["a.wav"]


def test_a_folder_knows_the_digest_of_what_was_read(tmp_path: Path) -> None:
    content = files(SOUNDS)
    read = ingested("AUDIO", folder(content, tmp_path / "in"), tmp_path)
    read.reader.read_all()
    lines = "".join(f"{sha256(one).hexdigest()}  {name}\n" for name, one in content.items())
    (source,) = read.inputs()
    assert source.digest == sha256(lines.encode()).hexdigest()
