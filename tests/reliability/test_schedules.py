"""All orders of the steps of two or three verbs, compared with one verb after the other.

The verbs and the model are those of `test_concurrent_operations`. Of a schedule the log tells the
order of the commits; the model does them in it, and must come to the same rows in each version.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from fsspec.implementations.memory import MemoryFileSystem
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import txlog
from tests import ticking
from tests.examples import examples
from tests.reliability.cases import HOUR_MS, Files, Later, clear, files_below, fill, opened
from tests.verbs.test_concurrent_operations import (
    OPERATIONS,
    State,
    make,
    state_of,
)
from txlog.commit.context import Context
from txlog.effects import Effects
from txlog.errors import (
    CommitConflictError,
    DataFileError,
    NotFoundError,
    TxlogError,
)
from txlog.snapshot.load import load_snapshot
from txlog.store.base import Store
from txlog.store.memory import MemoryStore
from txlog.testing.schedules import (
    Actor,
    Choose,
    History,
    all_schedules,
    play,
    replay,
    some_schedule,
)
from txlog.threads import Threads


@dataclass(frozen=True)
class Ticking(ticking.Ticking, Later):
    """The same, with a clock that is ahead: the same schedule gives the same files."""


def context(store: Store, actor: int) -> Context:
    return Context(store, Ticking(actor=actor), Threads(1))


@dataclass(frozen=True)
class World:
    """A table that all schedules begin with, its versions by the model, and where it is."""

    store: MemoryStore
    files: Files
    held: list[State]


HOURS_OLD = 5
FIRST = 6  # The version that all begin with.


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> tuple[Files, list[State]]:
    with pytest.MonkeyPatch.context() as patch:
        return made_long_ago(tmp_path_factory.mktemp("start") / "t", patch)


def made_long_ago(root: Path, patch: pytest.MonkeyPatch) -> tuple[Files, list[State]]:
    """Make the table at a time from which a vacuum keeps nothing but the latest version."""
    now_ms = Effects.now_ms
    patch.setattr(Effects, "now_ms", lambda self: now_ms(self) - HOURS_OLD * HOUR_MS)
    held = make(root, "delta")
    txlog.Table(root).optimize.compact(max_column_files=0, max_rows_per_file=4)
    held.append(held[-1])  # And files that nobody needs any more.
    assert len(held) == FIRST + 1
    paths = [path for path in root.rglob("*") if path.is_file()]
    return {f"/{path.relative_to(root).as_posix()}": path.read_bytes() for path in paths}, held


@pytest.fixture
def world(start: tuple[Files, list[State]], monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    monkeypatch.setattr("os.cpu_count", lambda: 1)
    store = MemoryStore(f"memory://{uuid.uuid4()}")
    yield World(store, *start)
    clear(store)


# Actors ---------------------------------------------------------------------------------------


def verb(name: str, actor: int) -> Actor:
    """Return an actor that does an operation to the version that all begin with."""

    def act(store: Store) -> Any:
        place = context(store, actor)
        done = OPERATIONS[name].do(place, load_snapshot(store, version=FIRST), name)
        return done.outcome.version

    return act


def checkpoints(store: Store) -> None:
    opened(store).maintenance.checkpoint()


def cleans_log(store: Store) -> None:
    """Write a checkpoint, and delete what it stands for."""
    table = opened(store)
    table.maintenance.checkpoint()
    opened(store, 1).maintenance.expire(0, False)


def vacuums(store: Store) -> None:
    """Delete what no version of the last hour needs; all that is there at first is older."""
    opened(store).vacuum(1, False, False)


def reads(store: Store) -> tuple[int, State]:
    table = opened(store)
    return table.version, state_of(table.to_arrow())


UPKEEP: dict[str, Callable[[Store], Any]] = {
    "checkpoint": checkpoints, "clean the log": cleans_log, "vacuum": vacuums, "read": reads,
}  # fmt: skip


def actors_of(names: Sequence[str]) -> list[Actor]:
    return [
        UPKEEP[name] if name in UPKEEP else verb(name, number) for number, name in enumerate(names)
    ]


def begin(world: World) -> None:
    """Put the table where it was, all of it some hours old."""
    clear(world.store)
    fill(world.store, world.files)
    old = datetime.now().astimezone() - timedelta(hours=HOURS_OLD)
    for file in MemoryFileSystem.store.values():
        file.modified = old


def play_one(world: World, names: Sequence[str], choose: Choose) -> History:
    begin(world)
    return play(world.store, actors_of(names), choose)


# The check ------------------------------------------------------------------------------------


def check(world: World, names: Sequence[str], history: History) -> str:
    """Hold what happened against the model; return it in short."""
    table = opened(world.store)
    held = list(world.held)
    landed = {}
    for number, name in enumerate(names):
        result = history.results[number]
        if name in UPKEEP:
            assert not isinstance(result, BaseException) or _may_fail(name, result), result
        elif isinstance(result, int):
            assert result not in landed, "two were told the same version"
            landed[result] = name
        elif result is not None:
            assert _may_refuse(name, names, result), result
    for version in range(FIRST + 1, table.version + 1):
        name = landed.pop(version, None)
        held.append(held[-1] if name is None else OPERATIONS[name].model(held[-1], held))
        with suppress(NotFoundError):  # It was cleaned up.
            found = txlog.Table._of(
                context(world.store, 9), load_snapshot(world.store, version=version)
            )
            if version == table.version or "vacuum" not in names:
                assert state_of(found.to_arrow()).values() == held[-1].values(), version
    assert landed == {}, "an acknowledged commit is not there"
    if not set(names) & {"vacuum"}:
        writers = sum(name not in UPKEEP for name in names)
        nothing = sum(
            history.results[n] is None for n, name in enumerate(names) if name not in UPKEEP
        )
        made = table.version - FIRST
        failed = sum(isinstance(r, TxlogError) for r in history.results.values())
        assert made + nothing + failed >= writers
        assert made <= writers, "a commit is there twice"
    for number, name in enumerate(names):
        if name == "read" and not isinstance(history.results[number], BaseException):
            version, state = history.results[number]
            assert state.values() == held[version].values()
    return " ".join(type(r).__name__ if isinstance(r, BaseException) else str(r)[:2]
                    for _, r in sorted(history.results.items()))  # fmt: skip


def _may_refuse(name: str, names: Sequence[str], error: object) -> bool:
    """A writer may lose to another; what a restore wants back may have been cleaned up."""
    is_gone = isinstance(error, NotFoundError) and "clean the log" in names
    return isinstance(error, (CommitConflictError, DataFileError)) or (
        is_gone and name.startswith("restore")
    )


def _may_fail(name: str, error: BaseException) -> bool:
    """A reader may find its version cleaned up; it then opens the table again."""
    return name == "read" and isinstance(error, (NotFoundError, DataFileError))


def run(world: World, names: Sequence[str], *, most: int | None = None, **how: Any) -> int:
    """Play all schedules of these, or so many; return how many there are."""
    count = 0
    for history in islice(all_schedules(partial(play_one, world, names), **how), most):
        count += 1
        check_one(world, names, history)
    return count


def check_one(world: World, names: Sequence[str], history: History) -> None:
    try:
        check(world, names, history)
    except BaseException as error:
        error.add_note(f"{', '.join(names)}; replay: {history}; {history.results}")
        raise


def run_some(world: World, names: Sequence[str], seeds: Iterable[int]) -> None:
    """Play schedules by chance, with lost answers; a failure names its seed."""
    for seed in seeds:
        history = play_one(world, names, some_schedule(seed, losses=0.1))
        try:
            check_one(world, names, history)
        except BaseException as error:
            error.add_note(f"seed {seed}")
            raise


@pytest.mark.spec("GUA-3", "GUA-9")
@pytest.mark.parametrize("names", [("append", "append"), ("delete by a", "update")])
def test_two_writers_in_all_orders(world: World, names: Sequence[str]) -> None:
    assert run(world, names) > 5


@pytest.mark.exhaustive
@pytest.mark.spec("CON-25", "VAC-5")
def test_a_restore_beside_a_vacuum_in_all_orders(world: World) -> None:
    """Either the vacuum keeps what it brings back, or it is refused."""
    assert run(world, ("restore 3", "vacuum")) > 20


WRITERS = (
    "append", "append w", "delete by a", "update", "upsert", "replace", "overwrite", "compact",
    "add m from n", "replace n", "drop c", "restore 4", "upgrade",
)  # fmt: skip
PAIRS = [(one, other) for at, one in enumerate(WRITERS) for other in WRITERS[at:]]
BESIDE_UPKEEP = [(name, upkeep) for name in WRITERS for upkeep in UPKEEP if upkeep != "read"]


@pytest.mark.exhaustive
@pytest.mark.spec("GUA-3", "GUA-9", "CON-11")
@pytest.mark.parametrize("names", [*PAIRS, *BESIDE_UPKEEP], ids=" | ".join)
def test_any_two_in_all_orders(world: World, names: Sequence[str]) -> None:
    assert run(world, names) > 4


@pytest.mark.exhaustive
@pytest.mark.spec("GUA-3")
@pytest.mark.parametrize("names", [("read", name) for name in ("append", *UPKEEP)], ids=" | ".join)
def test_a_reader_beside_any_in_all_orders(world: World, names: Sequence[str]) -> None:
    assert run(world, names) >= 1


@pytest.mark.exhaustive
@pytest.mark.spec("GUA-4")
@pytest.mark.parametrize(
    "names", [("append", "append"), ("delete by a", "append"), ("update", "delete by a")]
)
def test_two_of_which_one_loses_an_answer_in_all_orders(world: World, names: Sequence[str]) -> None:
    assert run(world, names, losses=1) > 50


@pytest.mark.exhaustive
@pytest.mark.spec("GUA-3", "GUA-9")
@pytest.mark.parametrize(
    "names",
    [("append", "append", "append"), ("append", "delete by a", "checkpoint"),
     ("append", "restore 4", "vacuum"), ("delete by a", "clean the log", "read")],
    ids=" | ".join,
)  # fmt: skip
def test_three_in_all_orders(world: World, names: Sequence[str]) -> None:
    """But the first 2,500 beside a vacuum; and with lost answers so many of them by chance."""
    assert run(world, names, most=2500) > 300
    run_some(world, names, range(150))


def test_a_pruned_search_comes_to_all_ends(world: World) -> None:
    """The same results and the same tables as all orders of two short actors."""

    def first(store: Store) -> None:
        store.put_if_absent("a", b"1")
        store.put_if_absent("b", b"1")
        store.replace("c", b"1")

    def second(store: Store) -> str:
        store.write_new("d", b"")
        held = store.put_if_absent("a", b"2")
        store.replace("c", b"2")
        return held

    def ends(prune: bool) -> tuple[int, set[tuple[str, bytes, bytes]]]:
        found = set()
        count = 0

        def play_two(choose: Choose) -> History:
            clear(world.store)
            return play(world.store, [first, second], choose)

        for history in all_schedules(play_two, prune=prune):
            count += 1
            held = world.store.read("a"), world.store.read("c")
            found.add((history.results[1], *held))
        return count, found

    (all_of_them, ends_of_all), (fewer, ends_of_fewer) = ends(False), ends(True)
    assert all_of_them == 20  # 6 over 3.
    assert fewer < 8
    assert ends_of_fewer == ends_of_all
    assert len(ends_of_all) == 4


def read_while_writing(store: Store, path: str) -> bytes:
    with store.open_output(path) as file:
        file.write(b"more")
        return store.read("f/a")


OPERATIONS_OF_STORES: dict[str, Callable[[Store, str], object]] = {
    "put a": lambda store, me: store.put_if_absent("f/a", me.encode()),
    "put b": lambda store, me: store.put_if_absent("f/b", me.encode()),
    "replace a": lambda store, me: store.replace("f/a", me.encode()),
    "write own": lambda store, me: store.write_new(f"own/{me}", b""),
    "write, and read meanwhile": lambda store, me: read_while_writing(store, f"f/{me}"),
    "read a": lambda store, _: store.read("f/a"),
    "list": lambda store, _: [info.name for info in store.list_after("f", "")],
    "delete": lambda store, _: store.delete(["f/a", "f/b"]),
}


@settings(max_examples=examples(30), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(
        st.lists(st.sampled_from(sorted(OPERATIONS_OF_STORES)), min_size=1, max_size=2),
        min_size=2, max_size=3,
    )
)  # fmt: skip
def test_a_pruned_search_of_any_actors_comes_to_all_ends(
    world: World, programs: list[list[str]]
) -> None:
    """And it plays no order in vain."""

    def actor(me: int) -> Actor:
        def act(store: Store) -> list[object]:
            seen: list[object] = []
            for name in programs[me]:
                try:
                    seen.append(OPERATIONS_OF_STORES[name](store, str(me) + name))
                except TxlogError as error:
                    seen.append(type(error).__name__)
            return seen

        return act

    def ends(prune: bool) -> tuple[int, set[str]]:
        played = 0

        def play_all(choose: Choose) -> History:
            nonlocal played
            played += 1
            clear(world.store)
            return play(world.store, [actor(me) for me in range(len(programs))], choose)

        found = set()
        for history in all_schedules(play_all, prune=prune):
            files = files_below(world.store)
            found.add(repr((sorted(history.results.items()), sorted(files.items()))))
        return played, found

    (orders, all_ends), (fewer, pruned_ends) = ends(False), ends(True)
    assert pruned_ends == all_ends
    assert len(all_ends) <= fewer <= orders


def test_a_schedule_is_played_again(world: World) -> None:
    names = ("append", "delete by a")
    for seed in range(2):
        chosen = some_schedule(seed, losses=0.2)
        history = play_one(world, names, chosen)
        check(world, names, history)
        files = files_below(world.store)
        again = play_one(world, names, replay(str(history)))
        assert str(again) == str(history)
        assert again.results == history.results
        assert files_below(world.store).keys() == files.keys()
