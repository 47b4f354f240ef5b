"""Entries of the table of SQL functions: their names, argument types and result types. Pure.

A table of functions has entries such as `Function(STRING, ("string", "whole!"), compute)`. An entry
names the result type and, for each argument, the allowed types, separated by `|`. A `!` requires a
constant, which `compute` gets as a Python value.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa

from txlog.base.arrow import arrow_array, arrow_scalar, numpy_array, pc
from txlog.base.errors import InvalidInputError
from txlog.expressions.tree import Call, Expression, Literal
from txlog.expressions.type_rules import (
    FLOATS,
    INTEGERS,
    TIMESTAMPS,
    VOID,
    common_type,
    primitive_name,
)
from txlog.expressions.values import (
    Compute,
    one_array,
)
from txlog.schema.types import (
    ArrayType,
    DataType,
    DecimalType,
    MapType,
    PrimitiveType,
    StructType,
    type_name,
)

DATE = PrimitiveType("date")
INTEGER = PrimitiveType("integer")
TIMESTAMP = PrimitiveType("timestamp")

Typed = tuple[Expression, DataType]
Args = tuple[Expression, ...]
Bind = Callable[[Expression], Typed]
Value = Callable[[Expression, pa.RecordBatch], Any]
Result = Callable[[str, Sequence[Typed]], DataType]

_GROUPS: dict[str, frozenset[str]] = {
    "whole": INTEGERS,
    "number": INTEGERS | FLOATS,
    "timestamp": TIMESTAMPS,
    "day": TIMESTAMPS | {"date"},
}
_WORDS = {"whole": "whole numbers", "number": "numbers", "day": "dates and timestamps"}
_CONSTANTS: dict[str, type[Any]] = {"whole": int, "string": str, "boolean": bool}


@dataclass(frozen=True, kw_only=True)
class Entry:
    """What SQL text calls by a name.

    Parameters
    ----------
    aliases
        Further names in SQL text.
    hidden
        SQL text has only an operator or a clause for it: no name.
    rewrite
        Returns other nodes for the arguments of a call in SQL text; None if the call stays.
    text
        Returns the SQL text of a call, for its arguments and their texts; None if it is the usual
        one, `name(a, b)`.
    """

    aliases: tuple[str, ...] = ()
    hidden: bool = False
    rewrite: Callable[[Args], Expression | None] | None = None
    text: Callable[[Args, Sequence[str]], str | None] | None = None

    def called(self, name: str, args: Args) -> Expression | None:
        """Return a call in SQL text as a node; None if txlog does not support it."""
        if self.hidden:
            return None
        other = None if self.rewrite is None else self.rewrite(args)
        return Call(name, args) if other is None else other


def infix(sign: str) -> Callable[[Args, Sequence[str]], str]:
    """Return the SQL text of a call of two arguments that has a sign between them."""
    return lambda _args, texts: f"({texts[0]} {sign} {texts[1]})"


@dataclass(frozen=True)
class Function(Entry):
    """A function of values.

    Parameters
    ----------
    gives
        The result type, or a function that returns it or refuses the arguments.
    takes
        The types of each argument, see the module's docstring.
    compute
        A function of the values of the arguments, which are Arrow arrays or scalars, and of the
        Arrow type of the result.
    least
        The number of required arguments; the default is all of `takes`.
    repeats
        More arguments, of the last type, may follow.
    of_null
        `compute` is called even if an argument is the constant NULL. Otherwise the result is null.
    """

    gives: DataType | Result
    takes: tuple[str, ...]
    compute: Compute
    least: int | None = None
    repeats: bool = False
    of_null: bool = False

    def taken(self, place: int) -> str:
        """Return the types that an argument may be of."""
        return self.takes[min(place, len(self.takes) - 1)]


@dataclass(frozen=True)
class LambdaFunction(Entry):
    """A function of values and lambdas.

    Parameters
    ----------
    bound
        Returns a bound call and its type, for the name, the arguments, and a function that binds
        an expression.
    compute
        Returns the value for each row, for the name, the bound arguments, the Arrow type of the
        result, the rows, and a function that evaluates an expression for rows.
    """

    bound: Callable[[str, Args, Bind], Typed]
    compute: Callable[[str, Args, pa.DataType, Any, Value], Any]


def refuse(name: str, reason: str) -> InvalidInputError:
    """Return the error for a call that txlog would compute differently from Spark."""
    return InvalidInputError(argument="where", reason=f"{name} {reason}")


def bound_type(name: str, function: Function, args: Sequence[Typed]) -> DataType:
    """Return the type of a call.

    Raises
    ------
    InvalidInputError
        There are too few or too many arguments, or the function does not accept their types.
    """
    least = len(function.takes) if function.least is None else function.least
    if len(args) < least or (len(args) > len(function.takes) and not function.repeats):
        exact = least == len(function.takes) and not function.repeats
        raise refuse(
            name, f"needs {'' if exact else 'at least '}{least} arguments, not {len(args)}"
        )
    for place, (node, kind) in enumerate(args):
        _require(name, place, function.taken(place), node, kind)
    return function.gives(name, args) if callable(function.gives) else function.gives


def _require(name: str, place: int, taken: str, node: Expression, kind: DataType) -> None:
    constant = taken.endswith("!")
    groups = taken.removesuffix("!").split("|")
    if kind != VOID and not any(_is_of(kind, group) for group in groups):
        words = " or ".join(_WORDS.get(group, group) for group in groups)
        raise refuse(name, f"needs {words}, not {type_name(kind)}")
    if constant and not isinstance(node, Literal):
        wanted = _CONSTANTS[groups[0]].__name__
        raise refuse(name, f"needs a constant of type {wanted} as argument {place + 1}")


def _is_of(kind: DataType, group: str) -> bool:
    match group:
        case "any":
            return True
        case "decimal":
            return isinstance(kind, DecimalType)
        case "array":
            return isinstance(kind, ArrayType)
        case "map":
            return isinstance(kind, MapType)
        case "struct":
            return isinstance(kind, StructType)
    return primitive_name(kind) in _GROUPS.get(group, {group})


def same(_name: str, args: Sequence[Typed]) -> DataType:
    """Return the type of the first argument."""
    return args[0][1]


def common(name: str, args: Sequence[Typed]) -> DataType:
    """Return the common type of all arguments."""
    kind = common_type([kind for _, kind in args])
    if kind is None:
        names = ", ".join(type_name(kind) for _, kind in args)
        raise refuse(name, f"needs values of one type, not {names}")
    return kind


# Values --------------------------------------------------------------------------------------


def compute_call(function: Function, values: Sequence[Any], kind: pa.DataType) -> Any:
    """Return the result of a function for the values of its arguments."""
    if not function.of_null and any(pa.types.is_null(value.type) for value in values):
        return arrow_scalar(None, kind)
    constants = [function.taken(place).endswith("!") for place in range(len(values))]
    pairs = list(zip(values, constants, strict=True))
    if not function.of_null and any(known and not value.is_valid for value, known in pairs):
        return arrow_scalar(None, kind)
    given = [value.as_py() if known else value for value, known in pairs]
    return function.compute(*given, kind)


def variable_column(name: str) -> str:
    """Return the column of a lambda's variable: no column of a table has such a name."""
    return f"\0{name}"


def text(value: Any) -> Any:
    """Return values as text."""
    if pa.types.is_string(value.type):
        return value
    from txlog.expressions.casts import cast_value  # Only other values need it.

    return cast_value(value, pa.string())


def cast_number(value: Any, kind: pa.DataType) -> Any:
    """Return values in a wider type; integers with more digits are rounded to the nearest value."""
    if value.type == kind:  # pyarrow would shorten the values of lists of nulls.
        return value
    special = pa.types.is_decimal(value.type) or pa.types.is_temporal(value.type)
    if special and not pa.types.is_nested(kind):
        from txlog.expressions.casts import cast_value  # Only such values need it.

        return cast_value(value, kind)
    rounds = pa.types.is_integer(value.type) and pa.types.is_floating(kind)
    return value.cast(kind, safe=not rounds)


UNCOMPUTED = (ValueError, ArithmeticError, pa.ArrowNotImplementedError)
"""The errors of values that cannot be computed, but which no row may need."""


def of_rows(node: Expression, data: Any, wanted: Any, kind: pa.DataType, value: Value) -> Any:
    """Return the values of an expression for the wanted rows, and null for the others.

    Raises one of `UNCOMPUTED` if a wanted row needs a value that cannot be computed.
    """
    wanted = one_array(wanted, data.num_rows)
    if not pc.any(wanted).as_py():
        return pa.nulls(data.num_rows, kind)
    rows = data.filter(wanted)
    found = cast_number(one_array(value(node, rows), rows.num_rows), kind)
    chosen = numpy_array(wanted)
    return found.take(arrow_array(np.cumsum(chosen) - 1, pa.int64(), mask=~chosen))


def require_divisors(op: str, left: Any, right: Any) -> None:
    """Raise `InvalidInputError` if a number is divided by 0."""
    if pa.types.is_null(left.type) or pa.types.is_null(right.type):
        return
    nothing = Decimal(0) if pa.types.is_decimal(right.type) else 0
    zero = pc.equal(right, arrow_scalar(nothing, right.type))
    if pc.any(zero).as_py() and pc.any(pc.and_(zero, pc.is_valid(left))).as_py():
        name = "try_mod" if op == "%" else "try_divide"
        raise InvalidInputError(
            argument="where",
            reason=f"a value cannot be computed: {op} by 0",
            remedy=f"Use {name}, which gives null",
        )
