"""One rule of assignment for all verbs: a number is stored exactly, or refused without a cast."""

import math
from collections.abc import Callable
from datetime import date
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import txlog
from tests.examples import examples
from txlog.base.errors import SchemaMismatchError
from txlog.schema.numbers import as_numbers

KINDS: list[pa.DataType] = [
    pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.float32(), pa.float64(),
    pa.decimal128(6, 2), pa.decimal128(20, 0), pa.decimal128(38, 10),
]  # fmt: skip
FLOATS = (pa.float32(), pa.float64())
POINTS = (0, 1, -1, 127, 128, 2**24 + 1, 2**31, 2**53, 2**53 + 1, 2**53 + 2, 2**63 - 1, -(2**63))


def values_of(kind: pa.DataType) -> st.SearchStrategy[Any]:
    if pa.types.is_integer(kind):
        limit = 2 ** (kind.bit_width - 1)
        points = [point for point in POINTS if -limit <= point < limit]
        return st.sampled_from(points) | st.integers(-limit, limit - 1)
    if kind in FLOATS:
        whole = st.sampled_from(POINTS).map(float)
        given = whole | st.floats() | st.integers(-800, 800).map(lambda n: n / 8)
        return given.map(lambda value: as_float(value, kind))
    top = 10**kind.precision - 1
    unscaled = st.integers(-top, top) | st.integers(-999, 999)
    return unscaled.map(lambda n: as_decimal(Fraction(n, 10**kind.scale), kind.scale))


def as_float(value: Any, kind: pa.DataType) -> float:
    if kind == pa.float64():
        return float(value)
    with np.errstate(over="ignore"):
        return float(np.float32(value))


def as_decimal(value: Fraction, scale: int) -> Decimal:
    sign, digits = int(value < 0), tuple(map(int, str(abs(round(value * 10**scale)))))
    return Decimal((sign, digits, -scale))


def stored(value: Any, have: pa.DataType, want: pa.DataType) -> Any:
    """Return the value in another type, or None if it would not be the same when cast back."""
    if have == want:
        return value
    if isinstance(value, float) and not math.isfinite(value):
        return value if want in FLOATS else None
    if want in FLOATS:
        near = as_float(value, want)
        if not math.isfinite(near):
            return None
        if pa.types.is_decimal(have):
            return near if as_decimal(Fraction(near), have.scale) == value else None
        return near if Fraction(near) == Fraction(value) else None
    if pa.types.is_integer(want):
        limit = 2 ** (want.bit_width - 1)
        exact = Fraction(value)
        return int(exact) if exact.denominator == 1 and -limit <= exact < limit else None
    near = as_decimal(Fraction(value), want.scale)
    if abs(Fraction(near)) * 10**want.scale >= 10**want.precision:
        return None
    same = as_float(near, have) == value if have in FLOATS else Fraction(near) == Fraction(value)
    return near if same else None


pairs = st.sampled_from([(have, want) for have in KINDS for want in KINDS if have != want])
cases = pairs.flatmap(
    lambda pair: st.tuples(st.just(pair), st.lists(values_of(pair[0]) | st.none(), max_size=4))
)


@given(cases)
@example(((pa.int64(), pa.float64()), [2**63 - 1]))
@example(((pa.float64(), pa.decimal128(38, 10)), [0.1]))
@settings(max_examples=examples(400), deadline=None)
def test_a_number_is_kept_or_refused(case: Any) -> None:
    (have, want), values = case
    expected = [None if value is None else stored(value, have, want) for value in values]
    lossy = any(a is not None and b is None for a, b in zip(values, expected, strict=True))
    array = pa.array([None, *values], have).slice(1)
    try:
        found = as_numbers(array, want)
    except (pa.ArrowException, ValueError):
        assert lossy
        return
    assert not lossy
    assert found.type == want
    assert list(map(repr, found.to_pylist())) == list(map(repr, expected))


DOORS: dict[str, Callable[[txlog.Table, pa.Table], Any]] = {
    "append": lambda table, data: table.append(data),
    "append merge": lambda table, data: table.append(data, schema_mode="merge"),
    "overwrite": lambda table, data: table.overwrite(data, where="k = 1"),
    "upsert": lambda table, data: table.upsert(data, on="k"),
    "insert": lambda table, data: (
        table.merge(data, "source.k = target.k + 100").when_not_matched_insert_all().execute()
    ),
    "assign": lambda table, data: (
        table.merge(data, on="k").when_matched_update({"v": "source.v"}).execute()
    ),
    "update": lambda table, data: table.update(
        {"v": f"k * CAST('{data['v'][0].as_py()}' AS double)"}, "k = 1"
    ),
    "fragments": lambda table, data: table.commit(
        txlog.FragmentOperation.Append(txlog.write_fragments(data, table.uri))
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize(
    ("kind", "exact", "lossy"),
    [
        (pa.int64(), 4.0, 4.9),
        (pa.int8(), -128.0, 128.0),
        (pa.float32(), 0.5, 0.1),
        (pa.decimal128(6, 2), 1.1, 1.005),
    ],
    ids=str,
)
def test_every_verb_has_the_same_rule(
    tmp_path: Path, door: str, kind: pa.DataType, exact: float, lossy: float
) -> None:
    schema = pa.schema([("k", pa.int64()), ("v", kind)])
    table = txlog.Table.create(tmp_path, schema)
    table.append(pa.table({"k": [1], "v": pa.array([None], kind)}))
    with pytest.raises(SchemaMismatchError, match=r"v is double, and a value does not fit") as bad:
        DOORS[door](table, pa.table({"k": [1], "v": [lossy]}))
    assert bad.value.remedy.startswith("Write CAST(" if door == "update" else "Round or correct")
    assert table.refresh().version == 1
    DOORS[door](table, pa.table({"k": [1], "v": [exact]}))
    found = table.refresh().to_arrow(where="v IS NOT NULL")
    assert found.schema == schema
    assert [float(value) for value in found["v"].to_pylist()] == [exact]


def test_whole_numbers_of_pandas_with_a_missing_one(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    table = txlog.write(tmp_path, pa.table({"x": [1]}))
    table.append(pandas.DataFrame({"x": [2, None]}))
    table.upsert(pandas.DataFrame({"x": [3, 2.0]}), on="x")
    assert sorted(table.to_arrow()["x"].to_pylist(), key=str) == [1, 2, 3, None]


def test_text_is_made_of_numbers_by_expressions_only(tmp_path: Path) -> None:
    table = txlog.write(tmp_path, pa.table({"k": [1], "t": ["a"]}))
    data = pa.table({"k": [1], "t": [5]})
    for verb in (table.append, table.overwrite):
        with pytest.raises(SchemaMismatchError, match="t is long"):
            verb(data)
    with pytest.raises(SchemaMismatchError, match="long cannot be stored in column t"):
        table.upsert(data, on="k")
    table.update({"t": "k + 1"})
    assert table.to_arrow()["t"].to_pylist() == ["2"]


@pytest.mark.parametrize("kind", [pa.timestamp("us"), pa.timestamp("us", "UTC")], ids=str)
def test_the_remedy_says_what_a_cast_loses(tmp_path: Path, kind: pa.DataType) -> None:
    table = txlog.write(tmp_path, pa.table({"d": pa.array([18_000], pa.date32()), "b": [1]}))
    times = pa.table({"d": pa.array([18_000 * 86_400_000_000 + 5], kind)})
    with pytest.raises(SchemaMismatchError, match=r"Cast d .* if their time of day may be lost"):
        table.append(times)
    table.append(times.cast(pa.schema([("d", pa.date32())]), safe=False))
    assert table.to_arrow()["d"].to_pylist() == [date(2019, 4, 14)] * 2
    with pytest.raises(SchemaMismatchError, match="or correct values that this type cannot hold"):
        table.update({"b": "b + 1e30"})


def test_a_cast_chooses_what_is_lost(tmp_path: Path) -> None:
    table = txlog.write(tmp_path, pa.table({"k": [1], "f": pa.array([0.5], pa.float32())}))
    with pytest.raises(SchemaMismatchError, match=r"Write CAST\(… AS float\)"):
        table.update({"f": "f * 1.1"})
    table.update({"f": "CAST(f * 1.1 AS float)", "k": "CAST(k * 4.9 AS bigint)"})
    assert table.to_arrow()["k"].to_pylist() == [4]
    table.update({"f": "0.1"})  # A constant is of the column's type.
    table.update(new_values={"f": 0.2})
    assert table.to_arrow()["f"].to_pylist() == [float(np.float32(0.2))]


def test_values_are_cast_if_that_is_asked_for(tmp_path: Path) -> None:
    """They are rounded or cut; only what does not fit at all becomes null."""
    table = txlog.write(tmp_path, pa.table({"k": [1, 2, 3], "n": [7, 7, 7]}))
    data = pa.table({"k": [1, 2, 3], "n": [4.0, 4.9, 1e300]})
    options = txlog.WriteOptions(error_on_type_mismatch=False)
    table.merge(data, on="k", options=options).when_matched_update_all().execute()
    assert table.to_arrow().sort_by("k")["n"].to_pylist() == [4, 4, None]


@pytest.mark.parametrize("value", [1e300, "1e300D", 16777217], ids=repr)
def test_constants_that_a_float_lacks_are_refused(tmp_path: Path, value: object) -> None:
    table = txlog.write(tmp_path, pa.table({"f": pa.array([0.5], pa.float32())}))
    given = {"updates": {"f": value}} if isinstance(value, str) else {"new_values": {"f": value}}
    with pytest.raises(txlog.TxlogError, match="float"):
        table.update(**given)  # type: ignore[arg-type]
    assert table.refresh().to_arrow()["f"].to_pylist() == [0.5]


def test_keys_that_the_target_lacks_match_nothing(tmp_path: Path) -> None:
    table = txlog.write(tmp_path, pa.table({"k": pa.array([1, 2], pa.int32())}))
    merger = table.merge(pa.table({"k": [1, 2**40]}), "target.k = source.k")
    merger.when_matched_delete().execute()
    assert table.to_arrow()["k"].to_pylist() == [2]
