"""Which files lack statistics that txlog would write. Pure."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from txlog.actions.columns import flat
from txlog.actions.stats_text import Path, StatsText
from txlog.arrow import arrow_array, pc
from txlog.schema.types import DataType
from txlog.stats.collect import has_bounds
from txlog.stats.files import num_records
from txlog.stats.read import bound_type, child_of, struct_count


def lacking(
    files: pa.Table, columns: Mapping[Path, DataType], answers: Mapping[str, pa.Array]
) -> pa.Array:
    """Return for each of `FILE_ROWS` whether its statistics are incomplete.

    They are if they lack the number of rows, or the null count of a column, or its least value
    although there are values and txlog writes bounds of the type.

    Parameters
    ----------
    columns
        Leaf columns and their types, by the names that statistics have for them.
    answers
        For a top-level column, which files must have statistics of it. Default: all.
    """
    documents = [StatsText(text) for text in flat(files["stats"]).to_pylist()]
    structs = flat(files["stats_parsed"]) if "stats_parsed" in files.column_names else None
    incomplete = pc.is_null(num_records(files))
    for path, kind in columns.items():
        lacks = arrow_array([_lacks(document, path, kind) for document in documents], pa.bool_())
        if structs is not None:
            lacks = pc.and_(lacks, _structs_lack(structs, path, kind))
        if path[0] in answers:
            lacks = pc.and_(lacks, answers[path[0]])
        incomplete = pc.or_(incomplete, lacks)
    return incomplete


def _lacks(stats: StatsText, path: Path, kind: DataType) -> bool:
    nulls = stats.value("nullCount", path)
    if type(nulls) is not int:
        return True
    if not has_bounds(kind) or nulls == stats.document.get("numRecords"):
        return False
    return stats.value("minValues", path) is None


def _structs_lack(structs: pa.Array, path: Path, kind: DataType) -> pa.Array:
    nulls = struct_count(structs, ("nullCount", *path))
    if not has_bounds(kind):
        return pc.is_null(nulls)
    low = child_of(structs, ("minValues", *path), bound_type(kind))
    has_values = pc.fill_null(pc.less(nulls, struct_count(structs, ("numRecords",))), True)
    return pc.or_(pc.is_null(nulls), pc.and_(pc.is_null(low), has_values))
