"""Fields of structs as columns of a scan."""

from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import txlog
from tests.examples import examples

ROWS = [
    {"x": 1, "st": {"b": 1, "q": {"c": "u", "d": 5}}, "l": [{"y": 1}]},
    {"x": 2, "st": None, "l": None},
    {"x": 3, "st": {"b": None, "q": None}, "l": []},
    {"x": 4, "st": {"b": 4, "q": {"c": None, "d": 6}}, "l": [{"y": 4}]},
]
PATHS = ["x", "st", "st.b", "st.q", "st.q.c", "st.q.d"]


def value(row: Any, path: str) -> Any:
    for name in path.split("."):
        row = None if row is None else row[name]
    return row


@pytest.fixture(scope="module", params=["none", "name", "id"])
def table(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> txlog.Table:
    properties = {"delta.columnMapping.mode": request.param}
    made = txlog.write(
        tmp_path_factory.mktemp("t") / "t", pa.Table.from_pylist(ROWS), properties=properties
    )
    made.append(
        pa.Table.from_pylist(
            [{"x": 9, "st": {"b": 9}, "l": None}],
            pa.schema(
                [("x", pa.int64()), ("st", pa.struct([("b", pa.int64())])), ("l", pa.null())]
            ),
        )
    )
    made.delete("x = 3")
    return made


HELD = [ROWS[0], ROWS[1], ROWS[3], {"x": 9, "st": {"b": 9, "q": None}}]


@settings(max_examples=examples(60), deadline=None)
@given(
    columns=st.lists(st.sampled_from(PATHS), min_size=1, max_size=4, unique=True),
    where=st.sampled_from([None, "st.b > 1", "st.q.d = 5", "x < 5 AND st IS NOT NULL"]),
)
def test_fields_are_those_of_the_rows(table: txlog.Table, columns: list[str], where: Any) -> None:
    found = table.to_arrow(columns, where)
    assert found.column_names == columns
    kept = [row for row in HELD if keeps(row, where)]
    assert sorted(map(str, found.to_pylist())) == sorted(
        str({path: value(row, path) for path in columns}) for row in kept
    )
    assert table.to_polars(columns, where).columns == columns
    assert found.schema == table.scan(columns, where).schema


def keeps(row: Any, where: str | None) -> bool:
    match where:
        case "st.b > 1":
            return (value(row, "st.b") or 0) > 1
        case "st.q.d = 5":
            return bool(value(row, "st.q.d") == 5)
        case "x < 5 AND st IS NOT NULL":
            return row["x"] < 5 and row["st"] is not None
    return True


def test_names_and_other_doors(table: txlog.Table) -> None:
    assert table.to_arrow(["ST.`q`.C"]).column_names == ["st.q.c"]
    assert table.to_arrow(["st.b"]).schema.field("st.b").type == pa.int64()
    assert table.head(1, columns=["st.q.d"]).num_rows == 1
    assert table.take([0], columns=["st.b", "x"]).to_pylist() == [{"st.b": 1, "x": 1}]
    assert sum(batch.num_rows for batch in table.to_batches(["st.b"])) == 4
    assert pl.DataFrame(table.scan(["st.b"])).columns == ["st.b"]
    for name in ("st.nothing", "nothing.b", "l.y", "l.element.y", "st.b.c", "x.", "."):
        with pytest.raises(txlog.InvalidInputError, match="no such column"):
            table.to_arrow([name])


def test_a_column_of_the_name_comes_first(tmp_path: Path) -> None:
    data = pa.table({"st.b": [7], "st": [{"b": 1}]})
    table = txlog.write(tmp_path / "t", data)
    assert table.to_arrow(["st.b"]).to_pylist() == [{"st.b": 7}]
    assert table.to_arrow(["st.b", "st"]).to_pylist() == data.to_pylist()


def test_other_fields_are_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import pyarrow.parquet as pq

    txlog.write(tmp_path / "t", pa.Table.from_pylist(ROWS))
    asked: list[Any] = []
    known = pq.ParquetFile.iter_batches

    def noted(self: Any, *given: Any, **named: Any) -> Any:
        asked.append(named["columns"])
        return known(self, *given, **named)

    monkeypatch.setattr(pq.ParquetFile, "iter_batches", noted)
    table = txlog.Table(tmp_path / "t")
    assert table.to_arrow(["st.q.c"])["st.q.c"].to_pylist() == ["u", None, None, None]
    assert table.to_arrow(["st.b"], "st.q.d = 6")["st.b"].to_pylist() == [4]
    assert asked == [["st.q.c"], ["st.b", "st.q.c", "st.q.d"]]
