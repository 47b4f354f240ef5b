"""The condition of a merge: it defines which rows of source and target match. Pure.

Expressions of a merge are bound to one flat schema of both sides, in which the column `id` of the
target is called `target.id`, after the side's alias.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal, TypeVar

from txlog.base.errors import InvalidInputError, of_argument
from txlog.base.threads import cached_property
from txlog.expressions.bind import bind, columns_of
from txlog.expressions.operators import OPERATORS
from txlog.expressions.sql import required_expression
from txlog.expressions.tree import And, Column, Comparison, Expression, rewritten
from txlog.schema.types import ArrayType, MapType, StructField, StructType, same_names, types_in

Node = TypeVar("Node", bound=Any)


Seen = Literal["both", "source", "target"]
"""The sides whose columns an expression may use."""


@dataclass(frozen=True)
class Sides:
    """The columns of both sides, and their names in expressions."""

    target: StructType
    source: StructType
    target_alias: str
    source_alias: str

    def __post_init__(self) -> None:
        if self.target_alias.lower() == self.source_alias.lower():
            raise InvalidInputError(
                argument="source_alias",
                reason=f"source and target are both called {self.source_alias}",
                remedy="Give them different names",
            )
        require_distinct(self.source)

    @cached_property
    def schema(self) -> StructType:
        """The flat schema of both."""
        return StructType((*self._flat(self.target_alias, self.target), *self.of_source.fields))

    @cached_property
    def of_source(self) -> StructType:
        """The flat schema of the source only."""
        return StructType(self._flat(self.source_alias, self.source))

    @cached_property
    def of_target(self) -> StructType:
        """The flat schema of the target only."""
        return StructType(self._flat(self.target_alias, self.target))

    @staticmethod
    def _flat(alias: str, schema: StructType) -> tuple[StructField, ...]:
        return tuple(replace(field, name=f"{alias}.{field.name}") for field in schema.fields)

    def is_target(self, path: tuple[str, ...]) -> bool:
        """Return whether a path of the flat schema belongs to the target."""
        return path[0].startswith(f"{self.target_alias}.")

    def name(self, flat: str) -> str:
        """Return the name of a column of the flat schema on its side."""
        alias = self.target_alias if self.is_target((flat,)) else self.source_alias
        return flat[len(alias) + 1 :]

    def resolved(self, expression: Expression, seen: Seen = "both") -> Expression:
        """Return an expression over the flat schema.

        Columns are named `alias.column`, or `column` where only one of the sides that are seen has
        it. If a struct has the name of an alias that lacks such a column, it is a field of it.

        Raises
        ------
        InvalidInputError
            A column is unknown, both sides have it, or it is one of the side that is not seen.
        """
        return with_columns(expression, partial(self._seen, seen))

    def _seen(self, seen: Seen, column: Column) -> Column:
        found = self._resolved(seen, column)
        if seen != "both" and self.is_target(found.path) != (seen == "target"):
            raise other_side(".".join(column.path), seen)
        return found

    def _resolved(self, seen: Seen, column: Column) -> Column:
        first, *rest = column.path
        for alias, schema in (
            (self.target_alias, self.target),
            (self.source_alias, self.source),
        ):
            if first.lower() == alias.lower() and rest:
                field = schema.get(rest[0])
                if field is None and self._is_field(column):
                    break
                if field is None:
                    raise _bad(
                        ".".join(column.path),
                        f"{alias} has no column {rest[0]}",
                        f"Choose from {', '.join(schema.names())}",
                    )
                return Column((f"{alias}.{field.name}", *rest[1:]))
        ours, theirs = self.target.get(first), self.source.get(first)
        if ours is not None and theirs is not None and seen == "both":
            raise _bad(
                first,
                f"source and target both have a column {first}",
                f"Write {self.target_alias}.{first} or {self.source_alias}.{first}",
            )
        if ours is not None and (theirs is None or seen == "target"):
            return Column((f"{self.target_alias}.{ours.name}", *rest))
        if theirs is not None:
            return Column((f"{self.source_alias}.{theirs.name}", *rest))
        raise _bad(
            first,
            f"neither {self.target_alias} nor {self.source_alias} has a column {first}",
            f"Write {self.target_alias}.column or {self.source_alias}.column",
        )

    def _is_field(self, column: Column) -> bool:
        """Return whether a path leads to a field of a struct."""
        both = (self.target, self.source)
        return any(len(schema.along(column.path[:2])) > 1 for schema in both)


def other_side(name: str, seen: Seen) -> InvalidInputError:
    """Return the error that a clause names a column of the side that it does not see."""
    if seen == "target":
        return _bad(
            name,
            f"{name} is a column of the source, and a row that WHEN NOT MATCHED BY SOURCE changes "
            "has none",
            "Use columns of the table",
        )
    return _bad(
        name,
        f"{name} is a column of the table, and a row that WHEN NOT MATCHED inserts has none yet",
        "Use columns of the source",
    )


def require_distinct(source: StructType) -> None:
    """Raise `InvalidInputError` if names of the source differ at most in case.

    Values of one of these columns would be lost.
    """
    for first, second in same_names(source):
        raise InvalidInputError(
            argument="source",
            field=second,
            reason=f"the source has the columns {first} and {second}, whose names do not differ "
            "by more than case",
            remedy="Rename or omit one of them",
        )


def with_columns(node: Node, change: Callable[[Column], Expression]) -> Node:
    """Return an expression in which each column is replaced by what a function returns for it."""
    return rewritten(node, lambda one: change(one) if isinstance(one, Column) else None)


@dataclass(frozen=True)
class Key:
    """Two values that must be equal for rows to match."""

    target: Expression  # Bound to the flat schema.
    source: Expression
    nulls_match: bool  # `<=>`


@dataclass(frozen=True)
class Condition:
    """The condition under which rows of source and target match. It pickles."""

    whole: Expression
    keys: tuple[Key, ...]
    rest: Expression | None  # The further condition that must be true.
    of_target: tuple[Expression, ...]  # The parts that concern only the target, with its own names.

    def reads(self, sides: Sides) -> tuple[set[str], set[str]]:
        """Return the columns of target and source that are read, by flat names."""
        names = {path[0] for path in columns_of(self.whole)}
        ours = {name for name in names if sides.is_target((name,))}
        return ours, names - ours


def merge_condition(
    predicate: str | Expression, sides: Sides, zone: str | None = None
) -> Condition:
    """Return the condition of a merge, divided into keys and other parts.

    Parameters
    ----------
    zone
        The time zone of its dates and times. Default: UTC.

    Raises
    ------
    InvalidInputError
        It does not fit the columns of both sides, or is not a predicate.
    """
    expression = required_expression(predicate, argument="predicate", zone=zone)
    with of_argument("predicate"):
        whole = bind(sides.resolved(expression), sides.schema)
    keys: list[Key] = []
    rest: list[Expression] = []
    of_target: list[Expression] = []
    for part in conjuncts(whole):
        if (key := _key(part, sides)) is not None:
            keys.append(key)
            continue
        rest.append(part)
        if all(sides.is_target(path) for path in columns_of(part)):
            of_target.append(by_own_names(part, sides))
    together = None if not rest else rest[0] if len(rest) == 1 else And(tuple(rest))
    return Condition(whole, tuple(keys), together, tuple(of_target))


def equal_columns(names: Sequence[str], *, target: str, source: str) -> Expression:
    """Return the condition that columns of both sides, with these aliases, are equal."""
    parts = [Comparison("=", Column((target, name)), Column((source, name))) for name in names]
    return parts[0] if len(parts) == 1 else And(tuple(parts))


def require_key(names: Sequence[str], *, target: StructType, source: StructType) -> None:
    """Raise `InvalidInputError` if one of the sides lacks a key column."""
    for side, schema in (("target", target), ("source", source)):
        others = [field.name for field in schema.fields if _is_key(field)]
        for name in names:
            if schema.get(name) is None:
                raise InvalidInputError(
                    argument="on",
                    field=name,
                    reason=f"the {side} has no column {name}",
                    remedy=f"Choose from {', '.join(others)}",
                )


def _is_key(field: StructField) -> bool:
    """Return whether values of a column can be compared: maps have no equality."""
    return not any(isinstance(kind, MapType) for kind in types_in(StructType((field,))))


def by_own_names(expression: Expression, sides: Sides) -> Expression:
    """Return an expression over one side with the names of its columns there."""
    return with_columns(
        expression, lambda column: Column((sides.name(column.path[0]), *column.path[1:]))
    )


def conjuncts(expression: Expression) -> Sequence[Expression]:
    """Return the parts of an expression that must all be true."""
    if isinstance(expression, And):
        return [part for inner in expression.parts for part in conjuncts(inner)]
    return [expression]


def _key(part: Expression, sides: Sides) -> Key | None:
    if not isinstance(part, Comparison) or not (op := OPERATORS[part.op]).is_equality:
        return None
    kinds = [getattr(side, "type", None) for side in (part.left, part.right)]
    if any(isinstance(kind, StructType | ArrayType) for kind in kinds):
        return None  # Such values are compared pair by pair.
    left, right = (
        {sides.is_target(path) for path in columns_of(side)} for side in (part.left, part.right)
    )
    if (left, right) == ({True}, {False}):
        return Key(part.left, part.right, op.null_safe)
    if (left, right) == ({False}, {True}):
        return Key(part.right, part.left, op.null_safe)
    return None


def _bad(field: str, reason: str, remedy: str) -> InvalidInputError:
    # The caller knows whether it is a condition or a value (`of_argument`).
    return InvalidInputError(argument="where", field=field, reason=reason, remedy=remedy)
