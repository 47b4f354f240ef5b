"""spec/loader.md in plain Python: lists and whole numbers, no arrays."""

from collections.abc import Callable, Hashable, Mapping, Sequence
from math import gcd
from typing import TypeVar

WORD = (1 << 64) - 1

Row = TypeVar("Row", bound=Hashable)


def mix(x: int) -> int:
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9 & WORD
    x = (x ^ x >> 27) * 0x94D049BB133111EB & WORD
    return x ^ x >> 31


def permuted(n: int, *seeds: int) -> list[int]:
    k = 0x5851F42D4C957F2D
    for seed in seeds:
        k = mix(k ^ seed)
    return sorted(range(n), key=lambda i: mix(i * 0x9E3779B97F4A7C15 + k & WORD))


def blocks_of(fragments: Sequence[Sequence[tuple[Row, bool]]], block_rows: int) -> list[list[Row]]:
    """Return the blocks of fragments, each a list of rows and whether they count."""
    blocks = []
    for fragment in fragments:
        for start in range(0, len(fragment), block_rows):
            block = [row for row, counts in fragment[start : start + block_rows] if counts]
            if block:
                blocks.append(block)
    return blocks


def weighted(
    blocks: Sequence[Sequence[Row]], weights: Mapping[Row, float], seed: int | None, epoch: int
) -> list[list[Row]]:
    """Return the blocks of an epoch, with rows as often as their weights say."""
    rows = [row for block in blocks for row in block]
    bits = min(40, 62 - len(rows).bit_length())
    most = max(weights[row] for row in rows)
    shares = [round(weights[row] / most * float(1 << bits)) for row in rows]
    factor = float(len(rows) << bits) / sum(shares)
    sums, total = [], 0
    last = max(at for at, share in enumerate(shares) if share)
    for at, share in enumerate(shares):
        total += round(share * factor)
        sums.append(len(rows) << bits if at >= last else min(total, len(rows) << bits))
    units = [end - start for start, end in zip([0, *sums], sums, strict=False)]
    offset = (mix(seed or 0) + epoch * 0x9E3779B97F4A7C15 & WORD) >> 64 - bits
    made, first, before = [], 0, 0
    for number, block in enumerate(blocks):
        times = {}
        order = range(len(block)) if seed is None else permuted(len(block), seed, number)
        for at in order:
            after = before + units[first + at]
            times[at] = (after + offset >> bits) - (before + offset >> bits)
            before = after
        made.append([row for at, row in enumerate(block) for _ in range(times[at])])
        first += len(block)
    return [block for block in made if block]


def epoch_of(
    blocks: Sequence[Sequence[Row]],
    shuffle: tuple[int, int, int] | None,
    epoch: int,
) -> list[Row]:
    """Return the rows of an epoch; `shuffle` is seed, lanes, window_rows."""
    if shuffle is None:
        return [row for block in blocks for row in block]
    seed, lanes, window_rows = shuffle
    stream = [row for at in permuted(len(blocks), seed, epoch) for row in blocks[at]]
    total = len(stream)
    parts = [stream[i * total // lanes : (i + 1) * total // lanes] for i in range(lanes)]
    rows: list[Row] = []
    number = 0
    while len(rows) < total:
        windows = []
        for lane, part in enumerate(parts):
            window = part[number * window_rows : (number + 1) * window_rows]
            windows.append([window[i] for i in permuted(len(window), seed, epoch, lane, number)])
        for line in range(window_rows):
            rows += [window[line] for window in windows if line < len(window)]
        number += 1
    return rows


def batches_of(
    rows: Sequence[Row], batch_size: int, rank: int, ranks: int, even: str, position: int = 0
) -> list[list[Row]]:
    """Return the batches of a rank, from a position of the epoch on."""
    step = batch_size * ranks
    batches = []
    while position < len(rows):
        positions = list(range(position, position + step))
        if positions[-1] >= len(rows):
            if even == "drop":
                break
            if even == "short":
                positions = [p for p in positions if p < len(rows)]
        batch = [rows[p % len(rows)] for p in positions if p % ranks == rank]
        if batch:
            batches.append(batch)
        position += step
    return batches


def mixed_rows(
    epochs: Sequence[Callable[[int], list[Row]]],
    sizes: Sequence[int],
    proportions: Sequence[int],
    run_rows: int,
    seed: int,
    first: int,
    stop: int,
) -> list[Row]:
    """Return the rows of a mixture in a range, one row after another from the very first."""
    least = gcd(*proportions)
    runs = [share // least for share in proportions]
    given = [source for source, count in enumerate(runs) for _ in range(count)]
    read = [0] * len(sizes)
    known: dict[tuple[int, int], list[Row]] = {}
    rows: list[Row] = []
    for row in range(stop):
        period, at = divmod(row // run_rows, len(given))
        source = given[permuted(len(given), seed, period)[at]]
        epoch, position = divmod(read[source], sizes[source])
        read[source] += 1
        if row >= first:
            if (source, epoch) not in known:
                known[source, epoch] = epochs[source](epoch)
            rows.append(known[source, epoch][position])
    return rows
