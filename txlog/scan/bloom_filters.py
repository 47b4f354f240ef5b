"""Row groups that a Bloom filter of their file excludes: no row has a value of the predicate."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from txlog.base.errors import warn_caller
from txlog.base.thresholds import Threshold
from txlog.parquet.bloom import HEADER_BYTES, BloomFilterError, header, parse, plain
from txlog.parquet.file_footer import FileFooter

Read = Callable[[int, int], bytes]
"""Returns bytes of a file, from a position, at most so many."""

_MOST_VALUES: Threshold = 1_024  # Of more values, a row group nearly always may have one.
_LEAST_TIMES: Threshold = 4  # A filter is read if the columns have so many times its bytes.


def groups_left(
    footer: FileFooter,
    wanted: Mapping[int, tuple[str, Sequence[object]]],
    read_leaves: Collection[int],
    groups: Sequence[int],
    read: Read,
    path: str,
) -> list[int]:
    """Return the row groups in which the filters of the file do not exclude values of columns.

    A filter that is damaged, as far as that shows, is ignored with a warning.

    Parameters
    ----------
    wanted
        Names of columns in the file, and the values of which each row must have one, by the numbers
        of the leaves.
    read_leaves
        The leaves that are to be read.
    groups
        The row groups to look at.
    path
        The path of the file, for warnings.
    """
    few = {leaf: one for leaf, one in wanted.items() if len(one[1]) <= _MOST_VALUES}
    left = []
    for group in groups:
        try:
            if any(
                _excludes(footer, group, leaf, name, values, read_leaves, read)
                for leaf, (name, values) in few.items()
            ):
                continue
        except BloomFilterError as error:
            warn_caller(f"a Bloom filter of {path} cannot be used, so its rows are read: {error}")
            few = {}
        left.append(group)
    return left


def _excludes(
    footer: FileFooter,
    group: int,
    leaf: int,
    name: str,
    values: Sequence[object],
    read_leaves: Collection[int],
    read: Read,
) -> bool:
    """Return whether a filter shows that no row of a row group has one of some values."""
    column = footer.chunk(group, leaf)
    start = getattr(column, "bloom_filter_offset", None)  # Older versions of pyarrow have no such.
    kind, physical = footer.schema.field(name).type, footer.physical_types[leaf]
    length = footer.metadata.schema.column(leaf).length
    encoded = [plain(value, kind, physical, length) for value in values]
    known = [one for one in encoded if one is not None]
    asked = [form for one in known for form in one]
    if not start or not asked or len(known) < len(encoded):
        return False
    stored: int | None = getattr(column, "bloom_filter_length", None)
    first = read(start, stored or HEADER_BYTES)
    begin, size = header(first)
    if stored and stored != begin + size:
        raise BloomFilterError(f"it has {begin + size} bytes, and the footer says {stored}")
    compressed = sum(footer.chunk(group, one).total_compressed_size for one in read_leaves)
    if _LEAST_TIMES * size > compressed:
        return False
    bits = first[begin:] if stored else read(start + begin, size)
    found = parse(bits, size, _known(column.statistics, kind, physical))
    return not any(map(found.may_have, asked))


def _known(statistics: Any, kind: Any, physical: str) -> list[bytes]:
    """Return the bounds of a row group that are values of rows: those of numbers."""
    if statistics is None or not statistics.has_min_max or physical not in ("INT32", "INT64"):
        return []
    bounds = (plain(one, kind, physical) for one in (statistics.min, statistics.max))
    return [form for one in bounds if one is not None for form in one]
