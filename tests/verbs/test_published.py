"""What a publish of a branch commits: ids, changes, applications, metadata, files of all kinds."""

import json
import uuid
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import txlog
from tests.data_files.test_column_updates import by
from tests.stream.test_stream import fresh
from tests.verbs.test_branches import branched, commits, left, made, opened, xs
from txlog.base.effects import rehearsing
from txlog.base.errors import (
    CommitConflictError,
    DuplicateKeyError,
    NotFoundError,
    UnsupportedFeatureError,
)
from txlog.commit.context import Context
from txlog.commit.intent import Intent
from txlog.commit.operation import Operation, execute
from txlog.extend import context_of
from txlog.snapshot.branches import PAGE_BRANCHES, Branch, Registry, registry_of
from txlog.snapshot.load import load_snapshot
from txlog.snapshot.snapshot import Snapshot
from txlog.store.branches import BranchStore
from txlog.store.memory import MemoryStore
from txlog.testing import CountingStore, unsealed
from txlog.verbs.branch_list import listed_branches
from txlog.verbs.branches import PublishBranch, _registered
from txlog.verbs.doctor import examine
from txlog.verbs.expire import expire
from txlog.verbs.trash import DeletionNote
from txlog.verbs.vacuum import VacuumRequest, vacuum

FEED = {"delta.enableChangeDataFeed": "true"}
TRACKING = {"delta.enableRowTracking": "true"}
COLUMN_FILES = {"delta.feature.txlog.fragments": "supported"}


def table_of(root: Path, **properties: str) -> txlog.Table:
    table = txlog.write(
        root,
        pa.table({"id": [1, 2, 3, 4], "v": ["a", "b", "c", "d"]}),
        properties={**properties},
    )
    table.branches.create("b")
    return table


def changed(table: txlog.Table, version: int) -> list[tuple[int, str, str]]:
    rows = table.changes(version, version).to_arrow().to_pylist()
    return sorted((one["id"], one["v"], one["_change_type"]) for one in rows)


@pytest.mark.spec("BRA-21")
@pytest.mark.parametrize("properties", [FEED, {**FEED, **TRACKING}])
def test_the_feed_has_one_true_change(tmp_path: Path, properties: dict[str, str]) -> None:
    table = table_of(tmp_path / "t", **properties)
    branch = opened(table)
    branch.append(pa.table({"id": [5, 6], "v": ["e", "f"]}))
    branch.update({"v": "'x'"}, "id = 1")
    branch.delete("id = 2")
    branch.delete("id = 6")
    version = table.branches.publish("b").version
    assert version is not None
    pair = ("update_preimage", "update_postimage")
    tracked = "delta.enableRowTracking" in properties
    one, other = pair if tracked else ("delete", "insert")
    assert changed(table, version) == sorted(
        [(1, "a", one), (1, "x", other), (2, "b", "delete"), (5, "e", "insert")]
    )
    expected = {(1, "x"), (3, "c"), (4, "d"), (5, "e")}
    assert {(r["id"], r["v"]) for r in table.to_arrow().to_pylist()} == expected


@pytest.mark.spec("BRA-21")
def test_rows_that_are_equal_again_are_no_change(tmp_path: Path) -> None:
    table = table_of(tmp_path / "t", **FEED)
    branch = opened(table)
    branch.update({"v": "'x'"}, "id = 1")
    branch.update({"v": "'a'"}, "id = 1")
    version = table.branches.publish("b").version
    assert version is not None
    assert changed(table, version) == []
    assert sorted(table.to_arrow()["v"].to_pylist()) == ["a", "b", "c", "d"]


@pytest.mark.spec("BRA-21")
def test_a_compaction_changes_no_row(tmp_path: Path) -> None:
    table = table_of(tmp_path / "t", **FEED)
    table.append(pa.table({"id": [9], "v": ["z"]}))
    table.branches.create("c")
    opened(table, "c").optimize.compact()
    version = table.branches.publish("c").version
    assert version is not None
    assert changed(table, version) == []
    assert table.files().num_rows == 1
    assert all(not one.get("add", {}).get("dataChange") for one in commits(table, version))


def ids_of(table: txlog.Table) -> dict[int, int]:
    rows = table.to_arrow(["id", "_rowid"]).to_pylist()
    return {one["id"]: one["_rowid"] for one in rows}


@pytest.mark.spec("BRA-22")
def test_row_ids_are_given_at_the_publish(tmp_path: Path) -> None:
    table = table_of(tmp_path / "t", **TRACKING)
    branch = opened(table)
    branch.append(pa.table({"id": [5, 6], "v": ["e", "f"]}))
    branch.update({"v": "'x'"}, "id = 1")
    table.append(pa.table({"id": [7, 8], "v": ["g", "h"]}))
    before, main = ids_of(branch), ids_of(table)
    assert {before[5], before[6]} & {main[7], main[8]}  # Both sides gave the same ids.
    table.append(pa.table({"id": [1], "v": ["a"]}))  # The update might have changed this row.
    with pytest.raises(CommitConflictError):
        table.branches.publish("b")
    table.delete("id = 1")
    main = ids_of(table)
    table.branches.discard("b")
    table.branches.create("b")
    branch = opened(table)
    branch.append(pa.table({"id": [5, 6], "v": ["e", "f"]}))
    table.append(pa.table({"id": [9], "v": ["i"]}))
    version = table.branches.publish("b").version
    found = ids_of(table)
    assert len(set(found.values())) == len(found) == 8
    assert {k: v for k, v in found.items() if k in main} == main
    rows = table.to_arrow(["id", "_row_last_updated_at_version"], where="id IN (5, 6)").to_pylist()
    assert {one["_row_last_updated_at_version"] for one in rows} == {version}
    table.append(pa.table({"id": [10], "v": ["j"]}))
    assert len(set(ids_of(table).values())) == 9


@pytest.mark.spec("BRA-22")
def test_updated_rows_of_the_base_keep_their_ids(tmp_path: Path) -> None:
    table = table_of(tmp_path / "t", **TRACKING)
    before = ids_of(table)
    opened(table).update({"v": "'x'"}, "id < 3")
    table.branches.publish("b")
    assert ids_of(table) == before


@pytest.mark.spec("BRA-22")
def test_rows_of_the_branch_that_it_moved_are_refused(tmp_path: Path) -> None:
    table = table_of(tmp_path / "t", **TRACKING)
    branch = opened(table)
    branch.append(pa.table({"id": [5, 6], "v": ["e", "f"]}))
    branch.delete("id = 5")  # A deletion vector moves no row.
    branch.update({"v": "'x'"}, "id = 6")
    version = table.version
    with pytest.raises(UnsupportedFeatureError, match="version 3 of the branch"):
        table.branches.publish("b")
    assert txlog.Table(table.uri).version == version
    branch.append(pa.table({"id": [7], "v": ["g"]}))


@pytest.mark.spec("BRA-23")
def test_fragments_get_ids_of_the_table(tmp_path: Path) -> None:
    table = table_of(tmp_path / "t", **COLUMN_FILES)
    branch = opened(table)
    for number in (5, 6):
        branch.append(pa.table({"id": [number], "v": ["e"]}))
        table.append(pa.table({"id": [number + 10], "v": ["e"]}))
    table.branches.publish("b")
    ids = [one.fragment_id for one in table.fragments()]
    assert len(set(ids)) == len(ids) == 5
    table.append(pa.table({"id": [7], "v": ["e"]}))
    assert len({one.fragment_id for one in table.fragments()}) == 6
    assert sorted(table.to_arrow()["id"].to_pylist()) == [1, 2, 3, 4, 5, 6, 7, 15, 16]


@pytest.mark.spec("BRA-23", "BRA-25")
def test_column_files_are_published(tmp_path: Path) -> None:
    table = table_of(tmp_path / "t", **COLUMN_FILES)
    branch = opened(table)
    branch.append(pa.table({"id": [5], "v": ["e"]}))
    branch.alter.add_columns({"w": "id * 2"})
    table.alter.set_properties({"mine": "1"})
    table.branches.publish("b")
    found = {one["id"]: one["w"] for one in table.to_arrow().to_pylist()}
    assert found == {1: 2, 2: 4, 3: 6, 4: 8, 5: 10}
    table.append(pa.table({"id": [6], "v": ["f"], "w": [0]}))
    assert len({one.fragment_id for one in table.fragments()}) == 3
    table.branches.create("c")
    opened(table, "c").alter.add_columns({"u": "id * 3"})
    table.append(pa.table({"id": [7], "v": ["f"], "w": [0]}))
    with pytest.raises(CommitConflictError):
        table.branches.publish("c")


@pytest.mark.spec("BRA-21", "BRA-33", "FRG-49")
@pytest.mark.parametrize("feed", [True, False])
def test_replaced_columns_are_published_as_changes(tmp_path: Path, feed: bool) -> None:
    """A file may give fewer columns on the branch; new values are no secret of the branch."""
    table = table_of(tmp_path / "t", **COLUMN_FILES, **(FEED if feed else {}))
    table.alter.add_columns({"w": "id * 2", "u": "id * 3"})
    table.branches.create("c")
    branch = opened(table, "c")
    branch.alter.replace_columns({"w": "w + 100"})
    branch.append(pa.table({"id": [5], "v": ["e"], "w": [10], "u": [15]}))
    branch.alter.replace_columns({"v": "concat(v, '!')"})
    stream, at = fresh(table)
    table.branches.publish("c")
    table = table.refresh()
    rows = table.to_arrow().sort_by("id").to_pylist()
    assert [(one["id"], one["v"], one["w"], one["u"]) for one in rows] == [
        *((k, f"{'abcd'[k - 1]}!", 2 * k + 100, 3 * k) for k in range(1, 5)),
        (5, "e!", 10, 15),
    ]
    version = table.version
    assert version is not None
    if feed:
        found = changed(table, version)
        assert len(found) == 9
        assert {("insert", 5, "e!")} == {(how, k, v) for k, v, how in found if k == 5}
        return
    with pytest.raises(UnsupportedFeatureError, match=f"version {version} changes rows"):
        stream.latest(at)


@pytest.mark.spec("BRA-21", "BRA-25", "FRG-50")
@pytest.mark.parametrize("properties", [FEED, {**FEED, **TRACKING}])
@pytest.mark.parametrize("layered", [True, False])
def test_updates_are_published_beside_appends(
    tmp_path: Path, properties: dict[str, str], layered: bool
) -> None:
    table = table_of(tmp_path / "t", **COLUMN_FILES, **properties)
    with by("layer"):
        if layered:
            table.update({"v": "'y'"}, "id = 2")
            assert any(one.layer for part in table.fragments() for one in part.files)
        table.branches.create("c")
        opened(table, "c").update({"v": "'z'"}, "id = 3")
        table.append(pa.table({"id": [5], "v": ["e"]}))
        table.branches.publish("c")
    table = table.refresh()
    assert table.version is not None
    kinds = ["delete", "insert"]
    if TRACKING.items() <= properties.items():
        kinds = ["update_preimage", "update_postimage"]
    assert changed(table, table.version) == [(3, "c", kinds[0]), (3, "z", kinds[1])]
    values = table.to_arrow().sort_by("id")["v"].to_pylist()
    assert values == ["a", "y" if layered else "b", "z", "d", "e"]


@pytest.mark.spec("BRA-21", "FRG-17")
def test_column_files_of_rows_that_only_a_branch_has(tmp_path: Path) -> None:
    """The feed tells deleted and new rows with all their columns."""
    table = table_of(tmp_path / "t", **COLUMN_FILES, **FEED)
    table.alter.replace_columns({"v": "concat(v, '!')"})
    table.branches.create("d")
    branch = opened(table, "d")
    branch.append(pa.table({"id": [5], "v": ["e"]}))
    branch.alter.replace_columns({"v": "concat(v, '?')"})
    gone = [(k, f"{'abcd'[k - 1]}!") for k in range(1, 5)]
    table.branches.publish("d")
    table = table.refresh()
    assert table.version is not None
    assert changed(table, table.version) == sorted(
        [
            (5, "e?", "insert"),
            *((k, v, "delete") for k, v in gone),
            *((k, f"{v}?", "insert") for k, v in gone),
        ]
    )
    table.restore(table.version - 1)
    table.branches.create("e")
    opened(table, "e").delete("true")
    table.branches.publish("e")
    table = table.refresh()
    assert changed(table, table.version or 0) == [(k, v, "delete") for k, v in gone]


@pytest.mark.spec("BRA-24")
def test_versions_of_applications(tmp_path: Path) -> None:
    table = made(tmp_path / "t")
    table.append(xs(), txn=("both", 1))
    table.branches.create("b")
    table.branches.create("c")
    branch, other = opened(table), opened(table, "c")
    branch.append(xs(10), txn=("job", 3))
    branch.append(xs(11), txn=("job", 4))
    other.append(xs(12), txn=("both", 2))
    table.append(xs(13), txn=("both", 2))
    table.branches.publish("b", txn=("publisher", 1))
    assert table.transaction_version("job") == 4
    assert table.transaction_version("publisher") == 1
    assert table.append(xs(11), txn=("job", 4)).skipped
    with pytest.raises(CommitConflictError, match="both"):
        table.branches.publish("c")
    assert left(table) == [*range(1, 7), 10, 11, 13]
    assert table.branches.publish("b", txn=("publisher", 1)).skipped


@pytest.mark.spec("BRA-28")
def test_identity_columns(tmp_path: Path) -> None:
    schema = pa.schema([("n", pa.int64()), ("x", pa.int64())])
    table = txlog.Table.create(tmp_path / "t", schema, identity="n")
    table.append(xs(1, 2))
    for name in ("b", "c"):
        table.branches.create(name)
        opened(table, name).append(xs(3, 4))
    table.branches.publish("b")
    table.append(xs(5))
    assert sorted(table.to_arrow()["n"].to_pylist()) == [1, 2, 3, 4, 5]
    with pytest.raises(CommitConflictError):
        table.branches.publish("c")


@pytest.mark.spec("BRA-29")
def test_ids_of_mapped_columns(tmp_path: Path) -> None:
    table = table_of(tmp_path / "t", **{"delta.columnMapping.mode": "name"})
    table.branches.create("c")
    opened(table).alter.add_columns({"y": pa.int64()})
    opened(table, "c").alter.add_columns({"z": pa.int64()})
    table.branches.publish("b")
    assert table.schema.names == ["id", "v", "y"]
    with pytest.raises(CommitConflictError):
        table.branches.publish("c")


@pytest.mark.spec("BRA-30")
def test_the_publish_has_its_own_time(tmp_path: Path) -> None:
    table = table_of(tmp_path / "t", **{"delta.enableInCommitTimestamps": "true"})
    branch = opened(table)
    branch.append(pa.table({"id": [5], "v": ["e"]}))
    table.append(pa.table({"id": [6], "v": ["e"]}))
    version = table.branches.publish("b").version
    assert version is not None
    times = [commits(table, at)[0]["commitInfo"]["inCommitTimestamp"] for at in range(version + 1)]
    assert times == sorted(set(times))


@pytest.mark.spec("BRA-30", "BRA-31")
def test_features_that_the_branch_enabled(tmp_path: Path) -> None:
    table = table_of(tmp_path / "t")
    branch = opened(table)
    branch.alter.set_properties({"delta.enableInCommitTimestamps": "true"})
    branch.append(pa.table({"id": [5], "v": ["e"]}))
    table.alter.set_properties({"mine": "1"})
    version = table.branches.publish("b").version
    configuration = table.metadata.configuration
    assert configuration["delta.inCommitTimestampEnablementVersion"] == str(version)
    assert "inCommitTimestamp" in (table.protocol.writer_features or ())
    assert configuration["mine"] == "1"
    assert txlog.Table(table.uri).timestamp_ms is not None


@pytest.mark.spec("BRA-27")
def test_a_feature_that_the_table_dropped(tmp_path: Path) -> None:
    table = made(tmp_path / "t", delta_enableDeletionVectors="true")
    table.branches.create("b")
    opened(table).delete("x = 1")
    table.alter.drop_feature("deletionVectors")
    with pytest.raises(CommitConflictError):
        table.branches.publish("b")
    assert left(table) == [1, 2, 3, 4, 5, 6]


def test_append_only_tables(tmp_path: Path) -> None:
    table = made(tmp_path / "t", delta_appendOnly="true")
    table.branches.create("b")
    with pytest.raises(UnsupportedFeatureError):
        opened(table).delete("x = 1")
    opened(table).append(xs(10))
    table.branches.publish("b")
    assert left(table) == [1, 2, 3, 4, 5, 6, 10]
    table.alter.set_properties({"delta.appendOnly": "false"})
    table.branches.create("c")
    opened(table, "c").delete("x = 1")
    table.alter.set_properties({"delta.appendOnly": "true"})
    with pytest.raises(CommitConflictError):
        table.branches.publish("c")


def test_unique_keys_are_checked(tmp_path: Path) -> None:
    table = made(tmp_path / "t")
    table.alter.add_constraint({"k": txlog.unique("x")})
    table.branches.create("b")
    branch = opened(table)
    branch.append(xs(10))
    with pytest.raises(DuplicateKeyError):
        branch.append(xs(10))
    table.append(xs(10))
    with pytest.raises(DuplicateKeyError):
        table.branches.publish("b")
    branch.delete("x = 10")  # The branch is open again.
    assert left(txlog.Table(table.uri)) == [1, 2, 3, 4, 5, 6, 10]


def test_clustering_of_both_sides(tmp_path: Path) -> None:
    table = table_of(tmp_path / "t")
    table.branches.create("c")
    opened(table).alter.cluster_by("id")
    opened(table, "c").alter.cluster_by("v")
    table.branches.publish("b")
    assert table.snapshot.controls.domains["delta.clustering"].configuration.count("id")
    with pytest.raises(CommitConflictError, match="clustering"):
        table.branches.publish("c")


@pytest.mark.spec("BRA-4")
@pytest.mark.parametrize("policy", ["classic", "v2"])
def test_checkpoints_of_a_branch(tmp_path: Path, policy: str) -> None:
    table = made(tmp_path / "t", delta_checkpointPolicy=policy)
    table.maintenance.checkpoint()
    table.branches.create("b")
    branch = opened(table)
    branch.append(xs(10))
    branch.maintenance.checkpoint()
    branch.append(xs(11))
    branch.maintenance.checkpoint()
    branch.maintenance.write_checksum()
    branch.maintenance.compact_log(2, 3)
    again = opened(table)
    assert again.snapshot.checkpoint[0].version == again.version == 3
    assert left(again) == [1, 2, 3, 4, 5, 6, 10, 11]
    assert again.maintenance.verify_checksum().ok
    assert left(opened(table, version=2)) == [1, 2, 3, 4, 5, 6, 10]
    names = {path.name for path in (tmp_path / "t" / "_delta_log").iterdir()}
    assert not any(name.startswith(f"{3:020}") for name in names)
    main = txlog.Table(table.uri)
    assert main.snapshot.checkpoint[0].version == 1
    assert [one.severity for one in main.doctor()] == []
    table.branches.publish("b")
    assert left(txlog.Table(table.uri)) == [1, 2, 3, 4, 5, 6, 10, 11]


@pytest.mark.spec("BRA-1")
def test_a_hint_of_later_versions_is_not_of_the_branch(tmp_path: Path) -> None:
    table = made(tmp_path / "t")
    table.branches.create("b", 0)
    table.append(xs(7))
    table.maintenance.checkpoint()
    table.maintenance.compact_log(0, 2)
    branch = opened(table)
    assert (left(branch), branch.snapshot.checkpoint) == ([1, 2, 3], ())
    branch.append(xs(10))
    assert left(opened(table)) == [1, 2, 3, 10]


def below(root: Path) -> set[str]:
    return {str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()}


@pytest.mark.spec("BRA-40", "BRA-41")
def test_a_vacuum_keeps_what_open_branches_need(tmp_path: Path) -> None:
    root = tmp_path / "t"
    table = made(root)
    table.branches.create("b")
    table.branches.create("c")
    branch, other = opened(table), opened(table, "c")
    branch.append(xs(10))
    branch.delete("x <= 2")
    branch.update({"x": "x + 100"}, "x = 4")
    other.append(xs(11))
    table.overwrite(xs(0))
    table.vacuum(0, dry_run=False, enforce_retention_duration=False)
    expected = [3, 5, 6, 10, 104]
    assert left(opened(table)) == expected
    assert left(opened(table, version=1)) == [1, 2, 3, 4, 5, 6]
    assert left(opened(table, "c")) == [1, 2, 3, 4, 5, 6, 11]
    folders = root / "_delta_log" / "_branches"
    assert len([one for one in folders.iterdir() if any(one.rglob("*.json"))]) == 2
    table.branches.discard("c")
    table.branches.discard("b")
    table.vacuum(0, dry_run=False, enforce_retention_duration=False)
    left_over = {name for name in below(root) if not name.startswith("_delta_log/0")}
    assert left_over == set(table.files()["path"].to_pylist())
    with pytest.raises(CommitConflictError):
        other.append(xs(12))
    with pytest.raises((CommitConflictError, NotFoundError)):
        branch.append(xs(12))


@pytest.mark.spec("BRA-15")
def test_the_first_commit_of_a_closed_branch_whose_log_is_gone(tmp_path: Path) -> None:
    table, branch = branched(tmp_path / "t")
    table.branches.discard("b")
    table.vacuum(0, dry_run=False, enforce_retention_duration=False)
    assert not list((tmp_path / "t" / "_delta_log" / "_branches").rglob("*.json"))
    with pytest.raises(CommitConflictError, match="published or discarded"):
        branch.append(xs(1))


@pytest.mark.spec("BRA-40")
def test_a_clean_up_keeps_the_base_and_what_follows(tmp_path: Path) -> None:
    table = made(tmp_path / "t")
    table.append(xs(7))
    table.branches.create("b", 1)
    branch = opened(table)
    branch.append(xs(10))
    for number in range(5):
        table.append(xs(20 + number))
    table.maintenance.checkpoint()
    table.maintenance.expire(0, dry_run=False)
    assert left(opened(table)) == [1, 2, 3, 4, 5, 6, 10]
    table.branches.publish("b")
    assert left(table) == [*range(1, 8), 10, *range(20, 25)]
    table.maintenance.checkpoint()
    table.maintenance.expire(0, dry_run=False)
    assert min(table.versions()["version"].to_pylist()) > 1


@pytest.mark.spec("BRA-25", "BRA-40")
def test_a_log_that_another_engine_cleaned_up(tmp_path: Path) -> None:
    table = made(tmp_path / "t")
    table.branches.create("b", 0)
    table.branches.create("c", 1)
    branch = opened(table)
    branch.append(xs(10))
    opened(table, "c").append(xs(11))
    table.maintenance.checkpoint()
    for version in (0, 1, 2):
        (tmp_path / "t" / "_delta_log" / f"{version:020}.json").unlink()
    with pytest.raises(NotFoundError, match="cleaned up"):
        table.branches.publish("b")
    with pytest.raises(txlog.LogCorruptError, match="discard"):
        opened(table)
    with pytest.raises((NotFoundError, txlog.LogCorruptError), match="discard"):
        table.vacuum()
    for name in ("b", "c"):
        table.branches.discard(name)
    table.vacuum()
    assert left(txlog.Table(table.uri)) == [1, 2, 3, 4, 5, 6]


@pytest.mark.spec("BRA-13")
def test_a_base_without_its_files_is_refused(tmp_path: Path) -> None:
    table = made(tmp_path / "t")
    table.overwrite(xs(0))
    table.vacuum(0, dry_run=False, enforce_retention_duration=False)
    with pytest.raises(txlog.DataFileError):
        table.branches.create("b", 1)
    with pytest.raises(NotFoundError):
        table.branches.create("b", 99)


@pytest.mark.spec("BRA-42")
def test_restore_clone_and_drop(tmp_path: Path) -> None:
    table, branch = branched(tmp_path / "t")
    branch.append(xs(10))
    table.append(xs(7))
    table.restore(0)
    assert table.branches.list()["name"].to_pylist() == ["b"]
    clone = table.clone(tmp_path / "deep")
    assert clone.branches.list().num_rows == 0
    assert "tableBranching-dev" not in (clone.protocol.writer_features or ())
    of_branch = branch.clone(tmp_path / "of_branch")
    assert (left(of_branch), of_branch.branch) == ([1, 2, 3, 4, 5, 6, 10], None)
    assert left(branch.clone(tmp_path / "shallow", shallow=True)) == left(branch)
    with pytest.raises(UnsupportedFeatureError, match="branches are open"):
        table.alter.drop_feature("tableBranching-dev")
    table.branches.discard("b")
    table.alter.drop_feature("tableBranching-dev")
    assert "tableBranching-dev" not in (table.protocol.writer_features or ())
    assert table.branches.list().num_rows == 0


@pytest.mark.spec("BRA-40")
def test_indexes_on_both_sides(tmp_path: Path) -> None:
    table, branch = branched(tmp_path / "t")
    branch.indexes.create("x", name="of_branch")
    branch.append(xs(10))
    table.vacuum(0, dry_run=False, enforce_retention_duration=False)
    assert list((tmp_path / "t" / "_txlog_index" / "of_branch").iterdir())
    assert opened(table).lookup([10, 11]).num_rows == 1
    table.branches.publish("b")
    assert table.lookup([1, 10]).num_rows == 2
    table.indexes.drop("of_branch")


@pytest.mark.spec("BRA-2")
def test_streams_and_time_travel_of_a_branch(tmp_path: Path) -> None:
    table, branch = branched(tmp_path / "t")
    branch.append(xs(10))
    assert branch.versions()["version"].to_pylist() == [0, 1, 2]
    assert left(branch.at(1)) == [1, 2, 3, 4, 5, 6]
    assert branch.diff(1).count() == {"insert": 1, "delete": 0, "update": 0}
    assert left(branch.refresh()) == left(opened(table))


def test_entries_of_others_stay(tmp_path: Path) -> None:
    table = made(tmp_path / "t")
    table.branches.create("b")
    log = tmp_path / "t" / "_delta_log" / f"{2:020}.json"
    text = log.read_text().replace('\\"status\\"', '\\"theirs\\":1,\\"status\\"')
    log.write_bytes(unsealed(text.encode()))
    again = txlog.Table(table.uri)
    again.branches.create("c")
    (first, _) = registry_of(again.snapshot).branches
    assert first.others == {"theirs": 1}


def test_a_registry_that_cannot_be_read(tmp_path: Path) -> None:
    table = made(tmp_path / "t")
    table.branches.create("b")
    log = tmp_path / "t" / "_delta_log" / f"{2:020}.json"
    log.write_bytes(unsealed(log.read_bytes().replace(b'\\"open\\"', b'\\"closed\\"')))
    again = txlog.Table(table.uri)
    for call in (again.branches.list, again.vacuum, lambda: opened(again)):
        with pytest.raises(txlog.LogCorruptError, match="registry"):
            call()
    assert left(again) == [1, 2, 3, 4, 5, 6]


def test_a_dry_run_closes_nothing(tmp_path: Path) -> None:
    table, branch = branched(tmp_path / "t")
    branch.append(xs(10))
    before = below(tmp_path / "t")
    with rehearsing():
        done = execute(PublishBranch("b"), context_of(table), table.snapshot)
    assert done.outcome.rehearsed
    assert below(tmp_path / "t") == before
    branch.append(xs(11))


def view_of(table: txlog.Table) -> Any:
    (entry,) = registry_of(load_snapshot(context_of(table).store)).open
    return BranchStore.of(context_of(table).store, entry.chain)


def test_json_of_the_commit(tmp_path: Path) -> None:
    table = made(tmp_path / "t")
    table.branches.create("b")
    opened(table).append(xs(10))
    assert json.loads(view_of(table).read(f"_delta_log/{2:020}.json").splitlines()[0])


class Many(Operation):
    """Register many branches in one commit."""

    name = "MANY"

    def intent(self, base: Snapshot) -> Intent:
        entries = [
            Branch(
                f"{number:08d}-0000-4000-8000-000000000000",
                f"n{number}",
                number % 2,
                2,
                page=number // PAGE_BRANCHES,
            )
            for number in range(10_000)
        ]
        intent = _registered(base, self.name, Registry(), entries[-1], {})
        return replace(intent, domains=Registry(tuple(entries)).to_domains(Registry()))


@pytest.mark.slow
@pytest.mark.spec("BRA-12")
def test_ten_thousand_branches_stay_usable() -> None:
    store = CountingStore(MemoryStore(f"memory://{uuid.uuid4()}"))
    context = Context(store)
    table = txlog.write(store.root, xs(1, 2, 3))
    table.append(xs(4))
    table._run(Many(), None, None)
    opened(table, "n77").append(xs(10))
    snapshot = load_snapshot(store)
    store.requests.clear()
    vacuum(context, snapshot, VacuumRequest(hours=0, enforce=False))
    expire(context, snapshot, hours=0, dry_run=True)
    examine(context, snapshot, sample=None)
    assert len(store.requests) < 200  # Branches without commits cost nothing.
    assert len(listed_branches(store, snapshot)) == 10_000
    table.branches.create("another")
    table.branches.publish("n77")
    table.branches.discard("n78")
    assert left(txlog.Table(store.root)) == [1, 2, 3, 4, 10]


@pytest.mark.spec("BRA-1")
def test_doctor_examines_a_branch(tmp_path: Path) -> None:
    table, branch = branched(tmp_path / "t")
    branch.append(xs(10))
    table.append(xs(7))
    assert list(branch.doctor(sample=None)) == []
    assert list(table.doctor(sample=None)) == []
    (tmp_path / "t" / branch.files()["path"].to_pylist()[-1]).unlink()
    assert [one.code for one in branch.doctor()] == ["file-missing"]


@pytest.mark.spec("BRA-2")
def test_other_stores(tmp_path: Path) -> None:
    for uri, options in (
        (f"memory://{uuid.uuid4()}", {}),
        ((tmp_path / "t").as_uri(), {"txlog.backend": "fsspec"}),
        (str(tmp_path / "c"), {"txlog.coordinator": f"sqlite:///{tmp_path}/commits.db"}),
    ):
        table = txlog.write(uri, xs(1, 2), storage_options=options)
        table.branches.create("b")
        branch = txlog.Table(uri, branch="b", storage_options=options)
        branch.append(xs(3))
        branch.append(xs(4))
        assert left(txlog.Table(uri, branch="b", storage_options=options)) == [1, 2, 3, 4]
        table.branches.publish("b")
        assert left(txlog.Table(uri, storage_options=options)) == [1, 2, 3, 4]


@pytest.mark.spec("BRA-3")
def test_restores_of_a_branch(tmp_path: Path) -> None:
    table, branch = branched(tmp_path / "t")
    branch.overwrite(xs(10))
    branch.append(xs(11))
    with pytest.raises(UnsupportedFeatureError, match="begins at version 1"):
        branch.restore(0)
    branch.restore(1)
    assert left(branch) == [1, 2, 3, 4, 5, 6]
    branch.restore(3)
    assert left(opened(table)) == [10, 11]


@pytest.mark.spec("BRA-3")
def test_a_restore_of_a_branch_sees_a_vacuum_of_the_table(tmp_path: Path) -> None:
    table, branch = branched(tmp_path / "t")
    branch.overwrite(xs(10))
    execute(DeletionNote("VACUUM START", {}, {}), context_of(table), table.refresh().snapshot)
    with pytest.raises(CommitConflictError, match="vacuum"):
        branch.restore(1)


@pytest.mark.spec("BRA-33")
@pytest.mark.parametrize("tracked", [False, True])
def test_statistics_of_a_branch_are_published(tmp_path: Path, tracked: bool) -> None:
    columns = "delta.dataSkippingNumIndexedCols"
    properties = {columns: "0", "delta.enableRowTracking": str(tracked).lower()}
    table = txlog.Table.create(tmp_path / "t", xs().schema, properties=properties)
    for value in (1, 2, 3, 4):
        table.append(xs(value))
    table.alter.set_properties({columns: "32"})

    def bounds(of: txlog.Table) -> dict[str, Any]:
        files = of.files(["path", "stats"]).to_pylist()
        return {one["path"]: json.loads(one["stats"]).get("maxValues") for one in files}

    before = table.to_arrow(["x", *(["_rowid"] if tracked else [])])
    table.branches.create("b")
    branch = opened(table)
    branch.optimize.compute_statistics()
    computed = bounds(branch)
    assert all(computed.values())
    if not tracked:
        branch.append(xs(10))
    table.delete("x = 1")
    outcome = table.branches.publish("b")
    assert outcome.metrics["numUpdatedFiles"] == 3
    now = bounds(table)
    assert {path: now[path] for path in now if path in computed} == {
        path: computed[path] for path in now if path in computed
    }
    assert len([path for path in now if path in computed]) == 3
    assert left(table) == [2, 3, 4, *([] if tracked else [10])]
    after = table.to_arrow(before.schema.names)
    kept = [one for one in before.to_pylist() if one["x"] != 1]
    assert [one for one in after.to_pylist() if one["x"] != 10] == kept
