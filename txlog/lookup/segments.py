"""Segments: runs of an index as files below `_txlog_index`. Bytes: spec/lookup.md."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
from numpy.typing import NDArray

from txlog.base.columns import flat
from txlog.base.effects import Effects
from txlog.base.errors import NotFoundError, TxlogError, warn_caller
from txlog.base.thresholds import Threshold
from txlog.base.version import __version__
from txlog.log.paths import decode_path, is_unique
from txlog.lookup.blocks import (
    BLOCK_BYTES,
    Array,
    BlockArray,
    Blocks,
    ReadParts,
    RunError,
    checks_of,
    whole,
)
from txlog.lookup.composite import Window
from txlog.lookup.keys import can_be_key, key_type
from txlog.lookup.runs import Run, RunBuilder, RunPart, merge_runs
from txlog.parquet.file_footer import FOOTER_END, end_bytes, footer_start
from txlog.parquet.footer import parse_footer
from txlog.protocol.properties import IndexDefinition
from txlog.schema.types import StructField, StructType, type_name
from txlog.store.base import Store, map_many
from txlog.store.open import locate

FOLDER = "_txlog_index"
SUFFIX = ".idx"
# Keys of smaller segments, and files of one write, become one run.
MERGED_AT_ONCE: Threshold = 4 << 20

_MAGIC = b"TXLIDX"  # Then a character with the number of the format, and a line feed.
_FORMAT = b"3"
_HEAD_AT = 24
FIRST_BYTES: Threshold = 64 << 10  # Read at once of a segment that is not read whole.
_MOST_HEAD_BYTES = 256 << 20
_MOST_TAIL_BYTES = 64 << 20
_ALIGNED = 64
_ARRAYS: dict[str, Any] = {
    "marks": "<u4", "zeros": "<u4", "upper": "<u8", "lower": "<u8", "rows": "<u8"
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Tail:
    """The last bytes of a data file, from its first offset index on, compressed by zstd."""

    start: int
    packed: Array  # uint8.

    @classmethod
    def of(cls, start: int, data: bytes, level: int = 1) -> Tail:
        """Return the tail of a file from a byte on, compressed by zstd at a level."""
        packed = pa.Codec("zstd", compression_level=level).compress(data, asbytes=True)
        return cls(start, np.frombuffer(packed, np.uint8))

    def unpacked(self, size: int) -> bytes | None:
        """Return the bytes of the end of a file of `size` bytes; None if they are another file's.

        Errors are those of `Blocks`.
        """
        if size - self.start > _MOST_TAIL_BYTES:
            return None
        packed = whole(self.packed).tobytes()
        try:
            data: bytes = pa.Codec("zstd").decompress(packed, size - self.start, asbytes=True)
        except (pa.ArrowException, OSError, ValueError):
            return None
        return data if len(data) == size - self.start else None


@dataclass(frozen=True, slots=True)
class CoveredFile:
    """The files with the key columns of a fragment whose keys are in a run."""

    paths: tuple[str, ...]  # As in the log, one for each key column.
    sizes: tuple[int, ...]
    rows: int
    nulls: int  # Rows that have no key.
    tail: Tail | None = None  # Only if one file gives all key columns.


@dataclass(frozen=True, slots=True)
class CoveredRun:
    """A run and its files; rows count through the files in their order."""

    run: Run
    files: tuple[CoveredFile, ...]

    @property
    def starts(self) -> Any:
        """The first row of each file, and the row after the last; int64."""
        return np.cumsum([0, *(file.rows for file in self.files)], dtype=np.int64)


@dataclass(frozen=True, slots=True)
class Segment:
    """The content of a segment file."""

    name: str
    columns: tuple[str, ...]
    types: tuple[str, ...]  # As `key_type` returns them.
    runs: tuple[CoveredRun, ...]
    blocks: Blocks
    size: int  # Of the file, in bytes.
    table: str | None = None  # The id of the table for whose files it was built, if it is known.
    copy: Path | None = None  # The copy from which it is read in place of the segment's own file.

    def knows(self, file: CoveredFile, table: str | None) -> bool:
        """Return whether a file of a table with these paths is the one whose keys it has.

        A user may give another table in this folder, or another one of its files, the same name.
        """
        is_own = table is not None and self.table == table
        return is_own or all(map(is_unique, file.paths))

    @property
    def keys(self) -> int:
        """The number of keys of the runs."""
        return sum(covered.run.keys for covered in self.runs)


def encode_segment(
    columns: Sequence[str],
    types: Sequence[str],
    runs: Sequence[CoveredRun],
    *,
    table: str | None = None,
) -> bytes:
    """Return the bytes of a segment; `table` is the id of the table whose files it covers."""
    arrays: list[bytes] = []
    at = 0

    def placed(array: Array, kind: Any) -> list[int]:
        nonlocal at
        content = whole(array).astype(kind).tobytes()
        begin = at
        arrays.append(content + bytes(-len(content) % _ALIGNED))
        at += len(arrays[-1])
        return [begin, len(content)]

    described = []
    for covered in runs:
        run = covered.run
        one: dict[str, Any] = {
            "form": run.form, "keys": run.keys, "first": run.first, "last": run.last,
            "shift": run.shift, "base": run.base, "low": run.low, "rowBits": run.row_bits,
        }  # fmt: skip
        if run.start:
            one["start"] = run.start
        if run.windows:
            one["windows"] = [[of.base, of.shift, of.width] for of in run.windows]
        for name, kind in _ARRAYS.items():
            array = getattr(run, name)
            one[name] = None if array is None else placed(array, kind)
        one["files"] = [
            {
                "paths": file.paths, "sizes": file.sizes, "rows": file.rows, "nulls": file.nulls,
                "tail": None
                if file.tail is None
                else [*placed(file.tail.packed, np.uint8), file.tail.start],
            }
            for file in covered.files
        ]  # fmt: skip
        described.append(one)
    content, block = b"".join(arrays), BLOCK_BYTES
    arrays.clear()
    checks = checks_of(content, block)
    head = orjson.dumps(
        {
            "columns": columns, "types": types, "by": f"txlog/{__version__}",
            "block": block, "bytes": len(content),
            "runs": described, **({} if table is None else {"table": table}),
        }
    )  # fmt: skip
    rest = len(checks).to_bytes(4, "little") + head + bytes(-(_HEAD_AT + len(head)) % _ALIGNED)
    rest += checks.tobytes() + bytes(-checks.nbytes % _ALIGNED)
    start = _MAGIC + _FORMAT + b"\n" + len(head).to_bytes(8, "little")
    return b"".join([start, zlib.crc32(rest).to_bytes(4, "little"), rest, content])


def parse_segment(data: Any, name: str, read: ReadParts | None = None) -> Segment:
    """Parse the bytes of a segment file, and check all of them; arrays are views of them.

    Parameters
    ----------
    data
        Bytes, or a buffer.
    read
        Reads parts of the file again, if its blocks were released. Default: from `data`.

    Raises
    ------
    RunError
        The bytes are not a segment, or are damaged.
    """
    view = memoryview(data)

    def again(ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        return [bytes(view[start:stop]) for start, stop in ranges]

    begin = _arrays_at(view, len(view))
    return _parsed(view[:begin], len(view), name, read or again, view[begin:])


def open_segment(read: ReadParts, size: int, name: str) -> Segment:
    """Read the head of a segment file of `size` bytes; blocks are read when they are needed.

    Raises
    ------
    RunError
        The bytes are not a segment, or the head is damaged.
    TxlogError, OSError
        The file could not be read.
    """
    (first,) = read([(0, min(max(FIRST_BYTES, _HEAD_AT), size))])
    begin = _arrays_at(memoryview(first), size)
    if begin > len(first):
        first += read([(len(first), begin)])[0]
    if len(first) < begin:
        raise RunError("the file ends within its head")
    return _parsed(memoryview(first)[:begin], size, name, read)


def _arrays_at(start: memoryview, size: int) -> int:
    """Return where the arrays of a segment begin, from the first bytes of the file."""
    if len(start) < _HEAD_AT or bytes(start[:6]) != _MAGIC or start[7] != 10:
        raise RunError("it does not begin with the bytes of a segment")
    if bytes(start[6:7]) != _FORMAT:
        raise RunError(
            f"it has the format {chr(start[6])!r}, and this txlog reads {_FORMAT.decode()!r}"
        )
    length, blocks = (int.from_bytes(start[at:end], "little") for at, end in ((8, 16), (20, 24)))
    begin = _aligned(_aligned(_HEAD_AT + length) + 4 * blocks)
    if length > _MOST_HEAD_BYTES or begin > size:
        raise RunError(f"its head of {length} bytes is longer than the file")
    return begin


def _aligned(position: int) -> int:
    return -(-position // _ALIGNED) * _ALIGNED


def _head(start: memoryview) -> tuple[Any, NDArray[np.uint32]]:
    """Return the head of a segment, and the checksums of its blocks."""
    if zlib.crc32(start[20:]) != int.from_bytes(start[16:20], "little"):
        raise RunError("the checksum of its head does not match")
    end = _HEAD_AT + int.from_bytes(start[8:16], "little")
    count = int.from_bytes(start[20:24], "little")
    return orjson.loads(start[_HEAD_AT:end]), np.frombuffer(start, "<u4", count, _aligned(end))


def _parsed(start: memoryview, size: int, name: str, read: ReadParts, data: Any = None) -> Segment:
    try:
        head, checks = _head(start)
        columns, types = tuple(head["columns"]), tuple(head["types"])
        if (
            not columns
            or len(columns) != len(types)
            or not all(isinstance(x, str) for x in (*columns, *types))
        ):
            raise RunError("its columns have no types")
        block, length = _whole(head["block"]), _whole(head["bytes"])
        if length != size - len(start):
            raise RunError(f"it has {size} bytes, and {len(start) + length} were expected")
        if not block or len(checks) != -(-length // block):
            raise RunError(f"it has {len(checks)} blocks of {block} bytes")
        blocks = Blocks(len(start), length, block, checks, read, data)
        runs = tuple(_covered(one, blocks, len(columns)) for one in head["runs"])
        table = head.get("table")
        if not (table is None or isinstance(table, str)):
            raise RunError(f"its table is {table!r}")
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        if isinstance(error, RunError):
            raise
        raise RunError(f"its head is not valid: {error!r}"[:300]) from error
    return Segment(name, columns, types, runs, blocks, size, table)


def read_paths(store: Store, path: str, size: int) -> list[str] | None:
    """Return the paths of the files that a segment covers; None if that cannot be read."""
    try:
        with store.open_input(path, size=size) as source:
            first = bytes(source.read(_HEAD_AT))
            begin = _arrays_at(memoryview(first), size)
            first += bytes(source.read(begin - len(first)))
        head, _ = _head(memoryview(first))
        files = [file for run in head["runs"] for file in run["files"]]
        return [str(path) for file in files for path in file["paths"]]
    except NotFoundError:
        return None
    except (KeyError, TypeError, ValueError):
        return None


def _covered(one: dict[str, Any], blocks: Blocks, columns: int) -> CoveredRun:
    if one["form"] not in ("ordered", "composite", "hashed"):
        raise RunError(f"a run has the form {one['form']!r}")
    windows = tuple(_window(of) for of in one.get("windows", ()))
    if bool(windows) != (one["form"] == "composite") or len(windows) > columns:
        raise RunError(f"a run of the form {one['form']!r} has {len(windows)} windows")
    if one["form"] == "ordered" and columns > 1:
        raise RunError(f"an ordered run has keys of {columns} columns")
    files = tuple(_file(file, blocks, columns) for file in one["files"])
    names = ("keys", "first", "last", "shift", "base", "low", "rowBits")
    numbers: list[Any] = [_whole(one[name]) for name in names]
    loaded: dict[str, Any] = {
        name: None if one[name] is None else _array(one[name], blocks, kind)
        for name, kind in _ARRAYS.items()
    }
    if any(loaded[name] is None for name in _ARRAYS if name != "rows"):
        raise RunError("a run lacks an array")
    start: Any = _whole(one.get("start", 0))
    run = replace(Run(one["form"], *numbers, **loaded), start=start, windows=windows)
    run.check(sum(file.rows for file in files))
    return CoveredRun(run, files)


def _window(given: Sequence[Any]) -> Window:
    base, shift, width = map(_whole, given)
    if shift >= 64 or width > 64 or base >= 1 << 64:
        raise RunError(f"{given!r} is no window of an encoding")
    return Window(base, shift, width)


def _file(one: dict[str, Any], blocks: Blocks, columns: int) -> CoveredFile:
    paths, sizes = tuple(one["paths"]), tuple(map(_whole, one["sizes"]))
    if not len(paths) == len(sizes) == columns or not all(isinstance(p, str) for p in paths):
        raise RunError("a file does not have a path and a size for each key column")
    tail = None
    if one["tail"] is not None:
        *extent, start = one["tail"]
        if _whole(start) >= sizes[0]:
            raise RunError("a tail begins behind its file")
        tail = Tail(start, _array(extent, blocks, "u1"))
    return CoveredFile(paths, sizes, _whole(one["rows"]), _whole(one["nulls"]), tail)


def _whole(number: Any) -> int:
    if type(number) is not int or number < 0:
        raise RunError(f"{number!r} is not a whole number from 0")
    return number


def _array(extent: Sequence[Any], blocks: Blocks, kind: str) -> BlockArray:
    begin, length = map(_whole, extent)
    if begin % _ALIGNED or begin + length > blocks.size:
        raise RunError("an array is not within the file")
    count, rest = divmod(length, np.dtype(kind).itemsize)
    if rest:
        raise RunError("an array ends within a value")
    return BlockArray(blocks, begin, count, np.dtype(kind))


def merged(
    runs: Iterable[CoveredRun], is_live: Callable[[CoveredFile], bool] = lambda _: True
) -> list[CoveredRun]:
    """Merge runs into as few as possible, without the files that are not live."""
    found: list[CoveredRun] = []
    by_form: dict[tuple[str, tuple[Window, ...]], list[CoveredRun]] = {}
    known: set[tuple[tuple[str, ...], tuple[int, ...], int]] = set()
    for covered in runs:
        # A file of another size or number of rows is another one (LKP-8).
        files = [(file.paths, file.sizes, file.rows) for file in covered.files]
        fresh = [
            one not in known and is_live(file)
            for one, file in zip(files, covered.files, strict=True)
        ]
        known.update(files)
        if any(fresh):
            together = by_form.setdefault((covered.run.form, covered.run.windows), [])
            together.append(covered if all(fresh) else _without(covered, fresh))
    for together in by_form.values():
        together.sort(key=lambda covered: covered.run.first)
        every = [RunPart(one.run, one.starts, np.ones(len(one.files), bool)) for one in together]
        run = merge_runs(every) if len(together) > 1 else None
        if run is None:
            found += together
        else:
            found.append(CoveredRun(run, tuple(f for one in together for f in one.files)))
    return found


def _without(covered: CoveredRun, keep: list[bool]) -> CoveredRun:
    """Return a run without the keys of some files; unchanged if the new run would be worse."""
    run = merge_runs([RunPart(covered.run, covered.starts, np.array(keep))])
    if run is None:
        return covered
    files = tuple(file for file, kept in zip(covered.files, keep, strict=True) if kept)
    return CoveredRun(run, files)


def read_tail(store: Store, path: str, size: int, level: int = 1) -> Tail | None:
    """Return the tail of a data file; None if it has no offset indexes, or cannot be read.

    `level` is that of zstd: 15 takes a fifth less space than 1, and 5 ms for 1,000 pages.
    """
    home, name = locate(store, decode_path(path))
    try:
        with home.open_input(name, size=size) as source:
            data = end_bytes(source, size)
            begin = size - len(data)
            start = _tail_start(data, size)
            if start is None:
                return None
            if start < begin:
                source.seek(start)
                data, begin = bytes(source.read(size - start)), start
            return Tail.of(start, data[start - begin :], level)
    except (ValueError, IndexError, OSError, TxlogError):
        return None


def _tail_start(data: bytes, size: int) -> int | None:
    """Return where the tail of a data file begins, from its end with the footer; None: no tail."""
    footer = parse_footer(data[footer_start(data, size) - size : -FOOTER_END])
    indexes = [chunk.index for chunk in footer.row_group(0).chunks]
    starts = [index[0] for index in indexes if index is not None]
    if len(starts) < len(indexes) or not starts:
        return None
    start = min(starts)
    return start if 0 < size - start <= _MOST_TAIL_BYTES else None


def _known_tail(end: bytes, size: int) -> Tail | None:
    """Return the tail of a data file from its last bytes; None if they do not have one."""
    try:
        start = _tail_start(end, size)
    except (ValueError, IndexError):
        return None
    return None if start is None or size - start > len(end) else Tail.of(start, end[start - size :])


def segment_path(index: str, effects: Effects) -> str:
    """Return the path for a new segment of an index."""
    return f"{FOLDER}/{index}/{effects.uuid()}{SUFFIX}"


def key_fields(schema: StructType, columns: Sequence[str]) -> tuple[StructField, ...] | None:
    """Return the key columns by their physical names; None if one is missing or cannot be a key."""
    fields = [schema.get(name) for name in columns]
    found = tuple(field for field in fields if field is not None and can_be_key(field))
    return found if len(found) == len(fields) else None


@dataclass
class _IndexedFile:
    builders: list[RunBuilder | None]
    size: int = 0
    end: bytes = b""


@dataclass
class SegmentWriter:
    """Builds the runs of data files while they are written, and one segment for each index.

    Parameters
    ----------
    schema
        The columns of the files, with their physical names.
    """

    definitions: Sequence[IndexDefinition]
    schema: StructType
    _files: dict[str, _IndexedFile] = field(default_factory=dict)

    def add(self, path: str, rows: pa.Table) -> None:
        """Add the next rows of a file."""
        keys = [key_fields(self.schema, one.columns) for one in self.definitions]
        file = self._files.setdefault(
            path, _IndexedFile([None if of is None else RunBuilder(of) for of in keys])
        )
        for builder, columns in zip(file.builders, keys, strict=True):
            if builder is not None and columns is not None:
                builder.add([flat(rows.column(column.name)) for column in columns])

    def close(self, path: str, size: int, end: bytes = b"") -> None:
        """Finish the run of a file that is completely written.

        Parameters
        ----------
        end
            The last bytes of the file, if they were kept.
        """
        self._files[path].size = size
        self._files[path].end = end

    def write(self, store: Store, effects: Effects) -> None:
        """Try to write the segments; if it fails, warn, because look-ups only become slower."""
        if not self._files:
            return
        tail = partial(_tail_of, store)
        tails = list(map_many(store, tail, list(self._files.items())))
        for place, definition in enumerate(self.definitions):
            columns = key_fields(self.schema, definition.columns)
            if columns is None:
                self._warn_of_no_keys(definition)
                continue
            runs = []
            for (path, file), end in zip(self._files.items(), tails, strict=True):
                builder = file.builders[place]
                assert builder is not None
                covered = covered_file([(path, file.size)] * len(columns), builder, end)
                runs.append(CoveredRun(builder.finish(definition.bits), (covered,)))
            if sum(covered.run.keys for covered in runs) <= MERGED_AT_ONCE:
                runs = merged(runs)
            types = [key_type(column) for column in columns]
            data = encode_segment(definition.columns, types, runs)
            try:
                store.replace(segment_path(definition.name, effects), data)  # Whole, or not there.
            except (TxlogError, OSError) as error:
                warn_caller(
                    f"no segment of the index {definition.name} could be written for "
                    f"{len(self._files)} files, so look-ups read their keys: {error}"
                )

    def _warn_of_no_keys(self, definition: IndexDefinition) -> None:
        """Warn about columns that became double or nested after the index was defined."""
        fields = [self.schema.get(name) for name in definition.columns]
        odd = [one for one in fields if one is not None and not can_be_key(one)]
        if odd:
            warn_caller(
                f"the index {definition.name} is over the column {odd[0].name!r}, whose values "
                f"({type_name(odd[0].type)}) cannot be keys, so new files are not indexed. Drop "
                f"the index: indexes.drop({definition.name!r})"
            )


def covered_file(
    files: Sequence[tuple[str, int]], builder: RunBuilder, tail: Tail | None
) -> CoveredFile:
    """Return the covered files of a run: the path and size of the file of each key column."""
    paths, sizes = zip(*files, strict=True)
    return CoveredFile(paths, sizes, builder.num_rows, builder.nulls, tail)


def _tail_of(store: Store, written: tuple[str, _IndexedFile]) -> Tail | None:
    path, file = written
    if file.end:  # Then the file itself, which the store may not have yet, has no other tail.
        return _known_tail(file.end, file.size)
    return read_tail(store, path, file.size)


def list_segments(store: Store, index: str) -> list[tuple[str, int]]:
    """Return the paths and sizes of an index's segments, by name."""
    folder = f"{FOLDER}/{index}"
    try:
        return [
            (f"{folder}/{info.name}", info.size)
            for info in store.list_after(folder, "")
            if info.name.endswith(SUFFIX)
        ]
    except NotFoundError:
        return []
