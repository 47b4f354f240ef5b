"""The interface of formats: files with samples become Arrow rows, and rows become such files."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

import pyarrow as pa

from txlog.base.arrow import table_of_rows
from txlog.base.thresholds import Threshold
from txlog.training.datasets.limits import Limits
from txlog.training.datasets.sources import SourceFile

KEY = "__key__"  # The column that names a sample, as in WebDataset.

_BATCH_ROWS: Threshold = 1024
_BATCH_BYTES: Threshold = 32 << 20


class Reading(Protocol):
    """A format of files, as a source."""

    @property
    def name(self) -> str:
        """The name in lower case, such as `webdataset`."""
        ...

    def is_of(self, name: str) -> bool:
        """Return whether a file has this format, by its name."""
        ...

    def schema(
        self, files: Sequence[SourceFile], columns: pa.Schema | None, limits: Limits
    ) -> pa.Schema:
        """Return the columns of the rows of all files.

        Parameters
        ----------
        columns
            The columns of the data set, whose types are preferred. None before its first commit.

        Raises
        ------
        InvalidInputError
            A file is damaged, or exceeds a limit; the error names it.
        """
        ...

    def batches(
        self, files: Sequence[SourceFile], schema: pa.Schema, limits: Limits
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows, in the order of the files and of the samples in them.

        Raises
        ------
        InvalidInputError
            As for `schema`.
        SchemaMismatchError
            A value does not fit; the error names file, sample and column.
        """
        ...


class Output(Protocol):
    """The folder that an export writes to, and the bounds of its files."""

    @property
    def shard_rows(self) -> int:
        """The most rows of a file."""
        ...

    @property
    def shard_bytes(self) -> int:
        """The size after which a file is finished, in bytes."""
        ...

    def open(self, name: str) -> AbstractContextManager[Any]:
        """Return a new file, to write in a `with`; it is removed if an error ends the export."""
        ...


class Writing(Protocol):
    """A format of files, as an export."""

    @property
    def name(self) -> str:
        """The name in lower case, such as `webdataset`."""
        ...

    def write(self, rows: pa.RecordBatchReader, out: Output) -> None:
        """Write all rows, batch by batch.

        Raises
        ------
        SchemaMismatchError
            The format cannot hold a column or a value; the error names it.
        """
        ...


def batched(
    rows: Iterable[tuple[Mapping[str, Any], int]], schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    """Yield rows, each with its size in bytes, as batches of a bounded number of rows and bytes."""
    batch: list[Mapping[str, Any]] = []
    size = 0
    for row, row_bytes in rows:
        batch.append(row)
        size += row_bytes
        if len(batch) >= _BATCH_ROWS or size >= _BATCH_BYTES:
            yield from table_of_rows(batch, schema).combine_chunks().to_batches()
            batch, size = [], 0
    if batch:
        yield from table_of_rows(batch, schema).combine_chunks().to_batches()


class Chunks(io.RawIOBase):
    """A file of a source as a stream, so that its digest is known at the end."""

    def __init__(self, file: SourceFile) -> None:
        self._chunks = file.chunks()
        self._left = memoryview(b"")

    def readable(self) -> bool:
        """Return True."""
        return True

    def readinto(self, target: Any) -> int:
        """Fill a buffer, and return the number of its bytes; 0 at the end."""
        if not self._left:
            self._left = memoryview(next(self._chunks, b""))
        count = min(len(target), len(self._left))
        target[:count] = self._left[:count]
        self._left = self._left[count:]
        return count
