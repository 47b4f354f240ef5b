"""What cannot be computed for a partition is an error or left out, and never all files."""

import math
import operator
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import txlog
from tests.examples import examples
from tests.predicates import predicates_over
from txlog import InvalidInputError, TxlogWarning, col
from txlog.expressions.bind import bind
from txlog.expressions.evaluate import is_true as is_true_of

LARGE = "txlog.snapshot.live_files._LARGE_BYTES"
TEXTS = ["x", "2020", "2021", "7", None]
NUMBERS = [2020, 7, None]
COMPARED: dict[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq,
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    ">=": operator.ge,
}


@pytest.fixture(name="tables", scope="module")
def fixture_tables(tmp_path_factory: pytest.TempPathFactory) -> dict[str, txlog.Table]:
    folder = tmp_path_factory.mktemp("computed")
    return {mode: table_at(folder / mode, mode) for mode in ("none", "name")}


def table_at(path: Path, mode: str) -> txlog.Table:
    """Write a table with a file for each pair of a text and a number as partition values."""
    pairs = [(text, number) for text in TEXTS for number in NUMBERS]
    rows = pa.table(
        {
            "y": pa.array([text for text, _ in pairs], pa.string()),
            "n": pa.array([number for _, number in pairs], pa.int64()),
            "v": range(len(pairs)),
        }
    )
    table = txlog.write(
        path,
        rows,
        partition_by=["y", "n"],
        properties={"delta.columnMapping.mode": mode},
    )
    table.maintenance.checkpoint()
    return table


Filter = tuple[str, str, Any]


@st.composite
def one_filter(draw: st.DrawFn) -> Filter:
    name = draw(st.sampled_from("yn"))
    values = [2020, 2021.5, 7, None, *(["x", "2020"] if name == "y" else [])]
    value = st.sampled_from(values)
    if draw(st.booleans()):
        return name, draw(st.sampled_from(["in", "not in"])), draw(st.lists(value, min_size=1))
    chosen = draw(value)
    signs = ["=", "==", "!="] if chosen is None else [*COMPARED]
    return name, draw(st.sampled_from(signs)), chosen


def is_true(row: dict[str, Any], one: Filter) -> bool:
    """Return what a filter says of a row; ValueError if that cannot be computed."""
    name, sign, value = one
    held = row[name]
    if sign in ("in", "not in"):
        if held is None:
            return sign == "in" and None in value
        numbers = [one for one in value if isinstance(one, int | float)]
        known = float(held) if numbers else held
        among = [float(one) if numbers else one for one in value if one is not None]
        return (known in among) == (sign == "in")
    if value is None:
        return (held is None) == (sign != "!=")
    if held is None:
        return False
    return COMPARED[sign](held if isinstance(value, str) else float(held), value)


def can_be_computed(row: dict[str, Any], group: list[Filter]) -> bool:
    try:
        for one in group:
            is_true(row, one)
    except ValueError:
        return False
    return True


def answers(table: txlog.Table, where: Any) -> dict[str, list[int] | str]:
    """Return the rows in the files that each door chooses; all rows of these partitions match."""
    numbers = {uri: value for value, uri in _uris(table).items()}

    def of(door: Callable[[], list[int]]) -> list[int] | str:
        try:
            return sorted(door())
        except InvalidInputError as error:
            return error.code

    return {
        "rows": of(lambda: table.to_arrow(where=where)["v"].to_pylist()),
        "count": of(lambda: [table.count(where)]),
        "uris": of(lambda: [numbers[uri] for uri in table.scan(where=where).file_uris()]),
        "fragments": of(
            lambda: [
                numbers[str(Path(table.uri, one.files[0].path))]
                for one in table.scan(where=where).fragments()
            ]
        ),
        "dataset": of(lambda: table.to_pyarrow_dataset(where).to_table()["v"].to_pylist()),
        "files": of(lambda: [table.files(["path"], where=where).num_rows]),
        "partitions": of(lambda: [table.partitions(where).num_rows]),
    }


def _uris(table: txlog.Table) -> dict[int, str]:
    return {
        one.to_table()["v"][0].as_py(): str(Path(table.uri, one.files[0].path))
        for one in table.fragments()
    }


@pytest.mark.slow
@settings(max_examples=examples(60))
@given(
    st.lists(st.lists(one_filter(), min_size=1, max_size=3), min_size=1, max_size=2),
    st.sampled_from(["none", "name"]),
    st.booleans(),
)
def test_no_door_chooses_more_than_the_filters_say(
    tables: dict[str, txlog.Table], groups: list[list[Filter]], mode: str, deferred: bool
) -> None:
    table = tables[mode]
    rows = table.to_arrow().to_pylist()
    every = [one for group in groups for one in group]
    is_sure = all(can_be_computed(row, every) for row in rows)
    with pytest.MonkeyPatch.context() as patch:
        if deferred:
            patch.setattr(LARGE, 0)
        found = answers(txlog.Table(table.uri), groups)
    refused = {door for door, answer in found.items() if answer == "invalid-input"}
    assert refused in (set(), set(found)), found  # All doors agree.
    if refused:
        mixed = any(
            any(isinstance(one, str) for one in value)
            and any(isinstance(one, int | float) for one in value)
            for _, sign, value in every
            if sign.endswith("in")
        )
        assert mixed or not is_sure
        return
    expected = []
    for row in rows:
        for group in groups:
            try:
                if all(is_true(row, one) for one in group):
                    expected.append(row["v"])
                    break
            except ValueError:
                continue  # Others of its filters have to exclude it.
    assert found == dict.fromkeys(["rows", "uris", "fragments", "dataset"], sorted(expected)) | {
        door: [len(expected)] for door in ("count", "files", "partitions")
    }


@pytest.fixture(name="odd", scope="module")
def fixture_odd(tmp_path_factory: pytest.TempPathFactory) -> txlog.Table:
    """A table with partitions of texts, numbers, floats and truth values."""
    rows = pa.table(
        {
            "t": ["a", "ab", "b", "20", None, "a%", "b", "a"],
            "i": pa.array([1, 2, 20, 20, 1, None, 3, 1], pa.int64()),
            "f": [0.5, math.nan, -0.0, 20.0, None, math.inf, math.nan, 0.0],
            "b": [True, False, None, True, None, False, True, False],
            "v": range(8),
        }
    )
    return txlog.write(tmp_path_factory.mktemp("odd"), rows, partition_by=["t", "i", "f", "b"])


VALUES: dict[str, st.SearchStrategy[Any]] = {
    "t": st.sampled_from(["", "a", "ab", "20"]),
    "i": st.sampled_from([1, 20, -1]),
    "f": st.sampled_from([math.nan, -0.0, 0.0, 0.5, 20.0, math.inf]),
    "b": st.booleans(),
    "v": st.integers(-1, 8),  # No partition column, but each file has one value.
}
between_columns = st.sampled_from(
    [col("i") == col("f"), col("f") >= col("i"), col("t") != col("t"), col("i") + 1 > 2, col("b")]
)


@pytest.mark.slow
@settings(max_examples=examples(150))
@given(predicates_over(VALUES, texts=["t"]), between_columns, st.sampled_from(["one", "and", "or"]))
@pytest.mark.filterwarnings("ignore:no value of the partition column")
def test_files_have_no_other_rows(
    odd: txlog.Table, one: txlog.Expression, other: txlog.Expression, how: str
) -> None:
    where = {"one": one, "and": one & other, "or": one | other}[how]
    rows = sorted(odd.to_arrow(where=where)["v"].to_pylist())
    assert sorted(odd.to_pyarrow_dataset(where).to_table()["v"].to_pylist()) == rows
    assert len(odd.scan(where=where).file_uris()) == len(rows)
    everything = odd.to_arrow().combine_chunks().to_batches()[0]
    kept = is_true_of(bind(where, odd.snapshot.schema), everything)
    assert rows == sorted(everything.filter(kept)["v"].to_pylist())


@pytest.fixture(name="years")
def fixture_years(tmp_path: Path) -> txlog.Table:
    rows = pa.table({"y": ["x", "2020", None], "v": [1, 2, 3]})
    return txlog.write(tmp_path / "years", rows, partition_by=["y"])


@pytest.mark.parametrize("where", [[("y", "=", 2020)], [("y", "in", [2020])], "y > 2020"])
def test_a_text_that_is_no_number_is_an_error_at_each_door(years: txlog.Table, where: Any) -> None:
    for door in (
        years.to_arrow,
        years.to_pyarrow_dataset,
        years.files,
        lambda where: years.scan(where=where).file_uris(),
        lambda where: years.delete(where),
    ):
        with pytest.raises(InvalidInputError, match=r"cannot be computed.*'x'"):
            door(where=where)


def test_a_partition_that_is_excluded_need_not_be_computed(years: txlog.Table) -> None:
    assert years.to_arrow(where="v = 2 AND y >= 2020")["v"].to_pylist() == [2]
    assert len(years.scan(where="y >= 2020 AND y <> 'x'").file_uris()) == 1


def test_parts_that_cannot_be_computed_are_errors_beside_or(years: txlog.Table) -> None:
    for door in (years.to_arrow, years.to_pyarrow_dataset, years.files, years.count):
        with pytest.raises(InvalidInputError, match="'x'"):
            door(where="y > 2020 OR v = 2")  # type: ignore[operator]
    assert len(years.scan(where="v = 2 AND (y > 2020 OR v = 2)").file_uris()) == 1
    assert len(years.scan(where="v = 3 OR upper(y) = 'X'").file_uris()) == 2


@pytest.mark.parametrize(
    ("where", "count"),
    [
        ("y = 'x' OR CAST(y AS INT) > 2020", 1),
        ("NOT (y RLIKE '^[0-9]+$') OR CAST(y AS INT) = 1", 1),
    ],
)
def test_a_part_beside_a_true_one_need_not_be_computed(
    years: txlog.Table, where: str, count: int
) -> None:
    assert years.count(where) == count


def test_constants_that_are_not_true_exclude_all_files(years: txlog.Table) -> None:
    assert years.scan(where="1 > 2").file_uris() == []
    assert years.scan(where="year(now()) < 2000 AND v = 1").file_uris() == []
    assert len(years.scan(where="1 < 2 AND v = 1").file_uris()) == 1


def test_none_in_a_filter_means_null(years: txlog.Table) -> None:
    def held(*filters: Filter) -> list[int]:
        found: list[int] = years.to_arrow(where=list(filters))["v"].to_pylist()
        assert sorted(years.to_pyarrow_dataset(list(filters)).to_table()["v"].to_pylist()) == (
            sorted(found)
        )
        return sorted(found)

    assert held(("y", "=", None)) == [3]
    assert held(("y", "!=", None)) == [1, 2]
    assert held(("y", "in", ["x", None])) == [1, 3]
    assert held(("y", "in", [None])) == [3]
    assert held(("y", "not in", ["x", None])) == [2]
    assert held(("y", "not in", ["x"])) == [2]  # As in SQL, nulls are not among the others.
    with pytest.raises(InvalidInputError, match=r'nothing is < None.*\("y", "=", None\)'):
        held(("y", "<", None))


@pytest.mark.parametrize("null", [pa.scalar(None, pa.string()), np.datetime64("NaT"), "NaT", "NA"])
def test_a_null_of_another_library_is_none(years: txlog.Table, null: Any) -> None:
    if isinstance(null, str):
        null = getattr(pytest.importorskip("pandas"), null)
    for filters, rows in (
        (("y", "=", null), [3]),
        (("y", "!=", null), [1, 2]),
        (("y", "in", ["x", null]), [1, 3]),
        (("y", "not in", ["x", null]), [2]),
    ):
        assert sorted(years.to_arrow(where=[filters])["v"].to_pylist()) == rows
    with pytest.raises(InvalidInputError, match="nothing is < None"):
        years.count([("y", "<", null)])
    years.update(new_values={"v": null}, where="v = 1")
    assert years.count("v IS NULL") == 1


@pytest.mark.parametrize("where", [[("y", "=", "")], [("y", "in", ["", "x"])], "y = ''"])
def test_an_empty_text_is_no_partition(years: txlog.Table, where: Any) -> None:
    with pytest.warns(TxlogWarning, match=r'\("y", "=", None\)') as told:
        years.count(where)
    assert [one.filename for one in told] == [__file__]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert years.count("y <> ''") == 2
        assert years.count([("v", "=", 1)]) == 1
