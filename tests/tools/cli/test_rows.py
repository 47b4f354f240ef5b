"""`txlog append`, `merge` and `head`: rows of files and of tables."""

import json
import re
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pyarrow.parquet as pq
import pytest

import txlog
from txlog.base.remedies import Asked
from txlog.tools.cli.app import asked, run
from txlog.tools.cli.output import error_text

ROWS = pa.table(
    {
        "n": pa.array([1, 2, 3], pa.int32()),
        "t": ["a", "b", None],
        "at": pa.array([datetime(2024, 1, 1, tzinfo=UTC)] * 3, pa.timestamp("us", "UTC")),
        "day": pa.array([date(2024, 1, 1)] * 3),
        "price": pa.array([Decimal("1.50")] * 3, pa.decimal128(9, 2)),
    }
)
NEW = pa.concat_tables([ROWS.slice(1, 1), ROWS.slice(0, 1)])
NEW = NEW.set_column(0, "n", pa.array([2, 9], pa.int32())).set_column(1, "t", pa.array(["B", "z"]))


def as_table(rows: pa.Table, path: Path) -> None:
    txlog.write(path, rows)


WRITERS: dict[str, Callable[[pa.Table, Path], Any]] = {
    "new.parquet": pq.write_table,
    "new.csv": lambda rows, path: pyarrow.csv.write_csv(rows, path),
    "new.jsonl": lambda rows, path: path.write_text(
        "\n".join(json.dumps(row, default=str) for row in rows.select(["n", "t"]).to_pylist())
    ),
    "new.feather": lambda rows, path: pyarrow.feather.write_feather(rows, path),
    "new": as_table,
}


@pytest.fixture
def table(tmp_path: Path) -> txlog.Table:
    return txlog.write(tmp_path / "t", ROWS)


@pytest.mark.parametrize("name", WRITERS)
def test_append(table: txlog.Table, tmp_path: Path, name: str, capsys: Any) -> None:
    WRITERS[name](NEW, tmp_path / name)
    assert run(["append", table.uri, str(tmp_path / name), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["version"] == 1
    rows = table.refresh().to_arrow()
    assert rows.num_rows == 5
    if "json" not in name:
        assert rows.filter(pa.compute.field("t").isin(["B", "z"])).to_pylist() == NEW.to_pylist()


def test_append_with_a_quarantine(table: txlog.Table, tmp_path: Path, capsys: Any) -> None:
    table.alter.add_constraint({"small": "n < 9"})
    WRITERS["new.parquet"](NEW, tmp_path / "b.parquet")
    path, kept = str(tmp_path / "b.parquet"), str(tmp_path / "refused")
    assert run(["append", table.uri, path, "--quarantine", kept, "--dry-run"]) == 0
    assert not txlog.Table.exists(kept)
    capsys.readouterr()
    assert run(["append", table.uri, path, "--quarantine", kept, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["metrics"]["numQuarantinedRows"] == 1
    assert txlog.Table(kept).to_arrow()["name"].to_pylist() == ["small"]
    assert table.refresh().count() == 4
    assert run(["merge", table.uri, path, "--on", "n", "--quarantine", kept]) == 0
    assert txlog.Table(kept).to_arrow()["operation"].to_pylist() == ["WRITE", "MERGE"]


def test_follow(table: txlog.Table, capsys: Any) -> None:
    table.delete("n = 1")
    assert run(["follow", table.uri, "--start", "0", "--timeout", "0"]) == 0
    told = capsys.readouterr().out.splitlines()
    assert told == ["version 0: CREATE TABLE AS SELECT", "version 1: DELETE"]
    assert run(["follow", table.uri, "--start", "0", "--until", "1", "--json"]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["version"] for line in lines] == [0, 1]
    assert run(["follow", table.uri, "--token", lines[0]["token"], "--timeout", "0"]) == 0
    assert capsys.readouterr().out == "version 1: DELETE\n"


@pytest.mark.parametrize("name", WRITERS)
def test_merge(table: txlog.Table, tmp_path: Path, name: str, capsys: Any) -> None:
    WRITERS[name](NEW, tmp_path / name)
    assert run(["merge", table.uri, str(tmp_path / name), "--on", "n", "--json"]) == 0
    metrics = json.loads(capsys.readouterr().out)["metrics"]
    assert (metrics["numTargetRowsUpdated"], metrics["numTargetRowsInserted"]) == (1, 1)
    rows = table.refresh().to_arrow(["n", "t"]).sort_by("n").to_pylist()
    assert [tuple(row.values()) for row in rows] == [(1, "a"), (2, "B"), (3, None), (9, "z")]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--when-matched", "delete", "--when-not-matched", "ignore"], [1, 3]),
        (["--when-matched", "ignore"], [1, 2, 3, 9]),
        (["--when-not-matched-by-source", "delete"], [2, 9]),
        (["--on", "target.t < source.t"], [1, 2, 2, 3, 9]),  # 'b' < 'B' is false.
        (["--on", "`at`", "--on", "day", "--when-not-matched", "ignore"], [1, 2, 3]),
    ],
)
def test_what_becomes_of_rows(
    table: txlog.Table, tmp_path: Path, options: list[str], expected: list[int]
) -> None:
    pq.write_table(NEW, tmp_path / "new.parquet")
    call = ["merge", table.uri, str(tmp_path / "new.parquet"), "--on", "n", *options]
    assert run(call) == 0
    assert sorted(table.refresh().to_arrow(["n"])["n"].to_pylist()) == expected


def test_new_columns(table: txlog.Table, tmp_path: Path, capsys: Any) -> None:
    wide = NEW.append_column("more", pa.array([1, 2]))
    pq.write_table(wide, tmp_path / "wide.parquet")
    for command in (["append"], ["merge", "--on", "n"]):
        call = [command[0], table.uri, str(tmp_path / "wide.parquet"), *command[1:]]
        if command[0] == "append":
            assert run(call) == 1
            assert "schema-mismatch" in capsys.readouterr().err
        assert run([*call, "--merge-schema"]) == 0
    more = table.refresh().to_arrow(["more"])["more"]
    assert sorted(more.drop_null().to_pylist()) == [1, 1, 2]


def test_values_that_do_not_fit_become_null_if_asked(tmp_path: Path, capsys: Any) -> None:
    table = txlog.write(tmp_path / "t", pa.table({"n": [1, 2], "v": [5, 6]}))
    pq.write_table(pa.table({"n": [1, 2, 3], "v": ["7", "x", ""]}), tmp_path / "new.parquet")
    call = ["merge", table.uri, str(tmp_path / "new.parquet"), "--on", "n"]
    for options in ([], ["--error-on-type-mismatch"]):
        assert run([*call, *options]) == 1
        assert "string cannot be stored in column v" in capsys.readouterr().err
    assert table.refresh().version == 0
    assert run([*call, "--no-error-on-type-mismatch"]) == 0
    rows = table.refresh().to_arrow().sort_by("n").to_pylist()
    assert rows == [{"n": 1, "v": 7}, {"n": 2, "v": None}, {"n": 3, "v": None}]


def test_columns_that_the_source_lacks_keep_values_or_get_defaults(
    table: txlog.Table, tmp_path: Path
) -> None:
    table.alter.set_default("t", "'new'")
    pq.write_table(NEW.select(["n"]), tmp_path / "keys.parquet")
    assert run(["merge", table.uri, str(tmp_path / "keys.parquet"), "--on", "n"]) == 0
    rows = table.refresh().to_arrow(["n", "t", "price"], "n IN (2, 9)").sort_by("n").to_pylist()
    assert rows == [
        {"n": 2, "t": "b", "price": Decimal("1.50")},
        {"n": 9, "t": "new", "price": None},
    ]


def test_sources_that_are_none(table: txlog.Table, tmp_path: Path, capsys: Any) -> None:
    (tmp_path / "bad.parquet").write_bytes(b"no Parquet")
    (tmp_path / "bad.csv").write_text("n,t\nx,y\n")
    (tmp_path / "folder").mkdir()
    (tmp_path / "rows.xyz").write_text("n,t")
    for source, code, said in (
        ("none.parquet", 4, "no such file"),
        ("bad.parquet", 2, "cannot be read"),
        ("bad.csv", 2, "cannot be read"),
        ("folder", 4, "no table, and no file with rows"),
        ("new.xlsx", 2, "is not a table"),
        ("rows.xyz", 2, "its extension is none of"),
    ):
        assert run(["append", table.uri, str(tmp_path / source)]) == code, source
        assert said in capsys.readouterr().err
    assert run(["append", table.uri, (tmp_path / "rows.xyz").as_uri()]) == 2
    assert run(["merge", table.uri, str(tmp_path / "t")]) == 2  # Nothing says which rows match.
    assert table.refresh().version == 0


class TestHead:
    def test_rows_columns_and_versions(self, table: txlog.Table, capsys: Any) -> None:
        table.delete("n = 1")

        def shown(*options: str) -> Any:
            assert run(["head", table.uri, *options, "--json"]) == 0
            return json.loads(capsys.readouterr().out)

        assert shown("--columns", "n, t") == [{"n": 2, "t": "b"}, {"n": 3, "t": None}]
        assert [row["n"] for row in shown("-n", "1")] == [2]
        assert [row["n"] for row in shown("--version", "0")] == [1, 2, 3]
        assert [row["n"] for row in shown("--where", "n > 2")] == [3]
        assert shown("-n", "0") == []

    @pytest.mark.parametrize("width", ["20", "40", "80"])
    def test_narrow_terminals(
        self, table: txlog.Table, width: str, capsys: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("COLUMNS", width)
        assert run(["head", table.uri, "--columns", "n"]) == 0
        lines = [line.strip() for line in capsys.readouterr().out.splitlines()]
        rule = next(at for at, line in enumerate(lines) if line and not line.strip("─"))
        # A path that is wrapped above the rule may leave a line of digits.
        assert [line for line in lines[rule:] if line.isdigit()] == ["1", "2", "3"]

    def test_brackets_in_names_are_text(
        self, tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("COLUMNS", "200")
        monkeypatch.chdir(tmp_path)
        txlog.write("a[red]b", pa.table({"x[red]y": [1]}))
        assert run(["head", "a[red]b"]) == 0
        printed = capsys.readouterr().out
        assert "a[red]b" in printed
        assert "x[red]y" in printed

    def test_years_beyond_those_of_python(self, tmp_path: Path, capsys: Any) -> None:
        moments = pa.array([300_000_000_000_000_000, None], pa.timestamp("us", "UTC"))
        days = pa.array([5_000_000, 0], pa.int32()).cast(pa.date32())
        nested = pa.StructArray.from_arrays([moments], ["x"])
        path = txlog.write(
            tmp_path / "far", pa.table([moments, days, nested], ["at", "day", "s"])
        ).uri
        for command in ("head", "blame"):
            assert run([command, path, "--json"]) == 0
            first, second = json.loads(capsys.readouterr().out)
            assert (first["at"], first["day"]) == ("11476-08-15 05:20:00.000000Z", "15659-07-15")
            assert (second["at"], second["day"], second["s"]) == (None, "1970-01-01", {"x": None})
            assert "cannot be shown" in first["s"]
            assert run([command, path]) == 0
            assert "11476" in capsys.readouterr().out

    def test_an_unknown_column_is_named(self, table: txlog.Table, capsys: Any) -> None:
        assert run(["head", table.uri, "--columns", "absent"]) == 2
        assert "absent" in capsys.readouterr().err


class TestSql:
    @pytest.fixture(autouse=True)
    def _engines(self) -> None:
        pytest.importorskip("duckdb")

    def test_rows_as_json_csv_and_text(self, table: txlog.Table, capsys: Any) -> None:
        query = f"SELECT n, t, day FROM '{table.uri}' WHERE n > 1 ORDER BY n"
        assert run(["sql", query, "--json"]) == 0
        day = "2024-01-01"
        expected = [{"n": 2, "t": "b", "day": day}, {"n": 3, "t": None, "day": day}]
        assert json.loads(capsys.readouterr().out) == expected
        assert run(["sql", query, "--csv"]) == 0
        assert capsys.readouterr().out == '"n","t","day"\n2,"b",2024-01-01\n3,,2024-01-01\n'
        assert run(["sql", query]) == 0
        assert capsys.readouterr().out.split()[:3] == ["n", "t", "day"]

    @pytest.mark.parametrize("engine", ["duckdb", "polars"])
    def test_names(self, table: txlog.Table, capsys: Any, engine: str) -> None:
        pytest.importorskip(engine)
        query = "SELECT count(*) AS c FROM x"
        given = ["--table", f"x={table.uri}", "--engine", engine]
        assert run(["sql", query, *given, "--json"]) == 0
        assert json.loads(capsys.readouterr().out) == [{"c": 3}]
        root = str(Path(table.uri).parent)
        assert run(["sql", "SELECT count(*) AS c FROM t", "--root", root, "--json"]) == 0
        assert json.loads(capsys.readouterr().out) == [{"c": 3}]

    def test_wrong_calls(self, table: txlog.Table, capsys: Any) -> None:
        assert run(["sql", "SELECT 1", "--json", "--csv"]) == 2
        assert run(["sql", "SELECT 1", "--table", "x"]) == 2
        assert run(["sql", f"DELETE FROM '{table.uri}'"]) == 2
        assert "one SELECT" in capsys.readouterr().err
        assert run(["sql", "SELECT [1, 2] AS l", "--csv"]) == 2
        assert "--json" in capsys.readouterr().err


def test_a_table_is_made_of_a_file(tmp_path: Path, capsys: Any) -> None:
    pq.write_table(ROWS, tmp_path / "first.parquet")
    given = ["create", str(tmp_path / "made"), str(tmp_path / "first.parquet")]
    more = ["--partition-by", "day", "--property", "owner=me", "--description", "prices"]
    assert run([*given, *more, "--dry-run"]) == 0
    assert "would commit" in capsys.readouterr().out
    assert not txlog.Table.exists(tmp_path / "made")
    assert run([*given, *more, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["version"] == 0
    table = txlog.Table(tmp_path / "made")
    assert (table.partition_columns, table.properties["owner"]) == (["day"], "me")
    assert table.metadata.description == "prices"
    assert table.to_arrow().select(ROWS.column_names).to_pylist() == ROWS.to_pylist()
    assert run(given) == 1
    assert "already" in capsys.readouterr().err


def test_a_table_is_made_of_columns(tmp_path: Path, capsys: Any) -> None:
    columns = ["--column", "id=BIGINT", "--column", "price=DECIMAL(10,2)"]
    assert run(["create", str(tmp_path / "t"), *columns, "--cluster-by", "id"]) == 0
    table = txlog.Table(tmp_path / "t")
    assert table.schema == pa.schema([("id", pa.int64()), ("price", pa.decimal128(10, 2))])
    assert table.count() == 0
    for wrong in ([], ["new.csv", *columns], ["--column", "id"], [*columns, *columns]):
        assert run(["create", str(tmp_path / "u"), *wrong]) == 2
    assert not (tmp_path / "u").exists()


def test_a_folder_of_files_becomes_a_table(tmp_path: Path, capsys: Any) -> None:
    for day in ("01", "02"):
        (tmp_path / "lake" / f"day={day}").mkdir(parents=True)
        pq.write_table(ROWS.select(["n", "t"]), tmp_path / "lake" / f"day={day}" / "a.parquet")
    given = ["convert", str(tmp_path / "lake"), "--partition-by", "day=STRING"]
    assert run([*given, "--dry-run"]) == 0
    assert not txlog.Table.exists(tmp_path / "lake")
    assert run(given) == 0
    assert "made version 0" in capsys.readouterr().out
    table = txlog.Table(tmp_path / "lake")
    assert sorted(table.to_arrow()["day"].to_pylist()) == ["01"] * 3 + ["02"] * 3


def test_commands_of_a_remedy_name_the_table_that_the_error_is_about(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("good", "other", "damaged"):
        txlog.write(name, pa.table({"id": [1]})).append(pa.table({"id": [2]}))
    Path("damaged/_delta_log/00000000000000000001.json").write_text("{broken", encoding="utf-8")
    Path("rows.csv").write_text("id\n3\n", encoding="utf-8")
    query = ["sql", "select * from t", "--table", "g=good", "--table"]
    uri = (tmp_path / "damaged").as_uri()
    for words, name in (
        (["append", "good", "damaged"], "damaged"),
        (["append", "./damaged/", "good"], "./damaged/"),
        (["append", "damaged", "rows.csv"], "damaged"),
        (["merge", "good", "damaged", "--on", "id"], "damaged"),
        (["create", "new", "damaged"], "damaged"),
        (["clone", "damaged", "new"], "damaged"),
        (["clone", "good", "other"], "other"),
        (["convert", "good"], "good"),
        ([*query, "t=damaged"], "damaged"),
        (["count", uri], uri),
    ):
        assert run(words) != 0
        said = capsys.readouterr().err
        lines = re.findall("`txlog [a-z]+ ([^ `]+)[^`]*`", said)
        assert lines, words
        assert set(lines) == {name}, words
    error = txlog.InvalidInputError(reason="r", remedy="Call restore(1)")
    for call, advice in (
        (asked(["vacuum", "good"]), "Call `txlog restore good --version 1`"),
        (asked(["append", "good", "rows.csv"]), "Call `txlog restore good --version 1`"),
        (asked(["append", "good", "damaged"]), "Call restore(1) (from Python)"),
        (Asked(), "Call restore(1) (from Python)"),
    ):
        assert f"{advice} (txlog help" in error_text(error, call)
