"""The sources of rows that a command names: a table, a file, or a folder of files."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Any

import pyarrow as pa

from txlog import Table
from txlog.base.arrow import ds
from txlog.base.errors import InvalidInputError, NotFoundError, TxlogError
from txlog.base.uris import file_path, is_file_uri, scheme_of
from txlog.extend import (
    RowFile,
    Store,
    StoreFiles,
    far_table_above,
    is_there,
    links_in,
    open_store,
    row_files,
    table_above,
    united_rows,
)

FORMATS = {
    ".parquet": "parquet", ".parq": "parquet", ".pq": "parquet",
    ".csv": "csv", ".json": "json", ".jsonl": "json", ".ndjson": "json",
    ".arrow": "ipc", ".ipc": "ipc", ".feather": "feather", ".orc": "orc",
}  # fmt: skip
"""The formats of files with rows, by the extensions of their names."""


@dataclass(frozen=True)
class _Found:
    """The files of a source, below a folder of a file system of pyarrow."""

    root: str  # With a slash at its end; empty for paths that are whole.
    files: tuple[RowFile, ...]
    home: Any


def rows_of(source: str, target: pa.Schema) -> Any:
    """Return the rows of a table, a file, or all files of a folder.

    What is a table is read as a table. The extension of a file's name names its format. Folders
    such as `day=1` are partition columns, files that systems leave behind are left out, and columns
    that some files lack are null. Texts in CSV files are converted to the types of the columns.

    Parameters
    ----------
    target
        The columns of the table for which the rows are.

    Raises
    ------
    NotFoundError
        There is neither such a file nor such a table.
    InvalidInputError
        A file name has no known extension, a file is damaged, it belongs to a table, the folder has
        a table or a link below it, or its files have different formats or columns.
    """
    place = _local(source)
    is_file = place is not None and place.is_file()
    if not is_file and Table.exists(source):
        return Table(source).scan()
    _require_no_table(source, place)
    if place is None:
        found = _far_file(source) or _of_folder(source, source)
    elif place.is_dir():
        found = _of_folder(str(place), source)
    else:
        _require_format(source, PurePath(source).suffix.lower())
        found = _Found("", (RowFile(str(place)),), _local_files())
    return _read(source, found, target)


def _require_no_table(source: str, place: Path | None) -> None:
    """Raise if files of a table are named, or a folder whose log has no commit."""
    above: Path | str | None
    if place is None:
        # A step below: also the folder itself may have a log.
        above = far_table_above(f"{source.rstrip('/')}/_")
    else:
        above = table_above(place / "_" if place.is_dir() else place)
    if above is None:
        return
    if above == place or above == source.rstrip("/"):
        raise InvalidInputError(
            argument="source",
            reason=f"{source} has a log without a commit, which alone could say what its rows are",
            remedy="Restore the log, or move it away if all files have rows that you want",
        )
    raise InvalidInputError(
        argument="source",
        reason=f"{source} belongs to the table {above}: its files may have rows that the "
        "table no longer has",
        remedy="Name the table, or write the rows that you want into a table of their own",
    )


def _local_files() -> Any:
    from pyarrow.fs import LocalFileSystem

    return LocalFileSystem()


def _files_of(store: Store) -> Any:
    from pyarrow.fs import PyFileSystem

    return PyFileSystem(StoreFiles(store))


def _local(source: str) -> Path | None:
    """Return the path of a source on the local disk, or None."""
    if is_file_uri(source):
        return Path(file_path(source, decode=True))
    return Path(source) if scheme_of(source) in (None, "file") else None


def _far_file(source: str) -> _Found | None:
    """Return a source in a store of objects that is a single file."""
    folder, _, name = source.rpartition("/")
    if not name or folder.endswith(("/", ":")):  # A whole bucket.
        return None
    store = open_store(folder)
    if not is_there(store, name):
        return None
    _require_format(source, PurePath(name).suffix.lower())
    return _Found("", (RowFile(name),), _files_of(store))


def _require_format(source: str, ending: str, file: str | None = None) -> str:
    """Return the format of a file by the extension of its name."""
    if ending not in FORMATS:
        what = "its extension" if file is None else f"the extension of {file} in it"
        raise InvalidInputError(
            argument="source",
            field=file,
            reason=f"{source} is not a table, and {what} is none of {', '.join(FORMATS)}",
            remedy="Name a file, a folder of files with rows, or a table",
        )
    return FORMATS[ending]


def _of_folder(root: str, source: str) -> _Found:
    """Return the files of a folder; all of them have one format."""
    store = open_store(root)
    names = (info.name for info in store.list_tree("") if info.size)
    files = row_files(names, source, links=links_in(store))
    formats: dict[str, str] = {}
    for file in files:
        formats.setdefault(_require_format(source, _ending(file, source), file.name), file.name)
    if len(formats) > 1:
        (one, first), (other, second) = list(formats.items())[:2]
        raise InvalidInputError(
            argument="source",
            reason=f"{source} has files of two formats: {first} is {one}, {second} is {other}",
            remedy="Name the files one by one",
        )
    if _local(root) is not None:
        return _Found(f"{root.rstrip('/')}/", tuple(files), _local_files())
    return _Found("", tuple(files), _files_of(store))


def _ending(file: RowFile, source: str) -> str:
    """Return the extension of a file, else that of its folder."""
    return (PurePath(file.name).suffix or PurePath(source).suffix).lower()


def _read(source: str, found: _Found, target: pa.Schema) -> pa.RecordBatchReader:
    from pyarrow import csv

    kind: Any = FORMATS[_ending(found.files[0], source)]
    if kind == "csv":
        # pyarrow infers timestamps: a type with a zone would require a zone in each text.
        types = {f.name: f.type for f in target if not pa.types.is_timestamp(f.type)}
        plain = {name: one for name, one in types.items() if not pa.types.is_nested(one)}
        options = csv.ConvertOptions(column_types=plain)
        kind = ds.CsvFileFormat(convert_options=options)

    def opened(file: RowFile) -> Any:
        with _named_errors(file):
            paths = [f"{found.root}{file.name}"]
            return ds.dataset(paths, format=kind, filesystem=found.home)

    def batches() -> Iterator[pa.RecordBatch]:
        for file in united.files:
            data = opened(file)
            with _named_errors(file):
                for batch in data.scanner().to_reader():
                    yield united.fit(file, batch)

    united = united_rows(found.files, (opened(file).schema for file in found.files), target)
    return pa.RecordBatchReader.from_batches(united.schema, batches())


@contextmanager
def _named_errors(file: RowFile) -> Iterator[None]:
    """Raise errors of txlog for those of pyarrow, with the name of the file."""
    try:
        yield
    except FileNotFoundError as error:
        raise NotFoundError(path=file.name, reason="there is no such file") from error
    except TxlogError:
        raise
    except (pa.ArrowException, OSError, ValueError) as error:  # Codecs raise the latter two.
        raise InvalidInputError(
            argument="source", reason=f"{file.name} cannot be read: {error}"
        ) from error
