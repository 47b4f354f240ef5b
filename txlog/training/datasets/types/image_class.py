"""IMAGE_CLASS: images with one label each, from a folder for each label."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from io import BytesIO
from typing import TypeVar

import pyarrow as pa

from txlog.base.errors import SchemaMismatchError, not_installed, reason_of
from txlog.base.threads import map_ahead
from txlog.base.thresholds import Threshold
from txlog.extend import is_litter
from txlog.training.datasets.formats.image_folder import labelled
from txlog.training.datasets.formats.samples import Places, as_contents
from txlog.training.datasets.limits import Limits
from txlog.training.datasets.sources import Source, refused
from txlog.training.datasets.types.archive import member_content, opened_zip
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
    column_of,
    normalized,
)

Named = TypeVar("Named")

_AHEAD_BYTES: Threshold = 64 << 20  # The bytes of images that wait to be checked.

# The accepted formats, with the endings of their files. Other formats of Pillow may run programs.
FORMATS = {
    "JPEG": (".jpg", ".jpeg", ".jpe", ".jfif"),
    "PNG": (".png",),
    "GIF": (".gif",),
    "BMP": (".bmp",),
    "TIFF": (".tif", ".tiff"),
    "WEBP": (".webp",),
}
_ENDINGS = [ending[1:] for endings in FORMATS.values() for ending in endings]


@dataclass(frozen=True)
class _Raw:
    """An image that is not checked yet."""

    label: str
    filename: str
    where: str  # For messages.
    size: int  # Bytes.
    load: Callable[[], bytes]


class ImageClass:
    """Images with labels: a zip, folder or prefix with a folder for each label.

    Folders of labels have no folders in them. If a folder has a `metadata.csv` or `metadata.jsonl`
    of Hugging Face, this names the files and their labels. The type also accepts Arrow data with
    the columns `label`, `content`, and `filename` or `path`, data sets of Hugging Face with an
    `Image`, and tars of WebDataset. Pillow (extra `images`) decodes each image once,
    so a damaged image is found now and not during the training.
    """

    name = "IMAGE_CLASS"
    version = 1
    aliases: tuple[str, ...] = ()
    as_rows = True
    content_feature = "Image"  # What the contents are to Hugging Face.
    ingestion = pa.schema(
        [
            pa.field("filename", pa.string(), nullable=False),
            pa.field("label", pa.string(), nullable=False),
            ("content", pa.binary()),
            ("uri", pa.string()),
            pa.field("sha256", pa.string(), nullable=False),
            pa.field("size", pa.int64(), nullable=False),
            pa.field("width", pa.int32(), nullable=False),
            pa.field("height", pa.int32(), nullable=False),
            pa.field("format", pa.string(), nullable=False),
        ]
    )
    training: Mapping[str, pa.Schema | None] = {"examples": EXAMPLES, "labels": LABELS}

    def read(self, source: Source, limits: Limits, files: ObjectFiles) -> Iterator[pa.RecordBatch]:
        """Yield images, ordered by label and name."""
        _require_pillow()
        look = partial(_looked_at, limits=limits, files=files)
        workers = os.cpu_count() or 1
        rows = map_ahead(
            look,
            _raw_images(source, limits),
            workers=workers,
            ahead=2 * workers,
            size=lambda raw: raw.size,
            ahead_size=_AHEAD_BYTES,
        )
        yield from content_batches(rows, self.ingestion)

    def statistics(self) -> LabelCounts:
        """Return the counts of a commit without rows."""
        return LabelCounts("label")

    def build(self, rows: Rows, out: Parts, options: Mapping[str, str]) -> dict[str, int]:
        """Number the labels by first appearance, and write examples and labels.

        The form `csv` is one zip (rules: spec/datasets.md): `examples.csv` (filename, label id),
        `labels.csv`, and the images in `examples/`. A second image with the same name is called
        `name-2`.
        """
        return build_examples(rows, out, options, _content)


# The content of a source -----------------------------------------------------------------------


def _raw_images(source: Source, limits: Limits) -> Iterator[_Raw]:
    if source.data is not None:
        first = 1
        places: Places = {}
        for batch in source.data:
            yield from _of_columns(batch, first, source.name, limits, places)
            first += batch.num_rows
        return
    if source.is_folder:
        kept = [file for file in source.files if not is_litter(file.name)]
        found = labelled(kept, source.name)
        for label, filename, file in found or _by_folder(
            ((file.name, file) for file in kept), source.name
        ):
            _require_size(file.name, file.size, limits)
            where = f"{file.name} in {source.name}"
            label = label_of(label, file.name, source.name, limits)
            yield _Raw(label, filename, where, file.size, file.content)
        return
    (file,) = source.files
    with opened_zip(file, limits) as (archive, members):
        named = ((one.filename, one) for one in members if not is_litter(one.filename))
        for label, filename, member in _by_folder(named, file.name):
            _require_size(member.filename, member.file_size, limits)
            content = member_content(archive, member, file)
            where = f"{member.filename} in {file.name}"
            label = label_of(label, member.filename, file.name, limits)
            yield _Raw(label, filename, where, len(content), partial(bytes, content))


def _by_folder(named: Iterable[tuple[str, Named]], where: str) -> Iterator[tuple[str, str, Named]]:
    """Yield each file with its label and its own name.

    Raises
    ------
    SchemaMismatchError
        A file is not in a folder directly below the source, or there is no file.
    """
    is_empty = True
    for name, value in named:
        is_empty = False
        label, _, filename = name.partition("/")
        if not filename or "/" in filename:
            place = "nested too deeply" if filename else "not in a folder"
            raise SchemaMismatchError(
                reason=f"{name!r} in {where} is {place}: a folder for each label was expected, "
                "with images in it",
                remedy="Zip the content of the folder, not the folder itself" if filename else "",
            )
        yield label, filename, value
    if is_empty:
        raise SchemaMismatchError(reason=f"{where} has no image")


def _require_size(name: str, size: int, limits: Limits) -> None:
    if size > limits.image_bytes:
        raise refused(f"the image {name!r} has {size} bytes, {limits.image_bytes} are allowed")


def _of_columns(
    batch: pa.RecordBatch, first: int, where: str, limits: Limits, places: Places
) -> Iterator[_Raw]:
    """Yield the images of Arrow data."""
    batch = as_contents(batch, first, where, _ENDINGS, places, "image")
    named = "filename" if "filename" in batch.schema.names else "path"
    names = column_of(batch, named, pa.string(), first).to_pylist()
    labels = normalized(column_of(batch, "label", pa.string(), first)).to_pylist()
    contents = column_of(batch, "content", pa.large_binary(), first)
    for row, (name, label) in enumerate(zip(names, labels, strict=True)):
        place = f"row {first + row} of {where}"
        filename = name.rpartition("/")[2] if named == "path" else name
        require_names({named: filename, "label": label}, place, limits)
        content = contents[row].as_buffer()
        _require_size(filename, content.size, limits)
        yield _Raw(label, filename, place, content.size, content.to_pybytes)


# One image -------------------------------------------------------------------------------------


def _require_pillow() -> None:
    try:
        import PIL  # noqa: F401
    except ImportError as error:
        raise not_installed("images", "images", f"images need Pillow: {error}") from error


def _looked_at(raw: _Raw, *, limits: Limits, files: ObjectFiles) -> dict[str, object]:
    """Return the row of an image, or raise if it cannot be decoded; it runs in threads."""
    content = raw.load()
    width, height, kind = _decoded(raw, content, limits)
    is_large = len(content) > limits.row_bytes
    return {
        "filename": raw.filename,
        "label": raw.label,
        "content": None if is_large else content,
        "uri": files.put(content) if is_large else None,
        "sha256": sha256(content).hexdigest(),
        "size": len(content),
        "width": width,
        "height": height,
        "format": kind,
    }


def _decoded(raw: _Raw, content: bytes, limits: Limits) -> tuple[int, int, str]:
    """Return an image's width, height and format."""
    from PIL import Image

    def unfit(wrong: str) -> SchemaMismatchError:
        return SchemaMismatchError(field="content", reason=f"{raw.where} {wrong}")

    too_many = f"more than {limits.pixels} pixels"
    try:
        with Image.open(BytesIO(content), formats=list(FORMATS)) as image:
            # MPO is a JPEG with several pictures.
            kind = "JPEG" if image.format == "MPO" else str(image.format)
            width, height = image.size
            if width * height > limits.pixels:
                raise unfit(f"has {width} × {height} pixels, {limits.pixels} are allowed")
            ending = "." + raw.filename.rpartition(".")[2].lower()
            if ending not in FORMATS[kind]:
                raise unfit(f"has the format {kind}, but its name has another ending")
            image.load()
    except SchemaMismatchError:
        raise
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        raise unfit(f"has {too_many}") from error
    except Exception as error:  # Pillow raises errors of any class for other bytes.
        raise unfit(f"is not a readable image: {reason_of(error)}") from error
    return width, height, kind


def _content(content: pa.BinaryScalar, uri: str | None, rows: Rows) -> bytes:
    if uri is None:
        return bytes(content.as_buffer())
    with rows.open_object(uri) as opened:
        data: bytes = opened.read()
    return data
