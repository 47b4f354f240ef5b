"""Statistics of single files as text."""

import json
from typing import Any

import pyarrow as pa
import pytest

from txlog.actions.columns import decode_rows
from txlog.schema.arrow import from_arrow
from txlog.stats.collect import leaf_types
from txlog.stats.document import lacking, with_columns

LEAVES = leaf_types(
    from_arrow(
        pa.schema(
            [("x", pa.int64()), ("l", pa.list_(pa.int64())), ("s", pa.struct([("t", pa.string())]))]
        )
    )
)
WHOLE = {
    "numRecords": 2,
    "minValues": {"x": 1, "s": {"t": "a"}},
    "maxValues": {"x": 2, "s": {"t": "b"}},
    "nullCount": {"x": 0, "l": 1, "s": {"t": 0}},
}


def files(*texts: str | None) -> pa.Table:
    adds = [
        {"add": {"path": f"f{at}", "partitionValues": {}, "size": 1, "modificationTime": 1,
                 "dataChange": True, "stats": text}}
        for at, text in enumerate(texts)
    ]  # fmt: skip
    return decode_rows([(0, adds, "log")])


def changed(**change: Any) -> str:
    return json.dumps(WHOLE | change)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (None, True),
        ("", True),
        ("no JSON", True),
        ("[1]", True),
        ('{"numRecords":2}', True),
        (changed(), False),
        (changed(maxValues={}), False),  # Of NaN, or of long texts, there is none.
        (changed(numRecords=None), True),
        (changed(minValues={"x": 1}), True),
        (changed(minValues={"s": {"t": "a"}}), True),
        (changed(minValues={"x": 1, "s": 7}), True),
        (changed(minValues={"x": 1}, nullCount={"x": 0, "l": 0, "s": {"t": 2}}), False),
        (changed(nullCount={"x": 0, "s": {"t": 0}}), True),
        (changed(nullCount={"x": 0, "l": "1", "s": {"t": 0}}), True),
        (changed(nullCount=None), True),
    ],
)
def test_what_a_file_lacks(text: str | None, expected: bool) -> None:
    assert lacking(files(text, changed()), LEAVES, {}).to_pylist() == [expected, False]


def test_a_file_lacks_only_what_it_is_to_tell_of() -> None:
    rows = files(changed(nullCount={"x": 0, "s": {"t": 0}}), '{"numRecords":2}')
    answers = {name: pa.array([name != "l", False]) for name in "xls"}
    assert lacking(rows, LEAVES, answers).to_pylist() == [False, False]


def test_structs_of_a_checkpoint_count_too() -> None:
    rows = files(None, None, None, '{"numRecords":2}')
    partly = WHOLE | {"minValues": {"x": None, "s": {"t": "a"}}}
    structs = pa.array([WHOLE, partly, None, WHOLE])
    found = lacking(rows.append_column("stats_parsed", structs), LEAVES, {})
    assert found.to_pylist() == [False, True, True, False]


OLD = '{"numRecords":2,"minValues":{"a":0.10,"s":{"t":1}},"maxValues":{"a":1E2},"nullCount":{"a":0},"z":[12345678901234567890123]}'  # noqa: E501
NEW = '{"numRecords":3,"minValues":{"x":1.50},"maxValues":{},"nullCount":{"x":0,"s":{"t":3}},"tightBounds":true}'  # noqa: E501


def test_other_columns_stay_to_the_digit() -> None:
    found = with_columns(OLD, NEW, [("x",), ("s", "t")], tight=True)
    assert found == (
        '{"numRecords":3,"minValues":{"a":0.10,"x":1.50},"maxValues":{"a":1E+2},'
        '"nullCount":{"a":0,"x":0,"s":{"t":3}},"z":[12345678901234567890123],"tightBounds":true}'
    )
    assert with_columns(found, NEW, [("x",), ("s", "t")], tight=True) is None


@pytest.mark.parametrize(
    ("old", "tight", "expected"),
    [
        (None, True, True),
        ("torn {", False, False),
        ('{"tightBounds":false}', True, True),
        ('{"tightBounds":false,"minValues":{"x":0}}', True, True),  # It is told anew.
        ('{"tightBounds":false,"minValues":{"a":0}}', True, False),
        ('{"minValues":{"a":0}}', True, True),
    ],
)
def test_bounds_are_tight_if_all_are(old: str | None, tight: bool, expected: bool) -> None:
    found = json.loads(with_columns(old, NEW, [("x",), ("s", "t")], tight=tight) or "")
    assert found["tightBounds"] is expected
