"""Files of records: both ways, beside the package `tfrecord`, and refused when damaged."""

from __future__ import annotations

import gzip
import struct
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import examples
from tests.training.datasets.formats.test_webdataset import image, rows
from txlog.base.errors import InvalidInputError, SchemaMismatchError, TxlogError
from txlog.training import Datasets, InlineRunner, Limits
from txlog.training.datasets.formats import base, export

pytest.importorskip("crc32c", reason="the extra tfrecord is not installed")

SCHEMA = pa.schema(
    [
        ("b", pa.binary()),
        ("bs", pa.list_(pa.binary())),
        ("f", pa.float32()),
        ("fs", pa.list_(pa.float32())),
        ("i", pa.int64()),
        ("is", pa.list_(pa.int64())),
    ]
)
WHOLE = st.integers(-(1 << 63), (1 << 63) - 1)
FLOATS = st.floats(width=32, allow_nan=False)
ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "b": st.none() | st.binary(max_size=9),
            "bs": st.none() | st.lists(st.binary(max_size=300), max_size=3),
            "f": st.none() | FLOATS,
            "fs": st.none() | st.lists(FLOATS, max_size=3),
            "i": st.none() | WHOLE,
            "is": st.none() | st.lists(WHOLE, max_size=3),
        }
    ),
    min_size=1,
    max_size=6,
)


def records(path: Path) -> list[bytes]:
    """Return the records of a file without a look at their checksums."""
    found, data = [], path.read_bytes()
    while data:
        (size,) = struct.unpack_from("<Q", data)
        found.append(data[12 : 12 + size])
        data = data[16 + size :]
    return found


def of_the_package(path: Path) -> list[dict[str, list[Any]]]:
    """Return the features of a file as the package `tfrecord` reads them."""
    package = pytest.importorskip("tfrecord")
    found = []
    for record in package.tfrecord_iterator(str(path)):
        example = package.example_pb2.Example()
        example.ParseFromString(bytes(record))
        features = {}
        for name, feature in example.features.feature.items():
            kind = feature.WhichOneof("kind")
            features[name] = list(getattr(feature, kind).value)
        found.append(features)
    return found


@pytest.mark.spec("DST-59")
@given(written=ROWS, shard_rows=st.integers(1, 4), batch_rows=st.integers(1, 3))
@settings(max_examples=examples(100))
def test_rows_that_are_written_as_records_are_read_again(
    written: list[dict[str, Any]],
    shard_rows: int,
    batch_rows: int,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    folder = tmp_path_factory.mktemp("records")
    written[0]["i"] = 0  # A file without a feature has no columns.
    table = pa.Table.from_pylist(written, schema=SCHEMA)
    reader = pa.RecordBatchReader.from_batches(SCHEMA, table.to_batches(batch_rows))
    paths = export(reader, folder / "out", "tfrecord", shard_rows=shard_rows)
    assert len(paths) == -(-len(written) // shard_rows)
    theirs = [features for path in paths for features in of_the_package(Path(path))]
    assert theirs == [
        {name: value if isinstance(value, list) else [value] for name, value in row.items()
         if value is not None}
        for row in written
    ]  # fmt: skip
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(base, "_BATCH_ROWS", batch_rows)
        found = rows(folder / "out", folder)
    names = {name for row in written for name, value in row.items() if value is not None}
    assert [*found[0]] == sorted(names)
    for row, again in zip(written, found, strict=True):
        for name, value in again.items():
            if isinstance(row[name], list) and not isinstance(value, list):
                assert row[name] == ([] if value is None else [value])  # All have one value.
            else:
                assert value == row[name]


@pytest.mark.spec("DST-59")
def test_records_of_the_package_are_read(tmp_path: Path) -> None:
    package = pytest.importorskip("tfrecord")
    path = tmp_path / "x.tfrecord"
    writer = package.TFRecordWriter(str(path))
    for number in range(3):
        writer.write(
            {
                "name": (b"n%d" % number, "byte"),
                "label": (number - 1, "int"),
                "scores": ([0.5, number], "float"),
            }
        )
    writer.close()
    wanted = [
        {"label": number - 1, "name": b"n%d" % number, "scores": [0.5, number]}
        for number in range(3)
    ]
    assert rows(path, tmp_path) == wanted
    (tmp_path / "y.tfrecords.gz").write_bytes(gzip.compress(path.read_bytes()))
    assert rows(tmp_path / "y.tfrecords.gz", tmp_path) == wanted


def written(path: Path, count: int = 3) -> bytes:
    table = pa.table({"i": list(range(count)), "b": [b"x" * 20] * count})
    (made,) = export(table.to_reader(), path.parent / "made", "tfrecord")
    data = Path(made).read_bytes()
    path.write_bytes(data)
    return data


def test_a_file_that_is_cut_within_a_record_is_refused_with_its_number(tmp_path: Path) -> None:
    path = tmp_path / "x.tfrecord"
    data = written(path)
    size = len(data) // 3
    for cut in range(1, len(data)):
        path.write_bytes(data[:cut])
        if cut % size == 0:  # The format has no end: such a file is whole.
            assert len(rows(path, tmp_path)) == cut // size
            continue
        with pytest.raises(InvalidInputError) as caught:
            rows(path, tmp_path)
        assert f"record {cut // size + 1} of x.tfrecord is cut off" in str(caught.value)


@given(at=st.integers(0, 10_000), byte=st.integers(1, 255))
@settings(max_examples=examples(60))
def test_a_changed_byte_is_found_with_the_record(
    at: int, byte: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("records") / "x.tfrecord"
    data = bytearray(written(path))
    at %= len(data)
    data[at] ^= byte
    path.write_bytes(data)
    with pytest.raises(InvalidInputError) as caught:
        rows(path, path.parent)
    assert f"record {at // (len(data) // 3) + 1} of x.tfrecord has" in str(caught.value)


@given(record=st.binary(max_size=40))
@settings(max_examples=examples(200))
def test_records_of_other_messages_are_refused_or_are_examples(
    record: bytes, tmp_path_factory: pytest.TempPathFactory
) -> None:
    from txlog.training.datasets.formats.tfrecord import _checksum

    path = tmp_path_factory.mktemp("records") / "x.tfrecord"
    head = struct.pack("<Q", len(record))
    checks = [struct.pack("<I", _checksum()(part)) for part in (head, record)]
    path.write_bytes(head + checks[0] + record + checks[1])
    try:
        found = rows(path, path.parent)
    except TxlogError:
        return
    assert len(found) == 1


def test_a_feature_of_two_kinds_is_refused_with_its_record(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    for number, values in enumerate([[1], [b"a"]]):
        export(pa.table({"x": values}).to_reader(), tmp_path / str(number), "tfrecord")
        folder.mkdir(exist_ok=True)
        (tmp_path / str(number) / "00000.tfrecord").rename(folder / f"{number}.tfrecord")
    with pytest.raises(SchemaMismatchError, match=r"record 1 of 1\.tfrecord has binary values"):
        rows(folder, tmp_path)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        (pa.array([0.1]), "cannot hold values of double"),
        (pa.array([1], pa.timestamp("us")), "cannot hold values of timestamp"),
        (pa.array([2**63], pa.uint64()), "cannot hold values of uint64"),
        (pa.array([[1, None]]), "cannot hold a null"),
    ],
)
def test_what_an_example_cannot_hold_is_refused(
    values: pa.Array, words: str, tmp_path: Path
) -> None:
    with pytest.raises(SchemaMismatchError, match=words):
        export(pa.table({"x": values}).to_reader(), tmp_path / "out", "tfrecord")
    assert not [*tmp_path.glob("out/*")]


def test_texts_keep_their_type_in_a_data_set_that_has_it(tmp_path: Path) -> None:
    datasets = Datasets(tmp_path / "root", runner=InlineRunner())
    table = pa.table({"n": [1], "s": ["é"], "l": [["a", "b"]]})
    made = datasets.create("x", "TABLE", table)
    made.prepare().export(tmp_path / "out", "tfrecord")
    made.update(tmp_path / "out")
    assert [row["s"] for row in made.table().to_arrow().to_pylist()] == ["é", "é"]
    export(pa.table({"s": [b"\xff"]}).to_reader(), tmp_path / "bad", "tfrecord")
    with pytest.raises(SchemaMismatchError, match=r"record 1 of 00000\.tfrecord has text"):
        made.update(tmp_path / "bad")


def test_a_training_set_of_images_goes_out_and_comes_back(tmp_path: Path) -> None:
    for number, label in enumerate(["daisy", "rose", "daisy"]):
        (tmp_path / "in" / label).mkdir(parents=True, exist_ok=True)
        (tmp_path / "in" / label / f"{number}.png").write_bytes(image(number))
    datasets = Datasets(tmp_path / "root", runner=InlineRunner(), limits=Limits(row_bytes=1))
    first = datasets.create("first", "IMAGE_CLASS", tmp_path / "in")
    (path,) = first.prepare().export(tmp_path / "out", "tfrecord")
    assert of_the_package(Path(path))[2] == {
        "image/encoded": [image(1)],
        "image/filename": [b"1.png"],
        "image/class/label": [1],
        "image/class/text": [b"rose"],
    }
    second = datasets.create("second", "IMAGE_CLASS", tmp_path / "out")
    assert second.commit(1).digest == first.commit(1).digest


@pytest.mark.spec("DST-59")
def test_a_training_set_of_texts_goes_out_and_comes_back(tmp_path: Path) -> None:
    for number, labels in enumerate(([["b"], ["a"]], [["b", "a"], ["a"]], [["x y"], ["z"]])):
        home = Datasets(tmp_path / f"ds{number}", runner=InlineRunner())
        given = pa.table({"utterance": ["hi", "bye"], "labels": labels})
        dataset = home.create("s", "TEXT_INTENT", given)
        dataset.prepare().export(tmp_path / f"out{number}", "tfrecord")
        again = home.create("t", "TEXT_INTENT", str(tmp_path / f"out{number}"))
        assert again.table().to_arrow()["labels"].to_pylist() == labels
        assert again.commit(1).digest == dataset.commit(1).digest


def test_names_of_a_label_come_before_its_numbers(tmp_path: Path) -> None:
    kinds = {"text": "a", "label": 3, "label/text": "rose"}
    given = pa.Table.from_pylist([kinds, {**kinds, "label/text": "daisy"}])
    export(given.to_reader(), tmp_path / "out", "tfrecord")
    found = rows(tmp_path / "out", tmp_path, "TEXT_INTENT")
    assert [one["labels"] for one in found] == [["rose"], ["daisy"]]
