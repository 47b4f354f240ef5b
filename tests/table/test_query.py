"""SQL over tables with both engines; the magic of notebooks, and values in notebooks."""

import re
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import txlog
from tests.examples import examples
from txlog.base.errors import DataFileError, InvalidInputError
from txlog.base.html import facts_html, rows_html, titled

NAMES = pa.table({"carrier": ["UA", "B6"], "name": ["United", "JetBlue"]})


@pytest.fixture
def flights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> txlog.Table:
    """A table at raw/flights below the working folder, with deleted rows."""
    monkeypatch.chdir(tmp_path)
    rows = pa.table({"carrier": ["UA", "B6", "UA"], "delay": [1, 2, 3]})
    table = txlog.write("raw/flights", rows)
    table.append(pa.table({"carrier": ["XX"], "delay": [9]}))
    table.delete("delay = 2")
    return table


@pytest.fixture(params=["duckdb", "polars"])
def engine(request: pytest.FixtureRequest) -> Any:
    pytest.importorskip(request.param)
    return request.param


@pytest.mark.parametrize("damage", ["missing", "cut", "pages"])
@pytest.mark.parametrize("deletes", [False, True])
def test_damage_to_files_is_no_fault_of_the_query(
    tmp_path: Path, engine: Any, damage: str, deletes: bool
) -> None:
    """pyarrow reads files without deleted rows alone, and its errors do not name them."""
    table = txlog.write(tmp_path, pa.table({"x": range(1000), "s": ["a"] * 1000}))
    (file,) = tmp_path.glob("*.parquet")
    table.append(pa.table({"x": [5000], "s": ["b"]}))
    if deletes:
        table.delete("x = 3")
    data = file.read_bytes()
    if damage == "missing":
        file.unlink()
    else:
        file.write_bytes(data[:500] if damage == "cut" else data[:4] + b"\xff" * 400 + data[404:])
    with pytest.raises(DataFileError) as caught:
        txlog.sql("SELECT sum(x), max(s) FROM t", {"t": table.refresh()}, engine=engine)
    assert caught.value.path == file.name
    with pytest.raises(InvalidInputError, match="refuses it"):
        txlog.sql("SELECT sum(nothing) FROM t", {"t": table}, engine=engine)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("query", "rows"),
    [
        ("SELECT carrier, CAST(SUM(delay) AS BIGINT) AS d FROM raw.flights GROUP BY 1 ORDER BY 1",
         [{"carrier": "UA", "d": 4}, {"carrier": "XX", "d": 9}]),
        ("SELECT flights.delay FROM raw.flights WHERE delay > 1 ORDER BY 1",
         [{"delay": 3}, {"delay": 9}]),
        ("SELECT delay FROM 'raw/flights' VERSION AS OF 0 ORDER BY delay",
         [{"delay": 1}, {"delay": 2}, {"delay": 3}]),
        ("SELECT name, delay FROM raw.flights f JOIN names n USING (carrier) WHERE delay > 1",
         [{"name": "United", "delay": 3}]),
        ("WITH names AS (SELECT delay FROM raw.flights) SELECT count(*) AS n FROM names",
         [{"n": 3}]),
        ("SELECT name FROM names WHERE carrier IN (SELECT carrier FROM raw.flights)",
         [{"name": "United"}]),
        ("SELECT name AS x FROM names UNION ALL SELECT carrier FROM raw.flights ORDER BY x",
         [{"x": x} for x in ("JetBlue", "UA", "UA", "United", "XX")]),
        ("SELECT count(*) AS n FROM late", [{"n": 1}]),
    ],
)  # fmt: skip
def test_queries(flights: txlog.Table, engine: Any, query: str, rows: list[Any]) -> None:
    given = {"names": NAMES, "late": flights.scan(where="delay > 5")}
    assert txlog.sql(query, given, engine=engine).to_pylist() == rows


def test_tables_below_a_root_and_variables(
    flights: txlog.Table, tmp_path: Path, engine: Any
) -> None:
    query = "SELECT count(*) AS n FROM flights"
    below = txlog.sql(query, root=tmp_path / "raw", engine=engine)
    assert below.to_pylist() == [{"n": 3}]
    assert txlog.sql(query, {"flights": flights}, engine=engine).to_pylist() == [{"n": 3}]
    before = txlog.sql(f"{query} VERSION AS OF 1", {"flights": flights}, engine=engine)
    assert before.to_pylist() == [{"n": 4}]
    made = flights.history()[-1]["timestamp"]
    moment = "SELECT count(*) AS n FROM raw.flights TIMESTAMP AS OF "
    for literal in (f"'{made_text(made)}'", f"TIMESTAMP '{made_text(made)}'"):
        assert txlog.sql(moment + literal, engine=engine).to_pylist() == [{"n": 3}]
    with pytest.raises(txlog.NotFoundError):
        txlog.sql(moment + "DATE '2001-01-01'", engine=engine)


def test_columns_may_have_the_whole_name_of_their_table(flights: txlog.Table, engine: Any) -> None:
    query = (
        "SELECT raw.flights.carrier FROM raw.flights WHERE raw.flights.delay > 8 "
        "UNION ALL SELECT lake.raw.flights.* FROM lake.raw.flights"
    )
    given = {"raw.flights": flights, "lake.raw.flights": NAMES.select(["carrier"])}
    found = txlog.sql(query, given, engine=engine)["carrier"].to_pylist()
    assert sorted(found) == ["B6", "UA", "XX"]


def test_a_whole_name_never_means_another_table_of_the_last_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, engine: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    txlog.write("a/t", pa.table({"id": [1, 2, 3]}))
    txlog.write("b/t", pa.table({"id": [3, 4]}))
    exists = "SELECT a.t.id FROM a.t WHERE EXISTS (SELECT 1 FROM {} WHERE {} = a.t.id)"
    for inner, column in (("b.t", "b.t.id"), ("b.t AS T", "T.id"), ("(SELECT 3 AS id) t", "t.id")):
        with pytest.raises(txlog.InvalidInputError, match=r"a\.t\.id may be in several"):
            txlog.sql(exists.format(inner, column), engine=engine)
    with pytest.raises(txlog.InvalidInputError, match="are all called t here"):
        txlog.sql("SELECT a.t.id FROM a.t JOIN b.t ON a.t.id = b.t.id", engine=engine)
    both = "SELECT a.t.id FROM a.t WHERE a.t.id IN (SELECT b.t.id FROM b.t)"
    assert txlog.sql(both, engine=engine).to_pylist() == [{"id": 3}]
    given = "SELECT a.t.id FROM a.t WHERE a.t.id IN (SELECT x.id FROM b.t AS x)"
    assert txlog.sql(given, engine=engine).to_pylist() == [{"id": 3}]


NO_CONSTANTS = (
    *("VERSION AS OF 1 + 1", "VERSION AS OF -1", "VERSION AS OF 1.5", "VERSION AS OF x"),
    *("VERSION AS OF TRUE", "VERSION AS OF NULL", "VERSION AS OF $1", "VERSION FROM 0 TO 1"),
    *("VERSION AS OF CAST('1' AS INT)", "TIMESTAMP AS OF '2026-11-02' - INTERVAL 1 DAY"),
    *("TIMESTAMP AS OF now()", "TIMESTAMP AS OF 1", "@v1", "@v1 AS f"),
    *("VERSION AS OF '1'", "TIMESTAMP AS OF 'noon'", "TIMESTAMP AS OF DATE '1'"),
)


def test_a_version_that_is_no_valid_constant_is_refused(flights: txlog.Table, engine: Any) -> None:
    for moment in NO_CONSTANTS:
        for tables in ({}, {"raw.flights": flights}):
            with pytest.raises(txlog.InvalidInputError) as caught:
                txlog.sql(f"SELECT * FROM raw.flights {moment}", tables, engine=engine)
            assert caught.value.argument == "query", moment


def made_text(made_ms: int) -> str:
    from datetime import UTC, datetime

    return datetime.fromtimestamp(made_ms / 1000, UTC).isoformat()


def test_files_that_a_filter_rules_out_are_not_opened(flights: txlog.Table, engine: Any) -> None:
    path = flights.scan(where="delay = 9").file_uris()
    for other in {*flights.scan().file_uris()} - {*path}:
        Path(other).unlink()
    query = "SELECT carrier FROM raw.flights WHERE delay > 8"
    assert txlog.sql(query, engine=engine).to_pylist() == [{"carrier": "XX"}]


@pytest.mark.parametrize(
    ("query", "kind", "says"),
    [
        ("SELECT * FROM nope", txlog.NotFoundError, "the query names 'nope'"),
        ("SELECT * FROM raw.flights VERSION AS OF 9", txlog.NotFoundError, "the latest is 2"),
        ("SELECT nope FROM raw.flights", txlog.InvalidInputError, "nope"),
        ("DELETE FROM raw.flights", txlog.InvalidInputError, "one SELECT was expected"),
        ("SELECT 1; SELECT 2", txlog.InvalidInputError, "one SELECT was expected"),
        ("SELECT (", txlog.InvalidInputError, "not SQL"),
        (
            "SELECT * FROM read_csv('/etc/hostname')",
            txlog.InvalidInputError,
            "refuses it|not a",
        ),
    ],
)
@pytest.mark.usefixtures("flights")
def test_what_is_no_query_is_refused(engine: Any, query: str, kind: Any, says: str) -> None:
    with pytest.raises(kind, match=says):
        txlog.sql(query, engine=engine)


def _rows(found: pa.Table) -> list[str]:
    """Return rows in an order of their own; columns may have the same name."""
    values = [column.to_pylist() for column in found.columns]
    return sorted(map(str, zip(*values, strict=True)))


A = pa.table({"id": [1, 2, 3], "x": [2, 3, None]})
B = pa.table({"id": [1, 2, 4], "x": [3, 3, 2]})


@pytest.fixture(scope="module")
def plain() -> Iterator[Any]:
    """Return a function that runs a query in duckdb alone, over the tables `a` and `b`."""
    duckdb = pytest.importorskip("duckdb")
    with duckdb.connect(config={"python_enable_replacements": "false"}) as connection:
        connection.register("a", A)
        connection.register("b", B)

        def run(query: str) -> list[str] | None:
            try:
                return _rows(connection.sql(query).to_arrow_table())
            except duckdb.Error:
                return None

        yield run


@pytest.mark.parametrize(
    "query",
    [
        "WITH txlog_0 AS (SELECT 99 AS id) SELECT a.id FROM a, txlog_0",
        "WITH TxLog_1 AS (SELECT 99 AS id) SELECT * FROM b, a, txlog_1, a AS txlog__0",
        "WITH Q AS (SELECT 7 AS id) SELECT * FROM q",
        "WITH a AS (SELECT * FROM b), b AS (SELECT * FROM a WHERE id > 1) SELECT * FROM b",
        "SELECT * FROM (WITH a AS (SELECT 9 AS id) SELECT * FROM a) q, a",
        "WITH RECURSIVE a AS (SELECT id FROM a UNION ALL SELECT id + 9 FROM a WHERE id < 9) FROM a",
        "WITH RECURSIVE a AS (SELECT id FROM b EXCEPT SELECT id FROM a) SELECT * FROM a",
        "SELECT * FROM a, unnest([1, 2]) AS u(k)",
        "SELECT * FROM a, unnest((SELECT list(id) FROM b)) AS u(k)",
        "SELECT * FROM a LEFT JOIN (VALUES (3)) v(id) USING (id)",
        "SELECT * FROM a, LATERAL (SELECT a.id + 1 AS z) q",
        "SELECT * FROM a LEFT JOIN LATERAL (SELECT * FROM b WHERE b.x = a.x) q ON true",
        "SELECT * FROM a AS b, LATERAL (SELECT max(c.x) FROM b AS c WHERE c.id <= b.id) q",
        "SELECT * FROM (PIVOT a ON x USING count(*))",
    ],
)
def test_names_are_those_of_the_engine(plain: Any, query: str) -> None:
    expected = plain(query)
    assert expected
    assert _rows(txlog.sql(query, {"a": A, "b": B}, engine="duckdb")) == expected


_NAMES = st.sampled_from(["a", "b", "q", "Q", "txlog_0", "txlog_1", "TXLOG_0", "txlog__0"])
_KNOWN = st.sampled_from(["a", "a", "b"])


@st.composite
def _with(draw: Any) -> str:
    """Draw a query of WITH, perhaps of a table of the same name, or a recursive one."""
    name, other = draw(_NAMES), draw(st.one_of(_KNOWN, _NAMES))
    body = draw(
        st.sampled_from(
            [
                "SELECT 99 AS id, 3 AS x",
                f"SELECT id + 10 AS id, x FROM {other}",
                f"SELECT 1 AS id, 3 AS x UNION ALL SELECT id + 1, x FROM {name} WHERE id < 3",
                f"SELECT id, x FROM {other} UNION SELECT id + 1, x FROM {name} WHERE id < 3",
            ]
        )
    )
    return f"{name} AS ({body})"


@st.composite
def _queries(draw: Any, depth: int = 1) -> str:
    """Draw a query of one table with something beside it that perhaps sees its columns."""
    parts = draw(st.lists(_with(), max_size=2))
    recursive = draw(st.sampled_from(["", "RECURSIVE "]))
    head = f"WITH {recursive}{', '.join(parts)} " if parts else ""
    first, other = draw(st.one_of(_KNOWN, _NAMES)), draw(st.one_of(_KNOWN, _NAMES))
    alias, second = draw(_NAMES), draw(_NAMES)
    forms = [
        "",
        f", unnest([1, 2]) AS {second}(k)",
        f", unnest([{alias}.id]) AS {second}(k)",
        f", {other} AS {second}",
        f", (DESCRIBE {other}) AS {second}",
        f" LEFT JOIN (VALUES (3)) {second}(id) USING (id)",
        f", LATERAL (SELECT {alias}.id + 1 AS z) {second}",
        f" LEFT JOIN LATERAL (SELECT * FROM {other} AS z WHERE z.id < {alias}.id) {second} ON true",
        f" WHERE {alias}.id IN (SELECT id FROM {other})",
    ]
    if depth:
        inner = draw(_queries(depth - 1))
        forms += [f", ({inner}) {second}", f", LATERAL ({inner}) {second}"]
    # Duckdb does not look for the tables of a query of WITH that nothing uses.
    used = "".join(f", (SELECT count(*) FROM {part.split()[0]})" for part in parts)
    return f"{head}SELECT *{used} FROM {first} AS {alias}{draw(st.sampled_from(forms))}"


@pytest.mark.slow
@settings(max_examples=examples(60), deadline=None)
@given(query=_queries())
def test_any_names_are_those_of_the_engine(plain: Any, query: str) -> None:
    expected = plain(query)
    try:
        found = _rows(txlog.sql(query, {"a": A, "b": B}, engine="duckdb"))
    except (txlog.InvalidInputError, txlog.NotFoundError):
        found = None
    assert found == expected, query


@pytest.mark.slow
@pytest.mark.parametrize(
    "query",
    [
        "SELECT * FROM (SUMMARIZE {})",
        "SELECT t.column_name, t.max FROM (SUMMARIZE {}) AS t ORDER BY 1",
        "SELECT * FROM (DESCRIBE {})",
        "SELECT column_name FROM (DESCRIBE {}) WHERE column_type = 'BIGINT'",
        "WITH s AS (SUMMARIZE {}) SELECT count(*) FROM s",
        "SELECT * FROM (SUMMARIZE SELECT delay FROM {})",
        "SELECT max FROM {} f, (SUMMARIZE {}) s WHERE f.delay = 9 AND s.column_name = 'delay'",
    ],
)
@pytest.mark.parametrize("name", ["raw.flights", '"raw/flights" VERSION AS OF 0'])
def test_tables_are_described_as_by_the_engine(
    flights: txlog.Table, query: str, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    duckdb = pytest.importorskip("duckdb")
    old = "VERSION" in name
    if old:  # Sqlglot does not know `DESCRIBE a VERSION AS OF 0`.
        query = query.replace("DESCRIBE {}", "DESCRIBE SELECT * FROM {}")
    found = txlog.sql(query.replace("{}", name), engine="duckdb")
    with duckdb.connect() as plain:
        rows = (flights.at(0) if old else flights).to_arrow()
        plain.register("rows", rows)
        assert found.equals(plain.sql(query.replace("{}", "rows")).to_arrow_table())
    assert caplog.messages == []


@pytest.mark.parametrize(
    "explain", ["EXPLAIN ", "-- why\nEXPLAIN ", "/* a /* b */ */ explain/* c */", "EXPLAIN"]
)
def test_a_comment_may_stand_around_explain(
    flights: txlog.Table, explain: str, engine: Any
) -> None:
    (row,) = txlog.sql(f"{explain}(SELECT * FROM raw.flights)", engine=engine).to_pylist()
    assert row["table"] == "raw.flights"
    for measured in ("ANALYZE ", "-- it\nanalyze "):
        with pytest.raises(txlog.InvalidInputError, match="EXPLAIN ANALYZE runs a query"):
            txlog.sql(f"{explain} {measured}SELECT * FROM raw.flights", engine=engine)


@pytest.mark.parametrize("word", ["'EXPLAIN'", '"explain"', "$$EXPLAIN$$"])
def test_a_quoted_word_explains_nothing(flights: txlog.Table, word: str, engine: Any) -> None:
    with pytest.raises(txlog.InvalidInputError, match="not SQL"):
        txlog.sql(f"{word} SELECT * FROM raw.flights", engine=engine)


@pytest.mark.parametrize("query", [None, b"SELECT 1", ["SELECT 1"]])
def test_a_query_is_a_text(query: Any) -> None:
    with pytest.raises(txlog.InvalidTypeError, match="text of SQL"):
        txlog.sql(query)


def test_queries_in_threads_see_their_own_tables(engine: Any) -> None:
    def ask(number: int) -> list[Any]:
        rows = {"t": pa.table({"a": [number]})}
        return txlog.sql("SELECT a FROM t", rows, engine=engine).to_pylist()

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(ask, range(40))) == [[{"a": number}] for number in range(40)]


@pytest.mark.parametrize("storage", ["", ", storage='stdout'", ", storage='file'"])
def test_a_query_changes_no_setting(storage: str) -> None:
    pytest.importorskip("duckdb")
    with pytest.raises(txlog.InvalidInputError, match="configuration"):
        txlog.sql(f"SELECT * FROM enable_logging('QueryLog'{storage})", engine="duckdb")
    assert txlog.sql("SELECT * FROM duckdb_logs()", engine="duckdb").num_rows == 0


@pytest.mark.slow
def test_a_process_that_forks_after_a_query_ends_well() -> None:
    pytest.importorskip("duckdb")
    code = """import os, sys, txlog
txlog.sql("SELECT 1 AS a", engine="duckdb")
child = os.fork()
if not child:
    sys.exit(0)
assert os.waitpid(child, 0)[1] == 0
"""
    subprocess.run([sys.executable, "-W", "ignore", "-c", code], check=True, timeout=300)


def test_the_engine_must_be_there(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(txlog.InvalidInputError, match="duckdb or polars"):
        txlog.sql("SELECT 1", engine="spark")  # type: ignore[arg-type]
    monkeypatch.setattr("txlog.table.query.find_spec", lambda _: None)
    with pytest.raises(txlog.UnsupportedFeatureError, match="pip install duckdb"):
        txlog.sql("SELECT 1")


@pytest.fixture
def shell(monkeypatch: pytest.MonkeyPatch) -> Any:
    testing = pytest.importorskip("IPython.core.interactiveshell")
    # It puts a module of its own into the place of the main one; then nothing can be spawned.
    monkeypatch.setitem(sys.modules, "__main__", sys.modules["__main__"])
    made = testing.InteractiveShell()
    made.history_manager.enabled = False
    made.run_line_magic("load_ext", "txlog")
    yield made
    made.reset()


@pytest.mark.slow
def test_the_magic_of_notebooks(flights: txlog.Table, shell: Any) -> None:
    pl = pytest.importorskip("polars")
    shell.user_ns |= {"names": NAMES, "late": flights.scan(where="delay > 5"), "raw": 1}
    query = "SELECT name FROM names\nWHERE carrier IN (SELECT carrier FROM raw.flights)"
    shown = shell.run_cell_magic("txlog", "", query)
    assert isinstance(shown, pl.DataFrame)
    assert shown.rows() == [("United",)]
    assert shell.run_line_magic("txlog", "SELECT delay FROM late").rows() == [(9,)]
    kept = shell.run_cell_magic("txlog", "-o found --engine polars", "SELECT count(*) FROM names")
    assert kept is None
    assert shell.user_ns["found"].rows() == [(2,)]
    from IPython.core.error import UsageError

    for line in ("nonsense", "--no"):
        with pytest.raises(UsageError, match="txlog"):
            shell.run_cell_magic("txlog", line, query)
    ran = shell.run_cell("%%txlog\nSELECT * FROM nope")
    assert isinstance(ran.error_in_exec, txlog.NotFoundError)


def test_a_notebook_shows_values(shell: Any, tmp_path: Path) -> None:
    odd = "a<script>&\"'"
    rows = pa.table({odd: [1, 2], "day": ["2026-11-01", "2026-11-02"]})
    made = txlog.write(tmp_path / "<b>", rows, partition_by="day", name="<i>")
    outcome = made.append(rows, user_metadata="<script>alert(1)</script>")
    values = {"table": made, "scan": made.scan(where="day > '2026-11-01'")}
    values |= {"outcome": outcome, "history": made.history(), "skipped": made.delete("false")}
    values |= {"explanation": values["scan"].explain(), "fragments": made.fragments()}
    values |= {"fragment": made.fragments()[3], "diagnosis": made.doctor()}
    shell.user_ns |= values
    shown: dict[str, str] = {}
    for name in values:
        data, _ = shell.display_formatter.format(shell.user_ns[name])
        shown[name] = data["text/html"]
    for html in shown.values():
        assert "<script" not in html
        assert "<b>" not in html.replace("<div><b>", "")
        assert len(html) < 10_000
        assert re.search(r"background:(?!none)|[; \"]color:", html) is None  # Light and dark.
    assert ">4<" in shown["table"]
    assert "a&lt;script&gt;&amp;&quot;&#x27;" in shown["table"]
    assert "`day` &gt;" in shown["scan"]
    assert "made version 1" in shown["outcome"]
    assert "committed nothing" in shown["skipped"]
    assert "&lt;script&gt;alert" in shown["history"]
    assert ">2 of 4<" in shown["explanation"]
    assert "4 fragments of version 1" in shown["fragments"]
    assert shown["fragments"].count(">day=2026-11-01<") == 2
    assert ">day=2026-11-02<" in shown["fragment"]
    assert "Version 1; 4 of 4 data files were opened." in shown["diagnosis"]
    assert isinstance(made.history(), list)


def test_html_is_cut_where_it_is_long() -> None:
    html = rows_html(["n"], [[n] for n in range(1000)])
    assert "and 970 more" in html
    assert html.count("<tr>") == 31
    assert len(facts_html({"x": "y" * 10_000})) < 1000
    assert facts_html({"x": None}) == ""
    assert titled("<") == "<div><b>&lt;</b></div>"
