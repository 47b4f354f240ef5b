"""Functions of Arrow values from functions of NumPy numbers and of Python values. Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa

from txlog.base.arrow import arrow_array, arrow_scalar, numpy_array, pc
from txlog.base.errors import InvalidInputError

Compute = Callable[..., Any]


def one_array(value: Any, length: int | None = None) -> pa.Array:
    """Return a chunked array, or a repeated scalar, as one array."""
    if isinstance(value, pa.Scalar):
        count = 1 if length is None else length
        return pa.repeat(value, count) if count else pa.nulls(0, value.type)
    return value.combine_chunks() if isinstance(value, pa.ChunkedArray) else value


def over_arrays(compute: Compute) -> Compute:
    """Wrap a function of arrays of equal length as a function of Arrow arrays and scalars."""

    def computed(*values: Any) -> Any:
        lengths = [len(value) for value in values if isinstance(value, pa.Array | pa.ChunkedArray)]
        length = lengths[0] if lengths else 1
        result = compute(
            *(
                one_array(value, length)
                if isinstance(value, pa.Scalar | pa.Array | pa.ChunkedArray)
                else value
                for value in values
            )
        )
        return result if lengths else result[0]

    return computed


def numbers(value: pa.Array) -> Any:
    """Return an array as NumPy numbers, 0 for null; dates are days, timestamps microseconds."""
    if pa.types.is_date(value.type):
        value = value.cast(pa.int32())
    elif pa.types.is_timestamp(value.type):
        value = value.cast(pa.timestamp("us", value.type.tz), safe=False).cast(pa.int64())
    filled = pc.fill_null(value, arrow_scalar(0, value.type)) if value.null_count else value
    array = numpy_array(filled)
    return array if array.dtype.kind == "f" else array.astype(np.int64)


def over_numbers(compute: Compute, *, masked: str | None = None) -> Compute:
    """Wrap a function of NumPy numbers as a function of Arrow values.

    A row with a null gives null. The result may be a masked array: masked values are null too, or
    an error with the reason `masked`.
    """

    @over_arrays
    def computed(*values: Any) -> Any:
        *given, kind = values
        arrays = [value for value in given if isinstance(value, pa.Array)]
        result = compute(
            *(numbers(value) if isinstance(value, pa.Array) else value for value in given), kind
        )
        bad = np.ma.getmaskarray(result)
        absent = np.zeros(len(bad), bool)
        for array in arrays:
            if array.null_count:
                absent |= numpy_array(pc.is_null(array))
        if masked is not None and np.any(bad & ~absent):
            raise InvalidInputError(
                argument="where", reason=f"a value cannot be computed: {masked}"
            )
        return of_numbers(np.ma.getdata(result), kind, absent | bad)

    return computed


def of_numbers(array: Any, kind: pa.DataType, absent: Any = None) -> pa.Array:
    """Return NumPy numbers as Arrow numbers, dates or timestamps; null where `absent` is true."""
    if pa.types.is_date(kind):
        return arrow_array(array.astype(np.int32), pa.int32(), mask=absent).cast(kind)
    if pa.types.is_timestamp(kind):
        return arrow_array(array.astype(np.int64), pa.int64(), mask=absent).cast(kind)
    if pa.types.is_boolean(kind):
        return arrow_array(array.astype(np.int8), pa.int8(), mask=absent).cast(kind)
    return arrow_array(array, mask=absent).cast(kind)


def of_distinct(function: Callable[[Any], Any]) -> Compute:
    """Wrap a function of one Python value: it is called once for each distinct value but null."""

    @over_arrays
    def compute(value: Any, kind: pa.DataType) -> Any:
        encoded = value.cast(pa.string()) if pa.types.is_large_string(value.type) else value
        encoded = encoded.dictionary_encode()
        items = [
            None if item is None else function(item) for item in encoded.dictionary.to_pylist()
        ]
        return arrow_array(items, kind).take(encoded.indices)

    return compute


def remainder(left: Any, right: Any) -> Any:
    """Return NumPy remainders with the dividend's sign; masked where the divisor is 0."""
    zero = right == 0
    with np.errstate(invalid="ignore"):
        return np.ma.array(np.fmod(left, np.where(zero, 1, right)), mask=zero)
