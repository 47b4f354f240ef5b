"""Arithmetic of decimals as in Spark: exact, then rounded half up to the type. Pure."""

from __future__ import annotations

from collections.abc import Callable
from decimal import ROUND_HALF_UP, Decimal, localcontext
from typing import Any

import pyarrow as pa

from txlog.base.arrow import arrow_array, arrow_scalar, pc
from txlog.base.errors import InvalidInputError
from txlog.expressions.type_rules import MOST_DIGITS
from txlog.expressions.values import over_arrays

_WIDEST = 76  # The digits of Arrow's widest decimals.
_SPARE = 4  # The digits that Arrow adds to a quotient.


def rounded(value: Any, kind: pa.Decimal128Type) -> Any:
    """Return decimals of a type, rounded half up.

    Raises
    ------
    pyarrow.ArrowInvalid
        A value has more digits than the type.
    """
    if value.type.scale > kind.scale:
        value = value.cast(pa.decimal256(_WIDEST, value.type.scale))
        value = pc.round(value, ndigits=kind.scale, round_mode="half_towards_infinity")
    return value if value.type == kind else value.cast(kind)


def without_zeros(divisor: Any) -> Any:
    """Return divisors, with null for 0."""
    zero = pc.equal(divisor, arrow_scalar(Decimal(0), divisor.type))
    return pc.if_else(zero, arrow_scalar(None, divisor.type), divisor)


@over_arrays
def computed(op: str, left: pa.Array, right: pa.Array, kind: pa.Decimal128Type) -> pa.Array:
    """Return `left op right` of decimals; null for a divisor of 0.

    Raises
    ------
    pyarrow.ArrowInvalid
        A value has more digits than the type.
    """
    if op in "/%":
        right = without_zeros(right)
    exact = _EXACT[op](left, right, kind)
    return _one_by_one(op, left, right, kind) if exact is None else rounded(exact, kind)


@over_arrays
def whole_quotient(left: pa.Array, right: pa.Array) -> pa.Array:
    """Return quotients of decimals without their fractions; null for a divisor of 0."""
    both = _integers(left, without_zeros(right))
    if both is None:
        kind = pa.decimal128(MOST_DIGITS, 0)
        return _one_by_one("div", left, without_zeros(right), kind)
    return _integer_quotient(*both[:2])


def _sum(function: str) -> Callable[..., Any]:
    def compute(left: pa.Array, right: pa.Array, _kind: Any) -> Any:
        scale = max(left.type.scale, right.type.scale)
        digits = max(one.type.precision - one.type.scale for one in (left, right)) + scale + 1
        if digits > _WIDEST:
            return None
        if digits > MOST_DIGITS:
            left, right = _wide(left, digits - 1, scale), _wide(right, digits - 1, scale)
        return getattr(pc, function)(left, right)

    return compute


def _product(left: pa.Array, right: pa.Array, _kind: Any) -> Any:
    digits = left.type.precision + right.type.precision + 1
    if digits > MOST_DIGITS:
        left, right = (_wide(one, one.type.precision, one.type.scale) for one in (left, right))
    if digits > _WIDEST:  # Both have 38 digits: their product has 76.
        left = left.view(pa.decimal256(MOST_DIGITS - 1, left.type.scale))
    return pc.multiply(left, right)


def _quotient(left: pa.Array, right: pa.Array, kind: pa.Decimal128Type) -> Any:
    """Return quotients with one digit more than their type has, to round by; None if too long."""
    scale = max(kind.scale + 1, left.type.scale - right.type.scale)
    shift = scale + right.type.scale - left.type.scale
    digits = left.type.precision + shift
    if digits + _SPARE > _WIDEST:
        return None
    whole = _wide(left, left.type.precision, left.type.scale)
    whole = whole.view(pa.decimal256(left.type.precision, 0)).cast(pa.decimal256(digits, shift))
    divisor = _wide(right, right.type.precision, right.type.scale)
    found = _integer_quotient(
        whole.view(pa.decimal256(digits, 0)), divisor.view(pa.decimal256(right.type.precision, 0))
    )
    return found.view(pa.decimal256(_WIDEST, scale))


def _remainder(left: pa.Array, right: pa.Array, _kind: Any) -> Any:
    both = _integers(left, right)
    if both is None:
        return None
    dividend, divisor, scale = both
    found = _rest(dividend, divisor, _integer_quotient(dividend, divisor))
    return found.view(pa.decimal256(_WIDEST, scale))


def _integers(left: pa.Array, right: pa.Array) -> tuple[pa.Array, pa.Array, int] | None:
    """Return decimals as multiples of a common step, and its scale; None if they are too long."""
    scale = max(left.type.scale, right.type.scale)
    digits = max(one.type.precision - one.type.scale for one in (left, right)) + scale
    if digits + _SPARE > _WIDEST:
        return None
    dividend, divisor = _wide(left, digits, scale), _wide(right, digits, scale)
    return dividend.view(pa.decimal256(digits, 0)), divisor.view(pa.decimal256(digits, 0)), scale


def _integer_quotient(dividend: pa.Array, divisor: pa.Array) -> pa.Array:
    """Return quotients of whole numbers without their fractions."""
    # Arrow gives the quotient four fractional digits for a divisor whose type has three digits.
    found = pc.trunc(pc.divide(dividend, divisor.view(pa.decimal256(_SPARE - 1, 0))))
    found = found.cast(pa.decimal256(_WIDEST, 0))
    # Arrow's quotient of 256 bits is sometimes wrong (9223372036854775807 * 10^14 by 10^14).
    rest = _rest(dividend, divisor, found)
    zero = arrow_scalar(Decimal(0), rest.type)
    wrong = pc.or_(
        pc.greater_equal(pc.abs(rest), pc.abs(divisor)),
        pc.or_(
            pc.and_(pc.less(rest, zero), pc.greater(dividend, zero)),
            pc.and_(pc.greater(rest, zero), pc.less(dividend, zero)),
        ),
    )
    wrong = pc.fill_null(wrong, False)
    if not pc.any(wrong).as_py():
        return found
    mended = []
    for a, b in zip(dividend.filter(wrong), divisor.filter(wrong), strict=True):
        one, other = int(a.as_py()), int(b.as_py())
        quotient = abs(one) // abs(other)
        mended.append(Decimal(quotient if (one < 0) == (other < 0) else -quotient))
    return pc.replace_with_mask(found, wrong, arrow_array(mended, found.type))


def _rest(dividend: pa.Array, divisor: pa.Array, quotient: pa.Array) -> pa.Array:
    """Return the dividend without the product of divisor and quotient."""
    few = divisor.view(pa.decimal256(_SPARE - 1, 0))
    product = pc.multiply(quotient.view(pa.decimal256(_WIDEST - _SPARE, 0)), few)
    both = (one.view(pa.decimal256(_WIDEST - 1, 0)) for one in (dividend, product))
    return pc.subtract(*both)


def _wide(value: pa.Array, precision: int, scale: int) -> pa.Array:
    return value.cast(pa.decimal256(precision, scale))


_EXACT: dict[str, Callable[[pa.Array, pa.Array, Any], Any]] = {
    "+": _sum("add"),
    "-": _sum("subtract"),
    "*": _product,
    "/": _quotient,
    "%": _remainder,
}


def _one_by_one(op: str, left: pa.Array, right: pa.Array, kind: pa.Decimal128Type) -> pa.Array:
    """Return what `computed` does, of decimals that are too long for Arrow."""
    step = Decimal(1).scaleb(-kind.scale)
    found: list[Decimal | None] = []
    with localcontext() as context:
        context.prec = 200
        functions: dict[str, Callable[[Decimal, Decimal], Decimal]] = {
            "+": context.add,
            "-": context.subtract,
            "*": context.multiply,
            "/": context.divide,
            "%": context.remainder,
            "div": context.divide_int,
        }
        for a, b in zip(left.to_pylist(), right.to_pylist(), strict=True):
            if a is None or b is None:
                found.append(None)
                continue
            value = functions[op](a, b).quantize(step, rounding=ROUND_HALF_UP)
            if value.adjusted() >= kind.precision - kind.scale and value:
                raise InvalidInputError(
                    argument="where",
                    reason=f"a value cannot be computed: {a} {op} {b} has more than "
                    f"{kind.precision} digits",
                )
            found.append(value)
    return arrow_array(found, kind)
