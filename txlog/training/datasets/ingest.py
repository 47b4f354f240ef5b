"""Convert raw data to the rows of a commit: any source, by the type of a data set."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from itertools import chain
from typing import Any

import pyarrow as pa

from txlog import Table
from txlog.base.effects import REAL
from txlog.base.errors import DataFileError, NotFoundError, TxlogError, warn_caller
from txlog.base.texts import without_secrets
from txlog.base.uris import scheme_of
from txlog.extend import (
    Store,
    as_reader,
    far_table_above,
    is_litter,
    is_there,
    open_store,
    table_above,
)
from txlog.training.datasets.formats import as_rows, rows_of
from txlog.training.datasets.formats.samples import (
    new_classes,
    require_classes,
    with_known_features,
)
from txlog.training.datasets.limits import Limits
from txlog.training.datasets.sources import Source, Sources, refused
from txlog.training.datasets.types.base import DatasetType
from txlog.training.datasets.values import Input

_VERSIONED = re.compile(r"(.+)@v(\d+)")
_LOG = "_delta_log/"
FILES = "files"
STAGED = f"{FILES}/.staged"  # Incomplete and temporary files.


@dataclass(frozen=True)
class Ingested:
    """The rows of a new commit. They are read once; after an error there is no commit."""

    schema: pa.Schema  # The ingestion columns.
    batches: Iterator[pa.RecordBatch]
    inputs: Callable[[], tuple[Input, ...]]  # Called when all rows are read.
    objects: StoredObjects  # Those of the rows that are read so far.

    @property
    def reader(self) -> pa.RecordBatchReader:
        """The batches as an Arrow stream."""
        return pa.RecordBatchReader.from_batches(self.schema, self.batches)


def ingest(
    kind: DatasetType,
    source: Any,
    *,
    sources: Sources,
    limits: Limits,
    store: Store,
    columns: pa.Schema | None = None,
) -> Ingested:
    """Return the rows that a type reads from a source.

    Parameters
    ----------
    source
        A path or URI of a file, folder or prefix; of a table, with `@v3` for a version of it,
        unless there is a file or folder of this very name; a
        `Table`; a Spark frame; a data set of Hugging Face; or any Arrow data.
    store
        The store of the folder's root: large contents are stored in `files/` below it.
    columns
        The columns of the data set, for which values in the names of folders are converted. None
        before its first commit.

    Raises
    ------
    SchemaMismatchError
        Something does not fit the type; the error names file, row and column. It may be raised
        while the batches are read.
    InvalidInputError
        The source is outside of `sources`, or exceeds a limit.
    NotFoundError
        There is no such source.
    """
    opened = _opened(kind, source, sources, limits, store)
    opened.columns = columns
    if opened.data is None and getattr(kind, "as_rows", False):
        as_rows(opened, limits)
    objects = StoredObjects(store)
    batches = _read(kind.read(opened, limits, objects))
    schema = kind.ingestion
    if schema is None:
        if opened.data is not None:
            schema = opened.data.schema
        else:
            first = next(batches, None)
            if first is None:
                raise refused(f"{opened.name} has no rows")
            schema = first.schema
            batches = chain([first], batches)
        if columns is not None:
            require_classes(schema, columns, opened.name, "the data set")
            if lost := new_classes(schema, columns):
                warn_caller(
                    f"the data set does not keep the names of the classes of {', '.join(lost)}: "
                    "it got its classes with its first commit"
                )
            schema = with_known_features(schema, columns)
            batches = _with_schema(batches, schema)
    return Ingested(schema, batches, opened.inputs, objects)


def _with_schema(batches: Iterator[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield batches with the metadata of a schema."""
    for batch in batches:
        yield pa.RecordBatch.from_arrays(batch.columns, schema=schema)


def _read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield batches; Arrow's errors about a broken stream become errors of txlog."""
    try:
        yield from batches
    except pa.ArrowException as error:
        raise refused(f"the data cannot be read: {error}") from error


def _opened(
    kind: DatasetType, source: Any, sources: Sources, limits: Limits, store: Store
) -> Source:
    """Return the source for a caller's argument."""
    if isinstance(source, Table):
        return _of_table(source, without_secrets(source.uri))
    if isinstance(source, str | os.PathLike):
        return _of_path(kind, os.fspath(source), sources, limits)
    module = type(source).__module__
    if module.startswith("pyspark."):
        frame = source.to_spark() if module.startswith("pyspark.pandas.") else source
        return _of_frame(frame, store)
    data = rows_of(source)
    return Source("", "the data", data=as_reader(source, "source") if data is None else data)


def _of_path(kind: DatasetType, text: str, sources: Sources, limits: Limits) -> Source:
    if getattr(kind, "as_files", False):
        return sources.open(text, limits)
    versioned = _VERSIONED.fullmatch(text.rstrip("/"))
    try:
        found = sources.open(text, limits)
    except NotFoundError:
        if versioned is None:
            raise
        if sources.allowed is not None:
            sources.open(versioned[1], limits)  # This refuses links in the path and below it.
        return _table_at(versioned[1], int(versioned[2]), sources)
    if found.is_folder and any(file.name.startswith(_LOG) for file in found.files):
        return _table_at(text, None, sources)
    root, path, shown = sources.locate(text)
    place = f"{root}/{path}" if path else root
    below = f"{place}/_" if found.is_folder else place  # The folder itself may have a log.
    is_local = scheme_of(root) in (None, "file")
    table = table_above(below) if is_local else far_table_above(below, sources.storage_options)
    if table is not None:
        raise refused(
            f"{shown!r} belongs to a table: its files may have rows that the table no longer has",
            "Name the table",
        )
    if not found.is_folder:
        return found
    found.files = [file for file in found.files if not is_litter(file.name)]
    if not found.files:
        raise NotFoundError(path=shown, reason=f"there is no file with data below {shown!r}")
    return found


def _table_at(text: str, version: int | None, sources: Sources) -> Source:
    root, path, shown = sources.locate(text)
    options = dict(sources.storage_options or {})
    if sources.allowed is not None:  # A log may refer to files at any place.
        options["txlog.paths"] = "inside"
    table = Table(f"{root}/{path}" if path else root, version, storage_options=options)
    return _of_table(table, shown)


def _of_table(table: Table, shown: str) -> Source:
    """Return the rows of a table at a version, in its order."""
    return Source(
        shown,
        shown.rstrip("/").rpartition("/")[2],
        data=table.scan().to_reader(),
        given=Input(shown, role="table", version=table.version),
    )


def _of_frame(frame: Any, store: Store) -> Source:
    """Return the rows of a Spark frame, in the order of its partitions.

    Executors write the rows as a table in the folder, and this process reads the table
    once. So the frame is computed once, in parallel, and no process holds all rows.
    """
    from txlog.spark_ext import write

    place = f"{store.root}/{STAGED}/{REAL.uuid()}"
    staged = open_store(place, store.options)
    try:
        write(
            frame,
            place,
            mode="error",
            properties={"delta.enableRowTracking": "true"},
            storage_options=store.options,
        )
        table = Table(place, storage_options=store.options)
    except BaseException:
        discard_tree(staged)
        raise
    ordered = sorted(
        table.fragments(), key=lambda one: (one.metadata.row_id_meta or range(0)).start
    )

    def batches() -> Iterator[pa.RecordBatch]:
        try:
            for fragment in ordered:
                yield from fragment.to_batches()
        finally:
            discard_tree(staged)

    reader = pa.RecordBatchReader.from_batches(table.schema, batches())
    return Source("", "the frame", data=reader)


def delete_tree(store: Store) -> None:
    """Delete all files below a store's root."""
    store.delete([file.name for file in store.list_tree("")])


def discard_tree(store: Store) -> None:
    """Delete all files below a store's root; skip files that cannot be deleted."""
    with suppress(TxlogError):
        delete_tree(store)


class StoredObjects:
    """Contents in `files/`: each exists once, is complete, and never changes."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.paths: set[str] = set()  # The stored files, and those that existed.

    def put(self, content: bytes) -> str:
        """Return the path of a file with a content; it is written if it does not exist."""
        path = object_path(sha256(content).hexdigest())
        if not is_there(self._store, path):
            self._store.put_if_absent(path, content)
        self.paths.add(path)
        return path

    def put_chunks(self, chunks: Iterator[bytes], digest: Callable[[], str]) -> str:
        """Do the same for a content in chunks; `digest` is called after the last chunk.

        A reader never sees a part of the file: it gets its name when it is complete.
        """
        staged = f"{STAGED}/{REAL.uuid()}"
        try:
            with self._store.open_output(staged) as sink:
                for chunk in chunks:
                    sink.write(chunk)
            path = object_path(digest())
            if not is_there(self._store, path):
                self._name(staged, path)
        finally:
            with suppress(TxlogError):
                self._store.delete([staged])
        self.paths.add(path)
        return path

    def _name(self, staged: str, path: str) -> None:
        """Give a content its name."""
        try:
            self._store.move([(staged, path)])
        except TxlogError:
            if not is_there(self._store, path):
                raise  # If it is there, another writer has written the same content meanwhile.
        else:
            if not is_there(self._store, path):  # A move skips missing files.
                raise DataFileError(
                    path=path,
                    reason="the content was deleted before it was complete: it took more than a "
                    "day, or a clock jumped",
                    remedy="Check the clocks, and call it again",
                )


def object_path(digest: str) -> str:
    """Return the path of the content with a SHA-256, relative to the folder's root."""
    return f"{FILES}/{digest[:2]}/{digest}"


OBJECT_PATH = rf"^{FILES}/[0-9a-f]{{2}}/[0-9a-f]{{64}}$"
"""The pattern of paths of objects."""
