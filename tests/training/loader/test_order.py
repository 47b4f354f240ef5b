"""The order of rows: fixed vectors, and the order of plain_loader.py."""

import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import examples
from tests.training.loader.plain_loader import blocks_of, epoch_of, mix, permuted
from txlog.base.errors import InvalidInputError
from txlog.expressions.sql import as_expression
from txlog.training.loader.order import Order, Shuffle, block_rows_for, permutation, window_rows_for
from txlog.training.loader.state import Identity

SPEC = (Path(__file__).parents[3] / "spec" / "loader.md").read_text("utf-8")


def epoch_numbers(counts: list[int], shuffle: tuple[int, int, int], epoch: int) -> list[int]:
    """Return the order of an epoch as `Order` has it: rows are numbered by blocks."""
    seed, lanes, window_rows = shuffle
    starts = np.cumsum([0, *counts])
    order = Order(
        np.array(counts, np.int64), lanes=lanes, window_rows=window_rows, seeds=(seed, epoch)
    )
    found: list[int] = []
    for of in order.rounds():
        assert of.first == len(found)
        lanes_read, selected = order.selected(of, 0, order.rows, 0, 1)
        rows = [
            int(starts[piece.block]) + offset
            for lane in lanes_read
            for piece in order.pieces(of.windows[lane])
            for offset in range(piece.start, piece.stop)
        ]
        found += np.array(rows)[selected].tolist()
    return found


@pytest.mark.spec("LDR-2")
def test_permutations_are_those_of_the_vectors() -> None:
    listed = re.findall(r"`P\((\d+); ([\d, ]+)\)` \| ([\d, ]+) \|", SPEC)
    assert len(listed) == 3
    for count, seeds, numbers in listed:
        given_seeds = [int(seed) for seed in seeds.split(",")]
        wanted = [int(number) for number in numbers.split(",")]
        assert permutation(int(count), *given_seeds).tolist() == wanted
        assert permuted(int(count), *given_seeds) == wanted
    assert f"{mix(1):016X}" in SPEC


@pytest.mark.spec("LDR-2")
@given(st.integers(0, 300), st.lists(st.integers(0, (1 << 64) - 1), max_size=4))
@settings(max_examples=examples(60))
def test_permutations_are_the_plain_ones(count: int, seeds: list[int]) -> None:
    assert permutation(count, *seeds).tolist() == permuted(count, *seeds)


@pytest.mark.spec("LDR-1", "LDR-4", "LDR-5", "LDR-6")
def test_epochs_are_those_of_the_vectors() -> None:
    listed = {
        name.strip(): [int(row) for row in rows.split(",")]
        for name, rows in re.findall(r"^\| (\d[\w ,]*) \| ([\d, ]+) \|$", SPEC, re.MULTILINE)
    }
    assert set(listed) == {"0", "1", "0, row 4 deleted"}
    for name, wanted in listed.items():
        rows = [(row, "4" not in name or row != 4) for row in range(10)]
        blocks = blocks_of([rows[:7], rows[7:]], 3)
        assert epoch_of(blocks, (7, 2, 2), int(name[0])) == wanted
        numbers = epoch_numbers([len(block) for block in blocks], (7, 2, 2), int(name[0]))
        flat = [row for block in blocks for row in block]
        assert [flat[number] for number in numbers] == wanted


@pytest.mark.spec("LDR-4", "LDR-5", "LDR-6")
@given(
    st.lists(st.integers(1, 9), max_size=12),
    st.integers(0, 5),
    st.integers(1, 9),
    st.integers(1, 7),
    st.integers(0, 3),
)
@settings(max_examples=examples(150))
def test_epochs_are_the_plain_ones(
    counts: list[int], seed: int, lanes: int, window_rows: int, epoch: int
) -> None:
    starts = np.cumsum([0, *counts]).tolist()
    blocks = [list(range(a, a + count)) for a, count in zip(starts, counts, strict=False)]
    wanted = epoch_of(blocks, (seed, lanes, window_rows), epoch)
    assert epoch_numbers(counts, (seed, lanes, window_rows), epoch) == wanted
    assert sorted(wanted) == list(range(sum(counts)))


@pytest.mark.spec("LDR-3")
@pytest.mark.parametrize(
    ("size", "rows", "files", "block_rows"),
    [(0, 0, 0, 20000), (209, 1, 0, 20000), (210, 1, 0, 10000), (100_000, 1, 0, 39),
     (4_194_304, 1, 0, 1), (1 << 40, 1, 0, 1), (2098, 10, 0, 10000), (0, 10_001, 1, 20000),
     (0, 10_000, 1, 10000), (0, 1_000_000, 10_000, 156), (0, 5, 5, 1), (0, 5, 2, 4)],
)  # fmt: skip
def test_blocks_of_large_rows_or_small_files_are_short(
    size: int, rows: int, files: int, block_rows: int
) -> None:
    assert block_rows_for(size, rows, files, shuffled=True) == block_rows
    assert window_rows_for(block_rows) == (4096 if block_rows > 8192 else max(1, block_rows // 2))


@pytest.mark.spec("LDR-8")
def test_fingerprints_are_those_of_the_vectors() -> None:
    facts = ("0b7d0000-0000-4000-8000-000000000001", 3)
    where = as_expression("x > 1")
    shuffled = Identity(*facts, where, (64, 4096, 8192)).fingerprint
    assert f"has the fingerprint {shuffled};" in SPEC
    plain = Identity(*facts, None, None).fingerprint
    assert f"without predicate and\nshuffling it has {plain}." in SPEC


def test_rows_of_a_batch_come_from_all_over() -> None:
    """Neighbours in a batch are as far apart as those of a random order."""
    rows, counts = 1 << 14, [64] * 256
    orders = [np.array(epoch_numbers(counts, (3, 64, 32), epoch)) for epoch in range(20)]
    apart = np.mean([np.abs(np.diff(order)).mean() for order in orders])
    assert abs(apart / (rows / 3) - 1) < 0.05
    assert abs(np.corrcoef(orders[0], np.arange(rows))[0, 1]) < 0.1
    assert (orders[0] == orders[1]).mean() < 0.001


@pytest.mark.parametrize(
    "wrong",
    [
        {"seed": -1},
        {"seed": 1 << 64},
        {"lanes": 0},
        {"lanes": 2.0},
        {"window_rows": 0},
        {"seed": True},
    ],
)
def test_a_shuffle_of_wrong_numbers_is_refused(wrong: dict[str, int]) -> None:
    (name,) = wrong
    with pytest.raises(InvalidInputError, match="a whole number from") as raised:
        Shuffle(**wrong)
    assert raised.value.argument == name
