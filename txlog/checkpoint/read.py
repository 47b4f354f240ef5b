"""Reading checkpoints: classic, multi-part, and V2 with or without sidecars."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import reduce
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from txlog.actions import (
    DELETION_VECTOR,
    FILE_ROWS,
    Action,
    Metadata,
    Protocol,
    Sidecar,
    decode_action,
    decode_rows,
    empty_rows,
    rows,
)
from txlog.actions.columns import FIELDS, STRING_MAP
from txlog.checkpoint.footer import read_footer
from txlog.errors import LogCorruptError, NotFoundError
from txlog.log import LogFile, decode_path, log_path
from txlog.reconcile import once
from txlog.schema import arrow_type, from_arrow
from txlog.stats import format_partition_values
from txlog.store import Store, locate

_CONTROLS = ("protocol", "metaData", "txn", "domainMetadata", "sidecar")
# Of each action that a checkpoint may hold, a field that it always has.
_KEYS = {
    "add": "path", "remove": "path", "protocol": "minReaderVersion", "metaData": "id",
    "txn": "appId", "domainMetadata": "domain", "sidecar": "path",
    "checkpointMetadata": "version",
}  # fmt: skip
_REMEDY = "Delete or restore the checkpoint; the commits it covers may still be there"


def read_controls(store: Store, parts: Sequence[LogFile]) -> tuple[Action, ...]:
    """Return every action of a checkpoint that is no file action, its sidecars included.

    Raises
    ------
    LogCorruptError
        A part is missing, is no Parquet (or JSON), or an action in it breaks the protocol.
    """
    found: list[Action] = []
    for part in parts:
        if part.name.endswith(".json"):
            objects = rows(_read(store, part.path), path=part.path)
            pairs = [(name, row[name]) for row in objects for name in _CONTROLS if row.get(name)]
        else:
            table = _columns(store, part.path, _CONTROLS)
            pairs = [
                (name, body)
                for name in table.column_names
                for body in _present(table[name]).to_pylist(maps_as_pydicts="lossy")
                if body.get(_KEYS[name]) is not None  # Some writers leave structs of nulls.
            ]
        found.extend(decode_action(name, body, path=part.path) for name, body in pairs)
        if part.name.endswith(".json"):
            _require_whole(found, part)
    return tuple(found)


def _require_whole(found: Sequence[Action], part: LogFile) -> None:
    """Refuse a checkpoint in JSON that was torn between two lines, as far as that shows."""
    for name, kind in (("protocol", Protocol), ("metaData", Metadata)):
        if not any(isinstance(action, kind) for action in found):
            raise LogCorruptError(
                path=part.path,
                reason=f"the checkpoint was torn: it holds no {name} action",
                remedy=_REMEDY,
            )


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
    named = dict.fromkeys(map(_sidecar_path, sidecars))  # Each of them counts once.
    sources = [Source(path, 0) for path in [*(part.path for part in parts), *named]]
    return read_sources(store, sources, parts[0].version)


@dataclass(frozen=True)
class Source:
    """A file of a checkpoint that holds file actions: all of it, or some of its row groups."""

    path: str
    rows: int  # At most: other actions may be among them. 0 if unknown.
    row_groups: tuple[int, ...] | None = None  # None: all.


def list_sources(
    store: Store, parts: Sequence[LogFile], sidecars: Sequence[Sidecar] = ()
) -> list[Source]:
    """Return where the file actions of a checkpoint are, a row group each; errors as `read_files`.

    Of Parquet only the footers are read.
    """
    found = []
    named = dict.fromkeys(map(_sidecar_path, sidecars))
    for path in [*(part.path for part in parts), *named]:
        if path.endswith(".json"):
            found.append(Source(path, 0))
            continue
        with _opened(store, path) as file:
            groups = (file.metadata.row_group(at).num_rows for at in range(file.num_row_groups))
            found += [Source(path, rows, (at,)) for at, rows in enumerate(groups)]
    return found


def read_sources(store: Store, sources: Sequence[Source], version: int) -> pa.Table:
    """Return the file actions of some sources of one checkpoint, as `read_files` does."""
    tables = [empty_rows()]
    for source in sources:
        if source.path.endswith(".json"):
            objects = rows(_read(store, source.path), path=source.path)
            tables.append(decode_rows([(version, objects, source.path)]))
        else:
            tables.append(_file_rows(store, source.path, version, source.row_groups))
    return once(_united(tables), path=sources[0].path if sources else "")


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


@contextmanager
def _named(path: str) -> Any:
    """Turn whatever a broken file makes readers raise into one error that names it."""
    try:
        yield
    except NotFoundError as error:
        raise LogCorruptError(path=path, reason="the file is missing", remedy=_REMEDY) from error
    except (pa.ArrowException, OSError, KeyError, ValueError, TypeError) as error:
        if isinstance(error, LogCorruptError):
            raise
        raise LogCorruptError(
            path=path, reason=f"no readable checkpoint: {error}", remedy=_REMEDY
        ) from error


def _read(store: Store, path: str) -> bytes:
    with _named(path):
        return store.read(path)


def _columns(store: Store, path: str, wanted: Sequence[str]) -> pa.Table:
    with _opened(store, path) as file:
        names = [name for name in file.schema_arrow.names if name in wanted]
        return file.read(columns=names, use_threads=True)


@contextmanager
def _opened(store: Store, path: str) -> Iterator[pq.ParquetFile]:
    """Open a Parquet file of a checkpoint; its own checksums are verified where it has them."""
    home, name = locate(store, path)
    with _named(path), home.open_input(name) as source:
        footer = read_footer(source)
        yield pq.ParquetFile(
            source,
            metadata=footer,
            page_checksum_verification=True,
            coerce_int96_timestamp_unit="us",
        )


def _file_rows(
    store: Store, path: str, version: int, groups: Sequence[int] | None = None
) -> pa.Table:
    with _opened(store, path) as file:
        names = [name for name in file.schema_arrow.names if name in ("add", "remove")]
        groups = list(range(file.num_row_groups) if groups is None else groups)
        table = file.read_row_groups(groups, columns=names, use_threads=True)
        _require_all_rows(file, table, groups)
        parts = [
            _flattened(_present(table[name]), name == "add", version) for name in table.column_names
        ]
        return pa.concat_tables([empty_rows(), *parts], promote_options="permissive")


def _require_all_rows(file: pq.ParquetFile, files: pa.Table, groups: list[int]) -> None:
    """Refuse a row that is no action: its column is gone, or its values are."""
    schema = file.schema_arrow
    if not set(schema.names) <= {*_KEYS}:
        return  # Actions that nobody here knows of may be in other columns.
    leaves = [f"{name}.{key}" for name, key in _KEYS.items() if name not in files.column_names]
    wanted = [leaf for leaf in leaves if leaf.split(".")[0] in schema.names]
    others = file.read_row_groups(groups, columns=wanted)
    count = sum(file.metadata.row_group(at).num_rows for at in groups)
    columns = {
        name: column
        for table in (files, others)
        for name, column in zip(table.column_names, table.columns, strict=True)
    }
    found = sum(
        len(column) - pc.struct_field(column, _KEYS[name]).null_count
        for name, column in columns.items()
    )
    if found < count:  # Rows may be empty, but not hold what cannot be told.
        empty = reduce(pc.and_, (column.is_null() for column in columns.values()))
        missing = count - found - (pc.sum(empty).as_py() or 0)
        if missing > 0:
            raise ValueError(f"{missing} rows hold an action without its key")


def _present(column: pa.ChunkedArray) -> pa.StructArray:
    """Return the structs of a column that are there, in one array."""
    array = column.combine_chunks()
    if isinstance(array, pa.ChunkedArray):
        array = array.chunk(0)
    return array.filter(array.is_valid()) if array.null_count else array


def _flattened(structs: pa.StructArray, is_add: bool, version: int) -> pa.Table:
    """Return `add` or `remove` structs as `FILE_ROWS`; a field that is not there is null."""
    count = len(structs)
    names = {field.name for field in structs.type}
    paths = pc.struct_field(structs, "path")
    if paths.null_count:
        structs = structs.filter(paths.is_valid())
        return _flattened(structs, is_add, version)
    columns: dict[str, pa.Array] = {
        name: pa.nulls(count, FILE_ROWS.field(name).type) for name in FILE_ROWS.names
    }
    columns["version"] = pa.repeat(pa.scalar(version, pa.int64()), count)
    columns["is_add"] = pa.repeat(pa.scalar(is_add), count)
    for name, column in FIELDS.items():
        if name in names:
            columns[column] = pc.struct_field(structs, name).cast(FILE_ROWS.field(column).type)
    for name, column in (("partitionValues", "partition_values"), ("tags", "tags")):
        if name in names:
            columns[column] = pc.struct_field(structs, name).cast(STRING_MAP)
    if is_add and columns["partition_values"].null_count and "partitionValues_parsed" in names:
        parsed = _texts_of(pc.struct_field(structs, "partitionValues_parsed"))
        columns["partition_values"] = pc.coalesce(columns["partition_values"], parsed)
    if "deletionVector" in names:
        vectors = _vectors(pc.struct_field(structs, "deletionVector"))
        columns["deletion_vector"], columns["dv_id"] = vectors
    table = pa.table([columns[name] for name in FILE_ROWS.names], schema=FILE_ROWS)
    if "stats_parsed" in names and columns["stats"].null_count:
        table = table.append_column("stats_parsed", pc.struct_field(structs, "stats_parsed"))
    return table


def _texts_of(parsed: pa.StructArray) -> pa.Array:
    """Return typed partition values as the maps of texts that they stand for."""
    names = [field.name for field in parsed.type]
    kinds = from_arrow(pa.schema(list(parsed.type))).fields
    columns = [
        format_partition_values(
            pc.struct_field(parsed, name).cast(arrow_type(kind.type)), kind.type
        )
        for name, kind in zip(names, kinds, strict=True)
    ]
    rows = zip(*(column.to_pylist() for column in columns), strict=True)
    return pa.array([list(zip(names, row, strict=True)) for row in rows], STRING_MAP)


def _vectors(vectors: pa.StructArray) -> tuple[pa.Array, pa.Array]:
    """Return deletion vectors in our type, and their unique ids."""
    names = {field.name for field in vectors.type}
    children = {
        field.name: pc.struct_field(vectors, field.name).cast(field.type)
        if field.name in names
        else pa.nulls(len(vectors), field.type)
        for field in DELETION_VECTOR
    }
    # Some writers leave an empty struct where there is no vector.
    absent = pc.is_null(children["storageType"])
    typed = pa.StructArray.from_arrays(
        list(children.values()), fields=list(DELETION_VECTOR), mask=absent
    )
    base = pc.binary_join_element_wise(children["storageType"], children["pathOrInlineDv"], "")
    offset = children["offset"].cast(pa.string())
    return typed, pc.coalesce(pc.binary_join_element_wise(base, offset, "@"), base)
