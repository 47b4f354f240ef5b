"""Calls by the names that deltalake and pylance have for them, held to what these give."""

from datetime import date
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import txlog
from tests.examples import examples
from txlog import col
from txlog.errors import InvalidInputError, InvalidTypeError

ROWS = pa.table(
    {
        "n": pa.array([1, 2, 3, 4, None, 6], pa.int64()),
        "p": ["a", "a", "b", "b", None, "7"],
        "q": pa.array([date(2024, 1, 1), None] * 3, pa.date32()),
        "st": [{"x": k, "y.z": str(k)} for k in range(6)],
        "ok": [True, False, None] * 2,
    }
)


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> txlog.Table:
    table = txlog.write(
        tmp_path_factory.mktemp("t"), ROWS, partition_by=["p", "q"],
        properties={"delta.enableDeletionVectors": "false"},
    )  # fmt: skip
    table.append(ROWS.slice(0, 3))
    return table


NAMES = {"n": [1, 2, 4, "3", None], "p": ["a", "b", "c"], "q": [date(2024, 1, 1), "2024-01-01"]}


@st.composite
def one_filter(draw: st.DrawFn) -> tuple[str, str, Any]:
    name = draw(st.sampled_from(list(NAMES)))
    value = st.sampled_from([value for value in NAMES[name] if value is not None])
    operator = draw(st.sampled_from(["=", "==", "!=", "<", "<=", ">", ">=", "in", "not in"]))
    kind = draw(st.sampled_from([list, tuple, set]))
    if operator.endswith("in"):
        return name, operator, kind(draw(st.lists(value, min_size=1, max_size=3)))
    return name, operator, draw(value)


@settings(max_examples=examples(60))
@given(st.lists(st.lists(one_filter(), min_size=1, max_size=2), min_size=1, max_size=3))
def test_filters_mean_what_pyarrow_takes_them_for(
    table: txlog.Table, filters: list[list[tuple[str, str, Any]]]
) -> None:
    kinds = {"n": int, "p": str, "q": lambda text: date.fromisoformat(str(text))}

    def typed(one: tuple[str, str, Any]) -> tuple[str, str, Any]:
        name, operator, value = one
        make = kinds[name]
        return name, operator, [*map(make, value)] if operator.endswith("in") else make(value)

    meant = pq.filters_to_expression([[typed(one) for one in group] for group in filters])
    whole = [pa.compute.field(name).is_valid() for name in NAMES]
    no_nulls = whole[0] & whole[1] & whole[2]  # Of these pyarrow's `not in` is true, SQL's is not.
    order = [("n", "ascending"), ("p", "ascending")]
    got = table.to_arrow(["n", "p", "q"], filters).filter(no_nulls).sort_by(order)
    assert got == table.to_arrow(["n", "p", "q"]).filter(meant & no_nulls).sort_by(order)
    if len(filters) == 1:
        assert table.count(filters[0]) == table.count(filters)


def test_what_is_no_filter(table: txlog.Table) -> None:
    assert table.count([]) == table.count()
    odd: Any
    for odd, reason in (
        ([("n", "=>", 1)], "'=>' is none of"),
        ([("n", "in", 1)], "in needs a list"),
        ([("n", "=")], "is no filter"),
        ([[]], "an empty list"),
        ([("n", "=", 1), [("n", "=", 2)]], "is no filter"),
        ([("none", "=", 1)], "no column none"),
    ):
        with pytest.raises(InvalidInputError, match=reason):
            table.count(odd)
    with pytest.raises(InvalidTypeError):
        table.count({"n": 1})  # type: ignore[arg-type]


def test_text_is_compared_with_numbers_as_a_number(tmp_path: Path) -> None:
    rows = pa.table({"p": ["1", "02", "30", None], "n": [1, 2, 3, 4]})
    table = txlog.write(tmp_path / "t", rows, partition_by=["p"])
    assert sorted(table.to_arrow(where="p >= 2")["n"].to_pylist()) == [2, 3]
    assert table.to_arrow(where="p IN (1, 2.0)").num_rows == 2
    assert table.to_arrow(where=col("p") == 2)["n"].to_pylist() == [2]
    assert table.scan(where="p = 2").explain().pruned_by_partition == 3
    assert table.scan(where="length(p) = 2 AND n > 0").explain().files_to_read == 2
    table.append(pa.table({"p": ["x"], "n": [5]}))
    with pytest.raises(InvalidInputError, match="cannot be computed"):
        table.count("p = 2")
    with pytest.raises(InvalidInputError, match="cannot be compared"):
        table.count("p IN (1, 'x')")


def test_add_actions_are_those_of_deltalake(table: txlog.Table) -> None:
    theirs = deltalake.DeltaTable(table.uri)
    for flatten in (False, True):
        ours = table.get_add_actions(flatten).sort_by("path")
        told = pa.table(theirs.get_add_actions(flatten)).sort_by("path")
        names = set(ours.column_names) & set(told.column_names)
        assert {"path", "size_bytes", "modification_time", "num_records"} <= names
        for name in sorted(names - {"partition", "min", "max", "null_count"}):
            assert ours[name].to_pylist() == told[name].to_pylist(), name
        if flatten:
            assert {"partition.p", "partition.q", "min.n", "max.n", "null_count.n"} <= names
            assert {"min.st.x", "null_count.st.y.z"} <= names
        else:
            assert ours["partition"].to_pylist() == told["partition"].to_pylist()
    assert ours["partition.q"].type == pa.date32()
    few = txlog.write(
        "memory://few-statistics", ROWS, properties={"delta.dataSkippingStatsColumns": "n,st.x"}
    ).get_add_actions(True)
    assert [name for name in few.column_names if "min" in name] == ["min.n", "min.st.x"]
    empty = txlog.Table.create("memory://no-adds", ROWS.schema).get_add_actions(True)
    assert empty.num_rows == 0
    assert "min.n" in empty.column_names


def test_partitions_are_those_of_deltalake(table: txlog.Table, tmp_path: Path) -> None:
    def known(found: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
        return sorted((str(one["p"]), str(one["q"])) for one in found)

    theirs = deltalake.DeltaTable(table.uri)
    assert known(table.partitions()) == known(theirs.partitions())
    where = [("p", "in", ["a", "b"])]
    assert known(table.partitions(where)) == known(theirs.partitions(file_pruning_predicate=where))
    assert table.partitions("p = 'a' AND q IS NULL") == [{"p": "a", "q": None}]
    assert txlog.write(tmp_path / "plain", ROWS.drop("st")).partitions() == []
