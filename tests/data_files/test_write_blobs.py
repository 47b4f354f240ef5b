"""Large values are written into packs, and the tag of a data file names them."""

import os
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import txlog
from tests.examples import examples
from txlog.data_files import write
from txlog.extend import context_of
from txlog.fragments.packs import HEAD_BYTES, head_of, pack_of, packs_in
from txlog.schema.blobs import ARROW_BLOB
from txlog.snapshot.live_files import load_files

SCHEMA = pa.schema([pa.field("k", pa.int64()), txlog.blob("b", above=4)])
LARGE = [b"12345", b"678901"]


def data(values: list[bytes | None], start: int = 0) -> pa.Table:
    keys = range(start, start + len(values))
    return pa.table({"k": pa.array(keys, pa.int64()), "b": pa.array(values, pa.binary())})


def new(root: Path, **more: Any) -> txlog.Table:
    return txlog.Table.create(root, SCHEMA, **more)


def packs(root: Path) -> list[Path]:
    return sorted(path for path in (root / "_blobs").rglob("*") if path.is_file())


def tags(table: txlog.Table) -> dict[str, list[str]]:
    live = load_files(context_of(table).store, table.snapshot).live
    rows = zip(live["path"].to_pylist(), live["tags"].to_pylist(), strict=True)
    return {path: packs_in(dict(found or ())) for path, found in rows}


def values_of(table: txlog.Table) -> list[bytes | None]:
    rows = table.to_arrow().sort_by("k")
    return [b and b.read() for b in table.blobs(rows["b"])]


@pytest.mark.spec("BLB-3", "BLB-4", "BLB-5")
def test_a_pack_has_the_large_values_one_after_another(tmp_path: Path) -> None:
    table = new(tmp_path / "t")
    table.append(data([LARGE[0], b"1234", None, LARGE[1]]))
    (path, named), *others = tags(table).items()
    assert others == []
    assert named == [pack_of(path)]
    (pack,) = packs(tmp_path / "t")
    assert pack == tmp_path / "t" / named[0]
    first, second = (head_of(value) + value for value in LARGE)
    assert pack.read_bytes() == first + second
    assert table.to_arrow()["b"].to_pylist() == [
        {"path": named[0], "offset": HEAD_BYTES, "size": 5, "data": None},
        {"path": None, "offset": None, "size": 4, "data": b"1234"},
        None,
        {"path": named[0], "offset": len(first) + HEAD_BYTES, "size": 6, "data": None},
    ]


def test_small_values_make_no_pack(tmp_path: Path) -> None:
    table = new(tmp_path / "t")
    table.append(data([b"1", None, b""]))
    assert tags(table).popitem()[1] == []
    assert not (tmp_path / "t" / "_blobs").exists()


@settings(max_examples=examples(30), deadline=None)
@given(
    batches=st.lists(
        st.lists(st.none() | st.binary(max_size=9), max_size=6), min_size=1, max_size=4
    ),
    limits=st.sampled_from([{}, {"max_rows_per_file": 2}]),
    partitioned=st.booleans(),
    pack_bytes=st.sampled_from([1, 60, 1 << 30]),
)  # fmt: skip
def test_any_batches_come_back(
    batches: list[list[bytes | None]],
    limits: dict[str, Any],
    partitioned: bool,
    pack_bytes: int,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    root = tmp_path_factory.mktemp("any") / "t"
    table = new(root, partition_by=["k"] if partitioned else [])
    flat = [value for batch in batches for value in batch]
    whole = data(flat)
    cuts = [sum(map(len, batches[:at])) for at in range(len(batches) + 1)]
    parts = [whole.slice(a, b - a) for a, b in pairwise(cuts)]
    rows = [batch for part in parts for batch in part.to_batches()]
    reader = pa.RecordBatchReader.from_batches(whole.schema, iter(rows))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(write, "_PACK_BYTES", pack_bytes)
        table.append(reader, options=txlog.WriteOptions(target_file_bytes=1 << 20, **limits))
    assert values_of(table) == flat
    named = [place for found in tags(table).values() for place in found]
    assert sorted(root / place for place in named) == packs(root)
    assert len(set(named)) == len(named)


@pytest.mark.spec("BLB-4")
def test_a_full_pack_ends_its_data_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(write, "_PACK_BYTES", 30)
    table = new(tmp_path / "t")
    rows = [data([b"x" * 20], start) for start in range(3)]
    reader = pa.RecordBatchReader.from_batches(
        rows[0].schema, (batch for part in rows for batch in part.to_batches())
    )
    table.append(reader, options=txlog.WriteOptions(target_file_bytes=20))
    assert len(packs(tmp_path / "t")) == 3


@pytest.mark.spec("BLB-7")
def test_a_failed_write_leaves_no_pack(tmp_path: Path) -> None:
    table = new(tmp_path / "t")

    def rows() -> Iterator[pa.RecordBatch]:
        yield from data(LARGE).to_batches()
        raise ValueError("the source broke")

    with pytest.raises(ValueError, match="the source broke"):
        table.append(pa.RecordBatchReader.from_batches(data(LARGE).schema, rows()))
    assert packs(tmp_path / "t") == []
    with pytest.raises(txlog.SchemaMismatchError):  # A row after many that fit.
        table.append(
            pa.concat_tables([data(LARGE), data(LARGE)]).set_column(
                0, "k", pa.array([1.0, 2.0, 3.0, 0.5])
            )
        )
    assert packs(tmp_path / "t") == []


@pytest.mark.spec("BLB-7")
def test_a_lost_race_deletes_only_its_own_packs(tmp_path: Path) -> None:
    table = new(tmp_path / "t", properties={"delta.enableDeletionVectors": "false"})
    table.append(data(LARGE))
    before = packs(tmp_path / "t")
    other = txlog.Table(tmp_path / "t")
    ending = table.transaction()
    changes = ending.__enter__()
    changes.update({"k": "k + 10"}, where="k = 0")
    changes.append(data([b"new value"], 5))
    other.overwrite(pa.table({"z": [1]}), schema_mode="overwrite")
    with pytest.raises(txlog.InvalidInputError, match="no column k"):
        ending.__exit__(None, None, None)
    assert packs(tmp_path / "t") == before


@pytest.mark.spec("BLB-8")
def test_a_name_of_another_file_is_refused(tmp_path: Path) -> None:
    theirs, ours = new(tmp_path / "theirs"), new(tmp_path / "ours")
    theirs.append(data(LARGE))
    with pytest.raises(txlog.InvalidInputError, match="names the pack"):
        ours.append(theirs.to_arrow())
    assert (ours.version, list((tmp_path / "ours").glob("*.parquet"))) == (0, [])
    made_up = {"path": "/etc/passwd", "offset": 16, "size": 3, "data": None}
    rows = pa.table({"k": [1], "b": pa.array([made_up], ARROW_BLOB)})
    with pytest.raises(txlog.InvalidInputError, match="passwd"):
        ours.append(rows)
    read = [b and b.read() for b in theirs.blobs(theirs.to_arrow()["b"])]
    ours.append(data(read))
    assert values_of(ours) == LARGE


@pytest.mark.spec("BLB-8")
def test_a_value_of_a_removed_file_is_refused(tmp_path: Path) -> None:
    table = new(tmp_path / "t")
    table.append(data(LARGE))
    old = table.to_arrow()
    table.overwrite(data([b"1"]))
    with pytest.raises(txlog.InvalidInputError, match="no file of this version"):
        table.append(old)
    table.restore(1)
    table.append(old.slice(0, 1).set_column(0, "k", pa.array([7])))
    assert values_of(table) == [*LARGE, LARGE[0]]


@pytest.mark.spec("BLB-8")
def test_a_winner_that_removes_a_pack_is_a_conflict(tmp_path: Path) -> None:
    table = new(tmp_path / "t")
    table.append(data(LARGE))
    rows = table.to_arrow()
    other = txlog.Table(tmp_path / "t")
    ending = table.transaction()
    changes = ending.__enter__()
    changes.append(rows)
    other.overwrite(data([b"1"]))
    other.vacuum(0, False, False)
    with pytest.raises(txlog.CommitConflictError, match="BLB-8"):
        ending.__exit__(None, None, None)
    assert values_of(txlog.Table(tmp_path / "t")) == [b"1"]


def test_a_write_by_two_tasks_counts_identities_again(tmp_path: Path) -> None:
    """The rows of a file are written again if its ids were taken; the bytes are not."""
    schema = pa.schema([pa.field("id", pa.int64()), *SCHEMA])
    table = txlog.Table.create(tmp_path / "t", schema, identity=["id"])
    other = txlog.Table(tmp_path / "t")
    with table.transaction() as changes:
        changes.append(data(LARGE))
        other.append(data([b"first"], 9))
    latest = txlog.Table(tmp_path / "t")
    assert sorted(map(str, values_of(latest))) == sorted(map(str, [*LARGE, b"first"]))
    ids = latest.to_arrow()["id"].to_pylist()
    assert len(set(ids)) == 3
    latest.vacuum(0, False, False)
    assert sorted(map(str, values_of(latest))) == sorted(map(str, [*LARGE, b"first"]))


def test_fields_of_a_blob_are_not_assigned_alone(tmp_path: Path) -> None:
    table = new(tmp_path / "t")
    table.append(data(LARGE))
    with pytest.raises(txlog.TxlogError, match="belong together"):
        table.update({"b.data": "NULL"})
    table.update({"b": "NULL"}, where="k = 0")
    assert values_of(table) == [None, LARGE[1]]


def test_predicates_and_constraints_see_the_struct(tmp_path: Path) -> None:
    table = new(tmp_path / "t")
    table.append(data([b"1", *LARGE, None]))
    assert table.count("b.size > 5") == 1
    assert table.count("b IS NULL") == 1
    table.alter.add_constraint({"limited": "b IS NULL OR b.size < 10"})
    with pytest.raises(txlog.SchemaMismatchError, match="limited"):
        table.append(data([b"x" * 10]))
    table.append(data([b"x" * 9], 9))
    assert values_of(table)[-1] == b"x" * 9


@pytest.mark.spec("BLB-5")
def test_column_files_and_clustered_files_name_packs(tmp_path: Path) -> None:
    table = txlog.Table.create(
        tmp_path / "t", SCHEMA, properties={"delta.feature.txlog.fragments": "supported"}
    )
    table.append(data(LARGE))
    values = pa.table({"c": pa.array([b"c" * 9, None])}, pa.schema([txlog.blob("c", above=4)]))
    table.alter.add_columns(values)
    rows = table.to_arrow().sort_by("k")
    assert [b and b.read() for b in table.blobs(rows["c"])] == [b"c" * 9, None]
    before = packs(tmp_path / "t")
    assert len(before) == 2
    table.optimize.compact()
    table.optimize.z_order(["k"])
    table.vacuum(0, False, False)
    assert packs(tmp_path / "t") == before
    rows = table.to_arrow().sort_by("k")
    assert [b and b.read() for b in table.blobs(rows["c"])] == [b"c" * 9, None]
    assert values_of(table) == LARGE


@pytest.mark.spec("BLB-5")
def test_the_feed_has_the_bytes(tmp_path: Path) -> None:
    table = new(tmp_path / "t", properties={"delta.enableChangeDataFeed": "true"})
    table.append(data(LARGE))
    table.update({"b": txlog.lit(b"changed")}, where="k = 0")
    table.delete("k = 1")
    table.optimize.compact()
    changes = table.changes(1).to_arrow()
    found = zip(
        changes["_change_type"].to_pylist(),
        [b and b.read() for b in table.blobs(changes["b"])],
        strict=True,
    )
    assert sorted(found) == [
        ("delete", LARGE[1]),
        ("insert", LARGE[0]),
        ("insert", LARGE[1]),
        ("update_postimage", b"changed"),
        ("update_preimage", LARGE[0]),
    ]


@pytest.mark.spec("BLB-6")
def test_a_restore_needs_the_packs(tmp_path: Path) -> None:
    table = new(tmp_path / "t")
    table.append(data(LARGE))
    (pack,) = packs(tmp_path / "t")
    table.overwrite(data([b"1"]))
    pack.unlink()
    with pytest.raises(txlog.DataFileError, match="_blobs/"):
        table.restore(1)
    assert values_of(table) == [b"1"]


@pytest.mark.spec("BLB-6")
def test_the_doctor_names_missing_packs(tmp_path: Path) -> None:
    table = new(tmp_path / "t")
    table.append(data(LARGE))
    table.append(data([b"another"], 5))
    assert len(table.doctor()) == 0 or table.doctor().ok
    packs(tmp_path / "t")[0].unlink()
    found = [one for one in table.doctor() if one.code == "pack-missing"]
    assert [(one.severity, one.count) for one in found] == [("error", 1)]
    assert table.count() == 3  # The other columns can be read.


@pytest.mark.spec("BLB-6", "BLB-9")
def test_a_branch_keeps_and_publishes_packs(tmp_path: Path) -> None:
    table = new(tmp_path / "t")
    table.append(data(LARGE))
    table.branches.create("work")
    branch = txlog.Table(tmp_path / "t", branch="work")
    branch.append(data([b"on a branch"], 5))
    branch.optimize.compact()
    table.refresh()
    table.vacuum(0, False, False)
    assert values_of(branch) == [*LARGE, b"on a branch"]
    table.branches.publish("work")
    table.refresh()
    assert values_of(table) == [*LARGE, b"on a branch"]
    table.vacuum(0, False, False)
    assert values_of(table) == [*LARGE, b"on a branch"]


@pytest.mark.spec("BLB-6")
def test_a_light_vacuum_deletes_packs_of_removed_files(tmp_path: Path) -> None:
    table = new(tmp_path / "t")
    table.append(data(LARGE))
    table.append(data([b"another"], 5))
    table.overwrite(table.to_arrow().filter(pa.compute.field("k") > 3))
    table.vacuum(0, False, False, lite=True)
    assert len(packs(tmp_path / "t")) == 1
    assert values_of(table) == [b"another"]


def test_rows_that_do_not_fit_are_put_aside(tmp_path: Path) -> None:
    table = new(tmp_path / "t")
    table.alter.add_constraint({"limited": "b IS NULL OR b.size < 10"})
    table.append(
        data([LARGE[0], b"x" * 12, b"1"]), on_error="quarantine", quarantine=tmp_path / "q"
    )
    assert values_of(table) == [LARGE[0], b"1"]
    assert txlog.Table(tmp_path / "q").count() == 1


def aged(root: Path, days: int = 30) -> None:
    """Let all data files and packs be old, as if the table were."""
    then = time.time() - days * 86_400
    for path in [*root.glob("*.parquet"), *packs(root)]:
        os.utime(path, (then, then))


@pytest.mark.spec("BLB-5", "BLB-6")
@pytest.mark.parametrize("policy", ["classic", "v2"])
@pytest.mark.parametrize("lite", [False, True])
@pytest.mark.parametrize("step", ["checkpoint", "compact_log"])
def test_tombstones_in_checkpoints_keep_their_packs(
    step: str, policy: str, lite: bool, tmp_path: Path
) -> None:
    structs = {"delta.checkpoint.writeStatsAsStruct": str(policy == "v2").lower()}
    table = new(tmp_path / "t", properties={"delta.checkpointPolicy": policy, **structs})
    table.append(data(LARGE))
    table.overwrite(data([b"1"]))  # The first file was removed just now.
    getattr(table.maintenance, step)(*((1, 2) if step == "compact_log" else ()))
    if step == "checkpoint":  # No reader sees the commits before it.
        for commit in (tmp_path / "t" / "_delta_log").glob("0*[012].json"):
            commit.rename(tmp_path / commit.name)
    aged(tmp_path / "t")
    latest = txlog.Table(tmp_path / "t")
    latest.vacuum(dry_run=False, lite=lite)
    assert len(packs(tmp_path / "t")) == 1
    for commit in tmp_path.glob("*.json"):
        commit.rename(tmp_path / "t" / "_delta_log" / commit.name)
    assert values_of(txlog.Table(tmp_path / "t", version=1)) == LARGE
    latest.vacuum(0, False, False, lite=lite)
    assert packs(tmp_path / "t") == []
    assert list((tmp_path / "t").glob("*.parquet")) != []


@pytest.mark.spec("BLB-6")
def test_a_pack_that_other_files_took_over_outlives_the_first_one(tmp_path: Path) -> None:
    table = new(tmp_path / "t", properties={"delta.enableDeletionVectors": "false"})
    table.append(data(LARGE))
    table.update({"k": "k + 1"})
    aged(tmp_path / "t")
    table.vacuum(0, False, False)
    assert len(list((tmp_path / "t").glob("*.parquet"))) == 1
    assert values_of(table) == LARGE
    found = table.vacuum(dry_run=True).to_pylist()
    assert [row["decision"] for row in found if "_blobs" in row["file"]] == ["keep"]


@pytest.mark.spec("BLB-7")
def test_rows_whose_bytes_are_in_packs_are_not_put_aside(tmp_path: Path) -> None:
    """The quarantine would have a name, and the next vacuum would delete the bytes."""
    table = new(tmp_path / "t")
    table.append(data([LARGE[0]]))
    table.alter.add_constraint({"first": "k < 5"})
    copies = table.to_arrow().set_column(0, "k", pa.array([9]))
    with pytest.raises(txlog.InvalidInputError, match="bytes are in a pack that"):
        table.append(copies, on_error="quarantine", quarantine=tmp_path / "q")
    assert not (tmp_path / "q" / "_delta_log").exists()
    (blob,) = table.blobs(copies["b"])
    assert blob is not None
    wrong = data([blob.read()]).set_column(0, "k", pa.array([9]))
    table.append(wrong, on_error="quarantine", quarantine=tmp_path / "q")
    assert txlog.Table(tmp_path / "q").count() == 1
