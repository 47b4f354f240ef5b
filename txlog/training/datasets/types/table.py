"""TABLE: rows of any columns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pyarrow as pa

from txlog.base.arrow import pq
from txlog.base.errors import SchemaMismatchError, TxlogError, os_errors
from txlog.extend import FileFooter, RowFile, require_pages, row_files, united_rows
from txlog.training.datasets.formats.samples import require_classes
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
    as_rows = True
    ingestion = None
    training: Mapping[str, pa.Schema | None] = {"examples": None}

    def read(self, source: Source, limits: Limits, files: ObjectFiles) -> Iterator[pa.RecordBatch]:
        """Yield the rows of Arrow data, or of Parquet files in the order of their names.

        Folders such as `day=1` are columns. Columns that some files lack are null in their rows.
        """
        if source.data is not None:
            yield from source.data
            return
        named = {file.name: file for file in source.files}
        found = [RowFile(name) for name in named]
        if source.is_folder:
            found = row_files((name for name in named if named[name].size), source.name)
        schemas = [_columns_of(named[one.name]) for one in found]
        for one, schema in zip(found, schemas, strict=True):
            require_classes(schema, schemas[0], one.name, found[0].name)
        united = united_rows(found, schemas, source.columns)
        for one in found:
            for batch in _of_parquet(named[one.name]):
                yield united.fit(one, batch)

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
    with file.seekable() as copy, _parquet_errors(file, copy):
        opened: Any = pq.ParquetFile(copy)
        schema, footer = opened.schema_arrow, FileFooter.of(opened, copy)
        yield pa.RecordBatch.from_arrays(
            [pa.nulls(0, field.type) for field in schema], schema=schema
        )
        for number in range(opened.num_row_groups):
            require_pages(copy, footer, number, schema.names)
            yield from opened.iter_batches(row_groups=[number])


def _columns_of(file: SourceFile) -> pa.Schema:
    """Return the columns of a Parquet file by its footer."""
    with os_errors("open", file.uri):
        opened = file.opened()
    with opened, _parquet_errors(file, opened):
        return pq.ParquetFile(opened).schema_arrow


@contextmanager
def _parquet_errors(file: SourceFile, opened: Any) -> Iterator[None]:
    """Raise errors of txlog for a file that is not Parquet, or is damaged."""
    try:
        magic = opened.read(len(_PARQUET))
        opened.seek(0)
        if magic != _PARQUET:
            raise SchemaMismatchError(
                reason=f"{file.name} is not a Parquet file",
                remedy="Pass Arrow data, or Parquet files",
            )
        yield
    except TxlogError:
        raise
    except (pa.ArrowException, OSError, ValueError, OverflowError) as error:
        raise SchemaMismatchError(
            reason=f"{file.name} is a Parquet file that cannot be read: {error}"
        ) from error
