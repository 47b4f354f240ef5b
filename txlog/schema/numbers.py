"""Numbers of Arrow in another type of number, without a change of a value. Pure.

A value is kept if it is equal when it is cast back. Arrow's own casts refuse some values that are
kept (whole numbers as short decimals), and round others.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from txlog.base.arrow import numpy_array, pc
from txlog.base.columns import nearest_floats


class LossyValueError(ValueError):
    """A value would be another one in the wanted type."""


def is_number(kind: pa.DataType) -> bool:
    """Return whether values of an Arrow type are numbers."""
    types = pa.types
    return bool(types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind))


def as_numbers(array: pa.Array, target: pa.DataType) -> pa.Array:
    """Return numbers in another type of number; no value is changed, and NaN stays NaN.

    Raises
    ------
    LossyValueError
        A value would be rounded, cut off, or does not fit; the error names the first.
    pyarrow.ArrowException
        As above, where Arrow's error names the value.
    """
    if pa.types.is_float16(array.type):
        array = array.cast(pa.float32())
    have, to_float = array.type, pa.types.is_floating(target)
    if pa.types.is_integer(have):
        if to_float:
            return _whole_as_floats(array, target)
        if pa.types.is_decimal(target):
            wide = pa.decimal256(20 + target.scale, target.scale)  # Twenty digits of uint64.
            return array.cast(wide).cast(target)
    if pa.types.is_floating(have) and (to_float or pa.types.is_decimal(target)):
        cast = array.cast(target)
        back = _as_floats(cast, have)
        kept = pc.or_(pc.equal(back, array), pc.and_(pc.is_nan(back), pc.is_nan(array)))
        return _kept(array, cast, kept)
    if pa.types.is_decimal(have) and to_float:
        cast = _as_floats(array, target)
        try:
            kept = pc.equal(cast.cast(have), array)
        except pa.ArrowInvalid:  # The nearest float has more digits than the decimals.
            kept = _each_kept(array, cast)
        return _kept(array, cast, kept)
    return array.cast(target)  # Arrow refuses what does not fit.


def _as_floats(array: pa.Array, target: pa.DataType) -> pa.Array:
    """Return floats, or decimals as the nearest floats."""
    return nearest_floats(array, target) if pa.types.is_decimal(array.type) else array.cast(target)


def _whole_as_floats(array: pa.Array, target: pa.DataType) -> pa.Array:
    try:
        return array.cast(target)
    except pa.ArrowInvalid:  # Of all large numbers, also of those that have an equal float.
        cast = array.cast(target, safe=False)
    limit = float(2**array.type.bit_width)  # Above every value: a float that rounds up to it.
    floats: Any = numpy_array(cast.cast(pa.float64()).fill_null(0))
    is_signed = pa.types.is_signed_integer(array.type)
    inside = floats < (limit / 2 if is_signed else limit)
    whole = np.where(inside, floats, 0).astype(np.int64 if is_signed else np.uint64)
    same = whole == numpy_array(array.fill_null(0))
    return _kept(array, cast, pa.array(inside & same))


def _each_kept(array: pa.Array, cast: pa.Array) -> pa.Array:
    values = zip(array.to_pylist(), cast.to_pylist(), strict=True)
    scale = array.type.scale
    return pa.array([old is None or round(type(old)(new), scale) == old for old, new in values])


def _kept(array: pa.Array, cast: pa.Array, kept: pa.Array) -> pa.Array:
    """Return the cast values, or raise for the first one that is valid and not kept."""
    at = pc.index(pc.fill_null(kept, True), False).as_py()
    if at < 0:
        return cast
    value, nearest = array[at].as_py(), cast[at].as_py()
    raise LossyValueError(f"{value} would become {nearest}")
