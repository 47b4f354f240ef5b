"""SQL functions by name. Conditions and numbers are in this module, others in their own.

Each has the meaning of Spark's function of the same name; a property test compares the results with
Spark's. Arguments for which the results would differ are refused. Timestamps are in UTC.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from datetime import date
from decimal import ROUND_HALF_EVEN, ROUND_HALF_UP, Decimal, localcontext
from functools import reduce
from typing import Any

import numpy as np
import pyarrow as pa

from txlog.base.arrow import arrow_scalar, pc
from txlog.base.errors import InvalidInputError
from txlog.base.moments import days_of
from txlog.expressions.array_functions import ARRAYS
from txlog.expressions.date_functions import DATES
from txlog.expressions.hashes import HASHES
from txlog.expressions.lambdas import LAMBDAS
from txlog.expressions.nested_functions import NESTED
from txlog.expressions.regex import REGEXES
from txlog.expressions.rewrites import REWRITES
from txlog.expressions.signatures import (
    INTEGER,
    Args,
    Bind,
    Compute,
    Entry,
    Function,
    LambdaFunction,
    Result,
    Typed,
    Value,
    bound_type,
    cast_number,
    common,
    compute_call,
    infix,
    of_distinct,
    over_arrays,
    over_numbers,
    refuse,
    remainder,
    same,
)
from txlog.expressions.text_functions import TEXTS
from txlog.expressions.tree import Call, Expression, Lambda, Literal
from txlog.expressions.type_rules import (
    BOOLEAN,
    DOUBLE,
    FLOATS,
    INTEGERS,
    LONG,
    VOID,
    primitive_name,
)
from txlog.schema.timestamps import parse_date
from txlog.schema.types import STRING, DataType, DecimalType, PrimitiveType, sql_name, type_name


def called(name: str, args: Args) -> Expression | None:
    """Return a call in SQL text, by one of a function's names; None if it is not supported."""
    name = ALIASES.get(name, name)
    return FUNCTIONS[name].called(name, args) if name in FUNCTIONS else None


def call_text(name: str, args: Args, texts: Sequence[str]) -> str:
    """Return the SQL text of a call, for its arguments and their texts."""
    text = FUNCTIONS[name].text if name in FUNCTIONS else None
    special = None if text is None else text(args, texts)
    return f"{name}({', '.join(texts)})" if special is None else special


def bound_call(name: str, args: Args, bound: Bind) -> Typed:
    """Return a bound call and its type.

    Parameters
    ----------
    bound
        Binds an argument.

    Raises
    ------
    InvalidInputError
        There is no such function, or as for `bound_type`.
    """
    entry = FUNCTIONS.get(name)
    if isinstance(entry, LambdaFunction):
        return entry.bound(name, args, bound)
    if any(isinstance(arg, Lambda) for arg in args):
        raise refuse(name, "takes no function such as x -> x + 1 here")
    if not isinstance(entry, Function):
        raise refuse(name, "is not the name of a function")
    typed = [bound(arg) for arg in args]
    kind = bound_type(name, entry, typed)
    return Call(name, tuple(node for node, _ in typed), kind), kind


def call(name: str, args: Args, kind: pa.DataType, data: Any, value: Value) -> Any:
    """Return the value of a bound call for each row.

    Parameters
    ----------
    value
        Evaluates an argument for rows.
    """
    entry = FUNCTIONS[name]
    if isinstance(entry, LambdaFunction):
        return entry.compute(name, args, kind, data, value)
    assert isinstance(entry, Function)  # `bind` refuses all others.
    return compute_call(entry, [value(arg, data) for arg in args], kind)


def _digits(spare: int) -> Result:
    """Return the result type rule of `round`, `floor` and `ceil`, whose scale an argument sets."""

    def result(_name: str, args: Sequence[Typed]) -> DataType:
        kind, places = args[0][1], 0
        if len(args) > 1 and isinstance(args[1][0], Literal):
            places = int(args[1][0].value or 0)
        if not isinstance(kind, DecimalType):
            return LONG if spare == 0 else kind
        whole = kind.precision - kind.scale + 1
        if places < 0:
            return DecimalType(min(max(whole, 1 - places), 38), 0)
        scale = min(kind.scale, places)
        return DecimalType(min(whole + scale, 38), scale)

    return result


def _round(mode: str) -> Compute:
    """Round the decimal text of a number, as Spark does: the last 5 of 1.005 is rounded up."""

    def compute(value: Any, *more: Any) -> Any:
        *places, kind = more
        step = Decimal(1).scaleb(-(places[0] if places else 0))

        def rounded(number: Any) -> Any:
            if isinstance(number, float):
                if not math.isfinite(number):
                    return number
                number = Decimal(repr(number))
            with localcontext() as context:
                context.prec = 800
                exact = Decimal(number).quantize(step, rounding=mode)
            if pa.types.is_decimal(kind):
                return exact
            return float(exact) + 0.0 if pa.types.is_floating(kind) else int(exact)  # Never -0.0.

        return of_distinct(rounded)(value, kind)

    return compute


def _to_long(name: str) -> Compute:
    """Return `floor` or `ceil`; the cast raises if a long cannot hold the result."""

    def compute(value: Any, kind: pa.DataType) -> Any:
        whole = pa.types.is_integer(value.type)
        return value.cast(kind) if whole else getattr(pc, name)(value).cast(kind)

    return compute


def _extreme(name: str) -> Compute:
    def compute(*values: Any) -> Any:
        *given, kind = values
        cast = [cast_number(value, kind) for value in given]
        found = getattr(pc, name)(*cast, skip_nulls=True)
        if pa.types.is_floating(kind):  # Spark keeps the first of two zeros, Arrow any of them.
            zero, null = arrow_scalar(0.0, kind), arrow_scalar(None, kind)
            zeros = [pc.if_else(pc.equal(value, zero), value, null) for value in cast]
            found = pc.if_else(pc.equal(found, zero), pc.coalesce(*zeros), found)
        if pa.types.is_floating(kind) and name.startswith("max"):
            any_nan = reduce(pc.or_, (pc.fill_null(pc.is_nan(value), False) for value in cast))
            return pc.if_else(any_nan, arrow_scalar(float("nan"), kind), found)
        return found

    return compute


def _div(left: Any, right: Any, kind: pa.DataType) -> Any:
    left, right = left.cast(kind), right.cast(kind)
    zero = pc.equal(right, arrow_scalar(0, kind))
    return pc.divide(left, pc.if_else(zero, arrow_scalar(None, kind), right))


def _pmod(left: Any, right: Any, _kind: pa.DataType) -> Any:
    first = remainder(left, right)
    below = np.ma.getdata(first) < 0
    again = remainder(np.where(below, np.ma.getdata(first) + right, 0), right)
    return np.ma.array(np.where(below, again, np.ma.getdata(first)), mask=right == 0)


def _bits(name: str) -> Compute:
    return lambda *values: getattr(pc, name)(*(value.cast(values[-1]) for value in values[:-1]))


def _shifted(name: str, args: Sequence[Typed]) -> DataType:
    if isinstance(args[0][0], Literal):
        raise refuse(name, "does not shift constants, whose type is not clear: shift a column")
    return LONG if args[0][1] == LONG else INTEGER


def _shift(function: Callable[[Any, Any, int], Any]) -> Compute:
    @over_numbers
    def compute(value: Any, count: Any, kind: pa.DataType) -> Any:
        bits = kind.bit_width
        shifted = function(value, count & (bits - 1), bits)
        return shifted if bits == 64 else shifted.astype(np.int32).astype(np.int64)

    return compute


def _shift_unsigned(value: Any, count: Any, bits: int) -> Any:
    own = np.uint64 if bits == 64 else np.uint32
    return (value.astype(own) >> count.astype(own)).astype(np.int64)


def _sign(value: Any, _kind: pa.DataType) -> Any:
    value = value.astype(np.float64)
    return np.where(value == 0, value, np.sign(value))


def _nanvl(value: Any, other: Any, kind: pa.DataType) -> Any:
    value, other = cast_number(value, kind), cast_number(other, kind)
    return pc.if_else(pc.fill_null(pc.is_nan(value), False), other, value)


def _double(name: str, args: Sequence[Typed]) -> DataType:
    if any(primitive_name(kind) in FLOATS or kind == VOID for _, kind in args[:1]):
        return DOUBLE
    raise refuse(name, "needs a float or double as the first argument")


def _of_doubles(function: Callable[[Any], Any]) -> Function:
    return Function(
        DOUBLE,
        ("number",),
        over_numbers(lambda value, _: function(value.astype(np.float64))),
    )


def _hex(value: Any, kind: pa.DataType) -> Any:
    def written(item: Any) -> str:
        if isinstance(item, int):
            return f"{item & (2**64 - 1):X}"
        return (item.encode() if isinstance(item, str) else item).hex().upper()

    return of_distinct(written)(value, kind)


def _sqrt(value: Any) -> Any:
    with np.errstate(invalid="ignore"):
        return np.sqrt(value)


# try_cast: a cast that gives null if CAST raises an error -----------------------------------

_BLANKS = "".join(map(chr, range(33)))  # The characters that Spark trims.
_NUMBER_TEXT = re.compile(
    r"[+-]?(?:(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?[dDfF]?|(?i:inf|infinity))|(?i:nan)", re.ASCII
)
_WHOLE_TEXT = re.compile(r"[+-]?\d+", re.ASCII)
_DATE_TEXT = re.compile(
    r"([+-]?\d{4,7})(?:-(\d{1,2})(?:-(\d{1,2})(?:[ T].*)?)?)?", re.ASCII | re.DOTALL
)
_TRUTHS = {
    **dict.fromkeys(("t", "true", "y", "yes", "1"), True),
    **dict.fromkeys(("f", "false", "n", "no", "0"), False),
}


def _try_type(name: str, args: Sequence[Typed]) -> DataType:
    node, (_, have) = args[1][0], args[0]
    assert isinstance(node, Literal)
    kind = PrimitiveType(str(node.value))
    wanted = kind.name
    numbers = wanted in INTEGERS | FLOATS and primitive_name(have) in INTEGERS | FLOATS
    texts = have == STRING and wanted in INTEGERS | {"double", "date", "boolean", "string"}
    if not (numbers or texts or have == kind):
        raise refuse(name, f"of {type_name(have)} to {wanted} is not supported")
    return kind


def _read_whole(text: str, kind: pa.DataType) -> int | None:
    if _WHOLE_TEXT.fullmatch(text) is None:
        return None
    value = int(text)
    limit = 1 << (kind.bit_width - 1)
    return value if -limit <= value < limit else None


def _read_double(text: str) -> float | None:
    if text.lstrip("+-")[:2] in ("0x", "0X"):
        raise InvalidInputError(
            argument="where", reason=f"try_cast does not read hexadecimal numbers, as in {text!r}"
        )
    if _NUMBER_TEXT.fullmatch(text) is None:
        return None
    return float(text if text[-2:-1].isalpha() else text.rstrip("dDfF"))


def _read_date(text: str) -> Any:
    found = _DATE_TEXT.fullmatch(text)
    if found is None:
        return None
    try:
        days = parse_date("-".join((found[1], found[2] or "1", found[3] or "1")))
        return date.fromordinal(days - days_of(1, 1, 1) + 1)
    except ValueError:
        return None


def _read_text(value: Any, kind: pa.DataType) -> Any:
    def read(text: str) -> Any:
        text = text.strip(_BLANKS)
        if pa.types.is_integer(kind):
            return _read_whole(text, kind)
        if pa.types.is_floating(kind):
            return _read_double(text)
        return _read_date(text) if pa.types.is_date(kind) else _TRUTHS.get(text.lower())

    return of_distinct(read)(value, kind)


@over_arrays
def _narrowed(value: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return integers: fractions are cut off, and values out of range become null."""
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
        return _read_text(value, kind)
    if pa.types.is_integer(kind):
        return _narrowed(value, kind)
    return value.cast(kind, safe=False)


_WHOLE = "whole"


def _of_bits(sign: str, function: str) -> Function:
    return Function(common, (_WHOLE, _WHOLE), _bits(function), hidden=True, text=infix(sign))


_NUMBERS = "number|decimal"


def _try_cast_text(args: Args, texts: Sequence[str]) -> str:
    kind = args[1]
    assert isinstance(kind, Literal)
    return f"try_cast({texts[0]} AS {sql_name(PrimitiveType(str(kind.value)))})"


FUNCTIONS: dict[str, Entry] = {
    "coalesce": Function(
        common,
        ("any",),
        lambda *v: pc.coalesce(*(cast_number(value, v[-1]) for value in v[:-1])),
        repeats=True,
        of_null=True,
        aliases=("nvl", "ifnull"),
    ),
    "greatest": Function(
        common, ("any", "any"), _extreme("max_element_wise"), repeats=True, of_null=True
    ),
    "least": Function(
        common, ("any", "any"), _extreme("min_element_wise"), repeats=True, of_null=True
    ),
    "nanvl": Function(_double, ("number", "number"), _nanvl),
    "isnan": Function(
        BOOLEAN, ("float|double",), lambda value, _: pc.fill_null(pc.is_nan(value), False)
    ),
    "abs": Function(
        same,
        (_NUMBERS,),
        lambda value, _: (pc.abs_checked if pa.types.is_integer(value.type) else pc.abs)(value),
    ),
    "negative": Function(
        same,
        (_NUMBERS,),
        lambda value, _: (pc.negate_checked if pa.types.is_integer(value.type) else pc.negate)(
            value
        ),
    ),
    "floor": Function(_digits(0), (_NUMBERS,), _to_long("floor")),
    "ceil": Function(_digits(0), (_NUMBERS,), _to_long("ceil"), aliases=("ceiling",)),
    "round": Function(_digits(1), (_NUMBERS, "whole!"), _round(ROUND_HALF_UP), least=1),
    "bround": Function(_digits(1), (_NUMBERS, "whole!"), _round(ROUND_HALF_EVEN), least=1),
    "rint": _of_doubles(np.rint),
    "sqrt": _of_doubles(_sqrt),
    "degrees": _of_doubles(lambda value: value * 57.29577951308232),
    "radians": _of_doubles(lambda value: value * 0.017453292519943295),
    "sign": Function(DOUBLE, ("number",), over_numbers(_sign), aliases=("signum",)),
    "pi": Function(DOUBLE, (), lambda kind: arrow_scalar(math.pi, kind)),
    "e": Function(DOUBLE, (), lambda kind: arrow_scalar(math.e, kind)),
    "div": Function(LONG, (_WHOLE, _WHOLE), _div, text=infix("div")),
    "pmod": Function(common, ("number", "number"), over_numbers(_pmod)),
    "&": _of_bits("&", "bit_wise_and"),
    "|": _of_bits("|", "bit_wise_or"),
    "^": _of_bits("^", "bit_wise_xor"),
    "~": Function(
        same,
        (_WHOLE,),
        _bits("bit_wise_not"),
        hidden=True,
        text=lambda _, texts: f"(~ {texts[0]})",
    ),
    "shiftleft": Function(
        _shifted, (_WHOLE, _WHOLE), _shift(lambda value, count, _: value << count)
    ),
    "shiftright": Function(
        _shifted, (_WHOLE, _WHOLE), _shift(lambda value, count, _: value >> count)
    ),
    "shiftrightunsigned": Function(_shifted, (_WHOLE, _WHOLE), _shift(_shift_unsigned)),
    "bit_count": Function(
        INTEGER, (_WHOLE,), of_distinct(lambda item: (item & (2**64 - 1)).bit_count())
    ),
    "bin": Function(STRING, (_WHOLE,), of_distinct(lambda item: f"{item & (2**64 - 1):b}")),
    "hex": Function(STRING, ("whole|string|binary",), _hex),
    "try_cast": Function(
        _try_type, ("any", "string!"), _try_cast, hidden=True, text=_try_cast_text
    ),
    **TEXTS,
    **DATES,
    **NESTED,
    **ARRAYS,
    **REGEXES,
    **HASHES,
    **LAMBDAS,
    **REWRITES,
}
"""All functions by their names in a tree, and those that SQL text writes as other nodes."""

ALIASES = {alias: name for name, entry in FUNCTIONS.items() for alias in entry.aliases}
