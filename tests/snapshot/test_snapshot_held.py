"""Held handles beside newly opened ones, whatever others do to the table and its log."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

import txlog
from tests.examples import examples
from tests.verb_calls import Built
from txlog.base.errors import (
    CommitConflictError,
    LogCorruptError,
    NotFoundError,
    OutcomeUnknownError,
    StoreError,
    TxlogError,
)
from txlog.base.threads import Threads
from txlog.commit import loop
from txlog.commit.context import Context
from txlog.commit.intent import Intent
from txlog.commit.operation import execute
from txlog.extend import context_of
from txlog.log.names import commit_name
from txlog.snapshot import load
from txlog.snapshot.load import load_snapshot, look_ahead, refresh
from txlog.snapshot.snapshot import Snapshot
from txlog.store.base import Put, Store
from txlog.store.coordinated import CoordinatedStore
from txlog.store.coordinators import CommitEntry
from txlog.store.local.local import LocalStore
from txlog.testing import Crash, FaultyStore, LatencyStore, open_table

SCHEMA = pa.schema([("n", pa.int64())])


def ns(*values: int) -> pa.Table:
    return pa.table({"n": pa.array(values, pa.int64())})


class Entries:
    """A coordinator in memory, whose client may die after an insert."""

    def __init__(self) -> None:
        self.found: dict[str, CommitEntry] = {}
        self.dies = False

    def get(self, table: str, file_name: str) -> CommitEntry | None:
        return self.found.get(file_name)

    def put_if_absent(self, table: str, entry: CommitEntry) -> bool:
        if entry.file_name in self.found:
            return False
        self.found[entry.file_name] = entry
        if self.dies:
            self.dies = False
            raise Crash
        return True

    def complete(self, table: str, file_name: str) -> None:
        self.found[file_name] = self.found[file_name]._replace(complete=True)


class Process(FaultyStore):
    """The store of one process, in which copies of commits may fail.

    Others may act before its next commit, or after it, before the process looks back.
    """

    failures = 0
    before: Callable[[], object] | None = None
    after: Callable[[], object] | None = None

    def write_new(self, path: str, data: bytes) -> None:
        if path.startswith("_delta_log/.tmp/"):  # A coordinator is asked next.
            self._others("before")
        super().write_new(path, data)

    def put_if_absent(self, path: str, data: bytes) -> Put:
        if path.endswith(".json"):
            self._others("before")
        answer = super().put_if_absent(path, data)
        if path.endswith(".json"):
            self._others("after")
        return answer

    def replace(self, path: str, data: bytes) -> None:
        if self.failures and path.endswith(".json"):
            self.failures -= 1
            raise StoreError(operation="replace", path=path, reason="planned")
        super().replace(path, data)
        if path.endswith(".json"):
            self._others("after")

    def _others(self, when: str) -> None:
        act = getattr(self, when)
        setattr(self, when, None)
        if act is not None:
            act()


class Place:
    """A table's folder, and the stores through which handles open it."""

    def __init__(self, root: Path, kind: str) -> None:
        self.root, self.kind = root, kind
        self.entries = Entries()
        self.log = root / "_delta_log"

    def store(self) -> Store:
        """Return a store of its own for one process."""
        inner = Process(LocalStore(str(self.root)))
        match self.kind:
            case "far":
                return LatencyStore(inner, delay_s=0)
            case "coordinated":
                return CoordinatedStore(inner, self.entries)
        return inner

    def commit(self, version: int) -> Path:
        return self.log / commit_name(version)


def process_of(store: Any) -> Process:
    while not isinstance(store, Process):
        store = store.inner
    return store


KINDS = ("near", "far", "coordinated")


@pytest.fixture(params=KINDS)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    return Place(tmp_path / "t", request.param)


def grown(place: Place, versions: int) -> txlog.Table:
    """Return a table with this many appends."""
    txlog.Table.create(place.root, SCHEMA)
    table = open_table(place.store())
    for n in range(1, versions + 1):
        table.append(ns(n))
    return table


# A gap in the log ----------------------------------------------------------------------------


@pytest.mark.spec("REC-10")
@pytest.mark.parametrize("lost", [(4,), (4, 5), (5,), (4, 5, 6, 7)])
def test_a_gap_is_an_error_for_a_held_handle_too(place: Place, lost: Sequence[int]) -> None:
    table = grown(place, 3)
    held = open_table(place.store())
    for n in range(4, 9):
        table.append(ns(n))
    for version in lost:
        place.commit(version).unlink()
    for act in (held.refresh, lambda: held.append(ns(99)), lambda: open_table(place.store())):
        with pytest.raises(LogCorruptError, match="gap") as caught:
            act()
        assert commit_name(lost[0]) in str(caught.value)
    assert held.version == 3
    assert not any(place.commit(version).exists() for version in lost)


@pytest.mark.spec("REC-10")
def test_a_gap_in_a_long_log_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A long log is not listed each time, but a gap of a few commits shows at once."""
    monkeypatch.setattr(load, "_SHORT", 0)
    monkeypatch.setattr(load, "_NAMES_A_CALL", 1)
    store = LocalStore(str(tmp_path))
    log = tmp_path / "_delta_log"
    log.mkdir()
    for version in range(60):
        (log / commit_name(version)).write_bytes(b"{}\n")
    assert look_ahead(store, 10).is_whole  # It is listed.
    counted = FaultyStore(store)
    for lost in range(1, 16):
        (log / commit_name(10 + lost)).unlink()
        assert not look_ahead(counted, 10).is_whole
        assert look_ahead(counted, 10 + lost).is_whole
    assert not any(operation.startswith("list") for operation, _ in counted.calls)
    for version in range(26, 60):
        (log / commit_name(version)).unlink()
    (log / commit_name(44)).write_bytes(b"{}\n")
    seen = [look_ahead(counted, 10).is_whole for _ in range(60)]
    assert seen[0] is True
    assert False in seen  # The next listing shows it.


def test_a_hint_that_leads_nowhere_is_no_gap(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However often the log is looked at: a slow operation that looks again must end."""
    monkeypatch.setattr(load, "_SHORT", 0)
    monkeypatch.setattr(load, "_NAMES_A_CALL", 1)
    store = LocalStore(str(tmp_path))
    log = tmp_path / "_delta_log"
    log.mkdir()
    for version in range(11):
        (log / commit_name(version)).write_bytes(b"{}\n")
    (log / "_last_checkpoint").write_bytes(b'{"version":99,"size":1}')
    assert all(look_ahead(store, 10).is_whole for _ in range(20))


@pytest.mark.spec("REC-10", "CON-19")
def test_a_gap_between_winners_stops_a_commit(place: Place) -> None:
    """The gap came while the writer was at work, so only the lost race shows it."""
    table = grown(place, 3)
    base = load_snapshot(place.store())
    for n in (4, 5, 6):
        table.append(ns(n))
    place.commit(5).unlink()
    held = Context(place.store(), engine=Threads(1))
    with pytest.raises(LogCorruptError, match="gap"):
        execute(note(), held, base)
    assert not place.commit(5).exists()


@pytest.mark.spec("REC-10", "CON-19")
def test_a_long_operation_looks_again_before_it_commits(place: Place) -> None:
    table = grown(place, 3)
    held = open_table(place.store())

    class Clock(type(held._context.effects)):  # type: ignore[misc]
        passed = 0.0

        def monotonic_s(self) -> float:
            return float(super().monotonic_s() + self.passed)

    clock = Clock()

    def build(base: Snapshot) -> Intent:
        if base.version == 3:
            for n in (4, 5, 6):
                table.append(ns(n))
            place.commit(4).unlink()
            clock.passed = 100.0
        return Intent(operation="TEST", kind="append", read_version=base.version)

    context = Context(context_of(held).store, clock, Threads(1))
    with pytest.raises(LogCorruptError, match="gap"):
        execute(Built(build), context, held.snapshot)
    assert not place.commit(4).exists()


@pytest.mark.spec("REC-10", "CON-19")
def test_a_long_transaction_looks_again_before_it_commits(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop, "LOOK_AGAIN_S", 0.0)
    table = grown(place, 3)
    held = open_table(place.store())

    def transact() -> None:
        with held.transaction() as tx:
            tx.append(ns(99))
            for n in (4, 5, 6):
                table.append(ns(n))
            place.commit(4).unlink()

    with pytest.raises(LogCorruptError, match="gap"):
        transact()
    assert not place.commit(4).exists()
    assert held.version == 3


def test_a_clean_up_between_winners_lets_the_operation_begin_again(place: Place) -> None:
    table = grown(place, 3)
    base = load_snapshot(place.store())
    for n in (4, 5, 6):
        table.append(ns(n))
    table.maintenance.checkpoint()
    for version in (0, 1, 2, 3, 5):
        place.commit(version).unlink()
    assert execute(note(), Context(place.store(), engine=Threads(1)), base).outcome.version == 7


@pytest.mark.spec("REC-10")
def test_a_damaged_commit_that_a_checkpoint_replaces_stops_no_held_handle(place: Place) -> None:
    table = grown(place, 3)
    held = open_table(place.store())
    table.append(ns(4))
    table.append(ns(5))
    table.maintenance.checkpoint()
    place.commit(4).write_bytes(b"{broken\n")
    assert (held.refresh().version, held.count()) == (5, 5)


def test_a_listing_that_lacks_a_commit_of_now_shows_no_gap(place: Place) -> None:
    """A listing is not one moment: it may show a commit, and lack the one before it."""
    table = grown(place, 3)
    held = load_snapshot(place.store())
    table.append(ns(4))
    table.append(ns(5))

    class Partly(Process):
        times = 1

        def list_after(self, folder: str, name: str) -> Iterator[Any]:
            for info in super().list_after(folder, name):
                if self.times and info.name == commit_name(4):
                    self.times -= 1
                else:
                    yield info

    def partly() -> Store:
        inner = Partly(LocalStore(str(place.root)))
        return LatencyStore(inner, delay_s=0) if place.kind == "far" else inner

    assert refresh(partly(), held).version == 5
    assert load_snapshot(partly()).version == 5


def torn(place: Place, hidden: set[int]) -> Store:
    """Return a store whose listings lack commits."""

    class Torn(Process):
        def list_after(self, folder: str, name: str) -> Iterator[Any]:
            names = {commit_name(version) for version in hidden}
            return (info for info in super().list_after(folder, name) if info.name not in names)

    inner = Torn(LocalStore(str(place.root)))
    return LatencyStore(inner, delay_s=0) if place.kind == "far" else inner


def require_same_answers(torn: txlog.Table, whole: txlog.Table, versions: Sequence[int]) -> None:
    assert (torn.version, torn.snapshot.timestamp_ms) == (5, whole.snapshot.timestamp_ms)
    assert torn.history() == whole.history()
    assert torn.versions().equals(whole.versions())
    assert torn.versions()["version"].to_pylist() == list(versions)
    assert torn.diff(versions[-4], 4).to_arrow().equals(whole.diff(versions[-4], 4).to_arrow())
    assert [torn.at(version).count() for version in versions] == [
        whole.at(version).count() for version in versions
    ]
    assert torn.doctor() == whole.doctor()


@pytest.mark.parametrize("hidden", [{4}, {3, 4}, {1}, {1, 3}, {2, 3, 4}, {1, 2, 3, 4}])
def test_listings_that_lack_commits_of_now_give_what_a_whole_one_gives(
    place: Place, hidden: set[int]
) -> None:
    """Beside fast writers every listing of a long log may lack others of the newest commits."""
    grown(place, 5)
    require_same_answers(open_table(torn(place, hidden)), open_table(place.store()), range(6))


@pytest.mark.parametrize("hidden", [{5}, {4, 5}, {3, 5}, {1, 4, 5}])
def test_listings_may_show_a_checkpoint_of_now_and_lack_its_commit(
    place: Place, hidden: set[int]
) -> None:
    grown(place, 5).maintenance.checkpoint()
    (place.root / "_delta_log/_last_checkpoint").unlink()  # It was read before.
    require_same_answers(open_table(torn(place, hidden)), open_table(place.store()), range(6))


@pytest.mark.parametrize("hidden", [{3}, {3, 4}, {4}])
def test_listings_may_lack_the_first_commits_after_a_checkpoint(
    place: Place, hidden: set[int]
) -> None:
    """The commits up to the checkpoint were cleaned up."""
    table = grown(place, 2)
    table.maintenance.checkpoint()
    for n in (3, 4, 5):
        table.append(ns(n))
    for version in (0, 1, 2):
        place.commit(version).unlink()
    require_same_answers(open_table(torn(place, hidden)), open_table(place.store()), range(2, 6))


def test_the_newest_commit_that_is_lost_is_not_taken_again(place: Place) -> None:
    held = grown(place, 3)
    place.commit(3).unlink()
    for act in (held.refresh, lambda: held.append(ns(99))):
        with pytest.raises(CommitConflictError, match="ends at version 2, but version 3 was read"):
            act()
    assert not place.commit(3).exists()


def note() -> Built:
    """Return an operation that only records information, as a vacuum does."""
    return Built(lambda base: Intent(operation="TEST", kind="append", read_version=base.version))


# All orders ----------------------------------------------------------------------------------

HANDLES = 3
CLEANS = ("clean up", "expire")
ACTS = st.sampled_from(["append", "delete", "compact", "note", "pin", "checkpoint", *CLEANS])
CALMER = st.sampled_from(["append", "append", "delete", "note", "pin", "checkpoint"])


class HeldHandles(RuleBasedStateMachine):
    """Several handles of one table, and what else happens to its log.

    A handle is refreshed, writes, or writes while another one does so from the same version.
    Others write checkpoints, clean up the log, and die between an entry and its copy. Commits are
    lost, and come back. The rows are also kept as a plain set.
    """

    @initialize(kind=st.sampled_from(KINDS), often=st.booleans())
    def create(self, kind: str, often: bool) -> None:
        self.folder = Path(mkdtemp())
        self.place = Place(self.folder / "t", kind)
        self.aside = self.folder / "lost"
        self.aside.mkdir()
        properties = {
            "delta.checkpointInterval": "4" if often else "1000",
            "delta.feature.domainMetadata": "supported",  # Otherwise the first pin adds it.
        }
        txlog.Table.create(self.place.root, SCHEMA, properties=properties)
        self.held = [open_table(self.place.store()) for _ in range(HANDLES)]
        self.rows: set[int] = set()
        self.next = 0
        self.lost: set[int] = set()  # Versions.

    def teardown(self) -> None:
        if hasattr(self, "folder"):
            self.come_back()
            self.agree()
            shutil.rmtree(self.folder)

    # What handles do.

    @rule(at=st.integers(0, HANDLES - 1))
    def open_again(self, at: int) -> None:
        with suppress(LogCorruptError):
            self.held[at] = open_table(self.place.store())

    @rule(at=st.integers(0, HANDLES - 1))
    def move(self, at: int) -> None:
        with suppress(LogCorruptError, CommitConflictError):
            self.held[at].refresh()

    @rule(at=st.integers(0, HANDLES - 1), act=ACTS)
    def act(self, at: int, act: str) -> None:
        self.do(self.held[at], act)

    @rule(
        at=st.integers(0, HANDLES - 1),
        act=CALMER,
        acts=st.lists(ACTS, min_size=1, max_size=4),
        when=st.sampled_from(["before", "after"]),
    )
    def act_while_others_do(self, at: int, act: str, acts: list[str], when: str) -> None:
        """Others act between the look at the log and the put, or between the put and the check."""
        store = process_of(context_of(self.held[at]).store)
        other = self.held[(at + 1) % HANDLES]

        def others() -> None:
            for one in acts:
                self.do(other, one)

        if when == "after":
            acts = [*acts, "checkpoint"]  # Then the process looks for a clean-up.
        setattr(store, when, others)
        # A pin lets a clean-up keep the commit before, which then shows nothing (CON-19).
        self.do(self.held[at], act, beside=not {*CLEANS, "pin"}.isdisjoint(acts))
        store.before = store.after = None

    def do(self, table: txlog.Table, act: str, *, beside: bool = False) -> None:
        """Do something, and note what must be the case afterwards."""
        mine = {self.next}
        self.next += 1
        old = set(sorted(self.rows)[: len(self.rows) // 2])
        try:
            match act:
                case "append":
                    table.append(ns(*mine))
                case "delete":
                    # Only rows that the model knows: an append that others overtake is no such row.
                    table.delete(f"n IN ({', '.join(map(str, old or {-1}))})")
                case "compact":
                    table.optimize.compact()
                case "note":
                    done = execute(note(), table._context, table._latest())
                    table._finish(done)
                case "pin":
                    table.pins.create(f"p{self.next}")
                case "checkpoint":
                    table.refresh().maintenance.checkpoint()
                case "clean up":
                    self.clean_up()
                case "expire" if not self.lost:
                    with suppress(NotFoundError):  # Another clean-up did not keep a pin.
                        table.refresh().maintenance.expire(0, dry_run=False)
        except LogCorruptError:
            assert self.lost
            return
        except NotFoundError:
            assert act == "pin"  # Its version was cleaned up meanwhile (MNT-12).
            return
        except CommitConflictError:
            assert self.lost or beside
            return
        except OutcomeUnknownError:
            assert beside or self.lost
            present = self.fresh_rows()
            if act == "append":
                self.rows |= mine & present
            if act == "delete":
                self.rows -= old - present
            return
        except Crash:  # The entry is the commit.
            pass
        if act == "append":
            self.rows |= mine
        if act == "delete":
            self.rows -= old

    def fresh_rows(self) -> set[int]:
        return set(open_table(self.place.store()).to_arrow()["n"].to_pylist())

    # What others do.

    def clean_up(self) -> None:
        """Delete the commits before the newest checkpoint, oldest first."""
        names = sorted(path.name[:20] for path in self.place.log.glob("*.checkpoint*.parquet"))
        hint = self.place.log / "_last_checkpoint"
        if names and hint.exists() and not self.lost:
            for path in sorted(self.place.log.glob("0*.json")):
                if path.name[:20] < names[-1]:
                    path.unlink()

    @rule(at=st.integers(0, HANDLES - 1), many=st.integers(1, 3))
    def lose(self, at: int, many: int) -> None:
        """Lose the commits after a handle's version, which others follow."""
        for _ in range(many + 1):
            self.do(self.held[(at + 1) % HANDLES], "append")
        first = self.held[at].version + 1
        for path in sorted(self.place.log.glob("0*.json"))[:-1]:
            if first <= int(path.stem) < first + many:
                self.lost.add(int(path.stem))
                shutil.move(path, self.aside / path.name)

    @rule()
    def come_back(self) -> None:
        """Restore all lost commits. Nobody may have used their names."""
        for path in self.aside.glob("*.json"):
            assert not (self.place.log / path.name).exists()
            shutil.move(path, self.place.log / path.name)
        self.lost.clear()

    @rule(at=st.integers(0, HANDLES - 1), times=st.integers(1, 2))
    def fail_to_copy(self, at: int, times: int) -> None:
        """Commit with copies that fail after the entry."""
        process_of(context_of(self.held[at]).store).failures = times
        with suppress(StoreError):
            self.do(self.held[at], "append")
        process_of(context_of(self.held[at]).store).failures = 0

    @rule(at=st.integers(0, HANDLES - 1))
    def die_after_the_entry(self, at: int) -> None:
        self.place.entries.dies = True
        self.do(self.held[at], "append")
        self.place.entries.dies = False

    @rule(at=st.integers(0, HANDLES - 1))
    def put_outside(self, at: int) -> None:
        """Create a file outside of the log, whose entry comes after those of all commits."""
        self.next += 1
        context_of(self.held[at]).store.put_if_absent(f"zone/{self.next}", b"x")

    # What must be the case.

    @invariant()
    def agree(self) -> None:
        if not hasattr(self, "folder"):
            return
        fresh = seen(lambda: open_table(self.place.store()))
        if fresh[0] is LogCorruptError:
            assert self.lost
        else:
            assert set(fresh[2]) == self.rows
        for held in self.held:  # They stay where they are.
            before = held.version
            now = seen(partial(moved, held))
            if now == fresh:
                continue
            # Damage below a held version does not change it. Nothing else may differ.
            assert self.lost
            assert min(self.lost) <= before
            assert now[0] in (CommitConflictError, LogCorruptError) or set(now[2]) == self.rows


def moved(held: txlog.Table) -> txlog.Table:
    """Return another handle at the version to which a handle would move."""
    return txlog.Table._of(held._context, refresh(context_of(held).store, held.snapshot))


def seen(move: Callable[[], txlog.Table]) -> tuple[Any, ...]:
    """Move a handle; return its version, files and rows, or the class of the error."""
    try:
        table = move()
        files = sorted(table.files(["path"])["path"].to_pylist())
        return table.version, files, sorted(table.to_arrow()["n"].to_pylist())
    except TxlogError as error:
        return (type(error),)


TestHeldHandles = pytest.mark.slow(HeldHandles.TestCase)
TestHeldHandles.settings = settings(
    max_examples=examples(60), stateful_step_count=14, deadline=None
)
TestHeldHandles = pytest.mark.spec("GUA-3", "GUA-7", "REC-10")(TestHeldHandles)
