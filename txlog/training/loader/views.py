"""How a column of a table becomes a column of a batch."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from math import prod
from typing import Any, NamedTuple, Protocol, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from txlog.base.arrow import arrow_array, arrow_scalar, numpy_array, numpy_type, pc
from txlog.base.columns import nearest_floats
from txlog.base.errors import InvalidInputError

Rows: TypeAlias = "NDArray[Any] | pa.Array"
"""A column of rows: an array with one entry for each row, or Arrow values of any length."""


class UnfitError(Exception):
    """A row does not fit the view of its column; the caller adds the position of the row."""

    def __init__(self, offset: int, reason: str) -> None:
        super().__init__(reason)
        self.offset = offset
        self.reason = reason


class RaggedArray(NamedTuple):
    """Rows of different lengths: row i is `values[offsets[i] : offsets[i + 1]]`."""

    values: NDArray[Any]
    offsets: NDArray[np.int64]


class View(Protocol):
    """How a column becomes a column of a batch. A value: it pickles."""

    def require(self, kind: pa.DataType) -> None:
        """Raise `TypeError` with the expected types if columns of a type do not fit."""
        ...

    def prepare(self, values: pa.Array, fill: Any) -> Rows:
        """Return the rows of a block.

        Parameters
        ----------
        values
            No row is null. Elements of lists may be.
        fill
            The replacement of nulls in lists; None to refuse them.

        Raises
        ------
        UnfitError
            A row does not fit.
        """
        ...

    def finish(self, rows: Rows) -> Any:
        """Return rows from `prepare`, in another order, in the form of a batch."""
        ...


def _is_numeric(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)
    )


def is_bytes(kind: pa.DataType) -> bool:
    """Return whether a type is binary."""
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind))


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind))


@dataclass(frozen=True)
class Number:
    """Numbers, booleans, dates and times: an array (n,).

    Dates and timestamps become `datetime64`; timestamps are in microseconds of UTC.

    Parameters
    ----------
    dtype
        NumPy's name of a numeric type. Default: the column's type. Decimals need one.
    """

    dtype: str | None = None

    def require(self, kind: pa.DataType) -> None:
        """Raise if a column is not numeric, or if `dtype` cannot hold its kind of numbers."""
        if pa.types.is_decimal(kind):
            if self.dtype is None or np.dtype(self.dtype).kind != "f":
                raise TypeError("decimals need Number('float64')")
            return
        if pa.types.is_temporal(kind) and (pa.types.is_date32(kind) or pa.types.is_timestamp(kind)):
            if self.dtype is not None:
                raise TypeError("dates and times cannot be cast: use Number() without a type")
            return
        if not _is_numeric(kind):
            raise TypeError("a column of numbers was expected")
        own = numpy_type(kind)
        if self.dtype is not None and not np.can_cast(own, self.dtype, "same_kind"):
            raise TypeError(f"{own} cannot become {self.dtype}")

    def prepare(self, values: pa.Array, fill: Any) -> Rows:
        """Return the numbers."""
        if pa.types.is_date32(values.type):
            return numpy_array(values.view(pa.int32())).astype("datetime64[D]")
        if pa.types.is_timestamp(values.type):
            unit = f"datetime64[{values.type.unit}]"
            return _array(numpy_array(values.view(pa.int64())).view(unit))
        if pa.types.is_decimal(values.type):
            return _converted(numpy_array(nearest_floats(values)), self.dtype, lambda at: at)
        return _converted(numpy_array(values), self.dtype, lambda at: at)

    def finish(self, rows: Rows) -> Any:
        """Return the numbers."""
        return rows


def _array(values: Any) -> NDArray[Any]:
    found: NDArray[Any] = values
    return found


def _converted(
    values: NDArray[Any], dtype: str | None, row_of: Callable[[int], int]
) -> NDArray[Any]:
    """Return numbers in a type; whole numbers that do not fit it are refused."""
    if dtype is None or values.dtype == dtype:
        return values
    made = values.astype(dtype)
    if made.dtype.kind in "iu" and values.dtype.kind in "iu":
        wrong = np.flatnonzero((made.astype(values.dtype) != values) | ((made < 0) != (values < 0)))
        if len(wrong):
            raise UnfitError(row_of(int(wrong[0])), f"{values[wrong[0]]} does not fit {dtype}")
    return made


@dataclass(frozen=True)
class Vector:
    """Vectors and other arrays of one shape: an array (n, *shape).

    Parameters
    ----------
    dtype
        NumPy's name of the numbers' type. It also defines how the bytes of binary columns are
        read: as little-endian numbers of this type.
    shape
        The length, or several lengths. Each row of a column of lists must have this number of
        elements. Nested lists are accepted too.
    """

    dtype: str
    shape: int | tuple[int, ...]

    @property
    def size(self) -> int:
        """The number of numbers in a row."""
        return prod(self._shape)

    @property
    def _shape(self) -> tuple[int, ...]:
        return (self.shape,) if isinstance(self.shape, int) else tuple(self.shape)

    def require(self, kind: pa.DataType) -> None:
        """Raise unless a column is binary or a list of numbers."""
        wanted = np.dtype(self.dtype)
        if wanted.kind not in "biuf" or min(self._shape, default=0) < 1:
            raise TypeError(f"{self!r} is not an array of numbers")
        if is_bytes(kind):
            return
        if not _is_list(kind):
            raise TypeError("a column of lists or bytes was expected")
        depth = 0
        while _is_list(kind):
            kind, depth = kind.value_type, depth + 1
        if depth not in (1, len(self._shape)):
            raise TypeError(
                f"a shape of {depth} lengths was expected, or lists that are not nested"
            )
        if not _is_numeric(kind):
            raise TypeError("lists of numbers were expected")
        own = numpy_type(kind)
        if not np.can_cast(own, wanted, "same_kind"):
            raise TypeError(f"{own} cannot become {self.dtype}")

    def prepare(self, values: pa.Array, fill: Any) -> Rows:
        """Return the vectors, as one array."""
        count = len(values)
        if is_bytes(values.type):
            wanted = np.dtype(self.dtype).newbyteorder("<")
            data = _of_length(values, self.size * wanted.itemsize, "bytes")
            return np.frombuffer(data, wanted).reshape(count, *self._shape)
        nested = _is_list(values.type.value_type)
        lists = 1  # In a row.
        for length in self._shape if nested else (self.size,):
            values = _elements_of_length(values, length, lists)
            lists *= length
        numbers = numpy_array(_without_nulls(values, fill, lambda at: at // self.size))
        made = _converted(numbers, self.dtype, lambda at: at // self.size)
        return made.reshape(count, *self._shape)

    def finish(self, rows: Rows) -> Any:
        """Return the vectors."""
        return rows


def _offsets(values: pa.Array) -> NDArray[np.int64]:
    """Return the offsets of the rows of a list or binary array, and the end."""
    kind = values.type
    large = (
        pa.types.is_large_list(kind)
        or pa.types.is_large_binary(kind)
        or pa.types.is_large_string(kind)
    )
    code: Any = np.int64 if large else np.int32
    data = values.buffers()[1]
    if data is None or not len(values):
        return np.zeros(len(values) + 1, np.int64)
    found = np.frombuffer(data, code, len(values) + 1 + values.offset)
    return found[values.offset :].astype(np.int64)


def _require_length(offsets: NDArray[np.int64], length: int, what: str, lists: int = 1) -> None:
    wrong = np.flatnonzero(np.diff(offsets) != length)
    if len(wrong):
        at = int(wrong[0])
        count = int(offsets[at + 1] - offsets[at])
        whose = "a row" if lists == 1 else "a list in a list"
        raise UnfitError(at // lists, f"{whose} has {count} {what}, {length} were expected")


def _of_length(values: pa.Array, length: int, what: str) -> Any:
    """Return the bytes of binary values, all of one length, without a copy."""
    offsets = _offsets(values)
    _require_length(offsets, length, what)
    data = values.buffers()[2]
    if data is None:
        return b""
    return memoryview(data)[int(offsets[0]) : int(offsets[-1])]


def _elements_of_length(values: pa.Array, length: int, lists: int) -> pa.Array:
    """Return the elements of lists of one length, one list after another; `lists` are in a row."""
    if values.null_count:
        at = pc.index(values.is_null(), True).as_py()
        raise UnfitError(at // lists, "a list in a list is null")
    _require_length(_offsets(values), length, "elements", lists)
    return values.flatten()


def _without_nulls(elements: pa.Array, fill: Any, row_of: Callable[[int], int]) -> pa.Array:
    """Return elements of lists with a value for each null."""
    if not elements.null_count:
        return elements
    if fill is None:
        at = pc.index(elements.is_null(), True).as_py()
        raise UnfitError(row_of(at), "an element is null")
    return pc.fill_null(elements, arrow_scalar(fill, elements.type))


@dataclass(frozen=True)
class Ragged:
    """Lists of numbers of different lengths: a `RaggedArray`, or an array (n, length) with `pad`.

    Parameters
    ----------
    pad
        The value with which rows are filled up to `length`.
    length
        Default: the length of the longest row of the batch.
    truncate
        Cut longer rows off at `length`. Otherwise they are refused.
    dtype
        NumPy's name of the numbers' type. Default: the column's own.
    """

    pad: float | None = None
    length: int | None = None
    truncate: bool = False
    dtype: str | None = None

    def require(self, kind: pa.DataType) -> None:
        """Raise unless a column is a list of numbers."""
        if not _is_list(kind) or not _is_numeric(kind.value_type):
            raise TypeError("a column of lists of numbers was expected")
        if self.length is not None and self.length < 1:
            raise TypeError("a length from 1 was expected")
        if self.pad is None and self.length is not None and not self.truncate:
            raise TypeError("a length needs pad or truncate")
        own = numpy_type(kind.value_type)
        if self.dtype is not None and not np.can_cast(own, self.dtype, "same_kind"):
            raise TypeError(f"{own} cannot become {self.dtype}")

    def prepare(self, values: pa.Array, fill: Any) -> Rows:
        """Return the lists, with elements of the type."""
        offsets = _offsets(values)
        starts = offsets - offsets[0]
        if self.length is not None and not self.truncate:
            long = np.flatnonzero(np.diff(offsets) > self.length)
            if len(long):
                at = int(long[0])
                raise UnfitError(
                    at,
                    f"a row has {offsets[at + 1] - offsets[at]} elements, "
                    f"at most {self.length} fit",
                )

        def row_of(at: int) -> int:
            return int(np.searchsorted(starts, at, "right")) - 1

        numbers = numpy_array(_without_nulls(values.flatten(), fill, row_of))
        numbers = _converted(numbers, self.dtype, row_of)
        return pa.LargeListArray.from_arrays(arrow_array(starts), arrow_array(numbers))

    def finish(self, rows: Rows) -> Any:
        """Return the rows as values and offsets, or padded."""
        starts = _offsets(rows)
        values = numpy_array(rows.flatten())
        lengths = np.diff(starts)
        if self.length is not None:
            lengths = np.minimum(lengths, self.length)
        offsets = np.concatenate([[0], np.cumsum(lengths)])
        if offsets[-1] < len(values):
            moved = np.repeat(starts[:-1] - starts[0] - offsets[:-1], lengths)
            values = values[np.arange(offsets[-1]) + moved]
        if self.pad is None:
            return RaggedArray(values, offsets)
        width = self.length or int(lengths.max(initial=0))
        padded = np.full((len(rows), width), self.pad, values.dtype)
        padded[np.arange(width) < lengths[:, None]] = values
        return padded


@dataclass(frozen=True)
class Text:
    """Texts or bytes: an array of objects (n,).

    Parameters
    ----------
    encoded
        Return their bytes (UTF-8) as a `RaggedArray` of uint8 instead.
    """

    encoded: bool = False

    def require(self, kind: pa.DataType) -> None:
        """Raise unless a column is text or binary."""
        if not _is_text(kind) and not is_bytes(kind):
            raise TypeError("a column of texts or bytes was expected")

    def prepare(self, values: pa.Array, fill: Any) -> Rows:
        """Return the values with room for more than two gigabytes."""
        return values.cast(pa.large_string() if _is_text(values.type) else pa.large_binary())

    def finish(self, rows: Rows) -> Any:
        """Return the values as objects, or their bytes."""
        values: Any = rows
        if not self.encoded:
            made = np.empty(len(rows), object)
            made[:] = values.to_pylist()
            return made
        offsets = _offsets(values)
        data = values.buffers()[2]
        characters = np.frombuffer(b"" if data is None else data, np.uint8)
        return RaggedArray(characters[offsets[0] : offsets[-1]], offsets - offsets[0])


class _Halves(Number):
    """Half floats, which the table has as `float`; another value is refused, never rounded."""

    def prepare(self, values: pa.Array, fill: Any) -> Rows:
        """Return the numbers."""
        return _as_halves(numpy_array(values), lambda at: at)


class _HalfLists(Ragged):
    """Lists of half floats, which the table has as `float`."""

    def prepare(self, values: pa.Array, fill: Any) -> Rows:
        """Return the lists, with elements of the type."""
        made: Any = Ragged(dtype="float32").prepare(values, fill)
        starts = _offsets(made)
        row_of = partial(_row_of, starts)
        halves = _as_halves(numpy_array(made.values), row_of)
        return pa.LargeListArray.from_arrays(arrow_array(starts), arrow_array(halves))


def _row_of(starts: NDArray[np.int64], at: int) -> int:
    return int(np.searchsorted(starts, at, "right")) - 1


def _as_halves(values: NDArray[Any], row_of: Callable[[int], int]) -> NDArray[Any]:
    with np.errstate(over="ignore"):  # It is refused below.
        made = values.astype("float16")
    wrong = np.flatnonzero((made.astype(values.dtype) != values) & ~np.isnan(values))
    if len(wrong):
        raise UnfitError(
            row_of(int(wrong[0])),
            f"{values[wrong[0]]} is no half float, which all values were in Arrow",
        )
    return made


def is_half(kind: pa.DataType) -> bool:
    """Return whether a type is half floats, or lists of them."""
    is_list = _is_list(kind) or pa.types.is_fixed_size_list(kind)
    return bool(pa.types.is_float16(kind.value_type if is_list else kind))


def default_view(kind: pa.DataType, *, is_half: bool = False) -> View:
    """Return the default view of columns of a type; `is_half`: their floats are half floats."""
    if _is_list(kind):
        return _HalfLists(dtype="float16") if is_half else Ragged()
    if is_half:
        return _Halves("float16")
    return Text() if _is_text(kind) or is_bytes(kind) else Number()


def require_view(column: str, kind: pa.DataType, view: View) -> None:
    """Raise if columns of a type do not fit a view.

    Raises
    ------
    InvalidInputError
        They do not fit.
    """
    try:
        view.require(kind)
    except TypeError as error:
        raise InvalidInputError(
            argument="views",
            field=column,
            reason=f"a column of type {kind} cannot be read as {view!r}: {error}",
            remedy="Give it another view, or leave it out; of structs take fields: `st.b`",
        ) from error


def fill_scalar(kind: pa.DataType, fill: Any, view: View) -> pa.Scalar:
    """Return the value of a null row of a column, by the value that the caller gave for it.

    For a list, `fill` gives the elements: those of a vector, or of an empty list. For vectors that
    are stored as bytes, it is a number, too.

    Raises
    ------
    InvalidInputError
        The value is none of the column's type.
    """
    if isinstance(view, _Halves):
        fill = _half_fill(fill)
    value, element = fill, kind
    if is_bytes(kind) and isinstance(view, Vector) and not isinstance(fill, bytes):
        wanted = np.dtype(view.dtype).newbyteorder("<")
        try:
            value = np.full(view.size, fill, wanted).tobytes()
        except (TypeError, ValueError, OverflowError) as error:
            raise _wrong_fill(pa.from_numpy_dtype(wanted), fill) from error
    elif _is_list(kind):
        shape = view._shape if isinstance(view, Vector) else (0,)
        depth = 0
        while _is_list(element):
            element, depth = element.value_type, depth + 1
        for length in reversed(shape if depth > 1 else (prod(shape),)):
            value = [value] * length
        _scalar(element, fill)  # An empty list would hide a wrong element.
    return _scalar(kind, value)


def _scalar(kind: pa.DataType, value: Any) -> pa.Scalar:
    if value is not None:
        with suppress(pa.ArrowException, TypeError, ValueError, OverflowError):
            made = arrow_scalar(value, kind)
            # Arrow cuts fractions off, and takes booleans for numbers.
            is_whole = not pa.types.is_integer(kind) or made.as_py() == value
            is_bool = isinstance(value, bool) == pa.types.is_boolean(kind)
            if made.is_valid and is_whole and is_bool:
                return made
    raise _wrong_fill(kind, value)


def _half_fill(fill: Any) -> Any:
    """Return the half float that is nearest to a value; another value as it is."""
    if isinstance(fill, bool) or not isinstance(fill, int | float | np.floating):
        return fill
    try:
        value = float(fill)
        with np.errstate(over="ignore"):
            made = float(np.float64(value).astype("float16"))
    except OverflowError as error:
        raise _wrong_fill(pa.float16(), fill) from error
    if np.isinf(made) and not np.isinf(value):
        raise _wrong_fill(pa.float16(), fill)
    return made


def _wrong_fill(kind: pa.DataType, value: Any) -> InvalidInputError:
    return InvalidInputError(
        argument="fill",
        reason=f"{value!r} is no value of a column of type {kind}",
        remedy="Give a value of the type; for lists, that of one element",
    )


def filled(values: pa.Array, fill: Any, view: View) -> pa.Array:
    """Return the rows of a block with a value for each null; `fill` as for `fill_scalar`.

    Raises
    ------
    UnfitError
        A row is null, and there is no value for it.
    """
    if not values.null_count:
        return values
    if fill is None:
        raise UnfitError(pc.index(values.is_null(), True).as_py(), "the row is null")
    return pc.fill_null(values, fill_scalar(values.type, fill, view))
