"""Convert partition values between the log's texts and typed columns.

Rules: the Delta protocol, "Partition Value Serialization". An empty text means null for each type.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from decimal import ROUND_HALF_UP, Decimal, localcontext
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from txlog.base.arrow import arrow_array, numpy_array, pc
from txlog.base.columns import flat, nulled
from txlog.base.errors import InvalidInputError, LogCorruptError, UnsupportedFeatureError
from txlog.base.moments import format_date, format_moment
from txlog.schema.arrow import arrow_type
from txlog.schema.timestamps import format_nanos, parse_date, parse_moment
from txlog.schema.types import (
    WHOLE_NUMBERS,
    DataType,
    DecimalType,
    PrimitiveType,
    type_name,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray


def encoded(texts: pa.Array) -> pa.DictionaryArray:
    """Return strings as a dictionary array without unused entries."""
    if not pa.types.is_dictionary(texts.type):
        return pc.dictionary_encode(texts)
    if len(texts.dictionary) > len(texts):
        return pc.dictionary_encode(texts.dictionary_decode())
    used = np.bincount(numpy_array(texts.indices.drop_null()), minlength=len(texts.dictionary)) > 0
    numbers = arrow_array(np.cumsum(used, dtype=np.int32) - 1)
    return pa.DictionaryArray.from_arrays(
        numbers.take(texts.indices), texts.dictionary.filter(arrow_array(used))
    )


_INTEGER_TEXT = re.compile(r"[+-]?\d+", re.ASCII)
_YEAR_DIGITS = 6


def parse_partition_values(values: pa.Array, kind: DataType) -> pa.Array:
    """Return logged texts as an array of exactly the type `arrow_type(kind)`.

    Each distinct text is parsed once.

    Raises
    ------
    LogCorruptError
        A text is not a value of the type.
    """
    texts = encoded(flat(values))
    read = _reader(kind)
    target = arrow_type(kind)
    distinct = []
    for text in texts.dictionary.to_pylist():
        try:
            distinct.append(read(text) if text else None)
        except (ValueError, ArithmeticError) as error:
            raise LogCorruptError(
                field="partitionValues",
                reason=f"the partition value {text!r} is not of type {type_name(kind)}: {error}",
                remedy="The writer of this log made an error: restore a version without this value",
            ) from error
    try:
        typed = _array(distinct, target)
    except (pa.ArrowException, OverflowError) as error:
        raise LogCorruptError(
            field="partitionValues",
            reason=f"a partition value does not fit {type_name(kind)}: {error}",
            remedy="The writer of this log made an error: restore a version without this value",
        ) from error
    return pc.take(typed, texts.indices)


def _array(values: list[Any], target: pa.DataType) -> pa.Array:
    if pa.types.is_timestamp(target):
        return arrow_array(values, pa.int64()).cast(target)
    if pa.types.is_date(target):
        return arrow_array(values, pa.int32()).cast(target)
    return arrow_array(values, target)


def _reader(kind: DataType) -> Callable[[str], Any]:
    if isinstance(kind, DecimalType):
        return lambda text: _decimal(text, kind)
    match kind:
        case PrimitiveType(name) if name in WHOLE_NUMBERS:
            return _integer
        case PrimitiveType("float" | "double"):
            return float
        case PrimitiveType("boolean"):
            return _boolean
        case PrimitiveType("date"):
            return lambda text: parse_date(text[:10] if text[10:11] in (" ", "T") else text)
        case PrimitiveType("timestamp" | "timestamp_ntz"):
            return parse_moment
        case PrimitiveType("timestamp_nanos" | "timestamp_nanos_ntz"):
            return partial(parse_moment, digits=9)
        case PrimitiveType("binary"):
            return str.encode
        case PrimitiveType("string"):
            return str
        case PrimitiveType(name) if name.startswith("interval"):
            raise UnsupportedFeatureError(
                features=(f"partition columns of {name}",),
                reason=f"txlog cannot read partition values of the type {name}",
                remedy="Read the table with the engine that wrote it, such as Spark",
            )
    raise LogCorruptError(
        field="partitionColumns", reason=f"{type_name(kind)} cannot be a partition column"
    )


def _integer(text: str) -> int:
    if not _INTEGER_TEXT.fullmatch(text.strip()):
        raise ValueError("a whole number was expected")
    return int(text)


def _decimal(text: str, kind: DecimalType) -> Decimal:
    with localcontext() as context:
        context.prec = 80
        return Decimal(text).quantize(Decimal(1).scaleb(-kind.scale), ROUND_HALF_UP)


def _boolean(text: str) -> bool:
    folded = text.strip().lower()
    if folded not in ("true", "false"):
        raise ValueError("true or false was expected")
    return folded == "true"


def is_emptied(kind: DataType) -> bool:
    """Return whether a partition column of this type may get values that the log holds as null."""
    return kind in (PrimitiveType("string"), PrimitiveType("binary"))


def without_empty(values: pa.Array) -> pa.Array:
    """Return texts or bytes with null for each empty one, as the log holds partition values."""
    empty = pc.equal(pc.binary_length(values), 0)
    return nulled(values, empty) if pc.any(empty).as_py() else values


def format_partition_values(values: pa.Array, kind: DataType) -> pa.Array:
    """Return a column's values as logged texts: the inverse of `parse_partition_values`.

    Errors are those of `code_partition_values`.
    """
    return code_partition_values(values, kind).dictionary_decode()


def code_partition_values(values: pa.Array, kind: DataType) -> pa.DictionaryArray:
    """Return a column's values as logged texts, in a dictionary array without duplicates.

    Raises
    ------
    InvalidInputError
        A binary value is not UTF-8, so the log cannot hold it, or a date is too far off.
    """
    values = flat(values)
    # The dictionary may contain a value or null more than once.
    if pa.types.is_dictionary(values.type):
        values = values.dictionary_decode()
    coded = pc.dictionary_encode(values, null_encoding="encode")
    distinct = coded.dictionary
    text: Callable[[Any], str]
    match kind:
        case PrimitiveType("date"):
            numbers, text = pc.cast(distinct, pa.int32()), _date_text
        case PrimitiveType("timestamp"):
            numbers, text = pc.cast(distinct, pa.int64()), _moment_text
        case PrimitiveType("timestamp_ntz"):
            numbers, text = pc.cast(distinct, pa.int64()), _local_text
        case PrimitiveType("timestamp_nanos" | "timestamp_nanos_ntz" as name):
            zone = "" if name.endswith("_ntz") else "Z"
            numbers, text = pc.cast(distinct, pa.int64()), partial(format_nanos, zone=zone)
        case _:
            numbers, text = distinct, _text
    # The log cannot distinguish an empty string from null.
    texts = [None if value is None else text(value) or None for value in numbers.to_pylist()]
    merged = pc.dictionary_encode(arrow_array(texts, pa.string()), null_encoding="encode")
    return pa.DictionaryArray.from_arrays(pc.take(merged.indices, coded.indices), merged.dictionary)


def _date_text(days: int) -> str:
    return _year(format_date(days))


def _moment_text(micros: int) -> str:
    return _year(format_moment(micros, digits=6, zone="Z"))


def _local_text(micros: int) -> str:
    return _year(format_moment(micros, digits=6, separator=" "))


def _year(text: str) -> str:
    """Return a formatted date or timestamp with a year that can be read back."""
    sign = "-" if text.startswith("-") else ""
    year, rest = text.removeprefix("-").split("-", 1)
    if len(year) > _YEAR_DIGITS:
        raise InvalidInputError(
            argument="data",
            reason=f"the year of the partition value {text} has more than {_YEAR_DIGITS} digits",
            remedy="Partition by another column",
        )
    return f"{sign}{year:0>4}-{rest}"


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        if value != value:
            return "NaN"
        if value in (float("inf"), float("-inf")):
            return "Infinity" if value > 0 else "-Infinity"
        return repr(value)
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError as error:
            raise InvalidInputError(
                argument="data",
                reason=f"the binary partition value {value!r} is not UTF-8",
                remedy="Partition by another column, or encode the value as text",
            ) from error
    return format(value, "f") if isinstance(value, Decimal) else str(value)


Values = tuple[str | None, ...]

NULL_FOLDER = "__HIVE_DEFAULT_PARTITION__"
_ESCAPED = frozenset("\"#%'*/:=?\\{[]^\x7f") | {chr(code) for code in range(32)}
_NAME_BYTES = 255  # The longest folder name on common file systems.


def partition_folder(values: Mapping[str, str | None]) -> str:
    """Return the folder of a partition; an empty text means the table's root.

    The name follows Hive's convention. In the protocol, partition values come from the log, but
    some readers take them from the folder name, so the name contains them exactly.

    The root is used if the name would be too long or the folder would be hidden.
    """
    steps = [
        f"{_escaped(name)}={NULL_FOLDER if value is None else _escaped(value)}"
        for name, value in values.items()
    ]
    if any(step.startswith(("_", ".")) or len(step.encode()) > _NAME_BYTES for step in steps):
        return ""
    return "/".join(steps)


def _escaped(text: str) -> str:
    return "".join(f"%{ord(c):02X}" if c in _ESCAPED else c for c in text)


def by_partition(
    batch: pa.RecordBatch, kinds: Mapping[str, DataType], *, columns: Sequence[str] | None = None
) -> Iterator[tuple[Values, pa.RecordBatch]]:
    """Yield the rows of each partition without the partition columns, with its logged values.

    Rows of one partition keep their order.

    Parameters
    ----------
    kinds
        The partition columns, in their order, with their types; at least one.
    columns
        The columns to yield. Default: all except the partition columns.
    """
    if batch.num_rows == 0:
        return
    coded = [code_partition_values(batch.column(name), kind) for name, kind in kinds.items()]
    numbers = _partition_numbers(coded)
    order = np.argsort(numbers, kind="stable")
    starts = [0, *(np.flatnonzero(np.diff(numbers[order])) + 1).tolist()]
    rows = batch.drop_columns(list(kinds)) if columns is None else batch.select(list(columns))
    ordered = pc.take(rows, arrow_array(order))
    for start, stop in zip(starts, [*starts[1:], batch.num_rows], strict=True):
        values = tuple(column[order[start]].as_py() for column in coded)
        yield values, ordered.slice(start, stop - start)


def _partition_numbers(coded: Sequence[pa.DictionaryArray]) -> NDArray[np.unsignedinteger]:
    """Return the number of each row's partition; partitions are numbered in the order of texts.

    Small integer types are used, because NumPy sorts them by counting.
    """
    numbers = _ranks(coded[0])
    for column in coded[1:]:
        ranks = _ranks(column)
        # Renumber, so that the product does not overflow.
        numbers = np.unique(numbers * (ranks.max() + 1) + ranks, return_inverse=True)[1]
    return numbers.astype(np.min_scalar_type(int(numbers.max())))


def _ranks(coded: pa.DictionaryArray) -> NDArray[np.int64]:
    ranks = np.empty(len(coded.dictionary), np.int64)
    ranks[numpy_array(pc.sort_indices(coded.dictionary))] = np.arange(len(ranks))
    row_ranks: NDArray[np.int64] = ranks[numpy_array(coded.indices)]
    return row_ranks
