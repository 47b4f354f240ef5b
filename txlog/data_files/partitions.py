"""Split rows by partition, and name the folders of partitions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from txlog.arrow import arrow_array, numpy_array, pc
from txlog.schema.types import DataType
from txlog.stats.partition import code_partition_values

Values = tuple[str | None, ...]

NULL_FOLDER = "__HIVE_DEFAULT_PARTITION__"
_ESCAPED = frozenset("\"#%'*/:=?\\{[]^\x7f") | {chr(code) for code in range(32)}
_NAME_BYTES = 255  # Longest name of a folder on common file systems.


def partition_folder(values: Mapping[str, str | None]) -> str:
    """Return the folder of a partition; an empty text means the table's root.

    The name follows Hive's convention. By the protocol partition values come from the log, but some
    readers take them from the folder name, so it holds them exactly.

    The root is used if the name would be too long, or would make the folder a hidden one.
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
    batch: pa.RecordBatch, kinds: Mapping[str, DataType]
) -> Iterator[tuple[Values, pa.RecordBatch]]:
    """Yield the rows of each partition, with its values as logged, without the partition columns.

    Rows of one partition keep their order.

    Parameters
    ----------
    kinds
        The partition columns, in their order, with their types.
    """
    if not kinds:
        yield (), batch
        return
    if batch.num_rows == 0:
        return
    coded = [code_partition_values(batch.column(name), kind) for name, kind in kinds.items()]
    numbers = _partition_numbers(coded)
    order = np.argsort(numbers, kind="stable")
    starts = [0, *(np.flatnonzero(np.diff(numbers[order])) + 1).tolist()]
    ordered = batch.drop_columns(list(kinds)).take(arrow_array(order))
    for start, stop in zip(starts, [*starts[1:], batch.num_rows], strict=True):
        values = tuple(column[order[start]].as_py() for column in coded)
        yield values, ordered.slice(start, stop - start)


def _partition_numbers(coded: Sequence[pa.DictionaryArray]) -> NDArray[np.unsignedinteger]:
    """Return the number of each row's partition, counted in the order of the texts.

    Small integer types are used, because NumPy sorts them by counting.
    """
    numbers = _ranks(coded[0])
    for column in coded[1:]:
        ranks = _ranks(column)
        # Numbered anew, so that the product does not overflow.
        numbers = np.unique(numbers * (ranks.max() + 1) + ranks, return_inverse=True)[1]
    return numbers.astype(np.min_scalar_type(int(numbers.max())))


def _ranks(coded: pa.DictionaryArray) -> NDArray[np.int64]:
    ranks = np.empty(len(coded.dictionary), np.int64)
    ranks[numpy_array(pc.sort_indices(coded.dictionary))] = np.arange(len(ranks))
    row_ranks: NDArray[np.int64] = ranks[numpy_array(coded.indices)]
    return row_ranks
