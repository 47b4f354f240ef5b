"""Options of verbs that write data files, and arguments in the forms that callers pass."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from txlog.data_files.parquet import DEFAULT, WriterProperties
from txlog.data_files.write import TARGET_FILE_BYTES
from txlog.errors import InvalidInputError, InvalidTypeError
from txlog.expressions.tree import col
from txlog.protocol.properties import Properties
from txlog.schema.arrow import from_arrow
from txlog.schema.types import (
    GENERATION,
    ArrayType,
    DataType,
    DecimalType,
    MapType,
    PrimitiveType,
    StructField,
    StructType,
)


@dataclass(frozen=True)
class WriteOptions:
    """How large data files may be, and how they are encoded."""

    target_file_bytes: int | None = None
    max_rows_per_file: int | None = None
    writer_properties: WriterProperties | None = None

    def __post_init__(self) -> None:
        for name in ("target_file_bytes", "max_rows_per_file"):
            value = getattr(self, name)
            if value is not None and (type(value) is not int or value < 1):
                kind = InvalidInputError if type(value) is int else InvalidTypeError
                raise kind(
                    argument=name,
                    reason=f"a whole number above 0 was expected, not {value!r}",
                    remedy="Leave it out for the default",
                )
        if not isinstance(self.writer_properties, WriterProperties | None):
            raise InvalidTypeError(
                argument="writer_properties",
                reason="txlog.WriterProperties were expected, not "
                f"{type(self.writer_properties).__name__}",
                remedy='Pass for example txlog.WriterProperties(compression="zstd")',
            )

    @property
    def encoding(self) -> WriterProperties:
        """How files are encoded: as asked for, or by default."""
        return self.writer_properties or DEFAULT

    @property
    def file_bytes(self) -> int:
        """About how large files become: as asked for, or by default."""
        return self.target_file_bytes or TARGET_FILE_BYTES

    def of_optimize(self, properties: Properties) -> WriteOptions:
        """Return the options by which a table's files are written anew, which properties say."""
        asked = self.target_file_bytes or properties.get("delta.targetFileSize")
        return replace(self, target_file_bytes=asked)


def as_schema(schema: pa.Schema | StructType) -> StructType:
    """Return a Delta schema of a Delta or an Arrow schema.

    Raises
    ------
    InvalidTypeError
        It is not a schema.
    InvalidInputError
        It has a type that no Delta table holds.
    """
    if isinstance(schema, StructType):
        return schema
    if isinstance(schema, pa.Schema):
        return from_arrow(schema)
    if hasattr(schema, "__arrow_c_schema__"):
        return from_arrow(pa.schema(schema))
    raise InvalidTypeError(
        argument="schema",
        reason=f"a pyarrow.Schema was expected, not {type(schema).__name__}",
        remedy="Pass pa.schema([(name, type), …])",
    )


def with_generated(schema: StructType, generated: Mapping[str, str] | None) -> StructType:
    """Return a schema in which columns have the expressions of their values.

    Raises
    ------
    InvalidInputError
        There is no such column, or an expression is not text.
    """
    for name, text in (generated or {}).items():
        if schema.get(name) is None or not isinstance(text, str):
            raise InvalidInputError(
                argument="generated",
                field=str(name),
                reason="the schema has no such column"
                if isinstance(text, str)
                else f"SQL text was expected, not {type(text).__name__}",
                remedy=f"Choose from {', '.join(schema.names())}",
            )
    texts = {name.lower(): text for name, text in (generated or {}).items()}
    return StructType(
        tuple(
            replace(field, metadata={**field.metadata, GENERATION: texts[field.name.lower()]})
            if field.name.lower() in texts
            else field
            for field in schema.fields
        )
    )


def as_type(kind: pa.DataType | DataType) -> DataType:
    """Return a Delta type of a Delta or an Arrow type.

    Raises
    ------
    InvalidTypeError
        It is not a type.
    InvalidInputError
        No Delta table holds it.
    """
    if isinstance(kind, pa.DataType):
        return from_arrow(pa.schema([pa.field("column", kind)])).fields[0].type
    if isinstance(kind, PrimitiveType | DecimalType | ArrayType | MapType | StructType):
        return kind
    raise InvalidTypeError(
        argument="type",
        reason=f"a pyarrow.DataType was expected, not {type(kind).__name__}",
        remedy="Pass for example pa.int64()",
    )


def new_fields(columns: Any) -> list[tuple[tuple[str, ...], StructField]] | None:
    """Return columns that are given by types alone, each with the path of its struct.

    None if they have values.
    """
    if isinstance(columns, pa.Field | StructField):
        columns = [columns]
    if isinstance(columns, pa.Schema):
        columns = list(columns)
    if isinstance(columns, StructType):
        columns = columns.fields
    if isinstance(columns, Mapping):
        if not columns or not all(isinstance(kind, pa.DataType) for kind in columns.values()):
            return None
        columns = [pa.field(name, kind) for name, kind in columns.items()]
    if not isinstance(columns, list | tuple) or not columns:
        return None
    if not all(isinstance(one, pa.Field | StructField) for one in columns):
        return None
    fields = [
        one if isinstance(one, StructField) else from_arrow(pa.schema([one])).fields[0]
        for one in columns
    ]
    paths = [col(field.name).path for field in fields]
    return [
        (path[:-1], replace(field, name=path[-1]))
        for path, field in zip(paths, fields, strict=True)
    ]


def as_names(names: Sequence[str] | str | None) -> tuple[str, ...]:
    """Return column names as a tuple; one name may come alone.

    Raises
    ------
    InvalidTypeError
        It is something else than names.
    """
    if names is None:
        return ()
    listed = (names,) if isinstance(names, str) else names
    if not isinstance(listed, Sequence) or not all(isinstance(name, str) for name in listed):
        raise InvalidTypeError(
            argument="partition_by",
            reason=f"column names were expected, not {names!r}",
            remedy="Pass a list of names, or one name",
        )
    return tuple(listed)


def write_options(
    target_file_bytes: int | None = None,
    max_rows_per_file: int | None = None,
    writer_properties: WriterProperties | None = None,
) -> WriteOptions:
    """Return the options of a write; None means the default."""
    return WriteOptions(target_file_bytes, max_rows_per_file, writer_properties)
