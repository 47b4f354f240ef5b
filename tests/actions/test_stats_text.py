"""Statistics as text: spelling has no meaning, and changes keep the other fields."""

import json
import random
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from spelling import spelled

from txlog.actions.stats_text import MOST_ROWS, StatsText, exact_document, stats_json

NUMBERS = ("0.10", "1E2", "1e-7", "-0.0", "12345678901234567890123", "1.2345678901234567890", "7")
texts = st.sampled_from(["", "a", 'q"\\/{}', "numRecords", '"tightBounds":true', "é, : "])
scalars = st.none() | st.booleans() | st.integers(-5, 2**63 - 1) | st.integers(0, 9) | texts
sections = st.dictionaries(
    st.sampled_from(["a", "tightBounds", "numRecords", "é/"]),
    scalars | st.fixed_dictionaries({"b": scalars}),
    max_size=3,
)
documents = st.fixed_dictionaries(
    {},
    optional={
        "numRecords": st.integers(-1, 9) | scalars,
        "minValues": sections,
        "nullCount": sections,
        "tightBounds": st.booleans() | st.none(),
        "more": scalars,
    },
)


@given(documents, st.randoms(use_true_random=False), st.integers(0, 9))
def test_a_spelling_decides_nothing(
    document: dict[str, Any], chance: random.Random, rows: int
) -> None:
    stats = StatsText(spelled(document, chance))
    stated = document.get("numRecords")
    known = type(stated) is int and 0 <= stated <= MOST_ROWS
    assert stats.num_records == (stated if known else None)
    assert stats.document == document
    counted = {**document, "numRecords": rows}
    assert json.loads(stats.with_num_records(rows).text or "") == counted
    loosened = {**(document if known else counted), "tightBounds": False}
    assert json.loads(stats.loosened(rows).text or "") == loosened


@pytest.mark.parametrize("number", NUMBERS)
@pytest.mark.parametrize("colon", [":", ": ", " : "])
def test_other_numbers_stay_as_they_are_written(number: str, colon: str) -> None:
    text = '{"minValues":{"m":%s},"tightBounds":true}'.replace(":", colon) % number
    assert StatsText(text).loosened(3).text == (
        f'{{"numRecords":3,"minValues":{{"m":{number}}},"tightBounds":false}}'
    )


@pytest.mark.parametrize("text", [None, "", "{", "[1]", "null", '{"a":"\\ud800"}', "{}"])
def test_what_cannot_be_read_or_written_is_left_out(text: str | None) -> None:
    assert StatsText(text).num_records is None
    assert StatsText(text).loosened(2).text == '{"numRecords":2,"tightBounds":false}'


def test_numbers_are_exact() -> None:
    text = '{"a":0.1000000000000000000001,"b":18446744073709551616,"c":NaN}'
    document = exact_document(text)
    assert document == {
        "a": Decimal("0.1000000000000000000001"),
        "b": Decimal(2**64),
        "c": "NaN",
    }
    assert stats_json({"a": Decimal("1E+2")}) == '{"a":100}'
