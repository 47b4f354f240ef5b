"""Headers of sounds and videos: files of another writer, cut files, changed and hostile ones."""

import io
import struct
import wave
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import examples
from txlog.base.errors import SchemaMismatchError
from txlog.training.datasets.containers import ENDINGS, read_header
from txlog.training.datasets.containers.ranges import Header, Ranges

SAMPLES = {
    path.name: path.read_bytes()
    for path in sorted((Path(__file__).parent / "samples").iterdir())
    if path.suffix != ".md"
}
# Format, milliseconds, samples in a second, channels, width and height; `ffmpeg -i` says the same.
FACTS: dict[str, tuple[object, ...]] = {
    "tone.wav": ("WAV", 100, 8000, 1, None, None),
    "live.wav": ("WAV", None, 8000, 1, None, None),  # Its writer could not say the size.
    "rf64.wav": ("WAV", 100, 8000, 1, None, None),
    "adpcm.wav": ("WAV", 500, 8000, 1, None, None),
    "tone.flac": ("FLAC", 100, 8000, 2, None, None),
    "tone.mp3": ("MP3", 500, 44100, 1, None, None),
    "bare.mp3": ("MP3", None, 44100, 1, None, None),  # ffmpeg estimates 550 ms by the bit rate.
    "vbr.mp3": ("MP3", 500, 8000, 2, None, None),
    "tone.ogg": ("OGG", 500, 44100, 1, None, None),
    # ffmpeg counts the 6.5 ms of Opus before the start: 507 ms.
    "tone.opus": ("OGG", 500, 48000, 1, None, None),
    "flac.oga": ("OGG", 100, 8000, 1, None, None),
    "tone.m4a": ("MP4", 500, 8000, 1, None, None),
    # The header of a file of fragments says no duration.
    "pieces.m4a": ("MP4", None, 8000, 1, None, None),
    "pieces.mp4": ("MP4", None, None, None, 32, 24),
    # The header has the rate of the source of an Opus, not that of its decoder.
    "tone.mka": ("MATROSKA", 508, 8000, 1, None, None),
    "tone.weba": ("WEBM", 508, 8000, 1, None, None),
    "red.mp4": ("MP4", 1000, None, None, 32, 24),
    "fast.mp4": ("MP4", 1000, None, None, 32, 24),
    "red.mov": ("MOV", 1000, None, None, 32, 24),
    "red.webm": ("WEBM", 1000, None, None, 32, 24),
    "red.mkv": ("MATROSKA", 1000, None, None, 32, 24),
    "live.mkv": ("MATROSKA", None, None, None, 32, 24),
    "both.mp4": ("MP4", 500, 8000, 1, 32, 24),
}
# These do not say how many bytes follow: a prefix with whole headers may be a file.
OPEN = {"live.wav", "live.mkv", "bare.mp3", "tone.flac", "pieces.m4a", "pieces.mp4"}


def header(content: bytes, name: str) -> Header:
    return read_header(io.BytesIO(content), name, name)


def header_or_error(content: bytes, name: str) -> Header | str:
    """Return the headers, or the reason of the error."""
    try:
        return header(content, name)
    except SchemaMismatchError as error:
        return error.reason


def facts(found: Header) -> tuple[object, ...]:
    numbers = (found.duration_ms, found.sample_rate, found.channels, found.width, found.height)
    return (found.format, *numbers)


@pytest.mark.parametrize("name", sorted(SAMPLES))
@pytest.mark.spec("DST-47")
def test_headers_of_another_writer_say_what_it_says(name: str) -> None:
    found = header(SAMPLES[name], name)
    assert facts(found) == FACTS[name]
    assert found.has_sound == (found.channels is not None)
    assert found.has_picture == (found.width is not None)


@given(
    channels=st.integers(1, 8),
    width=st.integers(1, 4),
    rate=st.integers(1, 400_000),
    frames=st.integers(0, 300),
)
@settings(max_examples=examples(50))
def test_a_wav_of_python_has_its_rate_and_duration(
    channels: int, width: int, rate: int, frames: int
) -> None:
    sink = io.BytesIO()
    with wave.open(sink, "wb") as writer:
        writer.setnchannels(channels)
        writer.setsampwidth(width)
        writer.setframerate(rate)
        writer.writeframes(bytes(channels * width * frames))
    found = header(sink.getvalue(), "x.wav")
    assert (found.channels, found.sample_rate) == (channels, rate)
    assert found.duration_ms is not None
    assert abs(found.duration_ms - frames * 1000 / rate) <= 0.5


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(SAMPLES))
@pytest.mark.spec("DST-47")
def test_each_prefix_is_refused_or_says_what_the_whole_file_says(name: str) -> None:
    content, whole = SAMPLES[name], facts(header(SAMPLES[name], name))
    known = set()
    for count in range(len(content)):
        found = header_or_error(content[:count], name)
        if isinstance(found, str):
            assert found.startswith((f"{name} is ", f"{name} has "))
            continue
        known.add(count)
        if not name.endswith((".ogg", ".opus", ".oga")):  # Their duration is that of what is left.
            assert facts(found) == whole
    if name in OPEN:
        return
    # A cut between two pages of Ogg leaves a whole file.
    assert all(content[count : count + 4] == b"OggS" for count in known)


@given(
    name=st.sampled_from(sorted(SAMPLES)),
    at=st.integers(0, 700),
    data=st.binary(min_size=1, max_size=9),
    is_inserted=st.booleans(),
    from_end=st.booleans(),
)
@settings(max_examples=examples(600))
@pytest.mark.spec("DST-47")
def test_a_changed_file_has_plausible_headers_or_one_clear_error(
    name: str, at: int, data: bytes, is_inserted: bool, from_end: bool
) -> None:
    content = SAMPLES[name]
    at = max(0, len(content) - at) if from_end else at
    content = content[:at] + data + content[at + (0 if is_inserted else len(data)) :]
    require_plausible(content, name)


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(SAMPLES))
def test_each_changed_byte_of_the_first_ones(name: str) -> None:
    content = SAMPLES[name]
    for at in range(min(len(content), 400)):
        for byte in (0, 1, 0x7F, 0x80, 0xFF, content[at] ^ 1):
            require_plausible(content[:at] + bytes([byte]) + content[at + 1 :], name)


@pytest.mark.parametrize("name", ["tone.ogg", "tone.opus", "flac.oga"])
@pytest.mark.parametrize("from_end", [False, True])
def test_each_changed_byte_of_the_first_and_last_page_of_an_ogg_is_refused(
    name: str, from_end: bool
) -> None:
    content = SAMPLES[name]
    last = content.rfind(b"OggS")
    places = range(last, len(content)) if from_end else range(content.index(b"OggS", 1))
    for at in places:
        changed = content[:at] + bytes([content[at] ^ 0x10]) + content[at + 1 :]
        assert isinstance(header_or_error(changed, name), str)


def require_plausible(content: bytes, name: str) -> None:
    """Require that a file has headers whose numbers fit columns, or is refused by its name."""
    found = header_or_error(content, name)
    if isinstance(found, str):
        assert found.startswith(f"{name} ")
        return
    assert "." + name.rpartition(".")[2] in ENDINGS[found.format]
    assert found.duration_ms is None or 0 <= found.duration_ms < 1 << 41
    for number in (found.sample_rate, found.channels, found.width, found.height):
        assert number is None or 1 <= number < 1 << 31


@given(name=st.sampled_from(sorted(SAMPLES)), tail=st.binary(max_size=200))
@settings(max_examples=examples(300))
def test_any_bytes_after_the_start_of_a_format(name: str, tail: bytes) -> None:
    for count in (4, 8, 12, 40):
        require_plausible(SAMPLES[name][:count] + tail, name)


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("x.wav", b"", "x.wav is empty"),
        ("x.wav", b"no sound at all", "x.wav is none of WAV, FLAC, MP3"),
        ("x.wav", SAMPLES["tone.flac"], "has the format FLAC, but its name has another ending"),
        ("x.mp4", SAMPLES["red.mkv"], "has the format MATROSKA, but its name has another ending"),
        ("x.webm", SAMPLES["red.mkv"], "has the format MATROSKA, but its name has another ending"),
        ("wav", SAMPLES["tone.wav"], "has the format WAV, but its name has another ending"),
        ("x.wav", SAMPLES["tone.wav"][:-1], "is cut off: it has 1643 bytes"),
        ("x.ogg", SAMPLES["tone.ogg"][:-1], "does not end with a whole page"),
        ("x.mp4", SAMPLES["red.mp4"][:-1], "is cut off"),
        ("x.mp4", b"\0\0\0\4ftyp" + bytes(50), "a box is smaller than its header"),
        ("x.mp4", SAMPLES["red.mp4"] * 2, "it has two boxes moov"),
        ("x.mkv", SAMPLES["red.mkv"][:-1], "is cut off"),
        ("x.mp3", SAMPLES["tone.mp3"][:-200], "is cut off"),
        ("x.mp3", b"ID3\4\0\0\0\0\x7f\x7f" + bytes(50), "is cut off"),
        ("x.mp3", b"ID3\4\0\0\0\0\0\2" + bytes(50), "is cut off"),
        ("x.webm", b"\x1a\x45\xdf\xa3\x87\x42\x82\x84nope", "has the document type b'nope'"),
    ],
)
@pytest.mark.spec("DST-47")
def test_what_is_no_sound_and_no_video_is_refused(name: str, content: bytes, words: str) -> None:
    with pytest.raises(SchemaMismatchError) as caught:
        header(content, name)
    assert words in str(caught.value)


def vorbis(pages: int) -> bytes:
    """Return an Ogg with pages on which no packet ends, each with its checksum."""
    from txlog.training.datasets.containers.ogg import _checksum

    def page(flags: int, granule: int, body: bytes) -> bytes:
        table = bytes([255] * (len(body) // 255) + [len(body) % 255])[:255]
        head = struct.pack("<4sBBqII", b"OggS", 0, flags, granule, 7, 0)
        end = bytes([len(table)]) + table + body
        return head + struct.pack("<I", _checksum(head + bytes(4) + end)) + end

    first = page(2, 0, b"\x01vorbis" + struct.pack("<IBIIII", 0, 1, 8000, 0, 0, 0) + b"\xb8\x01")
    return first + page(0, -1, bytes(255 * 255 - 1)) * pages


HOSTILE = {
    "boxes without end.mp4": b"\0\0\0\x08ftyp" + b"\0\0\0\x08free" * 400_000,
    "a second film.mp4": SAMPLES["red.mp4"] + b"\0\0\0\x08moov",
    "elements without end.mkv": SAMPLES["live.mkv"][:50] + b"\xec\x80" * 400_000,
    "chunks without end.wav": b"RIFF\0\0\0\0WAVE" + b"junk\0\0\0\0" * 400_000,
    "blocks without end.flac": SAMPLES["tone.flac"][:42] + b"\1\0\0\0" * 400_000,
    "pages without a position.ogg": vorbis(80),
    "starts of pages.ogg": SAMPLES["tone.ogg"] + b"OggS" * 40_000,
    "tags.mp3": b"ID3\4\0\0\0\0\0\0" * 100,
    "no rate.flac": b"ID3\4\0\0\0\0\0\0fLaC\0\0\0\x22" + bytes(34),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_files_are_refused_within_the_bounds(name: str) -> None:
    counted = Counted(HOSTILE[name])
    with pytest.raises(SchemaMismatchError):
        read_header(counted, name, name)
    assert counted.reads <= 250_000
    assert counted.count <= 4 << 20


class Counted(io.BytesIO):
    """A file that counts what is read of it."""

    reads = count = 0

    def read(self, size: int | None = -1, /) -> bytes:
        found = super().read(size)
        self.reads += 1
        self.count += len(found)
        return found


def test_a_large_video_is_read_by_ranges() -> None:
    small = SAMPLES["red.mp4"]
    at = small.index(b"mdat") - 4
    (size,) = struct.unpack(">I", small[at : at + 4])
    grown = small[:at] + struct.pack(">I4s", size + (8 << 20), b"mdat")
    counted = Counted(grown + bytes(8 << 20) + small[at + 8 :])
    assert facts(read_header(counted, "x.mp4", "x.mp4")) == FACTS["red.mp4"]
    assert counted.count < 4096


@pytest.mark.parametrize(
    ("count", "per_second"), [(1.0, 0), (-1, 1), (float("nan"), 1), (1e300, 1)]
)
def test_durations_that_cannot_be_are_refused(count: float, per_second: float) -> None:
    with pytest.raises(SchemaMismatchError, match="x is damaged: it states a duration"):
        Ranges(io.BytesIO(b"1"), "x").duration(count, per_second)
