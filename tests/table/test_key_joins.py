"""Joins of few rows by indexes, compared with the same queries without indexes and by duckdb."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import txlog
from tests.examples import examples
from tests.lookup.test_indexed import ALWAYS_USED
from tests.moved import moved
from txlog.store.open import open_store
from txlog.testing import CountingStore, open_table

A = pa.schema([("id", pa.int64()), ("x", pa.int32()), ("t", pa.string())])
B = pa.schema([("y", pa.int64()), ("t", pa.string()), ("v", pa.int64())])
COLUMNS = {"a": A.names, "b": B.names, "c": B.names, "keys": ["k"]}
NAMES = tuple(COLUMNS)


@st.composite
def rows_of(draw: Any, schema: pa.Schema) -> pa.Table:
    values = {
        "id": st.integers(0, 5), "v": st.integers(0, 99), "t": st.sampled_from(["", "p", "q", "r"]),
        "x": st.integers(-2, 6), "y": st.integers(-2, 6),
    }  # fmt: skip
    row = {name: st.one_of(st.none(), values[name], values[name]) for name in schema.names}
    return pa.Table.from_pylist(draw(st.lists(st.fixed_dictionaries(row), max_size=12)), schema)


@st.composite
def conditions(draw: Any, aliases: tuple[str, ...]) -> str:
    """Draw a condition over the columns of some tables, or of a text that is also elsewhere."""
    numbers = [
        f"{alias}.{name}" for alias in aliases for name in COLUMNS[alias] if name not in ("t", "v")
    ]
    texts = [f"{alias}.t" for alias in aliases if alias != "keys"]
    kind = draw(
        st.sampled_from(["join", "join", "join", "text", "value", "in", "other", "either", "alone"])
    )
    if kind == "alone":  # Without USING it may be a column of several tables.
        return draw(st.sampled_from(["y = 3", "t = 'p'", "y IN (1, 2)", "v = y", "t IN ('q', '')"]))
    one, two = draw(st.sampled_from(numbers)), draw(st.sampled_from(numbers))
    if kind == "join":
        return f"{one} = {two}"
    if kind == "text" and texts:
        return f"{draw(st.sampled_from(texts))} = {draw(st.sampled_from([*texts, repr('p')]))}"
    if kind == "in":
        return f"{one} IN ({draw(st.integers(-2, 6))}, 3)"
    if kind == "other":
        return draw(
            st.sampled_from([f"{one} IS NULL", f"{one} < {two}", f"{one} IS NOT DISTINCT FROM 1"])
        )
    if kind == "either":
        return f"({one} = 1 OR {two} = 2)"
    return f"{one} = {draw(st.integers(-2, 6))}"


@st.composite
def queries(draw: Any) -> str:
    """Draw a query that joins two to four tables in one of many ways."""
    names = list(draw(st.permutations(NAMES)))[: draw(st.integers(2, 4))]
    text = f"FROM {names[0]}"
    for place, name in enumerate(names[1:], 1):
        kind = draw(st.sampled_from(["JOIN", "JOIN", "LEFT JOIN", "LEFT JOIN", ",", "CROSS JOIN"]))
        if kind in (",", "CROSS JOIN"):
            text += f" {kind} {name}"
            continue
        if draw(st.integers(0, 9)) == 0:
            kind = draw(st.sampled_from(["RIGHT JOIN", "FULL JOIN", "SEMI JOIN"]))
        seen = tuple(names[: place + 1])
        shared = [c for c in COLUMNS[name] if any(c in COLUMNS[one] for one in names[:place])]
        if shared and draw(st.booleans()) and kind != "SEMI JOIN":
            using = draw(st.lists(st.sampled_from(shared), min_size=1, max_size=2, unique=True))
            text += f" {kind} {name} USING ({', '.join(using)})"
            continue
        on = [draw(conditions(seen)) for _ in range(draw(st.integers(1, 2)))]
        text += f" {kind} {name} ON {' AND '.join(on)}"
        if kind == "SEMI JOIN":  # Its right side is not seen behind it.
            names = names[:place]
            break
    where = [draw(conditions(tuple(names))) for _ in range(draw(st.integers(0, 2)))]
    text += f" WHERE {' AND '.join(where)}" if where else ""
    chosen = draw(st.sampled_from(["*", "*", "count(*) AS n", "y", "t"]))
    return f"SELECT {chosen} {text}"


@pytest.mark.slow
@pytest.mark.spec("LKP-15")
@settings(max_examples=examples(60), deadline=None)
@given(data=st.data())
def test_joins_have_the_rows_of_those_without_indexes(
    tmp_path_factory: pytest.TempPathFactory, data: Any
) -> None:
    root = tmp_path_factory.mktemp("joined")
    given = {"a": data.draw(rows_of(A)), "b": data.draw(rows_of(B)), "c": data.draw(rows_of(B))}
    tables: dict[str, Any] = {}
    for name, rows in given.items():
        table = txlog.write(root / name, rows)
        for column in data.draw(st.sampled_from([["id", "x"], ["x"], ["t"], ["id"]])):
            if column != "x" or name == "a":
                table.indexes.create(column if name == "a" or column == "t" else "y")
        tables[name] = txlog.Table(table.uri)
    keys = data.draw(st.lists(st.one_of(st.none(), st.integers(-2, 6)), max_size=4))
    tables["keys"] = given["keys"] = pa.table({"k": pa.array(keys, pa.int16())})
    with moved(ALWAYS_USED), duckdb.connect() as connection:
        for name, rows in given.items():
            connection.register(name, rows)
        for _ in range(3):
            query = data.draw(queries())
            try:
                expected = sorted(map(str, connection.sql(query).to_arrow_table().to_pylist()))
            except duckdb.BinderException:  # A condition sees no table in front of a comma.
                continue
            found = sorted(map(str, txlog.sql(query, tables).to_pylist()))
            assert found == expected, (query, txlog.sql(f"EXPLAIN {query}", tables).to_pylist())


@pytest.fixture
def provenance(tmp_path: Path) -> tuple[dict[str, Any], list[CountingStore], int]:
    """Return contents in directories, and directories in revisions; each in a store of its own."""
    count = 200_000
    made = {
        "inside": pa.table({"cnt": range(count), "dir": [7 * n % count for n in range(count)]}),
        "revisions": pa.table({"dir": range(count), "rev": [f"r{n}" for n in range(count)]}),
    }
    tables, stores, size = {}, [], 0
    for (name, rows), key in zip(made.items(), ("cnt", "dir"), strict=True):
        table = txlog.write(tmp_path / name, rows, properties={"txlog.pageRows": "100"})
        table.indexes.create(key)
        size += sum(file.stat().st_size for file in Path(table.uri).glob("*.parquet"))
        stores.append(CountingStore(open_store(table.uri)))
        tables[name] = open_table(stores[-1])
        tables[name].to_arrow(where=f"{key} = 1")
    return tables, stores, size


@pytest.mark.slow
@pytest.mark.spec("LKP-15")
@pytest.mark.parametrize("engine", ["duckdb", "polars"])
def test_both_sides_are_read_by_their_indexes(provenance: Any, engine: Any) -> None:
    tables, stores, size = provenance
    query = (
        "SELECT i.cnt, r.rev FROM inside AS i JOIN revisions AS r ON i.dir = r.dir "
        "WHERE i.cnt IN (17, 4, 199999, -1) ORDER BY cnt"
    )
    expected = [{"cnt": n, "rev": f"r{7 * n % 200_000}"} for n in (4, 17, 199_999)]
    with moved({"txlog.lookup.indexed:_LEAST_BYTES": 0}):
        plans = txlog.sql(f"EXPLAIN {query}", tables, engine=engine).to_pylist()
        assert plans == [
            {
                "table": "inside AS i",
                "plan": "3 rows are read before; index cnt: 3 rows may match in 1 files that it "
                "covers",
            },
            {
                "table": "revisions AS r",
                "plan": "3 rows are read before, with the keys of i; index dir: 3 rows may match "
                "in 1 files that it covers",
            },
        ]
        for store in stores:
            store.reset()
        assert txlog.sql(query, tables, engine=engine).to_pylist() == expected
        assert sum(sum(store.bytes.values()) for store in stores) < size / 20
        plain = txlog.sql(f" explain {query}", tables, engine=engine, use_index=False)
        assert {*plain["plan"].to_pylist()} == {
            "read by the engine, which gives its filters to the table"
        }
    assert txlog.sql(query, tables, engine=engine, use_index=False).to_pylist() == expected


@pytest.mark.slow
@pytest.mark.spec("LKP-15")
def test_rows_that_joins_keep_without_a_match_are_not_left_out(provenance: Any) -> None:
    tables, _, _ = provenance
    given = {**tables, "keys": pa.table({"k": pa.array([5, None, 400_000], pa.int32())})}
    with moved({"txlog.lookup.indexed:_LEAST_BYTES": 0}):
        for query, read, rows in [
            ("FROM keys LEFT JOIN inside ON k = cnt", ["inside"], 3),
            (
                "FROM keys JOIN inside ON k = cnt LEFT JOIN revisions USING (dir)",
                ["inside", "revisions"],
                1,
            ),
            ("FROM inside JOIN revisions USING (dir) WHERE cnt = 2", ["inside", "revisions"], 1),
            ("FROM inside JOIN revisions USING (dir) WHERE dir = 14", ["revisions"], 1),
            ("FROM inside LEFT JOIN revisions USING (dir) WHERE dir = 14", ["revisions"], 1),
            ("FROM revisions JOIN inside USING (dir) WHERE DIR IN (14, 7)", ["revisions"], 2),
            ("FROM inside i JOIN revisions r ON i.dir = r.dir WHERE i.dir = 14", ["r"], 1),
            (
                "FROM revisions r JOIN revisions s USING (dir) JOIN inside USING (dir) WHERE dir=7",
                ["r", "s"],
                1,
            ),
            ("FROM inside RIGHT JOIN revisions USING (dir) WHERE dir = 14", [], 1),
            ("FROM inside LEFT JOIN keys ON k = cnt", [], 200_000),
            ("FROM keys RIGHT JOIN inside ON k = cnt", [], 200_000),
            ("FROM keys FULL JOIN inside ON k = cnt", [], 200_002),
            ("FROM inside LEFT JOIN keys ON k = cnt AND cnt = 5", [], 200_000),
            ("FROM inside, keys WHERE k = cnt AND k = 5", ["inside"], 1),
            ("FROM inside, keys WHERE k = cnt OR cnt = 5", [], 3),
            ("FROM inside i JOIN inside j ON i.dir = j.cnt WHERE i.cnt = 2", ["i", "j"], 1),
            ("FROM (SELECT * FROM inside JOIN keys ON cnt = k) f, revisions", ["inside"], 200_000),
        ]:
            found = txlog.sql(f"SELECT count(*) AS n {query}", given)
            assert found["n"].to_pylist() == [rows], query
            plans = txlog.sql(f"EXPLAIN SELECT 1 {query}", given).to_pylist()
            told = [one["table"].split()[-1] for one in plans if " read before" in one["plan"]]
            assert sorted(told) == read, (query, plans)


@pytest.mark.slow
@pytest.mark.spec("LKP-15")
@pytest.mark.parametrize(
    "query",
    [
        "SELECT count(*) AS n FROM a JOIN keys ON a.s = keys.s",
        "SELECT count(*) AS n FROM a JOIN keys ON a.l = keys.l",
        "SELECT count(*) AS n FROM a, keys WHERE a.d = keys.d AND a.d = 1e17",
        "SELECT count(*) AS n FROM a, keys WHERE a.d = keys.d AND a.d = 100000000000000000",
        "SELECT count(*) AS n FROM a, keys WHERE a.d = keys.d AND a.d = 0.5",
        "SELECT count(*) > 0 AS n FROM a, keys WHERE a.i = keys.i USING SAMPLE 0 ROWS",
    ],
)
def test_an_index_changes_no_answer(tmp_path: Path, query: str) -> None:
    columns = {
        "i": pa.array([1, 2], pa.int64()),
        "d": pa.array([10**17, 10**17 + 1], pa.decimal128(38, 0)),
        "s": pa.array([{"p": 1}, {"p": 2}]),
        "l": pa.array([[1], [2]]),
    }
    table = txlog.write(tmp_path / "a", pa.table(columns))
    table.indexes.create("d")
    table.indexes.create("i")
    given = {"a": txlog.Table(table.uri), "keys": pa.table(columns)}
    with moved(ALWAYS_USED):
        found = txlog.sql(query, given)
        assert found == txlog.sql(query, given, use_index=False)


def test_many_keys_are_not_looked_up(tmp_path: Path) -> None:
    rows = pa.table({"x": range(20)})
    table = txlog.write(tmp_path / "a", rows)
    query = "EXPLAIN SELECT count(*) AS n FROM a JOIN keys ON a.x = keys.x"
    given = {"a": table, "keys": rows}

    def told() -> list[str]:
        return [plan for plan in txlog.sql(query, given)["plan"].to_pylist() if "before" in plan]

    with moved(ALWAYS_USED):
        assert told() == []  # No index has the column.
        table.indexes.create("x")
        given["a"] = txlog.Table(table.uri)
        assert len(told()) == 1
        with moved({"txlog.table.key_joins:_MOST_KEYS": 19}):
            assert told() == []
        with moved({"txlog.table.key_joins:_MOST_BYTES": 1}):
            assert told() == []
        (file,) = Path(table.uri).glob("*.parquet")
        with moved({"txlog.table.key_joins:_MOST_BYTES": file.stat().st_size // 2}):
            assert told() == []  # All rows of the file are read.
            given["keys"] = rows.slice(0, 1)
            assert len(told()) == 1


def test_a_query_is_not_measured(tmp_path: Path) -> None:
    with pytest.raises(txlog.InvalidInputError, match="EXPLAIN ANALYZE runs a query"):
        txlog.sql("explain  analyze SELECT 1", root=tmp_path)
