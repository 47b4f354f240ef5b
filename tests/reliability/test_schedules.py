"""All orders of the steps of two or three verbs, compared with one verb after the other.

The verbs and the model are those of `test_verbs_concurrent`. Of a schedule the log tells the
order of the commits; the model does them in it, and must come to the same rows in each version.
Each failure needs a reason, and `Orders` shows that no order is lacking.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from itertools import count, islice, permutations
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from fsspec.implementations.memory import MemoryFileSystem
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import txlog
from tests import ticking
from tests.examples import examples
from tests.reliability.cases import HOUR_MS, Files, Later, clear, files_below, fill
from tests.reliability.orders import Orders
from tests.verb_calls import restore
from tests.verbs import test_verbs_concurrent
from tests.verbs.test_verbs_concurrent import (
    FORBIDDEN,
    Operation,
    State,
    make,
    state_of,
)
from txlog.base.effects import Effects
from txlog.base.errors import (
    CommitConflictError,
    DataFileError,
    NotFoundError,
    OutcomeUnknownError,
    TxlogError,
)
from txlog.base.threads import Threads
from txlog.commit.context import Context
from txlog.log.names import LOG_FOLDER, commit_name, log_path, parse_name
from txlog.snapshot.load import load_snapshot
from txlog.store.base import Store
from txlog.store.memory import MemoryStore
from txlog.testing.schedules import (
    Actor,
    Choose,
    History,
    UnrepeatableError,
    all_schedules,
    play,
    replay,
    some_schedule,
)


@dataclass(frozen=True)
class Ticking(ticking.Ticking, Later):
    """The same, with a clock that is ahead: the same schedule gives the same files."""


def context(store: Store, actor: int) -> Context:
    return Context(store, Ticking(actor=actor), Threads(1))


def opened(place: Context, seen: Store | None = None) -> txlog.Table:
    """Open the table; without steps of the place's store if another store is given."""
    return txlog.Table._of(place, load_snapshot(seen or place.store))


@dataclass(frozen=True)
class World:
    """A table that all schedules begin with, its versions by the model, and where it is."""

    store: MemoryStore
    files: Files
    held: list[State]
    old: set[str]  # The files that only versions before the first one need.


HOURS_OLD = 5
FIRST = 6  # The version that all begin with.
OTHER = 99  # No actor: who made the table, or looks at it.


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> Start:
    with pytest.MonkeyPatch.context() as patch:
        return made_long_ago(tmp_path_factory.mktemp("start") / "t", patch)


def made_long_ago(root: Path, patch: pytest.MonkeyPatch) -> Start:
    """Make the table at a time from which a vacuum keeps nothing but the latest version.

    Its files have the same names in each process, so that a schedule can be played in another one.
    """
    now_ms, ids = Effects.now_ms, ticking.Ticking(actor=OTHER)
    patch.setattr(Effects, "now_ms", lambda self: now_ms(self) - HOURS_OLD * HOUR_MS)
    patch.setattr(Effects, "uuid", lambda _: ids.uuid())
    held = make(root, "delta")
    table = txlog.Table(root)
    table.optimize.compact(max_column_files=0, options=txlog.WriteOptions(max_rows_per_file=4))
    held.append(held[-1])  # And files that nobody needs any more.
    assert len(held) == FIRST + 1
    old = {path.name for path in root.glob("*.parquet")} - set(table.files()["path"].to_pylist())
    paths = [path for path in root.rglob("*") if path.is_file()]
    files = {f"/{path.relative_to(root).as_posix()}": path.read_bytes() for path in paths}
    return files, held, old


Start = tuple[Files, list[State], set[str]]


@pytest.fixture
def world(start: Start, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    monkeypatch.setattr("os.cpu_count", lambda: 1)
    store = MemoryStore(f"memory://{uuid.uuid4()}")
    yield World(store, *start)
    clear(store)


# Actors ---------------------------------------------------------------------------------------

GIVEN_ONCE = {  # Version 1 has other columns.
    **test_verbs_concurrent.GIVEN_ONCE,
    **{
        name: {*test_verbs_concurrent.GIVEN_ONCE[name], "restore 1"}
        for name in test_verbs_concurrent.WRITE_ROWS
    },
}
OPERATIONS = {
    **test_verbs_concurrent.OPERATIONS,
    "restore 1": Operation(  # Which needs one file.
        lambda place, seen, note: restore(place, seen, 1, user_metadata=note),
        lambda _, held: held[1],
    ),
}


def verb(name: str, actor: int, seen: Store | None) -> Actor:
    """Return an actor that does an operation to the version that all begin with."""

    def act(store: Store) -> Any:
        place = context(store, actor)
        base = load_snapshot(seen or store, version=FIRST)
        return OPERATIONS[name].do(place, base, name).outcome.version

    return act


def checkpoints(table: txlog.Table) -> int:
    return table.maintenance.checkpoint()


def cleans_log(table: txlog.Table) -> list[str]:
    """Write a checkpoint, and delete what it stands for."""
    table.maintenance.checkpoint()
    place = table._context
    assert isinstance(place.effects, Ticking)
    later = replace(place, effects=replace(place.effects, hours=1))
    return deleted(opened(later).maintenance.expire(0, False))


def vacuums(table: txlog.Table) -> list[str]:
    """Delete what no version of the last hour needs; all that is there at first is older."""
    return deleted(table.vacuum(1, False, False))


def vacuums_by_log(table: txlog.Table) -> list[str]:
    """List no folder."""
    return deleted(table.vacuum(1, False, False, lite=True))


def deleted(files: pa.Table) -> list[str]:
    return [row["file"] for row in files.to_pylist() if row["decision"] == "delete"]


def reads(table: txlog.Table) -> tuple[int, State]:
    return table.version, state_of(table.to_arrow())


UPKEEP: dict[str, Callable[[txlog.Table], Any]] = {
    "checkpoint": checkpoints, "clean the log": cleans_log, "vacuum": vacuums,
    "vacuum by the log": vacuums_by_log, "read": reads,
}  # fmt: skip


def upkeep(name: str, actor: int, seen: Store | None) -> Actor:
    return lambda store: UPKEEP[name](opened(context(store, actor), seen))


def actors_of(names: Sequence[str], seen: Store | None) -> list[Actor]:
    return [
        (upkeep if name in UPKEEP else verb)(name, number, seen)
        for number, name in enumerate(names)
    ]


def begin(world: World) -> None:
    """Put the table where it was, all of it some hours old."""
    clear(world.store)
    fill(world.store, world.files)
    old = datetime.now().astimezone() - timedelta(hours=HOURS_OLD)
    for file in MemoryFileSystem.store.values():
        file.modified = old


def play_one(
    world: World, names: Sequence[str], choose: Choose, *, opened_before: bool = False
) -> History:
    """Play a schedule. To open the table takes no steps if all have opened it before."""
    begin(world)
    return play(world.store, actors_of(names, world.store if opened_before else None), choose)


# The check ------------------------------------------------------------------------------------


def check(world: World, names: Sequence[str], history: History) -> Fared:
    """Hold what happened against the model; return how each fared."""
    results = [history.results[number] for number in range(len(names))]
    writers = [number for number, name in enumerate(names) if name not in UPKEEP]
    landed = {results[n]: n for n in writers if isinstance(results[n], int)}
    assert len(landed) == sum(isinstance(results[n], int) for n in writers), "one version for two"
    table = opened(context(world.store, OTHER))
    held = list(world.held)
    for version in range(FIRST, table.version + 1):
        if version in landed:
            name = names[landed[version]]
            _require_allowed(name, [names[n] for v, n in landed.items() if v < version])
            held.append(OPERATIONS[name].model(held[-1], held))
        elif version > FIRST:
            assert _vacuums(names), "a commit that nobody was told of"
            assert _operation(world, version) in ("VACUUM START", "VACUUM END")
            held.append(held[-1])
        _require_held(world, names, version, held[version], is_last=version == table.version)
    assert max(landed, default=0) <= table.version, "an acknowledged commit is not there"
    for number, (name, result) in enumerate(zip(names, results, strict=True)):
        if isinstance(result, BaseException):
            winners = [names[n] for n in landed.values()]
            assert _may_fail(name, names, winners, result), (name, result)
        elif number in writers and result is None:
            assert _changes_nothing(name, held), name
        elif name == "read":
            version, state = result
            assert state.values() == held[version].values()
        elif name.startswith("vacuum"):
            assert set(result).isdisjoint(files_of(world))
            assert set(result) == world.old or _restores(names)
        elif name == "clean the log":
            assert log_path(commit_name(0)) in result
    if not _restores(names) or len(writers) > 1:
        assert landed or not writers, "no writer came through"
    _require_no_orphans(world, writers, landed)
    return tuple(map(_fared, results))


Fared = tuple[int | str | None, ...]
"""The version of each, or its error."""


def _fared(result: object) -> int | str | None:
    if isinstance(result, BaseException):
        return type(result).__name__
    if isinstance(result, tuple):  # Of a reader.
        result = result[0]
    return result if isinstance(result, int) else None


def _require_held(
    world: World, names: Sequence[str], version: int, state: State, *, is_last: bool
) -> None:
    """Hold the rows of a version against the model, unless the log of it was cleaned up.

    A vacuum keeps all versions from the first one, as it was the latest until now.
    """
    try:
        found = load_snapshot(world.store, version=version)
    except NotFoundError:
        assert not is_last
        assert "clean the log" in names
        assert version < min(_checkpoints(world)), "more than a checkpoint stands for is gone"
        return
    rows = txlog.Table._of(context(world.store, OTHER), found).to_arrow()
    assert state_of(rows).values() == state.values(), version


def _checkpoints(world: World) -> list[int]:
    """Return the versions of which the log has a checkpoint."""
    found = (parse_name(info.name) for info in world.store.list_after(LOG_FOLDER, ""))
    return [file.version for file in found if file is not None and file.kind == "checkpoint"]


def _require_allowed(name: str, winners: Sequence[str]) -> None:
    """Raise if the table of CON-11, or what was given once, forbids to commit after others."""
    forbids = set(winners) & FORBIDDEN.get(name, set())
    if len(winners) == 1:  # Else others may have undone what is in the way.
        forbids |= set(winners) & GIVEN_ONCE.get(name, set())
    assert not forbids, (name, forbids)


def _may_fail(name: str, names: Sequence[str], winners: list[str], error: BaseException) -> bool:
    """A writer may lose to another whose commit forbids its own (CON-11).

    What a restore wants back may have been cleaned up, or be about to (CON-25).
    """
    if isinstance(error, CommitConflictError) and error.rule != "CON-25":
        forbids = FORBIDDEN.get(name, set()) | GIVEN_ONCE.get(name, set())
        return error.rule != "CON-0" and not forbids.isdisjoint(winners)
    if not name.startswith("restore"):
        return False
    if _vacuums(names):
        return isinstance(error, (CommitConflictError, DataFileError))
    return "clean the log" in names and isinstance(error, NotFoundError)


def _restores(names: Sequence[str]) -> bool:
    return any(name.startswith("restore") for name in names)


def _vacuums(names: Sequence[str]) -> bool:
    return any(name.startswith("vacuum") for name in names)


def _changes_nothing(name: str, held: list[State]) -> bool:
    """Return whether, done after some version, it leaves that as it is."""
    return any(
        OPERATIONS[name].model(held[at], held[: at + 1]).values() == held[at].values()
        for at in range(FIRST, len(held))
    )


def _operation(world: World, version: int) -> str:
    lines = world.store.read(log_path(commit_name(version))).splitlines()
    infos = [action["commitInfo"] for action in map(json.loads, lines) if "commitInfo" in action]
    return str(infos[0]["operation"])


def files_of(world: World) -> list[str]:
    return [info.name for info in world.store.list_tree("") if "_delta_log" not in info.name]


def _require_no_orphans(world: World, writers: list[int], landed: dict[int, int]) -> None:
    """Raise if a writer leaves a file that its commit does not name."""
    version_of = {number: version for version, number in landed.items()}
    for number in writers:
        theirs = [path for path in files_of(world) if f"-{ticking.mark(number)}-" in path]
        if number not in version_of:
            assert theirs == [], "it changed nothing, but left files"
        elif theirs:
            with suppress(NotFoundError):  # It was cleaned up.
                commit = world.store.read(log_path(commit_name(version_of[number]))).decode()
                assert all(path.rpartition("/")[2] in commit for path in theirs)


def run(
    world: World,
    names: Sequence[str],
    *,
    losses: int = 0,
    most: int | None = None,
    opened_before: bool = False,
) -> set[Fared]:
    """Play these in all orders, or in the first so many; return how they can fare."""
    orders, fared = Orders(losses=losses), set()
    played = 0
    play_this = partial(play_one, world, names, opened_before=opened_before)
    for history in islice(all_schedules(play_this, losses=losses), most):
        played += 1
        fared.add(check_one(world, names, history))
        orders.add(history)
    print(f"{' | '.join(names)}: {played} orders")
    assert len(orders) == played, "an order was played twice"
    if most is None or played < most:
        assert next(orders.lacking(), None) is None
    return fared


def check_one(world: World, names: Sequence[str], history: History) -> Fared:
    try:
        return check(world, names, history)
    except BaseException as error:
        error.add_note(f"{', '.join(names)}; replay: {history}; {history.results}")
        raise


def run_some(world: World, names: Sequence[str], seeds: Iterable[int]) -> set[Fared]:
    """Play schedules by chance, with lost answers; return how these can fare.

    A failure names its seed.
    """
    fared, lost = set(), set()
    for seed in seeds:
        history = play_one(world, names, some_schedule(seed, losses=0.1))
        try:
            fared.add(check_one(world, names, history))
        except BaseException as error:
            error.add_note(f"seed {seed}")
            raise
        lost |= {choice.fault for choice in history.choices if choice.fault is not None}
    assert lost == {"lost_answer", "lost_request"}
    return fared


# Two ------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.spec("GUA-3", "GUA-9")
@pytest.mark.parametrize("names", [("append", "append"), ("delete by a", "update")])
def test_two_writers_in_all_orders(world: World, names: Sequence[str]) -> None:
    """Both come through."""
    assert run(world, names) == {(7, 8), (8, 7)}


@pytest.mark.exhaustive
@pytest.mark.spec("CON-25", "VAC-5")
@pytest.mark.parametrize("name", ["restore 3", "restore 4"])
def test_a_restore_beside_a_vacuum_in_all_orders(world: World, name: str) -> None:
    """Either the vacuum keeps what it brings back, or it is refused."""
    fared = run(world, (name, "vacuum"))
    assert {how for how, _ in fared} == {7, "CommitConflictError", "DataFileError"}


WRITERS = (
    "append", "append w", "delete by a", "update", "upsert", "replace", "overwrite", "compact",
    "add m from n", "replace n", "drop c", "restore 4", "upgrade",
)  # fmt: skip
PAIRS = [(one, other) for at, one in enumerate(WRITERS) for other in WRITERS[at:]]


@pytest.mark.exhaustive
@pytest.mark.spec("GUA-3", "GUA-9", "CON-11")
@pytest.mark.parametrize("names", PAIRS, ids=" | ".join)
def test_any_two_in_all_orders(world: World, names: Sequence[str]) -> None:
    fared = run(world, names)
    assert {how.index(7) for how in fared} == {0, 1}, "each is the first in some order"


@pytest.mark.exhaustive
@pytest.mark.spec("GUA-3", "GUA-9")
@pytest.mark.parametrize("name", WRITERS)
def test_any_beside_a_checkpoint_in_all_orders(world: World, name: str) -> None:
    """The writer comes through, and the checkpoint is of the version before or after it."""
    assert run(world, (name, "checkpoint")) == {(7, 6), (7, 7)}


@pytest.mark.exhaustive
@pytest.mark.spec("GUA-3", "GUA-9")
@pytest.mark.parametrize("name", WRITERS)
def test_any_beside_a_clean_log_in_all_orders(world: World, name: str) -> None:
    """The writer comes through, unless it restores a version that is gone."""
    more = {("NotFoundError", None)} if name == "restore 4" else set()
    assert run(world, (name, "clean the log")) == {(7, None)} | more


@pytest.mark.exhaustive
@pytest.mark.spec("GUA-3", "GUA-9")
@pytest.mark.parametrize("name", [name for name in WRITERS if name != "restore 4"])
def test_any_beside_a_vacuum_in_all_orders(world: World, name: str) -> None:
    """The writer comes through: before the vacuum's two commits, between or after them."""
    assert run(world, (name, "vacuum")) == {(7, None), (8, None), (9, None)}


@pytest.mark.spec("GUA-3")
@pytest.mark.parametrize(
    ("other", "versions"),
    [
        ("append", {6, 7}),
        ("vacuum", {6, 7, 8}),
        pytest.param("checkpoint", {6}, marks=pytest.mark.exhaustive),
        pytest.param("clean the log", {6}, marks=pytest.mark.exhaustive),
    ],
)
def test_a_reader_beside_any_in_all_orders(world: World, other: str, versions: set[int]) -> None:
    """The reader never fails, and sees each version in some order."""
    assert {how for how, _ in run(world, ("read", other))} == versions


@pytest.mark.exhaustive
@pytest.mark.spec("GUA-4")
@pytest.mark.parametrize(
    "names", [("append", "append"), ("delete by a", "append"), ("update", "delete by a")]
)
def test_two_of_which_one_loses_an_answer_in_all_orders(world: World, names: Sequence[str]) -> None:
    """And both come through."""
    assert run(world, names, losses=1) == {(7, 8), (8, 7)}


# Three ----------------------------------------------------------------------------------------


@pytest.mark.exhaustive
@pytest.mark.spec("GUA-3", "GUA-9")
@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (
            ("append", "delete by a", "checkpoint"),
            {(*two, at) for two in ((7, 8), (8, 7)) for at in (6, 7, 8)},
        ),
        (("delete by a", "clean the log", "read"), {(7, None, 6), (7, None, 7)}),
    ],
    ids=["checkpoint", "clean the log"],
)
def test_three_in_all_orders(world: World, names: Sequence[str], expected: set[Fared]) -> None:
    """And with lost answers, some by chance."""
    assert run(world, names) == expected
    assert run_some(world, names, range(150)) <= expected


@pytest.mark.exhaustive
@pytest.mark.spec("GUA-3", "GUA-9")
def test_three_appends_in_all_orders(world: World) -> None:
    """In all orders if all have opened the table before; else, and with lost answers, in some."""
    names = ("append", "append", "append")
    assert run(world, names, opened_before=True) == set(permutations((7, 8, 9)))
    assert run_some(world, names, range(150)) <= set(permutations((7, 8, 9)))


@pytest.mark.exhaustive
@pytest.mark.spec("CON-25", "VAC-5")
@pytest.mark.parametrize(
    "names",
    [("append", "restore 4", "vacuum"), ("append", "restore 1", "vacuum by the log")],
    ids=" | ".join,
)
def test_a_restore_beside_a_vacuum_and_another_writer(world: World, names: Sequence[str]) -> None:
    """In the first 1,000 orders if all have opened the table before, and some others by chance.

    All orders are too many: a restore of one file has more than 8,000 with a vacuum, and more than
    4,600 if the vacuum lists no folder and opening takes no steps.
    """
    fared = run(world, names, most=1000, opened_before=True)
    fared |= run_some(world, names, range(150))
    refused = {how for how, _, _ in fared if not isinstance(how, int)}
    assert refused <= ({"CommitConflictError"} if "restore 1" in names else set())
    assert {how for _, how, _ in fared} >= {7, 8, "CommitConflictError", "DataFileError"}


# The search -----------------------------------------------------------------------------------


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

    def ends(prune: bool) -> tuple[list[History], set[tuple[str, bytes, bytes]]]:
        found = set()
        histories = []

        def play_two(choose: Choose) -> History:
            clear(world.store)
            return play(world.store, [first, second], choose)

        for history in all_schedules(play_two, prune=prune):
            histories.append(history)
            held = world.store.read("a"), world.store.read("c")
            found.add((history.results[1], *held))
        return histories, found

    (all_of_them, ends_of_all), (fewer, ends_of_fewer) = ends(False), ends(True)
    assert len(all_of_them) == 20  # 6 over 3.
    assert len(fewer) == len(Orders(all_of_them)) == 4  # Two orders at "a", and two at "c".
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
    """It plays each order once. `Orders` finds this out, and that one is lacking."""

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

    def ends(**how: Any) -> tuple[list[History], set[str]]:
        def play_all(choose: Choose) -> History:
            clear(world.store)
            return play(world.store, [actor(me) for me in range(len(programs))], choose)

        histories, found = [], set()
        for history in all_schedules(play_all, **how):
            histories.append(history)
            files = files_below(world.store)
            found.add(repr((sorted(history.results.items()), sorted(files.items()))))
        return histories, found

    (everything, all_ends), (pruned, pruned_ends) = ends(prune=False), ends()
    assert pruned_ends == all_ends
    assert len(pruned) == len(Orders(pruned)) == len(Orders(everything))
    assert next(Orders(pruned).lacking(), None) is None
    for stopped in range(1, len(pruned)):
        assert next(Orders(pruned[:stopped]).lacking(), None) is not None


def test_a_search_with_lost_answers_comes_to_all_orders(world: World) -> None:
    """Compared with all orders of steps of two writers who compete for two names."""

    def actor(store: Store) -> list[str]:
        return [_try(store, name) for name in "ab"]

    def play_two(choose: Choose) -> History:
        clear(world.store)
        return play(world.store, [actor, actor], choose)

    everything = list(all_schedules(play_two, losses=1, prune=False))
    pruned = list(all_schedules(play_two, losses=1))
    assert len(everything) == 6 * (1 + 4 * 2)  # In each order, one of four loses one of two.
    assert len(pruned) == len(Orders(everything))
    assert next(Orders(pruned, losses=1).lacking(), None) is None
    for left_out in range(len(pruned)):
        others = pruned[:left_out] + pruned[left_out + 1 :]
        assert next(Orders(others, losses=1).lacking(), None) is not None


def _try(store: Store, name: str) -> str:
    with suppress(OutcomeUnknownError):
        return store.put_if_absent(name, b"")
    return "unknown"


@pytest.mark.parametrize("losses", [0, 1])
@pytest.mark.parametrize("ends", [False, True])
def test_actors_that_do_not_repeat_are_an_error(world: World, losses: int, ends: bool) -> None:
    """Else the search would omit orders."""
    played = count()

    def play_all(choose: Choose) -> History:
        number = next(played)

        def differs(store: Store) -> None:
            store.put_if_absent("a", b"")
            if number == 0 or not ends:
                store.put_if_absent(f"b{number}", b"")

        def lists(store: Store) -> None:
            if not losses:
                list(store.list_after("", ""))

        clear(world.store)
        return play(world.store, [differs, lists], choose)

    with pytest.raises(UnrepeatableError, match="Give the actors ids that repeat") as raised:
        list(all_schedules(play_all, losses=losses))
    assert "put_if_absent b0" in str(raised.value)


def test_a_schedule_is_played_again(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """It leaves the same files, byte by byte, if the clock stands."""
    now_ms = Effects().now_ms()
    monkeypatch.setattr(Effects, "now_ms", lambda _: now_ms)
    names = ("append", "delete by a")
    for seed in range(2):
        chosen = some_schedule(seed, losses=0.2)
        history = play_one(world, names, chosen)
        check(world, names, history)
        files = files_below(world.store)
        again = play_one(world, names, replay(str(history)))
        assert str(again) == str(history)
        assert again.results == history.results
        assert files_below(world.store) == files
