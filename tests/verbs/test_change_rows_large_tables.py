"""Of a large table, an operation reads only those parts of the log that it needs."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import txlog
from tests.examples import examples
from tests.moved import moved
from tests.predicates import predicates_over
from txlog.commit.context import Context
from txlog.snapshot import live_files
from txlog.snapshot.load import load_snapshot
from txlog.store.local.local import LocalStore
from txlog.verbs import compact
from txlog.verbs.change_rows import ChangeRows
from txlog.verbs.delete import Delete

LARGE = "txlog.snapshot.live_files:_LARGE_BYTES"
PROPERTIES: dict[str, dict[str, str]] = {
    "plain": {},
    "vectors": {"delta.enableDeletionVectors": "true"},
    "tracked": {"delta.enableDeletionVectors": "true", "delta.enableRowTracking": "true"},
    "structs": {
        "delta.enableDeletionVectors": "true",
        "delta.checkpoint.writeStatsAsStruct": "true",
        "delta.checkpoint.writeStatsAsJson": "false",
    },
    "sidecars": {"delta.enableDeletionVectors": "true", "delta.checkpointPolicy": "v2"},
    "recorded": {"delta.enableChangeDataFeed": "true"},
}
VECTORS = PROPERTIES["vectors"]
Verb = Callable[[txlog.Table, txlog.Expression | None], Any]


def rows(*xs: int) -> pa.Table:
    """Return rows of the partitions 0 to 2, and of none where `x` is 7."""
    parts = [None if x == 7 else x % 3 for x in xs]
    texts = pa.array([f"t{x % 5}" for x in xs], pa.string())
    return pa.table({"p": pa.array(parts, pa.int64()), "x": pa.array(xs, pa.int64()), "t": texts})


STEPS: dict[str, Callable[[txlog.Table], Any]] = {
    "append": lambda table: table.append(rows(1, 2, 3, 7)),
    "append one": lambda table: table.append(rows(20)),
    "delete": lambda table: table.delete("x = 2"),
    "update": lambda table: table.update({"t": "'new'"}, "x > 15"),
    "compact": lambda table: table.optimize.compact(),
    "checkpoint": lambda table: table.maintenance.checkpoint(),
    "restore": lambda table: table.restore(1) if table.version > 2 else None,
}


def of_partition(where: txlog.Expression | None) -> str | None:
    return None if where is None else "p = 1"


def merge(table: txlog.Table, _: txlog.Expression | None) -> Any:
    merging = table.merge(rows(2, 20, 40), "target.x = source.x and target.p = source.p")
    merging = merging.when_matched_update({"t": "'merged'"})
    return merging.when_not_matched_insert_all().execute()


VERBS: dict[str, Verb] = {
    "delete": lambda table, where: table.delete(where),
    "update": lambda table, where: table.update({"t": "'updated'"}, where),
    "merge": merge,
    "overwrite": lambda table, where: table.overwrite(rows(1), where=of_partition(where)),
    "dynamic": lambda table, _: table.overwrite(rows(2, 7), partition_mode="dynamic"),
    "compact": lambda table, where: table.optimize.compact(where=of_partition(where)),
    "compact deletions": lambda table, where: table.optimize.compact(
        where=of_partition(where), min_file_bytes=1, max_deleted_fraction=0.2
    ),
    "z-order": lambda table, where: table.optimize.z_order(["x"], where=of_partition(where)),
}
SIZES = ("numOutputBytes", "FileSize", "numAddedBytes", "TimeMs")


def committed(path: Path) -> tuple[Any, ...]:
    """Return the last commit: its actions for older files, and the number of its new files."""
    table = txlog.Table(path)
    text = Path(path, "_delta_log", f"{table.version:020d}.json").read_text()
    actions = [json.loads(line) for line in text.splitlines()]
    removes = [one["remove"] for one in actions if "remove" in one]
    gone = {one["path"] for one in removes}
    adds = [one["add"] for one in actions if "add" in one]
    again = [one for one in adds if one["path"] in gone]
    for one in removes:
        del one["deletionTimestamp"]
    for one in again:
        one["stats"] = json.loads(one["stats"])
        vector = one.pop("deletionVector", None)
        one["deleted"] = vector and vector["cardinality"]
    held = table.to_arrow(["p", "x", "t"]).to_pylist()
    return (
        table.version,
        sorted(removes, key=lambda one: (one["path"], str(one))),
        sorted(again, key=lambda one: str(one["path"])),
        len(adds) - len(again),
        sorted(map(repr, map(dict.items, held))),
    )


def result_of(path: Path, verb: str, where: txlog.Expression | None, engine: Any = None) -> Any:
    """Return the metrics and the commit of a change, or its error."""
    try:
        outcome = VERBS[verb](txlog.Table(path, engine=engine), where)
    except txlog.TxlogError as error:
        return type(error).__name__, str(error).replace(str(path), "")
    metrics = {k: v for k, v in outcome.metrics.items() if not any(one in k for one in SIZES)}
    return metrics, committed(path)


def done(path: Path, verb: str, where: txlog.Expression | None, *, large: bool) -> Any:
    with moved({LARGE: 1 if large else 1 << 40}):
        return result_of(path, verb, where)


@pytest.mark.slow
@pytest.mark.spec("CON-29")
@settings(max_examples=examples(150), deadline=None)
@given(
    steps=st.lists(st.sampled_from(sorted(STEPS)), min_size=1, max_size=7),
    properties=st.sampled_from(sorted(PROPERTIES)),
    partitioned=st.booleans(),
    verb=st.sampled_from(sorted(VERBS)),
    where=st.none()
    | predicates_over({"x": st.integers(0, 21), "p": st.integers(0, 2), "t": st.just("t2")}),
)
@example(["append", "checkpoint"], "structs", True, "delete", txlog.col("x") == 2)
@example(["append", "delete", "checkpoint", "append one"], "sidecars", True, "dynamic", None)
@example(["append", "delete", "checkpoint", "delete"], "vectors", True, "compact deletions", None)
def test_a_change_is_that_of_a_plan_that_reads_the_whole_log(
    steps: list[str], properties: str, partitioned: bool, verb: str, where: txlog.Expression | None
) -> None:
    with TemporaryDirectory() as folder:
        path = Path(folder, "large")
        table = txlog.write(
            path,
            rows(1, 2, 3),
            partition_by="p" if partitioned else None,
            properties=PROPERTIES[properties],
        )
        for step in steps:
            STEPS[step](table)
        shutil.copytree(path, path.with_name("small"))
        found, expected = (
            done(path.with_name(name), verb, where, large=name == "large")
            for name in ("large", "small")
        )
        assert found == expected


@pytest.mark.parametrize("verb", sorted({*VERBS} - {"compact deletions"}))
def test_no_change_loads_all_columns_of_all_files(
    verb: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = txlog.write(tmp_path, rows(*range(9)), partition_by="p")
    table.append(rows(1, 2, 4))
    table.maintenance.checkpoint()

    def refused(*_: Any) -> Any:
        raise AssertionError("the whole log is read")

    monkeypatch.setattr(live_files, "read_files", refused)
    with moved({LARGE: 1}):
        VERBS[verb](txlog.Table(tmp_path), txlog.col("x") == 1)
    assert txlog.Table(tmp_path).version == table.version + 1


def test_a_compaction_makes_values_of_small_and_fragmented_files_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = txlog.write(tmp_path, rows(*range(9)), partition_by="p", properties=VECTORS)
    table.append(rows(1, 2, 4))
    table.delete("x = 8")
    deleted = [path for path, gone in looked_at(table) if gone]
    table.maintenance.checkpoint()
    offered: list[list[str]] = []
    choose = compact.choose_groups

    def noted(fragments: Any, *args: Any, **kwargs: Any) -> Any:
        offered.append([fragment.path for fragment in fragments])
        return choose(fragments, *args, **kwargs)

    monkeypatch.setattr(compact, "choose_groups", noted)
    with moved({LARGE: 1}):
        txlog.Table(tmp_path).optimize.compact(min_file_bytes=1, max_deleted_fraction=1.0)
    assert len(deleted) == 1
    assert offered == [deleted]


def looked_at(table: txlog.Table) -> list[tuple[str, int]]:
    files = table.files(["path", "num_deleted"]).to_pydict()
    return list(zip(files["path"], files["num_deleted"], strict=True))


@pytest.mark.spec("CON-29")
@pytest.mark.parametrize("large", [True, False])
@pytest.mark.parametrize("same", [True, False])
def test_a_file_that_is_added_again_is_looked_at_again(
    *, large: bool, same: bool, tmp_path: Path
) -> None:
    """Files of different partitions may have one name; only the whole path tells them apart."""
    name = "part-00000-5f9f1c1e-6b1f-4d53-9b7e-000000000001-c000.snappy.parquet"
    made = txlog.Table.create(tmp_path, rows().schema, partition_by="p")

    def add(part: int) -> None:
        Path(tmp_path, f"p={part}").mkdir(exist_ok=True)
        pq.write_table(rows(1).drop("p"), tmp_path / f"p={part}" / name)
        action = {
            "path": f"p={part}/{name}",
            "partitionValues": {"p": str(part)},
            "size": Path(tmp_path, f"p={part}", name).stat().st_size,
            "modificationTime": 0,
            "dataChange": True,
            "stats": json.dumps({"numRecords": 1}),
        }
        version = txlog.Table(tmp_path).version + 1
        commit = Path(tmp_path, "_delta_log", f"{version:020d}.json")
        commit.write_text(json.dumps({"add": action}) + "\n")

    add(1)
    txlog.Table(tmp_path).maintenance.checkpoint()
    store = LocalStore(str(tmp_path))
    with moved({LARGE: 1 if large else 1 << 40}):
        operation = Delete(None)
        operation.context = Context(store)
        operation.look(load_snapshot(store), None)
        looked = operation._looked
        assert looked is not None
        add(1 if same else 2)
        found = looked.added(load_snapshot(store))
    assert (found is None) is same
    assert same or found["path"].to_pylist() == [f"p=2/{name}"]
    assert made.version == 0


@pytest.mark.slow
@pytest.mark.spec("CON-29")
@pytest.mark.filterwarnings("ignore::txlog.TxlogWarning")
@pytest.mark.parametrize("is_early", [True, False])
@pytest.mark.parametrize("winner", ["delete", "update"])
@pytest.mark.parametrize("verb", ["delete", "update", "upsert"])
def test_files_from_after_an_older_checkpoint_were_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, verb: str, winner: str, is_early: bool
) -> None:
    """The newest checkpoint is gone: an older one and later commits stand in for it."""

    def tens(*numbers: int) -> pa.Table:
        keys = [10 * number + digit for number in numbers for digit in (0, 1)]
        return pa.table({"k": keys, "v": [0] * len(keys)})

    def wins(table: txlog.Table) -> None:
        if winner == "delete":
            table.delete("k IN (40, 41)")
        else:
            table.update({"v": "v + 100"}, "k >= 40")
        table.append(pa.table({"k": [7], "v": [0]}))

    def change(table: txlog.Table) -> Any:
        if verb == "delete":
            return table.delete("k < 50")
        if verb == "update":
            return table.update({"v": "v + 1"}, "k < 50")
        return table.upsert(pa.table({"k": [10, 40, 41], "v": [5, 5, 5]}), on="k")

    def content(table: txlog.Table) -> list[tuple[int, int]]:
        found = table.to_arrow().to_pydict()
        return sorted(zip(found["k"], found["v"], strict=True))

    with moved({LARGE: 1}):
        made = txlog.Table.create(tmp_path / "t", tens(0).schema, properties=VECTORS)
        for number in range(6):
            made.append(tens(number))
            if number in (2, 5):
                made.maintenance.checkpoint()
        shutil.copytree(tmp_path / "t", tmp_path / "serial")
        newest = tmp_path / "t" / "_delta_log" / f"{6:020d}.checkpoint.parquet"
        ours, other = txlog.Table(tmp_path / "t"), txlog.Table(tmp_path / "t")
        if is_early:
            newest.unlink()
        decide = ChangeRows._decided
        attempts: list[int] = []

        def decided(self: ChangeRows, base: Any) -> Any:
            found = decide(self, base)
            attempts.append(base.version)
            if len(attempts) == 1:
                if not is_early:
                    newest.unlink()
                wins(other)
            return found

        monkeypatch.setattr(ChangeRows, "_decided", decided)
        change(ours)
        monkeypatch.undo()
        serial = txlog.Table(tmp_path / "serial")
        wins(serial)
        change(serial)
        assert content(txlog.Table(tmp_path / "t")) == content(serial)
