"""Filters of Arrow as predicates: the columns that they compare with values. Pure.

pyarrow shows the tree of an expression only as text and in its serialized form. The latter is a
batch of the literals, whose metadata is the tree in its order: calls, their arguments, their ends.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from txlog.base.arrow import pc
from txlog.expressions.operators import OPERATORS, Comparator
from txlog.expressions.tree import And, Column, Comparison, Expression, In, Literal, Or
from txlog.schema.arrow import arrow_type
from txlog.schema.types import StructType

_LINE = re.compile(r"^(call|end|field_ref|nested_field_ref|literal|options): '(.*)'$")
_ALIKE = (
    pa.types.is_integer,
    lambda kind: pa.types.is_string(kind) or pa.types.is_large_string(kind),
    lambda kind: pa.types.is_binary(kind) or pa.types.is_large_binary(kind),
)


def values_of_filter(filter: Any, shown: pa.Schema, schema: StructType) -> Expression | None:
    """Return a predicate that is true for all rows for which a filter of a dataset is true.

    It compares columns with values, by `IN` or by their order; None if the filter does not say
    which values rows have, or not in a way that this function knows.

    Parameters
    ----------
    filter
        A `pyarrow.compute.Expression`.
    shown
        The schema of the dataset.
    schema
        The table's columns.
    """
    if any("\n" in name for name in shown.names):
        return None  # The names would be several lines.
    try:
        (data,) = filter.__reduce__()[1]
        with pa.ipc.open_file(data) as reader:
            literals = reader.get_batch(0)
            text = reader.schema.to_string(truncate_metadata=False, show_field_metadata=False)
        _, _, tree = text.partition("\n-- schema metadata --\n")
        found = _Tree(literals, shown, schema, tree.split("\n")).node()
    except (pa.ArrowException, AttributeError, TypeError, ValueError, StopIteration):
        return None  # Another version of pyarrow, or an expression that has no such form.
    return found if isinstance(found, Expression) else None


_SIGNS: dict[str, Comparator] = {
    one.arrow: one.sign for one in OPERATORS.values() if one.less != one.greater
}


class _Tree:
    """The nodes of a filter. Each is taken once, in the order in which Arrow wrote them."""

    def __init__(
        self, literals: pa.RecordBatch, shown: pa.Schema, schema: StructType, lines: list[str]
    ) -> None:
        self._literals = literals
        self._shown = shown
        self._schema = schema
        self._lines = self._parts(lines)

    def _parts(self, lines: list[str]) -> Iterator[tuple[str, str]]:
        for line in lines:
            found = _LINE.match(line)
            if found is None:
                raise ValueError(line)
            yield found[1], found[2]

    def node(self, ends: str | None = None) -> Any:
        """Take a node: an expression, a `Column`, a scalar, or None if it says nothing.

        The end of the call `ends` is returned as the class `_End`.
        """
        kind, value = next(self._lines)
        match kind:
            case "field_ref":
                return Column((value,))
            case "nested_field_ref":
                for _ in range(int(value)):
                    next(self._lines)
                return None
            case "literal":
                return self._literals.column(int(value))[0]
            case "options":
                return _Options(self._literals.column(int(value))[0])
            case "end" if value == ends:
                return _End
            case "call":
                arguments: list[Any] = []
                while (one := self.node(value)) is not _End:
                    arguments.append(one)
                return self._call(value, arguments)
        raise ValueError(kind)

    def _call(self, name: str, arguments: list[Any]) -> Expression | None:
        match name, arguments:
            case "equal", [Column() as column, pa.Scalar() as value]:
                return self._within(column, pa.array([value.as_py()], value.type))
            case "equal", [pa.Scalar() as value, Column() as column]:
                return self._within(column, pa.array([value.as_py()], value.type))
            case name, [Column() as column, pa.Scalar() as value] if name in _SIGNS:
                return self._compared(_SIGNS[name], column, value)
            case name, [pa.Scalar() as value, Column() as column] if name in _SIGNS:
                return self._compared(OPERATORS[_SIGNS[name]].flipped.sign, column, value)
            case "is_in", [Column() as column, _Options(options)]:
                return self._within(column, options["value_set"].values)
            case "and" | "and_kleene", parts:
                known = tuple(part for part in parts if _is_known(part))
                return And(known) if len(known) > 1 else known[0] if known else None
            case "or" | "or_kleene", parts:
                return Or(tuple(parts)) if all(map(_is_known, parts)) else None
            # duckdb writes `IN` so, because null IN (…) is null for it.
            case "if_else", [_, part, pa.Scalar() as other] if not other.as_py():
                return part if _is_known(part) else None
        return None

    def _compared(self, sign: Comparator, column: Column, value: pa.Scalar) -> Expression | None:
        found = self._within(column, pa.array([value.as_py()], value.type))
        return Comparison(sign, column, found.values[0]) if isinstance(found, In) else None

    def _within(self, column: Column, values: pa.Array) -> Expression | None:
        """Return that a column has one of some values, if Arrow and txlog compare them alike."""
        (name,) = column.path
        known = self._schema.get(name)
        if known is None or name not in self._shown.names or values.null_count:
            return None
        own = arrow_type(known.type)
        if pa.types.is_timestamp(own) and own.unit == "ns":
            return None  # Python has no such values.
        for kind in (values.type, self._shown.field(name).type):
            if kind != own and not any(one(kind) and one(own) for one in _ALIKE):
                return None  # Arrow converts one of them, so that different values become equal.
        return In(column, tuple(map(Literal, pc.cast(values, own).to_pylist())))


class _End:
    """The end of a call."""


class _Options:
    """The options of a call."""

    __match_args__ = ("values",)

    def __init__(self, values: Any) -> None:
        self.values = values


def _is_known(part: Any) -> bool:
    return isinstance(part, Expression) and not isinstance(part, Column)
