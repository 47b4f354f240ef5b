"""AUDIO and VIDEO: files of sounds or videos, with labels if they are in folders of labels.

No codec is needed: the headers of containers say what they have (`containers`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from io import BytesIO
from typing import Any, ClassVar, TypeVar
from zipfile import ZipFile, ZipInfo

import pyarrow as pa

from txlog.base.errors import SchemaMismatchError
from txlog.base.thresholds import Threshold
from txlog.extend import is_litter
from txlog.training.datasets.containers import ENDINGS, read_header
from txlog.training.datasets.containers.ranges import Header
from txlog.training.datasets.formats.image_folder import labelled
from txlog.training.datasets.formats.samples import Places, as_contents
from txlog.training.datasets.limits import Limits
from txlog.training.datasets.sources import Source, SourceFile, spooled
from txlog.training.datasets.types.archive import member_chunks, opened_zip
from txlog.training.datasets.types.base import (
    ObjectFiles,
    Parts,
    Rows,
    content_batches,
)
from txlog.training.datasets.types.labelled import (
    EXAMPLES,
    build_examples,
    label_of,
    require_names,
)
from txlog.training.datasets.types.text_intent import (
    LABELS,
    LabelCounts,
    as_type,
    column_of,
    normalized,
)

Named = TypeVar("Named")

_CHUNK_BYTES: Threshold = 4 << 20
_FILE = (
    pa.field("filename", pa.string(), nullable=False),
    ("label", pa.string()),
    ("content", pa.binary()),
    ("uri", pa.string()),
    pa.field("sha256", pa.string(), nullable=False),
    pa.field("size", pa.int64(), nullable=False),
    pa.field("format", pa.string(), nullable=False),
    ("duration_ms", pa.int64()),
)
_WITH_PICTURES = ("MP4", "MOV", "WEBM", "MATROSKA")


@dataclass(frozen=True)
class _Raw:
    """A file that is not checked yet."""

    label: str | None
    filename: str
    where: str  # For messages.
    opened: Callable[[], AbstractContextManager[Any]]  # A seekable file.


class _Media:
    """What both types have: files of a zip, folder or prefix, or Arrow data."""

    version = 1
    aliases: tuple[str, ...] = ()
    as_rows = True
    training: Mapping[str, pa.Schema | None] = {"examples": EXAMPLES, "labels": LABELS}
    ingestion: ClassVar[pa.Schema]
    _what: ClassVar[str]  # A file, in messages.
    _endings: ClassVar[tuple[str, ...]]  # Without a dot.

    def read(self, source: Source, limits: Limits, files: ObjectFiles) -> Iterator[pa.RecordBatch]:
        """Yield files with what their headers say, ordered by label and name."""
        rows = (self._row(raw, limits, files) for raw in self._raw(source, limits))
        yield from content_batches(rows, self.ingestion)

    def statistics(self) -> LabelCounts:
        """Return the counts of a commit without rows."""
        return LabelCounts("label")

    def build(self, rows: Rows, out: Parts, options: Mapping[str, str]) -> dict[str, int]:
        """Number the labels by first appearance, and write examples and labels.

        An example without a label has no number. The form `csv` is one zip, as of IMAGE_CLASS.
        """
        return build_examples(rows, out, options, _content)

    def _facts(self, header: Header, where: str) -> dict[str, object]:
        """Return the columns of the type for a header; raise if it has not what the type needs."""
        raise NotImplementedError

    def _row(self, raw: _Raw, limits: Limits, files: ObjectFiles) -> dict[str, object]:
        with raw.opened() as file:
            header = read_header(file, raw.filename, raw.where)
            facts = self._facts(header, raw.where)
            size, digest = file.seek(0, 2), sha256()
            file.seek(0)
            content = uri = None
            if size <= limits.row_bytes:
                content = file.read()
                digest.update(content)
            else:
                uri = files.put_chunks(_chunks(file, digest.update), digest.hexdigest)
        return {
            "filename": raw.filename,
            "label": raw.label,
            "content": content,
            "uri": uri,
            "sha256": digest.hexdigest(),
            "size": size,
            "format": header.format,
            "duration_ms": header.duration_ms,
            **facts,
        }

    # The content of a source -------------------------------------------------------------------

    def _raw(self, source: Source, limits: Limits) -> Iterator[_Raw]:
        if source.data is not None:
            first = 1
            places: Places = {}
            for batch in source.data:
                yield from self._of_columns(batch, first, source.name, limits, places)
                first += batch.num_rows
            return
        if source.is_folder:
            kept = [file for file in source.files if not is_litter(file.name)]
            named = labelled(kept, source.name, what=self._what, needs_label=False)
            for label, filename, file in named or self._by_folder(
                ((file.name, file) for file in kept), source.name
            ):
                known = label_of(label, file.name, source.name, limits) if label else None
                yield _Raw(known, filename, f"{file.name} in {source.name}", file.seekable)
            return
        (file,) = source.files
        if not file.name.lower().endswith(".zip"):
            yield _Raw(None, file.name, file.name, file.seekable)
            return
        with opened_zip(file, limits) as (archive, members):
            found = ((one.filename, one) for one in members if not is_litter(one.filename))
            for label, filename, member in self._by_folder(found, file.name):
                yield _Raw(
                    label_of(label, member.filename, file.name, limits) if label else None,
                    filename,
                    f"{member.filename} in {file.name}",
                    partial(_unpacked, archive, member, file),
                )

    def _by_folder(
        self, named: Iterable[tuple[str, Named]], where: str
    ) -> Iterator[tuple[str, str, Named]]:
        """Yield each file with its label, or "", and its own name.

        Raises
        ------
        SchemaMismatchError
            Some files are in folders and others not, or in folders of folders; or there is no file.
        """
        labels: bool | None = None
        for name, value in named:
            label, slash, filename = name.rpartition("/")
            if "/" in label:
                raise SchemaMismatchError(
                    reason=f"{name!r} in {where} is nested too deeply: a folder for each label was "
                    "expected, or files without folders",
                    remedy="Zip the content of the folder, not the folder itself",
                )
            if labels is not None and bool(slash) != labels:
                here, there = ("in", "not in") if slash else ("not in", "in")
                raise SchemaMismatchError(
                    reason=f"{name!r} in {where} is {here} a folder, and others are {there} one: "
                    "either all files are in folders of labels, or none is"
                )
            labels = bool(slash)
            yield label, filename, value
        if labels is None:
            raise SchemaMismatchError(reason=f"{where} has no {self._what}")

    def _of_columns(
        self, batch: pa.RecordBatch, first: int, where: str, limits: Limits, places: Places
    ) -> Iterator[_Raw]:
        batch = as_contents(batch, first, where, self._endings, places, self._what)
        named = "filename" if "filename" in batch.schema.names else "path"
        names = column_of(batch, named, pa.string(), first).to_pylist()
        contents = column_of(batch, "content", pa.large_binary(), first)
        labels: list[str | None] = [None] * len(names)
        if "label" in batch.schema.names:
            values = as_type(batch["label"], pa.string(), "label").fill_null("")
            labels = [label or None for label in normalized(values).to_pylist()]
        for row, (name, label) in enumerate(zip(names, labels, strict=True)):
            place = f"row {first + row} of {where}"
            filename = name.rpartition("/")[2] if named == "path" else name
            require_names({named: filename, "label": label}, place, limits)
            yield _Raw(label, filename, place, partial(_in_memory, contents[row]))


class Audio(_Media):
    """Sounds: a zip, folder or prefix of files, or one file.

    Either all files are in folders of labels, or none is; then they have no labels. The type also
    accepts `metadata.csv` and `metadata.jsonl` of Hugging Face, Arrow data with the columns
    `content`, `filename` or `path`, and perhaps `label`, data sets of Hugging Face with an `Audio`,
    and tars of WebDataset. The formats are WAV, FLAC, MP3, Ogg, MP4, QuickTime, WebM and Matroska.
    """

    name = "AUDIO"
    content_feature = "Audio"  # What the contents are to Hugging Face.
    ingestion = pa.schema([*_FILE, ("sample_rate", pa.int32()), ("channels", pa.int32())])
    _what = "sound"
    _endings = tuple(ending[1:] for endings in ENDINGS.values() for ending in endings)

    def _facts(self, header: Header, where: str) -> dict[str, object]:
        if not header.has_sound:
            raise SchemaMismatchError(field="content", reason=f"{where} has no sound")
        return {"sample_rate": header.sample_rate, "channels": header.channels}


class Video(_Media):
    """Videos: a zip, folder or prefix of files, or one file.

    Labels and input are those of AUDIO. The formats are MP4, QuickTime, WebM and Matroska.
    """

    name = "VIDEO"
    content_feature = "Video"
    ingestion = pa.schema([*_FILE, ("width", pa.int32()), ("height", pa.int32())])
    _what = "video"
    _endings = tuple(ending[1:] for format in _WITH_PICTURES for ending in ENDINGS[format])

    def _facts(self, header: Header, where: str) -> dict[str, object]:
        if not header.has_picture:
            raise SchemaMismatchError(field="content", reason=f"{where} has no pictures")
        return {"width": header.width, "height": header.height}


def _unpacked(archive: ZipFile, member: ZipInfo, file: SourceFile) -> AbstractContextManager[Any]:
    return spooled(member_chunks(archive, member, file))


def _in_memory(content: pa.Scalar) -> AbstractContextManager[Any]:
    return nullcontext(BytesIO(content.as_buffer()))


def _chunks(file: Any, seen: Callable[[bytes], None]) -> Iterator[bytes]:
    """Yield the bytes of a file from its place."""
    while chunk := file.read(_CHUNK_BYTES):
        seen(chunk)
        yield chunk


def _content(content: pa.Scalar, uri: str | None, rows: Rows) -> Iterator[bytes]:
    """Yield a content in chunks, also one that lies beside the rows."""
    if uri is None:
        yield bytes(content.as_buffer())
        return
    with rows.open_object(uri) as opened:
        while chunk := opened.read(_CHUNK_BYTES):
            yield bytes(chunk)
