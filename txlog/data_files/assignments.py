"""The values that an update assigns to columns and to nested fields. Pure.

Numbers follow the rule of all verbs, `is_storable`. Text follows the store assignment rules of ANSI
SQL, as Spark applies them to UPDATE and MERGE.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from struct import pack, unpack
from typing import Any

import pyarrow as pa

from txlog.base.arrow import pc
from txlog.base.columns import flat
from txlog.base.errors import InvalidInputError, SchemaMismatchError, of_argument
from txlog.base.threads import cached_property
from txlog.data_files.constraints import is_generated
from txlog.data_files.identity import identity_of
from txlog.data_files.incoming import (
    CORRECT,
    fit_column,
    is_storable,
    lacking_fields,
    require_whole_structs,
)
from txlog.expressions.bind import bind_value, columns_of
from txlog.expressions.calls import fixed_in_time
from txlog.expressions.evaluate import evaluate
from txlog.expressions.sql import parse_sql
from txlog.expressions.tree import (
    Call,
    Cast,
    Column,
    Expression,
    Lambda,
    Literal,
    Variable,
    Zoned,
    col,
    in_zone,
    lit,
)
from txlog.expressions.type_rules import FLOATS, VOID, is_castable
from txlog.schema.arrow import arrow_field, arrow_schema
from txlog.schema.blobs import is_blob
from txlog.schema.types import (
    STRING,
    ArrayType,
    DataType,
    PrimitiveType,
    StructField,
    StructType,
    fields_at,
    type_name,
)

Updates = Mapping[str, Any]
"""Names of columns (`st.b` for a nested field) with SQL text or expressions."""


@dataclass(frozen=True)
class Assignment:
    """The new value of a field in each row."""

    path: tuple[str, ...]
    field: StructField  # The field at the path.
    value: Expression  # Bound; it has the field's type or a type that can be stored in it.
    part: StructType | None = None  # The value's type, if structs keep fields that it lacks.


@dataclass(frozen=True)
class Assignments:
    """The assignments of an update. It pickles."""

    schema: StructType  # The table's.
    values: tuple[Assignment, ...]

    @cached_property
    def reads(self) -> frozenset[str]:
        """The columns from which values are computed."""
        return frozenset(path[0] for one in self.values for path in columns_of(one.value))

    def of(self, rows: pa.RecordBatch, source: pa.RecordBatch | None = None) -> pa.RecordBatch:
        """Return rows with the new values in the table's columns.

        Generated columns without an assignment are omitted, because they are computed later.

        Parameters
        ----------
        rows
            The old rows. Missing columns count as null.
        source
            The rows from which the values are computed. Default: `rows`.

        Raises
        ------
        SchemaMismatchError
            A value does not fit its column.
        InvalidInputError
            A value cannot be computed.
        """
        data = rows if source is None else source
        given = {one.path: self._value(one, data, rows) for one in self.values}
        schema = arrow_schema(StructType(self._written))
        inside = self._changed_inside
        arrays = [
            _assigned(_column(rows, field), (field.name,), field, given, inside)
            for field in self._written
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=schema)

    @cached_property
    def _changed_inside(self) -> frozenset[tuple[str, ...]]:
        """The paths of the structs whose fields are assigned."""
        return frozenset(one.path[:n] for one in self.values for n in range(1, len(one.path)))

    @cached_property
    def _written(self) -> tuple[StructField, ...]:
        """All columns except generated ones without an assignment, which are computed later."""
        given = {one.path[0] for one in self.values}
        return tuple(f for f in self.schema.fields if f.name in given or not is_generated(f))

    def alone(self, data: pa.RecordBatch) -> pa.RecordBatch:
        """Return only the assigned values, as columns of new rows. Errors as for `of`.

        Fields of structs that the values lack are null.
        """
        fields = [one.field for one in self.values]
        arrays = [self._value(one, data) for one in self.values]
        return pa.RecordBatch.from_arrays(arrays, schema=arrow_schema(StructType(tuple(fields))))

    @property
    def keeps(self) -> frozenset[str]:
        """The columns that keep at least a part of their old values."""
        given = {one.path[0] for one in self.values if len(one.path) == 1 and one.part is None}
        return frozenset(field.name for field in self._written) - given

    def _value(
        self, one: Assignment, data: pa.RecordBatch, rows: pa.RecordBatch | None = None
    ) -> pa.Array:
        is_given = isinstance(one.value, Column | Literal)
        as_type = f"{_as_type(one.field.type)}, or correct values that this type cannot hold"
        remedy = CORRECT if is_given else as_type
        name = ".".join(one.path)
        try:
            with of_argument("updates", name):
                values = flat(evaluate(one.value, data))
        except InvalidInputError as error:
            if not isinstance(one.value, Literal):
                raise
            raise _unfit(
                name,
                f"{one.value.value!r} does not fit column {name}, which is "
                f"{type_name(one.field.type)}",
                CORRECT,
            ) from error
        if one.part is not None and rows is not None:
            own = _column(rows, next(f for f in self.schema.fields if f.name == one.path[0]))
            for name in one.path[1:]:
                own = _field_of(own, name)
            values = _with_own_fields(values, one.part, own, one.field.type)
        return fit_column(values, one.field, remedy=remedy)


def _column(rows: pa.RecordBatch, field: StructField) -> pa.Array:
    at = rows.schema.get_field_index(field.name)  # `names` makes a list of all names.
    if at >= 0:
        return rows.column(at)
    return pa.nulls(rows.num_rows, arrow_field(field).type)


def _field_of(array: pa.Array, name: str) -> pa.Array:
    """Return a field of structs; nulls if they are older than the field."""
    at = -1 if pa.types.is_null(array.type) else array.type.get_field_index(name)
    # By its place, because Arrow takes names such as `.a` for paths.
    return pa.nulls(len(array)) if at < 0 else pc.struct_field(array, [at])


def _with_own_fields(
    values: pa.Array, kind: DataType, own: pa.Array, own_kind: DataType
) -> pa.Array:
    """Return new values of which structs get the fields that they lack from the old values.

    A null struct stays null. Structs in arrays and maps have no old values.
    """
    if not (isinstance(kind, StructType) and isinstance(own_kind, StructType)):
        return values
    children, names = [], []
    for field in own_kind.fields:
        old, given = _field_of(own, field.name), kind.get(field.name)
        if given is not None:
            new = _field_of(values, given.name)
            old = _with_own_fields(new, given.type, old, field.type)
        children.append(old)
        names.append(field.name)
    return pa.StructArray.from_arrays(children, names, mask=pc.is_null(values))


def _assigned(
    array: pa.Array,
    path: tuple[str, ...],
    field: StructField,
    given: Mapping[tuple[str, ...], pa.Array],
    changed_inside: frozenset[tuple[str, ...]],
) -> pa.Array:
    """Return a column with the values that are assigned to it or to its fields.

    If a field of a null struct gets a value, the other fields of the struct become null.
    """
    if path in given:
        return given[path]
    if path not in changed_inside:
        same = array.type == arrow_field(field).type
        return array if same else fit_column(array, field)  # Its structs lack new fields.
    assert isinstance(field.type, StructType)
    children = [
        _assigned(_field_of(array, inner.name), (*path, inner.name), inner, given, changed_inside)
        for inner in field.type.fields
    ]
    return pa.StructArray.from_arrays(
        children, fields=[arrow_field(inner) for inner in field.type.fields]
    )


def assignments(
    updates: Updates | None,
    new_values: Updates | None,
    schema: StructType,
    *,
    source: StructType | None = None,
    error_on_type_mismatch: bool = True,
    formats: bool = True,
    keeps_fields: bool = False,
    argument: str = "updates",
    zone: str | None = None,
) -> Assignments:
    """Return the bound assignments of an update.

    Parameters
    ----------
    updates
        Names with SQL text or expressions.
    new_values
        Names with Python values.
    schema
        The table's.
    source
        The columns that expressions may read. Default: the table's.
    error_on_type_mismatch
        If false, a value is cast to the type of its column, and null where that fails.
    zone
        The time zone of expressions. Default: UTC.
    formats
        Whether simple values may be stored as text, as those that SQL computes.
    keeps_fields
        Whether structs may lack fields of their column, at any depth. Those of a struct keep their
        old value, and are null in a new row; those of structs in arrays and maps are null.
    argument
        What the caller calls the values, for the error about fields that they lack.

    Raises
    ------
    InvalidInputError
        A column or field does not exist or is assigned twice, or a value cannot be parsed.
    SchemaMismatchError
        The type of a value cannot be stored in the column, or its structs lack fields.
    """
    named: dict[str, Expression] = {}
    for name, value in (updates or {}).items():
        if not isinstance(value, str | Expression):
            raise _bad(
                str(name),
                f"SQL text or an expression was expected, not {type(value).__name__}",
                "Pass Python values as new_values",
            )
        named[name] = _parsed(name, value, zone)
    for name, value in (new_values or {}).items():
        if name in named:
            raise _bad(name, "the column is in updates and in new_values", "Name it in one of them")
        named[name] = in_zone(lit(value), zone)
    if not named:
        raise _bad(None, "no column is given a value", 'Pass for example {"x": "x + 1"}')
    found = [
        _assignment(
            name,
            value,
            schema,
            source or schema,
            tries=not error_on_type_mismatch,
            formats=formats,
            keeps_fields=keeps_fields,
            argument=argument,
        )
        for name, value in named.items()
    ]
    require_apart([one.path for one in found])
    return Assignments(schema, tuple(found))


def _parsed(name: str, value: str | Expression, zone: str | None) -> Expression:
    try:
        parsed = parse_sql(value) if isinstance(value, str) else value
        return fixed_in_time(in_zone(parsed, zone))
    except InvalidInputError as error:
        error.argument, error.field = "updates", name
        raise


def _assignment(
    name: str,
    value: Expression,
    schema: StructType,
    source: StructType,
    *,
    tries: bool,
    formats: bool,
    keeps_fields: bool,
    argument: str,
) -> Assignment:
    path, field = target_field(col(name).path, schema)
    try:
        bound, kind = bind_value(value, source)
    except InvalidInputError as error:
        error.argument = "updates"
        error.field = error.field or name
        raise
    tried = _tried(value, kind, field.type, source) if tries else None
    if tried is None and isinstance(value, Zoned) and _is_other_time(kind, field.type, formats):
        bound, kind = bind_value(_cast(value, field.type), source)
    if tried is None:
        tried = _stored_as(bound, kind, field, ".".join(path), formats=formats)
    part = None
    if not keeps_fields:
        require_whole_structs(kind, field.type, ".".join(path), argument=argument)
    elif isinstance(kind, StructType) and any(lacking_fields(kind, field.type, name)):
        part = kind
    return Assignment(path, field, tried, part)


_TIMES = frozenset(PrimitiveType(name) for name in ("date", "timestamp", "timestamp_ntz"))


def _is_other_time(kind: DataType, target: DataType, formats: bool) -> bool:
    """Return whether a time is stored as another type of time, or as text."""
    others = _TIMES | ({STRING} if formats else frozenset())
    return kind != target and kind in _TIMES and target in others


def _cast(value: Expression, target: DataType, tried: bool = False) -> Expression:
    """Return a cast in the time zone of a value."""
    if isinstance(value, Zoned):
        return Zoned(Cast(value.operand, target, tried), value.zone)
    return Cast(value, target, tried)


def target_field(named: tuple[str, ...], schema: StructType) -> tuple[tuple[str, ...], StructField]:
    """Return the exact path of an assigned field, and the field."""
    name = ".".join(named)
    fields = fields_at(schema, named, argument="updates")
    field = fields[-1]
    if len(fields) > 1 and is_blob(fields[0]):
        raise _bad(
            name,
            f"column {fields[0].name} is a blob, whose fields belong together",
            f"Assign bytes to {fields[0].name}",
        )
    if field.is_identity and not identity_of(field).explicit:
        raise _bad(
            name,
            f"column {name} is GENERATED ALWAYS AS IDENTITY: the table gives its values",
            f'Omit {name}; if all columns are assigned, pass except_cols=["{name}"]',
        )
    return tuple(one.name for one in fields), field


def _tried(
    value: Expression, kind: DataType, target: DataType, source: StructType
) -> Expression | None:
    """Return a bound value that is null where it cannot be stored; None if txlog has no such cast.

    `value` is of the type `kind` over the columns of `source`, and not bound.
    """
    if kind in (target, VOID):
        return None
    try:
        return bind_value(_cast(value, target, tried=True), source)[0]
    except InvalidInputError:
        return None


def _stored_as(
    value: Expression, kind: DataType, field: StructField, name: str, *, formats: bool
) -> Expression:
    """Return an expression whose values `fit_column` accepts for a field.

    The rule is `is_storable`; with `formats`, text columns take all simple values, too. The same is
    true of elements.
    """
    if kind == field.type:
        return value
    if (
        isinstance(value, Literal)
        and isinstance(field.type, PrimitiveType)
        and _is_kept(value.value, field.type)
    ):
        try:
            return bind_value(Literal(value.value, field.type), StructType())[0]
        except InvalidInputError:
            pass  # A value of another type may still be stored.
    if is_storable(kind, field.type):
        return value
    if field.type == VOID:
        raise untyped(name)
    if isinstance(kind, ArrayType) and isinstance(field.type, ArrayType):
        item = Variable("item", kind.element)
        of_item = replace(field, type=field.type.element)
        body = _stored_as(item, kind.element, of_item, f"{name}.element", formats=formats)
        return Call("transform", (value, Lambda(("item",), body)), field.type)
    if formats and field.type == STRING and is_castable(kind, STRING):
        return Cast(value, STRING)
    raise _unfit(
        name,
        f"{type_name(kind)} cannot be stored in column {name}, which is {type_name(field.type)}",
        _as_type(field.type),
    )


def untyped(name: str) -> SchemaMismatchError:
    """Return the error for a value that is assigned to a column or field of type void."""
    return _unfit(
        name,
        f"column {name} has no type yet (void), so it stores only nulls",
        "Give it a type: with alter.widen_type (ALTER COLUMN … TYPE in SQL), or by data that has "
        'one, which is appended or merged with schema_mode="merge"',
    )


def _is_kept(value: Any, kind: PrimitiveType) -> bool:
    """Return whether a constant keeps its value in a type; a float may be the nearest one."""
    if kind.name not in FLOATS or type(value) not in (int, float):
        return True  # `bind_value` decides.
    try:
        nearest = unpack("<f", pack("<f", value))[0] if kind.name == "float" else float(value)
    except OverflowError:
        return False
    return type(value) is float or int(nearest) == value


def _as_type(kind: DataType) -> str:
    return f"Write CAST(… AS {type_name(kind)})"


def require_apart(paths: Sequence[tuple[str, ...]]) -> None:
    """Raise if a field is assigned twice, or together with a field inside it."""
    counts = Counter(paths)
    for path in paths:
        within = any(path[:length] in counts for length in range(1, len(path)))
        if within or counts[path] > 1:
            raise _bad(".".join(path), "the field is assigned twice", "Name it once")


def _unfit(field: str, reason: str, remedy: str) -> SchemaMismatchError:
    return SchemaMismatchError(argument="updates", field=field, reason=reason, remedy=remedy)


def _bad(field: str | None, reason: str, remedy: str = "") -> InvalidInputError:
    return InvalidInputError(argument="updates", field=field, reason=reason, remedy=remedy)
