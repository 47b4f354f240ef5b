"""Statistics of single files as the log's JSON text: what they lack, and putting more in. Pure."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from decimal import Decimal
from typing import Any

import orjson
import pyarrow as pa

from txlog.actions.columns import flat
from txlog.arrow import arrow_array, pc
from txlog.schema.types import DataType
from txlog.stats.bounds import Path, value_at
from txlog.stats.collect import has_bounds, put
from txlog.stats.files import num_records
from txlog.stats.read import bound_type, child_of, struct_count

_OF_COLUMNS = ("minValues", "maxValues", "nullCount")


def lacking(
    files: pa.Table, columns: Mapping[Path, DataType], answers: Mapping[str, pa.Array]
) -> pa.Array:
    """Return for each of `FILE_ROWS` whether its statistics lack something.

    That is the number of rows, or of a column the null count, or the least value where there are
    values and txlog writes bounds of the type.

    Parameters
    ----------
    columns
        Leaf columns and their types, by the names that statistics have for them.
    answers
        For a top-level column, which of the files are to tell of it. Default: all.
    """
    documents = [_parsed(text) for text in flat(files["stats"]).to_pylist()]
    structs = flat(files["stats_parsed"]) if "stats_parsed" in files.column_names else None
    found = pc.is_null(num_records(files))
    for path, kind in columns.items():
        lacks = arrow_array([_lacks(document, path, kind) for document in documents], pa.bool_())
        if structs is not None:
            lacks = pc.and_(lacks, _structs_lack(structs, path, kind))
        if path[0] in answers:
            lacks = pc.and_(lacks, answers[path[0]])
        found = pc.or_(found, lacks)
    return found


def _lacks(document: dict[str, Any], path: Path, kind: DataType) -> bool:
    nulls = value_at(document, ("nullCount", *path))
    if not isinstance(nulls, Decimal):
        return True
    if not has_bounds(kind) or nulls == document.get("numRecords"):
        return False
    return value_at(document, ("minValues", *path)) is None


def _structs_lack(structs: pa.Array, path: Path, kind: DataType) -> pa.Array:
    nulls = struct_count(structs, ("nullCount", *path))
    if not has_bounds(kind):
        return pc.is_null(nulls)
    low = child_of(structs, ("minValues", *path), bound_type(kind))
    has_values = pc.fill_null(pc.less(nulls, struct_count(structs, ("numRecords",))), True)
    return pc.or_(pc.is_null(nulls), pc.and_(pc.is_null(low), has_values))


def with_columns(
    old: str | None, computed: str, columns: Collection[Path], *, tight: bool
) -> str | None:
    """Return statistics with the number of rows, and what is computed of some columns, in them.

    What the old ones say of other columns stays, to the digit. None: nothing would change.

    Parameters
    ----------
    computed
        Statistics of `columns` alone.
    tight
        Whether no row has been deleted of those that `computed` tells of.
    """
    before, new, after = _parsed(old), _parsed(computed), _parsed(old)
    after["numRecords"] = new["numRecords"]
    for part in _OF_COLUMNS:
        told = after[part] if isinstance(after.get(part), dict) else {}
        after[part] = told
        for path in columns:
            _drop(told, path)
    others = any(after[part] for part in _OF_COLUMNS)
    after["tightBounds"] = tight and not (others and before.get("tightBounds") is False)
    for part in _OF_COLUMNS:
        for path in columns:
            put(after[part], path, value_at(new, (part, *path)))
    return None if after == before else _text(after)


def _parsed(text: str | None) -> dict[str, Any]:
    """Return a document with its numbers as Decimals, which keep all digits."""
    try:
        found = json.loads(
            text or "{}", parse_int=Decimal, parse_float=Decimal, parse_constant=lambda _: None
        )
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _text(document: dict[str, Any]) -> str:
    return orjson.dumps(document, default=lambda number: orjson.Fragment(str(number))).decode()


def _drop(node: dict[str, Any], path: Path) -> None:
    """Take a value out, and objects that are empty without it."""
    if len(path) > 1 and isinstance(inner := node.get(path[0]), dict):
        _drop(inner, path[1:])
        if inner:
            return
    node.pop(path[0], None)
