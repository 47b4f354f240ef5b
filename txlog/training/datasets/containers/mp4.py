"""MP4, M4A and MOV: boxes of ISO 14496-12, and those of QuickTime.

Only the boxes on the way to the headers of tracks are opened, so no content makes the reader go
deeper.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, replace

from txlog.training.datasets.containers.ranges import Header, Ranges

_FIRST = (b"ftyp", b"moov", b"mdat", b"wide", b"free", b"skip", b"pnot")
_QUICKTIME = b"qt  "
_MOST_TRACKS = 1000


@dataclass(frozen=True)
class _Box:
    kind: bytes
    start: int  # Of the content.
    end: int

    @property
    def size(self) -> int:
        return self.end - self.start


def is_mp4(start: bytes) -> bool:
    """Return whether a file with these first 8 bytes has boxes."""
    return start[4:8] in _FIRST


def read_mp4(file: Ranges) -> Header:
    """Read the headers of the film, and of its first sound and picture."""
    film, format, has_data = None, "MOV", False
    for box in _boxes(file, 0, file.size, is_top=True):
        if box.kind == b"ftyp":
            format = "MOV" if file.read(box.start, 4) == _QUICKTIME else "MP4"
        elif box.kind == b"moov":
            if film is not None:
                raise file.unfit("is damaged: it has two boxes moov")
            film = box
        has_data = has_data or box.kind == b"mdat"
    if film is None or not has_data:
        missing = "mdat" if film is not None else "moov"
        raise file.unfit(f"is damaged or cut off: it has no box {missing}")
    header, count = Header(format), 0
    for box in _boxes(file, film.start, film.end):
        if box.kind == b"trak":
            count += 1
            if count > _MOST_TRACKS:
                raise file.unfit(f"has more than {_MOST_TRACKS} tracks")
            header = _with_track(file, header, box)
    return replace(header, duration_ms=_duration(file, film))


def _boxes(file: Ranges, start: int, end: int, *, is_top: bool = False) -> Iterator[_Box]:
    """Yield the boxes between two places."""
    at = start
    while at < end:
        if end - at < 8 and not is_top:
            return  # QuickTime ends lists by a zero.
        size, kind = struct.unpack(">I4s", file.read(at, 8))
        header = 8
        if size == 1:
            (size,) = struct.unpack(">Q", file.read(at + 8, 8))
            header = 16
        elif size == 0:
            if not is_top:
                return
            size = end - at
        if size < header:
            raise file.unfit("is damaged: a box is smaller than its header")
        if at + size > end:
            if is_top:
                raise file.cut_off()
            raise file.unfit("is damaged: a box is larger than the one around it")
        yield _Box(kind, at + header, at + size)
        at += size


def _inside(file: Ranges, box: _Box | None, *kinds: bytes) -> _Box | None:
    """Return the first box on a path of kinds, or None."""
    for kind in kinds:
        if box is None:
            return None
        box = next((one for one in _boxes(file, box.start, box.end) if one.kind == kind), None)
    return box


def _read(file: Ranges, box: _Box, at: int, form: str) -> tuple[int, ...]:
    """Return numbers of a box, `at` bytes after its start."""
    if at + struct.calcsize(form) > box.size:
        raise file.unfit("is damaged: a box is shorter than its content")
    return struct.unpack(form, file.read(box.start + at, struct.calcsize(form)))


def _duration(file: Ranges, film: _Box) -> int | None:
    head = _inside(file, film, b"mvhd")
    if head is None:
        return None
    is_wide = _is_wide(file, head)
    scale, count = _read(file, head, 20, ">IQ") if is_wide else _read(file, head, 12, ">II")
    unknown = (1 << 64 if is_wide else 1 << 32) - 1
    if count in (0, unknown):  # The film may be in fragments.
        total = _inside(file, film, b"mvex", b"mehd")
        if total is None:
            return None
        (count,) = _read(file, total, 4, ">Q" if _is_wide(file, total) else ">I")
    return file.duration(count, scale) if count else None


def _is_wide(file: Ranges, box: _Box) -> bool:
    """Return whether times are 64-bit numbers: version 1."""
    return _read(file, box, 0, ">B") == (1,)


def _with_track(file: Ranges, header: Header, track: _Box) -> Header:
    """Return a header with what a track says, if it is the first of its kind."""
    media = _inside(file, track, b"mdia")
    handler = _inside(file, media, b"hdlr")
    if handler is None:
        return header
    kind = file.read(handler.start + 8, 4) if handler.size >= 12 else b""
    entry = _entry(file, _inside(file, media, b"minf", b"stbl", b"stsd"))
    if kind == b"soun" and not header.has_sound:
        rate, channels = (0, 0) if entry is None else _sound(file, entry)
        return replace(
            header,
            has_sound=True,
            sample_rate=file.number("samples in a second", rate) if rate else None,
            channels=file.number("channels", channels) if channels else None,
        )
    if kind == b"vide" and not header.has_picture:
        width, height = (0, 0) if entry is None else _read(file, entry, 24, ">HH")
        if not (width and height):
            width, height = _shown(file, track)
        return replace(header, has_picture=True, width=width or None, height=height or None)
    return header


def _entry(file: Ranges, table: _Box | None) -> _Box | None:
    """Return the first description of samples."""
    if table is None or table.size < 8:
        return None
    return next(_boxes(file, table.start + 8, table.end), None)


def _sound(file: Ranges, entry: _Box) -> tuple[float, int]:
    """Return samples in a second, and channels; 0 if they are not there."""
    (version,) = _read(file, entry, 8, ">H")
    if version == 2:  # Of QuickTime.
        rate, channels = _read(file, entry, 32, ">dI")
        return rate, channels
    (channels,) = _read(file, entry, 16, ">H")
    (rate,) = _read(file, entry, 24, ">I")
    return rate >> 16, channels


def _shown(file: Ranges, track: _Box) -> tuple[int, int]:
    """Return the size by the header of a track, in which it is the last thing."""
    head = _inside(file, track, b"tkhd")
    if head is None or head.size < 84:
        return 0, 0
    width, height = struct.unpack(">II", file.read(head.end - 8, 8))
    return width >> 16, height >> 16
