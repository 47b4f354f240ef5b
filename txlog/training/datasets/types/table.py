"""TABLE: rows of any columns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa

from txlog.base.arrow import pq
from txlog.base.errors import SchemaMismatchError
from txlog.extend import require_pages
from txlog.training.datasets.limits import Limits
from txlog.training.datasets.sources import Source, SourceFile
from txlog.training.datasets.types.base import ObjectFiles, Parts, Rows, require_options

_PARQUET = b"PAR1"


class TableType:
    """Rows of any columns: Arrow data, Parquet files, a table at a version, or a Spark frame.

    The first commit defines the columns. Later commits must have these columns, unless they use
    `schema_mode="merge"`.
    """

    name = "TABLE"
    version = 1
    aliases: tuple[str, ...] = ()
    ingestion = None
    training: Mapping[str, pa.Schema | None] = {"examples": None}

    def read(self, source: Source, limits: Limits, files: ObjectFiles) -> Iterator[pa.RecordBatch]:
        """Yield the rows of Arrow data, or of Parquet files in the order of their names."""
        if source.data is not None:
            yield from source.data
            return
        schema: pa.Schema | None = None
        for file in source.files:
            for batch in _of_parquet(file):
                if schema is not None and not batch.schema.equals(schema):
                    raise _other_columns(file, batch.schema, schema)
                schema = batch.schema
                yield batch

    def statistics(self) -> RowCount:
        """Return the counts of a commit without rows."""
        return RowCount()

    def build(self, rows: Rows, out: Parts, options: Mapping[str, str]) -> dict[str, int]:
        """Write the rows as they are."""
        require_options(options, {})
        return {"numExamples": out.write("examples", rows, _as_it_is)}


class RowCount:
    """The number of rows of a commit."""

    def __init__(self) -> None:
        self._rows = 0

    def add(self, batch: pa.RecordBatch) -> None:
        """Count more rows."""
        self._rows += batch.num_rows

    def result(self) -> dict[str, int]:
        """Return `numExamples`."""
        return {"numExamples": self._rows}


def _as_it_is(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch


def _of_parquet(file: SourceFile) -> Iterator[pa.RecordBatch]:
    """Yield an empty batch with the schema of a Parquet file, then the rows of the file."""
    with file.seekable() as copy:
        if copy.read(4) != _PARQUET:
            raise SchemaMismatchError(
                reason=f"{file.name} is not a Parquet file",
                remedy="Pass Arrow data, or Parquet files",
            )
        copy.seek(0)
        try:
            opened: Any = pq.ParquetFile(copy)
            schema = opened.schema_arrow
            yield pa.RecordBatch.from_arrays(
                [pa.nulls(0, field.type) for field in schema], schema=schema
            )
            for number in range(opened.num_row_groups):
                group = opened.metadata.row_group(number)
                require_pages(copy, group, opened.metadata.schema, schema.names)
                yield from opened.iter_batches(row_groups=[number])
        except (pa.ArrowException, OSError, ValueError, OverflowError) as error:
            raise SchemaMismatchError(
                reason=f"{file.name} is a Parquet file that cannot be read: {error}"
            ) from error


def _other_columns(file: SourceFile, found: pa.Schema, expected: pa.Schema) -> SchemaMismatchError:
    different = [
        field
        for field in expected
        if field.name not in found.names or found.field(field.name) != field
    ]
    name = (
        different[0].name if different else next(n for n in found.names if n not in expected.names)
    )
    return SchemaMismatchError(
        field=name, reason=f"the column {name} of {file.name} differs from that of earlier files"
    )
