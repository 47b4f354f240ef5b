"""Clones of tables with blob columns keep the bytes, whatever is written to them afterwards."""

import pickle
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

import txlog


def made(root: Path, *, vectors: bool = False) -> txlog.Table:
    schema = pa.schema([pa.field("id", pa.int64()), txlog.blob("b", above=10)])
    properties = {"delta.enableDeletionVectors": str(vectors).lower()}
    table = txlog.Table.create(root / "source", schema, properties=properties)
    for first in (0, 3):
        ids = [first, first + 1, first + 2]
        table.append(pa.table({"id": ids, "b": [value(one) for one in ids]}))
    return table


def value(of: int) -> bytes:
    return str(of).encode() * 50


def require_whole(table: txlog.Table) -> None:
    rows = txlog.Table(table.uri).to_arrow()
    found = [blob and blob.read() for blob in table.refresh().blobs(rows["b"])]
    assert found == [value(one % 100) for one in rows["id"].to_pylist()]


def vacuumed(table: txlog.Table) -> None:
    txlog.Table(table.uri).vacuum(0, dry_run=False, enforce_retention_duration=False)


def merged(table: txlog.Table) -> None:
    merge = table.merge(pa.table({"id": [1]}), "target.id = source.id")
    merge.when_matched_update({"id": "target.id + 100"}).execute()


def transacted(table: txlog.Table) -> None:
    with table.transaction() as changes:
        changes.append(pa.table({"id": [6], "b": [value(6)]}))
        changes.update({"id": "id + 100"}, "id = 1 OR id = 6")
        changes.delete("id = 2 OR id = 4")


def written_back(table: txlog.Table) -> None:
    table.append(table.to_arrow().slice(0, 1))


VERBS: dict[str, Callable[[txlog.Table], object]] = {
    "update": lambda table: table.update({"id": "id + 100"}, "id = 1"),
    "delete": lambda table: table.delete("id = 1"),
    "merge": merged,
    "transaction": transacted,
    "overwrite": lambda table: table.overwrite(table.to_arrow().slice(0, 1), where="id = 0"),
    "append": written_back,
    "compact": lambda table: table.optimize.compact(),
}


@pytest.mark.slow
@pytest.mark.spec("BLB-8", "BLB-9")
@pytest.mark.parametrize("vectors", [False, True])
@pytest.mark.parametrize("verb", VERBS)
def test_a_write_to_a_shallow_clone_keeps_the_places_of_packs(
    verb: str, vectors: bool, tmp_path: Path
) -> None:
    table = made(tmp_path, vectors=vectors)
    clone = table.clone(tmp_path / "clone", shallow=True, register=True)
    VERBS[verb](clone)
    require_whole(clone)
    clone.delete("id = 5")  # No file of the source that a rewrite touched says the place any more.
    require_whole(clone)
    clone.optimize.compact()
    table.delete("true")
    vacuumed(table)
    require_whole(clone)
    require_whole(clone.clone(tmp_path / "deep"))


@pytest.mark.spec("BLB-9")
@pytest.mark.parametrize("vectors", [False, True])
def test_a_deep_clone_in_place_of_a_shallow_one_has_all_files(
    vectors: bool, tmp_path: Path
) -> None:
    first = made(tmp_path, vectors=vectors)
    first.delete("id = 1")
    for name in ("middle", "last"):  # The source of the last one is a deep clone itself.
        clone = first.clone(tmp_path / name, shallow=True)
        clone = first.clone(clone.uri, replace=True)
        first.delete("true")
        vacuumed(first)
        require_whole(clone)
        first = clone


@pytest.mark.spec("BLB-10")
@pytest.mark.parametrize("shallow", [False, True])
def test_other_processes_read_values_of_a_clone(shallow: bool, tmp_path: Path) -> None:
    clone = made(tmp_path).clone(tmp_path / "clone", shallow=shallow)
    rows = clone.to_arrow()
    sent = pickle.loads(pickle.dumps(clone.blobs(rows["b"])))  # Nothing was read before.
    assert [blob.read() for blob in sent] == [value(one) for one in rows["id"].to_pylist()]


@pytest.mark.spec("BLB-10")
@pytest.mark.parametrize("shallow", [False, True])
def test_the_feed_of_a_clone_has_the_bytes_of_removed_rows(shallow: bool, tmp_path: Path) -> None:
    table = made(tmp_path)
    table.alter.set_properties({"delta.enableChangeDataFeed": "true"})
    clone = table.clone(tmp_path / "clone", shallow=shallow)
    clone.delete("id < 3")
    clone.delete("id = 4")
    changes = clone.changes(1).to_arrow()
    assert sorted(changes["id"].to_pylist()) == [0, 1, 2, 4]
    found = [blob and blob.read() for blob in clone.blobs(changes["b"])]
    assert found == [value(one) for one in changes["id"].to_pylist()]
