"""Zip files: their content is checked before a byte is unpacked."""

from __future__ import annotations

import stat
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import IO, Any
from zipfile import ZIP_DEFLATED, ZIP_STORED, BadZipFile, ZipFile, ZipInfo

from txlog.base.errors import InvalidInputError, TxlogError
from txlog.base.thresholds import Threshold
from txlog.training.datasets.limits import Limits, fault_of_path
from txlog.training.datasets.sources import SourceFile, refused

_END, _LOCATOR, _ZIP64 = b"PK\x05\x06", b"PK\x06\x07", b"PK\x06\x06"
_LOCATOR_BYTES = 20
_END_BYTES, _COMMENT_BYTES = 22, 65_535
_ENTRY_BYTES = 320  # The approximate size of a member's entry in the directory at the end.
_SMALL_BYTES = 1 << 20  # Members up to this size may expand without limit.
_ENCRYPTED = 1
# What `zipfile` raises for damaged files: it trusts offsets and lengths that it reads.
_DAMAGED = (BadZipFile, EOFError, OSError, RuntimeError, ValueError, OverflowError, struct.error)
_CHUNK_BYTES: Threshold = 4 << 20
_EPOCH = (1980, 1, 1, 0, 0, 0)


@contextmanager
def opened_zip(file: SourceFile, limits: Limits) -> Iterator[tuple[ZipFile, list[ZipInfo]]]:
    """Yield a zip, and its members except folders, ascending by name.

    Raises
    ------
    InvalidInputError
        The file is not a zip, or is damaged or encrypted. Or a member leads out of the folder, is a
        link, occurs twice, or expands beyond the limits.
    """
    with file.seekable() as copy:
        try:
            _require_directory(copy, file, limits)
            archive = ZipFile(copy)
        except TxlogError:
            raise
        except _DAMAGED as error:
            raise refused(f"{file.name} is not a readable zip: {error}") from error
        with archive:
            yield archive, _members(archive, file, limits)


def member_content(archive: ZipFile, member: ZipInfo, file: SourceFile) -> bytes:
    """Return the content of a member; raise if the directory has another length or checksum."""
    return b"".join(member_chunks(archive, member, file))


def member_chunks(archive: ZipFile, member: ZipInfo, file: SourceFile) -> Iterator[bytes]:
    """Yield the content of a member in chunks; raise as `member_content`, at the latest at its end.

    Another member may be read between two chunks.
    """
    import zlib

    left = member.file_size
    try:
        with archive.open(member) as opened:
            while chunk := opened.read(min(_CHUNK_BYTES, left + 1)):
                left -= len(chunk)
                if left < 0:
                    break
                yield chunk
    except (*_DAMAGED, zlib.error) as error:
        raise _damaged(file, member, str(error)) from error
    if left:
        had = f"{member.file_size - left} bytes" if left > 0 else "more bytes"
        raise _damaged(file, member, f"it has {had}, but {member.file_size} in the directory")


def _damaged(file: SourceFile, member: ZipInfo, wrong: str) -> InvalidInputError:
    return refused(f"{member.filename!r} in {file.name} is damaged: {wrong}")


def _require_directory(copy: IO[Any], file: SourceFile, limits: Limits) -> None:
    """Refuse a zip whose directory is too large: reading it makes an object for each member."""
    size = copy.seek(0, 2)
    copy.seek(max(0, size - _END_BYTES - _COMMENT_BYTES))
    tail = copy.read()
    at = tail.rfind(_END)
    copy.seek(0)
    if at < 0 or len(tail) - at < _END_BYTES:
        raise refused(f"{file.name} is not a zip")
    (directory,) = struct.unpack_from("<I", tail, at + 12)
    if directory == 0xFFFFFFFF:
        directory = _zip64_directory(copy, tail[max(0, at - _LOCATOR_BYTES) : at], size)
    if directory > limits.files * _ENTRY_BYTES:
        raise refused(f"{file.name} has too many members: its directory has {directory} bytes")


def _zip64_directory(copy: IO[Any], locator: bytes, size: int) -> int:
    """Return the size of the directory by the Zip64 record; without a record, the file's size."""
    if len(locator) < _LOCATOR_BYTES or not locator.startswith(_LOCATOR):
        return size
    (start,) = struct.unpack_from("<Q", locator, 8)
    copy.seek(min(start, size))
    record = copy.read(48)
    copy.seek(0)
    if len(record) < 48 or not record.startswith(_ZIP64):
        return size
    directory: int = struct.unpack_from("<Q", record, 40)[0]
    return directory


def _members(archive: ZipFile, file: SourceFile, limits: Limits) -> list[ZipInfo]:
    members = [member for member in archive.infolist() if not member.is_dir()]
    for member in archive.infolist():
        if wrong := _fault_of_member(member, limits):
            shown = member.orig_filename[:200]
            raise refused(f"the member {shown!r} of {file.name} {wrong}")
    if len(members) > limits.files:
        raise refused(f"{file.name} has {len(members)} members, {limits.files} are allowed")
    members.sort(key=lambda member: member.filename)
    for one, other in pairwise(members):
        if one.filename == other.filename:
            raise refused(f"{file.name} has the member {one.filename[:200]!r} twice")
    if sum(member.compress_size for member in members) > file.size:
        raise refused(f"the members of {file.name} overlap")
    total = sum(member.file_size for member in members)
    if total > limits.total_bytes:
        raise refused(f"{file.name} unpacks to {total} bytes, {limits.total_bytes} are allowed")
    return members


def _fault_of_member(member: ZipInfo, limits: Limits) -> str | None:
    if "\0" in member.orig_filename:
        return "has a NUL character in its name"
    if wrong := fault_of_path(member.filename.rstrip("/"), limits):
        return wrong
    if member.flag_bits & _ENCRYPTED:
        return "is encrypted"
    kind = member.external_attr >> 16
    if stat.S_IFMT(kind) not in (0, stat.S_IFREG, stat.S_IFDIR):
        return "is a link or a special file"
    if member.compress_type not in (ZIP_STORED, ZIP_DEFLATED):
        return f"has the compression method {member.compress_type}, not stored or deflated"
    is_bomb = member.file_size > member.compress_size * limits.zip_ratio
    if member.file_size > _SMALL_BYTES and is_bomb:
        return (
            f"expands from {member.compress_size} to {member.file_size} bytes; at most "
            f"{limits.zip_ratio} times the compressed size is allowed"
        )
    return None


def write_zip(sink: IO[bytes], members: Iterator[tuple[str, bytes | Iterator[bytes]]]) -> None:
    """Write members to a zip, stored, so that the same members give the same bytes.

    A content is bytes, or chunks if it may be too large for the memory.
    """
    with ZipFile(sink, "w", ZIP_STORED) as archive:
        for name, content in members:
            info = ZipInfo(name, _EPOCH)
            info.external_attr = 0o644 << 16
            info.create_system = 3  # Unix, so that each platform writes the same bytes.
            if isinstance(content, bytes):
                archive.writestr(info, content)
                continue
            with archive.open(info, "w", force_zip64=True) as member:
                for chunk in content:
                    member.write(chunk)
