"""Tars of WebDataset: read in order, refused when damaged, and read by the package itself."""

from __future__ import annotations

import gzip
import io
import json
import tarfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from tests.examples import examples
from txlog.base.errors import InvalidInputError, SchemaMismatchError, TxlogError
from txlog.store.open import open_store
from txlog.training import Datasets, InlineRunner
from txlog.training.datasets.formats import base, export
from txlog.training.datasets.formats.samples import with_features
from txlog.training.datasets.ingest import Ingested, ingest
from txlog.training.datasets.limits import Limits
from txlog.training.datasets.sources import Sources
from txlog.training.datasets.types import type_of


def image(seed: int, kind: str = "PNG") -> bytes:
    sink = io.BytesIO()
    Image.new("RGB", (3, 2), (seed % 256, 10, 20)).save(sink, kind)
    return sink.getvalue()


def tar(members: Iterable[tuple[str, bytes]], path: Path, form: int = tarfile.PAX_FORMAT) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    mode: Any = "w:gz" if path.name.endswith("gz") else "w"
    with tarfile.open(path, mode, format=form) as archive:
        for name, content in members:
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return path


def ingested(
    source: Any, root: Path, kind: str = "TABLE", limits: Limits | None = None
) -> Ingested:
    return ingest(
        type_of(kind),
        source,
        sources=Sources(),
        limits=limits or Limits(),
        store=open_store(root / "root"),
    )


def rows(source: Any, root: Path, kind: str = "TABLE", limits: Limits | None = None) -> list[Any]:
    found: list[Any] = ingested(source, root, kind, limits).reader.read_all().to_pylist()
    return found


SAMPLES = [
    ("a/0.jpg", b"first"),
    ("a/0.cls", b"3"),
    ("a/0.seg.png", b"mask"),
    ("a/1.jpg", b"second"),
    ("a/1.json", b'{"x": 1}'),
]


@pytest.mark.spec("DST-55")
@pytest.mark.parametrize("name", ["x.tar", "x.tar.gz", "x.tgz"])
def test_the_members_of_a_sample_are_the_columns_of_a_row(name: str, tmp_path: Path) -> None:
    read = ingested(tar(SAMPLES, tmp_path / name), tmp_path)
    table = read.reader.read_all()
    assert table.schema.names == ["__key__", "jpg", "cls", "seg.png", "json"]
    assert table.schema.types == [
        pa.string(), pa.binary(), pa.int64(), pa.binary(), pa.string()
    ]  # fmt: skip
    assert table.to_pylist() == [
        {"__key__": "a/0", "jpg": b"first", "cls": 3, "seg.png": b"mask", "json": None},
        {"__key__": "a/1", "jpg": b"second", "cls": None, "seg.png": None, "json": '{"x": 1}'},
    ]
    (origin,) = read.inputs()
    assert origin.digest is not None  # All bytes were read, also those after the last member.


def test_shards_of_a_folder_follow_in_the_order_of_their_names(tmp_path: Path) -> None:
    folder = tmp_path / "shards"
    tar([("0.txt", "é".encode()), ("1.txt", b"b")], folder / "b.tar")
    tar([("0.txt", b"c"), ("0.cls", b"-7")], folder / "a.tar")
    assert rows(folder, tmp_path) == [
        {"__key__": "0", "txt": "c", "cls": -7},
        {"__key__": "0", "txt": "é", "cls": None},
        {"__key__": "1", "txt": "b", "cls": None},
    ]


def test_folders_litter_and_long_names_are_no_obstacle(tmp_path: Path) -> None:
    long = "d" * 90 + "/" + "n" * 120
    for number, form in enumerate((tarfile.PAX_FORMAT, tarfile.GNU_FORMAT)):
        path = tar(
            [("./._0.txt", b"x"), (".DS_Store", b"x"), (f"./{long}.txt", b"a")],
            tmp_path / f"{number}.tar",
            form,
        )
        assert rows(path, tmp_path) == [{"__key__": long, "txt": "a"}]


@pytest.mark.spec("DST-55")
@pytest.mark.parametrize(
    ("members", "words"),
    [
        ([("0.jpg", b"a"), ("0.jpg", b"b")], "has the member '0.jpg' twice"),
        ([("0.jpg", b"a"), ("1.jpg", b"b"), ("0.cls", b"1")], "has the sample '0' twice"),
        ([("0.jpg", b"a"), ("README", b"b")], "'README' of x.tar has no ending"),
        ([("a/.jpg", b"a")], "'a/.jpg' of x.tar has no name before its ending"),
        ([("../0.jpg", b"a")], "'../0.jpg' of x.tar"),
        ([("0.cls", b"cat")], "0.cls in x.tar cannot be read as int64"),
        ([("0.cls", b"9223372036854775808")], "0.cls in x.tar cannot be read as int64"),
        ([("0.txt", b"\xff")], "0.txt in x.tar cannot be read as string"),
    ],
)
def test_members_that_do_not_fit_are_refused_with_their_names(
    members: list[tuple[str, bytes]], words: str, tmp_path: Path
) -> None:
    with pytest.raises((InvalidInputError, SchemaMismatchError)) as caught:
        rows(tar(members, tmp_path / "x.tar"), tmp_path)
    assert words in str(caught.value)


def test_links_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.tar"
    with tarfile.open(path, "w") as archive:
        info = tarfile.TarInfo("0.jpg")
        info.type, info.linkname = tarfile.SYMTYPE, "/etc/passwd"
        archive.addfile(info)
    with pytest.raises(InvalidInputError, match=r"'0\.jpg' of x\.tar is a link"):
        rows(path, tmp_path)


@pytest.mark.parametrize("name", ["x.tar", "x.tgz"])
def test_a_tar_that_is_cut_anywhere_is_refused(name: str, tmp_path: Path) -> None:
    """Also between two members, and within the end: for Python's `tarfile` that is a whole tar."""
    whole = tar(SAMPLES, tmp_path / name).read_bytes()
    used = len(whole) if name.endswith("gz") else 5 * 1024 + 512
    for size in {*range(0, used, 256), *range(512, used, 512), used - 1}:
        (tmp_path / name).write_bytes(whole[:size])
        with pytest.raises(InvalidInputError, match=rf"{name} is not a readable tar"):
            rows(tmp_path / name, tmp_path)


@given(at=st.integers(0, 5 * 1024 + 511), byte=st.integers(1, 255), packed=st.booleans())
@settings(max_examples=examples(150))
def test_a_changed_byte_changes_no_number_of_rows_in_silence(
    at: int, byte: int, packed: bool, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """A byte of a content may change; one of a header, the end or a packed tar is noticed."""
    folder = tmp_path_factory.mktemp("tars")
    whole = bytearray(tar(SAMPLES, folder / "x.tar").read_bytes())
    if packed:
        whole = bytearray(gzip.compress(bytes(whole), mtime=0))
        at %= len(whole)
    before = bytes(whole)
    whole[at] ^= byte
    name = "y.tgz" if packed else "y.tar"
    (folder / name).write_bytes(whole)
    try:
        found = rows(folder / name, folder)
    except TxlogError:
        return
    assert len(found) == 2
    (folder / name).write_bytes(before)
    assert [one.keys() for one in found] == [one.keys() for one in rows(folder / name, folder)]


def test_what_follows_the_end_of_a_tar_is_refused(tmp_path: Path) -> None:
    whole = tar(SAMPLES, tmp_path / "x.tar").read_bytes()
    (tmp_path / "x.tar").write_bytes(whole + whole)
    with pytest.raises(InvalidInputError, match="more data after the end"):
        rows(tmp_path / "x.tar", tmp_path)


@pytest.mark.parametrize(
    ("limits", "words"),
    [
        (Limits(files=4), "more than 4 members"),
        (Limits(total_bytes=16, file_bytes=1 << 20), "16"),
    ],
)
def test_limits_hold_for_members(limits: Limits, words: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match=words):
        rows(tar(SAMPLES, tmp_path / "x.tar"), tmp_path, limits=limits)


def test_a_small_packed_tar_cannot_fill_the_memory(tmp_path: Path) -> None:
    path = tar([("0.bin", bytes(64 << 20))], tmp_path / "x.tgz")
    with pytest.raises(InvalidInputError, match="when unpacked"):
        rows(path, tmp_path)
    name = "n" * (4 << 20)  # A header of 4 MiB, before any limit of the member.
    path = tar([(f"{name}.bin", b"")], tmp_path / "y.tar")
    with pytest.raises(InvalidInputError, match="a header has"):
        rows(path, tmp_path)


def test_a_folder_of_tars_and_other_files_is_refused(tmp_path: Path) -> None:
    tar(SAMPLES, tmp_path / "in" / "x.tar")
    (tmp_path / "in" / "x.parquet").write_bytes(b"PAR1")
    with pytest.raises(InvalidInputError, match=r"and others, such as x\.parquet"):
        rows(tmp_path / "in", tmp_path)
    (tmp_path / "in" / "_SUCCESS").touch()
    (tmp_path / "in" / "x.parquet").unlink()
    assert len(rows(tmp_path / "in", tmp_path)) == 2


def test_generic_keeps_a_tar_as_a_file(tmp_path: Path) -> None:
    path = tar(SAMPLES, tmp_path / "x.tar")
    (found,) = rows(path, tmp_path, "GENERIC")
    assert found["content"] == path.read_bytes()


@pytest.mark.parametrize(
    ("members", "label"),
    [
        ([("0.png", image(1)), ("0.cls", b"5")], "5"),
        ([("daisy/0.png", image(1))], "daisy"),
        ([("x/0.png", image(1)), ("x/0.json", b'{"label": "rose"}'), ("x/0.cls", b"1")], "rose"),
    ],
)
def test_images_take_their_label_from_json_cls_or_the_folder(
    members: list[tuple[str, bytes]], label: str, tmp_path: Path
) -> None:
    (found,) = rows(tar(members, tmp_path / "x.tar"), tmp_path, "IMAGE_CLASS")
    assert (found["filename"], found["label"], found["content"]) == ("0.png", label, image(1))


@pytest.mark.spec("DST-55")
@pytest.mark.parametrize("batch_rows", [1, 2, 3])
@pytest.mark.parametrize(
    ("first", "later", "kind", "words"),
    [
        ({"cls": b"1"}, {"json": b'{"labels": ["a"]}'}, "TEXT_INTENT", "in the labels of its json"),
        ({"json": b'{"labels": ["a"]}', "cls": b"1"}, {"cls": b"1"}, "TEXT_INTENT", "column cls"),
        ({"json": b'{"labels": ["a"]}'}, {"json": b"{}"}, "TEXT_INTENT", "in no column"),
        ({"json": b'{"label": "a"}'}, {"cls": b"1"}, "IMAGE_CLASS", "in the column cls"),
        ({"cls": b"1"}, {"json": b'{"label": "a"}'}, "IMAGE_CLASS", "in the label of its json"),
        ({"cls": b"1"}, {}, "IMAGE_CLASS", "in the folder"),
    ],
)
def test_labels_at_several_places_are_refused_wherever_batches_end(
    first: dict[str, bytes],
    later: dict[str, bytes],
    kind: str,
    words: str,
    batch_rows: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(base, "_BATCH_ROWS", batch_rows)
    members = []
    for number, parts in enumerate((first, first, later, first)):
        content = ("png", image(number)) if kind == "IMAGE_CLASS" else ("txt", b"a text")
        members += [(f"x/{number}.{ending}", value) for ending, value in (content, *parts.items())]
    with pytest.raises(SchemaMismatchError, match=f"row 3 has its label .*{words}.*rows before it"):
        rows(tar(members, tmp_path / "x.tar"), tmp_path, kind)


def test_a_sample_without_an_image_is_named(tmp_path: Path) -> None:
    path = tar([("7.txt", b"a"), ("7.cls", b"1")], tmp_path / "x.tar")
    with pytest.raises(SchemaMismatchError, match=r"the sample '7' of x\.tar has 0 images"):
        rows(path, tmp_path, "IMAGE_CLASS")


# Both ways -------------------------------------------------------------------------------------


def read_by_the_package(paths: list[str], *images: str) -> list[dict[str, Any]]:
    """Return the samples of tars; the package's own loop over paths leaves files open."""
    webdataset = pytest.importorskip("webdataset")
    decode = webdataset.autodecode.Decoder(
        [webdataset.autodecode.imagehandler(one) for one in images]
    )
    found = []
    for path in paths:
        with Path(path).open("rb") as stream:
            members = webdataset.tariterators.tar_file_expander([{"url": path, "stream": stream}])
            samples = webdataset.tariterators.group_by_keys(members)
            found += [decode(one) for one in samples]
    return found


KEYS = st.text("abc/", min_size=1, max_size=5).filter(
    lambda key: not key.startswith("/") and not key.endswith("/") and "//" not in key
)
VALUES = {
    "jpg": st.none() | st.binary(max_size=9),
    "cls": st.none() | st.integers(-(1 << 63), (1 << 63) - 1),
    "txt": st.none() | st.text(max_size=9),
    "tags.json": st.none() | st.just('{"a": [1]}'),
}
SCHEMA = pa.schema(
    [
        pa.field("__key__", pa.string(), nullable=False),
        ("jpg", pa.binary()),
        ("cls", pa.int64()),
        ("txt", pa.string()),
        ("tags.json", pa.string()),
    ]
)


@pytest.mark.spec("DST-55")
@given(
    keys=st.lists(KEYS, unique=True, min_size=1, max_size=6),
    data=st.data(),
    shard_rows=st.integers(1, 4),
    batch_rows=st.integers(1, 3),
)
@settings(max_examples=examples(100))
def test_rows_that_are_written_as_tars_are_read_again(
    keys: list[str],
    data: st.DataObject,
    shard_rows: int,
    batch_rows: int,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    folder = tmp_path_factory.mktemp("tars")
    written = [
        {"__key__": key, **{name: data.draw(values) for name, values in VALUES.items()}}
        for key in keys
    ]
    for row in written:
        if all(value is None for name, value in row.items() if name != "__key__"):
            row["cls"] = 0
    table = pa.Table.from_pylist(written, schema=SCHEMA)
    reader = pa.RecordBatchReader.from_batches(SCHEMA, table.to_batches(batch_rows))
    paths = export(reader, folder / "out", "webdataset", shard_rows=shard_rows)
    assert len(paths) == -(-len(keys) // shard_rows)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(base, "_BATCH_ROWS", batch_rows)
        found = rows(folder / "out", folder)
    names = {name for row in written for name, value in row.items() if value is not None}
    assert found == [{name: row[name] for name in found[0]} for row in written]
    assert set(found[0]) == names

    for row, sample in zip(written, read_by_the_package(paths), strict=True):
        sample = {name: value for name, value in sample.items() if name in SCHEMA.names}
        if "tags.json" in sample:
            sample["tags.json"] = json.dumps(sample["tags.json"])
        assert sample == {name: value for name, value in row.items() if value is not None}


def test_tars_of_the_package_are_read(tmp_path: Path) -> None:
    webdataset = pytest.importorskip("webdataset")
    with webdataset.TarWriter(str(tmp_path / "x.tar")) as writer:
        for number in range(3):
            writer.write(
                {"__key__": f"s{number}", "jpg": image(number, "JPEG"), "cls": number % 2,
                 "json": {"n": number}, "txt": "é"}
            )  # fmt: skip
    found = rows(tmp_path / "x.tar", tmp_path)
    assert [(one["__key__"], one["cls"], one["txt"]) for one in found] == [
        ("s0", 0, "é"), ("s1", 1, "é"), ("s2", 0, "é")
    ]  # fmt: skip
    assert [json.loads(one["json"]) for one in found] == [{"n": n} for n in range(3)]


def test_a_training_set_of_images_goes_out_and_comes_back(tmp_path: Path) -> None:
    """With the names of labels, and with contents that lie beside the rows."""
    for seed, label in enumerate(["daisy", "rose", "daisy"]):
        (tmp_path / "in" / label).mkdir(parents=True, exist_ok=True)
        (tmp_path / "in" / label / f"{seed}.x.png").write_bytes(image(seed))
    datasets = Datasets(tmp_path / "root", runner=InlineRunner(), limits=Limits(row_bytes=1))
    first = datasets.create("first", "IMAGE_CLASS", tmp_path / "in")
    paths = first.prepare().export(tmp_path / "out", "webdataset", shard_rows=2)
    assert [Path(path).name for path in paths] == ["00000.tar", "00001.tar"]
    second = datasets.create("second", "IMAGE_CLASS", tmp_path / "out")
    assert second.commit(1).digest == first.commit(1).digest
    theirs = read_by_the_package(paths, "rgb8")
    assert [one["cls"] for one in theirs] == [0, 0, 1]
    assert theirs[0]["png"].shape == (2, 3, 3)


def test_a_training_set_of_texts_goes_out_and_comes_back(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text('"a, b",l1;l2\nc,l2\n')
    datasets = Datasets(tmp_path / "root", runner=InlineRunner())
    first = datasets.create("first", "TEXT_INTENT", tmp_path / "x.csv")
    first.prepare().export(tmp_path / "out", "webdataset")
    second = datasets.create("second", "TEXT_INTENT", tmp_path / "out")
    assert second.commit(1).digest == first.commit(1).digest


def test_a_failed_export_leaves_no_file(tmp_path: Path) -> None:
    schema = pa.schema([("__key__", pa.string()), ("txt", pa.string())])
    table = pa.table([["a", "b.c"], ["x", "y"]], schema=schema)
    with pytest.raises(SchemaMismatchError, match=r"row 2 has the key 'b\.c'"):
        export(table.to_reader(), tmp_path / "out", "webdataset", shard_rows=1)
    assert not [*tmp_path.glob("out/*")]


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ({"content": [b"x"], "filename": ["a.jpg"], "jpg": [b"y"]}, "two values for the ending"),
        ({"content": [b"x"], "filename": ["a.json"], "x": [1]}, "two values for the ending 'json'"),
        ({"a/b": [b"x"]}, "cannot be the ending"),
        ({"json": ["{}"], "x": [1]}, "go into json"),
        ({"x": [float("nan")]}, "row 1 cannot be written as JSON"),
        ({"txt": pa.array([None], pa.string())}, "row 1 has no value"),
    ],
)
def test_rows_that_would_lose_a_value_are_refused(
    columns: dict[str, Any], words: str, tmp_path: Path
) -> None:
    with pytest.raises(SchemaMismatchError, match=words):
        export(pa.table(columns).to_reader(), tmp_path / "out", "webdataset")
    assert not [*tmp_path.glob("out/*")]


def test_a_column_content_that_is_no_file_is_like_any_other(tmp_path: Path) -> None:
    table = pa.table({"content": ["text"], "n": [1]})
    export(table.to_reader(), tmp_path / "out", "webdataset")
    (found,) = rows(tmp_path / "out", tmp_path)
    assert json.loads(found["json"]) == {"content": "text", "n": 1}


@pytest.mark.parametrize("form", ["webdataset", "tfrecord", "huggingface"])
def test_a_number_without_a_class_gets_no_name(form: str, tmp_path: Path) -> None:
    """Hugging Face gives -1 to examples without a label; Python's last item is no answer."""
    if form == "tfrecord":
        pytest.importorskip("crc32c")
    plain = pa.schema([("x", pa.int64()), ("label", pa.int64())])
    schema = with_features(plain, {"label": {"_type": "ClassLabel", "names": ["a", "b"]}})
    table = pa.table({"x": [1, 2], "label": [-1, 1]}).cast(schema)
    export(table.to_reader(), tmp_path / "out", form)
    if form == "webdataset":
        found = rows(tmp_path / "out", tmp_path)
        assert [(row["cls"], json.loads(row["json"])["label"]) for row in found] == [
            (-1, None), (1, "b")
        ]  # fmt: skip
    elif form == "tfrecord":
        assert [row["label/text"] for row in rows(tmp_path / "out", tmp_path)] == [None, b"b"]
    else:
        found = rows(tmp_path / "out" / "data", tmp_path)
        assert [row["label"] for row in found] == [-1, 1]
