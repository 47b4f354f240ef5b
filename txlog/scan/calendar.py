"""Dates of files that Spark wrote in the calendar of its old versions.

Such a file says so in its footer, of INT96 apart from other types. Its dates and timestamps before
1582-10-15 are labels of the Julian calendar; tables, and their statistics, know the proleptic
Gregorian one alone. Spark has written timestamps without a time zone in the latter from the start.
Pure.
"""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from txlog.arrow import arrow_array, pc
from txlog.schema.timestamps import DAY_US, days_of

CUTOVER = -141_427  # 1582-10-15, in days since the epoch: the first day that both have.

_DATES = b"org.apache.spark.legacyDateTime"
_INT96 = b"org.apache.spark.legacyINT96"
_VERSION = b"org.apache.spark.version"
_EPOCH_JDN = 2_440_588  # The Julian day number of 1970-01-01.


def is_legacy(metadata: Mapping[bytes, bytes] | None, *, int96: bool | None = None) -> bool:
    """Return whether a file's footer says that it is in the old calendar.

    Parameters
    ----------
    int96
        True asks for timestamps of the physical type INT96, False for all other values, None for
        any of the two.
    """
    keys = metadata or {}
    marks = {None: (_DATES, _INT96), True: (_INT96,), False: (_DATES,)}[int96]
    if any(mark in keys for mark in marks):
        return True
    version = keys.get(_VERSION, b"3").split(b".")[0]
    return version.isdigit() and int(version) < 3


def rebased(array: pa.Array, *, int96: bool = False) -> pa.Array:
    """Return dates or timestamps of a legacy file as those that their writer meant.

    Timestamps go by their day in UTC. Those without a time zone are returned as they are, unless
    they were INT96, which Arrow gives without one; and so are arrays of other types.
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
    return pc.divide(shifted, DAY_US)  # Arrow's division cuts towards zero.


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
