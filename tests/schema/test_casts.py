"""Which types may be read as which others, compared with what Arrow's casts do to values."""

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from txlog.schema.casts import Reading, cuts_nanos, reading

DAY = datetime(2020, 1, 2)
VALUES: dict[pa.DataType, list[Any]] = {
    pa.int8(): [-3, 0, 7],
    pa.int64(): [-3, 0, 7],
    pa.decimal128(38, 2): [Decimal("-3.00"), Decimal("0.00"), Decimal("7.00")],
    pa.float32(): [-3.0, 0.5, 7.0],
    pa.float64(): [-3.0, 0.5, 7.0],
    pa.string(): ["", "a", "ü"],
    pa.large_string(): ["", "a", "ü"],
    pa.string_view(): ["", "a", "ü"],
    pa.binary(): [b"abcd", b"bcde"],
    pa.large_binary(): [b"abcd", b"bcde"],
    pa.binary_view(): [b"abcd", b"bcde"],
    pa.binary(4): [b"abcd", b"bcde"],
    pa.bool_(): [False, True],
    pa.date32(): [date(1969, 7, 20), date(2020, 1, 2)],
    pa.date64(): [date(1969, 7, 20), date(2020, 1, 2)],
    pa.timestamp("us"): [datetime(1969, 7, 20), DAY],
    pa.timestamp("ns"): [datetime(1969, 7, 20), DAY],
    pa.timestamp("us", "UTC"): [datetime(1969, 7, 20, tzinfo=UTC), DAY.replace(tzinfo=UTC)],
    pa.timestamp("ns", "UTC"): [datetime(1969, 7, 20, tzinfo=UTC), DAY.replace(tzinfo=UTC)],
    pa.timestamp("us", "Europe/Berlin"): [DAY.replace(tzinfo=UTC)],
}
PAIRS = [(have, want) for have in VALUES for want in VALUES]


@pytest.mark.slow
@pytest.mark.parametrize(("have", "want"), PAIRS, ids=str)
def test_a_reading_does_to_values_what_it_says(have: pa.DataType, want: pa.DataType) -> None:
    values = pa.array(VALUES[have], have)
    how = reading(have, want)
    assert (how is Reading.SAME) == (have == want)
    if how in (Reading.LAYOUT, Reading.CHECKED, Reading.CUT):
        assert values.cast(want).cast(have).equals(values)
    if how is Reading.LAYOUT:
        assert values.cast(want).to_pylist() == values.to_pylist()
    if how is Reading.NEAREST:
        found = values.cast(want).to_pylist()
        assert found == sorted(found)
        assert len(set(found)) == len(found)
    if how is Reading.BYTES:
        texts = (pa.string(), pa.large_string(), pa.string_view())
        assert (have in texts) != (want in texts)
    if how is Reading.CUT:
        assert cuts_nanos(have, want)


@pytest.mark.parametrize(
    ("have", "want", "how"),
    [
        (pa.null(), pa.int8(), Reading.NULLS),
        (pa.uint64(), pa.int32(), Reading.CHECKED),
        (pa.int32(), pa.decimal128(9, 2), Reading.CHECKED),
        (pa.decimal256(40, 2), pa.decimal128(9, 2), Reading.CHECKED),
        (pa.binary(4), pa.binary(), Reading.CHECKED),
        (pa.string_view(), pa.string(), Reading.LAYOUT),
        (pa.large_binary(), pa.binary(), Reading.LAYOUT),
        (pa.binary_view(), pa.string(), Reading.BYTES),
        (pa.int64(), pa.float64(), Reading.NEAREST),
        (pa.float32(), pa.float64(), Reading.NEAREST),
        (pa.date32(), pa.timestamp("us"), Reading.NEAREST),
        (pa.timestamp("us"), pa.timestamp("us", "UTC"), Reading.NEAREST),
        (pa.timestamp("s"), pa.timestamp("us"), Reading.CHECKED),
        (pa.timestamp("us"), pa.timestamp("ns"), Reading.CHECKED),
        (pa.timestamp("ns"), pa.timestamp("us"), Reading.CUT),
        (pa.timestamp("ns"), pa.timestamp("us", "UTC"), Reading.OTHER),
        (pa.decimal128(9, 2), pa.float64(), Reading.OTHER),
        (pa.float64(), pa.int64(), Reading.OTHER),
        (pa.timestamp("us"), pa.date32(), Reading.OTHER),
        (pa.int32(), pa.date32(), Reading.OTHER),
        (pa.string(), pa.int64(), Reading.NEVER),
        (pa.int64(), pa.string(), Reading.NEVER),
        (pa.bool_(), pa.int8(), Reading.NEVER),
        (pa.binary(), pa.int64(), Reading.NEVER),
        (pa.list_(pa.int8()), pa.string(), Reading.NEVER),
        (pa.list_(pa.int8()), pa.int8(), Reading.OTHER),
    ],
    ids=str,
)
def test_types_are_told_apart(have: pa.DataType, want: pa.DataType, how: Reading) -> None:
    assert reading(have, want) is how
