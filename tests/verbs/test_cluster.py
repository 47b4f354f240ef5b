"""Z-order and clustering: the same rows, in files that predicates skip."""

import json
import pickle
from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import deltalake
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import txlog
from tests.verb_calls import Built, append, delete, run
from tests.verbs.test_vacuum import content
from txlog.actions.table import DomainMetadata
from txlog.base.errors import InvalidInputError, TxlogWarning
from txlog.commit.context import Context
from txlog.commit.intent import Intent
from txlog.extend import context_of
from txlog.snapshot.load import load_snapshot
from txlog.verbs.cluster import Cluster

SCHEMA = pa.schema(
    [
        ("x", pa.int64()),
        ("y", pa.int64()),
        ("name", pa.string()),
        ("g", pa.string()),
        ("st", pa.struct([("b", pa.date32())])),
        ("tags", pa.list_(pa.string())),
    ]
)
FORMS: list[dict[str, str]] = [
    {},
    {"delta.enableDeletionVectors": "false"},
    {"delta.enableRowTracking": "true"},
    {"delta.columnMapping.mode": "name"},
    {"txlog.deletionFormat": "lance", "delta.feature.txlog.fragments": "supported"},
]


def rows(count: int, seed: int = 0) -> pa.Table:
    random = np.random.default_rng(seed)
    x, y = random.integers(0, 1000, count), random.integers(0, 10**6, count)
    return pa.table(
        {
            "x": pa.array(x, mask=x % 50 == 0),
            "y": y,
            "name": [f"n{number:04d}" for number in random.integers(0, 500, count)],
            "g": [f"g {number % 3}" for number in x.tolist()],
            "st": pa.array([{"b": int(day)} for day in x], pa.struct([("b", pa.date32())])),
            "tags": [["a"] * (number % 3) for number in x.tolist()],
        },
        SCHEMA,
    )


class Processes:
    """An engine that sends functions and items to workers, as executors get them."""

    in_process = False

    def map(self, function: Callable[[Any], Any], items: Iterable[Any]) -> Iterator[Any]:
        work = pickle.dumps(function)
        for item in items:
            result = pickle.loads(work)(pickle.loads(pickle.dumps(item)))
            yield pickle.loads(pickle.dumps(result))

    def __reduce__(self) -> Any:
        from txlog.base.threads import Threads

        return Threads, ()


def share_read(table: txlog.Table, column: str, most: int) -> float:
    """Return which share of files a predicate over 2% of a column's values has read, on average."""
    found = []
    for number in range(0, 49, 4):
        low, high = number * most // 50, (number + 1) * most // 50
        found.append(len(table.scan(where=f"{column} BETWEEN {low} AND {high}").file_uris()))
    return sum(found) / len(found) / table.files().num_rows


@pytest.mark.slow
@pytest.mark.spec("MNT-30", "MNT-31")
@pytest.mark.parametrize(
    ("properties", "partition_by", "task_bytes"),
    [(form, (), 15_000) for form in FORMS]
    + [({}, ("g",), 5_000), ({}, ("g",), None), (FORMS[2], (), None)],
)
def test_rows_stay_and_files_are_skipped(
    tmp_path: Path,
    properties: dict[str, str],
    partition_by: tuple[str, ...],
    task_bytes: int | None,
) -> None:
    table = txlog.Table.create(tmp_path / "t t", SCHEMA, partition_by, properties)
    for seed in range(3):
        table.append(rows(2000, seed))
    table.delete("x % 7 = 3")
    before = content(table)
    ids = None
    if "delta.enableRowTracking" in properties:
        ids = sorted(map(repr, table.to_arrow(["x", "y", "_rowid"]).to_pylist()))
    table._context = Context(context_of(table).store, engine=Processes())
    outcome = table.optimize.z_order(
        ["x", "y"], options=txlog.WriteOptions(max_rows_per_file=200), task_bytes=task_bytes
    )
    assert outcome.operation == "OPTIMIZE"
    assert content(table) == content(txlog.Table(table.uri)) == before
    assert content(txlog.Table(table.uri, version=table.version - 1)) == before
    if ids is not None:
        assert sorted(map(repr, table.to_arrow(["x", "y", "_rowid"]).to_pylist())) == ids
    wanted = 0.6 if partition_by else 0.4  # Of 10 files in each of 3 partitions, or of 30.
    assert share_read(table, "x", 1000) < wanted
    assert share_read(table, "y", 10**6) < wanted
    assert table.history(1)[0]["operationParameters"]["zOrderBy"] == '["x","y"]'
    spilled = tmp_path / "t t" / "_txlog_spill"
    assert spilled.exists() == (task_bytes is not None)
    assert not list(spilled.glob("*"))


@pytest.mark.spec("MNT-31")
def test_deltalake_reads_the_result_and_skips_no_more(tmp_path: Path) -> None:
    for name in ("ours", "theirs"):
        table = txlog.write(
            tmp_path / name,
            rows(20_000).drop_columns(["st", "tags"]),
            properties={"delta.enableDeletionVectors": "false"},
        )
    other = deltalake.DeltaTable(tmp_path / "theirs")
    other.optimize.z_order(["x", "y"], target_size=20_000)
    theirs = txlog.Table(tmp_path / "theirs")
    table = txlog.Table(tmp_path / "ours")
    table.optimize.z_order(
        ["x", "y"],
        options=txlog.WriteOptions(max_rows_per_file=-(-20_000 // theirs.files().num_rows)),
    )
    assert content(table) == content(theirs)
    ours = deltalake.DeltaTable(tmp_path / "ours").to_pyarrow_table()
    assert sorted(ours["y"].to_pylist()) == sorted(table.to_arrow()["y"].to_pylist())
    shares = [[share_read(one, "x", 1000), share_read(one, "y", 10**6)] for one in (table, theirs)]
    assert sum(shares[0]) <= sum(shares[1])


@pytest.mark.parametrize("empty", ["a", "b", "c", "abc"])
def test_files_without_rows_are_clustered_away(tmp_path: Path, empty: str) -> None:
    for name in "abc":
        numbers = [] if name in empty else [*range(500)][::-1]
        pq.write_table(pa.table({"x": pa.array(numbers, pa.int64())}), tmp_path / f"{name}.parquet")
    table = txlog.convert_to_delta(tmp_path)
    before = table.count()
    table.optimize.z_order(["x"], task_bytes=500)
    assert table.count() == before
    assert {files for files in table.files()["num_records"].to_pylist() if not files} == set()


def test_one_column_is_a_plain_order(tmp_path: Path) -> None:
    table = txlog.write(tmp_path / "t", rows(6000))
    table.optimize.z_order(
        "name", options=txlog.WriteOptions(max_rows_per_file=500), task_bytes=10_000
    )
    stats = [json.loads(text) for text in table.files()["stats"].to_pylist()]
    ranges = sorted((s["minValues"]["name"], s["maxValues"]["name"]) for s in stats)
    assert all(one[1] <= other[0] for one, other in pairwise(ranges))


@pytest.mark.spec("MNT-32")
def test_only_new_files_are_clustered_again(tmp_path: Path) -> None:
    features = {f"delta.feature.{name}": "supported" for name in ("clustering", "domainMetadata")}
    table = txlog.Table.create(tmp_path / "t", SCHEMA, properties=features)
    with pytest.raises(InvalidInputError, match="no clustering columns"):
        table.optimize.cluster()
    domain = DomainMetadata(
        domain="delta.clustering",
        configuration=json.dumps({"clusteringColumns": [["x"], ["st", "b"]]}),
    )
    built = Built(
        lambda base: Intent("CLUSTER BY", base.version, "append", domains=(domain,)),
    )
    run(built, table._context, load_snapshot(context_of(table).store))
    table.refresh().append(rows(1000))
    table.append(rows(1000, 1))
    before = content(table)
    assert table.optimize.cluster(options=txlog.WriteOptions(max_rows_per_file=250)).version
    assert content(table) == before
    commit = context_of(table).store.read(f"_delta_log/{table.version:020d}.json").splitlines()
    adds = [json.loads(line)["add"] for line in commit if line.startswith(b'{"add"')]
    assert len(adds) == 8
    assert {add["clusteringProvider"] for add in adds} == {"txlog"}
    assert adds[0]["tags"]["ZCUBE_ZORDER_BY"] == '["x","st.b"]'
    first = set(table.files()["path"].to_pylist())
    assert table.optimize.cluster().version is None
    table.append(rows(500, 2))
    table.optimize.cluster()
    assert first < set(table.files()["path"].to_pylist())
    table.optimize.cluster(full=True)
    assert not first & set(table.files()["path"].to_pylist())
    assert table.count() == 2500


@pytest.mark.spec("MNT-33")
def test_what_others_do_meanwhile(tmp_path: Path) -> None:
    table = txlog.write(tmp_path / "t", rows(1000))
    base = load_snapshot(context_of(table).store)
    append(table._context, base, rows(10, 5))
    done = run(Cluster(["x"]), table._context, base)
    assert done.snapshot.version == 2
    assert txlog.Table(table.uri).count() == 1010
    base = load_snapshot(context_of(table).store)
    delete(table._context, base, "y > 500000")
    expected = content(txlog.Table(table.uri))
    run(Cluster(["x", "y"]), table._context, base)
    assert content(txlog.Table(table.uri)) == expected
    assert len(list((tmp_path / "t").glob("*.parquet"))) == 4  # None of the first attempt is left.


@pytest.mark.parametrize("name", ["x.y", "X.Y", "`x.y`", "st.a", "st.`b.c`", "`st`.`a`"])
def test_names_are_those_of_columns_or_of_fields(tmp_path: Path, name: str) -> None:
    structs = pa.array([{"a": n, "b.c": n} for n in (3, 1, 2)])
    made = pa.table({"x.y": [3, 1, 2], "st": structs})
    table = txlog.write(tmp_path / "t", made)
    table.optimize.z_order([name])
    assert table.to_arrow()["x.y"].to_pylist() == [1, 2, 3]
    clustered = txlog.write(tmp_path / "c", made)
    clustered.alter.cluster_by(name)
    clustered.optimize.cluster()
    assert clustered.to_arrow()["x.y"].to_pylist() == [1, 2, 3]


def test_a_column_comes_before_a_field_of_the_same_name(tmp_path: Path) -> None:
    structs = pa.array([{"a": n} for n in (1, 2, 3)])
    table = txlog.write(tmp_path / "t", pa.table({"st.a": [3, 1, 2], "st": structs}))
    table.optimize.z_order(["st.a"])
    assert table.to_arrow()["st.a"].to_pylist() == [1, 2, 3]
    table.optimize.z_order(["`st`.a"])
    assert table.to_arrow()["st.a"].to_pylist() == [3, 1, 2]


def test_what_has_no_order_is_refused(tmp_path: Path) -> None:
    table = txlog.write(tmp_path / "t", rows(10), partition_by=["g"])
    for column, why in (("g", "partition"), ("tags", "order"), ("st", "order"), ("z", "no column")):
        with pytest.raises(InvalidInputError, match=why):
            table.optimize.z_order([column])
    with pytest.raises(InvalidInputError, match="no column"):
        table.optimize.z_order([])
    with pytest.raises(InvalidInputError, match="partition column"):
        table.optimize.z_order(["x"], where="x > 1")
    with pytest.raises(InvalidInputError, match="task_bytes"):
        table.optimize.z_order(["x"], task_bytes=0)
    table.alter.set_properties({"delta.dataSkippingNumIndexedCols": "1"})
    with pytest.warns(TxlogWarning, match="no statistics of y"):
        table.optimize.z_order(["x", "y"])
    assert table.optimize.z_order(["X"], where="g = 'g 1'").metrics["numRemovedFiles"] == 1
    empty = txlog.Table.create(tmp_path / "e", SCHEMA)
    assert empty.optimize.z_order(["x"]).version is None


@pytest.mark.parametrize("name", ["a.b", "`a.b`", "A.B", "st.c", "ST.C", "id", "ID", "`id`"])
def test_the_clustering_of_a_write_is_named_alike_the_second_time(
    tmp_path: Path, name: str
) -> None:
    inner = pa.array([{"c": 1}], pa.struct([("c", pa.int64())]))
    data = pa.table({"a.b": [1], "st": inner, "id": [1]})
    for _ in range(2):
        txlog.write(tmp_path / "t", data, mode="append", cluster_by=[name])
    with pytest.raises(InvalidInputError, match="is not clustered by"):
        txlog.write(tmp_path / "t", data, mode="append", cluster_by=[name, "other"])
