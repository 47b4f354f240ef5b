"""Rules for which predicates and files polars reads like `read_fragment`. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import or_

import polars as pl
import pyarrow as pa

from txlog.expressions.operators import Operator
from txlog.expressions.tree import Column, Expression, Literal
from txlog.expressions.type_rules import Dialect, OtherwiseError, translated
from txlog.fragments.fragment import Fragment
from txlog.parquet.file_footer import FileFooter
from txlog.scan.read_plan import ReadPlan
from txlog.scan.resolve import resolve
from txlog.schema.types import DataType, DecimalType, PrimitiveType, StructField

# For these types, all engines read statistics of row groups in the same way: there is no NaN, no
# order of texts, and no value is cut.
ORDERED = frozenset({"byte", "short", "integer", "long", "date", "timestamp", "timestamp_ntz"})
_READ_ALIKE = ORDERED | {"boolean", "float", "double", "string", "binary"}

_RUN_ROWS = 1 << 31  # Polars numbers the rows of a scan with 32 bits.


@dataclass(frozen=True)
class Layout:
    """The columns of a plan in files of one schema."""

    schema: pa.Schema
    physical: tuple[str, ...]
    names: Mapping[str, str]  # The names in the files, by the table's names.
    absent: tuple[StructField, ...]  # Columns that are null in all rows.


@dataclass(frozen=True)
class Source:
    """A file that polars can read."""

    rows: int
    layout: Layout


@dataclass(frozen=True)
class Run:
    """Adjacent fragments that polars reads together, or one fragment that it may not read."""

    fragments: tuple[Fragment, ...]
    # The file of each fragment; empty if polars might read other rows.
    sources: tuple[Source, ...]

    def singles(self) -> Iterator[Run]:
        """Yield the fragments one by one."""
        for at, fragment in enumerate(self.fragments):
            yield Run((fragment,), self.sources[at : at + 1])


def may_read(plan: ReadPlan, fragment: Fragment) -> bool:
    """Return whether polars can read a fragment, as far as the log shows."""
    return (
        len(fragment.files) == 1
        and not plan.metadata_columns
        and any(column.name not in plan.form.partition_columns for column in plan.columns)
        and all(
            isinstance(column.type, DecimalType)
            or (isinstance(column.type, PrimitiveType) and column.type.name in _READ_ALIKE)
            for column in plan.needed
        )
    )


def find_sources(
    plan: ReadPlan, fragments: Sequence[Fragment], footers: Sequence[FileFooter | None]
) -> list[Source | None]:
    """Return the file of each fragment, or None if polars might read other rows.

    Polars does not convert dates from the old calendar. It does not notice if the number of rows
    differs from the log.
    """
    found: list[Source | None] = []
    layout: Layout | None = None
    known: FileFooter | None = None  # The footer of `layout`: adjacent files are mostly alike.
    for fragment, footer in zip(fragments, footers, strict=True):
        rows = fragment.physical_rows
        if footer is None or (rows is not None and rows != footer.num_rows):
            found.append(None)
            continue
        if known is None or not _same_schema(known, footer):
            known, layout = footer, _layout(plan, footer)
        found.append(None if layout is None else Source(footer.num_rows, layout))
    return found


def _same_schema(one: FileFooter, other: FileFooter) -> bool:
    # The metadata contains the ids of fields.
    return one.physical_types == other.physical_types and one.schema.equals(
        other.schema, check_metadata=True
    )


def _layout(plan: ReadPlan, footer: FileFooter) -> Layout | None:
    """Return the columns of a plan in files, or None if polars might read other values.

    A file must have the table's types, because polars does not cast here. Files with INT96
    timestamps are excluded, too.
    """
    if "INT96" in footer.physical_types:
        return None
    found = resolve(plan.form, plan.needed, footer)
    if not found.is_plain or not any(column.name in found.names for column in plan.columns):
        return None
    absent = tuple(one.column for one in found.columns if one.how == "null")
    return Layout(footer.schema, footer.physical_types, found.names, absent)


def runs_of(
    plan: ReadPlan, fragments: Sequence[Fragment], sources: Sequence[Source | None], *, files: int
) -> Iterator[Run]:
    """Yield the fragments in their order, in groups of up to `files` that polars reads together.

    The files of a group have the same schema, and equal values in the needed partition columns.
    """
    run: list[tuple[Fragment, Source]] = []
    for fragment, source in zip(fragments, sources, strict=True):
        fits = (
            source is not None
            and 0 < len(run) < files
            and _together(plan, run[0], (fragment, source))
            and sum(one.rows for _, one in run) + source.rows < _RUN_ROWS
        )
        if run and not fits:
            yield _run(run)
            run = []
        if source is None:
            yield Run((fragment,), ())
        else:
            run.append((fragment, source))
    if run:
        yield _run(run)


def _run(pairs: Sequence[tuple[Fragment, Source]]) -> Run:
    return Run(tuple(fragment for fragment, _ in pairs), tuple(source for _, source in pairs))


def _together(
    plan: ReadPlan, first: tuple[Fragment, Source], other: tuple[Fragment, Source]
) -> bool:
    (one, source), (another, its) = first, other
    if _partition(plan, one) != _partition(plan, another):
        return False
    return source.layout is its.layout or _read_alike(source.layout, its.layout)


def _read_alike(one: Layout, other: Layout) -> bool:
    return (
        one.names == other.names
        and one.physical == other.physical
        and one.schema.equals(other.schema)
    )


def _partition(plan: ReadPlan, fragment: Fragment) -> Mapping[str, str | None]:
    """Return the partition values to compare: all of them, or none if no column is needed."""
    needed = any(column.name in plan.form.partition_columns for column in plan.needed)
    return fragment.partition_values if needed else {}


_INTEGERS = frozenset({"byte", "short", "integer", "long"})
_FLOATS = frozenset({"float", "double"})
_OTHERS: Mapping[str, pl.DataType] = {
    "boolean": pl.Boolean(),
    "string": pl.String(),
    "binary": pl.Binary(),
    "date": pl.Date(),
    "timestamp": pl.Datetime("us", "UTC"),
    "timestamp_ntz": pl.Datetime("us"),
}


def as_polars(where: Expression, columns: Mapping[str, pl.Expr]) -> pl.Expr | None:
    """Return a bound predicate for polars, or None if polars has no predicate of equal meaning.

    Parameters
    ----------
    columns
        The polars expression for each column of the table: a column of the frame, or a constant.

    Notes
    -----
    In polars, as in Spark, NaN equals itself and is greater than all numbers, and logic has three
    values. `evaluate` handles predicates that compute values or compare different types.
    """
    return translated(where, _Polars(columns))


@dataclass(frozen=True)
class _Polars(Dialect[pl.Expr]):
    columns: Mapping[str, pl.Expr]

    def truth(self, node: Column | Literal) -> pl.Expr:
        if node.type != PrimitiveType("boolean"):
            raise OtherwiseError
        return _value(node, self.columns)[1]

    def is_null(self, column: Column) -> pl.Expr:
        if len(column.path) > 1:
            raise OtherwiseError
        return self.columns[column.path[0]].is_null()

    def compare(self, op: Operator, left: Expression, right: Expression) -> pl.Expr:
        (kind, a), (other, b) = _value(left, self.columns), _value(right, self.columns)
        if kind != other or (kind == pl.Boolean and op.less != op.greater):
            raise OtherwiseError
        found: pl.Expr = a.eq_missing(b) if op.null_safe else op.python(a, b)
        return found

    def is_in(self, operand: Expression, values: tuple[Literal, ...]) -> pl.Expr:
        kind, value = _value(operand, self.columns)
        known = [literal.value for literal in values if literal.value is not None]
        if not known or any(_compared_as(literal.type) != kind for literal in values):
            raise OtherwiseError
        if kind == pl.Float64:  # `eq` handles NaN and -0.0 as Spark does.
            found = reduce(or_, (value.eq(pl.lit(one, dtype=kind)) for one in known))
        else:
            found = value.cast(kind).is_in(pl.Series(known, dtype=kind).implode())
        return found if len(known) == len(values) else found | pl.lit(None, dtype=pl.Boolean)

    def like(self, operand: Expression, pattern: str) -> pl.Expr:
        kind, text = _value(operand, self.columns)
        body = pattern.removeprefix("%").removesuffix("%")
        if kind != pl.String or any(special in body for special in "%_\\") or pattern == "%":
            raise OtherwiseError
        match pattern[:1] == "%", pattern[-1:] == "%":
            case True, True:
                return text.str.contains(body, literal=True)
            case True, False:
                return text.str.ends_with(body)
            case False, True:
                return text.str.starts_with(body)
        return text.eq(pl.lit(body))


def _value(node: Expression, columns: Mapping[str, pl.Expr]) -> tuple[pl.DataType, pl.Expr]:
    """Return a column or a constant, and the type in which its values compare."""
    match node:
        case Column((name,), kind):
            wide = _compared_as(kind)
            # A cast to a wider float is exact. Integers are not cast, so that polars can compare
            # the statistics of row groups with a constant.
            return wide, columns[name].cast(wide) if wide == pl.Float64 else columns[name]
        case Literal(value, kind):
            wide = _compared_as(kind)
            return wide, pl.lit(value, dtype=wide)
    raise OtherwiseError


def _compared_as(kind: DataType | None) -> pl.DataType:
    name = kind.name if isinstance(kind, PrimitiveType) else ""
    if name in _INTEGERS:
        return pl.Int64()
    if name in _FLOATS:
        return pl.Float64()
    if name in _OTHERS:
        return _OTHERS[name]
    raise OtherwiseError
