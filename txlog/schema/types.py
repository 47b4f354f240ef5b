"""The types of the Delta protocol as values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

WHOLE_NUMBERS = ("byte", "short", "integer", "long")  # From the narrowest.
CHANGE_TYPE = "_change_type"  # The column of change data that says what became of a row.
CURRENT_DEFAULT = "CURRENT_DEFAULT"  # In a field's metadata, the SQL text of its default value.
GENERATION = "delta.generationExpression"  # The same, of the expression of all its values.
TYPE_CHANGES = "delta.typeChanges"  # In a field's metadata, how its type was widened.

PRIMITIVES = frozenset(
    {
        "string", "long", "integer", "short", "byte", "float", "double", "boolean", "binary",
        "date", "timestamp", "timestamp_ntz", "void", "variant",
    }
)  # fmt: skip

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


@dataclass(frozen=True, slots=True)
class PrimitiveType:
    """A type without parameters, by the protocol's name (`long`, `timestamp_ntz`, …).

    Intervals are named as Spark names them (`interval day to second`).
    """

    name: str


@dataclass(frozen=True, slots=True)
class DecimalType:
    """A decimal of up to 38 digits, `scale` of them after the point."""

    precision: int
    scale: int


@dataclass(frozen=True, slots=True)
class ArrayType:
    """A list."""

    element: DataType
    contains_null: bool = True


@dataclass(frozen=True, slots=True)
class MapType:
    """A map; keys are never null."""

    key: DataType
    value: DataType
    value_contains_null: bool = True


@dataclass(frozen=True, slots=True)
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
        """Return the name in data files under a table's column mapping: `none`, `name` or `id`."""
        return self.name if mode == "none" else self.physical_name

    @property
    def field_id(self) -> int | None:
        """The Parquet field id under column mapping."""
        value = self.metadata.get("delta.columnMapping.id")
        return value if type(value) is int else None


@dataclass(frozen=True, slots=True)
class StructType:
    """An ordered list of columns, whose names differ by more than case."""

    fields: tuple[StructField, ...] = ()

    def names(self) -> list[str]:
        """Return the column names in order."""
        return [f.name for f in self.fields]

    def get(self, name: str) -> StructField | None:
        """Return the column of exactly this name, else the one that differs only by case."""
        for f in self.fields:
            if f.name == name:
                return f
        folded = name.lower()  # Like Java's toLowerCase: ß stays ß.
        for f in self.fields:
            if f.name.lower() == folded:
                return f
        return None


DataType: TypeAlias = PrimitiveType | DecimalType | ArrayType | MapType | StructType

STRING = PrimitiveType("string")
LONG = PrimitiveType("long")


def type_name(kind: DataType) -> str:
    """Return a type as SQL would write it, for messages (`array<long>`)."""
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
