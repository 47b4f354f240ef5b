"""Power cuts at each step of a local disk: no acknowledged commit is lost, no table broken."""

from __future__ import annotations

import random
import shutil
import warnings
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import txlog
from tests.reliability.cases import CASES, SCHEMA, Case, context_of, opened, rows, state_of
from tests.reliability.power import Cut, PowerDisk
from tests.store.broken_disk import Crash
from txlog.data_files.definition import Definition
from txlog.data_files.options import as_schema
from txlog.store.local.disk import Disk
from txlog.store.local.local import LocalStore
from txlog.verbs.create import create

SYNCS = ("sync", "sync_data", "sync_folder")


class RelaxedPowerDisk(PowerDisk):
    """Nothing is ever synced."""

    def sync(self, descriptor: int) -> None:
        pass

    sync_data = sync

    def sync_folder(self, path: str) -> None:
        pass


def handle_of(case: Case, store: LocalStore) -> txlog.Table | None:
    return None if case.new else opened(store, case.hours)


def check(case: Case, base: Path, earlier: list[Any], after: Any, step: int, cut: Cut) -> bool:
    """Cut the power at a step of a case; return whether there was such a step.

    `earlier` are the states that a table may have if the verb was not done.
    """
    root = base.with_name("cut")
    copy(base, root)
    disk = PowerDisk(root.parent, step)
    store = LocalStore(str(root), disk=disk)
    done = False
    try:
        run(case, store)
        done = True
    except Crash:
        pass
    disk.cut(cut)
    found = LocalStore(str(root))
    state = state_of(opened(found)) if txlog.Table.exists(str(root)) else None
    assert state == after or (not done and state in earlier), (step, done)
    if not done:
        run(case, found)
        assert state_of(opened(found)) == after, step
    return step <= disk.steps


def copy(base: Path, root: Path) -> None:
    """Copy a table, and the one beside it."""
    for end in ("", "-clone"):
        shutil.rmtree(f"{root}{end}", ignore_errors=True)
        if Path(f"{base}{end}").exists():
            shutil.copytree(f"{base}{end}", f"{root}{end}")
    root.mkdir(exist_ok=True)


def run(case: Case, store: LocalStore) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", txlog.TxlogWarning)
        case.run(context_of(store, case.hours), handle_of(case, store))


def check_all(case: Case, folder: Path, cuts: list[Cut]) -> int:
    base = folder / "base"
    base.mkdir()
    case.make(context_of(LocalStore(str(base))))
    earlier = [None if case.new else state_of(opened(LocalStore(str(base))))]
    cut_store = LocalStore(str(folder / "cut"))
    if case.between is not None:
        copy(base, folder / "cut")
        case.between(context_of(cut_store, case.hours), opened(cut_store, case.hours))
        earlier.append(state_of(opened(cut_store)))
    copy(base, folder / "cut")
    run(case, cut_store)
    after = state_of(opened(cut_store))
    step = 0
    while True:
        step += 1
        were_there = [check(case, base, earlier, after, step, cut) for cut in cuts]
        if not all(were_there):
            return step


# What names the folder of the table in its log does not survive being copied.
ELSEWHERE = {"forget a clone", "register a clone", "clone, shallow and registered"}


@pytest.mark.spec("GUA-2", "GUA-5")
def test_no_append_is_lost_wherever_the_power_is_cut(tmp_path: Path, real_syncs: None) -> None:
    assert check_all(CASES["append"], tmp_path, [None, random.Random(1)]) > 10


@pytest.mark.exhaustive
@pytest.mark.spec("GUA-2", "GUA-5")
@pytest.mark.parametrize("name", sorted(CASES.keys() - ELSEWHERE))
def test_nothing_is_lost_wherever_the_power_is_cut(
    name: str, tmp_path: Path, real_syncs: None
) -> None:
    cuts: list[Cut] = [None, random.Random(name), random.Random(f"{name} again")]
    assert check_all(CASES[name], tmp_path, cuts) > 1


@pytest.fixture
def real_syncs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have `PowerDisk` see syncs, of which most tests have none."""
    for name in SYNCS:
        monkeypatch.setattr(Disk, name, lambda *_: None)


# A life of a table ----------------------------------------------------------------------------


def life(root: Path, disk: Disk, seed: int, said: list[tuple[int, int]]) -> None:
    """Write to a table until the power is cut; note the acknowledged versions and their rows."""
    chance = random.Random(seed)
    store = LocalStore(str(root), disk=disk)
    create(
        context_of(store),
        as_schema(SCHEMA),
        Definition(properties={"delta.checkpointInterval": "3"}),
    )
    table = opened(store)
    said.append((0, 0))
    acts: list[Callable[[int], object]] = [
        lambda n: table.append(rows(10 * n, 10 * n + 10)),
        lambda n: table.append(rows(10 * n, 10 * n + 10)),
        lambda n: table.delete(f"id % 7 = {n % 7}"),
        lambda n: table.update({"n": "n + 1"}, f"id % 5 = {n % 5}"),
        lambda n: table.upsert(rows(10 * n - 5, 10 * n + 5), on="id"),
        lambda _: table.optimize.compact(),
        lambda _: table.overwrite(rows(0, 3), "id < 3"),
    ]
    for n in range(1, 12):
        chance.choice(acts)(n)
        said.append((table.version, table.count()))


def lost(root: Path, said: list[tuple[int, int]]) -> tuple[int, bool]:
    """Return how many acknowledged versions are lost, and whether the table cannot be read."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", txlog.TxlogWarning)
            table = txlog.Table(root)
            table.to_arrow()
    except txlog.TxlogError:
        return len({version for version, _ in said}), True
    counts = dict(said)
    missing = [version for version in counts if version > table.version]
    if table.version in counts:
        assert table.count() == counts[table.version]
    return len(missing), False


def live_and_cut(folder: Path, seed: int, kind: type[PowerDisk]) -> tuple[int, int, bool]:
    """Return how many versions were acknowledged, how many are lost, and whether all are."""
    root = folder / f"t{seed}"
    disk, said = kind(folder, random.Random(seed).randrange(5, 400)), list[tuple[int, int]]()
    with suppress(Crash):
        life(root, disk, seed, said)
    disk.cut(random.Random(seed) if seed % 2 else None)
    gone, unreadable = lost(root, said) if said else (0, False)
    shutil.rmtree(root, ignore_errors=True)
    return len({version for version, _ in said}), gone, unreadable


@pytest.mark.spec("GUA-2")
def test_a_life_survives_power_cuts(tmp_path: Path, real_syncs: None) -> None:
    for seed in range(2):
        assert live_and_cut(tmp_path, seed, PowerDisk)[1:] == (0, False)


@pytest.mark.exhaustive
@pytest.mark.spec("GUA-2", "GUA-8")
def test_many_lives_survive_power_cuts_but_for_relaxed_ones(
    tmp_path: Path, real_syncs: None
) -> None:
    acknowledged = 0
    for seed in range(200):
        said, gone, unreadable = live_and_cut(tmp_path, seed, PowerDisk)
        acknowledged += said
        assert (gone, unreadable) == (0, False), seed
    assert acknowledged > 1000
    relaxed = [live_and_cut(tmp_path, seed, RelaxedPowerDisk) for seed in range(60)]
    said, gone, unreadable = (sum(values) for values in zip(*relaxed, strict=True))
    print(f"full: {acknowledged} acknowledged, 0 lost")
    print(f"relaxed: {said} acknowledged, {gone} lost, {unreadable} of 60 tables unreadable")
    assert gone > 0


@pytest.mark.spec("GUA-8")
def test_relaxed_durability_has_a_name_and_waits_for_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    waited: list[str] = []
    for name in SYNCS:
        monkeypatch.setattr(Disk, name, lambda *_, name=name: waited.append(name))
    relaxed = {"txlog.durability": "relaxed"}
    table = txlog.write(tmp_path / "t", rows(0, 3), storage_options=relaxed)
    table.delete("id = 1")
    assert waited == []
    assert txlog.Table(tmp_path / "t").count() == 2
    txlog.Table(tmp_path / "t", storage_options={"txlog.durability": "full"}).delete("id = 2")
    assert "sync_folder" in waited
    with pytest.raises(txlog.InvalidInputError, match="neither 'full' nor 'relaxed'"):
        txlog.Table(tmp_path / "t", storage_options={"txlog.durability": "fast"})
