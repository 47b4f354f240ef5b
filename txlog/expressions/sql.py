"""Parse SQL text to a tree, and format a tree as SQL text, in Spark's dialect."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import date, datetime
from decimal import Decimal
from typing import Any, TypeAlias

from txlog.base.errors import InvalidInputError, InvalidTypeError
from txlog.expressions.calls import (
    NOW,
    WRITTEN,
    as_parsed,
    converted_call,
    dialect,
    fixed_in_time,
    plus_interval,
)
from txlog.expressions.operators import PARSED, Operator
from txlog.expressions.tree import (
    TRIED,
    And,
    Arithmetic,
    Call,
    Case,
    Cast,
    Column,
    Comparison,
    Expression,
    Filters,
    In,
    IsNull,
    Lambda,
    Like,
    Literal,
    Not,
    Or,
    Variable,
    Zoned,
    in_zone,
    is_too_large,
    of_filters,
    quote_name,
    quote_text,
)
from txlog.expressions.type_rules import number_type, primitive_name
from txlog.schema.timestamps import Nanos, format_nanos
from txlog.schema.types import (
    SQL_NAMES,
    DataType,
    DecimalType,
    PrimitiveType,
    sql_name,
)

# The terminal codes with which the parser underlines text.
_ESCAPES = re.compile(r"\x1b\[[0-9;]*m")
_MISSING = re.compile(r"Required keyword: '\w+' missing for <class '[^']*'>")
_LONGEST_NUMBER = 800  # The number of digits; more digits never distinguish two doubles.
_SUFFIXES = ("TINYINT", "SMALLINT", "BIGINT")  # Types of whole constants: 7Y, 7S, 7L.
_DEEPEST = 200  # The number of levels of nesting.

Where: TypeAlias = "str | Expression | Filters | None"
"""The forms in which callers write a predicate."""


def required_expression(
    value: Where, *, argument: str, field: str | None = None, zone: str | None = None
) -> Expression:
    """Return an expression as `as_expression`, where None and no filters have no meaning.

    Raises
    ------
    InvalidInputError, InvalidTypeError
        As for `as_expression`; or there is no expression.
    """
    found = as_expression(value, zone)
    if found is None:
        raise InvalidInputError(
            argument=argument,
            field=field,
            reason=f"SQL text or an expression was expected, not {value!r}",
            remedy='State it, for example as "a > 1"',
        )
    return found


def as_expression(where: Where, zone: str | None = None) -> Expression | None:
    """Return a predicate as an expression: SQL text is parsed, None stays None.

    Parameters
    ----------
    zone
        The time zone of its dates and times. Default: UTC.

    Raises
    ------
    InvalidInputError
        The text is not a SQL predicate, or a filter is invalid.
    InvalidTypeError
        The argument has none of the types of a predicate.
    """
    if where is None:
        return None
    if isinstance(where, Expression):
        return fixed_in_time(in_zone(where, zone))
    if isinstance(where, list | tuple):
        found = of_filters(where)
        return None if found is None else in_zone(found, zone)
    if not isinstance(where, str) or not where.strip():
        kind = InvalidInputError if isinstance(where, str) else InvalidTypeError
        raise kind(
            argument="where",
            reason=f"{where!r} is not a predicate",
            remedy="Pass SQL text such as \"a > 1\", or an expression such as col('a') > 1",
        )
    return fixed_in_time(in_zone(parse_sql(where), zone))


def parse_sql(text: str) -> Expression:
    """Return the tree of a predicate in SQL.

    Raises
    ------
    InvalidInputError
        The text is not a SQL expression, or it uses aggregates, subqueries or unknown functions.
    """
    import sqlglot  # Slow to import, and only needed for text.
    from sqlglot.errors import SqlglotError

    try:
        tree = sqlglot.parse_one(as_parsed(text), dialect=dialect())
        found = _converted(tree, 0)
        if is_too_large(found, len(text)):
            raise _bad("the expression is too large: nested BETWEEN and CASE repeat their parts")
        return found
    except SqlglotError as error:
        raise _bad(f"{text!r} is not a SQL expression: {_plain(str(error))}") from error
    except RecursionError as error:
        raise _bad("the expression is nested too deeply") from error


_AGGREGATES = frozenset({"count", "count_if", "sum", "min", "max", "avg"})


def parse_aggregates(
    text: str,
) -> tuple[Expression, list[tuple[str, Expression | None, str, bool]]]:
    """Return the tree of a predicate over aggregates, and the aggregates in it.

    Columns with the names `aggregate 0` and so on stand for the aggregates. Each of these has its
    name, its argument (None: `count(*)`), its text, and whether only distinct values count.

    Raises
    ------
    InvalidInputError
        The text is not a SQL expression, or it uses subqueries or unknown functions.
    """
    import sqlglot
    from sqlglot import exp
    from sqlglot.errors import SqlglotError

    if not isinstance(text, str) or not text.strip():
        raise _bad(f"{text!r} is not a SQL expression")
    found: list[tuple[str, Expression | None, str, bool]] = []

    def replaced(node: Any) -> Any:
        name = node.name.lower() if type(node) is exp.Anonymous else ""
        if name not in _AGGREGATES:
            return node
        shown, parts = node.sql("spark", normalize_functions=False), node.expressions
        distinct = bool(parts) and type(parts[0]) is exp.Distinct
        if distinct:
            parts = [*parts[0].expressions, *parts[1:]]
        if len(parts) != 1 or (distinct and name != "count"):
            raise _bad(f"{shown} is not supported: an aggregate has one argument")
        if type(parts[0]) is exp.Star and name != "count":
            raise _bad(f"{shown} is not supported: * is for count alone")
        inner = None if type(parts[0]) is exp.Star else _converted(parts[0], 0)
        found.append((name, inner, shown, distinct))
        return exp.column(exp.to_identifier(f"aggregate {len(found) - 1}", quoted=True))

    try:
        tree = sqlglot.parse_one(as_parsed(text), dialect=dialect())
        return _converted(tree.transform(replaced), 0), found
    except SqlglotError as error:
        raise _bad(f"{text!r} is not a SQL expression: {_plain(str(error))}") from error
    except RecursionError as error:
        raise _bad("the expression is nested too deeply") from error


def parse_type(text: str) -> DataType:
    """Return the type with an SQL name, such as BIGINT or DECIMAL(10,2).

    Raises
    ------
    InvalidInputError
        The text is not the name of a type.
    """
    found = parse_sql(f"CAST(NULL AS {text})")
    if not isinstance(found, Cast):
        raise _bad(f"{text!r} is not the name of a type")
    return found.type


def _plain(message: str) -> str:
    """Return the first line of the parser's message, without colours and class names."""
    line = _ESCAPES.sub("", message).splitlines()[0]
    return _MISSING.sub("an operand is missing", line)


def _bad(reason: str, argument: str = "where") -> InvalidInputError:
    return InvalidInputError(
        argument=argument,
        reason=reason,
        remedy="Use columns, constants, comparisons, IN, LIKE, BETWEEN, IS NULL, AND, OR, NOT",
    )


def _converted(node: Any, depth: int) -> Expression:
    from sqlglot import exp

    if depth > _DEEPEST:
        raise _bad(f"the expression is nested more than {_DEEPEST} levels deep")

    def sub(child: Any) -> Expression:
        return _converted(child, depth + 1)

    kind = type(node)
    if kind is exp.Paren:
        return sub(node.this)
    if kind in (exp.Add, exp.Sub) and (moved := plus_interval(node, sub)) is not None:
        return moved
    if kind in (exp.And, exp.Or):
        parts = tuple(sub(part) for part in _chain(node, kind))
        return And(parts) if kind is exp.And else Or(parts)
    if (op := PARSED.get(kind.__name__)) is not None:
        left, right = sub(node.this), sub(node.expression)
        if isinstance(op, Operator):
            return Comparison(op.sign, left, right)
        return Arithmetic(op.sign, left, right)
    if kind is exp.Not:
        return Not(sub(node.this))
    if kind is exp.Is:
        return _is(node, sub)
    if kind is exp.In and not node.args.get("query") and not node.args.get("unnest"):
        return _in(sub(node.this), [sub(value) for value in node.expressions])
    if kind is exp.Between:
        operand = sub(node.this)
        return And((operand >= sub(node.args["low"]), operand <= sub(node.args["high"])))
    if kind is exp.Like:
        return _like(node, "\\", sub)
    if kind is exp.Escape and type(node.this) is exp.Like:
        return _like(node.this, _text_of(node.expression, sub, "ESCAPE"), sub)
    if kind is exp.NullSafeNEQ:
        return Not(Comparison("<=>", sub(node.this), sub(node.expression)))
    if kind is exp.ILike:
        pattern = _text_of(node.expression, sub, "ILIKE")
        like = Like(Call("lower", (sub(node.this),)), pattern.lower())
        return Not(like) if node.args.get("negate") else like
    if kind is exp.Neg:
        inner = sub(node.this)
        if isinstance(inner, Literal) and type(node.this) is not exp.Paren:
            if isinstance(inner.value, int):
                return Literal(-inner.value, inner.type)
            if isinstance(inner.value, float | Decimal):
                return Literal(-inner.value)
        return Call("negative", (inner,))
    if kind in (exp.Cast, exp.TryCast):
        return _cast(node, sub)
    if kind in (exp.Column, exp.Identifier) or (kind is exp.Dot and _is_path(node)):
        return _column(node)
    if kind is exp.Concat and all(part.is_string for part in node.expressions):
        return _literal(node)
    called = converted_call(node, sub)
    return _literal(node) if called is None else called


def _chain(node: Any, kind: type[Any]) -> list[Any]:
    """Return the parts of `a AND b AND c`, which is nested to the left, without recursion."""
    parts = []
    while type(node) is kind:
        parts.append(node.expression)
        node = node.this
    return [node, *reversed(parts)]


def _is(node: Any, sub: Callable[[Any], Expression]) -> Expression:
    from sqlglot import exp

    operand = sub(node.this)
    if isinstance(node.expression, exp.Null):
        return IsNull(operand)
    if isinstance(node.expression, exp.Boolean):
        return Comparison("<=>", operand, Literal(bool(node.expression.this)))
    raise _bad(f"IS must be followed by NULL, TRUE or FALSE, not by {node.expression.sql('spark')}")


def _in(operand: Expression, values: list[Expression]) -> Expression:
    """Return IN, or a comparison with each value if one is not a constant."""
    constants = [_as_literal(value) for value in values]
    if any(value is None for value in constants):
        return Or(tuple(Comparison("=", operand, value) for value in values))
    return In(operand, tuple(value for value in constants if value is not None))


def _text_of(node: Any, sub: Callable[[Any], Expression], what: str) -> str:
    value = _constant(sub(node)).value
    if not isinstance(value, str):
        raise _bad(f"{what} needs a constant string")
    return value


def _like(node: Any, escape: str, sub: Callable[[Any], Expression]) -> Expression:
    pattern = _text_of(node.expression, sub, "LIKE")
    if len(escape) != 1:
        raise _bad(f"ESCAPE needs one character, not {escape!r}")
    if escape != "\\":
        pattern = _with_backslashes(pattern, escape)
    like = Like(sub(node.this), pattern)
    return Not(like) if node.args.get("negate") else like


def _with_backslashes(pattern: str, escape: str) -> str:
    """Return a LIKE pattern with its escape character replaced by backslashes."""
    parts = []
    characters = iter(pattern)
    for character in characters:
        if character == escape:
            following = next(characters, "")
            if following not in ("%", "_", escape):
                raise _bad(
                    f"in the LIKE pattern {pattern!r}, {escape} must be followed by %, _ "
                    f"or {escape}"
                )
            parts.append(f"\\{following}" if following in "%_\\" else following)
        else:
            parts.append("\\\\" if character == "\\" else character)
    return "".join(parts)


def _cast(node: Any, sub: Callable[[Any], Expression]) -> Expression:
    """Return a cast; `DATE '2020-01-01'` is the cast of a string."""
    from sqlglot import exp

    target = node.args["to"]
    name = target.this.name if isinstance(target.this, exp.DType) else str(target.this)
    constant = isinstance(node.this, exp.Literal) and not node.this.is_string
    if constant and WRITTEN not in node.meta and not node.args.get("safe"):
        if name == "DECIMAL" and not target.expressions:
            return Literal(Decimal(str(node.this.this)))
        if name in _SUFFIXES and str(node.this.this).isdecimal():
            return Literal(int(node.this.this), PrimitiveType(SQL_NAMES[name]))
    tried = bool(node.args.get("safe"))
    if name == "DECIMAL":
        sizes = [int(size.name) for size in target.expressions]
        kind = DecimalType(*([*sizes, *(10, 0)[len(sizes) :]]))
        if not 0 <= kind.scale <= kind.precision <= 38 or kind.precision == 0:
            raise _bad(f"{target.sql('spark')} is not a decimal of at most 38 digits")
        return Cast(sub(node.this), kind, tried)
    if name not in SQL_NAMES:
        raise _bad(f"a cast to {target.sql('spark')} is not supported")
    return Cast(sub(node.this), PrimitiveType(SQL_NAMES[name]), tried)


def _is_path(node: Any) -> bool:
    """Return whether `a.b.c` is a path of names, not a field of a computed value."""
    from sqlglot import exp

    while isinstance(node, exp.Dot):
        node = node.this
    return isinstance(node, exp.Column | exp.Identifier)


def _column(node: Any) -> Expression:
    """Return a column, or the call of `current_date` without parentheses."""
    parts = _names(node)
    quoted = any(part.args.get("quoted") for part in node.find_all(type(node.this)))
    name = parts[0].lower() if len(parts) == 1 and not quoted else ""
    return Call(name, ()) if name in NOW else Column(tuple(parts))


def _names(node: Any) -> list[str]:
    from sqlglot import exp

    if isinstance(node, exp.Identifier):
        return [str(node.this)]
    if isinstance(node, exp.Column):
        return [part.name for part in node.parts]
    if isinstance(node, exp.Dot):
        return [*_names(node.this), *_names(node.expression)]
    raise _bad(f"{node.sql('spark')} is not a column")


def _literal(node: Any) -> Expression:
    from sqlglot import exp

    if isinstance(node, exp.Null):
        return Literal(None)
    if isinstance(node, exp.Boolean):
        return Literal(bool(node.this))
    if isinstance(node, exp.HexString | exp.Literal):
        text = str(node.this)
        if node.is_string and isinstance(node, exp.Literal):
            return Literal(text)
        try:
            return Literal(_number(text, isinstance(node, exp.HexString)))
        except (ValueError, ArithmeticError) as error:
            raise _bad(f"{text!r} is not a number") from error
    if isinstance(node, exp.RawString):
        return Literal(str(node.this))
    if isinstance(node, exp.Concat) and all(part.is_string for part in node.expressions):
        return Literal("".join(str(part.this) for part in node.expressions))
    text = node.sql("spark")
    if isinstance(node, exp.Array):
        raise _bad("Spark SQL has no lists in square brackets; write array(1, 2)")
    if name := _function_name(node, text):
        raise _bad(f"the SQL function {name} is not supported, as in {text!r}")
    raise _bad(f"{text!r} is not supported")


def _number(text: str, is_hex: bool) -> Any:
    """Return a literal's number or the bytes of a hex literal; raise `ValueError` otherwise."""
    if is_hex:
        return bytes.fromhex(f"{'0' * (len(text) % 2)}{text}")
    if len(text) > _LONGEST_NUMBER:
        raise _bad(f"a number has {len(text)} digits; at most {_LONGEST_NUMBER} are allowed")
    if "e" in text.lower():
        return float(text)
    return Decimal(text) if "." in text else int(text)


def _function_name(node: Any, text: str) -> str | None:
    """Return the SQL name of a function call; None for another node."""
    from sqlglot import exp

    if not isinstance(node, exp.Func):
        return None
    if isinstance(node, exp.Anonymous):
        return str(node.this).upper()
    call = re.match(r"(\w+)\(", text)
    return call[1] if call else text.split(" ", 1)[0]


def _constant(node: Expression) -> Literal:
    found = _as_literal(node)
    if found is None:
        raise _bad("only constants are allowed here")
    return found


def _as_literal(node: Expression) -> Literal | None:
    if isinstance(node, Cast) and isinstance(node.operand, Literal) and not node.tried:
        return Literal(node.operand.value, node.type)
    return node if isinstance(node, Literal) else None


def to_sql(node: Expression) -> str:
    """Return SQL text that `parse_sql` reads back as the same tree; names are quoted.

    Raises
    ------
    InvalidInputError
        The expression is nested too deeply.
    """
    try:
        return _sql(node)
    except RecursionError as error:
        raise _bad("the expression is nested too deeply", "node") from error


def _sql(node: Expression) -> str:
    match node:
        case Column(path):
            return ".".join(map(quote_name, path))
        case Literal(value, kind):
            return _text(value, kind)
        case Arithmetic(op, left, right, _, True):
            return f"{TRIED[op]}({_sql(left)}, {_sql(right)})"
        case Comparison(op, left, right) | Arithmetic(op, left, right):
            return f"({_sql(left)} {op} {_sql(right)})"
        case And(parts):
            return f"({' AND '.join(map(_sql, parts))})"
        case Or(parts):
            return f"({' OR '.join(map(_sql, parts))})"
        case Not(IsNull(operand)):
            return f"({_sql(operand)} IS NOT NULL)"
        case Not(operand):
            return f"(NOT {_sql(operand)})"
        case IsNull(operand):
            return f"({_sql(operand)} IS NULL)"
        case In(operand, values):
            return f"({_sql(operand)} IN ({', '.join(map(_sql, values))}))"
        case Like(operand, pattern):
            return f"({_sql(operand)} LIKE {quote_text(pattern)})"
        case Cast(operand, kind, tried):
            return f"{'try_cast' if tried else 'CAST'}({_sql(operand)} AS {sql_name(kind)})"
        case Zoned(operand):
            return _sql(operand)
        case Variable(name):
            return quote_name(name)
        case Lambda(names, body):
            return f"({', '.join(map(quote_name, names))}) -> {_sql(body)}"
        case Call() | Case():
            return _call_text(node)
    raise TypeError(f"{type(node).__name__} has no SQL text")


def _call_text(node: Call | Case) -> str:
    if isinstance(node, Case):
        branches = " ".join(f"WHEN {_sql(when)} THEN {_sql(then)}" for when, then in node.branches)
        return f"CASE {branches} ELSE {_sql(node.default)} END"
    from txlog.expressions.functions import call_text  # Only calls need it.

    return call_text(node.name, node.args, [_sql(arg) for arg in node.args])


def _text(value: Any, kind: DataType | None) -> str:
    name = primitive_name(kind) if kind else ""
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return "TRUE" if value else "FALSE"
    if isinstance(value, Nanos):  # The other side of the comparison has the type.
        return quote_text(format_nanos(value, zone="Z"))
    if isinstance(value, str):
        return (
            quote_text(value) if name in ("", "string") else f"CAST({quote_text(value)} AS {name})"
        )
    if isinstance(value, bytes):
        return f"X'{value.hex()}'"
    if isinstance(value, datetime):
        zoned = value.tzinfo is not None
        wanted = "TIMESTAMP" if zoned or name != "timestamp_ntz" else "TIMESTAMP_NTZ"
        return f"CAST('{value.isoformat(sep=' ')}' AS {wanted})"
    if isinstance(value, date):
        return f"CAST('{value.isoformat()}' AS DATE)"
    if isinstance(value, float):
        finite = value == value and value not in (float("inf"), float("-inf"))
        word = "NaN" if value != value else "Infinity" if value > 0 else "-Infinity"
        if not finite or name == "float":
            return f"CAST('{repr(value) if finite else word}' AS {(name or 'double').upper()})"
        return repr(value) + ("" if "e" in repr(value) else "e0")
    text = format(value, "f") if isinstance(value, Decimal) else str(value)
    if kind is None or kind == number_type(value) or kind == DecimalType(38, _scale(kind)):
        return text
    return f"CAST({text} AS {sql_name(kind)})"


def _scale(kind: DataType) -> int:
    return kind.scale if isinstance(kind, DecimalType) else 0
