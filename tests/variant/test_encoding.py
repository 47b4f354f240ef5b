"""The encoding of one variant: round trips, Spark's own Python reader, and all kinds of damage."""

import json
import math
import struct
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from txlog.base.errors import InvalidInputError, TxlogError
from txlog.variant.arrays import decode_variant, variant_to_json, variant_to_python
from txlog.variant.builder import encode_variant
from txlog.variant.shredding import unshred

NO_NAMES = b"\x01\x00\x00"

decimals = st.builds(
    lambda unscaled, scale: Decimal(unscaled).scaleb(-scale),
    st.integers(-(10**27), 10**27),
    st.integers(0, 27),
)
plain = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.integers(-300, 300)
    | st.floats(allow_subnormal=False)
    | decimals
    | st.text(max_size=5)
    | st.text("aé", min_size=60, max_size=70)
    | st.binary(max_size=5)
    | st.dates()
    | st.datetimes()
    | st.datetimes(timezones=st.just(UTC))
)
keys = st.sampled_from(["a", "b", "", "é", "\uffee", "😀", 'q"', "long" * 80])


def nested(leaves: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.recursive(
        leaves,
        lambda inner: st.lists(inner, max_size=5) | st.dictionaries(keys, inner, max_size=5),
        max_leaves=12,
    )


values = nested(plain | st.times())
spark_values = nested(plain)


def tagged(value: Any) -> Any:
    """A value whose equality minds types, scales, signs of zero and NaN."""
    match value:
        case dict():
            return {name: tagged(item) for name, item in value.items()}
        case list():
            return [tagged(item) for item in value]
        case datetime() if value.tzinfo is not None:
            return ("zoned", str(value.astimezone(UTC)))
        case float() | Decimal() | datetime():
            return (type(value), str(value))
    return (type(value), value)


def column(*rows: tuple[bytes, bytes]) -> pa.Array:
    return pa.array([{"value": value, "metadata": metadata} for metadata, value in rows])


def json_of(value: bytes, metadata: bytes = NO_NAMES) -> str | None:
    texts: list[str | None] = variant_to_json(column((metadata, value))).to_pylist()
    return texts[0]


def wide(value: Any, ids: dict[str, int]) -> bytes:
    """Encode as no writer would: all sizes of 4 bytes, long strings, children back to front."""
    match value:
        case str():
            data = value.encode()
            return bytes([16 << 2]) + struct.pack("<I", len(data)) + data
        case list() | dict():
            names = sorted(value) if isinstance(value, dict) else []
            parts = [wide(item, ids) for item in ([value[n] for n in names] if names else value)]
            end = sum(map(len, parts))
            offsets, at = [], end
            for part in parts:
                at -= len(part)
                offsets.append(at)
            head = 0b1111110 if isinstance(value, dict) else 0b11111
            numbers = [len(parts), *(ids[name] for name in names), *offsets, end]
            return (
                bytes([head])
                + b"".join(struct.pack("<I", number) for number in numbers)
                + b"".join(reversed(parts))
            )
    return encode_variant(value)[1]


@given(values)
def test_values_come_back(value: Any) -> None:
    found = decode_variant(*encode_variant(value))
    assert tagged(found) == tagged(value)
    for child in [found, *(found if isinstance(found, list) else [])]:
        if isinstance(child, dict):
            assert list(child) == sorted(child, key=str.encode)


@given(spark_values)
def test_spark_reads_the_same_python_values(value: Any) -> None:
    from pyspark.sql.types import VariantVal

    metadata, data = encode_variant(value)
    assert tagged(VariantVal(data, metadata).toPython()) == tagged(decode_variant(metadata, data))


def finite(value: Any) -> bool:
    match value:
        case float():
            return math.isfinite(value)
        case datetime():
            # Python writes six digits where Spark's engine cuts zeros off.
            return value.microsecond == 0 or value.microsecond % 10 > 0
        case dict():
            return all(map(finite, value.values()))
        case list():
            return all(map(finite, value))
    return True


@given(spark_values)
def test_spark_reads_the_same_json(value: Any) -> None:
    from pyspark.sql.types import VariantVal

    assume(finite(value))
    metadata, data = encode_variant(value)
    ours, theirs = json_of(data, metadata), VariantVal(data, metadata).toJson()
    assert ours is not None
    assert json.loads(ours, parse_float=Decimal, parse_int=Decimal) == json.loads(
        theirs, parse_float=Decimal, parse_int=Decimal
    )


@given(nested(st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.text(max_size=70)))
def test_what_spark_encodes_is_read(value: Any) -> None:
    from pyspark.sql.types import VariantVal

    made = VariantVal.parseJson(json.dumps(value))
    assert decode_variant(made.metadata, made.value) == value
    text = json_of(made.value, made.metadata)
    assert text is not None
    assert json.loads(text) == value


@given(values)
def test_every_width_and_order_is_read(value: Any) -> None:
    names: list[str] = []

    def gather(item: Any) -> None:
        if isinstance(item, dict):
            names.extend(name for name in item if name not in names)
        for child in item.values() if isinstance(item, dict) else item:
            if isinstance(child, (dict, list)):
                gather(child)

    if isinstance(value, (dict, list)):
        gather(value)
    texts = [name.encode() for name in names]
    offsets = [sum(map(len, texts[:at])) for at in range(len(texts) + 1)]
    metadata = b"\xc1" + struct.pack(f"<{len(offsets) + 1}I", len(texts), *offsets)
    data = wide(value, {name: at for at, name in enumerate(names)})
    assert tagged(decode_variant(metadata + b"".join(texts), data)) == tagged(value)


@pytest.mark.slow
@pytest.mark.parametrize("count", [0, 1, 255, 256, 70_000])
def test_containers_of_many_sizes(count: int) -> None:
    value: Any = {f"{at:05}": at for at in range(count)}
    assert decode_variant(*encode_variant(value)) == value
    assert decode_variant(*encode_variant([value, list(value)])) == [value, list(value)]


def test_the_bytes_of_small_values() -> None:
    assert encode_variant({"b": 1, "a": None}) == (
        b"\x11\x02\x00\x01\x02ab",
        b"\x02\x02\x00\x01\x00\x01\x03\x00\x0c\x01",
    )
    assert encode_variant([]) == (NO_NAMES, b"\x03\x00\x00")
    assert encode_variant("é") == (NO_NAMES, b"\x09\xc3\xa9")
    assert encode_variant(Decimal("-1.50")) == (NO_NAMES, b"\x20\x02\x6a\xff\xff\xff")


def primitive(kind: int, form: str, *numbers: Any) -> bytes:
    return bytes([kind << 2]) + struct.pack(f"<{form}", *numbers)


@pytest.mark.parametrize(
    ("data", "python", "text"),
    [
        (primitive(3, "b", -1), -1, "-1"),
        (primitive(14, "f", 1.1), struct.unpack("<f", struct.pack("<f", 1.1))[0], "1.1"),
        (primitive(14, "f", 2.0**24), 2.0**24, "1.6777216E7"),
        (primitive(7, "d", -0.0), -0.0, "-0.0"),
        (primitive(7, "d", 5e-324), 5e-324, "4.9E-324"),
        (primitive(7, "d", 2e23), 2e23, "2.0E23"),
        (primitive(7, "d", math.inf), math.inf, '"Infinity"'),
        (primitive(7, "d", -math.inf), -math.inf, '"-Infinity"'),
        (primitive(8, "Bi", 2, 110), Decimal("1.10"), "1.1"),
        (primitive(9, "Bq", 0, 100), Decimal(100), "100"),
        (primitive(9, "Bq", 18, 0), Decimal("0E-18"), "0"),
        (primitive(8, "Bi", 9, -1), Decimal("-1E-9"), "-0.000000001"),
        (primitive(11, "i", 0), date(1970, 1, 1), '"1970-01-01"'),
        (
            primitive(12, "q", 500_000),
            datetime(1970, 1, 1, 0, 0, 0, 500_000, UTC),
            '"1970-01-01 00:00:00.5+00:00"',
        ),
        (
            primitive(13, "q", -1),
            datetime(1969, 12, 31, 23, 59, 59, 999_999),
            '"1969-12-31 23:59:59.999999"',
        ),
        (primitive(17, "q", 36_000_500_000), time(10, 0, 0, 500_000), '"10:00:00.5"'),
        (
            primitive(18, "q", 1_234_567_890),
            datetime(1970, 1, 1, 0, 0, 1, 234_567, UTC),
            '"1970-01-01 00:00:01.23456789+00:00"',
        ),
        (
            primitive(19, "q", -1),
            datetime(1969, 12, 31, 23, 59, 59, 999_999),
            '"1969-12-31 23:59:59.999999999"',
        ),
        (
            bytes([20 << 2, *range(16)]),
            "00010203-0405-0607-0809-0a0b0c0d0e0f",
            '"00010203-0405-0607-0809-0a0b0c0d0e0f"',
        ),
        (primitive(15, "I2s", 2, b"\x00\xff"), b"\x00\xff", '"AP8="'),
        (b"\x00 and bytes behind", None, "null"),
    ],
)  # fmt: skip
def test_primitives(data: bytes, python: Any, text: str) -> None:
    assert tagged(decode_variant(NO_NAMES, data)) == tagged(python)
    assert json_of(data) == text


def test_texts_are_escaped_as_spark_does() -> None:
    text = "".join(map(chr, range(32))) + '\x7f"\\/é\u2028😀'
    found = json_of(encode_variant(text)[1])
    assert found == (
        '"\\u0000\\u0001\\u0002\\u0003\\u0004\\u0005\\u0006\\u0007\\b\\t\\n\\u000B\\f\\r\\u000E'
        "\\u000F\\u0010\\u0011\\u0012\\u0013\\u0014\\u0015\\u0016\\u0017\\u0018\\u0019\\u001A"
        '\\u001B\\u001C\\u001D\\u001E\\u001F\x7f\\"\\\\/é\u2028😀"'
    )


@given(st.floats(width=32, allow_nan=False, allow_infinity=False))
def test_floats_of_four_bytes_are_told_by_their_digits(value: float) -> None:
    text = json_of(primitive(14, "f", value))
    assert text is not None
    assert struct.pack("<f", float(text)) == struct.pack("<f", value)
    digits = text.partition("E")[0].replace(".", "").replace("-", "").strip("0")
    assert len(digits) <= 9


def test_dates_that_python_has_not() -> None:
    texts = {
        primitive(11, "i", 2**31 - 1): '"+5881580-07-11"',
        primitive(11, "i", -(2**31)): '"-5877641-06-23"',
        primitive(11, "i", -719_528): '"0000-01-01"',
        primitive(12, "q", 2**63 - 1): '"+294247-01-10 04:00:54.775807+00:00"',
        primitive(13, "q", -(2**63)): '"-290308-12-21 19:59:05.224192"',
    }
    for data, text in texts.items():
        assert json_of(data) == text
        with pytest.raises(InvalidInputError, match="Python has no"):
            decode_variant(NO_NAMES, data)


def test_null_rows_chunks_slices_and_extensions() -> None:
    metadata, value = encode_variant({"a": 1})
    rows = pa.array(
        [None, {"value": value, "metadata": metadata}, {"value": b"\0", "metadata": metadata}]
    )
    assert variant_to_json(rows).to_pylist() == [None, '{"a":1}', "null"]
    assert variant_to_python(rows) == [None, {"a": 1}, None]
    assert variant_to_json(rows.slice(1)).to_pylist() == ['{"a":1}', "null"]
    chunked = pa.chunked_array([rows, rows.slice(1, 1)])
    assert variant_to_json(chunked).to_pylist() == [None, '{"a":1}', "null", '{"a":1}']
    assert variant_to_python(chunked) == [None, {"a": 1}, None, {"a": 1}]
    none = pa.chunked_array([], rows.type)
    assert variant_to_json(none).type == pa.string()
    assert variant_to_python(none) == []


class Wrapped(pa.ExtensionType):
    """A variant as an Arrow that has a type for it hands it out."""

    def __init__(self, storage: pa.DataType) -> None:
        super().__init__(storage, "txlog.tests.wrapped")

    def __arrow_ext_serialize__(self) -> bytes:
        return b""


def test_an_extension_is_read_as_what_it_holds() -> None:
    plain = column(encode_variant([1, "x"]))
    wrapped = pa.ExtensionArray.from_storage(Wrapped(plain.type), plain)
    assert variant_to_json(wrapped).to_pylist() == ['[1,"x"]']
    assert variant_to_python(pa.chunked_array([wrapped])) == [[1, "x"]]
    assert unshred(wrapped).to_pylist() == plain.to_pylist()


@pytest.mark.parametrize(
    "array",
    [pa.array([1]), pa.array([{"value": b"\0"}]), pa.array([{"value": b"\0", "metadata": None}])],
)
def test_other_columns_are_errors(array: pa.Array) -> None:
    with pytest.raises(InvalidInputError):
        variant_to_json(array)
    with pytest.raises(InvalidInputError):
        variant_to_python(array)


@pytest.mark.parametrize(
    "value",
    [
        object(), 1j, {1: 2}, [{None: 1}], 10**38, -(10**38), Decimal("1E-39"), Decimal("NaN"),
        Decimal("1E+40"), "\ud800", {"\ud800": 1}, timedelta(1), time(1, tzinfo=UTC), {1, 2},
    ],
)  # fmt: skip
def test_what_no_variant_holds(value: Any) -> None:
    with pytest.raises(InvalidInputError, match="cannot be a variant"):
        encode_variant(value)


@pytest.mark.parametrize(
    ("value", "found"),
    [
        (10**38 - 1, Decimal(10**38 - 1)),
        (2**63, Decimal(2**63)),
        (Decimal("1E+3"), Decimal(1000)),
        (Decimal("0E+99"), Decimal(0)),
        (Decimal("0E-99"), Decimal("0E-38")),
        ((1, 2), [1, 2]),
        (bytearray(b"x"), b"x"),
        (
            datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=-1))),
            datetime(1, 1, 1, 1, tzinfo=UTC),
        ),
    ],
)
def test_values_that_come_back_as_others(value: Any, found: Any) -> None:
    assert tagged(decode_variant(*encode_variant(value))) == tagged(found)


def deep(levels: int) -> bytes:
    """Arrays within arrays, with offsets of 4 bytes."""
    data = b"\x00"
    for _ in range(levels):
        data = b"\x0f\x01" + struct.pack("<2I", 0, len(data)) + data
    return data


def test_depth_has_an_end() -> None:
    assert json_of(deep(500)) == "[" * 500 + "null" + "]" * 500
    for levels in (501, 5000):
        with pytest.raises(InvalidInputError, match="deep"):
            decode_variant(NO_NAMES, deep(levels))
    value: Any = None
    for _ in range(500):
        value = [value]
    assert encode_variant(value)
    endless: list[Any] = []
    endless.append(endless)
    for wrong in ([value], endless):
        with pytest.raises(InvalidInputError, match="nested"):
            encode_variant(wrong)


def test_depth_beyond_the_stack_is_an_error_too() -> None:
    def sink(levels: int) -> Any:
        return sink(levels - 1) if levels else decode_variant(NO_NAMES, deep(500))

    with pytest.raises(InvalidInputError, match="stack"):
        sink(600)


def test_a_small_input_cannot_make_a_large_value() -> None:
    data = b"\x00"
    for _ in range(9):  # Nine levels of 255 times the same place.
        data = b"\x0f\xff" + struct.pack("<256I", *[0] * 255, len(data)) + data
    with pytest.raises(InvalidInputError, match="overlap"):
        decode_variant(NO_NAMES, data)


@pytest.mark.parametrize(
    ("metadata", "value", "reason"),
    [
        (b"", b"\0", "metadata is empty"),
        (b"\x02\0\0", b"\0", "version 2"),
        (b"\xc1\0\0", b"\0", "inside its size"),
        (b"\x01\x05\0", b"\0", "too short for 5 names"),
        (b"\x01\x01\x00\x03ke", b"\0", "ends inside its 1 names"),
        (b"\x01\x02\x00\x05\x03key", b"\0", "name 0 .* invalid offset"),
        (b"\x01\x02\x02\x01\x03key", b"\0", "name 0 .* invalid offset"),
        (b"\x01\x01\x00\x01\xff", b"\0", "UTF-8"),
        (NO_NAMES, b"", "empty"),
        (NO_NAMES, bytes([21 << 2]), "type 21 is unknown"),
        (NO_NAMES, bytes([63 << 2]), "type 63 is unknown"),
        (NO_NAMES, bytes([6 << 2, 0]), "cut off"),
        (NO_NAMES, bytes([16 << 2, 0]), "cut off"),
        (NO_NAMES, primitive(16, "I", 9), "cut off"),
        (NO_NAMES, b"\x05\xff", "UTF-8"),
        (NO_NAMES, primitive(8, "Bi", 39, 1), "scale 39"),
        (NO_NAMES, bytes([10 << 2, 0]) + b"\xff" * 15 + b"\x7f", "38 digits"),
        (NO_NAMES, primitive(17, "q", -1), "within a day"),
        (NO_NAMES, b"\x03", "cut off"),
        (NO_NAMES, b"\x13\xff\xff\xff\xff", "too short for 4294967295 children"),
        (NO_NAMES, b"\x03\x01\x00\x02\x00", "ends at 6, after 5"),
        (NO_NAMES, b"\x03\x01\x07\x01\x00", "behind its container"),
        (NO_NAMES, b"\x02\x01\x00\x00\x01\x00", "field id 0 is not among 0 names"),
        (b"\x01\x01\x00\x01a", b"\x02\x02\x00\x00\x00\x01\x02\0\0", "two fields named 'a'"),
        (b"\x01\x02\x00\x01\x02aa", b"\x02\x02\x00\x01\x00\x01\x02\0\0", "two fields named 'a'"),
    ],
)
def test_every_wrong_byte_is_named(metadata: bytes, value: bytes, reason: str) -> None:
    with pytest.raises(InvalidInputError, match=reason):
        decode_variant(metadata, value)
    with pytest.raises(InvalidInputError, match=f"row 0: .*{reason}"):
        variant_to_json(column((metadata, value)))


def read_all(metadata: bytes, value: bytes) -> None:
    for read in (variant_to_json, variant_to_python):
        try:
            read(column((metadata, value)))
        except TxlogError as error:
            assert "cannot be read" in str(error)  # noqa: PT017


@given(st.data(), values)
def test_torn_bytes_are_one_kind_of_error(data: st.DataObject, value: Any) -> None:
    parts = [bytearray(part) for part in encode_variant(value)]
    part = data.draw(st.sampled_from(parts))
    match data.draw(st.sampled_from(["cut", "flip", "fill"])):
        case "cut":
            del part[data.draw(st.integers(0, len(part) - 1)) :]
        case "flip":
            for _ in range(3):
                part[data.draw(st.integers(0, len(part) - 1))] ^= data.draw(st.integers(1, 255))
        case "fill":
            part[1:] = data.draw(st.binary(max_size=20))
    read_all(*map(bytes, parts))


@given(
    st.binary(max_size=30) | st.binary(max_size=30).map(lambda data: b"\x01\x02" + data),
    st.binary(max_size=60),
)
def test_random_bytes_are_one_kind_of_error(metadata: bytes, value: bytes) -> None:
    read_all(metadata, value)
    read_all(b"\x01\x02\x00\x01\x02ab", value)
