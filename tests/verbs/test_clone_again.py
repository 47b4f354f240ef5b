"""Clones over clones: no file is taken for another one, and facts about files follow the source."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import txlog
from tests.data_files.test_column_updates import by
from tests.examples import examples
from txlog.base.errors import AlreadyExistsError, StoreError, TxlogError
from txlog.commit.context import Context
from txlog.extend import context_of
from txlog.snapshot.live_files import load_files
from txlog.snapshot.references import clones_of, held_versions
from txlog.testing import FaultyStore, open_store
from txlog.verbs.clone import CloneOptions, clone

TRACKED = {"delta.enableRowTracking": "true"}
Files = dict[str, int]  # The names of files, and the value that fills each.
NAMES = [
    "part-0.parquet",
    "part-1.parquet",
    "sub/part-0.parquet",
    "part-6ff66be6-6a4b-44d4-9dd1-7ac6ea7b0bd4.parquet",
]


def write_files(root: Path, files: Files) -> None:
    """Write files that all have one size and one time, as a user may."""
    for name, value in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        data = pa.table({"k": pa.array([value] * 5, pa.int64())})
        pq.write_table(data, root / name, compression="none", use_dictionary=False)
        os.utime(root / name, (1_700_000_000, 1_700_000_000))


def converted(root: Path, files: Files) -> txlog.Table:
    """Make a table of files in an empty folder."""
    shutil.rmtree(root, ignore_errors=True)
    write_files(root, files)
    return txlog.convert_to_delta(root)


def held(table: txlog.Table) -> list[int]:
    return sorted(table.to_arrow()["k"].to_pylist())


def of(files: Files) -> list[int]:
    return sorted(value for value in files.values() for _ in range(5))


@pytest.mark.slow
@pytest.mark.spec("MNT-22")
@settings(max_examples=examples(60), deadline=None)
@given(
    st.lists(
        st.tuples(
            st.dictionaries(st.sampled_from(NAMES), st.integers(0, 3), min_size=1),
            st.booleans(),
            st.booleans(),
        ),
        min_size=2,
        max_size=4,
    ),
    st.booleans(),
)
@example([({NAMES[0]: 1}, False, False), ({NAMES[0]: 2}, False, False)], False)
@example([({NAMES[0]: 1}, False, False), ({NAMES[0]: 2}, False, True)], True)
def test_a_clone_has_the_rows_of_its_source(
    steps: list[tuple[Files, bool, bool]], shallow: bool
) -> None:
    """The source is made again each time, or cloned twice, and old versions are cleaned up."""
    with tempfile.TemporaryDirectory() as folder:
        seen: list[list[int]] = []
        for files, again, vacuums in steps:
            source = converted(Path(folder, "s"), files)
            for _ in range(1 + again):
                made = source.clone(Path(folder, "t"), shallow, replace=True)
                seen.append(of(files))
                assert held(made) == seen[-1]
                assert made.count("k = 2") == seen[-1].count(2)
            if vacuums:
                for path in Path(folder, "t").rglob("*.parquet"):
                    os.utime(path, (1, 1))
                made.vacuum(0, dry_run=False, enforce_retention_duration=False)
            for version, expected in enumerate(seen if not shallow else ()):
                try:
                    found = held(txlog.Table(made.uri, version=version))
                except TxlogError:  # Its files are deleted. No other file has their names.
                    assert any(step[2] for step in steps)
                else:
                    assert found == expected


@pytest.mark.spec("MNT-22")
def test_a_file_of_equal_name_and_size_is_copied(tmp_path: Path) -> None:
    target = converted(tmp_path / "t", {"part-0.parquet": 1})
    source = converted(tmp_path / "s", {"part-0.parquet": 2})
    again = source.clone(target.uri, replace=True)
    assert held(again) == of({"": 2})
    assert held(txlog.Table(target.uri, version=0)) == of({"": 1})
    # What is a copy already is not copied again, as a comparison of the bytes shows.
    assert source.clone(target.uri, replace=True).outcome.metrics["numCopiedFiles"] == 0
    (copy,) = set(again.files()["path"].to_pylist())
    (tmp_path / "t" / copy).unlink()
    mended = source.clone(target.uri, replace=True)
    assert mended.outcome.metrics["numCopiedFiles"] == 1
    assert held(mended) == of({"": 2})


@pytest.mark.spec("MNT-15")
def test_no_remedy_forgets_a_clone_that_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Processes died that were to replace a clone, and a table where another clone is now."""

    class Death(BaseException):
        pass

    def die(*_: object, **__: object) -> None:
        raise Death

    source = txlog.write(tmp_path / "s", pa.table({"x": [1]}))
    made = source.clone(tmp_path / "made", shallow=True, register=True)
    txlog.write(tmp_path / "other", pa.table({"x": [2]}))
    with monkeypatch.context() as patched:
        patched.setattr("txlog.verbs.clone._Clone._files", die)
        for place in ("made", "other"):
            with pytest.raises(Death):
                source.clone(tmp_path / place, shallow=True, register=True, replace=True)
    shutil.rmtree(tmp_path / "other")
    other = source.clone(tmp_path / "other", shallow=True, register=True)
    first, second = sorted(
        (
            held
            for held in held_versions(source.refresh().snapshot, source._context.effects.now_ms())
        ),
        key=lambda held: held.holder,
    )
    assert "made" in first.holder
    assert "forget_clone" not in first.remedy
    found = re.search(r"forget_clone\('(.+)'\)", second.remedy)
    assert found
    source.maintenance.forget_clone(found[1])
    kept = [one.id for one in clones_of(source.refresh().snapshot)]
    assert sorted(kept) == sorted([made.metadata.id, other.metadata.id])


@pytest.mark.spec("MNT-22")
@pytest.mark.parametrize("step", [1, 2, 3])
def test_two_clones_to_one_place_at_once(tmp_path: Path, step: int) -> None:
    """One of them fails, and deletes only its own copies."""
    source = txlog.write(tmp_path / "s", pa.table({"k": [1, 2]}))
    source.append(pa.table({"k": [3]}))
    source.append(pa.table({"k": [4]}))

    def other() -> None:
        source.clone(tmp_path / "t")

    store = FaultyStore(open_store(tmp_path / "t"), before={("open_output", step): other})
    context = source._context
    target = Context(store, context.effects, context.engine)
    with pytest.raises((AlreadyExistsError, StoreError)):
        clone(context, source.snapshot, target, CloneOptions(shallow=False))
    assert held(txlog.Table(tmp_path / "t")) == [1, 2, 3, 4]
    assert len(list((tmp_path / "t").glob("*.parquet"))) == 3


@pytest.mark.spec("MNT-24")
@pytest.mark.parametrize("shallow", [False, True])
def test_row_ids_follow_the_source(tmp_path: Path, shallow: bool) -> None:
    source = txlog.write(tmp_path / "s", pa.table({"k": range(10)}))
    source.append(pa.table({"k": range(10, 20)}))
    made = source.clone(tmp_path / "t", shallow, replace=True)
    source.alter.set_properties(TRACKED)
    source.append(pa.table({"k": range(20, 25)}))
    again = source.clone(tmp_path / "t", shallow, replace=True)
    expected = source.to_arrow(["k", "_rowid"]).sort_by("k")
    assert again.to_arrow(["k", "_rowid"]).sort_by("k") == expected
    # Facts about files that were there are no new rows.
    before = again.version - 1
    assert sorted(again.diff(before).to_arrow()["k"].to_pylist()) == list(range(20, 25))
    added = [one for one in actions(again) if "add" in one]
    assert sorted(one["add"]["dataChange"] for one in added) == [False, False, True]
    assert held(made.refresh()) == list(range(25))
    # Nothing differs any more, and no fragment has got another id.
    third = source.clone(tmp_path / "t", shallow, replace=True)
    assert not [one for one in actions(third) if "add" in one or "remove" in one]
    third.append(pa.table({"k": [25]}))
    ids = third.to_arrow(["_rowid"])["_rowid"]
    assert len(ids.unique()) == len(ids) == 26
    assert third.maintenance.verify_checksum()


@pytest.mark.spec("MNT-22")
def test_what_is_copied_already_is_logged_once(tmp_path: Path) -> None:
    """Streams and feeds of the clone give no row again."""
    source = txlog.write(tmp_path / "s", pa.table({"k": range(3000)}))
    source.append(pa.table({"k": range(3000, 3005)}))
    source.delete("k % 7 = 1")
    made = source.clone(tmp_path / "t", replace=True)
    assert [one for one in made.files()["deletion_vector"].to_pylist() if one]
    again = source.clone(tmp_path / "t", replace=True)
    assert not [one for one in actions(again) if "add" in one or "remove" in one]
    assert again.outcome.metrics["numCopiedFiles"] == 0
    before = held(source)
    source.delete("k % 7 = 2")
    third = source.clone(tmp_path / "t", replace=True)
    assert held(third) == held(source)
    assert third.outcome.metrics["numCopiedFiles"] == 1  # The new vector.
    assert held(txlog.Table(made.uri, version=0)) == before
    shutil.rmtree(tmp_path / "s")
    assert held(txlog.Table(made.uri)) == held(third)


def actions(table: txlog.Table) -> list[dict[str, Any]]:
    import json

    path = Path(table.uri, "_delta_log", f"{table.version:020d}.json")
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.mark.spec("MNT-24")
def test_files_that_a_tracked_table_keeps_get_row_ids(tmp_path: Path) -> None:
    """The target has the feature of row tracking; the source has no row ids."""
    source = txlog.write(tmp_path / "s", pa.table({"k": range(10)}))
    target = source.clone(tmp_path / "t", shallow=True)
    target.alter.set_properties(TRACKED)
    again = source.clone(tmp_path / "t", shallow=True, replace=True)
    assert "rowTracking" in (again.protocol.writer_features or ())
    live = load_files(context_of(again).store, again.snapshot).live
    assert live.num_rows == 1
    assert live["base_row_id"].null_count == 0
    again.alter.set_properties(TRACKED)
    assert len(again.to_arrow(["_rowid"])["_rowid"].unique()) == 10
    with pytest.raises(txlog.InvalidInputError, match="its rows have no ids"):
        source.clone(tmp_path / "v", shallow=True, properties=TRACKED)


@pytest.mark.slow
@pytest.mark.spec("MNT-24")
@pytest.mark.parametrize("shallow", [False, True])
@settings(max_examples=examples(40), deadline=None)
@given(steps=st.lists(st.sampled_from(["append", "delete", "track", "untrack", "statistics",
                                       "compact", "clone", "restore"]), max_size=7))  # fmt: skip
@example(steps=["clone", "track", "clone"])
@example(steps=["delete", "clone", "track", "append"])
def test_a_repeated_clone_is_what_a_new_one_is(shallow: bool, steps: list[str]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        properties = {"delta.dataSkippingNumIndexedCols": "0"}
        data = pa.table({"k": pa.array(range(30), pa.int64())})
        source = txlog.write(Path(folder, "s"), data, properties=properties)
        source.clone(Path(folder, "again"), shallow)
        for place, step in enumerate(steps):
            if step == "append":
                source.append(pa.table({"k": [100 + place]}))
            elif step == "delete":
                source.delete(f"k % 7 = {place}")
            elif step == "track" and not source.snapshot.is_active("rowTracking"):
                source.alter.set_properties(TRACKED)
            elif step == "untrack" and source.snapshot.supports("rowTracking"):
                source.alter.drop_feature("rowTracking")
            elif step == "statistics":
                source.optimize.compute_statistics(["k"], recompute=True)
            elif step == "compact":
                source.optimize.compact()
            elif step == "restore":
                source.restore(source.version // 2)
            elif step == "clone":
                source.clone(Path(folder, "again"), shallow, replace=True)
        again = source.clone(Path(folder, "again"), shallow, replace=True)
        new = source.clone(Path(folder, "new"), shallow)
        columns = ["k"]
        if source.snapshot.is_active("rowTracking"):
            columns += ["_rowid"]
        tables = [one.to_arrow(columns).sort_by("k") for one in (source, new, again)]
        assert tables[1] == tables[0]
        assert tables[2] == tables[0]
        fresh = txlog.Table(again.uri)
        assert fresh.files().num_rows == source.files().num_rows
        assert fresh.count() == source.count()
        assert len({one.fragment_id for one in fresh.fragments()}) == len(fresh.fragments())


@pytest.mark.slow
@pytest.mark.spec("MNT-22", "FRG-15")
@pytest.mark.parametrize("tracked", [False, True])
@pytest.mark.parametrize("shallow", [False, True])
def test_column_files_come_again(tmp_path: Path, tracked: bool, shallow: bool) -> None:
    """Each fragment keeps its files together, also beside fragments with the same ids."""
    properties = {"delta.feature.txlog.fragments": "supported"}
    properties |= {"delta.enableRowTracking": "true"} if tracked else {}
    rows = pa.table({"k": range(20), "v": range(20)})
    source = txlog.Table.create(tmp_path / "s", rows.schema, properties=properties)
    source.append(rows, options=txlog.WriteOptions(max_rows_per_file=5))
    target = txlog.write(tmp_path / "t", pa.table({"k": [1], "v": [2]}), properties=properties)
    steps = [
        lambda: source.update({"v": "v + 100"}, "k % 7 = 1"),
        lambda: source.delete("k = 8"),
        lambda: source.update({"v": "v + 100"}, "k = 8 OR k = 9"),
        lambda: source.append(pa.table({"k": [30], "v": [31]})),
        lambda: source.alter.replace_columns({"v": "v + 1"}),
        lambda: target.append(pa.table({"k": [40], "v": [41]})),
        lambda: source.optimize.compact(max_column_files=0),
    ]
    for step in steps:
        with by("layer"):
            step()
        target.refresh()
        target = source.clone(target.uri, shallow, replace=True)
        assert target.to_arrow().sort_by("k") == source.to_arrow().sort_by("k")
        assert not txlog.Table(target.uri).to_arrow(where="k = 40").num_rows
    with by("layer"):
        source.update({"v": "0"}, "k = 3")
    target.alter.set_properties({"delta.enableChangeDataFeed": "true"})
    with pytest.raises(txlog.UnsupportedFeatureError, match="change data feed"):
        source.clone(target.uri, shallow, replace=True)
