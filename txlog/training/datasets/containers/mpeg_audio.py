"""MP3: frames of MPEG audio (ISO 11172-3, 13818-3), and tags of ID3v2 before any format.

The number of frames is that of the first frame, which has a table of Xing or LAME, or of VBRI.
Without one, the length of the file says nothing certain about the duration.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from txlog.training.datasets.containers.ranges import Header, Ranges

_ID3, _OLD_TAG = b"ID3", b"TAG"
_MOST_TAGS = 16
_MOST_ZEROS = 1 << 16  # Bytes of padding that some writers leave after a tag.
_RATES = {3: (44100, 48000, 32000), 2: (22050, 24000, 16000), 0: (11025, 12000, 8000)}
# Kilobits in a second by the index in a header, for (is MPEG 1, layer).
_SPEEDS = {
    (True, 1): (32, 64, 96, 128, 160, 192, 224, 256, 288, 320, 352, 384, 416, 448),
    (True, 2): (32, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320, 384),
    (True, 3): (32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320),
    (False, 1): (32, 48, 56, 64, 80, 96, 112, 128, 144, 160, 176, 192, 224, 256),
    (False, 2): (8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160),
    (False, 3): (8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160),
}
_HAS_FRAMES, _HAS_BYTES, _HAS_ALL = 1, 2, 15
_VBRI_AT = 36
_CODER_AT, _DELAYS_AT = 120, 141  # From the start of the table of Xing, if it has all fields.


@dataclass(frozen=True)
class _Frame:
    version: int  # 3: MPEG 1. 2: MPEG 2. 0: MPEG 2.5.
    layer: int
    rate: int
    channels: int
    size: int  # Bytes.

    @property
    def samples(self) -> int:
        if self.layer == 1:
            return 384
        return 576 if self.layer == 3 and self.version != 3 else 1152

    @property
    def side_bytes(self) -> int:
        """The size of the side information of layer 3."""
        if self.version == 3:
            return 17 if self.channels == 1 else 32
        return 9 if self.channels == 1 else 17


def after_tags(file: Ranges) -> int:
    """Return the place after the tags of ID3v2 at the start of a file."""
    at = 0
    for _ in range(_MOST_TAGS):
        head = file.most(at, 10)
        if head[:3] != _ID3 or len(head) < 10:
            return at
        if any(byte & 0x80 for byte in head[6:]):
            raise file.unfit("is damaged: the size of its ID3 tag is no number")
        size = sum(byte << shift for byte, shift in zip(head[6:], (21, 14, 7, 0), strict=True))
        at += 10 + size + (10 if head[5] & 0x10 else 0)
        if at > file.size:
            raise file.cut_off()
    raise file.unfit(f"has more than {_MOST_TAGS} ID3 tags")


def is_mp3(start: bytes) -> bool:
    """Return whether these 4 bytes are the header of a frame."""
    return _frame(start) is not None


def after_zeros(file: Ranges, at: int) -> int:
    """Return the place after zeros of padding."""
    window = file.most(at, _MOST_ZEROS)
    return at + len(window) - len(window.lstrip(b"\0"))


def read_mp3(file: Ranges, at: int) -> Header:
    """Read the first frame, at a place."""
    frame = _frame(file.read(at, 4))
    if frame is None:
        raise file.unfit("is damaged: it has no frame of MPEG audio after its tags")
    if at + frame.size > file.size:
        raise file.cut_off()
    start = file.most(at + frame.size, 4)
    if len(start) == 4 and start[:3] not in (_OLD_TAG, _ID3) and start != b"APET":
        following = _frame(start)
        if following is None or (following.version, following.layer, following.rate) != (
            frame.version,
            frame.layer,
            frame.rate,
        ):
            raise file.unfit("is damaged: its second frame does not follow its first one")
    samples = _counted(file, at, frame)
    return Header(
        "MP3",
        has_sound=True,
        duration_ms=None if samples is None else file.duration(samples, frame.rate),
        sample_rate=frame.rate,
        channels=frame.channels,
    )


def _frame(start: bytes) -> _Frame | None:
    if len(start) < 4 or start[0] != 0xFF or start[1] & 0xE0 != 0xE0:
        return None
    version, layer = start[1] >> 3 & 3, 4 - (start[1] >> 1 & 3)
    speed, rate, padding = start[2] >> 4, start[2] >> 2 & 3, start[2] >> 1 & 1
    if version == 1 or layer == 4 or not 0 < speed < 15 or rate == 3:
        return None
    bits = _SPEEDS[version == 3, layer][speed - 1] * 1000
    samples = _RATES[version][rate]
    if layer == 1:
        size = (12 * bits // samples + padding) * 4
    else:
        size = (72 if layer == 3 and version != 3 else 144) * bits // samples + padding
    return _Frame(version, layer, samples, 1 if start[3] >> 6 == 3 else 2, size)


def _counted(file: Ranges, at: int, frame: _Frame) -> int | None:
    """Return the number of samples by the table in the first frame; None if it has none."""
    content = file.read(at, frame.size)
    table = content[4 + frame.side_bytes :]
    frames = size = None
    silent = 0
    if table[:4] in (b"Xing", b"Info") and len(table) >= 16:
        (flags,) = struct.unpack_from(">I", table, 4)
        numbers = list(struct.unpack_from(">II", table, 8))
        frames = numbers.pop(0) if flags & _HAS_FRAMES else None
        size = numbers.pop(0) if flags & _HAS_BYTES else None
        if flags & _HAS_ALL == _HAS_ALL and table[_CODER_AT : _CODER_AT + 3] in (b"LAM", b"Lav"):
            delays = int.from_bytes(table[_DELAYS_AT : _DELAYS_AT + 3], "big")
            silent = (delays >> 12) + (delays & 0xFFF)  # Before and after the sound.
    elif content[_VBRI_AT : _VBRI_AT + 4] == b"VBRI" and len(content) >= _VBRI_AT + 18:
        size, frames = struct.unpack_from(">II", content, _VBRI_AT + 10)
    if size and at + size > file.size:
        raise file.cut_off()
    return max(0, frames * frame.samples - silent) if frames else None
