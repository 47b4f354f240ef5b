"""Rebuild variants from the shredded columns of a data file."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import repeat
from typing import Any

import pyarrow as pa

from txlog.base.arrow import arrow_array, pc
from txlog.base.errors import DataFileError, InvalidInputError, reason_of
from txlog.schema.arrow import arrow_type, is_list
from txlog.schema.types import PrimitiveType
from txlog.variant.builder import (
    encode_array,
    encode_binary,
    encode_bool,
    encode_date,
    encode_decimal,
    encode_double,
    encode_float,
    encode_int,
    encode_moment,
    encode_names,
    encode_object,
    encode_text,
    encode_uuid,
)
from txlog.variant.encoding import (
    NO_NAMES,
    NULL_VALUE,
    Kind,
    MalformedError,
    decode_names,
    object_parts,
)

_TYPES = pa.types


def encode_typed(array: pa.Array) -> list[bytes | None]:
    """Return each value of a primitive column as a variant, None for null.

    Raises
    ------
    MalformedError
        Variants cannot be shredded to this type.
    """
    plain, encode = _prepared(array)
    return [None if value is None else encode(value) for value in plain]


def _prepared(array: pa.Array) -> tuple[Iterable[Any], Callable[[Any], bytes]]:
    """Return plain values and their encoder; dates and times are numbers, as any year can occur."""
    kind = array.type
    if _TYPES.is_boolean(kind):
        return array.to_pylist(), encode_bool
    if _TYPES.is_signed_integer(kind):
        return array.to_pylist(), encode_int
    if _TYPES.is_float64(kind):
        return array.to_pylist(), encode_double
    if _TYPES.is_float32(kind):
        return array.to_pylist(), encode_float
    if _TYPES.is_decimal(kind):
        return array.to_pylist(), encode_decimal
    if _TYPES.is_string(kind) or _TYPES.is_large_string(kind) or _TYPES.is_string_view(kind):
        return array.to_pylist(), encode_text
    if _TYPES.is_binary(kind) or _TYPES.is_large_binary(kind) or _TYPES.is_binary_view(kind):
        return array.to_pylist(), encode_binary
    if _TYPES.is_fixed_size_binary(kind) and kind.byte_width == 16:
        return array.to_pylist(), encode_uuid
    if _TYPES.is_date(kind):
        return array.cast(pa.date32()).cast(pa.int32()).to_pylist(), encode_date
    if _TYPES.is_time(kind):
        return array.cast(pa.time64("us")).cast(pa.int64()).to_pylist(), _moments(Kind.TIME)
    if _TYPES.is_timestamp(kind):
        zoned = kind.tz is not None
        if kind.unit == "ns":
            moment = Kind.TIMESTAMP_NS if zoned else Kind.TIMESTAMP_NTZ_NS
        else:
            array = array.cast(pa.timestamp("us", kind.tz))
            moment = Kind.TIMESTAMP if zoned else Kind.TIMESTAMP_NTZ
        return array.cast(pa.int64()).to_pylist(), _moments(moment)
    if _TYPES.is_null(kind):
        return array.to_pylist(), encode_bool  # All values are null.
    raise MalformedError(f"variants cannot be shredded to the type {kind}")


def _moments(kind: Kind) -> Callable[[int], bytes]:
    return lambda ticks: encode_moment(kind, ticks)


_VARIANT = arrow_type(PrimitiveType("variant"))
_Values = Sequence[bytes | None]  # Encoded values; None for a missing value.


def unshred(array: pa.Array, *, path: str = "", column: str = "") -> pa.StructArray:
    """Return a file's variant column as structs of `value` and `metadata`, without shredding.

    Pure. A column that is not shredded keeps its bytes and costs nothing for each row.

    Parameters
    ----------
    array
        Structs of `metadata`, `value` and perhaps `typed_value`, in any order, as Arrow reads
        them from Parquet.
    path, column
        The file and the column, for error messages.

    Returns
    -------
    Structs of `value` and `metadata`, null where `array` is. A row with neither value nor typed
    value holds variant null. Where a row's metadata lacks names of its fields, they are added.

    Raises
    ------
    DataFileError
        The column is not a variant, or its parts contradict each other: a field is both in `value`
        and in `typed_value`, or there are two values instead of one.

    Notes
    -----
    Bytes in `value` are passed on without a check, unless they are an object that is merged with
    shredded fields.
    """
    try:
        return _unshred(_plain(array))
    except (MalformedError, InvalidInputError, pa.ArrowException, UnicodeError) as error:
        raise _bad(reason_of(error), path, column) from error
    except RecursionError as error:
        raise _bad("its type is nested too deeply", path, column) from error


def _unshred(array: pa.Array) -> pa.StructArray:
    children = _children(array)
    metadata = _binary(children.get("metadata"), array)
    value = _binary(children.get("value"), array)
    if metadata is None:
        raise MalformedError(f"the type {array.type} is not a variant: it has no field metadata")
    if metadata.null_count > array.null_count:
        raise MalformedError("the metadata of a row is null")
    if "typed_value" in children:
        rows = _Rows(metadata)
        value = arrow_array(rows.group(array, range(len(array))), pa.binary())
        metadata = rows.metadata() or metadata
    if value is None:
        raise MalformedError(f"the type {array.type} is not a variant: it has no field value")
    parts = [
        pc.fill_null(child, default) if child.null_count else child
        for child, default in ((value, NULL_VALUE), (metadata, NO_NAMES))
    ]
    null = array.is_null() if array.null_count else None
    return pa.StructArray.from_arrays(parts, fields=list(_VARIANT), mask=null)


class _Dictionary:
    """The names of a row's metadata, and further names that are added. Ids never change."""

    def __init__(self, names: list[str]) -> None:
        self.names = names
        self.size = len(names)
        # The first of two equal names counts.
        self.ids = {name: len(names) - 1 - at for at, name in enumerate(reversed(names))}

    def id_of(self, name: str) -> int:
        """Return a name's id; a new name is added."""
        found = self.ids.get(name)
        if found is None:
            found = self.ids[name] = len(self.names)
            self.names.append(name)
        return found

    @property
    def has_grown(self) -> bool:
        return len(self.names) > self.size


class _Rows:
    """Rebuilds the rows of one array, column by column.

    The methods return one value for each position of the array that they are given; `rows` holds
    the row of the whole column for each position.
    """

    def __init__(self, metadata: pa.Array) -> None:
        self.stored: list[bytes | None] = metadata.to_pylist()
        self.known: dict[bytes | None, _Dictionary] = {}

    def names(self, row: int) -> _Dictionary:
        """Return the dictionary of a row; rows of the same metadata share one."""
        stored = self.stored[row]
        found = self.known.get(stored)
        if found is None:
            try:
                found = self.known[stored] = _Dictionary(decode_names(stored or b""))
            except MalformedError as error:
                raise MalformedError(f"row {row}: {error}") from error
        return found

    def metadata(self) -> pa.Array | None:
        """Return the metadata of all rows if names were added to any of them."""
        grown = {
            stored: encode_names(names.names)
            for stored, names in self.known.items()
            if names.has_grown
        }
        if not grown:
            return None
        return arrow_array([grown.get(stored, stored) for stored in self.stored], pa.binary())

    def group(self, group: pa.Array, rows: Sequence[int]) -> _Values:
        """Return the values of a group, which has the fields `value` and `typed_value`."""
        children = _children(group)
        if not {"value", "typed_value"} & children.keys():
            raise MalformedError(f"the type {group.type} has neither value nor typed_value")
        stored = _binary(children.get("value"), group)
        values: _Values = [None] * len(group) if stored is None else stored.to_pylist()
        typed = children.get("typed_value")
        if typed is not None:
            typed = _plain(typed)
            if pa.types.is_struct(typed.type):
                values = self.objects(typed, values, rows)
            elif is_list(typed.type):
                values = _either(values, self.arrays(typed, rows), rows)
            else:
                values = _either(values, encode_typed(typed), rows)
        return values

    def objects(self, typed: pa.Array, values: _Values, rows: Sequence[int]) -> _Values:
        """Return objects that combine the shredded fields with those left in `values`."""
        columns = {name: self.group(_plain(child), rows) for name, child in _fields(typed)}
        shredded = sorted(columns.items())  # The order of code points is the order of UTF-8 too.
        found: list[bytes | None] = []
        for at, is_object in enumerate(typed.is_valid().to_pylist()):
            left = values[at]
            if not is_object:
                found.append(left)
                continue
            names = self.names(rows[at])
            parts = [(name, part) for name, column in shredded if (part := column[at]) is not None]
            if left is not None:
                try:
                    others = object_parts(left, names.names)
                except MalformedError as error:
                    raise MalformedError(f"row {rows[at]}: {error}") from error
                for name in others:
                    if name in columns:
                        raise MalformedError(
                            f"row {rows[at]} has the field {name!r} both in value and in "
                            "typed_value"
                        )
                parts = sorted([*parts, *others.items()])
            found.append(encode_object([(names.id_of(name), part) for name, part in parts]))
        return found

    def arrays(self, typed: pa.Array, rows: Sequence[int]) -> _Values:
        """Return the arrays of shredded elements; a missing element is variant null."""
        lengths = pc.list_value_length(typed).to_pylist()
        inner: list[int] = []
        for row, length in zip(rows, lengths, strict=True):
            inner.extend(repeat(row, length or 0))
        elements = [part or NULL_VALUE for part in self.group(_plain(typed.flatten()), inner)]
        found: list[bytes | None] = []
        at = 0
        for length in lengths:
            if length is None:
                found.append(None)
            else:
                found.append(encode_array(elements[at : at + length]))
                at += length
        return found


def _either(values: _Values, typed: _Values, rows: Sequence[int]) -> _Values:
    found = []
    for at, (value, part) in enumerate(zip(values, typed, strict=True)):
        if value is not None and part is not None:
            raise MalformedError(f"row {rows[at]} has both a value and a typed value")
        found.append(part if value is None else value)
    return found


def _children(group: pa.Array) -> dict[str, pa.Array]:
    if not pa.types.is_struct(group.type):
        raise MalformedError(f"the type {group.type} is not part of a variant")
    found = dict(_fields(group))
    if unknown := sorted(found.keys() - {"metadata", "value", "typed_value"}):
        raise MalformedError(f"the field {unknown[0]!r} is not part of a variant")
    return found


def _fields(group: pa.Array) -> list[tuple[str, pa.Array]]:
    """Return the names and columns of a group's fields, null where the group is null."""
    names = [f.name for f in group.type]
    if len(set(names)) < len(names):
        raise MalformedError(f"the type {group.type} has two fields with one name")
    if group.null_count:
        return list(zip(names, group.flatten(), strict=True))
    return [(name, group.field(at)) for at, name in enumerate(names)]


def _binary(child: pa.Array | None, group: pa.Array) -> pa.Array | None:
    if child is None:
        return None
    child = _plain(child)
    if not _is_binary(child.type):
        raise MalformedError(f"the type {group.type} is not a variant: its parts are not binary")
    return child if child.type == pa.binary() else child.cast(pa.binary())


def _plain(array: pa.Array) -> pa.Array:
    """Return an array as its plain values, without dictionary or extension type."""
    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    return array.dictionary_decode() if pa.types.is_dictionary(array.type) else array


def _is_binary(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind)
    )


def _bad(reason: str, path: str, column: str) -> DataFileError:
    named = f"variant column {column}" if column else "a variant column"
    return DataFileError(
        path=path,
        reason=f"{named} cannot be rebuilt: {reason}",
        remedy="The writer of the file breaks Parquet's rules for variants; write the file with "
        "another one",
    )
