"""Constraints on rows, and the values of columns that data omits.

Rules: the Delta protocol, "Column Invariants", "CHECK Constraints", "Generated Columns" and
"Default Columns".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import orjson
import pyarrow as pa

from txlog.actions.table import Metadata
from txlog.base.arrow import arrow_scalar, pc
from txlog.base.columns import flat, map_entries
from txlog.base.errors import (
    InvalidInputError,
    SchemaMismatchError,
    UnsupportedFeatureError,
    of_argument,
    reason_of,
)
from txlog.data_files.lengths import declared_type, fits_declared
from txlog.expressions.bind import bind, bind_value, columns_of, depends_on_zone
from txlog.expressions.calls import fixed_in_time
from txlog.expressions.evaluate import evaluate, is_true
from txlog.expressions.sql import parse_sql, to_sql
from txlog.expressions.tree import (
    Case,
    Cast,
    Column,
    Comparison,
    Expression,
    Literal,
)
from txlog.expressions.type_rules import common_type, is_castable, is_number
from txlog.protocol.mapping import all_fields
from txlog.protocol.properties import CHECK_PREFIX
from txlog.schema.arrow import (
    arrow_schema,
    arrow_type,
    cast_array,
    fixed_rows,
    fixed_schema,
    from_arrow,
    misfit,
)
from txlog.schema.types import (
    CURRENT_DEFAULT,
    GENERATION,
    STRING,
    ArrayType,
    MapType,
    PrimitiveType,
    StructField,
    StructType,
    type_name,
)
from txlog.stats.partition import is_emptied

_INVARIANT = "delta.invariants"


@dataclass(frozen=True)
class Constraint:
    """A predicate that must be true (not null, not false) for each row."""

    name: str
    text: str
    predicate: Expression
    column: str | None = None  # The column whose invariant it is.
    generated: str | None = None  # The SQL of the generated column whose values it checks.
    is_length: bool = False  # Whether it is the declared length of texts of the column `name`.


def constraints_of(metadata: Metadata, schema: StructType) -> list[Constraint]:
    """Return the constraints on rows of a table, including the values of generated columns.

    Raises
    ------
    UnsupportedFeatureError
        txlog cannot evaluate the SQL of a constraint, so it cannot write rows.
    """
    rules = rules_of(metadata, schema)
    texts = {field.name: str(field.metadata.get(GENERATION)) for field in schema.fields}
    kinds = {field.name: field.type for field in schema.fields}
    for name, expression in generated_columns(schema).items():
        kind = kinds[name]
        if name in metadata.partition_columns and is_emptied(kind):
            empty = Comparison(
                "=", expression, Literal(b"" if kind == PrimitiveType("binary") else "", kind)
            )
            expression = Case(((empty, Literal(None, kind)),), expression, kind)
        predicate = Comparison("<=>", Column((name,), kind), expression)
        rules.append(Constraint(name, to_sql(predicate), predicate, None, texts[name]))
    return rules + _lengths(schema)


def _lengths(schema: StructType) -> list[Constraint]:
    """Return the rules of columns that were declared as CHAR(n) or VARCHAR(n), or contain such."""
    rules = []
    for field in schema.fields:
        declared = declared_type(field)
        if declared is None:
            continue
        try:
            text = fits_declared(field, declared)
        except ValueError as error:
            raise UnsupportedFeatureError(
                features=("charVarchar",),
                field=field.name,
                reason=f"the column {field.name} is {type_name(field.type)}, but its metadata "
                f"declares it as {declared!r}, so the lengths of its texts are unknown: {error}",
                remedy="Write with an engine that supports it, such as Spark",
            ) from error
        if text:
            predicate = bind(parse_sql(text), schema)
            rules.append(Constraint(field.name, declared, predicate, is_length=True))
    return rules


def rules_of(metadata: Metadata, schema: StructType) -> list[Constraint]:
    """Return the CHECK constraints and the invariants of columns; errors as above."""
    texts: list[tuple[str, str, str | None]] = [
        (name.removeprefix(CHECK_PREFIX), text, None)
        for name, text in metadata.configuration.items()
        if name.startswith(CHECK_PREFIX) and text is not None
    ]
    texts.extend(
        (".".join(path), _invariant_text(field.metadata[_INVARIANT]), path[0])
        for path, field in all_fields(schema)
        if _INVARIANT in field.metadata
    )
    return [_parsed(name, text, schema, column) for name, text, column in texts]


def is_generated(field: StructField) -> bool:
    """Return whether the values of a column are computed from others."""
    return field.metadata.get(GENERATION) is not None


def generated_columns(schema: StructType) -> dict[str, Expression]:
    """Return the bound expressions of generated columns, cast to the columns' types.

    Raises
    ------
    UnsupportedFeatureError
        txlog cannot evaluate an expression, or store its values in the column.
    """
    found = {}
    for field in schema.fields:
        if not is_generated(field):
            continue
        text = str(field.metadata[GENERATION])
        try:
            bound, kind = bind_value(parse_sql(text), schema)
            # A part of a nested value is converted when the value is stored.
            nested = isinstance(kind, ArrayType | MapType | StructType)
            stored = nested and common_type([kind, field.type]) is not None
            if kind != field.type and not stored:
                bound, _ = bind_value(Cast(bound, field.type), schema)
        except InvalidInputError as error:
            raise UnsupportedFeatureError(
                features=("generatedColumns",),
                field=field.name,
                reason=f"the values of column {field.name} ({text}) cannot be computed: "
                f"{error.reason}",
                remedy="Write with an engine that supports it, such as Spark",
            ) from error
        found[field.name] = bound
    return found


def _invariant_text(value: Any) -> str:
    try:
        return str(orjson.loads(value)["expression"]["expression"])
    except (orjson.JSONDecodeError, KeyError, TypeError):
        return str(value)


def _parsed(name: str, text: str, schema: StructType, column: str | None) -> Constraint:
    try:
        return Constraint(name, text, bind(fixed_in_time(parse_sql(text)), schema), column)
    except InvalidInputError as error:
        raise UnsupportedFeatureError(
            features=("checkConstraints",),
            field=column,
            reason=f"the table's constraint {name} ({text}) cannot be evaluated: {error.reason}",
            remedy=f"Call alter.drop_constraint({name!r}) first, or write with an engine that "
            "supports it"
            if column is None
            else "Write with an engine that supports it, such as Spark",
        ) from error


def checked(
    batches: Iterable[pa.RecordBatch], constraints: list[Constraint]
) -> Iterator[pa.RecordBatch]:
    """Yield the batches; raise at the first one with a row that breaks a constraint.

    Raises
    ------
    SchemaMismatchError
        The error names the constraint or the generated column, the number of rows in the batch that
        break it, and the values of the first.
    """
    for batch in batches:
        for constraint in constraints:
            with of_argument("data", constraint.name):
                kept = is_true(constraint.predicate, batch)
            broken = batch.num_rows - int(pc.sum(kept).as_py() or 0)
            if broken:
                row = batch.filter(pc.invert(kept)).slice(0, 1)
                raise _broken(constraint, broken, row)
        yield batch


_MOST_CHARACTERS = 80  # Of a value in an error.


def _broken(rule: Constraint, count: int, row: pa.RecordBatch) -> SchemaMismatchError:
    """Return the error for rows that break a constraint; `row` is one of them."""
    values = []
    for path in columns_of(rule.predicate):
        text = _text_of(flat(evaluate(Column(path), row)))
        short = text if len(text) <= _MOST_CHARACTERS else f"{text[:_MOST_CHARACTERS]}…"
        values.append(f"{'.'.join(path)} = {short}")
    first = f"the first has {', '.join(values)}" if values else "it reads no column"
    if rule.generated is not None:
        return SchemaMismatchError(
            argument="data",
            field=rule.name,
            reason=f"{count} rows have other values in the generated column {rule.name} than "
            f"{rule.generated} gives{_where_computed(rule.generated, row)}; {first}",
            remedy="Nothing was written. Correct these values, or omit the column: then they are "
            "computed",
        )
    return SchemaMismatchError(
        argument="data",
        field=rule.name,
        reason=f"{count} rows break the constraint {rule.name} ({rule.text})"
        f"{_where_computed(rule.text, row)}; {first}",
        remedy="Nothing was written. Correct or omit these rows",
    )


def _where_computed(text: str, row: pa.RecordBatch) -> str:
    """Return the time zone in which a rule counts, if that makes a difference.

    A session of Spark may have another one, in which the caller has computed the values.
    """
    try:
        depends = depends_on_zone(parse_sql(text), from_arrow(row.schema))
    except InvalidInputError:
        return ""
    return " in UTC, which is the time zone of all rules of a table" if depends else ""


def _text_of(array: pa.Array) -> str:
    """Return the only value of an array on one line."""
    try:
        value = array[0].as_py()
    except ValueError:  # Without pandas, nanoseconds have no Python value.
        return " ".join(array.to_string().split())
    if value is None:
        return "null"
    return repr(value) if isinstance(value, str) else str(value)


def given_list_error(column: StructField) -> Exception:
    """Return the error for a value in data that its column's metadata excludes."""
    kind = fixed_schema(StructType((column,))).field(0).type
    return SchemaMismatchError(
        argument="data",
        field=column.name,
        reason=f"the column {column.name} is {kind}, and {misfit(column)}",
        remedy="Nothing was written. Correct these rows",
    )


def sized(
    batches: Iterable[pa.RecordBatch],
    schema: StructType,
    error: Callable[[StructField], Exception] = given_list_error,
) -> Iterator[pa.RecordBatch]:
    """Yield the batches; raise `error(column)` at a value that `fixed_rows` refuses."""
    pairs = zip(schema.fields, arrow_schema(schema), fixed_schema(schema), strict=True)
    columns = [column for column, plain, fixed in pairs if not plain.type.equals(fixed.type)]
    names = [column.name for column in columns]
    for batch in batches:
        if columns:
            fixed_rows(batch.select(names), columns, error)
        yield batch


def has_default(field: StructField) -> bool:
    """Return whether a column gets values if data omits it: a default, identity, generated."""
    counts = field.is_identity
    return field.metadata.get(CURRENT_DEFAULT) is not None or counts or is_generated(field)


def with_default(field: StructField, text: str) -> StructField:
    """Return a column of a table with a default.

    Raises
    ------
    InvalidInputError
        Its values are generated, or the default cannot be evaluated as its type.
    """
    if field.is_identity or is_generated(field):
        raise InvalidInputError(
            argument="column",
            field=field.name,
            reason=f"the values of column {field.name} are generated",
            remedy="Choose another column",
        )
    new = replace(field, metadata={**field.metadata, CURRENT_DEFAULT: text})
    try:
        default_value(new)
    except UnsupportedFeatureError as error:
        raise InvalidInputError(
            argument="default",
            field=field.name,
            reason=f"{text} cannot be evaluated as {type_name(field.type)}",
            remedy="Write a constant, or an expression of constants",
        ) from error
    return new


def default_value(field: StructField) -> pa.Scalar:
    """Return the value of a column that data omits: its default, else null.

    Raises
    ------
    UnsupportedFeatureError
        txlog cannot evaluate the default. The error names the column and the default.
    """
    target = arrow_type(field.type)
    text = field.metadata.get(CURRENT_DEFAULT)
    if text is None:
        return arrow_scalar(None, target)
    try:
        bound, kind = bind_value(fixed_in_time(parse_sql(str(text))), StructType())
        rounds = is_number(kind) and field.type in (PrimitiveType("float"), PrimitiveType("double"))
        if rounds or (field.type == STRING and is_castable(kind, STRING)):
            bound, _ = bind_value(Cast(bound, field.type), StructType())
        if isinstance(bound, Literal) and bound.value is None:
            return arrow_scalar(None, target)
        values = evaluate(bound, pa.table({"row": pa.nulls(1)}))
        if isinstance(values, pa.ChunkedArray):
            values = values.combine_chunks()
        return cast_array(values, field.type, target)[0]
    except (InvalidInputError, pa.ArrowException, ValueError) as error:
        reason = reason_of(error)
        raise UnsupportedFeatureError(
            features=("allowColumnDefaults",),
            field=field.name,
            reason=f"the data omits column {field.name}, and txlog cannot evaluate its default "
            f"{text} as {type_name(field.type)}: {reason}",
            remedy=f"Give the column {field.name} a value in each row",
        ) from error


def require_no_null(array: pa.Array, field: StructField, name: str) -> None:
    """Raise if a NOT NULL column or one of its nested NOT NULL fields has nulls.

    The fields of a null struct are not checked.

    Raises
    ------
    SchemaMismatchError
        The error names the column or field.
    """
    if not field.nullable and array.null_count:
        raise SchemaMismatchError(
            argument="data",
            field=name,
            reason=f"column {name} must not be null, but {array.null_count} values are",
            remedy="Fill or drop these rows before writing",
        )
    if isinstance(field.type, ArrayType) and pa.types.is_list(array.type):
        element = StructField("element", field.type.element, field.type.contains_null)
        require_no_null(pc.list_flatten(array), element, f"{name}.element")
    if isinstance(field.type, MapType) and pa.types.is_map(array.type):
        value = StructField("value", field.type.value, field.type.value_contains_null)
        if _has_required(StructType((value,))):
            require_no_null(map_entries(array)[1], value, f"{name}.value")
    if isinstance(field.type, StructType) and _has_required(field.type):
        present = array.filter(array.is_valid()) if array.null_count else array
        for position, inner in enumerate(field.type.fields):
            require_no_null(present.field(position), inner, f"{name}.{inner.name}")


def _has_required(kind: StructType) -> bool:
    return any(
        not field.nullable
        or isinstance(field.type, ArrayType | MapType)
        or (isinstance(field.type, StructType) and _has_required(field.type))
        for field in kind.fields
    )
