"""Reading the files of a checkpoint: classic, multi-part, and V2 with or without sidecars."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from txlog.actions import FILE_ROWS, Sidecar, decode_rows, empty_rows, rows
from txlog.checkpoint.file_rows import ALL, Wanted, group_batches
from txlog.checkpoint.opened import named, opened
from txlog.log import LogFile, decode_path, log_path
from txlog.reconcile import once
from txlog.store import Store


@dataclass(frozen=True)
class Source:
    """A file of a checkpoint that holds file actions: all of it, or some of its row groups."""

    path: str
    rows: int  # At most: other actions may be among them. 0 if unknown.
    row_groups: tuple[int, ...] | None = None  # None: all.


def sources_of(parts: Sequence[LogFile], sidecars: Sequence[Sidecar] = ()) -> list[Source]:
    """Return where the file actions of a checkpoint are, a file each."""
    named_once = dict.fromkeys(map(_sidecar_path, sidecars))  # Each of them counts once.
    return [Source(path, 0) for path in [*(part.path for part in parts), *named_once]]


def list_sources(
    store: Store, parts: Sequence[LogFile], sidecars: Sequence[Sidecar] = ()
) -> list[Source]:
    """Return where the file actions of a checkpoint are, a row group each; errors as `read_files`.

    Of Parquet only the footers are read.
    """
    found = []
    for source in sources_of(parts, sidecars):
        if source.path.endswith(".json"):
            found.append(source)
            continue
        with opened(store, source.path) as file:
            found += [Source(source.path, file.rows(at), (at,)) for at in file.groups]
    return found


def read_files(
    store: Store, parts: Sequence[LogFile], sidecars: Sequence[Sidecar] = ()
) -> pa.Table:
    """Return the file actions of a checkpoint as `FILE_ROWS`.

    Where statistics are there only as a struct, the table has one more column, `stats_parsed`.

    Raises
    ------
    LogCorruptError
        A part or sidecar is missing, is no Parquet (or JSON), or a column has a wrong type.
    """
    if not parts:
        return empty_rows()
    return read_sources(store, sources_of(parts, sidecars), parts[0].version)


def read_sources(store: Store, sources: Sequence[Source], version: int) -> pa.Table:
    """Return the file actions of some sources of one checkpoint, as `read_files` does."""
    tables = [empty_rows(), *(batch for _, batch in file_batches(store, sources, version))]
    return once(_united(tables), path=sources[0].path if sources else "")


def file_batches(
    store: Store, sources: Sequence[Source], version: int, wanted: Wanted = ALL
) -> Iterator[tuple[Source, pa.Table]]:
    """Yield file actions of a checkpoint, batch by batch, with the columns that are wanted.

    With each batch comes the row group that it is out of. Whether a file is there twice is not
    looked at. Statistics that are structs are in a further column, `stats_parsed`. Errors are
    those of `read_files`.
    """
    for source in sources:
        if source.path.endswith(".json"):
            with named(source.path):
                data = store.read(source.path)
            found = decode_rows([(version, rows(data, path=source.path), source.path)])
            if not wanted.removes:
                found = found.filter(found["is_add"])
            yield source, found.select(wanted.schema.names)
            continue
        with opened(store, source.path) as file:
            groups = file.groups if source.row_groups is None else source.row_groups
            for at in groups:
                group = Source(source.path, file.rows(at), (at,))
                for batch in group_batches(file, at, version, wanted):
                    yield group, batch


def _united(tables: Sequence[pa.Table]) -> pa.Table:
    try:
        return pa.concat_tables(tables, promote_options="permissive")
    except pa.ArrowException:
        # Parts of different schemas: statistics as structs are an aid that can be done without.
        return pa.concat_tables([table.select(FILE_ROWS.names) for table in tables])


def _sidecar_path(sidecar: Sidecar) -> str:
    path = decode_path(sidecar.path)
    if path.startswith("/") or "://" in path:
        return path
    return log_path(f"_sidecars/{path}")
