"""FLAC: the metadata block STREAMINFO (RFC 9639)."""

from __future__ import annotations

from txlog.training.datasets.containers.ranges import Header, Ranges

MAGIC = b"fLaC"
INFO_BYTES = 34
_FORBIDDEN = 127  # The type of a block whose bytes look like a frame.


def read_flac(file: Ranges, at: int) -> Header:
    """Read STREAMINFO.

    Parameters
    ----------
    at
        The place of `fLaC`: tags may lie before it.
    """
    at += len(MAGIC)
    if (file.read(at, 1)[0] & 0x7F, _size(file, at)) != (0, INFO_BYTES):
        raise file.unfit("is damaged: it does not begin with a block STREAMINFO")
    header = of_stream_info(file, file.read(at + 4, INFO_BYTES), "FLAC")
    is_last = False
    while not is_last:
        first = file.read(at, 1)[0]
        is_last = bool(first & 0x80)
        if first & 0x7F == _FORBIDDEN:
            raise file.unfit("is damaged: it has a metadata block that cannot be one")
        at += 4 + _size(file, at)
    if header.duration_ms != 0:
        start = file.read(at, 2)
        if start[0] != 0xFF or start[1] & 0xFE != 0xF8:
            raise file.unfit("is damaged: there is no frame after its metadata")
    return header


def of_stream_info(file: Ranges, info: bytes, format: str) -> Header:
    """Read the 34 bytes of STREAMINFO."""
    packed = int.from_bytes(info[10:18], "big")  # 20 bits, 3 bits, 5 bits, 36 bits.
    rate = file.number("samples in a second", packed >> 44)
    samples = packed & ((1 << 36) - 1)
    return Header(
        format,
        has_sound=True,
        duration_ms=file.duration(samples, rate) if samples else None,
        sample_rate=rate,
        channels=(packed >> 41 & 7) + 1,
    )


def _size(file: Ranges, at: int) -> int:
    return int.from_bytes(file.read(at + 1, 3), "big")
