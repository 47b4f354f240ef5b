"""The difference of two versions, compared with the difference of their rows."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import txlog
from tests.examples import examples
from txlog.changes import diff as module
from txlog.changes.diff import Diff, compared

SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.float64()), ("p", pa.string())])
KINDS: list[dict[str, str]] = [
    {},
    {"delta.enableDeletionVectors": "false"},
    {"delta.enableRowTracking": "true"},
    {"delta.enableRowTracking": "true", "delta.enableDeletionVectors": "false"},
    {"delta.feature.txlog.fragments": "supported"},
    {"delta.columnMapping.mode": "name"},
]
OPERATIONS = [
    "append", "append", "delete", "delete", "update", "upsert", "compact", "restore", "overwrite",
    "checkpoint", "statistics",
]  # fmt: skip
fresh = count()


def rows_of(ids: Iterable[int], value: float) -> pa.Table:
    ids = list(ids)
    parts = [None if one % 5 == 0 else f"p {one % 2}" for one in ids]
    return pa.table({"id": ids, "v": [value + one % 3 for one in ids], "p": parts}, SCHEMA)


def run(table: txlog.Table, operation: str, seed: int) -> None:
    low, value = seed % 11, float(seed % 4)
    match operation:
        case "append":
            table.append(rows_of(range(low, low + 4), value))
        case "delete":
            table.delete(f"id % 5 = {seed % 5}")
        case "update":
            table.update({"v": f"v + {seed % 2}"}, f"id > {low}")
        case "upsert":
            known = set(table.to_arrow()["id"].to_pylist())
            if len(known) == table.count():  # No id twice.
                table.upsert(rows_of(range(low, low + 3), value), on="id")
        case "compact":
            table.optimize.compact()
        case "restore":
            table.restore(seed % (table.version + 1))
        case "overwrite":
            table.overwrite(rows_of(range(low, low + 6), value), where=None)
        case "checkpoint":
            table.maintenance.checkpoint()
        case "statistics":
            table.optimize.compute_statistics(recompute=True)


def plain(rows: pa.Table) -> Counter[tuple[Any, ...]]:
    return Counter(tuple(row.values()) for row in rows.to_pylist())


def parts(diff: Diff) -> dict[str, Counter[tuple[Any, ...]]]:
    found: dict[str, Counter[tuple[Any, ...]]] = {}
    for row in diff.to_arrow().to_pylist():
        change = row.pop("_change_type")
        found.setdefault(change, Counter())[tuple(row.values())] += 1
    return found


@pytest.mark.slow
@settings(max_examples=examples(60), deadline=None)
@given(
    st.sampled_from(KINDS),
    st.booleans(),
    st.lists(st.tuples(st.sampled_from(OPERATIONS), st.integers(0, 60)), min_size=1, max_size=7),
    st.integers(0, 99),
    st.integers(0, 99),
)
@pytest.mark.spec("FED-20", "FED-21")
def test_a_diff_is_the_difference_of_the_rows(
    tmp_path_factory: pytest.TempPathFactory,
    properties: dict[str, str],
    partitioned: bool,
    history: list[tuple[str, int]],
    one: int,
    other: int,
) -> None:
    path = tmp_path_factory.getbasetemp() / f"diff{next(fresh)}"
    by = ["p"] if partitioned else []
    table = txlog.Table.create(path, SCHEMA, partition_by=by, properties=properties)
    table.append(rows_of(range(8), 0.0))
    for operation, seed in history:
        run(table, operation, seed)
    start, end = one % (table.version + 1), other % (table.version + 1)
    before, after = (plain(txlog.Table(path, version=v).to_arrow()) for v in (start, end))
    diff = table.diff(start, end, on=[])
    found = parts(diff)
    assert found.get("insert", Counter()) == after - before
    assert found.get("delete", Counter()) == before - after
    assert not set(found) - {"insert", "delete"}
    inserted, deleted = (after - before).total(), (before - after).total()
    assert diff.count() == {"insert": inserted, "delete": deleted, "update": 0}
    again = Diff(**{**{name: getattr(diff, name) for name in diff.__dict__}, "rows_at_once": 3})
    assert parts(again) == found
    where = parts(table.diff(start, end, on=[], where="v > 1 AND id < 9", columns=["id"]))
    kept = [
        Counter(row[0] for row in side.elements() if row[1] > 1 and row[0] < 9)
        for side in (before, after)
    ]
    assert where.get("insert", Counter()) == Counter(
        {(one,): n for one, n in (kept[1] - kept[0]).items()}
    )
    if all(n == 1 for side in (before, after) for n in Counter(r[0] for r in side).values()) and (
        before.total() == len(before) and after.total() == len(after)
    ):
        by_key(table.diff(start, end, on="id"), before, after)
    if "delta.enableRowTracking" in properties:
        assert_ids(path, table, start, end)


def by_key(diff: Diff, before: Counter[tuple[Any, ...]], after: Counter[tuple[Any, ...]]) -> None:
    old, new = ({row[0]: row for row in side} for side in (before, after))
    found = parts(diff)
    assert found.get("insert", Counter()) == Counter(new[k] for k in new.keys() - old.keys())
    assert found.get("delete", Counter()) == Counter(old[k] for k in old.keys() - new.keys())
    changed = [k for k in old.keys() & new.keys() if old[k] != new[k]]
    assert found.get("update_preimage", Counter()) == Counter(old[k] for k in changed)
    assert found.get("update_postimage", Counter()) == Counter(new[k] for k in changed)
    assert diff.count()["update"] == len(changed)
    rows = diff.to_arrow().to_pylist()
    images = [row for row in rows if row["_change_type"].startswith("update")]
    for pre, post in zip(images[::2], images[1::2], strict=True):
        assert (pre["_change_type"], post["_change_type"]) == (
            "update_preimage", "update_postimage",
        )  # fmt: skip
        assert pre["id"] == post["id"]


def assert_ids(path: Path, table: txlog.Table, start: int, end: int) -> None:
    """Without `on`, rows of a table that tracks them are told apart by their ids."""
    sides = []
    for version in (start, end):
        rows = txlog.Table(path, version=version).to_arrow(columns=["_rowid", *SCHEMA.names])
        sides.append({row.pop("_rowid"): tuple(row.values()) for row in rows.to_pylist()})
    old, new = sides
    found = parts(table.diff(start, end))
    assert found.get("insert", Counter()) == Counter(new[k] for k in new.keys() - old.keys())
    assert found.get("delete", Counter()) == Counter(old[k] for k in old.keys() - new.keys())
    changed = [k for k in old.keys() & new.keys() if old[k] != new[k]]
    assert found.get("update_preimage", Counter()) == Counter(old[k] for k in changed)
    assert found.get("update_postimage", Counter()) == Counter(new[k] for k in changed)


@pytest.mark.spec("FED-22")
def test_files_that_both_have_are_not_opened(tmp_path: Path) -> None:
    table = txlog.Table.create(tmp_path / "t", SCHEMA)
    for start in range(0, 50, 10):
        table.append(rows_of(range(start, start + 10), 0.0))
    files = table.scan().file_uris()
    table.append(rows_of(range(50, 53), 0.0))
    for file in files:
        Path(file).unlink()
    diff = table.diff(5)
    assert diff.count() == {"insert": 3, "delete": 0, "update": 0}
    (Path(table.uri) / table.files()["path"][-1].as_py()).exists()
    assert diff.to_arrow()["id"].to_pylist() == [50, 51, 52]
    for file in table.scan().file_uris():
        Path(file).unlink(missing_ok=True)
    assert table.diff(5).count()["insert"] == 3  # The log counts them.


def test_a_diff_without_the_commits_in_between(tmp_path: Path) -> None:
    table = txlog.Table.create(tmp_path / "t", SCHEMA)
    for start in range(0, 50, 10):
        table.append(rows_of(range(start, start + 10), 0.0))
        table.maintenance.checkpoint()
    table.delete("id = 3")
    (tmp_path / "t" / "_delta_log" / f"{4:020}.json").unlink()
    assert table.diff(2).count() == {"insert": 30, "delete": 1, "update": 0}
    assert table.diff(6, 2, on="id").count() == {"insert": 1, "delete": 30, "update": 0}


def test_columns_that_came_are_null_before(tmp_path: Path) -> None:
    table = txlog.Table.create(tmp_path / "t", SCHEMA)
    table.append(rows_of(range(3), 0.0))
    table.alter.add_columns({"extra": pa.int32()})
    table.update({"extra": "7"}, "id = 1")
    rows = table.diff(1, on="id").to_arrow().to_pylist()
    assert [(row["_change_type"], row["extra"]) for row in rows] == [
        ("update_preimage", None), ("update_postimage", 7),
    ]  # fmt: skip


def test_what_cannot_be_compared_is_refused(tmp_path: Path) -> None:
    table = txlog.Table.create(tmp_path / "t", SCHEMA)
    table.append(rows_of(range(3), 0.0))
    table.overwrite(pa.table({"other": [1]}), schema_mode="overwrite")
    with pytest.raises(txlog.UnsupportedFeatureError, match="column id was dropped"):
        table.diff(1)
    with pytest.raises(txlog.InvalidInputError, match="no column nope"):
        table.diff(2, on="nope")
    with pytest.raises(txlog.NotFoundError):
        table.diff(9)
    assert table.diff(2).count() == {"insert": 0, "delete": 0, "update": 0}
    assert table.diff(2).to_arrow().num_rows == 0


VALUES = st.one_of(st.none(), st.sampled_from([0.0, -0.0, math.nan, 1.5]))


@settings(max_examples=examples(200))
@given(
    st.lists(st.tuples(st.integers(0, 2), VALUES, st.sampled_from(["a", None])), max_size=8),
    st.lists(st.tuples(st.integers(0, 2), VALUES, st.sampled_from(["a", None])), max_size=8),
    st.booleans(),
)
def test_rows_cancel_and_pair(
    old: list[tuple[Any, ...]], new: list[tuple[Any, ...]], keyed: bool
) -> None:
    """NaN equals itself, and 0.0 equals -0.0; keys that occur twice are paired in their order."""

    def table(rows: list[tuple[Any, ...]]) -> pa.Table:
        nested = pa.struct([("t", pa.list_(pa.string()))])
        columns = {
            "k": pa.array([row[0] for row in rows], pa.int64()),
            "v": pa.array([row[1] for row in rows], pa.float64()),
            "s": pa.array([row[2] and {"t": [row[2]]} for row in rows], nested),
            "_change_type": pa.nulls(len(rows), pa.string()),
        }  # fmt: skip
        return pa.table(columns)

    def norm(row: tuple[Any, ...]) -> tuple[Any, ...]:
        value = row[1]
        if value is not None:
            value = "nan" if math.isnan(value) else value + 0.0
        return (row[0], value, row[2])

    before, after = Counter(map(norm, old)), Counter(map(norm, new))
    gone, came = before - after, after - before
    found: dict[str, Counter[tuple[Any, ...]]] = {}
    on = ["k"] if keyed else []
    for row in compared(table(old), table(new), on, ["k", "v", "s"]).to_pylist():
        key = norm((row["k"], row["v"], row["s"] and row["s"]["t"][0]))
        found.setdefault(row["_change_type"], Counter())[key] += 1
    total = sum(found.values(), Counter())
    assert total == gone + came
    pairs = sum(
        min(sum(n for r, n in side.items() if r[0] == k) for side in (gone, came)) for k in range(3)
    )
    assert found.get("update_preimage", Counter()).total() == (pairs if keyed else 0)
    assert found.get("update_postimage", Counter()).total() == (pairs if keyed else 0)
    assert found.get("delete", Counter()).total() == gone.total() - (pairs if keyed else 0)


def test_no_more_rows_are_held_than_allowed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = txlog.Table.create(tmp_path / "t", SCHEMA)
    table.append(rows_of(range(4000), 0.0))
    table.overwrite(rows_of(range(1000, 5000), 0.0))
    held = []
    whole = module.compared

    def watched(before: pa.Table, after: pa.Table, *more: Any) -> pa.Table:
        held.append(before.num_rows + after.num_rows)
        return whole(before, after, *more)

    monkeypatch.setattr(module, "compared", watched)
    diff = table.diff(1)
    diff = Diff(**{**diff.__dict__, "rows_at_once": 1000})
    assert diff.count() == {"insert": 1000, "delete": 1000, "update": 0}
    assert sum(held) == 8000
    assert max(held) < 1500
