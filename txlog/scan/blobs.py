"""Values of blob columns, which are read when they are asked for, in whole or in ranges.

Rules: spec/blobs.md.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping, Sequence
from io import BufferedReader
from typing import Any

import pyarrow as pa

from txlog.base.columns import flat
from txlog.base.errors import (
    DataFileError,
    InvalidInputError,
    InvalidTypeError,
    NotFoundError,
    StoreError,
    TxlogError,
    require_whole,
)
from txlog.fragments.packs import (
    HEAD_BYTES,
    PACKS_FOLDER,
    Head,
    is_pack,
    name_of,
    packs_of,
    parse_head,
)
from txlog.log.paths import decode_path
from txlog.reconcile.files import FileState
from txlog.schema.blobs import is_arrow_blob, is_bytes
from txlog.snapshot.live_files import fold_states
from txlog.snapshot.snapshot import Snapshot
from txlog.store.base import Store
from txlog.store.open import locate
from txlog.store.ranged import RangedFile

_BUFFER = 1 << 16  # Bytes that `Blob.open` reads at a time, if less are asked for.


class Packs:
    """Where the packs of a table are. It pickles.

    A pack is beside the table, unless the table is a clone: then the files of the version say it.
    """

    def __init__(self, store: Store, snapshot: Snapshot | None) -> None:
        self.store = store
        self._snapshot = snapshot
        self._elsewhere: dict[str, str] | None = None  # Decoded paths by names; None: not asked.

    def __reduce__(self) -> tuple[Any, ...]:
        return _unpickled, (self.store, self.settle()._elsewhere)

    def place_of(self, path: str) -> str:
        """Return the usual place of a pack, from the path in a struct."""
        name = name_of(path)
        if self._elsewhere and name in self._elsewhere:
            return self._elsewhere[name]
        return f"{PACKS_FOLDER}/{name}"

    def other_place_of(self, path: str) -> str | None:
        """Return the place of a pack that is not at its usual place; None if no file says it."""
        if self._elsewhere is None and self._snapshot is not None:
            self._elsewhere = _elsewhere_in(self.store, self._snapshot)
        place = (self._elsewhere or {}).get(name_of(path))
        return None if place == f"{PACKS_FOLDER}/{name_of(path)}" else place

    def settle(self) -> Packs:
        """Ask the version now where other packs are, before this is sent to other processes."""
        self.other_place_of("")
        return self

    def read(self, path: str, start: int, end: int, *, whole: str) -> bytes:
        """Return a range of bytes of a pack.

        Parameters
        ----------
        whole
            What is read, for errors.

        Raises
        ------
        DataFileError
            The pack does not exist, or it ends before.
        """
        place = self.place_of(path)
        try:
            return self._read(place, start, end, whole)
        except NotFoundError as error:
            other = self.other_place_of(path)
            if other is None:
                raise self._error(place, f"the pack with {whole} does not exist") from error
        try:
            return self._read(other, start, end, whole)
        except NotFoundError as error:
            raise self._error(other, f"the pack with {whole} does not exist") from error

    def _read(self, place: str, start: int, end: int, whole: str) -> bytes:
        home, name = locate(self.store, place)
        try:
            with home.open_input(name, size=end) as source:
                source.seek(start)
                parts = []
                left = end - start
                while left and (part := source.read(left)):
                    parts.append(part)
                    left -= len(part)
        except TxlogError:
            raise
        except (OSError, ValueError) as error:
            raise StoreError(
                operation="read", path=place, reason=f"the pack cannot be read: {error}"
            ) from error
        if left:
            raise self._error(place, f"the pack ends before {whole}")
        return b"".join(parts)

    def _error(self, place: str, reason: str) -> DataFileError:
        return DataFileError(
            path=place,
            table=self.store.root,
            version=None if self._snapshot is None else self._snapshot.version,
            reason=reason,
            remedy="Get the pack from a copy; a check of the table names all that are missing. If "
            "the version is older than the retention, a vacuum has deleted it",
        )

    def damaged(self, path: str, whole: str) -> DataFileError:
        """Return the error for a pack that has something else where a value should be."""
        return self._error(
            self.place_of(path), f"the pack is damaged, or the struct is wrong: there is no {whole}"
        )


def _unpickled(store: Store, elsewhere: dict[str, str] | None) -> Packs:
    packs = Packs(store, None)
    packs._elsewhere = elsewhere
    return packs


def _elsewhere_in(store: Store, snapshot: Snapshot) -> dict[str, str]:
    """Return the packs of a version that are not at their usual places: decoded paths by names.

    Removed files say it, too: rows of the change feed are in their packs. A live file decides.
    """

    def fold(states: Iterator[FileState]) -> dict[str, str]:
        live: dict[str, str] = {}
        gone: dict[str, str] = {}
        for state in states:
            live |= _unusual(state.live)
            gone |= _unusual(state.tombstones)
        return gone | live

    return fold_states(store, snapshot, fold, ("tags",))


def _unusual(rows: pa.Table) -> dict[str, str]:
    return {
        name_of(place): decode_path(place)
        for place in packs_of(rows).to_pylist()
        if place != f"{PACKS_FOLDER}/{name_of(place)}"
    }


class Blob:
    """One value of a blob column. Its bytes are read when they are asked for.

    It pickles without its bytes, unless the row itself has them.

    Attributes
    ----------
    size
        The number of bytes.
    """

    __slots__ = ("_data", "_head", "_offset", "_packs", "_path", "size")

    def __init__(
        self,
        packs: Packs,
        size: int,
        *,
        data: bytes | None = None,
        path: str | None = None,
        offset: int = 0,
    ) -> None:
        self.size = size
        self._packs = packs
        self._data = data
        self._path = path or ""
        self._offset = offset
        self._head: Head | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        return _blob, (self._packs, self.size, self._data, self._path, self._offset)

    def __repr__(self) -> str:
        where = "in its row" if self._data is not None else f"{self._path} from {self._offset}"
        return f"Blob({self.size} bytes, {where})"

    def read(self) -> bytes:
        """Return all bytes.

        Raises
        ------
        DataFileError
            The pack is missing, too short or damaged, or the struct does not fit it.
        StoreError
            The store failed.
        """
        if self._data is not None:
            return self._data
        start = self._start()
        what = self._what(0, self.size)
        found = self._packs.read(self._path, start, self._offset + self.size, whole=what)
        head, value = parse_head(found[:HEAD_BYTES]), found[HEAD_BYTES:]
        if head != Head(zlib.crc32(value), self.size):
            raise self._packs.damaged(self._path, what)
        return value

    def read_range(self, offset: int, length: int) -> bytes:
        """Return some bytes; fewer than `length` if the value ends before.

        Parameters
        ----------
        offset, length
            In bytes, from the start of the value.

        Raises
        ------
        InvalidTypeError, InvalidInputError
            An argument is no whole number from 0.
        DataFileError, StoreError
            As for `read`. The bytes of a range are not compared with the checksum of the value.
        """
        offset, length = require_whole("offset", offset), require_whole("length", length)
        end = min(self.size, offset + length)
        if offset >= end:
            return b""
        return self._range(offset, end)

    def open(self) -> BufferedReader:
        """Return the value as a binary file that can seek; it sends requests for what is read.

        Errors at reading are those of `read_range`.
        """
        return BufferedReader(RangedFile(self.size, self._range), _BUFFER)

    def _range(self, start: int, end: int) -> bytes:
        if self._data is not None:
            return self._data[start:end]
        what, first = self._what(start, end), self._start()
        if self._head is None:
            if start == 0:
                data = self._packs.read(self._path, first, self._offset + end, whole=what)
                self._require_head(data[:HEAD_BYTES], what)
                return data[HEAD_BYTES:]
            self._require_head(self._packs.read(self._path, first, self._offset, whole=what), what)
        return self._packs.read(self._path, self._offset + start, self._offset + end, whole=what)

    def _require_head(self, data: bytes, what: str) -> None:
        head = parse_head(data)
        if head is None or head.size != self.size:
            raise self._packs.damaged(self._path, what)
        self._head = head

    def _start(self) -> int:
        """Return where the bytes before the value begin."""
        if self._offset < HEAD_BYTES or self.size < 0:
            raise self._packs.damaged(self._path, self._what(0, self.size))
        return self._offset - HEAD_BYTES

    def _what(self, start: int, end: int) -> str:
        return f"bytes {start} to {end} of the value of {self.size} bytes at {self._offset}"


def _blob(packs: Packs, size: int, data: bytes | None, path: str, offset: int) -> Blob:
    return Blob(packs, size, data=data, path=path, offset=offset)


def blobs_of(packs: Packs, values: Any) -> list[Blob | None]:
    """Return values of a blob column, as they were read, as objects; None for null.

    Parameters
    ----------
    values
        An Arrow array or chunked array of structs or bytes, a column of pandas or Polars, a list of
        dicts, bytes and None, or one dict.

    Raises
    ------
    InvalidTypeError
        They are something else.
    InvalidInputError
        A struct is none of a blob column.
    """
    if isinstance(values, Mapping):
        values = [values]
    elif callable(listed := getattr(values, "to_list", None)) and hasattr(values, "dtype"):
        values = listed()  # A column of pandas or Polars.
    if isinstance(values, pa.Array | pa.ChunkedArray):
        array = flat(values)
        if not is_bytes(array.type):
            array = _as_structs(array)
        rows: Sequence[Any] = array.to_pylist()
    elif isinstance(values, list | tuple):
        rows = values
    else:
        raise InvalidTypeError(
            argument="values",
            reason=f"a column or a list was expected, not {type(values).__name__}",
            remedy="Pass the blob column of a result",
        )
    return [_one(packs, row) for row in rows]


def _as_structs(array: pa.Array) -> pa.Array:
    kind = array.type
    if pa.types.is_null(kind):
        return array
    if not is_arrow_blob(kind):
        raise InvalidInputError(
            argument="values",
            reason=f"the column is {kind}, and not a struct of path, offset, size and data",
            remedy="Pass a blob column",
        )
    return array


def _whole(number: Any) -> int | None:
    """Return a whole number from 0; None if it is none. With nulls, pandas makes floats of them."""
    if isinstance(number, bool) or not isinstance(number, int | float) or not 0 <= number < 2**63:
        return None
    return int(number) if number == int(number) else None


def _one(packs: Packs, row: Any) -> Blob | None:
    if row is None:
        return None
    if isinstance(row, bytes | bytearray | memoryview):
        return Blob(packs, len(row), data=bytes(row))
    if isinstance(row, Mapping):
        data, path, offset, size = (row.get(name) for name in ("data", "path", "offset", "size"))
        if isinstance(data, bytes) and path is None:
            return Blob(packs, len(data), data=data)
        offset, size = _whole(offset), _whole(size)
        if data is None and isinstance(path, str) and None not in (offset, size):
            if not is_pack(f"{PACKS_FOLDER}/{name_of(path)}"):
                raise InvalidInputError(
                    argument="values", reason=f"{path!r} is not the path of a pack"
                )
            return Blob(packs, int(size or 0), path=path, offset=int(offset or 0))
    raise InvalidInputError(
        argument="values",
        reason="a value is not a struct of a blob column: it has neither bytes in data nor a path "
        "with an offset and a size",
        remedy="Pass a blob column as it was read",
    )
