"""Ogg (RFC 3533) with Vorbis, Opus (RFC 7845), FLAC or Speex.

The duration is the granule position of the last page of the sound. So a file that is cut off
within a page has no last page, and is refused.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

from txlog.training.datasets.containers.flac import INFO_BYTES, of_stream_info
from txlog.training.datasets.containers.ranges import Header, Ranges

MAGIC = b"OggS"
_HEAD_BYTES = 27
_MOST_PAGE = _HEAD_BYTES + 255 + 255 * 255
_MOST_STREAMS = 64
_FIRST = 2  # The flag of the first page of a stream.
_NONE = -1  # The granule position of a page on which no packet ends.
_OPUS_RATE = 48_000


@dataclass(frozen=True)
class _Page:
    flags: int
    granule: int
    serial: int
    body: bytes
    end: int


def read_ogg(file: Ranges) -> Header:
    """Read the first and last pages."""
    at, firsts = 0, []
    for _ in range(_MOST_STREAMS):
        page = _page(file, at)
        if page is None:
            raise file.unfit("is damaged: a page of Ogg has a wrong checksum or no header")
        if not page.flags & _FIRST:
            break
        firsts.append(page)
        at = page.end
        if at == file.size:
            raise file.cut_off()
    else:
        raise file.unfit(f"has more than {_MOST_STREAMS} streams")
    if not firsts:
        raise file.unfit("is damaged: its first page does not begin a stream")
    for page in firsts:
        if (found := _sound(file, page.body)) is not None:
            header, before = found
            break
    else:
        return Header("OGG")
    last = _last(file, page.serial, {one.serial for one in firsts})
    duration = None
    if last is not None and header.sample_rate:
        duration = file.duration(max(0, last - before), header.sample_rate)
    return Header(
        "OGG",
        has_sound=True,
        duration_ms=duration,
        sample_rate=header.sample_rate,
        channels=header.channels,
    )


def _sound(file: Ranges, packet: bytes) -> tuple[Header, int] | None:
    """Return rate and channels of a sound, and its samples before the start; None if it is none."""
    before = 0
    if packet[:7] == b"\x01vorbis" and len(packet) >= 30:
        channels, rate = struct.unpack_from("<BI", packet, 11)
    elif packet[:8] == b"OpusHead" and len(packet) >= 19:
        channels, before = struct.unpack_from("<BH", packet, 9)
        rate = _OPUS_RATE
    elif packet[:8] == b"Speex   " and len(packet) >= 52:
        rate, _, _, channels = struct.unpack_from("<IIII", packet, 36)
    elif packet[:5] == b"\x7fFLAC" and packet[9:13] == b"fLaC" and len(packet) >= 17 + INFO_BYTES:
        return of_stream_info(file, packet[17 : 17 + INFO_BYTES], "OGG"), 0
    else:
        return None
    rate = file.number("samples in a second", rate)
    return Header("OGG", sample_rate=rate, channels=file.number("channels", channels)), before


def _last(file: Ranges, serial: int, known: set[int]) -> int | None:
    """Return the last granule position of a stream; None if another stream follows it."""
    end = file.size
    while (page := _page_before(file, end)) is not None:
        start, found = page
        if found.serial == serial and found.granule != _NONE:
            return found.granule
        if found.serial not in known:
            return None
        end = start
    if end == file.size:
        raise file.unfit("is cut off: it does not end with a whole page of Ogg")
    raise file.unfit("is damaged: its sound has no page with a position")


def _page_before(file: Ranges, end: int) -> tuple[int, _Page] | None:
    """Return the page that ends at a place, with its start."""
    start = max(0, end - _MOST_PAGE)
    window = file.read(start, end - start)
    for at in _places(window):
        if _claimed(window[at : at + _HEAD_BYTES + 255]) == len(window) - at:
            page = _page(file, start + at)
            if page is not None:
                return start + at, page
    return None


def _places(window: bytes) -> Iterator[int]:
    at = window.rfind(MAGIC)
    while at >= 0:
        yield at
        at = window.rfind(MAGIC, 0, at)


def _claimed(start: bytes) -> int | None:
    """Return the size of a page by its header."""
    if len(start) < _HEAD_BYTES or len(start) < _HEAD_BYTES + start[26]:
        return None
    return _HEAD_BYTES + start[26] + sum(start[_HEAD_BYTES : _HEAD_BYTES + start[26]])


def _page(file: Ranges, at: int) -> _Page | None:
    """Return the page at a place; None if there is none, or its checksum is wrong."""
    head = file.read(at, _HEAD_BYTES)
    magic, version, flags, granule, serial, _, sum_, count = struct.unpack("<4sBBqIIIB", head)
    if magic != MAGIC or version != 0:
        return None
    table = file.read(at + _HEAD_BYTES, count)
    body = file.read(at + _HEAD_BYTES + count, sum(table))
    if _checksum(head[:22] + bytes(4) + head[26:] + table + body) != sum_:
        return None
    return _Page(flags, granule, serial, body, at + _HEAD_BYTES + count + len(body))


def _table() -> list[int]:
    found = []
    for byte in range(256):
        value = byte << 24
        for _ in range(8):
            value = (value << 1 ^ (0x04C11DB7 if value & 0x80000000 else 0)) & 0xFFFFFFFF
        found.append(value)
    return found


_TABLE = _table()


def _checksum(content: bytes) -> int:
    """Return the CRC-32 of Ogg, whose bits are in another order than those of `zlib`."""
    value = 0
    for byte in content:
        value = (value << 8 & 0xFFFFFFFF) ^ _TABLE[value >> 24 ^ byte]
    return value
