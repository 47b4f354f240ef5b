"""The digest of a commit depends on the values of its rows, not on how they are stored."""

import json
import struct
from decimal import Decimal
from hashlib import sha256
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import examples
from txlog.data_files.options import as_schema
from txlog.training.datasets.digest import Digest

SCHEMA = pa.schema(
    [
        ("n", pa.int64()),
        ("small", pa.int8()),
        ("x", pa.float64()),
        ("ok", pa.bool_()),
        ("t", pa.string()),
        ("b", pa.binary()),
        ("l", pa.list_(pa.string())),
        ("st", pa.struct([("a", pa.int32()), ("m", pa.map_(pa.string(), pa.int64()))])),
        ("d", pa.decimal128(10, 2)),
    ]
)
PACKED = {"long": "<q", "byte": "<b", "double": "<d", "boolean": "<?", "integer": "<i"}
TYPES: dict[str, Any] = {
    "n": "long", "small": "byte", "x": "double", "ok": "boolean", "t": "string", "b": "binary",
    "l": ["string"], "st": {"a": "integer", "m": ("string", "long")}, "d": "decimal(10,2)",
}  # fmt: skip


def plain_digest(rows: list[dict[str, Any]]) -> str:
    """Return the digest by the words of spec/datasets.md, value by value."""
    told: dict[tuple[str, ...], list[Any]] = {}
    for name, kind in TYPES.items():
        _describe((name,), kind, [row[name] for row in rows], told)
    whole = sha256(f"{len(rows)}\n".encode())
    for path in sorted(told):
        line = json.dumps([list(path), *told[path]], separators=(",", ":"), ensure_ascii=False)
        whole.update(line.encode() + b"\n")
    return whole.hexdigest()


def _describe(
    path: tuple[str, ...], kind: Any, values: list[Any], told: dict[tuple[str, ...], list[Any]]
) -> None:
    lengths, data = [], b""
    name = (
        kind if isinstance(kind, str) else {list: "array", dict: "struct", tuple: "map"}[type(kind)]
    )
    if isinstance(kind, list):
        lengths = [len(value or ()) for value in values]
        _describe((*path, "element"), kind[0], [e for v in values for e in v or ()], told)
    elif isinstance(kind, tuple):
        pairs = [pair for value in values for pair in value or ()]
        lengths = [len(value or ()) for value in values]
        _describe((*path, "key"), kind[0], [key for key, _ in pairs], told)
        _describe((*path, "value"), kind[1], [value for _, value in pairs], told)
    elif isinstance(kind, dict):
        for child, inner in kind.items():
            below = [None if value is None else value[child] for value in values]
            _describe((*path, child), inner, below, told)
    elif kind in ("string", "binary"):
        texts = [v.encode() if isinstance(v, str) else v or b"" for v in values]
        lengths, data = [len(text) for text in texts], b"".join(texts)
    elif kind.startswith("decimal"):
        whole = [int((value or Decimal(0)).scaleb(2)) for value in values]
        data = b"".join(number.to_bytes(16, "little", signed=True) for number in whole)
    else:
        data = b"".join(struct.pack(PACKED[kind], value or 0) for value in values)
    if all(value is None for value in values):
        return
    valid = bytes(value is not None for value in values)
    packed = b"".join(struct.pack("<q", length) for length in lengths)
    validity = None if all(valid) else sha256(valid).hexdigest()
    told[path] = [
        name, len(values), validity, sha256(data).hexdigest(), sha256(packed).hexdigest()
    ]  # fmt: skip


def digest(batches: list[pa.RecordBatch], schema: pa.Schema = SCHEMA) -> str:
    made = Digest(as_schema(schema).fields)
    for batch in batches:
        made.add(batch)
    return made.result()


TEXTS = st.none() | st.text(max_size=4)
ROW = st.fixed_dictionaries(
    {
        "n": st.none() | st.integers(-(2**63), 2**63 - 1),
        "small": st.none() | st.integers(-128, 127),
        "x": st.none() | st.floats(allow_nan=False, allow_infinity=False).map(lambda x: x or 0.0),
        "ok": st.none() | st.booleans(),
        "t": TEXTS,
        "b": st.none() | st.binary(max_size=4),
        "l": st.none() | st.lists(TEXTS, max_size=3),
        "st": st.none()
        | st.fixed_dictionaries(
            {
                "a": st.none() | st.integers(-9, 9),
                "m": st.none()
                | st.lists(
                    st.tuples(st.text(max_size=2), st.none() | st.integers(-9, 9)), max_size=2
                ),
            }
        ),
        "d": st.none() | st.integers(-999, 999).map(lambda n: Decimal(n).scaleb(-2)),
    }
)


@pytest.mark.spec("DST-30", "DST-31", "DST-32")
@settings(max_examples=examples(150), deadline=None)
@given(rows=st.lists(ROW, max_size=8), cuts=st.lists(st.integers(0, 8), max_size=3))
def test_the_digest_is_that_of_the_values_one_by_one(
    rows: list[dict[str, Any]], cuts: list[int]
) -> None:
    whole = pa.RecordBatch.from_pylist(rows, schema=SCHEMA)
    places = sorted({0, len(rows), *(cut for cut in cuts if cut < len(rows))})
    parts = [whole.slice(a, b - a) for a, b in pairwise(places)]
    assert digest(parts) == digest([whole]) == plain_digest(rows)


@pytest.mark.spec("DST-31")
def test_what_is_stored_below_nulls_makes_no_difference() -> None:
    texts = pa.Array.from_buffers(
        pa.string(), 2, [pa.py_buffer(b"\1"), pa.py_buffer(struct.pack("<iii", 0, 1, 3)),
                         pa.py_buffer(b"abc")]
    )  # fmt: skip
    schema = pa.schema([("t", pa.string())])
    odd = pa.RecordBatch.from_arrays([texts], schema=schema)
    assert odd.to_pydict() == {"t": ["a", None]}
    plain = pa.RecordBatch.from_pydict({"t": ["a", None]}, schema=schema)
    assert digest([odd], schema) == digest([plain], schema)


@pytest.mark.spec("DST-32")
def test_columns_without_a_value_and_the_order_of_columns_make_no_difference() -> None:
    rows = [{"n": 1, "t": "a"}, {"n": None, "t": "b"}]
    narrow = pa.schema([("n", pa.int64()), ("t", pa.string())])
    wide = pa.schema([("later", pa.list_(pa.int8())), ("t", pa.string()), ("n", pa.int64())])
    one = digest([pa.RecordBatch.from_pylist(rows, schema=narrow)], narrow)
    assert one == digest([pa.RecordBatch.from_pylist(rows, schema=wide)], wide)


@pytest.mark.spec("DST-30")
def test_the_digest_of_known_rows_never_changes() -> None:
    schema = pa.schema([("utterance", pa.string()), ("labels", pa.list_(pa.string()))])
    rows = [{"utterance": "hello", "labels": ["greeting"]}, {"utterance": "bye", "labels": []}]
    batch = pa.RecordBatch.from_pylist(rows, schema=schema)
    assert digest([batch], schema) == (
        "b66d46abfb11f005720211651c3469224cd456c34c690a021574976d8e9825ef"
    )


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ([{"n": 1}, {"n": 2}], [{"n": 2}, {"n": 1}]),
        ([{"t": "ab"}, {"t": ""}], [{"t": "a"}, {"t": "b"}]),
        ([{"t": None}, {"t": "a"}], [{"t": ""}, {"t": "a"}]),
        ([{"l": ["a"]}, {"l": []}], [{"l": []}, {"l": ["a"]}]),
        ([{"l": []}, {"t": "a"}], [{"l": None}, {"t": "a"}]),
        ([{"n": 1}], [{"small": 1}]),
    ],
)
def test_other_rows_have_another_digest(one: list[Any], other: list[Any]) -> None:
    made = [digest([pa.RecordBatch.from_pylist(rows, schema=SCHEMA)]) for rows in (one, other)]
    assert made[0] != made[1]
