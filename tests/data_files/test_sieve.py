"""Rows at fault are found by masks, or alone; the faults are those of each row by itself."""

from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import examples
from txlog.base.errors import InvalidInputError
from txlog.data_files.incoming import fit_column
from txlog.data_files.sieve import Found, find_unfit
from txlog.schema.arrow import arrow_field
from txlog.schema.types import ArrayType, DecimalType, PrimitiveType, StructField

NUMBERS = [
    0, 1, -1, 127, 128, -129, 2**15, 2**24 + 1, 2**31, 2**53 + 1, 2**62, 2**63 - 1, -(2**63), None,
]  # fmt: skip
FLOATS = [
    0.0, -0.0, 0.5, 0.1, 1e10, 1e300, -1e300, float("nan"), float("inf"), 2.0**63, -(2.0**63), None,
    float(np.float32(0.1)), 16777217.0,
]  # fmt: skip
DECIMALS = [Decimal("0.00"), Decimal("1.50"), Decimal("99999.99"), Decimal("0.01"), None]
SOURCES = {
    "int64": (pa.int64(), NUMBERS),
    "uint64": (pa.uint64(), [0, 1, 255, 100, 999, 1000, 2**63, 2**64 - 1, None]),
    "double": (pa.float64(), FLOATS),
    "float": (pa.float32(), [0.0, 0.5, 1e10, float("nan"), float("inf"), None]),
    "decimal": (pa.decimal128(12, 2), DECIMALS),
    "wide": (pa.decimal128(38, 10), [Decimal("1.0000000001"), Decimal(10) ** 20, None]),
    "instant": (pa.timestamp("ns"), [0, 1, 1000, 1_000_000_001, None]),
}
TARGETS = [
    *(PrimitiveType(name) for name in ("byte", "short", "integer", "long", "float", "double")),
    DecimalType(5, 2), DecimalType(10, 0), DecimalType(38, 18), PrimitiveType("timestamp_ntz"),
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("target", TARGETS, ids=str)
@settings(max_examples=examples(30))
@given(data=st.data(), nullable=st.booleans(), cut=st.integers(0, 2))
def test_values_are_at_fault_as_each_is_alone(
    source: str, target: Any, data: st.DataObject, nullable: bool, cut: int
) -> None:
    kind, values = SOURCES[source]
    if pa.types.is_timestamp(kind) != (target == PrimitiveType("timestamp_ntz")):
        return
    chosen = data.draw(st.lists(st.sampled_from(values), min_size=1, max_size=20))
    array = pa.array(chosen, kind).slice(min(cut, len(chosen) - 1))
    field = StructField("c", target, nullable)
    alone = [place for place in range(len(array)) if not fits(array.slice(place, 1), field)]
    found = Found(len(array))
    find_unfit(found, array, field)
    assert found.faults().rows.tolist() == alone
    left = array.take(pa.array(found.open))
    assert fit_column(left, field).type == arrow_field(field).type


def fits(array: pa.Array, field: StructField) -> bool:
    try:
        fit_column(array, field)
    except InvalidInputError:
        return False
    return True


def test_a_null_in_any_kind_of_list_is_a_null_where_none_may_be() -> None:
    field = StructField("l", ArrayType(PrimitiveType("long"), False))
    for kind in (pa.list_(pa.int64()), pa.large_list(pa.int64()), pa.list_(pa.int64(), 1)):
        found = Found(3)
        find_unfit(found, pa.array([[1], [None], None], kind), field)
        assert [one.rule for one in found.faults().faults] == ["NOT NULL"], kind
        assert found.faults().rows.tolist() == [1]
