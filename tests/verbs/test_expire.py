"""Versions within the retention and pinned versions stay complete, whatever is deleted."""

import json
import os
import shutil
import warnings
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import deltalake
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import txlog
from tests.clocks import store_keeps_pace as store_keeps_pace
from tests.examples import examples
from tests.verbs.test_vacuum import FORMS, HOUR_MS, SCHEMA, STEPS, World, content, rows
from txlog.base.errors import (
    AlreadyExistsError,
    DataFileError,
    InvalidInputError,
    LogCorruptError,
    NotFoundError,
    UnsupportedFeatureError,
)
from txlog.log.names import LogFile, commit_name, parse_name
from txlog.snapshot.live_files import load_files
from txlog.snapshot.load import list_commits
from txlog.snapshot.references import Pin
from txlog.verbs.expire import expire, plan_expiry
from txlog.verbs.vacuum import VacuumRequest, vacuum

FOREVER = {"delta.enableExpiredLogCleanup": "false"}


def make_old(root: Path) -> None:
    for path in root.rglob("*"):
        os.utime(path, (1, 1))


def log_names(root: Path) -> set[str]:
    return {path.name for path in (root / "_delta_log").iterdir() if path.is_file()}


def history_of(root: Path, versions: int = 12, **properties: str) -> txlog.Table:
    """Make a table of one row a version, with checkpoints of versions 3, 6, 9, …"""
    given = {"delta.checkpointInterval": "3", "delta.enableDeletionVectors": "false"}
    table = txlog.Table.create(root, SCHEMA, properties=FOREVER | given | properties)
    for version in range(1, versions + 1):
        table.append(rows(version))
    make_old(root)
    return txlog.Table(root)


# Expire ---------------------------------------------------------------------------------------


@pytest.mark.spec("MNT-1", "MNT-2")
def test_the_newest_checkpoint_before_the_retention_stands_for_all_before_it(
    tmp_path: Path,
) -> None:
    table = history_of(tmp_path / "t")
    for version in range(8, 13):  # Version 7 was the latest when the retention began.
        os.utime(tmp_path / "t" / "_delta_log" / commit_name(version))
    listed = table.maintenance.expire(24)
    gone = {Path(row["file"]).name for row in listed.to_pylist() if row["decision"] == "delete"}
    assert {f"{v:020d}.json" for v in range(6)} < gone
    assert f"{3:020d}.checkpoint.parquet" in gone
    assert not any(int(name[:20]) >= 6 for name in gone)
    before = log_names(tmp_path / "t")
    assert table.maintenance.expire(24, dry_run=False) == listed
    assert before - log_names(tmp_path / "t") == gone
    for version in range(6, 13):
        assert txlog.Table(table.uri, version=version).count() == version
    with pytest.raises(NotFoundError, match="cleaned up"):
        txlog.Table(table.uri, version=5)
    assert txlog.Table(table.uri).maintenance.expire(24, dry_run=False)[
        "decision"
    ].unique().to_pylist() == ["keep"]


@pytest.mark.spec("MNT-1")
def test_deltalake_cleans_up_the_same_files_and_reads_what_is_left(tmp_path: Path) -> None:
    history_of(tmp_path / "ours", 13)
    shutil.copytree(tmp_path / "ours", tmp_path / "theirs")
    make_old(tmp_path / "theirs")
    ours = txlog.Table(tmp_path / "ours").maintenance.expire(dry_run=False)
    deltalake.DeltaTable(tmp_path / "theirs").cleanup_metadata()
    assert log_names(tmp_path / "ours") == {
        name
        for name in log_names(tmp_path / "theirs")
        if not name.endswith(".crc")  # deltalake leaves checksums of versions that are gone.
        or name.replace(".crc", ".json") in log_names(tmp_path / "theirs")
    }
    assert set(ours["decision"].to_pylist()) == {"keep", "delete"}
    left = deltalake.DeltaTable(tmp_path / "ours")
    assert left.version() == 13
    assert sorted(left.to_pyarrow_table()["k"].to_pylist()) == list(range(1, 14))


def test_after_a_checkpoint_it_is_done_as_the_properties_say(tmp_path: Path) -> None:
    kept = history_of(tmp_path / "kept", 5)
    kept.append(rows(6))
    assert commit_name(0) in log_names(tmp_path / "kept")
    table = history_of(tmp_path / "t", 5, **{"delta.enableExpiredLogCleanup": "true"})
    table.append(rows(6))
    assert commit_name(0) not in log_names(tmp_path / "t")
    assert commit_name(3) in log_names(tmp_path / "t")
    young = txlog.Table.create(tmp_path / "y", SCHEMA)
    young.append(rows(1))
    young.maintenance.checkpoint()
    assert commit_name(0) in log_names(tmp_path / "y")


@pytest.mark.spec("MNT-3")
def test_a_damaged_checkpoint_lets_nothing_go(tmp_path: Path) -> None:
    table = history_of(tmp_path / "t", 3)
    (path,) = (tmp_path / "t" / "_delta_log").glob("*.checkpoint.parquet")
    data = path.read_bytes()
    path.write_bytes(data[:200] + bytes(200) + data[400:])
    make_old(tmp_path / "t")
    before = log_names(tmp_path / "t")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        opened = txlog.Table(table.uri)
    with pytest.raises(LogCorruptError, match="Nothing was deleted"):
        opened.maintenance.expire(0, dry_run=False)
    assert log_names(tmp_path / "t") == before
    (tmp_path / "t" / "_delta_log" / "_last_checkpoint").unlink()
    listed = table.maintenance.expire(0)
    assert "_last_checkpoint names no checkpoint" in listed["reason"][0].as_py()
    assert set(listed["decision"].to_pylist()) == {"keep"}


@pytest.mark.spec("MNT-4")
def test_sidecars_go_with_the_last_checkpoint_that_names_them(tmp_path: Path) -> None:
    v2 = {"delta.checkpointPolicy": "v2", "delta.feature.v2Checkpoint": "supported"}
    table = txlog.Table.create(tmp_path / "t", SCHEMA, properties=FOREVER | v2)
    folder = tmp_path / "t" / "_delta_log" / "_sidecars"
    for k in range(4):
        table.overwrite(rows(k))
        table.maintenance.checkpoint()
    every = set(folder.iterdir())
    assert len(every) >= 4
    young = folder / "young.parquet"
    make_old(tmp_path / "t")
    young.write_bytes(b"x")
    listed = txlog.Table(table.uri).maintenance.expire(0, dry_run=False).to_pylist()
    gone = {Path(row["file"]).name for row in listed if row["decision"] == "delete"}
    left = set(folder.iterdir())
    assert young in left
    assert {path.name for path in every - left} == {
        n for n in gone if "checkpoint" not in n and n.endswith(".parquet")
    }
    assert len(every - left) >= 3
    assert content(txlog.Table(table.uri)) == content(table)
    assert deltalake.DeltaTable(tmp_path / "t").version() == table.version


def names_of(versions: range, checkpoints: list[int]) -> list[LogFile]:
    texts = [commit_name(v) for v in versions]
    texts += [f"{v:020d}.checkpoint.parquet" for v in checkpoints]
    return [file for name in texts if (file := parse_name(name))]


@pytest.mark.spec("MNT-5")
def test_protected_checkpoints_go_all_at_once_or_not_at_all() -> None:
    files = names_of(range(13), [3, 6, 9, 12])
    half = plan_expiry(files, last_kept=7, hinted=12, held=(), protected=8)
    assert not half.gone
    assert "protected" in next(iter(half.kept.values()))
    whole = plan_expiry(files, last_kept=10, hinted=12, held=(), protected=8)
    assert {file.version for file in whole.gone} == set(range(9))
    pinned = plan_expiry(files, last_kept=10, hinted=12, held=[Pin("p", 4).held], protected=8)
    assert not pinned.gone


@pytest.mark.spec("MNT-6")
def test_what_cannot_be_expired_is_refused(tmp_path: Path) -> None:
    table = history_of(tmp_path / "t", 3)
    with pytest.raises(InvalidInputError, match="from 0"):
        table.maintenance.expire(-1)
    commit = tmp_path / "t" / "_delta_log" / commit_name(0)
    lines = commit.read_text().splitlines()
    managed = json.dumps(
        {
            "protocol": {
                "minReaderVersion": 3,
                "minWriterVersion": 7,
                "readerFeatures": ["catalogManaged"],
                "writerFeatures": ["catalogManaged", "inCommitTimestamp"],
            }
        }
    )
    other = tmp_path / "m" / "_delta_log"
    other.mkdir(parents=True)
    text = "\n".join(managed if '"protocol"' in line else line for line in lines)
    (other / commit_name(0)).write_text(
        "\n".join(line for line in text.splitlines() if "commitInfo" not in line)
    )
    opened = txlog.Table(
        tmp_path / "m", catalog_commits=txlog.CatalogCommits(latest_version=0, staged=[])
    )
    with pytest.raises(UnsupportedFeatureError, match="catalog"):
        opened.maintenance.expire()


# Pins -----------------------------------------------------------------------------------------


@pytest.mark.spec("MNT-10", "MNT-11", "VAC-6")
def test_a_pinned_version_outlives_vacuum_and_expire(tmp_path: Path) -> None:
    table = history_of(tmp_path / "t")
    table.overwrite(rows(100))
    table.pins.create("train-2026-11", version=5, reason="the model of November")
    table.maintenance.checkpoint()
    make_old(tmp_path / "t")
    table.vacuum(0, dry_run=False, enforce_retention_duration=False)
    lost = txlog.Table(table.uri, version=8)
    assert lost.files().num_rows == 8
    table.maintenance.expire(0, dry_run=False)
    opened = txlog.Table(table.uri, version="train-2026-11")
    assert (opened.version, opened.count()) == (5, 5)
    assert txlog.Table(table.uri).count() == 1
    listed = table.versions().to_pylist()
    assert [entry["version"] for entry in listed] == [3, 4, 5, 15, 16]
    assert listed[2]["pins"] == ["train-2026-11"]
    assert {entry["version"]: entry["timestamp"] for entry in table.history()} == {
        entry["version"]: entry["timestamp"] for entry in listed[1:]
    }
    assert listed[0]["timestamp"] is None
    pin = table.pins.list()["train-2026-11"]
    assert (pin.version, pin.reason) == (5, "the model of November")
    with pytest.raises(NotFoundError, match="cleaned up"):
        txlog.Table(table.uri, version=2)
    with pytest.raises(DataFileError):
        lost.to_arrow()
    other = deltalake.DeltaTable(table.uri)
    assert other.to_pyarrow_table().num_rows == 1
    other.load_as_version(5)
    assert other.to_pyarrow_table().num_rows == 5
    assert table.restore("train-2026-11").version == txlog.Table(table.uri).version
    assert table.count() == 5
    table.pins.delete("train-2026-11")
    table.overwrite(rows(1))
    make_old(tmp_path / "t")
    table.vacuum(0, dry_run=False, enforce_retention_duration=False)
    with pytest.raises(DataFileError):
        txlog.Table(table.uri, version=5).to_arrow()


@pytest.mark.spec("MNT-12")
def test_only_what_is_whole_can_be_pinned(tmp_path: Path) -> None:
    table = txlog.write(tmp_path / "t", rows(1))
    table.overwrite(rows(2))
    make_old(tmp_path / "t")
    table.vacuum(0, dry_run=False, enforce_retention_duration=False)
    with pytest.raises(DataFileError, match="are missing"):
        table.pins.create("old", 0)
    with pytest.raises(NotFoundError):
        table.pins.create("none", 99)
    for name in ("", "7", " a", "a" * 201, "a\nb"):
        with pytest.raises(InvalidInputError):
            table.pins.create(name)
    table.pins.create("now")
    version = table.pins.list()["now"].version
    with pytest.raises(AlreadyExistsError, match=r"pins\.update"):
        table.pins.create("now")
    table.pins.update("now", version + 1)
    assert txlog.Table(table.uri, version="now").version == version + 1
    for call in (table.pins.delete, table.pins.update):
        with pytest.raises(NotFoundError, match="Choose from now"):
            call("then")
    with pytest.raises(NotFoundError, match="no pin 'then'"):
        txlog.Table(table.uri, version="then")
    assert table.pins.create("later", txn=("app", 1)).version
    assert table.pins.create("later", txn=("app", 1)).skipped


def test_a_pin_that_lost_its_version_stops_what_deletes(tmp_path: Path) -> None:
    table = history_of(tmp_path / "t")
    table.pins.create("p", 4)
    (tmp_path / "t" / "_delta_log" / commit_name(4)).unlink()
    with pytest.raises((NotFoundError, LogCorruptError), match=r"pins\.delete\('p'\)"):
        table.vacuum()
    with pytest.raises((NotFoundError, LogCorruptError), match=r"pins\.delete\('p'\)"):
        table.maintenance.expire(0)


@pytest.mark.parametrize("moved", [False, True])
def test_a_pin_may_end_while_files_are_deleted(tmp_path: Path, moved: bool) -> None:
    """Another writer deletes or moves it, and cleans up, after the list of pins was read."""
    table = history_of(tmp_path / "t")
    table.pins.create("p", 4)
    stale, context = table.snapshot, table._context
    files = load_files(context.store, stale)
    if moved:
        table.pins.update("p", table.version)
    else:
        table.pins.delete("p")
    table.maintenance.checkpoint()
    make_old(tmp_path / "t")
    table.maintenance.expire(0, dry_run=False)
    with pytest.raises(NotFoundError):
        txlog.Table(table.uri, version=4)
    vacuum(context, stale, VacuumRequest(hours=0.0, dry_run=False, enforce=False), files=files)
    expire(context, stale, hours=0, dry_run=False)
    assert txlog.Table(table.uri).count() == table.count()
    if moved:
        assert txlog.Table(table.uri, version="p").count() == table.count()


def test_a_new_pin_is_seen_before_the_log_is_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = history_of(tmp_path / "t")
    table.maintenance.checkpoint()
    make_old(tmp_path / "t")
    planned = plan_expiry

    def pinned_meanwhile(*args: Any, **options: Any) -> Any:
        monkeypatch.undo()
        plan = planned(*args, **options)
        assert any(file.version == 4 for file in plan.gone)
        txlog.Table(table.uri).pins.create("p", 4)
        return plan

    monkeypatch.setattr("txlog.verbs.expire.plan_expiry", pinned_meanwhile)
    table.maintenance.expire(0, dry_run=False)
    assert txlog.Table(table.uri, version="p").count() == 4


def test_the_log_may_be_cleaned_up_while_a_restore_looks_for_vacuums(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = history_of(tmp_path / "t")
    for version in (13, 14, 15):
        table.append(rows(version))
    table.overwrite(rows(100))
    cleaned = []

    def listed(*args: Any) -> Any:
        monkeypatch.undo()
        found = list_commits(*args)
        txlog.Table(table.uri).maintenance.expire(0, dry_run=False)
        cleaned.extend(file for file in found if not (tmp_path / "t" / file.path).exists())
        return found

    monkeypatch.setattr("txlog.verbs.restore.list_commits", listed)
    assert table.restore(15).version == 17
    assert {file.version for file in cleaned} >= {13, 14}
    assert txlog.Table(table.uri).count() == 15


# All together ---------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.spec("MNT-1", "MNT-11")
@settings(max_examples=examples(60), deadline=None)
@given(
    form=st.sampled_from(FORMS),
    steps=st.lists(
        st.one_of(
            st.sampled_from([*STEPS, "checkpoint"]),
            st.integers(1, 40),
            st.tuples(st.sampled_from(["vacuum", "expire"]), st.sampled_from([0, 10, 24, 60, 200])),
            st.tuples(st.just("pin"), st.integers(0, 5)),
            st.tuples(st.just("unpin"), st.integers(0, 5)),
            st.tuples(st.just("clone"), st.integers(0, 5)),
        ),
        min_size=5,
        max_size=16,
    ),
)
def test_what_is_deleted_and_what_is_referenced_never_meet(
    form: dict[str, str], steps: list[Any]
) -> None:
    with TemporaryDirectory() as folder:
        world = World(Path(folder) / "t", FOREVER | form, ())
        pins: dict[str, int] = {}
        clones: dict[Path, list[Any]] = {}
        for step in [*steps, ("vacuum", 0), ("expire", 0)]:
            world.clock.now_ms += step * HOUR_MS if isinstance(step, int) else 1000
            table = world.table()
            if isinstance(step, str):
                STEPS[step](table)
            elif isinstance(step, tuple):
                verb, number = step
                if verb == "pin":
                    try:
                        table.pins.create(f"p{number}", max(0, table.version - number))
                    except (AlreadyExistsError, NotFoundError, DataFileError):
                        continue
                    pins[f"p{number}"] = table.pins.list()[f"p{number}"].version
                elif verb == "clone":
                    at = Path(folder) / f"c{len(clones)}"
                    source = world.table() if number < 3 or not clones else txlog.Table(min(clones))
                    source.clone(at, shallow=True, register=True)
                    clones[at] = content(txlog.Table(at))
                elif verb == "unpin" and pins.pop(f"p{number}", None) is not None:
                    table.pins.delete(f"p{number}")
                elif verb == "vacuum":
                    table.vacuum(number, False, False)
                elif verb == "expire":
                    listed = table.maintenance.expire(number)
                    assert table.maintenance.expire(number, dry_run=False) == listed
            world.note()
            if isinstance(step, tuple):
                world.check(step[1] if step[0] in ("vacuum", "expire") else 10**6)
            for name, version in pins.items():
                pinned = txlog.Table(world.root, version=name)
                assert pinned.version == version
                assert content(pinned) == world.held[version][1]
            for at, held in clones.items():
                assert content(txlog.Table(at)) == held
