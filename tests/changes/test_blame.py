"""The version that wrote each row, compared with a recorded history."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import count
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import txlog
from tests.changes.test_diff import SCHEMA, rows_of
from tests.data_files.test_column_updates import FEATURE, by
from tests.examples import examples

fresh = count()
STEPS = st.lists(
    st.tuples(st.sampled_from(["append", "update", "delete", "compact"]), st.integers(0, 9)),
    max_size=7,
)


@settings(max_examples=examples(30), deadline=None)
@given(STEPS, st.booleans())
@pytest.mark.spec("FED-23")
def test_each_row_has_the_version_that_wrote_it(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, int]], vectors: bool
) -> None:
    path = tmp_path_factory.getbasetemp() / f"blame{next(fresh)}"
    tracked = {
        "delta.enableRowTracking": "true",
        "delta.enableDeletionVectors": str(vectors).lower(),
    }
    table = txlog.Table.create(path, SCHEMA, properties=tracked)
    written: dict[int, int] = {}
    following = 0
    for step, seed in steps:
        match step:
            case "append":
                ids = range(following, following + 3)
                following += 3
                table.append(rows_of(ids, 0.0))
                written |= dict.fromkeys(ids, table.version)
            case "update":
                changed = [one for one in written if one % 4 == seed % 4]
                table.update({"v": "v + 1"}, f"id % 4 = {seed % 4}")
                written |= dict.fromkeys(changed, table.version)
            case "delete":
                table.delete(f"id = {seed}")
                written.pop(seed, None)
            case "compact":
                table.optimize.compact(max_deleted_fraction=0)
    rows = table.blame(["id"]).to_arrow()
    assert dict(zip(rows["id"].to_pylist(), rows["_commit_version"].to_pylist(), strict=True)) == (
        written
    )
    history = {entry["version"]: entry for entry in table.history()}
    for row in rows.to_pylist():
        entry = history[row["_commit_version"]]
        assert row["_operation"] == entry["operation"]
        moment = datetime.fromtimestamp(entry["timestamp"] / 1000, UTC)
        assert abs((row["_commit_timestamp"] - moment).total_seconds()) < 0.001


@pytest.mark.spec("FED-23")
def test_without_row_tracking_the_file_tells(tmp_path: Path) -> None:
    table = txlog.Table.create(tmp_path / "t", SCHEMA)
    table.append(rows_of(range(3), 0.0))
    table.append(rows_of(range(3, 6), 0.0), user_metadata={"userName": "ann"})
    table.delete("id = 1")  # Its file is added again, with a deletion vector.
    table.optimize.compute_statistics(recompute=True)
    table.restore(1)
    table.restore(3)
    rows = table.blame(where="id < 5").to_arrow()
    assert dict(zip(rows["id"].to_pylist(), rows["_commit_version"].to_pylist(), strict=True)) == {
        0: 1, 2: 1, 3: 2, 4: 2,
    }  # fmt: skip
    assert rows.schema.names == [
        *SCHEMA.names, "_commit_version", "_commit_timestamp", "_operation", "_user",
    ]  # fmt: skip
    assert set(rows["_operation"].to_pylist()) == {"WRITE"}
    assert rows.filter(pa.compute.equal(rows["id"], 3))["_user"].to_pylist() == ["ann"]


@pytest.mark.spec("FED-23")
def test_what_was_cleaned_up_is_null(tmp_path: Path) -> None:
    table = txlog.Table.create(tmp_path / "t", SCHEMA)
    table.append(rows_of(range(3), 0.0))
    table.append(rows_of(range(3, 6), 0.0))
    table.maintenance.checkpoint()
    for version in (0, 1):
        (tmp_path / "t" / "_delta_log" / f"{version:020}.json").unlink()
    table = txlog.Table(tmp_path / "t")
    table.delete("id = 0")
    rows = table.blame(["id"]).to_arrow()
    assert dict(zip(rows["id"].to_pylist(), rows["_commit_version"].to_pylist(), strict=True)) == {
        1: None, 2: None, 3: 2, 4: 2, 5: 2,
    }  # fmt: skip
    with pytest.raises(txlog.InvalidInputError, match="no such column"):
        table.blame(["nope"])


@pytest.mark.spec("FED-23")
def test_a_file_that_is_logged_again_was_not_written_then(tmp_path: Path) -> None:
    table = txlog.Table.create(tmp_path / "t", SCHEMA)
    table.append(rows_of(range(3), 0.0))
    table.maintenance.checkpoint()
    table.append(rows_of(range(3, 6), 0.0))
    table.optimize.compute_statistics(["v"], recompute=True)
    table.alter.set_properties({"delta.enableRowTracking": "true"})
    table.alter.drop_feature("rowTracking")
    for version in (0, 1):
        (tmp_path / "t" / "_delta_log" / f"{version:020}.json").unlink()
    rows = txlog.Table(tmp_path / "t").blame(["id"]).to_arrow()
    assert dict(zip(rows["id"].to_pylist(), rows["_commit_version"].to_pylist(), strict=True)) == {
        0: None, 1: None, 2: None, 3: 2, 4: 2, 5: 2,
    }  # fmt: skip


LAYERED = st.lists(
    st.tuples(
        st.sampled_from(["append", "v", "t", "all of v", "new", "delete", "compact"]),
        st.integers(0, 9),
    ),
    max_size=8,
)


@pytest.mark.slow
@settings(max_examples=examples(40), deadline=None)
@given(LAYERED, st.sampled_from(["layer", "move"]))
@pytest.mark.spec("FED-23")
def test_without_row_tracking_layers_say_who_gave_values(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, int]], way: str
) -> None:
    """The oracle has for each row the version of each of its values."""
    path = tmp_path_factory.getbasetemp() / f"blame{next(fresh)}"
    schema = pa.schema([("id", pa.int64()), ("v", pa.int64()), ("t", pa.string())])
    table = txlog.Table.create(path, schema, properties=FEATURE)
    wrote: dict[int, dict[str, int]] = {}
    following = 0
    for step, seed in [("append", 0), *steps]:
        changed = [one for one in wrote if one % 4 == seed % 4]
        with by(way):
            match step:
                case "append":
                    ids = list(range(following, following + 5))
                    following += 5
                    table.append(pa.table({"id": ids, "v": ids}))
                    wrote |= {one: dict.fromkeys(table.schema.names, table.version) for one in ids}
                case "v" | "t":
                    table.update({step: "'1'" if step == "t" else "v + 1"}, f"id % 4 = {seed % 4}")
                    for one in changed:
                        moved_all = wrote[one] if way == "move" else [step]
                        wrote[one] |= dict.fromkeys(moved_all, table.version)
                case "all of v" if wrote:
                    table.alter.replace_columns({"v": "v + 1"})
                    for values in wrote.values():
                        values["v"] = table.version
                case "new" if wrote:
                    name = f"c{table.version}"
                    table.alter.add_columns({name: "v"})
                    for values in wrote.values():
                        values[name] = table.version
                case "delete":
                    table.delete(f"id = {seed}")
                    wrote.pop(seed, None)
                case "compact":
                    files = table.files()["path"].to_pylist()
                    table.optimize.compact(max_deleted_fraction=0, max_column_files=0)
                    if table.files()["path"].to_pylist() != files:
                        return  # Which rows moved, other tests say.
    names = table.schema.names
    for columns in (None, ["id"], ["id", "v"], ["t", "id"], ["id", names[-1]]):
        rows = table.blame(columns).to_arrow()
        asked = names if columns is None else columns
        found = dict(zip(rows["id"].to_pylist(), rows["_commit_version"].to_pylist(), strict=True))
        assert found == {
            one: max(version for name, version in values.items() if name in asked)
            for one, values in wrote.items()
        }
    operations = {entry["version"]: entry["operation"] for entry in table.history()}
    for row in table.blame().to_arrow().to_pylist():
        assert row["_operation"] == operations[row["_commit_version"]]


@pytest.mark.spec("FED-23")
def test_of_layers_whose_commits_were_cleaned_up_older_files_are_named(tmp_path: Path) -> None:
    table = txlog.Table.create(tmp_path / "t", SCHEMA, properties=FEATURE)
    table.append(rows_of(range(6), 0.0))
    with by("layer"):
        table.update({"v": "v + 1"}, "id < 4")
        table.maintenance.checkpoint()
        table.update({"v": "v + 1"}, "id < 2", user_metadata={"userName": "ann"})
    for version in (0, 1, 2):
        (tmp_path / "t" / "_delta_log" / f"{version:020}.json").unlink()
    rows = txlog.Table(tmp_path / "t").blame(["id", "v"]).to_arrow().to_pylist()
    assert [row["_commit_version"] for row in rows] == [3, 3, None, None, None, None]
    assert [row["_user"] for row in rows] == ["ann", "ann", None, None, None, None]
    assert [row["_operation"] for row in rows][:3] == ["UPDATE", "UPDATE", None]


def test_names_that_blame_needs_are_refused(tmp_path: Path) -> None:
    table = txlog.write(tmp_path / "t", pa.table({"_fragid": [7, 8]}))
    blamed = table.blame
    with pytest.raises(txlog.InvalidInputError, match="_fragid"):
        blamed()
