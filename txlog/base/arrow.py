"""pyarrow without the import of pandas, and with modules that are imported when used. Pure.

`pa.array` and `pa.scalar` import pandas when they get Python or NumPy values, to check whether
these are a Series. This takes a quarter of a second and 40 MB. `Schema.empty_table` and `to_numpy`
import pandas, too, and so do functions of `pyarrow.compute` and methods such as `fill_null` when
they get a Python value. `arrow_array` and `arrow_scalar` build the same values from buffers. `pc`,
`pq` and `ds` are modules that are imported when one of their functions is called first. The
functions of `pc` convert Python values with `arrow_scalar`.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Context, Decimal, Inexact
from importlib import import_module
from itertools import accumulate, chain
from typing import Any

import numpy as np
import pyarrow as pa

Items = Sequence[Any]


class _Module:
    """A module that is imported when it is first used."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # Python uses such names to inspect the object.
            raise AttributeError(name)
        value = getattr(import_module(self._name), name)
        setattr(self, name, value)  # From now on Python finds it without this function.
        return value


class _Compute(_Module):
    """`pyarrow.compute`, whose functions take Python values without importing pandas."""

    def __getattr__(self, name: str) -> Any:
        compute = import_module("pyarrow.compute")
        function = _fill_null if name == "fill_null" else getattr(compute, name)
        if name[0].islower() and (arity := _arity(compute, name)) != 0:
            function = _of_scalars(function, arity)
        setattr(self, name, function)
        return function


def _arity(compute: Any, name: str) -> int | None:
    """Return how many values a function takes: 0 if none, None if any number."""
    try:
        arity = compute.get_function({"and_": "and", "or_": "or"}.get(name, name)).arity
    except KeyError:  # The module implements it in Python.
        return 0
    return None if arity is Ellipsis else arity


def _of_scalars(function: Callable[..., Any], arity: int | None) -> Callable[..., Any]:
    """Return a function of `pyarrow.compute` that gets its plain Python values as scalars.

    The values are the first arguments; options follow, by position or name.
    """

    def call(*given: Any, **options: Any) -> Any:
        for item in given[:arity]:
            if type(item) in _PLAIN:
                values = (arrow_scalar(v) if type(v) in _PLAIN else v for v in given[:arity])
                given = (*values, *(() if arity is None else given[arity:]))
                break
        return function(*given, **options)

    return call


def _fill_null(values: Any, fill_value: Any) -> Any:
    if not isinstance(fill_value, pa.Array | pa.ChunkedArray | pa.Scalar):
        fill_value = arrow_scalar(fill_value, values.type)
    return pc.call_function("coalesce", [values, fill_value])


pc: Any = _Compute("pyarrow.compute")
pq: Any = _Module("pyarrow.parquet")
ds: Any = _Module("pyarrow.dataset")  # This import always imports pandas.

# For numbers: the type code of `array.array`, and the Python type that values must have.
_CODES = {
    pa.int8(): ("b", int),
    pa.int16(): ("h", int),
    pa.int32(): ("i", int),
    pa.int64(): ("q", int),
    pa.float64(): ("d", float),
    pa.float32(): ("f", float),
}
_INFERRED = {
    bool: pa.bool_(),
    int: pa.int64(),
    float: pa.float64(),
    str: pa.string(),
    bytes: pa.binary(),
    date: pa.date32(),
}
_EPOCH = date(1970, 1, 1).toordinal()
_EPOCH_MOMENT = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_MICROSECONDS = pa.timestamp("us")
_ABSENT = type(None)
_PLAIN = frozenset({*_INFERRED, _ABSENT})
_BOOL = pa.bool_()


def arrow_array(
    values: Iterable[Any], kind: pa.DataType | None = None, *, mask: Any = None
) -> pa.Array:
    """Return Python or NumPy values as an Arrow array of a type, as `pa.array(values, kind)` does.

    pandas is not imported for NumPy numbers, nor for Python numbers, booleans, strings, bytes,
    dates, datetimes, decimals and None, nor for structs, lists and maps of these. All other values
    go to `pa.array`, which raises its own errors.

    Parameters
    ----------
    mask
        Only for a NumPy array: a value is null where the mask is true.
    """
    if isinstance(values, np.ndarray):
        return _of_numpy(values, kind, mask)
    items = values if isinstance(values, list | tuple) else list(values)
    wanted = _inferred(items) if kind is None else kind
    if wanted is not None:
        try:
            built = _of_items(items, wanted)
        except (ArithmeticError, UnicodeEncodeError):
            built = None
        if built is not None:
            return built
    return pa.array(items, kind)


def arrow_scalar(value: Any, kind: pa.DataType | None = None) -> pa.Scalar:
    """Return a Python value as an Arrow scalar, as `pa.scalar(value, kind)` does."""
    if (value is True or value is False) and (kind is None or kind == _BOOL):
        return _TRUTHS[value]
    return arrow_array((value,), kind)[0]


def empty_table(schema: pa.Schema) -> pa.Table:
    """Return a table without rows, as `schema.empty_table()` does."""
    return pa.Table.from_arrays([pa.nulls(0, field.type) for field in schema], schema=schema)


def table_of_rows(rows: Sequence[Mapping[str, Any]], schema: pa.Schema) -> pa.Table:
    """Return dictionaries as a table, as `pa.Table.from_pylist` does."""
    columns = [arrow_array([row.get(field.name) for row in rows], field.type) for field in schema]
    return pa.Table.from_arrays(columns, schema=schema)


def numpy_array(values: pa.Array) -> Any:
    """Return numbers or booleans as a NumPy array, as `values.to_numpy` does."""
    kind = values.type
    plain = pa.types.is_integer(kind) or kind in _CODES or pa.types.is_boolean(kind)
    if values.null_count or not plain:
        return values.to_numpy(zero_copy_only=False)
    data, end = values.buffers()[1], values.offset + len(values)
    if data is None:
        return np.zeros(0, numpy_type(kind))
    if pa.types.is_boolean(kind):
        bits = np.unpackbits(np.frombuffer(data, np.uint8), count=end, bitorder="little")
        return bits[values.offset :].astype(np.bool_)
    return np.frombuffer(data, numpy_type(kind), end)[values.offset :]


def numpy_type(kind: pa.DataType) -> np.dtype[Any]:
    """Return NumPy's type of numbers or booleans; Arrow's own method may import pandas."""
    return np.dtype({"halffloat": "f2", "float": "f4"}.get(str(kind)) or str(kind))


def _inferred(items: Items) -> pa.DataType | None:
    kinds = set(map(type, items)) - {_ABSENT}
    if not kinds:
        return pa.null()
    return _INFERRED.get(kinds.pop()) if len(kinds) == 1 else None


def _of_numpy(values: Any, kind: pa.DataType | None, mask: Any) -> pa.Array:
    if values.ndim != 1 or values.dtype.kind not in "biuf" or not values.dtype.isnative:
        if mask is None and values.dtype.kind in "OU":
            return arrow_array(values.tolist(), kind)
        return pa.array(values, kind, mask=mask)
    own = pa.from_numpy_dtype(values.dtype)
    packed = np.packbits(values, bitorder="little") if own == pa.bool_() else values
    valid = None if mask is None else pa.py_buffer(np.packbits(~mask, bitorder="little"))
    data = pa.py_buffer(np.ascontiguousarray(packed))
    built = pa.Array.from_buffers(own, len(values), [valid, data])
    return built if kind is None or own == kind else built.cast(kind)


def _of_items(items: Items, kind: pa.DataType) -> pa.Array | None:
    """Return Python values as an array, or None if a value's Python type does not fit `kind`."""
    if pa.types.is_null(kind):
        return pa.nulls(len(items)) if items.count(None) == len(items) else None
    if kind in _CODES:
        code, own = _CODES[kind]
        return _fixed(items, kind, own, 0, lambda there: array(code, there))
    if pa.types.is_boolean(kind):
        return _fixed(items, kind, bool, False, _bits)
    if pa.types.is_date32(kind):
        return _fixed(items, kind, date, date.min, _days)
    if kind.id == _MICROSECONDS.id and kind.unit == "us":
        return _fixed(items, kind, datetime, datetime.min, _microseconds(kind.tz))
    if pa.types.is_decimal128(kind):
        return _fixed(items, kind, Decimal, Decimal(0), _unscaled(kind))
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        return _texts(items, kind)
    if pa.types.is_struct(kind):
        return _structs(items, kind)
    if pa.types.is_map(kind):
        return _maps(items, kind)
    return _lists(items, kind) if pa.types.is_list(kind) else None


def _bits(truths: Items) -> Any:
    return np.packbits(np.frombuffer(bytes(truths), np.uint8), bitorder="little")


def _days(dates: Items) -> Any:
    return array("i", [day.toordinal() - _EPOCH for day in dates])


def _microseconds(zone: str | None) -> Callable[[Items], Any]:
    """Return a function from datetimes to microseconds since the epoch; no zone means UTC."""

    def made(moments: Items) -> Any:
        if zone is None and any(moment.tzinfo is not None for moment in moments):
            raise OverflowError("only pyarrow can convert this value")
        known = (m if m.tzinfo else m.replace(tzinfo=UTC) for m in moments)
        return array("q", [(moment - _EPOCH_MOMENT) // _MICROSECOND for moment in known])

    return made


def _unscaled(kind: pa.DataType) -> Callable[[Items], Any]:
    """Return a function from decimals to bytes, which raises if a decimal does not fit the type."""
    most = 10**kind.precision
    exact = Context(prec=80, traps=[Inexact])

    def made(decimals: Items) -> bytes:
        parts = []
        for value in decimals:
            if not value.is_finite() or abs(value.adjusted()) > kind.precision:
                raise OverflowError("not a number of the type")
            whole = value.scaleb(kind.scale, exact)
            unscaled = int(whole)
            if unscaled != whole or abs(unscaled) >= most:
                raise OverflowError("more digits than the type has")
            parts.append(unscaled.to_bytes(16, "little", signed=True))
        return b"".join(parts)

    return made


def _valid(items: Items) -> Any:
    """Return the validity bitmap of items, or None if no item is null."""
    if None not in items:
        return None
    return pa.py_buffer(_bits([item is not None for item in items]))


def _are(items: Items, kinds: set[type]) -> bool:
    return kinds.issuperset(map(type, items))


def _fixed(items: Items, kind: pa.DataType, own: type, absent: Any, data: Any) -> pa.Array | None:
    """Return an array of fixed-width values; `data` makes their buffer."""
    if not _are(items, {own, _ABSENT}):
        return None
    valid = _valid(items)
    there = items if valid is None else [absent if item is None else item for item in items]
    return pa.Array.from_buffers(kind, len(items), [valid, pa.py_buffer(data(there))])


def _texts(items: Items, kind: pa.DataType) -> pa.Array | None:
    own = str if pa.types.is_string(kind) else bytes
    if not _are(items, {own, _ABSENT}):
        return None
    valid = _valid(items)
    there = items if valid is None else [own() if item is None else item for item in items]
    parts: Any = list(map(str.encode, there)) if own is str else there
    buffers = [valid, _offsets(map(len, parts)), pa.py_buffer(b"".join(parts))]
    return pa.Array.from_buffers(kind, len(items), buffers)


def _offsets(sizes: Iterable[int]) -> pa.Buffer:
    """Return the start of each item and the end of the last one."""
    return pa.py_buffer(array("i", accumulate(sizes, initial=0)))


def _structs(items: Items, kind: pa.DataType) -> pa.Array | None:
    if not _are(items, {dict, _ABSENT}):
        return None
    children = []
    for field in kind:
        name = field.name
        inner = [None if item is None else item.get(name) for item in items]
        child = _of_items(inner, field.type)
        if child is None or (child.null_count and not field.nullable):
            return None
        children.append(child)
    return pa.Array.from_buffers(kind, len(items), [_valid(items)], children=children)


def _lists(items: Items, kind: pa.DataType) -> pa.Array | None:
    if not _are(items, {list, tuple, _ABSENT}):
        return None
    there = [item or () for item in items]
    inner = _of_items(list(chain.from_iterable(there)), kind.value_type)
    if inner is None:
        return None
    buffers = [_valid(items), _offsets(map(len, there))]
    return pa.Array.from_buffers(kind, len(items), buffers, children=[inner])


def _maps(items: Items, kind: pa.DataType) -> pa.Array | None:
    """Return maps of dictionaries, or of lists of pairs."""
    if not _are(items, {dict, list, _ABSENT}):
        return None
    there = [list(item.items()) if type(item) is dict else item or () for item in items]
    pairs = list(chain.from_iterable(there))
    if not (_are(pairs, {tuple}) and all(len(pair) == 2 for pair in pairs)):
        return None
    keys = _of_items([key for key, _ in pairs], kind.key_type)
    values = _of_items([value for _, value in pairs], kind.item_type)
    if keys is None or values is None or keys.null_count:
        return None
    entry = pa.struct([kind.key_field, kind.item_field])
    entries = pa.Array.from_buffers(entry, len(pairs), [None], children=[keys, values])
    buffers = [_valid(items), _offsets(map(len, there))]
    return pa.Array.from_buffers(kind, len(items), buffers, children=[entries])


_TRUTHS = tuple(arrow_array([False, True], _BOOL))  # Made once: planning uses them often.
