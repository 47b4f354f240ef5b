"""How the log says that the data files of a version are read: the names of columns. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from txlog.actions.stats_text import Path
from txlog.actions.table import Metadata, Protocol
from txlog.base.arrow import arrow_array, arrow_scalar, numpy_array, pc
from txlog.protocol.access import is_active, mapping_mode
from txlog.protocol.properties import Properties
from txlog.schema.json import parse_schema
from txlog.schema.types import StructField, StructType

# Table properties that name the columns below.
ROW_ID_COLUMN = "delta.rowTracking.materializedRowIdColumnName"
ROW_VERSION_COLUMN = "delta.rowTracking.materializedRowCommitVersionColumnName"


@dataclass(frozen=True)
class RowTracking:
    """The columns in which a table with row tracking stores the ids and versions of moved rows."""

    row_id_column: str | None
    row_version_column: str | None


@dataclass(frozen=True)
class ReadForm:
    """The properties of a version that determine how its files are read.

    Parameters
    ----------
    schema
        The table's columns. In a plan of a scan, only those that it needs.
    partition_columns
        Their logical names, as the schema spells them, in order.
    mapping_mode
        The column mapping in force: `none`, `name` or `id`.
    row_tracking
        None if rows do not keep their ids.
    """

    schema: StructType
    partition_columns: tuple[str, ...]
    mapping_mode: str = "none"
    row_tracking: RowTracking | None = None

    @property
    def partition_fields(self) -> list[StructField]:
        """The partition columns that the schema has, in their order."""
        found = (self.schema.get(name) for name in self.partition_columns)
        return [column for column in found if column is not None]

    @property
    def physical_partition_columns(self) -> list[str]:
        """The names of the partition columns in data files and `partitionValues`."""
        return [column.name_in_files(self.mapping_mode) for column in self.partition_fields]

    def physical(self, path: Path) -> Path:
        """Return a column's path in the names that data files and statistics use."""
        return physical_path(self.schema, path, self.mapping_mode)

    def partition_texts(self, maps: pa.Array, column: StructField) -> pa.Array:
        """Return a partition column's logged texts, as `logged_partition_values`."""
        return logged_partition_values(maps, column, self.mapping_mode)

    def partition_text(self, values: Mapping[str, str | None], column: StructField) -> str | None:
        """Return a partition column's logged text from the values of one file."""
        return logged_partition_value(values, column, self.mapping_mode)


def form_of(protocol: Protocol, metadata: Metadata, schema: StructType | None = None) -> ReadForm:
    """Return the form of a version from its table state; `schema` is the parsed one, if known."""
    if schema is None:
        text = metadata.schema_string
        schema = StructType() if text is None else parse_schema(text)
    properties = Properties(metadata.configuration)
    fields = ((name, schema.get(name)) for name in metadata.partition_columns)
    tracking = None
    if is_active("rowTracking", protocol, properties):
        names = metadata.configuration
        tracking = RowTracking(names.get(ROW_ID_COLUMN), names.get(ROW_VERSION_COLUMN))
    return ReadForm(
        schema,
        tuple(name if field is None else field.name for name, field in fields),
        mapping_mode(protocol, properties),
        tracking,
    )


def physical_path(schema: StructType, path: Path, mode: str) -> Path:
    """Return a column's path in physical names, which data files and statistics use."""
    if mode == "none":
        return path
    fields = schema.along(path)
    return tuple(field.physical_name for field in fields) if len(fields) == len(path) else path


def logged_partition_values(maps: pa.Array, column: StructField, mode: str) -> pa.Array:
    """Return a column's logged texts from maps of partition values.

    All readers of partition values resolve their names here, or with `logged_partition_value`:
    with column mapping they are physical names, but some writers log logical ones.

    Parameters
    ----------
    mode
        The table's column mapping.
    """
    name = column.name_in_files(mode)
    texts = entries(maps, name)
    if name == column.name:
        return texts
    is_there = are_there(maps, name)
    if pc.all(is_there).as_py():
        return texts
    # Some writers log the logical name. It is read if the physical name is absent.
    return pc.if_else(is_there, _plain(texts), _plain(entries(maps, column.name)))


def logged_partition_value(
    values: Mapping[str, str | None], column: StructField, mode: str
) -> str | None:
    """Return a column's logged text from one file's partition values, as the function above."""
    name = column.name_in_files(mode)
    return values[name] if name in values else values.get(column.name)


def logged_otherwise(maps: pa.Array, column: StructField, mode: str) -> pa.Array:
    """Return which maps of partition values lack the name that a column has in files."""
    return pc.invert(are_there(maps, column.name_in_files(mode)))


def _plain(texts: pa.Array) -> pa.Array:
    return texts.dictionary_decode() if pa.types.is_dictionary(texts.type) else texts


def entries(maps: pa.MapArray, name: str) -> pa.Array:
    """Return the value of a name in each map, or null; the last value if there are several.

    Parameters
    ----------
    maps
        Maps of strings. If these are dictionary arrays, the result may be one too.
    """
    regular = _regular(maps)
    if regular is None:
        return pc.map_lookup(_string_maps(maps), arrow_scalar(name), "last")
    names, items = regular
    if name not in names:
        return pa.nulls(len(maps), pa.string())
    last = len(names) - 1 - names[::-1].index(name)
    return pc.take(items, arrow_array(np.arange(last, len(items), len(names))))


def are_there(maps: pa.MapArray, name: str) -> pa.Array:
    """Return which maps have a name, even with a null value."""
    regular = _regular(maps)
    if regular is None:
        return pc.is_valid(pc.map_lookup(_string_maps(maps), arrow_scalar(name), "all"))
    return pa.repeat(arrow_scalar(name in regular[0]), len(maps))


def _string_maps(maps: pa.MapArray) -> pa.MapArray:
    is_plain = not pa.types.is_dictionary(maps.type.key_type)
    return maps if is_plain else maps.cast(pa.map_(pa.string(), pa.string()))


def _regular(maps: pa.MapArray) -> tuple[list[str], pa.Array] | None:
    """Return the names and the values of maps; None unless all maps have the same names."""
    if not len(maps) or maps.null_count:
        return None
    offsets = numpy_array(maps.offsets)
    start, count = int(offsets[0]), int(offsets[-1] - offsets[0])
    width = count // len(maps)
    if not width or (np.diff(offsets) != width).any():
        return None
    keys = pc.dictionary_encode(maps.keys.slice(start, count))
    numbers = numpy_array(keys.indices).reshape(len(maps), width)
    if (numbers != numbers[0]).any():
        return None
    names = [keys.dictionary[number].as_py() for number in numbers[0].tolist()]
    return names, maps.items.slice(start, count)
