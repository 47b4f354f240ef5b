"""The footer of a Parquet file, read once: its bytes, schema, row groups and their statistics.

Every room that asks a footer something asks a `FileFooter`. pyarrow parses it; `footer` parses the
same bytes again where pages are copied.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from txlog.arrow import pq
from txlog.threads import cached_property

if TYPE_CHECKING:
    from collections.abc import Sequence

MAGIC = b"PAR1"
FOOTER_END = 8  # The footer's length, and the magic.
TAIL_BYTES = 65_536
"""So much of a file's end is read at once: most footers, and small files whole."""


def footer_start(tail: bytes, size: int) -> int:
    """Return where in a Parquet file of `size` bytes the footer begins, from the file's end.

    Raises
    ------
    ValueError
        These are not the last bytes of a Parquet file.
    """
    if len(tail) < FOOTER_END or tail[-4:] != MAGIC:
        raise ValueError("it does not end as Parquet does, so it was torn")
    start = size - FOOTER_END - int.from_bytes(tail[-FOOTER_END:-4], "little")
    if start < len(MAGIC):
        raise ValueError("the footer is longer than the file")
    return start


def footer_bytes(source: Any, size: int | None = None) -> bytes:
    """Return the end of an open Parquet file, from its footer on; errors as of `end_bytes`."""
    size = source.seek(0, 2) if size is None else size
    tail = end_bytes(source, size)
    return tail[footer_start(tail, size) - size :]


def end_bytes(source: Any, size: int) -> bytes:
    """Return the end of an open Parquet file, with its whole footer; mostly by one read.

    Parameters
    ----------
    size
        Of the file, in bytes.

    Raises
    ------
    ValueError
        It is no Parquet file, or not of that size.
    """
    at = source.seek(max(0, size - TAIL_BYTES))
    tail = bytes(source.read(size - at))
    if len(tail) != size - at:
        raise ValueError(f"the file has {at + len(tail)} bytes, not {size}")
    start = footer_start(tail, size)
    if start < at:
        source.seek(start)
        tail = bytes(source.read(size - start))
    return tail


def open_buffer(data: bytes) -> pq.ParquetFile:
    """Open a Parquet file in memory, as `open_source` does."""
    return open_source(pa.BufferReader(data))


def open_source(source: Any, *, pre_buffer: bool = False) -> pq.ParquetFile:
    """Open a Parquet file with the types that data files are read with.

    Checksums of pages, which files of txlog have, are verified as pages are read.
    """
    return pq.ParquetFile(
        source,
        pre_buffer=pre_buffer,
        coerce_int96_timestamp_unit="us",
        page_checksum_verification=True,
    )


class FileFooter:
    """What a footer says of a file's columns and row groups.

    Leaf columns have numbers, and paths with dots (`add.path`).

    Parameters
    ----------
    schema
        The file's, in Arrow's terms; timestamps of the type INT96 have microseconds.
    """

    def __init__(self, metadata: pq.FileMetaData, schema: pa.Schema) -> None:
        self.metadata = metadata
        self.schema = schema
        self.num_rows = int(metadata.num_rows)

    @classmethod
    def of(cls, file: pq.ParquetFile) -> FileFooter:
        """Return the footer of an open file."""
        return cls(file.metadata, file.schema_arrow)

    @classmethod
    def parse(cls, data: bytes) -> FileFooter:
        """Return the footer that `footer_bytes` gave; errors are those of pyarrow."""
        return cls.of(open_buffer(MAGIC + data))

    @property
    def pairs(self) -> dict[bytes, bytes]:
        """The file's key-value pairs."""
        return self.metadata.metadata or {}

    @property
    def groups(self) -> range:
        """The numbers of the row groups."""
        return range(self.metadata.num_row_groups)

    def rows(self, group: int) -> int:
        """Return how many rows a row group has."""
        return int(self.metadata.row_group(group).num_rows)

    @cached_property
    def paths(self) -> tuple[str, ...]:
        """The paths of the leaf columns, in their order."""
        schema = self.metadata.schema
        return tuple(schema.column(at).path for at in range(self.metadata.num_columns))

    @cached_property
    def leaves(self) -> dict[str, int]:
        """The numbers of the leaf columns by their paths."""
        return {path: at for at, path in enumerate(self.paths)}

    @cached_property
    def physical_types(self) -> tuple[str, ...]:
        """The Parquet types of the leaf columns, which the schema does not tell."""
        schema = self.metadata.schema
        return tuple(schema.column(at).physical_type for at in range(self.metadata.num_columns))

    def leaf(self, path: Sequence[str]) -> int | None:
        """Return the number of a leaf column; None if there is none, or two of its dotted path."""
        dotted = ".".join(path)
        leaves = self.leaves
        if len(leaves) < len(self.paths) and self.paths.count(dotted) > 1:
            return None
        return leaves.get(dotted)

    def statistics(self, group: int, leaf: int) -> Any:
        """Return pyarrow's statistics of a leaf column in a row group; None if there are none."""
        return self.metadata.row_group(group).column(leaf).statistics

    def nulls(self, group: int, leaf: int) -> int | None:
        """Return how many nulls a leaf column has in a row group; None if unknown."""
        statistics = self.statistics(group, leaf)
        if statistics is None or not statistics.has_null_count:
            return None
        return int(statistics.null_count)

    def values(self, group: int, leaf: int) -> int | None:
        """Return how many values of a leaf column are not null; None if unknown."""
        nulls = self.nulls(group, leaf)
        column = self.metadata.row_group(group).column(leaf)
        return None if nulls is None else int(column.num_values) - nulls
