"""Mixtures of loaders, compared with the rules in plain Python."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import subprocess
import sys
import warnings
from collections import Counter
from itertools import count, islice
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import txlog
from tests.examples import examples
from tests.training.loader.plain_loader import batches_of, mixed_rows, permuted
from tests.training.loader.test_loader import SHUFFLES, ids_of
from txlog.base.errors import InvalidInputError, InvalidTypeError
from txlog.training import Loader, Mixture, Number, RowFunction, Shuffle
from txlog.training.loader.mixture import Pattern

NAMES = count()


def table_of(first: int, rows: int) -> txlog.Table:
    """A table of ids in files of seven rows."""
    uri = f"memory://mixture-{next(NAMES)}"
    for start in range(first, first + rows, 7):
        ids = np.arange(start, min(start + 7, first + rows))
        data = pa.table({"id": ids, "s": [f"text {id}" for id in ids]})
        table = txlog.write(uri, data, mode="append")
    return table


def epoch_rows(loader: Loader, epoch: int) -> list[int]:
    """The ids of an epoch of a loader, as it returns them alone."""
    alone = Loader(
        loader.table, batch_size=1, columns=["id"], shuffle=loader.shuffle, even="short",
        weights=loader.weights, rank=0, world_size=1,
    )  # fmt: skip
    alone.set_epoch(epoch)
    return [id for (id,) in ids_of(alone)]


class Described(Loader):
    """A loader that knows its arguments."""

    def __init__(self, table: txlog.Table, shuffle: Shuffle | None, weights: Any, **more: Any):
        self.table, self.shuffle, self.weights = table, shuffle, weights
        super().__init__(table, shuffle=shuffle, weights=weights, columns=["id", "s"], **more)


@pytest.mark.slow
@pytest.mark.spec("LDR-16")
@given(st.data())
@settings(max_examples=examples(60))
def test_rows_are_those_of_the_plain_mixture(data: st.DataObject) -> None:
    """Of any loaders, on any number of ranks and workers, and from a state on any other number."""
    sizes = data.draw(st.lists(st.integers(1, 30), min_size=1, max_size=3))
    sources = [(table_of(1000 * at, size), data.draw(SHUFFLES)) for at, size in enumerate(sizes)]
    weights = data.draw(
        st.lists(
            st.sampled_from([None, RowFunction(["id"], heavy)]),
            min_size=len(sizes),
            max_size=len(sizes),
        )
    )
    proportions = data.draw(
        st.none() | st.lists(st.integers(1, 5), min_size=len(sizes), max_size=len(sizes))
    )
    run_rows, seed = data.draw(st.integers(1, 6)), data.draw(st.integers(0, 3))
    epoch_size = data.draw(st.none() | st.integers(1, 70))
    even = data.draw(st.sampled_from(["drop", "short"]))
    epoch, batch_size = data.draw(st.integers(0, 3)), data.draw(st.integers(1, 9))

    def mixture(rank: int, ranks: int, batch_size: int) -> Mixture:
        loaders = {
            f"l{at}": Described(
                table, shuffle, weights[at], batch_size=batch_size, rank=rank, world_size=ranks,
                threads=data.draw(st.integers(0, 2)),
            )
            for at, (table, shuffle) in enumerate(sources)
        }  # fmt: skip
        shares = proportions and dict(zip(loaders, proportions, strict=True))
        made = Mixture(
            loaders, proportions=shares, epoch_rows=epoch_size, seed=seed, run_rows=run_rows,
            even=even,
        )  # fmt: skip
        made.set_epoch(epoch)
        return made

    one = mixture(0, 1, batch_size)
    total = epoch_size or sum(sizes)
    assert one.num_rows == total
    rows = mixed_rows(
        [lambda e, of=loader: epoch_rows(of, e) for loader in one.loaders.values()],
        sizes, proportions or sizes, run_rows, seed, epoch * total, (epoch + 1) * total,
    )  # fmt: skip
    ranks = data.draw(st.integers(1, 4))
    stop = data.draw(st.integers(0, 1 + total // (batch_size * ranks)))
    for rank in range(ranks):
        wanted = batches_of(rows, batch_size, rank, ranks, even)
        workers = data.draw(st.integers(1, 2))
        parts = [
            list(mixture(rank, ranks, batch_size).batches(at, workers)) for at in range(workers)
        ]
        merged = [parts[i % workers][i // workers] for i in range(sum(map(len, parts)))]
        assert [batch["id"].tolist() for batch in merged] == wanted
        for batch in merged:
            assert batch["s"].tolist() == [f"text {id}" for id in batch["id"].tolist()]
        some = mixture(rank, ranks, batch_size)
        assert ids_of(islice(some, stop)) == wanted[:stop]
        state = some.state_dict()
    others, size = data.draw(st.integers(1, 4)), data.draw(st.integers(1, 9))
    if state["epoch"] == epoch:
        for rank in range(others):
            again = mixture(rank, others, size)
            again.load_state_dict(state)
            assert ids_of(again) == batches_of(rows, size, rank, others, even, state["position"])  # type: ignore[arg-type]


def heavy(rows: pa.RecordBatch) -> list[float]:
    return [1 + id % 3 for id in rows["id"].to_pylist()]


@given(
    st.lists(st.integers(1, 7), min_size=1, max_size=4),
    st.integers(1, 9),
    st.integers(0, 5),
    st.integers(0, 500),
    st.integers(0, 200),
    st.integers(1, 7),
)
@settings(max_examples=examples(100))
def test_a_pattern_is_that_of_single_rows(
    runs: list[int], run_rows: int, seed: int, first: int, count: int, step: int
) -> None:
    pattern = Pattern(tuple(runs), run_rows, seed)
    places, numbers = pattern.sources(first, first + count, step)
    rows = range(first, first + count, step)
    plain: list[tuple[int, int]] = []
    read = [0] * len(runs)
    given = [place for place, times in enumerate(runs) for _ in range(times)]
    for row in range(first + count):
        period, at = divmod(row // run_rows, len(given))
        place = given[permuted(len(given), seed, period)[at]]
        if row == first:
            assert pattern.before(first) == read
        if row in rows:
            plain.append((place, read[place]))
        read[place] += 1
    assert list(zip(places.tolist(), numbers.tolist(), strict=True)) == plain


def test_an_error_names_the_loader() -> None:
    bad = txlog.write(f"memory://mixture-{next(NAMES)}", pa.table({"id": [1, None]}))
    loaders = {
        "good": Loader(table_of(0, 9), batch_size=4, columns=["id"]),
        "bad": Loader(bad, batch_size=4, columns=["id"]),
    }
    with pytest.raises(InvalidInputError, match="at position 1 of fragment 0, in the loader bad"):
        list(Mixture(loaders, proportions={"good": 1, "bad": 1}, run_rows=1))


def made(sizes: dict[str, int], **more: Any) -> Mixture:
    loaders = {
        name: Loader(table_of(1000 * at, size), batch_size=10, columns=["id"])
        for at, (name, size) in enumerate(sizes.items())
    }
    return Mixture(loaders, **more)


@pytest.mark.slow
@pytest.mark.spec("LDR-16")
@pytest.mark.parametrize(
    ("proportions", "runs"),
    [
        ({"a": 0.7, "b": 0.2, "c": 0.1}, (7, 2, 1)),
        ({"a": 2, "b": 4, "c": 2}, (1, 2, 1)),
        ({"a": 1 / 3, "b": 1 / 3, "c": 1 / 3}, (3333, 3333, 3333)),
        ({"a": 1e-9, "b": 1, "c": 1}, (1, 5000, 5000)),
        (None, (3, 2, 1)),
    ],
)
def test_proportions_hold_in_each_period(
    proportions: dict[str, float] | None, runs: tuple[int, ...]
) -> None:
    mixture = made({"a": 30, "b": 20, "c": 10}, proportions=proportions, run_rows=1, epochs=None)
    if max(runs) > 1000:
        least = min(runs)
        assert repr(mixture).startswith(
            f"txlog.Mixture(a {runs[0] // least}/{sum(runs) // least}, "
        )
        return
    batches = islice(mixture, 60)
    rows = iter([id // 1000 for batch in batches for id in batch["id"].tolist()])
    period = sum(runs)
    for _ in range(600 // period):
        counts = Counter(next(rows) for _ in range(period))
        assert tuple(counts[at] for at in range(3)) == runs


def test_a_small_loader_begins_again(tmp_path: Path) -> None:
    mixture = made({"a": 50, "b": 5}, proportions={"a": 1, "b": 1}, run_rows=5, epoch_rows=100)
    found = Counter(id for batch in mixture for id in batch["id"].tolist())
    assert found == Counter(dict.fromkeys(range(50), 1) | dict.fromkeys(range(1000, 1005), 10))


@pytest.mark.spec("LDR-17")
def test_a_state_belongs_to_its_mixture() -> None:
    state = made({"a": 30, "b": 20}).state_at(2)
    tables = made({"a": 30, "b": 20})
    assert tables.state_dict()["fingerprint"] != state["fingerprint"]  # Of other tables.
    loaders = tables.loaders
    state = Mixture(loaders).state_at(2)
    Mixture(loaders, transform=len).load_state_dict(state)
    changes: list[dict[str, Any]] = [
        {"proportions": {"a": 1, "b": 1}}, {"epoch_rows": 49}, {"run_rows": 4}, {"seed": 1},
    ]  # fmt: skip
    for change in changes:
        with pytest.raises(InvalidInputError) as raised:
            Mixture(loaders, **change).load_state_dict(state)
        assert raised.value.argument == "state"
    turned = dict(reversed(loaders.items()))
    with pytest.raises(InvalidInputError, match="the loaders, their order, proportions"):
        Mixture(turned, proportions={"a": 3, "b": 2}).load_state_dict(state)


@pytest.mark.parametrize(
    ("change", "argument", "reason"),
    [
        ({"loaders": {}}, "loaders", "at least one"),
        ({"loaders": ["a"]}, "loaders", "names with loaders were expected"),
        ({"b": {"batch_size": 3}}, "loaders", "its batch_size is 3, that of a is 10"),
        ({"b": {"columns": ["id", "s"]}}, "loaders", "its schema is"),
        ({"b": {"views": {"id": Number("float32")}}}, "loaders", "its views is"),
        ({"b": {"where": "id < 0"}}, "loaders", "it has no rows"),
        ({"b": {"transform": len}}, "loaders", "it has a transform"),
        ({"proportions": {"a": 1}}, "proportions", "one number for each loader was expected"),
        ({"proportions": {"a": 1, "b": 1, "c": 1}}, "proportions", "one number for each loader"),
        ({"proportions": {"a": 1, "b": 0}}, "proportions", "a number above 0 was expected, not 0"),
        ({"proportions": [1, 1]}, "proportions", "names with numbers were expected"),
        ({"even": "pad"}, "even", "a mixture has no end"),
        ({"run_rows": 0}, "run_rows", "a whole number from 1"),
        ({"seed": 1 << 64}, "seed", "a number below"),
        ({"epoch_rows": 0}, "epoch_rows", "a whole number from 1"),
    ],
)
def test_wrong_arguments(change: dict[str, Any], argument: str, reason: str) -> None:
    arguments: dict[str, Any] = {"batch_size": 10, "columns": ["id"]}
    loaders = {
        "a": Loader(table_of(0, 9), **arguments),
        "b": Loader(table_of(0, 9), **{**arguments, **change.pop("b", {})}),
    }
    with pytest.raises(InvalidInputError, match=reason) as raised:
        Mixture(**{"loaders": loaders, **change})
    assert raised.value.argument == argument
    assert isinstance(raised.value, InvalidTypeError) == ("names with" in reason)


def doubled(batch: dict[str, Any]) -> tuple[int, list[int]]:
    """Where it runs, and what it makes."""
    return os.getpid(), (2 * batch["id"]).tolist()


def killing(batch: dict[str, Any]) -> None:
    os._exit(9)


def failing(batch: dict[str, Any]) -> None:
    raise KeyError(int(batch["id"][0]))


@pytest.mark.slow
def test_processes_transform_batches_in_their_order() -> None:
    table = table_of(0, 400)
    arguments: dict[str, Any] = {"batch_size": 7, "columns": ["id"], "epochs": 2}
    wanted = [[2 * id for id in ids] for ids in ids_of(Loader(table, **arguments))]
    loader = Loader(table, **arguments, transform=doubled, processes=2)
    batches = iter(loader)
    found = [next(batches) for _ in range(60)]
    again = pickle.loads(pickle.dumps(loader))  # Running processes do not go with it.
    again.load_state_dict(loader.state_dict())
    assert [rows for _, rows in [*found, *again]] == wanted
    assert [rows for _, rows in [*found, *batches]] == wanted
    assert os.getpid() not in {process for process, _ in found}
    assert len({process for process, _ in found}) == 2


class OddError(Exception):
    """An error that does not pickle back."""

    def __init__(self, one: int, two: int) -> None:
        super().__init__(f"{one} and {two}")


def odd_failing(batch: dict[str, Any]) -> None:
    raise OddError(1, 2)


def listed(loader: Loader, answers: Any) -> None:
    answers.put([rows for _, rows in loader])


@pytest.mark.slow
def test_processes_within_forked_and_daemonic_processes() -> None:
    loader = Loader(table_of(0, 40), batch_size=7, columns=["id"], transform=doubled, processes=1)
    wanted = [rows for _, rows in loader]
    loader.set_epoch(0)
    context = multiprocessing.get_context("fork")
    for is_daemon in (False, True):
        answers = context.SimpleQueue()
        child = context.Process(target=listed, args=(loader, answers), daemon=is_daemon)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # A fork beside threads; lance warns, too.
            child.start()
        child.join(60)
        assert child.exitcode == 0
        assert answers.get() == wanted


@pytest.mark.slow
def test_what_a_prompt_defines_is_refused() -> None:
    code = (
        "import numpy as np, pyarrow as pa, txlog\n"
        "from txlog.training import Loader\n"
        "def mine(batch): return batch\n"
        "t = txlog.write('memory://prompt', pa.table({'id': [1]}))\n"
        "try: Loader(t, batch_size=1, transform=mine, processes=1)\n"
        "except ValueError as error: print(error)\n"
    )
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "it was defined in a notebook, or at a prompt" in told.stdout


@pytest.mark.slow
def test_failures_of_processes() -> None:
    table = table_of(0, 40)
    arguments: dict[str, Any] = {"batch_size": 7, "columns": ["id"], "shuffle": None}
    with pytest.raises(KeyError, match="0"):
        list(Loader(table, **arguments, transform=failing, processes=1))
    with pytest.raises(RuntimeError, match="OddError: 1 and 2"):
        list(Loader(table, **arguments, transform=odd_failing, processes=1))
    killed = Loader(table, **arguments, transform=killing, processes=1)
    with pytest.raises(MemoryError, match="a process that runs transform was killed"):
        list(killed)
    with pytest.raises(InvalidInputError, match="processes cannot import it") as raised:
        Loader(table, **arguments, transform=lambda batch: batch, processes=1)
    assert raised.value.argument == "transform"
    with pytest.raises(InvalidInputError, match="which was not given") as raised:
        Loader(table, **arguments, processes=1)
    assert raised.value.argument == "processes"
