"""Names in the clauses of a merge that see one side only, in Spark's SQL text.

Spark resolves the names of `WHEN NOT MATCHED` against the source, and those of `WHEN NOT MATCHED BY
SOURCE` against the table. In a join of both, a name that both sides have would be ambiguous, and a
name of the other side would be null.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from txlog.base.errors import InvalidInputError
from txlog.expressions.tree import quote_name
from txlog.schema.types import StructField, StructType
from txlog.verbs.merge.condition import Seen, other_side


@dataclass(frozen=True)
class OneSide:
    """The side of a merge that a clause sees.

    Parameters
    ----------
    seen
        Which side it is.
    own, other
        The columns of both sides.
    is_other
        Returns whether `first.second` is a column of the other side, by the alias of that side.
    written
        Returns SQL that means a column of this side, whatever the other side has.
    """

    seen: Seen
    own: StructType
    other: StructType
    is_other: Callable[[str, str], bool]
    written: Callable[[StructField], str]

    def _other_side(self, name: str) -> InvalidInputError:
        error = other_side(name, self.seen)
        error.argument = "predicate"  # Spark's plan does not say which text a name is from.
        return error

    def text(self, text: str) -> str:
        """Return an expression in which each name means a column of this side.

        Text that sqlglot cannot parse, and queries in it, are returned unchanged.

        Raises
        ------
        InvalidInputError
            The expression names a column of the other side.
        """
        pieces, done = list[str](), 0
        for parts in _columns(text):
            first = parts[0]
            field = self.own.get(first.name)
            second = parts[1].name if len(parts) > 1 else None
            if second is not None and self.is_other(first.name, second):
                raise self._other_side(f"{first.name}.{second}")
            if field is None:
                if second is None and self.other.get(first.name) is not None:
                    raise self._other_side(first.name)
                continue
            if self.other.get(first.name) is None or self._is_alias(first.name, second):
                continue
            pieces += [text[done : first.meta["start"]], self.written(field)]
            done = first.meta["end"] + 1
        return "".join([*pieces, text[done:]])

    def _is_alias(self, first: str, second: str | None) -> bool:
        """Return whether a name may be the alias of this side, and no struct with such a field."""
        field = self.own.get(first)
        kind = None if field is None else field.type
        return second is not None and not (
            isinstance(kind, StructType) and kind.get(second) is not None
        )


def _columns(text: str) -> Iterator[list[Any]]:
    """Yield the names of each column in an expression, in their order; none of inner queries."""
    import sqlglot
    from sqlglot import exp
    from sqlglot.errors import SqlglotError

    try:
        tree: Any = sqlglot.parse_one(text, dialect="spark")
    except (SqlglotError, RecursionError):
        return
    found = [
        one.parts
        for one in tree.find_all(exp.Column)
        if one.find_ancestor(exp.Select) is None
        and all(isinstance(part, exp.Identifier) and "start" in part.meta for part in one.parts)
    ]
    yield from sorted(found, key=lambda parts: int(parts[0].meta["start"]))


def quoted(alias: str) -> Callable[[StructField], str]:
    """Return a function that writes a column below an alias."""
    return lambda field: f"{quote_name(alias)}.{quote_name(field.name)}"
