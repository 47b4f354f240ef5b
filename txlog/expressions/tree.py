"""The tree of an expression, and the operators that build one.

Nodes are values without behaviour: separate functions bind, evaluate and format them. The meaning
is that of Spark SQL: three-valued logic; NaN equals itself and is the greatest number; -0.0 equals
0.0; strings compare by their UTF-8 bytes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, NoReturn, TypeAlias, TypeVar

from txlog.base.errors import InvalidInputError, InvalidTypeError
from txlog.expressions.operators import FILTERS, ArithmeticSign, Comparator
from txlog.schema.types import (
    PRIMITIVES,
    SQL_NAMES,
    DataType,
    DecimalType,
    PrimitiveType,
    type_name,
)


class Expression:
    """A value computed from a row. Build one with `col` and operators, or from SQL text."""

    __slots__ = ()

    def __repr__(self) -> str:
        try:
            return _python(self)
        except RecursionError:
            return f"<{type(self).__name__} that is nested too deeply to be shown>"

    def __bool__(self) -> NoReturn:
        raise InvalidInputError(
            reason="an expression is not a Python boolean",
            remedy="Combine expressions with & | ~ instead of and, or, not, and use between() "
            "for a chained comparison",
        )

    def __eq__(self, other: object) -> Comparison:  # type: ignore[override]
        return Comparison("=", self, lit(other))

    def __ne__(self, other: object) -> Comparison:  # type: ignore[override]
        return Comparison("<>", self, lit(other))

    __hash__ = object.__hash__

    def __lt__(self, other: object) -> Comparison:
        return Comparison("<", self, lit(other))

    def __le__(self, other: object) -> Comparison:
        return Comparison("<=", self, lit(other))

    def __gt__(self, other: object) -> Comparison:
        return Comparison(">", self, lit(other))

    def __ge__(self, other: object) -> Comparison:
        return Comparison(">=", self, lit(other))

    def __and__(self, other: Expression) -> And:
        return And((*(self.parts if isinstance(self, And) else (self,)), lit(other)))

    def __or__(self, other: Expression) -> Or:
        return Or((*(self.parts if isinstance(self, Or) else (self,)), lit(other)))

    def __invert__(self) -> Not:
        return Not(self)

    def __add__(self, other: object) -> Arithmetic:
        return Arithmetic("+", self, lit(other))

    def __sub__(self, other: object) -> Arithmetic:
        return Arithmetic("-", self, lit(other))

    def __mul__(self, other: object) -> Arithmetic:
        return Arithmetic("*", self, lit(other))

    def __truediv__(self, other: object) -> Arithmetic:
        return Arithmetic("/", self, lit(other))

    def __mod__(self, other: object) -> Arithmetic:
        return Arithmetic("%", self, lit(other))

    def __neg__(self) -> Call:
        return Call("negative", (self,))

    def eq_null_safe(self, other: object) -> Comparison:
        """Return whether both values are equal or both are null; the result is never null."""
        return Comparison("<=>", self, lit(other))

    def is_null(self) -> IsNull:
        """Return whether the value is null."""
        return IsNull(self)

    def is_not_null(self) -> Not:
        """Return whether the value is not null."""
        return Not(IsNull(self))

    def isin(self, values: Iterable[object]) -> In:
        """Return whether the value is one of `values`."""
        if isinstance(values, str | bytes) or not isinstance(values, Iterable):
            raise _misfit("values", "a list", values)
        return In(self, tuple(_literal(value) for value in values))

    def like(self, pattern: str) -> Like:
        r"""Return whether a string matches: `%` means any characters, `_` means one character."""
        if not isinstance(pattern, str):
            raise _misfit("pattern", "text", pattern)
        return Like(self, pattern)

    def startswith(self, prefix: str) -> Like:
        """Return whether text begins with `prefix`."""
        if not isinstance(prefix, str):
            raise _misfit("prefix", "text", prefix)
        return Like(self, re.sub(r"([\\%_])", r"\\\1", prefix) + "%")

    def between(self, low: object, high: object) -> And:
        """Return whether the value is at least `low` and at most `high`."""
        return And((self >= low, self <= high))

    def cast(self, kind: str | DataType) -> Cast:
        """Return the value as another type, named as in SQL: `"int"`, `"decimal(10, 2)"`."""
        if not isinstance(kind, str | DataType):
            raise _misfit("kind", "the name of a type", kind)
        return Cast(self, _named_type(kind) if isinstance(kind, str) else kind)


def _misfit(argument: str, expected: str, value: object) -> InvalidTypeError:
    return InvalidTypeError(
        argument=argument, reason=f"{expected} was expected, not {type(value).__name__}"
    )


def _named_type(text: str) -> DataType:
    name, _, sizes = text.strip().rstrip(")").partition("(")
    if name.strip().upper() in ("DECIMAL", "NUMERIC") and re.fullmatch(r"\d*(,\s*\d+)?", sizes):
        precision, _, scale = sizes.partition(",")
        digits, fraction = int(precision or 10), int(scale or 0)
        if not 1 <= digits <= 38 or fraction > digits:
            raise InvalidInputError(
                argument="kind",
                reason=f"{text!r} is not a decimal of at most 38 digits",
                remedy="Choose a precision from 1 to 38, and a scale from 0 to the precision",
            )
        return DecimalType(digits, fraction)
    name = SQL_NAMES.get(name.strip().upper(), name.strip().lower())
    if sizes or name not in PRIMITIVES:
        raise InvalidInputError(
            argument="kind", reason=f"{text!r} is not a type that a value can be cast to"
        )
    return PrimitiveType(name)


@dataclass(frozen=True, eq=False, repr=False)
class Column(Expression):
    """A column, or a field nested in one."""

    path: tuple[str, ...]
    type: DataType | None = None  # Set when the expression is bound.

    def field(self, name: str) -> Column:
        """Return a field of this struct column."""
        return Column((*self.path, name))


@dataclass(frozen=True, eq=False, repr=False)
class Literal(Expression):
    """A constant: None, bool, int, float, Decimal, str, bytes, date, datetime or `Nanos`."""

    value: Any
    type: DataType | None = None


@dataclass(frozen=True, eq=False, repr=False)
class Comparison(Expression):
    """Two values compared."""

    op: Comparator
    left: Expression
    right: Expression


@dataclass(frozen=True, eq=False, repr=False)
class And(Expression):
    """True if all parts are true."""

    parts: tuple[Expression, ...]


@dataclass(frozen=True, eq=False, repr=False)
class Or(Expression):
    """True if any part is true."""

    parts: tuple[Expression, ...]


@dataclass(frozen=True, eq=False, repr=False)
class Not(Expression):
    """True if the operand is false."""

    operand: Expression


@dataclass(frozen=True, eq=False, repr=False)
class IsNull(Expression):
    """True if the operand is null."""

    operand: Expression


@dataclass(frozen=True, eq=False, repr=False)
class In(Expression):
    """True if the operand equals one of the values."""

    operand: Expression
    values: tuple[Literal, ...]


@dataclass(frozen=True, eq=False, repr=False)
class Like(Expression):
    """True if text matches a pattern."""

    operand: Expression
    pattern: str


@dataclass(frozen=True, eq=False, repr=False)
class Arithmetic(Expression):
    """A number that is computed from two numbers."""

    op: ArithmeticSign
    left: Expression
    right: Expression
    type: DataType | None = None  # Set when the expression is bound.
    tried: bool = False  # Division by 0 gives null, not an error.


@dataclass(frozen=True, eq=False, repr=False)
class Cast(Expression):
    """A value that is cast to another type."""

    operand: Expression
    type: DataType
    tried: bool = False  # A value that cannot be cast is null, not an error.


@dataclass(frozen=True, eq=False, repr=False)
class Call(Expression):
    """A function call; `txlog.expressions.functions` lists the functions by name."""

    name: str
    args: tuple[Expression, ...]
    type: DataType | None = None  # Set when the expression is bound.


@dataclass(frozen=True, eq=False, repr=False)
class Variable(Expression):
    """A name in a lambda: an element, its place, a key or value, or what was aggregated so far."""

    name: str
    type: DataType | None = None  # Set when the expression is bound.


@dataclass(frozen=True, eq=False, repr=False)
class Lambda(Expression):
    """The function `x -> x + 1` in a call such as `transform(l, x -> x + 1)`."""

    names: tuple[str, ...]
    body: Expression


@dataclass(frozen=True, eq=False, repr=False)
class Case(Expression):
    """The value of the first branch whose condition is true."""

    branches: tuple[tuple[Expression, Expression], ...]  # Pairs of a condition and a value.
    default: Expression
    type: DataType | None = None  # Set when the expression is bound.


@dataclass(frozen=True, eq=False, repr=False)
class Zoned(Expression):
    """An expression whose dates and times are those of a time zone. It is not in bound ones."""

    operand: Expression
    zone: str


TRIED = {"/": "try_divide", "%": "try_mod"}  # Arithmetic that gives null for a divisor of 0.
_SIGNS = {"=": "==", "<>": "!="}  # Python's spelling, where it differs from SQL's.
_UNQUOTED = re.compile(r"[^.`]+")


def _python(node: Expression) -> str:
    """Return an expression as Python code, with operators and methods where there are some."""
    match node:
        case Column(path):
            plain = all(map(_UNQUOTED.fullmatch, path))
            names = path if plain else [f"`{name.replace('`', '``')}`" for name in path]
            return f"col({'.'.join(names)!r})"
        case Literal(value):
            return f"lit({value!r})"
        case Comparison("<=>", left, right):
            return f"{_operand(left)}.eq_null_safe({_value(right)})"
        case Arithmetic(sign, left, right, _, True):
            return f"{TRIED[sign]}({_python(left)}, {_python(right)})"
        case Comparison(sign, left, right) | Arithmetic(sign, left, right):
            return f"{_operand(left)} {_SIGNS.get(sign, sign)} {_value(right)}"
        case And(parts):
            return " & ".join(map(_operand, parts))
        case Or(parts):
            return " | ".join(map(_operand, parts))
        case Not(IsNull(operand)):
            return f"{_operand(operand)}.is_not_null()"
        case Not(operand):
            return f"~{_operand(operand)}"
        case IsNull(operand):
            return f"{_operand(operand)}.is_null()"
        case In(operand, values):
            return f"{_operand(operand)}.isin([{', '.join(map(_value, values))}])"
        case Like(operand, pattern):
            return f"{_operand(operand)}.like({pattern!r})"
        case Cast(operand, kind, True):
            return f"try_cast({_python(operand)}, {type_name(kind)!r})"
        case Cast(operand, kind):
            return f"{_operand(operand)}.cast({type_name(kind)!r})"
        case Call(name, args):
            return f"{name}({', '.join(map(_python, args))})"
        case Zoned(operand):
            return _python(operand)
        case Variable(name):
            return name
        case Lambda(names, body):
            return f"lambda {', '.join(names)}: {_python(body)}"
        case Case(branches, default):
            shown = [f"when {_python(test)}: {_python(value)}" for test, value in branches]
            return f"case({', '.join([*shown, f'else: {_python(default)}'])})"
    return type(node).__name__


def _operand(node: Expression) -> str:
    """Return an expression that an operator or a method follows."""
    match node:
        case Comparison("<=>") | Not(IsNull()):  # Calls of methods.
            return _python(node)
        case Comparison() | Arithmetic() | And() | Or() | Not():
            return f"({_python(node)})"
    return _python(node)


def _value(node: Expression) -> str:
    """Return the right side of an operator: a plain value stands for its literal."""
    return repr(node.value) if isinstance(node, Literal) else _operand(node)


def children(node: Expression) -> tuple[Expression, ...]:
    """Return the child expressions of a node."""
    match node:
        case Comparison(_, left, right) | Arithmetic(_, left, right):
            return (left, right)
        case And(parts) | Or(parts):
            return parts
        case Not(operand) | IsNull(operand) | Like(operand) | Cast(operand) | Zoned(operand):
            return (operand,)
        case In(operand, values):
            return (operand, *values)
        case Call(_, args):
            return args
        case Lambda(_, body):
            return (body,)
        case Case(branches, default):
            return (*(part for branch in branches for part in branch), default)
    return ()


def nodes(node: Expression) -> Iterator[Expression]:
    """Yield an expression and all expressions in it, from left to right."""
    waiting = [node]
    while waiting:
        current = waiting.pop()
        yield current
        waiting.extend(reversed(children(current)))


_MOST_NODES = 20_000  # In addition to four nodes for each character of the text.


def is_too_large(node: Expression, characters: int) -> bool:
    """Return whether the tree of a text has so many nodes that walks over it take too long.

    BETWEEN, CASE and NULLIF repeat some of their parts, and each repetition counts. If they are
    nested, the size doubles at each level.
    """
    sizes: dict[int, int] = {}

    def size(one: Expression) -> int:
        if id(one) not in sizes:
            sizes[id(one)] = 1 + sum(map(size, children(one)))
        return sizes[id(one)]

    return size(node) > _MOST_NODES + 4 * characters


def varies(node: Expression) -> bool:
    """Return whether an expression reads a column or the variable of a lambda."""
    return any(isinstance(part, Column | Variable) for part in nodes(node))


Node = TypeVar("Node")


def rewritten(node: Node, change: Callable[[Expression], Expression | None]) -> Node:
    """Return an expression in which a function replaces nodes.

    If the function returns None, the node stays and its children are visited.
    """
    if isinstance(node, tuple):
        return tuple(rewritten(part, change) for part in node)  # type: ignore[return-value]
    if not isinstance(node, Expression):
        return node
    changed = change(node)
    if changed is not None:
        return changed  # type: ignore[return-value]
    if isinstance(node, Literal):  # It has no children, and there may be very many.
        return node
    parts = {one.name: getattr(node, one.name) for one in fields(node)}  # type: ignore[arg-type]
    renewed = {name: rewritten(part, change) for name, part in parts.items()}
    if all(renewed[name] is parts[name] for name in parts):
        return node
    return replace(node, **renewed)  # type: ignore[type-var]


_QUOTED = re.compile(r"`((?:[^`]|``)+)`|([^.`]+)")


def col(name: str) -> Column:
    """Return a column: `col("a")`, `col("a.b")` for a field, col("`a.b`") for a dotted name.

    Raises
    ------
    InvalidInputError
        The name is empty or its backticks are unbalanced.
    """
    path = []
    position = 0
    while isinstance(name, str) and (match := _QUOTED.match(name, position)):
        path.append(match[1].replace("``", "`") if match[1] else match[2])
        position = match.end()
        if position == len(name):
            return Column(tuple(path))
        if name[position] != ".":
            break
        position += 1
    reason = f"{name!r} is not a column name"
    if not isinstance(name, str):
        raise InvalidTypeError(argument="name", reason=reason, remedy="Pass each name as a string")
    raise InvalidInputError(
        argument="name", reason=reason, remedy="Put names with special characters in backticks"
    )


def quote_name(name: str) -> str:
    """Return a name in backticks, for Spark's SQL."""
    # Always quoted: the list of keywords depends on the version and on the position.
    return "`" + name.replace("`", "``") + "`"


def quote_text(text: str) -> str:
    """Return a text as a constant of SQL."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def lit(value: object) -> Expression:
    """Return a constant; an expression is returned as it is."""
    return value if isinstance(value, Expression) else _literal(value)


def _literal(value: object) -> Literal:
    if isinstance(value, Literal):
        return value
    return Literal(None if _is_null(value) else value)


def _is_null(value: object) -> bool:
    """Return whether a value is None, or what pandas, NumPy or pyarrow have in its place."""
    match type(value).__name__:
        case "NaTType" | "NAType":
            return True
        case "datetime64" | "timedelta64":
            return str(value) == "NaT"
    return value is None or getattr(value, "is_valid", True) is False


def in_zone(node: Expression, zone: str | None) -> Expression:
    """Return an expression whose dates and times are those of a time zone; None: of UTC."""
    return node if zone is None or isinstance(node, Zoned) else Zoned(node, zone)


Filters: TypeAlias = "Sequence[tuple[str, str, Any] | Sequence[tuple[str, str, Any]]]"
"""Filters as in pyarrow and deltalake: a list of comparisons (AND), or a list of lists (OR)."""


def of_filters(filters: Sequence[Any]) -> Expression | None:
    """Return the predicate for filters, None if there are no filters."""
    if not filters:
        return None
    if all(isinstance(one, list) for one in filters):
        groups = [_all_of(group) for group in filters]
        return groups[0] if len(groups) == 1 else Or(tuple(groups))
    return _all_of(filters)


def _all_of(filters: Sequence[Any]) -> Expression:
    parts = [_of_filter(one) for one in filters]
    if not parts:
        raise _bad_filter("the list of filters is empty, so its meaning is not clear")
    return parts[0] if len(parts) == 1 else And(tuple(parts))


def _of_filter(given: Any) -> Expression:
    if not isinstance(given, tuple) or len(given) != 3 or not isinstance(given[0], str):
        raise _bad_filter(f"{given!r} is not a filter")
    name, operator, value = given
    column = Column((name,))  # A name with dots is one name, not a path.
    if operator in FILTERS:
        return _compared_with(FILTERS[operator].sign, column, value)
    if operator not in ("in", "not in"):
        raise _bad_filter(
            f"the operator {operator!r} is not one of {', '.join(FILTERS)}, in, not in"
        )
    if not isinstance(value, list | tuple | set | frozenset):
        raise _bad_filter(f"{operator} needs a list, not {value!r}")
    found: Expression = column.isin([one for one in value if not _is_null(one)])
    if any(map(_is_null, value)):
        found = Or((found, IsNull(column)))
    return found if operator == "in" else Not(found)


def _compared_with(sign: Comparator, column: Column, value: Any) -> Expression:
    """Return a comparison in which None means null, as no row of SQL's `= NULL` is true."""
    if not _is_null(value):
        return Comparison(sign, column, lit(value))
    if sign not in ("=", "<>"):
        raise _bad_filter(
            f"nothing is {sign} None",
            f'Pass ("{column.path[0]}", "=", None) for nulls, or "!=" for all others',
        )
    return IsNull(column) if sign == "=" else Not(IsNull(column))


def _bad_filter(reason: str, remedy: str = "") -> InvalidInputError:
    return InvalidInputError(
        argument="where",
        reason=reason,
        remedy=remedy
        or 'Pass tuples such as ("a", ">", 1): all of a list must be true, or all of one of its '
        "lists",
    )
