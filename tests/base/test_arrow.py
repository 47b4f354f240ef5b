"""Values of pyarrow, made without pandas."""

from __future__ import annotations

from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from txlog.base.arrow import (
    arrow_array,
    arrow_scalar,
    empty_table,
    numpy_array,
    numpy_type,
    pc,
    pq,
    table_of_rows,
)

FLAT: dict[pa.DataType, st.SearchStrategy[Any]] = {
    pa.null(): st.none(),
    pa.bool_(): st.booleans(),
    pa.int8(): st.integers(-128, 127),
    pa.int32(): st.integers(-(2**31), 2**31 - 1),
    pa.int64(): st.integers(-(2**63), 2**63 - 1),
    pa.float64(): st.floats(allow_nan=False),
    pa.string(): st.text(st.characters(exclude_categories=["Cs"]), max_size=4),
    pa.binary(): st.binary(max_size=4),
    pa.date32(): st.dates(),
    pa.decimal128(9, 2): st.decimals(-99, 99, places=2),
    pa.timestamp("us", "UTC"): st.datetimes() | st.datetimes(timezones=st.timezones()),
    pa.timestamp("us"): st.datetimes(),
    pa.float32(): st.floats(width=32, allow_nan=False),
}


def nullable(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.none() | values


def nested(depth: int) -> st.SearchStrategy[tuple[pa.DataType, st.SearchStrategy[Any]]]:
    flat = st.sampled_from(list(FLAT)).map(lambda kind: (kind, nullable(FLAT[kind])))
    if not depth:
        return flat
    inner = nested(depth - 1)
    return st.one_of(
        flat,
        inner.map(lambda of: (pa.list_(of[0]), nullable(st.lists(of[1], max_size=3)))),
        inner.map(
            lambda of: (
                pa.map_(pa.string(), of[0]),
                nullable(st.dictionaries(FLAT[pa.string()], of[1], max_size=3)),
            )
        ),
        st.tuples(inner, inner).map(
            lambda of: (
                pa.struct([("a", of[0][0]), ("b", of[1][0])]),
                nullable(st.fixed_dictionaries({}, optional={"a": of[0][1], "b": of[1][1]})),
            )
        ),
    )


@st.composite
def typed_values(draw: st.DrawFn) -> tuple[pa.DataType, list[Any]]:
    kind, values = draw(nested(2))
    return kind, draw(st.lists(values, max_size=12))


@given(typed_values())
def test_arrays_are_those_of_pyarrow(given: tuple[pa.DataType, list[Any]]) -> None:
    kind, values = given
    built = arrow_array(values, kind)
    built.validate(full=True)
    assert built.type == kind
    assert built.equals(pa.array(values, kind))
    assert built.null_count == pa.array(values, kind).null_count


ODD = [
    ([True], pa.int64()),
    ([1.5], pa.int64()),
    ([2**63], pa.int64()),
    (["7"], pa.int64()),
    ([1], pa.float64()),
    ([7], pa.string()),
    (["a", b"b"], pa.string()),
    (["\ud800"], pa.string()),
    ([1], pa.bool_()),
    ([datetime(2020, 1, 2, 3)], pa.date32()),
    ([Decimal("1.234")], pa.decimal128(9, 2)),
    ([Decimal("12345678.1")], pa.decimal128(9, 2)),
    ([Decimal("1E+6")], pa.decimal128(9, 2)),
    ([Decimal("1E-99")], pa.decimal128(9, 2)),
    ([Decimal("NaN")], pa.decimal128(9, 2)),
    ([Decimal("-0.010")], pa.decimal128(9, 2)),
    ([Decimal("1")], None),
    ([1e300], pa.float32()),
    ([datetime(2020, 1, 2, 3, tzinfo=timezone(timedelta(hours=2)))], pa.timestamp("us")),
    ([datetime(2020, 1, 2, 3)], pa.timestamp("s")),
    ([datetime(2020, 1, 2, 3)], None),
    ([[("a", 1, 2)]], pa.map_(pa.string(), pa.int64())),
    ([[(None, 1)]], pa.map_(pa.string(), pa.int64())),
    ([[("a", 1), ("a", 2)], None], pa.map_(pa.string(), pa.int64())),
    ([{"a": "x"}], pa.struct([("a", pa.int64())])),
    ([None, {}], pa.struct([pa.field("a", pa.int64(), False)])),
    ([np.int64(3)], pa.int64()),
    ([1, "a"], None),
    ([1, 2.5], None),
    ([None, True], None),
    ([date(2020, 1, 1)], None),
    ([], None),
    ([None], None),
]


def outcome(make: Any) -> Any:
    try:
        made = make()
    except Exception as error:
        return type(error)
    made.validate(full=True)
    below = [part.to_pylist() for part in made.flatten()] if pa.types.is_struct(made.type) else []
    return made.type, str(made), made.null_count, below


@pytest.mark.parametrize(("values", "kind"), ODD)
def test_odd_values_are_read_or_refused_as_by_pyarrow(
    values: list[Any], kind: pa.DataType | None
) -> None:
    assert outcome(lambda: arrow_array(values, kind)) == outcome(lambda: pa.array(values, kind))


NUMPY = [
    np.arange(9),
    np.arange(9, dtype=np.uint8)[::2],
    np.arange(6, dtype=np.float32).reshape(2, 3)[:, 1],
    np.array([True, False, True]),
    np.array([], np.int32),
    np.array([np.nan, 1.0]),
    np.array(["a", "bc"]),
    np.array(["2020-01-01", "NaT"], "datetime64[s]"),
    np.arange(3, dtype=">i8"),
]


@pytest.mark.parametrize("values", NUMPY, ids=lambda values: str(values.dtype))
def test_numpy_arrays_too(values: Any) -> None:
    for mask in (None, np.arange(len(values)) % 2 == 0):
        built = outcome(lambda mask=mask: arrow_array(values, mask=mask))
        assert built == outcome(lambda mask=mask: pa.array(values, mask=mask))


def test_numpy_arrays_are_cast_when_all_values_fit() -> None:
    assert arrow_array(np.arange(3), pa.int8()).equals(pa.array([0, 1, 2], pa.int8()))
    with pytest.raises(pa.ArrowInvalid):
        arrow_array(np.array([300]), pa.int8())


def test_scalars_and_empty_tables() -> None:
    assert arrow_scalar("a").equals(pa.scalar("a"))
    assert arrow_scalar(None, pa.int8()).equals(pa.scalar(None, pa.int8()))
    schema = pa.schema([pa.field("a", pa.int64(), False), ("b", pa.map_(pa.string(), pa.date32()))])
    assert empty_table(schema).equals(schema.empty_table())


@pytest.mark.parametrize(
    "values",
    [
        pa.array(range(9)).slice(2, 5),
        pa.array([True, False, True, True] * 5).slice(3, 9),
        pa.array([], pa.int32()),
        pa.array([], pa.bool_()),
        pa.array([1.5, float("nan")], pa.float32()),
        pa.array([1, None]),
        pa.array([3], pa.uint8()),
        pa.array([date(2020, 1, 1)]),
        pa.array(["a"]),
    ],
)
def test_numpy_arrays_are_those_of_pyarrow(values: pa.Array) -> None:
    wanted = values.to_numpy(zero_copy_only=False)
    built = numpy_array(values)
    assert built.dtype == wanted.dtype
    np.testing.assert_array_equal(built, wanted)


def test_rows_become_tables() -> None:
    schema = pa.schema([("a", pa.int64()), ("b", pa.list_(pa.string()))])
    rows: list[dict[str, Any]] = [{"a": 1, "c": 2}, {"b": ["x", None]}, {}]
    assert table_of_rows(rows, schema).equals(pa.Table.from_pylist(rows, schema=schema))


FUNCTIONS = [
    lambda module, x: module.equal(x, 2),
    lambda module, x: module.if_else(module.is_valid(x), "a", None),
    lambda module, x: module.fill_null(x, 7),
    lambda module, x: module.fill_null(module.greater(x, 1), False),
    lambda module, x: module.min_element_wise(x, 2, skip_nulls=False),
    lambda module, x: module.binary_join_element_wise(x.cast(pa.string()), "b", "-"),
    lambda module, x: module.match_substring_regex(x.cast(pa.string()), "[12]"),
    lambda module, x: module.round(x.cast(pa.float64()), -1),
    lambda module, x: module.coalesce(x, 5),
    lambda module, x: module.cast(x, pa.string()),
    lambda module, x: module.cast(module.divide(x, 2.0), pa.int8(), safe=False),
    lambda module, x: module.cast(x, "int16"),
    lambda module, x: module.take(x, [2, 0, None]),
    lambda module, x: module.filter(pa.table({"x": x}), module.is_valid(x)),
    lambda module, x: module.filter(x, module.greater(x, 1), null_selection_behavior="emit_null"),
    lambda module, x: module.sort_indices(x, sort_keys=[("", "descending")]),
    lambda module, x: module.is_in(x, options=module.SetLookupOptions(pa.array([3]))),
    lambda module, x: module.is_in(x, pa.array([3, None]), skip_nulls=True),
    lambda module, x: module.and_(module.is_valid(x), module.or_(module.equal(x, 1), True)),
    lambda module, x: module.call_function("negate", [x]),
    lambda module, x: module.value_counts(x),
    lambda module, x: module.min_max(x, min_count=3),
    lambda module, x: module.index(x, 3),
]


@pytest.mark.parametrize("function", FUNCTIONS, ids=map(str, range(len(FUNCTIONS))))
def test_functions_take_python_values(function: Any) -> None:
    import pyarrow.compute

    values = pa.array([1, None, 3])
    assert function(pc, values).equals(function(pyarrow.compute, values))


def test_modules_are_there_when_asked() -> None:
    assert pc.sum(pa.chunked_array([[1, 2]])).as_py() == 3
    assert pq.ParquetFile.__name__ == "ParquetFile"
    with pytest.raises(AttributeError):
        _ = pc.no_such_function


@pytest.mark.parametrize(
    "kind",
    [pa.bool_(), pa.int8(), pa.uint16(), pa.int64(), pa.float16(), pa.float32(), pa.float64()],
    ids=str,
)
def test_types_of_numpy_are_those_of_pyarrow(kind: pa.DataType) -> None:
    assert numpy_type(kind) == kind.to_pandas_dtype()
