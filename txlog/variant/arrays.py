"""Arrow columns of variants, and the Python value or JSON text of each row."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, date, datetime, time, timedelta
from decimal import Context, Decimal
from typing import Any, TypeVar

import pyarrow as pa

from txlog.base.arrow import arrow_array, pc
from txlog.base.errors import (
    InvalidInputError,
    InvalidTypeError,
    in_callers_words,
    reason_of,
)
from txlog.schema.arrow import VARIANT_EXTENSION, arrow_type
from txlog.schema.types import PrimitiveType
from txlog.variant.builder import encode_variant
from txlog.variant.encoding import Form, Kind, MalformedError, decode, decode_names
from txlog.variant.json import JSON, date_text, uuid_text

T = TypeVar("T")

_DAY = date(1970, 1, 1).toordinal()
_EPOCH = datetime(1970, 1, 1)
_WIDE = Context(prec=38)


def decode_variant(metadata: bytes, value: bytes) -> Any:
    """Return the Python value of one variant.

    An object becomes a dictionary in stored order, an array a list, a timestamp a `datetime` in
    UTC, a timestamp_ntz a `datetime` without zone, a UUID its text. Nanoseconds are rounded down to
    microseconds.

    Raises
    ------
    InvalidInputError
        The bytes are not a variant, or hold a date beyond Python's range (use `variant_to_json`).
    """
    try:
        return decode(value, decode_names(metadata), PYTHON)
    except MalformedError as error:
        raise _invalid(str(error)) from error


def variant_to_python(array: pa.Array | pa.ChunkedArray) -> list[Any]:
    """Return the Python value of each row of a variant column, as `decode_variant` does.

    A null row and a row that holds variant null are both None.

    Raises
    ------
    InvalidInputError
        The array is not a column of variants, or a row is not a variant.
    """
    return [found for chunk in _chunks(array) for found in _rows(chunk, PYTHON)]


def variant_to_json(array: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    """Return each row of a variant column as JSON text, as Spark's `to_json` writes it in UTC.

    Parameters
    ----------
    array
        Structs of `value` and `metadata`, such as a table of txlog holds, chunked or not.

    Returns
    -------
    Strings, null where the row is null and `null` where it holds variant null. Chunked as the
    input is.

    Raises
    ------
    InvalidInputError
        The array is not a column of variants, or a row is not a variant.

    Notes
    -----
    Floating point is written as by Java 19 and later; Spark on an older Java adds digits to some
    numbers (`1.9999999999999998E23` for `2.0E23`). Times and nanoseconds, which Spark refuses,
    are written like its timestamps. A field that an object has twice is an error.
    """
    texts = [arrow_array(_rows(chunk, JSON), pa.string()) for chunk in _chunks(array)]
    return pa.chunked_array(texts, pa.string()) if _is_chunked(array) else texts[0]


STORAGE = arrow_type(PrimitiveType("variant"))


class VariantType(pa.ExtensionType):  # type: ignore[misc]  # pyarrow has no types.
    """Arrow's type of variants: structs of `value` and `metadata`."""

    def __init__(self) -> None:
        super().__init__(STORAGE, VARIANT_EXTENSION)

    def __hash__(self) -> int:
        return hash(VARIANT_EXTENSION)

    def __arrow_ext_serialize__(self) -> bytes:
        """Return nothing: the type has no parameters."""
        return b""

    @classmethod
    def __arrow_ext_deserialize__(cls, storage_type: pa.DataType, serialized: bytes) -> VariantType:
        """Return the type."""
        return cls()


def variant_type() -> VariantType:
    """Return the Arrow type of a variant column, for schemas of new tables."""
    return VariantType()


def variant_from_python(values: Iterable[Any]) -> pa.ExtensionArray:
    """Return a column of variants that hold Python values; None is a null row.

    Parameters
    ----------
    values
        `bool`, `int`, `float`, `Decimal`, `str`, `bytes`, `date`, `datetime`, and lists and
        dictionaries (of text keys) of them and of None.

    Raises
    ------
    InvalidInputError
        A variant cannot hold one of them; its row is named.
    """
    _require_iterable("values", values)
    return pa.ExtensionArray.from_storage(VariantType(), _encoded(values))


def _require_iterable(argument: str, values: object) -> None:
    if not isinstance(values, Iterable) or isinstance(values, str | bytes):
        raise InvalidTypeError(
            argument=argument,
            reason=f"a list was expected, not {type(values).__name__}",
            remedy="Pass a list, or an Arrow array",
        )


@in_callers_words
def variant_from_json(texts: Iterable[str | None] | pa.Array) -> pa.ExtensionArray:
    """Return a column of variants, parsed from JSON texts; None is a null row.

    As in Spark, a number with a point becomes a decimal if it has up to 38 digits, and a number
    with an exponent becomes a double.

    Raises
    ------
    InvalidInputError
        A text is not JSON. The error names its row.
    """
    _require_iterable("texts", texts)
    array = texts if isinstance(texts, pa.Array) else arrow_array(list(texts), pa.string())
    return pa.ExtensionArray.from_storage(VariantType(), as_variants(array))


def _nothing(_: object) -> None:
    """Return nothing, as the value of a variant that is only checked."""


_NOTHING: Form[None] = Form(dict.fromkeys(Kind, _nothing), _nothing, _nothing)


def as_variants(array: pa.Array) -> pa.StructArray:
    """Return a column as variants: variants as they are, strings as JSON, other values encoded.

    Raises
    ------
    InvalidInputError
        A text is not JSON, a variant cannot hold a value, or the bytes of a variant are none. The
        error names its row.
    """
    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    if isinstance(array, pa.DictionaryArray):
        array = array.dictionary_decode()
    kind = array.type
    if pa.types.is_null(kind):
        return pa.nulls(len(array), STORAGE)
    if pa.types.is_struct(kind) and {"value", "metadata"} == {field.name for field in kind}:
        parts = [array.field(name).cast(pa.binary()) for name in ("value", "metadata")]
        if any(pc.any(pc.and_(pc.is_null(part), array.is_valid())).as_py() for part in parts):
            raise _invalid("value or metadata is null")
        whole = [pc.fill_null(part, b"") for part in parts]
        found = pa.StructArray.from_arrays(whole, fields=list(STORAGE), mask=array.is_null())
        for _ in _rows(found, _NOTHING):  # Each is read: other engines fail at a malformed one.
            pass
        return found
    if pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return _encoded(array.to_pylist(), _parsed_json)
    return _encoded(array.to_pylist(maps_as_pydicts="strict"))


def _encoded(values: Iterable[Any], read: Callable[[Any], Any] = lambda one: one) -> pa.StructArray:
    pairs: list[tuple[bytes, bytes] | None] = []
    for row, value in enumerate(values):
        try:
            pairs.append(None if value is None else encode_variant(read(value)))
        except (InvalidInputError, ValueError) as error:
            raise InvalidInputError(
                argument="values",
                reason=f"row {row}: {reason_of(error)}",
                remedy="Change or omit the value",
            ) from error
    parts = [
        arrow_array([b"" if pair is None else pair[at] for pair in pairs], pa.binary())
        for at in (1, 0)
    ]
    absent = arrow_array([pair is None for pair in pairs], pa.bool_())
    return pa.StructArray.from_arrays(parts, fields=list(STORAGE), mask=absent)


def _parsed_json(text: str) -> Any:
    return json.loads(
        text,
        parse_float=_parsed_number,
        parse_int=lambda digits: int(digits) if len(digits) <= _WIDE.prec else float(digits),
        parse_constant=_no_constant,
        object_pairs_hook=_distinct,
    )


def _parsed_number(text: str) -> Decimal | float:
    exact = "e" not in text.lower() and len(text.strip("-").replace(".", "")) <= _WIDE.prec
    return Decimal(text) if exact else float(text)


def _no_constant(text: str) -> Any:
    raise ValueError(f"{text} is not JSON")


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("an object has the same key twice")
    return found


def _rows(array: pa.Array, form: Form[T]) -> Iterator[T | None]:
    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    if not pa.types.is_struct(array.type) or {"value", "metadata"} != {f.name for f in array.type}:
        raise _invalid(f"its type is {array.type}, which is not a variant type")
    valid = array.is_valid().to_pylist()
    values = array.field("value").to_pylist()
    metadata = array.field("metadata").to_pylist()
    known: dict[bytes, list[str]] = {}
    for row, there in enumerate(valid):
        if not there:
            yield None
            continue
        try:
            if values[row] is None or metadata[row] is None:
                raise MalformedError("value or metadata is null")
            yield decode(values[row], _names(metadata[row], known), form)
        except MalformedError as error:
            raise _invalid(f"row {row}: {error}") from error


def _names(metadata: bytes, known: dict[bytes, list[str]]) -> list[str]:
    names = known.get(metadata)
    if names is None:
        names = known[metadata] = decode_names(metadata)
    return names


def _chunks(array: pa.Array | pa.ChunkedArray) -> list[pa.Array]:
    if not isinstance(array, pa.Array | pa.ChunkedArray):
        raise InvalidTypeError(
            argument="array", reason=f"an Arrow array was expected, not {type(array).__name__}"
        )
    return list(array.chunks) if _is_chunked(array) else [array]


def _is_chunked(array: pa.Array | pa.ChunkedArray) -> bool:
    return isinstance(array, pa.ChunkedArray)


def _decimal(number: tuple[int, int]) -> Decimal:
    unscaled, scale = number
    return Decimal(unscaled).scaleb(-scale, _WIDE)


def _time(micros: int) -> time:
    seconds, rest = divmod(micros, 1_000_000)
    return time(seconds // 3600, seconds // 60 % 60, seconds % 60, rest)


def _date(days: int) -> date:
    try:
        return date.fromordinal(_DAY + days)
    except (ValueError, OverflowError) as error:
        raise MalformedError(f"Python has no date {date_text(days)}") from error


def _moment(micros: int) -> datetime:
    try:
        return _EPOCH + timedelta(microseconds=micros)
    except OverflowError as error:
        raise MalformedError(f"Python has no timestamp {micros} µs from the epoch") from error


def _same(plain: Any) -> Any:
    return plain


PYTHON: Form[Any] = Form(
    scalars={
        **dict.fromkeys(Kind, _same),
        **dict.fromkeys((Kind.DECIMAL4, Kind.DECIMAL8, Kind.DECIMAL16), _decimal),
        Kind.UUID: uuid_text,
        Kind.DATE: _date,
        Kind.TIME: _time,
        Kind.TIMESTAMP: lambda micros: _moment(micros).replace(tzinfo=UTC),
        Kind.TIMESTAMP_NTZ: _moment,
        Kind.TIMESTAMP_NS: lambda nanos: _moment(nanos // 1000).replace(tzinfo=UTC),
        Kind.TIMESTAMP_NTZ_NS: lambda nanos: _moment(nanos // 1000),
    },
    array=_same,
    object=_same,
)


def _invalid(reason: str) -> InvalidInputError:
    return InvalidInputError(
        reason=f"the variant cannot be read: {reason}",
        argument="array",
        remedy="Restore the data from its source, or omit the row",
    )
