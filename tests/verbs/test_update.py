"""Updates, compared with rows as dicts, and with another engine."""

import shutil
from datetime import date
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import deltalake
import duckdb
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import txlog
from tests.examples import examples
from txlog import col
from txlog.base.errors import (
    CommitConflictError,
    InvalidInputError,
    SchemaMismatchError,
    UnsupportedFeatureError,
)

SCHEMA = pa.schema(
    [
        ("x", pa.int64()),
        ("p", pa.string()),
        ("st", pa.struct([("a", pa.int32()), ("b", pa.float64())])),
        ("l", pa.list_(pa.int64())),
    ]
)

Row = dict[str, Any]


def rows_of(first: int, count: int) -> list[Row]:
    return [
        {
            "x": None if x % 11 == 7 else x,
            "p": ["a", "b", None][x % 3],
            "st": None if x % 5 == 4 else {"a": x, "b": x / 2},
            "l": [x, None],
        }
        for x in range(first, first + count)
    ]


def make(root: Path, properties: dict[str, str], partition_by: tuple[str, ...] = ()) -> Any:
    table = txlog.Table.create(root, SCHEMA, partition_by, properties)
    for first in (0, 20, 40):
        table.append(pa.Table.from_pylist(rows_of(first, 20), SCHEMA))
    return table


def plain(table: txlog.Table) -> list[str]:
    return sorted(map(repr, table.to_arrow().to_pylist()))


def add(one: int | None, other: int) -> int | None:
    return None if one is None else one + other


UPDATES: dict[str, Any] = {  # SQL, and the same in Python.
    "x": ("x + 1000", lambda row: add(row["x"], 1000)),
    "p": ("'c'", lambda _: "c"),
    "st.a": ("7", lambda _: 7),
    "st.b": ("x * 2", lambda row: None if row["x"] is None else float(row["x"] * 2)),
    "l": ("NULL", lambda _: None),
}
WHERES: dict[str | None, Any] = {
    None: lambda _: True,
    "x % 7 = 3": lambda row: row["x"] is not None and row["x"] % 7 == 3,
    "p = 'a'": lambda row: row["p"] == "a",
    "x < 20": lambda row: row["x"] is not None and row["x"] < 20,
    "st.a IS NULL AND p <> 'z'": lambda row: (
        (row["st"] or {}).get("a") is None and row["p"] is not None
    ),
    "x > 100000": lambda row: row["x"] is not None and row["x"] > 100000,
}


def updated(row: Row, names: list[str]) -> Row:
    new = dict(row)
    for name in names:
        column, _, inner = name.partition(".")
        value = UPDATES[name][1](row)
        if inner:
            struct = new[column] or {"a": None, "b": None}
            new[column] = {**struct, inner: value}
        else:
            new[column] = value
    return new


FORMS = [
    {"delta.enableDeletionVectors": vectors, "delta.enableRowTracking": tracking, **more}
    for vectors, tracking, more in [
        ("true", "false", {}),
        ("true", "true", {}),
        ("false", "false", {}),
        ("false", "true", {}),
        ("true", "false", {"delta.feature.txlog.fragments": "supported"}),
        (
            "true",
            "false",
            {"delta.feature.txlog.fragments": "supported", "txlog.deletionFormat": "lance"},
        ),
    ]
]


@pytest.mark.slow
@settings(max_examples=examples(60), deadline=None)
@given(
    form=st.sampled_from(FORMS),
    partition_by=st.sampled_from([(), ("p",)]),
    steps=st.lists(
        st.tuples(
            st.lists(st.sampled_from(list(UPDATES)), min_size=1, unique=True),
            st.sampled_from(list(WHERES)),
        ),
        min_size=1,
        max_size=4,
    ),
)
def test_updates_do_as_the_same_on_dicts(
    form: dict[str, str], partition_by: tuple[str, ...], steps: list[tuple[list[str], Any]]
) -> None:
    with TemporaryDirectory() as folder:
        table = make(Path(folder) / "t", form, partition_by)
        tracked = form["delta.enableRowTracking"] == "true"
        names = [*SCHEMA.names, *(["_rowid", "_row_last_updated_at_version"] * tracked)]
        expected = table.to_arrow(names).to_pylist()
        for columns, where in steps:
            hits = [WHERES[where](row) for row in expected]
            outcome = table.update({name: UPDATES[name][0] for name in columns}, where)
            assert outcome.metrics.get("numUpdatedRows", 0) == sum(hits)
            assert bool(outcome) == any(hits)
            stamp = {"_row_last_updated_at_version": table.version} if tracked else {}
            expected = [
                {**updated(row, columns), **stamp} if hit else row
                for row, hit in zip(expected, hits, strict=True)
            ]
            found = txlog.Table(table.uri).to_arrow(names).to_pylist()
            assert sorted(map(repr, found)) == sorted(map(repr, expected))
            assert table.count() == 60


SAME_FOR_BOTH = [
    ({"x": "x + 1"}, "x % 3 = 1"),
    ({"p": "'new'", "x": "0"}, "p IS NULL"),
    ({"x": "x * 2"}, None),
]


@pytest.mark.parametrize(("updates", "where"), SAME_FOR_BOTH)
@pytest.mark.parametrize("partition_by", [(), ("p",)])
def test_deltalake_updates_the_same_rows(
    tmp_path: Path, updates: dict[str, str], where: str | None, partition_by: tuple[str, ...]
) -> None:
    table = make(tmp_path / "ours", {"delta.enableDeletionVectors": "false"}, partition_by)
    shutil.copytree(tmp_path / "ours", tmp_path / "theirs")
    ours = table.update(updates, where).metrics
    other = deltalake.DeltaTable(tmp_path / "theirs")
    theirs = other.update(updates, predicate=where)
    assert ours["numUpdatedRows"] == theirs["num_updated_rows"]
    assert ours["numCopiedRows"] == theirs["num_copied_rows"]
    rows = other.to_pyarrow_table().select(SCHEMA.names).to_pylist()
    assert plain(table) == sorted(map(repr, rows))
    read = deltalake.DeltaTable(table.uri).to_pyarrow_table().select(SCHEMA.names)
    assert plain(table) == sorted(map(repr, read.to_pylist()))


def test_other_engines_read_updates_by_deletion_vectors(tmp_path: Path) -> None:
    table = make(tmp_path / "t", {"delta.enableDeletionVectors": "true"})
    table.update({"x": "x + 1000"}, "x % 7 = 3")
    expected = sorted(table.to_arrow(["x"])["x"].to_pylist(), key=str)
    found = pl.scan_delta(str(tmp_path / "t"), use_pyarrow=False).collect()["x"].to_list()
    assert sorted(found, key=str) == expected
    with duckdb.connect() as connection:
        try:
            connection.execute("LOAD delta")
        except duckdb.Error:
            pytest.skip("duckdb has no extension delta here")
        rows = connection.execute(f"SELECT x FROM delta_scan('{tmp_path / 't'}')").fetchall()
    assert sorted((x for (x,) in rows), key=str) == expected


def test_python_values_and_expressions(tmp_path: Path) -> None:
    table = make(tmp_path / "t", {})
    table.update({"x": col("st.a") + 5}, col("x") == 10, new_values={"p": "it's", "l": None})
    (row,) = table.to_arrow(where="p = 'it''s'").to_pylist()
    assert (row["x"], row["l"]) == (15, None)
    outcome = table.update(new_values={"st.b": 1}, where="x = 15 AND st.a = 10")
    assert outcome.metrics["numUpdatedRows"] == 1
    assert table.to_arrow(where="x = 15 AND st.a = 10")["st"].to_pylist() == [{"a": 10, "b": 1.0}]


def test_values_are_stored_as_ansi_sql_stores_them(tmp_path: Path) -> None:
    table = make(tmp_path / "t", {})
    table.update({"p": "x", "st.a": "x / 3"}, "x = 9")  # A number as text, and a whole number.
    (row,) = table.to_arrow(where="x = 9").to_pylist()
    assert (row["p"], row["st"]["a"]) == ("9", 3)
    version = table.version
    with pytest.raises(SchemaMismatchError, match=r"4\.5.*Write CAST\(… AS integer\)"):
        table.update({"st.a": "x / 2"}, "x = 9")
    with pytest.raises(InvalidInputError, match="string cannot be stored in column x"):
        table.update({"x": "p"})
    with pytest.raises(SchemaMismatchError, match=r"st\.a|column a"):
        table.update({"st.a": "x + 3000000000"}, "x = 1")
    assert txlog.Table(table.uri).version == version


def test_elements_of_arrays_are_stored_as_values_are(tmp_path: Path) -> None:
    kinds = {
        "v": pa.list_(pa.float32()),
        "w": pa.list_(pa.list_(pa.int8())),
        "t": pa.list_(pa.string()),
    }
    rows = {"k": [1, 2], "v": [[1.0], None], "w": [[[1]], [None]], "t": [["a"], []]}
    table = txlog.write(tmp_path, pa.table(rows, pa.schema([("k", pa.int64()), *kinds.items()])))
    table.update({"v": "array(42.5, 43.0)", "w": "array(array(k), NULL)", "t": "array(k, NULL)"})
    assert table.to_arrow().sort_by("k").to_pylist() == [
        {"k": k, "v": [42.5, 43.0], "w": [[k], None], "t": [str(k), None]} for k in (1, 2)
    ]
    assert [table.schema.field(name).type for name in kinds] == list(kinds.values())
    with pytest.raises(InvalidInputError, match=r"string cannot be stored in column v\.element"):
        table.update({"v": "t"})
    with pytest.raises(SchemaMismatchError, match="w"):
        table.update({"w": "array(array(k + 200))"})


@pytest.mark.parametrize(
    ("updates", "values", "message"),
    [
        ({"y": "1"}, None, "the table has no column y"),
        ({"st.c": "1"}, None, "st has no field c"),
        ({"x": "z + 1"}, None, "the table has no column z"),
        ({"x": "1"}, {"x": 2}, "in updates and in new_values"),
        ({"st": "NULL", "st.a": "1"}, None, "assigned twice"),
        ({"x": 1}, None, "SQL text or an expression was expected"),
        ({}, None, "no column is given a value"),
        ({"x": "1 +"}, None, "updates"),
    ],
)
def test_wrong_updates_are_refused(tmp_path: Path, updates: Any, values: Any, message: str) -> None:
    table = make(tmp_path / "t", {})
    files = sorted(path.name for path in (tmp_path / "t").rglob("*"))
    with pytest.raises(InvalidInputError, match=message):
        table.update(updates, new_values=values)
    assert sorted(path.name for path in (tmp_path / "t").rglob("*")) == files


def test_a_failed_update_leaves_no_file(tmp_path: Path) -> None:
    table = make(tmp_path / "t", {})
    before = sorted(path.name for path in (tmp_path / "t").rglob("*.parquet"))
    with pytest.raises(SchemaMismatchError):
        table.update({"st.a": "x * 1000000000"}, "x >= 30")
    assert sorted(path.name for path in (tmp_path / "t").rglob("*.parquet")) == before


def test_an_append_only_table_is_refused(tmp_path: Path) -> None:
    table = make(tmp_path / "t", {"delta.appendOnly": "true"})
    with pytest.raises(UnsupportedFeatureError, match="append-only"):
        table.update({"x": "1"})


def test_an_update_is_applied_to_rows_that_came_meanwhile(tmp_path: Path) -> None:
    table = make(tmp_path / "t", {})
    seen = txlog.Table(table.uri)
    table.append(pa.Table.from_pylist([{"x": 5, "p": "late", "st": None, "l": None}], SCHEMA))
    assert seen.update({"x": "x + 500"}, "x = 5").metrics["numUpdatedRows"] == 2
    assert seen.to_arrow(where="x = 505").num_rows == 2


def test_an_update_in_a_transaction(tmp_path: Path) -> None:
    table = make(tmp_path / "t", {"delta.enableRowTracking": "true"})
    version = table.version
    with table.transaction(txn=("app", 1)) as tx:
        tx.delete("x < 10")
        tx.update({"x": "x + 1000"}, "x < 30")
    assert table.version == version + 1
    assert table.to_arrow(where="x < 30").num_rows == 0
    assert table.update({"x": "0"}, txn=("app", 1)).skipped


def test_what_the_commit_says(tmp_path: Path) -> None:
    table = make(tmp_path / "t", {})
    table.update({"x": "0"}, "x = 3", user_metadata="why")
    (entry,) = table.history(1)
    assert entry["operation"] == "UPDATE"
    assert entry["operationMetrics"]["numUpdatedRows"] == "1"
    assert entry["userMetadata"] == "why"


def test_a_conflict_that_deletes_the_column(tmp_path: Path) -> None:
    table = make(tmp_path / "t", {"delta.feature.txlog.fragments": "supported"})
    seen = txlog.Table(table.uri)
    table.alter.drop_columns(["l"])
    with pytest.raises((CommitConflictError, InvalidInputError)):
        seen.update({"l": "NULL"})


def test_values_that_do_not_fit_become_null_on_demand(tmp_path: Path) -> None:
    rows = pa.table({"n": pa.array([1, 2, 3], pa.int32()), "t": ["5", "x", None]})
    table = txlog.write(tmp_path / "t", rows)
    with pytest.raises(InvalidInputError, match="cannot be stored"):
        table.update({"n": "t"})
    table.update({"n": "t"}, options=txlog.WriteOptions(error_on_type_mismatch=False))
    assert table.to_arrow()["n"].to_pylist() == [5, None, None]
    kinds = pa.table(
        {"d": [None], "b": [None], "t": ["2024-02-29"], "f": ["yes"]},
        pa.schema([("d", pa.date32()), ("b", pa.bool_()), ("t", pa.string()), ("f", pa.string())]),
    )
    other = txlog.write(tmp_path / "kinds", kinds)
    other.update({"d": "t", "b": "f"}, options=txlog.WriteOptions(error_on_type_mismatch=False))
    assert other.to_arrow(["d", "b"]).to_pylist() == [{"d": date(2024, 2, 29), "b": True}]
    other.update({"d": "f", "b": "t"}, options=txlog.WriteOptions(error_on_type_mismatch=False))
    assert other.to_arrow(["d", "b"]).to_pylist() == [{"d": None, "b": None}]
    with table.transaction() as tx:
        tx.update(
            new_values={"n": 2**40},
            where="t = '5'",
            options=txlog.WriteOptions(error_on_type_mismatch=False),
        )
    assert table.to_arrow()["n"].to_pylist() == [None] * 3
    whole = txlog.write(
        tmp_path / "w",
        rows.select(["t"]).append_column(pa.field("k", pa.int64(), False), pa.array([1, 2, 3])),
    )
    with pytest.raises(SchemaMismatchError, match="null"):
        whole.update({"k": "t"}, options=txlog.WriteOptions(error_on_type_mismatch=False))
    with pytest.raises(InvalidInputError, match="cannot be stored"):
        whole.update({"k": "array(1)"}, options=txlog.WriteOptions(error_on_type_mismatch=False))
