"""All verbs in any order, compared version by version with a list of dictionaries."""

import json
from datetime import UTC, datetime
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import txlog
from tests.examples import examples

Row = dict[str, Any]

SCHEMA = pa.schema(
    [
        ("x", pa.int64()),
        ("p", pa.string()),
        ("s", pa.struct([pa.field("f", pa.float64()), pa.field("t", pa.string())])),
        ("d", pa.timestamp("us", "UTC")),
    ]
)
moments = st.integers(0, 3).map(lambda day: datetime(2024, 1, 1 + day, 1, 2, 3, 456789, UTC))
rows = st.fixed_dictionaries(
    {
        "x": st.none() | st.integers(0, 6),
        "p": st.sampled_from([None, "a", "b", "c d%"]),
        "s": st.none()
        | st.fixed_dictionaries(
            {"f": st.none() | st.sampled_from([0.5, 2.0]), "t": st.sampled_from([None, "u"])}
        ),
        "d": st.none() | moments,
    }
)
tables = st.lists(rows, max_size=6)


def true_of(value: Any, test: Any) -> bool:
    return value is not None and test(value)


# Predicates as SQL, each with its oracle.
PREDICATES = {
    "x > 3": lambda r: true_of(r["x"], lambda x: x > 3),
    "x = 2": lambda r: r["x"] == 2,
    "x is null": lambda r: r["x"] is None,
    "p = 'a'": lambda r: r["p"] == "a",
    "p is null": lambda r: r["p"] is None,
    "p = 'c d%' and x < 5": lambda r: r["p"] == "c d%" and true_of(r["x"], lambda x: x < 5),
    "p = 'b' or x = 0": lambda r: r["p"] == "b" or r["x"] == 0,
    "not (x >= 2)": lambda r: true_of(r["x"], lambda x: x < 2),
    "s.f > 1": lambda r: r["s"] is not None and true_of(r["s"]["f"], lambda f: f > 1),
    "d < '2024-01-02T01:02:03.456789Z'": lambda r: true_of(r["d"], lambda d: d.day < 2),
    "d = '2024-01-02T01:02:03.456789Z'": lambda r: true_of(r["d"], lambda d: d.day == 2),
}
predicates = st.sampled_from(list(PREDICATES))
operations = st.one_of(
    st.tuples(st.just("append"), tables),
    st.tuples(st.just("overwrite"), tables),
    st.tuples(st.just("replace"), predicates, tables),
    st.tuples(st.just("dynamic"), tables),
    st.tuples(st.just("delete"), predicates),
    st.tuples(st.just("delete"), predicates),
    st.tuples(st.just("delete all")),
)


def as_table(data: list[Row]) -> pa.Table:
    return pa.Table.from_pylist(data, schema=SCHEMA)


def ordered(found: list[Row]) -> list[str]:
    return sorted(json.dumps(row, sort_keys=True, default=str) for row in found)


def apply(table: txlog.Table, held: list[Row], step: tuple[Any, ...], files: int) -> list[Row]:
    """Do a step to the table, and return the rows that the oracle has then."""
    match step:
        case ("append", data):
            table.append(as_table(data), options=txlog.WriteOptions(max_rows_per_file=files))
            return held + data
        case ("overwrite", data):
            table.overwrite(as_table(data), options=txlog.WriteOptions(max_rows_per_file=files))
            return data
        case ("replace", where, data):
            test = PREDICATES[where]
            data = [row for row in data if test(row)]
            table.overwrite(
                as_table(data), where, options=txlog.WriteOptions(max_rows_per_file=files)
            )
            return [row for row in held if not test(row)] + data
        case ("dynamic", data) if table.partition_columns:
            table.overwrite(
                as_table(data),
                partition_mode="dynamic",
                options=txlog.WriteOptions(max_rows_per_file=files),
            )
            touched = {row["p"] for row in data}
            return [row for row in held if row["p"] not in touched] + data
        case ("dynamic", data):
            with pytest.raises(txlog.InvalidInputError, match="partition"):
                table.overwrite(as_table(data), partition_mode="dynamic")
            return held
        case ("delete", where):
            test = PREDICATES[where]
            outcome = table.delete(where)
            gone = sum(map(test, held))
            assert outcome.metrics.get("numDeletedRows", 0) == gone
            assert bool(outcome) is (gone > 0)
            return [row for row in held if not test(row)]
    outcome = table.delete(None)
    assert outcome.metrics.get("numDeletedRows", 0) == len(held)
    return []


def check(table: txlog.Table, expected: list[Row]) -> None:
    assert ordered(table.to_arrow().to_pylist()) == ordered(expected)
    assert table.count() == len(expected)
    files = table.files()
    stated = sum(files["num_records"].to_pylist()) - sum(files["num_deleted"].to_pylist())
    assert stated == len(expected)


@settings(max_examples=examples(60))
@given(
    st.lists(operations, max_size=7),
    st.booleans(),
    st.booleans(),
    st.sampled_from(["3", "100"]),
    st.integers(1, 4),
    predicates,
)
def test_any_order_of_verbs(
    plan: list[tuple[Any, ...]],
    partitioned: bool,
    vectors: bool,
    interval: str,
    files: int,
    where: str,
) -> None:
    with TemporaryDirectory() as folder:
        properties = {
            "delta.checkpointInterval": interval,
            "delta.enableDeletionVectors": str(vectors).lower(),
        }
        partition_by = ["p"] if partitioned else []
        table = txlog.Table.create(folder, SCHEMA, partition_by, properties)
        held: list[Row] = []
        history = {0: held}
        for step in plan:
            held = apply(table, held, step, files)
            history[table.version] = held
            check(table, held)
        assert sorted(history) == list(range(table.version + 1))
        for version, expected in history.items():
            check(txlog.Table(folder, version), expected)
        matching = [row for row in held if PREDICATES[where](row)]
        assert table.count(where) == len(matching)
        assert ordered(txlog.Table(folder).to_arrow(where=where).to_pylist()) == ordered(matching)


@pytest.mark.parametrize("vectors", ["true", "false"])
def test_rows_keep_their_order_within_a_file(tmp_path: Any, vectors: str) -> None:
    properties = {"delta.enableDeletionVectors": vectors}
    table = txlog.Table.create(tmp_path, pa.schema([("x", pa.int64())]), properties=properties)
    table.append(pa.table({"x": list(range(1000))}))
    table.delete("x % 3 = 0")
    table.delete("x % 5 = 0")
    expected = [x for x in range(1000) if x % 3 and x % 5]
    assert table.to_arrow()["x"].to_pylist() == expected
    deleted = 1000 - len(expected) if vectors == "true" else 0
    assert table.files()["num_deleted"].to_pylist() == [deleted]


def test_a_delete_keeps_the_file_and_its_fragment(tmp_path: Any) -> None:
    table = txlog.write(tmp_path, pa.table({"x": list(range(10))}))
    before = table.files().to_pylist()[0]
    outcome = table.delete("x = 3")
    after = table.files().to_pylist()[0]
    for name in ("path", "fragment_id", "size_bytes", "num_records"):
        assert after[name] == before[name]
    assert (after["num_deleted"], after["deletion_vector"][0]) == (1, "i")
    assert outcome.metrics["numDeletionVectorsAdded"] == 1
    assert '"tightBounds":false' in after["stats"]
    table.delete("x < 9")
    assert table.files()["num_deleted"].to_pylist() == [9]
    table.delete("x = 9")  # The last row goes, and the file with it.
    assert table.files().num_rows == 0


def test_many_vectors_of_one_commit_share_a_file(tmp_path: Any) -> None:
    data = pa.table({"x": list(range(60_000))})
    table = txlog.write(tmp_path, data, options=txlog.WriteOptions(max_rows_per_file=20_000))
    table.delete("x % 2 = 0 or x % 7 = 3")
    kinds = {vector[0] for vector in table.files()["deletion_vector"].to_pylist()}
    assert kinds == {"u"}
    assert len(list(tmp_path.glob("*.bin"))) == 1
    assert table.count() == sum(1 for x in range(60_000) if x % 2 and x % 7 != 3)
    assert table.count() == table.to_arrow().num_rows


def test_a_delete_by_partition_reads_no_file(tmp_path: Any) -> None:
    data = pa.table({"x": [1, 2, 3], "p": ["a", "a", "b"]})
    table = txlog.write(tmp_path, data, partition_by="p")
    for path in tmp_path.rglob("*.parquet"):
        path.write_bytes(b"")
    assert table.delete("p = 'a'").metrics["numDeletedRows"] == 2
    assert table.count() == 1
