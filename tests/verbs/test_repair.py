"""Repairs of tables whose rows have columns in several files, beside the log as JSON."""

import json
from itertools import count
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import txlog
from tests.data_files.test_column_updates import FEATURE, FEED, TRACKED, by
from tests.examples import examples
from tests.scan.test_files import SCHEMA, logged, logical

fresh = count()
FRAGMENTS = 3


def layered(path: Path, properties: dict[str, str]) -> txlog.Table:
    """Return a table of fragments of ten rows, with files of columns and layers."""
    table = txlog.Table.create(path, SCHEMA, properties={**FEATURE, **properties})
    for first in range(0, 10 * FRAGMENTS, 10):
        keys = list(range(first, first + 10))
        table.append(pa.table({"k": keys, "v": keys, "t": list(map(str, keys))}, schema=SCHEMA))
    table.alter.add_columns({"w": "v + 1", "gone": "v"})
    table.alter.add_columns({"unused": "v"})
    with by("layer"):
        table.update({"v": "-v"}, "k % 4 = 1")
        table.update({"unused": "1"}, "k % 4 = 2")
    with by("whole"):
        table.update({"t": "'x'"}, "k < 15")
    table.delete("k IN (3, 27)")
    table.alter.drop_columns("gone")
    table.alter.drop_columns("unused")
    return table


@pytest.mark.slow
@settings(max_examples=examples(40), deadline=None)
@given(st.sets(st.integers(0, 30), max_size=3), st.booleans(), st.sampled_from(["none", "name"]))
@pytest.mark.spec("VAC-22")
def test_rows_leave_if_one_of_their_files_is_gone(
    tmp_path_factory: pytest.TempPathFactory, lost: set[int], tracked: bool, mode: str
) -> None:
    properties = {"delta.columnMapping.mode": mode} if mode != "none" else {}
    properties |= TRACKED if tracked else FEED
    table = layered(tmp_path_factory.getbasetemp() / f"repair{next(fresh)}", properties)
    before = table.to_arrow().sort_by("k")
    files = logged(table)
    paths = sorted(files)
    chosen = {paths[at % len(paths)] for at in lost}
    known = {*logical(table)}
    if tracked:
        known.add(table.metadata.configuration[
            "delta.rowTracking.materializedRowCommitVersionColumnName"
        ])  # fmt: skip
    broken, leaving = set(), set(chosen)
    for path in chosen:
        tags = files[path]["tags"]
        if "txlog.fields" not in tags or known & set(json.loads(tags["txlog.fields"])):
            broken.add(tags["txlog.fragmentId"])
        Path(table.uri, path).unlink()
    leaving |= {path for path in paths if files[path]["tags"]["txlog.fragmentId"] in broken}
    numbers = sorted({file["tags"]["txlog.fragmentId"] for file in files.values()})
    gone = {key for key in range(10 * FRAGMENTS) if numbers[key // 10] in broken}

    planned = table.maintenance.repair(missing_files=True)
    assert set(planned["path"].to_pylist()) == leaving
    assert sum(planned["rows"].to_pylist()) == len(gone - {3, 27})
    told = {row["path"] for row in planned.to_pylist() if row["reason"].startswith("its data")}
    assert told == chosen
    table.maintenance.repair(False, missing_files=True)
    again = txlog.Table(table.uri)
    keys = pa.array(sorted(set(range(10 * FRAGMENTS)) - gone), pa.int64())
    kept = before.filter(pa.compute.is_in(before["k"], value_set=keys))
    assert again.to_arrow().sort_by("k").equals(kept)
    assert set(logged(again)) == set(paths) - leaving
    assert again.maintenance.repair(missing_files=True).num_rows == 0
    assert again.doctor(sample=None).ok


@pytest.mark.slow
def test_a_repair_beside_an_update_of_the_same_rows_goes_on(tmp_path: Path) -> None:
    table = layered(tmp_path / "t", {})
    before = table.to_arrow().sort_by("k")
    files = table.files(["path", "kind"], where="k = 0").to_pylist()
    path = next(file["path"] for file in files if file["kind"] == "layer")
    Path(table.uri, path).unlink()
    late = txlog.Table(table.uri)
    with by("layer"):  # It reads no column of the missing file.
        txlog.Table(table.uri).update({"w": "0"}, "k = 2")
    late.maintenance.repair(False, missing_files=True)
    assert late.to_arrow().sort_by("k").equals(before.filter(pa.compute.greater(before["k"], 9)))
