"""Compaction: no row changes, there are fewer files, and no other writer's work is lost."""

import json
import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import txlog
from tests.examples import examples
from tests.verb_calls import append, compact, delete
from txlog.actions.file import Add, DeletionVectorDescriptor
from txlog.base.effects import REAL
from txlog.base.errors import DataFileError, InvalidInputError, StoreError, UnsupportedFeatureError
from txlog.base.threads import Threads
from txlog.commit.context import Context
from txlog.commit.intent import Intent
from txlog.commit.loop import commit
from txlog.extend import context_of
from txlog.fragments.fragment import DataFile, DeletionFile, Fragment
from txlog.snapshot.load import load_snapshot
from txlog.store.base import BasicStore
from txlog.verbs.compact import Limits, choose_groups

SCHEMA = pa.schema([("x", pa.int64()), ("p", pa.string())])


def xs(*values: int) -> pa.Table:
    return pa.table({"x": list(values), "p": ["ab"[x % 2] for x in values]}, schema=SCHEMA)


def in_small_files(root: Path, parts: int = 4, rows: int = 3, **properties: str) -> txlog.Table:
    """Return a table of several files of a few rows, one for each version."""
    named = {name.replace("__", "."): value for name, value in properties.items()}
    table = txlog.Table.create(root, SCHEMA, properties=named)
    for part in range(parts):
        table.append(xs(*range(part * rows, (part + 1) * rows)))
    return table


def values(table: txlog.Table) -> list[int]:
    return [int(x) for x in table.to_arrow(["x"])["x"].to_pylist()]


def last_commit(table: txlog.Table) -> list[dict[str, Any]]:
    path = Path(table.uri) / "_delta_log" / f"{table.version:020d}.json"
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def parquet_files(root: Path) -> set[str]:
    return {str(path.relative_to(root)) for path in root.rglob("*.parquet")}


@pytest.mark.spec("FRG-33")
def test_small_files_become_one(tmp_path: Path) -> None:
    table = in_small_files(tmp_path)
    outcome = table.optimize.compact(user_metadata="nightly")
    assert (outcome.operation, outcome.version) == ("OPTIMIZE", 5)
    assert values(table) == list(range(12))  # In their order.
    files = table.files()
    assert files["fragment_id"].to_pylist() == [4]
    assert files["num_records"].to_pylist() == [12]
    info, *actions = last_commit(table)
    said = info["commitInfo"]
    assert (said["operation"], said["isolationLevel"]) == ("OPTIMIZE", "SnapshotIsolation")
    assert said["operationParameters"] == {"predicate": "[]", "zOrderBy": "[]", "auto": "false"}
    assert (said["isBlindAppend"], said["userMetadata"]) == (False, "nightly")
    size = files["size_bytes"].to_pylist()[0]
    metrics = {name: int(value) for name, value in said["operationMetrics"].items()}
    assert metrics == outcome.metrics
    assert metrics.pop("numRemovedBytes") > 0
    assert metrics == {
        "numRemovedFiles": 4, "numAddedFiles": 1, "numAddedBytes": size,
        "partitionsOptimized": 1, "numDeletionVectorsRemoved": 0,
        "minFileSize": size, "p25FileSize": size,
        "p50FileSize": size, "p75FileSize": size, "maxFileSize": size,
    }  # fmt: skip
    kinds = [
        (kind, body["dataChange"])
        for line in actions
        for kind, body in line.items()
        if kind in ("add", "remove")
    ]
    assert kinds == [("remove", False)] * 4 + [("add", False)]
    again = table.optimize.compact()
    assert (again.version, again.metrics, again.skipped) == (None, {}, False)
    assert table.version == 5
    assert txlog.Table(tmp_path, version=4).count() == 12


@pytest.mark.spec("FRG-33")
def test_only_within_a_partition(tmp_path: Path) -> None:
    table = txlog.Table.create(tmp_path, SCHEMA, ["p"])
    for x in range(6):
        table.append(xs(x))
    table.append(pa.table({"x": [100], "p": pa.array([None], pa.string())}))
    before = table.to_arrow().sort_by("x")
    assert table.optimize.compact("p = 'a'").metrics["numRemovedFiles"] == 3
    assert table.files().num_rows == 5
    assert table.optimize.compact("p = 'nobody'").version is None
    assert table.optimize.compact().metrics["numRemovedFiles"] == 3
    assert table.files().num_rows == 3
    assert table.to_arrow().sort_by("x") == before


@pytest.mark.spec("FRG-33")
@pytest.mark.parametrize("lance", [False, True])
def test_files_with_many_deleted_rows_are_rewritten_alone(tmp_path: Path, lance: bool) -> None:
    properties = {"txlog.deletionFormat": "lance"} if lance else {}
    table = txlog.write(tmp_path, xs(*range(20)), properties=properties)
    table.delete("x = 3")
    kept = list(range(3)) + list(range(4, 20))
    assert table.optimize.compact(max_deleted_fraction=0.06).version is None
    outcome = table.optimize.compact(max_deleted_fraction=0.04)
    assert outcome.metrics["numDeletionVectorsRemoved"] == 1
    assert values(table) == kept
    (fragment,) = table.fragments()
    assert (fragment.deletion, fragment.physical_rows) == (None, 19)
    assert table.optimize.compact(max_deleted_fraction=0).version is None


def test_large_files_are_left_alone(tmp_path: Path) -> None:
    table = in_small_files(tmp_path)
    sizes = table.files()["size_bytes"].to_pylist()
    assert table.optimize.compact(min_file_bytes=min(sizes)).version is None
    assert table.optimize.compact(min_file_bytes=0).version is None
    assert table.optimize.compact(options=txlog.WriteOptions(target_file_bytes=1)).version is None


def test_new_files_are_no_larger_than_asked(tmp_path: Path) -> None:
    table = in_small_files(tmp_path, parts=7)
    assert (
        table.optimize.compact(options=txlog.WriteOptions(max_rows_per_file=6)).metrics[
            "numAddedFiles"
        ]
        == 3
    )
    assert sorted(table.files()["num_records"].to_pylist()) == [3, 6, 6, 6]
    assert table.optimize.compact(options=txlog.WriteOptions(max_rows_per_file=6)).version is None
    sizes = table.files()["size_bytes"].to_pylist()
    table.optimize.compact(
        options=txlog.WriteOptions(target_file_bytes=2 * max(sizes)), min_file_bytes=10**6
    )
    assert table.files().num_rows == 2
    assert sorted(values(table)) == list(range(21))


def test_files_that_are_packed_better_already_are_left(tmp_path: Path) -> None:
    """Two files whose rows take more than the target when they are written here."""
    rows = 200_000
    table = txlog.Table.create(
        tmp_path, SCHEMA, properties={"delta.parquet.compression.codec": "uncompressed"}
    )
    adds = []
    for at in range(2):
        path = f"packed-{at}.parquet"
        data = xs(*range(at * rows, (at + 1) * rows))
        pq.write_table(data, tmp_path / path, compression="zstd",
                       column_encoding={"x": "DELTA_BINARY_PACKED", "p": "PLAIN"},
                       use_dictionary=False)  # fmt: skip
        adds.append(
            Add(path=path, partition_values={}, size=(tmp_path / path).stat().st_size,
                modification_time=0, data_change=True, stats=f'{{"numRecords":{rows}}}')
        )  # fmt: skip
    base = load_snapshot(context_of(table).store)
    commit(
        context_of(table).store,
        base,
        Intent("WRITE", base.version, "append", adds=tuple(adds)),
        effects=REAL,
    )
    before = parquet_files(tmp_path)
    target = sum(add.size for add in adds)
    assert (
        table.optimize.compact(
            options=txlog.WriteOptions(target_file_bytes=target), min_file_bytes=target
        ).version
        is None
    )
    assert parquet_files(tmp_path) == before


def test_all_rows_deleted_by_others_leave_no_file(tmp_path: Path) -> None:
    table = in_small_files(tmp_path, parts=2)
    table.delete("x < 2 or x > 4")
    table.delete("x = 2 or x = 3")
    table.optimize.compact()
    assert values(table) == [4]
    assert table.files()["num_records"].to_pylist() == [1]


@pytest.mark.spec("FRG-32", "FRG-33")
@pytest.mark.parametrize("vectors", ["true", "false"])
def test_row_ids_and_versions_stay(tmp_path: Path, vectors: str) -> None:
    table = in_small_files(
        tmp_path, delta__enableRowTracking="true", delta__enableDeletionVectors=vectors
    )
    table.delete("x % 5 = 1")
    columns = ["x", "_rowid", "_row_last_updated_at_version"]
    before = table.to_arrow(columns)
    assert table.optimize.compact()
    assert table.files().num_rows == 1
    assert table.to_arrow(columns) == before
    table.append(xs(50))
    assert table.optimize.compact()
    assert table.to_arrow(columns).slice(0, before.num_rows) == before
    assert last_commit(table)[0]["commitInfo"]["tags"] == {"delta.rowTracking.preserved": "true"}


def test_an_append_only_table_may_be_rearranged(tmp_path: Path) -> None:
    table = in_small_files(tmp_path, delta__appendOnly="true")
    assert table.capabilities()["compact"]
    assert table.optimize.compact()
    assert values(table) == list(range(12))


def test_rows_whose_ids_would_be_lost_are_not_moved(tmp_path: Path) -> None:
    data = pa.table({"x": [1, 2], "_rowid": ["mine", "yours"]})
    table = txlog.write(tmp_path, data, properties={"delta.enableRowTracking": "true"})
    table.append(data)
    assert not table.capabilities()["compact"]
    assert table.capabilities()["delete"]
    with pytest.raises(UnsupportedFeatureError, match="_rowid"):
        table.optimize.compact()


BAD: dict[str, tuple[str, Callable[[txlog.Table], object]]] = {
    "a data column": ("not a partition column", lambda t: t.optimize.compact("x = 1")),
    "no such column": ("zebra", lambda t: t.optimize.compact("zebra = 1")),
    "a metadata column": ("not a partition column", lambda t: t.optimize.compact("_fragid = 1")),
    "a text": ("min_file_bytes", lambda t: t.optimize.compact(min_file_bytes="1")),  # type: ignore[arg-type]
    "below zero": ("min_file_bytes", lambda t: t.optimize.compact(min_file_bytes=-1)),
    "a share": ("max_deleted_fraction", lambda t: t.optimize.compact(max_deleted_fraction=1.5)),
    "a truth": ("max_deleted_fraction", lambda t: t.optimize.compact(max_deleted_fraction=True)),
    "NaN": ("max_deleted_fraction", lambda t: t.optimize.compact(max_deleted_fraction=math.nan)),
    "no rows": ("max_rows_per_file", lambda _: txlog.WriteOptions(max_rows_per_file=0)),
    "no bytes": ("target_file_bytes", lambda _: txlog.WriteOptions(target_file_bytes=0)),
    "a note": ("user_metadata", lambda t: t.optimize.compact(user_metadata=5)),  # type: ignore[arg-type]
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_bad_arguments_do_nothing(tmp_path: Path, case: str) -> None:
    says, call = BAD[case]
    table = txlog.write(tmp_path, xs(1, 2), partition_by="p")
    table.append(xs(3, 4))
    before = parquet_files(tmp_path)
    with pytest.raises(InvalidInputError, match=says):
        call(table)
    assert parquet_files(tmp_path) == before
    assert txlog.Table(tmp_path).version == 1


# Winners -----------------------------------------------------------------------------------------


@pytest.mark.spec("FRG-34")
@pytest.mark.parametrize("vectors", ["true", "false"])
@pytest.mark.parametrize("tracked", ["true", "false"])
def test_rows_that_a_winner_deleted_stay_deleted(
    tmp_path: Path, vectors: str, tracked: str
) -> None:
    table = in_small_files(
        tmp_path, delta__enableDeletionVectors=vectors, delta__enableRowTracking=tracked
    )
    place, seen = context_of(table), load_snapshot(context_of(table).store)
    delete(place, seen, "x = 4")
    outcome = compact(place, seen, None).outcome
    assert (outcome.version, outcome.metrics["numAddedFiles"]) == (6, 1)
    now = txlog.Table(tmp_path)
    assert sorted(values(now)) == [x for x in range(12) if x != 4]
    assert now.files().num_rows == 1
    live = set(now.files()["path"].to_pylist())
    kept = live | {path for v in range(5) for path in paths_at(tmp_path, v)} | paths_at(tmp_path, 5)
    assert parquet_files(tmp_path) == kept  # What the first attempt wrote is gone.


def paths_at(root: Path, version: int) -> set[str]:
    return set(txlog.Table(root, version=version).files()["path"].to_pylist())


@pytest.mark.spec("FRG-34")
def test_an_append_is_passed_and_kept(tmp_path: Path) -> None:
    table = in_small_files(tmp_path)
    place, seen = context_of(table), load_snapshot(context_of(table).store)
    append(place, seen, xs(100))
    assert compact(place, seen, None).outcome.version == 6
    now = txlog.Table(tmp_path)
    assert sorted(values(now)) == [*range(12), 100]
    assert now.history(1)[0]["readVersion"] == 4  # Nothing was decided anew.
    assert sorted(now.files()["fragment_id"].to_pylist()) == [4, 5]


@pytest.mark.spec("FRG-34")
def test_a_delete_after_a_compaction_finds_its_rows(tmp_path: Path) -> None:
    table = in_small_files(tmp_path)
    place, seen = context_of(table), load_snapshot(context_of(table).store)
    compact(place, seen, None)
    assert delete(place, seen, "x = 4").outcome.metrics["numDeletedRows"] == 1
    assert values(txlog.Table(tmp_path)) == [x for x in range(12) if x != 4]


@pytest.mark.spec("FRG-34")
def test_two_compactions_of_one_version_double_nothing(tmp_path: Path) -> None:
    table = in_small_files(tmp_path)
    place, seen = context_of(table), load_snapshot(context_of(table).store)
    assert compact(place, seen, None).outcome.version == 5
    assert compact(place, seen, None).outcome.version is None
    assert values(txlog.Table(tmp_path)) == list(range(12))


@pytest.mark.spec("FRG-34")
def test_threads_that_delete_append_and_compact_at_once(tmp_path: Path) -> None:
    in_small_files(tmp_path, parts=8, rows=5, delta__enableRowTracking="true")
    columns = ["x", "_rowid"]
    before = dict(zip(*txlog.Table(tmp_path).to_arrow(columns).to_pydict().values(), strict=True))

    def work(number: int) -> None:
        table = txlog.Table(tmp_path)
        if number % 3 == 0:
            table.optimize.compact()
        elif number % 3 == 1:
            table.append(xs(90 * number))
        else:
            table.delete(f"x % 9 = {number}")

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(work, range(9)))
    found = txlog.Table(tmp_path).to_arrow(columns).to_pydict()
    kept = [x for x in range(40) if x % 9 not in (2, 5, 8)]
    assert sorted(found["x"]) == [*kept, 90, 360, 630]
    after = dict(zip(found["x"], found["_rowid"], strict=True))
    assert {x: after[x] for x in kept} == {x: before[x] for x in kept}
    assert len(set(found["_rowid"])) == len(found["_rowid"])


def test_a_failure_leaves_no_file(tmp_path: Path) -> None:
    table = txlog.Table.create(tmp_path, SCHEMA, ["p"])
    for x in range(6):
        table.append(xs(x))
    gone = table.files().filter(pa.compute.equal(table.files()["num_records"], 1))["path"][5]
    (tmp_path / gone.as_py()).unlink()
    before = parquet_files(tmp_path)
    for workers in (1, 2):
        place = Context(context_of(table).store, engine=Threads(workers))
        with pytest.raises(DataFileError):
            compact(place, load_snapshot(context_of(table).store), None)
        assert parquet_files(tmp_path) == before
    assert table.refresh().version == 6


def test_a_store_that_fails_leaves_no_file(tmp_path: Path) -> None:
    table = in_small_files(tmp_path)
    before = parquet_files(tmp_path)

    class Failing(BasicStore):
        def __getattr__(self, name: str) -> Any:
            return getattr(context_of(table).store, name)

        def put_if_absent(self, path: str, data: bytes) -> str:
            raise StoreError(path=path, operation="put", reason="no space")

    store: Any = Failing()
    with pytest.raises(StoreError):
        compact(Context(store), load_snapshot(context_of(table).store), None)
    assert parquet_files(tmp_path) == before


# Choosing ----------------------------------------------------------------------------------------


def fragment(number: int, size: int, rows: int, deleted: int, partition: str) -> Fragment:
    vector = DeletionVectorDescriptor(
        storage_type="i", path_or_inline_dv="", size_in_bytes=1, cardinality=deleted
    )
    half = size // 2
    return Fragment(
        id=number,
        files=(DataFile(f"{number}", half), DataFile(f"{number}-more", size - half)),
        deletion=DeletionFile(vector) if deleted else None,
        partition_values={"p": partition},
        physical_rows=rows,
    )


fragments = st.lists(
    st.tuples(st.integers(0, 120), st.integers(1, 20), st.integers(0, 20), st.sampled_from("ab"))
).map(
    lambda found: [
        fragment(at, size, rows, min(deleted, rows), partition)
        for at, (size, rows, deleted, partition) in enumerate(found)
    ]
)


@pytest.mark.spec("FRG-33")
@given(fragments, st.integers(1, 150), st.integers(0, 150), st.sampled_from([0.0, 0.3, 1.0]),
       st.none() | st.integers(1, 30))  # fmt: skip
def test_groups_are_of_one_partition_and_fit(
    found: list[Fragment], target: int, least: int, worn: float, most: int | None
) -> None:
    groups = choose_groups(found[::-1], Limits(target, least, worn, most))
    chosen = [fragment.id for group in groups for fragment in group]
    assert len(chosen) == len(set(chosen))
    for group in groups:
        numbers = [fragment.id for fragment in group]
        assert numbers == sorted(numbers)
        assert len({fragment.partition_values["p"] for fragment in group}) == 1
        for one in group:
            size = sum(file.size for file in one.files)
            assert size < least or one.num_deletions > worn * (one.physical_rows or 0)
        if len(group) > 1:
            left = sum(
                sum(file.size for file in one.files) * (one.num_rows or 0)
                // (one.physical_rows or 1)
                for one in group
            )  # fmt: skip
            assert left <= target
            assert most is None or sum(one.num_rows or 0 for one in group) <= most
        else:
            assert group[0].num_deletions > worn * (group[0].physical_rows or 0)
    for one in found:  # Nothing that is worn stays.
        if one.num_deletions > worn * (one.physical_rows or 0):
            assert one.id in chosen


def test_others_read_a_compacted_table(tmp_path: Path) -> None:
    deltalake = pytest.importorskip("deltalake")
    table = txlog.write(
        tmp_path, xs(*range(20)), partition_by="p", options=txlog.WriteOptions(max_rows_per_file=3)
    )
    table.append(xs(*range(20, 30)), options=txlog.WriteOptions(max_rows_per_file=2))
    table.optimize.compact()
    assert table.files().num_rows == 2
    found = deltalake.DeltaTable(str(tmp_path))
    query = deltalake.QueryBuilder().register("t", found).execute("select x from t")
    assert sorted(pa.table(query)["x"].to_pylist()) == list(range(30))
    assert found.version() == table.version == 2


def test_the_target_size_is_a_property(tmp_path: Path) -> None:
    table = txlog.write(
        tmp_path / "t", pa.table({"k": [0]}), properties={"delta.targetFileSize": "4kb"}
    )
    for start in range(1, 9):
        table.append(pa.table({"k": pa.array(range(start * 1000, start * 1000 + 1000))}))
    sizes = table.files()["size_bytes"].to_pylist()
    assert sum(sizes) > 8192 > 4096 > max(sizes)
    table.optimize.compact()
    some = table.files().num_rows
    assert 1 < some < len(sizes)
    table.optimize.compact(options=txlog.WriteOptions(target_file_bytes=1 << 27))
    assert table.files().num_rows == 1
    assert table.count() == 8001


SORTED = pa.schema([("k", pa.int64()), ("t", pa.string()), ("x", pa.float64())])
_cells = st.tuples(
    st.one_of(st.none(), st.integers(-2, 2)),
    st.one_of(st.none(), st.sampled_from(["", "a", "é"])),
    st.one_of(st.none(), st.sampled_from([-1.5, 0.0, math.nan])),
)


def ascending(value: Any) -> tuple[Any, ...]:
    """Return a key that sorts as `sort_by` does: NaN behind all numbers, null at the end."""
    is_nan = isinstance(value, float) and math.isnan(value)
    return (2,) if value is None else (1,) if is_nan else (0, value)


@given(
    files=st.lists(st.lists(_cells, min_size=1, max_size=8), min_size=1, max_size=4),
    by=st.lists(st.sampled_from(["k", "T", "x"]), min_size=1, max_size=3, unique=True),
    largest=st.sampled_from([None, 3]),
    mapped=st.booleans(),
)
@settings(max_examples=examples(30), deadline=None)
def test_rows_are_sorted_as_python_sorts_them(
    tmp_path_factory: pytest.TempPathFactory,
    files: list[list[tuple[Any, ...]]],
    by: list[str],
    largest: int | None,
    mapped: bool,
) -> None:
    """Nulls last; rows of equal values, and ids, stay as they were; files are read by pyarrow."""
    properties = {"delta.enableRowTracking": "true"}
    if mapped:
        properties["delta.columnMapping.mode"] = "name"
    table = txlog.Table.create(tmp_path_factory.mktemp("t"), SORTED, properties=properties)
    for rows in files:
        columns = [list(column) for column in zip(*rows, strict=True)]
        table.append(pa.table(columns, schema=SORTED))
    table.delete("k = 2")
    columns = [*SORTED.names, "_rowid"]
    before = table.to_arrow(columns).to_pylist()
    table.optimize.compact(sort_by=by, options=txlog.WriteOptions(max_rows_per_file=largest))
    names = [name.lower() for name in by]

    def place(row: dict[str, Any]) -> list[tuple[Any, ...]]:
        return [ascending(row[name]) for name in names]

    after = table.to_arrow(columns).to_pylist()
    if largest is None:
        assert repr(after) == repr(sorted(before, key=place))
    assert sorted(map(repr, after)) == sorted(map(repr, before))
    physical = [field.name_in_files(table.snapshot.mapping_mode)
                for field in table.snapshot.schema.fields]  # fmt: skip
    stored = []
    for uri in table.scan().file_uris():
        cells = pq.read_table(uri, columns=physical).rename_columns(SORTED.names).to_pylist()
        assert repr(cells) == repr(sorted(cells, key=place))
        stored += cells
    held = [{name: row[name] for name in SORTED.names} for row in after]
    assert sorted(map(repr, stored)) == sorted(map(repr, held))
    # New files have the largest ids, so others become neighbours, which a limit of rows may join.
    # Each further call has fewer files then, or nothing to do; without a limit, there is nothing.
    again = txlog.WriteOptions(max_rows_per_file=largest)
    fewer = table.files().num_rows
    while table.optimize.compact(sort_by=by, options=again).version is not None:
        assert largest is not None
        assert table.files().num_rows < fewer
        fewer = table.files().num_rows


def test_rows_are_sorted_within_partitions_and_large_files_stay(tmp_path: Path) -> None:
    table = txlog.Table.create(tmp_path, SCHEMA, ["p"])
    table.append(xs(6, 3, 5, 2))
    table.append(xs(1, 4))
    assert table.optimize.compact(sort_by="x", min_file_bytes=1).version is None
    table.optimize.compact("p = 'b'", sort_by=["p", "x"])
    assert table.to_arrow(["x"])["x"].to_pylist() == [6, 2, 4, 1, 3, 5]
    table.optimize.compact(sort_by="x")
    found = table.to_arrow()
    assert [x for x, p in zip(*found.to_pydict().values(), strict=True) if p == "a"] == [2, 4, 6]
    assert table.count() == 6


@pytest.mark.parametrize("verb", ["append", "delete"])
def test_a_sort_loses_nothing_to_another_writer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    """An append goes beside it; a deletion in a file that it rewrites has it done again."""
    properties = {"delta.enableDeletionVectors": "true"}
    table = txlog.write(tmp_path, xs(3, 1, 2), properties=properties)
    calls: list[object] = []
    sort = txlog.data_files.rewrite.order_of

    def meanwhile(*given: Any) -> Any:
        calls.append(given)
        if len(calls) == 1:
            other = txlog.Table(tmp_path)
            other.append(xs(0)) if verb == "append" else other.delete("x = 1")
        return sort(*given)

    monkeypatch.setattr("txlog.data_files.rewrite.order_of", meanwhile)
    table.optimize.compact(sort_by="x")
    assert values(table) == ([0, 1, 2, 3] if verb == "append" else [2, 3])
    assert values(txlog.Table(tmp_path, version=0)) == [3, 1, 2]


@pytest.mark.parametrize(
    ("by", "reason"),
    [("s", "struct.*have no order"), ("l", "array.*have no order"), ("no", "no such column")],
)
def test_columns_without_an_order(tmp_path: Path, by: str, reason: str) -> None:
    table = txlog.write(tmp_path, pa.table({"s": [{"x": 1}], "l": [[1]]}))
    with pytest.raises(InvalidInputError, match=reason):
        table.optimize.compact(sort_by=by)
