"""Convert the columns of a data file to those of the table.

A file may lack columns, have a narrower type from before a type change, use physical names, or
represent lists and maps in another way. Pure.

Old versions of Spark wrote dates in another calendar. The footer of such a file has a mark, with a
separate one for INT96: its dates and timestamps before 1582-10-15 are in the Julian calendar.
Tables, their statistics, and Spark's timestamps without a time zone always use the proleptic
Gregorian calendar.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa

from txlog.base.arrow import arrow_array, arrow_scalar, pc
from txlog.base.errors import DataFileError, LogCorruptError, UnsupportedFeatureError, reason_of
from txlog.base.moments import DAY_US, days_of
from txlog.fragments.fragment import Fragment
from txlog.protocol.form import RowTracking
from txlog.schema.arrow import arrow_type
from txlog.schema.casts import Reading, cuts_nanos, reading
from txlog.schema.types import (
    MONTH_INTERVALS,
    ArrayType,
    DataType,
    MapType,
    PrimitiveType,
    StructField,
    StructType,
)
from txlog.snapshot.snapshot import Snapshot
from txlog.stats.skip import ColumnBounds
from txlog.variant.shredding import unshred

_FIELD_ID = b"PARQUET:field_id"


def find_columns(
    fields: pa.Schema | pa.StructType, wanted: Sequence[StructField], mode: str
) -> list[int | None]:
    """Return the index of the file's column for each table column, or None if the file has none.

    `mode` is the table's column mapping: `id` uses Parquet field ids, `name` physical names, `none`
    logical names. A column without an id is found by its name: as it is spelt, or else in any case.
    The names of a file are read once, because a file may have thousands.
    """
    by_id: dict[bytes | None, int] = {}
    by_name: dict[str, int] = {}
    by_case: dict[str, int] = {}
    for at, field in enumerate(fields):  # Of equal ones, the first counts.
        if mode == "id":
            by_id.setdefault((field.metadata or {}).get(_FIELD_ID), at)
        by_name.setdefault(field.name, at)
        by_case.setdefault(field.name.lower(), at)
    places = []
    for column in wanted:
        if mode == "id" and column.field_id is not None:
            places.append(by_id.get(str(column.field_id).encode()))
            continue
        name = column.name_in_files(mode)
        places.append(by_name.get(name, by_case.get(name.lower())))
    return places


def conform(array: pa.Array, want: DataType, mode: str, *, path: str, column: str) -> pa.Array:
    """Return a file's column in the table's type.

    Raises
    ------
    DataFileError
        The file's type cannot be converted to the table's without loss. The error names file and
        column.
    """
    target = arrow_type(want)
    try:
        return _conform(array, want, target, mode)
    except DataFileError as error:
        error.path = error.path or path
        error.reason = f"column {column}: {error.reason}"
        raise
    except (pa.ArrowException, ValueError, TypeError, AttributeError, KeyError) as error:
        raise DataFileError(
            path=path,
            reason=f"column {column} is {array.type}, which cannot be read as {target}: "
            f"{reason_of(error)}",
            remedy="The file does not fit the table's schema. Its writer made an error: restore a "
            "version without the file",
        ) from error


def _conform(array: pa.Array, want: DataType, target: pa.DataType, mode: str) -> pa.Array:
    if array.type == target and (mode == "none" or not pa.types.is_nested(target)):
        return array  # With column mapping, equal nested names may be different columns.
    if isinstance(array.type, pa.BaseExtensionType):
        return _conform(array.storage, want, target, mode)
    if pa.types.is_null(array.type):
        return pa.nulls(len(array), target)
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    if pa.types.is_fixed_size_list(array.type):
        array = array.cast(pa.list_(array.type.value_field))
    match want:
        case PrimitiveType("variant"):
            return unshred(array)
        case PrimitiveType(name) if name in MONTH_INTERVALS and pa.types.is_int32(array.type):
            return _months(array, target)
        case StructType(fields) if pa.types.is_struct(array.type):
            children = [
                pa.nulls(len(array), arrow_type(field.type))
                if place is None
                else _conform(array.field(place), field.type, arrow_type(field.type), mode)
                for field, place in zip(fields, find_columns(array.type, fields, mode), strict=True)
            ]
            return _struct(children, target, array)
        case ArrayType(element) if _is_list(array.type):
            array = _from_zero(array)
            inner = array.values
            if _is_bare(inner, array.type, element):  # Two-level lists omit a group with one field.
                inner = pa.StructArray.from_arrays([inner], [array.type.value_field.name])
            values = _conform(inner, element, target.value_type, mode)
            return pa.ListArray.from_arrays(
                array.offsets.cast(pa.int32()), values, type=target, mask=_nulls(array)
            )
        case MapType(key, value) if pa.types.is_map(array.type):
            array = _from_zero(array)
            return _map(
                array,
                _conform(array.keys, key, target.key_type, mode),
                _conform(array.items, value, target.item_type, mode),
                target,
            )
    if cuts_nanos(array.type, target):  # The table has microseconds: smaller units are truncated.
        return array.cast(target, safe=False)
    return _cast(array, target)


def _is_bare(values: pa.Array, kind: pa.DataType, element: DataType) -> bool:
    """Whether a list contains the only field of its structs instead of the structs."""
    return (
        isinstance(element, StructType)
        and len(element.fields) == 1
        and not pa.types.is_struct(values.type)
        and kind.value_field.name.lower() == element.fields[0].physical_name.lower()
    )


def _months(array: pa.Array, target: pa.DataType) -> pa.Array:
    """Return numbers of months as intervals, which Arrow keeps as months, days, nanoseconds."""
    low = pc.bit_wise_and(pc.fill_null(array.cast(pa.int64()), 0), 0xFFFF_FFFF)
    pairs = pa.concat_arrays([low, arrow_array(np.zeros(len(low), np.int64))])
    order = arrow_array([at for row in range(len(low)) for at in (row, row + len(low))], pa.int64())
    validity = None if array.null_count == 0 else array.is_valid().buffers()[1]
    return pa.Array.from_buffers(target, len(low), [validity, pairs.take(order).buffers()[1]])


def _cast(array: pa.Array, target: pa.DataType) -> pa.Array:
    if reading(array.type, target) is Reading.NEVER:
        raise TypeError("the types are of different kinds")
    return array.cast(target)


def _struct(children: list[pa.Array], target: pa.DataType, like: pa.Array) -> pa.Array:
    if not children:
        return arrow_array([None if null else {} for null in like.is_null().to_pylist()], target)
    return pa.StructArray.from_arrays(children, fields=list(target), mask=_nulls(like))


def _map(array: pa.MapArray, keys: pa.Array, items: pa.Array, target: pa.DataType) -> pa.Array:
    entries = pa.StructArray.from_arrays(
        [keys, items], fields=[target.key_field, target.item_field]
    )
    validity = None if array.null_count == 0 else array.is_valid().buffers()[1]
    return pa.MapArray.from_buffers(
        target, len(array), [validity, array.offsets.buffers()[1]], children=[entries]
    )


def _nulls(array: pa.Array) -> pa.Array | None:
    return array.is_null() if array.null_count else None


def _from_zero(array: pa.Array) -> pa.Array:
    """Return the same values with buffers that begin at zero, as `from_arrays` requires."""
    return pa.concat_arrays([array]) if array.offset else array


def _is_list(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)
    )


CUTOVER = -141_427  # 1582-10-15, in days since the epoch: the first day with the same date in both.

_DATES = b"org.apache.spark.legacyDateTime"
_INT96 = b"org.apache.spark.legacyINT96"
_VERSION = b"org.apache.spark.version"
_EPOCH_JDN = 2_440_588  # The Julian day number of 1970-01-01.


def is_legacy(metadata: Mapping[bytes, bytes] | None, *, int96: bool | None = None) -> bool:
    """Return whether a file's footer marks values in the old calendar.

    Parameters
    ----------
    int96
        True: timestamps of the physical type INT96; False: all other values; None: any of the two.
    """
    keys = metadata or {}
    marks = {None: (_DATES, _INT96), True: (_INT96,), False: (_DATES,)}[int96]
    if any(mark in keys for mark in marks):
        return True
    version = keys.get(_VERSION, b"3").split(b".")[0]
    return version.isdigit() and int(version) < 3


def rebased(array: pa.Array, *, int96: bool = False) -> pa.Array:
    """Convert dates or timestamps of a legacy file from the Julian to the Gregorian calendar.

    Timestamps are converted by their day in UTC. Timestamps without a time zone do not change,
    except INT96, which Arrow returns without a time zone. Arrays of other types do not change.
    """
    if pa.types.is_date32(array.type):
        return (
            _rebased_days(array.cast(pa.int32()).cast(pa.int64())).cast(pa.int32()).cast(array.type)
        )
    if not pa.types.is_timestamp(array.type) or array.type.unit != "us":
        return array
    if array.type.tz is None and not int96:
        return array
    micros = array.cast(pa.int64())
    if not _has_old(micros, CUTOVER * DAY_US):
        return array
    of_day = pc.subtract(micros, pc.multiply(_floor_days(micros), DAY_US))
    days = _rebased_days(_floor_days(micros))
    return pc.add(pc.multiply(days, DAY_US), of_day).cast(array.type)


def _floor_days(micros: pa.Array) -> pa.Array:
    shifted = pc.if_else(pc.less(micros, 0), pc.subtract(micros, DAY_US - 1), micros)
    return pc.divide(shifted, DAY_US)  # Arrow's division rounds towards zero.


def _has_old(values: pa.Array, cutover: int) -> bool:
    return bool(pc.any(pc.less(values, cutover)).as_py())


def _rebased_days(days: pa.Array) -> pa.Array:
    old = pc.fill_null(pc.less(days, CUTOVER), False)
    if not pc.any(old).as_py():
        return days
    distinct = days.filter(old).unique()
    meant = arrow_array([_gregorian(day) for day in distinct.to_pylist()], pa.int64())
    places = pc.index_in(days.filter(old), value_set=distinct)
    return pc.replace_with_mask(days, old, meant.take(places))


def _gregorian(day: int) -> int:
    """Return the day whose Gregorian date is the Julian date of a day."""
    shifted = day + _EPOCH_JDN + 32_082
    years, of_four = divmod(4 * shifted + 3, 1461)
    of_year = of_four // 4
    months = (5 * of_year + 2) // 153
    date = of_year - (153 * months + 2) // 5 + 1
    month = months + 3 - 12 * (months // 10)
    year = years - 4800 + months // 10
    return days_of(year, month, date)


ROW_ADDRESS = "_rowaddr"
ROW_ID = "_rowid"
FRAGMENT_ID = "_fragid"
ROW_VERSION = "_row_last_updated_at_version"

_POSITIONS = 1 << 32  # The largest number of rows of a fragment in addresses.

_LONG = PrimitiveType("long")
METADATA_COLUMNS = StructType(
    (
        StructField(ROW_ID, _LONG, nullable=False),
        StructField(ROW_ADDRESS, _LONG, nullable=False),
        StructField(FRAGMENT_ID, PrimitiveType("integer"), nullable=False),
        StructField(ROW_VERSION, _LONG, nullable=False),
    )
)


def stored_metadata(name: str, tracking: RowTracking | None) -> str | None:
    """Return the data files' column for a metadata column; None if it is not stored.

    Files may lack it.
    """
    if tracking is None:
        return None
    return {ROW_ID: tracking.row_id_column, ROW_VERSION: tracking.row_version_column}.get(name)


def visible_metadata(snapshot: Snapshot) -> Mapping[str, StructField]:
    """Return the metadata columns by name; a column of the table hides one with the same name."""
    return {
        column.name: column
        for column in METADATA_COLUMNS.fields
        if snapshot.schema.get(column.name) is None
    }


def metadata_bounds(
    ids: pa.Array, rows: pa.Array, tracking: RowTracking | None, *, starts: pa.Array | int = 0
) -> dict[str, ColumnBounds]:
    """Return bounds of the metadata columns of fragments, or of their parts, without reading.

    Rule: FRG-42.

    Parameters
    ----------
    ids, rows, starts
        For each part: its fragment's id, its number of physical rows (null if unknown), and the
        position of its first row.
    tracking
        With row tracking there are no bounds of ids, because moved rows keep their ids.
    """
    none = pa.repeat(arrow_scalar(0, pa.int64()), len(ids))
    first = pc.add(pc.multiply(ids, _POSITIONS), starts)
    count = pc.min_element_wise(pc.coalesce(rows, _POSITIONS), _POSITIONS)
    addresses = ColumnBounds(first, pc.subtract(pc.add(first, count), 1), none)
    found = {FRAGMENT_ID: ColumnBounds(ids, ids, none), ROW_ADDRESS: addresses}
    return found if tracking is not None else {**found, ROW_ID: addresses}


def require_row_tracking(snapshot: Snapshot) -> None:
    """Raise if the versions of rows are requested without row tracking.

    Raises
    ------
    UnsupportedFeatureError
        The table has no row tracking.
    """
    if not snapshot.has_stable_row_ids:
        raise UnsupportedFeatureError(
            path=snapshot.root,
            features=("rowTracking",),
            reason="the table does not track rows, so their ids and versions are unknown",
            remedy="Omit the column; tables with delta.enableRowTracking=true have it",
        )


def metadata_column(
    name: str,
    fragment: Fragment,
    tracking: RowTracking | None,
    *,
    rows: range | pa.Array,
    stored: pa.Array | None,
    version: int | None,
) -> pa.Array:
    """Return a metadata column of physical rows of a fragment.

    Parameters
    ----------
    rows
        Their positions in the fragment's file: a range, or int64.
    stored
        The stored values of the column in the file; null for rows that did not move.
    version
        The version of rows for which the file stores none.

    Raises
    ------
    LogCorruptError
        The table tracks rows, but the file has no ids or no version; the error names the file.
    """
    if name == FRAGMENT_ID:
        return pa.repeat(arrow_scalar(fragment.id, pa.int32()), len(rows))
    if name == ROW_VERSION:
        fresh = pa.repeat(
            arrow_scalar(_tracked(fragment, ROW_VERSION, version), pa.int64()), len(rows)
        )
    elif name == ROW_ID and tracking is not None:
        fresh = _counted_from(_tracked(fragment, ROW_ID, version), rows)
    else:
        fresh = _counted_from(fragment.id << 32, rows)
    return fresh if stored is None else pc.coalesce(stored.cast(pa.int64()), fresh)


def _counted_from(first: int, rows: range | pa.Array) -> pa.Array:
    end = rows.stop if isinstance(rows, range) else (pc.max(rows).as_py() or 0) + 1
    if first + end > 1 << 63:
        raise LogCorruptError(
            field="baseRowId",
            reason=f"row {end - 1} of a file whose ids begin at {first} would have an id above "
            "2^63 - 1",
            remedy=f"Leave out the column {ROW_ID}; the writer of this log is at fault",
        )
    if isinstance(rows, range):
        if first + end < 1 << 63:
            return pa.arange(first + rows.start, first + rows.stop)
        rows = pa.arange(rows.start, rows.stop)  # The end of the ids is no number of 64 bits.
    return pc.add(rows, arrow_scalar(first, pa.int64()))


def _tracked(fragment: Fragment, name: str, version: int | None) -> int:
    value = fragment.base_row_id if name == ROW_ID else version
    if value is None:
        field = "baseRowId" if name == ROW_ID else "defaultRowCommitVersion"
        raise LogCorruptError(
            path=fragment.path,
            field=field,
            reason=f"the table tracks rows, but this file's add has no {field}",
            remedy=f"Leave out the column {name}; the writer of this log is at fault",
        )
    return value
