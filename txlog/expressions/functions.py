"""SQL functions by name. Conditions and numbers are in this module, others in their own.

Each has the meaning of Spark's function of the same name; a property test compares the results with
Spark's. Arguments for which the results would differ are refused. Timestamps are in UTC.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from decimal import ROUND_HALF_EVEN, ROUND_HALF_UP, Decimal, localcontext
from typing import Any

import numpy as np
import pyarrow as pa

from txlog.base.arrow import arrow_scalar, pc
from txlog.expressions.array_functions import ARRAYS
from txlog.expressions.casts import cast_value
from txlog.expressions.comparisons import compare
from txlog.expressions.date_functions import DATES
from txlog.expressions.decimals import computed, whole_quotient
from txlog.expressions.hashes import HASHES
from txlog.expressions.lambdas import LAMBDAS
from txlog.expressions.mathematics import MATH, NUMBERS
from txlog.expressions.nested_functions import NESTED
from txlog.expressions.operators import OPERATORS
from txlog.expressions.regex import REGEXES
from txlog.expressions.rewrites import REWRITES
from txlog.expressions.signatures import (
    INTEGER,
    UNCOMPUTED,
    Args,
    Bind,
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
    of_rows,
    refuse,
    require_divisors,
    same,
)
from txlog.expressions.text_functions import TEXTS
from txlog.expressions.tree import Call, Expression, Lambda, Literal
from txlog.expressions.type_rules import (
    BOOLEAN,
    DOUBLE,
    FLOAT,
    FLOATS,
    LONG,
    VOID,
    as_decimal,
    decimal_result,
    is_ordered,
    primitive_name,
)
from txlog.expressions.values import Compute, of_distinct, over_numbers, remainder
from txlog.expressions.zones import ZONES, bound_alike, call_in
from txlog.schema.types import STRING, ArrayType, DataType, DecimalType, StructType, type_name

_WHOLE = "whole"
_EXACT = "whole|decimal"


def called(name: str, args: Args) -> Expression | None:
    """Return a call in SQL text, by one of a function's names; None if it is not supported."""
    name = ALIASES.get(name, name)
    return FUNCTIONS[name].called(name, args) if name in FUNCTIONS else None


def call_text(name: str, args: Args, texts: Sequence[str]) -> str:
    """Return the SQL text of a call, for its arguments and their texts."""
    text = FUNCTIONS[name].text if name in FUNCTIONS else None
    special = None if text is None else text(args, texts)
    return f"{name}({', '.join(texts)})" if special is None else special


def bound_call(name: str, args: Args, bound: Bind, zone: str = "") -> Typed:
    """Return a bound call and its type.

    Parameters
    ----------
    bound
        Binds an argument.
    zone
        The time zone, as for `Scope`.

    Raises
    ------
    InvalidInputError
        There is no such function, or as for `bound_type`.
    """
    entry = FUNCTIONS.get(name)
    if isinstance(entry, LambdaFunction):
        if zone and name == "coalesce":
            bound = bound_alike(args, bound, zone)
        return entry.bound(name, args, bound)
    if any(isinstance(arg, Lambda) for arg in args):
        raise refuse(name, "takes no function such as x -> x + 1 here")
    if not isinstance(entry, Function):
        raise refuse(name, "is not the name of a function")
    typed = [bound(arg) for arg in args]
    if zone:
        return call_in(name, typed, lambda name, args: bound_type(name, entry, args), zone)
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


_MOST_PLACES = 400  # More than doubles have.


def _digits(spare: int) -> Result:
    """Return the result type rule of `round`, `floor` and `ceil`, whose scale an argument sets."""

    def result(name: str, args: Sequence[Typed]) -> DataType:
        kind, places = args[0][1], 0
        if len(args) > 1 and isinstance(args[1][0], Literal):
            places = int(args[1][0].value or 0)
            if abs(places) > _MOST_PLACES:
                raise refuse(name, f"does not round to {places} places")
        if not isinstance(kind, DecimalType):
            return LONG if spare == 0 else kind
        if spare == 0 and kind.scale == 0:
            return kind
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
    """Return `floor` or `ceil`; raise if a long cannot hold the result."""

    def compute(value: Any, kind: pa.DataType) -> Any:
        if pa.types.is_integer(value.type):
            return value.cast(kind)
        if pa.types.is_decimal(value.type):  # The result may have one more digit.
            wide = value.cast(pa.decimal256(76, value.type.scale))
            return getattr(pc, name)(wide).cast(kind)
        whole = getattr(pc, name)(value)
        nan = pc.is_nan(whole)  # As in Java, it is 0 as a long.
        found = cast_value(pc.if_else(nan, arrow_scalar(0.0, whole.type), whole), kind)
        if pc.any(pc.greater_equal(whole, float(1 << 63))).as_py():
            raise refuse(name, "is beyond the range of BIGINT")
        return found

    return compute


def _bound_coalesce(name: str, args: Args, bound: Bind) -> Typed:
    if not args:
        raise refuse(name, "needs at least 1 arguments, not 0")
    typed = [bound(arg) for arg in args]
    kind = common(name, typed)
    return Call(name, tuple(node for node, _ in typed), kind), kind


def _coalesced(_name: str, args: Args, kind: pa.DataType, data: Any, value: Value) -> Any:
    """Return the first value that is not null; a later one may fail where it is not needed."""
    found = cast_number(value(args[0], data), kind)
    for arg in args[1:]:
        try:
            other = cast_number(value(arg, data), kind)
        except UNCOMPUTED:
            lacking = pc.is_null(found)
            if pc.all(lacking).as_py() is not False:
                raise
            other = of_rows(arg, data, lacking, kind, value)
        found = pc.coalesce(found, other)
    return found


def _extreme(sign: str) -> Compute:
    """Return `greatest` or `least`, which keeps the first of equal values, and skips nulls."""

    def compute(*values: Any) -> Any:
        *given, kind = values
        found, *others = (cast_number(value, kind) for value in given)
        for other in others:
            better = pc.or_(
                pc.and_(pc.is_null(found), pc.is_valid(other)),
                pc.fill_null(compare(OPERATORS[sign], other, found), False),
            )
            found = pc.if_else(better, other, found)
        return found

    return compute


def _comparable(name: str, args: Sequence[Typed]) -> DataType:
    kind = common(name, args)
    if not is_ordered(kind) or isinstance(kind, ArrayType | StructType):
        raise refuse(name, f"does not support {type_name(kind)}")
    return kind


def _exact(*values: Any) -> list[Any]:
    """Return numbers as decimals."""
    return [
        value
        if pa.types.is_decimal(value.type)
        else value.cast(pa.int64()).cast(pa.decimal128(19, 0))
        for value in values
    ]


def _div(left: Any, right: Any, kind: pa.DataType) -> Any:
    require_divisors("div", left, right)
    if pa.types.is_decimal(left.type) or pa.types.is_decimal(right.type):
        return cast_value(whole_quotient(*_exact(left, right)), kind)
    return pc.divide_checked(left.cast(kind), _no_zeros(right.cast(kind)))


def _no_zeros(divisor: Any) -> Any:
    zero = pc.equal(divisor, arrow_scalar(0, divisor.type))
    return pc.if_else(zero, arrow_scalar(None, divisor.type), divisor)


def _pmod_type(name: str, args: Sequence[Typed]) -> DataType:
    (_, one), (_, other) = args
    kind = common(name, args)
    a, b = as_decimal(one), as_decimal(other)
    if isinstance(kind, DecimalType) and a is not None and b is not None:
        return decimal_result("%", a, b)
    return kind


def _pmod(left: Any, right: Any, kind: pa.DataType) -> Any:
    require_divisors("%", left, right)
    if not pa.types.is_decimal(kind):
        return _pmod_of_numbers(cast_number(left, kind), cast_number(right, kind), kind)
    left, right = _exact(left, right)
    first = computed("%", left, right, kind)
    below = pc.less(first, arrow_scalar(Decimal(0), kind))
    wide = pa.decimal128(38, kind.scale)
    moved = computed("+", first, right, wide)
    moved = pc.if_else(below, moved, arrow_scalar(Decimal(0), wide))
    return pc.if_else(below, computed("%", moved, right, kind), first)


@over_numbers
def _pmod_of_numbers(left: Any, right: Any, _kind: pa.DataType) -> Any:
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


def _nanvl(value: Any, other: Any, kind: pa.DataType) -> Any:
    value, other = cast_number(value, kind), cast_number(other, kind)
    return pc.if_else(pc.fill_null(pc.is_nan(value), False), other, value)


def _double(name: str, args: Sequence[Typed]) -> DataType:
    if all(primitive_name(kind) == "float" for _, kind in args):
        return FLOAT
    if any(primitive_name(kind) in FLOATS or kind == VOID for _, kind in args[:1]):
        return DOUBLE
    raise refuse(name, "needs a float or double as the first argument")


def _hex(value: Any, kind: pa.DataType) -> Any:
    def written(item: Any) -> str:
        if isinstance(item, int):
            return f"{item & (2**64 - 1):X}"
        return (item.encode() if isinstance(item, str) else item).hex().upper()

    return of_distinct(written)(value, kind)


def _of_bits(sign: str, function: str) -> Function:
    return Function(common, (_WHOLE, _WHOLE), _bits(function), hidden=True, text=infix(sign))


FUNCTIONS: dict[str, Entry] = {
    "coalesce": LambdaFunction(_bound_coalesce, _coalesced, aliases=("nvl", "ifnull")),
    "greatest": Function(_comparable, ("any", "any"), _extreme(">"), repeats=True, of_null=True),
    "least": Function(_comparable, ("any", "any"), _extreme("<"), repeats=True, of_null=True),
    "nanvl": Function(_double, ("number", "number"), _nanvl),
    "isnan": Function(
        BOOLEAN, ("float|double",), lambda value, _: pc.fill_null(pc.is_nan(value), False)
    ),
    "abs": Function(
        same,
        (NUMBERS,),
        lambda value, _: (pc.abs_checked if pa.types.is_integer(value.type) else pc.abs)(value),
    ),
    "negative": Function(
        same,
        (NUMBERS,),
        lambda value, _: (pc.negate_checked if pa.types.is_integer(value.type) else pc.negate)(
            value
        ),
    ),
    "floor": Function(_digits(0), (NUMBERS,), _to_long("floor")),
    "ceil": Function(_digits(0), (NUMBERS,), _to_long("ceil"), aliases=("ceiling",)),
    "round": Function(_digits(1), (NUMBERS, "whole!"), _round(ROUND_HALF_UP), least=1),
    "bround": Function(_digits(1), (NUMBERS, "whole!"), _round(ROUND_HALF_EVEN), least=1),
    "pi": Function(DOUBLE, (), lambda kind: arrow_scalar(math.pi, kind)),
    "e": Function(DOUBLE, (), lambda kind: arrow_scalar(math.e, kind)),
    "div": Function(LONG, (_EXACT, _EXACT), _div, text=infix("div")),
    "pmod": Function(_pmod_type, (NUMBERS, NUMBERS), _pmod),
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
    **MATH,
    **TEXTS,
    **DATES,
    **NESTED,
    **ARRAYS,
    **REGEXES,
    **HASHES,
    **LAMBDAS,
    **REWRITES,
    **ZONES,
}
"""All functions by their names in a tree, and those that SQL text writes as other nodes."""

ALIASES = {alias: name for name, entry in FUNCTIONS.items() for alias in entry.aliases}
