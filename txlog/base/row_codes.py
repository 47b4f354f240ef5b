"""Compare rows by numbers: equal rows have equal numbers. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from txlog.base.arrow import arrow_array, arrow_scalar, numpy_array, pc
from txlog.base.columns import flat

Codes = NDArray[np.int64]


def comparable(values: pa.Array) -> Iterator[pa.Array]:
    """Yield columns in which equal values compare equal: NaN equals itself, 0.0 equals -0.0."""
    kind = values.type
    if pa.types.is_struct(kind):
        yield pc.is_null(values)
        for place in range(kind.num_fields):
            yield from comparable(pc.struct_field(values, [place]))
    elif pa.types.is_floating(kind):
        numbers = pc.add(values.cast(pa.float64()), 0.0)
        nan = arrow_scalar(float("nan"), pa.float64())
        yield pc.if_else(pc.is_nan(numbers), nan, numbers).view(pa.int64())
    elif pa.types.is_nested(kind) or pa.types.is_interval(kind):
        texts = [None if item is None else repr(item) for item in values.to_pylist()]
        yield arrow_array(texts, pa.string())
    else:
        yield values


def row_codes(before: pa.Table, after: pa.Table, names: Iterable[str]) -> tuple[Codes, Codes]:
    """Return a number for each row of both tables; rows with equal values have the same number."""
    codes = np.zeros(before.num_rows + after.num_rows, np.int64)
    limit = 1
    for name in names:
        values = pa.concat_arrays([flat(before[name]), flat(after[name])])
        for column in comparable(values):
            encoded = column.dictionary_encode(null_encoding="encode")
            count = max(1, len(encoded.dictionary))
            if limit > (1 << 62) // count:
                distinct, codes = np.unique(codes, return_inverse=True)
                limit = len(distinct)
            codes = codes * count + numpy_array(encoded.indices).astype(np.int64)
            limit *= count
    _, codes = np.unique(codes, return_inverse=True)
    codes = codes.astype(np.int64)
    return codes[: before.num_rows], codes[before.num_rows :]
