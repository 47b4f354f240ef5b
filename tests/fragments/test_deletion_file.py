"""Deletion files: names, round trips in both encodings, and every kind of damage."""

import struct
from collections.abc import Iterable, Sequence

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyroaring import BitMap, BitMap64

from txlog.base.errors import BadDeletionVectorError, InvalidInputError
from txlog.fragments.deletion_file import (
    DeletionKind,
    decode_deletions,
    deletion_kind,
    deletion_name,
    encode_deletions,
    lance_descriptor,
    parse_deletion_name,
)

KINDS: tuple[DeletionKind, ...] = ("arrow", "bin")
SCHEMA = pa.schema([pa.field("row_id", pa.uint32(), nullable=False)])
TOP = (1 << 64) - 1

numbers = st.integers(0, 9) | st.integers(0, TOP)
kinds = st.sampled_from(KINDS)
# A few; a full container and its neighbours; array and bitset containers; the last offsets of all.
positions = (
    st.sets(st.integers(0, 200) | st.integers(0, 2**32 - 1), max_size=50)
    | st.tuples(st.integers(0, 70_000), st.integers(0, 70_000), st.integers(1, 40)).map(
        lambda run: set(range(run[0], run[0] + run[1], run[2]))
    )
    | st.integers(1, 5).map(lambda count: set(range(2**32 - count, 2**32)))
)


def read(
    data: bytes,
    kind: DeletionKind,
    cardinality: int | None = None,
    rows: int | None = None,
) -> BitMap64:
    return decode_deletions(data, kind=kind, cardinality=cardinality, rows=rows, path="f")


def arrow(
    batches: Iterable[Sequence[int | None]] = ([3, 7, 900],),
    schema: pa.Schema = SCHEMA,
    **options: object,
) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, schema, options=pa.ipc.IpcWriteOptions(**options)) as writer:
        for values in batches:
            columns = [pa.array(values, field.type) for field in schema]
            writer.write_batch(pa.RecordBatch.from_arrays(columns, schema=schema))
    return bytes(sink.getvalue())


def lists(*containers: tuple[int, list[int]]) -> bytes:
    """A bitmap of array containers, in the order given."""
    count = len(containers)
    parts = [struct.pack("<II", 12346, count)]
    parts += [struct.pack("<HH", key, len(values) - 1) for key, values in containers]
    parts += [struct.pack("<I", 0)] * count  # Offsets, which readers pass over.
    parts += [struct.pack(f"<{len(values)}H", *values) for _, values in containers]
    return b"".join(parts)


def runs(*found: tuple[int, int], size: int = 10) -> bytes:
    """A bitmap of one run container: starts, and lengths less one."""
    head = struct.pack("<IBHHH", 12347, 1, 0, size - 1, len(found))
    return head + b"".join(struct.pack("<HH", *run) for run in found)


@given(numbers, numbers, numbers, kinds)
def test_names_come_back(fragment: int, version: int, number: int, kind: DeletionKind) -> None:
    name = deletion_name(fragment, version, number, kind)
    found = parse_deletion_name(name)
    assert found is not None
    assert found == (fragment, version, number, kind)
    assert (found.fragment_id, found.read_version, found.id, found.kind) == found


def test_a_name_as_it_is_on_disk() -> None:
    assert deletion_name(0, 1, 9719366886402277686, "arrow") == "0-1-9719366886402277686.arrow"
    assert parse_deletion_name(f"0-1-{TOP}.bin") == (0, 1, TOP, "bin")


@pytest.mark.parametrize(
    "name",
    [
        "", "0-1-2", "0-1.bin", "0-1-2-3.bin", "0-1-2.parquet", "0-1-2.binary", "0-1-2.bin\n",
        "_deletions/0-1-2.bin", "-1-1-2.bin", "00-1-2.bin", "0-01-2.bin", "0-1-x.bin", "0-1-٢.bin",
        f"0-1-{TOP + 1}.bin", f"0-{TOP + 1}-1.bin", f"{TOP + 1}-1-1.bin", f"0-1-{'9' * 5000}.bin",
    ],
)  # fmt: skip
def test_other_names_are_none_of_these(name: str) -> None:
    assert parse_deletion_name(name) is None


@pytest.mark.parametrize("numbers", [(-1, 0, 0), (0, -1, 0), (0, 0, -1), (0, 0, TOP + 1)])
def test_numbers_that_no_name_can_hold(numbers: tuple[int, int, int]) -> None:
    with pytest.raises(InvalidInputError, match="not a valid name"):
        deletion_name(*numbers, "bin")


def test_the_descriptor() -> None:
    descriptor = lance_descriptor("0-1-9719366886402277686.arrow", b"123456789", 2)
    assert descriptor.model_dump(mode="json", by_alias=True, exclude_none=True) == {
        "storageType": "lance",
        "pathOrInlineDv": "0-1-9719366886402277686.arrow",
        "offset": 0xCBF43926 - 2**32,  # The check value of CRC-32.
        "sizeInBytes": 9,
        "cardinality": 2,
    }
    assert descriptor.unique_id == f"lance0-1-9719366886402277686.arrow@{0xCBF43926 - 2**32}"


def test_the_kind_follows_the_count() -> None:
    assert [deletion_kind(count) for count in (0, 1, 4999, 5000, 2**32)] == [
        "arrow", "arrow", "arrow", "bin", "bin",
    ]  # fmt: skip


@given(positions, kinds)
def test_positions_come_back(found: set[int], kind: DeletionKind) -> None:
    data = encode_deletions(BitMap64(found), kind=kind)
    again = read(data, kind, len(found), max(found, default=0) + 1)
    assert again == BitMap64(found)
    assert encode_deletions(again, kind=kind) == data
    # The bytes follow from the set alone, not from how the bitmap holds it.
    loose = BitMap64()
    for position in sorted(found, reverse=True):
        loose.add(position)
    assert encode_deletions(loose, kind=kind) == data


def test_an_arrow_file_is_one_sorted_batch() -> None:
    reader = pa.ipc.open_file(encode_deletions(BitMap64([900, 3, 7]), kind="arrow"))
    assert reader.schema.equals(SCHEMA, check_metadata=True)
    assert reader.schema.metadata is None
    assert reader.num_record_batches == 1
    assert reader.get_batch(0).to_pydict() == {"row_id": [3, 7, 900]}
    many = encode_deletions(BitMap64(range(4999)), kind="arrow")
    assert len(many) < 4999 * 4  # Compressed.


def test_a_bitmap_has_no_runs() -> None:
    data = encode_deletions(BitMap64(range(70_000)), kind="bin")
    assert struct.unpack_from("<II", data) == (12346, 2)
    assert encode_deletions(BitMap64([1, 2, 3]), kind="bin") == bytes.fromhex(
        "3a300000 01000000 00000200 10000000 0100 0200 0300"
    )


@pytest.mark.parametrize("kind", KINDS)
def test_a_position_beyond_32_bits_is_refused(kind: DeletionKind) -> None:
    with pytest.raises(InvalidInputError, match="row 4294967296 does not fit"):
        encode_deletions(BitMap64([1, 2**32]), kind=kind)


@pytest.mark.parametrize("kind", KINDS)
def test_what_the_log_says_is_checked(kind: DeletionKind) -> None:
    data = encode_deletions(BitMap64([3, 7, 900]), kind=kind)
    assert read(data, kind, 3, 901) == BitMap64([3, 7, 900])
    for wrong in (-1, 0, 2, 4):
        with pytest.raises(BadDeletionVectorError, match=f"holds 3 rows, but the log says {wrong}"):
            read(data, kind, wrong)
    for rows in (0, 900):
        with pytest.raises(BadDeletionVectorError, match="deletes row 900 of a fragment that has"):
            read(data, kind, 3, rows)


@pytest.mark.parametrize("kind", KINDS)
def test_an_empty_set(kind: DeletionKind) -> None:
    data = encode_deletions(BitMap64(), kind=kind)
    assert read(data, kind, 0, 0) == BitMap64()
    with pytest.raises(BadDeletionVectorError, match="holds 0 rows, but the log says 1"):
        read(data, kind, 1)


@pytest.mark.parametrize(
    "data",
    [
        arrow(),
        arrow(compression="lz4"),
        arrow(compression="zstd"),
        arrow([[900, 3, 7]]),
        encode_deletions(BitMap64([3, 7, 900]), kind="arrow"),
    ],
    ids=["plain", "lz4", "zstd", "unsorted", "ours"],
)
def test_arrow_files_that_are_right(data: bytes) -> None:
    assert set(read(data, "arrow", 3)) == {3, 7, 900}


def field(name: str = "row_id", **change: object) -> pa.Schema:
    what = {"type": pa.uint32(), "nullable": False} | change
    return pa.schema([pa.field(name, **what)])


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "magic is missing"),
        (lists((0, [3])), "magic is missing"),
        (b"ARROW2" + arrow()[6:], "magic is missing"),
        (b"ARROW1", "not an Arrow file"),
        (arrow()[:-1], "not an Arrow file"),
        (arrow() + b"\0", "not an Arrow file"),
        (arrow().replace(b"row_id", b"row\xff\xff\xff"), "not an Arrow file"),
        (arrow(schema=field("offset")), "'offset: uint32 not null', expected 'row_id"),
        (arrow(schema=field(type=pa.int32())), "'row_id: int32 not null', expected"),
        (arrow(schema=field(type=pa.uint64())), "'row_id: uint64 not null', expected"),
        (arrow(schema=field(nullable=True)), "'row_id: uint32', expected"),
        (arrow(schema=field(metadata={"a": "b"})), "not null with metadata', expected"),
        (arrow(schema=SCHEMA.with_metadata({"a": "b"})), "not null' with metadata, expected"),
        (arrow(schema=pa.schema([])), "'', expected"),
        (arrow(schema=SCHEMA.append(pa.field("x", pa.uint32()))), "x: uint32', expected"),
        (arrow([]), "0 record batches"),
        (arrow([[3], [7, 900]]), "2 record batches"),
        (arrow([[3, None, 900]]), "1 of its 3 offsets are null"),
        (arrow([[3, 7, 3]]), "only 2 of its 3 offsets are distinct"),
        (arrow().replace(struct.pack("<q", 12), struct.pack("<q", 4)), "Buffer #1 too small"),
        (arrow(compression="zstd").replace(b"\x28\xb5\x2f\xfd", b"\0\0\0\0"), "cannot be decoded"),
    ],
    ids=[
        "none", "bitmap", "head", "short", "cut", "behind", "text", "name", "int32", "uint64",
        "nullable", "field-metadata", "metadata", "no-column", "columns", "no-batch", "batches",
        "nulls", "twice", "buffer", "body",
    ],
)  # fmt: skip
def test_arrow_files_that_are_wrong(data: bytes, reason: str) -> None:
    with pytest.raises(BadDeletionVectorError, match=reason) as caught:
        read(data, "arrow")
    assert caught.value.path == "f"


MIXED = struct.pack("<IBHHHH", 12347 | 1 << 16, 2, 0, 0, 1, 9) + struct.pack("<HHHH", 5, 1, 0, 9)


@pytest.mark.parametrize(
    ("data", "found"),
    [
        (lists((0, [1, 2]), (2, [0])), {1, 2, 2 << 16}),
        (runs((0, 9)), set(range(10))),
        (runs((0, 9), size=7), set(range(10))),  # The runs count, not what the head says of them.
        (runs((0, 4), (6, 4)), set(range(11)) - {5}),
        (struct.pack("<IBHHHH", 12347, 0, 0, 1, 1, 2), {1, 2}),
        (MIXED, {5, *range(1 << 16, (1 << 16) + 10)}),
    ],
    ids=["lists", "runs", "size", "two-runs", "no-runs", "mixed"],
)
def test_bitmaps_that_are_right(data: bytes, found: set[int]) -> None:
    assert set(read(data, "bin", len(found))) == found


BITSET = encode_deletions(BitMap64(range(5000)), kind="bin")


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "cut off after 0 bytes"),
        (BITSET[:6], "cut off after 6 bytes"),
        (BITSET[:10], "cut off after 10 bytes"),
        (BITSET[:-1], "cut off after 8207 of 8208 bytes"),
        (runs((0, 9))[:-1], "cut off after 14 of 15 bytes"),
        (runs((0, 9))[:9], "cut off after 9 bytes"),
        (BITSET + b"\0\0", "2 bytes follow"),
        (struct.pack("<II", 12346, 0) + b"\0", "1 bytes follow"),
        (b"\0" + BITSET, "cookie"),
        (struct.pack("<II", 12345, 0), "cookie 12345 is unknown"),
        (struct.pack("<QI", 1, 0) + BITSET, "cookie 1 is unknown"),
        (arrow(), "cookie"),
        (struct.pack("<II", 12346, 65537), "states 65537 containers"),
        (lists((1, [1]), (0, [1])), "out of order"),
        (lists((0, [1]), (0, [2])), "out of order"),
        (lists((0, [3, 2])), "cannot be decoded"),
        (lists((0, [2, 2])), "cannot be decoded"),
        (BITSET[:-1] + b"\1", "cannot be decoded"),
        (runs((0, 9), (5, 9)), "cannot be decoded"),
        (runs((0, 9), (10, 9)), "cannot be decoded"),
        (runs((20, 9), (0, 9)), "cannot be decoded"),
        (runs((65530, 9)), "cannot be decoded"),
        (runs(), "cannot be decoded"),
    ],
    ids=[
        "none", "head", "heads", "bitset-cut", "runs-cut", "no-run-count", "behind",
        "behind-nothing", "before", "cookie", "64-bit", "arrow", "containers", "keys", "keys-twice",
        "unsorted", "twice", "count", "overlap", "touching", "runs-unsorted", "overflow", "no-runs",
    ],
)  # fmt: skip
def test_bitmaps_that_are_wrong(data: bytes, reason: str) -> None:
    with pytest.raises(BadDeletionVectorError, match=reason) as caught:
        read(data, "bin")
    assert caught.value.path == "f"


@pytest.mark.parametrize("count", [4095, 4096, 4097, 65535, 65536])
def test_containers_of_every_size(count: int) -> None:
    found = BitMap64([*range(count), 1 << 16])
    data = encode_deletions(found, kind="bin")
    assert len(data) == 24 + min(2 * count, 8192) + 2
    assert read(data, "bin", count + 1) == found


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 7, 8, 9, 16, 17])
@pytest.mark.parametrize("step", [1, 2, 3])
def test_runs_in_any_container(count: int, step: int) -> None:
    found = BitMap(key << 16 | low for key in range(count) for low in (2, 9, 40))
    for key in range(0, count, step):
        found.add_range(key << 16, (key << 16) + 100)
    assert found.run_optimize()
    data = found.serialize()
    assert struct.unpack_from("<HH", data) == (12347, count - 1)
    assert set(read(data, "bin", len(found))) == set(found)


def test_the_widest_bitmap() -> None:
    found = BitMap64(range(0, 2**32, 1 << 16))
    data = encode_deletions(found, kind="bin")
    assert len(data) == 8 + 65536 * (8 + 2)
    assert read(data, "bin", 65536, 2**32) == found


GOOD = [
    *(encode_deletions(BitMap64([3, 7, 900]), kind=kind) for kind in KINDS),
    arrow(), arrow(compression="lz4"), runs((0, 4), (6, 4)), lists((0, [1, 2]), (2, [0])), MIXED,
]  # fmt: skip


def judged(data: bytes, kind: DeletionKind) -> None:
    """Reads, or is refused; nothing else."""
    try:
        found = read(data, kind, rows=1 << 20)
    except BadDeletionVectorError:
        return
    assert not found or found.max() < 1 << 20
    assert read(encode_deletions(found, kind=kind), kind, len(found)) == found


@given(st.sampled_from(GOOD), st.data(), kinds)
def test_truncated_files_are_refused(data: bytes, draw: st.DataObject, kind: DeletionKind) -> None:
    length = draw.draw(st.integers(0, len(data) - 1))
    with pytest.raises(BadDeletionVectorError):
        read(data[:length], kind)


@given(
    st.sampled_from(GOOD),
    st.lists(st.tuples(st.integers(0, 2000), st.integers(1, 255)), min_size=1, max_size=4),
    kinds,
)
def test_flipped_bits_do_no_more_than_this(
    data: bytes, flips: list[tuple[int, int]], kind: DeletionKind
) -> None:
    torn = bytearray(data)
    for at, flip in flips:
        torn[at % len(torn)] ^= flip
    judged(bytes(torn), kind)


@given(
    st.sampled_from([b"", b"ARROW1\0\0", *(struct.pack("<I", 12346 + at) for at in (0, 1))]),
    st.binary(max_size=200),
    st.sampled_from([b"", b"ARROW1"]),
    kinds,
)
def test_random_bytes_do_no_more_than_this(
    head: bytes, body: bytes, tail: bytes, kind: DeletionKind
) -> None:
    judged(head + body + tail, kind)
