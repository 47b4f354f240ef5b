"""Open Parquet files of checkpoints; footers are read once and checked."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pyarrow as pa

from txlog.actions.ndjson import FOOTER_MARK, is_broken
from txlog.base.arrow import pq
from txlog.base.errors import LogCorruptError, NotFoundError, reason_of, resource_error
from txlog.base.thresholds import Threshold
from txlog.parquet.file_footer import FileFooter, footer_bytes
from txlog.store.base import Store, is_far
from txlog.store.open import locate
from txlog.store.ranged import open_ranged

# For each action that a checkpoint may contain, a field that it always has.
KEYS = {
    "add": "path", "remove": "path", "protocol": "minReaderVersion", "metaData": "id",
    "txn": "appId", "domainMetadata": "domain", "sidecar": "path",
    "checkpointMetadata": "version",
}  # fmt: skip
REMEDY = "Restore the checkpoint, or delete it if the commits that it covers still exist"
_BUFFER_BYTES = 1 << 20
# A decoded row group may use 256 MiB, or 1,000 times the file's size. No checkpoint reaches both.
_LEAST_BOUND = 256 << 20
_MOST_TIMES = 1000
# Signed integers and booleans. pyarrow returns the raw bounds of unsigned integers as signed ones.
_NUMBERS = ("NONE", "INT_8", "INT_16", "INT_32", "INT_64")


@contextmanager
def named(path: str) -> Any:
    """Turn the errors of readers about a damaged file into a `LogCorruptError` that names it."""
    try:
        yield
    except NotFoundError as error:
        raise LogCorruptError(path=path, reason="the file is missing", remedy=REMEDY) from error
    except (pa.ArrowException, OSError, LookupError, ValueError, TypeError) as error:
        if (lacking := resource_error(error, path)) is not None:
            raise lacking from error
        if isinstance(error, LogCorruptError):
            raise
        raise LogCorruptError(
            path=path, reason=f"the checkpoint cannot be read: {reason_of(error)}", remedy=REMEDY
        ) from error


class Opened:
    """A Parquet file that is open for reading."""

    def __init__(self, source: Any, footer: FileFooter | None = None) -> None:
        self.footer = footer = read_footer(source) if footer is None else footer
        self.size = int(source.seek(0, 2))
        # From a local store, bytes are read when needed; from a remote store, a row group at once.
        near = isinstance(source, pa.NativeFile)
        self.leaves = footer.leaves
        self.groups = footer.groups
        self.rows = footer.rows
        self.file = pq.ParquetFile(
            source,
            metadata=footer.metadata,
            pre_buffer=not near,
            buffer_size=_BUFFER_BYTES if near else 0,
            page_checksum_verification=True,
            coerce_int96_timestamp_unit="us",
            read_dictionary=_few_texts(footer),  # These columns stay dictionary-encoded.
        )
        self.kinds = [name for name in footer.schema.names if name in KEYS]
        """The kinds of actions for which the file has columns."""

    def bytes(self, group: int, columns: Collection[str]) -> int:
        """Return the uncompressed size of some columns, or of structs of them, in a row group.

        Decoded, they may need more: a dictionary stores each distinct value once.
        """
        begins = tuple(f"{column}." for column in columns)
        return sum(
            self.footer.chunk(group, at).total_uncompressed_size
            for leaf, at in self.leaves.items()
            if leaf in columns or leaf.startswith(begins)
        )

    @property
    def most_bytes(self) -> int:
        """The most bytes that the columns of a row group may need: no checkpoint needs more."""
        return max(_LEAST_BOUND, _MOST_TIMES * self.size)

    def require_bounded(self, group: int, columns: Collection[str]) -> None:
        """Raise `ValueError` if some columns of a row group are larger than they may be.

        Their sizes are those of the footer, so nothing is decompressed.
        """
        if self.bytes(group, columns) > self.most_bytes:
            raise self.too_large()

    def too_large(self) -> ValueError:
        """Return the error for columns that need more than `most_bytes`."""
        return ValueError(
            f"decoding the file of {self.size} bytes would need more than {self.most_bytes} bytes"
        )

    def values(self, group: int, leaf: str) -> int | None:
        """Return the number of non-null values of a column in a row group; None if unknown.

        `leaf` is its path in the file (`add.path`). A missing column has no values.
        """
        at = self.leaves.get(leaf)
        return 0 if at is None else self.footer.values(group, at)

    def only_value(self, group: int, leaf: str) -> str | int | None:
        """Return the only value of a column in a row group, if the footer contains it.

        If both bounds are equal, they are the value, even if a writer truncates bounds, because a
        truncated upper bound is greater than the value. The result is None for columns inside lists
        and maps. A boolean is an `int` too.
        """
        at = self.leaves[leaf]
        kind = self.footer.metadata.schema.column(at)
        if kind.max_repetition_level or self.values(group, leaf) != 1:
            return None
        statistics = self.footer.statistics(group, at)
        if not statistics.has_min_max or statistics.min_raw != statistics.max_raw:
            return None
        match statistics.min_raw:
            case int() as number if kind.converted_type in _NUMBERS:
                return number
            case bytes() as text if kind.logical_type.type == "STRING":
                return text.decode()
        return None

    def is_empty(self, group: int, leaf: str) -> bool:
        """Return whether a column exists and is null in the whole row group."""
        return leaf in self.leaves and self.values(group, leaf) == 0

    def actions(self, group: int, kind: str) -> int | None:
        """Return the number of actions of a kind in a row group; None if unknown.

        Raises
        ------
        ValueError
            The column does not hold such actions.
        """
        if kind not in self.kinds:
            return 0
        key = f"{kind}.{KEYS[kind]}"
        if key not in self.leaves:
            raise ValueError(f"it has a column {kind}, but without a {key} of a simple type")
        return self.values(group, key)


def _few_texts(footer: FileFooter) -> list[str]:
    """Return the string columns with few distinct values or few non-null values."""
    return [
        leaf
        for leaf, kind in zip(footer.paths, footer.physical_types, strict=True)
        if leaf.split(".")[0] not in ("add", "remove") or leaf.startswith("add.partitionValues.")
        if kind == "BYTE_ARRAY"
    ]


@contextmanager
def opened(
    store: Store, path: str, size: int | None = None, footers: Footers | None = None
) -> Iterator[Opened]:
    """Open a Parquet file of a checkpoint; its checksums are verified if it has any.

    Parameters
    ----------
    size
        The size in bytes, if the log or its listing states it.
    footers
        The known footers. For a remote store, what is read here is added.

    Raises
    ------
    LogCorruptError
        The file is missing or is not Parquet, here or when it is read in the `with` block.
    """
    home, name = locate(store, path)
    known = None if footers is None else footers.get(path)
    tail = None if footers is None else footers.whole.get(path)
    with named(path), ExitStack() as stack:
        source = stack.enter_context(open_ranged(home, name, size, tail=tail))
        try:
            found = Opened(source, known)
        except (pa.ArrowException, OSError, ValueError):
            if size is None or not is_far(home):
                raise
            # Some logs contain wrong file sizes.
            source = stack.enter_context(open_ranged(home, name))
            found = Opened(source)
        if footers is not None and is_far(home):
            footers.add(path, found, source.tail)
        yield found


_WHOLE_BYTES: Threshold = 1 << 20  # The bytes of small files that are kept with their footers.


class Footers(dict[str, FileFooter]):
    """Footers of a checkpoint's files that were read from a remote store, by path.

    They are kept with the loaded checkpoint, and omitted from its pickle.

    Attributes
    ----------
    whole
        The bytes of small files, which were read together with their footers.
    """

    def __init__(self) -> None:
        super().__init__()
        self.whole: dict[str, bytes] = {}

    def add(self, path: str, opened: Opened, tail: bytes | None) -> None:
        """Add the footer of a file, and all of its bytes if `tail`, its end, has them."""
        self[path] = opened.footer
        if tail is None or len(tail) < opened.size:
            return
        if sum(map(len, self.whole.values())) + len(tail) <= _WHOLE_BYTES:
            self.whole[path] = tail

    def __reduce__(self) -> tuple[type[Footers], tuple[()]]:
        return Footers, ()


def read_footer(source: Any) -> FileFooter:
    """Return the footer of an open Parquet file.

    Raises
    ------
    ValueError, pyarrow.ArrowException
        The bytes are not a footer, or they do not match its checksum.
    """
    footer = footer_bytes(source)
    if is_broken(footer, FOOTER_MARK):
        raise ValueError("its footer does not match the checksum in it")
    return FileFooter.parse(footer)
