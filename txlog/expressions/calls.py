"""Set up the SQL parser, and convert parsed function calls to nodes of the tree. Pure.

The parser is configured without functions: a call stays a name with arguments, so that only
`FUNCTIONS` decides the meaning of a name.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from functools import cache, partial
from typing import Any

from txlog.base.effects import REAL
from txlog.base.errors import InvalidInputError
from txlog.expressions.tree import (
    Call,
    Case,
    Column,
    Comparison,
    Expression,
    Lambda,
    Literal,
    Variable,
    Zoned,
    rewritten,
)

Convert = Callable[[Any], Expression]

_BITS = {
    "BitwiseAnd": "&", "BitwiseOr": "|", "BitwiseXor": "^", "BitwiseLeftShift": "shiftleft",
    "BitwiseRightShift": "shiftright", "IntDiv": "div",
}  # fmt: skip
_MICROS = {
    "MICROSECOND": 1,
    "MILLISECOND": 1000,
    "SECOND": 10**6,
    "MINUTE": 60 * 10**6,
    "HOUR": 3600 * 10**6,
}
_DAYS = {"DAY": 1, "WEEK": 7}
_MONTHS = {"MONTH": 1, "QUARTER": 3, "YEAR": 12}
# Words that begin a statement or clause in the parser, but are names in Spark.
_NAMES = re.compile(
    r"\b(?:alter|analyze|begin|cache|call|comment|commit|copy|create|cross|declare|delete|desc"
    r"|describe|drop|except|execute|explain|fetch|grant|having|if|insert|intersect|kill|lateral"
    r"|load|merge|minus|on|pivot|pragma|refresh|rename|revoke|rollback|set|show|truncate|uncache"
    r"|union|unpivot|update|use|using|values|where|with)\b",
    re.IGNORECASE,
)
NOW = ("current_date", "current_timestamp")  # The calls that `fixed_in_time` replaces.


@cache
def dialect() -> Any:
    """Return Spark's dialect for the parser, without functions."""
    from sqlglot import TokenType, exp
    from sqlglot.dialects.spark import Spark

    syntax = ("CAST", "TRY_CAST", "TRIM", "EXTRACT", "POSITION", "OVERLAY", "SUBSTRING")
    known = Spark.Parser.FUNCTION_PARSERS
    parser = type(
        "Parser",
        (Spark.Parser,),
        {
            "FUNCTIONS": {},
            "ARRAY_CONSTRUCTORS": {},  # For other dialects, array(1, 2)[0] is the array of 0.
            "FUNCTION_PARSERS": {**{name: known[name] for name in syntax}, "CAST": _written_cast},
            "NO_PAREN_FUNCTIONS": {},
            # Versions before 30.24 give % the same precedence as + and -.
            "FACTOR": {**Spark.Parser.FACTOR, TokenType.MOD: exp.Mod},
            "TERM": {k: v for k, v in Spark.Parser.TERM.items() if k != TokenType.MOD},
        },
    )
    return type("TxlogSpark", (Spark,), {"Parser": parser})


WRITTEN = "written"  # The mark of a node that the text writes as CAST(…).


def _written_cast(parser: Any) -> Any:
    """Return a cast with a mark: the parser reads `7L` as the cast `7::BIGINT`."""
    node = parser._parse_cast(parser.STRICT_CAST)
    node.meta[WRITTEN] = True
    return node


def as_parsed(text: str) -> str:
    """Rewrite SQL text so that the parser reads it as Spark does.

    Words that are names in Spark, but not in the parser, are put in backticks unless they are
    called as functions. A doubled quote inside quotes becomes a quote with a backslash.
    """
    if not _NAMES.search(text) and "''" not in text and '""' not in text:
        return text
    from sqlglot import TokenType
    from sqlglot.dialects.spark import Spark

    # At the beginning of a text, some of these words make the parser ignore the rest.
    opening = "( "
    tokens = [
        (token.token_type, token.start - len(opening), token.end + 1 - len(opening))
        for token in Spark().tokenize(opening + text)[1:]
    ]
    parts = []
    done = 0
    for (kind, start, end), following in zip(tokens, [*tokens[1:], None], strict=True):
        if following is not None and kind == following[0] == TokenType.STRING:
            if end == following[1] and text[end - 1] == text[end]:
                parts += [text[done : end - 1], "\\", text[end]]
                done = end + 1
            continue
        is_call = following is not None and following[0] == TokenType.L_PAREN
        if _NAMES.fullmatch(text[start:end]) and not is_call:
            parts += [text[done:start], f"`{text[start:end]}`"]
            done = end
    return "".join([*parts, text[done:]])


def fixed_in_time(expression: Expression) -> Expression:
    """Return an expression in which `current_date()` and `current_timestamp()` are constants.

    They are the same for all rows and during the whole call of a verb, as in Spark.
    """
    moment: list[datetime] = []

    def constant(node: Expression, zone: str = "") -> Expression | None:
        if isinstance(node, Zoned):
            return Zoned(rewritten(node.operand, partial(constant, zone=node.zone)), node.zone)
        if not isinstance(node, Call) or node.name not in NOW:
            return None
        if not moment:
            moment.append(datetime.fromtimestamp(REAL.now_ms() / 1000, UTC))
        if node.name != "current_date":
            return Literal(moment[0])
        if zone:
            from txlog.expressions.zones import moment_in  # Only other zones need it.

            return Literal(moment_in(moment[0], zone, zoned=False).date())
        return Literal(moment[0].date())

    return rewritten(expression, constant)


def converted_call(node: Any, sub: Convert) -> Expression | None:
    """Return a function call or an operator as a node of the tree; None for other nodes."""
    name = type(node).__name__
    args = node.args
    if name in _BITS or name == "DPipe":
        _require_parentheses(node)
    if name in _BITS:
        return Call(_BITS[name], (sub(node.this), sub(node.expression)))
    match name:
        case "Case":
            return _case(node, sub)
        case "If":
            return Case(((sub(node.this), sub(args["true"])),), _default(args.get("false"), sub))
        case "DPipe":
            return Call("concat", (sub(node.this), sub(node.expression)))
        case "BitwiseNot":
            return Call("~", (sub(node.this),))
        case "RegexpLike":
            return Call("rlike", (sub(node.this), sub(node.expression)))
        case "Trim":
            side = {"LEADING": "ltrim", "TRAILING": "rtrim"}.get(args.get("position", ""), "trim")
            characters = args.get("expression")
            return Call(side, (sub(node.this), *([sub(characters)] if characters else ())))
        case "Substring" | "Overlay":
            keys = ("this", "expression", "start", "from_", "from", "length", "for_", "for")
            return Call(name.lower(), tuple(sub(args[key]) for key in keys if args.get(key)))
        case "StrPosition":
            return Call("locate", (sub(args["substr"]), sub(node.this)))
        case "Extract":
            from txlog.expressions.rewrites import part_of  # Only calls need it.

            return part_of(str(node.this.name), sub(node.expression))
        case "Bracket" if len(node.expressions) == 1:
            return Call("[]", (sub(node.this), sub(node.expressions[0])))
        case "Dot" if type(node.expression).__name__ == "Identifier":
            return Call("field", (sub(node.this), Literal(str(node.expression.this))))
        case "Lambda":
            return _lambda([part.name for part in node.expressions], sub(node.this))
        case "Transform":  # The parser reads any other function of lambdas as a name.
            given = [part for part in (node.this, node.expression) if part is not None]
            return _called("transform", given, sub)
        case "Anonymous":
            return _called(str(node.this).lower(), node.expressions, sub)
    return None


def _lambda(names: Sequence[str], body: Expression) -> Lambda:
    """Return a lambda in whose body its names are variables, not columns."""
    exact = {name.lower(): name for name in names}

    def variable(node: Expression) -> Expression | None:
        if not isinstance(node, Column) or node.path[0].lower() not in exact:
            return None
        value: Expression = Variable(exact[node.path[0].lower()])
        for field in node.path[1:]:
            value = Call("field", (value, Literal(field)))
        return value

    return Lambda(tuple(names), rewritten(body, variable))


def _require_parentheses(node: Any) -> None:
    """Raise if the parser and Spark give adjacent operators a different precedence."""
    own = type(node).__name__
    weak = {*_BITS, "DPipe"} - {own, "IntDiv"}
    weak |= {"Add", "Sub"} if own == "DPipe" else set()
    weak -= {"BitwiseLeftShift", "BitwiseRightShift"} if "Shift" in own else set()
    if own != "IntDiv" and any(type(one).__name__ in weak for one in (node.this, node.expression)):
        raise InvalidInputError(
            argument="where",
            reason=f"in {node.sql('spark')!r} the order of evaluation is not clear",
            remedy="Put parentheses around the part that is computed first",
        )


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


def _called(name: str, given: list[Any], sub: Convert) -> Expression | None:
    """Return a call by its function's name; None if txlog does not know the function."""
    if name == "struct":
        return Call("named_struct", tuple(_fields(given, sub)))
    if name == "sequence" and any(type(node).__name__ == "Interval" for node in given):
        raise InvalidInputError(
            argument="where",
            reason="sequence does not support intervals",
            remedy="Make days by numbers: transform(sequence(0, 9), n -> date_add(day, n))",
        )
    from txlog.expressions.functions import called  # Only calls need it.

    return called(name, tuple(map(sub, given)))


def _fields(given: list[Any], sub: Convert) -> Iterator[Expression]:
    """Yield the names and values of `struct(a, b AS c)`; values without a name get a number."""
    for place, node in enumerate(given, 1):
        if type(node).__name__ == "Alias":
            yield from (Literal(str(node.alias)), sub(node.this))
            continue
        value = sub(node)
        name = value.path[-1] if isinstance(value, Column) else f"col{place}"
        match value:
            case Call("[]" | "field", (_, Literal(str() as key))):
                name = key
        yield Literal(name)
        yield value


# Intervals -------------------------------------------------------------------------------------


def plus_interval(node: Any, sub: Convert) -> Expression | None:
    """Return a sum or difference with an interval as calls; None if neither side is an interval."""
    sign = -1 if type(node).__name__ == "Sub" else 1
    value, interval = node.this, node.expression
    parts = _interval(interval)
    if parts is None and sign == 1:
        value, parts = interval, _interval(value)
    if parts is None:
        return None
    months, days, micros = (sign * part for part in parts)
    result = sub(value)
    if months or not (days or micros):
        result = Call("plus_months", (result, Literal(months)))
    if micros:
        return Call("plus_micros", (result, Literal(days * 86_400 * 10**6 + micros)))
    return Call("plus_days", (result, Literal(days))) if days else result


def _interval(node: Any) -> tuple[int, int, int] | None:
    """Return the months, days and microseconds of an interval; None for another node."""
    if type(node).__name__ == "Add":
        both = [_interval(node.this), _interval(node.expression)]
        if both[0] is None or both[1] is None:
            return None
        return tuple(a + b for a, b in zip(*both, strict=True))
    if type(node).__name__ == "Neg":
        negated = _interval(node.this)
        return None if negated is None else (-negated[0], -negated[1], -negated[2])
    if type(node).__name__ != "Interval":
        return None
    given, unit = node.this, node.args.get("unit")
    sign = 1
    while type(given).__name__ in ("Neg", "Paren"):
        sign, given = (-sign if type(given).__name__ == "Neg" else sign), given.this
    name = "" if unit is None else str(unit.name).upper().removesuffix("S")
    number = str(given.name) if type(given).__name__ == "Literal" else ""
    if re.fullmatch(r"[+-]?\d+(\.\d+)?", number.strip()) and name in {
        **_MONTHS,
        **_DAYS,
        **_MICROS,
    }:
        count = sign * Decimal(number.strip())
        if name == "SECOND" or count == int(count):
            if name in _MONTHS:
                return int(count) * _MONTHS[name], 0, 0
            if name in _DAYS:
                return 0, int(count) * _DAYS[name], 0
            return 0, 0, int(count * _MICROS[name])
    raise InvalidInputError(
        argument="where",
        reason=f"the interval {node.sql('spark')} is not supported",
        remedy="Write a number and a unit, such as INTERVAL 3 DAYS or INTERVAL '1' MONTH",
    )
