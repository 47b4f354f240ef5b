"""Writing the change data feed: each version's changes turn the old rows into the new ones."""

import json
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import deltalake
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import txlog
from tests.examples import examples
from txlog.base.errors import InvalidInputError, SchemaMismatchError

SCHEMA = pa.schema([("k", pa.int64()), ("g", pa.string()), ("v", pa.int64())])
FEED = {"delta.enableChangeDataFeed": "true"}

Row = dict[str, Any]


def table_of(*rows: tuple[int | None, str | None, int | None]) -> pa.Table:
    return pa.Table.from_pylist([dict(zip(SCHEMA.names, row, strict=True)) for row in rows], SCHEMA)


def bag(rows: list[Row]) -> Counter[str]:
    return Counter(repr([row.get(name) for name in SCHEMA.names]) for row in rows)


def bags(changes: list[Row]) -> dict[str, Counter[str]]:
    kinds = ("insert", "delete", "update_preimage", "update_postimage")
    return {kind: bag([row for row in changes if row["_change_type"] == kind]) for kind in kinds}


def check(root: Path, *, deltalake_too: bool = True) -> None:
    """Hold the changes of each version against the rows before and after it."""
    latest = txlog.Table(root).version
    for version in range(1, latest + 1):
        before = bag(txlog.Table(root, version=version - 1).to_arrow().to_pylist())
        after = bag(txlog.Table(root, version=version).to_arrow().to_pylist())
        feed = txlog.Table(root).changes(version, version).to_arrow().to_pylist()
        found = bags(feed)
        gone = found["delete"] + found["update_preimage"]
        came = found["insert"] + found["update_postimage"]
        folded = before.copy()
        folded.update(came)
        folded.subtract(gone)
        assert +folded == after, version
        assert min(folded.values(), default=0) >= 0
        assert found["update_preimage"].total() == found["update_postimage"].total()
        if deltalake_too:
            theirs = deltalake.DeltaTable(root).load_cdf(version, version).read_all()
            assert bags(pa.table(theirs).to_pylist()) == found


STEPS: dict[str, Any] = {
    "append": lambda table: table.append(table_of((1, "a", 1), (20, "b", 2), (None, None, 3))),
    "delete some": lambda table: table.delete("k % 3 = 1"),
    "delete a group": lambda table: table.delete("g = 'a'"),
    "delete all": lambda table: table.delete(None),
    "update": lambda table: table.update({"v": "v + 100"}, "k % 2 = 0"),
    "move": lambda table: table.update({"g": "'c'"}, "v > 3"),
    "upsert": lambda table: table.upsert(table_of((2, "b", 7), (3, "a", 8), (50, "d", 9)), on="k"),
    "merge": lambda table: (
        table.merge(table_of((0, "a", 1), (6, "z", 2)), "target.k = source.k")
        .when_matched_delete("source.g = 'a'")
        .when_matched_update({"v": "source.v"})
        .when_not_matched_by_source_update({"v": "target.v - 1"}, "target.g = 'b'")
        .execute()
    ),
    "replace": lambda table: table.overwrite(table_of((4, "b", 0), (5, "b", 0)), "k = 4 OR k = 5"),
    "overwrite": lambda table: table.overwrite(table_of((7, "a", 1), (8, "b", 1))),
    "dynamic": lambda table: (
        table.overwrite(table_of((9, "a", 1)), partition_mode="dynamic")
        if table.partition_columns
        else None
    ),
    "compact": lambda table: table.optimize.compact(),
    "restore": lambda table: table.restore(1),
    "statistics": lambda table: table.optimize.compute_statistics(recompute=True),
    "two": lambda table: two(table),
}


def two(table: txlog.Table) -> None:
    with table.transaction() as tx:
        tx.append(table_of((30, "a", 1), (31, "b", 1)))
        tx.delete("k = 30 OR k = 2")
        tx.update({"v": "77"}, "k = 31 OR k = 5")
        tx.append(table_of((32, "c", 1)))


FORMS = [
    {**FEED, "delta.enableDeletionVectors": vectors, "delta.enableRowTracking": tracking}
    for vectors in ("true", "false")
    for tracking in ("false", "true")
]


@pytest.mark.slow
@pytest.mark.spec("FED-8", "FED-7")
@settings(max_examples=examples(90), deadline=None)
@given(
    form=st.sampled_from(FORMS),
    partition_by=st.sampled_from([(), ("g",)]),
    steps=st.lists(st.sampled_from(list(STEPS)), min_size=1, max_size=5),
)
def test_changes_are_the_difference_of_versions(
    form: dict[str, str], partition_by: tuple[str, ...], steps: list[str]
) -> None:
    tracked = form["delta.enableRowTracking"] == "true"
    if tracked and form["delta.enableDeletionVectors"] == "false":
        steps = [step for step in steps if step != "two"]  # Its new rows would have to move.
    with TemporaryDirectory() as folder:
        root = Path(folder) / "t"
        table = txlog.Table.create(root, SCHEMA, partition_by, form)
        table.append(table_of(*((k, "ab"[k % 2], k) for k in range(10))))
        for step in steps:
            STEPS[step](table)
        check(root, deltalake_too=False)


@pytest.mark.slow
@pytest.mark.parametrize("partition_by", [(), ("g",)])
def test_deltalake_reads_the_same_changes(tmp_path: Path, partition_by: tuple[str, ...]) -> None:
    form = {**FEED, "delta.enableDeletionVectors": "false"}
    table = txlog.Table.create(tmp_path / "t", SCHEMA, partition_by, form)
    assert (table.protocol.min_reader_version, table.protocol.min_writer_version) == (1, 4)
    table.append(table_of(*((k, "ab"[k % 2], k) for k in range(10))))
    for step in ("update", "delete some", "upsert", "merge", "replace", "two", "overwrite"):
        STEPS[step](table)
    check(tmp_path / "t")


def test_images_of_updates(tmp_path: Path) -> None:
    for vectors in ("true", "false"):
        root = tmp_path / vectors
        form = {**FEED, "delta.enableDeletionVectors": vectors}
        table = txlog.Table.create(root, SCHEMA, (), form)
        table.append(table_of((1, "a", 1), (2, "b", 2)))
        table.update({"v": "v + 10"}, "k = 2")
        changes = table.changes(2).to_arrow().sort_by("v").to_pylist()
        assert [(row["_change_type"], row["k"], row["v"]) for row in changes] == [
            ("update_preimage", 2, 2),
            ("update_postimage", 2, 12),
        ]
        assert {row["_commit_version"] for row in changes} == {2}


def cdc_of(root: Path, version: int) -> list[Row]:
    text = (root / "_delta_log" / f"{version:020d}.json").read_text(encoding="utf-8")
    return [line["cdc"] for line in map(json.loads, text.splitlines()) if "cdc" in line]


@pytest.mark.spec("FED-8")
def test_only_what_adds_and_removes_do_not_tell_is_written(tmp_path: Path) -> None:
    root = tmp_path / "t"
    table = txlog.Table.create(root, SCHEMA, ("g",), FEED)
    table.append(table_of((1, "a", 1), (2, "b", 2), (3, "b", 3)))
    table.delete("g = 'a'")  # A whole file.
    table.overwrite(table_of((1, "a", 1), (2, "b", 2), (3, "b", 3)))
    assert [cdc_of(root, version) for version in (1, 2, 3)] == [[], [], []]
    table.delete("k = 2")
    (file,) = cdc_of(root, 4)
    assert file["path"].startswith("_change_data/g=b/cdc-")
    assert (file["partitionValues"], file["dataChange"]) == ({"g": "b"}, False)
    assert (root / file["path"]).stat().st_size == file["size"]


def test_new_columns_of_a_merge(tmp_path: Path) -> None:
    table = txlog.Table.create(tmp_path / "t", SCHEMA, (), FEED)
    table.append(table_of((1, "a", 1), (2, "b", 2)))
    source = pa.table({"k": [2, 9], "g": ["n", "n"], "v": [5, 6], "w": [0.5, 1.5]})
    table.upsert(source, on="k", schema_mode="merge")
    changes = table.changes(2).to_arrow().sort_by("_change_type").to_pylist()
    assert [(row["_change_type"], row["k"], row["w"]) for row in changes] == [
        ("insert", 9, 1.5),
        ("update_postimage", 2, 0.5),
        ("update_preimage", 2, None),
    ]


def test_a_failure_leaves_no_file(tmp_path: Path) -> None:
    schema = pa.schema([("k", pa.int64()), ("small", pa.int8())])
    table = txlog.Table.create(tmp_path / "t", schema, (), FEED)
    table.append(pa.table({"k": [1, 2], "small": [1, 2]}, schema))
    before = sorted((tmp_path / "t").rglob("*.parquet"))
    with pytest.raises(SchemaMismatchError):
        table.upsert(pa.table({"k": [1, 9], "small": [5, 1000]}), on="k")

    def interrupted() -> None:
        with table.transaction() as tx:
            tx.delete("k = 1")
            raise RuntimeError("stop")

    with pytest.raises(RuntimeError, match="stop"):
        interrupted()
    assert sorted((tmp_path / "t").rglob("*.parquet")) == before


def test_the_feed_is_turned_on_later(tmp_path: Path) -> None:
    table = txlog.write(tmp_path / "t", table_of((1, "a", 1), (2, "b", 2)))
    table.alter.set_properties(FEED)
    table.delete("k = 1")
    assert table.changes(2).to_arrow()["_change_type"].to_pylist() == ["delete"]
    other = txlog.write(tmp_path / "o", pa.table({"_change_type": ["x"]}))
    with pytest.raises(InvalidInputError, match="_change_type"):
        other.alter.set_properties(FEED)
    with pytest.raises(InvalidInputError, match="_commit_version"):
        txlog.Table.create(tmp_path / "p", pa.schema([("_commit_version", pa.int64())]), (), FEED)
