"""SQL functions of real numbers: powers, logarithms, trigonometry.

Their values are within a relative error of 2e-15 of Spark's: Java and NumPy compute the last digits
in other ways.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from txlog.expressions.comparisons import as_double
from txlog.expressions.signatures import Function
from txlog.expressions.type_rules import DOUBLE
from txlog.expressions.values import over_numbers

NUMBERS = "number|decimal"


def of_doubles(function: Callable[..., Any], count: int = 1, least: int | None = None) -> Function:
    """Return the entry of a function of NumPy doubles; what is not a number for it is NaN."""

    def computed(*values: Any) -> Any:
        with np.errstate(all="ignore"):
            return function(*values[:-1])

    over_doubles = over_numbers(computed)

    def compute(*values: Any) -> Any:
        *given, kind = values
        return over_doubles(*map(as_double, given), kind)

    return Function(DOUBLE, (NUMBERS,) * count, compute, least=least)


def _logarithm(function: Callable[[Any], Any], end: float = 0.0) -> Function:
    """Return a logarithm, which is null for numbers up to the end of its range."""
    return of_doubles(lambda value: np.ma.array(function(value), mask=value <= end))


def _log(*values: Any) -> Any:
    """Return the natural logarithm of a number, or that of the second number to a base."""
    found = np.log(values[-1])
    if len(values) > 1:
        found = found / np.log(values[0])
    return np.ma.array(found, mask=np.any([value <= 0 for value in values], axis=0))


def _power(base: Any, exponent: Any) -> Any:
    # For Java, unlike for C, 1 to the power of NaN is NaN, and so is 1 or -1 to that of infinity.
    odd = np.isnan(exponent) | ((np.abs(base) == 1) & np.isinf(exponent))
    return np.where(odd, np.nan, np.power(base, exponent))


MATH: dict[str, Function] = {
    "exp": of_doubles(np.exp),
    "expm1": of_doubles(np.expm1),
    "ln": _logarithm(np.log),
    "log": of_doubles(_log, 2, least=1),
    "log2": _logarithm(lambda value: np.log(value) / np.log(2.0)),
    "log10": _logarithm(np.log10),
    "log1p": _logarithm(np.log1p, -1.0),
    "pow": replace(of_doubles(_power, 2), aliases=("power",)),
    "cbrt": of_doubles(np.cbrt),
    "hypot": of_doubles(np.hypot, 2),
    "sin": of_doubles(np.sin),
    "cos": of_doubles(np.cos),
    "tan": of_doubles(np.tan),
    "cot": of_doubles(lambda value: 1 / np.tan(value)),
    "sec": of_doubles(lambda value: 1 / np.cos(value)),
    "csc": of_doubles(lambda value: 1 / np.sin(value)),
    "asin": of_doubles(np.arcsin),
    "acos": of_doubles(np.arccos),
    "atan": of_doubles(np.arctan),
    "atan2": of_doubles(lambda y, x: np.arctan2(y + 0.0, x + 0.0), 2),
    "sinh": of_doubles(np.sinh),
    "cosh": of_doubles(np.cosh),
    "tanh": of_doubles(np.tanh),
    "sqrt": of_doubles(np.sqrt),
    "rint": of_doubles(np.rint),
    "degrees": of_doubles(lambda value: value * 57.29577951308232),
    "radians": of_doubles(lambda value: value * 0.017453292519943295),
    "sign": replace(
        of_doubles(lambda value: np.where(value == 0, value, np.sign(value))), aliases=("signum",)
    ),
}
