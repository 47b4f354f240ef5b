"""Calls of functions in parsed SQL, as nodes of the tree. Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from txlog.expressions.tree import Call, Case, Comparison, Expression, IsNull, Literal, Not

Convert = Callable[[Any], Expression]

# Classes of the parser whose arguments have these keys, in this order.
_PLAIN: dict[str, tuple[str, tuple[str, ...]]] = {
    "Upper": ("upper", ("this",)),
    "Lower": ("lower", ("this",)),
    "Length": ("length", ("this",)),
    "Reverse": ("reverse", ("this",)),
    "Abs": ("abs", ("this",)),
    "Floor": ("floor", ("this",)),
    "Ceil": ("ceil", ("this",)),
    "Sqrt": ("sqrt", ("this",)),
    "IsNan": ("isnan", ("this",)),
    "Quarter": ("quarter", ("this",)),
    "Hour": ("hour", ("this",)),
    "Minute": ("minute", ("this",)),
    "Second": ("second", ("this",)),
    "Year": ("year", ("this",)),
    "Month": ("month", ("this",)),
    "Day": ("day", ("this",)),
    "DayOfMonth": ("day", ("this",)),
    "DayOfWeek": ("dayofweek", ("this",)),
    "DayOfYear": ("dayofyear", ("this",)),
    "WeekOfYear": ("weekofyear", ("this",)),
    "LastDay": ("last_day", ("this",)),
    "ArraySize": ("size", ("this",)),
    "Substring": ("substring", ("this", "start", "length")),
    "Left": ("left", ("this", "expression")),
    "Right": ("right", ("this", "expression")),
    "Replace": ("replace", ("this", "expression", "replacement")),
    "Repeat": ("repeat", ("this", "times")),
    "DateDiff": ("datediff", ("this", "expression")),
    "IntDiv": ("div", ("this", "expression")),
    "DPipe": ("concat", ("this", "expression")),
    "DateTrunc": ("trunc", ("this", "unit")),
    "TimestampTrunc": ("date_trunc", ("this", "unit")),
}
_ANONYMOUS = {"weekday": "weekday"}


def converted_call(node: Any, sub: Convert) -> Expression | None:
    """Return a call as a node of the tree; None if it is none that txlog knows."""
    name = type(node).__name__
    args = node.args
    if name in _PLAIN:
        known, keys = _PLAIN[name]
        return Call(known, tuple(_argument(args[key], sub) for key in keys if args.get(key)))
    match name:
        case "Case":
            return _case(node, sub)
        case "If":
            return Case(((sub(node.this), sub(args["true"])),), _default(args.get("false"), sub))
        case "Nvl2":
            condition = Not(IsNull(sub(node.this)))
            return Case(((condition, sub(args["true"])),), _default(args.get("false"), sub))
        case "Nullif":
            first = sub(node.this)
            equal = Comparison("=", first, sub(node.expression))
            return Case(((equal, Literal(None)),), first)
        case "Coalesce" | "Greatest" | "Least":
            return Call(name.lower(), (sub(node.this), *map(sub, node.expressions)))
        case "Concat":
            return Call("concat", tuple(map(sub, node.expressions)))
        case "Trim" if not args.get("expression"):
            side = {"LEADING": "ltrim", "TRAILING": "rtrim"}.get(args.get("position", ""), "trim")
            return Call(side, (sub(node.this),))
        case "Pad":
            keys = ("this", "expression", "fill_pattern")
            side = "lpad" if args.get("is_left") else "rpad"
            return Call(side, tuple(sub(args[key]) for key in keys if args.get(key)))
        case "TsOrDsAdd" if str(args.get("unit") or "DAY").upper() == "DAY":
            return Call("date_add", (_argument(node.this, sub), sub(node.expression)))
        case "Bracket" if len(node.expressions) == 1 and node.expressions[0].is_string:
            return Call("map_value", (sub(node.this), sub(node.expressions[0])))
        case "Anonymous":
            return _anonymous(str(node.this).lower(), node.expressions, sub)
    return None


def _argument(node: Any, sub: Convert) -> Expression:
    """Return an argument, without the conversion to a date that the parser adds."""
    name = type(node).__name__
    if name == "TsOrDsToDate" and not node.args.get("safe"):
        return sub(node.this)
    if name == "Var":
        return Literal(str(node.this))
    return sub(node)


def _default(node: Any, sub: Convert) -> Expression:
    return Literal(None) if node is None else sub(node)


def _case(node: Any, sub: Convert) -> Expression:
    operand = None if node.this is None else sub(node.this)
    branches = []
    for branch in node.args["ifs"]:
        condition = sub(branch.this)
        if operand is not None:
            condition = Comparison("=", operand, condition)
        branches.append((condition, sub(branch.args["true"])))
    return Case(tuple(branches), _default(node.args.get("default"), sub))


def _anonymous(name: str, given: list[Any], sub: Convert) -> Expression | None:
    args = tuple(map(sub, given))
    if name == "isnull" and len(args) == 1:
        return IsNull(args[0])
    if name == "isnotnull" and len(args) == 1:
        return Not(IsNull(args[0]))
    return Call(_ANONYMOUS[name], args) if name in _ANONYMOUS else None
