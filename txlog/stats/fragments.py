"""Statistics of fragments: each column's come from the file that gives it. Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from functools import partial

import pyarrow as pa

from txlog.arrow import pc
from txlog.errors import LogCorruptError
from txlog.expressions.bind import columns_of
from txlog.expressions.tree import Expression
from txlog.fragments.rows import FragmentRows
from txlog.schema.types import StructType
from txlog.stats.bounds import EVERYTHING, Bounds, ColumnBounds, Known
from txlog.stats.files import file_bounds, num_records, partition_texts


def physical_rows(rows: FragmentRows) -> pa.Array:
    """Return the number of physical rows of each fragment; null where the log does not say.

    Raises
    ------
    LogCorruptError
        A column file has another number of rows than its primary, or does not say (rule FRG-16).
    """
    counts = num_records(rows.primaries)
    require_same_counts(rows, counts)
    return counts


def require_same_counts(rows: FragmentRows, counts: pa.Array | None = None) -> None:
    """Refuse column files that have not as many rows as their primary; errors as above.

    `counts` are those of the primaries, if the caller has them.
    """
    columns = rows.columns
    if not columns.rows.num_rows:
        return
    ours = (num_records(rows.primaries) if counts is None else counts).take(columns.owners)
    theirs = num_records(columns.rows)
    same = pc.fill_null(pc.equal(theirs, ours), False)
    _require(
        columns.rows,
        same,
        "stats",
        lambda at: f"it has {theirs[at]} rows, the primary file of its fragment {ours[at]}",
    )


def require_same_partitions(rows: FragmentRows, physical_names: Sequence[str]) -> None:
    """Refuse column files that are in another partition than their primary (rule FRG-16).

    Raises
    ------
    LogCorruptError
        The file is named.
    """
    columns = rows.columns
    for name in physical_names if columns.rows.num_rows else ():
        theirs = partition_texts(columns.rows, name)
        ours = partition_texts(rows.primaries, name).take(columns.owners)
        same = pc.fill_null(pc.equal(theirs, ours), pc.and_(theirs.is_null(), ours.is_null()))
        _require(columns.rows, same, "partitionValues", partial(_elsewhere, name, theirs, ours))


def _elsewhere(name: str, theirs: pa.Array, ours: pa.Array, at: int) -> str:
    return f"its {name} is {theirs[at]}, that of the primary file {ours[at]}"


def _require(rows: pa.Table, same: pa.Array, field: str, reason: Callable[[int], str]) -> None:
    """Refuse column files that do not fit their fragments; `reason` says why, of one of them."""
    if pc.all(same).as_py():
        return
    at = pc.index(same, False).as_py()
    raise LogCorruptError(
        path=rows["path"][at].as_py(),
        field=field,
        reason=f"a column file does not fit its fragment: {reason(at)}",
        remedy="The writer of this log is at fault",
    )


def fragment_bounds(
    rows: FragmentRows,
    schema: StructType,
    partition_columns: Sequence[str],
    where: Expression,
    *,
    mapping_mode: str = "none",
    known: Collection[Known] = EVERYTHING,
    counts: pa.Array | None = None,
) -> Bounds:
    """Return what the log knows of the columns that a bound predicate reads, for each fragment.

    Parameters are those of `file_bounds`. What a primary says of a column that another file gives
    counts for nothing.
    """

    def bounds_of(files: pa.Table, counts: pa.Array | None = None) -> Bounds:
        return file_bounds(
            files,
            schema,
            partition_columns,
            where,
            mapping_mode=mapping_mode,
            known=known,
            counts=counts,
        )

    found = bounds_of(rows.primaries, counts)
    if set(known) == {Known.PARTITIONS} or not rows.columns.rows.num_rows:
        return found
    theirs = bounds_of(rows.columns.rows)
    places = pa.arange(0, rows.primaries.num_rows)
    columns = dict(found.columns)
    for path in columns_of(where):
        field = schema.get(path[0])
        if field is None or path[0] in partition_columns:
            continue
        giving = rows.columns.giving(field.name_in_files(mapping_mode))
        if path in columns and pc.any(giving).as_py():
            order = pc.sort_indices(rows.columns.owners.filter(giving))
            given = theirs.columns[path]
            mask = pc.is_in(places, value_set=rows.columns.owners.filter(giving))
            ours = columns[path]
            columns[path] = ColumnBounds(
                *(
                    pc.replace_with_mask(old, mask, new.filter(giving).take(order))
                    for old, new in (
                        (ours.low, given.low),
                        (ours.high, given.high),
                        (ours.nulls, given.nulls),
                    )
                )
            )
    return replace(found, columns=columns)
