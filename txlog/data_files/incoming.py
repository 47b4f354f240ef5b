"""Incoming data: convert a caller's data to Arrow batches that fit the table."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence, Sized
from dataclasses import dataclass
from itertools import chain
from typing import Any

import pyarrow as pa

from txlog.base.columns import flat, is_readable
from txlog.base.errors import (
    InvalidInputError,
    InvalidTypeError,
    SchemaMismatchError,
    TxlogError,
    of_argument,
    reason_of,
)
from txlog.data_files.constraints import (
    default_value,
    generated_columns,
    has_default,
    is_generated,
    require_no_null,
)
from txlog.data_files.identity import Numbering, require_not_given
from txlog.data_files.modes import WriteModes
from txlog.expressions.evaluate import evaluate
from txlog.expressions.type_rules import is_number
from txlog.schema.arrow import (
    Casting,
    arrow_field,
    arrow_schema,
    cast_array,
    schema_of,
    warn_of_metadata,
    with_given_metadata,
)
from txlog.schema.blobs import (
    as_blobs,
    blob_columns,
    in_parts,
    is_blob,
    is_blob_type,
    is_bytes,
    with_blobs_of,
)
from txlog.schema.hidden import without_hidden
from txlog.schema.types import (
    TYPE_CHANGES,
    VOID,
    WHOLE_NUMBERS,
    ArrayType,
    DataType,
    MapType,
    PrimitiveType,
    StructField,
    StructType,
    has_void,
    is_widening,
    require_columns,
    same_names,
    type_name,
    types_in,
)
from txlog.stats.partition import is_emptied, without_empty

VARIANT = PrimitiveType("variant")
_BINARY = PrimitiveType("binary")
_DATE = PrimitiveType("date")
_TIMES = (PrimitiveType("timestamp"), PrimitiveType("timestamp_ntz"))
CORRECT = "Round or correct such values before writing, or give the column a type that holds them"
"""The remedy of a value in data that does not fit its column."""
_UNNAMED_INDEX = "__index_level_"  # The name that pandas gives an unnamed index in Arrow.
_TOO_FINE = (
    "Cut the digits off with options=txlog.WriteOptions(writer_properties="
    "txlog.WriterProperties(allow_truncated_timestamps=True)), or keep them in a "
    "column of type timestamp_nanos or timestamp_nanos_ntz, which new columns have in a table "
    "with the feature timestampNanos (docs/properties.md)"
)


def as_reader(data: Any, argument: str = "data") -> pa.RecordBatchReader:
    """Return data of an Arrow-compatible library as a stream of batches.

    It accepts objects with `__arrow_c_stream__` (pyarrow, polars, duckdb, pandas, a txlog scan) or
    `__arrow_c_array__`, datasets, and lists or iterators of record batches. A stream is read once.
    An unnamed index of pandas is not a column.

    Raises
    ------
    InvalidTypeError
        The object is not Arrow data.
    InvalidInputError
        The data cannot be read as Arrow, or it contains Python objects.
    """
    if isinstance(data, pa.RecordBatchReader):
        return data
    if isinstance(data, pa.Table | pa.RecordBatch):
        table = pa.Table.from_batches([data]) if isinstance(data, pa.RecordBatch) else data
        return table.to_reader()
    library = type(data).__module__.partition(".")[0]
    if library == "polars" and hasattr(data, "__arrow_c_stream__"):
        _require_no_objects(data)
    try:
        if hasattr(data, "__arrow_c_stream__"):
            reader = pa.RecordBatchReader.from_stream(data)
            return _without_index(reader) if library == "pandas" else reader
        if hasattr(data, "__arrow_c_array__"):
            return pa.Table.from_batches([pa.record_batch(data)]).to_reader()
        if hasattr(data, "scanner"):
            return data.scanner().to_reader()
        if hasattr(data, "to_reader"):
            return data.to_reader()
        if isinstance(data, Iterator | list | tuple) and (batches := _batches_of(data)):
            return batches
    except (pa.ArrowException, TypeError, ValueError) as error:  # A name twice, of pandas.
        raise InvalidInputError(
            argument=argument, reason=f"the data cannot be read as Arrow: {reason_of(error)}"
        ) from error
    raise InvalidTypeError(
        argument=argument,
        reason=f"Arrow data was expected, not {type(data).__module__}.{type(data).__qualname__}"
        if library != "builtins"
        else f"Arrow data was expected, not {type(data).__name__}",
        remedy=_as_arrow(data, library, argument),
    )


def can_be_read_again(data: Any) -> bool:
    """Return whether data for `as_reader` is certainly not a stream.

    It has a length, or it is a plan of reads.
    """
    from pyarrow.dataset import Dataset

    is_plan = type(data).__module__.startswith(("txlog.", "polars."))
    return is_plan or isinstance(data, (Sized, Dataset))


def _batches_of(data: Iterable[Any]) -> pa.RecordBatchReader | None:
    """Return an iterator of record batches as a stream with the schema of the first batch.

    None if the first item is not a batch. Batches are objects with `__arrow_c_array__`.
    """
    parts = iter(data)
    first = next(parts, None)
    if not hasattr(first, "__arrow_c_array__") or not hasattr(first, "schema"):
        return None
    batches = map(pa.record_batch, chain([first], parts))
    head = next(batches)
    return pa.RecordBatchReader.from_batches(head.schema, chain([head], batches))


def _as_arrow(data: Any, library: str, name: str) -> str:
    """Return the remedy for an object that is not Arrow data."""
    if isinstance(data, Mapping):
        return f"Pass pa.table({name}), which makes a table of columns"
    if isinstance(data, Sequence) and not isinstance(data, str | bytes):
        return f"Pass pa.Table.from_pylist({name}), which converts a list of rows to a table"
    if library == "polars":
        return f"Pass {name}.collect(), or a DataFrame"
    if library == "pyspark":
        return "Pass the frame to txlog.spark_ext.write, or save it with format('txlog')"
    return (
        "Pass a pyarrow Table or RecordBatchReader, a polars or pandas frame, or a duckdb relation"
    )


def _without_index(reader: pa.RecordBatchReader) -> pa.RecordBatchReader:
    """Return the rows of a pandas frame without its unnamed index."""
    notes = reader.schema.pandas_metadata or {}
    unnamed = [
        name
        for name in notes.get("index_columns", ())
        if isinstance(name, str) and name.startswith(_UNNAMED_INDEX)
    ]
    return reader.read_all().drop_columns(unnamed).to_reader() if unnamed else reader


def _require_no_objects(frame: Any) -> None:
    """Raise if a polars frame contains Python objects, which become memory addresses in Arrow."""
    for name, dtype in getattr(frame, "schema", {}).items():
        if _has_objects(dtype):
            raise InvalidInputError(
                argument="data",
                field=name,
                reason=f"column {name} holds Python objects (polars.Object), which have no Arrow "
                "type",
                remedy="Convert them to another type, such as strings, or drop the column",
            )


def _has_objects(dtype: Any) -> bool:
    inner = [field.dtype for field in getattr(dtype, "fields", ())]
    if (element := getattr(dtype, "inner", None)) is not None:
        inner.append(element)
    return type(dtype).__name__ == "Object" or any(map(_has_objects, inner))


def merged_schema(
    table: StructType, data: StructType, *, fixed: Collection[str] | None = None
) -> StructType:
    """Return the table's schema with the columns (and nested fields) that only the data has.

    New fields come last and are nullable. They may be in structs at any depth: in lists, and in the
    keys and values of maps. A field of type void gets the data's type.

    Parameters
    ----------
    fixed
        Widen the types of columns of which the data has a wider type of the same kind, except for
        these columns. None: no type changes. A change that the data's metadata records is made in
        any case: then it is the schema of the table after an earlier merge.

    Raises
    ------
    SchemaMismatchError
        A column is in both with incompatible types, or a new column is generated.
    """
    return StructType(_merged(table.fields, data.fields, "", fixed))


def _merged(
    ours: tuple[StructField, ...],
    theirs: tuple[StructField, ...],
    prefix: str,
    fixed: Collection[str] | None,
) -> tuple[StructField, ...]:
    ours_by_name = {field.name.lower(): field for field in ours}
    added = []
    changed: dict[str, StructField] = {}
    for field in theirs:
        known = ours_by_name.get(field.name.lower())
        if known is None and is_generated(field):
            raise SchemaMismatchError(
                argument="data",
                field=f"{prefix}{field.name}",
                reason=f"new column {field.name} is generated by its metadata, but existing rows "
                "have no such values",
                remedy="Remove delta.generationExpression from its metadata, or create a new table",
            )
        if known is None:
            added.append(StructField(field.name, field.type, True, field.metadata))
        else:
            stays = None if fixed is None or known.name in fixed else ()
            merging = _Merging(stays, _changes_of(field)[len(_changes_of(known)) :])
            changed[known.name] = merging.field(known, field, f"{prefix}{known.name}")
    return (*(changed.get(field.name, field) for field in ours), *added)


def _changes_of(field: StructField) -> list[Any]:
    return list(field.metadata.get(TYPE_CHANGES) or ())


class _Merging:
    """Merges the types of one field, and collects the changes of its types.

    `fixed` is that of `merged_schema` for the fields below, of which none is named; `known` are the
    changes that the data's metadata records.
    """

    def __init__(self, fixed: Collection[str] | None, known: Sequence[Any]) -> None:
        self._fixed = fixed
        self._widens = fixed is not None or bool(known)
        self._changes: list[dict[str, str]] = []

    def field(self, ours: StructField, theirs: StructField, name: str) -> StructField:
        """Return our field with the type of both."""
        kind = self._type(ours.type, theirs.type, name, ())
        metadata = ours.metadata
        if self._changes:
            metadata = {**metadata, TYPE_CHANGES: [*_changes_of(ours), *self._changes]}
        return StructField(ours.name, kind, ours.nullable, metadata)

    def _type(self, ours: DataType, theirs: DataType, name: str, path: tuple[str, ...]) -> DataType:
        match ours, theirs:
            case StructType(fields), StructType(others):
                return StructType(_merged(fields, others, f"{name}.", self._fixed))
            case ArrayType(element, contains_null), ArrayType(other):
                inner = self._type(element, other, f"{name}.element", (*path, "element"))
                return ArrayType(inner, contains_null)
            case MapType(key, value, contains_null), MapType(other_key, other_value):
                return MapType(
                    self._type(key, other_key, f"{name}.key", (*path, "key")),
                    self._type(value, other_value, f"{name}.value", (*path, "value")),
                    contains_null,
                )
        if ours == VOID:  # Its rows are null, and no file has the column, so any type fits.
            return theirs if theirs != VOID else ours
        if self._widens and _is_wider(ours, theirs):
            place = {"fieldPath": ".".join(path)} if path else {}
            change = {"fromType": type_name(ours), "toType": type_name(theirs), **place}
            self._changes.append(change)
            return theirs
        _require_storable(theirs, ours, name)
        return ours


def _is_wider(ours: DataType, theirs: DataType) -> bool:
    """Return whether the second type has all values of the first one, and is of its kind."""
    old, new = type_name(ours), type_name(theirs)
    if not is_widening(old, new):
        return False
    if old in WHOLE_NUMBERS:
        return new in WHOLE_NUMBERS
    return True


def require_fit(table: StructType, data: StructType) -> None:
    """Raise unless the columns of data fit the table; the error names all faults.

    Raises
    ------
    SchemaMismatchError
        A column is not in the table, has an incompatible type, or has values that only the table
        may generate, or a NOT NULL column is missing.
    """
    if any(field.is_identity for field in table.fields):
        require_not_given(table, data.names())
    if data == table:
        return
    columns = {field.name.lower(): field for field in table.fields}
    given = {field.name.lower() for field in data.fields}
    twice = list(same_names(data))
    unknown, others = list[str](), list[tuple[StructField, StructField]]()
    for field in data.fields:
        column = columns.get(field.name.lower())
        if column is None:
            unknown.append(field.name)
        elif not is_storable(field.type, column.type):
            others.append((field, column))
    missing = [
        field.name
        for field in table.fields
        if not field.nullable and field.name.lower() not in given and not has_default(field)
    ]
    faults = [
        *(_occurs_twice(*names) for names in twice),
        *(f"column {name} is not in the table" for name in unknown),
        *(
            f"column {field.name} is {type_name(field.type)}, but the table has "
            f"{type_name(column.type)}"
            for field, column in others
        ),
        *(f"column {name} is missing, but it must not be null" for name in missing),
    ]
    if faults:
        raise SchemaMismatchError(
            argument="data",
            reason="; ".join(faults),
            remedy=_remedy(
                [name for _, name in twice],
                unknown,
                [field.name for field, column in others if _evolves(field, column)],
                [pair for pair in others if not _evolves(*pair)],
                missing,
            ),
        )


def _evolves(field: StructField, column: StructField) -> bool:
    """Return whether data differs from a column only by new fields, or by the types of voids."""
    try:
        merged = merged_schema(StructType((column,)), StructType((field,)))
    except SchemaMismatchError:
        return False
    return is_storable(field.type, merged.fields[0].type)


def _occurs_twice(first: str, second: str) -> str:
    other = "" if first == second else f": {first} differs from it only in case"
    return f"column {second} occurs twice{other}"


def _remedy(
    twice: Sequence[str],
    unknown: Sequence[str],
    evolving: Sequence[str],
    others: Sequence[tuple[StructField, StructField]],
    missing: Sequence[str],
) -> str:
    """Return the remedy for columns that do not fit: one sentence for each kind of fault."""
    sentences = []
    if twice:
        sentences.append(f"Rename or drop one column of each name ({', '.join(twice)})")
    if index := [name for name in unknown if name.startswith(_UNNAMED_INDEX)]:
        sentences.append(
            f"Remove the index of pandas ({', '.join(index)}) with reset_index(drop=True)"
        )
    if new := [name for name in unknown if name not in index]:
        sentences.append(
            f'Drop the new columns ({", ".join(new)}), or pass schema_mode="merge" to add them'
        )
    if evolving:
        sentences.append(
            f'Pass schema_mode="merge" to add the new fields or types of {", ".join(evolving)}, or '
            "drop them"
        )
    if others:
        names = ", ".join(column.name for _, column in others)
        cut = any(has.type in _TIMES and column.type == _DATE for has, column in others)
        loss = ", if their time of day may be lost" if cut else ""
        sentences.append(f"Cast {names} to the types of the table{loss}")
    if missing:
        sentences.append(f"Add {', '.join(missing)} with a value in each row")
    return ". ".join(sentences)


def _require_storable(have: DataType, want: DataType, name: str) -> None:
    if not is_storable(have, want):
        raise SchemaMismatchError(
            argument="data",
            field=name,
            reason=f"column {name} is {type_name(have)}, but the table has {type_name(want)}",
            remedy="Cast the column before writing",
        )


def is_storable(have: DataType, want: DataType) -> bool:
    """Return whether values of one type may be written to a column of another type.

    This is the rule of assignment of all verbs: a number may be stored in any type of number that
    has exactly this value, other values only in a type of their own kind. `fit_column` checks each
    value; an explicit cast makes a value of the wanted type, and so chooses what is lost.
    """
    if have in (want, VOID) or want == VARIANT:
        return True
    if have == _BINARY and is_blob_type(want):
        return True  # `fit_column` refuses a struct like this that is no blob column.
    if is_number(have) and is_number(want):
        return True
    match have, want:
        case StructType(inner), StructType(fields):
            names = {field.name.lower(): field.type for field in fields}
            return all(
                field.name.lower() in names and is_storable(field.type, names[field.name.lower()])
                for field in inner
            )
        case ArrayType(element), ArrayType(target):
            return is_storable(element, target)
        case MapType(key, value), MapType(to_key, to_value):
            return is_storable(key, to_key) and is_storable(value, to_value)
        case PrimitiveType(old), PrimitiveType(new) if old.startswith("timestamp"):
            return old.replace("_nanos", "") == new.replace("_nanos", "")
        case PrimitiveType(old), PrimitiveType(new):
            return is_widening(old, new)
    return False


def lacking_fields(have: DataType, want: DataType, name: str) -> Iterator[str]:
    """Yield the paths of the fields, at any depth, that structs of one type lack for another.

    They are those of `want`. `name` is the path of the column, with which each path begins. Fields
    within a field that is lacking are not named.
    """
    match have, want:
        case StructType(inner), StructType(fields):
            given = {field.name.lower(): field.type for field in inner}
            for field in fields:
                path = f"{name}.{field.name}"
                if field.name.lower() in given:
                    yield from lacking_fields(given[field.name.lower()], field.type, path)
                elif field.type != VOID:  # It has no stored value to lose.
                    yield path
        case ArrayType(element), ArrayType(target):
            yield from lacking_fields(element, target, f"{name}.element")
        case MapType(key, value), MapType(to_key, to_value):
            yield from lacking_fields(key, to_key, f"{name}.key")
            yield from lacking_fields(value, to_value, f"{name}.value")


def require_whole_structs(have: DataType, want: DataType, name: str, *, argument: str) -> None:
    """Raise if a value for a column of existing rows lacks fields that the column's structs have.

    Such a value does not say what becomes of the field's stored value. A merge that evolves the
    schema, or that is made by key columns, keeps it.

    Raises
    ------
    SchemaMismatchError
        The error names the fields.
    """
    lacking = list(lacking_fields(have, want, name))
    if lacking:
        raise SchemaMismatchError(
            argument=argument,
            field=lacking[0],
            reason=f"the value for column {name} has no field {', '.join(lacking)}, so it does not "
            "say what becomes of stored values",
            remedy=f'Give these fields too, or assign single fields, as in {{"{name}.…": …}}; a '
            'merge with schema_mode="merge" (withSchemaEvolution on Spark) keeps stored values'
            if all(_is_assignable(want, path.removeprefix(f"{name}.")) for path in lacking)
            else "Give these fields too",
        )


def _is_assignable(kind: DataType, path: str) -> bool:
    """Return whether a field has a name to assign to; those in arrays and maps have none."""
    parts = path.split(".")
    return isinstance(kind, StructType) and len(kind.along(parts)) == len(parts)


def fitted(
    reader: pa.RecordBatchReader,
    table: StructType,
    numbering: Numbering | None = None,
    *,
    partition_by: Collection[str] = (),
    truncates: bool = False,
) -> Iterator[pa.RecordBatch]:
    """Convert batches to the table's columns and types.

    Columns that the data lacks get their default value or null; identity columns are numbered, and
    generated columns are computed. Empty texts in the columns `partition_by` become null, before
    anything is computed from them. `truncates` is that of `cast_array`.

    Raises
    ------
    SchemaMismatchError
        A value does not fit its column: it is too large, too precise, or null in a NOT NULL column.
    UnsupportedFeatureError
        The data lacks a column whose default txlog cannot evaluate.
    """
    fitting = Fitting(
        reader.schema.names, table, numbering, partition_by=partition_by, truncates=truncates
    )
    blobs = [name.lower() for name in blob_columns(table)]
    for batch in reader:
        for part in in_parts(batch, blobs) if blobs else (batch,):
            rows = fitting.rows(part)
            if rows is not None:
                yield rows


class Fitting:
    """Converts batches with the same columns to the columns and types of a table.

    Parameters and errors are those of `fitted`.
    """

    def __init__(
        self,
        names: Sequence[str],
        table: StructType,
        numbering: Numbering | None = None,
        *,
        partition_by: Collection[str] = (),
        truncates: bool = False,
    ) -> None:
        self.table = table
        self.places = {name.lower(): place for place, name in enumerate(names)}
        self.numbering = numbering
        self.partition_by = frozenset(partition_by)
        self.truncates = truncates
        self._target = arrow_schema(table)
        missing = [field for field in table.fields if field.name.lower() not in self.places]
        if numbering is not None:
            numbering.start(f.name for f in missing)
        self._defaults = {
            f.name: default_value(f) for f in missing if not (is_generated(f) or f.is_identity)
        }
        self._computed = {f.name: f for f in missing if is_generated(f)}
        self._expressions = generated_columns(table) if self._computed else {}

    def rows(self, batch: pa.RecordBatch) -> pa.RecordBatch | None:
        """Return a batch in the table's columns; None if it has no rows. Errors as `fitted`."""
        arrays = []
        for field in self.table.fields:
            if field.name in self._computed:
                arrays.append(pa.nulls(batch.num_rows, self._target.field(field.name).type))
                continue
            if field.is_identity and field.name.lower() not in self.places:
                assert self.numbering is not None
                array = self.numbering.values(field.name, batch.num_rows)
            elif field.name in self._defaults:
                array = pa.repeat(self._defaults[field.name], batch.num_rows)
            else:
                array = batch.column(self.places[field.name.lower()])
            arrays.append(self._fit(array, field))
        if not batch.num_rows:
            return None
        if self.numbering is not None:
            self.numbering.take(batch.num_rows)
        rows = pa.RecordBatch.from_arrays(arrays, schema=self._target)
        for place, field in enumerate(self.table.fields):
            if field.name in self._computed:
                with of_argument("data", field.name):
                    values = flat(evaluate(self._expressions[field.name], rows))
                arrays[place] = self._fit(values, field)
        return pa.RecordBatch.from_arrays(arrays, schema=self._target) if self._computed else rows

    def _fit(self, array: pa.Array, field: StructField) -> pa.Array:
        return _fit_in_row(array, field, partition_by=self.partition_by, truncates=self.truncates)


def _fit_in_row(
    array: pa.Array, field: StructField, *, partition_by: frozenset[str], truncates: bool
) -> pa.Array:
    """Return a column of rows as the table stores it: a partition column without empty texts."""
    fit = fit_column(array, field, truncates=truncates)
    if field.name not in partition_by or not is_emptied(field.type):
        return fit
    stored = without_empty(fit)
    if not field.nullable and stored.null_count:
        raise SchemaMismatchError(
            argument="data",
            field=field.name,
            reason=f"partition column {field.name} must not be null, and some values are empty: "
            "a Delta table records an empty partition value as null",
            remedy="Fill or drop these rows before writing",
        )
    return stored


def _remedy_of(error: Exception) -> str:
    """Return the remedy of an error about the types of a column, or an empty text."""
    if isinstance(error, TxlogError):
        return error.remedy
    return _TOO_FINE if "timestamp[ns" in str(error) else ""


def fit_column(
    array: pa.Array,
    field: StructField,
    *,
    truncates: bool = False,
    remedy: str = CORRECT,
) -> pa.Array:
    """Return values in a column's type; no value is changed, as `is_storable` says.

    Only values of rows are checked, not what Arrow stores below nulls (`without_hidden`).

    `truncates` and errors are those of `fitted`; `remedy` is that of a value that does not fit.
    """
    target = arrow_field(field).type
    try:
        how = Casting(truncates)
        if VARIANT in types_in(StructType((field,))):
            from txlog.variant.arrays import as_variants

            how = Casting(truncates, as_variants)
        values = without_hidden(array)
        as_bytes = is_blob(field) and is_bytes(values.type)
        fit = values if as_bytes else cast_array(values, field.type, target, how)
    except (pa.ArrowException, ValueError, InvalidInputError) as error:
        raise SchemaMismatchError(
            argument="data",
            field=field.name,
            reason=f"column {field.name} is {array.type}, and a value does not fit "
            f"{type_name(field.type)}: {reason_of(error)}",
            remedy=_remedy_of(error) or remedy,
        ) from error
    if is_blob(field):
        fit = as_blobs(fit, field.name)
    if not is_readable(fit):
        raise SchemaMismatchError(
            argument="data",
            field=field.name,
            reason=f"column {field.name} has text that is not UTF-8",
            remedy="Decode its bytes by their encoding, or write them to a binary column",
        )
    if not field.nullable or pa.types.is_nested(target):
        require_no_null(fit, field, field.name)
    return fit


@dataclass(frozen=True)
class Incoming:
    """The data to write, and its schema."""

    reader: pa.RecordBatchReader
    schema: StructType  # The columns of the data, in types of Delta.


def incoming(
    data: Any, table: StructType | None, *, nanos: bool = False, truncates: bool = False
) -> Incoming:
    """Return data with its schema before any row is read.

    Parameters
    ----------
    table
        The columns that take the data. None: the table gets those of the data.
    nanos
        Whether new columns may hold nanoseconds.
    truncates
        Whether nanoseconds may be cut off, so that new columns of them cause no warning.

    Raises
    ------
    InvalidInputError
        The data is not Arrow data, or it has a type that Delta does not have.
    """
    reader = as_reader(data)
    schema = schema_of(reader.schema, table, nanos=nanos, truncates=truncates)
    if table is None:
        return Incoming(reader, with_given_metadata(schema, reader.schema))
    warn_of_metadata(reader.schema, table)
    return Incoming(reader, schema)


def require_typed(fields: Sequence[StructField], table: StructType, prefix: str = "") -> None:
    """Raise if a field that the table lacks has or contains Arrow's null type.

    Columns of Spark may have this type: then a user has chosen it.

    Raises
    ------
    SchemaMismatchError
        The error names the field.
    """
    for field in fields:
        name = f"{prefix}{field.name}"
        known = table.get(field.name)
        if known is None and has_void(field.type):
            raise SchemaMismatchError(
                argument="data",
                field=name,
                reason=f"new column {name} holds only nulls, or lists or fields that do, so its "
                "type is unknown",
                remedy="Cast it to the type that it should have, or omit it",
            )
        if known is not None:
            _require_typed(field.type, known.type, name)


def _require_typed(have: DataType, known: DataType, name: str) -> None:
    match have, known:
        case StructType(fields), StructType():
            require_typed(fields, known, f"{name}.")
        case ArrayType(element), ArrayType(ours):
            _require_typed(element, ours, f"{name}.element")
        case MapType(key, value), MapType(our_key, our_value):
            _require_typed(key, our_key, f"{name}.key")
            _require_typed(value, our_value, f"{name}.value")


def target_schema(
    table: StructType,
    data: StructType,
    modes: WriteModes,
    *,
    fixed: Collection[str] | None = None,
) -> StructType:
    """Return the schema of a table after data of another schema is written to it.

    `fixed` is that of `merged_schema`.

    Raises
    ------
    SchemaMismatchError
        The data does not fit, and `modes` do not allow a change of the schema.
    """
    if modes.replaces_schema:
        require_columns(data)
        return with_blobs_of(table, data)
    if modes.schema_mode == "merge":
        for first, second in same_names(data):
            raise SchemaMismatchError(
                argument="data",
                field=second,
                reason=_occurs_twice(first, second),
                remedy=_remedy([second], (), (), (), ()),
            )
        merged = merged_schema(table, data, fixed=fixed)
        require_fit(merged, data)
        return merged
    require_fit(table, data)
    return table
