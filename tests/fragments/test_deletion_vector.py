"""Deletion vectors: bytes of other engines, round trips, and every kind of damage."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyroaring import BitMap64

from txlog.actions.file import DeletionVectorDescriptor
from txlog.base.errors import BadDeletionVectorError
from txlog.fragments.deletion_vector import (
    block_range,
    decode_vector,
    encode_file,
    encode_vector,
    file_name,
    inline_descriptor,
    inline_vector,
    logged_path,
    stored_descriptor,
    vector_in_block,
)

# A whole file that Spark wrote.
FILE = bytes.fromhex(
    "01 00000024 d1d33964 0100000000000000 00000000 3a300000 01000000"
    "0000 0100 10000000 0000 0900 2a671846"
)
STORED = DeletionVectorDescriptor(
    storage_type="u",
    path_or_inline_dv="vBn[lx{q8@P<9BNH/isA",
    offset=1,
    size_in_bytes=36,
    cardinality=2,
)
INLINE = DeletionVectorDescriptor(
    storage_type="i",
    path_or_inline_dv="^Bg9^0rr910000000000iXQKl0rr91000f55c8Xg0@@D72lkbi5=-{L",
    size_in_bytes=44,
    cardinality=6,
)
NATIVE = "wi5b=000010000siXQKl0rr91000f55c8Xg0@@D72lkbi5=-{L"
UUIDS = {
    "R7QFX3rGXPFLhHGq&7g<": "a52eda8c-0a57-4636-814b-9c165388f7ca",
    "vBn[lx{q8@P<9BNH/isA": "61d16c75-6994-46b7-a15b-8b538852e50e",
    "^-aqEH.-t@S}K{vb[*k^": "d2c639aa-8816-431a-aaf6-d3fe2512ff61",
}

positions = st.sets(
    st.integers(0, 200) | st.integers(0, 2**33) | st.integers(2**32 - 3, 2**32 + 3), max_size=50
) | st.integers(0, 9000).map(lambda count: set(range(0, count * 3, 3)))


def block(data: bytes, descriptor: DeletionVectorDescriptor) -> bytes:
    start, length = block_range(descriptor)
    return data[start : start + length]


def read(data: bytes, descriptor: DeletionVectorDescriptor = STORED) -> BitMap64:
    vector = vector_in_block(data[:1], block(data, descriptor), descriptor, path="f.bin")
    return decode_vector(vector, cardinality=descriptor.cardinality, path="f.bin")


def test_a_file_that_spark_wrote() -> None:
    assert len(FILE) == 45
    assert set(read(FILE)) == {0, 9}


def test_a_file_of_ours_is_the_same() -> None:
    data, offsets = encode_file([encode_vector(BitMap64([0, 9]))])
    assert offsets == [1]
    assert data == FILE


def test_an_inline_vector_that_a_kernel_wrote() -> None:
    vector = inline_vector(INLINE, path="f")
    assert set(decode_vector(vector, cardinality=6, path="f")) == {3, 4, 7, 11, 18, 29}
    assert inline_descriptor(vector, 6) == INLINE


@pytest.mark.parametrize(("text", "uuid"), UUIDS.items())
def test_names_of_files(text: str, uuid: str) -> None:
    descriptor = stored_descriptor(uuid, offset=1, size=36, cardinality=2)
    assert descriptor.path_or_inline_dv == text
    assert file_name(uuid) == f"deletion_vector_{uuid}.bin"
    assert logged_path(descriptor, path="f") == file_name(uuid)
    prefixed = descriptor.model_copy(update={"path_or_inline_dv": f"ab{text}"})
    assert logged_path(prefixed, path="f") == f"ab/{file_name(uuid)}"


def test_an_absolute_path_is_as_logged() -> None:
    text = "s3://bucket/table/deletion_vector_%20.bin"
    absolute = STORED.model_copy(update={"storage_type": "p", "path_or_inline_dv": text})
    assert logged_path(absolute, path="f") == text


def test_an_offset_of_zero_is_not_no_offset() -> None:
    assert STORED.unique_id == "uvBn[lx{q8@P<9BNH/isA@1"
    assert STORED.model_copy(update={"offset": 0}).unique_id.endswith("@0")
    assert STORED.model_copy(update={"offset": None}).unique_id == "uvBn[lx{q8@P<9BNH/isA"


@given(positions)
def test_positions_come_back(found: set[int]) -> None:
    vector = encode_vector(BitMap64(found))
    assert set(decode_vector(vector, cardinality=len(found), path="f")) == found
    descriptor = inline_descriptor(vector, len(found))
    assert inline_vector(descriptor, path="f") == vector


@given(st.lists(positions, min_size=1, max_size=4))
def test_many_vectors_share_a_file(sets: list[set[int]]) -> None:
    vectors = [encode_vector(BitMap64(found)) for found in sets]
    data, offsets = encode_file(vectors)
    for found, vector, offset in zip(sets, vectors, offsets, strict=True):
        uuid = UUIDS["vBn[lx{q8@P<9BNH/isA"]
        descriptor = stored_descriptor(
            uuid, offset=offset, size=len(vector), cardinality=len(found)
        )
        assert set(read(data, descriptor)) == found


@pytest.mark.parametrize("length", range(45))
def test_a_truncated_file_is_an_error(length: int) -> None:
    with pytest.raises(BadDeletionVectorError) as caught:
        read(FILE[:length])
    assert caught.value.path == "f.bin"


@given(st.integers(0, 44), st.integers(1, 255))
def test_every_flipped_byte_is_an_error(at: int, flip: int) -> None:
    torn = bytearray(FILE)
    torn[at] ^= flip
    with pytest.raises(BadDeletionVectorError):
        read(bytes(torn))


@pytest.mark.parametrize("version", [0, 2, 255])
def test_an_unknown_version_is_named(version: int) -> None:
    with pytest.raises(BadDeletionVectorError, match=f"file version {version:02x}"):
        read(bytes([version]) + FILE[1:])


def test_a_wrong_checksum_is_named() -> None:
    with pytest.raises(BadDeletionVectorError, match="checksum"):
        read(FILE[:-1] + b"\0")


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"size_in_bytes": 35}, "36 bytes at offset 1, but the log says 35"),
        ({"size_in_bytes": 37}, "too short"),
        ({"size_in_bytes": -9}, "too short"),
        ({"offset": 0}, "too short"),
        ({"offset": 5}, "too short"),
        ({"offset": -1}, "too short"),
        ({"cardinality": 3}, "holds 2 rows, but the log says 3"),
        ({"cardinality": 0}, "holds 2 rows, but the log says 0"),
    ],
)
def test_a_descriptor_that_disagrees_is_an_error(change: dict[str, int], reason: str) -> None:
    with pytest.raises(BadDeletionVectorError, match=reason):
        read(FILE, STORED.model_copy(update=change))


VECTOR = FILE[5:41]


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "too few"),
        (VECTOR[:11], "too few"),
        (b"\0\0\0\0" + VECTOR[4:], "magic 0"),
        (struct.pack("<I", 1681511376) + VECTOR[4:], "native format"),
        (struct.pack(">I", 1681511376) + VECTOR[4:], "native format"),
        (VECTOR[:-1], "decoded"),
        (VECTOR[:20], "decoded"),
        (VECTOR[:4] + b"\xff" * 8 + VECTOR[12:], "decoded"),
        (VECTOR[:16] + b"\0\0\0\0" + VECTOR[20:], "decoded"),
    ],
    ids=["none", "few", "magic", "native-le", "native-be", "torn", "head", "buckets", "cookie"],
)
def test_a_torn_vector_is_an_error(data: bytes, reason: str) -> None:
    with pytest.raises(BadDeletionVectorError, match=reason):
        decode_vector(data, cardinality=2, path="f.bin")


def test_bytes_behind_the_bitmap_are_passed_over() -> None:
    assert set(decode_vector(VECTOR + b"\0", cardinality=2, path="f.bin")) == {0, 9}


def test_the_old_native_format_is_said_to_be_so() -> None:
    size = 40
    old = INLINE.model_copy(update={"path_or_inline_dv": NATIVE, "size_in_bytes": size})
    with pytest.raises(BadDeletionVectorError, match="native format of old Spark"):
        decode_vector(inline_vector(old, path="f"), cardinality=6, path="f")


@pytest.mark.parametrize(
    ("text", "size"),
    [
        (INLINE.path_or_inline_dv[:-1], 44),
        (INLINE.path_or_inline_dv[:-1] + "~", 44),
        ("#####", 4),
        (INLINE.path_or_inline_dv, 45),
        (INLINE.path_or_inline_dv, 40),
        (INLINE.path_or_inline_dv, -1),
        ("", 44),
    ],
    ids=["cut", "alphabet", "overflow", "longer", "shorter", "negative", "empty"],
)
def test_an_inline_text_that_is_wrong_is_an_error(text: str, size: int) -> None:
    wrong = INLINE.model_copy(update={"path_or_inline_dv": text, "size_in_bytes": size})
    with pytest.raises(BadDeletionVectorError) as caught:
        inline_vector(wrong, path="part-0.parquet")
    assert caught.value.path == "part-0.parquet"


@pytest.mark.parametrize(
    ("kind", "text"),
    [("x", "vBn[lx{q8@P<9BNH/isA"), ("u", "vBn[lx{q8@P<9BNH/is"), ("u", ""), ("u", "~" * 20)],
)
def test_a_name_that_is_wrong_is_an_error(kind: str, text: str) -> None:
    wrong = STORED.model_copy(update={"storage_type": kind, "path_or_inline_dv": text})
    with pytest.raises(BadDeletionVectorError):
        logged_path(wrong, path="part-0.parquet")
