"""A file that is read by ranges, within bounds that no content can exceed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import IO

from txlog.base.errors import SchemaMismatchError

# A day of fragments of one second has two boxes for each. A reader of hostile bytes ends here.
_MOST_READS = 250_000
_MOST_BYTES = 4 << 20  # Headers have far less. Checksums of Ogg are computed over these bytes.
_MOST_MS = 1 << 40  # About 35 years.
_MOST_NUMBER = (1 << 31) - 1  # Columns of numbers are int32.


@dataclass(frozen=True)
class Header:
    """What the headers of a file of sounds or pictures say. None: they do not say it."""

    format: str
    has_sound: bool = False
    has_picture: bool = False
    duration_ms: int | None = None  # Rounded to whole milliseconds.
    sample_rate: int | None = None  # Samples of a channel in a second.
    channels: int | None = None
    width: int | None = None  # Pixels.
    height: int | None = None  # Pixels.


class Ranges:
    """The bytes of a file.

    Parameters
    ----------
    file
        A seekable file.
    where
        The name of the file in messages.
    """

    def __init__(self, file: IO[bytes], where: str) -> None:
        self._file = file
        self._where = where
        self._reads, self._bytes = _MOST_READS, _MOST_BYTES
        self.size = file.seek(0, 2)

    def read(self, at: int, count: int) -> bytes:
        """Return bytes of the file; as many as were asked for.

        Raises
        ------
        SchemaMismatchError
            The file ends before them, or it needs too many or too large reads.
        """
        if at + count > self.size:
            raise self.cut_off()
        self._reads -= 1
        self._bytes -= count
        if self._reads < 0 or self._bytes < 0:
            raise self.unfit("has too many parts, or too large headers, in its container")
        self._file.seek(at)
        found = self._file.read(count)
        if len(found) != count:
            raise self.cut_off()
        return found

    def most(self, at: int, count: int) -> bytes:
        """Return bytes of the file; fewer if it ends before."""
        return self.read(at, max(0, min(count, self.size - at)))

    def unfit(self, wrong: str) -> SchemaMismatchError:
        """Return the error for the file; `wrong` is the rest of a sentence."""
        return SchemaMismatchError(field="content", reason=f"{self._where} {wrong}")

    def cut_off(self) -> SchemaMismatchError:
        """Return the error for a file with fewer bytes than its headers say."""
        return self.unfit(f"is cut off: it has {self.size} bytes, and its headers speak of more")

    def duration(self, count: float, per_second: float) -> int:
        """Return a duration in milliseconds; raise if it is not plausible."""
        if not (per_second > 0 and 0 <= count <= per_second * (_MOST_MS / 1000)):
            raise self.unfit(f"is damaged: it states a duration of {count} / {per_second} seconds")
        if isinstance(count, int) and isinstance(per_second, int):
            return (count * 2000 + per_second) // (2 * per_second)
        return round(count / per_second * 1000)

    def number(self, what: str, value: float) -> int:
        """Return a rate, a number of channels or a size in pixels; raise if it is not plausible."""
        if not 0.5 <= value <= _MOST_NUMBER:
            raise self.unfit(f"is damaged: it states {value} {what}")
        return round(value)
