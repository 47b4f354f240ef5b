"""The types of the Delta protocol as values, and the type changes that field metadata records.

Rules: the Delta protocol, "Type Widening". Columns of type `void` have only nulls, and data files
omit them: "Primitive Types".
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import pyarrow as pa

from txlog.base.errors import InvalidInputError, UnsupportedFeatureError
from txlog.base.threads import cached_property

WHOLE_NUMBERS = ("byte", "short", "integer", "long")  # The narrowest type first.
# The change data column that names a row's change: insert, delete, update.
CHANGE_TYPE = "_change_type"
CURRENT_DEFAULT = "CURRENT_DEFAULT"  # A field's metadata: the SQL text of its default value.
SIZED_TEXT = "__CHAR_VARCHAR_TYPE_STRING"  # The type with CHAR(n) and VARCHAR(n) in SQL.
GENERATION = "delta.generationExpression"  # The SQL text of the expression of a generated column.
IDENTITY = "delta.identity."  # The prefix of the metadata keys of identity columns.
NANOS = ("timestamp_nanos", "timestamp_nanos_ntz")  # Timestamps in nanoseconds.
TYPE_CHANGES = "delta.typeChanges"  # A field's metadata: how its type was widened.

PRIMITIVES = frozenset(
    {
        "string", "long", "integer", "short", "byte", "float", "double", "boolean", "binary",
        "date", "timestamp", "timestamp_ntz", *NANOS, "void", "variant",
    }
)  # fmt: skip

# SQL type names, by the names that sqlglot and Spark use.
SQL_NAMES = {
    "DATE": "date", "TIMESTAMP": "timestamp", "TIMESTAMPTZ": "timestamp",
    "TIMESTAMPLTZ": "timestamp", "TIMESTAMPNTZ": "timestamp_ntz",
    "TIMESTAMP_NTZ": "timestamp_ntz", "TINYINT": "byte",
    "SMALLINT": "short", "INT": "integer", "BIGINT": "long", "FLOAT": "float", "DOUBLE": "double",
    "BOOLEAN": "boolean", "TEXT": "string", "VARCHAR": "string", "BINARY": "binary",
}  # fmt: skip

_SQL_NAMES_OF = {
    "long": "BIGINT", "integer": "INT", "short": "SMALLINT", "byte": "TINYINT",
    "timestamp_ntz": "TIMESTAMP_NTZ",
}  # fmt: skip

# The interval types: year-month and day-time.
_OF_MONTHS = ("year", "month")
_OF_TIME = ("day", "hour", "minute", "second")
MONTH_INTERVALS, TIME_INTERVALS = (
    frozenset(
        f"interval {first}" if first == last else f"interval {first} to {last}"
        for index, first in enumerate(units)
        for last in units[index:]
    )
    for units in (_OF_MONTHS, _OF_TIME)
)


@dataclass(frozen=True)
class PrimitiveType:
    """A type without parameters, named as in the protocol (`long`, `timestamp_ntz`, …).

    Intervals are named as Spark names them (`interval day to second`).
    """

    name: str


@dataclass(frozen=True)
class DecimalType:
    """A decimal of up to 38 digits, `scale` of them after the point."""

    precision: int
    scale: int


@dataclass(frozen=True)
class ArrayType:
    """A list."""

    element: DataType
    contains_null: bool = True


@dataclass(frozen=True)
class MapType:
    """A map; keys are never null."""

    key: DataType
    value: DataType
    value_contains_null: bool = True


@dataclass(frozen=True)
class StructField:
    """A named column. `metadata` is kept verbatim: its values may be any JSON."""

    name: str
    type: DataType
    nullable: bool = True
    metadata: Mapping[str, Any] = field(default_factory=dict, hash=False)

    @property
    def physical_name(self) -> str:
        """The name in data files, statistics and partition values under column mapping."""
        return str(self.metadata.get("delta.columnMapping.physicalName", self.name))

    def name_in_files(self, mode: str) -> str:
        """Return the name in data files for a column mapping mode: `none`, `name` or `id`."""
        return self.name if mode == "none" else self.physical_name

    @property
    def is_identity(self) -> bool:
        """Whether this is an identity column, which generates values for rows that omit it."""
        return f"{IDENTITY}step" in self.metadata

    @property
    def field_id(self) -> int | None:
        """The Parquet field id under column mapping."""
        value = self.metadata.get("delta.columnMapping.id")
        return value if type(value) is int else None


@dataclass(frozen=True)
class StructType:
    """An ordered list of columns, whose names differ by more than case."""

    fields: tuple[StructField, ...] = ()

    def __reduce__(self) -> tuple[type[StructType], tuple[tuple[StructField, ...]]]:
        return StructType, (self.fields,)  # Without the cached names.

    def names(self) -> list[str]:
        """Return the column names in order."""
        return [f.name for f in self.fields]

    def get(self, name: str) -> StructField | None:
        """Return the column of exactly this name, else the one whose name differs only in case."""
        exact, folded = self._by_name
        return exact.get(name) or folded.get(name.lower())

    def along(self, path: Sequence[str]) -> list[StructField]:
        """Return the fields on a path through structs, up to the first name that is not there."""
        kind: DataType = self
        found: list[StructField] = []
        for name in path:
            field = kind.get(name) if isinstance(kind, StructType) else None
            if field is None:
                break
            found.append(field)
            kind = field.type
        return found

    @cached_property
    def _by_name(self) -> tuple[dict[str, StructField], dict[str, StructField]]:
        backwards = self.fields[::-1]  # If names are equal, the first column counts.
        exact = {f.name: f for f in backwards}
        return exact, {f.name.lower(): f for f in backwards}  # As in Java, ß stays ß.


DataType: TypeAlias = PrimitiveType | DecimalType | ArrayType | MapType | StructType

STRING = PrimitiveType("string")
LONG = PrimitiveType("long")


def as_nullable(fields: Iterable[StructField]) -> tuple[StructField, ...]:
    """Return fields of the same types, all of whose values, also nested ones, may be null."""
    return tuple(replace(field, type=_as_nullable(field.type), nullable=True) for field in fields)


def _as_nullable(kind: DataType) -> DataType:
    match kind:
        case StructType(fields):
            return StructType(as_nullable(fields))
        case ArrayType(element):
            return ArrayType(_as_nullable(element))
        case MapType(key, value):
            return MapType(_as_nullable(key), _as_nullable(value))
    return kind


def fields_at(schema: StructType, path: Sequence[str], *, argument: str) -> list[StructField]:
    """Return the fields on a path through structs; the last one is that of the path.

    Raises
    ------
    InvalidInputError
        The caller's argument names a column or field that is not there.
    """
    found = schema.along(path)
    if len(found) < len(path):
        above = [field.name for field in found]
        kind = found[-1].type if found else schema
        name, *below = path[len(found) :]
        raise no_field(kind, name, above, below, argument=argument)
    return found


def no_field(
    kind: DataType, name: str, above: Sequence[str], below: Sequence[str] = (), *, argument: str
) -> InvalidInputError:
    """Return the error that a type has no field of a name.

    The path `above` leads to the type; `below` is what follows the name in the caller's path.
    """
    fields = kind.names() if isinstance(kind, StructType) else []
    names = [".".join((*above, one)) for one in fields]
    place = f"{'.'.join(above)} has no field {name}" if above else f"the table has no column {name}"
    remedy = f"Choose from {', '.join(names)}" if names else ""
    if not isinstance(kind, StructType):
        place += f": its type is {type_name(kind)}"
        whole = f"Name {'.'.join(above)} itself"
        # `alter` also names what is in arrays and maps.
        remedy = "Write LIST.element, MAP.key or MAP.value" if argument == "column" else whole
    return InvalidInputError(
        argument=argument,
        field=".".join((*above, name, *below)),
        reason=place,
        remedy=remedy,
    )


def sql_name(kind: DataType) -> str:
    """Return the name of a type as Spark's SQL writes it in a cast (`BIGINT`)."""
    name = type_name(kind)
    return _SQL_NAMES_OF.get(name, name.upper())


def type_name(kind: DataType) -> str:
    """Return the SQL text of a type, for messages (`array<long>`)."""
    match kind:
        case PrimitiveType(name):
            return name
        case DecimalType(precision, scale):
            return f"decimal({precision},{scale})"
        case ArrayType(element):
            return f"array<{type_name(element)}>"
        case MapType(key, value):
            return f"map<{type_name(key)},{type_name(value)}>"
        case StructType(fields):
            return f"struct<{','.join(f'{f.name}:{type_name(f.type)}' for f in fields)}>"


def types_in(schema: StructType) -> Iterator[DataType]:
    """Yield the types of all columns and, recursively, the types inside them."""
    waiting: list[Any] = [field.type for field in schema.fields]
    while waiting:
        kind = waiting.pop()
        yield kind
        match kind:
            case StructType(inner):
                waiting.extend(field.type for field in inner)
            case ArrayType(element):
                waiting.append(element)
            case MapType(key, value):
                waiting.extend((key, value))


_DECIMAL = re.compile(r"decimal\((\d+),(\d+)\)")
# Decimal digits that the values need. The protocol asks for more, but real tables have fewer.
_DIGITS = {"byte": 3, "short": 5, "integer": 10, "long": 19}


def is_widening(old: str, new: str) -> bool:
    """Return whether the protocol allows a type change, given the names of both types."""
    if old in WHOLE_NUMBERS and new in WHOLE_NUMBERS:
        return WHOLE_NUMBERS.index(old) < WHOLE_NUMBERS.index(new)
    if (old, new) in {("float", "double"), ("date", "timestamp_ntz")}:
        return True
    if new == "double":
        return old in ("byte", "short", "integer")
    wide = _DECIMAL.fullmatch(new)
    if wide is None:
        return False
    precision, scale = int(wide[1]), int(wide[2])
    if old in _DIGITS:
        return precision - scale >= _DIGITS[old]
    narrow = _DECIMAL.fullmatch(old)
    if narrow is None:
        return False
    more_scale = scale - int(narrow[2])
    return more_scale >= 0 and precision - int(narrow[1]) >= more_scale


def require_known_changes(schema: StructType, *, path: str) -> None:
    """Raise if a table records a type change that is not in the protocol's list.

    Raises
    ------
    UnsupportedFeatureError
        The error names all such columns and their changes.
    """
    odd = [
        f"{name}: {change.get('fromType')} to {change.get('toType')}"
        for name, change in recorded_changes(schema)
        if not is_widening(str(change.get("fromType")), str(change.get("toType")))
    ]
    if odd:
        raise UnsupportedFeatureError(
            path=path,
            features=("typeWidening",),
            reason="the table records type changes that the protocol does not allow: "
            f"{'; '.join(odd)}",
            remedy="Read the table with the engine that made the change",
        )


def recorded_changes(schema: StructType) -> list[tuple[str, dict[str, Any]]]:
    """Return the changes of types that columns record, each with the column's dotted name."""
    return _changes("", schema)


def _changes(prefix: str, kind: DataType) -> list[tuple[str, dict[str, Any]]]:
    match kind:
        case StructType(fields):
            return [change for field in fields for change in _of_field(prefix, field)]
        case ArrayType(element):
            return _changes(f"{prefix}element.", element)
        case MapType(key, value):
            return _changes(f"{prefix}key.", key) + _changes(f"{prefix}value.", value)
    return []


def _of_field(prefix: str, field: StructField) -> list[tuple[str, dict[str, Any]]]:
    name = f"{prefix}{field.name}"
    own = field.metadata.get(TYPE_CHANGES) or ()
    recorded = [(name, change) for change in own if isinstance(change, dict)]
    return recorded + _changes(f"{name}.", field.type)


def same_names(kind: DataType, prefix: str = "") -> Iterator[tuple[str, str]]:
    """Yield pairs of fields of one struct, at any depth, whose names are equal but for case.

    Spark takes such names for one name, and then reads neither field. The names are dotted.
    """
    match kind:
        case StructType(fields):
            first: dict[str, str] = {}
            for field in fields:
                name = f"{prefix}{field.name}"
                folded = field.name.lower()
                if folded in first:
                    yield first[folded], name
                first.setdefault(folded, name)
                yield from same_names(field.type, f"{name}.")
        case ArrayType(element):
            yield from same_names(element, f"{prefix}element.")
        case MapType(key, value):
            yield from same_names(key, f"{prefix}key.")
            yield from same_names(value, f"{prefix}value.")


def columns_named(schema: StructType, names: Iterable[str], *, argument: str) -> list[StructField]:
    """Return the columns of a schema that a caller names in any case, each of them once.

    Raises
    ------
    InvalidInputError
        There is no column of a name, or two names mean one column.
    """
    found: list[StructField] = []
    for name in names:
        column = schema.get(name) if isinstance(name, str) else None
        if column is None:
            raise InvalidInputError(
                argument=argument,
                field=str(name),
                reason="the schema has no such column",
                remedy=f"Choose from {', '.join(schema.names())}",
            )
        if any(column is other for other in found):
            raise InvalidInputError(
                argument=argument,
                field=name,
                reason=f"the column {column.name} is named twice",
                remedy="Name each column once",
            )
        found.append(column)
    return found


def require_columns(schema: StructType) -> None:
    """Raise if a new table's schema has no columns, or two fields with one name.

    Raises
    ------
    InvalidInputError
        There are no columns, the name of one is empty, or the names of two columns, or of two
        fields of one struct, are equal ignoring case.
    """
    if not schema.fields:
        raise InvalidInputError(
            argument="schema",
            reason="a table needs at least one column",
            remedy="Pass data or a schema with columns",
        )
    for first, second in same_names(schema):
        raise InvalidInputError(
            argument="schema",
            field=second,
            reason=f"{second} occurs twice"
            if first == second
            else f"{first} and {second} have names that differ only in case",
            remedy="Rename one of them",
        )
    for column in schema.fields:
        if not column.name:
            raise InvalidInputError(
                argument="schema",
                field=column.name,
                reason="a column name must not be empty",
                remedy="Rename the column in the data",
            )


VOID = PrimitiveType("void")


def has_void(kind: DataType) -> bool:
    """Return whether a type is void or contains void at any depth."""
    match kind:
        case StructType(fields):
            return any(has_void(field.type) for field in fields)
        case ArrayType(element):
            return has_void(element)
        case MapType(key, value):
            return has_void(key) or has_void(value)
    return kind == VOID


def stored_fields(fields: Sequence[StructField]) -> tuple[StructField, ...]:
    """Return the fields that data files hold: all except those of type void."""
    return tuple(
        replace(field, type=StructType(stored_fields(field.type.fields)))
        if isinstance(field.type, StructType) and has_void(field.type)
        else field
        for field in fields
        if field.type != VOID
    )


def stored_batch(batch: pa.RecordBatch, schema: StructType) -> pa.RecordBatch:
    """Return a batch without its void columns; the same batch if it has none."""
    if not has_void(schema):
        return batch
    kept = [
        (field.name, _stored(batch.column(position), field.type))
        for position, field in enumerate(schema.fields)
        if field.type != VOID
    ]
    fields = [pa.field(name, array.type, batch.schema.field(name).nullable) for name, array in kept]
    return pa.RecordBatch.from_arrays([array for _, array in kept], schema=pa.schema(fields))


def _stored(array: pa.Array, kind: DataType) -> pa.Array:
    if not isinstance(kind, StructType) or not has_void(kind):
        return array
    kept = [
        (array.type.field(position), _stored(array.field(position), field.type))
        for position, field in enumerate(kind.fields)
        if field.type != VOID
    ]
    return pa.StructArray.from_arrays(
        [child for _, child in kept],
        fields=[field.with_type(child.type) for field, child in kept],
        mask=array.is_null() if array.null_count else None,
    )


def unstorable(fields: Sequence[StructField], prefix: str = "") -> Iterator[str]:
    """Yield the dotted names of columns that no data file can hold, such as arrays of void.

    `fields` are those of a whole table. The caller must refuse a table of only void columns.
    """
    for one in fields:
        name = f"{prefix}{one.name}"
        match one.type:
            case StructType(inner) if inner and all(f.type == VOID for f in inner):
                yield name
            case StructType(inner):
                yield from unstorable(inner, f"{name}.")
            case ArrayType() | MapType() if has_void(one.type):
                yield name
