"""WAV: chunks in RIFF, or in RF64 if the file is larger than 4 GiB (EBU Tech 3306)."""

from __future__ import annotations

import struct

from txlog.training.datasets.containers.ranges import Header, Ranges

_MAGIC = (b"RIFF", b"RF64")
_UNKNOWN = 0xFFFFFFFF  # The size in a stream whose end its writer did not know.
_PCM, _FLOAT, _EXTENSIBLE = 1, 3, 0xFFFE


def is_wav(start: bytes) -> bool:
    """Return whether a file with these first 12 bytes is WAV."""
    return start[:4] in _MAGIC and start[8:12] == b"WAVE"


def read_wav(file: Ranges) -> Header:
    """Read the chunks `fmt`, `fact` and `data`."""
    is_large = file.read(0, 4) == b"RF64"
    at = 12
    large_size = samples = None
    found: tuple[int, int, int, int] | None = None
    while True:
        name, size = struct.unpack("<4sI", file.read(at, 8))
        at += 8
        if name == b"data":
            break
        if name == b"ds64" and is_large and size >= 24:
            _, large_size, samples = struct.unpack("<QQQ", file.read(at, 24))
        elif name == b"fmt ":
            if size < 14:
                raise file.unfit("is damaged: its chunk fmt is too short")
            kind, channels, rate, _, block = struct.unpack("<HHIIH", file.read(at, 14))
            found = kind, channels, rate, block
        elif name == b"fact" and size >= 4 and not is_large:
            (samples,) = struct.unpack("<I", file.read(at, 4))
        at += size + size % 2
    if found is None:
        raise file.unfit("is damaged: it has no chunk fmt before its data")
    kind, channels, rate, block = found
    known: int | None = size
    if size == _UNKNOWN:
        known = large_size if is_large else None
    if known is not None and at + known > file.size:
        raise file.cut_off()
    duration = None
    rate = file.number("samples in a second", rate)
    if kind in (_PCM, _FLOAT, _EXTENSIBLE):
        if not block:
            raise file.unfit("is damaged: its samples have no bytes")
        duration = None if known is None else file.duration(known // block, rate)
    elif known is not None and samples not in (None, 0, _UNKNOWN):
        duration = file.duration(samples, rate)
    return Header(
        "WAV",
        has_sound=True,
        duration_ms=duration,
        sample_rate=rate,
        channels=file.number("channels", channels),
    )
