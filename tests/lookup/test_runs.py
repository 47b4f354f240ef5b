"""Runs of keys, compared with sorted arrays."""

from __future__ import annotations

import tracemalloc
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import examples
from tests.moved import moved
from txlog.lookup.bits import ones, pack, packed_words, unpack
from txlog.lookup.keys import hashed, hashed_numbers, ordered
from txlog.lookup.runs import (
    Run,
    RunBuilder,
    RunPart,
    _in_order,
    _shift,
    build_run,
    merge_runs,
)
from txlog.schema.types import PrimitiveType, StructField

K = StructField("k", PrimitiveType("long"))
T = StructField("t", PrimitiveType("string"))


def truncated_rows(run: Run, encodings: list[int], rows: list[int], asked: list[int]) -> list[int]:
    """Return the rows whose encodings are equal to one that is asked for, but for cut-off bits."""
    wanted = {one >> run.shift for one in asked if run.first <= one <= run.last}
    return sorted(
        row for one, row in zip(encodings, rows, strict=True) if one >> run.shift in wanted
    )


u64 = st.one_of(
    st.integers(0, 2**64 - 1),
    st.integers(0, 300),
    st.integers(2**64 - 300, 2**64 - 1),
    st.integers(0, 40).map(lambda n: n << 57),
)


@pytest.mark.spec("LKP-3", "LKP-7")
@given(
    st.lists(u64, max_size=400),
    st.lists(u64, min_size=1, max_size=30),
    st.integers(0, 20),
    st.integers(0, 12),
    st.booleans(),
)
@settings(max_examples=examples(200), deadline=None)
def test_a_run_finds_what_a_sorted_array_has(
    keys: list[int], others: list[int], bits: int, shift: int, implied: bool
) -> None:
    encodings = np.sort(np.array(keys, np.uint64))
    rows = (
        np.arange(len(keys)) if implied else np.random.default_rng(len(keys)).permutation(len(keys))
    )
    run = build_run(
        "hashed", encodings, None if implied else rows, len(keys), bits=bits, shift=shift
    )
    run.check(len(keys))
    asked = sorted({*others, *keys[:20]})
    found = run.find(np.array(asked, np.uint64))
    assert sorted(found.tolist()) == truncated_rows(run, encodings.tolist(), rows.tolist(), asked)
    # One by one, which goes another way.
    for one in asked[:12]:
        alone = run.find(np.array([one], np.uint64))
        assert sorted(alone.tolist()) == truncated_rows(
            run, encodings.tolist(), rows.tolist(), [one]
        )
    back, back_rows = run.decoded()
    cut = np.uint64(run.shift)
    assert (back == encodings >> cut << cut).all()
    assert (back_rows == rows).all()


def test_keys_that_many_rows_have() -> None:
    encodings = np.sort(np.repeat(np.array([5, 2**40, 2**63, 2**63 + 1], np.uint64), 100))
    run = build_run("hashed", encodings, np.arange(400)[::-1], 400, bits=20)
    run.check(400)
    for place, key in enumerate((5, 2**40, 2**63)):
        found = run.find(np.array([key], np.uint64))
        wanted = {399 - row for row in range(100 * place, 100 * (place + 1))}
        assert wanted <= set(found.tolist())
    assert run.find(np.array([2**40 + 2**39], np.uint64)).tolist() == []


@given(st.lists(st.integers(0, 2**64 - 1), max_size=150), st.integers(1, 64))
@settings(max_examples=examples(60), deadline=None)
def test_packed_values_come_back(values: list[int], bits: int) -> None:
    given_values = np.array([value % 2**bits for value in values], np.uint64)
    words = pack(given_values, bits)
    assert len(words) == packed_words(len(values), bits)
    whole = sum(int(word) << 64 * n for n, word in enumerate(words))
    for place, value in enumerate(given_values.tolist()):
        start = place // 64 * 64 * bits + place % 64 * bits
        assert whole >> start & (1 << bits) - 1 == value
    assert (unpack(words, bits, len(values)) == given_values).all()


def test_a_million_keys() -> None:
    draw = np.random.default_rng(7)
    encodings = np.sort(draw.integers(0, 2**64 - 1, 1_000_000, np.uint64, endpoint=True))
    rows = draw.permutation(1_000_000)
    run = build_run("hashed", encodings, rows, 1_000_000, bits=16)
    run.check(1_000_000)
    assert 8 * run.nbytes / 1_000_000 < 20 + 16 + 2.6
    asked = np.unique(encodings[draw.integers(0, 1_000_000, 5_000)])
    found = np.sort(run.find(asked))
    exact = np.sort(rows[np.isin(encodings, asked)])
    assert np.isin(exact, found).all()
    assert len(found) < len(exact) + 20
    absent = draw.integers(0, 2**64 - 1, 100_000, np.uint64)
    assert len(run.find(np.unique(absent))) < 10  # 1.5 are expected.


def built(column: StructField, *parts: pa.Array) -> tuple[Run, RunBuilder]:
    builder = RunBuilder([column])
    for part in parts:
        builder.add([part])
    run = builder.finish()
    run.check(builder.num_rows)
    return run, builder


@pytest.mark.spec("LKP-7")
def test_the_form_follows_the_rows() -> None:
    ascending, _ = built(K, pa.array([-5, 1]), pa.array([1, 9]))
    assert (ascending.form, ascending.rows) == ("ordered", None)
    assert ascending.find(ordered(K, pa.array([1]))).tolist() == [1, 2]
    for parts in ([[3, 1]], [[1, 5], [4]], [[1, None, 3], [2]]):
        run, builder = built(K, *(pa.array(part, pa.int64()) for part in parts))
        assert run.form == "hashed"
        values = [value for part in parts for value in part]
        for row, value in enumerate(values):
            if value is not None:
                wanted = hashed([K], [pa.array([value], pa.int64())])
                assert row in run.find(wanted)
        assert builder.nulls == values.count(None)
    for values, start in [([None, None, 1, 5], 2), ([1, 5, None], 0), ([1, None, 5], None)]:
        run, _ = built(K, *(pa.array([value], pa.int64()) for value in values))
        assert run.form == "ordered"
        assert (run.rows is None, run.start) == (start is not None, start or 0)
        assert run.find(ordered(K, pa.array([5]))).tolist() == [values.index(5)]
        assert run.within(0, 2**64 - 1).tolist() == [values.index(1), values.index(5)]
    texts, _ = built(T, pa.array(["a", "ab", "b" * 20]))
    assert texts.form == "ordered"
    # So many keys have the same first bytes that their order tells them apart no more.
    alike, _ = built(T, pa.array([f"prefix-of-all-{n}" for n in range(10)]))
    assert alike.form == "hashed"
    # One key far off would leave nothing of the others.
    skewed, _ = built(K, pa.array([*range(1_000), 2**62]))
    assert skewed.form == "hashed"
    nothing, _ = built(K, pa.array([None, None], pa.int64()))
    assert nothing.keys == 0
    assert nothing.find(np.arange(3, dtype=np.uint64)).tolist() == []
    built(K)


def test_hashes_of_numbers_by_either_way() -> None:
    numbers = pa.array([-(2**63), -1, 0, 5, 2**63 - 1])
    assert (hashed_numbers(ordered(K, numbers)) == hashed([K], [numbers])).all()


@pytest.mark.spec("LKP-2")
@settings(max_examples=examples(60))
@given(values=st.lists(st.one_of(st.none(), st.binary(max_size=40)), max_size=9))
def test_hashes_of_texts_by_either_way(values: list[bytes | None]) -> None:
    """A few texts one by one, and the others eight bytes of each at a time."""
    array = pa.array([b"x", *values], pa.binary()).slice(1)
    found = []
    for few, words in ((0, 1 << 13), (2, 1 << 13), (1 << 20, 1 << 13), (1 << 20, 1), (2, 2)):
        with moved({"txlog.lookup.keys:_FEW_TEXTS": few, "txlog.lookup.keys:_WORDS": words}):
            hashes = hashed([StructField("b", PrimitiveType("binary"))], [array]).tolist()
        found.append([one for one, value in zip(hashes, values, strict=True) if value is not None])
    assert found == found[:1] * len(found)


@pytest.mark.spec("LKP-2")
def test_a_long_text_takes_little_more_memory_than_it_has_bytes() -> None:
    array = pa.array([b"x" * 2_000_000], pa.binary())
    tracemalloc.start()
    try:
        hashed([StructField("b", PrimitiveType("binary"))], [array])
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 5_000_000  # A list of its words would have 20,000,000.


@pytest.mark.spec("LKP-2")
def test_first_bytes_keep_the_order() -> None:
    texts = ["", "\0", "a", "a\0", "aaaaaaaa", "aaaaaaaab", "b", "é", "z" * 40]
    encodings = ordered(T, pa.array(["", *texts]).slice(1))
    expected = [int.from_bytes(text.encode()[:8].ljust(8, b"\0"), "big") for text in texts]
    assert encodings.tolist() == expected


columns_of_files = st.lists(
    st.tuples(st.lists(st.one_of(st.none(), st.integers(-50, 50)), max_size=30), st.booleans()),
    min_size=1,
    max_size=5,
)


@pytest.mark.spec("LKP-9")
@given(columns_of_files, st.booleans())
@settings(max_examples=examples(120), deadline=None)
def test_merged_runs_find_what_their_parts_find(
    files: list[tuple[list[int | None], bool]], is_sorted: bool
) -> None:
    """Files that are sorted one by one, or not, some of them left out; in any order."""
    parts, kept = [], []
    for values, keep in files:
        if is_sorted:
            values = sorted(value for value in values if value is not None) or [0]
        else:
            values = [None, *values]
        run, builder = built(K, pa.array(values, pa.int64()))
        starts = np.array([0, builder.num_rows])
        parts.append(RunPart(run, starts, np.array([keep])))
        kept += values if keep else []
    merged = merge_runs(parts)
    assert merged is not None
    merged.check(len(kept))
    # And once more, as one of two.
    again = merge_runs([RunPart(merged, np.array([0, len(kept)]), np.array([True])), *parts[:1]])
    assert again is not None
    encode = ordered if is_sorted else lambda column, array: hashed([column], [array])
    for asked in (-50, 0, 7, 50):
        wanted = encode(K, pa.array([asked]))
        rows = {row for row, value in enumerate(kept) if value == asked}
        assert rows <= set(merged.find(wanted).tolist())
        assert rows <= set(again.find(wanted).tolist())
        assert all(row < len(kept) for row in merged.find(wanted))


@pytest.mark.spec("LKP-9")
def test_sorted_files_become_one_sorted_run_only_if_they_follow_each_other() -> None:
    runs = [built(K, pa.array(range(start, start + 100)))[0] for start in (0, 100, 50)]
    parts = [RunPart(run, np.array([0, 100]), np.array([True])) for run in runs]
    following = merge_runs(parts[:2])
    assert following is not None
    assert following.rows is None
    overlapping = merge_runs(parts)
    assert overlapping is not None
    assert overlapping.rows is not None
    assert sorted(overlapping.find(ordered(K, pa.array([60])))) == [60, 210]
    # A wide one beside a dense one: what would be cut off tells the keys of the dense one apart.
    wide, _ = built(K, pa.array([n << 50 for n in range(100)]))
    assert merge_runs([parts[0], RunPart(wide, np.array([0, 100]), np.array([True]))]) is None


@pytest.mark.parametrize("kind", [np.uint8, np.uint64])
def test_bits_are_counted_with_and_without_numpy_2(
    kind: type[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    words = np.random.default_rng(1).integers(0, np.iinfo(kind).max, (7, 8), kind, endpoint=True)
    expected = [[int(word).bit_count() for word in row] for row in words]
    assert ones(words).tolist() == expected
    monkeypatch.delattr(np, "bitwise_count", raising=False)
    assert ones(words).tolist() == expected


@pytest.mark.parametrize("in_parts", [True, False])
@given(
    st.lists(st.integers(0, (1 << 64) - 1), min_size=1, max_size=200),
    st.integers(0, 40),
    st.integers(0, 40),
    st.booleans(),
)
@settings(max_examples=examples(80), deadline=None)
def test_encodings_are_put_in_order(
    in_parts: bool, numbers: list[int], bits: int, shift: int, are_small: bool
) -> None:
    encodings = np.array(numbers, np.uint64) >> np.uint64(60 if are_small else 0)
    rows = np.arange(len(numbers))
    found, places = _in_order(encodings, rows, len(rows), bits=bits, shift=shift, in_parts=in_parts)
    assert (found[0], found[-1]) == (encodings.min(), encodings.max())
    ends = int(found[0]), int(found[-1])
    cut = np.uint64(_shift(*ends, len(rows), bits, shift))
    assert (found >> cut == encodings[places] >> cut).all()
    assert ((found >> cut)[1:] >= (found >> cut)[:-1]).all()
    assert sorted(places.tolist()) == rows.tolist()


@pytest.mark.parametrize("bits", [17, 64])
def test_more_values_than_are_packed_at_a_time(bits: int) -> None:
    values = np.arange(70_000, dtype=np.uint64) << np.uint64(bits - 17)
    assert (unpack(pack(values, bits), bits, len(values)) == values).all()
