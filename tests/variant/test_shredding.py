"""Shredded columns compared with a simple shredder, in every Arrow type, and contradictory ones."""

import struct
from collections.abc import Callable
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from txlog.base.errors import DataFileError, TxlogError
from txlog.schema.arrow import arrow_type
from txlog.schema.types import PrimitiveType
from txlog.variant.arrays import variant_to_json, variant_to_python
from txlog.variant.builder import encode_variant
from txlog.variant.shredding import unshred

TYPE = arrow_type(PrimitiveType("variant"))
NO_NAMES = b"\x01\x00\x00"
KEYS = ["a", "b", "é", "\uffee", "😀"]

leaves = (
    st.none()
    | st.booleans()
    | st.integers(-200, 200)
    | st.floats(allow_nan=False)
    | st.integers(-9999, 9999).map(lambda n: Decimal(n).scaleb(-2))
    | st.text(max_size=3)
    | st.binary(max_size=3)
    | st.dates()
    | st.times()
    | st.datetimes()
    | st.datetimes(timezones=st.just(UTC))
)
values = st.recursive(
    leaves,
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=4)
    ),
    max_leaves=10,
)

# A shredding schema: None, the name of a type, a list of one schema, or schemas by name.
PRIMITIVES: dict[str, tuple[pa.DataType, Callable[[Any], bool]]] = {
    "bool": (pa.bool_(), lambda v: isinstance(v, bool)),
    "byte": (pa.int8(), lambda v: type(v) is int and -128 <= v < 128),
    "long": (pa.int64(), lambda v: type(v) is int),
    "double": (pa.float64(), lambda v: isinstance(v, float)),
    "decimal": (pa.decimal128(9, 2), lambda v: isinstance(v, Decimal)),
    "string": (pa.string(), lambda v: isinstance(v, str)),
    "large_string": (pa.large_string(), lambda v: isinstance(v, str)),
    "binary": (pa.binary(), lambda v: isinstance(v, bytes)),
    "date": (pa.date32(), lambda v: type(v) is date),
    "time": (pa.time64("us"), lambda v: isinstance(v, time)),
    "ntz": (pa.timestamp("us"), lambda v: isinstance(v, datetime) and v.tzinfo is None),
    "utc": (pa.timestamp("us", "UTC"), lambda v: isinstance(v, datetime) and v.tzinfo is not None),
}
schemas = st.recursive(
    st.none() | st.sampled_from(sorted(PRIMITIVES)),
    lambda inner: (
        st.lists(inner, min_size=1, max_size=1)
        | st.dictionaries(st.sampled_from(KEYS), inner, min_size=1, max_size=4)
    ),
    max_leaves=6,
)


def group_type(schema: Any, backwards: bool) -> pa.DataType:
    fields = [pa.field("value", pa.binary())]
    if schema is not None:
        fields.append(pa.field("typed_value", typed_type(schema, backwards)))
    return pa.struct(fields[::-1] if backwards else fields)


def typed_type(schema: Any, backwards: bool) -> pa.DataType:
    match schema:
        case str():
            return PRIMITIVES[schema][0]
        case list():
            return pa.list_(pa.field("element", group_type(schema[0], backwards), False))
    return pa.struct(
        [pa.field(name, group_type(inner, backwards), False) for name, inner in schema.items()]
    )


def shred(value: Any, schema: Any, encode: Callable[[Any], bytes]) -> dict[str, Any]:
    """The oracle's other half: the spec's table, one value at a time."""
    if isinstance(schema, str) and PRIMITIVES[schema][1](value):
        return {"value": None, "typed_value": value}
    if isinstance(schema, list) and isinstance(value, list):
        return {"value": None, "typed_value": [shred(v, schema[0], encode) for v in value]}
    if isinstance(schema, dict) and isinstance(value, dict):
        rest = {name: item for name, item in value.items() if name not in schema}
        typed = {
            name: shred(value[name], inner, encode) if name in value else {}
            for name, inner in schema.items()
        }
        return {"value": encode(rest) if rest else None, "typed_value": typed}
    return {"value": encode(value)}


def names_of(value: Any) -> set[str]:
    if isinstance(value, dict):
        return set(value).union(*map(names_of, value.values()))
    return set().union(*map(names_of, value)) if isinstance(value, list) else set()


def encoder(names: list[str]) -> Callable[[Any], bytes]:
    """Encode with the ids of one dictionary, and Spark's order of names."""
    ids = {name: at for at, name in enumerate(names)}

    def encode(value: Any) -> bytes:
        if isinstance(value, (dict, list)):
            named = sorted(value) if isinstance(value, dict) else []
            parts = [encode(item) for item in ([value[name] for name in named] if named else value)]
            offsets = [sum(map(len, parts[:at])) for at in range(len(parts) + 1)]
            numbers = struct.pack(f"<{len(offsets)}H", *offsets)
            head = [6 if isinstance(value, dict) else 7, len(parts), *(ids[name] for name in named)]
            return bytes(head) + numbers + b"".join(parts)
        return encode_variant(value)[1]

    return encode


def metadata_of(names: list[str]) -> bytes:
    texts = [name.encode() for name in names]
    offsets = [sum(map(len, texts[:at])) for at in range(len(texts) + 1)]
    return bytes([1, len(texts), *offsets]) + b"".join(texts)


@given(st.lists(st.none() | st.tuples(values), max_size=5), schemas, st.booleans(), st.booleans())
def test_what_was_shredded_comes_back(
    rows: list[tuple[Any] | None], schema: Any, backwards: bool, forgetful: bool
) -> None:
    shredded, stored = [], []
    for row in rows:
        if row is None:
            shredded.append(None)
            continue
        names = sorted(names_of(row[0]), reverse=True)
        group = shred(row[0], schema, encoder(names))
        if forgetful and group.get("value") is None and not uses_bytes(group):
            names = names[::2]  # A writer that left names of shredded fields out.
        stored.append(metadata_of(names))
        shredded.append({**group, "metadata": stored[-1]})
    inner = group_type(schema, backwards)
    kind = pa.struct([*inner, pa.field("metadata", pa.binary(), False)])
    array = pa.array([None, *shredded], kind).slice(1)
    found = unshred(array)
    found.validate(full=True)
    assert found.type == TYPE
    assert found.is_valid().to_pylist() == [row is not None for row in rows]
    expected = [encode_variant(*row) if row else None for row in rows]
    plain = pa.array([part and {"value": part[1], "metadata": part[0]} for part in expected], TYPE)
    assert variant_to_python(found) == variant_to_python(plain)
    assert variant_to_json(found) == variant_to_json(plain)
    if not forgetful:
        kept = [row["metadata"] for row in found.to_pylist() if row is not None]
        assert kept == stored


def uses_bytes(group: Any) -> bool:
    """Whether any value is stored as bytes, whose ids must not move."""
    if isinstance(group, dict):
        return group.get("value") is not None or any(map(uses_bytes, group.values()))
    return isinstance(group, list) and any(map(uses_bytes, group))


def shredded(typed: pa.Array, value: list[bytes | None] | None = None) -> pa.StructArray:
    size = len(typed)
    parts = [pa.array([NO_NAMES] * size), pa.array(value or [None] * size, pa.binary()), typed]
    return pa.StructArray.from_arrays(parts, ["metadata", "value", "typed_value"])


UUID = bytes(range(16))
MOMENT = datetime(2020, 1, 2, 3, 4, 5)


@pytest.mark.parametrize(
    ("typed", "text"),
    [
        (pa.array([5], pa.int8()), "5"),
        (pa.array([-300], pa.int16()), "-300"),
        (pa.array([2**31 - 1], pa.int32()), "2147483647"),
        (pa.array([-(2**63)]), "-9223372036854775808"),
        (pa.array([1.1], pa.float32()), "1.1"),
        (pa.array([1.1]), "1.1"),
        (pa.array([Decimal("1.10")]), "1.1"),
        (pa.array([Decimal("1E-38")], pa.decimal128(38, 38)), "0." + "0" * 37 + "1"),
        (pa.array([Decimal("1.10")], pa.decimal256(40, 2)), "1.1"),
        (pa.array(["x"]), '"x"'),
        (pa.array(["x"], pa.large_string()), '"x"'),
        (pa.array(["x"], pa.string_view()), '"x"'),
        (pa.array(["x"]).dictionary_encode(), '"x"'),
        (pa.array([b"x"]), '"eA=="'),
        (pa.array([b"x"], pa.large_binary()), '"eA=="'),
        (pa.array([b"x"], pa.binary_view()), '"eA=="'),
        (pa.array([UUID], pa.binary(16)), '"00010203-0405-0607-0809-0a0b0c0d0e0f"'),
        (
            pa.ExtensionArray.from_storage(pa.uuid(), pa.array([UUID], pa.binary(16))),
            '"00010203-0405-0607-0809-0a0b0c0d0e0f"',
        ),
        (pa.array([2**31 - 1], pa.int32()).cast(pa.date32()), '"+5881580-07-11"'),
        (pa.array([date(2020, 1, 2)], pa.date64()), '"2020-01-02"'),
        (pa.array([time(1, 2, 3)], pa.time32("ms")), '"01:02:03"'),
        (pa.array([time(1, 2, 3, 4)], pa.time64("us")), '"01:02:03.000004"'),
        (pa.array([MOMENT], pa.timestamp("us")), '"2020-01-02 03:04:05"'),
        (pa.array([MOMENT], pa.timestamp("ms", "UTC")), '"2020-01-02 03:04:05+00:00"'),
        (pa.array([1], pa.timestamp("ns")), '"1970-01-01 00:00:00.000000001"'),
        (pa.array([1], pa.timestamp("ns", "UTC")), '"1970-01-01 00:00:00.000000001+00:00"'),
        (pa.array([2**63 - 1], pa.timestamp("us")), '"+294247-01-10 04:00:54.775807"'),
        (pa.array([None]), "null"),
    ],
    ids=lambda value: str(value.type) if isinstance(value, pa.Array) else value[:20],
)
def test_every_type_of_arrow(typed: pa.Array, text: str) -> None:
    found = unshred(shredded(pa.concat_arrays([typed, typed[:0], pa.nulls(1, typed.type)])))
    assert variant_to_json(found).to_pylist() == [text, "null"]


@pytest.mark.parametrize(
    "kind",
    [pa.list_, pa.large_list, pa.list_view, pa.large_list_view, lambda inner: pa.list_(inner, 2)],
)
def test_every_list_of_arrow(kind: Callable[[pa.DataType], pa.DataType]) -> None:
    element = pa.struct({"value": pa.binary(), "typed_value": pa.int8()})
    rows = [[{"typed_value": 1}, {}], None, [{"value": b"\x04"}, None]]
    array = shredded(pa.array(rows, kind(element)), [None, b"\x08", None])
    assert variant_to_json(unshred(array)).to_pylist() == ["[1,null]", "false", "[true,null]"]
    assert variant_to_json(unshred(array.slice(1))).to_pylist() == ["false", "[true,null]"]


def test_the_series_of_the_spec() -> None:
    """Objects that share fields, one half shredded, as the spec's own example has them."""
    objects: list[Any] = [
        {"event_type": "noop", "event_ts": 1},
        {"event_type": "login", "event_ts": 2, "email": "user@example.com"},
        {"error_msg": "malformed: ..."},
        "malformed: not an object",
        {"event_ts": 3, "click": "_button"},
        {"event_type": None, "event_ts": 4},
        {"event_type": "noop", "event_ts": "2024-10-24"},
        {},
        None,
    ]
    names = sorted({"event_type", "event_ts", "email", "error_msg", "click"})
    schema = {"event_type": "string", "event_ts": "long"}
    rows = [
        {**shred(value, schema, encoder(names)), "metadata": metadata_of(names)}
        for value in objects
    ]
    kind = pa.struct([*group_type(schema, False), pa.field("metadata", pa.binary())])
    assert variant_to_python(unshred(pa.array(rows, kind))) == objects


@pytest.mark.parametrize("value", [pa.binary(), pa.large_binary(), pa.binary_view()])
def test_a_column_that_is_not_shredded_keeps_its_bytes(value: pa.DataType) -> None:
    rows = [{"metadata": b"any", "value": b"bytes"}, None, {"metadata": b"", "value": None}]
    array = pa.array(rows, pa.struct([("metadata", value), ("value", value)]))
    found = unshred(array)
    assert found.type == TYPE
    assert found.to_pylist() == [
        {"value": b"bytes", "metadata": b"any"},
        None,
        {"value": b"\0", "metadata": b""},
    ]
    found.validate(full=True)
    assert unshred(found) == found
    assert found.field(0).null_count == found.field(1).null_count == 0
    assert unshred(array[:0]).to_pylist() == []


def test_nothing_is_copied_where_nothing_changes() -> None:
    rows = pa.array([{"value": b"\0" * 100, "metadata": NO_NAMES}], TYPE)
    found = unshred(rows)
    assert found.field(0).buffers()[2].address == rows.field(0).buffers()[2].address


def test_what_lies_under_null_rows_is_not_read() -> None:
    array = shredded(pa.array([1, 2]), [b"\0", None])
    hidden = pa.StructArray.from_arrays(
        [array.field(at) for at in range(3)], fields=list(array.type), mask=pa.array([True, False])
    )
    assert variant_to_json(unshred(hidden)).to_pylist() == [None, "2"]


def test_two_fields_of_one_name_in_a_dictionary_are_one() -> None:
    typed = pa.array(
        [{"a": {"typed_value": 1}}], pa.struct({"a": pa.struct({"typed_value": pa.int8()})})
    )
    rest = b"\x02\x01\x02\x00\x01\x00"  # {"b": null}, by the last of three names.
    array = pa.StructArray.from_arrays(
        [pa.array([b"\x01\x03\x00\x01\x02\x03aab"]), pa.array([rest]), typed],
        ["metadata", "value", "typed_value"],
    )
    found = unshred(array)
    assert found[0]["metadata"].as_py() == b"\x01\x03\x00\x01\x02\x03aab"
    assert variant_to_json(found).to_pylist() == ['{"a":1,"b":null}']


OBJECT = pa.struct({"a": pa.struct({"value": pa.binary(), "typed_value": pa.int8()})})
AS_OBJECT = {"typed_value": {"a": {"typed_value": 1}}}
HAS_A = bytes.fromhex("020100000100")


def row_of(kind: pa.DataType, **row: Any) -> pa.Array:
    fields = {"metadata": pa.binary(), "value": pa.binary(), "typed_value": kind}
    return pa.array([{"metadata": b"\x01\x01\x00\x01a", **row}], pa.struct(fields))


@pytest.mark.parametrize(
    ("array", "reason"),
    [
        (row_of(OBJECT, value=HAS_A, **AS_OBJECT), "row 0 has the field 'a' both in value and"),
        (row_of(OBJECT, value=b"\0", **AS_OBJECT), "row 0: a value next to .* not an object"),
        (row_of(OBJECT, value=b"", **AS_OBJECT), "row 0: a value next to .* not an object"),
        (row_of(OBJECT, value=HAS_A[:5], **AS_OBJECT), "row 0: .* after 5"),
        (row_of(OBJECT, metadata=b"", **AS_OBJECT), "row 0: the metadata is empty"),
        (row_of(OBJECT, metadata=None, **AS_OBJECT), "metadata of a row is null"),
        (row_of(OBJECT, typed_value={"a": {"value": b"\0", "typed_value": 1}}), "row 0 has both"),
        (row_of(pa.int8(), value=b"\0", typed_value=1), "row 0 has both"),
        (row_of(pa.uint8(), typed_value=1), "shredded to the type uint8"),
        (row_of(pa.float16(), typed_value=1.0), "shredded to the type halffloat"),
        (row_of(pa.binary(3), typed_value=b"123"), r"shredded to the type fixed_size_binary\[3\]"),
        (row_of(pa.map_(pa.string(), pa.int8()), typed_value={}), "shredded to the type map"),
        (row_of(pa.list_(pa.int8()), typed_value=[1]), "type int8 is not part"),
        (row_of(pa.struct({"a": pa.int8()}), typed_value={"a": 1}), "type int8 is not part"),
        (row_of(pa.struct({"a": pa.struct({"b": pa.int8()})})), "'b' is not part of a variant"),
        (row_of(pa.struct({"a": pa.struct([])})), "neither value nor typed_value"),
        (row_of(pa.decimal256(60, 0), typed_value=Decimal(10) ** 40), "38 digits"),
        (row_of(pa.time64("ns"), typed_value=time(1)), None),
        (
            pa.StructArray.from_arrays(
                [
                    pa.array([NO_NAMES]),
                    pa.StructArray.from_arrays(
                        [pa.array([{"value": b"\0"}]), pa.array([{"value": b"\0"}])], ["a", "a"]
                    ),
                ],
                ["metadata", "typed_value"],
            ),
            "two fields with one name",
        ),
        (pa.array([{"value": b"\0"}]), "no field metadata"),
        (pa.array([{"metadata": b"\0"}]), "no field value"),
        (pa.array([{"metadata": "x", "value": b"\0"}]), "not binary"),
        (pa.array([{"metadata": b"", "value": b"\0", "untyped_value": 1}]), "'untyped_value' is"),
        (pa.array([1]), "int64 is not part of a variant"),
        (pa.array([{"metadata": None, "value": b"\0"}], TYPE), "metadata of a row is null"),
    ],
)  # fmt: skip
def test_contradictions_are_errors(array: pa.Array, reason: str | None) -> None:
    if reason is None:
        assert variant_to_json(unshred(array)).to_pylist() == ['"01:00:00"']
        return
    with pytest.raises(DataFileError, match=reason) as caught:
        unshred(array, path="part-0.parquet", column="v")
    assert caught.value.path == "part-0.parquet"
    assert "variant column v cannot be rebuilt" in str(caught.value)


@given(st.binary(max_size=12), st.binary(max_size=30), st.booleans())
def test_random_bytes_are_one_kind_of_error(metadata: bytes, value: bytes, there: bool) -> None:
    row: dict[str, Any] = AS_OBJECT if there else {}
    array = row_of(OBJECT, value=b"\x02" + value, **{**row, "metadata": b"\x01" + metadata})
    try:
        variant_to_json(unshred(array))
    except TxlogError as error:
        assert "cannot be" in str(error)  # noqa: PT017
