"""Partition values as logged: by the logical names of mapped columns, and of emptied files."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyroaring import BitMap64

import txlog
from tests.examples import examples
from txlog.fragments.deletion_vector import encode_vector, inline_descriptor

Row = dict[str, Any]
SCHEMA = pa.schema([("p", pa.string()), ("q", pa.int64()), ("v", pa.int64())])
PLACES = st.tuples(st.sampled_from(["x", "y z", None]), st.sampled_from([1, 2, None]))


def logged_by(root: Path, names: Sequence[bool]) -> txlog.Table:
    """Return a table whose files are logged by logical names where `names` says so."""
    table = txlog.Table(str(root))
    schema = {c.physical_name: c.name for c in table.snapshot.schema.fields}
    logical = iter(names)
    for path in sorted((root / "_delta_log").glob("*.json")):
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        for line in lines:
            line.get("commitInfo", {}).pop("txlogCrc32", None)
            if "add" in line and next(logical, False):
                values = line["add"]["partitionValues"]
                line["add"]["partitionValues"] = {schema[k]: v for k, v in values.items()}
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return txlog.Table(str(root))


def values(rows: Sequence[Row] | pa.Table) -> list[str]:
    found = rows.to_pylist() if isinstance(rows, pa.Table) else rows
    return sorted(repr([row[name] for name in SCHEMA.names]) for row in found)


def made(root: Path, rows: Sequence[Row], names: Sequence[bool], mode: str) -> txlog.Table:
    table = txlog.Table.create(str(root), SCHEMA, ["p", "q"], {"delta.columnMapping.mode": mode})
    for row in rows:
        table.append(pa.Table.from_pylist([row], schema=SCHEMA))
    return logged_by(root, names)


@pytest.mark.slow
@settings(max_examples=examples(60))
@given(
    st.lists(PLACES, min_size=1, max_size=5),
    st.lists(st.booleans(), min_size=5, max_size=5),
    st.sampled_from(["name", "id"]),
    PLACES,
)
def test_all_readers_find_the_values_by_either_name(
    tmp_path_factory: pytest.TempPathFactory,
    places: list[tuple[str | None, int | None]],
    names: list[bool],
    mode: str,
    new: tuple[str | None, int | None],
) -> None:
    rows = [{"p": p, "q": q, "v": at} for at, (p, q) in enumerate(places)]
    root = tmp_path_factory.mktemp("t") / "t"
    table = made(root, rows, names, mode)
    assert values(table.to_arrow()) == values(rows)
    distinct = {tuple(place) for place in places}
    found = {(one["p"], one["q"]) for one in table.partitions().to_pylist()}
    assert found == {(p, None if q is None else str(q)) for p, q in distinct}
    flat = table.files(statistics="flat")
    listed = zip(flat["partition.p"].to_pylist(), flat["partition.q"].to_pylist(), strict=True)
    assert sorted(map(repr, listed)) == sorted(map(repr, places))
    for p, q in distinct:
        here = [row for row in rows if (row["p"], row["q"]) == (p, q)]
        text = [f"p = '{p}'" if p else "p IS NULL", f"q = {q}" if q else "q IS NULL"]
        assert values(table.to_arrow(where=" AND ".join(text))) == values(here)
        parts = [ds.field("p") == p if p else ds.field("p").is_null()]
        parts.append(ds.field("q") == q if q else ds.field("q").is_null())
        dataset = table.to_pyarrow_dataset()
        assert values(dataset.to_table(filter=parts[0] & parts[1])) == values(here)
    row = {"p": new[0], "q": new[1], "v": 100}
    table.overwrite(pa.Table.from_pylist([row], schema=SCHEMA), partition_mode="dynamic")
    rows = [*(r for r in rows if (r["p"], r["q"]) != new), row]
    assert values(txlog.Table(str(root)).to_arrow()) == values(rows)
    table.delete("q = 1")
    rows = [r for r in rows if r["q"] != 1]
    table.optimize.compact()
    assert values(table.to_arrow()) == values(rows)
    assert {(one["p"], one["q"]) for one in table.partitions().to_pylist()} == {
        (r["p"], None if r["q"] is None else str(r["q"])) for r in rows
    }


def with_vectors_of(root: Path, emptied: Sequence[bool]) -> txlog.Table:
    """Return a table in which vectors delete all rows of some files, as other writers leave it."""
    marks = iter(emptied)
    for path in sorted((root / "_delta_log").glob("*.json")):
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        for line in lines:
            line.get("commitInfo", {}).pop("txlogCrc32", None)
            if "add" in line and next(marks, False):
                rows = json.loads(line["add"]["stats"])["numRecords"]
                vector = encode_vector(BitMap64(range(rows)))
                line["add"]["deletionVector"] = inline_descriptor(vector, rows).to_json()
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return txlog.Table(root)


@settings(max_examples=examples(40))
@given(
    st.lists(PLACES, min_size=1, max_size=5),
    st.lists(st.booleans(), min_size=5, max_size=5),
    st.lists(PLACES, max_size=2),
    st.booleans(),
)
def test_partitions_are_those_of_the_rows(
    tmp_path_factory: pytest.TempPathFactory,
    places: list[tuple[str | None, int | None]],
    emptied: list[bool],
    gone: list[tuple[str | None, int | None]],
    checkpoint: bool,
) -> None:
    """A partition is left out if its files were removed, or if vectors delete all their rows."""
    root = tmp_path_factory.mktemp("t")
    properties = {"delta.enableDeletionVectors": "true"}
    table = txlog.Table.create(root, SCHEMA, ["p", "q"], properties)
    for at, (p, q) in enumerate(places):
        rows = [{"p": p, "q": q, "v": at}, {"p": p, "q": q, "v": -at}]
        table.append(pa.Table.from_pylist(rows, schema=SCHEMA))
    table = with_vectors_of(root, emptied)
    for p, q in gone:
        table.delete(
            (f"p = '{p}'" if p else "p IS NULL") + (f" AND q = {q}" if q else " AND q IS NULL")
        )
    if checkpoint:
        table.maintenance.checkpoint()
        table = txlog.Table(root)
    left = {(row["p"], row["q"]) for row in table.to_arrow().to_pylist()}
    listed = [(one["p"], one["q"]) for one in table.partitions().to_pylist()]
    assert sorted(map(repr, listed)) == sorted(repr((p, q and str(q))) for p, q in left)


def test_a_dynamic_overwrite_of_mapped_columns_replaces_only_its_partitions(
    tmp_path: Path,
) -> None:
    rows = [{"p": "x", "q": 1, "v": 1}, {"p": "y", "q": 1, "v": 2}]
    table = made(tmp_path / "t", rows, [], "name")
    new = {"p": "x", "q": 1, "v": 9}
    table.overwrite(pa.Table.from_pylist([new], schema=SCHEMA), partition_mode="dynamic")
    assert values(table.to_arrow()) == values([rows[1], new])


def test_fragments_of_logical_names_can_be_rewritten(tmp_path: Path) -> None:
    rows = [{"p": "x", "q": 1, "v": 1}, {"p": "y", "q": 2, "v": 2}]
    table = made(tmp_path / "t", rows, [True, True], "name")
    old = [fragment.metadata for fragment in table.fragments()]
    new = txlog.write_fragments(table.to_arrow(where="p = 'x'"), table)
    here = [one for one in old if "x" in one.adds[0].partition_values.values()]
    group = txlog.FragmentOperation.RewriteGroup(here, new)
    table.commit(txlog.FragmentOperation.Rewrite([group]))
    assert values(table.to_arrow()) == values(rows)


def test_a_renamed_partition_column_keeps_the_values_of_its_logical_name(tmp_path: Path) -> None:
    rows: list[Row] = [{"p": "x", "q": 1, "v": 1}, {"p": None, "q": 2, "v": 2}]
    table = made(tmp_path / "t", [*rows, {"p": "z", "q": 3, "v": 3}], [True, True], "name")
    table.alter.rename_column("p", "new")
    table.alter.rename_column("q", "p")
    renamed = table.to_arrow().sort_by("v").to_pylist()
    assert [(row["new"], row["p"]) for row in renamed] == [("x", 1), (None, 2), ("z", 3)]
    assert table.to_arrow(where="new = 'x' AND p = 1").num_rows == 1
    assert txlog.Table(table.uri, version=3).to_arrow().sort_by("v")["p"].to_pylist() == [
        "x", None, "z",
    ]  # fmt: skip
    assert table.refresh().doctor().findings == ()


@pytest.mark.parametrize("logical", [True, False])
def test_the_feed_keeps_logical_values_of_a_column_that_was_renamed(
    tmp_path: Path, logical: bool
) -> None:
    properties = {"delta.columnMapping.mode": "name", "delta.enableChangeDataFeed": "true"}
    table = txlog.Table.create(str(tmp_path / "t"), SCHEMA, ["p", "q"], properties)
    rows = [{"p": "x", "q": 1, "v": 1}, {"p": "y z", "q": None, "v": 2}]
    for row in rows:
        table.append(pa.Table.from_pylist([row], schema=SCHEMA))
    table = logged_by(tmp_path / "t", [logical] * 9)
    table.alter.rename_column("p", "new")
    table.delete("v = 2")
    found = table.changes(1).to_arrow().select(["new", "q", "v", "_change_type"]).to_pylist()
    assert [list(row.values()) for row in found] == [
        ["x", 1, 1, "insert"], ["y z", None, 2, "insert"], ["y z", None, 2, "delete"],
    ]  # fmt: skip
