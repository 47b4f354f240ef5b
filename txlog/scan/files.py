"""The data files of a version, as people look at them. Pure."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from txlog.fragments import Fragment, fragment_ids, fragments_of
from txlog.stats import num_records

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
    ]
)


def file_table(live: pa.Table) -> pa.Table:
    """Return live `FILE_ROWS` in the columns of `FILES`, ordered by fragment id."""
    vectors = live["deletion_vector"].combine_chunks()
    deleted = pc.fill_null(pc.struct_field(vectors, "cardinality"), 0)
    columns = [
        live["path"],
        live["size"],
        num_records(live),
        deleted,
        live["partition_values"],
        pc.fill_null(live["modification_time"], 0),
        fragment_ids(live),
        live["stats"],
        live["dv_id"],
    ]
    return pa.table(columns, schema=FILES).sort_by("fragment_id")


def as_fragments(rows: pa.Table) -> list[Fragment]:
    """Return `FILE_ROWS`, which may be removes too, as fragments, in their order.

    Their ids are their places: nothing but the files is meant.
    """
    if rows.num_rows == 0:
        return []
    return fragments_of(rows, pa.array(range(rows.num_rows), pa.int64()), num_records(rows))
