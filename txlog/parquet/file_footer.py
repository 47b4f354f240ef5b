"""The footer of a Parquet file, read once: its bytes, schema, row groups and their statistics.

All rooms read footers through `FileFooter`, which pyarrow parses. To copy pages, the module
`footer` parses the same bytes again.
"""

from __future__ import annotations

import re
from functools import partial
from itertools import cycle
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from txlog.base.arrow import pq
from txlog.base.threads import cached_property

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

MAGIC = b"PAR1"
FOOTER_END = 8  # The footer's length, and the magic.
TAIL_BYTES = 65_536
"""The size of the first read at a file's end: most footers and all small files fit."""


def footer_start(tail: bytes, size: int) -> int:
    """Return the footer's offset in a Parquet file of `size` bytes, from the file's last bytes.

    Raises
    ------
    ValueError
        The bytes are not the last bytes of a Parquet file.
    """
    if len(tail) < FOOTER_END or tail[-4:] != MAGIC:
        raise ValueError("the file does not end like a Parquet file, so it is incomplete")
    start = size - FOOTER_END - int.from_bytes(tail[-FOOTER_END:-4], "little")
    if start < len(MAGIC):
        raise ValueError("the footer is longer than the file")
    return start


def footer_bytes(source: Any, size: int | None = None) -> bytes:
    """Return the end of an open Parquet file, from its footer on; errors as for `end_bytes`."""
    size = source.seek(0, 2) if size is None else size
    tail = end_bytes(source, size)
    return tail[footer_start(tail, size) - size :]


def end_bytes(source: Any, size: int) -> bytes:
    """Return the end of an open Parquet file with its whole footer, usually with one read.

    Parameters
    ----------
    size
        The file's size in bytes.

    Raises
    ------
    ValueError
        It is not a Parquet file, or it has another size.
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
    """Open a Parquet file in memory with the options of `open_source`."""
    return open_source(pa.BufferReader(data))


def open_source(
    source: Any, *, pre_buffer: bool = False, footer: FileFooter | None = None
) -> pq.ParquetFile:
    """Open a Parquet file with the options with which data files are read.

    A known `footer` is not read again.

    Checksums of pages, which txlog's files have, are verified when pages are read.
    """
    if footer is not None:
        found = _opened(source, footer.metadata, pre_buffer)
        found.footer = footer  # For `FileFooter.of`: it may have been examined already.
        return found
    try:
        end = footer_bytes(source)
    except ValueError:
        return _opened(source, None, pre_buffer)  # pyarrow says what is wrong.
    try:
        metadata = pq.read_metadata(pa.BufferReader(MAGIC + end))
    except OSError as error:
        if "cannot be applied to group node" not in str(error):
            raise
        end = _without_unknown(end)
        metadata = pq.read_metadata(pa.BufferReader(MAGIC + end))
    found = _opened(source, metadata, pre_buffer)
    found.footer = FileFooter(metadata, found.schema_arrow, end)  # pyarrow keeps no bytes.
    return found


def _opened(source: Any, metadata: Any, pre_buffer: bool) -> pq.ParquetFile:
    return pq.ParquetFile(
        source,
        metadata=metadata,
        pre_buffer=pre_buffer,
        coerce_int96_timestamp_unit="us",
        page_checksum_verification=True,
    )


# A group of the old type MAP_KEY_VALUE to which parquet-mr 1.11.0 gives the logical type UNKNOWN,
# which the format only allows for leaves: the fields 6 (converted type), 9 (an id) and 10.
_UNKNOWN_GROUP = re.compile(
    rb"(\x15\x04)(?:(\x35[\x80-\xff]*[\x00-\x7f])\x1c|\x4c)\xbc\x00\x00(?=\x00)", re.DOTALL
)


def _without_unknown(footer: bytes) -> bytes:
    """Return the end of a file whose groups have no logical type UNKNOWN (PARQUET-1879)."""
    size = len(footer) - FOOTER_END
    sound = _UNKNOWN_GROUP.sub(rb"\1\2", footer[:size])
    return sound + len(sound).to_bytes(4, "little") + footer[-4:]


_TYPES = (
    "BOOLEAN", "INT32", "INT64", "INT96", "FLOAT", "DOUBLE", "BYTE_ARRAY", "FIXED_LEN_BYTE_ARRAY",
)  # fmt: skip
"""The names of the numbers of Parquet's enum `Type`."""


class FileFooter:
    """The columns and row groups of a file, as its footer describes them.

    Leaf columns have numbers and dotted paths (`add.path`).

    Parameters
    ----------
    schema
        The file's Arrow schema; timestamps of type INT96 have microseconds.
    end
        The bytes from which pyarrow parsed the footer, or a function that reads them. None: txlog
        has written the file.
    """

    def __init__(
        self,
        metadata: pq.FileMetaData,
        schema: pa.Schema,
        end: bytes | Callable[[], bytes] | None = None,
    ) -> None:
        self.metadata = metadata
        self.schema = schema
        self.num_rows = int(metadata.num_rows)
        self._end = end
        self._is_sound = False

    @classmethod
    def of(cls, file: pq.ParquetFile, source: Any = None) -> FileFooter:
        """Return the footer of an open file.

        `source` is what pyarrow reads, if the file was not opened by `open_source`.
        """
        known: FileFooter | None = getattr(file, "footer", None)
        if known is not None:
            return known
        end = None if source is None else partial(footer_bytes, source)
        return cls(file.metadata, file.schema_arrow, end)

    @classmethod
    def parse(cls, data: bytes) -> FileFooter:
        """Parse bytes from `footer_bytes`; errors are those of pyarrow."""
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
        """Return the number of rows of a row group."""
        return int(self.metadata.row_group(group).num_rows)

    @cached_property
    def paths(self) -> tuple[str, ...]:
        """The paths of the leaf columns in order."""
        schema = self.metadata.schema
        return tuple(schema.column(at).path for at in range(self.metadata.num_columns))

    @cached_property
    def places(self) -> dict[str, int]:
        """The numbers of the columns of `schema` by their names, which must be distinct."""
        return {name: at for at, name in enumerate(self.schema.names)}

    @cached_property
    def leaves(self) -> dict[str, int]:
        """The numbers of the leaf columns by their paths."""
        return {path: at for at, path in enumerate(self.paths)}

    @cached_property
    def physical_types(self) -> tuple[str, ...]:
        """The Parquet types of the leaf columns, which the Arrow schema does not contain."""
        schema = self.metadata.schema
        return tuple(schema.column(at).physical_type for at in range(self.metadata.num_columns))

    def leaf(self, path: Sequence[str]) -> int | None:
        """Return the number of a leaf column; None if no column, or two columns, have the path."""
        dotted = ".".join(path)
        leaves = self.leaves
        if len(leaves) < len(self.paths) and self.paths.count(dotted) > 1:
            return None
        return leaves.get(dotted)

    def chunk(self, group: int, leaf: int) -> Any:
        """Return pyarrow's metadata of a leaf column in a row group.

        Errors are those of `require_sound`.
        """
        self.require_sound()
        return self.metadata.row_group(group).column(leaf)

    def statistics(self, group: int, leaf: int) -> Any:
        """Return pyarrow's statistics of a leaf column in a row group; None if there are none.

        Errors are those of `chunk`.
        """
        return self.chunk(group, leaf).statistics

    def nulls(self, group: int, leaf: int) -> int | None:
        """Return the number of nulls of a leaf column in a row group; None if unknown."""
        statistics = self.statistics(group, leaf)
        if statistics is None or not statistics.has_null_count:
            return None
        return int(statistics.null_count)

    def values(self, group: int, leaf: int) -> int | None:
        """Return the number of non-null values of a leaf column; None if unknown."""
        nulls = self.nulls(group, leaf)
        return None if nulls is None else int(self.chunk(group, leaf).num_values) - nulls

    def require_sound(self) -> None:
        """Refuse a damaged footer with which the process would end, without an error of Python.

        pyarrow ends it where it is asked for a chunk that contradicts the schema: its type, or its
        size statistics. (Readers of rows raise an error.) It also ends it where it is asked to
        write a footer that says that the file is encrypted, so the bytes are those of the file.

        Raises
        ------
        pyarrow.ArrowInvalid
            The metadata of a chunk contradict the schema.
        """
        if self._is_sound:
            return
        from txlog.parquet.footer import chunk_facts  # Most reads and writes do not need it.

        end, start = self._end, 0
        try:
            if end is None:
                sink = pa.BufferOutputStream()
                self.metadata.write_metadata_file(sink)
                end, start = sink.getvalue().to_pybytes(), len(MAGIC)
            elif not isinstance(end, bytes):
                end = end()
            found = chunk_facts(end, start)
        except ValueError as error:
            raise pa.ArrowInvalid(f"the footer cannot be read: {error}") from error
        schema = self.metadata.schema
        leaves = list(map(schema.column, range(self.metadata.num_columns)))
        for facts, leaf in zip(found, cycle(leaves), strict=False):
            kind = leaf.physical_type
            levels = leaf.max_repetition_level + 1, leaf.max_definition_level + 1
            if (
                _TYPES[facts.kind : facts.kind + 1] != (kind,)
                or facts.repetitions not in (0, levels[0])
                or facts.definitions not in (0, levels[1])
                or (facts.text_bytes and kind != "BYTE_ARRAY")
            ):
                raise pa.ArrowInvalid(
                    f"the footer contradicts itself: the type or the size statistics of the column "
                    f"{leaf.path} do not fit its schema"
                )
        self._is_sound, self._end = True, None
