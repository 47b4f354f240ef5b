"""Formats of samples: files become rows, objects of other libraries do, and rows become files.

Each format is one module. `as_rows` opens a source, `export` writes one.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from txlog.base.errors import AlreadyExistsError, InvalidInputError, require_texts, require_whole
from txlog.base.texts import without_secrets
from txlog.extend import open_store
from txlog.training.datasets.formats.base import Reading, Writing
from txlog.training.datasets.formats.hugging_face import HuggingFace, rows_of_hugging_face
from txlog.training.datasets.formats.image_folder import ImageFolder
from txlog.training.datasets.formats.ray_data import rows_of_ray
from txlog.training.datasets.formats.streamed import streamed
from txlog.training.datasets.formats.tfrecord import TFRecord
from txlog.training.datasets.formats.webdataset import WebDataset
from txlog.training.datasets.limits import Limits
from txlog.training.datasets.sources import Source, refused

STREAMED = {"tfrecord": "00000.tfrecord", "webdataset": "00000.tar"}
"""The formats of which one file has all rows, with the name of this file in an export."""
_SHARD_ROWS, _SHARD_BYTES = 100_000, 256 << 20


def _readers() -> tuple[Reading, ...]:
    return (WebDataset(), TFRecord())


def _writers() -> dict[str, Writing]:
    return {one.name: one for one in (HuggingFace(), ImageFolder(), TFRecord(), WebDataset())}


def as_rows(source: Source, limits: Limits) -> None:
    """Give a source of files its rows as Arrow data, if all of its files have one known format.

    Raises
    ------
    InvalidInputError
        Some of its files have the format, others not; or a file is damaged.
    """
    for format in _readers():
        found = [file for file in source.files if format.is_of(file.name)]
        if not found:
            continue
        other = next((file for file in source.files if not format.is_of(file.name)), None)
        if other is not None:
            raise refused(
                f"{source.name} has files of the format {format.name}, such as {found[0].name}, "
                f"and others, such as {other.name}",
                "Put them into folders of their own",
            )
        schema = format.schema(found, source.columns, limits)
        batches = format.batches(found, schema, limits)
        source.data = pa.RecordBatchReader.from_batches(schema, batches)
        return


def rows_of(source: object) -> pa.RecordBatchReader | None:
    """Return the rows of an object of another library as a stream; None if none is known.

    Raises
    ------
    InvalidInputError
        The object has several parts, or a type that Arrow does not have.
    """
    modules = {one.__module__ for one in type(source).__mro__}
    if any(one.startswith("datasets.") for one in modules):
        return rows_of_hugging_face(source)
    if any(one.startswith("ray.data.") for one in modules):
        return rows_of_ray(source)
    return None


def export(
    rows: pa.RecordBatchReader,
    place: str | os.PathLike[str],
    form: str,
    *,
    shard_rows: int = _SHARD_ROWS,
    shard_bytes: int = _SHARD_BYTES,
    storage_options: Mapping[str, Any] | None = None,
) -> list[str]:
    """Write rows as files of a format, batch by batch, and return the paths of the files.

    If an error ends it, all files are removed.

    Parameters
    ----------
    place
        A folder or URI that has no files.
    form
        The name of a format: `huggingface`, `imagefolder`, `tfrecord` or `webdataset`.
    shard_rows, shard_bytes
        The most rows of a file, and the size after which it is finished, in bytes.

    Raises
    ------
    InvalidInputError
        There is no such format.
    AlreadyExistsError
        The place has files.
    SchemaMismatchError
        The format cannot hold a column or a value; the error names it.
    """
    require_texts(form=form)
    require_whole("shard_rows", shard_rows, 1)
    require_whole("shard_bytes", shard_bytes, 1)
    writers = _writers()
    if form not in writers:
        raise InvalidInputError(
            argument="form", reason=f"one of {', '.join(writers)} was expected, not {form!r}"
        )
    store = open_store(os.fspath(place), storage_options)
    if (known := next(iter(store.list_tree("")), None)) is not None:
        raise AlreadyExistsError(
            path=without_secrets(store.root),
            reason=f"the folder of an export must have no files, it has {known.name}",
            remedy="Name another folder",
        )
    with store.new_files() as opened:
        out = Files(opened, shard_rows, shard_bytes)
        writers[form].write(rows, out)
    return [f"{store.root}/{name}" for name in out.names]


def stream(opened: Callable[[], pa.RecordBatchReader], form: str) -> Generator[bytes, None, None]:
    """Yield the bytes of one file with all rows; `opened` and errors as for `streamed`.

    Raises
    ------
    InvalidInputError
        There is no such format, or it has several files.
    """
    require_texts(form=form)
    writer = _writers().get(form)
    if writer is None or form not in STREAMED:
        raise InvalidInputError(
            argument="form", reason=f"one of {', '.join(STREAMED)} was expected, not {form!r}"
        )
    return streamed(writer, opened)


@dataclass(frozen=True)
class Files:
    """The files of an export."""

    opened: Callable[[str], AbstractContextManager[Any]]
    shard_rows: int
    shard_bytes: int
    names: list[str] = field(default_factory=list)

    @contextmanager
    def open(self, name: str) -> Iterator[Any]:
        """Return a new file, to write in a `with`."""
        with self.opened(name) as sink:
            yield sink
        self.names.append(name)
