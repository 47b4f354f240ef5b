"""Files of sounds and videos: what their headers say, without a codec.

Each family of containers is one module, a pure function of ranges of a file. Rules:
spec/datasets.md, DST-47.
"""

from __future__ import annotations

from typing import IO

from txlog.training.datasets.containers import flac, matroska, mp4, mpeg_audio, ogg, riff
from txlog.training.datasets.containers.ranges import Header, Ranges

# The endings of the files of each format.
ENDINGS = {
    "WAV": (".wav", ".wave"),
    "FLAC": (".flac",),
    "MP3": (".mp3",),
    "OGG": (".ogg", ".oga", ".opus", ".spx"),
    "MP4": (".mp4", ".m4a", ".m4b", ".m4v", ".mov"),
    "MOV": (".mov", ".qt"),
    "WEBM": (".webm", ".weba", ".mkv", ".mka"),
    "MATROSKA": (".mkv", ".mka"),
}


def read_header(content: IO[bytes], filename: str, where: str) -> Header:
    """Read the headers of a file.

    A file is recognised by its first bytes, and read by ranges: the number and size of reads are
    bounded.

    Parameters
    ----------
    content
        A seekable file.
    filename
        The name, whose ending must be one of the format.
    where
        The place of the file, for messages.

    Raises
    ------
    SchemaMismatchError
        The file is empty, has another format, has another ending than its format, is damaged, or
        has fewer bytes than its headers say.
    """
    file = Ranges(content, where)
    if not file.size:
        raise file.unfit("is empty")
    header = _header(file)
    dot, ending = filename.rpartition(".")[1:]
    if dot + ending.lower() not in ENDINGS[header.format]:
        raise file.unfit(f"has the format {header.format}, but its name has another ending")
    return header


def _header(file: Ranges) -> Header:
    start = file.most(0, 12)
    if riff.is_wav(start):
        return riff.read_wav(file)
    if start[:4] == ogg.MAGIC:
        return ogg.read_ogg(file)
    if start[:4] == matroska.MAGIC:
        return matroska.read_matroska(file)
    if mp4.is_mp4(start):
        return mp4.read_mp4(file)
    at = mpeg_audio.after_tags(file)
    if file.most(at, 4) == flac.MAGIC:
        return flac.read_flac(file, at)
    if at:
        return mpeg_audio.read_mp3(file, mpeg_audio.after_zeros(file, at))
    if mpeg_audio.is_mp3(start[:4]):
        return mpeg_audio.read_mp3(file, 0)
    raise file.unfit(f"is none of {', '.join(ENDINGS)}")
