"""Functions that SQL text may call, but which are other nodes of the tree. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from txlog.expressions.signatures import Entry
from txlog.expressions.tree import (
    Arithmetic,
    Call,
    Case,
    Cast,
    Comparison,
    Expression,
    IsNull,
    Like,
    Literal,
    Not,
)
from txlog.schema.types import PrimitiveType


@dataclass(frozen=True)
class Rewrite(Entry):
    """A function that is written as other nodes.

    Parameters
    ----------
    takes
        The number of arguments.
    nodes
        Returns the nodes for the arguments; None if txlog does not support these.
    """

    takes: int
    nodes: Callable[..., Expression | None]

    def called(self, name: str, args: tuple[Expression, ...]) -> Expression | None:
        """Return the nodes for a call in SQL text; None if txlog does not support it."""
        return self.nodes(*args) if len(args) == self.takes else None


_CASTS = {
    "int": "integer", "bigint": "long", "smallint": "short", "tinyint": "byte", "double": "double",
    "float": "float", "string": "string", "boolean": "boolean", "date": "date",
    "timestamp": "timestamp", "binary": "binary",
}  # fmt: skip
_PARTS = {
    "DOY": "dayofyear",
    "DOW": "dayofweek",
    "WEEK": "weekofyear",
    "MONTHS": "month",
    "D": "day",
}
_KNOWN_PARTS = frozenset(
    {
        "year",
        "quarter",
        "month",
        "weekofyear",
        "day",
        "dayofweek",
        "dayofyear",
        "hour",
        "minute",
    }
)


def part_of(part: str, value: Expression) -> Expression | None:
    """Return a part of a date or timestamp, as EXTRACT names it; None if it is not supported."""
    name = _PARTS.get(part.upper(), part.lower())
    return Call(name, (value,)) if name in _KNOWN_PARTS else None


def _date_part(part: Expression, value: Expression) -> Expression | None:
    if not isinstance(part, Literal) or not isinstance(part.value, str):
        return None
    return part_of(part.value, value)


def _matched(before: str, after: str, value: Expression, found: Expression) -> Expression | None:
    if not isinstance(found, Literal) or not isinstance(found.value, str):
        return None
    escaped = re.sub(r"([\\%_])", r"\\\1", found.value)
    return Like(value, f"{before}{escaped}{after}")


def _null_if(one: Expression, other: Expression) -> Expression:
    return Case(((Comparison("=", one, other), Literal(None)),), one)


REWRITES: dict[str, Rewrite] = {
    "isnull": Rewrite(1, IsNull),
    "isnotnull": Rewrite(1, lambda one: Not(IsNull(one))),
    "nvl2": Rewrite(3, lambda one, there, absent: Case(((Not(IsNull(one)), there),), absent)),
    "nullif": Rewrite(2, _null_if),
    "nullifzero": Rewrite(1, lambda one: _null_if(one, Literal(0))),
    "zeroifnull": Rewrite(1, lambda one: Call("coalesce", (one, Literal(0)))),
    "equal_null": Rewrite(2, partial(Comparison, "<=>")),
    "mod": Rewrite(2, partial(Arithmetic, "%")),
    "try_mod": Rewrite(2, partial(Arithmetic, "%", tried=True)),
    "try_divide": Rewrite(2, partial(Arithmetic, "/", tried=True)),
    "positive": Rewrite(1, lambda one: one),
    "date_part": Rewrite(2, _date_part, aliases=("datepart",)),
    "startswith": Rewrite(2, partial(_matched, "", "%")),
    "endswith": Rewrite(2, partial(_matched, "%", "")),
    "contains": Rewrite(2, partial(_matched, "%", "%")),
    **{name: Rewrite(1, partial(Cast, type=PrimitiveType(kind))) for name, kind in _CASTS.items()},
    # `fixed_in_time` makes them constants.
    "current_date": Rewrite(0, lambda: Call("current_date", ()), aliases=("curdate",)),
    "current_timestamp": Rewrite(0, lambda: Call("current_timestamp", ()), aliases=("now",)),
}
