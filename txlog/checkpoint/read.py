"""Read the files of a checkpoint: classic, multi-part, and V2 with or without sidecars."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain

import pyarrow as pa

from txlog.actions.columns import decode_rows, empty_rows
from txlog.actions.file import Sidecar
from txlog.actions.ndjson import rows
from txlog.base.errors import LogCorruptError
from txlog.base.threads import tracked
from txlog.base.thresholds import Threshold
from txlog.checkpoint.file_rows import ALL, Wanted, group_batches, united
from txlog.checkpoint.parquet import Footers, Opened, named, opened
from txlog.log.names import LogFile, log_path
from txlog.log.paths import decode_path
from txlog.reconcile.files import distinct_rows
from txlog.store.base import Store, is_far, map_many

_ROW_BYTES = 100  # The approximate size of a file action in bytes.
_SHARE_BYTES: Threshold = 8 << 20  # Files of more bytes are divided among workers.


@dataclass(frozen=True)
class Source:
    """A file of a checkpoint with file actions, or some of the file's row groups."""

    path: str
    rows: int  # An upper limit, because other actions may be included. 0 if unknown.
    row_groups: tuple[int, ...] | None = None  # None means all.
    size: int | None = None  # The size of the whole file in bytes, if the log states it.
    # The rows of each row group of the file when the row groups were chosen. None: not checked.
    layout: tuple[int, ...] | None = field(default=None, compare=False)


def sources_of(parts: Sequence[LogFile], sidecars: Sequence[Sidecar] = ()) -> list[Source]:
    """Return the sources of a checkpoint's file actions, one for each file."""
    sizes = {part.path: part.size for part in parts}
    # A sidecar that is named twice counts once.
    sizes |= {_sidecar_path(sidecar): sidecar.size_in_bytes for sidecar in sidecars}
    return [Source(path, 0, size=size or None) for path, size in sizes.items()]


def list_sources(
    store: Store,
    parts: Sequence[LogFile],
    sidecars: Sequence[Sidecar] = (),
    footers: Footers | None = None,
) -> list[Source]:
    """Return the sources of a checkpoint's file actions, one for each row group.

    Only the footers of Parquet files are read. Errors are those of `read_files`.
    """

    def groups(source: Source) -> list[Source]:
        if source.path.endswith(".json"):
            return [source]
        with opened(store, source.path, source.size, footers) as file:
            return [_group(source, file, at) for at in file.groups]

    found = map_many(store, groups, sources_of(parts, sidecars))
    return [group for of_one in found for group in of_one]


def shares_of(
    store: Store, sources: Sequence[Source], footers: Footers | None = None
) -> list[Source]:
    """Return sources as shares for workers: small files, and some row groups of large files.

    Only the footers of large files are read. Each share with row groups states the layout of its
    file: if the file was replaced since then, reading the share fails, and leaves out no row.
    Errors are those of `read_files`.
    """

    def cut(source: Source) -> list[Source]:
        size = source.size or 0
        if source.path.endswith(".json") or size <= _SHARE_BYTES:
            return [source]
        with opened(store, source.path, source.size, footers) as file:
            layout = tuple(file.rows(at) for at in file.groups)
            groups = file.groups if source.row_groups is None else source.row_groups
            most = max(1, _SHARE_BYTES * sum(layout) // size)  # Rows of a share.
        shares: list[list[int]] = [[]]
        held = 0
        for at in groups:
            if shares[-1] and held + layout[at] > most:
                shares.append([])
                held = 0
            shares[-1].append(at)
            held += layout[at]
        return [
            Source(source.path, sum(layout[at] for at in share), tuple(share), source.size, layout)
            for share in shares
        ]

    return [share for of_one in map_many(store, cut, sources) for share in of_one]


def about_rows(store: Store, sources: Sequence[Source], footers: Footers | None = None) -> int:
    """Return about how many actions some files have, from their sizes and one footer."""
    size = sum(source.size or 0 for source in sources)
    largest = max(sources, key=lambda source: source.size or 0, default=None)
    if largest is None or not largest.size:
        return 0
    if not largest.path.endswith(".json"):
        with suppress(LogCorruptError), opened(store, largest.path, largest.size, footers) as file:
            return size * sum(map(file.rows, file.groups)) // largest.size
    return size // _ROW_BYTES


def read_files(
    store: Store,
    parts: Sequence[LogFile],
    sidecars: Sequence[Sidecar] = (),
    footers: Footers | None = None,
) -> pa.Table:
    """Return the file actions of a checkpoint as `FILE_ROWS`.

    If statistics exist only as structs, the table has a further column `stats_parsed`.

    Raises
    ------
    LogCorruptError
        A part or sidecar is missing or is not Parquet (or JSON), or a column has a wrong type.
    """
    if not parts:
        return empty_rows()
    return read_sources(store, sources_of(parts, sidecars), parts[0].version, footers)


def read_sources(
    store: Store, sources: Sequence[Source], version: int, footers: Footers | None = None
) -> pa.Table:
    """Return the file actions of some sources of a checkpoint, as `read_files` does."""
    batches = file_batches(store, sources, version, footers=footers)
    tables = [empty_rows(), *(batch for _, batch in batches)]
    return distinct_rows(united(tables), path=sources[0].path if sources else "")


def file_batches(
    store: Store,
    sources: Sequence[Source],
    version: int,
    wanted: Wanted = ALL,
    *,
    footers: Footers | None = None,
) -> Generator[tuple[Source, pa.Table], None, None]:
    """Yield the file actions of a checkpoint batch by batch, with the wanted columns.

    Each batch comes with its row group. Duplicate files are not detected. Statistics that are
    structs are in a further column `stats_parsed`. Errors are those of `read_files`. Several
    sources of a remote store are read at the same time.
    """

    def read(source: Source) -> Iterator[tuple[Source, pa.Table]]:
        return _source_batches(store, source, version, wanted, footers)

    if not is_far(store) or len(sources) < 2:
        yield from chain.from_iterable(
            tracked(map(read, sources), sources, about="files of the log")
        )
        return
    whole = map_many(store, lambda source: list(read(source)), sources, size=_bytes_of)
    yield from chain.from_iterable(whole)


def _bytes_of(source: Source) -> int:
    return source.rows * _ROW_BYTES if source.rows else source.size or 0


def _source_batches(
    store: Store, source: Source, version: int, wanted: Wanted, footers: Footers | None
) -> Iterator[tuple[Source, pa.Table]]:
    if source.path.endswith(".json"):
        with named(source.path):
            data = store.read(source.path)
        found = decode_rows([(version, rows(data, path=source.path), source.path)])
        if not wanted.removes:
            found = found.filter(found["is_add"])
        yield source, found.select(wanted.schema.names)
        return
    with opened(store, source.path, source.size, footers) as file:
        groups = file.groups if source.row_groups is None else source.row_groups
        if source.layout not in (None, tuple(map(file.rows, file.groups))):
            raise LogCorruptError(
                path=source.path,
                reason="another writer replaced the checkpoint while it was being read",
                remedy="Open the table again, and read the checkpoint that is there now",
            )
        for at in groups:
            if at not in file.groups:
                continue  # The file was replaced since then. The caller detects the missing rows.
            group = _group(source, file, at)
            for batch in group_batches(file, at, version, wanted):
                yield group, batch


def _group(source: Source, file: Opened, at: int) -> Source:
    return Source(source.path, file.rows(at), (at,), source.size)


def _sidecar_path(sidecar: Sidecar) -> str:
    path = decode_path(sidecar.path)
    if path.startswith("/") or "://" in path:
        return path
    return log_path(f"_sidecars/{path}")
