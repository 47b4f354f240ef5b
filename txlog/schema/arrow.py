"""Convert types between Delta and Arrow, and cast Arrow arrays to Delta's types. Pure.

Delta has no lists of a fixed size, no half floats, and no metadata of a schema. They are kept in
the metadata of fields (`FIXED_SIZE`, `HALF`, `SCHEMA_METADATA`), which other engines keep and
ignore, so that readers can restore them. `fixed_schema` is the schema that readers restore, and
`fixed_rows` restores rows.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any, NamedTuple

import orjson
import pyarrow as pa

from txlog.base.arrow import arrow_scalar, pc
from txlog.base.errors import InvalidInputError, warn_caller
from txlog.schema.blobs import ABOVE, BLOB, is_blob, is_bytes
from txlog.schema.casts import cuts_nanos
from txlog.schema.numbers import as_numbers, is_number
from txlog.schema.types import (
    CURRENT_DEFAULT,
    GENERATION,
    LONG,
    MONTH_INTERVALS,
    NANOS,
    SIZED_TEXT,
    TIME_INTERVALS,
    VOID,
    ArrayType,
    DataType,
    DecimalType,
    MapType,
    PrimitiveType,
    StructField,
    StructType,
)

# The metadata key of a field for the number of elements, as in Lance's connector for Spark. For an
# inner list, the path to it follows the key: `.element`, `.key`, `.value`.
FIXED_SIZE = "arrow.fixed-size-list.size"
# The same for a `float` whose values are half floats: true. For inner ones, the path follows.
HALF = "arrow.half-float"
# The metadata key of a column that was a dictionary: true. Readers restore it if they are asked.
DICTIONARY = "arrow.dictionary"
# The metadata key of the first field for the metadata of the Arrow schema: texts by their names.
SCHEMA_METADATA = "arrow.schema-metadata"
_METADATA_BYTES = 65_536  # The largest metadata of a schema that is kept: the log repeats it.
# Metadata that a library writes for itself, in files or between processes.
_OF_LIBRARIES = (b"ARROW:", b"PARQUET:", b"org.apache.spark.", b"pandas")

_ARROW: dict[str, pa.DataType] = {
    "string": pa.string(),
    "long": pa.int64(),
    "integer": pa.int32(),
    "short": pa.int16(),
    "byte": pa.int8(),
    "float": pa.float32(),
    "double": pa.float64(),
    "boolean": pa.bool_(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
    "timestamp_nanos": pa.timestamp("ns", "UTC"),
    "timestamp_nanos_ntz": pa.timestamp("ns"),
    "void": pa.null(),
    **dict.fromkeys(MONTH_INTERVALS, pa.month_day_nano_interval()),
    **dict.fromkeys(TIME_INTERVALS, pa.duration("us")),
    "variant": pa.struct(
        [pa.field("value", pa.binary(), False), pa.field("metadata", pa.binary(), False)]
    ),
}

# Further Arrow types that a Delta type holds without loss. They are accepted, never returned.
_DELTA: dict[pa.DataType, str] = {
    **{
        kind: name
        for name, kind in _ARROW.items()
        if name not in ("void", "variant", *NANOS) and not name.startswith("interval")
    },
    pa.large_string(): "string",
    pa.string_view(): "string",
    pa.large_binary(): "binary",
    pa.binary_view(): "binary",
    pa.uint8(): "short",
    pa.uint16(): "integer",
    pa.uint32(): "long",
    pa.float16(): "float",
    pa.date64(): "date",
}


def arrow_type(kind: DataType, *, texts: bool = False) -> pa.DataType:
    """Return the Arrow type of a Delta type's values; `texts` as for `arrow_field`."""
    match kind:
        case PrimitiveType(name):
            return _ARROW[name]
        case DecimalType(precision, scale):
            return pa.decimal128(precision, scale)
        case ArrayType(element, contains_null):
            return pa.list_(pa.field("element", arrow_type(element, texts=texts), contains_null))
        case MapType(key, value, value_contains_null):
            return pa.map_(
                pa.field("key", arrow_type(key, texts=texts), False),
                pa.field("value", arrow_type(value, texts=texts), value_contains_null),
            )
        case StructType(fields):
            return pa.struct([arrow_field(f, texts=texts) for f in fields])


def arrow_field(field: StructField, *, texts: bool = False) -> pa.Field:
    """Return the Arrow field of a column, under its logical name.

    With `texts` the field keeps the text metadata that `from_arrow` accepts, such as the comment.
    """
    kept = {
        name: value
        for name, value in (field.metadata.items() if texts else ())
        if isinstance(value, str) and not _is_reserved(name)
    }
    return pa.field(field.name, arrow_type(field.type, texts=texts), field.nullable, kept or None)


@lru_cache(maxsize=64)  # Small writes convert the same schema many times.
def arrow_schema(schema: StructType) -> pa.Schema:
    """Return the Arrow schema of a table, under logical names, in the schema's order."""
    return pa.schema([arrow_field(f) for f in schema.fields])


def described_schema(schema: StructType) -> pa.Schema:
    """Return the Arrow schema as `fixed_schema` does, with comments and other text metadata."""
    fields = [_fixed_field(f, arrow_field(f, texts=True)) for f in schema.fields]
    return pa.schema(fields, metadata=schema_metadata(schema))


@lru_cache(maxsize=64)
def fixed_schema(schema: StructType) -> pa.Schema:
    """Return the Arrow schema of a table as `arrow_schema` does, but as it was given.

    It has fixed-size lists, half floats, the metadata of the schema, and says which columns are
    blobs: then a table that is written from the rows has blob columns, too.
    """
    fields = [_declared(field, _fixed_field(field, arrow_field(field))) for field in schema.fields]
    return pa.schema(fields, metadata=schema_metadata(schema))


def schema_metadata(schema: StructType) -> dict[str, str] | None:
    """Return the metadata of the Arrow schema that a table was given, or None."""
    for field in schema.fields:
        known = field.metadata.get(SCHEMA_METADATA)
        if isinstance(known, Mapping):
            return {name: text for name, text in known.items() if isinstance(text, str)} or None
    return None


def with_metadata_of(schema: StructType, before: StructType) -> StructType:
    """Return a schema with the schema metadata of another, whose first column it may lack."""
    known = schema_metadata(before)
    if known is None or not schema.fields or schema_metadata(schema) is not None:
        return schema
    first, *others = schema.fields
    kept = replace(first, metadata={**first.metadata, SCHEMA_METADATA: known})
    return StructType((kept, *others))


def is_kept(name: str) -> bool:
    """Return whether a key of a field's metadata keeps a type that Delta does not have."""
    return name.startswith((FIXED_SIZE, HALF))


def with_dictionaries(schema: pa.Schema, names: Collection[str]) -> pa.Schema:
    """Return a schema in which some columns are dictionaries, with indices of 32 bits."""
    for at, field in enumerate(schema):
        if field.name in names:
            schema = schema.set(at, field.with_type(pa.dictionary(pa.int32(), field.type)))
    return schema


def as_dictionaries(rows: pa.Table, names: Collection[str]) -> pa.Table:
    """Return rows with some columns as dictionaries, with indices of 32 bits."""
    arrays = [
        column.dictionary_encode() if name in names else column
        for name, column in zip(rows.schema.names, rows.columns, strict=True)
    ]
    return pa.Table.from_arrays(arrays, schema=with_dictionaries(rows.schema, names))


def has_halves(schema: pa.Schema) -> bool:
    """Return whether an Arrow schema has half floats, at any depth."""
    return any("halffloat" in str(kind) for kind in schema.types)


def fixed_rows(
    rows: pa.RecordBatch, columns: Sequence[StructField], error: Callable[[StructField], Exception]
) -> pa.RecordBatch:
    """Return rows in the types of `fixed_schema`.

    Raises `error(column)` if a list has another number of elements, or a number is no half float.
    """
    target = fixed_schema(StructType(tuple(columns)))
    if rows.schema.equals(target):
        if not any(is_blob(column) for column in columns):
            return rows
        return pa.RecordBatch.from_arrays(rows.columns, schema=target)  # It declares blobs.
    arrays = []
    for array, column, field in zip(rows.columns, columns, target, strict=True):
        try:
            arrays.append(cast_array(array, column.type, field.type, Casting(fixes=True)))
        except ValueError as cause:  # Also Arrow's.
            raise error(column) from cause
    return pa.RecordBatch.from_arrays(arrays, schema=target)


def misfit(column: StructField) -> str:
    """Return the fault of a value that `fixed_rows` refuses, as a part of a sentence."""
    kind = str(_fixed_field(column, arrow_field(column)).type)
    wrong = ["a list has another length"] if "fixed_size_list" in kind else []
    return " or ".join([*wrong, *(["a number is no half float"] if "halffloat" in kind else [])])


def is_list_size(text: str) -> bool:
    """Return whether a text from a field's metadata is a valid size of a fixed-size list."""
    return text.isdecimal() and 0 < int(text[:20]) < 2**31


def _declared(field: StructField, plain: pa.Field) -> pa.Field:
    return plain.with_metadata({ABOVE: str(field.metadata[ABOVE])}) if is_blob(field) else plain


def _fixed_field(field: StructField, plain: pa.Field) -> pa.Field:
    return plain.with_type(_fixed_type(field.type, plain.type, field.metadata, ""))


def _fixed_type(
    kind: DataType, plain: pa.DataType, kept: Mapping[str, Any], path: str
) -> pa.DataType:
    """Return an Arrow type with fixed-size lists and half floats by a field's metadata."""

    def part(kind: DataType, plain: pa.Field, below: str) -> pa.Field:
        return plain.with_type(_fixed_type(kind, plain.type, kept, f"{path}.{below}"))

    match kind:
        case StructType(fields):  # Each field of a struct has its own metadata.
            return pa.struct([_fixed_field(*pair) for pair in zip(fields, plain, strict=True)])
        case ArrayType(element):
            size = str(kept.get(FIXED_SIZE + path, ""))  # A user may have set it as text.
            length = int(size) if is_list_size(size) else -1
            return pa.list_(part(element, plain.value_field, "element"), length)
        case MapType(key, value):
            key_field = part(key, plain.key_field, "key")
            return pa.map_(key_field, part(value, plain.item_field, "value"))
        case PrimitiveType("float") if str(kept.get(HALF + path, "")).lower() == "true":
            return pa.float16()
    return plain


def _kept(kind: pa.DataType, path: str = "") -> dict[str, int | bool]:
    """Return the metadata that records the fixed-size lists and half floats of a field."""
    if isinstance(kind, pa.BaseExtensionType):
        return _kept(kind.storage_type, path)
    if pa.types.is_dictionary(kind) or pa.types.is_run_end_encoded(kind):
        return _kept(kind.value_type, path)
    if pa.types.is_map(kind):
        return _kept(kind.key_type, f"{path}.key") | _kept(kind.item_type, f"{path}.value")
    if pa.types.is_float16(kind):
        return {HALF + path: True}
    if not is_list(kind):
        return {}
    is_fixed = pa.types.is_fixed_size_list(kind) and kind.list_size > 0
    own = {FIXED_SIZE + path: kind.list_size} if is_fixed else {}
    return own | _kept(kind.value_type, f"{path}.element")


def _metadata_of(schema: pa.Schema) -> dict[str, str]:
    """Return the metadata of an Arrow schema that tables keep.

    Metadata of pandas says what the columns are, unless it names an index.
    """
    given = dict(schema.metadata or {})
    kept = {name: text for name, text in given.items() if not name.startswith(_OF_LIBRARIES)}
    of_pandas = _of_pandas(given.get(b"pandas"))
    if any(isinstance(one, str) for one in of_pandas.get("index_columns", ())):
        # Names of columns are texts in a table; later ones may be no numbers.
        kept[b"pandas"] = orjson.dumps({**of_pandas, "column_indexes": []})
    found, left = {}, []
    for name, text in kept.items():
        try:
            found[name.decode()] = text.decode()
        except UnicodeDecodeError:
            left.append(name.decode(errors="replace"))
    while sum(len(name) + len(text) for name, text in found.items()) > _METADATA_BYTES:
        longest = max(found, key=lambda name: len(found[name]))
        del found[longest]
        left.append(longest)
    if left:
        warn_caller(
            f"the table does not keep the metadata {', '.join(sorted(left))} of the Arrow schema: "
            f"only texts of together at most {_METADATA_BYTES} bytes are kept"
        )
    return found


def from_arrow(
    schema: pa.Schema, *, nulls_as_void: bool = False, nanos: bool = False
) -> StructType:
    """Return the Delta schema that can hold all values of an Arrow schema.

    Unsigned integers become the next wider signed type (uint64 becomes decimal(20,0), as in Spark),
    dictionaries their value type. Text metadata of fields, such as `comment`, is kept, except for
    reserved keys: `delta.…`, defaults, and those that Arrow libraries write for themselves. The
    sizes of fixed-size lists are kept, too, and which floats are half floats.
    `delta.generationExpression` is the only kept key that begins with `delta.`, as in deltalake.

    Parameters
    ----------
    nulls_as_void
        Let columns of Arrow's null type, at any depth, become `void`. Otherwise they are refused.
    nanos
        Let nanoseconds become `timestamp_nanos` or `timestamp_nanos_ntz`, for tables that support
        them. Otherwise they become `timestamp` or `timestamp_ntz`, which hold microseconds.

    Raises
    ------
    InvalidInputError
        A type has no counterpart (time, duration, null, union, …); `field` names the column.
    """
    # Schemas that differ only in metadata compare as equal, so the key includes their bytes.
    return _from_arrow(schema, schema.serialize().to_pybytes(), _Leniency(nulls_as_void, nanos))


@lru_cache(maxsize=64)
def _from_arrow(schema: pa.Schema, _: bytes, taken: _Leniency) -> StructType:
    return StructType(tuple(_field(f, f.name, taken) for f in schema))


def with_given_metadata(schema: StructType, given: pa.Schema) -> StructType:
    """Return the columns of a new table with the metadata of the Arrow schema that it gets.

    A warning names metadata that is too large, or no text.
    """
    metadata = _metadata_of(given) if given.metadata else {}
    if not metadata or not schema.fields:
        return schema
    first, *others = schema.fields
    kept = replace(first, metadata={**first.metadata, SCHEMA_METADATA: metadata})
    return StructType((kept, *others))


def warn_of_metadata(given: pa.Schema, table: StructType) -> None:
    """Warn of metadata of an Arrow schema that a table does not keep, because it exists already."""
    known = schema_metadata(table) or {}
    lost = [
        name.decode(errors="replace")
        for name, text in (given.metadata or {}).items()
        if not name.startswith(_OF_LIBRARIES)
        and known.get(name.decode(errors="replace")) != text.decode(errors="replace")
    ]
    if lost:
        warn_caller(
            f"the table does not keep the metadata {', '.join(sorted(lost))} of the Arrow schema: "
            "only a write that creates or replaces its schema changes it"
        )


def _of_pandas(text: bytes | str | None) -> dict[str, Any]:
    """Return metadata of pandas; nothing if it is damaged."""
    try:
        found = orjson.loads(text or "{}")
    except ValueError:
        return {}
    if not isinstance(found, dict):
        return {}
    parts = found.get("index_columns"), found.get("columns")
    return found if all(isinstance(part, list) for part in parts) else {}


def with_renamed_metadata(schema: StructType, old: str, new: str | None) -> StructType:
    """Return a schema whose metadata of pandas has the new name of a column. None: it has none.

    Otherwise another column that gets the old name later would become the index.
    """
    known = schema_metadata(schema) or {}
    if (found := _of_pandas(known.get("pandas"))) == {}:
        return schema

    names = [new if one == old else one for one in found["index_columns"]]
    columns = [
        {**one, "field_name": new, "name": new if one.get("name") == old else one.get("name")}
        if isinstance(one, dict) and one.get("field_name") == old
        else one
        for one in found["columns"]
        if new is not None or not isinstance(one, dict) or one.get("field_name") != old
    ]
    found = {**found, "index_columns": [one for one in names if one is not None]}
    found["columns"] = columns
    texts = {**known, "pandas": orjson.dumps(found).decode()}
    return StructType(
        tuple(
            replace(field, metadata={**field.metadata, SCHEMA_METADATA: texts})
            if SCHEMA_METADATA in field.metadata
            else field
            for field in schema.fields
        )
    )


class _Leniency(NamedTuple):
    """Whether Arrow types are accepted that only some tables can hold."""

    voids: bool
    nanos: bool


# Metadata keys of Arrow fields that have a meaning in Delta, or only in an Arrow library.
_RESERVED = ("delta.", "PARQUET:", "ARROW:", "_PL_")
_RESERVED_NAMES = frozenset({CURRENT_DEFAULT, "EXISTS_DEFAULT", SIZED_TEXT})


def _metadata(field: pa.Field) -> dict[str, str]:
    texts = {
        name.decode(errors="replace"): value.decode(errors="replace")
        for name, value in (field.metadata or {}).items()
    }
    return {name: value for name, value in texts.items() if not _is_reserved(name)}


def _is_reserved(name: str) -> bool:
    return name in _RESERVED_NAMES or (name.startswith(_RESERVED) and name != GENERATION)


_VARIANT = PrimitiveType("variant")
VARIANT_EXTENSION = "arrow.parquet.variant"  # The canonical extension type of Arrow.


def _field(field: pa.Field, path: str, taken: _Leniency) -> StructField:
    kind = _type_of(field, path, taken)
    metadata = _metadata(field) | _kept(field.type)
    if path != field.name:  # Only whole columns are generated.
        metadata.pop(GENERATION, None)
    elif pa.types.is_dictionary(field.type):
        return StructField(field.name, kind, field.nullable, {**metadata, DICTIONARY: True})
    return StructField(field.name, kind, field.nullable, metadata)


def _type_of(field: pa.Field, path: str, taken: _Leniency) -> DataType:
    """Return the type of a field, element, key or value; its metadata may name an extension."""
    metadata = field.metadata or {}
    if metadata.get(b"ARROW:extension:name") == VARIANT_EXTENSION.encode():
        return _VARIANT
    if ABOVE.encode() in metadata and is_bytes(field.type):
        return BLOB
    return _type(field.type, path, taken)


def _type(kind: pa.DataType, path: str, taken: _Leniency) -> DataType:
    if (name := _DELTA.get(kind)) is not None:
        return PrimitiveType(name)
    if taken.voids and pa.types.is_null(kind):
        return PrimitiveType("void")
    if pa.types.is_timestamp(kind):
        zone = "_ntz" if kind.tz is None else ""
        unit = "_nanos" if taken.nanos and kind.unit == "ns" else ""
        return PrimitiveType(f"timestamp{unit}{zone}")
    if pa.types.is_fixed_size_binary(kind):
        return PrimitiveType("binary")
    if pa.types.is_uint64(kind):
        return DecimalType(20, 0)
    if pa.types.is_decimal(kind) and kind.precision <= 38 and 0 <= kind.scale <= kind.precision:
        return DecimalType(kind.precision, kind.scale)
    if pa.types.is_dictionary(kind) or pa.types.is_run_end_encoded(kind):
        return _type(kind.value_type, path, taken)
    if pa.types.is_map(kind):
        return MapType(
            _type_of(kind.key_field, f"{path}.key", taken),
            _type_of(kind.item_field, f"{path}.value", taken),
            kind.item_field.nullable,
        )
    if pa.types.is_struct(kind):
        return StructType(tuple(_field(f, f"{path}.{f.name}", taken) for f in kind))
    if is_list(kind):
        element = _type_of(kind.value_field, f"{path}.element", taken)
        return ArrayType(element, kind.value_field.nullable)
    if isinstance(kind, pa.BaseExtensionType):
        if kind.extension_name == VARIANT_EXTENSION:
            return _VARIANT
        return _type(kind.storage_type, path, taken)
    if pa.types.is_null(kind):
        raise InvalidInputError(
            argument="data",
            reason=f"{path} holds only nulls, so its type is unknown",
            field=path,
            remedy="Cast the column to the type that it should have, or omit it",
        )
    raise InvalidInputError(
        argument="data",
        reason=f"the Arrow type {kind} has no counterpart in a Delta table",
        field=path,
        remedy="Cast the column to a type that Delta has, or omit it",
    )


def schema_of(
    data: pa.Schema, table: StructType | None, *, nanos: bool, truncates: bool = False
) -> StructType:
    """Return the Delta schema of data for a table (None: a new table); `nanos` as for `from_arrow`.

    A uint64 column takes the table's type `long` if it has that, and the cast checks each value. A
    new uint64 column causes a warning, and so does a new one of nanoseconds that the table lacks,
    unless the caller `truncates` them.
    """
    given = from_arrow(data, nulls_as_void=table is not None, nanos=nanos)
    new, narrowed = [], {}
    for field, arrow in zip(given.fields, data, strict=True):
        known = None if table is None else table.get(field.name)
        if known is None or known.type == VOID:
            new.append(arrow)
        elif pa.types.is_uint64(arrow.type) and known.type == LONG:
            narrowed[field] = replace(field, type=LONG)
    warn_of_types(new)
    if b"pandas" not in (data.metadata or {}):  # There, nanoseconds are no choice.
        warn_of_nanos(new, nanos=nanos or truncates)
    return StructType(tuple(narrowed.get(f, f) for f in given.fields)) if narrowed else given


def warn_of_types(fields: Iterable[pa.Field]) -> None:
    """Warn of new columns whose values a table keeps, but not their types of Arrow."""
    columns = list(fields)
    names = [field.name for field in columns if "uint64" in str(field.type)]
    if names:
        warn_caller(
            f"{', '.join(names)}: Delta has no uint64, so the column becomes decimal(20,0) and is "
            "read as that. Cast it to int64 if all values are below 2^63"
        )
    changed = {field.name: dict(_changed(field.type)) for field in columns}
    others = [name for name, kinds in changed.items() if kinds]
    if others:
        kinds = {given: stored for one in changed.values() for given, stored in one.items()}
        told = ", ".join(f"{given} as {stored}" for given, stored in kinds.items())
        warn_caller(
            f"{', '.join(others)}: the table keeps the values, but not their types of Arrow. They "
            f"are read in other types: {told}. Cast them after reading, or before writing"
        )


def _changed(kind: pa.DataType) -> Iterator[tuple[str, str]]:
    """Yield the types in an Arrow type that come back as others, with these; not uint64."""
    if isinstance(kind, pa.BaseExtensionType):
        if kind.extension_name != VARIANT_EXTENSION:
            stored = _delta_name(kind.storage_type)
            yield kind.extension_name, stored
        return
    if pa.types.is_dictionary(kind) or pa.types.is_run_end_encoded(kind):
        yield from _changed(kind.value_type)
    elif pa.types.is_map(kind):
        yield from _changed(kind.key_type)
        yield from _changed(kind.item_type)
    elif is_list(kind):
        yield from _changed(kind.value_type)
    elif pa.types.is_struct(kind):
        for field in kind:
            yield from _changed(field.type)
    elif pa.types.is_fixed_size_binary(kind) or (
        pa.types.is_unsigned_integer(kind) and not pa.types.is_uint64(kind)
    ):
        yield str(kind), _delta_name(kind)


def _delta_name(kind: pa.DataType) -> str:
    if pa.types.is_fixed_size_list(kind):  # `fixed_schema` restores its size.
        element = arrow_type(_type(kind.value_type, "", _Leniency(voids=True, nanos=True)))
        return str(pa.list_(element, kind.list_size))
    return str(arrow_type(_type(kind, "", _Leniency(voids=True, nanos=True))))


def warn_of_nanos(fields: Iterable[pa.Field], *, nanos: bool) -> None:
    """Warn of new columns of nanoseconds, unless the table keeps them (`nanos`)."""
    names = [] if nanos else [one.name for one in fields if "timestamp[ns" in str(one.type)]
    if names:
        warn_caller(
            f"{', '.join(names)}: the table has no nanoseconds, so the column becomes "
            "microseconds, and a value with more digits is refused. Cast it to microseconds, or "
            "add the feature timestampNanos to the table before it gets the column"
        )


_LARGEST_OFFSET = 2**31 - 1


class Casting(NamedTuple):
    """Additional conversions that `cast_array` may do.

    `truncates`: cut nanoseconds off if the type has microseconds. `variants`: convert other values
    to variants, at any depth. `fixes`: the type may have lists of a fixed size.
    """

    truncates: bool = False
    variants: Callable[[pa.Array], pa.Array] | None = None
    fixes: bool = False


_EXACT = Casting()


def cast_array(
    array: pa.Array, kind: DataType, target: pa.DataType, how: Casting | None = None
) -> pa.Array:
    """Return an array in the Arrow type of a Delta type; no value is changed.

    Numbers may be of another type of number if it has each value, such as 4.0 as a whole number.
    Fields of structs are matched by name, ignoring case; fields that the array lacks are null. Any
    layout is accepted: dictionaries, run ends, views, large and fixed-size lists, extension types.

    Parameters
    ----------
    target
        `arrow_type(kind)`.
    how
        The allowed additional conversions.

    Raises
    ------
    pyarrow.ArrowException, ValueError
        A value does not fit the type.
    """
    how = how or _EXACT
    if how.variants is not None and kind == _VARIANT:
        return how.variants(array)
    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    if pa.types.is_dictionary(array.type):
        values = cast_array(array.dictionary, kind, target, how)
        return pa.DictionaryArray.from_arrays(array.indices, values).dictionary_decode()
    if pa.types.is_run_end_encoded(array.type):
        values = cast_array(array.values, kind, target, how)
        runs = pa.RunEndEncodedArray.from_arrays(array.run_ends, values)
        return pc.run_end_decode(runs.slice(array.offset, len(array)))
    if array.type == target:
        return array
    if pa.types.is_null(array.type):
        return pa.nulls(len(array), target)
    match kind:
        case StructType() if pa.types.is_struct(array.type):
            return _struct(array, kind, target, how)
        case ArrayType() if is_list(array.type):
            return _list(array, kind, target, how)
        case MapType() if pa.types.is_map(array.type):
            return _map(array, kind, target, how)
    if is_number(array.type) and is_number(target):
        return as_numbers(array, target)
    return array.cast(target, safe=not (how.truncates and cuts_nanos(array.type, target)))


def is_list(kind: pa.DataType) -> bool:
    """Return whether a type is one of Arrow's five kinds of list."""
    return bool(
        pa.types.is_list(kind)
        or pa.types.is_large_list(kind)
        or pa.types.is_fixed_size_list(kind)
        or pa.types.is_list_view(kind)
        or pa.types.is_large_list_view(kind)
    )


def _mask(array: pa.Array) -> pa.Array | None:
    return array.is_null() if array.null_count else None


def _struct(array: pa.Array, kind: StructType, target: Any, how: Casting) -> pa.Array:
    positions = {field.name.lower(): position for position, field in enumerate(array.type)}
    parts = array.flatten()  # Null below a null struct, where Arrow may store any values.
    children = []
    for field, inner in zip(kind.fields, target, strict=True):
        position = positions.get(field.name.lower())
        if position is None:
            children.append(pa.nulls(len(array), inner.type))
        else:
            child = parts[position]
            children.append(cast_array(child, field.type, inner.type, how))
    return pa.StructArray.from_arrays(children, fields=list(target), mask=_mask(array))


def _list(array: pa.Array, kind: ArrayType, target: Any, how: Casting) -> pa.Array:
    if len(array) == 0:
        return pa.nulls(0, target)
    elements = array.flatten()  # This omits values that are stored below null lists.
    lengths = pc.fill_null(pc.list_value_length(array), 0).cast(pa.int64())
    ends = pc.cumulative_sum(lengths)
    if ends[-1].as_py() > _LARGEST_OFFSET:
        raise ValueError(f"a batch holds more than {_LARGEST_OFFSET} list elements")
    starts = pa.concat_arrays([pa.repeat(arrow_scalar(0, pa.int32()), 1), ends.cast(pa.int32())])
    # Arrow before 26 refuses a mask beside offsets with a validity bitmap, even without nulls.
    offsets = pa.Array.from_buffers(starts.type, len(starts), [None, starts.buffers()[1]])
    values = cast_array(elements, kind.element, target.value_type, how)
    plain = pa.list_(target.value_field)
    lists = pa.ListArray.from_arrays(offsets, values, type=plain, mask=_mask(array))
    return lists.cast(target) if pa.types.is_fixed_size_list(target) else lists


def _map(array: pa.Array, kind: MapType, target: Any, how: Casting) -> pa.Array:
    if array.offset or len(array.keys) != len(array.items):
        array = pa.concat_arrays([array])  # In the copy, all children begin at the same offset.
    keys = cast_array(array.keys, kind.key, target.key_type, how)
    items = cast_array(array.items, kind.value, target.item_type, how)
    return pa.MapArray.from_arrays(array.offsets, keys, items, type=target, mask=_mask(array))
