"""Commits at places where the log was cleaned up: none of them counts as a version."""

import errno
import re
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from deltalake.transaction import CommitProperties, PostCommitHookProperties

import txlog
from tests.reliability.cases import CASES, Case, opened
from tests.verb_calls import Built, append, delete
from txlog.base.effects import Effects
from txlog.base.errors import CommitConflictError, OutcomeUnknownError, StoreError
from txlog.base.threads import Threads
from txlog.commit.context import Context
from txlog.commit.intent import Intent
from txlog.commit.operation import execute
from txlog.data_files.definition import Definition
from txlog.data_files.options import as_schema
from txlog.snapshot.load import load_snapshot, refresh
from txlog.snapshot.snapshot import Snapshot
from txlog.store.base import Put
from txlog.store.local.disk import Disk
from txlog.store.local.local import LocalStore
from txlog.store.memory import MemoryStore
from txlog.testing import Fault, FaultyStore, LatencyStore, open_table
from txlog.verbs.checkpoint import checkpoint
from txlog.verbs.create import create
from txlog.verbs.metadata import SetProperties
from txlog.verbs.references import SetPin

SCHEMA = pa.schema([("x", pa.int64())])


def xs(*values: int) -> pa.Table:
    return pa.table({"x": pa.array(values, pa.int64())})


@pytest.fixture
def root(tmp_path: Path) -> Path:
    place = Context(LocalStore(str(tmp_path / "t")), engine=Threads(1))
    create(
        place,
        as_schema(SCHEMA),
        Definition(properties={"delta.enableDeletionVectors": "false"}),
    )
    append(place, load_snapshot(place.store), xs(1, 2, 3))
    return tmp_path / "t"


def log_names(root: Path) -> list[str]:
    return sorted(path.name for path in (root / "_delta_log").glob("0*"))


def values(root: Path) -> list[int]:
    ours = sorted(txlog.Table(root).to_arrow()["x"].to_pylist())
    assert sorted(DeltaTable(root).to_pyarrow_table()["x"].to_pylist()) == ours
    return ours


def move_on(root: Path, *, commits: int = 3, keep: int = 1, hint: bool = True) -> None:
    """Have deltalake commit and checkpoint, then delete the commits that the checkpoint covers."""
    quiet = PostCommitHookProperties(create_checkpoint=False, cleanup_expired_logs=False)
    for number in range(commits):
        write_deltalake(
            root,
            xs(100 + number),
            mode="append",
            commit_properties=CommitProperties(),
            post_commithook_properties=quiet,
        )
    DeltaTable(root).create_checkpoint()
    latest = DeltaTable(root).version()
    for version in range(latest + 1 - keep):
        (root / "_delta_log" / f"{version:020d}.json").unlink(missing_ok=True)
    if not hint:
        (root / "_delta_log" / "_last_checkpoint").unlink()


def interrupted(root: Path, interrupt: Callable[[], object], call: int = 1) -> Context:
    """Return a place where something happens just before a put."""
    store = FaultyStore(LocalStore(str(root)), before={("put_if_absent", call): interrupt})
    return Context(store, engine=Threads(1))


def do_append(place: Context, base: Snapshot) -> object:
    return append(place, base, xs(7))


def do_delete(place: Context, base: Snapshot) -> object:
    return delete(place, base, "x = 1")


def do_delete_all(place: Context, base: Snapshot) -> object:
    return delete(place, base, None)


@pytest.mark.slow
@pytest.mark.spec("CON-19")
@pytest.mark.parametrize("verb", [do_append, do_delete, do_delete_all])
@pytest.mark.parametrize("hint", [True, False])
@pytest.mark.parametrize("keep", [0, 1])
def test_a_commit_below_the_table_is_a_conflict(
    root: Path, verb: Callable[[Context, Snapshot], object], hint: bool, keep: int
) -> None:
    place = interrupted(root, lambda: move_on(root, keep=keep, hint=hint))
    base = load_snapshot(LocalStore(str(root)))
    with pytest.raises(CommitConflictError, match="cleaned up") as caught:
        verb(place, base)
    assert (caught.value.rule, caught.value.version) == ("CON-19", 4)
    assert values(root) == [1, 2, 3, 100, 101, 102]
    assert f"{2:020d}.json" not in log_names(root)
    live = set(txlog.Table(root).scan().file_uris())
    assert {str(path) for path in root.glob("*.parquet")} == live  # No data file is left over.
    # Run again, the operation does what it should.
    verb(Context(LocalStore(str(root))), refresh(LocalStore(str(root)), base))
    assert txlog.Table(root).version == 5


@pytest.mark.spec("CON-19")
def test_a_commit_after_a_winner_below_the_table_is_a_conflict(root: Path) -> None:
    """The first commit of another writer is still there, those after it are not."""
    base = load_snapshot(LocalStore(str(root)))
    append(Context(LocalStore(str(root))), base, xs(50))

    def move() -> None:
        move_on(root)

    place = interrupted(root, move, call=2)
    with pytest.raises(CommitConflictError, match="cleaned up"):
        append(place, base, xs(7))
    assert values(root) == [1, 2, 3, 50, 100, 101, 102]


@pytest.mark.spec("CON-19")
def test_a_table_is_not_made_below_another(root: Path, tmp_path: Path) -> None:
    other = tmp_path / "o"

    def move() -> None:
        write_deltalake(other, xs(1))
        move_on(other)

    place = interrupted(other, move)
    with pytest.raises(CommitConflictError, match="cleaned up"):
        create(place, as_schema(SCHEMA))
    assert DeltaTable(other).version() == 3


@pytest.mark.spec("CON-19")
def test_a_commit_that_others_went_on_from_is_one(root: Path) -> None:
    """Right after the put another writer commits, writes a checkpoint and cleans up."""
    store = FaultyStore(LocalStore(str(root)))
    # The first request after the put is the look at `_last_checkpoint`.
    put = store.put_if_absent

    def put_and_move(path: str, data: bytes) -> object:
        answer = put(path, data)
        move_on(root)
        return answer

    store.put_if_absent = put_and_move  # type: ignore[assignment, method-assign]
    done = append(Context(store, engine=Threads(1)), load_snapshot(store.inner), xs(7))
    assert done.outcome.version == 2
    assert values(root) == [1, 2, 3, 7, 100, 101, 102]


class AfterPut(FaultyStore):
    """A store in which others act right after a commit, before its writer looks back."""

    def __init__(self, root: Path, act: Callable[[], object]) -> None:
        super().__init__(LocalStore(str(root)))
        self.act: Callable[[], object] | None = act

    def put_if_absent(self, path: str, data: bytes) -> Put:
        answer = super().put_if_absent(path, data)
        if self.act is not None and path.endswith(".json"):
            act, self.act = self.act, None
            act()
        return answer


def do_note(place: Context, base: Snapshot) -> object:
    def build(base: Snapshot) -> Intent:
        return Intent(operation="NOTE", kind="append", read_version=base.version)

    return execute(Built(build), place, base)


def do_set(place: Context, base: Snapshot) -> object:
    return execute(SetProperties({"user.n": "mine"}), place, base)


def do_pin(place: Context, base: Snapshot) -> object:
    return execute(SetPin("base", base.version, None), place, base)


@pytest.mark.slow
@pytest.mark.spec("CON-19")
@pytest.mark.parametrize("verb", [do_append, do_delete, do_delete_all, do_note, do_set, do_pin])
@pytest.mark.parametrize("commits", [0, 1, 3])
@pytest.mark.parametrize("far", [False, True])
def test_a_checkpoint_above_a_commit_is_no_clean_up(
    root: Path, verb: Callable[[Context, Snapshot], object], commits: int, far: bool
) -> None:
    """Right after the put, others commit and write a checkpoint. The log has all commits still."""

    def others() -> None:
        table = txlog.Table(root)
        for number in range(commits):
            table.alter.set_properties({"user.n": str(number)})
        table.maintenance.checkpoint()

    inner = AfterPut(root, others)
    store = LatencyStore(inner, delay_s=0) if far else inner
    verb(Context(store, engine=Threads(1)), load_snapshot(LocalStore(str(root))))
    assert inner.act is None
    assert txlog.Table(root).version == 2 + commits


@pytest.mark.spec("CON-19", "CON-25")
def test_a_vacuum_beside_a_checkpoint_blocks_no_restore(root: Path) -> None:
    txlog.Table(root).delete("x = 1")
    store = AfterPut(root, lambda: txlog.Table(root).maintenance.checkpoint())
    table = open_table(store)
    table.vacuum(0, dry_run=False, enforce_retention_duration=False)
    assert store.act is None
    table.append(xs(8))
    assert txlog.Table(root).restore(version=4).version == 6


@pytest.mark.spec("CON-19")
@pytest.mark.parametrize("before", [True, False])
def test_a_commit_that_shows_in_no_state_is_unknown_after_a_clean_up(
    root: Path, before: bool
) -> None:
    """Whether it was put before the clean-up or after it, the log looks the same."""
    place = Context(AfterPut(root, lambda: move_on(root)), engine=Threads(1))
    if before:
        place = interrupted(root, lambda: move_on(root))
    with pytest.raises(OutcomeUnknownError, match="cleaned up"):
        do_note(place, load_snapshot(LocalStore(str(root))))


@pytest.mark.spec("CON-19", "MNT-11")
@pytest.mark.parametrize("verb", [do_note, do_set])
def test_a_commit_that_a_pin_keeps_shows_no_whole_log(
    root: Path, verb: Callable[[Context, Snapshot], object]
) -> None:
    """The base of a commit is pinned, so a clean-up deletes the next commits but not the base."""

    def others() -> None:
        table = txlog.Table(root)
        table.pins.create("base", version=1)
        table.append(xs(50))
        table.maintenance.checkpoint()
        table.maintenance.expire(0, dry_run=False)
        assert f"{1:020d}.json" in log_names(root)
        assert f"{2:020d}.json" not in log_names(root)

    with pytest.raises(OutcomeUnknownError, match="cleaned up"):
        verb(interrupted(root, others), load_snapshot(LocalStore(str(root))))
    assert "user.n" not in txlog.Table(root).properties


@pytest.mark.spec("CON-19")
def test_a_commit_that_a_clean_up_failed_to_delete_shows_no_whole_log(root: Path) -> None:
    kept = (root / "_delta_log" / f"{1:020d}.json").read_bytes()

    def others() -> None:
        move_on(root)
        (root / "_delta_log" / f"{1:020d}.json").write_bytes(kept)

    with pytest.raises(OutcomeUnknownError, match="cleaned up"):
        do_set(interrupted(root, others), load_snapshot(LocalStore(str(root))))
    assert txlog.Table(root).version == 4


def test_a_table_of_nothing_but_a_checkpoint_is_written(root: Path) -> None:
    place = Context(LocalStore(str(root)))
    checkpoint(place, load_snapshot(place.store))
    for path in (root / "_delta_log").glob("*.json"):
        path.unlink()
    assert txlog.Table(root).append(xs(4)).version == 2
    assert txlog.Table(root).delete("x = 4").version == 3
    assert values(root) == [1, 2, 3]


@pytest.mark.spec("CON-19")
def test_a_commit_of_no_file_goes_on_from_nothing_but_a_checkpoint(root: Path) -> None:
    """What it did cannot be looked for in the latest version; that readers go through it can."""
    place = Context(LocalStore(str(root)))
    table = txlog.Table(root)
    table.delete(None)
    checkpoint(place, load_snapshot(place.store))
    for path in (root / "_delta_log").glob("*.json"):
        path.unlink()
    assert txlog.Table(root).overwrite(xs()).version == 3
    assert (txlog.Table(root).version, values(root)) == (3, [])


def test_a_hint_that_leads_nowhere_stops_no_commit(root: Path) -> None:
    (root / "_delta_log" / "_last_checkpoint").write_bytes(b'{"version":99,"size":1}')
    with pytest.warns(txlog.TxlogWarning):
        table = txlog.write(root, xs(4), mode="append")
    assert (table.version, table.count()) == (2, 4)


@pytest.mark.spec("CON-19")
def test_what_cannot_be_looked_up_is_unknown(root: Path) -> None:
    store = FaultyStore(LocalStore(str(root)), before={("put_if_absent", 1): lambda: move_on(root)})
    listings = store.list_after

    def broken(folder: str, name: str) -> object:
        raise StoreError(operation="list", path=folder, reason="the disk is gone")

    base = load_snapshot(store)
    store.list_after = broken  # type: ignore[assignment, method-assign]
    with pytest.raises(OutcomeUnknownError, match="cleaned up") as caught:
        append(Context(store, engine=Threads(1)), base, xs(7))
    assert caught.value.version == 2
    store.list_after = listings  # type: ignore[method-assign]
    assert len(list(root.glob("*.parquet"))) == 5  # Data files are kept.


def test_a_refresh_passes_over_a_gap(root: Path) -> None:
    store = LocalStore(str(root))
    base = load_snapshot(store)
    append(Context(store), base, xs(50))
    kept = (root / "_delta_log" / f"{2:020d}.json").read_bytes()
    move_on(root)
    (root / "_delta_log" / f"{2:020d}.json").write_bytes(kept)
    assert refresh(store, base).version == 5


class UnsyncedLog(Disk):
    """A disk that cannot sync the folder of the log from some moment on."""

    def __init__(self) -> None:
        self.broken = False

    def link(self, source: str, target: str) -> None:
        super().link(source, target)
        self.broken = True

    def sync_folder(self, path: str) -> None:
        if self.broken and path.endswith("_delta_log"):
            raise OSError(errno.EIO, "Input/output error")
        super().sync_folder(path)


def test_a_commit_whose_folder_is_not_synced_is_not_acknowledged(
    root: Path, effects: Effects
) -> None:
    store = LocalStore(str(root), disk=UnsyncedLog())
    base = load_snapshot(store)
    with pytest.raises(OutcomeUnknownError, match="may not survive a crash") as caught:
        append(Context(store, effects, Threads(1)), base, xs(7))
    assert (caught.value.version, caught.value.visible) == (2, True)
    assert caught.value.txn_id
    assert values(root) == [1, 2, 3, 7]  # Its data files are kept.


def test_an_answer_that_is_lost_is_read_back(root: Path, effects: Effects) -> None:
    store = FaultyStore(LocalStore(str(root)), [Fault("put_if_absent", 1, "lost_answer")])
    done = append(Context(store, effects, Threads(1)), load_snapshot(store), xs(7))
    assert done.outcome.version == 2


@pytest.mark.spec("CON-19")
@pytest.mark.parametrize("hint", [True, False])
def test_a_commit_below_the_table_is_seen_in_a_store_far_away(root: Path, hint: bool) -> None:
    place = interrupted(root, lambda: move_on(root, hint=hint))
    store = LatencyStore(place.store, delay_s=0)
    with pytest.raises(CommitConflictError, match="cleaned up"):
        append(Context(store, engine=Threads(1)), load_snapshot(store), xs(7))
    assert values(root) == [1, 2, 3, 100, 101, 102]


# Every verb, beside others that commit, write a checkpoint, and clean up --------------------------

ONE_COMMIT = sorted(
    name for name, case in CASES.items() if case.commits == 1 and case.retries and not case.new
)
# What others commit at the moment of the put, before they move on.
OTHERS = ("something else", "the same", "undo", "overwrite")
GRID = [(name, what) for name in ONE_COMMIT for what in OTHERS]
DIAGONAL = [(name, OTHERS[at % len(OTHERS)]) for at, name in enumerate(ONE_COMMIT)]
SAME = [(name, "the same") for name in ONE_COMMIT]


class Moment(FaultyStore):
    """A store in which others act just before or just after the put of the next commit."""

    def __init__(self, inner: MemoryStore, others: Callable[[], object], *, after: bool) -> None:
        super().__init__(inner)
        self.others: Callable[[], object] | None = others
        self.after = after
        self.put: str | None = None  # The commit that was put at that moment.

    def put_if_absent(self, path: str, data: bytes) -> Any:
        others = self.others
        if others is None or not IS_COMMIT.fullmatch(path):
            return super().put_if_absent(path, data)
        self.others = None
        if not self.after:
            others()
        answer = super().put_if_absent(path, data)
        self.put = path if answer == "created" else None
        if self.after:
            others()
        return answer


IS_COMMIT = re.compile(r"_delta_log/[0-9]{20}\.json")


def others_move_on(case: Case, store: MemoryStore, what: str) -> None:
    """Commit more; write a checkpoint, and delete all commits before it, or none."""
    version = opened(store).version
    if what == "the same":
        case.run(Context(store, engine=Threads(1)), opened(store, case.hours))
    elif what == "undo":
        opened(store).restore(version - 1)
    elif what == "overwrite":
        opened(store).overwrite(opened(store).to_arrow())
    for _ in range(0 if what == "a clean-up" else 2):
        table = opened(store)
        table.alter.set_description(f"after {table.version}")
    table = opened(store)
    table.maintenance.checkpoint()
    commits = [f"_delta_log/{version:020d}.json" for version in range(table.version)]
    store.delete(commits if what != "a checkpoint" else [])


def outcome_of(name: str, what: str, *, after: bool) -> tuple[str, Moment, MemoryStore]:
    """Run a verb with the others at the moment of its put; return what became of it."""
    case, store = CASES[name], MemoryStore(f"memory://{uuid.uuid4()}")
    case.make(Context(store, engine=Threads(1)))
    moment = Moment(store, lambda: others_move_on(case, store, what), after=after)
    try:
        done: Any = case.run(Context(moment, engine=Threads(1)), opened(moment, case.hours))
    except CommitConflictError:
        return "conflict", moment, store
    except OutcomeUnknownError:
        return "unknown", moment, store
    outcome = getattr(done, "outcome", done)
    return "nothing" if outcome is None or outcome.version is None else "done", moment, store


def check_before(name: str, what: str) -> None:
    """Others move on before the put: the table lacks the commit."""
    found, moment, store = outcome_of(name, what, after=False)
    assert moment.put is not None
    assert found in ("conflict", "unknown", "nothing")
    table = opened(store)
    for path in table.files()["path"].to_pylist():
        assert store.info(path).size  # No file that the table has was deleted.
    assert found == "unknown" or moment.put.rpartition("/")[2] not in names_in(store)


def check_after(name: str, what: str) -> None:
    """Others move on after the put: the table went on from the commit."""
    found, moment, store = outcome_of(name, what, after=True)
    assert moment.put is not None
    assert found in ("done", "unknown")
    for path in opened(store).files()["path"].to_pylist():
        assert store.info(path).size


def names_in(store: MemoryStore) -> set[str]:
    return {info.name for info in store.list_tree("_delta_log")}


@pytest.mark.slow(cases=24)
@pytest.mark.spec("CON-19")
@pytest.mark.parametrize(("name", "what"), SAME)
def test_no_commit_that_the_table_lacks_is_acknowledged(name: str, what: str) -> None:
    check_before(name, what)


@pytest.mark.slow(cases=24)
@pytest.mark.spec("CON-19")
@pytest.mark.parametrize(("name", "what"), DIAGONAL)
def test_no_commit_that_others_went_on_from_is_denied(name: str, what: str) -> None:
    check_after(name, what)


@pytest.mark.exhaustive
@pytest.mark.spec("CON-19")
@pytest.mark.parametrize(("name", "what"), GRID)
def test_no_commit_is_acknowledged_or_denied_wrongly_beside_any_other(name: str, what: str) -> None:
    check_before(name, what)
    check_after(name, what)


@pytest.mark.spec("CON-19")
@pytest.mark.parametrize(
    ("name", "known"),
    [("append", True), ("update", True), ("compact", True), ("delete in Lance's form", True),
     ("transaction", True), ("set properties", False), ("compute statistics", False),
     ("restore", False), ("delete by workers", False), ("rewrite by workers", False)],
)  # fmt: skip
def test_only_files_of_its_own_show_that_a_commit_is_part_of_a_table(
    name: str, known: bool
) -> None:
    found, _, _ = outcome_of(name, "something else", after=True)
    assert found == ("done" if known else "unknown")


@pytest.mark.spec("CON-19")
@pytest.mark.parametrize("name", ["append", "delete", "set properties", "restore"])
def test_a_checkpoint_above_makes_no_outcome_unknown(name: str) -> None:
    assert outcome_of(name, "a checkpoint", after=True)[0] == "done"


@pytest.mark.spec("CON-19")
@pytest.mark.parametrize("name", ["append", "delete", "set properties", "restore"])
def test_a_clean_up_up_to_a_commit_makes_no_outcome_unknown(name: str) -> None:
    assert outcome_of(name, "a clean-up", after=True)[0] == "done"


@pytest.mark.spec("CON-19")
def test_row_tracking_that_others_did_not_turn_on_is_not_acknowledged(tmp_path: Path) -> None:
    """Its adds are of files that are live anyway."""
    properties = {"delta.checkpointInterval": "1000"}
    table = txlog.write(tmp_path / "t", xs(1), properties=properties)

    def others() -> None:
        for value in (2, 3, 4):
            txlog.Table(tmp_path / "t").append(xs(value))
        other = txlog.Table(tmp_path / "t")
        other.maintenance.checkpoint()
        for version in range(other.version):
            (tmp_path / "t/_delta_log" / f"{version:020d}.json").unlink()

    store = interrupted(tmp_path / "t", others).store
    tracked = SetProperties({"delta.enableRowTracking": "true"})
    with pytest.raises(OutcomeUnknownError, match="properties") as caught:
        execute(tracked, Context(store), table.snapshot)
    assert caught.value.version == 1
    latest = txlog.Table(tmp_path / "t")
    assert (latest.version, latest.count()) == (3, 4)
    assert not latest.snapshot.has_stable_row_ids


@pytest.mark.spec("CON-19")
def test_tombstones_that_may_have_expired_show_nothing(tmp_path: Path) -> None:
    """Right after the put, others replace the written file, and keep no record of it."""
    properties = {"delta.deletedFileRetentionDuration": "interval 0 seconds"}
    table = txlog.write(tmp_path / "t", xs(1), properties=properties)
    store = FaultyStore(LocalStore(str(tmp_path / "t")))
    put = store.put_if_absent

    def put_and_move(path: str, data: bytes) -> object:
        answer = put(path, data)
        other = txlog.Table(tmp_path / "t")
        other.optimize.compact()
        time.sleep(0.05)
        other.alter.set_properties({"user.n": "later"})  # Records expire by the table's own time.
        other.maintenance.checkpoint()
        for version in range(other.version):
            (tmp_path / "t/_delta_log" / f"{version:020d}.json").unlink()
        return answer

    store.put_if_absent = put_and_move  # type: ignore[assignment, method-assign]
    with pytest.raises(OutcomeUnknownError):
        append(Context(store, engine=Threads(1)), table.snapshot, xs(7))
    assert values(tmp_path / "t") == [1, 7]
