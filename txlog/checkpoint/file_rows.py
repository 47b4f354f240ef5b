"""Read file actions from a Parquet file of a checkpoint as batches of `FILE_ROWS` columns.

A row of a checkpoint is one action. It has a struct column for each kind of action (`add`,
`remove`, `protocol`, …): one of them has a value, the others are null. `group_batches` converts one
row group to `FILE_ROWS` in four steps:

1. `_require_all_rows` checks that each row contains an action with its key. Usually the counts in
   the footer show this, and nothing is read.
2. `_leaves` chooses the columns to read: the wanted ones, except those that are null in the whole
   row group according to the footer.
3. The row group is decoded in batches, so that only a bounded part of it is in memory.
4. `_flattened` keeps the rows whose struct is not null, and converts each field of the struct to a
   column of `FILE_ROWS`.

For example, a row group has these three rows:

    add                        remove                   txn
    {path: a, size: 10, …}     null                     null
    null                       {path: b, size: 20, …}   null
    null                       null                     {appId: job, version: 1}

`Wanted(("is_add", "path", "size"))` reads the columns `add.path`, `add.size`, `remove.path` and
`remove.size` of the file. It yields two tables, each with the columns `is_add`, `path` and `size`:
one with the row (true, a, 10), one with the row (false, b, 20).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce

import pyarrow as pa

from txlog.actions.columns import (
    COLUMNS,
    DELETION_VECTOR,
    FILE_ROWS,
    STRING_MAP,
    require_sizes,
    vector_ids,
)
from txlog.base.arrow import arrow_array, arrow_scalar, pc
from txlog.base.thresholds import Threshold
from txlog.checkpoint.parquet import KEYS, Opened
from txlog.schema.arrow import arrow_type, from_arrow
from txlog.stats.partition import format_partition_values
from txlog.stats.structs import with_json_stats

_BATCH_ROWS: Threshold = 16_384  # The smallest number of rows of a batch.
_MOST: Threshold = 8  # Batches of narrow rows have up to this many times more rows.
_BATCH_BYTES: Threshold = 8 << 20
# A file with fewer bytes cannot have many rows, unless they expand strongly.
_SMALL_BYTES: Threshold = 4 << 20
_SMALL_BATCH_ROWS: Threshold = 4096
_LOGGED = {column: name for name, column in COLUMNS.items()} | {"dv_id": "deletionVector"}
STRUCTS = "stats_parsed"
"""The additional column for statistics that exist as structs."""

Path = tuple[str, ...]


@dataclass(frozen=True)
class Wanted:
    """The columns of file actions that a caller wants."""

    columns: Collection[str] = tuple(FILE_ROWS.names)  # Columns of `FILE_ROWS`.
    removes: bool = True  # False: only `add` actions are wanted.
    # For statistics that are structs: the physical paths of the columns whose statistics are
    # wanted. None: all columns, but only of files without statistics as text.
    bounds_of: tuple[Path, ...] | None = None
    encoded: bool = False  # Whether maps of partition values may contain dictionary arrays.

    @property
    def schema(self) -> pa.Schema:
        """The columns in the order of `FILE_ROWS`, without the column for structs of statistics."""
        return pa.schema([field for field in FILE_ROWS if field.name in self.columns])


ALL = Wanted()


def group_batches(file: Opened, group: int, version: int, wanted: Wanted) -> Iterator[pa.Table]:
    """Yield the file actions of a row group with the wanted columns.

    Raises
    ------
    ValueError, pyarrow.ArrowException
        The file contradicts its footer, or the action in a row cannot be determined.
    """
    kinds = [kind for kind in ("add", "remove") if kind in file.kinds]
    counts = {kind: file.actions(group, kind) for kind in kinds}
    read = [kind for kind in kinds if counts[kind] != 0 and (kind == "add" or wanted.removes)]
    checked = _require_all_rows(file, group)
    found = dict.fromkeys(read, 0)
    columns = [leaf for kind in read for leaf in _leaves(file, group, kind, wanted)]
    if not columns:
        return
    count = _batch_rows(file, group, columns)
    file.require_bounded(group, columns)
    left = file.most_bytes
    # Threads save time only if all columns are read: one thread frees memory of another one.
    batches = file.file.iter_batches(
        count, row_groups=[group], columns=columns, use_threads=wanted.columns == ALL.columns
    )
    for batch in batches:
        for kind in read:
            rows = _flattened(_present(batch.column(kind)), kind == "add", version, wanted)
            found[kind] += rows.num_rows
            if file.size < _SMALL_BYTES:  # A text may not be UTF-8. Checking many texts takes long.
                rows.validate(full=True)
            left -= rows.nbytes
            if left < 0:
                raise file.too_large()
            if rows.num_rows:
                yield rows
    for kind in read if checked else ():
        if found[kind] != counts[kind]:
            raise ValueError(
                f"row group {group} has {found[kind]} {kind} actions, but its footer says "
                f"{counts[kind]}"
            )


def _batch_rows(file: Opened, group: int, columns: Collection[str]) -> int:
    """Return the number of rows of a batch: many batches cost time, large batches cost memory."""
    if file.size < _SMALL_BYTES:  # A text that is stored once may occur in each row.
        return _SMALL_BATCH_ROWS
    least = file.bytes(group, columns) * _BATCH_ROWS / max(1, file.rows(group))
    return _BATCH_ROWS * max(1, min(_MOST, int(_BATCH_BYTES / max(1, least))))


def _leaves(file: Opened, group: int, kind: str, wanted: Wanted) -> list[str]:
    """Return the columns to read, without those that are null in the whole row group."""
    there = {leaf.split(".")[1] for leaf in file.leaves if leaf.startswith(f"{kind}.")}
    names = {KEYS[kind], *(_LOGGED[name] for name in wanted.columns if name in _LOGGED)}
    found = [f"{kind}.{name}" for name in sorted(names & there)]
    if file.is_empty(group, f"{kind}.deletionVector.storageType"):
        found = [leaf for leaf in found if leaf != f"{kind}.deletionVector"]
    if wanted != ALL and file.is_empty(group, f"{kind}.tags.key_value.key"):
        found = [leaf for leaf in found if leaf != f"{kind}.tags"]
    if kind == "remove":
        return found
    if "partition_values" in wanted.columns:
        parsed = "add.partitionValues_parsed."  # Some files may have statistics only in this form.
        found += [leaf for leaf in file.leaves if leaf.startswith(parsed)]
    if "stats" in wanted.columns and STRUCTS in there:
        if wanted.bounds_of is None:
            return [*found, f"add.{STRUCTS}"]
        structs = _struct_leaves(file, wanted.bounds_of)
        # If all files have structs, the texts are not read.
        counted = file.values(group, f"add.{STRUCTS}.numRecords")
        if counted is not None and counted == file.actions(group, "add"):
            found = [leaf for leaf in found if leaf != "add.stats"]
        found += structs
    return found


def _struct_leaves(file: Opened, paths: Collection[Path]) -> list[str]:
    wanted = [f"add.{STRUCTS}.numRecords", f"add.{STRUCTS}.tightBounds"]
    wanted += [
        ".".join(("add", STRUCTS, side, *path))
        for path in paths
        for side in ("minValues", "maxValues", "nullCount")
    ]
    return [leaf for leaf in wanted if leaf in file.leaves]


def _require_all_rows(file: Opened, group: int) -> bool:
    """Raise if a row contains no action with its key.

    Returns
    -------
    Whether the footer contains the counts of the actions.
    """
    if not set(file.file.schema_arrow.names) <= {*KEYS}:
        return False  # Other columns may contain actions that txlog does not know.
    counts = [file.actions(group, kind) for kind in file.kinds]
    if None not in counts and sum(filter(None, counts)) >= file.rows(group):
        return True
    leaves = [f"{kind}.{KEYS[kind]}" for kind in file.kinds]
    file.require_bounded(group, leaves)
    table = file.file.read_row_group(group, columns=leaves)
    found = sum(
        len(table[kind]) - pc.struct_field(table[kind], KEYS[kind]).null_count
        for kind in table.column_names
    )
    if found < file.rows(group):  # Rows may be empty, but they must not contain an unknown action.
        empty = reduce(pc.and_, (column.is_null() for column in table.columns))
        missing = file.rows(group) - found - (pc.sum(empty).as_py() or 0)
        if missing > 0:
            raise ValueError(f"{missing} rows contain an action without its key")
    return False


def _present(structs: pa.StructArray) -> pa.StructArray:
    return structs.filter(structs.is_valid()) if structs.null_count else structs


def _flattened(structs: pa.StructArray, is_add: bool, version: int, wanted: Wanted) -> pa.Table:
    """Convert `add` or `remove` structs to columns of `FILE_ROWS`. Absent fields become null."""
    names = {field.name for field in structs.type}
    paths = pc.struct_field(structs, "path")
    if paths.null_count:
        structs = structs.filter(paths.is_valid())
    count = len(structs)
    columns: dict[str, pa.Array] = {}
    for field in wanted.schema:
        name = _LOGGED.get(field.name)
        if field.name == "version":
            columns["version"] = pa.repeat(arrow_scalar(version, pa.int64()), count)
        elif field.name == "is_add":
            columns["is_add"] = pa.repeat(arrow_scalar(is_add), count)
        elif name not in names:
            columns[field.name] = pa.nulls(count, field.type)
        elif name != "deletionVector":
            column = pc.struct_field(structs, name)
            keep = wanted.encoded and is_add and name == "partitionValues"
            columns[field.name] = column if keep else pc.cast(column, field.type)
    if "deletionVector" in names:
        vectors, ids = _vectors(pc.struct_field(structs, "deletionVector"))
        columns |= {
            name: column
            for name, column in (("deletion_vector", vectors), ("dv_id", ids))
            if name in wanted.columns
        }
    require_sizes(columns, pa.repeat(arrow_scalar(is_add), count))
    values = columns.get("partition_values")
    if is_add and values is not None and values.null_count and "partitionValues_parsed" in names:
        parsed = _texts_of(pc.struct_field(structs, "partitionValues_parsed"))
        columns["partition_values"] = pc.coalesce(values.cast(STRING_MAP), parsed)
    schema = pa.schema([field.with_type(columns[field.name].type) for field in wanted.schema])
    table = pa.table([columns[name] for name in schema.names], schema=schema)
    if STRUCTS in names and (wanted.bounds_of is not None or columns["stats"].null_count):
        table = table.append_column(STRUCTS, pc.struct_field(structs, STRUCTS))
    return table


def _texts_of(parsed: pa.StructArray) -> pa.Array:
    """Convert typed partition values to maps of strings."""
    names = [field.name for field in parsed.type]
    kinds = from_arrow(pa.schema(list(parsed.type))).fields
    columns = [
        format_partition_values(
            pc.struct_field(parsed, name).cast(arrow_type(kind.type)), kind.type
        )
        for name, kind in zip(names, kinds, strict=True)
    ]
    rows = zip(*(column.to_pylist() for column in columns), strict=True)
    return arrow_array([list(zip(names, row, strict=True)) for row in rows], STRING_MAP)


def _vectors(vectors: pa.StructArray) -> tuple[pa.Array, pa.Array]:
    """Return deletion vectors in txlog's type, and their unique ids."""
    names = {field.name for field in vectors.type}
    children = {
        field.name: pc.struct_field(vectors, field.name).cast(field.type)
        if field.name in names
        else pa.nulls(len(vectors), field.type)
        for field in DELETION_VECTOR
    }
    # Some writers write an empty struct if there is no vector.
    absent = pc.is_null(children["storageType"])
    typed = pa.StructArray.from_arrays(
        list(children.values()), fields=list(DELETION_VECTOR), mask=absent
    )
    return typed, vector_ids(typed)


def united(tables: Sequence[pa.Table]) -> pa.Table:
    """Combine the batches of a checkpoint into one table.

    Statistics become texts if their struct types are not compatible.
    """
    try:
        return pa.concat_tables(tables, promote_options="permissive")
    except pa.ArrowException:
        return pa.concat_tables([with_json_stats(table) for table in tables])
