"""Frames: the rows of `to_arrow`, whoever read them."""

import math
import os
import sys
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, NoReturn

import corpus
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import txlog
from txlog.base.errors import (
    DataFileError,
    InvalidInputError,
    TxlogWarning,
    UnsupportedFeatureError,
)
from txlog.expressions.tree import And, Expression, IsNull, Not, Or, col, lit
from txlog.scan import frames
from txlog.scan.scan import Scan

NAN = math.nan
VALUES: dict[str, tuple[pa.DataType, list[Any]]] = {
    "k": (pa.int64(), list(range(12))),
    "i": (pa.int32(), [1, 2, None, -5, 7, 7, 2**31 - 1, None, 0, 3, 4, -(2**31)]),
    "b": (pa.int8(), [1, None, 3, 127, -128, 0, 1, 2, 3, None, 5, 6]),
    "x": (pa.float64(), [0.0, -0.0, NAN, None, 1.5, math.inf, -math.inf, 7, 3, NAN, None, 2]),
    "f": (pa.float32(), [0.1, NAN, -0.0, 0.0, None, 1.5, 7, 3.25, math.inf, 2, 1, NAN]),
    "s": (pa.string(), ["a", "b", None, "", "ab", "A", "é", "\U0001f600", "a%", "a_", "\0", "z"]),
    "y": (pa.binary(), [b"a", b"", None, b"\xff", b"ab", b"\0", b"b", b"c", None, b"d", b"", b"z"]),
    "t": (pa.bool_(), [True, False, None] * 4),
    "d": (pa.date32(), [date(2020, 1, 1 + n) if n % 5 else None for n in range(12)]),
    "u": (pa.timestamp("us", "UTC"), [datetime(2020, 1, 1, n, tzinfo=UTC) for n in range(12)]),
    "w": (pa.timestamp("us"), [datetime(1, 1, 1), None, datetime(9999, 12, 31)] * 4),
    "n": (pa.decimal128(12, 2), [Decimal(n) / 4 if n % 3 else None for n in range(12)]),
    "p": (pa.string(), ["a b", None, "x%20y", "é", "a=b/c", "[*]?"] * 2),
    "q": (pa.int32(), [1, None] * 6),
}  # fmt: skip
DATA = pa.table({name: pa.array(values, kind) for name, (kind, values) in VALUES.items()})


def require_same(scan: Scan) -> pl.DataFrame:
    expected = pl.from_arrow(scan.to_arrow())
    assert isinstance(expected, pl.DataFrame)
    found = scan.to_polars()
    assert found.schema == expected.schema
    assert found.height == expected.height
    assert found.equals(expected)
    # `equals` does not tell -0.0 from 0.0.
    assert repr(found.to_dicts()) == repr(expected.to_dicts())
    return found


def cut_row_groups(table: txlog.Table, rows: int = 3) -> None:
    """Write the files again, with small row groups."""
    for path in Path(table.uri).rglob("*.parquet"):
        if "_delta_log" not in path.parts:
            pq.write_table(pq.read_table(path, partitioning=None), path, row_group_size=rows)


def plain(root: Path) -> txlog.Table:
    return txlog.write(root, DATA, options=txlog.WriteOptions(max_rows_per_file=7))


def deleted(root: Path) -> txlog.Table:
    table = plain(root)
    table.delete("k in (0, 5, 8, 11)")
    return table


def partitioned(root: Path) -> txlog.Table:
    table = txlog.write(root, DATA, partition_by=["p", "q"])
    table.delete("k in (3, 4)")
    return table


def evolved(root: Path) -> txlog.Table:
    old = ["k", "x", "s", "w"]
    table = txlog.write(root, DATA.select(old))
    table.append(DATA.select([*reversed(DATA.column_names)]), schema_mode="merge")
    return table


@pytest.fixture(scope="module", params=[plain, deleted, partitioned, evolved])
def table(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> txlog.Table:
    make: Callable[[Path], txlog.Table] = request.param
    table = make(tmp_path_factory.mktemp("polars") / "t")
    cut_row_groups(table)
    return txlog.Table(table.uri)


@pytest.fixture
def only_polars(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> NoReturn:
        raise AssertionError("this is for polars to read")

    monkeypatch.setattr(frames, "read_fragment", refuse)


@pytest.fixture
def only_arrow(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> NoReturn:
        raise AssertionError("this is not for polars to read")

    monkeypatch.setattr(pl, "scan_parquet", refuse)


@st.composite
def comparisons(draw: st.DrawFn) -> Expression:
    name = draw(st.sampled_from(sorted(VALUES)))
    values = st.sampled_from([value for value in VALUES[name][1] if value is not None])
    match draw(st.sampled_from(["compare", "in", "null", "columns", "like", "truth"])):
        case "compare":
            op = draw(st.sampled_from(["__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__",
                                       "eq_null_safe"]))  # fmt: skip
            return getattr(col(name), op)(draw(values | st.none()))  # type: ignore[no-any-return]
        case "in":
            return col(name).isin(draw(st.lists(values | st.none(), min_size=1, max_size=3)))
        case "null":
            return IsNull(col(name))
        case "columns":
            other = draw(st.sampled_from(["i", "b", "k", "q"] if name in "ibkq" else [name]))
            return col(name) < col(other)
        case "like":
            text = draw(st.sampled_from(["a%", "%a", "%a%", "a", "%", "a_", "%%", "", r"a\%"]))
            return col("s").like(text)
    return draw(st.sampled_from([col("t"), lit(True), lit(False), lit(None), col("i") + 1 > 2]))


predicates = st.recursive(
    comparisons(),
    lambda inner: st.one_of(
        st.builds(Not, inner),
        st.lists(inner, min_size=2, max_size=3).map(lambda parts: And(tuple(parts))),
        st.lists(inner, min_size=2, max_size=3).map(lambda parts: Or(tuple(parts))),
    ),
    max_leaves=4,
)
columns = st.none() | st.lists(st.sampled_from(sorted(VALUES)), unique=True)


@pytest.mark.slow
@given(where=predicates, columns=columns)
def test_any_scan_gives_the_rows_of_to_arrow(
    table: txlog.Table, where: Expression, columns: list[str] | None
) -> None:
    try:
        table.to_arrow(columns, where)
    except InvalidInputError:
        with pytest.raises(InvalidInputError):
            table.to_polars(columns, where)
        return
    require_same(table.scan(columns, where))


@pytest.mark.slow
@pytest.mark.usefixtures("only_polars")
@pytest.mark.parametrize("where", [None, "k > 3", "x = 7 or s like 'a%'", "p = 'é' and k > 0"])
def test_polars_reads_what_it_can(table: txlog.Table, where: str | None) -> None:
    require_same(table.scan(["k", "q", "x", "p", "n"], where))
    require_same(table.scan(["s"], where))


@corpus.NEEDS_CORPUS
@pytest.mark.usefixtures("only_polars")
@pytest.mark.parametrize(
    "name",
    ["duckdb/column_mapping_name_mode", "delta_kernel_defaults/column-mapping-id"],
)
def test_polars_reads_mapped_columns(name: str) -> None:
    (case,) = (case for case in corpus.cases() if case.name == name)
    assert require_same(txlog.Table(case.path).scan()).height


@pytest.mark.usefixtures("only_arrow")
@pytest.mark.parametrize("columns", [["k", "_rowaddr"], ["p", "q"], []])
def test_what_polars_does_not_know_is_read_by_arrow(tmp_path: Path, columns: list[str]) -> None:
    table = partitioned(tmp_path / "t")
    require_same(table.scan(columns))
    assert table.to_polars(columns).height == 10


@pytest.mark.usefixtures("only_arrow")
def test_tables_elsewhere_are_read_by_arrow() -> None:
    require_same(txlog.write("memory://frames/t", DATA).scan(where="k > 3"))


def first_file(table: txlog.Table) -> Path:
    return Path(table.uri, table.files()["path"][0].as_py())


@pytest.mark.usefixtures("only_arrow")
@pytest.mark.parametrize(
    "written",
    [
        {"use_deprecated_int96_timestamps": True},
        {"coerce_timestamps": "ms", "allow_truncated_timestamps": True, "version": "2.4"},
    ],
)
def test_other_timestamps_are_read_by_arrow(tmp_path: Path, written: dict[str, Any]) -> None:
    table = txlog.write(tmp_path / "t", DATA.select(["k", "u"]))
    pq.write_table(DATA.select(["k", "u"]), first_file(table), store_schema=False, **written)
    assert require_same(table.scan())["u"].to_list() == VALUES["u"][1]


@pytest.mark.usefixtures("only_arrow")
def test_dates_of_the_old_calendar_are_read_by_arrow(tmp_path: Path) -> None:
    days = pa.table({"d": [date(1500, 3, 11)]})
    table = txlog.write(tmp_path / "t", days)
    old = days.replace_schema_metadata({"org.apache.spark.legacyDateTime": ""})
    pq.write_table(old, first_file(table))
    assert require_same(table.scan())["d"].to_list() == [date(1500, 3, 1)]


@pytest.mark.usefixtures("only_arrow")
def test_a_narrower_type_is_read_by_arrow(tmp_path: Path) -> None:
    table = txlog.write(tmp_path / "t", pa.table({"i": pa.array([1, 2], pa.int64())}))
    pq.write_table(pa.table({"i": pa.array([1, 2], pa.int32())}), first_file(table))
    assert require_same(table.scan())["i"].dtype == pl.Int64


@pytest.mark.usefixtures("only_polars")
def test_names_are_found_ignoring_case(tmp_path: Path) -> None:
    table = txlog.write(tmp_path / "t", pa.table({"Id": [1, 2, 3]}))
    pq.write_table(pa.table({"ID": [1, 2, 3]}), first_file(table))
    table.delete("id = 2")
    assert require_same(table.scan(where="id < 3"))["Id"].to_list() == [1]


@pytest.mark.usefixtures("only_polars")
@pytest.mark.parametrize("folder", ["a b", "%20", "[x]*?", "~", "é#;", "file:x", "_x", "a=1"])
def test_paths_are_literal(tmp_path: Path, folder: str) -> None:
    table = txlog.write(tmp_path / folder / "t", DATA)
    table.delete("k = 3")
    assert require_same(table.scan()).height == 11


@pytest.mark.slow
def test_the_order_is_that_of_fragments(tmp_path: Path) -> None:
    rows = pa.table({"k": list(range(100_000)), "s": [str(n) for n in range(100_000)]})
    table = txlog.write(tmp_path / "t", rows, options=txlog.WriteOptions(max_rows_per_file=30_000))
    cut_row_groups(table, 2_000)
    assert require_same(table.scan())["k"].to_list() == list(range(100_000))
    require_same(table.scan(where="s like '%7'"))
    table.delete("k > 10 and k < 50000 and s like '%3'")
    require_same(table.scan(where="k > 20"))


@pytest.mark.parametrize("where", [None, "k > 3"])
def test_a_missing_file_is_named(tmp_path: Path, where: str | None) -> None:
    table = plain(tmp_path / "t")
    path = first_file(table)
    path.unlink()
    with pytest.raises(DataFileError, match="the file is missing") as caught:
        table.to_polars(where=where)
    assert caught.value.path == path.name


def test_a_torn_file_is_named(tmp_path: Path) -> None:
    table = txlog.write(tmp_path / "t", pa.table({"s": [os.urandom(50).hex()] + ["x"] * 99}))
    path = first_file(table)
    data = bytearray(path.read_bytes())
    data[4:60] = b"\xff" * 56  # The footer stays as it was.
    path.write_bytes(data)
    with pytest.raises(DataFileError, match="cannot be read as Parquet") as caught:
        table.to_polars()
    assert caught.value.path == path.name


def test_a_wrong_count_is_told(tmp_path: Path) -> None:
    table = txlog.write(tmp_path / "t", DATA)
    pq.write_table(DATA.slice(0, 5), first_file(table))
    with pytest.warns(TxlogWarning, match="has 12 rows, but it has 5"):
        assert table.to_polars().height == 5


def test_without_polars_the_error_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = plain(tmp_path / "t")
    monkeypatch.delitem(sys.modules, "txlog.scan.frames")
    monkeypatch.setitem(sys.modules, "polars", None)
    with pytest.raises(UnsupportedFeatureError, match=r"pip install 'pyspark-txlog\[polars\]'"):
        table.to_polars()


def _readable(cases: tuple[corpus.Case, ...]) -> None:
    assert cases
    for case in cases:
        try:
            scan = txlog.Table(case.path).scan()
            expected = pl.from_arrow(scan.to_arrow())
        except txlog.TxlogError:
            continue
        assert isinstance(expected, pl.DataFrame)
        found = scan.to_polars()
        assert found.schema == expected.schema, case.name
        assert found.equals(expected), case.name


@corpus.NEEDS_CORPUS
@pytest.mark.filterwarnings("ignore::txlog.base.errors.TxlogWarning")
def test_tables_of_other_engines() -> None:
    _readable(corpus.cases()[::10])


@corpus.NEEDS_CORPUS
@pytest.mark.exhaustive
@pytest.mark.filterwarnings("ignore::txlog.base.errors.TxlogWarning")
def test_all_tables_of_other_engines() -> None:
    _readable(corpus.cases())
