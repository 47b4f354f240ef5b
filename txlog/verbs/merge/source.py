"""The source rows of a merge: in memory, or in a temporary file if there are many."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from txlog.base.arrow import arrow_array
from txlog.base.thresholds import Threshold
from txlog.data_files.incoming import as_reader, fit_column
from txlog.schema.arrow import arrow_schema, from_arrow
from txlog.schema.types import StructType

MEMORY_BYTES: Threshold = 1 << 30
"""So many bytes of a source are kept in memory."""

Indices = NDArray[np.int64]


class MergeSource:
    """The rows of a source, which can be read again at each try of a merge."""

    def __init__(
        self,
        data: Any,
        *,
        memory_bytes: int = MEMORY_BYTES,
        nanos: bool = False,
        truncates: bool = False,
    ) -> None:
        """Read the data, of anything that supports Arrow.

        Parameters
        ----------
        memory_bytes
            Larger data is written to a temporary file, which is mapped into memory.
        nanos, truncates
            As for `from_arrow` and `cast_array`.

        Raises
        ------
        InvalidInputError
            The data cannot be read as Arrow, or have a type that no Delta table holds.
        """
        reader = as_reader(data, "source")
        self.schema: StructType = from_arrow(reader.schema, nulls_as_void=True, nanos=nanos)
        batches = self._batches_of(reader, truncates)
        kept: list[pa.RecordBatch] = []
        size = 0
        for batch in batches:
            kept.append(batch)
            size += batch.nbytes
            if size > memory_bytes:
                kept = _spilled(chain(kept, batches), arrow_schema(self.schema))
                break
        self.is_spilled = size > memory_bytes
        if kept and not self.is_spilled:
            kept = pa.Table.from_batches(kept).combine_chunks().to_batches()
        self._batches = kept
        self._starts = np.cumsum([0, *(batch.num_rows for batch in kept)], dtype=np.int64)

    def _batches_of(
        self, reader: pa.RecordBatchReader, truncates: bool
    ) -> Iterator[pa.RecordBatch]:
        target = arrow_schema(self.schema)
        for batch in reader:
            if batch.num_rows:
                arrays = [
                    fit_column(column, field, truncates=truncates)
                    for column, field in zip(batch.columns, self.schema.fields, strict=True)
                ]
                yield pa.RecordBatch.from_arrays(arrays, schema=target)

    def __reduce__(self) -> tuple[Any, ...]:
        return _unpickled, (
            self.schema,
            [
                pa.RecordBatch.from_arrays(batch.columns, schema=batch.schema)
                for batch in self._batches
            ],
        )

    @property
    def num_rows(self) -> int:
        """The number of rows."""
        return int(self._starts[-1])

    def batches(self) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Yield the rows in batches, each with the index of its first row."""
        yield from zip(self._starts.tolist(), self._batches, strict=False)

    def take(self, indices: Indices, columns: Sequence[str]) -> pa.RecordBatch:
        """Return rows by their indices, in this order."""
        if len(self._batches) == 1:
            return self._batches[0].select(list(columns)).take(arrow_array(indices))
        schema = pa.schema([arrow_schema(self.schema).field(name) for name in columns])
        owners = np.searchsorted(self._starts, indices, "right") - 1
        order = np.argsort(owners, kind="stable")
        parts = []
        for owner in np.unique(owners).tolist():
            own = indices[order][owners[order] == owner] - self._starts[owner]
            parts.append(self._batches[owner].select(list(columns)).take(arrow_array(own)))
        back = np.empty(len(order), np.int64)
        back[order] = np.arange(len(order))
        if not parts:
            return pa.RecordBatch.from_arrays([pa.nulls(0, f.type) for f in schema], schema=schema)
        rows = pa.Table.from_batches(parts, schema=schema).take(arrow_array(back))
        return rows.combine_chunks().to_batches()[0]


def _unpickled(schema: StructType, batches: list[pa.RecordBatch]) -> MergeSource:
    source = MergeSource.__new__(MergeSource)
    source.schema, source._batches, source.is_spilled = schema, batches, False
    source._starts = np.cumsum([0, *(batch.num_rows for batch in batches)], dtype=np.int64)
    return source


def _spilled(batches: Iterator[pa.RecordBatch], schema: pa.Schema) -> list[pa.RecordBatch]:
    """Write batches to a temporary file, and return them mapped from it.

    The file has no name when this returns, so it is deleted with the last batch.
    """
    with tempfile.TemporaryDirectory(prefix="txlog-merge-") as folder:
        path = str(Path(folder) / "source.arrow")
        with pa.OSFile(path, "wb") as sink, pa.ipc.new_file(sink, schema) as writer:
            for batch in batches:
                writer.write_batch(batch)
        reader = pa.ipc.open_file(pa.memory_map(path))
        return [reader.get_batch(index) for index in range(reader.num_record_batches)]
