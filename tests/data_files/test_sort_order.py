"""Files of tables that declare an order of rows."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import txlog
from tests.examples import examples
from tests.moved import moved
from txlog.data_files.options import WriteOptions
from txlog.data_files.sort_order import files_in_order
from txlog.scan.plan import plan_scan

SCHEMA = pa.schema([("k", pa.int64()), ("s", pa.string()), ("n", pa.int64())])


def files_of(table: txlog.Table) -> list[pa.Table]:
    """Return the rows of each live file, as it is stored."""
    names = [path.rpartition("/")[2] for path in table.files(["path"])["path"].to_pylist()]
    found = [next(Path(table.uri).rglob(name)) for name in names]
    return [pq.ParquetFile(path).read() for path in found]


def is_sorted(rows: pa.Table, names: list[str]) -> bool:
    places = [rows.schema.names.index(name) for name in names]
    columns = [rows.column(place).to_pylist() for place in places]
    keys = [
        [
            (value is None, value or "") if isinstance(value, str | None) else (False, value)
            for value in row
        ]
        for row in zip(*columns, strict=True)
    ]
    return all(before <= after for before, after in itertools.pairwise(keys))


def rows_of(table: txlog.Table) -> list[tuple[Any, ...]]:
    found = table.to_arrow().to_pylist()
    return sorted(((one["k"], one["s"], one["n"]) for one in found), key=repr)


values = st.tuples(
    st.integers(0, 9), st.one_of(st.none(), st.sampled_from("abcde")), st.integers(-9, 9)
)


@pytest.mark.slow
@pytest.mark.spec("MNT-34")
@settings(max_examples=examples(60), deadline=None)
@given(
    data=st.data(),
    mapped=st.booleans(),
    parts=st.lists(st.lists(values, min_size=1, max_size=20), min_size=1, max_size=4),
)
def test_every_write_sorts_the_rows_of_its_files(
    tmp_path_factory: pytest.TempPathFactory, data: Any, mapped: bool, parts: list[Any]
) -> None:
    root = tmp_path_factory.mktemp("sorted") / "t"
    properties = {
        "delta.enableDeletionVectors": "true" if data.draw(st.booleans()) else "false",
        "delta.enableChangeDataFeed": "true" if data.draw(st.booleans()) else "false",
        "delta.enableRowTracking": "true" if data.draw(st.booleans()) else "false",
        "delta.columnMapping.mode": "name" if mapped else "none",
        "txlog.rowGroupRows": "3",
    }
    plain = txlog.Table.create(root.with_name("plain"), SCHEMA, properties=properties)
    table = txlog.Table.create(root, SCHEMA, properties={**properties, "txlog.sortBy": "k, s"})
    for rows in parts:
        given = pa.table(dict(zip("ksn", map(list, zip(*rows, strict=True)), strict=True)), SCHEMA)
        limit = data.draw(st.sampled_from([None, 2, 5]))
        verb = data.draw(st.sampled_from(["append", "append", "update", "delete", "merge"]))
        for one in (table, plain):
            options = WriteOptions(max_rows_per_file=limit)
            if verb == "append":
                one.append(given, options=options)
            elif verb == "update":
                one.append(given)
                one.update({"k": "9 - k"}, "n > 0")
            elif verb == "delete":
                one.append(given)
                one.delete("k = 3")
            else:
                source = pa.table({"k": [3, 99], "s": ["z", "y"], "n": [1, 2]}, SCHEMA)
                one.append(given)
                merge = one.merge(source, "target.k = source.k")
                merge.when_matched_update({"s": "source.s"}).when_not_matched_insert_all().execute()
        assert rows_of(table) == rows_of(plain)
        stored = ["k", "s"]
        if mapped:
            stored = [table._snapshot.schema.get(name).name_in_files("name") for name in stored]
        assert all(is_sorted(one, stored) for one in files_of(table))
    before = rows_of(table)
    table.optimize.compact()
    assert rows_of(table) == before
    assert all(is_sorted(one, stored) for one in files_of(table))
    assert table.optimize.compact().version is None


def overlaps(table: txlog.Table) -> int:
    snapshot = table._snapshot
    plan = plan_scan(snapshot, table._open.files().live)
    found = files_in_order(snapshot, plan.files.rows, plan.fragments, "k")
    return sum(is_over for files in found for _, is_over in files)


@pytest.mark.spec("MNT-34")
def test_compaction_restores_the_order_across_files(tmp_path: Path) -> None:
    properties = {"txlog.sortBy": "k", "delta.targetFileSize": "20kb"}
    table = txlog.Table.create(tmp_path / "t", SCHEMA, properties=properties)
    for start in range(4):
        keys = range(start, 40_000, 4)
        some = pa.table({"k": keys, "s": [f"{key * 7919 % 99991}" for key in keys], "n": keys})
        table.append(some.cast(SCHEMA), options=WriteOptions(max_rows_per_file=5_000))
    assert overlaps(table) == 8
    (found,) = [one for one in table.doctor().findings if one.code == "out-of-order"]
    assert found.count == 8
    assert "optimize.compact()" in found.remedy
    before = rows_of(table)
    table.optimize.compact()
    assert overlaps(table) == 0
    assert rows_of(table) == before
    assert len(files_of(table)) > 2
    assert all(is_sorted(one, ["k"]) for one in files_of(table))
    assert table.optimize.compact().version is None
    assert not [one for one in table.doctor().findings if one.code == "out-of-order"]
    table.append(pa.table({"k": [-1, 50_000], "s": ["a", "b"], "n": [1, 2]}, SCHEMA))
    table.optimize.compact()
    assert overlaps(table) == 0
    assert table.count() == 40_002


def test_look_ups_use_ordered_runs(tmp_path: Path) -> None:
    table = txlog.Table.create(tmp_path / "t", SCHEMA, properties={"txlog.sortBy": "k"})
    table.indexes.create("k", name="by_k")
    table.append(pa.table({"k": [5, 1, 3], "s": ["e", "a", "c"], "n": [5, 1, 3]}, SCHEMA))
    table.lookup([3])
    (segment,) = table._context.lookups.cache().segments.segments(table._context.store, "by_k")
    assert [one.run.form for one in segment.runs] == ["ordered"]


def test_a_small_memory_makes_small_files(tmp_path: Path) -> None:
    keys = [number * 7919 % 10_007 for number in range(10_000)]
    rows = pa.table({"k": keys, "s": [str(key) for key in keys], "n": keys}, SCHEMA)
    table = txlog.Table.create(tmp_path / "t", SCHEMA, properties={"txlog.sortBy": "k"})
    with moved({"txlog.data_files.write:_SORTED_BYTES": 50_000}):
        table.append(rows.to_reader(max_chunksize=500))
    found = files_of(table)
    assert len(found) > 3
    assert all(is_sorted(one, ["k"]) for one in found)
    assert table.count() == 10_000


@pytest.mark.parametrize(
    ("columns", "reason"),
    [
        ("x", "the schema has no such column"),
        ("p", "it is a partition column"),
        ("st", "values of type struct<a:long> have no order"),
        ("st.a", "it is a field of a struct"),
        ("k, K", "it is named twice"),
        ("k,", "expected column names"),
    ],
)
def test_columns_that_are_refused(tmp_path: Path, columns: str, reason: str) -> None:
    schema = pa.schema(
        [("k", pa.int64()), ("p", pa.string()), ("st", pa.struct([("a", pa.int64())]))]
    )
    make = {"partition_by": ["p"]}
    with pytest.raises(txlog.InvalidInputError, match=reason):
        txlog.Table.create(tmp_path / "t", schema, properties={"txlog.sortBy": columns}, **make)
    table = txlog.Table.create(tmp_path / "t", schema, **make)
    with pytest.raises(txlog.InvalidInputError, match=reason):
        table.alter.set_properties({"txlog.sortBy": columns})


def test_renamed_and_dropped_columns(tmp_path: Path) -> None:
    properties = {"txlog.sortBy": "k,s", "delta.columnMapping.mode": "name"}
    table = txlog.Table.create(tmp_path / "t", SCHEMA, properties=properties)
    assert table.sort_columns == ["k", "s"]
    table.alter.rename_column("k", "key.1")
    assert table.sort_columns == ["key.1", "s"]
    with pytest.raises(txlog.InvalidInputError, match="rows are sorted by it"):
        table.alter.drop_columns(["s"])
    table.append(pa.table({"key.1": [2, 1], "s": ["a", "b"], "n": [1, 2]}))
    assert table.to_arrow()["key.1"].to_pylist() == [1, 2]
    table.overwrite(pa.table({"s": ["b", "a"]}), schema_mode="overwrite")
    assert table.sort_columns == []
    assert "txlog.sortBy" not in table.properties
