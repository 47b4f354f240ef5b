"""WebM and Matroska: elements of EBML (RFC 8794, RFC 9559)."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, replace

from txlog.training.datasets.containers.ranges import Header, Ranges

MAGIC = b"\x1a\x45\xdf\xa3"
_SEGMENT, _INFO, _TRACKS, _CLUSTER = 0x18538067, 0x1549A966, 0x1654AE6B, 0x1F43B675
_DOC_TYPE, _SCALE, _DURATION = 0x4282, 0x2AD7B1, 0x4489
_TRACK, _KIND, _VIDEO, _AUDIO = 0xAE, 0x83, 0xE0, 0xE1
_WIDTH, _HEIGHT, _RATE, _OUTPUT_RATE, _CHANNELS = 0xB0, 0xBA, 0xB5, 0x78B5, 0x9F
_FORMATS = {b"webm": "WEBM", b"matroska": "MATROSKA"}
_PICTURES, _SOUNDS = 1, 2
_DEFAULT_SCALE, _DEFAULT_RATE = 1_000_000, 8000
_MOST_TRACKS = 1000
_HEAD_BYTES = 4 + 8  # The most of an id and a size.


@dataclass(frozen=True)
class _Element:
    id: int
    start: int  # Of the content.
    end: int
    is_open: bool  # Whether its writer did not know its size.


def read_matroska(file: Ranges) -> Header:
    """Read the first Info and Tracks."""
    top = _elements(file, 0, file.size)
    head = next(top)
    kind = _one(file, head, _DOC_TYPE)
    name = b"matroska" if kind is None else _content(file, kind, 32).rstrip(b"\0")
    if name not in _FORMATS:
        raise file.unfit(f"has the document type {name!r}, not webm or matroska")
    segment = next((one for one in top if one.id == _SEGMENT), None)
    if segment is None:
        raise file.unfit("is cut off: it has no segment")
    info = tracks = None
    for one in _elements(file, segment.start, segment.end):
        if one.id == _INFO:
            info = info or one
        elif one.id == _TRACKS:
            tracks = tracks or one
        if (info and tracks) or one.is_open:
            break
    if info is None or tracks is None:
        raise file.unfit("is damaged or cut off: it has no headers Info and Tracks")
    header, count = Header(_FORMATS[name]), 0
    for track in _elements(file, tracks.start, tracks.end):
        if track.id == _TRACK:
            count += 1
            if count > _MOST_TRACKS:
                raise file.unfit(f"has more than {_MOST_TRACKS} tracks")
            header = _with_track(file, header, track)
    return replace(header, duration_ms=_duration(file, info))


def _elements(file: Ranges, begin: int, end: int) -> Iterator[_Element]:
    """Yield the elements between two places."""
    at = begin
    while at < end:
        start = file.most(at, _HEAD_BYTES)
        count = 9 - start[0].bit_length()
        if count > 4:
            raise file.unfit("is damaged: an element of EBML has no id")
        id_, rest = int.from_bytes(start[:count], "big"), start[count:]
        width = 9 - rest[0].bit_length() if rest else 1
        if width > 8:
            raise file.unfit("is damaged: an element of EBML has no size")
        if len(rest) < width:
            raise file.cut_off()
        mask = (1 << 7 * width) - 1
        size = int.from_bytes(rest[:width], "big") & mask
        at += count + width
        is_open = size == mask
        if is_open:
            if id_ not in (_SEGMENT, _CLUSTER):
                raise file.unfit("is damaged: an element of EBML has no end")
            size = end - at
        if at + size > end:
            if end == file.size:
                raise file.cut_off()
            raise file.unfit("is damaged: an element of EBML is larger than the one around it")
        yield _Element(id_, at, at + size, is_open)
        at += size


def _one(file: Ranges, parent: _Element, id_: int) -> _Element | None:
    found = _elements(file, parent.start, parent.end)
    return next((one for one in found if one.id == id_), None)


def _content(file: Ranges, element: _Element, most: int) -> bytes:
    size = element.end - element.start
    if size > most:
        raise file.unfit(f"is damaged: an element of EBML has {size} bytes, not at most {most}")
    return file.read(element.start, size)


def _number(file: Ranges, parent: _Element | None, id_: int, default: int) -> int:
    element = None if parent is None else _one(file, parent, id_)
    return default if element is None else int.from_bytes(_content(file, element, 8), "big")


def _real(file: Ranges, parent: _Element | None, id_: int) -> float | None:
    element = None if parent is None else _one(file, parent, id_)
    if element is None:
        return None
    content = _content(file, element, 8)
    if len(content) not in (0, 4, 8):
        raise file.unfit(f"is damaged: a number of EBML has {len(content)} bytes")
    found: float = struct.unpack(">d" if len(content) == 8 else ">f", content or bytes(4))[0]
    return found


def _duration(file: Ranges, info: _Element) -> int | None:
    ticks = _real(file, info, _DURATION)
    if ticks is None or ticks == 0:
        return None
    scale = _number(file, info, _SCALE, _DEFAULT_SCALE)  # Nanoseconds of a tick.
    return file.duration(ticks * scale, 1e9)


def _with_track(file: Ranges, header: Header, track: _Element) -> Header:
    """Return a header with what a track says, if it is the first of its kind."""
    kind = _number(file, track, _KIND, 0)
    if kind == _SOUNDS and not header.has_sound:
        about = _one(file, track, _AUDIO)
        rate = _real(file, about, _OUTPUT_RATE) or _real(file, about, _RATE)
        return replace(
            header,
            has_sound=True,
            sample_rate=file.number("samples in a second", rate or _DEFAULT_RATE),
            channels=file.number("channels", _number(file, about, _CHANNELS, 1)),
        )
    if kind == _PICTURES and not header.has_picture:
        about = _one(file, track, _VIDEO)
        width, height = (_number(file, about, id_, 0) for id_ in (_WIDTH, _HEIGHT))
        return replace(
            header,
            has_picture=True,
            width=file.number("pixels of width", width) if width else None,
            height=file.number("pixels of height", height) if height else None,
        )
    return header
