"""Manifests equal those that deltalake makes of the same table."""

import shutil
from pathlib import Path

import deltalake
import pyarrow as pa
import pytest

import txlog
from txlog.base.errors import InvalidInputError, UnsupportedFeatureError

PLAIN = {"delta.enableDeletionVectors": "false"}
ROWS = pa.table({"k": [1, 2, 3, 4], "g": ["a b", "c%d", "c%d", None]})


def lists(root: Path) -> dict[str, list[str]]:
    return {
        path.relative_to(root).parent.as_posix(): sorted(path.read_text().splitlines())
        for path in (root / "_symlink_format_manifest").rglob("manifest")
    }


@pytest.mark.parametrize("partition_by", [(), ("g",)])
def test_they_are_those_of_deltalake(tmp_path: Path, partition_by: tuple[str, ...]) -> None:
    rows = ROWS.filter(pa.compute.is_in(ROWS["k"], pa.array([1]))) if partition_by else ROWS
    table = txlog.write(tmp_path / "t", rows, partition_by=partition_by, properties=PLAIN)
    table.append(rows)
    assert table.maintenance.generate() == 1
    ours = lists(tmp_path / "t")
    shutil.rmtree(tmp_path / "t" / "_symlink_format_manifest")
    deltalake.DeltaTable(tmp_path / "t").generate()
    theirs = lists(tmp_path / "t")
    assert len(next(iter(ours.values()))) == 2
    names = [[Path(line).name for line in of_one] for of_one in (*ours.values(), *theirs.values())]
    assert names[0] == names[1]


def test_partitions_that_are_no_more_have_no_list(tmp_path: Path) -> None:
    table = txlog.write(tmp_path / "t", ROWS, partition_by="g", properties=PLAIN)
    assert table.maintenance.generate() == 3
    for files in lists(tmp_path / "t").values():
        for uri in files:
            assert Path(uri.removeprefix("file://")).is_file()
    table.delete("g = 'a b'")
    assert table.maintenance.generate() == 2
    assert len(lists(tmp_path / "t")) == 2
    table.delete(None)
    assert table.maintenance.generate() == 0
    empty = txlog.Table.create(tmp_path / "e", ROWS.schema)
    assert empty.maintenance.generate() == 1
    assert lists(tmp_path / "e") == {"_symlink_format_manifest": []}


def test_a_table_that_files_do_not_tell_is_refused(tmp_path: Path) -> None:
    table = txlog.write(tmp_path / "t", ROWS)
    table.delete("k = 2")
    with pytest.raises(UnsupportedFeatureError, match="deletion vectors"):
        table.maintenance.generate()
    table.optimize.compact(max_deleted_fraction=0)
    assert table.maintenance.generate() == 1
    with pytest.raises(InvalidInputError, match="Use symlink_format_manifest"):
        table.maintenance.generate("other")
    table.alter.set_properties({"delta.columnMapping.mode": "name"})
    with pytest.raises(UnsupportedFeatureError, match="other names"):
        table.maintenance.generate()
