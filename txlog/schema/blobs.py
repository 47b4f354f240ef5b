"""Blob columns: binary values. The large ones are in files of their own. Pure.

Rules: spec/blobs.md. Delta has no such type. A blob column is a struct (`BLOB`), and the metadata
of its field says above which size a value leaves the row (`ABOVE`). Other engines keep both.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import pyarrow as pa

from txlog.base.arrow import pc
from txlog.base.errors import (
    InvalidInputError,
    SchemaMismatchError,
    require_flags,
    require_texts,
    require_whole,
)
from txlog.schema.types import DataType, PrimitiveType, StructField, StructType, types_in

ABOVE = "txlog.blob"
"""The key in the metadata of a blob column: larger values, in bytes, are in packs."""
USUAL_ABOVE = 65_536
MOST_BYTES = 2**31 - 1
"""The largest value that an Arrow `binary` has."""

_FIRST_OFFSET = 16  # The bytes before the first value of a pack.
_MOST_OFFSET = 2**63 - 1

BLOB = StructType(
    (
        StructField("path", PrimitiveType("string")),
        StructField("offset", PrimitiveType("long")),
        StructField("size", PrimitiveType("long")),
        StructField("data", PrimitiveType("binary")),
    )
)
"""The type of a blob column. A value is in `data`, or `size` bytes from `offset` of a pack."""
ARROW_BLOB = pa.struct(
    [("path", pa.string()), ("offset", pa.int64()), ("size", pa.int64()), ("data", pa.binary())]
)


def blob(name: str, *, above: int = USUAL_ABOVE, nullable: bool = True) -> pa.Field:
    """Return the Arrow field of a blob column, for the schema of a new table or new columns.

    Its type is `large_binary`: data are written as bytes. The table has a struct with the fields
    `path`, `offset`, `size` and `data`.

    Parameters
    ----------
    above
        Values of more bytes are in files of their own beside the table's data files.

    Raises
    ------
    InvalidTypeError, InvalidInputError
        An argument has another type, or `above` is below 0 or above 2 GiB.

    Examples
    --------
    >>> import pyarrow as pa
    >>> schema = pa.schema([pa.field("id", pa.int64()), blob("video")])
    """
    require_texts(name=name)
    require_flags(nullable=nullable)
    require_whole("above", above, least=0)
    if above > MOST_BYTES:
        raise _wrong_above(name, str(above), argument="above")
    return pa.field(name, pa.large_binary(), nullable, {ABOVE: str(above)})


def is_blob(field: StructField) -> bool:
    """Return whether a column is a blob column."""
    return ABOVE in field.metadata and is_blob_type(field.type)


def is_blob_type(kind: DataType) -> bool:
    """Return whether a type has the fields of `BLOB`; the metadata of a mapping may differ."""
    if not isinstance(kind, StructType) or len(kind.fields) != len(BLOB.fields):
        return False
    pairs = zip(kind.fields, BLOB.fields, strict=True)
    return all((one.name, one.type) == (own.name, own.type) for one, own in pairs)


def is_bytes(kind: pa.DataType) -> bool:
    """Return whether Arrow values are bytes, which a blob column takes."""
    types = pa.types
    if types.is_dictionary(kind) or types.is_run_end_encoded(kind):
        return is_bytes(kind.value_type)
    return bool(
        types.is_binary(kind)
        or types.is_large_binary(kind)
        or types.is_binary_view(kind)
        or types.is_fixed_size_binary(kind)
    )


def with_blobs_of(table: StructType, data: StructType) -> StructType:
    """Return the columns of new rows, in which blob columns of a table stay blob columns.

    Rows of a blob column are structs. If a caller loses the metadata of the column, they would make
    it a plain struct of paths and offsets.
    """
    known = {field.name: field for field in table.fields if is_blob(field)}
    fields = []
    for field in data.fields:
        old = known.get(field.name)
        if old is not None and ABOVE not in field.metadata and is_blob_type(field.type):
            field = replace(field, metadata={**field.metadata, ABOVE: old.metadata[ABOVE]})
        fields.append(field)
    return StructType(tuple(fields))


def above_of(field: StructField) -> int:
    """Return the size in bytes above which values of a blob column are in packs.

    Raises
    ------
    InvalidInputError
        The metadata of the column has no such number.
    """
    text = str(field.metadata[ABOVE])
    if not (text.isdecimal() and text.isascii() and int(text[:20]) <= MOST_BYTES):
        raise _wrong_above(field.name, text, argument="schema")
    return int(text[:20])


def _wrong_above(name: str, text: str, *, argument: str) -> InvalidInputError:
    return InvalidInputError(
        argument=argument,
        field=name,
        reason=f"{ABOVE} of column {name} is {text!r}, and not a number of bytes up to "
        f"{MOST_BYTES}",
        remedy=f"Declare the column with a number of bytes, such as {USUAL_ABOVE}",
    )


def blob_columns(schema: StructType) -> dict[str, int]:
    """Return the blob columns of a schema, with the sizes of `above_of`; errors as there."""
    return {field.name: above_of(field) for field in schema.fields if is_blob(field)}


def have_pack_names(paths: pa.Array) -> pa.Array:
    """Return whether each path in a struct has the name of a pack; null for null."""
    return pc.match_substring_regex(paths, r"[^/\s]\.blobs\z")


def is_arrow_blob(kind: pa.DataType) -> bool:
    """Return whether an Arrow type has the fields of `ARROW_BLOB`, in any order."""
    return pa.types.is_struct(kind) and {f.name for f in kind} == {f.name for f in ARROW_BLOB}


def names_packs(values: pa.Array) -> bool:
    """Return whether a struct of Arrow values names a pack, whatever the column is."""
    if not is_arrow_blob(values.type):
        return False
    path, data = (pc.struct_field(values, name) for name in ("path", "data"))
    if path.type not in (pa.string(), pa.large_string(), pa.string_view()):
        return False
    named = pc.and_(have_pack_names(path.cast(pa.large_string())), data.is_null())
    return bool(pc.any(pc.fill_null(named, False)).as_py())


def may_name_packs(schema: StructType) -> dict[str, int]:
    """Return the columns whose values may be in packs, with the sizes of `above_of`.

    These are the blob columns, and others of this type: their structs may be copies of values. No
    new value of them leaves its row.
    """
    kinds = [field for field in schema.fields if is_blob_type(field.type)]
    return {one.name: above_of(one) if is_blob(one) else MOST_BYTES for one in kinds}


def require_same_blobs(before: StructType, after: StructType) -> None:
    """Raise if a change of the schema makes a blob column another one, or another one a blob.

    Raises
    ------
    InvalidInputError
        The error names the column.
    """
    known = {field.name: field for field in before.fields}
    for field in after.fields:
        old = known.get(field.name, field)
        if is_blob(old) != is_blob(field) or (is_blob(old) and old.type != field.type):
            raise InvalidInputError(
                argument="metadata",
                field=field.name,
                reason=f"column {field.name} has rows of its kind: it stays "
                f"{'a blob' if is_blob(old) else 'what it is'} with unchanged fields",
                remedy="Add a new column, write the values to it, and drop this one; the number of "
                "bytes of a blob column may change",
            )


def has_blobs(schema: StructType) -> bool:
    """Return whether a column or field is declared as a blob, rightly or wrongly."""
    return any(ABOVE in field.metadata for field in _fields_in(schema))


def _fields_in(schema: StructType) -> Iterator[StructField]:
    yield from schema.fields
    for kind in types_in(schema):
        if isinstance(kind, StructType):
            yield from kind.fields


def require_blobs(schema: StructType) -> None:
    """Raise if something is declared as a blob that cannot be one.

    Raises
    ------
    InvalidInputError
        It is a field within another column, its type is not that of a blob, or the size is wrong.
    """
    for field in schema.fields:
        if ABOVE not in field.metadata:
            continue
        if not is_blob_type(field.type):
            raise InvalidInputError(
                argument="schema",
                field=field.name,
                reason=f"column {field.name} is declared as a blob ({ABOVE}), but its type is not "
                "binary or the struct of path, offset, size and data",
                remedy="Declare a binary column, or remove this key from its metadata",
            )
        above_of(field)
    top = sum(ABOVE in field.metadata for field in schema.fields)
    nested = [field.name for field in _fields_in(schema) if ABOVE in field.metadata]
    if len(nested) > top:
        names = set(nested) - {f.name for f in schema.fields if ABOVE in f.metadata}
        name = next(iter(sorted(names)), nested[-1])
        raise InvalidInputError(
            argument="schema",
            field=name,
            reason=f"{name} is declared as a blob ({ABOVE}) within another column",
            remedy="Only whole columns can be blobs: make it a column of the table",
        )


def as_blobs(array: pa.Array, name: str) -> pa.Array:
    """Return bytes, or structs of the type `ARROW_BLOB`, as the structs of a blob column.

    A value in `data` gets its size. A struct that names a pack stays as it is.

    Raises
    ------
    SchemaMismatchError
        A value is too large for Arrow, or a struct names no range of a pack, or a pack and bytes.
    """
    if is_bytes(array.type):
        return _wrapped(array, name)
    path, offset, size, data = array.flatten()
    sizes = pc.binary_length(data).cast(pa.int64())
    packed, inline = path.is_valid(), data.is_valid()
    # Sums above the largest offset are never computed: they would be negative.
    fits = pc.less_equal(size, pc.subtract(_MOST_OFFSET, pc.max_element_wise(offset, 0)))
    starts = pc.and_(pc.greater_equal(offset, _FIRST_OFFSET), have_pack_names(path))
    whole = pc.and_(pc.and_(starts, fits), pc.greater_equal(size, 0))
    ranged = pc.and_(packed, pc.fill_null(whole, False))
    right = pc.and_(pc.xor(packed, inline), pc.or_(ranged, inline))
    if pc.any(pc.and_(array.is_valid(), pc.invert(right))).as_py():
        wrong = path.filter(pc.fill_null(pc.and_(packed, pc.invert(right)), False))
        reason = f": {wrong[0].as_py()!r} with its range is none of a pack" if len(wrong) else ""
        raise SchemaMismatchError(
            argument="data",
            field=name,
            reason=f"a struct of column {name} has neither bytes in data nor a path with an offset "
            f"and a size, or it has both{reason}",
            remedy="Write bytes, or structs as they were read from this table",
        )
    sizes = pc.if_else(inline, sizes, size)
    offset = pc.if_else(inline, None, offset)
    mask = array.is_null() if array.null_count else None
    children = [path, offset, sizes, data]
    return pa.StructArray.from_arrays(children, fields=list(ARROW_BLOB), mask=mask)


def _wrapped(array: pa.Array, name: str) -> pa.Array:
    """Return bytes as values that are in their rows."""
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    elif pa.types.is_run_end_encoded(array.type):
        array = pc.run_end_decode(array)
    if pa.types.is_binary_view(array.type) or pa.types.is_fixed_size_binary(array.type):
        array = array.cast(pa.large_binary())
    sizes = pc.binary_length(array).cast(pa.int64())
    most = pc.max(sizes).as_py() or 0
    if most > MOST_BYTES:
        raise SchemaMismatchError(
            argument="data",
            field=name,
            reason=f"a value of column {name} has {most} bytes, and a value may have {MOST_BYTES}",
            remedy="Divide the value over several rows",
        )
    nothing = [pa.nulls(len(array), kind) for kind in (pa.string(), pa.int64())]
    mask = array.is_null() if array.null_count else None
    children = [*nothing, sizes, array.cast(pa.binary())]
    return pa.StructArray.from_arrays(children, fields=list(ARROW_BLOB), mask=mask)


def in_parts(batch: pa.RecordBatch, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Yield a batch in parts of which each column of bytes fits into one Arrow `binary` array.

    Parameters
    ----------
    columns
        The names of blob columns, in lower case.
    """
    large = [
        array
        for name, array in zip(batch.schema.names, batch.columns, strict=True)
        if name.lower() in columns and pa.types.is_large_binary(array.type)
    ]
    totals = [pc.sum(pc.binary_length(array)).as_py() or 0 for array in large]
    if max(totals, default=0) <= MOST_BYTES or batch.num_rows <= 1:
        yield batch
        return
    half = batch.num_rows // 2
    yield from in_parts(batch.slice(0, half), columns)
    yield from in_parts(batch.slice(half), columns)
