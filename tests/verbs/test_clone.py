"""Clones have the same rows as their sources, and change independently."""

import os
import shutil
from pathlib import Path
from typing import Any

import deltalake
import polars as pl
import pyarrow as pa
import pytest

import txlog
from tests.verbs.test_vacuum import FORMS, SCHEMA, content, rows
from txlog.errors import (
    AlreadyExistsError,
    InvalidInputError,
    NotFoundError,
    TxlogError,
    UnsupportedFeatureError,
)

MANY = pa.table({"k": range(3000), "g": ["a b" if k % 2 else "_b" for k in range(3000)]}, SCHEMA)
TRACKED = {"delta.enableRowTracking": "true"}
KINDS = [*FORMS, TRACKED]


def source_of(root: Path, properties: dict[str, str], partition_by: tuple[str, ...] = ()) -> Any:
    table = txlog.Table.create(root, SCHEMA, partition_by, properties)
    table.append(MANY)
    table.append(rows(5000, 5001))
    table.delete("k % 7 = 1")
    return table


def make_old(root: Path) -> None:
    for path in root.rglob("*"):
        os.utime(path, (1, 1))


@pytest.mark.spec("MNT-20", "MNT-21", "MNT-22")
@pytest.mark.parametrize("properties", KINDS)
@pytest.mark.parametrize("shallow", [False, True])
def test_a_clone_is_what_its_source_was(
    tmp_path: Path, properties: dict[str, str], shallow: bool
) -> None:
    source = source_of(tmp_path / "s s", properties, ("g",))
    expected, then = content(source), content(txlog.Table(source.uri, version=1))
    clone = source.clone(tmp_path / "c%20c", shallow)
    assert (clone.version, content(clone)) == (0, expected)
    assert clone.schema == source.schema
    assert clone.properties == source.properties
    assert clone.protocol == source.protocol
    assert clone.metadata.id != source.metadata.id
    assert len(list((tmp_path / "c%20c").rglob("*.parquet"))) == (0 if shallow else 4)
    if properties == TRACKED:
        ids = ["k", "_rowid"]
        assert clone.to_arrow(ids).sort_by("k") == source.to_arrow(ids).sort_by("k")
    older = source.clone(tmp_path / "older", shallow, version=1)
    assert content(older) == then
    # Neither sees what is written to the other, and each goes on as any table does.
    source.append(rows(7000))
    clone.delete("k < 100")
    clone.append(rows(8000))
    clone.optimize.compact()
    clone.maintenance.checkpoint()
    left = txlog.Table(tmp_path / "c%20c")
    assert left.count("k = 8000") == 1
    assert left.count("k = 7000 OR k < 100") == 0
    assert content(txlog.Table(clone.uri, version=0)) == expected
    assert content(txlog.Table(source.uri, version=source.version - 1)) == expected
    clone.restore(0)
    assert content(clone) == expected
    if properties == TRACKED:
        found = clone.to_arrow(["_rowid"])["_rowid"]
        assert len(found.unique()) == len(found)
    if not shallow:
        shutil.rmtree(tmp_path / "s s")
        assert content(txlog.Table(clone.uri)) == expected


@pytest.mark.spec("MNT-22")
def test_other_engines_read_deep_clones(tmp_path: Path) -> None:
    source = source_of(tmp_path / "s", {"delta.enableDeletionVectors": "false"}, ("g",))
    source.clone(tmp_path / "d")
    expected = sorted(source.to_arrow()["k"].to_pylist())
    read = deltalake.DeltaTable(tmp_path / "d").to_pyarrow_table()["k"].to_pylist()
    assert sorted(read) == expected
    assert pl.read_delta(str(tmp_path / "d"))["k"].sort().to_list() == expected


@pytest.mark.spec("MNT-21", "MNT-22")
def test_a_clone_of_a_clone(tmp_path: Path) -> None:
    source = source_of(tmp_path / "s", {})
    expected = content(source)
    shallow = source.clone(tmp_path / "one", shallow=True)
    again = shallow.clone(tmp_path / "two", shallow=True)
    deep = again.clone(tmp_path / "three")
    assert content(again) == content(deep) == expected
    shutil.rmtree(tmp_path / "one")
    assert content(txlog.Table(again.uri)) == expected
    shutil.rmtree(tmp_path / "s")
    assert content(txlog.Table(deep.uri)) == expected
    assert deltalake.DeltaTable(tmp_path / "three").version() == 0


@pytest.mark.spec("VAC-6", "MNT-10")
def test_vacuums_heed_registered_clones(tmp_path: Path) -> None:
    source = source_of(tmp_path / "s", {})
    expected = content(source)
    told = source.clone(tmp_path / "told", shallow=True, register=True)
    source.append(rows(6000))
    untold = source.clone(tmp_path / "untold", shallow=True)
    far = told.clone(tmp_path / "far", shallow=True, register=True)
    told.overwrite(rows(1))
    source.overwrite(rows(2))
    for name in ("s", "told", "untold"):
        make_old(tmp_path / name)
    for table in (untold, told, source):
        table.vacuum(0, dry_run=False, enforce_retention_duration=False)
    assert content(txlog.Table(far.uri)) == expected
    assert content(txlog.Table(told.uri, version=0)) == expected
    with pytest.raises(TxlogError):
        txlog.Table(untold.uri).to_arrow()
    assert list(source.maintenance.clones().values()) == [told.uri]
    shutil.rmtree(tmp_path / "told")
    with pytest.raises(NotFoundError, match="forget_clone"):
        source.vacuum()
    with pytest.raises(NotFoundError, match="Choose from"):
        source.maintenance.forget_clone("other")
    source.maintenance.forget_clone(os.path.relpath(told.uri))
    source.vacuum(0, dry_run=False, enforce_retention_duration=False)
    with pytest.raises(TxlogError):
        txlog.Table(far.uri).to_arrow()


@pytest.mark.parametrize("shallow", [False, True])
def test_a_table_is_replaced_by_a_clone(tmp_path: Path, shallow: bool) -> None:
    source = source_of(tmp_path / "s", {})
    target = txlog.write(tmp_path / "t", pa.table({"other": [1]}))
    with pytest.raises(AlreadyExistsError):
        source.clone(tmp_path / "t", shallow)
    clone = source.clone(tmp_path / "t", shallow, replace=True, txn=("copy", 1))
    assert (clone.version, content(clone)) == (1, content(source))
    assert clone.metadata.id == target.metadata.id
    assert source.clone(tmp_path / "t", shallow, replace=True, txn=("copy", 1)).outcome.skipped
    source.append(rows(9000))
    source.delete("k = 5000")
    again = source.clone(tmp_path / "t", shallow, replace=True, txn=("copy", 2))
    assert content(again) == content(source)
    assert content(txlog.Table(again.uri, version=1)) == content(
        txlog.Table(source.uri, version=source.version - 2)
    )
    # Files that it had are not copied again.
    parquet = list((tmp_path / "t").glob("*.parquet"))
    assert len(parquet) == (1 if shallow else 1 + source.files().num_rows)
    assert again.history(1)[0]["operation"] == "CLONE"
    same = source.clone(tmp_path / "t", shallow, replace=True)
    assert content(same) == content(source)
    assert len({f.fragment_id for f in same.fragments()}) == len(same.fragments())


@pytest.mark.spec("MNT-22")
def test_a_copy_takes_no_place_and_a_failure_leaves_none(tmp_path: Path) -> None:
    source = source_of(tmp_path / "s", {})
    name = source.files()["path"][0].as_py()
    (tmp_path / "c").mkdir()
    (tmp_path / "c" / name).write_bytes(b"of another")
    clone = source.clone(tmp_path / "c")
    assert content(clone) == content(source)
    assert (tmp_path / "c" / name).read_bytes() == b"of another"
    (tmp_path / "s" / name).unlink()
    with pytest.raises(NotFoundError):
        source.clone(tmp_path / "d")
    assert not list((tmp_path / "d").rglob("*.*"))
    assert source.clone(tmp_path / "e", shallow=True).count() == source.count()


@pytest.mark.spec("MNT-23")
def test_what_cannot_be_cloned_is_refused(tmp_path: Path) -> None:
    source = source_of(tmp_path / "s", {})
    for place in (tmp_path / "s", tmp_path / "s" / "in", tmp_path):
        with pytest.raises(
            (InvalidInputError, AlreadyExistsError), match=r"is inside the folder|already"
        ):
            source.clone(place)
    with pytest.raises(InvalidInputError, match="needs no file"):
        source.clone(tmp_path / "c", register=True)
    with pytest.raises(InvalidInputError, match="no such property"):
        source.clone(tmp_path / "c", properties={"delta.enableNothing": "true"})
    with pytest.raises(UnsupportedFeatureError, match="allowed_schemes"):
        source.clone("memory://clone", shallow=True)
    assert content(source.clone("memory://clone")) == content(source)
    changed = source.clone(tmp_path / "c", properties={"delta.enableChangeDataFeed": "true"})
    assert "changeDataFeed" in changed.protocol.writer_features
    changed.append(rows(1))
    assert changed.changes(1).to_arrow().num_rows == 1


def test_columns_in_files_of_their_own_are_cloned(tmp_path: Path) -> None:
    source = source_of(tmp_path / "s", {"delta.feature.txlog.fragments": "supported"})
    source.alter.add_columns({"twice": "2 * k"})
    for shallow in (False, True):
        clone = source.clone(tmp_path / f"c{shallow}", shallow)
        assert content(clone) == content(source)
        clone.append(pa.table({"k": [1], "g": ["x"], "twice": [2]}))
        clone.alter.add_columns({"more": "k"})
        assert clone.count("twice = 2 * k AND more = k") == source.count() + 1
        with pytest.raises(UnsupportedFeatureError, match="new location"):
            source.clone(tmp_path / f"c{shallow}", shallow, replace=True)
    shutil.rmtree(tmp_path / "s")
    assert txlog.Table(tmp_path / "cFalse").to_arrow().num_rows
