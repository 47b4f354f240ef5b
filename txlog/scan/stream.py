"""The face of whatever can be read as a stream of Arrow batches."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

import pyarrow as pa


class ArrowStream(Protocol):
    """Rows that Arrow-speaking libraries take as they are: pyarrow, polars, duckdb, pandas."""

    @property
    def schema(self) -> pa.Schema:
        """The Arrow schema of the rows."""
        ...

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows."""
        ...

    def to_reader(self) -> pa.RecordBatchReader:
        """Return the rows as a stream of batches."""
        return pa.RecordBatchReader.from_batches(self.schema, self.to_batches())

    def __arrow_c_schema__(self) -> Any:
        return self.schema.__arrow_c_schema__()

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return self.to_reader().__arrow_c_stream__(requested_schema)
