"""Faults of a table are found, and the remedy of each finding repairs it."""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Callable
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import txlog
from tests.examples import examples
from tests.moved import moved
from txlog.extend import context_of
from txlog.verbs.doctor import CHECKS

SCHEMA = pa.schema([("id", pa.int64()), ("x", pa.float64()), ("s", pa.string())])
fresh = count()


def rows(start: int, number: int = 10) -> pa.Table:
    ids = list(range(start, start + number))
    return pa.table(
        {"id": ids, "x": [one / 2 for one in ids], "s": [f"s{one}" for one in ids]}, SCHEMA
    )


def table_at(path: Path, files: int = 4, **properties: str) -> txlog.Table:
    """Return a table of some files, the first of them with a deletion vector."""
    table = txlog.Table.create(path, SCHEMA, properties=properties)
    for start in range(0, files * 10, 10):
        table.append(rows(start))
    table.delete("id = 3")
    return table


def log_file(table: txlog.Table, name: str) -> Path:
    return Path(table.uri) / "_delta_log" / name


def codes(table: txlog.Table, **arguments: Any) -> dict[str, Any]:
    return {one.code: one for one in txlog.Table(table.uri).doctor(**arguments)}


def test_a_sound_table_has_no_findings(tmp_path: Path) -> None:
    table = table_at(tmp_path / "t")
    table.maintenance.checkpoint()
    found = table.doctor(sample=None)
    assert (found.ok, len(found), found.files, found.files_opened) == (True, 0, 4, 4)
    assert "Nothing was found" in str(found)
    assert found.to_arrow().num_rows == 0
    assert table.maintenance.repair().num_rows == 0


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(
    gone=st.sets(st.integers(0, 5)),
    gone_elsewhere=st.sets(st.integers(0, 2)),
    linked=st.dictionaries(st.integers(0, 5), st.booleans()),
    looks=st.sampled_from([1, 2, 3, 10_000]),
)
def test_few_looks_find_what_a_look_at_each_file_finds(
    tmp_path_factory: pytest.TempPathFactory,
    gone: set[int],
    gone_elsewhere: set[int],
    linked: dict[int, bool],
    looks: int,
) -> None:
    root = tmp_path_factory.mktemp("t")
    source = txlog.write(root / "s", pa.table({"x": [0, 1, 2], "y": [0] * 3}), partition_by="x")
    elsewhere = source.scan().file_uris()
    table = source.clone(root / "c", shallow=True)
    table.append(pa.table({"x": range(3, 9), "y": [0] * 6}))
    own = sorted(set(table.scan().file_uris()) - set(elsewhere))
    assert (len(own), len(elsewhere)) == (6, 3)
    lost = [own[at] for at in gone] + [elsewhere[at] for at in gone_elsewhere]
    for path in lost:
        Path(path).unlink()
    for at, is_folder in linked.items():  # What was moved to another disk, with a link to it.
        path = Path(own[at]).parent if is_folder else Path(own[at])
        if path.exists():
            moved_to = root / f"moved{at}"
            path.rename(moved_to)
            path.symlink_to(moved_to)
    with moved({"txlog.verbs.doctor:_LOOKED_UP": looks}):
        found = codes(table)
    assert found["file-missing"].count == len(lost) if lost else "file-missing" not in found
    assert not lost or "not in the listing" not in found["file-missing"].reason


@pytest.mark.parametrize("looks", [1, 2, 10_000])
@pytest.mark.parametrize("gone", [0, 1, 2, 6])
def test_few_files_of_a_far_store_are_looked_up(gone: int, looks: int) -> None:
    table = txlog.write(
        "memory://looked-up", pa.table({"x": range(6), "y": [0] * 6}), partition_by="x"
    )
    context_of(table).store.delete(table.files(["path"])["path"].to_pylist()[:gone])
    with moved({"txlog.verbs.doctor:_LOOKED_UP": looks}):
        found = codes(table)
    assert found["file-missing"].count == gone if gone else "file-missing" not in found
    said = bool(gone) and "not in the listing" in found["file-missing"].reason
    assert said == (gone > looks)


@pytest.mark.spec("VAC-22")
def test_files_that_are_gone(tmp_path: Path) -> None:
    table = table_at(tmp_path / "t")
    (first, *_), table_version = table.scan().file_uris(), table.version
    before = table.count()
    Path(first).unlink()
    found = codes(table)["file-missing"]
    assert (found.severity, found.count) == ("error", 1)
    assert not table.doctor().ok
    lost = table.maintenance.repair()
    assert lost["decision"].to_pylist() == ["skip"]
    assert table.maintenance.repair(dry_run=False)["decision"].to_pylist() == ["skip"]
    assert txlog.Table(table.uri).version == table_version  # Nothing was committed.
    done = table.maintenance.repair(dry_run=False, missing_files=True)
    assert done["action"].to_pylist() == ["remove entry"]
    assert table.version == table_version + 1
    assert table.count() == before - done["rows"][0].as_py()
    assert table.to_arrow().num_rows == table.count()
    assert table.history(1)[0]["operation"] == "FSCK"
    assert "file-missing" not in codes(table)


def test_vectors_that_are_gone(tmp_path: Path) -> None:
    table = txlog.write(tmp_path / "t", rows(0, 9000))
    table.append(rows(9000))
    table.delete("id % 3 = 0 AND id < 9000")
    (vector,) = Path(table.uri).glob("**/*.bin")
    vector.unlink()
    assert codes(table)["vector-missing"].count == 1
    assert table.maintenance.repair(dry_run=False, missing_files=True)["rows"].to_pylist() == [6000]
    assert sorted(table.to_arrow()["id"].to_pylist()) == list(range(9000, 9010))


def test_files_that_were_cut_off(tmp_path: Path) -> None:
    table = table_at(tmp_path / "t")
    path = Path(table.scan().file_uris()[-1])
    path.write_bytes(path.read_bytes()[:-7])
    assert codes(table)["file-size"].count == 1


def edited(table: txlog.Table, change: Callable[[dict[str, Any]], None]) -> None:
    """Change the statistics of the last file that was appended."""
    path = log_file(table, f"{4:020}.json")
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    for line in lines:
        line.get("commitInfo", {}).pop("txlogCrc32", None)
        if "add" in line:
            stats = json.loads(line["add"]["stats"])
            change(stats)
            line["add"]["stats"] = json.dumps(stats)
    path.write_text("\n".join(map(json.dumps, lines)))


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda stats: stats["minValues"].update(id=33), "the least id is 30"),
        (lambda stats: stats["maxValues"].update(id=33), "the greatest id is 39"),
        (lambda stats: stats.update(numRecords=9), "it has 10 rows, not 9"),
    ],
)
def test_statistics_that_lie(
    tmp_path: Path, change: Callable[[dict[str, Any]], None], says: str
) -> None:
    table = table_at(tmp_path / "t")
    edited(table, change)
    found = codes(table, sample=None)["statistics-wrong"]
    assert says in found.reason
    assert found.severity == "error"
    if "rows" not in says:
        again = txlog.Table(table.uri)
        value = says.split()[-1]
        assert again.count(f"id = {value}") == 0  # What it costs.
        again.optimize.compute_statistics(recompute=True)
        assert "statistics-wrong" not in codes(table, sample=None)
        assert again.count(f"id = {value}") == 1


def test_statistics_that_others_wrote_do_not_lie(tmp_path: Path) -> None:
    deltalake = pytest.importorskip("deltalake")
    for number in range(3):
        deltalake.write_deltalake(tmp_path / "t", rows(number * 10), mode="append")
    assert codes(txlog.Table(tmp_path / "t"), sample=None) == {}


def test_gaps_and_torn_commits(tmp_path: Path) -> None:
    table = table_at(tmp_path / "t")
    table.maintenance.checkpoint()
    log_file(table, f"{1:020}.json").unlink()
    log_file(table, f"{3:020}.json").write_text("")
    found = codes(table)
    assert found["log-gap"].count == 4
    assert "versions 1 to 4" in found["log-gap"].reason
    assert "incomplete" in found["commit-damaged"].reason


@settings(max_examples=examples(20), deadline=None)
@given(
    pins=st.sets(st.integers(0, 9), max_size=3),
    checkpoints=st.sets(st.integers(1, 9), max_size=3),
    lost=st.one_of(st.none(), st.integers(0, 9)),
)
def test_a_clean_log_beside_pins_has_no_gaps(
    pins: set[int], checkpoints: set[int], lost: int | None
) -> None:
    """A commit that a pinned version needs is missed all the same."""
    with TemporaryDirectory() as folder:
        table = txlog.write(Path(folder) / "t", rows(0))
        for version in range(1, 10):
            table.append(rows(version))
            if version in checkpoints:
                table.maintenance.checkpoint()
        for version in pins:
            table.pins.create(f"p{version}", version)
        table.maintenance.checkpoint()
        for path in (Path(folder) / "t" / "_delta_log").glob("*"):
            os.utime(path, (1_000_000, 1_000_000))
        table.append(rows(10))
        table.maintenance.expire(24, dry_run=False)
        opens = {one["version"] for one in table.versions().to_pylist()}
        assert pins <= opens
        assert "log-gap" not in codes(txlog.Table(table.uri))
        if lost in opens - checkpoints:
            log_file(table, f"{lost:020}.json").unlink()
            if not opens <= {one["version"] for one in table.versions().to_pylist()}:
                assert "log-gap" in codes(txlog.Table(table.uri))


def test_a_clean_log_beside_an_unfinished_clone_has_no_gaps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The clone's process died after it was registered, so its version stays."""

    class Death(BaseException):
        pass

    def die(*_: object, **__: object) -> None:
        raise Death

    table = table_at(tmp_path / "t")
    for number in range(10):
        table.append(rows(number))
    with monkeypatch.context() as patched:
        patched.setattr("txlog.verbs.clone._Clone._files", die)
        with pytest.raises(Death):
            txlog.Table(table.uri, version=2).clone(tmp_path / "c", shallow=True, register=True)
    table = txlog.Table(table.uri)
    table.maintenance.checkpoint()
    for path in (tmp_path / "t" / "_delta_log").glob("*"):
        os.utime(path, (1_000_000, 1_000_000))
    table.append(rows(0))
    table.maintenance.expire(24, dry_run=False)
    opens = {one["version"] for one in table.versions().to_pylist()}
    assert 2 in opens
    assert 3 not in opens
    assert "log-gap" not in codes(txlog.Table(table.uri))


def test_hints_and_checkpoints(tmp_path: Path) -> None:
    table = table_at(tmp_path / "t")
    table.maintenance.checkpoint()
    hint = log_file(table, "_last_checkpoint")
    for bad in (b"no json", b'{"version": 77, "size": 3}', None):
        if bad is None:
            hint.unlink()
        else:
            hint.write_bytes(bad)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Opening says it too.
            assert "checkpoint-hint" in codes(table)
            planned = table.maintenance.repair()
            assert planned["action"].to_pylist() == ["write checkpoint"]
            table.maintenance.repair(dry_run=False)
        assert codes(table) == {}


@pytest.mark.spec("VAC-21")
def test_a_checksum_that_is_wrong(tmp_path: Path) -> None:
    table = table_at(tmp_path / "t")
    path = log_file(table, f"{table.version:020}.crc")
    path.write_text('{"tableSizeBytes":1,"numFiles":99,"numMetadata":1,"numProtocol":1}')
    assert "checksum" in codes(table)
    assert table.maintenance.repair()["action"].to_pylist() == ["delete checksum"]
    assert path.exists()
    table.maintenance.repair(dry_run=False)
    assert not path.exists()
    assert codes(table) == {}


def test_times_orphans_length_and_features(tmp_path: Path) -> None:
    table = table_at(tmp_path / "t", **{"delta.checkpointInterval": "20"})
    os.utime(log_file(table, f"{2:020}.json"), (1_000_000, 1_000_000))
    stray = Path(table.uri) / "stray.parquet"
    pq.write_table(rows(0), stray)
    os.utime(stray, (1_000_000, 1_000_000))
    found = codes(table)
    assert (found["times"].count, found["orphans"].count) == (1, 1)
    assert found["orphans"].path == "stray.parquet"
    table.vacuum(dry_run=False)
    for number in range(110):
        table.append(rows(number, 1))
    for file in log_file(table, "").glob("*checkpoint*"):
        file.unlink()
    found = codes(table)
    assert "orphans" not in found
    assert found["log-long"].count == table.version + 1
    assert found["small-files"].count > 100
    table.optimize.compact()
    table.maintenance.checkpoint()
    assert not {"small-files", "log-long"} & set(codes(table))


def test_features_without_use_and_deleted_rows(tmp_path: Path) -> None:
    table = txlog.Table.create(
        tmp_path / "t", SCHEMA, properties={"delta.feature.columnMapping": "supported"}
    )
    table.append(rows(0))
    table.delete("id < 5")
    found = codes(table)
    assert "columnMapping" in found["features-unused"].reason
    assert found["deleted-rows"].count == 1
    table.optimize.compact()
    assert "deleted-rows" not in codes(table)


@settings(max_examples=examples(25), deadline=None)
@given(st.sets(st.integers(0, 5)), st.booleans(), st.booleans())
@pytest.mark.spec("VAC-20", "VAC-21", "VAC-22")
def test_repairs_give_up_what_is_lost_and_nothing_else(
    tmp_path_factory: pytest.TempPathFactory, lost: set[int], checkpointed: bool, hinted: bool
) -> None:
    table = table_at(tmp_path_factory.getbasetemp() / f"repair{next(fresh)}", files=6)
    if checkpointed:
        table.maintenance.checkpoint()
    if checkpointed and not hinted:
        log_file(table, "_last_checkpoint").unlink()
    files = {
        pq.read_table(uri)["id"][0].as_py() // 10: Path(uri) for uri in table.scan().file_uris()
    }
    expected = {one for one in range(60) if one != 3 and one // 10 not in lost}
    for number in lost:
        files[number].unlink()
    before = {path for path in Path(table.uri).rglob("*") if path.is_file()}
    table.maintenance.repair(missing_files=True)
    assert {path for path in Path(table.uri).rglob("*") if path.is_file()} == before
    table.maintenance.repair(dry_run=False, missing_files=True)
    assert before <= {path for path in Path(table.uri).rglob("*") if path.is_file()}
    again = txlog.Table(table.uri)
    assert set(again.to_arrow()["id"].to_pylist()) == expected
    assert again.doctor(sample=None).ok
    assert again.maintenance.repair(missing_files=True).num_rows == 0


def test_every_check_is_listed() -> None:
    assert len(CHECKS) == len(set(CHECKS)) == 12


def test_a_partition_that_is_larger_than_most(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("txlog.verbs.doctor.SMALL_BYTES", 1)
    data = pa.table({"n": list(range(20_004)), "p": [None] * 20_000 + ["a", "b", "c", "d"]})
    kinds = pa.schema([("n", pa.int64()), ("p", pa.string())])
    properties = {"delta.columnMapping.mode": "name"}
    table = txlog.Table.create(tmp_path / "t", kinds, partition_by=["p"], properties=properties)
    table.append(data.cast(kinds))
    found = codes(table)["skew"]
    assert (found.path, found.count) == ("p=None", 1)
    table.delete("p IS NULL")
    assert "skew" not in codes(table)


def test_a_missing_file_is_one_finding_whose_remedies_can_be_followed(tmp_path: Path) -> None:
    table = txlog.write(tmp_path, pa.table({"x": [1]}))
    before = set(tmp_path.glob("*.parquet"))
    table.append(pa.table({"x": [2]}))
    (lost,) = set(tmp_path.glob("*.parquet")) - before
    lost.unlink()
    errors = [one for one in table.doctor() if one.severity == "error"]
    assert [one.code for one in errors] == ["file-missing"]
    with pytest.raises(txlog.DataFileError) as caught:
        table.to_arrow()
    assert "maintenance.repair(False, missing_files=True)" in caught.value.remedy
    (finding,) = [one for one in table.doctor() if one.severity == "error"]
    assert "maintenance.repair(False, missing_files=True)" in finding.remedy
    table.maintenance.repair(False, missing_files=True)
    assert txlog.Table(tmp_path).count() == 1
    assert txlog.Table(tmp_path).doctor().ok


def test_a_gap_may_have_any_length(tmp_path: Path) -> None:
    table = table_at(tmp_path / "t")
    table.maintenance.checkpoint()
    last = 2**62
    log_file(table, f"{table.version:020}.checkpoint.parquet").rename(
        log_file(table, f"{last:020}.checkpoint.parquet")
    )
    found = codes(txlog.Table(table.uri))["log-gap"]
    assert found.count == last - table.version - 1
    assert f"versions {table.version + 1} to {last - 1}" in found.reason
