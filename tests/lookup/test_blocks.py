"""Segments of which only the blocks that a search touches are read: damage, files that change."""

from __future__ import annotations

import os
import pickle
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import txlog
from tests.examples import examples
from tests.moved import moved
from txlog.lookup.blocks import BlockArray, Blocks, RunError, checks_of, whole
from txlog.lookup.indexes import SegmentCache
from txlog.lookup.runs import MARKED, Run, build_run
from txlog.lookup.segments import (
    CoveredFile,
    CoveredRun,
    encode_segment,
    merged,
    open_segment,
)
from txlog.store.open import open_store
from txlog.testing import CountingStore, LatencyStore, open_table

# Indexes of a few keys are read in blocks, and used by scans.
IN_BLOCKS = {
    "txlog.lookup.blocks:BLOCK_BYTES": 64,
    "txlog.lookup.segments:FIRST_BYTES": 1,
    "txlog.lookup.indexes:_WHOLE_BYTES": 1,
    "txlog.lookup.indexed:_LEAST_BYTES": 0,
    "txlog.lookup.indexed:_LEAST_SHARE": 1,
    "txlog.lookup.indexed:_MOST_TIMES": 1 << 20,
}


@pytest.fixture
def in_blocks() -> Iterator[None]:
    with moved(IN_BLOCKS):
        yield


class Parts:
    """The bytes of a file, and which of them were read."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.ranges: list[tuple[int, int]] = []

    def __call__(self, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        self.ranges += ranges
        return [self.data[start:stop] for start, stop in ranges]


@pytest.fixture(params=[1, 64, 1 << 20])
def at_once(request: pytest.FixtureRequest) -> Iterator[None]:
    with moved({"txlog.lookup.blocks:_AT_ONCE_BYTES": request.param}):
        yield


@pytest.mark.spec("LKP-11")
@pytest.mark.usefixtures("at_once")
@given(
    values=st.lists(st.integers(0, 2**32 - 1), min_size=1, max_size=60),
    block=st.integers(1, 100),
    asked=st.lists(st.tuples(st.floats(0, 1), st.integers(1, 9), st.booleans()), max_size=6),
    damaged=st.none() | st.floats(0, 1, exclude_max=True),
)
@settings(max_examples=examples(120), deadline=None)
def test_blocks_have_the_bytes_of_the_file(
    values: list[int],
    block: int,
    asked: list[tuple[float, int, bool]],
    damaged: float | None,
) -> None:
    """A damaged byte is not touched, or is an error; and no other block is read."""
    data, begin = np.array(values, "<u4"), 7
    content = bytearray(data.tobytes())
    place = None if damaged is None else int(damaged * len(content))
    if place is not None:
        content[place] ^= 16
    parts = Parts(bytes(begin) + bytes(content))
    blocks = Blocks(begin, len(content), block, checks_of(data.tobytes(), block), parts)
    array = BlockArray(blocks, 0, len(data), data.dtype)
    touched: set[int] = set()
    for share, count, is_range in asked:
        first = int(share * (len(data) - 1))
        stop = min(first + count, len(data))
        wanted = set(range(4 * first // block, (4 * stop - 1) // block + 1))
        touched |= wanted
        ask = array.between if is_range else _at(array)
        if place is not None and place // block in wanted:
            with pytest.raises(RunError, match="the checksum of the block at byte"):
                ask(first, stop)
            return
        assert ask(first, stop)[first:stop].tolist() == values[first:stop]
    read = [number for start, stop in parts.ranges for number in range(start, stop)]
    assert {(number - begin) // block for number in read} == touched
    assert len(read) == len(set(read)) == blocks.held_bytes
    blocks.release()
    assert blocks.held_bytes == 0
    if place is None:
        blocks.verify()
        assert blocks.held_bytes == 0
        assert whole(array).tolist() == values
    else:
        with pytest.raises(RunError):
            blocks.verify()


def _at(array: BlockArray) -> Callable[[int, int], Any]:
    return lambda first, stop: array.at(np.array([first]), stop - first)


@pytest.mark.spec("LKP-11")
def test_what_a_search_reads_is_known_before(tmp_path: Path) -> None:
    """The head with the checksums of all blocks, and a few blocks for each key."""
    count = 600_000
    with moved({"txlog.lookup.segments:FIRST_BYTES": 1024}):
        numbers = np.sort(np.random.default_rng(3).integers(0, 1 << 63, count, np.uint64))
        data = segment_of(
            build_run("hashed", numbers, np.arange(count)[::-1], count, bits=16), count
        )
        expected = SegmentCache()._needed(open_store(tmp_path), len(data), 1)
        parts = Parts(data)
        segment = open_segment(parts, len(data), "x")
        segment.runs[0].run.find(numbers[1_000:1_001])
        read = sum(stop - start for start, stop in parts.ranges)
    assert read < expected < 2 * read


def segment_of(run: Run, rows: int) -> bytes:
    file = CoveredFile(("a",), (1_000,), rows, 0)
    return encode_segment(["k"], ["long"], [CoveredRun(run, (file,))])


@pytest.fixture(params=[1, 40, 64, 200])
def block(request: pytest.FixtureRequest) -> Iterator[int]:
    with moved(
        {"txlog.lookup.blocks:BLOCK_BYTES": request.param, "txlog.lookup.segments:FIRST_BYTES": 1}
    ):
        yield request.param


@pytest.mark.spec("LKP-11")
@pytest.mark.usefixtures("block")
@given(
    st.lists(st.integers(0, 2**64 - 1) | st.integers(0, 300), min_size=1, max_size=120),
    st.lists(st.integers(0, 2**64 - 1), max_size=6),
    st.none() | st.floats(0, 1, exclude_max=True),
    st.sampled_from([0, 1, 128]),
)
@settings(max_examples=examples(60), deadline=None)
def test_a_run_in_blocks_finds_what_one_in_memory_finds(
    keys: list[int], others: list[int], damaged: float | None, bit: int
) -> None:
    """With a damaged byte anywhere it finds the same, or it raises an error."""
    encodings = np.sort(np.array(keys, np.uint64))
    run = build_run("ordered", encodings, np.arange(len(keys))[::-1], len(keys), bits=8)
    data = segment_of(run, len(keys))
    changed = bytearray(data)
    if damaged is not None:
        changed[int(damaged * len(changed))] ^= bit
    asked = np.unique(np.array([*keys[::3], *others], np.uint64))

    def of(run: Run) -> list[Any]:
        few = [run.find(asked[at : at + 1]).tolist() for at in range(0, len(asked), 2)]
        found = run.find(asked).tolist(), run.within(keys[0], keys[0] + 2**40).tolist()
        return [few, found, *(part.tolist() for part in run.decoded())]

    try:
        segment = open_segment(Parts(bytes(changed)), len(changed), "x")
        found = of(segment.runs[0].run)
    except RunError:
        assert changed != data
        return
    assert found == of(run)
    with suppress(RunError):
        segment.blocks.verify()
        assert changed == data, "a damaged byte in no block"


def test_a_key_reads_few_blocks_however_many_there_are() -> None:
    """The numbers of zeros are more than those between two marks."""
    read, blocks = [], []
    for count in (200_000, 1_000_000):
        draw = np.random.default_rng(7)
        encodings = np.sort(draw.integers(0, 2**64 - 1, count, np.uint64))
        run = build_run("hashed", encodings, draw.permutation(count), count, bits=16)
        with moved({"txlog.lookup.blocks:BLOCK_BYTES": 4_096}):
            data = segment_of(run, count)
        for many in (1, 2, 30):
            parts = Parts(data)
            segment = open_segment(parts, len(data), "x")
            (covered,) = segment.runs
            asked = np.unique(encodings[draw.integers(0, count, many)])
            assert covered.run.find(asked).tolist() == run.find(asked).tolist()
            number = sum(stop - start for start, stop in parts.ranges[1:]) // 4_096
            assert number <= 2 + 8 * many
            if many == 1:
                read.append(number)
                blocks.append(len(data) // 4_096)
    assert len(run.marks) > 3
    assert len(run.zeros) > 3 * MARKED
    assert blocks[1] > 4 * blocks[0]
    assert read[1] <= read[0] + 3


def test_zeros_that_do_not_match() -> None:
    """Somebody changed arrays and their checksums: an error, or rows of the file."""
    draw = np.random.default_rng(3)
    encodings = np.sort(draw.integers(0, 2**64 - 1, 2_000, np.uint64))
    run = build_run("hashed", encodings, draw.permutation(2_000), 2_000, bits=8)
    for name in ("upper", "zeros", "marks", "lower", "rows"):
        for _ in range(6):
            array = whole(getattr(run, name)).copy()
            array[draw.integers(0, len(array), 3)] = draw.integers(0, 2**32, 3)
            arrays: dict[str, Any] = {name: array}
            changed = replace(run, **arrays)
            changed.check(2_000)
            for asked in (encodings[::7], *encodings[::200].reshape(-1, 1)):
                with suppress(RunError):
                    assert len(changed.find(asked)) <= 2_000
            with suppress(RunError):
                changed.within(0, 2**64 - 1)


def numbers(keys: Sequence[int]) -> pa.Table:
    return pa.table({"k": keys, "v": [str(key) for key in keys]})


def indexed_table(root: Path, files: Sequence[Sequence[int]]) -> txlog.Table:
    table = txlog.write(root, numbers(files[0]))
    for keys in files[1:]:
        table.append(numbers(keys))
    table.indexes.create("k")
    return table


def segments_of(root: Path) -> list[Path]:
    return sorted(root.glob("_txlog_index/k/*.idx"))


def changed_files(draw: Any, root: Path) -> None:
    """Damage, cut, empty or delete a segment."""
    for path in segments_of(root):
        data = bytearray(path.read_bytes())
        kind = draw(st.sampled_from(["byte", "byte", "byte", "cut", "gone", "nothing"]))
        place = draw(st.integers(0, len(data) - 1))
        if kind == "byte":
            data[place] ^= draw(st.integers(1, 255))
            path.write_bytes(data)
        elif kind == "cut":
            os.truncate(path, place)
        elif kind == "gone":
            path.unlink()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::txlog.TxlogWarning")
@pytest.mark.spec("LKP-1", "LKP-11")
@given(data=st.data())
@settings(max_examples=examples(80), deadline=None)
def test_answers_are_those_of_a_scan_whatever_happens_to_a_segment(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    root = tmp_path_factory.mktemp("t")
    keys = st.lists(st.integers(0, 60), min_size=1, max_size=40)
    files = data.draw(st.lists(keys, min_size=1, max_size=3))
    values = {name: data.draw(st.sampled_from([1, 3, 64, 1000])) for name in list(IN_BLOCKS)[:3]}
    values["txlog.lookup.indexes:_HELD_BYTES"] = data.draw(st.sampled_from([1, 1 << 20]))
    with moved(IN_BLOCKS | values):
        indexed_table(root, [sorted(one) if data.draw(st.booleans()) else one for one in files])
        rows = [key for keys in files for key in keys]
        table = txlog.Table(root)
        for _ in range(data.draw(st.integers(1, 4))):
            asked = data.draw(st.lists(st.integers(0, 62), min_size=1, max_size=3, unique=True))
            if data.draw(st.booleans()):
                changed_files(data.draw, root)
            if data.draw(st.booleans()):
                table = txlog.Table(root)
            expected = sorted(key for key in rows if key in asked)
            verb = data.draw(st.sampled_from(["lookup", "where", "range", "delete", "index"]))
            match verb:
                case "lookup":
                    assert table.lookup(asked, on="k")["k"].to_pylist() == [
                        key for one in asked for key in rows if key == one
                    ]
                case "where":
                    found = table.to_arrow(where=txlog.col("k").isin(asked))
                    assert sorted(found["k"].to_pylist()) == expected
                case "range":
                    found = table.to_arrow(where=f"k < {asked[0]}")["k"].to_pylist()
                    assert sorted(found) == sorted(key for key in rows if key < asked[0])
                case "delete":
                    outcome = table.delete(txlog.col("k").isin(asked))
                    assert outcome.metrics.get("numDeletedRows", 0) == len(expected)
                    rows = [key for key in rows if key not in asked]
                case "index":
                    table.indexes.build()
                    if data.draw(st.booleans()):
                        table.indexes.merge()
                    for path in segments_of(root):
                        segment = SegmentCache().segments(open_store(root), "k")
                        assert path.name in {one.name.split("/")[-1] for one in segment}


def caught(work: Callable[[], Any]) -> tuple[Any, list[str]]:
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        answer = work()
    return answer, [str(one.message) for one in found]


@pytest.mark.spec("LKP-11")
@pytest.mark.usefixtures("in_blocks")
def test_damage_that_a_search_meets_later(tmp_path: Path) -> None:
    """The head is whole, and so are the blocks of the first keys."""
    keys = np.random.default_rng(1).permutation(3_000).tolist()
    table = indexed_table(tmp_path, [keys[:1_500], keys[1_500:]])
    (path,) = segments_of(tmp_path)
    assert table.lookup([5])["v"].to_pylist() == ["5"]
    data = path.read_bytes()
    half = len(data) // 2
    path.write_bytes(data[:half] + bytes(byte ^ 255 for byte in data[half:]))
    opened = txlog.Table(tmp_path)
    for _ in range(2):
        found, told = caught(lambda: opened.lookup(range(0, 3_000, 7))["k"].to_pylist())
        assert found == list(range(0, 3_000, 7))
        named = [text for text in told if path.name in text]
        assert len(named) == (1 if _ == 0 else 0)  # Once, not at each look-up.
    assert all("checksum of the block at byte" in text for text in named)
    scanning = txlog.Table(tmp_path)
    found, told = caught(lambda: scanning.scan(where="k in (1, 2, 900)").to_arrow().num_rows)
    assert (found, len(told)) == (3, 1)
    assert scanning.scan(where="k = 1500").explain().files_to_read == 2
    for verb in (scanning.indexes.merge, scanning.indexes.build):
        caught(verb)
    assert path not in segments_of(tmp_path)
    assert txlog.Table(tmp_path).indexes.list()["k"].files_covered == 2
    assert txlog.Table(tmp_path).scan(where="k = 1500").explain().files_to_read == 1


@pytest.mark.spec("LKP-11")
@pytest.mark.usefixtures("in_blocks")
def test_build_and_merge_read_all_blocks(tmp_path: Path) -> None:
    for verb in ("build", "merge"):
        table = indexed_table(tmp_path / verb, [[5, 1, 3], [4, 9]])
        table.append(numbers([8, 2]))
        first = segments_of(tmp_path / verb)[0]
        data = bytearray(first.read_bytes())
        data[-1] ^= 1  # In the footer of a data file, or behind it.
        first.write_bytes(data)
        opened = txlog.Table(tmp_path / verb)
        _, told = caught(getattr(opened.indexes, verb))
        assert any(first.name in text for text in told)
        assert first.exists() is (verb == "merge")  # It is not merged with others.
        assert opened.lookup([9, 2])["v"].to_pylist() == ["9", "2"]


@pytest.mark.spec("LKP-9")
@pytest.mark.usefixtures("in_blocks")
def test_segments_that_another_process_deletes_while_they_are_merged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As if it merged them, too: they were read before."""
    table = indexed_table(tmp_path, [[5, 1, 3]])
    table.append(numbers([8, 2]))
    before = segments_of(tmp_path)

    def deleting(*given: Any) -> Any:
        for path in before:
            path.unlink(missing_ok=True)
        return merged(*given)

    monkeypatch.setattr("txlog.verbs.indexes.merged", deleting)
    report, told = caught(table.indexes.merge)
    assert (report.segments_after, report.files_left, told) == (1, 0, [])
    assert txlog.Table(tmp_path).lookup([8, 1])["v"].to_pylist() == ["8", "1"]


@pytest.mark.usefixtures("in_blocks")
def test_segments_that_are_merged_while_a_table_is_open(tmp_path: Path) -> None:
    """Blocks that were not read are in a file that is gone: the new one has them."""
    keys = np.random.default_rng(1).permutation(2_000).tolist()
    table = indexed_table(tmp_path, [keys[:1_000]])
    table.append(numbers(keys[1_000:]))
    kept = txlog.Table(tmp_path)
    assert kept.lookup([keys[0]]).num_rows == 1
    before = segments_of(tmp_path)
    table.indexes.merge()
    assert not set(before) & set(segments_of(tmp_path))
    found, told = caught(lambda: kept.lookup(range(0, 2_000, 3))["k"].to_pylist())
    assert found == list(range(0, 2_000, 3))
    assert told == []
    store = CountingStore(open_store(tmp_path))
    again = open_table(store)
    assert again.lookup([keys[0], keys[-1]]).num_rows == 2
    for path in segments_of(tmp_path):
        path.unlink()
    store.reset()
    assert again.lookup(range(2_000)).num_rows == 2_000
    assert any(call.path.endswith(".parquet") for call in store.calls)


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="needs Linux's list of open files")
@pytest.mark.usefixtures("in_blocks")
def test_a_table_with_an_index_holds_no_file_and_pickles_small(tmp_path: Path) -> None:
    keys = np.random.default_rng(1).permutation(20_000).tolist()
    table = indexed_table(tmp_path, [keys])
    (path,) = segments_of(tmp_path)
    files = {one.name for one in Path("/proc/self/fd").iterdir()}
    assert table.lookup(range(0, 20_000, 400)).num_rows == 50
    now = [one for one in Path("/proc/self/fd").iterdir() if one.name not in files]
    assert not [one for one in now if one.exists()]  # That of the listing is closed.
    assert str(path) not in Path("/proc/self/maps").read_text()
    packed = pickle.dumps(table)
    assert len(packed) < path.stat().st_size / 4
    assert pickle.loads(packed).lookup([7])["v"].to_pylist() == ["7"]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.usefixtures("in_blocks")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.filterwarnings("ignore:lance is not fork-safe")  # Of a package that others import.
def test_a_forked_process_reads_blocks_of_its_own(tmp_path: Path) -> None:
    keys = np.random.default_rng(1).permutation(2_000).tolist()
    table = indexed_table(tmp_path, [keys])
    assert table.lookup([7])["v"].to_pylist() == ["7"]
    child = os.fork()
    if not child:
        os._exit(0 if table.lookup(range(0, 2_000, 2)).num_rows == 1_000 else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert table.lookup(range(1, 2_000, 2)).num_rows == 1_000


@pytest.mark.usefixtures("in_blocks")
def test_what_a_table_keeps_of_an_index_is_bounded(tmp_path: Path) -> None:
    keys = np.random.default_rng(1).permutation(4_000).tolist()
    table = indexed_table(tmp_path, [keys])
    cache = table._context.lookups.cache().segments
    assert table.lookup([1]).num_rows == 1  # The footer is known by now.
    for bound in (1_000, 1 << 20):
        with moved({"txlog.lookup.indexes:_HELD_BYTES": bound}):
            for key in range(0, 4_000, 500):
                assert table.lookup([key])["v"].to_pylist() == [str(key)]
                held = sum(one.blocks.held_bytes for one in cache._read.values() if one)
                assert held <= bound
    assert held > 1_000


def made_far(root: Path, count: int) -> CountingStore:
    keys = np.random.default_rng(1).permutation(count).tolist()
    indexed_table(root, [keys])
    return CountingStore(LatencyStore(open_store(root), delay_s=0))


def test_a_large_segment_far_away_is_read_in_ranges(tmp_path: Path) -> None:
    """One request waits for the other: the head, marks and zeros, upper, lower, rows, a footer."""
    store = made_far(tmp_path, 50_000)
    size = segments_of(tmp_path)[0].stat().st_size
    with moved({"txlog.lookup.indexes:_WHOLE_BYTES": 1, "txlog.lookup.indexes:_FAR_GAP": 1}):
        table = open_table(store)
        store.reset()
        assert table.lookup([7])["v"].to_pylist() == ["7"]
        calls = [call for call in store.calls if "_txlog_index" in call.path]
        assert calls[0].kind == "list_after"
        assert {call.kind for call in calls[1:]} == {"read_range"}
        assert len(calls) <= 8
        assert sum(call.size or 0 for call in calls) < size
        assert table.lookup(range(0, 50_000, 100)).num_rows == 500


@pytest.mark.spec("LKP-11")
def test_a_damaged_copy_is_deleted_and_fetched_again(tmp_path: Path) -> None:
    store = made_far(tmp_path / "t", 50_000)

    def looked_up() -> tuple[Any, list[str], list[str]]:
        table = open_table(store)
        table._context.lookups.folder = str(tmp_path / "kept")
        store.reset()
        found, told = caught(lambda: table.lookup([7, 40_000])["v"].to_pylist())
        calls: list[str] = [call.kind for call in store.calls if call.path.endswith(".idx")]
        return found, told, calls

    assert looked_up() == (["7", "40000"], [], ["read"])
    assert looked_up() == (["7", "40000"], [], [])
    (copy,) = (tmp_path / "kept").rglob("*.idx")
    data = copy.read_bytes()
    for damaged in (data[:40] + b"x" + data[41:], data[:70_000] + bytes(len(data) - 70_000)):
        copy.write_bytes(damaged)
        found, told, _ = looked_up()
        assert (found, told) == (["7", "40000"], [])
        looked_up()
        assert copy.read_bytes() == data


@pytest.mark.spec("LKP-11")
@pytest.mark.parametrize("verb", ["build", "merge"])
def test_a_damaged_copy_says_nothing_of_its_segment(verb: str, tmp_path: Path) -> None:
    store = made_far(tmp_path / "t", 50_000)
    open_table(store).append(numbers([50_001]))
    before = segments_of(tmp_path / "t")
    table = open_table(store)
    table._context.lookups.folder = str(tmp_path / "kept")
    assert table.lookup([7, 50_001]).num_rows == 2
    for copy in (tmp_path / "kept").rglob("*.idx"):
        data = bytearray(copy.read_bytes())
        data[len(data) * 3 // 4] ^= 1
        copy.write_bytes(data)
    table = open_table(store)
    table._context.lookups.folder = str(tmp_path / "kept")
    report, told = caught(lambda: getattr(table.indexes, verb)())
    assert told == []
    assert report.files_built == 0
    after = segments_of(tmp_path / "t")
    assert after == before if verb == "build" else len(after) == 1


@pytest.mark.spec("LKP-11")
def test_build_reads_the_file_of_a_segment_that_is_in_memory(tmp_path: Path) -> None:
    table = indexed_table(tmp_path, [[5, 1, 3]])
    assert table.lookup([3])["v"].to_pylist() == ["3"]
    (segment,) = segments_of(tmp_path)
    data = bytearray(segment.read_bytes())
    data[-1] ^= 1
    segment.write_bytes(data)
    report, told = caught(lambda: table.indexes.build())
    assert report.files_built == 1
    assert any(segment.name in text for text in told)
    assert txlog.Table(tmp_path).lookup([3])["v"].to_pylist() == ["3"]


@pytest.mark.spec("LKP-11")
def test_two_threads_that_meet_a_damaged_copy_lose_only_the_copy(tmp_path: Path) -> None:
    store = made_far(tmp_path / "t", 50_000)
    cache = SegmentCache(str(tmp_path / "kept"))
    assert len(cache.segments(store, "k")) == 1
    cache = SegmentCache(str(tmp_path / "kept"))
    (segment,) = cache.segments(store, "k")
    assert segment.copy is not None
    error = RunError("a block of the copy is damaged")
    _, told = caught(lambda: [cache._lose(segment, error), cache._lose(segment, error)])
    assert told == []
    (own,) = cache.segments(store, "k")
    assert own.copy is None
    assert [one.name for one in cache.sound(store, [own], keep=False)] == [segment.name]
