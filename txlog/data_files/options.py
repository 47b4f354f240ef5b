"""Options for writing data files, and conversions of other arguments."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from functools import lru_cache
from importlib import import_module
from typing import Any

import pyarrow as pa

from txlog.actions.stats_text import Path
from txlog.base.arrow import pc, pq
from txlog.base.errors import (
    InvalidInputError,
    InvalidTypeError,
    UnsupportedFeatureError,
    require_flags,
)
from txlog.base.thresholds import Threshold
from txlog.expressions.tree import col
from txlog.parquet.file_footer import FileFooter
from txlog.protocol.properties import Properties
from txlog.schema.arrow import (
    from_arrow,
    warn_of_nanos,
    warn_of_types,
    with_given_metadata,
)
from txlog.schema.types import (
    GENERATION,
    ArrayType,
    DataType,
    DecimalType,
    MapType,
    PrimitiveType,
    StructField,
    StructType,
    columns_named,
)

TARGET_FILE_BYTES = 128 * 1024 * 1024
_SAMPLED_ROWS: Threshold = 16 * 1024


_FORM = {"store_schema": False, "write_page_index": True, "write_page_checksum": True}


def parquet_writer(sink: Any, schema: pa.Schema, **arguments: Any) -> pq.ParquetWriter:
    """Return a Parquet writer for an open file, equal to `pyarrow.parquet.ParquetWriter`.

    Importing that class imports the file systems of pyarrow, which takes as long as a small append.

    Raises
    ------
    TypeError
        This version of pyarrow does not support an argument.
    """
    arguments = {**_FORM, **arguments}
    try:
        compiled = import_module("pyarrow._parquet")
        return compiled.ParquetWriter(sink, schema, writer_engine_version="V2", **arguments)
    except (AttributeError, ImportError, TypeError, ValueError):
        # Either an argument is wrong, or this version of pyarrow is different inside.
        return pq.ParquetWriter(sink, schema, **arguments)


@lru_cache(maxsize=64)  # Cached, because this is a large part of the cost of a small append.
def leaf_columns(schema: pa.Schema) -> tuple[str, ...]:
    """Return the paths of the leaf columns of a Parquet file with this schema.

    Raises
    ------
    UnsupportedFeatureError
        A column contains year-month intervals or structs without fields.
    """
    try:
        writer = parquet_writer(pa.BufferOutputStream(), schema)
        writer.close()
    except pa.ArrowNotImplementedError as error:
        raise UnsupportedFeatureError(
            features=("types that Parquet lacks",),
            reason=f"a column's type cannot be written to Parquet: {error}",
            remedy="Write this table with another engine, such as Spark",
        ) from error
    return FileFooter(written_footer(writer), schema).paths


def written_footer(writer: pq.ParquetWriter) -> pq.FileMetaData:
    """Return the footer of a file that a closed writer has written."""
    return getattr(writer, "writer", writer).metadata


def dictionary_columns(leaves: Sequence[str], rows: pa.Table) -> list[str]:
    """Choose the columns to write with a dictionary from the first rows.

    A column with mostly distinct values gets none: the Parquet writer would hash its values until
    the dictionary is full, and then drop it. Nested columns always get one.

    Notes
    -----
    With eight numbers and two strings, half of them ids, writing takes two thirds of the time, and
    files are a seventh smaller, compared with dictionaries for all columns.
    """
    sample = rows.slice(0, _SAMPLED_ROWS)
    diverse = {
        field.name
        for field, column in zip(sample.schema, sample.columns, strict=True)
        if not pa.types.is_nested(field.type) and _is_diverse(column)
    }
    return [leaf for leaf in leaves if leaf not in diverse]


def _is_diverse(column: pa.ChunkedArray) -> bool:
    if len(column) == 1:  # A partition may have a single row.
        return bool(column.null_count == 0)
    try:
        return bool(pc.count_distinct(column, mode="only_valid").as_py() * 2 > len(column))
    except pa.ArrowNotImplementedError:  # This is needed for nulls without a type, for example.
        return False


_CODECS = {"uncompressed": "none", "lz4_raw": "lz4"}
_COMPRESSIONS = ("uncompressed", "snappy", "gzip", "brotli", "zstd", "lz4", "lz4_raw")
_ENCODINGS = (
    "PLAIN", "RLE", "DELTA_BINARY_PACKED", "DELTA_LENGTH_BYTE_ARRAY", "DELTA_BYTE_ARRAY",
    "BYTE_STREAM_SPLIT",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class ColumnProperties:
    """The encoding of a column; None means the writer's default."""

    dictionary_enabled: bool | None = None
    statistics_enabled: bool | None = None  # In footers; the log has its own statistics.
    encoding: str | None = None  # The encoding without a dictionary: PLAIN, DELTA_BINARY_PACKED, …
    # True for a filter of pyarrow's default size, or `{"fpp": 0.01, "ndv": 1_000_000}`.
    bloom_filter: bool | Mapping[str, float | int] | None = None

    def __post_init__(self) -> None:
        if self.encoding is not None and self.encoding.upper() not in _ENCODINGS:
            raise _bad(f"{self.encoding!r} is unknown", f"Choose from {', '.join(_ENCODINGS)}")
        if self.encoding is not None and self.dictionary_enabled:
            raise _bad("an encoding is only used without a dictionary", "Omit one of them")


@dataclass(frozen=True, kw_only=True)
class WriterProperties:
    """The settings with which a verb writes Parquet files; None means the writer's default.

    Parameters
    ----------
    compression
        `zstd`, `snappy`, `gzip`, `brotli`, `lz4` or `uncompressed`. Default: the table's
        `delta.parquet.compression.codec`.
    compression_level
        The level of the compression, from 0.
    max_row_group_size
        Rows.
    data_page_size_limit, dictionary_page_size_limit
        Bytes.
    data_page_row_count_limit, write_batch_size
        Rows.
    allow_truncated_timestamps
        Truncate nanoseconds if a column has microseconds. Default: raise.
    default_column_properties, column_properties
        Properties of all columns, and of single columns by name: nested ones with dots, special
        names in backticks. Those of a struct, list or map apply to all columns inside it.

    Raises
    ------
    InvalidInputError
        Parquet or pyarrow does not support a value.
    """

    compression: str | None = None
    compression_level: int | None = None
    max_row_group_size: int | None = None
    data_page_size_limit: int | None = None
    dictionary_page_size_limit: int | None = None
    data_page_row_count_limit: int | None = None
    write_batch_size: int | None = None
    allow_truncated_timestamps: bool = False
    default_column_properties: ColumnProperties = field(default_factory=ColumnProperties)
    column_properties: Mapping[str, ColumnProperties] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.compression is not None:
            object.__setattr__(self, "compression", str(self.compression).lower())
            if self.compression not in _COMPRESSIONS:
                known = f"Choose from {', '.join(_COMPRESSIONS)}"
                raise _bad(f"{self.compression!r} is not a compression", known)
        for one in fields(self)[1:7]:
            value = getattr(self, one.name)
            least = 0 if one.name == "compression_level" else 1
            if value is not None and (type(value) is not int or value < least):
                raise _bad(
                    f"{one.name} is a whole number from {least}, not {value!r}", "Correct it"
                )
        for properties in (self.default_column_properties, *self.column_properties.values()):
            if not isinstance(properties, ColumnProperties):
                raise InvalidTypeError(
                    argument="writer_properties",
                    reason=f"ColumnProperties were expected, not {type(properties).__name__}",
                    remedy="Pass txlog.ColumnProperties(…)",
                )

    def arguments(
        self,
        codec: str,
        leaves: Sequence[str],
        rows: pa.Table,
        named: Callable[[Path], Path],
    ) -> dict[str, Any]:
        """Return the arguments of a `ParquetWriter`.

        Parameters
        ----------
        codec
            The compression, by its name in Delta.
        leaves
            The paths of the file's leaf columns.
        rows
            The first rows, which determine the columns with a dictionary.
        named
            Maps the table's path of a column to its path in files.

        Raises
        ------
        InvalidInputError
            A column does not exist.
        """
        of = self._by_leaf(leaves, named)
        useful = set(dictionary_columns(leaves, rows))
        encoded = {leaf: one.encoding.upper() for leaf, one in of.items() if one.encoding}
        filters = {leaf: one.bloom_filter for leaf, one in of.items() if one.bloom_filter}
        silent = [leaf for leaf, one in of.items() if one.statistics_enabled is False]
        coded = [
            leaf
            for leaf, one in of.items()
            if (leaf in useful if one.dictionary_enabled is None else one.dictionary_enabled)
            and leaf not in encoded
        ]
        asked = {
            "compression_level": self.compression_level,
            "data_page_size": self.data_page_size_limit,
            "dictionary_pagesize_limit": self.dictionary_page_size_limit,
            "max_rows_per_page": self.data_page_row_count_limit,
            "write_batch_size": self.write_batch_size,
            "column_encoding": encoded or None,
            "bloom_filter_options": {
                leaf: dict(one) if isinstance(one, Mapping) else True
                for leaf, one in filters.items()
            }
            or None,
            "write_statistics": [leaf for leaf in leaves if leaf not in silent] if silent else None,
        }
        return {
            "compression": _CODECS.get(codec, codec),
            "use_dictionary": coded,
            **{name: value for name, value in asked.items() if value is not None},
        }

    def _by_leaf(
        self, leaves: Sequence[str], named: Callable[[Path], Path]
    ) -> dict[str, ColumnProperties]:
        """Return the properties of each leaf column: those of the longest path above it."""
        known = {".".join(named(col(name).path)): name for name in self.column_properties}
        found, used = {}, set()
        for leaf in leaves:
            above = [path for path in known if leaf == path or leaf.startswith(f"{path}.")]
            used.update(above)
            own = self.column_properties[known[max(above, key=len)]] if above else None
            found[leaf] = own or self.default_column_properties
        for path in known.keys() - used:
            raise _bad(f"data files have no column {known[path]}", "Correct the name")
        return found


DEFAULT = WriterProperties()
"""The default for all settings."""


@contextmanager
def encoding_errors(properties: WriterProperties) -> Iterator[None]:
    """Turn pyarrow's errors about writer properties into an error that names them."""
    try:
        yield
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, TypeError, ValueError, OSError) as error:
        # `OSError` contains the error number, for example of a full disk.
        is_ours = properties is not DEFAULT and getattr(error, "errno", None) is None
        if isinstance(error, InvalidInputError) or not is_ours:
            raise
        raise _bad(f"pyarrow refuses these properties: {error}", "Correct them") from error


def _bad(reason: str, remedy: str) -> InvalidInputError:
    return InvalidInputError(argument="writer_properties", reason=reason, remedy=remedy)


@dataclass(frozen=True, kw_only=True)
class WriteOptions:
    """How a verb writes data files; None means the default.

    Parameters
    ----------
    target_file_bytes, max_rows_per_file
        The approximate maximum size of new files. Default: 128 MiB, and any number of rows;
        `optimize` uses the table's `delta.targetFileSize` first.
    writer_properties
        The encoding of new files: `txlog.WriterProperties(compression="zstd", …)`.
    error_on_type_mismatch
        For `update`, `merge` and `upsert`: if false, a computed value is cast to the type of its
        column, which may round it, and becomes null where that fails. Other verbs refuse values
        that a column cannot store in any case.
    use_index
        For `delete`, `update`, `merge` and `upsert` in one process: find rows by an index over its
        key columns, where this is less than statistics leave. The rows are the same if false.

    Raises
    ------
    InvalidInputError
        A size is not a whole number from 1.
    """

    target_file_bytes: int | None = None
    max_rows_per_file: int | None = None
    writer_properties: WriterProperties | None = None
    error_on_type_mismatch: bool = True
    use_index: bool = True

    def __post_init__(self) -> None:
        require_flags(error_on_type_mismatch=self.error_on_type_mismatch, use_index=self.use_index)
        for name in ("target_file_bytes", "max_rows_per_file"):
            value = getattr(self, name)
            if value is not None and (type(value) is not int or not 1 <= value < 1 << 63):
                kind = InvalidInputError if type(value) is int else InvalidTypeError
                raise kind(
                    argument=name,
                    reason=f"a whole number from 1 to 2**63 - 1 was expected, not {value!r}",
                    remedy="Omit it for the default",
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
        """The encoding of files: the requested one, or the default."""
        return self.writer_properties or DEFAULT

    @property
    def file_bytes(self) -> int:
        """The approximate size of files: the requested one, or the default."""
        return self.target_file_bytes or TARGET_FILE_BYTES

    def of_optimize(self, properties: Properties) -> WriteOptions:
        """Return the options for rewriting a table's files, according to its properties."""
        asked = self.target_file_bytes or properties.get("delta.targetFileSize")
        return replace(self, target_file_bytes=asked)


def as_schema(schema: pa.Schema | StructType, *, nanos: bool = False) -> StructType:
    """Return a Delta schema of a Delta or an Arrow schema; `nanos` is that of `from_arrow`.

    Raises
    ------
    InvalidTypeError
        It is not a schema.
    InvalidInputError
        It has a type that Delta does not have.
    """
    if isinstance(schema, StructType):
        return schema
    if isinstance(schema, pa.Schema) or hasattr(schema, "__arrow_c_schema__"):
        fields = pa.schema(schema)
        warn_of_types(fields)
        warn_of_nanos(fields, nanos=nanos)
        return with_given_metadata(from_arrow(fields, nanos=nanos), fields)
    raise InvalidTypeError(
        argument="schema",
        reason=f"a pyarrow.Schema was expected, not {type(schema).__name__}",
        remedy="Pass pa.schema([(name, type), …])",
    )


def with_generated(schema: StructType, generated: Mapping[str, str] | None) -> StructType:
    """Return a schema with generated columns, whose values are computed by expressions.

    Raises
    ------
    InvalidInputError
        There is no such column, or an expression is not text.
    """
    asked = generated or {}
    fields = {field.name: field for field in schema.fields}
    columns = columns_named(schema, asked, argument="generated")
    for column, text in zip(columns, asked.values(), strict=True):
        if not isinstance(text, str):
            raise InvalidInputError(
                argument="generated",
                field=column.name,
                reason=f"SQL text was expected, not {type(text).__name__}",
            )
        fields[column.name] = replace(column, metadata={**column.metadata, GENERATION: text})
    return StructType(tuple(fields.values()))


def as_type(kind: pa.DataType | DataType) -> DataType:
    """Return a Delta type of a Delta or an Arrow type.

    Raises
    ------
    InvalidTypeError
        It is not a type.
    InvalidInputError
        Delta does not have this type.
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


def new_fields(
    columns: Any, *, nanos: bool = False
) -> list[tuple[tuple[str, ...], StructField]] | None:
    """Return columns that are given only by their types, each with the path of its struct.

    None if they have values. `nanos` is that of `from_arrow`. Fields and schemas of other
    libraries, such as `deltalake.Field`, are read as Arrow's.
    """
    columns = _as_arrow(columns)
    if isinstance(columns, list | tuple):
        columns = list(map(_as_arrow, columns))
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
    arrow = [one for one in columns if isinstance(one, pa.Field)]
    warn_of_types(arrow)
    warn_of_nanos(arrow, nanos=nanos)
    fields = [
        one if isinstance(one, StructField) else from_arrow(pa.schema([one]), nanos=nanos).fields[0]
        for one in columns
    ]
    paths = [col(field.name).path for field in fields]
    return [
        (path[:-1], replace(field, name=path[-1]))
        for path, field in zip(paths, fields, strict=True)
    ]


def _as_arrow(columns: Any) -> Any:
    """Return a field or schema of another library as Arrow's; all else unchanged."""
    known = (pa.Field, pa.Schema, pa.DataType, Mapping)
    has_rows = hasattr(columns, "__arrow_c_stream__") or hasattr(columns, "__arrow_c_array__")
    if isinstance(columns, known) or has_rows or not hasattr(columns, "__arrow_c_schema__"):
        return columns
    return pa.field(columns) if hasattr(columns, "nullable") else pa.schema(columns)


def as_names(
    names: Sequence[str] | str | None, *, argument: str = "partition_by"
) -> tuple[str, ...]:
    """Return names as a tuple; a single name may be given as text.

    `argument` is the name of the caller's argument.

    Raises
    ------
    InvalidTypeError
        It is neither a name nor a list of names.
    """
    if names is None:
        return ()
    listed = (names,) if isinstance(names, str) else names
    if not isinstance(listed, Sequence) or not all(isinstance(name, str) for name in listed):
        raise InvalidTypeError(
            argument=argument,
            reason=f"column names were expected, not {names!r}",
            remedy="Pass a list of names, or one name",
        )
    return tuple(listed)


def as_options(options: WriteOptions | None) -> WriteOptions:
    """Return the options of a write; None means the default.

    Raises
    ------
    InvalidTypeError
        It is something else.
    """
    if not isinstance(options, WriteOptions | None):
        raise InvalidTypeError(
            argument="options",
            reason=f"txlog.WriteOptions were expected, not {type(options).__name__}",
            remedy="Pass for example options=txlog.WriteOptions(max_rows_per_file=1_000_000)",
        )
    return options or WriteOptions()
