"""`try_cast`: a cast that gives null where `CAST` raises an error. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import date
from typing import Any

import pyarrow as pa

from txlog.arrow import arrow_scalar, pc
from txlog.errors import InvalidInputError
from txlog.expressions.signatures import Function, Typed, of_distinct, over_arrays, refuse
from txlog.expressions.tree import Literal
from txlog.expressions.types import FLOATS, INTEGERS, primitive_name
from txlog.schema.timestamps import days_of, parse_date
from txlog.schema.types import STRING, DataType, PrimitiveType, type_name

_BLANKS = "".join(map(chr, range(33)))  # What Spark trims.
_NUMBER = re.compile(
    r"[+-]?(?:(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?[dDfF]?|(?i:inf|infinity))|(?i:nan)", re.ASCII
)
_WHOLE = re.compile(r"[+-]?\d+", re.ASCII)
_DATE = re.compile(r"([+-]?\d{4,7})(?:-(\d{1,2})(?:-(\d{1,2})(?:[ T].*)?)?)?", re.ASCII | re.DOTALL)
_TRUTHS = {
    **dict.fromkeys(("t", "true", "y", "yes", "1"), True),
    **dict.fromkeys(("f", "false", "n", "no", "0"), False),
}


def _result(name: str, args: Sequence[Typed]) -> DataType:
    node, (_, have) = args[1][0], args[0]
    assert isinstance(node, Literal)
    kind = PrimitiveType(str(node.value))
    wanted = kind.name
    numbers = wanted in INTEGERS | FLOATS and primitive_name(have) in INTEGERS | FLOATS
    texts = have == STRING and wanted in INTEGERS | {"double", "date", "boolean", "string"}
    if not (numbers or texts or have == kind):
        raise refuse(name, f"of {type_name(have)} to {wanted} is not supported")
    return kind


def _whole(text: str, kind: pa.DataType) -> int | None:
    if _WHOLE.fullmatch(text) is None:
        return None
    value = int(text)
    limit = 1 << (kind.bit_width - 1)
    return value if -limit <= value < limit else None


def _double(text: str) -> float | None:
    if text.lstrip("+-")[:2] in ("0x", "0X"):
        raise InvalidInputError(
            argument="where", reason=f"try_cast does not read hexadecimal numbers, as in {text!r}"
        )
    if _NUMBER.fullmatch(text) is None:
        return None
    return float(text if text[-2:-1].isalpha() else text.rstrip("dDfF"))


def _date(text: str) -> Any:
    found = _DATE.fullmatch(text)
    if found is None:
        return None
    try:
        days = parse_date("-".join((found[1], found[2] or "1", found[3] or "1")))
        return date.fromordinal(days - days_of(1, 1, 1) + 1)
    except ValueError:
        return None


def _of_text(value: Any, kind: pa.DataType) -> Any:
    def read(text: str) -> Any:
        text = text.strip(_BLANKS)
        if pa.types.is_integer(kind):
            return _whole(text, kind)
        if pa.types.is_floating(kind):
            return _double(text)
        return _date(text) if pa.types.is_date(kind) else _TRUTHS.get(text.lower())

    return of_distinct(read)(value, kind)


@over_arrays
def _narrowed(value: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return whole numbers: a fraction is cut off, and what does not fit is null."""
    limit = 1 << (kind.bit_width - 1)
    if pa.types.is_floating(value.type):
        value = pc.trunc(value)
        wide = value.cast(pa.float64())
        fits = pc.and_(pc.greater_equal(wide, float(-limit)), pc.less(wide, float(limit)))
    else:
        wide = value.cast(pa.int64())
        fits = pc.and_(pc.greater_equal(wide, -limit), pc.less_equal(wide, limit - 1))
    return pc.if_else(fits, value, arrow_scalar(None, value.type)).cast(kind)


def _try_cast(value: Any, _name: str, kind: pa.DataType) -> Any:
    if value.type == kind:
        return value
    if pa.types.is_string(value.type):
        return _of_text(value, kind)
    if pa.types.is_integer(kind):
        return _narrowed(value, kind)
    return value.cast(kind, safe=False)


TRY_CAST = {"try_cast": Function(_result, ("any", "string!"), _try_cast)}
