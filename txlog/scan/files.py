"""The data files of a version, as people look at them. Pure."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa
import pyarrow.compute as pc

from txlog.fragments import (
    FEATURE,
    Fragment,
    FragmentRows,
    fragment_rows,
    fragments_of,
    single_files,
)
from txlog.snapshot import Snapshot
from txlog.stats import num_records, physical_rows

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
    ]
)


def file_table(rows: FragmentRows) -> pa.Table:
    """Return the files of fragments in the columns of `FILES`, ordered by fragment id.

    A fragment's primary file comes before those that give it columns.
    """
    owners = rows.columns.owners
    fields = pa.array(rows.columns.fields(), FILES.field("fields").type)
    parts = [
        _described(rows.primaries, rows.ids, pa.nulls(rows.primaries.num_rows, fields.type)),
        _described(rows.columns.rows, rows.ids.take(owners), fields),
    ]
    return pa.concat_tables(parts).sort_by("fragment_id")


def _described(files: pa.Table, ids: pa.Array, fields: pa.Array) -> pa.Table:
    vectors = files["deletion_vector"].combine_chunks()
    columns = [
        files["path"],
        files["size"],
        num_records(files),
        pc.fill_null(pc.struct_field(vectors, "cardinality"), 0),
        files["partition_values"],
        pc.fill_null(files["modification_time"], 0),
        ids,
        files["stats"],
        files["dv_id"],
        fields,
    ]
    return pa.table(columns, schema=FILES)


def files_at(rows: pa.Table, paths: Iterable[str]) -> pa.Table:
    """Return the live `FILE_ROWS` of paths; a path is live once, whatever its vector."""
    return rows.filter(pc.is_in(rows["path"], value_set=pa.array(list(paths), pa.string())))


def live_fragments(snapshot: Snapshot, live: pa.Table, only: int | None = None) -> list[Fragment]:
    """Return a version's live `FILE_ROWS` as fragments, ordered by id; or the one of an id.

    Errors as for `fragment_rows` and `physical_rows`.
    """
    rows = fragment_rows(live, listed=snapshot.supports(FEATURE))
    if only is not None:
        rows = rows.filter(pc.equal(rows.ids, only))
    return fragments_of(rows, physical_rows(rows))


def as_fragments(rows: pa.Table) -> list[Fragment]:
    """Return `FILE_ROWS`, which may be removes too, as fragments, in their order.

    Their ids are their places: nothing but the files is meant.
    """
    if rows.num_rows == 0:
        return []
    places = pa.arange(0, rows.num_rows)
    return fragments_of(single_files(rows, places), num_records(rows))
