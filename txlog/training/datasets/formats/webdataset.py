"""WebDataset: tars in which the members of one sample have one key and different endings.

`a/7.jpg` and `a/7.cls` are the columns `jpg` and `cls` of the sample `a/7`.
Rules: spec/datasets.md, DST-55.
"""

from __future__ import annotations

import gzip
import io
import json
import re
import sys
import tarfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import pyarrow as pa

from txlog.base.errors import SchemaMismatchError, TxlogError, os_errors
from txlog.extend import is_litter
from txlog.training.datasets.formats.base import KEY, Chunks, Output, batched
from txlog.training.datasets.formats.samples import class_name, classes_of, has_files
from txlog.training.datasets.limits import Limits, fault_of_path
from txlog.training.datasets.sources import SourceFile, refused

_ENDINGS = (".tar", ".tar.gz", ".tgz")
_PACKED = (".gz", ".tgz")
_BLOCK = 512
_HEADER_BYTES = 1 << 20  # The largest header: names and attributes of one member.
_VALUE_BYTES = (1 << 31) - 1
_SKIPPED_BYTES = 1 << 20
_DAMAGED = (tarfile.TarError, EOFError, OSError, ValueError, OverflowError, zlib.error)
_WHOLE = re.compile(rb"\s*([+-]?[0-9]{1,19})\s*")
# What the endings mean to the package `webdataset`; but an `id` may be a text, such as 007.
_NUMBERS = frozenset({"cls", "cls2", "class", "count", "index", "inx"})
_TEXTS = frozenset({"txt", "text", "transcript", "json", "jsn", "id"})


class WebDataset:
    """Tars, also packed by gzip. The columns are `__key__` and one for each ending."""

    name = "webdataset"

    def is_of(self, name: str) -> bool:
        """Return whether a file is a tar, by its name."""
        return name.lower().endswith(_ENDINGS)

    def schema(
        self, files: Sequence[SourceFile], columns: pa.Schema | None, limits: Limits
    ) -> pa.Schema:
        """Return the columns in the order of their first appearance; it reads the headers alone."""
        found: dict[str, None] = {}
        total = 0
        for file in files:
            with os_errors("open", file.uri):
                raw = file.opened()
            with raw, _damage(file):
                for member in _members(_unpacked(raw, file, limits), file, limits):
                    total += member.size
                    if total > limits.total_bytes:
                        raise refused(
                            f"the members have more than {limits.total_bytes} bytes, which are "
                            "allowed"
                        )
                    found[_split(member.name, file)[1]] = None
        known = {} if columns is None else {one.name: one.type for one in columns}
        fields = [pa.field(name, _type_of(name, known.get(name))) for name in found]
        return pa.schema([pa.field(KEY, pa.string(), nullable=False), *fields])

    def batches(
        self, files: Sequence[SourceFile], schema: pa.Schema, limits: Limits
    ) -> Iterator[pa.RecordBatch]:
        """Yield the samples in the order of the tars and of their members."""
        types = {one.name: one.type for one in schema}
        yield from batched((row for file in files for row in _samples(file, types, limits)), schema)

    def write(self, rows: pa.RecordBatchReader, out: Output) -> None:
        """Write the tars `00000.tar` and so on.

        If there is no column `__key__`, the key is the number of the row. `content` gets the ending
        of the row's `filename`; columns of numbers and texts that are no endings go into `json`.
        """
        write = _Shards(rows.schema, out)
        with write:
            for batch in rows:
                write.add(batch)


# Read ------------------------------------------------------------------------------------------


def _samples(
    file: SourceFile, types: Mapping[str, pa.DataType], limits: Limits
) -> Iterator[tuple[dict[str, Any], int]]:
    """Yield the samples of a tar as rows, each with its size in bytes."""
    row: dict[str, Any] = {}
    size = 0
    seen: set[str] = set()
    chunks = io.BufferedReader(Chunks(file))
    with _damage(file):
        stream = _unpacked(chunks, file, limits)
        for member in _members(stream, file, limits):
            key, ending = _split(member.name, file)
            if row.get(KEY) != key:
                if row:
                    yield row, size
                if key in seen:
                    raise refused(
                        f"{file.name} has the sample {key[:200]!r} twice: its members are apart",
                        "Write the members of a sample one after another: tar --sort=name",
                    )
                seen.add(key)
                row, size = {KEY: key}, 0
            if ending in row:
                raise refused(f"{file.name} has the member {member.name[:200]!r} twice")
            if ending not in types:
                raise refused(f"{file.name} was changed while it was read")
            content = stream.content(member)
            row[ending] = _value(content, types[ending], f"{member.name} in {file.name}", ending)
            size += len(content)
        stream.require_end(file)
        while chunks.read(_SKIPPED_BYTES):  # So that the digest is that of all bytes.
            pass
    if row:
        yield row, size


def _split(name: str, file: SourceFile) -> tuple[str, str]:
    """Return the key and the ending of a member."""
    folder, slash, last = name.rpartition("/")
    stem, _, ending = last.partition(".")
    if not stem or not ending:
        raise refused(
            f"the member {name[:200]!r} of {file.name} has no "
            f"{'ending' if stem else 'name before its ending'}, so it belongs to no sample",
            "Name the members SAMPLE.ENDING, such as 7.jpg and 7.cls",
        )
    return f"{folder}{slash}{stem}", ending.lower()


def _type_of(ending: str, known: pa.DataType | None) -> pa.DataType:
    usual = ending.rpartition(".")[2]
    if known in (pa.string(), pa.int64(), pa.binary()):
        return known
    if usual in _NUMBERS:
        return pa.int64()
    return pa.string() if usual in _TEXTS else pa.binary()


def _value(content: bytes, kind: pa.DataType, where: str, ending: str) -> Any:
    """Return the value of a member, or raise if it is not of the column's type."""
    if kind == pa.binary():
        return content
    try:
        if kind == pa.string():
            return content.decode()
        found = _WHOLE.fullmatch(content)
        if found is None or not -(1 << 63) <= (number := int(found[1])) < 1 << 63:
            raise ValueError("it is no whole number of 64 bits")
    except ValueError as error:
        raise SchemaMismatchError(
            field=ending, reason=f"{where} cannot be read as {kind}: {error}"
        ) from error
    return number


class _Stream:
    """A tar as a file that moves forward only, and reads no more at a time than is allowed."""

    def __init__(self, raw: Any, most_bytes: int, seeks: bool) -> None:
        self.last = b""  # What was read last: at the end of a tar, a block of zeros.
        self._raw = raw
        self._most_bytes = most_bytes  # The largest position.
        self._most_read = _HEADER_BYTES
        self._at = 0
        self._seeks = seeks

    def read(self, size: int) -> bytes:
        if size > self._most_read:
            raise tarfile.ReadError(f"a header has {size} bytes, {_HEADER_BYTES} are allowed")
        parts, left = [], size
        while left and (part := self._raw.read(left)):
            parts.append(part)
            left -= len(part)
        self._moved(size - left)
        self.last = b"".join(parts)
        return self.last

    def tell(self) -> int:
        return self._at

    def seek(self, place: int) -> int:
        if place < self._at:
            raise tarfile.ReadError("the members overlap")
        if self._seeks:
            self._raw.seek(place)
            self._moved(place - self._at)
        while self._at < place and self.read(min(place - self._at, _HEADER_BYTES)):
            pass
        return self._at

    def content(self, member: tarfile.TarInfo) -> bytes:
        """Return the bytes of a member, before the next one is read."""
        self.seek(member.offset_data)
        self._most_read = max(member.size, _HEADER_BYTES)
        try:
            found = self.read(member.size) if member.size else b""
        finally:
            self._most_read = _HEADER_BYTES
        if len(found) < member.size:
            raise tarfile.ReadError(f"it ends within {member.name[:200]!r}")
        return found

    def require_end(self, file: SourceFile) -> None:
        """Read the rest; raise if it is not empty: a second tar, or bytes that are no tar."""
        while rest := self._raw.read(_SKIPPED_BYTES):
            self._moved(len(rest))
            if rest.count(0) < len(rest):
                raise refused(
                    f"{file.name} has more data after the end of its tar",
                    "If it is several tars one after another, make files of them",
                )

    def _moved(self, count: int) -> None:
        self._at += count
        if self._at > self._most_bytes:
            raise refused(f"a packed tar has more than {self._most_bytes} bytes when unpacked")


def _unpacked(raw: Any, file: SourceFile, limits: Limits) -> _Stream:
    """Return a tar as a stream of its unpacked bytes."""
    if not file.name.lower().endswith(_PACKED):
        return _Stream(raw, sys.maxsize, not isinstance(raw, io.BufferedReader))
    most = min(limits.total_bytes, max(file.size * limits.zip_ratio, 1 << 20))
    return _Stream(gzip.GzipFile(fileobj=raw), most, seeks=False)


def _members(stream: _Stream, file: SourceFile, limits: Limits) -> Iterator[tarfile.TarInfo]:
    """Yield the files of a tar, without litter, in their order."""
    # The caller closes the stream. It has only the methods that the module calls.
    archive = tarfile.open(fileobj=stream, mode="r:")  # type: ignore[call-overload]  # noqa: SIM115
    count = 0
    while (member := archive.next()) is not None:
        archive.members = []  # It would keep all headers.
        member.name = member.name.removeprefix("./")
        if member.isdir() or is_litter(member.name):
            continue
        count += 1
        if wrong := fault_of_path(member.name, limits):
            raise refused(f"the member {member.name[:200]!r} of {file.name} {wrong}")
        if not member.isreg() or member.issparse():
            raise refused(
                f"the member {member.name[:200]!r} of {file.name} is a link or a special file"
            )
        if count > limits.files:
            raise refused(f"{file.name} has more than {limits.files} members")
        if member.size > min(limits.file_bytes, _VALUE_BYTES):
            raise refused(
                f"the member {member.name[:200]!r} of {file.name} has {member.size} bytes, "
                f"{min(limits.file_bytes, _VALUE_BYTES)} are allowed"
            )
        yield member
    # For `tarfile`, a damaged header is the end of the tar.
    if len(stream.last) < _BLOCK or stream.last.count(0) < len(stream.last):
        raise tarfile.ReadError(f"it is cut off or damaged at byte {stream.tell()}")


@contextmanager
def _damage(file: SourceFile) -> Iterator[None]:
    """Raise errors of txlog for a tar that is damaged."""
    try:
        yield
    except TxlogError:
        raise
    except _DAMAGED as error:
        raise refused(
            f"{file.name} is not a readable tar: {error}", "Copy it again from its origin"
        ) from error


# Write -----------------------------------------------------------------------------------------


class _Shards:
    """Tars of a bounded size."""

    def __init__(self, schema: pa.Schema, out: Output) -> None:
        self._out = out
        self._members = _members_of(schema)
        self._has_key = KEY in schema.names
        self._stack = ExitStack()
        self._archive: tarfile.TarFile | None = None
        self._shards = self._rows = self._bytes = self._number = 0

    def __enter__(self) -> None:
        self._begin()

    def __exit__(self, *error: Any) -> None:
        self._stack.__exit__(*error)

    def add(self, batch: pa.RecordBatch) -> None:
        """Write more rows."""
        for index in range(batch.num_rows):
            row = {name: batch[name][index].as_py() for name in batch.schema.names}
            if self._rows >= self._out.shard_rows or self._bytes >= self._out.shard_bytes:
                self._stack.close()
                self._begin()
            self._write(row)
            self._rows += 1
            self._number += 1

    def _begin(self) -> None:
        sink = self._stack.enter_context(self._out.open(f"{self._shards:05d}.tar"))
        # The stack closes it.
        self._archive = self._stack.enter_context(tarfile.open(fileobj=sink, mode="w|"))  # noqa: SIM115
        self._shards += 1
        self._rows = self._bytes = 0

    def _write(self, row: dict[str, Any]) -> None:
        assert self._archive is not None
        key = f"{self._number:08d}"
        if self._has_key:
            key = _required_key(row.pop(KEY), self._number)
        for ending, content in self._members(row, f"row {self._number + 1}").items():
            info = tarfile.TarInfo(f"{key}.{ending}")
            info.size = len(content)
            self._archive.addfile(info, io.BytesIO(content))
            self._bytes += len(content)


def _required_key(key: object, number: int) -> str:
    _, _, last = str(key or "").rpartition("/")
    if not last or "." in last:
        raise SchemaMismatchError(
            field=KEY,
            reason=f"row {number + 1} has the key {key!r}: a name without a dot was expected",
        )
    return str(key)


def _members_of(schema: pa.Schema) -> Any:
    """Return the function that makes the members of a row: endings with their bytes."""
    plain, listed = {}, []
    classes = {name: classes_of(schema, name) for name in ("label", "labels")}
    is_file = has_files(schema)
    for field in schema:
        if field.name == KEY or (is_file and field.name == "content"):
            continue
        if "/" in field.name:
            raise SchemaMismatchError(
                field=field.name, reason=f"{field.name!r} cannot be the ending of a member"
            )
        kind = _type_of(field.name, None)
        is_ending = kind == field.type and (kind != pa.binary() or field.name == field.name.lower())
        if field.name == "utterance":
            plain["utterance"] = "txt"
        elif is_ending:
            plain[field.name] = field.name
        else:
            listed.append(field.name)
    if "json" in plain and listed:
        raise SchemaMismatchError(
            field=listed[0],
            reason=f"the columns {', '.join(listed)} go into json, which is a column, too",
            remedy="Select other columns",
        )

    def made(row: Mapping[str, Any], where: str) -> dict[str, bytes]:
        found: dict[str, bytes] = {}

        def add(ending: str, content: bytes) -> None:
            if ending in found:
                raise SchemaMismatchError(
                    field=ending, reason=f"{where} has two values for the ending {ending!r}"
                )
            found[ending] = content

        if is_file and row["content"] is not None:
            name = str(row.get("filename") or "").rpartition("/")[2]
            add(name.rpartition(".")[2].lower() if "." in name else "bin", row["content"])
        for name, ending in plain.items():
            if row[name] is not None:
                value = row[name]
                add(ending, value if isinstance(value, bytes) else str(value).encode())
        rest = {name: row[name] for name in listed if row[name] is not None}
        if (names := classes["label"]) is not None and "label" in rest:
            add("cls", str(rest["label"]).encode())
            rest["label"] = class_name(names, rest["label"])
        if (names := classes["labels"]) is not None and "labels" in rest:
            rest["labels"] = [class_name(names, number) for number in rest["labels"]]
        if rest:
            add("json", _json(rest, where))
        if not found:
            raise SchemaMismatchError(reason=f"{where} has no value, so it would be no sample")
        return found

    return made


def _json(values: Mapping[str, Any], where: str) -> bytes:
    try:
        return json.dumps(values, ensure_ascii=False, allow_nan=False).encode()
    except (TypeError, ValueError) as error:
        raise SchemaMismatchError(
            field=next(iter(values)), reason=f"{where} cannot be written as JSON: {error}"
        ) from error
