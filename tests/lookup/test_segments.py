"""Segments: fixed vectors that stay readable, and damaged bytes."""

from __future__ import annotations

import random
import time
import tracemalloc
import zlib
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pytest

import txlog
from tests.moved import moved
from txlog.lookup.blocks import RunError, whole
from txlog.lookup.keys import hashed, ordered
from txlog.lookup.runs import RunBuilder
from txlog.lookup.segments import (
    SUFFIX,
    CoveredFile,
    CoveredRun,
    Segment,
    Tail,
    encode_segment,
    merged,
    open_segment,
    parse_segment,
)
from txlog.schema.types import PrimitiveType, StructField
from txlog.store.local.put import write_whole

K = StructField("k", PrimitiveType("long"))
DATA = Path(__file__).parent / "data"


def run_of(values: list[int | None], path: str, tail: Tail | None = None) -> CoveredRun:
    builder = RunBuilder([K])
    builder.add([pa.array(values, pa.int64())])
    file = CoveredFile((path,), (1_000,), builder.num_rows, builder.nulls, tail)
    return CoveredRun(builder.finish(), (file,))


def sample() -> bytes:
    """Return a segment with a run of each form, of several files, with a tail."""
    tail = Tail.of(700, bytes(300))
    runs = [
        run_of(list(range(0, 600, 3)), "a.parquet", tail),
        run_of([5, None, 3, 5, 2**40, -7], "b%20c.parquet"),
        run_of([None], "empty.parquet"),
    ]
    return encode_segment(["k"], ["long"], runs)


@pytest.mark.spec("LKP-10")
def test_a_segment_comes_back() -> None:
    data = sample()
    segment = parse_segment(data, "x")
    assert (segment.columns, segment.types, segment.size) == (("k",), ("long",), len(data))
    assert [covered.run.form for covered in segment.runs] == ["ordered", "hashed", "hashed"]
    (first,), (second,), (third,) = (covered.files for covered in segment.runs)
    assert first.tail is not None
    assert first.tail.unpacked(1_000) == bytes(300)
    assert (second.paths, second.rows, second.nulls) == (("b%20c.parquet",), 6, 1)
    assert (third.rows, third.nulls, third.tail) == (1, 1, None)
    assert segment.runs[0].run.find(ordered(K, pa.array([300]))).tolist() == [100]
    assert sorted(segment.runs[1].run.find(hashed([K], [pa.array([5])]))) == [0, 3]
    # The places that the rule names, read by hand.
    assert data[:8] == b"TXLIDX3\n"
    length, blocks = int.from_bytes(data[8:16], "little"), int.from_bytes(data[20:24], "little")
    head = orjson.loads(data[24 : 24 + length])
    at = -(-(24 + length) // 64) * 64
    begin = at + -(-4 * blocks // 64) * 64
    assert zlib.crc32(data[20:begin]) == int.from_bytes(data[16:20], "little")
    checks = np.frombuffer(data, "<u4", blocks, at).tolist()
    arrays = data[begin:]
    assert (head["block"], head["bytes"]) == (4_096, len(arrays))
    parts = [arrays[start : start + 16_384] for start in range(0, len(arrays), 16_384)]
    assert checks == list(map(zlib.crc32, parts))
    for run in head["runs"]:
        for name, size in (("marks", 4), ("zeros", 4), ("upper", 8), ("lower", 8), ("rows", 8)):
            start, many = run[name] or (0, 0)
            assert (start % 64, many % size) == (0, 0)
            assert start + many <= len(arrays)


@pytest.mark.spec("LKP-7", "LKP-10")
def test_numbers_that_another_program_would_write() -> None:
    """A run of four keys, bit by bit."""
    (covered,) = parse_segment(
        encode_segment(["k"], ["long"], [run_of([0, 1, 1 << 20, 2 << 20], "a")]), "x"
    ).runs
    run = covered.run
    sign = 1 << 63
    assert (run.first, run.last) == (sign, sign + (2 << 20))
    # (last - first) / 4 is 2^19: 16 of its bits are kept.
    assert run.shift == 3
    assert run.base == sign >> 3
    # y: 0, 0, 2^17, 2^18; (2^18 + 1) // 4 is 2^16.
    assert run.low == 16
    assert whole(run.lower).tolist() == [0] * 17
    # Heads 0, 0, 2, 4: the bits 0, 1, 4 and 7; then ones from bit 4 + 4 + 1 on.
    upper = whole(run.upper)
    assert upper[0] == 0b10010011 | (2**64 - 1) ^ (2**9 - 1)
    assert (upper[1:] == 2**64 - 1).all()
    assert (whole(run.zeros).tolist(), whole(run.marks).tolist()) == ([0, 5], [0])
    assert (run.rows, run.row_bits) == (None, 0)


@pytest.mark.spec("LKP-10")
def test_the_first_segment_is_read_for_ever() -> None:
    """The file was written once, by `encode_segment(…)` of txlog 0.1.0; it never changes."""
    segment = parse_segment((DATA / "format3.idx").read_bytes(), "format3.idx")
    assert (segment.columns, segment.types) == (("k",), ("long",))
    ascending, mixed, empty = segment.runs
    assert ascending.run.find(ordered(K, pa.array([300]))).tolist() == [100]
    assert sorted(mixed.run.find(hashed([K], [pa.array([5])]))) == [0, 3]
    assert empty.run.keys == 0
    assert ascending.files[0].tail is not None
    assert ascending.files[0].tail.unpacked(1_000) == bytes(300)


@pytest.mark.spec("LKP-11")
def test_other_formats_are_refused() -> None:
    old = (DATA / "format1.idx").read_bytes()
    new = sample()
    for data, name in ((old, "1"), (new[:6] + b"4" + new[7:], "4")):
        with pytest.raises(RunError, match=f"the format '{name}', and this txlog reads '3'"):
            parse_segment(data, "x")


def resealed(data: bytes, change: Any) -> bytes:
    """Return a segment whose head somebody changed, with a checksum that fits."""
    length, blocks = int.from_bytes(data[8:16], "little"), int.from_bytes(data[20:24], "little")
    head = orjson.loads(data[24 : 24 + length])
    change(head)
    new = orjson.dumps(head)
    at = -(-(24 + length) // 64) * 64
    begin = at + -(-4 * blocks // 64) * 64
    rest = data[20:24] + new + bytes(-(24 + len(new)) % 64) + data[at:begin]
    start = data[:8] + len(new).to_bytes(8, "little") + zlib.crc32(rest).to_bytes(4, "little")
    return start + rest + data[begin:]


def put(path: str, value: Any) -> Any:
    def change(head: Any) -> None:
        *steps, last = [int(step) if step.isdecimal() else step for step in path.split(".")]
        for step in steps:
            head = head[step]
        head[last] = value

    return change


@pytest.mark.spec("LKP-11")
@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("block", 0), ("block", 3), ("bytes", 64), ("columns", []), ("columns", [1]), ("types", []),
        ("types", ["long", "long"]), ("runs", 7), ("runs.0", None),
        ("runs.0.form", "other"), ("runs.0.keys", 201), ("runs.0.keys", -1),
        ("runs.0.first", -1), ("runs.0.last", 0), ("runs.0.shift", 64),
        ("runs.0.base", 2**63 - 1), ("runs.0.low", 63), ("runs.0.low", 0),
        ("runs.0.upper", None), ("runs.0.upper", [0, 64, 1]), ("runs.0.upper.0", 2**40),
        ("runs.0.upper", [0, 640]), ("runs.0.marks", None), ("runs.0.marks", [0, 8]),
        ("runs.0.zeros.1", 2**40), ("runs.0.zeros.1", 6), ("runs.0.rows", [0, 64]),
        ("runs.0.keys", True),
        ("runs.1.rowBits", 60), ("runs.1.rows", None), ("runs.1.files", []),
        ("runs.0.files.0.rows", 199), ("runs.0.files.0.rows", 2**50),
        ("runs.0.files.0.paths", []), ("runs.0.files.0.paths", [3]),
        ("runs.0.files.0.sizes", [1, 2]), ("runs.0.files.0.sizes", [-1]),
        ("runs.0.files.0.tail", [0, 1]), ("runs.0.files.0.tail.2", 2_000),
        ("runs.0.files.0.tail.1", 2**40), ("runs.0.last", 2**64 - 1),
    ],
)  # fmt: skip
def test_an_invented_head_is_refused(path: str, value: Any) -> None:
    data = resealed(sample(), put(path, value))
    with pytest.raises(RunError):
        parse_segment(data, "x")
    with pytest.raises(RunError):
        opened(data)


def opened(data: bytes, size: int | None = None) -> Segment:
    """Open a segment of which only parts are read."""

    def read(ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        return [data[start:stop] for start, stop in ranges]

    return open_segment(read, len(data) if size is None else size, "x")


def asked_of(segment: Segment) -> None:
    """Ask for keys; whatever is found is a row of the run."""
    draw = np.random.default_rng(0)
    wanted = np.unique(
        np.concatenate(
            [draw.integers(0, 2**64 - 1, 50, np.uint64), ordered(K, pa.array(range(-10, 700)))]
        )
    )
    for covered in segment.runs:
        found = covered.run.find(wanted)
        assert len(found) <= covered.run.keys
        covered.run.decoded()
        for file in covered.files:
            if file.tail is not None:
                file.tail.unpacked(file.sizes[0])


def mutated(data: bytes, draw: random.Random) -> bytes:
    changed = bytearray(data)
    kind = draw.randrange(5)
    if kind == 0:
        return bytes(changed[: draw.randrange(len(changed))])
    if kind == 1:
        at = draw.randrange(len(changed))
        return bytes(changed[:at] + draw.randbytes(draw.randrange(1, 80)) + changed[at:])
    for _ in range(draw.choice([1, 1, 4])):
        # The head is small, and where most of the sense is.
        at = draw.randrange(len(changed) if kind == 2 else min(len(changed), 1_500))
        changed[at] = draw.randrange(256)
    if kind == 4:  # A head that fits its checksum again.
        length, blocks = (
            int.from_bytes(changed[at:to], "little") for at, to in ((8, 16), (20, 24))
        )
        begin = -(-(24 + length) // 64) * 64 + -(-4 * blocks // 64) * 64
        if begin < len(changed):
            changed[16:20] = zlib.crc32(changed[20:begin]).to_bytes(4, "little")
    return bytes(changed)


def mutations(count: int, seed: int) -> None:
    draw = random.Random(seed)
    with moved({"txlog.lookup.blocks:BLOCK_BYTES": 200}):
        data = sample()
    tracemalloc.start(1)
    try:
        for _ in range(count):
            started = time.perf_counter()
            changed = mutated(data, draw)
            with suppress(RunError):
                asked_of(parse_segment(changed, "x"))
            with suppress(RunError):
                asked_of(opened(changed, draw.choice([len(data), len(changed)])))
            assert time.perf_counter() - started < 30  # No hang; a busy machine may be slow.
        assert tracemalloc.get_traced_memory()[1] < 64 << 20  # NumPy's arrays are counted.
    finally:
        tracemalloc.stop()


@pytest.mark.spec("LKP-11")
def test_mutated_segments_are_refused_or_harmless() -> None:
    mutations(400, 1)


@pytest.mark.exhaustive
@pytest.mark.parametrize("seed", range(4))
def test_ten_thousand_mutated_segments(seed: int) -> None:
    mutations(2_500, seed)


@pytest.mark.spec("LKP-9")
def test_merged_segments_have_each_file_once_and_none_that_is_gone() -> None:
    runs = [
        run_of([1, 2, 3], "a"), run_of([9, 1], "b"), run_of([4, 5], "c"), run_of([7, 6, 1], "d"),
        run_of([1, 2, 3], "a"),
    ]  # fmt: skip
    found = merged(runs, lambda file: file.paths != ("d",))
    files = [file.paths[0] for covered in found for file in covered.files]
    assert sorted(files) == ["a", "b", "c"]
    forms = {covered.run.form: covered for covered in found}
    assert len(found) == 2
    assert [file.paths[0] for file in forms["ordered"].files] == ["a", "c"]
    assert forms["ordered"].run.find(ordered(K, pa.array([4]))).tolist() == [3]
    again = merged(
        [*parse_segment(encode_segment(["k"], ["long"], found), "x").runs, run_of([8, 0], "e")],
        lambda file: file.paths != ("b",),
    )
    assert {file.paths[0] for covered in again for file in covered.files} == {"a", "c", "e"}
    (mixed,) = [covered for covered in again if covered.run.form == "hashed"]
    assert mixed.run.find(hashed([K], [pa.array([0])])).tolist() == [1]
    assert mixed.run.find(hashed([K], [pa.array([9])])).tolist() == []


def test_a_segment_gets_its_name_when_it_is_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that is killed while it writes leaves no segment that cannot be read."""
    written = []

    def noted(disk: Any, path: str, data: bytes) -> None:
        written.append(path)
        write_whole(disk, path, data)

    monkeypatch.setattr("txlog.store.local.local.write_whole", noted)
    table = txlog.write(tmp_path, pa.table({"x": [1, 2]}))
    table.indexes.create("x")
    table.append(pa.table({"x": [3]}))
    assert len([path for path in written if SUFFIX in path]) == 2
    assert not [path for path in written if path.endswith(SUFFIX)]
    assert table.lookup(pa.array([3]), on="x").num_rows == 1
