"""The data files of a version as fragments, as tables, and as URIs."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from txlog.actions.columns import FILE_ROWS
from txlog.base.arrow import arrow_array, arrow_scalar, numpy_array, pc
from txlog.base.columns import flat, in_places
from txlog.base.errors import InvalidInputError, LogCorruptError
from txlog.base.thresholds import Threshold
from txlog.checkpoint.file_rows import Wanted
from txlog.fragments.fragment import Fragment, FragmentSequence, fragments_of
from txlog.fragments.ids import ids_of, tagged_ids
from txlog.fragments.rows import (
    FEATURE,
    ColumnFiles,
    FragmentRows,
    deleted_counts,
    fragment_rows,
    single_files,
)
from txlog.log.paths import by_folder, decode_path, encoded_paths
from txlog.scan.read_plan import column_names
from txlog.schema.arrow import arrow_schema
from txlog.schema.types import StructType
from txlog.snapshot.live_files import fold_files, has_large_checkpoint
from txlog.snapshot.snapshot import Snapshot
from txlog.stats.collect import stats_leaves
from txlog.stats.files import num_records, partition_texts, physical_rows
from txlog.stats.structs import stats_type, typed_partition_values, typed_stats
from txlog.store.base import Store
from txlog.store.open import uri_of


def live_sequence(snapshot: Snapshot, live: pa.Table) -> FragmentSequence:
    """Return a version's live `FILE_ROWS` as a sequence of fragments, ordered by id.

    Errors as for `fragment_rows` and `physical_rows`.
    """
    rows = fragment_rows(live, listed=snapshot.supports(FEATURE))
    return FragmentSequence(rows, physical_rows(rows))


def as_fragments(rows: pa.Table) -> list[Fragment]:
    """Return `FILE_ROWS`, which may include removes, as fragments in the same order.

    The ids are only indexes here.
    """
    if rows.num_rows == 0:
        return []
    places = pa.arange(0, rows.num_rows)
    return fragments_of(single_files(rows, places), num_records(rows))


FILES = pa.schema(
    [
        pa.field("path", pa.string(), False),
        pa.field("size_bytes", pa.int64(), False),
        pa.field("num_records", pa.int64()),
        pa.field("num_deleted", pa.int64(), False),
        pa.field("partition_values", pa.map_(pa.string(), pa.string())),
        pa.field("modification_time", pa.int64(), False),
        pa.field("fragment_id", pa.int64(), False),
        pa.field("stats", pa.string()),
        pa.field("deletion_vector", pa.string()),
        pa.field("fields", pa.list_(pa.string())),
        pa.field("kind", pa.string(), False),
        pa.field("layer", pa.int64()),
    ]
)

# What a file is: the rows of a fragment, further columns of all rows, or of some rows (FRG-49).
_DATA, _COLUMNS, _LAYER = "data", "columns", "layer"

Statistics = Literal["json", "struct", "flat"]
"""How files are listed with statistics: text as logged, structs of values, or columns of values."""

_MANY_FILES: Threshold = 1 << 15  # About as many files as in a large checkpoint.

# Columns that a row of `FILE_ROWS` determines alone: the needed columns, and the function.
_FILE_VALUES: dict[str, tuple[str, Callable[[pa.Table], Any]]] = {
    "path": ("path", lambda files: files["path"]),
    "size_bytes": ("size", lambda files: files["size"]),
    "num_records": ("stats", num_records),
    "num_deleted": ("deletion_vector", deleted_counts),
    "partition_values": ("partition_values", lambda files: files["partition_values"]),
    "modification_time": (
        "modification_time",
        lambda files: pc.fill_null(files["modification_time"], 0),
    ),
    "stats": ("stats", lambda files: files["stats"]),
    "deletion_vector": ("dv_id", lambda files: files["dv_id"]),
}


def list_files(
    store: Store,
    snapshot: Snapshot,
    files: Callable[[], pa.Table],
    columns: Sequence[str] | None = None,
    *,
    statistics: Statistics = "json",
    chosen: FragmentRows | None = None,
) -> pa.Table:
    """Return a snapshot's files in columns of `FILES`; all of them by default.

    They are ordered by fragment id, except for a large table if a file's own row has all of the
    columns.

    With other `statistics`, values replace `partition_values` and `stats` (`typed_values`).

    Parameters
    ----------
    files
        Returns the live `FILE_ROWS` if all of them are needed.
    chosen
        The fragments to list. Default: all.

    Raises
    ------
    InvalidInputError
        A column does not exist, or `statistics` is none of the three.
    """
    if statistics not in ("json", "struct", "flat"):
        raise InvalidInputError(
            argument="statistics", reason=f"{statistics!r} is not json, struct or flat"
        )
    names = None if columns is None else column_names(columns)
    is_listed = snapshot.supports(FEATURE)
    is_streamed = chosen is None and not is_listed and _is_large(snapshot)

    def rows() -> FragmentRows:
        return fragment_rows(files(), listed=is_listed) if chosen is None else chosen

    if statistics != "json":
        typed = partial(typed_values, snapshot, flatten=statistics == "flat")
        _require_columns(names or (), [*_PLAIN, *typed(FILE_ROWS.empty_table()).column_names])
        if is_streamed:
            own = [name for name in _PLAIN if name in _FILE_VALUES]

            def whole(files: pa.Table) -> pa.Table:
                return _beside(_columns_of(files, own), typed(files))

            found = _in_order(store, snapshot, Wanted(), whole, names)
        else:
            found = _typed_files(snapshot, rows(), typed)
        return found if names is None else found.select(names)
    names = FILES.names if names is None else names
    _require_columns(names, FILES.names)
    if not is_streamed:
        return file_table(snapshot, rows(), names)
    own = [name for name in names if name in _FILE_VALUES]
    # Statistics as structs can replace the text for counts, but not the text itself.
    bounds_of = None if "stats" in names else ()
    if own != names:
        own = list(dict.fromkeys(["path", *own]))
        wanted = Wanted([_FILE_VALUES[name][0] for name in own], bounds_of=bounds_of)
        described = partial(_columns_of, names=own)
        return _in_order(store, snapshot, wanted, described, own).select(names)

    def columns_of(batches: Iterator[tuple[Any, pa.Table]]) -> pa.Table:
        return pa.concat_tables([_columns_of(rows, names) for _, rows in batches])

    wanted = Wanted([_FILE_VALUES[name][0] for name in names], bounds_of=bounds_of)
    return fold_files(store, snapshot, wanted, columns_of)


def _in_order(
    store: Store,
    snapshot: Snapshot,
    wanted: Wanted,
    described: Callable[[pa.Table], pa.Table],
    names: Sequence[str] | None,
) -> pa.Table:
    """Return the files of a large version by their ids, with the columns that say what a file is.

    Beside the result, only a part of the log is in memory.

    Parameters
    ----------
    described
        Returns the columns that `FILE_ROWS` determine alone, with `path`.
    names
        The columns to keep, if `described` has them, beside those above. None: all.
    """

    def parts_of(batches: Iterator[tuple[Any, pa.Table]]) -> list[pa.Table]:
        parts = []
        for _, rows in batches:
            part = described(rows)
            kept = [one for one in part.column_names if one in (*(names or (one,)), "path")]
            parts.append(part.select(kept).append_column(id_field, tagged_ids(rows)))
        return parts

    id_field = FILES.field("fragment_id").with_nullable(True)
    parts = fold_files(store, snapshot, wanted, parts_of)
    named = pa.concat_tables([part.select(["path", id_field.name]) for part in parts])
    ids = numpy_array(ids_of(flat(named[id_field.name]), named["path"]))
    del named
    order = np.argsort(ids)
    places = np.empty_like(order)
    places[order] = np.arange(len(order))
    found = in_places(parts, places).drop_columns([id_field.name])
    own = {
        "fragment_id": arrow_array(ids[order], pa.int64()),
        "fields": pa.nulls(found.num_rows, FILES.field("fields").type),
        "kind": pa.repeat(arrow_scalar(_DATA), found.num_rows),
        "layer": pa.nulls(found.num_rows, pa.int64()),
    }
    for name, column in own.items():
        found = found.append_column(FILES.field(name), column)
    known = [name for name in FILES.names if name in found.column_names]
    return found.select(known + [name for name in found.column_names if name not in known])


def _require_columns(names: Sequence[str], known: Sequence[str]) -> None:
    for name in names:
        if name not in known:
            raise InvalidInputError(
                argument="columns",
                field=str(name),
                reason="files have no such column",
                remedy=f"Choose from {', '.join(known)}",
            )


def _is_large(snapshot: Snapshot) -> bool:
    return has_large_checkpoint(snapshot) or snapshot.tail.rows.num_rows >= _MANY_FILES


def _columns_of(files: pa.Table, names: Sequence[str]) -> pa.Table:
    return pa.table(
        [_FILE_VALUES[name][1](files) for name in names],
        schema=pa.schema([FILES.field(name) for name in names]),
    )


def file_table(snapshot: Snapshot, rows: FragmentRows, names: Sequence[str]) -> pa.Table:
    """Return the files of fragments in columns of `FILES`, ordered by fragment id.

    A fragment's primary file comes before its column files, and these before its layers.
    """
    # Columns that are not requested are neither computed nor sorted: statistics are long texts.
    made = list(dict.fromkeys([*names, "fragment_id"]))
    parts = _described_parts(snapshot, _by_layer(rows), made)
    return pa.concat_tables(parts).sort_by("fragment_id").select(list(names))


_PLAIN = [name for name in FILES.names if name not in ("partition_values", "stats")]


def _typed_files(
    snapshot: Snapshot, rows: FragmentRows, typed: Callable[[pa.Table], pa.Table]
) -> pa.Table:
    """Return the files of fragments with typed values, ordered by fragment id."""
    rows = _by_layer(rows)
    described = _described_parts(snapshot, rows, _PLAIN)
    values = (typed(rows.primaries), typed(rows.columns.rows))
    return pa.concat_tables(map(_beside, described, values)).sort_by("fragment_id")


def _beside(files: pa.Table, values: pa.Table) -> pa.Table:
    for name, column in zip(values.column_names, values.columns, strict=True):
        files = files.append_column(name, column)
    return files


def _described_parts(
    snapshot: Snapshot, rows: FragmentRows, names: Sequence[str]
) -> list[pa.Table]:
    """Return the primary files of fragments, and their column files."""
    columns = rows.columns
    count = rows.primaries.num_rows
    is_layer = pc.greater(columns.layers, 0)
    kinds = pc.if_else(is_layer, _LAYER, _COLUMNS)
    fields = arrow_array(_names_of(snapshot, columns), FILES.field("fields").type)
    return [
        _described(
            rows.primaries,
            {
                "fragment_id": rows.ids,
                "fields": pa.nulls(count, fields.type),
                "kind": pa.repeat(arrow_scalar(_DATA), count),
                "layer": pa.nulls(count, pa.int64()),
            },
            names,
        ),
        _described(
            columns.rows,
            {
                "fragment_id": rows.ids.take(columns.owners),
                "fields": fields.take(columns.field_set),
                "kind": kinds,
                "layer": pc.if_else(is_layer, columns.layers, None),
            },
            names,
        ),
    ]


def _by_layer(rows: FragmentRows) -> FragmentRows:
    """Return fragments with their column files in the order of their layers."""
    columns = rows.columns
    if not columns.rows.num_rows:
        return rows
    order = pc.sort_indices(columns.layers)
    return replace(rows, columns=columns.take(order, columns.owners.take(order)))


def _names_of(snapshot: Snapshot, columns: ColumnFiles) -> list[list[str]]:
    """Return the columns of each of the field sets, by the names that they have in the table."""
    mode = snapshot.mapping_mode
    known = {field.name_in_files(mode): field.name for field in snapshot.schema.fields}
    return [[known.get(name, name) for name in names] for names in columns.field_sets]


def _described(files: pa.Table, own: Mapping[str, pa.Array], names: Sequence[str]) -> pa.Table:
    columns = [own[name] if name in own else _FILE_VALUES[name][1](files) for name in names]
    return pa.table(columns, schema=pa.schema([FILES.field(name) for name in names]))


def typed_values(snapshot: Snapshot, files: pa.Table, *, flatten: bool) -> pa.Table:
    """Return the partition values and statistics of `FILE_ROWS` in the types of the columns. Pure.

    The columns are the structs `partition`, `null_count`, `min` and `max`; with `flatten` their
    leaves, such as `min.st.x`. `partition` is omitted for a table without partitions.
    """
    columns: list[Any] = []
    names: list[str] = []
    partitioned = [f for f in snapshot.schema.fields if f.name in snapshot.partition_columns]
    stored = [f for f in snapshot.schema.fields if f.name not in snapshot.partition_columns]
    if partitioned:
        values = typed_partition_values(
            files["partition_values"], partitioned, mapping_mode=snapshot.mapping_mode
        )
        columns.append(_renamed(values, pa.struct(arrow_schema(StructType(tuple(partitioned))))))
        names.append("partition")
    indexed = stats_leaves(StructType(tuple(stored)), snapshot.properties)
    known = _only(StructType(tuple(stored)), indexed)
    kinds = [
        stats_type(known, indexed=-1, mapping_mode=mode) for mode in (snapshot.mapping_mode, "none")
    ]
    stats = _renamed(typed_stats(files, kinds[0]), kinds[1])
    for name, part in (("null_count", "nullCount"), ("min", "minValues"), ("max", "maxValues")):
        if stats.type.get_field_index(part) >= 0:
            columns.append(pc.struct_field(stats, part))
            names.append(name)
    if flatten:
        leaves = [leaf for pair in zip(names, columns, strict=True) for leaf in _leaves(*pair)]
        names, columns = [name for name, _ in leaves], [column for _, column in leaves]
    return pa.table(columns, names=names)


def partitions_of(snapshot: Snapshot, files: pa.Table) -> pa.Table:
    """Return the distinct logged partition values of `FILE_ROWS`, sorted. Pure.

    Files of which the log says that all rows are deleted do not count.
    """
    names = snapshot.partition_columns
    if not names:
        return pa.table({})
    emptied = pc.less_equal(num_records(files), deleted_counts(files))
    files = files.filter(pc.invert(pc.fill_null(emptied, False)))
    mode = snapshot.mapping_mode
    texts = [partition_texts(files, one, mode) for one in snapshot.partition_fields]
    values = pa.table([one.cast(pa.string()) for one in texts], names=names)
    order = [(name, "ascending") for name in names]
    return values.group_by(names).aggregate([]).sort_by(order)


def partition_sums(snapshot: Snapshot, files: pa.Table) -> pa.Table:
    """Return the sums of `FILE_ROWS` for each partition, the largest partition first. Pure.

    Columns: `partition` (`a=1/b=2`, with the values as logged), `files`, `bytes` and `rows`.
    """
    names = [f"k{place}" for place in range(len(snapshot.partition_columns))]
    mode = snapshot.mapping_mode
    texts = [partition_texts(files, one, mode) for one in snapshot.partition_fields]
    keys = [pc.fill_null(one.cast(pa.string()), "None") for one in texts]
    columns = [*keys, files["size"], num_records(files)]
    sums = (
        pa.table(columns, [*names, "bytes", "rows"])
        .group_by(names, use_threads=False)
        .aggregate([([], "count_all"), ("bytes", "sum"), ("rows", "sum")])
        .sort_by([("bytes_sum", "descending")])
    )
    parts = [
        pc.binary_join_element_wise(f"{column}=", sums[name], "")
        for column, name in zip(snapshot.partition_columns, names, strict=True)
    ]
    labels = pc.binary_join_element_wise(*parts, "/")
    counted = [sums["count_all"], sums["bytes_sum"], sums["rows_sum"]]
    return pa.table([labels, *counted], ["partition", "files", "bytes", "rows"])


def _only(schema: StructType, leaves: Collection[tuple[str, ...]], above: Any = ()) -> StructType:
    """Return the columns of a schema that contain some paths, with only these leaves."""
    found = []
    for column in schema.fields:
        path = (*above, column.name)
        if isinstance(column.type, StructType):
            below = _only(column.type, leaves, path)
            found += [replace(column, type=below)] if below.fields else []
        elif path in leaves:
            found.append(column)
    return StructType(tuple(found))


def _renamed(array: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return structs with the names of a type that differs only in the names."""
    if not pa.types.is_struct(kind):
        return array
    children = [_renamed(array.field(at), field.type) for at, field in enumerate(kind)]
    fields = [field.with_type(child.type) for field, child in zip(kind, children, strict=True)]
    return pa.StructArray.from_arrays(children, fields=fields, mask=array.is_null())


def _leaves(name: str, column: Any) -> Iterator[tuple[str, Any]]:
    """Yield the columns without children below a column, by their dotted names."""
    if not pa.types.is_struct(column.type):
        yield name, column
        return
    for field in column.type:
        yield from _leaves(f"{name}.{field.name}", pc.struct_field(column, field.name))


_ROWS: Threshold = 1 << 17  # At a time: an Arrow array holds 2 GiB of text at most.


def uris_of(store: Store, paths: pa.Array | pa.ChunkedArray) -> list[str]:
    """Return the absolute path or URI of each logged path, decoded.

    Raises
    ------
    LogCorruptError
        A relative path leads out of the table.
    """
    chunks = paths.chunks if isinstance(paths, pa.ChunkedArray) else [paths]
    found: list[str] = []
    for chunk in chunks:
        for start in range(0, len(chunk), _ROWS):
            uris = _uris(store, chunk.slice(start, _ROWS).cast(pa.string()))
            found += uris.to_pylist()
    return found


def _uris(store: Store, paths: pa.Array) -> pa.Array:
    """Return the absolute path or URI of each path of an array of text."""
    encoded = encoded_paths(paths)
    if encoded is None:
        return _below_root(store, paths)
    odd = paths.filter(encoded)
    try:
        found = by_folder(odd, lambda path: uri_of(store, decode_path(path)))
    except LogCorruptError:  # A folder fails; the error must name the path.
        found = _one_by_one(store, odd)
    if len(odd) == len(paths):
        return found
    plain = paths.filter(pc.invert(encoded))
    return pc.replace_with_mask(
        pc.replace_with_mask(paths, encoded, found),
        pc.invert(encoded),
        _below_root(store, plain),
    )


def _below_root(store: Store, paths: pa.Array) -> pa.Array:
    """Return the URIs of relative paths that decoding does not change."""
    sample = paths[0].as_py()
    whole = store.resolve(sample)
    if not whole.endswith(sample):  # The store has other rules.
        return _one_by_one(store, paths)
    return pc.binary_join_element_wise(whole.removesuffix(sample), paths, "")


def _one_by_one(store: Store, paths: pa.Array) -> pa.Array:
    """Return the URIs of paths in unusual forms."""
    return arrow_array(
        [uri_of(store, decode_path(path)) for path in paths.to_pylist()], pa.string()
    )
