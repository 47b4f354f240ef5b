"""Commits at places where the log was cleaned up: none of them counts as a version."""

import errno
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from deltalake.transaction import CommitProperties, PostCommitHookProperties

import txlog
from tests.verb_calls import Built, append, delete
from txlog.commit.context import Context
from txlog.commit.intent import Intent
from txlog.commit.operation import execute
from txlog.data_files.options import as_schema
from txlog.effects import Effects
from txlog.errors import CommitConflictError, OutcomeUnknownError, StoreError
from txlog.snapshot.load import load_snapshot, refresh
from txlog.snapshot.snapshot import Snapshot
from txlog.store.base import Put
from txlog.store.local.disk import Disk
from txlog.store.local.local import LocalStore
from txlog.testing import Fault, FaultyStore, LatencyStore, open_table
from txlog.threads import Threads
from txlog.verbs.checkpoint import checkpoint
from txlog.verbs.create import create
from txlog.verbs.metadata import SetProperties

SCHEMA = pa.schema([("x", pa.int64())])


def xs(*values: int) -> pa.Table:
    return pa.table({"x": pa.array(values, pa.int64())})


@pytest.fixture
def root(tmp_path: Path) -> Path:
    place = Context(LocalStore(str(tmp_path / "t")), engine=Threads(1))
    create(place, as_schema(SCHEMA), properties={"delta.enableDeletionVectors": "false"})
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
    live = set(txlog.Table(root).file_uris())
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

    return execute(Built(place, build), base)


def do_set(place: Context, base: Snapshot) -> object:
    return execute(SetProperties(place, {"user.n": "mine"}), base)


@pytest.mark.spec("CON-19")
@pytest.mark.parametrize("verb", [do_append, do_delete, do_delete_all, do_note, do_set])
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
