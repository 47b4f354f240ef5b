"""Paths and links out of the table, in reading, writing and deleting."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import txlog

ROWS = pa.table({"a": [1, 2, 3]})
SECRET = pa.table({"a": [7, 8, 9]})
INSIDE = {"txlog.paths": "inside"}


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """A folder with a file that nobody should read or delete."""
    folder = tmp_path / "outside"
    folder.mkdir()
    pq.write_table(SECRET, folder / "secret.parquet")
    return folder


def table_with(root: Path, path: str, **fields: Any) -> Path:
    """Make a table with rows of its own, and a second version that adds a file at a path."""
    txlog.write(root, ROWS)
    body = {
        "path": path, "partitionValues": {}, "size": 1, "modificationTime": 0, "dataChange": True,
    }  # fmt: skip
    text = json.dumps({"add": {**body, **fields}})
    (root / "_delta_log" / f"{1:020d}.json").write_text(text + "\n")
    return root


ABSOLUTE = ("{out}/secret.parquet", "file://{out}/secret.parquet", "FILE:{out}/secret.parquet",
            "file://localhost{out}/secret.parquet", "{out}/../outside/secret.parquet")  # fmt: skip
CLIMBING = ("../outside/secret.parquet", "%2e%2e/outside/secret.parquet", "x/../../outside/s",
            "..%2Foutside/secret.parquet", "./../outside/secret.parquet")  # fmt: skip


@pytest.mark.parametrize("path", ABSOLUTE)
def test_an_absolute_path_is_followed_unless_the_table_is_confined(
    tmp_path: Path, outside: Path, path: str
) -> None:
    root = table_with(tmp_path / "t", path.format(out=outside))
    assert sorted(txlog.Table(root).to_arrow()["a"].to_pylist()) == [1, 2, 3, 7, 8, 9]
    confined = txlog.Table(root, storage_options=INSIDE)
    with pytest.raises(txlog.UnsupportedFeatureError, match=r"outside of the table"):
        confined.to_arrow()
    with pytest.raises(txlog.UnsupportedFeatureError, match=r"outside of the table"):
        confined.to_pyarrow_dataset().to_table()
    with pytest.raises(txlog.UnsupportedFeatureError, match=r"outside of the table"):
        confined.take([4])


@pytest.mark.parametrize("path", CLIMBING)
def test_a_relative_path_never_leads_out(tmp_path: Path, outside: Path, path: str) -> None:
    table = txlog.Table(table_with(tmp_path / "t", path))
    with pytest.raises(txlog.LogCorruptError, match="leads out of the table"):
        table.to_arrow()


@pytest.mark.parametrize("scheme", ["s3", "http", "memory", "gs", "hdfs"])
def test_another_scheme_is_not_followed(tmp_path: Path, scheme: str) -> None:
    root = table_with(tmp_path / "t", f"{scheme}://127.0.0.1:1/secret.parquet")
    with pytest.raises(txlog.UnsupportedFeatureError, match=scheme):
        txlog.Table(root).to_arrow()
    allowed = {"txlog.allowed_schemes": scheme, **INSIDE}
    with pytest.raises(txlog.UnsupportedFeatureError, match="outside of the table"):
        txlog.Table(root, storage_options=allowed).to_arrow()


def test_a_vector_or_a_sidecar_outside_is_not_read(tmp_path: Path, outside: Path) -> None:
    txlog.write(tmp_path / "t", ROWS, properties={"delta.enableDeletionVectors": "true"})
    table = txlog.Table(tmp_path / "t")
    vector = {
        "storageType": "p", "pathOrInlineDv": f"{outside}/secret.parquet", "offset": 1,
        "sizeInBytes": 40, "cardinality": 1,
    }  # fmt: skip
    file = table.files()["path"][0].as_py()
    body = {
        "path": file, "partitionValues": {}, "size": 1, "modificationTime": 0, "dataChange": True,
        "deletionVector": vector,
    }  # fmt: skip
    commit = tmp_path / "t" / "_delta_log" / f"{1:020d}.json"
    commit.write_text(json.dumps({"add": body}) + "\n")
    with pytest.raises(txlog.UnsupportedFeatureError, match="outside of the table"):
        txlog.Table(tmp_path / "t", storage_options=INSIDE).to_arrow()


@pytest.mark.parametrize("kind", ["file", "folder", "log"])
def test_a_link_is_not_followed_out_of_a_confined_table(
    tmp_path: Path, outside: Path, kind: str
) -> None:
    root = tmp_path / "t"
    path = {"file": "x.parquet", "folder": "d/secret.parquet", "log": "x.parquet"}[kind]
    table_with(root, path)
    if kind == "folder":
        (root / "d").symlink_to(outside)
    else:
        (root / path).symlink_to(outside / "secret.parquet")
    if kind == "log":
        (root / "_delta_log").rename(outside / "log")
        (root / "_delta_log").symlink_to(outside / "log")
    assert txlog.Table(root).count() == 6
    with pytest.raises(txlog.UnsupportedFeatureError, match="symbolic link"):
        txlog.Table(root, storage_options=INSIDE).to_arrow()


def test_a_confined_table_is_a_table(tmp_path: Path) -> None:
    """Its root may be a link; links inside that stay inside are followed; every verb works."""
    (tmp_path / "real").mkdir()
    (tmp_path / "t").symlink_to(tmp_path / "real")
    txlog.write(tmp_path / "t", ROWS, storage_options=INSIDE)
    table = txlog.Table(tmp_path / "t", storage_options=INSIDE)
    table.append(ROWS)
    table.delete("a = 1")
    table.maintenance.checkpoint()
    (file, *_) = (tmp_path / "real").glob("*.parquet")
    file.rename(tmp_path / "real" / "kept")
    file.symlink_to(tmp_path / "real" / "kept")
    assert txlog.Table(tmp_path / "t", storage_options=INSIDE).count() == 4
    assert table.to_arrow().num_rows == 4
    table.vacuum(dry_run=True)


def test_the_option_has_two_values(tmp_path: Path) -> None:
    txlog.write(tmp_path, ROWS)
    with pytest.raises(txlog.InvalidInputError, match="'inside' or 'anywhere'"):
        txlog.Table(tmp_path, storage_options={"txlog.paths": "yes"})
    assert txlog.Table(tmp_path, storage_options={"txlog.paths": "anywhere"}).count() == 3


def test_nothing_is_written_through_a_link_that_leads_out(tmp_path: Path, outside: Path) -> None:
    parts = pa.table({"p": ["a", "b"], "a": [1, 2]})
    root = tmp_path / "t"
    table = txlog.write(root, parts, partition_by=["p"])
    table = txlog.Table(root)
    before = sorted(outside.iterdir())
    (root / "p=c").symlink_to(outside)
    with pytest.raises(txlog.StoreError, match="leads out of the table"):
        table.append(pa.table({"p": ["c"], "a": [3]}))
    (root / "_delta_log" / "_sidecars").symlink_to(outside)
    table.alter.set_properties({"delta.checkpointPolicy": "v2"})
    with pytest.raises(txlog.StoreError, match="leads out of the table"):
        table.maintenance.checkpoint()
    assert sorted(outside.iterdir()) == before
    assert txlog.Table(root).count() == 2


def test_nothing_outside_is_deleted(tmp_path: Path, outside: Path) -> None:
    root = table_with(tmp_path / "t", f"{outside}/secret.parquet")
    (root / "linked").symlink_to(outside)
    table = txlog.Table(root)
    table.delete(None)
    table.vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)
    assert (outside / "secret.parquet").exists()
