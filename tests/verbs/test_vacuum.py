"""A vacuum never deletes files that versions need."""

import json
import os
import time
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import deltalake
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import txlog
from tests.clocks import store_keeps_pace as store_keeps_pace
from tests.examples import examples
from txlog.base.effects import Effects
from txlog.base.errors import InvalidInputError, InvalidTypeError
from txlog.testing import FaultyStore, open_store, open_table, unsealed

HOUR_MS = 3_600_000
SCHEMA = pa.schema([("k", pa.int64()), ("g", pa.string())])


def rows(*ks: int) -> pa.Table:
    return pa.table({"k": list(ks), "g": ["a b" if k % 2 else "_b" for k in ks]}, SCHEMA)


@dataclass
class Clock:
    now_ms: int = 1_800_000_000_000


@dataclass(frozen=True)
class Faked(Effects):
    clock: Clock = field(default_factory=Clock)

    def now_ms(self) -> int:
        return self.clock.now_ms


class World:
    """A table in a folder whose clock is turned by hand, and what each version held."""

    def __init__(self, root: Path, properties: dict[str, str], partition_by: tuple[str, ...]):
        self.root, self.clock = root, Clock()
        self.seen: set[Path] = set()
        txlog.Table.create(root, SCHEMA, partition_by, properties)
        self.held: list[tuple[int, list[Any]]] = []  # When each version was made, and its rows.
        self.given_up_ms = 0.0  # Versions before it need not be whole any more.
        self.note()

    def table(self) -> txlog.Table:
        table = txlog.Table(self.root)
        table._context = replace(table._context, effects=Faked(self.clock))
        return table

    def note(self) -> None:
        for path in set(self.root.rglob("*")) - self.seen:
            if path.is_file():
                seconds = self.clock.now_ms / 1000
                os.utime(path, (seconds, seconds))
                self.seen.add(path)
        for version in range(len(self.held), txlog.Table(self.root).version + 1):
            table = txlog.Table(self.root, version=version)
            self.held.append((self.clock.now_ms, content(table)))

    def check(self, hours: float) -> None:
        """Read all versions that were the latest at a moment within the retention."""
        since = max(self.given_up_ms, self.clock.now_ms - hours * HOUR_MS)
        self.given_up_ms = since
        for version, (_, expected) in enumerate(self.held):
            last = version == len(self.held) - 1
            if last or self.held[version + 1][0] >= since:
                assert content(txlog.Table(self.root, version=version)) == expected


def content(table: txlog.Table) -> list[Any]:
    return sorted(map(repr, table.to_arrow().to_pylist()))


STEPS: dict[str, Any] = {
    "append": lambda table: table.append(rows(*range(6))),
    "append again": lambda table: table.append(rows(7, 8)),
    "delete": lambda table: table.delete("k % 3 = 1"),
    "delete more": lambda table: table.delete("k > 4"),
    "update": lambda table: table.update({"k": "k + 1"}, "k % 2 = 0"),
    "overwrite": lambda table: table.overwrite(rows(1, 2)),
    "compact": lambda table: table.optimize.compact(),
    "checkpoint": lambda table: table.maintenance.checkpoint(),
    "restore": lambda table: restored(table),
}
FORMS = [
    {},
    {"delta.enableDeletionVectors": "false"},
    {"delta.enableChangeDataFeed": "true"},
    {"txlog.deletionFormat": "lance", "delta.feature.txlog.fragments": "supported"},
    {"delta.deletedFileRetentionDuration": "interval 30 hours"},
]


def restored(table: txlog.Table) -> None:
    with suppress(txlog.DataFileError):  # A vacuum took what the version needs.
        table.restore(max(0, table.version - 2))


@pytest.mark.slow
@pytest.mark.spec("VAC-1", "VAC-2")
@settings(max_examples=examples(90), deadline=None)
@given(
    form=st.sampled_from(FORMS),
    partition_by=st.sampled_from([(), ("g",)]),
    steps=st.lists(
        st.one_of(
            st.sampled_from(list(STEPS)),
            st.integers(1, 40),
            st.tuples(st.sampled_from([0, 10, 24, 60]), st.booleans()),
        ),
        min_size=3,
        max_size=12,
    ),
)
def test_versions_within_the_retention_stay_whole(
    form: dict[str, str], partition_by: tuple[str, ...], steps: list[Any]
) -> None:
    with TemporaryDirectory() as folder:
        world = World(Path(folder) / "t t", form, partition_by)
        for step in [*steps, (0, False)]:
            if isinstance(step, int):
                world.clock.now_ms += step * HOUR_MS
            elif isinstance(step, str):
                world.clock.now_ms += 1000
                STEPS[step](world.table())
                world.note()
            else:
                hours, lite = step
                world.clock.now_ms += 1000
                table = world.table()
                listed = table.vacuum(hours, True, False, lite=lite)
                done = table.vacuum(hours, False, False, lite=lite)
                assert done == listed
                gone = done.filter(pa.compute.equal(done["decision"], "delete"))["file"]
                assert not any((world.root / name).exists() for name in gone.to_pylist())
                world.check(hours)
        left = {
            path.relative_to(world.root).as_posix()
            for path in world.root.rglob("*")
            if path.is_file() and "_delta_log" not in path.parts
        }
        listed = txlog.Table(world.root).vacuum(0, True, False)
        assert set(listed["file"].to_pylist()) == left


@pytest.mark.spec("VAC-1", "VAC-2", "VAC-3")
def test_deltalake_would_delete_the_same_files(tmp_path: Path) -> None:
    table = txlog.Table.create(
        tmp_path / "t", SCHEMA, ("g",), {"delta.enableDeletionVectors": "false"}
    )
    table.append(rows(*range(10)))
    table.delete("k = 3")
    table.overwrite(rows(1, 2))
    for name in (
        "orphan.parquet",
        "_hidden.parquet",
        "_temp/x.parquet",
        ".dot/x",
        "g=_b/y.parquet",
    ):
        path = tmp_path / "t" / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"x")
    for path in (tmp_path / "t").rglob("*"):
        os.utime(path, (1, 1))
    other = deltalake.DeltaTable(tmp_path / "t")
    theirs = other.vacuum(0, dry_run=True, enforce_retention_duration=False, full=True)
    ours = table.vacuum(0, enforce_retention_duration=False)
    gone = ours.filter(pa.compute.equal(ours["decision"], "delete"))["file"].to_pylist()
    assert sorted(gone) == sorted(theirs)
    assert {"orphan.parquet", "g=_b/y.parquet"} < set(gone)
    before = content(table)
    assert table.vacuum(0, dry_run=False, enforce_retention_duration=False) == ours
    assert content(txlog.Table(table.uri)) == before
    assert (tmp_path / "t" / "_hidden.parquet").exists()
    assert (tmp_path / "t" / "_temp" / "x.parquet").exists()


@pytest.mark.spec("VAC-4")
def test_a_short_retention_is_refused(tmp_path: Path) -> None:
    table = txlog.write(tmp_path / "t", rows(1))
    with pytest.raises(InvalidInputError, match="168 hours"):
        table.vacuum(167)
    with pytest.raises(InvalidInputError, match="from 0"):
        table.vacuum(-1, enforce_retention_duration=False)
    with pytest.raises(InvalidTypeError, match="a number"):
        table.vacuum("7 days")  # type: ignore[arg-type]
    assert table.vacuum(168)["decision"].to_pylist() == ["keep"]
    table.alter.set_properties({"delta.deletedFileRetentionDuration": "interval 1 hour"})
    assert table.vacuum(1).num_rows == 1


@pytest.mark.spec("VAC-5")
def test_files_that_a_restore_brings_back_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = txlog.write(tmp_path / "t", rows(1, 2, 3))
    table.overwrite(rows(4))
    for path in (tmp_path / "t").rglob("*.parquet"):
        os.utime(path, (1, 1))
    time.sleep(0.02)  # The clock of a file system may be some milliseconds behind.
    from txlog.verbs import vacuum as module

    found, calls = module.decide, []

    def decide(*given: Any) -> pa.Table:
        calls.append(given)
        if len(calls) == 1:
            txlog.Table(table.uri).restore(0)
        return found(*given)

    monkeypatch.setattr(module, "decide", decide)
    table.vacuum(0, dry_run=False, enforce_retention_duration=False)
    assert len(calls) == 2
    assert sorted(txlog.Table(table.uri).to_arrow()["k"].to_pylist()) == [1, 2, 3]


def test_absolute_paths_below_the_table(tmp_path: Path) -> None:
    root = tmp_path / "t"
    table = txlog.write(root, rows(1))
    (name,) = [path.name for path in root.glob("*.parquet")]
    commit = root / "_delta_log" / f"{0:020d}.json"
    text = commit.read_bytes().replace(
        b'"path":"' + name.encode(), f'"path":"file://{root}/{name}'.encode()
    )
    commit.write_bytes(unsealed(text))
    os.utime(root / name, (1, 1))
    table = txlog.Table(root)
    assert table.count() == 1
    assert table.vacuum(0, enforce_retention_duration=False)["decision"].to_pylist() == ["keep"]


@pytest.mark.spec("VAC-7")
def test_a_longer_retention_holds_where_tombstones_were_dropped(tmp_path: Path) -> None:
    world = World(tmp_path / "t", {}, ())
    world.table().append(rows(1, 2))
    world.note()
    world.clock.now_ms += 400 * HOUR_MS
    world.table().overwrite(rows(3))
    world.note()
    world.clock.now_ms += 200 * HOUR_MS  # More than 7 days: the checkpoint drops the tombstone.
    world.table().append(rows(4))
    world.note()
    world.table().maintenance.checkpoint()
    world.clock.now_ms += HOUR_MS
    assert world.table().vacuum(300, dry_run=False).num_rows == 3
    world.check(300)
    world.table().vacuum(200, dry_run=False)
    with pytest.raises(txlog.DataFileError):
        txlog.Table(tmp_path / "t", version=1).to_arrow()


@pytest.mark.spec("VAC-8")
def test_commits_tell_of_a_vacuum_as_deltalake_has_them(tmp_path: Path) -> None:
    for name in ("ours", "theirs"):
        table = txlog.write(
            tmp_path / name, rows(1), properties={"delta.enableDeletionVectors": "false"}
        )
        table.overwrite(rows(2))
        for path in (tmp_path / name).rglob("*.parquet"):
            os.utime(path, (1, 1))
    table = txlog.Table(tmp_path / "ours")
    assert table.vacuum(0, enforce_retention_duration=False).num_rows == 2
    assert table.version == 1
    table.vacuum(0, dry_run=False, enforce_retention_duration=False, user_metadata="weekly")
    other = deltalake.DeltaTable(tmp_path / "theirs")
    other.vacuum(0, dry_run=False, enforce_retention_duration=False)
    assert table.version == other.version() == 3
    ours, theirs = table.history(2), other.history(2)
    for one, two in zip(ours, theirs, strict=True):
        assert one["operation"] == two["operation"]
        assert one["operationParameters"].keys() >= two["operationParameters"].keys() - {
            "specifiedRetentionMillis"
        }
    assert ours[0]["operationParameters"]["status"] == "COMPLETED"
    assert ours[1]["operationMetrics"]["numFilesToDelete"] == "1"
    assert ours[1]["userMetadata"] == "weekly"
    table.vacuum(0, dry_run=False, enforce_retention_duration=False)
    assert table.version == 3


@pytest.mark.spec("VAC-9")
def test_what_is_in_the_trash_can_be_put_back(tmp_path: Path) -> None:
    table = txlog.write(tmp_path / "t t", rows(1, 2), partition_by=["g"])
    table.delete("k = 1")
    table.overwrite(rows(3))
    before = {path for path in (tmp_path / "t t").rglob("*.*") if "_delta_log" not in path.parts}
    for path in before:
        os.utime(path, (1, 1))
    done = table.vacuum(0, dry_run=False, enforce_retention_duration=False, trash=True)
    gone = done.filter(pa.compute.equal(done["decision"], "delete"))["file"].to_pylist()
    assert gone
    with pytest.raises(txlog.DataFileError):
        txlog.Table(table.uri, version=0).to_arrow()
    other = deltalake.DeltaTable(tmp_path / "t t")
    theirs = other.vacuum(0, dry_run=False, enforce_retention_duration=False, full=True)
    assert not any("_txlog_trash" in path for path in theirs)
    back = table.maintenance.put_back()
    assert sorted(back["file"].to_pylist()) == sorted(gone)
    assert set(back["decision"].to_pylist()) == {"restore"}
    assert sorted(txlog.Table(table.uri, version=0).to_arrow()["k"].to_pylist()) == [1, 2]
    assert table.maintenance.put_back().num_rows == 0
    table.vacuum(0, dry_run=False, enforce_retention_duration=False, trash=True)
    assert table.maintenance.empty_trash() == len(gone)
    assert table.maintenance.put_back().num_rows == 0


@pytest.mark.spec("VAC-9")
@settings(max_examples=examples(60))
@given(
    st.none() | st.binary(max_size=6),
    st.lists(st.binary(min_size=1, max_size=6), min_size=1, max_size=3),
    st.sampled_from([None, 1, 3]),
)
@example(b"new", [b"older and larger"], None)
@example(None, [b"whole", b"new"], None)
def test_only_a_part_of_a_file_is_replaced_by_it(
    there: bytes | None, moved: list[bytes], torn: int | None
) -> None:
    """The last file that was moved from a place comes back, unless another file is there."""
    with TemporaryDirectory() as folder:
        table = txlog.write(folder, rows(1))
        trash = {Path(folder, "_txlog_trash", str(100 + n), "f"): d for n, d in enumerate(moved)}
        for path, data in trash.items():
            path.parent.mkdir(parents=True)
            path.write_bytes(data)
        if there is None and torn is not None:  # A copy of the last one that was interrupted.
            there = moved[-1][:torn]
        if there is not None:
            Path(folder, "f").write_bytes(there)
        back = table.maintenance.put_back().filter(pa.compute.field("decision") == "restore")
        at = [place for place, one in enumerate(moved) if not _is_torn(one, moved[:place])]
        wanted = moved[at[-1]]
        if there is None or (wanted.startswith(there) and len(there) < len(wanted)):
            assert Path(folder, "f").read_bytes() == wanted
            assert back.num_rows == 1
        else:
            assert Path(folder, "f").read_bytes() == there
            assert back.num_rows == 0
        left = {path.read_bytes() for path in trash if path.exists()}
        assert {*left, *([wanted] if back.num_rows else [])} == set(moved)


def _is_torn(data: bytes, before: list[bytes]) -> bool:
    """Return whether bytes are the first of the file that would come back without them."""
    wanted = b""
    for one in before:
        wanted = wanted if wanted.startswith(one) and len(one) < len(wanted) else one
    return wanted.startswith(data) and len(data) < len(wanted)


@pytest.mark.spec("VAC-1")
@pytest.mark.parametrize("lite", [False, True])
def test_vectors_with_absolute_paths(tmp_path: Path, lite: bool) -> None:
    root = tmp_path / "t"
    table = txlog.write(root, pa.table({"k": range(3000), "g": ["x"] * 3000}, SCHEMA))
    table.delete("k % 3 = 1")
    (vector,) = root.glob("*.bin")
    commit = root / "_delta_log" / f"{1:020d}.json"
    lines = [json.loads(line) for line in unsealed(commit.read_bytes()).splitlines()]
    for line in lines:
        if "add" in line:
            line["add"]["deletionVector"] |= {"storageType": "p", "pathOrInlineDv": vector.as_uri()}
    commit.write_text("\n".join(map(json.dumps, lines)))
    for path in root.rglob("*.*"):
        os.utime(path, (1, 1))
    table = txlog.Table(root)
    assert table.count() == 2000
    table.vacuum(0, dry_run=False, enforce_retention_duration=False, lite=lite)
    assert txlog.Table(root).count() == txlog.Table(root).to_arrow().num_rows == 2000
    table.overwrite(rows(1))
    table.vacuum(0, dry_run=False, enforce_retention_duration=False, lite=lite)
    assert not vector.exists()


@pytest.mark.spec("CON-25")
def test_who_wants_files_back_is_refused_while_a_vacuum_deletes(tmp_path: Path) -> None:
    table = txlog.write(tmp_path / "t", pa.table({"x": [1, 2]}))
    table.overwrite(pa.table({"x": [3]}))
    table.append(pa.table({"x": [4]}))
    refused: list[str] = []

    def others() -> None:
        for act in (
            lambda: txlog.Table(table.uri).restore(0),
            lambda: txlog.Table(table.uri).pins.create("first", version=0),
        ):
            with pytest.raises(txlog.CommitConflictError, match="a vacuum is deleting") as caught:
                act()
            refused.append(caught.value.rule or "")
        txlog.Table(table.uri).restore(1)  # It needs no file that is gone.

    store = FaultyStore(open_store(table.uri), before={("delete", 1): others})
    open_table(store).vacuum(0, False, False)
    assert refused == ["CON-25", "CON-25"]
    assert txlog.Table(table.uri).to_arrow()["x"].to_pylist() == [3]
    with pytest.raises(txlog.DataFileError, match="are missing"):  # It has ended.
        txlog.Table(table.uri).restore(0)


@pytest.mark.spec("VAC-6")
def test_versions_that_are_to_be_kept(tmp_path: Path) -> None:
    table = txlog.write(tmp_path, pa.table({"x": [1]}))
    for x in (2, 3):
        table.overwrite(pa.table({"x": [x]}))
    asked: dict[str, Any] = {"retention_hours": 0, "enforce_retention_duration": False}
    with pytest.raises(txlog.NotFoundError):
        table.vacuum(**asked, dry_run=False, keep_versions=[99])
    gone = table.vacuum(**asked, dry_run=False, keep_versions=[1])
    assert gone["decision"].to_pylist().count("delete") == 1
    assert txlog.Table(tmp_path, version=1).to_arrow()["x"].to_pylist() == [2]
    with pytest.raises(txlog.DataFileError):
        txlog.Table(tmp_path, version=0).to_arrow()
    table.vacuum(**asked, dry_run=False)
    with pytest.raises(txlog.DataFileError):
        txlog.Table(tmp_path, version=1).to_arrow()
