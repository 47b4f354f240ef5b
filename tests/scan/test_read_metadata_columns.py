"""Metadata columns: addresses of all tables, ids and versions of the rows of those that track."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import txlog
from txlog.base.errors import InvalidInputError, LogCorruptError, UnsupportedFeatureError
from txlog.fragments.ids import PROVISIONAL
from txlog.testing import unsealed

ID_COLUMN, VERSION_COLUMN = "_row-id-col-1f", "_row-commit-version-col-1f"
ALL = ["_rowid", "_rowaddr", "_fragid"]


def rows(table: txlog.Table, columns: list[str], where: str | None = None) -> list[dict[str, Any]]:
    return table.to_arrow(columns, where).to_pylist()


@pytest.mark.spec("FRG-10")
def test_addresses_go_by_fragment_and_position(tmp_path: Path) -> None:
    table = txlog.write(tmp_path / "t", pa.table({"a": [10, 11, 12, 13]}))
    table.append(pa.table({"a": [20, 21]}))
    table.delete("a IN (10, 12)")
    found = table.to_arrow([*ALL, "a"])
    assert found.schema.names == [*ALL, "a"]
    assert [field.type for field in found.schema] == [
        pa.int64(),
        pa.int64(),
        pa.int32(),
        pa.int64(),
    ]
    ids = sorted(fragment.id for fragment in table.fragments())
    first, second = ids[0] << 32, ids[1] << 32
    assert found["_rowaddr"].to_pylist() == [first + 1, first + 3, second, second + 1]
    assert found["_fragid"].to_pylist() == [ids[0]] * 2 + [ids[1]] * 2
    assert found["_rowid"] == found["_rowaddr"]  # Nobody keeps ids here.
    assert found["a"].to_pylist() == [11, 13, 20, 21]
    assert not table.snapshot.has_stable_row_ids


def test_addresses_are_those_of_physical_rows_when_row_groups_are_left_out(tmp_path: Path) -> None:
    table = txlog.Table.create(tmp_path / "t", pa.schema([("a", pa.int64())]))
    path = "groups.parquet"
    pq.write_table(pa.table({"a": list(range(100))}), tmp_path / "t" / path, row_group_size=10)
    add(table, path, 1)
    table.refresh()
    found = rows(table, ["_rowaddr", "a"], "a >= 75 AND a < 77")
    assert [row["_rowaddr"] - (PROVISIONAL << 32) for row in found] == [75, 76]


def test_predicates_may_ask_for_them(tmp_path: Path) -> None:
    table = txlog.write(tmp_path / "t", pa.table({"a": [10, 11, 12, 13]}))
    table.append(pa.table({"a": [20, 21]}))
    last = max(fragment.id for fragment in table.fragments())
    assert rows(table, ["a"], f"_fragid = {last}") == [{"a": 20}, {"a": 21}]
    assert rows(table, ["a"], f"_rowaddr = {last << 32 | 1}") == [{"a": 21}]
    assert table.count(f"_fragid = {last} AND a > 20") == 1


@pytest.mark.spec("FRG-10")
def test_a_column_of_the_table_hides_the_one_of_its_name(tmp_path: Path) -> None:
    table = txlog.write(tmp_path / "t", pa.table({"_rowid": ["mine"], "a": [1]}))
    assert rows(table, ["_rowid", "a"]) == [{"_rowid": "mine", "a": 1}]
    assert table.to_arrow().column_names == ["_rowid", "a"]


@pytest.mark.spec("FRG-11")
@pytest.mark.parametrize("column", ["_rowaddr", "_rowid", "_fragid"])
def test_a_write_does_not_go_by_them(tmp_path: Path, column: str) -> None:
    table = txlog.write(tmp_path / "t", pa.table({"a": [1, 2]}))
    with pytest.raises(InvalidInputError, match=r"metadata columns.*`_rowid` if the table tracks"):
        table.delete(f"{column} = 0")
    with pytest.raises(InvalidInputError, match="metadata columns"):
        table.update({"a": "0"}, f"{column} = 0")
    with pytest.raises(InvalidInputError, match=r"metadata columns.*Use columns of the table$"):
        table.diff(0, where=f"{column} = 0")
    assert table.refresh().version == 0


@pytest.mark.spec("FRG-11")
@pytest.mark.parametrize("column", ["_rowaddr", "_fragid"])
def test_with_row_tracking_a_write_goes_by_ids_alone(tmp_path: Path, column: str) -> None:
    tracked = {"delta.enableRowTracking": "true"}
    table = txlog.write(tmp_path / "t", pa.table({"a": [1, 2, 3]}), properties=tracked)
    with pytest.raises(InvalidInputError, match="metadata columns"):
        table.delete(f"_rowid = 0 OR {column} = 1")
    first, second = (txlog.Table(tmp_path / "t") for _ in range(2))
    first.update({"a": "10"}, "_rowid = 0")
    second.delete("_rowid = 0 AND a = 10")  # The row moved; its id is still its own.
    second.delete("_rowid = 2")
    assert rows(second, ["a", "_rowid"]) == [{"a": 2, "_rowid": 1}]


def test_versions_of_rows_need_row_tracking(tmp_path: Path) -> None:
    table = txlog.write(tmp_path / "t", pa.table({"a": [1]}))
    for arguments in (
        {"columns": ["_row_last_updated_at_version"]},
        {"where": "_row_last_updated_at_version > 1"},
    ):
        with pytest.raises(UnsupportedFeatureError, match=r"delta\.enableRowTracking"):
            table.scan(**arguments)  # type: ignore[arg-type]


def add(table: txlog.Table, path: str, version: int, **fields: Any) -> None:
    """Commit a data file as another writer would."""
    root = Path(table.uri)
    body = {
        "path": path,
        "partitionValues": {},
        "size": (root / path).stat().st_size,
        "modificationTime": 0,
        "dataChange": True,
        **fields,
    }
    log = root / "_delta_log" / f"{version:020d}.json"
    log.write_bytes(orjson.dumps({"add": body}))


@pytest.fixture
def tracked(tmp_path: Path) -> Callable[..., txlog.Table]:
    """Return a maker of a table that another writer made, with row tracking."""

    def made(enabled: str = "true", *, feature: bool = True) -> txlog.Table:
        root = tmp_path / "tracked"
        properties = {"delta.appendOnly": "false", "delta.enableDeletionVectors": "true"}
        txlog.Table.create(root, pa.schema([("a", pa.int64())]), properties=properties)
        path = root / "_delta_log" / f"{0:020d}.json"
        lines = [orjson.loads(line) for line in unsealed(path.read_bytes()).splitlines()]
        for line in lines:
            if "protocol" in line:
                writers = line["protocol"]["writerFeatures"]
                writers.extend(["rowTracking", "domainMetadata"] if feature else [])
            if "metaData" in line:
                line["metaData"]["configuration"] |= {
                    "delta.enableRowTracking": enabled,
                    "delta.rowTracking.materializedRowIdColumnName": ID_COLUMN,
                    "delta.rowTracking.materializedRowCommitVersionColumnName": VERSION_COLUMN,
                }
        path.write_bytes(b"\n".join(map(orjson.dumps, lines)))
        return txlog.Table(root)

    return made


TRACKED = ["_rowid", "_row_last_updated_at_version"]


@pytest.mark.spec("FRG-11")
def test_fresh_rows_count_from_the_base(tracked: Callable[..., txlog.Table]) -> None:
    table = tracked()
    pq.write_table(pa.table({"a": [1, 2, 3]}), Path(table.uri) / "x.parquet")
    add(table, "x.parquet", 1, baseRowId=100, defaultRowCommitVersion=1)
    table.refresh()
    assert table.snapshot.has_stable_row_ids
    assert [tuple(row.values()) for row in rows(table, TRACKED)] == [(100, 1), (101, 1), (102, 1)]
    assert rows(table, ["a"], "_rowid = 101") == [{"a": 2}]


@pytest.mark.spec("FRG-11")
def test_rows_that_moved_bring_their_ids_along(tracked: Callable[..., txlog.Table]) -> None:
    table = tracked()
    data = pa.table(
        {
            ID_COLUMN: pa.array([7, None, 3], pa.int64()),
            "a": [1, 2, 3],
            VERSION_COLUMN: pa.array([None, 2, 4], pa.int64()),
        }
    )
    pq.write_table(data, Path(table.uri) / "x.parquet")
    add(table, "x.parquet", 1, baseRowId=50, defaultRowCommitVersion=9)
    table.refresh()
    assert [tuple(row.values()) for row in rows(table, TRACKED)] == [(7, 9), (51, 2), (3, 4)]
    assert table.to_arrow().column_names == ["a"]
    assert rows(table, ["a"], "_rowid < 10") == [{"a": 1}, {"a": 3}]


@pytest.mark.spec("FRG-11")
@pytest.mark.parametrize(("enabled", "feature"), [("false", True), ("true", False)])
def test_ids_count_only_where_row_tracking_is_in_force(
    tracked: Callable[..., txlog.Table], enabled: str, feature: bool
) -> None:
    table = tracked(enabled, feature=feature)
    pq.write_table(pa.table({"a": [1]}), Path(table.uri) / "x.parquet")
    add(table, "x.parquet", 1, baseRowId=100, defaultRowCommitVersion=1)
    table.refresh()
    assert not table.snapshot.has_stable_row_ids
    assert rows(table, ["_rowid"]) == [{"_rowid": PROVISIONAL << 32}]


@pytest.mark.parametrize(
    ("column", "given"),
    [
        ("_rowid", {"defaultRowCommitVersion": 1}),
        ("_row_last_updated_at_version", {"baseRowId": 0}),
    ],
)
def test_a_file_without_ids_is_named(
    tracked: Callable[..., txlog.Table], column: str, given: dict[str, int]
) -> None:
    table = tracked()
    pq.write_table(pa.table({"a": [1]}), Path(table.uri) / "x.parquet")
    add(table, "x.parquet", 1, **given)
    table.refresh()
    with pytest.raises(LogCorruptError, match=r"x\.parquet"):
        rows(table, [column])
    assert rows(table, ["a"]) == [{"a": 1}]
