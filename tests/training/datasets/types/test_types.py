"""The built-in types: accepted and refused input, and the registry."""

import copy
import io
import os
import struct
import zipfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

import txlog
from tests.examples import examples
from txlog.base.errors import (
    AlreadyExistsError,
    InvalidInputError,
    InvalidTypeError,
    NotFoundError,
    SchemaMismatchError,
    TxlogError,
)
from txlog.store.open import open_store
from txlog.training import Datasets, InlineRunner
from txlog.training.datasets import types as registry
from txlog.training.datasets.ingest import Ingested, ingest
from txlog.training.datasets.limits import Limits
from txlog.training.datasets.sources import Sources
from txlog.training.datasets.types import register, type_of, types
from txlog.training.datasets.types.text_intent import TextIntent

OPEN = Sources()


def ingested(
    kind: str, source: Any, root: Path, limits: Limits | None = None, sources: Sources = OPEN
) -> Ingested:
    store = open_store(root / "root")
    return ingest(type_of(kind), source, sources=sources, limits=limits or Limits(), store=store)


def rows(kind: str, source: Any, root: Path, limits: Limits | None = None) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = ingested(kind, source, root, limits).reader.read_all().to_pylist()
    return found


def image(size: tuple[int, int] = (3, 2), kind: str = "PNG", seed: int = 0) -> bytes:
    sink = io.BytesIO()
    Image.new("RGB", size, (seed % 256, 10, 20)).save(sink, kind)
    return sink.getvalue()


def zipped(members: dict[str, bytes], path: Path, packing: int = zipfile.ZIP_DEFLATED) -> Path:
    with zipfile.ZipFile(path, "w", packing) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return path


# Texts -----------------------------------------------------------------------------------------


@pytest.mark.spec("DST-51")
def test_texts_with_labels(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(
        '"I am still waiting on my credit card", activate_my_card ;card_arrival\n'
        "\n"
        '"I couldn\'t purchase gas, in Costco",card_not_working, , "x y";\n'.replace(
            '"x y";', '"x y;"'
        )
    )
    read = ingested("TEXT_INTENT", tmp_path / "a.csv", tmp_path)
    assert read.reader.read_all().to_pylist() == [
        {
            "utterance": "I am still waiting on my credit card",
            "labels": ["activate_my_card", "card_arrival"],
        },
        {"utterance": "I couldn't purchase gas, in Costco", "labels": ["card_not_working", "x y"]},
    ]
    (source,) = read.inputs()
    assert source.uri == str(tmp_path / "a.csv")
    assert source.digest is not None
    assert len(source.digest) == 64


@given(
    rows_=st.lists(
        st.tuples(
            st.text(st.sampled_from('ab",\n é'), min_size=1, max_size=9).filter(str.strip),
            st.lists(st.sampled_from(["x", "y z", "é", "long_label"]), min_size=1, max_size=3),
        ),
        min_size=1,
        max_size=8,
    )
)
@settings(max_examples=examples(60))
def test_texts_are_those_that_were_written(rows_: list[tuple[str, list[str]]]) -> None:
    import csv

    def chunks() -> Iterator[bytes]:
        sink = io.StringIO()
        csv.writer(sink, quoting=csv.QUOTE_ALL).writerows([text, *labels] for text, labels in rows_)
        yield sink.getvalue().encode()

    from txlog.training.datasets.types import text_intent

    file = type("File", (), {"name": "x.csv", "chunks": staticmethod(chunks)})()
    found = pa.Table.from_batches(list(text_intent._of_csv(file, Limits())))
    assert found.to_pydict() == {
        "utterance": [text for text, _ in rows_],
        "labels": [labels for _, labels in rows_],
    }


@pytest.mark.parametrize(
    "header",
    ["utterance,label", "Utterance, Labels ", '\ufeff"utterance","labels"', "\nutterance,label"],
)
@pytest.mark.spec("DST-51")
def test_a_header_is_no_example(header: str, tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text(f"{header}\na,x\nutterance,label\n", "utf-8")
    found = [
        (row["utterance"], row["labels"])
        for row in rows("TEXT_INTENT", tmp_path / "x.csv", tmp_path)
    ]
    assert found == [("a", ["x"]), ("utterance", ["label"])]
    (tmp_path / "x.csv").write_text(f"{header}\n", "utf-8")
    assert rows("TEXT_INTENT", tmp_path / "x.csv", tmp_path) == []
    (tmp_path / "x.csv").write_text(f"{header}\na,x\nb\n", "utf-8")
    with pytest.raises(SchemaMismatchError, match=r"row 3 .* has no label"):
        rows("TEXT_INTENT", tmp_path / "x.csv", tmp_path)


@pytest.mark.parametrize(
    "header", ["text,label", "Text,Intent", "id,utterance,labels", "label,text", ",text,category"]
)
@pytest.mark.spec("DST-51")
def test_a_row_that_looks_like_another_header_is_asked_about(header: str, tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text(f"{header}\na,x\n", "utf-8")
    with pytest.raises(
        SchemaMismatchError, match=r"row 1 \(line 1\) of x\.csv looks like a header"
    ):
        rows("TEXT_INTENT", tmp_path / "x.csv", tmp_path)
    (tmp_path / "x.csv").write_text(f"b,y,x\n{header.lstrip(',')}\na,x\n", "utf-8")
    assert len(rows("TEXT_INTENT", tmp_path / "x.csv", tmp_path)) == 3


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a,x\n\nb\n", "row 2 (line 3) of x.csv has no label"),
        ("a,x\nb, ;\n", "row 2 (line 2) of x.csv has no label"),
        ("a,x\n , y\n", "row 2 (line 2) of x.csv has no utterance"),
        (f"a,{'l' * 256}\n", "row 1 (line 1) of x.csv has a label of more than 255 bytes"),
        ("a,x\nb,y\x07\n", "row 2 (line 2) of x.csv has a control character in a label"),
    ],
)
@pytest.mark.spec("DST-50", "DST-51")
def test_texts_that_do_not_fit_are_refused_with_their_row(
    text: str, words: str, tmp_path: Path
) -> None:
    (tmp_path / "x.csv").write_text(text)
    with pytest.raises(SchemaMismatchError) as caught:
        rows("TEXT_INTENT", tmp_path / "x.csv", tmp_path)
    assert words in str(caught.value)


def test_texts_of_arrow_data(tmp_path: Path) -> None:
    lists = pa.table({"utterance": ["a", "b"], "labels": [["x", " y "], ["z"]]})
    assert [row["labels"] for row in rows("TEXT_INTENT", lists, tmp_path)] == [["x", "y"], ["z"]]
    texts = pa.table({"labels": ["x; y", "z"], "utterance": ["a", "b"]})
    assert [row["labels"] for row in rows("TEXT_INTENT", texts, tmp_path)] == [["x", "y"], ["z"]]
    sliced = pa.table({"utterance": ["a", "b"], "labels": [["x"], ["z", "q"]]}).slice(1)
    assert [row["labels"] for row in rows("TEXT_INTENT", sliced, tmp_path)] == [["z", "q"]]


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (pa.table({"message": ["a"], "labels": [["x"]]}), "the data has no column utterance"),
        (
            pa.table({"utterance": ["a", None], "labels": ["x", "y"]}),
            "row 2 of the data has no utt",
        ),
        (pa.table({"utterance": ["a", "b"], "labels": [["x"], []]}), "row 2 of the data has no la"),
        (
            pa.table(
                {"utterance": ["a"], "labels": [[None]]},
            ),
            "a label is null",
        ),
        (pa.table({"utterance": [[1]], "labels": ["x"]}), "a column of string was expected"),
        (
            pa.table({"utterance": ["a"], "labels": [["x", " "]]}),
            "row 1 of the data has an empty la",
        ),
    ],
)
def test_arrow_data_that_does_not_fit_is_refused(
    data: pa.Table, words: str, tmp_path: Path
) -> None:
    with pytest.raises(SchemaMismatchError) as caught:
        rows("TEXT_INTENT", data, tmp_path)
    assert words in str(caught.value)


# Images ----------------------------------------------------------------------------------------

IMAGES = {
    "cat/a.png": image(seed=1),
    "cat/b.jpg": image(kind="JPEG", seed=2),
    "dog/a.png": image((5, 4), seed=3),
}


def test_images_of_a_zip_and_of_a_folder_are_the_same(tmp_path: Path) -> None:
    for name, content in {**IMAGES, "cat/.DS_Store": b"x"}.items():
        path = tmp_path / "images" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    archive = zipped({**IMAGES, "__MACOSX/cat/._a.png": b"x"}, tmp_path / "images.zip")
    found = rows("IMAGE_CLASS", archive, tmp_path)
    assert rows("IMAGE_CLASS", tmp_path / "images", tmp_path) == found
    assert [(row["label"], row["filename"], row["format"]) for row in found] == [
        ("cat", "a.png", "PNG"),
        ("cat", "b.jpg", "JPEG"),
        ("dog", "a.png", "PNG"),
    ]
    assert [row["content"] for row in found] == list(IMAGES.values())
    assert (found[2]["width"], found[2]["height"], found[2]["size"]) == (
        5,
        4,
        len(IMAGES["dog/a.png"]),
    )


@pytest.mark.spec("DST-53")
def test_large_images_lie_beside_the_rows(tmp_path: Path) -> None:
    archive = zipped(IMAGES, tmp_path / "images.zip")
    found = rows("IMAGE_CLASS", archive, tmp_path, Limits(row_bytes=1))
    assert [row["content"] for row in found] == [None, None, None]
    root = tmp_path / "root"
    assert [(root / row["uri"]).read_bytes() for row in found] == list(IMAGES.values())
    assert [row["uri"].rpartition("/")[2] for row in found] == [row["sha256"] for row in found]


def test_a_jpeg_of_several_pictures_is_one_image(tmp_path: Path) -> None:
    """As telephones make them."""
    sink = io.BytesIO()
    pictures = [Image.new("RGB", (6, 5), (n, 0, 0)) for n in range(2)]
    pictures[0].save(sink, "MPO", save_all=True, append_images=pictures[1:])
    data = pa.table({"filename": ["x.jpg"], "label": ["x"], "content": [sink.getvalue()]})
    (row,) = rows("IMAGE_CLASS", data, tmp_path)
    assert (row["format"], row["width"], row["height"]) == ("JPEG", 6, 5)


def test_images_of_arrow_data(tmp_path: Path) -> None:
    data = pa.table(
        {"path": ["s3://x/cat/a.png"], "label": ["cat"], "content": [IMAGES["cat/a.png"]]}
    )
    (row,) = rows("IMAGE_CLASS", data, tmp_path)
    assert (row["filename"], row["label"], row["width"]) == ("a.png", "cat", 3)


def lying_png(width: int, height: int) -> bytes:
    """Return a PNG whose header says another size than its pixels have."""
    import zlib

    good = image()
    header = b"IHDR" + struct.pack(">II", width, height) + good[24:29]
    return good[:12] + header + struct.pack(">I", zlib.crc32(header)) + good[33:]


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("cat/x.jpg", image(), "cat/x.jpg in i.zip has the format PNG, but its name has another"),
        ("cat/x.png", b"no image", "cat/x.png in i.zip is not a readable image"),
        ("cat/x.png", b"", "is not a readable image"),
        ("cat/x.png", image((50, 50))[:-40], "is not a readable image"),
        ("cat/x.png", lying_png(300, 200), "is not a readable image"),
        ("cat/x.png", lying_png(9000, 9000), "has 9000 × 9000 pixels, 67108864 are allowed"),
        ("cat/x.png", lying_png(60000, 60000), "has more than 67108864 pixels"),
        ("x.png", image(), "'x.png' in i.zip is not in a folder"),
        ("cat/deep/x.png", image(), "'cat/deep/x.png' in i.zip is nested too deeply"),
        ("cat/x.zip", b"PK\x05\x06" + bytes(18), "is not a readable image"),
        (" /x.png", image(), "the label of ' /x.png' in i.zip is empty"),
    ],
)
@pytest.mark.spec("DST-50", "DST-52")
def test_images_that_lie_are_refused(name: str, content: bytes, words: str, tmp_path: Path) -> None:
    archive = zipped({**IMAGES, name: content}, tmp_path / "i.zip")
    with pytest.raises(SchemaMismatchError) as caught:
        rows("IMAGE_CLASS", archive, tmp_path)
    assert words in str(caught.value)


@given(
    kind=st.sampled_from(["PNG", "JPEG", "GIF", "BMP", "TIFF", "WEBP"]),
    at=st.integers(0, 300),
    data=st.binary(max_size=8),
    cut=st.integers(0, 400),
)
@settings(max_examples=examples(150))
def test_a_changed_image_is_a_row_or_one_clear_error(
    kind: str, at: int, data: bytes, cut: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    content = image((9, 7), kind)
    content = (content[:at] + data + content[at + len(data) :])[: max(1, len(content) - cut)]
    name = f"x.{kind.lower()}"
    source = pa.table({"filename": [name], "label": ["x"], "content": [content]})
    limits = Limits(pixels=100_000)
    try:
        (row,) = rows("IMAGE_CLASS", source, tmp_path_factory.mktemp("image"), limits)
    except SchemaMismatchError:
        return
    assert row["content"] == content
    assert row["width"] * row["height"] <= 100_000


def edited(path: Path, old: bytes, new: bytes) -> Path:
    path.write_bytes(path.read_bytes().replace(old, new))
    return path


def linked(path: Path) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        info = zipfile.ZipInfo("cat/x.png")
        info.external_attr = 0o120777 << 16
        archive.writestr(info, "/etc/passwd")
    return path


def overlapping(path: Path) -> Path:
    """Return a zip whose directory names one member many times, by different names."""
    zipped({"cat/0.png": os.urandom(5000)}, path, zipfile.ZIP_STORED)
    data = path.read_bytes()
    at = data.index(b"PK\x01\x02")
    end = data.index(b"PK\x05\x06")
    entries = [data[at:end].replace(b"cat/0", f"cat/{n}".encode()) for n in range(9)]
    directory = b"".join(entries)
    tail = struct.pack("<4s4H2IH", b"PK\x05\x06", 0, 0, 9, 9, len(directory), at, 0)
    path.write_bytes(data[:at] + directory + tail)
    return path


ZIPS: dict[str, tuple[Callable[[Path], Path], str]] = {
    "climbs": (lambda p: zipped({"../x.png": image()}, p), "leads out of its folder"),
    "climbs in the middle": (lambda p: zipped({"a/../../x": b""}, p), "leads out of its folder"),
    "is absolute": (lambda p: zipped({"/etc/x.png": image()}, p), "is absolute"),
    "names a drive": (lambda p: zipped({"C:/x.png": image()}, p), "names a drive"),
    "has backslashes": (lambda p: zipped({"cat\\x.png": image()}, p), "has a slash"),
    "has a NUL": (
        lambda p: edited(zipped({"cat/x.png": image()}, p), b"cat/x.png", b"cat/x\0png"),
        "NUL character",
    ),
    "swells": (lambda p: zipped({"cat/x.png": bytes(3 << 20)}, p), "expands from"),
    "lies over itself": (overlapping, "overlap"),
    "is a link": (linked, "is a link"),
    "is cut": (lambda p: edited(zipped(IMAGES, p), b"PK\x05\x06", b"PK"), "is not a zip"),
    "is damaged": (
        lambda p: edited(zipped(IMAGES, p, zipfile.ZIP_STORED), b"IEND", b"XEND"),
        "is damaged: Bad CRC-32",
    ),
    "is no zip": (lambda p: edited(zipped({}, p), b"PK", b"NO"), "is not a zip"),
    "is packed oddly": (lambda p: zipped({"cat/x.png": image()}, p, zipfile.ZIP_LZMA), "method 14"),
}


@pytest.mark.parametrize("case", ZIPS)
@pytest.mark.spec("DST-52")
def test_a_hostile_zip_is_refused_before_it_is_unpacked(case: str, tmp_path: Path) -> None:
    make, words = ZIPS[case]
    with pytest.raises(InvalidInputError) as caught:
        rows("IMAGE_CLASS", make(tmp_path / "i.zip"), tmp_path)
    assert words in str(caught.value)
    assert not (tmp_path / "root").exists()


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_a_member_that_is_there_twice_is_refused(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "i.zip", "w") as archive:
        archive.writestr("cat/x.png", image())
        archive.writestr("cat/x.png", image(seed=9))
    with pytest.raises(InvalidInputError, match="twice"):
        rows("IMAGE_CLASS", tmp_path / "i.zip", tmp_path)


def test_limits_count_members(tmp_path: Path) -> None:
    archive = zipped(IMAGES, tmp_path / "i.zip")
    with pytest.raises(InvalidInputError, match="3 members, 2 are allowed"):
        rows("IMAGE_CLASS", archive, tmp_path, Limits(files=2))
    with pytest.raises(InvalidInputError, match=r"has [0-9]+ bytes, 10 are allowed"):
        rows("IMAGE_CLASS", archive, tmp_path, Limits(image_bytes=10))


NAME = st.text(st.sampled_from("ab é.-_"), min_size=1, max_size=5).filter(
    lambda name: name.strip() == name and name not in (".", "..")
)


@given(
    places=st.sets(
        st.tuples(NAME, NAME.map(lambda name: f"{name}.png")).filter(
            lambda place: not place[1].startswith("._")  # Litter.
        ),
        min_size=1,
        max_size=5,
    ),
    packing=st.sampled_from([zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED]),
    zip64=st.booleans(),
)
@settings(max_examples=examples(40))
def test_a_zip_holds_what_zipfile_put_into_it(
    places: set[tuple[str, str]],
    packing: int,
    zip64: bool,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    folder = tmp_path_factory.mktemp("zip")
    ordered = sorted(places, key=lambda place: "/".join(place))
    expected = [(label, name, image(seed=seed)) for seed, (label, name) in enumerate(ordered)]
    with pytest.MonkeyPatch.context() as patch:
        if zip64:  # As of an archive of many members.
            patch.setattr(zipfile, "ZIP_FILECOUNT_LIMIT", 0)
            patch.setattr(zipfile, "ZIP64_LIMIT", 10)
        with zipfile.ZipFile(folder / "i.zip", "w", packing) as archive:
            for label, name, content in reversed(expected):
                archive.writestr(f"{label}/{name}", content)
    found = rows("IMAGE_CLASS", folder / "i.zip", folder)
    assert [(row["label"], row["filename"], row["content"]) for row in found] == expected


@given(data=st.binary(max_size=60), at=st.integers(0, 400))
@settings(max_examples=examples(100))
def test_a_changed_zip_is_rows_or_one_clear_error(
    data: bytes, at: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("zip")
    path = zipped(IMAGES, folder / "i.zip")
    whole = path.read_bytes()
    path.write_bytes(whole[:at] + data + whole[at + len(data) :])
    try:
        found = rows("IMAGE_CLASS", path, folder)
    except TxlogError:
        return
    with zipfile.ZipFile(path) as archive:  # What is read, zipfile reads too.
        assert [row["content"] for row in found] == [
            archive.read(name) for name in sorted(archive.namelist())
        ]


# Files of any kind -----------------------------------------------------------------------------


def test_files_as_they_are(tmp_path: Path) -> None:
    files = {"a.bin": b"\0\1", "sub/b.bin": bytes(100), "sub/c": b""}
    for name, content in files.items():
        (tmp_path / "in" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "in" / name).write_bytes(content)
    found = rows("GENERIC", tmp_path / "in", tmp_path, Limits(row_bytes=50))
    assert [(row["name"], row["size"]) for row in found] == [
        ("a.bin", 2),
        ("sub/b.bin", 100),
        ("sub/c", 0),
    ]
    assert [row["content"] for row in found] == [b"\0\1", None, b""]
    assert (tmp_path / "root" / found[1]["uri"]).read_bytes() == bytes(100)
    assert not list((tmp_path / "root" / "files" / ".staged").iterdir())
    (single,) = rows("GENERIC", tmp_path / "in" / "a.bin", tmp_path)
    assert single["name"] == "a.bin"


@pytest.mark.parametrize("name", ["../x", "a/../b", "/x", "a\0b", "", "a//b", "x" * 300])
def test_names_of_files_that_lead_anywhere_are_refused(name: str, tmp_path: Path) -> None:
    data = pa.table({"name": [name], "content": [b"x"]})
    with pytest.raises(SchemaMismatchError, match="row 1 of the data: the name"):
        rows("GENERIC", data, tmp_path)


# Tables ----------------------------------------------------------------------------------------


def test_rows_of_any_columns(tmp_path: Path) -> None:
    data = pa.table({"x": [1, 2], "s": [{"a": 1}, None]})
    assert rows("TABLE", data, tmp_path) == data.to_pylist()
    (tmp_path / "in").mkdir()
    pq.write_table(data, tmp_path / "in" / "a.parquet")
    pq.write_table(data.slice(1), tmp_path / "in" / "b.parquet")
    read = ingested("TABLE", tmp_path / "in", tmp_path)
    assert read.reader.read_all().to_pylist() == [*data.to_pylist(), data.to_pylist()[1]]
    (source,) = read.inputs()
    assert source.uri == str(tmp_path / "in")


def test_rows_of_a_table_at_a_version(tmp_path: Path) -> None:
    table = txlog.write(tmp_path / "t", pa.table({"x": [1]}))
    table.append(pa.table({"x": [2]}))
    for source in (f"{tmp_path}/t@v0", txlog.Table(tmp_path / "t", version=0)):
        read = ingested("TABLE", source, tmp_path)
        assert read.reader.read_all().to_pylist() == [{"x": 1}]
        (given_,) = read.inputs()
        assert (given_.role, given_.version, given_.uri) == ("table", 0, str(tmp_path / "t"))
    read = ingested("TABLE", tmp_path / "t", tmp_path)
    assert sorted(row["x"] for row in read.reader.read_all().to_pylist()) == [1, 2]
    assert read.inputs()[0].version == 1


def test_parquet_that_does_not_fit_is_refused(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    pq.write_table(pa.table({"x": [1]}), tmp_path / "in" / "a.parquet")
    pq.write_table(pa.table({"x": ["a"]}), tmp_path / "in" / "b.parquet")
    with pytest.raises(SchemaMismatchError, match=r"column x is string in b\.parquet"):
        rows("TABLE", tmp_path / "in", tmp_path)
    (tmp_path / "in" / "b.parquet").write_bytes(b"PAR1 and then nothing")
    with pytest.raises(SchemaMismatchError, match=r"b\.parquet is a Parquet file that cannot"):
        rows("TABLE", tmp_path / "in", tmp_path)
    (tmp_path / "in" / "b.parquet").write_bytes(b"x,y")
    with pytest.raises(SchemaMismatchError, match=r"b\.parquet is not a Parquet file"):
        rows("TABLE", tmp_path / "in", tmp_path)


@given(at=st.integers(0, 2000), data=st.binary(min_size=1, max_size=4))
@settings(max_examples=examples(100))
def test_a_changed_parquet_file_is_rows_or_one_clear_error(
    at: int, data: bytes, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("parquet")
    rows_ = pa.table({"x": [*range(50)], "s": [{"a": str(n)} for n in range(50)]})
    pq.write_table(rows_, folder / "x.parquet", row_group_size=20)
    whole = (folder / "x.parquet").read_bytes()
    at %= len(whole)
    (folder / "x.parquet").write_bytes(whole[:at] + data + whole[at + len(data) :])
    try:
        found = ingested("TABLE", folder / "x.parquet", folder).reader.read_all()
    except TxlogError:
        return
    assert found.num_rows <= 50


def test_a_page_that_swells_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from txlog.parquet import page

    monkeypatch.setattr(page, "_UNPACKED_BYTES", 1000)
    monkeypatch.setattr(page, "_MOST_TIMES", 2)
    pq.write_table(pa.table({"x": ["a" * 100_000]}), tmp_path / "x.parquet", compression="zstd")
    with pytest.raises(SchemaMismatchError, match="is larger than its column can be"):
        rows("TABLE", tmp_path / "x.parquet", tmp_path)


# Registry --------------------------------------------------------------------------------------


class Scored(TextIntent):
    name = "SCORED_TEXT"
    version = 3
    aliases = ("SCORED",)


@pytest.fixture
def _same_types() -> Iterator[None]:
    types()
    known = dict(registry._known)
    yield
    registry._known.clear()
    registry._known.update(known)


@pytest.mark.usefixtures("_same_types")
def test_types_are_registered_by_one_door() -> None:
    assert list(types()) == ["AUDIO", "GENERIC", "IMAGE_CLASS", "TABLE", "TEXT_INTENT", "VIDEO"]
    assert type_of("LANGUAGE_INTENT") is type_of("TEXT_INTENT") is type_of("text-intent/1")
    register(Scored())
    assert type_of("SCORED").version == 3
    assert "SCORED_TEXT" in types()
    with pytest.raises(AlreadyExistsError, match="SCORED_TEXT"):
        register(Scored())
    register(Scored(), replace=True)
    with pytest.raises(NotFoundError, match="AUDIO, GENERIC, IMAGE_CLASS, SCORED_TEXT, TABLE"):
        type_of("SPEECH")
    with pytest.raises(NotFoundError, match="scored-text/3"):
        type_of("scored-text/2")


@pytest.mark.usefixtures("_same_types")
def test_a_new_recipe_locks_no_set_of_the_old_one(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.bin").write_bytes(b"a")
    catalog = Datasets(tmp_path / "root", runner=InlineRunner())
    made = catalog.create("d", "GENERIC", tmp_path / "in")
    old = made.prepare()
    newer = copy.copy(type_of("GENERIC"))
    newer.version = 2  # type: ignore[misc]
    register(newer, replace=True)
    fetched = made.fetch(old.version_hash)
    (path,) = fetched.download(tmp_path / "out")
    assert Path(path).read_bytes() == b"a"
    assert fetched.table().count() == 1
    assert made.verify()
    new = made.prepare()
    assert (new.state, new.version_hash != old.version_hash) == ("READY", True)
    registry._known.clear()  # Not even a type that is gone locks them.
    assert len(fetched.download(tmp_path / "again")) >= 1


@pytest.mark.usefixtures("_same_types")
def test_what_is_no_type_is_refused() -> None:
    for wrong in (Scored, object(), 7):
        with pytest.raises(InvalidTypeError, match="is not a type of data sets"):
            register(wrong)  # type: ignore[arg-type]
    odd = Scored()
    odd.name = "scored text"
    with pytest.raises(InvalidInputError, match="capitals"):
        register(odd)


@pytest.mark.usefixtures("_same_types")
def test_types_come_from_entry_points(monkeypatch: pytest.MonkeyPatch) -> None:
    from importlib import metadata

    def entry_points(*, group: str) -> list[metadata.EntryPoint]:
        assert group == "txlog.dataset_types"
        return [
            metadata.EntryPoint("broken", "no.such.module:Type", group),
            metadata.EntryPoint("scored", f"{__name__}:Scored", group),
        ]

    monkeypatch.setattr(metadata, "entry_points", entry_points)
    monkeypatch.setattr(metadata.EntryPoint, "load", _load)
    registry._known.clear()
    registry._is_loaded.clear()
    with pytest.warns(txlog.TxlogWarning, match="the type broken of a package cannot be loaded"):
        found = types()
    assert [*found] == [
        "AUDIO",
        "GENERIC",
        "IMAGE_CLASS",
        "SCORED_TEXT",
        "TABLE",
        "TEXT_INTENT",
        "VIDEO",
    ]


def _load(entry: Any) -> Any:
    if entry.name == "scored":
        return Scored
    from importlib import import_module

    module, _, name = entry.value.partition(":")
    return getattr(import_module(module), name)


@given(st.data())
@settings(max_examples=examples(150), deadline=None)
def test_a_damaged_zip_is_an_error_of_txlog(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    folder = tmp_path_factory.getbasetemp() / "damaged"
    folder.mkdir(exist_ok=True)
    content = bytearray(zipped(IMAGES, folder / "i.zip").read_bytes())
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(content) - 1)) if data.draw(st.booleans()) else -1
        # The end of a zip has the offsets and lengths that its readers trust.
        at = at if at >= 0 else len(content) - data.draw(st.integers(1, min(120, len(content))))
        content[at] = data.draw(st.sampled_from([0, 1, 0x7F, 0x80, 0xFF]))
    (folder / "i.zip").write_bytes(content[: data.draw(st.sampled_from([None, None, 30, 100]))])
    with suppress(TxlogError):
        rows("IMAGE_CLASS", folder / "i.zip", folder)


@pytest.mark.parametrize("more", [1, 50])
def test_a_zip_whose_directory_is_elsewhere_is_an_error_of_txlog(tmp_path: Path, more: int) -> None:
    content = bytearray(zipped(IMAGES, tmp_path / "i.zip").read_bytes())
    content[-6] += more  # The offset of the directory: members seem to begin before the file.
    (tmp_path / "i.zip").write_bytes(content)
    with pytest.raises(InvalidInputError, match=r"damaged|not a readable zip|overlap"):
        rows("IMAGE_CLASS", tmp_path / "i.zip", tmp_path)


def test_labels_in_two_forms_of_unicode_are_one_label(tmp_path: Path) -> None:
    one, other = "caf\u00e9", "cafe\u0301"
    image = next(iter(IMAGES.values()))
    for label in (one, other):
        (tmp_path / "in" / label).mkdir(parents=True)
        (tmp_path / "in" / label / "a.png").write_bytes(image)
    assert {row["label"] for row in rows("IMAGE_CLASS", tmp_path / "in", tmp_path)} == {one}
    (tmp_path / "a.csv").write_text(f"u,{one};{other}\nv,{other}\n")
    found = rows("TEXT_INTENT", tmp_path / "a.csv", tmp_path)
    assert [row["labels"] for row in found] == [[one, one], [one]]


@pytest.mark.parametrize("form", ["parquet", "csv"])
def test_a_file_and_a_folder_of_one_name_are_refused(tmp_path: Path, form: str) -> None:
    catalog = Datasets(tmp_path / "root", runner=InlineRunner())
    made = catalog.create("d", "GENERIC", pa.table({"name": ["a", "a.b"], "content": [b"1", b"2"]}))
    assert made.prepare(form=form).state == "READY"
    made.update(pa.table({"name": ["a/b"], "content": [b"3"]}))
    failed = made.prepare(form=form)
    assert failed.state == "FAILED"
    assert "'a' is a file, and 'a/b' needs a folder" in str(failed.error)


def test_names_of_sources_are_taken_as_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("~x.csv").write_text("u,a\n")
    assert [row["labels"] for row in rows("TEXT_INTENT", "~x.csv", tmp_path)] == [["a"]]
    table = txlog.write(tmp_path / "imgs", pa.table({"n": [0]}))
    table.append(pa.table({"n": [1]}))
    assert rows("TABLE", str(tmp_path / "imgs@v0"), tmp_path) == [{"n": 0}]
    (tmp_path / "imgs@v0").mkdir()
    pq.write_table(pa.table({"n": [7]}), tmp_path / "imgs@v0" / "a.parquet")
    assert rows("TABLE", str(tmp_path / "imgs@v0"), tmp_path) == [{"n": 7}]
